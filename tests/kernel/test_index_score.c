/* test_index_score.c - index_score: heads of every model; single tokens, tiles of any length, split at multiples of a tile, at the first
 * scored token and at the end of a window of rows; contexts that end anywhere in a page, shares that begin anywhere in a context; an op
 * over some rows of the step; poison after every context; against the text for each pair, and against binary64. */
#include "engine/mma/h32.h"
#include "kernel_test.h"
#include <math.h>

enum { RUNS_MAX = 6, ROWS_MAX = 600, HEADS_MAX = 64, SEQS = 4, TABLE = 12 };

enum codes_kind {
  CODES_PLAIN,      /* exponents of quantised numbers                                  */
  CODES_ANY,        /* all exponents: most products of a step are truncated            */
  CODES_CANCELLING, /* neighbours that cancel except for a last bit: close signs       */
  CODES_NEGATIVE,   /* no product is above zero                                        */
  CODES_SPECIAL     /* some NaN, and infinite weights and scales                       */
};

typedef struct score_shape {
  u32 heads, topk, kind;
  u32 row_first, row_count;
  u32 runs;
  struct { u32 seq, position, count; } run[RUNS_MAX]; /* consecutive rows of the step */
} score_shape;

typedef struct score_case {
  const score_shape *s;
  index_score_args a;
  u32 tokens, seq[ROWS_MAX], position[ROWS_MAX];
} score_case;

static u8 code_of(cases *c, u32 kind, u32 i, u8 before, u32 side) {
  u32 r = cases_bits(c), fraction = r & 7, sign = r >> 8 & 0x80;
  switch (kind) {
    case CODES_ANY: return (r & 0x7f) == 0x7f ? 0 : (u8)(r & 0xff);
    case CODES_CANCELLING:
      return i % 2 ? (u8)(before ^ (side ? 0 : 0x80) ^ (r >> 16 & 7 ? 0 : 1)) : (u8)(sign | (r >> 4 & 1) << 3 | 0x30 | fraction);
    case CODES_NEGATIVE: return (u8)((side ? 0x80 : 0) | (r >> 4 & 3) << 3 | 0x28 | fraction);
    case CODES_SPECIAL: return cases_below(c, 700) ? (u8)(sign | (r >> 4 & 7) << 3 | fraction) : (u8)(sign | 0x7f);
    default: return (u8)(sign | (r >> 4 & 7) << 3 | 0x20 | fraction);
  }
}

static void fill_codes(cases *c, u32 kind, u32 side, u8 *out) {
  for (u32 i = 0; i < INDEX_DIM; i++) out[i] = code_of(c, kind, i, i ? out[i - 1] : 0, side);
}

static f32 number_of(cases *c, u32 kind) {
  if (kind == CODES_SPECIAL && cases_below(c, 60) == 0) return cases_below(c, 2) ? INFINITY : NAN;
  return cases_uniform(c, 1.0f) * (cases_below(c, 8) ? 1.0f : 0x1p-12f);
}

static u8 *page_of(const score_case *p, u8 *cache, u32 seq, u32 position) {
  return cache + (size_t)p->a.block_table[seq * TABLE + position / PAGE_TOKENS] * INDEX_PAGE_BYTES;
}

static bool is_scored(const score_case *p, u32 token) {
  return token >= p->s->row_first && token - p->s->row_first < p->s->row_count && p->position[token] >= p->s->topk;
}

/* Independent code for NUMERICS.md, `index_score`. The sum is also computed in binary64, with the sum of all magnitudes as the scale of the
 * error. */
static f32 score_of(const score_case *p, u32 token, u32 key, double *exact, double *sum) {
  const u8 *page = page_of(p, (u8 *)(uintptr_t)p->a.cache, p->seq[token], key), *codes = page + key % PAGE_TOKENS * INDEX_DIM;
  f32 part[4] = {0}, scale;
  memcpy(&scale, page + PAGE_TOKENS * INDEX_DIM + key % PAGE_TOKENS * 4, 4);
  *exact = *sum = 0;
  for (u32 group = 0; group < 4; group++)
    for (u32 i = 0; i < p->s->heads / 4; i++) {
      const u32 head = 2 * group + i / 2 * 8 + i % 2;
      const u8 *q = p->a.q_codes + ((size_t)token * p->s->heads + head) * INDEX_DIM;
      const f32 w = p->a.w[(size_t)token * p->s->heads + head];
      f32 d = 0;
      double dot = 0, terms = 0;
      for (u32 k = 0; k < INDEX_DIM; k += H32_STEP) d = h32_step_reference(q + k, codes + k, d);
      for (u32 k = 0; k < INDEX_DIM; k++) {
        const double term = (double)num_from_e4m3(q[k]) * (double)num_from_e4m3(codes[k]);
        dot += term, terms += fabs(term);
      }
      part[group] = fmaf(isnan(d) ? d : d > 0 ? d : 0, w, part[group]);
      *exact += (dot > 0 ? dot : 0) * (double)w * (double)scale;
      *sum += terms * fabs((double)w * (double)scale);
    }
  return ((part[0] + part[1]) + (part[2] + part[3])) * scale;
}

static void check_pair(const score_case *p, u32 token, u32 key) {
  double exact, sum;
  const f32 want = score_of(p, token, key, &exact, &sum), got = p->a.scores[(size_t)(token - p->s->row_first) * p->a.stride + key];
  if (isnan(want)) assert_true(isnan(got));
  else assert_true(num_bits(got) == num_bits(want));
  if (p->s->kind != CODES_SPECIAL) kernel_test_near((double)got, exact, 0, sum * 0x1p-9);
}

/* Pages of contexts are scattered and disjoint; keys exist up to the last position of their sequence in the step. */
static void fill_cache(score_case *p, cases *c, u8 *cache, u32 *table) {
  for (u32 i = 0; i < SEQS * TABLE; i++) table[i] = (i * 29 + 7) % (SEQS * TABLE);
  for (u32 r = 0; r < p->s->runs; r++)
    for (u32 i = 0; i < p->s->run[r].position + p->s->run[r].count; i++) {
      u8 *page = page_of(p, cache, p->s->run[r].seq, i);
      const f32 scale = p->s->kind == CODES_SPECIAL ? fabsf(number_of(c, CODES_SPECIAL)) : ldexpf(1 + cases_uniform(c, 0.5f), -8);
      fill_codes(c, p->s->kind, 0, page + i % PAGE_TOKENS * INDEX_DIM);
      memcpy(page + PAGE_TOKENS * INDEX_DIM + i % PAGE_TOKENS * 4, &scale, 4);
    }
}

/* Skipped rows, scores after a token's position, and rows outside of the op must not change. */
static void declare(kernel_test *test, const score_case *p) {
  kernel_test_loose(test, p->a.scores, (size_t)p->s->row_count * p->a.stride * 4);
  for (u32 i = 0; i < p->s->row_count; i++) {
    const u32 token = p->s->row_first + i, from = token < p->tokens && is_scored(p, token) ? p->position[token] + 1 : 0;
    kernel_test_keep(test, p->a.scores + (size_t)i * p->a.stride + from, (p->a.stride - from) * 4ull);
  }
}

static kernel_variant variant_of(const score_shape *s, u32 pages, u32 stages, u32 blocks, u32 rows) {
  kernel_variant v = {.spec = {{"SPEC_MAPS", 1}, {"SPEC_HEADS", s->heads}, {"SPEC_PAGES", pages}, {"SPEC_STAGES", stages}},
                      .spec_count = 4, .threads = 640,
                      .grid = {blocks, 1, 1}, .rows = rows};
  v.shared_bytes = 1536 + 2 * (4 * 128 * 128 + 2048) + stages * pages * 9216;
  return v;
}

static void run_and_check(kernel_test *test, score_case *p, cases *c) {
  const score_shape *s = p->s;
  const kernel_variant v[] = {variant_of(s, 2, 4, 5, p->tokens), variant_of(s, 1, 8, 1, p->tokens),
                              variant_of(s, 2, 4, 3, p->tokens), variant_of(s, 1, 8, 7, p->tokens)};
  kernel_test_run(test, &p->a, v, ARRAY_LEN(v));
  for (u32 i = 0; i < 40; i++) {
    const u32 token = s->row_first + cases_below(c, min_u32(s->row_count, p->tokens - s->row_first));
    const u32 position = p->position[token];
    if (is_scored(p, token)) check_pair(p, token, i % 4 == 0 ? position : cases_below(c, position + 1));
  }
}

static void score_case_of(kernel_test *test, const score_shape *s) {
  cases c = {.state = s->heads * 1000003u + s->topk * 8191u + s->kind * 131u + s->run[0].position};
  score_case p = {.s = s};
  kernel_test_start(test);
  p.a = (index_score_args){.heads = s->heads, .block_table_stride = TABLE, .topk = s->topk, .stride = TABLE * PAGE_TOKENS,
                           .row_first = s->row_first, .row_count = s->row_count};
  for (u32 r = 0; r < s->runs; r++)
    for (u32 i = 0; i < s->run[r].count; i++, p.tokens++) {
      ASSERT(p.tokens < ROWS_MAX && s->run[r].position + i < TABLE * PAGE_TOKENS);
      p.seq[p.tokens] = s->run[r].seq, p.position[p.tokens] = s->run[r].position + i;
    }
  p.a.step = kernel_test_step(test, p.tokens, 0, 0);
  u32 *position = kernel_test_input(test, (p.tokens + 1) * 4), *seq = kernel_test_input(test, (p.tokens + 1) * 4);
  u32 *table = kernel_test_input(test, SEQS * TABLE * 4);
  u8 *codes = kernel_test_input(test, (size_t)(p.tokens + 1) * s->heads * INDEX_DIM);
  u8 *cache = kernel_test_input(test, (size_t)SEQS * TABLE * INDEX_PAGE_BYTES);
  f32 *w = kernel_test_input(test, (size_t)(p.tokens + 1) * s->heads * 4);
  memcpy(position, p.position, p.tokens * 4), memcpy(seq, p.seq, p.tokens * 4);
  p.a.position = position, p.a.seq = seq, p.a.block_table = table, p.a.q_codes = codes, p.a.cache = cache, p.a.w = w;
  p.a.scores = kernel_test_output(test, (size_t)s->row_count * p.a.stride * 4);
  fill_cache(&p, &c, cache, table);
  for (u32 i = 0; i < p.tokens * s->heads; i++) {
    fill_codes(&c, s->kind, 1, codes + (size_t)i * INDEX_DIM);
    w[i] = number_of(&c, s->kind);
  }
  declare(test, &p);
  run_and_check(test, &p, &c);
}

static void score_cases(kernel_test *test) {
  static const score_shape shapes[] = {
      /* single tokens: a page, its edges, more pages than blocks */
      {.heads = 64, .topk = 64, .kind = CODES_PLAIN, .row_count = 5, .runs = 4,
       .run = {{.seq = 0, .position = 64, .count = 1}, {.seq = 1, .position = 127, .count = 1}, {.seq = 2, .position = 128, .count = 1},
               {.seq = 3, .position = 700, .count = 1}}},
      {.heads = 32, .topk = 64, .kind = CODES_CANCELLING, .row_count = 4, .runs = 4,
       .run = {{.seq = 0, .position = 63, .count = 1}, {.seq = 1, .position = 320, .count = 1}, {.seq = 2, .position = 64, .count = 1},
               {.seq = 3, .position = 191, .count = 1}}},
      {.heads = 16, .topk = 64, .kind = CODES_ANY, .row_count = 2, .runs = 2,
       .run = {{.seq = 0, .position = 199, .count = 1}, {.seq = 3, .position = 70, .count = 1}}},
      /* tiles: whole, split at a multiple, of two and three groups, from the first scored token on, after another sequence */
      {.heads = 64, .topk = 64, .kind = CODES_PLAIN, .row_count = 19, .runs = 3,
       .run = {{.seq = 1, .position = 61, .count = 12}, {.seq = 0, .position = 130, .count = 3},
               {.seq = 2, .position = 188, .count = 4}}},
      {.heads = 64, .topk = 128, .kind = CODES_CANCELLING, .row_count = 14, .runs = 3,
       .run = {{.seq = 1, .position = 125, .count = 6}, {.seq = 0, .position = 190, .count = 5},
               {.seq = 3, .position = 132, .count = 3}}},
      {.heads = 32, .topk = 64, .kind = CODES_ANY, .row_count = 40, .runs = 2,
       .run = {{.seq = 2, .position = 60, .count = 33}, {.seq = 0, .position = 126, .count = 7}}},
      {.heads = 16, .topk = 64, .kind = CODES_PLAIN, .row_count = 48, .runs = 2,
       .run = {{.seq = 0, .position = 62, .count = 40}, {.seq = 1, .position = 110, .count = 5}}},
      /* two runs of one sequence, and of two sequences that meet at the same position */
      {.heads = 64, .topk = 64, .kind = CODES_PLAIN, .row_count = 9, .runs = 3,
       .run = {{.seq = 0, .position = 65, .count = 2}, {.seq = 0, .position = 70, .count = 3}, {.seq = 1, .position = 73, .count = 4}}},
      /* some rows of a step; more rows than it has */
      {.heads = 64, .topk = 64, .kind = CODES_NEGATIVE, .row_first = 3, .row_count = 5, .runs = 2,
       .run = {{.seq = 0, .position = 66, .count = 6}, {.seq = 1, .position = 140, .count = 5}}},
      {.heads = 32, .topk = 64, .kind = CODES_PLAIN, .row_first = 2, .row_count = 30, .runs = 2,
       .run = {{.seq = 0, .position = 90, .count = 5}, {.seq = 1, .position = 128, .count = 3}}},
      /* NaN and Inf */
      {.heads = 64, .topk = 64, .kind = CODES_SPECIAL, .row_count = 6, .runs = 2,
       .run = {{.seq = 0, .position = 100, .count = 4}, {.seq = 1, .position = 65, .count = 2}}},
      {.heads = 32, .topk = 64, .kind = CODES_SPECIAL, .row_count = 3, .runs = 1,
       .run = {{.seq = 0, .position = 80, .count = 3}}},
      /* windows of rows: a tile across the end of one, most rows without scores */
      {.heads = 64, .topk = 512, .kind = CODES_PLAIN, .row_count = 520, .runs = 3,
       .run = {{.seq = 0, .position = 8, .count = 503}, {.seq = 1, .position = 511, .count = 12},
               {.seq = 2, .position = 512, .count = 2}}},
      {.heads = 32, .topk = 448, .kind = CODES_PLAIN, .row_count = 400, .runs = 2,
       .run = {{.seq = 0, .position = 66, .count = 378}, {.seq = 1, .position = 447, .count = 11}}},
  };
  for (size_t i = 0; i < ARRAY_LEN(shapes); i++) score_case_of(test, &shapes[i]);
}

int main(int argc, char **argv) {
  return kernel_test_main(argc, argv, "index_score", "0d32a5ac34de5f1eeeaf54f7cfb3ebd4", score_cases);
}

/* test_index_score.c - index_score: heads of every model; single tokens, tiles of any length, cut at multiples of a tile, at the first
 * token that is scored and at the end of a window of rows; contexts that end anywhere in a page, shares that begin anywhere in a context;
 * an op of some rows of the step; poison behind every context; against one pair at a time by the text, and against binary64. */
#include "engine/cpu/h32.h"
#include "kernel_test.h"
#include <math.h>

enum { RUNS_MAX = 6, ROWS_MAX = 600, HEADS_MAX = 64, SEQS = 4, TABLE = 12 };

enum codes_kind {
  CODES_PLAIN,      /* exponents of quantised numbers                                  */
  CODES_ANY,        /* all that there are: most products of a step are cut             */
  CODES_CANCELLING, /* neighbours that cancel but for a last bit: signs that are close */
  CODES_NEGATIVE,   /* no product is above zero                                        */
  CODES_SPECIAL     /* now and then NaN, and weights and scales without end            */
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

/* In its own words: NUMERICS.md, `index_score`. Also in binary64, with `sum`, of all terms' magnitudes, for how near that is. */
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

/* Pages of a context lie anywhere, and share nothing; a key's row exists up to the last position of its sequence in the step. */
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

/* Rows that the op skips, what stands behind a token's position, rows of others. */
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
                              variant_of(s, 2, 2, 3, p->tokens)};
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
      {64, 64, CODES_PLAIN, 0, 5, 4, {{0, 64, 1}, {1, 127, 1}, {2, 128, 1}, {3, 700, 1}}},
      {32, 64, CODES_CANCELLING, 0, 4, 4, {{0, 63, 1}, {1, 320, 1}, {2, 64, 1}, {3, 191, 1}}},
      {16, 64, CODES_ANY, 0, 2, 2, {{0, 199, 1}, {3, 70, 1}}},
      /* tiles: whole, cut at a multiple, of two and three groups, from the first scored token on, behind another sequence */
      {64, 64, CODES_PLAIN, 0, 19, 3, {{1, 61, 12}, {0, 130, 3}, {2, 188, 4}}},
      {64, 128, CODES_CANCELLING, 0, 14, 3, {{1, 125, 6}, {0, 190, 5}, {3, 132, 3}}},
      {32, 64, CODES_ANY, 0, 40, 2, {{2, 60, 33}, {0, 126, 7}}},
      {16, 64, CODES_PLAIN, 0, 48, 2, {{0, 62, 40}, {1, 110, 5}}},
      /* two runs of one sequence, and of two that meet at the same position */
      {64, 64, CODES_PLAIN, 0, 9, 3, {{0, 65, 2}, {0, 70, 3}, {1, 73, 4}}},
      /* some rows of a step; more rows than it has */
      {64, 64, CODES_NEGATIVE, 3, 5, 2, {{0, 66, 6}, {1, 140, 5}}},
      {32, 64, CODES_PLAIN, 2, 30, 2, {{0, 90, 5}, {1, 128, 3}}},
      /* numbers without end */
      {64, 64, CODES_SPECIAL, 0, 6, 2, {{0, 100, 4}, {1, 65, 2}}},
      {32, 64, CODES_SPECIAL, 0, 3, 1, {{0, 80, 3}}},
      /* windows of rows: a tile over the end of one, most rows without scores */
      {64, 512, CODES_PLAIN, 0, 520, 3, {{0, 8, 503}, {1, 511, 12}, {2, 512, 2}}},
      {32, 448, CODES_PLAIN, 0, 400, 2, {{0, 66, 378}, {1, 447, 11}}},
  };
  for (size_t i = 0; i < ARRAY_LEN(shapes); i++) score_case_of(test, &shapes[i]);
}

int main(int argc, char **argv) { return kernel_test_main(argc, argv, "index_score", score_cases); }

/* test_attn.c - attn: groups and head sizes of every model, tiles at every edge of pages and chunks, whole and split, poison after
 * contexts and tiles, both formats of the cache; against NUMERICS.md one query at a time, and against binary64. */
#include "attn/attn_cut.h"
#include <stdlib.h>
#include "engine/base/limits.h"
#include "kernel_test.h"

enum { SEQS = 2, PAGES = 24, SEQ_PAGES = 11, TILES_MAX = 5, TOKENS_MAX = 256, GRID_MAX = 3 }; /* positions up to 703 */

typedef struct grouped_shape {
  u32 heads, kv_heads, head_dim, v_dim;
  u32 chunk_tokens, piece; /* piece: its chunks if the step is split, 0: it is not split */
  f32 scale;               /* scale_log2: large values make probabilities as small as possible */
  u32 format, tiles;
  struct { u32 count, seq, position; } tile[TILES_MAX];
} grouped_shape;

typedef struct grouped_case {
  const grouped_shape *s;
  attn_args a;
  u8 *kv;
  bf16 *plain; /* KV rows as bf16: not part of the image */
  u32 *table;
  attn_tile *tiles;
  attn_counts *counts;
  attn_piece *pieces;
  attn_part parts[TOKENS_MAX]; /* by token; a token of a tile that is not split has no units */
  u32 tokens, row;             /* row: columns of a KV row */
} grouped_case;

typedef struct query { /* of this test */
  u32 token, head, seq, position;
} query;

typedef struct chain { f32 m, l, o[HEAD_DIM_MAX]; } chain;

#define LAYER_SCALE 0x1.9p-5f

static query query_of(const grouped_case *g, u32 token, u32 head) {
  u32 tile = 0, at = token;
  for (; at >= g->s->tile[tile].count; tile++) at -= g->s->tile[tile].count;
  return (query){token, head, g->s->tile[tile].seq, g->s->tile[tile].position + at};
}

/* The key of a token for a query, and v columns after it its value. */
static const bf16 *key_of(const grouped_case *g, const query *q, u32 position) {
  const grouped_shape *s = g->s;
  const u32 page = g->table[q->seq * SEQ_PAGES + position / 64], kv_head = q->head / (s->heads / s->kv_heads);
  return g->plain + ((size_t)page * 64 + position % 64) * g->row + (size_t)kv_head * (s->head_dim + s->v_dim);
}

static const bf16 *q_of(const grouped_case *g, const query *q) {
  return g->a.q + ((size_t)q->token * g->s->heads + q->head) * g->s->head_dim;
}

/* Independent code for NUMERICS.md, `attn`. */
static f32 weight_of(f32 s, f32 scale, f32 m) {
  f32 low = (m - 120) * (1 / scale), y = s < low ? low : s, whole = fmaf(y, scale, NUM_ROUND - m) - (NUM_ROUND - m);
  f32 f = fmaf(y, scale, -whole), p = fmaf(fmaf(fmaf(0x1.c3f760p-5f, f, 0x1.f0de1ap-3f), f, 0x1.62f31ap-1f), f, 0x1.fff692p-1f);
  return ldexpf(p, (int)(whole - m));
}

static void run_block(const grouped_case *g, const query *q, u32 block, chain *c) {
  const grouped_shape *s = g->s;
  bf16 weight[64] = {0}, one[64], value[64];
  f32 t[64], top = -INFINITY;
  u32 valid = min_u32(64, q->position - block * 64 + 1);
  for (u32 j = 0; j < valid; j++) {
    t[j] = kernel_test_chain(key_of(g, q, block * 64 + j), q_of(g, q), 1, s->head_dim, 0);
    top = fmaxf(top, t[j]);
  }
  const f32 m = top * s->scale > c->m + 8 ? ceilf(top * s->scale) : c->m, factor = num_exp2_int(c->m - m);
  if (m != c->m) {
    for (u32 i = 0; i < s->v_dim; i++) c->o[i] *= factor;
    c->l *= factor;
    c->m = m;
  }
  for (u32 j = 0; j < valid; j++) weight[j] = num_to_bf16(weight_of(t[j], s->scale, m));
  for (u32 j = 0; j < 64; j++) one[j] = 0x3f80;
  for (u32 i = 0; i < s->v_dim; i++) {
    for (u32 j = 0; j < 64; j++) value[j] = j < valid ? key_of(g, q, block * 64 + j)[s->head_dim + i] : 0;
    c->o[i] = kernel_test_chain(weight, value, 1, 64, c->o[i]);
  }
  c->l = kernel_test_chain(weight, one, 1, 64, c->l);
}

/* Chunks first .. end - 1 of a query, combined in order; the initial state of a chunk if it reaches none of them. */
static chain run_chunks(const grouped_case *g, const query *q, u32 first, u32 end) {
  const u32 blocks = g->s->chunk_tokens / 64;
  chain sum = {.m = -0x1p60f};
  for (u32 chunk = first; chunk < end && chunk * blocks <= q->position / 64; chunk++) {
    chain c = {.m = -0x1p60f};
    for (u32 block = chunk * blocks; block < (chunk + 1) * blocks && block <= q->position / 64; block++) run_block(g, q, block, &c);
    if (chunk == first) {
      sum = c;
      continue;
    }
    const f32 m = c.m > sum.m ? c.m : sum.m, fa = num_exp2_int(sum.m - m), fb = num_exp2_int(c.m - m);
    for (u32 i = 0; i < g->s->v_dim; i++) sum.o[i] = fmaf(c.o[i], fb, sum.o[i] * fa);
    sum.l = fmaf(c.l, fb, sum.l * fa);
    sum.m = m;
  }
  return sum;
}

static void check_whole(const grouped_case *g, const query *q) {
  const grouped_shape *s = g->s;
  const bf16 *out = g->a.out + ((size_t)q->token * s->heads + q->head) * s->v_dim;
  const chain c = run_chunks(g, q, 0, UINT32_MAX);
  for (u32 i = 0; i < s->v_dim; i++) assert_int_equal(out[i], num_to_bf16(c.o[i] * (1 / c.l) + 0.0f));
  double weight = 0, sum[4] = {0}; /* four columns by a plain softmax */
  for (u32 j = 0; j <= q->position; j++) {
    const bf16 *key = key_of(g, q, j);
    double t = 0;
    for (u32 i = 0; i < s->head_dim; i++) t += (double)num_from_bf16(key[i]) * (double)num_from_bf16(q_of(g, q)[i]);
    t = exp2(t * (double)s->scale);
    weight += t;
    for (u32 i = 0; i < 4; i++) sum[i] += t * (double)num_from_bf16(key[s->head_dim + i * (s->v_dim / 4)]);
  }
  for (u32 i = 0; i < 4; i++) kernel_test_near((double)num_from_bf16(out[i * (s->v_dim / 4)]), sum[i] / weight, 0.02, 0.02);
}

/* The first piece leaves one unit; then every chunk of the tile is one. */
static void check_units(const grouped_case *g, const query *q) {
  const grouped_shape *s = g->s;
  const attn_part *part = &g->parts[q->token];
  for (u32 unit = 0; unit < part->units; unit++) {
    const u32 first = unit == 0 ? 0 : s->piece + unit - 1;
    const chain c = run_chunks(g, q, first, unit == 0 ? s->piece : first + 1);
    const size_t at = (part->first + (size_t)unit * part->step) * s->heads + q->head;
    assert_true(g->a.partial_ml[2 * at] == c.m && g->a.partial_ml[2 * at + 1] == c.l);
    for (u32 i = 0; i < s->v_dim; i++) assert_true(g->a.partial_o[at * s->v_dim + i] == c.o[i]);
  }
}

/* The pieces of every tile, the last tile first, since the order must not matter to a CTA; and the slots of its tokens' units. */
static void cut(grouped_case *g) {
  const grouped_shape *s = g->s;
  u32 slots = 0, blocks = s->chunk_tokens / 64;
  *g->counts = (attn_counts){.piece_chunks = s->piece};
  for (u32 i = s->tiles; i-- > 0;) {
    const attn_tile *tile = &g->tiles[i];
    u32 end = (tile->position + tile->count - 1) / 64 + 1, chunks = (end + blocks - 1) / blocks;
    u32 units = attn_cut_units(chunks, s->piece, 1);
    for (u32 t = 0; t < tile->count; t++) g->parts[tile->row + t] = (attn_part){tile->row + t, slots + t, tile->count, units};
    for (u32 chunk = 0; chunk < chunks; chunk += s->piece) {
      u32 n = g->counts->pieces++, after = (chunk + s->piece) * blocks;
      g->pieces[n] = (attn_piece){*tile, chunk * blocks, min_u32(after, end), units ? slots : ATTN_WHOLE, n % (ATTN_EARLY + 1)};
    }
    slots += units * tile->count;
  }
}

/* Random numbers in the rows that some sequence has written; the others stay poison. A few rows have larger scores, increasing block by
 * block: the maximum rises both by more than the raise rule ignores, and by less. */
static void fill_kv(grouped_case *g, cases *c) {
  const grouped_shape *s = g->s;
  for (u32 seq = 0; seq < SEQS; seq++) {
    u32 length = 0;
    for (u32 i = 0; i < s->tiles; i++)
      if (s->tile[i].seq == seq && s->tile[i].position + s->tile[i].count > length) length = s->tile[i].position + s->tile[i].count;
    for (u32 i = 0; i < length; i++) {
      const size_t at = ((size_t)g->table[seq * SEQ_PAGES + i / 64] * 64 + i % 64) * g->row;
      const f32 size = i % 37 == 5 ? 3.0f * (f32)(1 + i / 64 % 4) : 0.7f;
      kernel_test_bf16s(c, g->plain + at, g->row, size);
      if (s->format == KV_BF16) memcpy((bf16 *)(void *)g->kv + at, g->plain + at, g->row * sizeof(bf16));
      for (u32 j = 0; j < g->row && s->format == KV_FP8; j++) {
        const u8 code = num_to_e4m3(num_from_bf16(g->plain[at + j]) / LAYER_SCALE);
        g->kv[at + j] = code;
        g->plain[at + j] = num_to_bf16((f32)((double)num_from_e4m3(code) * (double)LAYER_SCALE));
      }
    }
  }
}

static void make_outputs(kernel_test *test, grouped_case *g) {
  const grouped_shape *s = g->s;
  const size_t row = (size_t)s->heads * s->v_dim;
  g->a.out = kernel_test_output(test, (g->tokens + 2) * row * 2);
  kernel_test_keep(test, g->a.out + g->tokens * row, 2 * row * 2);
  g->a.scratch = kernel_test_scratch(test, (size_t)GRID_MAX * attn_grouped_floats(s->v_dim) * 4);
  if (!s->piece) return;
  const u32 slots_max = g->tokens * SEQ_PAGES;
  g->counts = kernel_test_input(test, sizeof *g->counts);
  g->pieces = kernel_test_input(test, (slots_max + s->tiles) * sizeof *g->pieces);
  g->a.slots_max = slots_max;
  g->a.partial_o = kernel_test_output(test, slots_max * row * 4);
  g->a.partial_ml = kernel_test_output(test, (size_t)slots_max * s->heads * 8);
  g->a.counts = g->counts;
  g->a.pieces = g->pieces;
  cut(g);
  u32 slots = 0;
  for (u32 i = 0; i < s->tiles; i++) {
    const u32 units = g->parts[g->tiles[i].row].units;
    if (units) kernel_test_keep(test, g->a.out + g->tiles[i].row * row, g->tiles[i].count * row * 2);
    slots += units * g->tiles[i].count;
  }
  kernel_test_keep(test, g->a.partial_o + slots * row, (slots_max - slots) * row * 4);
  kernel_test_keep(test, g->a.partial_ml + (size_t)slots * s->heads * 2, (size_t)(slots_max - slots) * s->heads * 8);
  kernel_test_loose(test, g->a.partial_o, slots_max * row * 4);
  kernel_test_loose(test, g->a.partial_ml, (size_t)slots_max * s->heads * 8);
}

static void build(kernel_test *test, grouped_case *g, cases *c) {
  const grouped_shape *s = g->s;
  g->row = s->kv_heads * (s->head_dim + s->v_dim);
  for (u32 i = 0; i < s->tiles; i++) g->tokens += s->tile[i].count;
  ASSERT(g->tokens <= TOKENS_MAX);
  kernel_test_start(test);
  g->a = (attn_args){.heads = s->heads, .kv_heads = s->kv_heads, .head_dim = s->head_dim, .v_dim = s->v_dim, .kv_format = s->format,
                     .block_table_stride = SEQ_PAGES, .chunk_tokens = s->chunk_tokens, .scale_log2 = s->scale};
  g->a.step = kernel_test_step(test, g->tokens, 0, s->tiles);
  g->tiles = kernel_test_input(test, (s->tiles + 1) * sizeof *g->tiles);
  bf16 *q = kernel_test_input(test, (size_t)(g->tokens + 2) * s->heads * s->head_dim * 2);
  g->kv = kernel_test_input(test, (size_t)PAGES * 64 * g->row * (s->format == KV_BF16 ? 2 : 1));
  g->plain = malloc((size_t)PAGES * 64 * g->row * sizeof *g->plain);
  assert_non_null(g->plain);
  g->table = kernel_test_input(test, SEQS * SEQ_PAGES * 4);
  f32 *kv_scale = kernel_test_input(test, sizeof *kv_scale);
  *kv_scale = LAYER_SCALE;
  for (u32 i = 0; i < SEQS * SEQ_PAGES; i++) g->table[i] = (i * 7 + 1) % PAGES; /* 7 and 24 have no common factor */
  for (u32 i = 0, row = 0; i < s->tiles; row += s->tile[i++].count)
    g->tiles[i] = (attn_tile){row, s->tile[i].count, s->tile[i].seq, s->tile[i].position};
  kernel_test_bf16s(c, q, (size_t)g->tokens * s->heads * s->head_dim, 1.0f);
  fill_kv(g, c);
  g->a.tiles = g->tiles, g->a.q = q, g->a.kv = g->kv, g->a.block_table = g->table;
  g->a.kv_scale = s->format == KV_FP8 ? kv_scale : NULL;
  make_outputs(test, g);
}

/* Both forms, each on one CTA and on three. */
static void variants_of(const grouped_shape *s, u32 tokens, kernel_variant v[4]) {
  const u32 k_boxes = (u32)div_up(s->head_dim, 64), v_boxes = (u32)div_up(s->v_dim, 64);
  for (u32 i = 0; i < 4; i++) {
    const u32 rows = i < 2 ? 128 : 64, pages = rows == 128 && s->v_dim <= 128 && s->chunk_tokens % 128 == 0 ? 2 : 1;
    const u32 held = s->v_dim <= 128 && s->head_dim <= 128 && s->head_dim != (rows == 128 ? 96 : 64);
    v[i] = (kernel_variant){.spec = {{"SPEC_MAPS", 1}, {"SPEC_HEAD_DIM", s->head_dim}, {"SPEC_V_DIM", s->v_dim}, {"SPEC_ROWS", rows},
                                     {"SPEC_STAGES", 2}, {"SPEC_PAGES", pages}, {"SPEC_HELD", held}}, .spec_count = 7,
                            .threads = rows == 128 ? 384 : 160, .grid = {i % 2 ? GRID_MAX : 1, 1, 1}, .rows = tokens};
    if (s->format == KV_FP8) v[i].spec[v[i].spec_count++] = (jit_spec){"SPEC_KV_FORMAT", KV_FP8};
    if (s->format == KV_FP8) v[i].threads = 256;
    v[i].shared_bytes = 1664 + 8192 * (rows / 64 * k_boxes + 2 * pages * (k_boxes + v_boxes)) + held * rows * 4 * (s->v_dim + 2);
  }
}

static void grouped_case_of(kernel_test *test, const grouped_shape *s) {
  cases c = {.state = s->heads * 1000003u + s->head_dim + s->tile[0].position + s->piece};
  grouped_case g = {.s = s};
  build(test, &g, &c);
  kernel_variant v[4];
  variants_of(s, g.tokens, v);
  if (s->format == KV_BF16) kernel_test_run(test, &g.a, v, 4);
  else kernel_test_run(test, &g.a, v + 2, 2); /* codes have the form for decoding alone */
  for (u32 i = 0; i < kernel_test_checks(test, 12); i++) {
    const u32 token = i == 0 ? 0 : i == 1 ? g.tokens - 1 : cases_below(&c, g.tokens);
    const query q = query_of(&g, token, i == 0 ? s->heads - 1 : cases_below(&c, s->heads));
    (g.parts[token].units ? check_units : check_whole)(&g, &q);
  }
  free(g.plain);
}

static void grouped_cases(kernel_test *test) {
  static const grouped_shape shapes[] = {
      /* whole: prompts across pages and chunks, single tokens, tiles of one and of two times 64 rows */
      {8, 2, 128, 128, 256, 0, 3.3f, KV_BF16, 4, {{32, 0, 40}, {3, 1, 63}, {32, 0, 500}, {1, 1, 130}}},
      {2, 2, 64, 64, 128, 0, 0x1.2p-4f, KV_BF16, 4, {{128, 0, 250}, {64, 1, 0}, {1, 1, 64}, {2, 1, 127}}},
      {5, 1, 80, 80, 128, 0, 0x1.2p-4f, KV_BF16, 3, {{25, 0, 110}, {1, 1, 0}, {13, 0, 250}}},
      {14, 2, 96, 96, 128, 0, 0.7f, KV_BF16, 3, {{18, 0, 240}, {9, 1, 56}, {1, 1, 383}}},
      {16, 1, 192, 128, 256, 0, 0.7f, KV_BF16, 3, {{8, 0, 252}, {4, 1, 0}, {1, 0, 600}}},
      {16, 2, 256, 256, 128, 0, 0x1.2p-4f, KV_BF16, 3, {{16, 0, 380}, {8, 1, 120}, {1, 1, 128}}},
      {64, 1, 64, 64, 256, 0, 0x1.2p-4f, KV_BF16, 3, {{2, 0, 255}, {1, 1, 63}, {2, 1, 64}}},
      {8, 1, 64, 64, 384, 0, 1.0f, KV_BF16, 2, {{16, 0, 688}, {8, 1, 376}}}, /* scores far below others: m does not move */
      {4, 1, 128, 128, 2048, 0, 0x1.2p-4f, KV_BF16, 2, {{32, 0, 448}, {32, 1, 96}}}, /* one chunk */
      {4, 1, 128, 128, 64, 0, 0x1.2p-4f, KV_BF16, 2, {{32, 0, 300}, {20, 1, 50}}},   /* a chunk is a page */
      /* split: pieces of one chunk and of more, tiles of one piece, rows that do not reach a unit */
      {8, 2, 128, 128, 128, 1, 0x1.2p-4f, KV_BF16, 3, {{1, 0, 700}, {2, 1, 127}, {1, 0, 64}}},
      {8, 2, 128, 128, 128, 2, 0x1.2p-4f, KV_BF16, 3, {{1, 0, 700}, {3, 1, 255}, {1, 0, 256}}},
      {4, 4, 64, 64, 64, 3, 0.7f, KV_BF16, 3, {{5, 0, 509}, {1, 1, 640}, {8, 1, 186}}},
      {16, 1, 192, 128, 128, 1, 0.7f, KV_BF16, 2, {{1, 0, 650}, {6, 1, 125}}},
      {7, 1, 256, 256, 128, 2, 0x1.2p-4f, KV_BF16, 2, {{18, 0, 375}, {1, 1, 127}}},
      {64, 1, 64, 64, 64, 1, 0x1.2p-4f, KV_BF16, 2, {{2, 0, 255}, {1, 1, 300}}}, /* the first pass does not reach the last unit */
      {5, 1, 80, 80, 64, 1, 0x1.2p-4f, KV_BF16, 2, {{4, 0, 318}, {1, 1, 20}}},
      {12, 4, 96, 96, 256, 1, 3.3f, KV_BF16, 2, {{1, 0, 690}, {2, 1, 510}}},
      /* codes */
      {8, 2, 128, 128, 256, 0, 0x1.2p-4f, KV_FP8, 3, {{32, 0, 240}, {1, 1, 130}, {16, 0, 50}}},
      {8, 2, 64, 64, 128, 1, 0x1.2p-4f, KV_FP8, 3, {{1, 0, 700}, {2, 1, 127}, {1, 0, 64}}},
      {5, 1, 80, 80, 128, 0, 0x1.2p-4f, KV_FP8, 3, {{25, 0, 110}, {1, 1, 0}, {13, 0, 250}}},
      {16, 1, 256, 256, 64, 1, 0x1.2p-4f, KV_FP8, 2, {{6, 0, 380}, {1, 1, 127}}},
  };
  for (size_t i = 0; i < ARRAY_LEN(shapes); i++) grouped_case_of(test, &shapes[i]);
}

int main(int argc, char **argv) { return kernel_test_main(argc, argv, "attn", "43bceb8357d1b717a26f6e4a7fce57a3", grouped_cases); }

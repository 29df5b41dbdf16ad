/* test_mla_prefill.c - mla_prefill: heads of every model, tiles at every edge of pages and of pairs of pages, contexts split into pieces
 * anywhere, state taken from the previous piece and left for the next one, poison after contexts and tiles; against NUMERICS.md one query
 * at a time, and against binary64. */
#include "kernel_test.h"

enum { TILES_MAX = 5, PAGES_MAX = 12, V_MAX = 256 };

typedef struct prefill_shape {
  u32 heads, nope, rope, v;
  u32 piece_pages, piece;
  u32 contexts[2]; /* tokens of each */
  f32 scale;       /* scale_log2: large values make probabilities as small as possible, and make roundings of scores visible */
  u32 tiles;
  struct { u32 count, context, position; } tile[TILES_MAX];
} prefill_shape;

typedef struct prefill_case {
  const prefill_shape *s;
  mla_prefill_args a;
  bf16 *whole;     /* rows of all contexts, [pages][64][columns] */
  u32 columns;
  u32 first[2];    /* page number of each context in `whole` */
} prefill_case;

typedef struct query { /* of this test: one row */
  u32 token, head, context, position;
} query;

typedef struct chain { f32 m, l, o[V_MAX]; } chain;

static const bf16 *row_of(const prefill_case *p, const query *q, u32 position) {
  return p->whole + ((size_t)p->first[q->context] * 64 + position) * p->columns;
}

static f32 score(const prefill_case *p, const query *q, u32 position) {
  const prefill_shape *s = p->s;
  const bf16 *row = row_of(p, q, position), *nope = p->a.q_nope + ((size_t)q->token * s->heads + q->head) * s->nope;
  const bf16 *rope = p->a.q_rope + ((size_t)q->token * s->heads + q->head) * p->a.q_rope_stride;
  f32 sum = kernel_test_chain(row + (size_t)q->head * (s->nope + s->v), nope, 1, s->nope, 0);
  return kernel_test_chain(row + (size_t)s->heads * (s->nope + s->v), rope, 1, s->rope, sum);
}

/* Independent code for NUMERICS.md, `mla_prefill`. */
static f32 weight_of(f32 s, f32 scale, f32 m) {
  f32 low = (m - 120) * (1 / scale), y = s < low ? low : s, whole = fmaf(y, scale, NUM_ROUND - m) - (NUM_ROUND - m);
  f32 f = fmaf(y, scale, -whole), p = fmaf(fmaf(fmaf(0x1.c3f760p-5f, f, 0x1.f0de1ap-3f), f, 0x1.62f31ap-1f), f, 0x1.fff692p-1f);
  return ldexpf(p, (int)(whole - m));
}

static void run_block(const prefill_case *p, const query *q, u32 block, chain *c) {
  const prefill_shape *s = p->s;
  bf16 weight[64] = {0}, one[64], value[64];
  f32 t[64], top = -INFINITY;
  u32 valid = min_u32(64, q->position - block * 64 + 1);
  for (u32 j = 0; j < valid; j++) t[j] = score(p, q, block * 64 + j), top = fmaxf(top, t[j]);
  const f32 scale = p->a.scale_log2, m = top * scale > c->m + 8 ? ceilf(top * scale) : c->m, factor = num_exp2_int(c->m - m);
  if (m != c->m) {
    for (u32 i = 0; i < s->v; i++) c->o[i] *= factor;
    c->l *= factor;
    c->m = m;
  }
  for (u32 j = 0; j < valid; j++) weight[j] = num_to_bf16(weight_of(t[j], scale, m));
  for (u32 j = 0; j < 64; j++) one[j] = 0x3f80;
  for (u32 i = 0; i < s->v; i++) {
    for (u32 j = 0; j < 64; j++)
      value[j] = j < valid ? row_of(p, q, block * 64 + j)[(size_t)q->head * (s->nope + s->v) + s->nope + i] : 0;
    c->o[i] = kernel_test_chain(weight, value, 1, 64, c->o[i]);
  }
  c->l = kernel_test_chain(weight, one, 1, 64, c->l);
}

static chain run_blocks(const prefill_case *p, const query *q, u32 blocks) {
  chain c = {.m = -0x1p60f};
  for (u32 block = 0; block < blocks; block++) run_block(p, q, block, &c);
  return c;
}

/* Number of blocks of the query's context before `page`, at most up to the query's own block. */
static u32 blocks_before(const prefill_case *p, const query *q, u32 page) {
  u32 seen = page > p->first[q->context] ? page - p->first[q->context] : 0;
  return min_u32(seen, q->position / 64 + 1);
}

static query query_of(const prefill_case *p, u32 token, u32 head) {
  u32 tile = 0, at = token;
  for (; at >= p->s->tile[tile].count; tile++) at -= p->s->tile[tile].count;
  return (query){token, head, p->s->tile[tile].context, p->s->tile[tile].position + at};
}

static f32 *state_of(const prefill_case *p, const query *q) {
  return p->a.state + ((size_t)q->token * p->s->heads + q->head) * (p->s->v + 2);
}

static void check_near(const prefill_case *p, const query *q, const bf16 *out) {
  double weight = 0, sum[4] = {0};
  u32 step = p->s->v / 4, at = q->head * (p->s->nope + p->s->v) + p->s->nope;
  for (u32 j = 0; j <= q->position; j++) {
    double t = exp2((double)score(p, q, j) * (double)p->a.scale_log2);
    weight += t;
    for (u32 i = 0; i < 4; i++) sum[i] += t * (double)num_from_bf16(row_of(p, q, j)[at + i * step]);
  }
  for (u32 i = 0; i < 4; i++) kernel_test_near((double)num_from_bf16(out[i * step]), sum[i] / weight, 0.02, 0.02);
}

static void check_query(const prefill_case *p, const query *q) {
  const prefill_shape *s = p->s;
  u32 start = s->piece * s->piece_pages, before = blocks_before(p, q, start), end = blocks_before(p, q, start + s->piece_pages);
  if (before == end) return;
  chain c = run_blocks(p, q, end);
  if (end == q->position / 64 + 1) {
    const bf16 *out = p->a.out + ((size_t)q->token * s->heads + q->head) * s->v;
    for (u32 i = 0; i < s->v; i++) assert_int_equal(out[i], num_to_bf16(c.o[i] * (1 / c.l) + 0.0f));
    check_near(p, q, out);
    return;
  }
  const f32 *state = state_of(p, q);
  assert_true(state[s->v] == c.m && state[s->v + 1] == c.l);
  for (u32 i = 0; i < s->v; i++) assert_true(state[i] == c.o[i]);
}

/* State that exists before the op or after it, and outputs that must not change. */
static void declare(kernel_test *test, const prefill_case *p, u32 tokens) {
  const prefill_shape *s = p->s;
  for (u32 t = 0; t < tokens; t++)
    for (u32 h = 0; h < s->heads; h++) {
      query q = query_of(p, t, h);
      u32 start = s->piece * s->piece_pages, before = blocks_before(p, &q, start), end = blocks_before(p, &q, start + s->piece_pages);
      u32 all = q.position / 64 + 1;
      f32 *state = state_of(p, &q);
      if (before > 0 && before < all) {
        chain c = run_blocks(p, &q, before);
        memcpy(state, c.o, s->v * sizeof *state);
        state[s->v] = c.m, state[s->v + 1] = c.l;
      }
      if (end == all || before == end) kernel_test_keep(test, state, (s->v + 2) * sizeof *state);
      if (end != all || before == end) kernel_test_keep(test, p->a.out + ((size_t)t * s->heads + h) * s->v, s->v * 2ull);
    }
}

static void fill_contexts(prefill_case *p, cases *c, bf16 *expanded) {
  const prefill_shape *s = p->s;
  u32 start = s->piece * s->piece_pages;
  for (u32 k = 0; k < 2; k++)
    for (u32 i = 0; i < s->contexts[k]; i++) {
      u32 page = p->first[k] + i / 64;
      bf16 *row = p->whole + ((size_t)page * 64 + i % 64) * p->columns;
      kernel_test_bf16s(c, row, p->columns, i % 37 == 5 ? 3.0f * (f32)(1 + i / 64 % 4) : 0.7f);
      if (page >= start && page < start + s->piece_pages)
        memcpy(expanded + ((size_t)(page - start) * 64 + i % 64) * p->columns, row, p->columns * 2ull);
    }
}

static void prefill_case_of(kernel_test *test, const prefill_shape *s) {
  static bf16 whole[PAGES_MAX * 64 * 1024];
  cases c = {.state = s->heads * 1000003u + s->nope + s->tile[0].position + s->piece};
  prefill_case p = {.s = s, .whole = whole, .columns = s->heads * (s->nope + s->v) + s->rope};
  u32 tokens = 0, row = 0, stride = s->rope + 16;
  ASSERT(p.columns <= 1024);
  p.first[1] = (s->contexts[0] + 63) / 64;
  for (u32 i = 0; i < s->tiles; i++) tokens += s->tile[i].count;
  kernel_test_start(test);
  p.a = (mla_prefill_args){.heads = s->heads, .nope_dim = s->nope, .rope_dim = s->rope, .v_dim = s->v, .q_rope_stride = stride,
                           .piece_pages = s->piece_pages, .piece = s->piece, .scale_log2 = s->scale};
  step_in *step = kernel_test_step(test, tokens, 0, s->tiles);
  step_context *contexts = kernel_test_input(test, 2 * sizeof *contexts);
  attn_tile *tiles = kernel_test_input(test, (s->tiles + 1) * sizeof *tiles);
  for (u32 k = 0; k < 2; k++) contexts[k] = (step_context){.first = p.first[k], .tokens = s->contexts[k], .seq = k};
  for (u32 i = 0; i < s->tiles; row += s->tile[i++].count)
    tiles[i] = (attn_tile){row, s->tile[i].count, s->tile[i].context, s->tile[i].position};
  bf16 *q_nope = kernel_test_input(test, (size_t)(tokens + 2) * s->heads * s->nope * 2);
  bf16 *q_rope = kernel_test_input(test, (size_t)(tokens + 2) * s->heads * stride * 2);
  bf16 *expanded = kernel_test_input(test, (size_t)s->piece_pages * 64 * p.columns * 2);
  kernel_test_bf16s(&c, q_nope, (size_t)tokens * s->heads * s->nope, 1.0f);
  for (u32 i = 0; i < tokens * s->heads; i++) kernel_test_bf16s(&c, q_rope + (size_t)i * stride, s->rope, 1.0f);
  fill_contexts(&p, &c, expanded);
  p.a.step = step, p.a.tiles = tiles, p.a.contexts = contexts, p.a.q_nope = q_nope, p.a.q_rope = q_rope, p.a.expanded = expanded;
  p.a.out = kernel_test_output(test, (size_t)(tokens + 2) * s->heads * s->v * 2);
  kernel_test_keep(test, p.a.out + (size_t)tokens * s->heads * s->v, (size_t)2 * s->heads * s->v * 2);
  p.a.state = kernel_test_output(test, (size_t)tokens * s->heads * (s->v + 2) * 4);
  kernel_test_loose(test, p.a.state, (size_t)tokens * s->heads * (s->v + 2) * 4);
  declare(test, &p, tokens);
  u32 boxes = s->nope / 64 + 1, stages = s->v == 256 || s->nope == 128 ? 2 : 3;
  kernel_variant v[2] = {{.spec = {{"SPEC_NOPE_DIM", s->nope}, {"SPEC_ROPE_DIM", s->rope}, {"SPEC_V_DIM", s->v}, {"SPEC_STAGES", stages},
                                   {"SPEC_MAPS", 1}}, .spec_count = 5, .threads = 384, .grid = {1, 1, 1}, .rows = tokens}};
  v[0].shared_bytes = 2048 + 2 * 8192 * boxes + stages * (s->v == 256 ? 1 : 2) * 8192 * (boxes + s->v / 64);
  v[1] = v[0];
  v[1].grid[0] = 3;
  kernel_test_run(test, &p.a, v, 2);
  for (u32 i = 0; i < kernel_test_checks(test, 10); i++) {
    u32 token = i == 0 ? 0 : i == 1 ? tokens - 1 : cases_below(&c, tokens);
    query q = query_of(&p, token, i == 0 ? s->heads - 1 : cases_below(&c, s->heads));
    check_query(&p, &q);
  }
}

static void prefill_cases(kernel_test *test) {
  static const prefill_shape shapes[] = {
      /* whole contexts: pairs of pages, parts of them, one token */
      {2, 128, 64, 128, 8, 0, {300, 131}, 3.3f, 4, {{128, 0, 0}, {44, 0, 256}, {3, 1, 63}, {1, 1, 130}}},
      {1, 64, 64, 64, 8, 0, {256, 65}, 0x1.2p-4f, 4, {{128, 0, 128}, {64, 0, 64}, {1, 1, 0}, {2, 1, 63}}},
      {3, 64, 32, 64, 4, 0, {200, 1}, 0x1.2p-4f, 3, {{8, 0, 192}, {1, 1, 0}, {64, 0, 128}}},
      {1, 64, 64, 128, 4, 0, {140, 20}, 0.7f, 3, {{12, 0, 128}, {100, 0, 20}, {20, 1, 0}}},
      {1, 192, 64, 256, 8, 0, {400, 64}, 0.7f, 3, {{16, 0, 384}, {120, 0, 260}, {64, 1, 0}}},
      /* scores far below others, where the exponent m does not move */
      {1, 128, 64, 128, 12, 0, {600, 64}, 1.0f, 2, {{88, 0, 512}, {64, 1, 0}}},
      /* pieces: the first, a middle one, the last; splits between the pages of a tile */
      {1, 128, 64, 128, 3, 0, {300, 200}, 0x1.2p-4f, 3, {{128, 0, 128}, {44, 0, 256}, {70, 1, 129}}},
      {1, 128, 64, 128, 3, 1, {300, 200}, 0x1.2p-4f, 3, {{128, 0, 128}, {44, 0, 256}, {70, 1, 129}}},
      {1, 128, 64, 128, 3, 2, {300, 200}, 0x1.2p-4f, 3, {{128, 0, 128}, {44, 0, 256}, {70, 1, 129}}},
      {2, 64, 64, 64, 1, 2, {300, 200}, 3.3f, 4, {{128, 0, 128}, {44, 0, 256}, {60, 0, 60}, {70, 1, 129}}},
      {1, 192, 64, 256, 2, 1, {300, 65}, 0x1.2p-4f, 2, {{100, 0, 130}, {65, 1, 0}}},
      {1, 64, 32, 64, 2, 1, {250, 65}, 0.7f, 2, {{70, 0, 128}, {65, 1, 0}}},
  };
  for (size_t i = 0; i < ARRAY_LEN(shapes); i++) prefill_case_of(test, &shapes[i]);
}

int main(int argc, char **argv) {
  return kernel_test_main(argc, argv, "mla_prefill", "6415113c45ebe981050ce97c858395a0", prefill_cases);
}

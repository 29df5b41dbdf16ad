/* test_kv_rope.c - kv_rope: heads of every size, rotated whole, in part or not at all, pairs of both kinds; with and without bias and norms
 * of a head or of a row; queries and KV rows go to their places, and the rest of the KV memory does not change; against NUMERICS.md and
 * binary64. */
#include "kernel_test.h"

enum { PAGES = 12, SEQS = 3, STRIDE = 4, LENGTH = 256, COLUMNS = 40 * 128 };
enum { NO_NORM, HEAD_NORM, ROW_NORM };

typedef struct shape {
  u32 tokens, heads, kv_heads, head, v, rope; /* rope: 0: nothing is rotated */
  u32 half_split, norm;
  bool bias;
  u32 format;
  bool special; /* an input of a query is Inf, one of a key NaN */
  bool spiky;   /* the order of the norm's sums shows           */
} shape;

#define LAYER_SCALE 0x1.7p-6f

typedef struct rows { /* of a token: what the op makes of its queries, keys or values, in fp32 as NUMERICS.md states, and in binary64 */
  f32 u[COLUMNS];
  double exact[COLUMNS];
} rows;

/* The column of x at which a head of the queries, keys or values begins. */
enum { QUERY, KEY, VALUE };
static u32 place_of(const kv_rope_args *a, u32 kind, u32 head) {
  const u32 group = a->heads / a->kv_heads, of_group = kind == QUERY ? head / group : head, in_group = kind == QUERY ? head % group : group;
  return of_group * ((group + 1) * a->head_dim + a->v_dim) + in_group * a->head_dim + (kind == VALUE ? a->head_dim : 0);
}

/* Bias and norm of all heads of a kind, `width` columns each. */
static void make_rows(const kv_rope_args *a, rows *r, u32 t, u32 kind, const bf16 *norm) {
  const u32 width = kind == VALUE ? a->v_dim : a->head_dim, columns = (kind == QUERY ? a->heads : a->kv_heads) * width;
  for (u32 i = 0; i < columns; i++) {
    const u32 at = place_of(a, kind, i / width) + i % width;
    const f32 x = a->x[(size_t)t * a->x_stride + at];
    r->u[i] = a->bias ? x + num_from_bf16(a->bias[at]) : x;
    r->exact[i] = (double)x + (a->bias ? (double)num_from_bf16(a->bias[at]) : 0);
  }
  const u32 n = a->norms_row ? columns : width;
  for (u32 first = 0; first < columns && norm; first += n) {
    double sum = 0;
    for (u32 i = first; i < first + n; i++) sum += r->exact[i] * r->exact[i];
    const double factor = 1 / sqrt(sum / n + (double)a->eps);
    const f32 stated = kernel_test_norm(r->u + first, n, a->eps);
    for (u32 i = 0; i < n; i++) {
      r->u[first + i] = r->u[first + i] * stated * num_from_bf16(norm[i]);
      r->exact[first + i] *= factor * (double)num_from_bf16(norm[i]);
    }
  }
}

/* The bf16 numbers of one head; rotated: its leading columns that are. */
static void check_head(const kv_rope_args *a, const rows *r, u32 first, u32 columns, u32 rotated, u32 position, bool special, bf16 *want) {
  double exact[256];
  for (u32 i = 0; i < columns; i++) {
    want[i] = num_to_bf16(r->u[first + i]);
    exact[i] = r->exact[first + i];
  }
  for (u32 i = 0; i < rotated / 2; i++) {
    const u32 one = a->half_split ? i : 2 * i, two = a->half_split ? i + rotated / 2 : 2 * i + 1;
    const f32 *turn = a->cos_sin + (size_t)position * a->rope_dim + 2 * i, x = r->u[first + one], y = r->u[first + two];
    want[one] = num_to_bf16(fmaf(x, turn[0], -(y * turn[1])));
    want[two] = num_to_bf16(fmaf(x, turn[1], y * turn[0]));
    const double c = (double)turn[0], s = (double)turn[1];
    exact[one] = r->exact[first + one] * c - r->exact[first + two] * s;
    exact[two] = r->exact[first + one] * s + r->exact[first + two] * c;
  }
  for (u32 i = 0; i < columns && !special; i++) kernel_test_near((double)num_from_bf16(want[i]), exact[i], 0x1.02p-8, 2e-5);
}

static void check_queries(const kv_rope_args *a, u32 t, bool special) {
  static rows r;
  bf16 want[256];
  make_rows(a, &r, t, QUERY, a->q_norm);
  for (u32 h = 0; h < a->heads; h++) {
    check_head(a, &r, h * a->head_dim, a->head_dim, a->cos_sin ? a->rope_dim : 0, a->position[t], special, want);
    assert_memory_equal(a->q_out + ((size_t)t * a->heads + h) * a->head_dim, want, a->head_dim * sizeof *want);
  }
}

static u8 *row_of(const kv_rope_args *a, u32 t) {
  const u32 page = a->block_table[a->seq[t] * STRIDE + a->position[t] / PAGE_TOKENS], element = a->kv_format == KV_FP8 ? 1 : 2;
  const size_t row = (size_t)page * PAGE_TOKENS + a->position[t] % PAGE_TOKENS;
  return (u8 *)a->kv + row * a->kv_heads * (a->head_dim + a->v_dim) * element;
}

/* The e4m3 number nearest to x, ties to even, by comparison with all of them. */
static u8 nearest_code(f32 x) {
  u8 best = 0;
  if (isnan(x)) return 0x7f;
  for (u32 code = 1; code < 127; code++) {
    f32 found = fabsf(num_from_e4m3((u8)code) - fabsf(x)), least = fabsf(num_from_e4m3(best) - fabsf(x));
    if (found < least || (found == least && code % 2 == 0)) best = (u8)code;
  }
  return (u8)(best | (signbit(x) ? 0x80 : 0));
}

/* `count` numbers of the KV row from element `at` on. */
static void check_kept(const kv_rope_args *a, const u8 *row, u32 at, const bf16 *want, u32 count) {
  if (a->kv_format == KV_BF16) assert_memory_equal((const bf16 *)row + at, want, count * sizeof *want);
  for (u32 i = 0; i < count && a->kv_format == KV_FP8; i++)
    assert_int_equal(row[at + i], nearest_code(num_from_bf16(want[i]) / LAYER_SCALE));
}

static void check_row(const kv_rope_args *a, u32 t, bool special) {
  static rows keys, values;
  bf16 want[256];
  const u8 *row = row_of(a, t);
  make_rows(a, &keys, t, KEY, a->k_norm);
  make_rows(a, &values, t, VALUE, NULL);
  for (u32 h = 0; h < a->kv_heads; h++) {
    const u32 at = h * (a->head_dim + a->v_dim);
    check_head(a, &keys, h * a->head_dim, a->head_dim, a->cos_sin ? a->rope_dim : 0, a->position[t], special, want);
    check_kept(a, row, at, want, a->head_dim);
    check_head(a, &values, h * a->v_dim, a->v_dim, 0, a->position[t], special, want);
    check_kept(a, row, at + a->head_dim, want, a->v_dim);
  }
}

static void take_results(kernel_test *test, kv_rope_args *a, u32 tokens) {
  const u32 query = a->heads * a->head_dim;
  const size_t row_bytes = (size_t)a->kv_heads * (a->head_dim + a->v_dim) * (a->kv_format == KV_FP8 ? 1 : 2);
  a->q_out = kernel_test_output(test, (size_t)(tokens + 2) * query * 2);
  a->kv = kernel_test_output(test, PAGES * PAGE_TOKENS * row_bytes);
  kernel_test_keep(test, a->q_out + (size_t)tokens * query, (size_t)2 * query * 2);
  for (u32 i = 0; i < PAGES * PAGE_TOKENS; i++) {
    bool is_written = false;
    for (u32 t = 0; t < tokens; t++) is_written |= row_of(a, t) == (u8 *)a->kv + i * row_bytes;
    if (!is_written) kernel_test_keep(test, (u8 *)a->kv + i * row_bytes, row_bytes);
  }
}

static const bf16 *take_bf16s(kernel_test *test, cases *c, size_t count, f32 scale) {
  bf16 *out = kernel_test_input(test, count * sizeof *out);
  kernel_test_bf16s(c, out, count, scale);
  return out;
}

/* Of the numbers of a norm one is large and the others are small: their squares are lost if added to the large one's one by one, but not if
 * added to each other first. */
static void fill_spiky(cases *c, const kv_rope_args *a, u32 kind, f32 *x) {
  for (u32 h = 0; h < (kind == QUERY ? a->heads : a->kv_heads); h++)
    for (u32 i = 0; i < a->head_dim; i++) {
      const bool is_large = i == 0 && (h == 0 || !a->norms_row);
      x[place_of(a, kind, h) + i] = is_large ? 1.0f : (cases_uniform(c, 0.015f) + 0.98f) * 0x1.6ap-13f;
    }
}

static void take_inputs(kernel_test *test, cases *c, const shape *s, kv_rope_args *a) {
  const u32 queries = s->heads * s->head, keys = s->kv_heads * s->head, values = s->kv_heads * s->v;
  a->x_stride = queries + keys + values + 8;
  f32 *x = kernel_test_input(test, (size_t)(s->tokens + 2) * a->x_stride * 4);
  kernel_test_floats(c, x, (size_t)s->tokens * a->x_stride, 8);
  for (u32 t = 0; t < s->tokens && s->spiky; t++) {
    fill_spiky(c, a, QUERY, x + (size_t)t * a->x_stride);
    fill_spiky(c, a, KEY, x + (size_t)t * a->x_stride);
  }
  if (s->special) {
    x[(size_t)(s->tokens - 1) * a->x_stride + 3] = INFINITY;
    x[place_of(a, KEY, 0) + 5] = x[place_of(a, VALUE, 0) + 2] = NAN;
  }
  a->x = x;
  if (s->bias) a->bias = take_bf16s(test, c, queries + keys + values, 2);
  if (s->norm) {
    a->q_norm = take_bf16s(test, c, s->norm == ROW_NORM ? queries : s->head, 2);
    a->k_norm = take_bf16s(test, c, s->norm == ROW_NORM ? keys : s->head, 2);
  }
  if (s->rope) {
    f32 *cos_sin = kernel_test_input(test, (size_t)LENGTH * s->rope * 4);
    kernel_test_floats(c, cos_sin, (size_t)LENGTH * s->rope, 1);
    a->cos_sin = cos_sin;
  }
  if (s->format == KV_FP8) { /* other formats have no scale of the layer */
    f32 *kv_scale = kernel_test_input(test, sizeof *kv_scale);
    *kv_scale = LAYER_SCALE;
    a->kv_scale = kv_scale;
  }
}

static void rope_case(kernel_test *test, const shape *s) {
  cases c = {.state = s->tokens * 1000003u + s->heads * 131 + s->head * 7 + s->rope + s->norm};
  kv_rope_args a = {.heads = s->heads, .kv_heads = s->kv_heads, .head_dim = s->head, .v_dim = s->v, .rope_dim = s->rope,
                    .block_table_stride = STRIDE, .eps = 1e-6f, .half_split = s->half_split, .norms_row = s->norm == ROW_NORM,
                    .kv_format = s->format};
  assert_true(s->heads * s->head <= COLUMNS);
  kernel_test_start(test);
  a.step = kernel_test_step(test, s->tokens, 0, 0);
  take_inputs(test, &c, s, &a);
  const kernel_places places = kernel_test_places(test, s->tokens, SEQS, STRIDE, PAGES);
  a.position = places.position;
  a.seq = places.seq;
  a.block_table = places.block_table;
  take_results(test, &a, s->tokens);
  const u32 held = s->head > 128 || s->v > 128 ? 2 : 1, parts = (u32)div_up(s->heads + 2 * s->kv_heads, 8);
  const u32 grids[][2] = {{s->tokens, parts}, {s->tokens + 2, 1}, {s->tokens, 2}};
  kernel_variant variants[4];
  for (u32 i = 0; i < 4; i++)
    variants[i] = (kernel_variant){.grid = {grids[i % 3][0], grids[i % 3][1], 1}, .threads = 256,
                                   .spec = {{"SPEC_HELD", i == 3 ? 2 : held}}, .spec_count = 1};
  kernel_test_run(test, &a, variants, held == 1 ? 4 : 3);
  for (u32 t = 0; t < s->tokens; t++) {
    check_queries(&a, t, s->special);
    check_row(&a, t, s->special);
  }
}

static void rope_cases(kernel_test *test) {
  static const shape shapes[] = {
      {.tokens = 1, .heads = 32, .kv_heads = 8, .head = 128, .v = 128, .rope = 128, .half_split = 1},
      {.tokens = 3, .heads = 14, .kv_heads = 2, .head = 64, .v = 64, .rope = 64, .half_split = 1, .bias = true},
      {.tokens = 17, .heads = 4, .kv_heads = 2, .head = 128, .v = 128, .rope = 128, .half_split = 1, .norm = HEAD_NORM, .spiky = true},
      {.tokens = 5, .heads = 9, .kv_heads = 3, .head = 64, .v = 64, .rope = 0, .half_split = 1},
      {.tokens = 2, .heads = 16, .kv_heads = 16, .head = 128, .v = 128, .rope = 128, .half_split = 1, .norm = ROW_NORM, .spiky = true},
      {.tokens = 1, .heads = 40, .kv_heads = 8, .head = 128, .v = 128, .rope = 128, .half_split = 1, .norm = ROW_NORM, .bias = true},
      {.tokens = 3, .heads = 32, .kv_heads = 2, .head = 128, .v = 128, .rope = 64, .bias = true},
      {.tokens = 70, .heads = 4, .kv_heads = 1, .head = 80, .v = 80, .rope = 32, .half_split = 1, .bias = true},
      {.tokens = 9, .heads = 6, .kv_heads = 6, .head = 96, .v = 96, .rope = 96, .half_split = 1},
      {.tokens = 5, .heads = 6, .kv_heads = 2, .head = 96, .v = 96, .rope = 72, .half_split = 1, .format = KV_FP8},
      {.tokens = 4, .heads = 5, .kv_heads = 5, .head = 192, .v = 128, .rope = 192, .half_split = 1, .norm = HEAD_NORM, .bias = true},
      {.tokens = 7, .heads = 8, .kv_heads = 4, .head = 256, .v = 256, .rope = 256, .half_split = 1, .norm = HEAD_NORM, .spiky = true},
      {.tokens = 2, .heads = 8, .kv_heads = 2, .head = 256, .v = 64, .rope = 64, .norm = ROW_NORM, .bias = true, .format = KV_FP8},
      {.tokens = 3, .heads = 3, .kv_heads = 1, .head = 64, .v = 192, .rope = 64},
      {.tokens = 2, .heads = 4, .kv_heads = 2, .head = 16, .v = 48, .rope = 8, .half_split = 1, .norm = HEAD_NORM},
      {.tokens = 130, .heads = 1, .kv_heads = 1, .head = 64, .v = 64, .rope = 64, .norm = HEAD_NORM, .format = KV_FP8},
      {.tokens = 64, .heads = 2, .kv_heads = 1, .head = 64, .v = 64, .rope = 32, .norm = HEAD_NORM, .bias = true},
      {.tokens = 6, .heads = 8, .kv_heads = 2, .head = 128, .v = 128, .rope = 128, .half_split = 1, .bias = true, .special = true},
      {.tokens = 6, .heads = 8, .kv_heads = 2, .head = 128, .v = 128, .rope = 64, .norm = HEAD_NORM, .format = KV_FP8, .special = true},
      {.tokens = 4, .heads = 4, .kv_heads = 2, .head = 64, .v = 64, .rope = 64, .norm = ROW_NORM, .special = true},
  };
  for (u32 i = 0; i < ARRAY_LEN(shapes); i++) rope_case(test, &shapes[i]);
}

int main(int argc, char **argv) { return kernel_test_main(argc, argv, "kv_rope", "bc9ee0975e598cf91d9e5f2e2446efb9", rope_cases); }

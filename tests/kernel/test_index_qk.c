/* test_index_qk.c - index_qk: query heads and keys of the indexer against NUMERICS.md, step by step, and against binary64; weights; rows of
 * the index cache go to their page and slot, and nothing else of it changes. Every case would notice a rotation of the last columns, the
 * other kind of pairs, a norm without its mean or its bias, and a scale of the other kind. */
#include "kernel_test.h"

enum { PAGES = 12, SEQS = 3, STRIDE = 4, LENGTH = 256 };

enum content { CONTENT_PLAIN, CONTENT_SMALL, CONTENT_HUGE, CONTENT_CLOSE, CONTENT_SPECIAL, CONTENT_KINDS };
typedef struct shape { u32 tokens, heads, rope, half_split, scale_kind, content; } shape;

/* === The reference result =============================================================================================== */

/* Transforms both halves, then combines them: the steps 1, 2, 4, ... */
static void transform(f32 *v, u32 n) {
  if (n == 1) return;
  transform(v, n / 2);
  transform(v + n / 2, n / 2);
  for (u32 i = 0; i < n / 2; i++) {
    f32 x = v[i], y = v[i + n / 2];
    v[i] = x + y;
    v[i + n / 2] = x - y;
  }
}

static double code_value(u8 code) {
  double magnitude = (code >> 3 & 15) ? ldexp(1 + (code & 7) / 8.0, (code >> 3 & 15) - 7) : ldexp(code & 7, -9);
  return (code & 127) == 127 ? (double)NAN : code & 128 ? -magnitude : magnitude;
}

/* The nearest of all codes; of two equally near, the even one. */
static u8 code_of(f32 x) {
  u32 best = 0;
  if (isnan(x)) return 0x7f;
  for (u32 c = 1; c < 127; c++) {
    double new = fabs(code_value((u8)c) - fabs((double)x)), old = fabs(code_value((u8)best) - fabs((double)x));
    if (new < old || (new == old && c % 2 == 0)) best = c;
  }
  return (u8)(best | (signbit(x) ? 128u : 0));
}

/* Codes of a head and its scale; z: the quantised numbers. */
static f32 head_of(const index_qk_args *a, const f32 *u, u32 position, u8 *codes, f32 *z) {
  const f32 *turn = a->cos_sin + (size_t)position * a->rope_dim;
  f32 largest = 1e-4f;
  bool is_nan = false;
  for (u32 i = 0; i < INDEX_DIM; i++) z[i] = u[i];
  for (u32 i = 0; i < a->rope_dim / 2; i++) {
    u32 even = a->half_split ? i : 2 * i, odd = a->half_split ? i + a->rope_dim / 2 : 2 * i + 1;
    z[even] = fmaf(u[even], turn[2 * i], -(u[odd] * turn[2 * i + 1]));
    z[odd] = fmaf(u[even], turn[2 * i + 1], u[odd] * turn[2 * i]);
  }
  for (u32 i = 0; i < INDEX_DIM; i++) z[i] = num_from_bf16(num_to_bf16(z[i]));
  transform(z, INDEX_DIM);
  for (u32 i = 0; i < INDEX_DIM; i++) {
    z[i] = num_from_bf16(num_to_bf16(z[i] * (f32)(1 / sqrt(128.0))));
    is_nan = is_nan || isnan(z[i]);
    if (fabsf(z[i]) > largest) largest = fabsf(z[i]);
  }
  f32 scale = largest / 448, power = 0x1p-126f;
  while (power < scale && power < 0x1p127f) power *= 2;
  if (a->scale_kind == SCALE_POW2) scale = power;
  if (is_nan || isinf(largest)) scale = NAN;
  for (u32 i = 0; i < INDEX_DIM; i++) codes[i] = code_of(z[i] / scale);
  return scale;
}

/* The transform in binary64, by its matrix: codes times scale differ from it by at most the steps of bf16 and e4m3. */
static void check_nearly(const index_qk_args *a, const double *u, u32 position, const u8 *codes, f32 scale) {
  const f32 *turn = a->cos_sin + (size_t)position * a->rope_dim;
  double x[INDEX_DIM], norm = 0;
  for (u32 i = 0; i < INDEX_DIM; i++) x[i] = u[i];
  for (u32 i = 0; i < a->rope_dim / 2; i++) {
    u32 even = a->half_split ? i : 2 * i, odd = a->half_split ? i + a->rope_dim / 2 : 2 * i + 1;
    double c = (double)turn[2 * i], s = (double)turn[2 * i + 1];
    x[even] = u[even] * c - u[odd] * s;
    x[odd] = u[even] * s + u[odd] * c;
  }
  for (u32 i = 0; i < INDEX_DIM; i++) norm += x[i] * x[i];
  for (u32 i = 0; i < INDEX_DIM; i++) {
    double sum = 0;
    for (u32 j = 0; j < INDEX_DIM; j++) sum += __builtin_popcount(i & j) % 2 ? -x[j] : x[j];
    sum /= sqrt(128.0);
    kernel_test_near(code_value(codes[i]) * (double)scale, sum, 0x1p-4 + 0x1p-8, 0x1p-8 * sqrt(norm) + 0x1p-9 * (double)scale + 1e-30);
  }
}

static void check_head(const index_qk_args *a, const f32 *u, u32 position, const u8 *codes, f32 scale, const char *what) {
  u8 want[INDEX_DIM];
  f32 z[INDEX_DIM], wanted = head_of(a, u, position, want, z);
  if (memcmp(want, codes, INDEX_DIM) != 0) print_error("%s at position %u\n", what, position);
  assert_memory_equal(want, codes, INDEX_DIM);
  assert_true(scale == wanted || (isnan(scale) && isnan(wanted)));
}

static const u8 *page_of(const index_qk_args *a, u32 t) {
  return a->cache + (size_t)a->block_table[a->seq[t] * STRIDE + a->position[t] / PAGE_TOKENS] * INDEX_PAGE_BYTES;
}

static void check_key(const index_qk_args *a, u32 t, bool is_plain) {
  const f32 *in = a->k + (size_t)t * a->k_stride;
  f32 d[INDEX_DIM], p[INDEX_DIM], u[INDEX_DIM], scale;
  double mean = 0, variance = 0, exact[INDEX_DIM];
  const u8 *page = page_of(a, t), *codes = page + a->position[t] % PAGE_TOKENS * INDEX_DIM;
  memcpy(&scale, page + PAGE_TOKENS * INDEX_DIM + a->position[t] % PAGE_TOKENS * 4, 4);
  const f32 mean32 = kernel_test_tree(in, INDEX_DIM, 0, 1) / 128;
  for (u32 i = 0; i < INDEX_DIM; i++) {
    d[i] = in[i] - mean32;
    p[i] = d[i] * d[i];
    mean += (double)in[i] / 128;
  }
  const f32 r = 1 / sqrtf(kernel_test_tree(p, INDEX_DIM, 0, 1) / 128 + 1e-6f);
  for (u32 i = 0; i < INDEX_DIM; i++) u[i] = fmaf(d[i] * r, a->gain[i], a->bias[i]);
  check_head(a, u, a->position[t], codes, scale, "key");
  for (u32 i = 0; i < INDEX_DIM; i++) variance += ((double)in[i] - mean) * ((double)in[i] - mean) / 128;
  for (u32 i = 0; i < INDEX_DIM; i++)
    exact[i] = ((double)in[i] - mean) / sqrt(variance + 1e-6) * (double)a->gain[i] + (double)a->bias[i];
  if (is_plain) check_nearly(a, exact, a->position[t], codes, scale);
}

static void check_query(const index_qk_args *a, u32 t, u32 h, bool is_plain) {
  const f32 *in = a->q + (size_t)t * a->q_stride + (size_t)h * INDEX_DIM;
  const size_t item = (size_t)t * a->heads + h;
  u8 codes[INDEX_DIM];
  f32 z[INDEX_DIM], scale = head_of(a, in, a->position[t], codes, z);
  check_head(a, in, a->position[t], a->q_codes + item * INDEX_DIM, scale, "query");
  const f32 weight = a->w[(size_t)t * a->w_stride + h], got = a->w_out[item];
  const f32 want = ((weight * a->head_scale) * scale) * (f32)(1 / sqrt(128.0));
  assert_true(got == want || (isnan(got) && isnan(want)));
  if (!is_plain) return;
  double exact[INDEX_DIM];
  for (u32 i = 0; i < INDEX_DIM; i++) exact[i] = (double)in[i];
  check_nearly(a, exact, a->position[t], codes, scale);
  kernel_test_near((double)got, (double)weight / sqrt((double)a->heads) * (double)scale / sqrt(128.0), 0x1p-20, 0);
}

/* === Cases ============================================================================================================== */

static void fill(cases *c, f32 *out, size_t count, u32 kind) {
  kernel_test_floats(c, out, count, kind == CONTENT_SMALL ? 1e-6f : kind == CONTENT_HUGE ? 0x1p120f : 4);
  for (size_t i = 0; i < count && kind == CONTENT_SPECIAL; i++) {
    u32 r = cases_below(c, 200);
    if (r < 3) out[i] = r == 0 ? INFINITY : r == 1 ? -INFINITY : NAN;
    if (r > 2 && r < 40) out[i] = r % 2 ? -0.0f : 0.0f;
  }
}

static void take_results(kernel_test *test, index_qk_args *a, u32 tokens) {
  const size_t query = (size_t)a->heads * INDEX_DIM;
  a->q_codes = kernel_test_output(test, (tokens + 2) * query);
  a->w_out = kernel_test_output(test, (size_t)(tokens + 2) * a->heads * 4);
  a->cache = kernel_test_output(test, (size_t)PAGES * INDEX_PAGE_BYTES);
  kernel_test_keep(test, a->q_codes + tokens * query, 2 * query);
  kernel_test_keep(test, a->w_out + (size_t)tokens * a->heads, (size_t)2 * a->heads * 4);
  kernel_test_loose(test, a->w_out, (size_t)tokens * a->heads * 4);
  for (u32 i = 0; i < PAGES * PAGE_TOKENS; i++) {
    u8 *page = a->cache + (size_t)(i / PAGE_TOKENS) * INDEX_PAGE_BYTES;
    bool is_written = false;
    for (u32 t = 0; t < tokens; t++) is_written |= page_of(a, t) == page && a->position[t] % PAGE_TOKENS == i % PAGE_TOKENS;
    if (is_written) continue;
    kernel_test_keep(test, page + i % PAGE_TOKENS * INDEX_DIM, INDEX_DIM);
    kernel_test_keep(test, page + PAGE_TOKENS * INDEX_DIM + i % PAGE_TOKENS * 4, 4);
  }
}

static void index_case(kernel_test *test, const shape *s) {
  cases c = {.state = s->tokens * 1000003u + s->heads * 131 + s->rope * 7 + s->half_split * 3 + s->scale_kind + s->content * 11};
  index_qk_args a = {.q_stride = s->heads * INDEX_DIM + 4, .k_stride = INDEX_DIM + 8, .w_stride = s->heads + 3, .heads = s->heads,
                     .rope_dim = s->rope, .block_table_stride = STRIDE, .half_split = s->half_split, .scale_kind = s->scale_kind,
                     .eps = 1e-6f, .head_scale = 1 / sqrtf((f32)s->heads)};
  kernel_test_start(test);
  a.step = kernel_test_step(test, s->tokens, 0, 0);
  f32 *q = kernel_test_input(test, (size_t)(s->tokens + 2) * a.q_stride * 4);
  f32 *k = kernel_test_input(test, (size_t)(s->tokens + 2) * a.k_stride * 4);
  f32 *w = kernel_test_input(test, (size_t)(s->tokens + 2) * a.w_stride * 4), *cos_sin = kernel_test_input(test, LENGTH * s->rope * 4);
  f32 *gain = kernel_test_input(test, INDEX_DIM * 4), *bias = kernel_test_input(test, INDEX_DIM * 4);
  for (u32 t = 0; t < s->tokens; t++) { /* gaps stay poison */
    fill(&c, q + (size_t)t * a.q_stride, (size_t)s->heads * INDEX_DIM, s->content);
    fill(&c, k + (size_t)t * a.k_stride, INDEX_DIM, s->content == CONTENT_HUGE ? CONTENT_PLAIN : s->content);
    fill(&c, w + (size_t)t * a.w_stride, s->heads, s->content == CONTENT_SPECIAL ? CONTENT_SPECIAL : CONTENT_PLAIN);
    for (u32 i = 0; i < INDEX_DIM; i++) { /* a mean that matters; one that shows the order of sums */
      f32 *key = k + (size_t)t * a.k_stride + i;
      *key = s->content == CONTENT_CLOSE ? 0x1p20f + 0.125f * (f32)cases_below(&c, 16) : *key + 3;
    }
  }
  kernel_test_floats(&c, cos_sin, (size_t)LENGTH * s->rope, 1);
  kernel_test_floats(&c, gain, INDEX_DIM, 2);
  kernel_test_floats(&c, bias, INDEX_DIM, 1);
  a.q = q, a.k = k, a.w = w, a.cos_sin = cos_sin, a.gain = gain, a.bias = bias;
  const kernel_places places = kernel_test_places(test, s->tokens, SEQS, STRIDE, PAGES);
  a.position = places.position;
  a.seq = places.seq;
  a.block_table = places.block_table;
  take_results(test, &a, s->tokens);
  const u32 blocks = (u32)div_up(s->tokens * (s->heads + 1), INDEX_QK_ROWS);
  kernel_variant variants[] = {{.grid = {blocks, 1, 1}, .threads = 128}, {.grid = {blocks + 3, 1, 1}, .threads = 128}};
  kernel_test_run(test, &a, variants, 2);
  for (u32 t = 0; t < s->tokens; t++) {
    check_key(&a, t, s->content == CONTENT_PLAIN);
    for (u32 h = 0; h < s->heads; h++) check_query(&a, t, h, s->content == CONTENT_PLAIN);
  }
}

static void index_cases(kernel_test *test) {
  static const u32 tokens[] = {1, 3, 17, 130}, heads[] = {1, 8, 64, 4};
  for (u32 form = 0; form < 8; form++)
    for (u32 i = 0; i < ARRAY_LEN(tokens); i++) {
      const u32 rope = form & 4 ? 32 : 64;
      if (tokens[i] * heads[i] < 600)
        index_case(test, &(shape){.tokens = tokens[i], .heads = heads[i], .rope = rope, .half_split = form & 1,
                                  .scale_kind = form >> 1 & 1, .content = CONTENT_PLAIN});
    }
  for (u32 form = 0; form < 4; form++)
    for (u32 content = CONTENT_SMALL; content < CONTENT_KINDS; content++)
      index_case(test, &(shape){.tokens = 5, .heads = 7, .rope = 64, .half_split = form & 1, .scale_kind = form >> 1, .content = content});
  /* DeepSeek-V3.2 */
  index_case(test, &(shape){.tokens = 9, .heads = 64, .rope = 64, .half_split = 1, .scale_kind = SCALE_POW2, .content = CONTENT_PLAIN});
  index_case(test, &(shape){.tokens = 3, .heads = 32, .rope = 64, .scale_kind = SCALE_POW2, .content = CONTENT_PLAIN}); /* GLM-5 */
}

int main(int argc, char **argv) {
  return kernel_test_main(argc, argv, "index_qk", "55944732a5ae2700fdd67cb5bbd546a1", index_cases);
}

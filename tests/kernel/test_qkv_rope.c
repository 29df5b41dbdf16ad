/* test_qkv_rope.c - qkv_rope: nope columns are rounded; rope columns are rotated and placed after the latent ones, which do not change; KV
 * rows go to their page and slot in their format, and the rest of the KV memory does not change; both forms of pairs, with and without a
 * scale of the query; the products with w_uk; against NUMERICS.md and binary64. */
#include "gemm_tiles.h"

enum { PAGES = 12, SEQS = 3, STRIDE = 4, LENGTH = 256 };

typedef struct shape {
  u32 tokens, heads, nope, rope, rank, half_split;
  bool scaled, absorbs;
  u32 format, scale_kind;
  bool special; /* a latent column is Inf, another part of the row NaN */
} shape;

#define LAYER_SCALE 0x1.7p-6f

/* Checks the rotated pairs of `in` at the position: bits, and binary64 within a bound. */
static void check_rotation(const qkv_rope_args *a, const f32 *in, const bf16 *out, u32 position, f32 scale) {
  const f32 *turn = a->cos_sin + (size_t)position * a->rope_dim;
  for (u32 i = 0; i < a->rope_dim / 2; i++) {
    u32 even = a->half_split ? i : 2 * i, odd = a->half_split ? i + a->rope_dim / 2 : 2 * i + 1;
    f32 x = in[even], y = in[odd], cosine = turn[2 * i], sine = turn[2 * i + 1];
    assert_int_equal(out[even], num_to_bf16(fmaf(x, cosine, -(y * sine)) * scale));
    assert_int_equal(out[odd], num_to_bf16(fmaf(x, sine, y * cosine) * scale));
    double want_even = (double)x * (double)cosine - (double)y * (double)sine;
    double want_odd = (double)x * (double)sine + (double)y * (double)cosine;
    kernel_test_near((double)num_from_bf16(out[even]), want_even * (double)scale, 0x1.02p-8, 2e-5);
    kernel_test_near((double)num_from_bf16(out[odd]), want_odd * (double)scale, 0x1.02p-8, 2e-5);
  }
}

static void check_query(const qkv_rope_args *a, u32 t) {
  const f32 scale = a->q_scale ? a->q_scale[a->position[t]] : 1;
  for (u32 h = 0; h < a->heads; h++) {
    const f32 *in = a->q + (size_t)t * a->q_stride + (size_t)h * (a->nope_dim + a->rope_dim);
    size_t item = (size_t)t * a->heads + h;
    for (u32 i = 0; i < a->nope_dim; i++) assert_int_equal(a->q_nope[item * a->nope_dim + i], num_to_bf16(in[i] * scale));
    check_rotation(a, in + a->nope_dim, a->q_latent + item * (a->kv_lora_rank + a->rope_dim) + a->kv_lora_rank, a->position[t], scale);
  }
}

static u8 *row_of(const qkv_rope_args *a, u32 t) {
  u32 page = a->block_table[a->seq[t] * STRIDE + a->position[t] / PAGE_TOKENS];
  size_t row = page * PAGE_TOKENS + a->position[t] % PAGE_TOKENS;
  return (u8 *)a->kv + row * KV_ROW_BYTES(a->kv_format, a->kv_lora_rank, a->rope_dim);
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

/* The scale of 128 numbers as NUMERICS.md defines it. */
static f32 scale_of(const bf16 *x, u32 scale_kind) {
  f32 largest = 1e-4f;
  for (u32 i = 0; i < 128; i++) {
    f32 magnitude = fabsf(num_from_bf16(x[i]));
    if (!isfinite(magnitude)) return NAN;
    largest = fmaxf(largest, magnitude);
  }
  f32 scale = largest / 448.0f;
  for (i32 e = -60; e < 128 && scale_kind == SCALE_POW2; e++)
    if (ldexpf(1, e) >= scale) return ldexpf(1, e);
  return scale;
}

/* A row of bf16 numbers as the cache stores it. */
static void check_kept(const qkv_rope_args *a, const bf16 *want, const u8 *row) {
  u32 rank = a->kv_lora_rank, coded = a->kv_format == KV_FP8 ? rank + a->rope_dim : a->kv_format == KV_BF16 ? 0 : rank;
  f32 scale = LAYER_SCALE, kept;
  for (u32 i = 0; i < coded; i++) {
    if (a->kv_format == KV_FP8_DS_MLA && i % 128 == 0) {
      scale = scale_of(want + i, a->scale_kind);
      memcpy(&kept, row + rank + i / 128 * 4, 4);
      assert_true(kept == scale || (isnan(kept) && isnan(scale)));
    }
    assert_int_equal(row[i], nearest_code(num_from_bf16(want[i]) / scale));
  }
  u32 skip = a->kv_format == KV_FP8_DS_MLA ? rank + rank / 128 * 4 : 0;
  assert_memory_equal(row + (coded ? skip : 0), want + coded, coded == rank + a->rope_dim ? 0 : (rank + a->rope_dim - coded) * 2);
}

static void check_row(const qkv_rope_args *a, u32 t, bool special) {
  const f32 *in = a->kv_in + (size_t)t * a->kv_in_stride;
  bf16 row[576];
  double sum = 0;
  for (u32 i = 0; i < a->kv_lora_rank; i++) sum += (double)in[i] * (double)in[i];
  double factor = 1 / sqrt(sum / a->kv_lora_rank + 1e-6);
  f32 exact = kernel_test_norm(in, a->kv_lora_rank, 1e-6f);
  for (u32 i = 0; i < a->kv_lora_rank; i++) {
    row[i] = num_to_bf16(in[i] * exact * num_from_bf16(a->weight[i]));
    const double want = (double)in[i] * factor * (double)num_from_bf16(a->weight[i]);
    if (!special) kernel_test_near((double)num_from_bf16(row[i]), want, 0x1.02p-8, 1e-30);
  }
  const f32 *turn = a->cos_sin + (size_t)a->position[t] * a->rope_dim, *from = in + a->kv_lora_rank;
  bf16 *rope = row + a->kv_lora_rank;
  for (u32 i = 0; i < a->rope_dim / 2; i++) {
    u32 even = a->half_split ? i : 2 * i, odd = a->half_split ? i + a->rope_dim / 2 : 2 * i + 1;
    rope[even] = num_to_bf16(fmaf(from[even], turn[2 * i], -(from[odd] * turn[2 * i + 1])));
    rope[odd] = num_to_bf16(fmaf(from[even], turn[2 * i + 1], from[odd] * turn[2 * i]));
  }
  check_kept(a, row, row_of(a, t));
  if (a->kv_format == KV_BF16) check_rotation(a, from, (bf16 *)row_of(a, t) + a->kv_lora_rank, a->position[t], 1);
}

static void take_results(kernel_test *test, qkv_rope_args *a, u32 tokens) {
  u32 width = a->kv_lora_rank + a->rope_dim, nope = a->heads * a->nope_dim;
  a->q_nope = kernel_test_output(test, (size_t)(tokens + 2) * nope * 2);
  a->q_latent = kernel_test_output(test, (size_t)(tokens + 2) * a->heads * width * 2);
  const size_t row_bytes = KV_ROW_BYTES(a->kv_format, a->kv_lora_rank, a->rope_dim);
  a->kv = kernel_test_output(test, PAGES * PAGE_TOKENS * row_bytes);
  kernel_test_keep(test, a->q_nope + (size_t)tokens * nope, (size_t)2 * nope * 2);
  kernel_test_keep(test, a->q_latent + (size_t)tokens * a->heads * width, (size_t)2 * a->heads * width * 2);
  for (u32 i = 0; i < tokens * a->heads && !a->absorbs; i++) kernel_test_keep(test, a->q_latent + (size_t)i * width, a->kv_lora_rank * 2);
  for (u32 i = 0; i < PAGES * PAGE_TOKENS; i++) {
    bool is_written = false;
    for (u32 t = 0; t < tokens; t++) is_written |= row_of(a, t) == (u8 *)a->kv + i * row_bytes;
    if (!is_written) kernel_test_keep(test, (u8 *)a->kv + i * row_bytes, row_bytes);
  }
}

static void check_absorbed(const qkv_rope_args *a, u32 item) {
  const bf16 *query = a->q_nope + (size_t)item * a->nope_dim, *latent = a->q_latent + (size_t)item * (a->kv_lora_rank + a->rope_dim);
  const bf16 *w = a->w_uk + (size_t)(item % a->heads) * a->kv_lora_rank * a->nope_dim;
  for (u32 i = 0; i < a->kv_lora_rank; i++)
    assert_int_equal(latent[i], num_to_bf16(kernel_test_chain(query, w + (size_t)i * a->nope_dim, 1, a->nope_dim, 0)));
}

/* qkv_absorb.cuh: with CTAs of its own, or without; a tile that does not divide the columns. */
static void run_absorbing(kernel_test *test, const qkv_rope_args *a, u32 tokens) {
  static const small_m_tile tiles[] = {{.n = 64, .rows = 1, .k_blocks = 2, .stages = 2}, {.n = 24, .rows = 1, .k_blocks = 1, .stages = 3}};
  const u32 own = tokens * (1 + (u32)div_up(a->heads, 8));
  kernel_variant variants[3];
  for (u32 i = 0; i < ARRAY_LEN(variants); i++) {
    variants[i] = small_m_variant(&tiles[i % 2], tokens, 0);
    variants[i].threads = 256;
    variant_grid(&variants[i], i == 2 ? 1 : own + 3, 1 + i, 1);
  }
  kernel_test_run(test, a, variants, ARRAY_LEN(variants));
  for (u32 i = 0; i < tokens * a->heads; i++) check_absorbed(a, i);
}

static void rope_case(kernel_test *test, const shape *s) {
  cases c = {.state = s->tokens * 1000003u + s->heads * 131 + s->nope + s->rank + s->rope};
  qkv_rope_args a = {.q_stride = s->heads * (s->nope + s->rope) + 4, .kv_in_stride = s->rank + s->rope + 4, .heads = s->heads,
                     .nope_dim = s->nope, .rope_dim = s->rope, .kv_lora_rank = s->rank, .block_table_stride = STRIDE, .eps = 1e-6f,
                     .half_split = s->half_split, .absorbs = s->absorbs, .kv_format = s->format, .scale_kind = s->scale_kind};
  kernel_test_start(test);
  a.step = kernel_test_step(test, s->tokens, 0, 0);
  f32 *q = kernel_test_input(test, (size_t)(s->tokens + 2) * a.q_stride * 4);
  f32 *kv_in = kernel_test_input(test, (size_t)(s->tokens + 2) * a.kv_in_stride * 4);
  f32 *cos_sin = kernel_test_input(test, (size_t)LENGTH * s->rope * 4), *q_scale = s->scaled ? kernel_test_input(test, LENGTH * 4) : NULL;
  bf16 *weight = kernel_test_input(test, s->rank * 2);
  const size_t products = s->absorbs ? (size_t)s->heads * s->rank * s->nope : 0;
  bf16 *w_uk = s->absorbs ? kernel_test_input(test, products * 2) : NULL;
  kernel_test_floats(&c, q, (size_t)s->tokens * a.q_stride, 8);
  kernel_test_floats(&c, kv_in, (size_t)s->tokens * a.kv_in_stride, 3);
  kernel_test_floats(&c, cos_sin, (size_t)LENGTH * s->rope, 1);
  kernel_test_bf16s(&c, weight, s->rank, 2);
  kernel_test_bf16s(&c, w_uk, products, 2);
  for (u32 i = 128; i < 256 && s->format; i++) weight[i] = 0; /* below the smallest scale, with the sign of the number */
  if (s->special) weight[7] = 0x7f80;
  if (s->special) kv_in[(s->tokens - 1) * a.kv_in_stride + 9] = kv_in[(s->tokens - 1) * a.kv_in_stride + s->rank + 3] = NAN;
  if (s->format == KV_FP8) { /* other formats have no scale of the layer */
    f32 *kv_scale = kernel_test_input(test, sizeof *kv_scale);
    *kv_scale = LAYER_SCALE;
    a.kv_scale = kv_scale;
  }
  for (u32 i = 0; i < LENGTH && s->scaled; i++) q_scale[i] = 1 + 0.1f * (f32)i;
  a.q = q;
  a.kv_in = kv_in;
  a.cos_sin = cos_sin;
  a.q_scale = q_scale;
  a.weight = weight;
  a.w_uk = w_uk;
  const kernel_places places = kernel_test_places(test, s->tokens, SEQS, STRIDE, PAGES);
  a.position = places.position;
  a.seq = places.seq;
  a.block_table = places.block_table;
  take_results(test, &a, s->tokens);
  kernel_variant variants[] = {{.grid = {s->tokens, 1 + (u32)div_up(s->heads, 8), 1}, .threads = 256},
                               {.grid = {s->tokens + 2, 1, 1}, .threads = 256}, {.grid = {s->tokens, 2, 1}, .threads = 256}};
  if (s->absorbs) run_absorbing(test, &a, s->tokens);
  else kernel_test_run(test, &a, variants, 3);
  for (u32 t = 0; t < s->tokens; t++) {
    check_query(&a, t);
    check_row(&a, t, s->special);
  }
}

static void rope_cases(kernel_test *test) {
  static const u32 tokens[] = {1, 3, 17, 64, 130};
  for (u32 i = 0; i < ARRAY_LEN(tokens); i++) {
    for (u32 form = 0; form < 4; form++) {
      rope_case(test, &(shape){.tokens = tokens[i], .heads = 1, .nope = 32, .rope = 32, .rank = 256, .half_split = form % 2,
                               .scaled = form / 2});
      if (tokens[i] < 64)
        rope_case(test, &(shape){.tokens = tokens[i], .heads = 9, .nope = 128, .rope = 64, .rank = 512, .half_split = form % 2,
                                 .scaled = form / 2});
      if (tokens[i] < 64)
        rope_case(test, &(shape){.tokens = tokens[i], .heads = 16, .nope = 64, .rope = 32, .rank = 256, .half_split = form % 2,
                                 .scaled = form / 2});
    }
  }
  rope_case(test, &(shape){.tokens = 2, .heads = 128, .nope = 128, .rope = 64, .rank = 512});
  rope_case(test, &(shape){.tokens = 3, .heads = 40, .nope = 64, .rope = 32, .rank = 256, .half_split = 1}); /* MiniCPM3 */
  rope_case(test, &(shape){.tokens = 3, .heads = 32, .nope = 64, .rope = 64, .rank = 256, .scaled = true});  /* Mistral 4 */
  rope_case(test, &(shape){.tokens = 1, .heads = 16, .nope = 128, .rope = 64, .rank = 512, .absorbs = true});
  rope_case(test, &(shape){.tokens = 3, .heads = 9, .nope = 64, .rope = 32, .rank = 256, .half_split = 1, .scaled = true, .absorbs = true});
  /* the columns of GLM-4.7-Flash */
  rope_case(test, &(shape){.tokens = 1, .heads = 3, .nope = 192, .rope = 64, .rank = 512, .scaled = true, .absorbs = true});
  for (u32 kind = SCALE_F32; kind <= SCALE_POW2; kind++) {
    rope_case(test, &(shape){.tokens = 3, .heads = 9, .nope = 128, .rope = 64, .rank = 512, .format = KV_FP8_DS_MLA, .scale_kind = kind});
    rope_case(test, &(shape){.tokens = 17, .heads = 16, .nope = 128, .rope = 64, .rank = 512, .half_split = 1, .format = KV_FP8_DS_MLA,
                             .scale_kind = kind, .special = true});
  }
  rope_case(test, &(shape){.tokens = 64, .heads = 1, .nope = 32, .rope = 32, .rank = 256, .format = KV_FP8});
  rope_case(test, &(shape){.tokens = 3, .heads = 16, .nope = 128, .rope = 64, .rank = 512, .half_split = 1, .scaled = true,
                           .format = KV_FP8, .special = true});
  rope_case(test, &(shape){.tokens = 1, .heads = 16, .nope = 128, .rope = 64, .rank = 512, .absorbs = true, .format = KV_FP8_DS_MLA,
                           .scale_kind = SCALE_POW2});
}

int main(int argc, char **argv) {
  return kernel_test_main(argc, argv, "qkv_rope", "e19d7bfdd225505f34871f40daf3f111", rope_cases);
}

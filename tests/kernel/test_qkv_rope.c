/* test_qkv_rope.c - qkv_rope: nope columns rounded, rope columns rotated behind the latent ones, which stay; KV rows land in their page
 * and slot, nothing else of the KV memory changes; both forms of pairs, with and without a scale of the query; the products with w_uk;
 * against the text and binary64. */
#include "kernel_test.h"

enum { PAGES = 12, SEQS = 3, STRIDE = 4, LENGTH = 256 };

typedef struct shape {
  u32 tokens, heads, nope, rope, rank, half_split;
  bool scaled, absorbs;
} shape;

/* Pairs of `in` at the position, in bits and nearly. */
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

static bf16 *row_of(const qkv_rope_args *a, u32 t) {
  u32 page = a->block_table[a->seq[t] * STRIDE + a->position[t] / PAGE_TOKENS];
  return (bf16 *)a->kv + (size_t)(page * PAGE_TOKENS + a->position[t] % PAGE_TOKENS) * (a->kv_lora_rank + a->rope_dim);
}

static void check_row(const qkv_rope_args *a, u32 t) {
  const f32 *in = a->kv_in + (size_t)t * a->kv_in_stride;
  const bf16 *row = row_of(a, t);
  double sum = 0;
  for (u32 i = 0; i < a->kv_lora_rank; i++) sum += (double)in[i] * (double)in[i];
  double factor = 1 / sqrt(sum / a->kv_lora_rank + 1e-6);
  f32 exact = kernel_test_norm(in, a->kv_lora_rank, 1e-6f);
  for (u32 i = 0; i < a->kv_lora_rank; i++) {
    assert_int_equal(row[i], num_to_bf16(in[i] * exact * num_from_bf16(a->weight[i])));
    kernel_test_near((double)num_from_bf16(row[i]), (double)in[i] * factor * (double)num_from_bf16(a->weight[i]), 0x1.02p-8, 1e-30);
  }
  check_rotation(a, in + a->kv_lora_rank, row + a->kv_lora_rank, a->position[t], 1);
}

/* Consecutive positions of sequences in turn, across page edges. */
static void take_places(kernel_test *test, qkv_rope_args *a, u32 tokens) {
  u32 *position = kernel_test_input(test, (tokens + 2) * 4), *seq = kernel_test_input(test, (tokens + 2) * 4);
  u32 *pages = kernel_test_input(test, SEQS * STRIDE * 4);
  for (u32 i = 0; i < SEQS * STRIDE; i++) pages[i] = (i * 5 + 3) % PAGES;
  for (u32 t = 0; t < tokens; t++) {
    seq[t] = t % SEQS;
    position[t] = 60 + t / SEQS + 17 * seq[t];
  }
  a->position = position;
  a->seq = seq;
  a->block_table = pages;
}

static void take_results(kernel_test *test, qkv_rope_args *a, u32 tokens) {
  u32 width = a->kv_lora_rank + a->rope_dim, nope = a->heads * a->nope_dim;
  a->q_nope = kernel_test_output(test, (size_t)(tokens + 2) * nope * 2);
  a->q_latent = kernel_test_output(test, (size_t)(tokens + 2) * a->heads * width * 2);
  a->kv = kernel_test_output(test, (size_t)PAGES * PAGE_TOKENS * width * 2);
  kernel_test_keep(test, a->q_nope + (size_t)tokens * nope, (size_t)2 * nope * 2);
  kernel_test_keep(test, a->q_latent + (size_t)tokens * a->heads * width, (size_t)2 * a->heads * width * 2);
  for (u32 i = 0; i < tokens * a->heads && !a->absorbs; i++) kernel_test_keep(test, a->q_latent + (size_t)i * width, a->kv_lora_rank * 2);
  for (u32 i = 0; i < PAGES * PAGE_TOKENS; i++) {
    bool is_written = false;
    for (u32 t = 0; t < tokens; t++) is_written |= row_of(a, t) == (bf16 *)a->kv + (size_t)i * width;
    if (!is_written) kernel_test_keep(test, (bf16 *)a->kv + (size_t)i * width, width * 2);
  }
}

static void check_absorbed(const qkv_rope_args *a, u32 item) {
  const bf16 *query = a->q_nope + (size_t)item * a->nope_dim, *latent = a->q_latent + (size_t)item * (a->kv_lora_rank + a->rope_dim);
  const bf16 *w = a->w_uk + (size_t)(item % a->heads) * a->kv_lora_rank * a->nope_dim;
  for (u32 i = 0; i < a->kv_lora_rank; i++)
    assert_int_equal(latent[i], num_to_bf16(kernel_test_chain(query, w + (size_t)i * a->nope_dim, 1, a->nope_dim, 0)));
}

/* qkv_absorb.cuh: blocks beside those of the tokens, or none; a tile that does not divide the columns. */
static void run_absorbing(kernel_test *test, const qkv_rope_args *a, u32 tokens) {
  static const u32 tiles[][3] = {{64, 2, 2}, {24, 1, 3}}; /* weight rows, blocks of k, stages */
  const u32 own = tokens * (1 + (u32)div_up(a->heads, 8));
  kernel_variant variants[3];
  for (u32 i = 0; i < ARRAY_LEN(variants); i++) {
    const u32 *tile = tiles[i % 2], ring = tile[1] * tile[2] * 128, behind = max_u32((64 - tile[0]) * 128, (tile[0] + 4) * 32);
    variants[i] = (kernel_variant){{{"SPEC_MAPS", 1}, {"SPEC_TILE_N", tile[0]}, {"SPEC_TILE_ROWS", 1}, {"SPEC_K_BLOCKS", tile[1]},
                                    {"SPEC_STAGES", tile[2]}},
                                   .spec_count = 5, .grid = {i == 2 ? 1 : own + 3, 1 + i, 1}, .threads = 256, .rows = tokens,
                                   .shared_bytes = 2048 + (u32)align_up(ring, 1024) + ring * tile[0] + behind};
  }
  kernel_test_run(test, a, variants, ARRAY_LEN(variants));
  for (u32 i = 0; i < tokens * a->heads; i++) check_absorbed(a, i);
}

static void rope_case(kernel_test *test, const shape *s) {
  cases c = {.state = s->tokens * 1000003u + s->heads * 131 + s->nope + s->rank + s->rope};
  qkv_rope_args a = {.q_stride = s->heads * (s->nope + s->rope) + 4, .kv_in_stride = s->rank + s->rope + 4, .heads = s->heads,
                     .nope_dim = s->nope, .rope_dim = s->rope, .kv_lora_rank = s->rank, .block_table_stride = STRIDE, .eps = 1e-6f,
                     .half_split = s->half_split, .absorbs = s->absorbs};
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
  for (u32 i = 0; i < LENGTH && s->scaled; i++) q_scale[i] = 1 + 0.1f * (f32)i;
  a.q = q;
  a.kv_in = kv_in;
  a.cos_sin = cos_sin;
  a.q_scale = q_scale;
  a.weight = weight;
  a.w_uk = w_uk;
  take_places(test, &a, s->tokens);
  take_results(test, &a, s->tokens);
  kernel_variant variants[] = {{.grid = {s->tokens, 1 + (u32)div_up(s->heads, 8), 1}, .threads = 256},
                               {.grid = {s->tokens + 2, 1, 1}, .threads = 256}, {.grid = {s->tokens, 2, 1}, .threads = 256}};
  if (s->absorbs) run_absorbing(test, &a, s->tokens);
  else kernel_test_run(test, &a, variants, 3);
  for (u32 t = 0; t < s->tokens; t++) {
    check_query(&a, t);
    check_row(&a, t);
  }
}

static void rope_cases(kernel_test *test) {
  static const u32 tokens[] = {1, 3, 17, 64, 130};
  for (u32 i = 0; i < ARRAY_LEN(tokens); i++) {
    for (u32 form = 0; form < 4; form++) {
      rope_case(test, &(shape){tokens[i], 1, 32, 32, 256, form % 2, form / 2, false});
      if (tokens[i] < 64) rope_case(test, &(shape){tokens[i], 9, 128, 64, 512, form % 2, form / 2, false});
      if (tokens[i] < 64) rope_case(test, &(shape){tokens[i], 16, 64, 32, 256, form % 2, form / 2, false});
    }
  }
  rope_case(test, &(shape){2, 128, 128, 64, 512, 0, false, false});
  rope_case(test, &(shape){3, 40, 64, 32, 256, 1, false, false}); /* MiniCPM3 */
  rope_case(test, &(shape){3, 32, 64, 64, 256, 0, true, false});  /* Mistral 4 */
  rope_case(test, &(shape){1, 16, 128, 64, 512, 0, false, true});
  rope_case(test, &(shape){3, 9, 64, 32, 256, 1, true, true});
  rope_case(test, &(shape){1, 3, 192, 64, 512, 0, true, true}); /* GLM-4.7-Flash's columns */
}

int main(int argc, char **argv) { return kernel_test_main(argc, argv, "qkv_rope", rope_cases); }

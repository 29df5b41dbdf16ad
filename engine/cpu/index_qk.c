/* index_qk.c - the CPU reference of index_qk: for each token the indexer's query heads and its key, rotated, Hadamard transformed and
 * stored as scaled e4m3, and the weights of the heads. Items are tokens. NUMERICS.md "index_qk", "Scaled e4m3". Read next: rows.h. */
#include "cpu/cpu.h"
#include "cpu/rows.h"

#define SCALE 0x1.6a09e6p-4f /* fp32(128^-0.5) */

/* Encodes the numbers u of one head: rotation, transform, rounding. Returns the scale. */
static f32 make_codes(const index_qk_args *a, u8 *codes, const f32 *u, const f32 *cos_sin) {
  bf16 rounded[INDEX_DIM];
  f32 v[INDEX_DIM];
  rows_rotate(rounded, u, cos_sin, a->rope_dim, a->half_split, 1); /* R3.2 to R3.4 */
  for (u32 i = a->rope_dim; i < INDEX_DIM; i++) rounded[i] = num_to_bf16(u[i]); /* R14.5 */
  for (u32 i = 0; i < INDEX_DIM; i++) v[i] = num_from_bf16(rounded[i]);
  for (u32 h = 1; h < INDEX_DIM; h *= 2) { /* R14.6 */
    for (u32 i = 0; i < INDEX_DIM; i++) {
      if (i & h) continue;
      f32 x = v[i], y = v[i + h];
      v[i] = x + y;
      v[i + h] = x - y;
    }
  }
  for (u32 i = 0; i < INDEX_DIM; i++) v[i] = num_from_bf16(num_to_bf16(v[i] * SCALE)); /* R14.7, R14.8 */
  return rows_quantise(codes, v, INDEX_DIM, a->scale_kind);
}

static void make_queries(const index_qk_args *a, uint32_t token, const f32 *cos_sin) {
  for (u32 h = 0; h < a->heads; h++) {
    u64 item = (u64)token * a->heads + h;
    f32 scale = make_codes(a, a->q_codes + item * INDEX_DIM, a->q + (u64)token * a->q_stride + (u64)h * INDEX_DIM, cos_sin);
    a->w_out[item] = ((a->w[(u64)token * a->w_stride + h] * a->head_scale) * scale) * SCALE; /* R14.9 to R14.11 */
  }
}

static void make_key(const index_qk_args *a, uint32_t token, const f32 *cos_sin) {
  const f32 *source = a->k + (u64)token * a->k_stride;
  u32 position = a->position[token], row = position % PAGE_TOKENS;
  u8 *page = a->cache + (u64)a->block_table[(u64)a->seq[token] * a->block_table_stride + position / PAGE_TOKENS] * INDEX_PAGE_BYTES;
  f32 d[INDEX_DIM], p[INDEX_DIM];
  for (u32 i = 0; i < INDEX_DIM; i++) p[i] = source[i];
  f32 mean = num_div(rows_tree(p, INDEX_DIM), (f32)INDEX_DIM); /* R14.1 */
  for (u32 i = 0; i < INDEX_DIM; i++) {
    d[i] = source[i] - mean; /* R14.2 */
    p[i] = d[i] * d[i];
  }
  f32 variance = num_div(rows_tree(p, INDEX_DIM), (f32)INDEX_DIM);     /* R14.3 */
  f32 r = num_div(1.0f, num_sqrt(num_add(variance, a->eps)));
  for (u32 i = 0; i < INDEX_DIM; i++) d[i] = num_fma(d[i] * r, a->gain[i], a->bias[i]); /* R14.4 */
  ((f32 *)(void *)(page + PAGE_TOKENS * INDEX_DIM))[row] = make_codes(a, page + row * INDEX_DIM, d, cos_sin);
}

static void do_token(void *context, uint32_t token, void *scratch) {
  const index_qk_args *a = context;
  const f32 *cos_sin = a->cos_sin + (u64)a->position[token] * a->rope_dim;
  (void)scratch;
  make_queries(a, token, cos_sin);
  make_key(a, token, cos_sin);
}

void cpu_index_qk(const index_qk_args *args, cpu_pool *pool) {
  index_qk_args a = *args;
  ASSERT(a.rope_dim % 2 == 0 && a.rope_dim <= INDEX_DIM);
  cpu_pool_run(pool, a.step->token_count, do_token, &a);
}

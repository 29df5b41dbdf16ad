/* qkv_rope.c - the CPU reference of qkv_rope. For each token and head it writes the bf16 query without rope, and its rotated columns after
 * the latent ones, all times the query scale of the position; for each token the KV row, with latent columns normalised and rope columns
 * rotated. With w_uk it also computes the product of each head, as gemm does. The row is computed in bf16, and the cache stores it in its
 * format. NUMERICS.md "qkv_rope". Read next: rows.h. */
#include "cpu/cpu.h"
#include "cpu/kv_rows.h"
#include "base/limits.h"
#include "cpu/rows.h"

static void split_heads(const qkv_rope_args *a, uint32_t token, const f32 *cos_sin) {
  f32 scale = a->q_scale ? a->q_scale[a->position[token]] : 1;
  u64 width = a->kv_lora_rank + a->rope_dim;
  for (u32 h = 0; h < a->heads; h++) {
    const f32 *source = a->q + (u64)token * a->q_stride + (u64)h * (a->nope_dim + a->rope_dim);
    u64 item = (u64)token * a->heads + h;
    for (u32 i = 0; i < a->nope_dim; i++) a->q_nope[item * a->nope_dim + i] = num_to_bf16(source[i] * scale); /* R3.5, R3.1 */
    rows_rotate(a->q_latent + item * width + a->kv_lora_rank, source + a->nope_dim, cos_sin, a->rope_dim, a->half_split, scale);
  }
}

static void write_row(const qkv_rope_args *a, uint32_t token, const f32 *cos_sin) {
  const f32 *source = a->kv_in + (u64)token * a->kv_in_stride;
  u32 position = a->position[token];
  u64 page = a->block_table[(u64)a->seq[token] * a->block_table_stride + position / PAGE_TOKENS];
  u8 *to = (u8 *)a->kv + (page * PAGE_TOKENS + position % PAGE_TOKENS) * KV_ROW_BYTES(a->kv_format, a->kv_lora_rank, a->rope_dim);
  bf16 row[KV_LORA_RANK_MAX + ROPE_DIM_MAX];
  f32 r = rows_norm_factor(source, a->kv_lora_rank, a->eps);
  for (u32 i = 0; i < a->kv_lora_rank; i++) row[i] = rows_norm_apply(source[i], r, a->weight[i], 1);
  rows_rotate(row + a->kv_lora_rank, source + a->kv_lora_rank, cos_sin, a->rope_dim, a->half_split, 1);
  kv_rows_write(row, a->kv_format, a->kv_scale, a->scale_kind, a->kv_lora_rank, a->rope_dim, to);
}

static void do_token(void *context, uint32_t token, void *scratch) {
  const qkv_rope_args *a = context;
  (void)scratch;
  const f32 *cos_sin = a->cos_sin + (u64)a->position[token] * a->rope_dim;
  split_heads(a, token, cos_sin);
  write_row(a, token, cos_sin);
}

void cpu_qkv_rope(const qkv_rope_args *args, cpu_pool *pool) {
  qkv_rope_args a = *args;
  cpu_pool_run(pool, a.step->token_count, do_token, &a);
  u64 product = (u64)a.kv_lora_rank * a.nope_dim, width = a.kv_lora_rank + a.rope_dim;
  gemm_args absorb = {.step = a.step, .x = a.q_nope, .w = a.w_uk, .y = a.q_latent, .x_batch = a.nope_dim, .w_batch = product,
                      .y_batch = width, .ldx = a.heads * a.nope_dim, .ldy = a.heads * (u32)width, .n = a.kv_lora_rank, .k = a.nope_dim,
                      .batches = a.heads, .rows_kind = ROWS_TOKENS, .y_kind = Y_BF16};
  if (a.absorbs) cpu_gemm(&absorb, pool);
}

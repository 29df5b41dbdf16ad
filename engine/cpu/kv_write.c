/* kv_write.c - the CPU twin of kv_write: one KV row per token, latent columns normalised, rope columns rotated.
 * NUMERICS.md "kv_write". Read next: rows.h. */
#include "cpu.h"
#include "rows.h"

static void write_row(void *context, uint32_t token, void *scratch) {
  const kv_write_args *a = context;
  (void)scratch;
  const f32 *source = a->src + (u64)token * a->src_stride;
  u32 position = a->position[token];
  u64 page = a->block_table[(u64)a->seq[token] * a->block_table_stride + position / PAGE_TOKENS];
  bf16 *row = a->kv + (page * PAGE_TOKENS + position % PAGE_TOKENS) * (a->kv_lora_rank + a->rope_dim);
  f32 r = rows_norm_factor(source, a->kv_lora_rank, a->eps);
  for (u32 i = 0; i < a->kv_lora_rank; i++) row[i] = rows_norm_apply(source[i], r, a->weight[i], 1);
  rows_rotate(row + a->kv_lora_rank, source + a->kv_lora_rank, a->cos_sin + (u64)position * a->rope_dim, a->rope_dim, a->half_split, 1);
}

void cpu_kv_write(const kv_write_args *args, cpu_pool *pool) {
  kv_write_args a = *args;
  cpu_pool_run(pool, a.step->token_count, write_row, &a);
}

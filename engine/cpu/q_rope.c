/* q_rope.c - the CPU twin of q_rope: per token and head the bf16 query without rope, and its rotated columns behind the latent ones,
 * all times the query scale of the position. NUMERICS.md "q_rope". Read next: rows.h. */
#include "cpu.h"
#include "rows.h"

static void rotate_token(void *context, uint32_t token, void *scratch) {
  const q_rope_args *a = context;
  (void)scratch;
  const f32 *cos_sin = a->cos_sin + (u64)a->position[token] * a->rope_dim;
  f32 scale = a->q_scale ? a->q_scale[a->position[token]] : 1;
  u64 width = a->kv_lora_rank + a->rope_dim;
  for (u32 h = 0; h < a->heads; h++) {
    const f32 *source = a->src + (u64)token * a->src_stride + (u64)h * (a->nope_dim + a->rope_dim);
    u64 item = (u64)token * a->heads + h;
    for (u32 i = 0; i < a->nope_dim; i++) a->q_nope[item * a->nope_dim + i] = num_to_bf16(source[i] * scale); /* R3.5, R3.1 */
    rows_rotate(a->q_latent + item * width + a->kv_lora_rank, source + a->nope_dim, cos_sin, a->rope_dim, a->half_split, scale);
  }
}

void cpu_q_rope(const q_rope_args *args, cpu_pool *pool) {
  q_rope_args a = *args;
  cpu_pool_run(pool, a.step->token_count, rotate_token, &a);
}

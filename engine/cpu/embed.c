/* embed.c - the CPU reference of embed: copies token rows of the table to the fp32 residual stream, converted and scaled. NUMERICS.md
 * "embed". */
#include "cpu/cpu.h"
#include "kernels_src/num.h"

static void embed_row(void *context, uint32_t row, void *scratch) {
  const embed_args *a = context;
  (void)scratch;
  i32 id = a->token[row];
  if (id < 0) id = a->sampled[-1 - id];
  ASSERT(id >= 0 && (u32)id < a->vocab);
  if (a->history) {
    u32 position = a->position[row];
    u64 page = a->block_table[(u64)a->seq[row] * a->block_table_stride + position / PAGE_TOKENS];
    a->history[page * PAGE_TOKENS + position % PAGE_TOKENS] = id;
  }
  const bf16 *source = a->table + (u64)(u32)id * a->hidden;
  f32 *x = a->x + (u64)row * a->hidden;
  for (u32 i = 0; i < a->hidden; i++) x[i] = num_from_bf16(source[i]) * a->scale; /* R0.1 */
}

void cpu_embed(const embed_args *args, cpu_pool *pool) {
  embed_args a = *args;
  cpu_pool_run(pool, a.step->token_count, embed_row, &a);
}

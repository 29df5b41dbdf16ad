/* mla_expand.c - the CPU reference of mla_expand: k and v of all heads for one piece of the contexts, as products of the latent rows. Items
 * are (page, columns). NUMERICS.md "mla_expand". Read next: contexts.h, h16.h. */
#include <string.h>
#include "kernels_src/attn/contexts.h"
#include "cpu/cpu.h"
#include "mma/h16.h"
#include "kernels_src/num.h"

#define TILE_COLUMNS 32u

typedef struct expand_run {
  mla_expand_args a;
  u32 column_tiles;
} expand_run;

static void expand_columns(const mla_expand_args *a, const bf16 *kv, bf16 *y, u32 rows, u32 j0, void *scratch) {
  f32 *tile = (f32 *)((char *)scratch + H16_SCRATCH_BYTES);
  h16_job job = {.x = kv, .ldx = a->kv_lora_rank + a->rope_dim, .w = a->w + (u64)j0 * a->kv_lora_rank, .ldw = a->kv_lora_rank};
  job.k = a->kv_lora_rank;
  job.rows = rows;
  job.n = min_u32(TILE_COLUMNS, a->n - j0);
  job.y = tile;
  job.ldy = TILE_COLUMNS;
  h16_gemm(&job, scratch);
  for (u32 i = 0; i < rows; i++)
    for (u32 j = 0; j < job.n; j++) y[(u64)i * (a->n + a->rope_dim) + j0 + j] = num_to_bf16(tile[i * TILE_COLUMNS + j]); /* R10.1 */
}

static void run_item(void *context, uint32_t index, void *scratch) {
  const expand_run *run = context;
  const mla_expand_args *a = &run->a;
  u32 tile = index % run->column_tiles, slot = index / run->column_tiles, page = a->piece * a->piece_pages + slot;
  step_context c = contexts_find(a->contexts, a->step->seq_count, page);
  u32 number = a->block_table ? a->block_table[(u64)c.seq * a->block_table_stride + (page - c.first)] : slot;
  u32 rows = min_u32(PAGE_TOKENS, c.tokens - (page - c.first) * PAGE_TOKENS);
  u64 width = (u64)a->kv_lora_rank + a->rope_dim, stride = (u64)a->n + a->rope_dim;
  const bf16 *kv = a->kv + (u64)number * PAGE_TOKENS * width;
  bf16 *y = a->y + (u64)slot * PAGE_TOKENS * stride;
  expand_columns(a, kv, y, rows, tile * TILE_COLUMNS, scratch);
  for (u32 i = 0; i < rows && tile == 0; i++) memcpy(y + i * stride + a->n, kv + i * width + a->kv_lora_rank, a->rope_dim * sizeof *y);
  for (u32 i = rows; i < PAGE_TOKENS && tile == 0; i++) memset(y + i * stride, 0, stride * sizeof *y);
}

void cpu_mla_expand(const mla_expand_args *args, cpu_pool *pool) {
  expand_run run = {.a = *args, .column_tiles = (u32)div_up(args->n, TILE_COLUMNS)};
  u32 pages = contexts_pages_in(args->contexts, args->step->seq_count, args->piece, args->piece_pages);
  cpu_pool_run(pool, pages * run.column_tiles, run_item, &run);
}

/* moe_gemm.c - the CPU twin of moe_gemm: items are (expert, columns) tiles over the expert's sorted rows.
 * NUMERICS.md "moe_gemm". Read next: h16.h. */
#include "cpu.h"
#include "h16.h"

#define TILE_COLUMNS 32u

typedef struct moe_run {
  moe_gemm_args a;
  u32 column_tiles;
} moe_run;

static void run_tile(void *context, uint32_t index, void *scratch) {
  const moe_run *run = context;
  const moe_gemm_args *a = &run->a;
  u32 expert = index / run->column_tiles, j0 = index % run->column_tiles * TILE_COLUMNS;
  u32 first = a->expert_first[expert], rows = a->expert_first[expert + 1] - first;
  if (rows == 0) return;
  h16_job job = {.rows = rows, .k = a->k, .ldx = a->ldx, .ldw = a->k, .ldy = a->n, .n = min_u32(TILE_COLUMNS, a->n - j0)};
  job.x = a->row_token ? a->x : a->x + (u64)first * a->ldx;
  job.x_row = a->row_token ? a->row_token + first : NULL;
  job.w = a->w + ((u64)expert * a->n + j0) * a->k;
  job.y = (f32 *)a->y + (u64)first * a->n + j0;
  h16_gemm(&job, scratch);
}

void cpu_moe_gemm(const moe_gemm_args *args, cpu_pool *pool) {
  moe_run run = {.a = *args, .column_tiles = (u32)div_up(args->n, TILE_COLUMNS)};
  ASSERT(args->expert_first[args->experts] == args->step->token_count * args->top_k);
  cpu_pool_run(pool, run.column_tiles * args->experts, run_tile, &run);
}

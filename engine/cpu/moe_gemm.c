/* moe_gemm.c - the CPU twin of moe_gemm: items are (expert, columns) tiles over the sorted rows of an expert that has any.
 * NUMERICS.md "moe_gemm". Read next: h16.h. */
#include "cpu.h"
#include "h16.h"
#include "limits.h"

#define TILE_COLUMNS 32u

typedef struct moe_run {
  moe_gemm_args a;
  u32 column_tiles;
  u32 expert[EXPERTS_MAX]; /* those with rows */
} moe_run;

static void run_tile(void *context, uint32_t index, void *scratch) {
  const moe_run *run = context;
  const moe_gemm_args *a = &run->a;
  u32 expert = run->expert[index / run->column_tiles], j0 = index % run->column_tiles * TILE_COLUMNS;
  u32 first = a->expert_first[expert], rows = a->expert_first[expert + 1] - first;
  h16_job job = {.rows = rows, .k = a->k, .ldx = a->ldx, .ldw = a->k, .ldy = a->n, .n = min_u32(TILE_COLUMNS, a->n - j0)};
  job.x = a->row_token ? a->x : a->x + (u64)first * a->ldx;
  job.x_row = a->row_token ? a->row_token + first : NULL;
  job.w = a->w + ((u64)expert * a->n + j0) * a->k;
  job.y = a->y + (u64)first * a->n + j0;
  h16_gemm(&job, scratch);
}

void cpu_moe_gemm(const moe_gemm_args *args, cpu_pool *pool) {
  moe_run run = {.a = *args, .column_tiles = (u32)div_up(args->n, TILE_COLUMNS)};
  u32 count = 0;
  ASSERT(args->expert_first[args->experts] == args->step->token_count * args->top_k && args->experts <= EXPERTS_MAX);
  for (u32 i = 0; i < args->experts; i++)
    if (args->expert_first[i] < args->expert_first[i + 1]) run.expert[count++] = i;
  cpu_pool_run(pool, run.column_tiles * count, run_tile, &run);
}

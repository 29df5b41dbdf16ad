/* moe_gemm.c - the CPU reference of moe_gemm. Items are (expert, columns) tiles over the sorted rows of each expert that has rows.
 * NUMERICS.md "moe_gemm". Read next: h16.h. */
#include "cpu/cpu.h"
#include "mma/h16_core.h"
#include "base/limits.h"

#define TILE_COLUMNS 32u

typedef struct moe_run {
  moe_gemm_args a;
  u32 columns; /* of y */
  u32 column_tiles;
  const h16_core *core;
  u32 expert[EXPERTS_MAX]; /* experts that have rows */
} moe_run;

/* Computes gate and up columns, H16_ROWS rows at a time. job: the gate's. */
static void run_silu(const moe_run *run, h16_job job, bf16 *y, void *scratch) {
  f32 *gate = (f32 *)((char *)scratch + H16_SCRATCH_BYTES), *up = gate + H16_ROWS * TILE_COLUMNS;
  const u32 rows = job.rows;
  job.ldy = TILE_COLUMNS;
  for (u32 i0 = 0; i0 < rows; i0 += H16_ROWS) {
    h16_job part = job;
    part.rows = min_u32(H16_ROWS, rows - i0);
    if (job.x_row) part.x_row += i0;
    else part.x += i0 * job.ldx;
    part.y = gate;
    h16_gemm(&part, scratch);
    part.w += (u64)run->columns * job.k;
    part.y = up;
    h16_gemm(&part, scratch);
    for (u32 i = 0; i < part.rows; i++) /* R5.1 to R5.5 */
      run->core->silu_mul(gate + i * TILE_COLUMNS, up + i * TILE_COLUMNS, job.n, y + (u64)(i0 + i) * run->columns);
  }
}

static void run_tile(void *context, uint32_t index, void *scratch) {
  const moe_run *run = context;
  const moe_gemm_args *a = &run->a;
  u32 expert = run->expert[index / run->column_tiles], j0 = index % run->column_tiles * TILE_COLUMNS;
  u32 first = a->expert_first[expert], rows = a->expert_first[expert + 1] - first;
  h16_job job = {.rows = rows, .k = a->k, .ldx = a->ldx, .ldw = a->k, .ldy = a->n, .n = min_u32(TILE_COLUMNS, run->columns - j0)};
  job.x = a->row_token ? a->x : a->x + (u64)first * a->ldx;
  job.x_row = a->row_token ? a->row_token + first : NULL;
  job.w = a->w + ((u64)expert * a->n + j0) * a->k;
  if (a->y_kind == Y_SILU) {
    run_silu(run, job, (bf16 *)a->y + (u64)first * run->columns + j0, scratch);
    return;
  }
  job.y = (f32 *)a->y + (u64)first * a->n + j0;
  h16_gemm(&job, scratch);
}

void cpu_moe_gemm(const moe_gemm_args *args, cpu_pool *pool) {
  moe_run run = {.a = *args, .core = cpu_isa_core(), .columns = args->y_kind == Y_SILU ? args->n / 2 : args->n};
  run.column_tiles = (u32)div_up(run.columns, TILE_COLUMNS);
  u32 count = 0;
  ASSERT(args->expert_first[args->experts] == args->step->token_count * args->top_k && args->experts <= EXPERTS_MAX);
  for (u32 i = 0; i < args->experts; i++)
    if (args->expert_first[i] < args->expert_first[i + 1]) run.expert[count++] = i;
  cpu_pool_run(pool, run.column_tiles * count, run_tile, &run);
}

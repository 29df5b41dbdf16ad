/* fp8_moe_gemm.c - the CPU reference of fp8_moe_gemm. Items are (expert, columns) tiles over the sorted rows of each expert that has rows.
 * NUMERICS.md "fp8_moe_gemm". Read next: scaled.h. */
#include "cpu/cpu.h"
#include "mma/h16_core.h"
#include "base/limits.h"
#include "mma/scaled.h"
#include <string.h>

typedef struct moe_run {
  fp8_moe_gemm_args a;
  u32 columns; /* of y */
  u32 column_tiles;
  const h16_core *core;
  u32 expert[EXPERTS_MAX]; /* experts that have rows */
} moe_run;

/* Multiplies rows from `first` on, all of one expert, by n of its weight rows from j on. */
static void multiply(const fp8_moe_gemm_args *a, u32 expert, u32 first, u32 rows, u32 j, u32 n, f32 *tile) {
  const u32 blocks = a->k / SCALE_COLUMNS, plain = a->row_token ? 0 : first;
  const u64 scale_rows = div_up(a->n, SCALE_COLUMNS);
  scaled_job job = {.x = a->x + (u64)plain * a->k, .x_scale = a->x_scale + (u64)plain * blocks, .w = a->w + ((u64)expert * a->n + j) * a->k,
                    .w_scale = a->w_scale + (expert * scale_rows + j / SCALE_COLUMNS) * blocks, .y = tile, .rows = rows, .n = n, .k = a->k};
  job.x_row = a->row_token ? a->row_token + first : NULL;
  scaled_gemm(&job);
}

static void run_tile(void *context, uint32_t index, void *scratch) {
  const moe_run *run = context;
  const fp8_moe_gemm_args *a = &run->a;
  u32 expert = run->expert[index / run->column_tiles], j0 = index % run->column_tiles * SCALED_COLUMNS;
  u32 n = min_u32(SCALED_COLUMNS, run->columns - j0), end = a->expert_first[expert + 1];
  f32 *tile = scratch, *up = tile + SCALED_TILE;
  for (u32 first = a->expert_first[expert]; first < end; first += SCALED_ROWS) {
    u32 rows = min_u32(SCALED_ROWS, end - first);
    multiply(a, expert, first, rows, j0, n, tile);
    if (a->y_kind == Y_SILU) multiply(a, expert, first, rows, run->columns + j0, n, up);
    for (u32 i = 0; i < rows; i++) {
      u64 target = (u64)(first + i) * run->columns + j0;
      if (a->y_kind == Y_SILU) /* R5.1 to R5.5 */
        run->core->silu_mul(tile + i * SCALED_COLUMNS, up + i * SCALED_COLUMNS, n, (bf16 *)a->y + target);
      else
        memcpy((f32 *)a->y + target, tile + i * SCALED_COLUMNS, n * sizeof(f32));
    }
  }
}

void cpu_fp8_moe_gemm(const fp8_moe_gemm_args *args, cpu_pool *pool) {
  moe_run run = {.a = *args, .core = cpu_isa_core(), .columns = args->y_kind == Y_SILU ? args->n / 2 : args->n};
  ASSERT(args->y_kind != Y_SILU || run.columns % SCALE_COLUMNS == 0);
  run.column_tiles = (u32)div_up(run.columns, SCALED_COLUMNS);
  u32 count = 0;
  ASSERT(args->expert_first[args->experts] == args->step->token_count * args->top_k && args->experts <= EXPERTS_MAX);
  for (u32 i = 0; i < args->experts; i++)
    if (args->expert_first[i] < args->expert_first[i + 1]) run.expert[count++] = i;
  cpu_pool_run(pool, run.column_tiles * count, run_tile, &run);
}

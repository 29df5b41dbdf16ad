/* act_quant.c - the CPU reference of act_quant: quantizes rows of bf16 to e4m3 with one scale per 128 columns. Items are rows. NUMERICS.md
 * "act_quant", "Scaled e4m3". Read next: rows.h. */
#include "cpu/cpu.h"
#include "cpu/rows.h"

static void quantise_row(void *context, uint32_t row, void *scratch) {
  const act_quant_args *a = context;
  const bf16 *x = a->x + (u64)row * a->ldx;
  u8 *codes = a->codes + (u64)row * a->columns;
  f32 *scales = a->scales + (u64)row * (a->columns / SCALE_COLUMNS), v[SCALE_COLUMNS];
  (void)scratch;
  for (u32 first = 0; first < a->columns; first += SCALE_COLUMNS) {
    for (u32 i = 0; i < SCALE_COLUMNS; i++) v[i] = num_from_bf16(x[first + i]);
    scales[first / SCALE_COLUMNS] = rows_quantise(codes + first, v, SCALE_COLUMNS, a->scale_kind);
  }
}

void cpu_act_quant(const act_quant_args *args, cpu_pool *pool) {
  act_quant_args a = *args;
  ASSERT(a.columns % SCALE_COLUMNS == 0);
  cpu_pool_run(pool, rows_count(a.step, a.rows_kind) * a.rows_mul, quantise_row, &a);
}

/* silu_mul.c - the CPU twin of silu_mul: bf16(silu(gate) * up), an item a slice of a row. NUMERICS.md "silu_mul" (R5.1 to R5.5). */
#include "cpu.h"
#include "h16_core.h"

#define SLICE 512u /* columns: a step of one row is work for several threads */

typedef struct silu_run {
  silu_mul_args a;
  const h16_core *core;
  u32 slices;
} silu_run;

static void multiply_slice(void *context, uint32_t index, void *scratch) {
  const silu_run *run = context;
  const silu_mul_args *a = &run->a;
  (void)scratch;
  u64 row = index / run->slices, first = (u64)(index % run->slices) * SLICE;
  const f32 *gate = a->gate_up + row * 2 * a->inter + first;
  run->core->silu_mul(gate, gate + a->inter, min_u32(SLICE, a->inter - (u32)first), a->y + row * a->inter + first);
}

void cpu_silu_mul(const silu_mul_args *args, cpu_pool *pool) {
  silu_run run = {.a = *args, .core = cpu_isa_core(), .slices = (u32)div_up(args->inter, SLICE)};
  cpu_pool_run(pool, args->step->token_count * args->rows_mul * run.slices, multiply_slice, &run);
}

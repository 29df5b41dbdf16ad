/* silu_mul.c - the CPU twin of silu_mul: bf16(silu(gate) * up). NUMERICS.md "silu_mul". */
#include "cpu.h"
#include "num.h"

static void multiply_row(void *context, uint32_t row, void *scratch) {
  const silu_mul_args *a = context;
  (void)scratch;
  const f32 *gate = a->gate_up + (u64)row * 2 * a->inter, *up = gate + a->inter;
  bf16 *y = a->y + (u64)row * a->inter;
  for (u32 i = 0; i < a->inter; i++) y[i] = num_to_bf16(num_silu(gate[i]) * up[i]); /* R5.1 to R5.5 */
}

void cpu_silu_mul(const silu_mul_args *args, cpu_pool *pool) {
  silu_mul_args a = *args;
  cpu_pool_run(pool, a.step->token_count * a.rows_mul, multiply_row, &a);
}

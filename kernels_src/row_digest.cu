/* row_digest.cu - one 64-bit digest of a row's words. NUMERICS.md, `row_digest`.
 *
 * x [rows][stride] 32-bit words, the first `words` of each row count; digest [rows]. Integer sums: any order gives the same.
 * Grid: a block a row. Moves words * 4 bytes a row. */
#include "spec.cuh"
#include "reduce.cuh"

extern "C" __global__ __launch_bounds__(SPEC_THREADS) void row_digest(const __grid_constant__ row_digest_args a) {
  __shared__ u64 shared[32];
  ptx_grid_next();
  ptx_grid_wait();
  const u32 row = blockIdx.x;
  if (row >= (a.rows_kind == ROWS_TOKENS ? a.step->token_count : a.step->logit_count)) return;
  const u32 *x = a.x + (u64)row * a.stride;
  u64 sum = 0;
#pragma unroll 4
  for (u32 i = threadIdx.x; i < a.words; i += SPEC_THREADS) sum += num_digest_word(i, x[i]);
  sum = reduce_sum_block(sum, shared);
  if (threadIdx.x == 0) a.digest[row] = sum;
}

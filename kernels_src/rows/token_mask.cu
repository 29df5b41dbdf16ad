/* token_mask.cu - takes from the choice of a row the tokens that its mask lacks. NUMERICS.md, `token_mask`.
 *
 * masks [masks][words] bits, adjusted [R][vocab] fp32, in place after `adjust`. Grid: rows. 256 threads. Rows without a mask cost nothing.
 * A row with one reads vocab / 8 bytes and writes 4 bytes for each token that it lacks. A warp reads 32 words at once, since it waits for
 * each load. */
#include "spec.cuh"
#include "ptx/ptx.cuh"

extern "C" __global__ __launch_bounds__(SPEC_THREADS) void token_mask(const __grid_constant__ token_mask_args a) {
  ptx_grid_next();
  const u32 r = blockIdx.x;
  const u32 mask = r < a.step->logit_count ? a.param[r].mask : 0u;
  ptx_grid_wait();
  if (mask == 0u) return;
  const u32 *bits = a.masks + (u64)(mask - 1u) * a.words;
  f32 *row = a.adjusted + (u64)r * a.vocab;
  const u32 lane = threadIdx.x % 32u;
  for (u32 first = threadIdx.x / 32u * 32u; first < a.words; first += SPEC_THREADS) {
    const u32 own = first + lane < a.words ? bits[first + lane] : 0u;
#pragma unroll 8
    for (u32 j = 0; j < 32u; j++) {
      const u32 word = __shfl_sync(WARP_ALL, own, (int)j), i = (first + j) * 32u + lane;
      if (i < a.vocab && (word >> lane & 1u) == 0u) row[i] = num_float(0xff800000u);
    }
  }
}

/* moe_combine.cu - weighs the experts' rows of each token, then adds the shared expert. NUMERICS.md, `moe_combine`.
 *
 * y [T * top_k][hidden] fp32 in sorted order, pair_row and topk_weight [T][top_k] in ascending expert id, shared and out
 * [T][hidden] fp32; hidden a multiple of 4. Grid: a block a token. Moves hidden * 4 * (top_k + 2) bytes a token. */
#include "spec.cuh"
#include "ptx.cuh"

extern "C" __global__ __launch_bounds__(SPEC_THREADS) void moe_combine(const __grid_constant__ moe_combine_args a) {
  ptx_grid_next();
  ptx_grid_wait();
  const u32 t = blockIdx.x;
  if (t >= a.step->token_count) return;
  const u32 *rows = a.pair_row + (u64)t * a.top_k;
  const f32 *weights = a.topk_weight + (u64)t * a.top_k;
  for (u32 i = threadIdx.x * 4u; i < a.hidden; i += SPEC_THREADS * 4u) {
    float4 acc = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll 4
    for (u32 k = 0; k < a.top_k; k++) {
      const float4 y = *(const float4 *)(a.y + (u64)rows[k] * a.hidden + i);
      const f32 w = weights[k];
      acc = make_float4(num_fma(w, y.x, acc.x), num_fma(w, y.y, acc.y), num_fma(w, y.z, acc.z), num_fma(w, y.w, acc.w));
    }
    if (a.shared) {
      const float4 s = *(const float4 *)(a.shared + (u64)t * a.hidden + i);
      acc = make_float4(num_add(acc.x, s.x), num_add(acc.y, s.y), num_add(acc.z, s.z), num_add(acc.w, s.w));
    }
    *(float4 *)(a.out + (u64)t * a.hidden + i) = acc;
  }
}

/* moe_fold.cu - the weighted sum of the experts of a token, the shared one last, for some of the hidden columns. NUMERICS.md, `moe_fold`.
 *
 * experts [T * top_k][columns] fp32 in sorted order, delta [T][delta_stride] of the shared expert, y [T][y_stride]; columns and strides are
 * multiples of 4. Grid: rows, ceil(columns / 512). 128 threads with a vector of four columns each.
 * Moves columns * 4 * (top_k + 2) bytes a row. Bound: for large M these bytes; for small M the launch and one round trip to L2 after the
 * wait. The routing is read before the wait, as in rmsnorm.cu: the experts' rows come from a moe_gemm after another, which lets it start
 * once the routing is complete. */
#include "spec.cuh"
#include "ptx/ptx.cuh"
#include "rows/vectors.cuh"

static_assert(SPEC_THREADS * 4u == MOE_FOLD_COLUMNS, "the grid covers the columns");
#define BATCH 8u /* experts whose rows are in flight together */
#define FEW_ROWS 132u /* for which the code is loaded before the wait */

/* Columns i to i + 3 of the chain in ascending k. Lane k holds the sorted row and the weight of the k-th expert. */
NUM float4 add_experts(const moe_fold_args &a, u32 pair_row, f32 pair_weight, u32 i, u32 columns) {
  float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll 1
  for (u32 k0 = 0; k0 < a.top_k; k0 += BATCH) {
    float4 y[BATCH];
#pragma unroll
    for (u32 b = 0; b < BATCH; b++) {
      const f32 *row = a.experts + (u64)__shfl_sync(WARP_ALL, pair_row, (k0 + b) % 32u) * a.columns;
      y[b] = read4(row, i, k0 + b < a.top_k ? columns : 0u);
    }
#pragma unroll
    for (u32 b = 0; b < BATCH; b++) {
      const f32 w = __shfl_sync(WARP_ALL, pair_weight, (k0 + b) % 32u);
      if (k0 + b >= a.top_k) break;
      sum = fma4(y[b], w, sum);
    }
  }
  return sum;
}

extern "C" __global__ __launch_bounds__(SPEC_THREADS) void moe_fold(const __grid_constant__ moe_fold_args a) {
  ptx_grid_next();
  const u32 row = blockIdx.x, lane = threadIdx.x % 32u, i = (blockIdx.y * SPEC_THREADS + threadIdx.x) * 4u;
  const bool is_row = row < a.step->token_count, has_expert = is_row && lane < a.top_k;
  const u64 pair = (u64)row * a.top_k + lane;
  const u32 pair_row = has_expert ? ptx_load_fresh(a.pair_row + pair) : 0u;
  const f32 pair_weight = has_expert ? ptx_load_fresh(a.topk_weight + pair) : 0.0f;
#pragma unroll 1
  for (u32 columns = gridDim.x > FEW_ROWS ? a.columns : 0u;; columns = a.columns) { /* for small M first a warm-up without columns */
    if (columns) ptx_grid_wait();
    if (columns && !is_row) return;
    const float4 delta = read4(a.delta + (u64)row * a.delta_stride, i, a.delta ? columns : 0u);
    const f32 share = a.gate && columns ? num_sigmoid(a.gate[(u64)row * a.gate_stride]) : 1.0f; /* the product with 1 is exact */
    float4 sum = add_experts(a, pair_row, pair_weight, i, columns);
    if (a.delta) sum = fma4(delta, share, sum);
    if (i < columns) *(float4 *)(a.y + (u64)row * a.y_stride + i) = sum;
    if (columns) return;
  }
}

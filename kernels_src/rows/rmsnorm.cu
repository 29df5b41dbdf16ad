/* rmsnorm.cu - adds delta to the residual stream, stores it, and normalises the row. NUMERICS.md, `rmsnorm`.
 *
 * v = x + delta * delta_scale (or x), x_out = v if given (it may be x itself: an element is read and written by one thread),
 * y = v * r * w * y_scale. With experts, delta is the weighted sum of their rows, plus the row of delta. x, delta, x_out [.][x_stride]
 * fp32, experts [T * top_k][dim] fp32 in sorted order, weight [dim] bf16, y [rows][y_stride] bf16 or fp32. Grid: rows.
 * Small M: 512 threads, SPEC_HELD 1, 2 or 4 vectors of four columns in a thread's registers, the whole row together: dim at most 2048 times
 * as much, strides of whole vectors. The first 256 threads, one for each partial sum, add up squares from shared memory, zeros after the
 * end of the row. Large M: 256 threads, rmsnorm_many.cuh.
 * Moves up to dim * (8 + 4 + 2 + 4 * top_k) bytes a row. For small M the time is one round trip to L2 after the wait, the number of
 * instructions, and instruction fetches: so all of the code runs once without columns while the kernel waits. The routing is read before
 * the wait: the experts' rows come from a moe_gemm after another, which lets it start once the routing is complete. On an H200, us for 1,
 * 16 and 64 rows of 2048: 1.3, 1.5, 1.6; with six experts and a shared one 2.1, 2.3, 2.6. Study: tools/bench/history, small-ops. */
#include "spec.cuh"
#if SPEC_THREADS == 256
#include "rows/rmsnorm_many.cuh"
#else
#include "rows/norm_row.cuh"

extern "C" __global__ __launch_bounds__(SPEC_THREADS) void rmsnorm(const __grid_constant__ rmsnorm_args a) {
  __shared__ float4 shared[ROW / 4u];
  __shared__ f32 partial[PARTIALS];
  ptx_grid_next();
  const u32 row = blockIdx.x, j = threadIdx.x, lane = j % 32u;
  const bool is_row = row < (a.rows_kind == ROWS_TOKENS ? a.step->token_count : a.step->logit_count);
  const u64 source = a.row_index ? a.row_index[row] : row, at = source * a.x_stride, pair = source * a.top_k + lane;
  const bool has_expert = a.experts && is_row && lane < a.top_k;
  const u32 pair_row = has_expert ? ptx_load_fresh(a.pair_row + pair) : 0u;
  const f32 pair_weight = has_expert ? ptx_load_fresh(a.topk_weight + pair) : 0.0f;
  uint2 weights[SPEC_HELD];
  read_weights(a.weight, a.dim, weights);
#pragma unroll 1
  for (u32 columns = 0;; columns = a.dim) { /* first a warm-up without columns */
    if (columns) ptx_grid_wait();
    if (columns && !is_row) return;
    float4 v[SPEC_HELD], delta[SPEC_HELD], sum[SPEC_HELD];
#pragma unroll
    for (u32 e = 0; e < SPEC_HELD; e++) {
      const u32 i = (j + e * SPEC_THREADS) * 4u;
      v[e] = read4(a.x + at, i, a.x ? columns : 0u);
      delta[e] = read4(a.delta + at, i, a.delta ? columns : 0u);
    }
    const f32 share = a.gate && columns ? num_sigmoid(a.gate[source * a.gate_stride]) : 1.0f; /* the product with 1 is exact */
    if (a.experts) add_experts(a.experts, a.dim, a.top_k, pair_row, pair_weight, columns, sum);
#pragma unroll
    for (u32 e = 0; e < SPEC_HELD; e++) {
      const u32 i = (j + e * SPEC_THREADS) * 4u;
      if (a.experts) delta[e] = a.delta ? fma4(delta[e], share, sum[e]) : sum[e];
      if (a.experts || a.delta) v[e] = fma4(delta[e], a.delta_scale, v[e]);
      shared[j + e * SPEC_THREADS] = v[e];
      if (a.x_out && i < columns) *(float4 *)(a.x_out + at + i) = v[e];
    }
    __syncthreads();
    const f32 factor = norm_factor(shared, partial, a.dim, a.eps), r = a.weight ? factor : 1.0f;
    if (a.y_kind == Y_F32) write_normalised((f32 *)a.y + (u64)row * a.y_stride, columns, v, r, weights, a.y_scale);
    else write_normalised((bf16 *)a.y + (u64)row * a.y_stride, columns, v, r, weights, a.y_scale);
    if (columns) return;
  }
}
#endif

/* rmsnorm.cu - adds delta to the residual stream, stores it, and normalises the row. NUMERICS.md, `rmsnorm`.
 *
 * v = x + delta * delta_scale (or x), x_out = v if given (it may be x itself: an element is read and written by one thread),
 * y = bf16(v * r * w * y_scale). With experts, delta is the weighted sum of their rows, plus the row of delta. x, delta, x_out
 * [.][x_stride] fp32, experts [T * top_k][dim] fp32 in sorted order, weight [dim] bf16, y [rows][y_stride] bf16. Grid: rows.
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
#include "ptx/reduce.cuh"

#define PARTIALS 256u /* their number is part of the result */
#define ROW (SPEC_HELD * SPEC_THREADS * 4u)
#define BATCH (8u / SPEC_HELD) /* experts whose rows are in flight together */
static_assert(SPEC_THREADS % PARTIALS == 0 && SPEC_HELD <= 4, "a thread for every partial sum, a batch for every expert");

/* Elements i to i + 3 of a row of `count`. */
NUM float4 read4(const f32 *row, u32 i, u32 count) {
  return i < count ? *(const float4 *)(row + i) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
}
NUM float4 fma4(float4 a, f32 b, float4 c) {
  return make_float4(num_fma(a.x, b, c.x), num_fma(a.y, b, c.y), num_fma(a.z, b, c.z), num_fma(a.w, b, c.w));
}
NUM float4 add4(float4 a, float4 b) { return make_float4(num_add(a.x, b.x), num_add(a.y, b.y), num_add(a.z, b.z), num_add(a.w, b.w)); }

/* The weighted sum of the experts' rows: a chain in ascending id. Lane k holds the sorted row and the weight of the k-th expert. */
NUM void add_experts(const rmsnorm_args &a, u32 pair_row, f32 pair_weight, u32 columns, float4 (&sum)[SPEC_HELD]) {
#pragma unroll
  for (u32 e = 0; e < SPEC_HELD; e++) sum[e] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll 1
  for (u32 k0 = 0; k0 < a.top_k; k0 += BATCH) {
    float4 y[BATCH][SPEC_HELD];
#pragma unroll
    for (u32 b = 0; b < BATCH; b++) {
      const f32 *row = a.experts + (u64)__shfl_sync(WARP_ALL, pair_row, (k0 + b) % 32u) * a.dim;
#pragma unroll
      for (u32 e = 0; e < SPEC_HELD; e++) y[b][e] = read4(row, (threadIdx.x + e * SPEC_THREADS) * 4u, k0 + b < a.top_k ? columns : 0u);
    }
#pragma unroll
    for (u32 b = 0; b < BATCH; b++) {
      const f32 w = __shfl_sync(WARP_ALL, pair_weight, (k0 + b) % 32u);
      if (k0 + b >= a.top_k) break;
#pragma unroll
      for (u32 e = 0; e < SPEC_HELD; e++) sum[e] = fma4(y[b][e], w, sum[e]);
    }
  }
}

NUM f32 normalised(const rmsnorm_args &a, f32 v, f32 r, u32 weight) {
  return num_mul(num_mul(num_mul(v, r), num_from_bf16((bf16)weight)), a.y_scale);
}

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
  uint2 weights[SPEC_HELD]; /* of four columns each */
#pragma unroll
  for (u32 e = 0; e < SPEC_HELD; e++) {
    const u32 i = (j + e * SPEC_THREADS) * 4u;
    weights[e] = i < a.dim ? *(const uint2 *)(a.weight + i) : make_uint2(0u, 0u);
  }
#pragma unroll 1
  for (u32 columns = 0;; columns = a.dim) { /* first a warm-up without columns */
    if (columns) ptx_grid_wait();
    if (columns && !is_row) return;
    float4 v[SPEC_HELD], delta[SPEC_HELD], sum[SPEC_HELD];
#pragma unroll
    for (u32 e = 0; e < SPEC_HELD; e++) {
      const u32 i = (j + e * SPEC_THREADS) * 4u;
      v[e] = read4(a.x + at, i, columns);
      delta[e] = read4(a.delta + at, i, a.delta ? columns : 0u);
    }
    if (a.experts) add_experts(a, pair_row, pair_weight, columns, sum);
#pragma unroll
    for (u32 e = 0; e < SPEC_HELD; e++) {
      const u32 i = (j + e * SPEC_THREADS) * 4u;
      if (a.experts) delta[e] = a.delta ? add4(sum[e], delta[e]) : sum[e];
      if (a.experts || a.delta) v[e] = fma4(delta[e], a.delta_scale, v[e]);
      shared[j + e * SPEC_THREADS] = v[e];
      if (a.x_out && i < columns) *(float4 *)(a.x_out + at + i) = v[e];
    }
    __syncthreads();
    f32 p = 0.0f;
#pragma unroll
    for (u32 i = j; i < ROW && j < PARTIALS; i += PARTIALS) p = num_fma(((const f32 *)shared)[i], ((const f32 *)shared)[i], p);
    if (j < PARTIALS) partial[j] = p;
    __syncthreads();
    const f32 s = reduce_tree_shared<PARTIALS>(partial);
    const f32 r = num_div(1.0f, num_sqrt(num_add(num_div(s, (f32)a.dim), a.eps)));
    bf16 *y = a.y + (u64)row * a.y_stride;
#pragma unroll
    for (u32 e = 0; e < SPEC_HELD; e++) {
      const u32 i = (j + e * SPEC_THREADS) * 4u;
      const u32 lo = ptx_pack_bf16(normalised(a, v[e].x, r, weights[e].x & 0xffffu), normalised(a, v[e].y, r, weights[e].x >> 16));
      const u32 hi = ptx_pack_bf16(normalised(a, v[e].z, r, weights[e].y & 0xffffu), normalised(a, v[e].w, r, weights[e].y >> 16));
      if (i < columns) *(uint2 *)(y + i) = make_uint2(lo, hi);
    }
    if (columns) return;
  }
}
#endif

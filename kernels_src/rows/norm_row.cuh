/* norm_row.cuh - a row that the registers of one block hold whole: the sum of its experts, its norm. NUMERICS.md, R7.1 and R1.2 to R1.11.
 *
 * Thread j holds vectors j, j + SPEC_THREADS, ... of four columns, SPEC_HELD of them. The first 256 threads, one for each partial sum, add
 * up squares from shared memory, zeros after the end of the row. Read next: rmsnorm.cu, ranks/rank_norm.cu. */
#ifndef VERBATIM_NORM_ROW_CUH
#define VERBATIM_NORM_ROW_CUH
#include "ptx/reduce.cuh"
#include "rows/vectors.cuh"

#define PARTIALS 256u /* their number is part of the result */
#define ROW (SPEC_HELD * SPEC_THREADS * 4u)
static_assert(SPEC_THREADS % PARTIALS == 0 && SPEC_HELD <= 4, "a thread for every partial sum, a batch for every expert");

/* The weighted sum of the experts' rows, `stride` apart: a chain in ascending id. Lane k holds the sorted row and the weight of the k-th
 * expert. HELD: vectors of a thread. */
template <u32 HELD>
NUM void add_experts(const f32 *experts, u32 stride, u32 top_k, u32 pair_row, f32 pair_weight, u32 columns, float4 (&sum)[HELD]) {
  constexpr u32 BATCH = 8u / HELD; /* experts whose rows are in flight together */
#pragma unroll
  for (u32 e = 0; e < HELD; e++) sum[e] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll 1
  for (u32 k0 = 0; k0 < top_k; k0 += BATCH) {
    float4 y[BATCH][HELD];
#pragma unroll
    for (u32 b = 0; b < BATCH; b++) {
      const f32 *row = experts + (u64)__shfl_sync(WARP_ALL, pair_row, (k0 + b) % 32u) * stride;
#pragma unroll
      for (u32 e = 0; e < HELD; e++) y[b][e] = read4(row, (threadIdx.x + e * SPEC_THREADS) * 4u, k0 + b < top_k ? columns : 0u);
    }
#pragma unroll
    for (u32 b = 0; b < BATCH; b++) {
      const f32 w = __shfl_sync(WARP_ALL, pair_weight, (k0 + b) % 32u);
      if (k0 + b >= top_k) break;
#pragma unroll
      for (u32 e = 0; e < HELD; e++) sum[e] = fma4(y[b][e], w, sum[e]);
    }
  }
}

/* Of four columns each; without weights they are ones. */
NUM void read_weights(const bf16 *weight, u32 dim, uint2 (&weights)[SPEC_HELD]) {
#pragma unroll
  for (u32 e = 0; e < SPEC_HELD; e++) {
    const u32 i = (threadIdx.x + e * SPEC_THREADS) * 4u;
    weights[e] = !weight ? make_uint2(0x3f803f80u, 0x3f803f80u) : i < dim ? *(const uint2 *)(weight + i) : make_uint2(0u, 0u);
  }
}

/* The factor of the row in `shared`, which all threads have stored: the call begins with a barrier. partial: [PARTIALS]. */
NUM f32 norm_factor(const float4 *shared, f32 *partial, u32 dim, f32 eps) {
  const u32 j = threadIdx.x;
  __syncthreads();
  f32 p = 0.0f;
#pragma unroll
  for (u32 i = j; i < ROW && j < PARTIALS; i += PARTIALS) p = num_fma(((const f32 *)shared)[i], ((const f32 *)shared)[i], p);
  if (j < PARTIALS) partial[j] = p;
  __syncthreads();
  const f32 s = reduce_tree_shared<PARTIALS>(partial);
  return num_div(1.0f, num_sqrt(num_add(num_div(s, (f32)dim), eps)));
}

NUM f32 normalised(f32 v, f32 r, u32 weight, f32 y_scale) { return num_mul(num_mul(num_mul(v, r), num_from_bf16((bf16)weight)), y_scale); }

/* Stores the first `columns` of the row, without rounding to bf16 (R1.11) or with it. */
NUM void write_normalised(f32 *y, u32 columns, const float4 (&v)[SPEC_HELD], f32 r, const uint2 (&weights)[SPEC_HELD], f32 y_scale) {
#pragma unroll
  for (u32 e = 0; e < SPEC_HELD; e++) {
    const u32 i = (threadIdx.x + e * SPEC_THREADS) * 4u;
    const uint2 w = weights[e];
    if (i < columns)
      *(float4 *)(y + i) = make_float4(normalised(v[e].x, r, w.x & 0xffffu, y_scale), normalised(v[e].y, r, w.x >> 16, y_scale),
                                       normalised(v[e].z, r, w.y & 0xffffu, y_scale), normalised(v[e].w, r, w.y >> 16, y_scale));
  }
}
NUM void write_normalised(bf16 *y, u32 columns, const float4 (&v)[SPEC_HELD], f32 r, const uint2 (&weights)[SPEC_HELD], f32 y_scale) {
#pragma unroll
  for (u32 e = 0; e < SPEC_HELD; e++) {
    const u32 i = (threadIdx.x + e * SPEC_THREADS) * 4u;
    const uint2 w = weights[e];
    const u32 lo = ptx_pack_bf16(normalised(v[e].x, r, w.x & 0xffffu, y_scale), normalised(v[e].y, r, w.x >> 16, y_scale));
    const u32 hi = ptx_pack_bf16(normalised(v[e].z, r, w.y & 0xffffu, y_scale), normalised(v[e].w, r, w.y >> 16, y_scale));
    if (i < columns) *(uint2 *)(y + i) = make_uint2(lo, hi);
  }
}

#endif

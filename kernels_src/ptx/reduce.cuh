/* reduce.cuh - reductions in the orders of NUMERICS.md, and order-free integer ones.
 *
 * reduce_tree_* is tree(p, n): the only floating-point reductions in the kernels. Sums and maxima of integers may be taken in any order.
 * Every block function is called by all SPEC_THREADS threads, which all get the result; those of integers may be called again at once with
 * the same shared array. Must not know any op. Read next: rows/rmsnorm.cu. */
#ifndef VERBATIM_REDUCE_CUH
#define VERBATIM_REDUCE_CUH
#include "ptx/ptx.cuh"

/* tree(p, 32) of the warp's 32 values. */
NUM f32 reduce_tree_warp(f32 p) {
#pragma unroll
  for (u32 s = 16; s > 0; s /= 2) p = num_add(p, __shfl_down_sync(WARP_ALL, p, s)); /* lanes from s on are not read */
  return __shfl_sync(WARP_ALL, p, 0);
}

/* tree(p, N) of values in shared memory; every warp computes the whole tree. */
template <u32 N> NUM f32 reduce_tree_shared(const f32 *shared) {
  f32 q[N / 32];
#pragma unroll
  for (u32 w = 0; w < N / 32; w++) q[w] = shared[threadIdx.x % 32 + 32 * w];
#pragma unroll
  for (u32 s = N / 64; s > 0; s /= 2) {
#pragma unroll
    for (u32 w = 0; w < s; w++) q[w] = num_add(q[w], q[w + s]);
  }
  return reduce_tree_warp(q[0]);
}

/* tree(p, SPEC_THREADS) of the block's values. shared: [SPEC_THREADS], unread since the last barrier. */
NUM f32 reduce_tree_block(f32 p, f32 *shared) {
  shared[threadIdx.x] = p;
  __syncthreads();
  return reduce_tree_shared<SPEC_THREADS>(shared);
}

NUM u64 reduce_max_warp(u64 x) {
#pragma unroll
  for (u32 s = 16; s > 0; s /= 2) {
    const u64 y = __shfl_xor_sync(WARP_ALL, x, s);
    x = y > x ? y : x;
  }
  return x;
}

NUM u64 reduce_sum_warp(u64 x) {
#pragma unroll
  for (u32 s = 16; s > 0; s /= 2) x += __shfl_xor_sync(WARP_ALL, x, s);
  return x;
}

NUM u64 reduce_sum_block(u64 x, u64 *shared) {
  const u32 t = threadIdx.x;
  x = reduce_sum_warp(x);
  __syncthreads();
  if (t % 32 == 0) shared[t / 32] = x;
  __syncthreads();
  return reduce_sum_warp(t % 32 < SPEC_THREADS / 32 ? shared[t % 32] : 0);
}

/* Many threads, one word: adds 1; sets bits; adds. With reduce_take the only atomics: counts, sets and integer sums have no order. */
NUM void reduce_count(u32 *word) { atomicAdd(word, 1u); }
NUM void reduce_mark(u32 *word, u32 bits) { atomicOr(word, bits); }
NUM void reduce_add(u64 *word, u64 x) { atomicAdd(word, x); }
/* A number that no other caller gets. Which one depends on timing: only to deal out work whose results do not depend on who does it. */
NUM u32 reduce_take(u32 *word) { return atomicAdd(word, 1u); }

/* Inclusive prefix sum over the lanes. */
NUM u32 reduce_prefix_warp(u32 x) {
#pragma unroll
  for (u32 s = 1; s < 32; s *= 2) {
    const u32 y = __shfl_up_sync(WARP_ALL, x, s);
    if (threadIdx.x % 32 >= s) x += y;
  }
  return x;
}

#endif

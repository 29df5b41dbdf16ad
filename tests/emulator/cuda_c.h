/* cuda_c.h - the parts of CUDA C that the kernels use, for a C++ compiler: types, indices, barriers, warp operations.
 *
 * A thread of the block is a fiber of one operating-system thread, so thread_local memory is the block's shared memory, both for arrays in
 * a function and for `extern __shared__`. All warp operations have the full mask. Must not know any op.
 * Read next: ptx.cuh, emulator.cpp. */
#ifndef VERBATIM_CUDA_C_H
#define VERBATIM_CUDA_C_H
#include "num.h"

#define __global__
#define __grid_constant__
#define __launch_bounds__(...)
#define __cluster_dims__(x, y, z)
#define __device__
#define __shared__ thread_local

struct uint2 { u32 x, y; };
struct uint4 { u32 x, y, z, w; };
struct float2 { f32 x, y; };
struct float4 { f32 x, y, z, w; };
static inline uint4 make_uint4(u32 x, u32 y, u32 z, u32 w) { return {x, y, z, w}; }
static inline uint2 make_uint2(u32 x, u32 y) { return {x, y}; }
static inline float2 make_float2(f32 x, f32 y) { return {x, y}; }
static inline float4 make_float4(f32 x, f32 y, f32 z, f32 w) { return {x, y, z, w}; }

struct emulator_index { u32 x, y, z; };
extern emulator_index threadIdx, blockIdx, gridDim; /* of the running fiber */

static inline f32 __int_as_float(i32 bits) { return num_float((u32)bits); }
static inline int __popc(u32 x) { return __builtin_popcount(x); }
static inline int __ffs(i32 x) { return __builtin_ffs(x); }

/* Fibers are never interrupted. */
static inline u32 atomicAdd(u32 *word, u32 x) {
  const u32 old = *word;
  *word += x;
  return old;
}
static inline u64 atomicAdd(u64 *word, u64 x) {
  const u64 old = *word;
  *word = old + x;
  return old;
}

static inline u32 atomicOr(u32 *word, u32 x) {
  const u32 old = *word;
  *word |= x;
  return old;
}

/* Every thread of the block, or of the warp, must call these. */
int __syncthreads_or(int x);
static inline void __syncthreads() { __syncthreads_or(0); }
void __syncwarp();
[[noreturn]] void __trap();
u32 __ballot_sync(u32 mask, bool x);
static inline bool __any_sync(u32 mask, bool x) { return __ballot_sync(mask, x) != 0; }
u32 __match_any_sync(u32 mask, u32 x);
u32 __reduce_add_sync(u32 mask, u32 x);
u32 __reduce_max_sync(u32 mask, u32 x);
u64 emulator_shuffle(u64 x, u32 from); /* lane from's x */

template <class T> T emulator_shuffle_as(T x, u32 from) {
  static_assert(sizeof(T) <= 8, "one register or two");
  u64 bits = 0;
  memcpy(&bits, &x, sizeof x);
  bits = emulator_shuffle(bits, from);
  memcpy(&x, &bits, sizeof x);
  return x;
}

template <class T> T __shfl_sync(u32, T x, u32 lane, u32 width = 32u) {
  return emulator_shuffle_as(x, threadIdx.x % 32u / width * width + lane % width);
}
template <class T> T __shfl_xor_sync(u32, T x, u32 mask) { return emulator_shuffle_as(x, (threadIdx.x % 32u) ^ mask); }
template <class T> T __shfl_down_sync(u32, T x, u32 by) {
  const u32 lane = threadIdx.x % 32u;
  return emulator_shuffle_as(x, lane + by < 32u ? lane + by : lane);
}
template <class T> T __shfl_up_sync(u32, T x, u32 by) {
  const u32 lane = threadIdx.x % 32u;
  return emulator_shuffle_as(x, lane >= by ? lane - by : lane);
}

#endif

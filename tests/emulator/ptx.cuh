/* ptx.cuh - stands in for kernels_src/ptx.cuh: the same functions, done by the machine of emulator.cpp.
 *
 * Has that file's include guard and is included first, so that the kernels' own include of it is empty. The forms of operand
 * descriptors are an excerpt of that file, made by the build; emulator.cpp decodes them. Fences do nothing here. */
#ifndef VERBATIM_PTX_CUH
#define VERBATIM_PTX_CUH
#include "cuda_c.h"

#define WARP_ALL 0xffffffffu

u32 emulator_address(const void *shared);
void emulator_copy(u32 shared, const void *global, u32 bytes);
void emulator_copy_commit();
void emulator_copy_wait(u32 left);
void emulator_store_transposed(u32 shared, const u32 (&matrix)[4]);
void emulator_multiply(f32 *d, u32 n, u64 a, u64 b, bool across);
void emulator_multiply_commit();
void emulator_multiply_wait(u32 left);

NUM u32 ptx_shared(const void *p) { return emulator_address(p); }
NUM u32 ptx_uniform(u32 x) { return __shfl_sync(WARP_ALL, x, 0); }

NUM void ptx_copy16(u32 shared, const void *global, u32 bytes) { emulator_copy(shared, global, bytes); }
NUM void ptx_copy_commit() { emulator_copy_commit(); }
#define PTX_COPY_WAIT(n) emulator_copy_wait(n)
NUM void ptx_fence_async() {}

NUM u32 ptx_pack_bf16(f32 lo, f32 hi) { return (u32)num_to_bf16(hi) << 16 | num_to_bf16(lo); }
NUM void ptx_store_transposed(u32 shared, u32 m0, u32 m1, u32 m2, u32 m3) { emulator_store_transposed(shared, {m0, m1, m2, m3}); }

#include "ptx_forms.cuh" /* PTX_SWIZZLED, PTX_ACROSS, PTX_PLAIN, ptx_operand */

NUM void ptx_hold(f32 &) {}
NUM void ptx_multiply_fence() {}
NUM void ptx_multiply_commit() { emulator_multiply_commit(); }
#define PTX_MULTIPLY_WAIT(n) emulator_multiply_wait(n)
template <int HALF_N> NUM void ptx_multiply(f32 (&d)[HALF_N], u64 a, u64 b) { emulator_multiply(d, 2 * HALF_N, a, b, false); }
template <int HALF_N> NUM void ptx_multiply_across(f32 (&d)[HALF_N], u64 a, u64 b) { emulator_multiply(d, 2 * HALF_N, a, b, true); }

#endif

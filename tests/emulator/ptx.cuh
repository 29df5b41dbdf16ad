/* ptx.cuh - stands in for kernels_src/ptx/ptx.cuh: the same functions, emulated by emulator.cpp.
 *
 * Has the include guard of that file and is included first, so that the kernels' own include of it is empty. The forms of operand
 * descriptors are an excerpt of that file, made by the build; emulator.cpp decodes them. Fences do nothing here. */
#ifndef VERBATIM_PTX_CUH
#define VERBATIM_PTX_CUH
#include "cuda_c.h"
#include "ptx/tensor_map.h"

#define WARP_ALL 0xffffffffu

u32 emulator_address(const void *shared);
f32 emulator_load(u32 shared);
void emulator_copy(u32 shared, const void *global, u32 bytes, u32 place = 16); /* `bytes` copied, zeros after them */
void emulator_copy_commit();
void emulator_copy_wait(u32 left);
void emulator_store_transposed(u32 shared, const u32 (&matrix)[4]);
void emulator_multiply(f32 *d, u32 n, u64 a, u64 b, bool turned);
void emulator_multiply_held(f32 *d, u32 n, const u32 (&a)[4], u64 b, bool across);
void emulator_multiply_e4m3(f32 *d, u32 n, u64 a, u64 b, bool anew);
void emulator_multiply_commit();
void emulator_multiply_wait(u32 left);
void emulator_barrier_init(u32 barrier, u32 arrivals);
void emulator_barrier_arrive(u32 barrier, u32 bytes);
void emulator_barrier_arrive_copies(u32 barrier);
void emulator_barrier_arrive_peer(u32 barrier);
void emulator_barrier_wait(u32 barrier, u32 parity);
void emulator_meet(u32 *word, u32 step, u32 all);
void emulator_store_far(void *to, const void *value, u32 bytes, bool is_flag);
void emulator_poll(const void *from);
u64 emulator_nanoseconds();
void emulator_warps(u32 number, u32 threads, bool wait);
void emulator_copy_bulk(u32 shared, const void *global, u32 bytes, u32 barrier);
void emulator_copy_peer(u32 to, u32 from, u32 bytes, u32 barrier);
void emulator_copy_box(u32 shared, const tensor_map *map, u32 dims, const u32 (&at)[5], u32 barrier);
void emulator_copy_box_to(u32 blocks, u32 shared, const tensor_map *map, u32 dims, const u32 (&at)[5], u32 barrier);
void emulator_cluster_sync();
void *emulator_cluster_map(void *p, u32 rank);
u32 emulator_peer(u32 shared, u32 rank);
void emulator_store_peer(u32 shared, const void *words, u32 bytes, u32 barrier);

NUM u32 ptx_shared(const void *p) { return emulator_address(p); }
NUM u32 ptx_uniform(u32 x) { return __shfl_sync(WARP_ALL, x, 0); }
NUM u32 ptx_kept(u32 x) { return x; }
NUM f32 ptx_load_shared(u32 shared) { return emulator_load(shared); }


NUM void ptx_grid_wait() {}
NUM void ptx_grid_next() {}
NUM void ptx_fence_all() {}
NUM void ptx_fence_copies() {}
NUM void ptx_meet(u32 *word, u32 step, u32 all) { emulator_meet(word, step, all); }
NUM bool ptx_elect() { return threadIdx.x % 32u == 0; }
NUM void ptx_cluster_sync() { emulator_cluster_sync(); }
template <class T> NUM T *ptx_cluster_map(T *shared, u32 rank) { return static_cast<T *>(emulator_cluster_map(shared, rank)); }

NUM void ptx_barrier_init(u32 barrier, u32 arrivals) { emulator_barrier_init(barrier, arrivals); }
NUM void ptx_barrier_ready() {}
NUM void ptx_barrier_arrive(u32 barrier) { emulator_barrier_arrive(barrier, 0); }
NUM void ptx_barrier_expect(u32 barrier, u32 bytes) { emulator_barrier_arrive(barrier, bytes); }
NUM void ptx_barrier_wait(u32 barrier, u32 parity) { emulator_barrier_wait(barrier, parity); }
NUM void ptx_barrier_arrive_copies(u32 barrier) { emulator_barrier_arrive_copies(barrier); }
NUM void ptx_warps_sync(u32 number, u32 threads) { emulator_warps(number, threads, true); }
NUM void ptx_warps_arrive(u32 number, u32 threads) { emulator_warps(number, threads, false); }
NUM u32 ptx_peer(u32 shared, u32 rank) { return emulator_peer(shared, rank); }
NUM void ptx_barrier_arrive_peer(u32 barrier) { emulator_barrier_arrive_peer(barrier); }
NUM void ptx_store_peer(u32 shared, f32 x, f32 y, u32 barrier) {
  const f32 both[2] = {x, y};
  emulator_store_peer(shared, both, sizeof both, barrier);
}
NUM void ptx_store_peer(u32 shared, u32 x, u32 y, u32 z, u32 w, u32 barrier) {
  const u32 all[4] = {x, y, z, w};
  emulator_store_peer(shared, all, sizeof all, barrier);
}
#define PTX_REGISTERS_LESS(n)
#define PTX_REGISTERS_MORE(n)
NUM u64 ptx_once() { return 0; }
NUM u64 ptx_often() { return 1; }
NUM void ptx_copy_bulk(u32 to, const void *from, u32 bytes, u32 barrier, u64) { emulator_copy_bulk(to, from, bytes, barrier); }
NUM void ptx_copy_peer(u32 to, u32 from, u32 bytes, u32 barrier) { emulator_copy_peer(to, from, bytes, barrier); }
NUM void ptx_copy_box(u32 to, const tensor_map *map, u32 c, u32 r, u32 barrier, u64) {
  emulator_copy_box(to, map, 2, {c, r, 0, 0, 0}, barrier);
}
NUM void ptx_copy_box(u32 to, const tensor_map *map, u32 c, u32 r, u32 m, u32 barrier, u64) {
  emulator_copy_box(to, map, 3, {c, r, m, 0, 0}, barrier);
}
NUM void ptx_copy_box(u32 to, const tensor_map *map, u32 c, u32 r, u32 m, u32 g, u32 barrier, u64) {
  emulator_copy_box(to, map, 4, {c, r, m, g, 0}, barrier);
}
NUM void ptx_copy_box(u32 to, const tensor_map *map, u32 c, u32 r, u32 m, u32 g, u32 s, u32 barrier, u64) {
  emulator_copy_box(to, map, 5, {c, r, m, g, s}, barrier);
}
NUM void ptx_take_box(u32 to, const tensor_map *map, u32 c, u32 r, u32 barrier) { emulator_copy_box(to, map, 2, {c, r, 0, 0, 0}, barrier); }
NUM void ptx_take_box(u32 to, const tensor_map *map, u32 c, u32 r, u32 m, u32 barrier) {
  emulator_copy_box(to, map, 3, {c, r, m, 0, 0}, barrier);
}
NUM void ptx_take_box(u32 to, const tensor_map *map, u32 c, u32 r, u32 m, u32 g, u32 barrier) {
  emulator_copy_box(to, map, 4, {c, r, m, g, 0}, barrier);
}
NUM void ptx_take_box_for(u32 blocks, u32 to, const tensor_map *map, u32 c, u32 r, u32 m, u32 barrier) {
  emulator_copy_box_to(blocks, to, map, 3, {c, r, m, 0, 0}, barrier);
}
NUM void ptx_take_box_for(u32 blocks, u32 to, const tensor_map *map, u32 c, u32 r, u32 m, u32 g, u32 barrier) {
  emulator_copy_box_to(blocks, to, map, 4, {c, r, m, g, 0}, barrier);
}
NUM void ptx_fetch_map(const tensor_map *) {}
NUM void ptx_pause(u32) {}
template <class T> NUM T ptx_load_fresh(const T *p) { return *p; }

NUM void ptx_put_words(void *to, u64 x, u64 y) {
  emulator_store_far(to, &x, 8, false);
  emulator_store_far((u64 *)to + 1, &y, 8, false);
}
NUM void ptx_get_words(const void *from, u64 &x, u64 &y) {
  emulator_poll(from);
  x = ((const u64 *)from)[0], y = ((const u64 *)from)[1];
}
NUM void ptx_put_flag(u32 *flag, u32 x) { emulator_store_far(flag, &x, 4, true); }
NUM u32 ptx_get_flag(const u32 *flag) {
  emulator_poll(flag);
  return *flag;
}
template <class T> NUM void ptx_push(T *to, T x) { emulator_store_far(to, &x, sizeof x, false); }
NUM void ptx_fence_system() {}
NUM u64 ptx_nanoseconds() { return emulator_nanoseconds(); }

NUM void ptx_copy16(u32 shared, const void *global, u32 bytes) { emulator_copy(shared, global, bytes); }
NUM void ptx_copy4(u32 shared, const f32 *global) { emulator_copy(shared, global, 4, 4); }
NUM void ptx_copy_commit() { emulator_copy_commit(); }
#define PTX_COPY_WAIT(n) emulator_copy_wait(n)
NUM void ptx_fence_async() {}

NUM void ptx_discard(const f32 *p) { memset((void *)p, 0xff, 128); }
NUM void ptx_store_kept(f32 *to, f32 x, f32 y, u64) { *(float2 *)to = make_float2(x, y); }
NUM void ptx_store_if(bool is, f32 *to, f32 x) {
  if (is) *to = x;
}
NUM void ptx_store_if(bool is, f32 *to, f32 x, f32 y) {
  if (is) *(float2 *)to = make_float2(x, y);
}
NUM void ptx_store_if(bool is, bf16 *to, uint4 v) {
  if (is) *(uint4 *)to = v;
}
NUM u32 ptx_pack_bf16(f32 lo, f32 hi) { return (u32)num_to_bf16(hi) << 16 | num_to_bf16(lo); }
NUM u32 ptx_max_halves(u32 x, u32 y) {
  const u32 low = x << 16 > y << 16 ? x & 0xffffu : y & 0xffffu, high = x >> 16 > y >> 16 ? x >> 16 : y >> 16;
  return high << 16 | low;
}
NUM u32 ptx_pack_e4m3(f32 lo, f32 hi) { return (u32)num_to_e4m3(hi) << 8 | num_to_e4m3(lo); }
NUM void ptx_from_e4m3(u32 codes, f32 (&x)[4]) {
  for (u32 i = 0; i < 4; i++) x[i] = num_from_e4m3((u8)(codes >> 8 * i));
}
NUM f32 ptx_inverse(f32 x) { return 1.0f / x; }
NUM f32 ptx_max(f32 x, f32 y) { return x < y ? y : y != y ? y : x; }
NUM void ptx_store_transposed(u32 shared, u32 m0, u32 m1, u32 m2, u32 m3) { emulator_store_transposed(shared, {m0, m1, m2, m3}); }

#include "ptx_forms.cuh" /* PTX_SWIZZLED, PTX_ACROSS, PTX_PLAIN, ptx_operand */

NUM void ptx_hold(f32 &) {}
NUM void ptx_forget(u32 &) {}
NUM void ptx_forget(f32 *&) {}
NUM void ptx_settle(u32) {}
NUM void ptx_multiply_fence() {}
NUM void ptx_multiply_commit() { emulator_multiply_commit(); }
#define PTX_MULTIPLY_WAIT(n) emulator_multiply_wait(n)
template <int HALF_N> NUM void ptx_multiply(f32 (&d)[HALF_N], u64 a, u64 b) { emulator_multiply(d, 2 * HALF_N, a, b, false); }
template <int HALF_N> NUM void ptx_multiply(f32 (&d)[HALF_N], const u32 (&a)[4], u64 b) {
  emulator_multiply_held(d, 2 * HALF_N, a, b, false);
}
template <int HALF_N> NUM void ptx_multiply_across(f32 (&d)[HALF_N], const u32 (&a)[4], u64 b) {
  emulator_multiply_held(d, 2 * HALF_N, a, b, true);
}
template <int HALF_N> NUM void ptx_multiply_turned(f32 (&d)[HALF_N], u64 a, u64 b) { emulator_multiply(d, 2 * HALF_N, a, b, true); }
template <int HALF_N> NUM void ptx_multiply_e4m3(f32 (&d)[HALF_N], u64 a, u64 b) { emulator_multiply_e4m3(d, 2 * HALF_N, a, b, false); }
template <int HALF_N> NUM void ptx_multiply_e4m3_anew(f32 (&d)[HALF_N], u64 a, u64 b) {
  emulator_multiply_e4m3(d, 2 * HALF_N, a, b, true);
}

#endif

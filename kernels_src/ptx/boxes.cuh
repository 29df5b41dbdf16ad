/* ptx/boxes.cuh - TMA: loads of boxes of a matrix by its tensor map, of two to five dimensions. A part of ptx.cuh.
 *
 * ptx_copy_box takes an L2 policy, ptx_take_box none, ptx_take_box_for loads into several blocks of a cluster. Read next: tensor_map.h. */
#ifndef VERBATIM_PTX_BOXES_CUH
#define VERBATIM_PTX_BOXES_CUH
#include "ptx/ptx.cuh"

NUM void ptx_fetch_map(const tensor_map *map) { asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory"); }
/* One thread starts the load of the box at column c, row r and further coordinates m, g and s: box rows of box columns, swizzled as the map
 * says. Elements outside of the matrix are loaded as zeros, and count. shared: a multiple of 128, for swizzled boxes of 1024. */
NUM void ptx_copy_box(u32 shared, const tensor_map *map, u32 c, u32 r, u32 barrier, u64 policy) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint "
               "[%0], [%1, {%3, %4}], [%2], %5;" ::"r"(shared), "l"(map), "r"(barrier), "r"(c), "r"(r), "l"(policy) : "memory");
}
NUM void ptx_copy_box(u32 shared, const tensor_map *map, u32 c, u32 r, u32 m, u32 barrier, u64 policy) {
  asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint "
               "[%0], [%1, {%3, %4, %5}], [%2], %6;"
               ::"r"(shared), "l"(map), "r"(barrier), "r"(c), "r"(r), "r"(m), "l"(policy) : "memory");
}
NUM void ptx_copy_box(u32 shared, const tensor_map *map, u32 c, u32 r, u32 m, u32 g, u32 barrier, u64 policy) {
  asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint "
               "[%0], [%1, {%3, %4, %5, %6}], [%2], %7;"
               ::"r"(shared), "l"(map), "r"(barrier), "r"(c), "r"(r), "r"(m), "r"(g), "l"(policy) : "memory");
}
NUM void ptx_copy_box(u32 shared, const tensor_map *map, u32 c, u32 r, u32 m, u32 g, u32 s, u32 barrier, u64 policy) {
  asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint "
               "[%0], [%1, {%3, %4, %5, %6, %7}], [%2], %8;"
               ::"r"(shared), "l"(map), "r"(barrier), "r"(c), "r"(r), "r"(m), "r"(g), "r"(s), "l"(policy) : "memory");
}
/* The same without an L2 policy: where a multiprocessor has as many copies in flight as it can, any policy makes them slower (a kernel
 * bound by copies takes 68 us with, 55 without). */
NUM void ptx_take_box(u32 shared, const tensor_map *map, u32 c, u32 r, u32 barrier) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];"
               ::"r"(shared), "l"(map), "r"(barrier), "r"(c), "r"(r) : "memory");
}
NUM void ptx_take_box(u32 shared, const tensor_map *map, u32 c, u32 r, u32 m, u32 barrier) {
  asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];"
               ::"r"(shared), "l"(map), "r"(barrier), "r"(c), "r"(r), "r"(m) : "memory");
}
NUM void ptx_take_box(u32 shared, const tensor_map *map, u32 c, u32 r, u32 m, u32 g, u32 barrier) {
  asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], [%2];"
               ::"r"(shared), "l"(map), "r"(barrier), "r"(c), "r"(r), "r"(m), "r"(g) : "memory");
}
/* The same into every block of the cluster whose bit is set: same shared address, same barrier address. */
NUM void ptx_take_box_for(u32 blocks, u32 shared, const tensor_map *map, u32 c, u32 r, u32 m, u32 barrier) {
  asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "
               "[%0], [%1, {%3, %4, %5}], [%2], %6;"
               ::"r"(shared), "l"(map), "r"(barrier), "r"(c), "r"(r), "r"(m), "h"((u16)blocks) : "memory");
}
NUM void ptx_take_box_for(u32 blocks, u32 shared, const tensor_map *map, u32 c, u32 r, u32 m, u32 g, u32 barrier) {
  asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "
               "[%0], [%1, {%3, %4, %5, %6}], [%2], %7;"
               ::"r"(shared), "l"(map), "r"(barrier), "r"(c), "r"(r), "r"(m), "r"(g), "h"((u16)blocks) : "memory");
}

#endif

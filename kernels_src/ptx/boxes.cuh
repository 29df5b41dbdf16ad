/* ptx/boxes.cuh - copies of boxes of a matrix by its tensor map, of two to four dimensions. A part of ptx.cuh. */
#ifndef VERBATIM_PTX_BOXES_CUH
#define VERBATIM_PTX_BOXES_CUH
#include "ptx/ptx.cuh"

NUM void ptx_fetch_map(const tensor_map *map) { asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory"); }
/* One thread copies the box of the map that starts at column c, row r (and at matrix m): box rows of box columns, swizzled as the map
 * says; what lies outside the matrix comes as zeros and counts. shared: a multiple of 128, for swizzled boxes of 1024. */
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
/* The same, also of a group of rows g, without a word to L2: where as many copies are under way as the multiprocessor takes, any policy
 * makes them slower (bound by copies, 68 us become 55). */
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
/* The same into every block of the cluster whose bit is set, at this address, counted by its barrier at this address. */
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

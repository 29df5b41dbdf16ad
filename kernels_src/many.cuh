/* many.cuh - the product of many rows, shared by gemm, moe_gemm and mla_expand.
 *
 * Persistent blocks. A tile is SPEC_TILE_N weight rows, the 64-row operand, times `width` token rows, of which the kernel chooses how
 * many there are: any multiple of MANY_STEP up to SPEC_TILE_ROWS, so that neither the rows of an expert nor the number of
 * multiprocessors leave much idle. One warpgroup fills a ring of stages, each 64 k of both operands in 128-byte swizzled rows, by boxes;
 * the others multiply, each its 64 weight rows, and write. The ring runs on from tile to tile: the next one's operands come while results
 * are written. The blocks of a cluster have the same tokens, of which each copies its part for all. One lane copies, elected so that the
 * compiler knows there is one: else every copy is a loop over the lanes of some 70 cycles. One fp32 accumulator per output, k ascending in
 * 16s: H16 whatever the tile.
 *
 * On an H200, a block alone, a pair, the best of cuBLASLt's first candidates, and n * k * rows * 2 / 790 TFLOP/s, us: n 4096, k 7168,
 * 4096 rows, bf16 312, 310, 305, 304; 2048 x 2048, 2048 rows, fp32 26.6, 27.4, 25.6, 22; 2048 x 10944, 512 rows, tiles of 128 x 128, 65,
 * 51, 36, 29 (without copies 29, with copies alone 56: they are the bound). With a policy of L2 in their copies blocks alone took 337 and
 * 28.7, the last pair 57. In pairs, boxes of 16, 32 and 64 rows take the same time; weights in boxes of 8 + 8 rows cost a third of it.
 * fp32 results take 13 to 16 % where k is 1408 to 2048, at 5 to 5.7 TB/s.
 * Tried: warpgroups that multiply and store in turn, 128 x 192 each (gate and up with silu up to 9 % less, others up to 14 % more), weights
 * brought to L2 six stages ahead (1.3 times as long) or 512 bytes of each row by an idle warp (1.3 to 1.8 times), evict_last, evict_first
 * (up to 5 % more), one warpgroup a k block or two behind the other (0), clusters that start at different times (0 to 4 % more), the next
 * tile's first products beside a tile's results (the compiler lets them wait for each other). Read next: many_store.cuh, gemm.cu,
 * moe_gemm.cu. */
#ifndef VERBATIM_MANY_CUH
#define VERBATIM_MANY_CUH
#include "many_store.cuh"

typedef struct many_ring {
  u32 stages, full, empty, turn; /* shared addresses: the ring, its barriers, where results are turned */
  u32 stage, parity;
} many_ring;

/* Clusters of any grid, in one row: this one's number, and how many there are; and which of its blocks this is. */
NUM u32 many_cluster() { return blockIdx.x + gridDim.x * (blockIdx.y / SPEC_CLUSTER + gridDim.y / SPEC_CLUSTER * blockIdx.z); }
NUM u32 many_clusters() { return gridDim.x * gridDim.y * gridDim.z / SPEC_CLUSTER; }
NUM u32 many_rank() { return blockIdx.y % SPEC_CLUSTER; }
#define MANY_ALL ((1u << SPEC_CLUSTER) - 1u)

NUM u32 many_full(const many_ring &r, u32 stage) { return r.full + stage * 8u; }
NUM u32 many_empty(const many_ring &r, u32 stage) { return r.empty + stage * 8u; }
NUM void many_advance(many_ring &r) {
  const bool last = r.stage + 1u == SPEC_STAGES;
  r.stage = last ? 0u : r.stage + 1u;
  r.parity ^= last;
}

/* By all threads, before ptx_grid_wait. */
NUM many_ring many_start(const void *shared) {
  const u32 base = (ptx_shared(shared) + 1023u) & ~1023u, turn = base + SPEC_STAGES * MANY_STAGE_BYTES;
  const u32 full = turn + MANY_CONSUMERS * MANY_CHUNK * 128u;
  const many_ring r = {base, full, full + SPEC_STAGES * 8u, turn, 0, 0};
  if (threadIdx.x == 0) {
    for (u32 i = 0; i < SPEC_STAGES; i++) {
      ptx_barrier_init(many_full(r, i), 1u);
      ptx_barrier_init(many_empty(r, i), MANY_CONSUMERS * 4u * SPEC_CLUSTER);
    }
    ptx_barrier_ready();
  }
  if (SPEC_CLUSTER > 1u)
    ptx_cluster_sync();
  else
    __syncthreads();
  return r;
}

/* One k block of a tile's weights. Of gate and up, which are matrices of their own, the operand has eight rows in turn: its rows i and
 * i + 8 of every 16 belong together. groups: of eight rows of a gate. */
NUM void many_weights(const many_ring &r, const tensor_map *map, const many_tile &tile, bool silu, u32 groups, u32 k) {
  const u32 to = r.stages + r.stage * MANY_STAGE_BYTES, full = many_full(r, r.stage);
  if (silu)
    ptx_take_box(to, map, k, 0, 0, tile.matrix * 2u * groups + tile.n0 / 8u, full);
  else
    ptx_take_box(to, map, k, tile.n0, tile.matrix, full);
}

/* The same of its tokens, which the blocks of a cluster share. */
template <class WORK>
NUM void many_tokens(const WORK &work, const many_ring &r, const tensor_map *map, const many_tile &tile, u32 k) {
  const u32 to = r.stages + r.stage * MANY_STAGE_BYTES + SPEC_TILE_N * 128u, full = many_full(r, r.stage);
  for (u32 i = many_rank() * MANY_BOX; i < tile.width; i += SPEC_CLUSTER * MANY_BOX)
    if (SPEC_CLUSTER > 1u)
      ptx_take_box_for(MANY_ALL, to + i * 128u, map, k, work.x_first(tile, i), work.x_matrix(tile, i), full);
    else
      ptx_take_box(to + i * 128u, map, k, work.x_first(tile, i), work.x_matrix(tile, i), full);
}

/* What comes for one k block of a tile. */
NUM u32 many_bytes(const many_tile &tile) { return (SPEC_TILE_N + (tile.width + MANY_BOX - 1u) / MANY_BOX * MANY_BOX) * 128u; }

/* The filling warpgroup: one thread. The first weights come before the kernels before this one have ended. */
template <class WORK> NUM void many_fill(WORK &work, many_ring r, const tensor_maps &maps, bool silu, u32 k_end) {
  many_tile tile;
  const u32 groups = work.a.n / 16u;
  u32 early = 0; /* k of the first tile whose weights are under way */
  for (u32 item = many_cluster(); work.find(item, tile); item += many_clusters()) {
    if (item == many_cluster()) {
      for (many_ring first = r; early < k_end && early < SPEC_STAGES * 64u; early += 64u, many_advance(first)) {
        ptx_barrier_expect(many_full(first, first.stage), many_bytes(tile));
        many_weights(first, &maps.w, tile, silu, groups, early);
      }
      ptx_grid_wait();
    }
    for (u32 k = 0; k < k_end; k += 64u) {
      if (k >= early) {
        ptx_barrier_wait(many_empty(r, r.stage), r.parity ^ 1u);
        ptx_barrier_expect(many_full(r, r.stage), many_bytes(tile));
        many_weights(r, &maps.w, tile, silu, groups, k);
      }
      many_tokens(work, r, &maps.x, tile, k);
      many_advance(r);
    }
    early = 0;
  }
}

/* One arrival of this warp at the barrier of a stage that it has left, in every block that fills it. */
NUM void many_leave(u32 empty) {
  const u32 lane = threadIdx.x % 32u;
  if (SPEC_CLUSTER > 1u) {
    if (lane < SPEC_CLUSTER) ptx_barrier_arrive_peer(ptx_peer(empty, lane));
  } else if (lane == 0) {
    ptx_barrier_arrive(empty);
  }
}

/* acc = the H16 sums over k of a tile of this width. meanwhile: what there is to do beside the first multiplication. */
template <u32 WIDTH, class MEANWHILE>
NUM void many_product(many_sums &acc, many_ring &r, u32 group, u32 width, u32 blocks, MEANWHILE meanwhile) {
  if constexpr (WIDTH > MANY_STEP) {
    if (width < WIDTH) {
      many_product<WIDTH - MANY_STEP>(acc, r, group, width, blocks, meanwhile);
      return;
    }
  }
  u32 left = r.stage;
  for (u32 block = 0; block < blocks; block++) {
    const u32 at = r.stages + r.stage * MANY_STAGE_BYTES;
    ptx_barrier_wait(many_full(r, r.stage), r.parity);
    ptx_multiply_fence();
    const u64 w = ptx_operand(PTX_SWIZZLED, at + group * 8192u), x = ptx_operand(PTX_SWIZZLED, at + SPEC_TILE_N * 128u);
#pragma unroll
    for (u32 i = 0; i < 4; i++) ptx_multiply(reinterpret_cast<f32(&)[WIDTH / 2u]>(acc), w + i * 2u, x + i * 2u);
    ptx_multiply_commit();
    if (block == 0) meanwhile();
    PTX_MULTIPLY_WAIT(1); /* the block before this one is done: its stage may be filled */
    if (block > 0) many_leave(many_empty(r, left));
    left = r.stage;
    many_advance(r);
  }
  PTX_MULTIPLY_WAIT(0);
  many_leave(many_empty(r, left));
}

/* A multiplying warpgroup. */
template <class WORK> NUM void many_multiply(WORK &work, many_ring r, const u8 *shared, u32 k) {
  const u32 group = ptx_uniform(threadIdx.x / 128u) - 1u, turn = r.turn + group * MANY_CHUNK * 128u;
  u32 item = many_cluster();
  many_tile tile, next;
  ptx_grid_wait();
  for (bool more = work.find(item, tile); more; tile = next) {
    item += many_clusters();
    many_sums acc;
#pragma unroll
    for (u32 i = 0; i < MANY_ACCUMULATORS; i++) acc[i] = 0.0f;
    many_product<SPEC_TILE_ROWS>(acc, r, group, tile.width, k / 64u, [&] { more = work.find(item, next); });
    many_store(acc, work.result(tile), tile, group, shared, turn);
  }
}


/* Everything behind the start: who fills, who multiplies. */
template <class WORK> NUM void many_run(WORK &work, const many_ring &r, const tensor_maps &maps, const u8 *shared) {
  if (threadIdx.x < 128u) {
#if SPEC_TILE_N != 64
    PTX_REGISTERS_LESS(72);
#endif
    if (ptx_uniform(threadIdx.x / 32u) == 0u && ptx_elect()) many_fill(work, r, maps, work.a.y_kind == Y_SILU, work.a.k);
  } else {
#if SPEC_TILE_N != 64
    PTX_REGISTERS_MORE(216);
#endif
    many_multiply(work, r, shared, work.a.k);
  }
  if (SPEC_CLUSTER > 1u) { /* no block ends while others may still write to it */
    __syncwarp();
    ptx_cluster_sync();
  }
}

#endif

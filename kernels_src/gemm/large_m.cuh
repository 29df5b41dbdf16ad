/* large_m.cuh - matrix products of many token rows: the body shared by gemm, moe_gemm, mla_expand, fp8_gemm and fp8_moe_gemm.
 *
 * Persistent blocks. A tile is SPEC_TILE_N weight rows by `width` token rows: SPEC_TILE_ROWS, or, where that is 256, as many as the kernel
 * chooses, so that neither the rows of an expert nor the number of multiprocessors leave much idle. Two producer threads of one warpgroup
 * fill a ring of stages, each SPEC_DEPTH blocks of k of both operands in 128-byte swizzled rows: 64 k of bf16, 128 of e4m3. The consumer
 * warpgroups multiply 64 rows of an operand each, and store: large_m_plain.cuh, large_m_scaled.cuh. The ring runs on from tile to tile, so
 * the next operands are loaded while results are stored. Blocks of a cluster that share tokens, or weights, load a part each for all.
 * One fp32 accumulator per output, k ascending: H16, or H32 and its scales, whatever the tile.
 * Bound per 64 k of bf16: shared memory at 128 bytes a cycle, written by TMA (TILE_N + width cycles) and read by each consumer warpgroup
 * (64 + width); tensor cores 4 * TILE_N / 128 * width cycles; L2 40 to 60 bytes a cycle for each of 128 multiprocessors.
 * On an H200, 2048 x 10944, 512 rows: 37.8 us. Studies: tools/bench/history, products-large-m and elected-threads.
 * Read next: large_m_plain.cuh, large_m_dense.cuh, large_m_experts.cuh. */
#ifndef VERBATIM_LARGE_M_CUH
#define VERBATIM_LARGE_M_CUH
#include "gemm/large_m_store.cuh"

typedef struct large_m_ring {
  u32 stages, full, empty, staging, scales; /* shared addresses: the ring, its barriers, staging of results, scales of the stages */
  u32 stage, parity;
} large_m_ring;

/* Clusters of any grid in one order: the number of this one, and their count. */
NUM u32 large_m_cluster() { return blockIdx.x + gridDim.x * (blockIdx.y / SPEC_CLUSTER + gridDim.y / SPEC_CLUSTER * blockIdx.z); }
NUM u32 large_m_clusters() { return gridDim.x * gridDim.y * gridDim.z / SPEC_CLUSTER; }

/* A cluster has SPEC_CLUSTER_ROWS rows of tiles by CLUSTER_COLUMNS columns: a row shares tokens, a column shares weights. The column and
 * row of this block's tile, and the multicast masks of the blocks that share its tokens (row) and its weights (column). */
NUM u32 large_m_cluster_column() { return blockIdx.y % CLUSTER_COLUMNS; }
NUM u32 large_m_cluster_row() { return blockIdx.y / CLUSTER_COLUMNS % SPEC_CLUSTER_ROWS; }
NUM u32 large_m_row_mask() { return ((1u << CLUSTER_COLUMNS) - 1u) << large_m_cluster_row() * CLUSTER_COLUMNS; }
NUM u32 large_m_column_mask() { return ((1u << SPEC_CLUSTER) - 1u) / ((1u << CLUSTER_COLUMNS) - 1u) << large_m_cluster_column(); }
#define LARGE_M_SHARERS (CLUSTER_COLUMNS + SPEC_CLUSTER_ROWS - 1u) /* blocks that load into a block's stages */

NUM u32 large_m_full(const large_m_ring &r, u32 stage) { return r.full + stage * 8u; }
NUM u32 large_m_empty(const large_m_ring &r, u32 stage) { return r.empty + stage * 8u; }
NUM void large_m_advance(large_m_ring &r) {
  const bool last = r.stage + 1u == SPEC_STAGES;
  r.stage = last ? 0u : r.stage + 1u;
  r.parity ^= last;
}

/* By all threads, before ptx_grid_wait. */
NUM large_m_ring large_m_start(const void *shared) {
  const u32 base = (ptx_shared(shared) + 1023u) & ~1023u, staging = base + SPEC_STAGES * LARGE_M_STAGE_BYTES;
  const u32 scales = staging + LARGE_M_CONSUMERS * LARGE_M_CHUNK * 128u, full = scales + SPEC_STAGES * LARGE_M_SCALE_BYTES;
  const large_m_ring r = {base, full, full + SPEC_STAGES * 8u, staging, scales, 0, 0};
  if (threadIdx.x == 0) {
    for (u32 i = 0; i < SPEC_STAGES; i++) {
      ptx_barrier_init(large_m_full(r, i), GEMM_SCALED ? 4u : 2u);
      ptx_barrier_init(large_m_empty(r, i), LARGE_M_CONSUMERS * 4u * LARGE_M_SHARERS);
    }
    ptx_barrier_ready();
  }
  if (SPEC_CLUSTER > 1u)
    ptx_cluster_sync();
  else
    __syncthreads();
  return r;
}

/* Loads a block of k of a tile's weights as block number `block` of the stage. Gate and up are matrices of their own, of which the operand
 * has eight rows in staging: its rows i and i + 8 of every 16 belong together. groups: of eight rows of a gate. */
NUM void large_m_load_weights(const large_m_ring &r, const tensor_map *map, const large_m_tile &tile, bool silu, u32 groups, u32 k,
                              u32 block) {
  const u32 part = large_m_cluster_row() * (SPEC_TILE_N / SPEC_CLUSTER_ROWS);
  const u32 to = r.stages + r.stage * LARGE_M_STAGE_BYTES + block * LARGE_M_W_BYTES + part * 128u, full = large_m_full(r, r.stage);
  const u32 row = silu ? tile.matrix * 2u * groups + tile.n0 / 8u + part / 16u : tile.n0 + part;
  if (SPEC_CLUSTER_ROWS > 1u) {
    if (silu) ptx_take_box_for(large_m_column_mask(), to, map, k, 0, 0, row, full);
    else ptx_take_box_for(large_m_column_mask(), to, map, k, row, tile.matrix, full);
  } else {
    if (silu) ptx_take_box(to, map, k, 0, 0, row, full);
    else ptx_take_box(to, map, k, row, tile.matrix, full);
  }
}

/* The same for its tokens. */
template <class WORK>
NUM void large_m_load_tokens(const WORK &work, const large_m_ring &r, const tensor_map *map, const large_m_tile &tile, u32 k, u32 block) {
  const u32 to = r.stages + r.stage * LARGE_M_STAGE_BYTES + SPEC_DEPTH * LARGE_M_W_BYTES + block * LARGE_M_X_BYTES;
  const u32 full = large_m_full(r, r.stage);
  for (u32 i = large_m_cluster_column() * LARGE_M_BOX; i < tile.width; i += CLUSTER_COLUMNS * LARGE_M_BOX)
    if (CLUSTER_COLUMNS > 1u)
      ptx_take_box_for(large_m_row_mask(), to + i * 128u, map, k, work.x_first(tile, i), work.x_matrix(tile, i), full);
    else
      ptx_take_box(to + i * 128u, map, k, work.x_first(tile, i), work.x_matrix(tile, i), full);
}

/* Cycles of shared memory for a block of k of a tile of this width, at 128 bytes written or read a cycle. */
NUM u32 large_m_cycles(u32 width) { return SPEC_TILE_N + width + (GEMM_SCALED ? width : SPEC_TILE_N) + SPEC_TILE_N * width / 64u; }

/* Blocks of k in the next stage, of those that are left. */
NUM u32 large_m_blocks(u32 left) { return left < SPEC_DEPTH ? left : SPEC_DEPTH; }

/* Two producer threads; each announces the bytes it loads. The one for weights does not wait for earlier kernels: no kernel of the step
 * writes them. */
template <class WORK> NUM void large_m_fill_weights(WORK &work, large_m_ring r, const tensor_map *map, bool silu, u32 k_end) {
  large_m_tile tile;
  for (u32 item = large_m_cluster(); work.find(item, tile); item += large_m_clusters())
    for (u32 k = 0; k < k_end; k += SPEC_DEPTH * LARGE_M_K, large_m_advance(r)) {
      const u32 blocks = large_m_blocks((k_end - k) / LARGE_M_K);
      ptx_barrier_wait(large_m_empty(r, r.stage), r.parity ^ 1u);
      ptx_barrier_expect(large_m_full(r, r.stage), blocks * LARGE_M_W_BYTES);
#pragma unroll
      for (u32 i = 0; i < SPEC_DEPTH; i++)
        if (i < blocks) large_m_load_weights(r, map, tile, silu, work.a.n / 16u, k + i * LARGE_M_K, i);
    }
}

template <class WORK> NUM void large_m_fill_tokens(WORK &work, large_m_ring r, const tensor_map *map, u32 k_end) {
  large_m_tile tile;
  ptx_grid_wait();
  for (u32 item = large_m_cluster(); work.find(item, tile); item += large_m_clusters())
    for (u32 k = 0; k < k_end; k += SPEC_DEPTH * LARGE_M_K, large_m_advance(r)) {
      const u32 blocks = large_m_blocks((k_end - k) / LARGE_M_K);
      ptx_barrier_wait(large_m_empty(r, r.stage), r.parity ^ 1u);
      ptx_barrier_expect(large_m_full(r, r.stage), blocks * ((tile.width + LARGE_M_BOX - 1u) / LARGE_M_BOX * LARGE_M_BOX * 128u));
#pragma unroll
      for (u32 i = 0; i < SPEC_DEPTH; i++)
        if (i < blocks) large_m_load_tokens(work, r, map, tile, k + i * LARGE_M_K, i);
    }
}

/* Rank of the i-th block that loads into this one's stages: those of its cluster row, itself included, then the others of its column. */
NUM u32 large_m_sharer_rank(u32 i) {
  const u32 row = i < CLUSTER_COLUMNS ? large_m_cluster_row() : i - CLUSTER_COLUMNS + (i - CLUSTER_COLUMNS >= large_m_cluster_row());
  return row * CLUSTER_COLUMNS + (i < CLUSTER_COLUMNS ? i : large_m_cluster_column());
}

/* The empty barrier of stage 0 on which this thread arrives for its warp: one thread for each block that loads into the stage. */
NUM u32 large_m_release_barrier(const large_m_ring &r) {
  const u32 lane = threadIdx.x % 32u;
  return SPEC_CLUSTER > 1u && lane < LARGE_M_SHARERS ? ptx_peer(r.empty, large_m_sharer_rank(lane)) : r.empty;
}
NUM void large_m_release(u32 left, u32 stage) {
  if (threadIdx.x % 32u >= LARGE_M_SHARERS) return;
  if (SPEC_CLUSTER > 1u) ptx_barrier_arrive_peer(left + stage * 8u);
  else ptx_barrier_arrive(left + stage * 8u);
}

#if GEMM_SCALED
#include "gemm/large_m_scaled.cuh"
#else
#include "gemm/large_m_plain.cuh"
#endif

/* All after large_m_start: the producer warpgroup, the consumer warpgroups. */
template <class WORK> NUM void large_m_run(WORK &work, const large_m_ring &r, const tensor_maps &maps, u8 *shared) {
  const u32 warp = ptx_uniform(threadIdx.x / 32u);
  if (warp < 4u) {
#if SPEC_TILE_N != 64 && SPEC_TILE_ROWS > 96
    PTX_REGISTERS_LESS(72);
#endif
    if (warp == 0 && ptx_elect()) large_m_fill_weights(work, r, &maps.w, work.a.y_kind == Y_SILU, work.a.k);
    if (warp == 1 && ptx_elect()) large_m_fill_tokens(work, r, &maps.x, work.a.k);
#if GEMM_SCALED
    if (warp >= 2u) large_m_fill_scales(work, r, shared);
#endif
  } else {
#if SPEC_TILE_N != 64 && SPEC_TILE_ROWS > 96
    PTX_REGISTERS_MORE(216);
#endif
    large_m_multiply(work, r, shared, work.a.k);
  }
  if (SPEC_CLUSTER > 1u) { /* no block ends while others may still write to it */
    __syncwarp();
    ptx_cluster_sync();
  }
}

#endif

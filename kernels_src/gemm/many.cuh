/* many.cuh - the product of many rows, shared by gemm, moe_gemm, mla_expand, fp8_gemm and fp8_moe_gemm.
 *
 * Persistent blocks. A tile is SPEC_TILE_N weight rows times `width` token rows: SPEC_TILE_ROWS, or, where that is 256, as many as the
 * kernel chooses, so that neither the rows of an expert nor the number of multiprocessors leave much idle. Two threads of one warpgroup
 * fill a ring of stages, each SPEC_DEPTH blocks of k of both operands in 128-byte swizzled rows: 64 k of bf16, 128 of e4m3. The other
 * warpgroups multiply, each 64 rows of one operand, and write: many_plain.cuh and many_scaled.cuh. The ring runs on from tile to tile: the
 * next one's operands come while results are written. Blocks of a cluster that have the same tokens, or weights, copy a part each for all.
 * One fp32 accumulator per output, k ascending: H16, or H32 and its scales, whatever the tile.
 *
 * Bound of bf16, per 64 k: shared memory, 128 bytes a cycle, written by copies (TILE_N + width cycles) and read by each warpgroup that
 * multiplies (64 + width); tensor cores take 4 * TILE_N / 128 * width; L2 gives 40 to 60 bytes a cycle to each of 128 multiprocessors.
 * What it took to come near (2048 x 10944, 64, 128, 256, 512 rows, us: 25, 52, 56, 51 before; 18.4, 20.3, 25.3, 37.8; cuBLASLt's best
 * 17.8, 19.6, 23.1, 34.9): copies by elected threads (a thread that only the program knows to be one gets a loop around each box, 175
 * cycles), roles chosen by a value that the compiler knows to be the warp's (descriptors in uniform registers: 300 cycles a block of k
 * become 210), one box an operand and block of k where it can be, weights and tokens by a thread each, fp32 results exchanged in batches.
 * A copy of 8 rows takes as long as one of 16; what is copied in 32 rows and more comes at 40 bytes a cycle from L2, twice that into
 * pairs.
 * Tried: clusters of 4 and 8 (30 and 15 find room at once: 12 multiprocessors idle), pairs that share tokens (2 to 10 % slower, but for
 * experts), results stored beside the next tile's multiplications (tiles of 128 x 128 no faster, of 64 x 64 a fifth slower), warpgroups
 * that multiply and store in turn, 128 x 192 each (gate and up with silu up to 9 % less, others up to 14 % more), weights brought to L2
 * six stages ahead (1.3 times as long), policies of L2. Read next: many_plain.cuh, gemm_tiles.cuh, moe_tiles.cuh. */
#ifndef VERBATIM_MANY_CUH
#define VERBATIM_MANY_CUH
#include "gemm/many_store.cuh"

typedef struct many_ring {
  u32 stages, full, empty, turn, scales; /* shared addresses: the ring, its barriers, where results are turned, scales of the stages */
  u32 stage, parity;
} many_ring;

/* Clusters of any grid, in one row: this one's number, and how many there are. */
NUM u32 many_cluster() { return blockIdx.x + gridDim.x * (blockIdx.y / SPEC_CLUSTER + gridDim.y / SPEC_CLUSTER * blockIdx.z); }
NUM u32 many_clusters() { return gridDim.x * gridDim.y * gridDim.z / SPEC_CLUSTER; }

/* A cluster is MANY_BESIDE tiles side by side, with the same tokens, times SPEC_CLUSTER_ROWS below each other, with the same weights:
 * where this block's tile is, and the blocks that have its tokens, and its weights. */
NUM u32 many_rank() { return blockIdx.y % MANY_BESIDE; }
NUM u32 many_row_rank() { return blockIdx.y / MANY_BESIDE % SPEC_CLUSTER_ROWS; }
NUM u32 many_beside() { return ((1u << MANY_BESIDE) - 1u) << many_row_rank() * MANY_BESIDE; }
NUM u32 many_below() { return ((1u << SPEC_CLUSTER) - 1u) / ((1u << MANY_BESIDE) - 1u) << many_rank(); }
#define MANY_SHARERS (MANY_BESIDE + SPEC_CLUSTER_ROWS - 1u) /* blocks that fill a block's stages */

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
  const u32 scales = turn + MANY_CONSUMERS * MANY_CHUNK * 128u, full = scales + SPEC_STAGES * MANY_SCALE_BYTES;
  const many_ring r = {base, full, full + SPEC_STAGES * 8u, turn, scales, 0, 0};
  if (threadIdx.x == 0) {
    for (u32 i = 0; i < SPEC_STAGES; i++) {
      ptx_barrier_init(many_full(r, i), MANY_SCALED ? 4u : 2u);
      ptx_barrier_init(many_empty(r, i), MANY_CONSUMERS * 4u * MANY_SHARERS);
    }
    ptx_barrier_ready();
  }
  if (SPEC_CLUSTER > 1u)
    ptx_cluster_sync();
  else
    __syncthreads();
  return r;
}

/* One k block of a tile's weights, the stage's number `block`. Of gate and up, which are matrices of their own, the operand has eight rows
 * in turn: its rows i and i + 8 of every 16 belong together. groups: of eight rows of a gate. */
NUM void many_weights(const many_ring &r, const tensor_map *map, const many_tile &tile, bool silu, u32 groups, u32 k, u32 block) {
  const u32 part = many_row_rank() * (SPEC_TILE_N / SPEC_CLUSTER_ROWS);
  const u32 to = r.stages + r.stage * MANY_STAGE_BYTES + block * MANY_W_BYTES + part * 128u, full = many_full(r, r.stage);
  const u32 row = silu ? tile.matrix * 2u * groups + tile.n0 / 8u + part / 16u : tile.n0 + part;
  if (SPEC_CLUSTER_ROWS > 1u) {
    if (silu) ptx_take_box_for(many_below(), to, map, k, 0, 0, row, full);
    else ptx_take_box_for(many_below(), to, map, k, row, tile.matrix, full);
  } else {
    if (silu) ptx_take_box(to, map, k, 0, 0, row, full);
    else ptx_take_box(to, map, k, row, tile.matrix, full);
  }
}

/* The same of its tokens. */
template <class WORK>
NUM void many_tokens(const WORK &work, const many_ring &r, const tensor_map *map, const many_tile &tile, u32 k, u32 block) {
  const u32 to = r.stages + r.stage * MANY_STAGE_BYTES + SPEC_DEPTH * MANY_W_BYTES + block * MANY_X_BYTES, full = many_full(r, r.stage);
  for (u32 i = many_rank() * MANY_BOX; i < tile.width; i += MANY_BESIDE * MANY_BOX)
    if (MANY_BESIDE > 1u)
      ptx_take_box_for(many_beside(), to + i * 128u, map, k, work.x_first(tile, i), work.x_matrix(tile, i), full);
    else
      ptx_take_box(to + i * 128u, map, k, work.x_first(tile, i), work.x_matrix(tile, i), full);
}

/* Cycles of a block of k, as the shared memory takes them for a tile of this width: 128 bytes written or read a cycle. */
NUM u32 many_cycles(u32 width) { return SPEC_TILE_N + width + (MANY_SCALED ? width : SPEC_TILE_N) + SPEC_TILE_N * width / 64u; }

/* Blocks of k of the next stage, of those that are left. */
NUM u32 many_blocks(u32 left) { return left < SPEC_DEPTH ? left : SPEC_DEPTH; }

/* Two threads of the filling warpgroup, of which each announces what it copies. The one for weights, which no kernel of the step writes,
 * does not wait for the kernels before this one. */
template <class WORK> NUM void many_fill_weights(WORK &work, many_ring r, const tensor_map *map, bool silu, u32 k_end) {
  many_tile tile;
  for (u32 item = many_cluster(); work.find(item, tile); item += many_clusters())
    for (u32 k = 0; k < k_end; k += SPEC_DEPTH * MANY_K, many_advance(r)) {
      const u32 blocks = many_blocks((k_end - k) / MANY_K);
      ptx_barrier_wait(many_empty(r, r.stage), r.parity ^ 1u);
      ptx_barrier_expect(many_full(r, r.stage), blocks * MANY_W_BYTES);
#pragma unroll
      for (u32 i = 0; i < SPEC_DEPTH; i++)
        if (i < blocks) many_weights(r, map, tile, silu, work.a.n / 16u, k + i * MANY_K, i);
    }
}

template <class WORK> NUM void many_fill_tokens(WORK &work, many_ring r, const tensor_map *map, u32 k_end) {
  many_tile tile;
  ptx_grid_wait();
  for (u32 item = many_cluster(); work.find(item, tile); item += many_clusters())
    for (u32 k = 0; k < k_end; k += SPEC_DEPTH * MANY_K, many_advance(r)) {
      const u32 blocks = many_blocks((k_end - k) / MANY_K);
      ptx_barrier_wait(many_empty(r, r.stage), r.parity ^ 1u);
      ptx_barrier_expect(many_full(r, r.stage), blocks * ((tile.width + MANY_BOX - 1u) / MANY_BOX * MANY_BOX * 128u));
#pragma unroll
      for (u32 i = 0; i < SPEC_DEPTH; i++)
        if (i < blocks) many_tokens(work, r, map, tile, k + i * MANY_K, i);
    }
}

/* Rank of a block that fills this one's stages: those beside it, itself included, then those below and above. */
NUM u32 many_sharer(u32 i) {
  const u32 row = i < MANY_BESIDE ? many_row_rank() : i - MANY_BESIDE + (i - MANY_BESIDE >= many_row_rank());
  return row * MANY_BESIDE + (i < MANY_BESIDE ? i : many_rank());
}

/* Where this thread tells that its warp has left stage 0: in every block that fills it, by one thread each. */
NUM u32 many_left(const many_ring &r) {
  const u32 lane = threadIdx.x % 32u;
  return SPEC_CLUSTER > 1u && lane < MANY_SHARERS ? ptx_peer(r.empty, many_sharer(lane)) : r.empty;
}
NUM void many_leave(u32 left, u32 stage) {
  if (threadIdx.x % 32u >= MANY_SHARERS) return;
  if (SPEC_CLUSTER > 1u) ptx_barrier_arrive_peer(left + stage * 8u);
  else ptx_barrier_arrive(left + stage * 8u);
}

#if MANY_SCALED
#include "gemm/many_scaled.cuh"
#else
#include "gemm/many_plain.cuh"
#endif

/* Everything behind the start: who fills, who multiplies. */
template <class WORK> NUM void many_run(WORK &work, const many_ring &r, const tensor_maps &maps, u8 *shared) {
  const u32 warp = ptx_uniform(threadIdx.x / 32u);
  if (warp < 4u) {
#if SPEC_TILE_N != 64 && SPEC_TILE_ROWS > 96
    PTX_REGISTERS_LESS(72);
#endif
    if (warp == 0 && ptx_elect()) many_fill_weights(work, r, &maps.w, work.a.y_kind == Y_SILU, work.a.k);
    if (warp == 1 && ptx_elect()) many_fill_tokens(work, r, &maps.x, work.a.k);
#if MANY_SCALED
    if (warp >= 2u) many_fill_scales(work, r, shared);
#endif
  } else {
#if SPEC_TILE_N != 64 && SPEC_TILE_ROWS > 96
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

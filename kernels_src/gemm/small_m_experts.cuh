/* small_m_experts.cuh - moe_gemm and fp8_moe_gemm for a small M of each expert.
 *
 * Each expert has ceil(its rows / SPEC_TILE_ROWS) tiles of token rows, and each of these all tiles of n columns, dealt in turn to the
 * blocks of any grid. A block finds its tiles from expert_first, which is spread over the lanes of a warp. Without row_token, x comes from
 * another product of the step's experts, which lets its successor start only after its own wait: expert_first is complete then, and
 * weights are loaded before the wait. Token rows are gathered by 16-byte copies of a warp, their scales by copies of four bytes. maps.w: k,
 * n and experts of w as in small_m_dense.cuh. The weights of each expert in use are read once for each of its tiles of token rows.
 * Bound: these bytes. On an H200, bf16, 1 token: 8 of 256 experts, 7168 x 2048, gate, up and down in 176 us, bound 176 at 4.0 TB/s.
 * Studies: tools/bench/history, products-small-m and fp8-small-m. Read next: small_m_plain.cuh, small_m_scaled.cuh. */
#ifndef VERBATIM_SMALL_M_EXPERTS_CUH
#define VERBATIM_SMALL_M_EXPERTS_CUH
#include "gemm/small_m.cuh"
#if GEMM_SCALED
#include "gemm/small_m_scaled.cuh"
#else
#include "gemm/small_m_plain.cuh"
#endif
#include "ptx/reduce.cuh"

#define SMALL_M_GATHERS (SPEC_TILE_ROWS > 1u)
#define SMALL_M_LANE_ROWS ((SPEC_TILE_ROWS + 3u) / 4u)

typedef struct expert_tiles { /* tiles of token rows; each lane of a warp has `share` experts */
  const u32 *first;       /* expert_first in shared memory                                    */
  u32 experts, share;
  u32 upto, own;          /* tiles of all experts up to this lane's, and of this lane's alone */
} expert_tiles;

typedef struct expert_tile { u32 expert, row, rows; } expert_tile;

NUM u32 small_m_expert_tiles(const expert_tiles &d, u32 expert) {
  return expert < d.experts ? (d.first[expert + 1] - d.first[expert] + SPEC_TILE_ROWS - 1u) / SPEC_TILE_ROWS : 0u;
}

/* By all threads, once. */
NUM expert_tiles small_m_list_tiles(u32 *first, const u32 *expert_first, u32 experts) {
  for (u32 i = threadIdx.x; i <= experts; i += SPEC_THREADS) first[i] = ptx_load_fresh(expert_first + i);
  __syncthreads();
  expert_tiles d = {first, experts, (experts + 31u) / 32u, 0, 0};
  for (u32 i = 0; i < d.share; i++) d.own += small_m_expert_tiles(d, threadIdx.x % 32u * d.share + i);
  d.upto = reduce_prefix_warp(d.own);
  return d;
}

NUM u32 small_m_tile_count(const expert_tiles &d) { return __shfl_sync(WARP_ALL, d.upto, 31); }

/* By a whole warp: the index-th tile, which exists. */
NUM expert_tile small_m_find_tile(const expert_tiles &d, u32 index) {
  const u32 lane = (u32)__ffs((i32)__ballot_sync(WARP_ALL, d.upto > index)) - 1u;
  u32 expert = lane * d.share, skip = index - (__shfl_sync(WARP_ALL, d.upto, lane) - __shfl_sync(WARP_ALL, d.own, lane));
  for (u32 tiles; skip >= (tiles = small_m_expert_tiles(d, expert)); expert++) skip -= tiles;
  const u32 row = d.first[expert] + skip * SPEC_TILE_ROWS;
  return {expert, row, num_least(SPEC_TILE_ROWS, d.first[expert + 1] - row)};
}

/* By the whole warp X: the token rows of a tile, 8 lanes a row; x: rows of row_bytes. more(block, count) copies the rest of a stage. */
template <class F>
NUM void small_m_gather_x(small_m_ring &r, const void *x, u64 row_bytes, const u32 *row_token, const expert_tile &e, u32 blocks, F more) {
  const u32 lane = threadIdx.x % 32u, piece = (lane % 8u ^ lane / 8u) * 16u;
  const u8 *from[SMALL_M_LANE_ROWS]; /* this lane's rows: every fourth; its 16 bytes of each */
#pragma unroll
  for (u32 i = 0; i < SMALL_M_LANE_ROWS; i++) {
    const u32 row = lane / 8u + i * 4u;
    from[i] = (const u8 *)x + (row >= e.rows ? 0u : row_token ? row_token[e.row + row] : e.row + row) * row_bytes + lane % 8u * 16u;
  }
  for (u32 block = 0; block < blocks; block += SPEC_K_BLOCKS) {
    const u32 count = num_least(SPEC_K_BLOCKS, blocks - block);
    ptx_barrier_wait(small_m_empty(r, r.stage), r.parity ^ 1u);
    for (u32 b = 0; b < count; b++)
#pragma unroll
      for (u32 i = 0; i < SMALL_M_LANE_ROWS; i++)
        if (lane / 8u + i * 4u < e.rows)
          ptx_copy16(small_m_x(r) + b * SMALL_M_X_BYTES + (lane / 8u + i * 4u) * 128u + (piece ^ i % 2u * 64u),
                     from[i] + (block + b) * 128u, 16u);
    more(block, count);
    ptx_barrier_arrive_copies(small_m_full(r));
    small_m_next(r);
  }
}

#if GEMM_SCALED
/* By the whole warp X: the token rows of a tile and, stage by stage, their scales. */
NUM void small_m_gather_tokens(small_m_ring &r, const fp8_moe_gemm_args &a, const expert_tile &e, u32 blocks) {
  const u32 at = e.row + num_least(threadIdx.x % 32u, e.rows - 1u), source = a.row_token ? a.row_token[at] : at;
  small_m_gather_x(r, a.x, a.k, a.row_token, e, blocks,
                   [&](u32 block, u32 count) { small_m_copy_scales(r, a.x_scale, source, e.rows, block, count, blocks); });
}

/* By the whole warp X, SPEC_TILE_ROWS 1: token row `row`. */
NUM void small_m_load_token(small_m_ring &r, const fp8_moe_gemm_args &a, const tensor_maps &maps, u32 row, u32 blocks) {
  small_m_copy_tokens(r, &maps.x, a.x, a.x_scale, row, 1, blocks);
}
#else
NUM void small_m_gather_tokens(small_m_ring &r, const moe_gemm_args &a, const expert_tile &e, u32 blocks) {
  small_m_gather_x(r, a.x, 2ull * a.ldx, a.row_token, e, blocks, [](u32, u32) {});
}

NUM void small_m_load_token(small_m_ring &r, const moe_gemm_args &a, const tensor_maps &, u32 row, u32 blocks) {
  small_m_copy_row(r, a.x + (u64)row * a.ldx, blocks);
}
#endif

/* The kernels' body. */
template <class ARGS> NUM void experts_run(const ARGS &a, const tensor_maps &maps, u8 *shared) {
  small_m_ring ring = small_m_start(shared, maps, SMALL_M_GATHERS ? 32u : SMALL_M_LOAD_ARRIVALS, SMALL_M_LOAD_ARRIVALS);
  const u32 warp = ptx_uniform(threadIdx.x / 32u), is_silu = a.y_kind == Y_SILU;
  const u32 columns = is_silu ? a.n / 2u : a.n, height = is_silu ? SMALL_M_HALF : SPEC_TILE_N, blocks = a.k / SMALL_M_BLOCK_K;
  const u32 across = (columns + height - 1u) / height, scale_rows = (a.n + SCALE_COLUMNS - 1u) / SCALE_COLUMNS;
  const u32 begin = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z), step = gridDim.x * gridDim.y * gridDim.z;
  if (a.row_token) ptx_grid_wait();
  ptx_grid_next(); /* the next kernel starts when all kernels before this one are complete */
  const expert_tiles list =
      small_m_list_tiles((u32 *)(shared + (ring.base - ptx_shared(shared)) + SMALL_M_END_BYTES), a.expert_first, a.experts);
  const u32 tiles = small_m_tile_count(list) * across;
  if (warp != SMALL_M_W_WARP && !a.row_token) ptx_grid_wait();
  for (u32 tile = begin; tile < tiles; tile += step) {
    const expert_tile e = small_m_find_tile(list, tile / across);
    const u32 n0 = tile % across * height;
    if (warp == SMALL_M_W_WARP) {
      if (GEMM_SCALED || threadIdx.x % 32u == 0)
        small_m_load_weights(ring, a, maps, n0, e.expert, (u64)e.expert * scale_rows * blocks, is_silu, columns, blocks, false);
      if (!GEMM_SCALED) __syncwarp();
    } else if (warp == SMALL_M_X_WARP) {
      if (SMALL_M_GATHERS) small_m_gather_tokens(ring, a, e, blocks);
      else if (GEMM_SCALED || threadIdx.x % 32u == 0) small_m_load_token(ring, a, maps, a.row_token ? a.row_token[e.row] : e.row, blocks);
      if (!GEMM_SCALED) __syncwarp();
    } else {
      f32 acc[SMALL_M_ACCUMULATORS];
      small_m_multiply(acc, ring, n0, is_silu, blocks, SMALL_M_GATHERS, shared);
      small_m_store(acc, a.y_kind, a.y, (u64)e.row * columns, columns, e.rows, n0, columns, ring, shared);
    }
  }
}

#endif

/* small_m_dense.cuh - gemm, gemm_bias and fp8_gemm for small M.
 *
 * Grid: any number of blocks, best one per multiprocessor; the tiles of n columns of all batches are dealt to the blocks in turn, or to
 * SPEC_ROW_TILES blocks at a time, each of which has the next token rows. Further rows take another pass over the weights. maps.w: k, n
 * and batches of w, TMA boxes of 128 bytes by SPEC_TILE_N; for Y_SILU gate and up are two matrices, and a box takes half of its rows from
 * each. Boxes of two blocks of k (FP8_BOX_BLOCKS): bytes, eight rows, blocks, groups of eight rows, gate and up. maps.x: k, launch rows and
 * batches of x, boxes of 128 bytes by SPEC_TILE_ROWS. With one row tile each weight is read once, and as many of them as the ring holds
 * before the kernel in front of this one has ended.
 * Bound: the weights at 4.3 TB/s, or for small matrices the launch and the MMA chain. On an H200, bf16, 1 row: 7168 x 16384 in 56.0 us,
 * bound 54.6. Studies: tools/bench/history, products-small-m, fp8-small-m, fp8-few-rows. Read: small_m_plain.cuh, small_m_scaled.cuh. */
#ifndef VERBATIM_SMALL_M_DENSE_CUH
#define VERBATIM_SMALL_M_DENSE_CUH
#include "gemm/small_m.cuh"
#ifndef SPEC_ROW_TILES
#define SPEC_ROW_TILES 1u /* blocks in turn with the same weights, each with further token rows */
#endif
#if GEMM_SCALED
#include "gemm/small_m_scaled.cuh"
#else
#include "gemm/small_m_plain.cuh"
#endif

/* By the whole warp X, without scales by one of its threads: `rows` token rows of a batch from row0 on. */
#if GEMM_SCALED
NUM void small_m_load_tokens(small_m_ring &r, const fp8_gemm_args &a, const tensor_maps &maps, u32 row0, u32 rows, u32, u32 blocks) {
  small_m_copy_tokens(r, &maps.x, a.x, a.x_scale, row0, rows, blocks);
}
#else
NUM u64 dense_x_batch(const gemm_args &a, u32 batch) { return batch * a.x_batch; }
NUM u64 dense_x_batch(const gemm_bias_args &, u32) { return 0; }
template <class ARGS>
NUM void small_m_load_tokens(small_m_ring &r, const ARGS &a, const tensor_maps &maps, u32 row0, u32, u32 batch, u32 blocks) {
  if (SPEC_TILE_ROWS == 1u) small_m_copy_row(r, a.x + dense_x_batch(a, batch) + (u64)row0 * a.ldx, blocks);
  else small_m_copy(r, &maps.x, false, row0, batch, blocks);
}
#endif

/* The batch of a tile, and its first column. Scaled numbers have one batch. */
NUM u32 dense_batch(u32 tile, u32 across) { return GEMM_SCALED ? 0u : tile / across; }
NUM u32 dense_column(u32 tile, u32 across, u32 height) { return (GEMM_SCALED ? tile : tile % across) * height; }

/* The kernels' body. batches: products of one shape, y_batch elements of y apart; 1 and 0 for scaled numbers. */
template <class ARGS> NUM void dense_run(const ARGS &a, const u32 &batches, const u64 &y_batch, const tensor_maps &maps, u8 *shared) {
  if (a.order != ORDER_FIRST) ptx_grid_next();
  small_m_ring ring = small_m_start(shared, maps, SMALL_M_LOAD_ARRIVALS, SMALL_M_LOAD_ARRIVALS);
  const u32 warp = ptx_uniform(threadIdx.x / 32u), is_silu = a.y_kind == Y_SILU;
  const u32 columns = is_silu ? a.n / 2u : a.n, height = is_silu ? SMALL_M_HALF : SPEC_TILE_N, blocks = a.k / SMALL_M_BLOCK_K;
  const u32 across = (columns + height - 1u) / height, tiles = across * batches;
  const u32 block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z), first = block / SPEC_ROW_TILES;
  const u32 step = gridDim.x * gridDim.y * gridDim.z / SPEC_ROW_TILES;
  const u32 row_first = block % SPEC_ROW_TILES * SPEC_TILE_ROWS, row_step = SPEC_ROW_TILES * SPEC_TILE_ROWS;
  const u32 *count_at = a.rows_kind == ROWS_TOKENS ? &a.step->token_count : &a.step->logit_count;
  if (warp == SMALL_M_W_WARP) {
    if (!GEMM_SCALED && threadIdx.x % 32u != 0) return;
    u32 row0 = row_first;
    do {
      for (u32 tile = first; tile < tiles; tile += step)
        small_m_load_weights(ring, a, maps, dense_column(tile, across, height), dense_batch(tile, across), 0, is_silu, columns,
                             blocks, GEMM_SCALED || SPEC_TILE_ROWS == 1u);
      if (row0 == row_first) ptx_grid_wait();
      row0 += row_step;
    } while (row0 < *count_at);
    return;
  }
  if (!GEMM_SCALED && warp == SMALL_M_X_WARP && threadIdx.x % 32u != 0) return;
  if (a.order != ORDER_BESIDE) ptx_grid_wait(); /* else the warp above does, after its loads */
  if (a.order == ORDER_FIRST) ptx_grid_next();
  const u32 count = *count_at; /* in flight while the product runs */
  u32 row0 = row_first;
  do {
    const u32 rows = num_least(SPEC_TILE_ROWS, count - num_least(count, row0));
    for (u32 tile = first; tile < tiles; tile += step) {
      const u32 batch = dense_batch(tile, across), n0 = dense_column(tile, across, height);
      if (warp == SMALL_M_X_WARP) {
        small_m_load_tokens(ring, a, maps, row0, rows, batch, blocks);
        continue;
      }
      f32 acc[SMALL_M_ACCUMULATORS];
#if GEMM_BIAS
      f32 bias[2];
      small_m_load_bias(bias, a.bias, n0, columns, is_silu);
#endif
      small_m_multiply(acc, ring, n0, is_silu, blocks, false, shared);
#if GEMM_BIAS
#pragma unroll
      for (u32 i = 0; i < SMALL_M_ACCUMULATORS; i++) acc[i] = num_add(acc[i], bias[i / 2u % 2u]); /* R2.2 */
#endif
      small_m_store(acc, a.y_kind, a.y, batch * y_batch + (u64)row0 * a.ldy, a.ldy,
                    num_least(SPEC_TILE_ROWS, count - num_least(count, row0)), dense_column(tile, across, height), columns, ring, shared);
    }
    row0 += row_step;
  } while (row0 < count);
}

#endif

/* mla_expand.cu - k and v of all heads for one piece of the contexts: y[row][n] = bf16(H16(kv row[0 .. rank), w[n][:])), and behind them
 * the kv row's rope columns. NUMERICS.md, `mla_expand`.
 *
 * Row r of the workspace is row r % 64 of page number piece * piece_pages + r / 64; the pages of all contexts are numbered in order, and
 * their places follow from the block table. Rows beyond a context's tokens become zeros. Grid: x over SPEC_TILE_N columns, y over
 * SPEC_TILE_ROWS rows; blocks stride over both, as the launch does not know how much of the piece there is.
 * Moves per tile of rows its kv rows, n * rank * 2 bytes of weights (from L2) and n * 2 bytes a row; 2 * n * rank FLOPs a row. */
#include "spec.cuh"
#include "tile.cuh"
#include "contexts.cuh"

/* Starts the copies of this thread's 16-byte pieces of the rope columns of the tile's rows. */
NUM void copy_rope(const mla_expand_args &a, u32 row0, u32 rows) {
  const u32 pieces = a.rope_dim / 8u;
  for (u32 i = threadIdx.x; i < rows * pieces; i += SPEC_THREADS) {
    const u32 row = row0 + i / pieces, column = i % pieces * 8u;
    const bf16 *from = contexts_row(a, row);
    uint4 *to = (uint4 *)(a.y + (u64)row * (a.n + a.rope_dim) + a.n + column);
    *to = from ? *(const uint4 *)(from + a.kv_lora_rank + column) : make_uint4(0, 0, 0, 0);
  }
}

NUM void expand_tile(const mla_expand_args &a, u32 row0, u32 rows, u32 n0, u32 ring, const u8 *shared) {
  tile_source source;
  tile_weights(source, a.w, n0, a.n, a.kv_lora_rank, Y_BF16);
#pragma unroll
  for (u32 i = 0; i < TILE_X_COPIES; i++) {
    const u32 row = tile_row(i);
    const bf16 *x = row < rows ? contexts_row(a, row0 + row) : nullptr;
    source.x_bytes[i] = x ? 16u : 0u;
    source.x[i] = (x ? x : a.kv) + tile_column();
  }
  f32 acc[TILE_ACCUMULATORS];
  tile_product(acc, source, ring, a.kv_lora_rank);
  const u64 stride = (u64)a.n + a.rope_dim;
  tile_store_bf16(acc, a.y + row0 * stride, stride, rows, n0, a.n, ring, shared);
  __syncthreads(); /* the result has left the ring */
}

extern "C" __global__ __launch_bounds__(SPEC_THREADS) void mla_expand(const __grid_constant__ mla_expand_args a) {
  extern __shared__ u8 shared[];
  ptx_grid_next();
  ptx_grid_wait();
  const u32 rows = contexts_piece_pages(a) * PAGE_TOKENS, ring = tile_ring(shared);
  for (u32 row0 = blockIdx.y * SPEC_TILE_ROWS; row0 < rows; row0 += gridDim.y * SPEC_TILE_ROWS) {
    const u32 left = rows - row0 < SPEC_TILE_ROWS ? rows - row0 : SPEC_TILE_ROWS;
    if (blockIdx.x == 0) copy_rope(a, row0, left);
    for (u32 n0 = blockIdx.x * SPEC_TILE_N; n0 < a.n; n0 += gridDim.x * SPEC_TILE_N) expand_tile(a, row0, left, n0, ring, shared);
  }
}

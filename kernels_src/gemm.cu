/* gemm.cu - y[b][row][n] = H16(x[b][row][:], w[b][n][:]), fp32, rounded once to bf16, or silu of gate times up. NUMERICS.md, `gemm`.
 *
 * x [batches][rows][ldx], w [batches][n][k], y [batches][rows][ldy]. n and ldy multiples of 8, k of 64, ldx of 8, pointers of
 * 16 bytes. Two forms: with SPEC_K_BLOCKS that of gemm_few.cuh, for few rows; else this one. Its grid: x over SPEC_TILE_N weight rows, y
 * over SPEC_TILE_ROWS token rows, z over batches; 2 * SPEC_TILE_N threads. A block whose rows all lie beyond the step's count returns at
 * once; others read no row beyond it and write none. Moves n * k * 2 bytes of weights per row of blocks, and rows * k * 2 bytes of x per
 * column of blocks (from L2). */
#include "spec.cuh"
#ifdef SPEC_K_BLOCKS
#include "few.cuh"
#include "gemm_few.cuh"
#else
#include "tile.cuh"

extern "C" __global__ __launch_bounds__(SPEC_THREADS) void gemm(const __grid_constant__ gemm_args a) {
  extern __shared__ u8 shared[];
  ptx_grid_next();
  ptx_grid_wait();
  const u32 count = a.rows_kind == ROWS_TOKENS ? a.step->token_count : a.step->logit_count;
  const u32 row0 = blockIdx.y * SPEC_TILE_ROWS, batch = blockIdx.z;
  if (row0 >= count) return;
  const u32 rows = count - row0, ring = tile_ring(shared);

  tile_source source;
  tile_weights(source, a.w + batch * a.w_batch, tile_first(a.y_kind), a.n, a.k, a.y_kind);
  const bf16 *x = a.x + batch * a.x_batch + (u64)row0 * a.ldx + tile_column();
#pragma unroll
  for (u32 i = 0; i < TILE_X_COPIES; i++) {
    const u32 row = tile_row(i);
    source.x_bytes[i] = row < rows ? 16u : 0u;
    source.x[i] = x + (u64)(row < rows ? row : 0u) * a.ldx;
  }
  f32 acc[TILE_ACCUMULATORS];
  tile_product(acc, source, ring, a.k);
  tile_store(acc, a.y_kind, a.y, batch * a.y_batch + (u64)row0 * a.ldy, a.ldy, rows, a.n, ring, shared);
}
#endif

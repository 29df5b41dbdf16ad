/* fp8_gemm.cu - y[row][n] = the sum over blocks of 128 k of H32(x[row][:], w[n][:]) times both scales, as fp32, rounded once to bf16, or
 * bf16(silu(gate) * up). NUMERICS.md, `fp8_gemm`.
 *
 * x [rows][k] and w [n][k] e4m3, x_scale [rows][k / 128], w_scale [ceil(n / 128)][k / 128], y [rows][ldy]. n and ldy multiples of 8, k of
 * 128, for Y_SILU n / 2 too; pointers aligned to 16 bytes. Reads and writes rows as gemm.cu. Two forms:
 *   small M: as in gemm.cu with blocks of 128 k, and STAGES * K_BLOCKS * (max(TILE_ROWS, 8) + 4) * 4 bytes of shared memory more. With
 *     SPEC_ROW_TILES 2 the grid is a multiple of 2.
 *   large M (no SPEC_K_BLOCKS): SPEC_TILE_ROWS 64, 128 or 256, SPEC_DEPTH 1; 256 threads for tiles of 64 x 64, else 384. Dynamic shared
 *     memory: 1280 + STAGES * ((TILE_N + TILE_ROWS) * 128 + TILE_ROWS * 4 + 16) + 8192 bytes for each consumer warpgroup.
 * Read next: small_m_dense.cuh, large_m_dense.cuh. */
#include "spec.cuh"
#define GEMM_SCALED 1u
#ifdef SPEC_K_BLOCKS
#include "gemm/small_m_dense.cuh"
#else
#include "gemm/large_m_dense.cuh"
#endif

extern "C" __global__ GEMM_LAUNCH void fp8_gemm(const __grid_constant__ fp8_gemm_args a, const __grid_constant__ tensor_maps maps) {
  extern __shared__ u8 shared[];
  dense_run(a, 1u, 0u, maps, shared);
}

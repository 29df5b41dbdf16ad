/* gemm.cu - y[b][row][n] = H16(x[b][row][:], w[b][n][:]) as fp32, rounded once to bf16, or bf16(silu(gate) * up). NUMERICS.md, `gemm`.
 *
 * x [batches][rows][ldx], w [batches][n][k], y [batches][rows][ldy]. n, ldx and ldy multiples of 8, but n and ldy of fp32 results of 2, k
 * of 64; pointers aligned to 16 bytes. Reads no x row beyond the step's count into a result, and writes no y row beyond it. Two forms,
 * chosen by the plan:
 *   small M: SPEC_TILE_N 8, 16, .. 64 weight rows, SPEC_TILE_ROWS 1, 8, 16 or 32 tokens, SPEC_K_BLOCKS 1 to 16 blocks of 64 k in a stage,
 *     SPEC_STAGES 2 to 63. Grid min(132, tiles), 192 threads, dynamic shared memory as small_m.cuh lays it out.
 *   large M (no SPEC_K_BLOCKS): SPEC_TILE_N 64 or 128, SPEC_TILE_ROWS at most 32, 48, 64, .. 256 tokens, SPEC_STAGES 2 to 16, SPEC_DEPTH
 *     blocks of k in a stage, SPEC_CLUSTER CTAs along y, SPEC_CLUSTER_ROWS of them with the same weights. Grid (132 / CLUSTER, CLUSTER),
 *     128 + 2 * TILE_N threads, 1280 + STAGES * DEPTH * (TILE_N + TILE_ROWS) * 128 + TILE_N * 128 bytes of dynamic shared memory.
 * Read next: small_m_dense.cuh, large_m_dense.cuh. */
#include "spec.cuh"
#ifdef SPEC_K_BLOCKS
#include "gemm/small_m_dense.cuh"
#else
#include "gemm/large_m_dense.cuh"
#endif

extern "C" __global__ GEMM_LAUNCH void gemm(const __grid_constant__ gemm_args a, const __grid_constant__ tensor_maps maps) {
  extern __shared__ u8 shared[];
  dense_run(a, a.batches, a.y_batch, maps, shared);
}

/* moe_gemm.cu - y[row][n] = H16(x[row_token ? row_token[row] : row][:], w[expert of row][n][:]). NUMERICS.md, `moe_gemm`.
 *
 * The sorted rows of an expert are consecutive (expert_first [experts + 1]); x [.][ldx], w [experts][n][k], y [T * top_k][n], or n / 2 for
 * Y_SILU. n and ldx multiples of 8, k of 64; pointers aligned to 16 bytes. Experts without rows cost nothing. Two forms:
 *   small M: SPEC_* and shared memory as in gemm.cu, and 4 * (experts + 1) bytes more. Grid 132, 192 threads.
 *   large M (no SPEC_K_BLOCKS; sorted rows, row_token null): as in gemm.cu without SPEC_CLUSTER_ROWS and SPEC_DEPTH, and 8 * (experts + 1)
 *     bytes more.
 * Read next: small_m_experts.cuh, large_m_experts.cuh. */
#include "spec.cuh"
#ifdef SPEC_K_BLOCKS
#include "gemm/small_m_experts.cuh"
#else
#include "gemm/large_m_experts.cuh"
#endif

extern "C" __global__ GEMM_LAUNCH void moe_gemm(const __grid_constant__ moe_gemm_args a, const __grid_constant__ tensor_maps maps) {
  extern __shared__ u8 shared[];
  experts_run(a, maps, shared);
}

/* fp8_moe_gemm.cu - fp8_gemm for sorted rows, each with the weights of its expert. NUMERICS.md, `fp8_moe_gemm`.
 *
 * The sorted rows of an expert are consecutive (expert_first [experts + 1]); x and x_scale rows are those of row_token, or the sorted ones;
 * w [experts][n][k], w_scale [experts][ceil(n / 128)][k / 128], y [T * top_k][n], or n / 2 for Y_SILU. n a multiple of 8, k of 128, for
 * Y_SILU n / 2 too; pointers aligned to 16 bytes. Experts without rows cost nothing. Two forms:
 *   small M: SPEC_* and shared memory as in fp8_gemm.cu, and 4 * (experts + 1) bytes more. Grid 132, 192 threads.
 *   large M (no SPEC_K_BLOCKS; sorted rows, row_token null): as in fp8_gemm.cu without SPEC_CLUSTER_ROWS, and 8 * (experts + 1) bytes more.
 * Read next: small_m_experts.cuh, large_m_experts.cuh. */
#include "spec.cuh"
#define GEMM_SCALED 1u
#ifdef SPEC_K_BLOCKS
#include "gemm/small_m_experts.cuh"
#else
#include "gemm/large_m_experts.cuh"
#endif

extern "C" __global__ GEMM_LAUNCH void fp8_moe_gemm(const __grid_constant__ fp8_moe_gemm_args a, const __grid_constant__ tensor_maps maps) {
  extern __shared__ u8 shared[];
  experts_run(a, maps, shared);
}

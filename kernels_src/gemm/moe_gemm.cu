/* moe_gemm.cu - y[row][n] = H16(x[row_token ? row_token[row] : row][:], w[expert of row][n][:]). NUMERICS.md, `moe_gemm`.
 *
 * Sorted rows of one expert follow each other (expert_first [experts + 1]); x [.][ldx], w [experts][n][k], y [T * top_k][n], or n / 2
 * for Y_SILU. n a multiple of 8, k of 64, ldx of 8, pointers of 16 bytes. Two forms: with SPEC_K_BLOCKS that of moe_gemm_few.cuh, for few
 * rows an expert, else that of moe_gemm_many.cuh. Experts without rows cost nothing. Read next: either. */
#include "spec.cuh"
#ifdef SPEC_K_BLOCKS
#include "gemm/few.cuh"
#include "gemm/moe_gemm_few.cuh"
#else
#include "gemm/many_store.cuh"
#include "gemm/many.cuh"
#include "gemm/moe_gemm_many.cuh"
#endif

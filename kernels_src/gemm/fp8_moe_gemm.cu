/* fp8_moe_gemm.cu - as fp8_gemm, each sorted row with its expert's weights. NUMERICS.md, `fp8_moe_gemm`.
 *
 * Sorted rows of one expert follow each other (expert_first [experts + 1]); x and x_scale rows are those of row_token, or the sorted ones;
 * w [experts][n][k], w_scale [experts][ceil(n / 128)][k / 128], y [T * top_k][n], or n / 2 for Y_SILU. n a multiple of 8, k of 128, for
 * Y_SILU n / 2 too; pointers of 16 bytes. Two forms: with SPEC_K_BLOCKS that of fp8_moe_gemm_few.cuh, for few rows an expert, else that of
 * fp8_moe_gemm_many.cuh. Experts without rows cost nothing. Read next: either. */
#include "spec.cuh"
#ifdef SPEC_K_BLOCKS
#define FEW_SCALED 1u
#include "gemm/few.cuh"
#include "gemm/few_deal.cuh"
#include "gemm/few_scaled.cuh"
#include "gemm/fp8_moe_gemm_few.cuh"
#else
#define MANY_SCALED 1u
#include "gemm/many_store.cuh"
#include "gemm/many.cuh"
#include "gemm/fp8_moe_gemm_many.cuh"
#endif

/* fp8_moe_gemm.cu - fp8_gemm of sorted rows, each with its expert's weights. NUMERICS.md, `fp8_moe_gemm`.
 *
 * Sorted rows of one expert follow each other (expert_first [experts + 1]); x [.][k] and w [experts][n][k] e4m3, x_scale [.][k / 128],
 * w_scale [experts][ceil(n / 128)][k / 128], y [T * top_k][n], or n / 2 for Y_SILU. n a multiple of 8, k of 128, n / 2 of 128 for Y_SILU,
 * pointers of 16 bytes. Experts without rows cost nothing. Read next: fp8_moe_gemm_many.cuh. */
#include "spec.cuh"
#define MANY_SCALED 1u
#include "many_store.cuh"
#include "many.cuh"
#include "fp8_moe_gemm_many.cuh"

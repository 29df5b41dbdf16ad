/* fp8_gemm.cu - y[row][n] = the sum over 128 k each of H32(x[row][:], w[n][:]) times both scales, fp32, rounded once to bf16, or silu of
 * gate times up. NUMERICS.md, `fp8_gemm`.
 *
 * x [rows][k] and w [n][k] codes, x_scale [rows][k / 128], w_scale [ceil(n / 128)][k / 128], y [rows][ldy]. n and ldy multiples of 8, k of
 * 128, for Y_SILU n / 2 too; pointers of 16 bytes. Two forms: with SPEC_K_BLOCKS that of fp8_gemm_few.cuh, for few rows, else that of
 * fp8_gemm_many.cuh. Both read no row beyond the step's count into a result and write none. Read next: either. */
#include "spec.cuh"
#ifdef SPEC_K_BLOCKS
#define FEW_SCALED 1u
#include "gemm/few.cuh"
#include "gemm/few_scaled.cuh"
#include "gemm/fp8_gemm_few.cuh"
#else
#define MANY_SCALED 1u
#include "gemm/many_store.cuh"
#include "gemm/many.cuh"
#include "gemm/fp8_gemm_many.cuh"
#endif

/* fp8_gemm.cu - y[row][n] = the sum over blocks of 128 k of H32(x[row][:], w[n][:]) times both scales, fp32, rounded once to bf16, or silu
 * of gate times up. NUMERICS.md, `fp8_gemm`.
 *
 * x [rows][k] and w [n][k] e4m3, x_scale [rows][k / 128], w_scale [ceil(n / 128)][k / 128], y [rows][ldy]. n and ldy multiples of 8, k of
 * 128, n / 2 of 128 for Y_SILU, pointers of 16 bytes. It reads no row beyond the step's count into a result and writes none.
 * Read next: fp8_gemm_many.cuh. */
#include "spec.cuh"
#define MANY_SCALED 1u
#include "many_store.cuh"
#include "many.cuh"
#include "fp8_gemm_many.cuh"

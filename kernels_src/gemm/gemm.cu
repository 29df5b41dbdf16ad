/* gemm.cu - y[b][row][n] = H16(x[b][row][:], w[b][n][:]), fp32, rounded once to bf16, or silu of gate times up. NUMERICS.md, `gemm`.
 *
 * x [batches][rows][ldx], w [batches][n][k], y [batches][rows][ldy]. n and ldy multiples of 8, k of 64, ldx of 8, pointers of
 * 16 bytes. Two forms: with SPEC_K_BLOCKS that of gemm_few.cuh, for few rows, else that of gemm_many.cuh. Both read no row beyond the
 * step's count into a result and write none. Read next: either. */
#include "spec.cuh"
#ifdef SPEC_K_BLOCKS
#include "gemm/few.cuh"
#include "gemm/gemm_few.cuh"
#else
#include "gemm/many_store.cuh"
#include "gemm/many.cuh"
#include "gemm/gemm_many.cuh"
#endif

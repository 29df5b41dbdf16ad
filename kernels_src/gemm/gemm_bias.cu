/* gemm_bias.cu - y[row][n] = H16(x[row][:], w[n][:]) + bias[n] as fp32, rounded once to bf16, or bf16(silu(gate) * up). NUMERICS.md,
 * `gemm_bias`.
 *
 * x [rows][ldx], w [n][k], bias [n], y [rows][ldy]; all else as in gemm.cu, with its two forms. A thread loads the bias of its two columns
 * of a tile. Read next: small_m_dense.cuh, large_m_dense.cuh. */
#include "spec.cuh"
#define GEMM_BIAS 1u
#ifdef SPEC_K_BLOCKS
#include "gemm/small_m_dense.cuh"
#else
#include "gemm/large_m_dense.cuh"
#endif

extern "C" __global__ GEMM_LAUNCH void gemm_bias(const __grid_constant__ gemm_bias_args a, const __grid_constant__ tensor_maps maps) {
  extern __shared__ u8 shared[];
  dense_run(a, 1u, 0u, maps, shared);
}

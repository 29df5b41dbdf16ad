/* fp8_moe_gemm_many.cuh - fp8_moe_gemm for many rows an expert: moe_tiles.cuh of scaled e4m3 numbers.
 *
 * Bound: up to about 130 rows an expert the bytes of the weights, behind that as fp8_gemm_many.cuh. Tiles have whole 64s of rows.
 * On an H200, 256 experts, 8 a token, 4096 tokens, 4096 x 7168 with silu: 3269 us, 589 TFLOP/s; what is copied, without products, 1952 us,
 * 1.01 of the bytes. With tiles of 128 rows 3823, copies 2543, without scales 3275. */
#ifndef VERBATIM_FP8_MOE_GEMM_MANY_CUH
#define VERBATIM_FP8_MOE_GEMM_MANY_CUH
#include "gemm/moe_tiles.cuh"

extern "C" __global__ __cluster_dims__(1, SPEC_CLUSTER, 1) __launch_bounds__(SPEC_THREADS)
    void fp8_moe_gemm(const __grid_constant__ fp8_moe_gemm_args a, const __grid_constant__ tensor_maps maps) {
  extern __shared__ u8 shared[];
  moe_run(a, maps, shared);
}

#endif

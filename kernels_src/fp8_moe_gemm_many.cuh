/* fp8_moe_gemm_many.cuh - fp8_moe_gemm for many rows an expert: moe_tiles.cuh of scaled e4m3 numbers.
 *
 * Bound: up to about 130 rows an expert the bytes of the weights, behind that as fp8_gemm_many.cuh. Tiles have whole 64s of rows. */
#ifndef VERBATIM_FP8_MOE_GEMM_MANY_CUH
#define VERBATIM_FP8_MOE_GEMM_MANY_CUH
#include "moe_tiles.cuh"

extern "C" __global__ __cluster_dims__(1, SPEC_CLUSTER, 1) __launch_bounds__(SPEC_THREADS)
    void fp8_moe_gemm(const __grid_constant__ fp8_moe_gemm_args a, const __grid_constant__ tensor_maps maps) {
  extern __shared__ u8 shared[];
  moe_run(a, maps, shared);
}

#endif

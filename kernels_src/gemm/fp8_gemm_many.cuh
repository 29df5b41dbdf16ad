/* fp8_gemm_many.cuh - fp8_gemm for many rows: gemm_tiles.cuh of scaled e4m3 numbers.
 *
 * Bound: 2 * n * k FLOPs a row at 1,979 TFLOP/s and the clock of the data sheet, and many_scaled.cuh's cycles of shared memory: 256 x 128
 * tiles give at most 89 % of it. On an H200, 4096 rows, 7168 x 16384, in pairs with the same tokens: 863 us, 1,115 TFLOP/s (another
 * machine 883), at a clock of 1.5 GHz; 978 without pairs, 1,016 in pairs with the same weights; bands of 1024, 2048 and 4096 rows the
 * same. Copies without products take 654 us without pairs. Of few rows: the weights' bytes once. */
#ifndef VERBATIM_FP8_GEMM_MANY_CUH
#define VERBATIM_FP8_GEMM_MANY_CUH
#include "gemm/gemm_tiles.cuh"

extern "C" __global__ __cluster_dims__(1, SPEC_CLUSTER, 1) __launch_bounds__(SPEC_THREADS)
    void fp8_gemm(const __grid_constant__ fp8_gemm_args a, const __grid_constant__ tensor_maps maps) {
  extern __shared__ u8 shared[];
  gemm_run(a, 1u, 0u, maps, shared);
}

#endif

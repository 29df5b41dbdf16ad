/* gemm_many.cuh - gemm for many rows.
 *
 * gemm_tiles.cuh of bf16 numbers, any number of batches. */
#ifndef VERBATIM_GEMM_MANY_CUH
#define VERBATIM_GEMM_MANY_CUH
#include "gemm/gemm_tiles.cuh"

extern "C" __global__ __cluster_dims__(1, SPEC_CLUSTER, 1) __launch_bounds__(SPEC_THREADS)
    void gemm(const __grid_constant__ gemm_args a, const __grid_constant__ tensor_maps maps) {
  extern __shared__ u8 shared[];
  gemm_run(a, a.batches, a.y_batch, maps, shared);
}

#endif

/* moe_gemm_many.cuh - moe_gemm for many rows an expert: moe_tiles.cuh of bf16 numbers.
 *
 * On an H200, pairs of 128 x 256, 64 experts, 6 a token, 2048 x 1408, us, in brackets with equal widths in steps of 32, silu by branches
 * and stores by branches, in one run: gate and up of 2048 rows 248 (274), of 4096 rows 450 (493), of 8192 rows 829 (988); down 145 (148),
 * 243 (258), 443 (474). Without results 402 and 740, 203 and 373. With 512, 1024 and 1600 rows 197, 209, 233 and 107, 119, 135; by 128 x
 * 192 in five stages 189, 201, 223 and 103, 115, 130; by 128 x 128 in six 186, 197 and 102, 114.
 * 256 experts, 8 a token, 7168 x 2048, 4096 rows: 4016 and 2212; by 128 x 192 3896 and 2070, 484 TFLOP/s, where copies alone take 3871 and
 * 1826: weight rows of 14 KiB come at 4.0 TB/s, rows of 4 KiB at 4.7, and bytes at the 4.6 TB/s of plain reads would take 3400 and 1870.
 * Rows gathered one by one: 40 to 60 us more; to copy them into sorted order before costs 14, 32 and 64. Tried: pairs that share weights,
 * 1.4 times as long; clusters of four, of which fewer than 32 find room at once, 2.6 times. */
#ifndef VERBATIM_MOE_GEMM_MANY_CUH
#define VERBATIM_MOE_GEMM_MANY_CUH
#include "gemm/moe_tiles.cuh"

extern "C" __global__ __cluster_dims__(1, SPEC_CLUSTER, 1) __launch_bounds__(SPEC_THREADS)
    void moe_gemm(const __grid_constant__ moe_gemm_args a, const __grid_constant__ tensor_maps maps) {
  extern __shared__ u8 shared[];
  moe_run(a, maps, shared);
}

#endif

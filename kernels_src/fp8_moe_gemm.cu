/* fp8_moe_gemm.cu */
#include "spec.cuh"
#define MANY_SCALED 1u
#include "many_store.cuh"
#include "many.cuh"
#include "fp8_moe_gemm_many.cuh"

/* fp8_gemm.cu */
#include "spec.cuh"
#define MANY_SCALED 1u
#include "many_store.cuh"
#include "many.cuh"
#include "fp8_gemm_many.cuh"

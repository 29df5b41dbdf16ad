/* vectors.cuh - four neighbouring numbers of an fp32 row. */
#ifndef VERBATIM_VECTORS_CUH
#define VERBATIM_VECTORS_CUH
#include "num.h"

/* Elements i to i + 3 of a row of `count`. */
NUM float4 read4(const f32 *row, u32 i, u32 count) {
  return i < count ? *(const float4 *)(row + i) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
}
NUM float4 fma4(float4 a, f32 b, float4 c) {
  return make_float4(num_fma(a.x, b, c.x), num_fma(a.y, b, c.y), num_fma(a.z, b, c.z), num_fma(a.w, b, c.w));
}
NUM float4 add4(float4 a, float4 b) { return make_float4(num_add(a.x, b.x), num_add(a.y, b.y), num_add(a.z, b.z), num_add(a.w, b.w)); }

#endif

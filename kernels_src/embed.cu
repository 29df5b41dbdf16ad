/* embed.cu - x[t][:] = fp32(table[id][:]), exact. NUMERICS.md, `embed`.
 *
 * id = token[t], or sampled[-1 - token[t]] when token[t] < 0: the token the last step chose for that slot, which the host need
 * not have seen yet. table [vocab][hidden] bf16, x [T][hidden] fp32; hidden a multiple of 8. Grid: a block a token row.
 * Moves hidden * 6 bytes a row. */
#include "spec.cuh"
#include "num.h"

extern "C" __global__ __launch_bounds__(SPEC_THREADS) void embed(const __grid_constant__ embed_args a) {
  const u32 t = blockIdx.x;
  if (t >= a.step->token_count) return;
  const i32 token = a.token[t];
  const u64 id = (u32)(token >= 0 ? token : a.sampled[-1 - token]);
  const uint4 *from = (const uint4 *)(a.table + id * a.hidden);
  float4 *to = (float4 *)(a.x + (u64)t * a.hidden);
  for (u32 i = threadIdx.x; i < a.hidden / 8u; i += SPEC_THREADS) {
    const uint4 v = from[i]; /* eight bf16, the lower half of a word first */
    to[2 * i] = make_float4(num_float(v.x << 16), num_float(v.x & 0xffff0000u), num_float(v.y << 16), num_float(v.y & 0xffff0000u));
    to[2 * i + 1] = make_float4(num_float(v.z << 16), num_float(v.z & 0xffff0000u), num_float(v.w << 16), num_float(v.w & 0xffff0000u));
  }
}

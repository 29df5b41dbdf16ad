/* embed.cu - x[t][:] = fp32(table[id][:]) * scale. NUMERICS.md, `embed`.
 *
 * id = token[t], or sampled[-1 - token[t]] when token[t] < 0: the token that the previous step chose for that slot, which the host need not
 * know yet. The id also goes into history, if given. table [vocab][hidden] bf16, x [T][hidden] fp32; hidden a multiple of 8. Grid: rows.
 * 128 threads. Moves hidden * 6 bytes a row. */
#include "spec.cuh"
#include "ptx/ptx.cuh"

/* The two bf16 numbers of a word, the lower half first, times scale. */
NUM float2 widen(u32 pair, f32 scale) {
  return make_float2(num_mul(num_float(pair << 16), scale), num_mul(num_float(pair & 0xffff0000u), scale));
}

extern "C" __global__ __launch_bounds__(SPEC_THREADS) void embed(const __grid_constant__ embed_args a) {
  ptx_grid_next();
  const u32 t = blockIdx.x;
  const bool is_row = t < a.step->token_count;
  const i32 token = is_row ? a.token[t] : 0;
  ptx_grid_wait();
  if (!is_row) return;
  const u64 id = (u32)(token >= 0 ? token : a.sampled[-1 - token]);
  if (threadIdx.x == 0 && a.history) {
    const u32 position = a.position[t];
    const u64 page = a.block_table[(u64)a.seq[t] * a.block_table_stride + position / PAGE_TOKENS];
    a.history[page * PAGE_TOKENS + position % PAGE_TOKENS] = (i32)id;
  }
  const uint4 *from = (const uint4 *)(a.table + id * a.hidden);
  float4 *to = (float4 *)(a.x + (u64)t * a.hidden);
  for (u32 i = threadIdx.x; i < a.hidden / 8u; i += SPEC_THREADS) {
    const uint4 v = from[i];
    const float2 p = widen(v.x, a.scale), q = widen(v.y, a.scale), r = widen(v.z, a.scale), s = widen(v.w, a.scale);
    to[2 * i] = make_float4(p.x, p.y, q.x, q.y);
    to[2 * i + 1] = make_float4(r.x, r.y, s.x, s.y);
  }
}

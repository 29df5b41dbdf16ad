/* silu_mul.cu - y = bf16(silu(gate) * up). NUMERICS.md, `silu_mul`.
 *
 * gate_up [rows][2 * inter] fp32, gate columns first; y [rows][inter] bf16; rows = T * rows_mul; inter a multiple of 4. Grid: a
 * block a row. Moves inter * 10 bytes a row. */
#include "spec.cuh"
#include "ptx.cuh"

NUM f32 gated(f32 gate, f32 up) { return num_mul(num_silu(gate), up); }

extern "C" __global__ __launch_bounds__(SPEC_THREADS) void silu_mul(const __grid_constant__ silu_mul_args a) {
  ptx_grid_next();
  ptx_grid_wait();
  const u32 row = blockIdx.x, quads = a.inter / 4u;
  if (row >= a.step->token_count * a.rows_mul) return;
  const float4 *gate = (const float4 *)(a.gate_up + (u64)row * 2u * a.inter), *up = gate + quads;
  uint2 *y = (uint2 *)(a.y + (u64)row * a.inter);
  for (u32 i = threadIdx.x; i < quads; i += SPEC_THREADS) {
    const float4 g = gate[i], u = up[i];
    y[i] = make_uint2(ptx_pack_bf16(gated(g.x, u.x), gated(g.y, u.y)), ptx_pack_bf16(gated(g.z, u.z), gated(g.w, u.w)));
  }
}

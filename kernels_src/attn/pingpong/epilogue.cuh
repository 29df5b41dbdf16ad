/* attn/pingpong/epilogue.cuh - how a math warpgroup of the pingpong form stores its half of a token's output columns.
 *
 * Knows nothing of blocks. Read next: attn/pingpong/form.cuh. */
#ifndef VERBATIM_ATTN_PINGPONG_EPILOGUE_CUH
#define VERBATIM_ATTN_PINGPONG_EPILOGUE_CUH
#include "attn/pingpong/values.cuh"

/* bf16(O * (1 / l) + 0) of token number n. Only warpgroup 0 has l. */
template <u32 G> NUM void store_out(const mla_attn_args &a, const cta &b, const token &t, const output &out, u32 n) {
  f32 *sums = (f32 *)(b.shared + AT_SUMS + n % 2u * 256u); /* two tokens may be in flight */
  if (G == 0 && threadIdx.x % 4u == 0) {
    sums[head_of(0)] = out.l[0];
    sums[head_of(1)] = out.l[2];
  }
  ptx_warps_sync(3, 256);
#pragma unroll
  for (u32 h = 0; h < 2; h++) {
    const u32 head = b.rank * 64u + head_of(h), column = G * 256u + threadIdx.x % 4u * 2u;
    const f32 inverse = num_div(1.0f, sums[head_of(h)]);
    u32 *to = (u32 *)(a.out + ((u64)t.row * a.heads + head) * SPEC_KV_LORA_RANK + column);
    if (head >= a.heads) continue;
#pragma unroll
    for (u32 j = 0; j < 32; j++) {
      const f32 *o = out.o[j / 16u] + j % 16u * 4u + 2u * h;
      to[4u * j] = ptx_pack_bf16(num_add(num_mul(o[0], inverse), 0.0f), num_add(num_mul(o[1], inverse), 0.0f));
    }
  }
}

#endif

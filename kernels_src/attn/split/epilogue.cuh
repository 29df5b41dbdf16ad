/* attn/split/epilogue.cuh - how a value warpgroup of the split form stores its columns of a token's output.
 *
 * Knows nothing of stages. Read next: attn/split/form.cuh. */
#ifndef VERBATIM_ATTN_SPLIT_EPILOGUE_CUH
#define VERBATIM_ATTN_SPLIT_EPILOGUE_CUH
#include "attn/split/values.cuh"

/* bf16(O * (1 / l) + 0). */
NUM void store_out(const mla_attn_args &a, const cta &b, const token &t, const output &out, u32 group, u32 heads) {
  const u32 column = b.rank % SLICES * SLICE + (SHARERS > 1u ? group * COLUMNS : 0u) + threadIdx.x % 4u * 2u;
#pragma unroll
  for (u32 h = 0; h < 2; h++) {
    const u32 head = heads * 64u + head_of(h);
    const f32 inverse = num_div(1.0f, out.o[COLUMNS / 2u + 2u * h]);
    u32 *to = (u32 *)(a.out + ((u64)t.row * a.heads + head) * SPEC_KV_LORA_RANK + column);
    if (head >= a.heads) continue;
#pragma unroll
    for (u32 j = 0; j < COLUMNS / 8u; j++) {
      const f32 *o = out.o + 4u * j + 2u * h;
      to[4u * j] = ptx_pack_bf16(num_add(num_mul(o[0], inverse), 0.0f), num_add(num_mul(o[1], inverse), 0.0f));
    }
  }
}

#endif

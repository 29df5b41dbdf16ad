/* mla_fold.cu - folds the unit results that mla_attn left for each (token, head), and divides. NUMERICS.md, `mla_fold`.
 *
 * partial_o [T][units_max][heads][kv_lora_rank], partial_ml [T][units_max][heads][2] fp32, out [T][heads][kv_lora_rank] bf16. A
 * unit is unit_chunks (1 or group_chunks) chunks; a token at position p has p / (unit_chunks * chunk_tokens) + 1 of them, and no
 * others are read. Grid: x tokens, y heads. Moves kv_lora_rank * 4 bytes per unit. */
#include "spec.cuh"
#include "ptx.cuh"

/* (m, l, O) of four columns. */
typedef struct fold {
  f32 m, l;
  float4 o;
} fold;

/* One fold step; a is the left operand. */
NUM fold fold_step(fold a, fold b) {
  const f32 m = b.m > a.m ? b.m : a.m, fa = num_exp2_int(num_sub(a.m, m)), fb = num_exp2_int(num_sub(b.m, m));
  return {m, num_fma(b.l, fb, num_mul(a.l, fa)),
          make_float4(num_fma(b.o.x, fb, num_mul(a.o.x, fa)), num_fma(b.o.y, fb, num_mul(a.o.y, fa)),
                      num_fma(b.o.z, fb, num_mul(a.o.z, fa)), num_fma(b.o.w, fb, num_mul(a.o.w, fa)))};
}

extern "C" __global__ __launch_bounds__(SPEC_THREADS) void mla_fold(const __grid_constant__ mla_fold_args a) {
  ptx_grid_next();
  ptx_grid_wait();
  const u32 t = blockIdx.x, head = blockIdx.y;
  if (t >= a.step->token_count) return;
  const u32 units = a.position[t] / (a.unit_chunks * a.chunk_tokens) + 1, per_group = a.group_chunks / a.unit_chunks;
  const u64 first = (u64)t * a.units_max * a.heads + head;
  for (u32 i = threadIdx.x * 4u; i < a.kv_lora_rank; i += SPEC_THREADS * 4u) {
    fold all, group;
    for (u32 u = 0; u < units; u++) {
      const u64 at = first + (u64)u * a.heads;
      const float2 ml = ((const float2 *)a.partial_ml)[at];
      const fold unit = {ml.x, ml.y, *(const float4 *)(a.partial_o + at * a.kv_lora_rank + i)};
      group = u % per_group == 0 ? unit : fold_step(group, unit);
      if (u % per_group == per_group - 1 || u == units - 1) all = u < per_group ? group : fold_step(all, group);
    }
    const f32 r = num_div(1.0f, all.l);
    const f32 x = num_add(num_mul(all.o.x, r), 0.0f), y = num_add(num_mul(all.o.y, r), 0.0f);
    const f32 z = num_add(num_mul(all.o.z, r), 0.0f), w = num_add(num_mul(all.o.w, r), 0.0f);
    *(uint2 *)(a.out + ((u64)t * a.heads + head) * a.kv_lora_rank + i) = make_uint2(ptx_pack_bf16(x, y), ptx_pack_bf16(z, w));
  }
}

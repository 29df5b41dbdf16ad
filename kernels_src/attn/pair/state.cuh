/* attn/pair/state.cuh - the running result (m, l, O) of an output warpgroup of attn/pair/form.cuh: fold, what waits in memory, and how
 * units and outputs are stored. NUMERICS.md, "Fold". Knows nothing of blocks. Read next: attn/pair/outputs.cuh. */
#ifndef VERBATIM_PAIR_STATE_CUH
#define VERBATIM_PAIR_STATE_CUH
#include "attn/pair/layout.cuh"

/* Folded (m, l, O) of the thread's two rows. */
typedef struct chain {
  f32 m[2], l[2], o[OUTPUTS];
} chain;

/* left = the fold of left and right for rows that have tokens from position start on; the others keep left. */
NUM void fold(chain &left, const f32 (&m)[2], const f32 (&l)[4], const f32 (&o)[OUTPUTS], const rows &r, u32 start) {
  f32 fa[2], fb[2];
  bool live[2];
#pragma unroll
  for (u32 h = 0; h < 2; h++) {
    live[h] = r.position[h] >= (i32)start;
    const f32 top = live[h] ? fmaxf(left.m[h], m[h]) : left.m[h];
    fa[h] = num_exp2_int(num_sub(left.m[h], top));
    fb[h] = num_exp2_int(num_sub(m[h], top));
    left.m[h] = top;
    left.l[h] = live[h] ? num_fma(l[2u * h], fb[h], num_mul(left.l[h], fa[h])) : left.l[h];
  }
#pragma unroll
  for (u32 i = 0; i < OUTPUTS; i++) {
    const u32 h = i / 2u % 2u;
    left.o[i] = live[h] ? num_fma(o[i], fb[h], num_mul(left.o[i], fa[h])) : left.o[i];
  }
}

/* How the fold of the groups so far (left, if there is one) and the one that ends (right) meet: factors, and the new m and l. Rows that
 * have no tokens from position start on keep what is on the left. */
typedef struct meeting {
  bool any, live[2];
  f32 left[2], right[2], m[2], l[2];
} meeting;

NUM meeting meet(const chain &right, const f32 (&m)[2], const f32 (&l)[2], const rows &r, u32 start) {
  meeting meets;
  meets.any = start > 0;
#pragma unroll
  for (u32 h = 0; h < 2; h++) {
    const f32 top = fmaxf(m[h], right.m[h]);
    meets.live[h] = !meets.any || r.position[h] >= (i32)start;
    meets.left[h] = meets.any ? num_exp2_int(num_sub(m[h], top)) : 0.0f;
    meets.right[h] = meets.any ? num_exp2_int(num_sub(right.m[h], top)) : 1.0f;
    meets.m[h] = !meets.any ? right.m[h] : meets.live[h] ? top : m[h];
    meets.l[h] = !meets.any ? right.l[h] : meets.live[h] ? num_fma(right.l[h], meets.right[h], num_mul(l[h], meets.left[h])) : l[h];
  }
  return meets;
}

/* Elements 4 * j and the next three of both. */
NUM float4 joined(const meeting &meets, const chain &right, const float4 *saved, u32 j) {
  const float4 left = meets.any ? saved[j * 256u] : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  const f32 *o = right.o + 4u * j;
  return make_float4(meets.live[0] ? num_fma(o[0], meets.right[0], num_mul(left.x, meets.left[0])) : left.x,
                     meets.live[0] ? num_fma(o[1], meets.right[0], num_mul(left.y, meets.left[0])) : left.y,
                     meets.live[1] ? num_fma(o[2], meets.right[1], num_mul(left.z, meets.left[1])) : left.z,
                     meets.live[1] ? num_fma(o[3], meets.right[1], num_mul(left.w, meets.left[1])) : left.w);
}

/* Only group 0 sums the weights: l from there. Two items may be under way. */
NUM void share_sums(const place &p, meeting &meets, u32 n, u32 group) {
  f32 *sums = (f32 *)(p.shared + AT_SUMS + n % 2u * 256u);
  if (group == 0 && threadIdx.x % 4u == 0) {
    sums[row_of(0)] = meets.l[0];
    sums[row_of(1)] = meets.l[1];
  }
  ptx_warps_sync(3, 256);
  if (group == 0) return;
  meets.l[0] = sums[row_of(0)];
  meets.l[1] = sums[row_of(1)];
}

/* bf16(O * (1 / l) + 0) of a whole context. */
NUM void write_out(const mla_attn_args &a, const item &it, const meeting &meets, const chain &c, const float4 *saved, const rows &r,
                   u32 column) {
  const f32 share[2] = {num_div(1.0f, meets.l[0]), num_div(1.0f, meets.l[1])};
  u32 *const out[2] = {(u32 *)(a.out + pair_of(a, it, it.tile.row, 0) * SPEC_KV_LORA_RANK + column),
                       (u32 *)(a.out + pair_of(a, it, it.tile.row, 1) * SPEC_KV_LORA_RANK + column)};
#pragma unroll
  for (u32 j = 0; j < OUTPUTS / 4u; j++) {
    const float4 o = joined(meets, c, saved, j);
    const u32 top = ptx_pack_bf16(num_add(num_mul(o.x, share[0]), 0.0f), num_add(num_mul(o.y, share[0]), 0.0f));
    const u32 low = ptx_pack_bf16(num_add(num_mul(o.z, share[1]), 0.0f), num_add(num_mul(o.w, share[1]), 0.0f));
    if (r.position[0] >= 0) out[0][4u * j] = top;
    if (r.position[1] >= 0) out[1][4u * j] = low;
  }
}

/* The partial result of a cut tile's unit: so many rows behind the first one. */
NUM void store_unit(const mla_attn_args &a, const item &it, const chain &c, const rows &r, u64 behind, u32 column) {
#pragma unroll
  for (u32 h = 0; h < 2; h++) {
    if (r.position[h] < 0) continue;
    const u64 row = pair_of(a, it, it.slot, h) + behind;
    f32 *out = a.partial_o + row * SPEC_KV_LORA_RANK + column;
#pragma unroll
    for (u32 j = 0; j < OUTPUTS / 4u; j++) *(float2 *)(out + 8u * j) = make_float2(c.o[4u * j + 2u * h], c.o[4u * j + 2u * h + 1u]);
    if (column == 0) *(float2 *)(a.partial_ml + row * 2u) = make_float2(c.m[h], c.l[h]);
  }
}

/* The same of all groups of the tile's first piece, which are one unit. */
NUM void store_groups(const mla_attn_args &a, const item &it, const meeting &meets, const chain &c, const float4 *saved, const rows &r,
                      u32 column) {
  const u64 row[2] = {pair_of(a, it, it.slot, 0), pair_of(a, it, it.slot, 1)};
#pragma unroll
  for (u32 j = 0; j < OUTPUTS / 4u; j++) {
    const float4 o = joined(meets, c, saved, j);
    if (r.position[0] >= 0) *(float2 *)(a.partial_o + row[0] * SPEC_KV_LORA_RANK + column + 8u * j) = make_float2(o.x, o.y);
    if (r.position[1] >= 0) *(float2 *)(a.partial_o + row[1] * SPEC_KV_LORA_RANK + column + 8u * j) = make_float2(o.z, o.w);
  }
#pragma unroll
  for (u32 h = 0; h < 2; h++)
    if (column == 0 && r.position[h] >= 0) *(float2 *)(a.partial_ml + row[h] * 2u) = make_float2(meets.m[h], meets.l[h]);
}

#endif

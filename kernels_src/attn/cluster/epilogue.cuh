/* attn/cluster/epilogue.cuh - the running result (m, l, O) of a value warpgroup of the cluster form: folds of chunks and groups, what is
 * saved in memory meanwhile, and how units and outputs are stored. NUMERICS.md, "Fold".
 *
 * Knows nothing of blocks. Read next: attn/cluster/values.cuh. */
#ifndef VERBATIM_ATTN_CLUSTER_EPILOGUE_CUH
#define VERBATIM_ATTN_CLUSTER_EPILOGUE_CUH
#include "attn/cluster/layout.cuh"

/* The folded (m, l, O) of the thread's two rows. */
typedef struct chain {
  f32 m[2], l[2], o[OUTPUTS];
} chain;

/* left = fold(left, right) in rows that have tokens from position `start` on; the other rows keep left. */
NUM void fold(chain &left, const f32 (&m)[2], const f32 (&l)[4], const f32 (&o)[OUTPUTS], const query_rows &r, u32 start) {
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

/* The fold of the earlier groups (left, if any) and the group that ends (right): factors, new m and l. Rows without tokens from position
 * `start` on keep left. */
typedef struct group_fold {
  bool any, live[2];
  f32 left[2], right[2], m[2], l[2];
} group_fold;

NUM group_fold fold_groups(const chain &right, const f32 (&m)[2], const f32 (&l)[2], const query_rows &r, u32 start) {
  group_fold sum;
  sum.any = start > 0;
#pragma unroll
  for (u32 h = 0; h < 2; h++) {
    const f32 top = fmaxf(m[h], right.m[h]);
    sum.live[h] = !sum.any || r.position[h] >= (i32)start;
    sum.left[h] = sum.any ? num_exp2_int(num_sub(m[h], top)) : 0.0f;
    sum.right[h] = sum.any ? num_exp2_int(num_sub(right.m[h], top)) : 1.0f;
    sum.m[h] = !sum.any ? right.m[h] : sum.live[h] ? top : m[h];
    sum.l[h] = !sum.any ? right.l[h] : sum.live[h] ? num_fma(right.l[h], sum.right[h], num_mul(l[h], sum.left[h])) : l[h];
  }
  return sum;
}

/* Elements 4 * j .. 4 * j + 3 of the folded O. */
NUM float4 folded(const group_fold &sum, const chain &right, const float4 *saved, u32 j) {
  const float4 left = sum.any ? saved[j * 256u] : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  const f32 *o = right.o + 4u * j;
  return make_float4(sum.live[0] ? num_fma(o[0], sum.right[0], num_mul(left.x, sum.left[0])) : left.x,
                     sum.live[0] ? num_fma(o[1], sum.right[0], num_mul(left.y, sum.left[0])) : left.y,
                     sum.live[1] ? num_fma(o[2], sum.right[1], num_mul(left.z, sum.left[1])) : left.z,
                     sum.live[1] ? num_fma(o[3], sum.right[1], num_mul(left.w, sum.left[1])) : left.w);
}

/* Only group 0 sums probabilities: the other takes l from it. Two items may be in flight. */
NUM void share_sums(const cta &b, group_fold &sum, u32 n, u32 group) {
  f32 *sums = (f32 *)(b.shared + AT_SUMS + n % 2u * 256u);
  if (group == 0 && threadIdx.x % 4u == 0) {
    sums[row_of(0)] = sum.l[0];
    sums[row_of(1)] = sum.l[1];
  }
  ptx_warps_sync(3, 256);
  if (group == 0) return;
  sum.l[0] = sums[row_of(0)];
  sum.l[1] = sums[row_of(1)];
}

/* bf16(O * (1 / l) + 0) of a whole context. */
NUM void store_out(const mla_attn_args &a, const item &it, const group_fold &sum, const chain &c, const float4 *saved,
                   const query_rows &r, u32 column) {
  const f32 inverse[2] = {num_div(1.0f, sum.l[0]), num_div(1.0f, sum.l[1])};
  u32 *const out[2] = {(u32 *)(a.out + query_of(a, it, it.tile.row, 0) * SPEC_KV_LORA_RANK + column),
                       (u32 *)(a.out + query_of(a, it, it.tile.row, 1) * SPEC_KV_LORA_RANK + column)};
#pragma unroll
  for (u32 j = 0; j < OUTPUTS / 4u; j++) {
    const float4 o = folded(sum, c, saved, j);
    const u32 top = ptx_pack_bf16(num_add(num_mul(o.x, inverse[0]), 0.0f), num_add(num_mul(o.y, inverse[0]), 0.0f));
    const u32 low = ptx_pack_bf16(num_add(num_mul(o.z, inverse[1]), 0.0f), num_add(num_mul(o.w, inverse[1]), 0.0f));
    if (r.position[0] >= 0) out[0][4u * j] = top;
    if (r.position[1] >= 0) out[1][4u * j] = low;
  }
}

/* Stores the partial result of a unit of a split tile, `rows_after` rows after the tile's first unit. */
NUM void store_unit(const mla_attn_args &a, const item &it, const chain &c, const query_rows &r, u64 rows_after, u32 column) {
#pragma unroll
  for (u32 h = 0; h < 2; h++) {
    if (r.position[h] < 0) continue;
    const u64 row = query_of(a, it, it.slot, h) + rows_after;
    f32 *out = a.partial_o + row * SPEC_KV_LORA_RANK + column;
#pragma unroll
    for (u32 j = 0; j < OUTPUTS / 4u; j++) *(float2 *)(out + 8u * j) = make_float2(c.o[4u * j + 2u * h], c.o[4u * j + 2u * h + 1u]);
    if (column == 0) *(float2 *)(a.partial_ml + row * 2u) = make_float2(c.m[h], c.l[h]);
  }
}

/* The same for the groups of a split tile's first piece, which are one unit. */
NUM void store_groups(const mla_attn_args &a, const item &it, const group_fold &sum, const chain &c, const float4 *saved,
                      const query_rows &r, u32 column) {
  const u64 row[2] = {query_of(a, it, it.slot, 0), query_of(a, it, it.slot, 1)};
#pragma unroll
  for (u32 j = 0; j < OUTPUTS / 4u; j++) {
    const float4 o = folded(sum, c, saved, j);
    if (r.position[0] >= 0) *(float2 *)(a.partial_o + row[0] * SPEC_KV_LORA_RANK + column + 8u * j) = make_float2(o.x, o.y);
    if (r.position[1] >= 0) *(float2 *)(a.partial_o + row[1] * SPEC_KV_LORA_RANK + column + 8u * j) = make_float2(o.z, o.w);
  }
#pragma unroll
  for (u32 h = 0; h < 2; h++)
    if (column == 0 && r.position[h] >= 0) *(float2 *)(a.partial_ml + row[h] * 2u) = make_float2(sum.m[h], sum.l[h]);
}

#endif

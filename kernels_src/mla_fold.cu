/* mla_fold.cu - folds the units that mla_attn left of cut tiles, and divides. NUMERICS.md, `mla_fold`.
 *
 * partial_o [slots][heads][kv_lora_rank], partial_ml [slots][heads][2] fp32, out [T][heads][kv_lora_rank] bf16; which tokens are cut
 * and where their units are stands in parts, which attn_cut made. A warp takes a slice of a row (token, head) at a time: 1 to 8 columns
 * of each lane, as few as there are warps for, and so many units at once that their words fill its registers.
 * A block is so small that it comes to a multiprocessor beside one of mla_decode.cuh, and waits there for the last of these.
 * Grid: any number of blocks. Moves kv_lora_rank * 4 bytes per unit.
 * Lost: a block of eight groups for every slice, 12 us behind 16 x 1,024 tokens on an H200 where 2 MB are folded; blocks that come when
 * the attention has left, 3 to 5 us more a layer; warps that fold a slice's groups side by side and meet in shared memory. */
#include "spec.cuh"
#include "attn_cut.h"
#include "ptx.cuh"

#define WARPS (SPEC_THREADS / 32u)
#define COLUMNS_MAX 8u /* of a lane: with 16 registers hold only two units */

/* (m, l, O) of a lane's columns. */
template <u32 C> struct fold {
  f32 m, l, o[C];
};

/* Of a unit and its group: the larger maximum, and by what the group's fold so far (left) and the unit (right) are multiplied. */
typedef struct factors {
  f32 m, left, right;
} factors;

/* One fold step; a is the left operand, and the result. */
template <u32 C> NUM void fold_step(fold<C> &a, const fold<C> &b) {
  const f32 m = b.m > a.m ? b.m : a.m, fa = num_exp2_int(num_sub(a.m, m)), fb = num_exp2_int(num_sub(b.m, m));
  a.m = m;
  a.l = num_fma(b.l, fb, num_mul(a.l, fa));
#pragma unroll
  for (u32 i = 0; i < C; i++) a.o[i] = num_fma(b.o[i], fb, num_mul(a.o[i], fa));
}

/* Column of a slice where the lane's first four lie, or all of them where it has fewer; the next four lie 128 further. */
template <u32 C> NUM u32 lane_column() { return threadIdx.x % 32u * (C < 4u ? C : 4u); }

template <u32 C> NUM void load(f32 (&o)[C], const f32 *from) {
  if constexpr (C == 1u) {
    o[0] = *from;
  } else if constexpr (C == 2u) {
    const float2 x = *(const float2 *)from;
    o[0] = x.x;
    o[1] = x.y;
  } else {
#pragma unroll
    for (u32 i = 0; i < C; i += 4u) {
      const float4 x = *(const float4 *)(from + i * 32u);
      o[i] = x.x;
      o[i + 1u] = x.y;
      o[i + 2u] = x.z;
      o[i + 3u] = x.w;
    }
  }
}

/* bf16(O * (1 / l) + 0). */
template <u32 C> NUM void store_out(bf16 *to, const fold<C> &all) {
  const f32 r = num_div(1.0f, all.l);
  f32 x[C];
#pragma unroll
  for (u32 i = 0; i < C; i++) x[i] = num_add(num_mul(all.o[i], r), 0.0f);
  if constexpr (C == 1u) {
    *to = (bf16)ptx_pack_bf16(x[0], 0.0f);
  } else if constexpr (C == 2u) {
    *(u32 *)to = ptx_pack_bf16(x[0], x[1]);
  } else {
#pragma unroll
    for (u32 i = 0; i < C; i += 4u)
      *(uint2 *)(to + i * 32u) = make_uint2(ptx_pack_bf16(x[i], x[i + 1u]), ptx_pack_bf16(x[i + 2u], x[i + 3u]));
  }
}

/* What the lane's unit, number `unit` of its row, does to the fold of its group so far: the maximum behind it, and both factors. m: its
 * own; carried: the maximum of the group in front of lane 0. Maxima may be taken in any order, so that no unit waits for the one before. */
NUM factors factors_of(f32 m, f32 carried, u32 unit, u32 per_group) {
  const u32 lane = threadIdx.x % 32u, in_group = unit % per_group;
  f32 most = in_group > lane && carried > m ? carried : m;
#pragma unroll
  for (u32 d = 1; d < 32u; d *= 2u) {
    const f32 other = __shfl_up_sync(WARP_ALL, most, d);
    if (lane >= d && in_group >= d && other > most) most = other;
  }
  const f32 before = __shfl_up_sync(WARP_ALL, most, 1u);
  return {most, num_exp2_int(num_sub(lane == 0 ? carried : before, most)), num_exp2_int(num_sub(m, most))};
}

/* Units 0 .. count - 1 of a row in order, per_group to a group; at, step: where unit 0 lies, and from one to the next. One warp. */
template <u32 C> NUM fold<C> fold_units(const mla_fold_args &a, u32 at, u32 step, u32 count, u32 per_group, u32 column) {
  constexpr u32 AT_ONCE = C <= 2u ? 32u : 64u / C; /* units under way */
  const u32 lane = threadIdx.x % 32u;
  const f32 *o = a.partial_o + (u64)at * a.kv_lora_rank + column;
  fold<C> all = {}, group = {};
  u32 nth = 0; /* in its group */
  for (u32 from = 0; from < count; from += AT_ONCE) {
    const u32 left = count - from;
    f32 next[AT_ONCE][C];
    float2 ml = make_float2(0.0f, 0.0f); /* of the lane's unit */
    if (lane < AT_ONCE && lane < left) ml = ((const float2 *)a.partial_ml)[at + (from + lane) * step];
#pragma unroll
    for (u32 i = 0; i < AT_ONCE; i++) {
      if (i >= left) break;
      load<C>(next[i], o);
      o += (u64)step * a.kv_lora_rank;
    }
    const factors own = factors_of(ml.x, group.m, from + lane, per_group);
#pragma unroll
    for (u32 i = 0; i < AT_ONCE; i++) {
      const u32 unit = from + i;
      if (i >= left) break;
      const f32 l = __shfl_sync(WARP_ALL, ml.y, i);
      if (nth == 0) {
        group.l = l;
#pragma unroll
        for (u32 c = 0; c < C; c++) group.o[c] = next[i][c];
      } else {
        const f32 left_by = __shfl_sync(WARP_ALL, own.left, i), right_by = __shfl_sync(WARP_ALL, own.right, i);
        group.l = num_fma(l, right_by, num_mul(group.l, left_by));
#pragma unroll
        for (u32 c = 0; c < C; c++) group.o[c] = num_fma(next[i][c], right_by, num_mul(group.o[c], left_by));
      }
      group.m = __shfl_sync(WARP_ALL, own.m, i);
      nth++;
      if (nth < per_group && unit + 1u < count) continue;
      if (unit < per_group) all = group;
      else fold_step(all, group);
      nth = 0;
    }
  }
  return all;
}

/* All slices of C columns a lane. */
template <u32 C> NUM void fold_slices(const mla_fold_args &a, const attn_counts &counts) {
  const u32 slices = a.kv_lora_rank / (32u * C), per_group = attn_group_units(counts.piece_chunks, a.group_chunks);
  for (u32 nth = blockIdx.x * WARPS + threadIdx.x / 32u; nth < counts.parts * a.heads * slices; nth += gridDim.x * WARPS) {
    const u32 row = nth / slices, head = row % a.heads, column = nth % slices * (32u * C) + lane_column<C>();
    const attn_part part = a.parts[row / a.heads];
    ptx_grid_wait(); /* for the attention: from here on its units are there */
    const u32 most = per_group == 1u ? part.units : per_group; /* groups of one unit are folded like units of one group */
    const fold<C> all = fold_units<C>(a, part.first * a.heads + head, part.step * a.heads, part.units, most, column);
    store_out<C>(a.out + (u64)(part.token * a.heads + head) * a.kv_lora_rank + column, all);
  }
}

extern "C" __global__ __launch_bounds__(SPEC_THREADS, 4) void mla_fold(const __grid_constant__ mla_fold_args a) {
  ptx_grid_next();
  const attn_counts counts = *a.counts; /* written in front of all layers: attn_cut.cu */
  u32 columns = 1;
  while (columns < COLUMNS_MAX && columns * 32u < a.kv_lora_rank &&
         counts.parts * a.heads * (a.kv_lora_rank / (32u * columns)) > gridDim.x * WARPS)
    columns *= 2u;
  switch (columns) {
    case 1: fold_slices<1>(a, counts); break;
    case 2: fold_slices<2>(a, counts); break;
    case 4: fold_slices<4>(a, counts); break;
    default: fold_slices<COLUMNS_MAX>(a, counts); break;
  }
  ptx_grid_wait(); /* without work as well: what ends in front of the attention would let the next kernel pass it */
}

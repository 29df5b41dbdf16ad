/* mla_fold.cu - folds the units that mla_attn left of cut tiles, and divides. NUMERICS.md, `mla_fold`.
 *
 * partial_o [slots][heads][kv_lora_rank], partial_ml [slots][heads][2] fp32, out [T][heads][kv_lora_rank] bf16; which tokens are cut
 * and where their units are stands in parts, which attn_cut made. A slice is (token, head, 128 columns). Where there are more slices than
 * warps, a warp takes two neighbouring ones at a time; else one, or where tokens have several groups, up to four warps take one:
 * they fold groups side by side, and the first of them the groups' results.
 * A block is so small that it comes to a multiprocessor beside one of mla_decode.cuh, and waits there for the last of these.
 * Grid: any number of blocks. Moves kv_lora_rank * 4 bytes per unit. On an H200, in a graph of overlapping calls, us behind 1, 16 and 64
 * times 1,024 tokens of 16 heads: 1.4, 1.6, 4.2.
 * Lost: a block of eight groups for every slice, 12 us behind 16 x 1,024 tokens on an H200 where 2 MB are folded; blocks that come when
 * the attention has left, 3 to 5 us more a layer; whole rows for a warp, which leaves warps without work; as few columns a lane as there
 * are warps for, without warps that meet: 3 us behind 1 x 8,192 tokens and 9 behind 1 x 32,768, where many units are read by few bytes. */
#include "spec.cuh"
#include "attn_cut.h"
#include "ptx.cuh"

static_assert(SPEC_THREADS == 128, "four groups a round");
#define WARPS (SPEC_THREADS / 32u)
#define SLICE 128u  /* columns: four of each lane */

/* (m, l, O) of four columns in each of W slices. */
template <u32 W> struct fold {
  f32 m, l;
  float4 o[W];
};

/* One fold step; a is the left operand, and the result. */
template <u32 W> NUM void fold_step(fold<W> &a, const fold<W> &b) {
  const f32 m = b.m > a.m ? b.m : a.m, fa = num_exp2_int(num_sub(a.m, m)), fb = num_exp2_int(num_sub(b.m, m));
  a.m = m;
  a.l = num_fma(b.l, fb, num_mul(a.l, fa));
#pragma unroll
  for (u32 w = 0; w < W; w++)
    a.o[w] = make_float4(num_fma(b.o[w].x, fb, num_mul(a.o[w].x, fa)), num_fma(b.o[w].y, fb, num_mul(a.o[w].y, fa)),
                         num_fma(b.o[w].z, fb, num_mul(a.o[w].z, fa)), num_fma(b.o[w].w, fb, num_mul(a.o[w].w, fa)));
}

/* Units 0 .. count - 1 of a token and head in order, per_group to a group; at, step: the row of unit 0, and from one to the next. */
template <u32 W> NUM fold<W> fold_units(const mla_fold_args &a, u32 at, u32 step, u32 count, u32 per_group, u32 column) {
  constexpr u32 AT_ONCE = 8u / W; /* units under way */
  fold<W> all = {}, group = {};
  u32 nth = 0; /* in its group */
  for (u32 from = 0; from < count; from += AT_ONCE) {
    fold<W> next[AT_ONCE];
#pragma unroll
    for (u32 i = 0; i < AT_ONCE; i++) {
      if (from + i >= count) break;
      const u32 row = at + (from + i) * step;
      const float2 ml = ((const float2 *)a.partial_ml)[row];
      next[i].m = ml.x;
      next[i].l = ml.y;
#pragma unroll
      for (u32 w = 0; w < W; w++) next[i].o[w] = *(const float4 *)(a.partial_o + (u64)row * a.kv_lora_rank + w * SLICE + column);
    }
#pragma unroll
    for (u32 i = 0; i < AT_ONCE; i++) {
      const u32 unit = from + i;
      if (unit >= count) break;
      if (nth == 0) group = next[i];
      else fold_step(group, next[i]);
      nth++;
      if (nth < per_group && unit + 1u < count) continue;
      if (unit < per_group) all = group;
      else fold_step(all, group);
      nth = 0;
    }
  }
  return all;
}

/* bf16(O * (1 / l) + 0). */
template <u32 W> NUM void store_out(bf16 *to, const fold<W> &all) {
  const f32 r = num_div(1.0f, all.l);
#pragma unroll
  for (u32 w = 0; w < W; w++) {
    const f32 x = num_add(num_mul(all.o[w].x, r), 0.0f), y = num_add(num_mul(all.o[w].y, r), 0.0f);
    const f32 z = num_add(num_mul(all.o[w].z, r), 0.0f), v = num_add(num_mul(all.o[w].w, r), 0.0f);
    *(uint2 *)(to + w * SLICE) = make_uint2(ptx_pack_bf16(x, y), ptx_pack_bf16(z, v));
  }
}

/* W slices of a token and head, the lane's columns of them. */
typedef struct place {
  u32 row, column;     /* row: token * heads + head       */
  u32 at, step, units; /* row of unit 0, from one to the next, how many */
} place;

template <u32 W> NUM place place_of(const mla_fold_args &a, u32 nth) {
  const u32 slices = a.kv_lora_rank / (SLICE * W), head = nth / slices % a.heads;
  const attn_part part = a.parts[nth / (a.heads * slices)];
  const u32 column = nth % slices * (SLICE * W) + threadIdx.x % 32u * 4u;
  return {part.token * a.heads + head, column, part.first * a.heads + head, part.step * a.heads, part.units};
}

NUM bf16 *out_of(const mla_fold_args &a, const place &p) { return a.out + (u64)p.row * a.kv_lora_rank + p.column; }

/* Two slices at a time; count: of such pairs. */
NUM void fold_pairs(const mla_fold_args &a, u32 count, u32 per_group) {
  for (u32 nth = blockIdx.x * WARPS + threadIdx.x / 32u; nth < count; nth += gridDim.x * WARPS) {
    const place p = place_of<2>(a, nth);
    ptx_grid_wait(); /* for the attention: from here on its units are there */
    store_out(out_of(a, p), fold_units<2>(a, p.at, p.step, p.units, per_group, p.column));
  }
}

/* A slice by `lanes` warps; several take its groups side by side, in as many rounds as the token with most units needs. */
NUM void fold_slice(const mla_fold_args &a, fold<1> (&groups)[WARPS][32], u32 slice, bool exists, u32 lanes, u32 most, u32 per_group) {
  const u32 warp = threadIdx.x / 32u, lane = threadIdx.x % 32u;
  const place p = place_of<1>(a, exists ? slice : 0u);
  fold<1> all = {};
  ptx_grid_wait();
  for (u32 from = 0; from < most; from += lanes * per_group) {
    const u32 unit = from + warp % lanes * per_group, left = p.units - unit;
    fold<1> own = {};
    const u32 count = lanes > 1u && left > per_group ? per_group : left;
    if (exists && unit < p.units) own = fold_units<1>(a, p.at + unit * p.step, p.step, count, per_group, p.column);
    if (lanes == 1u) {
      all = own;
      break;
    }
    groups[warp][lane] = own;
    __syncthreads();
    for (u32 i = 0; i < lanes && from + i * per_group < p.units && warp % lanes == 0; i++) {
      if (from + i == 0) all = own;
      else fold_step(all, groups[warp + i][lane]);
    }
    __syncthreads(); /* the groups have been read */
  }
  if (exists && warp % lanes == 0) store_out(out_of(a, p), all);
}

extern "C" __global__ __launch_bounds__(SPEC_THREADS, 4) void mla_fold(const __grid_constant__ mla_fold_args a) {
  __shared__ fold<1> groups[WARPS][32];
  ptx_grid_next();
  const attn_counts counts = *a.counts; /* written in front of all layers: attn_cut.cu */
  const u32 slices = counts.parts * a.heads * (a.kv_lora_rank / SLICE), warps = gridDim.x * WARPS, most = counts.units_most;
  const u32 per_group = attn_group_units(counts.piece_chunks, a.group_chunks);
  if (slices > warps) {
    fold_pairs(a, slices / 2u, per_group);
  } else {
    u32 lanes = 1;
    while (lanes * per_group < most && lanes < WARPS && slices * lanes * 2u <= warps) lanes *= 2u;
    const u32 at_once = WARPS / lanes, warp = threadIdx.x / 32u;
    for (u32 i = blockIdx.x * at_once; i < slices; i += gridDim.x * at_once) {
      const bool exists = i + warp / lanes < slices;
      if (exists || lanes > 1u) fold_slice(a, groups, i + warp / lanes, exists, lanes, most, per_group);
    }
  }
  ptx_grid_wait(); /* without work as well: what ends in front of the attention would let the next kernel pass it */
}

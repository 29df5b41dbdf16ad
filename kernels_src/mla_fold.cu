/* mla_fold.cu - folds the units that mla_attn left of cut tiles, and divides. NUMERICS.md, `mla_fold`.
 *
 * partial_o [slots][heads][kv_lora_rank], partial_ml [slots][heads][2] fp32, out [T][heads][kv_lora_rank] bf16; where a token's units
 * are stands in parts [T]. A slice is (token, head, 128 columns). All blocks list the tokens that are cut. Where there are more slices
 * than warps, a warp takes two neighbouring ones at a time; else one, or where tokens have several groups, up to four warps take one:
 * they fold groups side by side, and the first of them the groups' results.
 * A block is so small that it comes to a multiprocessor beside one of mla_decode.cuh, and waits there for the last of these.
 * Grid: any number of blocks. Moves kv_lora_rank * 4 bytes per unit.
 * Lost: a block of eight groups for every slice, 12 us behind 16 x 1,024 tokens on an H200 where 2 MB are folded; blocks that come when
 * the attention has left, 3 to 5 us more a layer; whole rows for a warp, which leaves warps without work. */
#include "spec.cuh"
#include "attn_cut.h"
#include "ptx.cuh"

static_assert(SPEC_THREADS == 128, "four groups a round");
#define WARPS (SPEC_THREADS / 32u)
#define SEQS 1024u  /* tokens that may be cut */
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

/* What the block's warps share. */
typedef struct fold_block {
  u32 cut[SEQS / 32u]; /* bits of the tokens that are cut                       */
  u32 most[WARPS];     /* units of the token that has most, as each warp saw it */
  fold<1> groups[WARPS][32];
} fold_block;

/* The token of the bit number nth that is set. */
NUM u32 find_token(const u32 *cut, u32 nth) {
  u32 word = 0;
  for (; (u32)__popc(cut[word]) <= nth; word++) nth -= (u32)__popc(cut[word]);
  u32 bits = cut[word];
  for (; nth > 0; nth--) bits &= bits - 1u;
  return word * 32u + (u32)__ffs((i32)bits) - 1u;
}

/* W slices of a token and head, the lane's columns of them. */
typedef struct place {
  u32 row, column;     /* row: token * heads + head       */
  u32 at, step, units; /* row of unit 0, from one to the next, how many */
} place;

template <u32 W> NUM place place_of(const mla_fold_args &a, const fold_block &b, u32 nth) {
  const u32 slices = a.kv_lora_rank / (SLICE * W), token = find_token(b.cut, nth / (a.heads * slices));
  const u32 head = nth / slices % a.heads;
  const attn_part part = a.parts[token];
  const u32 column = nth % slices * (SLICE * W) + threadIdx.x % 32u * 4u;
  return {token * a.heads + head, column, part.first * a.heads + head, part.step * a.heads, part.units};
}

NUM bf16 *out_of(const mla_fold_args &a, const place &p) { return a.out + (u64)p.row * a.kv_lora_rank + p.column; }

/* Two slices at a time; count: of such pairs. */
NUM void fold_pairs(const mla_fold_args &a, const fold_block &b, u32 count, u32 per_group) {
  for (u32 nth = blockIdx.x * WARPS + threadIdx.x / 32u; nth < count; nth += gridDim.x * WARPS) {
    const place p = place_of<2>(a, b, nth);
    store_out(out_of(a, p), fold_units<2>(a, p.at, p.step, p.units, per_group, p.column));
  }
}

/* A slice by `lanes` warps; several take its groups side by side, in as many rounds as the token with most units needs. */
NUM void fold_slice(const mla_fold_args &a, fold_block &b, u32 slice, bool exists, u32 lanes, u32 most, u32 per_group) {
  const u32 warp = threadIdx.x / 32u, lane = threadIdx.x % 32u;
  const place p = place_of<1>(a, b, exists ? slice : 0u);
  fold<1> all = {};
  for (u32 from = 0; from < most; from += lanes * per_group) {
    const u32 unit = from + warp % lanes * per_group, left = p.units - unit;
    fold<1> own = {};
    const u32 count = lanes > 1u && left > per_group ? per_group : left;
    if (exists && unit < p.units) own = fold_units<1>(a, p.at + unit * p.step, p.step, count, per_group, p.column);
    if (lanes == 1u) {
      all = own;
      break;
    }
    b.groups[warp][lane] = own;
    __syncthreads();
    for (u32 i = 0; i < lanes && from + i * per_group < p.units && warp % lanes == 0; i++) {
      if (from + i == 0) all = own;
      else fold_step(all, b.groups[warp + i][lane]);
    }
    __syncthreads(); /* the groups have been read */
  }
  if (exists && warp % lanes == 0) store_out(out_of(a, p), all);
}

extern "C" __global__ __launch_bounds__(SPEC_THREADS, 4) void mla_fold(const __grid_constant__ mla_fold_args a) {
  __shared__ fold_block b;
  ptx_grid_next();
  const u32 tokens = a.step->token_count, warp = threadIdx.x / 32u;
  ptx_grid_wait();
  u32 most = 0, cut = 0;
  for (u32 first = 0; first < tokens && first < SEQS; first += SPEC_THREADS) {
    const u32 t = first + threadIdx.x, units = t < tokens ? a.parts[t].units : 0u;
    most = units > most ? units : most;
    const u32 word = __ballot_sync(WARP_ALL, units > 0);
    if (t % 32u == 0) b.cut[t / 32u] = word;
  }
  most = __reduce_max_sync(WARP_ALL, most);
  if (threadIdx.x % 32u == 0) b.most[warp] = most;
  __syncthreads();
  for (u32 i = 0; i < WARPS; i++) most = b.most[i] > most ? b.most[i] : most;
  if (most == 0) return;
  for (u32 i = 0; i < (tokens + 31u) / 32u; i++) cut += (u32)__popc(b.cut[i]);
  const u32 per_group = attn_group_units(a.parts[find_token(b.cut, 0)].piece_chunks, a.group_chunks); /* the same for all */
  const u32 slices = cut * a.heads * (a.kv_lora_rank / SLICE), warps = gridDim.x * WARPS;
  if (slices > warps) {
    fold_pairs(a, b, slices / 2u, per_group);
    return;
  }
  u32 lanes = 1;
  while (lanes * per_group < most && lanes < WARPS && slices * lanes * 2u <= warps) lanes *= 2u;
  const u32 at_once = WARPS / lanes;
  for (u32 i = blockIdx.x * at_once; i < slices; i += gridDim.x * at_once) {
    const bool exists = i + warp / lanes < slices;
    if (exists || lanes > 1u) fold_slice(a, b, i + warp / lanes, exists, lanes, most, per_group);
  }
}

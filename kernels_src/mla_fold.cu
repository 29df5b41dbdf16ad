/* mla_fold.cu - folds the units that mla_attn left of cut tiles, and divides. NUMERICS.md, `mla_fold`.
 *
 * partial_o [slots][heads][kv_lora_rank], partial_ml [slots][heads][2] fp32, out [T][heads][kv_lora_rank] bf16; where a token's units
 * are stands in parts [T]. A slice is (token, head, 128 columns): one warp's or, where tokens have several groups, that of up to eight
 * warps, which fold groups side by side, and the first of them the groups' results. All blocks list the tokens that are cut, and stride
 * over their slices.
 * Grid: any number of blocks. Moves kv_lora_rank * 4 bytes per unit.
 * Lost: a block of eight groups for every slice, 12 us behind 16 x 1,024 tokens on an H200 where 2 MB are folded. */
#include "spec.cuh"
#include "attn_cut.h"
#include "ptx.cuh"

static_assert(SPEC_THREADS == 256, "eight groups a round");
#define WARPS (SPEC_THREADS / 32u)
#define SEQS 1024u  /* tokens that may be cut */
#define SLICE 128u  /* columns */
#define AT_ONCE 4u  /* units under way */

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

/* Units 0 .. count - 1 of a token and head in order, per_group to a group; at, step: the row of unit 0, and from one to the next. */
NUM fold fold_units(const mla_fold_args &a, u32 at, u32 step, u32 count, u32 per_group, u32 column) {
  fold all = {}, group = {};
  u32 nth = 0; /* in its group */
  for (u32 from = 0; from < count; from += AT_ONCE) {
    fold next[AT_ONCE];
#pragma unroll
    for (u32 i = 0; i < AT_ONCE; i++) {
      if (from + i >= count) break;
      const u32 row = at + (from + i) * step;
      const float2 ml = ((const float2 *)a.partial_ml)[row];
      next[i] = {ml.x, ml.y, *(const float4 *)(a.partial_o + (u64)row * a.kv_lora_rank + column)};
    }
#pragma unroll
    for (u32 i = 0; i < AT_ONCE; i++) {
      const u32 unit = from + i;
      if (unit >= count) break;
      group = nth == 0 ? next[i] : fold_step(group, next[i]);
      nth++;
      if (nth < per_group && unit + 1u < count) continue;
      all = unit < per_group ? group : fold_step(all, group);
      nth = 0;
    }
  }
  return all;
}

/* The token of the bit number nth that is set. */
NUM u32 find_token(const u32 *cut, u32 nth) {
  u32 word = 0;
  for (; (u32)__popc(cut[word]) <= nth; word++) nth -= (u32)__popc(cut[word]);
  u32 bits = cut[word];
  for (; nth > 0; nth--) bits &= bits - 1u;
  return word * 32u + (u32)__ffs((i32)bits) - 1u;
}

/* What the block's warps share. */
typedef struct fold_block {
  attn_part parts[SEQS];
  u32 cut[SEQS / 32u]; /* bits of the tokens that are cut                       */
  u32 most[WARPS];     /* units of the token that has most, as each warp saw it */
  fold groups[WARPS][32];
} fold_block;

/* bf16(O * (1 / l) + 0). */
NUM void store_out(bf16 *to, fold all) {
  const f32 r = num_div(1.0f, all.l);
  const f32 x = num_add(num_mul(all.o.x, r), 0.0f), y = num_add(num_mul(all.o.y, r), 0.0f);
  const f32 z = num_add(num_mul(all.o.z, r), 0.0f), w = num_add(num_mul(all.o.w, r), 0.0f);
  *(uint2 *)to = make_uint2(ptx_pack_bf16(x, y), ptx_pack_bf16(z, w));
}

/* 128 columns of a token and head by `lanes` warps; several take its groups side by side, in as many rounds as the token with most units
 * needs. */
NUM void fold_slice(const mla_fold_args &a, fold_block &b, u32 slice, bool exists, u32 lanes, u32 most) {
  const u32 warp = threadIdx.x / 32u, lane = threadIdx.x % 32u, slices = a.kv_lora_rank / SLICE, nth = exists ? slice : 0u;
  const u32 token = find_token(b.cut, nth / (a.heads * slices)), head = nth / slices % a.heads, column = nth % slices * SLICE + lane * 4u;
  const attn_part part = b.parts[token];
  const u32 per_group = attn_group_units(part.piece_chunks, a.group_chunks);
  const u32 at = part.first * a.heads + head, step = part.step * a.heads;
  bf16 *to = a.out + ((u64)token * a.heads + head) * a.kv_lora_rank + column;
  fold all = {};
  for (u32 from = 0; from < most; from += lanes * per_group) {
    const u32 unit = from + warp % lanes * per_group, left = part.units - unit;
    fold own = {};
    const u32 count = lanes > 1u && left > per_group ? per_group : left;
    if (exists && unit < part.units) own = fold_units(a, at + unit * step, step, count, per_group, column);
    all = lanes == 1u ? own : all;
    if (lanes == 1u) break;
    b.groups[warp][lane] = own;
    __syncthreads();
    for (u32 i = 0; i < lanes && from + i * per_group < part.units && warp % lanes == 0; i++)
      all = from + i == 0 ? own : fold_step(all, b.groups[warp + i][lane]);
    __syncthreads(); /* the groups have been read */
  }
  if (exists && warp % lanes == 0) store_out(to, all);
}

extern "C" __global__ __launch_bounds__(SPEC_THREADS, 2) void mla_fold(const __grid_constant__ mla_fold_args a) {
  __shared__ fold_block b;
  ptx_grid_next();
  const u32 tokens = a.step->token_count, warp = threadIdx.x / 32u;
  ptx_grid_wait();
  u32 most = 0, cut = 0, per_group = 1, lanes = 1;
  for (u32 first = 0; first < tokens && first < SEQS; first += SPEC_THREADS) {
    const u32 t = first + threadIdx.x;
    attn_part part = {0, 0, 0, 1};
    if (t < tokens) part = a.parts[t];
    b.parts[t] = part;
    most = part.units > most ? part.units : most;
    const u32 word = __ballot_sync(WARP_ALL, part.units > 0);
    if (t % 32u == 0) b.cut[t / 32u] = word;
  }
#pragma unroll
  for (u32 d = 16; d > 0; d /= 2) {
    const u32 other = __shfl_xor_sync(WARP_ALL, most, d);
    most = other > most ? other : most;
  }
  if (threadIdx.x % 32u == 0) b.most[warp] = most;
  __syncthreads();
  for (u32 i = 0; i < WARPS; i++) most = b.most[i] > most ? b.most[i] : most;
  if (most == 0) return;
  for (u32 i = 0; i < (tokens + 31u) / 32u; i++) cut += (u32)__popc(b.cut[i]);
  per_group = attn_group_units(b.parts[find_token(b.cut, 0)].piece_chunks, a.group_chunks); /* the same for all */
  while (most > AT_ONCE && lanes * per_group < most && lanes < WARPS) lanes *= 2u;
  const u32 slices = cut * a.heads * (a.kv_lora_rank / SLICE), at_once = WARPS / lanes;
  for (u32 i = blockIdx.x * at_once; i < slices; i += gridDim.x * at_once) {
    const bool exists = i + warp / lanes < slices;
    if (exists || lanes > 1u) fold_slice(a, b, i + warp / lanes, exists, lanes, most);
  }
}

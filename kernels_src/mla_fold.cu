/* mla_fold.cu - folds the units that mla_attn left of cut tiles, and divides. NUMERICS.md, `mla_fold`.
 *
 * partial_o [slots][heads][kv_lora_rank], partial_ml [slots][heads][2] fp32, out [T][heads][kv_lora_rank] bf16; where a token's units
 * are stands in parts [T]. A block takes (token, head, 128 columns) at a time: its warps fold the groups side by side, eight of them a
 * round, and warp 0 the groups' results. All blocks list the tokens that are cut, and stride over them.
 * Grid: any number of blocks. Moves kv_lora_rank * 4 bytes per unit. */
#include "spec.cuh"
#include "attn_cut.h"
#include "ptx.cuh"

static_assert(SPEC_THREADS == 256, "eight groups a round");
#define WORDS (SEQS / 32u)
#define SEQS 1024u  /* tokens that may be cut */
#define SLICE 128u  /* columns */
#define AT_ONCE 8u  /* units under way */

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

/* Units first .. first + count - 1 of a token and head, in order; at, step: the row of unit 0, and from one to the next. */
NUM fold fold_group(const mla_fold_args &a, u64 at, u64 step, u32 count, u32 column) {
  fold all;
  for (u32 from = 0; from < count; from += AT_ONCE) {
    fold next[AT_ONCE];
#pragma unroll
    for (u32 i = 0; i < AT_ONCE; i++) {
      if (from + i >= count) break;
      const u64 row = at + (from + i) * step;
      const float2 ml = ((const float2 *)a.partial_ml)[row];
      next[i] = {ml.x, ml.y, *(const float4 *)(a.partial_o + row * a.kv_lora_rank + column)};
    }
#pragma unroll
    for (u32 i = 0; i < AT_ONCE; i++) {
      if (from + i >= count) break;
      all = from + i == 0 ? next[i] : fold_step(all, next[i]);
    }
  }
  return all;
}

NUM void fold_item(const mla_fold_args &a, u32 token, u32 head, u32 column, fold (*groups)[32]) {
  const attn_part part = a.parts[token];
  const u32 warp = threadIdx.x / 32u, lane = threadIdx.x % 32u, warps = SPEC_THREADS / 32u;
  const u32 per_group = attn_group_units(part.piece_chunks, a.group_chunks), count = (part.units + per_group - 1u) / per_group;
  const u64 at = (u64)part.first * a.heads + head, step = (u64)part.step * a.heads;
  fold all;
  for (u32 from = 0; from < count; from += warps) {
    const u32 group = from + warp, unit = group * per_group;
    if (group < count)
      groups[warp][lane] = fold_group(a, at + unit * step, step, part.units - unit < per_group ? part.units - unit : per_group, column);
    __syncthreads();
    if (warp == 0)
      for (u32 i = 0; i < warps && from + i < count; i++) all = from + i == 0 ? groups[i][lane] : fold_step(all, groups[i][lane]);
    __syncthreads(); /* the groups have been read */
  }
  if (warp != 0) return;
  const f32 r = num_div(1.0f, all.l);
  const f32 x = num_add(num_mul(all.o.x, r), 0.0f), y = num_add(num_mul(all.o.y, r), 0.0f);
  const f32 z = num_add(num_mul(all.o.z, r), 0.0f), w = num_add(num_mul(all.o.w, r), 0.0f);
  *(uint2 *)(a.out + ((u64)token * a.heads + head) * a.kv_lora_rank + column) = make_uint2(ptx_pack_bf16(x, y), ptx_pack_bf16(z, w));
}

/* The token of the bit number nth that is set. */
NUM u32 find_token(const u32 *cut, u32 nth) {
  u32 word = 0;
  for (; (u32)__popc(cut[word]) <= nth; word++) nth -= (u32)__popc(cut[word]);
  u32 bits = cut[word];
  for (; nth > 0; nth--) bits &= bits - 1u;
  return word * 32u + (u32)__ffs((i32)bits) - 1u;
}

extern "C" __global__ __launch_bounds__(SPEC_THREADS) void mla_fold(const __grid_constant__ mla_fold_args a) {
  __shared__ u32 cut[WORDS];
  __shared__ fold groups[SPEC_THREADS / 32u][32];
  ptx_grid_next();
  ptx_grid_wait();
  for (u32 t = threadIdx.x; t < SEQS; t += SPEC_THREADS) {
    const u32 word = __ballot_sync(WARP_ALL, t < a.step->token_count && a.parts[t].units > 0);
    if (t % 32u == 0) cut[t / 32u] = word;
  }
  __syncthreads();
  u32 tokens = 0;
  for (u32 i = 0; i < WORDS; i++) tokens += (u32)__popc(cut[i]);
  const u32 slices = a.kv_lora_rank / SLICE, items = tokens * a.heads * slices;
  for (u32 i = blockIdx.x; i < items; i += gridDim.x) {
    const u32 rest = i % (a.heads * slices);
    fold_item(a, find_token(cut, i / (a.heads * slices)), rest / slices, rest % slices * SLICE + threadIdx.x % 32u * 4u, groups);
  }
}

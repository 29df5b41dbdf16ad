/* mla_fold.cu - folds the units that mla_attn left of split tiles, and divides by l. NUMERICS.md, `mla_fold`.
 *
 * partial_o [slots][heads][kv_lora_rank], partial_ml [slots][heads][2] fp32, out [T][heads][kv_lora_rank] bf16; parts, which attn_cut
 * made, says which tokens are split and where their units are. A team of eight threads has 32 columns of a token and head; each thread
 * has eight 16-byte loads in flight: units of a group or, if tokens have one group and there is enough work, units of two slices of 32
 * columns. If tokens have several groups and there are teams enough, teams of a CTA fold the groups in parallel, and the first team
 * folds their results. A CTA is small enough to start on a multiprocessor next to one of attn/decode/form.cuh, and waits there. Units
 * are kept in L2, and discarded when they are folded, so that they are not written to memory. For one token that goes on to W_uv:
 * fold_lift.cuh. Grid: any number of CTAs. Moves kv_lora_rank * 4 bytes per unit. H200, 16 heads, after 64 x 32,768 tokens: 7 us.
 * tools/bench/history/2026-11-22-elected-threads.md */
#include "spec.cuh"
#include "attn/attn_cut.h"
#include "ptx/ptx.cuh"

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

/* bf16(o * r + 0), r = 1 / l. */
NUM uint2 latent_of(float4 o, f32 r) {
  return make_uint2(ptx_pack_bf16(num_add(num_mul(o.x, r), 0.0f), num_add(num_mul(o.y, r), 0.0f)),
                    ptx_pack_bf16(num_add(num_mul(o.z, r), 0.0f), num_add(num_mul(o.w, r), 0.0f)));
}

#ifdef SPEC_K_BLOCKS
#include "attn/fold_lift.cuh"
#else
static_assert(SPEC_THREADS == 256, "with 64 registers each a CTA fits next to one of the attention");
#define TEAM 8u    /* adjacent threads, four columns each: 128 bytes of a unit */
#define SLICE 32u  /* columns of a team */
#define AT_ONCE 8u /* loads in flight per thread; each thread of a team holds (m, l) of one unit */

/* W slices of a token and head: the thread's columns of them. */
typedef struct fold_slice {
  u32 out, column;      /* out: token * heads + head */
  u32 row, step, units; /* row of unit 0, distance between units, their number: 0 beyond the items */
} fold_slice;

template <u32 W> NUM fold_slice slice_of(const mla_fold_args &a, u32 item, bool exists) {
  const u32 slices = a.kv_lora_rank / (SLICE * W), nth = exists ? item : 0u, head = nth / slices % a.heads;
  const attn_part part = a.parts[nth / (a.heads * slices)];
  const u32 column = nth % slices * (SLICE * W) + threadIdx.x % TEAM * 4u, row = part.first * a.heads + head;
  return {part.token * a.heads + head, column, row, part.step * a.heads, exists ? part.units : 0u};
}

/* Folds units unit .. end - 1 in order; most: the largest number that any thread has. */
template <u32 W> NUM fold<W> fold_units(const mla_fold_args &a, const fold_slice &p, u32 unit, u32 end, u32 most) {
  fold<W> all = {};
#pragma unroll 1
  for (u32 left = most; left > 0; left -= left < AT_ONCE / W ? left : AT_ONCE / W, unit += AT_ONCE / W) {
    float4 o[AT_ONCE / W][W];
    float2 ml = {};
    const u32 nth = threadIdx.x % TEAM;
    if (unit + nth < end) ml = ((const float2 *)a.partial_ml)[p.row + (unit + nth) * p.step];
    const f32 *at = a.partial_o + (u64)(p.row + unit * p.step) * a.kv_lora_rank + p.column;
#pragma unroll
    for (u32 i = 0; i < AT_ONCE / W; i++, at += (u64)p.step * a.kv_lora_rank)
#pragma unroll
      for (u32 w = 0; w < W; w++)
        if (unit + i < end) o[i][w] = *(const float4 *)(at + w * SLICE);
#pragma unroll
    for (u32 i = 0; i < AT_ONCE / W; i++) {
      if (i >= left) break;
      fold<W> next;
      next.m = __shfl_sync(WARP_ALL, ml.x, i, TEAM);
      next.l = __shfl_sync(WARP_ALL, ml.y, i, TEAM);
#pragma unroll
      for (u32 w = 0; w < W; w++) next.o[w] = o[i][w];
      if (unit + i >= end) continue;
      if (i == 0 && left == most) all = next;
      else fold_step(all, next);
    }
  }
  return all;
}

template <u32 W> NUM void store_out(const mla_fold_args &a, const fold_slice &p, const fold<W> &all) {
  const f32 r = num_div(1.0f, all.l);
#pragma unroll
  for (u32 w = 0; w < W; w++)
    *(uint2 *)(a.out + (u64)p.out * a.kv_lora_rank + p.column + w * SLICE) = latent_of(all.o[w], r);
}

/* Folded units need not be written to memory: these threads' lines, of W slices. */
template <u32 W> NUM void discard_units(const mla_fold_args &a, const fold_slice &p, u32 thread, u32 threads) {
  const f32 *first = a.partial_o + (u64)p.row * a.kv_lora_rank + p.column / SLICE * SLICE;
  __syncwarp();
#pragma unroll 1
  for (u32 i = thread; i < p.units * W; i += threads) ptx_discard(first + (u64)(i / W * p.step) * a.kv_lora_rank + i % W * SLICE);
}

/* Tokens of one group, two slices for a team. */
NUM void fold_pairs(const mla_fold_args &a, u32 items, u32 most) {
  const u32 teams = SPEC_THREADS / TEAM * gridDim.x;
  for (u32 from = 0; from < items; from += teams) {
    const u32 item = from + threadIdx.x / TEAM * gridDim.x + blockIdx.x;
    const fold_slice p = slice_of<2>(a, item, item < items);
    ptx_settle(p.column + p.row + p.step + p.out + p.units);
    ptx_grid_wait(); /* for the attention: its units are there from here on */
    const fold<2> all = fold_units<2>(a, p, 0, p.units, most);
    if (item < items) store_out(a, p, all);
    discard_units<2>(a, p, threadIdx.x % TEAM, TEAM);
  }
}

typedef struct fold_block { /* the threads' groups; of a first team, its fold so far */
  float4 o[SPEC_THREADS];
  float2 ml[SPEC_THREADS];
} fold_block;

NUM void put(fold_block &b, u32 thread, const fold<1> &x) {
  b.o[thread] = x.o[0];
  b.ml[thread] = make_float2(x.m, x.l);
}
NUM fold<1> get(const fold_block &b, u32 thread) { return {b.ml[thread].x, b.ml[thread].y, {b.o[thread]}}; }

/* One slice for 2^bits teams of the CTA: they fold its groups in parallel, and the first of them folds the results. */
NUM void fold_groups(const mla_fold_args &a, fold_block &b, u32 items, u32 most, u32 per_group, u32 bits) {
  const u32 lane = threadIdx.x / TEAM & ((1u << bits) - 1u), step = (SPEC_THREADS / TEAM >> bits) * gridDim.x;
  for (u32 from = 0; from < items; from += step) {
    const u32 item = from + (threadIdx.x / TEAM >> bits) * gridDim.x + blockIdx.x;
    const fold_slice p = slice_of<1>(a, item, item < items);
    ptx_settle(p.column + p.row + p.step + p.out + p.units);
    ptx_grid_wait();
    for (u32 first = 0; first < most; first += per_group << bits) {
      const u32 unit = first + lane * per_group, end = unit + per_group < p.units ? unit + per_group : p.units;
      fold<1> all = fold_units<1>(a, p, unit, end, per_group);
      if (lane == 0 && first > 0) {
        const fold<1> group = all;
        all = get(b, threadIdx.x);
        if (unit < end) fold_step(all, group);
      }
      if (lane > 0) put(b, threadIdx.x, all);
      if (bits) __syncthreads(); /* the groups are there */
      if (lane == 0) {
#pragma unroll 1
        for (u32 i = 1; i < 1u << bits && unit + i * per_group < p.units; i++) fold_step(all, get(b, threadIdx.x + i * TEAM));
        put(b, threadIdx.x, all);
      }
      if (bits) __syncthreads(); /* the groups have been read */
    }
    if (p.units && lane == 0) store_out(a, p, get(b, threadIdx.x));
    discard_units<1>(a, p, threadIdx.x % (TEAM << bits), TEAM << bits);
  }
}

extern "C" __global__ __launch_bounds__(SPEC_THREADS, 4) void mla_fold(const __grid_constant__ mla_fold_args a) {
  __shared__ fold_block b;
  ptx_grid_next();
  const attn_counts counts = *a.counts; /* written before all layers: attn_cut.cu */
  const u32 parts = ptx_uniform(counts.parts), most = ptx_uniform(counts.units_most), piece = ptx_uniform(counts.piece_chunks);
  const u32 teams = gridDim.x * (SPEC_THREADS / TEAM), items = parts * a.heads * (a.kv_lora_rank / SLICE);
  u32 per_group = attn_group_units(piece, a.group_chunks), bits = 0;
  if (per_group == 1u || per_group > most) per_group = most; /* groups of one unit are folded like units of one group */
  if (items > teams && per_group == most) {
    fold_pairs(a, items / 2u, most);
  } else {
    while (per_group << bits < most && TEAM << bits < SPEC_THREADS && items << (bits + 1u) <= teams) bits++;
    fold_groups(a, b, items, most, per_group, ptx_uniform(bits));
  }
  ptx_grid_wait(); /* without work as well: a CTA that ended before the attention would let the next kernel overtake it */
}
#endif

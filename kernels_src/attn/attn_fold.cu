/* attn_fold.cu - combines the units that attn left of split tiles, and divides by l. NUMERICS.md, `attn_fold`.
 *
 * partial_o [slots][heads][v_dim], partial_ml [slots][heads][2] fp32, out [T][heads][v_dim] bf16; parts, which attn_cut made, says which
 * tokens are split and where their units are. A warp takes 32 columns of a token and head, a lane one column: the chain over the units is
 * serial, so that columns are all there is to share out. 32 units are one stage of a ring in shared memory; loads of the next two stages
 * are in flight while a stage is combined. A stage's factors are computed by its lanes at once, from the maximum of all units so far. 64
 * threads. Grid: any number of CTAs; the warps of one take items that are far apart, so that few items reach all multiprocessors.
 * Moves v_dim * 4 bytes a unit and head, from L2. Bound: for one request of many units the latency of the chain, about 13 cycles a unit. */
#include "spec.cuh"
#include "attn/attn_cut.h"
#include "ptx/ptx.cuh"

#define WARPS (SPEC_THREADS / 32u)
#define SLICE 32u  /* columns of a warp  */
#define STAGE 32u  /* units, one a lane  */
#define STAGES 3u

typedef struct ring { /* of a warp */
  float4 o[STAGES][STAGE][SLICE / 4u];
  f32 ml[STAGES][STAGE][2];
} ring;
static_assert(sizeof(ring) * WARPS == ATTN_FOLD_BYTES(SPEC_THREADS), "dynamic shared memory");

/* Columns of a token and head: row 0 of its units, the distance between units, and their number. */
typedef struct slice {
  u32 row, step, units, column, columns;
} slice;

/* Starts the loads of a stage, a warp at a time; beyond the last unit there are none. */
NUM void load_stage(const attn_fold_args &a, const slice &s, ring &r, u32 first) {
  const u32 lane = threadIdx.x % 32u, at = first / STAGE % STAGES, vector = lane % (SLICE / 4u);
#pragma unroll
  for (u32 i = 0; i < STAGE; i += 32u / (SLICE / 4u)) {
    const u32 nth = i + lane / (SLICE / 4u), unit = first + nth;
    if (unit < s.units && vector * 4u < s.columns)
      ptx_copy16(ptx_shared(&r.o[at][nth][vector]), a.partial_o + (u64)(s.row + unit * s.step) * a.v_dim + s.column + vector * 4u, 16u);
  }
  if (first + lane < s.units) {
    const f32 *ml = a.partial_ml + 2ull * (s.row + (first + lane) * s.step);
    ptx_copy4(ptx_shared(&r.ml[at][lane][0]), ml);
    ptx_copy4(ptx_shared(&r.ml[at][lane][1]), ml + 1);
  }
  ptx_copy_commit();
}

/* (m, l, O) of one column. */
typedef struct result { f32 m, l, o; } result;

/* Combines the units of a stage with those before it. The first unit of all is copied, as the product with 1 and a sum with 0. */
NUM void combine_stage(ring &r, result &x, u32 first, u32 count) {
  const u32 lane = threadIdx.x % 32u, at = first / STAGE % STAGES;
  const f32 *o = (const f32 *)r.o[at];
  const f32 own = lane < count ? r.ml[at][lane][0] : x.m, l = r.ml[at][lane][1];
  f32 m = own; /* of all units up to this lane's */
  if (first > 0 && lane == 0 && x.m > m) m = x.m;
#pragma unroll
  for (u32 by = 1; by < 32u; by *= 2) {
    const f32 before = __shfl_up_sync(WARP_ALL, m, by);
    if (lane >= by && before > m) m = before;
  }
  const f32 above = __shfl_up_sync(WARP_ALL, m, 1), before = lane ? above : x.m;
  const bool is_copy = first == 0 && lane == 0;
  const f32 fa = is_copy ? 0.0f : num_exp2_int(num_sub(before, m)), fb = is_copy ? 1.0f : num_exp2_int(num_sub(own, m));
#pragma unroll 8
  for (u32 i = 0; i < count; i++) {
    const f32 old = __shfl_sync(WARP_ALL, fa, i), add = __shfl_sync(WARP_ALL, fb, i);
    x.o = num_fma(o[i * SLICE + lane], add, num_mul(x.o, old));
    x.l = num_fma(__shfl_sync(WARP_ALL, l, i), add, num_mul(x.l, old));
  }
  x.m = __shfl_sync(WARP_ALL, m, count - 1u);
}

NUM void fold_item(const attn_fold_args &a, ring &r, u32 item) {
  const u32 slices = (a.v_dim + SLICE - 1u) / SLICE, head = item / slices % a.heads, column = item % slices * SLICE;
  const attn_part part = a.parts[item / (slices * a.heads)];
  const slice s = {part.first * a.heads + head, part.step * a.heads, ptx_uniform(part.units), column,
                   a.v_dim - column < SLICE ? a.v_dim - column : SLICE};
  const u32 lane = threadIdx.x % 32u;
  result x = {0.0f, 0.0f, 0.0f};
  ptx_grid_wait(); /* for the attention: its units are there from here on */
#pragma unroll
  for (u32 i = 0; i < STAGES - 1u; i++) load_stage(a, s, r, i * STAGE);
#pragma unroll 1
  for (u32 first = 0; first < s.units; first += STAGE) {
    load_stage(a, s, r, first + (STAGES - 1u) * STAGE);
    PTX_COPY_WAIT(STAGES - 1u);
    __syncwarp();
    combine_stage(r, x, first, s.units - first < STAGE ? s.units - first : STAGE);
    __syncwarp(); /* the stage has been read */
  }
  const f32 out = num_add(num_mul(x.o, num_div(1.0f, x.l)), 0.0f);
  if (lane < s.columns) a.out[((u64)part.token * a.heads + head) * a.v_dim + column + lane] = num_to_bf16(out);
}

extern "C" __global__ __launch_bounds__(SPEC_THREADS) void attn_fold(const __grid_constant__ attn_fold_args a) {
  extern __shared__ u8 shared[];
  ptx_grid_next();
  const u32 items = ptx_uniform(a.counts->parts) * a.heads * ((a.v_dim + SLICE - 1u) / SLICE); /* written before all layers: attn_cut.cu */
  const u32 warp = ptx_uniform(threadIdx.x / 32u);
#pragma unroll 1
  for (u32 item = blockIdx.x + gridDim.x * warp; item < items; item += gridDim.x * WARPS) fold_item(a, ((ring *)shared)[warp], item);
  ptx_grid_wait(); /* without work as well: a CTA that ended before the attention would let the next kernel overtake it */
}

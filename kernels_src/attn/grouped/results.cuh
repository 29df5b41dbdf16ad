/* attn/grouped/results.cuh - attn: combining the chunks of a context, and storing outputs or the units of a split tile.
 *
 * The total of the chunks so far lies in shared memory with SPEC_HELD, else in `scratch`; a context of one chunk needs neither. Every
 * thread reads the O that it stored itself; m and l are stored by one of a row's four threads. Read next: engine/cpu/attn.c, which does the
 * same in one place. */
#ifndef VERBATIM_ATTN_GROUPED_RESULTS_CUH
#define VERBATIM_ATTN_GROUPED_RESULTS_CUH
#include "attn/grouped/layout.cuh"

/* The thread's two operand rows, r and r + 8 of its warp's 16. */
typedef struct rows {
  bool is_live[2];
  u32 token[2], head[2]; /* token of the tile, head of the model */
} rows;

/* The thread's first operand row among its warpgroup's. */
NUM u32 own_row() { return threadIdx.x % 128u / 32u * 16u + threadIdx.x % 32u / 4u; }

NUM rows rows_of(const attn_args &a, const item &it, u32 group) {
  const u32 share = sharers(a);
  rows r;
  ptx_forget(group);
#pragma unroll
  for (u32 h = 0; h < 2; h++) {
    const u32 of_pass = group * 64u + own_row() + 8u * h, of_tile = it.row + of_pass;
    r.is_live[h] = of_pass < it.rows;
    r.token[h] = of_tile / share;
    r.head[h] = it.head * share + of_tile % share;
  }
  return r;
}

NUM f32 *total_of(const attn_args &a, u8 *shared, u32 group) {
  ptx_forget(group); /* so that the address is not kept through the products */
  f32 *totals = SPEC_HELD ? (f32 *)(shared + AT_TOTAL) : a.scratch + (u64)blockIdx.x * attn_grouped_floats(SPEC_V_DIM);
  return totals + group * TOTAL_FLOATS;
}

/* Where a thread keeps columns 8 * j + 2 * (lane % 4) and the next one of its row h; and the row's m and l. */
NUM float2 *kept_pair(f32 *total, u32 j, u32 h) { return (float2 *)total + (2u * j + h) * 128u + threadIdx.x % 128u; }
NUM float2 *kept_sums(f32 *total, u32 h) { return (float2 *)(total + 64u * SPEC_V_DIM) + own_row() + 8u * h; }

/* What the total's numbers and those of the next chunk are multiplied by when they are combined; and the sums of the result. */
typedef struct shares {
  f32 total[2], own[2], m[2], l[2];
} shares;

/* m: of the chunk, whose sums and O are c's. */
NUM shares shares_of(f32 *total, const chain &c, const f32 (&m)[2]) {
  shares w;
#pragma unroll
  for (u32 h = 0; h < 2; h++) {
    const float2 before = *kept_sums(total, h);
    w.m[h] = m[h] > before.x ? m[h] : before.x;
    w.total[h] = num_exp2_int(num_sub(before.x, w.m[h]));
    w.own[h] = num_exp2_int(num_sub(m[h], w.m[h]));
    w.l[h] = num_fma(c.l[2u * h], w.own[h], num_mul(before.y, w.total[h])); /* R4.5, R4.6 */
  }
  return w;
}

/* The thread's element pair j of row h, combined with the total's. */
NUM float2 combined(f32 *total, const chain &c, const shares &w, u32 j, u32 h) {
  const float2 before = *kept_pair(total, j, h);
  return make_float2(num_fma(c.o[4u * j + 2u * h], w.own[h], num_mul(before.x, w.total[h])),
                     num_fma(c.o[4u * j + 2u * h + 1u], w.own[h], num_mul(before.y, w.total[h])));
}

NUM void keep_sums(f32 *total, const f32 (&m)[2], const f32 (&l)[2]) {
  __syncwarp(); /* all have read the last ones */
  if (threadIdx.x % 4u == 0)
#pragma unroll
    for (u32 h = 0; h < 2; h++) *kept_sums(total, h) = make_float2(m[h], l[h]);
  __syncwarp();
}

/* The total of the chunks so far, of which this one, with maxima m, is the last. Only reads c, the accumulator of the next products. */
NUM void keep_total(f32 *total, const chain &c, const f32 (&m)[2], const rows &r, bool is_first) {
  if (is_first) {
    const f32 l[2] = {c.l[0], c.l[2]};
#pragma unroll
    for (u32 i = 0; i < OUTPUTS / 2u; i++)
      if (r.is_live[i % 2u]) *kept_pair(total, i / 2u, i % 2u) = make_float2(c.o[2u * i], c.o[2u * i + 1u]);
    keep_sums(total, m, l);
    return;
  }
  const shares w = shares_of(total, c, m);
#pragma unroll
  for (u32 i = 0; i < OUTPUTS / 2u; i++)
    if (r.is_live[i % 2u]) *kept_pair(total, i / 2u, i % 2u) = combined(total, c, w, i / 2u, i % 2u);
  keep_sums(total, w.m, w.l);
}

/* O, m and l of the thread's rows: the sums of the products, these combined with the total, or the initial state of a chunk. */
struct summed {
  const chain &c;
  const f32 (&m)[2];
  __device__ float2 pair(u32 j, u32 h) const { return make_float2(c.o[4u * j + 2u * h], c.o[4u * j + 2u * h + 1u]); }
  __device__ float2 sums(u32 h) const { return make_float2(m[h], c.l[2u * h]); }
};
struct totalled {
  f32 *total;
  const chain &c;
  const shares &w;
  __device__ float2 pair(u32 j, u32 h) const { return combined(total, c, w, j, h); }
  __device__ float2 sums(u32 h) const { return make_float2(w.m[h], w.l[h]); }
};

struct nothing {
  __device__ float2 pair(u32, u32) const { return make_float2(0.0f, 0.0f); }
  __device__ float2 sums(u32) const { return make_float2(NO_MAX, 0.0f); }
};

/* bf16(O * (1 / l) + 0): R4.7 to R4.10. */
template <class T> NUM void store_output(const attn_args &a, const item &it, const T &from, const rows &r) {
#pragma unroll
  for (u32 h = 0; h < 2; h++) {
    if (!r.is_live[h]) continue;
    const f32 inverse = num_div(1.0f, from.sums(h).y);
    bf16 *out = a.out + ((u64)(it.tile.row + r.token[h]) * a.heads + r.head[h]) * SPEC_V_DIM;
#pragma unroll
    for (u32 j = 0; j < OUTPUTS / 4u; j++) {
      const float2 o = from.pair(j, h);
      *(u32 *)(out + j * 8u + threadIdx.x % 4u * 2u) =
          ptx_pack_bf16(num_add(num_mul(o.x, inverse), 0.0f), num_add(num_mul(o.y, inverse), 0.0f));
    }
  }
}

/* Unit number `nth` of the piece: a chunk, or the chunks of a context's first piece. */
template <class T> NUM void store_unit(const attn_args &a, const item &it, const T &from, const rows &r, u32 nth) {
#pragma unroll
  for (u32 h = 0; h < 2; h++) {
    if (!r.is_live[h]) continue;
    const u64 at = (u64)(it.slot + nth * it.tile.count + r.token[h]) * a.heads + r.head[h];
    f32 *o = a.partial_o + at * SPEC_V_DIM;
#pragma unroll
    for (u32 j = 0; j < OUTPUTS / 4u; j++) *(float2 *)(o + j * 8u + threadIdx.x % 4u * 2u) = from.pair(j, h);
    if (threadIdx.x % 4u == 0) *(float2 *)(a.partial_ml + 2u * at) = from.sums(h);
  }
}

template <class T> NUM void store_result(const attn_args &a, const item &it, const T &from, const rows &r, u32 nth) {
  if (it.slot == ATTN_WHOLE) store_output(a, it, from, r);
  else store_unit(a, it, from, r, nth);
}

NUM void start_chunk(chain &c) {
  c.m[0] = c.m[1] = NO_MAX;
#pragma unroll
  for (u32 i = 0; i < 4; i++) {
    c.l[i] = 0.0f;
    ptx_hold(c.l[i]);
  }
#pragma unroll
  for (u32 i = 0; i < OUTPUTS; i++) {
    c.o[i] = 0.0f;
    ptx_hold(c.o[i]);
  }
}

/* Chunk number `nth` of the item is complete, with maxima m, and more follow. The first piece of a context leaves the combined chunks,
 * every other piece each chunk. */
NUM void end_chunk(const attn_args &a, const item &it, const chain &c, const f32 (&m)[2], u32 nth, u8 *shared, u32 group) {
  const rows r = rows_of(a, it, group);
  if (it.first > 0) store_unit(a, it, summed{c, m}, r, nth);
  else keep_total(total_of(a, shared, group), c, m, r, nth == 0);
}

/* The same for the last one. */
NUM void end_item(const attn_args &a, const item &it, const chain &c, u32 nth, u8 *shared, u32 group) {
  const rows r = rows_of(a, it, group);
  f32 *total = total_of(a, shared, group);
  if (it.first > 0 || nth == 0) {
    store_result(a, it, summed{c, c.m}, r, nth);
    return;
  }
  const shares w = shares_of(total, c, c.m);
  store_result(a, it, totalled{total, c, w}, r, 0);
}

/* The units of the piece from chunk number `nth` on, which the warpgroup's rows do not reach. */
NUM void store_unreached(const attn_args &a, const item &it, u32 nth, u32 group) {
  for (; it.first > 0 && nth < it.chunks; nth++) store_unit(a, it, nothing(), rows_of(a, it, group), nth);
}

#endif

/* attn/decode/epilogue.cuh - the running result (m, l, O) of a value warpgroup of the decode form: folds of chunks and groups, what is
 * saved in memory meanwhile, and how units and outputs are stored. NUMERICS.md, "Fold".
 *
 * Knows nothing of pieces. Read next: attn/decode/values.cuh. */
#ifndef VERBATIM_ATTN_DECODE_EPILOGUE_CUH
#define VERBATIM_ATTN_DECODE_EPILOGUE_CUH
#include "attn/decode/layout.cuh"

/* (m, l, O) of N boxes of columns: element [x][4 * j + 2 * h + e] is column 64 * x + 8 * h + the thread's own, row 8 * j + 2 * (lane %
 * 4) + e. */
template <u32 N> struct state {
  f32 m[OWN], l[OWN], o[N][ROWS / 2u];
};

#define ROW_OF(e) ((e) / 4u * 2u + (e) % 2u) /* index among the thread's rows */

/* m of the unit in shared memory, a copy for each warp (M_IN_SHARED). */
NUM f32 *unit_max(const cta &b) { return (f32 *)(b.shared + AT_UNIT_MAX) + (threadIdx.x / 32u - SCORE_THREADS / 32u) * ROWS; }
NUM void keep_unit_max(const cta &b, const f32 (&m)[OWN]) {
  __syncwarp();
  if (threadIdx.x % 32u < 4u) store_rows(unit_max(b), m);
  __syncwarp();
}

/* The chunk becomes the unit's state. */
template <u32 N>
NUM void start_unit(const cta &b, state<N> &r, const f32 (&o)[N][ROWS / 2u], const f32 (&l)[ROWS / 2u], const f32 (&m)[OWN]) {
  if (M_IN_SHARED) keep_unit_max(b, m);
#pragma unroll
  for (u32 i = 0; i < OWN; i++) {
    r.m[i] = m[i];
    r.l[i] = l[i / 2u * 4u + i % 2u];
  }
#pragma unroll
  for (u32 x = 0; x < N; x++)
#pragma unroll
    for (u32 e = 0; e < ROWS / 2u; e++) r.o[x][e] = o[x][e];
}

/* Folds the chunk (right) into the unit's state (left). */
template <u32 N>
NUM void fold_chunk(const cta &b, state<N> &r, const f32 (&o)[N][ROWS / 2u], const f32 (&l)[ROWS / 2u], const f32 (&m)[OWN]) {
  f32 fa[OWN], fb[OWN];
  if (M_IN_SHARED) load_max(r.m, unit_max(b));
#pragma unroll
  for (u32 i = 0; i < OWN; i++) {
    const f32 most = fmaxf(r.m[i], m[i]);
    fa[i] = num_exp2_int(num_sub(r.m[i], most));
    fb[i] = num_exp2_int(num_sub(m[i], most));
    r.m[i] = most;
    r.l[i] = num_fma(l[i / 2u * 4u + i % 2u], fb[i], num_mul(r.l[i], fa[i]));
  }
  if (M_IN_SHARED) keep_unit_max(b, r.m);
#pragma unroll
  for (u32 x = 0; x < N; x++)
#pragma unroll
    for (u32 e = 0; e < ROWS / 2u; e++) r.o[x][e] = num_fma(o[x][e], fb[ROW_OF(e)], num_mul(r.o[x][e], fa[ROW_OF(e)]));
  if (M_IN_SHARED) load_max(r.m, unit_max(b)); /* reloaded, so that it holds no registers in the loop above */
}

/* A state saved in memory: this thread's pairs at t[i * 128], those of O, then (m, l). Saved are the earlier groups of whole tiles and,
 * with CHUNKS_IN_MEMORY, the earlier chunks of a unit. */
#define STATE_PAIRS(n) ((n) * ROWS / 4u + OWN)
static_assert(VALUE_GROUPS * STATE_PAIRS(VALUE_BOXES) * 512u <= 2u * ROWS * (SPEC_KV_LORA_RANK + 128u), "two states are scratch");

/* Folds the saved state (left) and r (right) into r. */
template <u32 N> NUM void fold_saved(state<N> &r, const float2 *t) {
  f32 fa[OWN], fb[OWN];
#pragma unroll
  for (u32 i = 0; i < OWN; i++) {
    const float2 left = t[(N * ROWS / 4u + i) * 128u];
    const f32 most = fmaxf(left.x, r.m[i]);
    fa[i] = num_exp2_int(num_sub(left.x, most));
    fb[i] = num_exp2_int(num_sub(r.m[i], most));
    r.m[i] = most;
    r.l[i] = num_fma(r.l[i], fb[i], num_mul(left.y, fa[i]));
  }
#pragma unroll
  for (u32 x = 0; x < N; x++) {
#pragma unroll
    for (u32 e = 0; e < ROWS / 2u; e += 2u) {
      const float2 left = t[(x * ROWS / 4u + e / 2u) * 128u];
      r.o[x][e] = num_fma(r.o[x][e], fb[ROW_OF(e)], num_mul(left.x, fa[ROW_OF(e)]));
      r.o[x][e + 1u] = num_fma(r.o[x][e + 1u], fb[ROW_OF(e + 1u)], num_mul(left.y, fa[ROW_OF(e + 1u)]));
    }
    if (ROWS == 32u) ptx_hold(r.o[x][0]); /* limits the loads in flight: registers are scarce */
  }
}

template <u32 N> NUM void save(float2 *t, const state<N> &r) {
#pragma unroll
  for (u32 i = 0; i < OWN; i++) t[(N * ROWS / 4u + i) * 128u] = make_float2(r.m[i], r.l[i]);
#pragma unroll
  for (u32 x = 0; x < N; x++)
#pragma unroll
    for (u32 e = 0; e < ROWS / 2u; e += 2u) t[(x * ROWS / 4u + e / 2u) * 128u] = make_float2(r.o[x][e], r.o[x][e + 1u]);
}

/* Stores a unit's partial result from this row on, to be kept in L2 until it is folded. Lanes of adjacent columns exchange halves, so
 * that each writes two columns of one row. */
template <u32 N> NUM void store_unit(const mla_attn_args &a, const state<N> &r, u64 row, u32 live, u32 column) {
  const u64 often = ptx_often();
  const u32 lane = threadIdx.x % 32u, odd = lane / 4u % 2u;
#pragma unroll
  for (u32 i = 0; i < OWN; i++) {
    const u32 nth = i / 2u * 8u + lane % 4u * 2u + i % 2u;
    f32 *to = a.partial_o + (row + nth) * SPEC_KV_LORA_RANK + column + odd * 7u;
#pragma unroll
    for (u32 x = 0; x < N; x++) {
      const f32 low = r.o[x][i / 2u * 4u + i % 2u], high = r.o[x][i / 2u * 4u + 2u + i % 2u];
      const f32 other = __shfl_xor_sync(WARP_ALL, odd ? low : high, 4);
      if (nth < live) ptx_store_kept(to + x * 64u, odd ? other : low, odd ? high : other, often);
    }
    if (column == 0 && nth < live) *(float2 *)(a.partial_ml + (row + nth) * 2u) = make_float2(r.m[i], r.l[i]);
  }
}

/* bf16(O * (1 / l) + 0). Lanes of adjacent columns exchange halves, so that each writes two columns of one row. */
template <u32 N> NUM void store_out(const mla_attn_args &a, const state<N> &r, u64 row, u32 live, u32 column) {
  const u32 lane = threadIdx.x % 32u, odd = lane / 4u % 2u;
#pragma unroll
  for (u32 j = 0; j < OWN; j += 2u) {
    const u32 nth = j * 4u + lane % 4u * 2u + odd;
    const f32 inverse0 = num_div(1.0f, r.l[j]), inverse1 = num_div(1.0f, r.l[j + 1u]);
    bf16 *to = a.out + (row + nth) * SPEC_KV_LORA_RANK + (column - odd);
#pragma unroll
    for (u32 x = 0; x < N; x++)
#pragma unroll
      for (u32 h = 0; h < 2u; h++) {
        const f32 *o = r.o[x] + j * 2u + h * 2u;
        const u32 own = ptx_pack_bf16(num_add(num_mul(o[0], inverse0), 0.0f), num_add(num_mul(o[1], inverse1), 0.0f));
        const u32 other = __shfl_xor_sync(WARP_ALL, own, 4);
        const u32 both = odd ? other >> 16 | (own & 0xffff0000u) : (own & 0xffffu) | other << 16;
        if (nth < live) *(u32 *)(to + x * 64u + h * 8u) = both;
      }
  }
}

#endif

/* attn/decode/values.cuh - the value warpgroups of the decode form: O^T += V^T P^T and l^T += 1 P^T block by block; folds at the ends of
 * chunks, units and groups. Two warpgroups have half of the columns each. Read next: attn/decode/epilogue.cuh. */
#ifndef VERBATIM_ATTN_DECODE_VALUES_CUH
#define VERBATIM_ATTN_DECODE_VALUES_CUH
#include "attn/decode/epilogue.cuh"

template <u32 N> NUM void clear(f32 (&o)[N][ROWS / 2u], f32 (&l)[ROWS / 2u]) {
#pragma unroll
  for (u32 i = 0; i < ROWS / 2u; i++) {
    l[i] = 0.0f;
#pragma unroll
    for (u32 x = 0; x < N; x++) o[x][i] = 0.0f;
  }
}

/* The running maximum changes from m to `now`. */
template <u32 N> NUM void rescale(f32 (&o)[N][ROWS / 2u], f32 (&l)[ROWS / 2u], const f32 (&m)[OWN], const f32 (&now)[OWN]) {
  f32 factor[OWN];
  bool moves = false;
#pragma unroll
  for (u32 i = 0; i < OWN; i++) {
    const f32 less = num_exp2_int(num_sub(m[i], now[i]));
    const bool differs = now[i] != m[i];
    factor[i] = differs ? less : 1.0f;
    moves |= differs;
  }
  if (!moves) return;
#pragma unroll
  for (u32 i = 0; i < ROWS / 2u; i++) {
    l[i] = num_mul(l[i], factor[ROW_OF(i)]);
#pragma unroll
    for (u32 x = 0; x < N; x++) o[x][i] = num_mul(o[x][i], factor[ROW_OF(i)]);
  }
}

/* Pins the accumulators where the products of a block begin and end. */
template <u32 N> NUM void hold(f32 (&o)[N][ROWS / 2u], f32 (&l)[ROWS / 2u]) {
#pragma unroll
  for (u32 i = 0; i < ROWS / 2u; i++) {
    ptx_hold(l[i]);
#pragma unroll
    for (u32 x = 0; x < N; x++) ptx_hold(o[x][i]);
  }
}

/* O^T += V^T P^T for the boxes from `first` on, l^T += 1 P^T; each box is released when its product is done. */
template <u32 N>
NUM void multiply_values(f32 (&o)[N][ROWS / 2u], f32 (&l)[ROWS / 2u], const cta &b, ring_slot at, u32 first, u32 p_at) {
  const u64 p = ptx_operand(PTX_SWIZZLED, b.base + p_at), ones = ptx_operand(PTX_PLAIN, b.base + AT_ONES);
  hold(o, l);
#pragma unroll
  for (u32 x = 0; x < N; x++) {
    ptx_multiply_fence();
    const u64 v = ptx_operand(PTX_ACROSS(BOX_BYTES), b.base + slot_of_box(at, first + x).stage * BOX_BYTES);
#pragma unroll
    for (u32 i = 0; i < 4u; i++) ptx_multiply_turned(o[x], v + i * 128u, p + i * 2u);
    if (x == 0) {
#pragma unroll
      for (u32 i = 0; i < 4u; i++) ptx_multiply(l, ones, p + i * 2u);
    }
    ptx_multiply_commit();
    if (x > 0) {
      PTX_MULTIPLY_WAIT(1);
      if (threadIdx.x % 32u == 0) ptx_barrier_arrive(b.base + EMPTY(slot_of_box(at, first + x - 1u).stage));
    }
  }
  PTX_MULTIPLY_WAIT(0);
  hold(o, l);
  if (threadIdx.x % 32u == 0) ptx_barrier_arrive(b.base + EMPTY(slot_of_box(at, first + N - 1u).stage));
}

/* The thread's first output column. With 32 rows it is computed where it is used: registers are scarce. */
NUM u32 column_of(u32 first_box) {
  u32 thread = threadIdx.x;
  if (ROWS == 32u) ptx_forget(thread);
  return first_box * 64u + thread % 128u / 32u * 16u + thread % 32u / 4u;
}

/* The work of a CTA when a piece has SHARES of them. */
template <u32 SHARES> NUM void run_values_of(const mla_attn_args &a, const cta &b) {
  constexpr u32 N = VALUE_BOXES / SHARES;
  const u32 group = VALUE_GROUPS > 1u ? ptx_uniform(threadIdx.x / 128u) - SCORE_GROUPS : 0u;
  const u32 first_box = group * VALUE_BOXES + share_first(SHARES);
  const u32 lane = threadIdx.x % 32u, blocks = a.chunk_tokens / PAGE_TOKENS;
  ring_slot at = {0, 0};
  u32 nth = 0;
  f32 o[N][ROWS / 2u], l[ROWS / 2u], m[OWN];
  state<N> r;
  clear(o, l);
  float2 *groups = (float2 *)(a.scratch + (u64)blockIdx.x * attn_scratch_floats(ROWS, SPEC_KV_LORA_RANK)) + group * STATE_PAIRS(N) * 256u;
  groups += threadIdx.x % 128u;
  float2 *chunks = groups + STATE_PAIRS(N) * 128u;
  const u32 piece_chunks = a.counts ? a.counts->piece_chunks : ATTN_WHOLE, cut_prefix = attn_prefix(piece_chunks, a.group_chunks);
  ptx_grid_wait();
  FOR_PIECES(p, a, SHARES) {
    const u32 prefix = p.slot == ATTN_WHOLE ? a.group_chunks : cut_prefix;
    const bool folds_groups = p.first_block == 0 && prefix == a.group_chunks; /* this CTA folds the tile's groups */
    FOR_PASSES(w, a, p) {
      const u32 live = w.tokens * a.heads;
      for (u32 block = p.first_block; block < p.end_block; block++, nth++) {
        const u32 side = nth % 2u, chunk = block / blocks, in_group = chunk % a.group_chunks;
        f32 now[OWN];
        if (GATHERED || ROWS == 32u) at = slot_of_block(nth, 0u); /* computed anew: registers are scarce */
        ptx_barrier_wait(b.base + P_FULL(side), nth / 2u % 2u);
        if (GATHERED && !CODES) ptx_fence_async(); /* after copies by other threads */
        load_max(now, (const f32 *)(b.shared + AT_P_MAX) + side * ROWS);
        if (block % blocks != 0) rescale(o, l, m, now);
#pragma unroll
        for (u32 i = 0; i < OWN; i++) m[i] = now[i];
        __syncwarp();
        multiply_values(o, l, b, at, first_box, AT_P + side * P_BYTES);
        if (lane == 0) ptx_barrier_arrive(b.base + P_EMPTY(side));
        at = slot_after(at, BOXES);

        const bool last = block + 1u == p.end_block;
        if (!last && (block + 1u) % blocks != 0) continue; /* the chunk continues */
        const bool starts = attn_unit_starts(in_group, prefix);
        if (starts || CHUNKS_IN_MEMORY) start_unit(b, r, o, l, m);
        else fold_chunk(b, r, o, l, m);
        clear(o, l);
        if (!starts && CHUNKS_IN_MEMORY) fold_saved(r, chunks);
        if (!last && in_group + 1u < prefix) {
          if (CHUNKS_IN_MEMORY) save(chunks, r);
          continue;
        }
        if (folds_groups && chunk >= a.group_chunks) fold_saved(r, groups);
        if (folds_groups && !last) {
          save(groups, r);
        } else if (p.slot == ATTN_WHOLE) {
          store_out(a, r, (u64)(p.tile.row + w.token) * a.heads, live, column_of(first_box));
        } else {
          const u64 unit = attn_unit_at(chunk, piece_chunks, a.group_chunks);
          store_unit(a, r, (p.slot + unit * p.tile.count + w.token) * a.heads, live, column_of(first_box));
        }
      }
    }
  }
}

NUM void run_values(const mla_attn_args &a, const cta &b) {
  if (share_count(a) == 1u) run_values_of<1>(a, b);
  else run_values_of<SHARES_MAX>(a, b);
}

#endif

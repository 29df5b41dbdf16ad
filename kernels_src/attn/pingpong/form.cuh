/* attn/pingpong/form.cuh - mla_attn for 65 to 128 heads over index lists that are one chunk, two ping-pong math warpgroups. NUMERICS.md,
 * `mla_attn`.
 *
 * A 2-CTA cluster takes a token at a time, each CTA 64 of its heads with all columns. Nothing is folded inside a chunk, so that O stays in
 * registers for the whole list. KV blocks alternate between two buffers. Warpgroups:
 *
 *   0 and 1  S[64][64] = Q KV^T and P of the even and the odd blocks; O += P V of all blocks, half of the columns each. Each passes its
 *            P to the other through the rope box of the block, with m, so that blocks are added in the order of the list
 *   2 (3)    look rows up and load them: attn/pingpong/load_bf16.cuh; codes, by two warpgroups: attn/pingpong/load_fp8.cuh
 *
 * Grid: any even number of CTAs. Dynamic shared memory: 232448. H100, 128 heads, lists of 2,048, fp8_ds_mla, 64 requests: 92 us.
 * tools/bench/history/2026-11-24-sparse-one-chunk.md, 2026-11-26-sparse-pingpong-producers.md. Read next: attn/pingpong/layout.cuh. */
#ifndef VERBATIM_ATTN_PINGPONG_FORM_CUH
#define VERBATIM_ATTN_PINGPONG_FORM_CUH
#if SPEC_KV_FORMAT
#include "attn/pingpong/load_fp8.cuh"
#else
#include "attn/pingpong/load_bf16.cuh"
#endif
#include "attn/pingpong/epilogue.cuh"

#define KERNEL_CLUSTER 2u
#define KERNEL_CLUSTER_X 2u

/* Warpgroup 0. k counts pairs of blocks. */
NUM void run_even(const mla_attn_args &a, const cta &b) {
  token t;
  for (u32 n = 0, k = 0; find_token(a, n, t); n++) {
    f32 s[32], m[2], top[2];
    probs x;
    output out;
    clear(out);
    wait_full(b, Q_FULL, n);
    for (u32 left = t.blocks; left > 0; left -= 2u, k++) {
      start_scores(b, s, 0, k);
      PTX_MULTIPLY_WAIT(0);
      if (left == 2u && threadIdx.x % 32u == 0) ptx_barrier_arrive(barrier_at(b, Q_EMPTY));
      m[0] = out.m[0];
      m[1] = out.m[1];
      scale_scores(a, b, s, top, 0);
      raise_max(b, m, top, 0);
      if (!CODES) arrive_warp(b, M_FULL);
      make_probs(b, s, m, x, 0);
      rescale<0>(out, m);
      start_values<0>(out, x, 0);
      release_values<0>(b, 0);
      load_probs(b, x, 1u, k);
      load_max(b, m, 1u);
      rescale<0>(out, m);
      start_values<0>(out, x, 1u);
      release_values<0>(b, 1u);
    }
    store_out<0>(a, b, t, out, n);
  }
}

/* Warpgroup 1. */
NUM void run_odd(const mla_attn_args &a, const cta &b) {
  token t;
  for (u32 n = 0, k = 0; find_token(a, n, t); n++) {
    f32 s[32], m[2], top[2];
    probs x, own;
    output out;
    clear(out);
    wait_full(b, Q_FULL, n);
    for (u32 left = t.blocks; left > 0; left -= 2u, k++) {
      if (CODES) {
        load_probs(b, x, 0, k);
        load_max(b, m, 0);
        rescale<1>(out, m);
        start_values<1>(out, x, 0);
        release_values<1>(b, 0);
      }
      start_scores(b, s, 1u, k);
      PTX_MULTIPLY_WAIT(0);
      if (left == 2u && threadIdx.x % 32u == 0) ptx_barrier_arrive(barrier_at(b, Q_EMPTY));
      scale_scores(a, b, s, top, 1u);
      if (!CODES) {
        wait_full(b, M_FULL, k);
        load_max(b, m, 0);
        rescale<1>(out, m);
      }
      raise_max(b, m, top, 1u);
      if (!CODES) {
        load_probs(b, x, 0, k);
        start_values<1>(out, x, 0);
      }
      make_probs(b, s, m, own, 1u);
      if (!CODES) release_values<1>(b, 0);
      rescale<1>(out, m);
      start_values<1>(out, own, 1u);
      release_values<1>(b, 1u);
    }
    store_out<1>(a, b, t, out, n);
  }
}

/* Arrivals that complete a phase of a barrier. */
NUM u32 arrivals_of(u32 i) {
  if (i < EMPTY) return load_arrivals(i % BOX_GROUPS);
  if (i < P_FULL) return CODES ? 8u : 4u; /* the warps of one warpgroup, here or in both CTAs */
  if (i == Q_FULL) return 1u;
  return i == Q_EMPTY ? 8u : 4u;
}

extern "C" __global__ __cluster_dims__(KERNEL_CLUSTER_X, 1, 1) __launch_bounds__(SPEC_THREADS, 1)
void mla_attn(const __grid_constant__ mla_attn_args a, const __grid_constant__ tensor_maps maps) {
  extern __shared__ u8 raw[];
  ptx_grid_next();
  cta b; /* start_cluster written out: as a call it reorders this form's registers */
  b.base = (ptx_shared(raw) + 1023u) & ~1023u;
  b.shared = raw + (b.base - ptx_shared(raw));
  b.rank = blockIdx.x % 2u;
  if ((b.base & 0xffffffu) != BASE) __trap();
  if (threadIdx.x == 0) {
    for (u32 i = 0; i < BARRIERS; i++) ptx_barrier_init(barrier_at(b, i), arrivals_of(i));
    ptx_barrier_ready();
  }
  store_ones(b);
  ptx_fence_async();
  ptx_cluster_sync();
  ptx_grid_wait();

  const u32 group = ptx_uniform(threadIdx.x / 128u);
  if (group == 0) {
    PTX_REGISTERS_MORE(CODES ? 200 : 216);
    run_even(a, b);
  } else if (group == 1u) {
    PTX_REGISTERS_MORE(CODES ? 200 : 216);
    run_odd(a, b);
  } else {
    PTX_REGISTERS_LESS(CODES ? 56 : 72);
    run_loads(a, maps, b);
  }
  __syncwarp();
  ptx_cluster_sync(); /* the other CTA may still arrive here */
}

#endif

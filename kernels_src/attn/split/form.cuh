/* attn/split/form.cuh - mla_attn for few tokens of 33 to 128 heads over index lists that are one chunk of up to 2,048 entries: a token is
 * split over SPEC_SPREAD CTAs. NUMERICS.md, `mla_attn`.
 *
 *   first half   each CTA scores its share of the entries for all heads, publishes their maxima, then P, in `scratch`
 *   second half  each CTA computes its columns of the outputs from P of all entries, in the order of the list: nothing is folded
 *
 * Warpgroups 0 and 1 compute (attn/split/scores.cuh, attn/split/values.cuh), 2 and 3 load (attn/split/load.cuh,
 * attn/split/load_values.cuh). Of more than 64 heads each computes one group; of up to 64, SPEC_GROUPS 1, they take blocks of entries in
 * turn, then half of the columns each. The CTAs of a token meet twice at a grid barrier in memory, so all CTAs of the grid must run at
 * once; clusters of 8 would do, but an H200 holds no more than 15 of them. Grid: any multiple of SPEC_SPREAD, at most one CTA per
 * multiprocessor. Dynamic shared memory: 232448. H200, 64 heads, lists of 2,048, fp8_ds_mla: 1 token 20 us, 8 tokens 24, 16 tokens 32.
 * tools/bench/history/2026-11-24-sparse-split-over-ctas.md. Read next: attn/split/layout.cuh. */
#ifndef VERBATIM_ATTN_SPLIT_FORM_CUH
#define VERBATIM_ATTN_SPLIT_FORM_CUH
#include "attn/split/epilogue.cuh"
#include "attn/split/load_values.cuh"

#define KERNEL_TOGETHER SPLITS /* CTAs that wait for each other without being a cluster */

/* Computes its warpgroup's number anew: while scores are held there is no register for it. */
NUM void run_values(const mla_attn_args &a, const cta &b, const token &t, u32 &use) {
  u32 group = threadIdx.x / 128u;
  if (SHARERS > 1u) ptx_forget(group); /* else addresses would be computed before the scores and kept */
  const u32 heads = HEADS_APART ? b.rank / SLICES : heads_of(group);
  output out;
  if (HEADS_APART && group > 0) return;
  out.m[0] = out.m[1] = NO_MAX; /* raised by the first block */
#pragma unroll
  for (u32 i = 0; i < OUTPUTS; i++) out.o[i] = 0.0f;
  add_blocks(b, out, t, use, group, heads);
  store_out(a, b, t, out, group, heads);
}

/* Arrivals that complete a phase of a barrier. */
NUM u32 arrivals_of(u32 i) {
  if (i < K_EMPTY) return key_arrivals();
  if (i == P_FULL || i == Q_FULL) return 1u;
  if (i >= V_FULL && i < V_EMPTY) return CREW / 32u + 1u; /* the warps that load, and the thread that copies P */
  if (SHARERS > 1u && i < V_FULL) return 4u;
  return HEADS_APART && i >= V_EMPTY && i != S_DONE ? 4u : 8u; /* the warps that compute */
}

extern "C" __global__ __launch_bounds__(SPEC_THREADS, 1)
void mla_attn(const __grid_constant__ mla_attn_args a, const __grid_constant__ tensor_maps maps) {
  extern __shared__ u8 raw[];
  ptx_grid_next();
  const cta b = {BASE, blockIdx.x % SPLITS, raw + (BASE - ptx_shared(raw))};
  if (ptx_shared(raw) > BASE) __trap();
  if (threadIdx.x == 0) {
    init_barriers(b);
    token first;
    if (find_token(a, 0, first)) ptx_forget(first.row); /* an input of the step: brings it near while the previous kernel may still run */
  }
  store_ones(b);
  ptx_fence_async();
  __syncthreads();
  ptx_grid_wait();

  token t;
  const u32 group = ptx_uniform(threadIdx.x / 128u);
  if (group < 2u) {
    PTX_REGISTERS_MORE(GROUPS == 1u ? 184 : 168);
    for (u32 n = 0, k = 0, use = 0; find_token(a, n, t); n++) {
      begin_token(n);
      cta c = b;
      if (SHARERS > 1u) ptx_forget(c.rank);
      look_up_other_rows(a, maps, c, t);
      run_scores(a, c, t, n, SHARERS > 1u ? ptx_uniform(threadIdx.x / 128u) : group, k);
      run_values(a, c, t, use);
    }
  } else {
    PTX_REGISTERS_LESS(GROUPS == 1u ? 72 : 88);
    for (u32 n = 0, k = 0, use = 0; find_token(a, n, t); n++) {
      begin_token(n);
      look_up_own_rows(a, b, t);
      load_keys(a, b, t, n, k);
      wait_for_rows();
      load_values(a, b, t, n, use);
    }
  }
}

#endif

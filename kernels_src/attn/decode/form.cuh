/* attn/decode/form.cuh - mla_attn for up to 32 heads: SPEC_ROWS (8, 16 or 32) (token, head) rows at a time. NUMERICS.md, `mla_attn`.
 *
 * Tokens and latent columns are the M = 64 side of the wgmma, (token, head) rows the N side, so that few heads need no padding:
 *
 *   S^T[64 tokens][rows] = K Q^T      O^T[64 columns][rows] += V^T P^T, V the same KV block transposed      l^T += 1 P^T
 *
 * Four warpgroups: scores (one or two, on alternate blocks), values (two if the columns of 32 rows need more registers than one has),
 * loads. KV blocks are TMA boxes of 64 tokens x 64 columns in a ring. The running maximum goes with P to the values, and from one
 * block's scores to the next's. A tile with more tokens than SPEC_ROWS holds is computed in passes; KV blocks of earlier steps are
 * loaded before the wait for the previous kernel. TMA maps: w the KV rows, boxes of 64 x 64; x the queries, SPEC_ROWS x 64. Dynamic
 * shared memory: ATTN_SHARED_BYTES. H200, mla_fold included: 16 heads, 64 x 32,768 tokens 573 us, 1.02 times the HBM bound; 32 heads, 64
 * x 8,192 tokens 166 us, 1.18 times. tools/bench/history/2026-11-28-dense-beside-flashmla.md. Read next: attn/decode/layout.cuh. */
#ifndef VERBATIM_ATTN_DECODE_FORM_CUH
#define VERBATIM_ATTN_DECODE_FORM_CUH
#include "attn/decode/load.cuh"
#include "attn/decode/load_rows.cuh"
#include "attn/decode/values.cuh"
#include "attn/decode/scores.cuh"
#include "attn/decode/shared_chunk.cuh"

/* The ring's barriers, and those between warpgroups; one thread. */
NUM void init_ring_barriers(const cta &b) {
  for (u32 i = 0; i < RING; i++) {
    ptx_barrier_init(b.base + FULL(i), FULL_ARRIVALS);
    ptx_barrier_init(b.base + EMPTY(i), 4u);
  }
  for (u32 i = 0; i < GATHER_WARPS * RAW_QUADS && CODES; i++) ptx_barrier_init(b.base + RAW_FULL(0u, i), 1u);
  for (u32 i = 0; i < SHARERS && SPEC_SHARES; i++) {
    ptx_barrier_init(b.base + SHARED_P_FULL(i), 1u);
    ptx_barrier_init(b.base + SHARED_MAX_FULL(i), 1u);
  }
  ptx_barrier_init(b.base + Q_FULL, 1u);
  ptx_barrier_init(b.base + Q_EMPTY, 4u * SCORE_GROUPS);
  for (u32 i = 0; i < 2u; i++) {
    ptx_barrier_init(b.base + P_FULL(i), 4u);
    ptx_barrier_init(b.base + P_EMPTY(i), 4u * VALUE_GROUPS);
    ptx_barrier_init(b.base + MAX_READY(i), 4u);
  }
  ptx_barrier_ready();
}

NUM void decode(const mla_attn_args &a, const tensor_maps &maps, u8 *raw) {
  const u32 base = (ptx_shared(raw) + 1023u) & ~1023u, warp = ptx_uniform(threadIdx.x / 32u);
  const cta b = {base, 0, raw + (base - ptx_shared(raw))};
  const attn_piece chunk = find_chunk(a);
  const bool shares = chunk.end_block > 0;
  if (threadIdx.x == LOAD_THREAD) {
    ptx_fetch_map(&maps.w);
    ptx_fetch_map(&maps.x);
    init_ring_barriers(b);
  }
  ((u32 *)(b.shared + AT_ONES))[threadIdx.x] = 0x3f803f80u;
  ptx_fence_async();
  __syncthreads();
  if (SPEC_SHARES) ptx_cluster_sync(); /* barriers of the other CTAs are ready */
  if (warp < SCORE_THREADS / 32u) {
    PTX_REGISTERS_LESS(SCORE_REGISTERS);
    if (shares) score_chunk(a, b, chunk);
    else run_scores(a, maps, b);
  } else if (warp < LOAD_THREAD / 32u) {
    PTX_REGISTERS_MORE(VALUE_REGISTERS);
    if (shares) add_chunk(a, b, chunk);
    else run_values(a, b);
  } else {
    PTX_REGISTERS_LESS(LOAD_REGISTERS);
    if (GATHERED) {
      gather_rows(a, b);
      return;
    }
    if (warp == LOAD_THREAD / 32u && shares) load_chunk(a, maps, b, chunk);
    if (warp == LOAD_THREAD / 32u && !shares) load_kv(a, maps, b);
    if (warp == LOAD_THREAD / 32u + 1u) load_queries(a, maps, b);
  }
}

#if SPEC_SHARES
#define KERNEL_CLUSTER SPEC_SHARES
#define KERNEL_CLUSTER_X SPEC_SHARES
#define LAUNCH_CLUSTER __cluster_dims__(SPEC_SHARES, 1, 1)
#else
#define LAUNCH_CLUSTER
#endif

extern "C" __global__ LAUNCH_CLUSTER __launch_bounds__(BLOCK_THREADS, 1)
void mla_attn(const __grid_constant__ mla_attn_args a, const __grid_constant__ tensor_maps maps) {
  extern __shared__ u8 raw[];
  ptx_grid_next();
  decode(a, maps, raw);
}

#endif

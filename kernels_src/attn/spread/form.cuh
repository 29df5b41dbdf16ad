/* attn/spread/form.cuh - mla_attn of few tokens of 65 to 128 heads over lists that are one chunk of up to 2,048 places: SPEC_SPREAD blocks
 * share a token. NUMERICS.md, `mla_attn`.
 *
 * Each weighs its part of the places for all heads (attn/spread/scores.cuh); P goes to memory, 256 KB for 2,048 places and 64 heads, and
 * each makes its columns of the outputs from all of it (attn/spread/outputs.cuh). Two of four warpgroups multiply, two bring rows
 * (attn/spread/keys.cuh, attn/spread/values.cuh). Nothing is folded, so that the chain of blocks of places is the list's. A row is read
 * twice, all of it by one block, then its columns by each. The blocks of a token wait for each other, twice, at counters in memory: a
 * cluster would do, but an H200 holds no more than 15 clusters of 8 blocks at a time. So all blocks of the grid must be able to run at
 * once. H100, 128 heads, lists of 2,048, codes (bf16 rows): 1 token by 32 blocks 20 us (18), 8 by 16 28 (27), 16 by 8 40 (42). Grid: any
 * multiple of SPEC_SPREAD that fits the GPU at one block per multiprocessor. Dynamic shared bytes: 232448. */
#ifndef VERBATIM_MLA_SPREAD_CUH
#define VERBATIM_MLA_SPREAD_CUH
#include "attn/spread/outputs.cuh"
#include "attn/spread/values.cuh"

#define KERNEL_TOGETHER SHARERS /* blocks that wait for each other, no cluster */

/* How often a barrier is arrived at in a phase. */
NUM u32 arrivals_of(u32 i) {
  if (i < K_FREE) return key_arrivals();
  if (i == P_COME || i == Q_COME) return 1u;
  if (i >= V_COME && i < V_FREE) return 9u; /* the warps that bring, and who copies */
  return APART && i >= V_FREE && i != S_DONE ? 4u : 8u; /* those that multiply */
}

extern "C" __global__ __launch_bounds__(SPEC_THREADS, 1)
void mla_attn(const __grid_constant__ mla_attn_args a, const __grid_constant__ tensor_maps maps) {
  extern __shared__ u8 raw[];
  ptx_grid_next();
  place p;
  p.rank = blockIdx.x % SHARERS;
  p.shared = raw + (BASE - ptx_shared(raw));
  if (ptx_shared(raw) > BASE) __trap();
  if (threadIdx.x == 0) {
    for (u32 i = 0; i < BARRIERS; i++) ptx_barrier_init(barrier_at(i), arrivals_of(i));
    ptx_barrier_ready();
    token first;
    if (take_token(a, 0, first)) ptx_forget(first.row); /* an input of the step: it comes near while the kernel before may still run */
  }
  if (threadIdx.x < 64u) ((u32 *)(p.shared + AT_ONES))[threadIdx.x] = 0x3f803f80u;
  ptx_fence_async();
  __syncthreads();
  ptx_grid_wait();

  token t;
  const u32 group = ptx_uniform(threadIdx.x / 128u);
  if (group < 2u) {
    PTX_REGISTERS_MORE(168);
    for (u32 n = 0, k = 0, use = 0; take_token(a, n, t); n++) {
      begin_token(n);
      find_other_rows(a, maps, p, t);
      weigh(a, p, t, n, group, k);
      attend(a, p, t, use);
    }
  } else {
    PTX_REGISTERS_LESS(88);
    for (u32 n = 0, k = 0, use = 0; take_token(a, n, t); n++) {
      begin_token(n);
      find_own_rows(a, p, t);
      bring_keys(a, p, t, n, k);
      wait_for_rows();
      bring_values(a, p, t, n, use);
    }
  }
}

#endif

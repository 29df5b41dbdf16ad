/* attn/prologue.cuh - how a CTA of a 64-row form of mla_attn starts: barriers, the operand of ones, the wait for the previous kernel.
 *
 * The form's layout.cuh defines BARRIERS, their number, and AT_ONES before it includes this file; its form.cuh defines arrivals_of.
 * Knows nothing of what the barriers are for. Read next: attn/cluster/form.cuh. */
#ifndef VERBATIM_ATTN_PROLOGUE_CUH
#define VERBATIM_ATTN_PROLOGUE_CUH
#include "attn/barriers.cuh"

/* Arrivals that complete a phase of a barrier. */
NUM u32 arrivals_of(u32 barrier);

/* One thread. */
NUM void init_barriers(const cta &b) {
  for (u32 i = 0; i < BARRIERS; i++) ptx_barrier_init(barrier_at(b, i), arrivals_of(i));
  ptx_barrier_ready();
}

/* bf16 ones, the operand that sums probabilities: l += P 1. */
NUM void store_ones(const cta &b) {
  if (threadIdx.x < 64u) ((u32 *)(b.shared + AT_ONES))[threadIdx.x] = 0x3f803f80u;
}

/* The prologue of a CTA in a 2-CTA cluster, up to the wait for the previous kernel. The layout must start at BASE in both CTAs: then
 * operand descriptors are compile-time constants. The address bits above tell the CTAs of a cluster apart. */
NUM cta start_cluster(u8 *raw) {
  cta b;
  b.base = (ptx_shared(raw) + 1023u) & ~1023u;
  b.shared = raw + (b.base - ptx_shared(raw));
  b.rank = blockIdx.x % 2u;
  if ((b.base & 0xffffffu) != BASE) __trap();
  if (threadIdx.x == 0) init_barriers(b);
  store_ones(b);
  ptx_fence_async();
  ptx_cluster_sync();
  ptx_grid_wait();
  return b;
}

#endif

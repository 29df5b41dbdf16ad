/* attn/turn/form.cuh - mla_attn of 65 to 128 heads over lists that are one chunk, two warpgroups by turns. NUMERICS.md, `mla_attn`.
 *
 * A cluster of two blocks takes a token at a time, each block 64 of its heads with all columns. Nothing is folded inside a chunk, so that
 * O stays in registers for the whole list. Blocks of KV rows come into two places of memory by turns; warpgroups:
 *   two make S[64][64] = Q KV^T and P as bf16, of every other block each, and half of the columns of O += P V of all blocks, P going from
 *   one to the other where the columns behind V were; m goes with P, so that the chain of blocks is the list's;
 *   the last one, of codes the last two, look rows up and bring them: attn/turn/copy.cuh, attn/turn/codes.cuh.
 * Grid: any even number of blocks. Dynamic shared bytes: 232448. Moves 1,152 bytes of every row, or its codes, from memory or L2, for
 * 2 * 64 * (576 + 512) operations of a block.
 * 128 heads, lists of 2,048: bf16 rows, H200, prompts of 4,096 tokens at 8,192 558 TFLOP/s, at 65,536 539; codes, H100, 64 requests 92 us
 * (FlashMLA 88), 128 178 (177). Lost: one warpgroup for all S and P and two for O, 505 TFLOP/s of 1,024 tokens for 557. */
#ifndef VERBATIM_MLA_TURN_CUH
#define VERBATIM_MLA_TURN_CUH
#if SPEC_KV_FORMAT
#include "attn/turn/codes.cuh"
#else
#include "attn/turn/copy.cuh"
#endif
#include "attn/turn/outputs.cuh"

#define KERNEL_CLUSTER 2u
#define KERNEL_CLUSTER_X 2u

/* How often a barrier is arrived at in a phase. */
NUM u32 arrivals_of(u32 i) {
  if (i < FREE) return bring_arrivals(i % GROUPS);
  if (i < P_COME) return CODES ? 8u : 4u; /* the warps of one warpgroup, here or in both blocks */
  if (i == Q_COME) return 1u;
  return i == Q_FREE ? 8u : 4u;
}

extern "C" __global__ __cluster_dims__(KERNEL_CLUSTER_X, 1, 1) __launch_bounds__(SPEC_THREADS, 1)
void mla_attn(const __grid_constant__ mla_attn_args a, const __grid_constant__ tensor_maps maps) {
  extern __shared__ u8 raw[];
  ptx_grid_next();
  place p;
  p.base = (ptx_shared(raw) + 1023u) & ~1023u;
  p.shared = raw + (p.base - ptx_shared(raw));
  p.rank = blockIdx.x % 2u;
  if ((p.base & 0xffffffu) != BASE) __trap(); /* above are bits of the cluster's block */
  if (threadIdx.x == 0) {
    for (u32 i = 0; i < BARRIERS; i++) ptx_barrier_init(barrier_at(p, i), arrivals_of(i));
    ptx_barrier_ready();
  }
  if (threadIdx.x < 64u) ((u32 *)(p.shared + AT_ONES))[threadIdx.x] = 0x3f803f80u;
  ptx_fence_async();
  ptx_cluster_sync();
  ptx_grid_wait();

  const u32 group = ptx_uniform(threadIdx.x / 128u);
  if (group == 0) {
    PTX_REGISTERS_MORE(CODES ? 200 : 216);
    even(a, p);
  } else if (group == 1u) {
    PTX_REGISTERS_MORE(CODES ? 200 : 216);
    odd(a, p);
  } else {
    PTX_REGISTERS_LESS(CODES ? 56 : 72);
    bring(a, maps, p);
  }
  __syncwarp();
  ptx_cluster_sync(); /* the other block may still arrive here */
}

#endif

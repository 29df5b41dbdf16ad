/* attn/cluster/form.cuh - mla_attn for up to 64 (token, head) rows, by a 2-CTA cluster. NUMERICS.md, `mla_attn`.
 *
 * A cluster takes one piece at a time: chunks of a tile (consecutive tokens of one sequence) for up to 64 heads. Operand row = token *
 * heads + head; unused rows compute garbage that nobody stores. Each CTA owns half of the output columns, so that O of a chunk and of its
 * group stay in registers, and scores every other KV block of 64 tokens; it sends P and m to the other CTA by stores to its shared memory.
 * Warpgroups:
 *
 *   0 and 1  values: O[64][kv_lora_rank / 4] += P V, V being the KV block transposed; 0 also l += P 1
 *   2        scores: S[64][64] = Q KV^T and P as bf16, as wgmma wants it in registers; m passes from block to block
 *   3        loads: blocks scored here (all columns), the other blocks (half of V), work items
 *
 * Tokens after a row's position have probability 0; chunks after it are not folded. The fold of groups is saved in `scratch`. Grid: any
 * even number of CTAs. Dynamic shared memory: 232448. H200, 128 heads, the last 1,024 of 8,192 tokens, chunks of 512: 506 TFLOP/s.
 * tools/bench/history/2026-11-22-attention-cluster.md. Read next: attn/cluster/layout.cuh. */
#ifndef VERBATIM_ATTN_CLUSTER_FORM_CUH
#define VERBATIM_ATTN_CLUSTER_FORM_CUH
#include "attn/cluster/load.cuh"
#if SPEC_KV_FORMAT
#include "attn/cluster/load_fp8.cuh"
#else
#include "attn/cluster/load_bf16.cuh"
#endif
#include "attn/cluster/values.cuh"
#include "attn/cluster/scores.cuh"

#define KERNEL_CLUSTER 2u
#define KERNEL_CLUSTER_X 2u

/* Arrivals that complete a phase of a barrier. */
NUM u32 arrivals_of(u32 i) {
  const bool by_warps = (i >= KEYS_EMPTY && i <= P_FULL) || i == Q_EMPTY; /* the warps of one warpgroup */
  if (by_warps) return 4u;
  if (i == VALUES_SENT) return 2u; /* value warpgroups of the other CTA */
  if (i == P_EMPTY) return 16u; /* the warps of two warpgroups here and two in the other CTA */
  if (i >= ITEM_EMPTY && i < Q_FULL) return GATHERED ? 16u : 14u; /* the warps of all four warpgroups, or of three and two threads */
  if (i >= KEYS_EMPTY || !GATHERED) return 1u;
  if (CODES && i >= VALUES_FULL) return 1u; /* the thread that expects the other CTA's copy */
  const bool has_valid = i >= BOTH_FULL && i < VALUES_FULL && (i - BOTH_FULL) % HALF == 0; /* and warps, which store AT_VALID */
  const bool copied = COPIED || (ROPE_COPIED && i == KEYS_FULL + HALF);
  return !copied ? 4u : has_valid ? 132u : 128u; /* warps, or threads */
}

extern "C" __global__ __cluster_dims__(KERNEL_CLUSTER_X, 1, 1) __launch_bounds__(SPEC_THREADS, 1)
void mla_attn(const __grid_constant__ mla_attn_args a, const __grid_constant__ tensor_maps maps) {
  extern __shared__ u8 raw[];
  ptx_grid_next();
  const cta b = start_cluster(raw);
  const u32 group = ptx_uniform(threadIdx.x / 128u);
  if (group < 2u) {
    PTX_REGISTERS_MORE(GATHERED ? 176 : 192);
    run_values(a, b, group);
  } else if (group == 2u) {
    PTX_REGISTERS_LESS(GATHERED ? 64 : 88);
    run_scores(a, b);
  } else if (GATHERED) {
    PTX_REGISTERS_LESS(96);
    run_loads(a, maps, b);
  } else {
    PTX_REGISTERS_LESS(40);
    const u32 warp = ptx_uniform(threadIdx.x / 32u);
    if (warp == 12u && ptx_elect()) load_keys(a, maps, b);
    if (warp == 13u && ptx_elect()) load_values(a, maps, b);
    if (warp == 14u) publish_items(a, b);
  }
  __syncwarp();
  ptx_cluster_sync(); /* the other CTA may still write here */
}

#endif

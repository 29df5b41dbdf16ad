/* mla_decode.cuh - the form of mla_attn for few heads: SPEC_ROWS (8, 16 or 32) rows of (token, head) at a time. NUMERICS.md, `mla_attn`.
 *
 * Tokens and latent columns lie on the 64-row side of the tensor cores, (token, head) rows on the narrow one, so that nothing is padded:
 *   S^T[64 tokens][rows] = K Q^T       O^T[64 columns][rows] += V^T P^T, V the same KV block read across, l^T += 1 P^T
 * A block of four warpgroups: scores (one or two, which take the KV blocks by turns), outputs (two where the columns of 32 rows do not fit
 * one's registers), and the copies. KV blocks come by TMA as boxes of 64 tokens x 64 columns, the rope's first, through a ring; a box is
 * free again when its last product is done. The running maximum goes with P from scores to outputs, and from one block's scores to
 * the next one's. Boxes of earlier steps' tokens are asked for before the kernels in front of this one have ended.
 * A block takes its pieces from attn_share.cuh; a tile with more tokens than fit is taken in passes. Groups are folded in registers, whole
 * tiles of several groups through `scratch`, where a thread only reads what it wrote.
 * Maps: w the KV rows, boxes of 64 x 64; x the queries, boxes of SPEC_ROWS x 64. Dynamic shared bytes: ATTN_SHARED_BYTES. Moves
 * the KV rows once, (kv_lora_rank + rope_dim) * 2 bytes each, and each unit of a cut tile.
 * Bound: those bytes at 4.3 TB/s; with few blocks, 1.2 us a KV block and worker. On an H200, 16 heads, 512 + 64, chunks of 256, groups of
 * 8, calls of this kernel alone overlapping each other (us; in brackets times the bound): 1 x 1,024 tokens 8.8, 16 x 1,024 9.8, 64 x 1,024
 * 26.9 (1.53), 128 x 4,096 155 (1.10), 64 x 8,192 152 (1.08), 128 x 32,768 1,153 (1.03).
 * With mla_fold behind each: 11.6, 14.0, 30.7, 154, 158, 1,152. A block takes 4 to 5 us from its start to the cut, and 1.4 to 3.5 more to
 * its first box: with all multiprocessors busy that is most of what is lacking to the bound.
 * Lost: 32 rows with the chunks' fold in registers (spills); KV rows fetched to L2 before the cut is known (no faster). */
#ifndef VERBATIM_MLA_DECODE_CUH
#define VERBATIM_MLA_DECODE_CUH
#include "decode_outputs.cuh"
#include "decode_scores.cuh"

/* === Copies ============================================================================================================= */

/* Whether this step completes one of the lanes' pages: a prompt's page that another sequence of the step shares. */
NUM bool is_being_written(const share_block *share, const mla_attn_args &a, u32 page, u32 pages) {
  bool found = false;
  for (u32 i = 0; i < share->all.tiles; i += 32u) {
    const u32 nth = i + threadIdx.x % 32u;
    u32 written = 0xffffffffu;
    if (nth < share->all.tiles) {
      const attn_tile t = a.tiles[nth];
      if (t.position / PAGE_TOKENS != (t.position + t.count) / PAGE_TOKENS)
        written = a.block_table[(u64)t.seq * a.block_table_stride + t.position / PAGE_TOKENS];
    }
    for (u32 k = 0; k < pages; k++) {
      const u32 wanted = __shfl_sync(WARP_ALL, page, k);
      found = found || wanted == written;
    }
  }
  return __ballot_sync(WARP_ALL, found) != 0;
}

/* One warp. What a first ring of boxes holds may be asked for at once where no kernel of this step writes it. */
NUM void copy_kv(const mla_attn_args &a, const tensor_maps &maps, const share_block *share, u32 base) {
  const u64 policy = ptx_once();
  const u32 lane = threadIdx.x % 32u;
  place at = {0, 1};
  u32 early = RING / BOXES;
  bool first = true;
  FOR_PIECES(p, share, a) {
    const u32 *pages = a.block_table + (u64)p.tile.seq * a.block_table_stride;
    FOR_PASSES(w, p) {
      u32 page = 0;
      for (u32 block = p.first_block; block < p.end_block; block++) {
        const u32 nth = (block - p.first_block) % 32u;
        if (nth == 0) page = block + lane < p.end_block ? pages[block + lane] : 0u;
        if (first) {
          const u32 most = p.end_block - block < early ? p.end_block - block : early;
          if (is_being_written(share, a, page, most)) early = 0;
          first = false;
        }
        if (early != ~0u && (early == 0 || w.token > 0 || block >= p.tile.position / PAGE_TOKENS || block >= p.first_block + early)) {
          ptx_grid_wait();
          early = ~0u;
        }
        const u32 row = __shfl_sync(WARP_ALL, page, nth) * PAGE_TOKENS;
#pragma unroll 1
        for (u32 k = 0; k < BOXES; k++) {
          ptx_barrier_wait(base + EMPTY(at.stage), at.phase);
          if (lane == 0) {
            ptx_barrier_expect(base + FULL(at.stage), BOX_BYTES);
            ptx_copy_box(base + at.stage * BOX_BYTES, &maps.w, (k == 0 ? V_BOXES : k - 1u) * 64u, row, base + FULL(at.stage), policy);
          }
          __syncwarp();
          at = place_after(at, 1u);
        }
      }
    }
    early = early == ~0u ? early : 0u;
  }
}

/* One warp. */
NUM void copy_queries(const mla_attn_args &a, const tensor_maps &maps, const share_block *share, u32 base) {
  const u64 policy = ptx_often();
  u32 phase = 1;
  ptx_grid_wait();
  FOR_PIECES(p, share, a) {
    FOR_PASSES(w, p) {
      ptx_barrier_wait(base + Q_EMPTY, phase);
      phase ^= 1u;
      if (threadIdx.x % 32u == 0) {
        ptx_barrier_expect(base + Q_FULL, BOXES * Q_BOX_BYTES);
        for (u32 k = 0; k < BOXES; k++)
          ptx_copy_box(base + AT_Q + k * Q_BOX_BYTES, &maps.x, k * 64u, (p.tile.row + w.token) * a.heads, base + Q_FULL, policy);
      }
      __syncwarp();
    }
  }
}

/* === The block ========================================================================================================== */

NUM void start_barriers(u32 base) {
  for (u32 i = 0; i < RING; i++) {
    ptx_barrier_init(base + FULL(i), 1u);
    ptx_barrier_init(base + EMPTY(i), 4u);
  }
  ptx_barrier_init(base + Q_FULL, 1u);
  ptx_barrier_init(base + Q_EMPTY, 4u * SCORE_GROUPS);
  for (u32 i = 0; i < 2u; i++) {
    ptx_barrier_init(base + P_FULL(i), 4u);
    ptx_barrier_init(base + P_EMPTY(i), 4u * OUT_GROUPS);
    ptx_barrier_init(base + MAX_READY(i), 4u);
  }
  ptx_barrier_ready();
}

NUM void decode(const mla_attn_args &a, const tensor_maps &maps, u8 *raw) {
  const u32 base = (ptx_shared(raw) + 1023u) & ~1023u, warp = ptx_uniform(threadIdx.x / 32u);
  u8 *shared = raw + (base - ptx_shared(raw));
  share_block *share = (share_block *)(shared + AT_SHARE);
  if (threadIdx.x == COPY_THREAD) {
    ptx_fetch_map(&maps.w);
    ptx_fetch_map(&maps.x);
    start_barriers(base);
  }
  ((u32 *)(shared + AT_ONES))[threadIdx.x] = 0x3f803f80u;
  ptx_fence_async();
  share_make(&share->all, &share->lists, a);
  __syncthreads();
  if (warp < SCORE_THREADS / 32u) {
    PTX_REGISTERS_LESS(SCORE_REGISTERS);
    score(a, share, shared, base);
  } else if (warp < COPY_THREAD / 32u) {
    PTX_REGISTERS_MORE(OUT_REGISTERS);
    output(a, share, shared, base);
  } else {
    PTX_REGISTERS_LESS(COPY_REGISTERS);
    if (warp == COPY_THREAD / 32u) copy_kv(a, maps, share, base);
    if (warp == COPY_THREAD / 32u + 1u) copy_queries(a, maps, share, base);
    if (warp == COPY_THREAD / 32u + 2u && blockIdx.x == 0) {
      ptx_grid_wait();
      share_parts(&share->all, a);
    }
  }
}

#endif

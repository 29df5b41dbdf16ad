/* attn/decode/form.cuh - the form of mla_attn for few heads: SPEC_ROWS (8, 16 or 32) rows of (token, head) at a time. NUMERICS.md,
 * `mla_attn`.
 *
 * Tokens and latent columns lie on the 64-row side of the tensor cores, (token, head) rows on the narrow one, so that nothing is padded:
 *   S^T[64 tokens][rows] = K Q^T       O^T[64 columns][rows] += V^T P^T, V the same KV block read across, l^T += 1 P^T
 * A block of four warpgroups: scores (one or two, which take the KV blocks by turns), outputs (two where the columns of 32 rows do not fit
 * one's registers), and the copies. KV blocks come by TMA as boxes of 64 tokens x 64 columns, the rope's first, through a ring; a box is
 * free again when its last product is done. The running maximum goes with P from scores to outputs, and from one block's scores to
 * the next one's. Boxes of earlier steps' tokens are asked for before the kernels in front of this one have ended. KV rows that are no
 * bf16 numbers, or that lists name, are gathered instead: attn/decode/gather.cuh.
 * Where there are four blocks for each piece they share it: all four weigh its tokens, each makes a quarter of the output's columns, and
 * what nobody here multiplies again is given back at once. A step of one sequence: 1,926 us instead of 1,954; with 32 rows of 512, no gain.
 * A block takes its pieces from attn/pieces.cuh; a tile with more tokens than fit is taken in passes. Groups are folded in registers, whole
 * tiles of several groups through `scratch`, where a thread only reads what it wrote.
 * Maps: w the KV rows, boxes of 64 x 64; x the queries, boxes of SPEC_ROWS x 64. Dynamic shared bytes: ATTN_SHARED_BYTES. Moves
 * the KV rows once, (kv_lora_rank + rope_dim) * 2 bytes each, and each unit of a cut tile.
 * Bound: those bytes at 4.3 TB/s; with few blocks, 1.2 us a KV block and worker. On an H200, 16 heads, 512 + 64, chunks of 256, groups of
 * 8, calls that overlap each other, with mla_fold behind each (us; in brackets times the bound): 1 x 1,024 tokens 8.8, 16 x 1,024 11.2,
 * 64 x 1,024 24.0 (1.37), 128 x 4,096 145 (1.03), 64 x 8,192 146 (1.04), 64 x 32,768 571 (1.02), 128 x 32,768 1,140 (1.01). Units that L2
 * does not keep: 64 x 32,768 in 577. Four blocks asked for early instead of one: 12.0 (16 x 1,024), 25.8 (64 x 1,024), 16.3 instead of 15.8
 * (1 x 32,768), whole steps 0 to 0.1 % longer.
 * A block asks for its first KV row 1.3 us after its start. One request of 1,024 tokens, us behind the wait: queries 0.4, S of two
 * blocks 1.5, P 2.1, O 3.0, 4.5, 5.7, 6.7, units stored 7.9, fold waits no more 8.4, done 9.3. A multiplication of S or O takes 22
 * cycles, its operand's way from shared memory, however many warpgroups take part: 0.9 us of a KV block's 1.2.
 * Lost: 32 rows with the chunks' fold in registers (spills); more KV rows than the ring holds fetched to L2 before the wait, one or two
 * blocks of tokens (1 % slower, up to a tenth with 64 x 1,024) or seven (5 to 20 %); whole pages to L2 ahead of the ring (15 to 20 %); KV
 * rows without a word to L2 (2 to 6 %, but 64 x 32,768 in 590); boxes for which L2 fetches 256 bytes at a time (2 to 4 %); pieces of any
 * number of chunks (3, 5, 6, 7 of 8: as many units as chunks; 5 % faster to 25 % slower); no division in the loops over blocks (1 %
 * slower); clusters of four, or two, blocks that share a piece, KV blocks and output columns dealt to them (1 x 1,024 8.1 or 9.1, but a
 * step of one sequence is no faster, not all clusters of four find room at a time, and pairs take up to a fifth more of L2's rate where
 * that is short); the scores' code run once before the queries come (a step of one sequence 0 to 40 us more, of four 48); a ring so small
 * that blocks come beside those of absorb (12 us more). */
#ifndef VERBATIM_MLA_DECODE_CUH
#define VERBATIM_MLA_DECODE_CUH
#include "attn/decode/gather.cuh"
#include "attn/decode/outputs.cuh"
#include "attn/decode/scores.cuh"

/* === Copies ============================================================================================================= */

/* One warp. A first piece's blocks that no kernel of this step writes are asked for at once. */
NUM void copy_kv(const mla_attn_args &a, const tensor_maps &maps, u32 base) {
  const u64 policy = ptx_once();
  const u32 lane = threadIdx.x % 32u;
  place at = {0, 1};
  bool waited = false;
  const u32 shares = share_count(a);
  FOR_PIECES(p, a, shares) {
    const u32 *pages = a.block_table + (u64)p.tile.seq * a.block_table_stride;
    FOR_PASSES(w, a, p) {
      u32 page = 0;
      for (u32 block = p.first_block; block < p.end_block; block++) {
        const u32 nth = (block - p.first_block) % 32u;
        if (nth == 0) page = block + lane < p.end_block ? pages[block + lane] : 0u;
        if (!waited && (block >= p.first_block + p.early || round_ > 0 || w.token > 0)) {
          ptx_grid_wait();
          waited = true;
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
  }
}

/* One warp. */
NUM void copy_queries(const mla_attn_args &a, const tensor_maps &maps, u32 base) {
  const u64 policy = ptx_often();
  u32 phase = 1;
  const u32 shares = share_count(a);
  FOR_PIECES(p, a, shares) {
    FOR_PASSES(w, a, p) {
      ptx_barrier_wait(base + Q_EMPTY, phase);
      phase ^= 1u;
      ptx_grid_wait(); /* for the queries: the piece is known by now */
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
    ptx_barrier_init(base + FULL(i), FULL_ARRIVALS);
    ptx_barrier_init(base + EMPTY(i), 4u);
  }
  for (u32 i = 0; i < GATHER_WARPS * RAW_QUADS && CODES; i++) ptx_barrier_init(base + RAW_FULL(0u, i), 1u);
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
  if (threadIdx.x == COPY_THREAD) {
    ptx_fetch_map(&maps.w);
    ptx_fetch_map(&maps.x);
    start_barriers(base);
  }
  ((u32 *)(shared + AT_ONES))[threadIdx.x] = 0x3f803f80u;
  ptx_fence_async();
  __syncthreads();
  if (warp < SCORE_THREADS / 32u) {
    PTX_REGISTERS_LESS(SCORE_REGISTERS);
    score(a, maps, shared, base);
  } else if (warp < COPY_THREAD / 32u) {
    PTX_REGISTERS_MORE(OUT_REGISTERS);
    output(a, shared, base);
  } else {
    PTX_REGISTERS_LESS(COPY_REGISTERS);
    if (GATHERED) {
      gather(a, shared, base);
      return;
    }
    if (warp == COPY_THREAD / 32u) copy_kv(a, maps, base);
    if (warp == COPY_THREAD / 32u + 1u) copy_queries(a, maps, base);
  }
}

#endif

/* attn/decode/load.cuh - the producer warps of the decode form: TMA loads of KV blocks and queries.
 *
 * Rows that are gathered are loaded by attn/decode/load_rows.cuh. Knows nothing of what is computed. Read next: attn/decode/scores.cuh. */
#ifndef VERBATIM_ATTN_DECODE_LOAD_CUH
#define VERBATIM_ATTN_DECODE_LOAD_CUH
#include "attn/decode/layout.cuh"

/* One warp. Blocks of the first piece that no kernel of this step writes (p.early) are loaded before the wait for the previous kernel. */
NUM void load_kv(const mla_attn_args &a, const tensor_maps &maps, const cta &b) {
  const u64 policy = ptx_once();
  const u32 lane = threadIdx.x % 32u;
  ring_slot at = {0, 1};
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
          ptx_barrier_wait(b.base + EMPTY(at.stage), at.phase);
          if (lane == 0) {
            ptx_barrier_expect(b.base + FULL(at.stage), BOX_BYTES);
            ptx_copy_box(b.base + at.stage * BOX_BYTES, &maps.w, (k == 0 ? V_BOXES : k - 1u) * 64u, row, b.base + FULL(at.stage), policy);
          }
          __syncwarp();
          at = slot_after(at, 1u);
        }
      }
    }
  }
}

/* One warp. */
NUM void load_queries(const mla_attn_args &a, const tensor_maps &maps, const cta &b) {
  const u64 policy = ptx_often();
  u32 phase = 1;
  const u32 shares = share_count(a);
  FOR_PIECES(p, a, shares) {
    FOR_PASSES(w, a, p) {
      ptx_barrier_wait(b.base + Q_EMPTY, phase);
      phase ^= 1u;
      ptx_grid_wait(); /* for the queries; the piece is known before */
      if (threadIdx.x % 32u == 0) {
        ptx_barrier_expect(b.base + Q_FULL, BOXES * Q_BOX_BYTES);
        for (u32 k = 0; k < BOXES; k++)
          ptx_copy_box(b.base + AT_Q + k * Q_BOX_BYTES, &maps.x, k * 64u, (p.tile.row + w.token) * a.heads, b.base + Q_FULL, policy);
      }
      __syncwarp();
    }
  }
}

/* Gathered rows: the queries of a pass, loaded by a score warp when all score warps have finished the last pass. */
NUM void load_pass_queries(const mla_attn_args &a, const tensor_maps &maps, const cta &b, u32 token, u32 phase) {
  if (ptx_uniform(threadIdx.x / 32u) != 0) return;
  ptx_grid_wait();
  ptx_barrier_wait(b.base + Q_EMPTY, phase);
  if (threadIdx.x == 0) {
    ptx_barrier_expect(b.base + Q_FULL, BOXES * Q_BOX_BYTES);
    for (u32 k = 0; k < BOXES; k++)
      ptx_copy_box(b.base + AT_Q + k * Q_BOX_BYTES, &maps.x, k * 64u, token * a.heads, b.base + Q_FULL, ptx_often());
  }
  __syncwarp();
}

#endif

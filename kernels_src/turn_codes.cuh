/* turn_codes.cuh - the last warpgroup of mla_turn.cuh where KV rows are e4m3 codes: it makes bf16 numbers of half of a block's rows, for
 * its own boxes and, by bulk copies, for those of the other block of the cluster, which makes the other half. So a row is read and widened
 * once for 128 heads. A warp has eight rows, four lanes to a row.
 *
 * All codes of a block are asked for behind the last fence of the one before, which would wait for them. H200, 128 heads, lists of 2,048:
 * 64 requests 94 us (bf16 rows 79). Read next: turn_scores.cuh. */
#ifndef VERBATIM_TURN_CODES_CUH
#define VERBATIM_TURN_CODES_CUH
#include "turn_rows.cuh"

#define WARP_BYTES 1024u /* of a warp's rows in a box */

/* The columns behind V go to both blocks by stores: where they lie here P may be before a copy has read them. */
NUM void put_rope(const place &p, const codes &c, u32 set, u32 rows_at) {
  const u32 come = COME + set * GROUPS + GROUPS - 1u, there = ptx_peer(p.base, p.rank ^ 1u);
#pragma unroll
  for (u32 i = 0; i < 2; i++) {
    const u32 at = box_at(set, ROPE_BOX) + rows_at + rope_piece_at(i);
    const uint4 x = rope_piece(c, i);
    *(uint4 *)(p.shared + at) = x;
    ptx_store_peer(there + at, x.x, x.y, x.z, x.w, there + AT_BARRIERS + come * 8u);
  }
}

/* The warp's rows of group g of boxes are whole; those of V also go to the other block. Each barrier awaits as much from there. */
NUM void give_boxes(const place &p, u32 set, u32 g, u32 rows_at) {
  const u32 come = COME + set * GROUPS + g, there = ptx_peer(p.base, p.rank ^ 1u), count = g + 1u < GROUPS ? 2u : 1u;
  ptx_fence_async();
  __syncwarp();
  if (ptx_elect()) {
    ptx_barrier_expect(barrier_at(p, come), count * WARP_BYTES);
    for (u32 x = 2u * g; x < 2u * g + count && x < ROPE_BOX; x++) {
      const u32 at = box_at(set, x) + rows_at;
      ptx_copy_peer(there + at, p.base + at, WARP_BYTES, there + AT_BARRIERS + come * 8u);
    }
  }
  __syncwarp();
}

/* Which places hold a token: eight rows from here, and as many from the other block, of which lanes 8 to 15 know. */
NUM void give_live(const place &p, u32 set, u32 row) {
  const u32 live = __ballot_sync(WARP_ALL, row != NO_ROW);
  if (bring_lane() > 0) return;
  u8 *const to = p.shared + AT_LIVE + set * 8u + bring_warp();
  to[p.rank * 4u] = (u8)live;
  to[(p.rank ^ 1u) * 4u] = (u8)(live >> 8);
}

/* The row of this lane's eight, of those that lanes 0 to 7 have found. */
NUM u32 row_of_lane(u32 row) { return __shfl_sync(WARP_ALL, row, (int)(bring_lane() / 4u)); }

NUM u32 bring_arrivals(u32) { return 4u; } /* warps */

NUM void bring(const mla_attn_args &a, const tensor_maps &maps, const place &p) {
  const u32 half = p.rank ^ (bring_lane() / 8u & 1u), own = half * 32u + bring_warp() * 8u + bring_lane() % 8u;
  const u32 rows_at = (p.rank * 4u + bring_warp()) * WARP_BYTES;
  walk now = first_block(a), next = next_block(a, now);
  u32 entry = entry_of(a, now, own), row = now.is ? row_of(page_of(a, now, entry), entry) : NO_ROW;
  codes c;
  take_codes(a, row_of_lane(row), c);
  entry = entry_of(a, next, own);
  for (u32 k = 0; now.is; k++) {
    const u32 set = k % 2u, page = next.is ? page_of(a, next, entry) : NO_ROW;
#pragma unroll
    for (u32 g = 0; g < GROUPS; g++) {
      u8 *const to = p.shared + box_at(set, 2u * g) + rows_at;
      wait_free(p, FREE + set * GROUPS + g, k / 2u);
      if (g == 0) give_live(p, set, row);
      if (g + 1u == GROUPS) {
        put_rope(p, c, set, rows_at);
      } else {
        const f32 scale = g == 0 ? c.scale.x : g == 1u ? c.scale.y : g == 2u ? c.scale.z : c.scale.w;
        put_codes(to, c.v[2u * g], scale);
        put_codes(to + BOX_BYTES, c.v[2u * g + 1u], scale);
      }
      give_boxes(p, set, g, rows_at);
      if (g == 1u && now.block == 0 && bring_warp() == 0) bring_queries(a, maps, p, now);
    }
    row = row_of(page, entry);
    take_codes(a, row_of_lane(row), c);
    now = next;
    next = next_block(a, next);
    entry = entry_of(a, next, own);
  }
}

#endif

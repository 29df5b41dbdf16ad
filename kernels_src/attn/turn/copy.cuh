/* attn/turn/copy.cuh - the last warpgroup of attn/turn/form.cuh where lists name rows of bf16 numbers: it copies them from memory to the
 * boxes, eight lanes to 128 bytes of a row. Each block of the cluster brings all rows for its heads; the second one finds them in L2.
 *
 * Boxes count as come when the copies have; who multiplies them fences first. Read next: attn/turn/scores.cuh. */
#ifndef VERBATIM_TURN_COPY_CUH
#define VERBATIM_TURN_COPY_CUH
#include "attn/turn/rows.cuh"

/* Where a thread copies from: 16 bytes of rows lane / 8 and so on by fours of its warp's 16. */
typedef struct copy_source {
  const u8 *from[4];
  u32 bytes[4]; /* none of void rows */
} copy_source;

/* Of the block in `set`, of those that lanes have found: 16 * set and so on. */
NUM copy_source find_source(const mla_attn_args &a, u32 row, u32 set) {
  copy_source s;
#pragma unroll
  for (u32 h = 0; h < 4; h++) {
    const u32 of = __shfl_sync(WARP_ALL, row, (int)(set * 16u + h * 4u + bring_lane() / 8u));
    s.bytes[h] = of != NO_ROW ? 16u : 0u;
    s.from[h] = row_at(a, of) + bring_lane() % 8u * 16u;
  }
  return s;
}

NUM void copy_box(const place &p, const copy_source &s, u32 set, u32 x) {
  const u32 at = p.base + box_at(set, x) + (bring_warp() * 16u + bring_lane() / 8u) * 128u + (bring_lane() % 8u ^ bring_lane() / 8u) * 16u;
#pragma unroll
  for (u32 h = 0; h < 4; h++) ptx_copy16((at ^ h % 2u * 64u) + h * 512u, s.from[h] + x * 128u, s.bytes[h]);
}

/* Which places hold a token, with the first boxes; lanes 16 * set and so on know. */
NUM void give_live(const place &p, u32 set, u32 row) {
  const u32 live = __ballot_sync(WARP_ALL, row != NO_ROW) >> set * 16u;
  if (bring_lane() > 0) return;
  ((u16 *)(p.shared + AT_LIVE + set * 8u))[bring_warp()] = (u16)live;
  ptx_barrier_arrive(barrier_at(p, COME + set * GROUPS));
}

/* Arrivals of group g of boxes: threads, and with the first one warps. */
NUM u32 bring_arrivals(u32 g) { return g == 0 ? 132u : 128u; }

NUM void bring(const mla_attn_args &a, const tensor_maps &maps, const place &p) {
  const u32 own = bring_lane() / 16u * 64u + bring_warp() * 16u + bring_lane() % 16u;
  pair now = first_pair(a, own);
  ask_entries(a, now, own);
#pragma unroll 1
  for (u32 k = 0; now.is; k++) {
    const u32 set = k % 2u;
    const copy_source s = find_source(a, now.row, set);
#pragma unroll
    for (u32 g = 0; g < GROUPS; g++) {
      wait_free(p, FREE + set * GROUPS + g, k / 2u);
      if (g == 0) give_live(p, set, now.row);
#pragma unroll
      for (u32 x = 2u * g; x < 2u * g + 2u && x < BOXES; x++) copy_box(p, s, set, x);
      ptx_barrier_arrive_copies(barrier_at(p, COME + set * GROUPS + g));
      if (g == 1u && set == 0 && now.first != NO_ROW && bring_warp() == 0) bring_queries(a, maps, p, now.first);
    }
    if (set == 0) ask_pages(a, now);
    else next_pair(a, now, own);
  }
}

#endif

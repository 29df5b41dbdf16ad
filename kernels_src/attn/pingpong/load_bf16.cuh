/* attn/pingpong/load_bf16.cuh - the producer warpgroup of the pingpong form for bf16 rows: copies them into the boxes, eight lanes to 128
 * bytes of a row. Both CTAs of a cluster load all rows for their heads; the second one finds them in L2.
 *
 * The copies arrive on the boxes' barriers themselves; consumers fence first. Read next: attn/pingpong/scores.cuh. */
#ifndef VERBATIM_ATTN_PINGPONG_LOAD_BF16_CUH
#define VERBATIM_ATTN_PINGPONG_LOAD_BF16_CUH
#include "attn/pingpong/load.cuh"

NUM void load_box(const cta &b, const copy_source &s, u32 set, u32 x) {
  const u32 at = b.base + box_at(set, x) + (load_warp() * 16u + load_lane() / 8u) * 128u + (load_lane() % 8u ^ load_lane() / 8u) * 16u;
  copy_box(s, at, x * 128u, 8u);
}

/* Arrivals at box group g: threads, and for the first one warps. */
NUM u32 load_arrivals(u32 g) { return g == 0 ? 132u : 128u; }

NUM void run_loads(const mla_attn_args &a, const tensor_maps &maps, const cta &b) {
  const u32 own = load_lane() / 16u * 64u + load_warp() * 16u + load_lane() % 16u;
  block_pair now = first_pair(a, own);
  fetch_entries(a, now, own);
#pragma unroll 1
  for (u32 k = 0; now.is; k++) {
    const u32 set = k % 2u;
    const copy_source s = find_source(a, now.row, set * 16u);
#pragma unroll
    for (u32 g = 0; g < BOX_GROUPS; g++) {
      wait_empty(b, EMPTY + set * BOX_GROUPS + g, k / 2u);
      if (g == 0 && store_valid(b, set, now.row, set * 16u)) ptx_barrier_arrive(barrier_at(b, FULL + set * BOX_GROUPS));
#pragma unroll
      for (u32 x = 2u * g; x < 2u * g + 2u && x < BOXES; x++) load_box(b, s, set, x);
      ptx_barrier_arrive_copies(barrier_at(b, FULL + set * BOX_GROUPS + g));
      if (g == 1u && set == 0 && now.first != NO_ROW && load_warp() == 0) load_queries(a, maps, b, now.first);
    }
    if (set == 0) fetch_pages(a, now);
    else next_pair(a, now, own);
  }
}

#endif

/* attn/grouped/load.cuh - attn: the producer warp, which finds items and loads their keys and values, and the loads of queries.
 *
 * Keys and values of a page are boxes of 64 columns by 64 tokens of one KV head; columns after the last one become zeros. Read next:
 * attn/grouped/multiply.cuh. */
#ifndef VERBATIM_ATTN_GROUPED_LOAD_CUH
#define VERBATIM_ATTN_GROUPED_LOAD_CUH
#include "attn/grouped/layout.cuh"

/* Starts the loads of a stage's `here` pages into `to`: box x of page i at place x * across + i * along. */
NUM void take_pages(const tensor_map *map, u32 to, u32 full, const u32 (&row)[PAGES], u32 here, u32 head, u32 boxes, u32 across,
                    u32 along) {
  ptx_barrier_expect(full, here * boxes * BOX_BYTES);
  for (u32 x = 0; x < boxes; x++)
#pragma unroll
    for (u32 i = 0; i < PAGES; i++)
      if (i < here) ptx_take_box(to + (x * across + i * along) * BOX_BYTES, map, x * 64u, head, row[i], full);
}

NUM void run_loads(const attn_args &a, const tensor_maps &maps, u32 base) {
  const u32 lane = threadIdx.x % 32u;
  course at = {0, 0};
  ring_turn t = {0, 0};
  publish(next_item(a, at), base, 0);
  for (u32 number = 0; items[number % ITEMS].rows; number++) {
    const item &it = items[number % ITEMS];
    const u32 count = it.count, head = it.head, *table = a.block_table + (u64)it.tile.seq * a.block_table_stride + it.first;
    u32 pages = 0; /* lane i: number of page i of 32 */
    if (count == 0) publish(next_item(a, at), base, number + 1u);
    for (u32 page = 0; page < count; page += PAGES, pass(t)) {
      const u32 here = count - page < PAGES ? count - page : PAGES, stage = t.stage * 8u;
      u32 row[PAGES];
      if (page % 32u == 0) pages = page + lane < count ? table[page + lane] : 0u;
#pragma unroll
      for (u32 i = 0; i < PAGES; i++) row[i] = __shfl_sync(WARP_ALL, pages, (int)((page + i) % 32u)) * PAGE_TOKENS;
      ptx_barrier_wait(base + K_EMPTY + stage, t.phase ^ 1u);
      if (ptx_elect()) take_pages(&maps.w, base + AT_K + t.stage * K_BYTES, base + K_FULL + stage, row, here, head, K_BOXES, PAGES, 1u);
      if (page + PAGES >= count) publish(next_item(a, at), base, number + 1u); /* takes long, and v can wait */
      ptx_barrier_wait(base + V_EMPTY + stage, t.phase ^ 1u);
      if (ptx_elect()) take_pages(&maps.x, base + AT_V + t.stage * V_BYTES, base + V_FULL + stage, row, here, head, V_BOXES, 1u, V_BOXES);
    }
  }
}

/* === Queries ================================================================================================================ */

/* Starts to copy a warpgroup's queries of the item of that number; unused rows become zeros. */
NUM void load_queries(const attn_args &a, u32 number, u32 base, u32 group) {
  const u32 lane = threadIdx.x % 128u, piece = lane % 8u, share = sharers(a);
  const item &it = item_at(base, number);
  if (ptx_uniform(it.rows) <= group * 64u) return;
  PTX_COPY_WAIT(0); /* for queries that this warpgroup did not need, of an item without blocks for it: copies are not ordered */
  ptx_warps_sync(1u + group, 128u); /* all have read the last item's */
#pragma unroll 1
  for (u32 j = 0; j < 4; j++) {
    const u32 row = lane / 8u + 16u * j, of_pass = group * 64u + row, of_tile = it.row + of_pass;
    const bool is_live = of_pass < it.rows;
    const u64 query = is_live ? (u64)(it.tile.row + of_tile / share) * a.heads + it.head * share + of_tile % share : 0u;
    const u32 to = queries_at(base, group) + row * 128u + ((piece ^ (row % 8u)) << 4);
#pragma unroll
    for (u32 x = 0; x < K_BOXES; x++)
      if (x * 64u + piece * 8u < SPEC_HEAD_DIM)
        ptx_copy16(to + x * BOX_BYTES, a.q + query * SPEC_HEAD_DIM + x * 64u + piece * 8u, is_live ? 16u : 0u);
  }
  ptx_copy_commit();
}

#endif

/* attn/cluster/load.cuh - the producer warps of the cluster form: work items, and TMA loads of queries and KV blocks.
 *
 * Gathered rows are loaded by attn/cluster/load_bf16.cuh and attn/cluster/load_fp8.cuh. Knows nothing of what is computed. Read next:
 * attn/cluster/scores.cuh. */
#ifndef VERBATIM_ATTN_CLUSTER_LOAD_CUH
#define VERBATIM_ATTN_CLUSTER_LOAD_CUH
#include "attn/cluster/layout.cuh"

/* One warp: the work items of this cluster. */
NUM void publish_items(const mla_attn_args &a, const cta &b) {
  u32 round = 0;
  for (u32 n = 0;; n++) {
    const item it = next_item(a, round);
    publish_item(b, n, it);
    if (it.heads == 0) return;
  }
}

/* One thread: the queries, and all columns of the blocks scored here. */
NUM void load_keys(const mla_attn_args &a, const tensor_maps &maps, const cta &b) {
  item it;
  for (u32 n = 0, k = 0, queries = 0; read_item(b, n, it, true); n++) {
    const u32 *pages = a.block_table + (u64)it.tile.seq * a.block_table_stride;
    const u32 first = first_of(it, b, 0), query = it.tile.row * a.heads + it.head;
    u32 page = first <= it.last ? pages[first] : 0u;
    for (u32 block = first; block <= it.last; block += 2u, k++) {
      const u32 row = page * PAGE_TOKENS, set = k % 2u;
      if (block + 2u <= it.last) page = pages[block + 2u];
      for (u32 x = 0; x < BOXES; x++) {
        u32 full, to;
        if (is_both(b, x)) {
          const u32 half = x % HALF;
          if (half % WIDTH_BOXES == 0) wait_empty(b, BOTH_EMPTY + set * 2u + half / WIDTH_BOXES, k / 2u);
          full = BOTH_FULL + set * HALF + half;
          to = AT_BOTH + (set * HALF + half) * BOX_BYTES;
        } else {
          wait_empty(b, KEYS_EMPTY + key_box(x), k);
          full = KEYS_FULL + key_box(x);
          to = AT_KEYS + key_box(x) * BOX_BYTES;
        }
        if (block == first && x == 0) wait_empty(b, Q_EMPTY, queries++);
        ptx_barrier_expect(barrier_at(b, full), block == first ? 2u * BOX_BYTES : BOX_BYTES);
        if (block == first) ptx_take_box(b.base + AT_Q + x * BOX_BYTES, &maps.x, x * 64u, query, barrier_at(b, full));
        ptx_take_box(b.base + to, &maps.w, x * 64u, row, barrier_at(b, full));
      }
    }
  }
}

/* One thread: half of V of the blocks that the other CTA scores. */
NUM void load_values(const mla_attn_args &a, const tensor_maps &maps, const cta &b) {
  item it;
  for (u32 n = 0, k = 0; read_item(b, n, it, true); n++) {
    const u32 *pages = a.block_table + (u64)it.tile.seq * a.block_table_stride;
    const u32 first = first_of(it, b, 1);
    u32 page = first <= it.last ? pages[first] : 0u;
    for (u32 block = first; block <= it.last; block += 2u, k++) {
      const u32 row = page * PAGE_TOKENS;
      if (block + 2u <= it.last) page = pages[block + 2u];
      for (u32 x = 0; x < HALF; x++) {
        if (x % WIDTH_BOXES == 0) wait_empty(b, VALUES_EMPTY + x / WIDTH_BOXES, k);
        const u32 full = barrier_at(b, VALUES_FULL + x);
        ptx_barrier_expect(full, BOX_BYTES);
        ptx_take_box(b.base + AT_VALUES + x * BOX_BYTES, &maps.w, (b.rank * HALF + x) * 64u, row, full);
      }
    }
  }
}

#endif

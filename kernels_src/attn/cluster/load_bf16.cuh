/* attn/cluster/load_bf16.cuh - the producer warpgroup of the cluster form for lists over bf16 rows: copies rows into the boxes.
 *
 * A thread copies its share of four rows of every block, and looks one row up. Blocks scored here are loaded with all columns, the
 * others with half of V, as by TMA: rows are read from L2 twice. The copies arrive on the box's barrier themselves; consumers fence
 * first. List entries are fetched a step ahead, their pages in the middle of a step. H200, 128 heads, lists of 2,048: 64 requests 108
 * us, prompts 396 TFLOP/s. tools/bench/history/2026-11-23-sparse-gather-bf16.md. Read next: attn/cluster/load_fp8.cuh. */
#ifndef VERBATIM_ATTN_CLUSTER_LOAD_BF16_CUH
#define VERBATIM_ATTN_CLUSTER_LOAD_BF16_CUH
#include "attn/cluster/load_rows.cuh"

/* bf16 columns of a box: `count` pieces of 16 bytes a row, from byte `from` on. */
NUM void load_box(const cta &b, const copy_source &s, u32 box_at, u32 from, u32 count, u32 full) {
  u32 at = (load_first_row() + load_lane() / 8u) * 128u + (load_lane() % 8u ^ load_lane() / 8u) * 16u;
  ptx_forget(at);
  at += b.base + box_at;
  copy_box(s, at, from, count);
  ptx_barrier_arrive_copies(barrier_at(b, full));
}

/* Half of V, two boxes per value warpgroup. */
NUM void copy_half(const mla_attn_args &a, const cta &b, u32 row, bool over, u32 box_at, u32 full, u32 empty, u32 phase) {
  const copy_source s = find_source(a, row, over ? 16u : 0u);
#pragma unroll
  for (u32 i = 0; i < HALF; i++) {
    if (i % WIDTH_BOXES == 0) wait_empty(b, empty + i / WIDTH_BOXES, phase);
    load_box(b, s, box_at + i * BOX_BYTES, (b.rank * HALF + i) * 128u, 8u, full + i);
  }
}

/* Block number k of those scored here: the boxes that are also multiplied here, */
NUM void copy_both(const mla_attn_args &a, const cta &b, const load_step &s, u32 k) {
  const u32 set = k % 2u, full = BOTH_FULL + set * HALF, empty = BOTH_EMPTY + set * 2u;
  if (SPEC_LISTS) {
    wait_empty(b, empty, k / 2u);
    store_valid(b, set, s.row[0], 0);
  }
  copy_half(a, b, s.row[0], false, AT_BOTH + set * HALF * BOX_BYTES, full, empty, k / 2u);
  if (load_lane() == 0) ptx_barrier_arrive(barrier_at(b, full)); /* after store_valid */
}

/* and those that only S reads. */
NUM void copy_keys(const mla_attn_args &a, const cta &b, const load_step &s, u32 k) {
  const copy_source source = find_source(a, s.row[0], 0);
#pragma unroll
  for (u32 i = 0; i < KEYS; i++) {
    const u32 from = i < HALF ? ((b.rank ^ 1u) * HALF + i) * 128u : SPEC_KV_LORA_RANK * 2u;
    wait_empty(b, KEYS_EMPTY + i, k);
    load_box(b, source, AT_KEYS + i * BOX_BYTES, from, i < HALF ? 8u : SPEC_ROPE_DIM / 8u, KEYS_FULL + i);
  }
}

/* One warpgroup. Of two adjacent blocks the second one's values are loaded after the next step's block that is scored here, whose boxes
 * are free earlier. */
NUM void run_loads(const mla_attn_args &a, const tensor_maps &maps, const cta &b) {
  load_front f = {0, 0, 0, 0, 0, NO_ROW, 0, 0};
  load_step now = next_step(a, b, f), next = now;
  u32 page[LOOKUPS], values = NO_ROW, k = 0, n = 0, queries = 0;
  fetch_pages(a, f, now, page);
  find_rows(now, page);
  bool any = !(now.kind & STEP_END), is = b.rank && (now.kind & STEP_OTHER);
  if (any) next = next_step(a, b, f);
  while (any || is) {
    const bool own = now.kind & STEP_OWN;
    if (own) copy_both(a, b, now, k);
    fetch_pages(a, f, next, page);
    if (now.kind & STEP_FIRST) load_queries(maps, b, now.kind >> STEP_QUERY, queries++);
    if (own) copy_keys(a, b, now, k++);
    find_rows(next, page);
    if (b.rank) values = now.row[0];
    if (is) copy_half(a, b, values, true, AT_VALUES, VALUES_FULL, VALUES_EMPTY, n++);
    if (!b.rank) values = now.row[0];
    is = (b.rank ? next.kind : now.kind) & STEP_OTHER;
    now = next;
    any = !(now.kind & STEP_END);
    if (any) next = next_step(a, b, f);
  }
}

#endif

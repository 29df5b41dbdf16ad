/* attn/pair/copy.cuh - the last warpgroup of attn/pair/form.cuh where lists name rows of bf16 numbers: it copies them from memory to the
 * boxes, each thread its share of four rows of every block, of which it looks up one.
 *
 * Of the blocks that are weighed here it takes all columns, of the other ones half of V, as the copies of attn/pair/form.cuh do: rows come
 * twice from L2. A box counts as come when the copies have; who multiplies it fences first. Nothing here waits for a block that has not
 * been put into its boxes. Entries of lists are asked for a step ahead, their pages in the middle of a step. H200, 128 heads, lists of
 * 2,048: 64 requests 108 us, prompts 396 TFLOP/s; with four lanes to 64 bytes of a row, two rows of each block looked up by each thread,
 * 114 and 376. Lost: asking L2 early for rows; half of V given to the other block; rows shared by two pairs, of which attn/pair/gather.cuh
 * tells (prompts 15.4 ms for 5.9). Read next: attn/pair/gather.cuh. */
#ifndef VERBATIM_PAIR_COPY_CUH
#define VERBATIM_PAIR_COPY_CUH
#include "attn/pair/rows.cuh"

/* Where a thread copies from: 16 bytes of rows lane / 8 and so on by fours of its warp's 16, eight lanes to 128 bytes of a row. */
typedef struct copy_source {
  const u8 *from[4];
  u32 bytes[4]; /* none of void rows */
} copy_source;

/* over: of the block that the other one weighs. */
NUM copy_source find_source(const mla_attn_args &a, u32 row, bool over) {
  copy_source s;
#pragma unroll
  for (u32 h = 0; h < 4; h++) {
    const u32 of = __shfl_sync(WARP_ALL, row, (int)((over ? 16u : 0u) + h * 4u + gather_lane() / 8u));
    s.bytes[h] = of != NO_ROW ? 16u : 0u;
    s.from[h] = row_at(a, of != NO_ROW ? of : 0u) + gather_lane() % 8u * 16u;
  }
  return s;
}

/* bf16 numbers of a box as they lie in memory: `count` pieces of 16 bytes a row, from byte `from` on. */
NUM void copy_box(const place &p, const copy_source &s, u32 box_at, u32 from, u32 count, u32 come) {
  u32 at = (gather_first() + gather_lane() / 8u) * 128u + (gather_lane() % 8u ^ gather_lane() / 8u) * 16u;
  ptx_forget(at);
  at += p.base + box_at;
#pragma unroll
  for (u32 h = 0; h < 4; h++)
    if (gather_lane() % 8u < count) ptx_copy16((at ^ h % 2u * 64u) + h * 512u, s.from[h] + from, s.bytes[h]);
  ptx_barrier_arrive_copies(barrier_at(p, come));
}

/* Half of V, two boxes for each warpgroup. */
NUM void copy_half(const mla_attn_args &a, const place &p, u32 row, bool over, u32 box_at, u32 come, u32 free, u32 phase) {
  const copy_source s = find_source(a, row, over);
#pragma unroll
  for (u32 i = 0; i < HALF; i++) {
    if (i % WIDTH_BOXES == 0) wait_free(p, free + i / WIDTH_BOXES, phase);
    copy_box(p, s, box_at + i * BOX_BYTES, (p.rank * HALF + i) * 128u, 8u, come + i);
  }
}

/* Block number k of those that are weighed here: what is also multiplied here, */
NUM void copy_both(const mla_attn_args &a, const place &p, const gather_step &s, u32 k) {
  const u32 set = k % 2u, come = BOTH_COME + set * HALF, free = BOTH_FREE + set * 2u;
  if (SPEC_LISTS) {
    wait_free(p, free, k / 2u);
    give_live(p, set, s.row[0]);
  }
  copy_half(a, p, s.row[0], false, AT_BOTH + set * HALF * BOX_BYTES, come, free, k / 2u);
  if (gather_lane() == 0) ptx_barrier_arrive(barrier_at(p, come)); /* with what give_live stored */
}

/* and what only S needs. */
NUM void copy_others(const mla_attn_args &a, const place &p, const gather_step &s, u32 k) {
  const copy_source source = find_source(a, s.row[0], false);
#pragma unroll
  for (u32 i = 0; i < OTHERS; i++) {
    const u32 from = i < HALF ? ((p.rank ^ 1u) * HALF + i) * 128u : SPEC_KV_LORA_RANK * 2u;
    wait_free(p, OTHERS_FREE + i, k);
    copy_box(p, source, AT_OTHERS + i * BOX_BYTES, from, i < HALF ? 8u : SPEC_ROPE_DIM / 8u, OTHERS_COME + i);
  }
}

/* One warpgroup. Of two neighbouring blocks the second one's values go behind the next step's block that is weighed here: its boxes are
 * free before theirs. */
NUM void gather(const mla_attn_args &a, const tensor_maps &maps, const place &p) {
  gather_front f = {0, 0, 0, 0, 0, NO_ROW, 0, 0};
  gather_step now = next_step(a, p, f), next = now;
  u32 page[LOOKED], values = NO_ROW, k = 0, n = 0, queries = 0;
  find_pages(a, f, now, page);
  find_rows(now, page);
  bool any = !(now.kind & GATHER_END), is = p.rank && (now.kind & GATHER_OTHER);
  if (any) next = next_step(a, p, f);
  while (any || is) {
    const bool own = now.kind & GATHER_OWN;
    if (own) copy_both(a, p, now, k);
    find_pages(a, f, next, page);
    if (now.kind & GATHER_FIRST) bring_queries(maps, p, now.kind >> GATHER_QUERY, queries++);
    if (own) copy_others(a, p, now, k++);
    find_rows(next, page);
    if (p.rank) values = now.row[0];
    if (is) copy_half(a, p, values, true, AT_VALUES, VALUES_COME, VALUES_FREE, n++);
    if (!p.rank) values = now.row[0];
    is = (p.rank ? next.kind : now.kind) & GATHER_OTHER;
    now = next;
    any = !(now.kind & GATHER_END);
    if (any) next = next_step(a, p, f);
  }
}

#endif

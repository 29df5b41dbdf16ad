/* pair_copy.cuh - the last warpgroup of mla_pair.cuh where lists name rows of bf16 numbers: it copies them from memory to the boxes, each
 * thread its share of two rows of every block. And what it has in common with pair_gather.cuh.
 *
 * Of the blocks that are weighed here it takes all columns, of the other ones half of V, as the copies of mla_pair.cuh do: rows come twice
 * from L2. A box counts as come when the copies have; who multiplies it fences first. Nothing here waits for a block that has not been put
 * into its boxes. Entries of lists are asked for a step ahead, their pages in the middle of a step. Asking L2 early for rows cost more than
 * it gave. Read next: pair_gather.cuh. */
#ifndef VERBATIM_PAIR_COPY_CUH
#define VERBATIM_PAIR_COPY_CUH
#include "pair_rows.cuh"

/* bf16 numbers of a box as they lie in memory: `count` pieces of 16 bytes a row, from byte `from` on. */
NUM void copy_box(const mla_attn_args &a, const place &p, const u32 (&row)[2], u32 box_at, u32 from, u32 count, u32 come) {
  const u32 at = p.base + box_at + gather_at(false), odd = gather_row(0) % 2u;
#pragma unroll
  for (u32 h = 0; h < 2; h++) {
    const bool is = row[h] != NO_ROW;
    const u8 *start = row_at(a, is ? row[h] : 0u) + from + gather_part() * 16u;
#pragma unroll
    for (u32 i = 0; i < 2; i++) {
      const u32 j = i ^ odd; /* or neighbours would meet in a bank */
      if (4u * j < count) ptx_copy16(piece_at(at, h, j, false), start + 64u * j, is ? 16u : 0u);
    }
  }
  ptx_barrier_arrive_copies(barrier_at(p, come));
}

/* Which places of the block hold a token, for scores. */
NUM void give_live(const place &p, u32 set, const u32 (&row)[2]) {
  const u32 lane = gather_thread() % 32u, from = lane % 8u * 4u;
  const u32 first = __shfl_sync(WARP_ALL, row[0], (int)from), second = __shfl_sync(WARP_ALL, row[1], (int)from);
  const u32 live = __ballot_sync(WARP_ALL, (lane < 8u ? first : second) != NO_ROW);
  if (lane == 0) ((u16 *)(p.shared + AT_LIVE + set * 8u))[gather_thread() / 32u] = (u16)live;
}

NUM void bring_queries(const tensor_maps &maps, const place &p, u32 query, u32 n) {
  if (gather_thread() < 32u && ptx_elect()) {
    wait_free(p, Q_FREE, n);
    ptx_barrier_expect(barrier_at(p, Q_COME), BOXES * BOX_BYTES);
    for (u32 x = 0; x < BOXES; x++) ptx_take_box(p.base + AT_Q + x * BOX_BYTES, &maps.x, x * 64u, query, barrier_at(p, Q_COME));
  }
  __syncwarp();
}

/* Half of V, two boxes for each warpgroup. */
NUM void copy_half(const mla_attn_args &a, const place &p, const u32 (&row)[2], u32 box_at, u32 come, u32 free, u32 phase) {
#pragma unroll
  for (u32 i = 0; i < HALF; i++) {
    if (i % WIDTH_BOXES == 0) wait_free(p, free + i / WIDTH_BOXES, phase);
    copy_box(a, p, row, box_at + i * BOX_BYTES, (p.rank * HALF + i) * 128u, 8u, come + i);
  }
}

/* Block number k of those that are weighed here: what is also multiplied here, */
NUM void copy_both(const mla_attn_args &a, const place &p, const gather_step &s, u32 k) {
  const u32 set = k % 2u, come = BOTH_COME + set * HALF, free = BOTH_FREE + set * 2u;
  if (SPEC_LISTS) {
    wait_free(p, free, k / 2u);
    give_live(p, set, s.own);
  }
  copy_half(a, p, s.own, AT_BOTH + set * HALF * BOX_BYTES, come, free, k / 2u);
  if (gather_thread() % 32u == 0) ptx_barrier_arrive(barrier_at(p, come)); /* with what give_live stored */
}

/* and what only S needs. */
NUM void copy_others(const mla_attn_args &a, const place &p, const gather_step &s, u32 k) {
#pragma unroll
  for (u32 i = 0; i < OTHERS; i++) {
    const u32 from = i < HALF ? ((p.rank ^ 1u) * HALF + i) * 128u : SPEC_KV_LORA_RANK * 2u;
    wait_free(p, OTHERS_FREE + i, k);
    copy_box(a, p, s.own, AT_OTHERS + i * BOX_BYTES, from, i < HALF ? 8u : SPEC_ROPE_DIM / 8u, OTHERS_COME + i);
  }
}

/* One warpgroup. Of two neighbouring blocks the second one's values go behind the next step's block that is weighed here: its boxes are
 * free before theirs. */
NUM void copy_rows(const mla_attn_args &a, const tensor_maps &maps, const place &p) {
  gather_front f = {0, 0, 0, 0, 0, NO_ROW, 0, 0};
  gather_step now = next_step(a, p, f), next = now;
  u32 page[2][2], values[2] = {NO_ROW, NO_ROW}, k = 0, n = 0, queries = 0;
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
    if (p.rank) values[0] = now.other[0], values[1] = now.other[1];
    if (is) copy_half(a, p, values, AT_VALUES, VALUES_COME, VALUES_FREE, n++);
    if (!p.rank) values[0] = now.other[0], values[1] = now.other[1];
    is = (p.rank ? next.kind : now.kind) & GATHER_OTHER;
    now = next;
    any = !(now.kind & GATHER_END);
    if (any) next = next_step(a, p, f);
  }
}

#endif

/* attn/pair/rows.cuh - which rows of the KV cache attn/pair/copy.cuh and attn/pair/gather.cuh take: of two neighbouring blocks at a time
 * the one that is weighed here, and for copies the one that the other block weighs, item after item, as steps; entries of lists, pages,
 * addresses. Deals the items too, and brings what the two have in common: queries, and which places hold a token.
 *
 * Every item is a step at least, so that the walk is never more than one item ahead of what was put into boxes. Knows nothing of formats
 * but how long a row is. Read next: attn/pair/copy.cuh. */
#ifndef VERBATIM_PAIR_ROWS_CUH
#define VERBATIM_PAIR_ROWS_CUH
#include "attn/pair/layout.cuh"

#define ROW_BYTES KV_ROW_BYTES(SPEC_KV_FORMAT, SPEC_KV_LORA_RANK, SPEC_ROPE_DIM)
#define NO_ROW 0xffffffffu

NUM u32 gather_thread() {
  u32 thread = threadIdx.x % 128u;
  ptx_forget(thread); /* registers are short */
  return thread;
}
NUM u32 gather_lane() { return gather_thread() % 32u; }
NUM u32 gather_first() { return gather_thread() / 32u * 16u; } /* of the warp's 16 rows of a block */

/* Rows that a thread looks up, i below LOOKED: of copies one, lanes 0 to 15 of the block that is weighed here, those behind of the other
 * one; of codes the two whose codes it takes, 8 apart, the same in four lanes, and none of the other block. */
#define LOOKED (COPIED ? 1u : 2u)
NUM u32 gather_row(u32 i) { return gather_first() + (COPIED ? gather_lane() % 16u : 8u * i + gather_lane() / 4u); }
NUM bool looks_over() { return COPIED && gather_lane() >= 16u; }

/* What a step has: a block weighed here, the first of its item, a block that the other one weighs; or there are no more. Above these bits
 * the row of the item's first query. */
enum gather_kind { GATHER_OWN = 1, GATHER_FIRST = 2, GATHER_OTHER = 4, GATHER_END = 8 };
#define GATHER_QUERY 4u

typedef struct gather_step {
  u32 kind;
  u32 row[LOOKED]; /* of all pages; first the entry; NO_ROW: none, or void */
} gather_step;

/* The last step that was looked at. */
typedef struct gather_front {
  u32 seq, row;    /* of the block table, of the lists        */
  u32 block, last; /* the step's even one; the item's         */
  u32 position;    /* the item's last token's                 */
  u32 query;       /* NO_ROW: the item's queries are under way */
  u32 items, round;
} gather_front;

/* Whether there is one. */
NUM bool next_item_of(const mla_attn_args &a, const place &p, gather_front &f, u32 &first) {
  if (gather_thread() < 32u) give_item(p, f.items, next_item(a, f.round));
  item it;
  if (!take_item(p, f.items++, it, false)) return false;
  first = it.first;
  f = {it.tile.seq, it.tile.row, first & ~1u, it.last, SPEC_LISTS ? it.position : last_position(it), it.tile.row * a.heads + it.head,
       f.items, f.round};
  return true;
}

/* Entries of a block that there is, or positions where there are no lists. */
NUM void take_entries(const mla_attn_args &a, const gather_front &f, u32 block, bool is, u32 (&row)[LOOKED]) {
#pragma unroll
  for (u32 i = 0; i < LOOKED; i++) {
    const u32 at = block * PAGE_TOKENS + gather_row(i);
    row[i] = NO_ROW;
    if (is && at <= f.position && (!SPEC_LISTS || at < a.list_max)) row[i] = SPEC_LISTS ? a.lists[(u64)f.row * a.list_max + at] : at;
  }
}

/* The step behind, and its entries. */
NUM gather_step next_step(const mla_attn_args &a, const place &p, gather_front &f) {
  gather_step s;
  s.kind = 0;
#pragma unroll
  for (u32 i = 0; i < LOOKED; i++) s.row[i] = NO_ROW;
  u32 first = 0;
  if (f.block + 2u <= f.last) {
    f.block += 2u;
  } else if (!next_item_of(a, p, f, first)) {
    s.kind = GATHER_END;
    return s;
  }
  const u32 own = f.block + p.rank, other = f.block + (p.rank ^ 1u);
  const bool is_own = own >= first && own <= f.last, is_other = other >= first && other <= f.last;
  s.kind = (u32)is_own * GATHER_OWN | (u32)is_other * GATHER_OTHER;
  if (is_own && f.query != NO_ROW) {
    s.kind |= GATHER_FIRST | f.query << GATHER_QUERY;
    f.query = NO_ROW;
  }
  const bool over = looks_over();
  take_entries(a, f, over ? other : own, over ? is_other : is_own, s.row);
  return s;
}

/* Pages of a step's entries, NO_ROW where there is none or it is void. Then rows in the entries' place. */
NUM void find_pages(const mla_attn_args &a, const gather_front &f, const gather_step &s, u32 (&page)[LOOKED]) {
#pragma unroll
  for (u32 i = 0; i < LOOKED; i++) {
    const u32 entry = s.row[i];
    page[i] = NO_ROW;
    if (entry != NO_ROW && (!SPEC_LISTS || entry <= f.position))
      page[i] = a.block_table[(u64)f.seq * a.block_table_stride + entry / PAGE_TOKENS];
  }
}
NUM void find_rows(gather_step &s, u32 (&page)[LOOKED]) {
#pragma unroll
  for (u32 i = 0; i < LOOKED; i++) {
    ptx_forget(page[i]); /* or it would be waited for where it was asked for */
    s.row[i] = page[i] == NO_ROW ? NO_ROW : page[i] * PAGE_TOKENS + s.row[i] % PAGE_TOKENS;
  }
}

NUM const u8 *row_at(const mla_attn_args &a, u32 row) {
  ptx_forget(row);
  return (const u8 *)a.kv + (u64)row * ROW_BYTES;
}

/* Which places of the block hold a token, for scores. row: lanes 0 to 15, of the warp's. */
NUM void give_live(const place &p, u32 set, u32 row) {
  const u32 live = __ballot_sync(WARP_ALL, row != NO_ROW);
  if (gather_lane() == 0) ((u16 *)(p.shared + AT_LIVE + set * 8u))[gather_thread() / 32u] = (u16)live;
}

/* Of the item whose first block comes. */
NUM void bring_queries(const tensor_maps &maps, const place &p, u32 query, u32 n) {
  if (gather_thread() < 32u && ptx_elect()) {
    wait_free(p, Q_FREE, n);
    ptx_barrier_expect(barrier_at(p, Q_COME), BOXES * BOX_BYTES);
    for (u32 x = 0; x < BOXES; x++) ptx_take_box(p.base + AT_Q + x * BOX_BYTES, &maps.x, x * 64u, query, barrier_at(p, Q_COME));
  }
  __syncwarp();
}

#endif

/* attn/cluster/load_rows.cuh - which rows of the KV cache the producers of gathered rows load: list entries, pages, row numbers.
 *
 * A step is two adjacent blocks: the one scored here and, for copies, the one that the other CTA scores. Also publishes work items and
 * loads queries. Every item is a step at least, so that the lookup is never more than one item ahead of the loads. Knows of formats only
 * the length of a row. Read next: attn/cluster/load_bf16.cuh. */
#ifndef VERBATIM_ATTN_CLUSTER_LOAD_ROWS_CUH
#define VERBATIM_ATTN_CLUSTER_LOAD_ROWS_CUH
#include "attn/cluster/layout.cuh"
#include "attn/copy_rows.cuh"

NUM u32 load_thread() { return forgotten(threadIdx.x % 128u); }
NUM u32 load_lane() { return load_thread() % 32u; }
NUM u32 load_warp() { return load_thread() / 32u; }
NUM u32 load_first_row() { return load_warp() * 16u; } /* of the warp's 16 rows of a block */

/* Rows that a thread looks up. Copies: one, lanes 0 to 15 of the block scored here, lanes 16 to 31 of the other one. Codes: the two rows
 * whose codes it loads, 8 apart, the same in four lanes. */
#define LOOKUPS (COPIED ? 1u : 2u)
NUM u32 lookup_row(u32 i) { return load_first_row() + (COPIED ? load_lane() % 16u : 8u * i + load_lane() / 4u); }
NUM bool looks_up_other() { return COPIED && load_lane() >= 16u; }

/* What a step has: a block scored here, the first of its item, a block scored by the other CTA; or the end. The bits above hold the row
 * of the item's first query. */
enum step_kind { STEP_OWN = 1, STEP_FIRST = 2, STEP_OTHER = 4, STEP_END = 8 };
#define STEP_QUERY 4u

typedef struct load_step {
  u32 kind;
  u32 row[LOOKUPS]; /* in the cache; at first the list entry; NO_ROW: none */
} load_step;

/* The last step that was looked up. */
typedef struct load_front {
  u32 seq, row;    /* of the block table, of the lists */
  u32 block, last; /* the step's even block; the item's last */
  u32 position;    /* of the item's last token */
  u32 query;       /* NO_ROW: the item's queries are being loaded */
  u32 items, round;
} load_front;

/* Moves on to the next item; false: there is none. */
NUM bool advance_item(const mla_attn_args &a, const cta &b, load_front &f, u32 &first) {
  if (load_thread() < 32u) publish_item(b, f.items, next_item(a, f.round));
  item it;
  if (!read_item(b, f.items++, it, false)) return false;
  first = it.first;
  f = {it.tile.seq, it.tile.row, first & ~1u, it.last, SPEC_LISTS ? it.position : last_position(it), it.tile.row * a.heads + it.head,
       f.items, f.round};
  return true;
}

/* List entries of a block, or positions without lists; `is`: the block exists. */
NUM void fetch_entries(const mla_attn_args &a, const load_front &f, u32 block, bool is, u32 (&row)[LOOKUPS]) {
#pragma unroll
  for (u32 i = 0; i < LOOKUPS; i++) {
    const u32 at = block * PAGE_TOKENS + lookup_row(i);
    row[i] = NO_ROW;
    if (is && at <= f.position && (!SPEC_LISTS || at < a.list_max)) row[i] = SPEC_LISTS ? a.lists[(u64)f.row * a.list_max + at] : at;
  }
}

/* The next step, and its entries. */
NUM load_step next_step(const mla_attn_args &a, const cta &b, load_front &f) {
  load_step s;
  s.kind = 0;
#pragma unroll
  for (u32 i = 0; i < LOOKUPS; i++) s.row[i] = NO_ROW;
  u32 first = 0;
  if (f.block + 2u <= f.last) {
    f.block += 2u;
  } else if (!advance_item(a, b, f, first)) {
    s.kind = STEP_END;
    return s;
  }
  const u32 own = f.block + b.rank, other = f.block + (b.rank ^ 1u);
  const bool is_own = own >= first && own <= f.last, is_other = other >= first && other <= f.last;
  s.kind = (u32)is_own * STEP_OWN | (u32)is_other * STEP_OTHER;
  if (is_own && f.query != NO_ROW) {
    s.kind |= STEP_FIRST | f.query << STEP_QUERY;
    f.query = NO_ROW;
  }
  const bool over = looks_up_other();
  fetch_entries(a, f, over ? other : own, over ? is_other : is_own, s.row);
  return s;
}

/* Pages of a step's entries, NO_ROW if there is none or the entry is invalid; then row numbers in place of the entries. */
NUM void fetch_pages(const mla_attn_args &a, const load_front &f, const load_step &s, u32 (&page)[LOOKUPS]) {
#pragma unroll
  for (u32 i = 0; i < LOOKUPS; i++) {
    const u32 entry = s.row[i];
    page[i] = NO_ROW;
    if (entry != NO_ROW && (!SPEC_LISTS || entry <= f.position))
      page[i] = a.block_table[(u64)f.seq * a.block_table_stride + entry / PAGE_TOKENS];
  }
}
NUM void find_rows(load_step &s, u32 (&page)[LOOKUPS]) {
#pragma unroll
  for (u32 i = 0; i < LOOKUPS; i++) {
    ptx_forget(page[i]); /* else the load would be waited for here */
    s.row[i] = page[i] == NO_ROW ? NO_ROW : page[i] * PAGE_TOKENS + s.row[i] % PAGE_TOKENS;
  }
}

/* One warp, with the first block of an item. */
NUM void load_queries(const tensor_maps &maps, const cta &b, u32 query, u32 n) {
  if (load_thread() < 32u && ptx_elect()) {
    wait_empty(b, Q_EMPTY, n);
    load_query_boxes(maps, b, query);
  }
  __syncwarp();
}

#endif

/* pair_rows.cuh - which rows of the KV cache pair_gather.cuh takes: the blocks that are weighed here, item after item, as steps; entries of
 * lists, pages, addresses. Deals the items too.
 *
 * Every item is a step at least, so that the walk is never more than two items ahead of the outputs, which have two places for items.
 * Knows nothing of formats but how long a row is. Read next: pair_gather.cuh. */
#ifndef VERBATIM_PAIR_ROWS_CUH
#define VERBATIM_PAIR_ROWS_CUH
#include "pair_layout.cuh"

#define ROW_BYTES KV_ROW_BYTES(SPEC_KV_FORMAT, SPEC_KV_LORA_RANK, SPEC_ROPE_DIM)
#define NO_ROW 0xffffffffu

/* A thread has rows lane % 8 and 8 more of its warp's 16. */
NUM u32 gather_thread() {
  u32 thread = threadIdx.x % 128u;
  ptx_forget(thread); /* registers are short */
  return thread;
}
NUM u32 gather_row(u32 h) { return gather_thread() / 32u * 16u + 8u * h + gather_thread() % 8u; }

enum gather_kind { GATHER_REST = 0, GATHER_BLOCK = 1, GATHER_FIRST = 2 /* of its item */, GATHER_END = 3 };

typedef struct gather_step {
  u32 kind;   /* and above its two bits the row of the item's first query */
  u32 row[2]; /* of all pages; first the entries; NO_ROW: none, or void */
} gather_step;
NUM u32 kind_of(const gather_step &s) { return s.kind % 4u; }

/* The last step that was looked at. */
typedef struct gather_front {
  u32 seq, row;          /* of the block table, of the lists */
  u32 block, last;       /* of the item                      */
  u32 position;          /* its last token's                 */
  u32 items, round;
} gather_front;

NUM void next_item_of(const mla_attn_args &a, const place &p, gather_front &f, gather_step &s) {
  if (threadIdx.x % 128u < 32u) give_item(p, f.items, next_item(a, f.round));
  item it;
  const bool any = take_item(p, f.items++, it, false);
  f.block = f.last = 0;
  s.kind = any ? GATHER_REST : GATHER_END;
  if (!any) return;
  const u32 first = first_of(it, p, 0);
  f.seq = it.tile.seq;
  f.row = it.tile.row;
  f.position = SPEC_LISTS ? it.position : last_position(it);
  if (first > it.last) return;
  f.block = first;
  f.last = it.last;
  s.kind = (it.tile.row * a.heads + it.head) << 2 | GATHER_FIRST;
}

/* The step behind, and its entries, or positions where there are no lists. */
NUM gather_step next_step(const mla_attn_args &a, const place &p, gather_front &f) {
  gather_step s;
  if (f.block + 2u <= f.last) {
    f.block += 2u;
    s.kind = GATHER_BLOCK;
  } else {
    next_item_of(a, p, f, s);
  }
  const bool has = kind_of(s) == GATHER_BLOCK || kind_of(s) == GATHER_FIRST;
#pragma unroll
  for (u32 h = 0; h < 2; h++) {
    const u32 at = f.block * PAGE_TOKENS + gather_row(h);
    s.row[h] = NO_ROW;
    if (has && at <= f.position && (!SPEC_LISTS || at < a.list_max)) s.row[h] = SPEC_LISTS ? a.lists[(u64)f.row * a.list_max + at] : at;
  }
  return s;
}

/* Rows of the entries; L2 is asked for them. */
NUM void find_rows(const mla_attn_args &a, const gather_front &f, gather_step &s) {
#pragma unroll
  for (u32 h = 0; h < 2; h++) {
    const u32 token = s.row[h];
    const bool is = token != NO_ROW && (!SPEC_LISTS || token <= f.position);
    s.row[h] = NO_ROW;
    if (is) s.row[h] = a.block_table[(u64)f.seq * a.block_table_stride + token / PAGE_TOKENS] * PAGE_TOKENS + token % PAGE_TOKENS;
  }
}

NUM const u8 *row_at(const mla_attn_args &a, u32 row) { return (const u8 *)a.kv + (u64)row * ROW_BYTES; }

NUM void ask_rows(const mla_attn_args &a, const gather_step &s) {
  const u32 lane = threadIdx.x % 32u, row = lane < 8u ? s.row[0] : s.row[1];
  if (lane < 16u && row != NO_ROW) ptx_ask_bulk(row_at(a, row), ROW_BYTES);
}

#endif

/* pair_rows.cuh - which rows of the KV cache pair_copy.cuh and pair_gather.cuh take: of two neighbouring blocks at a time the one that is
 * weighed here, and for copies the one that the other block weighs, item after item, as steps; entries of lists, pages, addresses; and
 * where a thread's share of a row lies in a box. Deals the items too.
 *
 * Every item is a step at least, so that the walk is never more than one item ahead of what was put into boxes. Knows nothing of formats
 * but how long a row is. Read next: pair_copy.cuh. */
#ifndef VERBATIM_PAIR_ROWS_CUH
#define VERBATIM_PAIR_ROWS_CUH
#include "pair_layout.cuh"

#define ROW_BYTES KV_ROW_BYTES(SPEC_KV_FORMAT, SPEC_KV_LORA_RANK, SPEC_ROPE_DIM)
#define NO_ROW 0xffffffffu

/* A thread has rows lane / 4 and 8 more of its warp's 16, and of each of their boxes a quarter: 16 codes, which make two pieces of 16 bytes
 * side by side, or two pieces four apart. So four lanes read 64 bytes of a row together, and eight never meet in a bank. */
NUM u32 gather_thread() {
  u32 thread = threadIdx.x % 128u;
  ptx_forget(thread); /* registers are short */
  return thread;
}
NUM u32 gather_row(u32 h) { return gather_thread() / 32u * 16u + 8u * h + gather_thread() % 32u / 4u; }
NUM u32 gather_part() { return gather_thread() % 4u; }
NUM u32 gather_at(bool codes) {
  u32 at = gather_row(0) * 128u + ((codes ? 2u : 1u) * gather_part() ^ gather_row(0) % 8u) * 16u;
  ptx_forget(at);
  return at;
}
NUM u32 piece_at(u32 at, u32 h, u32 i, bool codes) { return (at ^ i * (codes ? 16u : 64u)) + h * 1024u; } /* at: as gather_at gives it */

/* What a step has: a block weighed here, the first of its item, a block that the other one weighs; or there are no more. Above these bits
 * the row of the item's first query. */
enum gather_kind { GATHER_OWN = 1, GATHER_FIRST = 2, GATHER_OTHER = 4, GATHER_END = 8 };
#define GATHER_QUERY 4u

typedef struct gather_step {
  u32 kind;
  u32 own[2], other[2]; /* rows of all pages; first the entries; NO_ROW: none, or void. Of codes no others are looked for */
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
NUM void take_entries(const mla_attn_args &a, const gather_front &f, u32 block, bool is, u32 (&row)[2]) {
#pragma unroll
  for (u32 h = 0; h < 2; h++) {
    const u32 at = block * PAGE_TOKENS + gather_row(h);
    row[h] = NO_ROW;
    if (is && at <= f.position && (!SPEC_LISTS || at < a.list_max)) row[h] = SPEC_LISTS ? a.lists[(u64)f.row * a.list_max + at] : at;
  }
}

/* The step behind, and its entries. */
NUM gather_step next_step(const mla_attn_args &a, const place &p, gather_front &f) {
  gather_step s = {0, {NO_ROW, NO_ROW}, {NO_ROW, NO_ROW}};
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
  take_entries(a, f, own, is_own, s.own);
  if (COPIED) take_entries(a, f, other, is_other, s.other);
  return s;
}

/* Pages of a step's entries, NO_ROW where there is none or it is void; own and other. Then rows in the entries' place. */
NUM void find_pages(const mla_attn_args &a, const gather_front &f, const gather_step &s, u32 (&page)[2][2]) {
#pragma unroll
  for (u32 i = 0; i < (COPIED ? 4u : 2u); i++) {
    const u32 entry = i < 2u ? s.own[i] : s.other[i - 2u];
    const bool is = entry != NO_ROW && (!SPEC_LISTS || entry <= f.position);
    page[i / 2u][i % 2u] = NO_ROW;
    if (is) page[i / 2u][i % 2u] = a.block_table[(u64)f.seq * a.block_table_stride + entry / PAGE_TOKENS];
  }
}
NUM void find_rows(gather_step &s, u32 (&page)[2][2]) {
#pragma unroll
  for (u32 i = 0; i < (COPIED ? 4u : 2u); i++) {
    u32 &row = i < 2u ? s.own[i] : s.other[i - 2u], &at = page[i / 2u][i % 2u];
    ptx_forget(at); /* or it would be waited for where it was asked for */
    row = at == NO_ROW ? NO_ROW : at * PAGE_TOKENS + row % PAGE_TOKENS;
  }
}

NUM const u8 *row_at(const mla_attn_args &a, u32 row) {
  ptx_forget(row);
  return (const u8 *)a.kv + (u64)row * ROW_BYTES;
}

#endif

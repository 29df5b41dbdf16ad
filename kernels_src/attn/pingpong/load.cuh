/* attn/pingpong/load.cuh - what the producers of the pingpong form share: row lookup (list entries, pages, row numbers), and queries.
 *
 * Blocks are looked up in pairs, so that each lane of a warp has an entry: pages of the next pair are fetched after the first block of
 * this one, entries of the pair after that after the second. A thread that needs one of its loads waits for all of them. Knows of
 * formats only the length of a row. Read next: attn/pingpong/load_bf16.cuh, attn/pingpong/load_fp8.cuh. */
#ifndef VERBATIM_ATTN_PINGPONG_LOAD_CUH
#define VERBATIM_ATTN_PINGPONG_LOAD_CUH
#include "attn/pingpong/layout.cuh"
#include "attn/copy_rows.cuh"

NUM u32 load_lane() { return forgotten(threadIdx.x % 32u); }
NUM u32 load_warp() { return forgotten(threadIdx.x % 256u / 32u); }

typedef struct cursor { /* at two KV blocks */
  token t;           /* blocks 0: there are no more */
  u32 tokens, block; /* tokens before this one; the first block of the pair */
} cursor;

NUM bool exists(const cursor &w) { return w.t.blocks > 0; }
NUM void enter_token(const mla_attn_args &a, cursor &w) {
  w.block = 0;
  if (!find_token(a, w.tokens, w.t)) w.t.blocks = 0;
}
NUM cursor first_blocks(const mla_attn_args &a) {
  cursor w;
  w.tokens = 0;
  enter_token(a, w);
  return w;
}
NUM cursor next_blocks(const mla_attn_args &a, cursor w) {
  w.block += 2u;
  if (!exists(w) || w.block < w.t.blocks) return w;
  w.tokens++;
  enter_token(a, w);
  return w;
}

/* Entry nth counted from the pair's first block; NO_ROW after the list's end. */
NUM u32 list_entry(const mla_attn_args &a, const cursor &w, u32 nth) {
  const u32 at = w.block * PAGE_TOKENS + nth;
  return exists(w) && at <= w.t.position && at < a.list_max ? a.lists[(u64)w.t.row * a.list_max + at] : NO_ROW;
}

/* The page of an entry, NO_ROW if it is invalid; then its row in the cache. */
NUM u32 page_of(const mla_attn_args &a, const cursor &w, u32 entry) {
  return exists(w) && entry <= w.t.position ? a.block_table[(u64)w.t.seq * a.block_table_stride + entry / PAGE_TOKENS] : NO_ROW;
}
NUM u32 row_of(u32 page, u32 entry) {
  ptx_forget(page); /* else the load would be waited for here */
  return page == NO_ROW ? NO_ROW : page * PAGE_TOKENS + entry % PAGE_TOKENS;
}

/* A pair of blocks, as a lane sees it: its row of this pair, its fetches for the next. */
typedef struct block_pair {
  cursor next;
  u32 entry, page, row;
  u32 first; /* number of the token that begins here, or NO_ROW */
  bool is;   /* exists; else there are no more */
} block_pair;

/* own: the lane's entry, the same in every pair. The entries of the next pair are still to be fetched. */
NUM block_pair first_pair(const mla_attn_args &a, u32 own) {
  block_pair x;
  x.next = first_blocks(a);
  x.entry = list_entry(a, x.next, own);
  x.page = page_of(a, x.next, x.entry);
  x.row = row_of(x.page, x.entry);
  x.first = 0;
  x.is = exists(x.next);
  return x;
}
NUM void fetch_entries(const mla_attn_args &a, block_pair &x, u32 own) {
  x.next = next_blocks(a, x.next);
  x.entry = list_entry(a, x.next, own);
}
NUM void fetch_pages(const mla_attn_args &a, block_pair &x) { x.page = page_of(a, x.next, x.entry); }
NUM void next_pair(const mla_attn_args &a, block_pair &x, u32 own) {
  x.row = row_of(x.page, x.entry);
  x.is = exists(x.next);
  x.first = x.next.block == 0 ? x.next.tokens : NO_ROW;
  fetch_entries(a, x, own);
}

/* One warp: the queries of token number n of this cluster, when those of the token before have been read. */
NUM void load_queries(const mla_attn_args &a, const tensor_maps &maps, const cta &b, u32 n) {
  token t;
  if (ptx_elect() && find_token(a, n, t)) {
    wait_empty(b, Q_EMPTY, n);
    load_query_boxes(maps, b, t.row * a.heads + b.rank * 64u);
  }
  __syncwarp();
}

#endif

/* attn/turn/rows.cuh - which rows of the KV cache the warpgroups that bring them in attn/turn/form.cuh take, block after block of one token
 * after the other: entries of lists, pages, addresses. Brings queries, and says which places hold a token.
 *
 * Pairs of blocks are looked up at a time, so that each lane of a warp of bf16 rows has a place: pages of the next pair are asked for
 * behind the first block of this one, entries of the pair after that behind the second. A thread waits for everything that it has asked
 * for. Knows nothing of formats but how long a row is. Read next: attn/turn/copy.cuh, attn/turn/codes.cuh. */
#ifndef VERBATIM_TURN_ROWS_CUH
#define VERBATIM_TURN_ROWS_CUH
#include "attn/list_rows.cuh"
#include "attn/turn/layout.cuh"

NUM u32 bring_warp() {
  u32 warp = threadIdx.x % 256u / 32u;
  ptx_forget(warp);
  return warp;
}

typedef struct walk { /* two blocks of KV rows */
  token t;            /* no blocks: there are no more */
  u32 tokens, block;  /* tokens taken before this one; the first of the two */
} walk;

NUM bool is_there(const walk &w) { return w.t.blocks > 0; }
NUM void next_token(const mla_attn_args &a, walk &w) {
  w.block = 0;
  if (!take_token(a, w.tokens, w.t)) w.t.blocks = 0;
}
NUM walk first_blocks(const mla_attn_args &a) {
  walk w;
  w.tokens = 0;
  next_token(a, w);
  return w;
}
NUM walk next_blocks(const mla_attn_args &a, walk w) {
  w.block += 2u;
  if (!is_there(w) || w.block < w.t.blocks) return w;
  w.tokens++;
  next_token(a, w);
  return w;
}

/* Entry of place nth from the first block on, NO_ROW behind the list's end. */
NUM u32 entry_of(const mla_attn_args &a, const walk &w, u32 nth) {
  const u32 at = w.block * PAGE_TOKENS + nth;
  return is_there(w) && at <= w.t.position && at < a.list_max ? a.lists[(u64)w.t.row * a.list_max + at] : NO_ROW;
}

/* Its page, NO_ROW where the entry is void. Then the row of all pages. */
NUM u32 page_of(const mla_attn_args &a, const walk &w, u32 entry) {
  return is_there(w) && entry <= w.t.position ? a.block_table[(u64)w.t.seq * a.block_table_stride + entry / PAGE_TOKENS] : NO_ROW;
}
NUM u32 row_of(u32 page, u32 entry) {
  ptx_forget(page); /* or it would be waited for where it was asked for */
  return page == NO_ROW ? NO_ROW : page * PAGE_TOKENS + entry % PAGE_TOKENS;
}

/* A pair of blocks by the places that lanes look up: this one's row, what is asked for of the next one. */
typedef struct pair {
  walk next;
  u32 entry, page, row;
  u32 first; /* number of the token that begins here, or NO_ROW */
  bool is;   /* there; else there are no more */
} pair;

/* own: the lane's place, the same each time. Entries of the pair that follows are to be asked for. */
NUM pair first_pair(const mla_attn_args &a, u32 own) {
  pair x;
  x.next = first_blocks(a);
  x.entry = entry_of(a, x.next, own);
  x.page = page_of(a, x.next, x.entry);
  x.row = row_of(x.page, x.entry);
  x.first = 0;
  x.is = is_there(x.next);
  return x;
}
NUM void ask_entries(const mla_attn_args &a, pair &x, u32 own) {
  x.next = next_blocks(a, x.next);
  x.entry = entry_of(a, x.next, own);
}
NUM void ask_pages(const mla_attn_args &a, pair &x) { x.page = page_of(a, x.next, x.entry); }
NUM void next_pair(const mla_attn_args &a, pair &x, u32 own) {
  x.row = row_of(x.page, x.entry);
  x.is = is_there(x.next);
  x.first = x.next.block == 0 ? x.next.tokens : NO_ROW;
  ask_entries(a, x, own);
}

/* One warp: of token number n of this cluster, once those of the one before are used up. */
NUM void bring_queries(const mla_attn_args &a, const tensor_maps &maps, const place &p, u32 n) {
  token t;
  if (ptx_elect() && take_token(a, n, t)) {
    wait_free(p, Q_FREE, n);
    ptx_barrier_expect(barrier_at(p, Q_COME), BOXES * BOX_BYTES);
    for (u32 x = 0; x < BOXES; x++)
      ptx_take_box(p.base + AT_Q + x * BOX_BYTES, &maps.x, x * 64u, t.row * a.heads + p.rank * 64u, barrier_at(p, Q_COME));
  }
  __syncwarp();
}

#endif

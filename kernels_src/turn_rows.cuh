/* turn_rows.cuh - which rows of the KV cache the warpgroup that brings them in mla_turn.cuh takes, block after block of one token after
 * the other: entries of lists, pages, addresses. Brings queries, and says which places hold a token.
 *
 * Entries of the next block are asked for before this one's boxes are filled, their pages in the middle of that: a thread waits for
 * everything that it has asked for. Knows nothing of formats but how long a row is. Read next: turn_copy.cuh, turn_codes.cuh. */
#ifndef VERBATIM_TURN_ROWS_CUH
#define VERBATIM_TURN_ROWS_CUH
#include "list_rows.cuh"
#include "turn_layout.cuh"

NUM u32 bring_warp() {
  u32 warp = threadIdx.x % 128u / 32u;
  ptx_forget(warp);
  return warp;
}

typedef struct walk { /* a block of KV rows; none: there are no more */
  token t;
  u32 tokens, block; /* tokens taken before this one */
  bool is;
} walk;

NUM walk first_block(const mla_attn_args &a) {
  walk w;
  w.tokens = w.block = 0;
  w.is = take_token(a, 0, w.t);
  return w;
}
NUM walk next_block(const mla_attn_args &a, walk w) {
  if (!w.is || ++w.block < w.t.blocks) return w;
  w.is = take_token(a, ++w.tokens, w.t);
  w.block = 0;
  return w;
}

/* Entry of place nth of the block, NO_ROW behind the list's end. */
NUM u32 entry_of(const mla_attn_args &a, const walk &w, u32 nth) {
  const u32 at = w.block * PAGE_TOKENS + nth;
  return w.is && at <= w.t.position && at < a.list_max ? a.lists[(u64)w.t.row * a.list_max + at] : NO_ROW;
}

/* Its page, NO_ROW where the entry is void. Then the row of all pages. */
NUM u32 page_of(const mla_attn_args &a, const walk &w, u32 entry) {
  return entry <= w.t.position ? a.block_table[(u64)w.t.seq * a.block_table_stride + entry / PAGE_TOKENS] : NO_ROW;
}
NUM u32 row_of(u32 page, u32 entry) {
  ptx_forget(page); /* or it would be waited for where it was asked for */
  return page == NO_ROW ? NO_ROW : page * PAGE_TOKENS + entry % PAGE_TOKENS;
}

/* One warp: of the token whose first block comes. */
NUM void bring_queries(const mla_attn_args &a, const tensor_maps &maps, const place &p, const walk &w) {
  if (ptx_elect()) {
    wait_free(p, Q_FREE, w.tokens);
    ptx_barrier_expect(barrier_at(p, Q_COME), BOXES * BOX_BYTES);
    for (u32 x = 0; x < BOXES; x++)
      ptx_take_box(p.base + AT_Q + x * BOX_BYTES, &maps.x, x * 64u, w.t.row * a.heads + p.rank * 64u, barrier_at(p, Q_COME));
  }
  __syncwarp();
}

#endif

/* contexts.cuh - where the rows of a piece of the contexts come from. NUMERICS.md, `mla_expand`.
 *
 * The pages of all contexts of a step are numbered in order; a piece is piece_pages of them. Knows nothing of what is computed of the
 * rows. Read next: mla_expand.cu. */
#ifndef VERBATIM_CONTEXTS_CUH
#define VERBATIM_CONTEXTS_CUH
#include "ptx.cuh"

/* Pages that the contexts have in this piece. */
NUM u32 contexts_piece_pages(const mla_expand_args &a) {
  const step_context last = a.contexts[a.step->seq_count - 1u];
  const u32 pages = last.first + (last.tokens + PAGE_TOKENS - 1u) / PAGE_TOKENS, first = a.piece * a.piece_pages;
  const u32 left = first < pages ? pages - first : 0u;
  return left < a.piece_pages ? left : a.piece_pages;
}

/* The kv page that page number `slot` of the piece is made of. slot: below contexts_piece_pages. */
NUM u32 contexts_page(const mla_expand_args &a, u32 slot) {
  const u32 page = a.piece * a.piece_pages + slot;
  u32 low = 0, high = a.step->seq_count;
  while (high - low > 1u) {
    const u32 middle = low + (high - low) / 2u;
    if (a.contexts[middle].first <= page) low = middle;
    else high = middle;
  }
  const step_context c = a.contexts[low];
  return a.block_table[(u64)c.seq * a.block_table_stride + (page - c.first)];
}

#endif

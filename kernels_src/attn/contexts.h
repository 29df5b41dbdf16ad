/* contexts.h - the pages of the contexts that a step's prompt tokens attend to, as a workspace holds them: numbered through all contexts in
 * order, and split into pieces of as many pages as the workspace has. NUMERICS.md, `mla_expand`, `kv_widen`.
 *
 * Knows nothing of what is computed from their rows. Shared by the host (C11) and the kernels. Read next: mla_expand.cu,
 * engine/cpu/mla_expand.c. */
#ifndef VERBATIM_CONTEXTS_H
#define VERBATIM_CONTEXTS_H
#include "num.h"

/* Pages of all contexts. count: at least 1. */
NUM u32 contexts_pages(const step_context *contexts, u32 count) {
  const step_context last = contexts[count - 1];
  return last.first + (last.tokens + PAGE_TOKENS - 1) / PAGE_TOKENS;
}

/* The number of them that lie in a piece. */
NUM u32 contexts_pages_in(const step_context *contexts, u32 count, u32 piece, u32 piece_pages) {
  const u32 pages = contexts_pages(contexts, count), first = piece * piece_pages, left = first < pages ? pages - first : 0;
  return left < piece_pages ? left : piece_pages;
}

/* The context that a page belongs to, by its number. */
NUM step_context contexts_find(const step_context *contexts, u32 count, u32 page) {
  u32 low = 0, high = count;
  while (high - low > 1) {
    const u32 middle = low + (high - low) / 2;
    if (contexts[middle].first <= page) low = middle;
    else high = middle;
  }
  return contexts[low];
}

#endif

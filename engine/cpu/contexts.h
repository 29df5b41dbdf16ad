/* contexts.h - where the pages of a step's contexts lie: pages of all contexts are numbered in order, and cut into pieces.
 *
 * Internal to engine/cpu: mla_expand.c fills the workspace of a piece, mla_prefill.c reads it. NUMERICS.md "mla_expand". */
#ifndef VERBATIM_CPU_CONTEXTS_H
#define VERBATIM_CPU_CONTEXTS_H
#include "abi.h"
#include "base.h"

/* Pages of all contexts. count: at least 1. */
static inline u32 contexts_pages(const step_context *contexts, u32 count) {
  const step_context *last = &contexts[count - 1];
  return last->first + (u32)div_up(last->tokens, PAGE_TOKENS);
}

/* The context that page number `page` belongs to. */
static inline const step_context *contexts_find(const step_context *contexts, u32 count, u32 page) {
  u32 low = 0, high = count;
  while (high - low > 1) {
    u32 middle = low + (high - low) / 2;
    if (contexts[middle].first <= page) low = middle;
    else high = middle;
  }
  return &contexts[low];
}

#endif

/* plan/format_widen.h - a part of plan/format.h: which requests of a step read KV rows that were widened to bf16 once for all of them.
 *
 * Under fast-prefill the workspace of expand_pages pages holds a piece of the prompts' contexts in the expanded form. Under strict, where
 * KV rows have another format than bf16, it holds the widened rows of the requests for which plan_widens says so, as far as there is room;
 * the others read rows as the cache has them. Both have the same bits. Knows no machine but by two figures. Read next: schedule.c. */
#ifndef VERBATIM_PLAN_FORMAT_WIDEN_H
#define VERBATIM_PLAN_FORMAT_WIDEN_H
#include "plan/format.h"

/* Picoseconds of an H200: a KV row that is widened once for a step, and what a row costs each group of 64 heads of a tile more that reads
 * it in another format than bf16: over lists, whose rows are fetched one by one in either format (128 heads, 4,096 tokens, lists of 2,048:
 * 7.42 and 6.24 ms), and of whole contexts. */
#define PLAN_WIDEN_PS 550u
#define PLAN_NARROW_LISTS_PS 70u
#define PLAN_NARROW_PS 280u

static inline int plan_has_widening(const plan_limits *limits) { return limits->parity == PARITY_STRICT && limits->expand_pages > 0; }

/* How often the tiles of a request have to read its context's rows in a step for widening to pay, the launches included. */
static inline uint32_t plan_widen_reads(const plan_model *model, const plan_quant *quant) {
  const uint32_t saved_ps = (model->heads + 63) / 64 * (quant->index_topk ? PLAN_NARROW_LISTS_PS : PLAN_NARROW_PS);
  return 1 + (PLAN_WIDEN_PS + saved_ps - 1) / saved_ps;
}

/* Whether a step widens the context of `tokens` tokens of a request that has so many tiles in it. */
static inline int plan_widens(const plan_model *model, const plan_quant *quant, uint32_t tiles, uint32_t tokens) {
  const uint32_t seen = quant->index_topk && quant->index_topk < tokens ? quant->index_topk : tokens;
  return (uint64_t)tiles * seen >= (uint64_t)plan_widen_reads(model, quant) * tokens;
}

/* Whether it widens that of a request whose `count` rows from `position` on are in it, behind so many pages of others. */
static inline int plan_widens_rows(const plan_header *h, uint64_t pages_before, uint32_t count, uint32_t position) {
  const uint32_t tokens = position + count, tile = h->limits.attn_tile_tokens;
  return plan_has_widening(&h->limits) && pages_before + (tokens - 1) / PAGE_TOKENS + 1 <= h->limits.expand_pages &&
         plan_widens(&h->model, &h->quant, (count - 1) / tile + 1, tokens);
}

#endif

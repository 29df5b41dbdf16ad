/* plan/format_widen.h - a part of plan/format.h: which requests of a step read KV rows that were dequantized to bf16 once for all their
 * tiles.
 *
 * Under fast-prefill the workspace of expand_pages pages holds a piece of the prompts' contexts in the expanded form. Under strict, if KV
 * rows have another format than bf16, it holds the dequantized rows of the requests that plan_widens selects, as far as there is room; the
 * other requests read rows in the cache's format. Both give the same bits. Knows no backend except by two timings. Read next:
 * schedule.c. */
#ifndef VERBATIM_PLAN_FORMAT_WIDEN_H
#define VERBATIM_PLAN_FORMAT_WIDEN_H
#include "plan/format.h"

/* Picoseconds on an H200: the cost of dequantizing a KV row once for a step, and the extra cost, per row and group of 64 heads of a tile,
 * of reading a row in another format than bf16. The latter is given for top-k lists, whose rows are fetched one by one in either format
 * (128 heads, 4,096 tokens, lists of 2,048: 7.42 and 6.24 ms), and for whole contexts. */
#define PLAN_WIDEN_PS 550u
#define PLAN_NARROW_LISTS_PS 70u
#define PLAN_NARROW_PS 280u

static inline int plan_has_widening(const plan_limits *limits) { return limits->parity == PARITY_STRICT && limits->expand_pages > 0; }

/* How often a request's tiles must read the rows of its context in a step before dequantizing pays, launches included. */
static inline uint32_t plan_widen_reads(const plan_model *model, const plan_quant *quant) {
  const uint32_t saved_ps = (model->heads + 63) / 64 * (quant->index_topk ? PLAN_NARROW_LISTS_PS : PLAN_NARROW_PS);
  return 1 + (PLAN_WIDEN_PS + saved_ps - 1) / saved_ps;
}

/* Whether a step dequantizes a context of `tokens` tokens for a request with this many tiles in the step. */
static inline int plan_widens(const plan_model *model, const plan_quant *quant, uint32_t tiles, uint32_t tokens) {
  const uint32_t seen = quant->index_topk && quant->index_topk < tokens ? quant->index_topk : tokens;
  return (uint64_t)tiles * seen >= (uint64_t)plan_widen_reads(model, quant) * tokens;
}

/* The same for a request with `count` rows from `position` on in the step, after this many pages of other requests. */
static inline int plan_widens_rows(const plan_header *h, uint64_t pages_before, uint32_t count, uint32_t position) {
  const uint32_t tokens = position + count, tile = h->limits.attn_tile_tokens;
  return plan_has_widening(&h->limits) && pages_before + (tokens - 1) / PAGE_TOKENS + 1 <= h->limits.expand_pages &&
         plan_widens(&h->model, &h->quant, (count - 1) / tile + 1, tokens);
}

#endif

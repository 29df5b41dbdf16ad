/* plan/format_rows.h - what follows from a plan's limits: rows, heads and layers. A part of plan/format.h, which includes it. */
#ifndef VERBATIM_PLAN_FORMAT_ROWS_H
#define VERBATIM_PLAN_FORMAT_ROWS_H

/* The most token rows that a rank owns, of those of a step: the launch rows of ROWS_OWN. */
static inline uint32_t plan_own_rows(const plan_limits *limits, uint32_t tokens) { return STEP_OWN_ROWS(tokens, 0u, limits->ranks); }

/* The most token rows of a step in which no rank owns more than `own`. */
static inline uint32_t plan_rows_of_own(const plan_limits *limits, uint32_t own) {
  return own < limits->max_batch_tokens / limits->ranks ? own * limits->ranks : limits->max_batch_tokens;
}

/* Whether some steps attend by requests, and tiles of a rank in plan_io.own_tiles. */
static inline int plan_has_requests(const plan_limits *limits) { return limits->requests_rows > 0; }
static inline uint32_t plan_own_tiles(const plan_limits *limits) { return plan_own_rows(limits, limits->split_rows_max); }

/* The kind of ROWS_BY_HEADS: in steps with prompts, whose attention has ops of its own, the rows that generate. */
static inline uint32_t plan_heads_kind(const plan_limits *limits) { return limits->expand_pages > 0 ? ROWS_MADE : ROWS_TOKENS; }

/* Entries of plan_io.step. */
static inline uint32_t plan_step_entries(const plan_limits *limits) { return STEP_PARTS + (limits->ranks > 1 ? limits->ranks : 0); }

/* The most launch rows of a kind (enum rows_kind) that a step can have. */
static inline uint32_t plan_rows_limit(const plan_limits *limits, uint32_t rows_kind) {
  if (rows_kind == ROWS_DRAFTS) return limits->max_seqs;
  if (rows_kind == ROWS_OWN) return plan_own_rows(limits, limits->max_batch_tokens);
  return rows_kind == ROWS_LOGITS ? limits->max_logit_rows : limits->max_batch_tokens;
}

static inline int plan_has_mtp(const plan_limits *limits) { return limits->speculation == SPECULATION_MTP; }

/* Sequences from one pass of drafts to the next, in tables by pass and sequence: every pass begins at a multiple of 16 bytes. */
static inline uint32_t plan_draft_stride(const plan_limits *limits) { return (limits->max_seqs + 3) / 4 * 4; }

/* The layers that keep rows of every token: the model's, and with SPECULATION_MTP the prediction layer. */
static inline uint32_t plan_kept_layers(const plan_model *model, const plan_limits *limits) {
  return model->layers + (plan_has_mtp(limits) ? 1 : 0);
}

/* Ranks that divide the heads of the attention. Where grouped-query attention cannot be divided, because KV heads are too few or a norm
 * runs over all heads, it is one: every rank then computes all heads. */
static inline uint32_t plan_attention_ranks(const plan_grouped *grouped, const plan_limits *limits) {
  if (!plan_is_grouped(grouped)) return limits->ranks;
  return grouped->qk_norm != QK_NORM_ROW && grouped->kv_heads % limits->ranks == 0 ? limits->ranks : 1;
}

/* No tile of the attention reaches across a multiple of this many tokens. */
static inline uint32_t plan_tile_edge(const plan_limits *limits) {
  return limits->attn_tile_tokens > PAGE_TOKENS ? PROMPT_TILE_TOKENS : PAGE_TOKENS;
}

/* Heads of a rank. */
static inline uint32_t plan_rank_heads(const plan_model *model, const plan_grouped *grouped, const plan_limits *limits) {
  return model->heads / plan_attention_ranks(grouped, limits);
}

#endif

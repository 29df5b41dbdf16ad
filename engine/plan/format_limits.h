/* plan/format_limits.h - a part of plan/format.h: what a deployment chooses of a plan's sizes and ways.
 *
 * Of these only chunk_tokens, group_chunks and parity enter the numerics id. Read next: plan/format.h, planner/deploy_config.h. */
#ifndef VERBATIM_PLAN_FORMAT_LIMITS_H
#define VERBATIM_PLAN_FORMAT_LIMITS_H
#include <stdint.h>

enum plan_parity {
  PARITY_STRICT = 0,      /* all attention in the absorbed form                    */
  PARITY_FAST_PREFILL = 1 /* prompt tokens attend in the expanded form: other bits */
};

/* Where guesses of next tokens come from. NGRAM: what followed the newest tokens where they occurred before. MTP: the model's prediction
 * layer, the layer after the last, whose ops are the plan's draft section. */
enum plan_speculation { SPECULATION_OFF = 0, SPECULATION_NGRAM = 1, SPECULATION_MTP = 2 };

/* How ranks exchange: our kernels write into each other's memory; or NCCL, with the inbox of an exchange in WORK, and no rank_norm. */
enum plan_transport { TRANSPORT_PEER = 0, TRANSPORT_NCCL = 1 };

typedef struct plan_limits {
  uint32_t max_seqs;         /* sequences active at once: slots, block-table rows */
  uint32_t max_batch_tokens; /* token rows of a step                              */
  uint32_t max_len;          /* tokens of a sequence, prompt and output           */
  uint32_t max_logit_rows;   /* logits rows of a step, >= max_seqs                */
  uint32_t kv_pages;         /* pages of 64 tokens, shared by all sequences       */
  uint32_t pages_per_seq;    /* block_table_stride = ceil(max_len / 64)           */
  uint32_t chunk_tokens, group_chunks; /* S and G of the attention: part of the numerics id */
  uint32_t attn_tile_tokens; /* most tokens of one attn_tile                      */
  uint32_t split_rows_max;   /* steps of up to this many token rows split the context */
  uint32_t parity;           /* enum plan_parity                                  */
  uint32_t expand_pages;     /* pages of prompts' contexts in a workspace: see plan/format_widen.h; 0: none */
  uint32_t ranks;            /* devices that share the work, 1 .. RANKS_MAX; a divisor of the heads */
  uint32_t speculation;      /* enum plan_speculation */
  uint32_t draft_tokens;     /* most guesses of a sequence in a step, 0 .. DRAFT_TOKENS_MAX; 0 with SPECULATION_OFF */
  uint32_t match_min, match_max; /* NGRAM, or MTP with prompt lookup beside it, else 0: tokens that must have occurred before, and most that
                              * are compared */
  uint32_t transport;        /* enum plan_transport; 0 with one rank              */
  uint32_t requests_rows, requests_context; /* steps of generated tokens attend by requests (ROWS_BY_REQUESTS) from so many token rows on,
                              * ranks .. split_rows_max, whose contexts have so many tokens on average; both 0: none */
} plan_limits;

#endif

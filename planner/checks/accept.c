/* accept.c - the checker's reading of the op `accept`: memory and argument values. See reading.h. */
#include "checks/reading.h"

static void describe(writer *w, const void *args) {
  const accept_args *a = args;
  const uint64_t t = w->rows.tokens, r = w->rows.logits, d = w->rows.drafts;
  const uint64_t more = a->draft_tokens ? a->draft_tokens - UINT64_C(1) : 0;
  fixed(w, FIELD(accept, token), false, REGION_STEP, IO(token), t * 4);
  fixed(w, FIELD(accept, position), false, REGION_STEP, IO(position), t * 4);
  fixed(w, FIELD(accept, logit_row), false, REGION_STEP, IO(logit_row), r * 4);
  fixed(w, FIELD(accept, param), false, REGION_STEP, IO(sample), r * sizeof(sample_param));
  fixed(w, FIELD(accept, result), false, REGION_RESULT, IO(result), r * sizeof(sample_result));
  fixed(w, FIELD(accept, next), false, REGION_STEP, IO(next), t * 4);
  fixed(w, FIELD(accept, drafts), false, REGION_STEP, IO(drafts), d * sizeof(step_draft));
  table(w, FIELD(accept, next_token), true, TYPE_TOKENS, t, 1, 1);
  draft_list_of(w, FIELD(accept, source), true, TYPE_SOURCES);
  pass_table(w, FIELD(accept, draft_param), true, TYPE_PARAMS, a->draft_tokens, 0, sizeof(sample_param));
  draft_list_of(w, FIELD(accept, draft_token), true, TYPE_SLOT_TOKENS)->must_be_null = more == 0;
  draft_list_of(w, FIELD(accept, draft_seq), true, TYPE_SEQS)->must_be_null = more == 0;
  pass_table(w, FIELD(accept, draft_position), true, TYPE_POSITIONS, more, 0, 4)->must_be_null = more == 0;
  pass_table(w, FIELD(accept, draft_tiles), true, TYPE_TILES, more, 0, sizeof(attn_tile))->must_be_null = more == 0;
}

static status values(const reader *r, const void *args) {
  const accept_args *a = args;
  SAME(draft_tokens, r->l->draft_tokens);
  SAME(stride, plan_draft_stride(r->l));
  return OK;
}

const reading checks_accept = {describe, values};

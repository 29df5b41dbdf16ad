/* sample.c - the checker's reading of the op `sample`: memory and argument values. See reading.h. */
#include "checks/reading.h"

/* Drafts are no results of the step, and not the tokens of its sequences. */
static void describe_draft(writer *w) {
  const uint64_t nth = w->rows.pass - UINT64_C(1);
  pass_table(w, FIELD(sample, param), false, TYPE_PARAMS, w->l->draft_tokens, nth, sizeof(sample_param));
  draft_list_of(w, FIELD(sample, sampled), true, TYPE_SAMPLED);
  fixed(w, FIELD(sample, result), true, REGION_RESULT, IO(draft), w->rows.drafts * sizeof(sample_result))->io_at =
      times(nth, plan_draft_stride(w->l) * sizeof(sample_result));
  add(w, FIELD(sample, top), true, TYPE_STRUCT, REGION_RESULT)->must_be_null = true;
}

static void describe(writer *w, const void *args) {
  const sample_args *a = args;
  uint64_t r = w->rows.logits;
  table(w, FIELD(sample, logits), false, TYPE_F32, r, a->vocab, a->vocab);
  table(w, FIELD(sample, adjusted), false, TYPE_F32, r, a->vocab, a->vocab);
  if (w->rows.of_drafts) {
    describe_draft(w);
    return;
  }
  fixed(w, FIELD(sample, param), false, REGION_STEP, IO(sample), r * sizeof(sample_param));
  fixed(w, FIELD(sample, sampled), true, REGION_STATE, IO(sampled), w->l->max_seqs * UINT64_C(4));
  fixed(w, FIELD(sample, result), true, REGION_RESULT, IO(result), r * sizeof(sample_result));
  fixed(w, FIELD(sample, top), true, REGION_RESULT, IO(top), r * (TOP_LOGPROBS_MAX * sizeof(top_logprob)));
}

static status values(const reader *r, const void *args) {
  const sample_args *a = args;
  SAME(vocab, r->m->vocab);
  return OK;
}

const reading checks_sample = {describe, values};

/* accept.c - the CPU reference of accept: which guesses of a step were right, and the inputs of the next ones. NUMERICS.md "accept". */
#include "cpu/cpu.h"

/* The last logits row of the draft whose token row has the token that the row before it chose. */
static u32 last_right(const accept_args *a, const step_draft *d) {
  u32 r = d->first;
  while (r + 1 < d->first + d->count && a->result[r].token == a->token[a->logit_row[r + 1]]) r++;
  return r;
}

static void accept_draft(const accept_args *a, u32 d) {
  const u32 row = last_right(a, &a->drafts[d]), token_row = a->logit_row[row], slot = a->drafts[d].slot;
  ASSERT(a->drafts[d].count > 0 && row < a->step->logit_count);
  a->source[d] = token_row;
  if (a->draft_tokens > 1) a->draft_token[d] = -1 - (i32)d;
  if (a->draft_tokens > 1) a->draft_seq[d] = slot;
  for (u32 pass = 0; pass < a->draft_tokens; pass++) {
    sample_param param = a->param[row];
    param.position += pass + 1;
    param.slot = d;
    param.target = -1;
    param.top_count = param.adjusted = 0;
    a->draft_param[(u64)pass * a->stride + d] = param;
    if (pass == 0) continue;
    const u64 at = (u64)(pass - 1) * a->stride + d;
    a->draft_position[at] = a->position[token_row] + pass;
    a->draft_tiles[at] = (attn_tile){.row = d, .count = 1, .seq = slot, .position = a->position[token_row] + pass};
  }
}

static void accept_row(void *context, uint32_t row, void *scratch) {
  const accept_args *a = context;
  i32 next = a->next[row];
  (void)scratch;
  for (u32 r = 0; r < a->step->logit_count && next < 0; r++)
    if (a->logit_row[r] == row) next = a->result[r].token;
  a->next_token[row] = next < 0 ? 0 : next;
  if (row < a->step[STEP_DRAFTS].token_count) accept_draft(a, row);
}

void cpu_accept(const accept_args *args, cpu_pool *pool) {
  accept_args a = *args;
  ASSERT(a.draft_tokens >= 1 && a.step[STEP_DRAFTS].token_count <= a.stride && a.step[STEP_DRAFTS].token_count <= a.step->token_count);
  cpu_pool_run(pool, a.step->token_count, accept_row, &a);
}

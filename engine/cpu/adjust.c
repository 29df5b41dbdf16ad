/* adjust.c - the CPU reference of adjust: writes the logits with penalties, the token list and the ban on all other tokens applied, to a
 * row of its own. NUMERICS.md "adjust".
 *
 * It first collects what is known about each token: whether it was seen, how often the request generated it, its bias. Each result then
 * depends on the logit and these alone. Read next: sample.c. */
#include <float.h>
#include <math.h>
#include <string.h>
#include "cpu/cpu.h"
#include "base/limits.h"
#include "kernels_src/num.h"

typedef struct token_marks {
  u32 generated;
  u8 is_seen, is_listed;
  f32 bias;
} token_marks;
_Static_assert(sizeof(token_marks) * VOCAB_MAX <= CPU_SCRATCH_BYTES, "adjusting needs more scratch");

static f32 adjust_one(f32 logit, const token_marks *m, const sample_param *p) {
  if (p->list_only && !m->is_listed) return -INFINITY;
  if (m->is_seen) logit = logit > 0.0f ? num_div(logit, p->repetition) : num_mul(logit, p->repetition); /* R9.1 */
  logit = num_sub(logit, num_mul(p->frequency, (f32)m->generated)); /* R9.2, R9.3 */
  if (m->generated) logit = num_sub(logit, p->presence);            /* R9.4 */
  logit = logit > FLT_MAX ? FLT_MAX : logit < -FLT_MAX ? -FLT_MAX : logit;
  return m->is_listed ? num_add(logit, m->bias) : logit; /* R9.5 */
}

static void adjust_row(void *context, uint32_t row, void *scratch) {
  const adjust_args *a = context;
  const sample_param *p = &a->param[row];
  token_marks *marks = scratch;
  if (!p->adjusted) return;
  const token_bias *list = a->lists + (u64)p->slot * TOKEN_LIST_MAX;
  const u32 *pages = a->block_table + (u64)p->slot * a->block_table_stride;
  ASSERT(p->list_count <= TOKEN_LIST_MAX && (p->list_count > 0 || !p->list_only));
  memset(marks, 0, a->vocab * sizeof *marks);
  for (u32 at = 0; at < p->position; at++) {
    i32 id = a->history[(u64)pages[at / PAGE_TOKENS] * PAGE_TOKENS + at % PAGE_TOKENS];
    ASSERT(id >= 0 && (u32)id < a->vocab);
    marks[id].is_seen = 1;
    marks[id].generated += at >= p->prompt_count;
  }
  for (u32 i = 0; i < p->list_count; i++) {
    ASSERT(list[i].token >= 0 && (u32)list[i].token < a->vocab);
    marks[list[i].token].is_listed = 1;
    marks[list[i].token].bias = list[i].bias;
  }
  const f32 *logit = a->logits + (u64)row * a->vocab;
  f32 *out = a->adjusted + (u64)row * a->vocab;
  for (u32 i = 0; i < a->vocab; i++) out[i] = adjust_one(logit[i], &marks[i], p);
}

void cpu_adjust(const adjust_args *args, cpu_pool *pool) {
  adjust_args a = *args;
  ASSERT(a.vocab > 0 && a.vocab <= VOCAB_MAX);
  cpu_pool_run(pool, a.step->logit_count, adjust_row, &a);
}

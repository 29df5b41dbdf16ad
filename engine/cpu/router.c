/* router.c - the CPU reference of router: scores, group limit, the top experts in a total order, their weights. NUMERICS.md "router".
 *
 * A NaN counts as the largest score (`order`), so its expert is chosen and the request ends. */
#include "cpu/cpu.h"
#include "base/limits.h"
#include "cpu/rows.h"

#define SOFTMAX_PARTS 32u

typedef struct router_token {
  f32 score[EXPERTS_MAX];  /* s */
  f32 choice[EXPERTS_MAX]; /* c */
  u32 out[EXPERTS_MAX];    /* 1: may not be chosen */
} router_token;

static void score_experts(const router_args *a, const f32 *logit, f32 *score) {
  if (a->scoring == ROUTER_SIGMOID) {
    for (u32 e = 0; e < a->experts; e++) score[e] = num_sigmoid(logit[e]);
    return;
  }
  f32 p[SOFTMAX_PARTS] = {0}, largest = logit[0];
  for (u32 e = 1; e < a->experts; e++) largest = num_order(logit[e]) > num_order(largest) ? logit[e] : largest;
  for (u32 e = 0; e < a->experts; e++) {
    score[e] = num_exp(num_sub(logit[e], largest));
    p[e % SOFTMAX_PARTS] = num_add(p[e % SOFTMAX_PARTS], score[e]);
  }
  f32 z = rows_tree(p, SOFTMAX_PARTS);
  for (u32 e = 0; e < a->experts; e++) score[e] = num_div(score[e], z);
}

/* Index of the best value that is not out; among equals the lowest. At least one is not out. */
static u32 best(const f32 *value, const u32 *out, u32 count) {
  u32 found = count;
  for (u32 i = 0; i < count; i++) {
    if (!out[i] && (found == count || num_order(value[i]) > num_order(value[found]))) found = i;
  }
  return found;
}

/* The score of a group whose choices are c: the largest, or the sum of the two largest, larger first (R6.2). */
static f32 group_score(const f32 *c, u32 count, u32 mode) {
  u32 out[EXPERTS_MAX] = {0}, first = best(c, out, count);
  if (mode == ROUTER_GROUP_MAX || count < 2) return c[first];
  out[first] = 1;
  return num_add(c[first], c[best(c, out, count)]);
}

static void limit_groups(const router_args *a, router_token *t) {
  f32 score[EXPERT_GROUPS_MAX];
  u32 taken[EXPERT_GROUPS_MAX] = {0}, neighbours = a->experts / a->groups;
  for (u32 g = 0; g < a->groups; g++) score[g] = group_score(t->choice + g * neighbours, neighbours, a->group_mode);
  for (u32 n = 0; n < a->top_groups; n++) taken[best(score, taken, a->groups)] = 1;
  for (u32 e = 0; e < a->experts; e++) t->out[e] = !taken[e / neighbours];
}

static void route_token(void *context, uint32_t token, void *scratch) {
  const router_args *a = context;
  router_token *t = scratch;
  u32 chosen[EXPERTS_MAX] = {0}, *id = a->topk_id + (u64)token * a->top_k;
  f32 *weight = a->topk_weight + (u64)token * a->top_k, sum = 0.0f;
  score_experts(a, a->logits + (u64)token * a->experts, t->score);
  for (u32 e = 0; e < a->experts; e++) {
    t->choice[e] = a->bias ? num_add(t->score[e], a->bias[e]) : t->score[e]; /* R6.1 */
    t->out[e] = 0;
  }
  if (a->group_mode != ROUTER_GROUP_NONE) limit_groups(a, t);
  for (u32 k = 0; k < a->top_k; k++) {
    u32 e = best(t->choice, t->out, a->experts);
    t->out[e] = chosen[e] = 1;
  }
  for (u32 e = 0, k = 0; e < a->experts; e++) {
    if (!chosen[e]) continue;
    id[k] = e;
    weight[k++] = t->score[e];
    sum = num_add(sum, t->score[e]); /* R6.3 */
  }
  for (u32 k = 0; k < a->top_k; k++) {
    if (a->normalise) weight[k] = num_div(weight[k], num_add(sum, 1e-20f)); /* R6.4, R6.5 */
    weight[k] = num_mul(weight[k], a->scale);                              /* R6.6 */
  }
}

void cpu_router(const router_args *args, cpu_pool *pool) {
  router_args a = *args;
  ASSERT(a.experts <= EXPERTS_MAX && a.groups <= EXPERT_GROUPS_MAX);
  if (a.group_mode != ROUTER_GROUP_NONE) {
    ASSERT(a.groups > 0 && a.experts % a.groups == 0 && a.top_groups <= a.groups);
    ASSERT(a.top_k <= a.experts / a.groups * a.top_groups);
  }
  ASSERT(a.top_k <= a.experts);
  cpu_pool_run(pool, a.step->token_count, route_token, &a);
  if (!a.sorts) return;
  ASSERT(a.step->token_count <= ROUTER_SORTS_MAX);
  moe_sort_args sort = {.step = a.step, .topk_id = a.topk_id, .expert_first = a.expert_first, .row_token = a.row_token,
                        .pair_row = a.pair_row, .experts = a.experts, .top_k = a.top_k};
  cpu_moe_sort_pairs(&sort, pool);
}

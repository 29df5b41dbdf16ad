/* test_router.c - router: both scorings, group limits, bias, ties, normalisation; against sorting all experts. */
#include "kernel_test.h"
#include <stdlib.h>

typedef struct router_shape {
  u32 tokens, experts, top_k, groups, top_groups, scoring, group_mode, bias, normalise, ties;
  f32 scale;
} router_shape;

typedef struct ranked { f32 value; u32 index; } ranked;

static int by_rank(const void *a, const void *b) { /* value descending, index ascending */
  const ranked *x = a, *y = b;
  if (x->value != y->value) return x->value > y->value ? -1 : 1;
  return x->index < y->index ? -1 : 1;
}

static int by_index(const void *a, const void *b) {
  const ranked *x = a, *y = b;
  return x->index < y->index ? -1 : 1;
}

/* s of NUMERICS.md; also checks the softmax against binary64. */
static void scores(const router_shape *s, const f32 *logit, f32 *out) {
  f32 part[32] = {0}, top = -INFINITY;
  double sum = 0;
  for (u32 e = 0; e < s->experts; e++) top = fmaxf(top, logit[e]);
  for (u32 e = 0; e < s->experts; e++) {
    out[e] = s->scoring == ROUTER_SIGMOID ? num_sigmoid(logit[e]) : num_exp(logit[e] - top);
    part[e % 32] += out[e];
    sum += exp((double)logit[e] - (double)top);
  }
  if (s->scoring == ROUTER_SIGMOID) return;
  for (u32 width = 16; width > 0; width /= 2)
    for (u32 j = 0; j < width; j++) part[j] += part[j + width];
  for (u32 e = 0; e < s->experts; e++) {
    out[e] /= part[0];
    kernel_test_near((double)out[e], exp((double)logit[e] - (double)top) / sum, 2e-6, 1e-37);
  }
}

static void check_token(const router_shape *s, const f32 *logit, const f32 *bias, const u32 *id, const f32 *weight) {
  f32 score[512], sum = 0;
  ranked expert[512], group[64];
  u32 neighbours = s->experts / s->groups, count = 0;
  scores(s, logit, score);
  for (u32 g = 0; g < s->groups; g++) {
    for (u32 n = 0; n < neighbours; n++) expert[n] = (ranked){score[g * neighbours + n] + (bias ? bias[g * neighbours + n] : 0), n};
    qsort(expert, neighbours, sizeof expert[0], by_rank);
    group[g] = (ranked){expert[0].value, g};
    if (s->group_mode == ROUTER_GROUP_TOP2 && neighbours > 1) group[g].value += expert[1].value;
  }
  qsort(group, s->groups, sizeof group[0], by_rank);
  for (u32 e = 0; e < s->experts; e++) {
    bool in = s->group_mode == ROUTER_GROUP_NONE;
    for (u32 g = 0; g < s->top_groups; g++) in = in || group[g].index == e / neighbours;
    if (in) expert[count++] = (ranked){score[e] + (bias ? bias[e] : 0), e};
  }
  qsort(expert, count, sizeof expert[0], by_rank);
  qsort(expert, s->top_k, sizeof expert[0], by_index);
  for (u32 k = 0; k < s->top_k; k++) sum += score[expert[k].index];
  for (u32 k = 0; k < s->top_k; k++) {
    f32 w = score[expert[k].index];
    assert_int_equal(id[k], expert[k].index);
    assert_true(num_bits(weight[k]) == num_bits((s->normalise ? w / (sum + 1e-20f) : w) * s->scale));
  }
}

static void take_sorted(kernel_test *test, router_args *a, const router_shape *s) {
  u32 pairs = s->tokens * s->top_k;
  a->sorts = 1;
  a->order = s->tokens > 1 && s->normalise ? ORDER_BESIDE : ORDER_CHAIN;
  a->expert_first = kernel_test_output(test, (s->experts + 1) * 4);
  a->row_token = kernel_test_output(test, pairs * 4);
  a->pair_row = kernel_test_output(test, pairs * 4);
}

/* The row of a pair is the number of pairs before it. */
static void check_sorted(const router_args *a, const router_shape *s) {
  u32 pairs = s->tokens * s->top_k;
  for (u32 e = 0; e <= s->experts; e++) {
    u32 before = 0;
    for (u32 p = 0; p < pairs; p++) before += a->topk_id[p] < e;
    assert_int_equal(a->expert_first[e], before);
  }
  for (u32 p = 0; p < pairs; p++) {
    u32 before = a->expert_first[a->topk_id[p]];
    for (u32 q = 0; q < p; q++) before += a->topk_id[q] == a->topk_id[p];
    assert_int_equal(a->pair_row[p], before);
    assert_int_equal(a->row_token[before], p / s->top_k);
  }
}

static void router_case(kernel_test *test, const router_shape *s, bool sorts) {
  cases c = {.state = s->tokens * 1000003u + s->experts * 31 + s->top_k + s->scoring};
  u32 padded = s->tokens + 3;
  kernel_test_start(test);
  step_in *step = kernel_test_step(test, s->tokens, 0, 0);
  f32 *logits = kernel_test_input(test, (size_t)padded * s->experts * 4), *bias = s->bias ? kernel_test_input(test, s->experts * 4) : NULL;
  u32 *id = kernel_test_output(test, padded * s->top_k * 4);
  f32 *weight = kernel_test_output(test, padded * s->top_k * 4);
  kernel_test_keep(test, id + s->tokens * s->top_k, 3 * s->top_k * 4);
  kernel_test_keep(test, weight + s->tokens * s->top_k, 3 * s->top_k * 4);
  for (u32 i = 0; i < s->tokens * s->experts; i++) logits[i] = s->ties ? (f32)cases_below(&c, s->ties) * 0.5f : cases_uniform(&c, 6);
  for (u32 e = 0; e < s->experts && bias; e++) bias[e] = s->ties ? (f32)cases_below(&c, 2) * 0.25f : cases_uniform(&c, 0.5f);
  router_args args = {.step = step, .logits = logits, .bias = bias, .topk_id = id, .topk_weight = weight, .experts = s->experts};
  args.top_k = s->top_k;
  args.groups = s->groups;
  args.top_groups = s->top_groups;
  args.scoring = s->scoring;
  args.group_mode = s->group_mode;
  args.normalise = s->normalise;
  args.scale = s->scale;
  if (sorts) take_sorted(test, &args, s);
  u32 blocks = (u32)div_up(s->tokens, 4);
  kernel_variant variants[] = {{.grid = {blocks, 1, 1}, .threads = 128}, {.grid = {blocks + 2, 1, 1}, .threads = 128},
                               {.grid = {1, 1, 1}, .threads = 512}};
  kernel_test_run(test, &args, variants, 3);
  if (sorts) check_sorted(&args, s);
  for (u32 t = 0; t < s->tokens; t++)
    check_token(s, logits + (size_t)t * s->experts, bias, id + t * s->top_k, weight + t * s->top_k);
}

static void router_cases(kernel_test *test) {
  enum { SIGMOID = ROUTER_SIGMOID, SOFTMAX = ROUTER_SOFTMAX, TOP2 = ROUTER_GROUP_TOP2, MAX = ROUTER_GROUP_MAX, NONE = ROUTER_GROUP_NONE };
  static const router_shape shapes[] = {
      {.tokens = 1, .experts = 256, .top_k = 8, .groups = 8, .top_groups = 4, .scoring = SIGMOID, .group_mode = TOP2, .bias = 1,
       .normalise = 1, .scale = 2.5f},
      {.tokens = 67, .experts = 256, .top_k = 8, .groups = 8, .top_groups = 4, .scoring = SIGMOID, .group_mode = TOP2, .bias = 1,
       .normalise = 1, .ties = 4, .scale = 2.5f},
      {.tokens = 5, .experts = 160, .top_k = 6, .groups = 8, .top_groups = 3, .scoring = SOFTMAX, .group_mode = MAX, .scale = 16.0f},
      {.tokens = 64, .experts = 160, .top_k = 6, .groups = 8, .top_groups = 3, .scoring = SOFTMAX, .group_mode = MAX, .ties = 3,
       .scale = 16.0f},
      {.tokens = 33, .experts = 64, .top_k = 6, .groups = 1, .top_groups = 1, .scoring = SOFTMAX, .group_mode = NONE, .scale = 1.0f},
      {.tokens = 4, .experts = 64, .top_k = 6, .groups = 1, .top_groups = 1, .scoring = SOFTMAX, .group_mode = NONE, .normalise = 1,
       .ties = 2, .scale = 1.0f},
      {.tokens = 3, .experts = 8, .top_k = 2, .groups = 1, .top_groups = 1, .scoring = SIGMOID, .group_mode = NONE, .bias = 1,
       .normalise = 1, .scale = 1.0f},
      {.tokens = 2, .experts = 512, .top_k = 16, .groups = 64, .top_groups = 16, .scoring = SIGMOID, .group_mode = TOP2, .bias = 1,
       .normalise = 1, .scale = 1.0f},
      {.tokens = 9, .experts = 384, .top_k = 8, .groups = 1, .top_groups = 1, .scoring = SIGMOID, .group_mode = NONE, .bias = 1,
       .normalise = 1, .ties = 5, .scale = 2.827f},
      {.tokens = 7, .experts = 8, .top_k = 4, .groups = 8, .top_groups = 4, .scoring = SIGMOID, .group_mode = TOP2, .normalise = 1,
       .scale = 1.0f},
      {.tokens = 5, .experts = 33, .top_k = 16, .groups = 1, .top_groups = 1, .scoring = SOFTMAX, .group_mode = NONE, .bias = 1, .ties = 1,
       .scale = 0.5f},
      {.tokens = 37, .experts = 128, .top_k = 4, .groups = 8, .top_groups = 3, .scoring = SOFTMAX, .group_mode = TOP2, .normalise = 1,
       .scale = 1.5f},
      {.tokens = 9, .experts = 128, .top_k = 4, .groups = 8, .top_groups = 3, .scoring = SOFTMAX, .group_mode = TOP2, .normalise = 1,
       .ties = 3, .scale = 1.5f},
  };
  for (u32 i = 0; i < ARRAY_LEN(shapes); i++) router_case(test, &shapes[i], false);
  for (u32 i = 0; i < ARRAY_LEN(shapes); i++)
    if (shapes[i].tokens <= ROUTER_SORTS_MAX) router_case(test, &shapes[i], true);
}

int main(int argc, char **argv) {
  return kernel_test_main(argc, argv, "router", "e361aaf5c909df1c571650386ae50ea5", router_cases);
}

/* test_sample.c - sample: greedy, drawing, top-k, top-p, both, ties, non-finite rows; against sorting the whole vocabulary. */
#include "kernel_test.h"
#include <stdlib.h>

__extension__ typedef unsigned __int128 wide;

typedef struct candidate { u32 order, index; u64 weight; } candidate;

static int by_rank(const void *a, const void *b) { /* logit descending, index ascending */
  const candidate *x = a, *y = b;
  if (x->order != y->order) return x->order > y->order ? -1 : 1;
  return x->index < y->index ? -1 : 1;
}

static int by_index(const void *a, const void *b) {
  const candidate *x = a, *y = b;
  return x->index < y->index ? -1 : 1;
}

/* The token by the text of NUMERICS.md, with everything sorted. */
static u32 draw_by_sorting(const f32 *logit, u32 n, f32 top, const sample_param *p) {
  candidate *list = malloc(n * sizeof *list);
  u32 kept = p->top_k && p->top_k < n ? p->top_k : n, count = 0, token;
  u64 sum = 0, prefix = 0;
  assert_non_null(list);
  for (u32 i = 0; i < n; i++) {
    f32 x = (logit[i] - top) / p->temperature;
    list[i] = (candidate){num_order(logit[i]), i, (u64)(num_exp(x) * 0x1p40f)};
  }
  qsort(list, n, sizeof *list, by_rank);
  for (u32 i = 0; i < kept; i++) sum += list[i].weight;
  u64 limit = (u64)((wide)p->top_p_fixed * sum >> 32);
  while (prefix < (limit > 1 ? limit : 1)) prefix += list[count++].weight;
  qsort(list, count, sizeof *list, by_index);
  u64 r = (u64)((wide)num_philox(p->seed, p->position, p->sample_index) * prefix >> 64), upto = 0;
  for (token = 0; (upto += list[token].weight) <= r;) token++;
  token = list[token].index;
  free(list);
  return token;
}

static void check_row(const f32 *logit, u32 n, const sample_param *p, const sample_result *result, const i32 *sampled) {
  u32 bad = 0, best = 0;
  double sum = 0;
  for (u32 i = 0; i < n; i++) {
    bad = isfinite(logit[i]) ? bad : 1;
    best = logit[i] > logit[best] ? i : best;
  }
  assert_int_equal(result->nonfinite, bad);
  assert_int_equal(result->pad, 0);
  assert_int_equal(sampled[p->slot], result->token);
  if (bad) {
    assert_true(result->token == 0 && num_bits(result->logprob) == 0);
    return;
  }
  f32 part[1024];
  for (u32 j = 0; j < 1024; j++) {
    part[j] = 0;
    for (u32 i = j; i < n; i += 1024) part[j] += num_exp(logit[i] - logit[best]);
  }
  f32 log_z = num_log(kernel_test_tree(part, 1024, 0, 1));
  for (u32 i = 0; i < n; i++) sum += exp((double)logit[i] - (double)logit[best]);
  u32 token = p->temperature > 0 ? draw_by_sorting(logit, n, logit[best], p) : best;
  assert_int_equal(result->token, token);
  assert_true(num_bits(result->logprob) == num_bits((logit[token] - logit[best]) - log_z));
  kernel_test_near((double)result->logprob, (double)logit[token] - (double)logit[best] - log(sum), 2e-6, 2e-6);
}

static void choose_param(cases *c, u32 row, u32 slot, u32 vocab, sample_param *p) {
  static const f32 temperatures[] = {0, 1, 0.7f, 0.05f, 3, 1e-30f};
  *p = (sample_param){.seed = (u64)cases_bits(c) << 32 | cases_bits(c), .top_p_fixed = 1ull << 32, .slot = slot};
  p->temperature = temperatures[row % 6];
  p->position = cases_below(c, 100000);
  p->sample_index = cases_below(c, 3);
  if (row / 6 % 4 & 1) p->top_k = 1 + cases_below(c, row % 2 ? 5 : vocab + 2);
  if (row / 6 % 4 & 2) p->top_p_fixed = row % 5 == 0 ? 1 : (u64)cases_bits(c) + 1;
}

static void sample_case(kernel_test *test, u32 rows, u32 vocab, u32 ties, f32 scale) {
  cases c = {.state = rows * 1000003u + vocab + ties};
  u32 slots = rows + 4;
  kernel_test_start(test);
  step_in *step = kernel_test_step(test, rows + 1, rows, 0);
  f32 *logits = kernel_test_input(test, (size_t)(rows + 2) * vocab * 4);
  sample_param *param = kernel_test_input(test, (rows + 2) * sizeof *param);
  i32 *sampled = kernel_test_output(test, slots * sizeof *sampled);
  sample_result *result = kernel_test_output(test, (rows + 2) * sizeof *result);
  kernel_test_keep(test, result + rows, 2 * sizeof *result);
  kernel_test_keep(test, sampled, 3 * sizeof *sampled);
  kernel_test_keep(test, sampled + rows + 3, sizeof *sampled);
  for (u32 i = 0; i < rows * vocab; i++) logits[i] = ties ? (f32)cases_below(&c, ties) - 0.5f * (f32)ties : cases_uniform(&c, scale);
  for (u32 r = 0; r < rows; r++) choose_param(&c, r, 3 + (r + 1) % rows, vocab, &param[r]);
  if (rows > 2) logits[vocab + cases_below(&c, vocab)] = rows % 2 ? NAN : -INFINITY;
  if (rows > 2) logits[2 * vocab] = -0.0f;
  sample_args args = {.step = step, .logits = logits, .param = param, .sampled = sampled, .result = result, .vocab = vocab};
  kernel_variant variants[] = {{.grid = {rows, 1, 1}, .threads = 1024}, {.grid = {rows + 2, 1, 1}, .threads = 1024}};
  kernel_test_run(test, &args, variants, 2);
  for (u32 r = 0; r < rows; r++) check_row(logits + (size_t)r * vocab, vocab, &param[r], &result[r], sampled);
}

static void sample_cases(kernel_test *test) {
  sample_case(test, 1, 8, 0, 1);
  sample_case(test, 96, 50, 0, 4);
  sample_case(test, 48, 1023, 3, 0);
  sample_case(test, 49, 1024, 0, 10);
  sample_case(test, 24, 1025, 2, 0);
  sample_case(test, 24, 4096, 40, 0);
  sample_case(test, 24, 6000, 0, 60);
  sample_case(test, 48, 5000, 0, 3); /* flat: a last place of the sum shows in the log-probability */
  sample_case(test, 6, 129280, 0, 12);
}

int main(int argc, char **argv) { return kernel_test_main(argc, argv, "sample", sample_cases); }

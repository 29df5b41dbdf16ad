/* test_sample.c - sample: greedy, drawing, min-p, top-k, top-p, adjusted rows, scored tokens, ranks, top tokens; ties, non-finite rows;
 * against sorting the whole vocabulary. Draws follow their distribution. */
#include "kernel_test.h"
#include <float.h>
#include <stdlib.h>

__extension__ typedef unsigned __int128 wide;

/* === By sorting ========================================================================================================= */

typedef struct candidate { f32 logit; u32 index; u64 weight; } candidate;

static int by_rank(const void *a, const void *b) { /* logit descending, index ascending */
  const candidate *x = a, *y = b;
  if (x->logit != y->logit) return x->logit > y->logit ? -1 : 1;
  return x->index < y->index ? -1 : 1;
}

static int by_index(const void *a, const void *b) {
  const candidate *x = a, *y = b;
  return x->index < y->index ? -1 : 1;
}

static candidate *sorted(const f32 *logit, u32 n) {
  candidate *list = malloc(n * sizeof *list);
  assert_non_null(list);
  for (u32 i = 0; i < n; i++) list[i] = (candidate){.logit = logit[i], .index = i};
  qsort(list, n, sizeof *list, by_rank);
  return list;
}

/* The token by NUMERICS.md, with everything sorted. */
static u32 choose_by_sorting(const f32 *logit, u32 n, const sample_param *p) {
  candidate *list = sorted(logit, n);
  u32 kept = 0, count = 0, token = list[0].index;
  u64 sum = 0, prefix = 0;
  f32 top = list[0].logit;
  for (u32 i = 0; i < n && p->temperature > 0; i++) {
    f32 below = list[i].logit - top;
    list[i].weight = (u64)(num_exp(below / p->temperature) * 0x1p40f);
    if (!(below >= p->min_p_bound)) continue;
    assert_int_equal(kept, i); /* the kept tokens are a prefix */
    kept++;
  }
  kept = p->top_k && p->top_k < kept ? p->top_k : kept;
  for (u32 i = 0; i < kept; i++) sum += list[i].weight;
  u64 limit = (u64)((wide)p->top_p_fixed * sum >> 32);
  while (kept && prefix < (limit > 1 ? limit : 1)) prefix += list[count++].weight;
  qsort(list, count, sizeof *list, by_index);
  u64 r = (u64)((wide)num_philox(p->seed, p->position, p->sample_index) * prefix >> 64), upto = 0;
  for (u32 i = 0; i < count && upto <= r; i++) {
    upto += list[i].weight;
    token = list[i].index;
  }
  free(list);
  return token;
}

static void check_top(const f32 *logit, u32 n, f32 log_z, const sample_param *p, const sample_result *result, const top_logprob *top) {
  candidate *list = sorted(logit, n);
  assert_int_equal(list[result->rank].index, result->token);
  for (u32 k = 0; k < p->top_count; k++) {
    assert_int_equal(top[k].token, k < n ? list[k].index : 0);
    assert_true(num_bits(top[k].logprob) == (k < n ? num_bits((list[k].logit - list[0].logit) - log_z) : 0));
    if (k == result->rank) assert_true(k >= n || num_bits(top[k].logprob) == num_bits(result->logprob));
  }
  free(list);
}

static void check_row(const sample_args *a, u32 row) {
  const f32 *logit = a->logits + (size_t)row * a->vocab, *from = a->adjusted + (size_t)row * a->vocab;
  const sample_param *p = &a->param[row];
  const sample_result *result = &a->result[row];
  const top_logprob *top = a->top + row * TOP_LOGPROBS_MAX;
  u32 n = a->vocab, bad = 0, best = 0;
  double sum = 0;
  for (u32 i = 0; i < n; i++) {
    bad = isfinite(logit[i]) ? bad : 1;
    best = logit[i] > logit[best] ? i : best;
  }
  assert_int_equal(result->nonfinite, bad);
  if (p->target < 0) assert_int_equal(a->sampled[p->slot], result->token);
  if (bad) {
    assert_true(result->token == 0 && num_bits(result->logprob) == 0 && result->rank == 0 && num_bits(result->logit) == 0);
    for (u32 k = 0; k < p->top_count; k++) assert_true(top[k].token == 0 && num_bits(top[k].logprob) == 0);
    return;
  }
  f32 part[1024];
  for (u32 j = 0; j < 1024; j++) {
    part[j] = 0;
    for (u32 i = j; i < n; i += 1024) part[j] += num_exp(logit[i] - logit[best]);
  }
  f32 log_z = num_log(kernel_test_tree(part, 1024, 0, 1));
  for (u32 i = 0; i < n; i++) sum += exp((double)logit[i] - (double)logit[best]);
  u32 token = p->target >= 0 ? (u32)p->target : choose_by_sorting(p->adjusted ? from : logit, n, p);
  assert_int_equal(result->token, token);
  assert_false(p->target < 0 && p->adjusted && from[token] == -INFINITY);
  assert_true(num_bits(result->logprob) == num_bits((logit[token] - logit[best]) - log_z));
  assert_true(num_bits(result->logit) == num_bits(logit[token]));
  kernel_test_near((double)result->logprob, (double)logit[token] - (double)logit[best] - log(sum), 2e-6, 2e-6);
  check_top(logit, n, log_z, p, result, top);
}

/* === Cases ============================================================================================================== */

/* Rows as `adjust` may produce them: shifted, mostly banned, all equal, at the limits of fp32. */
static void choose_adjusted(cases *c, u32 kind, const f32 *logits, f32 *adjusted, u32 vocab) {
  for (u32 i = 0; i < vocab; i++) {
    adjusted[i] = cases_below(c, 4) ? logits[i] : logits[i] + cases_uniform(c, 6);
    if (kind == 1 || !isfinite(adjusted[i])) adjusted[i] = -INFINITY;
    if (kind == 2) adjusted[i] = 1.5f;
    if (kind == 3) adjusted[i] = cases_below(c, 9) ? cases_below(c, 2) ? FLT_MAX : -FLT_MAX : cases_below(c, 2) ? 0.0f : -0.0f;
    if (kind == 4 && cases_below(c, 2)) adjusted[i] = -INFINITY;
  }
  for (u32 i = 0; i < 1 + cases_below(c, 5) && (kind == 1 || kind == 4); i++) {
    u32 at = cases_below(c, vocab);
    adjusted[at] = isfinite(logits[at]) ? logits[at] : 0;
  }
}

static void choose_param(cases *c, u32 row, u32 vocab, const f32 *logits, sample_param *p) {
  static const f32 temperatures[] = {0, 1, 0.7f, 0.05f, 3, 1e-30f, 100};
  static const u32 top_counts[] = {0, 1, 5, 0, TOP_LOGPROBS_MAX};
  f32 top = logits[0], other = -INFINITY; /* one of the larger ones */
  for (u32 i = 1; i < vocab; i++) top = logits[i] > top ? logits[i] : top;
  for (u32 i = 0, at; i < 2; i++) other = logits[at = cases_below(c, vocab)] > other ? logits[at] : other;
  p->seed = (u64)cases_bits(c) << 32 | cases_bits(c);
  p->temperature = temperatures[cases_below(c, 7)];
  p->position = cases_below(c, 100000);
  p->sample_index = cases_below(c, 3);
  p->top_p_fixed = 1ull << 32;
  p->top_k = 0;
  p->min_p_bound = -INFINITY;
  if (cases_below(c, 2)) p->top_k = 1 + cases_below(c, row % 2 ? 5 : vocab + 2);
  if (cases_below(c, 2)) p->top_p_fixed = row % 5 == 0 ? 1 : (u64)cases_bits(c) + 1;
  if (cases_below(c, 2)) p->min_p_bound = other - top; /* met exactly */
  if (cases_below(c, 6) == 0) p->min_p_bound = -2.5f * p->temperature * (f32)cases_below(c, 3);
  if (!(p->min_p_bound <= 0)) p->min_p_bound = 0;
  p->target = row % 6 == 5 ? (i32)cases_below(c, vocab) : -1;
  p->top_count = top_counts[row % 5];
}

static void fill_rows(kernel_test *test, cases *c, sample_args *a, u32 rows, u32 ties, f32 scale) {
  f32 *logits = kernel_test_input(test, (size_t)(rows + 2) * a->vocab * 4);
  f32 *adjusted = kernel_test_input(test, (size_t)(rows + 2) * a->vocab * 4);
  sample_param *param = kernel_test_input(test, (rows + 2) * sizeof *param);
  u32 vocab = a->vocab;
  for (u32 i = 0; i < rows * vocab; i++) logits[i] = ties ? (f32)cases_below(c, ties) - 0.5f * (f32)ties : cases_uniform(c, scale);
  if (rows > 2) logits[vocab + cases_below(c, vocab)] = rows % 2 ? NAN : -INFINITY;
  if (rows > 2) logits[2 * vocab] = -0.0f;
  if (rows > 5) logits[5 * vocab + cases_below(c, vocab)] = INFINITY; /* a scored row */
  for (u32 r = 0; r < rows; r++) {
    f32 *from = logits + (size_t)r * vocab;
    param[r].slot = 3 + (r + 1) % rows;
    param[r].adjusted = r % 4 == 2 || r % 8 == 4;
    if (param[r].adjusted) choose_adjusted(c, r / 4 % 5, from, adjusted + (size_t)r * vocab, vocab);
    choose_param(c, r, vocab, param[r].adjusted ? adjusted + (size_t)r * vocab : from, &param[r]);
  }
  a->logits = logits;
  a->adjusted = adjusted;
  a->param = param;
}

static void sample_case(kernel_test *test, u32 rows, u32 vocab, u32 ties, f32 scale) {
  cases c = {.state = rows * 1000003u + vocab + ties};
  u32 slots = rows + 4;
  kernel_test_start(test);
  sample_args a = {.step = kernel_test_step(test, rows + 1, rows, 0), .vocab = vocab};
  fill_rows(test, &c, &a, rows, ties, scale);
  a.sampled = kernel_test_output(test, slots * sizeof *a.sampled);
  a.result = kernel_test_output(test, (rows + 2) * sizeof *a.result);
  a.top = kernel_test_output(test, (rows + 2) * TOP_LOGPROBS_MAX * sizeof *a.top);
  kernel_test_keep(test, a.result + rows, 2 * sizeof *a.result);
  kernel_test_keep(test, a.top + rows * TOP_LOGPROBS_MAX, 2 * TOP_LOGPROBS_MAX * sizeof *a.top);
  kernel_test_keep(test, a.sampled, 3 * sizeof *a.sampled);
  kernel_test_keep(test, a.sampled + rows + 3, sizeof *a.sampled);
  for (u32 r = 0; r < rows; r++) {
    u32 written = a.param[r].top_count;
    kernel_test_keep(test, a.top + r * TOP_LOGPROBS_MAX + written, (TOP_LOGPROBS_MAX - written) * sizeof *a.top);
    if (a.param[r].target >= 0) kernel_test_keep(test, a.sampled + a.param[r].slot, sizeof *a.sampled);
  }
  const u32 shared = SAMPLE_PART_BYTES(vocab);
  kernel_variant variants[] = {{.grid = {rows, ROW_BLOCKS, 1}, .threads = 512, .shared_bytes = shared},
                               {.grid = {rows + 2, ROW_BLOCKS, 1}, .threads = 512, .shared_bytes = shared}};
  u32 variant_count = vocab == 4096 || vocab == 6000 ? 0 : vocab < 10 ? 2 : 1; /* many fibers are slow: not between edges */
  if (kernel_test_on_gpu(test)) variant_count = 2;
  kernel_test_run(test, &a, variants, variant_count);
  for (u32 r = 0; r < kernel_test_checks(test, rows); r++) check_row(&a, r);
}

/* === The distribution of draws ========================================================================================== */

#define DRAWS 20000u
#define KINDS 12u

static double chi_square(const u32 *found, const double *share, u32 *freedom) {
  double sum = 0, result = 0;
  *freedom = 0;
  for (u32 i = 0; i < KINDS; i++) sum += share[i];
  for (u32 i = 0; i < KINDS; i++) {
    double want = DRAWS * share[i] / sum;
    if (share[i] > 0) result += (found[i] - want) * (found[i] - want) / want;
    assert_true(share[i] > 0 || found[i] == 0);
    *freedom += share[i] > 0;
  }
  --*freedom;
  return result;
}

/* Many draws of one row by the reference, whose bits are the kernel's, against the probabilities in binary64. A chi-square of f degrees of
 * freedom exceeds f + 4.3 * sqrt(2 f) + 12 once in 10^5; these draws are the same in every run. */
static void check_distribution(f32 temperature, f32 min_p, u32 top_k, u32 adjusted) {
  static f32 logits[DRAWS][KINDS], moved[DRAWS][KINDS];
  static sample_param param[DRAWS];
  static sample_result result[DRAWS];
  static i32 sampled[DRAWS];
  const step_in step = {.logit_count = DRAWS};
  u32 found[KINDS] = {0}, freedom, staying = 0;
  double share[KINDS], all[KINDS], bound = (double)temperature * log((double)min_p);
  for (u32 r = 0; r < DRAWS; r++) {
    for (u32 i = 0; i < KINDS; i++) logits[r][i] = 0.37f * (f32)(i * 7 % KINDS);
    for (u32 i = 0; i < KINDS; i++) moved[r][i] = i == 5 ? -INFINITY : logits[r][i] + (f32)(i % 3);
    param[r] = (sample_param){.seed = 7, .position = r, .top_p_fixed = 1ull << 32, .temperature = temperature, .slot = r, .top_k = top_k};
    param[r].min_p_bound = (f32)bound;
    param[r].target = -1;
    param[r].adjusted = adjusted;
  }
  sample_args args = {.step = &step, .logits = logits[0], .adjusted = moved[0], .param = param, .sampled = sampled, .result = result,
                      .top = (top_logprob[1]){{0}}, .vocab = KINDS};
  cpu_pool *pool;
  assert_int_equal(cpu_pool_open(&pool, 1), OK);
  cpu_sample(&args, pool);
  cpu_pool_close(pool);
  for (u32 r = 0; r < DRAWS; r++) found[result[r].token]++;
  candidate *list = sorted(adjusted ? moved[0] : logits[0], KINDS);
  for (u32 i = 0; i < KINDS; i++) {
    double below = (double)list[i].logit - (double)list[0].logit, weight = exp(below / (double)temperature);
    bool stays = below >= bound - 1e-6 && !(top_k && i >= top_k);
    share[list[i].index] = stays ? weight : 0;
    all[list[i].index] = weight + 1e-12;
    staying += stays;
  }
  free(list);
  double distance = chi_square(found, share, &freedom);
  assert_int_equal(freedom, staying - 1);
  assert_true(distance < freedom + 4.3 * sqrt(2.0 * freedom) + 12);
  if (staying < KINDS && !adjusted) assert_true(chi_square(found, all, &freedom) > 200); /* the limit matters */
}

static void sample_cases(kernel_test *test) {
  sample_case(test, 1, 8, 0, 1);
  sample_case(test, 60, 16, 0, 3);
  sample_case(test, 60, 50, 0, 4);
  sample_case(test, 24, 992, 4, 0);
  sample_case(test, 48, 1023, 3, 0);
  sample_case(test, 49, 1024, 0, 10);
  sample_case(test, 24, 1024, 1, 0);
  sample_case(test, 24, 1025, 2, 0);
  sample_case(test, 24, 4096, 40, 0);
  sample_case(test, 24, 6000, 0, 60);
  sample_case(test, 30, 5000, 0, 3); /* flat: a last place of the sum shows in the log-probability */
  sample_case(test, 24, 8200, 0, 9);
  sample_case(test, 4, 129280, 0, 12);
  sample_case(test, 3, 163840, 30, 0);
  sample_case(test, 2, 262144, 0, 20);
  check_distribution(1, 1e-30f, 0, 0);
  check_distribution(1, 0.1f, 0, 0);
  check_distribution(0.6f, 0.02f, 0, 0);
  check_distribution(1, 0.1f, 0, 1);
  check_distribution(2, 0.05f, 5, 0);
  check_distribution(2, 0.3f, 9, 1);
}

int main(int argc, char **argv) {
  return kernel_test_main(argc, argv, "sample", "d802d1cd4c7ff33d9a6d4fb58641b0ef", sample_cases);
}

/* bench_fill.c - random numbers where a model and its past would be.
 *
 * Power and routing depend on them: none is zero, no two rows are equal. Matrices are normal with deviation 0.02, so that a product of some
 * thousand columns of a normed row is about 1; norm weights are about 1, biases about 0; KV rows are as a normed latent.
 * A pattern is written over and over: its length has no factor in common with a row's but 8, so that no two rows of a matrix are equal. */
#include "bench_state.h"
#include "kernels_src/num.h"
#include <stdlib.h>

#define PATTERN_NUMBERS 2097112u /* 8 times a prime, and just below EXEC_BENCH_PATTERN_BYTES of bf16 */

_Static_assert(PATTERN_NUMBERS * sizeof(bf16) <= EXEC_BENCH_PATTERN_BYTES, "a pattern of bf16");

/* Nearly normal, deviation 1: the sum of eight 16-bit numbers. */
static float draw_normal(bench *self) {
  uint64_t a = random_next(&self->random), b = random_next(&self->random);
  int64_t sum = 0;
  for (int shift = 0; shift < 64; shift += 16) sum += (int64_t)(a >> shift & 0xffff) + (int64_t)(b >> shift & 0xffff);
  return (float)(sum - 8 * 32768 + 4) * (1.2247449f / 65536.0f); /* a sum of eight uniforms has deviation sqrt(8 / 12) */
}

static void make_pattern(bench *self, bf16 *pattern, uint64_t count, float mean, float deviation) {
  for (uint64_t i = 0; i < count; i++) {
    float value = mean + deviation * draw_normal(self);
    pattern[i] = num_to_bf16(value == 0 ? deviation : value);
  }
}

/* One-dimensional tensors: norm weights, and biases in fp32. */
static void fill_vectors(bench *self, bf16 *norms, float *biases) {
  for (uint32_t i = 0; i < self->plan->tensor_count; i++) {
    const plan_tensor *t = &self->plan->tensors[i];
    uint64_t bytes = plan_tensor_bytes(t);
    if (t->dtype == DTYPE_F32) exec_bench_fill(&self->timer, REGION_WEIGHTS, t->offset, bytes, biases, EXPERTS_MAX * sizeof *biases);
    else if (t->rows == 1) exec_bench_fill(&self->timer, REGION_WEIGHTS, t->offset, bytes, norms, HIDDEN_MAX * sizeof *norms);
  }
}

status bench_fill_weights(bench *self) {
  bf16 *pattern = malloc(PATTERN_NUMBERS * sizeof *pattern);
  float biases[EXPERTS_MAX];
  if (!pattern) return FAIL(ERR_LIMIT, "no memory for random weights");
  make_pattern(self, pattern, PATTERN_NUMBERS, 0, 0.02f);
  exec_bench_fill(&self->timer, REGION_WEIGHTS, 0, self->plan->regions[REGION_WEIGHTS].bytes, pattern, PATTERN_NUMBERS * sizeof *pattern);
  make_pattern(self, pattern, HIDDEN_MAX, 1, 0.05f);
  for (uint32_t i = 0; i < EXPERTS_MAX; i++) biases[i] = 0.001f * draw_normal(self);
  fill_vectors(self, pattern, biases);
  free(pattern);
  return OK;
}

status bench_fill_kv(bench *self) {
  bf16 *pattern = malloc(PATTERN_NUMBERS * sizeof *pattern);
  if (!pattern) return FAIL(ERR_LIMIT, "no memory for random KV rows");
  make_pattern(self, pattern, PATTERN_NUMBERS, 0, 1);
  exec_bench_fill(&self->timer, REGION_KV, 0, self->plan->header->io.history, pattern, PATTERN_NUMBERS * sizeof *pattern);
  free(pattern);
  return OK;
}

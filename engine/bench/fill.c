/* bench/fill.c - random numbers in place of a model's weights and of KV rows.
 *
 * Power and routing depend on the numbers: none is zero, and no two rows are equal. Matrices are normal with deviation 0.02, so that a
 * product over some thousand columns of a normalised row is about 1; norm weights are about 1, biases about 0; KV rows look like a
 * normalised latent. e4m3 numbers have deviation 64, a third of the largest, with scales that give the same values. One pattern is
 * repeated: its length and a row's length have only the factor 8 in common, so that no two rows of a matrix are equal. */
#include "bench/state.h"
#include "kernels_src/num.h"
#include <stdlib.h>
#include <string.h>

#define PATTERN_NUMBERS 2097112u /* 8 times a prime, and just below EXEC_BENCH_PATTERN_BYTES of bf16 */

#define WEIGHT_DEVIATION 0.02f
#define CODE_DEVIATION 64.0f

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

static void make_codes(bench *self, uint8_t *codes, uint64_t count) {
  for (uint64_t i = 0; i < count; i++) codes[i] = num_to_e4m3(CODE_DEVIATION * draw_normal(self));
}

static void fill(bench *self, const plan_tensor *t, const void *pattern, uint64_t pattern_bytes) {
  exec_bench_fill(&self->timer, REGION_WEIGHTS, t->offset, plan_tensor_bytes(t), pattern, pattern_bytes);
}

static bool ends_with(const char *text, const char *end) {
  size_t bytes = strlen(text), end_bytes = strlen(end);
  return bytes >= end_bytes && strcmp(text + bytes - end_bytes, end) == 0;
}

typedef struct patterns { /* of weights */
  bf16 *numbers;                                  /* [PATTERN_NUMBERS] */
  bf16 norms[HIDDEN_MAX];
  float biases[EXPERTS_MAX];
  float scales[EXPERTS_MAX], row_scales[1];       /* of e4m3 weights; of e4m3 KV rows */
} patterns;

/* Fills the rest: one-dimensional tensors, which are norm weights or biases in fp32; scales; bf16 tensors of an e4m3 model. */
static void fill_tensor(bench *self, const plan_tensor *t, const patterns *p) {
  const char *name = plan_string(self->plan, t->name);
  const bool is_bf16 = t->dtype == DTYPE_BF16, is_e4m3 = self->plan->header->quant.weight_format == WEIGHTS_E4M3;
  if (t->dtype == DTYPE_F32 && ends_with(name, "scale_inv")) fill(self, t, p->scales, sizeof p->scales);
  else if (t->dtype == DTYPE_F32 && ends_with(name, PLAN_KV_SCALE)) fill(self, t, p->row_scales, sizeof p->row_scales);
  else if (t->dtype == DTYPE_F32) fill(self, t, p->biases, sizeof p->biases);
  else if (t->rows == 1) fill(self, t, p->norms, sizeof p->norms);
  else if (is_bf16 && is_e4m3) fill(self, t, p->numbers, PATTERN_NUMBERS * sizeof *p->numbers);
}

/* Fills the whole region with the most frequent kind, then each tensor of another kind. */
static void fill_weights(bench *self, patterns *p, uint8_t *codes) {
  const bool is_e4m3 = self->plan->header->quant.weight_format == WEIGHTS_E4M3;
  const uint64_t bytes = self->plan->regions[REGION_WEIGHTS].bytes;
  make_pattern(self, p->numbers, PATTERN_NUMBERS, 0, WEIGHT_DEVIATION);
  make_pattern(self, p->norms, HIDDEN_MAX, 1, 0.05f);
  for (uint32_t i = 0; i < EXPERTS_MAX; i++) p->biases[i] = 0.001f * draw_normal(self);
  for (uint32_t i = 0; i < EXPERTS_MAX; i++) p->scales[i] = WEIGHT_DEVIATION / CODE_DEVIATION;
  p->row_scales[0] = 1 / CODE_DEVIATION;
  if (is_e4m3) make_codes(self, codes, PATTERN_NUMBERS);
  if (is_e4m3) exec_bench_fill(&self->timer, REGION_WEIGHTS, 0, bytes, codes, PATTERN_NUMBERS);
  else exec_bench_fill(&self->timer, REGION_WEIGHTS, 0, bytes, p->numbers, PATTERN_NUMBERS * sizeof *p->numbers);
  for (uint32_t i = 0; i < self->plan->tensor_count; i++) fill_tensor(self, &self->plan->tensors[i], p);
}

status bench_fill_weights(bench *self) {
  patterns *p = calloc(1, sizeof *p);
  bf16 *numbers = malloc(PATTERN_NUMBERS * sizeof *numbers);
  uint8_t *codes = malloc(PATTERN_NUMBERS);
  const bool has_memory = p && numbers && codes;
  if (has_memory) {
    p->numbers = numbers;
    fill_weights(self, p, codes);
  }
  free(codes);
  free(numbers);
  free(p);
  return has_memory ? OK : FAIL(ERR_LIMIT, "no memory for random weights");
}

/* `scaled` e4m3 numbers, their scales, and bf16 numbers to the end: a KV row, or a page of an indexer. */
static void make_item(bench *self, uint8_t *item, uint64_t scaled, uint64_t scales, uint64_t item_bytes) {
  const float scale = 1.0f / CODE_DEVIATION;
  make_codes(self, item, scaled);
  for (uint64_t i = 0; i < scales; i++) memcpy(item + scaled + i * sizeof scale, &scale, sizeof scale);
  for (uint64_t at = scaled + scales * sizeof scale; at < item_bytes; at += sizeof(bf16)) {
    bf16 number = num_to_bf16(draw_normal(self));
    memcpy(item + at, &number, sizeof number);
  }
}

/* Repeats a pattern in which all items differ. */
static void fill_items(bench *self, const plan_buffer *b, uint8_t *pattern, uint64_t scaled, uint64_t scales, uint64_t item_bytes) {
  uint64_t count = PATTERN_NUMBERS * sizeof(bf16) / item_bytes;
  count -= count % 2 == 0; /* odd, so that the pattern starts at every position of a page */
  for (uint64_t i = 0; i < count; i++) make_item(self, pattern + i * item_bytes, scaled, scales, item_bytes);
  exec_bench_fill(&self->timer, REGION_KV, b->offset, b->bytes, pattern, count * item_bytes);
}

/* Besides rows and history, the region has pages of indexers. */
static void fill_buffer(bench *self, const plan_buffer *b, bf16 *pattern) {
  const plan_header *h = self->plan->header;
  const uint64_t row_bytes = plan_kv_row_bytes(&h->model, &h->quant, &h->grouped, &h->limits);
  if (b->offset == h->io.history) return;
  if (strcmp(plan_string(self->plan, b->name), "kv") != 0) {
    fill_items(self, b, (uint8_t *)pattern, PAGE_TOKENS * INDEX_DIM, PAGE_TOKENS, INDEX_PAGE_BYTES);
  } else if (h->quant.kv_format == KV_FP8) {
    fill_items(self, b, (uint8_t *)pattern, row_bytes, 0, row_bytes);
  } else if (h->quant.kv_format == KV_FP8_DS_MLA) {
    fill_items(self, b, (uint8_t *)pattern, h->model.kv_lora_rank, h->model.kv_lora_rank / SCALE_COLUMNS, row_bytes);
  } else {
    make_pattern(self, pattern, PATTERN_NUMBERS, 0, 1);
    exec_bench_fill(&self->timer, REGION_KV, b->offset, b->bytes, pattern, PATTERN_NUMBERS * sizeof *pattern);
  }
}

status bench_fill_kv(bench *self) {
  bf16 *pattern = malloc(PATTERN_NUMBERS * sizeof *pattern);
  if (!pattern) return FAIL(ERR_LIMIT, "no memory for random KV rows");
  for (uint32_t i = 0; i < self->plan->buffer_count; i++)
    if (self->plan->buffers[i].region == REGION_KV) fill_buffer(self, &self->plan->buffers[i], pattern);
  free(pattern);
  return OK;
}

/* test_fp8_moe_gemm.c - fp8_moe_gemm: experts with none, one and many rows, gathered and plain rows, with their scales; against the
 * definition and binary64. */
#include "kernel_test.h"
#include "fp8_cases.h"

typedef struct moe_shape { u32 tokens, top_k, experts, n, k, gathered, skew, is_silu; } moe_shape;

/* Distributes the sorted rows over the experts; with skew most go to one. */
static void deal(cases *c, const moe_shape *s, u32 *first) {
  u32 pairs = s->tokens * s->top_k;
  memset(first, 0, (s->experts + 1) * sizeof *first);
  for (u32 p = 0; p < pairs; p++) first[1 + (s->skew && cases_below(c, 4) ? s->experts / 2 : cases_below(c, s->experts))]++;
  for (u32 e = 0; e < s->experts; e++) first[e + 1] += first[e];
}

static void check_result(const moe_shape *s, cases *c, const fp8_moe_gemm_args *a) {
  u32 columns = s->is_silu ? s->n / 2 : s->n, blocks = s->k / 128, scale_rows = (s->n + 127) / 128;
  u32 row = cases_below(c, s->tokens * s->top_k), j = cases_below(c, columns), expert = 0;
  while (row >= a->expert_first[expert + 1]) expert++;
  size_t from = s->gathered ? a->row_token[row] : row, at = (size_t)row * columns + j, up = columns + j;
  const u8 *x = a->x + from * s->k, *w = a->w + (size_t)expert * s->n * s->k;
  const f32 *x_scale = a->x_scale + from * blocks, *w_scale = a->w_scale + (size_t)expert * scale_rows * blocks;
  f32 want = fp8_cases_sum(x, x_scale, w + j * (size_t)s->k, w_scale + j / 128 * blocks, s->k);
  if (!s->is_silu) {
    assert_true(num_bits(((const f32 *)a->y)[at]) == num_bits(want));
    return;
  }
  want = num_mul(num_silu(want), fp8_cases_sum(x, x_scale, w + up * s->k, w_scale + up / 128 * blocks, s->k));
  assert_int_equal(((const bf16 *)a->y)[at], num_to_bf16(want));
}

static void moe_case(kernel_test *test, const moe_shape *s) {
  cases c = {.state = s->tokens * 1000003u + s->n * 1009 + s->k + s->experts};
  u32 pairs = s->tokens * s->top_k, rows = s->gathered ? s->tokens : pairs, columns = s->is_silu ? s->n / 2 : s->n, blocks = s->k / 128;
  u32 scale_rows = (s->n + 127) / 128;
  size_t item = s->is_silu ? 2 : 4;
  kernel_test_start(test);
  step_in *step = kernel_test_step(test, s->tokens, 0, 0);
  u32 *first = kernel_test_input(test, (s->experts + 1) * 4), *row_token = kernel_test_input(test, (pairs + 4) * 4);
  u8 *x = kernel_test_input(test, (size_t)(rows + 4) * s->k), *w = kernel_test_input(test, (size_t)s->experts * s->n * s->k);
  f32 *x_scale = kernel_test_input(test, (rows + 4) * blocks * (size_t)4);
  f32 *w_scale = kernel_test_input(test, s->experts * scale_rows * blocks * (size_t)4);
  u8 *y = kernel_test_output(test, (size_t)(pairs + 4) * columns * item);
  kernel_test_keep(test, y + (size_t)pairs * columns * item, (size_t)4 * columns * item);
  deal(&c, s, first);
  for (u32 p = 0; p < pairs; p++) row_token[p] = cases_below(&c, s->tokens);
  for (u32 i = 0; i < rows; i++) fp8_cases_codes(&c, FP8_PLAIN, 0, x + (size_t)i * s->k, s->k);
  for (u32 i = 0; i < s->experts * s->n; i++) fp8_cases_codes(&c, FP8_PLAIN, 1, w + (size_t)i * s->k, s->k);
  fp8_cases_scales(&c, x_scale, rows * blocks);
  fp8_cases_scales(&c, w_scale, s->experts * scale_rows * blocks);
  fp8_moe_gemm_args args = {.step = step, .expert_first = first, .row_token = s->gathered ? row_token : NULL, .x = x, .x_scale = x_scale,
                            .w = w, .w_scale = w_scale, .y = y, .n = s->n, .k = s->k, .experts = s->experts, .top_k = s->top_k,
                            .y_kind = s->is_silu ? Y_SILU : Y_F32};
  kernel_variant variants[16];
  u32 small = fp8_cases_small(variants, s->tokens, s->experts);
  kernel_test_run(test, &args, variants, small + (s->gathered ? 0 : fp8_cases_large(variants + small, s->tokens, s->experts)));
  for (u32 check = 0; check < kernel_test_checks(test, 300); check++) check_result(s, &c, &args);
}

static void moe_cases(kernel_test *test) {
  static const moe_shape shapes[] = {
      {.tokens = 1, .top_k = 1, .experts = 1, .n = 8, .k = 128, .gathered = 1},
      {.tokens = 1, .top_k = 8, .experts = 64, .n = 64, .k = 256, .gathered = 1},
      {.tokens = 5, .top_k = 2, .experts = 4, .n = 72, .k = 128},
      {.tokens = 17, .top_k = 4, .experts = 8, .n = 136, .k = 384, .gathered = 1, .skew = 1},
      {.tokens = 64, .top_k = 2, .experts = 3, .n = 264, .k = 128, .gathered = 1, .skew = 1},
      {.tokens = 33, .top_k = 8, .experts = 256, .n = 16, .k = 128, .gathered = 1},
      {.tokens = 1, .top_k = 6, .experts = 40, .n = 256, .k = 256, .gathered = 1, .is_silu = 1},
      {.tokens = 1, .top_k = 6, .experts = 16, .n = 256, .k = 384, .is_silu = 1},
      {.tokens = 19, .top_k = 3, .experts = 7, .n = 512, .k = 128, .gathered = 1, .skew = 1, .is_silu = 1},
      {.tokens = 50, .top_k = 6, .experts = 16, .n = 96, .k = 256, .skew = 1},
      {.tokens = 100, .top_k = 2, .experts = 6, .n = 256, .k = 128, .is_silu = 1},
      {.tokens = 200, .top_k = 1, .experts = 2, .n = 200, .k = 256},
      {.tokens = 300, .top_k = 2, .experts = 3, .n = 264, .k = 384, .skew = 1},
      {.tokens = 160, .top_k = 2, .experts = 3, .n = 512, .k = 640, .skew = 1, .is_silu = 1},
      {.tokens = 64, .top_k = 4, .experts = 9, .n = 136, .k = 128},
  };
  for (u32 i = 0; i < ARRAY_LEN(shapes); i++) moe_case(test, &shapes[i]);
}

int main(int argc, char **argv) {
  return kernel_test_main(argc, argv, "fp8_moe_gemm", "0b09e9dccc8b575f50a335fef7b8563c", moe_cases);
}

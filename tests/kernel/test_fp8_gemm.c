/* test_fp8_gemm.c - fp8_gemm: every edge of the kernel's tiles and of the blocks of scales, all kinds of results, and the corner cases of
 * the tensor-core rule; against the definition of the chain and against binary64. */
#include "kernel_test.h"
#include "fp8_cases.h"

typedef struct fp8_shape { u32 rows, n, k, y_kind, kind, y_gap, logits; } fp8_shape;

static u32 columns_of(const fp8_shape *s) { return s->y_kind == Y_SILU ? s->n / 2 : s->n; }

static void check_result(const fp8_shape *s, cases *c, const fp8_gemm_args *a) {
  u32 i = cases_below(c, s->rows), j = cases_below(c, columns_of(s)), blocks = s->k / 128;
  const u8 *row = a->x + (size_t)i * s->k;
  const f32 *x_scale = a->x_scale + (size_t)i * blocks;
  size_t at = (size_t)i * a->ldy + j, up = columns_of(s) + j;
  f32 want = fp8_cases_sum(row, x_scale, a->w + j * (size_t)s->k, a->w_scale + j / 128 * blocks, s->k);
  if (s->y_kind == Y_SILU)
    want = num_mul(num_silu(want), fp8_cases_sum(row, x_scale, a->w + up * s->k, a->w_scale + up / 128 * blocks, s->k));
  if (s->y_kind == Y_F32)
    assert_true(num_bits(((const f32 *)a->y)[at]) == num_bits(want));
  else
    assert_int_equal(((const bf16 *)a->y)[at], num_to_bf16(want));
}

static void fp8_case(kernel_test *test, const fp8_shape *s) {
  cases c = {.state = s->rows * 1000003u + s->n * 1009 + s->k + s->kind};
  u32 padded = s->rows + 3, ldy = columns_of(s) + s->y_gap, blocks = s->k / 128, item = s->y_kind == Y_F32 ? 4 : 2;
  kernel_test_start(test);
  step_in *step = kernel_test_step(test, s->logits ? 1 : s->rows, s->logits ? s->rows : 0, 0);
  u8 *x = kernel_test_input(test, (size_t)padded * s->k), *w = kernel_test_input(test, (size_t)s->n * s->k);
  f32 *x_scale = kernel_test_input(test, (size_t)padded * blocks * 4);
  f32 *w_scale = kernel_test_input(test, (s->n + 127) / 128 * blocks * (size_t)4);
  u8 *y = kernel_test_output(test, (size_t)padded * ldy * item);
  for (u32 i = 0; i < padded; i++) {
    bool live = i < s->rows;
    kernel_test_keep(test, y + ((size_t)i * ldy + (live ? columns_of(s) : 0)) * item, (live ? s->y_gap : ldy) * item);
  }
  for (u32 i = 0; i < s->rows; i++) fp8_cases_codes(&c, s->kind, 0, x + (size_t)i * s->k, s->k);
  for (u32 i = 0; i < s->n; i++) fp8_cases_codes(&c, s->kind, 1, w + (size_t)i * s->k, s->k);
  fp8_cases_scales(&c, x_scale, s->rows * blocks);
  fp8_cases_scales(&c, w_scale, (s->n + 127) / 128 * blocks);
  fp8_gemm_args args = {.step = step, .x = x, .x_scale = x_scale, .w = w, .w_scale = w_scale, .y = y, .ldy = ldy, .n = s->n, .k = s->k,
                        .rows_kind = s->logits ? ROWS_LOGITS : ROWS_TOKENS, .y_kind = s->y_kind, .order = s->n / 8 % (ORDER_BESIDE + 1)};
  kernel_variant variants[16];
  if (s->kind == FP8_NAN) kernel_test_loose(test, y, s->y_kind == Y_F32 ? (size_t)padded * ldy * 4 : 0);

  u32 small = fp8_cases_small(variants, s->rows, 0);
  kernel_test_run(test, &args, variants, small + fp8_cases_large(variants + small, s->rows, 0));
  for (u32 check = 0; check < kernel_test_checks(test, 300); check++) check_result(s, &c, &args);
}

static void fp8_gemm_cases(kernel_test *test) {
  static const fp8_shape shapes[] = {
      {.rows = 1, .n = 8, .k = 128, .y_kind = Y_F32, .kind = FP8_PLAIN},
      {.rows = 1, .n = 64, .k = 256, .y_kind = Y_BF16, .kind = FP8_PLAIN},
      {.rows = 15, .n = 56, .k = 384, .y_kind = Y_F32, .kind = FP8_PLAIN, .y_gap = 8},
      {.rows = 16, .n = 576, .k = 512, .y_kind = Y_BF16, .kind = FP8_ANY},
      {.rows = 17, .n = 136, .k = 640, .y_kind = Y_F32, .kind = FP8_ANY, .y_gap = 8},
      {.rows = 8, .n = 128, .k = 2048, .y_kind = Y_F32, .kind = FP8_CANCELLING},
      {.rows = 31, .n = 264, .k = 256, .y_kind = Y_BF16, .kind = FP8_CANCELLING, .y_gap = 8, .logits = 1},
      {.rows = 32, .n = 200, .k = 128, .y_kind = Y_F32, .kind = FP8_ZEROS, .logits = 1},
      {.rows = 33, .n = 448, .k = 384, .y_kind = Y_F32, .kind = FP8_PLAIN},
      {.rows = 2, .n = 256, .k = 896, .y_kind = Y_SILU, .kind = FP8_PLAIN, .y_gap = 8},
      {.rows = 1, .n = 256, .k = 128, .y_kind = Y_SILU, .kind = FP8_PLAIN},
      {.rows = 19, .n = 512, .k = 384, .y_kind = Y_SILU, .kind = FP8_ANY, .y_gap = 8},
      {.rows = 40, .n = 256, .k = 256, .y_kind = Y_SILU, .kind = FP8_PLAIN, .logits = 1},
      {.rows = 3, .n = 72, .k = 7168, .y_kind = Y_F32, .kind = FP8_PLAIN},
      {.rows = 9, .n = 96, .k = 256, .y_kind = Y_F32, .kind = FP8_NAN},
      {.rows = 65, .n = 136, .k = 384, .y_kind = Y_BF16, .kind = FP8_PLAIN, .y_gap = 8},
      {.rows = 130, .n = 264, .k = 256, .y_kind = Y_F32, .kind = FP8_LONGEST},
      {.rows = 129, .n = 512, .k = 128, .y_kind = Y_SILU, .kind = FP8_ANY},
      {.rows = 300, .n = 264, .k = 384, .y_kind = Y_BF16, .kind = FP8_PLAIN, .logits = 1},
      {.rows = 257, .n = 512, .k = 256, .y_kind = Y_SILU, .kind = FP8_PLAIN, .y_gap = 8},
      {.rows = 64, .n = 2112, .k = 128, .y_kind = Y_F32, .kind = FP8_ANY},
      {.rows = 192, .n = 576, .k = 640, .y_kind = Y_F32, .kind = FP8_PLAIN, .y_gap = 8},
      {.rows = 128, .n = 128, .k = 128, .y_kind = Y_BF16, .kind = FP8_CANCELLING},
  };
  for (u32 i = 0; i < ARRAY_LEN(shapes); i++) fp8_case(test, &shapes[i]);
}

int main(int argc, char **argv) {
  return kernel_test_main(argc, argv, "fp8_gemm", "7f23bd074ebdafd1a52400c7c805c6db", fp8_gemm_cases);
}

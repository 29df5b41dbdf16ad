/* test_fp8_gemm.c - fp8_gemm: every edge of the kernel's tiles and of the blocks of scales, all kinds of results, and the corners of the
 * tensor-core rule; against the definition of the chain and binary64. */
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

  u32 few = fp8_cases_few(variants, s->rows, 0);
  kernel_test_run(test, &args, variants, few + fp8_cases_many(variants + few, s->rows, 0));
  for (u32 check = 0; check < 300; check++) check_result(s, &c, &args);
}

static void fp8_gemm_cases(kernel_test *test) {
  static const fp8_shape shapes[] = {
      {1, 8, 128, 1, FP8_PLAIN, 0, 0},        {1, 64, 256, 0, FP8_PLAIN, 0, 0},       {15, 56, 384, 1, FP8_PLAIN, 8, 0},
      {16, 576, 512, 0, FP8_ANY, 0, 0},       {17, 136, 640, 1, FP8_ANY, 8, 0},       {8, 128, 2048, 1, FP8_CANCELLING, 0, 0},
      {31, 264, 256, 0, FP8_CANCELLING, 8, 1}, {32, 200, 128, 1, FP8_ZEROS, 0, 1},    {33, 448, 384, 1, FP8_PLAIN, 0, 0},
      {2, 256, 896, Y_SILU, FP8_PLAIN, 8, 0}, {1, 256, 128, Y_SILU, FP8_PLAIN, 0, 0}, {19, 512, 384, Y_SILU, FP8_ANY, 8, 0},
      {40, 256, 256, Y_SILU, FP8_PLAIN, 0, 1}, {3, 72, 7168, 1, FP8_PLAIN, 0, 0},     {9, 96, 256, 1, FP8_NAN, 0, 0},
      {65, 136, 384, 0, FP8_PLAIN, 8, 0},     {130, 264, 256, 1, FP8_LONGEST, 0, 0},  {129, 512, 128, Y_SILU, FP8_ANY, 0, 0},
      {300, 264, 384, 0, FP8_PLAIN, 0, 1},    {257, 512, 256, Y_SILU, FP8_PLAIN, 8, 0}, {64, 2112, 128, 1, FP8_ANY, 0, 0},
      {192, 576, 640, 1, FP8_PLAIN, 8, 0},    {128, 128, 128, 0, FP8_CANCELLING, 0, 0},
  };
  for (u32 i = 0; i < ARRAY_LEN(shapes); i++) fp8_case(test, &shapes[i]);
}

int main(int argc, char **argv) { return kernel_test_main(argc, argv, "fp8_gemm", fp8_gemm_cases); }

/* test_gemm_bias.c - gemm_bias: every edge of the kernel's tiles and all kinds of results, against the chain and one rounded addition. */
#include "gemm_tiles.h"

typedef struct bias_shape { u32 rows, n, k, y_kind, kind, x_gap, y_gap, logits; } bias_shape;

static const small_m_tile SMALL[] = {
    {.n = 8, .rows = 1, .k_blocks = 3, .stages = 3}, {.n = 16, .rows = 8, .k_blocks = 2, .stages = 2},
    {.n = 64, .rows = 16, .k_blocks = 1, .stages = 4}, {.n = 40, .rows = 32, .k_blocks = 2, .stages = 3}};

static const large_m_tile LARGE[] = {
    {.n = 128, .rows = 256, .stages = 2, .cluster_columns = 1, .cluster_rows = 1, .depth = 1},
    {.n = 128, .rows = 128, .stages = 4, .cluster_columns = 2, .cluster_rows = 1, .depth = 1},
    {.n = 64, .rows = 32, .stages = 3, .cluster_columns = 1, .cluster_rows = 2, .depth = 2}};

static u32 make_variants(kernel_variant *variants, u32 rows) {
  u32 count = 0;
  for (u32 i = 0; i < ARRAY_LEN(SMALL); i++) {
    if (rows > 24 * SMALL[i].rows) continue;
    variants[count] = small_m_variant(&SMALL[i], rows, 0);
    variant_grid(&variants[count++], 1 + i % 3, 1 + i % 2, 1);
  }
  for (u32 i = 0; i < ARRAY_LEN(LARGE); i++) {
    const large_m_tile *t = &LARGE[i];
    variants[count] = large_m_variant(t, 7, t->n / 64, t->depth * (t->n + t->rows) * 128, rows, 0);
    variant_grid(&variants[count++], 1 + i, t->cluster_columns * t->cluster_rows * (1 + i % 2), 1);
  }
  return count;
}

static u32 columns_of(const bias_shape *s) { return s->y_kind == Y_SILU ? s->n / 2 : s->n; }

static f32 sum_of(const bias_shape *s, const gemm_bias_args *a, u32 row, u32 n) {
  const f32 chain = kernel_test_chain(a->x + (size_t)row * a->ldx, a->w + (size_t)n * s->k, 1, s->k, 0);
  return num_add(chain, num_from_bf16(a->bias[n]));
}

static void check_results(const bias_shape *s, const gemm_bias_args *a, cases *c) {
  for (u32 check = 0; check < 200; check++) {
    const u32 i = cases_below(c, s->rows), j = cases_below(c, columns_of(s));
    const size_t at = (size_t)i * a->ldy + j;
    f32 want = sum_of(s, a, i, j);
    if (s->y_kind == Y_SILU) want = num_mul(num_silu(want), sum_of(s, a, i, columns_of(s) + j));
    if (s->y_kind == Y_F32)
      assert_true(num_bits(((f32 *)a->y)[at]) == num_bits(want));
    else
      assert_int_equal(((bf16 *)a->y)[at], num_to_bf16(want));
  }
}

static void bias_case(kernel_test *test, const bias_shape *s) {
  cases c = {.state = s->rows * 1000003u + s->n * 1009 + s->k + s->kind};
  const u32 padded = s->rows + 3, columns = columns_of(s), ldx = s->k + s->x_gap, ldy = columns + s->y_gap;
  const size_t item = s->y_kind == Y_F32 ? 4 : 2;
  kernel_test_start(test);
  step_in *step = kernel_test_step(test, s->logits ? 1 : s->rows, s->logits ? s->rows : 0, 0);
  bf16 *x = kernel_test_input(test, (size_t)padded * ldx * 2), *w = kernel_test_input(test, (size_t)s->n * s->k * 2);
  bf16 *bias = kernel_test_input(test, (size_t)s->n * 2);
  u8 *y = kernel_test_output(test, (size_t)padded * ldy * item);
  for (u32 i = 0; i < padded; i++)
    kernel_test_keep(test, y + ((size_t)i * ldy + (i < s->rows ? columns : 0)) * item, (i < s->rows ? s->y_gap : ldy) * item);
  for (u32 i = 0; i < s->rows; i++) cases_fill(&c, s->kind, 0, x + (size_t)i * ldx, s->k);
  for (u32 i = 0; i < s->n; i++) cases_fill(&c, s->kind, 1, w + (size_t)i * s->k, s->k);
  cases_fill(&c, CASES_NORMAL, 1, bias, s->n);
  gemm_bias_args args = {.step = step, .x = x, .w = w, .bias = bias, .y = y, .ldx = ldx, .ldy = ldy, .n = s->n, .k = s->k,
                         .rows_kind = s->logits ? ROWS_LOGITS : ROWS_TOKENS, .y_kind = s->y_kind, .order = s->n / 8 % (ORDER_BESIDE + 1)};
  kernel_variant variants[16];
  kernel_test_run(test, &args, variants, make_variants(variants, s->rows));
  check_results(s, &args, &c);
}

static void bias_cases(kernel_test *test) {
  static const bias_shape shapes[] = {
      {.rows = 1, .n = 8, .k = 64, .y_kind = Y_F32, .kind = CASES_NORMAL},
      {.rows = 15, .n = 56, .k = 192, .y_kind = Y_BF16, .kind = CASES_CANCELLING, .x_gap = 8, .y_gap = 8},
      {.rows = 17, .n = 136, .k = 320, .y_kind = Y_F32, .kind = CASES_CANCELLING, .y_gap = 8},
      {.rows = 65, .n = 200, .k = 128, .y_kind = Y_BF16, .kind = CASES_NORMAL, .logits = 1},
      {.rows = 130, .n = 72, .k = 64, .y_kind = Y_F32, .kind = CASES_ZEROS},
      {.rows = 2, .n = 144, .k = 192, .y_kind = Y_SILU, .kind = CASES_NORMAL, .y_gap = 8},
      {.rows = 37, .n = 80, .k = 64, .y_kind = Y_SILU, .kind = CASES_WIDE, .x_gap = 8},
      {.rows = 66, .n = 272, .k = 64, .y_kind = Y_SILU, .kind = CASES_NORMAL, .logits = 1},
      {.rows = 3, .n = 24, .k = 64, .y_kind = Y_F32, .kind = CASES_ANY},
  };
  for (u32 i = 0; i < ARRAY_LEN(shapes); i++) bias_case(test, &shapes[i]);
}

int main(int argc, char **argv) {
  return kernel_test_main(argc, argv, "gemm_bias", "09de575a2fd653002c168e9eda5eda8e", bias_cases);
}

/* test_gemm.c - gemm: every edge of the kernel's tiles, all kinds of results, batches, and the corner cases of the tensor-core rule;
 * against the definition of the chain. With `--record-steps FILE` on a GPU it writes the results of cases_step, for test_h16. */
#include "gemm_tiles.h"
#include <stdio.h>

typedef struct gemm_shape { u32 rows, n, k, batches, y_kind, kind, x_gap, y_gap, logits; } gemm_shape;

static const small_m_tile SMALL[] = {
    {.n = 8, .rows = 1, .k_blocks = 3, .stages = 3},  {.n = 48, .rows = 1, .k_blocks = 4, .stages = 4},
    {.n = 16, .rows = 8, .k_blocks = 2, .stages = 2}, {.n = 64, .rows = 16, .k_blocks = 1, .stages = 4},
    {.n = 40, .rows = 32, .k_blocks = 2, .stages = 3}};

static const large_m_tile LARGE[] = {
    {.n = 128, .rows = 256, .stages = 2, .cluster_columns = 1, .cluster_rows = 1, .depth = 1},
    {.n = 128, .rows = 128, .stages = 4, .cluster_columns = 2, .cluster_rows = 1, .depth = 1},
    {.n = 64, .rows = 64, .stages = 2, .cluster_columns = 2, .cluster_rows = 2, .depth = 2},
    {.n = 64, .rows = 48, .stages = 3, .cluster_columns = 1, .cluster_rows = 1, .depth = 1},
    {.n = 64, .rows = 32, .stages = 2, .cluster_columns = 2, .cluster_rows = 4, .depth = 4}};

/* Every number of CTAs must work: one, some, more than there are tiles. Large M in tiles of one row is left out: the emulator is slow. */
static u32 make_small(kernel_variant *variants, u32 rows) {
  u32 count = 0;
  for (u32 i = 0; i < ARRAY_LEN(SMALL); i++) {
    if (rows > 24 * SMALL[i].rows) continue;
    variants[count] = small_m_variant(&SMALL[i], rows, 0);
    variant_grid(&variants[count++], 1 + i % 3, 1 + i % 2, 1 + i / 4);
  }
  return count;
}

static u32 make_large(kernel_variant *variants, u32 rows) {
  for (u32 i = 0; i < ARRAY_LEN(LARGE); i++) {
    const large_m_tile *t = &LARGE[i];
    variants[i] = large_m_variant(t, 7, t->n / 64, t->depth * (t->n + t->rows) * 128, rows, 0);
    variant_grid(&variants[i], 1 + i, t->cluster_columns * t->cluster_rows * (1 + i % 2), 1 + i / 3);
  }
  return ARRAY_LEN(LARGE);
}

static u32 make_variants(kernel_variant *variants, u32 rows) {
  const u32 small = make_small(variants, rows);
  return small + make_large(variants + small, rows);
}

static u32 columns_of(const gemm_shape *s) { return s->y_kind == Y_SILU ? s->n / 2 : s->n; }

static void keep_gaps(kernel_test *test, const gemm_shape *s, u8 *y, u32 padded, u32 ldy) {
  size_t item = s->y_kind == Y_F32 ? 4 : 2;
  for (u32 i = 0; i < s->batches * padded; i++) {
    bool live = i % padded < s->rows;
    kernel_test_keep(test, y + ((size_t)i * ldy + (live ? columns_of(s) : 0)) * item, (live ? s->y_gap : ldy) * item);
  }
}

static void gemm_case(kernel_test *test, const gemm_shape *s) {
  cases c = {.state = s->rows * 1000003u + s->n * 1009 + s->k + s->kind};
  u32 padded = s->rows + 3, ldx = s->k + s->x_gap, ldy = columns_of(s) + s->y_gap;
  kernel_test_start(test);
  step_in *step = kernel_test_step(test, s->logits ? 1 : s->rows, s->logits ? s->rows : 0, 0);
  bf16 *x = kernel_test_input(test, (size_t)s->batches * padded * ldx * 2);
  bf16 *w = kernel_test_input(test, (size_t)s->batches * s->n * s->k * 2);
  u8 *y = kernel_test_output(test, (size_t)s->batches * padded * ldy * (s->y_kind == Y_F32 ? 4 : 2));
  keep_gaps(test, s, y, padded, ldy);
  for (u32 b = 0; b < s->batches; b++) {
    for (u32 i = 0; i < s->rows; i++) cases_fill(&c, s->kind, 0, x + ((size_t)b * padded + i) * ldx, s->k);
    for (u32 i = 0; i < s->n; i++) cases_fill(&c, s->kind, 1, w + ((size_t)b * s->n + i) * s->k, s->k);
  }
  gemm_args args = {.step = step, .x = x, .w = w, .y = y, .ldx = ldx, .ldy = ldy, .n = s->n, .k = s->k, .batches = s->batches};
  args.x_batch = (u64)padded * ldx;
  args.w_batch = (u64)s->n * s->k;
  args.y_batch = (u64)padded * ldy;
  args.rows_kind = s->logits ? ROWS_LOGITS : ROWS_TOKENS;
  args.y_kind = s->y_kind;
  args.order = s->n / 8 % (ORDER_BESIDE + 1);
  kernel_variant variants[16];
  kernel_test_run(test, &args, variants, make_variants(variants, s->rows));
  for (u32 check = 0; check < kernel_test_checks(test, 300); check++) {
    u32 b = cases_below(&c, s->batches), i = cases_below(&c, s->rows), j = cases_below(&c, columns_of(s));
    size_t at = ((size_t)b * padded + i) * ldy + j;
    const bf16 *row = x + ((size_t)b * padded + i) * ldx;
    f32 want = kernel_test_chain(row, w + ((size_t)b * s->n + j) * s->k, 1, s->k, 0);
    if (s->y_kind == Y_SILU) want = num_mul(num_silu(want), kernel_test_chain(row, w + ((size_t)columns_of(s) + j) * s->k, 1, s->k, 0));
    if (s->y_kind == Y_F32)
      assert_true(num_bits(((f32 *)(void *)y)[at]) == num_bits(want));
    else
      assert_int_equal(((bf16 *)(void *)y)[at], num_to_bf16(want));
  }
}

/* 64 cases per product: row i of x and row i of w are case i, so the diagonal holds the steps. */
static void step_cases(kernel_test *test) {
  const char *path = kernel_test_steps_file(test);
  FILE *file = path && kernel_test_on_gpu(test) ? fopen(path, "w") : NULL;
  for (u32 first = 0; first < CASES_STEP_COUNT; first += 64) {
    kernel_test_start(test);
    step_in *step = kernel_test_step(test, 64, 0, 0);
    bf16 *x = kernel_test_input(test, 64 * 64 * 2), *w = kernel_test_input(test, 64 * 64 * 2);
    f32 *y = kernel_test_output(test, 64 * 64 * 4);
    memset(x, 0, 64 * 64 * 2);
    memset(w, 0, 64 * 64 * 2);
    for (u32 i = 0; i < 64; i++) cases_step(first + i, x + 64 * i, w + 64 * i);
    gemm_args args = {.step = step, .x = x, .w = w, .y = y, .ldx = 64, .ldy = 64, .n = 64, .k = 64, .batches = 1,
                      .y_kind = Y_F32};
    kernel_variant variants[16];
    u32 count = make_variants(variants, 64);
    kernel_test_loose(test, y, 64 * 64 * 4);
    kernel_test_run(test, &args, variants, count);
    for (u32 i = 0; i < 64 && file; i++) fprintf(file, "%08x\n", num_bits(y[65 * i]));
  }
  if (file) assert_int_equal(fclose(file), 0);
}

static void gemm_cases(kernel_test *test) {
  static const gemm_shape shapes[] = {
      {.rows = 1, .n = 8, .k = 64, .batches = 1, .y_kind = Y_F32, .kind = CASES_NORMAL},
      {.rows = 1, .n = 64, .k = 128, .batches = 1, .y_kind = Y_BF16, .kind = CASES_NORMAL},
      {.rows = 15, .n = 56, .k = 192, .batches = 1, .y_kind = Y_F32, .kind = CASES_NORMAL, .x_gap = 8, .y_gap = 8},
      {.rows = 16, .n = 64, .k = 256, .batches = 1, .y_kind = Y_BF16, .kind = CASES_WIDE},
      {.rows = 17, .n = 72, .k = 320, .batches = 1, .y_kind = Y_F32, .kind = CASES_WIDE, .y_gap = 8},
      {.rows = 63, .n = 120, .k = 64, .batches = 2, .y_kind = Y_BF16, .kind = CASES_NORMAL},
      {.rows = 64, .n = 128, .k = 512, .batches = 1, .y_kind = Y_F32, .kind = CASES_CANCELLING},
      {.rows = 65, .n = 136, .k = 448, .batches = 1, .y_kind = Y_BF16, .kind = CASES_CANCELLING, .x_gap = 8, .y_gap = 8, .logits = 1},
      {.rows = 127, .n = 200, .k = 64, .batches = 1, .y_kind = Y_F32, .kind = CASES_ZEROS, .logits = 1},
      {.rows = 129, .n = 264, .k = 128, .batches = 3, .y_kind = Y_F32, .kind = CASES_NORMAL},
      {.rows = 8, .n = 512, .k = 1024, .batches = 1, .y_kind = Y_F32, .kind = CASES_LONGEST},
      {.rows = 40, .n = 64, .k = 256, .batches = 1, .y_kind = Y_F32, .kind = CASES_ANY},
      {.rows = 33, .n = 96, .k = 192, .batches = 16, .y_kind = Y_BF16, .kind = CASES_NORMAL, .x_gap = 64, .y_gap = 32},
      {.rows = 24, .n = 80, .k = 192, .batches = 1, .y_kind = Y_F32, .kind = CASES_SUBNORMAL},
      {.rows = 1, .n = 168, .k = 1408, .batches = 1, .y_kind = Y_F32, .kind = CASES_NORMAL},
      {.rows = 2, .n = 144, .k = 448, .batches = 1, .y_kind = Y_SILU, .kind = CASES_NORMAL, .y_gap = 8},
      {.rows = 1, .n = 16, .k = 64, .batches = 1, .y_kind = Y_SILU, .kind = CASES_NORMAL},
      {.rows = 37, .n = 80, .k = 320, .batches = 1, .y_kind = Y_SILU, .kind = CASES_WIDE, .x_gap = 8},
      {.rows = 66, .n = 176, .k = 64, .batches = 1, .y_kind = Y_SILU, .kind = CASES_NORMAL, .logits = 1},
      {.rows = 3, .n = 16, .k = 11008, .batches = 1, .y_kind = Y_F32, .kind = CASES_NORMAL},
      {.rows = 9, .n = 56, .k = 128, .batches = 5, .y_kind = Y_BF16, .kind = CASES_NORMAL, .y_gap = 8},
      {.rows = 2, .n = 60, .k = 128, .batches = 1, .y_kind = Y_F32, .kind = CASES_NORMAL},
      {.rows = 67, .n = 130, .k = 64, .batches = 1, .y_kind = Y_F32, .kind = CASES_NORMAL},
  };
  for (u32 i = 0; i < ARRAY_LEN(shapes); i++) gemm_case(test, &shapes[i]);
  step_cases(test);
}

int main(int argc, char **argv) {
  return kernel_test_main(argc, argv, "gemm", "30c78c9b5b9ced58a651ba6b420d012c", gemm_cases);
}

/* test_gemm.c - gemm: every edge of the kernel's tiles, all kinds of results, batches, and the corners of the tensor-core rule;
 * against the definition of the chain. With `--record-steps FILE` on a GPU: the results of cases_step, for test_h16. */
#include "kernel_test.h"
#include <stdio.h>

typedef struct gemm_shape { u32 rows, n, k, batches, y_kind, kind, x_gap, y_gap, logits; } gemm_shape;

/* Of small_m.cuh: tile of weight rows, of token rows, blocks of 64 k in a stage, stages. */
static const u32 FEW[][4] = {{8, 1, 3, 3}, {48, 1, 4, 4}, {16, 8, 2, 2}, {64, 16, 1, 4}, {40, 32, 2, 3}};

static u32 few_bytes(const u32 tile[4]) {
  const u32 columns = max_u32(tile[1], 8), behind = (64 - tile[0]) * 128, exchange = (tile[0] + 4) * columns * 4;
  return 2048 + (u32)align_up(tile[3] * tile[2] * tile[1] * 128, 1024) + tile[3] * tile[2] * tile[0] * 128 + max_u32(behind, exchange);
}

/* The number of blocks is free: one, some, more than there are tiles. Many rows in tiles of one are left out: the emulator takes long. */
static u32 make_few(kernel_variant *variants, u32 rows) {
  u32 count = 0;
  for (u32 i = 0; i < ARRAY_LEN(FEW); i++) {
    if (rows > 24 * FEW[i][1]) continue;
    variants[count++] = (kernel_variant){{{"SPEC_MAPS", 1}, {"SPEC_TILE_N", FEW[i][0]}, {"SPEC_TILE_ROWS", FEW[i][1]},
                                    {"SPEC_K_BLOCKS", FEW[i][2]}, {"SPEC_STAGES", FEW[i][3]}},
                                   .spec_count = 5, .grid = {1 + i % 3, 1 + i % 2, 1 + i / 4}, .threads = 192, .rows = rows,
                                   .shared_bytes = few_bytes(FEW[i])};
  }
  return count;
}

/* Of large_m.cuh: tile of weight rows, of token rows, stages, blocks of a cluster side by side and below each other, 64 k in a stage. */
static const u32 MANY[][6] = {
    {128, 256, 2, 1, 1, 1}, {128, 128, 4, 2, 1, 1}, {64, 64, 2, 2, 2, 2}, {64, 48, 3, 1, 1, 1}, {64, 32, 2, 2, 4, 4}};

/* The number of blocks is free: one, some, more than there are tiles. */
static u32 make_many(kernel_variant *variants, u32 rows) {
  for (u32 i = 0; i < ARRAY_LEN(MANY); i++) {
    const u32 *tile = MANY[i], warpgroups = tile[0] == 64 ? 1 : 2;
    variants[i] = (kernel_variant){{{"SPEC_MAPS", 1}, {"SPEC_TILE_N", tile[0]}, {"SPEC_TILE_ROWS", tile[1]},
                                        {"SPEC_STAGES", tile[2]}, {"SPEC_CLUSTER", tile[3] * tile[4]},
                                    {"SPEC_CLUSTER_ROWS", tile[4]}, {"SPEC_DEPTH", tile[5]}},
                                       .spec_count = 7, .grid = {1 + i, tile[3] * tile[4] * (1 + i % 2), 1 + i / 3}, .rows = rows};
    variants[i].threads = 128 * (1 + warpgroups);
    variants[i].shared_bytes = 1024 + tile[5] * tile[2] * (tile[0] + tile[1]) * 128 + warpgroups * 8192 + 256;
  }
  return ARRAY_LEN(MANY);
}

static u32 make_variants(kernel_variant *variants, u32 rows) {
  const u32 few = make_few(variants, rows);
  return few + make_many(variants + few, rows);
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
  for (u32 check = 0; check < 300; check++) {
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

/* 64 cases a product: row i of x and row i of w are case i, so that the diagonal holds the steps. */
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
      {1, 8, 64, 1, 1, CASES_NORMAL, 0, 0, 0},        {1, 64, 128, 1, 0, CASES_NORMAL, 0, 0, 0},
      {15, 56, 192, 1, 1, CASES_NORMAL, 8, 8, 0},     {16, 64, 256, 1, 0, CASES_WIDE, 0, 0, 0},
      {17, 72, 320, 1, 1, CASES_WIDE, 0, 8, 0},       {63, 120, 64, 2, 0, CASES_NORMAL, 0, 0, 0},
      {64, 128, 512, 1, 1, CASES_CANCELLING, 0, 0, 0}, {65, 136, 448, 1, 0, CASES_CANCELLING, 8, 8, 1},
      {127, 200, 64, 1, 1, CASES_ZEROS, 0, 0, 1},     {129, 264, 128, 3, 1, CASES_NORMAL, 0, 0, 0},
      {8, 512, 1024, 1, 1, CASES_LONGEST, 0, 0, 0},   {40, 64, 256, 1, 1, CASES_ANY, 0, 0, 0},
      {33, 96, 192, 16, 0, CASES_NORMAL, 64, 32, 0},  {24, 80, 192, 1, 1, CASES_SUBNORMAL, 0, 0, 0},
      {1, 168, 1408, 1, 1, CASES_NORMAL, 0, 0, 0},   {2, 144, 448, 1, Y_SILU, CASES_NORMAL, 0, 8, 0},
      {1, 16, 64, 1, Y_SILU, CASES_NORMAL, 0, 0, 0},  {37, 80, 320, 1, Y_SILU, CASES_WIDE, 8, 0, 0},
      {66, 176, 64, 1, Y_SILU, CASES_NORMAL, 0, 0, 1}, {3, 16, 11008, 1, 1, CASES_NORMAL, 0, 0, 0},
      {9, 56, 128, 5, 0, CASES_NORMAL, 0, 8, 0},
  };
  for (u32 i = 0; i < ARRAY_LEN(shapes); i++) gemm_case(test, &shapes[i]);
  step_cases(test);
}

int main(int argc, char **argv) { return kernel_test_main(argc, argv, "gemm", gemm_cases); }

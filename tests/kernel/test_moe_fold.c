/* test_moe_fold.c - moe_fold: every size of a batch of experts, with and without a shared one, whole and partial blocks of columns, gaps
 * between rows; against the text, against binary64 and against the additions of rmsnorm. */
#include "kernel_test.h"
#include <stdlib.h>
#include "engine/cpu/cpu.h"

typedef struct fold_shape {
  u32 rows, columns, top_k;
  u32 delta, gate;         /* with a shared expert, with its gate: distance of its rows */
  u32 y_gap, delta_gap;    /* columns between rows        */
  f32 scale;               /* of the numbers              */
} fold_shape;

enum { PADDING = 3 };

/* Element i of row r, by the text. `exact`: in binary64; `size`: the sum of the magnitudes. */
static f32 sum_of(const moe_fold_args *a, size_t r, u32 i, double *exact, double *size) {
  f32 sum = 0;
  *exact = *size = 0;
  for (size_t k = r * a->top_k; k < (r + 1) * a->top_k; k++) {
    const f32 y = a->experts[(size_t)a->pair_row[k] * a->columns + i];
    sum = fmaf(a->topk_weight[k], y, sum);
    *exact += (double)a->topk_weight[k] * (double)y;
    *size += fabs((double)a->topk_weight[k] * (double)y);
  }
  if (!a->delta) return sum;
  const f32 shared = a->delta[r * a->delta_stride + i], share = a->gate ? 1 / (1 + num_exp(-a->gate[r * a->gate_stride])) : 1;
  const double exact_share = a->gate ? 1 / (1 + exp(-(double)a->gate[r * a->gate_stride])) : 1;
  *exact += (double)shared * exact_share;
  *size += fabs((double)shared) * (a->gate ? 4 : 1); /* the sigmoid has an error of its own */
  return a->gate ? fmaf(shared, share, sum) : sum + shared;
}

/* An op rmsnorm that adds the same experts to x = 0 leaves the same bits in x, but for the sign of a zero. */
static void check_norm(const moe_fold_args *a, cpu_pool *pool) {
  const u32 rows = a->step->token_count, n = a->columns;
  f32 *x = calloc((size_t)rows * n, sizeof *x), *delta = calloc((size_t)rows * n, sizeof *delta);
  bf16 *weight = calloc(n, sizeof *weight), *y = calloc((size_t)rows * n, sizeof *y);
  for (u32 r = 0; r < rows && a->delta; r++) memcpy(delta + (size_t)r * n, a->delta + (size_t)r * a->delta_stride, n * sizeof *delta);
  cpu_rmsnorm(&(rmsnorm_args){.step = a->step, .x = x, .x_out = x, .delta = a->delta ? delta : NULL, .experts = a->experts,
                              .pair_row = a->pair_row, .topk_weight = a->topk_weight, .gate = a->gate, .gate_stride = a->gate_stride,
                              .weight = weight, .y = y, .dim = n, .x_stride = n, .y_stride = n, .eps = 1e-6f, .delta_scale = 1,
                              .y_scale = 1, .top_k = a->top_k},
              pool);
  for (u32 r = 0; r < rows; r++)
    for (u32 i = 0; i < n; i++) assert_true(num_bits(x[(size_t)r * n + i]) == num_bits(a->y[(size_t)r * a->y_stride + i] + 0.0f));
  free(x), free(delta), free(weight), free(y);
}

static cpu_pool *norm_pool;

static void fold_case(kernel_test *test, const fold_shape *s) {
  cases c = {.state = s->rows * 1000003u + s->columns * 31 + s->top_k};
  const u32 pairs = s->rows * s->top_k, padded = pairs + PADDING * s->top_k;
  kernel_test_start(test);
  moe_fold_args a = {.step = kernel_test_step(test, s->rows, 0, 0), .columns = s->columns, .top_k = s->top_k,
                     .delta_stride = s->columns + s->delta_gap, .y_stride = s->columns + s->y_gap};
  f32 *experts = kernel_test_input(test, (size_t)pairs * s->columns * 4), *weight = kernel_test_input(test, padded * 4);
  f32 *delta = kernel_test_input(test, s->delta ? (size_t)s->rows * a.delta_stride * 4 : 0);
  u32 *pair_row = kernel_test_input(test, padded * 4);
  f32 *y = kernel_test_output(test, (size_t)(s->rows + PADDING) * a.y_stride * 4);
  kernel_test_floats(&c, experts, (size_t)pairs * s->columns, s->scale);
  kernel_test_floats(&c, weight, pairs, 1);
  if (s->delta) kernel_test_floats(&c, delta, (size_t)s->rows * a.delta_stride, s->scale);
  if (s->gate) {
    f32 *gate = kernel_test_input(test, (size_t)(s->rows + PADDING) * s->gate * 4);
    for (u32 r = 0; r < s->rows; r++) gate[r * s->gate] = cases_uniform(&c, 6); /* the other columns stay poison */
    a.gate = gate, a.gate_stride = s->gate;
  }
  for (u32 p = 0; p < pairs; p++) pair_row[p] = (p * 7 + 3) % pairs;
  for (u32 r = 0; r < s->rows + PADDING; r++)
    kernel_test_keep(test, y + (size_t)r * a.y_stride + (r < s->rows ? s->columns : 0), (r < s->rows ? s->y_gap : a.y_stride) * 4);
  a.experts = experts, a.pair_row = pair_row, a.topk_weight = weight, a.delta = s->delta ? delta : NULL, a.y = y;
  const u32 slices = (u32)div_up(s->columns, MOE_FOLD_COLUMNS);
  const kernel_variant variants[] = {{.grid = {s->rows, slices, 1}, .threads = MOE_FOLD_COLUMNS / 4},
                                     {.grid = {s->rows + PADDING, slices, 1}, .threads = MOE_FOLD_COLUMNS / 4}};
  kernel_test_run(test, &a, variants, ARRAY_LEN(variants));
  for (u32 r = 0; r < s->rows; r++)
    for (u32 i = 0; i < s->columns; i++) {
      double exact, size;
      const f32 found = y[(size_t)r * a.y_stride + i];
      assert_true(num_bits(found) == num_bits(sum_of(&a, r, i, &exact, &size)));
      kernel_test_near((double)found, exact, 0, size * 0x1p-24 * (s->top_k + 1) + 1e-40);
    }
  check_norm(&a, norm_pool);
}

/* 132 rows are the most whose kernel has a warm-up. */
static void fold_cases(kernel_test *test) {
  static const fold_shape shapes[] = {
      {.rows = 1, .columns = 4, .top_k = 1, .scale = 1},
      {.rows = 1, .columns = 3584, .top_k = 8, .delta = 1, .scale = 1},
      {.rows = 1, .columns = 1024, .top_k = 6, .delta = 1, .y_gap = 1024, .scale = 1},
      {.rows = 3, .columns = 516, .top_k = 8, .y_gap = 4, .delta_gap = 12, .delta = 1, .scale = 1e6f},
      {.rows = 5, .columns = 508, .top_k = 7, .scale = 1e-6f},
      {.rows = 7, .columns = 64, .top_k = 9, .delta = 1, .y_gap = 448, .scale = 1},
      {.rows = 2, .columns = 896, .top_k = 4, .delta = 1, .delta_gap = 6272, .scale = 1},
      {.rows = 4, .columns = 128, .top_k = 32, .delta = 1, .scale = 1},
      {.rows = 3, .columns = 256, .top_k = 17, .scale = 3},
      {.rows = 132, .columns = 40, .top_k = 2, .delta = 1, .y_gap = 40, .scale = 1},
      {.rows = 133, .columns = 40, .top_k = 8, .delta = 1, .y_gap = 40, .scale = 1},
      {.rows = 200, .columns = 520, .top_k = 10, .delta = 1, .y_gap = 8, .delta_gap = 4, .scale = 1},
      {.rows = 150, .columns = 12, .top_k = 3, .y_gap = 4, .scale = 1},
      {.rows = 3, .columns = 2048, .top_k = 4, .delta = 1, .gate = 61, .scale = 1},
      {.rows = 140, .columns = 64, .top_k = 8, .delta = 1, .gate = 1, .scale = 1e3f},
  };
  if (cpu_pool_open(&norm_pool, 1) != OK) fail_msg("%s", fail_text());
  for (u32 i = 0; i < ARRAY_LEN(shapes); i++) fold_case(test, &shapes[i]);
  cpu_pool_close(norm_pool);
}

int main(int argc, char **argv) { return kernel_test_main(argc, argv, "moe_fold", "058b81d01c3650fcf768d1280fcca2f5", fold_cases); }

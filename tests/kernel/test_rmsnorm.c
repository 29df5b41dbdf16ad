/* test_rmsnorm.c - rmsnorm: with and without delta, x_out, row_index, scales; strides; against the text and binary64. */
#include "kernel_test.h"
#include <stdlib.h>

typedef struct norm_shape {
  u32 rows, dim, x_gap, y_gap, delta, in_place, indexed, kind;
  f32 scale, delta_scale, y_scale;
  u32 top_k;
} norm_shape;

/* The experts' rows of all tokens, in some order. */
static void take_experts(kernel_test *test, cases *c, rmsnorm_args *a, u32 tokens) {
  u32 pairs = tokens * a->top_k;
  f32 *experts = kernel_test_input(test, (size_t)pairs * a->dim * 4), *weight = kernel_test_input(test, (pairs + 3 * a->top_k) * 4);
  u32 *pair_row = kernel_test_input(test, (pairs + 3 * a->top_k) * 4);
  kernel_test_floats(c, experts, (size_t)pairs * a->dim, 5);
  kernel_test_floats(c, weight, pairs, 1);
  for (u32 p = 0; p < pairs; p++) pair_row[p] = (p * 7 + 3) % pairs;
  a->experts = experts;
  a->topk_weight = weight;
  a->pair_row = pair_row;
}

/* What is added to element i of a row. */
static f32 delta_of(const rmsnorm_args *a, size_t token, u32 i) {
  f32 sum = 0, plus = a->delta ? a->delta[token * a->x_stride + i] : 0;
  if (!a->experts) return plus;
  for (size_t k = token * a->top_k; k < (token + 1) * a->top_k; k++)
    sum = fmaf(a->topk_weight[k], a->experts[(size_t)a->pair_row[k] * a->dim + i], sum);
  return a->delta ? sum + plus : sum;
}

/* One large number a row, and many whose squares are lost when added to it one by one but not when added to each other first:
 * the order of the sum shows in several last places of the factor, and so in some of the bf16 results. */
static void fill_spiky(cases *c, f32 *x, size_t count, u32 dim) {
  for (size_t i = 0; i < count; i++) x[i] = i % dim == 0 ? 1.0f : (cases_uniform(c, 0.015f) + 0.98f) * 0x1.6ap-13f;
}

static void norm_case(kernel_test *test, const norm_shape *s) {
  cases c = {.state = s->rows * 1000003u + s->dim * 31 + s->delta};
  u32 padded = s->rows + 3, sources = s->indexed ? s->rows * 2 + 3 : padded, x_stride = s->dim + s->x_gap, y_stride = s->dim + s->y_gap;
  kernel_test_start(test);
  step_in *step = kernel_test_step(test, s->kind ? s->rows * 2 + 3 : s->rows, s->kind ? s->rows : 0, 0);
  size_t x_count = (size_t)sources * x_stride;
  f32 *x = s->in_place ? kernel_test_output(test, x_count * 4) : kernel_test_input(test, x_count * 4);
  f32 *delta = s->delta ? kernel_test_input(test, x_count * 4) : NULL;
  f32 *before = malloc(x_count * 4);
  bf16 *weight = kernel_test_input(test, s->dim * sizeof *weight), *y = kernel_test_output(test, (size_t)padded * y_stride * 2);
  u32 *row_index = s->indexed ? kernel_test_input(test, padded * 4) : NULL;
  kernel_test_floats(&c, x, x_count, s->scale);
  if (s->scale == 0) fill_spiky(&c, x, x_count, s->dim);
  memcpy(before, x, x_count * 4);
  if (delta) kernel_test_floats(&c, delta, x_count, s->scale);
  kernel_test_bf16s(&c, weight, s->dim, 2);
  for (u32 i = 0; i < s->rows && row_index; i++) row_index[i] = 2 * i + cases_below(&c, 2);
  for (u32 i = 0; i < padded; i++) {
    kernel_test_keep(test, y + (size_t)i * y_stride + (i < s->rows ? s->dim : 0), (i < s->rows ? s->y_gap : y_stride) * 2);
  }
  for (u32 i = 0; i < sources && s->in_place; i++) {
    bool live = i < s->rows;
    for (u32 r = 0; r < s->rows && row_index; r++) live = r == 0 ? row_index[r] == i : live || row_index[r] == i;
    kernel_test_keep(test, x + (size_t)i * x_stride + (live ? s->dim : 0), (live ? s->x_gap : x_stride) * 4);
  }
  rmsnorm_args args = {.step = step, .row_index = row_index, .x = x, .delta = delta, .x_out = s->in_place ? x : NULL, .weight = weight};
  args.y = y;
  args.rows_kind = s->kind;
  args.dim = s->dim;
  args.x_stride = x_stride;
  args.y_stride = y_stride;
  args.eps = 1e-6f;
  args.delta_scale = s->delta_scale;
  args.y_scale = s->y_scale;
  args.top_k = s->top_k;
  if (s->top_k) take_experts(test, &c, &args, s->indexed ? s->rows * 2 : s->rows);
  static const struct { u32 threads, held, most; } forms[] = {{512, 1, 2048}, {512, 2, 4096}, {512, 4, 8192}, {256, 8, -1u}, {256, 4, -1u}};
  kernel_variant variants[ARRAY_LEN(forms)];
  u32 count = 0;
  for (u32 i = 0; i < ARRAY_LEN(forms); i++) /* few rows: all of a row is kept, in whole vectors */
    if (forms[i].most == -1u || (s->dim <= forms[i].most && (s->dim | x_stride | y_stride) % 4 == 0))
      variants[count++] = (kernel_variant){
          .grid = {s->rows + i, 1, 1}, .threads = forms[i].threads, .spec = {{"SPEC_HELD", forms[i].held}}, .spec_count = 1};
  kernel_test_run(test, &args, variants, count);
  for (u32 r = 0; r < s->rows; r++) {
    size_t token = row_index ? row_index[r] : r, source = token * x_stride;
    double sum = 0;
    for (u32 i = 0; i < s->dim; i++) {
      if (delta || s->top_k) before[source + i] = fmaf(delta_of(&args, token, i), args.delta_scale, before[source + i]);
      sum += (double)before[source + i] * (double)before[source + i];
    }
    double factor = 1 / sqrt(sum / s->dim + 1e-6);
    f32 exact = kernel_test_norm(before + source, s->dim, 1e-6f);
    for (u32 i = 0; i < s->dim; i++) {
      f32 v = before[source + i];
      if (s->in_place) assert_true(num_bits(x[source + i]) == num_bits(v));
      assert_int_equal(y[r * y_stride + i], num_to_bf16(v * exact * num_from_bf16(weight[i]) * args.y_scale));
      double want = (double)v * factor * (double)num_from_bf16(weight[i]) * (double)args.y_scale;
      kernel_test_near((double)num_from_bf16(y[r * y_stride + i]), want, 0x1.02p-8, 1e-30);
    }
  }
  free(before);
}

static void norm_cases(kernel_test *test) {
  static const norm_shape shapes[] = {
      {1, 8, 0, 0, 0, 0, 0, 0, 1, 1, 1, 0},        {2, 255, 1, 1, 1, 1, 0, 0, 1, 1, 1, 0},
      {3, 256, 0, 0, 1, 1, 0, 0, 100, 1, 1, 0},
      {1, 257, 3, 0, 1, 0, 0, 0, 1, 1, 1, 0},      {5, 512, 64, 0, 0, 0, 0, 0, 1e-4f, 1, 1, 0},
      {64, 128, 0, 0, 1, 1, 0, 0, 1, 1, 1, 0},
      {7, 1536, 0, 0, 1, 1, 1, 1, 1, 1, 1, 0},     {4, 2048, 0, 0, 1, 0, 1, 1, 1e6f, 1, 1, 0},
      {24, 7168, 0, 0, 0, 0, 0, 0, 0, 1, 1, 0},
      {2, 7168, 0, 0, 1, 1, 0, 0, 1, 1, 1, 0},     {3, 1000, 0, 8, 0, 0, 0, 1, 1, 1, 1, 0},
      {3, 2560, 0, 0, 1, 1, 0, 0, 1, 0.17780070f, 1, 0}, {4, 2560, 0, 0, 1, 0, 1, 1, 1, 0.17780070f, 0.1f, 0},
      {2, 257, 3, 1, 1, 1, 0, 0, 8, 3.7f, 1, 0},   {5, 320, 0, 0, 0, 0, 1, 1, 1, 1, 0.3f, 0},
      {1, 7168, 0, 0, 1, 1, 0, 0, 1, 1, 1, 8},  {5, 1020, 0, 0, 1, 1, 0, 0, 1, 1, 1, 6}, {33, 128, 4, 0, 0, 1, 0, 0, 1, 1, 1, 2},
      {3, 2048, 0, 0, 1, 0, 1, 1, 1, 0.7f, 1, 9}, {2, 600, 0, 0, 0, 0, 1, 1, 1, 1, 1, 32},
  };
  for (u32 i = 0; i < ARRAY_LEN(shapes); i++) norm_case(test, &shapes[i]);
}

int main(int argc, char **argv) { return kernel_test_main(argc, argv, "rmsnorm", norm_cases); }

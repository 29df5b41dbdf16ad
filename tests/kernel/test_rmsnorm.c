/* test_rmsnorm.c - rmsnorm: with and without delta, x_out, row_index, scales; strides; results in bf16 and in fp32; against the text and
 * binary64. */
#include "kernel_test.h"
#include <stdlib.h>

enum { FORMS = 5 };

typedef struct norm_shape {
  u32 rows, dim, x_gap, y_gap;    /* gaps: columns between rows                             */
  u32 delta, in_place, indexed;   /* flags: with delta, x_out is x, with row_index          */
  u32 kind;                       /* of rows                                                */
  f32 scale;                      /* of the numbers; 0: one large number a row, fill_spiky  */
  f32 delta_scale, y_scale;
  u32 top_k;                      /* 0: without experts                                     */
  u32 y_kind;
  bool without_x, gated, without_norm;
} norm_shape;

/* The experts' rows of all tokens, in a mixed order. */
static void take_experts(kernel_test *test, cases *c, rmsnorm_args *a, u32 tokens, bool gated) {
  u32 pairs = tokens * a->top_k;
  f32 *experts = kernel_test_input(test, (size_t)pairs * a->dim * 4), *weight = kernel_test_input(test, (pairs + 3 * a->top_k) * 4);
  u32 *pair_row = kernel_test_input(test, (pairs + 3 * a->top_k) * 4);
  kernel_test_floats(c, experts, (size_t)pairs * a->dim, 5);
  kernel_test_floats(c, weight, pairs, 1);
  for (u32 p = 0; p < pairs; p++) pair_row[p] = (p * 7 + 3) % pairs;
  if (gated) {
    f32 *gate = kernel_test_input(test, ((size_t)tokens + 3) * 5 * 4);
    for (u32 t = 0; t < tokens; t++) gate[t * 5] = cases_uniform(c, 6); /* the other columns stay poison */
    a->gate = gate;
    a->gate_stride = 5;
  }
  a->experts = experts;
  a->topk_weight = weight;
  a->pair_row = pair_row;
}

/* The number added to element i of a row. */
static f32 delta_of(const rmsnorm_args *a, size_t token, u32 i) {
  f32 sum = 0, plus = a->delta ? a->delta[token * a->x_stride + i] : 0;
  if (!a->experts) return plus;
  for (size_t k = token * a->top_k; k < (token + 1) * a->top_k; k++)
    sum = fmaf(a->topk_weight[k], a->experts[(size_t)a->pair_row[k] * a->dim + i], sum);
  if (a->gate) return fmaf(plus, 1 / (1 + num_exp(-a->gate[token * a->gate_stride])), sum);
  return a->delta ? sum + plus : sum;
}

/* One large number per row, and many whose squares are lost when added to it one by one, but not when added to each other first: the order
 * of the sum shows in several last places of the factor, and therefore in some bf16 results. */
static void fill_spiky(cases *c, f32 *x, size_t count, u32 dim) {
  for (size_t i = 0; i < count; i++) x[i] = i % dim == 0 ? 1.0f : (cases_uniform(c, 0.015f) + 0.98f) * 0x1.6ap-13f;
}

static u32 sources_of(const norm_shape *s) { return s->indexed ? s->rows * 2 + 3 : s->rows + 3; }

/* Padding rows, and gaps between rows, must not change: neither in y nor in x, where it is updated in place. */
static void keep_gaps(kernel_test *test, const norm_shape *s, const rmsnorm_args *a, f32 *x) {
  const u32 size = s->y_kind == Y_F32 ? 4 : 2;
  for (u32 i = 0; i < s->rows + 3; i++) {
    const u32 gap = i < s->rows ? s->y_gap : a->y_stride;
    kernel_test_keep(test, (u8 *)a->y + ((size_t)(i + 1) * a->y_stride - gap) * size, gap * size);
  }
  for (u32 i = 0; i < sources_of(s) && s->in_place; i++) {
    bool live = !a->row_index && i < s->rows;
    for (u32 r = 0; r < s->rows && a->row_index; r++) live = live || a->row_index[r] == i;
    kernel_test_keep(test, x + (size_t)i * a->x_stride + (live ? s->dim : 0), (live ? s->x_gap : a->x_stride) * 4);
  }
}

/* Forms for small M hold a whole row, in vectors of four columns; those for large M take any number of columns. */
static u32 make_variants(const norm_shape *s, kernel_variant *variants) {
  static const struct { u32 threads, held, dim_max; } forms[] = {{.threads = 512, .held = 1, .dim_max = 2048},
                                                                 {.threads = 512, .held = 2, .dim_max = 4096},
                                                                 {.threads = 512, .held = 4, .dim_max = 8192},
                                                                 {.threads = 256, .held = 8},
                                                                 {.threads = 256, .held = 4}};
  const bool is_aligned = (s->dim | (s->dim + s->x_gap) | (s->dim + s->y_gap)) % 4 == 0;
  u32 count = 0;
  for (u32 i = 0; i < FORMS; i++) {
    if (forms[i].dim_max && (s->dim > forms[i].dim_max || !is_aligned)) continue;
    variants[count++] = (kernel_variant){
        .grid = {s->rows + i, 1, 1}, .threads = forms[i].threads, .spec = {{"SPEC_HELD", forms[i].held}}, .spec_count = 1};
  }
  return count;
}

/* Row r, bit for bit as in NUMERICS.md and within a last place of binary64. before: x at the start; becomes v. */
static void check_row(const norm_shape *s, const rmsnorm_args *a, u32 r, f32 *before) {
  size_t token = a->row_index ? a->row_index[r] : r, source = token * a->x_stride;
  double sum = 0;
  for (u32 i = 0; i < s->dim; i++) {
    if (s->without_x) before[source + i] = 0;
    if (a->delta || s->top_k) before[source + i] = fmaf(delta_of(a, token, i), a->delta_scale, before[source + i]);
    sum += (double)before[source + i] * (double)before[source + i];
  }
  double factor = 1 / sqrt(sum / s->dim + 1e-6);
  f32 exact = kernel_test_norm(before + source, s->dim, 1e-6f);
  if (!a->weight) factor = 1, exact = 1; /* only rounded */
  for (u32 i = 0; i < s->dim; i++) {
    f32 v = before[source + i], weight = a->weight ? num_from_bf16(a->weight[i]) : 1;
    const double want = (double)v * factor * (double)weight * (double)a->y_scale;
    if (s->in_place) assert_true(num_bits(a->x[source + i]) == num_bits(v));
    if (s->y_kind == Y_F32) {
      const f32 y = ((const f32 *)a->y)[r * a->y_stride + i];
      assert_int_equal(num_bits(y), num_bits(v * exact * weight * a->y_scale));
      kernel_test_near((double)y, want, 0x1p-20, 1e-30);
      continue;
    }
    const bf16 y = ((const bf16 *)a->y)[r * a->y_stride + i];
    assert_int_equal(y, num_to_bf16(v * exact * weight * a->y_scale));
    kernel_test_near((double)num_from_bf16(y), want, 0x1.02p-8, 1e-30);
  }
}

static void norm_case(kernel_test *test, const norm_shape *s) {
  cases c = {.state = s->rows * 1000003u + s->dim * 31 + s->delta};
  u32 padded = s->rows + 3, x_stride = s->dim + s->x_gap, y_stride = s->dim + s->y_gap;
  size_t x_count = (size_t)sources_of(s) * x_stride;
  kernel_test_start(test);
  step_in *step = kernel_test_step(test, s->kind ? s->rows * 2 + 3 : s->rows, s->kind ? s->rows : 0, 0);
  f32 *x = s->in_place ? kernel_test_output(test, x_count * 4) : kernel_test_input(test, x_count * 4);
  f32 *delta = s->delta ? kernel_test_input(test, x_count * 4) : NULL, *before = malloc(x_count * 4);
  bf16 *weight = kernel_test_input(test, s->dim * sizeof *weight);
  void *y = kernel_test_output(test, (size_t)padded * y_stride * (s->y_kind == Y_F32 ? 4 : 2));
  u32 *row_index = s->indexed ? kernel_test_input(test, padded * 4) : NULL;
  kernel_test_floats(&c, x, x_count, s->scale);
  if (s->scale == 0) fill_spiky(&c, x, x_count, s->dim);
  memcpy(before, x, x_count * 4);
  if (delta) kernel_test_floats(&c, delta, x_count, s->scale);
  kernel_test_bf16s(&c, weight, s->dim, 2);
  for (u32 i = 0; i < s->rows && row_index; i++) row_index[i] = 2 * i + cases_below(&c, 2);
  rmsnorm_args args = {.step = step, .row_index = row_index, .x = s->without_x ? NULL : x, .delta = delta,
                       .x_out = s->in_place ? x : NULL, .weight = s->without_norm ? NULL : weight,
                       .y = y, .rows_kind = s->kind, .dim = s->dim, .x_stride = x_stride,
                       .y_stride = y_stride, .eps = 1e-6f, .delta_scale = s->delta_scale, .y_scale = s->y_scale, .top_k = s->top_k,
                       .y_kind = s->y_kind};
  keep_gaps(test, s, &args, x);
  if (s->top_k) take_experts(test, &c, &args, s->indexed ? s->rows * 2 : s->rows, s->gated);
  kernel_variant variants[FORMS];
  kernel_test_run(test, &args, variants, make_variants(s, variants));
  for (u32 r = 0; r < s->rows; r++) check_row(s, &args, r, before);
  free(before);
}

static void norm_cases(kernel_test *test) {
  static const norm_shape shapes[] = {
      {.rows = 1, .dim = 8, .scale = 1, .delta_scale = 1, .y_scale = 1},
      {.rows = 2, .dim = 255, .x_gap = 1, .y_gap = 1, .delta = 1, .in_place = 1, .scale = 1, .delta_scale = 1, .y_scale = 1},
      {.rows = 3, .dim = 256, .delta = 1, .in_place = 1, .scale = 100, .delta_scale = 1, .y_scale = 1},
      {.rows = 1, .dim = 257, .x_gap = 3, .delta = 1, .scale = 1, .delta_scale = 1, .y_scale = 1},
      {.rows = 5, .dim = 512, .x_gap = 64, .scale = 1e-4f, .delta_scale = 1, .y_scale = 1},
      {.rows = 64, .dim = 128, .delta = 1, .in_place = 1, .scale = 1, .delta_scale = 1, .y_scale = 1},
      {.rows = 7, .dim = 1536, .delta = 1, .in_place = 1, .indexed = 1, .kind = ROWS_LOGITS, .scale = 1, .delta_scale = 1, .y_scale = 1},
      {.rows = 4, .dim = 2048, .delta = 1, .indexed = 1, .kind = ROWS_LOGITS, .scale = 1e6f, .delta_scale = 1, .y_scale = 1},
      {.rows = 24, .dim = 7168, .scale = 0, .delta_scale = 1, .y_scale = 1},
      {.rows = 2, .dim = 7168, .delta = 1, .in_place = 1, .scale = 1, .delta_scale = 1, .y_scale = 1},
      {.rows = 3, .dim = 1000, .y_gap = 8, .kind = ROWS_LOGITS, .scale = 1, .delta_scale = 1, .y_scale = 1},
      {.rows = 3, .dim = 2560, .delta = 1, .in_place = 1, .scale = 1, .delta_scale = 0.17780070f, .y_scale = 1},
      {.rows = 4, .dim = 2560, .delta = 1, .indexed = 1, .kind = ROWS_LOGITS, .scale = 1, .delta_scale = 0.17780070f, .y_scale = 0.1f},
      {.rows = 2, .dim = 257, .x_gap = 3, .y_gap = 1, .delta = 1, .in_place = 1, .scale = 8, .delta_scale = 3.7f, .y_scale = 1},
      {.rows = 5, .dim = 320, .indexed = 1, .kind = ROWS_LOGITS, .scale = 1, .delta_scale = 1, .y_scale = 0.3f},
      {.rows = 1, .dim = 7168, .delta = 1, .in_place = 1, .scale = 1, .delta_scale = 1, .y_scale = 1, .top_k = 8},
      {.rows = 5, .dim = 1020, .delta = 1, .in_place = 1, .scale = 1, .delta_scale = 1, .y_scale = 1, .top_k = 6},
      {.rows = 33, .dim = 128, .x_gap = 4, .in_place = 1, .scale = 1, .delta_scale = 1, .y_scale = 1, .top_k = 2},
      {.rows = 3, .dim = 2048, .delta = 1, .indexed = 1, .kind = ROWS_LOGITS, .scale = 1, .delta_scale = 0.7f, .y_scale = 1, .top_k = 9},
      {.rows = 2, .dim = 600, .indexed = 1, .kind = ROWS_LOGITS, .scale = 1, .delta_scale = 1, .y_scale = 1, .top_k = 32},
      {.rows = 3, .dim = 4096, .scale = 0, .delta_scale = 1, .y_scale = 1, .y_kind = Y_F32},
      {.rows = 6, .dim = 600, .x_gap = 4, .y_gap = 12, .delta = 1, .in_place = 1, .scale = 1, .delta_scale = 1, .y_scale = 0.7f,
       .y_kind = Y_F32},
      {.rows = 2, .dim = 257, .x_gap = 3, .y_gap = 1, .scale = 8, .delta_scale = 1, .y_scale = 1, .y_kind = Y_F32},
      {.rows = 3, .dim = 2048, .delta = 1, .scale = 1, .delta_scale = 1, .y_scale = 1, .top_k = 8, .y_kind = Y_F32, .without_x = true},
      {.rows = 5, .dim = 3000, .scale = 1, .delta_scale = 1, .y_scale = 1, .top_k = 4, .y_kind = Y_F32, .without_x = true},
      {.rows = 3, .dim = 2048, .delta = 1, .in_place = 1, .scale = 1, .delta_scale = 1, .y_scale = 1, .top_k = 4, .gated = true},
      {.rows = 2, .dim = 1000, .x_gap = 3, .delta = 1, .indexed = 1, .kind = ROWS_LOGITS, .scale = 1, .delta_scale = 1, .y_scale = 1,
       .top_k = 9, .gated = true},
      {.rows = 3, .dim = 2048, .delta = 1, .in_place = 1, .scale = 8, .delta_scale = 1, .y_scale = 1, .without_norm = true},
      {.rows = 2, .dim = 257, .x_gap = 3, .y_gap = 1, .delta = 1, .in_place = 1, .scale = 8, .delta_scale = 1, .y_scale = 1,
       .without_norm = true},
  };
  for (u32 i = 0; i < ARRAY_LEN(shapes); i++) norm_case(test, &shapes[i]);
}

int main(int argc, char **argv) {
  return kernel_test_main(argc, argv, "rmsnorm", "5d0b7bb2d1631ec9973156a411776947", norm_cases);
}

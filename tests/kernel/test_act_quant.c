/* test_act_quant.c - act_quant: both kinds of scales, strides, rows of tokens, of logits and of experts; every significand together with
 * every largest one; all magnitudes, zeros, NaN and Inf; against the tables of the format and divisions in binary64. */
#include "kernel_test.h"
#include <math.h>

typedef struct quant_shape { u32 rows, columns, x_gap, kind, rows_mul, logits, fill; } quant_shape;

enum fill { FILL_PLAIN, FILL_SIGNIFICANDS, FILL_ANY, FILL_TINY, FILL_SPECIAL };

static bf16 random_bf16(cases *c, u32 fill, u32 row, u32 column) {
  u32 r = cases_bits(c), sign = r >> 31 << 15;
  switch (fill) {
    case FILL_SIGNIFICANDS: /* column 0 of 128 is the largest, with the row's significand; then all significands, at various distances */
      if (column % 128 == 0) return (bf16)(sign | (120 + row % 16) << 7 | row % 128);
      return (bf16)(sign | (119 + row % 16 - (column / 128 * 2 + r % 2) % 10) << 7 | column % 128);
    case FILL_ANY: return (bf16)(sign | (r >> 8) % 255 << 7 | (r & 127));
    case FILL_TINY: return (bf16)(sign | ((r >> 8) % 4 ? 0 : (r >> 12) % 116) << 7 | ((r >> 24) % 4 ? 0 : r & 127));
    case FILL_SPECIAL: return (bf16)(cases_below(c, 300) ? sign | 125 << 7 | (r & 127) : sign | 0x7f80 | ((r & 256) ? r & 127 : 0));
    default: return (bf16)(sign | (118 + (r >> 8) % 12) << 7 | (r & 127));
  }
}

/* The e4m3 number nearest to q, from the format: 4 bits of exponent, 3 of fraction, the last pattern NaN. */
static u8 nearest(double q) {
  u8 best = 0;
  double least = INFINITY;
  if (isnan(q)) return 0x7f;
  for (u32 code = 0; code < 0x7f; code++) {
    double value = code < 8 ? ldexp(code, -9) : ldexp(8 + code % 8, (int)(code / 8) - 10), apart = fabs(fabs(q) - value);
    if (apart < least || (apart == least && code % 2 == 0)) {
      least = apart;
      best = (u8)code;
    }
  }
  return (u8)(best | (signbit(q) ? 0x80 : 0));
}

static double scale_of(double largest, u32 kind) {
  int exponent;
  if (!isfinite(largest)) return NAN;
  double quotient = (double)(f32)(fmax(largest, (double)1e-4f) / 448), fraction = frexp(quotient, &exponent);
  return kind == SCALE_F32 ? quotient : ldexp(1, fraction == 0.5 ? exponent - 1 : exponent);
}

static void check_group(const bf16 *x, const u8 *codes, f32 scale, u32 kind) {
  double largest = 0;
  for (u32 i = 0; i < 128; i++) {
    double magnitude = fabs((double)num_from_bf16(x[i]));
    if (isnan(magnitude) || isnan(largest)) largest = NAN;
    else largest = fmax(largest, magnitude);
  }
  double want = scale_of(largest, kind);
  assert_true(isnan(want) ? isnan(scale) : (double)scale == want);
  for (u32 i = 0; i < 128; i++) {
    double v = (double)num_from_bf16(x[i]), q = (double)(f32)(v / want);
    assert_int_equal(codes[i], nearest(isnan(want) ? NAN : q));
    if (!isnan(want)) assert_true(fabs((double)num_from_e4m3(codes[i]) * want - v) <= fmax(fabs(v) / 16, want * 0x1p-10) * 1.0000002);
  }
}

static void quant_case(kernel_test *test, const quant_shape *s) {
  cases c = {.state = s->rows * 1000003u + s->columns * 31 + s->kind * 7 + s->fill};
  u32 rows = s->rows * s->rows_mul, padded = rows + 3, ldx = s->columns + s->x_gap, groups = s->columns / 128;
  kernel_test_start(test);
  step_in *step = kernel_test_step(test, s->logits ? s->rows + 5 : s->rows, s->logits ? s->rows : 0, 0);
  bf16 *x = kernel_test_input(test, (size_t)padded * ldx * 2);
  u8 *codes = kernel_test_output(test, (size_t)padded * s->columns);
  f32 *scales = kernel_test_output(test, (size_t)padded * groups * 4);
  kernel_test_keep(test, codes + (size_t)rows * s->columns, (size_t)3 * s->columns);
  kernel_test_keep(test, scales + (size_t)rows * groups, (size_t)3 * groups * 4);
  kernel_test_loose(test, scales, (size_t)rows * groups * 4); /* NaN */
  for (u32 i = 0; i < rows; i++)
    for (u32 j = 0; j < s->columns; j++) x[(size_t)i * ldx + j] = random_bf16(&c, s->fill, i, j);
  act_quant_args args = {.step = step, .x = x, .codes = codes, .scales = scales, .rows_kind = s->logits ? ROWS_LOGITS : ROWS_TOKENS,
                         .ldx = ldx, .columns = s->columns, .rows_mul = s->rows_mul, .scale_kind = s->kind};
  const kernel_variant variants[] = {{.grid = {rows, 1, 1}, .threads = 256}, {.grid = {3, 2, 1}, .threads = 256},
                                     {.grid = {rows * groups / 8 + 7, 1, 2}, .threads = 256}};
  kernel_test_run(test, &args, variants, ARRAY_LEN(variants));
  for (u32 i = 0; i < rows; i++)
    for (u32 g = 0; g < groups; g++)
      check_group(x + (size_t)i * ldx + g * 128, codes + (size_t)i * s->columns + g * 128, scales[i * groups + g], s->kind);
}

static void quant_cases(kernel_test *test) {
  static const quant_shape shapes[] = {
      {.rows = 1, .columns = 128, .kind = SCALE_F32, .rows_mul = 1, .fill = FILL_PLAIN},
      {.rows = 1, .columns = 7168, .kind = SCALE_POW2, .rows_mul = 1, .fill = FILL_PLAIN},
      {.rows = 5, .columns = 1536, .x_gap = 64, .kind = SCALE_F32, .rows_mul = 1, .logits = 1, .fill = FILL_PLAIN},
      {.rows = 3, .columns = 256, .x_gap = 8, .kind = SCALE_POW2, .rows_mul = 8, .fill = FILL_PLAIN},
      {.rows = 128, .columns = 640, .kind = SCALE_F32, .rows_mul = 1, .fill = FILL_SIGNIFICANDS},
      {.rows = 128, .columns = 640, .kind = SCALE_POW2, .rows_mul = 1, .fill = FILL_SIGNIFICANDS},
      {.rows = 33, .columns = 384, .kind = SCALE_F32, .rows_mul = 1, .fill = FILL_ANY},
      {.rows = 33, .columns = 384, .kind = SCALE_POW2, .rows_mul = 1, .fill = FILL_ANY},
      {.rows = 17, .columns = 512, .kind = SCALE_F32, .rows_mul = 1, .fill = FILL_TINY},
      {.rows = 17, .columns = 512, .kind = SCALE_POW2, .rows_mul = 1, .fill = FILL_TINY},
      {.rows = 20, .columns = 256, .kind = SCALE_F32, .rows_mul = 2, .fill = FILL_SPECIAL},
      {.rows = 20, .columns = 256, .kind = SCALE_POW2, .rows_mul = 2, .fill = FILL_SPECIAL},
  };
  for (u32 i = 0; i < ARRAY_LEN(shapes); i++) quant_case(test, &shapes[i]);
}

int main(int argc, char **argv) {
  return kernel_test_main(argc, argv, "act_quant", "3f82aa0579437600529fd8b458c22f68", quant_cases);
}

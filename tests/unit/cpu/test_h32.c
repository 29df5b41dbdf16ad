/* test_h32.c - the tensor-core chain of e4m3 numbers: its definition against worked examples and sums in binary64, and the product against
 * the definition. */
#include "tests/unit/unit.h"
#include <stdlib.h>
#include "engine/mma/h32.h"
#include "num.h"
#include "tests/kernel/cases.h"
#include "tests/kernel/force_isa.h"

/* One step with up to three pairs given as floats (which must be e4m3 numbers); all other pairs are zero. */
static f32 step3(f32 a0, f32 b0, f32 a1, f32 b1, f32 a2, f32 b2, f32 c) {
  u8 a[32] = {num_to_e4m3(a0), [7] = num_to_e4m3(a1), [31] = num_to_e4m3(a2)};
  u8 b[32] = {num_to_e4m3(b0), [7] = num_to_e4m3(b1), [31] = num_to_e4m3(b2)};
  return h32_step_reference(a, b, c);
}

static void worked_examples(void **state) {
  (void)state;
  assert_true(step3(3, 5, 0, 0, 0, 0, 2) == 17);
  assert_true(step3(1, 1, 0x1p-6f, 0x1p-7f, 0, 0, 0) == 0x1.0008p0f);               /* 2^-13 stays  */
  assert_true(step3(1, 1, 0x1p-7f, 0x1p-7f, 0x1p-7f, 0x1p-7f, 0) == 1);              /* 2^-14 is truncated, twice */
  assert_true(step3(1, 1, 0x1p-7f, -0x1p-7f, 0, 0, 0) == 1);                         /* before it can borrow */
  assert_true(step3(1.5f, 1.5f, 0x1p-6f, 0x1p-7f, 0, 0, 0) == 2.25f);                /* the sum keeps 13 bits: 2^-13 is lost */
  assert_true(step3(1.5f, 1.5f, 0x1p-6f, 0x1p-6f, 0, 0, 0) == 2.25f + 0x1p-12f);     /* the exponent is the unnormalised product's */
  assert_true(step3(448, 448, 0x1p-9f, 1, 0, 0, 0) == 200704);
  assert_true(step3(0, 448, 0x1p-9f, 0x1p-9f, 0, 0, 0) == 0x1p-18f);                 /* a zero factor has no exponent */
  assert_true(step3(0x1p-9f, 0x1p-9f, 0, 0, 0, 0, 4) == 4);
  assert_true(step3(1, 1, -1, 1, 0, 0, 0) == 0);
  assert_true(step3(0, 0, 0, 0, 0, 0, 5.5f) == 5.5f);
  assert_true(step3(NAN, 0, 0, 0, 0, 0, 1) != step3(NAN, 0, 0, 0, 0, 0, 1));
  assert_true(step3(1, 1, 0, 0, 0, 0, NAN) != 0);
  assert_true(step3(1, 1, 0, 0, 0, 0, INFINITY) == INFINITY);
}

static void near_exact_sums(void **state) {
  (void)state;
  cases c = {.state = 32};
  for (u32 round = 0; round < 20000; round++) {
    u8 a[32], b[32];
    double exact = 0, largest = 0;
    for (u32 i = 0; i < 32; i++) {
      a[i] = (u8)cases_below(&c, 256);
      b[i] = (u8)cases_below(&c, 256);
      if ((a[i] & 0x7f) == 0x7f) a[i] = 0x7e;
      if ((b[i] & 0x7f) == 0x7f) b[i] = 0xfe;
      double p = (double)num_from_e4m3(a[i]) * (double)num_from_e4m3(b[i]);
      exact += p;
      largest = fmax(largest, fabs(p));
    }
    assert_true(fabs((double)h32_step_reference(a, b, 0) - exact) <= 33 * largest * 0x1p-13 + fabs(exact) * 0x1p-13);
  }
}

typedef struct shape { u32 rows, n, k, continues, gathered; } shape;

/* Codes that reach the corner cases: 0 all of them, 1 large ones, 2 small ones, 3 mostly zeros, 4 neighbours that cancel, 5 the longest
 * significands of one sign, 6 an occasional NaN, 7 subnormal ones. */
static u8 code_of(cases *c, u32 kind, u32 i, u8 before) {
  u32 r = cases_bits(c), sign = r >> 31 << 7, any = (r >> 8) % 127;
  switch (kind) {
    case 1: return (u8)(sign | (64 + any / 2));
    case 2: return (u8)(sign | any % 40);
    case 3: return (u8)(sign | (r & 7 ? 0 : any));
    case 4: return i % 2 ? (u8)(before ^ 0x80 ^ (r >> 8 & 7 ? 0 : 1)) : (u8)(sign | any % 126);
    case 5: return (u8)(0x77 + (r & 1) * 4);
    case 6: return (u8)(sign | (cases_below(c, 300) ? any : 0x7f));
    case 7: return (u8)(sign | any % 9);
    default: return (u8)(sign | any);
  }
}

static f32 accumulator_of(cases *c, u32 kind) {
  u32 r = cases_bits(c), spread = cases_bits(c), negative = r & 0x80000000u;
  if (spread >> 28 == 0) return num_float(negative);
  if (spread >> 28 == 1) return cases_accumulator(c, kind % CASES_KINDS);
  return num_float(negative | (127 - 48 + spread % 76) << 23 | (r & 0x7fffff)); /* besides the products */
}

static bool same(f32 a, f32 b) { return num_bits(a) == num_bits(b) || (a != a && b != b); }

static void check_shape(const char *isa, const shape *s, u32 kind) {
  cases c = {.state = 77 + s->rows + 97 * s->n + 1009 * s->k + kind};
  const u32 ldx = s->k + 5, ldw = s->k + 3, ldy = s->n + 2;
  u8 *x = malloc((s->rows + 2) * ldx), *w = malloc((s->n - 1) * ldw + s->k); /* no byte after the readable ones */
  f32 *y = malloc(sizeof *y * s->rows * ldy), *start = malloc(sizeof *start * s->rows * ldy);
  u32 *x_row = malloc(sizeof *x_row * s->rows);
  for (u32 i = 0; i < (s->rows + 2) * ldx; i++) x[i] = code_of(&c, kind, i, i ? x[i - 1] : 0);
  for (u32 i = 0; i < (s->n - 1) * ldw + s->k; i++) w[i] = code_of(&c, kind == 4 ? 1 : kind, i, 0);
  for (u32 i = 0; i < s->n; i++)
    for (u32 k = 1; k < s->k && kind == 4; k += 2) w[i * ldw + k] = w[i * ldw + k - 1];
  for (u32 i = 0; i < s->rows * ldy; i++) start[i] = y[i] = accumulator_of(&c, kind);
  for (u32 i = 0; i < s->rows; i++) x_row[i] = s->gathered ? cases_below(&c, s->rows + 2) : i;
  h32_gemm(&(h32_job){.x = x, .x_row = s->gathered ? x_row : NULL, .w = w, .y = y, .ldx = ldx, .ldw = ldw, .ldy = ldy, .rows = s->rows,
                      .n = s->n, .k = s->k, .continues = s->continues});
  for (u32 i = 0; i < s->rows; i++)
    for (u32 j = 0; j < ldy; j++) {
      f32 want = j < s->n && !s->continues ? 0 : start[i * ldy + j];
      for (u32 k = 0; k < s->k && j < s->n; k += 32) want = h32_step_reference(x + x_row[i] * ldx + k, w + j * ldw + k, want);
      if (!same(y[i * ldy + j], want)) print_error("%s, kind %u, %ux%ux%u: row %u, column %u\n", isa, kind, s->rows, s->n, s->k, i, j);
      assert_true(same(y[i * ldy + j], want));
    }
  free(x);
  free(w);
  free(y);
  free(start);
  free(x_row);
}

static void product_repeats_the_step(void **state) {
  (void)state;
  static const char *const isas[] = FORCE_ISA_NAMES;
  static const shape shapes[] = {{1, 1, 32, 0, 0},   {5, 37, 96, 0, 1},  {64, 16, 128, 0, 0}, {66, 33, 160, 1, 0},
                                 {3, 40, 512, 0, 1}, {30, 64, 32, 1, 0}, {2, 7, 64, 1, 1},    {65, 24, 288, 0, 0}};
  for (u32 isa = 0; isa < ARRAY_LEN(isas); isa++) {
    if (force_isa(isas[isa]) != OK) {
      print_message("    SKIPPED: this processor has no %s\n", isas[isa]);
      continue;
    }
    for (u32 kind = 0; kind < 8; kind++)
      for (u32 i = 0; i < ARRAY_LEN(shapes); i++) check_shape(isas[isa], &shapes[i], kind);
  }
  assert_int_equal(force_isa(NULL), OK);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(worked_examples), cmocka_unit_test(near_exact_sums),
                                     cmocka_unit_test(product_repeats_the_step)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

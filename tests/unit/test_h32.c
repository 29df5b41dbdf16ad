/* test_h32.c - the tensor-core chain of e4m3 numbers: the definition against worked examples and sums in binary64, the product against
 * the definition. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "engine/cpu/h32.h"
#include "num.h"
#include "tests/kernel/cases.h"

/* One step with up to three pairs given as floats (which must be e4m3 numbers) and zeros elsewhere. */
static f32 step3(f32 a0, f32 b0, f32 a1, f32 b1, f32 a2, f32 b2, f32 c) {
  u8 a[32] = {num_to_e4m3(a0), [7] = num_to_e4m3(a1), [31] = num_to_e4m3(a2)};
  u8 b[32] = {num_to_e4m3(b0), [7] = num_to_e4m3(b1), [31] = num_to_e4m3(b2)};
  return h32_step_reference(a, b, c);
}

static void worked_examples(void **state) {
  (void)state;
  assert_true(step3(3, 5, 0, 0, 0, 0, 2) == 17);
  assert_true(step3(1, 1, 0x1p-6f, 0x1p-7f, 0, 0, 0) == 0x1.0008p0f);               /* 2^-13 stays  */
  assert_true(step3(1, 1, 0x1p-7f, 0x1p-7f, 0x1p-7f, 0x1p-7f, 0) == 1);              /* 2^-14 is cut, twice */
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

static void product_repeats_the_step(void **state) {
  (void)state;
  enum { ROWS = 5, N = 37, K = 96, PITCH = 100 };
  static u8 x[ROWS * PITCH], w[N * PITCH];
  static f32 y[ROWS * 40];
  cases c = {.state = 7};
  for (u32 i = 0; i < sizeof x; i++) x[i] = num_to_e4m3((f32)cases_below(&c, 2000) / 700 - 1.3f);
  for (u32 i = 0; i < sizeof w; i++) w[i] = num_to_e4m3((f32)cases_below(&c, 2000) / 300 - 3.1f);
  const u32 order[ROWS] = {4, 2, 2, 0, 1};
  h32_gemm(&(h32_job){.x = x, .x_row = order, .w = w, .y = y, .ldx = PITCH, .ldw = PITCH, .ldy = 40, .rows = ROWS, .n = N, .k = K});
  for (u32 i = 0; i < ROWS; i++)
    for (u32 j = 0; j < N; j++) {
      f32 want = 0;
      for (u32 k = 0; k < K; k += 32) want = h32_step_reference(x + order[i] * PITCH + k, w + j * PITCH + k, want);
      assert_true(y[i * 40 + j] == want);
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(worked_examples), cmocka_unit_test(near_exact_sums),
                                     cmocka_unit_test(product_repeats_the_step)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

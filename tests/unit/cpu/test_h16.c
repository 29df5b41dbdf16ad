/* test_h16.c - the tensor-core chain: its definition against worked examples and recorded GPU results, and the product in every instruction
 * set against the definition, over the distributions of cases.h and over awkward shapes. */
#include "tests/unit/unit.h"
#include "engine/cpu/cpu.h"
#include "engine/mma/h16_core.h"
#include "tests/kernel/cases.h"
#include "tests/kernel/force_isa.h"
#include <stdio.h>
#include <stdlib.h>

#define GOLDEN "tests/data/h16_steps.txt" /* outputs of cases_step that test_gemm --record-steps recorded on an H200 */

#ifdef __aarch64__
#define BATCHES 20u /* check/aarch64 runs them in an emulator */
#else
#define BATCHES 490u
#endif

static const char *const isas[] = FORCE_ISA_NAMES;

/* Equal bits; NaN payloads are not part of the contract. */
static int same(f32 a, f32 b) { return num_bits(a) == num_bits(b) || (a != a && b != b); }

/* One step with up to three pairs given as floats (which must be bf16 numbers); all other pairs are zero. */
static f32 step3(f32 a0, f32 b0, f32 a1, f32 b1, f32 a2, f32 b2, f32 c) {
  bf16 a[16] = {num_to_bf16(a0), num_to_bf16(a1), num_to_bf16(a2)}, b[16] = {num_to_bf16(b0), num_to_bf16(b1), num_to_bf16(b2)};
  return h16_step_reference(a, b, c);
}

static void check(f32 got, f32 want) {
  if (!same(got, want)) printf("    got %a, want %a\n", (double)got, (double)want);
  assert_true(same(got, want));
}

static void worked_examples(void **state) {
  (void)state;
  check(step3(3, 5, 0, 0, 0, 0, 2), 17);
  check(step3(1, 1, 0x1p-12f, 0x1p-13f, 0, 0, 0x1p-25f), 1); /* 2^-25 stays, twice; the sum 1 + 2^-24 is truncated */
  check(step3(1, 1, 0x1p-12f, -0x1p-13f, 0, 0, 0), 0x1.fffffep-1f); /* 1 - 2^-25 toward zero */
  check(step3(1, 1, 0x1p-13f, -0x1p-13f, 0, 0, 0), 1); /* 2^-26 is truncated before it can borrow */
  check(step3(1.5f, 1.5f, 0x1p-22f, 0x7p-3f, 0x1p-25f, 1, 0), 0x1.200002p1f); /* eight times 2^-25 */
  check(step3(1.5f, 1.5f, 0x1p-22f, 0x7p-3f, 0x1p-26f, 1, 0), 0x1.2p1f);      /* seven of them, and one truncated */
  check(step3(0x1p-60f, 0x1p-60f, 1, 0x1p-126f, 0, 0, 0), 0x1p-120f + 0x1p-126f);
  check(step3(0x1p-100f, 0x1p-40f, 0, 0, 0, 0, 0), 0x1p-140f);
  check(step3(0x1p-100f, -0x1p-55f, 0, 0, 0, 0, 0), -0.0f); /* nonzero, truncated to zero */
  check(step3(0x1p-100f, 0x1p-59f, 0, 0, 0, 0, 0), 0.0f);   /* below 2^-158 no term is left */
  check(step3(0x1p-100f, -0x1p-59f, 0, 0, 0, 0, 0), 0.0f);  /* nor is a sign */
  check(step3(0, 0, 0, 0, 0, 0, -0.0f), 0.0f);
  check(step3(1, 1, -1, 1, 0, 0, -0.0f), 0.0f);
  check(step3(0, 0, 0, 0, 0, 0, 0x1p-149f), 0x1p-149f);
  check(step3(0x1p64f, 0x1p63f, 0x1p64f, 0x1p63f, 0, 0, 0), INFINITY);
  check(step3(0x1p64f, -0x1p64f, 0, 0, 0, 0, 0), -INFINITY);
  check(step3(0x1p64f, 0x1p64f, 0x1p64f, -0x1p64f, 1, 1, 0), 0.0f); /* 1 is far below 2^(128-25) */
  check(step3(INFINITY, 1, 0, 0, 0, 0, 1), INFINITY);
  check(step3(INFINITY, 1, 0, 0, 0, 0, -INFINITY), NAN);
  check(step3(INFINITY, 0, 0, 0, 0, 0, 1), NAN);
  check(step3(NAN, 0, 0, 0, 0, 0, 1), NAN);
  check(step3(1, 1, 0, 0, 0, 0, NAN), NAN);
}

/* The largest exponent is that of the unnormalised product: 1.5 * 1.5 counts as 2^0, so that 2^-25 stays. Eight of them make 2^-22, the
 * last place of 2.25. */
static void products_are_not_normalised(void **state) {
  (void)state;
  bf16 a[16] = {num_to_bf16(1.5f)}, b[16] = {num_to_bf16(1.5f)};
  for (u32 i = 1; i <= 8; i++) {
    a[i] = num_to_bf16(0x1p-12f);
    b[i] = num_to_bf16(0x1p-13f);
  }
  check(h16_step_reference(a, b, 0), 2.25f + 0x1p-22f);
  a[0] = num_to_bf16(2.0f); /* now E is 1: all eight are truncated */
  b[0] = num_to_bf16(1.0f);
  check(h16_step_reference(a, b, 0), 2.0f);
  a[0] = 1; /* a subnormal counts as 2^-126: with 2^100 the exponent is -26, and 2^-52 is truncated although the product is 2^-33 */
  b[0] = num_to_bf16(0x1p100f);
  for (u32 i = 1; i <= 8; i++) {
    a[i] = num_to_bf16(0x1p-26f);
    b[i] = num_to_bf16(0x1p-26f);
  }
  check(h16_step_reference(a, b, 0), 0x1p-33f);
}

static f32 chain(const bf16 *a, const bf16 *b, u64 b_stride, u32 k, f32 c) {
  for (u32 i = 0; i < k; i += 16) {
    bf16 column[16];
    for (u32 j = 0; j < 16; j++) column[j] = b[(i + j) * b_stride];
    c = h16_step_reference(a + i, column, c);
  }
  return c;
}

static void recorded_on_the_gpu(void **state) {
  (void)state;
  FILE *file = fopen(GOLDEN, "r");
  if (!file) {
    printf("    SKIPPED: no golden steps recorded: %s\n", GOLDEN);
    skip();
  }
  for (u32 i = 0; i < CASES_STEP_COUNT; i++) {
    bf16 a[32], b[32];
    unsigned bits;
    cases_step(i, a, b);
    assert_int_equal(fscanf(file, "%8x", &bits), 1);
    f32 got = num_add(chain(a, b, 1, 32, 0), 0.0f), want = num_float(bits);
    if (!same(got, want)) printf("    step %u: got %a, the GPU gave %a\n", i, (double)got, (double)want);
    assert_true(same(got, want));
  }
  fclose(file);
}

/* 2,048 steps at a time: 64 rows, 32 columns, one step each from a random accumulator. */
static void random_steps(void **state) {
  (void)state;
  static bf16 x[64 * 16], w[32 * 16];
  static f32 start[64 * 32], want[64 * 32], got[64 * 32];
  static _Alignas(64) char scratch[H16_SCRATCH_BYTES];
  for (u32 kind = 0; kind < CASES_KINDS; kind++) {
    cases c = {.state = 77 + kind};
    u32 specials = 0;
    for (u32 batch = 0; batch < BATCHES; batch++) {
      for (u32 i = 0; i < 64; i++) cases_fill(&c, kind, 0, x + 16 * i, 16);
      for (u32 i = 0; i < 32; i++) cases_fill(&c, kind, 1, w + 16 * i, 16);
      for (u32 i = 0; i < 64 * 32; i++) {
        start[i] = cases_accumulator(&c, kind);
        want[i] = chain(x + i / 32 * 16, w + i % 32 * 16, 1, 16, start[i]);
        specials += (num_bits(want[i]) & 0x7fffffffu) == 0 || (num_bits(want[i]) & 0x7f800000u) == 0x7f800000u;
      }
      for (u32 isa = 0; isa < ARRAY_LEN(isas); isa++) {
        if (force_isa(isas[isa]) != OK) continue;
        memcpy(got, start, sizeof got);
        h16_job job = {.x = x, .w = w, .y = got, .ldx = 16, .ldw = 16, .ldy = 32, .rows = 64, .n = 32, .k = 16, .continues = 1};
        h16_gemm(&job, scratch);
        for (u32 i = 0; i < 64 * 32; i++) {
          if (!same(got[i], want[i]))
            printf("    %s, kind %u, step %u: %a, want %a\n", isas[isa], kind, i, (double)got[i], (double)want[i]);
          assert_true(same(got[i], want[i]));
        }
      }
    }
    printf("    kind %u: %u steps, %u results zero, Inf or NaN\n", kind, BATCHES * 2048u, specials);
  }
  assert_int_equal(force_isa(NULL), OK);
  fail_clear();
}

typedef struct shape { u32 rows, n, k, k_major, k_rows, gathered, limited, continues; } shape;

#define GUARD 0x7fc0dead

static void check_shape(const shape *s, u32 kind, const char *isa) {
  cases c = {.state = 5 + s->rows + 97 * s->n + 1009 * s->k};
  u32 ldw = s->k_major ? s->n + 3 : s->k + 5, w_rows = s->k_major ? s->k_rows : s->n, ldx = s->k + 7, ldy = s->n + 2;
  bf16 *x = malloc(sizeof *x * (s->rows + 3) * ldx), *w = malloc(sizeof *w * w_rows * ldw); /* no byte after the readable ones */
  f32 *y = malloc(sizeof *y * s->rows * ldy), *start = malloc(sizeof *start * s->rows * ldy);
  u32 *x_row = malloc(sizeof *x_row * s->rows), *k_valid = malloc(sizeof *k_valid * s->rows);
  void *scratch = aligned_alloc(64, H16_SCRATCH_BYTES);
  memset(scratch, 0xff, H16_SCRATCH_BYTES);
  cases_fill(&c, kind, 0, x, (s->rows + 3) * ldx);
  cases_fill(&c, kind, 1, w, w_rows * ldw);
  for (u32 i = 0; i < s->rows * ldy; i++) start[i] = y[i] = i % ldy < s->n ? cases_accumulator(&c, kind) : num_float(GUARD);
  for (u32 i = 0; i < s->rows; i++) {
    x_row[i] = s->gathered ? cases_below(&c, s->rows + 3) : i;
    k_valid[i] = s->limited && !s->gathered ? cases_below(&c, s->k + 1) : s->k;
    for (u32 k = k_valid[i]; k < s->k; k++) x[x_row[i] * ldx + k] = 0;
  }
  h16_job job = {.x = x, .w = w, .y = y, .ldx = ldx, .ldw = ldw, .ldy = ldy, .rows = s->rows, .n = s->n, .k = s->k};
  job.x_row = s->gathered ? x_row : NULL;
  job.k_valid = s->limited && !s->gathered ? k_valid : NULL;
  job.k_major = s->k_major;
  job.k_rows = s->k_rows;
  job.continues = s->continues;
  assert_int_equal(force_isa(isa), OK);
  h16_gemm(&job, scratch);
  bf16 *column = malloc(sizeof *column * s->k);
  for (u32 i = 0; i < s->rows; i++) {
    for (u32 j = 0; j < ldy; j++) {
      f32 want = s->continues || j >= s->n ? start[i * ldy + j] : 0.0f;
      for (u32 k = 0; k < s->k && j < s->n; k++)
        column[k] = k >= k_valid[i] || (s->k_major && k >= s->k_rows) ? 0 : s->k_major ? w[k * ldw + j] : w[j * ldw + k];
      if (j < s->n) want = chain(x + x_row[i] * ldx, column, 1, s->k, want);
      if (!same(y[i * ldy + j], want)) printf("    %s %ux%ux%u: row %u column %u\n", isa, s->rows, s->n, s->k, i, j);
      assert_true(j < s->n ? same(y[i * ldy + j], want) : num_bits(y[i * ldy + j]) == GUARD);
    }
  }
  free(column);
  free(scratch);
  free(k_valid);
  free(x_row);
  free(start);
  free(y);
  free(w);
  free(x);
}

static void awkward_shapes(void **state) {
  (void)state;
  static const shape shapes[] = {
      {1, 1, 16, 0, 0, 0, 0, 0},    {1, 8, 64, 0, 0, 0, 0, 0},     {3, 33, 80, 0, 0, 0, 0, 1},   {65, 31, 96, 0, 0, 1, 0, 0},
      {2, 17, 112, 0, 0, 0, 0, 0},  {64, 64, 64, 1, 64, 0, 1, 1},  {5, 40, 64, 1, 1, 0, 1, 1},   {7, 9, 64, 1, 17, 0, 0, 0},
      {130, 48, 48, 1, 48, 1, 0, 0}, {4, 1, 64, 1, 33, 0, 0, 1},   {1, 100, 576, 0, 0, 0, 0, 0}, {9, 16, 288, 0, 0, 0, 0, 1},
      {2, 32, 144, 1, 70, 0, 1, 1},
  };
  static const u32 kinds[] = {CASES_NORMAL, CASES_ANY, CASES_SPECIAL};
  for (u32 isa = 0; isa < ARRAY_LEN(isas); isa++) {
    if (force_isa(isas[isa]) != OK) {
      printf("    SKIPPED: this processor lacks %s\n", isas[isa]);
      continue;
    }
    for (u32 i = 0; i < ARRAY_LEN(shapes); i++) {
      for (u32 kind = 0; kind < ARRAY_LEN(kinds); kind++) check_shape(&shapes[i], kinds[kind], isas[isa]);
    }
  }
  assert_int_equal(force_isa(NULL), OK);
  fail_clear();
}

static void forcing_an_instruction_set(void **state) {
  (void)state;
  assert_int_equal(force_isa("mmx"), ERR_USAGE);
  assert_string_not_equal(fail_text(), "");
  fail_clear();
  assert_int_equal(force_isa("portable"), OK);
  assert_string_equal(cpu_isa_core()->isa, "portable");
  assert_int_equal(force_isa(NULL), OK);
  assert_string_equal(cpu_isa_core()->isa, cpu_isa());
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(worked_examples),     cmocka_unit_test(products_are_not_normalised),
      cmocka_unit_test(recorded_on_the_gpu), cmocka_unit_test(random_steps),
      cmocka_unit_test(awkward_shapes),      cmocka_unit_test(forcing_an_instruction_set),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

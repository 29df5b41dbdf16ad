/* test_residual.c - the CPU reference of rmsnorm when x_out is a buffer of its own.
 *
 * The planner's plans update the residual stream in place; the op allows both (NUMERICS.md, `rmsnorm`). Both must give the same bits, x
 * must not change, and x_out must change only in the rows that are read. tests/kernel/test_rmsnorm.c tests the op in place. */
#include "tests/unit/unit.h"
#include <string.h>
#include "engine/cpu/cpu.h"
#include "kernels_src/num.h"
#include "tests/kernel/cases.h"

#define ROWS 5u
#define SOURCES 11u
#define DIM 300u
#define STRIDE 304u
#define DELTA_SCALE 0.35f
#define UNTOUCHED 0xffc0ffeeu

typedef struct buffers {
  f32 x[SOURCES * STRIDE], out[SOURCES * STRIDE];
  bf16 y[ROWS * DIM];
} buffers;

static cpu_pool *pool;
static buffers apart, in_place, start;
static f32 delta[SOURCES * STRIDE];
static bf16 weight[DIM];
static const u32 index_of[ROWS] = {9, 0, 4, 10, 2};

static void fill(void) {
  cases c = {.state = 77};
  for (u32 i = 0; i < SOURCES * STRIDE; i++) {
    start.x[i] = cases_uniform(&c, 3.0f);
    delta[i] = cases_uniform(&c, 1.0f);
    start.out[i] = num_float(UNTOUCHED);
  }
  for (u32 i = 0; i < DIM; i++) weight[i] = num_to_bf16(cases_uniform(&c, 2.0f));
  apart = in_place = start;
}

static void normalise(buffers *b, f32 *x_out, bool indexed, bool add) {
  const step_in step = {.token_count = indexed ? 20 : ROWS, .logit_count = indexed ? ROWS : 0};
  rmsnorm_args a = {.step = &step, .row_index = indexed ? index_of : NULL, .x = b->x, .delta = add ? delta : NULL, .x_out = x_out,
                    .weight = weight, .y = b->y, .rows_kind = indexed ? ROWS_LOGITS : ROWS_TOKENS, .dim = DIM, .x_stride = STRIDE,
                    .y_stride = DIM, .eps = 1e-6f, .delta_scale = DELTA_SCALE, .y_scale = 1};
  cpu_rmsnorm(&a, pool);
}

static bool is_read(u32 source, bool indexed) {
  if (!indexed) return source < ROWS;
  for (u32 i = 0; i < ROWS; i++)
    if (index_of[i] == source) return true;
  return false;
}

static void check(bool indexed, bool add) {
  fill();
  normalise(&apart, apart.out, indexed, add);
  normalise(&in_place, in_place.x, indexed, add);
  assert_memory_equal(apart.y, in_place.y, sizeof apart.y);
  assert_memory_equal(apart.x, start.x, sizeof start.x);
  for (u32 source = 0; source < SOURCES; source++)
    for (u32 i = 0; i < STRIDE; i++) {
      u32 at = source * STRIDE + i, found = num_bits(apart.out[at]);
      f32 sum = add ? num_fma(delta[at], DELTA_SCALE, start.x[at]) : start.x[at];
      assert_int_equal(found, is_read(source, indexed) && i < DIM ? num_bits(sum) : UNTOUCHED);
    }
}

static void output_apart_equals_in_place(void **state) { (void)state, check(false, true); }
static void with_row_index(void **state) { (void)state, check(true, true); }
static void without_delta_it_is_a_copy(void **state) { (void)state, check(false, false); }

/* Control: the comparison of y notices one changed number of x. */
static void a_changed_input_is_seen(void **state) {
  (void)state;
  fill();
  apart.x[2 * STRIDE + 5] += 1.0f;
  normalise(&apart, apart.out, false, true);
  normalise(&in_place, in_place.x, false, true);
  assert_memory_not_equal(apart.y, in_place.y, sizeof apart.y);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(output_apart_equals_in_place), cmocka_unit_test(with_row_index),
                                     cmocka_unit_test(without_delta_it_is_a_copy), cmocka_unit_test(a_changed_input_is_seen)};
  if (cpu_pool_open(&pool, 2) != OK) return 1;
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  cpu_pool_close(pool);
  return failed;
}

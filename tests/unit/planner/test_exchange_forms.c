/* test_exchange_forms.c - the planner's choices and checks for the op `exchange`: its form by rows, and arguments that are refused. */
#include "tests/unit/unit.h"
#include "planner/checks/reading.h"
#include "planner/specialise.h"

static exchange_args args_of(uint32_t count, uint32_t part_bytes, uint32_t rows_mul) {
  return (exchange_args){.count = count, .part_bytes = {part_bytes}, .rows_mul = {rows_mul}};
}

static uint64_t extent(plan_dim d, uint64_t rows) {
  uint64_t blocks = d.constant + (d.rows_div ? div_up(rows * d.rows_mul, d.rows_div) : 0);
  return d.cap && blocks > d.cap ? d.cap : blocks;
}

static uint32_t spec_of(const specialise_choice *choice, const char *name) {
  for (uint32_t i = 0; i < choice->spec_count; i++)
    if (strcmp(choice->specs[i].name, name) == 0) return choice->specs[i].value;
  fail_msg("no %s", name);
  return 0;
}

/* Words with tags up to EXCHANGE_TAGGED_BYTES, which is what the inbox has room for; every row count has one form. */
static void tags_are_for_few_bytes(void **state) {
  (void)state;
  static const uint32_t parts[] = {8, 24, 3584, 14336, 64640, 262144, 262152, 1u << 20};
  for (uint32_t count = 2; count <= RANKS_MAX; count++)
    for (size_t p = 0; p < ARRAY_LEN(parts); p++)
      for (uint32_t mul = 1; mul <= 3; mul++) {
        specialise_choice choices[SPECIALISE_CHOICES_MAX];
        exchange_args a = args_of(count, parts[p], mul);
        a.part_bytes[1] = 8, a.rows_mul[1] = 1;
        const uint64_t row_bytes = (uint64_t)parts[p] * mul + 8;
        uint32_t next = 1, found = specialise_op(OP_exchange, &a, 1, 8192, choices);
        for (uint32_t i = 0; i < found; i++) {
          const bool tagged = spec_of(&choices[i], "SPEC_TAGGED") == 1;
          assert_int_equal(choices[i].rows_min, next);
          assert_int_equal(choices[i].threads, 512);
          if (tagged) assert_true(choices[i].rows_max * row_bytes <= EXCHANGE_TAGGED_BYTES);
          else assert_true(choices[i].rows_min * row_bytes > EXCHANGE_TAGGED_BYTES);
          assert_in_range(extent(choices[i].grid[0], choices[i].rows_min), 1, EXCHANGE_BLOCKS_MAX);
          assert_in_range(extent(choices[i].grid[0], choices[i].rows_max), 1, EXCHANGE_BLOCKS_MAX);
          assert_true(extent(choices[i].grid[1], 8192) == 1 && extent(choices[i].grid[2], 8192) == 1);
          next = choices[i].rows_max + 1;
        }
        assert_int_equal(next, 8193);
      }
}

static bool accepts(const exchange_args *a) {
  const plan_limits limits = {.ranks = a->count};
  const reader r = {.l = &limits, .name = "exchange", .rows_max = 8192, .rows_kind = ROWS_TOKENS};
  const bool ok = checks_exchange.values(&r, a) == OK;
  fail_clear();
  return ok;
}

static void wrong_arguments_are_refused(void **state) {
  (void)state;
  exchange_args a = args_of(2, 1024, 1);
  assert_true(accepts(&a));
  a.nth = EXCHANGE_PER_STEP_MAX - 1;
  assert_true(accepts(&a));
  a.nth++;
  assert_false(accepts(&a));
  for (uint32_t count = 0; count <= RANKS_MAX + 1; count++) {
    a = args_of(count, 1024, 1);
    assert_true(accepts(&a) == (count >= 2 && count <= RANKS_MAX));
  }
  a = args_of(2, 1028, 1);
  assert_false(accepts(&a));
  a = args_of(2, 0, 0);
  assert_false(accepts(&a)); /* nothing to exchange */
  a = args_of(2, 1024, 0);
  assert_false(accepts(&a));
  a = args_of(2, 1024, 1);
  a.rows_mul[1] = 1;
  assert_false(accepts(&a));
  a.part_bytes[1] = 8;
  assert_true(accepts(&a));
  a.rows_mul[3] = 1, a.part_bytes[3] = 8; /* after a table that is not there */
  assert_false(accepts(&a));
  a = args_of(2, 1024, 1);
  a.rows_kind = ROWS_LOGITS;
  assert_false(accepts(&a));
  a = args_of(2, 1u << 20, 1); /* 8192 rows of 2^17 units on two ranks: 2^31 */
  assert_true(accepts(&a));
  a.rows_mul[0] = 2;
  assert_false(accepts(&a));
  a = args_of(2, UINT32_MAX - 7, UINT32_MAX);
  assert_false(accepts(&a));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(tags_are_for_few_bytes), cmocka_unit_test(wrong_arguments_are_refused)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

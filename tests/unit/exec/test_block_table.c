/* test_block_table.c - what is uploaded to the device with which step, and when the device has read it.
 *
 * This test only counts steps; the scheduler's tests run them on a device that reads its rows as late as it may. */
#include "tests/unit/unit.h"
#include "engine/exec/block_table.h"

enum { SLOTS = 4, ROW_PAGES = 3 };

static uint32_t rows[SLOTS * ROW_PAGES];
static token_bias lists[SLOTS * TOKEN_LIST_MAX];
static block_table table;
static arena host;

static int open_table(void **state) {
  (void)state;
  host = (arena){0};
  return (int)block_table_open(&table, SLOTS, ROW_PAGES, rows, lists, &host);
}

static int close_table(void **state) {
  (void)state;
  arena_close(&host);
  return 0;
}

/* Submits a step of that side and expects these slots to be uploaded with it, in this order. list_count: that of the first slot. */
static void expect_sent(uint32_t side, const uint32_t *slots, uint32_t count, uint32_t list_count) {
  uint32_t found;
  const block_change *changes = block_table_send(&table, side, &found);
  assert_int_equal(found, count);
  for (uint32_t i = 0; i < count; i++) assert_int_equal(changes[i].slot, slots[i]);
  if (count) assert_int_equal(changes[0].list_count, list_count);
}

static void rows_lie_one_after_the_other(void **state) {
  (void)state;
  assert_ptr_equal(block_table_row(&table, 2), rows + 2 * ROW_PAGES);
  assert_ptr_equal(block_table_list(&table, 3), lists + 3 * TOKEN_LIST_MAX);
  assert_int_equal(block_table_row_bytes(SLOTS, ROW_PAGES), sizeof rows);
  assert_int_equal(block_table_list_bytes(SLOTS), sizeof lists);
}

static void a_change_goes_to_each_side_once(void **state) {
  (void)state;
  block_table_change(&table, 2, 0);
  block_table_change(&table, 1, 0);
  block_table_change(&table, 2, 0);
  expect_sent(1, (const uint32_t[]){2, 1}, 2, 0);
  expect_sent(1, NULL, 0, 0);
  block_table_change(&table, 3, 0);
  expect_sent(0, (const uint32_t[]){2, 1, 3}, 3, 0);
  expect_sent(0, NULL, 0, 0);
  expect_sent(1, (const uint32_t[]){3}, 1, 0);
}

static void growth_does_not_lose_the_list(void **state) {
  (void)state;
  block_table_change(&table, 0, 7);
  block_table_change(&table, 0, 0);
  expect_sent(0, (const uint32_t[]){0}, 1, 7);
  block_table_change(&table, 0, 0); /* side 1 has neither the row nor the list */
  expect_sent(1, (const uint32_t[]){0}, 1, 7);
  expect_sent(0, (const uint32_t[]){0}, 1, 0);
}

static void a_change_is_withdrawn_until_it_is_sent(void **state) {
  (void)state;
  block_table_change(&table, 0, 3);
  block_table_change(&table, 1, 0);
  block_table_withdraw(&table, 0);
  block_table_withdraw(&table, 2);
  expect_sent(0, (const uint32_t[]){1}, 1, 0);
  block_table_withdraw(&table, 1);
  expect_sent(1, (const uint32_t[]){1}, 1, 0);
  block_table_change(&table, 0, 2);
  expect_sent(0, (const uint32_t[]){0}, 1, 2);
}

static void a_row_was_read_when_its_last_step_is_done(void **state) {
  (void)state;
  assert_true(block_table_was_read(&table, 1));
  block_table_change(&table, 1, 0);
  assert_true(block_table_was_read(&table, 1)); /* no step in flight reads it */
  expect_sent(0, (const uint32_t[]){1}, 1, 0);
  assert_false(block_table_was_read(&table, 1));
  assert_true(block_table_was_read(&table, 0));
  expect_sent(1, (const uint32_t[]){1}, 1, 0);
  block_table_done(&table);
  assert_false(block_table_was_read(&table, 1));
  expect_sent(0, NULL, 0, 0);
  block_table_done(&table);
  assert_true(block_table_was_read(&table, 1));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(rows_lie_one_after_the_other, open_table, close_table),
      cmocka_unit_test_setup_teardown(a_change_goes_to_each_side_once, open_table, close_table),
      cmocka_unit_test_setup_teardown(growth_does_not_lose_the_list, open_table, close_table),
      cmocka_unit_test_setup_teardown(a_change_is_withdrawn_until_it_is_sent, open_table, close_table),
      cmocka_unit_test_setup_teardown(a_row_was_read_when_its_last_step_is_done, open_table, close_table),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

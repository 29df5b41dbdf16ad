/* test_pages.c - the KV page list: every page is dealt once, comes back, and a seed changes the order and nothing else. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>
#include "engine/pages.h"

#define TOTAL 500u

static void deal_all(uint64_t seed, uint32_t numbers[TOTAL]) {
  arena host = {0};
  pages p;
  uint8_t seen[TOTAL] = {0};
  assert_int_equal(pages_open(&p, TOTAL, seed, &host), OK);
  for (uint32_t i = 0; i < TOTAL; i += 25) pages_take(&p, numbers + i, 25);
  assert_int_equal(p.free_count, 0);
  for (uint32_t i = 0; i < TOTAL; i++) {
    assert_true(numbers[i] < TOTAL && !seen[numbers[i]]);
    seen[numbers[i]] = 1;
  }
  pages_give(&p, numbers, TOTAL);
  assert_int_equal(p.free_count, TOTAL);
  uint32_t again[3];
  pages_take(&p, again, 3);
  assert_memory_equal(again, numbers, sizeof again); /* what came back is dealt in the same order */
  arena_close(&host);
}

static void all_once(void **state) {
  (void)state;
  uint32_t plain[TOTAL], one[TOTAL], other[TOTAL];
  deal_all(0, plain);
  deal_all(1, one);
  deal_all(2, other);
  for (uint32_t i = 0; i < TOTAL; i++) assert_int_equal(plain[i], i);
  assert_memory_not_equal(one, plain, sizeof one);
  assert_memory_not_equal(one, other, sizeof one);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(all_once)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_pages.c - KV pages: every page is handed out once and returned; a seed changes only the order; pages with keys are found again until
 * they are evicted, the least recently used first. A long random use is compared with a model that searches plain lists. */
#include "tests/unit/unit.h"
#include <string.h>
#include "engine/requests/pages.h"

#define TOTAL 500u
#define FEW 12u
#define KEYS 40u

static void deal_all(uint64_t seed, uint32_t numbers[TOTAL]) {
  arena host = {0};
  pages p;
  bool evicted;
  uint8_t seen[TOTAL] = {0};
  assert_int_equal(pages_open(&p, TOTAL, seed, &host), OK);
  for (uint32_t i = 0; i < TOTAL; i++) {
    numbers[i] = pages_take(&p, &evicted);
    assert_true(!evicted && numbers[i] < TOTAL && !seen[numbers[i]]);
    seen[numbers[i]] = 1;
  }
  assert_int_equal(pages_available(&p), 0);
  for (uint32_t i = TOTAL; i > 0; i--) assert_true(pages_give(&p, numbers[i - 1]));
  assert_int_equal(pages_available(&p), TOTAL);
  for (uint32_t i = 0; i < 3; i++) assert_int_equal(pages_take(&p, &evicted), numbers[i]); /* the page returned last is handed out first */
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

/* Keys that share a bucket, and some that do not. */
static digest key_of(uint32_t i) {
  digest key = {{(uint8_t)(i % 3)}};
  key.bytes[15] = (uint8_t)i;
  return key;
}

static void kept_pages_are_found_until_evicted(void **state) {
  (void)state;
  arena host = {0};
  pages p;
  bool evicted;
  uint32_t numbers[4];
  assert_int_equal(pages_open(&p, 4, 0, &host), OK);
  for (uint32_t i = 0; i < 4; i++) {
    digest key = key_of(i);
    numbers[i] = pages_take(&p, &evicted);
    pages_name(&p, numbers[i], &key);
  }
  for (uint32_t i = 0; i < 4; i++) assert_false(pages_give(&p, numbers[i])); /* stored, the first one longest */
  digest first = key_of(0), second = key_of(1), none = key_of(9);
  assert_int_equal(pages_find(&p, &none), PAGES_NONE);
  assert_int_equal(pages_find(&p, &first), numbers[0]); /* in use again */
  assert_int_equal(pages_find(&p, &first), numbers[0]); /* by two requests */
  assert_int_equal(pages_take(&p, &evicted), numbers[1]);
  assert_true(evicted);
  assert_int_equal(pages_peek(&p, &second), PAGES_NONE);
  pages_name(&p, numbers[1], &first); /* another page has it: this one gets no key */
  assert_true(pages_give(&p, numbers[1]));
  assert_false(pages_give(&p, numbers[0]));
  assert_int_equal(pages_available(&p), 3);
  assert_false(pages_give(&p, numbers[0]));
  assert_int_equal(pages_peek(&p, &first), numbers[0]);
  arena_close(&host);
}

/* === Against a model ======================================================================================================== */

typedef struct model_page { uint32_t users, key; uint64_t used; } model_page; /* key UINT32_MAX: none */

static uint32_t find_key(const model_page *m, uint32_t key) {
  for (uint32_t i = 0; i < FEW; i++)
    if (m[i].key == key) return i;
  return PAGES_NONE;
}

static uint32_t oldest_kept(const model_page *m) {
  uint32_t best = PAGES_NONE;
  for (uint32_t i = 0; i < FEW; i++)
    if (m[i].users == 0 && m[i].key != UINT32_MAX && (best == PAGES_NONE || m[i].used < m[best].used)) best = i;
  return best;
}

/* Returns how many are free from then on. */
static uint32_t forget_all(model_page *m) {
  uint32_t kept = 0;
  for (uint32_t i = 0; i < FEW; i++) {
    kept += m[i].users == 0 && m[i].key != UINT32_MAX;
    m[i].key = UINT32_MAX;
  }
  return kept;
}

static void random_use(void **state) {
  (void)state;
  arena host = {0};
  pages p;
  model_page m[FEW];
  uint64_t seed = 1, clock = 0;
  uint32_t evictions = 0, hits = 0, forgotten = 0;
  assert_int_equal(pages_open(&p, FEW, 7, &host), OK);
  for (uint32_t i = 0; i < FEW; i++) m[i] = (model_page){.key = UINT32_MAX};
  for (uint32_t turn = 0; turn < 200000; turn++) {
    seed = seed * 6364136223846793005ull + 1442695040888963407ull;
    uint32_t key_number = (uint32_t)(seed >> 40) % KEYS, number = (uint32_t)(seed >> 33) % FEW, expected = find_key(m, key_number);
    digest key = key_of(key_number);
    bool evicted;
    if (turn % 1000 == 999) {
      uint32_t kept = pages_forget(&p);
      assert_int_equal(kept, forget_all(m));
      for (uint32_t i = 0; i < kept; i++) assert_int_equal(m[p.free[p.free_count - 1 - i]].users, 0);
      expected = PAGES_NONE;
      forgotten += kept;
    }
    switch (seed >> 61) {
      case 0: case 1:
        if (pages_available(&p) == 0) break;
        expected = oldest_kept(m);
        number = pages_take(&p, &evicted);
        assert_int_equal(m[number].users, 0);
        assert_int_equal(evicted, m[number].key != UINT32_MAX);
        if (evicted) assert_int_equal(number, expected), evictions++;
        m[number] = (model_page){.users = 1, .key = UINT32_MAX};
        break;
      case 2:
        assert_int_equal(pages_find(&p, &key), expected);
        if (expected != PAGES_NONE) m[expected].users++, hits++;
        break;
      case 3:
        if (m[number].users == 0) break;
        pages_name(&p, number, &key);
        if (expected == PAGES_NONE && m[number].key == UINT32_MAX) m[number].key = key_number;
        break;
      default:
        if (m[number].users == 0) break;
        m[number].used = ++clock;
        assert_int_equal(pages_give(&p, number), --m[number].users == 0 && m[number].key == UINT32_MAX);
    }
    uint32_t unused = 0;
    for (uint32_t i = 0; i < FEW; i++) unused += m[i].users == 0;
    assert_int_equal(pages_available(&p), unused);
    assert_int_equal(pages_peek(&p, &key), find_key(m, key_number));
  }
  assert_true(evictions > 1000 && hits > 1000 && forgotten > 100);
  arena_close(&host);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(all_once), cmocka_unit_test(kept_pages_are_found_until_evicted),
                                     cmocka_unit_test(random_use)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_place.c - placement by lifetime: buffers that are alive together never overlap, whatever the graph; the result depends only on the
 * graph. */
#include "tests/unit/unit.h"
#include "planner/place.h"
#include "planner_fixture.h"

#define BUFFERS_MAX 300u

static uint64_t random_state = 88172645463325252u;
static uint32_t random_below(uint32_t limit) { /* xorshift64 */
  random_state ^= random_state << 13;
  random_state ^= random_state >> 7;
  random_state ^= random_state << 17;
  return (uint32_t)(random_state >> 32) % limit;
}

static uint32_t make_buffers(plan_buffer *buffers, plan_buffer **list) {
  uint32_t count = 1 + random_below(BUFFERS_MAX), ops = 1 + random_below(200);
  for (uint32_t i = 0; i < count; i++) {
    uint32_t first = random_below(ops), length = random_below(random_below(10) == 0 ? ops : 8);
    uint64_t bytes = 1 + (uint64_t)random_below(1u << random_below(24));
    buffers[i] = (plan_buffer){.region = REGION_WORK, .bytes = bytes, .first_op = first, .last_op = min_u32(ops - 1, first + length)};
    if (random_below(40) == 0) buffers[i].last_op = UINT32_MAX;
    list[i] = &buffers[i];
  }
  return count;
}

static bool overlap(const plan_buffer *a, const plan_buffer *b) {
  bool together = !(a->last_op < b->first_op || b->last_op < a->first_op);
  return together && a->offset < b->offset + b->bytes && b->offset < a->offset + a->bytes;
}

/* The most bytes alive at one op, the lower bound of any placement. */
static uint64_t live_bytes(const plan_buffer *buffers, uint32_t count) {
  uint64_t most = 0;
  for (uint32_t i = 0; i < count; i++) {
    uint64_t sum = 0;
    for (uint32_t j = 0; j < count; j++)
      if (buffers[j].first_op <= buffers[i].first_op && buffers[i].first_op <= buffers[j].last_op) sum += buffers[j].bytes;
    most = sum > most ? sum : most;
  }
  return most;
}

static void random_graphs_never_overlap(void **state) {
  (void)state;
  static plan_buffer buffers[BUFFERS_MAX], again[BUFFERS_MAX];
  static plan_buffer *list[BUFFERS_MAX], *list_again[BUFFERS_MAX];
  for (uint32_t round = 0; round < 300; round++) {
    uint32_t count = make_buffers(buffers, list);
    memcpy(again, buffers, sizeof again);
    for (uint32_t i = 0; i < count; i++) list_again[i] = &again[i];
    uint64_t total = place_lifetimes(list, count), end = 0;
    for (uint32_t i = 0; i < count; i++) {
      assert_true(buffers[i].offset % PLACE_ALIGNMENT == 0);
      end = buffers[i].offset + buffers[i].bytes > end ? buffers[i].offset + buffers[i].bytes : end;
      for (uint32_t j = 0; j < i; j++)
        if (overlap(&buffers[i], &buffers[j])) fail_msg("round %u: buffers %u and %u overlap", round, i, j);
    }
    assert_true(total == end);
    assert_true(total >= live_bytes(buffers, count));
    assert_true(place_lifetimes(list_again, count) == total);
    assert_memory_equal(again, buffers, count * sizeof *buffers);
  }
}

static void lifetimes_that_meet_share_nothing(void **state) {
  (void)state;
  plan_buffer a = {.bytes = 100, .first_op = 0, .last_op = 3}, b = {.bytes = 100, .first_op = 3, .last_op = 5},
              c = {.bytes = 100, .first_op = 4, .last_op = 6};
  plan_buffer *list[] = {&a, &b, &c};
  assert_true(place_lifetimes(list, 3) == 356);
  assert_true(a.offset == 0);
  assert_true(b.offset == 256); /* op 3 reads a and writes b */
  assert_true(c.offset == 0);   /* a is dead */
}

static void the_largest_settles_first(void **state) {
  (void)state;
  plan_buffer small = {.bytes = 256, .first_op = 0, .last_op = 9}, large = {.bytes = 4096, .first_op = 5, .last_op = 9};
  plan_buffer *list[] = {&small, &large};
  assert_true(place_lifetimes(list, 2) == 4352);
  assert_true(large.offset == 0);
  assert_true(small.offset == 4096);
}

static void nothing_takes_nothing(void **state) {
  (void)state;
  assert_true(place_lifetimes(NULL, 0) == 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(random_graphs_never_overlap),
      cmocka_unit_test(lifetimes_that_meet_share_nothing),
      cmocka_unit_test(the_largest_settles_first),
      cmocka_unit_test(nothing_takes_nothing),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

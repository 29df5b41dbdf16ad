/* test_arena.c - host memory is zeroed, aligned and disjoint; a frozen arena takes no more requests. */
#include "tests/unit/unit.h"
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "engine/base/arena.h"

#define PIECES 400u

static void pieces(void **state) {
  (void)state;
  arena a = {0};
  uint8_t *piece[PIECES];
  uint64_t bytes[PIECES], total = 0;
  for (uint32_t i = 0; i < PIECES; i++) {
    bytes[i] = i % 50 == 49 ? 300000 + i : i * 37 % 5000;
    assert_int_equal(arena_take(&a, bytes[i], &piece[i]), OK);
    assert_int_equal((uintptr_t)piece[i] % 64, 0);
    for (uint64_t b = 0; b < bytes[i]; b++) assert_int_equal(piece[i][b], 0);
    memset(piece[i], (int)(i % 255 + 1), bytes[i]);
    total += bytes[i];
  }
  for (uint32_t i = 0; i < PIECES; i++)
    for (uint64_t b = 0; b < bytes[i]; b++) assert_int_equal(piece[i][b], i % 255 + 1); /* no other allocation wrote here */
  assert_true(a.taken_bytes >= total);
  arena_close(&a);
  assert_null(a.blocks);
}

static void mapping(void **state) {
  (void)state;
  arena a = {0};
  uint8_t *space, *piece;
  assert_int_equal(arena_map(&a, 4ull << 30, &space), OK); /* pages become resident when they are written */
  space[0] = 1;
  space[(4ull << 30) - 1] = 2;
  assert_int_equal(arena_take(&a, 100, &piece), OK);
  assert_true(piece < space || piece >= space + (4ull << 30));
  arena_close(&a);
}

static void too_much(void **state) {
  (void)state;
  arena a = {0};
  void *piece = NULL;
  fail_clear();
  assert_int_equal(arena_map(&a, 1ull << 62, &piece), ERR_LIMIT);
  assert_null(piece);
  arena_close(&a);
}

/* Control of the freeze: a request after it ends the process. */
static void frozen(void **state) {
  (void)state;
  for (int freeze = 0; freeze < 2; freeze++) {
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
      arena a = {0};
      void *piece;
      signal(SIGABRT, SIG_DFL);
      if (!freopen("/dev/null", "w", stderr)) _exit(9);
      if (arena_take(&a, 10, &piece) != OK) _exit(9);
      if (freeze) arena_freeze(&a);
      _exit(arena_take(&a, 10, &piece) == OK ? 0 : 9);
    }
    int ended;
    assert_int_equal(waitpid(child, &ended, 0), child);
    if (freeze) assert_true(WIFSIGNALED(ended) && WTERMSIG(ended) == SIGABRT);
    else assert_true(WIFEXITED(ended) && WEXITSTATUS(ended) == 0);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(pieces), cmocka_unit_test(mapping), cmocka_unit_test(too_much),
                                     cmocka_unit_test(frozen)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

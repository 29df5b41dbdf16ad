/* test_nccl.c - nccl.c against a stand-in for the library: what it is asked for, what it refuses, and what stays behind. */
#include <stdlib.h>
#include <string.h>
#include "engine/gpu/nccl.h"
#include "tests/unit/gpu/fake_nccl.h"
#include "tests/unit/unit.h"

static dynlib_search search;
static fake_nccl *fake;

static int build(void **state) {
  (void)state;
  fake = fake_nccl_build(22809, &search);
  return 0;
}

static int clean(void **state) {
  (void)state;
  fake_nccl_remove(&search);
  return 0;
}

static int reset(void **state) {
  (void)state;
  memset(fake, 0, sizeof *fake);
  fail_clear();
  return 0;
}

static uint64_t place(const void *bytes) { return (uint64_t)(uintptr_t)bytes; }

static void the_version_is_found(void **state) {
  (void)state;
  char path[DYNLIB_PATH_MAX];
  uint32_t version = 0;
  assert_int_equal(nccl_find(&search, path, &version), OK);
  assert_int_equal(version, 22809);
  assert_non_null(strstr(path, "libnccl.so.2"));
}

static void another_library_is_refused_by_the_symbol(void **state) {
  (void)state;
  dynlib_search old;
  char path[DYNLIB_PATH_MAX];
  uint32_t version = 0;
  fake_nccl_build_without("ncclGetLastError", &old);
  assert_int_equal(nccl_find(&old, path, &version), ERR_DEVICE);
  assert_non_null(strstr(fail_text(), "lacks ncclGetLastError"));
  fake_nccl_remove(&old);
}

/* Two tables of one group. */
static void every_rank_has_the_bytes_of_all(void **state) {
  (void)state;
  static const uint32_t devices[] = {4, 5, 6};
  char from[3][2][8], to[3][2][24] = {{{0}}}, expected[2][24];
  nccl *made = NULL;
  for (int r = 0; r < 3; r++)
    for (int t = 0; t < 2; t++) {
      memset(from[r][t], 'a' + 3 * t + r, 8);
      memset(expected[t] + 8 * r, 'a' + 3 * t + r, 8);
    }
  assert_int_equal(nccl_open(&search, devices, 3, &made), OK);
  assert_int_equal(nccl_version(made), 22809);
  for (int r = 0; r < 3; r++) assert_int_equal(fake->devices[r], devices[r]);
  assert_int_equal(nccl_begin(made), OK);
  for (uint32_t r = 0; r < 3; r++)
    for (int t = 0; t < 2; t++) assert_int_equal(nccl_gather(made, r, NULL, place(from[r][t]), place(to[r][t]), 8), OK);
  assert_int_equal(to[0][0][0], 0); /* nothing moves before the end of the group */
  assert_int_equal(nccl_end(made), OK);
  for (int r = 0; r < 3; r++) assert_memory_equal(to[r], expected, sizeof expected);
  assert_int_equal(fake->alive, 3);
  nccl_close(made);
  assert_int_equal(fake->alive, 0);
  nccl_close(NULL);
}

static void multicast_is_off_unless_the_user_says_so(void **state) {
  (void)state;
  static const uint32_t devices[] = {0, 1};
  static const char *const asked[] = {NULL, "1"}, *const found[] = {"0", "1"};
  for (int i = 0; i < 2; i++) {
    nccl *made = NULL;
    if (asked[i]) setenv("NCCL_NVLS_ENABLE", asked[i], 1);
    else unsetenv("NCCL_NVLS_ENABLE");
    assert_int_equal(nccl_open(&search, devices, 2, &made), OK);
    assert_string_equal(fake->multicast, found[i]);
    nccl_close(made);
  }
  unsetenv("NCCL_NVLS_ENABLE");
}

/* A start and one gather; each call refused once. */
static status run(nccl **made) {
  static const uint32_t devices[] = {0, 1};
  static char from[2][8], to[2][16];
  TRY(nccl_open(&search, devices, 2, made));
  TRY(nccl_begin(*made));
  for (uint32_t r = 0; r < 2; r++) TRY(nccl_gather(*made, r, NULL, place(from[r]), place(to[r]), 8));
  return nccl_end(*made);
}

static void every_refusal_names_the_call(void **state) {
  (void)state;
  static const char *const calls[] = {"ncclCommInitAll", "ncclGroupStart", "ncclAllGather", "ncclAllGather", "ncclGroupEnd"};
  for (int call = 1; call <= 6; call++) {
    nccl *made = NULL;
    reset(NULL);
    fake->fail_call = call;
    const status result = run(&made);
    nccl_close(made);
    assert_int_equal(fake->alive, 0);
    if (call == 6) {
      assert_int_equal(result, OK); /* there is no sixth call */
      break;
    }
    assert_int_equal(result, ERR_DEVICE);
    if (!strstr(fail_text(), calls[call - 1]) || !strstr(fail_text(), "fake system error: no shared memory")) fail_msg("%s", fail_text());
  }
}

static void what_a_communicator_finds_is_seen(void **state) {
  (void)state;
  static const uint32_t devices[] = {0, 1};
  nccl *made = NULL;
  assert_int_equal(nccl_open(&search, devices, 2, &made), OK);
  assert_int_equal(nccl_check(made), OK);
  fake->async = 7; /* in progress */
  assert_int_equal(nccl_check(made), OK);
  fake->async = 2;
  assert_int_equal(nccl_check(made), ERR_DEVICE);
  assert_non_null(strstr(fail_text(), "fake system error"));
  nccl_close(made);
}

#define CASE(name) cmocka_unit_test_setup(name, reset)

int main(void) {
  const struct CMUnitTest tests[] = {
    CASE(the_version_is_found), CASE(another_library_is_refused_by_the_symbol), CASE(every_rank_has_the_bytes_of_all),
    CASE(multicast_is_off_unless_the_user_says_so), CASE(every_refusal_names_the_call), CASE(what_a_communicator_finds_is_seen),
  };
  return cmocka_run_group_tests(tests, build, clean);
}

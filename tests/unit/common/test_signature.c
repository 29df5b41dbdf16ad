/* test_signature.c - ssh-keygen's part of a signature, played by scripts: absent, silent, talkative, slow, or ended by a signal. It must
 * never hang, crash or take anything but its own words for good. tests/e2e/test_signed.c has real keys. */
#include "tests/unit/unit.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "engine/common/signature.h"

static char folder[64], path[128];

static void put(const char *name, const char *text, mode_t mode) {
  char whole[256];
  snprintf(whole, sizeof whole, "%s/%s", folder, name);
  FILE *file = fopen(whole, "wb");
  assert_non_null(file);
  assert_true(fputs(text, file) >= 0 && fclose(file) == 0);
  assert_int_equal(chmod(whole, mode), 0);
}

static const char *at(const char *name) {
  static char whole[4][256];
  static int next;
  char *to = whole[next++ % 4];
  snprintf(to, 256, "%s/%s", folder, name);
  return to;
}

/* What ssh-keygen is from now on; the rest of the PATH has the shell's programs. */
static void play(const char *script) {
  char text[1024];
  snprintf(text, sizeof text, "#!/bin/sh\n%s\n", script);
  put("ssh-keygen", text, 0755);
}

static status check(double seconds, char good[CLI_SIGNATURE_TEXT_BYTES]) {
  const cli_signature s = {.signers = at("signers"), .identity = "me", .patience_seconds = seconds};
  fail_clear();
  return cli_signature_check(&s, at("file"), good);
}

static void expect(status code, const char *word, const char *script) {
  char good[CLI_SIGNATURE_TEXT_BYTES];
  play(script);
  const status found = check(20, good);
  if (found != code || !strstr(found == OK ? good : fail_text(), word))
    fail_msg("%s: expected %d and %s, found %d and %s", script, code, word, found, found == OK ? good : fail_text());
}

static void its_words_decide(void **state) {
  (void)state;
  expect(OK, "for me", "echo 'Good \"verbatim\" signature for me with K key X'");
  expect(OK, "for ?[31mme", "printf 'noise\\r\\nGood \"verbatim\" signature for \\033[31mme with K\\n'");
  expect(ERR_FORMAT, "sig: expected a signature", "exit 0"); /* nothing said is not good */
  expect(ERR_FORMAT, "sig: expected a signature", "echo 'Good \"other\" signature for me with K'");
  expect(ERR_FORMAT, "sig: expected a signature", "echo 'Good \"verbatim\" signature for me with K'; exit 1");
  expect(ERR_FORMAT, "sig: expected a signature", "kill -9 $$");
  expect(ERR_FORMAT, "broken: here", "echo 'broken: here'; exit 255");
  expect(ERR_MISMATCH, "was altered", "echo 'Signature verification failed: incorrect signature' >&2; exit 255");
  expect(ERR_MISMATCH, "for another", "echo \"Couldn't verify signature: namespace does not match\" >&2; exit 255");
  expect(ERR_MISMATCH, "with K key X, which is not one there",
         "[ $2 = verify ] && exit 255; echo 'Good \"verbatim\" signature with K key X'");
}

static void it_gets_the_file_and_the_words(void **state) {
  (void)state;
  char good[CLI_SIGNATURE_TEXT_BYTES], whole[512];
  play("echo Good '\"verbatim\"' signature for: $# $1 $2 $3 $4 $5 $6 $7 $8 $9: $(cat)");
  assert_int_equal(check(20, good), OK);
  snprintf(whole, sizeof whole, "Good \"verbatim\" signature for: 10 -Y verify -f %s -I me -n verbatim -s: the bytes", at("signers"));
  assert_string_equal(good, whole);
}

static void it_is_bounded(void **state) {
  (void)state;
  char good[CLI_SIGNATURE_TEXT_BYTES];
  struct timespec from, to;
  expect(ERR_FORMAT, "sig: expected a signature", "head -c 3000000 /dev/zero | tr '\\0' x; echo; echo 'Good \"verbatim\" signature'");
  clock_gettime(CLOCK_MONOTONIC, &from);
  play("exec sleep 60");
  assert_int_equal(check(0.2, good), ERR_IO);
  assert_non_null(strstr(fail_text(), "still runs"));
  play("exec >&- 2>&-; exec sleep 60"); /* silent, and still there */
  assert_int_equal(check(0.2, good), ERR_IO);
  assert_non_null(strstr(fail_text(), "still runs"));
  clock_gettime(CLOCK_MONOTONIC, &to);
  assert_true(to.tv_sec - from.tv_sec < 20);
}

static void what_is_missing_is_named(void **state) {
  (void)state;
  char good[CLI_SIGNATURE_TEXT_BYTES];
  play("exit 0");
  assert_true(cli_signature_has("ssh-keygen"));
  assert_int_equal(unlink(at("ssh-keygen")), 0);
  assert_int_equal(setenv("PATH", folder, 1), 0);
  assert_false(cli_signature_has("ssh-keygen"));
  assert_int_equal(check(20, good), ERR_IO);
  assert_non_null(strstr(fail_text(), "expected the program ssh-keygen on the PATH, found none"));
  put("ssh-keygen", "no script", 0644);
  assert_int_equal(check(20, good), ERR_IO);
  assert_non_null(strstr(fail_text(), "cannot be started"));
  assert_int_equal(setenv("PATH", path, 1), 0);
  static const char *const files[][2] = {{"signers", "a file of allowed signers"}, {"file.sig", "a signature"}, {"file", "a manifest or"}};
  for (size_t i = 0; i < ARRAY_LEN(files); i++) {
    assert_int_equal(unlink(at(files[i][0])), 0);
    assert_int_equal(check(20, good), ERR_IO);
    assert_non_null(strstr(fail_text(), files[i][1]));
    put(files[i][0], "the bytes\n", 0644);
  }
}

static void options_belong_together(void **state) {
  (void)state;
  const cli_signature none = {.signers = NULL}, all = {"a", "b", "c", 0}, half[] = {{.signers = "a"}, {.identity = "b"}, {.path = "c"},
                                                                                    {.signers = "a", .identity = ""}};
  assert_int_equal(cli_signature_ready(&none), OK);
  assert_int_equal(cli_signature_ready(&all), OK);
  for (size_t i = 0; i < ARRAY_LEN(half); i++) {
    fail_clear();
    assert_int_equal(cli_signature_ready(&half[i]), ERR_USAGE);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(its_words_decide), cmocka_unit_test(it_gets_the_file_and_the_words),
                                     cmocka_unit_test(it_is_bounded), cmocka_unit_test(what_is_missing_is_named),
                                     cmocka_unit_test(options_belong_together)};
  snprintf(folder, sizeof folder, "/tmp/verbatim-signature-XXXXXX");
  if (!mkdtemp(folder)) return 1;
  snprintf(path, sizeof path, "%s:/usr/bin:/bin", folder);
  if (setenv("PATH", path, 1) != 0) return 1;
  put("file", "the bytes\n", 0644);
  put("file.sig", "a signature\n", 0644);
  put("signers", "me ssh-ed25519 A\n", 0644);
  const int failed = cmocka_run_group_tests(tests, NULL, NULL);
  static const char *const names[] = {"file", "file.sig", "signers", "ssh-keygen"};
  for (size_t i = 0; i < ARRAY_LEN(names); i++) unlink(at(names[i]));
  rmdir(folder);
  return failed;
}

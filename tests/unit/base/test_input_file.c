/* test_input_file.c - inputs that are there, and the errors of those that are not: each says what was expected, what was found and what to
 * do. The first test is the control of the others. */
#include "tests/unit/unit.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "engine/base/input_file.h"

static char folder[64];

static const char *at(const char *name) {
  static char path[128];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  return path;
}

static int make_folder(void **state) {
  (void)state;
  strcpy(folder, "/tmp/verbatim-input-XXXXXX");
  if (!mkdtemp(folder)) return 1;
  FILE *file = fopen(at("file"), "w"), *empty = fopen(at("empty"), "w");
  return !file || fputs("x", file) < 0 || fclose(file) || !empty || fclose(empty) || mkfifo(at("pipe"), 0600) ||
         mkdir(at("folder"), 0700) || symlink("file", at("to_file")) || symlink("nothing", at("to_nothing"));
}

static int drop_folder(void **state) {
  (void)state;
  static const char *const names[] = {"file", "empty", "pipe", "to_file", "to_nothing"};
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) unlink(at(names[i]));
  return rmdir(at("folder")) || rmdir(folder);
}

static void expect(status found, status wanted, const char *text) {
  if (found != wanted || !strstr(fail_text(), text))
    fail_msg("expected %d and \"%s\", found %d and \"%s\"", wanted, text, found, fail_text());
  if (wanted != OK && (!strstr(fail_text(), "expected ") || !strstr(fail_text(), "found ") || !strstr(fail_text(), "hint: ")))
    fail_msg("\"%s\": does not say what was expected, what was found and what to do", fail_text());
  fail_clear();
}

static void files_are_opened(void **state) {
  (void)state;
  static const char *const names[] = {"file", "to_file"};
  for (size_t i = 0; i < 2; i++) {
    FILE *file = NULL, *stream = NULL;
    expect(input_file_open(at(names[i]), INPUT_PLAN, &file), OK, "");
    expect(input_file_open_stream(at(names[i]), INPUT_ITEMS, &stream), OK, "");
    assert_int_equal(fgetc(file), 'x');
    fclose(file);
    fclose(stream);
  }
  expect(input_file_check_model(at("folder")), OK, "");
}

static void what_is_no_file_is_named(void **state) {
  (void)state;
  static const struct { const char *name, *found; status code, stream; } cases[] = {
      {"absent", "found nothing of that name", ERR_IO, ERR_IO},    {"file/absent", "found nothing of that name", ERR_IO, ERR_IO},
      {"to_nothing", "found a link that leads nowhere", ERR_IO, ERR_IO}, {"folder", "found a folder", ERR_IO, ERR_IO},
      {"pipe", "found a pipe or a device", ERR_IO, OK},           {"empty", "found an empty file", ERR_FORMAT, OK}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    FILE *file = NULL;
    expect(input_file_open(at(cases[i].name), INPUT_PLAN, &file), cases[i].code, cases[i].found);
    assert_null(file);
    if (cases[i].stream == OK) continue; /* opening a pipe would wait for its writer */
    expect(input_file_open_stream(at(cases[i].name), INPUT_ITEMS, &file), cases[i].stream, cases[i].found);
    assert_null(file);
  }
}

static void a_name_of_the_hub_is_recognised(void **state) {
  (void)state;
  static const char *const names[] = {"deepseek-ai/DeepSeek-V2-Lite", "zai-org/GLM-4.7-Flash", "a/b_c.d"};
  static const char *const others[] = {"DIR", "./a/b", "../a", "/absent/b", "a/b/c", "a/", "a//b", "a b/c", "a/.b", "~/a"};
  char text[256];
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
    snprintf(text, sizeof text, "`hf download %s --local-dir DIR`", names[i]);
    expect(input_file_check_model(names[i]), ERR_IO, text);
  }
  for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
    assert_int_equal(input_file_check_model(others[i]), ERR_IO);
    assert_null(strstr(fail_text(), "hf download"));
    expect(ERR_IO, ERR_IO, "a model folder, found nothing");
  }
  expect(input_file_check_model(at("file")), ERR_IO, "expected a model folder, found a file");
  expect(input_file_check_model(at("to_nothing")), ERR_IO, "found a link that leads nowhere");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(files_are_opened), cmocka_unit_test(what_is_no_file_is_named),
                                     cmocka_unit_test(a_name_of_the_hub_is_recognised)};
  return cmocka_run_group_tests(tests, make_folder, drop_folder);
}

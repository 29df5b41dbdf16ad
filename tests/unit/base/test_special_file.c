/* test_special_file.c - what lies at a path: files, folders, pipes, links to them and to nothing, and names that are not there. */
#include "tests/unit/unit.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "engine/base/special_file.h"

static char folder[64];

static const char *at(const char *name) {
  static char path[128];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  return path;
}

static int make_folder(void **state) {
  (void)state;
  strcpy(folder, "/tmp/verbatim-special-XXXXXX");
  if (!mkdtemp(folder)) return 1;
  FILE *file = fopen(at("file"), "w");
  return !file || fclose(file) || mkfifo(at("pipe"), 0600) || mkdir(at("folder"), 0700) || symlink("file", at("to_file")) ||
         symlink("pipe", at("to_pipe")) || symlink("nothing", at("to_nothing")) || symlink("circle", at("circle"));
}

static int drop_folder(void **state) {
  (void)state;
  static const char *const names[] = {"file", "pipe", "to_file", "to_pipe", "to_nothing", "circle"};
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) unlink(at(names[i]));
  return rmdir(at("folder")) || rmdir(folder);
}

static void entries_are_told_apart(void **state) {
  (void)state;
  static const struct { const char *name; bool is_special, is_there; } cases[] = {
      {"file", false, true},    {"to_file", false, true},    {"pipe", true, true},       {"to_pipe", true, true},
      {"folder", true, true},   {"to_nothing", true, true},  {"circle", true, true},     {"absent", false, false},
      {"folder/absent", false, false}, {"absent/absent", false, false}, {"file/absent", false, false}, {"/dev/null", true, true}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    const char *path = cases[i].name[0] == '/' ? cases[i].name : at(cases[i].name);
    if (special_file_at(path) != cases[i].is_special || special_file_is_there(path) != cases[i].is_there) fail_msg("%s", path);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(entries_are_told_apart, make_folder, drop_folder)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

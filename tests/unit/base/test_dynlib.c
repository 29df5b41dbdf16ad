/* test_dynlib.c - the search for shared libraries: order, folders, wheels next to a python3 of a path, messages.
 *
 * The test builds empty libraries with the C compiler and puts them into temporary folders that are laid out like the real ones. */
#include "tests/unit/unit.h"
#include "engine/base/dynlib.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char root[] = "/tmp/verbatim-dynlib-XXXXXX";
static char text[4096];

static const char *format(const char *pattern, ...) __attribute__((format(printf, 1, 2)));
static const char *format(const char *pattern, ...) {
  va_list args;
  va_start(args, pattern);
  vsnprintf(text, sizeof text, pattern, args);
  va_end(args);
  return text;
}

static void shell(const char *command) { assert_int_equal(system(command), 0); }

static int make_tree(void **state) {
  (void)state;
  if (!mkdtemp(root)) return -1;
  const char *at = root;
  return system(format("cd %s && mkdir -p one two bin venv/bin venv/lib/python3.11/site-packages/nvidia/cu13/lib && "
                       "echo 'int verbatim_probe(void) { return 7; }' > p.c && cc -shared -fPIC -o one/libvprobe.so.1 p.c && "
                       "cp one/libvprobe.so.1 two/libvprobe.so.2 && cp one/libvprobe.so.1 two/libvprobe.so.1 && "
                       "cp one/libvprobe.so.1 venv/lib/python3.11/site-packages/nvidia/cu13/lib/libvwheel.so.1 && "
                       "echo not-a-library > one/libvbroken.so.1 && cp /bin/true venv/bin/python3", at));
}

static int remove_tree(void **state) {
  (void)state;
  return system(format("rm -rf %s", root));
}

static int reset(void **state) {
  (void)state;
  fail_clear();
  return 0;
}

static const char *const probe_1[] = {"libvprobe.so.1", NULL};
static const char *const probe_2_or_1[] = {"libvprobe.so.2", "libvprobe.so.1", NULL};
static const char *const wheel[] = {"libvwheel.so.1", NULL};
static const char *const broken[] = {"libvbroken.so.1", NULL};

static void configured_folders_are_searched_in_order(void **state) {
  (void)state;
  char folders[256], expected[256];
  snprintf(folders, sizeof folders, "/nonexistent::%s/one:%s/two", root, root);
  const dynlib_search search = {.folders = folders};
  dynlib library = {0};
  assert_int_equal(dynlib_open(&search, probe_1, "probe", "none", &library), OK);
  snprintf(expected, sizeof expected, "%s/one/libvprobe.so.1", root);
  assert_string_equal(library.path, expected);
  int (*probe)(void) = NULL;
  const dynlib_symbol symbols[] = {{"verbatim_probe", &probe}};
  assert_int_equal(dynlib_resolve(&library, symbols, 1), OK);
  assert_int_equal(probe(), 7);
  dynlib_close(&library);
  assert_null(library.handle);
}

static void earlier_names_are_preferred_over_earlier_folders(void **state) {
  (void)state;
  char folders[256];
  snprintf(folders, sizeof folders, "%s/one:%s/two", root, root);
  const dynlib_search search = {.folders = folders};
  dynlib library = {0};
  assert_int_equal(dynlib_open(&search, probe_2_or_1, "probe", "none", &library), OK);
  assert_non_null(strstr(library.path, "/two/libvprobe.so.2"));
  dynlib_close(&library);
}

static void wheels_beside_python_on_the_path_are_found(void **state) {
  (void)state;
  dynlib library = {0};
  assert_int_equal(dynlib_open(NULL, wheel, "wheel", "none", &library), ERR_DEVICE); /* control: not found without the path */
  fail_clear();
  char path[256];
  snprintf(path, sizeof path, "/nonexistent:%s/bin:%s/venv/bin", root, root);
  const dynlib_search search = {.program_path = path};
  assert_int_equal(dynlib_open(&search, wheel, "wheel", "none", &library), OK);
  assert_non_null(strstr(library.path, "libvwheel.so.1"));
  dynlib_close(&library);
}

/* The python3 of an environment is a link to another folder; a python that is elsewhere is found through the link's target. */
static void wheels_behind_a_linked_python_are_found(void **state) {
  (void)state;
  shell(format("ln -sf %s/venv/bin/python3 %s/bin/python3", root, root));
  char path[256];
  snprintf(path, sizeof path, "%s/bin", root);
  const dynlib_search search = {.program_path = path};
  dynlib library = {0};
  assert_int_equal(dynlib_open(&search, wheel, "wheel", "none", &library), OK);
  dynlib_close(&library);
  shell(format("rm %s/bin/python3", root));
}

static void missing_library_is_named(void **state) {
  (void)state;
  dynlib library = {0};
  assert_int_equal(dynlib_open(&(const dynlib_search){"", ""}, wheel, "wheel of tests", "buy one", &library), ERR_DEVICE);
  assert_non_null(strstr(fail_text(), "no wheel of tests: libvwheel.so.1 not found"));
  assert_non_null(strstr(fail_text(), "hint: buy one"));
  assert_null(library.handle);
}

static void damaged_library_is_told_apart_from_a_missing_one(void **state) {
  (void)state;
  char folders[256];
  snprintf(folders, sizeof folders, "%s/one", root);
  const dynlib_search search = {.folders = folders};
  dynlib library = {0};
  assert_int_equal(dynlib_open(&search, broken, "probe", "none", &library), ERR_DEVICE);
  assert_non_null(strstr(fail_text(), "cannot be loaded"));
  assert_non_null(strstr(fail_text(), "libvbroken.so.1"));
}

static void missing_symbol_is_named(void **state) {
  (void)state;
  char folders[256];
  snprintf(folders, sizeof folders, "%s/one", root);
  const dynlib_search search = {.folders = folders};
  dynlib library = {0};
  assert_int_equal(dynlib_open(&search, probe_1, "probe", "none", &library), OK);
  int (*probe)(void) = NULL;
  const dynlib_symbol symbols[] = {{"verbatim_absent", &probe}};
  assert_int_equal(dynlib_resolve(&library, symbols, 1), ERR_DEVICE);
  assert_non_null(strstr(fail_text(), "lacks verbatim_absent"));
  assert_null(probe);
  dynlib_close(&library);
}

static void overlong_lists_are_bounded(void **state) {
  (void)state;
  char *list = malloc(100001);
  assert_non_null(list);
  for (size_t i = 0; i < 100000; i++) list[i] = i % 5000 == 4999 ? ':' : 'a';
  list[100000] = 0;
  const dynlib_search search = {list, list};
  dynlib library = {0};
  assert_int_equal(dynlib_open(&search, wheel, "wheel", "none", &library), ERR_DEVICE);
  free(list);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup(configured_folders_are_searched_in_order, reset),
      cmocka_unit_test_setup(earlier_names_are_preferred_over_earlier_folders, reset),
      cmocka_unit_test_setup(wheels_beside_python_on_the_path_are_found, reset),
      cmocka_unit_test_setup(wheels_behind_a_linked_python_are_found, reset),
      cmocka_unit_test_setup(missing_library_is_named, reset),
      cmocka_unit_test_setup(damaged_library_is_told_apart_from_a_missing_one, reset),
      cmocka_unit_test_setup(missing_symbol_is_named, reset),
      cmocka_unit_test_setup(overlong_lists_are_bounded, reset),
  };
  return cmocka_run_group_tests(tests, make_tree, remove_tree);
}

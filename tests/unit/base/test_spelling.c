/* test_spelling.c - distances, and the nearest of several words. */
#include "tests/unit/unit.h"
#include <string.h>
#include "engine/base/spelling.h"

static void letters_and_digits_count(void **state) {
  (void)state;
  assert_int_equal(spelling_distance("", ""), 0);
  assert_int_equal(spelling_distance("prot", "port"), 2);
  assert_int_equal(spelling_distance("max_Num_Seq", "max-num-seqs"), 1);
  assert_int_equal(spelling_distance("--maxwaiting", "--max-waiting"), 0);
  assert_int_equal(spelling_distance("abc", ""), 3);
  assert_int_equal(spelling_distance("---", "ab"), 2);
  char word[1 << 16], known[SPELLING_BYTES_MAX + 1];
  memset(word, 'a', sizeof word - 1);
  word[sizeof word - 1] = 0;
  memset(known, 'a', SPELLING_BYTES_MAX);
  known[SPELLING_BYTES_MAX] = 0;
  assert_true(spelling_distance(word, known) >= SPELLING_BYTES_MAX); /* far, and soon known to be */
  assert_int_equal(spelling_distance(word + sizeof word - 1 - SPELLING_BYTES_MAX, known), 0);
}

static const char *nearest(const char *word, uint32_t most) {
  static const char *const known[] = {"--seed", "--temperature", "--top-p", "--top-k", "--top", "--help"};
  spelling_search search = spelling_begin(word, most);
  for (size_t i = 0; i < ARRAY_LEN(known); i++) spelling_try(&search, known[i]);
  return search.nearest ? search.nearest : "none";
}

static void the_nearest_is_named(void **state) {
  (void)state;
  assert_string_equal(nearest("--temp", 3), "--temperature"); /* its beginning counts more than its distance of 7 */
  assert_string_equal(nearest("--te", 0), "none");            /* two letters are the beginning of too much */
  assert_string_equal(nearest("--helo", 3), "--help");
  assert_string_equal(nearest("--topp", 3), "--top-p");       /* the first of several */
  assert_string_equal(nearest("--top", 3), "--top");          /* equal before one that begins so */
  assert_string_equal(nearest("--elephants", 3), "none");
  assert_string_equal(nearest("--elephants", UINT32_MAX), "--help");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(letters_and_digits_count), cmocka_unit_test(the_nearest_is_named)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

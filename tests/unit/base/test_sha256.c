/* test_sha256.c - SHA-256 as FIPS 180-4 defines it, in one call or in several; of a file; and its text. */
#include "tests/unit/unit.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "engine/base/sha256.h"

#define BYTES 70000u

static uint8_t data[BYTES];

static const char *text_of(const void *bytes, size_t count) {
  static char text[SHA256_TEXT_BYTES];
  return sha256_text(sha256_of(bytes, count).bytes, text);
}

/* Of FIPS 180-4's examples; the last is a million times "a". */
static void known_answers(void **state) {
  (void)state;
  char text[SHA256_TEXT_BYTES], part[1000];
  sha256_state million;
  assert_string_equal(text_of("", 0), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  assert_string_equal(text_of("abc", 3), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  assert_string_equal(text_of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 56),
                      "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  memset(part, 'a', sizeof part);
  sha256_start(&million);
  for (int i = 0; i < 1000; i++) sha256_add(&million, part, sizeof part);
  assert_string_equal(sha256_text(sha256_end(&million).bytes, text), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

static void pieces_make_the_whole(void **state) {
  (void)state;
  for (uint32_t i = 0, z = 1; i < BYTES; i++) data[i] = (uint8_t)((z = z * 1664525u + 1013904223u) >> 24);
  for (uint32_t length = 0; length <= BYTES; length += length < 200 ? 1 : 9973)
    for (uint32_t piece = 1; piece <= length; piece = piece * 5 + length % 5) {
      sha256_state running;
      sha256_start(&running);
      for (uint32_t at = 0; at < length; at += piece) sha256_add(&running, data + at, length - at < piece ? length - at : piece);
      sha256 whole = sha256_of(data, length), made = sha256_end(&running), again = sha256_end(&running);
      if (memcmp(whole.bytes, made.bytes, SHA256_BYTES) != 0) fail_msg("%u bytes in pieces of %u", length, piece);
      assert_memory_equal(made.bytes, again.bytes, SHA256_BYTES);
    }
}

static void a_file_has_that_of_its_bytes(void **state) {
  (void)state;
  sha256 found, whole = sha256_of(data, BYTES), rest = sha256_of(data + 1, BYTES - 1);
  FILE *file = tmpfile();
  assert_non_null(file);
  assert_int_equal(fwrite(data, 1, BYTES, file), BYTES);
  rewind(file);
  assert_int_equal(sha256_read(file, "f", &found), OK);
  assert_memory_equal(found.bytes, whole.bytes, SHA256_BYTES);
  assert_int_equal(fseek(file, 1, SEEK_SET), 0);
  assert_int_equal(sha256_read(file, "f", &found), OK);
  assert_memory_equal(found.bytes, rest.bytes, SHA256_BYTES);
  fclose(file);
  file = fopen(".", "rb"); /* a folder opens and cannot be read */
  assert_non_null(file);
  assert_int_equal(sha256_read(file, "the folder", &found), ERR_IO);
  assert_non_null(strstr(fail_text(), "the folder"));
  fclose(file);
}

static void none_is_all_zeros(void **state) {
  (void)state;
  sha256 some = {{0}};
  assert_true(sha256_is_none(some.bytes));
  some.bytes[31] = 1;
  assert_false(sha256_is_none(some.bytes));
  assert_true(sha256_library()[0] >= '3');
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(known_answers), cmocka_unit_test(pieces_make_the_whole),
                                     cmocka_unit_test(a_file_has_that_of_its_bytes), cmocka_unit_test(none_is_all_zeros)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_digest.c - XXH3-128 as its authors define it, in one call or in several, with every instruction set. */
#include "tests/unit/unit.h"
#include <stdio.h>
#include <string.h>
#include "engine/base/digest.h"

#define BYTES 70000u

static uint8_t data[BYTES];

static int fill(void **state) {
  (void)state;
  uint32_t z = 1;
  for (uint32_t i = 0; i < BYTES; i++) data[i] = (uint8_t)((z = z * 1664525u + 1013904223u) >> 24);
  return 0;
}

static void known_answers(void **state) {
  (void)state;
  char text[DIGEST_TEXT_BYTES];
  assert_string_equal(digest_text(digest_of("", 0).bytes, text), "99aa06d3014798d86001c324468d497f");
  assert_string_equal(digest_text(digest_of("a", 1).bytes, text), "a96faf705af16834e6c632b61e964e1f");
}

/* digest_of and digest_add may use different instruction sets. */
static void pieces_make_the_whole(void **state) {
  (void)state;
  for (uint32_t length = 0; length <= BYTES; length += length < 1100 ? 1 : 4099)
    for (uint32_t piece = 1; piece <= length; piece = piece * 3 + length % 5) {
      digest_state running;
      digest_start(&running);
      for (uint32_t at = 0; at < length; at += piece) digest_add(&running, data + at, length - at < piece ? length - at : piece);
      digest whole = digest_of(data, length), made = digest_end(&running), again = digest_end(&running);
      if (memcmp(whole.bytes, made.bytes, DIGEST_BYTES) != 0) fail_msg("%u bytes in pieces of %u", length, piece);
      assert_memory_equal(made.bytes, again.bytes, DIGEST_BYTES);
    }
}

static void every_byte_counts(void **state) {
  (void)state;
  digest before = digest_of(data, 5000);
  for (uint32_t i = 0; i < 5000; i += 7) {
    data[i] ^= 1;
    assert_memory_not_equal(digest_of(data, 5000).bytes, before.bytes, DIGEST_BYTES);
    data[i] ^= 1;
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(known_answers), cmocka_unit_test(pieces_make_the_whole),
                                     cmocka_unit_test(every_byte_counts)};
  return cmocka_run_group_tests(tests, fill, NULL);
}

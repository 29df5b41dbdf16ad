/* test_detokenizer.c - text from tokens: never half a character; ill-formed bytes appear as Python's errors="replace" shows them. */
#include "tests/unit/unit.h"
#include "engine/text/detokenizer.h"
#include "tests/unit/text/tokenizer_fixture.h"
#include "tests/unit/text/tokenizer_text.h"
#include "engine/base/utf8.h"

static tokenizer *small; /* ids 0..255 are the bytes of that value */

static int open_small(void **state) {
  (void)state;
  return fixture_open(fixture_small(), &small);
}

static int close_small(void **state) {
  (void)state;
  return fixture_close(small);
}

/* Pushes bytes, one token each; checks that every output is valid UTF-8 by itself. */
static size_t push_all(const uint8_t *bytes, size_t count, char *out, size_t out_max) {
  detokenizer d = {0};
  size_t used = 0, added = 0;
  for (size_t i = 0; i < count; i++) {
    assert_int_equal(detokenizer_push(small, &d, bytes[i], out + used, out_max - used, &added), OK);
    assert_int_equal(utf8_valid_bytes((const uint8_t *)out + used, added), added);
    used += added;
  }
  assert_int_equal(detokenizer_flush(&d, out + used, out_max - used, &added), OK);
  assert_int_equal(d.pending_bytes, 0);
  return used + added;
}

static void ill_formed_bytes_are_replaced(void **state) {
  (void)state;
#define R "\xEF\xBF\xBD"
  static const struct {
    const char *bytes, *text;
  } rows[] = {
    {"abc", "abc"}, {"\xC3\xA9", "\xC3\xA9"}, {"\xF0\x9F\x91\x8D!", "\xF0\x9F\x91\x8D!"},
    {"\x80", R}, {"\xC3", R}, {"\xC3(", R "("}, {"\xE2\x82", R}, {"\xE2\x82" "A", R "A"}, {"\xE2\x28\xA1", R "(" R},
    {"\xF0\x9F\x91", R}, {"\xF0\x9F\x91\xF0\x9F\x91\x8D", R "\xF0\x9F\x91\x8D"}, {"\xF0\x80\x80\x80", R R R R}, {"\xC0\xAF", R R},
    {"\xED\xA0\x80", R R R}, {"\xF4\x90\x80\x80", R R R R}, {"\xF8\x88", R R}, {"\xE0\x80\xAF", R R R},
    {"\xE1\x80\xE2\xF0\x91\x92\xF1\xBF" "A", R R R R "A"},
  };
  for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
    char out[64];
    size_t used = push_all((const uint8_t *)rows[i].bytes, strlen(rows[i].bytes), out, sizeof out - 1);
    out[used] = 0;
    assert_string_equal(out, rows[i].text);
  }
}

/* 200,000 bytes, most of them difficult ones; the digest is that of Python's bytes.decode("utf-8", "replace"). */
static void random_bytes_equal_python(void **state) {
  (void)state;
  static const uint8_t hard[] = {0x41, 0x7F, 0x80, 0xBF, 0xC0, 0xC1, 0xC2, 0xDF, 0xE0, 0xE1, 0xED,
                                 0xEF, 0xF0, 0xF1, 0xF4, 0xF5, 0xFF, 0x8F, 0x90, 0x9F, 0xA0};
  enum { BYTES = 200000 };
  uint8_t *bytes = malloc(BYTES);
  char *out = malloc(3 * BYTES), text[DIGEST_TEXT_BYTES];
  uint64_t seed = 12345;
  assert_true(bytes != NULL && out != NULL);
  for (size_t i = 0; i < BYTES; i++) {
    uint64_t r = tokenizer_text_random(&seed);
    bytes[i] = r % 4 != 0 ? hard[(r >> 8) % ARRAY_LEN(hard)] : (uint8_t)(0x80 + (r >> 8) % 64);
  }
  size_t used = push_all(bytes, BYTES, out, 3 * BYTES);
  assert_int_equal(used, 469334);
  assert_string_equal(digest_text(digest_of(out, used).bytes, text), "255c7e94ace180df1c81136baa1be91d");
  free(bytes);
  free(out);
}

static void nothing_changes_when_there_is_no_room(void **state) {
  (void)state;
  detokenizer d = {0};
  char out[8];
  size_t used = 99;
  assert_int_equal(detokenizer_push(small, &d, 0xE2, out, 0, &used), OK); /* nothing to write yet */
  assert_int_equal(used, 0);
  assert_int_equal(detokenizer_push(small, &d, 0x82, out, 0, &used), OK);
  detokenizer before = d;
  used = 99;
  fail_clear();
  assert_int_equal(detokenizer_push(small, &d, 0xAC, out, 2, &used), ERR_LIMIT);
  assert_int_equal(used, 99);
  assert_memory_equal(&d, &before, sizeof d);
  fail_clear();
  assert_int_equal(detokenizer_flush(&d, out, 2, &used), ERR_LIMIT);
  assert_memory_equal(&d, &before, sizeof d);
  assert_int_equal(detokenizer_push(small, &d, 0xAC, out, 3, &used), OK);
  assert_int_equal(used, 3);
  assert_memory_equal(out, "\xE2\x82\xAC", 3);
}

static void ids_beyond_the_vocabulary_add_nothing(void **state) {
  (void)state;
  detokenizer d = {0};
  char out[16];
  size_t used = 99;
  for (int32_t id = -2; id < 0; id++) {
    assert_int_equal(detokenizer_push(small, &d, id, out, sizeof out, &used), OK);
    assert_int_equal(used, 0);
  }
  assert_int_equal(detokenizer_push(small, &d, (int32_t)tokenizer_vocab_size(small), out, sizeof out, &used), OK);
  assert_int_equal(used, 0);
  assert_int_equal(detokenizer_push(small, &d, 260, out, sizeof out, &used), OK);
  assert_int_equal(used, 4);
  assert_memory_equal(out, "</s>", 4);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(ill_formed_bytes_are_replaced),
    cmocka_unit_test(random_bytes_equal_python),
    cmocka_unit_test(nothing_changes_when_there_is_no_room),
    cmocka_unit_test(ids_beyond_the_vocabulary_add_nothing),
  };
  return cmocka_run_group_tests(tests, open_small, close_small);
}

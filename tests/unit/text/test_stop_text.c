/* test_stop_text.c - stop texts: found at the right token and place, across tokens, characters and the pieces of long tokens; text that was
 * shown never has to be taken back. The random cases are checked by a search of the whole text after every token. */
#include "tests/unit/unit.h"
#include "engine/text/stop_text.h"
#include "tests/unit/text/tokenizer_fixture.h"

#define LONG_TOKEN 261 /* LONG_BYTES bytes: 'x' with a few exceptions */
#define LONG_BYTES 500
#define TEXT_MAX 4096

static tokenizer *small; /* ids 0..255 are bytes, 256 "ab", 257 "abc", 258 "cd", 259 is special, 260 "</s>" is not */
static char long_token[LONG_BYTES + 1];

static int open_small(void **state) {
  (void)state;
  memset(long_token, 'x', LONG_BYTES);
  memcpy(long_token + 60, "begin", 5); /* across the end of a piece */
  memcpy(long_token + 400, "end", 3);
  json_t *root = fixture_small();
  json_array_append_new(json_object_get(root, "added_tokens"),
                        json_pack("{s:i,s:s,s:b,s:b,s:b,s:b,s:b}", "id", LONG_TOKEN, "content", long_token, "single_word", 0, "lstrip", 0,
                                  "rstrip", 0, "normalized", 0, "special", 0));
  return fixture_open(root, &small);
}

static int close_small(void **state) {
  (void)state;
  return fixture_close(small);
}

typedef struct shown {
  char text[TEXT_MAX];
  size_t bytes;
} shown;

static void show(void *context, const char *text, size_t bytes) {
  shown *s = context;
  assert_true(bytes > 0 && s->bytes + bytes < sizeof s->text);
  memcpy(s->text + s->bytes, text, bytes);
  s->bytes += bytes;
  s->text[s->bytes] = 0;
}

typedef struct outcome {
  uint32_t made;         /* tokens until the stop, or all */
  stop_text_match match;
  shown shown;
} outcome;

static outcome run(const int32_t *ids, uint32_t count, stop_text_set set) {
  outcome o = {.match.index = STOP_TEXT_NONE};
  stop_text text = {0};
  while (o.made < count && o.match.index == STOP_TEXT_NONE) {
    o.match = stop_text_find(&text, small, set, ids[o.made]);
    stop_text_push(&text, small, set, ids[o.made++], o.match.index == STOP_TEXT_NONE ? UINT64_MAX : o.match.at, show, &o.shown);
  }
  if (o.match.index == STOP_TEXT_NONE) stop_text_flush(&text, show, &o.shown);
  return o;
}

/* === Cases ================================================================================================================== */

typedef struct stop_case {
  const char *text;      /* one token for each byte, except 1..5: the tokens 256..260, and 6: the long one */
  const char *stops[4];
  uint32_t made, index;
  uint64_t at;
} stop_case;

static uint32_t ids_of(const char *text, int32_t *ids) {
  uint32_t count = 0;
  for (; text[count]; count++) {
    uint8_t byte = (uint8_t)text[count];
    ids[count] = byte >= 1 && byte <= 6 ? 255 + byte : byte;
  }
  return count;
}

static void stops_are_found(void **state) {
  (void)state;
  static const stop_case cases[] = {
    {"hello world", {"o w"}, 7, 0, 4},
    {"hello", {"hello"}, 5, 0, 0},
    {"\1", {"ab"}, 1, 0, 0},                      /* the whole first token */
    {"x\2y", {"b"}, 2, 0, 2},                     /* inside a token */
    {"aaab", {"aab"}, 4, 0, 1},                   /* overlapping candidates */
    {"x\2", {"c", "abc", "bc"}, 2, 1, 1},         /* several end in one token: the one that begins first wins */
    {"x\2", {"bc", "b"}, 2, 0, 2},                /* several begin there: the first of the list wins */
    {"x\2", {"b", "bc"}, 2, 0, 2},
    {"za\3", {"ac", "zacd!"}, 3, 0, 1},
    {"a\xc3\xa9t", {"\xc3\xa9"}, 3, 0, 1},        /* a character of two tokens */
    {"\xe2\x82\xac!", {"\xac!", "\xe2\x82\xac!"}, 4, 1, 0},
    {"a\4b", {"ab"}, 3, 0, 0},                    /* special tokens have no text */
    {"a\5b", {"</s>b"}, 3, 0, 1},                 /* others do */
    {"a\xff" "b", {"\xef\xbf\xbd" "b"}, 3, 0, 1}, /* ill-formed UTF-8 is U+FFFD */
    {"\6", {"begin"}, 1, 0, 60},
    {"\6", {"end", "xend"}, 1, 1, 399},
    {"\6\6", {"xxy", "end", "begin"}, 1, 2, 60},
    {"q\6", {"nx"}, 2, 0, 65},
  };
  for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
    const stop_case *c = &cases[i];
    int32_t ids[64];
    verbatim_text texts[4];
    stop_text_set set = {texts, 0};
    for (; set.count < 4 && c->stops[set.count]; set.count++)
      texts[set.count] = (verbatim_text){c->stops[set.count], strlen(c->stops[set.count])};
    outcome o = run(ids, ids_of(c->text, ids), set);
    if (o.made != c->made || o.match.index != c->index || o.match.at != c->at || o.shown.bytes != c->at)
      fail_msg("case %zu: %u tokens, stop %u at %llu, %zu bytes shown", i, o.made, o.match.index, (unsigned long long)o.match.at,
               o.shown.bytes);
  }
}

static void nothing_found_shows_all(void **state) {
  (void)state;
  const verbatim_text stop = {"world!", 6};
  int32_t ids[64];
  outcome o = run(ids, ids_of("a world\xe2\x82", ids), (stop_text_set){&stop, 1});
  assert_int_equal(o.match.index, STOP_TEXT_NONE);
  assert_string_equal(o.shown.text, "a world\xef\xbf\xbd"); /* the unfinished character as the detokenizer ends it */
  o = run(ids, ids_of("ab", ids), (stop_text_set){0});
  assert_string_equal(o.shown.text, "ab");
}

/* As much as possible is shown at once: exactly the longest beginning of a stop text is held back. */
static void only_the_uncertain_is_held(void **state) {
  (void)state;
  const verbatim_text stops[] = {{"aab", 3}, {"b!", 2}};
  const stop_text_set set = {stops, 2};
  static const struct { char next; size_t shown; } steps[] = {{'x', 1}, {'a', 1}, {'a', 1}, {'a', 2}, {'c', 5}, {'b', 5}, {'c', 7}};
  stop_text text = {0};
  shown s = {.bytes = 0};
  for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
    stop_text_push(&text, small, set, steps[i].next, UINT64_MAX, show, &s);
    assert_int_equal(s.bytes, steps[i].shown);
  }
}

/* The longest allowed, token by token: the first byte is still remembered when the last one comes. */
static void the_longest_stop_text(void **state) {
  (void)state;
  char bytes[VERBATIM_STOP_TEXT_BYTES_MAX];
  memset(bytes, 'x', sizeof bytes);
  bytes[sizeof bytes - 1] = 'y';
  const verbatim_text stop = {bytes, sizeof bytes};
  int32_t ids[301];
  for (uint32_t i = 0; i < 300; i++) ids[i] = 'x';
  ids[300] = 'y';
  outcome o = run(ids, 301, (stop_text_set){&stop, 1});
  assert_int_equal(o.match.index, 0);
  assert_int_equal(o.match.at, 45);
  assert_int_equal(o.shown.bytes, 45);
  o = run(ids, 300, (stop_text_set){&stop, 1});
  assert_int_equal(o.match.index, STOP_TEXT_NONE);
  assert_int_equal(o.shown.bytes, 300);
}

/* === Random cases =========================================================================================================== */

static uint32_t next(uint64_t *seed) {
  *seed = *seed * 6364136223846793005ull + 1442695040888963407ull;
  return (uint32_t)(*seed >> 33);
}

/* The text of whole characters, decoded from the first `count` tokens at once. */
static size_t text_so_far(const int32_t *ids, uint32_t count, char *text) {
  detokenizer d = {0};
  size_t used = 0, added = 0;
  for (uint32_t i = 0; i < count; i++) {
    if (tokenizer_is_special(small, ids[i])) continue;
    assert_int_equal(detokenizer_push(small, &d, ids[i], text + used, TEXT_MAX - used, &added), OK);
    used += added;
  }
  return used;
}

static outcome reference(const int32_t *ids, uint32_t count, stop_text_set set) {
  outcome o = {.match.index = STOP_TEXT_NONE};
  while (o.made < count && o.match.index == STOP_TEXT_NONE) {
    size_t bytes = text_so_far(ids, ++o.made, o.shown.text);
    for (size_t at = 0; at < bytes && o.match.index == STOP_TEXT_NONE; at++)
      for (uint32_t i = 0; i < set.count && o.match.index == STOP_TEXT_NONE; i++)
        if (set.texts[i].count <= bytes - at && memcmp(o.shown.text + at, set.texts[i].bytes, set.texts[i].count) == 0)
          o.match = (stop_text_match){.index = i, .at = at};
    o.shown.bytes = o.match.index == STOP_TEXT_NONE ? bytes : (size_t)o.match.at;
  }
  return o;
}

static void random_texts(void **state) {
  (void)state;
  static const int32_t alphabet[] = {'a', 'a', 'b', 'c', 'd', 256, 257, 258, 259, 260, 0xc3, 0xa9, 0xe2, 0x82, 0xac, LONG_TOKEN};
  static const char *const bits[] = {"a", "b", "c", "d", "ab", "\xc3\xa9", "\xe2\x82\xac", "\xef\xbf\xbd", "x", "</s>"};
  uint64_t seed = 5;
  uint32_t found = 0, rounds = 20000;
  for (uint32_t round = 0; round < rounds; round++) {
    int32_t ids[24];
    char memory[4][VERBATIM_STOP_TEXT_BYTES_MAX + 8];
    verbatim_text texts[4];
    stop_text_set set = {texts, 1 + next(&seed) % 4};
    uint32_t count = 1 + next(&seed) % 24, letters = next(&seed) % 8 ? 15 : 16; /* long tokens are rare */
    for (uint32_t i = 0; i < count; i++) ids[i] = alphabet[next(&seed) % letters];
    for (uint32_t i = 0; i < set.count; i++) {
      uint32_t parts = next(&seed) % 16 ? 1 + next(&seed) % 5 : 60;
      memory[i][0] = 0;
      for (uint32_t k = 0; k < parts; k++) strcat(memory[i], bits[next(&seed) % (next(&seed) % 4 ? 4 : ARRAY_LEN(bits))]);
      texts[i] = (verbatim_text){memory[i], strlen(memory[i])};
    }
    outcome expected = reference(ids, count, set), o = run(ids, count, set);
    assert_int_equal(o.made, expected.made);
    assert_int_equal(o.match.index, expected.match.index);
    if (o.match.index != STOP_TEXT_NONE) {
      found++;
      assert_true(o.match.at == expected.match.at);
      assert_int_equal(o.shown.bytes, expected.shown.bytes);
    }
    assert_memory_equal(o.shown.text, expected.shown.text, expected.shown.bytes);
  }
  assert_in_range(found, rounds / 4, rounds - rounds / 10); /* both outcomes occurred */
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(stops_are_found), cmocka_unit_test(nothing_found_shows_all),
                                     cmocka_unit_test(only_the_uncertain_is_held), cmocka_unit_test(the_longest_stop_text),
                                     cmocka_unit_test(random_texts)};
  return cmocka_run_group_tests(tests, open_small, close_small);
}

/* test_pretokenize.c - the split patterns: every property on every code point, the borders of the grammar, hostile text.
 *
 * Memberships were recorded from the tokenizers library 0.23.3 (Oniguruma, Unicode 16; its Digits: Unicode 17), which was run on each code
 * point. Whole texts are compared in test_tokenizer.c. */
#include "tests/unit/unit.h"
#include "engine/base/digest.h"
#include "engine/text/pretokenize.h"
#include "engine/text/split_pattern.h"
#include "engine/text/tokenizer_tiktoken.h"
#include "tests/unit/text/tokenizer_text.h"
#include <stdlib.h>
#include <string.h>

#define POINTS 0x110000u
#define TEXT_MAX (4u << 20)

static const char deepseek_words[] =
  "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|"
  "\\s*[\r\n]+|\\s+(?!\\S)|\\s+";
static const char gpt4o[] =
  "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
  "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
  "\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";

static const pretokenize_matcher matchers[] = {PRETOKENIZE_AUTOMATON, PRETOKENIZE_PCRE2, PRETOKENIZE_INTERPRETER};

static pretokenize_split pattern_split(const char *pattern) {
  return (pretokenize_split){PRETOKENIZE_PATTERN, pattern, strlen(pattern)};
}

static pretokenizer *open_one(const char *pattern, pretokenize_matcher matcher) {
  pretokenize_split split = pattern_split(pattern);
  pretokenizer *p = NULL;
  assert_int_equal(pretokenize_open(&p, &split, 1, matcher), OK);
  return p;
}

/* === Properties ============================================================================================== */

/* The text is NUL c NUL c ... NUL; c is a member when it stands alone in a piece. */
typedef struct membership {
  const char *text;
  uint32_t *point_at;  /* [bytes of text] code point that starts at this offset, or 0 */
  uint8_t *is_member;  /* [POINTS] */
} membership;

static status note_piece(void *context, const char *piece, size_t bytes) {
  membership *m = context;
  uint32_t c = m->point_at[piece - m->text];
  char again[4];
  if (c != 0 && tokenizer_text_put_point(again, c) == bytes) m->is_member[c] = 1;
  return OK;
}

static void properties_equal_the_library(void **state) {
  (void)state;
  static const struct {
    const char *pattern; /* NULL: the Digits pre-tokenizer */
    size_t count;
    const char *digest;
  } rows[] = {
    {"\\p{L}", 141028, "0e3a75afc956ba8eb72dba742dac848d"}, {"\\p{Lu}", 1858, "e11160a074b8e3140bc0bf859dff16f3"},
    {"\\p{Ll}", 2258, "f7b2cde2eee13692e0559060a03914fe"},  {"\\p{Lt}", 31, "83910b0e16ec0d0ed5b1d8988c31aae4"},
    {"\\p{Lm}", 404, "03ecfd84e368744d7064fbf96c6efd32"},   {"\\p{Lo}", 136477, "c1afe2ee9554249d08df310adec9f1c7"},
    {"\\p{M}", 2501, "cd9ff83a5ed1d7d51a9caa920b4f16d6"},   {"\\p{N}", 1911, "1c87a8434546720b3347aae103052b65"},
    {"\\p{Nd}", 760, "7da3c0c75dc277958d28f7d4269fc6ec"},   {"\\p{P}", 855, "2929285e019672fde19bbe1728d2ffb0"},
    {"\\p{S}", 8514, "83e9e52a1affde00bf6a2d3c9be8f645"},   {"\\p{Z}", 19, "764f9e3de863ff41e18faecfce44ea02"},
    {"\\p{Han}", 99030, "e8227c4bc3f41a7c4c0146042850c9ce"}, {"\\s", 25, "aff1dc018dd58b4a76151ed503e2742d"},
    {"[\\p{L}\\p{M}\\p{N}&&[^\\p{Han}]]", 46740, "697578eda2c4f2bc9e720dc721be76fe"},
    {NULL, 1924, "a5d02beb390e73827c1167dbab0ba49a"},
  };
  char *text = malloc((size_t)POINTS * 5 + 1);
  membership m = {text, calloc((size_t)POINTS * 5 + 1, sizeof(uint32_t)), malloc(POINTS)};
  size_t bytes = 0;
  assert_true(text != NULL && m.point_at != NULL && m.is_member != NULL);
  for (uint32_t c = 1; c < POINTS; c++) {
    text[bytes++] = 0;
    m.point_at[bytes] = c;
    bytes += tokenizer_text_put_point(text + bytes, c);
  }
  text[bytes++] = 0;
  for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
    pretokenizer *p = NULL;
    pretokenize_split split = {PRETOKENIZE_DIGIT, NULL, 0};
    if (rows[i].pattern != NULL) split = pattern_split(rows[i].pattern);
    assert_int_equal(pretokenize_open(&p, &split, 1, PRETOKENIZE_AUTOMATON), OK);
    memset(m.is_member, 0, POINTS);
    assert_int_equal(pretokenize_run(p, text, bytes, note_piece, &m), OK);
    pretokenize_close(p);
    size_t count = 0;
    for (uint32_t c = 0; c < POINTS; c++) count += m.is_member[c];
    char digest_is[DIGEST_TEXT_BYTES];
    assert_int_equal(count, rows[i].count);
    assert_string_equal(digest_text(digest_of(m.is_member, POINTS).bytes, digest_is), rows[i].digest);
  }
  free(text);
  free(m.point_at);
  free(m.is_member);
}

/* === Pieces ================================================================================================== */

typedef struct pieces {
  const char *next;    /* pieces must follow one another without a gap */
  size_t count, last_bytes;
  digest_state digest; /* over the sizes */
} pieces;

static status add_piece(void *context, const char *piece, size_t bytes) {
  pieces *p = context;
  assert_ptr_equal(piece, p->next);
  assert_true(bytes > 0);
  p->next = piece + bytes;
  p->count++;
  p->last_bytes = bytes;
  digest_add(&p->digest, &bytes, sizeof bytes);
  return OK;
}

static status split_all(const pretokenizer *p, const char *text, size_t bytes, size_t *count, digest *sizes) {
  pieces all = {.next = text};
  digest_start(&all.digest);
  TRY(pretokenize_run(p, text, bytes, add_piece, &all));
  assert_ptr_equal(all.next, text + bytes);
  *count = all.count;
  *sizes = digest_end(&all.digest);
  return OK;
}

static void matchers_agree(void **state) {
  (void)state;
  static const char *const patterns[] = {deepseek_words, gpt4o, pretokenize_gpt2_pattern, "\\p{N}{1,3}", TOKENIZER_TIKTOKEN_PATTERN,
                                         "\\s+$"};
  char *text = malloc(TEXT_MAX);
  assert_non_null(text);
  size_t bytes = tokenizer_text_make("mix-9", text);
  for (size_t i = 0; i < ARRAY_LEN(patterns); i++) {
    size_t counts[ARRAY_LEN(matchers)] = {0};
    digest sizes[ARRAY_LEN(matchers)];
    for (size_t m = 0; m < ARRAY_LEN(matchers); m++) {
      pretokenizer *p = open_one(patterns[i], matchers[m]);
      assert_int_equal(split_all(p, text, bytes, &counts[m], &sizes[m]), OK);
      pretokenize_close(p);
      assert_int_equal(counts[m], counts[0]);
      assert_memory_equal(&sizes[m], &sizes[0], sizeof sizes[0]);
    }
    assert_true(counts[0] > (strcmp(patterns[i], "\\s+$") == 0 ? 0u : 1000u));
  }
  free(text);
}

/* Matches that PCRE2 misses if it may first search for a start position: the first only with JIT code, the second also without. */
static void every_start_is_tried(void **state) {
  (void)state;
  static const struct {
    const char *pattern, *text;
    size_t count;
  } rows[] = {{"(?:a|)aa+aa", "aaaa aaaaa aaa", 4}, {"(?=1)a*1", "x1", 2}};
  for (size_t i = 0; i < ARRAY_LEN(rows) * ARRAY_LEN(matchers); i++) {
    size_t count = 0, row = i / ARRAY_LEN(matchers);
    digest sizes;
    pretokenizer *p = open_one(rows[row].pattern, matchers[i % ARRAY_LEN(matchers)]);
    assert_int_equal(split_all(p, rows[row].text, strlen(rows[row].text), &count, &sizes), OK);
    assert_int_equal(count, rows[row].count);
    pretokenize_close(p);
  }
}

/* 4 MiB of one character with one of another kind after it: a match that gives back the whole run must still be found. */
static void long_runs_are_split(void **state) {
  (void)state;
  static const char *const patterns[] = {deepseek_words, gpt4o, pretokenize_gpt2_pattern, TOKENIZER_TIKTOKEN_PATTERN, "\\s+$"};
  static const char runs[] = " \nAa1!\001", ends[] = "x\n";
  char *text = malloc(TEXT_MAX);
  assert_non_null(text);
  for (size_t i = 0; i < 2 * ARRAY_LEN(patterns); i++) {
    pretokenizer *p = open_one(patterns[i / 2], matchers[i % 2]);
    for (const char *run = runs; *run != 0; run++) {
      for (const char *end = ends; *end != 0; end++) {
        size_t count = 0;
        digest sizes;
        memset(text, *run, TEXT_MAX);
        text[TEXT_MAX - 1] = *end;
        fail_clear();
        assert_int_equal(split_all(p, text, TEXT_MAX, &count, &sizes), OK);
        assert_true(count >= 1);
      }
    }
    pretokenize_close(p);
  }
  free(text);
}

/* 2^40 ways to fail: the match limit ends it, with JIT code and without; the automaton tries all ways at once. */
static void hopeless_match_ends(void **state) {
  (void)state;
  char pattern[512] = "", text[64];
  for (int i = 0; i < 40; i++) strcat(pattern, "(a|a)?");
  strcat(pattern, "\\p{N}"); /* a missing literal would be noticed at once */
  memset(text, 'a', sizeof text);
  for (size_t m = 0; m < ARRAY_LEN(matchers); m++) {
    pretokenizer *p = open_one(pattern, matchers[m]);
    size_t count = 0;
    digest sizes;
    fail_clear();
    assert_int_equal(split_all(p, text, sizeof text, &count, &sizes), matchers[m] == PRETOKENIZE_AUTOMATON ? OK : ERR_LIMIT);
    pretokenize_close(p);
  }
}

/* === Grammar ================================================================================================= */

static void white_space_at_the_end(void **state) {
  (void)state;
  static const struct {
    const char *text;
    size_t count, last_bytes;
  } rows[] = {{"a b \t", 2, 2}, {"a b", 1, 3}, {" \n", 1, 2}, {"a \n b", 1, 5}, {"\xE3\x80\x80", 1, 3}, {"a\xE1\xA0\x8E", 1, 4}};
  pretokenizer *p = open_one("\\s+$", PRETOKENIZE_AUTOMATON);
  for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
    pieces all = {.next = rows[i].text};
    digest_start(&all.digest);
    assert_int_equal(pretokenize_run(p, rows[i].text, strlen(rows[i].text), add_piece, &all), OK);
    assert_int_equal(all.count, rows[i].count);
    assert_int_equal(all.last_bytes, rows[i].last_bytes);
  }
  pretokenize_close(p);
}

static void patterns_outside_the_grammar_are_refused(void **state) {
  (void)state;
  static const struct {
    const char *pattern, *says;
  } rows[] = {
    {"\\d+", "this escape"},        {"\\bx", "this escape"},         {"\\x41", "this escape"},      {"a\\", "backslash at the end"},
    {"\\1", "this escape"},         {"\\Gx", "this escape"},         {"[\\w]", "this escape"},      {"[\\P{L}]", "this escape"},
    {"\\p{Greek}", "this property"}, {"\\p{^L}", "this property"},   {"\\pL", "without {name}"},    {"\\p{L", "without {name}"},
    {"[[:alpha:]]", "unescaped"},   {"[a&&b]", "'&&' before"},             {"[]a]", "empty class"},       {"[^]", "empty class"},
    {"[abc", "without its ']'"},    {"[b-a]", "backwards"},          {"[\\s-z]", "range from a set"}, {"[a-c-e]", "plain '-'"},
    {"(?<=a)b", "kind of group"},   {"(?<!a)b", "kind of group"},    {"(?>a)", "kind of group"},    {"(?i)a", "kind of group"},
    {"(?#x)a", "kind of group"},    {"(a", "without its ')'"},       {"a)", "without its '('"},     {"(?i:a", "without its ')'"},
    {"(?i:\xC3\xA9)", "ASCII"},     {"(?i:off)", "ff, fi, fl"},      {"(?i:mUSt)", "ff, fi, fl"},   {"(?i:[a])", "unescaped"},
    {"(ab)+", "group repeated"},    {"(?:a){2}", "group repeated"},  {"a**", "nothing to repeat"},  {"*a", "nothing to repeat"},
    {"(?=a)?b", "nothing to repeat"}, {"a{2}?", "{..}?"},            {"a{1,3}+", "{..}? or {..}+"}, {"a{,3}", "without its count"},
    {"a{3,1}", "backwards"},        {"a{2000}", "above 1000"},       {"a{x}", "without its count"}, {"a{2", "opens no repeat"},
    {".a", "unescaped"},            {"^a", "unescaped"},             {"a$", "unescaped"},           {"a]", "unescaped"},
    {"a}", "unescaped"},            {"a*", "empty string"},          {"a|", "empty string"},        {"", "empty string"},
    {"[^a&&[^\\p{L}]]", "'&&' here"}, {"[&&[^\\p{L}]]", "'&&' here"}, {"[a&&[\\p{L}]]", "'&&' before"},
    {"[a&&[^\\p{L}]b]", "'&&' before"}, {"[a&&[^\\p{L}x]]", "'&&' before"}, {"[a&&[^\\p{X}]]", "this property"},
    {"[a&&[^\\p{L}", "'&&' before"}, {"\\s+$|a", "unescaped"},   {"\\s*$", "unescaped"},
  };
  for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
    pretokenize_split split = pattern_split(rows[i].pattern);
    pretokenizer *p = NULL;
    fail_clear();
    if (pretokenize_open(&p, &split, 1, PRETOKENIZE_AUTOMATON) != ERR_UNSUPPORTED) fail_msg("\"%s\" was not refused", rows[i].pattern);
    if (strstr(fail_text(), rows[i].says) == NULL)
      fail_msg("\"%s\": \"%s\" does not say \"%s\"", rows[i].pattern, fail_text(), rows[i].says);
    assert_null(p);
  }
}

static void patterns_are_written_out(void **state) {
  (void)state;
  char out[4096];
  split_program program;
  const char *const source = "(?:a|[^\\]b-d\\r])?\\-++(?!\xE6\xBC\xA2)x{2,3}(y)\\S";
  assert_int_equal(split_pattern_translate(source, strlen(source), out, sizeof out, &program), OK);
  assert_string_equal(out, "(?:\\x{61}|[^\\x{5D}\\x{62}-\\x{64}\\x{D}])?\\x{2D}++(?!\\x{6F22})\\x{78}{2,3}(?:\\x{79})"
                           "[^\\x{9}-\\x{D}\\x{20}-\\x{20}\\x{85}-\\x{85}\\x{A0}-\\x{A0}\\x{1680}-\\x{1680}\\x{2000}-\\x{200A}"
                           "\\x{2028}-\\x{2029}\\x{202F}-\\x{202F}\\x{205F}-\\x{205F}\\x{3000}-\\x{3000}]");
  static const char class[] = "x[ab&&[^\\p{Lt}]]*+";
  assert_int_equal(split_pattern_translate(class, strlen(class), out, sizeof out, &program), OK);
  assert_string_equal(out, "\\x{78}(?:[\\x{61}\\x{62}](?<![\\p{Lt}]))*+");
  size_t written_bytes = strlen(out);
  for (size_t room = 1; room <= written_bytes; room++) {
    fail_clear();
    assert_int_equal(split_pattern_translate(class, strlen(class), out, room, &program), ERR_LIMIT);
  }
  fail_clear();
  assert_int_equal(split_pattern_translate("\\p{L}", 5, out, 300, &program), ERR_LIMIT);
  fail_clear();
  char *nested = malloc(SPLIT_PATTERN_BYTES_MAX + 1);
  assert_non_null(nested);
  memset(nested, '(', SPLIT_PATTERN_BYTES_MAX + 1);
  assert_int_equal(split_pattern_translate(nested, SPLIT_PATTERN_BYTES_MAX, out, sizeof out, &program), ERR_UNSUPPORTED);
  fail_clear();
  assert_int_equal(split_pattern_translate(nested, SPLIT_PATTERN_BYTES_MAX + 1, out, sizeof out, &program), ERR_LIMIT);
  free(nested);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(properties_equal_the_library),     cmocka_unit_test(matchers_agree),
    cmocka_unit_test(every_start_is_tried),    cmocka_unit_test(long_runs_are_split),
    cmocka_unit_test(hopeless_match_ends),
    cmocka_unit_test(white_space_at_the_end),
    cmocka_unit_test(patterns_outside_the_grammar_are_refused), cmocka_unit_test(patterns_are_written_out),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_split_automaton.c - the automaton against PCRE2, which defines what a pattern means: piece by piece, on the patterns of known
 * models, on random patterns of the whole grammar, and with tables that are too small. PCRE2 runs without JIT code here, its plainer
 * implementation. */
#include "tests/unit/unit.h"
#include "engine/text/pretokenize.h"
#include "engine/text/split_pattern.h"
#include "tests/unit/text/tokenizer_fixture.h"
#include "tests/unit/text/tokenizer_text.h"
#include "engine/text/tokenizer_tiktoken.h"

#define TEXT_MAX 500000u

static char text[TEXT_MAX];
static uint32_t ends[2][TEXT_MAX];

static size_t make_text(uint64_t *state, size_t count, const uint32_t *from, size_t from_count) {
  size_t used = 0;
  uint32_t c = from[0];
  for (size_t i = 0; i < count; i++) {
    if (tokenizer_text_random(state) % 4 != 0) c = from[tokenizer_text_random(state) % from_count]; /* or the last one again: runs */
    used += tokenizer_text_put_point(text + used, c);
  }
  return used;
}

typedef struct pieces {
  uint32_t *ends;
  size_t count;
} pieces;

static status add_piece(void *context, const char *piece, size_t bytes) {
  pieces *p = context;
  p->ends[p->count++] = (uint32_t)(piece + bytes - text);
  return OK;
}

static status split_text(const pretokenizer *p, size_t bytes, int side, size_t *count) {
  pieces all = {ends[side], 0};
  TRY(pretokenize_run(p, text, bytes, add_piece, &all));
  *count = all.count;
  return OK;
}

/* The pieces by the automaton and by PCRE2. */
typedef struct both {
  const char *pattern;
  pretokenizer *sides[2];
} both;

static status open_both(both *b, const char *pattern, size_t bytes) {
  pretokenize_split split = {PRETOKENIZE_PATTERN, pattern, bytes};
  *b = (both){.pattern = pattern};
  fail_clear();
  TRY(pretokenize_open(&b->sides[0], &split, 1, PRETOKENIZE_AUTOMATON));
  return pretokenize_open(&b->sides[1], &split, 1, PRETOKENIZE_INTERPRETER);
}

static void close_both(both *b) {
  for (int side = 0; side < 2; side++) pretokenize_close(b->sides[side]);
}

/* Returns the number of pieces. */
static size_t compare(const both *b, size_t bytes) {
  size_t counts[2] = {0, 0}, at = 0;
  for (int side = 0; side < 2; side++)
    if (split_text(b->sides[side], bytes, side, &counts[side]) != OK) fail_msg("\"%s\": %s", b->pattern, fail_text());
  while (at < counts[0] && at < counts[1] && ends[0][at] == ends[1][at]) at++;
  if (at == counts[0] && at == counts[1]) return counts[0];
  uint32_t start = at == 0 ? 0 : ends[0][at - 1];
  fail_msg("\"%s\": piece %zu at byte %u of \"%.*s\": expected %u bytes, found %u", b->pattern, at, start, bytes > 300 ? 300 : (int)bytes,
           text, ends[1][at] - start, ends[0][at] - start);
  return 0;
}

/* === Known patterns ========================================================================================== */

static void compare_known(const char *pattern, size_t pattern_bytes) {
  both b;
  uint64_t state = 5;
  size_t pieces_seen = 0;
  static char room[SPLIT_PATTERN_OUTPUT_BYTES_MAX];
  static split_program program;
  assert_int_equal(split_pattern_translate(pattern, pattern_bytes, room, sizeof room, &program), OK);
  assert_true(program.is_whole != (strncmp(pattern, "\\s+$", 4) == 0));
  assert_int_equal(open_both(&b, pattern, pattern_bytes), OK);
  compare(&b, tokenizer_text_make("mix-11", text));
  compare(&b, tokenizer_text_make("edge-11", text));
  for (int i = 0; i < 2000; i++) {
    size_t points = 1 + tokenizer_text_random(&state) % 40;
    pieces_seen += compare(&b, make_text(&state, points, tokenizer_text_edges, ARRAY_LEN(tokenizer_text_edges)));
  }
  assert_true(pieces_seen >= 2000);
  close_both(&b);
}

static void known_patterns_split_as_by_pcre2(void **state) {
  (void)state;
  json_t *variants = fixture_check(json_load_file(FIXTURE_DIR "/variants.json", 0, NULL), "variants.json"), *variant = NULL, *split = NULL;
  const char *name = NULL;
  size_t index = 0, count = 0;
  json_object_foreach(variants, name, variant) {
    json_t *pre = json_object_get(json_object_get(json_object_get(variant, "root"), "pre_tokenizer"), "pretokenizers");
    json_array_foreach(pre, index, split) {
      const json_t *pattern = json_object_get(json_object_get(split, "pattern"), "Regex");
      if (pattern == NULL) continue;
      compare_known(json_string_value(pattern), json_string_length(pattern));
      count++;
    }
  }
  json_decref(variants);
  assert_true(count >= 10);
  compare_known(pretokenize_gpt2_pattern, strlen(pretokenize_gpt2_pattern));
  compare_known(TOKENIZER_TIKTOKEN_PATTERN, strlen(TOKENIZER_TIKTOKEN_PATTERN));
}

/* === Random patterns ========================================================================================= */

static const uint32_t few_points[] = {'a', 'a', 'b', 'B', 's', 0x17F, ' ', '\n', '1', 0xE9, 0x301, 0x4E00, 0x6F22};

static uint32_t roll(uint64_t *state, uint32_t sides) { return (uint32_t)(tokenizer_text_random(state) % sides); }

static void put_item(uint64_t *state, char *out) {
  static const char *const items[] = {
    "a", "a", "b", "B", " ", "\\n", "s", "1", "\xC3\xA9", "\xE6\xBC\xA2", "[ab]", "[^a]", "[^ab\\n]", "\\p{L}", "\\P{L}", "\\p{N}",
    "\\s", "\\S", "[\\p{Lu}\\p{M}]", "[\\p{L}\\p{M}&&[^\\p{Han}]]", "\\p{Han}"};
  static const char *const repeats[] = {"*", "+", "?", "*?", "+?", "??", "*+", "++", "{2}", "{1,3}", "{2,}", "{0,2}"};
  strcat(out, items[roll(state, ARRAY_LEN(items))]);
  if (roll(state, 2) == 0) strcat(out, repeats[roll(state, ARRAY_LEN(repeats))]);
}

static void put_pattern(uint64_t *state, char *out, int depth) {
  static const char *const tails[] = {")", ")?", ")??"};
  uint32_t count = 1 + roll(state, 3);
  for (uint32_t i = 0; i < count; i++) {
    uint32_t kind = roll(state, 12);
    if (kind < 2 && depth < 3) {
      strcat(out, kind == 0 ? "(" : "(?:");
      put_pattern(state, out, depth + 1);
      strcat(out, tails[roll(state, ARRAY_LEN(tails))]);
    } else if (kind == 2) {
      strcat(out, roll(state, 2) == 0 ? "(?=" : "(?!");
      put_item(state, out);
      strcat(out, ")");
    } else if (kind == 3) {
      strcat(out, "(?i:s|ab)");
      strcat(out, roll(state, 2) == 0 ? "?" : "");
    } else {
      put_item(state, out);
    }
  }
  if (roll(state, 3) == 0 && strlen(out) < 200) {
    strcat(out, "|");
    put_pattern(state, out, depth);
  }
}

static void random_patterns_split_as_by_pcre2(void **state) {
  (void)state;
  uint64_t seed = 1;
  size_t taken = 0, whole = 0, cuts = 0;
  static char room[SPLIT_PATTERN_OUTPUT_BYTES_MAX];
  static split_program program;
  for (int i = 0; i < 1500; i++) {
    char pattern[4096] = "";
    both b;
    put_pattern(&seed, pattern, 0);
    if (open_both(&b, pattern, strlen(pattern)) == OK) {
      taken++;
      assert_int_equal(split_pattern_translate(pattern, strlen(pattern), room, sizeof room, &program), OK);
      whole += program.is_whole;
      for (int k = 0; k < 20; k++) cuts += compare(&b, make_text(&seed, 1 + roll(&seed, 30), few_points, ARRAY_LEN(few_points))) - 1;
    }
    close_both(&b);
  }
  assert_true(taken > 600);
  assert_true(whole > taken / 2);
  assert_true(cuts > 50 * taken);
}

/* Left to PCRE2: lookahead by more than a set, most possessive repetitions, a pattern that is too long. */
static void what_one_code_point_cannot_decide_is_left_to_pcre2(void **state) {
  (void)state;
  static const struct {
    const char *pattern;
    bool is_whole;
  } rows[] = {{"a(?!b)", true},  {"a(?!bc)", false}, {"a(?=b|c)", false}, {"a(?!b+)", false}, {"a(?!(b))", false}, {"a?+b", false},
              {"a*+b", true},    {"(ab)?+c", false}, {"(ab)?c", true},    {"\\s+$", false},   {"a{500}", true},    {"a{600}", false},
              {"a{1,400}", false}};
  static char room[SPLIT_PATTERN_OUTPUT_BYTES_MAX];
  static split_program program;
  for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
    assert_int_equal(split_pattern_translate(rows[i].pattern, strlen(rows[i].pattern), room, sizeof room, &program), OK);
    if (program.is_whole != rows[i].is_whole) fail_msg("\"%s\"", rows[i].pattern);
  }
  char many[512] = "", set[8];
  for (uint32_t i = 0; i < 33; i++) { /* one set more than a program can have */
    snprintf(set, sizeof set, "|%c", (int)('A' + i));
    if (i < 26 || i > 31) strcat(many, set + (i == 0));
  }
  strcat(many, "|0|1|2|3|4|5");
  assert_int_equal(split_pattern_translate(many, strlen(many), room, sizeof room, &program), OK);
  assert_false(program.is_whole);
  both b;
  assert_int_equal(open_both(&b, many, strlen(many)), OK);
  memcpy(text, "A5xZ0", 5);
  assert_int_equal(compare(&b, 5), 5);
  close_both(&b);
}

static void groups_nest_as_deep_as_they_may(void **state) {
  (void)state;
  static const char pattern[] = "((((((((((((((((a|(?i:b)?c))))))))))))))))";
  both b;
  assert_int_equal(open_both(&b, pattern, strlen(pattern)), OK);
  memcpy(text, "Bcaxb", 5);
  assert_int_equal(compare(&b, 5), 3);
  close_both(&b);
}

/* === Full tables ============================================================================================= */

/* Bit i of a code point says whether it is in set i: 128 kinds of code points, more columns than the table has. */
static void more_classes_than_columns(void **state) {
  (void)state;
  char pattern[4096] = "";
  uint32_t kinds[128];
  uint64_t seed = 3;
  both b;
  size_t used = 0;
  static const char *const tails[] = {"{2}|", "+|", "(?!\\s)|", "{1,3}|", "|", "{3}|", ""};
  for (uint32_t c = 0; c < 128; c++) kinds[c] = 0x4E00 + c;
  for (uint32_t bit = 0; bit < 7; bit++) {
    pattern[used++] = '[';
    for (uint32_t c = 0; c < 128; c++)
      if ((c >> bit & 1) != 0) used += tokenizer_text_put_point(pattern + used, kinds[c]);
    pattern[used++] = ']';
    strcpy(pattern + used, tails[bit]);
    used += strlen(tails[bit]);
  }
  assert_int_equal(open_both(&b, pattern, used), OK);
  for (int i = 0; i < 20; i++) assert_true(compare(&b, make_text(&seed, 3000, kinds, ARRAY_LEN(kinds))) > 100);
  close_both(&b);
}

/* "An a, and n letters after it" needs 2^n states: the table is cleared on the way, in the middle of matches. */
static void more_states_than_rows(void **state) {
  (void)state;
  static const char pattern[] = "[ab]*a[ab]{12}";
  static const uint32_t letters[] = {'a', 'b'};
  uint64_t seed = 4;
  both b;
  assert_int_equal(open_both(&b, pattern, strlen(pattern)), OK);
  for (int i = 0; i < 20; i++) {
    size_t bytes = make_text(&seed, 20000, letters, 2);
    for (size_t at = 50; at < bytes; at += 1 + roll(&seed, 400)) text[at] = 'c';
    assert_true(compare(&b, bytes) > 50);
  }
  close_both(&b);
}

/* Every match looks at the rest of the text before it takes one letter: the budget ends it long before 2^34 looks. */
static void looking_again_and_again_ends(void **state) {
  (void)state;
  static const char pattern[] = "a*b|a";
  both b;
  size_t count = 0, bytes = 200000;
  assert_int_equal(open_both(&b, pattern, strlen(pattern)), OK);
  memset(text, 'a', bytes);
  fail_clear();
  assert_int_equal(split_text(b.sides[0], bytes, 0, &count), ERR_LIMIT);
  assert_non_null(strstr(fail_text(), "again and again"));
  for (size_t at = 7; at < bytes; at += 8) text[at] = 'b';
  assert_int_equal(compare(&b, bytes), bytes / 8);
  close_both(&b);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(known_patterns_split_as_by_pcre2),
    cmocka_unit_test(random_patterns_split_as_by_pcre2),
    cmocka_unit_test(what_one_code_point_cannot_decide_is_left_to_pcre2),
    cmocka_unit_test(groups_nest_as_deep_as_they_may),
    cmocka_unit_test(more_classes_than_columns),
    cmocka_unit_test(more_states_than_rows),
    cmocka_unit_test(looking_again_and_again_ends),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_score_tokens.c - how pairs of texts become tokens with the shipped tokenizer, and how long texts become windows. */
#include "tests/unit/unit.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "engine/jsonl/score_tokens.h"
#include "tests/unit/text/tokenizer_fixture.h"

#define IDS_MAX 32
#define BOS "<\xEF\xBD\x9C" "begin\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C>"

static tokenizer *tiny; /* BOS 0 before a text, EOS 1 */

typedef struct pair_case {
  const char *context, *continuation;
  bool bos;
  uint32_t from, count;  /* count 0: refused */
  int32_t ids[IDS_MAX];
} pair_case;

/* "add" is 283, "words" 270, ":" 28, " apple" 573, " app" 223 399, "le" 273, " b" 310, " ba" 310..; every digit is one token. */
static const pair_case PAIRS[] = {
  {"add: 12+30=", "42", true, 10, 12, {0, 283, 28, 223, 19, 20, 13, 21, 18, 31, 22, 20}},
  {"add: 12+30=", "42", false, 9, 11, {283, 28, 223, 19, 20, 13, 21, 18, 31, 22, 20}},
  {"words:", " apple", true, 3, 4, {0, 270, 28, 573}},
  {"words: ", "apple", true, 3, 4, {0, 270, 28, 573}},               /* the space moves */
  {"words:  ", "apple", true, 3, 5, {0, 270, 28, 223, 573}},
  {"words: app", "le", true, 0, 0, {0}},                             /* " apple" is one token, " app" two */
  {"words: app", "le badger", true, 0, 0, {0}},                      /* as many tokens as the context alone */
  {"words: app", "le bad", true, 5, 6, {0, 270, 28, 223, 399, 277}}, /* one more, after the context's own */
  {"", "hello", true, 1, 4, {0, 74, 284, 279}},
  {"", "hello", false, 1, 4, {0, 74, 284, 279}},                     /* the prefix token */
  {"  ", "b", true, 1, 3, {0, 223, 310}},
  {"  ", "b", false, 1, 3, {0, 223, 310}},
  {"a", "", true, 0, 0, {0}},
  {"a ", "", true, 0, 0, {0}},
  {"a<\xEF\xBD\x9C" "end\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C>", "b", true, 3, 4, {0, 67, 1, 68}}, /* special, spelled */
  {BOS "a", " b", true, 2, 3, {0, 67, 310}},                          /* not twice */
  {BOS "a", " b", false, 2, 3, {0, 67, 310}},
  {"", BOS "hello", true, 1, 4, {0, 74, 284, 279}},
  {"", BOS, true, 0, 0, {0}},
};

static score_part text_part(const char *text) { return (score_part){.text = (char *)(uintptr_t)text, .bytes = strlen(text)}; }

static score_item pair_item(const score_part *context, score_part *parts, uint32_t count) {
  return (score_item){.line = 7, .context = *context, .parts = parts, .part_count = count, .answer = -1};
}

static void pairs(void **state) {
  (void)state;
  for (size_t i = 0; i < ARRAY_LEN(PAIRS); i++) {
    const pair_case *c = &PAIRS[i];
    score_part context = text_part(c->context), part = text_part(c->continuation);
    score_item item = pair_item(&context, &part, 1);
    score_tokens list = {0};
    fail_clear();
    status result = score_tokens_pairs(tiny, c->bos, &item, &list);
    if ((result == OK) != (c->count > 0)) fail_msg("case %zu: status %d: %s", i, (int)result, fail_text());
    if (result != OK) {
      assert_int_equal(result, ERR_FORMAT);
      assert_non_null(strstr(fail_text(), "line 7: continuation 0"));
    } else {
      assert_int_equal(list.from, c->from);
      assert_int_equal(list.count, c->count);
      for (uint32_t k = 0; k < c->count; k++)
        if (list.ids[k] != c->ids[k]) fail_msg("case %zu, id %u: expected %d, found %d", i, k, c->ids[k], list.ids[k]);
    }
    score_tokens_close(&list);
  }
}

/* Every kind of white space that Python's str.isspace accepts moves, and nothing else. */
static void white_space(void **state) {
  (void)state;
  static const char *const blanks[] = {" ", "\t", "\n", "\r", "\x1c", "\x1f", "\xC2\x85", "\xC2\xA0", "\xE2\x80\xA8", "\xE3\x80\x80"};
  static const char *const others[] = {"\x1b", "\x7f", "\xC2\xAD", "\xE2\x80\x8B", "\xEF\xBB\xBF"};
  for (size_t i = 0; i < ARRAY_LEN(blanks) + ARRAY_LEN(others); i++) {
    bool is_blank = i < ARRAY_LEN(blanks);
    const char *space = is_blank ? blanks[i] : others[i - ARRAY_LEN(blanks)];
    char text[32];
    snprintf(text, sizeof text, "a%s%s", space, space);
    score_part context = text_part(text), part = text_part("+");
    score_item item = pair_item(&context, &part, 1);
    score_tokens list = {0};
    assert_int_equal(score_tokens_pairs(tiny, true, &item, &list), OK);
    if ((list.from == 2) != is_blank) fail_msg("case %zu: %u tokens of the context", i, list.from);
    assert_int_equal(list.ids[1], 67);
    score_tokens_close(&list);
    snprintf(text, sizeof text, "%sa %s", space, space);
    part = text_part(text);
    size_t bytes = strlen(space);
    assert_true(score_tokens_bytes(&part) == 2 + bytes + (is_blank ? 0 : bytes));
    assert_true(score_tokens_words(&part) == (is_blank ? 3 : 2));
    part = text_part(space);
    assert_true(score_tokens_bytes(&part) == bytes); /* no white space: the whole text */
  }
  score_part several = text_part(" a  b\n\nc");
  assert_true(score_tokens_words(&several) == 4); /* as many parts as a split at white space gives, with an empty one in front */
  assert_true(score_tokens_words(&(score_part){.text = (char[]){0}}) == 1);
}

static void several_and_ids(void **state) {
  (void)state;
  score_part context = text_part("words: "), parts[] = {text_part("apple"), text_part("b"), text_part("apple apple")};
  score_item item = pair_item(&context, parts, 3);
  score_tokens lists[3] = {0};
  assert_int_equal(score_tokens_pairs(tiny, true, &item, lists), OK);
  static const int32_t expected[3][5] = {{0, 270, 28, 573}, {0, 270, 28, 310}, {0, 270, 28, 573, 573}};
  for (uint32_t i = 0; i < 3; i++) {
    assert_int_equal(lists[i].from, 3);
    assert_int_equal(lists[i].count, i == 2 ? 5 : 4);
    assert_memory_equal(lists[i].ids, expected[i], lists[i].count * sizeof(int32_t));
    score_tokens_close(&lists[i]);
  }
  int32_t a[] = {5, 6}, b[] = {7};
  score_part ids = {.ids = a, .id_count = 2}, id_parts[] = {{.ids = b, .id_count = 1}, {.ids = b, .id_count = 0}};
  item = pair_item(&ids, id_parts, 2);
  fail_clear();
  assert_int_equal(score_tokens_pairs(NULL, true, &item, lists), ERR_FORMAT); /* the second has none */
  assert_non_null(strstr(fail_text(), "continuation 1 is empty"));
  assert_true(lists[0].from == 2 && lists[0].count == 3 && lists[0].ids[0] == 5 && lists[0].ids[2] == 7);
  for (uint32_t i = 0; i < 2; i++) score_tokens_close(&lists[i]);
  item.context.id_count = 0;
  fail_clear();
  assert_int_equal(score_tokens_pairs(NULL, true, &item, lists), ERR_FORMAT);
  assert_non_null(strstr(fail_text(), "\"context_ids\" is empty"));
  fail_clear();
}

static void whole_texts(void **state) {
  (void)state;
  static const int32_t expected[] = {0, 74, 284, 279};
  score_part part = text_part("hello"), none = {0};
  score_item item = pair_item(&none, &part, 1);
  score_tokens list = {0};
  assert_int_equal(score_tokens_whole(tiny, &item, &list), OK);
  assert_true(list.from == 1 && list.count == 4);
  assert_memory_equal(list.ids, expected, sizeof expected);
  score_tokens_close(&list);
  int32_t ids[] = {9, 8};
  part = (score_part){.ids = ids, .id_count = 2};
  assert_int_equal(score_tokens_whole(NULL, &item, &list), OK);
  assert_true(list.from == 1 && list.count == 2 && list.ids[0] == 9 && list.ids[1] == 8);
  score_tokens_close(&list);
  part.id_count = 1;
  assert_int_equal(score_tokens_whole(NULL, &item, &list), ERR_FORMAT);
  score_tokens_close(&list);
  part = text_part("");
  fail_clear();
  assert_int_equal(score_tokens_whole(tiny, &item, &list), ERR_FORMAT);
  assert_non_null(strstr(fail_text(), "line 7: \"text\" is empty"));
  score_tokens_close(&list);
  fail_clear();
}

/* A tokenizer that adds two tokens before a text and one after it, and names no BOS; then one that names an EOS. */
static void other_tokenizers(void **state) {
  (void)state;
  json_t *tree = fixture_small(), *around = json_loads(
    "{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<s>\",\"type_id\":0}},"
    "{\"SpecialToken\":{\"id\":\"<s>\",\"type_id\":0}},{\"Sequence\":{\"id\":\"A\",\"type_id\":0}},"
    "{\"SpecialToken\":{\"id\":\"<s>\",\"type_id\":0}}],\"pair\":[],"
    "\"special_tokens\":{\"<s>\":{\"id\":\"<s>\",\"ids\":[259],\"tokens\":[\"<s>\"]}}}", 0, NULL);
  json_object_set_new(tree, "post_processor", around);
  char *text = fixture_dump(tree);
  static const char with_eos[] = "{\"eos_token\":\"</s>\"}";
  for (int has_eos = 0; has_eos < 2; has_eos++) {
    tokenizer *t = NULL;
    assert_int_equal(tokenizer_open_memory(&t, text, strlen(text), has_eos ? with_eos : NULL, has_eos ? sizeof with_eos - 1 : 0), OK);
    score_part context = text_part("ab"), part = text_part(" cd");
    score_item item = pair_item(&context, &part, 1);
    score_tokens list = {0};
    static const int32_t expected[] = {259, 259, 256, 32, 258};
    assert_int_equal(score_tokens_pairs(t, true, &item, &list), OK); /* nothing is added after it */
    assert_true(list.from == 3 && list.count == 5);
    for (uint32_t i = 0; i < 5; i++) assert_true(list.ids[i] == expected[i] || i == 3);
    score_tokens_close(&list);
    item.context = text_part("");
    fail_clear();
    assert_int_equal(score_tokens_pairs(t, true, &item, &list), has_eos ? OK : ERR_UNSUPPORTED);
    assert_true(has_eos ? list.from == 1 && list.ids[0] == 260 : strstr(fail_text(), "neither a BOS nor an EOS") != NULL);
    score_tokens_close(&list);
    tokenizer_close(t);
  }
  free(text);
  fail_clear();
}

/* === Windows ================================================================================================================ */

/* How lm-evaluation-harness splits a list of tokens with a prefix into windows: pairs of inputs and of the tokens they predict, with at
 * most `most` inputs each. The first window predicts from the prefix on. Each later window predicts the next tokens; its inputs are the
 * `most` tokens that end one before the last predicted token, of which only those that precede the first predicted token are context. */
static uint32_t reference(uint32_t tokens, uint32_t most, score_window *windows) {
  uint32_t count = 0, predicted = 0;
  while (predicted < tokens) {
    uint32_t now = min_u32(tokens - predicted, most), end = predicted + now;
    uint32_t input_begin, input_end = end; /* in the list with the prefix in front: token i is number i + 1 */
    if (predicted == 0) input_begin = 0;
    else input_begin = end - most;
    uint32_t before = (input_end - input_begin) - (now - 1); /* inputs that stay */
    windows[count++] = (score_window){.first = input_begin, .count = before + now, .from = before};
    predicted = end;
  }
  return count;
}

/* The example of its documentation: ten tokens and a prefix P, four inputs: P | 0 1 2 3, 3 | 4 5 6 7, 5 6 7 | 8 9. */
static void windows_of_the_example(void **state) {
  (void)state;
  static const score_window expected[] = {{0, 5, 1}, {4, 5, 1}, {6, 5, 3}};
  assert_int_equal(score_tokens_window_count(11, 5), 3);
  for (uint32_t i = 0; i < 3; i++) {
    score_window found = score_tokens_window(11, 5, i);
    assert_true(found.first == expected[i].first && found.count == expected[i].count && found.from == expected[i].from);
  }
}

static void windows(void **state) {
  (void)state;
  static score_window expected[256];
  for (uint32_t max_len = 2; max_len < 20; max_len++)
    for (uint32_t count = 2; count < 80; count++) {
      uint32_t windows_made = reference(count - 1, max_len - 1, expected), next = 1;
      assert_int_equal(score_tokens_window_count(count, max_len), windows_made);
      for (uint32_t i = 0; i < windows_made; i++) {
        score_window w = score_tokens_window(count, max_len, i);
        if (w.first != expected[i].first || w.count != expected[i].count || w.from != expected[i].from)
          fail_msg("%u of max_len %u, window %u: %u %u %u", count, max_len, i, w.first, w.count, w.from);
        assert_true(w.count <= max_len && w.from >= 1);
        assert_int_equal(w.first + w.from, next); /* every token once, in order */
        next = w.first + w.count;
      }
      assert_int_equal(next, count);
    }
  score_window last = score_tokens_window(INT32_MAX, 2, INT32_MAX - 2);
  assert_true(last.first == INT32_MAX - 2u && last.count == 2 && last.from == 1);
}

static int open_tiny(void **state) {
  (void)state;
  return tokenizer_open(&tiny, "tests/tiny");
}

static int close_tiny(void **state) {
  (void)state;
  tokenizer_close(tiny);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(pairs), cmocka_unit_test(white_space), cmocka_unit_test(several_and_ids), cmocka_unit_test(whole_texts),
    cmocka_unit_test(other_tokenizers), cmocka_unit_test(windows_of_the_example), cmocka_unit_test(windows)};
  return cmocka_run_group_tests(tests, open_tiny, close_tiny);
}

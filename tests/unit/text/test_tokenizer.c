/* test_tokenizer.c - whole encodings: identical to the tokenizers library, on the variants and cases of tests/data/tokenizer, and to
 * tiktoken in the folder kimi there.
 *
 * golden.txt holds the libraries' results (written by tools/tokenizer_compare.py --record; without arguments that tool compares live).
 * malloc, calloc and realloc are wrapped here to check that encoding allocates nothing: link with
 * -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc. */
#include "tests/unit/unit.h"
#include "engine/text/detokenizer.h"
#include "tests/unit/text/tokenizer_fixture.h"
#include "tests/unit/text/tokenizer_text.h"
#include "engine/text/tokenizer.h"
#include "engine/base/utf8.h"

#define IDS_MAX (TOKENIZER_TEXT_BYTES_MAX + 8)

static size_t allocations;
void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__real_realloc(void *old, size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_realloc(void *old, size_t bytes);

void *__wrap_malloc(size_t bytes) {
  allocations++;
  return __real_malloc(bytes);
}
void *__wrap_calloc(size_t count, size_t bytes) {
  allocations++;
  return __real_calloc(count, bytes);
}
void *__wrap_realloc(void *old, size_t bytes) {
  allocations++;
  return __real_realloc(old, bytes);
}

static char *text;    /* [TOKENIZER_TEXT_BYTES_MAX + 1] */
static int32_t *ids;  /* [IDS_MAX] */

static int take_buffers(void **state) {
  (void)state;
  text = malloc(TOKENIZER_TEXT_BYTES_MAX + 1);
  ids = malloc(IDS_MAX * sizeof *ids);
  return text == NULL || ids == NULL;
}

static int give_buffers(void **state) {
  (void)state;
  free(text);
  free(ids);
  return 0;
}

static tokenizer *open_tree(json_t *tree, const char *config) {
  char *json = fixture_dump(tree);
  tokenizer *t = NULL;
  fail_clear();
  status s = tokenizer_open_memory(&t, json, strlen(json), config, config == NULL ? 0 : strlen(config));
  free(json);
  if (s != OK) fail_msg("the tokenizer was not opened: %s", fail_text());
  return t;
}

static tokenizer *open_kimi(void) {
  tokenizer *t = NULL;
  fail_clear();
  if (tokenizer_open(&t, FIXTURE_DIR "/kimi") != OK) fail_msg("the tokenizer was not opened: %s", fail_text());
  return t;
}

/* === Identity ================================================================================================ */

/* The ids of a case, or of all explicit texts one after the other. */
static size_t encode_case(const tokenizer *t, const char *name, bool around, bool parse) {
  size_t count = 0;
  if (strcmp(name, "texts") != 0) {
    size_t bytes = tokenizer_text_make(name, text);
    assert_true(bytes > 0);
    assert_int_equal(tokenizer_encode(t, text, bytes, around, parse, ids, IDS_MAX, &count), OK);
    return count;
  }
  size_t total = 0, index = 0;
  json_t *texts = json_load_file(FIXTURE_DIR "/texts.json", JSON_ALLOW_NUL, NULL), *value = NULL;
  assert_true(json_array_size(texts) > 40);
  json_array_foreach(texts, index, value) {
    const char *bytes = json_string_value(value);
    assert_int_equal(tokenizer_encode(t, bytes, json_string_length(value), around, parse, ids + total, IDS_MAX - total, &count), OK);
    total += count;
  }
  json_decref(texts);
  return total;
}

static void ids_equal_the_library(void **state) {
  (void)state;
  char line[256], variant[64], name[64], want[64], found[DIGEST_TEXT_BYTES], open_variant[64] = "";
  int around = 0, plain = 0;
  unsigned long want_count = 0;
  size_t lines = 0;
  tokenizer *t = NULL;
  FILE *golden = fopen(FIXTURE_DIR "/golden.txt", "r");
  assert_non_null(golden);
  while (fgets(line, sizeof line, golden) != NULL) {
    assert_int_equal(sscanf(line, "%63s %63s %d %d %lu %63s", variant, name, &around, &plain, &want_count, want), 6);
    if (strcmp(variant, open_variant) != 0) {
      tokenizer_close(t);
      t = strcmp(variant, "kimi") == 0 ? open_kimi() : open_tree(fixture_variant(variant), NULL);
      strcpy(open_variant, variant);
    }
    size_t count = encode_case(t, name, around == 1, plain == 0);
    digest_text(digest_of(ids, count * sizeof *ids).bytes, found); /* only for little-endian machines, like all of Verbatim */
    if (count != want_count || strcmp(found, want) != 0)
      fail_msg("%s %s around=%d plain=%d: expected %lu ids %s, found %zu %s; hint: tools/tokenizer_compare.py", variant, name, around,
               plain, want_count, want, count, found);
    lines++;
  }
  fclose(golden);
  tokenizer_close(t);
  assert_true(lines > 120);
}

static void check_ids(const tokenizer *t, const char *string, bool around, bool parse, const int32_t *want, size_t want_count) {
  size_t count = 0;
  assert_int_equal(tokenizer_encode(t, string, strlen(string), around, parse, ids, IDS_MAX, &count), OK);
  assert_int_equal(count, want_count);
  assert_memory_equal(ids, want, count * sizeof *ids);
}
#define CHECK_IDS(t, string, around, parse, ...) \
  check_ids(t, string, around, parse, (const int32_t[]){__VA_ARGS__}, sizeof((int32_t[]){__VA_ARGS__}) / sizeof(int32_t))

/* fixture_small: bytes are ids 0..255, ab 256, abc 257, cd 258, <s> 259 special, </s> 260 with stripping. */
static void small_texts(void **state) {
  (void)state;
  tokenizer *t = open_tree(fixture_small(), "{\"bos_token\":{\"content\":\"<s>\"},\"eos_token\":\"</s>\",\"chat_template\":[]}");
  CHECK_IDS(t, "abcd", false, true, 257, 'd');
  CHECK_IDS(t, "acd", false, true, 'a', 258);
  CHECK_IDS(t, "ab cab", false, true, 256, ' ', 'c', 256);
  CHECK_IDS(t, "1234", false, true, '1', '2', '3', '4');
  CHECK_IDS(t, "<s>ab", true, true, 259, 259, 256);
  CHECK_IDS(t, "<s>ab", true, false, 259, '<', 's', '>', 256);
  CHECK_IDS(t, "a \n</s>\xC2\xA0 b", false, false, 'a', 260, 'b');
  CHECK_IDS(t, "</s></s>", false, true, 260, 260);
  CHECK_IDS(t, "\xC3\xA9", false, true, 0xC3, 0xA9);
  size_t bytes = 0;
  assert_int_equal(tokenizer_vocab_size(t), 261);
  assert_int_equal(tokenizer_bos(t), 259);
  assert_int_equal(tokenizer_eos(t), 260);
  assert_true(tokenizer_is_special(t, 259));
  assert_false(tokenizer_is_special(t, 260));
  assert_false(tokenizer_is_special(t, -1));
  assert_memory_equal(tokenizer_token_bytes(t, 257, &bytes), "abc", 3);
  assert_int_equal(bytes, 3);
  assert_null(tokenizer_token_bytes(t, 261, &bytes));
  assert_null(tokenizer_token_bytes(t, -1, &bytes));
  tokenizer_close(t);
}

/* Leftmost first, then longest; not normalized before normalized, wherever they are; the expected ids are the library's. */
static void overlapping_added_tokens(void **state) {
  (void)state;
  static const struct {
    const char *content;
    bool is_special, is_normalized;
  } rows[] = {{"<ab", false, true}, {"b>", false, false}, {"[x", true, false}, {"[xyz", false, false},
            {"yz", false, true}, {"(cd)", true, true}};
  json_t *tree = fixture_small(), *added = json_object_get(tree, "added_tokens");
  json_array_clear(added);
  for (size_t i = 0; i < ARRAY_LEN(rows); i++)
    json_array_append_new(added, json_pack("{s:i,s:s,s:b,s:b,s:b,s:b,s:b}", "id", 259 + (int)i, "content", rows[i].content,
                                           "single_word", 0, "lstrip", 0, "rstrip", 0, "normalized", (int)rows[i].is_normalized,
                                           "special", (int)rows[i].is_special));
  tokenizer *t = open_tree(tree, NULL);
  CHECK_IDS(t, "<ab> <abc", false, true, '<', 'a', 260, ' ', 259, 'c');
  CHECK_IDS(t, "[xyz[xy[x", false, true, 262, 261, 'y', 261);
  CHECK_IDS(t, "[xyz[xy[xyyz", false, false, 262, '[', 'x', 'y', '[', 'x', 'y', 263);
  CHECK_IDS(t, "(cd)", false, true, 264);
  CHECK_IDS(t, "(cd)", false, false, '(', 258, ')');
  tokenizer_close(t);
}

/* The expected ids of all classes are those of transformers 4.57 and 5.23, which differ in the second: there it is version 4's. */
static void class_decides_what_stands_around(void **state) {
  (void)state;
  const char *const tokens = "\"bos_token\":\"a\",\"eos_token\":\"b\",\"unk_token\":null";
  static const struct {
    const char *fields;
    bool is_other;
    int32_t ids[4];
    size_t count;
  } rows[] = {
    {"\"tokenizer_class\":\"PreTrainedTokenizerFast\",\"add_bos_token\":true,\"add_eos_token\":true", false, {259, 'x'}, 2},
    {"\"tokenizer_class\":\"LlamaTokenizerFast\",\"add_bos_token\":true,\"add_eos_token\":true", true, {'a', 'x', 'b'}, 3},
    {"\"tokenizer_class\":\"LlamaTokenizerFast\"", true, {'a', 'x'}, 2},
    {"\"tokenizer_class\":\"LlamaTokenizer\",\"add_bos_token\":null", true, {'x'}, 1},
    {"\"tokenizer_class\":\"TokenizersBackend\",\"add_bos_token\":false", false, {259, 'x'}, 2},
    {"\"tokenizer_class\":null,\"add_eos_token\":false", false, {259, 'x'}, 2},
  };
  for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
    char config[256];
    snprintf(config, sizeof config, "{%s,%s}", tokens, rows[i].fields);
    tokenizer *t = open_tree(fixture_small(), config);
    check_ids(t, "x", true, true, rows[i].ids, rows[i].count);
    CHECK_IDS(t, "x", false, true, 'x');
    assert_int_equal(tokenizer_remark(t) != NULL, rows[i].is_other);
    tokenizer_close(t);
  }
  tokenizer *t = open_tree(fixture_small(), "{\"tokenizer_class\":\"LlamaTokenizer\",\"bos_token\":\"<s>\",\"eos_token\":null,"
                                            "\"unk_token\":null}");
  CHECK_IDS(t, "x", true, true, 259, 'x');
  assert_null(tokenizer_remark(t)); /* flags and file agree */
  assert_int_equal(tokenizer_bos(t), 259);
  assert_int_equal(tokenizer_eos(t), -1);
  tokenizer_close(t);
}

/* Decoding returns the text, token by token, for a variant without stripping. */
static void decoding_gives_the_text_back(void **state) {
  (void)state;
  json_t *tree = fixture_variant("deepseek"), *token = NULL;
  size_t index = 0, count = 0, used = 0, added = 0;
  json_array_foreach(json_object_get(tree, "added_tokens"), index, token) {
    json_object_set_new(token, "lstrip", json_false());
    json_object_set_new(token, "rstrip", json_false());
    /* "\xC3\xA9" spells a byte in the byte alphabet: such a token does not decode to its content, nor does it in the library. */
    if (strstr(json_string_value(json_object_get(token, "content")), "\xC3\xA9") != NULL)
      json_object_set_new(token, "content", json_string("<never>"));
  }
  tokenizer *t = open_tree(tree, NULL);
  detokenizer d = {0};
  size_t bytes = tokenizer_text_make("mix-7", text);
  char *back = malloc(bytes + 3);
  assert_non_null(back);
  assert_int_equal(tokenizer_encode(t, text, bytes, false, true, ids, IDS_MAX, &count), OK);
  for (size_t i = 0; i < count; i++, used += added)
    assert_int_equal(detokenizer_push(t, &d, ids[i], back + used, bytes - used, &added), OK);
  assert_int_equal(used, bytes);
  assert_memory_equal(back, text, bytes);
  assert_int_equal(d.pending_bytes, 0);
  free(back);
  tokenizer_close(t);
}

/* === Errors and limits ======================================================================================= */

static void bad_utf8_is_located(void **state) {
  (void)state;
  tokenizer *t = open_tree(fixture_small(), NULL);
  static const struct {
    const char *bytes, *says;
  } rows[] = {
    {"ab\xFF", "0xFF at offset 2"}, {"\xC3", "0xC3 at offset 0"},
    {"\xE2\x82\xAC\xED\xA0\x80", "0xED at offset 3"}, {"a\xC0\x80", "0xC0 at offset 1"},
  };
  for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
    size_t count = 99;
    fail_clear();
    assert_int_equal(tokenizer_encode(t, rows[i].bytes, strlen(rows[i].bytes), true, true, ids, IDS_MAX, &count), ERR_FORMAT);
    assert_non_null(strstr(fail_text(), rows[i].says));
    assert_int_equal(count, 99);
  }
  tokenizer_close(t);
}

/* Where more bytes follow, a common code point is read by one load: the result is the same for every three bytes. */
static void utf8_is_read_alike_in_long_texts(void **state) {
  (void)state;
  uint8_t p[16];
  size_t different = 0;
  memset(p, 'x', sizeof p);
  for (uint32_t three = 0x80; three < 1u << 24; three += (three & 0xFF) == 0xFF ? 0x81 : 1) { /* that begin with no ASCII */
    p[0] = (uint8_t)three, p[1] = (uint8_t)(three >> 8), p[2] = (uint8_t)(three >> 16);
    size_t at = 0;
    for (int step = 1; at < sizeof p && step > 0; at += step > 0 ? (size_t)step : 0) step = utf8_scan(p + at, sizeof p - at);
    different += utf8_valid_bytes(p, sizeof p) != at;
  }
  assert_int_equal(different, 0);
}

static void limits_are_errors(void **state) {
  (void)state;
  tokenizer *t = open_tree(fixture_variant("deepseek"), NULL);
  size_t count = 99;
  memset(text, 'a', TOKENIZER_TEXT_BYTES_MAX + 1);
  fail_clear();
  assert_int_equal(tokenizer_encode(t, text, TOKENIZER_TEXT_BYTES_MAX + 1, false, true, ids, IDS_MAX, &count), ERR_LIMIT);
  assert_int_equal(count, 99);
  assert_int_equal(tokenizer_encode(t, text, TOKENIZER_TEXT_BYTES_MAX, false, true, ids, IDS_MAX, &count), OK);
  size_t whole = count;
  assert_int_equal(tokenizer_encode(t, text, TOKENIZER_TEXT_BYTES_MAX, false, true, ids, whole, &count), OK);
  fail_clear();
  assert_int_equal(tokenizer_encode(t, text, TOKENIZER_TEXT_BYTES_MAX, false, true, ids, whole - 1, &count), ERR_LIMIT);
  fail_clear();
  assert_int_equal(tokenizer_encode(t, "<think>", 7, false, true, ids, 0, &count), ERR_LIMIT);
  assert_int_equal(tokenizer_encode(t, "", 0, false, true, ids, 0, &count), OK);
  assert_int_equal(count, 0);
  tokenizer_close(t);
}

static void encoding_does_not_allocate(void **state) {
  (void)state;
  static const char *const names[] = {"llama3", "qwen2", "spaced"};
  for (size_t i = 0; i < ARRAY_LEN(names); i++) {
    size_t before = allocations, count = 0;
    tokenizer *t = open_tree(fixture_variant(names[i]), NULL);
    assert_true(allocations > before); /* the counting works */
    size_t bytes = tokenizer_text_make("mix-3", text);
    before = allocations;
    assert_int_equal(tokenizer_encode(t, text, bytes, true, true, ids, IDS_MAX, &count), OK);
    assert_int_equal(allocations, before);
    tokenizer_close(t);
  }
}

/* === Normal form and spaces ================================================================================== */

/* U+1D160 has four bytes, and twelve in normal form C: the result, too, has a bound. */
static void a_normalized_text_is_bounded(void **state) {
  (void)state;
  tokenizer *t = open_tree(fixture_variant("qwen2"), NULL);
  size_t count = 0, bytes = TOKENIZER_TEXT_BYTES_MAX / 8 * 4;
  for (size_t i = 0; i < bytes; i += 4) memcpy(text + i, "\xF0\x9D\x85\xA0", 4);
  fail_clear();
  assert_int_equal(tokenizer_encode(t, text, bytes, false, true, ids, IDS_MAX, &count), ERR_LIMIT);
  assert_non_null(strstr(fail_text(), "normal form C"));
  fail_clear();
  assert_int_equal(tokenizer_encode(t, text, bytes / 4, false, true, ids, IDS_MAX, &count), OK);
  /* A long run of marks: ordered in linear time. */
  for (size_t i = 0; i + 4 <= bytes; i += 4) memcpy(text + i, i % 8 ? "\xCC\xA3\xCC\x87" : "\xCC\x87\xCC\xA3", 4);
  assert_int_equal(tokenizer_encode(t, text, bytes, false, true, ids, IDS_MAX, &count), OK);
  tokenizer_close(t);
}

/* A vocabulary that writes spaces gives the text back, after the space that it put before it. */
static void spaces_come_back(void **state) {
  (void)state;
  static const char *const texts[] = {"Hello  world ", "a", " a", "\xF0\x93\x80\x80 \xC3\xA9\n\t"};
  tokenizer *t = open_tree(fixture_variant("spaced"), NULL);
  for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
    size_t count = 0, at = 0, size = 0;
    assert_int_equal(tokenizer_encode(t, texts[i], strlen(texts[i]), false, true, ids, IDS_MAX, &count), OK);
    for (size_t k = 0; k < count; k++) {
      const uint8_t *bytes = tokenizer_token_bytes(t, ids[k], &size);
      memcpy(text + at, bytes, size);
      at += size;
    }
    assert_int_equal(at, strlen(texts[i]) + 1);
    assert_true(text[0] == ' ' && memcmp(text + 1, texts[i], at - 1) == 0);
  }
  tokenizer_close(t);
}

/* === Digest ================================================================================================== */

static void digest_string(json_t *tree, const char *config, char out[DIGEST_TEXT_BYTES]) {
  tokenizer *t = open_tree(tree, config);
  digest_text(tokenizer_digest(t).bytes, out);
  tokenizer_close(t);
}

static void digest_covers_what_decides_ids(void **state) {
  (void)state;
  static const char *const names[] = {"deepseek", "deepseek_template", "gpt2", "llama3", "qwen2", "gpt4o", "digit", "digits", "grammar",
                                      "deepseek_v2", "youtu", "glm4", "qwen2_bare", "tekken", "spaced", "spaced_first", "spaced_always",
                                      "spaced_never"}; /* spaced_replace means the same as the last */
  char digests[ARRAY_LEN(names) + 3][DIGEST_TEXT_BYTES];
  size_t count = 0;
  for (; count < ARRAY_LEN(names); count++) digest_string(fixture_variant(names[count]), NULL, digests[count]);
  json_t *tree = fixture_variant("deepseek");
  json_object_set_new(json_array_get(json_object_get(tree, "added_tokens"), 3), "rstrip", json_true());
  digest_string(tree, NULL, digests[count++]);
  tree = fixture_variant("deepseek");
  json_array_remove(json_object_get(json_object_get(tree, "model"), "merges"), 2000);
  digest_string(tree, NULL, digests[count++]);
  digest_string(fixture_variant("deepseek"), "{\"eos_token\":\"a\"}", digests[count++]);
  for (size_t i = 0; i < count; i++)
    for (size_t k = 0; k < i; k++) assert_string_not_equal(digests[i], digests[k]);
}

static void digest_ignores_spelling(void **state) {
  (void)state;
  char plain[DIGEST_TEXT_BYTES], respelled[DIGEST_TEXT_BYTES], merged[16384];
  digest_string(fixture_variant("deepseek"), NULL, plain);
  json_t *tree = fixture_variant("deepseek"), *merge = NULL;
  json_t *merges = json_object_get(json_object_get(tree, "model"), "merges");
  size_t index = 0;
  json_array_foreach(merges, index, merge) {
    if (index % 2 == 0) continue;
    snprintf(merged, sizeof merged, "%s %s", json_string_value(json_array_get(merge, 0)), json_string_value(json_array_get(merge, 1)));
    json_array_set_new(merges, index, json_string(merged));
  }
  json_object_set_new(tree, "normalizer", json_null());
  digest_string(tree, "{\"unk_token\":null}", respelled);
  assert_string_equal(plain, respelled);
  digest_string(fixture_small(), NULL, plain); /* pinned: a receipt written today must be verifiable tomorrow */
  assert_string_equal(plain, "39e190d0eb72954e86212c1ba68bd352");
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(ids_equal_the_library),        cmocka_unit_test(small_texts),
    cmocka_unit_test(overlapping_added_tokens),     cmocka_unit_test(class_decides_what_stands_around),
    cmocka_unit_test(decoding_gives_the_text_back),
    cmocka_unit_test(bad_utf8_is_located),          cmocka_unit_test(utf8_is_read_alike_in_long_texts),
    cmocka_unit_test(limits_are_errors),
    cmocka_unit_test(encoding_does_not_allocate),   cmocka_unit_test(a_normalized_text_is_bounded), cmocka_unit_test(spaces_come_back),
    cmocka_unit_test(digest_covers_what_decides_ids),
    cmocka_unit_test(digest_ignores_spelling),
  };
  return cmocka_run_group_tests(tests, take_buffers, give_buffers);
}

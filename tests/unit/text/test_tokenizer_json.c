/* test_tokenizer_json.c - a tokenizer.json that differs from what is implemented is refused, by name, and never crashes. */
#include "tests/unit/unit.h"
#include "tests/unit/text/tokenizer_fixture.h"
#include "engine/text/tokenizer.h"
#include "engine/text/tokenizer_json.h"
#include <unistd.h>

static status parse(const char *json, size_t bytes, const char *config) {
  tokenizer_data data = {0};
  const tokenizer_text texts[TOKENIZER_FILE_COUNT] = {[TOKENIZER_JSON] = {json, bytes},
                                                      [TOKENIZER_CONFIG] = {config, config == NULL ? 0 : strlen(config)}};
  fail_clear();
  status s = tokenizer_json_parse(&data, texts);
  tokenizer_json_free(&data);
  return s;
}

static char folder[] = "/tmp/verbatim_test_tokenizer_json.XXXXXX";
static const char *const names[] = {"tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "tokenizer.json"};

static int make_folder(void **state) {
  (void)state;
  return mkdtemp(folder) == NULL;
}

static int remove_folder(void **state) {
  char path[128];
  (void)state;
  for (size_t i = 0; i < ARRAY_LEN(names); i++) {
    snprintf(path, sizeof path, "%s/%s", folder, names[i]);
    unlink(path);
  }
  return rmdir(folder);
}

/* The folder holds fixture_small and these files beside it; NULL: the file is absent. files: [3] as named. */
static void write_folder(const char *const *files) {
  char path[128], *json = fixture_dump(fixture_small());
  for (size_t i = 0; i < ARRAY_LEN(names); i++) {
    const char *content = i < 3 ? files[i] : json;
    snprintf(path, sizeof path, "%s/%s", folder, names[i]);
    unlink(path);
    FILE *file = content == NULL ? NULL : fopen(path, "w");
    if (content == NULL) continue;
    assert_non_null(file);
    fputs(content, file);
    assert_int_equal(fclose(file), 0);
  }
  free(json);
}

/* Sets the node at `path` below tree or, if value is NULL, removes it; path: keys and indices with '/' between. */
static void patch(json_t *tree, const char *path, const char *value) {
  char key[256];
  for (;;) {
    size_t size = strcspn(path, "/");
    assert_true(size < sizeof key);
    memcpy(key, path, size);
    key[size] = 0;
    if (path[size] == 0) break;
    tree = json_is_array(tree) ? json_array_get(tree, (size_t)atoi(key)) : json_object_get(tree, key);
    assert_non_null(tree);
    path += size + 1;
  }
  if (value == NULL) {
    assert_int_equal(json_is_array(tree) ? json_array_remove(tree, (size_t)atoi(key)) : json_object_del(tree, key), 0);
    return;
  }
  json_t *parsed = json_loads(value, JSON_DECODE_ANY, NULL);
  assert_non_null(parsed);
  assert_int_equal(json_is_array(tree) ? json_array_set_new(tree, (size_t)atoi(key), parsed) : json_object_set_new(tree, key, parsed), 0);
}

typedef struct refusal {
  const char *path, *value;
  status code;
  const char *says;
} refusal;

static const refusal refusals[] = {
  {"surprise", "1", ERR_UNSUPPORTED, "\"surprise\""},
  {"version", "\"2.0\"", ERR_UNSUPPORTED, "version"},
  {"version", NULL, ERR_FORMAT, "version"},
  {"truncation", "{\"max_length\":8}", ERR_UNSUPPORTED, "truncation"},
  {"padding", "{}", ERR_UNSUPPORTED, "padding"},
  {"normalizer", "{\"type\":\"NFKC\"}", ERR_UNSUPPORTED, "normalizer.type"},
  {"normalizer", "{\"type\":\"NFC\",\"form\":1}", ERR_UNSUPPORTED, "\"form\""},
  {"normalizer", "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"},{\"type\":\"NFC\"}]}", ERR_UNSUPPORTED, "at most one"},
  {"decoder", "null", ERR_FORMAT, "decoder"},
  {"decoder/type", "\"Metaspace\"", ERR_UNSUPPORTED, "decoder.type"},
  {"added_tokens", "{}", ERR_FORMAT, "added_tokens"},
  {"added_tokens/0", "3", ERR_FORMAT, "added_tokens[]"},
  {"added_tokens/0/single_word", "true", ERR_UNSUPPORTED, "single_word"},
  {"added_tokens/0/lstrip", "0", ERR_FORMAT, "lstrip"},
  {"added_tokens/0/special", NULL, ERR_FORMAT, "special"},
  {"added_tokens/0/extra", "0", ERR_UNSUPPORTED, "\"extra\""},
  {"added_tokens/0/content", "\"\"", ERR_FORMAT, "content"},
  {"added_tokens/0/id", "260", ERR_FORMAT, "the next free id"},
  {"added_tokens/0/id", "-1", ERR_FORMAT, "the next free id"},
  {"added_tokens/0/content", "\"abc\"", ERR_FORMAT, "its id in the vocabulary"},
  {"pre_tokenizer", "null", ERR_UNSUPPORTED, "pre_tokenizer"},
  {"pre_tokenizer", "[]", ERR_FORMAT, "pre_tokenizer"},
  {"pre_tokenizer/type", "\"Whitespace\"", ERR_UNSUPPORTED, "Whitespace"},
  {"pre_tokenizer/pretokenizers", "[]", ERR_UNSUPPORTED, "empty"},
  {"pre_tokenizer/pretokenizers/2", NULL, ERR_UNSUPPORTED, "Digits"},
  {"pre_tokenizer/pretokenizers/1", "{\"type\":\"ByteLevel\",\"add_prefix_space\":false}", ERR_UNSUPPORTED, "ByteLevel"},
  {"pre_tokenizer/pretokenizers/2/add_prefix_space", "true", ERR_UNSUPPORTED, "add_prefix_space"},
  {"pre_tokenizer/pretokenizers/2/use_regex", "1", ERR_FORMAT, "use_regex"},
  {"pre_tokenizer/pretokenizers/0/behavior", "\"Removed\"", ERR_UNSUPPORTED, "behavior"},
  {"pre_tokenizer/pretokenizers/0/invert", "true", ERR_UNSUPPORTED, "invert"},
  {"pre_tokenizer/pretokenizers/0/pattern", "{\"String\":\" \"}", ERR_UNSUPPORTED, "\"String\""},
  {"pre_tokenizer/pretokenizers/0/pattern", NULL, ERR_FORMAT, "pattern"},
  {"pre_tokenizer/pretokenizers/1/individual_digits", "null", ERR_FORMAT, "individual_digits"},
  {"post_processor/type", "\"BertProcessing\"", ERR_UNSUPPORTED, "post_processor"},
  {"post_processor/single", "[]", ERR_UNSUPPORTED, "Sequence \"A\""},
  {"post_processor/single/1/Sequence/id", "\"B\"", ERR_UNSUPPORTED, "Sequence \"A\""},
  {"post_processor/single/0/SpecialToken/id", "\"<x>\"", ERR_FORMAT, "<x>"},
  {"post_processor/special_tokens/<s>/ids", "[261]", ERR_FORMAT, "0 to 260"},
  {"post_processor/special_tokens/<s>/ids", "[1,1,1,1,1]", ERR_LIMIT, "at most 4"},
  {"model", NULL, ERR_FORMAT, "model"},
  {"model/type", "\"Unigram\"", ERR_UNSUPPORTED, "model.type"},
  {"model/dropout", "0.1", ERR_UNSUPPORTED, "dropout"},
  {"model/unk_token", "\"<unk>\"", ERR_UNSUPPORTED, "unk_token"},
  {"model/continuing_subword_prefix", "\"##\"", ERR_UNSUPPORTED, "continuing_subword_prefix"},
  {"model/end_of_word_suffix", "\"</w>\"", ERR_UNSUPPORTED, "end_of_word_suffix"},
  {"model/byte_fallback", "true", ERR_UNSUPPORTED, "pre_tokenizer"},
  {"model/byte_fallback", "1", ERR_UNSUPPORTED, "byte_fallback"},
  {"model/fuse_unk", "0", ERR_FORMAT, "fuse_unk"},
  {"model/ignore_merges", "null", ERR_FORMAT, "ignore_merges"},
  {"model/vocab", "[]", ERR_FORMAT, "vocab"},
  {"model/vocab", "{}", ERR_LIMIT, "tokens"},
  {"model/vocab/abc", "\"257\"", ERR_FORMAT, "abc"},
  {"model/vocab/abc", "300", ERR_FORMAT, "0 to 258"},
  {"model/vocab/abc", "-1", ERR_FORMAT, "0 to 258"},
  {"model/vocab/abc", "256", ERR_FORMAT, "twice"},
  {"model/vocab/A", NULL, ERR_FORMAT, "0 to 257"},
  {"model/merges", "null", ERR_FORMAT, "merges"},
  {"model/merges/0", "\"ab\"", ERR_FORMAT, "merges[0]"},
  {"model/merges/0", "\"a b c\"", ERR_FORMAT, "merges[0]"},
  {"model/merges/0", "[\"a\"]", ERR_FORMAT, "merges[0]"},
  {"model/merges/0", "[\"a\",\"b\",\"c\"]", ERR_FORMAT, "merges[0]"},
  {"model/merges/1", "[\"a\",3]", ERR_FORMAT, "merges[1]"},
  {"model/merges/2", "\"x y\"", ERR_FORMAT, "\"xy\""},
};

/* Of a vocabulary that writes spaces: the variant spaced, then spaced_first. */
static const refusal spaced_refusals[] = {
  {"normalizer/normalizers/0/prepend", "\"_\"", ERR_UNSUPPORTED, "prepend"},
  {"normalizer/normalizers/1/content", "\"_\"", ERR_UNSUPPORTED, "content"},
  {"normalizer/normalizers/1/pattern", "{\"Regex\":\" \"}", ERR_UNSUPPORTED, "\"Regex\""},
  {"normalizer/normalizers/1/type", "\"NFC\"", ERR_UNSUPPORTED, "normalizer.type"},
  {"normalizer/normalizers", "[]", ERR_UNSUPPORTED, "0 members"},
  {"normalizer", "{\"type\":\"NFC\"}", ERR_UNSUPPORTED, "normalizer"},
  {"normalizer", "null", ERR_UNSUPPORTED, "Metaspace"},
  {"pre_tokenizer", "{\"type\":\"ByteLevel\"}", ERR_UNSUPPORTED, "pre_tokenizer"},
  {"decoder", "{\"type\":\"ByteLevel\"}", ERR_UNSUPPORTED, "decoder"},
  {"decoder/decoders/1/type", "\"Fuse\"", ERR_UNSUPPORTED, "ByteFallback"},
  {"decoder/decoders/3/start", "2", ERR_UNSUPPORTED, "Strip"},
  {"decoder/decoders/3/content", "\"x\"", ERR_UNSUPPORTED, "content"},
  {"model/ignore_merges", "true", ERR_UNSUPPORTED, "ignore_merges"},
  {"added_tokens/4/normalized", "true", ERR_UNSUPPORTED, "normalized"},
};
static const refusal metaspace_refusals[] = {
  {"pre_tokenizer/split", "true", ERR_UNSUPPORTED, "split"},
  {"pre_tokenizer/split", NULL, ERR_FORMAT, "split"},
  {"pre_tokenizer/prepend_scheme", "\"last\"", ERR_FORMAT, "prepend_scheme"},
  {"pre_tokenizer/replacement", "\"_\"", ERR_UNSUPPORTED, "replacement"},
  {"pre_tokenizer/type", "\"ByteLevel\"", ERR_UNSUPPORTED, "pre_tokenizer.type"},
};

/* variant: NULL for the small tree. */
static json_t *open_tree(const char *variant) { return variant == NULL ? fixture_small() : fixture_variant(variant); }

static void check_refusals(const char *variant, const refusal *all, size_t count) {
  char *whole = fixture_dump(open_tree(variant));
  assert_int_equal(parse(whole, strlen(whole), NULL), OK);
  free(whole);
  for (size_t i = 0; i < count; i++) {
    json_t *tree = open_tree(variant);
    patch(tree, all[i].path, all[i].value);
    char *json = fixture_dump(tree);
    status s = parse(json, strlen(json), NULL);
    free(json);
    if (s != all[i].code || strstr(fail_text(), all[i].says) == NULL)
      fail_msg("%s = %s: expected %d and \"%s\", found %d and \"%s\"", all[i].path, all[i].value, (int)all[i].code, all[i].says, (int)s,
               fail_text());
  }
}

static void other_fields_are_refused_by_name(void **state) {
  (void)state;
  check_refusals(NULL, refusals, ARRAY_LEN(refusals));
  check_refusals("spaced", spaced_refusals, ARRAY_LEN(spaced_refusals));
  check_refusals("spaced_first", metaspace_refusals, ARRAY_LEN(metaspace_refusals));
}

static void config_is_checked(void **state) {
  (void)state;
  static const refusal rows[] = {
    {NULL, "[]", ERR_FORMAT, "tokenizer_config.json"},
    {NULL, "{", ERR_FORMAT, "tokenizer_config.json"},
    {NULL, "{\"bos_token\":7}", ERR_FORMAT, "bos_token"},
    {NULL, "{\"eos_token\":{\"id\":1}}", ERR_FORMAT, "eos_token"},
    {NULL, "{\"tokenizer_class\":7}", ERR_FORMAT, "tokenizer_class"},
    {NULL, "{\"add_bos_token\":true}", ERR_FORMAT, "add_bos_token"},
    {NULL, "{\"add_eos_token\":1}", ERR_FORMAT, "add_eos_token"},
    {NULL, "{\"add_eos_token\":true,\"eos_token\":\"</s>\"}", ERR_UNSUPPORTED, "add_eos_token"}, /* the file adds <s> alone */
    {NULL, "{\"add_bos_token\":false,\"tokenizer_class\":\"OwnTokenizer\"}", ERR_UNSUPPORTED, "add_bos_token"},
    {NULL, "{\"tokenizer_class\":\"LlamaTokenizerFast\",\"bos_token\":\"<s>\",\"eos_token\":null}", ERR_UNSUPPORTED, "unk_token"},
    {NULL, "{\"split_special_tokens\":true}", ERR_UNSUPPORTED, "split_special_tokens"},
    {NULL, "{\"split_special_tokens\":\"no\"}", ERR_FORMAT, "split_special_tokens"},
    {NULL, "{\"bos_token\":\"a\",\"bos_token\":\"b\"}", ERR_FORMAT, "duplicate"},
  };
  char *json = fixture_dump(fixture_small());
  assert_int_equal(parse(json, strlen(json), "{\"bos_token\":null,\"anything\":[1]}"), OK);
  for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
    assert_int_equal(parse(json, strlen(json), rows[i].value), rows[i].code);
    if (strstr(fail_text(), rows[i].says) == NULL) fail_msg("%s: \"%s\" does not say \"%s\"", rows[i].value, fail_text(), rows[i].says);
  }
  free(json);
}

#define PLAIN "\"tokenizer_class\":\"PreTrainedTokenizerFast\""

/* The ids that transformers 4.57 and 5.23 give a text, or a refusal by name. fixture_small's next free id is 261. */
static void declared_tokens_are_transformers(void **state) {
  (void)state;
  static const struct {
    const char *config, *map, *added, *text;
    int32_t ids[8];
    size_t count;
  } rows[] = {
    {"{" PLAIN ",\"pad_token\":\"<p>\"}", NULL, NULL, "a<p>b", {'a', 261, 'b'}, 3},
    {"{" PLAIN ",\"pad_token\":{\"__type\":\"AddedToken\",\"content\":\"<p>\",\"lstrip\":true}}",
     NULL, NULL, "a <p> b", {'a', 261, ' ', 'b'}, 4},
    {"{" PLAIN ",\"unk_token\":\"<u>\",\"eos_token\":\"<e>\"}", NULL, NULL, "<u><e>", {262, 261}, 2},
    {"{" PLAIN ",\"additional_special_tokens\":[\"<x>\",\"<y>\"],\"mask_token\":\"<m>\"}", NULL, NULL, "<x><y><m>", {262, 263, 261}, 3},
    {"{" PLAIN ",\"extra_special_tokens\":[\"<x>\",\"<y>\"]}", NULL, NULL, "<x><y>", {261, 262}, 2},
    {"{" PLAIN ",\"extra_special_tokens\":{\"image_token\":\"<x>\"}}", NULL, NULL, "<x>", {261}, 1},
    {"{" PLAIN ",\"added_tokens_decoder\":{\"261\":{\"content\":\"<x>\",\"special\":true}}}", NULL, NULL, "a<x>", {'a', 261}, 2},
    {"{" PLAIN ",\"added_tokens_decoder\":{\"262\":{\"content\":\"<y>\"},\"261\":{\"content\":\"<x>\"}}}",
     NULL, NULL, "<y><x>", {262, 261}, 2},
    {"{" PLAIN ",\"added_tokens_decoder\":{\"259\":{\"content\":\"<s>\",\"rstrip\":true,\"special\":true}}}",
     NULL, NULL, "<s> a", {259, 'a'}, 2},
    {"{" PLAIN ",\"added_tokens_decoder\":{}}", "{\"pad_token\":\"<p>\"}", "{\"<x>\":261}", "<p>", {'<', 'p', '>'}, 3},
    {"{" PLAIN ",\"cls_token\":\"abc\"}", NULL, NULL, "xabc", {'x', 257}, 2},
    {"{" PLAIN "}", "{\"pad_token\":\"<p>\"}", NULL, "<p>", {261}, 1},
    {"{" PLAIN "}", "{\"pad_token\":{\"content\":\"<p>\",\"lstrip\":true}}", NULL, "a <p>", {'a', 261}, 2},
    {"{" PLAIN ",\"pad_token\":\"<c>\"}", "{\"pad_token\":\"<p>\"}", NULL, "<p><c>", {261, '<', 'c', '>'}, 4},
    {"{" PLAIN "}", "{\"additional_special_tokens\":[\"<x>\"]}", NULL, "<x>", {261}, 1},
    {"{" PLAIN ",\"eos_token\":\"<c>\"}", "{\"eos_token\":\"<p>\"}", NULL, "<p><c>", {261, '<', 'c', '>'}, 4},
    {NULL, NULL, "{\"<y>\":262,\"<x>\":261}", "<x><y>", {261, 262}, 2},
    {"{" PLAIN ",\"image_token\":\"<s>\",\"additional_special_tokens\":[\"</s>\"],\"pad_token\":\"\"}", NULL, NULL, "<s>", {259}, 1},
  };
  for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
    const char *const files[] = {rows[i].config, rows[i].map, rows[i].added};
    tokenizer *t = NULL;
    int32_t ids[8];
    size_t count = 0;
    write_folder(files);
    fail_clear();
    if (tokenizer_open(&t, folder) != OK) fail_msg("row %zu: %s", i, fail_text());
    assert_int_equal(tokenizer_encode(t, rows[i].text, strlen(rows[i].text), false, true, ids, ARRAY_LEN(ids), &count), OK);
    if (count != rows[i].count || memcmp(ids, rows[i].ids, count * sizeof *ids) != 0) fail_msg("row %zu: other ids", i);
    tokenizer_close(t);
  }
}

static void unclear_declarations_are_refused(void **state) {
  (void)state;
  static const struct {
    const char *config, *map, *added;
    status code;
    const char *file, *says;
  } rows[] = {
    {"{" PLAIN ",\"image_token\":\"<x>\"}",
     NULL, NULL, ERR_UNSUPPORTED, "tokenizer_config.json: image_token", "<x>"}, /* version 4 ignores it */
    {"{" PLAIN ",\"extra_special_tokens\":{\"a\":\"<x>\"},\"additional_special_tokens\":[\"<y>\"]}",
     NULL, NULL, ERR_UNSUPPORTED, "extra", "<x>"},
    {"{" PLAIN ",\"additional_special_tokens\":[\"<y>\"]}",
     "{\"additional_special_tokens\":[\"<x>\"]}", NULL, ERR_UNSUPPORTED, "special_tokens_map.json",
     "<x>"},
    {"{" PLAIN ",\"additional_special_tokens\":[{\"content\":\"<y>\"}]}", NULL, NULL, ERR_UNSUPPORTED, "additional_special_tokens", "<y>"},
    {"{" PLAIN ",\"pad_token\":{\"content\":\"<p>\",\"single_word\":true}}", NULL, NULL, ERR_UNSUPPORTED, "pad_token", "single_word"},
    {"{\"pad_token\":\"<p>\"}", NULL, NULL, ERR_UNSUPPORTED, "pad_token", "tokenizer_class"},
    {"{\"tokenizer_class\":\"Qwen2Tokenizer\",\"pad_token\":\"<p>\"}", NULL, NULL, ERR_UNSUPPORTED, "pad_token", "tokenizer_class"},
    {"{" PLAIN ",\"pad_token\":\"<p>\",\"cls_token\":{\"content\":\"<p>\",\"lstrip\":true}}", NULL, NULL, ERR_UNSUPPORTED, "pad_token",
     "twice"},
    {"{" PLAIN ",\"additional_special_tokens\":[{\"content\":\"<s>\",\"special\":true,\"lstrip\":true}]}", NULL, NULL, ERR_UNSUPPORTED,
     "additional_special_tokens", "other flags"},
    {"{" PLAIN ",\"pad_token\":3}", NULL, NULL, ERR_FORMAT, "tokenizer_config.json", "pad_token"},
    {"{" PLAIN ",\"added_tokens_decoder\":{\"400\":{\"content\":\"<x>\"}}}",
     NULL, NULL, ERR_FORMAT, "added_tokens_decoder", "expected 261"},
    {"{" PLAIN ",\"added_tokens_decoder\":{\"x\":{\"content\":\"<x>\"}}}", NULL, NULL, ERR_FORMAT, "added_tokens_decoder", "\"x\""},
    {"{" PLAIN ",\"added_tokens_decoder\":[]}", NULL, NULL, ERR_FORMAT, "added_tokens_decoder", "object"},
    {NULL, NULL, "{\"<x>\":400}", ERR_FORMAT, "added_tokens.json", "expected 261"},
    {NULL, NULL, "{\"<x>\":\"261\"}", ERR_FORMAT, "added_tokens.json", "<x>"},
    {NULL, "[]", NULL, ERR_FORMAT, "special_tokens_map.json", "object"},
    {NULL, NULL, "{", ERR_FORMAT, "added_tokens.json", "JSON"},
  };
  for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
    const char *const files[] = {rows[i].config, rows[i].map, rows[i].added};
    tokenizer *t = NULL;
    write_folder(files);
    fail_clear();
    status found = tokenizer_open(&t, folder);
    if (found != rows[i].code || strstr(fail_text(), rows[i].file) == NULL || strstr(fail_text(), rows[i].says) == NULL)
      fail_msg("row %zu: expected %d, \"%s\" and \"%s\", found %d: %s", i, (int)rows[i].code, rows[i].file, rows[i].says, (int)found,
               fail_text());
  }
}

static void byte_order_marks_are_skipped(void **state) {
  (void)state;
  static const char *const files[] = {"\xEF\xBB\xBF{" PLAIN ",\"pad_token\":\"<p>\"}", "\xEF\xBB\xBF{}", "\xEF\xBB\xBF{\"<x>\":261}"};
  tokenizer *t = NULL;
  write_folder(files);
  fail_clear();
  if (tokenizer_open(&t, folder) != OK) fail_msg("%s", fail_text());
  assert_int_equal(tokenizer_vocab_size(t), 263);
  tokenizer_close(t);
}

static void same_content_twice_is_refused(void **state) {
  (void)state;
  json_t *tree = fixture_small();
  patch(tree, "added_tokens/1/content", "\"<s>\"");
  char *json = fixture_dump(tree);
  tokenizer *t = NULL;
  fail_clear();
  assert_int_equal(tokenizer_open_memory(&t, json, strlen(json), NULL, 0), ERR_FORMAT);
  assert_null(t);
  assert_non_null(strstr(fail_text(), "\"<s>\" twice"));
  free(json);
}

static void hostile_json_is_refused(void **state) {
  (void)state;
  enum { DEEP = 100000 };
  char *deep = malloc(DEEP);
  assert_non_null(deep);
  memset(deep, '[', DEEP);
  assert_int_equal(parse(deep, DEEP, NULL), ERR_FORMAT);
  assert_int_equal(parse("", 0, NULL), ERR_FORMAT);
  assert_int_equal(parse("null", 4, NULL), ERR_FORMAT);
  assert_int_equal(parse("{\"version\":\"1.0\\u0000\"}", 23, NULL), ERR_FORMAT);
  assert_int_equal(parse("{\"version\":\"1.0\0\"}", 18, NULL), ERR_FORMAT);
  assert_int_equal(parse(deep, (size_t)TOKENIZER_FILE_BYTES_MAX + 1, NULL), ERR_LIMIT); /* refused by size, unread */
  free(deep);
}

static void every_truncation_is_an_error(void **state) {
  (void)state;
  char *json = fixture_dump(fixture_small());
  size_t bytes = strlen(json);
  assert_int_equal(parse(json, bytes, NULL), OK);
  for (size_t cut = 0; cut < bytes; cut++) {
    char *part = malloc(cut + 1); /* a block of its own, so that a read after its end is noticed */
    assert_non_null(part);
    memcpy(part, json, cut);
    assert_int_equal(parse(part, cut, NULL), ERR_FORMAT);
    free(part);
  }
  free(json);
}

/* Every bit of the file. Most flips are errors; where a flip gives another valid file, it must open and encode. */
static void bit_flips_never_crash(void **state) {
  (void)state;
  static const char sample[] = "abcd <s> 123 \xC3\xA9</s> x";
  char *json = fixture_dump(fixture_small());
  size_t bytes = strlen(json), valid = 0;
  for (size_t bit = 0; bit < bytes * 8; bit++) {
    json[bit / 8] = (char)(json[bit / 8] ^ (1 << bit % 8));
    if (parse(json, bytes, NULL) == OK && valid++ % 32 == 0) {
      tokenizer *t = NULL;
      int32_t ids[64];
      size_t count = 0;
      if (tokenizer_open_memory(&t, json, bytes, NULL, 0) == OK)
        assert_int_equal(tokenizer_encode(t, sample, sizeof sample - 1, true, true, ids, ARRAY_LEN(ids), &count), OK);
      tokenizer_close(t);
    }
    json[bit / 8] = (char)(json[bit / 8] ^ (1 << bit % 8));
  }
  assert_true(valid > 100);            /* letters of names */
  assert_true(valid < bytes * 8 / 2);  /* most of the file is checked */
  free(json);
}

static void files_are_read(void **state) {
  (void)state;
  tokenizer *t = NULL;
  fail_clear();
  assert_int_equal(tokenizer_open(&t, FIXTURE_DIR), OK); /* no tokenizer_config.json there */
  assert_int_equal(tokenizer_vocab_size(t), 3011);
  assert_int_equal(tokenizer_bos(t), -1);
  tokenizer_close(t);
  t = NULL;
  assert_int_equal(tokenizer_open(&t, "tests/data/no_such_folder"), ERR_IO);
  assert_non_null(strstr(fail_text(), "no_such_folder"));
  assert_null(t);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(other_fields_are_refused_by_name), cmocka_unit_test(config_is_checked),
    cmocka_unit_test(declared_tokens_are_transformers), cmocka_unit_test(unclear_declarations_are_refused),
    cmocka_unit_test(byte_order_marks_are_skipped),
    cmocka_unit_test(same_content_twice_is_refused),    cmocka_unit_test(hostile_json_is_refused),
    cmocka_unit_test(every_truncation_is_an_error),     cmocka_unit_test(bit_flips_never_crash),
    cmocka_unit_test(files_are_read),
  };
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}

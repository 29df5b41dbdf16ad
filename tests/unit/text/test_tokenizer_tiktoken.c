/* test_tokenizer_tiktoken.c - a tiktoken.model that differs from what is implemented is refused, by name, and never crashes.
 *
 * test_tokenizer.c checks that its ids are tiktoken's. The small model here has the 256 bytes, "ab", "abc" and "bc". */
#include "tests/unit/unit.h"
#include "tests/unit/text/tokenizer_fixture.h"
#include "engine/text/tokenizer.h"
#include "engine/text/tokenizer_tiktoken.h"
#include <sys/stat.h>
#include <unistd.h>

static const char small_config[] =
  "{\"tokenizer_class\":\"TikTokenTokenizer\",\"bos_token\":\"[BOS]\",\"eos_token\":{\"content\":\"</s>\"},\"chat_template\":[],"
  "\"added_tokens_decoder\":{"
  "\"259\":{\"content\":\"[BOS]\",\"lstrip\":false,\"normalized\":false,\"rstrip\":false,\"single_word\":false,\"special\":true},"
  "\"261\":{\"content\":\"</s>\",\"lstrip\":false,\"normalized\":true,\"rstrip\":false,\"single_word\":false,\"special\":false}}}";

static size_t put_line(char *out, const char *bytes, size_t size, unsigned rank) {
  static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  size_t used = 0;
  for (size_t at = 0; at < size; at += 3) {
    uint32_t bits = 0;
    for (size_t i = 0; i < 3; i++) bits = bits << 8 | (at + i < size ? (uint8_t)bytes[at + i] : 0u);
    for (size_t i = 0; i < 4; i++) out[used++] = at + i > size ? '=' : digits[bits >> (18 - 6 * i) & 63];
  }
  return used + (size_t)sprintf(out + used, " %u\n", rank);
}

static const char bare_config[] = "{\"tokenizer_class\":\"TikTokenTokenizer\",\"added_tokens_decoder\":{}}";

/* The file's content, which the caller frees; its size goes to bytes. */
static char *make_small(size_t *bytes) {
  char *model = fixture_check(malloc(8192), "memory");
  size_t used = 0;
  for (unsigned b = 0; b < 256; b++) used += put_line(model + used, (const char[]){(char)b}, 1, b);
  used += put_line(model + used, "ab", 2, 256);
  used += put_line(model + used, "abc", 3, 257);
  used += put_line(model + used, "bc", 2, 258);
  *bytes = used;
  return model;
}

static status parse(const char *model, size_t bytes, const char *config) {
  tokenizer_data data = {0};
  fail_clear();
  status s = tokenizer_tiktoken_parse(&data, model, bytes, config, strlen(config));
  tokenizer_json_free(&data);
  return s;
}

static void check_ids(const tokenizer *t, const char *text, bool parse_special, size_t want_count, const int32_t *want) {
  int32_t ids[64];
  size_t count = 0;
  assert_int_equal(tokenizer_encode(t, text, strlen(text), true, parse_special, ids, ARRAY_LEN(ids), &count), OK);
  assert_int_equal(count, want_count);
  assert_memory_equal(ids, want, count * sizeof *ids);
}
#define CHECK_IDS(t, text, parse, ...) \
  check_ids(t, text, parse, sizeof((int32_t[]){__VA_ARGS__}) / sizeof(int32_t), (const int32_t[]){__VA_ARGS__})

static void small_texts(void **state) {
  (void)state;
  size_t bytes = 0, size = 0;
  char *model = make_small(&bytes);
  tokenizer *t = NULL;
  assert_int_equal(tokenizer_open_tiktoken(&t, model, bytes, small_config, strlen(small_config)), OK);
  CHECK_IDS(t, "abc", true, 257);
  CHECK_IDS(t, "abcd", true, 257, 'd');
  CHECK_IDS(t, "bcab", true, 258, 256);
  CHECK_IDS(t, "[BOS]ab</s>", true, 259, 256, 261);
  CHECK_IDS(t, "[BOS]", false, '[', 'B', 'O', 'S', ']');
  CHECK_IDS(t, "</s>", false, '<', '/', 's', '>'); /* not special, but a control token */
  CHECK_IDS(t, "<|reserved_token_260|>", true, 260);
  CHECK_IDS(t, "<|reserved_token_514|>", true, 514);
  assert_int_equal(tokenizer_vocab_size(t), 259 + TOKENIZER_TIKTOKEN_RESERVED);
  assert_int_equal(tokenizer_bos(t), 259);
  assert_int_equal(tokenizer_eos(t), 261);
  assert_true(tokenizer_is_special(t, 259));
  assert_true(tokenizer_is_special(t, 260));
  assert_false(tokenizer_is_special(t, 261));
  assert_memory_equal(tokenizer_token_bytes(t, 257, &size), "abc", 3);
  assert_int_equal(size, 3);
  assert_memory_equal(tokenizer_token_bytes(t, 261, &size), "</s>", 4);
  tokenizer_close(t);
  free(model);
}

/* A line in place of the one of rank 256, or after it. */
static void other_lines_are_refused(void **state) {
  (void)state;
  static const struct {
    const char *line;
    status code;
  } rows[] = {
    {"YWI=256\n", ERR_FORMAT},    {"YWI=  256\n", ERR_FORMAT},  {"YWI= 257\n", ERR_FORMAT},   {"YWI= 0256\n", ERR_FORMAT},
    {"YWI= 256 \n", ERR_FORMAT},  {"YWI= 256\r\n", ERR_FORMAT}, {"YWI 256\n", ERR_FORMAT},    {"YWJ= 256\n", ERR_FORMAT},
    {"YW=I 256\n", ERR_FORMAT},   {"Y=== 256\n", ERR_FORMAT},   {"==== 256\n", ERR_FORMAT},   {" 256\n", ERR_FORMAT},
    {"\n", ERR_FORMAT},           {"YW-= 256\n", ERR_FORMAT},   {"YWI=\t256\n", ERR_FORMAT},  {"YWI= +256\n", ERR_FORMAT},
    {"YWI= 256\n\n", ERR_FORMAT}, {"YWI= 2\0" "56\n", ERR_FORMAT}, {"YWI=YWI= 256\n", ERR_FORMAT}, {"YWI= 256\n", OK},
  };
  size_t bytes = 0;
  char *model = make_small(&bytes), changed[8192];
  const char *at = strstr(model, "YWI= 256\n");
  assert_non_null(at);
  size_t before = (size_t)(at - model), behind = bytes - before - strlen("YWI= 256\n");
  for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
    size_t size = strlen(rows[i].line);
    if (size == 6 && rows[i].line[5] == '2') size = 10; /* the row with a NUL */
    memcpy(changed, model, before);
    memcpy(changed + before, rows[i].line, size);
    memcpy(changed + before + size, model + bytes - behind, behind);
    status s = parse(changed, before + size + behind, small_config);
    if (s != rows[i].code) fail_msg("row %zu: expected %d, found %d \"%s\"", i, (int)rows[i].code, (int)s, fail_text());
    if (s != OK) assert_non_null(strstr(fail_text(), "tiktoken.model: line "));
  }
  free(model);
}

static void limits_are_errors(void **state) {
  (void)state;
  size_t bytes = 0;
  char *model = make_small(&bytes), long_token[TOKENIZER_TIKTOKEN_TOKEN_BYTES_MAX + 2];
  memset(long_token, 'x', sizeof long_token);
  assert_int_equal(parse(model, 0, small_config), ERR_LIMIT);
  assert_int_equal(parse(model, (size_t)TOKENIZER_TIKTOKEN_FILE_BYTES_MAX + 1, small_config), ERR_LIMIT); /* refused by size, unread */
  size_t added = put_line(model + bytes, long_token, TOKENIZER_TIKTOKEN_TOKEN_BYTES_MAX + 2, 259);
  assert_int_equal(parse(model, bytes + added, small_config), ERR_LIMIT);
  char *last = strstr(model, "/w== 255\n"); /* without a token for 0xFF: "aa" in its place */
  assert_non_null(last);
  memcpy(last, "YWE=", 4);
  assert_int_equal(parse(model, bytes, small_config), ERR_UNSUPPORTED);
  assert_non_null(strstr(fail_text(), "0xFF"));
  memcpy(last, "AA==", 4); /* NUL again: no token for 0xFF either */
  assert_int_equal(parse(model, bytes, small_config), ERR_UNSUPPORTED);
  free(model);
}

static void bytes_given_twice_are_refused(void **state) {
  (void)state;
  size_t bytes = 0;
  char *model = make_small(&bytes);
  bytes += put_line(model + bytes, "ab", 2, 259);
  tokenizer *t = NULL;
  fail_clear();
  assert_int_equal(tokenizer_open_tiktoken(&t, model, bytes, bare_config, strlen(bare_config)), ERR_FORMAT);
  assert_non_null(strstr(fail_text(), "token 259 has the bytes of another"));
  assert_null(t);
  free(model);
}

/* Each row replaces a part of small_config. */
static void config_is_checked(void **state) {
  (void)state;
  static const struct {
    const char *from, *to;
    status code;
    const char *says;
  } rows[] = {
    {"TikTokenTokenizer", "TikTokenTokenizer", OK, ""},
    {"TikTokenTokenizer", "GPT2Tokenizer", ERR_UNSUPPORTED, "GPT2Tokenizer"},
    {"\"tokenizer_class\"", "\"tokenizer_klass\"", ERR_UNSUPPORTED, "tokenizer_class"},
    {"\"added_tokens_decoder\"", "\"added_tokens\"", ERR_FORMAT, "added_tokens_decoder"},
    {"\"259\"", "\"258\"", ERR_FORMAT, "ids 259 to 514, found 1 others"},
    {"\"259\"", "\"0259\"", ERR_FORMAT, "ids 259 to 514"},
    {"\"259\"", "\"515\"", ERR_FORMAT, "ids 259 to 514"},
    {"\"259\"", "\"261\"", ERR_FORMAT, "duplicate"},
    {"\"lstrip\":false", "\"lstrip\":true", ERR_UNSUPPORTED, "lstrip"},
    {"\"rstrip\":false", "\"rstrip\":true", ERR_UNSUPPORTED, "rstrip"},
    {"\"single_word\":false", "\"single_word\":true", ERR_UNSUPPORTED, "single_word"},
    {"\"single_word\":false", "\"single_word\":0", ERR_FORMAT, "added_tokens_decoder.259"},
    {"\"single_word\":false,", "", ERR_FORMAT, "single_word"},
    {"\"single_word\":false", "\"single_word\":false,\"x\":1", ERR_FORMAT, "added_tokens_decoder.259"},
    {"\"content\":\"[BOS]\"", "\"content\":\"\"", ERR_LIMIT, "added_tokens_decoder.259"},
    {"\"content\":\"[BOS]\"", "\"content\":7", ERR_FORMAT, "added_tokens_decoder.259"},
    {"\"bos_token\":\"[BOS]\"", "\"bos_token\":\"ab\"", ERR_UNSUPPORTED, "bos_token"},
    {"\"content\":\"[BOS]\"", "\"content\":\"[BOS]\\u0000\"", ERR_FORMAT, "tokenizer_config.json"},
  };
  size_t bytes = 0;
  char *model = make_small(&bytes), changed[1024];
  for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
    const char *at = strstr(small_config, rows[i].from);
    assert_non_null(at);
    snprintf(changed, sizeof changed, "%.*s%s%s", (int)(at - small_config), small_config, rows[i].to, at + strlen(rows[i].from));
    status s = parse(model, bytes, changed);
    if (s != rows[i].code || (s != OK && strstr(fail_text(), rows[i].says) == NULL))
      fail_msg("%s: expected %d, found %d \"%s\"", rows[i].to, (int)rows[i].code, (int)s, fail_text());
  }
  free(model);
}

static void every_truncation_is_an_error(void **state) {
  (void)state;
  size_t bytes = 0, valid = 0;
  char *model = make_small(&bytes);
  for (size_t cut = 0; cut < bytes; cut++) {
    char *part = fixture_check(malloc(cut + 1), "memory"); /* a block of its own, so that a read after its end is noticed */
    memcpy(part, model, cut);
    status s = parse(part, cut, bare_config);
    free(part);
    valid += s == OK;
    if (s == OK && model[cut - 1] != '\n' && model[cut] != '\n') fail_msg("cut at %zu was taken", cut);
  }
  assert_int_equal(valid, 7); /* 256, 257 or 258 whole lines with and without the last LF, and 259 without */
  free(model);
}

/* Every bit of the file. A flip that gives another valid file must open and encode, or be refused. */
static void bit_flips_never_crash(void **state) {
  (void)state;
  static const char sample[] = "abcd [BOS] 123 \xC3\xA9</s> x";
  size_t bytes = 0, valid = 0;
  char *model = make_small(&bytes);
  for (size_t bit = 0; bit < bytes * 8; bit++) {
    model[bit / 8] = (char)(model[bit / 8] ^ (1 << bit % 8));
    if (parse(model, bytes, small_config) == OK) {
      tokenizer *t = NULL;
      int32_t ids[64];
      size_t count = 0;
      if (valid++ % 4 == 0 && tokenizer_open_tiktoken(&t, model, bytes, small_config, strlen(small_config)) == OK)
        assert_int_equal(tokenizer_encode(t, sample, sizeof sample - 1, true, true, ids, ARRAY_LEN(ids), &count), OK);
      tokenizer_close(t);
    }
    model[bit / 8] = (char)(model[bit / 8] ^ (1 << bit % 8));
  }
  assert_in_range(valid, 4, 100); /* letters of "ab", "abc" and "bc"; every other line is needed unchanged */
  free(model);
}

static void write_file(const char *dir, const char *name, const char *text, size_t bytes) {
  char path[256];
  snprintf(path, sizeof path, "%s/%s", dir, name);
  FILE *file = fixture_check(fopen(path, "wb"), path);
  assert_int_equal(fwrite(text, 1, bytes, file), bytes);
  assert_int_equal(fclose(file), 0);
}

/* tiktoken.model is read only where there is no tokenizer.json. */
static void files_are_found(void **state) {
  (void)state;
  static const char *const names[] = {"tiktoken.model", "tokenizer_config.json", "tokenizer.json"};
  char dir[] = "/tmp/test_tokenizer_tiktoken_XXXXXX", path[256];
  size_t bytes = 0;
  char *model = make_small(&bytes), *json = fixture_dump(fixture_small());
  tokenizer *t = NULL;
  assert_non_null(mkdtemp(dir));
  fail_clear();
  assert_int_equal(tokenizer_open(&t, dir), ERR_IO);
  assert_non_null(strstr(fail_text(), "tiktoken.model"));
  write_file(dir, names[0], model, bytes);
  fail_clear();
  assert_int_equal(tokenizer_open(&t, dir), ERR_IO);
  assert_non_null(strstr(fail_text(), "tokenizer_config.json"));
  write_file(dir, names[1], small_config, strlen(small_config));
  assert_int_equal(tokenizer_open(&t, dir), OK);
  assert_int_equal(tokenizer_vocab_size(t), 515);
  tokenizer_close(t);
  t = NULL;
  write_file(dir, names[1], "{}", 2);
  write_file(dir, names[2], json, strlen(json));
  assert_int_equal(tokenizer_open(&t, dir), OK);
  assert_int_equal(tokenizer_vocab_size(t), 261);
  tokenizer_close(t);
  for (size_t i = 0; i < ARRAY_LEN(names); i++) {
    snprintf(path, sizeof path, "%s/%s", dir, names[i]);
    assert_int_equal(remove(path), 0);
  }
  assert_int_equal(rmdir(dir), 0);
  free(model);
  free(json);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(small_texts),                   cmocka_unit_test(other_lines_are_refused),
    cmocka_unit_test(limits_are_errors),             cmocka_unit_test(bytes_given_twice_are_refused),
    cmocka_unit_test(config_is_checked),             cmocka_unit_test(every_truncation_is_an_error),
    cmocka_unit_test(bit_flips_never_crash),         cmocka_unit_test(files_are_found),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

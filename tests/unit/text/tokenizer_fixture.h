/* tokenizer_fixture.h - the committed tokenizer and its variants, for the tokenizer's tests.
 *
 * A variant replaces fields of tests/data/tokenizer/tokenizer.json by those that variants.json has under its name. Paths are relative to
 * the root of the repository. Aborts if a file is missing or malformed, because there is nothing to test then. */
#ifndef VERBATIM_TOKENIZER_FIXTURE_H
#define VERBATIM_TOKENIZER_FIXTURE_H
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "engine/text/tokenizer.h"

#define FIXTURE_DIR "tests/data/tokenizer"

static inline void *fixture_check(void *pointer, const char *what) {
  if (pointer != NULL) return pointer;
  fprintf(stderr, "tokenizer_fixture: cannot get %s; hint: run from the root of the repository\n", what);
  abort();
}

static inline json_t *fixture_load(const char *name) {
  char path[256];
  snprintf(path, sizeof path, "%s/%s", FIXTURE_DIR, name);
  return fixture_check(json_load_file(path, 0, NULL), path);
}

/* The variant as a JSON tree, which the caller frees. */
static inline json_t *fixture_variant(const char *name) {
  json_t *variants = fixture_load("variants.json"), *variant = fixture_check(json_object_get(variants, name), name);
  const char *other = json_string_value(json_object_get(variant, "base"));
  json_t *base = fixture_load(other ? other : "tokenizer.json");
  json_object_update(base, json_object_get(variant, "root"));
  json_object_update(json_object_get(base, "model"), json_object_get(variant, "model"));
  json_decref(variants);
  return base;
}

/* Takes ownership of tree; the caller frees the text. */
static inline char *fixture_dump(json_t *tree) {
  char *text = fixture_check(json_dumps(tree, JSON_COMPACT), "memory");
  json_decref(tree);
  return text;
}

/* Set-up and tear-down of a group: opens the tree's tokenizer, taking ownership of the tree, and closes it. Return 0, or the error. */
static inline int fixture_open(json_t *tree, tokenizer **out) {
  char *json = fixture_dump(tree);
  status result = tokenizer_open_memory(out, json, strlen(json), NULL, 0);
  free(json);
  return (int)result;
}

static inline int fixture_close(tokenizer *opened) {
  tokenizer_close(opened);
  return 0;
}

/* A complete tokenizer.json of about 5 KB: the 256 bytes, three merges, four added tokens, DeepSeek-V3's first split. */
static inline json_t *fixture_small(void) {
  json_t *root = json_loads(
    "{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,\"added_tokens\":["
    "{\"id\":259,\"content\":\"<s>\",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,\"normalized\":false,\"special\":true},"
    "{\"id\":260,\"content\":\"</s>\",\"single_word\":false,\"lstrip\":true,\"rstrip\":true,\"normalized\":true,\"special\":false}],"
    "\"normalizer\":null,\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":["
    "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"\\\\p{N}{1,3}|[^\\\\s]+\"},\"behavior\":\"Isolated\",\"invert\":false},"
    "{\"type\":\"Digits\",\"individual_digits\":true},"
    "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":false}]},"
    "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<s>\",\"type_id\":0}},"
    "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}],\"pair\":[],"
    "\"special_tokens\":{\"<s>\":{\"id\":\"<s>\",\"ids\":[259],\"tokens\":[\"<s>\"]}}},"
    "\"decoder\":{\"type\":\"ByteLevel\",\"add_prefix_space\":true,\"trim_offsets\":true,\"use_regex\":true},"
    "\"model\":{\"type\":\"BPE\",\"dropout\":null,\"unk_token\":null,\"continuing_subword_prefix\":null,\"end_of_word_suffix\":null,"
    "\"fuse_unk\":false,\"byte_fallback\":false,\"ignore_merges\":false,\"vocab\":{},"
    "\"merges\":[[\"a\",\"b\"],\"ab c\",[\"c\",\"d\"]]}}", 0, NULL);
  json_t *vocab = json_object_get(json_object_get(fixture_check(root, "memory"), "model"), "vocab");
  for (unsigned b = 0, other = 256, id = 0; b < 256; b++) {
    bool is_itself = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b != 0xAD);
    unsigned c = is_itself ? b : other++;
    char name[3] = {(char)c, 0, 0};
    if (c >= 0x80) name[0] = (char)(0xC0 | c >> 6), name[1] = (char)(0x80 | (c & 63));
    json_object_set_new(vocab, name, json_integer(id++));
  }
  json_object_set_new(vocab, "ab", json_integer(256));
  json_object_set_new(vocab, "abc", json_integer(257));
  json_object_set_new(vocab, "cd", json_integer(258));
  return root;
}

#endif

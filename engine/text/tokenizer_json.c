/* tokenizer_json.c - from JSON to plain arrays (see tokenizer_json.h for what is accepted).
 *
 * jansson checks syntax, UTF-8, depth and duplicate keys, and refuses NUL in strings; this file checks everything else. Every object is
 * read together with the complete list of its keys, so that no unread field goes unnoticed. Must not know how text becomes ids. */
#include "text/tokenizer_json.h"
#include "base/json_text.h"
#include "base/limits.h"
#include "base/input_file.h"
#include "base/special_file.h"
#include "base/utf8.h"
#include "text/declared_tokens.h"
#include "text/json_fields.h"
#include "text/spaced_json.h"
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BYTE_CHARS 324u /* code points of the byte alphabet: 188 of the 256 bytes stand for themselves, the other 68 are U+0100 and up */

static void *copy_string(const char *text) {
  size_t bytes = strlen(text) + 1;
  char *copy = malloc(bytes);
  if (copy != NULL) memcpy(copy, text, bytes);
  return copy;
}

/* === Tokens ================================================================================================== */

/* The byte for a code point of the byte alphabet; -1 outside it. */
static int byte_of_char(uint32_t c) {
  if ((c >= 0x21 && c <= 0x7E) || (c >= 0xA1 && c <= 0xAC) || (c >= 0xAE && c <= 0xFF)) return (int)c;
  if (c < 0x100 || c >= BYTE_CHARS) return -1;
  uint32_t n = c - 0x100;                   /* the n-th byte that does not stand for itself: */
  if (n <= 0x20) return (int)n;             /* 00..20 */
  if (n <= 0x20 + 34) return (int)(n - 0x21 + 0x7F); /* 7F..A0 */
  return 0xAD;
}

/* Writes the bytes that text stands for to out, at most strlen(text) of them: those of its characters, or if one is outside the byte
 * alphabet, text itself. */
static size_t token_bytes(const char *text, uint8_t *out, uint8_t *is_word) {
  size_t size = strlen(text), count = 0;
  const uint8_t *p = (const uint8_t *)text;
  *is_word = 1;
  for (size_t at = 0; at < size;) {
    int length = utf8_scan(p + at, size - at);
    int byte = length > 0 ? byte_of_char(utf8_code_point(p + at, length)) : -1;
    if (byte < 0) {
      *is_word = 0;
      memcpy(out, text, size);
      return size;
    }
    out[count++] = (uint8_t)byte;
    at += (size_t)length;
  }
  return count;
}

/* names[id] for every id of the vocabulary: dense, each once. names: [count], zeroed. */
static status list_vocab(json_t *vocab, const char **names, size_t count) {
  const char *key = NULL;
  json_t *value = NULL;
  json_object_foreach(vocab, key, value) {
    if (!json_is_integer(value)) return json_fields_wrong("tokenizer.json: model.vocab", key, "an integer", value);
    json_int_t id = json_integer_value(value);
    if (id < 0 || (uint64_t)id >= count)
      return FAIL(ERR_FORMAT, "tokenizer.json: model.vocab: expected ids 0 to %zu, each once, found %lld", count - 1, (long long)id);
    if (names[id] != NULL) return FAIL(ERR_FORMAT, "tokenizer.json: model.vocab: expected every id once, found %lld twice", (long long)id);
    if (key[0] == 0) return FAIL(ERR_FORMAT, "tokenizer.json: model.vocab: token %lld is empty", (long long)id);
    if (strlen(key) > TOKENIZER_KEY_BYTES_MAX)
      return FAIL(ERR_LIMIT, "tokenizer.json: model.vocab: token %lld is longer than %u bytes", (long long)id, TOKENIZER_KEY_BYTES_MAX);
    names[id] = key;
  }
  return OK;
}

/* Fills bytes, starts, is_word and byte_ids from names[0..token_count). */
static status fill_tokens(tokenizer_data *data, const char *const *names) {
  size_t total = 0;
  for (uint32_t id = 0; id < data->token_count; id++) total += strlen(names[id]);
  data->bytes = malloc(total + 1);
  data->starts = malloc((data->token_count + (size_t)1) * sizeof *data->starts);
  data->is_word = malloc(data->token_count);
  if (data->bytes == NULL || data->starts == NULL || data->is_word == NULL) return FAIL(ERR_LIMIT, "tokenizer.json: out of memory");
  for (size_t b = 0; b < 256; b++) data->byte_ids[b] = -1;
  uint32_t at = 0;
  for (uint32_t id = 0; id < data->token_count; id++) {
    bool is_own = id < data->vocab_count;
    int byte = -1;
    size_t size = data->is_spaced && is_own ? spaced_json_token(names[id], data->bytes + at, &data->is_word[id], &byte)
                                            : token_bytes(names[id], data->bytes + at, &data->is_word[id]);
    data->starts[id] = at;
    if (!data->is_spaced && is_own && data->is_word[id] && size == 1) byte = data->bytes[at];
    if (byte >= 0) data->byte_ids[byte] = (int32_t)id;
    at += (uint32_t)size;
  }
  data->starts[data->token_count] = at;
  for (uint32_t b = 0; b < 256; b++)
    if (data->byte_ids[b] < 0)
      return FAIL(ERR_UNSUPPORTED, "tokenizer.json: model.vocab: expected a token for every byte, found none for 0x%02X", b);
  return OK;
}

static added_token *find_added(const tokenizer_data *data, const char *content) {
  size_t bytes = strlen(content);
  for (uint32_t i = 0; i < data->added_count; i++)
    if (data->added[i].bytes == bytes && memcmp(data->added[i].content, content, bytes) == 0) return &data->added[i];
  return NULL;
}

/* The entry's flags are the caller's. names: the names of the ids so far; a new id extends it. */
static status append_added(tokenizer_data *data, const char *where, const char *content, int32_t id, const char **names) {
  added_token *token = &data->added[data->added_count];
  if (strlen(content) > ADDED_TOKEN_BYTES_MAX)
    return FAIL(ERR_LIMIT, "%s: content: expected at most %u bytes, found %zu", where, ADDED_TOKEN_BYTES_MAX, strlen(content));
  if ((uint32_t)id == data->token_count) names[data->token_count++] = content;
  token->id = id;
  token->content = (const uint8_t *)content;
  token->bytes = (uint32_t)strlen(content);
  data->added_count++;
  return OK;
}

/* Reads one entry of added_tokens. names: the names of the ids so far; a new id extends it. */
static status read_added(tokenizer_data *data, json_t *entry, const json_t *vocab, const char **names) {
  static const char *const keys[] = {"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special", NULL};
  const char *const where = "tokenizer.json: added_tokens[]";
  const char *content = NULL;
  bool is_single_word = false;
  added_token *token = &data->added[data->added_count];
  TRY(json_fields_check(entry, where, keys));
  TRY(json_fields_string(entry, where, "content", &content));
  TRY(json_fields_bool(entry, where, "single_word", &is_single_word));
  TRY(json_fields_bool(entry, where, "lstrip", &token->strips_left));
  TRY(json_fields_bool(entry, where, "rstrip", &token->strips_right));
  TRY(json_fields_bool(entry, where, "normalized", &token->is_normalized));
  TRY(json_fields_bool(entry, where, "special", &token->is_special));
  token->is_control = token->is_special;
  const json_t *id = json_object_get(entry, "id");
  const json_t *in_vocab = json_object_get(vocab, content);
  if (!json_is_integer(id)) return json_fields_wrong(where, "id", "an integer", id);
  if (is_single_word) return FAIL(ERR_UNSUPPORTED, "%s.single_word: expected false, found true for \"%.80s\"", where, content);
  if (content[0] == 0) return FAIL(ERR_FORMAT, "%s.content: expected text, found \"\"", where);
  json_int_t want = in_vocab != NULL ? json_integer_value(in_vocab) : (json_int_t)data->token_count;
  if (json_integer_value(id) != want)
    return FAIL(ERR_FORMAT, "%s.id: expected %lld for \"%.80s\" (%s), found %lld", where, (long long)want, content,
                in_vocab != NULL ? "its id in the vocabulary" : "the next free id", (long long)json_integer_value(id));
  return append_added(data, where, content, (int32_t)want, names);
}

/* A token that another file declares: tokenizer.json has it, or it becomes what transformers makes of it. */
static status add_declared(tokenizer_data *data, const declared_token *d, const json_t *vocab, const char **names) {
  added_token *token = find_added(data, d->content);
  if (d->single_word && (token == NULL || d->goes_first))
    return FAIL(ERR_UNSUPPORTED, "%s: %s: expected single_word false, found true for \"%.80s\"", d->file, d->key, d->content);
  if (token == NULL) {
    const json_t *in_vocab = json_object_get(vocab, d->content);
    int64_t id = in_vocab != NULL ? json_integer_value(in_vocab) : (int64_t)data->token_count;
    const char *dispute = d->dispute;
    if (dispute == NULL && in_vocab == NULL && d->is_of_other_class) dispute = "the tokenizer_class may add other tokens before it";
    if (dispute != NULL)
      return FAIL(ERR_UNSUPPORTED, "%s: %s: \"%.80s\" is not in added_tokens of tokenizer.json, and in transformers %s; hint: add it there",
                  d->file, d->key, d->content, dispute);
    if (d->id >= 0 && d->id != id)
      return FAIL(ERR_FORMAT, "%s: %s: expected %lld for \"%.80s\" (%s, which transformers takes), found %lld", d->file, d->key,
                  (long long)id, d->content, in_vocab != NULL ? "its id in the vocabulary" : "the next free id", (long long)d->id);
    token = &data->added[data->added_count];
    TRY(append_added(data, d->file, d->content, (int32_t)id, names));
  } else if (!d->goes_first) {
    const bool is_same = token->strips_left == d->strips_left && token->strips_right == d->strips_right && token->is_special &&
                         token->is_normalized == d->is_normalized;
    if (is_same || !d->goes_first_in_4) return OK;
    return FAIL(ERR_UNSUPPORTED, "%s: %s: \"%.80s\" has other flags than in tokenizer.json, and transformers 4 and 5 differ about them; "
                "hint: write its content alone", d->file, d->key, d->content);
  }
  token->strips_left = d->strips_left;
  token->strips_right = d->strips_right;
  token->is_normalized = d->is_normalized;
  token->is_special = token->is_control = d->is_special;
  return OK;
}

/* Moves the contents out of the JSON tree. */
static status keep_contents(tokenizer_data *data) {
  size_t total = 1;
  for (uint32_t i = 0; i < data->added_count; i++) total += data->added[i].bytes;
  uint8_t *copy = malloc(total);
  if (copy == NULL) return FAIL(ERR_LIMIT, "tokenizer.json: out of memory");
  data->strings[PRETOKENIZE_SPLITS_MAX] = copy;
  for (uint32_t i = 0; i < data->added_count; i++) {
    memcpy(copy, data->added[i].content, data->added[i].bytes);
    data->added[i].content = copy;
    copy += data->added[i].bytes;
  }
  return OK;
}

static status read_tokens(tokenizer_data *data, const json_t *root, json_t *vocab, const declared_tokens *declared) {
  json_t *added = NULL;
  TRY(json_fields_array(root, "tokenizer.json", "added_tokens", &added));
  size_t vocab_count = json_object_size(vocab), added_count = json_array_size(added);
  if (vocab_count == 0 || vocab_count + added_count + declared->count > VOCAB_MAX)
    return FAIL(ERR_LIMIT, "tokenizer.json: expected 1 to %u tokens, found %zu, %zu added and %u declared elsewhere", VOCAB_MAX,
                vocab_count, added_count, declared->count);
  const char **names = calloc(vocab_count + added_count + declared->count, sizeof *names);
  data->added = calloc(added_count + declared->count + 1, sizeof *data->added);
  if (names == NULL || data->added == NULL) {
    free(names);
    return FAIL(ERR_LIMIT, "tokenizer.json: out of memory");
  }
  data->vocab_count = data->token_count = (uint32_t)vocab_count;
  status s = list_vocab(vocab, names, vocab_count);
  for (size_t i = 0; s == OK && i < added_count; i++) s = read_added(data, json_array_get(added, i), vocab, names);
  for (uint32_t i = 0; s == OK && i < declared->count; i++) s = add_declared(data, &declared->list[i], vocab, names);
  if (s == OK) s = fill_tokens(data, names);
  if (s == OK) s = keep_contents(data);
  free(names);
  return s;
}

/* === Model =================================================================================================== */

/* Splits one merge into its two names. both: [2 * TOKENIZER_KEY_BYTES_MAX + 2], left + NUL + right + NUL. */
static status split_merge(const json_t *merge, size_t rank, char *both, size_t *left_bytes) {
  const char *left = NULL, *right = NULL;
  size_t size = 0;
  if (json_is_string(merge)) {
    left = json_string_value(merge);
    right = strchr(left, ' ');
    if (right == NULL || strchr(right + 1, ' ') != NULL)
      return FAIL(ERR_FORMAT, "tokenizer.json: model.merges[%zu]: expected two tokens with one space between, found \"%.80s\"", rank, left);
    size = (size_t)(right++ - left);
  } else {
    left = json_string_value(json_array_get(merge, 0));
    right = json_string_value(json_array_get(merge, 1));
    if (left == NULL || right == NULL || json_array_size(merge) != 2)
      return FAIL(ERR_FORMAT, "tokenizer.json: model.merges[%zu]: expected a string or an array of two strings", rank);
    size = strlen(left);
  }
  if (size > TOKENIZER_KEY_BYTES_MAX || strlen(right) > TOKENIZER_KEY_BYTES_MAX)
    return FAIL(ERR_LIMIT, "tokenizer.json: model.merges[%zu]: a token is longer than %u bytes", rank, TOKENIZER_KEY_BYTES_MAX);
  memcpy(both, left, size);
  both[size] = 0;
  memcpy(both + size + 1, right, strlen(right) + 1);
  *left_bytes = size;
  return OK;
}

static status find_id(const json_t *vocab, const char *name, size_t rank, int32_t *id) {
  const json_t *value = json_object_get(vocab, name);
  if (value == NULL)
    return FAIL(ERR_FORMAT, "tokenizer.json: model.merges[%zu]: expected tokens of the vocabulary, found \"%.80s\"", rank, name);
  *id = (int32_t)json_integer_value(value);
  return OK;
}

static status read_merges(tokenizer_data *data, const json_t *merges, const json_t *vocab) {
  char both[2 * TOKENIZER_KEY_BYTES_MAX + 2];
  size_t count = json_array_size(merges);
  if (count > TOKENIZER_MERGES_MAX)
    return FAIL(ERR_LIMIT, "tokenizer.json: model.merges: expected at most %u, found %zu", TOKENIZER_MERGES_MAX, count);
  data->merges = malloc((count + 1) * sizeof *data->merges);
  if (data->merges == NULL) return FAIL(ERR_LIMIT, "tokenizer.json: out of memory");
  for (size_t rank = 0; rank < count; rank++) {
    bpe_merge *m = &data->merges[rank];
    size_t left_bytes = 0;
    TRY(split_merge(json_array_get(merges, rank), rank, both, &left_bytes));
    char *right = both + left_bytes + 1;
    TRY(find_id(vocab, both, rank, &m->left));
    TRY(find_id(vocab, right, rank, &m->right));
    memmove(both + left_bytes, right, strlen(right) + 1);
    TRY(find_id(vocab, both, rank, &m->result));
  }
  data->merge_count = (uint32_t)count;
  return OK;
}

static status read_model(tokenizer_data *data, json_t *root, const declared_tokens *declared) {
  static const char *const keys[] = {"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk",
                                     "byte_fallback", "ignore_merges", "vocab", "merges", NULL};
  const char *const where = "tokenizer.json: model";
  json_t *model = json_object_get(root, "model"), *merges = NULL;
  if (model == NULL) return FAIL(ERR_FORMAT, "tokenizer.json: expected the field \"model\", found none");
  TRY(json_fields_check(model, where, keys));
  TRY(json_fields_type(model, where, "BPE"));
  TRY(json_fields_null(model, where, "dropout"));
  if (!data->is_spaced) TRY(json_fields_null(model, where, "unk_token")); /* nothing is unknown where every byte has a token */
  TRY(json_fields_off(model, where, "continuing_subword_prefix"));
  TRY(json_fields_off(model, where, "end_of_word_suffix"));
  if (!data->is_spaced) TRY(json_fields_off(model, where, "byte_fallback"));
  const json_t *fuse = json_object_get(model, "fuse_unk"); /* Without an unk_token there is nothing to fuse. */
  if (fuse != NULL && !json_is_boolean(fuse)) return json_fields_wrong(where, "fuse_unk", "true or false", fuse);
  if (json_object_get(model, "ignore_merges") != NULL) TRY(json_fields_bool(model, where, "ignore_merges", &data->ignores_merges));
  if (data->is_spaced && data->ignores_merges)
    return FAIL(ERR_UNSUPPORTED, "%s.ignore_merges: expected false with byte_fallback", where);
  json_t *vocab = json_object_get(model, "vocab");
  if (!json_is_object(vocab)) return json_fields_wrong(where, "vocab", "an object", vocab);
  TRY(json_fields_array(model, where, "merges", &merges));
  TRY(read_tokens(data, root, vocab, declared));
  return read_merges(data, merges, vocab);
}

/* === Pre-tokenizer =========================================================================================== */

static status add_split(tokenizer_data *data, pretokenize_kind kind, const char *pattern) {
  if (data->split_count == PRETOKENIZE_SPLITS_MAX)
    return FAIL(ERR_LIMIT, "tokenizer.json: pre_tokenizer: expected at most %u splits, found more", PRETOKENIZE_SPLITS_MAX);
  pretokenize_split *split = &data->splits[data->split_count];
  *split = (pretokenize_split){.kind = kind};
  if (pattern != NULL) {
    char *copy = copy_string(pattern);
    if (copy == NULL) return FAIL(ERR_LIMIT, "tokenizer.json: out of memory");
    data->strings[data->split_count] = copy;
    split->pattern = copy;
    split->pattern_bytes = strlen(copy);
  }
  data->split_count++;
  return OK;
}

static status read_split(tokenizer_data *data, json_t *node) {
  static const char *const keys[] = {"type", "pattern", "behavior", "invert", NULL};
  static const char *const pattern_keys[] = {"Regex", NULL};
  const char *const where = "tokenizer.json: pre_tokenizer Split";
  const char *behavior = NULL, *pattern = NULL;
  bool inverts = false;
  TRY(json_fields_check(node, where, keys));
  json_t *pattern_node = json_object_get(node, "pattern");
  if (pattern_node == NULL) return json_fields_wrong(where, "pattern", "an object", NULL);
  TRY(json_fields_check(pattern_node, "tokenizer.json: pre_tokenizer Split.pattern", pattern_keys));
  TRY(json_fields_string(pattern_node, "tokenizer.json: pre_tokenizer Split.pattern", "Regex", &pattern));
  TRY(json_fields_string(node, where, "behavior", &behavior));
  TRY(json_fields_bool(node, where, "invert", &inverts));
  if (strcmp(behavior, "Isolated") != 0)
    return FAIL(ERR_UNSUPPORTED, "%s.behavior: expected \"Isolated\", found \"%.80s\"", where, behavior);
  if (inverts) return FAIL(ERR_UNSUPPORTED, "%s.invert: expected false, found true", where);
  return add_split(data, PRETOKENIZE_PATTERN, pattern);
}

static status read_byte_level(tokenizer_data *data, json_t *node) {
  static const char *const keys[] = {"type", "add_prefix_space", "trim_offsets", "use_regex", NULL};
  const char *const where = "tokenizer.json: pre_tokenizer ByteLevel";
  bool adds_prefix_space = false, uses_regex = true; /* use_regex is true by default */
  TRY(json_fields_check(node, where, keys));
  TRY(json_fields_bool(node, where, "add_prefix_space", &adds_prefix_space));
  if (json_object_get(node, "use_regex") != NULL) TRY(json_fields_bool(node, where, "use_regex", &uses_regex));
  if (adds_prefix_space) return FAIL(ERR_UNSUPPORTED, "%s.add_prefix_space: expected false, found true", where);
  return uses_regex ? add_split(data, PRETOKENIZE_PATTERN, pretokenize_gpt2_pattern) : OK;
}

static status read_digits(tokenizer_data *data, json_t *node) {
  static const char *const keys[] = {"type", "individual_digits", NULL};
  const char *const where = "tokenizer.json: pre_tokenizer Digits";
  bool is_individual = false;
  TRY(json_fields_check(node, where, keys));
  TRY(json_fields_bool(node, where, "individual_digits", &is_individual));
  return add_split(data, is_individual ? PRETOKENIZE_DIGIT : PRETOKENIZE_DIGITS, NULL);
}

/* Reads one member of the sequence. After ByteLevel, text is in the byte alphabet, so it must come last. */
static status read_pre_tokenizer_member(tokenizer_data *data, json_t *node, bool is_last) {
  const char *type = NULL;
  if (!json_is_object(node)) return FAIL(ERR_FORMAT, "tokenizer.json: pre_tokenizer: expected an object");
  TRY(json_fields_string(node, "tokenizer.json: pre_tokenizer", "type", &type));
  if (strcmp(type, "ByteLevel") == 0 && is_last) return read_byte_level(data, node);
  if (strcmp(type, "Split") == 0 && !is_last) return read_split(data, node);
  if (strcmp(type, "Digits") == 0 && !is_last) return read_digits(data, node);
  return FAIL(ERR_UNSUPPORTED, "tokenizer.json: pre_tokenizer: expected Split or Digits and last ByteLevel, found \"%.80s\"%s", type,
              is_last ? " last" : "");
}

static status read_pre_tokenizer(tokenizer_data *data, const json_t *root) {
  static const char *const keys[] = {"type", "pretokenizers", NULL};
  const char *const where = "tokenizer.json: pre_tokenizer";
  json_t *node = json_object_get(root, "pre_tokenizer"), *members = NULL;
  if (node == NULL || json_is_null(node))
    return FAIL(ERR_UNSUPPORTED, "%s: expected ByteLevel or a Sequence that ends in it, found null", where);
  if (!json_fields_is(node, "Sequence")) return read_pre_tokenizer_member(data, node, true);
  TRY(json_fields_check(node, where, keys));
  TRY(json_fields_array(node, where, "pretokenizers", &members));
  size_t count = json_array_size(members);
  if (count == 0) return FAIL(ERR_UNSUPPORTED, "%s: expected a Sequence that ends in ByteLevel, found an empty one", where);
  for (size_t i = 0; i < count; i++) TRY(read_pre_tokenizer_member(data, json_array_get(members, i), i + 1 == count));
  return OK;
}

/* === Ids around a text ======================================================================================= */

static status add_around(int32_t *ids, uint32_t *count, int32_t id) {
  if (*count == TOKENIZER_AROUND_MAX)
    return FAIL(ERR_LIMIT, "tokenizer.json: post_processor: expected at most %u tokens on a side, found more", TOKENIZER_AROUND_MAX);
  ids[(*count)++] = id;
  return OK;
}

/* Adds the ids of one SpecialToken, which the template names and special_tokens defines. */
static status add_template_token(tokenizer_data *data, const json_t *special, const char *name, bool is_before) {
  const char *const where = "tokenizer.json: post_processor.special_tokens";
  json_t *ids = NULL;
  json_t *definition = json_object_get(special, name);
  if (definition == NULL) return FAIL(ERR_FORMAT, "%s: expected \"%.80s\", found none", where, name);
  TRY(json_fields_array(definition, where, "ids", &ids));
  for (size_t i = 0; i < json_array_size(ids); i++) {
    const json_t *id = json_array_get(ids, i);
    if (!json_is_integer(id) || json_integer_value(id) < 0 || json_integer_value(id) >= (json_int_t)data->token_count)
      return FAIL(ERR_FORMAT, "%s: expected ids 0 to %u for \"%.80s\"", where, data->token_count - 1, name);
    TRY(add_around(is_before ? data->before : data->after, is_before ? &data->before_count : &data->after_count,
                   (int32_t)json_integer_value(id)));
  }
  return OK;
}

static status read_template(tokenizer_data *data, json_t *node) {
  static const char *const keys[] = {"type", "single", "pair", "special_tokens", NULL};
  const char *const where = "tokenizer.json: post_processor";
  json_t *single = NULL;
  bool has_text = false;
  TRY(json_fields_check(node, where, keys));
  TRY(json_fields_array(node, where, "single", &single));
  const json_t *special = json_object_get(node, "special_tokens");
  if (!json_is_object(special)) return json_fields_wrong(where, "special_tokens", "an object", special);
  for (size_t i = 0; i < json_array_size(single); i++) {
    const json_t *part = json_array_get(single, i);
    const json_t *token = json_object_get(part, "SpecialToken"), *text = json_object_get(part, "Sequence");
    const char *name = json_string_value(json_object_get(token != NULL ? token : text, "id"));
    if (name == NULL || json_object_size(part) != 1)
      return FAIL(ERR_FORMAT, "%s.single[%zu]: expected a SpecialToken or a Sequence with its id", where, i);
    if (token != NULL) {
      TRY(add_template_token(data, special, name, !has_text));
      continue;
    }
    if (has_text || strcmp(name, "A") != 0) return FAIL(ERR_UNSUPPORTED, "%s.single: expected the Sequence \"A\" once", where);
    has_text = true;
  }
  return has_text ? OK : FAIL(ERR_UNSUPPORTED, "%s.single: expected the Sequence \"A\", found none", where);
}

static status read_post_processor(tokenizer_data *data, const json_t *root) {
  static const char *const keys[] = {"type", "processors", NULL};
  const char *const where = "tokenizer.json: post_processor";
  json_t *node = json_object_get(root, "post_processor"), *members = NULL;
  if (node == NULL || json_is_null(node) || json_fields_is(node, "ByteLevel")) return OK; /* ByteLevel changes offsets only */
  if (json_fields_is(node, "TemplateProcessing")) return read_template(data, node);
  if (!json_fields_is(node, "Sequence"))
    return FAIL(ERR_UNSUPPORTED, "%s: expected ByteLevel, TemplateProcessing or a Sequence of them", where);
  TRY(json_fields_check(node, where, keys));
  TRY(json_fields_array(node, where, "processors", &members));
  bool has_template = false;
  for (size_t i = 0; i < json_array_size(members); i++) {
    json_t *member = json_array_get(members, i);
    if (json_fields_is(member, "ByteLevel")) continue;
    if (!json_fields_is(member, "TemplateProcessing") || has_template)
      return FAIL(ERR_UNSUPPORTED, "%s.processors[%zu]: expected ByteLevel, or TemplateProcessing once", where, i);
    TRY(read_template(data, member));
    has_template = true;
  }
  return OK;
}

/* === tokenizer_config.json =================================================================================== */

/* A token given as text, or as an object with a content; null and absent leave id unchanged. */
static status read_config_token(const tokenizer_data *data, const json_t *config, const char *key, int32_t *id) {
  const char *const where = "tokenizer_config.json";
  const json_t *value = json_object_get(config, key);
  if (value == NULL || json_is_null(value)) return OK;
  const char *content = json_string_value(json_is_object(value) ? json_object_get(value, "content") : value);
  if (content == NULL) return json_fields_wrong(where, key, "a string, or an object with a content", value);
  const added_token *found = find_added(data, content);
  if (found == NULL) return FAIL(ERR_FORMAT, "%s.%s: expected a token of the tokenizer, found \"%.80s\"", where, key, content);
  *id = found->id;
  return OK;
}

/* null is false, as in Python. */
static status read_config_flag(const json_t *config, const char *key, bool fallback, bool *out) {
  const json_t *value = json_object_get(config, key);
  *out = value == NULL ? fallback : json_is_true(value);
  if (value == NULL || json_is_boolean(value) || json_is_null(value)) return OK;
  return json_fields_wrong("tokenizer_config.json", key, "true or false", value);
}

typedef struct text_side { /* what stands before or after a text */
  const char *flag, *token_key; /* of tokenizer_config.json */
  bool adds;                    /* the flag's value where it is absent, for DECLARED_LLAMA */
  int32_t token;                /* that the flag adds; -1: none */
  int32_t *ids;                 /* what tokenizer.json puts there */
  uint32_t *count;
} text_side;

/* LlamaTokenizerFast of transformers 4 puts bos_token and eos_token around a text by two flags, whatever tokenizer.json says, and the
 * models that name this class were made with it. The plain class, and version 5 always, go by tokenizer.json alone. is_other is set if the
 * flag replaces other ids. */
static status read_side(const json_t *config, declared_class class, text_side side, bool *is_other) {
  const bool is_given = json_object_get(config, side.flag) != NULL;
  TRY(read_config_flag(config, side.flag, side.adds, &side.adds));
  if (class == DECLARED_PLAIN || (class == DECLARED_OTHER && !is_given)) return OK;
  if (side.adds && side.token < 0)
    return FAIL(ERR_FORMAT, "tokenizer_config.json: %s is true, expected a %s, found none", side.flag, side.token_key);
  if (*side.count == side.adds && (!side.adds || side.ids[0] == side.token)) return OK;
  if (class == DECLARED_OTHER)
    return FAIL(ERR_UNSUPPORTED, "tokenizer_config.json: %s: expected what tokenizer.json's post_processor does, found %s; hint: the "
                "tokenizer_class PreTrainedTokenizerFast goes by tokenizer.json, LlamaTokenizerFast by this field", side.flag,
                side.adds ? "true" : "false");
  *is_other = true;
  *side.count = 0;
  return side.adds ? add_around(side.ids, side.count, side.token) : OK;
}

/* The class has tokens of its own where a field is absent, which version 5 does not make. */
static status check_llama_tokens(const json_t *config) {
  static const char *const keys[] = {"bos_token", "eos_token", "unk_token"}, *const contents[] = {"<s>", "</s>", "<unk>"};
  for (size_t i = 0; i < ARRAY_LEN(keys); i++)
    if (json_object_get(config, keys[i]) == NULL)
      return FAIL(ERR_UNSUPPORTED, "tokenizer_config.json: %s: expected a token or null, found nothing, for which LlamaTokenizerFast of "
                  "transformers 4 takes \"%s\" and version 5 none", keys[i], contents[i]);
  return OK;
}

status tokenizer_json_config(tokenizer_data *data, const json_t *config) {
  bool splits = false, is_other = false;
  if (!json_is_object(config)) return FAIL(ERR_FORMAT, "tokenizer_config.json: expected an object");
  const json_t *name = json_object_get(config, "tokenizer_class");
  if (name != NULL && !json_is_string(name) && !json_is_null(name))
    return json_fields_wrong("tokenizer_config.json", "tokenizer_class", "a string", name);
  const declared_class class = declared_tokens_class(config);
  TRY(read_config_flag(config, "split_special_tokens", false, &splits));
  if (splits)
    return FAIL(ERR_UNSUPPORTED, "tokenizer_config.json: split_special_tokens: expected false, found true: special tokens would be spelled "
                "in pieces, those of chat templates too");
  if (class == DECLARED_LLAMA) TRY(check_llama_tokens(config));
  TRY(read_config_token(data, config, "bos_token", &data->bos));
  TRY(read_config_token(data, config, "eos_token", &data->eos));
  const text_side before = {"add_bos_token", "bos_token", true, data->bos, data->before, &data->before_count};
  const text_side after = {"add_eos_token", "eos_token", false, data->eos, data->after, &data->after_count};
  TRY(read_side(config, class, before, &is_other));
  TRY(read_side(config, class, after, &is_other));
  if (is_other)
    data->remark = "add_bos_token and add_eos_token decide what stands around a text, as in transformers 4; version 5 goes by the "
                   "post_processor of tokenizer.json, which differs";
  return OK;
}

/* transformers 4 changes a ByteLevel that stands alone, version 5 changes nothing. */
static status check_prefix_space(const json_t *root, const json_t *config) {
  bool adds = false;
  TRY(read_config_flag(config, "add_prefix_space", false, &adds));
  if (!adds || !json_fields_is(json_object_get(root, "pre_tokenizer"), "ByteLevel")) return OK;
  return FAIL(ERR_UNSUPPORTED, "tokenizer_config.json: add_prefix_space: expected false, as in tokenizer.json, found true");
}

/* === Whole files ============================================================================================= */

status tokenizer_json_load(const char *name, const char *text, size_t bytes, json_t **out) {
  json_error_t error;
  if (bytes > TOKENIZER_FILE_BYTES_MAX)
    return FAIL(ERR_LIMIT, "%s: expected at most %u bytes, found %zu", name, TOKENIZER_FILE_BYTES_MAX, bytes);
  json_t *root = json_text_load_file(text, bytes, JSON_REJECT_DUPLICATES, &error);
  if (root == NULL)
    return FAIL(json_text_fault(&error, ERR_FORMAT), "%s: expected JSON, found at line %d column %d: %s", name, error.line, error.column,
                error.text);
  *out = root;
  return OK;
}

/* null, NFC, or a Sequence of at most that. */
static status read_normalizer(tokenizer_data *data, const json_t *root) {
  static const char *const keys[] = {"type", "normalizers", NULL}, *const own_keys[] = {"type", NULL};
  const char *const where = "tokenizer.json: normalizer";
  json_t *node = json_object_get(root, "normalizer"), *members = NULL;
  if (json_fields_is(node, "Sequence")) {
    TRY(json_fields_check(node, where, keys));
    TRY(json_fields_array(node, where, "normalizers", &members));
    if (json_array_size(members) > 1) return FAIL(ERR_UNSUPPORTED, "%s: expected at most one, found %zu", where, json_array_size(members));
    node = json_array_get(members, 0);
  }
  if (node == NULL || json_is_null(node)) return OK;
  TRY(json_fields_check(node, where, own_keys));
  data->normalizes = true;
  return json_fields_type(node, where, "NFC");
}

/* The library normalizes the contents that it searches in normalized text. */
static status check_normalized(const tokenizer_data *data) {
  for (uint32_t i = 0; i < data->added_count; i++) {
    const added_token *token = &data->added[i];
    bool is_plain = !data->is_spaced;
    for (uint32_t k = 0; k < token->bytes; k++) is_plain &= token->content[k] < 0xCC; /* as nfc.c: no code point from U+0300 on */
    if (token->is_normalized && (data->normalizes || data->is_spaced) && !is_plain)
      return FAIL(ERR_UNSUPPORTED, "tokenizer.json: added_tokens: expected normalized false for \"%.*s\", which the normalizer may change",
                  (int)token->bytes, (const char *)token->content);
  }
  return OK;
}

static status read_root(tokenizer_data *data, json_t *root, const json_t *config, const declared_tokens *declared) {
  static const char *const keys[] = {"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer",
                                     "post_processor", "decoder", "model", NULL};
  const char *const where = "tokenizer.json";
  const char *version = NULL;
  json_t *decoder = json_object_get(root, "decoder");
  TRY(json_fields_check(root, where, keys));
  TRY(json_fields_string(root, where, "version", &version));
  if (strcmp(version, "1.0") != 0) return FAIL(ERR_UNSUPPORTED, "%s.version: expected \"1.0\", found \"%.80s\"", where, version);
  TRY(json_fields_null(root, where, "truncation"));
  TRY(json_fields_null(root, where, "padding"));
  data->is_spaced = spaced_json_is(root);
  if (data->is_spaced) TRY(spaced_json_read(root, &data->prefix));
  else {
    TRY(read_normalizer(data, root));
    if (!json_is_object(decoder)) return json_fields_wrong(where, "decoder", "an object", decoder);
    TRY(json_fields_type(decoder, "tokenizer.json: decoder", "ByteLevel"));
    TRY(read_pre_tokenizer(data, root));
  }
  TRY(read_model(data, root, declared));
  TRY(check_normalized(data));
  TRY(read_post_processor(data, root));
  if (config == NULL) return OK;
  TRY(check_prefix_space(root, config));
  return tokenizer_json_config(data, config);
}

/* Where special_tokens_map.json counts, its tokens go before those of the same names. Declared tokens own none of the values replaced. */
static status merge_map(json_t *map, json_t **config) {
  static const char *const keys[] = {"bos_token", "eos_token"};
  if (map == NULL || json_object_get(*config, "added_tokens_decoder") != NULL) return OK;
  if (*config == NULL) *config = json_object();
  for (size_t i = 0; i < ARRAY_LEN(keys); i++)
    if (json_object_get(map, keys[i]) != NULL && json_object_set(*config, keys[i], json_object_get(map, keys[i])) != 0)
      return FAIL(ERR_LIMIT, "special_tokens_map.json: out of memory");
  return OK;
}

static const char *const FILE_NAMES[TOKENIZER_FILE_COUNT] = {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
                                                             "added_tokens.json"};

status tokenizer_json_parse(tokenizer_data *data, const tokenizer_text *texts) {
  tokenizer_data built = {.bos = -1, .eos = -1};
  declared_tokens declared = {0};
  json_t *roots[TOKENIZER_FILE_COUNT] = {NULL};
  status s = OK;
  ASSERT(texts[TOKENIZER_JSON].text != NULL);
  for (size_t i = 0; s == OK && i < TOKENIZER_FILE_COUNT; i++)
    if (texts[i].text != NULL) s = tokenizer_json_load(FILE_NAMES[i], texts[i].text, texts[i].bytes, &roots[i]);
  if (s == OK) s = declared_tokens_read(&declared, roots[TOKENIZER_CONFIG], roots[TOKENIZER_SPECIAL_MAP], roots[TOKENIZER_ADDED]);
  if (s == OK) s = merge_map(roots[TOKENIZER_SPECIAL_MAP], &roots[TOKENIZER_CONFIG]);
  if (s == OK) s = read_root(&built, roots[TOKENIZER_JSON], roots[TOKENIZER_CONFIG], &declared);
  for (size_t i = 0; i < TOKENIZER_FILE_COUNT; i++) json_decref(roots[i]);
  declared_tokens_close(&declared);
  if (s != OK) tokenizer_json_free(&built);
  else *data = built;
  return s;
}

status tokenizer_json_read_file(const char *model_dir, const char *name, bool is_optional, char **text, size_t *bytes) {
  char path[4096];
  int wrote = snprintf(path, sizeof path, "%s/%s", model_dir, name);
  if (wrote < 0 || (size_t)wrote >= sizeof path) return FAIL(ERR_LIMIT, "%s: the path is longer than %zu bytes", name, sizeof path - 1);
  FILE *file;
  if (is_optional && !special_file_is_there(path)) return OK;
  TRY(input_file_check(path, INPUT_TOKENIZER));
  TRY(input_file_open_stream(path, INPUT_TOKENIZER, &file));
  long size = fseek(file, 0, SEEK_END) == 0 ? ftell(file) : -1;
  bool fits = size >= 0 && (unsigned long)size <= TOKENIZER_FILE_BYTES_MAX && fseek(file, 0, SEEK_SET) == 0;
  char *buffer = fits ? malloc((size_t)size + 1) : NULL;
  size_t got = buffer != NULL ? fread(buffer, 1, (size_t)size, file) : 0;
  fclose(file);
  if (buffer == NULL)
    return FAIL(ERR_LIMIT, "%s: expected a file of at most %u bytes, found %ld", path, TOKENIZER_FILE_BYTES_MAX, size);
  if (got != (size_t)size) {
    free(buffer);
    return FAIL(ERR_IO, "%s: expected %ld bytes, read %zu", path, size, got);
  }
  *text = buffer;
  *bytes = got;
  return OK;
}

status tokenizer_json_read(tokenizer_data *data, const char *model_dir) {
  char *files[TOKENIZER_FILE_COUNT] = {NULL};
  tokenizer_text texts[TOKENIZER_FILE_COUNT] = {{0}};
  status s = OK;
  for (size_t i = 0; s == OK && i < TOKENIZER_FILE_COUNT; i++) {
    s = tokenizer_json_read_file(model_dir, FILE_NAMES[i], i != TOKENIZER_JSON, &files[i], &texts[i].bytes);
    texts[i].text = files[i];
  }
  if (s == OK) s = tokenizer_json_parse(data, texts);
  for (size_t i = 0; i < TOKENIZER_FILE_COUNT; i++) free(files[i]);
  return s;
}

void tokenizer_json_free(tokenizer_data *data) {
  free(data->bytes);
  free(data->starts);
  free(data->is_word);
  free(data->merges);
  free(data->added);
  for (size_t i = 0; i < ARRAY_LEN(data->strings); i++) free(data->strings[i]);
  *data = (tokenizer_data){0};
}

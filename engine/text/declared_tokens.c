/* declared_tokens.c - transformers' order of reading (see declared_tokens.h): `_from_pretrained` and the constructors of its fast
 * tokenizers in versions 4.57 and 5.23. */
#include "text/declared_tokens.h"
#include <stdlib.h>
#include <string.h>

#define CONFIG "tokenizer_config.json"
#define MAP "special_tokens_map.json"
#define ADDED "added_tokens.json"
#define DECODER "added_tokens_decoder"
#define LISTED "additional_special_tokens"
#define EXTRA "extra_special_tokens"

static const char *const NAMED[] = {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"};

typedef struct reader {
  declared_tokens *out;
  const json_t *config, *map, *added; /* map and added: NULL if config has an added_tokens_decoder, which goes before them */
} reader;

declared_class declared_tokens_class(const json_t *config) {
  static const char *const plain[] = {"PreTrainedTokenizerFast", "PreTrainedTokenizer", "TokenizersBackend"};
  static const char *const llama[] = {"LlamaTokenizerFast", "LlamaTokenizer"};
  const char *class = json_string_value(json_object_get(config, "tokenizer_class"));
  for (size_t i = 0; class != NULL && i < ARRAY_LEN(plain); i++)
    if (strcmp(class, plain[i]) == 0) return DECLARED_PLAIN;
  for (size_t i = 0; class != NULL && i < ARRAY_LEN(llama); i++)
    if (strcmp(class, llama[i]) == 0) return DECLARED_LLAMA;
  return DECLARED_OTHER;
}

/* === One token =============================================================================================== */

static status append(const reader *r, declared_token token) {
  declared_tokens *out = r->out;
  if (out->count == DECLARED_TOKENS_MAX) return FAIL(ERR_LIMIT, "%s: more than %u tokens are declared", token.file, DECLARED_TOKENS_MAX);
  if (out->count == out->room) {
    uint32_t room = out->room == 0 ? 64 : 2 * out->room;
    declared_token *grown = realloc(out->list, room * sizeof *grown);
    if (grown == NULL) return FAIL(ERR_LIMIT, "%s: out of memory", token.file);
    out->list = grown;
    out->room = room;
  }
  out->list[out->count++] = token;
  return OK;
}

static status read_flag(const json_t *object, const declared_token *token, const char *name, bool *flag) {
  const json_t *value = json_object_get(object, name);
  if (value == NULL) return OK;
  if (!json_is_boolean(value)) return FAIL(ERR_FORMAT, "%s: %s: \"%s\": expected true or false", token->file, token->key, name);
  *flag = json_is_true(value);
  return OK;
}

/* Appends the token that value spells: a text, or an object with a content and flags. token: file, key, and what an object without
 * "special" means. A text is special. null and "" declare nothing. */
static status add(const reader *r, const json_t *value, declared_token token) {
  bool is_object = json_is_object(value);
  const json_t *content = is_object ? json_object_get(value, "content") : value;
  if (value == NULL || json_is_null(value)) return OK;
  if (!json_is_string(content))
    return FAIL(ERR_FORMAT, "%s: %s: expected a string, or an object with a content", token.file, token.key);
  token.content = json_string_value(content);
  if (!is_object) token.is_special = true;
  if (is_object) TRY(read_flag(value, &token, "special", &token.is_special));
  token.is_normalized = !token.is_special;
  if (is_object) {
    TRY(read_flag(value, &token, "single_word", &token.single_word));
    TRY(read_flag(value, &token, "lstrip", &token.strips_left));
    TRY(read_flag(value, &token, "rstrip", &token.strips_right));
    TRY(read_flag(value, &token, "normalized", &token.is_normalized));
  }
  return token.content[0] == 0 ? OK : append(r, token);
}

/* === Tokens with ids ========================================================================================= */

static const json_t *named_value(const reader *r, const char *key) {
  const json_t *value = json_object_get(r->map, key);
  return value != NULL ? value : json_object_get(r->config, key);
}

static bool spells(const json_t *value, const char *content) {
  const char *text = json_string_value(json_is_object(value) ? json_object_get(value, "content") : value);
  return text != NULL && strcmp(text, content) == 0;
}

static bool is_named(const reader *r, const char *content) {
  for (size_t i = 0; i < ARRAY_LEN(NAMED); i++)
    if (spells(named_value(r, NAMED[i]), content)) return true;
  return false;
}

static bool is_listed(const json_t *object, const char *content) {
  const json_t *list = json_object_get(object, LISTED);
  for (size_t i = 0; i < json_array_size(list); i++)
    if (spells(json_array_get(list, i), content)) return true;
  return false;
}

static int compare_id(const void *a, const void *b) {
  int64_t left = ((const declared_token *)a)->id, right = ((const declared_token *)b)->id;
  return left < right ? -1 : left > right;
}

/* A token of a list that is not special here is special to version 4 only. */
static status read_decoder(const reader *r) {
  const json_t *decoder = json_object_get(r->config, DECODER);
  const char *key = NULL;
  json_t *value = NULL;
  if (!json_is_object(decoder)) return FAIL(ERR_FORMAT, CONFIG ": " DECODER ": expected an object");
  json_object_foreach((json_t *)decoder, key, value) {
    char *end = NULL;
    long long id = strtoll(key, &end, 10);
    if (key[0] < '0' || key[0] > '9' || *end != 0 || id > INT32_MAX)
      return FAIL(ERR_FORMAT, CONFIG ": " DECODER ": expected ids, found \"%.40s\"", key);
    if (!json_is_object(value)) return FAIL(ERR_FORMAT, CONFIG ": " DECODER ".%s: expected an object", key);
    TRY(add(r, value, (declared_token){.file = CONFIG, .key = DECODER, .id = id, .goes_first = true}));
  }
  if (r->out->count > 1) qsort(r->out->list, r->out->count, sizeof *r->out->list, compare_id);
  for (uint32_t i = 0; i < r->out->count; i++) {
    declared_token *token = &r->out->list[i];
    if (!token->is_special && is_listed(r->config, token->content)) token->dispute = "version 5 does not take it for special";
    if (is_named(r, token->content)) token->is_special = true;
  }
  return OK;
}

static status read_added(const reader *r) {
  const char *content = NULL;
  json_t *value = NULL;
  if (!json_is_object(r->added)) return FAIL(ERR_FORMAT, ADDED ": expected an object");
  json_object_foreach((json_t *)r->added, content, value) {
    if (!json_is_integer(value) || json_integer_value(value) < 0 || json_integer_value(value) > INT32_MAX)
      return FAIL(ERR_FORMAT, ADDED ": expected an id for \"%.80s\"", content);
    bool is_special = is_named(r, content) || is_listed(r->config, content) || is_listed(r->map, content);
    if (content[0] != 0)
      TRY(append(r, (declared_token){.file = ADDED, .key = content, .content = content, .id = json_integer_value(value),
                                     .is_special = is_special, .is_normalized = !is_special}));
  }
  if (r->out->count > 1) qsort(r->out->list, r->out->count, sizeof *r->out->list, compare_id);
  return OK;
}

/* === Tokens with names ======================================================================================= */

/* bos_token and its like. Their objects in the map are special before "normalized" has its default, those in the config after. */
static status read_named(const reader *r) {
  for (size_t i = 0; i < ARRAY_LEN(NAMED); i++) {
    const json_t *value = named_value(r, NAMED[i]);
    bool is_of_map = value != NULL && value == json_object_get(r->map, NAMED[i]);
    uint32_t before = r->out->count;
    TRY(add(r, value, (declared_token){.file = is_of_map ? MAP : CONFIG, .key = NAMED[i], .id = -1, .is_special = is_of_map}));
    if (r->out->count > before) r->out->list[before].is_special = true;
  }
  return OK;
}

static status read_list(const reader *r, const json_t *object, const char *file, const char *key, const char *dispute) {
  const json_t *list = json_object_get(object, key);
  if (list == NULL || json_is_null(list)) return OK;
  if (!json_is_array(list)) return FAIL(ERR_FORMAT, "%s: %s: expected a list", file, key);
  for (size_t i = 0; i < json_array_size(list); i++) {
    const json_t *value = json_array_get(list, i);
    bool is_plain = json_is_string(value) || (object == r->config && json_is_true(json_object_get(value, "special")));
    TRY(add(r, value, (declared_token){.file = file, .key = key, .id = -1, .goes_first_in_4 = json_is_object(value),
                                       .dispute = is_plain ? dispute : "version 5 does not take it for special"}));
  }
  return OK;
}

/* extra_special_tokens: names with their tokens, or only for version 5 a list. */
static status read_extra(const reader *r, const json_t *object, const char *file, const char *dispute) {
  const json_t *extra = json_object_get(object, EXTRA);
  const char *name = NULL;
  json_t *value = NULL;
  if (!json_is_object(extra)) return read_list(r, object, file, EXTRA, dispute);
  json_object_foreach((json_t *)extra, name, value)
    TRY(add(r, value, (declared_token){.file = file, .key = EXTRA, .id = -1, .dispute = dispute}));
  return OK;
}

/* Other fields whose names end like a token's, and lists in the map. */
static status read_others(const reader *r, const json_t *object, const char *file) {
  const char *key = NULL;
  json_t *value = NULL;
  json_object_foreach((json_t *)object, key, value) {
    size_t length = strlen(key);
    bool is_token = length > 6 && strcmp(key + length - 6, "_token") == 0, is_name = false;
    for (size_t i = 0; i < ARRAY_LEN(NAMED); i++) is_name = is_name || strcmp(NAMED[i], key) == 0;
    if (is_token && !is_name && (json_is_string(value) || json_is_object(value)))
      TRY(add(r, value, (declared_token){.file = file, .key = key, .id = -1, .dispute = "version 4 does not know the field"}));
  }
  return OK;
}

static status read_all(const reader *r) {
  static const char *const one_of_two = "version 5 takes one of two lists";
  const bool has_list = json_array_size(json_object_get(r->config, LISTED)) > 0;
  const bool has_mapped = json_array_size(json_object_get(r->map, LISTED)) > 0;
  const bool has_extra = json_array_size(json_object_get(r->config, EXTRA)) > 0;
  if (json_object_get(r->config, DECODER) != NULL) TRY(read_decoder(r));
  else if (r->added != NULL) TRY(read_added(r));
  TRY(read_named(r));
  TRY(read_list(r, r->config, CONFIG, LISTED, has_extra ? one_of_two : NULL));
  TRY(read_list(r, r->map, MAP, LISTED, has_list || has_extra ? one_of_two : NULL));
  TRY(read_extra(r, r->config, CONFIG, has_list || has_mapped ? "versions 4 and 5 number it differently" : NULL));
  TRY(read_extra(r, r->map, MAP, "version 4 does not read it"));
  TRY(read_others(r, r->config, CONFIG));
  return read_others(r, r->map, MAP);
}

/* A token without a stated id is disputed where another place gives it other flags. */
static void mark(declared_tokens *tokens, uint32_t index, bool is_of_other_class) {
  declared_token *token = &tokens->list[index];
  if (token->id >= 0 || token->dispute != NULL) return;
  token->is_of_other_class = is_of_other_class;
  for (uint32_t i = 0; i < tokens->count; i++) {
    const declared_token *other = &tokens->list[i];
    if (other->id >= 0 || strcmp(other->content, token->content) != 0) continue;
    if (other->strips_left != token->strips_left || other->strips_right != token->strips_right ||
        other->is_normalized != token->is_normalized || other->single_word != token->single_word)
      token->dispute = "each version takes other flags, since it is declared twice";
  }
}

status declared_tokens_read(declared_tokens *out, const json_t *config, const json_t *map, const json_t *added) {
  const bool has_decoder = json_object_get(config, DECODER) != NULL;
  const reader r = {out, config, has_decoder ? NULL : map, has_decoder ? NULL : added};
  if (config != NULL && !json_is_object(config)) return FAIL(ERR_FORMAT, CONFIG ": expected an object");
  if (map != NULL && !json_is_object(map)) return FAIL(ERR_FORMAT, MAP ": expected an object");
  TRY(read_all(&r));
  const bool is_other = declared_tokens_class(config) == DECLARED_OTHER;
  for (uint32_t i = 0; i < out->count; i++) mark(out, i, is_other);
  return OK;
}

void declared_tokens_close(declared_tokens *tokens) {
  free(tokens->list);
  *tokens = (declared_tokens){0};
}

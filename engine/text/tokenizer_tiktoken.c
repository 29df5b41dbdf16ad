/* tokenizer_tiktoken.c - from base64 lines and their configuration to plain arrays (see tokenizer_tiktoken.h).
 *
 * Strict: accepts only tiktoken's own spelling, with canonical base64, one space, the rank without leading zeros, LF. Tokens with equal
 * bytes and added tokens with equal content are found when they are indexed: bpe_open, added_tokens_open. Must not know how text becomes
 * ids. */
#include "text/tokenizer_tiktoken.h"
#include "base/special_file.h"
#include "base/limits.h"
#include "text/declared_tokens.h"
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MODEL "tiktoken.model"
#define CONFIG "tokenizer_config.json"
#define RESERVED_NAME_BYTES_MAX 32u

/* === tiktoken.model ========================================================================================== */

static int base64_value(uint8_t c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/* Decodes text[0..size) to out, at most size / 4 * 3 bytes, and returns their number; 0 if the text is empty or not canonical. */
static size_t decode_base64(const uint8_t *text, size_t size, uint8_t *out) {
  if (size == 0 || size % 4 != 0) return 0;
  size_t padding = text[size - 1] != '=' ? 0 : text[size - 2] != '=' ? 1 : 2, count = 0;
  for (size_t at = 0; at < size; at += 4) {
    size_t drop = at + 4 == size ? padding : 0;
    uint32_t bits = 0;
    for (size_t i = 0; i < 4; i++) {
      int value = i < 4 - drop ? base64_value(text[at + i]) : 0;
      if (value < 0) return 0;
      bits = bits << 6 | (uint32_t)value;
    }
    if ((bits & ((1u << 8 * drop) - 1)) != 0) return 0;
    for (size_t i = 0; i < 3 - drop; i++) out[count++] = (uint8_t)(bits >> (16 - 8 * i));
  }
  return count;
}

/* Appends the token on the line of id, given without its LF, to data->bytes + *used. */
static status read_line(tokenizer_data *data, const char *line, size_t size, uint32_t id, uint32_t *used) {
  char rank[16];
  const char *space = memchr(line, ' ', size);
  size_t code_bytes = space == NULL ? 0 : (size_t)(space - line);
  int rank_bytes = snprintf(rank, sizeof rank, "%u", (unsigned)id);
  if (code_bytes > (TOKENIZER_TIKTOKEN_TOKEN_BYTES_MAX + 2) / 3 * 4)
    return FAIL(ERR_LIMIT, MODEL ": line %u: expected at most %u bytes, found more", id + 1, TOKENIZER_TIKTOKEN_TOKEN_BYTES_MAX);
  size_t bytes = decode_base64((const uint8_t *)line, code_bytes, data->bytes + *used);
  if (bytes == 0 || size - code_bytes - 1 != (size_t)rank_bytes || memcmp(space + 1, rank, (size_t)rank_bytes) != 0)
    return FAIL(ERR_FORMAT, MODEL ": line %u: expected a token in base64, a space and the rank %u, found \"%.*s\"", id + 1, id,
                size > 80 ? 80 : (int)size, line);
  data->starts[id] = *used;
  data->is_word[id] = 1;
  if (bytes == 1) data->byte_ids[data->bytes[*used]] = (int32_t)id;
  *used += (uint32_t)bytes;
  return OK;
}

/* Allocates the arrays and fills in the vocabulary's part of bytes, starts, is_word and byte_ids. */
static status read_vocab(tokenizer_data *data, const char *model, size_t model_bytes, uint32_t *used) {
  size_t lines = 0, added_bytes = TOKENIZER_TIKTOKEN_RESERVED * (size_t)ADDED_TOKEN_BYTES_MAX;
  for (size_t i = 0; i < model_bytes; i++) lines += model[i] == '\n' || i + 1 == model_bytes;
  if (lines == 0 || lines > VOCAB_MAX - TOKENIZER_TIKTOKEN_RESERVED)
    return FAIL(ERR_LIMIT, MODEL ": expected 1 to %u tokens, found %zu", VOCAB_MAX - TOKENIZER_TIKTOKEN_RESERVED, lines);
  data->vocab_count = (uint32_t)lines;
  data->token_count = data->vocab_count + TOKENIZER_TIKTOKEN_RESERVED;
  data->bytes = malloc(model_bytes + added_bytes);
  data->starts = malloc((data->token_count + (size_t)1) * sizeof *data->starts);
  data->is_word = calloc(data->token_count, 1);
  if (data->bytes == NULL || data->starts == NULL || data->is_word == NULL) return FAIL(ERR_LIMIT, MODEL ": out of memory");
  for (size_t b = 0; b < 256; b++) data->byte_ids[b] = -1;
  const char *line = model, *end = model + model_bytes;
  for (uint32_t id = 0; id < data->vocab_count; id++) {
    const char *stop = memchr(line, '\n', (size_t)(end - line));
    size_t size = (size_t)((stop == NULL ? end : stop) - line);
    TRY(read_line(data, line, size, id, used));
    line += size + 1;
  }
  for (uint32_t b = 0; b < 256; b++)
    if (data->byte_ids[b] < 0) return FAIL(ERR_UNSUPPORTED, MODEL ": expected a token for every byte, found none for 0x%02X", b);
  return OK;
}

/* === Added tokens ============================================================================================ */

/* The entry that names id; NULL: none. */
static status find_entry(const json_t *decoder, uint32_t id, const char **content, bool *is_special) {
  char key[16];
  json_error_t error;
  int single_word = 0, strips_left = 0, strips_right = 0, normalized = 0, special = 0;
  snprintf(key, sizeof key, "%u", (unsigned)id);
  json_t *entry = json_object_get(decoder, key);
  if (entry == NULL) return OK;
  if (json_unpack_ex(entry, &error, JSON_STRICT, "{s:s, s:b, s:b, s:b, s:b, s:b}", "content", content, "single_word", &single_word,
                     "lstrip", &strips_left, "rstrip", &strips_right, "normalized", &normalized, "special", &special) != 0)
    return FAIL(ERR_FORMAT, CONFIG ": added_tokens_decoder.%s: expected content and five flags, found: %s", key, error.text);
  if (single_word || strips_left || strips_right)
    return FAIL(ERR_UNSUPPORTED, CONFIG ": added_tokens_decoder.%s: expected single_word, lstrip and rstrip false, found one true", key);
  size_t size = strlen(*content);
  if (size == 0 || size > ADDED_TOKEN_BYTES_MAX)
    return FAIL(ERR_LIMIT, CONFIG ": added_tokens_decoder.%s: expected 1 to %u bytes, found %zu", key, ADDED_TOKEN_BYTES_MAX, size);
  *is_special = special != 0;
  return OK;
}

/* Appends the reserved ids to data->bytes + used. */
static status read_added(tokenizer_data *data, const json_t *decoder, uint32_t used) {
  size_t found = 0;
  data->added = calloc(TOKENIZER_TIKTOKEN_RESERVED, sizeof *data->added);
  if (data->added == NULL) return FAIL(ERR_LIMIT, CONFIG ": out of memory");
  for (uint32_t id = data->vocab_count; id < data->token_count; id++) {
    char name[RESERVED_NAME_BYTES_MAX];
    const char *content = NULL;
    bool is_special = true;
    TRY(find_entry(decoder, id, &content, &is_special));
    found += content != NULL;
    snprintf(name, sizeof name, "<|reserved_token_%u|>", (unsigned)id);
    if (content == NULL) content = name;
    uint32_t bytes = (uint32_t)strlen(content);
    memcpy(data->bytes + used, content, bytes);
    data->starts[id] = used;
    data->added[data->added_count++] = (added_token){
      .content = data->bytes + used, .bytes = bytes, .id = (int32_t)id, .is_special = is_special, .is_control = true};
    used += bytes;
  }
  data->starts[data->token_count] = used;
  if (found != json_object_size(decoder))
    return FAIL(ERR_FORMAT, CONFIG ": added_tokens_decoder: expected ids %u to %u, found %zu others", data->vocab_count,
                data->token_count - 1, json_object_size(decoder) - found);
  return OK;
}

/* A token that is declared and has no id in added_tokens_decoder would be spelled in pieces. */
static status check_declared(const tokenizer_data *data, const declared_tokens *declared) {
  for (uint32_t i = 0; i < declared->count; i++) {
    const declared_token *d = &declared->list[i];
    bool is_found = false;
    for (uint32_t a = 0; a < data->added_count && !is_found; a++)
      is_found = data->added[a].bytes == strlen(d->content) && memcmp(data->added[a].content, d->content, data->added[a].bytes) == 0;
    if (!is_found)
      return FAIL(ERR_UNSUPPORTED, CONFIG ": %s: expected a token of added_tokens_decoder, found \"%.80s\"", d->key, d->content);
  }
  return OK;
}

/* === Whole files ============================================================================================= */

static status read_all(tokenizer_data *data, const char *model, size_t model_bytes, const json_t *config) {
  const char *class = json_string_value(json_object_get(config, "tokenizer_class"));
  const json_t *decoder = json_object_get(config, "added_tokens_decoder");
  uint32_t used = 0;
  if (class == NULL || strcmp(class, "TikTokenTokenizer") != 0)
    return FAIL(ERR_UNSUPPORTED, CONFIG ": tokenizer_class: expected \"TikTokenTokenizer\" beside " MODEL ", found \"%.80s\"",
                class == NULL ? "" : class);
  if (!json_is_object(decoder)) return FAIL(ERR_FORMAT, CONFIG ": added_tokens_decoder: expected an object");
  TRY(read_vocab(data, model, model_bytes, &used));
  TRY(read_added(data, decoder, used));
  data->splits[0] = (pretokenize_split){PRETOKENIZE_PATTERN, TOKENIZER_TIKTOKEN_PATTERN, strlen(TOKENIZER_TIKTOKEN_PATTERN)};
  data->split_count = 1;
  data->ignores_merges = data->ranks_words = true;
  declared_tokens declared = {0};
  status s = declared_tokens_read(&declared, config, NULL, NULL);
  if (s == OK) s = check_declared(data, &declared);
  declared_tokens_close(&declared);
  return s == OK ? tokenizer_json_config(data, config) : s;
}

status tokenizer_tiktoken_parse(tokenizer_data *data, const char *model, size_t model_bytes, const char *config, size_t config_bytes) {
  tokenizer_data built = {.bos = -1, .eos = -1};
  json_t *root = NULL;
  if (model_bytes > TOKENIZER_TIKTOKEN_FILE_BYTES_MAX)
    return FAIL(ERR_LIMIT, MODEL ": expected at most %u bytes, found %zu", TOKENIZER_TIKTOKEN_FILE_BYTES_MAX, model_bytes);
  TRY(tokenizer_json_load(CONFIG, config, config_bytes, &root));
  status s = read_all(&built, model, model_bytes, root);
  json_decref(root);
  if (s != OK) tokenizer_json_free(&built);
  else *data = built;
  return s;
}

static bool is_file_in(const char *model_dir, const char *name) {
  char path[4096];
  int wrote = snprintf(path, sizeof path, "%s/%s", model_dir, name);
  return wrote >= 0 && (size_t)wrote < sizeof path && special_file_is_there(path);
}

bool tokenizer_tiktoken_is_in(const char *model_dir) {
  return !is_file_in(model_dir, "tokenizer.json") && is_file_in(model_dir, MODEL);
}

status tokenizer_tiktoken_read(tokenizer_data *data, const char *model_dir) {
  char *model = NULL, *config = NULL;
  size_t model_bytes = 0, config_bytes = 0;
  status s = tokenizer_json_read_file(model_dir, MODEL, false, &model, &model_bytes);
  if (s == OK) s = tokenizer_json_read_file(model_dir, CONFIG, false, &config, &config_bytes);
  if (s == OK) s = tokenizer_tiktoken_parse(data, model, model_bytes, config, config_bytes);
  free(model);
  free(config);
  return s;
}

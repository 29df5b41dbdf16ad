/* items.c - see items.h. */
#include "items.h"
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What others call sampling or request parameters and this program does not have. */
static const char *const REFUSED[] = {
  "stop", "n", "best_of", "presence_penalty", "frequency_penalty", "repetition_penalty", "min_p", "typical_p", "top_a", "tfs",
  "mirostat", "logit_bias", "max_new_tokens", "max_completion_tokens", "max_length", "min_tokens", "min_new_tokens", "do_sample",
  "num_beams", "beams", "length_penalty", "no_repeat_ngram_size", "bad_words", "temp", "logprobs", "top_logprobs", "messages",
  "stop_token_ids", "eos_token_id", "sampling_params", "seed_offset", "response_format", "guided_json", "grammar", "suffix", "echo",
};

static status no_memory(void) { return FAIL(ERR_LIMIT, "prompts: no memory"); }

static char *copy_bytes(const char *text, size_t bytes) {
  char *copy = malloc(bytes + 1);
  if (!copy) return NULL;
  memcpy(copy, text, bytes);
  copy[bytes] = 0;
  return copy;
}

static void clear(item *self) {
  free(self->id);
  free(self->prompt);
  free(self->ids);
  free(self->task);
  free(self->answer);
  free(self->echo);
  *self = (item){0};
}

void items_close(items *self) {
  for (uint32_t i = 0; i < self->count; i++) clear(&self->list[i]);
  free(self->list);
  *self = (items){0};
}

/* Takes the item over, or clears it on error. */
static status append(items *self, item *added) {
  status result = OK;
  if (self->count == ITEMS_MAX) result = FAIL(ERR_LIMIT, "prompts: more than %u", ITEMS_MAX);
  if (result == OK && self->count == self->room) {
    uint32_t room = self->room ? 2 * self->room : 16;
    item *grown = realloc(self->list, room * sizeof *grown);
    if (grown) self->list = grown, self->room = room;
    else result = no_memory();
  }
  if (result == OK && !added->id) {
    char number[16];
    int bytes = snprintf(number, sizeof number, "%u", self->count);
    if (!(added->id = copy_bytes(number, (size_t)bytes))) result = no_memory();
  }
  if (result == OK) self->list[self->count++] = *added;
  else clear(added);
  return result;
}

status items_add_text(items *self, const char *text, size_t bytes, const item_params *params) {
  item made = {.params = *params, .prompt = copy_bytes(text, bytes), .prompt_bytes = bytes};
  if (!made.prompt) return no_memory();
  return append(self, &made);
}

status items_add_ids(items *self, const char *text, const item_params *params) {
  item made = {.params = *params};
  size_t room = strlen(text) / 2 + 1;
  made.ids = calloc(room, sizeof *made.ids);
  if (!made.ids) return no_memory();
  for (const char *at = text + strspn(text, " ,\t"); *at; at += strspn(at, " ,\t")) {
    char *end;
    errno = 0;
    long value = strtol(at, &end, 10);
    if (end == at || errno || value < 0 || value > INT32_MAX || (*end && !strchr(" ,\t", *end))) {
      clear(&made);
      return FAIL(ERR_USAGE, "--ids: expected token ids separated by commas or spaces, found \"%.40s\"", at);
    }
    made.ids[made.id_count++] = (int32_t)value;
    at = end;
  }
  return append(self, &made);
}

/* === One JSON object ======================================================================================================== */

typedef struct source { /* where a value comes from, for messages */
  uint32_t line;
  const char *key;
} source;

static status wrong(const source *at, const char *expected) {
  return FAIL(ERR_USAGE, "line %u: \"%.64s\": expected %s", at->line, at->key, expected);
}

static status read_u32(const source *at, const json_t *value, uint32_t *out) {
  if (!json_is_integer(value) || json_integer_value(value) < 0 || json_integer_value(value) > UINT32_MAX)
    return wrong(at, "an integer of 0 to 4294967295");
  *out = (uint32_t)json_integer_value(value);
  return OK;
}

static status read_number(const source *at, const json_t *value, double *out) {
  if (!json_is_number(value) || !isfinite(json_number_value(value))) return wrong(at, "a number");
  *out = json_number_value(value);
  return OK;
}

/* Seeds have 64 bits; JSON integers here have 63, so larger ones are written as text. */
static status read_seed(const source *at, const json_t *value, uint64_t *out) {
  if (json_is_integer(value) && json_integer_value(value) >= 0) {
    *out = (uint64_t)json_integer_value(value);
    return OK;
  }
  const char *text = json_string_value(value);
  char *end = NULL;
  errno = 0;
  unsigned long long seed = text && *text >= '0' && *text <= '9' ? strtoull(text, &end, 10) : 0;
  if (!end || *end || errno) return wrong(at, "an integer of 0 to 18446744073709551615 (text above 9223372036854775807)");
  *out = seed;
  return OK;
}

static status read_id_list(const source *at, const json_t *value, int32_t *ids, uint32_t room, uint32_t *count) {
  if (!json_is_array(value) || json_array_size(value) > room) return wrong(at, "a list of token ids (not too long)");
  for (size_t i = 0; i < json_array_size(value); i++) {
    const json_t *id = json_array_get(value, i);
    if (!json_is_integer(id) || json_integer_value(id) < 0 || json_integer_value(id) > INT32_MAX)
      return wrong(at, "token ids, integers of 0 or more");
    ids[i] = (int32_t)json_integer_value(id);
  }
  *count = (uint32_t)json_array_size(value);
  return OK;
}

/* bytes null: the text is one that ends at a NUL, and may hold none. */
static status read_text(const source *at, const json_t *value, char **out, size_t *bytes) {
  if (!json_is_string(value)) return wrong(at, "text");
  size_t length = json_string_length(value);
  if (!bytes && strlen(json_string_value(value)) != length) return wrong(at, "text without NUL");
  if (!(*out = copy_bytes(json_string_value(value), length))) return no_memory();
  if (bytes) *bytes = length;
  return OK;
}

static status read_id(const source *at, const json_t *value, char **out) {
  char number[32];
  if (json_is_integer(value)) {
    int bytes = snprintf(number, sizeof number, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
    return (*out = copy_bytes(number, (size_t)bytes)) ? OK : no_memory();
  }
  if (!json_is_string(value) || json_string_length(value) > ITEMS_ID_BYTES_MAX)
    return wrong(at, "an integer or a text of at most 256 bytes");
  return read_text(at, value, out, NULL);
}

static status read_prompt_ids(const source *at, const json_t *value, item *out) {
  size_t room = json_array_size(value);
  if (!json_is_array(value) || room > UINT32_MAX) return wrong(at, "a list of token ids");
  if (!(out->ids = calloc(room ? room : 1, sizeof *out->ids))) return no_memory();
  return read_id_list(at, value, out->ids, (uint32_t)room, &out->id_count);
}

static status read_param(const source *at, const json_t *value, item_params *out, bool *known) {
  double number = 0;
  *known = true;
  if (strcmp(at->key, "max_tokens") == 0) return read_u32(at, value, &out->max_tokens);
  if (strcmp(at->key, "top_k") == 0) return read_u32(at, value, &out->top_k);
  if (strcmp(at->key, "top_p") == 0) return read_number(at, value, &out->top_p);
  if (strcmp(at->key, "seed") == 0) return read_seed(at, value, &out->seed);
  if (strcmp(at->key, "stop_ids") == 0) return read_id_list(at, value, out->stop_ids, VERBATIM_STOP_IDS_MAX, &out->stop_count);
  if (strcmp(at->key, "temperature") == 0) {
    TRY(read_number(at, value, &number));
    out->temperature = (float)number;
    return number == 0 || out->temperature != 0 ? OK : wrong(at, "0 or at least 0.001"); /* what rounds to 0 is not greedy */
  }
  if (strcmp(at->key, "ignore_eos") == 0) {
    if (!json_is_boolean(value)) return wrong(at, "true or false");
    out->ignore_eos = json_is_true(value);
    return OK;
  }
  *known = false;
  return OK;
}

static status read_key(const source *at, json_t *value, item *out, json_t *echo) {
  if (strcmp(at->key, "prompt") == 0) return read_text(at, value, &out->prompt, &out->prompt_bytes);
  if (strcmp(at->key, "prompt_ids") == 0) return read_prompt_ids(at, value, out);
  if (strcmp(at->key, "id") == 0) return read_id(at, value, &out->id);
  if (strcmp(at->key, "task") == 0) return read_text(at, value, &out->task, NULL);
  if (strcmp(at->key, "answer") == 0) return read_text(at, value, &out->answer, NULL);
  bool known;
  TRY(read_param(at, value, &out->params, &known));
  if (known) return OK;
  for (size_t i = 0; i < ARRAY_LEN(REFUSED); i++)
    if (strcmp(at->key, REFUSED[i]) == 0)
      return FAIL(ERR_UNSUPPORTED, "line %u: \"%s\" is not supported, hint: remove it; ignoring it would change what is asked for",
                  at->line, at->key);
  return json_object_set(echo, at->key, value) == 0 ? OK : no_memory();
}

static status read_object(json_t *object, uint32_t line, item *out, json_t *echo) {
  const char *key;
  json_t *value;
  if (!json_is_object(object)) return FAIL(ERR_USAGE, "line %u: expected a JSON object", line);
  json_object_foreach(object, key, value) {
    source at = {.line = line, .key = key};
    TRY(read_key(&at, value, out, echo));
  }
  if (!out->prompt == !out->ids) return FAIL(ERR_USAGE, "line %u: expected one of \"prompt\" and \"prompt_ids\"", line);
  if (json_object_size(echo) == 0) return OK;
  return (out->echo = json_dumps(echo, JSON_COMPACT)) ? OK : no_memory();
}

status items_add_json(items *self, const char *line, size_t bytes, uint32_t line_number, const item_params *defaults) {
  if (bytes > ITEMS_LINE_BYTES_MAX) return FAIL(ERR_LIMIT, "line %u: more than %u bytes", line_number, ITEMS_LINE_BYTES_MAX);
  if (bytes >= 3 && memcmp(line, "\xef\xbb\xbf", 3) == 0)
    return FAIL(ERR_USAGE, "line %u: begins with a byte order mark; hint: save the file as UTF-8 without one", line_number);
  json_error_t error;
  json_t *object = json_loadb(line, bytes, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
  if (!object) return FAIL(ERR_USAGE, "line %u: not JSON: %s (column %d)", line_number, error.text, error.column);
  item made = {.params = *defaults};
  json_t *echo = json_object();
  status result = echo ? read_object(object, line_number, &made, echo) : no_memory();
  json_decref(echo);
  json_decref(object);
  if (result == OK) return append(self, &made);
  clear(&made);
  return result;
}

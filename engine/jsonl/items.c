/* items.c - see items.h. Each key has a reader; a key without one is echoed or refused. */
#include "jsonl/items.h"
#include "constrain/json_form.h"
#include "jsonl/json_line.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Names of sampling and request parameters in other programs that this one does not have. */
static const char *const REFUSED[] = {
  "best_of", "typical_p", "top_a", "tfs", "mirostat", "max_new_tokens", "max_completion_tokens", "max_length", "min_tokens",
  "min_new_tokens", "do_sample", "num_beams", "beams", "length_penalty", "no_repeat_ngram_size", "bad_words", "temp", "top_logprobs",
  "prompt_logprobs", "allowed_token_ids", "messages", "stop_token_ids", "eos_token_id", "sampling_params", "seed_offset", "sample_index",
  "guided_grammar", "guided_decoding_backend", "guided_whitespace_pattern", "grammar", "suffix", "echo", "repeat_penalty", "stop_sequences",
  "stop_strings", "num_return_sequences", "n_predict", "num_predict", "bad_words_ids", "use_beam_search",
  "deadline", "timeout", "max_time",
};

static void clear(item *self) {
  free(self->id);
  free(self->prompt);
  free(self->ids);
  free(self->task);
  free(self->answer);
  free(self->echo);
  for (size_t i = 0; i < ARRAY_LEN(self->lists); i++) free(self->lists[i]);
  verbatim_constraint_close(self->constraint);
  *self = (item){0};
}

void items_close(items *self) {
  for (uint32_t i = 0; i < self->count; i++) clear(&self->list[i]);
  free(self->list);
  *self = (items){0};
}

/* Takes ownership of the item, or clears it on error. */
static status append(items *self, item *added) {
  status result = OK;
  if (self->count == ITEMS_MAX) result = FAIL(ERR_LIMIT, "prompts: more than %u", ITEMS_MAX);
  if (result == OK && self->count == self->room) {
    uint32_t room = self->room ? 2 * self->room : 16;
    item *grown = realloc(self->list, room * sizeof *grown);
    if (grown) self->list = grown, self->room = room;
    else result = json_line_no_memory();
  }
  if (result == OK && !added->id) {
    char number[16];
    int bytes = snprintf(number, sizeof number, "%u", self->count);
    if (!(added->id = json_line_copy(number, (size_t)bytes))) result = json_line_no_memory();
  }
  if (result == OK) self->list[self->count++] = *added;
  else clear(added);
  return result;
}

status items_add_text(items *self, const char *text, size_t bytes, const item_params *params) {
  item added = {.params = *params, .prompt = json_line_copy(text, bytes), .prompt_bytes = bytes};
  if (!added.prompt) return json_line_no_memory();
  return append(self, &added);
}

status items_add_ids(items *self, const char *text, const item_params *params) {
  item added = {.params = *params};
  size_t room = strlen(text) / 2 + 1;
  added.ids = calloc(room, sizeof *added.ids);
  if (!added.ids) return json_line_no_memory();
  for (const char *at = text + strspn(text, " ,\t"); *at; at += strspn(at, " ,\t")) {
    char *end;
    errno = 0;
    long value = strtol(at, &end, 10);
    if (end == at || errno || value < 0 || value > INT32_MAX || (*end && !strchr(" ,\t", *end))) {
      clear(&added);
      return FAIL(ERR_USAGE, "--ids: expected token ids separated by commas or spaces, found \"%.40s\"", at);
    }
    added.ids[added.id_count++] = (int32_t)value;
    at = end;
  }
  return append(self, &added);
}

/* === One JSON object ======================================================================================================== */

/* Seeds have 64 bits but JSON integers only 63, so larger seeds are written as text. */
static status read_seed(const json_line_key *at, const json_t *value, uint64_t *out) {
  if (json_is_integer(value) && json_integer_value(value) >= 0) {
    *out = (uint64_t)json_integer_value(value);
    return OK;
  }
  const char *text = json_string_value(value);
  char *end = NULL;
  errno = 0;
  unsigned long long seed = text && *text >= '0' && *text <= '9' ? strtoull(text, &end, 10) : 0;
  if (!end || *end || errno) return json_line_wrong(at, "an integer of 0 to 18446744073709551615 (text above 9223372036854775807)");
  *out = seed;
  return OK;
}

static status read_temperature(const json_line_key *at, const json_t *value, float *out) {
  double number = 0;
  TRY(json_line_number(at, value, &number));
  *out = (float)number;
  return number == 0 || *out != 0 ? OK : json_line_wrong(at, "0 or at least 0.001"); /* a value that rounds to 0 would not mean greedy */
}

/* *known: the key is one of these. */
static status read_number(const json_line_key *at, const json_t *value, item_params *out, bool *known) {
  const struct { const char *name; uint32_t *target, least, most; const char *expected; } counts[] = {
    {"max_tokens", &out->max_tokens, 0, UINT32_MAX, NULL}, {"top_k", &out->top_k, 0, UINT32_MAX, NULL},
    {"n", &out->samples, 1, ITEMS_SAMPLES_MAX, "an integer of 1 to 128"},
    {"logprobs", &out->top_logprobs, 0, VERBATIM_TOP_LOGPROBS_MAX, "an integer of 0 to 20"}};
  const struct { const char *name; double *wide; float *narrow; } reals[] = {
    {"top_p", &out->top_p, NULL}, {"min_p", &out->min_p, NULL}, {"repetition_penalty", NULL, &out->repetition_penalty},
    {"presence_penalty", NULL, &out->presence_penalty}, {"frequency_penalty", NULL, &out->frequency_penalty}};
  *known = true;
  for (size_t i = 0; i < ARRAY_LEN(counts); i++) {
    if (strcmp(at->name, counts[i].name) != 0) continue;
    TRY(json_line_u32(at, value, counts[i].target));
    return *counts[i].target >= counts[i].least && *counts[i].target <= counts[i].most ? OK : json_line_wrong(at, counts[i].expected);
  }
  for (size_t i = 0; i < ARRAY_LEN(reals); i++) {
    double number = 0;
    if (strcmp(at->name, reals[i].name) != 0) continue;
    TRY(json_line_number(at, value, &number));
    if (reals[i].wide) *reals[i].wide = number;
    else *reals[i].narrow = (float)number;
    return OK;
  }
  *known = false;
  return OK;
}

/* One text or a list of texts. Allocates an array of verbatim_text followed by the bytes it points to; jansson has checked the UTF-8. */
static status read_stop_texts(const json_line_key *at, const json_t *value, item *out) {
  size_t count = json_is_array(value) ? json_array_size(value) : 1, bytes = 0;
  if (count > VERBATIM_STOP_TEXTS_MAX) return json_line_wrong(at, "a text, or a list of at most 16");
  for (size_t i = 0; i < count; i++) {
    const json_t *text = json_is_array(value) ? json_array_get(value, i) : value;
    size_t length = json_string_length(text);
    if (!json_is_string(text) || length == 0 || length > VERBATIM_STOP_TEXT_BYTES_MAX)
      return json_line_wrong(at, "a text of 1 to 256 bytes, or a list of such");
    bytes += length;
  }
  verbatim_text *texts = malloc(count * sizeof *texts + bytes + 1);
  if (!texts) return json_line_no_memory();
  char *end = (char *)(texts + count);
  for (size_t i = 0; i < count; i++) {
    const json_t *text = json_is_array(value) ? json_array_get(value, i) : value;
    texts[i] = (verbatim_text){.bytes = end, .count = json_string_length(text)};
    memcpy(end, json_string_value(text), texts[i].count);
    end += texts[i].count;
  }
  out->lists[0] = texts;
  out->params.stop_texts = texts;
  out->params.stop_text_count = (uint32_t)count;
  return OK;
}

static status read_biases(const json_line_key *at, json_t *value, item *out) {
  const char *key;
  json_t *bias;
  uint32_t count = 0;
  if (!json_is_object(value) || json_object_size(value) > VERBATIM_BIASES_MAX)
    return json_line_wrong(at, "an object of token ids and biases, at most 1024");
  verbatim_bias *biases = malloc((json_object_size(value) + 1) * sizeof *biases);
  if (!biases) return json_line_no_memory();
  out->lists[1] = biases;
  json_object_foreach(value, key, bias) {
    char *end = NULL;
    errno = 0;
    long id = *key >= '0' && *key <= '9' ? strtol(key, &end, 10) : -1;
    double number = 0;
    if (!end || *end || errno || id > INT32_MAX) return json_line_wrong(at, "token ids as keys, like \"17\"");
    TRY(json_line_number(at, bias, &number));
    biases[count++] = (verbatim_bias){.token = (int32_t)id, .bias = (float)number};
  }
  out->params.biases = biases;
  out->params.bias_count = count;
  return OK;
}

static status read_allowed(const json_line_key *at, const json_t *value, item *out) {
  int32_t *ids = NULL;
  if (json_array_size(value) > VERBATIM_BIASES_MAX) return json_line_wrong(at, "a list of token ids, at most 1024");
  TRY(json_line_new_ids(at, value, &ids, &out->params.allowed_count));
  out->lists[2] = ids;
  out->params.allowed_ids = ids;
  return out->params.allowed_count ? OK : json_line_wrong(at, "at least one token id");
}

static status read_required(const json_line_key *at, const json_t *value, item *out) {
  const char **names = NULL;
  TRY(json_line_new_names(at, value, VERBATIM_REQUIRED_MAX, &names, &out->params.required_count));
  out->lists[3] = names;
  out->params.required = names;
  return OK;
}

/* Replaces a default one. */
static status read_constraint(const json_line_key *at, const json_t *value, item *out) {
  verbatim_constraint *made = NULL;
  const status result = json_form_read(at->name, value, &made);
  char where[64];
  snprintf(where, sizeof where, "line %u", at->line);
  if (result != OK) fail_prefix(where);
  TRY(result);
  if (made && out->constraint) {
    verbatim_constraint_close(made);
    return json_line_wrong(at, "one of response_format, structured_outputs and guided_*, not several");
  }
  if (made) out->constraint = made;
  if (!out->constraint) out->params.constraint = NULL;
  else out->params.constraint = out->constraint;
  return OK;
}

static status read_param(const json_line_key *at, json_t *value, item *owner, bool *known) {
  item_params *out = &owner->params;
  TRY(read_number(at, value, out, known));
  if (*known) return OK;
  *known = true;
  if (strcmp(at->name, "temperature") == 0) return read_temperature(at, value, &out->temperature);
  if (strcmp(at->name, "seed") == 0) return read_seed(at, value, &out->seed);
  if (strcmp(at->name, "ignore_eos") == 0) return json_line_bool(at, value, &out->ignore_eos);
  if (strcmp(at->name, "stop_ids") == 0) return json_line_ids(at, value, out->stop_ids, VERBATIM_STOP_IDS_MAX, &out->stop_count);
  if (strcmp(at->name, "stop") == 0) return read_stop_texts(at, value, owner);
  if (strcmp(at->name, "logit_bias") == 0) return read_biases(at, value, owner);
  if (strcmp(at->name, "allowed_ids") == 0) return read_allowed(at, value, owner);
  if (strcmp(at->name, "deadline_seconds") == 0) return json_line_seconds(at, value, &out->deadline_seconds);
  if (json_form_has(at->name)) return read_constraint(at, value, owner);
  if (strcmp(at->name, "require") == 0) return read_required(at, value, owner);
  *known = false;
  return OK;
}

static status read_key(const json_line_key *at, json_t *value, item *out, json_t *echo) {
  if (strcmp(at->name, "prompt") == 0) return json_line_text(at, value, &out->prompt, &out->prompt_bytes);
  if (strcmp(at->name, "prompt_ids") == 0) return json_line_new_ids(at, value, &out->ids, &out->id_count);
  if (strcmp(at->name, "id") == 0) return json_line_id(at, value, &out->id);
  if (strcmp(at->name, "task") == 0) return json_line_text(at, value, &out->task, NULL);
  if (strcmp(at->name, "answer") == 0) return json_line_text(at, value, &out->answer, NULL);
  bool known;
  TRY(read_param(at, value, out, &known));
  if (known) return OK;
  for (size_t i = 0; i < ARRAY_LEN(REFUSED); i++)
    if (strcmp(at->name, REFUSED[i]) == 0) return json_line_unsupported(at);
  return json_object_set(echo, at->name, value) == 0 ? OK : json_line_no_memory();
}

static status read_object(json_t *object, uint32_t line, item *out, json_t *echo) {
  const char *key;
  json_t *value;
  json_object_foreach(object, key, value) {
    json_line_key at = {.line = line, .name = key};
    TRY(read_key(&at, value, out, echo));
  }
  if (!out->prompt == !out->ids) return FAIL(ERR_FORMAT, "line %u: expected one of \"prompt\" and \"prompt_ids\"", line);
  if (json_object_size(echo) == 0) return OK;
  return (out->echo = json_dumps(echo, JSON_COMPACT)) ? OK : json_line_no_memory();
}

status items_add_json(items *self, const char *line, size_t bytes, uint32_t line_number, const item_params *defaults) {
  json_t *object = NULL;
  TRY(json_line_parse(line, bytes, line_number, &object));
  item added = {.params = *defaults};
  json_t *echo = json_object();
  status result = echo ? read_object(object, line_number, &added, echo) : json_line_no_memory();
  json_decref(echo);
  json_decref(object);
  if (result == OK) return append(self, &added);
  clear(&added);
  return result;
}

void items_request(const item_params *params, uint32_t sample, verbatim_request *request) {
  *request = (verbatim_request){
    .max_tokens = params->max_tokens, .top_logprobs = params->top_logprobs, .temperature = params->temperature, .top_k = params->top_k,
    .top_p = params->top_p, .min_p = params->min_p, .repetition_penalty = params->repetition_penalty,
    .presence_penalty = params->presence_penalty, .frequency_penalty = params->frequency_penalty, .biases = params->biases,
    .bias_count = params->bias_count, .allowed_ids = params->allowed_ids, .allowed_count = params->allowed_count,
    .constraint = params->constraint, .seed = params->seed,
    .sample_index = sample, .stop_ids = params->stop_ids, .stop_count = params->stop_count, .stop_texts = params->stop_texts,
    .stop_text_count = params->stop_text_count, .ignore_eos = params->ignore_eos, .deadline_seconds = params->deadline_seconds,
    .required = params->required, .required_count = params->required_count};
}

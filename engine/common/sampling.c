/* common/sampling.c - see common/sampling.h. One taker per option; ranges are checked here, meanings belong to the engine. */
#include "common/sampling.h"
#include "base/limits.h"
#include "base/input_file.h"
#include "common/files.h"
#include <stdlib.h>
#include <string.h>

static status take_real32(const char *name, const char *value, void *target) {
  double real = 0;
  TRY(cli_options_real(name, value, &real));
  *(float *)target = (float)real;
  return OK;
}

static status take_temperature(const char *name, const char *value, void *target) {
  float *temperature = target;
  double real = 0;
  TRY(cli_options_real(name, value, &real));
  *temperature = (float)real;
  if (real == 0 || *temperature != 0) return OK;
  return FAIL(ERR_USAGE, "%s: expected 0 or at least 0.001, found %s", name, value); /* a value that rounds to 0 would not mean greedy */
}

static status take_samples(const char *name, const char *value, void *target) {
  TRY(cli_options_u32(name, value, target));
  uint32_t found = *(uint32_t *)target;
  return found >= 1 && found <= ITEMS_SAMPLES_MAX ? OK : FAIL(ERR_USAGE, "%s: expected 1 to %u, found %u", name, ITEMS_SAMPLES_MAX, found);
}

static status take_alternatives(const char *name, const char *value, void *target) {
  uint64_t found;
  TRY(cli_options_integer(name, value, VERBATIM_TOP_LOGPROBS_MAX, &found));
  *(uint32_t *)target = (uint32_t)found;
  return OK;
}

static status take_stop_id(const char *name, const char *value, void *target) {
  item_params *params = target;
  uint64_t id;
  if (params->stop_count == VERBATIM_STOP_IDS_MAX) return FAIL(ERR_LIMIT, "%s: at most %u", name, VERBATIM_STOP_IDS_MAX);
  TRY(cli_options_integer(name, value, VOCAB_MAX, &id));
  params->stop_ids[params->stop_count++] = (int32_t)id;
  return OK;
}

static status take_stop_text(const char *name, const char *value, void *target) {
  cli_sampling *self = target;
  uint32_t *count = &self->params.stop_text_count;
  if (*count == VERBATIM_STOP_TEXTS_MAX) return FAIL(ERR_LIMIT, "%s: at most %u", name, VERBATIM_STOP_TEXTS_MAX);
  self->stop_texts[(*count)++] = (verbatim_text){.bytes = value, .count = strlen(value)};
  return OK;
}

/* "17=-1.5" */
static status take_bias(const char *name, const char *value, void *target) {
  cli_sampling *self = target;
  const char *equals = strchr(value, '=');
  char digits[16];
  uint64_t id;
  double bias;
  if (self->params.bias_count == VERBATIM_BIASES_MAX) return FAIL(ERR_LIMIT, "%s: at most %u", name, VERBATIM_BIASES_MAX);
  if (!equals || (size_t)(equals - value) >= sizeof digits) return FAIL(ERR_USAGE, "%s: expected ID=X, found \"%s\"", name, value);
  memcpy(digits, value, (size_t)(equals - value));
  digits[equals - value] = 0;
  TRY(cli_options_integer(name, digits, VOCAB_MAX, &id));
  TRY(cli_options_real(name, equals + 1, &bias));
  self->biases[self->params.bias_count++] = (verbatim_bias){.token = (int32_t)id, .bias = (float)bias};
  return OK;
}

/* "1,2 3"; repeated options add to the list. */
static status take_allowed(const char *name, const char *value, void *target) {
  cli_sampling *self = target;
  for (const char *at = value + strspn(value, " ,"); *at; at += strspn(at, " ,")) {
    size_t length = strcspn(at, " ,");
    char digits[16] = "";
    uint64_t id;
    if (self->params.allowed_count == VERBATIM_BIASES_MAX) return FAIL(ERR_LIMIT, "%s: at most %u", name, VERBATIM_BIASES_MAX);
    if (length >= sizeof digits) return FAIL(ERR_USAGE, "%s: expected token ids, found \"%.40s\"", name, at);
    memcpy(digits, at, length);
    TRY(cli_options_integer(name, digits, VOCAB_MAX, &id));
    self->allowed_ids[self->params.allowed_count++] = (int32_t)id;
    at += length;
  }
  return self->params.allowed_count ? OK : FAIL(ERR_USAGE, "%s: expected token ids, found none", name);
}

/* === The answer's form ====================================================================================================== */

/* Takes the place of another constraint only if it extends it. */
static status constrain(cli_sampling *self, const char *name, enum verbatim_constraint_kind kind, const char *text, size_t bytes) {
  verbatim_constraint *made = NULL, *old = self->constraint;
  enum verbatim_constraint_kind old_kind = kind;
  if (old) verbatim_constraint_text(old, &old_kind);
  if (old && (old_kind != kind || kind != VERBATIM_CHOICE)) return FAIL(ERR_USAGE, "%s: expected one constraint, found two", name);
  const status result = verbatim_constraint_open(&made, kind, text, bytes);
  if (result != OK) fail_prefix(name);
  TRY(result);
  verbatim_constraint_close(old);
  self->params.constraint = self->constraint = made;
  return OK;
}

static status take_choice(const char *name, const char *value, void *target) {
  cli_sampling *self = target;
  if (!self->choices) self->choices = json_array();
  if (json_array_append_new(self->choices, json_string(value)) != 0) return FAIL(ERR_USAGE, "%s: expected UTF-8", name);
  char *text = json_dumps(self->choices, JSON_COMPACT);
  const status result = text ? constrain(self, name, VERBATIM_CHOICE, text, strlen(text)) : FAIL(ERR_LIMIT, "%s: no memory", name);
  free(text);
  return result;
}

static status take_regex(const char *name, const char *value, void *target) {
  return constrain(target, name, VERBATIM_REGEX, value, strlen(value));
}

/* The schema itself, or a file that holds it. */
static status take_schema(const char *name, const char *value, void *target) {
  char *text = NULL;
  size_t bytes = 0;
  if (*value == '{') return constrain(target, name, VERBATIM_JSON_SCHEMA, value, strlen(value));
  TRY(cli_files_read_config(value, INPUT_CONFIG, &text, &bytes));
  const status result = constrain(target, name, VERBATIM_JSON_SCHEMA, text, bytes);
  free(text);
  return result;
}

void cli_sampling_close(cli_sampling *self) {
  json_decref(self->choices);
  verbatim_constraint_close(self->constraint);
  self->choices = NULL;
  self->params.constraint = self->constraint = NULL;
}

void cli_sampling_options(cli_sampling *self, cli_option *rows, size_t row_count) {
  item_params *p = &self->params;
  *p = ITEMS_DEFAULTS;
  p->stop_texts = self->stop_texts;
  p->biases = self->biases;
  p->allowed_ids = self->allowed_ids;
  p->required = self->conditions.required;
  const cli_option own[] = {
    {"--max-tokens", cli_options_u32, &p->max_tokens}, {"--n", take_samples, &p->samples},
    {"--temperature", take_temperature, &p->temperature}, {"--top-k", cli_options_u32, &p->top_k},
    {"--top-p", cli_options_real, &p->top_p}, {"--min-p", cli_options_real, &p->min_p},
    {"--repetition-penalty", take_real32, &p->repetition_penalty}, {"--presence-penalty", take_real32, &p->presence_penalty},
    {"--frequency-penalty", take_real32, &p->frequency_penalty}, {"--logit-bias", take_bias, self},
    {"--allow-ids", take_allowed, self}, {"--choice", take_choice, self}, {"--regex", take_regex, self},
    {"--json-schema", take_schema, self}, {"--seed", cli_options_u64, &p->seed}, {"--stop", take_stop_text, self},
    {"--stop-id", take_stop_id, p}, {"--ignore-eos", NULL, &p->ignore_eos}, {"--logprobs", take_alternatives, &p->top_logprobs}};
  size_t at = 0;
  while (rows[at].name) at++;
  ASSERT(at + ARRAY_LEN(own) < row_count);
  memcpy(rows + at, own, sizeof own);
  cli_conditions_options(&self->conditions, &p->required_count, &p->deadline_seconds, rows, row_count);
}

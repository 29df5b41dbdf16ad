/* eval/import/inspect.c - see eval/import/inspect.h. Follows inspect_ai/log/_log.py. */
#include "eval/import/inspect.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/json_text.h"
#include "eval/import/judge.h"
#include "eval/items.h"

#define CHOICE_PATTERN "(*UCP)(?i)ANSWER\\s*:\\s*([A-Za-z])" /* as the solver multiple_choice asks for it */

typedef struct maker {
  eval_import_accept *accept;
  const json_t *log;
  const char *scorer;   /* the first one's name; NULL: none */
  json_t *config;       /* of the first sample's call of the model */
  eval_task task;
  eval_answer *judge;
  eval_import *out;
} maker;

static status no_memory(void) { return FAIL(ERR_LIMIT, "samples: no memory"); }

/* === Generation ============================================================================================================= */

/* The config of the sample's one call of a model. */
static status find_config(const json_t *sample, const json_t **out) {
  const json_t *events = json_object_get(sample, "events");
  uint32_t calls = 0;
  *out = NULL;
  for (size_t i = 0; i < json_array_size(events); i++) {
    const json_t *event = json_array_get(events, i);
    if (!json_text_is(json_object_get(event, "event"), "model")) continue;
    *out = json_object_get(event, "config");
    calls++;
  }
  if (calls == 1 && json_is_object(*out)) return OK;
  return FAIL(ERR_UNSUPPORTED, "%u calls of a model; hint: samples of one question and one answer can be imported", calls);
}

static status check_config(maker *self) {
  static const char *const known[] = {"max_tokens", "temperature", "top_p", "top_k", "seed", "stop_seqs"};
  static const char *const idle[] = {"max_retries", "timeout", "attempt_timeout", "max_connections", "adaptive_connections",
                                     "system_message",
                                     "cache", "num_choices"};
  static const struct { const char *key, *why; } needed[] = {
    {"max_tokens", "the log does not say how long an answer may be; hint: give inspect-ai --max-tokens, else 2048 are taken"},
    {"temperature", "the log does not say it, so the model's own was used; hint: give inspect-ai --temperature, else answers are greedy"}};
  const char *key;
  json_t *value;
  json_object_foreach(self->config, key, value) {
    bool is_known = json_is_null(value);
    for (size_t i = 0; i < ARRAY_LEN(known); i++) is_known |= strcmp(known[i], key) == 0;
    for (size_t i = 0; i < ARRAY_LEN(idle); i++) is_known |= strcmp(idle[i], key) == 0;
    if (!is_known) TRY(eval_import_cannot(self->accept, key, "this argument of generation is not known here; hint: leave it out"));
  }
  for (size_t i = 0; i < ARRAY_LEN(needed); i++)
    if (!json_is_number(json_object_get(self->config, needed[i].key)))
      TRY(eval_import_cannot(self->accept, needed[i].key, "%s", needed[i].why));
  return OK;
}

static status make_generation(maker *self, json_t **out) {
  static const char *const names[][2] = {{"temperature", "temperature"}, {"top_p", "top_p"}, {"top_k", "top_k"}, {"seed", "seed"},
                                         {"stop_seqs", "stop"}};
  const json_t *most = json_object_get(self->config, "max_tokens");
  TRY(check_config(self));
  json_t *made = json_pack("{s:I}", "max_tokens", json_is_integer(most) ? json_integer_value(most) : (json_int_t)2048);
  if (!made) return no_memory();
  for (size_t i = 0; i < ARRAY_LEN(names); i++) {
    json_t *value = json_object_get(self->config, names[i][0]);
    if (value && !json_is_null(value) && json_object_set(made, names[i][1], value) != 0) {
      json_decref(made);
      return no_memory();
    }
  }
  *out = made;
  return OK;
}

/* === Samples ================================================================================================================ */

/* A text, or a list of one part of text. */
static const json_t *text_in(const json_t *content) {
  const json_t *part = json_array_get(content, 0);
  if (json_is_string(content)) return content;
  bool is_text = json_array_size(content) == 1 && json_text_is(json_object_get(part, "type"), "text");
  return is_text && json_is_string(json_object_get(part, "text")) ? json_object_get(part, "text") : NULL;
}

static status put_prompt(const json_t *sample, json_t *item) {
  const json_t *messages = json_object_get(sample, "messages"), *first = json_array_get(messages, 0), *second = json_array_get(messages, 1);
  const json_t *text = text_in(json_object_get(first, "content"));
  bool is_single = json_array_size(messages) == 2 && json_text_is(json_object_get(first, "role"), "user") &&
                   json_text_is(json_object_get(second, "role"), "assistant") && !json_array_size(json_object_get(second, "tool_calls"));
  if (!is_single || !text)
    return FAIL(ERR_UNSUPPORTED, "messages: expected a user's text and an answer, found %zu messages or other content; hint: system "
                "messages, "
                                 "tools and longer conversations are not carried over", json_array_size(messages));
  return json_object_set(item, "prompt", (json_t *)(uintptr_t)text) == 0 ? OK : no_memory();
}

static status put_target(const json_t *sample, json_t *item) {
  json_t *target = json_object_get(sample, "target");
  bool is_good = json_is_string(target) || json_array_size(target) > 0;
  for (size_t i = 0; i < json_array_size(target); i++) is_good &= json_is_string(json_array_get(target, i));
  if (!is_good) return FAIL(ERR_FORMAT, "target: expected a text, or a list of texts");
  return json_object_set(item, "answer", target) == 0 ? OK : no_memory();
}

/* "C" and "I", or 1 and 0; -1: it is neither. */
static int read_score(const json_t *value) {
  if (json_text_is(value, "C") || (json_is_number(value) && json_number_value(value) == 1) || json_is_true(value)) return 1;
  bool is_wrong = json_text_is(value, "I") || (json_is_number(value) && json_number_value(value) == 0) || json_is_false(value);
  return is_wrong ? 0 : -1;
}

static status check_score(maker *self, const json_t *sample, const json_t *item) {
  const json_t *text = json_object_get(json_object_get(sample, "output"), "completion"), *scores = json_object_get(sample, "scores");
  const json_t *score = self->scorer ? json_object_get(scores, self->scorer) : NULL;
  int was_right = read_score(json_object_get(score, "value"));
  eval_answer_verdict verdict;
  if (!json_is_string(text)) return FAIL(ERR_FORMAT, "output: expected a completion");
  if (!score) return OK;
  TRY(eval_answer_judge(self->judge, json_string_value(text), json_string_length(text), json_object_get(item, "answer"), &verdict));
  json_decref(verdict.extracted);
  if (was_right >= 0 && verdict.is_correct == (was_right == 1)) return OK;
  return eval_import_cannot(self->accept, "scores", "the scorer %.40s gave another score than the new task; hint: write its rule into the "
                            "task "
                            "file afterwards, see EVALUATION.md, Answers", self->scorer);
}

static status add_sample(maker *self, const json_t *sample) {
  json_t *id = json_object_get(sample, "id"), *item = json_pack("{s:O}", "id", id);
  const json_t *config = NULL;
  status result = json_is_string(id) || json_is_integer(id) ? OK : FAIL(ERR_FORMAT, "id: expected a text or a whole number");
  if (result == OK && !item) result = no_memory();
  if (result == OK) result = put_prompt(sample, item);
  if (result == OK) result = put_target(sample, item);
  if (result == OK) result = find_config(sample, &config);
  if (result == OK && !json_equal(config, self->config))
    result = FAIL(ERR_UNSUPPORTED, "events: other arguments of generation than in the first sample; hint: import a log of one setting");
  if (result == OK) result = check_score(self, sample, item);
  if (result == OK) return eval_import_add_item(self->out, item);
  json_decref(item);
  return result;
}

/* === The task =============================================================================================================== */

static status start(maker *self) {
  const json_t *eval = json_object_get(self->log, "eval"), *samples = json_object_get(self->log, "samples"), *config = NULL;
  const char *name = json_string_value(json_object_get(eval, "task"));
  json_t *generation = NULL;
  if (!name || !*name || json_array_size(samples) == 0)
    return FAIL(ERR_FORMAT, "expected a log of inspect-ai with samples; hint: `inspect log dump FILE.eval` writes one as JSON");
  self->scorer = json_string_value(json_object_get(json_array_get(json_object_get(eval, "scorers"), 0), "name"));
  TRY(find_config(json_array_get(samples, 0), &config));
  self->config = json_incref((json_t *)(uintptr_t)config);
  TRY(make_generation(self, &generation));
  json_t *keys = json_pack("{s:s%, s:s, s:s, s:b, s:o}", "name", name, strlen(name) < 100 ? strlen(name) : (size_t)100, "kind", "generate",
                           "description", "samples logged by inspect-ai", "chat", 1, "generation", generation);
  bool is_choice = self->scorer && strcmp(self->scorer, "choice") == 0;
  if (keys && is_choice && json_object_set_new(keys, "extract", json_string(CHOICE_PATTERN)) != 0) return no_memory();
  if (!keys) return no_memory();
  status result = eval_import_judge_open(keys, &self->task, &self->judge);
  if (result == OK) return eval_import_add_task(self->out, name, keys);
  json_decref(keys);
  return result;
}

static status add_samples(maker *self) {
  const json_t *samples = json_object_get(self->log, "samples");
  for (size_t i = 0; i < json_array_size(samples); i++) {
    const json_t *sample = json_array_get(samples, i), *epoch = json_object_get(sample, "epoch");
    char name[32];
    if (json_is_integer(epoch) && json_integer_value(epoch) != 1) continue; /* the same question again */
    status result = add_sample(self, sample);
    snprintf(name, sizeof name, "sample %zu", i + 1);
    if (result != OK) fail_prefix(name);
    TRY(result);
  }
  return self->out->item_count ? OK : FAIL(ERR_FORMAT, "samples: expected one of the first epoch, found none");
}

status eval_import_inspect(const eval_import_files *files, eval_import_accept *accept, const char *path, eval_import *out) {
  maker self = {.accept = accept, .out = out};
  char *text = NULL;
  size_t bytes = 0;
  json_error_t error;
  TRY(files->read(files->context, path, true, &text, &bytes));
  json_t *log = json_text_load_file(text, bytes, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
  free(text);
  if (!log) return FAIL(json_text_fault(&error, ERR_FORMAT), "line %d: %.200s", error.line, error.text);
  self.log = log;
  status result = start(&self);
  if (result == OK) result = add_samples(&self);
  eval_task_close(&self.task);
  eval_answer_close(self.judge);
  json_decref(self.config);
  json_decref(log);
  return result;
}

/* eval/import/samples.c - see eval/import/samples.h. Follows save_results_samples of lm_eval/loggers/evaluation_tracker.py. */
#include "eval/import/samples.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/json_text.h"
#include "base/yaml.h"
#include "eval/answer.h"
#include "eval/import/judge.h"
#include "eval/import/literal.h"
#include "eval/items.h"
#include "eval/task.h"
#include "jsonl/json_line.h"

typedef struct maker {
  eval_import_accept *accept;
  eval_import_judge judge;
  bool has_task;               /* the judge is that of a YAML */
  eval_import_output output;
  json_t *generation, *seen;   /* of the first line; arguments by the record's number */
  eval_task *tasks;            /* [pipelines]: the judges, once the first line was seen */
  eval_answer **judges;
  size_t count;
  uint64_t lines;
  eval_import *out;
} maker;

static status no_memory(void) { return FAIL(ERR_LIMIT, "samples: no memory"); }

/* === Arguments ============================================================================================================== */

static const json_t *argument(const json_t *line, size_t request, size_t index) {
  char first[32], second[32];
  snprintf(first, sizeof first, "gen_args_%zu", request);
  snprintf(second, sizeof second, "arg_%zu", index);
  return json_object_get(json_object_get(json_object_get(line, "arguments"), first), second);
}

static status read_kind(const json_t *line, eval_import_output *out) {
  const json_t *first = argument(line, 0, 0), *second = argument(line, 0, 1);
  if (!json_is_string(first))
    return FAIL(ERR_UNSUPPORTED, "arguments: expected a prompt as text; hint: import a log of completions: chats are sent as messages");
  *out = json_is_object(second) ? EVAL_IMPORT_GENERATE : !second ? EVAL_IMPORT_ROLLING
         : json_object_size(json_object_get(line, "arguments")) == 1 ? EVAL_IMPORT_LIKELIHOOD : EVAL_IMPORT_CHOICE;
  return OK;
}

/* === Right answers ========================================================================================================== */

/* The log has str() of the right answer: of a list that text. */
static status put_gold(const json_t *line, json_t *item) {
  json_t *target = json_object_get(line, "target"), *list = NULL;
  const char *text = json_string_value(target);
  size_t bytes = json_string_length(target);
  if (!text) return FAIL(ERR_FORMAT, "target: expected a text");
  if (bytes >= 2 && text[0] == '[' && text[bytes - 1] == ']' && eval_import_literal_parse(text, bytes, &list) != OK) fail_clear();
  bool is_texts = json_array_size(list) > 0;
  for (size_t i = 0; i < json_array_size(list); i++) is_texts &= json_is_string(json_array_get(list, i));
  int failed = json_object_set(item, "answer", is_texts ? list : target);
  json_decref(list);
  return failed ? no_memory() : OK;
}

/* The number of a choice; or its text, which follows a delimiter that the log does not name. */
static status find_answer(const json_t *line, const json_t *choices, json_int_t *out) {
  const char *target = json_string_value(json_object_get(line, "target"));
  json_int_t by_text = -1, by_number = -1;
  if (!target) return FAIL(ERR_FORMAT, "target: expected a text");
  for (size_t i = json_array_size(choices); i-- > 0;) {
    const char *choice = json_string_value(json_array_get(choices, i));
    if (strcmp(choice, target) == 0 || strcmp(choice + strspn(choice, " "), target) == 0) by_text = (json_int_t)i;
  }
  if (*target && strlen(target) < 6 && strspn(target, "0123456789") == strlen(target)) by_number = strtol(target, NULL, 10);
  if (by_number >= (json_int_t)json_array_size(choices)) by_number = -1;
  if (by_text >= 0 && by_number >= 0 && by_text != by_number)
    return FAIL(ERR_UNSUPPORTED, "target: \"%.40s\" is the text of one choice and the number of another; hint: import the task's YAML",
                target);
  *out = by_text >= 0 ? by_text : by_number;
  return *out >= 0 ? OK : FAIL(ERR_UNSUPPORTED, "target: \"%.40s\" is no choice; hint: leave the line out", target);
}

/* === Recorded scores ======================================================================================================== */

static const json_t *response(const json_t *line, size_t request) {
  return json_array_get(json_array_get(json_object_get(line, "resps"), request), 0);
}

/* The numbers are texts in some versions of the log. */
static double likelihood(const json_t *response) {
  const json_t *value = json_array_get(response, 0);
  return json_is_string(value) ? strtod(json_string_value(value), NULL) : json_number_value(value);
}

static status check_choice(const json_t *line, size_t count, json_int_t answer) {
  const json_t *acc = json_object_get(line, "acc");
  size_t best = 0;
  if (!json_is_number(acc) || !json_is_array(response(line, 0))) return OK;
  for (size_t i = 1; i < count; i++)
    if (likelihood(response(line, i)) > likelihood(response(line, best))) best = i;
  bool is_right = best == (size_t)answer, was_right = json_number_value(acc) != 0;
  return is_right == was_right ? OK : FAIL(ERR_MISMATCH, "acc is recorded as %d, but choice %zu of the right one %d was the likeliest; "
                                           "hint: "
                                           "import the task's YAML", was_right, best, (int)answer);
}

static status check_answer(maker *self, const json_t *line, const json_t *item) {
  const json_t *text = response(line, 0), *score = json_object_get(line, "exact_match");
  const char *filter = json_string_value(json_object_get(line, "filter"));
  eval_answer_verdict verdict;
  if (!json_is_string(text) || !json_is_number(score)) return OK;
  for (size_t i = 0; i < self->count; i++) {
    const char *name = json_string_value(json_object_get(json_array_get(self->judge.pipelines, i), "name"));
    if (self->has_task && filter && strcmp(filter, name) != 0) continue;
    TRY(eval_answer_judge(self->judges[i], json_string_value(text), json_string_length(text), json_object_get(item, "answer"), &verdict));
    json_decref(verdict.extracted);
    if (verdict.is_correct == (json_number_value(score) != 0)) continue;
    return FAIL(ERR_MISMATCH, "exact_match is recorded as %g, the new task gives %d; hint: %s", json_number_value(score),
                verdict.is_correct,
                self->has_task ? "the task's YAML is not the one that was used" : "give the task's YAML with --task");
  }
  return OK;
}

/* === Items ================================================================================================================== */

static status fill_choice(const json_t *line, json_t *item) {
  size_t count = json_object_size(json_object_get(line, "arguments"));
  json_t *list = json_array();
  json_int_t answer = 0;
  if (json_object_set_new(item, "prompt", json_incref((json_t *)(uintptr_t)argument(line, 0, 0))) != 0 ||
      json_object_set_new(item, "choices", list) != 0) return no_memory();
  for (size_t i = 0; i < count; i++) {
    const json_t *context = argument(line, i, 0), *choice = argument(line, i, 1);
    if (!json_is_string(choice) || json_string_length(choice) == 0) return FAIL(ERR_FORMAT,
                                                                                "arguments: expected choices that are not empty");
    if (!json_equal(context, argument(line, 0, 0)))
      return FAIL(ERR_UNSUPPORTED, "arguments: several contexts; hint: a task of one context with several continuations can be imported");
    if (json_array_append(list, (json_t *)(uintptr_t)choice) != 0) return no_memory();
  }
  TRY(find_answer(line, list, &answer));
  TRY(check_choice(line, count, answer));
  return json_object_set_new(item, "answer", json_integer(answer)) == 0 ? OK : no_memory();
}

static status fill_generate(maker *self, const json_t *line, json_t *item) {
  if (!json_equal(argument(line, 0, 1), self->generation))
    return FAIL(ERR_UNSUPPORTED, "arguments: other generation arguments than in the first line; hint: import the lines with the same "
                                 "arguments alone");
  if (json_object_set(item, "prompt", (json_t *)(uintptr_t)argument(line, 0, 0)) != 0) return no_memory();
  TRY(put_gold(line, item));
  return check_answer(self, line, item);
}

static status fill_text(const json_t *line, eval_import_output output, json_t *item) {
  const json_t *first = argument(line, 0, 0), *second = argument(line, 0, 1);
  if (output == EVAL_IMPORT_ROLLING) return json_object_set(item, "text", (json_t *)(uintptr_t)first) == 0 ? OK : no_memory();
  if (!json_is_string(second)) return FAIL(ERR_FORMAT, "arguments: expected a continuation");
  bool failed = json_object_set(item, "context", (json_t *)(uintptr_t)first) != 0 ||
                json_object_set(item, "continuation", (json_t *)(uintptr_t)second) != 0;
  return failed ? no_memory() : OK;
}

static status fill_item(maker *self, const json_t *line, json_t *item) {
  eval_import_output output;
  TRY(read_kind(line, &output));
  if (output != self->output) return FAIL(ERR_FORMAT, "arguments: of another kind than in the first line");
  if (output == EVAL_IMPORT_CHOICE) return fill_choice(line, item);
  return output == EVAL_IMPORT_GENERATE ? fill_generate(self, line, item) : fill_text(line, output, item);
}

/* A record has a line for each filter: the first makes the item. */
static status add_line(maker *self, const json_t *line) {
  char number[32];
  const json_t *id = json_object_get(line, "doc_id"), *arguments = json_object_get(line, "arguments");
  if (!json_is_integer(id) || !json_is_object(arguments))
    return FAIL(ERR_FORMAT, "expected doc_id and arguments; hint: give a samples_*.jsonl that the harness wrote with --log_samples");
  snprintf(number, sizeof number, "%" JSON_INTEGER_FORMAT, json_integer_value(id));
  const json_t *before = json_object_get(self->seen, number);
  json_t *item = json_pack("{s:I}", "id", json_integer_value(id));
  status result = item ? fill_item(self, line, item) : no_memory();
  if (result == OK && before && !json_equal(before, arguments))
    result = FAIL(ERR_FORMAT, "doc_id %s occurs twice, with other arguments", number);
  if (result != OK || before) {
    json_decref(item);
    return result;
  }
  if (json_object_set(self->seen, number, (json_t *)(uintptr_t)arguments) != 0) result = no_memory();
  status added = eval_import_add_item(self->out, item);
  return result == OK ? added : result;
}

/* === Tasks ================================================================================================================== */

static status plain_judge(maker *self) {
  bool generates = self->output == EVAL_IMPORT_GENERATE;
  json_t *keys = generates ? json_pack("{s:[]}", "normalize") : json_object();
  json_t *pipelines = json_pack("[{s:s, s:o}]", "name", "none", "keys", keys);
  self->judge = (eval_import_judge){.output = self->output, .keys = json_object(), .pipelines = pipelines};
  if (!self->judge.keys || !self->judge.pipelines) return no_memory();
  if (self->output != EVAL_IMPORT_CHOICE) return OK;
  return json_object_set_new(self->judge.keys, "norm", json_string("characters")) == 0 ? OK : no_memory();
}

static status add_task(maker *self, size_t index, const char *name) {
  static const char *const kinds[] = {"generate", "choice", NULL, "perplexity"};
  const json_t *pipeline = json_array_get(self->judge.pipelines, index);
  char full[EVAL_TASK_NAME_BYTES_MAX + 1], from[2 * EVAL_TASK_NAME_BYTES_MAX];
  const char *filter = json_string_value(json_object_get(pipeline, "name"));
  int bytes = snprintf(full, sizeof full, "%s%s%s", name, self->count > 1 ? "-" : "", self->count > 1 ? filter : "");
  if (bytes >= (int)sizeof full) return FAIL(ERR_LIMIT, "task: the name has more than %u bytes", EVAL_TASK_NAME_BYTES_MAX);
  snprintf(from, sizeof from, "samples of %s, logged by lm-evaluation-harness", name);
  json_t *keys = json_pack("{s:s, s:s, s:s}", "name", full, "kind", kinds[self->output], "description", from);
  if (!keys || json_object_update(keys, self->judge.keys) != 0 || json_object_update(keys, json_object_get(pipeline, "keys")) != 0) {
    json_decref(keys);
    return no_memory();
  }
  status result = eval_import_judge_open(keys, &self->tasks[index], &self->judges[index]);
  if (result == OK) return eval_import_add_task(self->out, full, keys);
  json_decref(keys);
  return result;
}

/* The first line says what kind of task it is, and how texts are generated. */
static status start(maker *self, const json_t *line, const char *name) {
  TRY(read_kind(line, &self->output));
  if (!self->has_task) TRY(plain_judge(self));
  else if (self->judge.output != self->output) return FAIL(ERR_FORMAT, "output_type: the log is of another kind of task");
  self->count = json_array_size(self->judge.pipelines);
  self->tasks = calloc(self->count, sizeof *self->tasks);
  self->judges = calloc(self->count, sizeof *self->judges);
  self->out->name = strdup(name);
  self->out->tasks = json_array();
  self->seen = json_object();
  if (!self->tasks || !self->judges || !self->out->name || !self->out->tasks || !self->seen) return no_memory();
  if (self->output == EVAL_IMPORT_LIKELIHOOD) return OK;
  if (self->output == EVAL_IMPORT_GENERATE) {
    json_t *generation = NULL;
    self->generation = json_incref((json_t *)(uintptr_t)argument(line, 0, 1));
    TRY(eval_import_judge_generation(self->accept, self->generation, &generation));
    if (json_object_set_new(self->judge.keys, "generation", generation) != 0) return no_memory();
  }
  for (size_t i = 0; i < self->count; i++) TRY(add_task(self, i, name));
  return OK;
}

static status read_lines(maker *self, const char *text, size_t bytes, const char *name) {
  uint32_t number = 0;
  for (size_t at = 0; at < bytes;) {
    const char *begin = text + at, *end = memchr(begin, '\n', bytes - at);
    size_t length = end ? (size_t)(end - begin) : bytes - at;
    json_t *line = NULL;
    char where[32];
    at += length + 1;
    number++;
    if (length == 0) continue;
    TRY(json_line_parse(begin, length, number, &line));
    status result = self->lines++ == 0 ? start(self, line, name) : OK;
    if (result == OK) result = add_line(self, line);
    json_decref(line);
    snprintf(where, sizeof where, "line %u", number);
    if (result != OK) fail_prefix(where);
    TRY(result);
  }
  return self->lines ? OK : FAIL(ERR_FORMAT, "it has no lines; hint: give a samples_*.jsonl that the harness wrote with --log_samples");
}

/* "samples_gsm8k_2026-01-31T10-00-00.000000.jsonl" is of gsm8k. */
static void task_name(const char *path, char out[EVAL_TASK_NAME_BYTES_MAX + 1]) {
  const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
  if (strncmp(name, "samples_", 8) == 0) name += 8;
  snprintf(out, EVAL_TASK_NAME_BYTES_MAX + 1, "%.100s", name);
  char *dot = strrchr(out, '.'), *time = strrchr(out, '_');
  if (dot && strcmp(dot, ".jsonl") == 0) *dot = 0;
  if (time && time > out && time[1] >= '0' && time[1] <= '9' && strchr(time, 'T')) *time = 0;
  if (!*out) snprintf(out, EVAL_TASK_NAME_BYTES_MAX + 1, "samples");
}

status eval_import_samples(const eval_import_files *files, eval_import_accept *accept, const char *path, const char *task,
                           eval_import *out) {
  maker self = {.accept = accept, .has_task = task != NULL, .out = out};
  char name[EVAL_TASK_NAME_BYTES_MAX + 1], *text = NULL;
  size_t bytes = 0;
  json_t *config = NULL;
  status result = task ? eval_import_harness_read(files, accept, task, true, &config) : OK;
  if (config && result == OK) result = eval_import_judge_make(accept, config, &self.judge);
  task_name(path, name);
  if (config) snprintf(name, sizeof name, "%.100s", json_string_value(json_object_get(config, "task")));
  if (result == OK) result = files->read(files->context, path, true, &text, &bytes);
  if (result == OK) result = read_lines(&self, text, bytes, name);
  for (size_t i = 0; self.tasks && i < self.count; i++) eval_task_close(&self.tasks[i]);
  for (size_t i = 0; self.judges && i < self.count; i++) eval_answer_close(self.judges[i]);
  free(self.tasks);
  free(self.judges);
  free(text);
  json_decref(self.generation);
  json_decref(self.seen);
  json_decref(config);
  eval_import_judge_close(&self.judge);
  return result;
}

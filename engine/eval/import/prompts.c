/* eval/import/prompts.c - see eval/import/prompts.h. Follows fewshot_context, build_qa_turn and construct_requests of
 * lm_eval/api/task.py. */
#include "eval/import/prompts.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/yaml.h"
#include "eval/import/docs.h"
#include "eval/import/fields.h"
#include "eval/import/judge.h"
#include "eval/import/shots.h"
#include "eval/items.h"
#include "jinja/text.h"

typedef struct record_form { /* how a record is shown */
  eval_import_field text, choice, target;
  json_t *choices; /* the values of a dict of choices; NULL: they are given otherwise */
  const char *target_delimiter, *shot_delimiter;
} record_form;

typedef struct maker {
  const eval_import_files *files;
  eval_import_accept *accept;
  const eval_import_options *options;
  json_t *config, *docs, *pool; /* pool: NULL without examples */
  eval_import_judge judge;
  eval_task task, cased_task;   /* of the first filter; and one that finds letters that have a case beyond ASCII */
  eval_answer *answer, *cased;
  record_form own, shown;              /* of the item, of examples */
  eval_import_field description;
  eval_import_random random;
  uint32_t shot_count;
  bool takes_first, leaves_out; /* examples: the first of the pool, not drawn; never the item itself */
  bool is_multiple;             /* the first record has a list of right answers */
  eval_import *out;
} maker;

static status no_memory(void) { return FAIL(ERR_LIMIT, "items: no memory"); }

static status text_of(const maker *self, const char *key, const char *otherwise, const char **out) {
  return eval_import_harness_text(self->config, key, otherwise, out);
}

/* === Data =================================================================================================================== */

static status add_file(maker *self, const char *path, json_t *list) {
  char *text = NULL;
  size_t bytes = 0;
  json_t *read = NULL;
  if (strstr(path, "://") || strpbrk(path, "*?"))
    return FAIL(ERR_UNSUPPORTED, "data_files: %.200s: expected a local file; hint: fetch it and give it with --data", path);
  TRY(self->files->read(self->files->context, path, true, &text, &bytes));
  status result = eval_import_docs_parse(self->accept, text, bytes, &read);
  if (result != OK) fail_prefix(path);
  if (result == OK && json_array_extend(list, read) != 0) result = no_memory();
  json_decref(read);
  free(text);
  return result;
}

/* The files of a split: a text, or a list of texts. */
static status add_files(maker *self, const json_t *files, json_t *list) {
  size_t count = json_is_array(files) ? json_array_size(files) : 1;
  for (size_t i = 0; i < count; i++) {
    const char *path = json_string_value(json_is_array(files) ? json_array_get(files, i) : files);
    if (!path || !*path) return FAIL(ERR_FORMAT, "dataset_kwargs: data_files: expected names of files");
    TRY(add_file(self, path, list));
  }
  return eval_import_docs_complete(self->accept, list);
}

static status missing_data(const maker *self, const char *split, const char *option) {
  const char *path, *name;
  TRY(text_of(self, "dataset_path", "?", &path));
  TRY(text_of(self, "dataset_name", "", &name));
  return FAIL(ERR_USAGE, "%s: its records are not in a local file; hint: python3 -c \"import datasets; "
                         "datasets.load_dataset('%.100s'%s%.60s%s)['%.40s'].to_json('%.40s.jsonl')\", then %s %.40s.jsonl",
              path, path, *name ? ", '" : "", name, *name ? "'" : "", split, split, option, split);
}

/* split: NULL means there is none. given: the user's file. *out: the records. */
static status read_split(maker *self, const char *split, const char *given, const char *option, json_t **out) {
  const json_t *kwargs = json_object_get(self->config, "dataset_kwargs"), *files = json_object_get(kwargs, "data_files");
  const char *path;
  TRY(text_of(self, "dataset_path", "", &path));
  json_t *list = json_array(), *one = given ? json_string(given) : NULL;
  if (!given && !split) {
    json_decref(list);
    return FAIL(ERR_FORMAT, "test_split, validation_split: expected the name of a split; hint: add test_split: test");
  }
  const json_t *found = one;
  if (!given && strcmp(path, "json") == 0) /* files without splits are "train" */
    found = json_is_object(files) ? json_object_get(files, split) : strcmp(split, "train") == 0 ? files : NULL;
  status result = !list ? no_memory() : found ? add_files(self, found, list) : missing_data(self, split, option);
  json_decref(one);
  if (result == OK) *out = list;
  else json_decref(list);
  return result;
}

/* === Opening ================================================================================================================ */

/* A key of fewshot_config, or else of the task. */
static json_t *shot_key(const maker *self, const char *key) {
  json_t *own = json_object_get(json_object_get(self->config, "fewshot_config"), key);
  return own && !json_is_null(own) ? own : json_object_get(self->config, key);
}

static status open_form(const maker *self, bool is_shown, const char *const names[3], const json_t *record, record_form *out) {
  json_t *given[3];
  for (size_t i = 0; i < 3; i++) given[i] = is_shown ? shot_key(self, names[i]) : json_object_get(self->config, names[i]);
  const char *key;
  json_t *value;
  if (json_is_object(given[1]) && !json_object_get(given[1], YAML_FUNCTION)) {
    if (!(out->choices = json_array())) return no_memory();
    json_object_foreach(given[1], key, value)
      if (json_array_append(out->choices, value) != 0) return no_memory();
    given[1] = out->choices;
  }
  TRY(eval_import_fields_open(&out->text, names[0], given[0], record));
  TRY(eval_import_fields_open(&out->choice, names[1], given[1], record));
  TRY(eval_import_fields_open(&out->target, names[2], given[2], record));
  const json_t *config = json_object_get(self->config, "fewshot_config");
  TRY(text_of(self, "target_delimiter", " ", &out->target_delimiter));
  TRY(text_of(self, "fewshot_delimiter", "\n\n", &out->shot_delimiter));
  if (!is_shown || !config) return OK;
  TRY(eval_import_harness_text(config, "target_delimiter", out->target_delimiter, &out->target_delimiter));
  return eval_import_harness_text(config, "fewshot_delimiter", out->shot_delimiter, &out->shot_delimiter);
}

static status check_shot_config(maker *self) {
  static const char *const known[] = {"sampler", "split", "samples", "doc_to_text", "doc_to_choice", "doc_to_target", "fewshot_delimiter",
                                      "target_delimiter", "fewshot_indices"}; /* the harness does not look at fewshot_indices */
  const json_t *config = json_object_get(self->config, "fewshot_config");
  const char *key, *sampler;
  json_t *value;
  if (config && !json_is_object(config)) return FAIL(ERR_FORMAT, "fewshot_config: expected keys and values");
  json_object_foreach((json_t *)(uintptr_t)config, key, value) {
    bool is_known = json_is_null(value);
    for (size_t i = 0; i < ARRAY_LEN(known); i++) is_known |= strcmp(known[i], key) == 0;
    if (!is_known) return FAIL(ERR_UNSUPPORTED, "fewshot_config: \"%.64s\" is not carried over; hint: remove it", key);
  }
  TRY(eval_import_harness_text(config, "sampler", "default", &sampler));
  self->takes_first = strcmp(sampler, "first_n") == 0;
  if (!self->takes_first && strcmp(sampler, "default") != 0)
    return FAIL(ERR_UNSUPPORTED, "fewshot_config: sampler: \"%.64s\" is not known here; hint: default and first_n are", sampler);
  return OK;
}

/* The pool of examples: a split of its own, a list in the task, or the first of training, validation and test. */
static status read_pool(maker *self, const char *test, const char *evaluated) {
  const char *split, *training, *validation;
  const json_t *config = json_object_get(self->config, "fewshot_config"), *samples = json_object_get(config, "samples");
  TRY(text_of(self, "fewshot_split", NULL, &split));
  TRY(eval_import_harness_text(config, "split", split, &split));
  TRY(text_of(self, "training_split", NULL, &training));
  TRY(text_of(self, "validation_split", NULL, &validation));
  self->leaves_out = split && test ? strcmp(split, test) == 0 : !split && !test;
  if (!split && json_is_array(samples)) {
    self->pool = json_deep_copy(samples);
    return self->pool ? eval_import_docs_complete(self->accept, self->pool) : no_memory();
  }
  if (!split && samples) return FAIL(ERR_UNSUPPORTED, "fewshot_config: samples: expected a list; hint: write the examples as one");
  if (!split) split = training ? training : validation ? validation : test;
  bool is_same = split && evaluated && strcmp(split, evaluated) == 0 && !self->options->shots;
  if (is_same) self->pool = json_incref(self->docs);
  return is_same ? OK : read_split(self, split, self->options->shots, "--fewshot", &self->pool);
}

static status read_shot_count(maker *self) {
  const json_t *own = json_object_get(self->config, "num_fewshot");
  json_int_t count = json_integer_value(own);
  if (own && !json_is_integer(own)) return FAIL(ERR_FORMAT, "num_fewshot: expected a whole number");
  if (self->options->shot_count >= 0) {
    if (own && count == 0 && self->options->shot_count > 0)
      return FAIL(ERR_UNSUPPORTED, "num_fewshot: the task says 0, which the harness keeps; hint: remove it, or the option --num-fewshot");
    count = self->options->shot_count;
  }
  if (count < 0 || count > EVAL_TASK_SHOTS_MAX) return FAIL(ERR_LIMIT, "num_fewshot: expected 0 to %u", EVAL_TASK_SHOTS_MAX);
  self->shot_count = (uint32_t)count;
  return OK;
}

static status open_judges(maker *self) {
  const json_t *keys = json_object_get(json_array_get(self->judge.pipelines, 0), "keys");
  json_t *task = json_pack("{s:s, s:s}", "name", "task", "kind", "generate");
  json_t *cased = json_pack("{s:s, s:s, s:s}", "name", "task", "kind", "generate", "extract", "(?![\\x00-\\x7f])\\p{L&}");
  status result = task && cased && json_object_update(task, (json_t *)(uintptr_t)keys) == 0 ? OK : no_memory();
  if (result == OK) result = eval_import_judge_open(task, &self->task, &self->answer);
  if (result == OK) result = eval_import_judge_open(cased, &self->cased_task, &self->cased);
  json_decref(task);
  json_decref(cased);
  return result;
}

static status open_all(maker *self) {
  static const char *const names[3] = {"doc_to_text", "doc_to_choice", "doc_to_target"};
  const char *test, *validation;
  TRY(text_of(self, "test_split", NULL, &test));
  TRY(text_of(self, "validation_split", NULL, &validation));
  const char *evaluated = test ? test : validation;
  TRY(read_shot_count(self));
  TRY(check_shot_config(self));
  TRY(eval_import_judge_make(self->accept, self->config, &self->judge));
  if (self->judge.output == EVAL_IMPORT_GENERATE) TRY(open_judges(self));
  TRY(read_split(self, evaluated, self->options->data, "--data", &self->docs));
  const json_t *record = json_array_get(self->docs, 0);
  TRY(open_form(self, false, names, record, &self->own));
  TRY(eval_import_fields_open(&self->description, "description", json_object_get(self->config, "description"), record));
  if (self->judge.output == EVAL_IMPORT_CHOICE && !self->own.choice.given) return FAIL(ERR_FORMAT,
                                                                                       "doc_to_choice: expected choices, found none");
  if (self->shot_count == 0) return OK;
  TRY(read_pool(self, test, evaluated));
  eval_import_shots_seed(&self->random, self->options->seed);
  return open_form(self, true, names, record, &self->shown);
}

/* === Prompts ================================================================================================================ */

static void add_text(strbuf *to, const json_t *text) { strbuf_add(to, json_string_value(text), json_string_length(text)); }

/* The text that an answer shows: a choice by its number, the first of a list, or the text itself. */
static status shown_answer(const record_form *f, eval_import_record *record, const json_t *target, json_t **out) {
  json_t *choices = NULL;
  const json_t *text = target;
  if (f->choice.given && (json_is_integer(target) || json_is_boolean(target))) {
    TRY(eval_import_fields_choices(&f->choice, record, &choices));
    json_int_t index = json_is_integer(target) ? json_integer_value(target) : json_is_true(target);
    text = index < 0 ? NULL : json_array_get(choices, (size_t)index);
  } else if (json_is_array(target)) text = json_array_get(target, 0);
  status result = json_is_string(text) ? OK : FAIL(ERR_FORMAT, "doc_to_target: expected a text to show, or the number of a choice");
  if (result == OK) *out = json_incref((json_t *)(uintptr_t)text);
  json_decref(choices);
  return result;
}

/* A question without a right answer is shown without one, and without what would separate them. */
static status add_shot(const record_form *f, eval_import_record *record, strbuf *to) {
  json_t *text = NULL, *target = NULL, *answer = NULL;
  status result = eval_import_fields_text(&f->text, record, &text);
  if (result == OK) result = eval_import_fields_target(&f->target, record, f->choice.given != NULL, &target);
  bool has_answer = target && !json_is_null(target) && !(json_is_string(target) && json_string_length(target) == 0);
  if (result == OK && has_answer) result = shown_answer(f, record, target, &answer);
  if (result == OK) add_text(to, text);
  if (answer) {
    strbuf_adds(to, f->target_delimiter);
    add_text(to, answer);
    strbuf_adds(to, f->shot_delimiter);
  }
  json_decref(text);
  json_decref(target);
  json_decref(answer);
  return result;
}

/* Numbers of the examples, in the order of the harness's draws. left_out: NULL, or the item, which may be in the pool several times. */
static status choose_shots(maker *self, const json_t *left_out, uint32_t *chosen, uint32_t *count) {
  uint32_t size = (uint32_t)json_array_size(self->pool), wanted = self->shot_count, kept = 0, drawn = wanted + (left_out != NULL);
  if (self->takes_first) {
    for (uint32_t i = 0; i < size && kept < wanted; i++)
      if (!left_out || !json_equal(json_array_get(self->pool, i), left_out)) chosen[kept++] = i;
    *count = kept;
    return OK;
  }
  *count = 0;
  if (drawn > size) return OK;
  TRY(eval_import_shots_draw(&self->random, size, drawn, chosen));
  for (uint32_t i = 0; i < drawn && kept < wanted; i++)
    if (!left_out || !json_equal(json_array_get(self->pool, chosen[i]), left_out)) chosen[kept++] = chosen[i];
  *count = kept;
  if (kept == wanted) return OK;
  uint32_t *others = calloc((size_t)size + 1, sizeof *others), left = 0; /* several copies of the item were drawn: once more without them */
  if (!others) return no_memory();
  for (uint32_t i = 0; i < size; i++)
    if (!json_equal(json_array_get(self->pool, i), left_out)) others[left++] = i;
  status result = left < wanted ? OK : eval_import_shots_draw(&self->random, left, wanted, chosen);
  for (uint32_t i = 0; i < wanted && left >= wanted; i++) chosen[i] = others[chosen[i]];
  *count = left < wanted ? left : wanted;
  free(others);
  return result;
}

static status add_shots(maker *self, const json_t *doc, strbuf *to) {
  uint32_t count = 0, *chosen = calloc(self->shot_count + 2u, sizeof *chosen);
  status result = chosen ? choose_shots(self, self->leaves_out ? doc : NULL, chosen, &count) : no_memory();
  if (result == OK && count < self->shot_count)
    result = FAIL(ERR_FORMAT, "num_fewshot: %u examples are wanted, the pool has %zu records", self->shot_count,
                  json_array_size(self->pool));
  for (uint32_t i = 0; i < count && result == OK; i++) {
    eval_import_record record = {0};
    result = eval_import_fields_record(json_array_get(self->pool, chosen[i]), &record);
    if (result == OK) result = add_shot(&self->shown, &record, to);
    eval_import_fields_record_close(&record);
    if (result != OK) fail_prefix("examples");
  }
  free(chosen);
  return result;
}

static status make_prompt(maker *self, eval_import_record *record, json_t **out) {
  strbuf prompt = {0};
  json_t *description = NULL, *text = NULL;
  status result = self->description.given ? eval_import_fields_text(&self->description, record, &description) : OK;
  if (description) add_text(&prompt, description);
  if (result == OK && self->shot_count > 0) result = add_shots(self, record->object, &prompt);
  if (result == OK) result = eval_import_fields_text(&self->own.text, record, &text);
  bool is_number = result == OK && self->own.choice.given && self->own.text.template && json_string_length(text) > 0 &&
                   strspn(json_string_value(text), "0123456789") == json_string_length(text);
  if (is_number)
    result = FAIL(ERR_UNSUPPORTED, "doc_to_text: a number, which selects one of several contexts; hint: write the task with one context "
                  "and "
                                   "several continuations");
  if (result == OK) add_text(&prompt, text);
  if (result == OK && (prompt.failed || !(*out = json_stringn(prompt.bytes ? prompt.bytes : "", prompt.count)))) result = no_memory();
  json_decref(description);
  json_decref(text);
  strbuf_close(&prompt);
  return result;
}

/* === Items ================================================================================================================== */

/* Letters whose case this program does not ignore. */
static status has_case(const maker *self, const char *text, size_t bytes, bool *out) {
  json_t *any = json_string("");
  eval_answer_verdict verdict;
  if (!any) return no_memory();
  status result = eval_answer_judge(self->cased, text, bytes, any, &verdict);
  json_decref(any);
  TRY(result);
  *out = json_is_string(verdict.extracted);
  json_decref(verdict.extracted);
  return OK;
}

/* What the harness compares and this program cannot compare in the same way. A filter that finds nothing gives "[invalid]" there. */
static status check_gold(maker *self, const json_t *gold) {
  char *form = NULL;
  size_t bytes = 0;
  bool is_cased = false;
  status result = eval_answer_form(self->answer, json_string_value(gold), json_string_length(gold), &form, &bytes);
  if (result == ERR_MISMATCH) return OK;
  TRY(result);
  bool is_fallback = bytes == 0 || (bytes == 9 && memcmp(form, "[invalid]", 9) == 0) || (bytes == 7 && memcmp(form, "invalid", 7) == 0);
  if (self->judge.ignores_case) result = has_case(self, form, bytes, &is_cased);
  if (result == OK && self->judge.extracts && is_fallback)
    result = eval_import_cannot(self->accept, "fallback", "the right answer \"%.40s\" may equal what a filter gives if it finds nothing, "
                                "which "
                                "is no answer here; hint: leave the record out", json_string_value(gold));
  if (result == OK && is_cased)
    result = eval_import_cannot(self->accept, "ignore_case", "the right answer \"%.40s\" has letters beyond ASCII, whose case is not "
                                "ignored "
                                "here; hint: remove ignore_case", json_string_value(gold));
  free(form);
  return result;
}

/* One text, or a list of texts any one of which is right. */
static status make_gold(maker *self, eval_import_record *record, json_t *target, json_t **out) {
  status result = OK;
  if (self->own.choice.given) return shown_answer(&self->own, record, target, out);
  if (!self->is_multiple) {
    if (json_is_string(target)) *out = json_incref(target);
    else if (json_is_array(target) || json_is_object(target))
      result = FAIL(ERR_FORMAT, "doc_to_target: expected a text, as for the first record");
    else result = eval_import_fields_print(target, out);
  } else if (json_is_array(target)) *out = json_incref(target);
  else if (!(*out = json_pack("[O]", target))) result = no_memory();
  for (size_t i = 0; result == OK && i < json_array_size(*out); i++)
    if (!json_is_string(json_array_get(*out, i))) result = FAIL(ERR_FORMAT, "doc_to_target: expected a list of texts");
  if (result == OK && json_is_array(*out) && json_array_size(*out) == 0) result = FAIL(ERR_FORMAT, "doc_to_target: an empty list");
  return result;
}

static status put_gold(maker *self, eval_import_record *record, json_t *target, json_t *item) {
  json_t *gold = NULL;
  TRY(make_gold(self, record, target, &gold));
  status result = OK;
  for (size_t i = 0; i < (json_is_array(gold) ? json_array_size(gold) : 1) && result == OK; i++)
    result = check_gold(self, json_is_array(gold) ? json_array_get(gold, i) : gold);
  if (result == OK && json_object_set(item, "answer", gold) != 0) result = no_memory();
  json_decref(gold);
  return result;
}

/* Whether the harness would divide by another length than this program, which leaves blanks at the front out. */
static status check_choice(maker *self, const json_t *choice) {
  const jinja_text text = {json_string_value(choice), json_string_length(choice)};
  const char *delimiter = self->own.target_delimiter;
  const jinja_text between = {delimiter, strlen(delimiter)};
  bool is_blank = jinja_text_strip(between, NULL, true, false).count == 0;
  if (!self->judge.has_acc_norm || (is_blank && jinja_text_strip(text, NULL, true, false).count == text.count)) return OK;
  return eval_import_cannot(self->accept, "acc_norm", "a choice begins with blanks, or target_delimiter is no blank, so that lengths of "
                            "choices "
                            "differ; hint: remove acc_norm from metric_list");
}

static status put_choices(maker *self, eval_import_record *record, const json_t *target, json_t *item) {
  json_t *choices = NULL, *list = json_array(), *answer = NULL;
  status result = list ? eval_import_fields_choices(&self->own.choice, record, &choices) : no_memory();
  for (size_t i = 0; i < json_array_size(choices) && result == OK; i++) {
    strbuf text = {0};
    const json_t *choice = json_array_get(choices, i);
    result = json_is_string(choice) ? check_choice(self, choice) : FAIL(ERR_FORMAT, "doc_to_choice: expected texts");
    strbuf_adds(&text, self->own.target_delimiter);
    add_text(&text, choice);
    if (result == OK && (text.failed || json_array_append_new(list, json_stringn(text.bytes, text.count)) != 0)) result = no_memory();
    if (json_is_string(target) && !answer && json_equal(choice, target)) answer = json_integer((json_int_t)i);
    strbuf_close(&text);
  }
  if (json_is_integer(target)) answer = json_integer(json_integer_value(target));
  if (json_is_boolean(target)) answer = json_integer(json_is_true(target));
  if (result == OK && !(answer && json_integer_value(answer) >= 0 && (size_t)json_integer_value(answer) < json_array_size(list)))
    result = FAIL(ERR_UNSUPPORTED, "doc_to_target: expected the number or the text of one of the choices; hint: leave the record out");
  if (result == OK && json_array_size(list) < 2) result = FAIL(ERR_UNSUPPORTED, "doc_to_choice: expected 2 choices or more");
  if (result == OK && (json_object_set(item, "choices", list) != 0 || json_object_set(item, "answer", answer) != 0)) result = no_memory();
  json_decref(answer);
  json_decref(choices);
  json_decref(list);
  return result;
}

static status put_target(json_t *item, const char *key, const json_t *target) {
  if (!json_is_string(target)) return FAIL(ERR_FORMAT, "doc_to_target: expected a text");
  return json_object_set(item, key, (json_t *)(uintptr_t)target) == 0 ? OK : no_memory();
}

static status fill_item(maker *self, eval_import_record *record, size_t index, json_t *item) {
  static const char *const names[] = {"prompt", "prompt", "context", "text"};
  json_t *target = NULL, *prompt = NULL;
  const eval_import_output output = self->judge.output;
  TRY(eval_import_fields_target(&self->own.target, record, self->own.choice.given != NULL, &target));
  if (index == 0) self->is_multiple = json_is_array(target);
  status result = output == EVAL_IMPORT_ROLLING ? OK : make_prompt(self, record, &prompt);
  if (result == OK && prompt && json_object_set(item, names[output], prompt) != 0) result = no_memory();
  if (result != OK) {
    json_decref(target);
    json_decref(prompt);
    return result;
  }
  if (output == EVAL_IMPORT_GENERATE) result = put_gold(self, record, target, item);
  else if (output == EVAL_IMPORT_CHOICE) result = put_choices(self, record, target, item);
  else result = put_target(item, output == EVAL_IMPORT_LIKELIHOOD ? "continuation" : "text", target);
  json_decref(prompt);
  json_decref(target);
  return result;
}

static status make_items(maker *self) {
  size_t count = json_array_size(self->docs);
  if (count > EVAL_ITEMS_MAX) return FAIL(ERR_LIMIT, "more than %u records", EVAL_ITEMS_MAX);
  for (size_t i = 0; i < count; i++) {
    eval_import_record record = {0};
    char name[32];
    json_t *item = json_pack("{s:I}", "id", (json_int_t)i);
    TRY(eval_import_fields_record(json_array_get(self->docs, i), &record));
    status result = item ? fill_item(self, &record, i, item) : no_memory();
    eval_import_fields_record_close(&record);
    if (result != OK) {
      snprintf(name, sizeof name, "record %zu", i + 1);
      fail_prefix(name);
      json_decref(item);
      return result;
    }
    TRY(eval_import_add_item(self->out, item));
  }
  return OK;
}

/* === Task files ============================================================================================================= */

static status add_task(maker *self, const char *task, const json_t *pipeline, bool is_named) {
  static const char *const kinds[] = {"generate", "choice", NULL, "perplexity"};
  const char *filter = json_string_value(json_object_get(pipeline, "name"));
  char name[EVAL_TASK_NAME_BYTES_MAX + 1], from[2 * EVAL_TASK_NAME_BYTES_MAX];
  int bytes = snprintf(name, sizeof name, "%s%s%s", task, is_named ? "-" : "", is_named ? filter : "");
  if (bytes >= (int)sizeof name) return FAIL(ERR_LIMIT, "task: the name has more than %u bytes", EVAL_TASK_NAME_BYTES_MAX);
  snprintf(from, sizeof from, "%s of lm-evaluation-harness, %u examples", task, self->shot_count);
  json_t *keys = json_pack("{s:s, s:s, s:s}", "name", name, "kind", kinds[self->judge.output], "description", from);
  if (!keys || json_object_update(keys, self->judge.keys) != 0 || json_object_update(keys, json_object_get(pipeline, "keys")) != 0) {
    json_decref(keys);
    return no_memory();
  }
  return eval_import_add_task(self->out, name, keys);
}

/* A task file for each filter, all of the same items. */
static status make_tasks(maker *self) {
  const json_t *pipelines = self->judge.pipelines;
  const char *task;
  TRY(text_of(self, "task", "", &task));
  self->out->name = strdup(task);
  self->out->tasks = json_array();
  if (!self->out->name || !self->out->tasks) return no_memory();
  for (char *c = self->out->name; *c; c++)
    if (*c == '/' || (unsigned char)*c < 0x20) *c = '_';
  if (self->judge.output == EVAL_IMPORT_LIKELIHOOD) return OK;
  for (size_t i = 0; i < json_array_size(pipelines); i++)
    TRY(add_task(self, task, json_array_get(pipelines, i), json_array_size(pipelines) > 1));
  return OK;
}

static void close_form(record_form *f) {
  eval_import_fields_close(&f->text);
  eval_import_fields_close(&f->choice);
  eval_import_fields_close(&f->target);
  json_decref(f->choices);
}

status eval_import_prompts(const eval_import_files *files, eval_import_accept *accept, const char *path, const eval_import_options *options,
                           eval_import *out) {
  maker self = {.files = files, .accept = accept, .options = options, .out = out};
  status result = eval_import_harness_read(files, accept, path, false, &self.config);
  if (result == OK) result = open_all(&self);
  if (result == OK) result = make_items(&self);
  if (result == OK) result = make_tasks(&self);
  close_form(&self.own);
  close_form(&self.shown);
  eval_import_fields_close(&self.description);
  eval_answer_close(self.answer);
  eval_answer_close(self.cased);
  eval_task_close(&self.task);
  eval_task_close(&self.cased_task);
  eval_import_judge_close(&self.judge);
  json_decref(self.config);
  json_decref(self.docs);
  json_decref(self.pool);
  return result;
}

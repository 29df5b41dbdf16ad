/* eval/import/judge.c - see eval/import/judge.h. Follows exact_match_hf_evaluate, RegexFilter and normalize_gen_kwargs of lm_eval 0.4. */
#include "eval/import/judge.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/json_text.h"
#include "base/yaml.h"
#include "eval/import/harness.h"
#include "eval/import/pattern.h"

#define SEED 1234 /* that the harness's clients of servers send */
#define TOKENS 256 /* max_gen_toks, by default */

static const char *const OUTPUTS[] = {"generate_until", "multiple_choice", "loglikelihood", "loglikelihood_rolling"};

static status no_memory(void) { return FAIL(ERR_LIMIT, "task: no memory"); }

static status put(json_t *object, const char *key, json_t *value) {
  return value && json_object_set_new(object, key, value) == 0 ? OK : no_memory();
}

void eval_import_judge_close(eval_import_judge *self) {
  json_decref(self->keys);
  json_decref(self->pipelines);
  *self = (eval_import_judge){0};
}

/* === Generation ============================================================================================================= */

static status put_tokens(const json_t *arguments, json_t *out) {
  static const char *const names[] = {"max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens"};
  const json_t *found = NULL;
  for (size_t i = 0; i < ARRAY_LEN(names) && !found; i++) {
    found = json_object_get(arguments, names[i]);
    if (json_is_null(found)) found = NULL;
  }
  if (found && (!json_is_integer(found) || json_integer_value(found) < 1))
    return FAIL(ERR_FORMAT, "generation_kwargs: max_gen_toks: expected a whole number of at least 1");
  return put(out, "max_tokens", json_integer(found ? json_integer_value(found) : TOKENS));
}

/* Without do_sample the temperature decides; with do_sample false servers' clients would send it all the same, others not. */
static status put_sampling(const json_t *arguments, json_t *out) {
  static const char *const same[] = {"top_p", "top_k", "min_p"};
  const json_t *samples = json_object_get(arguments, "do_sample"), *temperature = json_object_get(arguments, "temperature");
  double heat = json_number_value(temperature);
  if ((temperature && !json_is_number(temperature)) || (samples && !json_is_boolean(samples)))
    return FAIL(ERR_FORMAT, "generation_kwargs: expected a number as temperature, true or false as do_sample");
  if (samples && json_is_true(samples) != (heat > 0))
    return FAIL(ERR_UNSUPPORTED, "generation_kwargs: temperature %g with do_sample: %s, which models of the harness treat differently; "
                "hint: "
                                 "make them agree", heat, json_is_true(samples) ? "true" : "false");
  if (heat == 0) return OK;
  TRY(put(out, "temperature", json_incref((json_t *)(uintptr_t)temperature)));
  TRY(put(out, "seed", json_integer(SEED)));
  for (size_t i = 0; i < ARRAY_LEN(same); i++)
    if (json_object_get(arguments, same[i])) TRY(put(out, same[i], json_incref(json_object_get(arguments, same[i]))));
  return OK;
}

/* An empty text stops nothing. */
static status put_stops(const json_t *until, json_t *out) {
  json_t *list = json_array();
  size_t count = json_is_array(until) ? json_array_size(until) : until && !json_is_null(until);
  TRY(put(out, "stop", list));
  for (size_t i = 0; i < count; i++) {
    json_t *text = json_is_array(until) ? json_array_get(until, i) : (json_t *)(uintptr_t)until;
    if (!json_is_string(text)) return FAIL(ERR_FORMAT, "generation_kwargs: until: expected texts");
    if (json_string_length(text) > 0 && json_array_append(list, text) != 0) return no_memory();
  }
  if (json_array_size(list) == 0) json_object_del(out, "stop");
  return OK;
}

static status check_arguments(eval_import_accept *accept, const json_t *arguments) {
  static const char *const known[] = {"until", "do_sample", "temperature", "top_p", "top_k", "min_p", "max_gen_toks", "max_new_tokens",
                                      "max_tokens", "max_completion_tokens"};
  const char *key;
  json_t *value;
  json_object_foreach((json_t *)(uintptr_t)arguments, key, value) {
    bool is_known = json_is_null(value);
    for (size_t i = 0; i < ARRAY_LEN(known); i++) is_known |= strcmp(known[i], key) == 0;
    if (!is_known) TRY(eval_import_cannot(accept, key, "this argument of generation_kwargs is not known here; hint: remove it"));
  }
  return OK;
}

status eval_import_judge_generation(eval_import_accept *accept, const json_t *arguments, json_t **out) {
  json_t *made = json_object();
  status result = made ? check_arguments(accept, arguments) : no_memory();
  if (result == OK) result = put_tokens(arguments, made);
  if (result == OK) result = put_stops(json_object_get(arguments, "until"), made);
  if (result == OK) result = put_sampling(arguments, made);
  if (result == OK) *out = made;
  else json_decref(made);
  return result;
}

/* === Metrics ================================================================================================================ */

static const struct { const char *name, *aggregation; uint32_t outputs; } METRICS[] = {
    {"exact_match", "mean", 1u << EVAL_IMPORT_GENERATE}, {"acc", "mean", 1u << EVAL_IMPORT_CHOICE | 1u << EVAL_IMPORT_LIKELIHOOD},
    {"acc_norm", "mean", 1u << EVAL_IMPORT_CHOICE}, {"acc_bytes", "mean", 1u << EVAL_IMPORT_CHOICE},
    {"perplexity", "perplexity", 1u << EVAL_IMPORT_LIKELIHOOD}, {"word_perplexity", "weighted_perplexity", 1u << EVAL_IMPORT_ROLLING},
    {"byte_perplexity", "weighted_perplexity", 1u << EVAL_IMPORT_ROLLING}, {"bits_per_byte", "bits_per_byte", 1u << EVAL_IMPORT_ROLLING}};

static status read_patterns(const json_t *list, json_t *keys) {
  json_t *made = json_array();
  TRY(put(keys, "remove", made));
  if (!json_is_array(list)) return FAIL(ERR_FORMAT, "regexes_to_ignore: expected a list");
  for (size_t i = 0; i < json_array_size(list); i++) {
    const char *pattern = json_string_value(json_array_get(list, i));
    char *ours = NULL;
    if (!pattern) return FAIL(ERR_FORMAT, "regexes_to_ignore: expected texts");
    status result = eval_import_pattern(pattern, false, &ours);
    if (result == OK) result = json_array_append_new(made, json_string(ours)) == 0 ? OK : no_memory();
    else fail_prefix("regexes_to_ignore");
    free(ours);
    TRY(result);
  }
  return OK;
}

/* The texts are compared as they are, but for these. keys: "normalize", "remove". */
static status read_exact_match(eval_import_accept *accept, const json_t *metric, eval_import_judge *self, json_t *keys) {
  static const char *const ignored[] = {"metric", "aggregation", "higher_is_better"};
  json_t *normalize = json_array(), *value;
  const char *key;
  TRY(put(keys, "normalize", normalize));
  json_object_foreach((json_t *)(uintptr_t)metric, key, value) {
    bool is_known = json_is_false(value) || json_is_null(value);
    const char *word = strcmp(key, "ignore_case") == 0 ? "lower" : strcmp(key, "ignore_punctuation") == 0 ? "punctuation" : NULL;
    for (size_t i = 0; i < ARRAY_LEN(ignored); i++) is_known |= strcmp(ignored[i], key) == 0;
    if (is_known) continue;
    if (strcmp(key, "regexes_to_ignore") == 0) TRY(read_patterns(value, keys));
    else if (word && json_is_true(value)) {
      if (json_array_append_new(normalize, json_string(word)) != 0) return no_memory();
      self->ignores_case |= strcmp(word, "lower") == 0;
    } else TRY(eval_import_cannot(accept, key, "this rule of exact_match is not known here; hint: remove it"));
  }
  return OK;
}

/* *taken: the metric is one of ours. */
static status read_metric(eval_import_accept *accept, const json_t *metric, eval_import_judge *self, json_t *keys, bool *taken) {
  const json_t *given = json_object_get(metric, "metric");
  const char *name = json_string_value(given), *function = json_string_value(json_object_get(given, YAML_FUNCTION)), *aggregation;
  TRY(eval_import_harness_text(metric, "aggregation", NULL, &aggregation));
  for (size_t i = 0; name && i < ARRAY_LEN(METRICS); i++) {
    if (strcmp(METRICS[i].name, name) != 0 || !(METRICS[i].outputs >> self->output & 1)) continue;
    if ((aggregation && strcmp(aggregation, METRICS[i].aggregation) != 0) || json_is_true(json_object_get(metric, "hf_evaluate"))) break;
    *taken = true;
    self->has_acc_norm |= strcmp(name, "acc_norm") == 0;
    return self->output == EVAL_IMPORT_GENERATE ? read_exact_match(accept, metric, self, keys) : OK;
  }
  if (!name) name = function ? function : "metric";
  return eval_import_cannot(accept, name, "a metric of %s that is not known here; hint: remove it from metric_list", OUTPUTS[self->output]);
}

static status read_metrics(eval_import_accept *accept, const json_t *config, eval_import_judge *self, json_t *keys) {
  const json_t *list = json_object_get(config, "metric_list");
  bool taken = !list;
  self->has_acc_norm = taken && self->output == EVAL_IMPORT_CHOICE; /* metrics by default */
  if (list && !json_is_array(list)) return FAIL(ERR_FORMAT, "metric_list: expected a list");
  if (!list && self->output == EVAL_IMPORT_GENERATE) TRY(put(keys, "normalize", json_array()));
  for (size_t i = 0; i < json_array_size(list); i++) TRY(read_metric(accept, json_array_get(list, i), self, keys, &taken));
  if (!taken) return FAIL(ERR_UNSUPPORTED, "metric_list: no metric is left; hint: this program has exact_match, acc, acc_norm and "
                          "perplexities");
  return OK;
}

/* === Filters ================================================================================================================ */

static status read_regex(eval_import_judge *self, const json_t *step, json_t *keys) {
  static const char *const known[] = {"function", "regex_pattern", "group_select", "fallback"};
  const char *pattern, *fallback, *key;
  char *ours = NULL;
  json_t *value, *select = json_object_get(step, "group_select");
  TRY(eval_import_harness_text(step, "regex_pattern", "#### (\\-?[0-9\\.\\,]+)", &pattern));
  TRY(eval_import_harness_text(step, "fallback", "[invalid]", &fallback));
  json_object_foreach((json_t *)(uintptr_t)step, key, value) {
    bool is_known = false;
    for (size_t i = 0; i < ARRAY_LEN(known); i++) is_known |= strcmp(known[i], key) == 0;
    if (!is_known) return FAIL(ERR_UNSUPPORTED, "filter_list: regex: \"%.64s\" is not known here; hint: remove it", key);
  }
  json_int_t which = json_integer_value(select);
  if (select && (!json_is_integer(select) || (which != 0 && which != -1)))
    return FAIL(ERR_UNSUPPORTED, "filter_list: regex: group_select: expected 0, the first match, or -1, the last; hint: write a pattern "
                "for which "
                                 "that is the one");
  if (strcmp(fallback, "[invalid]") != 0)
    return FAIL(ERR_UNSUPPORTED, "filter_list: regex: fallback \"%.64s\": here there is no answer then; hint: remove it", fallback);
  status result = eval_import_pattern(pattern, true, &ours);
  if (result != OK) fail_prefix("filter_list: regex");
  if (result == OK) result = put(keys, "extract", json_string(ours));
  free(ours);
  TRY(result);
  self->extracts = true;
  if (which == -1) TRY(put(keys, "extract_match", json_string("last")));
  return put(keys, "extract_strip", json_true());
}

/* Regex, then blanks, then the first answer: each at most once. */
static status read_pipeline(eval_import_judge *self, const json_t *steps, json_t *keys) {
  const eval_import_output output = self->output;
  if (!json_is_array(steps)) return FAIL(ERR_FORMAT, "filter_list: filter: expected a list");
  for (size_t i = 0; i < json_array_size(steps); i++) {
    const json_t *step = json_array_get(steps, i);
    const char *name = json_string_value(json_object_get(step, "function"));
    bool is_done = i > 0 && json_text_is(json_object_get(json_array_get(steps, i - 1), "function"), "take_first");
    bool has_regex = json_object_get(keys, "extract") != NULL;
    if (name && strcmp(name, "take_first") == 0) continue;
    if (name && !is_done && output == EVAL_IMPORT_GENERATE && strcmp(name, "remove_whitespace") == 0)
      TRY(put(keys, "extract_strip", json_true()));
    else if (name && !is_done && output == EVAL_IMPORT_GENERATE && strcmp(name, "regex") == 0 && !has_regex &&
             !json_object_get(keys, "extract_strip")) TRY(read_regex(self, step, keys));
    else
      return FAIL(ERR_UNSUPPORTED, "filter_list: \"%.64s\" as step %zu is not known here; hint: regex, remove_whitespace and take_first "
                  "are, in "
                                   "this order", name ? name : "", i + 1);
  }
  return OK;
}

static status add_pipeline(eval_import_judge *self, const char *name, const json_t *steps, const json_t *shared) {
  json_t *keys = json_copy((json_t *)(uintptr_t)shared), *pipeline = json_pack("{s:s, s:o}", "name", name, "keys", keys);
  if (json_array_append_new(self->pipelines, pipeline) != 0) return no_memory();
  return steps ? read_pipeline(self, steps, keys) : OK;
}

static status read_filters(eval_import_accept *accept, const json_t *config, eval_import_judge *self, const json_t *shared) {
  const json_t *list = json_object_get(config, "filter_list");
  if (!list) return add_pipeline(self, "none", NULL, shared);
  if (!json_is_array(list)) return FAIL(ERR_FORMAT, "filter_list: expected a list");
  for (size_t i = 0; i < json_array_size(list); i++) {
    const json_t *filter = json_array_get(list, i);
    const char *name = json_string_value(json_object_get(filter, "name"));
    if (!name || !*name) return FAIL(ERR_FORMAT, "filter_list: expected filters with names");
    status result = add_pipeline(self, name, json_object_get(filter, "filter"), shared);
    if (result == OK) continue;
    if (result != ERR_UNSUPPORTED) return result;
    char cause[FAIL_TEXT_MAX];
    snprintf(cause, sizeof cause, "%s", fail_text());
    fail_clear();
    TRY(eval_import_cannot(accept, name, "%.500s", cause));
    json_array_remove(self->pipelines, json_array_size(self->pipelines) - 1);
  }
  return json_array_size(self->pipelines) ? OK : FAIL(ERR_UNSUPPORTED, "filter_list: no filter is left; hint: remove it");
}

/* === All of it ============================================================================================================== */

static status read_output(const json_t *config, eval_import_output *out) {
  const char *name;
  TRY(eval_import_harness_text(config, "output_type", OUTPUTS[0], &name));
  for (size_t i = 0; i < ARRAY_LEN(OUTPUTS); i++) {
    if (strcmp(OUTPUTS[i], name) != 0) continue;
    *out = (eval_import_output)i;
    return OK;
  }
  return FAIL(ERR_UNSUPPORTED, "output_type: \"%.64s\" is not known here; hint: generate_until, multiple_choice, loglikelihood and "
                               "loglikelihood_rolling are", name);
}

/* Without arguments the harness stops at the text between examples. */
static status read_generation(eval_import_accept *accept, const json_t *config, eval_import_judge *self) {
  const json_t *given = json_object_get(config, "generation_kwargs");
  const char *delimiter;
  json_t *arguments = given ? json_copy((json_t *)(uintptr_t)given) : json_object(), *made = NULL;
  status result = eval_import_harness_text(config, "fewshot_delimiter", "\n\n", &delimiter);
  if (result == OK && !json_is_object(arguments)) result = FAIL(ERR_FORMAT, "generation_kwargs: expected keys and values");
  if (result == OK && !json_object_get(arguments, "until")) result = put(arguments, "until", json_string(delimiter));
  if (result == OK) result = eval_import_judge_generation(accept, arguments, &made);
  json_decref(arguments);
  TRY(result);
  return put(self->keys, "generation", made);
}

static status make(eval_import_accept *accept, const json_t *config, eval_import_judge *self, json_t *shared) {
  const json_t *repeats = json_object_get(config, "repeats");
  TRY(read_output(config, &self->output));
  if (repeats && json_integer_value(repeats) != 1)
    TRY(eval_import_cannot(accept, "repeats", "an answer is asked for several times; hint: generation: {n: N} in the task file gives the "
                           "mean "
                           "share of right ones"));
  TRY(read_metrics(accept, config, self, shared));
  if (self->output == EVAL_IMPORT_GENERATE) TRY(read_generation(accept, config, self));
  if (self->output == EVAL_IMPORT_CHOICE && self->has_acc_norm) TRY(put(self->keys, "norm", json_string("characters")));
  return read_filters(accept, config, self, shared);
}

status eval_import_judge_make(eval_import_accept *accept, const json_t *config, eval_import_judge *out) {
  eval_import_judge made = {.keys = json_object(), .pipelines = json_array()};
  json_t *shared = json_object();
  status result = made.keys && made.pipelines && shared ? make(accept, config, &made, shared) : no_memory();
  json_decref(shared);
  if (result == OK) *out = made;
  else eval_import_judge_close(&made);
  return result;
}

status eval_import_judge_open(const json_t *keys, eval_task *task, eval_answer **out) {
  strbuf text = {0};
  status result = eval_import_task_text(keys, "items.jsonl", "", &text);
  if (result == OK) result = eval_task_parse(text.bytes, text.count, task);
  strbuf_close(&text);
  TRY(result);
  return task->kind == EVAL_GENERATE ? eval_answer_open(out, task) : OK;
}

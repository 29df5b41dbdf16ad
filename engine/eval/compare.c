/* eval/compare.c - see eval/compare.h. Order: what may be compared, pairs of items, figures, flips. */
#include "eval/compare.h"
#include "eval/interval.h"
#include "eval/manifest.h"
#include "eval/metric.h"
#include "eval/results.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct pairs { /* of the items of one task that both have */
  eval_kind kind;
  eval_task tasks[2];          /* as much of them as reading a line needs */
  eval_score scores[2];        /* samples[0 .. count) are the pairs */
  const json_t **lines[2];     /* [count] */
  uint32_t *items, count;      /* items: 0, 1, ... */
  uint32_t left_out;           /* pairs of which one is in no sum: they are not among the count */
  json_t *alone[2];            /* ids */
  double *rest[2], *sums;
} pairs;

static status no_memory(void) { return FAIL(ERR_LIMIT, "compare: no memory"); }

static const char *text_of(const json_t *object, const char *key) { return json_string_value(json_object_get(object, key)); }

static const json_t *tasks_of(const eval_compare_side *side) {
  return json_object_get(json_object_get(side->manifest, "setup"), "tasks");
}

static const json_t *task_named(const eval_compare_side *side, const char *name) {
  const json_t *tasks = tasks_of(side);
  for (size_t i = 0; i < json_array_size(tasks); i++) {
    const char *found = text_of(json_array_get(tasks, i), "name");
    if (found && strcmp(found, name) == 0) return json_array_get(tasks, i);
  }
  return NULL;
}

/* === What may be compared =================================================================================================== */

static bool may_differ(const eval_compare_terms *terms, const char *key) {
  static const char *const never_matter[] = {"description", "group", "subsets", "answer_field"};
  for (size_t i = 0; i < ARRAY_LEN(never_matter); i++)
    if (strcmp(never_matter[i], key) == 0) return true;
  for (uint32_t i = 0; i < terms->count; i++)
    if (strcmp(terms->differ[i], key) == 0) return true;
  return false;
}

static status refuse(const char *task, const char *key, const char *difference) {
  return FAIL(ERR_MISMATCH, "task \"%.64s\": not the same questions: %s; hint: --differ %.64s if that is what you compare", task,
              difference, key);
}

static status check_parameters(const char *task, const json_t *a, const json_t *b, const eval_compare_terms *terms) {
  const json_t *both[2] = {a, b};
  char text[EVAL_MANIFEST_DIFFERENCE_BYTES];
  const char *key;
  json_t *value;
  for (size_t i = 0; i < 2; i++)
    json_object_foreach((json_t *)(uintptr_t)both[i], key, value) {
      json_t *one = json_pack("{s:O?}", key, json_object_get(a, key)), *other = json_pack("{s:O?}", key, json_object_get(b, key));
      bool is_path = strcmp(key, "items") == 0; /* its digest is what counts */
      bool differs = !is_path && !may_differ(terms, key) && one && other && eval_manifest_difference(one, other, text);
      json_decref(one);
      json_decref(other);
      if (differs) return refuse(task, key, text);
    }
  return OK;
}

static status check_file(const char *task, const json_t *a, const json_t *b, const char *which, const eval_compare_terms *terms) {
  char text[EVAL_MANIFEST_DIFFERENCE_BYTES];
  json_t *one = json_pack("{s:O?}", which, json_object_get(json_object_get(a, which), "digest"));
  json_t *other = json_pack("{s:O?}", which, json_object_get(json_object_get(b, which), "digest"));
  bool differs = !may_differ(terms, which) && one && other && eval_manifest_difference(one, other, text);
  json_decref(one);
  json_decref(other);
  return differs ? refuse(task, which, text) : OK;
}

static bool find_kind(const char *name, eval_kind *out) {
  for (eval_kind k = EVAL_GENERATE; name && k <= EVAL_PERPLEXITY; k++) {
    if (strcmp(name, eval_task_kind_name(k)) != 0) continue;
    *out = k;
    return true;
  }
  return false;
}

static status check_task(const char *name, const json_t *a, const json_t *b, const eval_compare_terms *terms, pairs *out) {
  const char *kinds[2] = {text_of(a, "kind"), text_of(b, "kind")};
  if (!find_kind(kinds[0], &out->kind) || !kinds[1] || strcmp(kinds[0], kinds[1]) != 0)
    return FAIL(ERR_MISMATCH, "task \"%.64s\": it is of another kind in each: %.16s, %.16s", name, kinds[0] ? kinds[0] : "none",
                kinds[1] ? kinds[1] : "none");
  TRY(check_file(name, a, b, "items", terms));
  TRY(check_file(name, a, b, "shots", terms));
  TRY(check_parameters(name, json_object_get(a, "parameters"), json_object_get(b, "parameters"), terms));
  out->tasks[0] = (eval_task){.kind = out->kind, .name = name, .cluster = text_of(a, "cluster")};
  out->tasks[1] = (eval_task){.kind = out->kind, .name = name, .cluster = text_of(b, "cluster")};
  return OK;
}

/* === Pairs ================================================================================================================== */

static bool is_of(const json_t *line, const char *task) {
  const char *name = text_of(line, "task");
  return name && strcmp(name, task) == 0 && text_of(line, "id");
}

/* The lines of the task by id. */
static status fill_index(const json_t *results, const char *task, json_t *by_id) {
  for (size_t i = 0; i < json_array_size(results); i++) {
    const json_t *line = json_array_get(results, i);
    if (!is_of(line, task)) continue;
    const char *id = text_of(line, "id");
    if (json_object_get(by_id, id)) return FAIL(ERR_FORMAT, "results: the item \"%.64s\" of \"%.64s\" occurs twice", id, task);
    if (json_object_set(by_id, id, (json_t *)(uintptr_t)line) != 0) return no_memory();
  }
  return OK;
}

static status index_lines(const json_t *results, const char *task, json_t **out) {
  *out = json_object();
  return *out ? fill_index(results, task, *out) : no_memory();
}

/* Whether the two were asked for the same answer, as far as the lines say. */
static status check_answer(const char *task, const json_t *a, const json_t *b, const eval_compare_terms *terms) {
  const json_t *answers[2] = {json_object_get(a, "answer"), json_object_get(b, "answer")};
  if (!answers[0] || !answers[1] || may_differ(terms, "answer") || json_equal(answers[0], answers[1])) return OK;
  return FAIL(ERR_MISMATCH,
              "task \"%.64s\": item \"%.64s\" has another right answer in each; hint: --differ answer if that is what you compare",
              task, text_of(a, "id"));
}

static status add_pair(pairs *self, const json_t *a, const json_t *b) {
  const json_t *both[2] = {a, b};
  eval_sample samples[2];
  for (size_t k = 0; k < 2; k++) {
    status result = eval_results_sample(both[k], &self->scores[k], &samples[k]);
    if (result != OK) fail_prefix(text_of(both[k], "id"));
    TRY(result);
  }
  if (samples[0].is_left_out || samples[1].is_left_out) {
    self->left_out++;
    return OK;
  }
  for (size_t k = 0; k < 2; k++) {
    self->scores[k].samples[self->count] = samples[k];
    self->lines[k][self->count] = both[k];
  }
  self->items[self->count] = self->count;
  self->count++;
  return OK;
}

static status open_pairs(pairs *self, size_t most) {
  bool has_room = true;
  for (size_t k = 0; k < 2; k++) {
    self->scores[k] = (eval_score){.task = &self->tasks[k], .samples = calloc(most + 1, sizeof(eval_sample))};
    self->lines[k] = calloc(most + 1, sizeof *self->lines[k]);
    self->rest[k] = calloc(most + 1, sizeof *self->rest[k]);
    self->alone[k] = json_array();
    has_room = has_room && self->scores[k].samples && self->lines[k] && self->rest[k] && self->alone[k];
  }
  self->items = calloc(most + 1, sizeof *self->items);
  self->sums = calloc(most + 1, sizeof *self->sums);
  return has_room && self->items && self->sums ? OK : no_memory();
}

static void close_pairs(pairs *self) {
  for (size_t k = 0; k < 2; k++) {
    free(self->scores[k].samples);
    free(self->lines[k]);
    free(self->rest[k]);
    json_decref(self->alone[k]);
    eval_metric_drop(&self->scores[k].subsets);
    eval_metric_drop(&self->scores[k].clusters);
  }
  free(self->items);
  free(self->sums);
}

/* In the order of A; those of B alone in the order of B. */
static status pair_lines(pairs *self, const eval_compare_side sides[2], const json_t *by_id[2], const eval_compare_terms *terms) {
  const char *task = self->tasks[0].name;
  for (size_t k = 0; k < 2; k++)
    for (size_t i = 0; i < json_array_size(sides[k].results); i++) {
      const json_t *line = json_array_get(sides[k].results, i);
      if (!is_of(line, task)) continue;
      const json_t *other = json_object_get(by_id[1 - k], text_of(line, "id"));
      if (!other && json_array_append(self->alone[k], json_object_get(line, "id")) != 0) return no_memory();
      if (!other || k == 1) continue;
      TRY(check_answer(task, line, other, terms));
      TRY(add_pair(self, line, other));
    }
  return OK;
}

static status find_pairs(pairs *self, const eval_compare_side sides[2], const eval_compare_terms *terms) {
  json_t *a = NULL, *b = NULL;
  status result = open_pairs(self, json_array_size(sides[0].results));
  if (result == OK) result = index_lines(sides[0].results, self->tasks[0].name, &a);
  if (result == OK) result = index_lines(sides[1].results, self->tasks[0].name, &b);
  if (result == OK) result = pair_lines(self, sides, (const json_t *[2]){a, b}, terms);
  json_decref(a);
  json_decref(b);
  return result;
}

/* === Figures ================================================================================================================ */

static json_t *real(double value) { return isfinite(value) ? json_real(value) : json_null(); }

typedef struct discordance { /* of a share: what only one of the two has right */
  double lost, gained;       /* shares of the items */
  double answers;            /* fewer of the two */
  uint32_t lost_count, gained_count;
  bool is_single;            /* every item has one answer */
} discordance;

static discordance discordance_of(const pairs *p, uint32_t m) {
  discordance built = {.is_single = true};
  double answers[2] = {0};
  for (uint32_t i = 0; i < p->count; i++) {
    const eval_sample *a = &p->scores[0].samples[i], *b = &p->scores[1].samples[i];
    double change = b->over[m] - a->over[m];
    if (change < 0) built.lost -= change, built.lost_count++;
    if (change > 0) built.gained += change, built.gained_count++;
    answers[0] += a->answers, answers[1] += b->answers;
    built.is_single = built.is_single && a->answers == 1 && b->answers == 1;
  }
  built.lost /= p->count, built.gained /= p->count;
  built.answers = answers[0] < answers[1] ? answers[0] : answers[1];
  return built;
}

/* The clusters are those of A, numbered as they occur in the pairs. of: room for p->count; number: for all clusters of A, zeroed. */
static eval_interval_clusters clusters_of(const pairs *p, uint32_t *of, uint32_t *number) {
  eval_interval_clusters built = {.of = p->tasks[0].cluster ? of : NULL, .count = p->count, .sums = p->sums};
  for (uint32_t i = 0; built.of && i < p->count; i++) {
    uint32_t cluster = p->scores[0].samples[i].cluster;
    if (!number[cluster]) number[cluster] = ++built.cluster_count;
    of[i] = number[cluster] - 1;
  }
  return built;
}

static status metric_json(const pairs *p, const eval_interval_clusters *clusters, uint32_t m, json_t *list) {
  double values[2], error;
  for (size_t k = 0; k < 2; k++) values[k] = eval_metric_value(p->kind, m, p->scores[k].samples, p->items, p->count, p->rest[k]);
  for (uint32_t i = 0; i < p->count; i++) p->rest[1][i] -= p->rest[0][i];
  error = eval_interval_error(p->rest[1], clusters);
  double difference = values[1] - values[0];
  eval_interval interval = {difference - EVAL_INTERVAL_Z * error, difference + EVAL_INTERVAL_Z * error};
  bool is_share = eval_metric_is_share(p->kind, m);
  json_t *built = json_pack("{s:s, s:o, s:o, s:o, s:o}", "name", eval_metric_name(p->kind, m), "a", real(values[0]), "b",
                           real(values[1]), "difference", real(difference), "stderr", real(error));
  if (json_array_append_new(list, built) != 0) return no_memory();
  json_t *test = json_null();
  if (is_share) {
    discordance d = discordance_of(p, m);
    double variance = d.lost + d.gained - difference * difference;
    interval = eval_interval_paired(d.lost, d.gained, eval_interval_effective(variance, error, d.answers, clusters));
    if (d.is_single && !clusters->of)
      test = json_pack("{s:i, s:i, s:f}", "only_a", (int)d.lost_count, "only_b", (int)d.gained_count, "p",
                       eval_interval_mcnemar(d.lost_count, d.gained_count));
  }
  json_t *rest = json_pack("{s:o, s:o, s:s, s:o}", "low", real(interval.low), "high", real(interval.high), "interval",
                          is_share ? "bonett-price" : "normal", "mcnemar", test);
  bool good = rest && json_object_update(built, rest) == 0;
  json_decref(rest);
  return good ? OK : no_memory();
}

static status metrics_json(const pairs *p, json_t *row) {
  json_t *list = json_array();
  if (json_object_set_new(row, "metrics", list) != 0) return no_memory();
  uint32_t *of = calloc(p->count + 1ull, sizeof *of), *number = calloc(p->scores[0].clusters.count + 1ull, sizeof *number);
  status result = of && number ? OK : no_memory();
  if (result == OK) {
    const eval_interval_clusters clusters = clusters_of(p, of, number);
    json_t *count = clusters.of ? json_integer(clusters.cluster_count) : json_null();
    if (json_object_set_new(row, "clusters", count) != 0) result = no_memory();
    for (uint32_t m = 0; result == OK && m < eval_metric_count(p->kind); m++) result = metric_json(p, &clusters, m, list);
  }
  free(of);
  free(number);
  return result;
}

/* === Flips ================================================================================================================== */

/* The given answer: what was extracted, or the text of the best choice, or its number; null if the line does not have it. */
static json_t *given(const json_t *line, eval_kind kind, const char *key) {
  const json_t *value = json_object_get(line, kind == EVAL_CHOICE && strcmp(key, "extracted") == 0 ? "best" : key);
  if (kind == EVAL_CHOICE && json_is_integer(value) && json_integer_value(value) >= 0) {
    const json_t *choice = json_array_get(json_object_get(line, "choices"), (size_t)json_integer_value(value));
    if (json_object_get(choice, "text")) value = json_object_get(choice, "text");
  }
  return value ? json_incref((json_t *)(uintptr_t)value) : json_null();
}

static json_t *margin_json(const eval_margin *margin) { return margin->known ? json_real(margin->ulps) : json_null(); }

static json_t *flip_json(const pairs *p, uint32_t i) {
  const json_t *a = p->lines[0][i], *b = p->lines[1][i];
  const eval_margin *margins[2] = {&p->scores[0].samples[i].margin, &p->scores[1].samples[i].margin};
  bool close = false;
  for (size_t k = 0; k < 2; k++) close = close || (margins[k]->known && margins[k]->ulps < EVAL_MARGIN_FRAGILE);
  return json_pack("{s:O, s:s, s:o, s:o, s:o, s:[o, o], s:b}", "id", json_object_get(a, "id"), "right",
                   p->scores[0].samples[i].is_right ? "a" : "b", "a", given(a, p->kind, "extracted"), "b", given(b, p->kind, "extracted"),
                   "expected", given(a, p->kind, "answer"), "ulps", margin_json(margins[0]), margin_json(margins[1]), "close", close);
}

static status flips_json(const pairs *p, json_t *row) {
  json_t *list = json_array();
  uint32_t changed = 0, close = 0;
  if (json_object_set_new(row, "flips", list) != 0) return no_memory();
  for (uint32_t i = 0; p->kind != EVAL_PERPLEXITY && i < p->count; i++) {
    changed += eval_results_flipped(p->lines[0][i], p->lines[1][i], p->kind);
    if (p->scores[0].samples[i].is_right == p->scores[1].samples[i].is_right) continue;
    json_t *flip = flip_json(p, i);
    close += json_is_true(json_object_get(flip, "close"));
    if (json_array_append_new(list, flip) != 0) return no_memory();
  }
  bool good = json_object_set_new(row, "changed", json_integer(changed)) == 0 && json_object_set_new(row, "close",
                                                                                                     json_integer(close)) == 0;
  return good ? OK : no_memory();
}

/* === Tasks ================================================================================================================== */

static status row_json(pairs *p, const eval_compare_side sides[2], const eval_compare_terms *terms, json_t *list) {
  TRY(find_pairs(p, sides, terms));
  if (p->count == 0)
    return FAIL(ERR_MISMATCH, "task \"%.64s\": no item is in both; hint: items are paired by their ids", p->tasks[0].name);
  json_t *row = json_pack("{s:s, s:s, s:i, s:i, s:O, s:O}", "name", p->tasks[0].name, "kind", eval_task_kind_name(p->kind), "items",
                         (int)p->count, "left_out", (int)p->left_out, "only_a", p->alone[0], "only_b", p->alone[1]);
  if (json_array_append_new(list, row) != 0) return no_memory();
  TRY(metrics_json(p, row));
  return flips_json(p, row);
}

static status compare_task(const char *name, const eval_compare_side sides[2], const eval_compare_terms *terms, json_t *list) {
  pairs p = {.count = 0};
  TRY(check_task(name, task_named(&sides[0], name), task_named(&sides[1], name), terms, &p));
  status result = row_json(&p, sides, terms, list);
  close_pairs(&p);
  return result;
}

/* What of the model differs. */
static status setup_json(const eval_compare_side sides[2], json_t *object) {
  static const char *const keys[] = {"numerics_id", "config_digest", "weights_digest", "tokenizer_digest", "chat_template"};
  const json_t *setups[2] = {json_object_get(sides[0].manifest, "setup"), json_object_get(sides[1].manifest, "setup")};
  json_t *list = json_object();
  if (json_object_set_new(object, "differ", list) != 0) return no_memory();
  for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
    json_t *a = json_object_get(setups[0], keys[i]), *b = json_object_get(setups[1], keys[i]);
    if (a != b && !json_equal(a, b) && json_object_set_new(list, keys[i], json_pack("[O?, O?]", a, b)) != 0) return no_memory();
  }
  return OK;
}

static status compare_all(const eval_compare_side sides[2], const eval_compare_terms *terms, json_t *object) {
  json_t *tasks = json_array(), *alone[2] = {json_array(), json_array()};
  json_t *parts = json_pack("{s:o, s:o, s:o}", "tasks", tasks, "only_a", alone[0], "only_b", alone[1]);
  bool good = parts && json_object_update(object, parts) == 0;
  json_decref(parts);
  if (!good) return no_memory();
  for (size_t k = 0; k < 2; k++)
    for (size_t i = 0; i < json_array_size(tasks_of(&sides[k])); i++) {
      const json_t *task = json_array_get(tasks_of(&sides[k]), i);
      const char *name = text_of(task, "name");
      if (!name) return FAIL(ERR_FORMAT, "manifest: tasks: expected a name of each");
      if (!task_named(&sides[1 - k], name)) {
        if (json_array_append(alone[k], json_object_get(task, "name")) != 0) return no_memory();
      } else if (k == 0) TRY(compare_task(name, sides, terms, tasks));
    }
  if (json_array_size(tasks)) return OK;
  return FAIL(ERR_MISMATCH, "the two have no task in common; hint: tasks are paired by their names");
}

status eval_compare_make(const eval_compare_side sides[2], const eval_compare_terms *terms, json_t **out) {
  json_t *built = json_pack("{s:O?, s:O?}", "a", json_object_get(sides[0].manifest, "manifest_digest"), "b",
                           json_object_get(sides[1].manifest, "manifest_digest"));
  status result = built ? setup_json(sides, built) : no_memory();
  if (result == OK) result = compare_all(sides, terms, built);
  if (result == OK) *out = built;
  else json_decref(built);
  return result;
}

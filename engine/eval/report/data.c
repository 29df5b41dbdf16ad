/* eval/report/data.c - see eval/report/data.h. One walk over the setup, one over the lines. */
#include "eval/report/data.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* === Members ================================================================================================================ */

const char *eval_report_data_text(const json_t *object, const char *key) { return json_string_value(json_object_get(object, key)); }

double eval_report_data_number(const json_t *object, const char *key) {
  const json_t *value = json_object_get(object, key);
  return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

/* === Steps of ulps ========================================================================================================== */

/* Steps within a power of two have equal width, not equal ratio, so exact comparisons decide and no logarithm is needed. */
uint32_t eval_report_data_step(double ulps) {
  uint32_t bin = eval_margin_bin(ulps);
  if (bin < 2) return bin;
  if (bin == EVAL_MARGIN_BINS - 1) return EVAL_REPORT_DATA_FINE - 1;
  double within = ulps / eval_margin_bin_from(bin) - 1;
  return 2 + (bin - 2) * EVAL_REPORT_DATA_STEPS + (uint32_t)(within * EVAL_REPORT_DATA_STEPS);
}

double eval_report_data_position(uint32_t step) {
  static const double within[EVAL_REPORT_DATA_STEPS] = {0,                   0.16992500144231237, 0.32192809488736235, 0.45943161863729726,
                                                        0.58496250072115619, 0.70043971814109222, 0.80735492205760406, 0.90689059560851848};
  if (step < 2) return EVAL_MARGIN_LEAST;
  step -= 2;
  return (double)EVAL_MARGIN_LEAST + (double)(step / EVAL_REPORT_DATA_STEPS) + within[step % EVAL_REPORT_DATA_STEPS];
}

/* === Units ================================================================================================================== */

static const json_t *named(const json_t *list, const char *name) {
  for (size_t i = 0; i < json_array_size(list); i++) {
    const char *found = eval_report_data_text(json_array_get(list, i), "name");
    if (found && strcmp(found, name) == 0) return json_array_get(list, i);
  }
  return NULL;
}

static eval_report_unit *add_unit(eval_report_data *d, const char *name, const json_t *setup, const json_t *scores) {
  if (d->unit_count == EVAL_REPORT_DATA_UNITS) {
    d->units_left_out++;
    return NULL;
  }
  eval_report_unit *unit = &d->units[d->unit_count++];
  unit->name = name;
  unit->setup = setup;
  unit->scores = scores;
  unit->kind = eval_report_data_text(setup ? setup : scores, "kind");
  return unit;
}

static void add_units(eval_report_data *d) {
  const json_t *tasks = json_object_get(d->setup, "tasks");
  const json_t *scores = json_object_get(json_object_get(d->outcome, "scores"), "tasks");
  for (size_t i = 0; i < json_array_size(tasks); i++) {
    const json_t *task = json_array_get(tasks, i);
    const char *name = eval_report_data_text(task, "name");
    const json_t *scored = name && d->unit_count < EVAL_REPORT_DATA_UNITS ? named(scores, name) : NULL;
    const json_t *subsets = json_object_get(scored, "subsets");
    if (!name || !add_unit(d, name, task, scored)) continue;
    d->task_count++;
    size_t tasks_left = json_array_size(tasks) - 1 - i;
    for (size_t k = 0; k < json_array_size(subsets); k++) {
      const json_t *subset = json_array_get(subsets, k);
      const char *subset_name = eval_report_data_text(subset, "name");
      if (!subset_name) continue;
      if (d->unit_count + tasks_left >= EVAL_REPORT_DATA_UNITS) { /* tasks come first */
        d->units_left_out++;
        continue;
      }
      add_unit(d, subset_name, NULL, subset)->is_subset = true;
    }
  }
}

/* The unit with a task's name. Lines of one task are adjacent, so it is usually the last one found. UINT32_MAX: none. */
static uint32_t find_task(const eval_report_data *d, const char *name, uint32_t last) {
  if (!name) return UINT32_MAX;
  if (last < d->unit_count && strcmp(d->units[last].name, name) == 0) return last;
  for (uint32_t i = 0; i < d->unit_count; i++)
    if (!d->units[i].is_subset && strcmp(d->units[i].name, name) == 0) return i;
  return UINT32_MAX;
}

static eval_report_unit *find_subset(eval_report_data *d, uint32_t task, const char *name) {
  if (!name) return NULL;
  for (uint32_t i = task + 1; i < d->unit_count && d->units[i].is_subset; i++)
    if (strcmp(d->units[i].name, name) == 0) return &d->units[i];
  return NULL;
}

/* === Items ================================================================================================================== */

static void keep(eval_report_list *list, const eval_report_item *item) {
  if (list->count < EVAL_REPORT_DATA_ROWS) list->rows[list->count++] = *item;
  list->total++;
}

/* Sorted by ulps; among equals the first one seen comes first. */
static void keep_smallest(eval_report_list *list, const eval_report_item *item) {
  list->total += item->margin.ulps < EVAL_MARGIN_FRAGILE;
  uint32_t at = list->count;
  while (at > 0 && item->margin.ulps < list->rows[at - 1].margin.ulps) at--;
  if (at == EVAL_REPORT_DATA_ROWS) return;
  if (list->count < EVAL_REPORT_DATA_ROWS) list->count++;
  memmove(&list->rows[at + 1], &list->rows[at], (list->count - 1 - at) * sizeof list->rows[0]);
  list->rows[at] = *item;
}

static const json_t *verdict_of(const json_t *object) {
  const json_t *verdict = json_object_get(object, "correct");
  return verdict ? verdict : json_object_get(object, "acc");
}

static void add_to_unit(eval_report_unit *unit, const eval_report_item *item) {
  unit->failed += item->failed;
  if (item->is_judged) eval_margin_add(&unit->risk, &item->margin, item->is_right);
}

static void add_flip(eval_report_flips *flips, bool was_right, bool is_right, bool flipped) {
  flips->items++;
  flips->right += is_right;
  flips->flipped += flipped;
  flips->lost += was_right && !is_right;
  flips->gained += !was_right && is_right;
}

static void add_flips(eval_report_data *d, eval_report_unit *subset, const eval_report_item *item) {
  const json_t *perturbed = json_object_get(item->line, "perturbed");
  bool any = false;
  for (uint32_t p = 0; p < d->plan_count; p++) {
    const json_t *other = json_array_get(perturbed, p), *verdict = verdict_of(other);
    if (!json_is_boolean(verdict)) continue;
    bool is_right = json_is_true(verdict), flipped = json_is_true(json_object_get(other, "flipped"));
    add_flip(&d->units[item->unit].flips[p], item->is_right, is_right, flipped);
    add_flip(&d->all.flips[p], item->is_right, is_right, flipped);
    if (subset) add_flip(&subset->flips[p], item->is_right, is_right, flipped);
    if (item->margin.known) d->moved[p].counts[flipped][eval_report_data_step(item->margin.ulps)]++;
    any = any || flipped;
  }
  if (any) keep(&d->flipped, item);
}

static void add_item(eval_report_data *d, const eval_report_item *item) {
  eval_report_unit *subset = find_subset(d, item->unit, eval_report_data_text(item->line, "subset"));
  add_to_unit(&d->units[item->unit], item);
  add_to_unit(&d->all, item);
  if (subset) add_to_unit(subset, item);
  if (item->failed) keep(&d->failed, item);
  if (json_object_get(item->line, "skipped")) keep(&d->skipped, item);
  if (!item->is_judged) return;
  if (!item->is_right) keep(&d->wrong, item);
  if (item->margin.known) {
    d->margins.counts[item->is_right][eval_report_data_step(item->margin.ulps)]++;
    keep_smallest(&d->fragile, item);
  }
  add_flips(d, subset, item);
}

static void add_lines(eval_report_data *d, const json_t *results) {
  uint32_t last = UINT32_MAX;
  for (size_t i = 0; i < json_array_size(results); i++) {
    const json_t *line = json_array_get(results, i), *verdict = verdict_of(line);
    d->lines++;
    last = find_task(d, eval_report_data_text(line, "task"), last);
    if (last == UINT32_MAX) {
      d->strangers++;
      continue;
    }
    eval_report_item item = {.line = line, .unit = last, .is_judged = json_is_boolean(verdict), .is_right = json_is_true(verdict),
                             .failed = json_object_get(line, "failed") != NULL,
                             .margin = eval_margin_read(json_object_get(line, "margin"))};
    add_item(d, &item);
  }
}

status eval_report_data_gather(const json_t *manifest, const json_t *results, eval_report_data **out) {
  eval_report_data *d = calloc(1, sizeof *d);
  if (!d) return FAIL(ERR_LIMIT, "report: no memory");
  d->manifest = manifest;
  d->setup = json_object_get(manifest, "setup");
  d->outcome = json_object_get(manifest, "outcome");
  d->run = json_object_get(manifest, "run");
  size_t plans = json_array_size(json_object_get(d->setup, "perturbed"));
  d->plan_count = (uint32_t)(plans < EVAL_REPORT_DATA_PLANS ? plans : EVAL_REPORT_DATA_PLANS);
  add_units(d);
  add_lines(d, results);
  *out = d;
  return OK;
}

/* eval/report/report.c - see eval/report/report.h. Writes the page's sections in order: a heading at the left, the content at the right.
 * All text that is not a literal of this file goes through eval/report/text.c; numbers are printed here. */
#include "eval/report/report.h"
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/whole_file.h"
#include "eval/report/data.h"
#include "eval/report/figure.h"
#include "eval/report/items.h"
#include "eval/report/style.h"
#include "eval/report/text.h"

#define NAME_MOST 120u
#define DIGEST_MOST 64u
#define PATH_MOST 400u
#define METRICS_MOST 16u
#define GROUPS_MOST 100u
#define UNITS_TOLD 60u     /* tasks whose files are listed */

static void put_name(FILE *to, const char *name, size_t most) { eval_report_text_put(to, name, strlen(name), most, false); }

static void begin_section(FILE *to, const char *title, const char *about) {
  fprintf(to, "<section><div class=\"about\"><h2>%s</h2>%s</div>\n<div class=\"body\">\n", title, about);
}

static void end_section(FILE *to) { fputs("</div></section>\n", to); }

static void put_count(FILE *to, uint64_t count, const char *one, const char *many) {
  fprintf(to, "%" PRIu64 " %s", count, count == 1 ? one : many);
}

/* === Head =================================================================================================================== */

/* The model's name: the last part of its path. */
static void put_model(FILE *to, const eval_report_data *d) {
  const json_t *path = json_object_get(d->run, "model");
  const char *text = json_string_value(path);
  size_t end = json_string_length(path), from;
  while (end && text[end - 1] == '/') end--;
  for (from = end; from && text[from - 1] != '/'; from--) {}
  if (end == from || text[from] == '.') return;
  fputs(" &#183; ", to);
  eval_report_text_put(to, text + from, end - from, NAME_MOST, false);
}

static void put_title(FILE *to, const eval_report_data *d) {
  const json_t *groups = json_object_get(json_object_get(d->outcome, "scores"), "groups");
  const char *group = json_array_size(groups) == 1 ? eval_report_data_text(json_array_get(groups, 0), "name") : NULL;
  if (d->task_count == 1) put_name(to, d->units[0].name, NAME_MOST);
  else if (group) put_name(to, group, NAME_MOST);
  else fprintf(to, "%" PRIu32 " tasks", d->task_count);
  put_model(to, d);
}

static void put_lead(FILE *to, const eval_report_data *d) {
  const json_t *finished = json_object_get(d->run, "finished"), *device = json_object_get(d->run, "device");
  fputs("<p class=\"lead\"><b>", to);
  put_count(to, d->lines, "item", "items");
  fputs("</b> in <b>", to);
  put_count(to, d->task_count, "task", "tasks");
  fputs("</b>", to);
  if (json_is_string(device)) {
    fputs(", computed on <b><bdi>", to);
    eval_report_text_value(to, device, NAME_MOST);
    fputs("</bdi></b>", to);
  }
  if (json_is_string(finished)) {
    fputs(", finished <span class=\"whole\">", to);
    eval_report_text_value(to, finished, DIGEST_MOST);
    fputs("</span>", to);
  }
  fputs(".", to);
  if (!d->outcome || json_is_null(d->outcome)) fputs(" <b>The run has not ended: these are its results so far.</b>", to);
  fputs("</p>\n", to);
}

static const json_t *first_metric(const json_t *scores) { return json_array_get(json_object_get(scores, "metrics"), 0); }

static bool is_share(const json_t *metric) {
  const char *name = eval_report_data_text(metric, "name");
  double value = eval_report_data_number(metric, "value");
  return name && strncmp(name, "acc", 3) == 0 && value >= 0 && value <= 1;
}

static void put_metric_value(FILE *to, const json_t *metric, const char *key) {
  double value = eval_report_data_number(metric, key);
  if (is_share(metric)) eval_report_text_share(to, value);
  else eval_report_text_number(to, value);
}

static void begin_tile(FILE *to, const char *name) { fprintf(to, "<div><dt>%s</dt><dd><span class=\"big\">", name); }
static void end_tile(FILE *to) { fputs("</dd></div>\n", to); }

static void put_score_tile(FILE *to, const eval_report_data *d) {
  const json_t *groups = json_object_get(json_object_get(d->outcome, "scores"), "groups");
  const json_t *metric = json_array_size(groups) == 1 ? first_metric(json_array_get(groups, 0))
                         : d->task_count == 1         ? first_metric(d->units[0].scores) : NULL;
  if (!metric) return;
  fputs("<div><dt>", to);
  eval_report_text_value(to, json_object_get(metric, "name"), NAME_MOST);
  fputs("</dt><dd><span class=\"big\">", to);
  put_metric_value(to, metric, "value");
  fputs("</span><br/><small>95&#160;% interval ", to);
  put_metric_value(to, metric, "low");
  fputs(" to ", to);
  put_metric_value(to, metric, "high");
  fputs("</small>", to);
  end_tile(to);
}

/* How many items or answers of all tasks have the count. */
static uint64_t sum_counts(const eval_report_data *d, const char *key) {
  uint64_t sum = 0;
  for (uint32_t i = 0; i < d->unit_count; i++) {
    const json_t *count = d->units[i].is_subset ? NULL : json_object_get(d->units[i].scores, key);
    if (json_is_integer(count) && json_integer_value(count) > 0) sum += (uint64_t)json_integer_value(count);
  }
  return sum;
}

static void put_cut_tile(FILE *to, const eval_report_data *d) {
  uint64_t cut = sum_counts(d, "cut"), unended = sum_counts(d, "unended");
  if (cut + unended == 0) return;
  begin_tile(to, "answers cut at max_tokens");
  fprintf(to, "%" PRIu64 "</span>", cut);
  if (unended) fprintf(to, "<br/><small>%" PRIu64 " thoughts did not end</small>", unended);
  end_tile(to);
}

static void put_tiles(FILE *to, const eval_report_data *d) {
  const eval_margin_risk *risk = &d->all.risk;
  fputs("<dl class=\"tiles\">\n", to);
  put_score_tile(to, d);
  begin_tile(to, "items");
  const uint64_t told = risk->items + d->all.failed;
  fprintf(to, "%" PRIu64 "</span><br/><small>%" PRIu64 " right, %" PRIu64 " wrong, %" PRIu64 " failed", d->lines, risk->right,
          risk->items - risk->right, d->all.failed);
  if (d->lines > told) fprintf(to, ", %" PRIu64 " not judged", d->lines - told);
  fputs("</small>", to);
  end_tile(to);
  put_cut_tile(to, d);
  if (risk->known) {
    begin_tile(to, "fragile, below 2 ulps");
    eval_report_text_share(to, eval_margin_share(risk));
    fprintf(to, "</span><br/><small>%" PRIu64 " of %" PRIu64 " margins</small>", risk->fragile[0] + risk->fragile[1], risk->known);
    end_tile(to);
  }
  if (d->plan_count) {
    uint64_t flipped = 0;
    for (uint32_t p = 0; p < d->plan_count; p++) flipped += d->all.flips[p].flipped;
    begin_tile(to, "answers that flipped");
    fprintf(to, "%" PRIu64 "</span><br/><small>under ", flipped);
    put_count(to, d->plan_count, "other numerics", "other numerics");
    fputs("</small>", to);
    end_tile(to);
  }
  fputs("</dl>\n", to);
}

static void put_head(FILE *to, const eval_report_data *d) {
  fputs("<!DOCTYPE html>\n<html lang=\"en\" xmlns=\"http://www.w3.org/1999/xhtml\">\n<head>\n<meta charset=\"utf-8\"/>\n"
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\"/>\n"
        "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n"
        "<meta name=\"referrer\" content=\"no-referrer\"/>\n<title>", to);
  put_title(to, d);
  fputs(" &#183; Verbatim evaluation</title>\n<style>\n", to);
  eval_report_style_put(to);
  fputs("</style>\n</head>\n<body>\n<div class=\"page\">\n", to);
  eval_report_figure_patterns(to);
  fputs("<header><div><p class=\"brand\">Verbatim &#183; Evaluation</p>\n<h1>", to);
  put_title(to, d);
  fputs("</h1>\n", to);
  put_lead(to, d);
  fputs("</div>\n", to);
  eval_report_figure_seal(to, eval_report_data_text(d->manifest, "manifest_digest"));
  fputs("</header>\n<main>\n", to);
  put_tiles(to, d);
}

/* Column headings: names separated by '|'; "#" precedes the name of a column of numbers, "-" one of strips. */
static void begin_table(FILE *to, const char *names) {
  fputs("<table><thead><tr>", to);
  for (const char *at = names; *at;) {
    size_t length = strcspn(at, "|");
    const char *class = *at == '#' ? " class=\"num\"" : *at == '-' ? " class=\"strips\"" : "";
    size_t mark = class[0] != 0;
    fprintf(to, "<th scope=\"col\"%s>%.*s</th>", class, (int)(length - mark), at + mark);
    at += length + (at[length] == '|');
  }
  fputs("</tr></thead>\n<tbody>\n", to);
}

/* === Scores ================================================================================================================= */

/* Which interval it is. */
static void put_interval_name(FILE *to, const json_t *scores, const json_t *metric) {
  const json_t *clusters = json_object_get(scores, "clusters");
  fputs(" <small>", to);
  eval_report_text_value(to, json_object_get(metric, "interval"), NAME_MOST);
  if (json_is_integer(clusters)) fprintf(to, ", %" JSON_INTEGER_FORMAT " clusters", json_integer_value(clusters));
  fputs("</small>", to);
}

static void put_metric_cells(FILE *to, const json_t *scores, const json_t *metric) {
  fputs("<td data-name=\"metric\">", to);
  eval_report_text_value(to, json_object_get(metric, "name"), NAME_MOST);
  fputs("</td><td class=\"num\" data-name=\"score\"><b>", to);
  put_metric_value(to, metric, "value");
  fputs("</b></td><td class=\"num\" data-name=\"95 % interval\">", to);
  put_metric_value(to, metric, "low");
  fputs(" &#8211; ", to);
  put_metric_value(to, metric, "high");
  put_interval_name(to, scores, metric);
  fputs("</td><td class=\"strips\">", to);
  if (is_share(metric))
    eval_report_figure_interval(to, eval_report_data_number(metric, "value"), eval_report_data_number(metric, "low"),
                                eval_report_data_number(metric, "high"));
  fputs("</td></tr>\n", to);
}

/* What happened to items and answers, if anything did. */
static void put_counts(FILE *to, const json_t *scores) {
  static const char *const what[][2] = {{"failed", "failed"}, {"skipped", "too long, skipped"}, {"shortened", "cut from the left"},
                                        {"cut", "cut at max_tokens"}, {"unended", "thoughts did not end"}};
  for (size_t i = 0; i < ARRAY_LEN(what); i++) {
    const json_t *count = json_object_get(scores, what[i][0]);
    if (json_is_integer(count) && json_integer_value(count) > 0)
      fprintf(to, " <small>%" JSON_INTEGER_FORMAT " %s</small>", json_integer_value(count), what[i][1]);
  }
}

/* One row per metric; the first row has the name. */
static void put_score_rows(FILE *to, const char *name, const json_t *scores, const char *class) {
  const json_t *metrics = json_object_get(scores, "metrics"), *items = json_object_get(scores, "items");
  for (size_t i = 0; i < json_array_size(metrics) && i < METRICS_MOST; i++) {
    fprintf(to, "<tr class=\"%s\"><th scope=\"row\"><bdi>", class);
    if (i == 0) put_name(to, name, NAME_MOST);
    fputs("</bdi>", to);
    if (i == 0) put_counts(to, scores);
    fputs("</th><td class=\"num\" data-name=\"items\">", to);
    if (i == 0 && json_is_integer(items)) eval_report_text_value(to, items, NAME_MOST);
    fputs("</td>", to);
    put_metric_cells(to, scores, json_array_get(metrics, i));
  }
}

static bool is_in(const eval_report_unit *unit, const char *group) {
  const char *own = eval_report_data_text(unit->scores, "group");
  return own && strcmp(own, group) == 0;
}

/* The tasks of a group with their subsets; NULL: those of no group, and those whose group has no row. */
static void put_members(FILE *to, const eval_report_data *d, const char *group, bool *is_shown) {
  bool is_wanted = false;
  for (uint32_t i = 0; i < d->unit_count; i++) {
    const eval_report_unit *unit = &d->units[i];
    if (!unit->is_subset) is_wanted = unit->scores && !is_shown[i] && (!group || is_in(unit, group));
    if (!is_wanted || !unit->scores) continue;
    is_shown[i] = true;
    const char *class = unit->is_subset ? (group ? "sub inner" : "sub") : group ? "task member" : "task";
    put_score_rows(to, unit->name, unit->scores, class);
  }
}

static void put_scores(FILE *to, const eval_report_data *d) {
  const json_t *groups = json_object_get(json_object_get(d->outcome, "scores"), "groups");
  bool is_shown[EVAL_REPORT_DATA_UNITS] = {false};
  begin_section(to, "Scores", "<p>Each score with its 95&#160;% interval and the method that gave it: Wilson's for shares, a "
                              "bootstrap for perplexities, MOVER for means of tasks. The bar is the interval, the dot the score.</p>");
  fputs("<div class=\"scores\">\n", to);
  begin_table(to, "task|#items|metric|#score|#95&#160;% interval|-<span class=\"scale\"><span>0</span><span>50</span><span>100&#160;%"
                  "</span></span>");
  for (size_t i = 0; i < json_array_size(groups) && i < GROUPS_MOST; i++) {
    const char *name = eval_report_data_text(json_array_get(groups, i), "name");
    if (!name) continue;
    put_score_rows(to, name, json_array_get(groups, i), "group");
    put_members(to, d, name, is_shown);
  }
  put_members(to, d, NULL, is_shown);
  fputs("</tbody></table>\n</div>\n", to);
  if (d->units_left_out) fprintf(to, "<p class=\"soft\">%" PRIu64 " more tasks or subsets are not shown.</p>\n", d->units_left_out);
  if (d->strangers)
    fprintf(to, "<p class=\"soft\">%" PRIu64 " lines of results belong to no task shown here and count in no figure but the total.</p>\n",
            d->strangers);
  end_section(to);
}

/* === Flip risk ============================================================================================================== */

static void put_legend_entry(FILE *to, const char *shape, const char *text, uint64_t count) {
  fprintf(to, "<li><svg aria-hidden=\"true\"><rect width=\"14\" height=\"12\" rx=\"2\" %s/></svg>%s", shape, text);
  if (count != UINT64_MAX) fprintf(to, " <span class=\"soft\">%" PRIu64 "</span>", count);
  fputs("</li>", to);
}

static uint64_t sum_of(const uint64_t *counts, uint32_t count) {
  uint64_t sum = 0;
  for (uint32_t i = 0; i < count; i++) sum += counts[i];
  return sum;
}

static void put_risk_row(FILE *to, const eval_report_unit *unit) {
  const eval_margin_risk *risk = &unit->risk;
  fprintf(to, "<tr class=\"%s\"><th scope=\"row\"><bdi>", unit->is_subset ? "sub" : "task");
  put_name(to, unit->name, NAME_MOST);
  fprintf(to, "</bdi></th><td class=\"num\" data-name=\"margins\">%" PRIu64 "</td><td class=\"num\" data-name=\"fragile\">%" PRIu64
              " <small>(", risk->known, risk->fragile[0] + risk->fragile[1]);
  eval_report_text_share(to, eval_margin_share(risk));
  fputs(")</small></td><td class=\"num\" data-name=\"score if they flip\">", to);
  eval_report_text_share(to, eval_margin_lowest(risk));
  fputs(" &#8211; ", to);
  eval_report_text_share(to, eval_margin_highest(risk));
  fputs("</td><td class=\"strips\">", to);
  eval_report_figure_range(to, risk);
  fputs("</td><td class=\"strips\">", to);
  eval_report_figure_bins(to, risk);
  fputs("</td></tr>\n", to);
}

static void put_risk_table(FILE *to, const eval_report_data *d) {
  fputs("<h3>What depends on fragile answers</h3>\n<ul class=\"legend\">", to);
  put_legend_entry(to, "class=\"right\"", "right in any case", UINT64_MAX);
  put_legend_entry(to, "fill=\"url(#lose)\"", "right, but fragile", UINT64_MAX);
  put_legend_entry(to, "fill=\"url(#gain)\"", "wrong, but fragile", UINT64_MAX);
  fputs("</ul>\n", to);
  begin_table(to, "task|#margins|#fragile|#score if they flip|-score|-margins, 0 to 4096 ulps");
  for (uint32_t i = 0; i < d->unit_count; i++)
    if (d->units[i].risk.known) put_risk_row(to, &d->units[i]);
  fputs("</tbody></table>\n", to);
}

static void put_risk(FILE *to, const eval_report_data *d) {
  begin_section(to, "Flip risk",
                "<p>A close decision may go the other way on another machine. An answer's margin is the smallest gap between what "
                "was chosen and what came second, in units of the last place of bf16 at that logit.</p><p>Below 2&#160;ulps an answer is "
                "fragile. At 0 it is a tie. Sampled requests and perplexities have no margin.</p>");
  if (d->all.risk.known == 0) {
    fputs("<p>No item of this run has a margin.</p>\n", to);
    end_section(to);
    return;
  }
  fputs("<h3 style=\"margin-top:0\">Share of items with a smaller margin</h3>\n<ul class=\"legend\">", to);
  put_legend_entry(to, "class=\"right\"", "right answers", sum_of(d->margins.counts[1], EVAL_REPORT_DATA_FINE));
  put_legend_entry(to, "class=\"wrong\"", "wrong answers", sum_of(d->margins.counts[0], EVAL_REPORT_DATA_FINE));
  put_legend_entry(to, "class=\"fragile\" opacity=\"0.35\"", "fragile", d->all.risk.fragile[0] + d->all.risk.fragile[1]);
  fputs("</ul>\n", to);
  eval_report_figure_curves(to, &d->margins);
  put_risk_table(to, d);
  end_section(to);
}

/* === Other numerics ========================================================================================================= */

static void put_points_between(FILE *to, uint64_t from, uint64_t upto, uint64_t items) {
  double points = items ? 100 * ((double)upto - (double)from) / (double)items : 0;
  fprintf(to, "%s%.1f", points > 0 ? "+" : points < 0 ? "&#8722;" : "", fabs(points));
}

static void put_flip_row(FILE *to, const eval_report_unit *unit, uint32_t plan) {
  const eval_report_flips *f = &unit->flips[plan];
  uint64_t here = f->right + f->lost - f->gained;
  fprintf(to, "<tr class=\"%s\"><th scope=\"row\"><bdi>", unit->is_subset ? "sub" : "task");
  put_name(to, unit->name, NAME_MOST);
  fputs("</bdi></th><td class=\"num\" data-name=\"here\">", to);
  eval_report_text_share(to, (double)here / (double)f->items);
  fputs("</td><td class=\"num\" data-name=\"there\">", to);
  eval_report_text_share(to, (double)f->right / (double)f->items);
  fputs("</td><td class=\"num\" data-name=\"points\">", to);
  put_points_between(to, here, f->right, f->items);
  fprintf(to, "</td><td class=\"num\" data-name=\"flipped\">%" PRIu64 " <small>of %" PRIu64 "</small></td><td class=\"num\" "
              "data-name=\"lost\">%" PRIu64 "</td><td class=\"num\" data-name=\"gained\">%" PRIu64 "</td></tr>\n",
          f->flipped, f->items, f->lost, f->gained);
}

static void put_plan(FILE *to, const eval_report_data *d, uint32_t plan) {
  const json_t *setup = json_array_get(json_object_get(d->setup, "perturbed"), plan);
  fputs("<h3>numerics <code>", to);
  eval_report_text_value(to, json_object_get(setup, "numerics_id"), DIGEST_MOST);
  fputs("</code></h3>\n", to);
  begin_table(to, "task|#here|#there|#points|#flipped|#lost|#gained");
  for (uint32_t i = 0; i < d->unit_count; i++)
    if (d->units[i].flips[plan].items && (!d->units[i].is_subset || d->units[i].flips[plan].flipped)) put_flip_row(to, &d->units[i], plan);
  fputs("</tbody></table>\n", to);
  const eval_report_steps *moved = &d->moved[plan];
  if (sum_of(moved->counts[0], EVAL_REPORT_DATA_FINE) + sum_of(moved->counts[1], EVAL_REPORT_DATA_FINE) == 0) return;
  fputs("<ul class=\"legend\">", to);
  put_legend_entry(to, "class=\"wrong\"", "answer flipped", sum_of(moved->counts[1], EVAL_REPORT_DATA_FINE));
  put_legend_entry(to, "class=\"right\"", "answer kept", sum_of(moved->counts[0], EVAL_REPORT_DATA_FINE));
  fputs("</ul>\n", to);
  eval_report_figure_moved(to, moved);
}

static void put_plans(FILE *to, const eval_report_data *d) {
  if (d->plan_count == 0) return;
  begin_section(to, "Other numerics",
                "<p>The same tasks under other valid numerics of the same model. An answer flips when it changes. Lost: right "
                "here and wrong there. Gained: the other way round. With several samples, the first counts. Subsets without a flip are not "
                "shown.</p><p>Bars: of the margins in each power of two, the share that flipped. Dots: items, larger where there are "
                "many.</p>");
  for (uint32_t p = 0; p < d->plan_count; p++) put_plan(to, d, p);
  if (d->flipped.count == 0) fputs("<p>No answer flipped.</p>\n", to);
  eval_report_items_table(to, d, &d->flipped, "items that flipped", true);
  end_section(to);
}

/* === Items, files and proof ================================================================================================= */

static void put_list(FILE *to, const eval_report_data *d, const eval_report_list *list, const char *title, const char *what) {
  if (list->count == 0) return;
  fprintf(to, "<h3>%s</h3>\n", title);
  eval_report_items_table(to, d, list, what, false);
}

static void put_items(FILE *to, const eval_report_data *d) {
  if (d->fragile.count + d->wrong.count + d->failed.count + d->skipped.count == 0) return;
  begin_section(to, "Items",
                "<p>What was asked and answered, the wrong ones first; where the closest decision of an answer fell, and by how "
                             "much. Invisible characters are shown by name.</p>");
  put_list(to, d, &d->wrong, "Wrong answers", "wrong answers, in order of the items");
  put_list(to, d, &d->failed, "Not computed to the end", "items that failed");
  put_list(to, d, &d->skipped, "Too long", "items that were skipped");
  put_list(to, d, &d->fragile, "Smallest margins", "items, the most fragile first");
  end_section(to);
}

static void put_tasks(FILE *to, const eval_report_data *d) {
  uint32_t shown = 0;
  if (d->task_count == 0) return;
  begin_section(to, "Tasks", "<p>What was asked: every parameter with its default, and the task files as they were.</p>");
  for (uint32_t i = 0; i < d->unit_count && shown < UNITS_TOLD; i++)
    if (!d->units[i].is_subset) eval_report_items_task(to, &d->units[i]), shown++;
  if (shown < d->task_count) fprintf(to, "<p class=\"soft\">%" PRIu32 " more tasks are in the manifest.</p>\n", d->task_count - shown);
  end_section(to);
}

static void put_fact(FILE *to, const json_t *object, const char *key, const char *name, const char *tag) {
  const json_t *value = json_object_get(object, key);
  if (!value || json_is_null(value)) return;
  fprintf(to, "<dt>%s</dt><dd><%s>", name, tag);
  eval_report_text_value(to, value, PATH_MOST);
  fprintf(to, "</%s></dd>\n", tag);
}

static void put_flag(FILE *to, const char *flag, const json_t *path) {
  char *text = NULL;
  size_t bytes = 0;
  FILE *word = open_memstream(&text, &bytes);
  if (!word) return;
  bool good = eval_report_text_word(word, path);
  if (fclose(word) == 0 && good) fprintf(to, " %s %s", flag, text);
  free(text);
}

static void put_proof(FILE *to, const eval_report_data *d) {
  begin_section(to, "Proof", "<p>The same plan, model and tasks give the same bytes again, here or elsewhere. A repeated run gives "
                             "these digests, or the first item that differs is named.</p>");
  fputs("<dl class=\"proof\">\n", to);
  put_fact(to, d->manifest, "manifest_digest", "manifest", "code");
  put_fact(to, d->outcome, "receipt_digest", "receipt", "code");
  put_fact(to, d->outcome, "results_digest", "results", "code");
  put_fact(to, d->setup, "numerics_id", "numerics id", "code");
  put_fact(to, d->setup, "weights_digest", "weights", "code");
  put_fact(to, d->setup, "tokenizer_digest", "tokenizer", "code");
  put_fact(to, d->setup, "config_digest", "config.json", "code");
  put_fact(to, d->run, "plan_digest", "plan", "code");
  put_fact(to, json_object_get(d->manifest, "sha256"), "results", "SHA-256 of results.jsonl", "code");
  put_fact(to, json_object_get(d->manifest, "sha256"), "receipt", "of the receipt", "code");
  put_fact(to, json_object_get(d->manifest, "sha256"), "weights", "of the weights", "code");
  put_fact(to, json_object_get(d->manifest, "sha256"), "config", "of config.json", "code");
  put_fact(to, json_object_get(d->manifest, "sha256"), "plan", "of the plan", "code");
  put_fact(to, d->run, "device", "device", "bdi");
  put_fact(to, d->run, "version", "Verbatim", "bdi");
  put_fact(to, d->run, "started", "started", "bdi");
  put_fact(to, d->run, "finished", "finished", "bdi");
  fputs("</dl>\n<p class=\"soft\">To repeat it, in the folder of this file:</p>\n<pre tabindex=\"0\">verbatim replay manifest.json", to);
  put_flag(to, "--plan", json_object_get(d->run, "plan"));
  put_flag(to, "--model", json_object_get(d->run, "model"));
  fputs("</pre>\n", to);
  end_section(to);
}

/* === The page =============================================================================================================== */

status eval_report_put(FILE *to, const json_t *manifest, const json_t *results) {
  eval_report_data *d;
  TRY(eval_report_data_gather(manifest, results, &d));
  put_head(to, d);
  put_scores(to, d);
  put_proof(to, d);
  put_risk(to, d);
  put_plans(to, d);
  put_items(to, d);
  put_tasks(to, d);
  fputs("</main>\n<footer>Computed by Verbatim, which gives the same bits for the same request every time. This page needs no network and "
        "runs no script; it is made from manifest.json and results.jsonl alone.</footer>\n</div>\n</body>\n</html>\n", to);
  free(d);
  return OK;
}

status eval_report_write(const char *path, const json_t *manifest, const json_t *results) {
  char *text = NULL;
  size_t bytes = 0;
  FILE *to = open_memstream(&text, &bytes);
  if (!to) return FAIL(ERR_LIMIT, "%s: no memory", path);
  status result = eval_report_put(to, manifest, results);
  if (fclose(to) != 0 && result == OK) result = FAIL(ERR_LIMIT, "%s: no memory", path);
  if (result == OK) result = whole_file_write(path, text, bytes);
  free(text);
  return result;
}

/* eval/report/items.c - see eval/report/items.h. One function writes each kind of cell. */
#include "eval/report/items.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "eval/report/text.h"

#define TEXT_MOST 400u       /* code points of an answer, at most */
#define ID_MOST 80u
#define FILE_MOST 20000u

/* === Questions and answers
 * ================================================================================================================ */

static void put_cell(FILE *to, const char *name, const char *class) { fprintf(to, "<td class=\"%s\" data-name=\"%s\">", class, name); }

static void put_isolated(FILE *to, const json_t *value) {
  fputs("<bdi>", to);
  eval_report_text_value(to, value, TEXT_MOST);
  fputs("</bdi>", to);
}

/* The end of the prompt, where the question is, and how much comes before it. */
static void put_prompt(FILE *to, const json_t *line) {
  const json_t *prompt = json_object_get(line, "prompt"), *all = json_object_get(line, "prompt_bytes");
  const char *text = json_string_value(prompt);
  size_t bytes = json_string_length(prompt), from = bytes;
  put_cell(to, "prompt", "text");
  for (uint32_t points = 0; from && points < TEXT_MOST; points++)
    for (from--; from && ((unsigned char)text[from] & 0xc0) == 0x80;) from--;
  json_int_t before = (json_int_t)from;
  if (json_is_integer(all) && json_integer_value(all) > (json_int_t)bytes) before = json_integer_value(all) - (json_int_t)(bytes - from);
  fputs("<bdi>", to);
  if (before) fprintf(to, "(%" JSON_INTEGER_FORMAT " bytes before) &#8230;", before);
  if (text) eval_report_text_put(to, text + from, bytes - from, TEXT_MOST, false);
  else fputs("&#8211;", to);
  fputs("</bdi></td>", to);
}

/* Choice `index` of a line: its text if the line has it, and its number. */
static void put_choice(FILE *to, const json_t *line, const json_t *index) {
  const json_t *choice = json_is_integer(index) && json_integer_value(index) >= 0
                             ? json_array_get(json_object_get(line, "choices"), (size_t)json_integer_value(index)) : NULL;
  const json_t *text = json_object_get(choice, "text");
  if (text) put_isolated(to, text);
  fputs(text ? " <small>choice " : "<small>choice ", to);
  eval_report_text_value(to, index, ID_MOST);
  fputs("</small>", to);
}

static bool is_choice(const json_t *line) { return json_object_get(line, "choices") != NULL; }

/* The extracted answer, and the text it came from if that says more. */
static void put_given(FILE *to, const json_t *line) {
  const json_t *text = json_object_get(line, "text"), *extracted = json_object_get(line, "extracted");
  put_cell(to, "answer", "text");
  if (is_choice(line)) put_choice(to, line, json_object_get(line, "best"));
  else if (!extracted || json_equal(extracted, text)) put_isolated(to, text);
  else {
    put_isolated(to, extracted);
    fputs("<small class=\"in\">in: ", to);
    put_isolated(to, text);
    fputs("</small>", to);
  }
  fputs("</td>", to);
}

static void put_expected(FILE *to, const json_t *line) {
  const json_t *answer = json_object_get(line, "answer");
  put_cell(to, "expected", "text");
  if (is_choice(line)) put_choice(to, line, answer);
  else put_isolated(to, answer);
  fputs("</td>", to);
}

/* What happened to the item on its way. */
static void put_marks(FILE *to, const json_t *line) {
  const char *finish = json_string_value(json_object_get(line, "finish"));
  const json_t *dropped = json_object_get(line, "dropped");
  if (finish && strcmp(finish, "length") == 0) fputs(" <small class=\"in\">cut at max_tokens</small>", to);
  if (json_is_true(json_object_get(line, "unended"))) fputs(" <small class=\"in\">thought did not end</small>", to);
  if (json_is_integer(dropped))
    fprintf(to, " <small class=\"in\">%" JSON_INTEGER_FORMAT " tokens cut from the left</small>", json_integer_value(dropped));
}

static void put_verdict(FILE *to, const eval_report_item *item) {
  put_cell(to, "", item->is_right ? "yes" : "no");
  fputs(item->failed ? "failed" : !item->is_judged ? "&#8211;" : item->is_right ? "right" : "wrong", to);
  put_marks(to, item->line);
  fputs("</td>", to);
}

static void put_margin(FILE *to, const eval_report_item *item) {
  put_cell(to, "margin, ulps", "num");
  if (!item->margin.known) fputs("&#8211;", to);
  else if (item->margin.ulps == 0) fputs("0, a tie", to);
  else eval_report_text_number(to, item->margin.ulps);
  fputs("</td>", to);
  put_cell(to, "nats", "num");
  if (item->margin.known) eval_report_text_number(to, item->margin.logprob);
  else fputs("&#8211;", to);
  fputs("</td>", to);
  put_cell(to, "at", "num");
  if (!item->margin.known) fputs("&#8211;", to);
  else fprintf(to, "%s %" PRIu32, is_choice(item->line) ? "choice" : "token", item->margin.at);
  fputs("</td>", to);
}

/* === Rows =================================================================================================================== */

static void put_name(FILE *to, const eval_report_data *d, const eval_report_item *item) {
  const json_t *id = json_object_get(item->line, "id"), *subset = json_object_get(item->line, "subset");
  fputs("<th scope=\"row\"><bdi>", to);
  eval_report_text_value(to, id, ID_MOST);
  fputs("</bdi> <small>", to);
  if (d->task_count > 1) {
    const char *task = d->units[item->unit].name;
    eval_report_text_put(to, task, strlen(task), ID_MOST, false);
  }
  if (subset && !json_is_null(subset)) {
    fputs(d->task_count > 1 ? " / " : "", to);
    eval_report_text_value(to, subset, ID_MOST);
  }
  fputs("</small></th>", to);
}

static void put_others(FILE *to, const eval_report_data *d, const eval_report_item *item) {
  const json_t *perturbed = json_object_get(item->line, "perturbed");
  put_cell(to, "other numerics", "");
  for (uint32_t p = 0; p < d->plan_count; p++) {
    const json_t *other = json_array_get(perturbed, p), *verdict = json_object_get(other, "correct");
    if (!verdict) verdict = json_object_get(other, "acc");
    fprintf(to, "%s<span class=\"%s\">%s</span>%s", p ? ", " : "", json_is_true(verdict) ? "yes" : "no",
            json_is_true(verdict) ? "right" : "wrong", json_is_true(json_object_get(other, "flipped")) ? "" : " (same)");
  }
  fputs("</td>", to);
}

void eval_report_items_table(FILE *to, const eval_report_data *d, const eval_report_list *list, const char *what, bool shows_other) {
  if (list->count == 0) return;
  fputs("<table><caption>", to);
  if (list->total > list->count) fprintf(to, "%" PRIu32 " of %" PRIu64 " %s", list->count, list->total, what);
  else fprintf(to, "%" PRIu32 " %s", list->count, what);
  fprintf(to, "</caption><thead><tr><th scope=\"col\">item</th><th scope=\"col\">prompt</th><th scope=\"col\">answer</th>"
              "<th scope=\"col\">expected</th><th scope=\"col\">%s</th><th scope=\"col\" class=\"num\">margin, ulps</th>"
              "<th scope=\"col\" class=\"num\">nats</th><th scope=\"col\" class=\"num\">at</th></tr></thead>\n<tbody>\n",
          shows_other ? "here</th><th scope=\"col\">other" : "");
  for (uint32_t i = 0; i < list->count; i++) {
    const eval_report_item *item = &list->rows[i];
    fputs("<tr>", to);
    put_name(to, d, item);
    put_prompt(to, item->line);
    put_given(to, item->line);
    put_expected(to, item->line);
    put_verdict(to, item);
    if (shows_other) put_others(to, d, item);
    put_margin(to, item);
    fputs("</tr>\n", to);
  }
  fputs("</tbody></table>\n", to);
}

/* === Tasks ================================================================================================================== */

static void put_file(FILE *to, const json_t *file, const char *what, bool shows_text) {
  const json_t *text = json_object_get(file, "text");
  if (!json_is_object(file)) return;
  fprintf(to, "<p><span class=\"soft\">%s</span> <bdi>", what);
  eval_report_text_value(to, json_object_get(file, "name"), TEXT_MOST);
  fputs("</bdi> <code>", to);
  eval_report_text_value(to, json_object_get(file, "digest"), ID_MOST);
  fputs("</code></p>\n", to);
  if (!shows_text || !json_is_string(text)) return;
  fputs("<pre tabindex=\"0\">", to);
  eval_report_text_put(to, json_string_value(text), json_string_length(text), FILE_MOST, true);
  fputs("</pre>\n", to);
}

void eval_report_items_task(FILE *to, const eval_report_unit *task) {
  const json_t *parameters = json_object_get(task->setup, "parameters");
  fputs("<details><summary><bdi>", to);
  eval_report_text_put(to, task->name, strlen(task->name), TEXT_MOST, false);
  fputs("</bdi></summary>\n", to);
  put_file(to, json_object_get(task->setup, "file"), "task file", true);
  put_file(to, json_object_get(task->setup, "items"), "items", false);
  put_file(to, json_object_get(task->setup, "shots"), "examples", false);
  char *text = parameters ? json_dumps(parameters, JSON_INDENT(2) | JSON_ENCODE_ANY) : NULL;
  if (text) {
    fputs("<p class=\"soft\">effective parameters</p><pre tabindex=\"0\">", to);
    eval_report_text_put(to, text, strlen(text), FILE_MOST, true);
    fputs("</pre>\n", to);
  }
  free(text);
  fputs("</details>\n", to);
}

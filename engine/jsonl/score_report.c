/* score_report.c - see score_report.h. Results, then lines, then the summary. */
#include "jsonl/score_report.h"
#include "base/digest.h"
#include "jsonl/json_line.h"
#include "jsonl/nonfinite.h"
#include "receipts/receipt.h"
#include "jsonl/score_tokens.h"
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define FLOAT_DIGITS 9   /* digits from which an fp32 reads back unchanged */
#define DOUBLE_DIGITS 17

/* === Results ================================================================================================================ */

score_result score_report_result(const verbatim_request *requests, uint32_t request_count) {
  score_result result = {.is_greedy = true};
  for (uint32_t r = 0; r < request_count; r++) {
    if (requests[r].finish != VERBATIM_LENGTH) return (score_result){.failed = &requests[r]};
    result.token_count += requests[r].score_count;
    for (uint32_t i = 0; i < requests[r].score_count; i++) {
      result.logprob += (double)requests[r].scores[i].logprob;
      result.is_greedy = result.is_greedy && requests[r].scores[i].rank == 0;
    }
  }
  return result;
}

static bool all_scored(const score_item *item, const score_result *results) {
  for (uint32_t i = 0; i < item->part_count; i++)
    if (results[i].failed) return false;
  return true;
}

int32_t score_report_best(const score_item *item, const score_result *results) {
  if (!all_scored(item, results)) return -1;
  uint32_t best = 0;
  for (uint32_t i = 1; i < item->part_count; i++)
    if (results[i].logprob > results[best].logprob) best = i;
  return (int32_t)best;
}

static double normalised(const score_item *item, const score_result *results, uint32_t part) {
  return results[part].logprob / (double)score_tokens_norm(&item->parts[part]);
}

int32_t score_report_best_norm(const score_item *item, const score_result *results) {
  if (!all_scored(item, results) || !item->parts[0].text) return -1;
  uint32_t best = 0;
  for (uint32_t i = 1; i < item->part_count; i++)
    if (normalised(item, results, i) > normalised(item, results, best)) best = i;
  return (int32_t)best;
}

/* === Lines ================================================================================================================== */

/* JSON has no infinity, which a sum of log-probabilities beyond fp32 is. */
static void put_number(FILE *to, double value, int digits) {
  if (isfinite(value)) fprintf(to, "%.*g", digits, value);
  else fputs("null", to);
}

static void put_alternatives(FILE *to, const verbatim_request *r, uint32_t i) {
  const verbatim_alternative *top = r->alternatives + (size_t)i * r->top_logprobs;
  putc('[', to);
  for (uint32_t k = 0; k < r->top_logprobs; k++) {
    fprintf(to, "%s{\"id\":%" PRId32 ",\"logprob\":", k ? "," : "", top[k].id);
    put_number(to, (double)top[k].logprob, FLOAT_DIGITS);
    putc('}', to);
  }
  putc(']', to);
}

typedef enum column { IDS, LOGPROBS, RANKS, ALTERNATIVES } column;

/* "key":[one entry for each scored token of the requests] */
static void put_column(FILE *to, const char *key, column kind, const verbatim_request *requests, uint32_t request_count) {
  bool first = true;
  fprintf(to, ",\"%s\":[", key);
  for (uint32_t r = 0; r < request_count; r++)
    for (uint32_t i = 0; i < requests[r].score_count; i++, first = false) {
      const verbatim_token *token = &requests[r].scores[i];
      if (!first) putc(',', to);
      if (kind == IDS) fprintf(to, "%" PRId32, token->id);
      else if (kind == RANKS) fprintf(to, "%" PRIu32, token->rank);
      else if (kind == LOGPROBS) put_number(to, (double)token->logprob, FLOAT_DIGITS);
      else put_alternatives(to, &requests[r], i);
    }
  putc(']', to);
}

/* How the request ended, and where NaN or Inf first appeared. */
static void put_failure(FILE *to, const verbatim_request *failed) {
  json_t *fault = nonfinite_json(failed);
  fprintf(to, "\"finish\":\"%s\"", receipt_finish_name(failed->finish));
  if (!fault) return;
  fputs(",\"fault\":", to);
  json_dumpf(fault, to, JSON_COMPACT);
  json_decref(fault);
}

/* The members that describe one part, without braces and the first comma. */
static void put_part(FILE *to, const score_item *item, uint32_t part, const score_result *result, const verbatim_request *requests,
                     uint32_t request_count) {
  if (result->failed) {
    put_failure(to, result->failed);
    return;
  }
  fputs("\"logprob\":", to);
  put_number(to, result->logprob, DOUBLE_DIGITS);
  fprintf(to, ",\"token_count\":%" PRIu32 ",\"is_greedy\":%s", result->token_count, result->is_greedy ? "true" : "false");
  const score_part *source = &item->parts[part];
  bool whole = !item->context.text && !item->context.ids;
  if (source->text) fprintf(to, ",\"bytes\":%" PRIu64, whole ? (uint64_t)source->bytes : score_tokens_bytes(source));
  if (source->text && whole) fprintf(to, ",\"words\":%" PRIu64, score_tokens_words(source));
  if (whole) fprintf(to, ",\"windows\":%" PRIu32, request_count);
  put_column(to, "tokens", IDS, requests, request_count);
  put_column(to, "logprobs", LOGPROBS, requests, request_count);
  put_column(to, "ranks", RANKS, requests, request_count);
  if (requests[0].top_logprobs) put_column(to, "alternatives", ALTERNATIVES, requests, request_count);
}

static void put_best(FILE *to, const char *key, const char *right, int32_t best, int32_t answer) {
  if (best < 0) return;
  fprintf(to, ",\"%s\":%" PRId32, key, best);
  if (answer >= 0) fprintf(to, ",\"%s\":%s", right, best == answer ? "true" : "false");
}

static void put_choices(FILE *to, const score_item *item, const score_result *results, const verbatim_request *requests) {
  fputs("\"choices\":[", to);
  for (uint32_t i = 0; i < item->part_count; i++) {
    fputs(i ? ",{" : "{", to);
    put_part(to, item, i, &results[i], &requests[i], 1);
    putc('}', to);
  }
  putc(']', to);
  if (item->answer >= 0) fprintf(to, ",\"answer\":%" PRId32, item->answer);
  put_best(to, "best", "acc", score_report_best(item, results), item->answer);
  put_best(to, "best_norm", "acc_norm", score_report_best_norm(item, results), item->answer);
}

status score_report_json(FILE *to, const uint8_t *numerics_id, const score_item *item, const score_result *results,
                         const verbatim_request *requests, uint32_t request_count) {
  static const char *const own[] = {"logprob", "token_count", "is_greedy", "bytes", "words", "windows", "tokens", "logprobs", "ranks",
                                    "alternatives", "finish", "fault", "best", "acc", "best_norm", "acc_norm"};
  char digits[DIGEST_TEXT_BYTES];
  json_t *line = item->echo ? json_loads(item->echo, JSON_ALLOW_NUL, NULL) : json_object();
  for (size_t i = 0; i < ARRAY_LEN(own); i++) json_object_del(line, own[i]); /* of two members with one name a reader may take either */
  int failed = json_object_set_new(line, "id", json_string(item->id));
  failed |= json_object_set_new(line, "numerics_id", json_string(digest_text(numerics_id, digits)));
  if (item->task) failed |= json_object_set_new(line, "task", json_string(item->task));
  char *head = failed ? NULL : json_dumps(line, JSON_COMPACT);
  json_decref(line);
  if (!head) return FAIL(ERR_LIMIT, "output: no memory");
  fprintf(to, "%.*s,", (int)strlen(head) - 1, head);
  free(head);
  if (item->is_list) put_choices(to, item, results, requests);
  else put_part(to, item, 0, results, requests, request_count);
  fputs("}\n", to);
  return ferror(to) ? FAIL(ERR_IO, "output of item %s could not be written", item->id) : OK;
}

static void print_part(FILE *to, const score_result *r) {
  char text[NONFINITE_TEXT_BYTES];
  if (!r->failed) fprintf(to, "%.6f  %" PRIu32 " tokens%s\n", r->logprob, r->token_count, r->is_greedy ? "  greedy" : "");
  else if (r->failed->finish != VERBATIM_NONFINITE) fprintf(to, "ended: %s\n", receipt_finish_name(r->failed->finish));
  else fprintf(to, "NaN or Inf in the logits%s\n", nonfinite_text(r->failed, text));
}

status score_report_text(FILE *to, const score_item *item, const score_result *results) {
  int32_t best = score_report_best(item, results), best_norm = score_report_best_norm(item, results);
  fprintf(to, "[%s]%s", item->id, item->is_list ? "" : " ");
  if (item->is_list && best >= 0) fprintf(to, " best %" PRId32, best);
  if (item->is_list && best_norm >= 0) fprintf(to, ", per byte %" PRId32, best_norm);
  if (item->answer >= 0) fprintf(to, "%s answer %" PRId32, best >= 0 ? "," : "", item->answer);
  if (item->is_list) putc('\n', to);
  for (uint32_t i = 0; i < item->part_count; i++) {
    if (item->is_list) fprintf(to, "%6" PRIu32 "  ", i);
    print_part(to, &results[i]);
  }
  return ferror(to) ? FAIL(ERR_IO, "output of item %s could not be written", item->id) : OK;
}

/* === Summary ================================================================================================================ */

static void add_value(score_mean *self, double value) {
  double before = value - self->mean;
  self->count++;
  self->mean += before / (double)self->count;
  self->squares += before * (value - self->mean);
}

/* Of the mean, from the sample variance; NaN for a single value. */
static double standard_error(const score_mean *self) {
  double count = (double)self->count;
  return sqrt(self->squares / (count - 1) / count);
}

/* Finds or adds the task; NULL: no memory. */
static score_task *find_task(score_summary *self, const char *name) {
  if (self->last >= self->count || strcmp(self->list[self->last].name, name) != 0)
    for (self->last = 0; self->last < self->count && strcmp(self->list[self->last].name, name) != 0;) self->last++;
  if (self->last == self->count) {
    if (self->count == self->room) {
      uint32_t room = self->room ? 2 * self->room : 16;
      score_task *grown = realloc(self->list, room * sizeof *grown);
      if (!grown) return NULL;
      self->list = grown;
      self->room = room;
    }
    score_task added = {.name = json_line_copy(name, strlen(name))};
    if (!added.name) return NULL;
    self->list[self->count++] = added;
  }
  return &self->list[self->last];
}

static void add_whole(score_task *task, const score_part *part, const score_result *result) {
  task->whole_items++;
  task->whole_sum += result->logprob;
  task->whole_tokens += result->token_count;
  if (part->text) {
    task->whole_words += score_tokens_words(part);
    task->whole_bytes += part->bytes;
  } else task->has_whole_ids = true;
}

static void add_pair(score_task *task, const score_result *result) {
  add_value(&task->pair_logprob, result->logprob);
  add_value(&task->pair_greedy, result->is_greedy);
  task->pair_sum += result->logprob;
  task->pair_tokens += result->token_count;
}

status score_report_add(score_summary *self, const score_item *item, const score_result *results) {
  score_task *task = find_task(self, item->task ? item->task : "all");
  if (!task) return json_line_no_memory();
  task->items++;
  if (!all_scored(item, results)) {
    task->failed++;
    return OK;
  }
  if (item->answer >= 0) {
    int32_t best_norm = score_report_best_norm(item, results);
    add_value(&task->acc, score_report_best(item, results) == item->answer);
    if (best_norm >= 0) add_value(&task->acc_norm, best_norm == item->answer);
  } else if (!item->context.text && !item->context.ids) add_whole(task, &item->parts[0], &results[0]);
  else
    for (uint32_t i = 0; i < item->part_count; i++) add_pair(task, &results[i]);
  return OK;
}

static void print_mean(FILE *to, const char *name, const score_mean *mean) {
  if (mean->count == 0) return;
  fprintf(to, "  %-16s %10.4f", name, mean->mean);
  if (mean->count > 1) fprintf(to, " +- %.4f", standard_error(mean));
  fprintf(to, "  (%" PRIu64 ")\n", mean->count);
}

static void print_perplexity(FILE *to, const char *name, double sum, uint64_t count, const char *unit) {
  if (count) fprintf(to, "  %-16s %10.6g  (%" PRIu64 " %s)\n", name, exp(-sum / (double)count), count, unit);
}

void score_report_print(const score_summary *self, FILE *to) {
  for (uint32_t i = 0; i < self->count; i++) {
    const score_task *t = &self->list[i];
    bool has_text = t->whole_items && !t->has_whole_ids;
    fprintf(to, "%s: %" PRIu32 " items\n", t->name, t->items);
    print_mean(to, "acc", &t->acc);
    print_mean(to, "acc_norm", &t->acc_norm);
    print_mean(to, "logprob", &t->pair_logprob);
    print_mean(to, "greedy", &t->pair_greedy);
    print_perplexity(to, "perplexity", t->pair_sum, t->pair_tokens, "tokens of continuations");
    print_perplexity(to, "token_perplexity", t->whole_sum, t->whole_tokens, "tokens of texts");
    print_perplexity(to, "word_perplexity", t->whole_sum, has_text ? t->whole_words : 0, "words");
    print_perplexity(to, "byte_perplexity", t->whole_sum, has_text ? t->whole_bytes : 0, "bytes");
    if (t->failed) fprintf(to, "  %-16s %10" PRIu32 "  NaN or Inf in the logits, or out of time\n", "failed", t->failed);
  }
}

/* Leaves out an infinite value, as very unlikely texts have: JSON cannot express it. */
static void set_real(json_t *object, const char *name, double value) {
  json_object_set_new(object, name, isfinite(value) ? json_real(value) : json_null());
}

static void set_mean(json_t *object, const char *name, const char *error_name, const score_mean *mean) {
  if (mean->count == 0) return;
  set_real(object, name, mean->mean);
  set_real(object, error_name, standard_error(mean));
}

static json_t *task_object(const score_task *t) {
  json_t *object = json_object();
  json_object_set_new(object, "items", json_integer(t->items));
  json_object_set_new(object, "failed", json_integer(t->failed));
  set_mean(object, "acc", "acc_stderr", &t->acc);
  set_mean(object, "acc_norm", "acc_norm_stderr", &t->acc_norm);
  set_mean(object, "logprob", "logprob_stderr", &t->pair_logprob);
  set_mean(object, "greedy", "greedy_stderr", &t->pair_greedy);
  if (t->pair_tokens) {
    json_object_set_new(object, "tokens", json_integer((json_int_t)t->pair_tokens));
    set_real(object, "perplexity", exp(-t->pair_sum / (double)t->pair_tokens));
  }
  if (t->whole_items == 0) return object;
  json_object_set_new(object, "texts", json_integer((json_int_t)t->whole_items));
  set_real(object, "text_logprob", t->whole_sum);
  json_object_set_new(object, "text_tokens", json_integer((json_int_t)t->whole_tokens));
  set_real(object, "token_perplexity", exp(-t->whole_sum / (double)t->whole_tokens));
  if (t->has_whole_ids) return object;
  json_object_set_new(object, "text_words", json_integer((json_int_t)t->whole_words));
  json_object_set_new(object, "text_bytes", json_integer((json_int_t)t->whole_bytes));
  set_real(object, "word_perplexity", exp(-t->whole_sum / (double)t->whole_words));
  set_real(object, "byte_perplexity", exp(-t->whole_sum / (double)t->whole_bytes));
  set_real(object, "bits_per_byte", -t->whole_sum / (double)t->whole_bytes / log(2));
  return object;
}

json_t *score_report_object(const score_summary *self) {
  json_t *object = json_object();
  int failed = !object;
  for (uint32_t i = 0; i < self->count; i++) failed |= json_object_set_new(object, self->list[i].name, task_object(&self->list[i]));
  if (!failed) return object;
  json_decref(object);
  return NULL;
}

void score_report_close(score_summary *self) {
  for (uint32_t i = 0; i < self->count; i++) free(self->list[i].name);
  free(self->list);
  *self = (score_summary){0};
}

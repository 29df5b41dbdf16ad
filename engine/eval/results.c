/* eval/results.c - see eval/results.h. Keys are set in the order in which they are written. */
#include "eval/results.h"
#include "base/digest.h"
#include "eval/margin.h"
#include "receipts/receipt.h"
#include "jsonl/score_report.h"
#include "jsonl/transcript.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define COUNT_MOST (INT64_C(1) << 53) /* binary64 holds every count up to here */

static status no_memory(void) { return FAIL(ERR_LIMIT, "results: no memory"); }

static status put(json_t *line, const char *key, json_t *value) {
  return value && json_object_set_new(line, key, value) == 0 ? OK : no_memory();
}

static json_t *number(double value) { return isfinite(value) ? json_real(value) : json_null(); }

static json_t *hex(const uint8_t *bytes) {
  char text[DIGEST_TEXT_BYTES];
  return json_string(digest_text(bytes, text));
}

static const char *failure(const eval_request *request) {
  for (uint32_t i = 0; i < request->request_count; i++)
    if (request->requests[i].finish == VERBATIM_NONFINITE) return receipt_finish_name(request->requests[i].finish);
  return NULL;
}

/* Sets nothing if the margin is not known. */
static status put_margin(json_t *line, const char *key, eval_margin margin) {
  return margin.known ? put(line, key, eval_margin_json(&margin)) : OK;
}

/* === Generation ============================================================================================================= */

/* Sets the keys of one sample, in the line or in an object of its list of samples. */
static status put_verdict(const eval_results_item *from, const verbatim_request *request, bool with_answer,
                          const eval_answer_verdict *verdict, json_t *to) {
  if (!from->without_text) TRY(put(to, "extracted", json_incref(verdict->extracted)));
  if (with_answer && !from->without_text) TRY(put(to, "answer", json_incref(from->item->answer)));
  TRY(put(to, "correct", json_boolean(verdict->is_correct)));
  if (verdict->is_unended) TRY(put(to, "unended", json_true()));
  TRY(put(to, "tokens", json_integer(request->token_count)));
  return put(to, "finish", json_string(receipt_finish_name(request->finish)));
}

static status put_sample(const eval_results_item *from, const verbatim_request *request, bool with_answer, json_t *to, bool *correct) {
  char *text = NULL;
  size_t bytes = 0;
  eval_answer_verdict verdict = {.extracted = NULL};
  TRY(transcript_text(from->tokenizer, request, &text, &bytes));
  status result = eval_answer_judge(from->judge, text, bytes, from->item->answer, &verdict);
  if (request->finish == VERBATIM_NONFINITE) verdict.is_correct = false;
  if (result == OK && !from->without_text) result = put(to, "text", json_stringn(text, bytes));
  free(text);
  if (result == OK) result = put_verdict(from, request, with_answer, &verdict, to);
  json_decref(verdict.extracted);
  *correct = verdict.is_correct;
  return result;
}

static status put_generated(const eval_results_item *from, json_t *line) {
  const eval_request *request = from->request;
  bool correct = false;
  uint32_t right = 0;
  TRY(put_sample(from, &request->requests[0], true, line, &correct));
  if (request->request_count == 1) return put_margin(line, "margin", eval_margin_request(&request->requests[0]));
  json_t *samples = json_array();
  TRY(put(line, "samples", samples));
  for (uint32_t i = 0; i < request->request_count; i++) {
    json_t *sample = json_object();
    if (json_array_append_new(samples, sample) != 0) return no_memory();
    TRY(put_sample(from, &request->requests[i], false, sample, &correct));
    right += correct;
  }
  return put(line, "share", json_real((double)right / request->request_count));
}

/* === Scored texts =========================================================================================================== */

static status put_choice(const json_t *text, const score_result *result, uint64_t bytes, json_t *list) {
  json_t *choice = json_object();
  if (json_array_append_new(list, choice) != 0) return no_memory();
  if (text) TRY(put(choice, "text", json_incref((json_t *)(uintptr_t)text)));
  if (result->failed) return OK;
  TRY(put(choice, "logprob", number(result->logprob)));
  TRY(put(choice, "token_count", json_integer(result->token_count)));
  TRY(put(choice, "bytes", json_integer((json_int_t)bytes)));
  return put(choice, "is_greedy", json_boolean(result->is_greedy));
}

static status put_margins(const eval_results_item *from, const score_item *view, json_t *line) {
  eval_margin_part *parts = calloc(view->part_count, sizeof *parts);
  if (!parts) return no_memory();
  for (uint32_t i = 0; i < view->part_count; i++) parts[i] = eval_margin_part_of(&from->request->requests[i], 1);
  status result = put_margin(line, "margin", eval_margin_choice(parts, view->part_count));
  for (uint32_t i = 0; i < view->part_count; i++) parts[i].bytes = score_tokens_norm(&view->parts[i]);
  if (result == OK) result = put_margin(line, "margin_norm", eval_margin_choice(parts, view->part_count));
  free(parts);
  return result;
}

static status put_choices(const eval_results_item *from, const score_item *view, score_result *results, json_t *line) {
  json_t *list = json_array();
  TRY(put(line, "choices", list));
  for (uint32_t i = 0; i < view->part_count; i++) {
    results[i] = score_report_result(&from->request->requests[i], 1);
    const json_t *text = from->without_text ? NULL : json_array_get(from->item->choices, i);
    TRY(put_choice(text, &results[i], score_tokens_bytes(&view->parts[i]), list));
  }
  int32_t best = score_report_best(view, results), best_norm = score_report_best_norm(view, results);
  int32_t answer = (int32_t)from->item->answer_index;
  TRY(put(line, "best", best < 0 ? json_null() : json_integer(best)));
  TRY(put(line, "best_norm", best_norm < 0 ? json_null() : json_integer(best_norm)));
  TRY(put(line, "answer", json_integer(answer)));
  TRY(put(line, "acc", json_boolean(best == answer)));
  TRY(put(line, "acc_norm", json_boolean(best_norm == answer)));
  return put_margins(from, view, line);
}

static status put_whole(const eval_results_item *from, const score_item *view, json_t *line) {
  score_result result = score_report_result(from->request->requests, from->request->request_count);
  TRY(put(line, "logprob", result.failed ? json_null() : number(result.logprob)));
  TRY(put(line, "token_count", json_integer(result.failed ? 0 : result.token_count)));
  TRY(put(line, "words", json_integer((json_int_t)score_tokens_words(&view->parts[0]))));
  return put(line, "bytes", json_integer((json_int_t)view->parts[0].bytes));
}

static status put_scored(const eval_results_item *from, json_t *line) {
  score_item view;
  TRY(eval_request_view(from->task, from->item, &view));
  score_result *results = calloc(view.part_count, sizeof *results);
  status result = !results ? no_memory()
                  : from->task->kind == EVAL_CHOICE ? put_choices(from, &view, results, line) : put_whole(from, &view, line);
  free(results);
  free(view.parts);
  return result;
}

/* === Lines ================================================================================================================== */

static status put_requests(const eval_request *request, json_t *line) {
  json_t *list = json_array();
  TRY(put(line, "requests", list));
  for (uint32_t i = 0; i < request->request_count; i++) {
    json_t *one = json_pack("{s:o, s:o}", "request", hex(request->requests[i].request_digest), "chain", hex(request->requests[i].chain));
    if (json_array_append_new(list, one) != 0) return no_memory();
  }
  return OK;
}

/* The end of the prompt, from the beginning of a character. */
static status put_prompt(const eval_text *prompt, json_t *line) {
  size_t from = prompt->count > EVAL_RESULTS_PROMPT_BYTES_MAX ? prompt->count - EVAL_RESULTS_PROMPT_BYTES_MAX : 0;
  while (from < prompt->count && ((unsigned char)prompt->bytes[from] & 0xc0) == 0x80) from++;
  TRY(put(line, "prompt", json_stringn(prompt->bytes + from, prompt->count - from)));
  return put(line, "prompt_bytes", json_integer((json_int_t)prompt->count));
}

static status put_item(const eval_results_item *from, json_t *line) {
  const char *failed = failure(from->request);
  if (from->request->is_skipped) return put(line, "skipped", json_string("too_long"));
  if (from->request->dropped) TRY(put(line, "dropped", json_integer(from->request->dropped)));
  if (failed) TRY(put(line, "failed", json_string(failed)));
  return from->task->kind == EVAL_GENERATE ? put_generated(from, line) : put_scored(from, line);
}

static status fill(const eval_results_item *from, json_t *line) {
  const eval_item *of = from->item;
  digest prompt = digest_of(of->prompt.bytes, of->prompt.count);
  TRY(put(line, "task", json_string(from->task->name)));
  TRY(put(line, "index", json_integer(from->index)));
  TRY(put(line, "id", json_string(of->id)));
  TRY(put(line, "kind", json_string(eval_task_kind_name(from->task->kind))));
  if (of->subset) TRY(put(line, "subset", json_string(of->subset)));
  if (of->cluster) TRY(put(line, "cluster", json_string(of->cluster)));
  TRY(put(line, "prompt_digest", hex(prompt.bytes)));
  if (!from->without_text) TRY(put_prompt(&of->prompt, line));
  TRY(put_item(from, line));
  return put_requests(from->request, line);
}

status eval_results_make(const eval_results_item *from, json_t **out) {
  json_t *line = json_object();
  status result = line ? fill(from, line) : no_memory();
  if (result == OK) *out = line;
  else json_decref(line);
  return result;
}

status eval_results_text(const json_t *line, char **text, size_t *bytes) {
  size_t count = json_dumpb(line, NULL, 0, JSON_COMPACT);
  char *built = count ? malloc(count + 2) : NULL;
  if (!built) return no_memory();
  json_dumpb(line, built, count, JSON_COMPACT);
  built[count] = '\n';
  built[count + 1] = 0;
  *text = built;
  *bytes = count + 1;
  return OK;
}

/* === Reading lines ========================================================================================================== */

static status wrong(const char *key) { return FAIL(ERR_FORMAT, "results: \"%s\": a value of another kind or range than expected", key); }

static status read_flag(const json_t *line, const char *key, double *out) {
  const json_t *value = json_object_get(line, key);
  if (!json_is_boolean(value)) return wrong(key);
  *out = json_is_true(value) ? 1 : 0;
  return OK;
}

static status read_count(const json_t *line, const char *key, double *out) {
  const json_t *value = json_object_get(line, key);
  if (!json_is_integer(value) || json_integer_value(value) < 1 || json_integer_value(value) > COUNT_MOST) return wrong(key);
  *out = (double)json_integer_value(value);
  return OK;
}

static status read_whole(const json_t *line, eval_sample *out) {
  static const char *const under[] = {"token_count", "words", "bytes", "bytes"};
  const json_t *logprob = json_object_get(line, "logprob");
  out->is_left_out = out->is_failed;
  if (out->is_failed) return OK;
  if (!json_is_null(logprob) && !(json_is_number(logprob) && json_number_value(logprob) <= 0)) return wrong("logprob");
  for (size_t m = 0; m < ARRAY_LEN(under); m++) {
    out->over[m] = json_is_null(logprob) ? (double)INFINITY : -json_number_value(logprob);
    TRY(read_count(line, under[m], &out->under[m]));
  }
  return OK;
}

/* How many of the answers in a line were cut at max_tokens, and have a thought without an end. */
static void count_ends(const json_t *line, eval_sample *out) {
  const json_t *samples = json_object_get(line, "samples");
  size_t count = json_is_array(samples) ? json_array_size(samples) : 1;
  for (size_t i = 0; i < count; i++) {
    const json_t *sample = json_is_array(samples) ? json_array_get(samples, i) : line;
    const char *finish = json_string_value(json_object_get(sample, "finish"));
    out->cut += finish && strcmp(finish, receipt_finish_name(VERBATIM_LENGTH)) == 0;
    out->unended += json_is_true(json_object_get(sample, "unended"));
  }
}

/* The figures of an item that was computed. */
static status read_figures(const json_t *line, eval_kind kind, eval_sample *out) {
  const json_t *share = json_object_get(line, "share"), *failed = json_object_get(line, "failed"), *margin = json_object_get(line,
                                                                                                                             "margin");
  const char *nonfinite = receipt_finish_name(VERBATIM_NONFINITE);
  out->is_failed = failed != NULL;
  if (failed && (!json_is_string(failed) || strcmp(json_string_value(failed), nonfinite) != 0)) return wrong("failed");
  if (kind == EVAL_PERPLEXITY) TRY(read_whole(line, out));
  else if (kind == EVAL_GENERATE && share) {
    if (!json_is_real(share) || json_real_value(share) < 0 || json_real_value(share) > 1) return wrong("share");
    out->over[0] = json_real_value(share);
    out->answers = max_u32((uint32_t)json_array_size(json_object_get(line, "samples")), 1);
  } else if (kind == EVAL_GENERATE) TRY(read_flag(line, "correct", &out->over[0]));
  else {
    TRY(read_flag(line, "acc", &out->over[0]));
    TRY(read_flag(line, "acc_norm", &out->over[1]));
  }
  if (kind == EVAL_GENERATE) count_ends(line, out);
  out->is_judged = kind != EVAL_PERPLEXITY;
  out->is_right = json_is_true(json_object_get(line, kind == EVAL_CHOICE ? "acc" : "correct"));
  out->is_shortened = json_object_get(line, "dropped") != NULL;
  out->margin = eval_margin_read(margin);
  return margin && !out->margin.known ? wrong("margin") : OK;
}

status eval_results_sample(const json_t *line, eval_score *score, eval_sample *out) {
  const json_t *skipped = json_object_get(line, "skipped");
  eval_sample built = {.is_skipped = skipped != NULL, .is_left_out = skipped != NULL, .answers = 1, .under = {1, 1, 1, 1}};
  if (skipped && (!json_is_string(skipped) || strcmp(json_string_value(skipped), "too_long") != 0)) return wrong("skipped");
  if (!skipped) TRY(read_figures(line, score->task->kind, &built));
  const char *cluster = json_string_value(json_object_get(line, "cluster"));
  if (!cluster != !score->task->cluster) return wrong("cluster");
  TRY(eval_metric_number(&score->subsets, json_string_value(json_object_get(line, "subset")), &built.subset));
  TRY(eval_metric_number(&score->clusters, cluster, &built.cluster));
  *out = built;
  return OK;
}

bool eval_results_flipped(const json_t *a, const json_t *b, eval_kind kind) {
  bool has_text = json_object_get(a, "extracted") || json_object_get(b, "extracted");
  const char *key = kind == EVAL_CHOICE ? "best" : has_text ? "extracted" : "correct";
  return kind != EVAL_PERPLEXITY && !json_equal(json_object_get(a, key), json_object_get(b, key));
}

const char *eval_results_difference(const json_t *a, const json_t *b) {
  const char *key;
  json_t *value;
  json_object_foreach((json_t *)(uintptr_t)a, key, value)
    if (!json_equal(value, json_object_get(b, key))) return key;
  json_object_foreach((json_t *)(uintptr_t)b, key, value)
    if (!json_object_get(a, key)) return key;
  return NULL;
}

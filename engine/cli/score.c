/* cli/score.c - `verbatim score`: log-probabilities of continuations and texts, for evaluations.
 *
 * Owns the subcommand's arguments, turning items into requests, output in input order. It uses the engine only through verbatim.h. Read
 * next: score_items.h, score_tokens.h, score_report.h, common/engine.h. */
#include "cli/cli.h"
#include "common/config.h"
#include "common/engine.h"
#include "common/files.h"
#include "common/lines.h"
#include "common/options.h"
#include "common/output.h"
#include "common/plan_cache.h"
#include "common/conditions.h"
#include "common/trace.h"
#include "jsonl/nonfinite.h"
#include "jsonl/score_items.h"
#include "jsonl/score_report.h"
#include "jsonl/score_tokens.h"
#include "text/tokenizer.h"
#include "verbatim.h"
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define REQUESTS_MAX SCORE_ITEMS_MAX
#define NAME_BYTES_MAX 288 /* an item's id, "#" and a number */

static const char HELP[] =
  "usage: verbatim score [[PLAN] MODEL_DIR] [--jsonl FILE] [options]\n\n"
  "Computes log-probabilities of given tokens, each after all before it.\n\n"
  CLI_PLAN_CACHE_HELP
  "Examples:\n"
  "  verbatim score my.plan MODEL_DIR --jsonl items.jsonl > scores.jsonl\n"
  "  verbatim score my.plan MODEL_DIR --jsonl items.jsonl --output text --summary summary.json\n\n"
  "Input is one JSON object per line, from FILE or stdin:\n\n"
  "  {\"context\": TEXT, \"continuation\": TEXT}            a continuation\n"
  "  {\"context\": TEXT, \"continuations\": [TEXT, ...]}    a choice; with \"answer\": INDEX, accuracy too\n"
  "  {\"text\": TEXT}                                     a whole text, for perplexities\n"
  "  \"context_ids\", \"continuation_ids\", \"continuations_ids\" and \"ids\" are the same in token ids\n"
  "  Optional: \"id\"; \"task\", which groups the summary; \"require\" (a list) and \"deadline_seconds\"\n"
  "  instead of the options. Other keys are copied to the output.\n\n"
  "Tokens are those of lm-evaluation-harness. White space at the end of a context moves to the\n"
  "continuation; the continuation's tokens are those of both texts encoded as one, less as many as the\n"
  "context has. A context begins with what the tokenizer puts before a text, as in `verbatim run`,\n"
  "because the model was trained so. The first token of a whole text, or of a continuation without a\n"
  "context, is scored after the prefix token: the tokenizer's BOS, or else its EOS. Of \"ids\", all but\n"
  "the first are scored. A whole text longer than the plan's max-model-len is split into windows that\n"
  "score each token once: the first token of a window has one token before it, in the last window as\n"
  "many as fit. Anything else that does not fit is refused before work starts.\n\n"
  "Output is one line per item, in order: \"logprob\", \"token_count\", \"is_greedy\" (each token has the\n"
  "largest logit), \"bytes\", and for each token \"tokens\", \"logprobs\", \"ranks\", \"alternatives\". A list\n"
  "has all this under \"choices\", then \"best\", \"best_norm\" and, with an answer, \"acc\", \"acc_norm\"; a\n"
  "whole text also has \"words\" and \"windows\". Each line has \"numerics_id\". An item that was not scored\n"
  "to its end has \"finish\" (nonfinite, deadline) and, if nonfinite, \"fault\": op, layer and position\n"
  "where NaN or Inf began. Sums are binary64, token by token. \"best\" has the largest sum, \"best_norm\"\n"
  "the largest per byte of the continuation, not counting white space at its front.\n\n"
  "  --jsonl FILE        the items; - is stdin (-)\n"
  "  --no-bos            put nothing before a context that has tokens of its own (add_bos_token=False)\n"
  "  --logprobs K        also the K most likely tokens at each position, 0 to 20 (0)\n"
  "  --output jsonl|text form of the output (jsonl)\n"
  "  --summary FILE      also write accuracies and perplexities as JSON\n";
/* C11 guarantees only 4095 bytes in a string literal. */
static const char MORE_HELP[] = CLI_CONDITIONS_HELP CLI_CONFIG_HELP CLI_TRACE_HELP CLI_ENGINE_HELP;

typedef struct score_options {
  const char *jsonl, *output, *summary_path;
  const char **words; /* from argv: plan and model folder */
  bool no_bos;
  uint32_t top_logprobs;
} score_options;

typedef struct score_entry { /* the lists and requests of one item */
  uint32_t first_list, first_request, request_count;
} score_entry;

typedef struct score_run {
  score_options options;
  cli_config config;
  cli_conditions conditions;
  score_conditions defaults;   /* for items that do not state their own */
  cli_trace trace;
  cli_engine engine;
  score_items items;
  tokenizer *tokenizer;   /* NULL: all items are ids */
  score_tokens *lists;    /* [list_count], one per part of each item */
  score_entry *entries;   /* [items.count] */
  verbatim_request *requests; /* [request_count]; items in order, within them parts or windows in order */
  cli_trace_request *traces;  /* [request_count] */
  score_result *results;  /* of one item: [largest number of parts] */
  uint32_t list_count, request_count;
  uint32_t finished;      /* number of leading requests that have finished */
  uint32_t written;       /* number of leading items whose output is written */
  uint64_t tokens;        /* of finished requests */
  score_summary summary;
  const char *refused;    /* id of the item that the tokenizer or the engine refused */
} score_run;

/* === Arguments and items ==================================================================================================== */

static status parse_arguments(score_run *self, int argc, char **argv) {
  score_options *o = &self->options;
  uint32_t count = 0;
  cli_option table[40] = {
    {"--jsonl", cli_options_text, &o->jsonl}, {"--output", cli_options_text, &o->output},
    {"--summary", cli_options_text, &o->summary_path}, {"--no-bos", NULL, &o->no_bos},
    {"--logprobs", cli_options_u32, &o->top_logprobs}};
  cli_conditions_options(&self->conditions, &self->defaults.required_count, &self->defaults.deadline_seconds, table, ARRAY_LEN(table));
  self->defaults.required = self->conditions.required;
  cli_trace_options(&self->trace, table, ARRAY_LEN(table));
  cli_engine_options(&self->engine, table, ARRAY_LEN(table));
  cli_config_options(&self->config, CLI_CONFIG_SCORE, table, ARRAY_LEN(table));
  TRY(cli_options_parse(table, argc, argv, o->words, &count));
  TRY(cli_config_apply(&self->config, table, argc, argv));
  TRY(cli_config_place_engine(&self->config, o->words, &self->engine.plan_path, &self->engine.model_dir));
  if (self->config.dump) return OK;
  if (!self->engine.model_dir)
    return FAIL(ERR_USAGE, "score: expected [PLAN] MODEL_DIR, found %u word%s; hint: verbatim score --help",
                count, CLI_OPTIONS_PLURAL(count));
  TRY(cli_hub_resolve(&self->engine.model_dir, self->engine.model_path));
  if (strcmp(o->output, "text") != 0 && strcmp(o->output, "jsonl") != 0)
    return FAIL(ERR_USAGE, "--output: expected text or jsonl, found \"%s\"", o->output);
  if (o->top_logprobs > VERBATIM_TOP_LOGPROBS_MAX)
    return FAIL(ERR_USAGE, "--logprobs: expected 0 to %u, found %u", VERBATIM_TOP_LOGPROBS_MAX, o->top_logprobs);
  if (strcmp(o->jsonl, "-") == 0 && isatty(STDIN_FILENO))
    return FAIL(ERR_USAGE, "score: no items; hint: --jsonl FILE, or pipe lines in");
  return cli_trace_check(&self->trace);
}

static status add_line(void *context, char *line, size_t bytes, uint32_t number) {
  score_run *self = context;
  return score_items_add(&self->items, line, bytes, number, &self->defaults);
}

static status read_items(score_run *self) {
  uint64_t parts = 0;
  uint32_t most = 0;
  bool has_text = false;
  TRY(cli_lines_read(self->options.jsonl, add_line, self));
  if (self->items.count == 0)
    return FAIL(ERR_USAGE, "score: expected an item, found an input without one; hint: verbatim score --help describes them");
  for (uint32_t i = 0; i < self->items.count; i++) {
    parts += self->items.list[i].part_count;
    most = max_u32(most, self->items.list[i].part_count);
    has_text |= self->items.list[i].parts[0].text != NULL;
  }
  if (parts > REQUESTS_MAX) return FAIL(ERR_LIMIT, "items: more than %u continuations", REQUESTS_MAX);
  self->lists = calloc(parts, sizeof *self->lists);
  self->entries = calloc(self->items.count, sizeof *self->entries);
  self->results = calloc(most, sizeof *self->results);
  if (!self->lists || !self->entries || !self->results) return FAIL(ERR_LIMIT, "items: no memory");
  return has_text ? tokenizer_open(&self->tokenizer, self->engine.model_dir) : OK;
}

static bool is_whole(const score_item *item) { return !item->context.text && !item->context.ids; }

static status make_lists(score_run *self) {
  for (uint32_t i = 0; i < self->items.count; i++) {
    const score_item *item = &self->items.list[i];
    score_tokens *lists = self->lists + self->list_count;
    self->entries[i].first_list = self->list_count;
    self->list_count += item->part_count;
    self->refused = item->id;
    if (is_whole(item)) TRY(score_tokens_whole(self->tokenizer, item, lists));
    else TRY(score_tokens_pairs(self->tokenizer, !self->options.no_bos, item, lists));
    self->refused = NULL;
  }
  return OK;
}

/* === Requests =============================================================================================================== */

static status count_requests(score_run *self) {
  uint64_t count = 0;
  for (uint32_t i = 0; i < self->items.count; i++) {
    const score_item *item = &self->items.list[i];
    score_entry *entry = &self->entries[i];
    entry->first_request = (uint32_t)count;
    entry->request_count = is_whole(item) ? score_tokens_window_count(self->lists[entry->first_list].count, self->engine.info.max_len)
                                          : item->part_count;
    count += entry->request_count;
    if (count > REQUESTS_MAX) return FAIL(ERR_LIMIT, "items: more than %u continuations and windows", REQUESTS_MAX);
  }
  self->requests = calloc(count, sizeof *self->requests);
  self->traces = calloc(count, sizeof *self->traces);
  self->request_count = (uint32_t)count;
  return self->requests && self->traces ? OK : FAIL(ERR_LIMIT, "requests: no memory");
}

static status submit(score_run *self, const score_conditions *conditions, const int32_t *ids, uint32_t count, uint32_t from,
                     verbatim_request *request) {
  *request = VERBATIM_REQUEST_DEFAULTS;
  request->prompt = ids;
  request->prompt_count = count;
  request->max_tokens = 0;
  request->score = true;
  request->score_from = from;
  request->top_logprobs = self->options.top_logprobs;
  request->required = conditions->required;
  request->required_count = conditions->required_count;
  request->deadline_seconds = conditions->deadline_seconds;
  request->context = &self->traces[request - self->requests];
  cli_trace_watch(&self->trace, request->context, request);
  request->scores = calloc(count - from, sizeof *request->scores);
  request->alternatives = calloc((uint64_t)(count - from) * request->top_logprobs + 1, sizeof *request->alternatives);
  if (!request->scores || !request->alternatives) return FAIL(ERR_LIMIT, "requests: no memory");
  return (status)verbatim_submit(self->engine.engine, request);
}

/* Checks every request before the first step, so that a bad one costs nothing. */
static status submit_all(score_run *self) {
  for (uint32_t i = 0; i < self->items.count; i++) {
    const score_item *item = &self->items.list[i];
    const score_entry *entry = &self->entries[i];
    self->refused = item->id;
    for (uint32_t k = 0; k < entry->request_count; k++) {
      const score_tokens *list = &self->lists[entry->first_list + (is_whole(item) ? 0 : k)];
      score_window window = {.count = list->count, .from = list->from};
      if (is_whole(item)) window = score_tokens_window(list->count, self->engine.info.max_len, k);
      TRY(submit(self, &item->conditions, list->ids + window.first, window.count, window.from, &self->requests[entry->first_request + k]));
    }
    self->refused = NULL;
  }
  return OK;
}

/* === Output ================================================================================================================= */

/* Names a request after its item, followed by "#" and its number if the item has a list of continuations or several windows. */
static status add_to_receipt(score_run *self, const score_item *item, const score_entry *entry) {
  for (uint32_t k = 0; k < entry->request_count; k++) {
    const verbatim_request *request = &self->requests[entry->first_request + k];
    char name[NAME_BYTES_MAX];
    if (item->is_list || entry->request_count > 1) snprintf(name, sizeof name, "%s#%u", item->id, k);
    else snprintf(name, sizeof name, "%s", item->id);
    TRY(cli_engine_add(&self->engine, name, request));
    cli_trace_add(request->context, name, request);
  }
  return OK;
}

/* *failed: the first of the item's requests that was not scored completely, or NULL. */
static status write_one(score_run *self, const score_item *item, const score_entry *entry, const verbatim_request **failed) {
  const verbatim_request *requests = self->requests + entry->first_request;
  *failed = NULL;
  for (uint32_t i = 0; i < item->part_count; i++) {
    self->results[i] = is_whole(item) ? score_report_result(requests, entry->request_count) : score_report_result(&requests[i], 1);
    if (!*failed) *failed = self->results[i].failed;
  }
  if (strcmp(self->options.output, "jsonl") == 0)
    TRY(score_report_json(stdout, self->engine.info.numerics_id, item, self->results, requests, entry->request_count));
  else TRY(score_report_text(stdout, item, self->results));
  TRY(score_report_add(&self->summary, item, self->results));
  TRY(add_to_receipt(self, item, entry));
  return cli_output_flush();
}

static status tell(const score_item *item, const verbatim_request *failed) {
  char fault[NONFINITE_TEXT_BYTES];
  if (failed->finish == VERBATIM_DEADLINE) return FAIL(ERR_LIMIT, "item %s: deadline exceeded before it was scored", item->id);
  return FAIL(ERR_MISMATCH, "item %s: the logits hold NaN or Inf%s; hint: are the weights damaged?", item->id,
              nonfinite_text(failed, fault));
}

/* Writes all finished items, in input order. An item that was not scored is reported, and the others continue. */
static status write_finished(score_run *self, fail_cause *first) {
  while (self->finished < self->request_count && self->requests[self->finished].finish != VERBATIM_RUNNING)
    self->tokens += self->requests[self->finished++].prompt_count;
  while (self->written < self->items.count) {
    const score_entry *entry = &self->entries[self->written];
    if (self->finished < entry->first_request + entry->request_count) return OK;
    const score_item *item = &self->items.list[self->written++];
    const verbatim_request *failed;
    TRY(write_one(self, item, entry, &failed));
    if (!failed || first->code != OK) continue;
    (void)tell(item, failed);
    fail_take(first); /* the next poll would clear it */
  }
  return OK;
}

static status write_summary(score_run *self) {
  char text[DIGEST_TEXT_BYTES], numerics[DIGEST_TEXT_BYTES];
  score_report_print(&self->summary, stderr);
  if (!self->options.summary_path) return OK;
  json_t *object = json_pack("{s:s, s:I, s:I, s:s, s:o}", "numerics_id", digest_text(self->engine.info.numerics_id, numerics), "items",
                             (json_int_t)self->items.count, "requests", (json_int_t)self->request_count, "receipt",
                             digest_text(self->engine.receipt_digest.bytes, text), "tasks", score_report_object(&self->summary));
  return cli_output_file(self->options.summary_path, object, JSON_INDENT(2));
}

/* === The run ================================================================================================================ */

static status score_all(score_run *self) {
  fail_cause failure = {0};
  bool busy = true;
  while (busy) {
    TRY((status)verbatim_poll(self->engine.engine, &busy));
    TRY(cli_trace_failure(&self->trace));
    TRY(write_finished(self, &failure));
    cli_engine_progress(&self->engine, self->finished, self->request_count, self->tokens, false);
  }
  cli_engine_progress(&self->engine, self->finished, self->request_count, self->tokens, true);
  TRY(cli_engine_end(&self->engine));
  TRY(cli_trace_end(&self->trace));
  TRY(write_summary(self));
  return failure.code == OK ? OK : fail_give(&failure);
}

static status score_steps(score_run *self) {
  const char *summary_path = self->options.summary_path;
  const cli_files_row files[] = {CLI_ENGINE_FILES(&self->engine), CLI_CONFIG_FILES(&self->config),
                                 {CLI_FILES_READ, self->options.jsonl, "the input"}, {CLI_FILES_WRITTEN, summary_path, "the summary"},
                                 {CLI_FILES_WRITTEN, self->trace.path, "the trace"}};
  TRY(cli_files_check(files, ARRAY_LEN(files)));
  TRY(cli_plan_cache_ensure(&self->engine, &self->config));
  TRY(cli_engine_check(&self->engine));
  TRY(read_items(self));
  TRY(make_lists(self));
  self->engine.config.trace = self->trace.path != NULL;
  TRY(cli_engine_open(&self->engine));
  TRY(count_requests(self));
  TRY(submit_all(self));
  TRY(cli_trace_begin(&self->trace, &self->engine.info));
  TRY(cli_engine_begin(&self->engine, self->tokenizer));
  return score_all(self);
}

static void close_score(score_run *self) {
  cli_engine_close(&self->engine);
  tokenizer_close(self->tokenizer);
  for (uint32_t i = 0; self->requests && self->traces && i < self->request_count; i++) {
    cli_trace_release(&self->traces[i]);
    free(self->requests[i].scores);
    free(self->requests[i].alternatives);
  }
  for (uint32_t i = 0; i < self->list_count; i++) score_tokens_close(&self->lists[i]);
  cli_trace_close(&self->trace);
  free(self->requests);
  free(self->traces);
  free(self->lists);
  free(self->entries);
  free(self->results);
  score_report_close(&self->summary);
  score_items_close(&self->items);
  free(self->options.words);
  cli_config_close(&self->config);
}

int cli_score(int argc, char **argv) {
  if (cli_options_ask_help(argc, argv)) {
    fputs(HELP, stdout);
    fputs(MORE_HELP, stdout);
    return 0;
  }
  score_run self = {.options = {.jsonl = "-", .output = "jsonl"}};
  self.options.words = calloc((size_t)argc + 1, sizeof *self.options.words);
  status result = self.options.words ? parse_arguments(&self, argc, argv) : FAIL(ERR_LIMIT, "no memory");
  if (result == OK) result = self.config.dump ? cli_config_dump(&self.config, stdout) : score_steps(&self);
  if (result != OK) {
    fputs(self.refused ? "verbatim: item " : "verbatim: ", stderr);
    cli_output_plain(stderr, self.refused ? self.refused : "");
    fprintf(stderr, "%s%s\n", self.refused ? ": " : "", fail_text());
  }
  close_score(&self);
  return fail_exit_code(result);
}

/* cli/run.c - `verbatim run`: prompts in, tokens out, and a receipt.
 *
 * Owns the subcommand's arguments, reading prompts, output in input order, progress, accuracy. It uses the engine only through verbatim.h.
 * Read next: common/engine.h, common/sampling.h, items.h, transcript.h. */
#include "cli/cli.h"
#include "base/special_file.h"
#include "common/conversation.h"
#include "common/engine.h"
#include "common/files.h"
#include "common/generation.h"
#include "common/lines.h"
#include "common/options.h"
#include "common/output.h"
#include "common/plan_cache.h"
#include "common/sampling.h"
#include "common/trace.h"
#include "jsonl/items.h"
#include "jsonl/json_line.h"
#include "jsonl/nonfinite.h"
#include "text/tokenizer.h"
#include "jsonl/transcript.h"
#include "verbatim.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PATH_BYTES_MAX 4096
#define NAME_ROOM (JSON_LINE_ID_BYTES_MAX + 16u) /* an id and a number */

static const char HELP[] =
  "usage: verbatim run [PLAN] MODEL_DIR [PROMPT...] [options]\n\n"
  "Generates text. Prompts come from the arguments, from --jsonl, or else from stdin, one per line (\"-\"\n"
  "also means stdin).\n\n"
  CLI_PLAN_CACHE_HELP
  "Examples:\n"
  "  verbatim run MODEL_DIR \"a prompt\"\n"
  "  verbatim run my.plan MODEL_DIR \"a question\" --chat --stream\n"
  "  verbatim run my.plan MODEL_DIR --jsonl prompts.jsonl --output jsonl --receipt my.receipt\n"
  "  verbatim run my.plan MODEL_DIR \"a prompt\" --temperature 0.8 --top-p 0.95 --seed 7 --n 4\n\n"
  "  --jsonl FILE        one JSON object per line: \"prompt\" or \"prompt_ids\", optionally \"id\", \"task\",\n"
  "                      \"answer\" and, instead of the options below, \"max_tokens\", \"n\", \"temperature\",\n"
  "                      \"top_k\", \"top_p\", \"min_p\", \"repetition_penalty\", \"presence_penalty\",\n"
  "                      \"frequency_penalty\", \"logit_bias\" ({\"ID\": X}), \"allowed_ids\", \"seed\", \"stop\"\n"
  "                      (a text or a list), \"stop_ids\", \"ignore_eos\", \"logprobs\", \"require\" (a list),\n"
  "                      \"deadline_seconds\"; - is stdin\n"
  "  --ids               prompts are token ids, and so is the output\n"
  "  --no-bos            do not add the begin-of-sequence token to text\n"
  "  --chat              each prompt is a user's message, in the model's chat template\n"
  CLI_CONVERSATION_HELP
  CLI_SAMPLING_HELP
  CLI_GENERATION_HELP
  "  --output text|jsonl form of the output (text)\n"
  "  --stream            print text as it is generated (one prompt)\n"
  "  --logits FILE       write the fp32 logits of every prompt position, [positions][vocab], in the\n"
  "                      order of the input\n";
static const char MORE_HELP[] = CLI_TRACE_HELP CLI_ENGINE_HELP; /* C11 guarantees only 4095 bytes in a literal */

typedef struct run_options {
  const char *jsonl, *logits_path, *output;
  const char **words;   /* from argv: plan, model folder and prompts */
  const char **prompts; /* [prompt_count], in words */
  uint32_t prompt_count;
  bool ids, no_bos, stream, chat, uses_generation;
  const char *chat_template;
} run_options;

typedef struct run_request { /* a sample of an item in flight; the engine writes into its arrays */
  cli_trace_request trace; /* first member, because the request's context is this struct */
  verbatim_request request;
  const item *item;
  struct run *run;
  uint64_t first_logit_row;
  int32_t *encoded_ids;   /* encoded prompt, in the item's first sample; NULL when the item has ids */
} run_request;

typedef struct task_score {
  const char *task;
  uint32_t total, exact;
} task_score;

typedef struct run {
  run_options options;
  cli_sampling sampling;
  cli_trace trace;
  cli_engine engine;
  items items;
  tokenizer *tokenizer; /* NULL: ids only */
  chat *chat;           /* NULL: without --chat */
  run_request *requests;  /* [request_count]; the samples of an item are adjacent */
  uint32_t request_count;
  uint32_t written;     /* number of leading requests whose output is written */
  int logits_fd;
  int logits_error;     /* errno of the first write that failed, or 0 */
  const char *refused;  /* id of the request that the tokenizer or the engine refused */
  uint64_t tokens_generated;
  task_score *scores;   /* [score_count], in order of appearance */
  uint32_t score_count;
} run;

/* === Arguments ============================================================================================================== */

static status parse_arguments(run *self, int argc, char **argv) {
  run_options *o = &self->options;
  uint32_t count = 0;
  cli_option table[64] = {
    {"--jsonl", cli_options_text, &o->jsonl}, {"--logits", cli_options_text, &o->logits_path},
    {"--output", cli_options_text, &o->output}, {"--ids", NULL, &o->ids}, {"--no-bos", NULL, &o->no_bos},
    {"--stream", NULL, &o->stream}, {"--chat", NULL, &o->chat}, {"--chat-template", cli_options_text, &o->chat_template},
    {"--generation-config", cli_generation_take, &o->uses_generation}};
  cli_sampling_options(&self->sampling, table, ARRAY_LEN(table));
  cli_trace_options(&self->trace, table, ARRAY_LEN(table));
  cli_engine_options(&self->engine, table, ARRAY_LEN(table));
  TRY(cli_options_parse(table, argc, argv, o->words, &count));
  uint32_t first = 0;
  TRY(cli_files_engine(o->words, &self->engine.plan_path, &self->engine.model_dir, &first));
  if (!self->engine.model_dir)
    return FAIL(ERR_USAGE, "run: expected [PLAN] MODEL_DIR, found %u word%s; hint: verbatim run --help", count, CLI_OPTIONS_PLURAL(count));
  TRY(cli_hub_resolve(&self->engine.model_dir, self->engine.model_path));
  if (o->uses_generation) TRY(cli_generation_set(self->engine.model_dir, table, argc, argv, &self->sampling.params,
                                            &self->sampling.params.max_tokens));
  o->prompts = o->words + first;
  o->prompt_count = count - first;
  if (strcmp(o->output, "text") != 0 && strcmp(o->output, "jsonl") != 0)
    return FAIL(ERR_USAGE, "--output: expected text or jsonl, found \"%s\"", o->output);
  if (o->stream && strcmp(o->output, "text") != 0) return FAIL(ERR_USAGE, "--stream: expected --output text, found %s", o->output);
  if (o->chat && (o->ids || o->no_bos))
    return FAIL(ERR_USAGE, "--chat: expected messages as text, found %s; hint: the template spells BOS", o->ids ? "--ids" : "--no-bos");
  if (o->chat_template && !o->chat) return FAIL(ERR_USAGE, "--chat-template: expected --chat with it, found none; hint: add --chat");
  if (o->prompt_count && o->jsonl) return FAIL(ERR_USAGE, "run: expected prompts as arguments or --jsonl, found both");
  return cli_trace_check(&self->trace);
}

/* === Prompts ================================================================================================================ */

static status add_line(void *context, char *line, size_t bytes, uint32_t number) {
  run *self = context;
  const item_params *params = &self->sampling.params;
  if (self->options.jsonl) return items_add_json(&self->items, line, bytes, number, params);
  if (!self->options.ids) return items_add_text(&self->items, line, bytes, params);
  if (strlen(line) != bytes) return FAIL(ERR_USAGE, "--ids: line %u: expected token ids, found a NUL", number);
  return items_add_ids(&self->items, line, params);
}

static status read_prompts(run *self) {
  const run_options *o = &self->options;
  const item_params *params = &self->sampling.params;
  if (o->jsonl) TRY(cli_lines_read(o->jsonl, add_line, self));
  for (uint32_t i = 0; i < o->prompt_count; i++) {
    if (strcmp(o->prompts[i], "-") == 0) TRY(cli_lines_read("-", add_line, self));
    else if (o->ids) TRY(items_add_ids(&self->items, o->prompts[i], params));
    else TRY(items_add_text(&self->items, o->prompts[i], strlen(o->prompts[i]), params));
  }
  if (!o->jsonl && o->prompt_count == 0) {
    if (isatty(STDIN_FILENO)) return FAIL(ERR_USAGE, "run: no prompt; hint: give one as an argument, or pipe lines in");
    TRY(cli_lines_read("-", add_line, self));
  }
  return self->items.count ? OK : FAIL(ERR_USAGE, "run: expected a prompt, found an input without one; hint: give it as an argument");
}

/* Opens the tokenizer if a prompt or a stop is text, an answer has a constraint, or if it exists and text output is wanted. */
static status open_tokenizer(run *self) {
  static const char *const names[] = {"tokenizer.json", "tiktoken.model"};
  bool needed = false;
  for (uint32_t i = 0; i < self->items.count; i++)
    needed |= self->items.list[i].prompt != NULL || self->items.list[i].params.stop_text_count ||
              self->items.list[i].params.constraint;
  for (size_t i = 0; i < ARRAY_LEN(names) && !self->options.ids; i++) {
    char path[PATH_BYTES_MAX];
    int length = snprintf(path, sizeof path, "%s/%s", self->engine.model_dir, names[i]);
    needed |= length > 0 && length < PATH_BYTES_MAX && special_file_is_there(path);
  }
  if (needed) TRY(tokenizer_open(&self->tokenizer, self->engine.model_dir));
  self->options.stream = self->options.stream && self->tokenizer && !self->options.ids; /* ids are printed when the request has finished */
  return OK;
}

static status encode_message(run *self, run_request *r) {
  json_t *messages = json_array();
  status result = messages ? OK : FAIL(ERR_LIMIT, "prompts: no memory");
  if (result == OK) result = cli_conversation_add(messages, "user", r->item->prompt, r->item->prompt_bytes);
  if (result == OK) result = cli_conversation_encode(self->chat, self->tokenizer, messages, &r->encoded_ids, &r->request.prompt_count);
  json_decref(messages);
  r->request.prompt = r->encoded_ids;
  return result;
}

static status encode(run *self, run_request *r) {
  const item *from = r->item;
  if (from->ids) {
    r->request.prompt = from->ids;
    r->request.prompt_count = from->id_count;
    return OK;
  }
  if (self->chat) return encode_message(self, r);
  size_t room = from->prompt_bytes + 8, count = 0;
  if (!(r->encoded_ids = malloc(room * sizeof *r->encoded_ids))) return FAIL(ERR_LIMIT, "prompts: no memory");
  TRY(tokenizer_encode(self->tokenizer, from->prompt, from->prompt_bytes, !self->options.no_bos, true, r->encoded_ids, room, &count));
  r->request.prompt = r->encoded_ids;
  r->request.prompt_count = (uint32_t)count;
  return OK;
}

/* === Callbacks of the engine ================================================================================================ */

static void on_token(verbatim_request *request, uint32_t index) {
  run_request *r = request->context;
  (void)index;
  r->run->tokens_generated++;
}

static void on_text(verbatim_request *request, const char *text, size_t bytes) {
  (void)request;
  fwrite(text, 1, bytes, stdout);
  fflush(stdout);
}

static void on_logits(verbatim_request *request, uint32_t position, const float *row) {
  run_request *r = request->context;
  if (r->run->logits_error) return;
  size_t bytes = r->run->engine.info.vocab * sizeof *row, done = 0;
  off_t at = (off_t)((r->first_logit_row + position) * bytes);
  while (done < bytes) {
    ssize_t part = pwrite(r->run->logits_fd, (const uint8_t *)row + done, bytes - done, at + (off_t)done);
    if (part < 0 && errno == EINTR) continue;
    if (part <= 0) {
      r->run->logits_error = part < 0 ? errno : EIO;
      return;
    }
    done += (size_t)part;
  }
}

/* A stream to a terminal shows its own progress. */
static void show_progress(run *self, bool last) {
  if (self->options.stream && isatty(STDERR_FILENO) && !last) return;
  cli_engine_progress(&self->engine, self->written, self->request_count, self->tokens_generated, last);
}

/* === Output ================================================================================================================= */

static void score(run *self, const item *scored, bool exact) {
  const char *task = scored->task ? scored->task : "all";
  uint32_t at = 0;
  while (at < self->score_count && strcmp(self->scores[at].task, task) != 0) at++;
  if (at == self->score_count) self->scores[self->score_count++] = (task_score){.task = task};
  self->scores[at].total++;
  self->scores[at].exact += exact;
}

static void print_scores(const run *self) {
  uint32_t total = 0, exact = 0;
  for (uint32_t i = 0; i < self->score_count; i++) {
    const task_score *s = &self->scores[i];
    fprintf(stderr, "  %-16s %5u/%-5u %6.2f %%\n", s->task, s->exact, s->total, 100.0 * s->exact / s->total);
    total += s->total;
    exact += s->exact;
  }
  if (total) fprintf(stderr, "exact match      %7u/%-5u %6.2f %%\n", exact, total, 100.0 * exact / total);
}

static void print_ids(const verbatim_request *request) {
  for (uint32_t i = 0; i < request->token_count; i++) printf("%s%d", i ? " " : "", request->tokens[i].id);
}

/* The item's id, or for one of several samples the id, "#" and the sample's number. */
static const char *name_of(const run_request *r, char name[NAME_ROOM]) {
  if (r->item->params.samples > 1) snprintf(name, NAME_ROOM, "%s#%u", r->item->id, r->request.sample_index);
  else snprintf(name, NAME_ROOM, "%s", r->item->id);
  return name;
}

/* Prints the text or ids of one request; if there are several, under a heading with its name. For a stream only the end is missing. */
static void print_text(run *self, const run_request *r, const char *text, size_t bytes) {
  char name[NAME_ROOM];
  if (self->request_count > 1) printf("[%s] ", name_of(r, name));
  if (text && !self->options.stream) fwrite(text, 1, bytes, stdout);
  else if (!text) print_ids(&r->request);
  putchar('\n');
  if (r->request.finish != VERBATIM_DEADLINE) return;
  fputs("item ", stderr);
  cli_output_plain(stderr, name_of(r, name));
  fprintf(stderr, ": deadline exceeded after %u tokens\n", r->request.token_count);
}

static status write_one(run *self, run_request *r) {
  char *text = NULL, name[NAME_ROOM], fault[NONFINITE_TEXT_BYTES];
  size_t bytes = 0;
  if (self->tokenizer && !self->options.ids) TRY(transcript_text(self->tokenizer, &r->request, &text, &bytes));
  status result = OK;
  if (strcmp(self->options.output, "jsonl") == 0) result = transcript_json(stdout, self->engine.info.numerics_id, r->item, &r->request,
                                                                       self->tokenizer, text, bytes);
  else print_text(self, r, text, bytes);
  if (r->item->answer && text) score(self, r->item, transcript_matches(text, bytes, r->item->answer));
  free(text);
  TRY(result);
  TRY(cli_engine_add(&self->engine, name_of(r, name), &r->request));
  cli_trace_add(&r->trace, name, &r->request);
  TRY(cli_output_flush());
  return r->request.finish == VERBATIM_NONFINITE
             ? FAIL(ERR_MISMATCH, "item %s: the logits hold NaN or Inf after %u tokens%s; hint: are the weights damaged?", name,
                    r->request.token_count, nonfinite_text(&r->request, fault))
             : OK;
}

/* Writes all finished requests, in input order. A request with non-finite logits is reported, and the others continue. */
static status write_finished(run *self, fail_cause *first) {
  while (self->written < self->request_count && self->requests[self->written].request.finish != VERBATIM_RUNNING) {
    status result = write_one(self, &self->requests[self->written]);
    self->written++;
    if (result != ERR_MISMATCH) TRY(result);
    else if (first->code == OK) fail_take(first); /* the next poll would clear it */
    else fail_clear();
  }
  return OK;
}

/* === The run ================================================================================================================ */

/* The samples of an item share its prompt and the prompt's logits rows, which the first sample writes. */
static status make_samples(run *self, const item *from, uint64_t *logit_rows) {
  run_request *first = &self->requests[self->request_count];
  for (uint32_t i = 0; i < from->params.samples; i++) {
    run_request *r = &self->requests[self->request_count++];
    *r = (run_request){.item = from, .run = self, .first_logit_row = *logit_rows};
    items_request(&from->params, i, &r->request);
    r->request.on_token = on_token;
    r->request.on_text = self->options.stream ? on_text : NULL;
    r->request.context = r;
    cli_trace_watch(&self->trace, &r->trace, &r->request);
    if (i == 0) TRY(encode(self, r));
    if (i == 0 && self->options.logits_path) r->request.on_logits = on_logits;
    r->request.prompt = first->request.prompt;
    r->request.prompt_count = first->request.prompt_count;
    self->engine.config.text |= r->request.on_text || r->request.stop_text_count || r->request.constraint;
  }
  *logit_rows += first->request.prompt_count;
  return OK;
}

static status make_requests(run *self) {
  uint64_t logit_rows = 0, count = 0;
  for (uint32_t i = 0; i < self->items.count; i++) count += self->items.list[i].params.samples;
  if (count > ITEMS_MAX) return FAIL(ERR_LIMIT, "prompts: more than %u samples", ITEMS_MAX);
  if (self->options.stream && count != 1)
    return FAIL(ERR_USAGE, "--stream: expected one prompt and one sample of it, found %" PRIu64 " samples", count);
  self->requests = calloc(count, sizeof *self->requests);
  self->scores = calloc(self->items.count, sizeof *self->scores);
  if (!self->requests || !self->scores) return FAIL(ERR_LIMIT, "requests: no memory");
  for (uint32_t i = 0; i < self->items.count; i++) {
    self->refused = self->items.list[i].id;
    TRY(make_samples(self, &self->items.list[i], &logit_rows));
    self->refused = NULL;
  }
  return OK;
}

/* Checks every request before the first step, so that a bad one costs nothing. Memory for outputs is allocated only for requests that
 * fit. */
static status submit_requests(run *self) {
  for (uint32_t i = 0; i < self->request_count; i++) {
    run_request *r = &self->requests[i];
    uint64_t most = min_u32(r->request.max_tokens, self->engine.info.max_len);
    r->request.tokens = calloc(most + 1, sizeof *r->request.tokens);
    r->request.alternatives = calloc(most * r->request.top_logprobs + 1, sizeof *r->request.alternatives);
    if (!r->request.tokens || !r->request.alternatives) return FAIL(ERR_LIMIT, "requests: no memory");
    self->refused = r->item->id;
    TRY((status)verbatim_submit(self->engine.engine, &r->request));
    self->refused = NULL;
  }
  return OK;
}

static status open_outputs(run *self) {
  const run_options *o = &self->options;
  TRY(cli_trace_begin(&self->trace, &self->engine.info));
  TRY(cli_engine_begin(&self->engine, self->tokenizer));
  if (!o->logits_path) return OK;
  self->logits_fd = open(o->logits_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  return self->logits_fd >= 0 ? OK : FAIL(ERR_IO, "%s: cannot be written: %s", o->logits_path, strerror(errno));
}

static status run_all(run *self) {
  fail_cause failure = {0};
  bool busy = true;
  while (busy) {
    TRY((status)verbatim_poll(self->engine.engine, &busy));
    TRY(cli_trace_failure(&self->trace));
    TRY(write_finished(self, &failure));
    show_progress(self, false);
  }
  show_progress(self, true);
  print_scores(self);
  TRY(cli_engine_end(&self->engine));
  TRY(cli_trace_end(&self->trace));
  if (!self->logits_error) return failure.code == OK ? OK : fail_give(&failure);
  return FAIL(ERR_IO, "%s: could not be written completely: %s", self->options.logits_path, strerror(self->logits_error));
}

static status run_steps(run *self) {
  const cli_files_row files[] = {CLI_ENGINE_FILES(&self->engine), {CLI_FILES_READ, self->options.jsonl, "the input"},
                                 {CLI_FILES_WRITTEN, self->options.logits_path, "the logits"},
                                 {CLI_FILES_WRITTEN, self->trace.path, "the trace"},
                                 {CLI_FILES_READ, self->options.chat_template, "the chat template"}};
  TRY(cli_files_check(files, ARRAY_LEN(files)));
  TRY(cli_plan_cache_ensure(&self->engine, NULL));
  TRY(cli_engine_check(&self->engine));
  TRY(read_prompts(self));
  TRY(open_tokenizer(self));
  if (self->options.chat) TRY(cli_conversation_open(&self->chat, self->engine.model_dir, self->options.chat_template));
  TRY(make_requests(self));
  self->engine.config.logits = self->options.logits_path != NULL;
  self->engine.config.trace = self->trace.path != NULL;
  TRY(cli_engine_open(&self->engine));
  TRY(submit_requests(self));
  TRY(open_outputs(self));
  return run_all(self);
}

static void close_run(run *self) {
  cli_engine_close(&self->engine);
  tokenizer_close(self->tokenizer);
  chat_close(self->chat);
  for (uint32_t i = 0; i < self->request_count; i++) {
    cli_trace_release(&self->requests[i].trace);
    free(self->requests[i].encoded_ids);
    free(self->requests[i].request.tokens);
    free(self->requests[i].request.alternatives);
  }
  cli_trace_close(&self->trace);
  free(self->requests);
  free(self->scores);
  items_close(&self->items);
  cli_sampling_close(&self->sampling);
  if (self->logits_fd >= 0) close(self->logits_fd);
  free(self->options.words);
}

int cli_run(int argc, char **argv) {
  if (cli_options_ask_help(argc, argv)) {
    fputs(HELP, stdout);
    fputs(MORE_HELP, stdout);
    return 0;
  }
  run self = {.logits_fd = -1};
  self.options = (run_options){.output = "text"};
  self.options.words = calloc((size_t)argc + 1, sizeof *self.options.words);
  status result = self.options.words ? parse_arguments(&self, argc, argv) : FAIL(ERR_LIMIT, "no memory");
  if (result == OK) result = run_steps(&self);
  if (result != OK) {
    fputs(self.refused ? "verbatim: item " : "verbatim: ", stderr);
    cli_output_plain(stderr, self.refused ? self.refused : "");
    fprintf(stderr, "%s%s\n", self.refused ? ": " : "", fail_text());
  }
  close_run(&self);
  return fail_exit_code(result);
}

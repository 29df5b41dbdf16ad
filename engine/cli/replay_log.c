/* cli/replay_log.c - `verbatim replay-log`: the requests of a server's request log again, without the server, and compared.
 *
 * Lines are asked in groups that the engine runs together; no bit depends on that. Read next: serve/request_log.h, cli/verify.c. */
#include "chat/chat.h"
#include "cli/cli.h"
#include "common/engine.h"
#include "common/files.h"
#include "common/generation.h"
#include "common/lines.h"
#include "common/options.h"
#include "common/output.h"
#include "base/digest.h"
#include "serve/request_log.h"
#include "text/tokenizer.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GROUP_MAX 64u
#define GROUP_BYTES (512u << 20) /* memory of the requests of a group */
#define CHOICES_MAX 1024u
#define SHOWN_MAX 100u

static const char HELP[] =
  "usage: verbatim replay-log LOG PLAN MODEL_DIR [options]\n\n"
  "Runs the requests of a log that `verbatim serve --request-log LOG` wrote again, without a server,\n"
  "and compares the digests of all results: tokens, log-probabilities, logits. The exit code is 0 if\n"
  "all are equal and 8 if any differs. Requests that were cancelled, late, refused or not answered are\n"
  "counted and not compared.\n\n"
  "Examples:\n"
  "  verbatim replay-log requests.jsonl my.plan MODEL_DIR\n"
  "  verbatim replay-log requests.jsonl my.plan MODEL_DIR --device cpu --output-format json\n\n"
  "  --chat-template FILE  the Jinja template that the server was given\n"
  "  --reasoning-parser NAME, --tool-call-parser NAME  as the server was given them\n"
  "  --generation-config auto|none  likewise (none)\n"
  "  --output-format F     text, or json: one object (text)\n\n";

typedef struct asked { /* a line that is being asked again */
  serve_request_log_line line;
  serve_request *request;
  uint32_t number;
} asked;

typedef struct replay_log {
  cli_engine engine;
  tokenizer *tokenizer;
  chat *chat;
  serve_reading reading;
  bool uses_generation;
  json_t *defaults; /* fields that bodies have unless they set them; NULL: none */
  const char *log_path, *chat_template, *thoughts, *calls, *format;
  char numerics_id[DIGEST_TEXT_BYTES];
  asked group[GROUP_MAX];
  uint32_t count;
  uint64_t bytes;                      /* of the group */
  uint64_t equal, differing, left_out; /* lines */
  uint64_t choices, tokens;
  json_t *different;                   /* the first of them: line, id, choice, what */
} replay_log;

/* === Arguments ============================================================================================================== */

static status parse_arguments(replay_log *self, int argc, char **argv, const char **words) {
  uint32_t count = 0;
  cli_option table[40] = {{"--chat-template", cli_options_text, &self->chat_template},
                          {"--generation-config", cli_generation_take, &self->uses_generation},
                          {"--reasoning-parser", cli_options_text, &self->thoughts},
                          {"--tool-call-parser", cli_options_text, &self->calls}, {"--output-format", cli_options_text, &self->format}};
  cli_engine_options(&self->engine, table, ARRAY_LEN(table));
  TRY(cli_options_parse(table, argc, argv, words, &count));
  if (count != 3) return FAIL(ERR_USAGE, "replay-log: expected LOG PLAN MODEL_DIR, found %" PRIu32 " words; hint: verbatim replay-log "
                              "--help", count);
  if (strcmp(self->format, "text") != 0 && strcmp(self->format, "json") != 0)
    return FAIL(ERR_USAGE, "--output-format: expected text or json, found \"%s\"", self->format);
  self->log_path = words[0];
  self->engine.plan_path = words[1];
  self->engine.model_dir = words[2];
  return OK;
}

/* === Verdicts =============================================================================================================== */

static status note(replay_log *self, const asked *a, int32_t choice, const char *what) {
  if (strcmp(self->format, "text") == 0) {
    printf("line %" PRIu32 ", request ", a->number);
    cli_output_plain(stdout, a->line.id);
    if (choice >= 0) printf(", choice %" PRId32, choice);
    printf(": ");
    cli_output_plain(stdout, what);
    putchar('\n');
  }
  if (json_array_size(self->different) == SHOWN_MAX) return OK;
  json_t *one = json_pack("{s:I, s:s, s:i, s:s}", "line", (json_int_t)a->number, "id", a->line.id, "choice", choice, "what", what);
  return json_array_append_new(self->different, one) == 0 ? OK : FAIL(ERR_LIMIT, "no memory");
}

/* A line whose choices have all ended again. */
static status judge(replay_log *self, const asked *a) {
  char text[SERVE_REQUEST_LOG_TEXT_BYTES];
  bool differs = false, has_all = true;
  if (json_array_size(a->line.results) != a->request->choice_count) {
    TRY(note(self, a, -1, "it has another number of choices"));
    self->differing++;
    return OK;
  }
  for (uint32_t i = 0; i < a->request->choice_count; i++) {
    serve_request_log_verdict verdict = serve_request_log_compare(&a->line, &a->request->choices[i], i, text);
    if (verdict == SERVE_LOG_DIFFERS) TRY(note(self, a, (int32_t)i, text));
    differs |= verdict == SERVE_LOG_DIFFERS;
    has_all &= verdict != SERVE_LOG_UNFINISHED;
    self->choices++;
    self->tokens += a->request->choices[i].engine_request.token_count;
  }
  self->differing += differs;
  self->equal += !differs && has_all;
  self->left_out += !differs && !has_all;
  return OK;
}

/* === The group ============================================================================================================== */

static void close_group(replay_log *self) {
  for (uint32_t i = 0; i < self->count; i++) {
    serve_request_close(self->group[i].request);
    serve_request_log_close(&self->group[i].line);
  }
  self->count = 0;
  self->bytes = 0;
}

static status submit(replay_log *self, const asked *a) {
  for (uint32_t i = 0; i < a->request->choice_count; i++) {
    verbatim_request *r = &a->request->choices[i].engine_request;
    r->deadline_seconds = 0;
    TRY((status)verbatim_submit(self->engine.engine, r));
  }
  return OK;
}

static status run_group(replay_log *self) {
  bool busy = true;
  for (uint32_t i = 0; i < self->count; i++) {
    status result = submit(self, &self->group[i]);
    char where[32];
    snprintf(where, sizeof where, "line %" PRIu32, self->group[i].number);
    if (result != OK) fail_prefix(where);
    TRY(result);
  }
  while (busy) TRY((status)verbatim_poll(self->engine.engine, &busy));
  for (uint32_t i = 0; i < self->count; i++) {
    const asked *a = &self->group[i];
    char name[SERVE_REQUEST_NAME_BYTES];
    TRY(judge(self, a));
    for (uint32_t k = 0; k < a->request->choice_count; k++)
      TRY(cli_engine_add(&self->engine, serve_request_name(&a->request->choices[k], name), &a->request->choices[k].engine_request));
  }
  close_group(self);
  return cli_output_flush();
}

/* Parses the body as the server did. A line without results was answered with an error, or not at all. */
static status add(replay_log *self, asked *a) {
  const serve_model model = {.name = a->line.model, .info = &self->engine.info, .tokenizer = self->tokenizer, .chat = self->chat,
                             .reading = self->reading, .fingerprint = "", .defaults = self->defaults, .choices_max = CHOICES_MAX,
                             .bytes_max = SERVE_REQUEST_BYTES_MAX};
  serve_fault fault = {0};
  if (!a->line.body || !a->line.results) {
    self->left_out++;
    serve_request_log_close(&a->line);
    return OK;
  }
  if (strcmp(a->line.numerics_id, self->numerics_id) != 0)
    return FAIL(ERR_MISMATCH, "line %" PRIu32 ": it was computed under numerics id %s, the plan has %s; hint: give the plan of the server",
                a->number, a->line.numerics_id, self->numerics_id);
  if (!serve_request_parse(&model, a->line.kind, a->line.body, a->line.body_bytes, a->line.id, &a->request, &fault)) {
    status result = note(self, a, -1, fault.message);
    self->differing++;
    serve_request_log_close(&a->line);
    return result;
  }
  self->bytes += a->request->bytes;
  self->group[self->count++] = *a;
  return self->count == GROUP_MAX || self->bytes > GROUP_BYTES ? run_group(self) : OK;
}

static status take_line(void *context, char *line, size_t bytes, uint32_t number) {
  asked a = {.number = number};
  TRY(serve_request_log_read(line, bytes, number, &a.line));
  status result = add(context, &a);
  if (result != OK && !a.request) serve_request_log_close(&a.line);
  return result;
}

/* === The run ================================================================================================================ */

static status report(replay_log *self) {
  if (strcmp(self->format, "json") == 0) {
    TRY(cli_output_json(json_pack("{s:I, s:I, s:I, s:I, s:I, s:O}", "equal", (json_int_t)self->equal, "differing",
                                  (json_int_t)self->differing,
                                  "left_out", (json_int_t)self->left_out, "choices", (json_int_t)self->choices, "tokens",
                                  (json_int_t)self->tokens, "different", self->different), 0));
  } else {
    printf("%" PRIu64 " requests equal, %" PRIu64 " differ, %" PRIu64 " without results; %" PRIu64 " choices, %" PRIu64 " tokens\n",
           self->equal, self->differing, self->left_out, self->choices, self->tokens);
    TRY(cli_output_flush());
  }
  if (self->differing == 0) return OK;
  return FAIL(ERR_MISMATCH, "%s: %" PRIu64 " requests give other results than the log has", self->log_path, self->differing);
}

static status replay_steps(replay_log *self) {
  const cli_files_row files[] = {CLI_ENGINE_FILES(&self->engine), {CLI_FILES_READ, self->log_path, "the log"},
                                 {CLI_FILES_READ, self->chat_template, "the chat template"}};
  TRY(cli_files_check(files, ARRAY_LEN(files)));
  TRY(cli_engine_check(&self->engine));
  TRY(tokenizer_open(&self->tokenizer, self->engine.model_dir));
  TRY(chat_open(&self->chat, self->engine.model_dir, self->chat_template));
  TRY(serve_reading_choose(&self->reading, self->chat, self->thoughts, self->calls));
  if (self->uses_generation) TRY(cli_generation_read(self->engine.model_dir, &self->defaults));
  TRY(cli_generation_for_bodies(&self->defaults));
  self->engine.config.text = true;
  TRY(cli_engine_open(&self->engine));
  TRY(cli_engine_begin(&self->engine, self->tokenizer));
  digest_text(self->engine.info.numerics_id, self->numerics_id);
  TRY(cli_lines_read(self->log_path, take_line, self));
  TRY(run_group(self));
  TRY(cli_engine_end(&self->engine));
  return report(self);
}

int cli_replay_log(int argc, char **argv) {
  if (cli_options_ask_help(argc, argv)) {
    fputs(HELP, stdout);
    fputs(CLI_ENGINE_HELP, stdout);
    return 0;
  }
  replay_log *self = calloc(1, sizeof *self);
  const char **words = calloc((size_t)argc, sizeof *words);
  status result = self && words && (self->different = json_array()) ? OK : FAIL(ERR_LIMIT, "no memory");
  if (self) {
    self->format = "text";
    self->thoughts = "none";
    self->calls = "auto";
  }
  if (result == OK) result = parse_arguments(self, argc, argv, words);
  if (result == OK) result = replay_steps(self);
  if (result != OK) fprintf(stderr, "verbatim: %s\n", fail_text());
  if (self) {
    cli_engine_close(&self->engine); /* before the requests that it may hold */
    close_group(self);
    chat_close(self->chat);
    tokenizer_close(self->tokenizer);
    json_decref(self->different);
    json_decref(self->defaults);
  }
  free(self);
  free(words);
  return fail_exit_code(result);
}

/* cli/chat.c - `verbatim chat`: a conversation, a line at a time, in a terminal or through a pipe.
 *
 * Owns the subcommand's arguments, the turns and what is printed. Each turn is one request whose prompt is the whole conversation: a
 * receipt repeats it, and the prefix cache makes that cheap. Read next: common/conversation.h, cli/run.c. */
#include "cli/cli.h"
#include "base/pipe.h"
#include "base/thread.h"
#include "common/conversation.h"
#include "common/engine.h"
#include "common/files.h"
#include "common/generation.h"
#include "common/lines.h"
#include "common/options.h"
#include "common/output.h"
#include "common/plan_cache.h"
#include "common/sampling.h"
#include "common/signals.h"
#include "jsonl/nonfinite.h"
#include "plan/format.h"
#include "text/tokenizer.h"
#include "verbatim.h"
#include "kernels_src/abi.h"
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char HELP[] =
  "usage: verbatim chat [PLAN] MODEL_DIR [options]\n\n"
  "Talks with a model. Each line of the input is a message; the answer is printed as it is generated,\n"
  "and both become part of the conversation. The line /reset forgets it, /exit or the end of the input\n"
  "ends the program, and Ctrl-C ends an answer. The input may also be a file or a pipe: then nothing\n"
  "but answers is printed to stdout.\n\n"
  CLI_PLAN_CACHE_HELP
  "Examples:\n"
  "  verbatim chat MODEL_DIR\n"
  "  verbatim chat my.plan MODEL_DIR --system \"Answer in one sentence.\" --temperature 0.7 --seed 7\n"
  "  verbatim chat MODEL_DIR --receipt my.receipt < messages.txt\n\n"
  "  --system TEXT       the first message, of role system; /reset keeps it\n"
  CLI_CONVERSATION_HELP
  "  --max-tokens N      most tokens of an answer (all that max-model-len leaves)\n"
  CLI_SAMPLING_REST_HELP
  CLI_GENERATION_HELP;

typedef struct talk {
  const char *system, *chat_template;
  const char **words;     /* from argv: plan and model folder */
  cli_sampling sampling;
  bool uses_generation;   /* generation_config.json has defaults of the options */
  uint32_t most_tokens;   /* of an answer, by it; 0: what the plan leaves */
  cli_engine engine;
  tokenizer *tokenizer;
  chat *chat;
  json_t *messages;       /* of the conversation so far */
  uint32_t turns;         /* answers so far, forgotten ones too */
  FILE *answer;           /* what is generated of this turn's answer; NULL between turns */
  char *answer_text;
  size_t answer_bytes;
  fail_cause failure;     /* of the first turn that failed; the conversation went on */
} talk;

/* === Arguments ============================================================================================================== */

static status parse_arguments(talk *self, int argc, char **argv) {
  uint32_t count = 0, first = 0;
  cli_option table[64] = {{"--system", cli_options_text, &self->system}, {"--chat-template", cli_options_text, &self->chat_template},
                          {"--generation-config", cli_generation_take, &self->uses_generation}};
  cli_sampling_options(&self->sampling, table, ARRAY_LEN(table));
  cli_engine_options(&self->engine, table, ARRAY_LEN(table));
  self->sampling.params.max_tokens = 0;
  TRY(cli_options_parse(table, argc, argv, self->words, &count));
  TRY(cli_files_engine(self->words, &self->engine.plan_path, &self->engine.model_dir, &first));
  if (!self->engine.model_dir || count > first)
    return FAIL(ERR_USAGE, "chat: expected [PLAN] MODEL_DIR, found %u word%s; hint: messages come from the input; verbatim chat --help",
                count, CLI_OPTIONS_PLURAL(count));
  TRY(cli_hub_resolve(&self->engine.model_dir, self->engine.model_path));
  if (self->uses_generation) TRY(cli_generation_set(self->engine.model_dir, table, argc, argv, &self->sampling.params,
                                               &self->most_tokens));
  if (self->sampling.params.samples != 1)
    return FAIL(ERR_USAGE, "--n: expected one answer to a message, found %u; hint: verbatim run --chat", self->sampling.params.samples);
  return OK;
}

/* === Signals ================================================================================================================ */

/* Ctrl-C ends the program, but for the time of an answer. The engine's threads never take it. */
static void let_interrupt(bool is_let) {
  const sigset_t set = cli_signals_set(false);
  pthread_sigmask(is_let ? SIG_UNBLOCK : SIG_BLOCK, &set, NULL);
}

static bool take_interrupt(void) {
  const sigset_t set = cli_signals_set(false);
  return cli_signals_take(&set);
}

static void *wait_interruptible(void *context) {
  char end;
  let_interrupt(true);
  while (read(*(int *)context, &end, 1) < 0 && errno == EINTR) {}
  return NULL;
}

/* Starts the engine in such a way that its threads do not take the signal, while one of ours does: a start may take minutes. */
static status open_engine(talk *self) {
  pthread_t thread;
  int stop[2];
  TRY(pipe_open(stop, 0));
  let_interrupt(false);
  const bool is_started = thread_begin(&thread, wait_interruptible, stop) == 0;
  status result = is_started ? cli_engine_open(&self->engine) : FAIL(ERR_LIMIT, "chat: cannot start a thread");
  close(stop[1]);
  if (is_started) pthread_join(thread, NULL);
  close(stop[0]);
  return result;
}

/* === Turns ================================================================================================================== */

static status begin_conversation(talk *self) {
  json_array_clear(self->messages);
  return self->system ? cli_conversation_add(self->messages, "system", self->system, strlen(self->system)) : OK;
}

static void on_text(verbatim_request *request, const char *text, size_t bytes) {
  talk *self = request->context;
  fwrite(text, 1, bytes, stdout);
  fflush(stdout);
  fwrite(text, 1, bytes, self->answer);
}

/* Tokens that the answer may have, of those that the plan leaves behind the prompt. */
static status find_room(const talk *self, uint32_t prompt_count, uint32_t *tokens) {
  const uint64_t pages = (uint64_t)self->engine.info.kv_pages * PAGE_TOKENS;
  const uint32_t most = (uint32_t)min_u64(self->engine.info.max_len, pages), asked = self->sampling.params.max_tokens;
  if (prompt_count + (uint64_t)(asked ? asked : 1) > most)
    return FAIL(ERR_LIMIT, "expected a conversation that leaves room for an answer within max-model-len %u, found %u tokens%s; "
                "hint: /reset forgets it", most, prompt_count, asked ? ", and --max-tokens" : "");
  *tokens = asked ? asked : min_u32(self->most_tokens ? self->most_tokens : most, most - prompt_count);
  return OK;
}

static status generate(talk *self, verbatim_request *request) {
  bool busy = true;
  TRY((status)verbatim_submit(self->engine.engine, request));
  while (busy) {
    status result = (status)verbatim_poll(self->engine.engine, &busy);
    if (result == OK && busy && take_interrupt()) result = (status)verbatim_cancel(self->engine.engine, request);
    if (result != OK) return result;
  }
  return OK;
}

/* What the user should know about the end of an answer. */
static status judge(const verbatim_request *request) {
  char fault[NONFINITE_TEXT_BYTES];
  if (request->finish == VERBATIM_LENGTH) fprintf(stderr, "note: the answer ends after %u tokens, its limit\n", request->token_count);
  if (request->finish == VERBATIM_CANCELLED) fprintf(stderr, "note: interrupted after %u tokens\n", request->token_count);
  if (request->finish == VERBATIM_DEADLINE) fprintf(stderr, "note: deadline exceeded after %u tokens\n", request->token_count);
  if (request->finish != VERBATIM_NONFINITE) return OK;
  return FAIL(ERR_MISMATCH, "the logits hold NaN or Inf after %u tokens%s; hint: are the weights damaged?", request->token_count,
              nonfinite_text(request, fault));
}

/* Runs the request and keeps its answer. */
static status answer(talk *self, verbatim_request *request) {
  char name[32];
  snprintf(name, sizeof name, "turn-%u", ++self->turns);
  self->answer = open_memstream(&self->answer_text, &self->answer_bytes);
  if (!self->answer) return FAIL(ERR_LIMIT, "an answer: no memory");
  let_interrupt(false);
  status result = generate(self, request);
  let_interrupt(true);
  if (fclose(self->answer) != 0 && result == OK) result = FAIL(ERR_LIMIT, "an answer: no memory");
  self->answer = NULL;
  putchar('\n');
  if (result == OK) result = cli_engine_add(&self->engine, name, request);
  if (result == OK) result = cli_output_flush();
  if (result == OK) result = judge(request);
  if (result == OK) result = cli_conversation_add(self->messages, "assistant", self->answer_text, self->answer_bytes);
  free(self->answer_text);
  self->answer_text = NULL;
  return result;
}

static status take_turn(talk *self, const char *text, size_t bytes) {
  verbatim_request request;
  int32_t *ids = NULL;
  items_request(&self->sampling.params, 0, &request);
  TRY(cli_conversation_add(self->messages, "user", text, bytes));
  status result = cli_conversation_encode(self->chat, self->tokenizer, self->messages, &ids, &request.prompt_count);
  if (result == OK) result = find_room(self, request.prompt_count, &request.max_tokens);
  if (result == OK) {
    request.prompt = ids;
    request.on_text = on_text;
    request.context = self;
    request.tokens = calloc(request.max_tokens, sizeof *request.tokens);
    request.alternatives = calloc((size_t)request.max_tokens * request.top_logprobs + 1, sizeof *request.alternatives);
    result = request.tokens && request.alternatives ? answer(self, &request) : FAIL(ERR_LIMIT, "an answer: no memory");
    free(request.tokens);
    free(request.alternatives);
  }
  free(ids);
  return result;
}

/* A message that cannot be answered is taken back, and the conversation goes on; after a fault it does not. */
static status try_turn(talk *self, const char *text, size_t bytes) {
  const size_t before = json_array_size(self->messages);
  const status result = take_turn(self, text, bytes);
  if (result == OK || result == ERR_IO || result == ERR_DEVICE || result == ERR_MISMATCH) return result;
  while (json_array_size(self->messages) > before) json_array_remove(self->messages, before);
  fprintf(stderr, "verbatim: %s\n", fail_text());
  if (self->failure.code == OK) fail_take(&self->failure);
  else fail_clear();
  return OK;
}

static status converse(talk *self, cli_lines_line *line) {
  const bool is_shown = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
  for (;;) {
    if (is_shown) fputs("> ", stdout);
    TRY(cli_output_flush());
    TRY(cli_lines_next(stdin, line));
    if (line->is_end || strcmp(line->text, "/exit") == 0) {
      if (is_shown && line->is_end) putchar('\n');
      return OK;
    }
    if (strcmp(line->text, "/reset") == 0) TRY(begin_conversation(self));
    else if (line->bytes) TRY(try_turn(self, line->text, line->bytes));
  }
}

/* === The conversation ======================================================================================================= */

static status talk_steps(talk *self) {
  cli_lines_line line = {.text = NULL};
  const cli_files_row files[] = {CLI_ENGINE_FILES(&self->engine), {CLI_FILES_READ, self->chat_template, "the chat template"}};
  TRY(cli_files_check(files, ARRAY_LEN(files)));
  TRY(cli_plan_cache_ensure(&self->engine, NULL));
  TRY(cli_engine_check(&self->engine));
  TRY(tokenizer_open(&self->tokenizer, self->engine.model_dir));
  TRY(cli_conversation_open(&self->chat, self->engine.model_dir, self->chat_template));
  if (!(self->messages = json_array())) return FAIL(ERR_LIMIT, "chat: no memory");
  TRY(begin_conversation(self));
  self->engine.config.text = true;
  TRY(open_engine(self));
  let_interrupt(true);
  TRY(cli_engine_begin(&self->engine, self->tokenizer));
  if (!self->engine.quiet) fputs("each line is a message; /reset forgets the conversation, /exit ends\n", stderr);
  status result = converse(self, &line);
  free(line.text);
  TRY(result);
  TRY(cli_engine_end(&self->engine));
  return self->failure.code == OK || isatty(STDIN_FILENO) ? OK : self->failure.code;
}

int cli_chat(int argc, char **argv) {
  if (cli_options_ask_help(argc, argv)) {
    fputs(HELP, stdout);
    fputs(CLI_ENGINE_HELP, stdout);
    return 0;
  }
  talk self = {.words = calloc((size_t)argc + 1, sizeof *self.words)};
  status result = self.words ? parse_arguments(&self, argc, argv) : FAIL(ERR_LIMIT, "no memory");
  if (result == OK) result = talk_steps(&self);
  if (result != OK && *fail_text()) fprintf(stderr, "verbatim: %s\n", fail_text());
  cli_engine_close(&self.engine);
  chat_close(self.chat);
  tokenizer_close(self.tokenizer);
  json_decref(self.messages);
  free(self.words);
  return fail_exit_code(result);
}

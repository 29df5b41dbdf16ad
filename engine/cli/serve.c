/* cli/serve.c - `verbatim serve`: the server's arguments, start, signals and end.
 *
 * Owns the order: engine, receipt, queue, sockets; then it serves until a signal arrives, and closes everything in reverse. The HTTP
 * protocol is serve/http's. Read next: serve/http.h, serve/queue.h, common/engine.h. */
#include "chat/chat.h"
#include "cli/cli.h"
#include "common/config.h"
#include "common/engine.h"
#include "common/files.h"
#include "common/generation.h"
#include "common/options.h"
#include "common/plan_cache.h"
#include "common/signals.h"
#include "common/stop_ids.h"
#include "base/clock.h"
#include "base/digest.h"
#include "base/pipe.h"
#include "base/thread.h"
#include "base/whole_file.h"
#include "serve/http.h"
#include "serve/journal.h"
#include "serve/metrics.h"
#include "serve/queue.h"
#include "text/tokenizer.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define URL_BYTES 512
#define TICK_MS 250
#define DRAIN_TICK_MS 20
#define CHOICES_MAX 1024u
#define DESCRIPTORS_BESIDE 256u /* files, the engine, libraries */
#define FINGERPRINT_BYTES (2 * DIGEST_TEXT_BYTES + 8)

static const char HELP[] =
  "usage: verbatim serve [[PLAN] MODEL_DIR] [options]\n\n"
  "Serves OpenAI's HTTP API, with the bits that `verbatim run` gives. SERVING.md has a guide and\n"
  "defines the API.\n\n"
  CLI_PLAN_CACHE_HELP
  "Examples:\n"
  "  verbatim serve MODEL_DIR\n"
  "  verbatim serve my.plan MODEL_DIR --served-model-name my\n"
  "  verbatim serve --config deploy.yaml\n"
  "  curl -s localhost:8000/v1/completions --json '{\"model\": \"my\", \"prompt\": \"a prompt\"}'\n\n"
  "  POST /v1/completions, /v1/chat/completions, /tokenize, /detokenize\n"
  "  GET  /, /v1/models, /v1/models/NAME, /health, /ping, /load, /version, /metrics, /tokenizer_info\n\n"
  CLI_CONFIG_HELP
  "                      (the keys model and plan name the model folder and the plan; a plan that is\n"
  "                      absent is made)\n"
  "  --host HOST         name or address to listen on (127.0.0.1)\n"
  "  --port N            port to listen on; 0 is any free one (8000)\n"
  "  --served-model-name NAME  the model's name in requests (MODEL_DIR as given)\n"
  "  --chat-template FILE  a Jinja template in place of the model's own\n"
  "  --reasoning-parser NAME  return the thoughts in answers of chats apart, as reasoning_content: auto\n"
  "                      (by the chat template), harmony, think, none (none)\n"
  "  --tool-call-parser NAME  return calls of a request's tools as tool_calls: auto (by the chat\n"
  "                      template), none, or deepseek_v3, deepseek_v31, deepseek_v32, glm45, harmony,\n"
  "                      hermes, kimi_k2, llama3_json (auto)\n"
  CLI_GENERATION_HELP
  "  --api-key KEY       require \"Authorization: Bearer KEY\", except for /health, /ping and /version;\n"
  "                      better in the environment, as VERBATIM_API_KEY\n"
  "  --allowed-host NAME allow requests that name this host (header Host), on any port; * for all;\n"
  "                      may be repeated. A server on a loopback address knows localhost, 127.0.0.1,\n"
  "                      [::1] and HOST, and refuses other names; any other server allows all until\n"
  "                      one is given\n"
  "  --allowed-origin O  allow web pages of this origin (https://HOST[:PORT], or * for all) to use the\n"
  "                      server, and answer CORS; may be repeated (none)\n"
  "  --max-body-bytes N  largest body (33554432)\n"
  "  --max-waiting N     most requests accepted beyond those that run; further ones get 429 (1024)\n"
  "  --request-memory-bytes N  memory of all accepted bodies and their possible replies; requests\n"
  "                      beyond it get 429 (1073741824)\n"
  "  --max-connections N most connections; further ones take the place of silent ones, or wait (1024)\n"
  "  --client-timeout S  seconds a client has to send a head, to send a body, and to read some of its\n"
  "                      reply (30)\n"
  "  --drain-timeout S   seconds that requests have to finish after SIGTERM or SIGINT; a second signal\n"
  "                      ends them at once (30)\n"
  "  --access-log FILE   a line of JSON per reply; - is stdout\n"
  "  --request-log FILE  a line of JSON per request for tokens, with its body and the digests of its\n"
  "                      results, for `verbatim replay-log`; the file can be read by its owner only\n"
  "  --ready-file FILE   write the URL here once the server answers\n\n"
  "The receipt has every request that the engine accepted, in the order in which they finished.\n\n";

typedef struct serve_options {
  const char *host, *name, *api_key, *access_log, *request_log, *ready_file, *chat_template, *thoughts, *calls;
  const char **words; /* from argv: plan and model folder */
  uint32_t port, waiting_max, connections_max, client_seconds, drain_seconds;
  uint64_t body_bytes_max, request_bytes_max;
  serve_access_names hosts, origins;
  bool uses_generation; /* generation_config.json has defaults of requests */
} serve_options;

typedef struct signal_watch {
  pthread_t thread;
  sigset_t set;
  int ends[2]; /* of a pipe: a byte for each signal */
  bool is_running;
  atomic_bool is_serving, is_over;
} signal_watch;

typedef struct server {
  serve_options options;
  cli_config config;
  cli_engine engine;
  tokenizer *tokenizer;
  chat *chat;
  serve_reading reading;
  FILE *access_log, *request_log;
  json_t *defaults;     /* fields that requests have unless they set them; NULL: none */
  serve_journal journal;
  serve_metrics metrics;
  serve_queue *queue;
  serve_http *http;
  signal_watch signals;
  bool has_metrics, is_ready_told;
  char url[URL_BYTES], numerics_id[DIGEST_TEXT_BYTES], plan_digest[DIGEST_TEXT_BYTES], fingerprint[FINGERPRINT_BYTES];
} server;

/* === Arguments ============================================================================================================== */

static status take_port(const char *name, const char *value, void *target) {
  uint64_t port;
  TRY(cli_options_integer(name, value, UINT16_MAX, &port));
  *(uint32_t *)target = (uint32_t)port;
  return OK;
}

static status check_options(const serve_options *o) {
  if (o->client_seconds == 0) return FAIL(ERR_USAGE, "--client-timeout: expected 1 or more, found 0");
  if (o->connections_max == 0) return FAIL(ERR_USAGE, "--max-connections: expected 1 or more, found 0");
  if (o->body_bytes_max == 0 || o->body_bytes_max > 1u << 30)
    return FAIL(ERR_USAGE, "--max-body-bytes: expected 1 to %u, found %llu", 1u << 30, (unsigned long long)o->body_bytes_max);
  if (o->api_key && !*o->api_key) return FAIL(ERR_USAGE, "--api-key: expected a key, found none");
  return *o->name ? OK : FAIL(ERR_USAGE, "--served-model-name: expected a name, found none");
}

static status take_name(const char *option, const char *value, void *target) {
  serve_access_names *names = target;
  if (names->count == SERVE_ACCESS_NAMES_MAX) return FAIL(ERR_USAGE, "%s: at most %u times", option, SERVE_ACCESS_NAMES_MAX);
  bool is_word = *value && strlen(value) <= SERVE_ACCESS_NAME_BYTES_MAX;
  for (const char *c = value; *c; c++) is_word = is_word && *c > ' ' && *c < 0x7f;
  if (!is_word) return FAIL(ERR_USAGE, "%s: expected a name of 1 to %u printable characters", option, SERVE_ACCESS_NAME_BYTES_MAX);
  names->list[names->count++] = value;
  return OK;
}

/* As in the header Host, but for the port. */
static status take_host(const char *option, const char *value, void *target) {
  const char *end = *value == '[' ? strchr(value, ']') : NULL, *colon = strchr(end ? end : value, ':');
  bool has_port = colon && colon == strrchr(value, ':'), has_path = strchr(value, '/') != NULL; /* an address of IPv6 has more colons */
  if (has_port || has_path) return FAIL(ERR_USAGE, "%s: expected a name or an address without a port, found \"%s\"", option, value);
  return take_name(option, value, target);
}

/* As in the header Origin: a path would match nothing. */
static status take_origin(const char *option, const char *value, void *target) {
  const char *host = strstr(value, "://");
  bool is_origin = strcmp(value, "*") == 0 || strcmp(value, "null") == 0 || (host && host > value && host[3] && !strchr(host + 3, '/'));
  if (is_origin) return take_name(option, value, target);
  return FAIL(ERR_USAGE, "%s: expected an origin such as https://example.org, found \"%s\"", option, value);
}

static status parse_arguments(server *self, int argc, char **argv) {
  serve_options *o = &self->options;
  uint32_t count = 0;
  cli_option table[40] = {
    {"--host", cli_options_text, &o->host}, {"--port", take_port, &o->port}, {"--served-model-name", cli_options_text, &o->name},
    {"--api-key", cli_options_text, &o->api_key}, {"--max-body-bytes", cli_options_u64, &o->body_bytes_max},
    {"--max-waiting", cli_options_u32, &o->waiting_max}, {"--request-memory-bytes", cli_options_u64, &o->request_bytes_max},
    {"--max-connections", cli_options_u32, &o->connections_max}, {"--client-timeout", cli_options_u32, &o->client_seconds},
    {"--drain-timeout", cli_options_u32, &o->drain_seconds}, {"--access-log", cli_options_text, &o->access_log},
    {"--request-log", cli_options_text, &o->request_log},
    {"--ready-file", cli_options_text, &o->ready_file}, {"--allowed-host", take_host, &o->hosts},
    {"--allowed-origin", take_origin, &o->origins},
    {"--chat-template", cli_options_text, &o->chat_template}, {"--reasoning-parser", cli_options_text, &o->thoughts},
    {"--tool-call-parser", cli_options_text, &o->calls},
    {"--generation-config", cli_generation_take, &o->uses_generation}};
  cli_engine_options(&self->engine, table, ARRAY_LEN(table));
  cli_config_options(&self->config, CLI_CONFIG_SERVE, table, ARRAY_LEN(table));
  o->api_key = getenv("VERBATIM_API_KEY");
  TRY(cli_options_parse(table, argc, argv, o->words, &count));
  TRY(cli_config_apply(&self->config, table, argc, argv));
  TRY(cli_config_place_engine(&self->config, o->words, &self->engine.plan_path, &self->engine.model_dir));
  if (self->config.dump) return OK;
  if (!self->engine.model_dir)
    return FAIL(ERR_USAGE, "serve: expected [PLAN] MODEL_DIR, found %u word%s; hint: verbatim serve --help",
                count, CLI_OPTIONS_PLURAL(count));
  if (!o->name) o->name = self->engine.model_dir;
  TRY(cli_hub_resolve(&self->engine.model_dir, self->engine.model_path));
  return check_options(o);
}

/* === Start ================================================================================================================== */

/* Until the server answers, a signal ends the process at once: the engine's start may take minutes, and an output that is a pipe opens only
 * once somebody reads it. From then on each is a byte for the loop. */
static void *take_signals(void *context) {
  signal_watch *self = context;
  for (int number; sigwait(&self->set, &number) == 0 && !atomic_load(&self->is_over);) {
    if (!atomic_load(&self->is_serving)) _Exit(128 + number);
    (void)!write(self->ends[1], "", 1); /* a full pipe says it, too */
  }
  return NULL;
}

/* From the first thread on only ours takes these signals; a peer that went away is an error of a call, not a signal. */
static status begin_signals(signal_watch *self) {
  self->set = cli_signals_set(true);
  pthread_sigmask(SIG_BLOCK, &self->set, NULL);
  signal(SIGPIPE, SIG_IGN);
  TRY(pipe_open(self->ends, O_NONBLOCK));
  if (thread_begin(&self->thread, take_signals, self) != 0) return FAIL(ERR_LIMIT, "serve: cannot start a thread");
  self->is_running = true;
  return OK;
}

/* Not by pthread_cancel: AddressSanitizer takes the frames of a cancelled thread for live ones. */
static void end_signals(signal_watch *self) {
  if (self->is_running) {
    atomic_store(&self->is_over, true);
    (void)pthread_kill(self->thread, SIGTERM);
    pthread_join(self->thread, NULL);
  }
  for (uint32_t i = 0; i < 2; i++)
    if (self->ends[i] >= 0) close(self->ends[i]);
}

static status on_finished(void *context, const char *name, const verbatim_request *engine_request) {
  server *self = context;
  serve_journal_begin(&self->journal);
  status result = cli_engine_add(&self->engine, name, engine_request);
  serve_journal_end(&self->journal, SERVE_JOURNAL_RECEIPT, result);
  return result;
}

/* Every connection takes one descriptor. */
static void allow_descriptors(uint32_t connections) {
  struct rlimit limit;
  rlim_t wanted = (rlim_t)connections + DESCRIPTORS_BESIDE;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted) return;
  limit.rlim_cur = wanted < limit.rlim_max ? wanted : limit.rlim_max;
  (void)setrlimit(RLIMIT_NOFILE, &limit);
}

static status open_access_log(server *self) {
  const char *path = self->options.access_log;
  if (!path) return OK;
  self->access_log = strcmp(path, "-") == 0 ? stdout : fopen(path, "ab");
  return self->access_log ? OK : FAIL(ERR_IO, "%s: cannot be written: %s", path, strerror(errno));
}

/* Bodies hold what users wrote. */
static status open_request_log(server *self) {
  const char *path = self->options.request_log;
  if (!path) return OK;
  int descriptor = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
  self->request_log = descriptor < 0 ? NULL : fdopen(descriptor, "ab");
  return self->request_log ? OK : FAIL(ERR_IO, "%s: cannot be written: %s", path, strerror(errno));
}

static uint32_t places(const server *self) {
  uint32_t asked = self->engine.config.max_active, most = self->engine.info.max_seqs;
  return asked && asked < most ? asked : most;
}

static status open_queue(server *self) {
  const serve_options *o = &self->options;
  const serve_queue_config config = {.engine = self->engine.engine, .metrics = &self->metrics, .active_max = places(self),
                                     .waiting_max = o->waiting_max, .bytes_max = o->request_bytes_max, .on_finished = on_finished,
                                     .context = self};
  return serve_queue_open(&self->queue, &config);
}

static status open_http(server *self) {
  const serve_options *o = &self->options;
  const verbatim_info *info = &self->engine.info;
  digest_text(info->numerics_id, self->numerics_id);
  digest_text(info->plan_digest, self->plan_digest);
  snprintf(self->fingerprint, sizeof self->fingerprint, "vb-%s-%s", self->numerics_id, self->plan_digest);
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  const serve_http_config config = {
    .host = o->host, .model_dir = self->engine.model_dir, .port = o->port, .connections_max = o->connections_max,
    .client_seconds = o->client_seconds,
    .router = {.api_key = o->api_key, .body_bytes_max = o->body_bytes_max},
    .access = {.hosts = o->hosts, .origins = o->origins, .bound = o->host},
    .model = {.name = o->name, .info = info, .tokenizer = self->tokenizer, .chat = self->chat, .reading = self->reading,
              .fingerprint = self->fingerprint, .defaults = self->defaults, .choices_max = CHOICES_MAX, .bytes_max = o->request_bytes_max},
    .queue = self->queue, .metrics = &self->metrics,
    .labels = {.model_name = o->name, .numerics_id = self->numerics_id, .plan_digest = self->plan_digest, .device = info->device,
               .kv_pages = info->kv_pages, .ranks = info->ranks, .draft_tokens = info->draft_tokens, .gpus = info->gpus,
               .started_at = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec},
    .journal = &self->journal};
  allow_descriptors(o->connections_max);
  return serve_http_open(&self->http, &config, self->url, sizeof self->url);
}

static status tell_ready(server *self) {
  const char *path = self->options.ready_file;
  char reading[SERVE_READING_TEXT_BYTES];
  if (!self->engine.quiet && (self->reading.marks || self->reading.grammar))
    fprintf(stderr, "answers of chats: %s\n", serve_reading_text(&self->reading, reading));
  if (!self->engine.quiet) fprintf(stderr, "serving %s on %s\n", self->options.name, self->url);
  if (!path) return OK;
  char line[URL_BYTES + 2];
  int bytes = snprintf(line, sizeof line, "%s\n", self->url);
  return whole_file_write(path, line, (size_t)bytes);
}

/* === Service ================================================================================================================ */

/* Serves clients for at most this long; counts the signals that arrived. */
static void serve_for(server *self, uint32_t milliseconds, uint32_t *signal_count) {
  char arrived[64];
  serve_http_run(self->http, self->signals.ends[0], milliseconds);
  serve_journal_try(&self->journal);
  for (ssize_t bytes; (bytes = read(self->signals.ends[0], arrived, sizeof arrived)) > 0;) *signal_count += (uint32_t)bytes;
}

static bool is_idle(const server *self) { return serve_queue_idle(self->queue) && serve_http_idle(self->http); }

/* Lets running requests finish for a while, then cancels them, then gives their clients a moment to read the replies. */
static void drain(server *self, uint32_t signal_count) {
  const uint32_t first = signal_count;
  serve_http_drain(self->http);
  serve_queue_drain(self->queue);
  double end = clock_seconds() + self->options.drain_seconds;
  while (!is_idle(self) && signal_count == first && clock_seconds() < end && serve_queue_failure(self->queue) == OK)
    serve_for(self, DRAIN_TICK_MS, &signal_count);
  serve_queue_stop(self->queue);
  while (!serve_queue_idle(self->queue)) serve_for(self, DRAIN_TICK_MS, &signal_count);
  for (end = clock_seconds() + 1; !serve_http_idle(self->http) && clock_seconds() < end;)
    serve_for(self, DRAIN_TICK_MS, &signal_count);
}

static status serve_until_told(server *self) {
  uint32_t signal_count = 0;
  while (signal_count == 0 && serve_queue_failure(self->queue) == OK) serve_for(self, TICK_MS, &signal_count);
  if (!self->engine.quiet) fprintf(stderr, "shutting down: running requests have %u s to finish\n", self->options.drain_seconds);
  drain(self, signal_count);
  return serve_queue_failure(self->queue);
}

/* Connections whose requests are in the queue sleep: these end first. */
static void close_server(server *self) {
  if (self->queue) serve_queue_stop(self->queue);
  while (self->queue && !serve_queue_idle(self->queue)) (void)poll(NULL, 0, DRAIN_TICK_MS);
  serve_http_close(self->http);
  self->http = NULL;
  serve_queue_close(self->queue);
  self->queue = NULL;
}

/* Where answers may differ from those of transformers, for reasons that lie in the model's files. */
static status tell_differences(server *self) {
  char stop_ids[CLI_STOP_IDS_BYTES], sampling[CLI_GENERATION_NOTE_BYTES];
  const char *remark = tokenizer_remark(self->tokenizer);
  json_t *values = NULL;
  TRY(cli_stop_ids_note(self->engine.model_dir, stop_ids));
  TRY(cli_generation_read(self->engine.model_dir, &values));
  cli_generation_note(values, self->options.uses_generation, sampling);
  if (self->options.uses_generation) self->defaults = values;
  else json_decref(values);
  TRY(cli_generation_for_bodies(&self->defaults));
  if (self->engine.quiet) return OK;
  if (*sampling) fprintf(stderr, "note: %s\n", sampling);
  if (*stop_ids && !self->options.uses_generation) fprintf(stderr, "note: %s\n", stop_ids);
  if (remark) fprintf(stderr, "note: %s\n", remark);
  return OK;
}

static status start(server *self) {
  const serve_options *o = &self->options;
  const char *log = o->access_log && strcmp(o->access_log, "-") != 0 ? o->access_log : NULL;
  const cli_files_row files[] = {CLI_ENGINE_FILES(&self->engine), CLI_CONFIG_FILES(&self->config),
                                 {CLI_FILES_WRITTEN, log, "the access log"}, {CLI_FILES_WRITTEN, o->request_log, "the request log"},
                                 {CLI_FILES_WRITTEN, o->ready_file, "the ready file"},
                                 {CLI_FILES_READ, o->chat_template, "the chat template"}};
  TRY(cli_files_check(files, ARRAY_LEN(files)));
  TRY(cli_plan_cache_ensure(&self->engine, &self->config));
  TRY(open_access_log(self));
  TRY(open_request_log(self));
  TRY(tokenizer_open(&self->tokenizer, self->engine.model_dir));
  TRY(tell_differences(self));
  TRY(chat_open(&self->chat, self->engine.model_dir, self->options.chat_template));
  TRY(serve_reading_choose(&self->reading, self->chat, self->options.thoughts, self->options.calls));
  self->engine.config.text = true;
  TRY(cli_engine_open(&self->engine));
  TRY(cli_engine_begin(&self->engine, self->tokenizer));
  serve_journal_set(&self->journal, SERVE_JOURNAL_RECEIPT, self->engine.receipt.file, self->engine.receipt_path);
  serve_journal_set(&self->journal, SERVE_JOURNAL_LOG, self->access_log, self->options.access_log);
  serve_journal_set(&self->journal, SERVE_JOURNAL_REQUESTS, self->request_log, self->options.request_log);
  TRY(open_queue(self));
  TRY(open_http(self));
  return tell_ready(self);
}

static status serve(server *self) {
  TRY(begin_signals(&self->signals));
  status result = start(self);
  atomic_store(&self->signals.is_serving, true);
  if (result == OK) result = serve_until_told(self);
  close_server(self);
  TRY(result);
  return cli_engine_end(&self->engine);
}

int cli_serve(int argc, char **argv) {
  if (cli_options_ask_help(argc, argv)) {
    fputs(HELP, stdout);
    fputs(CLI_ENGINE_HELP, stdout);
    return 0;
  }
  server self = {.signals = {.ends = {-1, -1}},
                 .options = {.host = "127.0.0.1", .port = 8000, .waiting_max = 1024, .connections_max = 1024, .client_seconds = 30,
                             .drain_seconds = 30, .body_bytes_max = 32u << 20, .request_bytes_max = 1u << 30, .thoughts = "none",
                             .calls = "auto"}};
  serve_metrics_open(&self.metrics);
  serve_journal_open(&self.journal);
  self.options.words = calloc((size_t)argc + 1, sizeof *self.options.words);
  status result = self.options.words ? parse_arguments(&self, argc, argv) : FAIL(ERR_LIMIT, "no memory");
  if (result == OK && self.config.dump) result = cli_config_dump(&self.config, stdout);
  else if (result == OK) result = serve(&self);
  if (result != OK) fprintf(stderr, "verbatim: %s\n", fail_text());
  close_server(&self);
  cli_engine_close(&self.engine);
  chat_close(self.chat);
  json_decref(self.defaults);
  tokenizer_close(self.tokenizer);
  serve_metrics_close(&self.metrics);
  serve_journal_close(&self.journal);
  if (self.access_log && self.access_log != stdout) fclose(self.access_log);
  if (self.request_log) fclose(self.request_log);
  end_signals(&self.signals);
  free(self.options.words);
  cli_config_close(&self.config);
  return fail_exit_code(result);
}

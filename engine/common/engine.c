/* common/engine.c - see common/engine.h. Everything else about requests belongs to the subcommands. */
#include "common/engine.h"
#include "common/files.h"
#include "base/clock.h"
#include "base/digest.h"
#include "base/sha256.h"
#include "base/limits.h"
#include "base/special_file.h"
#include "receipts/resume.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PROGRESS_SECONDS_FILE 10.0
#define GPUS_MAX 1024u

/* === Options ================================================================================================================ */

status cli_engine_device(const char *name, const char *value, void *target) {
  uint64_t index = 0;
  int *device = target;
  if (strcmp(value, "auto") == 0) *device = VERBATIM_DEVICE_AUTO;
  else if (strcmp(value, "cpu") == 0) *device = VERBATIM_DEVICE_CPU;
  else if (strcmp(value, "gpu") == 0) *device = 0;
  else if (strncmp(value, "gpu:", 4) == 0) {
    if (cli_options_integer(name, value + 4, GPUS_MAX - 1, &index) != OK) {
      fail_clear();
      return FAIL(ERR_USAGE, "%s: expected gpu:N with N of 0 to %u, found \"%s\"; hint: nvidia-smi -L lists GPUs", name, GPUS_MAX - 1,
                  value);
    }
    *device = (int)index;
  } else return FAIL(ERR_USAGE, "%s: expected auto, cpu, gpu or gpu:N, found \"%s\"", name, value);
  return OK;
}

static status read_seconds(const char *name, const char *value, void *to) {
  uint32_t seconds = 0, *ms = to;
  TRY(cli_options_u32(name, value, &seconds));
  if (seconds < 1 || seconds > 3600) return FAIL(ERR_USAGE, "%s: expected 1 to 3600 seconds, found %s", name, value);
  *ms = seconds * 1000;
  return OK;
}

void cli_engine_options(cli_engine *self, cli_option *rows, size_t row_count) {
  const cli_option own[] = {
    {"--receipt", cli_options_text, &self->receipt_path}, {"--device", cli_engine_device, &self->config.device},
    {"--threads", cli_options_u32, &self->config.threads}, {"--cache-dir", cli_options_text, &self->cache_dir},
    {"--stats", cli_options_text, &self->stats_path}, {"--sha256", NULL, &self->config.sha256},
    {"--verbose", NULL, &self->verbose},
    {"--quiet", NULL, &self->quiet}, {"--batch", cli_options_u32, &self->config.max_active},
    {"--chunk", cli_options_u32, &self->config.chunk_tokens}, {"--slot-offset", cli_options_u32, &self->config.slot_offset},
    {"--shuffle-pages", cli_options_u64, &self->config.shuffle_pages},
    {"--no-prefix-cache", NULL, &self->config.no_prefix_cache}, {"--direct", NULL, &self->config.direct},
    {"--no-drafts", NULL, &self->config.no_drafts}, {"--poison", NULL, &self->config.poison},
    {"--check-exchanges", NULL, &self->config.check_exchanges},
    {"--exchange-timeout", read_seconds, &self->config.exchange_timeout_ms}};
  self->config.device = VERBATIM_DEVICE_AUTO;
  size_t at = 0;
  while (rows[at].name) at++;
  ASSERT(at + ARRAY_LEN(own) < row_count);
  memcpy(rows + at, own, sizeof own);
}

/* === Start, progress, end =================================================================================================== */

static void on_loading(void *context, uint64_t done, uint64_t total) {
  cli_engine *self = context;
  if (!self->quiet) cli_output_progress_bytes(&self->loading, "loading weights", done, total);
}

static void on_fault(void *context, const char *what) {
  cli_engine *self = context;
  if (self->receipt_open) receipt_fault(&self->receipt, what);
}

status cli_engine_check(const cli_engine *self) {
  TRY(input_file_check(self->plan_path, INPUT_PLAN));
  return input_file_check_model(self->model_dir);
}

status cli_engine_open(cli_engine *self) {
  verbatim_config *c = &self->config;
  if (self->stats_path) TRY(cli_files_check_output(self->stats_path));
  c->timed = self->stats_path != NULL;
  c->cache_dir = cli_files_cache(self->cache_dir, self->cache_path, sizeof self->cache_path);
  c->library_path = getenv("VERBATIM_LIBRARY_PATH");
  c->program_path = getenv("PATH");
  c->plan_path = self->plan_path;
  c->model_dir = self->model_dir;
  c->on_progress = on_loading;
  c->on_fault = on_fault;
  c->context = self;
  TRY((status)verbatim_open(&self->engine, c));
  self->info = verbatim_describe(self->engine);
  if (self->quiet) return OK;
  cli_stats_print(&self->info, self->verbose);
  if (*self->info.note) fprintf(stderr, "note: %s\n", self->info.note);
  return OK;
}

status cli_engine_begin(cli_engine *self, const tokenizer *t) {
  if (!t) return cli_engine_begin_as(self, NULL);
  digest vocabulary = tokenizer_digest(t);
  return cli_engine_begin_as(self, vocabulary.bytes);
}

status cli_engine_begin_as(cli_engine *self, const uint8_t *vocabulary) {
  const receipt_source source = {.info = &self->info, .tokenizer_digest = vocabulary};
  TRY(receipt_begin(&self->receipt, self->receipt_path, &source));
  self->receipt_open = true;
  self->started = self->progress_at = clock_seconds();
  return OK;
}

status cli_engine_continue(cli_engine *self, const tokenizer *t, uint32_t count) {
  digest vocabulary = tokenizer_digest(t);
  const receipt_source source = {.info = &self->info, .tokenizer_digest = vocabulary.bytes};
  TRY(receipt_resume(&self->receipt, self->receipt_path, &source, count));
  self->receipt_open = true;
  self->started = self->progress_at = clock_seconds();
  return OK;
}

void cli_engine_progress(cli_engine *self, uint32_t done, uint32_t count, uint64_t tokens, bool last) {
  bool terminal = isatty(STDERR_FILENO);
  double time = clock_seconds(), seconds = time - self->started;
  if (self->quiet) return;
  if (!last && time - self->progress_at < (terminal ? CLI_OUTPUT_PROGRESS_SECONDS : PROGRESS_SECONDS_FILE)) return;
  self->progress_at = time;
  fprintf(stderr, "%s%u/%u requests, %" PRIu64 " tokens, %.1f s, %.1f tokens/s%s", terminal ? "\r" : "", done, count, tokens, seconds,
          (double)tokens / (seconds > 0 ? seconds : 1), terminal && !last ? "" : "\n");
}

status cli_engine_add(cli_engine *self, const char *name, const verbatim_request *request) {
  int32_t stops[EOS_MAX + VERBATIM_STOP_IDS_MAX];
  uint32_t stop_count = verbatim_stop_ids(self->engine, request, stops);
  TRY(receipt_add(&self->receipt, name, request, stops, stop_count));
  self->done.requests++;
  self->done.prompt_tokens += request->prompt_count;
  self->done.generated_tokens += request->token_count;
  return OK;
}

status cli_engine_print_sha256(const char *path) {
  char text[SHA256_TEXT_BYTES];
  sha256 found;
  FILE *file = special_file_at(path) ? NULL : fopen(path, "rb");
  if (!file) return OK; /* a pipe or a device is gone */
  status result = sha256_read(file, path, &found);
  fclose(file);
  if (result == OK) fprintf(stderr, "sha256 %s  %s\n", sha256_text(found.bytes, text), path);
  return result;
}

status cli_engine_end(cli_engine *self) {
  char text[DIGEST_TEXT_BYTES];
  self->done.seconds = clock_seconds() - self->started;
  verbatim_info ended = verbatim_describe(self->engine);
  self->done.counters = verbatim_count(self->engine);
  self->receipt_open = false;
  TRY(receipt_end(&self->receipt, &self->receipt_digest));
  fprintf(stderr, "numerics id %s\n", digest_text(self->info.numerics_id, text));
  fprintf(stderr, "receipt %s\n", digest_text(self->receipt_digest.bytes, text));
  if (self->receipt_path && !self->quiet) TRY(cli_engine_print_sha256(self->receipt_path));
  cli_stats_check(&ended);
  return self->stats_path ? cli_stats_write(self->stats_path, &ended, &self->done) : OK;
}

void cli_engine_close(cli_engine *self) {
  if (self->receipt_open) receipt_abandon(&self->receipt, fail_text());
  verbatim_close(self->engine);
}

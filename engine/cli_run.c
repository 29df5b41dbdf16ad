/* cli_run.c - `verbatim run`: prompts in, tokens out, and a receipt.
 *
 * Owns the arguments of the subcommand, reading of prompts, output in the order of input, progress, accuracy. What is asked of the engine
 * goes through verbatim.h alone. Read next: items.h, transcript.h, receipt.h. */
#include "cli.h"
#include "cli_files.h"
#include "detokenizer.h"
#include "items.h"
#include "limits.h"
#include "receipt.h"
#include "tokenizer.h"
#include "transcript.h"
#include "verbatim.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define PATH_BYTES_MAX 4096
#define PROGRESS_SECONDS_TERMINAL 0.5
#define PROGRESS_SECONDS_FILE 10.0

static const char HELP[] =
  "usage: verbatim run PLAN MODEL_DIR [PROMPT...] [options]\n\n"
  "Prompts come from the arguments, from --jsonl, or else from stdin, one per line (\"-\" also means stdin).\n\n"
  "  --jsonl FILE        one JSON object per line: \"prompt\" or \"prompt_ids\", optionally \"id\", \"task\", \"answer\", \"max_tokens\",\n"
  "                      \"temperature\", \"top_k\", \"top_p\", \"seed\", \"stop_ids\", \"ignore_eos\"; - is stdin\n"
  "  --ids               prompts are token ids, and so is the output\n"
  "  --no-bos            do not add the begin-of-sequence token to text\n"
  "  --max-tokens N      most tokens to make (128)\n"
  "  --temperature X     0 is greedy (0)\n"
  "  --top-k N           0 is off (0)\n"
  "  --top-p X           1 is off (1)\n"
  "  --seed N            of the random choices (0)\n"
  "  --stop-id ID        also stops at this token; may be repeated\n"
  "  --ignore-eos        the model's own stop tokens do not stop\n"
  "  --output text|jsonl form of the output (text)\n"
  "  --stream            print text as it is made (one prompt)\n"
  "  --receipt FILE      write the receipt\n"
  "  --logits FILE       write fp32 logits of every prompt position, [positions][vocab], in the order of input\n"
  "  --device D          auto, cpu, gpu or gpu:N (auto)\n"
  "  --threads N         of the CPU (all cores)\n"
  "  --cache-dir DIR     compiled kernels (default: the user's cache folder); \"\" for none\n"
  "  --quiet             no progress\n\n"
  "How the work is cut; no value of these changes a bit of the output:\n"
  "  --batch N           most sequences at once        --chunk N          most prompt tokens of a request in a step\n"
  "  --slot-offset N     first slot                    --shuffle-pages S  deal the KV pages in an order made from S\n"
  "  --direct            launches, not graphs          --poison           NaN in all memory that must not matter\n";

typedef struct run_options {
  const char *plan_path, *model_dir, *jsonl, *receipt_path, *logits_path, *output, *device, *cache_dir;
  const char **prompts; /* [prompt_count], from argv */
  uint32_t prompt_count;
  item_params params;
  bool ids, no_bos, stream, quiet;
  verbatim_config config;
} run_options;

typedef struct run_request { /* an item on its way; the engine writes into its arrays */
  verbatim_request request;
  const item *item;
  struct run *run;
  uint64_t first_logit_row;
  int32_t *made_ids;   /* encoded prompt, or null when the item has ids */
} run_request;

typedef struct task_score {
  const char *task;
  uint32_t total, exact;
} task_score;

typedef struct run {
  run_options options;
  items items;
  tokenizer *tokenizer; /* null: ids only */
  verbatim *engine;
  verbatim_info info;
  run_request *requests;
  uint32_t written;     /* requests whose output is out: a prefix */
  receipt receipt;
  bool receipt_open;
  int logits_fd;
  int logits_error;     /* errno of the first write that failed, or 0 */
  const char *refused;  /* id of the request that the tokenizer or the engine did not take */
  detokenizer stream_state;
  uint64_t tokens_made, prompt_tokens;
  double started, progress_at;
  task_score *scores;   /* [score_count], in order of appearance */
  uint32_t score_count;
} run;

/* === Arguments ============================================================================================================== */

static status parse_u64(const char *option, const char *text, uint64_t most, uint64_t *out) {
  char *end = NULL;
  errno = 0;
  unsigned long long value = *text >= '0' && *text <= '9' ? strtoull(text, &end, 10) : 0;
  if (!end || *end || errno || value > most)
    return FAIL(ERR_USAGE, "%s: expected an integer of 0 to %" PRIu64 ", found \"%s\"", option, most, text);
  *out = value;
  return OK;
}

static status parse_u32(const char *option, const char *text, uint32_t *out) {
  uint64_t value;
  TRY(parse_u64(option, text, UINT32_MAX, &value));
  *out = (uint32_t)value;
  return OK;
}

static status parse_real(const char *option, const char *text, double *out) {
  char *end;
  double value = strtod(text, &end);
  if (end == text || *end) return FAIL(ERR_USAGE, "%s: expected a number, found \"%s\"", option, text);
  *out = value;
  return OK;
}

static status parse_stop(run_options *o, const char *text) {
  uint64_t id;
  if (o->params.stop_count == VERBATIM_STOP_IDS_MAX) return FAIL(ERR_LIMIT, "--stop-id: at most %u", VERBATIM_STOP_IDS_MAX);
  TRY(parse_u64("--stop-id", text, VOCAB_MAX, &id));
  o->params.stop_ids[o->params.stop_count++] = (int32_t)id;
  return OK;
}

static status parse_device(run_options *o) {
  uint64_t index = 0;
  if (strcmp(o->device, "auto") == 0) o->config.device = VERBATIM_DEVICE_AUTO;
  else if (strcmp(o->device, "cpu") == 0) o->config.device = VERBATIM_DEVICE_CPU;
  else if (strcmp(o->device, "gpu") == 0) o->config.device = 0;
  else if (strncmp(o->device, "gpu:", 4) == 0) {
    TRY(parse_u64("--device gpu:", o->device + 4, 1023, &index));
    o->config.device = (int)index;
  } else return FAIL(ERR_USAGE, "--device: expected auto, cpu, gpu or gpu:N, found \"%s\"", o->device);
  return OK;
}

/* An option without a value; returns false when the word is none. */
static bool parse_switch(run_options *o, const char *word) {
  const struct { const char *name; bool *target; } switches[] = {
    {"--ids", &o->ids}, {"--no-bos", &o->no_bos}, {"--ignore-eos", &o->params.ignore_eos}, {"--stream", &o->stream},
    {"--quiet", &o->quiet}, {"--direct", &o->config.direct}, {"--poison", &o->config.poison},
  };
  for (size_t i = 0; i < ARRAY_LEN(switches); i++)
    if (strcmp(word, switches[i].name) == 0) return *switches[i].target = true;
  return false;
}

static status parse_valued(run_options *o, const char *word, const char *value) {
  const struct { const char *name; const char **target; } texts[] = {
    {"--jsonl", &o->jsonl}, {"--receipt", &o->receipt_path}, {"--logits", &o->logits_path}, {"--output", &o->output},
    {"--device", &o->device}, {"--cache-dir", &o->cache_dir},
  };
  const struct { const char *name; uint32_t *target; } counts[] = {
    {"--max-tokens", &o->params.max_tokens}, {"--top-k", &o->params.top_k}, {"--threads", &o->config.threads},
    {"--batch", &o->config.max_active}, {"--chunk", &o->config.chunk_tokens}, {"--slot-offset", &o->config.slot_offset},
  };
  for (size_t i = 0; i < ARRAY_LEN(texts); i++)
    if (strcmp(word, texts[i].name) == 0) {
      *texts[i].target = value;
      return OK;
    }
  for (size_t i = 0; i < ARRAY_LEN(counts); i++)
    if (strcmp(word, counts[i].name) == 0) return parse_u32(word, value, counts[i].target);
  double real = 0;
  if (strcmp(word, "--seed") == 0) return parse_u64(word, value, UINT64_MAX, &o->params.seed);
  if (strcmp(word, "--shuffle-pages") == 0) return parse_u64(word, value, UINT64_MAX, &o->config.shuffle_pages);
  if (strcmp(word, "--stop-id") == 0) return parse_stop(o, value);
  if (strcmp(word, "--top-p") == 0) return parse_real(word, value, &o->params.top_p);
  if (strcmp(word, "--temperature") == 0) {
    TRY(parse_real(word, value, &real));
    o->params.temperature = (float)real;
    if (real == 0 || o->params.temperature != 0) return OK;
    return FAIL(ERR_USAGE, "%s: expected 0 or at least 0.001, found %s", word, value); /* what rounds to 0 is not greedy */
  }
  return FAIL(ERR_USAGE, "run: unknown option %s, hint: verbatim run --help", word);
}

static bool takes_value(const char *word) {
  static const char *const names[] = {
    "--jsonl", "--receipt", "--logits", "--output", "--device", "--cache-dir", "--max-tokens", "--top-k", "--threads", "--batch",
    "--chunk", "--slot-offset", "--seed", "--shuffle-pages", "--stop-id", "--top-p", "--temperature",
  };
  for (size_t i = 0; i < ARRAY_LEN(names); i++)
    if (strcmp(word, names[i]) == 0) return true;
  return false;
}

static status parse_arguments(run_options *o, int argc, char **argv) {
  int positional = 0;
  bool options_end = false;
  for (int i = 1; i < argc; i++) {
    const char *word = argv[i];
    if (!options_end && strcmp(word, "--") == 0) options_end = true;
    else if (options_end || word[0] != '-' || !word[1]) {
      if (positional == 0) o->plan_path = word;
      else if (positional == 1) o->model_dir = word;
      else o->prompts[o->prompt_count++] = word;
      positional++;
    } else if (parse_switch(o, word)) continue;
    else if (takes_value(word) && i + 1 == argc) return FAIL(ERR_USAGE, "run: %s needs a value", word);
    else TRY(parse_valued(o, word, takes_value(word) ? argv[++i] : ""));
  }
  if (positional < 2) return FAIL(ERR_USAGE, "run: expected PLAN MODEL_DIR, hint: verbatim run --help");
  if (strcmp(o->output, "text") != 0 && strcmp(o->output, "jsonl") != 0)
    return FAIL(ERR_USAGE, "--output: expected text or jsonl, found \"%s\"", o->output);
  if (o->stream && strcmp(o->output, "text") != 0) return FAIL(ERR_USAGE, "--stream: expected --output text, found %s", o->output);
  if (o->prompt_count && o->jsonl) return FAIL(ERR_USAGE, "run: prompts as arguments and --jsonl, expected one of them");
  return parse_device(o);
}

/* The user's cache folder, as desktop systems define it. */
static void choose_cache(run_options *o, char path[PATH_BYTES_MAX]) {
  const char *base = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
  int length = 0;
  if (o->cache_dir) o->config.cache_dir = *o->cache_dir ? o->cache_dir : NULL;
  else if (base && *base == '/') length = snprintf(path, PATH_BYTES_MAX, "%s/verbatim", base);
  else if (home && *home) length = snprintf(path, PATH_BYTES_MAX, "%s/.cache/verbatim", home);
  if (length > 0 && length < PATH_BYTES_MAX) o->config.cache_dir = path;
}

/* === Prompts ================================================================================================================ */

static status add_line(run *self, char *line, size_t bytes, uint32_t number) {
  const item_params *params = &self->options.params;
  if (bytes && line[bytes - 1] == '\n') bytes--;
  if (bytes && line[bytes - 1] == '\r') bytes--;
  if (bytes == 0) return OK;
  line[bytes] = 0;
  if (self->options.jsonl) return items_add_json(&self->items, line, bytes, number, params);
  if (!self->options.ids) return items_add_text(&self->items, line, bytes, params);
  if (strlen(line) != bytes) return FAIL(ERR_USAGE, "--ids: line %u: expected token ids, found a NUL", number);
  return items_add_ids(&self->items, line, params);
}

/* The next line with its end, and room for a NUL; *bytes is 0 behind the last. Not getline, which takes memory until there is none. */
static status read_line(FILE *file, char **line, size_t *room, size_t *bytes) {
  int c = 0;
  for (*bytes = 0; c != '\n' && (c = getc_unlocked(file)) != EOF; (*line)[(*bytes)++] = (char)c) {
    if (*bytes > ITEMS_LINE_BYTES_MAX) return FAIL(ERR_LIMIT, "prompts: a line has more than %u bytes", ITEMS_LINE_BYTES_MAX);
    if (*bytes + 2 <= *room) continue;
    char *grown = realloc(*line, 2 * *room + 4096);
    if (!grown) return FAIL(ERR_LIMIT, "prompts: no memory");
    *line = grown;
    *room = 2 * *room + 4096;
  }
  return OK;
}

static status read_lines(run *self, const char *path) {
  bool standard = strcmp(path, "-") == 0;
  FILE *file = standard ? stdin : fopen(path, "rb");
  if (!file) return FAIL(ERR_IO, "%s: cannot be opened: %s", path, strerror(errno));
  char *line = NULL;
  size_t room = 0, bytes = 0;
  status result = OK;
  uint32_t number = 0;
  do {
    result = read_line(file, &line, &room, &bytes);
    if (result == OK && bytes) result = add_line(self, line, bytes, ++number);
  } while (result == OK && bytes);
  if (result == OK && ferror(file)) result = FAIL(ERR_IO, "%s: cannot be read: %s", path, strerror(errno));
  free(line);
  if (!standard) fclose(file);
  return result;
}

static status read_prompts(run *self) {
  const run_options *o = &self->options;
  if (o->jsonl) TRY(read_lines(self, o->jsonl));
  for (uint32_t i = 0; i < o->prompt_count; i++) {
    if (strcmp(o->prompts[i], "-") == 0) TRY(read_lines(self, "-"));
    else if (o->ids) TRY(items_add_ids(&self->items, o->prompts[i], &o->params));
    else TRY(items_add_text(&self->items, o->prompts[i], strlen(o->prompts[i]), &o->params));
  }
  if (!o->jsonl && o->prompt_count == 0) {
    if (isatty(STDIN_FILENO)) return FAIL(ERR_USAGE, "run: no prompt, hint: give one as an argument, or pipe lines in");
    TRY(read_lines(self, "-"));
  }
  return self->items.count ? OK : FAIL(ERR_USAGE, "run: there is no prompt in the input");
}

/* Opened when a prompt is text, or when it is there and text output is wanted. */
static status open_tokenizer(run *self) {
  bool needed = false;
  char path[PATH_BYTES_MAX];
  for (uint32_t i = 0; i < self->items.count; i++) needed |= self->items.list[i].prompt != NULL;
  int length = snprintf(path, sizeof path, "%s/tokenizer.json", self->options.model_dir);
  if (needed || (!self->options.ids && length > 0 && length < PATH_BYTES_MAX && access(path, F_OK) == 0))
    TRY(tokenizer_open(&self->tokenizer, self->options.model_dir));
  self->options.stream = self->options.stream && self->tokenizer && !self->options.ids; /* ids are printed when all are made */
  return OK;
}

static status encode(run *self, run_request *r) {
  const item *from = r->item;
  if (from->ids) {
    r->request.prompt = from->ids;
    r->request.prompt_count = from->id_count;
    return OK;
  }
  size_t room = from->prompt_bytes + 8, count = 0;
  if (!(r->made_ids = malloc(room * sizeof *r->made_ids))) return FAIL(ERR_LIMIT, "prompts: no memory");
  TRY(tokenizer_encode(self->tokenizer, from->prompt, from->prompt_bytes, !self->options.no_bos, true, r->made_ids, room, &count));
  r->request.prompt = r->made_ids;
  r->request.prompt_count = (uint32_t)count;
  return OK;
}

/* === Callbacks of the engine ================================================================================================ */

static void on_token(verbatim_request *request, uint32_t index) {
  run_request *r = request->context;
  run *self = r->run;
  char text[4096];
  size_t bytes = 0;
  self->tokens_made++;
  if (!self->options.stream) return;
  if (request->finish == VERBATIM_STOP || tokenizer_is_special(self->tokenizer, request->tokens[index])) return;
  if (detokenizer_push(self->tokenizer, &self->stream_state, request->tokens[index], text, sizeof text, &bytes) != OK) return;
  fwrite(text, 1, bytes, stdout);
  fflush(stdout);
}

static void on_logits(verbatim_request *request, uint32_t position, const float *row) {
  run_request *r = request->context;
  if (r->run->logits_error) return;
  size_t bytes = r->run->info.vocab * sizeof *row, done = 0;
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

static void on_fault(void *context, const char *what) {
  run *self = context;
  if (self->receipt_open) receipt_fault(&self->receipt, what);
}

/* === Progress =============================================================================================================== */

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void show_progress(run *self, bool last) {
  bool terminal = isatty(STDERR_FILENO);
  double time = now(), seconds = time - self->started;
  if (self->options.quiet || (self->options.stream && terminal && !last)) return;
  if (!last && time - self->progress_at < (terminal ? PROGRESS_SECONDS_TERMINAL : PROGRESS_SECONDS_FILE)) return;
  self->progress_at = time;
  fprintf(stderr, "%s%u/%u requests, %" PRIu64 " tokens, %.1f s, %.1f tokens/s%s", terminal ? "\r" : "", self->written,
          self->items.count, self->tokens_made, seconds, (double)self->tokens_made / (seconds > 0 ? seconds : 1),
          terminal && !last ? "" : "\n");
}

static void on_loading(void *context, uint64_t done, uint64_t total) {
  run *self = context;
  double time = now();
  if (self->options.quiet || !isatty(STDERR_FILENO) || (done < total && time - self->progress_at < PROGRESS_SECONDS_TERMINAL)) return;
  self->progress_at = time;
  fprintf(stderr, "\rloading weights: %" PRIu64 "/%" PRIu64 " MB%s", done / 1000000, total / 1000000, done == total ? "\n" : "");
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
  for (uint32_t i = 0; i < request->token_count; i++) printf("%s%d", i ? " " : "", request->tokens[i]);
}

/* Text or ids of one request; with several, each is headed by its id. */
static void print_text(run *self, const run_request *r, const char *text, size_t bytes) {
  if (self->items.count > 1) printf("[%s] ", r->item->id);
  if (self->options.stream) {
    char rest[16];
    size_t rest_bytes = 0;
    if (detokenizer_flush(&self->stream_state, rest, sizeof rest, &rest_bytes) == OK) fwrite(rest, 1, rest_bytes, stdout);
  } else if (text) fwrite(text, 1, bytes, stdout);
  else print_ids(&r->request);
  putchar('\n');
}

static status write_one(run *self, run_request *r) {
  char *text = NULL;
  size_t bytes = 0;
  int32_t stops[EOS_MAX + VERBATIM_STOP_IDS_MAX];
  if (self->tokenizer && !self->options.ids) TRY(transcript_text(self->tokenizer, &r->request, &text, &bytes));
  status result = OK;
  if (strcmp(self->options.output, "jsonl") == 0) result = transcript_json(stdout, r->item, &r->request, text, bytes);
  else print_text(self, r, text, bytes);
  if (r->item->answer && text) score(self, r->item, transcript_matches(text, bytes, r->item->answer));
  free(text);
  TRY(result);
  uint32_t stop_count = verbatim_stop_ids(self->engine, &r->request, stops);
  receipt_add(&self->receipt, r->item->id, &r->request, stops, stop_count);
  if (fflush(stdout) != 0 || ferror(stdout)) return FAIL(ERR_IO, "stdout: cannot be written: %s", strerror(errno));
  return r->request.finish == VERBATIM_NONFINITE
             ? FAIL(ERR_MISMATCH, "request %s: the logits hold NaN or Inf after %u tokens, hint: are the weights damaged?", r->item->id,
                    r->request.token_count)
             : OK;
}

/* Whatever is finished, in the order of input. A request with non-finite logits is reported, the others go on. */
static status write_finished(run *self, status *first_failure) {
  while (self->written < self->items.count && self->requests[self->written].request.finish != VERBATIM_RUNNING) {
    status result = write_one(self, &self->requests[self->written]);
    self->written++;
    if (result == ERR_MISMATCH) *first_failure = result;
    else TRY(result);
  }
  return OK;
}

/* === The run ================================================================================================================ */

static status make_requests(run *self) {
  uint64_t logit_rows = 0;
  self->requests = calloc(self->items.count, sizeof *self->requests);
  self->scores = calloc(self->items.count, sizeof *self->scores);
  if (!self->requests || !self->scores) return FAIL(ERR_LIMIT, "requests: no memory");
  for (uint32_t i = 0; i < self->items.count; i++) {
    run_request *r = &self->requests[i];
    const item_params *p = &self->items.list[i].params;
    *r = (run_request){.item = &self->items.list[i], .run = self, .first_logit_row = logit_rows};
    self->refused = r->item->id;
    TRY(encode(self, r));
    self->refused = NULL;
    r->request.max_tokens = p->max_tokens;
    r->request.temperature = p->temperature;
    r->request.top_k = p->top_k;
    r->request.top_p = p->top_p;
    r->request.seed = p->seed;
    r->request.stop_ids = p->stop_ids;
    r->request.stop_count = p->stop_count;
    r->request.ignore_eos = p->ignore_eos;
    r->request.on_token = on_token;
    r->request.on_logits = self->options.logits_path ? on_logits : NULL;
    r->request.context = r;
    logit_rows += r->request.prompt_count;
    self->prompt_tokens += r->request.prompt_count;
  }
  return OK;
}

/* Every request is checked before the first step, so that a bad one costs nothing. Output memory is taken only for those that fit. */
static status submit_requests(run *self) {
  for (uint32_t i = 0; i < self->items.count; i++) {
    run_request *r = &self->requests[i];
    uint32_t most = min_u32(r->request.max_tokens, self->info.max_len);
    r->request.tokens = calloc(most ? most : 1, sizeof *r->request.tokens);
    r->request.logprobs = calloc(most ? most : 1, sizeof *r->request.logprobs);
    r->request.digests = calloc(most ? most : 1, sizeof *r->request.digests);
    if (!r->request.tokens || !r->request.logprobs || !r->request.digests) return FAIL(ERR_LIMIT, "requests: no memory");
    self->refused = r->item->id;
    TRY((status)verbatim_submit(self->engine, &r->request));
    self->refused = NULL;
  }
  return OK;
}

static status open_engine(run *self) {
  run_options *o = &self->options;
  o->config.plan_path = o->plan_path;
  o->config.model_dir = o->model_dir;
  o->config.logits = o->logits_path != NULL;
  o->config.on_progress = on_loading;
  o->config.on_fault = on_fault;
  o->config.context = self;
  double before = now();
  status result = (status)verbatim_open(&self->engine, &o->config);
  TRY(result);
  self->info = verbatim_describe(self->engine);
  if (o->quiet) return OK;
  fprintf(stderr, "device: %s, ready in %.1f s, %u graphs\n", self->info.device, now() - before, self->info.graph_count);
  if (*self->info.note) fprintf(stderr, "note: %s\n", self->info.note);
  return OK;
}

static status open_outputs(run *self) {
  const run_options *o = &self->options;
  digest vocabulary;
  receipt_source source = {.numerics_id = self->info.numerics_id, .config_digest = self->info.config_digest,
                           .weights_digest = self->info.weights_digest};
  if (self->tokenizer) {
    vocabulary = tokenizer_digest(self->tokenizer);
    source.tokenizer_digest = vocabulary.bytes;
  }
  TRY(receipt_begin(&self->receipt, o->receipt_path, &source));
  self->receipt_open = true;
  if (!o->logits_path) return OK;
  self->logits_fd = open(o->logits_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  return self->logits_fd >= 0 ? OK : FAIL(ERR_IO, "%s: cannot be written: %s", o->logits_path, strerror(errno));
}

static status run_all(run *self) {
  status failure = OK;
  bool busy = true;
  self->started = self->progress_at = now();
  while (busy) {
    TRY((status)verbatim_step(self->engine, &busy));
    TRY(write_finished(self, &failure));
    show_progress(self, false);
  }
  show_progress(self, true);
  print_scores(self);
  digest result;
  char text[DIGEST_TEXT_BYTES];
  self->receipt_open = false;
  TRY(receipt_end(&self->receipt, &result));
  fprintf(stderr, "receipt %s\n", digest_text(result.bytes, text));
  if (!self->logits_error) return failure;
  return FAIL(ERR_IO, "%s: could not be written whole: %s", self->options.logits_path, strerror(self->logits_error));
}

/* Before anything is read or written: no output may be an input, or the other output. */
static status check_outputs(const run_options *o) {
  const char *const outputs[] = {o->receipt_path, o->logits_path};
  for (size_t i = 0; i < ARRAY_LEN(outputs); i++) {
    TRY(cli_files_check_apart(outputs[i], o->plan_path, "the plan"));
    TRY(cli_files_check_apart(outputs[i], o->jsonl, "the prompts"));
    TRY(cli_files_check_apart(outputs[i], "/dev/stdin", "the prompts"));
    TRY(cli_files_check_model(outputs[i], o->model_dir));
  }
  if (o->receipt_path && o->logits_path && strcmp(o->receipt_path, o->logits_path) == 0)
    return FAIL(ERR_USAGE, "%s: expected two files for --receipt and --logits, found one", o->receipt_path);
  return cli_files_check_apart(o->logits_path, o->receipt_path, "the receipt");
}

static status run_steps(run *self) {
  TRY(check_outputs(&self->options));
  TRY(read_prompts(self));
  if (self->options.stream && self->items.count != 1) return FAIL(ERR_USAGE, "--stream: expected one prompt, found %u", self->items.count);
  TRY(open_tokenizer(self));
  TRY(make_requests(self));
  TRY(open_engine(self));
  TRY(submit_requests(self));
  TRY(open_outputs(self));
  return run_all(self);
}

static void close_run(run *self) {
  if (self->receipt_open) receipt_abandon(&self->receipt, fail_text());
  verbatim_close(self->engine);
  tokenizer_close(self->tokenizer);
  for (uint32_t i = 0; self->requests && i < self->items.count; i++) {
    free(self->requests[i].made_ids);
    free(self->requests[i].request.tokens);
    free(self->requests[i].request.logprobs);
    free(self->requests[i].request.digests);
  }
  free(self->requests);
  free(self->scores);
  items_close(&self->items);
  if (self->logits_fd >= 0) close(self->logits_fd);
  free(self->options.prompts);
}

int cli_run(int argc, char **argv) {
  char cache_path[PATH_BYTES_MAX];
  for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
    if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
      fputs(HELP, stdout);
      return 0;
    }
  run self = {.logits_fd = -1};
  self.options = (run_options){.output = "text", .device = "auto", .params = {.max_tokens = 128, .top_p = 1.0}};
  self.options.prompts = calloc((size_t)argc, sizeof *self.options.prompts);
  status result = self.options.prompts ? parse_arguments(&self.options, argc, argv) : FAIL(ERR_LIMIT, "no memory");
  choose_cache(&self.options, cache_path);
  if (result == OK) result = run_steps(&self);
  if (result != OK && self.refused) fprintf(stderr, "verbatim: item %s: %s\n", self.refused, fail_text());
  else if (result != OK) fprintf(stderr, "verbatim: %s\n", fail_text());
  close_run(&self);
  return fail_exit_code(result);
}

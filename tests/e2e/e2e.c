/* e2e.c - see e2e.h. */
#define _DEFAULT_SOURCE /* mkdtemp */
#include "e2e.h"
#include "engine/gpu/gpu.h"
#include "engine/receipts/receipt.h"
#include "planner/planner.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static char build_folder[E2E_PATH_MAX], cache_folder[E2E_PATH_MAX];
static int device = VERBATIM_DEVICE_CPU;

_Noreturn static void stop(const char *what) {
  fprintf(stderr, "e2e: %s: %s\n", what, fail_text());
  exit(1);
}

static void text_to(char *path, const char *format, const char *a, const char *b) {
  int bytes = snprintf(path, E2E_PATH_MAX, format, a, b);
  if (bytes < 0 || bytes >= E2E_PATH_MAX) stop("path too long");
}

void e2e_begin(int argc, char **argv) {
  const char *slash = strrchr(argv[0], '/');
  snprintf(build_folder, sizeof build_folder, "%.*s/..", slash ? (int)(slash - argv[0]) : 1, slash ? argv[0] : ".");
  text_to(cache_folder, "%s/%s", build_folder, "kernel_cache");
  for (int i = 1; i + 1 < argc; i++)
    if (strcmp(argv[i], "--device") == 0) device = strcmp(argv[i + 1], "gpu") == 0 ? 0 : VERBATIM_DEVICE_CPU;
  if (device == VERBATIM_DEVICE_CPU) return;
  gpu *found = NULL;
  if (gpu_open(0, NULL, &found) != OK) {
    printf("SKIPPED: no GPU: %s\n", fail_text());
    exit(0);
  }
  gpu_close(found);
}

int e2e_device(void) { return device; }

/* Tools are built once, next to the plain program; the sanitizer build is one folder below. */
void e2e_binary(const char *name, char path[E2E_PATH_MAX]) {
  text_to(path, "%s/%s", build_folder, name);
  if (access(path, X_OK) != 0) text_to(path, "%s/../%s", build_folder, name);
  if (access(path, X_OK) != 0) stop(path);
}

int e2e_command(char *const argv[], char *output, size_t output_bytes) {
  int ends[2], state = 0;
  if (pipe(ends) != 0) stop("pipe");
  fflush(NULL);
  pid_t child = fork();
  if (child < 0) stop("fork");
  if (child == 0) {
    int null = open("/dev/null", O_RDONLY);
    dup2(null, STDIN_FILENO);
    dup2(ends[1], STDOUT_FILENO);
    dup2(ends[1], STDERR_FILENO);
    close(ends[0]);
    execv(argv[0], argv);
    _exit(127);
  }
  close(ends[1]);
  size_t used = 0;
  char part[4096];
  ssize_t bytes;
  while ((bytes = read(ends[0], part, sizeof part)) > 0)
    for (ssize_t i = 0; i < bytes; i++)
      if (used + 1 < output_bytes) output[used++] = part[i];
  if (output_bytes) output[used] = 0;
  close(ends[0]);
  waitpid(child, &state, 0);
  return WIFEXITED(state) ? WEXITSTATUS(state) : -1;
}

int e2e_shell(const e2e_model *model, const char *setup, const char *command, char *output, size_t output_bytes) {
  char script[8 * E2E_PATH_MAX], program[E2E_PATH_MAX], sh[] = "/bin/sh", flag[] = "-c";
  e2e_binary("verbatim", program);
  int bytes = snprintf(script, sizeof script, "V=$(realpath '%s') && TINY=$(realpath tests/tiny) && cd '%s' && %s%s", program,
                       model->folder, setup, command);
  if (bytes < 0 || (size_t)bytes >= sizeof script) stop("command too long");
  return e2e_command((char *[]){sh, flag, script, NULL}, output, output_bytes);
}

FILE *e2e_open(const e2e_model *model, const char *name, const char *mode) {
  char path[E2E_PATH_MAX];
  text_to(path, "%s/%s", model->folder, name);
  FILE *file = fopen(path, mode);
  if (!file) stop(path);
  return file;
}

char *e2e_read_file(const char *path, size_t *bytes) {
  FILE *file = fopen(path, "rb");
  if (!file) stop(path);
  fseek(file, 0, SEEK_END);
  long size = ftell(file);
  rewind(file);
  char *text = size < 0 ? NULL : malloc((size_t)size + 1);
  if (!text || fread(text, 1, (size_t)size, file) != (size_t)size) stop(path);
  text[size] = 0;
  fclose(file);
  if (bytes) *bytes = (size_t)size;
  return text;
}

static void write_bytes(const char *path, const void *memory, size_t bytes) {
  FILE *file = fopen(path, "wb");
  if (!file || fwrite(memory, 1, bytes, file) != bytes || fclose(file) != 0) stop(path);
}

void e2e_write_file(const char *path, const char *text) { write_bytes(path, text, strlen(text)); }

void e2e_make_plan(const e2e_model *model, const char *name, const char *deploy, char path[E2E_PATH_MAX]) {
  char config_path[E2E_PATH_MAX];
  size_t config_bytes, plan_bytes;
  void *plan_memory;
  text_to(config_path, "%s/%s", model->model_dir, "config.json");
  char *config = e2e_read_file(config_path, &config_bytes);
  planner_input input = {.config = {config, config_bytes}, .deploy = {deploy, strlen(deploy)}};
  if (planner_make(&input, &plan_memory, &plan_bytes) != OK) stop("plan");
  text_to(path, "%s/%s", model->folder, name);
  write_bytes(path, plan_memory, plan_bytes);
  free(plan_memory);
  free(config);
}

static void make_model(e2e_model *model, const char *config_path, const char *deploy, const char *option) {
  char tool[E2E_PATH_MAX], output[2048];
  const char *base = getenv("TMPDIR");
  text_to(model->folder, "%s/%s", base ? base : "/tmp", "verbatim-e2e-XXXXXX");
  if (!mkdtemp(model->folder)) stop(model->folder);
  text_to(model->model_dir, "%s/%s", model->folder, "model");
  e2e_binary("random_model", tool);
  char *argv[] = {tool, (char *)(uintptr_t)config_path, model->model_dir, (char *)(uintptr_t)option, NULL};
  if (e2e_command(argv, output, sizeof output) != 0) stop(output);
  e2e_make_plan(model, "plan", deploy, model->plan_path);
}

void e2e_make_model(e2e_model *model, const char *config_path, const char *deploy) { make_model(model, config_path, deploy, NULL); }

void e2e_make_text_model(e2e_model *model, const char *config_path, const char *deploy) {
  make_model(model, config_path, deploy, "--vocab-tokenizer");
}

void e2e_remove(const e2e_model *model) {
  char output[256];
  char *argv[] = {(char *)(uintptr_t)"/bin/rm", (char *)(uintptr_t)"-rf", (char *)(uintptr_t)model->folder, NULL};
  if (e2e_command(argv, output, sizeof output) != 0) stop(output);
}

static uint32_t scramble(uint64_t seed) {
  uint64_t z = (seed + 1) * 0x9e3779b97f4a7c15ull;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return (uint32_t)(z >> 33);
}

/* The options of request i, of each kind. Their periods differ, so that many combinations occur. */
static void ask(verbatim_request *q, uint32_t i, uint32_t vocab) {
  verbatim_bias *biases = (verbatim_bias *)(uintptr_t)q->biases;
  int32_t *allowed = (int32_t *)(uintptr_t)q->allowed_ids;
  if (i % 3 == 1) q->temperature = 0.9f;
  if (i % 3 == 2) q->temperature = 1.3f, q->top_k = 20, q->top_p = 0.9;
  if (i % 5 == 3) q->min_p = 0.05;
  if (i % 4 == 2) q->repetition_penalty = 1.5f, q->frequency_penalty = 2.0f;
  if (i % 4 == 3) q->presence_penalty = i % 8 == 3 ? 4.0f : -4.0f;
  if (i % 7 == 5) q->sample_index = i;
  if (i % 11 < 4) q->top_logprobs = 1 + i % E2E_TOP;
  if (i % 5 == 1) q->bias_count = 1 + i % E2E_LIST;
  if (i % 13 == 6) q->allowed_count = 2 + i % (E2E_LIST - 1);
  for (uint32_t k = 0; k < E2E_LIST; k++) { /* no token twice in a list */
    biases[k] = (verbatim_bias){.token = (int32_t)((i + 31 * k) % vocab), .bias = (float)(scramble(i * 64ull + k) % 100) / 16 - 3};
    allowed[k] = (int32_t)((i + 62 * k) % vocab);
  }
  if (i % 6 != 4 || q->prompt_count < 2) return;
  q->score = true;
  q->score_from = 1 + scramble(i * 8ull + 3) % (q->prompt_count - 1);
  if (i % 4 == 2) q->max_tokens = 0;
}

void e2e_requests_make(e2e_requests *r, uint32_t count, uint32_t vocab, uint32_t prompt_max, uint32_t tokens_max) {
  size_t most = (size_t)prompt_max + tokens_max;
  *r = (e2e_requests){.count = count, .list = calloc(count, sizeof *r->list), .ids = calloc(count, prompt_max * sizeof *r->ids),
                      .outputs = calloc(count, most * sizeof *r->outputs),
                      .alternatives = calloc(count, most * E2E_TOP * sizeof *r->alternatives),
                      .biases = calloc(count, E2E_LIST * sizeof *r->biases), .allowed = calloc(count, E2E_LIST * sizeof *r->allowed)};
  if (!r->list || !r->ids || !r->outputs || !r->alternatives || !r->biases || !r->allowed) stop("memory");
  for (uint32_t i = 0; i < count; i++) {
    int32_t *ids = r->ids + (size_t)i * prompt_max;
    verbatim_request *q = &r->list[i];
    *q = VERBATIM_REQUEST_DEFAULTS;
    q->prompt = ids;
    q->seed = scramble(i * 8ull);
    q->prompt_count = i < 4 ? (const uint32_t[]){1, prompt_max, 64, 65}[i] : 1 + scramble(i * 8ull + 1) % (i % 4 ? 40 : prompt_max);
    if (q->prompt_count > prompt_max) q->prompt_count = prompt_max;
    q->max_tokens = 1 + scramble(i * 8ull + 2) % tokens_max;
    for (uint32_t k = 0; k < q->prompt_count; k++) ids[k] = (int32_t)(scramble((uint64_t)i << 32 | k) % vocab);
    q->tokens = r->outputs + i * most;
    q->scores = q->tokens + tokens_max;
    q->alternatives = r->alternatives + i * most * E2E_TOP;
    q->biases = r->biases + (size_t)i * E2E_LIST;
    q->allowed_ids = r->allowed + (size_t)i * E2E_LIST;
    ask(q, i, vocab);
  }
}

void e2e_requests_make_long(e2e_requests *requests, uint32_t count, uint32_t vocab, uint32_t longest, uint32_t prompt_max,
                            uint32_t other_max, uint32_t tokens_max) {
  e2e_requests_make(requests, count, vocab, prompt_max, tokens_max);
  for (uint32_t i = 0; i < count; i++) {
    verbatim_request *r = &requests->list[i];
    if (i != longest && r->prompt_count > other_max) r->prompt_count = 2 + r->prompt_count % (other_max - 1);
    if (r->score) r->score_from = min_u32(r->score_from, r->prompt_count - 1);
  }
  verbatim_request *r = &requests->list[longest];
  ASSERT(r->prompt_count == prompt_max);
  r->max_tokens = tokens_max;
  r->score = r->ignore_eos = true;
  r->score_from = 1;
}

void e2e_requests_free(e2e_requests *r) {
  free(r->list);
  free(r->ids);
  free(r->outputs);
  free(r->alternatives);
  free(r->biases);
  free(r->allowed);
}

verbatim_config e2e_config(const e2e_model *model) {
  return (verbatim_config){.plan_path = model->plan_path, .model_dir = model->model_dir, .device = e2e_device(), .threads = 2,
                           .cache_dir = cache_folder};
}

digest e2e_run(const verbatim_config *config, e2e_requests *requests, uint32_t first, uint32_t count) {
  verbatim_counters counters;
  return e2e_run_counted(config, requests, first, count, &counters);
}

digest e2e_run_counted(const verbatim_config *config, e2e_requests *requests, uint32_t first, uint32_t count, verbatim_counters *counters) {
  verbatim *engine;
  if (verbatim_open(&engine, config) != 0) stop("open");
  verbatim_info info = verbatim_describe(engine);
  for (uint32_t i = first; i < first + count; i++)
    if (verbatim_submit(engine, &requests->list[i]) != 0) stop("submit");
  bool busy = true;
  while (busy)
    if (verbatim_poll(engine, &busy) != 0) stop("step");
  receipt paper;
  const receipt_source source = {.info = &info};
  if (receipt_begin(&paper, NULL, &source) != OK) stop("receipt");
  for (uint32_t i = first; i < first + count; i++) {
    char id[16];
    int32_t stops[8 + VERBATIM_STOP_IDS_MAX];
    uint32_t stop_count = verbatim_stop_ids(engine, &requests->list[i], stops);
    if (requests->list[i].finish != VERBATIM_STOP && requests->list[i].finish != VERBATIM_LENGTH) stop("a request did not finish");
    snprintf(id, sizeof id, "%u", i);
    receipt_add(&paper, id, &requests->list[i], stops, stop_count);
  }
  digest result;
  if (receipt_end(&paper, &result) != OK) stop("receipt");
  *counters = verbatim_count(engine);
  verbatim_close(engine);
  return result;
}

bool e2e_is_same(const verbatim_config *config, e2e_requests *requests, digest expected) {
  digest found = e2e_run(config, requests, 0, requests->count);
  return memcmp(found.bytes, expected.bytes, DIGEST_BYTES) == 0;
}

char *e2e_without_machine(char *text) {
  char *second = strchr(text, '\n'), *third = second ? strchr(second + 1, '\n') : NULL;
  if (!third || strncmp(second + 1, "{\"machine\":{", 12) != 0) stop("a receipt whose second line is not the machine's");
  memmove(second, third, strlen(third) + 1);
  return text;
}

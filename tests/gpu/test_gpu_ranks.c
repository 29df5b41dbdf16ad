/* test_gpu_ranks.c - plans of several ranks on real GPUs: the bits of one GPU and of the CPU, and what happens when a rank fails.
 *
 * Linked with --wrap for launches: those of rank 1 are delayed, never made, or followed by a write to its memory. Every engine runs in a
 * child, because a fault ends the process, and the driver must not be used before a fork. Skipped with fewer than two GPUs. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#include "tests/unit/unit.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "engine/base/base.h"
#include "engine/base/clock.h"
#include "engine/cli/cli.h"
#include "engine/gpu/gpu.h"
#include "engine/gpu/nccl.h"
#include "kernels_src/abi.h"
#include "tests/e2e/changed.h"
#include "tests/e2e/e2e.h"

/* Steps of more rows than rank_norm takes, too. */
#define LIMITS "max-num-seqs: 8\nmax-num-batched-tokens: 160\nmax-model-len: 192\nkv_pages: 40\ngroup_chunks: 2\nladder: [1, 2, 8]\n"
#define REQUESTS 8u
#define VOCAB 384u
#define PROMPT_MAX 150u
#define TOKENS_MAX 10u
#define TEXT_MAX 4096u
#define TIMEOUT_S 2.0
#define END_S 8.0       /* for the process to end once the timeout is over, on a busy machine */
#define FAULT_CODE 7
#define REFUSED_CODE 42 /* of a child: verbatim_open has failed */
#define RUNS_MAX 4u

typedef struct structure {
  const char *config, *changes;
  uint32_t chunk_tokens;
} structure;

#define HEADS(n) "\"num_attention_heads\": " #n ", \"num_key_value_heads\": " #n
static const structure V3 = {"small-v3.json",
  "{" HEADS(48) ", \"hidden_size\": 384, \"intermediate_size\": 768, \"moe_intermediate_size\": 192}", 64};
static const structure V2LITE = {"small-v2lite.json", "{" HEADS(8) ", \"hidden_size\": 256}", 64};
static const structure LISTS = {"small-v32.json", "{" HEADS(8) "}", 64};
static const structure FP8 = {"small-v3-fp8.json",
  "{" HEADS(8) ", \"hidden_size\": 1024, \"intermediate_size\": 2048, \"moe_intermediate_size\": 1024}", 64};

#define NCCL "exchange-transport: nccl\n"
#define OWNERS "divide-rows-from: 9\nattention-by-requests-from: 60\n" /* in steps of many rows, and of long contexts */

static e2e_requests requests;
static uint32_t gpus;

/* === What is done to rank 1 ================================================================================================= */

enum trouble { TROUBLE_NONE, TROUBLE_DELAY, TROUBLE_STOP, TROUBLE_FLIP };

/* For the next child. */
static struct {
  enum trouble kind;
  bool in_graph;   /* only launches of graphs count */
  uint64_t after;  /* that many launches of rank 1, since the start */
  bool is_unlike;  /* GPU 1 has another name */
} ask;
static bool is_running;

typedef struct shared { /* with children */
  digest digests[RUNS_MAX];
  uint64_t launches;    /* of rank 1 since the start that count */
  uint32_t struck;      /* times that the trouble was made */
  double struck_at;
  uint32_t found;       /* GPUs */
} shared;
static shared *board;

int __real_verbatim_open(verbatim **engine, const verbatim_config *config);
const gpu_info *__real_gpu_describe(const gpu *self);
void __real_gpu_launch(gpu *self, gpu_stream *stream, const gpu_work *work);
void __real_gpu_graph_launch(gpu *self, gpu_stream *stream, gpu_graph *graph, const char *op);
int __wrap_verbatim_open(verbatim **engine, const verbatim_config *config);
const gpu_info *__wrap_gpu_describe(const gpu *self);
void __wrap_gpu_launch(gpu *self, gpu_stream *stream, const gpu_work *work);
void __wrap_gpu_graph_launch(gpu *self, gpu_stream *stream, gpu_graph *graph, const char *op);

int __wrap_verbatim_open(verbatim **engine, const verbatim_config *config) {
  is_running = false;
  const int result = __real_verbatim_open(engine, config);
  is_running = result == 0;
  return result;
}

const gpu_info *__wrap_gpu_describe(const gpu *self) {
  static gpu_info other;
  const gpu_info *info = __real_gpu_describe(self);
  if (!ask.is_unlike || info->index != 1) return info;
  other = *info;
  snprintf(other.name, sizeof other.name, "another GPU");
  return &other;
}

static bool is_rank_1(const gpu *self) { return is_running && __real_gpu_describe(self)->index == 1; }

static void strike(void) {
  board->struck++;
  board->struck_at = clock_seconds();
}

/* Called before every launch of rank 1. Returns whether the launch is to be made. */
static bool before_launch(bool is_graph) {
  const bool counts = is_graph || !ask.in_graph, is_now = counts && board->launches == ask.after;
  board->launches += counts;
  if (is_now && (ask.kind == TROUBLE_DELAY || ask.kind == TROUBLE_STOP)) strike();
  if (is_now && ask.kind == TROUBLE_DELAY) nanosleep(&(struct timespec){.tv_sec = 1}, NULL);
  return ask.kind != TROUBLE_STOP || board->launches <= ask.after;
}

/* One word in the first row of the residual stream, after an op that has written it. */
static void flip(gpu *self, gpu_stream *stream, const gpu_work *work) {
  const bool is_fused = strcmp(work->kernel->name, "rank_norm") == 0;
  const rank_norm_args *fused = work->args;
  const rmsnorm_args *plain = work->args;
  if (!is_fused && strcmp(work->kernel->name, "rmsnorm") != 0) return;
  const f32 *x = is_fused ? fused->x_out : plain->x_out;
  if (!x) return;
  strike();
  gpu_fill32(self, stream, (uint64_t)(uintptr_t)(x + (is_fused ? fused->dim : plain->dim) / 2), 0x40490fdb, 1); /* pi */
}

void __wrap_gpu_launch(gpu *self, gpu_stream *stream, const gpu_work *work) {
  const bool is_seen = is_rank_1(self);
  if (is_seen && !before_launch(false)) return;
  __real_gpu_launch(self, stream, work);
  if (is_seen && ask.kind == TROUBLE_FLIP && !board->struck && board->launches > ask.after) flip(self, stream, work);
}

void __wrap_gpu_graph_launch(gpu *self, gpu_stream *stream, gpu_graph *graph, const char *op) {
  if (!is_rank_1(self) || before_launch(true)) __real_gpu_graph_launch(self, stream, graph, op);
}

/* === Children =============================================================================================================== */

typedef void child_body(const void *context);

/* Returns the exit code, or 100 and the signal; text: what it wrote to stderr. */
static int in_child(child_body *body, const void *context, char text[TEXT_MAX]) {
  int ends[2], state = 0;
  size_t used = 0;
  assert_int_equal(pipe(ends), 0);
  memset(board, 0, sizeof *board);
  fflush(NULL);
  const pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    close(ends[0]);
    body(context);
    _exit(0);
  }
  memset(&ask, 0, sizeof ask);
  close(ends[1]);
  for (ssize_t bytes; (bytes = read(ends[0], text + used, TEXT_MAX - 1 - used)) > 0;) used += (size_t)bytes;
  text[used] = 0;
  close(ends[0]);
  assert_int_equal(waitpid(child, &state, 0), child);
  return WIFEXITED(state) ? WEXITSTATUS(state) : 100 + WTERMSIG(state);
}

static void survey(const void *context) {
  gpu_info info;
  (void)context;
  if (gpu_survey(0, NULL, &board->found, &info) != OK) board->found = 0;
}

typedef struct run_list {
  verbatim_config list[RUNS_MAX];
  uint32_t count;
} run_list;

static void run_all(const void *context) {
  const run_list *runs = context;
  for (uint32_t i = 0; i < runs->count; i++) board->digests[i] = e2e_run(&runs->list[i], &requests, 0, requests.count);
}

static void open_only(const void *context) {
  verbatim *engine = NULL;
  if (verbatim_open(&engine, context) == 0) return;
  fprintf(stderr, "%s\n", verbatim_error());
  _exit(REFUSED_CODE);
}

/* === Receipts =============================================================================================================== */

static void make_model(const structure *s, e2e_model *model) {
  char deploy[512];
  snprintf(deploy, sizeof deploy, "%schunk_tokens: %u\n", LIMITS, s->chunk_tokens);
  changed_make_model(model, s->config, s->changes, deploy);
}

/* more: "", NCCL or OWNERS. */
static void plan_with(const structure *s, const e2e_model *model, uint32_t ranks, const char *more, char path[E2E_PATH_MAX]) {
  char name[32], deploy[512];
  snprintf(name, sizeof name, "ranks-%u%s.plan", ranks, *more ? "-other" : "");
  snprintf(deploy, sizeof deploy, "%schunk_tokens: %u\ntensor-parallel-size: %u\n%s", LIMITS, s->chunk_tokens, ranks, more);
  e2e_make_plan(model, name, deploy, path);
}

static void plan_for(const structure *s, const e2e_model *model, uint32_t ranks, char path[E2E_PATH_MAX]) {
  plan_with(s, model, ranks, "", path);
}

static verbatim_config config_for(const e2e_model *model, const char *plan_path, int device) {
  verbatim_config config = e2e_config(model);
  config.plan_path = plan_path;
  config.device = device;
  return config;
}

static digest reference_for(const e2e_model *model, int device) {
  char text[TEXT_MAX];
  const run_list runs = {.list = {config_for(model, model->plan_path, device)}, .count = 1};
  const int code = in_child(run_all, &runs, text);
  if (code != 0) fail_msg("one rank on device %d: code %d, %s", device, code, text);
  return board->digests[0];
}

static void check_runs(const char *what, uint32_t ranks, const run_list *runs, const digest *expected) {
  char text[TEXT_MAX];
  const int code = in_child(run_all, runs, text);
  if (code != 0) fail_msg("%s, %u ranks: code %d, %s", what, ranks, code, text);
  for (uint32_t i = 0; i < runs->count; i++)
    if (memcmp(&board->digests[i], expected, sizeof *expected) != 0) fail_msg("%s, %u ranks, run %u: another receipt", what, ranks, i);
}

/* Graphs; ops one by one; poisoned memory and a digest of all exchanges; odd batches, on the last GPUs. */
static run_list ways_to_run(const e2e_model *model, const char *plan_path, uint32_t ranks) {
  const verbatim_config plain = config_for(model, plan_path, 0);
  run_list runs = {.list = {plain, plain, plain, plain}, .count = 4};
  runs.list[1].direct = true;
  runs.list[2].poison = true;
  runs.list[2].check_exchanges = true;
  runs.list[3].device = (int)(gpus - ranks);
  runs.list[3].max_active = 3;
  runs.list[3].chunk_tokens = 7;
  runs.list[3].shuffle_pages = 5;
  return runs;
}

static void check(const structure *s, const char *more) {
  e2e_model model = {0};
  char path[E2E_PATH_MAX];
  make_model(s, &model);
  const digest on_cpu = reference_for(&model, VERBATIM_DEVICE_CPU), on_one = reference_for(&model, 0);
  assert_memory_equal(&on_one, &on_cpu, sizeof on_cpu);
  for (uint32_t ranks = 2; ranks <= gpus && ranks <= 8; ranks *= 2) {
    plan_with(s, &model, ranks, more, path);
    const run_list runs = ways_to_run(&model, path, ranks);
    check_runs(s->config, ranks, &runs, &on_cpu);
  }
  e2e_remove(&model);
}

static void experts(void **state) { (void)state, check(&V3, ""); }
static void no_query_rank(void **state) { (void)state, check(&V2LITE, ""); }
static void lists(void **state) { (void)state, check(&LISTS, ""); }
static void fp8(void **state) { (void)state, check(&FP8, ""); }
static void experts_of_owners(void **state) { (void)state, check(&V3, OWNERS); }
static void no_query_rank_of_owners(void **state) { (void)state, check(&V2LITE, OWNERS); }
static void fp8_of_owners(void **state) { (void)state, check(&FP8, OWNERS); }

/* === Through NCCL =========================================================================================================== */

static void find_nccl(const void *context) {
  char path[DYNLIB_PATH_MAX];
  uint32_t version = 0;
  (void)context;
  if (nccl_find(NULL, path, &version) == OK) return;
  fprintf(stderr, "%s\n", fail_text());
  _exit(REFUSED_CODE);
}

static void skip_without_nccl(void) {
  char text[TEXT_MAX];
  if (in_child(find_nccl, NULL, text) == 0) return;
  print_message("SKIPPED: %s", text);
  skip();
}

static void experts_through_nccl(void **state) {
  (void)state;
  skip_without_nccl();
  check(&V3, NCCL);
}

static void fp8_through_nccl(void **state) {
  (void)state;
  skip_without_nccl();
  check(&FP8, NCCL);
}

/* === Ranks that fail ======================================================================================================== */

static e2e_model model; /* for these tests: V3 */
static char plan_path[E2E_PATH_MAX];
static uint32_t most_ranks; /* of plan_path */

static int make_plan_of_most(void **state) {
  (void)state;
  make_model(&V3, &model);
  for (most_ranks = 2; 2 * most_ranks <= min_u32(gpus, 8);) most_ranks *= 2;
  plan_for(&V3, &model, most_ranks, plan_path);
  return 0;
}

static int remove_model(void **state) {
  (void)state;
  e2e_remove(&model);
  return 0;
}

static void a_late_rank_changes_nothing(void **state) {
  (void)state;
  const digest on_cpu = reference_for(&model, VERBATIM_DEVICE_CPU);
  for (int direct = 0; direct < 2; direct++) {
    run_list runs = {.list = {config_for(&model, plan_path, 0)}, .count = 1};
    runs.list[0].direct = direct;
    ask.kind = TROUBLE_DELAY;
    ask.in_graph = !direct;
    ask.after = direct ? 20 : 1;
    check_runs(direct ? "late, direct" : "late", most_ranks, &runs, &on_cpu);
    assert_int_equal(board->struck, 1);
  }
}

typedef struct command {
  const char *receipt_path, *direct; /* direct: "--direct", or null */
} command;

/* Six requests, two at a time, so that some end before a fault. */
static void run_command(const void *context) {
  const command *c = context;
  const char *argv[] = {"run", plan_path, model.model_dir, "--ids", "--device", "gpu", "--batch", "2", "--quiet", "--ignore-eos",
                        "--max-tokens", "8", "--exchange-timeout", "2", "--cache-dir", e2e_config(&model).cache_dir, "--receipt",
                        c->receipt_path, "1 2 3", "4 5", "6", "7 8 9 10", "11 12", "13", c->direct};
  if (!freopen("/dev/null", "w", stdout)) _exit(99);
  exit(cli_run((int)ARRAY_LEN(argv) - !c->direct, (char **)(uintptr_t)argv));
}

/* How many requests of the receipt one CPU verifies. */
static uint32_t verified_of(const char *receipt_path) {
  char program[E2E_PATH_MAX], output[TEXT_MAX];
  unsigned verified = 0, differ = 1;
  e2e_binary("verbatim", program);
  char *argv[] = {program, (char *)(uintptr_t)"verify", (char *)(uintptr_t)receipt_path, model.plan_path, model.model_dir,
                  (char *)(uintptr_t)"--device", (char *)(uintptr_t)"cpu", (char *)(uintptr_t)"--quiet", NULL};
  const int code = e2e_command(argv, output, sizeof output);
  const char *sum = strstr(output, " requests verified, ");
  while (sum && sum > output && sum[-1] >= '0' && sum[-1] <= '9') sum--;
  if (code != 0 || !sum || sscanf(sum, "%u requests verified, %u differ", &verified, &differ) != 2 || differ)
    fail_msg("verify ends with %d: %s", code, output);
  return verified;
}

/* Runs the command without a trouble, then with one after a part of rank 1's launches: of graphs, unless it makes none. Returns the time
 * of the end. */
static double run_into(enum trouble kind, const command *c, char text[TEXT_MAX]) {
  ask.in_graph = !c->direct;
  int code = in_child(run_command, c, text);
  if (code != 0) fail_msg("without a trouble: code %d, %s", code, text);
  assert_int_equal(verified_of(c->receipt_path), 6);
  ask.kind = kind;
  ask.in_graph = !c->direct;
  ask.after = board->launches * 6 / 10;
  assert_true(ask.after > 0);
  code = in_child(run_command, c, text);
  const double end = clock_seconds();
  if (code != FAULT_CODE) fail_msg("code %d, %s", code, text);
  assert_int_equal(board->struck, 1);
  return end;
}

static void receipt_path_of(char path[E2E_PATH_MAX]) { snprintf(path, E2E_PATH_MAX, "%.900s/receipt", model.folder); }

/* Rank 1 is named, with the op and the step that another one waits in. */
static void expect_late_rank(const char *text) {
  char op[128];
  unsigned rank, waited_for;
  unsigned long long step;
  double seconds = 0;
  const char *message = strstr(text, " waited ");
  while (message && message > text && strncmp(message, "rank ", 5) != 0) message--;
  const int found = message ? sscanf(message, "rank %u waited %lf s for rank %u at op \"%127[^\"]\" of step %llu", &rank, &seconds,
                                     &waited_for, op, &step) : 0;
  if (found != 5 || rank == 1 || waited_for != 1 || seconds > TIMEOUT_S || step == 0) fail_msg("%s", text);
  assert_string_not_equal(op, "an exchange"); /* the text for one that is not found in the plan */
}

static void a_rank_that_stops_is_named_in_time(void **state) {
  (void)state;
  char path[E2E_PATH_MAX], text[TEXT_MAX];
  receipt_path_of(path);
  for (int direct = 0; direct < 2; direct++) {
    const command c = {path, direct ? "--direct" : NULL};
    const double took = run_into(TROUBLE_STOP, &c, text) - board->struck_at;
    expect_late_rank(text);
    if (took < TIMEOUT_S * 0.9 || took > TIMEOUT_S + END_S) fail_msg("the process ended after %.2f s", took);
    const uint32_t verified = verified_of(path);
    assert_true(verified >= 1 && verified < 6);
  }
}

static void a_rank_with_another_bit_is_found(void **state) {
  (void)state;
  char path[E2E_PATH_MAX], text[TEXT_MAX];
  receipt_path_of(path);
  run_into(TROUBLE_FLIP, &(command){path, "--direct"}, text);
  if (!strstr(text, "ranks differ in ") || !strstr(text, "rank 1")) fail_msg("%s", text);
  const uint32_t verified = verified_of(path);
  assert_true(verified >= 1 && verified < 6);
}

/* NCCL does not end a wait; the host does, and finds the rank by what each of them has reached. */
static void a_rank_that_stops_is_found_through_nccl(void **state) {
  (void)state;
  char path[E2E_PATH_MAX], text[TEXT_MAX], peer_path[E2E_PATH_MAX];
  skip_without_nccl();
  memcpy(peer_path, plan_path, sizeof peer_path);
  plan_with(&V3, &model, most_ranks, NCCL, plan_path);
  receipt_path_of(path);
  const double took = run_into(TROUBLE_STOP, &(command){path, NULL}, text) - board->struck_at;
  memcpy(plan_path, peer_path, sizeof plan_path);
  expect_late_rank(text);
  if (!strstr(text, ", through NCCL: ")) fail_msg("%s", text);
  if (took < TIMEOUT_S * 0.9 || took > TIMEOUT_S + END_S) fail_msg("the process ended after %.2f s", took);
  const uint32_t verified = verified_of(path);
  assert_true(verified >= 1 && verified < 6);
}

/* === GPUs that cannot be ranks ============================================================================================== */

static void too_few_gpus_are_refused(void **state) {
  (void)state;
  char path[E2E_PATH_MAX], text[TEXT_MAX], expected[128];
  if (gpus >= 16) {
    print_message("SKIPPED: 16 GPUs or more: no plan is for more\n");
    skip();
  }
  plan_for(&V3, &model, 16, path);
  const verbatim_config config = config_for(&model, path, 0);
  snprintf(expected, sizeof expected, "the plan is for 16 GPUs, expected GPUs 0 to 15, found %u; hint: ", gpus);
  assert_int_equal(in_child(open_only, &config, text), REFUSED_CODE);
  if (!strstr(text, expected)) fail_msg("%s", text);
}

static void unlike_gpus_are_refused(void **state) {
  (void)state;
  char text[TEXT_MAX];
  const verbatim_config config = config_for(&model, plan_path, 0);
  ask.is_unlike = true;
  assert_int_equal(in_child(open_only, &config, text), REFUSED_CODE);
  if (!strstr(text, "GPU 1 is another GPU with ") || !strstr(text, "expected GPUs of one kind")) fail_msg("%s", text);
}

int main(int argc, char **argv) {
  char text[TEXT_MAX];
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(experts), cmocka_unit_test(no_query_rank), cmocka_unit_test(lists), cmocka_unit_test(fp8),
    cmocka_unit_test(experts_of_owners), cmocka_unit_test(no_query_rank_of_owners), cmocka_unit_test(fp8_of_owners),
    cmocka_unit_test(experts_through_nccl), cmocka_unit_test(fp8_through_nccl),
    cmocka_unit_test(a_rank_that_stops_is_found_through_nccl), cmocka_unit_test(a_late_rank_changes_nothing),
    cmocka_unit_test(a_rank_that_stops_is_named_in_time),
    cmocka_unit_test(a_rank_with_another_bit_is_found), cmocka_unit_test(too_few_gpus_are_refused),
    cmocka_unit_test(unlike_gpus_are_refused),
  };
  e2e_begin(argc, argv);
  board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT(board != MAP_FAILED);
  in_child(survey, NULL, text);
  gpus = board->found;
  if (gpus < 2) {
    printf("SKIPPED: fewer than 2 GPUs: found %u\n", gpus);
    return 0;
  }
  e2e_requests_make(&requests, REQUESTS, VOCAB, PROMPT_MAX, TOKENS_MAX);
  const int failed = cmocka_run_group_tests(tests, make_plan_of_most, remove_model);
  e2e_requests_free(&requests);
  return failed;
}

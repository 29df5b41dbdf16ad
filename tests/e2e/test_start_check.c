/* test_start_check.c - the self-check refuses a backend with one wrong bit, names the probe, and leaves nothing half done.
 *
 * Linked with --wrap for every op's CPU reference, for gpu_launch and for trig_sin: the first number of one op's result is changed by one
 * unit in the last place, as a broken processor, driver or compiler might do, on the backend that --device names. Includes cli/run.c as
 * well. */
#include "tests/unit/unit.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "e2e.h"
#include "engine/base/base.h"
#include "engine/cli/cli.h"
#include "engine/gpu/gpu.h"
#include "engine/ops/kernels.h"
#include "engine/plan/plan.h"

static const char DEPLOY[] = /* every op is in plans of fast-prefill */
  "max-num-seqs: 2\nmax-num-batched-tokens: 96\nmax-model-len: 128\nkv_pages: 8\nchunk_tokens: 64\ngroup_chunks: 2\nladder: [1, 2]\n"
  "parity: fast-prefill\n";
static e2e_model model;

/* === Broken backends ======================================================================================================== */

#define NOBODY KERNEL_COUNT
#define TABLES (KERNEL_COUNT + 1)
static uint32_t victim = NOBODY, broken_runs;

static void copy(gpu *device, gpu_stream *stream, void *host, uint64_t address, size_t bytes, bool to_host) {
  if (!device) memcpy(to_host ? host : (void *)(uintptr_t)address, to_host ? (const void *)(uintptr_t)address : host, bytes);
  else if (to_host) gpu_download(device, stream, host, address, bytes);
  else gpu_upload(device, stream, address, host, bytes);
  if (device) gpu_sync(device, stream, "a test");
}

/* The lowest bit of the first number at or after the address that is not poison. */
static void flip(gpu *device, gpu_stream *stream, uint64_t address) {
  uint32_t words[64];
  broken_runs++;
  for (;; address += sizeof words) {
    copy(device, stream, words, address, sizeof words, true);
    for (uint32_t i = 0; i < ARRAY_LEN(words); i++) {
      if (words[i] == UINT32_MAX) continue;
      words[i] ^= 1;
      copy(device, stream, &words[i], address + 4 * i, 4, false);
      return;
    }
  }
}

/* Where the op's first result that is not null begins; the order in which an op lists its results does not matter here. */
static uint64_t result_of(uint32_t kernel, const void *args) {
  uint64_t pointers[64] = {0}, present = 0;
  op_operands o;
  assert_true(kernels_row(kernel)->args_bytes <= sizeof pointers);
  memcpy(pointers, args, kernels_row(kernel)->args_bytes);
  for (uint32_t i = 0; i < kernels_row(kernel)->op->pointers; i++) present |= (uint64_t)(pointers[i] != 0) << i;
  op_describe(kernels_row(kernel)->op, args, present, &o);
  for (uint32_t i = 0; i < o.count; i++)
    if (o.list[i].is_write && o.list[i].kind != OP_ENGINE && op_has(&o, o.list[i].field)) return pointers[o.list[i].field / 8];
  for (uint32_t i = 0; i < o.count; i++)
    if (o.list[i].is_write && op_has(&o, o.list[i].field)) return pointers[o.list[i].field / 8];
  fail_msg("%s writes nothing", kernels_row(kernel)->name);
  return 0;
}

#define KERNEL(stem)                                                \
  void __real_cpu_##stem(const stem##_args *args, cpu_pool *pool);  \
  void __wrap_cpu_##stem(const stem##_args *args, cpu_pool *pool);  \
  void __wrap_cpu_##stem(const stem##_args *args, cpu_pool *pool) { \
    __real_cpu_##stem(args, pool);                                  \
    if (victim == KERNEL_##stem) flip(NULL, NULL, result_of(KERNEL_##stem, args)); \
  }
#include "kernels_src/kernels.def"
#undef KERNEL

void __real_gpu_launch(gpu *self, gpu_stream *stream, const gpu_work *work);
void __wrap_gpu_launch(gpu *self, gpu_stream *stream, const gpu_work *work);
void __wrap_gpu_launch(gpu *self, gpu_stream *stream, const gpu_work *work) {
  __real_gpu_launch(self, stream, work);
  if (kernels_find(work->kernel->name) != victim) return;
  flip(self, stream, result_of(victim, work->args));
}

double __real_trig_sin(double x);
double __wrap_trig_sin(double x);
double __wrap_trig_sin(double x) {
  double y = __real_trig_sin(x);
  if (victim == TABLES) memcpy(&y, &(uint64_t){(broken_runs++, 0x3fe0000000000000u)}, sizeof y);
  return y;
}

/* === Refusals =============================================================================================================== */

static int open_engine(void) {
  verbatim *engine = NULL;
  char cache[E2E_PATH_MAX];
  verbatim_config config = {.plan_path = model.plan_path, .model_dir = model.model_dir, .device = e2e_device(), .threads = 2};
  snprintf(cache, sizeof cache, "%.900s/cubins", model.folder);
  config.cache_dir = cache; /* the kernels are compiled once */
  broken_runs = 0;
  int result = verbatim_open(&engine, &config);
  if (result == 0) verbatim_close(engine);
  else assert_null(engine);
  return result;
}

static void a_sound_machine_starts(void **state) {
  (void)state;
  victim = NOBODY;
  if (open_engine() != 0) print_error("%s\n", verbatim_error());
  assert_int_equal(open_engine(), 0);
}

/* Not included: ops of other models, and of weights and caches in other formats. */
static bool is_in_plan(uint32_t kernel) {
  plan p;
  bool found = false;
  assert_int_equal(plan_open(&p, model.plan_path), OK);
  for (uint32_t i = 0; i < p.op_count; i++) found = found || p.ops[i].kernel == kernel;
  plan_close(&p);
  return found;
}

static void one_wrong_bit_of_any_op_is_refused(void **state) {
  (void)state;
  uint32_t refused = 0;
  for (victim = 0; victim < KERNEL_COUNT; victim++) {
    char named[64];
    if (!is_in_plan(victim)) continue;
    int result = open_engine();
    snprintf(named, sizeof named, "of op %s (", kernels_row(victim)->name);
    if (result != VERBATIM_ERR_MISMATCH || !strstr(verbatim_error(), named))
      print_error("%s: %d, %s\n", kernels_row(victim)->name, result, verbatim_error());
    assert_int_equal(result, VERBATIM_ERR_MISMATCH);
    assert_int_equal(broken_runs, 1); /* its first probe, and nothing after that */
    assert_non_null(strstr(verbatim_error(), named));
    assert_non_null(strstr(verbatim_error(), "self-check: probe \""));
    assert_non_null(strstr(verbatim_error(), "numerics id"));
    refused++;
  }
  assert_true(refused >= 15); /* the plan has all ops of a bf16 model with experts, of both parities */
  print_message("    e.g. %s\n", verbatim_error());
}

static void wrong_tables_are_refused(void **state) {
  (void)state;
  victim = TABLES;
  assert_int_equal(open_engine(), VERBATIM_ERR_MISMATCH);
  assert_non_null(strstr(verbatim_error(), "tables of op qkv_rope"));
}

/* === The command ============================================================================================================ */

static size_t read_text(const char *path, char *text, size_t text_max) {
  FILE *file = fopen(path, "rb");
  if (!file) return 0;
  size_t bytes = fread(text, 1, text_max - 1, file);
  text[bytes] = 0;
  fclose(file);
  return bytes;
}

/* `verbatim run` on the CPU, in a child; returns its exit code, and its output on stdout and stderr. */
static int run(uint32_t broken, const char *receipt, char *output, char *errors, size_t text_max) {
  char paths[2][E2E_PATH_MAX];
  snprintf(paths[0], E2E_PATH_MAX, "%.900s/stdout", model.folder);
  snprintf(paths[1], E2E_PATH_MAX, "%.900s/stderr", model.folder);
  fflush(NULL);
  pid_t child = fork();
  if (child == 0) {
    const char *argv[] = {"run", model.plan_path, model.model_dir, "--ids", "--device", "cpu", "--threads", "1", "--quiet",
                          "--max-tokens", "2", "--receipt", receipt, "1 2 3"};
    victim = broken;
    if (!freopen(paths[0], "w", stdout) || !freopen(paths[1], "w", stderr)) _Exit(99);
    exit(cli_run(ARRAY_LEN(argv), (char **)(uintptr_t)argv));
  }
  int state = 0;
  assert_int_equal(waitpid(child, &state, 0), child);
  *output = *errors = 0;
  read_text(paths[0], output, text_max);
  read_text(paths[1], errors, text_max);
  return WIFEXITED(state) ? WEXITSTATUS(state) : -1;
}

static void a_refused_run_leaves_nothing(void **state) {
  (void)state;
  static char output[1 << 16], errors[1 << 16];
  char receipt[E2E_PATH_MAX];
  snprintf(receipt, sizeof receipt, "%.900s/receipt", model.folder);
  assert_int_equal(run(KERNEL_gemm, receipt, output, errors, sizeof output), fail_exit_code(ERR_MISMATCH));
  assert_string_equal(output, "");
  assert_non_null(strstr(errors, "of op gemm"));
  assert_int_not_equal(access(receipt, F_OK), 0);
  assert_int_equal(run(NOBODY, receipt, output, errors, sizeof output), 0);
  assert_true(strlen(output) > 0);
  assert_int_equal(access(receipt, F_OK), 0);
}

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(a_sound_machine_starts), cmocka_unit_test(one_wrong_bit_of_any_op_is_refused),
                                     cmocka_unit_test(wrong_tables_are_refused), cmocka_unit_test(a_refused_run_leaves_nothing)};
  e2e_begin(argc, argv);
  e2e_make_model(&model, "tests/oracle/small-v3.json", DEPLOY);
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  e2e_remove(&model);
  return failed;
}

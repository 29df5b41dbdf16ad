/* test_fault.c - `verbatim run` when the device fails during a run: finished requests are kept.
 *
 * Includes cli/run.c itself, with its calls of verbatim_open and verbatim_poll wrapped: after a number of steps the engine's fault hook is
 * called and the process ends as gpu.c ends it. The receipt then has the first lines of the whole run's receipt, a line with the fault and
 * no digest; stdout has the outputs of the same requests. tests/unit/gpu/test_gpu_driver.c shows that the hook is called for failures of
 * the driver and of libraries. */
#include "tests/unit/unit.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "e2e.h"
#include "engine/base/base.h"
#include "engine/cli/cli.h"

#define EXIT_CODE 7
#define TEXT_MAX (1u << 16)
static const char DEPLOY[] =
  "max-num-seqs: 2\nmax-num-batched-tokens: 32\nmax-model-len: 128\nkv_pages: 8\nchunk_tokens: 64\ngroup_chunks: 2\nladder: [1, 2]\n";

int __real_verbatim_open(verbatim **engine, const verbatim_config *config);
int __real_verbatim_poll(verbatim *engine, bool *busy);
int __wrap_verbatim_open(verbatim **engine, const verbatim_config *config);
int __wrap_verbatim_poll(verbatim *engine, bool *busy);

static e2e_model model;
static verbatim_config seen;
static int steps_left; /* negative: no fault */

int __wrap_verbatim_open(verbatim **engine, const verbatim_config *config) {
  seen = *config;
  return __real_verbatim_open(engine, config);
}

int __wrap_verbatim_poll(verbatim *engine, bool *busy) {
  if (steps_left == 0) {
    seen.on_fault(seen.context, "GPU fault found at layer 3 \"o_proj\": a test");
    fflush(NULL);
    _Exit(EXIT_CODE);
  }
  steps_left -= steps_left > 0;
  return __real_verbatim_poll(engine, busy);
}

/* Runs six requests, two at a time, in a child; steps: until the fault, or -1. Stores the texts of the receipt and of stdout. */
static int run(int steps, char *receipt, char *output) {
  char paths[2][E2E_PATH_MAX];
  snprintf(paths[0], E2E_PATH_MAX, "%.900s/receipt", model.folder);
  snprintf(paths[1], E2E_PATH_MAX, "%.900s/stdout", model.folder);
  fflush(NULL);
  pid_t child = fork();
  if (child == 0) {
    const char *argv[] = {"run", model.plan_path, model.model_dir, "--ids", "--device", "cpu", "--threads", "1", "--quiet", "--ignore-eos",
                          "--max-tokens", "6", "--output", "jsonl", "--receipt", paths[0], "1 2 3", "4 5", "6",
                          "7 8 9 10", "11 12", "13"};
    steps_left = steps;
    if (!freopen(paths[1], "w", stdout) || !freopen("/dev/null", "w", stderr)) _Exit(99);
    exit(cli_run(ARRAY_LEN(argv), (char **)(uintptr_t)argv));
  }
  int state = 0;
  assert_int_equal(waitpid(child, &state, 0), child);
  char *texts[] = {receipt, output};
  for (int i = 0; i < 2; i++) {
    FILE *file = fopen(paths[i], "rb");
    assert_non_null(file);
    texts[i][fread(texts[i], 1, TEXT_MAX - 1, file)] = 0;
    fclose(file);
  }
  return WIFEXITED(state) ? WEXITSTATUS(state) : -1;
}

static uint32_t lines_of(const char *text) {
  uint32_t lines = 0;
  for (; *text; text++) lines += *text == '\n';
  return lines;
}

static void finished_requests_are_kept(void **state) {
  (void)state;
  static char whole[TEXT_MAX], whole_output[TEXT_MAX], cut[TEXT_MAX], output[TEXT_MAX];
  static const char fault[] = "{\"fault\":\"GPU fault found at layer 3 \\u0022o_proj\\u0022: a test\"}\n";
  uint32_t kept_before = 0, grew = 0;
  assert_int_equal(run(-1, whole, whole_output), 0);
  assert_int_equal(lines_of(whole), 9); /* head, machine, six requests, digest */
  assert_int_equal(lines_of(whole_output), 6);
  for (int steps = 0, code; (code = run(steps, cut, output)) != 0; steps++) { /* until the run ends before the fault */
    assert_int_equal(code, EXIT_CODE);
    size_t bytes = strlen(cut), tail = strlen(fault);
    assert_true(bytes > tail);
    assert_string_equal(cut + bytes - tail, fault);
    assert_memory_equal(cut, whole, bytes - tail);
    uint32_t kept = lines_of(cut) - 3; /* without head, machine and fault */
    assert_int_equal(lines_of(output), kept);
    assert_memory_equal(output, whole_output, strlen(output));
    assert_true(kept >= kept_before);
    grew += kept > kept_before;
    kept_before = kept;
  }
  assert_true(grew >= 2 && kept_before >= 4); /* requests did finish before the later faults */
}

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(finished_requests_are_kept)};
  e2e_begin(argc, argv);
  e2e_make_model(&model, "tests/oracle/small-v3.json", DEPLOY);
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  e2e_remove(&model);
  return failed;
}

/* test_golden.c - the bits that a GPU recorded, computed again: receipts of tests/golden, through the program; one of every kind of
 * attention and every kind of request also with prompt lookup.
 *
 * `--record FOLDER` writes the receipts instead (see tests/golden/README.md), `--device gpu` uses the GPU. The control changes one sampling
 * parameter and expects another receipt. */
#include "tests/unit/unit.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "e2e.h"
#include "engine/base/base.h"

#define LIMITS "max-num-seqs: 64\nmax-num-batched-tokens: 512\nmax-model-len: 1024\nkv_pages: 512\n" \
               "ladder: [1, 2, 4, 8, 16, 32, 64]\n"
#define GROUPS "group_chunks: 2\n" /* of latent attention */
static const char CHUNKS_64[] = LIMITS GROUPS "chunk_tokens: 64\n", CHUNKS_128[] = LIMITS GROUPS "chunk_tokens: 128\n";
static const char GROUPED_64[] = LIMITS "chunk_tokens: 64\n";

typedef struct golden_case {
  const char *name;   /* <name>.receipt                                     */
  const char *config; /* of a random model, or null: the shipped model      */
  const char *items;
  const char *max_tokens; /* for items that have no value of their own */
  const char *deploy;     /* of a random model; else an option of `plan` that is switched on, or null */
  bool with_drafts;       /* and once more with prompt lookup */
} golden_case;

static const golden_case TINY = {"tiny", NULL, "tests/tiny/items.jsonl", "96", NULL, false};
static const golden_case SAMPLED = {"sampled", NULL, "tests/golden/sampled.jsonl", "32", NULL, true};
static const golden_case ASKED = {"asked", NULL, "tests/golden/asked.jsonl", "32", NULL, true};
static const golden_case CONSTRAINED = {"constrained", NULL, "tests/golden/constrained.jsonl", "32", "--structured-outputs", true};
static const golden_case V3 = {"v3", "tests/oracle/small-v3.json", "tests/golden/random.jsonl", "16", CHUNKS_64, true};
static const golden_case V2LITE = {"v2lite", "tests/oracle/small-v2lite.json", "tests/golden/random.jsonl", "16", CHUNKS_64, false};

static const golden_case SPARSE[] = {
  {"v32", "tests/oracle/small-v32.json", "tests/golden/sparse.jsonl", "12", CHUNKS_64, false},
  {"v32-fp8", "tests/oracle/small-v32-fp8.json", "tests/golden/sparse.jsonl", "12", CHUNKS_64, true},
  {"v3-fp8", "tests/oracle/small-v3-fp8.json", "tests/golden/sparse.jsonl", "12", CHUNKS_64, false},
  {"glm52-fp8", "tests/oracle/small-glm52-fp8.json", "tests/golden/sparse.jsonl", "12", CHUNKS_64, false},
  {"v32-heads-fp8", "tests/oracle/small-v32-heads-fp8.json", "tests/golden/sparse.jsonl", "12", CHUNKS_128, false}, /* one chunk */
};

static const golden_case GROUPED[] = {
  {"llama", "tests/oracle/small-llama.json", "tests/golden/random.jsonl", "16", GROUPED_64, true},
  {"qwen2", "tests/oracle/small-qwen2.json", "tests/golden/random.jsonl", "16", GROUPED_64, false},
  {"qwen3-moe", "tests/oracle/small-qwen3-moe.json", "tests/golden/random.jsonl", "16", GROUPED_64, false},
  {"glm4-moe", "tests/oracle/small-glm4-moe.json", "tests/golden/random.jsonl", "16", GROUPED_64, false},
  {"olmo2", "tests/oracle/small-olmo2.json", "tests/golden/random.jsonl", "16", GROUPED_64, false},
  {"qwen3-fp8", "tests/oracle/small-qwen3-fp8.json", "tests/golden/random.jsonl", "16", GROUPED_64, false},
  {"phi3", "tests/oracle/small-phi3.json", "tests/golden/random.jsonl", "16", GROUPED_64, false},
};

static const char *record_folder; /* null: compare */

static char *arg(const char *text) { return (char *)(uintptr_t)text; }

static void must(char *const argv[]) {
  char output[4096];
  int code = e2e_command(argv, output, sizeof output);
  if (code != 0) print_error("%s %s ended with %d:\n%s\n", argv[0], argv[1], code, output);
  assert_int_equal(code, 0);
}

/* Runs a case into a receipt file; seed: the default seed, for the control; method: of speculation. */
static void make_receipt(const golden_case *g, const char *seed, const char *method, const char *receipt_path) {
  char program[E2E_PATH_MAX], plan[E2E_PATH_MAX];
  e2e_model model = {0};
  e2e_binary("verbatim", program);
  snprintf(plan, sizeof plan, "%s.plan", receipt_path);
  if (g->config) {
    char deploy[512];
    snprintf(deploy, sizeof deploy, "%sspeculative-config: {method: %s}\n", g->deploy, method);
    e2e_make_model(&model, g->config, deploy);
  } else {
    snprintf(model.model_dir, sizeof model.model_dir, "tests/tiny");
    snprintf(model.plan_path, sizeof model.plan_path, "%s", plan);
    must((char *[]){arg(program), arg("plan"), arg("tests/tiny"), arg("--config"), arg("tests/tiny/deploy.yaml"), arg("-o"), plan,
                    arg("--force"), arg("--speculative-config.method"), arg(method), g->deploy ? arg(g->deploy) : NULL, arg("on"), NULL});
  }
  must((char *[]){arg(program), arg("run"), model.plan_path, model.model_dir, arg("--jsonl"), arg(g->items), arg("--max-tokens"),
                  arg(g->max_tokens), arg("--seed"), arg(seed), arg("--device"), arg(e2e_device() == 0 ? "gpu" : "cpu"), arg("--output"),
                  arg("jsonl"), arg("--receipt"), arg(receipt_path), NULL});
  if (g->config) e2e_remove(&model);
  else unlink(plan);
}

static char *read_text(const char *path) {
  FILE *file = fopen(path, "rb");
  if (!file) return NULL;
  size_t room = 1u << 24, bytes;
  char *text = malloc(room);
  assert_non_null(text);
  bytes = fread(text, 1, room - 1, file);
  text[bytes] = 0;
  fclose(file);
  return text;
}

/* expected: without the machine's line. Names the first line that differs. */
static void compare(const char *name, const char *expected, char *found) {
  uint32_t line = 1;
  e2e_without_machine(found);
  for (size_t i = 0; expected[i] || found[i]; i++) {
    if (expected[i] != found[i]) fail_msg("%s.receipt: line %u differs from what was made here", name, line);
    line += expected[i] == '\n' ? line == 1 ? 2 : 1 : 0; /* the second is removed */
  }
}

static void check(const golden_case *g) {
  char golden_path[E2E_PATH_MAX], path[E2E_PATH_MAX];
  snprintf(golden_path, sizeof golden_path, "%s/%s.receipt", record_folder ? record_folder : "tests/golden", g->name);
  if (record_folder) {
    make_receipt(g, "0", "off", golden_path);
    return;
  }
  char *expected = read_text(golden_path);
  if (!expected) {
    print_message("SKIPPED: no golden recorded: %s\n", golden_path);
    skip();
  }
  snprintf(path, sizeof path, "/tmp/verbatim-golden-%ld-%s", (long)getpid(), g->name);
  e2e_without_machine(expected);
  for (uint32_t i = 0; i < 1u + g->with_drafts; i++) {
    make_receipt(g, "0", i ? "ngram" : "off", path);
    char *found = read_text(path);
    assert_non_null(found);
    unlink(path);
    compare(g->name, expected, found);
    free(found);
  }
  free(expected);
}

static void tiny(void **state) {
  (void)state;
#ifdef __SANITIZE_ADDRESS__
  print_message("SKIPPED: the tiny receipt under sanitizers: slow, and run by the plain build\n");
  skip();
#endif
  check(&TINY);
}
static void sampled(void **state) { (void)state, check(&SAMPLED); }
static void asked(void **state) { (void)state, check(&ASKED); }
static void constrained(void **state) { (void)state, check(&CONSTRAINED); }
static void v3(void **state) { (void)state, check(&V3); }
static void v2lite(void **state) { (void)state, check(&V2LITE); }
static void v32(void **state) { (void)state, check(&SPARSE[0]); }
static void v32_fp8(void **state) { (void)state, check(&SPARSE[1]); }
static void v3_fp8(void **state) { (void)state, check(&SPARSE[2]); }
static void glm52_fp8(void **state) { (void)state, check(&SPARSE[3]); }
static void v32_heads_fp8(void **state) { (void)state, check(&SPARSE[4]); }

static void llama(void **state) { (void)state, check(&GROUPED[0]); }
static void qwen2(void **state) { (void)state, check(&GROUPED[1]); }
static void qwen3_moe(void **state) { (void)state, check(&GROUPED[2]); }
static void glm4_moe(void **state) { (void)state, check(&GROUPED[3]); }
static void olmo2(void **state) { (void)state, check(&GROUPED[4]); }
static void qwen3_fp8(void **state) { (void)state, check(&GROUPED[5]); }
static void phi3(void **state) { (void)state, check(&GROUPED[6]); }

/* Control: the same requests give the same receipt twice, a changed weight or seed another one. */
static void control(void **state) {
  (void)state;
  static const char line[] = "{\"prompt\":\"add: 1\",\"temperature\":1.0,\"max_tokens\":8}\n";
  char items[E2E_PATH_MAX], path[E2E_PATH_MAX];
  snprintf(items, sizeof items, "/tmp/verbatim-golden-%ld-items", (long)getpid());
  snprintf(path, sizeof path, "/tmp/verbatim-golden-%ld-control", (long)getpid());
  FILE *file = fopen(items, "wb");
  assert_non_null(file);
  assert_true(fputs(line, file) >= 0);
  fclose(file);
  const golden_case g = {"control", NULL, items, "8", NULL, false};
  char *texts[3];
  for (int i = 0; i < 3; i++) {
    make_receipt(&g, i < 2 ? "5" : "6", "off", path);
    texts[i] = read_text(path);
    assert_non_null(texts[i]);
  }
  assert_string_equal(texts[0], texts[1]);
  assert_string_not_equal(texts[0], texts[2]);
  for (int i = 0; i < 3; i++) free(texts[i]);
  unlink(path);
  unlink(items);
}

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(tiny), cmocka_unit_test(sampled), cmocka_unit_test(asked),
                                     cmocka_unit_test(constrained), cmocka_unit_test(v3), cmocka_unit_test(v2lite), cmocka_unit_test(v32),
                                     cmocka_unit_test(v32_fp8), cmocka_unit_test(v3_fp8), cmocka_unit_test(glm52_fp8),
                                     cmocka_unit_test(v32_heads_fp8), cmocka_unit_test(llama), cmocka_unit_test(qwen2),
                                     cmocka_unit_test(qwen3_moe), cmocka_unit_test(glm4_moe), cmocka_unit_test(olmo2),
                                     cmocka_unit_test(qwen3_fp8), cmocka_unit_test(phi3), cmocka_unit_test(control)};
  e2e_begin(argc, argv);
  for (int i = 1; i + 1 < argc; i++)
    if (strcmp(argv[i], "--record") == 0) record_folder = argv[i + 1];
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_checkpoint.c - forms of one checkpoint: a model alone or inside another, under either naming, experts in separate tensors or
 * stacked, in one file or many, with tensors that inference does not use. All give the bits of the plain form, and its weights digest.
 *
 * A form is a folder of random_model; its receipt is compared line by line, and in its header everything that follows from weights and
 * numerics: nesting changes only the digest of config.json. The controls change one weight and one number of the nested config. */
#include "tests/unit/unit.h"
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "e2e.h"
#include "engine/base/base.h"

static const char DEPLOY[] = "max-num-seqs: 8\nmax-num-batched-tokens: 64\nmax-model-len: 256\nkv_pages: 32\nladder: [1, 8]\n";
static const char ITEMS[] = "{\"prompt_ids\": [5], \"max_tokens\": 6}\n"
                            "{\"prompt_ids\": [7, 300, 12, 12, 90, 4, 33], \"max_tokens\": 9, \"temperature\": 0.8, \"seed\": 3}\n"
                            "{\"prompt_ids\": [100, 200, 300], \"max_tokens\": 40, \"ignore_eos\": true}\n";

#define OPTIONS_MAX 8

typedef struct form {
  const char *outer;               /* model_type of the model around it, or null */
  const char *options[OPTIONS_MAX]; /* of random_model */
  const char *note;                /* words that the run prints about the files, or null */
} form;

static char scratch[E2E_PATH_MAX];
static char *arg(const char *text) { return (char *)(uintptr_t)text; }

static void must(char *const argv[], char *output, size_t output_bytes) {
  int code = e2e_command(argv, output, output_bytes);
  if (code != 0) print_error("%s %s ended with %d:\n%s\n", argv[0], argv[1], code, output);
  assert_int_equal(code, 0);
}

/* The config at `path`, with one number replaced if `field` is given, inside another model if `outer` is. */
static void write_config(const char *path, const char *outer, const char *field, double number, const char *to) {
  json_t *config = json_load_file(path, 0, NULL);
  assert_non_null(config);
  if (field) json_object_set_new(config, field, json_real(number));
  if (outer)
    config = json_pack("{s:s, s:o, s:{s:i}, s:i, s:s}", "model_type", outer, "text_config", config, "vision_config", "hidden_size", 64,
                       "image_token_index", 10, "dtype", "bfloat16");
  assert_int_equal(json_dump_file(config, to, JSON_INDENT(1)), 0);
  json_decref(config);
}

/* The receipt of a form, which the caller frees. seed: of the weights. */
static char *run_form(const char *config, const form *f, const char *field, double number, const char *seed) {
  char tool[E2E_PATH_MAX], program[E2E_PATH_MAX], output[8192], paths[5][E2E_PATH_MAX + 16];
  static const char *const NAMES[] = {"config.json", "model", "plan", "items.jsonl", "receipt"};
  e2e_binary("random_model", tool);
  e2e_binary("verbatim", program);
  for (size_t i = 0; i < ARRAY_LEN(NAMES); i++) snprintf(paths[i], sizeof paths[i], "%s/%s", scratch, NAMES[i]);
  must((char *[]){arg("/bin/rm"), arg("-rf"), paths[1], paths[4], NULL}, output, sizeof output);
  write_config(config, f->outer, field, number, paths[0]);
  e2e_write_file(paths[3], ITEMS);
  char *make[OPTIONS_MAX + 6] = {tool, paths[0], paths[1], arg("--seed"), arg(seed)};
  for (size_t i = 0; i < OPTIONS_MAX && f->options[i]; i++) make[5 + i] = arg(f->options[i]);
  must(make, output, sizeof output);
  snprintf(output, sizeof output, "%s/deploy.yaml", scratch);
  e2e_write_file(output, DEPLOY);
  must((char *[]){arg(program), arg("plan"), paths[1], arg("--config"), arg(output), arg("-o"), paths[2], arg("--force"), NULL}, output,
       sizeof output);
  must((char *[]){arg(program), arg("run"), paths[2], paths[1], arg("--jsonl"), paths[3], arg("--device"),
                  arg(e2e_device() == 0 ? "gpu" : "cpu"), arg("--output"), arg("jsonl"), arg("--receipt"), paths[4], NULL}, output,
       sizeof output);
  if (f->note && !strstr(output, f->note)) fail_msg("no note \"%s\" in:\n%s", f->note, output);
  if (!f->note && strstr(output, "tensors")) fail_msg("a note of tensors in:\n%s", output);
  return e2e_read_file(paths[4], NULL);
}

/* A receipt without the digest of config.json, hence also without its own digest, which is its last line; and without the machine. */
static char *without_config(char *receipt) {
  char *place = strstr(receipt, "\"config\":\""), *last = strstr(receipt, "{\"digest\":");
  assert_true(place && last);
  memset(place + 10, 'x', 32);
  *last = 0;
  return e2e_without_machine(receipt);
}

static void check_forms(const char *config, const form *forms, size_t count) {
  const form plain = {0};
  char *expected = without_config(run_form(config, &plain, NULL, 0, "1"));
  for (size_t i = 0; i < count; i++) {
    char *found = without_config(run_form(config, &forms[i], NULL, 0, "1"));
    if (strcmp(found, expected) != 0) fail_msg("%s, form %zu:\n%.400s\nexpected\n%.400s", config, i, found, expected);
    free(found);
  }
  free(expected);
}

#define V3 "tests/oracle/small-v3.json"

static void every_form_has_the_same_bits(void **state) {
  (void)state;
  static const form FORMS[] = {
    {NULL, {"--stacked-experts"}, NULL},
    {NULL, {"--extras"}, "3 rotary inv_freq, 16 of layers behind the last (prediction), 1 others"},
    {NULL, {"--extras", "--shards", "7", "--stacked-experts"}, "20 tensors of the model are not used"},
    {"kimi_k25", {"--prefix", "language_model."}, "tensors are named language_model.NAME"},
    {"kimi_k25", {"--prefix", "model.language_model."}, "tensors are named model.language_model.NAME"},
    {"kimi_k25", {NULL}, NULL},
    {"kimi_vl", {"--prefix", "language_model.", "--extras", "--stacked-experts", "--shards", "3"}, "16 of layers behind the last"},
    {"mistral3", {"--prefix", "model.language_model.", "--extras"}, "1 of other parts (vision)"},
  };
  check_forms(V3, FORMS, ARRAY_LEN(FORMS));
}

static void so_have_other_families(void **state) {
  (void)state;
  static const form MISTRAL[] = {{"mistral3", {"--prefix", "language_model.", "--stacked-experts"}, "tensors are named"},
                                 {NULL, {"--stacked-experts"}, NULL}};
  static const form MINICPM[] = {{"some_model", {"--prefix", "model.language_model."}, "tensors are named"}};
  check_forms("tests/oracle/small-mistral4.json", MISTRAL, ARRAY_LEN(MISTRAL));
  check_forms("tests/oracle/small-minicpm3.json", MINICPM, ARRAY_LEN(MINICPM));
}

static void a_change_is_seen(void **state) {
  (void)state;
  static const form NESTED = {"kimi_k25", {"--prefix", "language_model."}, "tensors are named"};
  char *expected = without_config(run_form(V3, &NESTED, NULL, 0, "1"));
  char *weights = without_config(run_form(V3, &NESTED, NULL, 0, "2"));
  char *number = without_config(run_form(V3, &NESTED, "routed_scaling_factor", 2.6, "1"));
  assert_string_not_equal(expected, weights);
  assert_string_not_equal(expected, number);
  char *items = strchr(expected, '\n'), *other = strchr(number, '\n'); /* not just the numerics id */
  assert_true(items && other);
  assert_string_not_equal(items, other);
  free(expected);
  free(weights);
  free(number);
}

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(every_form_has_the_same_bits), cmocka_unit_test(so_have_other_families),
                                     cmocka_unit_test(a_change_is_seen)};
  char output[256];
  const char *base = getenv("TMPDIR");
  e2e_begin(argc, argv);
  snprintf(scratch, sizeof scratch, "%s/verbatim-checkpoint-XXXXXX", base ? base : "/tmp");
  if (!mkdtemp(scratch)) return 1;
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  e2e_command((char *[]){arg("/bin/rm"), arg("-rf"), scratch, NULL}, output, sizeof output);
  return failed;
}

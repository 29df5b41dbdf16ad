/* test_hostile.c - damaged files and impossible requests, given to the program: an exit code from 2 to 8 and one clear line on stderr,
 * never a crash, a hang or a result. The first test is the control: the same command with sound files succeeds. */
#include "tests/unit/unit.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "e2e.h"
#include "engine/base/base.h"
#include "engine/plan/plan.h"
#include "tests/fuzz/plan_walk.h"

static char program[E2E_PATH_MAX], folder[E2E_PATH_MAX], model[E2E_PATH_MAX], plan_path[E2E_PATH_MAX];

static char *arg(const char *text) { return (char *)(uintptr_t)text; }

static void join(char *path, const char *a, const char *b) {
  int bytes = snprintf(path, E2E_PATH_MAX, "%s/%s", a, b);
  assert_true(bytes > 0 && bytes < E2E_PATH_MAX);
}

static uint8_t *read_bytes(const char *path, size_t *bytes) {
  FILE *file = fopen(path, "rb");
  assert_non_null(file);
  assert_int_equal(fseek(file, 0, SEEK_END), 0);
  *bytes = (size_t)ftell(file);
  rewind(file);
  uint8_t *data = malloc(*bytes + 1);
  assert_non_null(data);
  assert_int_equal(fread(data, 1, *bytes, file), *bytes);
  fclose(file);
  return data;
}

static void write_bytes(const char *path, const void *data, size_t bytes) {
  FILE *file = fopen(path, "wb");
  assert_non_null(file);
  assert_int_equal(fwrite(data, 1, bytes, file), bytes);
  assert_int_equal(fclose(file), 0);
}

/* Exit code of `verbatim run` on one prompt; text: its output. */
static int run(const char *const extra[], char *text, size_t text_bytes) {
  char *argv[24] = {program, arg("run"), plan_path, model, arg("--device"), arg("cpu"), arg("--threads"), arg("1"), arg("--quiet"),
                    arg("--max-tokens"), arg("2")};
  size_t count = 11;
  for (size_t i = 0; extra[i]; i++) argv[count++] = arg(extra[i]);
  return e2e_command(argv, text, text_bytes);
}

static int make_plan(char *text, size_t text_bytes) {
  char *argv[] = {program, arg("plan"), model, arg("--config"), arg("tests/tiny/deploy.yaml"), arg("-o"), plan_path, arg("--force"), NULL};
  return e2e_command(argv, text, text_bytes);
}

/* An error is one line that starts with the program's name. */
static void expect_error(int code, const char *text, const char *what) {
  const char *newline = strchr(text, '\n');
  bool good = code >= 2 && code <= 8 && strncmp(text, "verbatim: ", 10) == 0 && strlen(text) > 20 && newline && !newline[1];
  if (!good) fail_msg("%s: exit code %d, text \"%s\"", what, code, text);
}

static void expect_run_error(const char *const extra[], const char *word) {
  char text[8192];
  int code = run(extra, text, sizeof text);
  expect_error(code, text, word);
  if (!strstr(text, word)) fail_msg("expected \"%s\" in \"%s\"", word, text);
}
#define RUN_ERROR(word, ...) expect_run_error((const char *const[]){__VA_ARGS__, NULL}, word)

static void sound_files_work(void **state) {
  (void)state;
  char text[8192];
  assert_int_equal(make_plan(text, sizeof text), 0);
  assert_int_equal(run((const char *const[]){"add: 1+2=", NULL}, text, sizeof text), 0);
  assert_non_null(strstr(text, "receipt "));
}

static void impossible_wishes(void **state) {
  (void)state;
  char long_prompt[9000] = "";
  for (int i = 0; i < 1100; i++) strcat(long_prompt, "5 ");
  RUN_ERROR("max-model-len 1024", "--ids", long_prompt);
  RUN_ERROR("empty", "--ids", "");
  RUN_ERROR("token id", "--ids", "768");
  RUN_ERROR("token ids", "--ids", "1 x");
  RUN_ERROR("max_tokens", "x", "--max-tokens", "0");
  RUN_ERROR("max-model-len", "x", "--max-tokens", "4000000000");
  RUN_ERROR("temperature", "x", "--temperature", "-1");
  RUN_ERROR("temperature", "x", "--temperature", "nan");
  RUN_ERROR("top_p", "x", "--top-p", "0");
  RUN_ERROR("stop id", "x", "--stop-id", "100000");
  RUN_ERROR("stop text", "x", "--stop", "");
  RUN_ERROR("stop text", "x", "--stop", "\xff");
  RUN_ERROR("min_p", "x", "--min-p", "-0.5");
  RUN_ERROR("repetition_penalty", "x", "--repetition-penalty", "0");
  RUN_ERROR("presence_penalty", "x", "--presence-penalty", "nan");
  RUN_ERROR("frequency_penalty", "x", "--frequency-penalty", "17");
  RUN_ERROR("ID=X", "x", "--logit-bias", "5");
  RUN_ERROR("--logit-bias", "x", "--logit-bias", "=1");
  RUN_ERROR("bias", "x", "--logit-bias", "5=1001");
  RUN_ERROR("two biases", "x", "--logit-bias", "5=1", "--logit-bias", "5=1");
  RUN_ERROR("allowed twice", "x", "--allow-ids", "5,5");
  RUN_ERROR("--allow-ids", "x", "--allow-ids", "5;6");
  RUN_ERROR("--allow-ids", "x", "--allow-ids", "0000000000000000005");
  RUN_ERROR("temperature", "x", "--temperature", "1e-400");
  RUN_ERROR("found none", "x", "--allow-ids", ", ");
  RUN_ERROR("1 to 128", "x", "--n", "129");
  RUN_ERROR("0 to 20", "x", "--logprobs", "21");
  RUN_ERROR("one sample", "x", "--stream", "--n", "2");
  RUN_ERROR("which this plan excludes: the unabsorbed form", "x", "--require", "batch", "--require", "fast_prefill");
  RUN_ERROR("expected one of the plan's: batch, slot", "x", "--require", "batches");
  RUN_ERROR("--deadline", "x", "--deadline", "-1");
  RUN_ERROR("--deadline", "x", "--deadline", "nan");
  RUN_ERROR("UTF-8", "\xff\xfe");
  RUN_ERROR("unknown option", "x", "--frobnicate");
  RUN_ERROR("needs a value", "x", "--seed");
  RUN_ERROR("--seed", "x", "--seed", "18446744073709551616");
  RUN_ERROR("--device", "x", "--device", "tpu");
  RUN_ERROR("found nothing of that name", "--jsonl", "/nonexistent/items");
  RUN_ERROR("cannot be written", "x", "--receipt", "/nonexistent/receipt");
  RUN_ERROR("cannot be written", "x", "--logits", "/nonexistent/logits");
  RUN_ERROR("expected a prompt", "-");
}

/* Without a GPU, requesting one is an error and not a silent run on the CPU; with one, its absence cannot be tested. */
static void missing_gpu(void **state) {
  (void)state;
  if (access("/dev/nvidiactl", F_OK) == 0) {
    print_message("SKIPPED: there is a GPU: a missing one cannot be tested\n");
    skip();
  }
  RUN_ERROR("GPU", "x", "--device", "gpu");
  RUN_ERROR("GPU", "x", "--device", "gpu:3");
}

static void bad_jsonl(void **state) {
  (void)state;
  static const struct { const char *line, *word; } cases[] = {
    {"{\"prompt\":\"a\"", "not JSON"}, {"[]", "object"}, {"{}", "prompt"}, {"{\"prompt\":1}", "text"},
    {"{\"prompt\":\"a\",\"prompt_ids\":[1]}", "one of"}, {"{\"prompt\":\"a\",\"typical_p\":0.5}", "not supported"},
    {"{\"prompt\":\"a\",\"repetition_penalty\":99}", "repetition_penalty"},
    {"{\"prompt\":\"a\",\"logit_bias\":{\"1\":1,\"01\":2}}", "two biases"},
    {"{\"prompt\":\"a\",\"allowed_ids\":[99999]}", "allowed id"}, {"{\"prompt\":\"a\",\"min_p\":2}", "min_p"},
    {"{\"prompt\":\"a\",\"prompt\":\"b\"}", "not JSON"}, {"{\"prompt_ids\":[-1]}", "token ids"}, {"{\"prompt_ids\":[]}", "empty"},
    {"{\"prompt\":\"a\",\"require\":[\"fast_prefill\"]}", "excludes"}, {"{\"prompt\":\"a\",\"require\":\"batch\"}", "list of names"},
    {"{\"prompt\":\"a\",\"deadline_seconds\":-3}", "0 or more"},
    {"{\"prompt\":\"a\",\"max_tokens\":1.5}", "integer"}, {"{\"prompt\":\"a\",\"seed\":-1}", "integer"},
    {"{\"prompt\":\"a\",\"temperature\":\"hot\"}", "number"}, {"{\"prompt\":\"\\ud800\"}", "not JSON"},
  };
  char path[E2E_PATH_MAX];
  join(path, folder, "items");
  for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
    write_bytes(path, cases[i].line, strlen(cases[i].line));
    RUN_ERROR(cases[i].word, "--jsonl", path);
  }
}

typedef int action(char *text, size_t text_bytes);
static int run_once(char *text, size_t text_bytes) { return run((const char *const[]){"add: 1+2=", NULL}, text, text_bytes); }

/* Truncates the file at `cuts` places, and flips one bit at as many places below flip_bytes. Each must be an error or, if `may` allows it,
 * a sound run (a changed letter in a comment, an omitted line of a deployment). */
enum may_work { CUTS_MAY_WORK = 1, FLIPS_MAY_WORK = 2 };
static void damage(const char *path, action *act, uint32_t cuts, size_t flip_bytes, int may) {
  size_t bytes;
  uint8_t *data = read_bytes(path, &bytes);
  char text[8192], what[64];
  if (flip_bytes == 0 || flip_bytes > bytes) flip_bytes = bytes;
  for (uint32_t i = 0; i < cuts; i++) {
    size_t at = bytes * i / cuts;
    write_bytes(path, data, at);
    snprintf(what, sizeof what, "cut at byte %zu of %zu", at, bytes);
    int code = act(text, sizeof text);
    if (code != 0 || !(may & CUTS_MAY_WORK)) expect_error(code, text, what);
    at = flip_bytes * i / cuts + i % 7;
    if (at >= bytes) at = bytes - 1;
    data[at] ^= (uint8_t)(1u << (i % 8));
    write_bytes(path, data, bytes);
    data[at] ^= (uint8_t)(1u << (i % 8));
    snprintf(what, sizeof what, "bit flipped in byte %zu of %zu", at, bytes);
    code = act(text, sizeof text);
    if (code != 0 || !(may & FLIPS_MAY_WORK)) expect_error(code, text, what);
  }
  write_bytes(path, data, bytes);
  free(data);
}

static void damaged_plan(void **state) {
  (void)state;
  damage(plan_path, run_once, 24, 0, 0);
}

/* A plan that was changed and given a new digest: every access stays inside its region, but an op reads or writes data that is not its own.
 * The engine itself refuses it, whoever opens it; plan_view, which only checks bounds, does not. The control is the same plan unchanged. */
static void wrong_accesses_are_refused_by_the_engine(void **state) {
  (void)state;
  size_t bytes, refused = 0;
  uint8_t *data = read_bytes(plan_path, &bytes);
  char path[E2E_PATH_MAX], text[8192];
  join(path, folder, "changed");
  const verbatim_config config = {.plan_path = path, .model_dir = model, .device = VERBATIM_DEVICE_CPU, .threads = 1};
  verbatim *engine = NULL;
  plan view;
  assert_int_equal(plan_view(data, bytes, &view), OK);
  write_bytes(path, data, bytes);
  if (verbatim_open(&engine, &config) != 0) fail_msg("%s", verbatim_error());
  verbatim_close(engine);
  for (uint32_t i = 0; i < view.op_count; i += 1 + view.op_count / 12) {
    plan_fixup *fixup = (plan_fixup *)(uintptr_t)&view.fixups[view.ops[i].first_fixup + view.ops[i].fixup_count - 1], sound = *fixup;
    plan changed;
    fixup->region = REGION_WORK;
    fixup->offset = 256 * (uint64_t)(i + 1);
    plan_walk_seal(data, bytes);
    fail_clear();
    if (plan_view(data, bytes, &changed) == OK) { /* else it is refused for a simpler reason */
      write_bytes(path, data, bytes);
      engine = NULL;
      int result = verbatim_open(&engine, &config);
      if (result != VERBATIM_ERR_FORMAT || engine) fail_msg("op %u: expected a refusal, found %d: %s", i, result, verbatim_error());
      refused++;
    }
    *fixup = sound;
  }
  assert_true(refused >= 6);
  char *argv[] = {program, arg("run"), path, model, arg("--device"), arg("cpu"), arg("--quiet"), arg("--ids"), arg("5"), NULL};
  int code = e2e_command(argv, text, sizeof text); /* the last one, given to the program */
  expect_error(code, text, "a sealed plan");
  assert_int_equal(code, 4);
  free(data);
}

static void damaged_config(void **state) {
  (void)state;
  char path[E2E_PATH_MAX], text[8192];
  join(path, model, "config.json");
  damage(path, make_plan, 24, 0, FLIPS_MAY_WORK);
  assert_int_equal(make_plan(text, sizeof text), 0);
}

static void damaged_weights(void **state) {
  (void)state;
  char path[E2E_PATH_MAX];
  join(path, model, "model.safetensors");
  damage(path, run_once, 24, 6000, FLIPS_MAY_WORK);
}

/* The embedding of token 5 becomes NaN: every request with that token ends in an error, which is reported when all others are done. */
static void a_nonfinite_request_is_named_at_the_end(void **state) {
  (void)state;
  static const char RUN[] = "{\"prompt_ids\":[5],\"max_tokens\":2,\"id\":\"bad\"}\n"
                            "{\"prompt_ids\":[6],\"max_tokens\":20,\"ignore_eos\":true}\n";
  static const char SCORE[] = "{\"ids\":[5,6],\"id\":\"bad\"}\n{\"ids\":[6,7]}\n{\"ids\":[6,7,8]}\n{\"ids\":[6,7,8,9]}\n";
  char path[E2E_PATH_MAX], items[E2E_PATH_MAX], text[16384];
  join(path, model, "model.safetensors");
  join(items, folder, "items");
  size_t bytes, header = 0, from = 0, to = 0;
  uint8_t *data = read_bytes(path, &bytes), *sound = read_bytes(path, &bytes);
  memcpy(&header, data, 8);
  char *at = strstr((char *)data + 8, "\"model.embed_tokens.weight\"");
  assert_non_null(at);
  at = strstr(at, "\"data_offsets\":[");
  assert_int_equal(sscanf(at, "\"data_offsets\":[%zu,%zu]", &from, &to), 2);
  size_t row = (to - from) / 768;
  memset(data + 8 + header + from + 5 * row, 0xff, row);
  write_bytes(path, data, bytes);
  static const char *const commands[][2] = {{"run", RUN}, {"score", SCORE}};
  for (size_t i = 0; i < ARRAY_LEN(commands); i++) {
    char *argv[] = {program, arg(commands[i][0]), plan_path, model, arg("--device"), arg("cpu"), arg("--threads"), arg("1"), arg("--quiet"),
                    arg("--batch"), arg("1"), arg("--jsonl"), items, NULL};
    write_bytes(items, commands[i][1], strlen(commands[i][1]));
    assert_int_equal(e2e_command(argv, text, sizeof text), 8);
    const char *said = strstr(text, "verbatim: ");
    if (!said || !strstr(said, "bad: the logits hold NaN or Inf") || !strstr(said, ", made first by embed at position 0"))
      fail_msg("%s said: %s", commands[i][0], text);
  }
  write_bytes(path, sound, bytes);
  free(sound);
  free(data);
}

static void damaged_tokenizer(void **state) {
  (void)state;
  char path[E2E_PATH_MAX];
  join(path, model, "tokenizer.json");
  damage(path, run_once, 24, 0, FLIPS_MAY_WORK);
}

/* Plans into a file of its own with the deployment and profile in the folder. */
static int plan_under(char *text, size_t text_bytes) {
  char deploy[E2E_PATH_MAX], known[E2E_PATH_MAX], other[E2E_PATH_MAX];
  join(deploy, folder, "deploy");
  join(known, folder, "profile");
  join(other, folder, "other");
  char *argv[] = {program, arg("plan"), model, arg("--config"), deploy, arg("--profile"), known, arg("-o"), other, arg("--force"), NULL};
  return e2e_command(argv, text, text_bytes);
}

static void damaged_deployment_and_profile(void **state) {
  (void)state;
  static const char DEPLOY[] = "max-num-seqs: 8\nmax-num-batched-tokens: 64\nmax-model-len: 256 # tokens\nkv_pages: 16\n"
                               "ladder: [1, 2, 4, 8]\n";
  static const char PROFILE[] =
    "{\"library_version\":130100,\"entries\":[{\"n\":768,\"k\":192,\"out\":\"f32\",\"rows_min\":1,\"rows_max\":4,\"algo\":[\"1\",\"0\","
    "\"2a\",\"0\",\"0\",\"0\",\"0\",\"f\"],\"workspace_bytes\":1000,\"certified\":true,\"use\":true}]}";
  char path[E2E_PATH_MAX], text[8192];
  join(path, folder, "profile");
  write_bytes(path, PROFILE, sizeof PROFILE - 1);
  join(path, folder, "deploy");
  write_bytes(path, DEPLOY, sizeof DEPLOY - 1);
  assert_int_equal(plan_under(text, sizeof text), 0);
  damage(path, plan_under, 24, 0, CUTS_MAY_WORK | FLIPS_MAY_WORK);
  join(path, folder, "profile");
  damage(path, plan_under, 24, 0, FLIPS_MAY_WORK);
  assert_int_equal(plan_under(text, sizeof text), 0);
}

/* An index that names files outside its folder is refused, even if those files are sound. */
static void damaged_index(void **state) {
  (void)state;
  static const char *const NAMES[] = {"../model/1.safetensors", "./1.safetensors", "/1.safetensors", "", ".", "..", "2.safetensors",
                                      "1.safetensors\\u0000", "model.safetensors.index.json"};
  char index[E2E_PATH_MAX], whole[E2E_PATH_MAX], shard[E2E_PATH_MAX], line[256], text[8192];
  join(index, model, "model.safetensors.index.json");
  join(whole, model, "model.safetensors");
  join(shard, model, "1.safetensors");
  assert_int_equal(rename(whole, shard), 0);
  for (size_t i = 0; i < ARRAY_LEN(NAMES); i++) {
    snprintf(line, sizeof line, "{\"weight_map\":{\"lm_head.weight\":\"%s\"}}", NAMES[i]);
    write_bytes(index, line, strlen(line));
    int code = run_once(text, sizeof text);
    expect_error(code, text, NAMES[i]);
  }
  snprintf(line, sizeof line, "{\"metadata\":{},\"weight_map\":{\"lm_head.weight\":\"1.safetensors\"}}");
  write_bytes(index, line, strlen(line));
  assert_int_equal(run_once(text, sizeof text), 0);
  damage(index, run_once, 24, 0, FLIPS_MAY_WORK);
  assert_int_equal(unlink(index), 0);
  assert_int_equal(rename(shard, whole), 0);
}

static void missing_files(void **state) {
  (void)state;
  static const char *const names[] = {"model.safetensors", "tokenizer.json"};
  for (size_t i = 0; i < ARRAY_LEN(names); i++) {
    char path[E2E_PATH_MAX], away[E2E_PATH_MAX], text[8192];
    join(path, model, names[i]);
    join(away, folder, "away");
    assert_int_equal(rename(path, away), 0);
    int code = run_once(text, sizeof text);
    expect_error(code, text, names[i]);
    assert_int_equal(rename(away, path), 0);
  }
}

/* A plan of one model with the weights of another: refused, with both shapes. */
static void wrong_model(void **state) {
  (void)state;
  e2e_model other;
  e2e_make_model(&other, "tests/oracle/small-v3.json", "max-num-seqs: 2\nmax-model-len: 128\nkv_pages: 4\n");
  char text[8192];
  char *argv[] = {program, arg("run"), plan_path, other.model_dir, arg("--device"), arg("cpu"), arg("--quiet"), arg("--ids"), arg("5"),
                  NULL};
  int code = e2e_command(argv, text, sizeof text);
  expect_error(code, text, "weights of another model");
  assert_non_null(strstr(text, "expected"));
  e2e_remove(&other);
}

static void copy_file(const char *name) {
  char from[E2E_PATH_MAX], to[E2E_PATH_MAX];
  size_t bytes;
  join(from, "tests/tiny", name);
  join(to, model, name);
  uint8_t *data = read_bytes(from, &bytes);
  write_bytes(to, data, bytes);
  free(data);
}

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(sound_files_work), cmocka_unit_test(impossible_wishes), cmocka_unit_test(missing_gpu), cmocka_unit_test(bad_jsonl),
    cmocka_unit_test(damaged_plan), cmocka_unit_test(wrong_accesses_are_refused_by_the_engine),
    cmocka_unit_test(damaged_config), cmocka_unit_test(damaged_weights),
    cmocka_unit_test(a_nonfinite_request_is_named_at_the_end),
    cmocka_unit_test(damaged_tokenizer), cmocka_unit_test(damaged_deployment_and_profile), cmocka_unit_test(damaged_index),
    cmocka_unit_test(missing_files), cmocka_unit_test(wrong_model),
    cmocka_unit_test(sound_files_work)};
  e2e_begin(argc, argv);
  e2e_binary("verbatim", program);
  snprintf(folder, sizeof folder, "/tmp/verbatim-hostile-%ld", (long)getpid());
  join(model, folder, "model");
  join(plan_path, folder, "plan");
  if (mkdir(folder, 0700) != 0 || mkdir(model, 0700) != 0) return 1;
  static const char *const names[] = {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"};
  for (size_t i = 0; i < ARRAY_LEN(names); i++) copy_file(names[i]);
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  e2e_model made = {0};
  memcpy(made.folder, folder, sizeof folder);
  e2e_remove(&made);
  return failed;
}

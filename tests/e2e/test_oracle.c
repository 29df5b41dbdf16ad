/* test_oracle.c - our logits against recorded logits of HF transformers in fp32, on small random models.
 *
 * Owns: the comparison, in C, of the output of `verbatim run --logits` with tests/oracle/golden-*.f32 (formats: tests/oracle/README.md).
 * Knows the engine only as the program. Ours must be nearer to fp32 than HF in bf16 was when the references were recorded; the controls
 * show that models wrong by a few percent, and shifted rows, are caught. Read next: tools/oracle.py, which records the references and
 * compares larger models. */
#include "tests/unit/unit.h"
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define POSITIONS_MAX 128
#define VOCAB_MAX_HERE 512
#define PATH_BYTES 512
#define KL_SHARE 0.5 /* ours may have at most this fraction of HF-bf16's mean KL */

extern char **environ;

typedef struct figures {
  double mean_kl;              /* nats, KL(reference || candidate)             */
  double max_logit_difference;
  double top1_agreement;       /* fraction of positions, lowest id among equals */
} figures;

typedef struct golden {
  const char *name;
  size_t positions, vocab;
  float *logits; /* [positions][vocab], HF fp32 */
  figures hf_bf16;
  char weights_fnv1a64[17];
} golden;

static char build_dir[PATH_BYTES]; /* where verbatim is: the parent of this program's folder */
static char random_model[PATH_BYTES];

/* ---- comparison ---- */

static double log_sum_exp(const float *row, size_t vocab) {
  double top = row[0], sum = 0.0;
  for (size_t i = 1; i < vocab; ++i) top = fmax(top, (double)row[i]);
  for (size_t i = 0; i < vocab; ++i) sum += exp((double)row[i] - top);
  return top + log(sum);
}

static size_t arg_max(const float *row, size_t vocab) {
  size_t best = 0;
  for (size_t i = 1; i < vocab; ++i)
    if (row[i] > row[best]) best = i;
  return best;
}

static figures compare(const float *reference, const float *candidate, size_t positions, size_t vocab) {
  figures out = {0};
  for (size_t row = 0; row < positions; ++row, reference += vocab, candidate += vocab) {
    double p_norm = log_sum_exp(reference, vocab), q_norm = log_sum_exp(candidate, vocab);
    for (size_t i = 0; i < vocab; ++i) {
      double p = (double)reference[i] - p_norm, q = (double)candidate[i] - q_norm;
      double difference = fabs((double)reference[i] - (double)candidate[i]);
      out.mean_kl += exp(p) * (p - q) / (double)positions;
      if (!(difference <= out.max_logit_difference)) out.max_logit_difference = difference; /* keeps NaN */
    }
    if (arg_max(reference, vocab) == arg_max(candidate, vocab)) out.top1_agreement += 1.0 / (double)positions;
  }
  return out;
}

static bool better_than_hf_bf16(const figures *ours, const figures *hf) {
  return ours->mean_kl <= KL_SHARE * hf->mean_kl && ours->max_logit_difference <= hf->max_logit_difference &&
         ours->top1_agreement >= hf->top1_agreement - 1e-9;
}

/* ---- files ---- */

__attribute__((format(printf, 2, 3))) static void print_path(char out[PATH_BYTES], const char *format, ...) {
  va_list args;
  va_start(args, format);
  int length = vsnprintf(out, PATH_BYTES, format, args);
  va_end(args);
  assert_true(length > 0 && length < PATH_BYTES);
}

static char *read_file(const char *path, size_t *bytes) { /* the caller frees it; a NUL follows the bytes */
  FILE *file = fopen(path, "rb");
  if (file == NULL) fail_msg("cannot open %s", path);
  assert_int_equal(fseek(file, 0, SEEK_END), 0);
  long length = ftell(file);
  assert_true(length >= 0);
  rewind(file);
  char *data = malloc((size_t)length + 1);
  assert_non_null(data);
  *bytes = fread(data, 1, (size_t)length, file);
  assert_int_equal(*bytes, length);
  data[*bytes] = 0;
  fclose(file);
  return data;
}

static double real_field(const json_t *object, const char *key) {
  const json_t *field = json_object_get(object, key);
  assert_true(json_is_number(field));
  return json_number_value(field);
}

static void golden_open(golden *g, const char *name) {
  char path[PATH_BYTES];
  size_t bytes;
  print_path(path, "tests/oracle/golden-%s.json", name);
  json_t *record = json_load_file(path, JSON_REJECT_DUPLICATES, NULL);
  assert_non_null(record);
  const json_t *hf = json_object_get(record, "hf_bf16");
  *g = (golden){.name = name,
                .positions = (size_t)real_field(record, "positions"),
                .vocab = (size_t)real_field(record, "vocab"),
                .hf_bf16 = {real_field(hf, "mean_kl"), real_field(hf, "max_logit_difference"), real_field(hf, "top1_agreement")}};
  snprintf(g->weights_fnv1a64, sizeof g->weights_fnv1a64, "%s", json_string_value(json_object_get(record, "weights_fnv1a64")));
  json_decref(record);
  assert_in_range(g->positions, 1, POSITIONS_MAX);
  assert_in_range(g->vocab, 1, VOCAB_MAX_HERE);
  print_path(path, "tests/oracle/golden-%s.f32", name);
  g->logits = (float *)(void *)read_file(path, &bytes);
  assert_int_equal(bytes, g->positions * g->vocab * sizeof(float));
}

static void assert_weights(const golden *g, const char *folder) {
  char path[PATH_BYTES], found[17];
  size_t bytes;
  print_path(path, "%s/model.safetensors", folder);
  unsigned char *data = (unsigned char *)read_file(path, &bytes);
  uint64_t digest = UINT64_C(0xcbf29ce484222325);
  for (size_t i = 0; i < bytes; ++i) digest = (digest ^ data[i]) * UINT64_C(0x100000001b3);
  free(data);
  snprintf(found, sizeof found, "%016llx", (unsigned long long)digest);
  assert_string_equal(found, g->weights_fnv1a64); /* else random_model changed: record the references again */
}

/* ---- programs ---- */

static void run_program(const char *const *argv) {
  posix_spawn_file_actions_t actions;
  pid_t child;
  int wait_status;
  assert_int_equal(posix_spawn_file_actions_init(&actions), 0);
  assert_int_equal(posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0), 0);
  char *const *arguments = (char *const *)(void *)(uintptr_t)argv;
  if (posix_spawn(&child, argv[0], &actions, NULL, arguments, environ) != 0) fail_msg("cannot start %s", argv[0]);
  posix_spawn_file_actions_destroy(&actions);
  assert_int_equal(waitpid(child, &wait_status, 0), child);
  if (!WIFEXITED(wait_status) || WEXITSTATUS(wait_status) != 0) fail_msg("%s %s failed", argv[0], argv[1]);
}

/* Replaces one text in the folder's config.json by another. */
static void edit_config(const char *folder, const char *from, const char *to) {
  char path[PATH_BYTES];
  size_t bytes;
  print_path(path, "%s/config.json", folder);
  char *text = read_file(path, &bytes), *place = strstr(text, from);
  assert_non_null(place);
  FILE *file = fopen(path, "wb");
  assert_non_null(file);
  assert_true(fprintf(file, "%.*s%s%s", (int)(place - text), text, to, place + strlen(from)) > 0);
  assert_int_equal(fclose(file), 0);
  free(text);
}

/* Makes the model, plans it, runs the recorded prompts. from/to: an edit of config.json after the weights were made, or NULL; cache:
 * kv-cache-dtype. The caller frees the logits, [positions][vocab]. */
static float *our_logits(const golden *g, const char *from, const char *to, const char *cache, const char *parity) {
  char folder[PATH_BYTES], config[PATH_BYTES], plan[PATH_BYTES], prompts[PATH_BYTES], logits[PATH_BYTES];
  char verbatim[PATH_BYTES];
  size_t bytes;
  print_path(folder, "%s/oracle-%s%s", build_dir, g->name, from != NULL ? "-edited" : "");
  print_path(config, "tests/oracle/small-%s.json", g->name);
  print_path(prompts, "tests/oracle/golden-%s.jsonl", g->name);
  print_path(plan, "%s.plan", folder);
  print_path(logits, "%s.f32", folder);
  print_path(verbatim, "%s/verbatim", build_dir);
  bool is_stacked = strcmp(g->name, "mistral4") == 0; /* HF reads its experts in no other form */
  run_program((const char *const[]){random_model, config, folder, "--seed", "1", "--vocab-tokenizer",
                                    is_stacked ? "--stacked-experts" : NULL, NULL});
  assert_weights(g, folder);
  if (from != NULL) edit_config(folder, from, to);
  run_program((const char *const[]){verbatim, "plan", folder, "--config", "tests/oracle/deploy.yaml", "--kv-cache-dtype", cache,
                                    "--parity", parity, "-o", plan, NULL});
  run_program((const char *const[]){verbatim, "run", plan, folder, "--jsonl", prompts, "--max-tokens", "1", "--ignore-eos", "--device",
                                    "cpu", "--logits", logits, "--output", "jsonl", "--quiet", NULL});
  float *values = (float *)(void *)read_file(logits, &bytes);
  assert_int_equal(bytes, g->positions * g->vocab * sizeof(float));
  return values;
}

/* ---- tests ---- */

static void nearer_to_fp32_than_hf_bf16(void **state) {
  const char *names[] = {"v3", "v2lite", "glm4-moe-lite", "youtu", "minicpm3", "mistral4", "llama", "llama-bias", "mistral", "qwen2",
                         "qwen2-moe", "qwen2-moe-60", "qwen3", "qwen3-moe", "glm4", "glm4-moe", "olmo2", "phi3", "smollm3"};
  (void)state;
  for (size_t i = 0; i < sizeof names / sizeof names[0]; ++i) {
    golden g;
    golden_open(&g, names[i]);
    float *ours = our_logits(&g, NULL, NULL, "auto", "strict");
    figures f = compare(g.logits, ours, g.positions, g.vocab);
    print_message("%s: mean KL %.2e (HF bf16 %.2e), largest difference %.4f (%.4f), top-1 %.2f (%.2f)\n", g.name, f.mean_kl,
                  g.hf_bf16.mean_kl, f.max_logit_difference, g.hf_bf16.max_logit_difference, f.top1_agreement, g.hf_bf16.top1_agreement);
    assert_true(better_than_hf_bf16(&f, &g.hf_bf16));
    free(ours);
    free(g.logits);
  }
}

static void wrong_models_are_caught(void **state) {
  const char *edits[][3] = {{"v3", "\"mscale_all_dim\": 1.0", "\"mscale_all_dim\": 0.8"},
                            {"v2lite", "\"routed_scaling_factor\": 1.0", "\"routed_scaling_factor\": 1.2"},
                            {"glm4-moe-lite", "\"routed_scaling_factor\": 1.8", "\"routed_scaling_factor\": 2.0"},
                            {"youtu", "\"rope_theta\": 1600000.0", "\"rope_theta\": 1200000.0"},
                            {"minicpm3", "\"scale_emb\": 2.5", "\"scale_emb\": 1"},
                            {"minicpm3", "\"scale_depth\": 1.4", "\"scale_depth\": null"},
                            {"minicpm3", "\"dim_model_base\": 64", "\"dim_model_base\": 72"},
                            {"minicpm3", "\"original_max_position_embeddings\": 4", /* the other list, the same factor of cos and sin */
                             "\"attention_factor\": 1.58113883, \"original_max_position_embeddings\": 2048"},
                            {"minicpm3", "\"factor\": 8.0", "\"factor\": 6.0"},
                            {"llama", "\"factor\": 8.0", "\"factor\": 2.0"},
                            {"llama-bias", "\"mlp_bias\": true", "\"mlp_bias\": false"},
                            {"qwen2", "\"rope_theta\": 1000000.0", "\"rope_theta\": 100000.0"},
                            {"qwen3-moe", "\"norm_topk_prob\": true", "\"norm_topk_prob\": false"},
                            {"glm4", "\"partial_rotary_factor\": 0.5", "\"partial_rotary_factor\": 1.0"},
                            {"glm4-moe", "\"routed_scaling_factor\": 1.5", "\"routed_scaling_factor\": 1.2"},
                            {"smollm3", "\"rope_theta\": 5000000.0", "\"rope_theta\": 50000.0"},
                            {"mistral4", "\"llama_4_scaling_beta\": 0.1", "\"llama_4_scaling_beta\": 0"},
                            {"mistral4", "\"routed_scaling_factor\": 1.5", "\"routed_scaling_factor\": 1.0"},
                            {"mistral4", "\"norm_topk_prob\": true", "\"norm_topk_prob\": false"},
                            {"mistral4", "\"topk_group\": 2", "\"topk_group\": 4"},
                            {"mistral4", "\"rope_interleave\": true", "\"rope_interleave\": false"},
                            {"mistral4", "\"partial_rotary_factor\": 0.5", "\"attention_factor\": 0.9"}};
  (void)state;
  for (size_t i = 0; i < sizeof edits / sizeof edits[0]; ++i) {
    golden g;
    golden_open(&g, edits[i][0]);
    float *ours = our_logits(&g, edits[i][1], edits[i][2], "auto", "strict");
    figures f = compare(g.logits, ours, g.positions, g.vocab);
    print_message("%s with %s: mean KL %.2e (HF bf16 %.2e)\n", g.name, edits[i][2], f.mean_kl, g.hf_bf16.mean_kl);
    assert_false(better_than_hf_bf16(&f, &g.hf_bf16));
    free(ours);
    free(g.logits);
  }
}

/* README.md, LIMITS.md and `verbatim show` say so; tools/kv_cost.py measures more models and the format fp8. */
static void an_fp8_cache_costs_what_is_said(void **state) {
  const char *names[] = {"v3", "v2lite", "glm4-moe-lite", "youtu"};
  (void)state;
  for (size_t i = 0; i < sizeof names / sizeof names[0]; ++i) {
    golden g;
    golden_open(&g, names[i]);
    float *ours[] = {our_logits(&g, NULL, NULL, "bf16", "strict"), our_logits(&g, NULL, NULL, "fp8_ds_mla", "strict")};
    figures bf16 = compare(g.logits, ours[0], g.positions, g.vocab), fp8 = compare(g.logits, ours[1], g.positions, g.vocab);
    double times = fp8.mean_kl / bf16.mean_kl, points = 100 * (bf16.top1_agreement - fp8.top1_agreement);
    print_message("%s: mean KL %.1f times bf16's, top-1 %.1f points lower\n", g.name, times, points);
    assert_true(times >= 7 && times <= 45 && points > -1e-9 && points <= 7 + 1e-9);
    free(ours[0]);
    free(ours[1]);
    free(g.logits);
  }
}

/* Also over a coded cache, which costs what it costs under strict. */
static void fast_prefill_is_as_near(void **state) {
  const char *caches[] = {"bf16", "fp8_ds_mla"}, *parities[] = {"strict", "fast-prefill"};
  figures f[2][2];
  golden g;
  (void)state;
  golden_open(&g, "v3");
  for (size_t i = 0; i < 4; ++i) {
    float *ours = our_logits(&g, NULL, NULL, caches[i / 2], parities[i % 2]);
    f[i / 2][i % 2] = compare(g.logits, ours, g.positions, g.vocab);
    free(ours);
  }
  for (size_t i = 0; i < 2; ++i) {
    const double strict = f[i][0].mean_kl, fast = f[i][1].mean_kl;
    print_message("v3, %s: mean KL %.2e, fast-prefill %.2e (HF bf16 %.2e)\n", caches[i], strict, fast, g.hf_bf16.mean_kl);
    assert_true(fast != strict && fabs(log(fast / strict)) < log(1.5));
  }
  assert_true(better_than_hf_bf16(&f[0][1], &g.hf_bf16) && !better_than_hf_bf16(&f[1][1], &g.hf_bf16));
  free(g.logits);
}

static void comparison_sees_equal_shifted_and_nan(void **state) {
  golden g;
  (void)state;
  golden_open(&g, "v3");
  figures same = compare(g.logits, g.logits, g.positions, g.vocab);
  assert_true(same.mean_kl == 0.0 && same.max_logit_difference == 0.0 && same.top1_agreement > 1.0 - 1e-9);
  assert_true(better_than_hf_bf16(&same, &g.hf_bf16));
  figures shifted = compare(g.logits, g.logits + g.vocab, g.positions - 1, g.vocab);
  assert_false(better_than_hf_bf16(&shifted, &g.hf_bf16));
  float *broken = malloc(g.positions * g.vocab * sizeof *broken);
  assert_non_null(broken);
  memcpy(broken, g.logits, g.positions * g.vocab * sizeof *broken);
  broken[g.vocab / 2] = NAN;
  figures nan = compare(g.logits, broken, g.positions, g.vocab);
  assert_false(better_than_hf_bf16(&nan, &g.hf_bf16));
  free(broken);
  free(g.logits);
}

/* argv[0] is BUILD/tests/test_oracle; random_model is in BUILD or, for the sanitizer variant, one folder up. */
static void find_programs(const char *self) {
  print_path(build_dir, "%s", self);
  for (int up = 0; up < 2; ++up) {
    char *slash = strrchr(build_dir, '/');
    if (slash != NULL) *slash = 0;
  }
  print_path(random_model, "%s/random_model", build_dir);
  if (access(random_model, X_OK) != 0) print_path(random_model, "%s/../random_model", build_dir);
}

int main(int argc, char **argv) {
  (void)argc;
  find_programs(argv[0]);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(comparison_sees_equal_shifted_and_nan),
      cmocka_unit_test(nearer_to_fp32_than_hf_bf16),
      cmocka_unit_test(wrong_models_are_caught),
      cmocka_unit_test(an_fp8_cache_costs_what_is_said),
      cmocka_unit_test(fast_prefill_is_as_near),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

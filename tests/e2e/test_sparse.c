/* test_sparse.c - models with an indexer, with e4m3 weights and with KV caches of every format: changes that must not change a bit.
 *
 * As long as a token sees at most index_topk others the bits are those of dense attention; splits, batches, pages, poison and reused
 * prefixes change nothing; audits recompute every row. Controls: beyond index_topk the bits differ, and so do the index lists. */
#include "tests/unit/unit.h"
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include "shell.h"
#include "engine/base/base.h"

#define VOCAB 384u
#define TOPK 64u
#define LIMITS "max-num-seqs: 4\nmax-num-batched-tokens: 256\nmax-model-len: 512\nchunk_tokens: 64\ngroup_chunks: 2\n"
#define MANY_HEADS "tests/oracle/small-v32-heads-fp8.json" /* index lists of 2 * TOPK */
#define LIMITS_ONE_CHUNK "max-num-seqs: 4\nmax-num-batched-tokens: 256\nmax-model-len: 512\nchunk_tokens: 128\ngroup_chunks: 2\n"
/* Other programs may use the GPU during these runs, each of which reports that it noticed. */
#define SETUP "R=\"$V run plan model --ids --quiet $D --ignore-eos\" && S='diff -I ^verbatim:.GPU.memory:' && "

static e2e_model model;

static const char *device(void) { return e2e_device() == VERBATIM_DEVICE_CPU ? "cpu" : "gpu"; }

/* `count` ids, the same for the same seed. */
static void write_ids(FILE *file, uint64_t seed, uint32_t count) {
  for (uint32_t i = 0; i < count; i++) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    fprintf(file, "%s%u", i ? "," : "", 2 + (uint32_t)(seed >> 33) % (VOCAB - 2));
  }
}

typedef struct prompt {
  uint32_t seed, tokens, made;
} prompt;

static void write_prompts(const char *name, const prompt *prompts, size_t count) {
  FILE *file = e2e_open(&model, name, "w");
  for (size_t i = 0; i < count; i++) {
    fprintf(file, "{\"prompt_ids\": [");
    write_ids(file, prompts[i].seed, prompts[i].tokens);
    fprintf(file, "], \"max_tokens\": %u}\n", prompts[i].made);
  }
  fclose(file);
}

static void write_deploy(const char *name, const char *deploy, const char *more) {
  FILE *file = e2e_open(&model, name, "w");
  fprintf(file, "%s%s", deploy, more);
  fclose(file);
}

static void make(const char *config, const char *deploy) {
  e2e_make_model(&model, config, deploy);
}

/* === Dense attention ==================================================================================================== */

/* The same weights without the indexer, as the folder "dense". */
static void make_dense(void) {
  static const char *const FIELDS[] = {"index_n_heads", "index_head_dim", "index_topk"};
  char path[E2E_PATH_MAX + 32];
  must("mkdir dense && ln -s ../model/model.safetensors dense/model.safetensors");
  snprintf(path, sizeof path, "%s/config.json", model.model_dir);
  json_t *config = json_load_file(path, 0, NULL);
  assert_non_null(config);
  for (size_t i = 0; i < ARRAY_LEN(FIELDS); i++) json_object_del(config, FIELDS[i]);
  json_object_set_new(config, "model_type", json_string("deepseek_v3"));
  json_object_set_new(config, "architectures", json_pack("[s]", "DeepseekV3ForCausalLM"));
  snprintf(path, sizeof path, "%s/dense/config.json", model.folder);
  assert_int_equal(json_dump_file(config, path, 0), 0);
  json_decref(config);
}

/* Logits of the prompt's tokens and of generated ones, by both models. */
static void check_dense(const char *config, const char *deploy, uint32_t topk) {
  const prompt inside = {1, topk - 8, 8}, beyond = {2, topk + 40, 1};
  char command[512];
  make(config, deploy);
  make_dense();
  write_deploy("deploy", deploy, "");
  write_prompts("inside", &inside, 1);
  write_prompts("beyond", &beyond, 1);
  snprintf(command, sizeof command, "$V plan dense --config deploy -o dense.plan && D=\"$V run dense.plan dense --ids --quiet --device %s "
           "--ignore-eos\" && $R --jsonl inside --logits l0 > t0 && $D --jsonl inside --logits l1 > t1 && cmp l0 l1 && head -n 1 t0 > a && "
           "head -n 1 t1 > b && cmp a b", device());
  must(command);
  snprintf(command, sizeof command, "D=\"$V run dense.plan dense --ids --quiet --device %s\" && $R --jsonl beyond --logits l0 && "
           "$D --jsonl beyond --logits l1 && cmp -n %u l0 l1 && ! cmp -s l0 l1", device(), topk * VOCAB * 4);
  must(command);
  e2e_remove(&model);
}

static void up_to_topk_the_bits_are_dense(void **state) {
  (void)state;
  check_dense("tests/oracle/small-v32.json", LIMITS, TOPK);
}

static void so_they_are_with_e4m3(void **state) {
  (void)state;
  check_dense("tests/oracle/small-v32-fp8.json", LIMITS "kv-cache-dtype: fp8_ds_mla\n", TOPK);
}

/* On a GPU index lists of that many heads have forms of their own, dense attention has another one. */
static void so_they_are_with_many_heads(void **state) {
  (void)state;
  check_dense(MANY_HEADS, LIMITS_ONE_CHUNK "kv-cache-dtype: fp8_ds_mla\n", 2 * TOPK);
}

/* === One receipt ======================================================================================================== */

/* Short ones, one that ends with topk, long ones of which two have their first 130 tokens in common. */
static const prompt PROMPTS[] = {{1, 7, 4}, {2, TOPK, 3}, {3, TOPK + 1, 2}, {4, 130, 3}, {4, 131, 4}};

/* They start with two pages each and need three. */
static const prompt CROWD[] = {{7, 124, 10}, {8, 125, 9}, {9, 126, 8}, {10, 127, 7}};

/* Also with pages for only a few of them at a time. */
static void check_cuts(const char *config, const char *deploy) {
  static const char *const CUTS[] = {"--batch 1 --no-prefix-cache", "--chunk 17 --poison --threads 1", "--direct --poison --chunk 5",
                                     "--batch 2 --chunk 64 --shuffle-pages 3 --poison --slot-offset 1"};
  char command[512];
  make(config, deploy);
  write_prompts("prompts", PROMPTS, ARRAY_LEN(PROMPTS));
  write_deploy("few", deploy, "kv-pages: 8\n");
  must("$R --jsonl prompts > whole 2>&1 && grep -q receipt whole");
  for (size_t i = 0; i < ARRAY_LEN(CUTS); i++) {
    snprintf(command, sizeof command, "$R --jsonl prompts %s > cut 2>&1 && $S whole cut", CUTS[i]);
    must(command);
  }
  must("$R --jsonl prompts --batch 1 --stats stats > cut 2>&1 && $S whole cut && grep -q '\"reused_tokens\": 128,' stats");
  write_prompts("crowd", CROWD, ARRAY_LEN(CROWD));
  must("$R --jsonl crowd > whole 2>&1 && $V plan model --config few -o plan && $R --jsonl crowd --poison --stats stats > cut 2>&1 && "
       "$S whole cut && grep -q '\"preemptions\": [1-9]' stats");
  e2e_remove(&model);
}

static void sparse(void **state) { (void)state, check_cuts("tests/oracle/small-v32.json", LIMITS); }
static void sparse_by_bytes(void **state) { (void)state, check_cuts("tests/oracle/small-v32.json", LIMITS "kv-cache-dtype: fp8_ds_mla\n"); }
static void shared_lists(void **state) { (void)state, check_cuts("tests/oracle/small-glm52-fp8.json", LIMITS); }
static void sparse_e4m3(void **state) { (void)state, check_cuts("tests/oracle/small-v32-fp8.json", LIMITS); }
static void dense_e4m3(void **state) { (void)state, check_cuts("tests/oracle/small-v3-fp8.json", LIMITS); }

/* Scores of such long sequences have room for 512 rows: the other rows of the step are a window of their own. */
static void pieces_of_scores(void **state) {
  static const prompt LONG = {5, 560, 2};
  (void)state;
  make("tests/oracle/small-glm5.json", LIMITS);
  write_prompts("prompts", &LONG, 1);
  must("sed -i 's/\"max_position_embeddings\": 1024/\"max_position_embeddings\": 131072/' model/config.json && "
       "printf 'max-num-seqs: 1\nmax-num-batched-tokens: 600\nmax-model-len: 131072\n' > deploy && $V plan model --config deploy -o plan");
  must("$V show plan --ops | grep -q 'index_topk, index_topk [0-9]*: rows 513'");
  must("$R --jsonl prompts > whole 2>&1 && $R --jsonl prompts --chunk 300 > cut 2>&1 && $S whole cut");
  must("T='--trace-values op=index_topk' && $R --jsonl prompts --trace t0 $T > traced 2>&1 && $S whole traced && "
       "$R --jsonl prompts --chunk 300 --trace t1 $T && $V diff t0 t1 && cmp t0 t1"); /* no list is reported twice */
  e2e_remove(&model);
}

/* === Audits ============================================================================================================= */

static void check_audit(const char *config, const char *deploy, uint32_t topk) {
  const prompt one = {6, topk + 30, 2};
  make(config, deploy);
  write_prompts("prompts", &one, 1);
  must("$R --jsonl prompts --trace t --trace-values all && $V audit t plan model --quiet | tee audit && grep -q ' 0 differ' audit && "
       "grep -q '100.00 % of' audit && grep -q '^index_topk' audit");
  must("$R --jsonl prompts --chunk 20 --poison --trace t1 && $V diff t t1");
  e2e_remove(&model);
}

static void audits_of_the_indexer(void **state) { (void)state, check_audit("tests/oracle/small-v32.json", LIMITS, TOPK); }
static void audits_of_many_heads(void **state) { (void)state, check_audit(MANY_HEADS, LIMITS_ONE_CHUNK, 2 * TOPK); }
static void audits_of_e4m3(void **state) { (void)state, check_audit("tests/oracle/small-glm52-fp8.json", LIMITS, TOPK); }

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(up_to_topk_the_bits_are_dense), cmocka_unit_test(so_they_are_with_e4m3),
      cmocka_unit_test(so_they_are_with_many_heads), cmocka_unit_test(sparse),
      cmocka_unit_test(sparse_by_bytes), cmocka_unit_test(shared_lists), cmocka_unit_test(sparse_e4m3), cmocka_unit_test(dense_e4m3),
      cmocka_unit_test(pieces_of_scores), cmocka_unit_test(audits_of_the_indexer), cmocka_unit_test(audits_of_e4m3),
      cmocka_unit_test(audits_of_many_heads)};
  e2e_begin(argc, argv);
  shell_begin(&model, SETUP);
  return cmocka_run_group_tests(tests, NULL, NULL);
}

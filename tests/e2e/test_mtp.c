/* test_mtp.c - plans whose drafts come from the model's prediction layer: nothing that is promised depends on them.
 *
 * Random models of every structure with such a layer: receipts, digests of the weights and numerics ids are those of a plan without drafts,
 * whatever is poisoned, traced or divided among ranks. The drafts of two such runs are equal, bit for bit, and none was made from memory
 * that was not written. Whether they are the right ones: tests/oracle/check_mtp.py, which calls this program with --drafts PLAN MODEL_DIR
 * MAX_TOKENS ID... and reads what it prints. Linked with --wrap. */
#include "tests/unit/unit.h"
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "e2e.h"
#include "tests/e2e/changed.h"
#include "engine/base/base.h"
#include "engine/exec/exec.h"
#include "kernels_src/num.h"

#define LIMITS "max-num-seqs: 6\nmax-num-batched-tokens: 48\nmax-model-len: 192\nkv_pages: 30\nchunk_tokens: 64\ngroup_chunks: 2\n" \
               "ladder: [1, 2, 6]\n"
#define MTP(n) "speculative-config: {method: mtp, num-speculative-tokens: " #n "}\n"
#define LAYER "\"num_nextn_predict_layers\": 1"
#ifdef __SANITIZE_ADDRESS__
#define REQUESTS 3u /* instrumented code is slow */
#else
#define REQUESTS 8u
#endif
#define PROMPT_MAX 130u
#define TOKENS_MAX 12u
#define PASSES 3u

typedef struct tally { /* of the drafts of a run */
  uint64_t count, nonfinite, sum; /* sum: of their bits, in any order */
} tally;

static e2e_requests requests;
static tally seen;
static exec_input inputs[2];
static bool prints;

exec_input __real_exec_fill(exec *self, uint32_t side);
exec_input __wrap_exec_fill(exec *self, uint32_t side);
exec_results __real_exec_wait(exec *self, uint32_t side);
exec_results __wrap_exec_wait(exec *self, uint32_t side);

exec_input __wrap_exec_fill(exec *self, uint32_t side) {
  inputs[side] = __real_exec_fill(self, side);
  return inputs[side];
}

static void see_draft(const exec_results *r, const exec_input *in, uint32_t passes, uint32_t entry) {
  const uint32_t position = in->position[in->logit_row[in->drafts[entry].first]];
  if (prints) printf("{\"position\": %u, \"drafts\": [", position);
  for (uint32_t pass = 0; pass < passes; pass++) {
    const sample_result *d = &r->draft[(size_t)pass * r->draft_stride + entry];
    const uint64_t words[] = {(uint32_t)d->token, num_bits(d->logprob), num_bits(d->logit), d->rank, position, pass};
    uint64_t own = 0;
    for (uint32_t i = 0; i < ARRAY_LEN(words); i++) own = (own + words[i]) * UINT64_C(0x9e3779b97f4a7c15) ^ own >> 29;
    seen.count++;
    seen.nonfinite += d->nonfinite;
    seen.sum += own;
    if (prints) printf("%s[%d, %.9g, %.9g]", pass ? ", " : "", d->token, (double)d->logit, (double)d->logprob);
  }
  if (prints) printf("]}\n");
}

static uint32_t passes_of_plan;

exec_results __wrap_exec_wait(exec *self, uint32_t side) {
  const exec_results r = __real_exec_wait(self, side);
  const exec_input *in = &inputs[side];
  for (uint32_t i = 0; r.draft && i < in->head[STEP_DRAFTS].token_count; i++) see_draft(&r, in, passes_of_plan, i);
  return r;
}

/* === Runs ================================================================================================================= */

/* Drafts are made and not used, so that every run makes the same ones: how many a step checks depends on times. */
static digest run(const verbatim_config *config, tally *drafts) {
  verbatim_config c = *config;
  c.no_drafts = true;
  seen = (tally){0};
  const digest receipt = e2e_run(&c, &requests, 0, requests.count);
  *drafts = seen;
  return receipt;
}

static void describe(const e2e_model *model, const char *plan_path, uint8_t ids[2][16]) {
  verbatim_config config = e2e_config(model);
  verbatim *engine = NULL;
  config.plan_path = plan_path;
  assert_int_equal(verbatim_open(&engine, &config), 0);
  const verbatim_info info = verbatim_describe(engine);
  memcpy(ids[0], info.numerics_id, 16);
  memcpy(ids[1], info.weights_digest, 16);
  verbatim_close(engine);
}

#define EXPECT(what, expected, ...)                                                                                    \
  do {                                                                                                                 \
    verbatim_config c = e2e_config(&model);                                                                            \
    tally now;                                                                                                         \
    c.plan_path = plan_path;                                                                                                \
    __VA_ARGS__;                                                                                                       \
    const digest receipt_ = run(&c, &now);                                                                             \
    if (memcmp(receipt_.bytes, off.bytes, DIGEST_BYTES) != 0) fail_msg("%s: %s: another receipt", config_path, what);  \
    if (now.nonfinite) fail_msg("%s: %s: %llu drafts are of poison", config_path, what, (unsigned long long)now.nonfinite); \
    if ((expected).sum != now.sum || (expected).count != now.count) fail_msg("%s: %s: other drafts", config_path, what); \
  } while (0)

/* formats: of the deployment; ranks: 0, or as many besides one. */
static void check(const char *config_path, const char *changes, const char *formats, uint32_t ranks) {
  e2e_model model = {0};
  char plan_path[E2E_PATH_MAX], several[E2E_PATH_MAX], deploy[512];
  uint8_t ids[2][2][16];
  tally none, first, few;
  passes_of_plan = PASSES;
  snprintf(deploy, sizeof deploy, LIMITS "%s", formats);
  changed_make_model(&model, config_path, changes, deploy);
  snprintf(deploy, sizeof deploy, LIMITS MTP(3) "%s", formats);
  e2e_make_plan(&model, "mtp.plan", deploy, plan_path);
  describe(&model, model.plan_path, ids[0]);
  describe(&model, plan_path, ids[1]);
  assert_memory_equal(ids[0], ids[1], sizeof ids[0]);
  verbatim_config config = e2e_config(&model);
  const digest off = run(&config, &none);
  assert_int_equal(none.count, 0);
  config.plan_path = plan_path;
  run(&config, &first);
  assert_true(first.count > PASSES * requests.count * 3 && first.sum != 0);
  EXPECT("poison", first, c.poison = true, c.direct = true);
  config.max_active = 2, config.chunk_tokens = 11, config.no_prefix_cache = true;
  run(&config, &few);
  EXPECT("two at a time, poison", few, c.max_active = 2, c.chunk_tokens = 11, c.no_prefix_cache = c.poison = true, c.shuffle_pages = 3);
  if (ranks && e2e_device() == VERBATIM_DEVICE_CPU) {
    snprintf(deploy, sizeof deploy, LIMITS MTP(3) "%stensor-parallel-size: %u\n", formats, ranks);
    e2e_make_plan(&model, "ranks.plan", deploy, several);
    EXPECT("ranks", first, c.plan_path = several, c.poison = true);
  }
  e2e_remove(&model);
}

#define FP8_CACHE "kv-cache-dtype: fp8_ds_mla\nexpand-tokens: 192\n"
#define CASE(name, ...)                                \
  static void name(void **state) {                     \
    (void)state;                                       \
    check(__VA_ARGS__);                                \
  }
#define SIX_HEADS "\"num_attention_heads\": 6, \"num_key_value_heads\": 6, \"hidden_size\": 192"
CASE(v3, "small-v3.json", "{" LAYER ", " SIX_HEADS "}", "", 3)
CASE(v3_fp8, "small-v3-fp8.json", "{" LAYER "}", FP8_CACHE, 2)
CASE(v32, "small-v32.json", "{" LAYER "}", FP8_CACHE, 0)
CASE(v32_fp8, "small-v32-fp8.json", "{" LAYER ", \"hidden_size\": 512, \"moe_intermediate_size\": 512}", "", 2)
CASE(glm, "small-glm4-moe-lite.json", "{\"num_nextn_predict_layers\": 2}", "", 2)
CASE(shared_lists, "small-glm52-fp8.json", "{" LAYER "}", "", 0)
CASE(dense, "small-v3.json", "{" LAYER ", \"n_routed_experts\": null}", "", 0)

/* === Traces =============================================================================================================== */

static void no_draft_is_traced(void **state) {
  (void)state;
  e2e_model model = {0};
  char output[4096], plan_path[E2E_PATH_MAX];
  changed_make_model(&model, "small-v3.json", "{" LAYER "}", LIMITS);
  e2e_make_plan(&model, "mtp", LIMITS MTP(2), plan_path);
  FILE *file = e2e_open(&model, "prompts", "w");
  fprintf(file, "{\"prompt_ids\": [5, 9, 17, 300, 41], \"max_tokens\": 6}\n{\"prompt_ids\": [8, 88], \"max_tokens\": 4}\n");
  fclose(file);
  int code = e2e_shell(&model, "R='model --ids --quiet --device cpu --ignore-eos --jsonl prompts' && ",
                       "mv *.plan plan; $V run plan $R --trace t0 --trace-values all && $V run mtp $R --trace t1 --trace-values all && "
                       "$V diff t0 t1 && cmp t0 t1 && $V audit t0 mtp model --quiet > audit && grep -q ' 0 differ' audit && "
                       "$V audit t1 plan model --quiet > audit && grep -q ' 0 differ' audit", output, sizeof output);
  if (code != 0) fail_msg("exit code %d: %s", code, output);
  e2e_remove(&model);
}

/* === The shipped layer ==================================================================================================== */

/* Share of the first guesses that were right; 0 if there were none. */
static double first_share(const e2e_model *model, const char *stats) {
  FILE *file = e2e_open(model, stats, "r");
  json_t *all = json_loadf(file, 0, NULL), *drafts = json_object_get(json_object_get(all, "steps"), "drafts");
  fclose(file);
  const double right = json_number_value(json_array_get(json_object_get(drafts, "accepted_by_place"), 0));
  const double count = json_number_value(json_object_get(drafts, "count"));
  json_decref(all);
  return count > 0 ? right / count : 0;
}

/* A drafter that is broken changes no bit, so it must show as a figure. Here the norm before the head, last in the file, is zeroed. */
static void the_shipped_layer_is_often_right(void **state) {
  (void)state;
  e2e_model model = {0};
  char output[4096];
  changed_make_model(&model, "small-v3.json", "{}", LIMITS);
  int code = e2e_shell(&model, "M=$TINY-mtp && R='--quiet --device cpu --max-tokens 24 --jsonl prompts --receipt' && ",
                       "$V plan $M --config $M/deploy.yaml -o p --quiet && head -80 $TINY/items.jsonl > prompts && "
                       "$V run p $M $R r0 --no-drafts > o0 && $V run p $M $R r1 --stats s1 > o1 && cmp o0 o1 && "
                       "cp -rL $M broken && head -c -384 $M/model-mtp.safetensors > m && head -c 384 /dev/zero >> m && "
                       "cat m > broken/model-mtp.safetensors && $V run p broken $R r2 --stats s2 > o2 && cmp o0 o2 && "
                       "tail -1 r0 > d0 && tail -1 r1 | cmp - d0 && tail -1 r2 | cmp - d0", output, sizeof output);
  if (code != 0) fail_msg("exit code %d: %s", code, output);
  const double sound = first_share(&model, "s1"), broken = first_share(&model, "s2");
  print_message("right first guesses: %.3f; of a broken layer: %.3f\n", sound, broken);
  assert_true(sound > 0.6); /* those behind an answer's end are not right */
  assert_true(broken < 0.1);
  e2e_remove(&model);
}

/* === Drafts of a request ================================================================================================== */

static int print_drafts(int argc, char **argv) {
  enum { IDS_MAX = 4096 };
  static int32_t ids[IDS_MAX];
  static verbatim_token tokens[IDS_MAX];
  verbatim *engine = NULL;
  const verbatim_config config = {.plan_path = argv[2], .model_dir = argv[3], .device = VERBATIM_DEVICE_CPU, .no_drafts = true};
  verbatim_request request = VERBATIM_REQUEST_DEFAULTS;
  plan p;
  bool busy = true;
  ASSERT(argc > 5 && argc - 5 <= IDS_MAX && atoi(argv[4]) <= IDS_MAX && plan_open(&p, argv[2]) == OK);
  passes_of_plan = p.header->limits.draft_tokens;
  plan_close(&p);
  for (int i = 5; i < argc; i++) ids[i - 5] = atoi(argv[i]);
  request.prompt = ids, request.prompt_count = (uint32_t)argc - 5, request.max_tokens = (uint32_t)atoi(argv[4]), request.tokens = tokens;
  request.ignore_eos = prints = true;
  if (verbatim_open(&engine, &config) != 0 || verbatim_submit(engine, &request) != 0) return 1;
  while (busy)
    if (verbatim_poll(engine, &busy) != 0) return 1;
  for (uint32_t i = 0; i < request.token_count; i++) printf("%s%d%s", i ? ", " : "{\"ids\": [", tokens[i].id,
                                                            i + 1 == request.token_count ? "]}\n" : "");
  verbatim_close(engine);
  return 0;
}

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(v3), cmocka_unit_test(v3_fp8), cmocka_unit_test(v32), cmocka_unit_test(v32_fp8),
                                     cmocka_unit_test(glm), cmocka_unit_test(shared_lists), cmocka_unit_test(dense),
                                     cmocka_unit_test(no_draft_is_traced), cmocka_unit_test(the_shipped_layer_is_often_right)};
  if (argc > 1 && strcmp(argv[1], "--drafts") == 0) return print_drafts(argc, argv);
  e2e_begin(argc, argv);
  e2e_requests_make(&requests, REQUESTS, 384, PROMPT_MAX, TOKENS_MAX);
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  e2e_requests_free(&requests);
  return failed;
}

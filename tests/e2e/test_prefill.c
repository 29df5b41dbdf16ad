/* test_prefill.c - parity fast-prefill: one receipt however contexts are split into pieces and prompts into steps, whichever requests share
 * the batch, with rows of the prefix cache and after preemptions, on either backend; it is close to the receipt of strict, but not equal.
 * The same with e4m3 weights and coded caches, with drafts and on two ranks.
 *
 * Wraps the ops of the form to count their inputs, and to plant faults: a piece that starts from an empty state, rows of another context,
 * or of another piece. Each is found. */
#include "tests/unit/unit.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "e2e.h"
#include "engine/base/base.h"
#include "engine/cpu/cpu.h"

#ifdef __SANITIZE_ADDRESS__
#define REQUESTS 6u /* instrumented code is slow */
#else
#define REQUESTS 20u
#endif
#define PROMPT_MAX 180u
#define LONG 1u /* the request with a prompt of LONG_TOKENS */
#define LONG_TOKENS 330u
#define TOKENS_MAX 70u

#define FAST "chunk_tokens: 64\ngroup_chunks: 2\nparity: fast-prefill\n"
#define LIMITS "max-num-seqs: 16\nmax-num-batched-tokens: 256\nmax-model-len: 448\nkv_pages: 120\nladder: [1, 2, 4, 8, 16]\n"
#define TIGHT "max-num-seqs: 5\nmax-num-batched-tokens: 33\nmax-model-len: 512\nkv_pages: 11\n" \
              "ladder: [3]\n" /* one of full length, and a bit more */

enum fault { SOUND, PIECE_BEGINS_ANEW, ANOTHER_CONTEXT, ANOTHER_PIECE };
static enum fault planted, fault;
static uint32_t pieces_most, contexts_most, tiles_seen, widened_most;
static e2e_model model;
static e2e_requests requests;

int __real_verbatim_open(verbatim **engine, const verbatim_config *config);
int __wrap_verbatim_open(verbatim **engine, const verbatim_config *config);
void __real_cpu_mla_expand(const mla_expand_args *args, cpu_pool *pool);
void __wrap_cpu_mla_expand(const mla_expand_args *args, cpu_pool *pool);
void __real_cpu_mla_prefill(const mla_prefill_args *args, cpu_pool *pool);
void __wrap_cpu_mla_prefill(const mla_prefill_args *args, cpu_pool *pool);
void __real_cpu_kv_widen(const kv_widen_args *args, cpu_pool *pool);
void __wrap_cpu_kv_widen(const kv_widen_args *args, cpu_pool *pool);

/* Off during start-up, because the self-check would notice it. */
int __wrap_verbatim_open(verbatim **engine, const verbatim_config *config) {
  fault = SOUND;
  int code = __real_verbatim_open(engine, config);
  fault = planted;
  return code;
}

void __wrap_cpu_mla_expand(const mla_expand_args *args, cpu_pool *pool) {
  mla_expand_args changed = *args;
  step_context one[2] = {args->contexts[0], args->contexts[0]};
  pieces_most = max_u32(pieces_most, args->piece + 1);
  contexts_most = max_u32(contexts_most, args->step->seq_count);
  if (fault == ANOTHER_CONTEXT && args->step->seq_count == 2) {
    one[1] = args->contexts[1];
    one[1].seq = one[0].seq;
    changed.contexts = one;
  }
  __real_cpu_mla_expand(&changed, pool);
}

void __wrap_cpu_mla_prefill(const mla_prefill_args *args, cpu_pool *pool) {
  uint64_t row = (uint64_t)args->heads * (args->v_dim + 2);
  tiles_seen += args->step->tile_count;
  if (fault == PIECE_BEGINS_ANEW && args->piece == 1)
    for (uint32_t t = 0; t < args->step->tile_count; t++)
      for (uint32_t i = 0; i < args->tiles[t].count; i++)
        for (uint32_t h = 0; h < args->heads; h++)
          args->state[(args->tiles[t].row + i) * row + h * (args->v_dim + 2) + args->v_dim] = -0x1p60f;
  __real_cpu_mla_prefill(args, pool);
}

void __wrap_cpu_kv_widen(const kv_widen_args *args, cpu_pool *pool) {
  kv_widen_args changed = *args;
  widened_most = max_u32(widened_most, args->piece + 1);
  if (fault == ANOTHER_PIECE && args->piece == 2) changed.piece = 1;
  __real_cpu_kv_widen(&changed, pool);
}

/* === Receipts =============================================================================================================== */

#define EXPECT(what, ...)                                                       \
  do {                                                                          \
    verbatim_config c = e2e_config(&model);                                          \
    __VA_ARGS__;                                                                \
    if (!e2e_is_same(&c, &requests, alone)) fail_msg("%s: another receipt", what);             \
  } while (0)

/* is_every: every way; otherwise those in which another size of heads could matter, which the ops' loops over columns read alone. */
static void check_all(const char *config_path, bool is_every) {
  static const char *const sizes[] = {"64", "128", "192", "65536"};
  char plan[E2E_PATH_MAX], tight[E2E_PATH_MAX], deploy[512];
  e2e_make_model(&model, config_path, LIMITS FAST);
  verbatim_config one = e2e_config(&model);
  one.max_active = 1;
  digest alone = e2e_run(&one, &requests, 0, requests.count);
  pieces_most = contexts_most = tiles_seen = 0;
  for (size_t i = 0; i < (is_every ? ARRAY_LEN(sizes) : 1); i++) {
    snprintf(deploy, sizeof deploy, LIMITS FAST "expand_tokens: %s\n", sizes[i]);
    e2e_make_plan(&model, "pieces", deploy, plan);
    if (i % 3 == 1) EXPECT(sizes[i], c.plan_path = plan);
    EXPECT("poison, cuts of 100 tokens", c.plan_path = plan, c.poison = true, c.chunk_tokens = 100, c.shuffle_pages = 5);
  }
  e2e_make_plan(&model, "tight", TIGHT FAST "expand_tokens: 128\n", tight);
  EXPECT("few pages, preemptions, poison", c.plan_path = tight, c.poison = true, c.shuffle_pages = 3);
  if (is_every) EXPECT("cuts of 1 token", c.chunk_tokens = 1);
  EXPECT("cuts of 65 tokens, no cache, direct", c.chunk_tokens = 65, c.no_prefix_cache = c.direct = c.poison = true, c.threads = 3);
  if (e2e_device() != VERBATIM_DEVICE_CPU) EXPECT("CPU", c.device = VERBATIM_DEVICE_CPU);
  if (e2e_device() == VERBATIM_DEVICE_CPU) assert_true(tiles_seen > 0 && pieces_most >= 6 && contexts_most >= 2);
  e2e_remove(&model);
}

static void v3(void **state) { (void)state, check_all("tests/oracle/small-v3.json", true); }
static void minicpm3(void **state) { (void)state, check_all("tests/oracle/small-minicpm3.json", false); }
static void glm4(void **state) { (void)state, check_all("tests/oracle/small-glm4-moe-lite.json", false); }

static void planted_faults_are_found(void **state) {
  (void)state;
  static const enum fault faults[] = {PIECE_BEGINS_ANEW, ANOTHER_CONTEXT};
  if (e2e_device() != VERBATIM_DEVICE_CPU) skip(); /* they are planted in the CPU's ops */
  e2e_make_model(&model, "tests/oracle/small-v3.json", LIMITS FAST "expand_tokens: 64\n");
  verbatim_config c = e2e_config(&model);
  digest sound = e2e_run(&c, &requests, 0, requests.count);
  for (size_t i = 0; i < ARRAY_LEN(faults); i++) {
    planted = faults[i];
    if (e2e_is_same(&c, &requests, sound)) fail_msg("fault %d was not found", (int)planted);
  }
  planted = SOUND;
  assert_true(e2e_is_same(&c, &requests, sound));
  e2e_remove(&model);
}

/* === e4m3 weights, coded caches ============================================================================================= */

#define CODED "tests/oracle/small-v3-fp8.json" /* three layers */
#define CODED_REQUESTS 3u

/* The scale of each layer's rows, which a cache of fp8 needs. */
static void write_scales(void) {
  static const float scales[] = {0x1.2p-7f, 0x1.8p-7f, 0x1p-7f};
  char head[512] = "{", path[E2E_PATH_MAX + 32];
  size_t used = 1;
  for (uint32_t i = 0; i < ARRAY_LEN(scales); i++)
    used += (size_t)snprintf(head + used, sizeof head - used, "%s\"model.layers.%u.self_attn.k_scale\":{\"dtype\":\"F32\","
                             "\"shape\":[1],\"data_offsets\":[%u,%u]}", i ? "," : "", i, 4 * i, 4 * i + 4);
  head[used++] = '}';
  while (used % 8) head[used++] = ' ';
  const uint64_t bytes = used;
  snprintf(path, sizeof path, "%s/kv_scales.safetensors", model.model_dir);
  FILE *file = fopen(path, "wb");
  assert_non_null(file);
  assert_true(fwrite(&bytes, sizeof bytes, 1, file) == 1 && fwrite(head, used, 1, file) == 1);
  assert_true(fwrite(scales, sizeof scales, 1, file) == 1);
  fclose(file);
}

/* Alone, against small pieces with drafts and preemptions, and larger ones in direct launches, on the CPU on two ranks; and a fault. */
static void check_coded(const char *cache) {
  const char *const more[] = {TIGHT "expand_tokens: 64\nspeculative-config: {method: ngram, num-speculative-tokens: 3}\n",
                              e2e_device() == VERBATIM_DEVICE_CPU ? LIMITS "expand_tokens: 128\ntensor-parallel-size: 2\n"
                                                                  : LIMITS "expand_tokens: 128\n"};
  char plan[E2E_PATH_MAX], deploy[512];
  const bool is_coded = strcmp(cache, "bf16") != 0;
  e2e_requests few = requests;
  few.count = CODED_REQUESTS;
  snprintf(deploy, sizeof deploy, LIMITS FAST "kv-cache-dtype: %s\n", cache);
  e2e_make_model(&model, CODED, deploy);
  if (strcmp(cache, "fp8") == 0) write_scales();
  verbatim_config c = e2e_config(&model);
  c.max_active = 1;
  digest alone = e2e_run(&c, &few, 0, few.count);
  c.max_active = 0, c.plan_path = plan, c.poison = true, c.shuffle_pages = 5;
  widened_most = 0;
  for (size_t i = 0; i < ARRAY_LEN(more); i++) {
    snprintf(deploy, sizeof deploy, FAST "kv-cache-dtype: %s\n%s", cache, more[i]);
    e2e_make_plan(&model, "more", deploy, plan);
    c.chunk_tokens = i ? 100 : 0, c.direct = i;
    if (!e2e_is_same(&c, &few, alone)) fail_msg("%s, %s: another receipt", cache, more[i]);
  }
  if (e2e_device() == VERBATIM_DEVICE_CPU && is_coded) {
    assert_true(widened_most >= 6);
    planted = ANOTHER_PIECE;
    assert_false(e2e_is_same(&c, &few, alone));
    planted = SOUND;
  }
  assert_true(is_coded || widened_most == 0);
  e2e_remove(&model);
}

static void e4m3_weights(void **state) { (void)state, check_coded("bf16"); }
static void a_scale_of_the_layer(void **state) { (void)state, check_coded("fp8"); }
static void scales_of_each_row(void **state) { (void)state, check_coded("fp8_ds_mla"); }

/* === Strict and fast ======================================================================================================== */

/* The log-probabilities of the long prompt's tokens under both parities: different bits, and nearly the same numbers. */
static void near_to_strict_and_not_it(void **state) {
  (void)state;
  static float scores[LONG_TOKENS];
  char strict[E2E_PATH_MAX];
  verbatim_request *r = &requests.list[LONG];
  double largest = 0;
  uint32_t different = 0;
  e2e_make_model(&model, "tests/oracle/small-v3.json", LIMITS FAST);
  e2e_make_plan(&model, "strict", LIMITS "chunk_tokens: 64\ngroup_chunks: 2\n", strict);
  verbatim_config c = e2e_config(&model);
  (void)e2e_run(&c, &requests, LONG, 1);
  for (uint32_t i = 0; i + 1 < LONG_TOKENS; i++) scores[i] = r->scores[i].logprob;
  c.plan_path = strict;
  (void)e2e_run(&c, &requests, LONG, 1);
  for (uint32_t i = 0; i + 1 < LONG_TOKENS; i++) {
    double difference = fabs((double)scores[i] - (double)r->scores[i].logprob);
    different += difference != 0;
    largest = difference > largest ? difference : largest;
  }
  print_message("    %u of %u log-probabilities differ, by at most %g\n", different, LONG_TOKENS - 1, largest);
  assert_true(different > LONG_TOKENS / 2 && largest < 0.1);
  e2e_remove(&model);
}

/* A generated token is not computed like the same token in a prompt, and no page of one is used for the other: the next turn of a
 * conversation has the receipt that it has alone, even after the turn whose answer it repeats. */
static void the_next_turn_is_its_own(void **state) {
  (void)state;
  static int32_t ids[LONG_TOKENS + TOKENS_MAX];
  static verbatim_token tokens[2][8];
  verbatim_request *first = &requests.list[LONG], next = VERBATIM_REQUEST_DEFAULTS;
  verbatim *engine;
  e2e_make_model(&model, "tests/oracle/small-v3.json", LIMITS FAST);
  verbatim_config c = e2e_config(&model);
  for (uint32_t run = 0; run < 2; run++) {
    bool busy = true;
    assert_int_equal(verbatim_open(&engine, &c), 0);
    if (run == 0) {
      assert_int_equal(verbatim_submit(engine, first), 0);
      while (busy) assert_int_equal(verbatim_poll(engine, &busy), 0);
      for (uint32_t i = 0; i < LONG_TOKENS + TOKENS_MAX; i++)
        ids[i] = i < LONG_TOKENS ? first->prompt[i] : first->tokens[i - LONG_TOKENS].id;
    }
    next.prompt = ids, next.prompt_count = LONG_TOKENS + TOKENS_MAX, next.max_tokens = 8, next.ignore_eos = true, next.tokens = tokens[run];
    assert_int_equal(verbatim_submit(engine, &next), 0);
    for (busy = true; busy;) assert_int_equal(verbatim_poll(engine, &busy), 0);
    uint64_t reused = verbatim_count(engine).reused_tokens;
    assert_int_equal(reused, run == 0 ? LONG_TOKENS / 64 * 64 : 0); /* pages of the prompt, none with generated tokens */
    verbatim_close(engine);
  }
  assert_memory_equal(tokens[0], tokens[1], sizeof tokens[0]);
  e2e_remove(&model);
}

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(v3),   cmocka_unit_test(minicpm3), cmocka_unit_test(glm4),
                                     cmocka_unit_test(e4m3_weights), cmocka_unit_test(a_scale_of_the_layer),
                                     cmocka_unit_test(scales_of_each_row),
                                     cmocka_unit_test(planted_faults_are_found), cmocka_unit_test(near_to_strict_and_not_it),
                                     cmocka_unit_test(the_next_turn_is_its_own)};
  e2e_begin(argc, argv);
  e2e_requests_make_long(&requests, REQUESTS, 384, LONG, LONG_TOKENS, PROMPT_MAX, TOKENS_MAX);
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  e2e_requests_free(&requests);
  return failed;
}

/* test_widen.c - both ways of reading KV caches of formats other than bf16 for prompts: rows in the cache's format, and rows that are
 * dequantized once per step. They give one receipt, whichever requests of a step use which way: with room for all contexts, for some, for
 * none; with splits of every size, poison, reused prefixes, preemptions; on either backend. KV rows, and everything else in a trace, are
 * equal too, and an audit of one way finds nothing in the other.
 *
 * Wraps kv_widen to count its inputs and to plant faults, each of which is found. */
#include "tests/unit/unit.h"
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "shell.h"
#include "engine/base/base.h"
#include "engine/cpu/cpu.h"

#ifdef __SANITIZE_ADDRESS__
#define REQUESTS 6u /* instrumented code is slow */
#else
#define REQUESTS 10u
#endif
#define REQUESTS_OF_HEADS 4u
#define PROMPT_MAX 180u
#define LONG 1u /* the request with a prompt of LONG_TOKENS */
#define LONG_TOKENS 330u
#define TOKENS_MAX 25u

#define LIMITS "max-num-seqs: 8\nmax-num-batched-tokens: 256\nmax-model-len: 448\nmax_logit_rows: 128\nkv_pages: 60\n" \
               "chunk_tokens: 64\ngroup_chunks: 2\n"
#define TIGHT "max-num-seqs: 4\nmax-num-batched-tokens: 60\nmax-model-len: 448\nkv_pages: 10\nladder: [3]\n" \
              "chunk_tokens: 64\ngroup_chunks: 2\n"
#define MIXED "kv-cache-dtype: fp8_ds_mla\n"

enum fault { SOUND, A_ROW_IS_LEFT_OUT, A_LAST_PLACE_IS_WRONG, ANOTHER_CONTEXT, ANOTHER_PAGE };
static enum fault planted, fault;
/* The last two: steps in which other rows, or just one, used the other way. */
static uint32_t launches, contexts_most, beside, alone_beside;
static e2e_model model;
static e2e_requests requests;

int __real_verbatim_open(verbatim **engine, const verbatim_config *config);
int __wrap_verbatim_open(verbatim **engine, const verbatim_config *config);
void __real_cpu_kv_widen(const kv_widen_args *args, cpu_pool *pool);
void __wrap_cpu_kv_widen(const kv_widen_args *args, cpu_pool *pool);

/* Off during start-up, because the self-check would notice it. */
int __wrap_verbatim_open(verbatim **engine, const verbatim_config *config) {
  fault = SOUND;
  int code = __real_verbatim_open(engine, config);
  fault = planted;
  launches = contexts_most = alone_beside = beside = 0; /* without the launches of the self-check */
  return code;
}

void __wrap_cpu_kv_widen(const kv_widen_args *args, cpu_pool *pool) {
  kv_widen_args changed = *args;
  step_context other[2] = {args->contexts[0], args->contexts[0]};
  const step_in *head = args->step - STEP_PROMPT;
  launches++;
  beside += head[STEP_MADE].token_count > 0;
  alone_beside += head[STEP_MADE].token_count == 1;
  contexts_most = max_u32(contexts_most, args->step->seq_count);
  if (fault == ANOTHER_CONTEXT && args->step->seq_count == 2 && args->contexts[1].tokens <= args->contexts[0].tokens) {
    other[1] = args->contexts[1];
    other[1].seq = other[0].seq;
    changed.contexts = other;
  }
  __real_cpu_kv_widen(&changed, pool);
  const uint32_t columns = args->kv_lora_rank + args->rope_dim;
  if (fault == A_ROW_IS_LEFT_OUT) memset(args->y + 5 * columns, 0, columns * sizeof *args->y);
  if (fault == A_LAST_PLACE_IS_WRONG) args->y[columns + 3] ^= 1; /* of position 1 of the first context */
  if (fault == ANOTHER_PAGE && args->contexts[0].tokens > PAGE_TOKENS) args->table[1] = 0;
}

/* === Receipts =============================================================================================================== */

#define EXPECT(what, ...)                                                       \
  do {                                                                          \
    verbatim_config c = e2e_config(&model);                                          \
    __VA_ARGS__;                                                                \
    if (!e2e_is_same(&c, &requests, alone)) fail_msg("%s: another receipt", what);             \
    seen[0] += launches, seen[1] += beside, seen[2] += alone_beside;            \
    seen[3] = max_u32(seen[3], contexts_most);                                  \
  } while (0)

static void make_plan(const char *name, const char *limits, const char *formats, uint32_t tokens, char path[E2E_PATH_MAX]) {
  char deploy[512];
  snprintf(deploy, sizeof deploy, "%s%sexpand_tokens: %u\n", limits, formats, tokens);
  e2e_make_plan(&model, name, deploy, path);
}

/* The receipt of rows in the cache's format, one request at a time, equals that of all. contexts: that some step dequantizes at least.
 * is_every: every way; otherwise room for all contexts, and few pages. */
static void check_all(const char *config_path, const char *formats, uint32_t contexts, bool is_every) {
  static const uint32_t sizes[] = {64, 256, 65536}; /* for short contexts, for some, for all */
  uint32_t seen[4] = {0};
  char plan[E2E_PATH_MAX], tight[E2E_PATH_MAX], deploy[512];
  snprintf(deploy, sizeof deploy, LIMITS "%s", formats);
  e2e_make_model(&model, config_path, deploy);
  verbatim_config one = e2e_config(&model);
  one.max_active = 1;
  digest alone = e2e_run(&one, &requests, 0, requests.count);
  assert_int_equal(launches, 0); /* of up to 32 heads, unless it is requested */
  for (size_t i = is_every ? 0 : 2; i < ARRAY_LEN(sizes); i++) {
    make_plan("widened", LIMITS, formats, sizes[i], plan);
    if (i == 1 && is_every) EXPECT("widened", c.plan_path = plan);
    EXPECT("poison, cuts of 100 tokens", c.plan_path = plan, c.poison = true, c.chunk_tokens = 100, c.shuffle_pages = 5);
  }
  if (is_every) EXPECT("one at a time, no cache", c.plan_path = plan, c.max_active = 1, c.no_prefix_cache = true);
  EXPECT("two at a time", c.plan_path = plan, c.max_active = 2, c.poison = true);
  if (is_every) EXPECT("cuts of 17 tokens, direct", c.plan_path = plan, c.chunk_tokens = 17, c.direct = true, c.poison = true);
  make_plan("tight", TIGHT, formats, 448, tight);
  EXPECT("few pages, preemptions", c.plan_path = tight, c.poison = true, c.shuffle_pages = 3, c.threads = 3);
  if (e2e_device() != VERBATIM_DEVICE_CPU) EXPECT("CPU", c.plan_path = plan, c.device = VERBATIM_DEVICE_CPU);
  if (e2e_device() == VERBATIM_DEVICE_CPU) {
    print_message("    %u launches, %u beside other rows, %u beside one; %u contexts\n", seen[0], seen[1], seen[2], seen[3]);
    assert_true(seen[0] >= (is_every ? 30 : 15) && seen[1] > 5 && seen[2] > 0 && seen[3] >= contexts);
  }
  e2e_remove(&model);
}

static void sparse(void **state) { (void)state, check_all("tests/oracle/small-v32.json", MIXED "kv-cache-scales: float32\n", 4, true); }
static void shared_lists(void **state) { (void)state, check_all("tests/oracle/small-glm52-fp8.json", MIXED, 4, false); }
static void dense(void **state) { (void)state, check_all("tests/oracle/small-v3-fp8.json", MIXED, 1, false); }

/* Rows are dequantized one by one, and the attention reads 64 rows at a time: index lists, or all tokens. */
static void check_heads(const char *config_path, uint32_t heads) {
  char path[] = "/tmp/verbatim-widen-XXXXXX", few[E2E_PATH_MAX];
  json_t *config = json_load_file(config_path, 0, NULL);
  FILE *file = fdopen(mkstemp(path), "w");
  assert_true(config && file);
  json_object_set_new(config, "num_attention_heads", json_integer(heads));
  json_object_set_new(config, "num_key_value_heads", json_integer(heads));
  json_object_set_new(config, "num_hidden_layers", json_integer(2));
  assert_int_equal(json_dumpf(config, file, 0), 0);
  fclose(file);
  json_decref(config);
  e2e_make_model(&model, path, LIMITS MIXED);
  unlink(path);
  make_plan("few", LIMITS, MIXED, 64, few);
  verbatim_config c = e2e_config(&model);
  digest many = e2e_run(&c, &requests, 0, REQUESTS_OF_HEADS);
  const uint32_t widened = launches;
  c.plan_path = few;
  digest hardly = e2e_run(&c, &requests, 0, REQUESTS_OF_HEADS);
  assert_memory_equal(many.bytes, hardly.bytes, DIGEST_BYTES);
  if (e2e_device() == VERBATIM_DEVICE_CPU) assert_true(widened > launches);
  e2e_remove(&model);
}

static void many_heads(void **state) {
  (void)state;
  check_heads("tests/oracle/small-v32.json", 72);
  check_heads("tests/oracle/small-v3-fp8.json", 40);
}

/* === Faults ================================================================================================================= */

static void planted_faults_are_found(void **state) {
  (void)state;
  char plan[E2E_PATH_MAX];
  if (e2e_device() != VERBATIM_DEVICE_CPU) skip(); /* they are planted in the CPU's op */
  e2e_make_model(&model, "tests/oracle/small-v32.json", LIMITS MIXED);
  make_plan("widened", LIMITS, MIXED, 65536, plan);
  verbatim_config c = e2e_config(&model);
  digest sound = e2e_run(&c, &requests, 0, requests.count);
  c.plan_path = plan;
  c.poison = true;
  assert_true(e2e_is_same(&c, &requests, sound));
  for (planted = A_ROW_IS_LEFT_OUT; planted <= ANOTHER_PAGE; planted++)
    if (e2e_is_same(&c, &requests, sound)) fail_msg("fault %d was not found", (int)planted);
  planted = SOUND;
  e2e_remove(&model);
}

/* === Traces and audits ====================================================================================================== */

/* Every point of every token, including KV rows and keys; and a fault that both ways locate at the same op. */
static void traces_are_equal_and_audits_pass(void **state) {
  (void)state;
  char plan[E2E_PATH_MAX];
  e2e_make_model(&model, "tests/oracle/small-v32.json", LIMITS MIXED);
  make_plan("widened", LIMITS, MIXED, 65536, plan);
  FILE *file = e2e_open(&model, "prompts", "w");
  for (uint32_t i = 0; i < 3; i++) {
    fprintf(file, "{\"prompt_ids\": [%u", 3 + i);
    for (uint32_t j = 0; j < 90 + 50 * i; j++) fprintf(file, ",%u", 2 + (j * 37 + i * 101) % 380);
    fprintf(file, "], \"max_tokens\": 4}\n");
  }
  fclose(file);
  must("$V run plan $R --trace t0 --trace-values all && $V run widened $R --trace t1 --trace-values all && $V diff t0 t1 && "
       "$V audit t1 widened model --quiet > audit && grep -q ' 0 differ' audit && grep -q '100.00 % of' audit && "
       "$V audit t0 widened model --quiet > audit && grep -q ' 0 differ' audit && $V audit t1 plan model --quiet > audit && "
       "grep -q ' 0 differ' audit");
  must("$V run widened $R --chunk 40 --poison --trace t2 --trace-values op=v_up && $V diff t0 t2"); /* no value is reported twice */
  must("$V show widened | grep '^prompts' && ! $V show plan | grep '^prompts' && "
       "test \"$($V show plan | grep '^numerics id')\" = \"$($V show widened | grep '^numerics id')\"");
  e2e_remove(&model);
}

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(sparse),
                                     cmocka_unit_test(shared_lists),
                                     cmocka_unit_test(dense),
                                     cmocka_unit_test(many_heads),
                                     cmocka_unit_test(planted_faults_are_found),
                                     cmocka_unit_test(traces_are_equal_and_audits_pass)};
  e2e_begin(argc, argv);
  shell_begin(&model, "R=\"model --ids --quiet $D --ignore-eos --jsonl prompts\" && ");
  e2e_requests_make_long(&requests, REQUESTS, 384, LONG, LONG_TOKENS, PROMPT_MAX, TOKENS_MAX);
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  e2e_requests_free(&requests);
  return failed;
}

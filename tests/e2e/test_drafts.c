/* test_drafts.c - drafts change no bit: with drafters that are right, wrong, half right, that guess stop ids, ids that do not exist or
 * tokens whose rows are NaN, with prompt lookup and the prediction layer, every request has the receipt line of a run without drafts.
 *
 * Linked with --wrap for the verdict, sampling, penalties, KV rows and the prefix cache. Controls: a draft accepted one too far, random
 * numbers keyed by the step, penalties that see later drafts, a KV row that is not overwritten after a wrong draft, a page of the prefix
 * cache that is named before its rows are settled. */
#include "tests/unit/unit.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "e2e.h"
#include "engine/base/base.h"
#include "engine/cpu/cpu.h"
#include "engine/requests/drafts.h"
#include "engine/requests/schedule_pages.h"
#include "changed.h"
#include "plant.h"

#ifdef __SANITIZE_ADDRESS__
enum { COUNT = 10, MODELS_TRIED = 1 }; /* instrumented code is slow */
#else
enum { COUNT = 26, MODELS_TRIED = 5 };
#endif
enum { PLANS = 4, VOCAB = 384, PROMPT_MAX = 90, TOKENS_MAX = 24, ROWS_MOST = 512, SLOTS = 8, LAYERS = 8 };

static const char DEPLOY[] =
  "max-num-seqs: 8\nmax-num-batched-tokens: 96\nmax-model-len: 128\nkv_pages: 24\nmax_logit_rows: 40\nchunk_tokens: 64\n";
static const char TIGHT[] =
  "max-num-seqs: 5\nmax-num-batched-tokens: 33\nmax-model-len: 116\nkv_pages: 5\nmax_logit_rows: 9\nchunk_tokens: 64\n";
#define GROUPS "group_chunks: 2\n" /* of latent attention */
#define MTP "speculative-config: {method: mtp, num-speculative-tokens: 3}\n" /* of random numbers: nearly always wrong */
#define NGRAM "speculative-config: {method: ngram, num-speculative-tokens: 5, prompt-lookup-min: 2}\n"

static e2e_model model;
static e2e_requests requests;
static verbatim_token truth[COUNT][TOKENS_MAX]; /* of the run without drafts */
static uint32_t truth_count[COUNT];
static int32_t unused_id; /* of no prompt and no result */

/* === Planted faults ========================================================================================================= */

enum fault { SOUND, ACCEPTED_TOO_FAR, NUMBER_OF_STEP, LATER_TOKENS_PENALISED, STALE_ROW, NAMED_EARLY, NAN_SPREADS };
static enum fault planted, fault; /* the chosen fault; the active one */

static struct { /* positions that were written before, of each layer's rows by slot */
  const void *kv;
  uint32_t end[SLOTS];
} written[LAYERS];

int __real_verbatim_open(verbatim **engine, const verbatim_config *config);
int __wrap_verbatim_open(verbatim **engine, const verbatim_config *config);
bool __real_drafts_is_right(const verbatim_request *request, uint32_t position, int32_t draft);
bool __wrap_drafts_is_right(const verbatim_request *request, uint32_t position, int32_t draft);
void __real_cpu_sample(const sample_args *args, cpu_pool *pool);
void __wrap_cpu_sample(const sample_args *args, cpu_pool *pool);
void __real_cpu_adjust(const adjust_args *args, cpu_pool *pool);
void __wrap_cpu_adjust(const adjust_args *args, cpu_pool *pool);
void __real_cpu_qkv_rope(const qkv_rope_args *args, cpu_pool *pool);
void __wrap_cpu_qkv_rope(const qkv_rope_args *args, cpu_pool *pool);
void __real_schedule_pages_name(schedule_pages *self, sequence *s);
void __wrap_schedule_pages_name(schedule_pages *self, sequence *s);

/* Off during start-up, because the self-check would notice it. */
int __wrap_verbatim_open(verbatim **engine, const verbatim_config *config) {
  fault = SOUND;
  int code = __real_verbatim_open(engine, config);
  fault = planted;
  memset(written, 0, sizeof written);
  return code;
}

bool __wrap_drafts_is_right(const verbatim_request *request, uint32_t position, int32_t draft) {
  return fault == ACCEPTED_TOO_FAR || __real_drafts_is_right(request, position, draft);
}

/* Params as of the first or the last row of the same slot in the step. */
static const sample_param *moved(const step_in *step, const sample_param *param, bool to_last) {
  static sample_param params[ROWS_MOST];
  const uint32_t rows = step->logit_count;
  ASSERT(rows <= ROWS_MOST);
  memcpy(params, param, rows * sizeof *params);
  for (uint32_t i = 0; i < rows; i++)
    for (uint32_t k = 0; k < rows; k++) {
      const bool is_further = to_last ? param[k].position > params[i].position : param[k].position < params[i].position;
      const bool chooses = param[k].target < 0 && param[i].target < 0;
      if (param[k].slot == param[i].slot && chooses && is_further) params[i].position = param[k].position;
    }
  return params;
}

void __wrap_cpu_sample(const sample_args *args, cpu_pool *pool) {
  sample_args a = *args;
  if (fault == NUMBER_OF_STEP) a.param = moved(args->step, args->param, false);
  __real_cpu_sample(&a, pool);
  for (uint32_t k = 0; k < args->step->logit_count && fault == NAN_SPREADS; k++)
    for (uint32_t i = 0; i < k && args->result[k].nonfinite; i++)
      if (args->param[i].slot == args->param[k].slot) args->result[i] = args->result[k];
}

void __wrap_cpu_adjust(const adjust_args *args, cpu_pool *pool) {
  adjust_args a = *args;
  if (fault == LATER_TOKENS_PENALISED) a.param = moved(args->step, args->param, true);
  __real_cpu_adjust(&a, pool);
}

static uint8_t *row_of(const qkv_rope_args *a, uint32_t t, uint64_t bytes) {
  const uint64_t page = a->block_table[(uint64_t)a->seq[t] * a->block_table_stride + a->position[t] / PAGE_TOKENS];
  return (uint8_t *)a->kv + (page * PAGE_TOKENS + a->position[t] % PAGE_TOKENS) * bytes;
}

/* A position that was written before keeps its row, until the slot begins anew. */
void __wrap_cpu_qkv_rope(const qkv_rope_args *args, cpu_pool *pool) {
  static uint8_t before[ROWS_MOST][2 * 576];
  static bool keeps[ROWS_MOST];
  const uint64_t bytes = 2ull * (args->kv_lora_rank + args->rope_dim);
  const uint32_t rows = args->step->token_count;
  uint32_t layer = 0;
  const bool is_stale = fault == STALE_ROW && args->kv_format == KV_BF16 && bytes <= sizeof before[0];
  while (is_stale && written[layer].kv && written[layer].kv != args->kv) layer++;
  ASSERT(layer < LAYERS && rows <= ROWS_MOST);
  for (uint32_t t = 0; t < rows && is_stale; t++) {
    uint32_t *end = &written[layer].end[args->seq[t]];
    if (args->position[t] == 0) *end = 0;
    keeps[t] = args->position[t] < *end;
    memcpy(before[t], row_of(args, t, bytes), bytes);
    *end = max_u32(*end, args->position[t] + 1);
    written[layer].kv = args->kv;
  }
  __real_cpu_qkv_rope(args, pool);
  for (uint32_t t = 0; t < rows && is_stale; t++)
    if (keeps[t]) memcpy(row_of(args, t, bytes), before[t], bytes);
}

void __wrap_schedule_pages_name(schedule_pages *self, sequence *s) {
  const uint32_t early = fault == NAMED_EARLY ? 1 : 0;
  s->computed += early;
  __real_schedule_pages_name(self, s);
  s->computed -= early;
}

/* === Drafters =============================================================================================================== */

enum drafter { RIGHT, WRONG, HALF, STOPS, NO_IDS, NAN_MAKER, DRAFTERS };

static bool is_odd(uint32_t a, uint32_t b) { return (a * 2654435761u ^ b * 40503u) >> 7 & 1; }

static uint32_t on_draft(verbatim_request *request, int32_t *ids, uint32_t most) {
  const enum drafter kind = *(const enum drafter *)request->context;
  const uint32_t number = (uint32_t)(request - requests.list), count = min_u32(most, 1 + (number + request->token_count) % 6);
  for (uint32_t i = 0; i < count; i++) {
    const uint32_t at = request->token_count + i;
    const int32_t right = at < truth_count[number] ? truth[number][at].id : 0, wrong = (right + 7) % VOCAB;
    const bool odd = is_odd(number, at);
    const int32_t choices[DRAFTERS] = {[RIGHT] = right, [WRONG] = wrong, [HALF] = odd ? right : wrong, [STOPS] = odd ? right : 1,
                                       [NO_IDS] = odd ? right : (at % 2 ? VOCAB : -5), [NAN_MAKER] = odd ? right : unused_id};
    ids[i] = choices[kind];
  }
  return count;
}

typedef struct outcome {
  digest digest;
  verbatim_counters counters;
} outcome;

/* As e2e_run, with counters. drafter: null for none. */
static outcome run(const verbatim_config *config, const enum drafter *drafter) {
  outcome result;
  for (uint32_t i = 0; i < COUNT; i++) {
    requests.list[i].on_draft = drafter ? on_draft : NULL;
    requests.list[i].context = (void *)(uintptr_t)drafter;
  }
  result.digest = e2e_run_counted(config, &requests, 0, COUNT, &result.counters);
  return result;
}

static bool is_equal(const outcome *a, const outcome *b) { return memcmp(&a->digest, &b->digest, sizeof a->digest) == 0; }

static outcome make_truth(const verbatim_config *config) {
  const outcome expected = run(config, NULL);
  for (uint32_t i = 0; i < COUNT; i++) {
    const verbatim_request *r = &requests.list[i];
    truth_count[i] = r->token_count;
    memcpy(truth[i], r->tokens, r->token_count * sizeof *r->tokens);
  }
  assert_int_equal(expected.counters.drafts, 0);
  return expected;
}

static const struct {
  const char *config;
  const char *deploy; /* in addition */
  bool has_layer;     /* a prediction layer */
} MODELS[] = {{"small-v3.json", GROUPS, true},
              {"small-v32-fp8.json", GROUPS, true},
              {"small-v2lite.json", GROUPS "parity: fast-prefill\n", false},
              {"small-glm4-moe-lite.json", GROUPS "tensor-parallel-size: 2\n", true},
              {"small-qwen3.json", "tensor-parallel-size: 2\n", false}};

static void begin(uint32_t number, char plans[PLANS][E2E_PATH_MAX]) {
  char deploy[1024];
  snprintf(deploy, sizeof deploy, "%s%s", DEPLOY, MODELS[number].deploy);
  if (e2e_device() != VERBATIM_DEVICE_CPU && strstr(deploy, "tensor-parallel")) snprintf(deploy, sizeof deploy, "%s", DEPLOY);
  changed_make_model(&model, MODELS[number].config, MODELS[number].has_layer ? "{\"num_nextn_predict_layers\": 1}" : "{}", deploy);
  strcpy(plans[0], model.plan_path);
  const char *rest = deploy + strlen(DEPLOY);
  char text[1200];
  snprintf(text, sizeof text, "%s%s", TIGHT, rest);
  e2e_make_plan(&model, "tight", text, plans[1]);
  snprintf(text, sizeof text, "%s%s%s", DEPLOY, rest, NGRAM);
  e2e_make_plan(&model, "ngram", text, plans[2]);
  *plans[3] = 0;
  if (!MODELS[number].has_layer) return;
  snprintf(text, sizeof text, "%s%s%s", DEPLOY, rest, MTP);
  e2e_make_plan(&model, "mtp", text, plans[3]);
}

/* === Every drafter ========================================================================================================== */

/* steps_other: of a run to compare with. */
static void check_counts(enum drafter drafter, const verbatim_counters *c, uint64_t steps_other) {
  static const char *const names[] = {"right", "wrong", "half", "stops", "no ids", "NaN"};
  print_message("  %-6s %lu drafts, %lu of %lu tokens accepted, %lu steps (%lu)\n", names[drafter], (unsigned long)c->drafts,
                (unsigned long)c->accepted_tokens, (unsigned long)c->drafted_tokens, (unsigned long)c->steps, (unsigned long)steps_other);
  assert_true(c->drafts > 0 && c->drafted_tokens >= c->drafts && c->accepted_tokens <= c->drafted_tokens);
  if (drafter == RIGHT) assert_true(c->accepted_tokens > c->drafted_tokens * 8 / 10 && c->steps < steps_other); /* not behind a stop */
  else if (drafter == WRONG) assert_int_equal(c->accepted_tokens, 0);
  else assert_true(c->accepted_tokens > 0 && c->accepted_tokens < c->drafted_tokens + (drafter == NO_IDS));
}

/* What a drafter does with stops and without ids is a matter of requests, not of models: the first model runs it. */
static void every_drafter_leaves_the_receipt(void **state) {
  (void)state;
  for (uint32_t m = 0; m < MODELS_TRIED; m++) {
    char plans[PLANS][E2E_PATH_MAX];
    begin(m, plans);
    verbatim_config config = e2e_config(&model);
    const outcome expected = make_truth(&config);
    print_message("%s\n", MODELS[m].config);
    for (enum drafter drafter = 0; drafter < (m ? STOPS : NAN_MAKER); drafter++) {
      verbatim_config c = config;
      c.plan_path = plans[drafter % 2];
      c.direct = drafter % 3 == 1;
      c.poison = drafter % 3 != 2;
      c.no_prefix_cache = drafter == HALF;
      const outcome found = run(&c, &drafter);
      check_counts(drafter, &found.counters, expected.counters.steps);
      if (!is_equal(&found, &expected)) fail_msg("%s: drafter %d changes the receipt", MODELS[m].config, drafter);
    }
    verbatim_config c = config;
    c.plan_path = plans[2];
    c.poison = true;
    outcome found = run(&c, NULL);
    print_message("  prompt lookup: %lu of %lu tokens accepted\n", (unsigned long)found.counters.accepted_tokens,
                  (unsigned long)found.counters.drafted_tokens);
    if (!is_equal(&found, &expected)) fail_msg("%s: prompt lookup changes the receipt", MODELS[m].config);
    c.plan_path = plans[3];
    if (*plans[3]) found = run(&c, NULL);
    print_message("  prediction layer: %lu of %lu tokens accepted\n", (unsigned long)found.counters.accepted_tokens,
                  (unsigned long)found.counters.drafted_tokens);
    if (!is_equal(&found, &expected)) fail_msg("%s: the prediction layer changes the receipt", MODELS[m].config);
    if (*plans[3]) assert_true(found.counters.drafted_tokens > 0);
    if (m == 0) {
      c.plan_path = plans[2];
      c.no_drafts = true;
      found = run(&c, &(enum drafter){RIGHT});
      assert_int_equal(found.counters.drafts, 0);
      assert_true(is_equal(&found, &expected));
    }
    e2e_remove(&model);
  }
}

/* Rows of one request at a time: each right draft saves a step. */
static void right_drafts_save_steps(void **state) {
  (void)state;
  char plans[PLANS][E2E_PATH_MAX];
  begin(0, plans);
  verbatim_config config = e2e_config(&model);
  config.max_active = 1;
  const outcome alone = make_truth(&config);
  const outcome found = run(&config, &(enum drafter){RIGHT});
  assert_true(is_equal(&found, &alone));
  check_counts(RIGHT, &found.counters, alone.counters.steps);
  assert_true(found.counters.steps * 2 < alone.counters.steps);
  e2e_remove(&model);
}

/* === Numbers that are not finite ============================================================================================ */

static bool occurs(int32_t id) {
  for (uint32_t i = 0; i < COUNT; i++) {
    const verbatim_request *r = &requests.list[i];
    for (uint32_t k = 0; k < r->prompt_count; k++)
      if (r->prompt[k] == id) return true;
    for (uint32_t k = 0; k < r->token_count; k++)
      if (r->tokens[k].id == id) return true;
  }
  return false;
}

/* The embedding of a token that nobody has becomes NaN; only drafts bring it into steps. On a GPU a row that is not finite may break those
 * before it in its tile; the CPU's op is made to do so too. */
static void a_draft_that_is_nan_breaks_nothing(void **state) {
  (void)state;
  char plans[PLANS][E2E_PATH_MAX];
  begin(0, plans);
  verbatim_config config = e2e_config(&model);
  make_truth(&config);
  unused_id = 5;
  while (occurs(unused_id)) assert_true(++unused_id < VOCAB);
  plant_number(&model, "model.embed_tokens.weight", (uint32_t)unused_id, 3, PLANT_NAN);
  const outcome expected = make_truth(&config); /* the weights have another digest, and so the receipt */
  const outcome half = run(&config, &(enum drafter){HALF}); /* as many right ones */
  config.poison = true;
  for (int spreads = 0; spreads < 2; spreads++) {
    planted = spreads ? NAN_SPREADS : SOUND;
    const outcome found = run(&config, &(enum drafter){NAN_MAKER});
    planted = SOUND;
    check_counts(NAN_MAKER, &found.counters, half.counters.steps);
    assert_true(is_equal(&found, &expected));
    if (spreads && e2e_device() == VERBATIM_DEVICE_CPU) assert_true(found.counters.steps > half.counters.steps);
  }
  e2e_remove(&model);
}

/* === Controls =============================================================================================================== */

static void planted_faults_are_caught(void **state) {
  (void)state;
  static const struct {
    enum fault fault;
    enum drafter drafter;
    const char *name;
  } faults[] = {{ACCEPTED_TOO_FAR, HALF, "a draft accepted one too far"}, {NUMBER_OF_STEP, RIGHT, "random numbers keyed by the step"},
                {LATER_TOKENS_PENALISED, WRONG, "penalties that see later drafts"}, {STALE_ROW, WRONG, "a stale KV row"}};
  char plans[PLANS][E2E_PATH_MAX];
  if (e2e_device() != VERBATIM_DEVICE_CPU) {
    print_message("SKIPPED: the faults are planted in the CPU's ops\n");
    skip();
  }
  begin(0, plans);
  verbatim_config config = e2e_config(&model);
  config.no_prefix_cache = true;
  const outcome expected = make_truth(&config);
  for (size_t i = 0; i < ARRAY_LEN(faults); i++) {
    planted = faults[i].fault;
    const outcome without = run(&config, NULL);
    const outcome found = run(&config, &(enum drafter){faults[i].drafter});
    planted = SOUND;
    if (!is_equal(&without, &expected)) fail_msg("%s: shows without drafts too", faults[i].name);
    if (is_equal(&found, &expected)) fail_msg("%s: not caught", faults[i].name);
  }
  e2e_remove(&model);
}

/* === The prefix cache ======================================================================================================= */

enum { FIRST_PROMPT = 60, MADE = 4 };
static verbatim *cache_engine;

static void quit_after_the_page(verbatim_request *request, uint32_t index) {
  if (index + 1 == MADE) assert_int_equal(verbatim_cancel(cache_engine, request), 0);
}

static uint32_t guess_wrongly(verbatim_request *request, int32_t *ids, uint32_t most) {
  (void)request;
  for (uint32_t i = 0; i < most; i++) ids[i] = 9;
  return most;
}

static void run_one(verbatim_request *r) {
  bool busy = true;
  assert_int_equal(verbatim_submit(cache_engine, r), 0);
  while (busy) assert_int_equal(verbatim_poll(cache_engine, &busy), 0);
}

/* A request stops when its tokens fill a page of which the last row was made by a wrong draft; the next one has these tokens as its
 * prompt. Returns the digest of the next one's first logits row. */
static uint64_t row_behind_a_page(const verbatim_config *config, bool has_first) {
  int32_t prompt[FIRST_PROMPT + MADE + 1];
  verbatim_token made[16], token;
  verbatim_request first = VERBATIM_REQUEST_DEFAULTS, next = VERBATIM_REQUEST_DEFAULTS;
  static int32_t ids[MADE];
  for (uint32_t i = 0; i < FIRST_PROMPT; i++) prompt[i] = (int32_t)(20 + i * 5 % 300);
  if (verbatim_open(&cache_engine, config) != 0) fail_msg("%s", verbatim_error());
  first.prompt = prompt, first.prompt_count = FIRST_PROMPT, first.max_tokens = 16, first.tokens = made, first.ignore_eos = true;
  first.on_token = quit_after_the_page, first.on_draft = guess_wrongly;
  if (has_first) {
    run_one(&first);
    for (uint32_t i = 0; i < MADE; i++) ids[i] = made[i].id;
  }
  memcpy(prompt + FIRST_PROMPT, ids, sizeof ids);
  prompt[FIRST_PROMPT + MADE] = 11;
  next.prompt = prompt, next.prompt_count = FIRST_PROMPT + MADE + 1, next.tokens = &token;
  run_one(&next);
  verbatim_close(cache_engine);
  return token.digest;
}

static void a_page_is_named_when_its_rows_are_settled(void **state) {
  (void)state;
  char plans[PLANS][E2E_PATH_MAX];
  begin(0, plans);
  const verbatim_config config = e2e_config(&model);
  const uint64_t behind = row_behind_a_page(&config, true), alone = row_behind_a_page(&config, false);
  assert_true(behind == alone);
  if (e2e_device() == VERBATIM_DEVICE_CPU) {
    planted = NAMED_EARLY;
    assert_true(row_behind_a_page(&config, true) != alone);
    planted = SOUND;
  }
  e2e_remove(&model);
}

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_drafter_leaves_the_receipt), cmocka_unit_test(right_drafts_save_steps),
      cmocka_unit_test(a_draft_that_is_nan_breaks_nothing), cmocka_unit_test(planted_faults_are_caught),
      cmocka_unit_test(a_page_is_named_when_its_rows_are_settled),
  };
  e2e_begin(argc, argv);
  e2e_requests_make(&requests, COUNT, VOCAB, PROMPT_MAX, TOKENS_MAX);
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  e2e_requests_free(&requests);
  return failed;
}

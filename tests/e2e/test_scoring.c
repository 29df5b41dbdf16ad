/* test_scoring.c - scoring equals generating: a token has the same log-probability, rank, logits and alternatives when it is generated and
 * when it is given, whichever requests share the batch, with rows from the prefix cache and after preemptions. Counters show that these
 * happened. The control scores another token in one place. */
#include "tests/unit/unit.h"
#include <stdlib.h>
#include <string.h>
#include "engine/requests/request.h"
#include "e2e.h"

#define COUNT 6u
#define PROMPT 124u
#define MADE 90u
#define TOP 4u
#define VOCAB 384u

static const char TIGHT[] =
  "max-num-seqs: 2\nmax-num-batched-tokens: 48\nmax_logit_rows: 2\nmax-model-len: 256\nkv_pages: 6\nchunk_tokens: 64\ngroup_chunks: 2\n"
  "ladder: [1, 2]\n";
static const char AMPLE[] =
  "max-num-seqs: 3\nmax-num-batched-tokens: 80\nmax_logit_rows: 64\nmax-model-len: 256\nkv_pages: 64\nchunk_tokens: 64\n"
  "group_chunks: 2\nladder: [3]\n";

typedef struct sequence_case {
  int32_t ids[PROMPT + MADE];
  uint32_t prompt_count;
  verbatim_request made, scored;
  verbatim_token tokens[MADE], scores[MADE];
  verbatim_alternative made_top[MADE * TOP], scored_top[MADE * TOP];
} sequence_case;

static e2e_model model;
static char ample_path[E2E_PATH_MAX];
static sequence_case cases[COUNT];

/* Scored requests are queued after requests that generate tokens, and lose their pages to those when there are few: one of 124 tokens and
 * 90 scored ones has them all when one of 110 needs its fourth. Returns how many of the scored requests were preempted. */
static uint32_t run(const char *plan_path, bool score, bool cache, verbatim_counters *counters) {
  verbatim *engine;
  bool busy = true;
  uint32_t preempted = 0, most_pages = 0;
  verbatim_config config = e2e_config(&model);
  config.plan_path = plan_path;
  config.no_prefix_cache = !cache;
  assert_int_equal(verbatim_open(&engine, &config), 0);
  for (uint32_t i = 0; i < 2 * COUNT; i++) {
    if (!score && i < COUNT) assert_int_equal(verbatim_submit(engine, &cases[i].made), 0);
    if (score && i % 4 == 0) assert_int_equal(verbatim_submit(engine, &cases[i / 4].made), 0);
    if (score && i % 2 == 1) assert_int_equal(verbatim_submit(engine, &cases[COUNT - 1 - i / 2].scored), 0);
  }
  while (busy) {
    assert_int_equal(verbatim_poll(engine, &busy), 0);
    const uint32_t used = verbatim_count(engine).kv_pages_used;
    most_pages = used > most_pages ? used : most_pages;
  }
  *counters = verbatim_count(engine);
  assert_true(most_pages > 0 && most_pages <= verbatim_describe(engine).kv_pages && counters->kv_pages_used == 0);
  verbatim_close(engine);
  for (uint32_t i = 0; i < COUNT; i++) preempted += score && request_state_of(&cases[i].scored)->row_most > 0;
  return preempted;
}

/* Prompts with a common beginning, some greedy, some sampled; penalties and biases change the choice, never the log-probability. */
static void make_cases(void) {
  static const verbatim_bias bias = {5, 3.0f};
  for (uint32_t i = 0; i < COUNT; i++) {
    sequence_case *c = &cases[i];
    c->prompt_count = i < COUNT / 2 ? 110 : PROMPT;
    for (uint32_t k = 0; k < c->prompt_count; k++) c->ids[k] = (int32_t)((k * 31 + (k < 64 ? 0 : i) * 17) % VOCAB);
    c->made = VERBATIM_REQUEST_DEFAULTS;
    c->made.prompt = c->ids, c->made.prompt_count = c->prompt_count, c->made.max_tokens = MADE, c->made.ignore_eos = true;
    c->made.temperature = i % 2 ? 1.0f : 0.0f, c->made.seed = i, c->made.frequency_penalty = i % 3 == 2 ? 0.5f : 0.0f;
    c->made.biases = &bias, c->made.bias_count = i % 5 == 4;
    c->made.tokens = c->tokens, c->made.alternatives = c->made_top, c->made.top_logprobs = TOP;
  }
}

static void make_scores(void) {
  for (uint32_t i = 0; i < COUNT; i++) {
    sequence_case *c = &cases[i];
    for (uint32_t k = 0; k < MADE; k++) c->ids[c->prompt_count + k] = c->tokens[k].id;
    c->scored = VERBATIM_REQUEST_DEFAULTS;
    c->scored.prompt = c->ids, c->scored.prompt_count = c->prompt_count + MADE, c->scored.max_tokens = 0;
    c->scored.score = true, c->scored.score_from = c->prompt_count;
    c->scored.scores = c->scores, c->scored.alternatives = c->scored_top, c->scored.top_logprobs = TOP;
  }
}

static uint32_t equal_sequences(void) {
  uint32_t equal = 0;
  for (uint32_t i = 0; i < COUNT; i++) {
    const sequence_case *c = &cases[i];
    assert_true(c->made.token_count == MADE && c->scored.score_count == MADE);
    equal += memcmp(c->tokens, c->scores, sizeof c->tokens) == 0 && memcmp(c->made_top, c->scored_top, sizeof c->made_top) == 0;
  }
  return equal;
}

static void made_and_given_tokens_are_alike(void **state) {
  (void)state;
  verbatim_counters made, scored;
  make_cases();
  run(model.plan_path, false, true, &made);
  assert_true(made.preemptions > 0 && made.recomputed_tokens > 0 && made.reused_tokens > 0 && made.mixed_steps > 0);
  uint32_t preempted = 0;
  for (uint32_t way = 0; way < 4; way++) {
    make_scores();
    preempted += run(way % 2 ? ample_path : model.plan_path, true, way < 2, &scored);
    assert_int_equal(equal_sequences(), COUNT);
    assert_int_equal(scored.reused_tokens > 0, way < 2);
  }
  assert_true(preempted > 0);
  make_scores();
  cases[3].ids[cases[3].prompt_count + 40] ^= 1;
  run(ample_path, true, true, &scored);
  assert_int_equal(equal_sequences(), COUNT - 1);
}

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(made_and_given_tokens_are_alike)};
  e2e_begin(argc, argv);
  e2e_make_model(&model, "tests/oracle/small-v3.json", TIGHT);
  e2e_make_plan(&model, "ample.plan", AMPLE, ample_path);
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  e2e_remove(&model);
  return failed;
}

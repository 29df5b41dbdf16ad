/* test_nonfinite.c - NaN and Inf planted in the weights: the requests that use them end, and no others, and name the first op and token.
 *
 * A run with sound weights tells which requests those are, and where: its tokens, and the experts in its traced rows. The controls: sound
 * weights break nothing, and no planted place gives the result expected of another. */
#include "tests/unit/unit.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "e2e.h"
#include "plant.h"
#include "engine/base/base.h"

#ifdef __SANITIZE_ADDRESS__
#define CASES_STRIDE 3u /* instrumented code is slow */
#else
#define CASES_STRIDE 1u
#endif
#define REQUESTS 8u
#define VOCAB 384u
#define PROMPT_MAX 80u /* more than a page */
#define TOKENS_MAX 7u
#define POSITIONS (PROMPT_MAX + TOKENS_MAX)
#define TOP_K 2u
#define LAYERS 3u
#define CASES_MAX 16u
#define BF16_INF 0x7f80u
#define BF16_MOST 0x7f7fu /* the largest finite number */

#define FAST "parity: fast-prefill\n" /* the same under both parities */
static const char DEPLOY[] =
  "max-num-seqs: 16\nmax-num-batched-tokens: 256\nmax-model-len: 192\nkv_pages: 64\nchunk_tokens: 64\ngroup_chunks: 2\n"
  "ladder: [1, 2, 4, 8]\n" FAST;
static const char OTHER_LIMITS[] =
  "max-num-seqs: 5\nmax-num-batched-tokens: 33\nmax-model-len: 162\nkv_pages: 4\nchunk_tokens: 64\ngroup_chunks: 2\nladder: [3]\n" FAST;

static e2e_model model;
static bool is_fast; /* the current parity */
static char other_plan[E2E_PATH_MAX];
static e2e_requests requests;

typedef struct sound_request { /* its results with sound weights */
  uint32_t token_count;
  verbatim_token tokens[TOKENS_MAX];
  uint32_t experts[LAYERS][POSITIONS][TOP_K]; /* UINT32_MAX: not a layer with experts */
} sound_request;
static sound_request sound[REQUESTS];
static char fault_ops[REQUESTS][64]; /* of the last run: an engine's strings are freed with it */
static bool is_sound_run; /* the trace is stored in `sound` */

/* === Weights ================================================================================================================ */

/* Sets one number of the model's file and returns what it was. */
static uint16_t plant(const char *name, uint32_t row, uint32_t column, uint16_t value) {
  return plant_number(&model, name, row, column, value);
}

/* === Runs =================================================================================================================== */

static bool wants_experts(const verbatim_request *q, uint32_t position, uint32_t point) {
  const verbatim_info *info = q->context;
  (void)position;
  return strstr(info->points[point].name, "router topk_id") != NULL;
}

static void take_experts(verbatim_request *q, uint32_t position, uint32_t point, const void *row, size_t bytes) {
  const verbatim_info *info = q->context;
  assert_int_equal(bytes, sizeof(uint32_t) * TOP_K);
  memcpy(sound[q - requests.list].experts[info->points[point].layer][position], row, bytes);
}

/* Runs the requests of the list, or all without one. The tokens stay in the requests' memory. */
static void run(const verbatim_config *config, const bool wanted[REQUESTS]) {
  verbatim *engine;
  bool busy = true;
  if (verbatim_open(&engine, config) != 0) fail_msg("%s", verbatim_error());
  verbatim_info info = verbatim_describe(engine);
  for (uint32_t i = 0; i < REQUESTS; i++) {
    verbatim_request *q = &requests.list[i];
    q->on_values = is_sound_run ? take_experts : NULL;
    q->wants_values = is_sound_run ? wants_experts : NULL;
    q->context = &info;
    if ((!wanted || wanted[i]) && verbatim_submit(engine, q) != 0) fail_msg("%s", verbatim_error());
  }
  while (busy) assert_int_equal(verbatim_poll(engine, &busy), 0);
  for (uint32_t i = 0; i < REQUESTS; i++)
    if (!wanted || wanted[i]) snprintf(fault_ops[i], sizeof fault_ops[i], "%s", requests.list[i].fault_op);
  verbatim_close(engine);
}

static void run_sound(void) {
  verbatim_config c = e2e_config(&model);
  c.trace = true;
  memset(sound, 0xff, sizeof sound);
  is_sound_run = true;
  run(&c, NULL);
  is_sound_run = false;
  for (uint32_t i = 0; i < REQUESTS; i++) {
    const verbatim_request *q = &requests.list[i];
    assert_true(q->finish == VERBATIM_LENGTH || q->finish == VERBATIM_STOP);
    assert_string_equal(fault_ops[i], "");
    sound[i].token_count = q->token_count;
    memcpy(sound[i].tokens, q->tokens, q->token_count * sizeof *q->tokens);
  }
}

/* === What is expected ======================================================================================================= */

enum hits { HITS_ALL, HITS_TOKEN, HITS_EXPERT, HITS_LOGITS };

typedef struct planted {
  const char *tensor;
  uint32_t row, column;
  uint16_t value;
  const char *op;   /* the op that must be named */
  uint32_t layer;
  enum hits hits;   /* the tokens whose rows it breaks ...                    */
  uint32_t number;  /* ... the token's or the expert's                        */
  bool is_last;     /* no later token reads what it breaks                    */
} planted;

static bool is_hit(const planted *p, uint32_t request, uint32_t position) {
  const verbatim_request *q = &requests.list[request];
  const sound_request *s = &sound[request];
  if (p->hits == HITS_LOGITS) return position + 1 >= q->prompt_count;
  if (p->hits == HITS_TOKEN) {
    int32_t id = position < q->prompt_count ? q->prompt[position] : s->tokens[position - q->prompt_count].id;
    return (uint32_t)id == p->number;
  }
  if (p->hits == HITS_EXPERT) return s->experts[p->layer][position][0] == p->number || s->experts[p->layer][position][1] == p->number;
  return true;
}

typedef struct verdict {
  bool is_broken;
  uint32_t token_count, position;
} verdict;

static verdict expect(const planted *p, uint32_t request) {
  uint32_t prompt = requests.list[request].prompt_count, end = prompt + sound[request].token_count - 1, first = UINT32_MAX;
  for (uint32_t position = 0; position < end; position++) {
    bool hit = is_hit(p, request, position);
    if (hit && first == UINT32_MAX) first = position;
    if (position + 1 >= prompt && (hit || (first != UINT32_MAX && !p->is_last)))
      return (verdict){.is_broken = true, .token_count = position + 1 - prompt, .position = first};
  }
  return (verdict){.token_count = sound[request].token_count};
}

/* Whether the request ended as it must with this fault planted. */
static bool agrees(const planted *p, uint32_t request) {
  const verbatim_request *q = &requests.list[request];
  verdict v = expect(p, request);
  if ((q->finish == VERBATIM_NONFINITE) != v.is_broken || q->token_count != v.token_count) return false;
  for (uint32_t i = 0; i < q->token_count; i++) { /* the tokens before are valid */
    const verbatim_token *a = &q->tokens[i], *b = &sound[request].tokens[i];
    if (a->id != b->id || memcmp(&a->logprob, &b->logprob, 4) != 0 || a->digest != b->digest) return false;
  }
  if (!v.is_broken) return fault_ops[request][0] == 0;
  return strcmp(fault_ops[request], p->op) == 0 && q->fault_layer == p->layer && q->fault_position == v.position;
}

static uint32_t count_agreeing(const planted *p) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < REQUESTS; i++) count += agrees(p, i);
  return count;
}

static void check(const char *what, const planted *p, const verbatim_config *config) {
  run(config, NULL);
  for (uint32_t i = 0; i < REQUESTS; i++) {
    const verbatim_request *q = &requests.list[i];
    verdict v = expect(p, i);
    if (!agrees(p, i))
      fail_msg("%s, %s: request %u of %u: expected %s after %u tokens, %s, position %u; found %s after %u tokens, \"%s\", position %u",
               p->op, what, i, q->prompt_count, v.is_broken ? "an end" : "no end", v.token_count, p->op, v.position,
               q->finish == VERBATIM_NONFINITE ? "an end" : "no end", q->token_count, fault_ops[i], q->fault_position);
  }
}

/* === The planted faults ===================================================================================================== */

static uint32_t occurrences(uint32_t id, bool made, uint32_t *request) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < REQUESTS; i++) {
    const verbatim_request *q = &requests.list[i];
    for (uint32_t k = 0; k < q->prompt_count && !made; k++)
      if ((uint32_t)q->prompt[k] == id) count++, *request = i;
    for (uint32_t k = 0; k + 1 < sound[i].token_count && made; k++)
      if ((uint32_t)sound[i].tokens[k].id == id) count++, *request = i;
  }
  return count;
}

/* A token that only one request has in its prompt, or that only one generates and computes. */
static uint32_t choose_token(bool made) {
  uint32_t request, other;
  for (uint32_t id = 0; id < VOCAB; id++)
    if (occurrences(id, made, &request) >= 1 && occurrences(id, !made, &other) == 0) return id;
  fail_msg("no token is %s only", made ? "made" : "given");
  return 0;
}

/* The expert of a layer that the fewest requests use. */
static uint32_t choose_expert(uint32_t layer, bool is_last) {
  uint32_t best = 0, fewest = UINT32_MAX;
  for (uint32_t expert = 0; expert < 8; expert++) {
    planted p = {.layer = layer, .hits = HITS_EXPERT, .number = expert, .is_last = is_last};
    uint32_t met = 0;
    for (uint32_t i = 0; i < REQUESTS; i++) met += expect(&p, i).is_broken;
    if (met > 0 && met < fewest) best = expert, fewest = met;
  }
  assert_true(fewest < REQUESTS); /* broken and sound requests both occur */
  return best;
}

static uint32_t make_cases(planted cases[CASES_MAX]) {
  static char names[2][96];
  const uint32_t none = UINT32_MAX, expert = choose_expert(1, false), last = choose_expert(2, true);
  const uint32_t given = choose_token(false), made = choose_token(true);
  snprintf(names[0], sizeof names[0], "model.layers.1.mlp.experts.%u.down_proj.weight", expert);
  snprintf(names[1], sizeof names[1], "model.layers.2.mlp.experts.%u.up_proj.weight", last);
  const planted list[] = {
      {"model.embed_tokens.weight", given, 7, PLANT_NAN, "embed", none, HITS_TOKEN, given, false},
      {"model.embed_tokens.weight", made, 127, BF16_INF, "embed", none, HITS_TOKEN, made, false},
      {names[0], 3, 11, BF16_INF, "layer 1 experts down", 1, HITS_EXPERT, expert, false},
      {names[1], 63, 0, PLANT_NAN, "layer 2 experts gate_up", 2, HITS_EXPERT, last, true},
      {"model.layers.0.mlp.gate_proj.weight", 5, 5, PLANT_NAN, "layer 0 gate_up", 0, HITS_ALL, 0, false},
      {"model.layers.1.self_attn.kv_a_layernorm.weight", 0, 3, PLANT_NAN, "layer 1 qkv_rope", 1, HITS_ALL, 0, false},
      {"model.layers.2.self_attn.o_proj.weight", 100, 1, BF16_INF, "layer 2 o_proj", 2, HITS_ALL, 0, true},
      {"model.norm.weight", 0, 2, PLANT_NAN, "final_norm", none, HITS_LOGITS, 0, true},
      {"lm_head.weight", 380, 64, BF16_INF, "lm_head", none, HITS_LOGITS, 0, true}};
  assert_true(ARRAY_LEN(list) <= CASES_MAX);
  memcpy(cases, list, sizeof list);
  return ARRAY_LEN(list);
}

/* === Tests ================================================================================================================== */

static planted cases[CASES_MAX];
static uint32_t case_count;

/* The requests that are not broken have the receipts that they have without the broken ones. */
static void check_neighbours(const planted *p) {
  bool whole[REQUESTS];
  uint8_t chains[REQUESTS][16];
  verbatim_config c = e2e_config(&model);
  check("together", p, &c);
  for (uint32_t i = 0; i < REQUESTS; i++) {
    whole[i] = !expect(p, i).is_broken;
    memcpy(chains[i], requests.list[i].chain, 16);
  }
  if (p->hits != HITS_ALL && p->hits != HITS_LOGITS) run(&c, whole);
  for (uint32_t i = 0; i < REQUESTS; i++)
    if (whole[i]) assert_memory_equal(chains[i], requests.list[i].chain, 16);
}

static verbatim_config cut(uint32_t way, const char **name) {
  static const char *const names[] = {"one by one", "chunk of 1", "chunk of 13, poison", "other limits", "trace"};
  verbatim_config c = e2e_config(&model);
  *name = names[way];
  if (way == 0) c.max_active = 1;
  if (way == 1) c.chunk_tokens = 1;
  if (way == 2) c.chunk_tokens = 13, c.poison = c.direct = true, c.shuffle_pages = 5;
  if (way == 3) c.plan_path = other_plan, c.slot_offset = 2;
  if (way == 4) c.trace = true;
  return c;
}

/* NaN is slow to compute on the CPU: every fault is tried in two ways of splitting the work, and every way with some fault. */
static void the_first_op_and_token_are_named(void **state) {
  (void)state;
  for (uint32_t i = 0; i < case_count; i += CASES_STRIDE) {
    const planted *p = &cases[i];
    uint16_t before = plant(p->tensor, p->row, p->column, p->value);
    for (uint32_t way = i % 5, k = 0; k < 2; k++, way = (way + 2) % 5) {
      const char *name;
      verbatim_config c = cut(way, &name);
      check(name, p, &c);
    }
    for (uint32_t other = 0; other < case_count; other++) /* the result differs from that of any other fault */
      if (other != i) assert_true(count_agreeing(&cases[other]) < REQUESTS);
    check_neighbours(p);
    (void)plant(p->tensor, p->row, p->column, before);
  }
}

/* Of two faults the earlier op is named, whichever token it belongs to. */
static void the_earlier_of_two_is_named(void **state) {
  (void)state;
  const planted *late = &cases[6], *early = &cases[2];
  uint16_t before[2] = {plant(late->tensor, late->row, late->column, late->value),
                        plant(early->tensor, early->row, early->column, early->value)};
  const uint32_t chunks[] = {0, 13};
  for (size_t k = 0; k < ARRAY_LEN(chunks); k++) {
    uint32_t named[2] = {0, 0};
    verbatim_config c = e2e_config(&model);
    c.chunk_tokens = chunks[k];
    run(&c, NULL);
    for (uint32_t i = 0; i < REQUESTS; i++) {
      uint32_t prompt = requests.list[i].prompt_count; /* broken by the late one at the latest here, and checked up to it */
      verdict v = expect(early, i);
      bool is_early = v.is_broken && v.position < prompt;
      assert_true(requests.list[i].finish == VERBATIM_NONFINITE && requests.list[i].token_count == 0);
      assert_string_equal(fault_ops[i], is_early ? early->op : late->op);
      assert_int_equal(requests.list[i].fault_position, is_early ? v.position : 0);
      named[is_early]++;
    }
    assert_true(named[0] > 0 && named[1] > 0);
  }
  (void)plant(late->tensor, late->row, late->column, before[0]);
  (void)plant(early->tensor, early->row, early->column, before[1]);
}

/* Exchanges a row of a tensor with these numbers. */
static void plant_row(const char *tensor, uint32_t row, uint32_t columns, uint16_t values[]) {
  for (uint32_t i = 0; i < columns; i++) values[i] = plant(tensor, row, i, values[i]);
}

/* Finite weights may overflow too: the products of a row of large numbers sum to more than fp32 can represent. */
static void an_overflow_is_found_where_it_happens(void **state) {
  (void)state;
  enum { COLUMNS = 128 };
  const char *const tensor = "model.layers.2.self_attn.o_proj.weight";
  uint16_t row[COLUMNS];
  for (uint32_t i = 0; i < COLUMNS; i++) row[i] = (uint16_t)(BF16_MOST | (i % 2) << 15);
  plant_row(tensor, 9, COLUMNS, row);
  verbatim_config c = e2e_config(&model);
  run(&c, NULL);
  uint32_t broken = 0;
  for (uint32_t i = 0; i < REQUESTS; i++) {
    if (requests.list[i].finish != VERBATIM_NONFINITE) continue;
    assert_string_equal(fault_ops[i], "layer 2 o_proj");
    broken++;
  }
  assert_true(broken > 0);
  plant_row(tensor, 9, COLUMNS, row);
}

/* Scores that overflow while queries and KV rows do not: whole attention computes them in one op, split attention in two. */
static void attention_has_one_name(void **state) {
  (void)state;
  enum { COLUMNS = 512 };
  const char *const tensor = "model.layers.1.self_attn.kv_b_proj.weight"; /* its row 0 gives latent queries of the first head */
  const uint32_t chunks[] = {0, 1, 13};
  uint32_t positions[REQUESTS], counts[REQUESTS], broken = 0, late = 0;
  uint16_t row[COLUMNS];
  for (uint32_t i = 0; i < COLUMNS; i++) row[i] = 0x7d00; /* 2^123: some tokens overflow, and some do not */
  plant_row(tensor, 0, COLUMNS, row);
  for (size_t k = 0; k < ARRAY_LEN(chunks); k++) {
    verbatim_config c = e2e_config(&model);
    c.chunk_tokens = chunks[k];
    run(&c, NULL);
    for (uint32_t i = 0; i < REQUESTS; i++) {
      const verbatim_request *q = &requests.list[i];
      if (k == 0) positions[i] = q->fault_position, counts[i] = q->token_count;
      assert_true(q->fault_position == positions[i] && q->token_count == counts[i]);
      if (q->finish != VERBATIM_NONFINITE) continue;
      bool is_named = strcmp(fault_ops[i], "layer 1 mla_attn") == 0 || (is_fast && strcmp(fault_ops[i], "layer 1 mla_prefill") == 0);
      assert_true(is_named && q->fault_layer == 1);
      broken++;
      late += q->fault_position > 0;
    }
  }
  assert_true(broken > 0 && (late > 0 || is_fast)); /* under fast-prefill scores of 2^22 are NaN already, at every position */
  plant_row(tensor, 0, COLUMNS, row);
}

/* A request that scores its prompt: the scores that it got are those of sound weights. */
static void scores_before_are_valid(void **state) {
  (void)state;
  static verbatim_token scores[2][PROMPT_MAX];
  const uint32_t chunks[] = {0, 13};
  verbatim_request kept = requests.list[1], *q = &requests.list[1];
  const bool alone[REQUESTS] = {[1] = true};
  planted p = {"model.embed_tokens.weight", (uint32_t)kept.prompt[70], 0, PLANT_NAN, "embed", UINT32_MAX, HITS_TOKEN, 0, false};
  uint32_t hit = 0;
  while (kept.prompt[hit] != kept.prompt[70]) hit++;
  q->score = true, q->score_from = 1, q->scores = scores[0];
  verbatim_config c = e2e_config(&model);
  run(&c, alone);
  assert_int_equal(q->score_count, q->prompt_count - 1);
  uint16_t before = plant(p.tensor, p.row, p.column, p.value);
  for (size_t i = 0; i < ARRAY_LEN(chunks); i++) {
    c.chunk_tokens = chunks[i];
    q->scores = scores[1];
    run(&c, alone);
    assert_int_equal(q->finish, VERBATIM_NONFINITE);
    assert_true(strcmp(fault_ops[1], "embed") == 0 && q->fault_position == hit && q->token_count == 0);
    assert_true(q->score_count <= hit);
    for (uint32_t k = 0; k < q->score_count; k++)
      assert_true(scores[0][k].id == scores[1][k].id && scores[0][k].digest == scores[1][k].digest);
  }
  (void)plant(p.tensor, p.row, p.column, before);
  *q = kept;
}

static void sound_weights_break_nothing(void **state) {
  (void)state;
  const planted nothing = {.hits = HITS_TOKEN, .number = UINT32_MAX, .op = "none"};
  verbatim_config c = e2e_config(&model);
  check("sound", &nothing, &c); /* last: every planted fault is removed */
}

/* For strict the deployment ends before the line with the other parity. */
static void make_plans(bool fast) {
  char deploy[2][512];
  snprintf(deploy[0], sizeof deploy[0], "%.*s", (int)(strlen(DEPLOY) - (fast ? 0 : strlen(FAST))), DEPLOY);
  snprintf(deploy[1], sizeof deploy[1], "%.*s", (int)(strlen(OTHER_LIMITS) - (fast ? 0 : strlen(FAST))), OTHER_LIMITS);
  is_fast = fast;
  e2e_make_model(&model, "tests/oracle/small-v3.json", deploy[0]);
  e2e_make_plan(&model, "other", deploy[1], other_plan);
}

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(the_first_op_and_token_are_named), cmocka_unit_test(the_earlier_of_two_is_named),
                                     cmocka_unit_test(an_overflow_is_found_where_it_happens), cmocka_unit_test(attention_has_one_name),
                                     cmocka_unit_test(scores_before_are_valid), cmocka_unit_test(sound_weights_break_nothing)};
  e2e_begin(argc, argv);
  e2e_requests_make(&requests, REQUESTS, VOCAB, PROMPT_MAX, TOKENS_MAX);
  for (uint32_t i = 0; i < REQUESTS; i++) { /* some so short that they do not use a given expert; none is scored */
    verbatim_request *q = &requests.list[i];
    if (i % 3 == 0) q->prompt_count = 1 + i / 3, q->max_tokens = 2;
    else q->prompt_count = min_u32(q->prompt_count, i == 1 ? PROMPT_MAX : 12), q->max_tokens = TOKENS_MAX - i % 4;
    q->score = false, q->score_from = 0;
  }
  int failed = 0;
  for (uint32_t fast = 0; fast < 2; fast++) {
    make_plans(fast);
    run_sound();
    case_count = make_cases(cases);
    failed += cmocka_run_group_tests_name(fast ? "fast-prefill" : "strict", tests, NULL, NULL);
    e2e_remove(&model);
  }
  e2e_requests_free(&requests);
  return failed;
}

/* test_trace.c - the rows that on_trace and on_values report: for a request the same however the work was split, and different from the
 * point of a fault on.
 *
 * The expected digest of a row comes from elsewhere: the values themselves, the digest of a token's logits, and for the rest a run of the
 * same request alone. Linked with --wrap for cpu_gemm and cpu_moe_gemm: the control plants one bit in one row of one op, and the first
 * digest that differs must be that op's, at that token. */
#include "tests/unit/unit.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "e2e.h"
#include "engine/base/base.h"
#include "engine/cpu/cpu.h"
#include "kernels_src/num.h"

#ifdef __SANITIZE_ADDRESS__
#define REQUESTS 6u /* instrumented code is slow */
#else
#define REQUESTS 16u
#endif
#define VOCAB 384u
#define PROMPT_MAX 150u
#define TOKENS_MAX 12u
#define POSITIONS (PROMPT_MAX + TOKENS_MAX)
#define POINTS_MAX 512u

static const char DEPLOY[] =
  "max-num-seqs: 64\nmax-num-batched-tokens: 256\nmax-model-len: 192\nkv_pages: 200\nchunk_tokens: 64\ngroup_chunks: 2\n"
  "ladder: [1, 2, 4, 8]\n";
static const char OTHER_LIMITS[] =
  "max-num-seqs: 5\nmax-num-batched-tokens: 33\nmax-model-len: 162\nkv_pages: 4\nchunk_tokens: 64\ngroup_chunks: 2\nladder: [3]\n";

typedef struct traced { /* all rows of one request */
  uint32_t row_count;            /* positions 0 .. row_count - 1 arrived                 */
  uint32_t again_count;          /* rows that arrived again                              */
  uint64_t *digests;             /* [POSITIONS][point_count]                             */
  uint64_t *of_values;           /* [POSITIONS][point_count] digests of the values that arrived last */
  uint8_t chain[16];
} traced;

typedef struct trace { /* of one run */
  uint32_t point_count;
  const verbatim_point *points; /* of the engine: valid while it is open */
  bool is_logits[POINTS_MAX];
  char names[POINTS_MAX][64];
  verbatim_counters counters;
  traced *requests; /* [REQUESTS] */
} trace;

static e2e_model model;
static e2e_requests requests;
static trace *running; /* callbacks write here */
static uint32_t failures;
static struct { bool is_wanted, is_on; uint32_t call, row, calls; } plant; /* the product with silu, counted from 0, and the damaged row */

static void complain(const verbatim_request *q, uint32_t position, uint32_t point, const char *what) {
  if (failures++ < 5) print_error("request %ld, position %u, %s: %s\n", (long)(q - requests.list), position, running->names[point], what);
}

static traced *traced_of(const verbatim_request *q) { return &running->requests[q - requests.list]; }

/* As NUMERICS.md defines it, without the engine's own function. */
static uint64_t row_digest_of(const verbatim_point *point, const void *row) {
  uint64_t sum = 0;
  for (uint32_t i = 0; i < point->count; i++) {
    uint16_t half;
    uint32_t word;
    if (point->type == VERBATIM_POINT_BF16) memcpy(&half, (const uint8_t *)row + 2ull * i, 2), word = half;
    else memcpy(&word, (const uint8_t *)row + 4ull * i, 4);
    sum += num_digest_word(i, word);
  }
  return sum;
}

static bool wants_values(const verbatim_request *q, uint32_t position, uint32_t point) {
  (void)q;
  return (position + point) % 7 == 0;
}

static void on_values(verbatim_request *q, uint32_t position, uint32_t point, const void *row, size_t bytes) {
  const verbatim_point *p = &running->points[point];
  if (!wants_values(q, position, point)) complain(q, position, point, "values that nobody wants");
  if (bytes != p->count * (p->type == VERBATIM_POINT_BF16 ? 2ull : 4ull)) complain(q, position, point, "values of another size");
  traced_of(q)->of_values[(size_t)position * running->point_count + point] = row_digest_of(p, row);
}

static void on_trace(verbatim_request *q, uint32_t position, const uint64_t *digests) {
  traced *t = traced_of(q);
  size_t at = (size_t)position * running->point_count;
  uint64_t *row = t->digests + at;
  if (position > t->row_count) complain(q, position, 0, "a position was left out");
  bool again = position < t->row_count;
  t->again_count += again;
  if (!again) t->row_count++;
  for (uint32_t i = 0; i < running->point_count; i++) {
    bool has_none = running->is_logits[i] && digests[i] == 0;
    if (wants_values(q, position, i) && q->on_values && !has_none && digests[i] != t->of_values[at + i])
      complain(q, position, i, "the digest is not that of the values");
    if (again && !has_none && row[i] != digests[i]) complain(q, position, i, "computed again, it is another");
    if (!again && !running->is_logits[i] && digests[i] == 0) complain(q, position, i, "has no digest");
    if (!again) row[i] = digests[i];
  }
}

static void free_trace(trace *t) {
  for (uint32_t i = 0; i < REQUESTS; i++) {
    free(t->requests[i].digests);
    free(t->requests[i].of_values);
  }
  free(t->requests);
}

static void describe_points(trace *t, const verbatim *engine) {
  verbatim_info info = verbatim_describe(engine);
  assert_true(info.point_count > 0 && info.point_count <= POINTS_MAX);
  t->point_count = info.point_count;
  t->points = info.points;
  for (uint32_t i = 0; i < info.point_count; i++) {
    t->is_logits[i] = info.points[i].of_logits;
    snprintf(t->names[i], sizeof t->names[i], "%s", info.points[i].name);
  }
  for (uint32_t i = 0; i < REQUESTS; i++) {
    t->requests[i].digests = calloc((size_t)POSITIONS * info.point_count, sizeof(uint64_t));
    t->requests[i].of_values = calloc((size_t)POSITIONS * info.point_count, sizeof(uint64_t));
    assert_true(t->requests[i].digests && t->requests[i].of_values);
  }
}

/* Runs the requests [first, first + count), traced; values: half of the rows are also requested as values. */
static void run(const verbatim_config *config, uint32_t first, uint32_t count, bool values, trace *t) {
  verbatim *engine;
  verbatim_config c = *config;
  bool busy = true;
  *t = (trace){.requests = calloc(REQUESTS, sizeof *t->requests)};
  assert_non_null(t->requests);
  c.trace = true;
  if (verbatim_open(&engine, &c) != 0) fail_msg("%s", verbatim_error());
  describe_points(t, engine);
  running = t;
  failures = 0;
  for (uint32_t i = first; i < first + count; i++) {
    verbatim_request *q = &requests.list[i];
    q->on_trace = on_trace;
    q->on_values = values ? on_values : NULL;
    q->wants_values = values ? wants_values : NULL;
    if (verbatim_submit(engine, q) != 0) fail_msg("%s", verbatim_error());
  }
  plant.is_on = plant.is_wanted, plant.calls = 0; /* the engine is sound at start-up */
  while (busy) assert_int_equal(verbatim_poll(engine, &busy), 0);
  plant.is_on = false;
  t->counters = verbatim_count(engine);
  for (uint32_t i = first; i < first + count; i++) memcpy(t->requests[i].chain, requests.list[i].chain, 16);
  verbatim_close(engine);
  t->points = NULL;
  assert_int_equal(failures, 0);
}

/* The point at which two rows first differ, or point_count. */
static uint32_t first_difference(const trace *a, const trace *b, uint32_t request, uint32_t position) {
  const uint64_t *left = a->requests[request].digests + (size_t)position * a->point_count;
  const uint64_t *right = b->requests[request].digests + (size_t)position * a->point_count;
  uint32_t point = 0;
  while (point < a->point_count && left[point] == right[point]) point++;
  return point;
}

/* === However the work is split ============================================================================================== */

static verbatim_counters expect(const char *what, const verbatim_config *config, uint32_t first, uint32_t count, const trace *expected) {
  trace found;
  run(config, first, count, true, &found);
  assert_int_equal(found.point_count, expected->point_count);
  for (uint32_t i = first; i < first + count; i++) {
    if (found.requests[i].row_count != expected->requests[i].row_count)
      fail_msg("%s: request %u has %u rows, expected %u", what, i, found.requests[i].row_count, expected->requests[i].row_count);
    for (uint32_t position = 0; position < found.requests[i].row_count; position++) {
      uint32_t point = first_difference(&found, expected, i, position);
      if (point < found.point_count) fail_msg("%s: request %u, position %u: %s differs", what, i, position, found.names[point]);
    }
    assert_memory_equal(found.requests[i].chain, expected->requests[i].chain, 16);
  }
  verbatim_counters counters = found.counters;
  free_trace(&found);
  return counters;
}

static verbatim_counters expect_all(const char *what, const verbatim_config *config, const trace *expected) {
  return expect(what, config, 0, REQUESTS, expected);
}

/* Every row that the request needs, and none after them. */
static void check_rows(const trace *t) {
  for (uint32_t i = 0; i < REQUESTS; i++) {
    const verbatim_request *q = &requests.list[i];
    uint32_t expected = q->max_tokens == 0 ? q->prompt_count - 1 : q->prompt_count + q->token_count - 1;
    assert_int_equal(t->requests[i].row_count, expected);
  }
}

static uint32_t find_point(const trace *t, const char *name) {
  for (uint32_t i = 0; i < t->point_count; i++)
    if (strcmp(t->names[i], name) == 0) return i;
  fail_msg("no point %s", name);
  return 0;
}

/* The logits' digests are those of the receipt; adjusted rows are reported if something is adjusted, and logits if they are requested. */
static void check_logits(const trace *t) {
  uint32_t head = find_point(t, "lm_head"), adjust = find_point(t, "adjust"), norm = find_point(t, "final_norm");
  for (uint32_t i = 0; i < REQUESTS; i++) {
    const verbatim_request *q = &requests.list[i];
    bool adjusted = q->repetition_penalty != 1.0f || q->presence_penalty != 0.0f || q->frequency_penalty != 0.0f || q->bias_count > 0 ||
                    q->allowed_count > 0;
    for (uint32_t position = 0; position < t->requests[i].row_count; position++) {
      const uint64_t *row = t->requests[i].digests + (size_t)position * t->point_count;
      const verbatim_token *token = NULL;
      if (position + 1 >= q->prompt_count) token = &q->tokens[position + 1 - q->prompt_count];
      else if (q->score && position + 1 >= q->score_from) token = &q->scores[position + 1 - q->score_from];
      assert_true(row[head] == (token ? token->digest : 0));
      assert_int_equal(row[norm] != 0, token != NULL);
      assert_int_equal(row[adjust] != 0, adjusted && position + 1 >= q->prompt_count);
    }
  }
}

/* Some requests stop by an id before max_tokens: their next token is already being computed then. */
static void ask_for_stops(void) {
  static int32_t stops[REQUESTS];
  verbatim_config c = e2e_config(&model);
  for (uint32_t i = 0; i < REQUESTS; i++) requests.list[i].stop_count = 0;
  (void)e2e_run(&c, &requests, 0, REQUESTS);
  for (uint32_t i = 0; i < REQUESTS; i++) {
    verbatim_request *q = &requests.list[i];
    if (q->token_count < 3) continue;
    stops[i] = q->tokens[q->token_count / 2].id;
    q->stop_ids = &stops[i];
    q->stop_count = 1;
  }
}

static void forget_callbacks(void) {
  for (uint32_t i = 0; i < REQUESTS; i++) {
    verbatim_request *q = &requests.list[i];
    q->on_trace = NULL, q->on_values = NULL, q->wants_values = NULL;
  }
}

static void check_all(const char *config_path) {
  char other_plan[E2E_PATH_MAX];
  trace alone;
  e2e_make_model(&model, config_path, DEPLOY);
  e2e_make_plan(&model, "other", OTHER_LIMITS, other_plan);
  forget_callbacks();
  ask_for_stops();
  verbatim_config c = e2e_config(&model);
  c.max_active = 1;
  run(&c, 0, REQUESTS, false, &alone);
  check_rows(&alone);
  check_logits(&alone);
  c = e2e_config(&model);
  verbatim_counters counters = expect_all("together", &c, &alone);
  assert_true(counters.most_sequences > 1 && counters.mixed_steps > 0);
  c = e2e_config(&model), c.max_active = 7, c.chunk_tokens = 65, expect_all("batch", &c, &alone);
  c = e2e_config(&model), c.chunk_tokens = 1, expect_all("chunk of 1: split attention alone", &c, &alone);
  c = e2e_config(&model), c.shuffle_pages = 99, c.slot_offset = 61, expect_all("pages, slots", &c, &alone);
  c = e2e_config(&model), c.poison = c.direct = true, c.chunk_tokens = 13, expect_all("poison", &c, &alone);
  c = e2e_config(&model), c.plan_path = other_plan, c.poison = true, c.shuffle_pages = 3, expect_all("other limits", &c, &alone);
  c = e2e_config(&model), c.threads = 1, expect_all("one thread", &c, &alone);
  c = e2e_config(&model), c.device = VERBATIM_DEVICE_CPU, expect_all("CPU", &c, &alone);
  /* Steps that are not traced have the same bits. */
  forget_callbacks();
  c = e2e_config(&model);
  (void)e2e_run(&c, &requests, 0, REQUESTS);
  for (uint32_t i = 0; i < REQUESTS; i++) assert_memory_equal(requests.list[i].chain, alone.requests[i].chain, 16);
  free_trace(&alone);
  e2e_remove(&model);
}

static void v3(void **state) { (void)state, check_all("tests/oracle/small-v3.json"); }
static void minicpm3(void **state) { (void)state, check_all("tests/oracle/small-minicpm3.json"); }
static void mistral4(void **state) { (void)state, check_all("tests/oracle/small-mistral4.json"); }

/* Four pages for three requests that grow to three pages each: the later ones are preempted. */
static void rows_computed_again_are_the_same(void **state) {
  (void)state;
  const e2e_requests kept = requests;
  char other_plan[E2E_PATH_MAX];
  uint32_t again = 0;
  trace alone, crowded;
  e2e_make_model(&model, "tests/oracle/small-v3.json", DEPLOY);
  e2e_make_plan(&model, "other", OTHER_LIMITS, other_plan);
  e2e_requests_make(&requests, 4, VOCAB, 60, 100);
  for (uint32_t i = 1; i < 4; i++) requests.list[i].max_tokens = 100, requests.list[i].ignore_eos = true;
  verbatim_config c = e2e_config(&model);
  c.max_active = 1;
  run(&c, 1, 3, false, &alone);
  c = e2e_config(&model), c.plan_path = other_plan, c.poison = true;
  verbatim_counters counters = expect("preempted", &c, 1, 3, &alone);
  assert_true(counters.preemptions > 0 && counters.recomputed_tokens > 0);
  run(&c, 1, 3, true, &crowded);
  for (uint32_t i = 1; i < 4; i++) again += crowded.requests[i].again_count;
  assert_true(again > 0);
  free_trace(&crowded);
  free_trace(&alone);
  e2e_requests_free(&requests);
  requests = kept;
  e2e_remove(&model);
}

/* === A planted bit ========================================================================================================== */

void __real_cpu_gemm(const gemm_args *args, cpu_pool *pool);
void __wrap_cpu_gemm(const gemm_args *args, cpu_pool *pool);
void __real_cpu_moe_gemm(const moe_gemm_args *args, cpu_pool *pool);
void __wrap_cpu_moe_gemm(const moe_gemm_args *args, cpu_pool *pool);

static void plant_bit(uint32_t y_kind, void *y, uint64_t stride) {
  if (plant.is_on && y_kind == Y_SILU && plant.calls++ == plant.call) ((bf16 *)y)[plant.row * stride + 5] ^= 1;
}

void __wrap_cpu_gemm(const gemm_args *args, cpu_pool *pool) {
  __real_cpu_gemm(args, pool);
  plant_bit(args->y_kind, args->y, args->ldy);
}

void __wrap_cpu_moe_gemm(const moe_gemm_args *args, cpu_pool *pool) {
  __real_cpu_moe_gemm(args, pool);
  plant_bit(args->y_kind, args->y, args->n / 2);
}

/* Request 1 has the longest prompt, all of it in one step. Layer 0 is dense; each of the others has experts and shared experts. */
static void a_planted_bit_shows_from_its_op_on(void **state) {
  (void)state;
  const struct { uint32_t call, row; const char *name; bool sorted; } cases[] = {
      {0, 0, "layer 0 gate_up", false},  {0, 77, "layer 0 gate_up", false},        {1, 149, "layer 1 shared gate_up", false},
      {3, 20, "layer 2 shared gate_up", false}, {2, 33, "layer 1 experts gate_up", true}, {4, 250, "layer 2 experts gate_up", true}};
  trace sound;
  e2e_make_model(&model, "tests/oracle/small-v3.json", DEPLOY);
  verbatim_config c = e2e_config(&model);
  c.device = VERBATIM_DEVICE_CPU;
  requests.list[1].max_tokens = 1;
  run(&c, 1, 1, true, &sound);
  assert_int_equal(sound.requests[1].row_count, PROMPT_MAX);
  for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
    trace broken;
    uint32_t hit = UINT32_MAX, point = find_point(&sound, cases[i].name);
    plant.is_wanted = true, plant.call = cases[i].call, plant.row = cases[i].row;
    run(&c, 1, 1, true, &broken);
    plant.is_wanted = false;
    for (uint32_t position = 0; position < PROMPT_MAX; position++) {
      uint32_t first = first_difference(&sound, &broken, 1, position);
      if (hit == UINT32_MAX && first < sound.point_count) { /* the damaged token */
        if (first != point) fail_msg("expected %s, found %s", cases[i].name, sound.names[first]);
        hit = position;
      } else if (first <= point) { /* later tokens read it through the attention of later layers */
        fail_msg("%s: position %u differs from %s on", cases[i].name, position, sound.names[first]);
      }
    }
    assert_true(cases[i].sorted ? hit != UINT32_MAX : hit == cases[i].row);
    free_trace(&broken);
  }
  free_trace(&sound);
  e2e_remove(&model);
}

/* === Refusals =============================================================================================================== */

static void rows_are_refused_without_trace(void **state) {
  (void)state;
  verbatim *engine;
  e2e_make_model(&model, "tests/oracle/small-v3.json", DEPLOY);
  verbatim_config c = e2e_config(&model);
  assert_int_equal(verbatim_open(&engine, &c), 0);
  assert_int_equal(verbatim_describe(engine).point_count, 0);
  verbatim_request q = requests.list[0];
  q.on_trace = on_trace, q.on_values = NULL, q.wants_values = NULL;
  assert_int_equal(verbatim_submit(engine, &q), VERBATIM_ERR_USAGE);
  q.on_trace = NULL, q.on_values = on_values, q.wants_values = wants_values;
  assert_int_equal(verbatim_submit(engine, &q), VERBATIM_ERR_USAGE);
  verbatim_close(engine);
  e2e_remove(&model);
}

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(v3), cmocka_unit_test(minicpm3), cmocka_unit_test(mistral4),
                                     cmocka_unit_test(rows_computed_again_are_the_same),
                                     cmocka_unit_test(a_planted_bit_shows_from_its_op_on),
                                     cmocka_unit_test(rows_are_refused_without_trace)};
  e2e_begin(argc, argv);
  e2e_requests_make(&requests, REQUESTS, VOCAB, PROMPT_MAX, TOKENS_MAX);
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  e2e_requests_free(&requests);
  return failed;
}

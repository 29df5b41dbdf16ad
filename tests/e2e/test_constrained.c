/* test_constrained.c - constrained output on the shipped model: every answer is what its constraint says, with the same bits alone, in a
 * batch, chunked, after prefix hits and preemptions, with drafts that are right or wrong, and over several ranks.
 *
 * Judges: PCRE2 for expressions, jansson for JSON. Controls: a mask that is one token stale, a draft row that has the mask of the row
 * before it, and a row of the kept masks that is not uploaded when it holds another one, are found. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "tests/unit/unit.h"
#include <jansson.h>
#include <pcre2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "e2e.h"
#include "engine/constrain/masks.h"

#ifdef __SANITIZE_ADDRESS__
enum { COUNT = 8 }; /* instrumented code is slow */
#else
enum { COUNT = 21 };
#endif
enum { TOKENS = 24, FEW = 7, PROMPT = 64, SHARED = 70, TOP = 3, FEW_MASKS = 12 };

#define SIZES "max-num-seqs: 64\nmax-num-batched-tokens: 512\nmax-model-len: 256\nladder: [1, 64]\n"
#define ON "structured-outputs: on\n"
#define NGRAM "speculative-config: {method: ngram, num-speculative-tokens: 5, prompt-lookup-min: 2}\n"

static const struct {
  enum verbatim_constraint_kind kind;
  const char *text;
} ASKED[] = {{VERBATIM_REGEX, "[A-Z][a-z]{2,9}( [a-z]+){1,3}\\."},
             {VERBATIM_CHOICE, "[\"yes\",\"no\",\"it depends\",\"日本\"]"},
             {VERBATIM_JSON_SCHEMA,
              "{\"type\":\"object\",\"properties\":{\"n\":{\"type\":\"integer\",\"minimum\":-20,\"maximum\":340},\"s\":{"
              "\"type\":\"string\",\"maxLength\":6},\"l\":{\"type\":\"array\",\"items\":{\"enum\":[\"a\",null,2]},\"maxItems\":2}},"
              "\"required\":[\"n\",\"s\"]}"},
             {(enum verbatim_constraint_kind)0, ""}, /* without one */
             {VERBATIM_REGEX, "\\d{1,3}(, \\d{1,3})*"},
             {VERBATIM_JSON_OBJECT, ""},
             {VERBATIM_PARTS, "[{\"text\":\"<call>\"},{\"json_schema\":{\"type\":\"boolean\"}},{\"regex\":\"(!|\\\\?)?\"}]"}};

static e2e_model model;
static verbatim_constraint *constraints[ARRAY_LEN(ASKED)];
static verbatim_request list[COUNT];
static verbatim_token outputs[COUNT][TOKENS + PROMPT + SHARED], truth[COUNT][TOKENS];
static verbatim_alternative alternatives[COUNT][TOKENS + PROMPT + SHARED][TOP];
static int32_t prompts[COUNT][PROMPT + SHARED];
static e2e_requests requests = {.count = COUNT, .list = list};
static digest expected, expected_few; /* of all, and of the first few */

/* === Planted faults ========================================================================================================= */

enum fault { SOUND, STALE_MASK, STALE_DRAFT_ROWS, STALE_ROWS };
static enum fault fault;
static uint32_t before[COUNT]; /* states that masks were asked for last, by request */
static uint32_t room_most = UINT32_MAX; /* masks that are kept */

status __real_masks_open(masks *self, const tokenizer *t, uint32_t vocab, uint32_t words, uint32_t room, arena *host);
status __wrap_masks_open(masks *self, const tokenizer *t, uint32_t vocab, uint32_t words, uint32_t room, arena *host);
masks_row __real_masks_find(masks *self, const verbatim_constraint *c, uint32_t state, const int32_t *stops, uint32_t count);
masks_row __wrap_masks_find(masks *self, const verbatim_constraint *c, uint32_t state, const int32_t *stops, uint32_t count);

status __wrap_masks_open(masks *self, const tokenizer *t, uint32_t vocab, uint32_t words, uint32_t room, arena *host) {
  return __real_masks_open(self, t, vocab, words, room < room_most ? room : room_most, host);
}

/* Requests run one at a time under a fault: the state of the mask before is the request's own. */
masks_row __wrap_masks_find(masks *self, const verbatim_constraint *c, uint32_t state, const int32_t *stops, uint32_t count) {
  static uint32_t calls;
  const uint32_t old = before[0];
  const bool is_chosen = fault == STALE_MASK || (fault == STALE_DRAFT_ROWS && calls++ % 2);
  const bool is_stale = is_chosen && state != AUTOMATON_START;
  before[0] = state;
  masks_row found = __real_masks_find(self, c, is_stale && old ? old : state, stops, count);
  if (fault == STALE_ROWS) found.made = 1; /* as if a row always held the same mask */
  return found;
}

/* === Requests =============================================================================================================== */

static void begin(void) {
  strcpy(model.model_dir, "tests/tiny");
  snprintf(model.folder, sizeof model.folder, "/tmp/verbatim-constrained-XXXXXX");
  assert_non_null(mkdtemp(model.folder));
  e2e_make_plan(&model, "plan", SIZES "kv_pages: 256\n" ON, model.plan_path);
  for (size_t i = 0; i < ARRAY_LEN(ASKED); i++)
    if (ASKED[i].kind) assert_int_equal(verbatim_constraint_open(&constraints[i], ASKED[i].kind, ASKED[i].text, strlen(ASKED[i].text)), 0);
  for (uint32_t i = 0; i < COUNT; i++) {
    const uint32_t shared = i % 5 == 2 ? SHARED : 0, own = 44 + i % 19; /* a page that some have in common */
    for (uint32_t k = 0; k < shared + own; k++) prompts[i][k] = (int32_t)(k < shared ? 20 + k : 16 + (i * 31 + k * 7) % 80);
    list[i] = VERBATIM_REQUEST_DEFAULTS;
    list[i].prompt = prompts[i];
    list[i].prompt_count = shared + own;
    list[i].max_tokens = TOKENS - i % 5;
    list[i].temperature = i % 2 ? 1.3f : 0;
    list[i].top_p = i % 4 == 1 ? 0.9 : 1;
    list[i].frequency_penalty = i % 5 == 0 ? 0.5f : 0;
    list[i].seed = i;
    list[i].sample_index = i % 2;
    list[i].top_logprobs = i % 3;
    list[i].score = i % 11 == 1;
    list[i].score_from = list[i].score;
    list[i].constraint = constraints[i % ARRAY_LEN(ASKED)];
    list[i].tokens = outputs[i];
    list[i].scores = outputs[i] + TOKENS;
    list[i].alternatives = alternatives[i][0];
  }
}

static verbatim_config config_of(const char *plan_path) {
  verbatim_config config = e2e_config(&model);
  config.plan_path = plan_path;
  config.text = true;
  return config;
}

static void expect_same(const char *what, const verbatim_config *config, verbatim_counters *counters) {
  const digest found = e2e_run_counted(config, &requests, 0, COUNT, counters);
  if (memcmp(found.bytes, expected.bytes, DIGEST_BYTES) != 0) fail_msg("%s: another receipt", what);
}

/* === Answers ================================================================================================================ */

static bool is_whole_match(const char *pattern, const char *text, size_t bytes) {
  char whole[512];
  int error;
  PCRE2_SIZE at;
  snprintf(whole, sizeof whole, "\\A(?:%s)\\z", pattern);
  pcre2_code *judge = pcre2_compile((PCRE2_SPTR)whole, PCRE2_ZERO_TERMINATED, PCRE2_UTF, &error, &at, NULL);
  pcre2_match_data *match = pcre2_match_data_create(1, NULL);
  const bool is_match = pcre2_match(judge, (PCRE2_SPTR)text, bytes, 0, 0, match, NULL) >= 0;
  pcre2_match_data_free(match);
  pcre2_code_free(judge);
  return is_match;
}

static bool is_of_schema(const json_t *value) {
  const json_t *n = json_object_get(value, "n"), *s = json_object_get(value, "s"), *l = json_object_get(value, "l"), *entry;
  size_t i, points = 0;
  if (!json_is_integer(n) || json_integer_value(n) < -20 || json_integer_value(n) > 340 || !json_is_string(s)) return false;
  for (i = 0; i < json_string_length(s); i++) points += ((unsigned char)json_string_value(s)[i] & 0xc0) != 0x80;
  json_array_foreach(l, i, entry) {
    const char *text = json_is_string(entry) ? json_string_value(entry) : "";
    if (!json_is_null(entry) && json_integer_value(entry) != 2 && strcmp(text, "a") != 0) return false;
  }
  return points <= 6 && json_array_size(l) <= 2 && json_object_size(value) == (l ? 3 : 2);
}

static bool is_right(uint32_t kind, const char *text, size_t bytes) {
  if (ASKED[kind].kind == VERBATIM_REGEX) return is_whole_match(ASKED[kind].text, text, bytes);
  if (ASKED[kind].kind == VERBATIM_CHOICE) return is_whole_match("yes|no|it depends|日本", text, bytes);
  if (ASKED[kind].kind == VERBATIM_PARTS) return is_whole_match("<call>(true|false)[!?]?", text, bytes);
  json_t *value = json_loadb(text, bytes, JSON_ALLOW_NUL, NULL);
  const bool is_value = json_is_object(value) && (ASKED[kind].kind == VERBATIM_JSON_OBJECT || is_of_schema(value));
  json_decref(value);
  return is_value;
}

static void answers_are_what_was_asked_for(void **state) {
  verbatim_config config = config_of(model.plan_path);
  verbatim_counters counters;
  verbatim *engine;
  uint32_t whole = 0;
  (void)state;
  config.max_active = 1;
  config.no_prefix_cache = true;
  expected_few = e2e_run(&config, &requests, 0, FEW);
  expected = e2e_run_counted(&config, &requests, 0, COUNT, &counters);
  assert_int_equal(verbatim_open(&engine, &config), 0);
  for (uint32_t i = 0; i < COUNT; i++) {
    static char text[4096];
    int32_t ids[TOKENS];
    size_t bytes = 0;
    memcpy(truth[i], outputs[i], sizeof truth[i]);
    if (!list[i].constraint || list[i].finish != VERBATIM_STOP) continue;
    for (uint32_t k = 0; k + 1 < list[i].token_count; k++) ids[k] = outputs[i][k].id;
    assert_int_equal(verbatim_decode(engine, ids, list[i].token_count - 1, text, sizeof text, &bytes), 0);
    if (!is_right(i % ARRAY_LEN(ASKED), text, bytes)) fail_msg("request %u: %.*s", i, (int)bytes, text);
    whole++;
  }
  verbatim_close(engine);
  assert_true(whole >= COUNT / 3);
}

/* === The same bits ========================================================================================================== */

static void bits_do_not_depend_on_the_batch(void **state) {
  verbatim_config config = config_of(model.plan_path);
  verbatim_counters counters;
  (void)state;
  expect_same("a batch", &config, &counters);
  assert_true(counters.most_sequences >= COUNT / 2);
  config.chunk_tokens = 7;
  config.slot_offset = 3;
  config.shuffle_pages = 5;
  config.poison = true;
  config.max_active = 4;
  expect_same("chunks", &config, &counters);
  assert_true(counters.reused_tokens > 0);
  config.trace = true;
  expect_same("watched steps", &config, &counters);
  config.trace = false;
  room_most = FEW_MASKS;
  expect_same("few masks that are kept", &config, &counters);
  room_most = UINT32_MAX;
}

static void bits_survive_preemption(void **state) {
  char path[E2E_PATH_MAX];
  verbatim_counters counters;
  (void)state;
  e2e_make_plan(&model, "tight", SIZES "kv_pages: 4\n" ON, path);
  const verbatim_config config = config_of(path);
  expect_same("few pages", &config, &counters);
  assert_true(counters.preemptions > 0);
}

static void bits_do_not_depend_on_ranks(void **state) {
  char path[E2E_PATH_MAX];
  verbatim_counters counters;
  (void)state;
  if (e2e_device() != VERBATIM_DEVICE_CPU) skip(); /* one GPU */
  e2e_make_plan(&model, "ranks", SIZES "kv_pages: 256\ntensor-parallel-size: 2\n" ON, path);
  const verbatim_config config = config_of(path);
  expect_same("two ranks", &config, &counters);
}

/* Of each request's tokens, or every other one of them another token. */
static uint32_t guess_right(verbatim_request *request, int32_t *ids, uint32_t most) {
  const ptrdiff_t number = request - list;
  uint32_t count = 0;
  for (; count < most && request->token_count + count < request->max_tokens; count++)
    ids[count] = truth[number][request->token_count + count].id;
  return count;
}

static uint32_t guess_half(verbatim_request *request, int32_t *ids, uint32_t most) {
  const uint32_t count = guess_right(request, ids, most);
  for (uint32_t i = request->token_count % 2; i < count; i += 2) ids[i] = (ids[i] + 37) % 300;
  return count;
}

static void bits_do_not_depend_on_drafts(void **state) {
  char path[E2E_PATH_MAX];
  verbatim_counters counters;
  (void)state;
  e2e_make_plan(&model, "drafts", SIZES "kv_pages: 256\n" NGRAM ON, path);
  verbatim_config config = config_of(path);
  expect_same("prompt lookup", &config, &counters);
  config.max_active = 5;
  for (uint32_t i = 0; i < COUNT; i++) list[i].on_draft = guess_right;
  expect_same("right drafts", &config, &counters);
  assert_true(counters.accepted_tokens > counters.drafted_tokens / 2 && counters.accepted_tokens > COUNT);
  for (uint32_t i = 0; i < COUNT; i++) list[i].on_draft = guess_half;
  expect_same("wrong drafts", &config, &counters);
  assert_true(counters.accepted_tokens > 0);
  for (uint32_t i = 0; i < COUNT; i++) list[i].on_draft = NULL;
}

/* === Controls =============================================================================================================== */

/* In a process of its own: the engine may end it. Returns whether the answers differed or it did. */
static bool is_found(enum fault planted, const char *plan_path, bool guesses) {
  fflush(NULL);
  const pid_t child = fork();
  int code = 0;
  if (child == 0) {
    verbatim_config config = config_of(plan_path);
    config.max_active = 1;
    fault = planted;
    if (planted == STALE_ROWS) room_most = FEW_MASKS;
    if (!freopen("/dev/null", "w", stderr)) _Exit(1);
    for (uint32_t i = 0; i < COUNT && guesses; i++) list[i].on_draft = guess_right;
    const digest found = e2e_run(&config, &requests, 0, FEW);
    _Exit(memcmp(found.bytes, expected_few.bytes, sizeof found.bytes) == 0 ? 0 : 3);
  }
  assert_int_equal(waitpid(child, &code, 0), child);
  return code != 0;
}

static void stale_masks_are_found(void **state) {
  char path[E2E_PATH_MAX];
  (void)state;
  if (e2e_device() != VERBATIM_DEVICE_CPU) skip(); /* a driver that is in use does not survive a fork */
  assert_true((size_t)snprintf(path, sizeof path, "%s/drafts", model.folder) < sizeof path);
  assert_false(is_found(SOUND, model.plan_path, false));
  assert_true(is_found(STALE_MASK, model.plan_path, false));
  assert_true(is_found(STALE_ROWS, model.plan_path, false));
  assert_false(is_found(SOUND, path, true));
  assert_true(is_found(STALE_DRAFT_ROWS, path, true));
}

/* === Refusals and files ===================================================================================================== */

static void refuse(verbatim *engine, verbatim_request request, const char *reason) {
  assert_int_not_equal(verbatim_submit(engine, &request), 0);
  if (!strstr(verbatim_error(), reason)) fail_msg("%s", verbatim_error());
}

static void what_cannot_be_is_refused(void **state) {
  static const int32_t allowed[] = {20, 21};
  char path[E2E_PATH_MAX];
  verbatim_config config = config_of(model.plan_path);
  verbatim_request request = list[0];
  verbatim *engine;
  (void)state;
  assert_int_equal(verbatim_open(&engine, &config), 0);
  request.allowed_ids = allowed;
  request.allowed_count = 2;
  refuse(engine, request, "allowed ids or a constraint");
  request.allowed_count = 0;
  request.ignore_eos = true;
  refuse(engine, request, "a stop id");
  verbatim_close(engine);
  config.text = false;
  assert_int_equal(verbatim_open(&engine, &config), 0);
  refuse(engine, list[0], "without text");
  verbatim_close(engine);
  e2e_make_plan(&model, "without", SIZES "kv_pages: 256\n", path);
  config = config_of(path);
  assert_int_equal(verbatim_open(&engine, &config), 0);
  refuse(engine, list[0], "structured-outputs: on");
  verbatim_close(engine);
}

/* The command line, a receipt that is read back, and a trace that is audited. */
static void receipts_repeat_constraints(void **state) {
  static char output[1 << 16];
  (void)state;
  const char *run = "$V run plan $TINY 'The ' --max-tokens 30 --n 3 --temperature 1 --device cpu --quiet ";
  char command[1024];
  snprintf(command, sizeof command,
           "%s --regex '[a-f]{3}-\\d\\d' --receipt r --trace t --trace-values audit:layer=1,position=6 > o && "
           "grep -Eqx '(\\[0#[0-2]\\] )?[a-f]{3}-[0-9]{2}' o && grep -q '\"constraint\":\\[\"regex\"' r && "
           "$V verify r plan $TINY --device cpu && $V audit t plan $TINY", run);
  if (e2e_shell(&model, "", command, output, sizeof output) != 0) fail_msg("%s", output);
  snprintf(command, sizeof command, "sed 's/a-f/a-e/' r > s; $V verify s plan $TINY --device cpu");
  assert_int_not_equal(e2e_shell(&model, "", command, output, sizeof output), 0); /* another constraint is another request */
  snprintf(command, sizeof command, "%s --regex '('", run);
  assert_int_equal(e2e_shell(&model, "", command, output, sizeof output), 2);
  assert_non_null(strstr(output, "--regex: regex: byte 1"));
  snprintf(command, sizeof command, "printf '%%s\\n' '{\"prompt\":\"x\",\"structured_outputs\":{\"choice\":[\"left\",\"right\"]}}' > q && "
                                    "$V run plan $TINY --jsonl q --device cpu --quiet | grep -Eqx 'left|right'");
  if (e2e_shell(&model, "", command, output, sizeof output) != 0) fail_msg("%s", output);
}

int main(int argc, char **argv) {
  e2e_begin(argc, argv);
  begin();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(answers_are_what_was_asked_for), cmocka_unit_test(bits_do_not_depend_on_the_batch),
      cmocka_unit_test(bits_survive_preemption),        cmocka_unit_test(bits_do_not_depend_on_ranks),
      cmocka_unit_test(bits_do_not_depend_on_drafts),   cmocka_unit_test(stale_masks_are_found),
      cmocka_unit_test(what_cannot_be_is_refused),      cmocka_unit_test(receipts_repeat_constraints)};
  const int failed = cmocka_run_group_tests(tests, NULL, NULL);
  for (size_t i = 0; i < ARRAY_LEN(ASKED); i++) verbatim_constraint_close(constraints[i]);
  e2e_remove(&model);
  return failed;
}

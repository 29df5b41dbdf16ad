/* test_schedule_drafts.c - the scheduler with drafts on a late backend: results stay the requests' own, rows behind a wrong draft are
 * dropped and computed again, drafts preempt nobody, and a draft whose row is not finite breaks nothing. Also prompt lookup by itself. */
#include "tests/unit/requests/late_backend.h"
#include "engine/requests/lookup.h"
#include <string.h>

enum drafter { NOBODY, RIGHT, WRONG, HALF, NOT_FINITE, NO_IDS };

static verbatim_token truth[REQUESTS][200]; /* of a run without drafts */
static enum drafter drafter;
static uint32_t longest; /* most drafts at a time */

static uint32_t on_draft(verbatim_request *r, int32_t *ids, uint32_t most) {
  const uint32_t number = (uint32_t)((const asked *)(const void *)r - asks), count = min_u32(most, longest);
  for (uint32_t i = 0; i < count; i++) {
    const uint32_t at = r->token_count + i;
    const int32_t right = truth[number][at].id, wrong = (right + 1) % 40;
    const bool is_odd = (number * 7 + at * 3) % 5 < 3;
    ids[i] = drafter == RIGHT || (drafter != WRONG && is_odd) ? right : drafter == NOT_FINITE ? BROKEN : drafter == NO_IDS ? -1 : wrong;
  }
  return count;
}

static bool grows; /* fewer requests, which generate many tokens */

/* Runs all requests with the drafter. Returns how many are not right. */
static uint32_t run_all(bool eager, const plan_limits *limits, schedule_options options) {
  uint32_t wrong = 0, count = grows ? 12 : REQUESTS;
  open_machine(eager, limits, options);
  for (uint32_t i = 0; i < count; i++) {
    asked *a = grows ? ask(i, 20 + i * 13 % 40, 150, false) : ask_all(i);
    if (grows) a->request.ignore_eos = i % 3 == 0;
    if (drafter != NOBODY) a->request.on_draft = on_draft;
    submit(a);
  }
  run_out();
  for (uint32_t i = 0; i < count; i++) {
    const asked *a = &asks[i];
    wrong += !is_right(a) || a->tokens_seen != a->request.token_count;
    if (drafter == NOBODY) memcpy(truth[i], a->tokens, sizeof truth[i]);
    assert_true(a->request.accepted_count <= a->request.drafted_count);
  }
  arena_close(&late_host);
  return wrong;
}

static void drafts_leave_the_results(void **state) {
  (void)state;
  plan_limits tight = LIMITS, narrow = LIMITS;
  tight.kv_pages = 4;
  narrow.max_batch_tokens = SEQS + 1, narrow.max_logit_rows = SEQS + 1, narrow.attn_tile_tokens = 1;
  const plan_limits *const limits[] = {&LIMITS, &tight, &narrow};
  const schedule_options options[] = {{0}, {.max_active = 2}, {.chunk_tokens = 5, .slot_offset = 4}, {.shuffle_pages = 9}};
  uint64_t steps[NO_IDS + 1] = {0};
  for (drafter = NOBODY; drafter <= NO_IDS; drafter++)
    for (size_t i = 0; i < ARRAY_LEN(limits) * ARRAY_LEN(options); i++) {
      longest = 1 + (uint32_t)i % 6;
      assert_int_equal(run_all(i % 2, limits[i / ARRAY_LEN(options)], options[i % ARRAY_LEN(options)]), 0);
      const verbatim_counters *c = &batching.counters;
      steps[drafter] += c->steps;
      if (drafter != NOBODY && i < ARRAY_LEN(options)) assert_true(c->drafts > 10 && c->drafted_tokens >= c->drafts);
      if (drafter == RIGHT) assert_true(c->accepted_tokens > c->drafted_tokens * 8 / 10); /* not behind a stop */
      if (drafter == WRONG) assert_int_equal(c->accepted_tokens, 0);
      uint64_t at_places = 0;
      for (uint32_t k = 0; k < VERBATIM_DRAFT_TOKENS_MAX; k++) at_places += c->accepted_at[k];
      assert_int_equal(at_places, c->accepted_tokens);
    }
  assert_true(steps[RIGHT] < steps[NOBODY] && steps[HALF] > steps[RIGHT]);
}

/* Sequences that are preempted and computed again, with drafts before and after. */
static void preempted_requests_go_on(void **state) {
  (void)state;
  uint64_t preemptions = 0;
  grows = true;
  for (uint32_t round = 0; round < 12; round++) {
    plan_limits limits = LIMITS;
    limits.kv_pages = 4 + round % 4;
    const schedule_options options = {.chunk_tokens = round % 3 ? 0 : 11, .no_prefix_cache = round % 4 < 2};
    for (drafter = NOBODY; drafter <= NO_IDS; drafter++) {
      longest = 1 + round % 6;
      assert_int_equal(run_all(round % 2, &limits, options), 0);
      if (drafter != NOBODY) preemptions += batching.counters.preemptions;
    }
  }
  assert_true(preemptions > 100);
  grows = false;
}

/* Control: a run that keeps what a wrong draft made is seen. */
static void a_wrong_draft_is_seen(void **state) {
  (void)state;
  drafter = NOBODY;
  assert_int_equal(run_all(true, &LIMITS, (schedule_options){0}), 0);
  truth[3][1].id ^= 1;
  asked *a = &asks[3];
  assert_true(a->request.token_count > 2 && is_right(a));
  a->tokens[1].id ^= 1;
  assert_false(is_right(a));
}

static void no_drafts_where_they_are_off(void **state) {
  (void)state;
  drafter = RIGHT, longest = 4;
  assert_int_equal(run_all(false, &LIMITS, (schedule_options){.no_drafts = true}), 0);
  assert_int_equal(batching.counters.drafts, 0);
}

/* With pages for two sequences of two, drafts do not take a page that preempts the other. */
static void drafts_preempt_nobody(void **state) {
  (void)state;
  uint64_t preemptions[2];
  for (int has_drafts = 0; has_drafts < 2; has_drafts++) {
    plan_limits limits = LIMITS;
    limits.kv_pages = 4;
    drafter = WRONG, longest = 6;
    open_machine(true, &limits, (schedule_options){.max_active = 2, .no_prefix_cache = true});
    for (uint32_t i = 0; i < 2; i++) {
      asked *a = ask(i, 40, 70, false); /* 110 tokens: two pages each */
      a->request.ignore_eos = true;
      if (has_drafts) a->request.on_draft = on_draft;
      submit(a);
    }
    run_out();
    preemptions[has_drafts] = batching.counters.preemptions;
    assert_true(is_right(&asks[0]) && is_right(&asks[1]));
    arena_close(&late_host);
  }
  assert_int_equal(preemptions[0], 0);
  assert_int_equal(preemptions[1], 0);
}

/* === Prompt lookup ========================================================================================================== */

static void lookup_runs_leave_the_results(void **state) {
  (void)state;
  plan_limits limits = LIMITS;
  limits.speculation = SPECULATION_NGRAM, limits.draft_tokens = 4, limits.match_min = 2, limits.match_max = 8;
  drafter = NOBODY;
  for (int eager = 0; eager < 2; eager++) {
    assert_int_equal(run_all(eager, &limits, (schedule_options){0}), 0);
    assert_int_equal(run_all(eager, &limits, (schedule_options){.max_active = 1, .shuffle_pages = 2}), 0);
  }
}

/* What a search of all positions finds: the newest of the longest runs; 0: none. */
static uint32_t search(const plan_limits *limits, const int32_t *ids, uint32_t count) {
  uint32_t longest_run = limits->match_min - 1, from = 0;
  for (uint32_t at = count - 1; at > 0; at--) { /* a run that ends at at - 1 */
    uint32_t length = 0;
    while (length < limits->match_max && length < at && ids[at - 1 - length] == ids[count - 1 - length]) length++;
    if (length > longest_run) longest_run = length, from = at;
  }
  return from;
}

static void lookup_finds_every_run(void **state) {
  (void)state;
  plan_limits limits = {.max_seqs = 1, .max_len = 256, .match_min = 2, .match_max = 6, .draft_tokens = 5};
  int32_t ids[200], guess[5];
  lookup *index = NULL;
  arena host = {0};
  assert_int_equal(lookup_open(&limits, &host, &index), OK);
  uint32_t found = 0, missing = 0;
  for (uint32_t round = 0; round < 60; round++) {
    verbatim_request r = {.prompt = ids, .prompt_count = 200};
    const uint32_t kinds = 2 + round % 9 * 3;
    for (uint32_t i = 0; i < 200; i++) ids[i] = (int32_t)((round * 7919u + i * i * 31u + i / 7 * 17u) % 1009 % kinds);
    lookup_clear(index);
    for (uint32_t count = 1; count <= 200; count++) {
      lookup_add(index, &limits, &r, count);
      const uint32_t from = search(&limits, ids, count), most = 1 + count % 5, given = lookup_guess(index, &limits, &r, most, guess);
      found += given > 0, missing += given == 0;
      assert_int_equal(given, from ? most : 0);
    }
  }
  assert_true(found > 1000 && missing > 100);
  arena_close(&host);
}

/* A guess that runs into the newest token goes on with itself. */
static void a_loop_is_guessed_on(void **state) {
  (void)state;
  plan_limits limits = {.max_seqs = 1, .max_len = 64, .match_min = 2, .match_max = 8, .draft_tokens = 8};
  static const int32_t ids[] = {9, 1, 2, 3, 1, 2, 3, 1}, expected[] = {2, 3, 1, 2, 3, 1, 2, 3};
  const verbatim_request r = {.prompt = ids, .prompt_count = ARRAY_LEN(ids)};
  int32_t guess[8];
  lookup *index = NULL;
  arena host = {0};
  assert_int_equal(lookup_open(&limits, &host, &index), OK);
  lookup_add(index, &limits, &r, ARRAY_LEN(ids));
  assert_int_equal(lookup_guess(index, &limits, &r, 8, guess), 8);
  assert_memory_equal(guess, expected, sizeof expected);
  arena_close(&host);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(drafts_leave_the_results),     cmocka_unit_test(preempted_requests_go_on),
      cmocka_unit_test(a_wrong_draft_is_seen),
      cmocka_unit_test(no_drafts_where_they_are_off), cmocka_unit_test(drafts_preempt_nobody),
      cmocka_unit_test(lookup_runs_leave_the_results), cmocka_unit_test(lookup_finds_every_run),
      cmocka_unit_test(a_loop_is_guessed_on),
  };
  return cmocka_run_group_tests(tests, open_small, close_small);
}

/* test_schedule_pages.c - the scheduler on a late backend, with a focus on pages: shared prefixes, preemption and fairness; also requests
 * that end early: deadlines, non-finite values. A control corrupts a stored page. */
#include "tests/unit/requests/late_backend.h"
#include <string.h>

/* === Prefixes and preemption ================================================================================================ */

/* Like ask_all, but prompts share beginnings: each starts with one of three prefixes, whose lengths are near page boundaries. After their
 * first page the three continue with the same tokens: equal pages of different contexts, which must not be confused. */
static asked *ask_alike(uint32_t i) {
  static const uint32_t shared[] = {0, 63, 64, 65, 127, 128, 129, 140};
  asked *a = ask_all(i);
  uint32_t count = min_u32(shared[i * 5 % ARRAY_LEN(shared)], a->request.prompt_count);
  for (uint32_t k = 0; k < count; k++) a->prompt[k] = (int32_t)(mix(k < 64 ? i % 3 : 3, (int32_t)k) >> 9) & 31;
  return a;
}

static uint32_t run_alike(const plan_limits *limits, schedule_options options, bool spoil) {
  uint32_t right = 0;
  open_machine(false, limits, options);
  for (uint32_t i = 0; i < REQUESTS; i++) submit(ask_alike(i));
  for (uint32_t i = 0; i < STEPS_MAX && step(); i++)
    if (spoil && batching.pages.newest != PAGES_NONE) late.kv[batching.pages.newest * 64 + 5] = 33; /* in a stored page */
  run_out();
  for (uint32_t i = 0; i < REQUESTS; i++) {
    const verbatim_request *r = &asks[i].request;
    right += is_right(&asks[i]);
    if (r->finish != VERBATIM_NONFINITE && !spoil) assert_int_equal(asks[i].logits_seen, r->on_logits ? request_computed(r) : 0);
    if (r->finish != VERBATIM_NONFINITE && !spoil) assert_int_equal(asks[i].tokens_seen, r->token_count);
  }
  return right;
}

static void pages_of_equal_tokens_are_shared(void **state) {
  (void)state;
  plan_limits tight = LIMITS, ample = LIMITS;
  tight.kv_pages = 4, ample.kv_pages = PAGES_MAX;
  const schedule_options options[] = {{0}, {.max_active = 1}, {.chunk_tokens = 7}, {.shuffle_pages = 3, .slot_offset = 2}};
  uint64_t rows[2] = {0}, evicted = 0;
  for (size_t i = 0; i < ARRAY_LEN(options); i++)
    for (uint32_t none = 0; none < 2; none++) {
      schedule_options o = options[i];
      o.no_prefix_cache = none;
      assert_int_equal(run_alike(&ample, o, false), REQUESTS);
      rows[none] += batching.counters.token_rows;
      assert_int_equal(batching.counters.reused_tokens == 0, none);
      assert_int_equal(batching.counters.reused_tokens % 64, 0);
      arena_close(&late_host);
      assert_int_equal(run_alike(&tight, o, false), REQUESTS);
      evicted += batching.counters.evicted_pages;
      arena_close(&late_host);
    }
  assert_true(rows[0] + 1000 < rows[1] && evicted > 50);
}

/* Control: the content of a stored page is really read. */
static void a_spoilt_page_is_seen(void **state) {
  (void)state;
  plan_limits ample = LIMITS;
  ample.kv_pages = PAGES_MAX;
  assert_true(run_alike(&ample, (schedule_options){0}, true) < REQUESTS);
  arena_close(&late_host);
}

/* Sequences that outgrow the pages: the oldest continues, the others are computed again, and no callback is called twice. */
static void preempted_requests_go_on(void **state) {
  (void)state;
  uint64_t preemptions = 0, recomputed = 0;
  for (uint32_t round = 0; round < 24; round++) {
    plan_limits limits = LIMITS;
    limits.kv_pages = 4 + round % 4;
    open_machine(round % 2, &limits, (schedule_options){.chunk_tokens = round % 3 ? 0 : 11, .no_prefix_cache = round % 4 < 2});
    for (uint32_t i = 0; i < 12; i++) {
      asked *a = ask(i, 20 + (i * 13 + round) % 40, 150, false);
      if (i % 4 == 1) a->request.score = true, a->request.score_from = 3, a->request.top_logprobs = 2;
      if (i % 4 == 2) a->request.on_logits = on_logits;
      if (i % 4 == 3) a->request.biases = BIASES, a->request.bias_count = 2;
      a->request.ignore_eos = i % 3 == 0;
      submit(a);
    }
    const verbatim_request *oldest = NULL;
    for (uint32_t n = 0; n < STEPS_MAX && step(); n++) {
      for (uint32_t i = 0; i < 12 && oldest && oldest->finish == VERBATIM_RUNNING; i++)
        if (&asks[i].request == oldest) assert_true(batching.sequences[batching.order[0]].request == oldest);
      oldest = batching.active_count && batching.order[0] < SEQS ? batching.sequences[batching.order[0]].request : NULL;
    }
    assert_true(schedule_idle(&batching));
    assert_int_equal(pages_available(&batching.pages), limits.kv_pages);
    for (uint32_t i = 0; i < 12; i++) {
      const verbatim_request *r = &asks[i].request;
      if (!r->ignore_eos) assert_true(is_right(&asks[i]));
      assert_int_equal(asks[i].tokens_seen, r->token_count);
      assert_int_equal(asks[i].logits_seen, r->on_logits ? r->prompt_count : 0);
    }
    preemptions += batching.counters.preemptions, recomputed += batching.counters.recomputed_tokens;
    arena_close(&late_host);
  }
  assert_true(preemptions > 50 && recomputed > 500);
}

/* A long prompt next to sequences that decode and to a short one: every step takes a row of each of those. */
static void nobody_waits_for_a_long_prompt(void **state) {
  (void)state;
  open_machine(false, &LIMITS, (schedule_options){0});
  for (uint32_t i = 0; i < 3; i++) ask(i, 4, 60, false)->request.ignore_eos = true, submit(&asks[i]);
  for (uint32_t n = 0; n < STEPS_MAX && asks[2].request.token_count < 2; n++) step();
  assert_int_equal(asks[2].request.token_count, 2);
  submit(ask(3, 190, 2, false));
  submit(ask(4, 20, 2, false));
  uint32_t before[3], steps = 0;
  for (uint32_t i = 0; i < 3; i++) before[i] = asks[i].request.token_count;
  while (asks[3].request.token_count == 0 && steps < 100) {
    step(), steps++;
    for (uint32_t i = 0; i < 3; i++) assert_in_range(asks[i].request.token_count, before[i] + steps - 1, before[i] + steps);
  }
  assert_in_range(steps, 9, 14); /* 190 tokens in steps that have 21 left */
  assert_true(asks[4].finish_order != 0 && asks[3].finish_order == 0);
  assert_true(batching.counters.mixed_steps >= 9);
  run_out();
  arena_close(&late_host);
}

/* === Deadlines ============================================================================================================== */

static void late_requests_end(void **state) {
  (void)state;
  open_machine(false, &LIMITS, (schedule_options){0});
  for (uint32_t i = 0; i < 9; i++) {
    ask(i, 30, 20, false)->request.deadline_seconds = i % 3 == 0 ? 1e-9 : i % 3 == 1 ? 1e6 : 0;
    submit(&asks[i]);
    if (i == 5) step(), step(); /* some are active, others wait */
  }
  schedule_expire(&batching);
  for (uint32_t i = 0; i < 9; i++) assert_int_equal(asks[i].request.finish == VERBATIM_DEADLINE, i % 3 == 0);
  assert_true(batching.counters.deadlines == 3 && batching.timed == 3);
  run_out();
  assert_int_equal(batching.timed, 0);
  for (uint32_t i = 0; i < 9; i++) assert_true(is_right(&asks[i]));
  arena_close(&late_host);
}

/* === Faults ================================================================================================================= */

/* The error names the first broken token of the page of the row that ended the request, whatever the steps were; later steps belong to the
 * others. */
static void a_broken_request_ends_alone(void **state) {
  (void)state;
  const uint32_t chunks[] = {0, 1, 5, 64};
  for (uint32_t which = 0; which < 8; which++) {
    open_machine(which % 2, &LIMITS, (schedule_options){.chunk_tokens = chunks[which / 2]});
    for (uint32_t i = 0; i < 5; i++) ask(i, 60 + 20 * i, 12, false);
    asks[2].prompt[30] = asks[2].prompt[50] = asks[3].prompt[70] = BROKEN;
    asks[3].request.score = true, asks[3].request.score_from = 9;
    for (uint32_t i = 0; i < 5; i++) submit(&asks[i]);
    run_out();
    for (uint32_t i = 0; i < 5; i++) {
      assert_true(is_right(&asks[i]));
      assert_int_equal(asks[i].request.finish == VERBATIM_NONFINITE, i == 2 || i == 3);
    }
    assert_int_equal(asks[2].request.fault_position, 30);
    assert_int_equal(asks[3].request.fault_position, 70);
    assert_int_equal(asks[3].request.score_count, 70 - 9 + 1);
    assert_true(late.watched_steps >= 2);
    arena_close(&late_host);
  }
}

/* Values that are not finite spread within a tile, and a tile ends with its page: other requests may read all pages before it, even if
 * their owner was cancelled before its fault was noticed. */
static void a_broken_token_spoils_no_page_before_its_own(void **state) {
  (void)state;
  open_machine(false, &LIMITS, (schedule_options){.chunk_tokens = 7}); /* a chunk begins at 63 */
  submit(ask(0, 80, 2, false));
  asks[0].prompt[64] = BROKEN;
  for (uint32_t n = 0; n < STEPS_MAX && batching.sequences[0].computed < 70; n++) step();
  assert_true(schedule_cancel(&batching, &asks[0].request));
  run_out();
  ask(1, 80, 2, false);
  memcpy(asks[1].prompt, asks[0].prompt, 64 * sizeof *asks[1].prompt);
  submit(&asks[1]);
  run_out();
  assert_int_equal(batching.counters.reused_tokens, 64);
  assert_true(is_right(&asks[1]) && asks[1].request.finish != VERBATIM_NONFINITE);
  arena_close(&late_host);
}

static void count_row(verbatim_request *r, uint32_t position, const uint64_t *digests) {
  asked *a = r->context;
  (void)digests;
  assert_int_equal(position, a->rows_seen++);
}

/* Every computed row is shown once, also of a request that breaks, whose rows are computed again; the last token is not computed, or is
 * dropped. */
static void traced_rows_are_all_rows(void **state) {
  (void)state;
  plan_limits ample = LIMITS;
  ample.kv_pages = PAGES_MAX;
  open_machine(false, &ample, (schedule_options){.trace = true});
  for (uint32_t i = 0; i < 13; i++) {
    ask_alike(i)->request.on_trace = count_row;
    if (i == 12) asks[i].prompt[140] = BROKEN;
    submit(&asks[i]);
  }
  run_out();
  assert_int_equal(batching.counters.reused_tokens, 0);
  assert_int_equal(asks[12].request.finish, VERBATIM_NONFINITE);
  for (uint32_t i = 0; i < 13; i++) {
    const verbatim_request *r = &asks[i].request;
    uint32_t computed = request_computed(r) + (r->token_count ? r->token_count - 1 : 0);
    assert_true(is_right(&asks[i]));
    if (r->finish != VERBATIM_NONFINITE) assert_in_range(asks[i].rows_seen, computed, computed + 1);
  }
  arena_close(&late_host);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(pages_of_equal_tokens_are_shared),
                                     cmocka_unit_test(a_spoilt_page_is_seen),
                                     cmocka_unit_test(preempted_requests_go_on),
                                     cmocka_unit_test(nobody_waits_for_a_long_prompt),
                                     cmocka_unit_test(late_requests_end),
                                     cmocka_unit_test(a_broken_request_ends_alone),
                                     cmocka_unit_test(a_broken_token_spoils_no_page_before_its_own),
                                     cmocka_unit_test(traced_rows_are_all_rows)};
  return cmocka_run_group_tests(tests, open_small, close_small);
}

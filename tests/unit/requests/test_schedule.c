/* test_schedule.c - the scheduler on a late backend: admission, the content of a step, what is dropped and reused, who may cancel. Controls
 * plant faults of the backend. */
#include "tests/unit/requests/late_backend.h"
#include <string.h>

enum fault { NONE, ROWS_LOST, LISTS_LOST, GROWTH_LOST };

static uint32_t run_many(bool eager, const plan_limits *limits, schedule_options options, enum fault fault) {
  uint32_t right = 0;
  open_machine(eager, limits, options);
  if (fault == ROWS_LOST || fault == GROWTH_LOST) memset(late.block, 0, sizeof late.block);
  late.ignore_rows = fault == ROWS_LOST;
  if (fault == LISTS_LOST) memset(late.list, 0, sizeof late.list), late.ignore_lists = true;
  late.ignore_growth = fault == GROWTH_LOST;
  for (uint32_t i = 0; i < REQUESTS; i++) submit(ask_all(i));
  run_out();
  for (uint32_t i = 0; i < REQUESTS; i++) {
    const verbatim_request *r = &asks[i].request;
    right += is_right(&asks[i]);
    if (r->finish != VERBATIM_NONFINITE) assert_int_equal(asks[i].logits_seen, r->on_logits ? request_computed(r) : 0);
  }
  arena_close(&late_host);
  return right;
}

/* === Tests ================================================================================================================== */

static void outputs_are_the_requests_own(void **state) {
  (void)state;
  const schedule_options options[] = {{0}, {.max_active = 1}, {.chunk_tokens = 1}, {.chunk_tokens = 5, .slot_offset = 4},
                                      {.max_active = 3, .shuffle_pages = 9}, {.slot_offset = 5, .shuffle_pages = 2}};
  plan_limits narrow = LIMITS;
  narrow.max_batch_tokens = SEQS + 1, narrow.max_logit_rows = SEQS, narrow.kv_pages = 4, narrow.attn_tile_tokens = 1;
  for (size_t i = 0; i < ARRAY_LEN(options); i++)
    for (int eager = 0; eager < 2; eager++) {
      assert_int_equal(run_many(eager, &LIMITS, options[i], NONE), REQUESTS);
      assert_int_equal(run_many(eager, &narrow, options[i], NONE), REQUESTS);
    }
}

/* Under fast-prefill the tiles of prompts are as long as possible, also where the head count leaves room for only one token in other
 * tiles. */
static void prompts_lie_in_long_tiles(void **state) {
  (void)state;
  plan_limits fast = LIMITS;
  fast.parity = PARITY_FAST_PREFILL;
  fast.attn_tile_tokens = 1;
  for (int eager = 0; eager < 2; eager++) {
    assert_int_equal(run_many(eager, &fast, (schedule_options){0}, NONE), REQUESTS);
    assert_in_range(late.longest_prompt_tile, TOKENS / 2, TOKENS);
  }
}

/* Control: a device that never gets block table rows mixes up its sequences; one that never gets token lists chooses other tokens. */
static void lost_rows_and_lists_are_seen(void **state) {
  (void)state;
  for (enum fault fault = ROWS_LOST; fault <= GROWTH_LOST; fault++)
    assert_true(run_many(false, &LIMITS, (schedule_options){0}, fault) < REQUESTS);
}

/* Control: a staging buffer that is refilled before its step was waited for reaches the late backend, and the test notices it. */
static void a_missing_wait_is_seen(void **state) {
  (void)state;
  for (uint32_t waits = 0; waits < 2; waits++) {
    open_machine(false, &LIMITS, (schedule_options){0});
    submit(ask(0, 60, 4, false));
    schedule_step(&batching, 0);
    schedule_step(&batching, 1);
    if (waits) schedule_settle(&batching, 0);
    schedule_step(&batching, 0);
    schedule_settle(&batching, 1);
    step_outstanding[0] = true, step_side = 1;
    while (step()) continue;
    assert_int_equal(is_right(&asks[0]), waits);
    arena_close(&late_host);
  }
}

static void admission_is_in_order_of_arrival(void **state) {
  (void)state;
  plan_limits limits = LIMITS;
  limits.kv_pages = 4;
  open_machine(false, &limits, (schedule_options){0});
  submit(ask(0, 150, 3, false)); /* 3 pages */
  submit(ask(1, 100, 3, false)); /* 2 pages: has to wait */
  submit(ask(2, 10, 3, false));  /* 1 page: would fit, but came later */
  while (asks[0].request.finish == VERBATIM_RUNNING) {
    step();
    if (asks[0].request.finish == VERBATIM_RUNNING) assert_int_equal(batching.active_count, 1);
  }
  step();
  assert_int_equal(batching.active_count, 2);
  run_out();
  assert_int_equal(batching.counters.preemptions, 0);
  for (uint32_t i = 0; i < 3; i++) assert_true(is_right(&asks[i]));
  arena_close(&late_host);
}

static void steps_hold_chunks_within_limits(void **state) {
  (void)state;
  open_machine(false, &LIMITS, (schedule_options){.chunk_tokens = 10});
  submit(ask(0, 21, 2, false));
  submit(ask(1, 30, 2, false));
  submit(ask(2, 9, 2, false));
  run_out();
  /* a third each; then the first and second as much as they may, and the last token of the third */
  const uint32_t tokens[] = {24, 21, 14, 3};
  for (uint32_t i = 0; i < 4; i++) assert_int_equal(late.steps[i].tokens, tokens[i]);
  assert_int_equal(late.steps[0].seqs, 3);
  assert_int_equal(late.steps[0].logits, 0);
  assert_int_equal(late.steps[1].logits, 1);
  assert_int_equal(late.steps[2].logits, 2);
  assert_false(late.steps[3].decode);
  arena_close(&late_host);
}

/* Only rows that produce output count: here all 16 positions, or the 10 from the one that scores the seventh token. */
static void logits_of_a_prompt_keep_to_the_limit(void **state) {
  (void)state;
  open_machine(false, &LIMITS, (schedule_options){0});
  submit(ask(0, 16, 1, true));
  run_out();
  const uint32_t rows[] = {7, 7, 2}, scored_rows[] = {7, 3}, scored_tokens[] = {12, 3};
  assert_int_equal(late.step_count, 3);
  for (uint32_t i = 0; i < 3; i++) assert_int_equal(late.steps[i].logits, rows[i]);
  assert_int_equal(asks[0].logits_seen, 16);
  assert_true(is_right(&asks[0]));
  arena_close(&late_host);
  open_machine(false, &LIMITS, (schedule_options){0});
  ask(0, 16, 0, false)->request.score = true;
  asks[0].request.score_from = 6;
  submit(&asks[0]);
  run_out();
  assert_int_equal(late.step_count, 2); /* the last token of the prompt is not computed */
  for (uint32_t i = 0; i < 2; i++) {
    assert_int_equal(late.steps[i].logits, scored_rows[i]);
    assert_int_equal(late.steps[i].tokens, scored_tokens[i]);
  }
  assert_int_equal(asks[0].request.score_count, 10);
  assert_true(is_right(&asks[0]));
  arena_close(&late_host);
}

static uint32_t until_stop(uint32_t i) { /* tokens that request i generates before it stops by itself, if it does */
  uint64_t sum = 1;
  for (uint32_t k = 0; k < asks[i].request.prompt_count; k++) sum = mix(sum, asks[i].prompt[k]);
  for (uint32_t made = 1; made < 150; made++) {
    if (token_of(sum) == (int32_t)EOS) return made;
    sum = mix(sum, token_of(sum));
  }
  return 0;
}

/* A stop is known one step late: one row too many was computed and is dropped; then slot and pages serve the next request. */
static void lookahead_is_dropped_and_the_slot_reused(void **state) {
  (void)state;
  plan_limits limits = LIMITS;
  limits.max_seqs = 1, limits.kv_pages = 4;
  open_machine(false, &limits, (schedule_options){0});
  uint32_t made = 0, prompt = 1;
  for (; made < 2; prompt++) {
    ask(0, prompt, 150, false);
    made = until_stop(0);
  }
  submit(&asks[0]);
  submit(ask(1, 20, 3, false));
  uint32_t generation = batching.sequences[0].generation;
  run_out();
  assert_int_equal(asks[0].request.token_count, made);
  assert_int_equal(asks[0].request.finish, VERBATIM_STOP);
  assert_true(is_right(&asks[0]) && is_right(&asks[1]));
  assert_int_equal(batching.sequences[0].generation, generation + 2);
  assert_true(asks[0].finish_order == 1 && asks[1].finish_order == 2);
  /* the prompt's step, generated - 1 decodes, one dropped; then the second's prompt and its decodes */
  assert_int_equal(late.step_count, 1 + (made - 1) + 1 + asks[1].request.token_count + (asks[1].request.finish == VERBATIM_STOP &&
                                                                                    asks[1].request.token_count < 3));
  arena_close(&late_host);
}

/* === Cancelling ============================================================================================================= */

static uint32_t active_slot_of(const verbatim_request *r) {
  for (uint32_t i = 0; i < SEQS; i++)
    if (batching.sequences[i].request == r) return i;
  return SEQS;
}

/* Whichever request is cancelled, and whenever: it keeps its results and is not touched again, and the others get theirs. */
static void cancelled_at_any_time(void **state) {
  (void)state;
  static asked kept[REQUESTS];
  uint32_t cancelled = 0, active = 0;
  for (uint32_t round = 0; round < 60; round++) {
    uint64_t seed = mix(round, 77);
    open_machine(round % 2, &LIMITS, (schedule_options){.chunk_tokens = round % 3 ? 0 : 9, .shuffle_pages = round % 5});
    for (uint32_t i = 0; i < REQUESTS; i++) submit(ask_all(i));
    do {
      seed = mix(seed, 1);
      asked *a = &asks[(seed >> 33) % REQUESTS];
      if ((seed >> 20) % 4 || a->request.finish != VERBATIM_RUNNING) continue;
      active += active_slot_of(&a->request) < SEQS;
      assert_true(schedule_cancel(&batching, &a->request));
      assert_int_equal(a->request.finish, VERBATIM_CANCELLED);
      assert_false(schedule_cancel(&batching, &a->request));
      kept[a - asks] = *a;
      memset(a, 0xee, sizeof *a);
      cancelled++;
    } while (step());
    assert_true(schedule_idle(&batching));
    assert_int_equal(pages_available(&batching.pages), late_header.limits.kv_pages);
    for (uint32_t i = 0; i < REQUESTS; i++) {
      if (asks[i].request.finish == (enum verbatim_finish)0xeeeeeeee) {
        for (size_t k = 0; k < sizeof asks[i]; k++) assert_int_equal(((uint8_t *)&asks[i])[k], 0xee);
        asks[i] = kept[i];
      }
      assert_true(is_right(&asks[i]));
    }
    arena_close(&late_host);
  }
  assert_true(cancelled > 200 && active > 40);
}

static void queued_requests_can_be_cancelled(void **state) {
  (void)state;
  plan_limits limits = LIMITS;
  limits.max_seqs = 1;
  for (uint32_t which = 0; which < 5; which++) {
    open_machine(false, &limits, (schedule_options){0});
    for (uint32_t i = 0; i < 4; i++) submit(ask(i, 5, 3, false));
    if (which) step(); /* the first is active, the others wait */
    if (which < 4) assert_true(schedule_cancel(&batching, &asks[which].request));
    if (which == 3) submit(ask(4, 5, 3, false)); /* after the new last one */
    run_out();
    for (uint32_t i = 0; i < (which == 3 ? 5u : 4u); i++) {
      assert_true(is_right(&asks[i]));
      assert_int_equal(asks[i].request.finish == VERBATIM_CANCELLED, i == which);
    }
    assert_false(schedule_cancel(&batching, &asks[0].request)); /* finished */
    arena_close(&late_host);
  }
}

/* The device may not have read the slot's row yet: the row stays as it is until both sides have been read, and the slot gets no new owner.
 * Its pages may. Control: a backend that reports the row as read at once. */
static void what_is_on_its_way_stays(void **state) {
  (void)state;
  plan_limits limits = LIMITS;
  limits.max_seqs = 2;
  for (int hasty = 0; hasty < 2; hasty++) {
    open_machine(false, &limits, (schedule_options){0});
    submit(ask(3, 10, 3, false));
    run_out(); /* these are not the first steps */
    submit(ask(0, 100, 3, false));
    submit(ask(1, 100, 3, false));
    submit(ask(2, 100, 3, false));
    late.ignore_reading = hasty;
    step();
    uint32_t row[PAGES_PER_SEQ];
    memcpy(row, late.block_host, sizeof row);
    assert_true(schedule_cancel(&batching, &asks[0].request));
    for (uint32_t i = 0; i < 2; i++) { /* both sides get the row: the steps that upload it are settled by the third call */
      assert_int_equal(batching.active_count, hasty && i == 0 ? 1 : 2);
      step();
      assert_int_equal(batching.sequences[0].request == &asks[2].request, hasty);
      if (!hasty) assert_memory_equal(row, late.block_host, sizeof row);
    }
    assert_int_equal(batching.active_count, hasty ? 2 : 1);
    step();
    assert_int_equal(batching.active_count, 2);
    run_out();
    for (uint32_t i = 0; i < 3; i++) assert_true(is_right(&asks[i]) || hasty);
    arena_close(&late_host);
  }
}

static uint32_t cancel_at; /* the number of the callback that cancels */
static uint32_t calls;
static asked *cancel_who;

static void cancel_now(void) {
  if (++calls == cancel_at) assert_true(schedule_cancel(&batching, &cancel_who->request));
}

static void cancelling_token(verbatim_request *r, uint32_t index) {
  on_token(r, index);
  cancel_now();
}

static void cancelling_logits(verbatim_request *r, uint32_t position, const float *row) {
  on_logits(r, position, row);
  cancel_now();
}

static void cancelling_text(verbatim_request *r, const char *text, size_t bytes) {
  (void)r, (void)text, (void)bytes;
  cancel_now();
}

/* A callback may cancel its own request or another one, which is then called no more. */
static void callbacks_may_cancel(void **state) {
  (void)state;
  for (uint32_t which = 0; which < 6; which++) {
    open_machine(false, &LIMITS, (schedule_options){0});
    for (uint32_t i = 0; i < 4; i++) ask(i, 20, 20, which % 3 == 1);
    verbatim_request *r = &asks[1].request;
    if (which % 3 == 0) r->on_token = cancelling_token;
    if (which % 3 == 1) r->on_logits = cancelling_logits;
    if (which % 3 == 2) r->on_text = cancelling_text;
    cancel_who = &asks[which < 3 ? 1 : 2];
    cancel_at = which % 3 == 1 ? 20 : 3, calls = 0; /* of 20 logits rows the last one gives a token */
    for (uint32_t i = 0; i < 4; i++) submit(&asks[i]);
    run_out();
    for (uint32_t i = 0; i < 4; i++) {
      assert_true(is_right(&asks[i]));
      assert_int_equal(asks[i].request.finish == VERBATIM_CANCELLED, &asks[i] == cancel_who);
    }
    if (which < 3) assert_int_equal(calls, cancel_at);
    const uint32_t seen[] = {3, 0, 2}; /* text comes before its token */
    if (which < 3) assert_int_equal(asks[1].tokens_seen, seen[which]);
    arena_close(&late_host);
  }
}

static void restarting_text(verbatim_request *r, const char *text, size_t bytes) {
  (void)text, (void)bytes;
  asked *a = r->context;
  if (++calls != cancel_at) return;
  if (r->finish == VERBATIM_RUNNING) assert_true(schedule_cancel(&batching, r));
  r->on_text = NULL;
  a->tokens_seen = a->finish_order = 0;
  submit(a);
}

/* A callback may cancel its request, or find it finished, and submit it again: the calls after that belong to the second run alone. */
static void callbacks_may_submit_again(void **state) {
  (void)state;
  for (uint32_t max_tokens = 1; max_tokens < 12; max_tokens++) {
    asked *a = ask(0, 20, max_tokens, false);
    open_machine(false, &LIMITS, (schedule_options){0});
    a->request.on_text = restarting_text;
    cancel_at = max_tokens < 5 ? max_tokens : 5, calls = 0; /* one text for each token: of the last or one before */
    submit(a);
    run_out();
    assert_int_equal(calls, cancel_at);
    assert_true(is_right(a) && a->request.finish != VERBATIM_CANCELLED);
    assert_int_equal(a->tokens_seen, a->request.token_count);
    arena_close(&late_host);
  }
}

/* === Text =================================================================================================================== */

static void text_token(verbatim_request *r, uint32_t index) {
  asked *a = r->context;
  on_token(r, index);
  strcat(a->text, "|");
}

static void add_text(verbatim_request *r, const char *text, size_t bytes) {
  asked *a = r->context;
  for (size_t i = 0; i < bytes; i++) a->text[strlen(a->text)] = (char)('0' + text[i]);
}

/* Text is delivered before on_token of the token that makes it certain, all of it, and ends where a stop text begins. */
static void text_is_shown_in_order(void **state) {
  (void)state;
  for (uint32_t prompt = 1; prompt < 30; prompt++) {
    char bytes[2], expected[200] = "";
    const verbatim_text stop = {bytes, 2};
    asked *a = ask(0, prompt, 12, false);
    open_machine(false, &LIMITS, (schedule_options){0});
    submit(a);
    run_out(); /* its output without a stop text */
    uint32_t count = a->request.token_count, end = a->request.finish == VERBATIM_STOP ? count - 1 : count;
    arena_close(&late_host);
    if (end < 6) continue;
    for (uint32_t i = 0; i < 2; i++) bytes[i] = (char)a->tokens[i + 3].id;
    uint32_t first = 0;
    while (a->tokens[first].id != bytes[0] || a->tokens[first + 1].id != bytes[1]) first++;
    for (uint32_t i = 0; i < first; i++) {
      bool held = a->tokens[i].id == bytes[0];
      char text[3] = {(char)('0' + a->tokens[i].id), '|', 0};
      if (held) text[0] = '|', text[1] = (char)('0' + a->tokens[i].id); /* comes with the next one */
      strcat(expected, text);
    }
    strcat(expected, "||");
    ask(0, prompt, 12, false);
    a->request.stop_texts = &stop, a->request.stop_text_count = 1;
    a->request.on_text = add_text, a->request.on_token = text_token;
    open_machine(false, &LIMITS, (schedule_options){0});
    submit(a);
    run_out();
    assert_int_equal(a->request.finish, VERBATIM_STOP_TEXT);
    assert_int_equal(a->request.token_count, first + 2);
    assert_int_equal(a->request.text_bytes, first);
    assert_string_equal(a->text, expected);
    arena_close(&late_host);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(outputs_are_the_requests_own), cmocka_unit_test(prompts_lie_in_long_tiles),
                                     cmocka_unit_test(lost_rows_and_lists_are_seen),
                                     cmocka_unit_test(a_missing_wait_is_seen), cmocka_unit_test(admission_is_in_order_of_arrival),
                                     cmocka_unit_test(steps_hold_chunks_within_limits),
                                     cmocka_unit_test(logits_of_a_prompt_keep_to_the_limit),
                                     cmocka_unit_test(lookahead_is_dropped_and_the_slot_reused),
                                     cmocka_unit_test(cancelled_at_any_time), cmocka_unit_test(queued_requests_can_be_cancelled),
                                     cmocka_unit_test(what_is_on_its_way_stays), cmocka_unit_test(callbacks_may_cancel),
                                     cmocka_unit_test(callbacks_may_submit_again),
                                     cmocka_unit_test(text_is_shown_in_order)};
  return cmocka_run_group_tests(tests, open_small, close_small);
}

/* test_schedule_random.c - the scheduler on a late backend, at random: limits, options, prompts with shared beginnings, broken tokens,
 * cancellations, deadlines, and callbacks that cancel and submit. Invariants are checked between any two steps; in the end every request
 * has its own results. Controls plant faults of the backend. */
#include "engine/requests/request.h"
#include "tests/unit/requests/late_backend.h"
#include <string.h>

#define ROUNDS 1500u
#define ASKED_MAX 9u
#define STEPS_MOST 20000u
#define EDGES 16u

typedef struct ask_state { bool is_submitted; uint32_t again; } ask_state;

static const uint32_t edges[EDGES] = {1, 2, 62, 63, 64, 65, 66, 126, 127, 128, 129, 130, 140, 191, 192, 193};
static uint64_t seed;
static uint32_t count, restarts;
static ask_state states[ASKED_MAX];
static bool is_wild; /* callbacks act */

static uint32_t draw(uint32_t below) {
  uint64_t z = seed += 0x9e3779b97f4a7c15ull; /* splitmix64 */
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return (uint32_t)((z ^ (z >> 31)) % below);
}

/* === Callbacks ============================================================================================================== */

static bool is_running(const asked *a) { return states[a - asks].is_submitted && a->request.finish == VERBATIM_RUNNING; }

static void submit_again(asked *a) {
  if (is_running(a) || !states[a - asks].is_submitted || states[a - asks].again++ == 1) return;
  a->tokens_seen = a->logits_seen = a->finish_order = 0;
  memset(a->text, 0, sizeof a->text);
  restarts++;
  submit(a);
}

static void cancel(asked *a) {
  bool was_running = is_running(a);
  assert_int_equal(states[a - asks].is_submitted && schedule_cancel(&batching, &a->request), was_running);
}

static void act(asked *self) {
  asked *other = &asks[draw(count)];
  if (!is_wild || draw(40)) return;
  if (draw(3) == 0) other = self;
  if (draw(3)) cancel(other);
  if (draw(2)) submit_again(other);
}

static void acting_token(verbatim_request *r, uint32_t index) {
  on_token(r, index);
  act(r->context);
}

static void acting_logits(verbatim_request *r, uint32_t position, const float *row) {
  on_logits(r, position, row);
  act(r->context);
}

static void acting_text(verbatim_request *r, const char *text, size_t bytes) {
  asked *a = r->context;
  size_t used = strlen(a->text);
  for (size_t i = 0; i < bytes; i++) a->text[used + i] = (char)(text[i] + 1); /* no byte is 0 */
  act(a);
}

static void running_row(verbatim_request *r, uint32_t position, const uint64_t *digests) {
  (void)position, (void)digests;
  assert_true(is_running(r->context));
}

/* === Requests =============================================================================================================== */

static plan_limits draw_limits(void) {
  plan_limits l = LIMITS;
  l.max_seqs = draw(3) ? 1 + draw(SEQS) : 1;
  l.max_batch_tokens = l.max_seqs + draw(TOKENS - l.max_seqs + 1);
  l.max_logit_rows = min_u32(l.max_seqs + draw(LOGITS - l.max_seqs + 1), l.max_batch_tokens);
  l.kv_pages = PAGES_PER_SEQ + (draw(2) ? draw(9) : 0);
  l.attn_tile_tokens = 1 + draw(20);
  return l;
}

static schedule_options draw_options(void) {
  return (schedule_options){.max_active = draw(3) ? 0 : 1 + draw(3), .chunk_tokens = draw(3) ? 0 : 1 + draw(30), .slot_offset = draw(7),
                            .shuffle_pages = draw(4), .no_prefix_cache = draw(5) == 0, .trace = draw(6) == 0};
}

/* No token has the second byte: these texts hold output back, and never stop it. */
static void add_stop_texts(verbatim_request *r) {
  static const verbatim_text texts[] = {{"\001~", 2}, {"\005~", 2}, {"\011~", 2}, {"\020~", 2}, {"\032~", 2}, {"\044~", 2}, {"\056~", 2}};
  r->stop_texts = texts;
  r->stop_text_count = ARRAY_LEN(texts);
}

static void draw_prompt(asked *a, uint32_t i) {
  uint32_t family = draw(3), shared = draw(4) ? edges[draw(EDGES)] : 0, prompt_count = a->request.prompt_count;
  uint64_t own = 100 + i * 31 + seed % 64;
  for (uint32_t k = 0; k < prompt_count; k++) a->prompt[k] = (int32_t)(mix(k < shared ? family : own, (int32_t)k) >> 9) & 31;
  if (draw(8) == 0) a->prompt[draw(prompt_count)] = BROKEN;
  if (draw(8) == 0) a->prompt[draw(prompt_count)] = WEAK;
  if (family == 2 && shared > 90 && prompt_count > 90) a->prompt[90] = BROKEN;
}

static void draw_request(uint32_t i, bool is_long, bool trace) {
  uint32_t prompt_count = is_long ? 1 + draw(60) : edges[draw(EDGES)];
  asked *a = ask_all(i);
  verbatim_request *r = &a->request;
  r->prompt_count = prompt_count;
  r->max_tokens = min_u32(1 + draw(is_long ? 190 : draw(2) ? 4 : 60), LIMITS.max_len - prompt_count);
  r->score = prompt_count > 1 && draw(3) == 0;
  r->score_from = r->score ? 1 + draw(prompt_count - 1) : 0;
  if (r->score && draw(2)) r->max_tokens = 0;
  draw_prompt(a, i);
  r->ignore_eos = is_long;
  r->on_token = acting_token;
  r->on_logits = draw(5) == 0 ? acting_logits : NULL;
  r->on_text = draw(2) ? acting_text : NULL;
  if (r->on_text) add_stop_texts(r);
  r->on_trace = trace ? running_row : NULL;
  r->deadline_seconds = draw(4) ? 0 : draw(5) ? 1e6 : 1e-9;
}

/* === Between two steps ====================================================================================================== */

/* The pages of every sequence are its own, or shared under equal keys; each page is used, stored or free. */
static void check_pages(void) {
  const pages *p = &batching.pages;
  uint32_t users[PAGES_MAX] = {0}, active = 0, used = 0, kept = 0;
  for (uint32_t slot = 0; slot < late_header.limits.max_seqs; slot++) {
    const sequence *s = &batching.sequences[slot];
    active += s->taken;
    assert_true(s->taken || !s->request);
    if (!s->request) continue;
    assert_true(s->computed <= s->page_count * 64 && s->named <= s->page_count && s->sampled <= s->request->max_tokens);
    for (uint32_t i = 0; i < s->page_count; i++)
      if (users[late.block_host[slot * PAGES_PER_SEQ + i]]++) assert_true(i < s->named);
  }
  assert_int_equal(active, batching.active_count);
  for (uint32_t i = 0; i < p->total; i++) {
    assert_int_equal(users[i], p->list[i].users);
    used += users[i] > 0;
  }
  for (uint32_t i = 0; i < p->free_count; i++) assert_true(p->list[p->free[i]].users == 0 && !p->list[p->free[i]].has_key);
  for (uint32_t i = p->oldest; i != PAGES_NONE; i = p->list[i].newer, kept++) assert_true(p->list[i].users == 0 && p->list[i].has_key);
  assert_int_equal(kept, p->kept_count);
  assert_int_equal(used + kept + p->free_count, p->total);
}

static void check_queue(void) {
  uint64_t timed = 0;
  const verbatim_request *last = NULL;
  for (const verbatim_request *r = batching.queue_first; r; last = r, r = request_state_of(r)->next) {
    assert_int_equal(r->finish, VERBATIM_RUNNING);
    timed += r->deadline_seconds > 0;
  }
  assert_ptr_equal(last, batching.queue_last);
  for (uint32_t slot = 0; slot < late_header.limits.max_seqs; slot++) {
    const verbatim_request *r = batching.sequences[slot].request;
    timed += r && r->deadline_seconds > 0;
  }
  assert_int_equal(timed, batching.timed);
}

/* === Rounds ================================================================================================================= */

/* Like verbatim_poll with config.trace: no step is in flight when it returns. */
static bool step_once(void) {
  bool busy = step();
  uint32_t now = step_side ^ 1;
  if (!batching.options.trace || !step_outstanding[now]) return busy;
  schedule_settle(&batching, now);
  step_outstanding[now] = false;
  return !schedule_idle(&batching);
}

static void play(void) {
  bool busy = true;
  for (uint32_t next = 0, steps = 0; next < count || busy; steps++) {
    assert_true(steps < STEPS_MOST);
    for (; next < count && draw(3) == 0; next++) {
      states[next].is_submitted = true;
      submit(&asks[next]);
    }
    asked *a = &asks[draw(count)];
    if (is_wild && draw(30) == 0) cancel(a);
    if (is_wild && draw(40) == 0 && is_running(a)) request_state_of(&a->request)->submitted_at = -1e9;
    if (draw(2)) schedule_expire(&batching);
    busy = step_once();
    check_pages();
    check_queue();
  }
  assert_true(batching.active_count == 0 && pages_available(&batching.pages) == late_header.limits.kv_pages);
}

/* A request that ended by itself showed all of its text, once. */
static bool has_its_text(const asked *a) {
  uint32_t made = a->request.token_count - (a->request.finish == VERBATIM_STOP);
  for (uint32_t i = 0; i < made; i++)
    if (a->text[i] != a->tokens[i].id + 1) return false;
  return a->text[made] == 0;
}

static bool is_whole(const asked *a) {
  const verbatim_request *r = &a->request;
  if (r->finish == VERBATIM_CANCELLED || r->finish == VERBATIM_DEADLINE) return true;
  if (r->on_text && !has_its_text(a)) return false;
  if (r->finish == VERBATIM_NONFINITE) return true;
  return a->tokens_seen == r->token_count && a->logits_seen == (r->on_logits ? request_computed(r) : 0);
}

enum fault { NONE, GROWTH_LOST, READING_LOST };

static uint32_t play_round(uint32_t round, enum fault fault) {
  uint32_t wrong = 0;
  seed = mix(round, 1234567);
  plan_limits limits = draw_limits();
  schedule_options options = draw_options();
  open_machine(draw(3) == 0 || options.trace, &limits, options);
  late.ignore_growth = fault == GROWTH_LOST;
  if (fault == GROWTH_LOST) memset(late.block, 0, sizeof late.block);
  late.ignore_reading = fault == READING_LOST;
  memset(states, 0, sizeof states);
  count = 3 + draw(ASKED_MAX - 2);
  bool is_long = draw(3) == 0;
  is_wild = draw(4) > (is_long ? 2 : 0);
  for (uint32_t i = 0; i < count; i++) draw_request(i, is_long, options.trace);
  play();
  for (uint32_t i = 0; i < count; i++) {
    bool right = is_right(&asks[i]) && is_whole(&asks[i]);
    if (!right && fault == NONE)
      fail_msg("round %u: request %u, prompt %u, finish %d, %u tokens, %u scores, fault at %u", round, i, asks[i].request.prompt_count,
               asks[i].request.finish, asks[i].request.token_count, asks[i].request.score_count, asks[i].request.fault_position);
    wrong += !right;
  }
  arena_close(&late_host);
  return wrong;
}

static void requests_keep_what_is_theirs(void **state) {
  (void)state;
  uint64_t finishes[VERBATIM_DEADLINE + 1] = {0};
  verbatim_counters sum = {0};
  restarts = 0;
  for (uint32_t round = 0; round < ROUNDS; round++) {
    assert_int_equal(play_round(round, NONE), 0);
    for (uint32_t i = 0; i < count; i++) finishes[asks[i].request.finish]++;
    sum.preemptions += batching.counters.preemptions, sum.reused_tokens += batching.counters.reused_tokens;
    sum.evicted_pages += batching.counters.evicted_pages;
  }
  assert_int_equal(finishes[VERBATIM_RUNNING], 0); /* and all of these cases did happen */
  for (uint32_t i = VERBATIM_STOP; i <= VERBATIM_DEADLINE; i++)
    if (i != VERBATIM_STOP_TEXT) assert_true(finishes[i] > 50);
  assert_true(sum.preemptions > 50 && sum.reused_tokens > 5000 && sum.evicted_pages > 500 && restarts > 100);
}

/* Controls: block table rows that do not grow on the device; rows that change while the device may still have to read them. */
static void faults_are_seen(void **state) {
  (void)state;
  for (enum fault fault = GROWTH_LOST; fault <= READING_LOST; fault++) {
    uint32_t wrong = 0;
    for (uint32_t round = 0; round < ROUNDS && wrong == 0; round++) wrong += play_round(round, fault);
    assert_true(wrong > 0);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(requests_keep_what_is_theirs), cmocka_unit_test(faults_are_seen)};
  return cmocka_run_group_tests(tests, open_small, close_small);
}

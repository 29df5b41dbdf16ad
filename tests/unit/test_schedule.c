/* test_schedule.c - the scheduler on a machine that this test makes: who is admitted, what a step holds, what is dropped and reused.
 *
 * Linked with --wrap for the functions of exec.h. The machine is late: host memory is read and steps run only when a result is waited for,
 * as late as any device may. Its model's token is a function of all token ids that the KV pages hold for the sequence and of the
 * slot's token list, so that one wrong page, row, slot, list, token or overwritten input changes what a request gets. Controls plant
 * such faults. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "engine/schedule.h"
#include "tests/unit/tokenizer_fixture.h"

#define SEQS 6u
#define TOKENS 24u
#define LOGITS 7u
#define PAGES_PER_SEQ 4u
#define PAGES_MAX 24u
#define VOCAB 50u
#define EOS 7u
#define BROKEN 49       /* a token of a prompt after which the logits are not finite */
#define REQUESTS 40u
#define STEPS_MAX 4000u

typedef struct image { /* of one parity, in the host's memory */
  step_in head;
  int32_t token[TOKENS];
  uint32_t position[TOKENS], seq[TOKENS], logit_row[LOGITS];
  attn_tile tiles[TOKENS];
  sample_param sample[LOGITS];
} image;

typedef struct queued_step { /* what a driver copies at submission; the image itself is read when the step runs */
  uint32_t parity, changed_count;
  exec_slot changed[SEQS];
} queued_step;

typedef struct step_log { uint32_t tokens, logits, seqs, decode; } step_log;

static struct machine {
  bool eager;                      /* runs a step when it is submitted */
  bool ignore_rows, ignore_lists;  /* planted faults                   */
  image image[2];
  uint32_t block_host[SEQS * PAGES_PER_SEQ], block[SEQS * PAGES_PER_SEQ];
  token_bias list_host[SEQS][TOKEN_LIST_MAX], list[SEQS][TOKEN_LIST_MAX];
  uint32_t waiting[2]; /* steps of a parity that have not run */
  queued_step queue[4];
  uint32_t queued;
  int32_t kv[PAGES_MAX * 64], sampled[SEQS];
  sample_result result[2][LOGITS];
  top_logprob top[2][LOGITS][TOP_LOGPROBS_MAX];
  uint64_t digest[2][LOGITS];
  float logits[2][LOGITS * VOCAB];
  step_log steps[STEPS_MAX];
  uint32_t step_count, dropped_pages;
} m;

static plan_header header;
static plan view = {.header = &header};
static uint8_t weights[16] = {1};
static tokenizer *small; /* ids 0..255 are bytes */
static request_model model = {.plan = &view, .weights_digest = weights, .tokenizer_digest = weights, .logits = true};

/* === The model ============================================================================================================== */

static uint64_t mix(uint64_t sum, int32_t id) {
  uint64_t z = (sum ^ (uint64_t)(uint32_t)id) * 0x9e3779b97f4a7c15ull;
  return z ^ (z >> 29);
}
static int32_t token_of(uint64_t sum) { return (int32_t)((sum >> 20) % BROKEN); } /* never BROKEN itself */

/* What a row gives: of the context alone when its token is known, else of the token list too. */
static sample_result result_of(uint64_t sum, int32_t target, const token_bias *list, uint32_t list_count) {
  sample_result r = {.token = target, .logprob = -(float)(sum >> 40 & 1023), .rank = (uint32_t)(sum >> 50) % VOCAB};
  if (target >= 0) return r;
  for (uint32_t i = 0; i < list_count; i++) sum = mix(sum + request_bits(list[i].bias), list[i].token);
  r.token = token_of(sum);
  return r;
}
static top_logprob top_of(uint64_t sum, uint32_t i) { return (top_logprob){(int32_t)((sum + i) % VOCAB), -(float)i}; }

/* === The machine ============================================================================================================ */

static int32_t *kv_row(uint32_t seq, uint32_t position) {
  uint32_t page = m.block[seq * PAGES_PER_SEQ + position / 64];
  assert_true(seq < SEQS && position / 64 < PAGES_PER_SEQ && page < header.limits.kv_pages);
  return &m.kv[page * 64 + position % 64];
}

static uint64_t context_of(uint32_t seq, uint32_t position) {
  uint64_t sum = 1;
  for (uint32_t i = 0; i <= position; i++) sum = mix(sum, *kv_row(seq, i));
  return sum;
}

static void check_tiles(const image *in) {
  uint32_t row = 0;
  for (uint32_t i = 0; i < in->head.tile_count; i++) {
    const attn_tile *t = &in->tiles[i];
    assert_int_equal(t->row, row);
    assert_in_range(t->count, 1, header.limits.attn_tile_tokens);
    for (uint32_t k = 0; k < t->count; k++, row++) {
      assert_int_equal(in->seq[row], t->seq);
      assert_int_equal(in->position[row], t->position + k);
    }
  }
  assert_int_equal(row, in->head.token_count);
}

static void run_row(const image *in, uint32_t parity, uint32_t r) {
  uint32_t row = in->logit_row[r];
  const sample_param *param = &in->sample[r];
  assert_true(row < in->head.token_count && param->slot == in->seq[row]);
  assert_int_equal(param->position, in->position[row] + 1);
  uint64_t sum = context_of(in->seq[row], in->position[row]);
  sample_result *result = &m.result[parity][r];
  *result = result_of(sum, param->target, m.list[param->slot], param->list_count);
  for (uint32_t i = 0; i <= in->position[row]; i++)
    if (*kv_row(in->seq[row], i) == BROKEN) *result = (sample_result){.nonfinite = 1};
  if (param->target < 0) m.sampled[param->slot] = result->token;
  for (uint32_t i = 0; i < param->top_count; i++) m.top[parity][r][i] = top_of(sum, i);
  m.digest[parity][r] = sum;
  m.logits[parity][r * VOCAB] = (float)in->position[row];
}

static void run_oldest(void) {
  queued_step step = m.queue[0];
  uint32_t parity = step.parity;
  const image *in = &m.image[parity];
  memmove(m.queue, m.queue + 1, --m.queued * sizeof *m.queue);
  for (uint32_t i = 0; i < step.changed_count; i++) {
    uint32_t slot = step.changed[i].slot;
    if (!m.ignore_rows) memcpy(m.block + slot * PAGES_PER_SEQ, m.block_host + slot * PAGES_PER_SEQ, 4 * PAGES_PER_SEQ);
    if (!m.ignore_lists) memcpy(m.list[slot], m.list_host[slot], step.changed[i].list_count * sizeof(token_bias));
  }
  check_tiles(in);
  int32_t ids[TOKENS];
  for (uint32_t i = 0; i < in->head.token_count; i++) ids[i] = in->token[i] < 0 ? m.sampled[-1 - in->token[i]] : in->token[i];
  for (uint32_t i = 0; i < in->head.token_count; i++) *kv_row(in->seq[i], in->position[i]) = ids[i];
  for (uint32_t r = in->head.logit_count; r-- > 0;) run_row(in, parity, r); /* any order may be */
  m.waiting[parity]--;
}

exec_input __wrap_exec_fill(exec *self, uint32_t parity);
uint32_t *__wrap_exec_block_row(exec *self, uint32_t slot);
token_bias *__wrap_exec_list(exec *self, uint32_t slot);
void __wrap_exec_drop_pages(exec *self, const uint32_t *numbers, uint32_t count);
void __wrap_exec_submit(exec *self, uint32_t parity, bool decode, const exec_slot *changed, uint32_t changed_count);
exec_results __wrap_exec_wait(exec *self, uint32_t parity);

exec_input __wrap_exec_fill(exec *self, uint32_t parity) {
  (void)self;
  image *in = &m.image[parity];
  memset(in, 0xff, sizeof *in);
  return (exec_input){.head = &in->head, .token = in->token, .position = in->position, .seq = in->seq, .tiles = in->tiles,
                      .logit_row = in->logit_row, .sample = in->sample};
}

uint32_t *__wrap_exec_block_row(exec *self, uint32_t slot) {
  (void)self;
  assert_true(slot < SEQS);
  return m.block_host + slot * PAGES_PER_SEQ;
}

token_bias *__wrap_exec_list(exec *self, uint32_t slot) {
  (void)self;
  assert_true(slot < SEQS);
  return m.list_host[slot];
}

void __wrap_exec_drop_pages(exec *self, const uint32_t *numbers, uint32_t count) {
  (void)self, (void)numbers;
  m.dropped_pages += count;
}

void __wrap_exec_submit(exec *self, uint32_t parity, bool decode, const exec_slot *changed, uint32_t changed_count) {
  (void)self;
  const step_in *head = &m.image[parity].head;
  assert_in_range(head->token_count, 1, header.limits.max_batch_tokens);
  assert_true(head->logit_count <= header.limits.max_logit_rows && head->seq_count <= header.limits.max_seqs);
  assert_true(!decode || head->logit_count == head->token_count);
  assert_true(m.step_count < STEPS_MAX && changed_count <= SEQS);
  m.steps[m.step_count++] = (step_log){head->token_count, head->logit_count, head->seq_count, decode};
  assert_true(m.queued < ARRAY_LEN(m.queue));
  queued_step *step = &m.queue[m.queued++];
  *step = (queued_step){.parity = parity, .changed_count = changed_count};
  memcpy(step->changed, changed, changed_count * sizeof *changed);
  m.waiting[parity]++;
  if (m.eager) run_oldest();
}

exec_results __wrap_exec_wait(exec *self, uint32_t parity) {
  (void)self;
  while (m.waiting[parity]) run_oldest();
  return (exec_results){.result = m.result[parity], .top = m.top[parity][0], .digest = m.digest[parity], .logits = m.logits[parity]};
}

/* === Requests =============================================================================================================== */

typedef struct asked {
  verbatim_request request;
  int32_t prompt[200];
  verbatim_token tokens[200], scores[200];
  verbatim_alternative alternatives[400 * 2];
  uint32_t logits_seen, tokens_seen, finish_order;
  char text[200];
} asked;

static const verbatim_bias BIASES[] = {{9, 1.0f}, {4, -2.0f}, {30, 0.5f}};
static const int32_t ALLOWED[] = {30, 4};
static asked list[REQUESTS];
static uint32_t finished;

static void on_token(verbatim_request *r, uint32_t index) {
  asked *a = r->context;
  assert_int_equal(index, a->tokens_seen++);
  assert_int_equal(index + 1, r->token_count);
  if (r->finish != VERBATIM_RUNNING) a->finish_order = ++finished;
}

static void on_logits(verbatim_request *r, uint32_t position, const float *row) {
  asked *a = r->context;
  assert_int_equal(position, a->logits_seen++);
  assert_true(row[0] == (float)position);
}

static asked *ask(uint32_t i, uint32_t prompt_count, uint32_t max_tokens, bool logits) {
  asked *a = &list[i];
  memset(a, 0, sizeof *a);
  for (uint32_t k = 0; k < prompt_count; k++) a->prompt[k] = (int32_t)(mix(i * 977 + 3, (int32_t)k) >> 9) & 31;
  a->request = (verbatim_request){.prompt = a->prompt, .prompt_count = prompt_count, .max_tokens = max_tokens, .top_p = 1.0,
                                  .repetition_penalty = 1, .on_token = on_token, .on_logits = logits ? on_logits : NULL, .context = a,
                                  .tokens = a->tokens, .scores = a->scores, .alternatives = a->alternatives};
  return a;
}

/* The same, with everything that takes part in a step: scores, alternatives, token lists, all in turn. */
static asked *ask_all(uint32_t i) {
  uint32_t prompt_count = 1 + i * 37 % 150;
  asked *a = ask(i, prompt_count, 1 + i * 5 % 30, i % 5 == 2);
  verbatim_request *r = &a->request;
  if (i % 3 == 1 && prompt_count > 1) {
    r->score = true;
    r->score_from = 1 + i * 7 % (prompt_count - 1);
    if (i % 2) r->max_tokens = 0;
  }
  if (i % 4 == 3) r->biases = BIASES, r->bias_count = 1 + i % 3;
  if (i % 8 == 5) r->allowed_ids = ALLOWED, r->allowed_count = 2;
  r->top_logprobs = i % 7 == 1 ? 2 : 0;
  if (i % 13 == 12) a->prompt[prompt_count / 2] = BROKEN;
  return a;
}

static bool same_top(const asked *a, uint32_t index, uint64_t sum) {
  for (uint32_t i = 0; i < a->request.top_logprobs; i++) {
    const verbatim_alternative *found = &a->alternatives[index * a->request.top_logprobs + i];
    if (found->id != top_of(sum, i).token || found->logprob != top_of(sum, i).logprob) return false;
  }
  return true;
}

static bool same_token(const verbatim_token *t, sample_result expected, uint64_t sum) {
  return t->id == expected.token && t->logprob == expected.logprob && t->rank == expected.rank && t->digest == sum;
}

/* What the request has so far is what the model says, and it ended where it should, or was cancelled. */
static bool is_right(const asked *a) {
  const verbatim_request *r = &a->request;
  token_bias biases[TOKEN_LIST_MAX];
  uint64_t sum = 1;
  uint32_t made = 0, scored = 0, list_count = request_list(r, biases);
  bool broken = false, cancelled = r->finish == VERBATIM_CANCELLED;
  for (uint32_t i = 0; i < r->prompt_count; i++) {
    if (request_scores(r, i)) {
      if (broken || (cancelled && scored == r->score_count)) break;
      if (scored >= r->score_count || !same_token(&r->scores[scored], result_of(sum, a->prompt[i], NULL, 0), sum)) return false;
      if (!same_top(a, scored++, sum)) return false;
    }
    sum = mix(sum, a->prompt[i]);
    broken |= a->prompt[i] == BROKEN;
  }
  if (scored != r->score_count) return false;
  if (broken && (r->max_tokens || (r->score && scored < r->prompt_count - r->score_from)))
    return r->token_count == 0 && (cancelled || r->finish == VERBATIM_NONFINITE);
  for (; made < r->max_tokens; made++) {
    sample_result expected = result_of(sum, -1, biases, list_count);
    if (cancelled && made == r->token_count) return true;
    if (made >= r->token_count || !same_token(&r->tokens[made], expected, sum) || !same_top(a, scored + made, sum)) return false;
    if (expected.token == (int32_t)EOS) return (cancelled || r->finish == VERBATIM_STOP) && r->token_count == made + 1;
    sum = mix(sum, expected.token);
  }
  return (cancelled || r->finish == VERBATIM_LENGTH) && r->token_count == made;
}

/* === Runs =================================================================================================================== */

static schedule s;
static arena host;
static uint32_t parity;
static bool outstanding[2];

static void open_machine(bool eager, const plan_limits *limits, schedule_options options) {
  memset(&m, 0xff, sizeof m);
  m.eager = eager, m.ignore_rows = m.ignore_lists = false;
  m.queued = m.step_count = m.dropped_pages = 0;
  memset(m.waiting, 0, sizeof m.waiting);
  memset(outstanding, 0, sizeof outstanding);
  parity = finished = 0;
  header = (plan_header){.limits = *limits, .model = {.vocab = VOCAB, .eos_count = 1, .eos = {EOS}}};
  host = (arena){0};
  assert_int_equal(schedule_open(&s, &model, (exec *)(void *)&m, &options, &host), OK);
}

static void submit(asked *a) {
  assert_int_equal(request_check(&model, &a->request), OK);
  request_start(&model, &a->request);
  schedule_submit(&s, &a->request);
}

/* As verbatim_poll does. */
static bool step(void) {
  outstanding[parity] = schedule_step(&s, parity);
  uint32_t other = parity ^ 1, now = parity;
  if (outstanding[now]) parity ^= 1;
  if (outstanding[other]) schedule_settle(&s, other);
  outstanding[other] = false;
  return outstanding[now] || !schedule_idle(&s);
}

static void run_out(void) {
  for (uint32_t i = 0; i < STEPS_MAX && step(); i++) continue;
  assert_true(schedule_idle(&s));
  assert_int_equal(s.pages.free_count, header.limits.kv_pages);
}

static const plan_limits LIMITS = {.max_seqs = SEQS, .max_batch_tokens = TOKENS, .max_len = 256, .max_logit_rows = LOGITS, .kv_pages = 12,
                                   .pages_per_seq = PAGES_PER_SEQ, .attn_tile_tokens = 4};

static uint32_t run_many(bool eager, const plan_limits *limits, schedule_options options, bool ignore_rows, bool ignore_lists) {
  uint32_t right = 0;
  open_machine(eager, limits, options);
  if (ignore_rows) memset(m.block, 0, sizeof m.block), m.ignore_rows = true;
  if (ignore_lists) memset(m.list, 0, sizeof m.list), m.ignore_lists = true;
  for (uint32_t i = 0; i < REQUESTS; i++) submit(ask_all(i));
  run_out();
  for (uint32_t i = 0; i < REQUESTS; i++) {
    const verbatim_request *r = &list[i].request;
    right += is_right(&list[i]);
    if (r->finish != VERBATIM_NONFINITE) assert_int_equal(list[i].logits_seen, r->on_logits ? request_fed(r) : 0);
  }
  arena_close(&host);
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
      assert_int_equal(run_many(eager, &LIMITS, options[i], false, false), REQUESTS);
      assert_int_equal(run_many(eager, &narrow, options[i], false, false), REQUESTS);
    }
}

/* Control: a device that never gets block table rows mixes up its sequences, one that never gets token lists chooses otherwise. */
static void lost_rows_and_lists_are_seen(void **state) {
  (void)state;
  assert_true(run_many(false, &LIMITS, (schedule_options){0}, true, false) < REQUESTS);
  assert_true(run_many(false, &LIMITS, (schedule_options){0}, false, true) < REQUESTS);
}

/* Control: an image that is filled again before its step was waited for reaches the late machine, and that is seen. */
static void a_missing_wait_is_seen(void **state) {
  (void)state;
  for (uint32_t waits = 0; waits < 2; waits++) {
    open_machine(false, &LIMITS, (schedule_options){0});
    submit(ask(0, 60, 4, false));
    schedule_step(&s, 0);
    schedule_step(&s, 1);
    if (waits) schedule_settle(&s, 0);
    schedule_step(&s, 0);
    schedule_settle(&s, 1);
    outstanding[0] = true, parity = 1;
    while (step()) continue;
    assert_int_equal(is_right(&list[0]), waits);
    arena_close(&host);
  }
}

static void admission_is_in_order_of_arrival(void **state) {
  (void)state;
  plan_limits limits = LIMITS;
  limits.kv_pages = 4;
  open_machine(false, &limits, (schedule_options){0});
  submit(ask(0, 150, 3, false)); /* 3 pages */
  submit(ask(1, 100, 3, false)); /* 2: has to wait */
  submit(ask(2, 10, 3, false));  /* 1: would fit, but came later */
  step();
  assert_int_equal(s.active_count, 1);
  assert_int_equal(s.pages.free_count, 1);
  while (list[0].request.finish == VERBATIM_RUNNING) {
    assert_int_equal(s.active_count, 1);
    step();
  }
  assert_int_equal(m.dropped_pages, 3);
  step();
  assert_int_equal(s.active_count, 2);
  run_out();
  assert_int_equal(m.dropped_pages, 6);
  for (uint32_t i = 0; i < 3; i++) assert_true(is_right(&list[i]));
  arena_close(&host);
}

static void steps_hold_chunks_within_limits(void **state) {
  (void)state;
  open_machine(false, &LIMITS, (schedule_options){.chunk_tokens = 10});
  submit(ask(0, 21, 2, false));
  submit(ask(1, 30, 2, false));
  submit(ask(2, 9, 2, false));
  run_out();
  /* 10 + 10 + 4; 10 + 10 + 4 of the third's last 5; the first's last and so on. */
  assert_int_equal(m.steps[0].tokens, 24);
  assert_int_equal(m.steps[0].seqs, 3);
  assert_int_equal(m.steps[0].logits, 0);
  assert_int_equal(m.steps[1].tokens, 24);
  assert_int_equal(m.steps[2].tokens, 12);
  assert_int_equal(m.steps[2].logits, 3);
  assert_false(m.steps[2].decode);
  assert_true(m.steps[3].decode);
  assert_int_equal(m.steps[3].tokens, 3);
  arena_close(&host);
}

/* Only rows that are wanted count: here all 16 positions, or the 10 from the one that scores the seventh token. */
static void logits_of_a_prompt_keep_to_the_limit(void **state) {
  (void)state;
  open_machine(false, &LIMITS, (schedule_options){0});
  submit(ask(0, 16, 1, true));
  run_out();
  const uint32_t rows[] = {7, 7, 2}, scored_rows[] = {7, 3}, scored_tokens[] = {12, 3};
  assert_int_equal(m.step_count, 3);
  for (uint32_t i = 0; i < 3; i++) assert_int_equal(m.steps[i].logits, rows[i]);
  assert_int_equal(list[0].logits_seen, 16);
  assert_true(is_right(&list[0]));
  arena_close(&host);
  open_machine(false, &LIMITS, (schedule_options){0});
  ask(0, 16, 0, false)->request.score = true;
  list[0].request.score_from = 6;
  submit(&list[0]);
  run_out();
  assert_int_equal(m.step_count, 2); /* the last token of the prompt is not fed */
  for (uint32_t i = 0; i < 2; i++) {
    assert_int_equal(m.steps[i].logits, scored_rows[i]);
    assert_int_equal(m.steps[i].tokens, scored_tokens[i]);
  }
  assert_int_equal(list[0].request.score_count, 10);
  assert_true(is_right(&list[0]));
  arena_close(&host);
}

static uint32_t until_stop(uint32_t i) { /* tokens that request i makes before it stops by itself, if it does */
  uint64_t sum = 1;
  for (uint32_t k = 0; k < list[i].request.prompt_count; k++) sum = mix(sum, list[i].prompt[k]);
  for (uint32_t made = 1; made < 150; made++) {
    if (token_of(sum) == (int32_t)EOS) return made;
    sum = mix(sum, token_of(sum));
  }
  return 0;
}

/* A stop is known one step late: one row too many was computed, and is dropped; slot and pages then serve the next request. */
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
  submit(&list[0]);
  submit(ask(1, 20, 3, false));
  uint32_t generation = s.sequences[0].generation;
  run_out();
  assert_int_equal(list[0].request.token_count, made);
  assert_int_equal(list[0].request.finish, VERBATIM_STOP);
  assert_true(is_right(&list[0]) && is_right(&list[1]));
  assert_int_equal(s.sequences[0].generation, generation + 2);
  assert_true(list[0].finish_order == 1 && list[1].finish_order == 2);
  /* the prompt's step, made - 1 decodes, one dropped; then the second's prompt and its decodes */
  assert_int_equal(m.step_count, 1 + (made - 1) + 1 + list[1].request.token_count + (list[1].request.finish == VERBATIM_STOP &&
                                                                                    list[1].request.token_count < 3));
  arena_close(&host);
}

/* === Cancelling ============================================================================================================= */

static uint32_t active_slot_of(const verbatim_request *r) {
  for (uint32_t i = 0; i < SEQS; i++)
    if (s.sequences[i].request == r) return i;
  return SEQS;
}

/* Whoever is cancelled, and when: it keeps what it had, is not touched again, and the others get what is theirs. */
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
      asked *a = &list[(seed >> 33) % REQUESTS];
      if ((seed >> 20) % 4 || a->request.finish != VERBATIM_RUNNING) continue;
      active += active_slot_of(&a->request) < SEQS;
      assert_true(schedule_cancel(&s, &a->request));
      assert_int_equal(a->request.finish, VERBATIM_CANCELLED);
      assert_false(schedule_cancel(&s, &a->request));
      kept[a - list] = *a;
      memset(a, 0xee, sizeof *a);
      cancelled++;
    } while (step());
    assert_true(schedule_idle(&s));
    assert_int_equal(s.pages.free_count, header.limits.kv_pages);
    for (uint32_t i = 0; i < REQUESTS; i++) {
      if (list[i].request.finish == (enum verbatim_finish)0xeeeeeeee) {
        for (size_t k = 0; k < sizeof list[i]; k++) assert_int_equal(((uint8_t *)&list[i])[k], 0xee);
        list[i] = kept[i];
      }
      assert_true(is_right(&list[i]));
    }
    arena_close(&host);
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
    if (which < 4) assert_true(schedule_cancel(&s, &list[which].request));
    if (which == 3) submit(ask(4, 5, 3, false)); /* behind the new last one */
    run_out();
    for (uint32_t i = 0; i < (which == 3 ? 5u : 4u); i++) {
      assert_true(is_right(&list[i]));
      assert_int_equal(list[i].request.finish == VERBATIM_CANCELLED, i == which);
    }
    assert_false(schedule_cancel(&s, &list[0].request)); /* finished */
    arena_close(&host);
  }
}

/* The device may not have read the slot's row yet: it stays as it is until it has. */
static void what_is_on_its_way_stays(void **state) {
  (void)state;
  plan_limits limits = LIMITS;
  limits.max_seqs = 2;
  open_machine(false, &limits, (schedule_options){0});
  submit(ask(3, 10, 3, false));
  run_out(); /* these are not the first steps */
  submit(ask(0, 100, 3, false)); /* two pages, no result for steps to come */
  submit(ask(1, 100, 3, false));
  submit(ask(2, 100, 3, false));
  step();
  uint32_t row[PAGES_PER_SEQ];
  memcpy(row, m.block_host, sizeof row);
  assert_true(schedule_cancel(&s, &list[0].request));
  assert_int_equal(s.pages.free_count, header.limits.kv_pages - 4);
  step(); /* before it settles the first step, the second is built: without the third request */
  assert_memory_equal(row, m.block_host, sizeof row);
  assert_int_equal(s.active_count, 1);
  assert_int_equal(s.pages.free_count, header.limits.kv_pages - 2);
  step();
  assert_int_equal(s.active_count, 2);
  run_out();
  for (uint32_t i = 0; i < 3; i++) assert_true(is_right(&list[i]));
  arena_close(&host);
  open_machine(false, &limits, (schedule_options){0});
  submit(ask(0, 100, 3, false));
  submit(ask(1, 100, 3, false));
  step(), step();
  assert_true(schedule_cancel(&s, &list[0].request)); /* the row was read: at once, though a step is on its way */
  assert_int_equal(s.pages.free_count, header.limits.kv_pages - 2);
  run_out();
  assert_true(is_right(&list[1]));
  arena_close(&host);
}

static uint32_t cancel_at; /* the call of a callback that cancels */
static uint32_t calls;
static asked *cancel_who;

static void cancel_now(void) {
  if (++calls == cancel_at) assert_true(schedule_cancel(&s, &cancel_who->request));
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

/* A callback may cancel its own request or another one; which then is called no more. */
static void callbacks_may_cancel(void **state) {
  (void)state;
  for (uint32_t which = 0; which < 6; which++) {
    open_machine(false, &LIMITS, (schedule_options){0});
    for (uint32_t i = 0; i < 4; i++) ask(i, 20, 20, which % 3 == 1);
    verbatim_request *r = &list[1].request;
    if (which % 3 == 0) r->on_token = cancelling_token;
    if (which % 3 == 1) r->on_logits = cancelling_logits;
    if (which % 3 == 2) r->on_text = cancelling_text;
    cancel_who = &list[which < 3 ? 1 : 2];
    cancel_at = which % 3 == 1 ? 20 : 3, calls = 0; /* of 20 logits rows the last one gives a token */
    for (uint32_t i = 0; i < 4; i++) submit(&list[i]);
    run_out();
    for (uint32_t i = 0; i < 4; i++) {
      assert_true(is_right(&list[i]));
      assert_int_equal(list[i].request.finish == VERBATIM_CANCELLED, &list[i] == cancel_who);
    }
    if (which < 3) assert_int_equal(calls, cancel_at);
    const uint32_t seen[] = {3, 0, 2}; /* text comes before its token */
    if (which < 3) assert_int_equal(list[1].tokens_seen, seen[which]);
    arena_close(&host);
  }
}

static void restarting_text(verbatim_request *r, const char *text, size_t bytes) {
  (void)text, (void)bytes;
  asked *a = r->context;
  if (++calls != cancel_at) return;
  if (r->finish == VERBATIM_RUNNING) assert_true(schedule_cancel(&s, r));
  r->on_text = NULL;
  a->tokens_seen = a->finish_order = 0;
  submit(a);
}

/* A callback may cancel its request, or find it finished, and submit it again: what is called then is of the second time alone. */
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
    arena_close(&host);
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

/* Text comes before on_token of the token that makes it certain, all of it, and ends where a stop text begins. */
static void text_is_shown_in_order(void **state) {
  (void)state;
  for (uint32_t prompt = 1; prompt < 30; prompt++) {
    char bytes[2], expected[200] = "";
    const verbatim_text stop = {bytes, 2};
    asked *a = ask(0, prompt, 12, false);
    open_machine(false, &LIMITS, (schedule_options){0});
    submit(a);
    run_out(); /* what it makes without a stop text */
    uint32_t count = a->request.token_count, end = a->request.finish == VERBATIM_STOP ? count - 1 : count;
    arena_close(&host);
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
    arena_close(&host);
  }
}

static int open_small(void **state) {
  (void)state;
  char *json = fixture_dump(fixture_small());
  status result = tokenizer_open_memory(&small, json, strlen(json), NULL, 0);
  free(json);
  model.tokenizer = small;
  return (int)result;
}

static int close_small(void **state) {
  (void)state;
  tokenizer_close(small);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(outputs_are_the_requests_own), cmocka_unit_test(lost_rows_and_lists_are_seen),
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

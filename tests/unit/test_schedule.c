/* test_schedule.c - the scheduler on a machine that this test makes: who is admitted, what a step holds, what is dropped and reused.
 *
 * Linked with --wrap for the functions of exec.h. The machine is late: host memory is read and steps run only when a result is waited for,
 * as late as any device may. Its model's token is a function of all token ids that the KV pages hold for the sequence, so that
 * one wrong page, row, slot, token or overwritten input changes what a request gets. Controls plant such faults. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include "engine/schedule.h"

#define SEQS 6u
#define TOKENS 24u
#define LOGITS 7u
#define PAGES_PER_SEQ 4u
#define PAGES_MAX 24u
#define VOCAB 50u
#define EOS 7u
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
  uint32_t parity, rows[SEQS], row_count;
} queued_step;

typedef struct step_log { uint32_t tokens, logits, seqs, decode; } step_log;

static struct machine {
  bool eager;       /* runs a step when it is submitted */
  bool ignore_rows; /* a planted fault                  */
  image image[2];
  uint32_t block_host[SEQS * PAGES_PER_SEQ], block[SEQS * PAGES_PER_SEQ];
  uint32_t waiting[2]; /* steps of a parity that have not run */
  queued_step queue[4];
  uint32_t queued;
  int32_t kv[PAGES_MAX * 64], sampled[SEQS];
  sample_result result[2][LOGITS];
  uint64_t digest[2][LOGITS];
  float logits[2][LOGITS * VOCAB];
  step_log steps[STEPS_MAX];
  uint32_t step_count, dropped_pages;
} m;

static plan_header header;
static plan view = {.header = &header};

/* === The model ============================================================================================================== */

static uint64_t mix(uint64_t sum, int32_t id) {
  uint64_t z = (sum ^ (uint64_t)(uint32_t)id) * 0x9e3779b97f4a7c15ull;
  return z ^ (z >> 29);
}
static int32_t token_of(uint64_t sum) { return (int32_t)((sum >> 20) % VOCAB); }

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

static void run_oldest(void) {
  queued_step step = m.queue[0];
  uint32_t parity = step.parity;
  const image *in = &m.image[parity];
  memmove(m.queue, m.queue + 1, --m.queued * sizeof *m.queue);
  for (uint32_t i = 0; i < step.row_count && !m.ignore_rows; i++)
    memcpy(m.block + step.rows[i] * PAGES_PER_SEQ, m.block_host + step.rows[i] * PAGES_PER_SEQ, 4 * PAGES_PER_SEQ);
  check_tiles(in);
  int32_t ids[TOKENS];
  for (uint32_t i = 0; i < in->head.token_count; i++) ids[i] = in->token[i] < 0 ? m.sampled[-1 - in->token[i]] : in->token[i];
  for (uint32_t i = 0; i < in->head.token_count; i++) *kv_row(in->seq[i], in->position[i]) = ids[i];
  for (uint32_t r = in->head.logit_count; r-- > 0;) { /* any order may be: the last writer of a slot's token is the first row */
    uint32_t row = in->logit_row[r];
    assert_true(row < in->head.token_count && in->sample[r].slot == in->seq[row]);
    assert_int_equal(in->sample[r].position, in->position[row] + 1);
    uint64_t sum = context_of(in->seq[row], in->position[row]);
    m.sampled[in->sample[r].slot] = token_of(sum);
    m.result[parity][r] = (sample_result){.token = token_of(sum), .logprob = -1.0f};
    m.digest[parity][r] = sum;
    m.logits[parity][r * VOCAB] = (float)in->position[row];
  }
  m.waiting[parity]--;
}

exec_input __wrap_exec_fill(exec *self, uint32_t parity);
uint32_t *__wrap_exec_block_row(exec *self, uint32_t slot);
void __wrap_exec_drop_pages(exec *self, const uint32_t *numbers, uint32_t count);
void __wrap_exec_submit(exec *self, uint32_t parity, bool decode, const uint32_t *rows, uint32_t row_count);
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

void __wrap_exec_drop_pages(exec *self, const uint32_t *numbers, uint32_t count) {
  (void)self, (void)numbers;
  m.dropped_pages += count;
}

void __wrap_exec_submit(exec *self, uint32_t parity, bool decode, const uint32_t *rows, uint32_t row_count) {
  (void)self;
  const step_in *head = &m.image[parity].head;
  assert_in_range(head->token_count, 1, header.limits.max_batch_tokens);
  assert_true(head->logit_count <= header.limits.max_logit_rows && head->seq_count <= header.limits.max_seqs);
  assert_true(!decode || head->logit_count == head->token_count);
  assert_true(m.step_count < STEPS_MAX && row_count <= SEQS);
  m.steps[m.step_count++] = (step_log){head->token_count, head->logit_count, head->seq_count, decode};
  assert_true(m.queued < ARRAY_LEN(m.queue));
  queued_step *step = &m.queue[m.queued++];
  *step = (queued_step){.parity = parity, .row_count = row_count};
  memcpy(step->rows, rows, row_count * sizeof *rows);
  m.waiting[parity]++;
  if (m.eager) run_oldest();
}

exec_results __wrap_exec_wait(exec *self, uint32_t parity) {
  (void)self;
  while (m.waiting[parity]) run_oldest();
  return (exec_results){.result = m.result[parity], .digest = m.digest[parity], .logits = m.logits[parity]};
}

/* === Requests =============================================================================================================== */

typedef struct asked {
  verbatim_request request;
  int32_t prompt[200], tokens[200];
  float logprobs[200];
  uint64_t digests[200];
  uint32_t logits_seen, finish_order;
} asked;

static asked list[REQUESTS];
static uint32_t finished;

static void on_token(verbatim_request *r, uint32_t index) {
  asked *a = r->context;
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
                                  .on_token = on_token, .on_logits = logits ? on_logits : NULL, .context = a, .tokens = a->tokens,
                                  .logprobs = a->logprobs, .digests = a->digests};
  return a;
}

/* What the request gets when it is alone in the world. */
static bool is_right(const asked *a) {
  const verbatim_request *r = &a->request;
  uint64_t sum = 1;
  uint32_t made = 0;
  for (uint32_t i = 0; i < r->prompt_count; i++) sum = mix(sum, a->prompt[i]);
  while (made < r->max_tokens) {
    if (made >= r->token_count || r->tokens[made] != token_of(sum) || r->digests[made] != sum) return false;
    if (token_of(sum) == (int32_t)EOS) return r->finish == VERBATIM_STOP && r->token_count == made + 1;
    sum = mix(sum, token_of(sum));
    made++;
  }
  return r->finish == VERBATIM_LENGTH && r->token_count == made;
}

/* === Runs =================================================================================================================== */

static schedule s;
static arena host;
static uint32_t parity;
static bool outstanding[2];

static void open_machine(bool eager, const plan_limits *limits, schedule_options options) {
  memset(&m, 0xff, sizeof m);
  m.eager = eager, m.ignore_rows = false;
  m.queued = m.step_count = m.dropped_pages = 0;
  memset(m.waiting, 0, sizeof m.waiting);
  memset(outstanding, 0, sizeof outstanding);
  parity = finished = 0;
  header = (plan_header){.limits = *limits, .model = {.vocab = VOCAB, .eos_count = 1, .eos = {EOS}}};
  host = (arena){0};
  assert_int_equal(schedule_open(&s, &view, (exec *)(void *)&m, &options, &host), OK);
}

static void submit(asked *a) {
  static const uint8_t weights[16] = {1};
  assert_int_equal(request_check(&view, &a->request, true), OK);
  request_start(&view, weights, &a->request);
  schedule_submit(&s, &a->request);
}

/* As verbatim_step does. */
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

static uint32_t run_many(bool eager, const plan_limits *limits, schedule_options options, bool ignore_rows) {
  uint32_t right = 0;
  open_machine(eager, limits, options);
  if (ignore_rows) memset(m.block, 0, sizeof m.block), m.ignore_rows = true;
  for (uint32_t i = 0; i < REQUESTS; i++) submit(ask(i, 1 + i * 37 % 150, 1 + i * 5 % 30, i % 5 == 2));
  run_out();
  for (uint32_t i = 0; i < REQUESTS; i++) {
    right += is_right(&list[i]);
    assert_int_equal(list[i].logits_seen, list[i].request.on_logits ? list[i].request.prompt_count : 0);
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
      assert_int_equal(run_many(eager, &LIMITS, options[i], false), REQUESTS);
      assert_int_equal(run_many(eager, &narrow, options[i], false), REQUESTS);
    }
}

/* Control: a device that never gets block table rows mixes up its sequences, and that is seen. */
static void lost_rows_are_seen(void **state) {
  (void)state;
  assert_true(run_many(false, &LIMITS, (schedule_options){0}, true) < REQUESTS);
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

/* Rows that choose nothing share the slot's token with the one that does: they never meet it in a step. */
static void logits_of_a_prompt_keep_to_the_limit(void **state) {
  (void)state;
  open_machine(false, &LIMITS, (schedule_options){0});
  submit(ask(0, 16, 1, true));
  run_out();
  const uint32_t rows[] = {7, 7, 1, 1};
  assert_int_equal(m.step_count, 4);
  for (uint32_t i = 0; i < 4; i++) assert_int_equal(m.steps[i].logits, rows[i]);
  assert_int_equal(list[0].logits_seen, 16);
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

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(outputs_are_the_requests_own), cmocka_unit_test(lost_rows_are_seen),
                                     cmocka_unit_test(a_missing_wait_is_seen), cmocka_unit_test(admission_is_in_order_of_arrival),
                                     cmocka_unit_test(steps_hold_chunks_within_limits),
                                     cmocka_unit_test(logits_of_a_prompt_keep_to_the_limit),
                                     cmocka_unit_test(lookahead_is_dropped_and_the_slot_reused)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

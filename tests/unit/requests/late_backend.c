/* late_backend.c - see late_backend.h. */
#include "tests/unit/requests/late_backend.h"
#include "tests/unit/text/tokenizer_fixture.h"

late_backend late;

plan_header late_header;
static const plan_op op = {.name = 1, .layer = 3};
static plan view = {.header = &late_header, .ops = &op, .op_count = 1, .strings = "\0o_proj"};
static uint8_t weights[16] = {1};
static tokenizer *small; /* ids 0..255 are bytes */
request_model late_model = {.plan = &view, .weights_digest = weights, .tokenizer_digest = weights, .logits = true, .trace = true};

/* === The model ============================================================================================================== */

uint64_t mix(uint64_t sum, int32_t id) {
  uint64_t z = (sum ^ (uint64_t)(uint32_t)id) * 0x9e3779b97f4a7c15ull;
  return z ^ (z >> 29);
}
int32_t token_of(uint64_t sum) { return (int32_t)((sum >> 20) % WEAK); }
static bool is_bad(int32_t id) { return id == BROKEN || id == WEAK; }

/* The token of a row: it depends only on the context while its token is the prompt's, afterwards on the token list too. */
static sample_result result_of(uint64_t sum, int32_t target, const token_bias *list, uint32_t list_count) {
  sample_result r = {.token = target, .logprob = -(float)(sum >> 40 & 1023), .rank = (uint32_t)(sum >> 50) % VOCAB,
                     .logit = (float)(sum >> 20 & 255)};
  if (target >= 0) return r;
  for (uint32_t i = 0; i < list_count; i++) sum = mix(sum + request_bits(list[i].bias), list[i].token);
  r.token = token_of(sum);
  return r;
}
static top_logprob top_of(uint64_t sum, uint32_t i) { return (top_logprob){(int32_t)((sum + i) % VOCAB), -(float)i}; }

/* === The backend ============================================================================================================ */

static int32_t *kv_row(uint32_t p, uint32_t seq, uint32_t position) {
  uint32_t page = late.block[p][seq * PAGES_PER_SEQ + position / 64];
  assert_true(seq < SEQS && position / 64 < PAGES_PER_SEQ && page < late_header.limits.kv_pages);
  return &late.kv[page * 64 + position % 64];
}

static uint8_t *spoilt_row(uint32_t p, uint32_t seq, uint32_t position) { return late.spoilt + (kv_row(p, seq, position) - late.kv); }

/* A row that is not finite makes all rows of its tile non-finite, whether it lies in the tile or before it. */
static void spoil_tile(uint32_t p, const attn_tile *t) {
  uint8_t spoilt = 0;
  for (uint32_t i = 0; i < t->position; i++) spoilt |= *spoilt_row(p, t->seq, i);
  for (uint32_t i = 0; i < t->count; i++) spoilt |= *kv_row(p, t->seq, t->position + i) == BROKEN;
  for (uint32_t i = 0; i < t->count; i++) *spoilt_row(p, t->seq, t->position + i) = spoilt;
}

static uint64_t *context_row(uint32_t p, uint32_t seq, uint32_t position) { return late.context + (kv_row(p, seq, position) - late.kv); }

/* The sum of the first count rows. A row that was computed after rows other than these makes the sum wrong. */
static uint64_t context_of(uint32_t p, uint32_t seq, uint32_t count) {
  uint64_t sum = 1;
  for (uint32_t i = 0; i < count; i++) {
    sum = mix(sum, *kv_row(p, seq, i));
    if (*context_row(p, seq, i) != sum) sum = mix(sum, DROPPED);
  }
  return sum;
}

static void write_row(uint32_t p, uint32_t seq, uint32_t position, int32_t id) {
  *kv_row(p, seq, position) = id;
  *context_row(p, seq, position) = mix(context_of(p, seq, position), id);
}

/* Tile i of a step: first tiles of generated tokens, then those of prompts, whose sequence is in their context. */
static attn_tile tile_of(const image *in, uint32_t i) {
  uint32_t made = in->head[STEP_MADE].tile_count;
  if (i < made) return in->tiles[i];
  attn_tile t = in->prompt_tiles[i - made];
  assert_true(t.seq < in->head[STEP_PROMPT].seq_count);
  t.seq = in->contexts[t.seq].seq;
  return t;
}

static void check_tiles(const image *in) {
  uint32_t row = 0, made = in->head[STEP_MADE].tile_count;
  for (uint32_t i = 0; i < in->head[STEP_ALL].tile_count; i++) {
    const attn_tile t = tile_of(in, i);
    assert_int_equal(t.row, row);
    assert_in_range(t.count, 1, i < made ? late_header.limits.attn_tile_tokens : PROMPT_TILE_TOKENS);
    if (i >= made && t.count > late.longest_prompt_tile) late.longest_prompt_tile = t.count;
    for (uint32_t k = 0; k < t.count; k++, row++) {
      assert_int_equal(in->seq[row], t.seq);
      assert_int_equal(in->position[row], t.position + k);
    }
  }
  assert_int_equal(row, in->head[STEP_ALL].token_count);
}

static void run_row(const image *in, uint32_t side, uint32_t r) {
  uint32_t row = in->logit_row[r];
  const sample_param *param = &in->sample[r];
  assert_true(row < in->head[STEP_ALL].token_count && param->slot == in->seq[row]);
  assert_int_equal(param->position, in->position[row] + 1);
  uint64_t sum = context_of(side, in->seq[row], in->position[row] + 1);
  sample_result *result = &late.result[side][r];
  *result = result_of(sum, param->target, late.list[side][param->slot], param->list_count);
  bool is_bad_row = *kv_row(side, in->seq[row], in->position[row]) == WEAK;
  for (uint32_t i = 0; i <= in->position[row]; i++) is_bad_row |= *spoilt_row(side, in->seq[row], i);
  if (is_bad_row) *result = (sample_result){.nonfinite = 1};
  if (param->target < 0) late.sampled[param->slot] = result->token;
  for (uint32_t i = 0; i < param->top_count; i++) late.top[side][r][i] = top_of(sum, i);
  late.digest[side][r] = sum;
  late.logits[side][r * VOCAB] = (float)in->position[row];
}

static void drop_page(uint32_t number) {
  for (uint32_t i = 0; i < 64; i++) late.kv[number * 64 + i] = DROPPED;
  memset(late.spoilt + number * 64, 1, 64);
}

static void upload_row(uint32_t p, uint32_t slot, uint32_t list_count) {
  const uint32_t *row = late.block_host + slot * PAGES_PER_SEQ;
  bool has_grown = late.block[p][slot * PAGES_PER_SEQ] == row[0];
  if (!late.ignore_rows && !(has_grown && late.ignore_growth)) memcpy(late.block[p] + slot * PAGES_PER_SEQ, row, 4 * PAGES_PER_SEQ);
  if (!late.ignore_lists) memcpy(late.list[p][slot], late.list_host[slot], list_count * sizeof(token_bias));
}

static void run_oldest(void) {
  queued_step step = late.queue[0];
  uint32_t side = step.side;
  const image *in = &late.image[side];
  memmove(late.queue, late.queue + 1, --late.queued * sizeof *late.queue);
  for (uint32_t slot = 0; slot < SEQS; slot++)
    if (step.sent[slot]) upload_row(side, slot, step.sent[slot] - 1);
  check_tiles(in);
  int32_t ids[TOKENS];
  for (uint32_t i = 0; i < in->head[STEP_ALL].token_count; i++) ids[i] = in->token[i] < 0 ? late.sampled[-1 - in->token[i]] : in->token[i];
  for (uint32_t i = 0; i < in->head[STEP_ALL].token_count; i++) write_row(side, in->seq[i], in->position[i], ids[i]);
  for (uint32_t i = 0; i < in->head[STEP_ALL].tile_count; i++) {
    const attn_tile t = tile_of(in, i);
    spoil_tile(side, &t);
  }
  for (uint32_t r = in->head[STEP_ALL].logit_count; r-- > 0;) run_row(in, side, r); /* the callbacks may come in any order */
  for (uint32_t i = 0; i < step.dropped_count; i++) drop_page(step.dropped[i]);
  late.waiting[side]--;
}

exec_input __wrap_exec_fill(exec *self, uint32_t side);
block_table *__wrap_exec_block_table(exec *self);
void __wrap_exec_drop_pages(exec *self, const uint32_t *numbers, uint32_t count);
void __wrap_exec_submit(exec *self, uint32_t side, bool decode);
exec_results __wrap_exec_wait(exec *self, uint32_t side);
bool __real_block_table_was_read(const block_table *self, uint32_t slot);
bool __wrap_block_table_was_read(const block_table *self, uint32_t slot);

exec_input __wrap_exec_fill(exec *self, uint32_t side) {
  (void)self;
  image *in = &late.image[side];
  memset(in, 0xff, sizeof *in);
  return (exec_input){.head = in->head, .token = in->token, .position = in->position, .seq = in->seq, .tiles = in->tiles,
                      .logit_row = in->logit_row, .sample = in->sample, .prompt_tiles = in->prompt_tiles,
                      .contexts = in->contexts};
}

block_table *__wrap_exec_block_table(exec *self) {
  (void)self;
  return &late.table;
}

void __wrap_exec_drop_pages(exec *self, const uint32_t *numbers, uint32_t count) {
  (void)self;
  late.dropped_pages += count;
  for (uint32_t i = 0; i < count; i++) {
    if (late.queued == 0) drop_page(numbers[i]);
    else late.queue[late.queued - 1].dropped[late.queue[late.queued - 1].dropped_count++] = numbers[i];
  }
}

void __wrap_exec_submit(exec *self, uint32_t side, bool decode) {
  (void)self;
  const step_in *head = late.image[side].head;
  assert_in_range(head->token_count, 1, late_header.limits.max_batch_tokens);
  assert_true(head->logit_count <= late_header.limits.max_logit_rows && head->seq_count <= late_header.limits.max_seqs);
  assert_true(!decode || head->logit_count == head->token_count);
  assert_true(late.step_count < STEPS_MAX);
  late.steps[late.step_count++] = (step_log){head->token_count, head->logit_count, head->seq_count, decode};
  assert_true(late.queued < ARRAY_LEN(late.queue));
  queued_step *step = &late.queue[late.queued++];
  *step = (queued_step){.side = side};
  uint32_t change_count;
  const block_change *changes = block_table_send(&late.table, side, &change_count);
  assert_true(change_count <= SEQS);
  for (uint32_t i = 0; i < change_count; i++) step->sent[changes[i].slot] = changes[i].list_count + 1;
  late.waiting[side]++;
  if (late.eager) run_oldest();
}

bool __wrap_block_table_was_read(const block_table *self, uint32_t slot) {
  return __real_block_table_was_read(self, slot) || late.ignore_reading;
}

exec_results __wrap_exec_wait(exec *self, uint32_t side) {
  (void)self;
  while (late.waiting[side]) run_oldest();
  block_table_done(&late.table);
  return (exec_results){.result = late.result[side], .top = late.top[side][0], .digest = late.digest[side],
                        .logits = late.logits[side]};
}

void __wrap_watch_step(watch *self, uint32_t side, const watch_row *rows, uint32_t row_count, watch_fault *fault);
void __wrap_watch_step(watch *self, uint32_t side, const watch_row *rows, uint32_t row_count, watch_fault *fault) {
  (void)self;
  const image *in = &late.image[side];
  __wrap_exec_submit(NULL, side, false);
  late.watched_steps++;
  assert_int_equal(row_count, in->head[STEP_ALL].token_count);
  for (uint32_t i = 0; i < row_count; i++) {
    assert_true(rows[i].position == in->position[i] && rows[i].slot == in->seq[i]);
    if (rows[i].logit != UINT32_MAX) assert_int_equal(in->logit_row[rows[i].logit], i);
    if (rows[i].request && rows[i].request->on_trace) rows[i].request->on_trace(rows[i].request, rows[i].position, NULL);
    if (fault && is_bad(in->token[i]) && rows[i].position < fault->position) *fault = (watch_fault){.op = 0, .position = rows[i].position};
  }
}

/* === Requests =============================================================================================================== */

const verbatim_bias BIASES[3] = {{9, 1.0f}, {4, -2.0f}, {30, 0.5f}};
static const int32_t ALLOWED[] = {30, 4};
asked asks[REQUESTS];
static uint32_t finished;

void on_token(verbatim_request *r, uint32_t index) {
  asked *a = r->context;
  assert_int_equal(index, a->tokens_seen++);
  assert_int_equal(index + 1, r->token_count);
  if (r->finish != VERBATIM_RUNNING) a->finish_order = ++finished;
}

void on_logits(verbatim_request *r, uint32_t position, const float *row) {
  asked *a = r->context;
  assert_int_equal(position, a->logits_seen++);
  assert_true(row[0] == (float)position);
}

asked *ask(uint32_t i, uint32_t prompt_count, uint32_t max_tokens, bool logits) {
  asked *a = &asks[i];
  memset(a, 0, sizeof *a);
  for (uint32_t k = 0; k < prompt_count; k++) a->prompt[k] = (int32_t)(mix(i * 977 + 3, (int32_t)k) >> 9) & 31;
  a->request = (verbatim_request){.prompt = a->prompt, .prompt_count = prompt_count, .max_tokens = max_tokens, .top_p = 1.0,
                                  .repetition_penalty = 1, .on_token = on_token, .on_logits = logits ? on_logits : NULL, .context = a,
                                  .tokens = a->tokens, .scores = a->scores, .alternatives = a->alternatives};
  return a;
}

/* The same, with every feature that affects a step: scores, alternatives and token lists in turn. */
asked *ask_all(uint32_t i) {
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
  return t->id == expected.token && t->logprob == expected.logprob && t->rank == expected.rank && t->logit == expected.logit &&
         t->digest == sum;
}

static uint32_t first_bad(const asked *a) {
  uint32_t position = 0;
  while (!is_bad(a->prompt[position])) position++;
  return position;
}

/* The request's results so far are the model's, and it ended where it should, or was cancelled. */
bool is_right(const asked *a) {
  const verbatim_request *r = &a->request;
  token_bias biases[TOKEN_LIST_MAX];
  uint64_t sum = 1;
  uint32_t made = 0, scored = 0, list_count = request_list(r, biases);
  bool broken = false, cancelled = r->finish == VERBATIM_CANCELLED || r->finish == VERBATIM_DEADLINE;
  for (uint32_t i = 0; i < r->prompt_count; i++) {
    if (request_scores(r, i)) {
      broken |= a->prompt[i - 1] == WEAK;
      if (broken || (cancelled && scored == r->score_count)) break;
      if (scored >= r->score_count || !same_token(&r->scores[scored], result_of(sum, a->prompt[i], NULL, 0), sum)) return false;
      if (!same_top(a, scored++, sum)) return false;
    }
    sum = mix(sum, a->prompt[i]);
    broken |= a->prompt[i] == BROKEN;
  }
  if (scored != r->score_count) return false;
  broken |= r->max_tokens && a->prompt[r->prompt_count - 1] == WEAK;
  if (broken && (r->max_tokens || (r->score && scored < r->prompt_count - r->score_from)))
    return r->token_count == 0 && (cancelled || (r->finish == VERBATIM_NONFINITE && strcmp(r->fault_op, "o_proj") == 0 &&
                                                 r->fault_layer == 3 && r->fault_position == first_bad(a)));
  for (; made < r->max_tokens; made++) {
    sample_result expected = result_of(sum, -1, biases, list_count);
    if (cancelled && made == r->token_count) return true;
    if (made >= r->token_count || !same_token(&r->tokens[made], expected, sum) || !same_top(a, scored + made, sum)) return false;
    if (expected.token == (int32_t)EOS && !r->ignore_eos) return (cancelled || r->finish == VERBATIM_STOP) && r->token_count == made + 1;
    sum = mix(sum, expected.token);
  }
  return (cancelled || r->finish == VERBATIM_LENGTH) && r->token_count == made;
}

/* === Runs =================================================================================================================== */

schedule batching;
arena late_host;
uint32_t step_side;
bool step_outstanding[2];

void open_machine(bool eager, const plan_limits *limits, schedule_options options) {
  memset(&late, 0xff, sizeof late);
  memset(late.block_host, 0, sizeof late.block_host);
  late.eager = eager, late.ignore_rows = late.ignore_lists = late.ignore_growth = false;
  late.queued = late.step_count = late.dropped_pages = late.watched_steps = late.longest_prompt_tile = 0;
  memset(late.waiting, 0, sizeof late.waiting);
  late.ignore_reading = false;
  memset(step_outstanding, 0, sizeof step_outstanding);
  step_side = finished = 0;
  late_header = (plan_header){.limits = *limits, .model = {.vocab = VOCAB, .eos_count = 1, .eos = {EOS}}};
  late_host = (arena){0};
  assert_int_equal(block_table_open(&late.table, SEQS, PAGES_PER_SEQ, late.block_host, late.list_host[0], &late_host), OK);
  assert_int_equal(schedule_open(&batching, &late_model, (exec *)(void *)&late, NULL, &options, &late_host), OK);
}

void submit(asked *a) {
  assert_int_equal(request_check(&late_model, &a->request), OK);
  request_start(&late_model, &a->request);
  schedule_submit(&batching, &a->request);
}

/* As verbatim_poll does. */
bool step(void) {
  step_outstanding[step_side] = schedule_step(&batching, step_side);
  uint32_t other = step_side ^ 1, now = step_side;
  if (step_outstanding[now]) step_side ^= 1;
  if (step_outstanding[other]) schedule_settle(&batching, other);
  step_outstanding[other] = false;
  return step_outstanding[now] || !schedule_idle(&batching);
}

void run_out(void) {
  for (uint32_t i = 0; i < STEPS_MAX && step(); i++) continue;
  assert_true(schedule_idle(&batching));
  assert_int_equal(pages_available(&batching.pages), late_header.limits.kv_pages);
}

const plan_limits LIMITS = {.max_seqs = SEQS, .max_batch_tokens = TOKENS, .max_len = 256, .max_logit_rows = LOGITS, .kv_pages = 12,
                                   .pages_per_seq = PAGES_PER_SEQ, .attn_tile_tokens = 4};

int open_small(void **state) {
  (void)state;
  char *json = fixture_dump(fixture_small());
  status result = tokenizer_open_memory(&small, json, strlen(json), NULL, 0);
  free(json);
  late_model.tokenizer = small;
  return (int)result;
}

int close_small(void **state) {
  (void)state;
  tokenizer_close(small);
  return 0;
}

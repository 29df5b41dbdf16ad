/* test_requests.c - the options of a request, through the whole engine: every token is the one that NUMERICS.md chooses from the logits of
 * a run without options, scoring gives the values of generating, stop texts end where they should, cancelling affects no other request.
 *
 * Linked with --wrap for cpu_adjust: the controls give it the history of the neighbour's slot, another slot's token list, a prompt that is
 * half as long. */
#include "tests/unit/unit.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "e2e.h"
#include "engine/base/base.h"
#include "engine/cpu/cpu.h"
#include "engine/requests/request.h"
#include "kernels_src/num.h"

#ifdef __SANITIZE_ADDRESS__
enum { COUNT = 28 };
#else
enum { COUNT = 52 };
#endif
enum { VOCAB = 384, PROMPT_MAX = 90, TOKENS_MAX = 14, ROWS = PROMPT_MAX + TOKENS_MAX };

static const char DEPLOY[] =
  "max-num-seqs: 8\nmax-num-batched-tokens: 96\nmax-model-len: 128\nkv_pages: 24\nmax_logit_rows: 16\nchunk_tokens: 64\ngroup_chunks: 2\n"
  "ladder: [1, 2, 4, 8]\n";

static e2e_model model;
static e2e_requests requests;

static verbatim_config base_config(void) {
  return (verbatim_config){.plan_path = model.plan_path, .model_dir = model.model_dir, .device = VERBATIM_DEVICE_CPU, .threads = 2};
}

static verbatim *open_engine(verbatim_config config) {
  verbatim *engine = NULL;
  if (verbatim_open(&engine, &config) != 0) fail_msg("open: %s", verbatim_error());
  return engine;
}

static void submit(verbatim *engine, verbatim_request *r) {
  if (verbatim_submit(engine, r) != 0) fail_msg("submit: %s", verbatim_error());
}

static void run_out(verbatim *engine) {
  bool busy = true;
  while (busy) assert_int_equal(verbatim_poll(engine, &busy), 0);
}

/* === Planted faults ========================================================================================================= */

void __real_cpu_adjust(const adjust_args *args, cpu_pool *pool);
void __wrap_cpu_adjust(const adjust_args *args, cpu_pool *pool);
int __real_verbatim_open(verbatim **engine, const verbatim_config *config);
int __wrap_verbatim_open(verbatim **engine, const verbatim_config *config);

enum { SOUND, NEIGHBOURS_HISTORY, OTHER_LIST, SHORT_PROMPT, FAULTS };
static int fault;

/* Off during start-up, because the self-check would notice it. */
int __wrap_verbatim_open(verbatim **engine, const verbatim_config *config) {
  int planted = fault;
  fault = SOUND;
  int code = __real_verbatim_open(engine, config);
  fault = planted;
  return code;
}

void __wrap_cpu_adjust(const adjust_args *args, cpu_pool *pool) {
  static sample_param changed[64];
  adjust_args a = *args;
  uint32_t rows = args->step->logit_count;
  assert_true(rows <= ARRAY_LEN(changed));
  memcpy(changed, args->param, rows * sizeof *changed);
  for (uint32_t i = 0; i < rows; i++) {
    uint32_t other = (changed[i].slot + 1) % 8;
    if (fault == NEIGHBOURS_HISTORY) changed[i].slot = other;
    if (fault == SHORT_PROMPT) changed[i].prompt_count /= 2;
  }
  a.param = changed;
  if (fault == OTHER_LIST || fault == NEIGHBOURS_HISTORY) { /* both are indexed by slot; one of them is the row's own */
    static token_bias lists[8 * TOKEN_LIST_MAX];
    for (uint32_t slot = 0; slot < 8; slot++) {
      uint32_t from = fault == OTHER_LIST ? (slot + 1) % 8 : (slot + 7) % 8;
      memcpy(lists + slot * TOKEN_LIST_MAX, args->lists + from * TOKEN_LIST_MAX, TOKEN_LIST_MAX * sizeof *lists);
    }
    a.lists = lists;
  }
  __real_cpu_adjust(&a, pool);
}

/* === Sampling by its definition ============================================================================================= */

typedef struct candidate { float logit; int32_t id; uint64_t weight; } candidate;

static int by_rank(const void *a, const void *b) {
  const candidate *x = a, *y = b;
  if (x->logit != y->logit) return x->logit > y->logit ? -1 : 1;
  return x->id < y->id ? -1 : 1;
}

static int by_id(const void *a, const void *b) { return ((const candidate *)a)->id < ((const candidate *)b)->id ? -1 : 1; }

static bool is_allowed(const verbatim_request *r, int32_t id) {
  for (uint32_t i = 0; i < r->allowed_count; i++)
    if (r->allowed_ids[i] == id) return true;
  return r->allowed_count == 0;
}

/* The logit of an allowed token, after penalties and biases. ids: prompt and tokens generated so far. */
static float adjusted(const verbatim_request *r, const int32_t *ids, uint32_t count, int32_t id, float logit) {
  bool seen = false, listed = false;
  uint32_t made = 0;
  float bias = 0;
  for (uint32_t i = 0; i < count; i++) {
    if (ids[i] != id) continue;
    seen = true;
    made += i >= r->prompt_count;
  }
  for (uint32_t i = 0; i < r->bias_count; i++)
    if (r->biases[i].token == id) listed = true, bias = r->biases[i].bias;
  if (seen) logit = logit > 0 ? logit / r->repetition_penalty : logit * r->repetition_penalty;
  logit = logit - r->frequency_penalty * (float)made;
  if (made) logit = logit - r->presence_penalty;
  return listed ? logit + bias : logit;
}

static int32_t choose(const verbatim_request *r, const int32_t *ids, uint32_t count, const float *row) {
  __extension__ typedef unsigned __int128 wide;
  candidate list[VOCAB];
  uint32_t n = 0, kept = 0, last = 0;
  uint64_t sum = 0, prefix = 0, upto = 0;
  for (int32_t id = 0; id < VOCAB; id++)
    if (is_allowed(r, id)) list[n++] = (candidate){.logit = adjusted(r, ids, count, id, row[id]), .id = id};
  qsort(list, n, sizeof *list, by_rank);
  if (r->temperature == 0) return list[0].id;
  float bound = r->min_p == 0 ? -INFINITY : (float)((double)r->temperature * log(r->min_p)), largest = list[0].logit;
  while (kept < n && list[kept].logit - largest >= bound) kept++;
  if (r->top_k && r->top_k < kept) kept = r->top_k;
  for (uint32_t i = 0; i < kept; i++) sum += list[i].weight = (uint64_t)(num_exp((list[i].logit - largest) / r->temperature) * 0x1p40f);
  uint64_t limit = (uint64_t)((wide)request_top_p_fixed(r->top_p) * sum >> 32);
  for (kept = 0; prefix < (limit ? limit : 1);) prefix += list[kept++].weight;
  qsort(list, kept, sizeof *list, by_id);
  uint64_t draw = (uint64_t)((wide)num_philox(r->seed, count, r->sample_index) * prefix >> 64);
  while ((upto += list[last].weight) <= draw) last++;
  return list[last].id;
}

static bool same_details(const float *row, const verbatim_token *token, const verbatim_alternative *alternatives, uint32_t top) {
  candidate list[VOCAB];
  double sum = 0;
  uint32_t rank = 0;
  for (int32_t id = 0; id < VOCAB; id++) list[id] = (candidate){.logit = row[id], .id = id};
  qsort(list, VOCAB, sizeof *list, by_rank);
  for (uint32_t i = 0; i < VOCAB; i++) sum += exp((double)list[i].logit - (double)list[0].logit);
  while (list[rank].id != token->id) rank++;
  double logprob = (double)row[token->id] - (double)list[0].logit - log(sum);
  if (token->rank != rank || fabs((double)token->logprob - logprob) > 1e-5) return false;
  for (uint32_t i = 0; i < top; i++) {
    logprob = (double)list[i].logit - (double)list[0].logit - log(sum);
    if (alternatives[i].id != list[i].id || fabs((double)alternatives[i].logprob - logprob) > 1e-5) return false;
    if (alternatives[i].id == token->id && alternatives[i].logprob != token->logprob) return false;
  }
  return true;
}

/* === Tokens by their definition ============================================================================================= */

static float *rows; /* [ROWS][VOCAB] of one request */

static void keep_row(verbatim_request *r, uint32_t position, const float *row) {
  (void)r;
  memcpy(rows + (size_t)position * VOCAB, row, VOCAB * sizeof *row);
}

/* Logits of the request's prompt and of its generated tokens, from a run that has them as its prompt. ids: room for ROWS + 1. */
static void replay(verbatim *engine, const verbatim_request *r, int32_t *ids) {
  verbatim_token ignored;
  verbatim_request plain = VERBATIM_REQUEST_DEFAULTS;
  memcpy(ids, r->prompt, r->prompt_count * sizeof *ids);
  for (uint32_t i = 0; i < r->token_count; i++) ids[r->prompt_count + i] = r->tokens[i].id;
  plain.prompt = ids;
  plain.prompt_count = r->prompt_count + (r->token_count ? r->token_count - 1 : 0);
  plain.tokens = &ignored;
  plain.on_logits = keep_row;
  submit(engine, &plain);
  run_out(engine);
}

/* How many requests have the results that follow from their logits: every token, with its details. */
static uint32_t count_right(verbatim *engine) {
  uint32_t right = 0;
  int32_t ids[ROWS + 1];
  for (uint32_t i = 0; i < COUNT; i++) {
    const verbatim_request *r = &requests.list[i];
    const verbatim_alternative *alternatives = r->alternatives;
    bool good = r->score_count == (r->score ? r->prompt_count - r->score_from : 0);
    assert_true(r->finish == VERBATIM_STOP || r->finish == VERBATIM_LENGTH);
    replay(engine, r, ids);
    for (uint32_t k = 0; k < r->score_count; k++, alternatives += r->top_logprobs)
      good = good && r->scores[k].id == r->prompt[r->score_from + k] &&
             same_details(rows + (size_t)(r->score_from + k - 1) * VOCAB, &r->scores[k], alternatives, r->top_logprobs);
    for (uint32_t k = 0; k < r->token_count; k++, alternatives += r->top_logprobs) {
      const float *row = rows + (size_t)(r->prompt_count + k - 1) * VOCAB;
      good = good && r->tokens[k].id == choose(r, ids, r->prompt_count + k, row) &&
             same_details(row, &r->tokens[k], alternatives, r->top_logprobs);
    }
    right += good;
  }
  return right;
}

static uint32_t run_and_count(verbatim_config config) {
  verbatim_config logits = base_config();
  (void)e2e_run(&config, &requests, 0, COUNT);
  fault = SOUND;
  logits.logits = true;
  verbatim *engine = open_engine(logits);
  uint32_t right = count_right(engine);
  verbatim_close(engine);
  return right;
}

static void tokens_are_as_defined(void **state) {
  (void)state;
  verbatim_config c = base_config();
  assert_int_equal(run_and_count(c), COUNT);
  c.poison = true, c.chunk_tokens = 7, c.shuffle_pages = 3, c.slot_offset = 5;
  assert_int_equal(run_and_count(c), COUNT);
}

static void planted_faults_are_seen(void **state) {
  (void)state;
  for (int planted = SOUND + 1; planted < FAULTS; planted++) {
    fault = planted;
    uint32_t right = run_and_count(base_config());
    if (right == COUNT) fail_msg("fault %d is not seen", planted);
  }
  fault = SOUND;
}

/* Each kind of option has an effect: it changes the tokens of some request. */
static void nothing_is_ignored(void **state) {
  (void)state;
  verbatim *engine = open_engine(base_config());
  uint32_t changed[6] = {0};
  for (uint32_t i = 0; i < COUNT; i++) {
    verbatim_request r = requests.list[i], plain = r;
    verbatim_token made[2][TOKENS_MAX];
    if (r.max_tokens == 0) continue;
    plain.score = false, plain.score_from = 0, plain.top_logprobs = 0;
    for (int kind = -1; kind < 6; kind++) {
      verbatim_request q = plain;
      q.tokens = made[kind >= 0];
      if (kind == 0) q.min_p = 0;
      if (kind == 1) q.repetition_penalty = 1, q.frequency_penalty = 0;
      if (kind == 2) q.presence_penalty = 0;
      if (kind == 3) q.bias_count = 0;
      if (kind == 4) q.allowed_count = 0;
      if (kind == 5) q.sample_index = 0;
      submit(engine, &q);
      run_out(engine);
      if (kind < 0) {
        plain.token_count = q.token_count;
        continue;
      }
      bool same = q.token_count == plain.token_count;
      for (uint32_t k = 0; same && k < q.token_count; k++) same = made[0][k].id == made[1][k].id;
      changed[kind] += !same;
    }
  }
  for (int kind = 0; kind < 6; kind++)
    if (changed[kind] == 0) fail_msg("kind %d changes no request", kind);
  verbatim_close(engine);
}

/* === Scores ================================================================================================================= */

/* Generated tokens, given as a prompt and scored, in another batch and other chunks: the same values to the bit. */
static void scoring_is_generating(void **state) {
  (void)state;
  static int32_t ids[COUNT][ROWS];
  static verbatim_token scores[COUNT][TOKENS_MAX];
  static verbatim_alternative alternatives[COUNT][TOKENS_MAX * E2E_TOP];
  verbatim_request list[COUNT];
  verbatim_config c = base_config();
  (void)e2e_run(&c, &requests, 0, COUNT);
  for (int way = 0; way < 3; way++) {
    c = base_config();
    if (way == 1) c.max_active = 1, c.chunk_tokens = 5;
    if (way == 2) c.poison = true, c.shuffle_pages = 4, c.slot_offset = 3, c.direct = true;
    verbatim *engine = open_engine(c);
    for (uint32_t i = 0; i < COUNT; i++) {
      const verbatim_request *r = &requests.list[i];
      verbatim_request *q = &list[i];
      *q = VERBATIM_REQUEST_DEFAULTS;
      memcpy(ids[i], r->prompt, r->prompt_count * sizeof **ids);
      for (uint32_t k = 0; k < r->token_count; k++) ids[i][r->prompt_count + k] = r->tokens[k].id;
      q->prompt = ids[i], q->prompt_count = r->prompt_count + r->token_count, q->max_tokens = 0;
      q->score = true, q->score_from = r->prompt_count, q->scores = scores[i];
      q->top_logprobs = r->top_logprobs, q->alternatives = alternatives[i];
      if (r->token_count) submit(engine, q);
    }
    run_out(engine);
    for (uint32_t i = 0; i < COUNT; i++) {
      const verbatim_request *r = &requests.list[i];
      if (r->token_count == 0) continue;
      assert_int_equal(list[i].finish, VERBATIM_LENGTH);
      assert_int_equal(list[i].score_count, r->token_count);
      assert_memory_equal(scores[i], r->tokens, r->token_count * sizeof *r->tokens);
      if (r->top_logprobs)
        assert_memory_equal(alternatives[i], r->alternatives + (size_t)r->score_count * r->top_logprobs,
                            (size_t)r->token_count * r->top_logprobs * sizeof **alternatives);
    }
    verbatim_close(engine);
  }
}

/* === Text =================================================================================================================== */

typedef struct shown { char text[1024]; size_t bytes; } shown;

static void show(verbatim_request *r, const char *text, size_t bytes) {
  shown *s = r->context;
  assert_true(s->bytes + bytes < sizeof s->text);
  memcpy(s->text + s->bytes, text, bytes);
  s->bytes += bytes;
}

static size_t decode(const verbatim *engine, const verbatim_token *tokens, uint32_t count, char *text, size_t room) {
  int32_t ids[TOKENS_MAX];
  size_t bytes = 0, again = 0;
  for (uint32_t i = 0; i < count; i++) ids[i] = tokens[i].id;
  assert_int_equal(verbatim_decode(engine, ids, count, NULL, 0, &bytes), 0);
  assert_true(bytes <= room);
  assert_int_equal(verbatim_decode(engine, ids, count, text, bytes, &again), 0);
  assert_int_equal(again, bytes);
  return bytes;
}

static bool starts_character(char c) { return ((uint8_t)c & 0xc0) != 0x80; }

/* A part of the text, whole characters only. */
static verbatim_text piece_of(const char *text, size_t bytes, uint64_t seed) {
  size_t from = (size_t)(num_digest_word((uint32_t)seed, 1) % bytes), count = 1 + (size_t)(num_digest_word((uint32_t)seed, 2) % 7);
  while (!starts_character(text[from])) from--;
  if (count > bytes - from) count = bytes - from;
  while (from + count < bytes && !starts_character(text[from + count])) count++;
  return (verbatim_text){text + from, count};
}

/* Greedy requests without and with stop texts that occur in their text: the same tokens up to the stop; the shown text is the text before
 * it; the same in every batch. */
static void stop_texts_end_requests(void **state) {
  (void)state;
  static verbatim_token plain[COUNT][TOKENS_MAX], made[COUNT][TOKENS_MAX];
  static char texts[COUNT][1024];
  static shown seen[COUNT];
  size_t bytes[COUNT];
  verbatim_text stops[COUNT][3];
  verbatim_request list[COUNT], first[COUNT];
  uint32_t ended = 0, early = 0;
  for (int way = -1; way < 3; way++) {
    verbatim_config c = base_config();
    c.text = true;
    if (way == 1) c.max_active = 1, c.chunk_tokens = 5;
    if (way == 2) c.poison = true, c.slot_offset = 3, c.shuffle_pages = 8;
    verbatim *engine = open_engine(c);
    for (uint32_t i = 0; i < COUNT; i++) {
      verbatim_request *r = &list[i];
      *r = VERBATIM_REQUEST_DEFAULTS;
      r->prompt = requests.list[i].prompt, r->prompt_count = requests.list[i].prompt_count, r->max_tokens = TOKENS_MAX;
      r->ignore_eos = true, r->tokens = way < 0 ? plain[i] : made[i];
      r->on_text = show, r->context = &seen[i], seen[i].bytes = 0;
      if (way >= 0) r->stop_texts = stops[i], r->stop_text_count = 1 + i % 3;
      submit(engine, r);
    }
    run_out(engine);
    for (uint32_t i = 0; i < COUNT; i++) {
      const verbatim_request *r = &list[i];
      char text[1024];
      size_t size = decode(engine, r->tokens, r->token_count, text, sizeof text);
      if (way < 0) {
        assert_int_equal(seen[i].bytes, size);
        assert_memory_equal(seen[i].text, text, size);
        memcpy(texts[i], text, bytes[i] = size);
        for (uint32_t k = 0; k < 3; k++) stops[i][k] = piece_of(texts[i], size, i * 3 + k);
        continue;
      }
      assert_memory_equal(r->tokens, plain[i], r->token_count * sizeof *r->tokens);
      if (r->finish == VERBATIM_STOP_TEXT) {
        const verbatim_text *stop = &stops[i][r->stop_index];
        assert_true(r->text_bytes + stop->count <= size);
        assert_memory_equal(text + r->text_bytes, stop->bytes, stop->count);
        assert_int_equal(seen[i].bytes, r->text_bytes);
        ended++;
        early += r->token_count < TOKENS_MAX;
      } else { /* only what the end of the text made of an incomplete character */
        assert_int_equal(r->finish, VERBATIM_LENGTH);
        assert_int_equal(seen[i].bytes, size);
      }
      assert_memory_equal(seen[i].text, text, seen[i].bytes);
      if (way == 0) first[i] = *r;
      assert_memory_equal(r->chain, first[i].chain, 16);
      assert_true(r->finish == first[i].finish && r->text_bytes == first[i].text_bytes && r->stop_index == first[i].stop_index);
    }
    verbatim_close(engine);
  }
  assert_true(ended > 2 * COUNT && early > COUNT);
}

static void text_to_ids_and_back(void **state) {
  (void)state;
  verbatim_config c = base_config();
  verbatim *plain = open_engine(c);
  c.text = true;
  verbatim *engine = open_engine(c);
  static const char text[] = "verbatim \xe2\x82\xac, 17 times";
  int32_t ids[64];
  char back[64];
  size_t count = 0, bytes = 0;
  assert_int_equal(verbatim_encode(engine, text, strlen(text), false, true, ids, ARRAY_LEN(ids), &count), 0);
  assert_int_equal(verbatim_decode(engine, ids, count, back, sizeof back, &bytes), 0);
  assert_int_equal(bytes, strlen(text));
  assert_memory_equal(back, text, bytes);
  memset(back, 'z', sizeof back);
  assert_int_equal(verbatim_decode(engine, ids, count, back, 4, &bytes), 0); /* no room: the beginning, and the full size */
  assert_int_equal(bytes, strlen(text));
  assert_memory_equal(back, "verbz", 5);
  assert_int_equal(verbatim_encode(engine, "\xff", 1, false, true, ids, ARRAY_LEN(ids), &count), ERR_FORMAT);
  assert_int_equal(verbatim_encode(engine, text, strlen(text), false, true, ids, 2, &count), ERR_LIMIT);
  assert_int_equal(verbatim_encode(plain, text, strlen(text), false, true, ids, ARRAY_LEN(ids), &count), ERR_USAGE);
  assert_non_null(strstr(verbatim_error(), "config.text"));
  assert_int_equal(verbatim_decode(plain, ids, 1, back, sizeof back, &bytes), ERR_USAGE);
  verbatim_close(plain);
  verbatim_close(engine);
}

/* === Cancelling ============================================================================================================= */

static void cancelling_disturbs_nobody(void **state) {
  (void)state;
  uint8_t alone[COUNT][16];
  verbatim_config c = base_config();
  c.max_active = 1;
  (void)e2e_run(&c, &requests, 0, COUNT);
  for (uint32_t i = 0; i < COUNT; i++) memcpy(alone[i], requests.list[i].chain, 16);
  uint32_t cancelled = 0;
  for (uint32_t round = 0; round < 4; round++) {
    bool busy = true;
    c = base_config();
    c.poison = round % 2, c.chunk_tokens = round == 2 ? 9 : 0;
    verbatim *engine = open_engine(c);
    for (uint32_t i = 0; i < COUNT; i++) submit(engine, &requests.list[i]);
    for (uint32_t poll = 0; busy; poll++) {
      verbatim_request *r = &requests.list[num_digest_word(poll, round) % COUNT];
      enum verbatim_finish before = r->finish;
      assert_int_equal(verbatim_cancel(engine, r), 0);
      assert_int_equal(r->finish, before == VERBATIM_RUNNING ? VERBATIM_CANCELLED : before);
      assert_int_equal(verbatim_cancel(engine, r), 0);
      cancelled += before == VERBATIM_RUNNING;
      assert_int_equal(verbatim_poll(engine, &busy), 0);
    }
    for (uint32_t i = 0; i < COUNT; i++)
      if (requests.list[i].finish != VERBATIM_CANCELLED) assert_memory_equal(requests.list[i].chain, alone[i], 16);
    verbatim_close(engine);
  }
  assert_in_range(cancelled, COUNT / 2, 3 * COUNT);
  verbatim *engine = open_engine(base_config()), *other = open_engine(base_config());
  submit(engine, &requests.list[0]);
  assert_int_equal(verbatim_cancel(other, &requests.list[0]), ERR_USAGE);
  assert_int_equal(requests.list[0].finish, VERBATIM_RUNNING);
  run_out(engine);
  assert_memory_equal(requests.list[0].chain, alone[0], 16);
  verbatim_close(engine);
  verbatim_close(other);
}

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(tokens_are_as_defined), cmocka_unit_test(planted_faults_are_seen),
                                     cmocka_unit_test(nothing_is_ignored), cmocka_unit_test(scoring_is_generating),
                                     cmocka_unit_test(stop_texts_end_requests), cmocka_unit_test(text_to_ids_and_back),
                                     cmocka_unit_test(cancelling_disturbs_nobody)};
  e2e_begin(argc, argv);
  e2e_make_text_model(&model, "tests/oracle/small-v3.json", DEPLOY);
  e2e_requests_make(&requests, COUNT, VOCAB, PROMPT_MAX, TOKENS_MAX);
  rows = calloc((size_t)ROWS * VOCAB, sizeof *rows);
  int failed = rows ? cmocka_run_group_tests(tests, NULL, NULL) : 1;
  free(rows);
  e2e_requests_free(&requests);
  e2e_remove(&model);
  return failed;
}

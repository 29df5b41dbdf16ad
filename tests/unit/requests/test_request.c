/* test_request.c - checks of a request, its digest, stop ids, token list, the parameters sent to the device, and how results are added. */
#include "tests/unit/unit.h"
#include <math.h>
#include "engine/requests/request.h"
#include "tests/unit/text/tokenizer_fixture.h"

static plan_header header;
static const plan_op op = {.name = 1, .layer = 3};
static plan view = {.header = &header, .ops = &op, .op_count = 1, .strings = "\0layer 3 o_proj"};
static uint8_t weights[16] = {9}, vocab_digest[16] = {3};
static tokenizer *small; /* ids 0..255 are bytes */
static request_model model = {.plan = &view, .weights_digest = weights, .tokenizer_digest = vocab_digest};
static const int32_t PROMPT[200] = {1, 2, 3};
static int32_t many_ids[1025];
static verbatim_bias many_biases[1025];
static verbatim_token tokens[300], scores[300];
static verbatim_alternative alternatives[300 * VERBATIM_TOP_LOGPROBS_MAX];
static top_logprob top[TOP_LOGPROBS_MAX];

static verbatim_request sound(void) {
  header.model.vocab = 1100;
  header.model.eos_count = 2;
  header.model.eos[0] = 50, header.model.eos[1] = 7;
  header.limits.max_len = 256;
  header.limits.kv_pages = 3;
  model.tokenizer = small;
  model.logits = false;
  verbatim_request r = VERBATIM_REQUEST_DEFAULTS;
  r.prompt = PROMPT, r.prompt_count = 3, r.max_tokens = 4;
  r.tokens = tokens, r.scores = scores, r.alternatives = alternatives;
  return r;
}

/* === Checks ================================================================================================================= */

static void expect_refused(verbatim_request r, status expected, const char *word) {
  fail_clear();
  status found = request_check(&model, &r);
  if (found != expected || !strstr(fail_text(), word)) fail_msg("expected \"%s\" in \"%s\"", word, fail_text());
}

static void expect_sound(verbatim_request r) {
  fail_clear();
  if (request_check(&model, &r) != OK) fail_msg("expected no error, found \"%s\"", fail_text());
}

static void on_logits(verbatim_request *request, uint32_t position, const float *row) { (void)request, (void)position, (void)row; }
static void on_text(verbatim_request *request, const char *text, size_t bytes) { (void)request, (void)text, (void)bytes; }

static void on_trace(verbatim_request *request, uint32_t position, const uint64_t *digests) {
  (void)request, (void)position, (void)digests;
}
static bool wants(const verbatim_request *request, uint32_t position, uint32_t point) { return (void)request, (void)position, point == 0; }
static void on_values(verbatim_request *request, uint32_t position, uint32_t point, const void *row, size_t bytes) {
  (void)request, (void)position, (void)point, (void)row, (void)bytes;
}

static void terms(void **state) {
  (void)state;
  static const char *const axes[] = {"sea_level"};
  verbatim_request r = sound();
  r.deadline_seconds = 0.5, expect_sound(r);
  r.deadline_seconds = -1, expect_refused(r, ERR_USAGE, "deadline_seconds");
  r.deadline_seconds = (double)NAN, expect_refused(r, ERR_USAGE, "deadline_seconds");
  r.deadline_seconds = (double)INFINITY, expect_refused(r, ERR_USAGE, "deadline_seconds");
  r = sound(), r.required = axes, r.required_count = 1, expect_refused(r, ERR_USAGE, "sea_level");
  r = sound(), r.on_trace = on_trace, expect_refused(r, ERR_USAGE, "without trace");
  r = sound(), r.on_values = on_values, r.wants_values = wants, expect_refused(r, ERR_USAGE, "without trace");
  model.trace = true;
  r.on_trace = on_trace, expect_sound(r);
  r.wants_values = NULL, expect_refused(r, ERR_USAGE, "wants_values");
  model.trace = false;
}

static void sizes(void **state) {
  (void)state;
  static const int32_t bad[] = {1, 1100}, negative[] = {-1};
  verbatim_request r = sound();
  expect_sound(r);
  r = sound(), r.prompt_count = 0, expect_refused(r, ERR_USAGE, "empty");
  r = sound(), r.prompt = NULL, expect_refused(r, ERR_USAGE, "empty");
  r = sound(), r.max_tokens = 0, expect_refused(r, ERR_USAGE, "max_tokens");
  r = sound(), r.tokens = NULL, expect_refused(r, ERR_USAGE, "outputs");
  r = sound(), r.max_tokens = 254, expect_refused(r, ERR_LIMIT, "max-model-len");
  r = sound(), r.max_tokens = UINT32_MAX, expect_refused(r, ERR_LIMIT, "max-model-len");
  r = sound(), r.max_tokens = 191, expect_refused(r, ERR_LIMIT, "KV pages");
  r = sound(), r.max_tokens = 190, expect_sound(r); /* the last token needs no KV row */
  r = sound(), r.prompt = bad, r.prompt_count = 2, expect_refused(r, ERR_USAGE, "prompt token 1");
  r = sound(), r.prompt = negative, r.prompt_count = 1, expect_refused(r, ERR_USAGE, "prompt token 0");
  r = sound(), r.on_logits = on_logits, expect_refused(r, ERR_USAGE, "logits");
  model.logits = true, expect_sound(r);
}

static void scoring(void **state) {
  (void)state;
  verbatim_request r = sound();
  r.score = true, r.score_from = 1, r.max_tokens = 0, r.tokens = NULL, expect_sound(r);
  r.score_from = 2, expect_sound(r);
  r.score_from = 3, expect_refused(r, ERR_USAGE, "score_from");
  r.score_from = 0, expect_refused(r, ERR_USAGE, "score_from");
  r.score_from = 1, r.prompt_count = 1, expect_refused(r, ERR_USAGE, "score_from");
  r.prompt_count = 193, expect_sound(r); /* 192 are computed: 3 pages */
  r.prompt_count = 194, expect_refused(r, ERR_LIMIT, "KV pages");
  r = sound(), r.score = true, r.score_from = 1, r.scores = NULL, expect_refused(r, ERR_USAGE, "outputs");
  r = sound(), r.score_from = 1, expect_refused(r, ERR_USAGE, "score_from");
  r = sound(), r.top_logprobs = 20, expect_sound(r);
  r.alternatives = NULL, expect_refused(r, ERR_USAGE, "outputs");
  r = sound(), r.top_logprobs = 21, expect_refused(r, ERR_USAGE, "top_logprobs");
  header.model.vocab = 16, r.top_logprobs = 17, expect_refused(r, ERR_USAGE, "top_logprobs");
}

static void choices(void **state) {
  (void)state;
  const float no_number = NAN, bad_repetition[] = {0.0f, -1.0f, 0.06f, 16.5f, no_number, INFINITY};
  const float bad_penalty[] = {-16.5f, 16.5f, no_number, INFINITY, -INFINITY};
  const double bad_min_p[] = {-0.1, 1.1, 1e-31, 5e-324, (double)no_number, (double)INFINITY};
  verbatim_request r = sound();
  r.temperature = -1.0f, expect_refused(r, ERR_USAGE, "temperature");
  r.temperature = no_number, expect_refused(r, ERR_USAGE, "temperature");
  r.temperature = INFINITY, expect_refused(r, ERR_USAGE, "temperature");
  r = sound(), r.top_p = 0.0, expect_refused(r, ERR_USAGE, "top_p");
  r = sound(), r.top_p = 1.1, expect_refused(r, ERR_USAGE, "top_p");
  r = sound(), r.top_p = (double)no_number, expect_refused(r, ERR_USAGE, "top_p");
  for (size_t i = 0; i < ARRAY_LEN(bad_min_p); i++) r = sound(), r.min_p = bad_min_p[i], expect_refused(r, ERR_USAGE, "min_p");
  for (size_t i = 0; i < ARRAY_LEN(bad_repetition); i++)
    r = sound(), r.repetition_penalty = bad_repetition[i], expect_refused(r, ERR_USAGE, "repetition_penalty");
  for (size_t i = 0; i < ARRAY_LEN(bad_penalty); i++) {
    r = sound(), r.presence_penalty = bad_penalty[i], expect_refused(r, ERR_USAGE, "presence_penalty");
    r = sound(), r.frequency_penalty = bad_penalty[i], expect_refused(r, ERR_USAGE, "frequency_penalty");
  }
  r = sound(), r.min_p = 1.0, r.repetition_penalty = 0.0625f, r.presence_penalty = -16.0f, r.frequency_penalty = 16.0f, expect_sound(r);
}

static void lists(void **state) {
  (void)state;
  for (int32_t i = 0; i < 1025; i++) many_ids[i] = i, many_biases[i] = (verbatim_bias){.token = i, .bias = 1};
  verbatim_request r = sound();
  r.biases = many_biases, r.bias_count = 1024, r.allowed_ids = many_ids, r.allowed_count = 1024, expect_sound(r);
  r.bias_count = 1025, expect_refused(r, ERR_LIMIT, "biases");
  r.bias_count = 0, r.allowed_count = 1025, expect_refused(r, ERR_LIMIT, "allowed ids");
  r = sound(), r.bias_count = 1, expect_refused(r, ERR_USAGE, "biases");
  r = sound(), r.allowed_count = 1, expect_refused(r, ERR_USAGE, "allowed ids");
  const verbatim_bias bad_id = {1100, 0}, twice[] = {{5, 1}, {6, 1}, {5, 2}}, negative = {-1, 0};
  const int32_t allowed_twice[] = {5, 6, 5}, far = 1100;
  r = sound(), r.biases = &bad_id, r.bias_count = 1, expect_refused(r, ERR_USAGE, "bias 0");
  r = sound(), r.biases = &negative, r.bias_count = 1, expect_refused(r, ERR_USAGE, "bias 0");
  r = sound(), r.biases = twice, r.bias_count = 3, expect_refused(r, ERR_USAGE, "two biases of token 5");
  r = sound(), r.allowed_ids = allowed_twice, r.allowed_count = 3, expect_refused(r, ERR_USAGE, "5 is allowed twice");
  r = sound(), r.allowed_ids = &far, r.allowed_count = 1, expect_refused(r, ERR_USAGE, "allowed id 0");
  const float bad[] = {-1000.5f, 1000.5f, NAN, INFINITY};
  for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
    const verbatim_bias one = {5, bad[i]};
    r = sound(), r.biases = &one, r.bias_count = 1, expect_refused(r, ERR_USAGE, "bias");
  }
}

static void stops(void **state) {
  (void)state;
  static const int32_t bad[] = {1, 1100};
  char bytes[VERBATIM_STOP_TEXT_BYTES_MAX + 1];
  verbatim_text texts[VERBATIM_STOP_TEXTS_MAX + 1];
  memset(bytes, 'x', sizeof bytes);
  for (size_t i = 0; i < ARRAY_LEN(texts); i++) texts[i] = (verbatim_text){bytes, VERBATIM_STOP_TEXT_BYTES_MAX};
  verbatim_request r = sound();
  r.stop_ids = bad, r.stop_count = 2, expect_refused(r, ERR_USAGE, "stop id 1");
  r = sound(), r.stop_ids = PROMPT, r.stop_count = 65, expect_refused(r, ERR_LIMIT, "stop ids");
  r = sound(), r.stop_count = 1, expect_refused(r, ERR_USAGE, "stop ids");
  r = sound(), r.stop_texts = texts, r.stop_text_count = 16, expect_sound(r);
  model.tokenizer = NULL, expect_refused(r, ERR_USAGE, "without text");
  r = sound(), r.stop_texts = texts, r.stop_text_count = 17, expect_refused(r, ERR_LIMIT, "stop texts");
  texts[1].count++;
  r = sound(), r.stop_texts = texts, r.stop_text_count = 2, expect_refused(r, ERR_USAGE, "stop text 1");
  texts[1].count = 0, expect_refused(r, ERR_USAGE, "stop text 1");
  texts[1] = (verbatim_text){NULL, 1}, expect_refused(r, ERR_USAGE, "stop text 1");
  texts[1] = (verbatim_text){"\xc3", 1}, expect_refused(r, ERR_USAGE, "UTF-8");
  r = sound(), r.on_text = on_text, expect_sound(r);
  model.tokenizer = NULL, expect_refused(r, ERR_USAGE, "text");
}

/* === Parameters of the device =============================================================================================== */

static void fixed_point(void **state) {
  (void)state;
  assert_true(request_top_p_fixed(1.0) == 1ull << 32);
  assert_true(request_top_p_fixed(0.5) == 1ull << 31);
  assert_true(request_top_p_fixed(1e-30) == 1);
  assert_true(request_bits(-0.0f) == 0 && request_bits(1.0f) == 0x3f800000u && request_bits(-1.0f) == 0xbf800000u);
  assert_true(request_wide_bits(-0.0) == 0 && request_wide_bits(0.5) == 0x3fe0000000000000u);
}

static void stop_ids(void **state) {
  (void)state;
  static const int32_t given[] = {60, 7, 3, 60};
  int32_t ids[EOS_MAX + VERBATIM_STOP_IDS_MAX];
  verbatim_request r = sound();
  r.stop_ids = given, r.stop_count = 4;
  assert_int_equal(request_stop_ids(&view, &r, ids), 4);
  const int32_t all[] = {3, 7, 50, 60}, own[] = {3, 7, 60};
  assert_memory_equal(ids, all, sizeof all);
  r.ignore_eos = true;
  assert_int_equal(request_stop_ids(&view, &r, ids), 3);
  assert_memory_equal(ids, own, sizeof own);
}

/* One list of both: the allowed ids with their biases, or otherwise the biases alone. */
static void token_lists(void **state) {
  (void)state;
  static const verbatim_bias biases[] = {{9, 1.5f}, {3, -0.0f}, {70, -2.0f}};
  static const int32_t allowed[] = {70, 8, 9};
  token_bias list[TOKEN_LIST_MAX];
  verbatim_request r = sound();
  assert_int_equal(request_list(&r, list), 0);
  r.biases = biases, r.bias_count = 3;
  const token_bias plain[] = {{3, 0.0f}, {9, 1.5f}, {70, -2.0f}}, both[] = {{8, 0.0f}, {9, 1.5f}, {70, -2.0f}};
  assert_int_equal(request_list(&r, list), 3);
  assert_memory_equal(list, plain, sizeof plain);
  r.allowed_ids = allowed, r.allowed_count = 3;
  assert_int_equal(request_list(&r, list), 3);
  assert_memory_equal(list, both, sizeof both);
}

static void sampling(void **state) {
  (void)state;
  static const verbatim_bias biases[] = {{9, 1.5f}, {3, 2.0f}};
  static const int32_t allowed[] = {70};
  verbatim_request r = sound();
  r.seed = 5, r.temperature = 0.5f, r.top_k = 9, r.top_p = 0.25, r.min_p = 0.125, r.sample_index = 3, r.top_logprobs = 4;
  sample_param p = request_sample(&r, 5, 6);
  assert_true(p.seed == 5 && p.top_p_fixed == 1ull << 30 && p.top_k == 9 && p.position == 5 && p.sample_index == 3 && p.slot == 6);
  assert_true(p.target == -1 && p.top_count == 4 && p.prompt_count == 3 && p.temperature == 0.5f && p.repetition == 1.0f);
  assert_true(p.min_p_bound == -1.0397207708399180f); /* ln(1/8) / 2 */
  assert_true(p.adjusted == 0 && p.list_count == 0 && p.list_only == 0 && p.mask == 0);
  r.min_p = 1.0, assert_true(request_sample(&r, 5, 6).min_p_bound == 0.0f);
  r.min_p = 0.0, assert_true(request_sample(&r, 5, 6).min_p_bound == -INFINITY);
  r.min_p = 0.1, r.temperature = 0.0f, assert_true(request_sample(&r, 5, 6).min_p_bound == -INFINITY);
  r = sound(), r.presence_penalty = -0.0f, p = request_sample(&r, 3, 0);
  assert_true(p.adjusted == 0 && !signbit(p.presence));
  r.presence_penalty = 1, p = request_sample(&r, 3, 0), assert_true(p.adjusted == 1 && p.presence == 1);
  r = sound(), r.frequency_penalty = -1, p = request_sample(&r, 3, 0), assert_true(p.adjusted == 1 && p.frequency == -1);
  r = sound(), r.repetition_penalty = 2, p = request_sample(&r, 3, 0), assert_true(p.adjusted == 1 && p.repetition == 2);
  r = sound(), r.biases = biases, r.bias_count = 2, p = request_sample(&r, 3, 0);
  assert_true(p.adjusted == 1 && p.list_count == 2 && p.list_only == 0);
  r.allowed_ids = allowed, r.allowed_count = 1, p = request_sample(&r, 3, 0);
  assert_true(p.adjusted == 1 && p.list_count == 1 && p.list_only == 1);
}

/* Rows of the prompt sample nothing: their token is the prompt's next one, with alternatives if it is scored. */
static void prompt_rows(void **state) {
  (void)state;
  verbatim_request r = sound();
  r.repetition_penalty = 2, r.temperature = 1, r.top_logprobs = 3, r.score = true, r.score_from = 2;
  sample_param p = request_sample(&r, 1, 4);
  assert_true(p.target == 2 && p.top_count == 0 && p.position == 1 && p.slot == 4 && p.adjusted == 0 && p.top_p_fixed == 1ull << 32);
  p = request_sample(&r, 2, 4);
  assert_true(p.target == 3 && p.top_count == 3 && p.position == 2 && p.adjusted == 0);
  p = request_sample(&r, 3, 4);
  assert_true(p.target == -1 && p.top_count == 3 && p.adjusted == 1);
  assert_false(request_scores(&r, 1));
  assert_true(request_scores(&r, 2));
  assert_false(request_scores(&r, 3));
  assert_int_equal(request_logits_from(&r), 1);
  assert_int_equal(request_computed(&r), 3);
  assert_int_equal(request_pages(&r), 1);
  r.max_tokens = 0;
  assert_int_equal(request_computed(&r), 2);
  r.on_logits = on_logits;
  assert_int_equal(request_logits_from(&r), 0);
  r = sound();
  assert_int_equal(request_logits_from(&r), 2);
}

/* === Digests and results ==================================================================================================== */

/* Every input that can matter is in the digest; what cannot (orders, repeats of stop ids, signs of zeros) is not. */
static void start_digest(void **state) {
  (void)state;
  static const int32_t other[] = {1, 2, 4}, stops_a[] = {8, 9}, stops_b[] = {9, 8, 9}, allowed[] = {5, 6};
  static const verbatim_bias biases[] = {{5, 0}, {6, 1}}, biases_2[] = {{6, 1}, {5, -0.0f}}, biases_3[] = {{5, 0}, {6, 2}};
  static const verbatim_text one = {"ab", 2}, split[] = {{"a", 1}, {"b", 1}};
  uint8_t other_weights[16] = {8}, other_vocabulary[16] = {1};
  verbatim_request list[25];
  for (int i = 0; i < 25; i++) list[i] = sound();
  list[1].prompt = other;
  list[2].prompt_count = 2;
  list[3].max_tokens = 5;
  list[4].temperature = 0.5f;
  list[5].top_k = 1;
  list[6].top_p = 0.9;
  list[7].seed = 1;
  list[8].stop_ids = stops_a, list[8].stop_count = 2;
  list[9].sample_index = 1;
  list[10].min_p = 0.5;
  list[11].repetition_penalty = 2;
  list[12].presence_penalty = 2;
  list[13].frequency_penalty = 2;
  list[14].biases = biases, list[14].bias_count = 2;
  list[15].biases = biases_3, list[15].bias_count = 2;
  list[16].allowed_ids = allowed, list[16].allowed_count = 2;
  list[17].stop_texts = &one, list[17].stop_text_count = 1;
  list[18].stop_texts = split, list[18].stop_text_count = 2;
  list[19].score = true, list[19].score_from = 1;
  list[20].score = true, list[20].score_from = 2;
  list[21].top_logprobs = 1;
  list[22].allowed_ids = allowed, list[22].allowed_count = 2, list[22].biases = biases, list[22].bias_count = 2;
  list[23].stop_texts = &one, list[23].stop_text_count = 1; /* and another tokenizer */
  for (int i = 0; i < 25; i++) {
    model.weights_digest = i == 24 ? other_weights : weights;
    model.tokenizer_digest = i == 23 ? other_vocabulary : vocab_digest;
    request_start(&model, &list[i]);
    assert_memory_equal(list[i].chain, list[i].request_digest, 16);
    for (int j = 0; j < i; j++)
      if (memcmp(list[i].request_digest, list[j].request_digest, 16) == 0) fail_msg("requests %d and %d have one digest", i, j);
  }
  model.weights_digest = weights, model.tokenizer_digest = other_vocabulary; /* which counts only with stop texts */
  verbatim_request same = sound();
  same.stop_ids = stops_b, same.stop_count = 3, same.temperature = -0.0f, same.min_p = -0.0, same.presence_penalty = -0.0f;
  request_start(&model, &same);
  assert_memory_equal(same.request_digest, list[8].request_digest, 16);
  same = sound(), same.biases = biases_2, same.bias_count = 2;
  request_start(&model, &same);
  assert_memory_equal(same.request_digest, list[14].request_digest, 16);
  model.tokenizer_digest = vocab_digest;
}

typedef struct link { /* as RECEIPTS.md has it */
  uint8_t previous[16];
  uint32_t position;
  int32_t token;
  float logprob;
  uint32_t rank;
  uint64_t logits;
  uint8_t alternatives[16];
} link;

static void expect_chain(const verbatim_request *r, link l, const uint8_t previous[16]) {
  memcpy(l.previous, previous, 16);
  digest expected = digest_of(&l, sizeof l);
  assert_memory_equal(r->chain, expected.bytes, 16);
}

static void push(verbatim_request *r, sample_result result, uint64_t logits) {
  stop_text none = {0};
  request_push(&model, r, &none, &result, top, logits);
}

static void results(void **state) {
  (void)state;
  verbatim_request r = sound();
  request_start(&model, &r);
  push(&r, (sample_result){.token = 20, .logprob = -0.25f, .rank = 4, .logit = 9.5f}, 77);
  assert_int_equal(r.finish, VERBATIM_RUNNING);
  assert_true(tokens[0].id == 20 && tokens[0].digest == 77 && tokens[0].rank == 4);
  assert_true(tokens[0].logprob == -0.25f && tokens[0].logit == 9.5f);
  expect_chain(&r, (link){.position = 3, .token = 20, .logprob = -0.25f, .rank = 4, .logits = 77}, r.request_digest);
  push(&r, (sample_result){.token = 7, .logprob = -0.25f}, 78); /* one of the model's stop ids */
  assert_int_equal(r.finish, VERBATIM_STOP);
  assert_int_equal(r.token_count, 2);

  r = sound(), r.ignore_eos = true, r.max_tokens = 2;
  request_start(&model, &r);
  push(&r, (sample_result){.token = 7}, 1);
  assert_int_equal(r.finish, VERBATIM_RUNNING);
  push(&r, (sample_result){.token = 7}, 1);
  assert_int_equal(r.finish, VERBATIM_LENGTH);

  r = sound();
  request_start(&model, &r);
  assert_true(*r.fault_op == 0 && r.fault_layer == UINT32_MAX && r.fault_position == 0);
  request_break(&model, &r, 0, 5);
  assert_int_equal(r.finish, VERBATIM_NONFINITE);
  assert_int_equal(r.token_count, 0);
  assert_string_equal(r.fault_op, "layer 3 o_proj");
  assert_true(r.fault_layer == 3 && r.fault_position == 5);
  request_break(&model, &r, UINT32_MAX, UINT32_MAX);
  assert_string_equal(r.fault_op, "not found again");
}

/* Scores come first, in order, then tokens; the alternatives are in the same order, one row each. */
static void scores_and_alternatives(void **state) {
  (void)state;
  verbatim_request r = sound();
  r.score = true, r.score_from = 1, r.top_logprobs = 2, r.max_tokens = 2;
  request_start(&model, &r);
  for (int32_t i = 0; i < 4; i++) {
    uint8_t previous[16];
    memcpy(previous, r.chain, 16);
    top[0] = (top_logprob){10 * i, -1}, top[1] = (top_logprob){10 * i + 1, -2};
    push(&r, (sample_result){.token = 30 + i, .logprob = -3, .rank = 2}, (uint64_t)i);
    link l = {.position = (uint32_t)i + 1, .token = 30 + i, .logprob = -3, .rank = 2, .logits = (uint64_t)i};
    digest d = digest_of(top, 2 * sizeof *top);
    memcpy(l.alternatives, d.bytes, 16);
    expect_chain(&r, l, previous);
    assert_int_equal(r.score_count, i < 2 ? i + 1 : 2);
    assert_int_equal(r.finish, i < 3 ? VERBATIM_RUNNING : VERBATIM_LENGTH);
    assert_true(alternatives[2 * i].id == 10 * i && alternatives[2 * i + 1].id == 10 * i + 1 && alternatives[2 * i + 1].logprob == -2);
  }
  assert_true(scores[0].id == 30 && scores[1].id == 31 && tokens[0].id == 32 && tokens[1].id == 33);
  r = sound(), r.score = true, r.score_from = 2, r.max_tokens = 0, r.tokens = NULL;
  request_start(&model, &r);
  push(&r, (sample_result){.token = 3}, 1);
  assert_int_equal(r.finish, VERBATIM_LENGTH);
  assert_true(r.score_count == 1 && r.token_count == 0);
}

static char shown[64];
static void keep_text(verbatim_request *r, const char *text, size_t bytes) { (void)r, strncat(shown, text, bytes); }

/* A stop id has no text; a stop text ends the text before it; text that was held back comes at the end. */
static void texts(void **state) {
  (void)state;
  static const verbatim_text stops_here[] = {{"xy", 2}, {"lo", 2}};
  static const struct {
    const char *bytes, *shown;
    uint32_t max_tokens;
    enum verbatim_finish finish;
    uint64_t at;
    uint32_t index;
  } cases[] = {
    {"hello", "hel", 9, VERBATIM_STOP_TEXT, 3, 1}, {"helxx", "helxx", 5, VERBATIM_LENGTH, 0, 0}, {"x\7", "x", 9, VERBATIM_STOP, 0, 0},
    {"l\xc3", "l\xef\xbf\xbd", 2, VERBATIM_LENGTH, 0, 0}, {"hello", "hel", 5, VERBATIM_STOP_TEXT, 3, 1}};
  for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
    verbatim_request r = sound();
    stop_text text = {0};
    r.stop_texts = stops_here, r.stop_text_count = 2, r.max_tokens = cases[i].max_tokens, r.on_text = keep_text;
    request_start(&model, &r);
    shown[0] = 0;
    for (const char *at = cases[i].bytes; *at; at++) {
      sample_result result = {.token = (uint8_t)*at};
      request_push(&model, &r, &text, &result, top, 1);
      request_show(&model, &r, &text, true);
    }
    assert_int_equal(r.finish, cases[i].finish);
    assert_true(r.text_bytes == cases[i].at && r.stop_index == cases[i].index);
    assert_string_equal(shown, cases[i].shown);
  }
}

static int open_small(void **state) {
  (void)state;
  return fixture_open(fixture_small(), &small);
}

static int close_small(void **state) {
  (void)state;
  return fixture_close(small);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(sizes), cmocka_unit_test(terms), cmocka_unit_test(scoring), cmocka_unit_test(choices), cmocka_unit_test(lists),
    cmocka_unit_test(stops),
    cmocka_unit_test(fixed_point), cmocka_unit_test(stop_ids), cmocka_unit_test(token_lists), cmocka_unit_test(sampling),
    cmocka_unit_test(prompt_rows), cmocka_unit_test(start_digest), cmocka_unit_test(results), cmocka_unit_test(scores_and_alternatives),
    cmocka_unit_test(texts)};
  return cmocka_run_group_tests(tests, open_small, close_small);
}

/* test_receipt_read.c - receipts read back: every value as it was written, and every damage named.
 *
 * The control of the damages is the sound receipt, which each of them alters in one place; every truncation and every flipped bit is
 * tried. */
#include "tests/unit/unit.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "engine/receipts/receipt.h"
#include "engine/receipts/read.h"
#include "receipt_fixture.h"

#define TEXT_MAX 16384u

static const int32_t ALLOWED[] = {5, 1};
static const uint8_t VOCABULARY[16] = {9};
/* Includes numbers at the ends of their ranges. */
static void make(fixture *m) {
  fixture_make(m);
  m->request.temperature = 1.5f;
  m->request.top_p = 0.3;
  m->request.min_p = 1e-30;
  m->request.presence_penalty = -3.0f;
  m->request.seed = UINT64_MAX;
  m->request.sample_index = UINT32_MAX;
}

/* The receipt of the requests, in order, named a, b and so on. */
static void write_receipt(const verbatim_request *const *requests, uint32_t count, char text[TEXT_MAX]) {
  char path[64];
  receipt r;
  digest ignored;
  const receipt_source source = {.info = &FIXTURE_INFO, .tokenizer_digest = VOCABULARY};
  snprintf(path, sizeof path, "/tmp/verbatim-receipt-read-%ld", (long)getpid());
  assert_int_equal(receipt_begin(&r, path, &source), OK);
  for (uint32_t i = 0; i < count; i++) receipt_add(&r, (char[]){(char)('a' + i), 0}, requests[i], FIXTURE_STOPS, 2);
  assert_int_equal(receipt_end(&r, &ignored), OK);
  FILE *file = fopen(path, "rb");
  assert_non_null(file);
  text[fread(text, 1, TEXT_MAX - 1, file)] = 0;
  fclose(file);
  unlink(path);
}

static void write_sound(char text[TEXT_MAX]) {
  fixture m;
  make(&m);
  write_receipt((const verbatim_request *[]){&m.request}, 1, text);
}

static status read_bytes(receipt_read *r, char *text, size_t bytes) {
  fail_clear();
  FILE *file = fmemopen(text, bytes ? bytes : 1, "rb");
  assert_non_null(file);
  if (bytes == 0) (void)getc(file);
  return receipt_read_start(r, file);
}

/* === Reading ================================================================================================================ */

static void same_inputs(const verbatim_request *a, const verbatim_request *b) {
  assert_int_equal(a->prompt_count, b->prompt_count);
  assert_memory_equal(a->prompt, b->prompt, a->prompt_count * sizeof *a->prompt);
  assert_true(a->max_tokens == b->max_tokens && a->score == b->score && a->score_from == b->score_from && a->top_k == b->top_k);
  assert_true(a->temperature == b->temperature && a->min_p == b->min_p && a->repetition_penalty == b->repetition_penalty);
  assert_true(a->presence_penalty == b->presence_penalty && a->frequency_penalty == b->frequency_penalty);
  assert_true(a->seed == b->seed && a->sample_index == b->sample_index && a->top_logprobs == b->top_logprobs);
  assert_int_equal(a->stop_text_count, b->stop_text_count);
  for (uint32_t i = 0; i < a->stop_text_count; i++) {
    assert_int_equal(a->stop_texts[i].count, b->stop_texts[i].count);
    assert_memory_equal(a->stop_texts[i].bytes, b->stop_texts[i].bytes, a->stop_texts[i].count);
  }
}

static void same_outputs(const verbatim_request *a, const verbatim_request *b) {
  assert_true(a->finish == b->finish && a->stop_index == b->stop_index && a->text_bytes == b->text_bytes);
  assert_true(a->score_count == b->score_count && a->token_count == b->token_count);
  assert_memory_equal(a->scores, b->scores, a->score_count * sizeof *a->scores);
  assert_memory_equal(a->tokens, b->tokens, a->token_count * sizeof *a->tokens);
  assert_memory_equal(a->alternatives, b->alternatives, (a->score_count + a->token_count) * a->top_logprobs * sizeof *a->alternatives);
  assert_memory_equal(a->chain, b->chain, DIGEST_BYTES);
  assert_memory_equal(a->request_digest, b->request_digest, DIGEST_BYTES);
}

/* The record contains the request's values and, written again, gives the same line. */
static void check_record(receipt_read *r, uint32_t index, const verbatim_request *expected) {
  receipt_record record;
  char *line, id[2] = {(char)('a' + index), 0};
  size_t bytes;
  assert_int_equal(receipt_read_get(r, index, &record), OK);
  assert_string_equal(record.id, id);
  same_inputs(&record.request, expected);
  same_outputs(&record.request, expected);
  assert_true((uint64_t)(record.request.top_p * 4294967296.0 + 0.5) == (uint64_t)(expected->top_p * 4294967296.0 + 0.5));
  assert_int_equal(receipt_line(record.id, &record.request, record.request.stop_ids, record.request.stop_count, &line, &bytes), OK);
  assert_int_equal(bytes, record.line_bytes);
  assert_string_equal(line, record.line);
  free(line);
  receipt_read_drop(&record);
}

static void all_is_read(void **state) {
  (void)state;
  static char text[TEXT_MAX];
  fixture m[5];
  const verbatim_request *list[5];
  for (uint32_t i = 0; i < 5; i++) make(&m[i]), list[i] = &m[i].request;
  m[1].request.allowed_ids = ALLOWED, m[1].request.allowed_count = 2, m[1].request.finish = VERBATIM_DEADLINE;
  m[2].request.max_tokens = m[2].request.token_count = m[2].request.stop_text_count = 0;
  m[2].request.finish = VERBATIM_LENGTH;
  m[3].request.score = false, m[3].request.score_from = m[3].request.score_count = m[3].request.top_logprobs = 0;
  m[3].request.finish = VERBATIM_STOP_TEXT, m[3].request.stop_index = 1, m[3].request.text_bytes = 1ull << 40;
  m[4].request.finish = VERBATIM_NONFINITE, m[4].request.fault_op = "layer 3 \"x\"", m[4].request.fault_layer = 3;
  m[4].request.fault_position = 4;
  write_receipt(list, 5, text);
  receipt_read r;
  assert_int_equal(read_bytes(&r, text, strlen(text)), OK);
  assert_true(r.complete && r.count == 5 && !r.fault && r.head.has_tokenizer);
  assert_memory_equal(r.head.numerics_id, FIXTURE_INFO.numerics_id, 16);
  assert_memory_equal(r.head.config_digest, FIXTURE_INFO.config_digest, 16);
  assert_memory_equal(r.head.weights_digest, FIXTURE_INFO.weights_digest, 16);
  assert_memory_equal(r.head.tokenizer_digest, VOCABULARY, 16);
  assert_string_equal(r.machine.device, FIXTURE_INFO.device);
  assert_string_equal(r.machine.version, VERBATIM_VERSION);
  assert_memory_equal(r.machine.plan_digest, FIXTURE_INFO.plan_digest, 16);
  assert_true(r.machine.driver_version == 13000 && r.machine.nvrtc_version == 13010 && r.machine.cublaslt_version == 130002);
  assert_memory_equal(r.machine.plan_sha256, FIXTURE_INFO.plan_sha256, SHA256_BYTES);
  assert_memory_equal(r.machine.weights_sha256, FIXTURE_INFO.weights_sha256, SHA256_BYTES);
  assert_true(sha256_is_none(r.machine.config_sha256));
  assert_int_equal(r.machine.ranks, 4);
  assert_int_equal(r.machine.kernel_count, 2);
  assert_string_equal(r.machine.kernels[1].name, "rms\"norm");
  assert_memory_equal(r.machine.kernels[1].digest, FIXTURE_KERNELS[1].digest, 16);
  for (uint32_t i = 5; i > 0; i--) check_record(&r, i - 1, list[i - 1]);
  receipt_record record;
  assert_int_equal(receipt_read_get(&r, 4, &record), OK);
  assert_string_equal(record.request.fault_op, "layer 3 \"x\"");
  assert_true(record.request.fault_layer == 3 && record.request.fault_position == 4);
  receipt_read_drop(&record);
  assert_int_equal(receipt_read_get(&r, 1, &record), OK);
  assert_true(record.request.allowed_count == 2 && record.request.allowed_ids[0] == 1 && record.request.allowed_ids[1] == 5);
  receipt_read_drop(&record);
  receipt_read_close(&r);
}

static void alter(char text[TEXT_MAX], const char *from, const char *to) {
  char *at = strstr(text, from);
  if (!at) fail_msg("no %s in the receipt", from);
  assert_true(strlen(text) + strlen(to) < TEXT_MAX);
  memmove(at + strlen(to), at + strlen(from), strlen(at + strlen(from)) + 1);
  memcpy(at, to, strlen(to));
}

/* A receipt that does not state its ranks was made by one. */
static void ranks_may_be_absent(void **state) {
  (void)state;
  static char text[TEXT_MAX];
  receipt_read r;
  write_sound(text);
  alter(text, "\"ranks\":4,", "");
  assert_int_equal(read_bytes(&r, text, strlen(text)), OK);
  assert_int_equal(r.machine.ranks, 1);
  assert_true(r.complete);
  receipt_read_close(&r);
}

/* The model's own stop ids are told apart from the others only if all of them are present. */
static void stops_are_split(void **state) {
  (void)state;
  static const uint32_t OWN[] = {30}, TWO[] = {1, 2}, NONE[1];
  static char text[TEXT_MAX];
  receipt_read r;
  receipt_record record;
  write_sound(text);
  assert_int_equal(read_bytes(&r, text, strlen(text)), OK);
  assert_int_equal(receipt_read_get(&r, 0, &record), OK);
  receipt_read_stops(&record, TWO, 2);
  assert_true(record.request.ignore_eos && record.request.stop_count == 2);
  receipt_read_stops(&record, OWN, 1);
  assert_true(!record.request.ignore_eos && record.request.stop_count == 1 && record.request.stop_ids[0] == 1);
  receipt_read_drop(&record);
  assert_int_equal(receipt_read_get(&r, 0, &record), OK);
  receipt_read_stops(&record, NONE, 0);
  assert_true(!record.request.ignore_eos && record.request.stop_count == 2);
  receipt_read_drop(&record);
  receipt_read_close(&r);
}

/* === Refusals =============================================================================================================== */

typedef struct damage {
  const char *from, *to; /* the first place of `from` becomes `to` */
  status code;
  const char *word;      /* of the error */
} damage;

static void expect_damage(const damage *d) {
  static char text[TEXT_MAX];
  receipt_read r;
  write_sound(text);
  alter(text, d->from, d->to);
  status found = read_bytes(&r, text, strlen(text));
  if (found != d->code || !strstr(fail_text(), d->word))
    fail_msg("%s to %s: expected %d and %s, found %d and %s", d->from, d->to, d->code, d->word, found, fail_text());
  receipt_read_close(&r);
}

#define F(from, to, word) {from, to, ERR_FORMAT, word}
static const damage HEAD_DAMAGE[] = {
  F("\"verbatim_receipt\":3", "\"verbatim_receipt\":\"3\"", "verbatim_receipt"),
  {"\"verbatim_receipt\":3", "\"verbatim_receipt\":4", ERR_UNSUPPORTED, "version 4"},
  F("\"config\":\"04", "\"config\":\"0X", "line 1: \"config\""), F("\"config\":\"04", "\"config\":\"4", "\"config\""),
  F("\"weights\":", "\"heights\":", "\"weights\": expected to be there"), F("\"tokenizer\":\"09", "\"tokenizer\":\"0G", "\"tokenizer\""),
  F("{\"verbatim", "[{\"verbatim", "line 1: not JSON"),
  F("{\"machine\":{", "{\"x\":1,\"machine\":{", "line 2: \"x\": expected no such key"),
  F("\"plan\":\"10", "\"plan\":\"1", "machine.plan"), F("\"driver\":13000", "\"driver\":-1", "machine.driver"),
  F("\"ranks\":4", "\"ranks\":0", "machine.ranks"), F("\"ranks\":4", "\"ranks\":\"4\"", "machine.ranks"),
  F("\"ranks\":4", "\"rank\":4", "machine.rank"),
  F("\"nvrtc\":13010", "\"nvrtc\":4294967296", "machine.nvrtc"), F("\"cublaslt\":1", "\"cublaslt\":1.", "machine.cublaslt"),
  F("{\"plan\":\"5a", "{\"plan\":\"5A", "machine.sha256.plan\": expected 64"), F("{\"plan\":\"5a", "{\"plan\":\"5", "machine.sha256.plan"),
  F("\"config\":null", "\"config\":7", "machine.sha256.config"), F("\"config\":null,", "", "machine.sha256.config\": expected to be there"),
  F("\"config\":null,", "\"config\":null,\"x\":null,", "machine.sha256.x"), F("\"sha256\":{", "\"sha25\":{", "machine.sha25"),
  F("\"sha256\":{\"plan\"", "\"sha256\":7,\"x\":{\"plan\"", "machine.x"),
  F("[\"gemm\",", "[7,", "machine.kernels"), F("[\"gemm\",\"aa", "[\"gemm\",\"a", "machine.kernels"),
  F("\"device\":\"A ", "\"device\":\"A \\u0000", "machine.device"), F("\"version\":\"", "\"version\":7,\"v\":\"", "machine.v")};

static const damage REQUEST_DAMAGE[] = {
  F("{\"id\":\"a\"", "{\"id\":7", "line 3: \"id\""), F("{\"id\":\"a\"", "{\"id\":\"a\\u0000\"", "\"id\""),
  F("{\"id\":\"a\"", "{\"id\":\"a\",\"id\":\"a\"", "line 3: not JSON"), F("{\"id\":\"a\",", "{", "\"id\": expected to be there"),
  F("\"prompt_count\":3", "\"prompt_count\":4", "\"prompt\": expected a list of 4 items"),
  F("\"prompt_count\":3", "\"prompt_count\":0", "\"prompt_count\""),
  F("\"prompt\":[7", "\"prompt\":[-7", "\"prompt\": expected token ids"),
  F("\"prompt\":[7", "\"prompt\":[2147483648", "\"prompt\": expected token ids"),
  F("\"prompt\":[7,8,", "\"prompt\":[7,8.0,", "\"prompt\""),
  F("\"max_tokens\":4", "\"max_tokens\":4294967296", "\"max_tokens\""), F("\"max_tokens\":4", "\"max_tokens\":1", "made.tokens"),
  F("\"score_from\":2", "\"score_from\":3", "\"score_from\": expected an integer of 0 to 2"),
  F("\"score_from\":2", "\"score_from\":0", "scored.tokens"), F("\"score_from\":2", "\"score_from\":1", "\"scored\""),
  F("\"top_logprobs\":2", "\"top_logprobs\":21", "\"top_logprobs\""),
  F("\"top_logprobs\":2", "\"top_logprobs\":1", "scored.alternatives"),
  F("\"temperature\":\"3fc", "\"temperature\":\"3FC", "\"temperature\": expected 8 lower-case"),
  F("\"temperature\":\"3fc00000", "\"temperature\":\"7fc00000", "\"temperature\": expected the bits of a finite number"),
  F("\"temperature\":\"3fc00000", "\"temperature\":\"80000000", "not of -0"), F("\"top_k\":2", "\"top_k\":true", "\"top_k\""),
  F("\"top_p\":\"0", "\"top_p\":\"2", "\"top_p\""), F("\"top_p\":\"04ccccccd", "\"top_p\":\"000000000", "\"top_p\""),
  F("\"min_p\":\"3", "\"min_p\":\"", "\"min_p\""), F("\"min_p\":\"39b", "\"min_p\":\"7ff", "\"min_p\": expected the bits of a finite"),
  F("\"repetition_penalty\":\"3", "\"repetition_penalty\":\"g", "\"repetition_penalty\""),
  F("\"presence_penalty\":\"c0400000", "\"presence_penalty\":null,\"p\":\"", "\"p\": expected no such key"),
  F("\"frequency_penalty\":\"40000000", "\"frequency_penalty\":\"ff800000", "\"frequency_penalty\""),
  F("\"list\":[[6", "\"list\":[[8", "\"list\": expected ascending"),
  F("\"list\":[[6,\"3f000000\"]", "\"list\":[6", "\"list\": expected pairs"),
  F("\"list\":[[6,\"3f000000\"", "\"list\":[[6,\"3f000000\",1", "\"list\": expected pairs"),
  F("\"list\":[[6,\"3f000000\"],[8,\"bf800000\"]],\"list_only\":false", "\"list\":[],\"list_only\":true", "\"list\""),
  F("\"list_only\":false", "\"list_only\":0", "\"list_only\""), F("\"seed\":\"f", "\"seed\":\"ff", "\"seed\""),
  F("\"sample_index\":4294967295", "\"sample_index\":null", "\"sample_index\""),
  F("\"stop_ids\":[1,30]", "\"stop_ids\":[30,1]", "\"stop_ids\""),
  F("\"stop_ids\":[1,30]", "\"stop_ids\":[2,30]", "\"finish\": expected another one: the last token is no stop id"),
  F("\"stop_texts\":[\"a", "\"stop_texts\":[\"\",\"a", "\"stop_texts\""),
  F("\"stop_texts\":[\"a", "\"stop_texts\":[5,\"a", "\"stop_texts\""),
  F("\"tokenizer\":\"09000000000000000000000000000000\"", "\"tokenizer\":null", "\"stop_texts\": expected none"),
  F("\"request\":\"cd", "\"request\":\"", "\"request\""), F("\"finish\":\"stop\"", "\"finish\":\"running\"", "\"finish\""),
  F("\"finish\":\"stop\"", "\"finish\":\"length\"", "\"finish\": expected another one: this is not all"),
  F("\"finish\":\"stop\"", "\"finish\":\"nonfinite\"", "\"fault\": expected an object"),
  F("\"finish\":\"stop\"", "\"finish\":1", "\"finish\""),
  F("\"stop_index\":0", "\"stop_index\":1", "\"stop_index\": expected an integer of 0 to 0"),
  F("\"text_bytes\":0", "\"text_bytes\":9", "\"text_bytes\""),
  F("\"finish\":\"stop\",\"stop_index\":0", "\"finish\":\"stop_text\",\"stop_index\":2", "\"stop_index\": expected an integer of 0 to 1"),
  F("\"fault\":null", "\"fault\":{}", "\"fault\": expected null"),
  F("\"finish\":\"stop\",\"stop_index\":0,\"text_bytes\":0,\"fault\":null",
    "\"finish\":\"nonfinite\",\"stop_index\":0,\"text_bytes\":0,\"fault\":{\"op\":\"x\",\"layer\":128,\"position\":0}", "fault.layer"),
  F("\"scored\":{\"tokens\":[9]", "\"scored\":{\"tokens\":[8]", "\"scored\": expected the tokens of the prompt"),
  F("\"scored\":{\"tokens\":[9]", "\"scored\":[],\"s\":{\"tokens\":[9]", "\"s\": expected no such key"),
  F("\"scored\":{\"tokens\":[9],\"logprobs\":[\"c0000000\"],\"ranks\":[7],\"logits\":[\"0000000000000002\"],"
    "\"alternatives\":[[[1,\"bf800000\"],[2,\"c0000000\"]]]}",
    "\"scored\":{\"tokens\":[],\"logprobs\":[],\"ranks\":[],\"logits\":[],\"alternatives\":[]}", "\"made\": expected no tokens before"),
  F("\"tokens\":[5,1]", "\"tokens\":[5]", "made.logprobs"), F("\"tokens\":[5,1]", "\"tokens\":[5,-1]", "made.tokens"),
  F("[\"bf000000\",\"bf800000\"]", "[\"bf000000\",\"bf80000\"]", "made.logprobs"),
  F("\"ranks\":[0,3]", "\"ranks\":[0,3,1]", "made.ranks"),
  F("\"ranks\":[0,3]", "\"ranks\":[0,-3]", "made.ranks"), F("[\"123456789abcdef0\"", "[\"123456789ABCDEF0\"", "made.logits"),
  F("[[[3,\"bf000000\"]", "[[[3,\"bf000000\",1]", "made.alternatives"), F("[[[3,\"bf000000\"],", "[[", "made.alternatives"),
  F("\"chain\":\"abab", "\"chain\":\"abaB", "\"chain\""), F("{\"digest\":\"", "{\"digest\":\"0", "line 4: \"digest\""),
  F("{\"digest\":\"", "{\"x\":1,\"digest\":\"", "line 4: \"x\""),
  F("{\"digest\":\"", "[]\n{\"digest\":\"", "line 4: expected a JSON object"),
  F("{\"digest\":\"", "\n{\"digest\":\"", "line 4: not JSON"),
  F("{\"digest\":\"", "{\"fault\":\"x\"}\n{\"digest\":\"", "line 5: expected no line"),
  F("{\"digest\":\"", "{\"fault\":7}\n{\"digest\":\"", "line 4: \"fault\""),
  {"\"seed\":\"f", "\"seed\":\"e", ERR_MISMATCH, "it was altered"}, {"\"config\":\"04", "\"config\":\"05", ERR_MISMATCH, "it was altered"},
  {"{\"digest\":\"", "{\"digest\": \"", OK, ""}, {"\"plan\":\"10", "\"plan\":\"11", OK, ""}}; /* no values, and not covered by a digest */
#undef F

static void damage_is_named(void **state) {
  (void)state;
  for (size_t i = 0; i < ARRAY_LEN(HEAD_DAMAGE); i++) expect_damage(&HEAD_DAMAGE[i]);
  for (size_t i = 0; i < ARRAY_LEN(REQUEST_DAMAGE); i++) expect_damage(&REQUEST_DAMAGE[i]);
}

/* A truncated receipt is read up to the truncation; wherever it is truncated, it is not complete. */
static void every_cut(void **state) {
  (void)state;
  static char text[TEXT_MAX];
  fixture m;
  make(&m);
  write_receipt((const verbatim_request *[]){&m.request, &m.request}, 2, text);
  size_t bytes = strlen(text);
  uint32_t lines = 0;
  for (size_t cut = 0; cut <= bytes; cut++) {
    receipt_read r;
    lines += cut && text[cut - 1] == '\n';
    status found = read_bytes(&r, text, cut);
    assert_int_equal(found, lines < 2 ? ERR_FORMAT : OK);
    assert_int_equal(r.count, lines < 2 ? 0 : min_u32(lines - 2, 2));
    assert_int_equal(r.complete, cut == bytes);
    receipt_read_close(&r);
  }
  assert_int_equal(lines, 5);
}

/* No flipped bit outside the machine's line leaves a complete receipt. */
static void every_bit(void **state) {
  (void)state;
  static char text[TEXT_MAX];
  write_sound(text);
  size_t bytes = strlen(text), machine = (size_t)(strchr(text, '\n') - text) + 1, behind = (size_t)(strchr(text + machine, '\n') - text);
  uint32_t unseen = 0;
  for (size_t i = 0; i < 8 * bytes; i++) {
    receipt_read r;
    text[i / 8] = (char)(text[i / 8] ^ 1 << i % 8);
    bool complete = read_bytes(&r, text, bytes) == OK && r.complete;
    text[i / 8] = (char)(text[i / 8] ^ 1 << i % 8);
    if (complete && (i / 8 < machine || i / 8 >= behind)) fail_msg("bit %zu of byte %zu", i % 8, i / 8);
    unseen += complete;
    receipt_read_close(&r);
  }
  assert_true(unseen > 0); /* the control: text that no digest covers, such as the device's name */
}

static void other_order_same_digest(void **state) {
  (void)state;
  static char text[TEXT_MAX], other[TEXT_MAX];
  fixture m[2];
  make(&m[0]), make(&m[1]);
  m[1].request.seed = 5;
  write_receipt((const verbatim_request *[]){&m[0].request, &m[1].request}, 2, text);
  char *first = strchr(strchr(text, '\n') + 1, '\n') + 1, *second = strchr(first, '\n') + 1, *end = strchr(second, '\n') + 1;
  snprintf(other, sizeof other, "%.*s%.*s%.*s%s", (int)(first - text), text, (int)(end - second), second, (int)(second - first), first,
           end);
  receipt_read r;
  assert_string_not_equal(text, other);
  assert_int_equal(read_bytes(&r, other, strlen(other)), OK);
  assert_true(r.complete && r.count == 2);
  receipt_read_close(&r);
}

static void faults_and_files(void **state) {
  (void)state;
  static char text[TEXT_MAX];
  receipt_read r;
  write_sound(text);
  strcpy(strstr(text, "{\"digest\""), "{\"fault\":\"no \\u0022power\\u0022\"}\n");
  assert_int_equal(read_bytes(&r, text, strlen(text)), OK);
  assert_true(!r.complete && r.count == 1);
  assert_string_equal(r.fault, "no \"power\"");
  receipt_read_close(&r);
  fail_clear();
  assert_int_equal(receipt_read_open(&r, "/nonexistent/receipt"), ERR_IO);
  receipt_read_close(&r);
  fail_clear();
  assert_int_equal(receipt_read_open(&r, "/dev"), ERR_IO);
  receipt_read_close(&r);
  fail_clear();
  FILE *zeros = fopen("/dev/zero", "rb");
  assert_non_null(zeros);
  assert_int_equal(receipt_read_start(&r, zeros), ERR_LIMIT); /* a line that does not end */
  receipt_read_close(&r);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(all_is_read), cmocka_unit_test(ranks_may_be_absent),
                                     cmocka_unit_test(stops_are_split), cmocka_unit_test(damage_is_named),
                                     cmocka_unit_test(every_cut), cmocka_unit_test(every_bit), cmocka_unit_test(other_order_same_digest),
                                     cmocka_unit_test(faults_and_files)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

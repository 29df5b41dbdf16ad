/* test_receipt.c - the receipt's text to the byte; each input of a request and each result changes its digest, the machine and the order of
 * requests do not. */
#include "tests/unit/unit.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include "engine/receipts/receipt.h"
#include "receipt_fixture.h"

static const uint8_t ID[16] = {1, 2, 3};

static digest write_receipt(const char *path, const char *id, const fixture *m, const uint8_t *vocabulary) {
  receipt r;
  const receipt_source source = {.info = &FIXTURE_INFO, .tokenizer_digest = vocabulary};
  digest result;
  assert_int_equal(receipt_begin(&r, path, &source), OK);
  assert_int_equal(receipt_add(&r, id, &m->request, FIXTURE_STOPS, 2), OK);
  assert_int_equal(receipt_end(&r, &result), OK);
  return result;
}

/* The digest of a receipt of one request, as RECEIPTS.md defines it: the first line's bytes, 1 as a u64, the digest of the third line. */
static digest digest_by_hand(const char *text) {
  static const uint8_t one[8] = {1};
  const char *second = strchr(text, '\n') + 1, *third = strchr(second, '\n') + 1;
  digest request = digest_of(third, strlen(third));
  digest_state state;
  digest_start(&state);
  digest_add(&state, text, (size_t)(second - text));
  digest_add(&state, one, sizeof one);
  digest_add(&state, request.bytes, sizeof request.bytes);
  return digest_end(&state);
}

static void text(void **state) {
  (void)state;
  char path[64], found[8192], expected[8192], whole[33];
  fixture m;
  fixture_make(&m);
  snprintf(path, sizeof path, "/tmp/verbatim-receipt-%ld", (long)getpid());
  digest d = write_receipt(path, "a \"b\"\n\\", &m, NULL);
  FILE *file = fopen(path, "rb");
  assert_non_null(file);
  found[fread(found, 1, sizeof found - 1, file)] = 0;
  fclose(file);
  unlink(path);
  snprintf(expected, sizeof expected, "%s",
           "{\"verbatim_receipt\":3,\"numerics_id\":\"01020300000000000000000000000000\",\"config\":\"04000000000000000000000000000000\","
           "\"weights\":\"ff000000000000000000000000000000\",\"tokenizer\":null}\n"
           "{\"machine\":{\"plan\":\"10000000000000000000000000000000\",\"version\":\"" VERBATIM_VERSION "\","
           "\"device\":\"A \\u0022GPU\\u0022\",\"ranks\":4,\"driver\":13000,\"nvrtc\":13010,\"cublaslt\":130002,\"kernels\":["
           "[\"gemm\",\"aa000000000000000000000000000000\"],[\"rms\\u0022norm\",\"00bb0000000000000000000000000000\"]],\"sha256\":{"
           "\"plan\":\"5a000000000000000000000000000000000000000000000000000000000000a5\",\"config\":null,"
           "\"weights\":\"0000000000000000000000000000000000000000000000000000000000000007\"}}}\n"
           "{\"id\":\"a \\u0022b\\u0022\\u000a\\u005c\",\"prompt_count\":3,\"prompt\":[7,8,9],\"max_tokens\":4,\"score_from\":2,"
           "\"top_logprobs\":2,\"temperature\":\"3f800000\",\"top_k\":2,\"top_p\":\"080000000\",\"min_p\":\"3fe0000000000000\","
           "\"repetition_penalty\":\"3f800000\",\"presence_penalty\":\"00000000\",\"frequency_penalty\":\"40000000\","
           "\"list\":[[6,\"3f000000\"],[8,\"bf800000\"]],\"list_only\":false,\"seed\":\"00000000000000ff\",\"sample_index\":6,"
           "\"stop_ids\":[1,30],\"stop_texts\":[\"a\\u0022\",\"\\u000a\\u0000\xc3\xa9\"],"
           "\"request\":\"cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd\",\"finish\":\"stop\",\"stop_index\":0,\"text_bytes\":0,\"fault\":null,"
           "\"scored\":{\"tokens\":[9],\"logprobs\":[\"c0000000\"],\"ranks\":[7],\"logits\":[\"0000000000000002\"],"
           "\"alternatives\":[[[1,\"bf800000\"],[2,\"c0000000\"]]]},"
           "\"made\":{\"tokens\":[5,1],\"logprobs\":[\"bf000000\",\"bf800000\"],\"ranks\":[0,3],"
           "\"logits\":[\"123456789abcdef0\",\"0000000000000001\"],"
           "\"alternatives\":[[[3,\"bf000000\"],[4,\"c0000000\"]],[[5,\"bf800000\"],[6,\"bf000000\"]]]},"
           "\"chain\":\"abababababababababababababababab\"}\n");
  digest expected_digest = digest_by_hand(expected);
  assert_memory_equal(d.bytes, expected_digest.bytes, DIGEST_BYTES);
  size_t used = strlen(expected);
  snprintf(expected + used, sizeof expected - used, "{\"digest\":\"%s\"}\n", digest_text(d.bytes, whole));
  assert_string_equal(found, expected);
}

static void everything_counts(void **state) {
  (void)state;
  fixture m;
  static const int32_t allowed[] = {6, 8};
  digest seen[40];
  uint32_t count = 0;
  fixture_make(&m);
  seen[count++] = write_receipt(NULL, "x", &m, NULL);
  seen[count++] = write_receipt(NULL, "y", &m, NULL);
  seen[count++] = write_receipt(NULL, "x", &m, ID);
  for (int what = 0; what < 32; what++) {
    fixture_make(&m);
    verbatim_request *r = &m.request;
    if (what == 0) m.tokens[1].id = 2;
    if (what == 1) m.tokens[0].logprob = -0.50000006f;
    if (what == 2) m.tokens[1].digest++;
    if (what == 3) r->seed++;
    if (what == 4) r->finish = VERBATIM_LENGTH;
    if (what == 5) r->token_count = 1;
    if (what == 6) r->chain[15]++;
    if (what == 7) r->prompt_count = 2;
    if (what == 8) m.tokens[1].rank++;
    if (what == 9) m.scores[0].id++;
    if (what == 10) m.scores[0].rank++;
    if (what == 11) m.alternatives[5].id++;
    if (what == 12) m.alternatives[0].logprob = 0;
    if (what == 13) r->min_p = 0.25;
    if (what == 14) r->repetition_penalty = 2;
    if (what == 15) r->presence_penalty = 2;
    if (what == 16) r->frequency_penalty = 3;
    if (what == 17) m.biases[1].bias = 0.25f;
    if (what == 18) r->allowed_ids = allowed, r->allowed_count = 2;
    if (what == 19) r->sample_index++;
    if (what == 20) m.stop_texts[0].count = 1;
    if (what == 21) r->stop_index++;
    if (what == 22) r->text_bytes++;
    if (what == 23) r->score_from = 1;
    if (what == 24) r->finish = VERBATIM_STOP_TEXT;
    if (what == 25) r->finish = VERBATIM_CANCELLED;
    if (what == 26) r->top_logprobs = 1;
    if (what == 27) r->finish = VERBATIM_DEADLINE;
    if (what >= 28) r->finish = VERBATIM_NONFINITE, r->fault_op = "a", r->fault_layer = 1, r->fault_position = 2;
    if (what == 29) r->fault_op = "b";
    if (what == 30) r->fault_layer = UINT32_MAX;
    if (what == 31) r->fault_position = 3;
    seen[count++] = write_receipt(NULL, "x", &m, NULL);
  }
  for (uint32_t i = 0; i < count; i++)
    for (uint32_t j = 0; j < i; j++) assert_memory_not_equal(seen[i].bytes, seen[j].bytes, DIGEST_BYTES);
}

/* The position of NaN or Inf is written only with the ending nonfinite; without a layer it is left out. */
static void faults(void **state) {
  (void)state;
  fixture m;
  char *line;
  size_t bytes;
  fixture_make(&m);
  m.request.fault_op = "layer 3 \"x\"", m.request.fault_layer = 3, m.request.fault_position = 17;
  assert_int_equal(receipt_line("x", &m.request, FIXTURE_STOPS, 2, &line, &bytes), OK);
  assert_non_null(strstr(line, "\"text_bytes\":0,\"fault\":null,\"scored\""));
  free(line);
  m.request.finish = VERBATIM_NONFINITE;
  assert_int_equal(receipt_line("x", &m.request, FIXTURE_STOPS, 2, &line, &bytes), OK);
  assert_non_null(strstr(line, ",\"fault\":{\"op\":\"layer 3 \\u0022x\\u0022\",\"layer\":3,\"position\":17},"));
  assert_int_equal(bytes, strlen(line));
  free(line);
  m.request.fault_layer = UINT32_MAX;
  assert_int_equal(receipt_line("x", &m.request, FIXTURE_STOPS, 2, &line, &bytes), OK);
  assert_non_null(strstr(line, "\"layer\":null,"));
  free(line);
}

static digest digest_of_all(const char *const ids[], uint32_t count, const verbatim_info *info) {
  receipt r;
  const receipt_source source = {.info = info};
  fixture m;
  digest result;
  fixture_make(&m);
  assert_int_equal(receipt_begin(&r, NULL, &source), OK);
  for (uint32_t i = 0; i < count; i++) assert_int_equal(receipt_add(&r, ids[i], &m.request, FIXTURE_STOPS, 2), OK);
  assert_int_equal(receipt_end(&r, &result), OK);
  return result;
}

/* The order does not count; the number of times that a line occurs does, also if it is even. */
static void order_and_machine_do_not_count(void **state) {
  (void)state;
  static const char *const LISTS[][5] = {{"a", "b", "c"}, {"c", "a", "b"}, {"a", "b"}, {"a", "b", "c", "c", "c"},
                                         {"a", "b", "b", "b", "c"}};
  static const uint32_t COUNTS[] = {3, 3, 2, 5, 5};
  digest all[5];
  for (uint32_t i = 0; i < 5; i++) all[i] = digest_of_all(LISTS[i], COUNTS[i], &FIXTURE_INFO);
  assert_memory_equal(all[0].bytes, all[1].bytes, DIGEST_BYTES);
  for (uint32_t i = 0; i < 5; i++)
    for (uint32_t k = 0; k < i; k++)
      if (i != 1 || k != 0) assert_memory_not_equal(all[i].bytes, all[k].bytes, DIGEST_BYTES);
  verbatim_info other = {.device = "CPU", .numerics_id = {1, 2, 3}, .config_digest = {4}, .weights_digest = {0xff}};
  digest elsewhere = digest_of_all(LISTS[0], 3, &other);
  assert_memory_equal(all[0].bytes, elsewhere.bytes, DIGEST_BYTES);
  other.weights_digest[15] = 1; /* the control: the first line is covered */
  elsewhere = digest_of_all(LISTS[0], 3, &other);
  assert_memory_not_equal(all[0].bytes, elsewhere.bytes, DIGEST_BYTES);
}

/* Sums carry from the last byte to the first, and past it. */
static void sums_carry(void **state) {
  (void)state;
  receipt_sum sum = {0};
  digest all_ones, one = {{0}};
  memset(all_ones.bytes, 0xff, DIGEST_BYTES);
  one.bytes[15] = 1;
  receipt_sum_add(&sum, &all_ones);
  receipt_sum_add(&sum, &all_ones);
  assert_int_equal(sum.total[15], 0xfe);
  assert_int_equal(sum.total[0], 0xff);
  receipt_sum_add(&sum, &one);
  receipt_sum_add(&sum, &one);
  static const uint8_t zero[DIGEST_BYTES];
  assert_memory_equal(sum.total, zero, DIGEST_BYTES);
  assert_int_equal(sum.lines, 4);
}

/* An error may quote text that is not UTF-8: it is written so that a JSON reader accepts it. */
static void faults_of_any_bytes(void **state) {
  (void)state;
  char path[64], found[4096];
  receipt r;
  const receipt_source source = {.info = &FIXTURE_INFO};
  snprintf(path, sizeof path, "/tmp/verbatim-receipt-fault-%ld", (long)getpid());
  assert_int_equal(receipt_begin(&r, path, &source), OK);
  receipt_fault(&r, "\xc3\xa9");
  receipt_abandon(&r, "\xff\xc3\xa9");
  FILE *file = fopen(path, "rb");
  assert_non_null(file);
  found[fread(found, 1, sizeof found - 1, file)] = 0;
  fclose(file);
  unlink(path);
  assert_non_null(strstr(found, "{\"fault\":\"\xc3\xa9\"}\n{\"fault\":\"\\u00ff\\u00c3\\u00a9\"}\n"));
}

static void unwritable(void **state) {
  (void)state;
  receipt r;
  const receipt_source source = {.info = &FIXTURE_INFO};
  fail_clear();
  assert_int_equal(receipt_begin(&r, "/nonexistent/receipt", &source), ERR_IO);
  if (access("/dev/full", W_OK) != 0) return;
  fail_clear();
  assert_int_equal(receipt_begin(&r, "/dev/full", &source), ERR_IO); /* a full disk is reported */
}

/* A line that did not fit is cut off and does not count; with room again the receipt goes on, and its digest is that of its lines. */
static void goes_on_after_a_full_disk(void **state) {
  (void)state;
  char path[64], found[16384], end[64], text[DIGEST_TEXT_BYTES];
  receipt r;
  struct stat info;
  struct rlimit before, limit;
  digest d;
  fixture m;
  const receipt_source source = {.info = &FIXTURE_INFO};
  fixture_make(&m);
  snprintf(path, sizeof path, "/tmp/verbatim-receipt-limit-%ld", (long)getpid());
  assert_int_equal(receipt_begin(&r, path, &source), OK);
  assert_int_equal(receipt_add(&r, "a", &m.request, FIXTURE_STOPS, 2), OK);
  assert_int_equal(stat(path, &info), 0);
  assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
  signal(SIGXFSZ, SIG_IGN);
  limit = (struct rlimit){.rlim_cur = (rlim_t)info.st_size + 100, .rlim_max = before.rlim_max};
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
  fail_clear();
  assert_int_equal(receipt_add(&r, "lost", &m.request, FIXTURE_STOPS, 2), ERR_IO);
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
  off_t cut = info.st_size;
  assert_int_equal(stat(path, &info), 0);
  assert_int_equal(info.st_size, cut);
  assert_int_equal(receipt_add(&r, "b", &m.request, FIXTURE_STOPS, 2), OK);
  assert_int_equal(receipt_end(&r, &d), OK);
  FILE *file = fopen(path, "rb");
  assert_non_null(file);
  found[fread(found, 1, sizeof found - 1, file)] = 0;
  fclose(file);
  unlink(path);
  snprintf(end, sizeof end, "{\"digest\":\"%s\"}\n", digest_text(d.bytes, text));
  assert_string_equal(found + strlen(found) - strlen(end), end);
  assert_true(strstr(found, "\n{\"id\":\"a\"") && strstr(found, "}\n{\"id\":\"b\"") && !strstr(found, "lost"));
  const char *const ids[] = {"b", "a"};
  assert_memory_equal(digest_of_all(ids, 2, &FIXTURE_INFO).bytes, d.bytes, DIGEST_BYTES);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(text), cmocka_unit_test(everything_counts), cmocka_unit_test(faults),
                                     cmocka_unit_test(order_and_machine_do_not_count), cmocka_unit_test(sums_carry),
                                     cmocka_unit_test(faults_of_any_bytes), cmocka_unit_test(unwritable),
                                     cmocka_unit_test(goes_on_after_a_full_disk)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_receipt.c - the receipt's text to the byte, and that each input of a request and each result changes it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "engine/receipt.h"

static const uint8_t ID[16] = {1, 2, 3}, CONFIG[16] = {4}, WEIGHTS[16] = {0xff};
static const int32_t PROMPT[] = {7, 8, 9}, STOPS[] = {1, 30};

typedef struct made {
  verbatim_request request;
  verbatim_token tokens[2], scores[1];
  verbatim_alternative alternatives[6];
  verbatim_bias biases[2];
  verbatim_text stop_texts[2];
} made;

static void make(made *m) {
  *m = (made){.tokens = {{.id = 5, .logprob = -0.5f, .digest = 0x123456789abcdef0ull}, {.id = 1, .logprob = -1.0f, .rank = 3, .digest = 1}},
              .scores = {{.id = 9, .logprob = -2.0f, .rank = 7, .digest = 2}},
              .alternatives = {{1, -1.0f}, {2, -2.0f}, {3, -0.5f}, {4, -2.0f}, {5, -1.0f}, {6, -0.5f}},
              .biases = {{8, -1.0f}, {6, 0.5f}}, .stop_texts = {{"a\"", 2}, {"\n\0\xc3\xa9", 4}}};
  m->request = (verbatim_request){.prompt = PROMPT, .prompt_count = 3, .max_tokens = 4, .score = true, .score_from = 2, .top_logprobs = 2,
                                  .temperature = 1.0f, .top_k = 2, .top_p = 0.5, .min_p = 0.5, .repetition_penalty = 1.0f,
                                  .presence_penalty = -0.0f, .frequency_penalty = 2.0f, .biases = m->biases, .bias_count = 2,
                                  .seed = 255, .sample_index = 6, .stop_texts = m->stop_texts, .stop_text_count = 2,
                                  .scores = m->scores, .tokens = m->tokens, .alternatives = m->alternatives, .score_count = 1,
                                  .token_count = 2, .finish = VERBATIM_STOP};
  memset(m->request.chain, 0xab, 16);
  memset(m->request.request_digest, 0xcd, 16);
}

static digest write_receipt(const char *path, const char *id, const made *m, const uint8_t *vocabulary) {
  receipt r;
  receipt_source source = {.numerics_id = ID, .config_digest = CONFIG, .weights_digest = WEIGHTS, .tokenizer_digest = vocabulary};
  digest result;
  assert_int_equal(receipt_begin(&r, path, &source), OK);
  receipt_add(&r, id, &m->request, STOPS, 2);
  assert_int_equal(receipt_end(&r, &result), OK);
  return result;
}

static void text(void **state) {
  (void)state;
  char path[64], found[8192], expected[8192], prompt[33], whole[33];
  made m;
  make(&m);
  snprintf(path, sizeof path, "/tmp/verbatim-receipt-%ld", (long)getpid());
  digest d = write_receipt(path, "a \"b\"\n\\", &m, NULL);
  FILE *file = fopen(path, "rb");
  assert_non_null(file);
  found[fread(found, 1, sizeof found - 1, file)] = 0;
  fclose(file);
  unlink(path);
  snprintf(expected, sizeof expected,
           "{\"verbatim_receipt\":2,\"numerics_id\":\"01020300000000000000000000000000\",\"config\":\"04000000000000000000000000000000\","
           "\"weights\":\"ff000000000000000000000000000000\",\"tokenizer\":null}\n"
           "{\"id\":\"a \\u0022b\\u0022\\u000a\\u005c\",\"prompt_count\":3,\"prompt\":\"%s\",\"max_tokens\":4,\"score_from\":2,"
           "\"top_logprobs\":2,\"temperature\":\"3f800000\",\"top_k\":2,\"top_p\":\"080000000\",\"min_p\":\"3fe0000000000000\","
           "\"repetition_penalty\":\"3f800000\",\"presence_penalty\":\"00000000\",\"frequency_penalty\":\"40000000\","
           "\"list\":[[6,\"3f000000\"],[8,\"bf800000\"]],\"list_only\":false,\"seed\":\"00000000000000ff\",\"sample_index\":6,"
           "\"stop_ids\":[1,30],\"stop_texts\":[\"a\\u0022\",\"\\u000a\\u0000\xc3\xa9\"],"
           "\"request\":\"cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd\",\"finish\":\"stop\",\"stop_index\":0,\"text_bytes\":0,"
           "\"scored\":{\"tokens\":[9],\"logprobs\":[\"c0000000\"],\"ranks\":[7],\"logits\":[\"0000000000000002\"],"
           "\"alternatives\":[[[1,\"bf800000\"],[2,\"c0000000\"]]]},"
           "\"made\":{\"tokens\":[5,1],\"logprobs\":[\"bf000000\",\"bf800000\"],\"ranks\":[0,3],"
           "\"logits\":[\"123456789abcdef0\",\"0000000000000001\"],"
           "\"alternatives\":[[[3,\"bf000000\"],[4,\"c0000000\"]],[[5,\"bf800000\"],[6,\"bf000000\"]]]},"
           "\"chain\":\"abababababababababababababababab\"}\n",
           digest_text(digest_of(PROMPT, sizeof PROMPT).bytes, prompt));
  digest expected_digest = digest_of(expected, strlen(expected));
  assert_memory_equal(d.bytes, expected_digest.bytes, DIGEST_BYTES);
  size_t used = strlen(expected);
  snprintf(expected + used, sizeof expected - used, "{\"digest\":\"%s\"}\n", digest_text(d.bytes, whole));
  assert_string_equal(found, expected);
}

static void everything_counts(void **state) {
  (void)state;
  made m;
  static const int32_t allowed[] = {6, 8};
  digest seen[40];
  uint32_t count = 0;
  make(&m);
  seen[count++] = write_receipt(NULL, "x", &m, NULL);
  seen[count++] = write_receipt(NULL, "y", &m, NULL);
  seen[count++] = write_receipt(NULL, "x", &m, ID);
  for (int what = 0; what < 27; what++) {
    make(&m);
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
    seen[count++] = write_receipt(NULL, "x", &m, NULL);
  }
  for (uint32_t i = 0; i < count; i++)
    for (uint32_t j = 0; j < i; j++) assert_memory_not_equal(seen[i].bytes, seen[j].bytes, DIGEST_BYTES);
}

static void unwritable(void **state) {
  (void)state;
  receipt r;
  receipt_source source = {.numerics_id = ID, .config_digest = CONFIG, .weights_digest = WEIGHTS};
  fail_clear();
  assert_int_equal(receipt_begin(&r, "/nonexistent/receipt", &source), ERR_IO);
  if (access("/dev/full", W_OK) != 0) return;
  digest d;
  made m;
  make(&m);
  fail_clear();
  assert_int_equal(receipt_begin(&r, "/dev/full", &source), OK);
  receipt_add(&r, "x", &m.request, STOPS, 2);
  assert_int_equal(receipt_end(&r, &d), ERR_IO); /* a full disk is noticed */
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(text), cmocka_unit_test(everything_counts), cmocka_unit_test(unwritable)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

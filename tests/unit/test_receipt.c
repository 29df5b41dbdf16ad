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
  int32_t tokens[2];
  float logprobs[2];
  uint64_t digests[2];
} made;

static void make(made *m) {
  *m = (made){.tokens = {5, 1}, .logprobs = {-0.5f, -1.0f}, .digests = {0x123456789abcdef0ull, 1}};
  m->request = (verbatim_request){.prompt = PROMPT, .prompt_count = 3, .max_tokens = 4, .temperature = 1.0f, .top_k = 2, .top_p = 0.5,
                                  .seed = 255, .tokens = m->tokens, .logprobs = m->logprobs, .digests = m->digests, .token_count = 2,
                                  .finish = VERBATIM_STOP};
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
  char path[64], found[4096], expected[4096], prompt[33], whole[33];
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
           "{\"verbatim_receipt\":1,\"numerics_id\":\"01020300000000000000000000000000\",\"config\":\"04000000000000000000000000000000\","
           "\"weights\":\"ff000000000000000000000000000000\",\"tokenizer\":null}\n"
           "{\"id\":\"a \\u0022b\\u0022\\u000a\\u005c\",\"prompt_count\":3,\"prompt\":\"%s\",\"max_tokens\":4,\"temperature\":\"3f800000\","
           "\"top_k\":2,\"top_p\":\"080000000\",\"seed\":\"00000000000000ff\",\"stop_ids\":[1,30],"
           "\"request\":\"cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd\",\"finish\":\"stop\",\"tokens\":[5,1],\"logprobs\":[\"bf000000\",\"bf800000\"],"
           "\"logits\":[\"123456789abcdef0\",\"0000000000000001\"],\"chain\":\"abababababababababababababababab\"}\n",
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
  digest seen[16];
  uint32_t count = 0;
  make(&m);
  seen[count++] = write_receipt(NULL, "x", &m, NULL);
  seen[count++] = write_receipt(NULL, "y", &m, NULL);
  seen[count++] = write_receipt(NULL, "x", &m, ID);
  for (int what = 0; what < 8; what++) {
    make(&m);
    if (what == 0) m.tokens[1] = 2;
    if (what == 1) m.logprobs[0] = -0.50000006f;
    if (what == 2) m.digests[1]++;
    if (what == 3) m.request.seed++;
    if (what == 4) m.request.finish = VERBATIM_LENGTH;
    if (what == 5) m.request.token_count = 1;
    if (what == 6) m.request.chain[15]++;
    if (what == 7) m.request.prompt_count = 2;
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

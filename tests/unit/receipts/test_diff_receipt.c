/* test_diff_receipt.c - two receipts that differ in one value: the difference is named, with its place and both values. Every input and
 * every value of a token and of an ending is changed once; without a change, or with only another machine, the receipts are equal. */
#include "tests/unit/unit.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "engine/receipts/diff_receipt.h"
#include "engine/receipts/receipt.h"

static const int32_t PROMPT[] = {7, 8, 9, 4}, OTHER[] = {7, 6, 9, 4}, STOPS[] = {1, 30}, ALLOWED[] = {6, 8};

typedef struct made { /* one request, and what its receipt says around it */
  verbatim_request request;
  verbatim_token tokens[3], scores[2];
  verbatim_alternative alternatives[10];
  verbatim_bias biases[2];
  verbatim_text stop_texts[2];
  int32_t stops[2];
  uint32_t stop_count;
  verbatim_info info;
  uint8_t vocabulary[16];
  bool ends; /* with its digest */
} made;

static char paths[2][64];

static void make(made *m) {
  *m = (made){.tokens = {{.id = 5, .logprob = -0.5f, .digest = 10}, {.id = 6, .logprob = -1.0f, .rank = 3, .digest = 11},
                         {.id = 1, .logprob = -1.0f, .rank = 3, .digest = 12}},
              .scores = {{.id = 9, .logprob = -2.0f, .rank = 7, .digest = 13}, {.id = 4, .logprob = -2.5f, .digest = 14}},
              .biases = {{6, 0.5f}, {8, -1.0f}}, .stop_texts = {{"a\"", 2}, {"xyz", 3}}, .stop_count = 2, .ends = true,
              .info = {.device = "a CPU", .ranks = 1, .numerics_id = {1}, .config_digest = {2}, .weights_digest = {3}}};
  memcpy(m->stops, STOPS, sizeof STOPS);
  for (int i = 0; i < 10; i++) m->alternatives[i] = (verbatim_alternative){.id = i, .logprob = -1.0f - (float)i};
  m->request = (verbatim_request){.prompt = PROMPT, .prompt_count = 4, .max_tokens = 4, .score = true, .score_from = 2, .top_logprobs = 2,
                                  .temperature = 1.0f, .top_k = 2, .top_p = 0.5, .min_p = 0.5, .repetition_penalty = 1.0f,
                                  .frequency_penalty = 2.0f, .biases = m->biases, .bias_count = 2, .seed = 255,
                                  .stop_texts = m->stop_texts, .stop_text_count = 2, .scores = m->scores, .tokens = m->tokens,
                                  .alternatives = m->alternatives, .score_count = 2, .token_count = 3, .finish = VERBATIM_STOP};
  memset(m->request.chain, 0xab, 16);
  memset(m->request.request_digest, 0xcd, 16);
}

static void write_receipt(const char *path, const made *m) {
  receipt r;
  digest ignored;
  const receipt_source source = {.info = &m->info, .tokenizer_digest = m->vocabulary};
  assert_int_equal(receipt_begin(&r, path, &source), OK);
  receipt_add(&r, "x", &m->request, m->stops, m->stop_count);
  if (m->ends) assert_int_equal(receipt_end(&r, &ignored), OK);
  else receipt_abandon(&r, "a test");
}

static diff_receipt compare(const made *a, const made *b) {
  diff_receipt d;
  write_receipt(paths[0], a);
  write_receipt(paths[1], b);
  fail_clear();
  if (diff_receipt_compare(&d, paths[0], paths[1]) != OK) fail_msg("%s", fail_text());
  return d;
}

static void equal_receipts(void **state) {
  (void)state;
  made a, b;
  make(&a);
  make(&b);
  b.info.device = "another";
  b.info.ranks = 2;
  diff_receipt d = compare(&a, &b);
  assert_true(!d.differs && !d.has_first && d.same_numerics && d.same_config && d.same_weights && d.same_tokenizer);
  assert_string_equal(d.device[1], "another");
  diff_receipt_close(&d);
}

static void change_input(made *m, int what) {
  verbatim_request *r = &m->request;
  switch (what) {
    case 0: r->prompt = OTHER; break;
    case 1: r->max_tokens++; break;
    case 2: r->temperature = 2; break;
    case 3: r->top_k = 0; break;
    case 4: r->top_p = 0.25; break;
    case 5: r->min_p = 0.25; break;
    case 6: r->repetition_penalty = 2; break;
    case 7: r->presence_penalty = 2; break;
    case 8: r->frequency_penalty = 3; break;
    case 9: r->seed = 0xabcdef; break;
    case 10: r->sample_index++; break;
    case 11: m->biases[1].bias = -1.5f; break;
    case 12: m->biases[1].token = 9; break;
    case 13: r->bias_count = 1; break;
    case 14: r->allowed_ids = ALLOWED, r->allowed_count = 2; break;
    case 15: m->stops[1] = 31; break;
    case 16: r->stop_text_count = 1; break;
    default: m->stop_texts[0].bytes = "ab"; break;
  }
}

static void inputs_are_named(void **state) {
  (void)state;
  static const struct { const char *name; uint32_t index; const char *value; } EXPECTED[] = {
      {"prompt", 1, "6"}, {"max_tokens", UINT32_MAX, "5"}, {"temperature", UINT32_MAX, "2 (40000000)"}, {"top_k", UINT32_MAX, "0"},
      {"top_p", UINT32_MAX, "0.25 (3fd0000000000000)"}, {"min_p", UINT32_MAX, "0.25 (3fd0000000000000)"},
      {"repetition_penalty", UINT32_MAX, "2 (40000000)"}, {"presence_penalty", UINT32_MAX, "2 (40000000)"},
      {"frequency_penalty", UINT32_MAX, "3 (40400000)"}, {"seed", UINT32_MAX, "0000000000abcdef"}, {"sample_index", UINT32_MAX, "1"},
      {"list", 1, "token 8, -1.5 (bfc00000)"}, {"list", 1, "token 9, -1 (bf800000)"}, {"list", 1, "none"},
      {"list_only", UINT32_MAX, "true"},
      {"stop_ids", 1, "31"}, {"stop_texts", 1, "none"}, {"stop_texts", 0, "2 bytes: ab"}};
  for (int i = 0; i < (int)ARRAY_LEN(EXPECTED); i++) {
    made a, b;
    make(&a);
    make(&b);
    change_input(&b, i);
    diff_receipt d = compare(&a, &b);
    const receipt_difference_field *f = &d.first.input;
    if (!d.has_first || !f->name || strcmp(f->name, EXPECTED[i].name) != 0 || f->index != EXPECTED[i].index ||
        strcmp(f->value[1], EXPECTED[i].value) != 0)
      fail_msg("case %d: %s[%u] %s", i, f->name ? f->name : "nothing", f->index, f->value[1]);
    assert_true(d.differs && strcmp(f->value[0], f->value[1]) != 0);
    assert_true(d.first.tokens_same == 5 && !d.first.token.list && !d.first.end.name);
    diff_receipt_close(&d);
  }
}

static void change_token(made *m, int what) {
  switch (what) {
    case 0: m->scores[1].logprob = -2.25f; break;
    case 1: m->scores[0].rank++; break;
    case 2: m->tokens[0].id = 3; break;
    case 3: m->tokens[1].digest++; break;
    case 4: m->alternatives[7].id = 70; break;       /* generated token 1, its second value */
    case 5: m->alternatives[2].logprob = -9; break;  /* scored token 1, its first value */
    default: m->request.token_count = 2, m->request.finish = VERBATIM_CANCELLED; break;
  }
}

static void tokens_are_named(void **state) {
  (void)state;
  static const struct { const char *list; uint32_t index, position, same, alternative; } EXPECTED[] = {
      {"scored", 1, 3, 1, UINT32_MAX}, {"scored", 0, 2, 0, UINT32_MAX}, {"made", 0, 4, 2, UINT32_MAX}, {"made", 1, 5, 3, UINT32_MAX},
      {"made", 1, 5, 3, 1}, {"scored", 1, 3, 1, 0}, {"made", 2, 6, 4, UINT32_MAX}};
  for (int i = 0; i < (int)ARRAY_LEN(EXPECTED); i++) {
    made a, b;
    make(&a);
    make(&b);
    change_token(&b, i);
    diff_receipt d = compare(&a, &b);
    const receipt_difference_token *t = &d.first.token;
    if (!t->list || strcmp(t->list, EXPECTED[i].list) != 0 || t->index != EXPECTED[i].index || t->position != EXPECTED[i].position)
      fail_msg("case %d: %s[%u]", i, t->list ? t->list : "nothing", t->index);
    assert_true(d.first.tokens_same == EXPECTED[i].same && t->alternative == EXPECTED[i].alternative && !d.first.input.name);
    assert_true(t->has_token[0] && t->has_token[1] == (i != 6));
    if (i == 0) assert_true(t->token[0].logprob == -2.5f && t->token[1].logprob == -2.25f);
    if (i == 4) assert_true(t->alternatives[0].id == 7 && t->alternatives[1].id == 70);
    if (i == 6) assert_string_equal(d.first.end.name, "finish");
    diff_receipt_close(&d);
  }
}

static void ends_are_named(void **state) {
  (void)state;
  static const char *const names[] = {"finish", "stop_index", "text_bytes", "chain", "fault.op", "fault.layer", "fault.position"};
  for (int i = 0; i < (int)ARRAY_LEN(names); i++) {
    made m[2];
    for (int k = 0; k < 2; k++) {
      verbatim_request *r = &m[k].request;
      make(&m[k]);
      if (i == 1 || i == 2) r->finish = VERBATIM_STOP_TEXT;
      if (i >= 4) r->finish = VERBATIM_NONFINITE, r->fault_op = "layer 3 o_proj", r->fault_layer = 3;
    }
    verbatim_request *r = &m[1].request;
    if (i == 0) r->finish = VERBATIM_CANCELLED;
    if (i == 1) r->stop_index = 1;
    if (i == 2) r->text_bytes = 9;
    if (i == 3) r->chain[0] ^= 1;
    if (i == 4) r->fault_op = "layer 3 v_up";
    if (i == 5) r->fault_layer = UINT32_MAX;
    if (i == 6) r->fault_position = 2;
    diff_receipt d = compare(&m[0], &m[1]);
    const char *found = d.first.end.name ? d.first.end.name : "none";
    if (strcmp(found, names[i]) != 0) fail_msg("%s: %s", names[i], found);
    assert_true(d.differs && !d.first.input.name && !d.first.token.list && strcmp(d.first.end.value[0], d.first.end.value[1]) != 0);
    if (i == 5) assert_string_equal(d.first.end.value[1], "none");
    diff_receipt_close(&d);
  }
}

/* The digests report differences that no other field shows: the request's digest those of its inputs, the chain at the end. */
static void digests_are_named_last(void **state) {
  (void)state;
  for (int i = 0; i < 3; i++) {
    made a, b;
    make(&a);
    make(&b);
    b.request.request_digest[15] ^= 1;
    b.request.chain[0] ^= 1;
    if (i == 1) b.request.max_tokens++;
    if (i == 2) b.tokens[1].digest++, b.request.request_digest[15] ^= 1;
    diff_receipt d = compare(&a, &b);
    const char *found = d.first.input.name ? d.first.input.name : "none";
    assert_string_equal(found, i == 0 ? "request" : i == 1 ? "max_tokens" : "none");
    assert_true(d.differs && !d.first.end.name && !d.first.token.list == (i != 2));
    diff_receipt_close(&d);
  }
}

/* The first lines; a difference that follows only from them is not reported as a request's. */
static void heads_are_named(void **state) {
  (void)state;
  for (int i = 0; i < 5; i++) {
    made a, b;
    make(&a);
    make(&b);
    if (i == 4) b.vocabulary[3]++;
    if (i == 0) b.info.numerics_id[0]++;
    if (i == 1) b.info.config_digest[0]++;
    if (i == 2) b.info.weights_digest[0]++;
    if (i == 3) b.ends = false;
    if (i == 0 || i == 2 || i == 4) b.request.chain[0]++, b.request.request_digest[0]++;
    diff_receipt d = compare(&a, &b);
    assert_true(d.differs && !d.has_first && diff_requests_differ(&d.requests[0]) == 0);
    assert_int_equal(d.same_tokenizer, i != 4);
    assert_true(d.same_numerics == (i != 0) && d.same_config == (i != 1) && d.same_weights == (i != 2) && d.complete[1] == (i != 3));
    diff_receipt_close(&d);
  }
}

static void damaged_files(void **state) {
  (void)state;
  made m;
  diff_receipt d;
  make(&m);
  write_receipt(paths[0], &m);
  write_receipt(paths[1], &m);
  assert_int_equal(truncate(paths[1], 300), 0);
  for (int i = 0; i < 2; i++) {
    fail_clear();
    assert_int_not_equal(diff_receipt_compare(&d, paths[i], paths[!i]), OK);
    if (!strstr(fail_text(), paths[1])) fail_msg("the file is not named: %s", fail_text());
    diff_receipt_close(&d);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(equal_receipts), cmocka_unit_test(inputs_are_named),
                                     cmocka_unit_test(tokens_are_named), cmocka_unit_test(ends_are_named),
                                     cmocka_unit_test(digests_are_named_last),
                                     cmocka_unit_test(heads_are_named), cmocka_unit_test(damaged_files)};
  for (int i = 0; i < 2; i++) snprintf(paths[i], sizeof paths[i], "/tmp/verbatim-diff-receipt-%ld-%d", (long)getpid(), i);
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  for (int i = 0; i < 2; i++) unlink(paths[i]);
  return failed;
}

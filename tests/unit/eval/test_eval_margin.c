/* test_eval_margin.c - margins of invented requests and choices, and the results that depend on small margins. Expected numbers are exact
 * unless they go through exp, which has a bound of 1.2 ulp of fp32. */
#include "tests/unit/unit.h"
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "engine/eval/margin.h"

#define TOKENS 4u

static verbatim_token tokens[TOKENS], scores[TOKENS];
static verbatim_alternative alternatives[2 * TOKENS][2];

static void assert_same(double found, double wanted) {
  if (memcmp(&found, &wanted, sizeof found) != 0) fail_msg("expected %.17g, found %.17g", wanted, found);
}

static void assert_near(double found, double wanted) {
  if (fabs(found - wanted) > 3e-7) fail_msg("expected about %.17g, found %.17g", wanted, found);
}

/* A greedy request of TOKENS tokens, each 8 nats above the next at a logit of 1. */
static verbatim_request greedy(void) {
  for (uint32_t i = 0; i < TOKENS; i++) {
    tokens[i] = (verbatim_token){.id = 7, .logprob = -1, .logit = 1};
    alternatives[i][0] = (verbatim_alternative){7, -1};
    alternatives[i][1] = (verbatim_alternative){9, -9};
  }
  verbatim_request r = VERBATIM_REQUEST_DEFAULTS;
  r.top_logprobs = 2;
  r.tokens = tokens;
  r.scores = scores;
  r.alternatives = alternatives[0];
  r.token_count = TOKENS;
  r.finish = VERBATIM_STOP;
  return r;
}

static void set(uint32_t i, float logit, float first, float second) {
  tokens[i].logit = logit;
  tokens[i].logprob = alternatives[i][0].logprob = first;
  alternatives[i][1].logprob = second;
}

static void an_ulp_is_that_of_bf16(void **state) {
  (void)state;
  assert_same(eval_margin_ulp(1), 0x1p-7);
  assert_same(eval_margin_ulp(nextafterf(1, 0)), 0x1p-8); /* just below a power of two */
  assert_same(eval_margin_ulp(2), 0x1p-6);
  assert_same(eval_margin_ulp(-16), 0x1p-3);
  assert_same(eval_margin_ulp(-31.5f), 0x1p-3);
  assert_same(eval_margin_ulp(FLT_MAX), 0x1p120);
  assert_same(eval_margin_ulp(FLT_MIN), 0x1p-133);
  assert_same(eval_margin_ulp(FLT_MIN / 2), 0x1p-133); /* subnormal */
  assert_same(eval_margin_ulp(-0x1p-149f), 0x1p-133);
  assert_same(eval_margin_ulp(0), 0x1p-133);
}

static void the_nearest_token_is_told(void **state) {
  (void)state;
  verbatim_request r = greedy();
  set(2, 20, -0.25f, -1.75f); /* 1.5 nats in ulps of 1/8; tokens 0, 1, 3: 8 nats in ulps of 1/128 */
  eval_margin m = eval_margin_request(&r);
  assert_true(m.known && m.at == 2);
  assert_same(m.logprob, 1.5);
  assert_same(m.ulps, 12);
  assert_near(m.probability, exp(-0.25) - exp(-1.75));
}

/* Nearest in ulps, not in nats. */
static void size_counts(void **state) {
  (void)state;
  verbatim_request r = greedy();
  set(1, 0.5f, -0.25f, -0.75f); /* 0.5 nats: 128 ulps */
  set(3, 100, -0.25f, -2.25f);  /* 2 nats: 4 ulps */
  eval_margin m = eval_margin_request(&r);
  assert_true(m.known && m.at == 3);
  assert_same(m.ulps, 4);
}

static void negative_logits_count_by_their_size(void **state) {
  (void)state;
  verbatim_request r = greedy();
  set(0, -6, -3, -3.5f);
  eval_margin m = eval_margin_request(&r);
  assert_true(m.known && m.at == 0);
  assert_same(m.ulps, 16);
}

static void ties_are_zero(void **state) {
  (void)state;
  verbatim_request r = greedy();
  set(1, 3, -0.75f, -0.75f);
  set(3, 5, -0.75f, -0.75f);
  eval_margin m = eval_margin_request(&r);
  assert_true(m.known && m.at == 1); /* the first */
  assert_same(m.ulps, 0);
  assert_same(m.logprob, 0);
  assert_same(m.probability, 0);
}

static void subnormal_and_zero_logits(void **state) {
  (void)state;
  verbatim_request r = greedy();
  for (uint32_t i = 0; i < TOKENS; i++) set(i, i % 2 ? 0 : 0x1p-140f, -0.5f, -0.5f - 0x1p-24f * (float)(TOKENS - i));
  eval_margin m = eval_margin_request(&r);
  assert_true(m.known && m.at == 3 && isfinite(m.ulps));
  assert_same(m.ulps, m.logprob * 0x1p133);
}

static void tokens_stand_behind_the_scored(void **state) {
  (void)state;
  verbatim_request r = greedy();
  memmove(alternatives[TOKENS], alternatives[0], sizeof alternatives / 2);
  for (uint32_t i = 0; i < TOKENS; i++) alternatives[i][0].logprob = alternatives[i][1].logprob = -1; /* these would be ties */
  r.score_count = TOKENS;
  eval_margin m = eval_margin_request(&r);
  assert_true(m.known);
  assert_same(m.logprob, 8);
}

static void what_cannot_be_told_is_not_known(void **state) {
  (void)state;
  verbatim_request good = greedy(), r;
  assert_true(eval_margin_request(&good).known);
#define UNKNOWN(field, value) r = good, r.field = (value), assert_false(eval_margin_request(&r).known)
  UNKNOWN(temperature, 1);
  UNKNOWN(repetition_penalty, 1.5f);
  UNKNOWN(presence_penalty, 0.5f);
  UNKNOWN(frequency_penalty, -0.5f);
  UNKNOWN(bias_count, 1);
  UNKNOWN(allowed_count, 1);
  UNKNOWN(top_logprobs, 1);
  UNKNOWN(top_logprobs, 0);
  UNKNOWN(token_count, 0);
  UNKNOWN(finish, VERBATIM_NONFINITE);
  UNKNOWN(finish, VERBATIM_CANCELLED);
  UNKNOWN(finish, VERBATIM_DEADLINE);
  UNKNOWN(finish, VERBATIM_RUNNING);
#undef UNKNOWN
  r = good;
  r.finish = VERBATIM_STOP_TEXT;
  assert_true(eval_margin_request(&r).known);
  for (uint32_t i = 0; i < TOKENS; i++) alternatives[i][1].logprob = -INFINITY;
  assert_false(eval_margin_request(&good).known);
  for (uint32_t i = 0; i < TOKENS; i++) alternatives[i][1] = alternatives[i][0];
  assert_false(eval_margin_request(&good).known); /* a vocabulary of one */
  assert_null(eval_margin_json(&(eval_margin){.ulps = 1}));
}

static void a_choice_against_the_second_best(void **state) {
  (void)state;
  const eval_margin_part parts[] = {{-9, 1, 64, false}, {-4, 1, 20, false}, {-2.5, 1, 3, false}, {-4, 1, 20, false}};
  eval_margin m = eval_margin_choice(parts, 4);
  assert_true(m.known && m.at == 1);
  assert_same(m.logprob, 1.5);
  assert_same(m.ulps, 12); /* the larger of 3 and 20 decides, not the 64 of a third token */
  double sum = 1 + 2 * exp(-1.5) + exp(-6.5);
  assert_near(m.probability, (1 - exp(-1.5)) / sum);
  m = eval_margin_choice(parts + 1, 2);
  assert_true(m.known && m.at == 0);
}

static void a_choice_per_byte(void **state) {
  (void)state;
  const eval_margin_part parts[] = {{-6, 6, 16, false}, {-6, 4, 16, false}};
  eval_margin m = eval_margin_choice(parts, 2);
  assert_true(m.known && m.at == 1);
  assert_same(m.logprob, 0.5);     /* -1 and -1.5 nats per byte */
  assert_same(m.ulps, 2 / 0x1p-3); /* the second sum must rise by 2 nats, the first fall by 3 */
  assert_near(m.probability, (1 - exp(-0.5)) / (1 + exp(-0.5)));
}

static void choices_that_tie_or_cannot_be_told(void **state) {
  (void)state;
  eval_margin_part parts[] = {{-3, 1, 1, false}, {-3, 1, 1, false}, {-8, 1, 1, false}};
  eval_margin m = eval_margin_choice(parts, 3);
  assert_true(m.known && m.at == 1);
  assert_same(m.ulps, 0);
  assert_same(m.probability, 0);
  assert_false(eval_margin_choice(parts, 1).known);
  assert_false(eval_margin_choice(parts, 0).known);
  parts[2].failed = true;
  assert_false(eval_margin_choice(parts, 3).known);
  parts[2] = (eval_margin_part){-8, 0, 1, false};
  assert_false(eval_margin_choice(parts, 3).known);
  parts[0].logprob = parts[1].logprob = -INFINITY;
  assert_false(eval_margin_choice(parts, 2).known);
}

static void a_part_is_read_from_its_request(void **state) {
  (void)state;
  const float logprobs[] = {-1e8f, -4e-9f, -4e-9f}, logits[] = {2, -30, 29};
  for (uint32_t i = 0; i < 3; i++) scores[i] = (verbatim_token){.logprob = logprobs[i], .logit = logits[i]};
  verbatim_request r = VERBATIM_REQUEST_DEFAULTS;
  r.scores = scores;
  r.score_count = 3;
  r.finish = VERBATIM_LENGTH;
  eval_margin_part part = eval_margin_part_of(&r, 5);
  assert_true(part.bytes == 5 && !part.failed && part.logit_most == 30);
  assert_same(part.logprob, (-1e8 + (double)-4e-9f) + (double)-4e-9f); /* in their order */
  r.finish = VERBATIM_NONFINITE;
  assert_true(eval_margin_part_of(&r, 5).failed);
}

static void bins_are_powers_of_two(void **state) {
  (void)state;
  assert_int_equal(eval_margin_bin(0), 0);
  assert_int_equal(eval_margin_bin(0x1p-300), 1);
  assert_int_equal(eval_margin_bin(nextafter(0x1p-4, 0)), 1);
  for (uint32_t bin = 2; bin < EVAL_MARGIN_BINS; bin++) {
    assert_int_equal(eval_margin_bin(eval_margin_bin_from(bin)), bin);
    assert_int_equal(eval_margin_bin(nextafter(eval_margin_bin_from(bin), 0)), bin - 1);
  }
  assert_int_equal(eval_margin_bin(1e300), EVAL_MARGIN_BINS - 1);
  assert_int_equal(eval_margin_bin(INFINITY), EVAL_MARGIN_BINS - 1);
}

static void risk(void **state) {
  (void)state;
  eval_margin_risk risk = {0};
  const struct { double ulps; bool known, right; } items[] = {
    {0, true, true},    {1.5, true, false}, {1.999, true, true},  {2, true, true},
    {300, true, false}, {0, false, true},   {0, false, false},    {7, true, true},
  };
  for (uint32_t i = 0; i < 8; i++) {
    eval_margin m = {.known = items[i].known, .ulps = items[i].ulps};
    eval_margin_add(&risk, &m, items[i].right);
  }
  assert_true(risk.items == 8 && risk.right == 5 && risk.known == 6 && risk.fragile[1] == 2 && risk.fragile[0] == 1);
  assert_same(eval_margin_share(&risk), 0.5);
  assert_same(eval_margin_lowest(&risk), 3.0 / 8);
  assert_same(eval_margin_highest(&risk), 6.0 / 8);
  json_t *found = eval_margin_risk_json(&risk);
  json_t *wanted = json_loads("{\"items\":8,\"known\":6,\"fragile_right\":2,\"fragile_wrong\":1,\"below_ulps\":2.0,\"fragile_share\":0.5,"
                              "\"score_lowest\":0.375,\"score_highest\":0.75,\"ties\":{\"right\":1,\"wrong\":0},\"bins\":["
                              "{\"from\":1.0,\"right\":1,\"wrong\":1},{\"from\":2.0,\"right\":1,\"wrong\":0},{\"from\":4.0,\"right\":1,"
                              "\"wrong\":0},{\"from\":256.0,\"right\":0,\"wrong\":1}]}", 0, NULL);
  assert_non_null(wanted);
  if (!json_equal(found, wanted)) fail_msg("%s", json_dumps(found, 0));
  json_decref(found);
  json_decref(wanted);
}

static void nothing_has_no_risk(void **state) {
  (void)state;
  eval_margin_risk risk = {0};
  assert_same(eval_margin_share(&risk), 0);
  assert_same(eval_margin_lowest(&risk), 0);
  assert_same(eval_margin_highest(&risk), 0);
  json_t *found = eval_margin_risk_json(&risk);
  assert_int_equal(json_array_size(json_object_get(found, "bins")), 0);
  json_decref(found);
}

static void an_object_holds_all(void **state) {
  (void)state;
  eval_margin m = {true, 3, 0.1, 0.25, 12.5};
  json_t *object = eval_margin_json(&m);
  char *text = json_dumps(object, JSON_COMPACT);
  assert_string_equal(text, "{\"logprob\":0.10000000000000001,\"probability\":0.25,\"ulps\":12.5,\"at\":3}");
  free(text);
  json_decref(object);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(an_ulp_is_that_of_bf16), cmocka_unit_test(the_nearest_token_is_told), cmocka_unit_test(size_counts),
    cmocka_unit_test(negative_logits_count_by_their_size), cmocka_unit_test(ties_are_zero), cmocka_unit_test(subnormal_and_zero_logits),
    cmocka_unit_test(tokens_stand_behind_the_scored), cmocka_unit_test(what_cannot_be_told_is_not_known),
    cmocka_unit_test(a_choice_against_the_second_best), cmocka_unit_test(a_choice_per_byte),
    cmocka_unit_test(choices_that_tie_or_cannot_be_told), cmocka_unit_test(a_part_is_read_from_its_request),
    cmocka_unit_test(bins_are_powers_of_two), cmocka_unit_test(risk), cmocka_unit_test(nothing_has_no_risk),
    cmocka_unit_test(an_object_holds_all),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

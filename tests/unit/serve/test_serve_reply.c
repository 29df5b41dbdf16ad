/* test_serve_reply.c - replies as clients read them: a whole reply and one in events say the same, and the same request gets the same
 * bytes. */
#include "tests/unit/unit.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "engine/receipts/receipt.h"
#include "engine/serve/reply.h"
#include "engine/serve/tokens.h"
#include "engine/jsonl/transcript.h"
#include "engine/base/utf8.h"
#include "serve_fixture.h"

#define TRIALS 150

static serve_fixture fixture;

static const json_t *at(const json_t *root, const char *path) { return serve_fixture_at(root, path); }
static const char *text_at(const json_t *root, const char *path) { return json_string_value(at(root, path)); }
static json_int_t number_at(const json_t *root, const char *path) { return json_integer_value(at(root, path)); }

static serve_request *run_of(enum serve_kind kind, const char *body) {
  serve_request *request = serve_fixture_ask(&fixture, kind, body);
  serve_fixture_submit(&fixture, request);
  serve_fixture_run(&fixture, request);
  return request;
}

static json_t *reply_of(serve_request *request) {
  serve_text out = {0};
  serve_fault fault;
  assert_true(serve_reply_whole(&fixture.model, request, &out, &fault));
  json_t *reply = json_loadb(out.bytes, out.count, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
  if (!reply) fail_msg("not JSON, or a key twice: %.*s", (int)out.count, out.bytes);
  strbuf_close(&out);
  return reply;
}

/* === Numbers and texts ====================================================================================================== */

static void floats_read_back_and_are_shortest(void **state) {
  (void)state;
  static const struct { float value; const char *text; } cases[] = {
    {0, "0.0"}, {-0.1f, "-0.1"}, {1, "1.0"}, {-1.5f, "-1.5"}, {16777216, "16777216.0"}, {-3.14159274f, "-3.1415927"}, {1e-5f, "1e-05"}};
  uint64_t random = 5;
  serve_text out = {0};
  for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
    out.count = 0;
    serve_text_float(&out, cases[i].value);
    strbuf_add(&out, "", 1);
    assert_string_equal(out.bytes, cases[i].text);
  }
  for (uint32_t i = 0; i < 100000; i++) {
    uint32_t bits = (uint32_t)random_next(&random);
    char shorter[32];
    float value;
    memcpy(&value, &bits, sizeof value);
    if (!isfinite(value)) continue;
    out.count = 0;
    serve_text_float(&out, value);
    strbuf_add(&out, "", 1);
    assert_true(strtof(out.bytes, NULL) == value);
    size_t digits = 0, zeros = 0; /* significant ones; the last of them that are 0 */
    for (const char *c = out.bytes; *c && *c != 'e'; c++) {
      digits += *c >= '0' && *c <= '9' && (digits || *c != '0');
      zeros = *c == '0' ? zeros + 1 : *c == '.' ? zeros : 0;
    }
    digits -= zeros < digits ? zeros : digits;
    if (digits < 3) continue;
    snprintf(shorter, sizeof shorter, "%.*e", (int)digits - 2, (double)value);
    assert_true(strtof(shorter, NULL) != value);
  }
  strbuf_close(&out);
}

static void strings_are_json(void **state) {
  (void)state;
  serve_text out = {0};
  serve_text_string(&out, "a\"\\\n\t\x01\x7f\0\xc3\xa9\xf0\x9f\x99\x82\xff\xc3", 16);
  strbuf_add(&out, "", 1);
  assert_string_equal(out.bytes, "\"a\\\"\\\\\\n\\t\\u0001\\u007f\\u0000\xc3\xa9\xf0\x9f\x99\x82\xef\xbf\xbd\xef\xbf\xbd\"");
  strbuf_close(&out);
}

static void faults_have_openais_shape(void **state) {
  (void)state;
  serve_text out = {0};
  serve_reply_fault(&(serve_fault){.type = "t", .code = "c", .message = "a \"b\""}, &out);
  strbuf_add(&out, "", 1);
  assert_string_equal(out.bytes, "{\"error\":{\"message\":\"a \\\"b\\\"\",\"type\":\"t\",\"param\":null,\"code\":\"c\"}}");
  strbuf_close(&out);
}

/* === One reply, to the byte ================================================================================================= */

/* The given tokens, each with the one likeliest token given next to it. */
static void make(serve_request *request, const verbatim_token *tokens, const verbatim_alternative *top, uint32_t count,
                 enum verbatim_finish finish) {
  verbatim_request *r = &request->choices[0].engine_request;
  uint32_t scored = r->score ? r->prompt_count - 1 : 0;
  request_start(&fixture.requests, r);
  for (uint32_t i = 0; i < scored + count; i++) {
    *(i < scored ? &r->scores[i] : &r->tokens[i - scored]) = tokens[i];
    for (uint32_t k = 0; k < r->top_logprobs; k++) r->alternatives[i * r->top_logprobs + k] = top[i * r->top_logprobs + k];
  }
  r->score_count = scored;
  r->token_count = count;
  r->finish = finish;
  serve_request_finished(&request->choices[0]);
}

static const char GOLDEN[] =
  "{\"id\":\"cmpl-7\",\"object\":\"text_completion\",\"created\":1700000000,\"model\":\"tiny\",\"system_fingerprint\":\"vb-01-03\","
  "\"choices\":["
  "{\"index\":0,\"text\":\"add\xe4\xb8\x96 day\",\"logprobs\":{\"text_offset\":[0,0,3,3,3,4],"
  "\"token_logprobs\":[null,-0.5,-1.25,-0.25,-2.000000238418579,"
  "-0.125],\"tokens\":[\"<\xef\xbd\x9c" "begin\xe2\x96\x81of\xe2\x96\x81sentence\xef\xbd\x9c>\",\"add\",\"bytes:\\\\xe4\","
                                        "\"bytes:\\\\xb8\","
  "\"bytes:\\\\x96\",\" days\"],\"top_logprobs\":[null,{\"add\":-0.5},{\"copy\":-1.0,\"bytes:\\\\xe4\":-1.25},{\"bytes:\\\\xb8\":-0.25},"
  "{\"sort\":-2.0,\"bytes:\\\\x96\":-2.000000238418579},{\" days\":-0.125}]},\"finish_reason\":\"stop\",\"stop_reason\":\"s\","
  "\"token_ids\":[%d,%d,%d,266],"
  "\"prompt_token_ids\":[0,283]}],\"usage\":{\"prompt_tokens\":2,\"completion_tokens\":4,\"total_tokens\":6},\"verbatim\":{"
  "\"numerics_id\":\"01000000000000000000000000000000\",\"plan\":\"03000000000000000000000000000000\","
  "\"weights\":\"02000000000000000000000000000000\",\"tokenizer\":\"%s\",\"ignored\":[\"user\"],\"choices\":[{\"index\":0,"
  "\"request\":\"%s\","
  "\"chain\":\"%s\"}]}}";

static void a_reply_to_the_byte(void **state) {
  (void)state;
  int32_t world[8];
  size_t count = 0;
  char expected[4096], tokenizer_text[DIGEST_TEXT_BYTES], request_text[DIGEST_TEXT_BYTES];
  assert_int_equal(tokenizer_encode(fixture.tokenizer, "\xe4\xb8\x96", 3, false, false, world, 8, &count), OK);
  assert_int_equal(count, 3); /* a token for each byte */
  serve_request *request = serve_fixture_ask(&fixture, SERVE_COMPLETION,
                                     "{\"prompt\":\"add\",\"echo\":true,\"logprobs\":1,\"max_tokens\":5,\"stop\":[\"x\","
                                     "\"s\"],\"return_token_ids\":true,\"user\":\"u\"}");
  verbatim_request *r = &request->choices[0].engine_request;
  const verbatim_token tokens[] = {{.id = 283, .logprob = -0.5f}, {.id = world[0], .logprob = -1.25f, .rank = 1},
                                   {.id = world[1], .logprob = -0.25f}, {.id = world[2], .logprob = -2, .rank = 1}, /* a tie, lost */
                                   {.id = 266, .logprob = -0.125f}};
  const verbatim_alternative top[] = {{283, -0.5f}, {300, -1}, {world[1], -0.25f}, {306, -2}, {266, -0.125f}};
  make(request, tokens, top, 4, VERBATIM_STOP_TEXT);
  r->stop_index = 1;
  r->text_bytes = 7;
  serve_text out = {0};
  serve_fault fault;
  assert_true(serve_reply_whole(&fixture.model, request, &out, &fault));
  strbuf_add(&out, "", 1);
  digest_text(r->request_digest, request_text);
  snprintf(expected, sizeof expected, GOLDEN, world[0], world[1], world[2], digest_text(fixture.info.tokenizer_digest, tokenizer_text),
           request_text, request_text);
  assert_string_equal(out.bytes, expected);
  strbuf_close(&out);
  serve_request_close(request);
}

static const char PARAMS[] =
  "{\"prompt_tokens\":2,\"max_tokens\":16,\"score_from\":0,\"alternatives\":0,\"temperature\":1.0,\"top_k\":0,\"top_p\":1.0,\"min_p\":0.0,"
  "\"repetition_penalty\":1.0,\"presence_penalty\":0.0,\"frequency_penalty\":0.0,\"seed\":0,\"sample_index\":0,\"ignore_eos\":false,"
  "\"stop_token_ids\":[1],\"stop\":[],\"logit_bias\":{},\"allowed_token_ids\":null,\"verbatim_require\":[],\"deadline_seconds\":0.0,"
  "\"n\":1,"
  "\"logprobs\":null,\"prompt_logprobs\":null,\"echo\":false,\"add_special_tokens\":true,\"skip_special_tokens\":true,"
  "\"include_stop_str_in_output\":false,\"return_token_ids\":false,\"return_tokens_as_token_ids\":false,\"return_receipt\":false}";
static const char FULL_PARAMS[] =
  "{\"prompt_tokens\":2,\"max_tokens\":3,\"score_from\":1,\"alternatives\":5,\"temperature\":0.7,\"top_k\":4,\"top_p\":0.9,\"min_p\":0.01,"
  "\"repetition_penalty\":1.1,\"presence_penalty\":-0.5,\"frequency_penalty\":0.25,\"seed\":\"18446744073709551615\",\"sample_index\":0,"
  "\"ignore_eos\":true,\"stop_token_ids\":[3,17],\"stop\":[\"\\n\"],\"logit_bias\":{\"5\":-1.5},\"allowed_token_ids\":[5,9],"
  "\"verbatim_require\":[\"batch\"],\"deadline_seconds\":1.5,\"n\":1,\"logprobs\":2,\"prompt_logprobs\":5,\"echo\":true,"
  "\"add_special_tokens\":true,\"skip_special_tokens\":true,\"include_stop_str_in_output\":true,\"return_token_ids\":true,"
  "\"return_tokens_as_token_ids\":true,\"return_receipt\":true}";

static void expect_params(const char *fields, const char *expected) {
  char body[1024];
  serve_text text = {0};
  snprintf(body, sizeof body, "{\"prompt\":\"add\",\"return_params\":true%s}", fields);
  json_t *reply = serve_fixture_reply(&fixture, SERVE_COMPLETION, body, &text);
  strbuf_add(&text, "", 1);
  const char *found = strstr(text.bytes, "\"params\":");
  assert_non_null(found);
  if (strncmp(found + 9, expected, strlen(expected)) != 0) fail_msg("expected %s\nfound %.1200s", expected, found + 9);
  strbuf_close(&text);
  json_decref(reply);
}

static void every_parameter_in_force_is_said(void **state) {
  (void)state;
  expect_params("", PARAMS);
  expect_params(",\"max_tokens\":3,\"temperature\":0.7,\"top_k\":4,\"top_p\":0.9,\"min_p\":0.01,\"repetition_penalty\":1.1,"
                "\"presence_penalty\":-0.5,\"frequency_penalty\":0.25,\"seed\":\"18446744073709551615\",\"ignore_eos\":true,"
                "\"stop_token_ids\":[17,3],\"stop\":\"\\n\",\"logit_bias\":{\"5\":-1.5},\"allowed_token_ids\":[5,9],"
                "\"verbatim_require\":[\"batch\"],"
                "\"deadline_seconds\":1.5,\"logprobs\":2,\"prompt_logprobs\":5,\"echo\":true,\"include_stop_str_in_output\":true,"
                "\"return_token_ids\":true,\"return_tokens_as_token_ids\":true,\"return_receipt\":true", FULL_PARAMS);
}

/* A request made only of the parameters that a reply stated asks for the same: no parameter in force is left unstated. */
static void parameters_said_make_the_same_request(void **state) {
  (void)state;
  static const char *const bodies[] = {
    "{\"prompt\":\"add\",\"return_params\":true}",
    "{\"prompt\":\"add\",\"return_params\":true,\"temperature\":0.3,\"top_k\":5,\"min_p\":0.1,\"seed\":9,\"stop\":[\"q\"],\"logprobs\":3,"
    "\"stop_token_ids\":[8],\"logit_bias\":{\"4\":2},\"frequency_penalty\":0.1,\"echo\":true}"};
  for (size_t i = 0; i < ARRAY_LEN(bodies); i++) {
    json_t *first = serve_fixture_reply(&fixture, SERVE_COMPLETION, bodies[i], NULL);
    json_t *body = json_deep_copy(at(first, "verbatim.choices.0.params"));
    static const char *const said_only[] = {"prompt_tokens", "score_from", "alternatives", "sample_index"};
    for (size_t k = 0; k < ARRAY_LEN(said_only); k++) json_object_del(body, said_only[k]);
    json_object_set_new(body, "ignore_eos", json_true()); /* stop_token_ids has all of them */
    json_object_set_new(body, "prompt", json_string("add"));
    char *text = json_dumps(body, JSON_REAL_PRECISION(17));
    json_t *second = serve_fixture_reply(&fixture, SERVE_COMPLETION, text, NULL);
    assert_string_equal(text_at(first, "verbatim.choices.0.request"), text_at(second, "verbatim.choices.0.request"));
    assert_string_equal(text_at(first, "verbatim.choices.0.chain"), text_at(second, "verbatim.choices.0.chain"));
    free(text);
    json_decref(body);
    json_decref(first);
    json_decref(second);
  }
}

static void receipts_are_the_requests_lines(void **state) {
  (void)state;
  serve_request *request = run_of(SERVE_COMPLETION, "{\"prompt\":[5,6],\"n\":2,\"logprobs\":2,\"return_receipt\":true}");
  json_t *reply = reply_of(request);
  int32_t stops[SERVE_REQUEST_STOPS_MAX];
  for (uint32_t i = 0; i < 2; i++) {
    char path[64], id[2] = {(char)('0' + i), 0}, *line = NULL;
    size_t bytes = 0;
    uint32_t count = request_stop_ids(&fixture.plan, &request->choices[i].engine_request, stops);
    assert_int_equal(receipt_line(id, &request->choices[i].engine_request, stops, count, &line, &bytes), OK);
    snprintf(path, sizeof path, "verbatim.choices.%u.receipt", i);
    char *found = json_dumps(at(reply, path), JSON_COMPACT);
    line[bytes - 1] = 0;
    assert_string_equal(found, line);
    free(found);
    free(line);
  }
  json_decref(reply);
  serve_request_close(request);
}

/* === Endings ================================================================================================================ */

static void endings(void **state) {
  (void)state;
  static const struct { const char *fields; int32_t id; enum verbatim_finish finish; const char *text, *reason, *stop_reason; } cases[] = {
    {"\"max_tokens\":2", 283, VERBATIM_LENGTH, "copyadd", "length", "null"},
    {"\"max_tokens\":3", 1, VERBATIM_STOP, "copy", "stop", "null"},
    {"\"max_tokens\":3,\"stop_token_ids\":[283]", 283, VERBATIM_STOP, "copy", "stop", "283"},
    {"\"max_tokens\":3,\"stop_token_ids\":[1]", 1, VERBATIM_STOP, "copy", "stop", "null"},
    {"\"max_tokens\":3,\"stop_token_ids\":[1],\"ignore_eos\":true", 1, VERBATIM_STOP, "copy", "stop", "1"},
    {"\"max_tokens\":3,\"stop_token_ids\":[283],\"include_stop_str_in_output\":true", 283, VERBATIM_STOP, "copyadd", "stop", "283"},
    {"\"max_tokens\":3,\"include_stop_str_in_output\":true", 1, VERBATIM_STOP, "copy", "stop", "null"},
    {"\"max_tokens\":3,\"stop\":\"ya\"", 283, VERBATIM_STOP_TEXT, "cop", "stop", "\"ya\""},
    {"\"max_tokens\":3,\"stop\":\"ya\",\"include_stop_str_in_output\":true", 283, VERBATIM_STOP_TEXT, "copya", "stop", "\"ya\""}};
  for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
    char body[256];
    snprintf(body, sizeof body, "{\"prompt\":[5,6],%s}", cases[i].fields);
    serve_request *request = serve_fixture_ask(&fixture, SERVE_COMPLETION, body);
    const verbatim_token tokens[] = {{.id = 300}, {.id = cases[i].id}};
    make(request, tokens, NULL, 2, cases[i].finish);
    request->choices[0].engine_request.text_bytes = 3;
    json_t *reply = reply_of(request);
    char *reason = json_dumps(at(reply, "choices.0.stop_reason"), JSON_ENCODE_ANY);
    assert_string_equal(text_at(reply, "choices.0.text"), cases[i].text);
    assert_string_equal(text_at(reply, "choices.0.finish_reason"), cases[i].reason);
    assert_string_equal(reason, cases[i].stop_reason);
    assert_int_equal(number_at(reply, "usage.completion_tokens"), 2); /* all generated tokens */
    free(reason);
    json_decref(reply);
    serve_request_close(request);
  }
}

/* A whole reply and a stream of a choice with that ending. */
static void expect_fault(enum verbatim_finish finish, unsigned http_status, const char *code) {
  for (int is_stream = 0; is_stream < 2; is_stream++) {
    serve_request *request = serve_fixture_ask(&fixture, SERVE_COMPLETION,
                                       is_stream ? "{\"prompt\":[5,6],\"stream\":true}" : "{\"prompt\":[5,6]}");
    const verbatim_token tokens[] = {{.id = 300}};
    serve_text out = {0};
    serve_fault fault = {0};
    bool ended = false;
    make(request, tokens, NULL, 1, finish);
    if (is_stream) {
      serve_reply_stream(&fixture.model, request, &out, &ended);
      strbuf_add(&out, "", 1);
      assert_true(ended && strstr(out.bytes, code) && strstr(out.bytes, "data: [DONE]\n\n") && !strstr(out.bytes, "\"text\""));
    } else {
      assert_false(serve_reply_whole(&fixture.model, request, &out, &fault));
      assert_int_equal(fault.http_status, http_status);
      assert_string_equal(fault.code, code);
      assert_int_equal(out.count, 0);
    }
    strbuf_close(&out);
    serve_request_close(request);
  }
}

static void what_is_no_answer_is_an_error(void **state) {
  (void)state;
  expect_fault(VERBATIM_NONFINITE, 500, "nonfinite_logits");
  expect_fault(VERBATIM_DEADLINE, 504, "deadline_exceeded");
  expect_fault(VERBATIM_CANCELLED, 503, "cancelled");
  serve_request *request = serve_fixture_ask(&fixture, SERVE_COMPLETION, "{\"prompt\":[5,6]}");
  serve_text out = {0};
  serve_fault fault;
  serve_request_fail(request, &(serve_fault){.http_status = 429, .code = "busy"});
  assert_false(serve_reply_whole(&fixture.model, request, &out, &fault));
  assert_int_equal(fault.http_status, 429);
  serve_request_close(request);
}

static void usage_counts_a_prompt_once(void **state) {
  (void)state;
  json_t *reply = serve_fixture_reply(&fixture, SERVE_COMPLETION,
                                      "{\"prompt\":[[5,6,7],[8,9]],\"n\":3,\"max_tokens\":4,\"ignore_eos\":true}", NULL);
  assert_true(number_at(reply, "usage.prompt_tokens") == 5 && number_at(reply, "usage.completion_tokens") == 24 &&
              number_at(reply, "usage.total_tokens") == 29);
  json_decref(reply);
  reply = serve_fixture_reply(&fixture, SERVE_COMPLETION, "{\"prompt\":[[5,6,7]],\"max_tokens\":0,\"echo\":true,\"logprobs\":1}", NULL);
  assert_true(number_at(reply, "usage.prompt_tokens") == 3 && number_at(reply, "usage.completion_tokens") == 0 &&
              number_at(reply, "usage.total_tokens") == 3);
  assert_int_equal(json_array_size(at(reply, "choices.0.logprobs.tokens")), 3);
  json_decref(reply);
}

/* === Log-probabilities ====================================================================================================== */

static double largest(const json_t *top) {
  const char *key;
  const json_t *value;
  double most = -INFINITY;
  json_object_foreach((json_t *)(uintptr_t)top, key, value) most = fmax(most, json_real_value(value));
  return most;
}

/* As lm-evaluation-harness reads it: a token is greedy if it has the largest number of its place. */
static void check_places(const verbatim_request *r, const json_t *logprobs, uint32_t shown) {
  const json_t *numbers = at(logprobs, "token_logprobs"), *tops = at(logprobs, "top_logprobs");
  assert_int_equal(json_array_size(numbers), r->prompt_count + r->token_count);
  assert_int_equal(json_array_size(tops), json_array_size(numbers));
  assert_int_equal(json_array_size(at(logprobs, "tokens")), json_array_size(numbers));
  assert_true(json_is_null(json_array_get(numbers, 0)) && json_is_null(json_array_get(tops, 0)));
  for (uint32_t i = 1; i < json_array_size(numbers); i++) {
    const verbatim_token *token = i < r->prompt_count ? &r->scores[i - 1] : &r->tokens[i - r->prompt_count];
    const json_t *top = json_array_get(tops, i);
    double number = json_real_value(json_array_get(numbers, i));
    if ((number == largest(top)) != (token->rank == 0)) fail_msg("place %u, rank %u: %.17g", i, token->rank, number);
    assert_int_equal(json_object_size(top), shown + (token->rank >= shown));
    float stored = token->logprob, printed = (float)number;
    assert_true(printed == stored || (token->rank && printed == nextafterf(stored, -INFINITY)));
    const char *key;
    const json_t *value;
    bool is_there = false;
    json_object_foreach((json_t *)(uintptr_t)top, key, value) is_there |= json_real_value(value) == number;
    assert_true(is_there);
  }
}

static void greedy_is_exactly_rank_0(void **state) {
  (void)state;
  uint32_t ties = 0;
  for (uint64_t i = 0; i < TRIALS; i++) {
    static const char *const bodies[] = {"{\"prompt\":[0,5,6,283,7,9],\"echo\":true,\"logprobs\":1,\"max_tokens\":1}",
                                         "{\"prompt\":[0,5,6,283,7,9],\"echo\":true,\"logprobs\":5,\"max_tokens\":9}"};
    fixture.seed = i;
    serve_request *request = run_of(SERVE_COMPLETION, bodies[i % 2]);
    json_t *reply = reply_of(request);
    const verbatim_request *r = &request->choices[0].engine_request;
    for (uint32_t k = 0; k < r->score_count; k++)
      ties += r->scores[k].rank && r->scores[k].logprob == r->alternatives[k * r->top_logprobs].logprob;
    check_places(r, at(reply, "choices.0.logprobs"), i % 2 ? 5 : 1);
    json_decref(reply);
    serve_request_close(request);
  }
  assert_true(ties > 20); /* there were differences to notice */
}

/* lm-evaluation-harness drops the last place of the lists: it must be that of the one generated token, whichever it is. */
static void a_token_that_ends_the_request_has_its_place(void **state) {
  (void)state;
  for (uint32_t count = 1; count <= 2; count++) {
    serve_request *request =
        serve_fixture_ask(&fixture, SERVE_COMPLETION, "{\"prompt\":[0,5],\"echo\":true,\"logprobs\":1,\"max_tokens\":2}");
    const verbatim_token tokens[] = {{.id = 5, .logprob = -1}, {.id = count == 1 ? 1 : 9, .logprob = -2}, {.id = 1, .logprob = -3}};
    const verbatim_alternative top[] = {{5, -1}, {count == 1 ? 1 : 9, -2}, {1, -3}};
    make(request, tokens, top, count, VERBATIM_STOP);
    json_t *reply = reply_of(request);
    const json_t *logprobs = at(reply, "choices.0.logprobs");
    check_places(&request->choices[0].engine_request, logprobs, 1);
    assert_string_equal(json_string_value(json_array_get(at(logprobs, "tokens"), 1 + count)),
                        "<\xef\xbd\x9c" "end\xe2\x96\x81of\xe2\x96\x81sentence\xef\xbd\x9c>");
    assert_string_equal(text_at(reply, "choices.0.text"), count == 1 ? "#" : "#'");
    json_decref(reply);
    serve_request_close(request);
  }
}

static void names_of_one_text_are_told_apart(void **state) {
  (void)state;
  const verbatim_alternative top[] = {{283, -1}, {700, -2}, {900, -3}};
  const verbatim_token token = {.id = 901, .logprob = -4, .rank = 9};
  const serve_token one = {.token = &token, .top = top, .known = 3, .shown = 3};
  serve_text out = {0};
  serve_tokens_dictionary(fixture.tokenizer, &one, true, &out); /* 900 and 901 are no tokens */
  strbuf_add(&out, "", 1);
  assert_string_equal(out.bytes, "{\"token_id:283\":-1.0,\"token_id:700\":-2.0,\"token_id:900\":-3.0,\"token_id:901\":-4.0}");
  strbuf_close(&out);
  json_t *tree = json_load_file("tests/tiny/tokenizer.json", 0, NULL), *twin = json_deep_copy(at(tree, "added_tokens.0"));
  json_object_set_new(twin, "id", json_integer(768));
  json_object_set_new(twin, "content", json_string(" days")); /* like 266 */
  json_array_append_new(json_object_get(tree, "added_tokens"), twin);
  char *json = json_dumps(tree, 0);
  tokenizer *twins = NULL;
  fail_clear();
  if (tokenizer_open_memory(&twins, json, strlen(json), NULL, 0) != OK) fail_msg("%s", fail_text());
  free(json);
  json_decref(tree);
  const verbatim_alternative both[] = {{768, -1}, {283, -2}};
  const verbatim_token less = {.id = 266, .logprob = -3, .rank = 2};
  const serve_token same = {.token = &less, .top = both, .known = 2, .shown = 2};
  serve_text text = {0};
  serve_tokens_dictionary(twins, &same, false, &text);
  strbuf_add(&text, "", 1);
  assert_string_equal(text.bytes, "{\" days\":-1.0,\"add\":-2.0,\"token_id:266\":-3.0}");
  strbuf_close(&text);
  tokenizer_close(twins);
}

/* Where the text of a token begins in the text, in code points. */
static void offsets_are_in_the_text(void **state) {
  (void)state;
  uint32_t looked_at = 0;
  for (uint64_t i = 0; i < TRIALS; i++) {
    fixture.seed = i;
    serve_request *request = run_of(SERVE_COMPLETION,
                                "{\"prompt\":\"d\\u00e9 \\ud83d\\ude42 x\",\"echo\":true,\"logprobs\":1,\"max_tokens\":40}");
    json_t *reply = reply_of(request);
    const char *text = text_at(reply, "choices.0.text");
    size_t bytes = json_string_length(at(reply, "choices.0.text"));
    const json_t *offsets = at(reply, "choices.0.logprobs.text_offset"), *tokens = at(reply, "choices.0.logprobs.tokens");
    for (size_t k = 0; k < json_array_size(offsets); k++) {
      const json_t *name = json_array_get(tokens, k);
      size_t from = 0, left = (size_t)json_integer_value(json_array_get(offsets, k));
      for (; left && from < bytes; left--) from += (size_t)utf8_scan((const uint8_t *)text + from, bytes - from);
      assert_int_equal(left, 0);
      const verbatim_request *r = &request->choices[0].engine_request;
      int32_t id = k < r->prompt_count ? r->prompt[k] : r->tokens[k - r->prompt_count].id;
      bool is_text = !tokenizer_is_special(fixture.tokenizer, id) && strncmp(json_string_value(name), "bytes:", 6) != 0;
      bool is_cut = from < bytes && memcmp(text + from, "\xef\xbf\xbd", 3 < bytes - from ? 3 : bytes - from) == 0;
      if (!is_text || is_cut) continue; /* a character that was never completed precedes it */
      assert_memory_equal(text + from, json_string_value(name), json_string_length(name));
      looked_at++;
    }
    json_decref(reply);
    serve_request_close(request);
  }
  assert_true(looked_at > 20 * TRIALS / 2);
}

static void text_is_the_transcripts(void **state) {
  (void)state;
  for (uint64_t i = 0; i < TRIALS; i++) {
    fixture.seed = i;
    serve_request *request = run_of(SERVE_COMPLETION,
                                    "{\"prompt\":[5,6],\"max_tokens\":60,\"stop\":[\"\\u754c\",\"wor\",\"\\ufffd\\ufffd\"]}");
    json_t *reply = reply_of(request);
    char *text = NULL;
    size_t bytes = 0;
    assert_int_equal(transcript_text(fixture.tokenizer, &request->choices[0].engine_request, &text, &bytes), OK);
    assert_int_equal(json_string_length(at(reply, "choices.0.text")), bytes);
    assert_memory_equal(text_at(reply, "choices.0.text"), text, bytes);
    free(text);
    json_decref(reply);
    serve_request_close(request);
  }
}

static void prompt_logprobs_have_ids_and_ranks(void **state) {
  (void)state;
  serve_request *request = run_of(SERVE_COMPLETION, "{\"prompt\":[0,5,6,283],\"prompt_logprobs\":2,\"max_tokens\":1}");
  json_t *reply = reply_of(request);
  const verbatim_request *r = &request->choices[0].engine_request;
  const json_t *list = at(reply, "choices.0.prompt_logprobs");
  assert_int_equal(json_array_size(list), 4);
  assert_true(json_is_null(json_array_get(list, 0)) && json_is_null(at(reply, "choices.0.logprobs")));
  for (uint32_t i = 0; i < 3; i++) {
    char key[16];
    snprintf(key, sizeof key, "%d", r->scores[i].id);
    const json_t *entry = at(json_array_get(list, i + 1), key);
    assert_int_equal(number_at(entry, "rank"), r->scores[i].rank + 1);
    assert_int_equal(json_object_size(json_array_get(list, i + 1)), 2 + (r->scores[i].rank > 1));
    assert_non_null(text_at(entry, "decoded_token"));
  }
  json_decref(reply);
  serve_request_close(request);
}

static void a_chats_reply(void **state) {
  (void)state;
  serve_request *request = run_of(SERVE_CHAT, "{\"model\":\"tiny\",\"messages\":[{\"role\":\"user\",\"content\":\"add\"}],"
                                              "\"logprobs\":true,"
                                      "\"top_logprobs\":2,"
                          "\"max_completion_tokens\":5,\"return_token_ids\":true}");
  json_t *reply = reply_of(request);
  const verbatim_request *r = &request->choices[0].engine_request;
  assert_string_equal(text_at(reply, "object"), "chat.completion");
  assert_string_equal(text_at(reply, "choices.0.message.role"), "assistant");
  assert_non_null(text_at(reply, "choices.0.message.content"));
  const json_t *content = at(reply, "choices.0.logprobs.content");
  assert_int_equal(json_array_size(content), r->token_count);
  for (uint32_t i = 0; i < r->token_count; i++) {
    size_t bytes = 0;
    const uint8_t *token = tokenizer_token_bytes(fixture.tokenizer, r->tokens[i].id, &bytes);
    const json_t *entry = json_array_get(content, i);
    assert_int_equal(json_array_size(at(entry, "bytes")), bytes);
    for (size_t k = 0; k < bytes; k++) assert_int_equal(json_integer_value(json_array_get(at(entry, "bytes"), k)), token[k]);
    assert_int_equal(json_array_size(at(entry, "top_logprobs")), 2);
    double number = json_real_value(at(entry, "logprob")), first = json_real_value(at(entry, "top_logprobs.0.logprob"));
    assert_true((number == first) == (r->tokens[i].rank == 0));
  }
  assert_int_equal(json_array_size(at(reply, "prompt_token_ids")), r->prompt_count);
  json_decref(reply);
  serve_request_close(request);
}

/* Also texts that no person writes: single bytes, with characters that must be escaped. */
static void replies_are_within_what_was_said(void **state) {
  (void)state;
  static const char *const fields[] = {
    "\"n\":3", "\"echo\":true,\"logprobs\":1", "\"logprobs\":20,\"echo\":true,\"prompt_logprobs\":20,\"return_receipt\":true",
    "\"logprobs\":0,\"return_params\":true,\"return_receipt\":true,\"return_token_ids\":true,\"logit_bias\":{\"5\":-1.2345678,\"6\":7}",
    "\"prompt_logprobs\":0,\"return_tokens_as_token_ids\":true", "\"return_params\":true,\"stop\":[\"abc\",\"\\n\\n\"],\"max_tokens\":1"};
  for (uint64_t i = 0; i < TRIALS; i++) {
    char body[512];
    bool is_chat = i % 2;
    fixture.seed = i;
    if (is_chat)
      snprintf(body, sizeof body, "{\"messages\":[{\"role\":\"user\",\"content\":\"add\"}],\"logprobs\":true,\"top_logprobs\":%u,"
               "\"prompt_logprobs\":2,\"return_receipt\":true,\"max_tokens\":%u}", (unsigned)i % 21, 1 + (unsigned)i % 70);
    else
      snprintf(body, sizeof body, "{\"prompt\":[0,5,6,7,283,300],\"ignore_eos\":true,%s}", fields[i / 2 % ARRAY_LEN(fields)]);
    serve_request *request = run_of(is_chat ? SERVE_CHAT : SERVE_COMPLETION, body);
    serve_text out = {0};
    serve_fault fault;
    assert_true(serve_reply_whole(&fixture.model, request, &out, &fault));
    if (out.count > request->reply_bytes)
      fail_msg("%s: %zu bytes, %llu were said", body, out.count, (unsigned long long)request->reply_bytes);
    assert_true(request->reply_bytes < request->bytes);
    strbuf_close(&out);
    serve_request_close(request);
  }
}

/* === The same bytes ========================================================================================================= */

static void equal_requests_have_equal_bytes(void **state) {
  (void)state;
  serve_text first = {0}, second = {0};
  const char *body = "{\"prompt\":[\"add\",\"copy\"],\"n\":2,\"logprobs\":3,\"echo\":true,\"return_params\":true,\"return_receipt\":true}";
  const char *again = "{\"return_receipt\":true,\"n\":2,\"prompt\":[\"add\",\"copy\"],\"temperature\":1.0,\"return_params\":true,"
                      "\"echo\":true,"
                      "\"logprobs\":3,\"request_id\":\"other-one\"}";
  fixture.seed = 3;
  json_decref(serve_fixture_reply(&fixture, SERVE_COMPLETION, body, &first));
  fixture.model.created++;
  json_decref(serve_fixture_reply(&fixture, SERVE_COMPLETION, again, &second));
  fixture.model.created--;
  strbuf_add(&first, "", 1);
  strbuf_add(&second, "", 1);
  assert_string_not_equal(first.bytes, second.bytes);
  assert_string_equal(strstr(first.bytes, "\"model\""), strstr(second.bytes, "\"model\"")); /* id and created come before it */
  strbuf_close(&first);
  strbuf_close(&second);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(floats_read_back_and_are_shortest), cmocka_unit_test(strings_are_json),
    cmocka_unit_test(faults_have_openais_shape), cmocka_unit_test(a_reply_to_the_byte),
    cmocka_unit_test(every_parameter_in_force_is_said), cmocka_unit_test(parameters_said_make_the_same_request),
    cmocka_unit_test(receipts_are_the_requests_lines), cmocka_unit_test(endings), cmocka_unit_test(what_is_no_answer_is_an_error),
    cmocka_unit_test(usage_counts_a_prompt_once), cmocka_unit_test(greedy_is_exactly_rank_0),
    cmocka_unit_test(a_token_that_ends_the_request_has_its_place), cmocka_unit_test(names_of_one_text_are_told_apart),
    cmocka_unit_test(offsets_are_in_the_text), cmocka_unit_test(text_is_the_transcripts),
    cmocka_unit_test(prompt_logprobs_have_ids_and_ranks), cmocka_unit_test(a_chats_reply),
    cmocka_unit_test(replies_are_within_what_was_said), cmocka_unit_test(equal_requests_have_equal_bytes)};
  serve_fixture_open(&fixture);
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  serve_fixture_close(&fixture);
  return failed;
}

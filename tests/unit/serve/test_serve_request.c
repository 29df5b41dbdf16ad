/* test_serve_request.c - request bodies for completions and chat: how each field is read, refused and passed to the engine. */
#include "tests/unit/unit.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "serve_fixture.h"

static serve_fixture fixture;

static serve_request *completion(const char *body) { return serve_fixture_ask(&fixture, SERVE_COMPLETION, body); }
static serve_request *chat_of(const char *body) { return serve_fixture_ask(&fixture, SERVE_CHAT, body); }

/* A body of the fields, with a prompt of three tokens. */
static serve_request *with(const char *fields) {
  char body[4096];
  snprintf(body, sizeof body, "{\"prompt\":[5,6,7]%s%s}", *fields ? "," : "", fields);
  return completion(body);
}

static void expect_refused(enum serve_kind kind, const char *body, const char *param, const char *code, const char *word) {
  serve_fault fault = serve_fixture_refused(&fixture, kind, body);
  bool is_good = (fault.http_status == 400 || strcmp(code, "model_not_found") == 0) && strcmp(fault.type, "invalid_request_error") == 0;
  if (!is_good || strcmp(fault.param, param) != 0 || strcmp(fault.code, code) != 0 || !strstr(fault.message, word))
    fail_msg("%s: found %u \"%s\" \"%s\": %s", body, fault.http_status, fault.param, fault.code, fault.message);
}

/* The fault names the field or something inside it. */
static void expect_refused_in(enum serve_kind kind, const char *body, const char *field, const char *code, const char *word) {
  serve_fault fault = serve_fixture_refused(&fixture, kind, body);
  size_t bytes = strlen(field);
  bool is_inside = strncmp(fault.param, field, bytes) == 0 && (!fault.param[bytes] || strchr("[.", fault.param[bytes]));
  if (!is_inside || strcmp(fault.code, code) != 0 || !strstr(fault.message, word))
    fail_msg("%s: found \"%s\" \"%s\": %s", body, fault.param, fault.code, fault.message);
}

static void refuses(const char *fields, const char *param, const char *code, const char *word) {
  char body[4096];
  snprintf(body, sizeof body, "{\"prompt\":[5,6,7],%s}", fields);
  expect_refused(SERVE_COMPLETION, body, param, code, word);
}

/* What the model's makers recommend stands where a body says nothing, or null. */
static void defaults_of_the_model(void **state) {
  (void)state;
  json_t *defaults = json_pack("{s:f, s:i, s:f, s:i, s:[i,i]}", "temperature", 0.5, "top_k", 7, "repetition_penalty", 1.25, "max_tokens",
                               21, "stop_token_ids", 9, 3);
  fixture.model.defaults = defaults;
  serve_request *request = with("\"top_k\":9,\"temperature\":null");
  const verbatim_request *r = &request->choices[0].engine_request;
  assert_true(r->temperature == 0.5f && r->top_k == 9 && r->repetition_penalty == 1.25f && r->top_p == 1);
  serve_request_close(request);
  request = chat_of("{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"temperature\":0}");
  r = &request->choices[0].engine_request;
  assert_true(r->temperature == 0 && r->top_k == 7);
  assert_true(r->max_tokens == 21 && r->stop_count == 2 && r->stop_ids[0] == 9 && r->stop_ids[1] == 3);
  serve_request_close(request);
  request = with("\"stop_token_ids\":[5,3],\"max_tokens\":30"); /* its own and the model's */
  r = &request->choices[0].engine_request;
  assert_true(r->max_tokens == 30 && r->stop_count == 3 && r->stop_ids[0] == 5 && r->stop_ids[1] == 3 && r->stop_ids[2] == 9);
  serve_request_close(request);
  request = with("\"stop_token_ids\":[5],\"ignore_eos\":true");
  assert_true(request->choices[0].engine_request.stop_count == 1 && request->choices[0].engine_request.max_tokens == 21);
  serve_request_close(request);
  json_object_set_new(defaults, "max_tokens", json_integer(UINT32_MAX)); /* ends where the context does */
  request = with("");
  assert_true(request->choices[0].engine_request.max_tokens == SERVE_FIXTURE_LEN - request->prompts[0].count);
  serve_request_close(request);
  fixture.model.defaults = NULL;
  json_decref(defaults);
  request = with("");
  assert_true(request->choices[0].engine_request.temperature == 1 && request->choices[0].engine_request.top_k == 0);
  serve_request_close(request);
}

/* === Prompts ================================================================================================================ */

static void prompts_of_every_form(void **state) {
  (void)state;
  serve_request *request = completion("{\"prompt\":\"add\"}");
  assert_int_equal(request->choice_count, 1);
  assert_int_equal(request->choices[0].engine_request.prompt_count, 2);
  assert_int_equal(request->choices[0].engine_request.prompt[0], 0); /* BOS */
  assert_int_equal(request->choices[0].engine_request.prompt[1], 283);
  serve_request_close(request);
  request = completion("{\"prompt\":[\"add\",\"copy\"],\"n\":3,\"add_special_tokens\":false}");
  assert_int_equal(request->choice_count, 6);
  for (uint32_t i = 0; i < 6; i++) {
    const verbatim_request *r = &request->choices[i].engine_request;
    assert_true(r->prompt_count == 1 && r->prompt[0] == (i < 3 ? 283 : 300) && r->sample_index == i % 3 &&
                r->context == &request->choices[i]);
  }
  serve_request_close(request);
  request = completion("{\"prompt\":[9,8,7]}");
  assert_true(request->choice_count == 1 && request->choices[0].engine_request.prompt_count == 3 &&
              request->choices[0].engine_request.prompt[2] == 7);
  serve_request_close(request);
  request = completion("{\"prompt\":[[9,8],[7]]}");
  assert_true(request->choice_count == 2 && request->choices[1].engine_request.prompt_count == 1 &&
              request->choices[1].engine_request.prompt[0] == 7);
  serve_request_close(request);
  request = completion("{\"prompt\":\"<\xef\xbd\x9c" "end\xe2\x96\x81of\xe2\x96\x81sentence\xef\xbd\x9c>\",\"add_special_tokens\":false}");
  assert_true(request->choices[0].engine_request.prompt_count == 1 && request->choices[0].engine_request.prompt[0] == 1); /* as spelled */
  serve_request_close(request);
  request = completion("{\"prompt\":\"<\xef\xbd\x9c" "begin\xe2\x96\x81of\xe2\x96\x81sentence\xef\xbd\x9c>add\"}");
  assert_true(request->choices[0].engine_request.prompt_count == 2 && request->choices[0].engine_request.prompt[1] == 283); /* one BOS */
  serve_request_close(request);
}

/* Neither the prompt's place in the list nor its neighbours are part of a request. */
static void a_prompt_in_a_list_is_the_prompt_alone(void **state) {
  (void)state;
  serve_request *all = completion("{\"prompt\":[\"add\",\"copy\"],\"n\":2,\"seed\":9}"), *alone = completion("{\"prompt\":\"copy\",\"n\":2,"
                                                                                                         "\"seed\":9}");
  serve_fixture_submit(&fixture, all);
  serve_fixture_submit(&fixture, alone);
  for (uint32_t i = 0; i < 2; i++)
    assert_memory_equal(all->choices[2 + i].engine_request.request_digest, alone->choices[i].engine_request.request_digest, 16);
  assert_memory_not_equal(alone->choices[0].engine_request.request_digest, alone->choices[1].engine_request.request_digest, 16);
  free(all->owner);
  free(alone->owner);
  serve_request_close(all);
  serve_request_close(alone);
}

static void prompts_that_are_none(void **state) {
  (void)state;
  static const struct { const char *body, *code, *word; } cases[] = {
    {"{}", "missing_required_parameter", "prompt"}, {"{\"prompt\":null}", "missing_required_parameter", "prompt"},
    {"{\"prompt\":7}", "invalid_value", "of one kind"}, {"{\"prompt\":{}}", "invalid_value", "of one kind"},
    {"{\"prompt\":[]}", "invalid_value", "at least one"}, {"{\"prompt\":[[]]}", "invalid_value", "at least one token"},
    {"{\"prompt\":\"\",\"add_special_tokens\":false}", "invalid_value", "at least one token"},
    {"{\"prompt\":[\"a\",[1]]}", "invalid_value", "of one kind"}, {"{\"prompt\":[[1],\"a\"]}", "invalid_value", "of one kind"},
    {"{\"prompt\":[1,\"a\"]}", "invalid_value", "token ids"}, {"{\"prompt\":[[1],2]}", "invalid_value", "of one kind"},
    {"{\"prompt\":[768]}", "invalid_value", "0 to 767"}, {"{\"prompt\":[-1]}", "invalid_value", "0 to 767"},
    {"{\"prompt\":[1.5]}", "invalid_value", "0 to 767"}, {"{\"prompt\":[null]}", "invalid_value", "of one kind"},
    {"{\"prompt\":[9223372036854775807]}", "invalid_value", "0 to 767"},
    {"{\"prompt\":[1],\"n\":65}", "too_many_choices", "64 choices"}};
  for (size_t i = 0; i < ARRAY_LEN(cases); i++)
    expect_refused_in(SERVE_COMPLETION, cases[i].body, "prompt", cases[i].code, cases[i].word);
}

static void bodies_that_are_none(void **state) {
  (void)state;
  static const char *const bodies[] = {"", "[", "[]", "7", "{\"a\":1,\"a\":2}", "{\"prompt\":\"\xff\"}", "{\"prompt\":\"a\"} x",
                                       "\xef\xbb\xbf{}"};
  for (size_t i = 0; i < ARRAY_LEN(bodies); i++) expect_refused(SERVE_COMPLETION, bodies[i], "", "invalid_json", "the body");
  expect_refused(SERVE_COMPLETION, "\xef\xbb\xbf{\"prompt\":\"a\"}", "", "invalid_json", "byte order mark (EF BB BF)");
  expect_refused(SERVE_COMPLETION, "\xff\xfe{", "", "invalid_json", "byte order mark of UTF-16");
  char *deep = malloc(100001);
  assert_non_null(deep);
  memset(deep, '[', 100000);
  deep[100000] = 0;
  expect_refused(SERVE_COMPLETION, deep, "", "invalid_json", "the body");
  free(deep);
}

/* === Parameters ============================================================================================================= */

static void defaults_are_what_openai_documents(void **state) {
  (void)state;
  serve_request *request = with("");
  const verbatim_request *r = &request->choices[0].engine_request;
  assert_true(r->max_tokens == 16 && r->temperature == 1 && r->top_k == 0 && r->top_p == 1 && r->min_p == 0 && r->seed == 0);
  assert_true(r->repetition_penalty == 1 && r->presence_penalty == 0 && r->frequency_penalty == 0 && !r->ignore_eos && !r->score);
  assert_true(r->top_logprobs == 0 && !r->stop_count && !r->stop_text_count && !r->bias_count && !r->allowed_count);
  assert_true(r->deadline_seconds == 0 && r->required_count == 0 && !r->on_text && r->on_token && !request->stream);
  assert_string_equal(request->id, "cmpl-7");
  serve_request_close(request);
  char body[2048] = "{\"prompt\":[5";
  for (uint32_t i = 1; i < SERVE_FIXTURE_LEN - 10; i++) strcat(body, ",5");
  strcat(body, "]}");
  request = completion(body);
  assert_int_equal(request->choices[0].engine_request.max_tokens, 10); /* it replaces the default */
  serve_request_close(request);
  request = chat_of("{\"messages\":[{\"role\":\"user\",\"content\":\"add\"}]}");
  assert_int_equal(request->choices[0].engine_request.prompt[0], 0);
  assert_int_equal(request->choices[0].engine_request.max_tokens, SERVE_FIXTURE_LEN - request->choices[0].engine_request.prompt_count);
  assert_string_equal(request->id, "chatcmpl-7");
  serve_request_close(request);
}

static void every_field_reaches_the_engine(void **state) {
  (void)state;
  serve_request *request = with("\"model\":\"tiny\",\"max_tokens\":9,\"n\":2,\"best_of\":2,\"temperature\":0.5,\"top_p\":0.25,\"top_k\":7,"
                        "\"min_p\":0.125,\"seed\":\"18446744073709551615\",\"stop\":[\"a\",\"b\\u0000c\"],\"stop_token_ids\":[17,3],"
                        "\"ignore_eos\":true,"
                        "\"logit_bias\":{\"4\":-1.5,\"0\":2},\"allowed_token_ids\":[4,0],\"presence_penalty\":-2,\"frequency_penalty\":1,"
                        "\"repetition_penalty\":1.5,\"logprobs\":4,\"echo\":true,\"deadline_seconds\":2.5,\"verbatim_require\":[\"batch\"],"
                        "\"request_id\":\"mine:1\",\"stream\":true,\"stream_options\":{\"include_usage\":true},\"user\":\"u\"");
  const verbatim_request *r = &request->choices[1].engine_request;
  assert_true(r->max_tokens == 9 && r->temperature == 0.5f && r->top_p == 0.25 && r->top_k == 7 && r->min_p == 0.125);
  assert_true(r->seed == UINT64_MAX && r->sample_index == 1 && r->ignore_eos && r->stop_count == 2 && r->stop_ids[1] == 3);
  assert_true(r->stop_text_count == 2 && r->stop_texts[1].count == 3 && memcmp(r->stop_texts[1].bytes, "b\0c", 3) == 0);
  assert_true(r->bias_count == 2 && r->biases[0].token == 4 && r->biases[0].bias == -1.5f && r->biases[1].bias == 2);
  assert_true(r->allowed_count == 2 && r->allowed_ids[1] == 0 && r->presence_penalty == -2 && r->frequency_penalty == 1);
  assert_true(r->repetition_penalty == 1.5f && r->top_logprobs == 4 && r->score && r->score_from == 1 && r->deadline_seconds == 2.5);
  assert_true(r->required_count == 1 && strcmp(r->required[0], "batch") == 0 && r->on_text && request->stream &&
              request->fields.include_usage);
  assert_int_equal(json_array_size(request->fields.ignored), 1);
  assert_string_equal(json_string_value(json_array_get(request->fields.ignored, 0)), "user");
  assert_string_equal(request->id, "cmpl-mine:1");
  char name[SERVE_REQUEST_NAME_BYTES];
  assert_string_equal(serve_request_name(&request->choices[1], name), "cmpl-mine:1#1");
  serve_request_close(request);
}

static void null_is_not_given(void **state) {
  (void)state;
  serve_request *plain = with("");
  serve_request *request = with("\"max_tokens\":null,\"temperature\":null,\"stop\":null,\"logprobs\":null,\"nonsense\":null,"
                                           "\"suffix\":null,\"stream_options\":null,\"user\":null");
  assert_memory_equal(&plain->fields, &request->fields, sizeof plain->fields);
  serve_request_close(plain);
  serve_request_close(request);
}

static void neutral_values_are_taken(void **state) {
  (void)state;
  serve_request_close(with("\"suffix\":\"\",\"min_tokens\":0,\"use_beam_search\":false,\"length_penalty\":1,\"skip_special_tokens\":true,"
                       "\"response_format\":{\"type\":\"text\"},\"store\":false,\"priority\":0,\"top_k\":-1,\"temperature\":-0.0,"
                       "\"stop\":[],\"stop_token_ids\":[],\"logit_bias\":{},\"verbatim_require\":[],\"top_logprobs\":0"));
  serve_request_close(chat_of("{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"echo\":false,\"tools\":[],\"tool_choice\":\"auto\","
                          "\"parallel_tool_calls\":false,"
                          "\"modalities\":[\"text\"],\"max_tokens\":3,\"max_completion_tokens\":3,\"top_logprobs\":0}"));
}

static void ranges_are_the_engines(void **state) {
  (void)state;
  static const struct { const char *param, *bad[8]; } cases[] = {
    {"max_tokens", {"-1", "4294967296", "1.5", "\"7\"", "true", "4294967296.0"}}, {"n", {"0", "129", "129.0"}}, {"best_of", {"0", "\"1\""}},
    {"temperature", {"-1", "0.0009", "100.5", "\"0\"", "1e-50", "[]"}}, {"top_p", {"0", "-0.5", "1.0000001", "\"1\""}},
    {"top_k", {"-2", "0.5"}}, {"min_p", {"-1", "1e-31", "1.5"}}, {"repetition_penalty", {"0", "0.06", "16.5"}},
    {"presence_penalty", {"-16.5", "17", "{}"}}, {"frequency_penalty", {"-17", "16.5"}},
    {"seed", {"-1", "1.5", "9007199254740992.0", "\"\"", "\"1x\"", "\"-1\"", "\"18446744073709551616\"", "\" 1\""}},
    {"stop", {"\"\"", "[\"\"]", "[1]", "7", "{}",
              "[\"1\",\"2\",\"3\",\"4\",\"5\",\"6\",\"7\",\"8\",\"9\",\"0\",\"a\",\"b\",\"c\",\"d\",\"e\","
              "\"f\",\"g\"]"}},
    {"stop_token_ids", {"7", "[768]", "[\"a\"]"}}, {"allowed_token_ids", {"[]", "[1,1]", "[768]", "7"}},
    {"logit_bias", {"[]", "{\"a\":1}", "{\"768\":1}", "{\"1\":1001}", "{\"1\":\"1\"}", "{\"01\":1}", "{\"\":1}", "{\"-1\":1}"}},
    {"logprobs", {"-1", "21", "true"}}, {"prompt_logprobs", {"-1", "21"}}, {"echo", {"1", "\"true\""}}, {"ignore_eos", {"0"}},
    {"stream", {"1"}}, {"stream_options", {"[]", "true", "{}"}}, {"request_id", {"\"\"", "\"a b\"", "7", "\"\xc3\xa9\""}},
    {"deadline_seconds", {"-1", "1e10", "\"1\""}}, {"verbatim_require", {"\"batch\"", "[7]", "[\"\"]", "[\"a\\u0000\"]"}},
    {"return_token_ids", {"1"}}, {"return_params", {"1"}}, {"return_receipt", {"\"yes\""}}, {"add_special_tokens", {"1"}}};
  for (size_t i = 0; i < ARRAY_LEN(cases); i++)
    for (size_t k = 0; k < ARRAY_LEN(cases[i].bad) && cases[i].bad[k]; k++) {
      char body[512];
      snprintf(body, sizeof body, "{\"prompt\":[5,6,7],\"%s\":%s}", cases[i].param, cases[i].bad[k]);
      expect_refused_in(SERVE_COMPLETION, body, cases[i].param, "invalid_value", cases[i].param);
    }
}

/* 2.0 is 2, wherever a body has an integer. */
static void an_integer_may_have_a_fraction_of_zero(void **state) {
  (void)state;
  serve_request *request = completion("{\"prompt\":[5.0,6e0,7],\"max_tokens\":9.0,\"n\":2.0,\"best_of\":2.0,\"top_k\":7.0,\"seed\":11.0,"
                                      "\"stop_token_ids\":[17.0],\"allowed_token_ids\":[4.0],\"logprobs\":3.0}");
  const verbatim_request *r = &request->choices[1].engine_request;
  assert_true(r->prompt_count == 3 && r->prompt[0] == 5 && r->prompt[1] == 6 && r->max_tokens == 9 && r->top_k == 7 && r->seed == 11);
  assert_true(r->sample_index == 1 && r->stop_ids[0] == 17 && r->allowed_ids[0] == 4 && r->top_logprobs == 3);
  serve_request_close(request);
  request = with("\"top_k\":-1.0,\"prompt_logprobs\":2.0,\"seed\":9007199254740991.0");
  assert_true(request->fields.top_k == 0 && request->fields.prompt_top == 2 && request->fields.seed == 9007199254740991u);
  serve_request_close(request);
}

static void bounds_are_taken(void **state) {
  (void)state;
  static const char *const fields[] = {
    "\"temperature\":0", "\"temperature\":0.001", "\"temperature\":100", "\"top_p\":1e-300", "\"top_p\":1", "\"min_p\":1e-30",
      "\"min_p\":1",
    "\"repetition_penalty\":0.0625", "\"repetition_penalty\":16", "\"presence_penalty\":-16,\"frequency_penalty\":16", "\"n\":64",
    "\"logit_bias\":{\"0\":-1000,\"767\":1000}", "\"logprobs\":20", "\"logprobs\":0", "\"top_k\":4294967295", "\"max_tokens\":253",
    "\"deadline_seconds\":1000000000", "\"max_tokens\":0,\"echo\":true", "\"max_tokens\":0,\"prompt_logprobs\":20", "\"seed\":0"};
  for (size_t i = 0; i < ARRAY_LEN(fields); i++) {
    serve_request *request = with(fields[i]);
    serve_fixture_submit(&fixture, request); /* the engine's own check */
    free(request->owner);
    serve_request_close(request);
  }
}

/* === What is refused ======================================================================================================== */

static void unknown_fields_are_refused_with_what_may_be_meant(void **state) {
  (void)state;
  refuses("\"max_token\":1", "max_token", "unknown_parameter", "\"max_tokens\"");
  refuses("\"maxTokens\":1", "maxTokens", "unknown_parameter", "\"max_tokens\"");
  refuses("\"max-tokens\":1", "max-tokens", "unknown_parameter", "\"max_tokens\"");
  refuses("\"Temperature\":1", "Temperature", "unknown_parameter", "\"temperature\"");
  refuses("\"tempurature\":1", "tempurature", "unknown_parameter", "\"temperature\"");
  refuses("\"max_new_tokens\":1", "max_new_tokens", "unknown_parameter", "\"max_tokens\"");
  refuses("\"require\":[]", "require", "unknown_parameter", "\"verbatim_require\"");
  refuses("\"qwertyuiop\":1", "qwertyuiop", "unknown_parameter", "SERVING.md");
  refuses("\"messages\":[]", "messages", "unknown_parameter", "chat completions");
  refuses("\"stream\":true,\"stream_options\":{\"usage\":true}", "stream_options.usage", "unknown_parameter",
          "not a field");
  expect_refused(SERVE_CHAT, "{\"messages\":[],\"prompt\":\"a\"}", "prompt", "unknown_parameter", "completions only");
  char body[1024] = "{\"prompt\":[5],\"", *end = body + strlen(body);
  memset(end, 'x', 500);
  strcpy(end + 500, "\":1}");
  serve_fault fault = serve_fixture_refused(&fixture, SERVE_COMPLETION, body);
  assert_string_equal(fault.code, "unknown_parameter");
}

static void lacks_are_said(void **state) {
  (void)state;
  static const char *const fields[] = {
    "\"suffix\":\"x\"", "\"min_tokens\":1", "\"guided_grammar\":\"x\"", "\"cache_salt\":\"x\"",
    "\"use_beam_search\":true", "\"skip_special_tokens\":false", "\"truncate_prompt_tokens\":5", "\"priority\":1", "\"store\":true",
    "\"length_penalty\":1.5", "\"bad_words\":[\"x\"]", "\"best_of\":2", "\"logits_processors\":[\"x\"]",
    "\"prompt_logprobs\":1,\"stream\":true", "\"service_tier\":\"flex\""};
  for (size_t i = 0; i < ARRAY_LEN(fields); i++) {
    char param[64];
    sscanf(fields[i], "\"%63[a-z_]", param);
    refuses(fields[i], param, "unsupported_parameter", "not supported");
  }
  expect_refused(SERVE_CHAT, "{\"messages\":[],\"tool_choice\":\"required\"}", "tool_choice", "invalid_value", "expected tools");
  expect_refused(SERVE_CHAT, "{\"messages\":[],\"tool_choice\":{\"type\":\"function\"}}", "tool_choice", "invalid_value", "expected");
  expect_refused(SERVE_CHAT, "{\"messages\":[],\"reasoning_effort\":\"low\"}", "reasoning_effort", "unsupported_parameter", "not");
}

static void constraints_are_read(void **state) {
  static const struct { const char *field, *param, *code, *reason; } refused[] = {
    {"\"structured_outputs\":{}", "structured_outputs", "invalid_value", "one of choice"},
    {"\"structured_outputs\":{\"grammar\":\"x\"}", "structured_outputs", "unsupported_value", "grammar"},
    {"\"structured_outputs\":{\"regex\":\"(\"}", "structured_outputs", "invalid_value", "byte 1"},
    {"\"guided_json\":{\"type\":\"number\",\"multipleOf\":2}", "guided_json", "unsupported_value", "#/multipleOf"},
    {"\"response_format\":{\"type\":\"json\"}", "response_format", "invalid_value", "json_schema"},
    {"\"guided_regex\":\"a\",\"guided_choice\":[\"a\"]", "guided_choice", "invalid_value", "not several"},
    {"\"guided_regex\":\"a\",\"allowed_token_ids\":[5]", "allowed_token_ids", "invalid_value", "exclude each other"}};
  (void)state;
  for (size_t i = 0; i < ARRAY_LEN(refused); i++) refuses(refused[i].field, refused[i].param, refused[i].code, refused[i].reason);
  fixture.info.constraints = false;
  refuses("\"guided_regex\":\"a\"", "guided_regex", "unsupported_parameter", "structured-outputs: on");
  fixture.info.constraints = true;
  serve_request *request = with("\"n\":2,\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"x\","
                                "\"schema\":{\"type\":\"null\"}}}");
  enum verbatim_constraint_kind kind;
  const verbatim_text text = verbatim_constraint_text(request->choices[1].engine_request.constraint, &kind);
  assert_int_equal(kind, VERBATIM_JSON_SCHEMA);
  assert_int_equal(text.count, strlen("{\"type\":\"null\"}"));
  assert_ptr_equal(request->choices[0].engine_request.constraint, request->choices[1].engine_request.constraint);
  serve_request_close(request);
}

static void expect_ignored(serve_request *request, const char *expected) {
  char *found = request->fields.ignored ? json_dumps(request->fields.ignored, JSON_COMPACT) : NULL;
  assert_string_equal(found ? found : "[]", expected);
  free(found);
  serve_request_close(request);
}

/* Load generators and clients that always send these. */
static void stream_options_are_those_of_vllm_and_openai(void **state) {
  (void)state;
  serve_request *request = with("\"stream\":true,\"stream_options\":{\"include_usage\":true,\"continuous_usage_stats\":true,"
                                "\"include_obfuscation\":false}");
  assert_true(request->fields.include_usage && request->fields.include_running_usage);
  expect_ignored(request, "[]");
  request = with("\"stream\":true,\"stream_options\":{\"continuous_usage_stats\":false,\"include_obfuscation\":null}");
  assert_true(!request->fields.include_usage && !request->fields.include_running_usage);
  expect_ignored(request, "[]");
  request = with("\"stream\":true,\"stream_options\":{\"continuous_usage_stats\":true}");
  assert_false(request->fields.include_running_usage);
  expect_ignored(request, "[\"stream_options.continuous_usage_stats\"]");
  refuses("\"stream\":true,\"stream_options\":{\"include_obfuscation\":true}", "stream_options.include_obfuscation",
          "unsupported_parameter", "leave it out");
  refuses("\"stream\":true,\"stream_options\":{\"continuous_usage_stats\":1}", "stream_options.continuous_usage_stats", "invalid_value",
          "true or false");
}

/* Special tokens have no text in a reply, so that such a stop text never matches; ids do. */
static void stop_texts_that_spell_special_tokens_are_listed(void **state) {
  (void)state;
#define EOS "<\xef\xbd\x9c" "end\xe2\x96\x81of\xe2\x96\x81sentence\xef\xbd\x9c>"
  expect_ignored(with("\"stop\":\"" EOS "\""), "[\"stop\"]");
  expect_ignored(with("\"stop\":[\"\\n\",\"" EOS "\",\"<|im_end|>\",\"a" EOS "\"]"), "[\"stop[1]\",\"stop[3]\"]");
  expect_ignored(with("\"stop\":[\"\\n\"],\"user\":\"u\""), "[\"user\"]");
  serve_request *request = with("\"stop\":\"" EOS "\"");
  assert_int_equal(request->choices[0].engine_request.stop_text_count, 1); /* a model could spell it in letters */
  serve_request_close(request);
#undef EOS
}

static void a_fault_names_the_whole_path(void **state) {
  (void)state;
  static const struct { enum serve_kind kind; const char *body, *path, *code; } cases[] = {
    {SERVE_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\"}]}]}", "messages[0].content[0].type",
     "unsupported_value"},
    {SERVE_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":null}]}", "messages[0].content", "invalid_value"},
    {SERVE_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"a\",\"mood\":1}]}", "messages[0].mood", "unknown_parameter"},
    {SERVE_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"a\",\"name\":\"b\"}]}", "messages[0].name", "unsupported_value"},
    {SERVE_CHAT, "{\"messages\":[{\"role\":\"a: b\",\"content\":\"a\"}]}", "messages[0].role", "invalid_value"},
    {SERVE_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"tools\":[{}]}", "tools", "unsupported_value"},
    {SERVE_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"chat_template_kwargs\":{\"thinking\":true}}",
     "chat_template_kwargs.thinking", "unsupported_value"},
    {SERVE_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"add_generation_prompt\":7}", "add_generation_prompt",
     "invalid_value"},
    {SERVE_COMPLETION, "{\"prompt\":\"a\",\"tools\":[{}]}", "tools", "unknown_parameter"},
    {SERVE_COMPLETION, "{\"prompt\":[[1],[2,768]]}", "prompt[1][1]", "invalid_value"},
    {SERVE_COMPLETION, "{\"prompt\":[1,2,768]}", "prompt[2]", "invalid_value"},
    {SERVE_COMPLETION, "{\"prompt\":[\"a\",7]}", "prompt[1]", "invalid_value"},
    {SERVE_COMPLETION, "{\"prompt\":[[1],[]]}", "prompt[1]", "invalid_value"},
    {SERVE_COMPLETION, "{\"prompt\":\"a\",\"stop\":[\"a\",7]}", "stop[1]", "invalid_value"},
    {SERVE_COMPLETION, "{\"prompt\":\"a\",\"stop_token_ids\":[1,-1]}", "stop_token_ids[1]", "invalid_value"},
    {SERVE_COMPLETION, "{\"prompt\":\"a\",\"logit_bias\":{\"1\":2000}}", "logit_bias.1", "invalid_value"},
    {SERVE_COMPLETION, "{\"prompt\":\"a\",\"verbatim_require\":[\"batch\",7]}", "verbatim_require[1]", "invalid_value"},
  };
  for (size_t i = 0; i < ARRAY_LEN(cases); i++)
    expect_refused(cases[i].kind, cases[i].body, cases[i].path, cases[i].code, cases[i].path);
}

static void keys_of_messages_without_effect_are_listed(void **state) {
  (void)state;
  expect_ignored(chat_of("{\"user\":\"u\",\"messages\":[{\"role\":\"tool\",\"content\":\"a\",\"tool_call_id\":\"i\",\"name\":\"\"}],"
                         "\"max_tokens\":3}"), "[\"user\",\"messages[0].tool_call_id\"]");
  expect_ignored(chat_of("{\"messages\":[{\"role\":\"user\",\"content\":\"a\",\"refusal\":null}],"
                         "\"response_format\":{\"type\":\"text\",\"json_schema\":null}}"), "[]");
}

static void fields_that_contradict(void **state) {
  (void)state;
  refuses("\"max_tokens\":0", "max_tokens", "invalid_value", "with echo");
  refuses("\"max_tokens\":0,\"logprobs\":1", "max_tokens", "invalid_value", "with echo");
  refuses("\"stream_options\":{\"include_usage\":true}", "stream_options", "invalid_value", "stream true");
  expect_refused(SERVE_COMPLETION, "{\"prompt\":[1],\"max_tokens\":0,\"echo\":true}", "prompt", "invalid_value", "nothing to score");
  expect_refused(SERVE_CHAT, "{\"messages\":[],\"top_logprobs\":2}", "top_logprobs", "invalid_value", "logprobs true");
  expect_refused(SERVE_CHAT, "{\"messages\":[],\"max_tokens\":2,\"max_completion_tokens\":3}", "max_completion_tokens", "invalid_value",
                 "differ");
  expect_refused(SERVE_CHAT, "{}", "messages", "missing_required_parameter", "messages");
  expect_refused(SERVE_CHAT, "{\"messages\":7}", "messages", "invalid_value", "expected a list");
  expect_refused(SERVE_CHAT, "{\"messages\":[]}", "messages", "invalid_value", "at least one message");
  expect_refused(SERVE_COMPLETION, "{\"model\":\"other\",\"prompt\":[1]}", "model", "model_not_found", "\"other\"");
  assert_int_equal(serve_fixture_refused(&fixture, SERVE_COMPLETION, "{\"model\":\"other\",\"prompt\":[1]}").http_status, 404);
  expect_refused(SERVE_COMPLETION, "{\"model\":7,\"prompt\":[1]}", "model", "invalid_value", "text");
  char longer[128]; /* texts that begin like an accepted one, with a NUL after it */
  snprintf(longer, sizeof longer, "{\"model\":\"%s\\u0000x\",\"prompt\":[1]}", fixture.model.name);
  expect_refused(SERVE_COMPLETION, longer, "model", "model_not_found", "unknown");
  expect_refused(SERVE_CHAT, "{\"messages\":[],\"tool_choice\":\"none\\u0000\"}", "tool_choice", "invalid_value", "expected");
  fixture.model.chat = NULL;
  expect_refused(SERVE_CHAT, "{\"messages\":[]}", "messages", "unsupported_parameter", "/v1/completions");
  fixture.model.chat = fixture.chat;
}

static void lengths_are_bounded(void **state) {
  (void)state;
  refuses("\"max_tokens\":254", "prompt", "context_length_exceeded", "256 tokens");
  refuses("\"max_tokens\":4294967295", "prompt", "context_length_exceeded", "256 tokens");
  expect_refused(SERVE_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"add\"}],\"max_tokens\":256}", "messages",
                 "context_length_exceeded", "this model's maximum context length is 256 tokens, 258 were requested: 2 in the messages and "
                 "256 to generate");
  expect_refused(SERVE_COMPLETION, "{\"prompt\":[[1],[2,3]],\"max_tokens\":255}", "prompt[1]", "context_length_exceeded", "2 in prompt[1]");
  char body[2048] = "{\"prompt\":[5";
  for (uint32_t i = 1; i < SERVE_FIXTURE_LEN; i++) strcat(body, ",5");
  strcat(body, "]}");
  expect_refused(SERVE_COMPLETION, body, "prompt", "context_length_exceeded", "256 tokens");
}

static void memory_is_bounded(void **state) {
  (void)state;
  serve_request *small = with("\"max_tokens\":10"), *large = with("\"max_tokens\":200,\"logprobs\":20,\"n\":8,\"return_receipt\":true");
  assert_true(small->bytes >= sizeof *small + 10 * sizeof(verbatim_token));
  assert_true(large->bytes >= sizeof *large + 8 * 200 * (sizeof(verbatim_token) + 20 * sizeof(verbatim_alternative)));
  uint64_t small_bytes = small->bytes, large_bytes = large->bytes;
  serve_request_close(small);
  serve_request_close(large);
  fixture.model.bytes_max = small_bytes;
  serve_request_close(with("\"max_tokens\":10"));
  refuses("\"max_tokens\":11", "", "request_too_large", "bytes");
  fixture.model.bytes_max = large_bytes - 1;
  refuses("\"max_tokens\":200,\"logprobs\":20,\"n\":8,\"return_receipt\":true", "", "request_too_large", "bytes");
  fixture.model.bytes_max = 0;
}

/* A body with that many copies of the text in its prompt. */
static char *many(const char *one, uint32_t count) {
  size_t bytes = strlen(one);
  char *body = malloc(count * bytes + 16), *end = body + 11;
  assert_non_null(body);
  memcpy(body, "{\"prompt\":[", 11);
  for (uint32_t i = 0; i < count; i++, end += bytes) memcpy(end, one, bytes);
  strcpy(end - 1, "]}"); /* for the last comma */
  return body;
}

static void bodies_of_many_values_are_not_read(void **state) {
  (void)state;
  const struct { const char *one; uint32_t count; const char *param, *code; } cases[] = {
    {"5,", SERVE_FIELDS_VALUES_MAX, "prompt", "context_length_exceeded"}, {"5,", SERVE_FIELDS_VALUES_MAX + 1, "", "request_too_large"},
    {"[],", SERVE_FIELDS_LISTS_MAX - 2, "prompt", "too_many_choices"}, {"[],", SERVE_FIELDS_LISTS_MAX - 1, "", "request_too_large"},
    {"{},", SERVE_FIELDS_LISTS_MAX, "", "request_too_large"}, {"\"\\\"[,\",", 70, "prompt", "too_many_choices"}};
  for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
    char *body = many(cases[i].one, cases[i].count);
    serve_fault fault = serve_fixture_refused(&fixture, SERVE_COMPLETION, body);
    free(body);
    if (strcmp(fault.param, cases[i].param) != 0 || strcmp(fault.code, cases[i].code) != 0) fail_msg("%zu: %s", i, fault.message);
  }
}

static void texts_hide_what_they_hold(void **state) {
  (void)state;
  char *body = malloc(SERVE_FIELDS_LISTS_MAX + 64);
  assert_non_null(body);
  strcpy(body, "{\"prompt\":[5],\"user\":\"\\\"");
  char *end = body + strlen(body);
  memset(end, '[', SERVE_FIELDS_LISTS_MAX);
  strcpy(end + SERVE_FIELDS_LISTS_MAX, "\"}");
  serve_request_close(completion(body));
  free(body);
}

/* === Progress =============================================================================================================== */

static uint32_t calls;
static void count_call(serve_request *request) {
  assert_int_equal(pthread_mutex_trylock(&request->mutex), 0); /* no text is held back */
  pthread_mutex_unlock(&request->mutex);
  calls++;
}

static void progress_is_told_when_there_is_some(void **state) {
  (void)state;
  serve_request *request = with("\"n\":3,\"max_tokens\":4,\"ignore_eos\":true");
  request->on_progress = count_call;
  calls = 0;
  serve_fixture_submit(&fixture, request);
  serve_fixture_run(&fixture, request);
  assert_int_equal(calls, 1); /* whole: once, at the end */
  assert_int_equal(request->finished_count, 3);
  serve_request_finished(&request->choices[0]); /* again: nothing */
  assert_true(calls == 1 && request->finished_count == 3);
  serve_request_close(request);
  request = with("\"max_tokens\":4,\"ignore_eos\":true,\"stream\":true");
  request->on_progress = count_call;
  calls = 0;
  serve_fixture_submit(&fixture, request);
  serve_fixture_run(&fixture, request);
  assert_int_equal(calls, 4);
  serve_request_close(request);
  request = with("\"max_tokens\":0,\"echo\":true,\"logprobs\":1"); /* no token, no callback */
  request->on_progress = count_call;
  calls = 0;
  serve_fixture_submit(&fixture, request);
  serve_fixture_run(&fixture, request);
  assert_true(calls == 1 && request->choices[0].scores_ready == 2 && request->choices[0].finished);
  serve_request_close(request);
}

static void faults_keep_the_first(void **state) {
  (void)state;
  serve_request *request = with("");
  serve_request_fail(request, &(serve_fault){.http_status = 503, .code = "first"});
  serve_request_fail(request, &(serve_fault){.http_status = 500, .code = "second"});
  assert_true(request->failed && request->fault.http_status == 503);
  assert_string_equal(request->fault.code, "first");
  serve_request_close(request);
}

static void stop_ids_are_the_engines(void **state) {
  (void)state;
  static const char *const fields[] = {"\"seed\":1", "\"stop_token_ids\":[9,1,0,9]", "\"stop_token_ids\":[9,2],\"ignore_eos\":true"};
  for (size_t i = 0; i < ARRAY_LEN(fields); i++) {
    int32_t found[SERVE_REQUEST_STOPS_MAX], expected[SERVE_REQUEST_STOPS_MAX];
    serve_request *request = with(fields[i]);
    uint32_t count = serve_request_stop_ids(&fixture.model, &request->choices[0].engine_request, found);
    assert_int_equal(count, request_stop_ids(&fixture.plan, &request->choices[0].engine_request, expected));
    assert_memory_equal(found, expected, count * sizeof *found);
    serve_request_close(request);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(defaults_of_the_model),
    cmocka_unit_test(prompts_of_every_form), cmocka_unit_test(a_prompt_in_a_list_is_the_prompt_alone),
    cmocka_unit_test(prompts_that_are_none), cmocka_unit_test(bodies_that_are_none),
    cmocka_unit_test(defaults_are_what_openai_documents), cmocka_unit_test(every_field_reaches_the_engine),
    cmocka_unit_test(null_is_not_given), cmocka_unit_test(neutral_values_are_taken), cmocka_unit_test(ranges_are_the_engines),
    cmocka_unit_test(an_integer_may_have_a_fraction_of_zero), cmocka_unit_test(stream_options_are_those_of_vllm_and_openai),
    cmocka_unit_test(stop_texts_that_spell_special_tokens_are_listed), cmocka_unit_test(a_fault_names_the_whole_path),
    cmocka_unit_test(keys_of_messages_without_effect_are_listed), cmocka_unit_test(bounds_are_taken),
    cmocka_unit_test(unknown_fields_are_refused_with_what_may_be_meant),
    cmocka_unit_test(lacks_are_said), cmocka_unit_test(constraints_are_read), cmocka_unit_test(fields_that_contradict),
    cmocka_unit_test(lengths_are_bounded),
    cmocka_unit_test(memory_is_bounded), cmocka_unit_test(bodies_of_many_values_are_not_read),
    cmocka_unit_test(texts_hide_what_they_hold), cmocka_unit_test(progress_is_told_when_there_is_some),
    cmocka_unit_test(faults_keep_the_first), cmocka_unit_test(stop_ids_are_the_engines)};
  serve_fixture_open(&fixture);
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  serve_fixture_close(&fixture);
  return failed;
}

/* test_serve_answers.c - thoughts and calls of tools in replies to chats: whole replies, and streams joined as OpenAI's client joins them.
 *
 * The answers are given texts; tests/unit/answer checks how texts are read. */
#include "tests/unit/unit.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "engine/serve/reply.h"
#include "serve_fixture.h"

#define TEMPLATE "tests/data/chat/turns_with_calls.jinja"
#define TRIALS 6u
#define BODY_BYTES 4096u

static serve_fixture fixture;
static chat *templates;

static const json_t *at(const json_t *root, const char *path) { return serve_fixture_at(root, path); }

static const char TOOLS[] =
  "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"find\",\"parameters\":{\"type\":\"object\",\"properties\":{\"q\":{\"type\":"
  "\"string\"},\"n\":{\"type\":\"integer\"}},\"required\":[\"q\"]}}},{\"type\":\"function\",\"function\":{\"name\":\"now\"}}]";
#define HERMES(name, args) "<tool_call>\n{\"name\": \"" name "\", \"arguments\": " args "}\n</tool_call>"
#define TWO_CALLS "I look.\n" HERMES("find", "{\"q\": \"Łódź\", \"n\": 1.0}") "\n" HERMES("now", "{}")
#define THOUGHT "<think>\nHm 世.\n</think>\n\n"

static char *body_of(char body[BODY_BYTES], const char *fields) {
  snprintf(body, BODY_BYTES, "{\"messages\":[{\"role\":\"user\",\"content\":\"Q\"}]%s%s}", *fields ? "," : "", fields);
  return body;
}

static char *with_tools(char body[BODY_BYTES], const char *fields) {
  char all[BODY_BYTES / 2];
  snprintf(all, sizeof all, "%s%s%s", TOOLS, *fields ? "," : "", fields);
  return body_of(body, all);
}

/* The model's reading: of thoughts and calls, as the options say. */
static void choose(const char *thoughts, const char *calls) {
  assert_int_equal(serve_reading_choose(&fixture.model.reading, templates, thoughts, calls), OK);
}

static json_t *reply_to(const char *script, const char *body) {
  fixture.script = script;
  return serve_fixture_reply(&fixture, SERVE_CHAT, body, NULL);
}

static void expect_text(const json_t *root, const char *path, const char *expected) {
  const json_t *found = at(root, path);
  if (expected ? !json_is_string(found) || strcmp(json_string_value(found), expected) != 0 : !json_is_null(found)) {
    char *text = json_dumps(root, JSON_INDENT(1));
    fail_msg("%s: expected \"%s\", found in %s", path, expected ? expected : "null", text);
  }
}

static void expect_none(const json_t *root, const char *path, const char *key) { assert_null(json_object_get(at(root, path), key)); }

/* === Whole replies ========================================================================================================== */

static void a_thought_is_apart_if_asked_for(void **state) {
  (void)state;
  char body[BODY_BYTES];
  choose("auto", "auto");
  json_t *reply = reply_to(THOUGHT "Yes.", body_of(body, "\"max_tokens\":64"));
  expect_text(reply, "choices.0.message.content", "\n\nYes.");
  expect_text(reply, "choices.0.message.reasoning_content", "\nHm 世.\n");
  expect_text(reply, "choices.0.message.reasoning", "\nHm 世.\n");
  expect_text(reply, "choices.0.finish_reason", "stop");
  expect_text(reply, "verbatim.parsers.reasoning", "think");
  expect_text(reply, "verbatim.parsers.tool_calls", NULL);
  json_int_t thought = json_integer_value(at(reply, "usage.completion_tokens_details.reasoning_tokens"));
  assert_true(thought > 10 && thought < json_integer_value(at(reply, "usage.completion_tokens")) - 3);
  json_decref(reply);
  choose("none", "auto");
  reply = reply_to(THOUGHT "Yes.", body);
  expect_text(reply, "choices.0.message.content", THOUGHT "Yes.");
  expect_none(reply, "choices.0.message", "reasoning_content");
  expect_none(reply, "usage", "completion_tokens_details");
  expect_none(reply, "verbatim", "parsers");
  json_decref(reply);
}

static void a_thought_that_is_cut_off_is_no_answer(void **state) {
  (void)state;
  char body[BODY_BYTES];
  choose("think", "none");
  json_t *reply = reply_to(THOUGHT "Yes.", body_of(body, "\"max_tokens\":12"));
  expect_text(reply, "choices.0.message.content", "");
  expect_text(reply, "choices.0.finish_reason", "length");
  assert_non_null(json_object_get(at(reply, "choices.0.message"), "reasoning_content"));
  assert_int_equal(json_integer_value(at(reply, "usage.completion_tokens_details.reasoning_tokens")), 12);
  json_decref(reply);
}

/* The template of the fixture shows a message as it is, so that a continued one may hold an open thought. */
static void a_thought_may_begin_in_the_prompt(void **state) {
  (void)state;
  static const struct { const char *content, *thought; } cases[] = {
    {"a <think>b", "Hm "}, {"<think>b</think>", NULL}, {"b", NULL}};
  choose("auto", "auto");
  for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
    char body[BODY_BYTES];
    snprintf(body, sizeof body, "{\"messages\":[{\"role\":\"user\",\"content\":\"Q\"},{\"role\":\"assistant\",\"content\":\"%s\"}],"
             "\"continue_final_message\":true,\"max_tokens\":64}", cases[i].content);
    fixture.model.chat = fixture.chat;
    json_t *reply = reply_to("Hm </think>Yes.", body);
    fixture.model.chat = templates;
    expect_text(reply, "choices.0.message.content", cases[i].thought ? "Yes." : "Hm </think>Yes.");
    if (cases[i].thought) expect_text(reply, "choices.0.message.reasoning_content", cases[i].thought);
    json_decref(reply);
  }
  answer_form form = {.marks = answer_grammar_find_marks("think")};
  json_t *empty = json_object();
  serve_reading_of_prompt(empty, "x<think>\n", 9, &form);
  assert_true(form.begins_inside && !form.begins_after);
  serve_reading_of_prompt(empty, "<think>\n\n</think>\n\n", 19, &form);
  assert_true(!form.begins_inside && form.begins_after);
  serve_reading_of_prompt(empty, "<think>x", 8, &form);
  assert_true(!form.begins_inside && !form.begins_after);
  json_decref(empty);
}

static void calls_are_returned(void **state) {
  (void)state;
  char body[BODY_BYTES];
  choose("auto", "auto");
  json_t *reply = reply_to(THOUGHT TWO_CALLS, with_tools(body, "\"max_tokens\":512")), *again = reply_to(THOUGHT TWO_CALLS, body);
  expect_text(reply, "choices.0.message.content", "\n\nI look.");
  expect_text(reply, "choices.0.message.reasoning_content", "\nHm 世.\n");
  expect_text(reply, "choices.0.finish_reason", "tool_calls");
  expect_text(reply, "choices.0.message.tool_calls.0.type", "function");
  expect_text(reply, "choices.0.message.tool_calls.0.function.name", "find");
  expect_text(reply, "choices.0.message.tool_calls.0.function.arguments", "{\"q\": \"Łódź\", \"n\": 1.0}");
  expect_text(reply, "choices.0.message.tool_calls.1.function.name", "now");
  expect_text(reply, "verbatim.parsers.tool_calls", "hermes");
  expect_none(reply, "verbatim.choices.0", "tool_call_error");
  assert_int_equal(json_array_size(at(reply, "choices.0.message.tool_calls")), 2);
  assert_false(json_equal(at(reply, "choices.0.message.tool_calls.0.id"), at(reply, "choices.0.message.tool_calls.1.id")));
  assert_true(json_equal(reply, again));
  json_decref(again);
  json_decref(reply);
  reply = reply_to(HERMES("now", "{}"), body);
  expect_text(reply, "choices.0.message.content", NULL);
  json_decref(reply);
}

static void calls_stay_text_unless_asked_for(void **state) {
  (void)state;
  char body[BODY_BYTES];
  static const char *const fields[] = {"\"tool_choice\":\"none\",\"max_tokens\":512", "\"max_tokens\":512"};
  for (size_t i = 0; i < ARRAY_LEN(fields); i++) {
    choose("none", i ? "none" : "auto");
    json_t *reply = reply_to(TWO_CALLS, with_tools(body, fields[i]));
    expect_text(reply, "choices.0.message.content", TWO_CALLS);
    expect_text(reply, "choices.0.finish_reason", "stop");
    expect_none(reply, "choices.0.message", "tool_calls");
    json_decref(reply);
  }
  choose("none", "auto");
  json_t *reply = reply_to(TWO_CALLS, body_of(body, "\"max_tokens\":512"));
  expect_text(reply, "choices.0.message.content", TWO_CALLS);
  json_decref(reply);
}

static void what_is_no_call_is_told(void **state) {
  (void)state;
  char body[BODY_BYTES];
  choose("none", "auto");
  json_t *reply = reply_to(HERMES("nowhere", "{}"), with_tools(body, "\"max_tokens\":512"));
  expect_text(reply, "choices.0.message.content", HERMES("nowhere", "{}"));
  expect_text(reply, "choices.0.finish_reason", "stop");
  expect_text(reply, "verbatim.choices.0.tool_call_error", "call 1: nowhere is not one of the request's tools");
  json_decref(reply);
  reply = reply_to(TWO_CALLS, with_tools(body, "\"max_tokens\":512,\"parallel_tool_calls\":false"));
  expect_text(reply, "choices.0.message.content", "I look.\n" HERMES("now", "{}"));
  assert_int_equal(json_array_size(at(reply, "choices.0.message.tool_calls")), 1);
  expect_text(reply, "choices.0.finish_reason", "tool_calls");
  expect_text(reply, "verbatim.choices.0.tool_call_error", "call 2: the request allows 1 (parallel_tool_calls)");
  assert_int_equal(json_array_size(at(reply, "verbatim.ignored")), 0);
  json_decref(reply);
  reply = reply_to(TWO_CALLS, with_tools(body, "\"max_tokens\":60")); /* cut off in the first call */
  expect_text(reply, "choices.0.finish_reason", "length");
  expect_text(reply, "verbatim.choices.0.tool_call_error", "call 1: the answer ends within it");
  json_decref(reply);
}

#define CHANNEL(name) "<|channel|>" name "<|message|>"
#define NEXT "<|start|>assistant"
#define TO(name) "<|channel|>commentary to=functions." name " <|constrain|>json<|message|>"
#define HARMONY CHANNEL("analysis") "Hm.<|end|>" NEXT TO("find") "{\"q\": \"a\"}"

static void harmony_is_read(void **state) {
  (void)state;
  char body[BODY_BYTES];
  choose("harmony", "harmony");
  json_t *reply = reply_to(HARMONY, with_tools(body, "\"max_tokens\":512"));
  expect_text(reply, "choices.0.message.content", NULL);
  expect_text(reply, "choices.0.message.reasoning_content", "Hm.");
  expect_text(reply, "choices.0.message.tool_calls.0.function.arguments", "{\"q\": \"a\"}");
  expect_text(reply, "choices.0.finish_reason", "tool_calls");
  expect_text(reply, "verbatim.parsers.tool_calls", "harmony");
  json_int_t thought = json_integer_value(at(reply, "usage.completion_tokens_details.reasoning_tokens"));
  assert_true(thought > 20 && thought < json_integer_value(at(reply, "usage.completion_tokens")) - 20);
  json_decref(reply);
  reply = reply_to(CHANNEL("analysis") "Hm.<|end|>" NEXT CHANNEL("final") "Yes.", body_of(body, "\"max_tokens\":512"));
  expect_text(reply, "choices.0.message.content", "Yes.");
  expect_text(reply, "choices.0.finish_reason", "stop");
  json_decref(reply);
  reply = reply_to(TO("nowhere") "{}", with_tools(body, "\"max_tokens\":512"));
  expect_text(reply, "choices.0.message.content", TO("nowhere") "{}");
  expect_text(reply, "verbatim.choices.0.tool_call_error", "message 1: nowhere is not one of the request's tools");
  json_decref(reply);
  choose("none", "harmony"); /* the calls alone */
  reply = reply_to(HARMONY, with_tools(body, "\"max_tokens\":512"));
  expect_text(reply, "choices.0.message.content", CHANNEL("analysis") "Hm.<|end|>");
  expect_none(reply, "choices.0.message", "reasoning_content");
  json_decref(reply);
}

static void harmony_may_begin_in_the_prompt(void **state) {
  (void)state;
  static const struct { const char *end; bool is_inside, is_after; } cases[] = {
    {"<|end|>" NEXT, false, false}, {NEXT CHANNEL("analysis"), true, false}, {NEXT CHANNEL("final") " ", false, true}};
  json_t *asked = json_object();
  json_t *continued = json_pack("{s:[{s:s,s:s}],s:b}", "messages", "role", "assistant", "content", "b", "continue_final_message", 1);
  for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
    answer_form form = {.marks = answer_grammar_find_marks("harmony")};
    serve_reading_of_prompt(asked, cases[i].end, strlen(cases[i].end), &form);
    assert_int_equal(form.begins_inside, cases[i].is_inside);
    assert_int_equal(form.begins_after, cases[i].is_after);
  }
  answer_form form = {.marks = answer_grammar_find_marks("harmony")};
  serve_reading_of_prompt(continued, NEXT CHANNEL("final") "b", strlen(NEXT CHANNEL("final") "b"), &form);
  assert_true(form.begins_after && !form.begins_inside);
  json_decref(asked);
  json_decref(continued);
}

/* === Streams ================================================================================================================ */

static void join_text(json_t *message, const char *key, const json_t *added) {
  const char *before = json_string_value(json_object_get(message, key));
  if (!added) return;
  char *text = NULL;
  size_t bytes = (before ? strlen(before) : 0) + json_string_length(added) + 1;
  assert_non_null(text = malloc(bytes));
  snprintf(text, bytes, "%s%s", before ? before : "", json_string_value(added));
  json_object_set_new(message, key, json_string(text));
  free(text);
}

/* A call's name comes first and once, then its arguments in pieces. */
static void join_call(json_t *calls, const json_t *piece) {
  size_t index = (size_t)json_integer_value(at(piece, "index"));
  const json_t *function = at(piece, "function");
  if (json_object_get(piece, "id")) {
    assert_int_equal(index, json_array_size(calls));
    json_array_append_new(calls, json_pack("{s:O,s:O,s:{s:O,s:O}}", "id", at(piece, "id"), "type", at(piece, "type"), "function", "name",
                                           at(function, "name"), "arguments", at(function, "arguments")));
  } else join_text(json_object_get(json_array_get(calls, index), "function"), "arguments", at(function, "arguments"));
}

static void join_choice(json_t *message, const json_t *choice) {
  const json_t *delta = at(choice, "delta"), *calls = json_object_get(delta, "tool_calls");
  static const char *const texts[] = {"role", "content", "reasoning_content", "reasoning"};
  assert_null(json_object_get(message, "finish_reason"));
  for (size_t i = 0; i < ARRAY_LEN(texts); i++) join_text(message, texts[i], json_object_get(delta, texts[i]));
  if (calls && !json_object_get(message, "tool_calls")) json_object_set_new(message, "tool_calls", json_array());
  for (size_t i = 0; i < json_array_size(calls); i++) join_call(json_object_get(message, "tool_calls"), json_array_get(calls, i));
  if (!json_is_null(at(choice, "finish_reason"))) json_object_set(message, "finish_reason", json_object_get(choice, "finish_reason"));
}

/* The events of a request that advances at random, joined: a message for each choice, and the verbatim object. */
static void join_stream(const char *body, uint64_t *random, json_t *messages, json_t **proof, json_t **usage) {
  serve_request *request = serve_fixture_ask(&fixture, SERVE_CHAT, body);
  serve_text out = {0};
  bool ended = false, is_over[8] = {false};
  serve_fixture_submit(&fixture, request);
  for (uint32_t left = request->choice_count; !ended;) {
    uint32_t i = (uint32_t)(random_next(random) % request->choice_count);
    if (!is_over[i] && !serve_fixture_step(&fixture, &request->choices[i])) {
      serve_request_finished(&request->choices[i]);
      is_over[i] = true;
      left--;
    }
    if (left == 0 || random_next(random) % 5 == 0) serve_reply_stream(&fixture.model, request, &out, &ended);
  }
  strbuf_add(&out, "", 1);
  for (char *event = out.bytes, *end; *event; event = end + 2) {
    assert_non_null(end = strstr(event, "\n\n"));
    json_t *read = json_loadb(event + 6, (size_t)(end - event) - 6, JSON_REJECT_DUPLICATES, NULL);
    for (size_t i = 0; i < json_array_size(json_object_get(read, "choices")); i++) {
      const json_t *choice = json_array_get(json_object_get(read, "choices"), i);
      join_choice(json_array_get(messages, (size_t)json_integer_value(at(choice, "index"))), choice);
    }
    if (json_object_get(read, "verbatim")) *proof = json_incref(json_object_get(read, "verbatim"));
    if (json_is_object(json_object_get(read, "usage"))) *usage = json_incref(json_object_get(read, "usage"));
    json_decref(read);
  }
  strbuf_close(&out);
  free(request->owner);
  serve_request_close(request);
}

static void expect_same(const json_t *whole, const json_t *found, const char *what, const char *script) {
  if (json_equal(whole, found)) return;
  char *a = json_dumps(whole, JSON_ENCODE_ANY), *b = json_dumps(found, JSON_ENCODE_ANY);
  fail_msg("%s, %s: expected\n%s\nfound\n%s", script, what, a, b ? b : "nothing");
}

static void expect_joined(const char *script, const char *fields, uint64_t *random) {
  char body[BODY_BYTES], shape[256];
  snprintf(shape, sizeof shape, "\"n\":2,%s", fields);
  json_t *whole = reply_to(script, with_tools(body, shape));
  snprintf(shape, sizeof shape, "\"n\":2,\"stream\":true,\"stream_options\":{\"include_usage\":true},%s", fields);
  json_t *messages = json_pack("[{},{}]"), *proof = NULL, *usage = NULL;
  join_stream(with_tools(body, shape), random, messages, &proof, &usage);
  for (size_t i = 0; i < 2; i++) {
    json_t *expected = json_deep_copy(at(json_array_get(at(whole, "choices"), i), "message"));
    if (json_is_null(json_object_get(expected, "content"))) json_object_set_new(expected, "content", json_string(""));
    json_object_set(expected, "finish_reason", json_object_get(json_array_get(at(whole, "choices"), i), "finish_reason"));
    expect_same(expected, json_array_get(messages, i), "message", script);
    json_decref(expected);
  }
  expect_same(at(whole, "verbatim"), proof, "verbatim", script);
  expect_same(at(whole, "usage"), usage, "usage", script);
  json_decref(messages);
  json_decref(proof);
  json_decref(usage);
  json_decref(whole);
}

static void streams_joined_are_the_whole(void **state) {
  (void)state;
  static const char *const scripts[] = {
    TWO_CALLS, THOUGHT TWO_CALLS " \n", HERMES("nowhere", "{}") HERMES("now", "{}") "After.", "<think>never", "Plain.",
    "a <tool_call>\n{\"name\": \"now\", \"argu", HERMES("find", "{\"q\": \"stop here\"}")};
  static const char *const fields[] = {"\"max_tokens\":512", "\"max_tokens\":512,\"stop\":[\"here\",\"m \\u4e16\"]",
                                       "\"max_tokens\":41,\"logprobs\":true,\"return_token_ids\":true",
                                       "\"max_tokens\":512,\"stop\":\"</tool_call>\",\"include_stop_str_in_output\":true"};
  uint64_t random = 5;
  for (size_t trial = 0; trial < TRIALS; trial++) {
    choose(trial % 3 ? "auto" : "none", "auto");
    for (size_t i = 0; i < ARRAY_LEN(scripts); i++) expect_joined(scripts[i], fields[(trial + i) % ARRAY_LEN(fields)], &random);
    choose("harmony", "harmony");
    expect_joined(HARMONY "<|call|>" NEXT CHANNEL("final") "here", fields[trial % ARRAY_LEN(fields)], &random);
  }
}

/* === What is refused ======================================================================================================== */

static void wrong_tools_and_options_are_refused(void **state) {
  (void)state;
  static const struct { const char *fields, *param; } cases[] = {
    {"\"tools\":[{\"type\":\"function\",\"function\":{\"description\":\"x\"}}]", "tools[0].function.name"},
    {"\"tools\":[{\"function\":{\"name\":\"f\"}},{\"function\":{\"name\":\"f\"}}]", "tools[1].function.name"},
    {"\"parallel_tool_calls\":1", "parallel_tool_calls"}, {"\"tool_choice\":\"required\"", "tool_choice"},
    {"\"tool_choice\":\"any\"", "tool_choice"}, {"\"tool_choice\":{\"type\":\"function\",\"name\":\"f\"}", "tool_choice"}};
  static const struct { const char *choice, *param, *code; } forced[] = {
    {"\"required\",\"response_format\":{\"type\":\"json_object\"}", "tool_choice", "invalid_value"},
    {"\"required\",\"allowed_token_ids\":[7]", "tool_choice", "invalid_value"},
    {"{\"type\":\"function\",\"function\":{\"name\":\"nowhere\"}}", "tool_choice.function.name", "invalid_value"}};
  char body[BODY_BYTES];
  choose("auto", "auto");
  for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
    serve_fault fault = serve_fixture_refused(&fixture, SERVE_CHAT, body_of(body, cases[i].fields));
    assert_string_equal(fault.param, cases[i].param);
    assert_int_equal(fault.http_status, 400);
  }
  for (size_t i = 0; i < ARRAY_LEN(forced); i++) {
    char field[256];
    snprintf(field, sizeof field, "\"tool_choice\":%s", forced[i].choice);
    serve_fault fault = serve_fixture_refused(&fixture, SERVE_CHAT, with_tools(body, field));
    assert_string_equal(fault.param, forced[i].param);
    assert_string_equal(fault.code, forced[i].code);
  }
  serve_reading reading;
  char text[SERVE_READING_TEXT_BYTES];
  assert_int_equal(serve_reading_choose(&reading, templates, "thought", "auto"), ERR_USAGE);
  assert_int_equal(serve_reading_choose(&reading, templates, "auto", "qwen"), ERR_USAGE);
  assert_int_equal(serve_reading_choose(&reading, templates, "auto", "harmony"), ERR_USAGE); /* its thoughts are between other marks */
  assert_int_equal(serve_reading_choose(&reading, templates, "harmony", "auto"), ERR_USAGE);
  assert_int_equal(serve_reading_choose(&reading, fixture.chat, "auto", "harmony"), OK);
  assert_string_equal(serve_reading_text(&reading, text), "thoughts harmony, tool calls harmony");
  assert_int_equal(serve_reading_choose(&reading, templates, "none", "auto"), OK);
  assert_string_equal(serve_reading_text(&reading, text), "thoughts think (in the content), tool calls hermes");
  assert_int_equal(serve_reading_choose(&reading, fixture.chat, "auto", "kimi_k2"), OK);
  assert_string_equal(serve_reading_text(&reading, text), "thoughts none, tool calls kimi_k2");
}

static void templates_tell_what_is_read(void **state) {
  (void)state;
  static const struct { const char *folder, *file, *text; } cases[] = {
    {"tests/tiny", "deepseek_r1_think", "thoughts think, tool calls deepseek_v3"},
    {"tests/tiny", "glm_47", "thoughts think, tool calls glm45"}, {"tests/tiny", "harmony", "thoughts harmony, tool calls harmony"},
    {"tests/tiny", "plain", "thoughts none, tool calls none"}, {"tests/tiny", "headers_with_date", "thoughts none, tool calls llama3_json"},
    {"tests/data/chat/deepseek_v32", NULL, "thoughts think, tool calls deepseek_v32"}};
  for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
    char path[256], text[SERVE_READING_TEXT_BYTES];
    serve_reading reading;
    chat *opened = NULL;
    snprintf(path, sizeof path, "tests/data/chat/%s.jinja", cases[i].file ? cases[i].file : "");
    assert_int_equal(chat_open(&opened, cases[i].folder, cases[i].file ? path : NULL), OK);
    assert_int_equal(serve_reading_choose(&reading, opened, "auto", "auto"), OK);
    assert_string_equal(serve_reading_text(&reading, text), cases[i].text);
    chat_close(opened);
  }
}

static int open_fixture(void **state) {
  (void)state;
  serve_fixture_open(&fixture);
  fixture.info.max_len = fixture.header.limits.max_len = 4096;
  fixture.header.limits.kv_pages = 4096;
  if (chat_open(&templates, "tests/tiny", TEMPLATE) != OK) return -1;
  fixture.model.chat = templates;
  return 0;
}

static int close_fixture(void **state) {
  (void)state;
  chat_close(templates);
  serve_fixture_close(&fixture);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_thought_is_apart_if_asked_for), cmocka_unit_test(a_thought_that_is_cut_off_is_no_answer),
    cmocka_unit_test(a_thought_may_begin_in_the_prompt), cmocka_unit_test(calls_are_returned),
    cmocka_unit_test(calls_stay_text_unless_asked_for), cmocka_unit_test(what_is_no_call_is_told),
    cmocka_unit_test(harmony_is_read), cmocka_unit_test(harmony_may_begin_in_the_prompt),
    cmocka_unit_test(streams_joined_are_the_whole), cmocka_unit_test(wrong_tools_and_options_are_refused),
    cmocka_unit_test(templates_tell_what_is_read)};
  return cmocka_run_group_tests(tests, open_fixture, close_fixture);
}

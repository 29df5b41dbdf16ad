/* test_serve_stream.c - replies in events: joined, they equal the whole reply, however the choices advance and whenever events are
 * requested.
 *
 * tests/unit/serve/test_serve_reply.c checks the whole reply. */
#include "tests/unit/unit.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "engine/serve/reply.h"
#include "serve_fixture.h"

#define TRIALS 150

static serve_fixture fixture;

static const json_t *at(const json_t *root, const char *path) { return serve_fixture_at(root, path); }

typedef struct joined { /* the events of a stream, joined into the fields of a whole reply */
  json_t *choices[8];
  json_t *verbatim, *usage, *prompt_ids;
  json_int_t running[8]; /* tokens of each choice so far, by continuous_usage_stats */
  size_t running_events;
  uint32_t events;
  bool done;
} joined;

static void join_text(json_t *choice, const char *key, const json_t *added) {
  const json_t *before = json_object_get(choice, key);
  size_t bytes = json_string_length(before), more = json_string_length(added);
  char *text = malloc(bytes + more + 1);
  assert_non_null(text);
  if (bytes) memcpy(text, json_string_value(before), bytes);
  if (more) memcpy(text + bytes, json_string_value(added), more);
  json_object_set_new(choice, key, json_stringn(text, bytes + more));
  free(text);
}

static void join_lists(json_t *into, const json_t *from) {
  const char *key;
  json_t *value;
  json_object_foreach((json_t *)(uintptr_t)from, key, value) {
    json_t *list = json_object_get(into, key);
    if (!list) json_object_set_new(into, key, json_deep_copy(value));
    else if (json_is_array(list)) json_array_extend(list, value);
  }
}

static void join_choice(joined *self, const json_t *one) {
  json_int_t index = json_integer_value(at(one, "index"));
  json_t **choice = &self->choices[index];
  const json_t *delta = json_object_get(one, "delta"), *logprobs = at(one, "logprobs"), *ids = json_object_get(one, "token_ids");
  if (!*choice) *choice = json_object();
  assert_true(json_is_null(json_object_get(*choice, "finish_reason")) || !json_object_get(*choice, "finish_reason"));
  if (delta && json_object_get(delta, "role")) assert_null(json_object_get(*choice, "text")); /* first, and once */
  join_text(*choice, "text", delta ? json_object_get(delta, "content") : at(one, "text"));
  if (json_is_object(logprobs)) {
    if (!json_object_get(*choice, "logprobs")) json_object_set_new(*choice, "logprobs", json_object());
    join_lists(json_object_get(*choice, "logprobs"), logprobs);
  }
  if (ids && !json_object_get(*choice, "token_ids")) json_object_set_new(*choice, "token_ids", json_array());
  if (ids) json_array_extend(json_object_get(*choice, "token_ids"), (json_t *)(uintptr_t)ids);
  if (json_object_get(one, "prompt_token_ids")) json_object_set(*choice, "prompt_token_ids", json_object_get(one, "prompt_token_ids"));
  json_object_set(*choice, "finish_reason", json_object_get(one, "finish_reason"));
  json_object_set(*choice, "stop_reason", json_object_get(one, "stop_reason"));
}

/* Of an event with a choice: its own count so far. Of the event after all choices: the whole. */
static void join_usage(joined *self, const json_t *usage, const json_t *choice) {
  json_int_t generated = json_integer_value(at(usage, "completion_tokens"));
  assert_int_equal(json_integer_value(at(usage, "total_tokens")), json_integer_value(at(usage, "prompt_tokens")) + generated);
  if (!choice) {
    self->usage = json_deep_copy(usage);
    return;
  }
  size_t index = (size_t)json_integer_value(at(choice, "index"));
  assert_true(generated >= self->running[index]);
  self->running[index] = generated;
  self->running_events++;
}

static void join_event(joined *self, const char *text, size_t bytes) {
  if (bytes == 6 && memcmp(text, "[DONE]", 6) == 0) {
    self->done = true;
    return;
  }
  assert_false(self->done);
  json_t *event = json_loadb(text, bytes, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
  if (!event) fail_msg("not JSON: %.*s", (int)bytes, text);
  const json_t *choices = at(event, "choices");
  self->events++;
  for (size_t i = 0; i < json_array_size(choices); i++) join_choice(self, json_array_get(choices, i));
  if (json_object_get(event, "verbatim")) {
    assert_null(self->verbatim);
    self->verbatim = json_deep_copy(json_object_get(event, "verbatim"));
  }
  if (json_is_object(json_object_get(event, "usage"))) join_usage(self, json_object_get(event, "usage"), json_array_get(choices, 0));
  if (json_object_get(event, "prompt_token_ids")) self->prompt_ids = json_deep_copy(json_object_get(event, "prompt_token_ids"));
  json_decref(event);
}

static void join_events(joined *self, char *events) {
  for (char *event = events, *end; *event; event = end + 2) {
    assert_int_equal(strncmp(event, "data: ", 6), 0);
    assert_non_null(end = strstr(event, "\n\n"));
    join_event(self, event + 6, (size_t)(end - event) - 6);
  }
  assert_true(self->done);
}

/* The choices advance in a random order, and events are requested at random times. */
static joined stream_of(enum serve_kind kind, const char *body, uint64_t *random) {
  joined self = {0};
  serve_request *request = serve_fixture_ask(&fixture, kind, body);
  serve_text out = {0};
  bool ended = false, is_over[8] = {false};
  uint32_t left = request->choice_count;
  serve_fixture_submit(&fixture, request);
  while (!ended) {
    uint32_t i = (uint32_t)(random_next(random) % request->choice_count);
    if (!is_over[i] && !serve_fixture_step(&fixture, &request->choices[i])) {
      serve_request_finished(&request->choices[i]);
      is_over[i] = true;
      left--;
    }
    if (left == 0 || random_next(random) % 4 == 0) serve_reply_stream(&fixture.model, request, &out, &ended);
  }
  size_t before = out.count;
  serve_reply_stream(&fixture.model, request, &out, &ended); /* nothing more */
  assert_true(ended && out.count == before);
  strbuf_add(&out, "", 1);
  join_events(&self, out.bytes);
  strbuf_close(&out);
  free(request->owner);
  serve_request_close(request);
  return self;
}

static void expect_equal(const json_t *whole, const json_t *found, const char *what, const char *body) {
  if (json_is_null(whole) && !found) return;
  if (json_equal(whole, found)) return;
  char *a = json_dumps(whole, JSON_ENCODE_ANY), *b = json_dumps(found, JSON_ENCODE_ANY);
  fail_msg("seed %llu, %s, %s: expected\n%s\nfound\n%s", (unsigned long long)fixture.seed, body, what, a, b ? b : "nothing");
}

static void expect_choice(const json_t *choice, enum serve_kind kind, const json_t *found, const char *body) {
  static const char *const keys[] = {"logprobs", "finish_reason", "stop_reason", "token_ids", "prompt_token_ids"};
  expect_equal(kind == SERVE_CHAT ? at(choice, "message.content") : at(choice, "text"), json_object_get(found, "text"), "text", body);
  for (size_t k = 0; k < ARRAY_LEN(keys); k++)
    if (json_object_get(choice, keys[k])) expect_equal(json_object_get(choice, keys[k]), json_object_get(found, keys[k]), keys[k], body);
}

static void expect_joined(enum serve_kind kind, const char *fields, uint64_t *random) {
  char whole_body[1024], body[1024];
  const char *prompt = kind == SERVE_CHAT ? "\"messages\":[{\"role\":\"user\","
                                            "\"content\":\"d\\u00e9\"}]" : "\"prompt\":[[0,5,283],[7,240,200]]";
  snprintf(whole_body, sizeof whole_body, "{%s,\"max_tokens\":30,%s}", prompt, fields);
  snprintf(body, sizeof body, "{%s,\"max_tokens\":30,%s,\"stream\":true%s}", prompt, fields,
           fixture.seed % 4 == 1   ? ",\"stream_options\":{\"include_usage\":true}"
           : fixture.seed % 4 == 3 ? ",\"stream_options\":{\"include_usage\":true,\"continuous_usage_stats\":true}"
                                   : "");
  json_t *whole = serve_fixture_reply(&fixture, kind, whole_body, NULL);
  joined found = stream_of(kind, body, random);
  const json_t *choices = at(whole, "choices");
  for (size_t i = 0; i < json_array_size(choices); i++) {
    expect_choice(json_array_get(choices, i), kind, found.choices[i], body);
    json_decref(found.choices[i]);
  }
  expect_equal(at(whole, "verbatim"), found.verbatim, "verbatim", body);
  if (fixture.seed % 2) expect_equal(at(whole, "usage"), found.usage, "usage", body);
  else assert_null(found.usage);
  json_int_t running = 0;
  for (size_t i = 0; i < ARRAY_LEN(found.running); i++) running += found.running[i];
  if (fixture.seed % 4 == 3) assert_int_equal(running, json_integer_value(at(whole, "usage.completion_tokens")));
  assert_int_equal(found.running_events, fixture.seed % 4 == 3 ? found.events - 1 : 0); /* all but the last */
  if (kind == SERVE_CHAT && found.prompt_ids) expect_equal(at(whole, "prompt_token_ids"), found.prompt_ids, "prompt_token_ids", body);
  json_decref(found.verbatim);
  json_decref(found.usage);
  json_decref(found.prompt_ids);
  json_decref(whole);
}

static void streams_joined_are_the_whole(void **state) {
  (void)state;
  static const char *const fields[] = {
    "\"n\":2", "\"logprobs\":2,\"echo\":true", "\"echo\":true,\"n\":3,\"return_token_ids\":true",
    "\"stop\":[\"\\u754c\",\" caf\\u00e9 \",\"words</b>x\"],\"logprobs\":0",
      "\"stop\":[\"or\",\"\\ufffd\"],\"include_stop_str_in_output\":true",
    "\"stop_token_ids\":[270,22],\"include_stop_str_in_output\":true,\"n\":2,\"return_receipt\":true,\"logprobs\":1,\"echo\":true",
    "\"return_tokens_as_token_ids\":true,\"logprobs\":20,\"return_params\":true,\"ignore_eos\":true"};
  static const char *const chats[] = {"\"n\":3", "\"logprobs\":true,\"top_logprobs\":3,\"stop\":\"\\u4e16\"",
                                      "\"return_token_ids\":true,\"logprobs\":true,\"add_special_tokens\":true"};
  uint64_t random = 77;
  for (uint64_t seed = 0; seed < TRIALS; seed++) {
    fixture.seed = seed;
    expect_joined(SERVE_COMPLETION, fields[seed % ARRAY_LEN(fields)], &random);
    expect_joined(SERVE_CHAT, chats[seed % ARRAY_LEN(chats)], &random);
  }
}

static void *work(void *request) {
  serve_fixture_run(&fixture, request);
  return NULL;
}

/* The engine's thread and the reader's run at the same time. */
static void streams_are_read_while_they_are_made(void **state) {
  (void)state;
  static const char fields[] = "\"prompt\":[5,6,7],\"n\":4,\"max_tokens\":100,\"logprobs\":3,\"echo\":true,\"stop\":[\"\\u754c\"],"
                               "\"return_token_ids\":true";
  char body[512];
  fixture.seed = 5;
  snprintf(body, sizeof body, "{%s}", fields);
  json_t *whole = serve_fixture_reply(&fixture, SERVE_COMPLETION, body, NULL);
  snprintf(body, sizeof body, "{%s,\"stream\":true}", fields);
  for (uint32_t trial = 0; trial < 10; trial++) {
    serve_request *request = serve_fixture_ask(&fixture, SERVE_COMPLETION, body);
    serve_text out = {0};
    joined found = {0};
    bool ended = false;
    pthread_t engine;
    serve_fixture_submit(&fixture, request);
    assert_int_equal(pthread_create(&engine, NULL, work, request), 0);
    while (!ended) serve_reply_stream(&fixture.model, request, &out, &ended);
    assert_int_equal(pthread_join(engine, NULL), 0);
    strbuf_add(&out, "", 1);
    join_events(&found, out.bytes);
    expect_equal(at(whole, "verbatim"), found.verbatim, "verbatim", body);
    for (size_t i = 0; i < 4; i++) {
      const json_t *choice = json_array_get(at(whole, "choices"), i);
      expect_equal(at(choice, "text"), json_object_get(found.choices[i], "text"), "text", body);
      expect_equal(at(choice, "logprobs"), json_object_get(found.choices[i], "logprobs"), "logprobs", body);
      json_decref(found.choices[i]);
    }
    json_decref(found.verbatim);
    strbuf_close(&out);
    serve_request_close(request);
  }
  json_decref(whole);
}

/* A slow reader has little text waiting for it; and a call that adds nothing means that nothing is available. */
static void a_call_adds_a_bounded_part(void **state) {
  (void)state;
  static const char *const shapes[] = {"\"logprobs\":20,\"echo\":true,\"n\":3", "\"logprobs\":0,\"n\":8,\"return_token_ids\":true",
                                       "\"echo\":true",
                                       "\"logprobs\":20,\"n\":8,\"stop\":[\"e\",\" f\"],\"include_stop_str_in_output\":true",
                                       "\"logprobs\":20,\"n\":8,\"echo\":true,\"stop_token_ids\":[270,22]"};
  for (size_t i = 0; i < ARRAY_LEN(shapes); i++) {
    char body[2048] = "{\"max_tokens\":100,\"ignore_eos\":true,\"prompt\":[5";
    joined found = {0};
    for (int k = 0; k < 140; k++) strcat(body, ",7");
    strcat(strcat(strcat(body, "],"), shapes[i]), "}");
    json_t *whole = serve_fixture_reply(&fixture, SERVE_COMPLETION, body, NULL);
    strcpy(strrchr(body, '}'), ",\"stream\":true}");
    serve_request *request = serve_fixture_ask(&fixture, SERVE_COMPLETION, body);
    serve_text out = {0};
    bool ended = false;
    uint32_t calls = 0;
    serve_fixture_submit(&fixture, request);
    serve_fixture_run(&fixture, request);
    for (size_t before = 0; !ended; before = out.count, calls++) {
      serve_reply_stream(&fixture.model, request, &out, &ended);
      assert_in_range(out.count - before, 1, 2 * 65536);
    }
    assert_true(i > 0 || calls > 5);
    strbuf_add(&out, "", 1);
    join_events(&found, out.bytes);
    for (size_t k = 0; k < json_array_size(at(whole, "choices")); k++) {
      expect_choice(json_array_get(at(whole, "choices"), k), SERVE_COMPLETION, found.choices[k], body);
      json_decref(found.choices[k]);
    }
    expect_equal(at(whole, "verbatim"), found.verbatim, "verbatim", body);
    json_decref(found.verbatim);
    json_decref(whole);
    strbuf_close(&out);
    free(request->owner);
    serve_request_close(request);
  }
}

static void a_stream_that_breaks_says_so(void **state) {
  (void)state;
  serve_request *request =
      serve_fixture_ask(&fixture, SERVE_COMPLETION, "{\"prompt\":[5,6],\"max_tokens\":9,\"ignore_eos\":true,\"stream\":true}");
  serve_text out = {0};
  bool ended = false;
  fixture.break_at = 4;
  serve_fixture_submit(&fixture, request);
  serve_fixture_step(&fixture, &request->choices[0]);
  serve_fixture_step(&fixture, &request->choices[0]);
  serve_reply_stream(&fixture.model, request, &out, &ended);
  assert_true(!ended && out.count > 0);
  serve_fixture_run(&fixture, request);
  fixture.break_at = UINT32_MAX;
  serve_reply_stream(&fixture.model, request, &out, &ended);
  strbuf_add(&out, "", 1);
  assert_true(ended && strstr(out.bytes, "\"nonfinite_logits\"") && !strstr(out.bytes, "\"verbatim\":"));
  strbuf_close(&out);
  serve_request_close(request);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(streams_joined_are_the_whole), cmocka_unit_test(streams_are_read_while_they_are_made),
                                     cmocka_unit_test(a_call_adds_a_bounded_part), cmocka_unit_test(a_stream_that_breaks_says_so)};
  serve_fixture_open(&fixture);
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  serve_fixture_close(&fixture);
  return failed;
}

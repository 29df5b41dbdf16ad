/* test_serve_bodies.c - bodies of the HTTP API with the engine and the shipped model, without a socket: the engine takes every accepted
 * body, the reply's bytes do not depend on concurrent requests, and its numbers are those of `verbatim score`. `--device gpu` uses the
 * GPU. */
#include "tests/unit/unit.h"
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "e2e.h"
#include "engine/serve/reply.h"

static e2e_model folder = {.model_dir = "tests/tiny"};
static verbatim *engine;
static verbatim_info info;
static serve_model model;
static tokenizer *text_tokenizer;
static chat *templates;

static const struct { enum serve_kind kind; const char *body; } CASES[] = {
  {SERVE_COMPLETION, "{\"prompt\":\"add: 86+72=\",\"temperature\":0,\"max_tokens\":8,\"logprobs\":2,\"return_receipt\":true,"
                     "\"return_params\":true}"},
  {SERVE_COMPLETION, "{\"prompt\":\"add: 86+72=\",\"temperature\":0,\"max_tokens\":8,\"logprobs\":2,\"stream\":true}"},
  {SERVE_COMPLETION, "{\"prompt\":[\"reverse: day\",\"copy: a b\"],\"n\":3,\"temperature\":1.5,\"seed\":7,\"max_tokens\":12,"
                     "\"logprobs\":0}"},
  {SERVE_COMPLETION, "{\"prompt\":[[0,283,28,35],[0,300,28]],\"temperature\":0,\"max_tokens\":1,\"logprobs\":1,\"seed\":1234,"
                     "\"echo\":true}"},
  {SERVE_COMPLETION, "{\"prompt\":[0,283,28,35,22,9],\"max_tokens\":0,\"echo\":true,\"logprobs\":5,\"prompt_logprobs\":3}"},
  {SERVE_COMPLETION, "{\"prompt\":\"sort: d c\",\"temperature\":2,\"top_p\":0.9,\"top_k\":40,\"min_p\":0.01,\"seed\":3,"
                     "\"max_tokens\":20,\"stop\":[\"a\",\"b\"],"
                     "\"ignore_eos\":true,\"repetition_penalty\":1.1,\"presence_penalty\":0.5,\"frequency_penalty\":0.5,"
                     "\"logit_bias\":{\"5\":3}}"},
  {SERVE_COMPLETION, "{\"prompt\":\"sort: d c\",\"seed\":3,\"max_tokens\":20,\"allowed_token_ids\":[5,6,7,240],\"stream\":true,\"n\":2,"
                     "\"echo\":true,"
                     "\"stream_options\":{\"include_usage\":true},\"verbatim_require\":[\"batch\",\"prefix_hit\"]}"},
  {SERVE_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"add: 86+72=\"}],\"temperature\":0,\"logprobs\":true,\"top_logprobs\":3,"
               "\"max_completion_tokens\":8}"},
  {SERVE_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"count: a a\"}],\"max_tokens\":9,\"stream\":true,\"seed\":11}"},
};

typedef struct run {
  serve_request *requests[ARRAY_LEN(CASES)];
  serve_text replies[ARRAY_LEN(CASES)];
} run;

/* Like the server's queue: after every step it looks for requests that ended without a callback. */
static void sweep(serve_request *request) {
  for (uint32_t i = 0; i < request->choice_count; i++)
    if (request->choices[i].engine_request.finish != VERBATIM_RUNNING) serve_request_finished(&request->choices[i]);
}

static void submit(run *self, size_t i) {
  serve_fault fault;
  if (!serve_request_parse(&model, CASES[i].kind, CASES[i].body, strlen(CASES[i].body), "1", &self->requests[i], &fault))
    fail_msg("%s: %s", CASES[i].body, fault.message);
  for (uint32_t k = 0; k < self->requests[i]->choice_count; k++)
    if (verbatim_submit(engine, &self->requests[i]->choices[k].engine_request) != 0) fail_msg("%s: %s", CASES[i].body, verbatim_error());
}

/* Streams are read once, at their end: where events are split is arbitrary. */
static void finish(run *self, size_t i) {
  serve_request *request = self->requests[i];
  serve_fault fault;
  bool ended = false;
  while (request->stream && !ended) serve_reply_stream(&model, request, &self->replies[i], &ended);
  if (!request->stream && !serve_reply_whole(&model, request, &self->replies[i], &fault))
    fail_msg("%s: %s", CASES[i].body, fault.message);
  assert_true(ended == request->stream);
  serve_request_close(request);
}

static void poll_all(run *self, size_t from, size_t to) {
  bool busy = true;
  while (busy) {
    if (verbatim_poll(engine, &busy) != 0) fail_msg("%s", verbatim_error());
    for (size_t i = from; i < to; i++) sweep(self->requests[i]);
  }
}

static void alone_or_together_the_bytes_are_equal(void **state) {
  (void)state;
  run together = {0}, alone = {0};
  for (size_t i = 0; i < ARRAY_LEN(CASES); i++) submit(&together, i);
  poll_all(&together, 0, ARRAY_LEN(CASES));
  for (size_t i = 0; i < ARRAY_LEN(CASES); i++) finish(&together, i);
  for (size_t i = ARRAY_LEN(CASES); i-- > 0;) {
    submit(&alone, i);
    poll_all(&alone, i, i + 1);
    finish(&alone, i);
    const serve_text *a = &together.replies[i], *b = &alone.replies[i];
    if (a->count != b->count || memcmp(a->bytes, b->bytes, a->count) != 0)
      fail_msg("%s:\n%.*s\nalone:\n%.*s", CASES[i].body, (int)a->count, a->bytes, (int)b->count, b->bytes);
  }
  for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
    strbuf_close(&together.replies[i]);
    strbuf_close(&alone.replies[i]);
  }
}

static json_t *reply_of(size_t i) {
  run one = {0};
  submit(&one, i);
  poll_all(&one, i, i + 1);
  finish(&one, i);
  json_t *reply = json_loadb(one.replies[i].bytes, one.replies[i].count, JSON_ALLOW_NUL, NULL);
  assert_non_null(reply);
  strbuf_close(&one.replies[i]);
  return reply;
}

static void the_model_answers(void **state) {
  (void)state;
  json_t *completion = reply_of(0), *answer = reply_of(7), *choice, *message;
  choice = json_array_get(json_object_get(completion, "choices"), 0);
  message = json_object_get(json_array_get(json_object_get(answer, "choices"), 0), "message");
  assert_string_equal(json_string_value(json_object_get(choice, "text")), "158");
  assert_string_equal(json_string_value(json_object_get(choice, "finish_reason")), "stop");
  assert_string_equal(json_string_value(json_object_get(message, "content")), "158"); /* the plain template: the same prompt */
  json_decref(completion);
  json_decref(answer);
}

/* For the same ids, token by token and to the bit; a token is greedy if it has the largest number. */
static void numbers_are_those_of_score(void **state) {
  (void)state;
  char output[16384], command[512];
  snprintf(command, sizeof command, "printf '%%s\\n' '{\"context_ids\":[0],\"continuation_ids\":[283,28,35]}' > items && "
           "$V score plan $TINY --jsonl items --no-bos --summary s --quiet --device %s 2>/dev/null", e2e_device() == 0 ? "gpu" : "cpu");
  assert_int_equal(e2e_shell(&folder, "", command, output, sizeof output), 0);
  json_t *line = json_loads(output, JSON_DISABLE_EOF_CHECK, NULL), *reply = reply_of(3);
  const json_t *logprobs = json_object_get(json_array_get(json_object_get(reply, "choices"), 0), "logprobs"), *place;
  const json_t *numbers = json_object_get(logprobs, "token_logprobs"), *scores = json_object_get(line, "logprobs");
  bool is_greedy = true;
  assert_int_equal(json_array_size(scores), 3);
  assert_int_equal(json_array_size(numbers), 5);
  for (size_t i = 0; i < 3; i++) {
    double number = json_real_value(json_array_get(numbers, i + 1)), largest = -INFINITY;
    json_t *value;
    const char *key;
    assert_true((float)number == (float)json_real_value(json_array_get(scores, i)) && number == (double)(float)number);
    place = json_array_get(json_object_get(logprobs, "top_logprobs"), i + 1);
    json_object_foreach((json_t *)(uintptr_t)place, key, value) largest = fmax(largest, json_real_value(value));
    is_greedy &= number == largest;
  }
  assert_int_equal(is_greedy, json_is_true(json_object_get(line, "is_greedy")));
  json_decref(line);
  json_decref(reply);
}

static int open_all(void **state) {
  (void)state;
  const char *base = getenv("TMPDIR");
  snprintf(folder.folder, sizeof folder.folder, "%s/verbatim-e2e-XXXXXX", base ? base : "/tmp");
  assert_non_null(mkdtemp(folder.folder));
  char *deploy = e2e_read_file("tests/tiny/deploy.yaml", NULL);
  e2e_make_plan(&folder, "plan", deploy, folder.plan_path);
  free(deploy);
  const verbatim_config config = {.plan_path = folder.plan_path, .model_dir = folder.model_dir, .device = e2e_device(), .text = true};
  if (verbatim_open(&engine, &config) != 0) fail_msg("%s", verbatim_error());
  info = verbatim_describe(engine);
  assert_int_equal(tokenizer_open(&text_tokenizer, folder.model_dir), OK);
  assert_int_equal(chat_open(&templates, folder.model_dir, NULL), OK);
  model = (serve_model){.name = "tiny", .info = &info, .tokenizer = text_tokenizer, .chat = templates, .fingerprint = "vb",
                        .choices_max = 64,
                        .created = 1};
  return 0;
}

static int close_all(void **state) {
  (void)state;
  verbatim_close(engine);
  chat_close(templates);
  tokenizer_close(text_tokenizer);
  e2e_remove(&folder);
  return 0;
}

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(alone_or_together_the_bytes_are_equal), cmocka_unit_test(the_model_answers),
      cmocka_unit_test(numbers_are_those_of_score)};
  e2e_begin(argc, argv);
  return cmocka_run_group_tests(tests, open_all, close_all);
}

/* test_serve.c - `verbatim serve` as its clients see it, with the shipped model on the CPU: endpoints, streams, many requests at once,
 * clients that leave, are slow or send nonsense, limits, shutdown. The bits are those of `verbatim run`: the receipts of both are
 * compared. */
#include "tests/unit/unit.h"
#include <jansson.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "engine/base/base.h"
#include "engine/base/clock.h"
#include "serve_client.h"

#define CLIENTS 64u
#define LONG_TOKENS 600u
#define NONE (const char *const[]){NULL}
#define POST "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
static const char DEPLOY[] = "max-num-seqs: 16\nmax-num-batched-tokens: 128\nmax-model-len: 1024\nkv_pages: 256\nladder: [1, 4, 16]\n";
/* Runs until its last token, and takes a while. */
#define LONG_BODY "{\"model\":\"tiny\",\"prompt\":\"reverse: long\",\"max_tokens\":%u,\"ignore_eos\":true,\"stream\":%s,\"temperature\":0}"
static const char SHORT_BODY[] = "{\"model\":\"tiny\",\"prompt\":\"add: 86+72=\",\"max_tokens\":8,\"temperature\":0}";

static e2e_model model;

/* === Helpers ================================================================================================================ */

/* A reply's object, which the caller frees. */
static json_t *object_of(served_reply reply) {
  json_error_t error;
  json_t *object = json_loads(reply.body ? reply.body : "", 0, &error);
  if (reply.status != 200 || !object) fail_msg("expected an object, found %d: %s", reply.status, reply.body ? reply.body : "nothing");
  free(reply.body);
  return object;
}

static const char *text_of(const json_t *reply, size_t choice) {
  return json_string_value(json_object_get(json_array_get(json_object_get(reply, "choices"), choice), "text"));
}

static char *receipt_of(const char *path) { return e2e_without_machine(e2e_read_file(path, NULL)); }

/* The line of a receipt with this name, which the caller frees. */
static char *line_of(const char *receipt, const char *name) {
  char start[128];
  snprintf(start, sizeof start, "\n{\"id\":\"%s\",", name);
  const char *at = strstr(receipt, start);
  if (!at) fail_msg("expected %s in the receipt", name);
  return strndup(at + 1, strcspn(at + 1, "\n"));
}

static double seconds_until_closed(int socket) {
  double before = clock_seconds();
  char part[4096];
  while (recv(socket, part, sizeof part, 0) > 0) continue;
  return clock_seconds() - before;
}

/* === Endpoints ============================================================================================================== */

static void every_endpoint_answers(void **state) {
  (void)state;
  served server;
  char value[256];
  served_begin(&server, &model, "receipt", NONE);
  served_reply health = served_ask(&server, "GET", "/health", "", NULL);
  assert_int_equal(health.bytes, 0);
  served_expect_status(health, 200);
  static const char *const gets[] = {"/v1/models", "/v1/models/tiny", "/version", "/tokenizer_info"};
  for (size_t i = 0; i < ARRAY_LEN(gets); i++) {
    served_reply reply = served_ask(&server, "GET", gets[i], "", NULL);
    assert_string_equal(served_header(&reply, "Content-Type", value), "application/json");
    json_decref(object_of(reply));
    served_expect_status((served_reply){.whole = true, .status = served_ask(&server, "HEAD", gets[i], "", NULL).status}, 200);
  }
  json_t *ids = object_of(served_ask(&server, "POST", "/tokenize", "", "{\"model\":\"tiny\",\"prompt\":\"add: 1+1=\"}"));
  assert_true(json_integer_value(json_object_get(ids, "count")) > 3);
  json_decref(ids);
  json_decref(object_of(served_ask(&server, "POST", "/detokenize", "", "{\"model\":\"tiny\",\"tokens\":[26,24]}")));
  json_t *made = object_of(served_ask(&server, "POST", "/v1/completions", "", SHORT_BODY));
  assert_string_equal(text_of(made, 0), "158");
  json_decref(made);
  served_expect_error(served_ask(&server, "GET", "/nothing", "", NULL), 404, "not_found");
  served_expect_error(served_ask(&server, "GET", "/v1/models/other", "", NULL), 404, "model_not_found");
  served_reply wrong = served_ask(&server, "PUT", "/health", "", NULL);
  assert_string_equal(served_header(&wrong, "Allow", value), "GET, HEAD");
  served_expect_error(wrong, 405, "method_not_allowed");
  wrong = served_ask(&server, "GET", "/v1/completions", "", NULL);
  assert_string_equal(served_header(&wrong, "Allow", value), "POST");
  served_expect_error(wrong, 405, "method_not_allowed");
  served_reply named = served_ask(&server, "GET", "/health", "X-Request-Id: mine-1\r\n", NULL);
  assert_string_equal(served_header(&named, "X-Request-Id", value), "mine-1");
  served_expect_status(named, 200);
  assert_true(served_metric(&server, "vllm:generation_tokens_total{model_name=\"tiny\"}") == 4);
  assert_true(served_metric(&server, "vllm:request_success_total{model_name=\"tiny\",finished_reason=\"stop\"}") == 1);
  assert_true(served_metric(&server, "verbatim_http_replies_total{code=\"405\"}") == 2);
  assert_int_equal(served_end(&server, SIGTERM), 0);
}

/* Texts and finish reasons, by choice, of all events. */
static void join_events(char *body, char texts[2][4096], char reasons[2][32], bool *done) {
  char *kept = NULL;
  for (char *line = strtok_r(body, "\n", &kept); line; line = strtok_r(NULL, "\n", &kept)) {
    assert_false(*done);
    assert_true(strncmp(line, "data: ", 6) == 0);
    if ((*done = strcmp(line, "data: [DONE]") == 0)) continue;
    json_t *event = json_loads(line + 6, 0, NULL), *choice;
    size_t i;
    assert_non_null(event);
    json_array_foreach(json_object_get(event, "choices"), i, choice) {
      size_t index = (size_t)json_integer_value(json_object_get(choice, "index"));
      const char *reason = json_string_value(json_object_get(choice, "finish_reason"));
      assert_true(index < 2);
      strncat(texts[index], json_string_value(json_object_get(choice, "text")), 4095 - strlen(texts[index]));
      if (reason) snprintf(reasons[index], 32, "%s", reason);
    }
    json_decref(event);
  }
}

static void the_events_of_a_stream_are_the_whole_reply(void **state) {
  (void)state;
  static const char body[] = "{\"model\":\"tiny\",\"prompt\":\"sort: b a\",\"max_tokens\":40,\"n\":2,\"temperature\":1.5,\"seed\":7,"
                             "\"ignore_eos\":true,\"stream\":%s}";
  char request[512], value[256], texts[2][4096] = {"", ""}, reasons[2][32] = {"", ""};
  served server;
  bool done = false;
  served_begin(&server, &model, "receipt", NONE);
  snprintf(request, sizeof request, body, "false");
  json_t *whole = object_of(served_ask(&server, "POST", "/v1/completions", "X-Request-Id: whole\r\n", request));
  snprintf(request, sizeof request, body, "true");
  served_reply stream = served_ask(&server, "POST", "/v1/completions", "X-Request-Id: stream\r\n", request);
  assert_true(stream.whole && stream.status == 200);
  assert_true(strncmp(served_header(&stream, "Content-Type", value), "text/event-stream", 17) == 0);
  join_events(stream.body, texts, reasons, &done);
  assert_true(done);
  for (size_t i = 0; i < 2; i++) {
    assert_string_equal(texts[i], text_of(whole, i));
    assert_string_equal(reasons[i], "length");
    assert_true(*texts[i]);
  }
  assert_string_not_equal(texts[0], texts[1]);
  free(stream.body);
  json_decref(whole);
  served_expect_error(served_ask(&server, "POST", "/v1/completions", "", "{\"prompt\":\"x\",\"stream\":true,\"max_tokens\":9999}"), 400,
                      "context_length_exceeded");
  static const char excluded[] = "{\"prompt\":\"x\",\"stream\":true,\"verbatim_require\":[\"fast_prefill\"]}";
  served_expect_error(served_ask(&server, "POST", "/v1/completions", "", excluded), 400, "refused_by_engine"); /* and no stream has begun */
  assert_int_equal(served_end(&server, SIGTERM), 0);
}

/* === Large requests ========================================================================================================= */

/* A body of that many bytes: a prompt far too long, which takes a while to detect. The caller frees it. */
static char *long_prompt(size_t bytes) {
  char *body = calloc(1, bytes + 1);
  for (size_t i = 0; i < bytes; i++) body[i] = "the quick brown fox "[i % 20];
  memcpy(body, "{\"prompt\":\"", 11);
  memcpy(body + bytes - 2, "\"}", 2);
  return body;
}

static void what_is_large_holds_nobody_up(void **state) {
  (void)state;
  served server;
  int large[4];
  char *body = long_prompt(4000000);
  served_begin(&server, &model, "receipt", NONE);
  for (size_t i = 0; i < ARRAY_LEN(large); i++) large[i] = served_post(&server, "/v1/completions", "", body);
  json_t *made = object_of(served_ask(&server, "POST", "/v1/completions", "", SHORT_BODY));
  assert_int_equal(poll(&(struct pollfd){.fd = large[3], .events = POLLIN}, 1, 0), 0); /* not yet */
  assert_string_equal(text_of(made, 0), "158");
  json_decref(made);
  close(large[1]); /* a client that leaves meanwhile leaves nothing allocated */
  for (size_t i = 0; i < ARRAY_LEN(large); i += i ? 1 : 2) {
    served_expect_error(served_read(large[i]), 400, "context_length_exceeded");
    close(large[i]);
  }
  served_wait(&server, "verbatim_request_memory_bytes{model_name=\"tiny\"}", 0);
  int last = served_post(&server, "/tokenize", "", body); /* finished, even if the server ends meanwhile */
  served_wait(&server, "verbatim_connections{model_name=\"tiny\"}", 2);
  kill(server.child, SIGTERM);
  served_expect_status(served_read(last), 200);
  close(last);
  free(body);
  assert_int_equal(served_end(&server, 0), 0);
}

/* Like small ones: the same texts, whichever thread wrote them. */
static void large_bodies_and_replies_are_whole(void **state) {
  (void)state;
  static const char ask[] = "{\"prompt\":\"sort: b a\",\"max_tokens\":200,\"ignore_eos\":true,\"temperature\":0%s}%*s";
  char *body = calloc(1, 100000);
  served server;
  served_begin(&server, &model, "receipt", NONE);
  snprintf(body, 100000, ask, "", 1, "");
  json_t *small = object_of(served_ask(&server, "POST", "/v1/completions", "", body));
  snprintf(body, 100000, ask, ",\"logprobs\":20", 90000, "");
  json_t *large = object_of(served_ask(&server, "POST", "/v1/completions", "", body));
  assert_string_equal(text_of(small, 0), text_of(large, 0));
  assert_int_equal(json_array_size(json_object_get(json_object_get(json_array_get(json_object_get(large, "choices"), 0), "logprobs"),
                                                   "top_logprobs")), 200);
  body[1] = '!';
  served_expect_error(served_ask(&server, "POST", "/v1/completions", "", body), 400, "invalid_json");
  json_decref(small);
  json_decref(large);
  free(body);
  assert_int_equal(served_end(&server, SIGTERM), 0);
}

/* === Chats ================================================================================================================== */

#define TINY_CHAT "{\"messages\":[{\"role\":\"user\",\"content\":\"add: 86+72=\"}],\"max_tokens\":8,\"temperature\":0,\"logprobs\":true," \
                  "\"top_logprobs\":2,\"stream\":%s}"

/* The content of a chat's events, and how many tokens they name; frees the reply. */
static size_t join_chat(served_reply reply, char text[256]) {
  size_t tokens = 0;
  bool has_role = false, done = false;
  char *kept = NULL;
  assert_true(reply.whole && reply.status == 200);
  for (char *line = strtok_r(reply.body, "\n", &kept); line; line = strtok_r(NULL, "\n", &kept)) {
    if ((done = strcmp(line, "data: [DONE]") == 0)) continue;
    json_t *event = json_loads(line + 6, 0, NULL), *choice = json_array_get(json_object_get(event, "choices"), 0);
    json_t *delta = json_object_get(choice, "delta"), *role = json_object_get(delta, "role");
    assert_string_equal(json_string_value(json_object_get(event, "object")), "chat.completion.chunk");
    assert_true(has_role != (role != NULL)); /* the first, and no other */
    has_role = true;
    if (json_object_get(delta, "content")) strncat(text, json_string_value(json_object_get(delta, "content")), 255 - strlen(text));
    tokens += json_array_size(json_object_get(json_object_get(choice, "logprobs"), "content"));
    json_decref(event);
  }
  assert_true(done);
  free(reply.body);
  return tokens;
}

static void a_chat_is_answered_as_its_text_is(void **state) {
  (void)state;
  served server;
  char body[512], text[256] = "";
  served_begin(&server, &model, "chats", NONE);
  snprintf(body, sizeof body, TINY_CHAT, "false");
  json_t *chat = object_of(served_ask(&server, "POST", "/v1/chat/completions", "X-Request-Id: whole\r\n", body));
  json_t *same = object_of(served_ask(&server, "POST", "/v1/completions", "X-Request-Id: text\r\n",
                                      "{\"prompt\":\"add: 86+72=\",\"max_tokens\":8,\"temperature\":0,\"logprobs\":2}"));
  const json_t *choice = json_array_get(json_object_get(chat, "choices"), 0), *message = json_object_get(choice, "message");
  assert_string_equal(json_string_value(json_object_get(chat, "object")), "chat.completion");
  assert_string_equal(json_string_value(json_object_get(message, "role")), "assistant");
  assert_string_equal(json_string_value(json_object_get(message, "content")), "158");
  assert_string_equal(json_string_value(json_object_get(choice, "finish_reason")), "stop");
  const json_t *entries = json_object_get(json_object_get(choice, "logprobs"), "content");
  const json_t *numbers = json_object_get(json_object_get(json_array_get(json_object_get(same, "choices"), 0), "logprobs"),
                                          "token_logprobs");
  assert_int_equal(json_array_size(entries), 4);
  assert_int_equal(json_array_size(numbers), 4);
  for (size_t i = 0; i < 4; i++) {
    const json_t *entry = json_array_get(entries, i);
    assert_true(json_equal(json_object_get(entry, "logprob"), json_array_get(numbers, i)));
    assert_int_equal(json_array_size(json_object_get(entry, "top_logprobs")), 2);
  }
  snprintf(body, sizeof body, TINY_CHAT, "true");
  assert_int_equal(join_chat(served_ask(&server, "POST", "/v1/chat/completions", "X-Request-Id: stream\r\n", body), text), 4);
  assert_string_equal(text, "158");
  served_expect_error(served_ask(&server, "POST", "/v1/chat/completions", "", "{\"prompt\":\"x\"}"), 400, "unknown_parameter");
  json_decref(chat);
  json_decref(same);
  assert_int_equal(served_end(&server, SIGTERM), 0);
  char *receipt = receipt_of(server.receipt), *lines[] = {line_of(receipt, "chatcmpl-whole"), line_of(receipt, "chatcmpl-stream"),
                                                          line_of(receipt, "cmpl-text")};
  assert_string_equal(strchr(lines[0], ','), strchr(lines[1], ','));
  assert_string_equal(strchr(lines[0], ','), strchr(lines[2], ','));
  for (size_t i = 0; i < 3; i++) free(lines[i]);
  free(receipt);
}

static void a_template_that_is_not_implemented_is_not_guessed(void **state) {
  (void)state;
  static const char copy[] = "mkdir -p strange && cp $TINY/*.* strange/ && printf '{%% include %%}' > strange/chat_template.jinja";
  e2e_model strange = model;
  served server;
  char body[512], output[256];
  if (e2e_shell(&model, "", copy, output, sizeof output) != 0) fail_msg("%s", output);
  snprintf(strange.model_dir, sizeof strange.model_dir, "%.900s/strange", model.folder);
  served_begin(&server, &strange, "receipt", NONE);
  for (int i = 0; i < 2; i++) {
    snprintf(body, sizeof body, TINY_CHAT, i ? "true" : "false");
    served_reply reply = served_ask(&server, "POST", "/v1/chat/completions", "", body);
    assert_non_null(strstr(reply.body, "/v1/completions")); /* the way out */
    served_expect_error(reply, 400, "unsupported_parameter");
  }
  served_expect_error(served_ask(&server, "POST", "/tokenize", "", "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}"), 400,
                      "unsupported_parameter");
  json_t *made = object_of(served_ask(&server, "POST", "/v1/completions", "", SHORT_BODY));
  assert_string_equal(text_of(made, 0), "158");
  json_decref(made);
  assert_int_equal(served_end(&server, SIGTERM), 0);
  /* A template of the caller's takes its place. */
  served_begin(&server, &strange, "receipt2", (const char *const[]){"--chat-template", "tests/data/chat/plain.jinja", NULL});
  json_t *ids = object_of(served_ask(&server, "POST", "/tokenize", "", "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}"));
  assert_int_equal(json_array_size(json_object_get(ids, "tokens")), 2); /* BOS, x */
  json_decref(ids);
  made = object_of(served_ask(&server, "GET", "/tokenizer_info", "", ""));
  assert_non_null(strstr(json_string_value(json_object_get(made, "chat_template")), "{% for message in messages %}"));
  json_decref(made);
  assert_int_equal(served_end(&server, SIGTERM), 0);
}

/* === Many at once =========================================================================================================== */

static void prompt_of(uint32_t client, char prompt[32]) { snprintf(prompt, 32, "add: %u+%u=", 13 + 7 * client, 90 - client); }

static void many_clients_have_what_each_has_alone(void **state) {
  (void)state;
  served server;
  int sockets[CLIENTS];
  char prompt[32], params[160], headers[64], body[256], output[4096], path[E2E_PATH_MAX];
  served_begin(&server, &model, "served", NONE);
  FILE *items = e2e_open(&model, "items", "wb");
  for (uint32_t i = 0; i < CLIENTS; i++) {
    prompt_of(i, prompt);
    snprintf(headers, sizeof headers, "X-Request-Id: %u\r\n", i);
    snprintf(params, sizeof params, "\"prompt\":\"%s\",\"max_tokens\":%u,\"temperature\":0.%u,\"seed\":%u", prompt, 6 + i % 9,
             i % 3 * 4, i);
    snprintf(body, sizeof body, "{\"model\":\"tiny\",%s,\"stream\":%s}", params, i % 2 ? "true" : "false");
    sockets[i] = served_post(&server, "/v1/completions", headers, body);
    fprintf(items, "{\"id\":\"cmpl-%u\",%s}\n", i, params);
  }
  fclose(items);
  for (uint32_t i = 0; i < CLIENTS; i++) {
    served_expect_status(served_read(sockets[i]), 200);
    close(sockets[i]);
  }
  served_wait(&server, "verbatim_request_memory_bytes{model_name=\"tiny\"}", 0);
  assert_int_equal(served_end(&server, SIGTERM), 0);
  int code = e2e_shell(&model, "", "$V run tiny.plan $TINY --device cpu --threads 1 --batch 1 --quiet --jsonl items --receipt alone > out",
                       output, sizeof output);
  if (code != 0) fail_msg("run: %s", output);
  snprintf(path, sizeof path, "%.900s/alone", model.folder);
  char *served_text = receipt_of(server.receipt), *alone = receipt_of(path);
  const char *ends[] = {strstr(served_text, "{\"digest\":"), strstr(alone, "{\"digest\":")};
  assert_true(ends[0] && ends[1]);
  assert_string_equal(ends[0], ends[1]); /* which does not depend on the order */
  free(served_text);
  free(alone);
}

static void clients_that_leave_are_cancelled_and_change_nobody_else(void **state) {
  (void)state;
  served server;
  char body[256], headers[64], name[64];
  int sockets[8];
  served_begin(&server, &model, "left", NONE);
  for (uint32_t k = 0; k < 8; k++) { /* those that will be left, then the others */
    uint32_t i = k < 4 ? 2 * k : 2 * k - 7;
    snprintf(body, sizeof body, LONG_BODY, i % 2 ? 40 : LONG_TOKENS, i % 4 < 2 ? "true" : "false");
    snprintf(headers, sizeof headers, "X-Request-Id: %u\r\n", i);
    sockets[i] = served_post(&server, "/v1/completions", headers, body);
    if (k == 3) served_wait(&server, "vllm:num_requests_running{model_name=\"tiny\"}", 4);
  }
  for (uint32_t i = 0; i < 8; i += 2) close(sockets[i]); /* streams, and whole replies */
  for (uint32_t i = 1; i < 8; i += 2) {
    served_expect_status(served_read(sockets[i]), 200);
    close(sockets[i]);
  }
  served_wait(&server, "verbatim_disconnected_total{model_name=\"tiny\"}", 4);
  served_wait(&server, "verbatim_request_memory_bytes{model_name=\"tiny\"}", 0);
  assert_true(served_metric(&server, "verbatim_requests_finished_total{finish=\"cancelled\"}") == 4);
  snprintf(body, sizeof body, LONG_BODY, 40u, "false");
  served_expect_status(served_ask(&server, "POST", "/v1/completions", "X-Request-Id: alone\r\n", body), 200);
  assert_int_equal(served_end(&server, SIGTERM), 0);
  char *receipt = receipt_of(server.receipt), *alone = line_of(receipt, "cmpl-alone");
  for (uint32_t i = 1; i < 8; i += 2) {
    snprintf(name, sizeof name, "cmpl-%u", i);
    char *line = line_of(receipt, name);
    assert_string_equal(strchr(line, ','), strchr(alone, ','));
    free(line);
  }
  for (uint32_t i = 0; i < 8; i += 2) {
    snprintf(name, sizeof name, "cmpl-%u", i);
    char *line = line_of(receipt, name);
    assert_non_null(strstr(line, "\"finish\":\"cancelled\""));
    free(line);
  }
  free(alone);
  free(receipt);
}

/* === Limits ================================================================================================================= */

static void too_much_is_refused_and_not_kept(void **state) {
  (void)state;
  static const char *const one[] = {"--batch", "1", "--max-waiting", "0", "--request-memory-bytes", "200000", NULL};
  served server;
  char body[256], value[256];
  served_begin(&server, &model, "receipt", one);
  snprintf(body, sizeof body, LONG_BODY, LONG_TOKENS, "true");
  int running = served_post(&server, "/v1/completions", "", body);
  served_wait(&server, "vllm:num_requests_running{model_name=\"tiny\"}", 1);
  served_reply full = served_ask(&server, "POST", "/v1/completions", "", SHORT_BODY);
  assert_string_equal(served_header(&full, "Retry-After", value), "1");
  served_expect_error(full, 429, "too_many_requests");
  served_expect_status(served_read(running), 200);
  close(running);
  served_wait(&server, "vllm:num_requests_running{model_name=\"tiny\"}", 0);
  served_expect_status(served_ask(&server, "POST", "/v1/completions", "", SHORT_BODY), 200); /* and there is room again */
  served_expect_error(served_ask(&server, "POST", "/v1/completions", "",
                                 "{\"model\":\"tiny\",\"prompt\":\"x\",\"max_tokens\":900,\"n\":64}"), 400,
                      "request_too_large");
  assert_true(served_metric(&server, "verbatim_refused_full_total{model_name=\"tiny\"}") == 1);
  assert_int_equal(served_end(&server, SIGTERM), 0);
}

static void bodies_share_the_memory_for_requests(void **state) {
  (void)state;
  static const char *const little[] = {"--request-memory-bytes", "100000", NULL};
  served server;
  char *part = calloc(1, 60001);
  served_begin(&server, &model, "receipt", little);
  memset(part, ' ', 60000);
  int holder = served_connect(&server);
  served_send(holder, POST "Content-Length: 60001\r\n\r\n%s", part);
  served_wait(&server, "verbatim_request_memory_bytes{model_name=\"tiny\"}", 65536); /* room doubles */
  served_expect_error(served_ask(&server, "POST", "/v1/completions", "", part), 429, "out_of_request_memory");
  close(holder);
  served_wait(&server, "verbatim_request_memory_bytes{model_name=\"tiny\"}", 0);
  served_expect_status(served_ask(&server, "POST", "/v1/completions", "", part), 400); /* read, and found to be invalid */
  free(part);
  assert_int_equal(served_end(&server, SIGTERM), 0);
}

static void heads_and_bodies_have_limits(void **state) {
  (void)state;
  static const char *const small[] = {"--max-body-bytes", "1000", NULL};
  served server;
  char *text = calloc(1, 20001), path[6000] = "/";
  served_begin(&server, &model, "receipt", small);
  memset(path + 1, 'a', 5000);
  served_expect_error(served_ask(&server, "GET", path, "", NULL), 414, "url_too_long");
  memset(text, 'a', 1100);
  served_expect_error(served_ask(&server, "POST", "/v1/completions", "", text), 413, "body_too_large");
  memset(text, 'a', 17000);
  memcpy(text, "X: ", 3);
  memcpy(text + 16998, "\r\n", 2);
  served_expect_error(served_ask(&server, "GET", "/health", text, NULL), 431, "headers_too_large");
  int to = served_connect(&server); /* chunks without a length: up to the limit, and above it */
  served_send(to, POST "Transfer-Encoding: chunked\r\n\r\n%zx\r\n%s\r\n0\r\n\r\n",
              strlen(SHORT_BODY), SHORT_BODY);
  served_expect_status(served_read(to), 200);
  served_send(to, POST "Transfer-Encoding: chunked\r\n\r\n");
  for (int i = 0; i < 15; i++) served_send(to, "64\r\n%0100d\r\n", i);
  served_send(to, "0\r\n\r\n");
  served_expect_error(served_read(to), 413, "body_too_large");
  served_send(to, POST "Transfer-Encoding: chunked\r\n\r\n");
  for (int i = 0; i < 30; i++) served_send(to, "64\r\n%0100d\r\n", i);
  served_expect_status(served_read(to), 0); /* one that continues is cut off */
  close(to);
  served_expect_error(served_ask(&server, "POST", "/v1/completions", "Content-Type: text/plain\r\n", NULL), 415, "unsupported_media_type");
  served_expect_error(served_ask(&server, "POST", "/v1/completions", "Transfer-Encoding: chunked\r\n", "{}"), 400, "bad_length");
  static const char *const unclear[] = {"Transfer-Encoding: gzip\r\n", "Transfer-Encoding: gzip, chunked\r\n",
                                        "Transfer-Encoding: identity\r\n", "Content-Length : 2\r\n", "Transfer-Encoding\t: chunked\r\n"};
  for (size_t i = 0; i < ARRAY_LEN(unclear); i++) { /* nothing after such a head is read, least of all as a request */
    to = served_connect(&server);
    served_send(to, POST "%s\r\nGET /health HTTP/1.1\r\nHost: x\r\n\r\n", unclear[i]);
    served_expect_error(served_read(to), 400, "bad_length");
    assert_true(seconds_until_closed(to) < 5);
    close(to);
  }
  assert_true(served_metric(&server, "verbatim_http_replies_total{code=\"200\"}") == 1); /* of the chunks above */
  served_expect_status(served_ask(&server, "POST", "/v1/completions", "", "{\"prompt\":"), 400);
  served_expect_status(served_ask(&server, "POST", "/v1/completions", "", ""), 400);
  served_expect_status(served_ask(&server, "GET", "/health", "", NULL), 200);
  free(text);
  assert_int_equal(served_end(&server, SIGTERM), 0);
}

static void requests_may_share_a_connection(void **state) {
  (void)state;
  served server;
  served_begin(&server, &model, "receipt", NONE);
  int to = served_connect(&server);
  for (int i = 0; i < 3; i++)
    served_send(to, POST "Content-Length: %zu\r\n\r\n%sGET /health HTTP/1.1\r\nHost: x\r\n\r\n",
                strlen(SHORT_BODY), SHORT_BODY);
  for (int i = 0; i < 3; i++) {
    json_t *made = object_of(served_read(to));
    assert_string_equal(text_of(made, 0), "158");
    json_decref(made);
    served_expect_status(served_read(to), 200);
  }
  served_send(to, POST "Content-Length: %zu\r\nExpect: 100-continue\r\n\r\n", strlen(SHORT_BODY));
  served_expect_status(served_read(to), 100);
  served_send(to, "%s", SHORT_BODY);
  served_expect_status(served_read(to), 200);
  close(to);
  assert_int_equal(served_end(&server, SIGTERM), 0);
}

/* Errors that do not depend on the body: a stream that is refused has not begun, and nothing is stored for either. */
static void what_only_the_engine_knows_is_refused_with_400(void **state) {
  (void)state;
  static const char *const axes[] = {"fast_prefill", "nonsense"};
  served server;
  char body[256];
  served_begin(&server, &model, "receipt", NONE);
  for (size_t i = 0; i < 4; i++) {
    snprintf(body, sizeof body, "{\"prompt\":\"x\",\"verbatim_require\":[\"%s\"],\"n\":2,\"stream\":%s}", axes[i / 2],
             i % 2 ? "true" : "false");
    served_reply reply = served_ask(&server, "POST", "/v1/completions", "", body);
    if (!reply.body || !strstr(reply.body, axes[i / 2])) fail_msg("expected %s, found %s", axes[i / 2], reply.body);
    served_expect_error(reply, 400, "refused_by_engine");
  }
  served_expect_status(served_ask(&server, "POST", "/v1/completions", "", SHORT_BODY), 200);
  served_wait(&server, "verbatim_request_memory_bytes{model_name=\"tiny\"}", 0);
  assert_int_equal(served_end(&server, SIGTERM), 0);
}

static void connections_beyond_the_limit_wait(void **state) {
  (void)state;
  static const char *const three[] = {"--max-connections", "3", NULL};
  served server;
  served_begin(&server, &model, "receipt", three);
  char body[256];
  snprintf(body, sizeof body, LONG_BODY, LONG_TOKENS, "false");
  int held[] = {served_post(&server, "/v1/completions", "", body), served_post(&server, "/v1/completions", "", body), -1};
  served_wait(&server, "vllm:num_requests_running{model_name=\"tiny\"}", 2);
  held[2] = served_post(&server, "/v1/completions", "", body);
  int waiting = served_post(&server, "/v1/completions", "", SHORT_BODY);
  assert_int_equal(poll(&(struct pollfd){.fd = waiting, .events = POLLIN}, 1, 200), 0);
  close(held[0]);
  served_expect_status(served_read(waiting), 200);
  close(waiting), close(held[1]), close(held[2]);
  assert_int_equal(served_end(&server, SIGTERM), 0);
}

/* One JSON line for each reply, whatever bytes the request had. */
static void the_access_log_has_every_reply(void **state) {
  (void)state;
  static const char *const paths[] = {"/v1/models", "/%ff%fe", "/a%0a%22%0d{}", "/health%00x", "/%e2%82", "/v1/models/t%69ny"};
  static const char *const seen[] = {"/v1/models", "/\xef\xbf\xbd\xef\xbf\xbd", "/a\n\"\r{}", "/health%00x",
                                     "/\xef\xbf\xbd\xef\xbf\xbd", "/v1/models/tiny"};
  static const int codes[] = {200, 404, 404, 404, 404, 200};
  char path[E2E_PATH_MAX], *kept = NULL;
  const char *const logged[] = {"--access-log", path, NULL};
  size_t count = 0;
  served server;
  snprintf(path, sizeof path, "%.900s/log", model.folder);
  served_begin(&server, &model, "receipt", logged);
  for (size_t i = 0; i < ARRAY_LEN(paths); i++) served_expect_status(served_ask(&server, "GET", paths[i], "", NULL), codes[i]);
  served_expect_status(served_ask(&server, "G\xff", "/health", "", NULL), 405);
  served_expect_status(served_ask(&server, "POST", "/v1/completions", "X-Request-Id: mine\r\n", SHORT_BODY), 200);
  assert_int_equal(served_end(&server, SIGTERM), 0);
  char *log = e2e_read_file(path, NULL);
  for (char *line = strtok_r(log, "\n", &kept); line; line = strtok_r(NULL, "\n", &kept), count++) {
    json_t *object = json_loads(line, JSON_REJECT_DUPLICATES, NULL);
    if (!object) fail_msg("expected JSON, found %s", line);
    if (count < ARRAY_LEN(paths)) {
      assert_string_equal(json_string_value(json_object_get(object, "path")), seen[count]);
      assert_int_equal(json_integer_value(json_object_get(object, "status")), codes[count]);
    }
    if (count == 7) {
      assert_string_equal(json_string_value(json_object_get(object, "id")), "mine");
      assert_int_equal(json_integer_value(json_object_get(object, "made_tokens")), 4);
      assert_true(json_is_true(json_object_get(object, "whole")));
    }
    json_decref(object);
  }
  assert_int_equal(count, 8);
  free(log);
}

/* === Clients that are slow ================================================================================================== */

static void slow_clients_are_not_waited_for(void **state) {
  (void)state;
  static const char *const hurry[] = {"--client-timeout", "2", NULL};
  served server;
  served_begin(&server, &model, "receipt", hurry);
  int silent = served_connect(&server), head = served_connect(&server), body = served_connect(&server);
  double begun = clock_seconds();
  served_send(head, "GET /health HTTP/1.1\r\n");
  served_send(body, POST "Content-Length: 1000\r\n\r\n");
  for (bool open = true; open && clock_seconds() - begun < 20;) { /* a byte now and then, which does not count as a pause */
    struct pollfd ends[] = {{.fd = head, .events = POLLIN}, {.fd = body, .events = POLLIN}};
    served_send(head, "X");
    served_send(body, " ");
    poll(NULL, 0, 100);
    poll(ends, 2, 0);
    open = !(ends[0].revents && ends[1].revents);
  }
  double seconds = clock_seconds() - begun;
  assert_true(seconds > 1.5 && seconds < 10);
  assert_true(seconds_until_closed(silent) < 10);
  served_expect_status(served_ask(&server, "GET", "/health", "", NULL), 200);
  served_wait(&server, "verbatim_connections{model_name=\"tiny\"}", 1); /* this one */
  close(silent), close(head), close(body);
  assert_int_equal(served_end(&server, SIGTERM), 0);
}

static void a_client_that_does_not_read_is_cut_off(void **state) {
  (void)state;
  static const char *const hurry[] = {"--client-timeout", "1", NULL};
  served server;
  served_begin(&server, &model, "receipt", hurry);
  int deaf = served_post(&server, "/v1/completions", "", "{\"prompt\":\"x\",\"max_tokens\":900,\"ignore_eos\":true,\"stream\":true,"
                                                         "\"logprobs\":20,\"n\":2,\"temperature\":0}");
  served_wait(&server, "verbatim_disconnected_total{model_name=\"tiny\"}", 1); /* its requests, too, end early */
  served_wait(&server, "verbatim_request_memory_bytes{model_name=\"tiny\"}", 0);
  served_reply reply = served_read(deaf);
  assert_false(reply.whole);
  free(reply.body);
  close(deaf);
  assert_int_equal(served_end(&server, SIGTERM), 0);
}

/* === Keys =================================================================================================================== */

static void a_key_is_asked_for(void **state) {
  (void)state;
  static const char *const key[] = {"--api-key", "s3cret", NULL};
  served server;
  char value[256];
  served_begin(&server, &model, "receipt", key);
  served_reply without = served_ask(&server, "GET", "/v1/models", "", NULL);
  assert_string_equal(served_header(&without, "WWW-Authenticate", value), "Bearer");
  served_expect_error(without, 401, "invalid_api_key");
  served_expect_error(served_ask(&server, "GET", "/v1/models", "Authorization: Bearer s3creT\r\n", NULL), 401, "invalid_api_key");
  served_expect_error(served_ask(&server, "GET", "/v1/models", "Authorization: Bearer s3cret2\r\n", NULL), 401, "invalid_api_key");
  served_expect_error(served_ask(&server, "POST", "/v1/completions", "", SHORT_BODY), 401, "invalid_api_key");
  served_expect_error(served_ask(&server, "GET", "/nothing", "", NULL), 401, "invalid_api_key");
  served_expect_error(served_ask(&server, "GET", "/metrics", "", NULL), 401, "invalid_api_key");
  served_expect_status(served_ask(&server, "GET", "/v1/models", "Authorization: Bearer s3cret\r\n", NULL), 200);
  served_expect_status(served_ask(&server, "GET", "/health", "", NULL), 200);
  served_expect_status(served_ask(&server, "GET", "/version", "", NULL), 200);
  assert_int_equal(served_end(&server, SIGTERM), 0);
  setenv("VERBATIM_API_KEY", "other", 1);
  served_begin(&server, &model, "receipt", NONE);
  unsetenv("VERBATIM_API_KEY");
  served_expect_error(served_ask(&server, "GET", "/v1/models", "", NULL), 401, "invalid_api_key");
  served_expect_status(served_ask(&server, "GET", "/v1/models", "Authorization: bearer other\r\n", NULL), 200);
  assert_int_equal(served_end(&server, SIGTERM), 0);
}

/* === The end ================================================================================================================ */

static void a_signal_lets_requests_finish(void **state) {
  (void)state;
  static const char *const patient[] = {"--drain-timeout", "600", NULL};
  served server;
  char body[256];
  served_begin(&server, &model, "drained", patient);
  int kept = served_connect(&server);
  served_send(kept, "GET /health HTTP/1.1\r\nHost: x\r\n\r\n");
  served_expect_status(served_read(kept), 200);
  snprintf(body, sizeof body, LONG_BODY, 300u, "false");
  int running = served_post(&server, "/v1/completions", "X-Request-Id: last\r\n", body);
  served_wait(&server, "vllm:num_requests_running{model_name=\"tiny\"}", 1);
  kill(server.child, SIGTERM);
  for (int late = 0; late < 500; late++) { /* until the port is closed */
    int to = served_connect(&server);
    if (to < 0) break;
    close(to);
    poll(NULL, 0, 10);
  }
  served_send(kept, "GET /health HTTP/1.1\r\nHost: x\r\n\r\n");
  served_expect_status(served_read(kept), 503);
  served_expect_status(served_read(running), 200);
  close(kept);
  close(running);
  assert_int_equal(served_end(&server, 0), 0);
  char *receipt = receipt_of(server.receipt), *line = line_of(receipt, "cmpl-last");
  assert_non_null(strstr(line, "\"finish\":\"length\""));
  assert_non_null(strstr(receipt, "\n{\"digest\":"));
  free(line);
  free(receipt);
}

static void requests_that_take_too_long_are_told_so(void **state) {
  (void)state;
  static const char *const at_once[] = {"--drain-timeout", "0", NULL};
  for (int second = 0; second < 2; second++) { /* no time to finish; and a second signal */
    served server;
    char body[256];
    served_begin(&server, &model, "cut", second ? NONE : at_once);
    snprintf(body, sizeof body, LONG_BODY, 1000u, "false");
    int waiting = served_post(&server, "/v1/completions", "X-Request-Id: cut\r\n", body);
    snprintf(body, sizeof body, LONG_BODY, 1000u, "true");
    int stream = served_post(&server, "/v1/completions", "", body);
    served_wait(&server, "vllm:num_requests_running{model_name=\"tiny\"}", 2);
    assert_int_equal(poll(&(struct pollfd){.fd = stream, .events = POLLIN}, 1, 1000 * SERVE_CLIENT_SECONDS), 1); /* it has begun */
    kill(server.child, SIGINT);
    if (second) poll(NULL, 0, 50), kill(server.child, SIGTERM);
    served_expect_error(served_read(waiting), 503, "shutting_down");
    served_reply cut = served_read(stream);
    assert_non_null(strstr(cut.body, "shutting_down"));
    served_expect_status(cut, 200);
    close(waiting);
    close(stream);
    assert_int_equal(served_end(&server, 0), 0);
    char *receipt = receipt_of(server.receipt), *line = line_of(receipt, "cmpl-cut");
    assert_non_null(strstr(line, "\"finish\":\"cancelled\""));
    assert_non_null(strstr(receipt, "\n{\"digest\":"));
    free(line);
    free(receipt);
  }
}

static void a_restart_changes_no_byte(void **state) {
  (void)state;
  static const char body[] = "{\"prompt\":[\"add: 4+4=\",\"sort: c b\"],\"max_tokens\":20,\"n\":3,\"temperature\":1,\"seed\":5,"
                             "\"logprobs\":5,\"echo\":true}";
  static const char *const other[] = {"--batch", "3", "--chunk", "5", "--shuffle-pages", "9", NULL};
  char *first = NULL;
  for (int i = 0; i < 3; i++) {
    served server;
    served_begin(&server, &model, "receipt", i == 2 ? other : NONE);
    char *found = served_timeless(served_ask(&server, "POST", "/v1/completions", "X-Request-Id: same\r\n", body));
    if (first) assert_string_equal(found, first);
    if (first) free(found);
    else first = found;
    assert_int_equal(served_end(&server, SIGTERM), 0);
  }
  free(first);
}

#if !defined(__SANITIZE_ADDRESS__) /* it keeps freed memory for a while */
static long resident_pages(pid_t child) {
  char path[64];
  long pages = 0;
  snprintf(path, sizeof path, "/proc/%d/statm", (int)child);
  FILE *file = fopen(path, "rb");
  assert_non_null(file);
  assert_int_equal(fscanf(file, "%*d %ld", &pages), 1);
  fclose(file);
  return pages;
}

static void memory_does_not_grow(void **state) {
  (void)state;
  served server;
  long before = 0;
  served_begin(&server, &model, "receipt", NONE);
  for (int i = 0; i < 600; i++) {
    if (i == 200) before = resident_pages(server.child);
    served_expect_status(served_ask(&server, "POST", "/v1/completions", "", SHORT_BODY), 200);
    served_expect_status(served_ask(&server, "GET", "/v1/models", "", NULL), 200);
  }
  long grown = (resident_pages(server.child) - before) * sysconf(_SC_PAGESIZE);
  if (grown > 1 << 20) fail_msg("grew by %ld bytes in 400 requests", grown);
  assert_int_equal(served_end(&server, SIGTERM), 0);
}
#endif

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_endpoint_answers), cmocka_unit_test(the_events_of_a_stream_are_the_whole_reply),
    cmocka_unit_test(many_clients_have_what_each_has_alone), cmocka_unit_test(clients_that_leave_are_cancelled_and_change_nobody_else),
    cmocka_unit_test(too_much_is_refused_and_not_kept), cmocka_unit_test(bodies_share_the_memory_for_requests),
    cmocka_unit_test(heads_and_bodies_have_limits), cmocka_unit_test(requests_may_share_a_connection),
    cmocka_unit_test(the_access_log_has_every_reply), cmocka_unit_test(a_chat_is_answered_as_its_text_is),
    cmocka_unit_test(a_template_that_is_not_implemented_is_not_guessed), cmocka_unit_test(what_only_the_engine_knows_is_refused_with_400),
    cmocka_unit_test(connections_beyond_the_limit_wait), cmocka_unit_test(what_is_large_holds_nobody_up),
    cmocka_unit_test(large_bodies_and_replies_are_whole),
    cmocka_unit_test(slow_clients_are_not_waited_for), cmocka_unit_test(a_client_that_does_not_read_is_cut_off),
    cmocka_unit_test(a_key_is_asked_for), cmocka_unit_test(a_signal_lets_requests_finish),
    cmocka_unit_test(requests_that_take_too_long_are_told_so), cmocka_unit_test(a_restart_changes_no_byte),
#if !defined(__SANITIZE_ADDRESS__)
    cmocka_unit_test(memory_does_not_grow),
#endif
  };
  e2e_begin(argc, argv);
  served_make_model(&model, DEPLOY);
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  e2e_remove(&model);
  return failed;
}

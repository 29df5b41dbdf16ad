/* test_serve_clients.c - what clients written for other servers send to `verbatim serve`, with the shipped model on the CPU: endpoints that
 * are not offered, options of streams, keys of messages, and vLLM's way to empty the prefix cache. */
#include "tests/unit/unit.h"
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "engine/base/base.h"
#include "serve_client.h"

#define NONE (const char *const[]){NULL}
static const char DEPLOY[] = "max-num-seqs: 16\nmax-num-batched-tokens: 128\nmax-model-len: 1024\nkv_pages: 256\nladder: [1, 4, 16]\n";

static e2e_model model;

/* === Endpoints that are not offered ========================================================================================= */

static void what_is_not_offered_is_no_404(void **state) {
  (void)state;
  static const struct { const char *method, *path, *headers, *body; } asked[] = {
    {"POST", "/v1/embeddings", "", "{\"model\":\"tiny\",\"input\":\"x\"}"},
    {"POST", "/v1/responses", "", "{\"model\":\"tiny\",\"input\":\"x\"}"},
    {"POST", "/v1/audio/transcriptions", "Content-Type: multipart/form-data; boundary=x\r\n", "--x--\r\n"},
    {"GET", "/v1/files", "", NULL}, {"DELETE", "/v1/threads/a", "", NULL}};
  served server;
  served_begin(&server, &model, "receipt", NONE);
  for (size_t i = 0; i < ARRAY_LEN(asked); i++) {
    served_reply reply = served_ask(&server, asked[i].method, asked[i].path, asked[i].headers, asked[i].body);
    if (!reply.body || !strstr(reply.body, "hint: ")) fail_msg("%s: %s", asked[i].path, reply.body);
    served_expect_error(reply, 400, "unsupported_endpoint");
  }
  served_expect_error(served_ask(&server, "POST", "/v1/nonsense", "", "{}"), 404, "not_found");
  assert_int_equal(served_end(&server, SIGTERM), 0);
}

/* === Streams ================================================================================================================ */

/* As a load generator sends it, which counts the tokens of each event by its usage. */
static void every_event_has_its_usage(void **state) {
  (void)state;
  static const char body[] = "{\"model\":\"tiny\",\"messages\":[{\"role\":\"user\",\"content\":\"add: 86+72=\",\"cache_control\":{\"type\":"
                             "\"ephemeral\"}}],\"temperature\":0,\"max_tokens\":8.0,\"stream\":true,\"stream_options\":{"
                             "\"include_usage\":true,\"continuous_usage_stats\":true,\"include_obfuscation\":false}}";
  served server;
  char *kept = NULL;
  json_int_t last = 0;
  json_t *ignored = NULL;
  served_begin(&server, &model, "receipt", NONE);
  served_reply reply = served_ask(&server, "POST", "/v1/chat/completions", "", body);
  assert_int_equal(reply.status, 200);
  for (char *line = strtok_r(reply.body, "\n", &kept); line; line = strtok_r(NULL, "\n", &kept)) {
    if (strcmp(line, "data: [DONE]") == 0) continue;
    json_t *event = json_loads(line + 6, 0, NULL);
    const json_t *usage = json_object_get(event, "usage");
    json_int_t prompt = json_integer_value(json_object_get(usage, "prompt_tokens"));
    json_int_t made = json_integer_value(json_object_get(usage, "completion_tokens"));
    assert_true(prompt > 0 && made >= last && json_integer_value(json_object_get(usage, "total_tokens")) == prompt + made);
    last = made;
    if (json_object_get(event, "verbatim")) ignored = json_deep_copy(json_object_get(json_object_get(event, "verbatim"), "ignored"));
    json_decref(event);
  }
  assert_int_equal(last, 4);
  assert_int_equal(json_array_size(ignored), 1);
  assert_string_equal(json_string_value(json_array_get(ignored, 0)), "messages[0].cache_control");
  json_decref(ignored);
  free(reply.body);
  assert_int_equal(served_end(&server, SIGTERM), 0);
}

/* === The prefix cache ======================================================================================================= */

/* An outside judge can ask cold: the same request takes nothing from the cache, and its bytes are the same. */
static void the_prefix_cache_can_be_emptied(void **state) {
  (void)state;
  static const char *const key[] = {"--api-key", "s3cret", NULL};
  static const char bearer[] = "Authorization: Bearer s3cret\r\nX-Request-Id: same\r\n";
  static const char sample[] = "\nverbatim_reused_tokens_total ";
  char body[2048] = "{\"max_tokens\":4,\"temperature\":0,\"logprobs\":5,\"prompt\":[5", value[256];
  served server;
  for (int i = 0; i < 200; i++) strcat(body, i % 3 ? ",7" : ",240");
  strcat(body, "]}");
  served_begin(&server, &model, "receipt", key);
  char *replies[3];
  double reused[3];
  for (int i = 0; i < 3; i++) {
    if (i == 2) {
      served_expect_error(served_ask(&server, "POST", "/reset_prefix_cache", "", ""), 401, "invalid_api_key");
      served_expect_error(served_ask(&server, "POST", "/reset_prefix_cache", bearer, "{\"all\":true}"), 400, "invalid_value");
      served_reply reset = served_ask(&server, "POST", "/reset_prefix_cache", bearer, "");
      assert_true(reset.bytes == 0 && !*served_header(&reset, "Content-Type", value));
      served_expect_status(reset, 200);
    }
    replies[i] = served_timeless(served_ask(&server, "POST", "/v1/completions", bearer, body));
    served_reply metrics = served_ask(&server, "GET", "/metrics", bearer, NULL);
    const char *at = metrics.body ? strstr(metrics.body, sample) : NULL;
    assert_non_null(at);
    reused[i] = strtod(at + strlen(sample), NULL);
    served_expect_status(metrics, 200);
  }
  assert_true(reused[0] == 0 && reused[1] == 192 && reused[2] == 192); /* three pages of 64, once */
  for (int i = 1; i < 3; i++) assert_string_equal(replies[i], replies[0]);
  for (int i = 0; i < 3; i++) free(replies[i]);
  assert_int_equal(served_end(&server, SIGTERM), 0);
}

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(what_is_not_offered_is_no_404), cmocka_unit_test(every_event_has_its_usage),
                                     cmocka_unit_test(the_prefix_cache_can_be_emptied)};
  e2e_begin(argc, argv);
  served_make_model(&model, DEPLOY);
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  e2e_remove(&model);
  return failed;
}

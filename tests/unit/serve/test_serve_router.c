/* test_serve_router.c - the checks on the head of a request: paths, methods, keys, lengths, and the order in which their errors are
 * reported. */
#include "tests/unit/unit.h"
#include <stdlib.h>
#include <string.h>
#include "engine/serve/router.h"

static const serve_router OPEN = {.body_bytes_max = 1000}, LOCKED = {.api_key = "s3cret", .body_bytes_max = 1000};

static serve_head head_of(const char *method, const char *url) {
  return (serve_head){.method = method, .url = url, .content_type = strcmp(method, "POST") == 0 ? "application/json" : NULL};
}

static void expect_in(const serve_router *router, serve_head head, enum serve_endpoint endpoint) {
  const serve_route *route = NULL;
  serve_fault fault = {0};
  if (!serve_router_judge(router, &head, &route, &fault)) fail_msg("%s %s: %s", head.method, head.url, fault.message);
  assert_int_equal(route->endpoint, endpoint);
}

static serve_fault expect_out(const serve_router *router, serve_head head, unsigned http_status, const char *code) {
  const serve_route *route = NULL;
  serve_fault fault = {0};
  assert_false(serve_router_judge(router, &head, &route, &fault));
  assert_int_equal(fault.http_status, http_status);
  assert_string_equal(fault.code, code);
  assert_true(*fault.message && *fault.type);
  return fault;
}

static void every_path_has_its_methods(void **state) {
  (void)state;
  static const struct { const char *path; enum serve_endpoint endpoint; bool is_post; } all[] = {
    {"/v1/completions", SERVE_COMPLETIONS, true}, {"/v1/chat/completions", SERVE_CHAT_COMPLETIONS, true},
    {"/tokenize", SERVE_TOKENIZE, true}, {"/reset_prefix_cache", SERVE_RESET_CACHE, true},
    {"/detokenize", SERVE_DETOKENIZE, true}, {"/v1/models", SERVE_MODELS, false}, {"/v1/models/a/b", SERVE_MODEL, false},
    {"/health", SERVE_HEALTH, false}, {"/version", SERVE_VERSION, false}, {"/metrics", SERVE_METRICS, false},
    {"/tokenizer_info", SERVE_TOKENIZER_INFO, false}, {"/", SERVE_ROOT, false}, {"/ping", SERVE_HEALTH, false},
    {"/load", SERVE_LOAD, false}};
  static const char *const methods[] = {"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "get", "GETS", ""};
  for (size_t i = 0; i < ARRAY_LEN(all); i++)
    for (size_t k = 0; k < ARRAY_LEN(methods); k++) {
      serve_head head = head_of(methods[k], all[i].path);
      const serve_route *route = NULL;
      if (all[i].is_post ? k == 2 : k < 2) {
        expect_in(&OPEN, head, all[i].endpoint);
        continue;
      }
      serve_fault fault = expect_out(&OPEN, head, 405, "method_not_allowed");
      assert_non_null(strstr(fault.message, all[i].path));
      (void)serve_router_judge(&OPEN, &head, &route, &fault);
      assert_string_equal(serve_router_allow(route), all[i].is_post ? "POST" : "GET, HEAD");
    }
}

static void paths_are_exact(void **state) {
  (void)state;
  static const char *const none[] = {"", "*", "/v1", "/v1/", "/health/", "//health", "/Health", "/health%00x",
                                     "/v1/../health", "/healthy", "/v1/models/", "/v1/chat/", "/v1/chat", "http://x/health", "/version\n",
                                     "/v1/model"};
  for (size_t i = 0; i < ARRAY_LEN(none); i++) expect_out(&OPEN, head_of("GET", none[i]), 404, "not_found");
}

/* With 404 a router in front of several servers would take the model out of service for all. */
static void endpoints_that_are_not_offered_say_what_is(void **state) {
  (void)state;
  static const struct { const char *path, *word; } lacked[] = {
    {"/v1/embeddings", "embedding model"}, {"/v1/responses", "/v1/chat/completions"},
    {"/v1/responses/resp_1/cancel", "/v1/chat/completions"},
    {"/v1/images/generations", "text only"}, {"/v1/audio/speech", "text only"}, {"/v1/moderations", "/v1/chat/completions"},
    {"/v1/files", "in the request"}, {"/v1/files/file-1/content", "in the request"}, {"/v1/batches", "verbatim run --jsonl"},
    {"/v1/fine_tuning/jobs", "not changed"}, {"/v1/assistants", "/v1/chat/completions"}, {"/v1/threads/t/runs", "/v1/chat/completions"},
    {"/v1/vector_stores", "in the request"}, {"/v1/chat/completions/chatcmpl-1", "stored"}, {"/v1/messages", "/v1/chat/completions"}};
  static const char *const unknown[] = {"/v1/embeddingsx", "/v1/embedding", "/embeddings", "/v1/response"};
  static const char *const methods[] = {"GET", "POST", "DELETE"};
  for (size_t i = 0; i < ARRAY_LEN(lacked); i++)
    for (size_t k = 0; k < ARRAY_LEN(methods); k++) {
      serve_fault fault = expect_out(&OPEN, head_of(methods[k], lacked[i].path), 400, "unsupported_endpoint");
      assert_string_equal(fault.type, "invalid_request_error");
      if (!strstr(fault.message, lacked[i].path) || !strstr(fault.message, lacked[i].word)) fail_msg("%s", fault.message);
      expect_out(&LOCKED, head_of(methods[k], lacked[i].path), 401, "invalid_api_key");
    }
  for (size_t i = 0; i < ARRAY_LEN(unknown); i++) expect_out(&OPEN, head_of("POST", unknown[i]), 404, "not_found");
}

static void a_key_is_the_whole_key(void **state) {
  (void)state;
  static const char *const wrong[] = {NULL, "", "s3cret", "Bearer", "Bearer ", "Bearer s3cre", "Bearer s3crets", "Bearer S3cret",
                                      "Bearer  s3cret", "Bearer s3cret ", "Basic s3cret", "Bearer\ts3cret", "Bearer s3creT",
                                      "Bearer \xf3" "3cret"};
  for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
    serve_head head = head_of("GET", "/v1/models");
    head.authorization = wrong[i];
    serve_fault fault = expect_out(&LOCKED, head, 401, "invalid_api_key");
    assert_string_equal(fault.type, "authentication_error");
    assert_null(strstr(fault.message, "s3cret"));
    expect_in(&OPEN, head, SERVE_MODELS);
    head.url = "/health";
    expect_in(&LOCKED, head, SERVE_HEALTH);
    head.url = "/version";
    expect_in(&LOCKED, head, SERVE_VERSION);
  }
  serve_head head = head_of("GET", "/v1/models");
  head.authorization = "Bearer s3cret";
  expect_in(&LOCKED, head, SERVE_MODELS);
  head.authorization = "bEARER s3cret";
  expect_in(&LOCKED, head, SERVE_MODELS);
}

/* A client without a key learns neither which paths exist nor which methods they accept. */
static void without_the_key_nothing_else_is_said(void **state) {
  (void)state;
  static const char *const urls[] = {"/nothing", "/v1/completions", "/metrics", "/tokenize", "/tokenizer_info", "/v1/models/x",
                                     "/reset_prefix_cache"};
  for (size_t i = 0; i < ARRAY_LEN(urls); i++) {
    serve_head head = head_of("DELETE", urls[i]);
    head.content_type = "text/plain";
    head.content_length = "999999";
    head.length_count = 3;
    expect_out(&LOCKED, head, 401, "invalid_api_key");
  }
}

static void lengths_have_limits(void **state) {
  (void)state;
  char url[SERVE_ROUTER_URL_BYTES_MAX + 2] = "/v1/models/";
  serve_head head = head_of("GET", url);
  memset(url + 11, 'a', SERVE_ROUTER_URL_BYTES_MAX - 11);
  expect_in(&OPEN, head, SERVE_MODEL);
  url[SERVE_ROUTER_URL_BYTES_MAX] = 'a';
  expect_out(&OPEN, head, 414, "url_too_long");
  head = head_of("GET", "/health");
  head.bytes = SERVE_ROUTER_HEAD_BYTES_MAX;
  expect_in(&OPEN, head, SERVE_HEALTH);
  head.bytes++;
  expect_out(&OPEN, head, 431, "headers_too_large");
  head = head_of("POST", "/tokenize");
  head.content_length = "1000";
  expect_in(&OPEN, head, SERVE_TOKENIZE);
  head.content_length = "1001";
  expect_out(&OPEN, head, 413, "body_too_large");
  head.content_length = "99999999999999999999999";
  expect_out(&OPEN, head, 413, "body_too_large");
}

static void a_body_has_one_length(void **state) {
  (void)state;
  static const char *const wrong[] = {"gzip", "identity", "gzip, chunked", "chunked, chunked", "xchunked", "chunked;q=1", "", "\vchunked"};
  serve_head head = head_of("POST", "/tokenize");
  head.length_count = 1;
  head.transfer_encoding = "Chunked";
  assert_true(serve_router_is_framed(&head));
  expect_in(&OPEN, head, SERVE_TOKENIZE);
  for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
    head.transfer_encoding = wrong[i];
    assert_false(serve_router_is_framed(&head));
    expect_out(&OPEN, head, 400, "bad_length");
  }
  head = head_of("POST", "/tokenize");
  head.length_count = 2;
  assert_false(serve_router_is_framed(&head));
  expect_out(&OPEN, head, 400, "bad_length");
  head.length_count = 0;
  expect_in(&OPEN, head, SERVE_TOKENIZE);
  head.has_wrong_name = true;
  expect_out(&OPEN, head, 400, "bad_length");
}

static void a_body_is_json(void **state) {
  (void)state;
  static const char *const good[] = {"application/json", "Application/JSON", "application/json; charset=utf-8", "application/json;x",
                                     "application/json ;charset=utf-8"};
  static const char *const wrong[] = {NULL, "", "text/plain", "application/jsonl", "application/json-patch+json", "multipart/form-data"};
  serve_head head = head_of("POST", "/v1/completions");
  for (size_t i = 0; i < ARRAY_LEN(good); i++) {
    head.content_type = good[i];
    expect_in(&OPEN, head, SERVE_COMPLETIONS);
  }
  for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
    head.content_type = wrong[i];
    expect_out(&OPEN, head, 415, "unsupported_media_type");
  }
}

static void a_body_is_not_compressed(void **state) {
  (void)state;
  serve_head head = head_of("POST", "/v1/completions");
  head.content_encoding = "Identity";
  expect_in(&OPEN, head, SERVE_COMPLETIONS);
  static const char *const wrong[] = {"gzip", "", "identity, gzip", "br"};
  for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
    head.content_encoding = wrong[i];
    expect_out(&OPEN, head, 415, "unsupported_content_encoding");
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_body_is_not_compressed),
    cmocka_unit_test(endpoints_that_are_not_offered_say_what_is),
    cmocka_unit_test(every_path_has_its_methods), cmocka_unit_test(paths_are_exact), cmocka_unit_test(a_key_is_the_whole_key),
    cmocka_unit_test(without_the_key_nothing_else_is_said), cmocka_unit_test(lengths_have_limits), cmocka_unit_test(a_body_has_one_length),
    cmocka_unit_test(a_body_is_json)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

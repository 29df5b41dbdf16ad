/* test_serve_wire.c - `verbatim serve` byte by byte: invalid requests, HTTP/1.0, pipelined requests, clients that close their side or
 * leave, exhausted sockets. test_serve.c tests the content of requests. */
#define _GNU_SOURCE /* prlimit */
#include "tests/unit/unit.h"
#include <jansson.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>
#include "engine/base/base.h"
#include "engine/base/clock.h"
#include "serve_client.h"

#define NONE (const char *const[]){NULL}
#define HEALTH "GET /health HTTP/1.1\r\nHost: x\r\n\r\n"
#define SILENT 12
#define ASKS "Access-Control-Request-Method: POST\r\n"
#define JSON "Content-Type: application/json\r\n"
#define POST "POST /v1/completions HTTP/1.1\r\nHost: x\r\n" JSON
static const char DEPLOY[] = "max-num-seqs: 4\nmax-num-batched-tokens: 128\nmax-model-len: 1024\nkv_pages: 64\nladder: [1, 4]\n";
static const char SHORT_BODY[] = "{\"prompt\":\"add: 86+72=\",\"max_tokens\":8,\"temperature\":0,\"stream\":true}";
/* Runs until its last token, and takes a while. */
static const char LONG_BODY[] = "{\"prompt\":\"reverse: long\",\"max_tokens\":900,\"ignore_eos\":true,\"temperature\":0}";

static e2e_model model;

/* === Helpers ================================================================================================================ */

/* The rest of what the server sends, up to the end of the connection; the caller frees it. Null: the connection was reset. */
static char *read_to_end(int from) {
  size_t count = 0, room = 1 << 16;
  char *bytes = malloc(room);
  ssize_t part = 1;
  assert_non_null(bytes);
  while (part > 0 && count + 1 < room) {
    part = recv(from, bytes + count, room - count - 1, 0);
    if (part > 0) count += (size_t)part;
  }
  bytes[count] = 0;
  if (part == 0) return bytes;
  free(bytes);
  return NULL;
}

static void expect_end(int socket) {
  char *rest = read_to_end(socket);
  assert_non_null(rest);
  assert_string_equal(rest, "");
  free(rest);
  close(socket);
}

static bool is_open(int socket) { return poll(&(struct pollfd){.fd = socket, .events = POLLIN}, 1, 50) == 0; }

static void post(int to, const char *body) { served_send(to, POST "Content-Length: %zu\r\n\r\n%s", strlen(body), body); }

/* === Invalid requests ======================================================================================================= */

/* One refusal, then the connection ends: the rest is not read, least of all as a request. */
static void what_is_no_request_is_refused_and_ends_the_connection(void **state) {
  (void)state;
  static const char *const all[] = {
    "GET /health HTTP/1.1\r\n\r\n", "GET /health HTTP/1.1\nHost: x\n\n", "GET /health HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
    "GET /health HTTP/1.1\r\nHost: x\r\nA: b\r\n c\r\n\r\n", "GET  /health HTTP/1.1\r\nHost: x\r\n\r\n",
    POST "Content-Length: x\r\n\r\n", POST "Content-Length: +2\r\n\r\n{}", "\x16\x03\x01\x02\r\n",
    POST "Transfer-Encoding: chunked\r\n\r\n2\r\n{}XX0\r\n\r\n", POST "Transfer-Encoding: chunked\r\n\r\nx\r\n{}\r\n0\r\n\r\n"};
  served server;
  char value[256];
  served_begin(&server, &model, "receipt", NONE);
  for (size_t i = 0; i < ARRAY_LEN(all); i++) {
    int to = served_connect(&server);
    served_send(to, HEALTH "\r\n%s" HEALTH, all[i]);
    served_expect_status(served_read(to), 200); /* earlier requests are answered */
    served_reply reply = served_read(to);
    assert_string_equal(served_header(&reply, "Connection", value), "close");
    assert_int_equal(strlen(served_header(&reply, "X-Request-Id", value)), 24);
    served_expect_error(reply, 400, "malformed_request");
    expect_end(to);
  }
  int to = served_connect(&server);
  for (const char *c = "\r\n\r\n"; *c; c++) { /* empty lines before a request are ignored, however they are split */
    served_send(to, "%c", *c);
    poll(NULL, 0, 20);
  }
  served_send(to, HEALTH "\r\n\n");
  served_expect_status(served_read(to), 200);
  served_expect_error(served_read(to), 400, "malformed_request");
  expect_end(to);
  to = served_connect(&server);
  served_send(to, "GET /health HTTP/2.0\r\nHost: x\r\n\r\n");
  served_expect_error(served_read(to), 505, "http_version_not_supported");
  expect_end(to);
  assert_true(served_metric(&server, "verbatim_http_replies_total{code=\"400\"}") == ARRAY_LEN(all) + 1);
  assert_int_equal(served_end(&server, SIGTERM), 0);
}

#define SMUGGLED "GET /version HTTP/1.1\r\nHost: x\r\n\r\n"
#define CHUNKED "Transfer-Encoding: chunked\r\n"

/* The published families of request smuggling: heads and chunks in which one of two parsers finds another end of the body. Each gets one
 * refusal, and the request hidden after it no reply. */
static void smuggled_requests_are_not_answered(void **state) {
  (void)state;
  static const char *const all[] = {
    /* CL.TE, TE.CL and TE.TE */
    "Content-Length: 6\r\n" CHUNKED "\r\n0\r\n\r\n", CHUNKED "Content-Length: 4\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    CHUNKED "Transfer-Encoding: identity\r\n\r\n0\r\n\r\n", CHUNKED "Transfer-encoding: cow\r\n\r\n0\r\n\r\n",
    "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
    "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n", "Transfer-Encoding: identity, chunked\r\n\r\n0\r\n\r\n",
    "Transfer-Encoding:\x0b" "chunked\r\n\r\n0\r\n\r\n", "Transfer-Encoding: \"chunked\"\r\n\r\n0\r\n\r\n",
    "X: x\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "Transfer-Encoding\r\n : chunked\r\n\r\n0\r\n\r\n",
    /* folded lines, doubled lengths, bare CR and LF */
    "Content-Length:\r\n 2\r\n\r\n{}", "X: x\r\n Content-Length: 2\r\n\r\n{}", "X: x\r\n\tContent-Length: 2\r\n\r\n{}",
    "Content-Length: 2\r\nContent-Length: 40\r\n\r\n{}", "Content-Length: 2, 2\r\n\r\n{}",
    "Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}",
    "X: x\rContent-Length: 2\r\n\r\n{}", "X: x\nContent-Length: 2\r\n\r\n{}", "Content-Length: 0x2\r\n\r\n{}",
    "Content-Length: -2\r\n\r\n{}", "Content-Length: 2 2\r\n\r\n{}", "Content\x01-Length: 2\r\n\r\n{}",
    /* chunks */
    CHUNKED "\r\n0x2\r\n{}\r\n0\r\n\r\n", CHUNKED "\r\n-2\r\n{}\r\n0\r\n\r\n", CHUNKED "\r\n2\n{}\r\n0\r\n\r\n",
    CHUNKED "\r\n2;\n{}\r\n0\r\n\r\n", CHUNKED "\r\n2;a\rb\r\n{}\r\n0\r\n\r\n", CHUNKED "\r\n2 \r\n{}\r\n0\r\n\r\n",
    CHUNKED "\r\n10000000000000002\r\n{}\r\n0\r\n\r\n", CHUNKED "\r\n2\r\n{}0\r\n\r\n"};
  served server;
  served_begin(&server, &model, "receipt", NONE);
  for (size_t i = 0; i < ARRAY_LEN(all); i++) {
    int to = served_connect(&server);
    served_send(to, POST "%s" SMUGGLED, all[i]);
    served_reply reply = served_read(to);
    if (reply.status != 400) fail_msg("expected status 400, found %d: %s", reply.status, all[i]);
    free(reply.body);
    expect_end(to);
  }
  int to = served_connect(&server); /* the control: a whole body hides nothing, and what follows it is answered */
  served_send(to, "GET /health HTTP/1.1\r\nHost: x\r\nContent-Length: %zu\r\n\r\n" SMUGGLED HEALTH, strlen(SMUGGLED));
  served_reply first = served_read(to);
  assert_int_equal(first.status, 200);
  assert_null(strstr(first.body, "version"));
  free(first.body);
  served_expect_status(served_read(to), 200);
  assert_true(is_open(to));
  close(to);
  assert_int_equal(served_end(&server, SIGTERM), 0);
}

/* A request that a browser sends for a web page; each refusal is a reply like any other. The server's own names are the control. */
static void web_pages_are_kept_out(void **state) {
  (void)state;
  static const char *const options[] = {"--allowed-origin", "https://app.example", NULL};
  static const struct { const char *head; int status; const char *code; } cases[] = {
    {"Host: localhost\r\n" JSON, 200, NULL}, {"Host: 127.0.0.1:80\r\n" JSON, 200, NULL}, {"Host: [::1]\r\n" JSON, 200, NULL},
    {"Host: attacker.example\r\n" JSON, 403, "host_not_allowed"}, {"Host: localhost\r\n", 415, "unsupported_media_type"},
    {"Host: localhost\r\nContent-Type: text/plain\r\n", 415, "unsupported_media_type"},
    {"Host: localhost\r\nOrigin: https://attacker.example\r\n" JSON, 403, "origin_not_allowed"},
    {"Host: localhost\r\nOrigin: null\r\n" JSON, 403, "origin_not_allowed"},
    {"Host: localhost\r\nOrigin: https://app.example\r\n" JSON, 200, NULL},
    {"Host: localhost\r\nOrigin: https://app.example\r\n", 415, "unsupported_media_type"}};
  served server;
  char value[256];
  served_begin(&server, &model, "receipt", options);
  for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
    int to = served_connect(&server);
    served_send(to, "POST /v1/completions HTTP/1.1\r\n%sContent-Length: %zu\r\n\r\n%s", cases[i].head, strlen(SHORT_BODY), SHORT_BODY);
    served_reply reply = served_read(to);
    bool is_named = strcmp(served_header(&reply, "Access-Control-Allow-Origin", value), "https://app.example") == 0;
    assert_true(is_named == (strstr(cases[i].head, "app.example") != NULL));
    if (cases[i].code) served_expect_error(reply, cases[i].status, cases[i].code);
    else served_expect_status(reply, cases[i].status);
    close(to);
  }
  served_expect_status(served_ask(&server, "GET", "http://attacker.example/version", "", NULL), 403);
  served_expect_status(served_ask(&server, "GET", "http://localhost:1?x", "", NULL), 200); /* the path is / */
  served_expect_status(served_ask(&server, "GET", "http://x/version?x", "", NULL), 200);
  served_reply reply = served_ask(&server, "OPTIONS", "/v1/completions", "Origin: https://app.example\r\n" ASKS, NULL);
  assert_string_equal(served_header(&reply, "Access-Control-Allow-Headers", value), "Authorization, *");
  served_expect_status(reply, 200);
  served_expect_status(served_ask(&server, "OPTIONS", "/v1/completions", ASKS, NULL), 405);
  served_expect_error(served_ask(&server, "OPTIONS", "/tokenize", "Origin: http://x\r\n" ASKS, NULL), 403, "origin_not_allowed");
  assert_int_equal(served_end(&server, SIGTERM), 0);
}

static void a_head_has_an_end(void **state) {
  (void)state;
  served server;
  char *text = calloc(1, 60001);
  assert_non_null(text);
  memset(text, 'a', 60000);
  served_begin(&server, &model, "receipt", NONE);
  int line = served_connect(&server), header = served_connect(&server);
  served_send(line, "GET /%s", text);
  served_expect_error(served_read(line), 414, "url_too_long");
  expect_end(line);
  served_send(header, "GET /health HTTP/1.1\r\nHost: x\r\nA: %s", text);
  served_expect_error(served_read(header), 431, "headers_too_large");
  expect_end(header);
  free(text);
  assert_int_equal(served_end(&server, SIGTERM), 0);
}

/* A socket closed with unread bytes is reset, and the reply with it. */
static void a_refusal_reaches_a_client_that_still_sends(void **state) {
  (void)state;
  static const char *const small[] = {"--max-body-bytes", "1000", NULL};
  served server;
  char *part = calloc(1, 500001);
  assert_non_null(part);
  memset(part, ' ', 500000);
  served_begin(&server, &model, "receipt", small);
  int to = served_connect(&server);
  served_send(to, POST "Content-Length: 5000000\r\n\r\n");
  for (int i = 0; i < 4; i++) {
    for (size_t sent = 0; sent < 500000;) {
      ssize_t now = send(to, part + sent, 500000 - sent, MSG_NOSIGNAL);
      if (now <= 0) fail_msg("the connection ended while the client was sending");
      sent += (size_t)now;
    }
    poll(NULL, 0, 50);
  }
  served_expect_error(served_read(to), 413, "body_too_large");
  expect_end(to);
  free(part);
  assert_int_equal(served_end(&server, SIGTERM), 0);
}

/* === Versions and methods =================================================================================================== */

static void a_client_of_http_10_is_answered(void **state) {
  (void)state;
  served server;
  char value[256];
  served_begin(&server, &model, "receipt", NONE);
  int to = served_connect(&server);
  served_send(to, "GET /health HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  served_reply kept = served_read(to);
  assert_string_equal(served_header(&kept, "Connection", value), "Keep-Alive");
  served_expect_status(kept, 200);
  assert_true(is_open(to));
  served_send(to, "POST /v1/completions HTTP/1.0\r\n" JSON "Content-Length: %zu\r\n\r\n%s", strlen(SHORT_BODY), SHORT_BODY);
  char *stream = read_to_end(to); /* it ends with the connection */
  assert_non_null(stream);
  assert_non_null(strstr(stream, "\r\nConnection: close\r\n"));
  assert_null(strstr(stream, "Transfer-Encoding"));
  if (!strstr(stream, "\r\n\r\ndata: {")) fail_msg("expected events, found %s", stream);
  assert_string_equal(stream + strlen(stream) - 14, "data: [DONE]\n\n");
  free(stream);
  close(to);
  assert_int_equal(served_end(&server, SIGTERM), 0);
}

/* Also if its last events and its end are written together. */
static void a_stream_is_whole_before_its_connection_ends(void **state) {
  (void)state;
  served server;
  served_begin(&server, &model, "receipt", NONE);
  for (int i = 0; i < 60; i++) {
    int to = served_connect(&server);
    served_send(to, POST "Connection: close\r\nContent-Length: %zu\r\n\r\n%s", strlen(SHORT_BODY), SHORT_BODY);
    served_reply reply = served_read(to);
    if (!reply.body || !strstr(reply.body, "data: [DONE]")) fail_msg("expected a whole stream, found %s%s", reply.head, reply.body);
    served_expect_status(reply, 200);
    expect_end(to);
  }
  assert_int_equal(served_end(&server, SIGTERM), 0);
}

static void a_reply_to_head_has_no_body(void **state) {
  (void)state;
  served server;
  served_begin(&server, &model, "receipt", NONE);
  int to = served_connect(&server);
  served_send(to, "HEAD /version HTTP/1.1\r\nHost: x\r\n\r\nHEAD /nothing HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  char *bytes = read_to_end(to), *second = strstr(bytes ? bytes : "", "\r\n\r\nHTTP/1.1 404 Not Found\r\n");
  assert_non_null(second);
  assert_null(strstr(bytes, "Content-Length: 0\r\n"));
  assert_string_equal(bytes + strlen(bytes) - 4, "\r\n\r\n");
  free(bytes);
  close(to);
  to = served_connect(&server);
  served_send(to, "HEAD /health HTTP/1.1\r\nHost: x\r\n\r\nnonsense\r\n\r\n");
  served_expect_status(served_read(to), 200);
  served_expect_error(served_read(to), 400, "malformed_request"); /* of another request, and so with its body */
  expect_end(to);
  assert_int_equal(served_end(&server, SIGTERM), 0);
}

static void only_a_body_that_will_be_read_is_asked_for(void **state) {
  (void)state;
  static const struct { const char *head; int status; } all[] = {
    {POST "Content-Length: 2\r\nExpect: 100-continue\r\n\r\n", 100}, {POST "Content-Length: 0\r\nExpect: 100-continue\r\n\r\n", 400},
    {"POST /nothing HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n", 404},
    {POST "Content-Length: 99999999999\r\nExpect: 100-continue\r\n\r\n", 413}};
  served server;
  served_begin(&server, &model, "receipt", NONE);
  for (size_t i = 0; i < ARRAY_LEN(all); i++) {
    int to = served_connect(&server);
    served_send(to, "%s", all[i].head);
    served_expect_status(served_read(to), all[i].status);
    close(to);
  }
  assert_int_equal(served_end(&server, SIGTERM), 0);
}

/* === Pipelined requests ===================================================================================================== */

/* More than a connection buffers: the rest waits in the system until there is room. */
static void requests_sent_ahead_are_answered_in_order(void **state) {
  (void)state;
  enum { COUNT = 3000 };
  served server;
  served_begin(&server, &model, "receipt", NONE);
  int to = served_connect(&server);
  size_t bytes = 0, room = COUNT * 80;
  char *all = malloc(room), value[256], wanted[32];
  assert_non_null(all);
  for (int i = 0; i < COUNT; i++)
    bytes += (size_t)snprintf(all + bytes, room - bytes, "GET /health HTTP/1.1\r\nHost: x\r\nX-Request-Id: %d\r\n\r\n", i);
  pid_t sender = fork();
  assert_true(sender >= 0);
  if (sender == 0) {
    served_send(to, "%s", all);
    _exit(0);
  }
  for (int i = 0; i < COUNT; i++) {
    served_reply reply = served_read(to);
    snprintf(wanted, sizeof wanted, "%d", i);
    assert_string_equal(served_header(&reply, "X-Request-Id", value), wanted);
    served_expect_status(reply, 200);
  }
  assert_true(is_open(to));
  free(all);
  close(to);
  assert_int_equal(served_end(&server, SIGTERM), 0);
}

/* === Clients that leave ===================================================================================================== */

/* Its requests are answered, unless the engine still has to compute them. */
static void a_client_that_closes_its_side_is_gone(void **state) {
  (void)state;
  served server;
  served_begin(&server, &model, "receipt", NONE);
  int asks = served_connect(&server), runs = served_connect(&server);
  served_send(asks, HEALTH HEALTH HEALTH);
  shutdown(asks, SHUT_WR);
  for (int i = 0; i < 3; i++) served_expect_status(served_read(asks), 200);
  expect_end(asks);
  post(runs, LONG_BODY);
  served_wait(&server, "vllm:num_requests_running{model_name=\"tiny\"}", 1);
  shutdown(runs, SHUT_WR);
  expect_end(runs);
  served_wait(&server, "verbatim_disconnected_total{model_name=\"tiny\"}", 1);
  served_wait(&server, "verbatim_request_memory_bytes{model_name=\"tiny\"}", 0);
  assert_true(served_metric(&server, "verbatim_requests_finished_total{finish=\"cancelled\"}") == 1);
  assert_int_equal(served_end(&server, SIGTERM), 0);
}

/* Its connection is not read any more, because it has sent more than is buffered while the first request runs. */
static void a_client_that_has_sent_too_much_and_leaves_is_noticed(void **state) {
  (void)state;
  served server;
  served_begin(&server, &model, "receipt", NONE);
  for (int reset = 0; reset < 2; reset++) {
    const struct linger at_once = {.l_onoff = 1};
    int to = served_connect(&server);
    post(to, LONG_BODY);
    served_wait(&server, "vllm:num_requests_running{model_name=\"tiny\"}", 1);
    for (int i = 0; i < 2000; i++) served_send(to, HEALTH);
    if (reset) setsockopt(to, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    close(to);
    served_wait(&server, "verbatim_disconnected_total{model_name=\"tiny\"}", 1 + reset);
    served_wait(&server, "verbatim_request_memory_bytes{model_name=\"tiny\"}", 0);
    assert_true(served_metric(&server, "verbatim_requests_finished_total{finish=\"cancelled\"}") == 1 + reset);
  }
  assert_int_equal(served_end(&server, SIGTERM), 0);
}

static void a_connection_that_is_silent_is_closed(void **state) {
  (void)state;
  static const char *const hurry[] = {"--client-timeout", "1", NULL};
  served server;
  served_begin(&server, &model, "receipt", hurry);
  int to = served_connect(&server);
  served_send(to, HEALTH);
  served_expect_status(served_read(to), 200);
  double before = clock_seconds();
  expect_end(to);
  double seconds = clock_seconds() - before;
  assert_true(seconds > 0.8 && seconds < 5);
  assert_int_equal(served_end(&server, SIGTERM), 0);
}

/* === Descriptors ============================================================================================================ */

/* All places are taken by clients that send nothing, or not all; one has a reply coming. New ones are answered at once, and stay open. */
static void silent_clients_shut_nobody_out(void **state) {
  (void)state;
  static const char *const few[] = {"--max-connections", "13", NULL}, *const sent[] = {"", "GET /health HT", POST, HEALTH};
  served server;
  int silent[SILENT], more[SILENT];
  served_begin(&server, &model, "receipt", few);
  int running = served_post(&server, "/v1/completions", "", LONG_BODY);
  for (int i = 0; i < SILENT; i++) {
    silent[i] = served_connect(&server);
    served_send(silent[i], "%s%s", sent[i % 4], i % 4 == 2 ? "Content-Length: 10\r\n\r\n{" : "");
    if (i % 4 == 3) served_expect_status(served_read(silent[i]), 200);
  }
  for (int i = 0; i < SILENT; i++) {
    double begun = clock_seconds();
    more[i] = served_connect(&server);
    served_send(more[i], HEALTH);
    served_expect_status(served_read(more[i]), 200);
    assert_true(clock_seconds() - begun < 5);
  }
  for (int i = 0; i < SILENT; i++) close(silent[i]), close(more[i]);
  served_expect_status(served_read(running), 200);
  close(running);
  assert_int_equal(served_end(&server, SIGTERM), 0);
}

/* A client that cannot be accepted waits, and is accepted when another one has left. */
static void without_descriptors_connections_wait(void **state) {
  (void)state;
  enum { COUNT = 30 };
  const struct rlimit few = {.rlim_cur = 24, .rlim_max = 24};
  served server;
  int held[COUNT];
  served_begin(&server, &model, "receipt", NONE);
  assert_int_equal(prlimit(server.child, RLIMIT_NOFILE, &few, NULL), 0);
  for (int i = 0; i < COUNT; i++) held[i] = served_connect(&server);
  served_send(held[0], HEALTH);
  served_expect_status(served_read(held[0]), 200);
  served_send(held[COUNT - 1], HEALTH);
  assert_true(is_open(held[COUNT - 1])); /* no reply yet */
  for (int i = 1; i < COUNT - 1; i++) close(held[i]);
  served_expect_status(served_read(held[COUNT - 1]), 200);
  served_send(held[0], HEALTH);
  served_expect_status(served_read(held[0]), 200);
  close(held[0]);
  close(held[COUNT - 1]);
  assert_int_equal(served_end(&server, SIGTERM), 0);
}

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(what_is_no_request_is_refused_and_ends_the_connection), cmocka_unit_test(smuggled_requests_are_not_answered),
    cmocka_unit_test(a_head_has_an_end), cmocka_unit_test(web_pages_are_kept_out),
    cmocka_unit_test(a_refusal_reaches_a_client_that_still_sends), cmocka_unit_test(a_client_of_http_10_is_answered),
    cmocka_unit_test(a_stream_is_whole_before_its_connection_ends),
    cmocka_unit_test(a_reply_to_head_has_no_body), cmocka_unit_test(only_a_body_that_will_be_read_is_asked_for),
    cmocka_unit_test(requests_sent_ahead_are_answered_in_order), cmocka_unit_test(a_client_that_closes_its_side_is_gone),
    cmocka_unit_test(a_client_that_has_sent_too_much_and_leaves_is_noticed), cmocka_unit_test(a_connection_that_is_silent_is_closed),
    cmocka_unit_test(silent_clients_shut_nobody_out), cmocka_unit_test(without_descriptors_connections_wait)};
  e2e_begin(argc, argv);
  served_make_model(&model, DEPLOY);
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  e2e_remove(&model);
  return failed;
}

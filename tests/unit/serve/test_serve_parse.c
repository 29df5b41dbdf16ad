/* test_serve_parse.c - the grammar of HTTP/1.1: valid and invalid heads, and chunked bodies, wherever the bytes are split. */
#include "tests/unit/unit.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "engine/serve/parse.h"

#define LINE "GET /health HTTP/1.1\r\n"
#define HOST "Host: x\r\n"
#define END "\r\n"

/* === Heads ================================================================================================================== */

/* The head at the start of the bytes, of which `step` more arrive each time; the caller frees *copy, which the message points into. */
static bool parse(const char *bytes, size_t count, size_t step, char **copy, serve_message *out, serve_fault *fault, size_t *head_bytes) {
  size_t scanned = 0;
  enum serve_parse found = SERVE_PARSE_MORE;
  *copy = malloc(count + 1);
  assert_non_null(*copy);
  memcpy(*copy, bytes, count);
  for (size_t have = 0; found == SERVE_PARSE_MORE && have < count;) {
    have = have + step < count ? have + step : count;
    found = serve_parse_find(*copy, have, &scanned, head_bytes);
  }
  if (found == SERVE_PARSE_BAD) *fault = serve_parse_fault("");
  if (found == SERVE_PARSE_MORE) fail_msg("no end of a head in %s", bytes);
  return found == SERVE_PARSE_DONE && serve_parse_head(*copy, *head_bytes, out, fault);
}

static void expect_head(const char *text, void (*check)(const serve_message *message)) {
  for (size_t step = 1; step <= strlen(text); step += step < 9 ? 1 : 50) {
    serve_message message;
    serve_fault fault;
    size_t head_bytes = 0;
    char *copy;
    if (!parse(text, strlen(text), step, &copy, &message, &fault, &head_bytes)) fail_msg("%s: %s", text, fault.message);
    assert_int_equal(head_bytes, strstr(text, "\r\n\r\n") + 4 - text);
    check(&message);
    free(copy);
  }
}

static void expect_bad(const char *bytes, size_t count, unsigned http_status) {
  for (size_t step = 1; step <= count; step += step < 9 ? 1 : 50) {
    serve_message message;
    serve_fault fault = {0};
    size_t head_bytes = 0;
    char *copy;
    if (parse(bytes, count, step, &copy, &message, &fault, &head_bytes)) fail_msg("expected no head: %s", bytes);
    assert_int_equal(fault.http_status, http_status);
    assert_true(*fault.code && *fault.message);
    free(copy);
  }
}

static void check_all(const serve_message *m) {
  assert_string_equal(m->head.method, "POST");
  assert_string_equal(m->head.url, "/v1/models/tiny");
  assert_string_equal(m->head.authorization, "Bearer a b");
  assert_string_equal(m->head.content_type, "application/json");
  assert_string_equal(m->head.content_length, "0012");
  assert_null(m->head.transfer_encoding);
  assert_string_equal(m->request_id, "one");
  assert_int_equal(m->head.length_count, 1);
  assert_int_equal(m->head.bytes, strlen("q=%411" "Host" "x" "authorization" "Bearer a b" "CONTENT-TYPE" "application/json" "Content-Length"
                                         "0012" "X-Request-Id" "one" "X-Request-Id" "two" "Expect" "100-Continue" "Empty"));
  assert_true(m->body_bytes == 12 && m->keeps_open && m->expects_continue);
  assert_false(m->is_chunked || m->is_http10 || m->head.has_wrong_name);
}

static void a_head_is_taken_apart(void **state) {
  (void)state;
  expect_head("POST /v1/models/t%69ny?q=%411 HTTP/1.1\r\nHost: x\r\nauthorization:  Bearer a b \t\r\nCONTENT-TYPE:application/json\r\n"
              "Content-Length: 0012\r\nX-Request-Id: one\r\nX-Request-Id: two\r\nExpect: 100-Continue\r\nEmpty:\r\n\r\nbody", check_all);
}

static void check_nothing(const serve_message *m) {
  assert_string_equal(m->head.method, "G\xff");
  assert_string_equal(m->head.url, "*");
  assert_true(m->is_http10 && !m->keeps_open && !m->expects_continue && m->body_bytes == 0 && !m->is_chunked);
  assert_true(!m->head.authorization && !m->head.content_type && !m->head.content_length && !m->request_id);
}

static void a_head_may_be_a_line(void **state) {
  (void)state;
  expect_head("G\xff * HTTP/1.0\r\n\r\n", check_nothing);
}

static serve_message message_of(const char *text, char **copy) {
  serve_message message;
  serve_fault fault;
  size_t head_bytes;
  if (!parse(text, strlen(text), 7, copy, &message, &fault, &head_bytes)) fail_msg("%s: %s", text, fault.message);
  return message;
}

static void paths_are_decoded_but_for_a_nul(void **state) {
  (void)state;
  static const struct { const char *target, *path; } all[] = {
    {"/%68ealth", "/health"}, {"/a%0A%7f", "/a\n\x7f"}, {"/%zz%4", "/%zz%4"}, {"/health%00x", "/health%00x"}, {"/%41%00", "/%41%00"},
    {"/a+b", "/a+b"}, {"/?%00", "/"}, {"/%3Fx?y", "/?x"}, {"/\xc3\xa9", "/\xc3\xa9"}, {"http://x/health", "/health"},
    {"HTTPS://x.y:80/a?/b", "/a"}, {"http://x", "/"}, {"http://x?q", "/"}, {"http:/x", "http:/x"}, {"/http://x/y", "/http://x/y"}};
  for (size_t i = 0; i < ARRAY_LEN(all); i++) {
    char text[128], *copy;
    snprintf(text, sizeof text, "GET %s HTTP/1.1\r\n" HOST END, all[i].target);
    assert_string_equal(message_of(text, &copy).head.url, all[i].path);
    free(copy);
  }
}

static void a_connection_is_kept_where_both_want_it(void **state) {
  (void)state;
  static const struct { const char *rest; bool keeps; } all[] = {
    {"1.1\r\n" HOST, true}, {"1.1\r\n" HOST "Connection: close\r\n", false}, {"1.1\r\n" HOST "Connection: a, CLOSE ,b\r\n", false},
    {"1.1\r\n" HOST "Connection: keep-alive\r\nConnection: close\r\n", false}, {"1.1\r\n" HOST "Connection: closed\r\n", true},
    {"1.1\r\n" HOST "Connection: Upgrade\r\n", true}, {"1.2\r\n" HOST, true}, {"1.0\r\n", false},
    {"1.0\r\nConnection: Keep-Alive\r\n", true},
    {"1.0\r\nConnection: keep-alive, close\r\n", false}, {"1.0\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n", false},
    {"1.1\r\n" HOST "Transfer-Encoding: chunked\r\n", true}};
  for (size_t i = 0; i < ARRAY_LEN(all); i++) {
    char text[256], *copy;
    snprintf(text, sizeof text, "GET / HTTP/%s\r\n", all[i].rest);
    if (message_of(text, &copy).keeps_open != all[i].keeps) fail_msg("%s", text);
    free(copy);
  }
}

/* The head is well formed; the router refuses it with a message of its own. */
static void lengths_are_counted(void **state) {
  (void)state;
  static const struct { const char *headers; uint32_t count; uint64_t bytes; bool chunked, wrong_name; } all[] = {
    {"", 0, 0, false, false}, {"Content-Length: 7\r\nContent-Length: 7\r\n", 2, 7, false, false},
    {"Content-Length: 7\r\nTransfer-Encoding: chunked\r\n", 2, 7, true, false},
    {"Transfer-Encoding: gzip\r\n", 1, 0, true, false}, {"Content-Length : 7\r\n", 0, 0, false, true},
    {"Content\tLength: 7\r\n", 0, 0, false, true}, {"Content-Length: 18446744073709551615\r\n", 1, UINT64_MAX, false, false},
    {"Content-Length: 18446744073709551616\r\n", 1, UINT64_MAX, false, false},
    {"Content-Length: 99999999999999999999999\r\n", 1, UINT64_MAX, false, false}};
  for (size_t i = 0; i < ARRAY_LEN(all); i++) {
    char text[256], *copy;
    snprintf(text, sizeof text, LINE HOST "%s" END, all[i].headers);
    serve_message m = message_of(text, &copy);
    assert_int_equal(m.head.length_count, all[i].count);
    assert_true(m.body_bytes == all[i].bytes && m.is_chunked == all[i].chunked && m.head.has_wrong_name == all[i].wrong_name);
    free(copy);
  }
}

static void check_health(const serve_message *m) { assert_string_equal(m->head.url, "/health"); }

/* Each differs in a small detail from a valid head. */
static void what_two_readers_could_read_differently_is_refused(void **state) {
  (void)state;
  static const char *const all[] = {
    "GET /health HTTP/1.1\n" HOST END, LINE "Host: x\n" END, LINE HOST "\n\r\n", "GET /health HTTP/1.1\r" HOST END,
    LINE HOST "A: b\rc\r\n" END,
    LINE HOST "A: b\r\r\n" END, "GET  /health HTTP/1.1\r\n" HOST END, " GET /health HTTP/1.1\r\n" HOST END,
    "GET /health HTTP/1.1 \r\n" HOST END, "GET /hea lth HTTP/1.1\r\n" HOST END, "GET\t/health HTTP/1.1\r\n" HOST END,
    "GET /health\r\n" HOST END, "GET\r\n" HOST END, "GET /health http/1.1\r\n" HOST END, "GET /health HTTP/1.1x\r\n" HOST END,
    "GET /health HTTP/1.11\r\n" HOST END, "GET /health HTTP/11\r\n" HOST END, "GET /health HTTP/a.1\r\n" HOST END,
    "GET /health \r\n" HOST END, LINE END, LINE HOST HOST END, LINE "Host : x\r\n" END, LINE HOST "A: b\r\n c\r\n" END,
    LINE HOST "A: b\r\n\tc\r\n" END, LINE " " HOST END, LINE HOST "A\r\n" END, LINE HOST ": b\r\n" END, LINE HOST "(A): b\r\n" END,
    LINE HOST "\xc3\xa9: b\r\n" END, LINE HOST "A\x01: b\r\n" END, LINE HOST "A: \x01\r\n" END, LINE HOST "A: \x7f\r\n" END,
    LINE HOST "Content-Length:\r\n" END, LINE HOST "Content-Length: +7\r\n" END, LINE HOST "Content-Length: -7\r\n" END,
    LINE HOST "Content-Length: 7, 7\r\n" END, LINE HOST "Content-Length: 0x7\r\n" END, LINE HOST "Content-Length: 7.0\r\n" END,
    LINE HOST "Content-Length: 7 7\r\n" END, "\x16\x03\x01\x02" END END};
  expect_head(LINE HOST "A: b\r\nContent-Length: 7\r\n" END, check_health);
  expect_head("GET /health HTTP/1.0\r\n" END, check_health);
  for (size_t i = 0; i < ARRAY_LEN(all); i++) expect_bad(all[i], strlen(all[i]), 400);
  static const char with_nul[] = LINE HOST "A: b\0c\r\n" END;
  expect_bad(with_nul, sizeof with_nul - 1, 400);
  expect_bad("GET http:///health HTTP/1.1\r\n" HOST END, strlen("GET http:///health HTTP/1.1\r\n" HOST END), 400); /* no host */
  expect_bad("GET /health HTTP/2.0\r\n" HOST END, strlen(LINE HOST END), 505);
  expect_bad("GET /health HTTP/0.9\r\n" HOST END, strlen(LINE HOST END), 505);
}

/* === Chunks ================================================================================================================= */

/* Reads the body, of which `step` more bytes arrive each time. Returns how it ended; text: its content; used: its bytes with chunk
 * headers. */
static enum serve_parse read_chunks(const char *bytes, size_t count, size_t step, char text[64], size_t *used) {
  serve_chunks chunks = {0};
  enum serve_parse found = SERVE_PARSE_MORE;
  size_t total = 0;
  *used = 0;
  for (size_t have = 0; found == SERVE_PARSE_MORE && *used < count;) {
    have = have + step < count ? have + step : count;
    for (size_t now = 1, part_bytes; now && found == SERVE_PARSE_MORE;) {
      const char *part;
      found = serve_parse_chunks(&chunks, bytes + *used, have - *used, &now, &part, &part_bytes);
      assert_true(total + part_bytes < 64);
      memcpy(text + total, part, part_bytes);
      total += part_bytes;
      *used += now;
    }
  }
  text[total] = 0;
  return found;
}

static void chunks_are_joined_wherever_they_are_split(void **state) {
  (void)state;
  static const struct { const char *body, *text; } all[] = {
    {"0\r\n\r\n", ""}, {"5\r\nhello\r\n0\r\n\r\n", "hello"}, {"1\r\nh\r\n4;x=\"y\"\r\nello\r\n000\r\n\r\n", "hello"},
    {"a\r\n0123456789\r\nB\r\n0123456789a\r\n0\r\nA: b\r\nC:\td\r\n\r\n", "01234567890123456789a"},
    {"4\r\n\r\n0\n\r\n0\r\n\r\n", "\r\n0\n"}, {"000000000000005\r\nhello\r\n0;\r\n\r\n", "hello"}};
  for (size_t i = 0; i < ARRAY_LEN(all); i++)
    for (size_t step = 1; step <= strlen(all[i].body) + 3; step++) {
      char text[64], bytes[128];
      size_t used;
      snprintf(bytes, sizeof bytes, "%sGET", all[i].body); /* what follows is another request's */
      assert_int_equal(read_chunks(bytes, strlen(bytes), step, text, &used), SERVE_PARSE_DONE);
      assert_string_equal(text, all[i].text);
      assert_int_equal(used, strlen(all[i].body));
    }
}

static void chunks_that_are_malformed_are_refused(void **state) {
  (void)state;
  static const char *const all[] = {
    "\r\n", "x\r\n", "5\nhello\r\n0\r\n\r\n", "5\r\nhelloXX0\r\n\r\n", "5\r\nhello0\r\n\r\n", "5\r\nhello\n0\r\n\r\n", "5\r\nhello\rX",
    "0x5\r\nhello\r\n0\r\n\r\n", "+5\r\nhello", "-5\r\nhello", " 5\r\nhello", "5 \r\nhello", "5 ;x\r\nhello", "5;x\ny\r\nhello",
    "5;x\x01\r\nhello", "5\rX", "0\r\n\n", "0\r\nA: b\n\r\n", "0\r\n\rX", "0\r\nA: \x7f\r\n\r\n", "0000000000000005\r\nhello",
    "ffffffffffffffff\r\nhello", ";\r\n"};
  for (size_t i = 0; i < ARRAY_LEN(all); i++)
    for (size_t step = 1; step <= strlen(all[i]); step++) {
      char text[64];
      size_t used;
      if (read_chunks(all[i], strlen(all[i]), step, text, &used) != SERVE_PARSE_BAD) fail_msg("%s", all[i]);
    }
}

/* An extension or a trailer is read and dropped, up to a limit. */
static void what_is_dropped_is_bounded(void **state) {
  (void)state;
  static const char *const starts[] = {"5;", "0\r\nA: "};
  for (size_t i = 0; i < ARRAY_LEN(starts); i++)
    for (int is_long = 0; is_long < 2; is_long++) {
      size_t count = is_long ? 20000 : 10000;
      char *bytes = malloc(count), text[64];
      size_t used;
      assert_non_null(bytes);
      memset(bytes, 'a', count);
      memcpy(bytes, starts[i], strlen(starts[i]));
      assert_int_equal(read_chunks(bytes, count, 100, text, &used), is_long ? SERVE_PARSE_BAD : SERVE_PARSE_MORE);
      free(bytes);
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_head_is_taken_apart), cmocka_unit_test(a_head_may_be_a_line), cmocka_unit_test(paths_are_decoded_but_for_a_nul),
    cmocka_unit_test(a_connection_is_kept_where_both_want_it), cmocka_unit_test(lengths_are_counted),
    cmocka_unit_test(what_two_readers_could_read_differently_is_refused), cmocka_unit_test(chunks_are_joined_wherever_they_are_split),
    cmocka_unit_test(chunks_that_are_malformed_are_refused), cmocka_unit_test(what_is_dropped_is_bounded)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_serve_access.c - who may ask: names of hosts, origins of web pages, and what a browser is told. */
#include "tests/unit/unit.h"
#include <string.h>
#include "engine/serve/access.h"

static const serve_access LOCAL = {.bound = "my-name", .is_loopback = true, .hosts = {{"proxy.example", "[fe80::1]"}, 2},
                                   .origins = {{"https://app.example", "http://localhost:3000"}, 2}};
static const serve_access PUBLIC = {.bound = "0.0.0.0"}, NAMED = {.bound = "0.0.0.0", .hosts = {{"api.example"}, 1}};
static const serve_access ALL = {.bound = "127.0.0.1", .is_loopback = true, .hosts = {{"*"}, 1}, .origins = {{"*"}, 1}};

/* The status of a request that names this host and this origin (null: not at all); 0: it may come in. */
static unsigned judge(const serve_access *access, const char *host, const char *origin, const char **allowed) {
  const serve_head head = {.method = "POST", .url = "/v1/completions", .host = host, .origin = origin};
  serve_fault fault = {0};
  bool may_ask = serve_access_judge(access, &head, allowed, &fault);
  assert_true(may_ask == (fault.http_status == 0));
  return fault.http_status;
}

static void a_loopback_server_answers_to_its_own_names(void **state) {
  (void)state;
  static const char *const own[] = {"localhost", "localhost:8000", "LocalHost:1", "127.0.0.1", "127.0.0.1:8000", "[::1]", "[::1]:8000",
                                    "my-name", "my-name:80", "proxy.example", "proxy.example:443", "[fe80::1]:8000", "localhost:"};
  static const char *const other[] = {"", ":", "attacker.example", "attacker.example:8000", "localhost.attacker.example", "xlocalhost",
                                      "localhost.", "127.0.0.1.attacker.example", "127.0.0.2", "localhost:8000:1", "localhost:x",
                                      "localhost@attacker.example", "attacker.example:80@localhost", "[::1", "[::1]x", "[localhost",
                                      "::1", "0.0.0.0", "localhost, attacker.example", "localhost attacker.example", "*"};
  const char *allowed;
  for (size_t i = 0; i < ARRAY_LEN(own); i++)
    if (judge(&LOCAL, own[i], NULL, &allowed) != 0) fail_msg("%s was refused", own[i]);
  for (size_t i = 0; i < ARRAY_LEN(other); i++) {
    if (judge(&LOCAL, other[i], NULL, &allowed) != 403) fail_msg("%s was let in", other[i]);
    assert_int_equal(judge(&PUBLIC, other[i], NULL, &allowed), 0);
    assert_int_equal(judge(&NAMED, other[i], NULL, &allowed), strcmp(other[i], "0.0.0.0") == 0 ? 0 : 403);
    assert_int_equal(judge(&ALL, other[i], NULL, &allowed), 0);
  }
  assert_int_equal(judge(&NAMED, "api.example:8000", NULL, &allowed), 0);
  assert_int_equal(judge(&LOCAL, NULL, NULL, &allowed), 0); /* HTTP/1.0, which no browser speaks */
}

static void web_pages_are_allowed_by_name(void **state) {
  (void)state;
  static const char *const other[] = {"", "null", "https://app.example.attacker.example", "http://app.example", "https://app.example:8443",
                                      "https://app.example/", "http://localhost", "http://127.0.0.1:8000", "app.example"};
  const char *allowed;
  assert_int_equal(judge(&LOCAL, "localhost", "https://app.example", &allowed), 0);
  assert_string_equal(allowed, "https://app.example");
  assert_int_equal(judge(&LOCAL, "attacker.example", "https://app.example", &allowed), 403);
  for (size_t i = 0; i < ARRAY_LEN(other); i++) {
    if (judge(&LOCAL, "localhost", other[i], &allowed) != 403 || allowed) fail_msg("%s was let in", other[i]);
    assert_int_equal(judge(&PUBLIC, "localhost", other[i], &allowed), 403);
    assert_int_equal(judge(&ALL, "localhost", other[i], &allowed), 0);
    assert_string_equal(allowed, "*");
  }
}

static void health_is_for_everybody(void **state) {
  (void)state;
  serve_head head = {.method = "GET", .url = "/health", .host = "10.0.0.1:8000", .origin = "http://attacker.example"};
  serve_fault fault = {0};
  const char *allowed = "";
  assert_true(serve_access_judge(&LOCAL, &head, &allowed, &fault));
  assert_null(allowed);
  head.url = "/version";
  assert_false(serve_access_judge(&LOCAL, &head, &allowed, &fault));
}

static void a_browser_is_told_what_it_may_do(void **state) {
  (void)state;
  char lines[768];
  serve_head head = {.method = "OPTIONS", .url = "/v1/completions", .origin = "https://app.example", .asks_method = true};
  assert_true(serve_access_is_preflight(&head));
  head.asks_method = false;
  assert_false(serve_access_is_preflight(&head));
  serve_access_headers(NULL, false, lines, sizeof lines);
  assert_string_equal(lines, "");
  serve_access_headers("https://app.example", true, lines, sizeof lines);
  assert_non_null(strstr(lines, "Access-Control-Allow-Origin: https://app.example\r\n"));
  assert_non_null(strstr(lines, "Access-Control-Allow-Headers: Authorization, *\r\n"));
  assert_non_null(strstr(lines, "Vary: Origin\r\n"));
}

static void a_loopback_address_is_known(void **state) {
  (void)state;
  static const char *const local[] = {"http://127.0.0.1:8000", "http://127.1.2.3:1", "http://[::1]:8000", "http://[::ffff:127.0.0.1]:80"};
  static const char *const other[] = {"http://0.0.0.0:8000", "http://[::]:8000", "http://12.7.0.1:1", "http://192.168.0.1:80",
                                      "http://[::1:2]:8000"};
  for (size_t i = 0; i < ARRAY_LEN(local); i++) assert_true(serve_access_is_loopback(local[i]));
  for (size_t i = 0; i < ARRAY_LEN(other); i++) assert_false(serve_access_is_loopback(other[i]));
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_loopback_server_answers_to_its_own_names), cmocka_unit_test(web_pages_are_allowed_by_name),
    cmocka_unit_test(health_is_for_everybody), cmocka_unit_test(a_browser_is_told_what_it_may_do),
    cmocka_unit_test(a_loopback_address_is_known)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

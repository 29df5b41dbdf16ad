/* test_cli_compare.c - differences as text and as JSON, to the byte: each kind of number, a list that ends early, an alternative, and text
 * of files with characters that must not reach a terminal; and the progress line of a terminal. */
#define _XOPEN_SOURCE 700 /* posix_openpt */
#include "tests/unit/unit.h"
#include <fcntl.h>
#include <poll.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "engine/common/compare.h"
#include "engine/common/output.h"

#define TEXT_MAX 4096

static FILE *caught;
static int saved;

/* Between the two calls stdout and stderr go to a file. */
static void catch_stdout(void) {
  fflush(stdout);
  saved = dup(STDOUT_FILENO);
  caught = tmpfile();
  assert_true(caught && saved >= 0 && dup2(fileno(caught), STDOUT_FILENO) >= 0);
}

static void expect_caught(const char *expected) {
  char text[TEXT_MAX];
  assert_int_equal(cli_output_flush(), OK);
  assert_true(dup2(saved, STDOUT_FILENO) >= 0);
  close(saved);
  rewind(caught);
  text[fread(text, 1, TEXT_MAX - 1, caught)] = 0;
  fclose(caught);
  assert_string_equal(text, expected);
}

static void numbers(void **state) {
  (void)state;
  char text[CLI_COMPARE_NUMBER_BYTES];
  assert_string_equal(cli_compare_number(VERBATIM_POINT_BF16, 0x3f81, text), "1.0078125 (3f81)");
  assert_string_equal(cli_compare_number(VERBATIM_POINT_F32, 0x80000000, text), "-0 (80000000)");
  assert_string_equal(cli_compare_number(VERBATIM_POINT_U32, 4294967295u, text), "4294967295");
  catch_stdout();
  cli_compare_print_numbers("number 3", VERBATIM_POINT_BF16, 0x3f81, 0x3f80);
  cli_compare_print_numbers("weight", VERBATIM_POINT_F32, 0x00000001, 0x80000001);
  cli_compare_print_numbers("id", VERBATIM_POINT_U32, 3, 4);
  cli_compare_print_numbers("nothing", VERBATIM_POINT_F32, 0x7fc00000, 0x3f800000);
  expect_caught("  number 3        1.0078125 (3f81) | 1 (3f80), 1 ulp apart\n"
                "  weight          1.40129846e-45 (00000001) | -1.40129846e-45 (80000001), 2 ulps apart\n"
                "  id              3 | 4\n"
                "  nothing         nan (7fc00000) | 1 (3f800000)\n");
}

static void nothing_for_terminals(void **state) {
  (void)state;
  catch_stdout();
  cli_output_quoted("a\x1b[2J\"\\\x7f\n\xc3\xa9");
  expect_caught("\"a\\u001b[2J\\u0022\\u005c\\u007f\\u000a\xc3\xa9\"");
}

static void requests(void **state) {
  (void)state;
  receipt_difference d = {.input = {"list", 1, {"token 8, -1 (bf800000)", "none"}}, .end = {"chain", UINT32_MAX, {"ab", "cd"}},
                          .tokens_same = 4};
  d.token = (receipt_difference_token){.list = "made", .index = 2, .position = 9, .has_token = {true, true}, .alternative = 1,
                                       .token = {{.id = 5, .logprob = -1.0f, .digest = 10},
                                                 {.id = 6, .logprob = NAN, .rank = 2, .digest = 10}},
                                       .alternatives = {{3, -2.0f}, {4, -2.0f}}};
  catch_stdout();
  cli_compare_print(&d);
  assert_int_equal(cli_output_json(cli_compare_json(&d), JSON_COMPACT | JSON_REAL_PRECISION(17)), OK);
  expect_caught("  asked: list[1] \"token 8, -1 (bf800000)\" | \"none\"\n"
                "  4 tokens before it are the same; made token 2, position 9:\n"
                "  logits digest   the same: 000000000000000a\n"
                "  token           5 | 6\n"
                "  log-probability -1 (bf800000) | nan (7fc00000)\n"
                "  rank            0 | 2\n"
                "  alternative     1: token 3 | 4\n"
                "    its           -2 (c0000000) | -2 (c0000000), 0 ulps apart\n"
                "  ended: chain \"ab\" | \"cd\"\n"
                "{\"asked\":{\"field\":\"list\",\"values\":[\"token 8, -1 (bf800000)\",\"none\"],\"index\":1},\"tokens_same\":4,"
                "\"token\":{\"list\":\"made\",\"index\":2,\"position\":9,\"tokens\":[5,6],\"logits\":[\"000000000000000a\","
                "\"000000000000000a\"],\"logprob\":{\"bits\":[\"bf800000\",\"7fc00000\"],\"values\":[-1.0,null],\"ulps\":null},"
                "\"ranks\":[0,2],\"alternative\":{\"index\":1,\"tokens\":[3,4],\"bits\":[\"c0000000\",\"c0000000\"],\"values\":[-2.0,-2.0],"
                "\"ulps\":0}},\"ended\":{\"field\":\"chain\",\"values\":[\"ab\",\"cd\"]}}\n");
}

static void a_list_ends(void **state) {
  (void)state;
  receipt_difference d = {.tokens_same = 1, .token = {.list = "scored", .index = 1, .position = 3, .has_token = {false, true},
                                                      .token = {{.id = 0}, {.id = 7}}, .alternative = UINT32_MAX}};
  catch_stdout();
  cli_compare_print(&d);
  assert_int_equal(cli_output_json(cli_compare_json(&d), JSON_COMPACT), OK);
  d = (receipt_difference){.tokens_same = 3};
  cli_compare_print(&d);
  assert_int_equal(cli_output_json(cli_compare_json(&d), JSON_COMPACT), OK);
  expect_caught("  1 tokens before it are the same; scored token 1, position 3:\n"
                "  token           none | 7\n"
                "{\"asked\":null,\"tokens_same\":1,\"token\":{\"list\":\"scored\",\"index\":1,\"position\":3,\"tokens\":[null,7]},"
                "\"ended\":null}\n"
                "  all 3 tokens are the same\n"
                "{\"asked\":null,\"tokens_same\":3,\"token\":null,\"ended\":null}\n");
}

/* Runs it with a full device as output, and with nothing to write. */
static void what_is_not_written(void **state) {
  (void)state;
  int full = open("/dev/full", O_WRONLY);
  fflush(stdout);
  saved = dup(STDOUT_FILENO);
  assert_true(full >= 0 && saved >= 0 && dup2(full, STDOUT_FILENO) >= 0);
  status written = cli_output_json(json_integer(1), JSON_ENCODE_ANY), flushed = cli_output_flush();
  clearerr(stdout);
  assert_true(dup2(saved, STDOUT_FILENO) >= 0);
  close(saved);
  close(full);
  assert_true(written == OK || written == ERR_IO);
  assert_int_equal(flushed, ERR_IO);
  assert_non_null(strstr(fail_text(), "stdout: cannot be written: "));
  fail_clear();
  assert_int_equal(cli_output_json(NULL, 0), ERR_LIMIT);
}

/* Reads what the terminal received, which arrives in parts: waits for `wanted` bytes, then takes whatever else is there. */
static size_t read_terminal(int terminal, char *text, size_t bytes, size_t wanted) {
  struct pollfd ready = {.fd = terminal, .events = POLLIN};
  size_t count = 0;
  while (count < bytes && poll(&ready, 1, count < wanted ? 10000 : 50) > 0) {
    ssize_t got = read(terminal, text + count, bytes - count);
    if (got <= 0) break;
    count += (size_t)got;
  }
  return count;
}

/* On a terminal a progress line is begun, and ended once; on anything else there is none. */
static void progress(void **state) {
  (void)state;
  static const char EXPECTED[] = "\rreading: 1/10 MB\rreading: 10/10 MB\r\n\r3/4 rows\r\n";
  char text[TEXT_MAX] = "";
  int terminal = posix_openpt(O_RDWR | O_NOCTTY), errors = dup(STDERR_FILENO), null = open("/dev/null", O_WRONLY);
  assert_true(terminal >= 0 && errors >= 0 && null >= 0 && grantpt(terminal) == 0 && unlockpt(terminal) == 0);
  int end = open(ptsname(terminal), O_RDWR | O_NOCTTY);
  cli_output_progress p = {0};
  assert_true(end >= 0 && dup2(null, STDERR_FILENO) >= 0);
  cli_output_progress_bytes(&p, "reading", 0, 10000000);
  bool is_quiet = !p.is_open;
  assert_true(dup2(end, STDERR_FILENO) >= 0);
  cli_output_progress_bytes(&p, "reading", 10000000, 10000000); /* no line was begun, so none is ended */
  cli_output_progress_bytes(&p, "reading", 1000000, 10000000);
  cli_output_progress_bytes(&p, "reading", 2000000, 10000000); /* too soon */
  cli_output_progress_bytes(&p, "reading", 10000000, 10000000);
  cli_output_progress_bytes(&p, "reading", 10000000, 10000000);
  p.shown_at = 0;
  cli_output_progress_count(&p, "rows", 3, 4);
  cli_output_progress_end(&p);
  cli_output_progress_end(&p);
  assert_true(dup2(errors, STDERR_FILENO) >= 0);
  size_t bytes = read_terminal(terminal, text, sizeof text - 1, strlen(EXPECTED));
  close(terminal), close(errors), close(null), close(end);
  assert_true(bytes > 0 && is_quiet);
  assert_string_equal(text, EXPECTED);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(numbers), cmocka_unit_test(nothing_for_terminals), cmocka_unit_test(requests),
                                     cmocka_unit_test(a_list_ends), cmocka_unit_test(what_is_not_written), cmocka_unit_test(progress)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

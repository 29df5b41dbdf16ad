/* test_json_text.c - JSON that cannot be parsed for want of memory is told from text that is not JSON, by each way into the program. */
#include "tests/unit/unit.h"
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include "engine/base/json_text.h"
#include "engine/jsonl/json_line.h"
#include "engine/serve/fields.h"
#include "engine/text/tokenizer_json.h"

static const char TEXT[] =
  "{\"a\": [1, -2.5, true, null, \"a text of some length, so that it needs memory of its own\"], \"b\": {\"c\": \"\\u00e9\"}}";
static unsigned allocations_left;

static void *take(size_t bytes) {
  if (allocations_left == 0) errno = ENOMEM;
  else allocations_left--;
  return errno == ENOMEM ? NULL : malloc(bytes);
}

static status with_text_load(json_t **out) {
  json_error_t error;
  *out = json_text_load(TEXT, sizeof TEXT - 1, 0, &error);
  if (!*out) assert_string_equal(error.text, "out of memory");
  return *out ? OK : json_text_fault(&error, ERR_FORMAT);
}

static status with_line(json_t **out) { return json_line_parse(TEXT, sizeof TEXT - 1, 1, out); }
static status with_tokenizer(json_t **out) { return tokenizer_json_load("tokenizer.json", TEXT, sizeof TEXT - 1, out); }

static status with_body(json_t **out) {
  serve_fault fault;
  if (serve_fields_parse(TEXT, sizeof TEXT - 1, out, &fault)) return OK;
  assert_string_equal(fault.code, "out_of_memory");
  return fault.http_status == 500 ? ERR_LIMIT : ERR_FORMAT;
}

static void memory_that_runs_out_is_not_wrong_syntax(void **state) {
  (void)state;
  status (*const ways[])(json_t **) = {with_text_load, with_line, with_tokenizer, with_body};
  json_set_alloc_funcs(take, free);
  for (size_t i = 0; i < ARRAY_LEN(ways); i++) {
    unsigned failures = 0;
    for (json_t *parsed = NULL; !parsed; failures++) {
      fail_clear();
      errno = 0;
      allocations_left = failures;
      status result = ways[i](&parsed);
      if (parsed) assert_int_equal(result, OK);
      else if (result != ERR_LIMIT) fail_msg("way %zu, allocation %u: %d, %s", i, failures, result, fail_text());
      json_decref(parsed);
      if (parsed) break;
    }
    assert_true(failures > 5);
  }
  json_set_alloc_funcs(malloc, free);
}

/* Control: text that is not JSON is still called that, also after a call that ran out of memory. */
static void wrong_syntax_is_not_want_of_memory(void **state) {
  (void)state;
  json_error_t error;
  errno = ENOMEM;
  assert_null(json_text_load("{\"a\"", 4, 0, &error));
  assert_int_equal(json_text_fault(&error, ERR_FORMAT), ERR_FORMAT);
  assert_null(strstr(error.text, "memory"));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(memory_that_runs_out_is_not_wrong_syntax),
                                     cmocka_unit_test(wrong_syntax_is_not_want_of_memory)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

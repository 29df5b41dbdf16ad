/* fuzz_jinja.c - a template and its variables: a Jinja text, a byte of zero, a JSON object. What renders is UTF-8, bounded and the same the
 * second time; every error has a message and leaves its outputs. */
#include <jansson.h>
#include "engine/jinja/jinja.h"
#include "engine/base/utf8.h"
#include "fuzz.h"

#define VARIABLES 16

static bool render(const jinja_template *template, const json_t *object, char **text, size_t *bytes) {
  jinja_memory memory = {0};
  jinja_variable variables[VARIABLES];
  size_t count = 0;
  const char *key;
  const json_t *value;
  bool is_good = true;
  fail_clear();
  json_object_foreach((json_t *)(uintptr_t)object, key, value) {
    if (count == VARIABLES || !is_good) break;
    variables[count].name = key;
    is_good = fuzz_is_ok(jinja_value_of_json(&memory, value, &variables[count].value));
    count += is_good;
  }
  is_good = is_good && fuzz_is_ok(jinja_render(template, &memory, variables, count, "2025-07-31", text, bytes));
  jinja_memory_close(&memory);
  return is_good;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  const uint8_t *end = memchr(data, 0, bytes);
  size_t template_bytes = end ? (size_t)(end - data) : bytes;
  jinja_template *template = NULL;
  fail_clear();
  if (!fuzz_is_ok(jinja_open(&template, (const char *)data, template_bytes))) {
    ASSERT(template == NULL);
    return 0;
  }
  const size_t flags = JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL;
  json_t *object = end ? json_loadb((const char *)end + 1, bytes - template_bytes - 1, flags, NULL) : NULL;
  char *text = NULL, *again = NULL;
  size_t text_bytes = 0, again_bytes = 0;
  bool is_good = render(template, object, &text, &text_bytes), is_good_again = render(template, object, &again, &again_bytes);
  ASSERT(is_good == is_good_again && text_bytes == again_bytes);
  if (is_good) {
    ASSERT(text_bytes <= JINJA_TEXT_BYTES_MAX && text[text_bytes] == 0 && memcmp(text, again, text_bytes) == 0);
    ASSERT(utf8_valid_bytes((const uint8_t *)text, text_bytes) == text_bytes);
  } else ASSERT(text == NULL && again == NULL);
  free(text);
  free(again);
  json_decref(object);
  jinja_close(template);
  return 0;
}

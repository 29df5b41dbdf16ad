/* fuzz_chat.c - the body of a chat request, for several templates: the first byte chooses the template, the rest is JSON. A prompt is
 * within its bound, is UTF-8 and is the same the second time, and the body does not change. */
#include <jansson.h>
#include <stdio.h>
#include "engine/chat/chat.h"
#include "engine/text/tokenizer.h"
#include "engine/base/utf8.h"
#include "fuzz.h"

static const char *const names[] = {"plain", "deepseek_r1_think", "glm_47", "turns_with_calls", "headers_with_date", "strict_instructions",
                                    "roles_in_marks", "deepseek_v32"};
static chat *chats[ARRAY_LEN(names)];

static void open_one(size_t which) {
  char file[128];
  bool is_program = strcmp(names[which], "deepseek_v32") == 0;
  snprintf(file, sizeof file, "tests/data/chat/%s.jinja", names[which]);
  if (!chats[which])
    ASSERT(chat_open(&chats[which], is_program ? "tests/data/chat/deepseek_v32" : "tests/tiny", is_program ? NULL : file) == OK);
}

static void check(const chat *self, json_t *body) {
  char *text = NULL, *again = NULL, *before = json_dumps(body, 0), *after = NULL;
  size_t bytes = 0, again_bytes = 0;
  json_t *ignored = json_array();
  fail_clear();
  if (fuzz_is_ok(chat_render(self, body, ignored, &text, &bytes))) {
    ASSERT(bytes <= TOKENIZER_TEXT_BYTES_MAX && text[bytes] == 0);
    ASSERT(utf8_valid_bytes((const uint8_t *)text, bytes) == bytes);
    ASSERT(chat_render(self, body, ignored, &again, &again_bytes) == OK && again_bytes == bytes && memcmp(text, again, bytes) == 0);
  } else ASSERT(text == NULL && bytes == 0);
  after = json_dumps(body, 0);
  ASSERT(before && after && strcmp(before, after) == 0);
  json_decref(ignored);
  free(text);
  free(again);
  free(before);
  free(after);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  if (bytes == 0) return 0;
  size_t which = data[0] % ARRAY_LEN(names);
  open_one(which);
  json_t *body = json_loadb((const char *)data + 1, bytes - 1, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
  if (json_is_object(body)) check(chats[which], body);
  json_decref(body);
  return 0;
}

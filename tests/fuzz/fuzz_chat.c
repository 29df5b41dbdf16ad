/* fuzz_chat.c - the body of a chat request, for every renderer: the first byte chooses the renderer, the rest is JSON. A prompt is within
 * its bound, is UTF-8 and is the same the second time, and the body does not change. */
#include <jansson.h>
#include "engine/chat/chat.h"
#include "engine/text/tokenizer.h"
#include "engine/base/utf8.h"
#include "fuzz.h"

static const char *const names[] = {
  "plain", "deepseek_v2", "deepseek_v25", "deepseek_v3", "deepseek_r1", "deepseek_r1_think", "deepseek_r1_0528", "deepseek_v31",
  "deepseek_v31_terminus", "deepseek_v32", "moonlight", "kimi_k2", "kimi_k2_instruct", "kimi_k2_instruct_tight",
  "kimi_k2_thinking", "kimi_k25", "glm_45", "glm_47", "glm_51"};
static chat *chats[ARRAY_LEN(names)];

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
  if (!chats[which]) ASSERT(chat_open_named(&chats[which], "tests/tiny", names[which]) == OK);
  json_t *body = json_loadb((const char *)data + 1, bytes - 1, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
  if (json_is_object(body)) check(chats[which], body);
  json_decref(body);
  return 0;
}

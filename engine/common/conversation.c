/* common/conversation.c - see common/conversation.h. */
#include "common/conversation.h"
#include <stdlib.h>

status cli_conversation_open(chat **out, const char *model_dir, const char *file) {
  chat *templates = NULL;
  TRY(chat_open(&templates, model_dir, file));
  if (chat_name(templates)) {
    *out = templates;
    return OK;
  }
  status result = FAIL(ERR_UNSUPPORTED, "%s", chat_refusal(templates));
  chat_close(templates);
  return result;
}

status cli_conversation_add(json_t *messages, const char *role, const char *text, size_t bytes) {
  json_t *content = json_stringn(text, bytes);
  if (!content)
    return FAIL(ERR_FORMAT, "expected UTF-8 as the content of a message, found other bytes; hint: check the terminal's encoding");
  if (json_array_append_new(messages, json_pack("{s:s, s:o}", "role", role, "content", content)) == 0) return OK;
  return FAIL(ERR_LIMIT, "a message: no memory");
}

static status encode(tokenizer *t, const char *text, size_t bytes, int32_t **ids, uint32_t *count) {
  size_t found = 0, room = bytes + 8;
  int32_t *list = malloc(room * sizeof *list);
  if (!list) return FAIL(ERR_LIMIT, "a prompt: no memory");
  status result = tokenizer_encode(t, text, bytes, false, true, list, room, &found);
  if (result != OK) {
    free(list);
    return result;
  }
  *ids = list;
  *count = (uint32_t)found;
  return OK;
}

status cli_conversation_encode(const chat *templates, tokenizer *t, json_t *messages, int32_t **ids, uint32_t *count) {
  json_t *body = json_pack("{s:O}", "messages", messages);
  char *text = NULL;
  size_t bytes = 0;
  if (!body) return FAIL(ERR_LIMIT, "a conversation: no memory");
  status result = chat_render(templates, body, NULL, &text, &bytes);
  json_decref(body);
  TRY(result);
  result = encode(t, text, bytes, ids, count);
  free(text);
  return result;
}

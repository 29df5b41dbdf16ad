/* eval/prompt.c - see eval/prompt.h. One scan for "{{" and "}}". */
#include "eval/prompt.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIELD_BYTES_MAX 128u

status eval_prompt_append(eval_text *self, const char *bytes, size_t count) {
  if (count > EVAL_PROMPT_BYTES_MAX - self->count) return FAIL(ERR_LIMIT, "a text of more than %u bytes", EVAL_PROMPT_BYTES_MAX);
  if (self->count + count + 1 > self->room) {
    size_t room = 2 * (self->count + count) + 64;
    char *grown = realloc(self->bytes, room);
    if (!grown) return FAIL(ERR_LIMIT, "no memory for a text");
    self->bytes = grown;
    self->room = room;
  }
  if (count) memcpy(self->bytes + self->count, bytes, count);
  self->count += count;
  self->bytes[self->count] = 0;
  return OK;
}

static status append_field(eval_text *self, const char *name, size_t bytes, const json_t *item) {
  char field[FIELD_BYTES_MAX + 1], number[32];
  while (bytes && *name == ' ') name++, bytes--;
  while (bytes && name[bytes - 1] == ' ') bytes--;
  if (bytes == 0 || bytes > FIELD_BYTES_MAX)
    return FAIL(ERR_FORMAT, "template: expected {{field}}, a name of 1 to %u bytes", FIELD_BYTES_MAX);
  memcpy(field, name, bytes);
  field[bytes] = 0;
  const json_t *value = json_object_get(item, field);
  if (json_is_string(value)) return eval_prompt_append(self, json_string_value(value), json_string_length(value));
  if (json_is_integer(value)) {
    int length = snprintf(number, sizeof number, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
    return eval_prompt_append(self, number, (size_t)length);
  }
  for (char *c = field; *c; c++) *c = (unsigned char)*c < 0x20 || *c == 0x7f ? '?' : *c;
  if (!value) return FAIL(ERR_FORMAT, "template: the item has no field \"%s\"", field);
  return FAIL(ERR_FORMAT, "template: field \"%s\": expected a text or a whole number", field);
}

status eval_prompt_render(eval_text *self, const char *template, const json_t *item) {
  TRY(eval_prompt_append(self, "", 0));
  for (const char *at = template; *at;) {
    const char *open = strstr(at, "{{"), *close = open ? strstr(open, "}}") : NULL;
    if (open && !close) return FAIL(ERR_FORMAT, "template: \"{{\" without a closing \"}}\"");
    TRY(eval_prompt_append(self, at, open ? (size_t)(open - at) : strlen(at)));
    if (!open) break;
    TRY(append_field(self, open + 2, (size_t)(close - open) - 2, item));
    at = close + 2;
  }
  return OK;
}

/* eval/import/import.c - see eval/import/import.h. */
#include "eval/import/import.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "eval/items.h"

void eval_import_close(eval_import *self) {
  strbuf_close(&self->items);
  json_decref(self->tasks);
  free(self->name);
  *self = (eval_import){0};
}

/* === What is lost =========================================================================================================== */

status eval_import_cannot(eval_import_accept *accept, const char *key, const char *format, ...) {
  char reason[640];
  va_list arguments;
  for (uint32_t i = 0; i < accept->count; i++) {
    if (strcmp(accept->names[i], key) != 0) continue;
    accept->was_used[i] = true;
    return OK;
  }
  va_start(arguments, format);
  vsnprintf(reason, sizeof reason, format, arguments);
  va_end(arguments);
  for (char *c = reason; *c; c++) *c = (unsigned char)*c < 0x20 || *c == 0x7f ? '?' : *c;
  return FAIL(ERR_UNSUPPORTED, "%.64s: %s, or --accept %.64s to go without", key, reason, key);
}

status eval_import_check_accepted(const eval_import_accept *accept) {
  for (uint32_t i = 0; i < accept->count; i++)
    if (!accept->was_used[i])
      return FAIL(ERR_USAGE, "--accept %.64s: nothing of that name is lost; hint: remove it", accept->names[i]);
  return OK;
}

/* === Outputs ================================================================================================================ */

status eval_import_add_item(eval_import *self, json_t *item) {
  char *line = item ? json_dumps(item, JSON_COMPACT) : NULL;
  json_decref(item);
  if (!line) return FAIL(ERR_LIMIT, "items: no memory");
  strbuf_adds(&self->items, line);
  strbuf_add(&self->items, "\n", 1);
  free(line);
  if (++self->item_count > EVAL_ITEMS_MAX) return FAIL(ERR_LIMIT, "more than %u items", EVAL_ITEMS_MAX);
  return self->items.failed ? FAIL(ERR_LIMIT, "items: no memory") : OK;
}

status eval_import_add_task(eval_import *self, const char *file, json_t *keys) {
  char name[EVAL_TASK_NAME_BYTES_MAX + 1];
  snprintf(name, sizeof name, "%s", file);
  for (char *c = name; *c; c++) {
    bool is_plain = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') || (*c >= '0' && *c <= '9') || strchr("_-", *c) ||
                    (*c == '.' && c > name);
    if (!is_plain) *c = '_';
  }
  if (!self->tasks) self->tasks = json_array();
  if (!self->name && *name) self->name = strdup(name);
  json_t *task = json_pack("{s:s, s:o}", "name", name, "keys", keys);
  return self->name && json_array_append_new(self->tasks, task) == 0 ? OK : FAIL(ERR_LIMIT, "tasks: no memory");
}

static status put_key(const char *key, const json_t *value, strbuf *out) {
  char *text = json_dumps(value, JSON_ENCODE_ANY);
  if (!text) return FAIL(ERR_LIMIT, "tasks: no memory");
  strbuf_adds(out, key);
  strbuf_adds(out, ": ");
  strbuf_adds(out, text);
  strbuf_add(out, "\n", 1);
  free(text);
  return OK;
}

status eval_import_task_text(const json_t *keys, const char *items, const char *comment, strbuf *out) {
  const char *key;
  json_t *value, *file = json_string(items);
  strbuf_adds(out, comment);
  status result = file ? put_key("items", file, out) : FAIL(ERR_LIMIT, "tasks: no memory");
  json_decref(file);
  json_object_foreach((json_t *)(uintptr_t)keys, key, value)
    if (result == OK) result = put_key(key, value, out);
  TRY(result);
  return out->failed ? FAIL(ERR_LIMIT, "tasks: no memory") : OK;
}

/* === Check ================================================================================================================== */

static status check_task(const eval_import *self, const json_t *keys) {
  eval_task task = {0};
  eval_items items = {0};
  strbuf text = {0};
  status result = eval_import_task_text(keys, "items.jsonl", "", &text);
  if (result == OK) result = eval_task_parse(text.bytes, text.count, &task);
  if (result == OK) result = eval_items_make(&task, (eval_source){self->items.bytes, self->items.count}, (eval_source){0}, &items);
  if (result == OK) eval_items_close(&items);
  eval_task_close(&task);
  strbuf_close(&text);
  return result;
}

status eval_import_check(const eval_import *self) {
  for (size_t i = 0; i < json_array_size(self->tasks); i++) {
    const json_t *task = json_array_get(self->tasks, i);
    status result = check_task(self, json_object_get(task, "keys"));
    if (result != OK) fail_prefix(json_string_value(json_object_get(task, "name")));
    TRY(result);
  }
  return OK;
}

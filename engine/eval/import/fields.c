/* eval/import/fields.c - see eval/import/fields.h. Follows ConfigurableTask of lm_eval/api/task.py. */
#include "eval/import/fields.h"
#include <stdlib.h>
#include <string.h>
#include "base/yaml.h"
#include "eval/import/literal.h"
#include "jinja/write.h"

static status no_memory(const char *key) { return FAIL(ERR_LIMIT, "%s: no memory", key); }

/* Messages of engine/jinja name a chat template, which this is not. */
static status rename_cause(const char *key, status result) {
  static const char before[] = "chat template";
  char text[FAIL_TEXT_MAX];
  if (result == OK) return OK;
  bool is_jinja = strncmp(fail_text(), before, sizeof before - 1) == 0;
  snprintf(text, sizeof text, "%s", fail_text() + (is_jinja ? sizeof before - 1 : 0));
  fail_clear();
  return FAIL(result, is_jinja ? "%s%s" : "%s: %s", key, text);
}

/* === Opening ================================================================================================================ */

static status check_list(const char *key, const json_t *list) {
  for (size_t i = 0; i < json_array_size(list); i++)
    if (!json_is_string(json_array_get(list, i)))
      return FAIL(ERR_FORMAT, "%s: expected a list of texts; hint: write numbers and words like true in quotes", key);
  return OK;
}

static status open_template(eval_import_field *self) {
  TRY(jinja_open_plain(&self->template, json_string_value(self->given), json_string_length(self->given)));
  if (jinja_mentions(self->template, "tojson"))
    return FAIL(ERR_UNSUPPORTED, "chat template: tojson, which jinja2 escapes for HTML; hint: put the text into the data");
  return OK;
}

status eval_import_fields_open(eval_import_field *out, const char *key, const json_t *given, const json_t *record) {
  *out = (eval_import_field){.key = key};
  if (!given || json_is_null(given)) return OK;
  const char *function = json_string_value(json_object_get(given, YAML_FUNCTION));
  if (function)
    return FAIL(ERR_UNSUPPORTED, "%s: !function %.64s is a program in Python; hint: write a template, or import the harness's log of "
                "samples "
                                 "(--log_samples), which holds what the function made", key, function);
  if (!json_is_string(given) && !json_is_integer(given) && !json_is_array(given))
    return FAIL(ERR_FORMAT, "%s: expected a field, a template, a whole number or a list", key);
  out->given = given;
  TRY(check_list(key, given));
  if (!json_is_string(given) || json_object_get(record, json_string_value(given))) return OK;
  return rename_cause(key, open_template(out));
}

void eval_import_fields_close(eval_import_field *self) {
  jinja_close(self->template);
  *self = (eval_import_field){0};
}

/* === Records ================================================================================================================ */

status eval_import_fields_record(const json_t *object, eval_import_record *out) {
  eval_import_record made = {.object = object, .variables = calloc(json_object_size(object) + 1, sizeof *made.variables)};
  const char *key;
  json_t *value;
  status result = made.variables ? OK : no_memory("data");
  json_object_foreach((json_t *)(uintptr_t)object, key, value) {
    if (result != OK) break;
    made.variables[made.count].name = key;
    result = jinja_value_of_json(&made.memory, value, &made.variables[made.count++].value);
  }
  if (result == OK) *out = made;
  else eval_import_fields_record_close(&made);
  return rename_cause("data", result);
}

void eval_import_fields_record_close(eval_import_record *self) {
  jinja_memory_close(&self->memory);
  free(self->variables);
  *self = (eval_import_record){0};
}

static status render(const eval_import_field *self, eval_import_record *record, json_t **out) {
  char *text = NULL;
  size_t bytes = 0;
  TRY(rename_cause(self->key, jinja_render(self->template, &record->memory, record->variables, record->count, NULL, &text, &bytes)));
  *out = json_stringn(text, bytes);
  free(text);
  return *out ? OK : no_memory(self->key);
}

/* === What the harness makes of them ========================================================================================= */

/* The field's value, the constant, or the rendered text. */
static status evaluate(const eval_import_field *self, eval_import_record *record, json_t **out) {
  if (!self->given) return FAIL(ERR_FORMAT, "%s: expected a field or a template, found none", self->key);
  if (self->template) return render(self, record, out);
  const json_t *value = self->given;
  if (json_is_string(value)) value = json_object_get(record->object, json_string_value(value));
  if (!value) return FAIL(ERR_FORMAT, "%s: the record has no field \"%.64s\"", self->key, json_string_value(self->given));
  *out = json_incref((json_t *)(uintptr_t)value);
  return OK;
}

status eval_import_fields_text(const eval_import_field *self, eval_import_record *record, json_t **out) {
  json_t *made = NULL;
  TRY(evaluate(self, record, &made));
  status result = json_is_string(made) ? OK : FAIL(ERR_FORMAT, "%s: expected a text", self->key);
  if (result == OK) *out = made;
  else json_decref(made);
  return result;
}

/* A printed list, read back. */
static status read_literal(const eval_import_field *self, const json_t *text, json_t **out) {
  status result = eval_import_literal_parse(json_string_value(text), json_string_length(text), out);
  return rename_cause(self->key, result);
}

status eval_import_fields_choices(const eval_import_field *self, eval_import_record *record, json_t **out) {
  json_t *made = NULL, *list = NULL;
  TRY(evaluate(self, record, &made));
  status result = json_is_string(made) && self->template ? read_literal(self, made, &list) : OK;
  if (result == OK && !list) list = json_incref(made);
  bool is_good = json_array_size(list) > 0;
  for (size_t i = 0; i < json_array_size(list); i++) is_good &= json_string_length(json_array_get(list, i)) > 0;
  if (result == OK && !is_good) result = FAIL(ERR_FORMAT, "%s: expected a list of texts that are not empty", self->key);
  json_decref(made);
  if (result == OK) *out = list;
  else json_decref(list);
  return result;
}

static bool is_digits(const json_t *text) {
  const char *word = json_string_value(text);
  return *word && strspn(word, "0123456789") == json_string_length(text);
}

status eval_import_fields_target(const eval_import_field *self, eval_import_record *record, bool has_choices, json_t **out) {
  json_t *made = NULL, *read = NULL;
  TRY(evaluate(self, record, &made));
  size_t bytes = json_string_length(made);
  const char *text = json_string_value(made);
  status result = OK;
  if (!self->template) read = json_incref(made);
  else if (has_choices && is_digits(made)) result = read_literal(self, made, &read);
  else if (bytes >= 2 && text[0] == '[' && text[bytes - 1] == ']') {
    result = eval_import_literal_parse(text, bytes, &read);
    if (result == ERR_FORMAT) { /* the harness keeps a text that is no list */
      fail_clear();
      result = OK;
    } else result = rename_cause(self->key, result);
  }
  if (result == OK && !read) read = json_incref(made);
  json_decref(made);
  if (result == OK) *out = read;
  return result;
}

status eval_import_fields_print(const json_t *value, json_t **out) {
  jinja_memory memory = {0};
  jinja_value made;
  strbuf text = {0};
  status result = jinja_value_of_json(&memory, value, &made);
  if (result == OK) result = jinja_write_text(&memory, made, &text);
  if (result == OK && !(*out = json_stringn(text.bytes ? text.bytes : "", text.count))) result = no_memory("doc_to_target");
  strbuf_close(&text);
  jinja_memory_close(&memory);
  return rename_cause("doc_to_target", result);
}

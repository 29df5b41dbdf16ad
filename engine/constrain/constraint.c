/* constraint.c - see constraint.h. One function for each kind of text. */
#include "constrain/constraint.h"
#include "base/json_text.h"
#include "base/utf8.h"
#include "constrain/regex.h"
#include "constrain/schema.h"
#include "constrain/until.h"
#include "base/strbuf.h"
#include <stdlib.h>

#define PARTS_DEPTH_MAX 8u

/* === Choices ================================================================================================================ */

static status add_choices(program *p, const json_t *list) {
  program_choice choice = program_open(p);
  size_t i;
  const json_t *text;
  if (!json_is_array(list) || json_array_size(list) == 0) return FAIL(ERR_USAGE, "choice: expected a list of one or more texts");
  json_array_foreach(list, i, text) {
    if (!json_is_string(text)) return FAIL(ERR_USAGE, "choice: entry %zu: expected a text", i);
    if (json_string_length(text) == 0) return FAIL(ERR_USAGE, "choice: entry %zu: expected a text that is not empty", i);
    if (i > 0) program_or(p, &choice);
    program_bytes(p, json_string_value(text), json_string_length(text));
  }
  program_shut(p, &choice);
  return OK;
}

/* === Parts ================================================================================================================== */

static status add_parts(program *p, const json_t *list, strbuf *marks, uint32_t depth);

static status add_any(program *p, const json_t *lists, strbuf *marks, uint32_t depth) {
  program_choice choice = program_open(p);
  size_t i;
  const json_t *list;
  json_array_foreach(lists, i, list) {
    if (i > 0) program_or(p, &choice);
    TRY(add_parts(p, list, marks, depth + 1));
  }
  program_shut(p, &choice);
  return OK;
}

/* A text that stands in `marks`, too. */
static status add_mark(program *p, const json_t *text, bool is_after_any, strbuf *marks) {
  strbuf_add(marks, json_string_value(text), json_string_length(text) + 1);
  if (marks->failed) return FAIL(ERR_LIMIT, "constraint: no memory");
  if (is_after_any) return until_add(p, json_string_value(text), json_string_length(text));
  program_bytes(p, json_string_value(text), json_string_length(text));
  return OK;
}

static status add_part(program *p, const json_t *part, size_t number, strbuf *marks, uint32_t depth) {
  const json_t *text = json_object_get(part, "text"), *regex = json_object_get(part, "regex"), *until = json_object_get(part, "until");
  const json_t *schema = json_object_get(part, "json_schema"), *any = json_object_get(part, "any");
  if (json_object_size(part) != 1 ||
      !(schema || json_is_string(text) || json_is_string(regex) || json_is_string(until) || json_array_size(any) > 0))
    return FAIL(ERR_USAGE, "parts: entry %zu: expected one of text, regex, json_schema, until and any", number);
  if (text || until) return add_mark(p, text ? text : until, until, marks);
  if (regex) return regex_add(p, &(regex_source){.text = json_string_value(regex), .bytes = json_string_length(regex)});
  return any ? add_any(p, any, marks, depth) : schema_add(p, schema);
}

/* An empty list is the empty text: of use within `any` alone. */
static status add_parts(program *p, const json_t *list, strbuf *marks, uint32_t depth) {
  size_t i;
  const json_t *part;
  if (depth > PARTS_DEPTH_MAX) return FAIL(ERR_LIMIT, "parts: expected at most %u lists within lists", PARTS_DEPTH_MAX);
  if (!json_is_array(list) || (depth == 0 && json_array_size(list) == 0))
    return FAIL(ERR_USAGE, "parts: expected a list of one or more parts");
  json_array_foreach(list, i, part) TRY(add_part(p, part, i, marks, depth));
  return OK;
}

/* === All kinds ============================================================================================================== */

static status add_json(program *p, enum verbatim_constraint_kind kind, const char *text, size_t bytes, strbuf *marks) {
  json_error_t error;
  json_t *root = json_text_load(text, bytes, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_ALLOW_NUL, &error);
  if (!root)
    return FAIL(json_text_fault(&error, ERR_USAGE), "constraint: expected JSON, found an error at byte %d: %.200s", error.position,
                error.text);
  const status result = kind == VERBATIM_CHOICE  ? add_choices(p, root)
                        : kind == VERBATIM_PARTS ? add_parts(p, root, marks, 0)
                                                 : schema_add(p, root);
  json_decref(root);
  return result;
}

static status add_text(program *p, enum verbatim_constraint_kind kind, const char *text, size_t bytes, strbuf *marks) {
  if (kind == VERBATIM_REGEX) return regex_add(p, &(regex_source){.text = text, .bytes = bytes});
  if (kind != VERBATIM_JSON_OBJECT) return add_json(p, kind, text, bytes, marks);
  if (bytes) return FAIL(ERR_USAGE, "json_object: expected no text, found %zu bytes", bytes);
  schema_add_object(p);
  return OK;
}

static status compile(verbatim_constraint *self) {
  program p = {0};
  strbuf marks = {0};
  status result = add_text(&p, self->kind, self->text, self->bytes, &marks);
  program_end(&p);
  if (result == OK && p.is_full)
    result = FAIL(ERR_LIMIT, "constraint: it has more than %u instructions; hint: smaller repetitions, fewer alternatives or less nesting",
                  PROGRAM_MAX);
  if (result == OK) result = automaton_open(&self->automaton, &p);
  program_close(&p);
  if (result != OK) {
    strbuf_close(&marks);
    return result;
  }
  self->automaton.marks = marks.bytes;
  self->automaton.marks_bytes = marks.count;
  return OK;
}

status constraint_open(verbatim_constraint **out, enum verbatim_constraint_kind kind, const char *text, size_t bytes) {
  const uint32_t number = (uint32_t)kind;
  digest_state state;
  if (kind < VERBATIM_CHOICE || kind > VERBATIM_PARTS) return FAIL(ERR_USAGE, "constraint: expected a kind, found %u", number);
  if (bytes && !text) return FAIL(ERR_USAGE, "constraint: expected a text, found null");
  if (bytes > VERBATIM_CONSTRAINT_BYTES_MAX)
    return FAIL(ERR_LIMIT, "constraint: %zu bytes of text, at most %u are allowed", bytes, VERBATIM_CONSTRAINT_BYTES_MAX);
  if (bytes && utf8_valid_bytes((const uint8_t *)text, bytes) != bytes) return FAIL(ERR_USAGE, "constraint: expected UTF-8");
  verbatim_constraint *self = calloc(1, sizeof *self);
  if (!self || !(self->text = malloc(bytes + 1))) {
    free(self);
    return FAIL(ERR_LIMIT, "constraint: no memory");
  }
  self->kind = kind;
  self->bytes = bytes;
  memcpy(self->text, bytes ? text : "", bytes);
  digest_start(&state);
  digest_add(&state, &number, sizeof number);
  digest_add(&state, self->text, bytes);
  self->identity = digest_end(&state);
  const status result = compile(self);
  if (result != OK) constraint_close(self);
  else *out = self;
  return result;
}

void constraint_close(verbatim_constraint *self) {
  if (!self) return;
  automaton_close(&self->automaton);
  free(self->text);
  free(self);
}

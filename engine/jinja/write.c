/* jinja/write.c - see jinja/write.h. */
#include "jinja/write.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/utf8.h"
#include "jinja/printable.h"
#include "jinja/text.h"

static status put(jinja_memory *memory, strbuf *out, const char *bytes, size_t count) {
  TRY(jinja_memory_step(memory, count));
  if (count > JINJA_TEXT_BYTES_MAX - out->count)
    return FAIL(ERR_LIMIT, "the conversation makes a prompt of more than %u bytes", JINJA_TEXT_BYTES_MAX);
  if (count) strbuf_add(out, bytes, count);
  return out->failed ? FAIL(ERR_LIMIT, "the conversation: no memory") : OK;
}

static status say(jinja_memory *memory, strbuf *out, const char *words) { return put(memory, out, words, strlen(words)); }

/* === Numbers ================================================================================================= */

/* repr(float): the shortest digits that read back as the same number; an exponent below 1e-4 and from 1e16 on. */
static void spell_real(double value, char text[64]) {
  char shortest[40], digits[24];
  int precision = 0;
  do snprintf(shortest, sizeof shortest, "%.*e", precision, value);
  while (strtod(shortest, NULL) != value && ++precision < 17);
  const char *from = shortest + (shortest[0] == '-'), *sign = from != shortest ? "-" : "";
  char *mark = strchr(from, 'e');
  ASSERT(mark != NULL);
  int exponent = (int)strtol(mark + 1, NULL, 10), count = 0;
  for (const char *c = from; c < mark; c++)
    if (*c >= '0' && *c <= '9') digits[count++] = *c; /* the decimal point, which depends on the locale, is left out */
  digits[count] = 0;
  if (exponent < -4 || exponent >= 16)
    snprintf(text, 64, "%s%c%s%se%c%02d", sign, digits[0], count > 1 ? "." : "", digits + 1, exponent < 0 ? '-' : '+', abs(exponent));
  else if (exponent < 0) snprintf(text, 64, "%s0.%.*s%s", sign, -exponent - 1, "000", digits);
  else if (exponent >= count - 1) snprintf(text, 64, "%s%s%.*s.0", sign, digits, exponent - count + 1, "0000000000000000");
  else snprintf(text, 64, "%s%.*s.%s", sign, exponent + 1, digits, digits + exponent + 1);
}

static status put_number(jinja_memory *memory, jinja_value value, bool is_json, strbuf *out) {
  char text[64];
  if (value.kind == JINJA_BOOL) return say(memory, out, is_json ? (value.truth ? "true" : "false") : value.truth ? "True" : "False");
  if (value.kind == JINJA_INTEGER) snprintf(text, sizeof text, "%lld", (long long)value.integer);
  else if (isnan(value.real)) strcpy(text, is_json ? "NaN" : "nan");
  else if (isinf(value.real))
    snprintf(text, sizeof text, "%s%s", value.real < 0 ? "-" : "", is_json ? "Infinity" : "inf");
  else spell_real(value.real, text);
  return say(memory, out, text);
}

/* === repr ==================================================================================================== */

static status put_code(jinja_memory *memory, jinja_text one, char quote, jinja_printable *printable, strbuf *out) {
  char escape[16];
  bool is_printable = false;
  uint32_t code = utf8_code_point((const uint8_t *)one.bytes, (int)one.count);
  const char *known = code == '\n' ? "\\n" : code == '\r' ? "\\r" : code == '\t' ? "\\t" : code == '\\' ? "\\\\" : NULL;
  if (known) return say(memory, out, known);
  TRY(jinja_printable_ask(printable, code, &is_printable));
  if (code == (uint8_t)quote) snprintf(escape, sizeof escape, "\\%c", quote);
  else if (is_printable) return put(memory, out, one.bytes, one.count);
  else snprintf(escape, sizeof escape, code < 0x100 ? "\\x%02x" : code < 0x10000 ? "\\u%04x" : "\\U%08x", code);
  return say(memory, out, escape);
}

static status put_quoted(jinja_memory *memory, jinja_text text, strbuf *out) {
  bool has_single = text.count && memchr(text.bytes, '\'', text.count), has_double = text.count && memchr(text.bytes, '"', text.count);
  char quote = has_single && !has_double ? '"' : '\'';
  jinja_printable printable = {0};
  status result = put(memory, out, &quote, 1);
  for (size_t at = 0, step; at < text.count && result == OK; at += step) {
    step = jinja_text_step(text, at);
    result = put_code(memory, (jinja_text){text.bytes + at, step}, quote, &printable, out);
  }
  jinja_printable_close(&printable);
  return result == OK ? put(memory, out, &quote, 1) : result;
}

static status put_repr(jinja_memory *memory, jinja_value value, unsigned depth, strbuf *out) {
  if (depth > JINJA_DEPTH_MAX) return FAIL(ERR_LIMIT, "the conversation: a value nested more than %u deep", JINJA_DEPTH_MAX);
  if (jinja_value_is_number(value)) return put_number(memory, value, false, out);
  if (value.kind == JINJA_NONE) return say(memory, out, "None");
  if (value.kind == JINJA_UNDEFINED) return say(memory, out, "Undefined");
  if (value.kind == JINJA_TEXT) return put_quoted(memory, value.text, out);
  if (value.kind == JINJA_DICT) {
    TRY(say(memory, out, "{"));
    for (size_t i = 0; i < value.dict->count; i++) {
      jinja_entry *entry = &value.dict->entries[i];
      entry->was_read = true;
      if (i) TRY(say(memory, out, ", "));
      TRY(put_repr(memory, entry->key, depth + 1, out));
      TRY(say(memory, out, ": "));
      TRY(put_repr(memory, entry->value, depth + 1, out));
    }
    return say(memory, out, "}");
  }
  if (value.kind != JINJA_LIST && value.kind != JINJA_TUPLE)
    return FAIL(ERR_UNSUPPORTED, "chat template: it prints a %s, which has no text of its own", jinja_value_type(value));
  bool is_tuple = value.kind == JINJA_TUPLE;
  TRY(say(memory, out, is_tuple ? "(" : "["));
  for (size_t i = 0; i < value.list->count; i++) {
    if (i) TRY(say(memory, out, ", "));
    TRY(put_repr(memory, value.list->items[i], depth + 1, out));
  }
  return say(memory, out, !is_tuple ? "]" : value.list->count == 1 ? ",)" : ")");
}

status jinja_write_text(jinja_memory *memory, jinja_value value, strbuf *out) {
  if (value.kind == JINJA_TEXT) return put(memory, out, value.text.bytes, value.text.count);
  if (value.kind == JINJA_UNDEFINED || (value.marks & JINJA_QUIET)) return OK;
  return put_repr(memory, value, 1, out);
}

/* === JSON ==================================================================================================== */

static status put_json_text(jinja_memory *memory, jinja_text text, bool is_ascii, strbuf *out) {
  char escape[16];
  TRY(jinja_memory_step(memory, text.count));
  size_t start = out->count;
  if (text.count > JINJA_TEXT_BYTES_MAX) return put(memory, out, NULL, text.count);
  strbuf_json(out, text.bytes, text.count, STRBUF_JSON_PYTHON);
  if (out->failed || out->count > JINJA_TEXT_BYTES_MAX) return put(memory, out, NULL, JINJA_TEXT_BYTES_MAX);
  if (!is_ascii) return OK;
  strbuf ascii = {0};
  jinja_text made = {out->bytes + start, out->count - start};
  for (size_t at = 0, step; at < made.count; at += step) {
    step = jinja_text_step(made, at);
    uint32_t code = utf8_code_point((const uint8_t *)made.bytes + at, (int)step), low = code - 0x10000;
    if (code < 0x7f) strbuf_add(&ascii, made.bytes + at, 1);
    else if (code < 0x10000) snprintf(escape, sizeof escape, "\\u%04x", code);
    else snprintf(escape, sizeof escape, "\\u%04x\\u%04x", 0xd800 + (low >> 10), 0xdc00 + (low & 0x3ff));
    if (code >= 0x7f) strbuf_adds(&ascii, escape);
  }
  out->count = start;
  status result = ascii.failed ? FAIL(ERR_LIMIT, "the conversation: no memory") : put(memory, out, ascii.bytes, ascii.count);
  strbuf_close(&ascii);
  return result;
}

static status put_json(jinja_memory *memory, jinja_value value, const jinja_json *form, unsigned depth, strbuf *out);

static status put_line(jinja_memory *memory, const jinja_json *form, unsigned depth, strbuf *out) {
  if (!form->indent) return OK;
  TRY(say(memory, out, "\n"));
  for (unsigned i = 0; i < depth; i++) TRY(put(memory, out, form->indent->bytes, form->indent->count));
  return OK;
}

static status put_json_key(jinja_memory *memory, jinja_value key, const jinja_json *form, strbuf *out) {
  if (key.kind == JINJA_TEXT) return put_json_text(memory, key.text, form->is_ascii, out);
  if (key.kind != JINJA_NONE && !jinja_value_is_number(key))
    return FAIL(ERR_FORMAT, "chat template: keys must be str, int, float, bool or None, not %s", jinja_value_type(key));
  TRY(say(memory, out, "\""));
  TRY(put_json(memory, key, form, 1, out));
  return say(memory, out, "\"");
}

/* The entries in the order in which they are written: a copy if they are sorted by key. */
static status order_entries(jinja_memory *memory, const jinja_dict *dict, const jinja_json *form, jinja_entry ***out) {
  jinja_entry **all = NULL;
  TRY(jinja_memory_take(memory, dict->count * sizeof *all, &all));
  for (size_t i = 0; i < dict->count; i++) {
    size_t at = i;
    for (int order = 1; form->is_sorted && at > 0; at--) {
      TRY(jinja_value_order(memory, all[at - 1]->key, dict->entries[i].key, &order));
      if (order <= 0) break;
      all[at] = all[at - 1];
    }
    all[at] = &dict->entries[i];
    all[at]->was_read = true;
  }
  *out = all;
  return OK;
}

static status put_json_dict(jinja_memory *memory, jinja_value value, const jinja_json *form, unsigned depth, strbuf *out) {
  jinja_entry **all = NULL;
  TRY(order_entries(memory, value.dict, form, &all));
  TRY(say(memory, out, "{"));
  for (size_t i = 0; i < value.dict->count; i++) {
    if (i) TRY(put(memory, out, form->item.bytes, form->item.count));
    TRY(put_line(memory, form, depth, out));
    TRY(put_json_key(memory, all[i]->key, form, out));
    TRY(put(memory, out, form->key.bytes, form->key.count));
    TRY(put_json(memory, all[i]->value, form, depth + 1, out));
  }
  if (value.dict->count) TRY(put_line(memory, form, depth - 1, out));
  return say(memory, out, "}");
}

static status put_json(jinja_memory *memory, jinja_value value, const jinja_json *form, unsigned depth, strbuf *out) {
  if (depth > JINJA_DEPTH_MAX) return FAIL(ERR_LIMIT, "the conversation: a value nested more than %u deep", JINJA_DEPTH_MAX);
  if (value.marks & JINJA_CODED) {
    memory->wants_objects = true;
    return FAIL(ERR_FORMAT, "chat template: a text of JSON is used as an object");
  }
  if (jinja_value_is_number(value)) return put_number(memory, value, true, out);
  if (value.kind == JINJA_NONE) return say(memory, out, "null");
  if (value.kind == JINJA_TEXT) return put_json_text(memory, value.text, form->is_ascii, out);
  if (value.kind == JINJA_DICT) return put_json_dict(memory, value, form, depth, out);
  if (value.kind != JINJA_LIST && value.kind != JINJA_TUPLE)
    return FAIL(ERR_FORMAT, "chat template: Object of type %s is not JSON serializable", jinja_value_type(value));
  TRY(say(memory, out, "["));
  for (size_t i = 0; i < value.list->count; i++) {
    if (i) TRY(put(memory, out, form->item.bytes, form->item.count));
    TRY(put_line(memory, form, depth, out));
    TRY(put_json(memory, value.list->items[i], form, depth + 1, out));
  }
  if (value.list->count) TRY(put_line(memory, form, depth - 1, out));
  return say(memory, out, "]");
}

status jinja_write_json(jinja_memory *memory, jinja_value value, const jinja_json *form, strbuf *out) {
  return put_json(memory, value, form, 1, out);
}

/* eval/import/literal.c - see eval/import/literal.h. A recursive descent over bytes. */
#include "eval/import/literal.h"
#include <stdlib.h>
#include <string.h>
#include "base/strbuf.h"

typedef struct reader {
  const char *at, *end;
} reader;

static status wrong(void) { return FAIL(ERR_FORMAT, "expected a Python list"); }

static status beyond(const char *what) { return FAIL(ERR_UNSUPPORTED, "a Python literal with %s", what); }

static void skip_blanks(reader *r) {
  while (r->at < r->end && strchr(" \t\n\r\f", *r->at) && *r->at) r->at++;
}

static bool take(reader *r, const char *words) {
  size_t count = strlen(words);
  if ((size_t)(r->end - r->at) < count || memcmp(r->at, words, count) != 0) return false;
  r->at += count;
  return true;
}

/* === Texts ================================================================================================================== */

static void put_code_point(uint32_t code, strbuf *out) {
  const uint32_t more = code < 0x80 ? 0 : code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
  const uint8_t first[] = {0, 0xc0, 0xe0, 0xf0};
  char bytes[4] = {(char)(first[more] | (code >> 6 * more))};
  for (uint32_t i = 1; i <= more; i++) bytes[i] = (char)(0x80 | ((code >> 6 * (more - i)) & 0x3f));
  strbuf_add(out, bytes, more + 1);
}

static status read_hex(reader *r, size_t digits, strbuf *out) {
  uint32_t code = 0;
  for (size_t i = 0; i < digits; i++, r->at++) {
    static const char hex[] = "0123456789abcdefABCDEF";
    const char *found = r->at < r->end && *r->at ? strchr(hex, *r->at) : NULL;
    if (!found) return wrong();
    const uint32_t digit = (uint32_t)(found - hex);
    code = code << 4 | (digit < 16 ? digit : digit - 6);
  }
  if (code > 0x10ffff) return wrong();
  if (code >= 0xd800 && code < 0xe000) return beyond("half a surrogate pair");
  put_code_point(code, out);
  return OK;
}

static status read_escape(reader *r, strbuf *out) {
  static const char from[] = "\\'\"abfnrtv", to[] = "\\'\"\a\b\f\n\r\t\v";
  if (r->at == r->end) return wrong();
  const char c = *r->at++, *known = c ? strchr(from, c) : NULL;
  if (known) strbuf_add(out, to + (known - from), 1);
  else if (c == 'x') return read_hex(r, 2, out);
  else if (c == 'u') return read_hex(r, 4, out);
  else if (c == 'U') return read_hex(r, 8, out);
  else if (c == '\n') return OK; /* the line goes on */
  else if (c == 'N' || (c >= '0' && c <= '7')) return beyond("an escape by name or octal number");
  else strbuf_add(out, (const char[]){'\\', c}, 2);
  return OK;
}

static status read_text(reader *r, strbuf *out) {
  const char quote = *r->at++;
  if (r->end - r->at >= 2 && r->at[0] == quote && r->at[1] == quote) return beyond("triple quotes");
  while (r->at < r->end && *r->at != quote) {
    if (*r->at == '\n') return wrong();
    if (*r->at == 0) return wrong();
    if (*r->at++ != '\\') strbuf_add(out, r->at - 1, 1);
    else TRY(read_escape(r, out));
  }
  if (r->at == r->end) return wrong();
  r->at++;
  return OK;
}

/* Texts next to each other are one. */
static status read_texts(reader *r, json_t **out) {
  strbuf joined = {0};
  status result = OK;
  do {
    result = read_text(r, &joined);
    skip_blanks(r);
  } while (result == OK && r->at < r->end && (*r->at == '\'' || *r->at == '"'));
  if (result == OK && !(*out = json_stringn(joined.bytes ? joined.bytes : "", joined.count))) result = FAIL(ERR_LIMIT, "no memory");
  if (joined.failed) result = FAIL(ERR_LIMIT, "no memory");
  strbuf_close(&joined);
  return result;
}

/* === Values ================================================================================================================= */

static status read_value(reader *r, uint32_t depth, json_t **out);

static bool is_word(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || (c & 0x80); }

/* A decimal number as JSON writes it, too. */
static status read_number(reader *r, json_t **out) {
  char text[40];
  size_t count = 0;
  while (r->at < r->end && (is_word(*r->at) || strchr(".+-", *r->at)) && *r->at) {
    if (count + 1 == sizeof text) return beyond("a long number");
    text[count++] = *r->at++;
  }
  json_t *made = json_loadb(text, count, JSON_DECODE_ANY, NULL);
  if (!made) return beyond("a number that JSON does not know");
  *out = made;
  return OK;
}

static status read_word(reader *r, json_t **out) {
  const char *start = r->at;
  while (r->at < r->end && is_word(*r->at)) r->at++;
  const size_t count = (size_t)(r->at - start);
  if (r->at < r->end && (*r->at == '\'' || *r->at == '"')) return beyond("a prefixed text");
  if (count == 4 && memcmp(start, "True", 4) == 0) *out = json_true();
  else if (count == 5 && memcmp(start, "False", 5) == 0) *out = json_false();
  else if (count == 4 && memcmp(start, "None", 4) == 0) *out = json_null();
  else return count == 3 && memcmp(start, "set", 3) == 0 ? beyond("a set") : wrong();
  return OK;
}

static status read_items(reader *r, const char *end, uint32_t depth, json_t *list, bool *has_comma) {
  *has_comma = false;
  for (skip_blanks(r); !take(r, end); skip_blanks(r)) {
    json_t *item = NULL;
    if (json_array_size(list) > 0 && !*has_comma) return wrong();
    TRY(read_value(r, depth + 1, &item));
    if (json_array_append_new(list, item) != 0) return FAIL(ERR_LIMIT, "no memory");
    skip_blanks(r);
    *has_comma = take(r, ",");
  }
  return OK;
}

/* A list, a tuple, or a value in brackets. */
static status read_list(reader *r, uint32_t depth, json_t **out) {
  bool is_tuple = *r->at++ == '(', has_comma = false;
  json_t *list = json_array();
  if (!list) return FAIL(ERR_LIMIT, "no memory");
  status result = read_items(r, is_tuple ? ")" : "]", depth, list, &has_comma);
  if (result == OK && is_tuple && json_array_size(list) == 1 && !has_comma) *out = json_incref(json_array_get(list, 0));
  else if (result == OK) *out = json_incref(list);
  json_decref(list);
  return result;
}

static status read_value(reader *r, uint32_t depth, json_t **out) {
  if (depth > EVAL_IMPORT_LITERAL_DEPTH_MAX) return FAIL(ERR_LIMIT, "a Python list nested more than %u deep",
                                                         EVAL_IMPORT_LITERAL_DEPTH_MAX);
  skip_blanks(r);
  if (r->at == r->end || *r->at == 0) return wrong();
  const char c = *r->at;
  if (c == '[' || c == '(') return read_list(r, depth, out);
  if (c == '\'' || c == '"') return read_texts(r, out);
  if (c == '{') return beyond("a dict or a set");
  if ((c >= '0' && c <= '9') || c == '-' || c == '+' || c == '.') return read_number(r, out);
  if (c == '#' || c == '\\') return beyond("a comment or a line that goes on");
  return is_word(c) ? read_word(r, out) : wrong();
}

status eval_import_literal_parse(const char *text, size_t bytes, json_t **out) {
  reader r = {text, text + bytes};
  json_t *made = NULL;
  status result = bytes && (*text == ' ' || *text == '\t') ? beyond("blanks before it") : read_value(&r, 1, &made);
  if (result == OK) {
    skip_blanks(&r);
    if (r.at != r.end) result = strchr("+-#", *r.at) && *r.at ? beyond("arithmetic or a comment") : wrong();
  }
  if (result == OK) *out = made;
  else json_decref(made);
  return result;
}

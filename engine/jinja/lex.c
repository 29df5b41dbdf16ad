/* jinja/lex.c - see jinja/lex.h. Follows jinja2/lexer.py: what a "-", a "+" or neither inside a tag does to the white space around it. */
#include "jinja/lex.h"
#include <string.h>
#include "base/utf8.h"
#include "jinja/text.h"

size_t jinja_lex_newlines(char *text, size_t bytes, bool keeps_last) {
  size_t kept = 0;
  for (size_t i = 0; i < bytes; i++) {
    if (text[i] == '\r' && i + 1 < bytes && text[i + 1] == '\n') continue;
    text[kept++] = text[i] == '\r' ? '\n' : text[i];
  }
  return !keeps_last && kept > 0 && text[kept - 1] == '\n' ? kept - 1 : kept;
}

void jinja_lex_open(jinja_lex *self, const char *text, size_t bytes, bool keeps_blanks) {
  *self = (jinja_lex){.text = text, .bytes = bytes, .line = 1, .is_at_line_start = true, .keeps_blanks = keeps_blanks};
}

static bool starts(const jinja_lex *self, size_t at, const char *words) {
  size_t count = strlen(words);
  return self->bytes - at >= count && memcmp(self->text + at, words, count) == 0;
}

static void advance(jinja_lex *self, size_t to) {
  for (; self->at < to; self->at++) self->line += self->text[self->at] == '\n';
}

static size_t skip_space(const jinja_lex *self, size_t at) {
  jinja_text rest = {self->text + at, self->bytes - at};
  return self->bytes - jinja_text_strip(rest, NULL, true, false).count;
}

/* The end of a block or comment tag whose mark begins at `at`: "-" drops all white space after it, none drops one line end, "+" nothing. */
static size_t after_mark(const jinja_lex *self, size_t at, size_t mark_bytes, char sign) {
  size_t end = at + mark_bytes;
  if (sign == '-') return skip_space(self, end);
  return self->keeps_blanks || sign == '+' || end >= self->bytes || self->text[end] != '\n' ? end : end + 1;
}

/* === Outside tags ============================================================================================ */

static size_t find_tag(const jinja_lex *self, size_t from) {
  for (size_t at = from; at + 1 < self->bytes; at++)
    if (self->text[at] == '{' && strchr("{%#", self->text[at + 1]) && self->text[at + 1]) return at;
  return self->bytes;
}

/* The data before a tag, without the white space that the tag removes. */
static jinja_text trim_data(const jinja_lex *self, jinja_text data, char sign, bool is_print) {
  if (sign == '-') return jinja_text_strip(data, NULL, false, true);
  if (self->keeps_blanks || sign == '+' || is_print) return data;
  size_t line = data.count;
  while (line > 0 && data.bytes[line - 1] != '\n') line--;
  jinja_text last = {data.bytes + line, data.count - line};
  bool is_blank = last.count > 0 && jinja_text_strip(last, NULL, true, false).count == 0;
  if (is_blank && (line > 0 || self->is_at_line_start)) data.count = line;
  return data;
}

static char sign_at(const jinja_lex *self, size_t at) {
  return at < self->bytes && (self->text[at] == '-' || self->text[at] == '+') ? self->text[at] : 0;
}

/* {% raw %} is no tag for the parser: its text is data. *body: where that begins; 0: this is another tag. */
static size_t raw_body(const jinja_lex *self, size_t at) {
  size_t word = skip_space(self, at + 2 + (sign_at(self, at + 2) != 0));
  if (!starts(self, word, "raw")) return 0;
  size_t mark = skip_space(self, word + 3);
  char sign = starts(self, mark, "-%}") ? '-' : 0;
  if (!sign && !starts(self, mark, "%}")) return 0;
  return sign ? skip_space(self, mark + 3) : mark + 2;
}

static status read_raw(jinja_lex *self, size_t body, jinja_token *out) {
  uint32_t line = self->line;
  for (size_t at = body; at + 1 < self->bytes; at++) {
    if (!starts(self, at, "{%")) continue;
    char opening = sign_at(self, at + 2);
    size_t word = skip_space(self, at + 2 + (opening != 0));
    if (!starts(self, word, "endraw")) continue;
    size_t mark = skip_space(self, word + 6);
    char closing = sign_at(self, mark);
    if (!starts(self, mark + (closing != 0), "%}")) continue;
    self->is_at_line_start = body > 0 && self->text[body - 1] == '\n';
    jinja_text data = trim_data(self, (jinja_text){self->text + body, at - body}, opening, false);
    size_t end = after_mark(self, mark, closing ? 3 : 2, closing);
    advance(self, end);
    self->is_at_line_start = self->text[end - 1] == '\n';
    *out = (jinja_token){JINJA_DATA, line, data};
    return OK;
  }
  return FAIL(ERR_FORMAT, "chat template, line %u: {%% raw %%} without {%% endraw %%}", line);
}

static status skip_comment(jinja_lex *self) {
  size_t body = self->at + 2 + (sign_at(self, self->at + 2) != 0);
  for (size_t at = body; at + 1 < self->bytes; at++) {
    if (!starts(self, at, "#}")) continue;
    char sign = at > body ? sign_at(self, at - 1) : 0;
    size_t end = after_mark(self, at, 2, sign);
    advance(self, end);
    self->is_at_line_start = self->text[end - 1] == '\n';
    return OK;
  }
  return FAIL(ERR_FORMAT, "chat template, line %u: a comment without its end", self->line);
}

/* Delivers the data before the next tag, then the tag's beginning. */
static status next_outside(jinja_lex *self, jinja_token *out) {
  size_t tag = find_tag(self, self->at);
  if (!self->has_tag) {
    jinja_text data = {self->text + self->at, tag - self->at};
    *out = (jinja_token){JINJA_DATA, self->line, data};
    if (tag < self->bytes) out->text = trim_data(self, data, sign_at(self, tag + 2), self->text[tag + 1] == '{');
    advance(self, tag);
    self->has_tag = true;
    return OK;
  }
  self->has_tag = false;
  *out = (jinja_token){JINJA_END, self->line, {NULL, 0}};
  if (tag == self->bytes) return OK;
  if (self->text[tag + 1] == '#') {
    TRY(skip_comment(self));
    return next_outside(self, out);
  }
  size_t body = self->text[tag + 1] == '%' ? raw_body(self, tag) : 0;
  if (body) return read_raw(self, body, out);
  bool is_print = self->text[tag + 1] == '{';
  out->kind = is_print ? JINJA_PRINT_BEGIN : JINJA_BLOCK_BEGIN;
  out->text = (jinja_text){self->text + tag, 2};
  self->place = is_print ? JINJA_IN_PRINT : JINJA_IN_BLOCK;
  self->nesting = 0;
  advance(self, tag + 2 + (sign_at(self, tag + 2) != 0));
  return OK;
}

/* === Inside tags ============================================================================================= */

static bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
static bool is_digit(char c) { return c >= '0' && c <= '9'; }

static size_t digits_end(const jinja_lex *self, size_t at) {
  while (at < self->bytes && (is_digit(self->text[at]) || (self->text[at] == '_' && at + 1 < self->bytes && is_digit(self->text[at + 1]))))
    at++;
  return at;
}

/* A decimal integer or float. The integers of other bases that Jinja has are not read: no template writes them. */
static void read_number(const jinja_lex *self, jinja_token *out, size_t *end) {
  size_t at = digits_end(self, self->at);
  out->kind = JINJA_WHOLE;
  if (at + 1 < self->bytes && self->text[at] == '.' && is_digit(self->text[at + 1])) {
    out->kind = JINJA_FRACTION;
    at = digits_end(self, at + 1);
  }
  size_t exponent = at + 1;
  if (at < self->bytes && (self->text[at] == 'e' || self->text[at] == 'E')) {
    if (exponent < self->bytes && (self->text[exponent] == '+' || self->text[exponent] == '-')) exponent++;
    if (exponent < self->bytes && is_digit(self->text[exponent])) {
      out->kind = JINJA_FRACTION;
      at = digits_end(self, exponent);
    }
  }
  *end = at;
}

static status read_string(const jinja_lex *self, size_t *end) {
  char quote = self->text[self->at];
  for (size_t at = self->at + 1; at < self->bytes; at++) {
    if (self->text[at] == '\\') at++;
    else if (self->text[at] == quote) {
      *end = at + 1;
      return OK;
    }
  }
  return FAIL(ERR_FORMAT, "chat template, line %u: a string without its end", self->line);
}

static status read_operator(jinja_lex *self, size_t *end) {
  static const char *const operators[] = {"**", "//", "==", "!=", ">=", "<=", "+", "-", "*", "/", "%", "~", "[", "]", "(", ")", "{", "}",
                                          ">", "<", "=", ".", ":", "|", ",", ";"};
  size_t which = 0;
  while (which < ARRAY_LEN(operators) && !starts(self, self->at, operators[which])) which++;
  if (which == ARRAY_LEN(operators))
    return FAIL(ERR_FORMAT, "chat template, line %u: unexpected character %#04x in a tag", self->line, (uint8_t)self->text[self->at]);
  *end = self->at + strlen(operators[which]);
  char c = operators[which][0];
  if (strchr("[({", c)) self->nesting++;
  if (!strchr("])}", c)) return OK;
  if (self->nesting == 0) return FAIL(ERR_FORMAT, "chat template, line %u: unexpected '%c'", self->line, c);
  self->nesting--;
  return OK;
}

/* Whether the tag ends here; *end: after it and the white space that it removes. */
static bool is_tag_end(const jinja_lex *self, size_t *end) {
  bool is_print = self->place == JINJA_IN_PRINT;
  const char *mark = is_print ? "}}" : "%}";
  char sign = sign_at(self, self->at);
  if (self->nesting || (is_print && sign == '+')) return false;
  if (!starts(self, self->at + (sign != 0), mark)) return false;
  if (is_print && !sign) *end = self->at + 2;
  else *end = after_mark(self, self->at, sign ? 3 : 2, sign);
  return true;
}

status jinja_lex_next(jinja_lex *self, jinja_token *out) {
  if (self->place == JINJA_OUTSIDE) return next_outside(self, out);
  advance(self, skip_space(self, self->at));
  if (self->at == self->bytes) return FAIL(ERR_FORMAT, "chat template, line %u: a tag without its end", self->line);
  size_t end = self->at;
  char c = self->text[self->at];
  out->line = self->line;
  if (is_tag_end(self, &end)) {
    out->kind = self->place == JINJA_IN_PRINT ? JINJA_PRINT_END : JINJA_BLOCK_END;
    self->place = JINJA_OUTSIDE;
  } else if (is_letter(c)) {
    out->kind = JINJA_NAME;
    while (end < self->bytes && (is_letter(self->text[end]) || is_digit(self->text[end]))) end++;
  } else if (is_digit(c)) {
    read_number(self, out, &end);
  } else if (c == '\'' || c == '"') {
    out->kind = JINJA_STRING;
    TRY(read_string(self, &end));
  } else {
    out->kind = JINJA_OPERATOR;
    TRY(read_operator(self, &end));
  }
  out->text = (jinja_text){self->text + self->at, end - self->at};
  advance(self, end);
  if (self->place == JINJA_OUTSIDE) self->is_at_line_start = self->text[end - 1] == '\n';
  return OK;
}

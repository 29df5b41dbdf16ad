/* jinja/expression.c - see jinja/expression.h. The functions stand in the order of precedence, as in jinja2/parser.py. */
#include "jinja/expression.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "jinja/filters.h"
#include "jinja/tests.h"

/* === Literals ================================================================================================ */

static void put_code(strbuf *out, uint32_t code) {
  char bytes[4];
  size_t count = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
  for (size_t i = count; i-- > 1; code >>= 6) bytes[i] = (char)(0x80 | (code & 0x3F));
  bytes[0] = (char)(count == 1 ? code : count == 2 ? 0xC0 | code : count == 3 ? 0xE0 | code : 0xF0 | code);
  strbuf_add(out, bytes, count);
}

/* Python's unicode-escape: the bytes of an escape after its backslash; 0: not an escape that is known. */
static size_t read_escape(jinja_text rest, strbuf *out) {
  static const char letters[] = "abfnrtv\\'\"", codes[] = "\a\b\f\n\r\t\v\\'\"";
  char c = rest.count ? rest.bytes[0] : 0;
  const char *letter = c ? strchr(letters, c) : NULL;
  if (letter) {
    strbuf_add(out, &codes[letter - letters], 1);
    return 1;
  }
  if (c == '\n') return 1;
  size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0, from = digits ? 1 : 0;
  int base = digits ? 16 : 8;
  if (!digits)
    while (digits < 3 && digits < rest.count && rest.bytes[digits] >= '0' && rest.bytes[digits] <= '7') digits++;
  char number[9] = {0}, *end = number;
  if (!digits || rest.count < from + digits) return 0;
  memcpy(number, rest.bytes + from, digits);
  unsigned long code = strtoul(number, &end, base);
  bool is_good = end == number + digits && number[0] != '+' && number[0] != '-' && code <= 0x10FFFF && (code < 0xD800 || code > 0xDFFF);
  if (!is_good) return 0;
  put_code(out, (uint32_t)code);
  return from + digits;
}

static status read_string(jinja_parser *p, strbuf *out) {
  jinja_text text = {p->token.text.bytes + 1, p->token.text.count - 2};
  for (size_t at = 0; at < text.count; at++) {
    if (text.bytes[at] != '\\') {
      strbuf_add(out, text.bytes + at, 1);
      continue;
    }
    jinja_text rest = {text.bytes + at + 1, text.count - at - 1};
    size_t escape = read_escape(rest, out);
    if (!escape && rest.count && strchr("xuUN", rest.bytes[0]) && rest.bytes[0])
      return jinja_parser_unexpected(p, "a known escape in a string");
    if (!escape) strbuf_add(out, "\\", 1); /* Python keeps the backslash of an escape that it does not know */
    at += escape;
  }
  return jinja_parser_next(p);
}

static status parse_strings(jinja_parser *p, jinja_node **out) {
  strbuf text = {0};
  status result = jinja_parser_node(p, JINJA_CONSTANT, out);
  while (result == OK && p->token.kind == JINJA_STRING) result = read_string(p, &text);
  if (result == OK) result = jinja_value_take(&p->tree->memory, &text, &(*out)->value);
  strbuf_close(&text);
  return result;
}

static status parse_number(jinja_parser *p, jinja_node **out) {
  char digits[64];
  size_t count = 0;
  TRY(jinja_parser_node(p, JINJA_CONSTANT, out));
  for (size_t i = 0; i < p->token.text.count; i++) {
    if (p->token.text.bytes[i] == '_') continue;
    if (count + 1 == sizeof digits) return FAIL(ERR_LIMIT, "chat template, line %u: a number of too many digits", p->token.line);
    digits[count++] = p->token.text.bytes[i];
  }
  digits[count] = 0;
  if (p->token.kind == JINJA_FRACTION) (*out)->value = (jinja_value){.kind = JINJA_REAL, .real = strtod(digits, NULL)};
  else {
    errno = 0;
    (*out)->value = jinja_value_integer(strtoll(digits, NULL, 10));
    if (errno) return FAIL(ERR_LIMIT, "chat template, line %u: an integer beyond 64 bits", p->token.line);
  }
  return jinja_parser_next(p);
}

/* === Primaries =============================================================================================== */

static status parse_word(jinja_parser *p, jinja_node **out) {
  static const struct { const char *words; uint8_t kind; bool truth; } constants[] = {
    {"true", JINJA_BOOL, true}, {"True", JINJA_BOOL, true}, {"false", JINJA_BOOL, false}, {"False", JINJA_BOOL, false},
    {"none", JINJA_NONE, false}, {"None", JINJA_NONE, false}};
  TRY(jinja_parser_node(p, JINJA_VARIABLE, out));
  for (size_t i = 0; i < ARRAY_LEN(constants); i++) {
    if (!jinja_parser_is_name(p, constants[i].words)) continue;
    (*out)->kind = JINJA_CONSTANT;
    (*out)->value = jinja_value_bool(constants[i].truth);
    (*out)->value.kind = constants[i].kind;
    return jinja_parser_next(p);
  }
  return jinja_parser_name(p, &(*out)->name);
}

/* Items up to the closing bracket, which is consumed; pairs for a dict. */
static status parse_items(jinja_parser *p, jinja_node_kind kind, const char *closing, jinja_node **out) {
  TRY(jinja_parser_node(p, kind, out));
  TRY(jinja_parser_next(p));
  jinja_node **end = &(*out)->a;
  while (!jinja_parser_is_operator(p, closing)) {
    if (end != &(*out)->a) TRY(jinja_parser_expect(p, JINJA_OPERATOR, ","));
    if (jinja_parser_is_operator(p, closing)) break;
    TRY(jinja_expression_parse(p, true, end));
    end = &(*end)->next;
    if (kind != JINJA_MAKE_DICT) continue;
    TRY(jinja_parser_expect(p, JINJA_OPERATOR, ":"));
    TRY(jinja_expression_parse(p, true, end));
    end = &(*end)->next;
  }
  return jinja_parser_next(p);
}

static status parse_primary(jinja_parser *p, jinja_node **out) {
  static const char *const none[] = {NULL};
  switch (p->token.kind) {
    case JINJA_NAME: return parse_word(p, out);
    case JINJA_STRING: return parse_strings(p, out);
    case JINJA_WHOLE: case JINJA_FRACTION: return parse_number(p, out);
    default: break;
  }
  if (jinja_parser_is_operator(p, "[")) return parse_items(p, JINJA_MAKE_LIST, "]", out);
  if (jinja_parser_is_operator(p, "{")) return parse_items(p, JINJA_MAKE_DICT, "}", out);
  if (!jinja_parser_is_operator(p, "(")) return jinja_parser_unexpected(p, "an expression");
  TRY(jinja_parser_next(p));
  if (jinja_parser_is_operator(p, ")")) TRY(jinja_parser_node(p, JINJA_MAKE_TUPLE, out));
  else TRY(jinja_expression_tuple(p, true, none, out));
  return jinja_parser_expect(p, JINJA_OPERATOR, ")");
}

/* === Postfixes =============================================================================================== */

static bool is_slice_end(const jinja_parser *p) { return jinja_parser_is_operator(p, "]") || jinja_parser_is_operator(p, ","); }

static status parse_index(jinja_parser *p, jinja_node **out) {
  jinja_node *first = NULL, *slice = NULL;
  if (!jinja_parser_is_operator(p, ":")) TRY(jinja_expression_parse(p, true, &first));
  *out = first;
  if (!jinja_parser_is_operator(p, ":")) return OK;
  TRY(jinja_parser_node(p, JINJA_SLICE, &slice));
  slice->a = first;
  *out = slice;
  TRY(jinja_parser_next(p));
  if (!jinja_parser_is_operator(p, ":") && !is_slice_end(p)) TRY(jinja_expression_parse(p, true, &slice->b));
  if (!jinja_parser_is_operator(p, ":")) return OK;
  TRY(jinja_parser_next(p));
  return is_slice_end(p) ? OK : jinja_expression_parse(p, true, &slice->c);
}

static status parse_subscript(jinja_parser *p, jinja_node *operand, jinja_node **out) {
  bool is_dot = jinja_parser_is_operator(p, ".");
  TRY(jinja_parser_node(p, is_dot ? JINJA_ATTRIBUTE : JINJA_ITEM, out));
  (*out)->a = operand;
  TRY(jinja_parser_next(p));
  if (is_dot && p->token.kind == JINJA_WHOLE) {
    (*out)->kind = JINJA_ITEM;
    return parse_number(p, &(*out)->b);
  }
  if (is_dot) return jinja_parser_name(p, &(*out)->name);
  TRY(parse_index(p, &(*out)->b));
  if (jinja_parser_is_operator(p, ",")) return jinja_parser_unsupported(p, "a subscript with a comma");
  return jinja_parser_expect(p, JINJA_OPERATOR, "]");
}

/* Whether the token after the current one is "=": a keyword argument. */
static status is_assigned(jinja_parser *p, bool *out) {
  *out = false;
  if (p->token.kind != JINJA_NAME) return OK;
  if (!p->has_ahead) TRY(jinja_lex_next(&p->lex, &p->ahead));
  p->has_ahead = true;
  *out = p->ahead.kind == JINJA_OPERATOR && jinja_value_is(p->ahead.text, "=");
  return OK;
}

static status parse_arguments(jinja_parser *p, jinja_node **out) {
  jinja_node **end = out;
  bool is_keyword = false, has_keywords = false;
  TRY(jinja_parser_expect(p, JINJA_OPERATOR, "("));
  while (!jinja_parser_is_operator(p, ")")) {
    if (end != out) TRY(jinja_parser_expect(p, JINJA_OPERATOR, ","));
    if (jinja_parser_is_operator(p, ")")) break;
    if (jinja_parser_is_operator(p, "*") || jinja_parser_is_operator(p, "**")) return jinja_parser_unsupported(p, "an unpacked argument");
    TRY(is_assigned(p, &is_keyword));
    if (has_keywords && !is_keyword) return jinja_parser_unexpected(p, "an argument with its name");
    has_keywords |= is_keyword;
    if (is_keyword) {
      TRY(jinja_parser_node(p, JINJA_KEYWORD, end));
      TRY(jinja_parser_name(p, &(*end)->name));
      TRY(jinja_parser_next(p));
      TRY(jinja_expression_parse(p, true, &(*end)->a));
    } else TRY(jinja_expression_parse(p, true, end));
    end = &(*end)->next;
  }
  return jinja_parser_next(p);
}

static status parse_call(jinja_parser *p, jinja_node *operand, jinja_node **out) {
  TRY(jinja_parser_node(p, JINJA_CALL, out));
  (*out)->a = operand;
  return parse_arguments(p, &(*out)->b);
}

static status parse_postfixes(jinja_parser *p, jinja_node **out) {
  for (unsigned depth = p->depth;;) {
    TRY(jinja_parser_deeper(p)); /* the tree deepens with each of them */
    if (jinja_parser_is_operator(p, ".") || jinja_parser_is_operator(p, "[")) TRY(parse_subscript(p, *out, out));
    else if (jinja_parser_is_operator(p, "(")) TRY(parse_call(p, *out, out));
    else {
      p->depth = depth;
      return OK;
    }
  }
}

status jinja_expression_filter(jinja_parser *p, jinja_node *operand, jinja_node **out) {
  jinja_node *node = NULL;
  TRY(jinja_parser_node(p, JINJA_FILTER, &node));
  node->callable = jinja_filters_find(p->token.text); /* what is not implemented is refused when it is used, as in jinja2 */
  TRY(jinja_parser_name(p, &node->name));
  node->a = operand;
  *out = node;
  return jinja_parser_is_operator(p, "(") ? parse_arguments(p, &node->b) : OK;
}

status jinja_expression_filters(jinja_parser *p, jinja_node *operand, jinja_node **out) {
  *out = operand;
  for (unsigned depth = p->depth;;) {
    TRY(jinja_parser_deeper(p));
    if (!jinja_parser_is_operator(p, "|")) {
      p->depth = depth;
      return OK;
    }
    TRY(jinja_parser_next(p));
    TRY(jinja_expression_filter(p, *out, out));
  }
}

/* Whether an argument without parentheses follows a test: "is equalto x". */
static bool has_bare_argument(const jinja_parser *p) {
  if (p->token.kind == JINJA_STRING || p->token.kind == JINJA_WHOLE || p->token.kind == JINJA_FRACTION) return true;
  if (p->token.kind == JINJA_OPERATOR) return jinja_parser_is_operator(p, "[") || jinja_parser_is_operator(p, "{");
  bool is_end = jinja_parser_is_name(p, "else") || jinja_parser_is_name(p, "or") || jinja_parser_is_name(p, "and");
  return p->token.kind == JINJA_NAME && !is_end;
}

static status parse_test(jinja_parser *p, jinja_node *operand, jinja_node **out) {
  jinja_node *test = NULL, *negated = NULL;
  TRY(jinja_parser_next(p));
  if (jinja_parser_is_name(p, "not")) {
    TRY(jinja_parser_node(p, JINJA_NOT, &negated));
    TRY(jinja_parser_next(p));
  }
  TRY(jinja_parser_node(p, JINJA_TEST, &test));
  test->callable = jinja_tests_find(p->token.text);
  TRY(jinja_parser_name(p, &test->name));
  test->a = operand;
  if (jinja_parser_is_operator(p, "(")) TRY(parse_arguments(p, &test->b));
  else if (has_bare_argument(p)) {
    if (jinja_parser_is_name(p, "is")) return jinja_parser_unexpected(p, "no second test");
    TRY(parse_primary(p, &test->b));
    TRY(parse_postfixes(p, &test->b));
  }
  if (negated) negated->a = test;
  *out = negated ? negated : test;
  return OK;
}

static status parse_filters_and_tests(jinja_parser *p, jinja_node **out) {
  for (unsigned depth = p->depth;;) {
    TRY(jinja_parser_deeper(p));
    if (jinja_parser_is_operator(p, "|")) TRY(jinja_expression_filters(p, *out, out));
    else if (jinja_parser_is_name(p, "is")) TRY(parse_test(p, *out, out));
    else if (jinja_parser_is_operator(p, "(")) TRY(parse_call(p, *out, out));
    else {
      p->depth = depth;
      return OK;
    }
  }
}

/* === Operators =============================================================================================== */

static status parse_unary(jinja_parser *p, bool with_filters, jinja_node **out) {
  bool is_negated = jinja_parser_is_operator(p, "-");
  TRY(jinja_parser_deeper(p));
  if (is_negated || jinja_parser_is_operator(p, "+")) {
    TRY(jinja_parser_node(p, is_negated ? JINJA_NEGATE : JINJA_POSITIVE, out));
    TRY(jinja_parser_next(p));
    TRY(parse_unary(p, false, &(*out)->a));
  } else TRY(parse_primary(p, out));
  TRY(parse_postfixes(p, out));
  if (with_filters) TRY(parse_filters_and_tests(p, out));
  p->depth--;
  return OK;
}

typedef struct binary { const char *words; jinja_node_kind kind; } binary;

static status parse_operand(jinja_parser *p, unsigned level, jinja_node **out);

/* Left to right: operators of one level. */
static status parse_level(jinja_parser *p, const binary *operators, size_t count, unsigned level, jinja_node **out) {
  TRY(parse_operand(p, level + 1, out));
  for (unsigned depth = p->depth;;) {
    TRY(jinja_parser_deeper(p));
    size_t i = 0;
    while (i < count && !jinja_parser_is_operator(p, operators[i].words)) i++;
    if (i == count) {
      p->depth = depth;
      return OK;
    }
    jinja_node *node = NULL;
    TRY(jinja_parser_node(p, operators[i].kind, &node));
    TRY(jinja_parser_next(p));
    node->a = *out;
    TRY(parse_operand(p, level + 1, &node->b));
    *out = node;
  }
}

static status parse_join(jinja_parser *p, jinja_node **out) {
  TRY(parse_operand(p, 2, out));
  if (!jinja_parser_is_operator(p, "~")) return OK;
  jinja_node *node = NULL, *last = *out;
  TRY(jinja_parser_node(p, JINJA_JOIN, &node));
  node->a = *out;
  *out = node;
  while (jinja_parser_is_operator(p, "~")) {
    TRY(jinja_parser_next(p));
    TRY(parse_operand(p, 2, &last->next));
    last = last->next;
  }
  return OK;
}

static status parse_operand(jinja_parser *p, unsigned level, jinja_node **out) {
  static const binary sums[] = {{"+", JINJA_ADD}, {"-", JINJA_SUBTRACT}}, powers[] = {{"**", JINJA_POWER}};
  static const binary products[] = {{"*", JINJA_MULTIPLY}, {"/", JINJA_DIVIDE}, {"//", JINJA_FLOOR_DIVIDE}, {"%", JINJA_REMAINDER}};
  switch (level) {
    case 0: return parse_level(p, sums, ARRAY_LEN(sums), level, out);
    case 1: return parse_join(p, out);
    case 2: return parse_level(p, products, ARRAY_LEN(products), level, out);
    case 3: return parse_level(p, powers, ARRAY_LEN(powers), level, out);
    default: return parse_unary(p, true, out);
  }
}

static status read_comparison(jinja_parser *p, jinja_compare_op *op, bool *is_found) {
  static const char *const words[] = {"==", "!=", "<", "<=", ">", ">="};
  *is_found = true;
  for (unsigned i = 0; i < ARRAY_LEN(words); i++)
    if (jinja_parser_is_operator(p, words[i])) {
      *op = (jinja_compare_op)i;
      return jinja_parser_next(p);
    }
  *op = jinja_parser_is_name(p, "not") ? JINJA_NOT_IN : JINJA_IN;
  if (*op == JINJA_NOT_IN) {
    if (!p->has_ahead) TRY(jinja_lex_next(&p->lex, &p->ahead));
    p->has_ahead = true;
    *is_found = p->ahead.kind == JINJA_NAME && jinja_value_is(p->ahead.text, "in");
    if (*is_found) TRY(jinja_parser_next(p));
  }
  *is_found &= jinja_parser_is_name(p, "in");
  return *is_found ? jinja_parser_next(p) : OK;
}

static status parse_comparison(jinja_parser *p, jinja_node **out) {
  jinja_node *node = NULL, **end = NULL;
  bool is_found = false;
  TRY(parse_operand(p, 0, out));
  for (;;) {
    jinja_compare_op op = JINJA_EQ;
    TRY(read_comparison(p, &op, &is_found));
    if (!is_found) return OK;
    if (!node) {
      TRY(jinja_parser_node(p, JINJA_COMPARE, &node));
      node->a = *out;
      *out = node;
      end = &node->b;
    }
    TRY(jinja_parser_node(p, JINJA_OPERAND, end));
    (*end)->op = op;
    TRY(parse_operand(p, 0, &(*end)->a));
    end = &(*end)->next;
  }
}

static status parse_not(jinja_parser *p, jinja_node **out) {
  if (!jinja_parser_is_name(p, "not")) return parse_comparison(p, out);
  TRY(jinja_parser_deeper(p));
  TRY(jinja_parser_node(p, JINJA_NOT, out));
  TRY(jinja_parser_next(p));
  TRY(parse_not(p, &(*out)->a));
  p->depth--;
  return OK;
}

/* "and" binds more tightly than "or". */
static status parse_logic(jinja_parser *p, bool is_or, jinja_node **out) {
  TRY(is_or ? parse_logic(p, false, out) : parse_not(p, out));
  for (unsigned depth = p->depth;;) {
    TRY(jinja_parser_deeper(p));
    if (!jinja_parser_is_name(p, is_or ? "or" : "and")) {
      p->depth = depth;
      return OK;
    }
    jinja_node *node = NULL;
    TRY(jinja_parser_node(p, is_or ? JINJA_OR : JINJA_AND, &node));
    TRY(jinja_parser_next(p));
    node->a = *out;
    TRY(is_or ? parse_logic(p, false, &node->b) : parse_not(p, &node->b));
    *out = node;
  }
}

status jinja_expression_parse(jinja_parser *p, bool with_choice, jinja_node **out) {
  unsigned depth = p->depth;
  TRY(jinja_parser_deeper(p));
  TRY(parse_logic(p, true, out));
  while (with_choice && jinja_parser_is_name(p, "if")) {
    jinja_node *node = NULL;
    TRY(jinja_parser_deeper(p));
    TRY(jinja_parser_node(p, JINJA_CHOICE, &node));
    TRY(jinja_parser_next(p));
    node->b = *out;
    *out = node;
    TRY(parse_logic(p, true, &node->a));
    if (!jinja_parser_is_name(p, "else")) continue;
    TRY(jinja_parser_next(p));
    TRY(jinja_expression_parse(p, true, &node->c));
  }
  p->depth = depth;
  return OK;
}

static bool is_tuple_end(const jinja_parser *p, const char *const *ends) {
  if (p->token.kind == JINJA_PRINT_END || p->token.kind == JINJA_BLOCK_END || jinja_parser_is_operator(p, ")")) return true;
  for (size_t i = 0; ends && ends[i]; i++)
    if (jinja_parser_is_name(p, ends[i])) return true;
  return false;
}

status jinja_expression_tuple(jinja_parser *p, bool with_choice, const char *const *ends, jinja_node **out) {
  jinja_node *first = NULL, **end = &first;
  TRY(jinja_expression_parse(p, with_choice, &first));
  *out = first;
  if (!jinja_parser_is_operator(p, ",")) return OK;
  TRY(jinja_parser_node(p, JINJA_MAKE_TUPLE, out));
  while (jinja_parser_is_operator(p, ",")) {
    TRY(jinja_parser_next(p));
    end = &(*end)->next;
    if (is_tuple_end(p, ends)) break;
    TRY(jinja_expression_parse(p, with_choice, end));
  }
  (*out)->a = first;
  return OK;
}

/* jinja/parser.c - see jinja/parser.h. */
#include "jinja/parser.h"
#include <string.h>
#include "jinja/parse.h"

#define DEPTH_MAX 200u /* of the parser's own calls */

status jinja_parser_next(jinja_parser *p) {
  if (!p->has_ahead) return jinja_lex_next(&p->lex, &p->token);
  p->token = p->ahead;
  p->has_ahead = false;
  return OK;
}

bool jinja_parser_is_name(const jinja_parser *p, const char *words) {
  return p->token.kind == JINJA_NAME && jinja_value_is(p->token.text, words);
}

bool jinja_parser_is_operator(const jinja_parser *p, const char *words) {
  return p->token.kind == JINJA_OPERATOR && jinja_value_is(p->token.text, words);
}

status jinja_parser_unexpected(const jinja_parser *p, const char *expected) {
  if (p->token.kind == JINJA_END) return FAIL(ERR_FORMAT, "chat template, line %u: expected %s, found its end", p->token.line, expected);
  return FAIL(ERR_FORMAT, "chat template, line %u: expected %s, found \"%.*s\"", p->token.line, expected,
              (int)(p->token.text.count < 40 ? p->token.text.count : 40), p->token.text.bytes ? p->token.text.bytes : "");
}

status jinja_parser_unsupported(const jinja_parser *p, const char *what) {
  return FAIL(ERR_UNSUPPORTED, "chat template, line %u: %s is not implemented: \"%.*s\"", p->token.line, what,
              (int)(p->token.text.count < 40 ? p->token.text.count : 40), p->token.text.bytes ? p->token.text.bytes : "");
}

status jinja_parser_expect(jinja_parser *p, jinja_token_kind kind, const char *words) {
  static const char *const names[] = {"the template's end", "text", "\"{{\"", "\"}}\"", "\"{%\"", "\"%}\"", "a name", "a string",
                                      "an integer", "a number", "an operator"};
  if (p->token.kind != kind || (words && !jinja_value_is(p->token.text, words)))
    return jinja_parser_unexpected(p, words ? words : names[kind]);
  return kind == JINJA_END ? OK : jinja_parser_next(p);
}

status jinja_parser_deeper(jinja_parser *p) {
  if (++p->depth <= DEPTH_MAX) return OK;
  return FAIL(ERR_LIMIT, "chat template, line %u: nested more than %u deep", p->token.line, DEPTH_MAX);
}

status jinja_parser_node(jinja_parser *p, jinja_node_kind kind, jinja_node **out) {
  if (++p->node_count > JINJA_NODES_MAX) return FAIL(ERR_LIMIT, "chat template: more than %u nodes", JINJA_NODES_MAX);
  TRY(jinja_memory_take(&p->tree->memory, sizeof **out, out));
  (*out)->kind = kind;
  (*out)->line = p->token.line;
  return OK;
}

static status intern(jinja_parser *p, jinja_text text, const jinja_name **out) {
  jinja_name *name = p->tree->names;
  while (name && !(name->text.count == text.count && memcmp(name->text.bytes, text.bytes, text.count) == 0)) name = name->next;
  *out = name;
  if (name) return OK;
  if (++p->name_count > JINJA_NAMES_MAX) return FAIL(ERR_LIMIT, "chat template: more than %u names", JINJA_NAMES_MAX);
  TRY(jinja_memory_take(&p->tree->memory, sizeof *name, &name));
  *name = (jinja_name){p->tree->names, text};
  *out = p->tree->names = name;
  return OK;
}

status jinja_parser_name(jinja_parser *p, const jinja_name **out) {
  if (p->token.kind != JINJA_NAME) return jinja_parser_unexpected(p, "a name");
  TRY(intern(p, p->token.text, out));
  return jinja_parser_next(p);
}

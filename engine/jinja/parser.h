/* jinja/parser.h - the state of the parser: tokens, nodes, names and their limits.
 *
 * Internal to the parser. The current token is always read but not consumed. Read next: expression.h, parse.c. */
#ifndef VERBATIM_JINJA_PARSER_H
#define VERBATIM_JINJA_PARSER_H
#include "jinja/lex.h"
#include "jinja/node.h"

typedef struct jinja_parser {
  jinja_tree *tree;
  jinja_lex lex;
  jinja_token token, ahead;
  bool has_ahead;
  jinja_text word;     /* the statement's */
  unsigned depth;      /* of bodies and expressions */
  unsigned loops;      /* around the current statement */
  uint32_t node_count, name_count;
} jinja_parser;

status jinja_parser_next(jinja_parser *p);
status jinja_parser_expect(jinja_parser *p, jinja_token_kind kind, const char *words); /* words: NULL for any text; consumes it */
bool jinja_parser_is_name(const jinja_parser *p, const char *words);
bool jinja_parser_is_operator(const jinja_parser *p, const char *words);
status jinja_parser_name(jinja_parser *p, const jinja_name **out); /* consumes a name */
status jinja_parser_node(jinja_parser *p, jinja_node_kind kind, jinja_node **out);
status jinja_parser_deeper(jinja_parser *p); /* the caller reduces p->depth when it is done */
status jinja_parser_unexpected(const jinja_parser *p, const char *expected);
status jinja_parser_unsupported(const jinja_parser *p, const char *what);

#endif

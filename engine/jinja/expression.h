/* jinja/expression.h - the expressions of a template. Internal to the parser. Read next: parser.h, parse.c. */
#ifndef VERBATIM_JINJA_EXPRESSION_H
#define VERBATIM_JINJA_EXPRESSION_H
#include "jinja/parser.h"

status jinja_expression_parse(jinja_parser *p, bool with_choice, jinja_node **out);

/* Expressions with commas between them. ends: names that end it, or NULL. */
status jinja_expression_tuple(jinja_parser *p, bool with_choice, const char *const *ends, jinja_node **out);
status jinja_expression_filter(jinja_parser *p, jinja_node *operand, jinja_node **out);  /* from the filter's name on */
status jinja_expression_filters(jinja_parser *p, jinja_node *operand, jinja_node **out); /* |filter|filter ..., perhaps none */

#endif

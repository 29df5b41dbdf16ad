/* jinja/parse.c - see jinja/parse.h. Statements; expression.c has the expressions. */
#include "jinja/parse.h"
#include <string.h>
#include "jinja/expression.h"

static status parse_body(jinja_parser *p, const char *const *ends, jinja_node **out);

static bool is_any(const jinja_parser *p, const char *const *words) {
  for (size_t i = 0; words && words[i]; i++)
    if (jinja_parser_is_name(p, words[i])) return true;
  return false;
}

/* The body up to one of `ends`, whose tag begins: the current token is its name. */
static status parse_block(jinja_parser *p, const char *const *ends, jinja_node **out) {
  TRY(jinja_parser_expect(p, JINJA_BLOCK_END, NULL));
  return parse_body(p, ends, out);
}

static status parse_end(jinja_parser *p) {
  TRY(jinja_parser_next(p));
  return OK;
}

static status parse_if(jinja_parser *p, jinja_node **out) {
  static const char *const ends[] = {"elif", "else", "endif", NULL}, *const last[] = {"endif", NULL};
  jinja_node *node = NULL;
  TRY(jinja_parser_node(p, JINJA_IF, &node));
  *out = node;
  TRY(jinja_expression_tuple(p, false, NULL, &node->a));
  TRY(parse_block(p, ends, &node->b));
  if (jinja_parser_is_name(p, "elif")) {
    TRY(jinja_parser_deeper(p));
    TRY(jinja_parser_next(p));
    TRY(parse_if(p, &node->c));
    p->depth--;
    return OK;
  }
  if (jinja_parser_is_name(p, "else")) {
    TRY(jinja_parser_next(p));
    TRY(parse_block(p, last, &node->c));
  }
  return parse_end(p);
}

/* Names, tuples of names, or members of namespaces. */
static status parse_target(jinja_parser *p, bool with_members, jinja_node **out) {
  jinja_node *first = NULL, **end = &first;
  size_t count = 0;
  bool is_tuple = jinja_parser_is_operator(p, "("), is_open = is_tuple;
  if (is_open) TRY(jinja_parser_next(p));
  do {
    jinja_node *one = NULL;
    if (count++ > 0) TRY(jinja_parser_next(p));
    if (p->token.kind != JINJA_NAME || jinja_parser_is_name(p, "in")) break;
    TRY(jinja_parser_node(p, JINJA_VARIABLE, &one));
    TRY(jinja_parser_name(p, &one->name));
    if (with_members && jinja_parser_is_operator(p, ".")) {
      TRY(jinja_parser_next(p));
      jinja_node *space = one;
      TRY(jinja_parser_node(p, JINJA_MEMBER, &one));
      one->a = space;
      TRY(jinja_parser_name(p, &one->name));
    }
    *end = one;
    end = &one->next;
  } while (jinja_parser_is_operator(p, ","));
  if (is_open) TRY(jinja_parser_expect(p, JINJA_OPERATOR, ")"));
  if (!first) return jinja_parser_unexpected(p, "a name to assign to");
  if (count == 1 && !is_tuple) {
    *out = first;
    return OK;
  }
  TRY(jinja_parser_node(p, JINJA_MAKE_TUPLE, out));
  (*out)->a = first;
  return OK;
}

static status parse_for(jinja_parser *p, jinja_node **out) {
  static const char *const ends[] = {"endfor", "else", NULL}, *const last[] = {"endfor", NULL}, *const recursive[] = {"recursive", NULL};
  jinja_node *node = NULL;
  TRY(jinja_parser_node(p, JINJA_FOR, &node));
  *out = node;
  TRY(parse_target(p, false, &node->a));
  if (!jinja_parser_is_name(p, "in")) return jinja_parser_unexpected(p, "\"in\"");
  TRY(jinja_parser_next(p));
  TRY(jinja_expression_tuple(p, false, recursive, &node->b));
  if (jinja_parser_is_name(p, "if")) {
    TRY(jinja_parser_next(p));
    TRY(jinja_expression_parse(p, true, &node->e));
  }
  if (jinja_parser_is_name(p, "recursive")) return jinja_parser_unsupported(p, "a recursive loop");
  p->loops++;
  TRY(parse_block(p, ends, &node->c));
  p->loops--;
  if (jinja_parser_is_name(p, "else")) {
    TRY(jinja_parser_next(p));
    TRY(parse_block(p, last, &node->d));
  }
  return parse_end(p);
}

static status parse_set(jinja_parser *p, jinja_node **out) {
  static const char *const ends[] = {"endset", NULL};
  jinja_node *node = NULL;
  TRY(jinja_parser_node(p, JINJA_SET, &node));
  *out = node;
  TRY(parse_target(p, true, &node->a));
  if (jinja_parser_is_operator(p, "=")) {
    TRY(jinja_parser_next(p));
    return jinja_expression_tuple(p, true, NULL, &node->b);
  }
  node->kind = JINJA_SET_BLOCK;
  if (jinja_parser_is_operator(p, "|")) TRY(jinja_expression_filters(p, NULL, &node->b));
  TRY(parse_block(p, ends, &node->c));
  return parse_end(p);
}

/* (name, name=default, ...) */
static status parse_parameters(jinja_parser *p, jinja_node **out) {
  jinja_node **end = out;
  TRY(jinja_parser_expect(p, JINJA_OPERATOR, "("));
  while (!jinja_parser_is_operator(p, ")")) {
    jinja_node *one = NULL;
    if (end != out) TRY(jinja_parser_expect(p, JINJA_OPERATOR, ","));
    TRY(jinja_parser_node(p, JINJA_KEYWORD, &one));
    TRY(jinja_parser_name(p, &one->name));
    if (jinja_parser_is_operator(p, "=")) {
      TRY(jinja_parser_next(p));
      TRY(jinja_expression_parse(p, true, &one->a));
    } else if (end != out && (*out)->a) return jinja_parser_unexpected(p, "a default, as the parameter before has one");
    *end = one;
    end = &one->next;
  }
  return jinja_parser_next(p);
}

/* A body that is called, or rendered apart, cannot leave a loop around it. */
static status parse_apart(jinja_parser *p, const char *const *ends, jinja_node **out) {
  unsigned loops = p->loops;
  p->loops = 0;
  TRY(parse_block(p, ends, out));
  p->loops = loops;
  return parse_end(p);
}

static status parse_macro(jinja_parser *p, jinja_node **out) {
  static const char *const ends[] = {"endmacro", NULL};
  TRY(jinja_parser_node(p, JINJA_MACRO_NODE, out));
  TRY(jinja_parser_name(p, &(*out)->name));
  TRY(parse_parameters(p, &(*out)->a));
  return parse_apart(p, ends, &(*out)->c);
}

static status parse_call_block(jinja_parser *p, jinja_node **out) {
  static const char *const ends[] = {"endcall", NULL};
  TRY(jinja_parser_node(p, JINJA_CALL_BLOCK, out));
  if (jinja_parser_is_operator(p, "(")) TRY(parse_parameters(p, &(*out)->b));
  TRY(jinja_expression_parse(p, true, &(*out)->a));
  if ((*out)->a->kind != JINJA_CALL) return jinja_parser_unexpected(p, "a call");
  return parse_apart(p, ends, &(*out)->c);
}

static status parse_filter_block(jinja_parser *p, jinja_node **out) {
  static const char *const ends[] = {"endfilter", NULL};
  TRY(jinja_parser_node(p, JINJA_FILTER_BLOCK, out));
  TRY(jinja_expression_filter(p, NULL, &(*out)->a));
  TRY(jinja_expression_filters(p, (*out)->a, &(*out)->a));
  return parse_apart(p, ends, &(*out)->c);
}

static status parse_with(jinja_parser *p, jinja_node **out) {
  static const char *const ends[] = {"endwith", NULL};
  jinja_node *node = NULL;
  TRY(jinja_parser_node(p, JINJA_WITH, &node));
  *out = node;
  jinja_node **target = &node->a, **value = &node->b;
  while (p->token.kind != JINJA_BLOCK_END) {
    if (target != &node->a) TRY(jinja_parser_expect(p, JINJA_OPERATOR, ","));
    TRY(jinja_parser_node(p, JINJA_VARIABLE, target));
    TRY(jinja_parser_name(p, &(*target)->name));
    TRY(jinja_parser_expect(p, JINJA_OPERATOR, "="));
    TRY(jinja_expression_parse(p, true, value));
    target = &(*target)->next;
    value = &(*value)->next;
  }
  TRY(parse_block(p, ends, &node->c));
  return parse_end(p);
}

static status parse_generation(jinja_parser *p, jinja_node **out) {
  static const char *const ends[] = {"endgeneration", NULL};
  TRY(jinja_parser_node(p, JINJA_SCOPE, out));
  return parse_apart(p, ends, &(*out)->c);
}

static status parse_jump(jinja_parser *p, jinja_node **out) {
  if (!p->loops) return jinja_parser_unexpected(p, "a loop around \"break\" and \"continue\"");
  return jinja_parser_node(p, jinja_value_is(p->word, "break") ? JINJA_BREAK : JINJA_CONTINUE, out);
}

/* The current token is the first word of a tag. */
static status parse_statement(jinja_parser *p, jinja_node **out) {
  static const struct { const char *word; status (*parse)(jinja_parser *, jinja_node **); } all[] = {
    {"if", parse_if}, {"for", parse_for}, {"set", parse_set}, {"macro", parse_macro}, {"call", parse_call_block},
    {"filter", parse_filter_block}, {"with", parse_with}, {"generation", parse_generation}, {"break", parse_jump},
    {"continue", parse_jump}};
  static const char *const others[] = {"extends", "block", "include", "import", "from", "do", "autoescape", "print", "trans", NULL};
  for (size_t i = 0; i < ARRAY_LEN(all); i++) {
    if (!jinja_parser_is_name(p, all[i].word)) continue;
    p->word = p->token.text;
    TRY(jinja_parser_next(p));
    TRY(all[i].parse(p, out));
    return jinja_parser_expect(p, JINJA_BLOCK_END, NULL);
  }
  if (is_any(p, others)) return jinja_parser_unsupported(p, "this statement");
  return jinja_parser_unexpected(p, "a statement");
}

static status parse_body(jinja_parser *p, const char *const *ends, jinja_node **out) {
  jinja_node **end = out;
  TRY(jinja_parser_deeper(p));
  for (;;) {
    jinja_token_kind kind = p->token.kind;
    if (kind == JINJA_END && ends) return jinja_parser_unexpected(p, ends[0]);
    if (kind == JINJA_END) break;
    if (kind == JINJA_DATA) {
      TRY(jinja_parser_node(p, JINJA_WRITE, end));
      (*end)->value = jinja_value_text(p->token.text.bytes, p->token.text.count);
      TRY(jinja_parser_next(p));
    } else if (kind == JINJA_PRINT_BEGIN) {
      TRY(jinja_parser_node(p, JINJA_PRINT, end));
      TRY(jinja_parser_next(p));
      TRY(jinja_expression_tuple(p, true, NULL, &(*end)->a));
      TRY(jinja_parser_expect(p, JINJA_PRINT_END, NULL));
    } else {
      TRY(jinja_parser_next(p));
      if (is_any(p, ends)) break;
      TRY(parse_statement(p, end));
    }
    end = &(*end)->next;
  }
  p->depth--;
  return OK;
}

status jinja_parse(jinja_tree *self, const char *text, size_t bytes) {
  jinja_parser p = {.tree = self};
  jinja_lex_open(&p.lex, text, bytes, self->is_plain);
  TRY(jinja_parser_next(&p));
  return parse_body(&p, NULL, &self->body);
}

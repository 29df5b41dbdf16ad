/* jinja/node.h - the syntax tree of a template.
 *
 * A node's children a, b, c and d mean what its kind says; a list of nodes is linked by `next`. Names are interned: equal names are one
 * pointer. The tree belongs to its template. Read next: parse.h, eval.h, run.h. */
#ifndef VERBATIM_JINJA_NODE_H
#define VERBATIM_JINJA_NODE_H
#include "jinja/value.h"

typedef enum jinja_node_kind {
  /* Expressions. */
  JINJA_CONSTANT,  /* value */
  JINJA_VARIABLE,  /* name */
  JINJA_MAKE_LIST, /* a: items */
  JINJA_MAKE_TUPLE,
  JINJA_MAKE_DICT, /* a: key, value, key, value ... */
  JINJA_ATTRIBUTE, /* a.name */
  JINJA_ITEM,      /* a[b]; b may be a JINJA_SLICE */
  JINJA_SLICE,     /* a:b:c, each may be NULL */
  JINJA_CALL,      /* a(b); among b, JINJA_KEYWORD */
  JINJA_KEYWORD,   /* name=a */
  JINJA_FILTER,    /* a|name(b); a is NULL at the start of a filter block */
  JINJA_TEST,      /* a is name(b) */
  JINJA_NOT,       /* a */
  JINJA_AND,       /* a, b */
  JINJA_OR,
  JINJA_CHOICE,    /* b if a else c; c may be NULL */
  JINJA_COMPARE,   /* a, then b: a list of JINJA_OPERAND */
  JINJA_OPERAND,   /* op a */
  JINJA_JOIN,      /* a ~ ... */
  JINJA_NEGATE,
  JINJA_POSITIVE,
  JINJA_ADD,
  JINJA_SUBTRACT,
  JINJA_MULTIPLY,
  JINJA_DIVIDE,
  JINJA_FLOOR_DIVIDE,
  JINJA_REMAINDER,
  JINJA_POWER,
  JINJA_MEMBER,    /* a target only: a namespace's name, in a, and its member's */
  /* Statements. */
  JINJA_WRITE,     /* value: text outside tags */
  JINJA_PRINT,     /* a */
  JINJA_IF,        /* a: condition; b, c: bodies */
  JINJA_FOR,       /* a: target; b: what is visited; c: body; d: body if nothing was; e: condition or NULL */
  JINJA_SET,       /* a: target; b: value */
  JINJA_SET_BLOCK, /* a: target; b: filters or NULL; c: body */
  JINJA_MACRO_NODE, /* name; a: parameters, each a JINJA_KEYWORD with its default or NULL in a; c: body */
  JINJA_CALL_BLOCK, /* a: call; b: parameters; c: body */
  JINJA_FILTER_BLOCK, /* a: filters; c: body */
  JINJA_WITH,      /* a: targets; b: values; c: body */
  JINJA_SCOPE,     /* c: body of {% generation %} */
  JINJA_BREAK,
  JINJA_CONTINUE,
} jinja_node_kind;

typedef enum jinja_compare_op { JINJA_EQ, JINJA_NE, JINJA_LT, JINJA_LE, JINJA_GT, JINJA_GE, JINJA_IN, JINJA_NOT_IN } jinja_compare_op;

typedef struct jinja_name {
  struct jinja_name *next;
  jinja_text text;
} jinja_name;

typedef struct jinja_node jinja_node;
struct jinja_node {
  jinja_node_kind kind;
  uint32_t line;
  const jinja_name *name;
  union {
    jinja_value value;
    jinja_compare_op op;
    const struct jinja_callable *callable; /* of FILTER and TEST */
  };
  jinja_node *a, *b, *c, *d, *e, *next;
};

typedef struct jinja_tree {
  jinja_memory memory;
  jinja_name *names;
  jinja_node *body;
  bool is_plain; /* set before parsing: see jinja_open_plain */
} jinja_tree;

#endif

/* jinja/eval.h - the state of a rendering and the values of expressions.
 *
 * Undefined names and members follow jinja2's Undefined: they print as nothing and are false; anything else done with them is an error.
 * What a template may call is what transformers' sandbox allows, without what would make a prompt depend on more than the request. Read
 * next: eval.c, run.h. */
#ifndef VERBATIM_JINJA_EVAL_H
#define VERBATIM_JINJA_EVAL_H
#include "jinja/node.h"

#define JINJA_ARGUMENTS_MAX 16u
#define JINJA_CALLS_MAX 1000u /* nodes being evaluated: bounds the stack */

typedef struct jinja_binding {
  struct jinja_binding *next;
  const jinja_name *name;
  jinja_value value;
} jinja_binding;

typedef struct jinja_scope {
  struct jinja_scope *parent;
  jinja_binding *bindings;
} jinja_scope;

typedef struct jinja_state {
  jinja_memory *memory;
  const jinja_tree *tree;
  jinja_scope *scope;
  strbuf *out;        /* of the template or of the block that is being rendered */
  const char *today;  /* for strftime_now: "YYYY-MM-DD" or "YYYY-MM-DD HH:MM:SS"; NULL: none was given */
  unsigned depth;
  bool may_miss;      /* the value asked for next may be undefined in a plain template, too */
} jinja_state;

typedef struct jinja_arguments {
  jinja_value items[JINJA_ARGUMENTS_MAX];
  const jinja_name *names[JINJA_ARGUMENTS_MAX]; /* NULL: by position */
  size_t count;
} jinja_arguments;

/* A filter or a test. parameters: their names, as "width,first"; arguments arrive in their order, ABSENT where not given. "*": as given. */
typedef struct jinja_callable {
  const char *name, *parameters;
  status (*filter)(jinja_state *state, jinja_value value, const jinja_value *arguments, jinja_value *out);
  status (*open)(jinja_state *state, jinja_value value, const jinja_arguments *arguments, jinja_value *out); /* where parameters is "*" */
} jinja_callable;

typedef struct jinja_function {
  const char *name, *parameters;
  status (*call)(jinja_state *state, const jinja_value *arguments, jinja_value *out);
  status (*open)(jinja_state *state, const jinja_arguments *arguments, jinja_value *out);
} jinja_function;

typedef struct jinja_macro {
  const jinja_node *node; /* MACRO_NODE or CALL_BLOCK */
  jinja_scope *scope;     /* where it was defined */
} jinja_macro;

typedef struct jinja_loop {
  jinja_value *items;    /* those still to be judged by the condition are from `at` on */
  size_t count, at, index0;
  bool is_counted;       /* the length is known: every condition was evaluated, and items and count hold what passed */
  bool has_ahead;
  jinja_value previous, current, ahead;
  const jinja_node *node;
  jinja_scope *scope;    /* around the loop */
} jinja_loop;

status jinja_eval(jinja_state *state, const jinja_node *node, jinja_value *out);
status jinja_eval_arguments(jinja_state *state, const jinja_node *list, jinja_arguments *out);

/* Brings arguments into the order of parameters. ERR_FORMAT: too many, unknown or twice. */
status jinja_eval_order(const char *what, const char *parameters, const jinja_arguments *arguments, jinja_value *ordered);

status jinja_eval_call(jinja_state *state, jinja_value callee, const jinja_arguments *arguments, jinja_value *out);
status jinja_eval_filter(jinja_state *state, const jinja_node *node, jinja_value value, jinja_value *out);

/* value.name, as environment.getattr; and value[key], as environment.getitem. */
status jinja_eval_attribute(jinja_state *state, jinja_value value, jinja_text name, jinja_value *out);
status jinja_eval_item(jinja_state *state, jinja_value value, jinja_value key, jinja_value *out);

/* The items of what can be visited: of a dict its keys, of a text its code points. An iterator is used up. ERR_FORMAT: not iterable. */
status jinja_eval_items(jinja_state *state, jinja_value value, jinja_list *out);

status jinja_eval_scope(jinja_state *state, jinja_scope *parent);                          /* enters a new one */
status jinja_eval_bind(jinja_state *state, const jinja_name *name, jinja_value value); /* in the current scope */
const jinja_name *jinja_eval_name(const jinja_tree *tree, const char *words);          /* NULL: the template does not use it */

#endif

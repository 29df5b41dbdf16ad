/* jinja/run.h - statements: bodies, loops, macros. Read next: run.c. */
#ifndef VERBATIM_JINJA_RUN_H
#define VERBATIM_JINJA_RUN_H
#include "jinja/eval.h"

/* Renders a body into state->out. */
status jinja_run_body(jinja_state *state, const jinja_node *body);

status jinja_run_macro(jinja_state *state, const jinja_macro *macro, const jinja_arguments *arguments, jinja_value *out);
status jinja_run_loop_member(jinja_state *state, jinja_loop *loop, jinja_text name, jinja_value *out); /* loop.index and the like */

#endif

/* constraint.h - what an answer must be: a text of the user, and the automaton that it was compiled to.
 *
 * Compiling allocates and takes up to half a second, bounded whatever the text; it happens on the thread of whoever reads the request,
 * never in a step. A constraint never changes then, and any number of requests, engines and threads may use it. Read next: automaton.h,
 * masks.h. */
#ifndef VERBATIM_CONSTRAIN_CONSTRAINT_H
#define VERBATIM_CONSTRAIN_CONSTRAINT_H
#include "base/base.h"
#include "base/digest.h"
#include "constrain/automaton.h"
#include "verbatim.h"

struct verbatim_constraint {
  enum verbatim_constraint_kind kind;
  char *text;        /* [bytes] UTF-8, without NUL at the end */
  size_t bytes;
  digest identity;   /* of kind and text */
  automaton automaton;
};

/* As verbatim_constraint_open and verbatim_constraint_close. */
status constraint_open(verbatim_constraint **out, enum verbatim_constraint_kind kind, const char *text, size_t bytes);
void constraint_close(verbatim_constraint *self);

#endif

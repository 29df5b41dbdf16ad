/* jinja/globals.h - the functions that every template can call. Read next: eval.h. */
#ifndef VERBATIM_JINJA_GLOBALS_H
#define VERBATIM_JINJA_GLOBALS_H
#include "jinja/eval.h"

const jinja_function *jinja_globals_find(jinja_text name); /* NULL: none */

#endif

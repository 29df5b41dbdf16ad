/* jinja/tests.h - the tests of jinja2: value is NAME. Read next: eval.h. */
#ifndef VERBATIM_JINJA_TESTS_H
#define VERBATIM_JINJA_TESTS_H
#include "jinja/eval.h"

const jinja_callable *jinja_tests_find(jinja_text name); /* NULL: not implemented */

#endif

/* jinja/filters.h - the filters of jinja2 that chat templates use: value|NAME. Read next: eval.h. */
#ifndef VERBATIM_JINJA_FILTERS_H
#define VERBATIM_JINJA_FILTERS_H
#include "jinja/eval.h"

const jinja_callable *jinja_filters_find(jinja_text name); /* NULL: not implemented */

#endif

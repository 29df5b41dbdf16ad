/* jinja/collect.h - the filters that visit the items of a value. Read next: filters.h. */
#ifndef VERBATIM_JINJA_COLLECT_H
#define VERBATIM_JINJA_COLLECT_H
#include "jinja/eval.h"

const jinja_callable *jinja_collect_find(jinja_text name); /* NULL: none of these */

#endif

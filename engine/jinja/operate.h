/* jinja/operate.h - operators between two values, with Python's rules; integers are of 64 bits and their overflow is an error. */
#ifndef VERBATIM_JINJA_OPERATE_H
#define VERBATIM_JINJA_OPERATE_H
#include "jinja/eval.h"

status jinja_operate_binary(jinja_state *state, jinja_node_kind op, jinja_value a, jinja_value b, jinja_value *out);
status jinja_operate_unary(jinja_node_kind op, jinja_value a, jinja_value *out);
status jinja_operate_compare(jinja_state *state, jinja_compare_op op, jinja_value a, jinja_value b, bool *out);

#endif

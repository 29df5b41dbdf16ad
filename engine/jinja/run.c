/* jinja/run.c - see jinja/run.h. */
#include "jinja/run.h"
#include <string.h>
#include "jinja/operate.h"
#include "jinja/write.h"

typedef enum jump { GO_ON, BREAK_LOOP, NEXT_ITEM } jump;

static status run_nodes(jinja_state *state, const jinja_node *body, jump *out);

/* Renders a body in a scope of its own to a text of its own. */
static status capture(jinja_state *state, const jinja_node *body, jinja_scope *parent, jinja_value *out) {
  jinja_scope *around = state->scope;
  strbuf *outer = state->out, captured = {0};
  status result = parent ? jinja_eval_scope(state, parent) : OK; /* NULL: the caller has entered one */
  state->out = &captured;
  if (result == OK) result = jinja_run_body(state, body);
  state->out = outer;
  state->scope = around;
  if (result == OK) result = jinja_value_take(state->memory, &captured, out);
  strbuf_close(&captured);
  return result;
}

/* === Assignments ============================================================================================= */

static status assign_member(jinja_state *state, const jinja_node *target, jinja_value value) {
  jinja_value space;
  TRY(jinja_eval(state, target->a, &space));
  if (space.kind != JINJA_NAMESPACE)
    return FAIL(ERR_FORMAT, "chat template, line %u: cannot assign attribute on non-namespace object", target->line);
  jinja_text name = target->name->text;
  if (name.bytes[0] == '_') return FAIL(ERR_FORMAT, "chat template, line %u: a namespace's member begins with \"_\"", target->line);
  return jinja_value_put(state->memory, space.dict, jinja_value_text(name.bytes, name.count), value);
}

static status assign(jinja_state *state, const jinja_node *target, jinja_value value) {
  jinja_list items = {0};
  size_t count = 0;
  if (target->kind == JINJA_MEMBER) return assign_member(state, target, value);
  if (target->kind == JINJA_VARIABLE) return jinja_eval_bind(state, target->name, value);
  TRY(jinja_eval_items(state, value, &items));
  for (const jinja_node *one = target->a; one; one = one->next) count++;
  if (count != items.count)
    return FAIL(ERR_FORMAT, "chat template, line %u: expected %zu values to unpack, found %zu", target->line, count, items.count);
  count = 0;
  for (const jinja_node *one = target->a; one; one = one->next) TRY(assign(state, one, items.items[count++]));
  return OK;
}

static status run_set_block(jinja_state *state, const jinja_node *node) {
  jinja_value text;
  TRY(capture(state, node->c, state->scope, &text));
  if (node->b) TRY(jinja_eval_filter(state, node->b, text, &text));
  return assign(state, node->a, text);
}

static status run_with(jinja_state *state, const jinja_node *node) {
  jinja_scope *around = state->scope, *inner = NULL;
  const jinja_node *value = node->b;
  TRY(jinja_eval_scope(state, around));
  inner = state->scope;
  for (const jinja_node *target = node->a; target; target = target->next, value = value->next) {
    jinja_value made;
    state->scope = around; /* the values do not see each other's names */
    TRY(jinja_eval(state, value, &made));
    state->scope = inner;
    TRY(assign(state, target, made));
  }
  TRY(jinja_run_body(state, node->c));
  state->scope = around;
  return OK;
}

/* === Loops =================================================================================================== */

/* Evaluates a loop's condition for an item, in a scope of its own. */
static status passes(jinja_state *state, const jinja_loop *loop, jinja_value item, bool *out) {
  jinja_scope *around = state->scope;
  jinja_value value;
  *out = true;
  if (!loop->node->e) return OK;
  TRY(jinja_eval_scope(state, loop->scope));
  TRY(assign(state, loop->node->a, item));
  TRY(jinja_eval(state, loop->node->e, &value));
  state->scope = around;
  *out = jinja_value_is_true(value);
  return OK;
}

/* Looks for the next item that passes, as late as possible: a condition may read what the body of the loop sets. */
static status look_ahead(jinja_state *state, jinja_loop *loop) {
  while (!loop->has_ahead && loop->at < loop->count) {
    TRY(jinja_memory_step(state->memory, 0));
    loop->ahead = loop->items[loop->at++];
    if (loop->is_counted) loop->has_ahead = true;
    else TRY(passes(state, loop, loop->ahead, &loop->has_ahead));
  }
  return OK;
}

/* Evaluates all conditions that are left. */
static status count_items(jinja_state *state, jinja_loop *loop) {
  if (loop->is_counted) return OK;
  jinja_value kept;
  size_t count = 0;
  TRY(jinja_value_list(state->memory, JINJA_LIST, loop->count - loop->at, &kept));
  for (; loop->at < loop->count; loop->at++) {
    bool is_kept = false;
    TRY(passes(state, loop, loop->items[loop->at], &is_kept));
    if (is_kept) kept.list->items[count++] = loop->items[loop->at];
  }
  loop->items = kept.list->items;
  loop->at = 0;
  loop->count = count;
  loop->is_counted = true;
  return OK;
}

status jinja_run_loop_member(jinja_state *state, jinja_loop *loop, jinja_text name, jinja_value *out) {
  static const char *const names[] = {"index", "index0", "first", "depth", "depth0", "previtem", "last", "nextitem", "length", "revindex",
                                      "revindex0"};
  size_t which = 0;
  while (which < ARRAY_LEN(names) && !jinja_value_is(name, names[which])) which++;
  if (which == 6 || which == 7) TRY(look_ahead(state, loop));
  if (which >= 8) TRY(count_items(state, loop));
  int64_t index0 = (int64_t)loop->index0, length = index0 + 1 + loop->has_ahead + (int64_t)(loop->count - loop->at);
  switch (which) {
    case 0: *out = jinja_value_integer(index0 + 1); break;
    case 1: *out = jinja_value_integer(index0); break;
    case 2: *out = jinja_value_bool(index0 == 0); break;
    case 3: case 4: *out = jinja_value_integer(which == 3); break;
    case 5: *out = index0 ? loop->previous : jinja_value_undefined("there is no previous item"); break;
    case 6: *out = jinja_value_bool(!loop->has_ahead); break;
    case 7: *out = loop->has_ahead ? loop->ahead : jinja_value_undefined("there is no next item"); break;
    case 8: *out = jinja_value_integer(length); break;
    case 9: case 10: *out = jinja_value_integer(length - index0 - (which == 10)); break;
    default: return FAIL(ERR_UNSUPPORTED, "chat template: loop.%.*s is not implemented", (int)name.count, name.bytes);
  }
  return OK;
}

/* One turn of the loop: the item that was found ahead becomes the current one. */
static status run_turn(jinja_state *state, jinja_loop *loop, const jinja_name *name, jump *out) {
  loop->previous = loop->current;
  loop->current = loop->ahead;
  loop->has_ahead = false;
  TRY(jinja_eval_scope(state, loop->scope));
  if (name) TRY(jinja_eval_bind(state, name, (jinja_value){.kind = JINJA_LOOP, .loop = loop}));
  TRY(assign(state, loop->node->a, loop->current));
  TRY(run_nodes(state, loop->node->c, out));
  state->scope = loop->scope;
  return OK;
}

static status run_for(jinja_state *state, const jinja_node *node, jump *out) {
  const jinja_name *name = jinja_eval_name(state->tree, "loop");
  jinja_scope *around = state->scope;
  jinja_value visited;
  jinja_list items = {0};
  jinja_loop *loop = NULL;
  jump after = GO_ON;
  TRY(jinja_eval(state, node->b, &visited));
  TRY(jinja_eval_items(state, visited, &items));
  TRY(jinja_memory_take(state->memory, sizeof *loop, &loop));
  *loop = (jinja_loop){.items = items.items, .count = items.count, .is_counted = !node->e, .node = node, .scope = around};
  TRY(look_ahead(state, loop));
  *out = GO_ON;
  if (!loop->has_ahead) {
    TRY(jinja_eval_scope(state, around));
    TRY(run_nodes(state, node->d, out));
    state->scope = around;
    return OK;
  }
  for (; loop->has_ahead; loop->index0++) {
    TRY(run_turn(state, loop, name, &after));
    if (after == BREAK_LOOP) break; /* before a condition is evaluated once more */
    TRY(look_ahead(state, loop));
  }
  return OK;
}

/* === Macros ================================================================================================== */

static status run_macro(jinja_state *state, const jinja_macro *macro, const jinja_arguments *arguments, jinja_value *out) {
  static const char caller[] = "caller";
  const jinja_node *node = macro->node, *parameters = node->kind == JINJA_CALL_BLOCK ? node->b : node->a;
  size_t position = 0, used = 0;
  TRY(jinja_eval_scope(state, macro->scope));
  for (const jinja_node *one = parameters; one; one = one->next, position++) {
    jinja_value value = {.kind = JINJA_ABSENT};
    for (size_t i = 0, placed = 0; i < arguments->count; i++) {
      bool is_this = arguments->names[i] ? arguments->names[i] == one->name : placed == position;
      placed += !arguments->names[i];
      if (!is_this) continue;
      if (value.kind != JINJA_ABSENT) return FAIL(ERR_FORMAT, "chat template: a macro got multiple values for an argument");
      value = arguments->items[i];
      used++;
    }
    if (value.kind == JINJA_ABSENT && one->a) TRY(jinja_eval(state, one->a, &value));
    else if (value.kind == JINJA_ABSENT) value = jinja_value_undefined("a parameter that was not provided");
    TRY(jinja_eval_bind(state, one->name, value));
  }
  for (size_t i = 0; i < arguments->count; i++) {
    if (!arguments->names[i] || !jinja_value_is(arguments->names[i]->text, caller)) continue;
    TRY(jinja_eval_bind(state, arguments->names[i], arguments->items[i]));
    used++;
  }
  if (used != arguments->count) return FAIL(ERR_FORMAT, "chat template, line %u: a macro got an unexpected argument", node->line);
  return capture(state, node->c, NULL, out);
}

status jinja_run_macro(jinja_state *state, const jinja_macro *macro, const jinja_arguments *arguments, jinja_value *out) {
  jinja_scope *around = state->scope;
  status result = run_macro(state, macro, arguments, out);
  state->scope = around;
  return result;
}

static status make_macro(jinja_state *state, const jinja_node *node, jinja_value *out) {
  jinja_macro *macro = NULL;
  TRY(jinja_memory_take(state->memory, sizeof *macro, &macro));
  *macro = (jinja_macro){node, state->scope};
  *out = (jinja_value){.kind = JINJA_MACRO, .macro = macro};
  return OK;
}

/* The body becomes the macro that the called one knows as caller. */
static status run_call_block(jinja_state *state, const jinja_node *node) {
  jinja_value callee, made;
  jinja_arguments arguments;
  TRY(jinja_eval(state, node->a->a, &callee));
  TRY(jinja_eval_arguments(state, node->a->b, &arguments));
  const jinja_name *name = jinja_eval_name(state->tree, "caller");
  if (!name || callee.kind != JINJA_MACRO || arguments.count == JINJA_ARGUMENTS_MAX)
    return FAIL(ERR_UNSUPPORTED, "chat template, line %u: a call block of what is no macro with a caller", node->line);
  TRY(make_macro(state, node, &arguments.items[arguments.count]));
  arguments.names[arguments.count++] = name;
  TRY(jinja_eval_call(state, callee, &arguments, &made));
  return jinja_write_text(state->memory, made, state->out);
}

/* === Statements ============================================================================================== */

static status run_print(jinja_state *state, const jinja_node *node) {
  jinja_value value;
  TRY(jinja_eval(state, node->a, &value));
  return jinja_write_text(state->memory, value, state->out);
}

static status run_captured(jinja_state *state, const jinja_node *node) {
  jinja_value text;
  TRY(capture(state, node->c, state->scope, &text));
  if (node->kind == JINJA_FILTER_BLOCK) TRY(jinja_eval_filter(state, node->a, text, &text));
  return jinja_write_text(state->memory, text, state->out);
}

static status run_one(jinja_state *state, const jinja_node *node, jump *out) {
  jinja_value value;
  switch (node->kind) {
    case JINJA_WRITE: return jinja_write_text(state->memory, node->value, state->out);
    case JINJA_PRINT: return run_print(state, node);
    case JINJA_FOR: return run_for(state, node, out);
    case JINJA_SET_BLOCK: return run_set_block(state, node);
    case JINJA_WITH: return run_with(state, node);
    case JINJA_CALL_BLOCK: return run_call_block(state, node);
    case JINJA_FILTER_BLOCK: case JINJA_SCOPE: return run_captured(state, node);
    case JINJA_BREAK: *out = BREAK_LOOP; return OK;
    case JINJA_CONTINUE: *out = NEXT_ITEM; return OK;
    case JINJA_IF:
      TRY(jinja_eval(state, node->a, &value));
      return run_nodes(state, jinja_value_is_true(value) ? node->b : node->c, out);
    case JINJA_SET:
      TRY(jinja_eval(state, node->b, &value));
      return assign(state, node->a, value);
    default:
      ASSERT(node->kind == JINJA_MACRO_NODE); /* the parser makes no other statements */
      TRY(make_macro(state, node, &value));
      return jinja_eval_bind(state, node->name, value);
  }
}

static status run_nodes(jinja_state *state, const jinja_node *body, jump *out) {
  *out = GO_ON;
  if (++state->depth > JINJA_CALLS_MAX) return FAIL(ERR_LIMIT, "chat template, line %u: nested too deeply", body ? body->line : 0);
  for (; body && *out == GO_ON; body = body->next) {
    TRY(jinja_memory_step(state->memory, 0));
    TRY(run_one(state, body, out));
  }
  state->depth--;
  return OK;
}

status jinja_run_body(jinja_state *state, const jinja_node *body) {
  jump ignored = GO_ON;
  return run_nodes(state, body, &ignored);
}

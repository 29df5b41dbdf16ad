/* jinja/operate.c - see jinja/operate.h. */
#include "jinja/operate.h"
#include <math.h>
#include <string.h>
#include "jinja/text.h"
#include "jinja/write.h"

/* === Numbers ================================================================================================= */

static int64_t whole(jinja_value number) { return number.kind == JINJA_BOOL ? number.truth : number.integer; }

static status overflow(void) { return FAIL(ERR_LIMIT, "chat template: an integer beyond 64 bits"); }
static status by_zero(void) { return FAIL(ERR_FORMAT, "chat template: division by zero"); }

static status power(int64_t base, int64_t exponent, jinja_value *out) {
  int64_t made = 1;
  if (exponent < 0) return FAIL(ERR_UNSUPPORTED, "chat template: a power with a negative exponent is not implemented");
  for (int64_t i = 0; i < exponent && made != 0 && !(base == 1 && i > 0); i++) {
    if (i > 128) { /* of 0, 1 or -1 */
      made = base == -1 && exponent % 2 ? -1 : base == -1 ? 1 : made;
      break;
    }
    if (__builtin_mul_overflow(made, base, &made)) return overflow();
  }
  *out = jinja_value_integer(made);
  return OK;
}

static status integers(jinja_node_kind op, int64_t a, int64_t b, jinja_value *out) {
  int64_t made = 0;
  bool is_over = false;
  switch (op) {
    case JINJA_ADD: is_over = __builtin_add_overflow(a, b, &made); break;
    case JINJA_SUBTRACT: is_over = __builtin_sub_overflow(a, b, &made); break;
    case JINJA_MULTIPLY: is_over = __builtin_mul_overflow(a, b, &made); break;
    case JINJA_POWER: return power(a, b, out);
    case JINJA_DIVIDE: /* the quotient of two doubles is Python's only if both hold their integers */
      if (b == 0) return by_zero();
      if (a > 1ll << 53 || a < -(1ll << 53) || b > 1ll << 53 || b < -(1ll << 53)) return overflow();
      *out = (jinja_value){.kind = JINJA_REAL, .real = (double)a / (double)b};
      return OK;
    default:
      if (b == 0) return by_zero();
      if (b == -1) { /* INT64_MIN / -1 */
        is_over = op == JINJA_FLOOR_DIVIDE && __builtin_sub_overflow((int64_t)0, a, &made);
        break;
      }
      made = op == JINJA_REMAINDER ? a % b : a / b;
      if (a % b != 0 && (a < 0) != (b < 0)) made += op == JINJA_REMAINDER ? b : -1; /* towards minus infinity */
  }
  if (is_over) return overflow();
  *out = jinja_value_integer(made);
  return OK;
}

static status reals(jinja_node_kind op, double a, double b, jinja_value *out) {
  double made = 0;
  switch (op) {
    case JINJA_ADD: made = a + b; break;
    case JINJA_SUBTRACT: made = a - b; break;
    case JINJA_MULTIPLY: made = a * b; break;
    case JINJA_POWER: return FAIL(ERR_UNSUPPORTED, "chat template: a power of a number with a fraction is not implemented");
    case JINJA_DIVIDE:
      if (b == 0) return by_zero();
      made = a / b;
      break;
    default:
      if (b == 0) return by_zero();
      made = fmod(a, b); /* exact; Python's remainder has the divisor's sign */
      if (made != 0 && (b < 0) != (made < 0)) made += b;
      else if (made == 0) made = copysign(0.0, b);
      if (op == JINJA_REMAINDER) break;
      made = (a - made) / b;
      if (made != 0) {
        double lower = floor(made);
        made = made - lower > 0.5 ? lower + 1.0 : lower;
      } else made = copysign(0.0, a / b);
  }
  *out = (jinja_value){.kind = JINJA_REAL, .real = made};
  return OK;
}

status jinja_operate_unary(jinja_node_kind op, jinja_value a, jinja_value *out) {
  if (!jinja_value_is_number(a)) return FAIL(ERR_FORMAT, "chat template: bad operand type for unary -: '%s'", jinja_value_type(a));
  if (a.kind == JINJA_REAL) {
    *out = (jinja_value){.kind = JINJA_REAL, .real = op == JINJA_NEGATE ? -a.real : a.real};
    return OK;
  }
  return integers(op == JINJA_NEGATE ? JINJA_SUBTRACT : JINJA_ADD, 0, whole(a), out);
}

/* === Texts and lists ========================================================================================= */

/* A text that the filter safe gave is escaped by nothing; the other one is. */
static void put_operand(strbuf *out, jinja_value text, bool escapes) {
  for (size_t i = 0; i < text.text.count; i++) {
    char c = text.text.bytes[i];
    const char *entity = c == '&' ? "&amp;" : c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '"' ? "&#34;" : c == '\'' ? "&#39;" : NULL;
    if (escapes && entity) strbuf_adds(out, entity);
    else strbuf_add(out, &c, 1);
  }
}

static status add_texts(jinja_state *state, jinja_value a, jinja_value b, jinja_value *out) {
  bool is_safe = (a.marks | b.marks) & JINJA_SAFE;
  strbuf joined = {0};
  if (a.text.count + b.text.count > JINJA_TEXT_BYTES_MAX)
    return FAIL(ERR_LIMIT, "chat template: a text of more than %u bytes", JINJA_TEXT_BYTES_MAX);
  if (is_safe) {
    put_operand(&joined, a, !(a.marks & JINJA_SAFE));
    put_operand(&joined, b, !(b.marks & JINJA_SAFE));
  } else {
    if (a.text.count) strbuf_add(&joined, a.text.bytes, a.text.count);
    if (b.text.count) strbuf_add(&joined, b.text.bytes, b.text.count);
  }
  TRY(jinja_value_take(state->memory, &joined, out));
  if (is_safe) out->marks = JINJA_SAFE;
  return OK;
}

static status add_lists(jinja_state *state, jinja_value a, jinja_value b, jinja_value *out) {
  TRY(jinja_value_list(state->memory, (jinja_kind)a.kind, a.list->count + b.list->count, out));
  for (size_t i = 0; i < a.list->count; i++) out->list->items[i] = a.list->items[i];
  for (size_t i = 0; i < b.list->count; i++) out->list->items[a.list->count + i] = b.list->items[i];
  return OK;
}

static status repeat(jinja_state *state, jinja_value what, int64_t times, jinja_value *out) {
  size_t count = what.kind == JINJA_TEXT ? what.text.count : what.list->count, made = 0;
  if (times < 0) times = 0;
  if (__builtin_mul_overflow(count, (size_t)times, &made) || made > JINJA_TEXT_BYTES_MAX)
    return FAIL(ERR_LIMIT, "chat template: a text of more than %u bytes", JINJA_TEXT_BYTES_MAX);
  if (what.kind == JINJA_TEXT) {
    strbuf text = {0};
    for (int64_t i = 0; i < times && count; i++) strbuf_add(&text, what.text.bytes, count);
    return jinja_value_take(state->memory, &text, out);
  }
  TRY(jinja_value_list(state->memory, (jinja_kind)what.kind, made, out));
  for (size_t i = 0; i < made; i++) out->list->items[i] = what.list->items[i % count];
  return OK;
}

static status wrong(jinja_node_kind op, jinja_value a, jinja_value b) {
  static const char *const words[] = {"+", "-", "*", "/", "//", "%", "**"};
  if (a.kind == JINJA_UNDEFINED || b.kind == JINJA_UNDEFINED)
    return FAIL(ERR_FORMAT, "chat template: '%s' is undefined", a.kind == JINJA_UNDEFINED ? a.missing : b.missing);
  return FAIL(ERR_FORMAT, "chat template: unsupported operand type(s) for %s: '%s' and '%s'", words[op - JINJA_ADD], jinja_value_type(a),
              jinja_value_type(b));
}

status jinja_operate_binary(jinja_state *state, jinja_node_kind op, jinja_value a, jinja_value b, jinja_value *out) {
  if (a.marks & JINJA_QUIET) a = jinja_value_words("");
  if (b.marks & JINJA_QUIET) b = jinja_value_words("");
  if (jinja_value_is_number(a) && jinja_value_is_number(b)) {
    if (a.kind != JINJA_REAL && b.kind != JINJA_REAL) return integers(op, whole(a), whole(b), out);
    return reals(op, jinja_value_real(a), jinja_value_real(b), out);
  }
  bool is_text = a.kind == JINJA_TEXT, is_list = a.kind == JINJA_LIST || a.kind == JINJA_TUPLE;
  if (op == JINJA_ADD && a.kind == b.kind && is_text) return add_texts(state, a, b, out);
  if (op == JINJA_ADD && a.kind == b.kind && is_list) return add_lists(state, a, b, out);
  bool is_times = b.kind == JINJA_INTEGER || b.kind == JINJA_BOOL;
  if (op == JINJA_MULTIPLY && (is_text || is_list) && is_times) return repeat(state, a, whole(b), out);
  if (op == JINJA_MULTIPLY && (a.kind == JINJA_INTEGER || a.kind == JINJA_BOOL) &&
      (b.kind == JINJA_TEXT || b.kind == JINJA_LIST || b.kind == JINJA_TUPLE))
    return repeat(state, b, whole(a), out);
  if (op == JINJA_REMAINDER && is_text) return FAIL(ERR_UNSUPPORTED, "chat template: %% with a text on its left is not implemented");
  return wrong(op, a, b);
}

/* === Comparisons ============================================================================================= */

static status contains(jinja_state *state, jinja_value item, jinja_value whole_value, bool *out) {
  jinja_list items = {0};
  *out = false;
  if (whole_value.marks & JINJA_QUIET) whole_value = jinja_value_words("");
  if (whole_value.kind == JINJA_TEXT) {
    if (item.kind != JINJA_TEXT)
      return FAIL(ERR_FORMAT, "chat template: 'in <string>' requires string as left operand, not %s", jinja_value_type(item));
    TRY(jinja_memory_step(state->memory, whole_value.text.count));
    *out = jinja_text_find(whole_value.text, item.text, 0) >= 0;
    return OK;
  }
  if (whole_value.kind == JINJA_DICT && item.kind == JINJA_TEXT) {
    *out = jinja_value_find(whole_value.dict, item.text) != NULL;
    return OK;
  }
  TRY(jinja_eval_items(state, whole_value, &items));
  for (size_t i = 0; i < items.count && !*out; i++) TRY(jinja_value_equal(state->memory, item, items.items[i], out));
  return OK;
}

status jinja_operate_compare(jinja_state *state, jinja_compare_op op, jinja_value a, jinja_value b, bool *out) {
  int order = 0;
  if (op == JINJA_IN || op == JINJA_NOT_IN) {
    TRY(contains(state, a, b, out));
    *out ^= op == JINJA_NOT_IN;
    return OK;
  }
  if (op == JINJA_EQ || op == JINJA_NE) {
    TRY(jinja_value_equal(state->memory, a, b, out));
    *out ^= op == JINJA_NE;
    return OK;
  }
  bool is_nan = (a.kind == JINJA_REAL && isnan(a.real)) || (b.kind == JINJA_REAL && isnan(b.real));
  TRY(jinja_value_order(state->memory, a, b, &order));
  *out = !is_nan && (op == JINJA_LT ? order < 0 : op == JINJA_LE ? order <= 0 : op == JINJA_GT ? order > 0 : order >= 0);
  return OK;
}

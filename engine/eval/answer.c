/* eval/answer.c - see eval/answer.h. Extract, normalise, compare. */
#include "eval/answer.h"
#include "jsonl/json_line.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#define STEPS_MAX 10000000u
#define HEAP_KIB_MAX 65536u
#define NUMBER_BYTES_MAX 400u

struct eval_answer {
  const eval_task *task;
  pcre2_code *code; /* NULL: the whole text is the answer */
  pcre2_match_context *bounds;
  pcre2_match_data *found;
};

typedef struct span {
  const char *text;
  size_t bytes;
} span;

/* === Patterns =============================================================================================================== */

static status compile(const char *pattern, pcre2_code **out) {
  int error = 0;
  PCRE2_SIZE at = 0;
  pcre2_compile_context *context = pcre2_compile_context_create(NULL);
  if (!context) return FAIL(ERR_LIMIT, "extract: no memory");
  pcre2_set_newline(context, PCRE2_NEWLINE_LF); /* not the default the library was built with */
  *out = pcre2_compile((PCRE2_SPTR)pattern, strlen(pattern), PCRE2_UTF | PCRE2_NEVER_BACKSLASH_C, &error, &at, context);
  pcre2_compile_context_free(context);
  if (*out) return OK;
  PCRE2_UCHAR text[160] = "";
  pcre2_get_error_message(error, text, sizeof text);
  return FAIL(ERR_FORMAT, "extract: at byte %zu: %s", (size_t)at, (const char *)text);
}

status eval_answer_check(const char *pattern) {
  pcre2_code *code = NULL;
  TRY(compile(pattern, &code));
  pcre2_code_free(code);
  return OK;
}

status eval_answer_open(eval_answer **out, const eval_task *task) {
  eval_answer *self = calloc(1, sizeof *self);
  if (!self) return FAIL(ERR_LIMIT, "%s: no memory", task->name);
  self->task = task;
  status result = task->extract ? compile(task->extract, &self->code) : OK;
  if (result == OK && self->code) {
    self->bounds = pcre2_match_context_create(NULL);
    self->found = pcre2_match_data_create_from_pattern(self->code, NULL);
    if (!self->bounds || !self->found) result = FAIL(ERR_LIMIT, "%s: no memory", task->name);
  }
  if (result != OK) {
    eval_answer_close(self);
    return result;
  }
  if (self->bounds) {
    pcre2_set_match_limit(self->bounds, STEPS_MAX);
    pcre2_set_heap_limit(self->bounds, HEAP_KIB_MAX);
  }
  *out = self;
  return OK;
}

void eval_answer_close(eval_answer *self) {
  if (!self) return;
  pcre2_match_data_free(self->found);
  pcre2_match_context_free(self->bounds);
  pcre2_code_free(self->code);
  free(self);
}

/* The first group of the first match, or the whole match if the pattern has no group. False: there is none. */
static bool extract(const eval_answer *self, span from, span *out) {
  *out = from;
  if (!self->code) return true;
  int groups = pcre2_match(self->code, (PCRE2_SPTR)from.text, from.bytes, 0, 0, self->found, self->bounds);
  uint32_t has = 0;
  pcre2_pattern_info(self->code, PCRE2_INFO_CAPTURECOUNT, &has);
  int group = has > 0;
  if (groups <= group) return false; /* no match, a limit was hit, or the group did not take part */
  const PCRE2_SIZE *at = pcre2_get_ovector_pointer(self->found);
  if (at[2 * group] == PCRE2_UNSET || at[2 * group + 1] < at[2 * group]) return false;
  *out = (span){from.text + at[2 * group], at[2 * group + 1] - at[2 * group]};
  return true;
}

/* === Normalisation ========================================================================================================== */

static bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

static span stripped(span text) {
  while (text.bytes && is_blank(text.text[0])) text.text++, text.bytes--;
  while (text.bytes && is_blank(text.text[text.bytes - 1])) text.bytes--;
  return text;
}

/* Writes the normalised text to `to`, which has room for as many bytes; returns how many were written. */
static size_t normalize(const eval_task *task, span from, char *to) {
  size_t used = 0;
  if (task->strip) from = stripped(from);
  for (size_t i = 0; i < from.bytes; i++) {
    char c = from.text[i];
    if (task->collapse && is_blank(c)) {
      if (i && is_blank(from.text[i - 1])) continue;
      c = ' ';
    }
    to[used++] = task->lower && c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
  }
  return used;
}

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool eval_answer_number(const char *text, size_t bytes, double *out) {
  char plain[NUMBER_BYTES_MAX + 1];
  span from = stripped((span){text, bytes});
  size_t used = 0, i = 0, digits = 0;
  if (from.bytes > NUMBER_BYTES_MAX) return false;
  if (from.bytes && (from.text[0] == '-' || from.text[0] == '+')) plain[used++] = from.text[i++];
  for (; i < from.bytes && (is_digit(from.text[i]) || from.text[i] == ','); i++) {
    bool is_comma = from.text[i] == ',';
    if (is_comma && (digits == 0 || i + 1 == from.bytes || !is_digit(from.text[i + 1]))) return false;
    if (!is_comma) plain[used++] = from.text[i], digits++;
  }
  if (i < from.bytes && from.text[i] == '.') plain[used++] = from.text[i++];
  for (; i < from.bytes && is_digit(from.text[i]); i++) plain[used++] = from.text[i], digits++;
  if (digits == 0) return false;
  if (i < from.bytes && (from.text[i] == 'e' || from.text[i] == 'E')) {
    plain[used++] = from.text[i++];
    if (i < from.bytes && (from.text[i] == '-' || from.text[i] == '+')) plain[used++] = from.text[i++];
    if (i == from.bytes) return false;
    for (; i < from.bytes && is_digit(from.text[i]); i++) plain[used++] = from.text[i];
    if (!is_digit(from.text[i - 1])) return false;
  }
  plain[used] = 0;
  if (i < from.bytes) return false;
  double value = strtod(plain, NULL); /* the nearest binary64, in the C locale, which the program never leaves */
  if (!isfinite(value)) return false;
  *out = value;
  return true;
}

/* The last run of digits, with the sign and other parts of its number. False: the text has no digit. */
static bool last_number(span from, span *out) {
  size_t end = from.bytes;
  while (end && !is_digit(from.text[end - 1])) end--;
  size_t start = end;
  while (start && (is_digit(from.text[start - 1]) ||
                   ((from.text[start - 1] == '.' || from.text[start - 1] == ',') && start >= 2 && is_digit(from.text[start - 2]))))
    start--;
  if (start && from.text[start - 1] == '.') start--;
  if (start && from.text[start - 1] == '-') start--;
  *out = (span){from.text + start, end - start};
  return end > 0;
}

/* === Comparison ============================================================================================================= */

static bool is_same_text(const eval_task *task, span text, const char *answer, size_t answer_bytes, char *room) {
  char *other = room + text.bytes;
  size_t a = normalize(task, text, room), b = normalize(task, (span){answer, answer_bytes}, other);
  return a == b && memcmp(room, other, a) == 0;
}

static bool is_same_number(const eval_task *task, span text, const json_t *answer) {
  double found = 0, expected = 0;
  if (!eval_answer_number(text.text, text.bytes, &found)) return false;
  if (json_is_number(answer)) expected = json_number_value(answer);
  else if (!eval_answer_number(json_string_value(answer), json_string_length(answer), &expected)) return false;
  return fabs(found - expected) <= task->tolerance;
}

static status compare(const eval_task *task, span text, const json_t *answer, bool *same) {
  char number[32];
  const char *expected = json_string_value(answer);
  size_t bytes = json_string_length(answer);
  if (task->match == EVAL_MATCH_NUMBER) {
    *same = is_same_number(task, text, answer);
    return OK;
  }
  if (json_is_integer(answer)) {
    bytes = (size_t)snprintf(number, sizeof number, "%" JSON_INTEGER_FORMAT, json_integer_value(answer));
    expected = number;
  }
  if (!expected) return FAIL(ERR_FORMAT, "answer: expected a text or a whole number");
  char *room = malloc(text.bytes + bytes + 1);
  if (!room) return FAIL(ERR_LIMIT, "answer: no memory");
  *same = is_same_text(task, text, expected, bytes, room);
  free(room);
  return OK;
}

/* Moves to what follows the last occurrence of the text that ends a thought. False: there is none. */
static bool skip_thought(const char *end, span *text) {
  size_t bytes = strlen(end);
  if (bytes > text->bytes) return false;
  for (size_t at = text->bytes - bytes + 1; at-- > 0;) {
    if (memcmp(text->text + at, end, bytes) != 0) continue;
    *text = (span){text->text + at + bytes, text->bytes - at - bytes};
    return true;
  }
  return false;
}

status eval_answer_judge(const eval_answer *self, const char *text, size_t bytes, const json_t *answer, eval_answer_verdict *out) {
  span from = {text, bytes};
  bool is_right = false, is_unended = self->task->think_end && !skip_thought(self->task->think_end, &from);
  bool found = !is_unended && extract(self, from, &from);
  if (found && self->task->match == EVAL_MATCH_NUMBER && !self->code) found = last_number(from, &from);
  size_t count = json_is_array(answer) ? json_array_size(answer) : 1;
  for (size_t i = 0; found && !is_right && i < count; i++)
    TRY(compare(self->task, from, json_is_array(answer) ? json_array_get(answer, i) : answer, &is_right));
  json_t *built = found ? json_stringn(from.text, from.bytes) : json_null();
  if (!built) return FAIL(ERR_LIMIT, "answer: no memory");
  *out = (eval_answer_verdict){.extracted = built, .is_correct = is_right, .is_unended = is_unended};
  return OK;
}

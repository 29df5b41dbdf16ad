/* eval/answer.c - see eval/answer.h. Extract, normalise, compare. */
#include "eval/answer.h"
#include "jinja/text.h"
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
#define MATCHES_MAX 100000u

struct eval_answer {
  const eval_task *task;
  pcre2_code *code; /* NULL: the whole text is the answer */
  pcre2_code *removed[EVAL_TASK_REMOVE_MAX]; /* as many as the task has */
  pcre2_match_context *bounds;
  pcre2_match_data *found;
};

typedef struct span {
  const char *text;
  size_t bytes;
} span;

/* === Patterns =============================================================================================================== */

static status compile(const char *key, const char *pattern, pcre2_code **out) {
  int error = 0;
  PCRE2_SIZE at = 0;
  pcre2_compile_context *context = pcre2_compile_context_create(NULL);
  if (!context) return FAIL(ERR_LIMIT, "%s: no memory", key);
  pcre2_set_newline(context, PCRE2_NEWLINE_LF); /* not the default the library was built with */
  *out = pcre2_compile((PCRE2_SPTR)pattern, strlen(pattern), PCRE2_UTF | PCRE2_NEVER_BACKSLASH_C, &error, &at, context);
  pcre2_compile_context_free(context);
  if (*out) return OK;
  PCRE2_UCHAR text[160] = "";
  pcre2_get_error_message(error, text, sizeof text);
  return FAIL(ERR_FORMAT, "%s: at byte %zu: %s", key, (size_t)at, (const char *)text);
}

status eval_answer_check(const char *key, const char *pattern) {
  pcre2_code *code = NULL;
  TRY(compile(key, pattern, &code));
  pcre2_code_free(code);
  return OK;
}

status eval_answer_open(eval_answer **out, const eval_task *task) {
  eval_answer *self = calloc(1, sizeof *self);
  if (!self) return FAIL(ERR_LIMIT, "%s: no memory", task->name);
  self->task = task;
  status result = task->extract ? compile("extract", task->extract, &self->code) : OK;
  for (size_t i = 0; i < json_array_size(task->remove) && result == OK; i++)
    result = compile("remove", json_string_value(json_array_get(task->remove, i)), &self->removed[i]);
  self->bounds = pcre2_match_context_create(NULL);
  if (self->code) self->found = pcre2_match_data_create_from_pattern(self->code, NULL);
  if (result == OK && (!self->bounds || !self->found != !self->code)) result = FAIL(ERR_LIMIT, "%s: no memory", task->name);
  if (result != OK) {
    eval_answer_close(self);
    return result;
  }
  pcre2_set_match_limit(self->bounds, STEPS_MAX);
  pcre2_set_heap_limit(self->bounds, HEAP_KIB_MAX);
  *out = self;
  return OK;
}

void eval_answer_close(eval_answer *self) {
  if (!self) return;
  pcre2_match_data_free(self->found);
  pcre2_match_context_free(self->bounds);
  pcre2_code_free(self->code);
  for (size_t i = 0; i < EVAL_TASK_REMOVE_MAX; i++) pcre2_code_free(self->removed[i]);
  free(self);
}

/* The groups of the match that the task asks for, which is then in `found`; less than 1: there is none, or a limit was hit. The search goes
 * on after each match, as that of Python's findall: an empty match may follow a match, but not another empty one in the same place. */
static int find(const eval_answer *self, span from) {
  const PCRE2_SIZE *at = pcre2_get_ovector_pointer(self->found);
  PCRE2_SIZE start = 0, kept = PCRE2_UNSET;
  uint32_t options = 0, kept_options = 0, count = 0;
  for (;;) {
    int groups = pcre2_match(self->code, (PCRE2_SPTR)from.text, from.bytes, start, options, self->found, self->bounds);
    if (!self->task->takes_last || groups < PCRE2_ERROR_NOMATCH) return groups;
    if (groups == PCRE2_ERROR_NOMATCH) break;
    if (++count == MATCHES_MAX || at[1] < at[0]) return PCRE2_ERROR_MATCHLIMIT;
    kept = start;
    kept_options = options;
    start = at[1];
    options = PCRE2_NO_UTF_CHECK | (at[1] == at[0] ? PCRE2_NOTEMPTY_ATSTART : 0); /* the first match has checked the text */
  }
  if (kept == PCRE2_UNSET) return PCRE2_ERROR_NOMATCH;
  return pcre2_match(self->code, (PCRE2_SPTR)from.text, from.bytes, kept, kept_options, self->found, self->bounds);
}

/* The first group of the match, or the whole match if the pattern has no group. False: there is none. */
static bool extract(const eval_answer *self, span from, span *out) {
  *out = from;
  if (!self->code) return true;
  int groups = find(self, from);
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

/* Python's string.punctuation: every ASCII character that is printed and neither letter, digit nor blank. */
static bool is_punctuation(char c) {
  bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  return c > ' ' && c < 0x7f && !is_letter && !(c >= '0' && c <= '9');
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
    if (task->drop_punctuation && is_punctuation(c)) continue;
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

static bool is_same_number(const eval_task *task, span text, const json_t *answer) {
  double found = 0, expected = 0;
  if (!eval_answer_number(text.text, text.bytes, &found)) return false;
  if (json_is_number(answer)) expected = json_number_value(answer);
  else if (!eval_answer_number(json_string_value(answer), json_string_length(answer), &expected)) return false;
  return fabs(found - expected) <= task->tolerance;
}

/* Writes the text without what the pattern matches into new memory. ERR_MISMATCH: a limit was hit. */
static status remove_one(const eval_answer *self, const pcre2_code *pattern, span text, char **out, size_t *count) {
  PCRE2_SIZE bytes = text.bytes + 1;
  char *made = malloc(bytes);
  if (!made) return FAIL(ERR_LIMIT, "answer: no memory");
  int found = pcre2_substitute(pattern, (PCRE2_SPTR)text.text, text.bytes, 0, PCRE2_SUBSTITUTE_GLOBAL, NULL, self->bounds, (PCRE2_SPTR)"",
                               0, (PCRE2_UCHAR *)made, &bytes);
  if (found < 0) {
    free(made);
    return ERR_MISMATCH;
  }
  *out = made;
  *count = bytes;
  return OK;
}

status eval_answer_form(const eval_answer *self, const char *text, size_t bytes, char **out, size_t *count) {
  char *owned = NULL, *room;
  span from = {text, bytes};
  for (size_t i = 0; i < EVAL_TASK_REMOVE_MAX && self->removed[i]; i++) {
    char *made = NULL;
    status result = remove_one(self, self->removed[i], from, &made, &from.bytes);
    free(owned);
    if (result != OK) return result;
    from.text = owned = made;
  }
  if (!(room = malloc(from.bytes + 1))) {
    free(owned);
    return FAIL(ERR_LIMIT, "answer: no memory");
  }
  *count = normalize(self->task, from, room);
  *out = room;
  free(owned);
  return OK;
}

/* Equal in the form in which texts are compared. A text without such a form equals none. */
static status compare_texts(const eval_answer *self, span text, span expected, bool *same) {
  char *a = NULL, *b = NULL;
  size_t a_bytes = 0, b_bytes = 0;
  status result = eval_answer_form(self, text.text, text.bytes, &a, &a_bytes);
  if (result == OK) result = eval_answer_form(self, expected.text, expected.bytes, &b, &b_bytes);
  *same = result == OK && a_bytes == b_bytes && memcmp(a, b, a_bytes) == 0;
  free(a);
  free(b);
  return result == ERR_MISMATCH ? OK : result;
}

static status compare(const eval_answer *self, span text, const json_t *answer, bool *same) {
  char number[32];
  span expected = {json_string_value(answer), json_string_length(answer)};
  if (self->task->match == EVAL_MATCH_NUMBER) {
    *same = is_same_number(self->task, text, answer);
    return OK;
  }
  if (json_is_integer(answer)) {
    expected.bytes = (size_t)snprintf(number, sizeof number, "%" JSON_INTEGER_FORMAT, json_integer_value(answer));
    expected.text = number;
  }
  if (!expected.text) return FAIL(ERR_FORMAT, "answer: expected a text or a whole number");
  return compare_texts(self, text, expected, same);
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
  if (found && self->task->strips_extracted) {
    const jinja_text kept = jinja_text_strip((jinja_text){from.text, from.bytes}, NULL, true, true);
    from = (span){kept.bytes, kept.count};
  }
  if (found && self->task->match == EVAL_MATCH_NUMBER && !self->code) found = last_number(from, &from);
  size_t count = json_is_array(answer) ? json_array_size(answer) : 1;
  for (size_t i = 0; found && !is_right && i < count; i++)
    TRY(compare(self, from, json_is_array(answer) ? json_array_get(answer, i) : answer, &is_right));
  json_t *built = found ? json_stringn(from.text, from.bytes) : json_null();
  if (!built) return FAIL(ERR_LIMIT, "answer: no memory");
  *out = (eval_answer_verdict){.extracted = built, .is_correct = is_right, .is_unended = is_unended};
  return OK;
}

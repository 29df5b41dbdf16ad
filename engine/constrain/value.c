/* value.c - see value.h. */
#include "constrain/value.h"
#include "constrain/string_points.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DECIMALS_MAX 17u
#define EXPONENT_DIGITS_MAX 2u /* so that it is a finite double */

static const program_range DIGITS[] = {{'0', '9'}}, FIRST_DIGITS[] = {{'1', '9'}};

static void add_digits(program *p, uint32_t low, uint32_t high) {
  const uint32_t start = p->count;
  if (high == 0) return;
  program_points(p, DIGITS, 1);
  program_repeat(p, start, low, high);
}

static void add_blank(program *p) {
  const uint32_t start = p->count;
  program_bytes(p, " ", 1);
  program_repeat(p, start, 0, 1);
}

void value_add_comma(program *p) {
  program_bytes(p, ",", 1);
  add_blank(p);
}

void value_add_colon(program *p) {
  program_bytes(p, ":", 1);
  add_blank(p);
}

/* === Strings and numbers ==================================================================================================== */

void value_add_string(program *p, uint32_t length_min, uint32_t length_max) {
  program_bytes(p, "\"", 1);
  if (length_max) {
    const uint32_t start = p->count;
    string_points_add_any(p);
    program_repeat(p, start, length_min, length_max);
  }
  program_bytes(p, "\"", 1);
}

/* Zero, or digits of which the first is another. */
static void add_whole(program *p) {
  program_choice choice = program_open(p);
  program_bytes(p, "0", 1);
  program_or(p, &choice);
  program_points(p, FIRST_DIGITS, 1);
  add_digits(p, 0, VALUE_DIGITS_MAX - 1);
  program_shut(p, &choice);
}

static void add_optional(program *p, const char *text) {
  const uint32_t start = p->count;
  program_bytes(p, text, strlen(text));
  program_repeat(p, start, 0, 1);
}

void value_add_number(program *p) {
  static const program_range E[] = {{'E', 'E'}, {'e', 'e'}}, SIGNS[] = {{'+', '+'}, {'-', '-'}};
  add_optional(p, "-");
  add_whole(p);
  uint32_t start = p->count;
  program_bytes(p, ".", 1);
  add_digits(p, 1, DECIMALS_MAX);
  program_repeat(p, start, 0, 1);
  start = p->count;
  program_points(p, E, ARRAY_LEN(E));
  const uint32_t sign = p->count;
  program_points(p, SIGNS, ARRAY_LEN(SIGNS));
  program_repeat(p, sign, 0, 1);
  add_digits(p, 1, EXPONENT_DIGITS_MAX);
  program_repeat(p, start, 0, 1);
}

static void add_digit_range(program *p, char low, char high) {
  program_points(p, &(program_range){(uint8_t)low, (uint8_t)high}, 1);
}

/* So many digits, with the point before the last `decimals` of them. */
static void add_free_digits(program *p, uint32_t count, uint32_t decimals) {
  const uint32_t whole = count > decimals ? count - decimals : 0;
  add_digits(p, whole, whole);
  if (decimals && count >= decimals) program_bytes(p, ".", 1);
  add_digits(p, count - whole, count - whole);
}

/* Numbers of `count` digits from low to high, which have as many: those that begin as low does, those that begin as high does, and those
 * between. A point stands before the last `decimals` digits. */
static void add_between(program *p, const char *low, const char *high, uint32_t count, uint32_t decimals) {
  static const char ZEROS[] = "000000000000000000", NINES[] = "999999999999999999";
  if (count == 0) return;
  if (decimals && count == decimals) program_bytes(p, ".", 1);
  const uint32_t left = count > decimals ? decimals : 0; /* the point is still to come */
  if (*low == *high) {
    program_bytes(p, low, 1);
    add_between(p, low + 1, high + 1, count - 1, left);
    return;
  }
  const bool is_low_whole = strncmp(low + 1, ZEROS, count - 1) == 0, is_high_whole = strncmp(high + 1, NINES, count - 1) == 0;
  const char first = is_low_whole ? *low : (char)(*low + 1), last = is_high_whole ? *high : (char)(*high - 1);
  program_choice choice = program_open(p);
  bool is_first = true;
  if (!is_low_whole) {
    program_bytes(p, low, 1);
    add_between(p, low + 1, NINES, count - 1, left);
    is_first = false;
  }
  if (first <= last) {
    if (!is_first) program_or(p, &choice);
    add_digit_range(p, first, last);
    add_free_digits(p, count - 1, left);
    is_first = false;
  }
  if (!is_high_whole) {
    if (!is_first) program_or(p, &choice);
    program_bytes(p, high, 1);
    add_between(p, ZEROS, high + 1, count - 1, left);
  }
  program_shut(p, &choice);
}

/* Alternatives by number of digits, of which the last `decimals` stand after a point. 0 <= least <= most. */
static void add_natural(program *p, uint64_t least, uint64_t most, uint32_t decimals) {
  program_choice choice = program_open(p);
  bool is_first = true;
  uint64_t start = 0, end = 9; /* the numbers of so many digits */
  for (uint32_t i = 0; i < decimals; i++) end = end * 10 + 9;
  for (uint32_t digits = 1 + decimals; digits <= VALUE_DIGITS_MAX; digits++, start = end + 1, end = end * 10 + 9) {
    char low[24], high[24];
    if (least > end || most < start) continue;
    if (!is_first) program_or(p, &choice);
    snprintf(low, sizeof low, "%0*" PRIu64, (int)digits, least > start ? least : start);
    snprintf(high, sizeof high, "%0*" PRIu64, (int)digits, most < end ? most : end);
    add_between(p, low, high, digits, decimals);
    is_first = false;
  }
  program_shut(p, &choice);
}

void value_add_integer(program *p, int64_t least, int64_t most) {
  ASSERT(least <= most && least >= -VALUE_INTEGER_MAX && most <= VALUE_INTEGER_MAX);
  program_choice choice = program_open(p);
  if (least == -VALUE_INTEGER_MAX && most == VALUE_INTEGER_MAX) { /* the same in fewer instructions */
    program_bytes(p, "0", 1);
    program_or(p, &choice);
    add_optional(p, "-");
    program_points(p, FIRST_DIGITS, 1);
    add_digits(p, 0, VALUE_DIGITS_MAX - 1);
    program_shut(p, &choice);
    return;
  }
  if (least < 0) {
    program_bytes(p, "-", 1);
    add_natural(p, most < 0 ? (uint64_t)-most : 1, (uint64_t)-least, 0);
  }
  if (least < 0 && most >= 0) program_or(p, &choice);
  if (most >= 0) add_natural(p, least > 0 ? (uint64_t)least : 0, (uint64_t)most, 0);
  program_shut(p, &choice);
}

/* The naturals that, in units of 10^-decimals, are from `least` to `most` units of 10^-VALUE_DECIMALS_MAX; false: there is none. */
static bool find_units(int64_t least, int64_t most, uint32_t decimals, uint64_t *low, uint64_t *high) {
  int64_t unit = 1;
  for (uint32_t i = decimals; i < VALUE_DECIMALS_MAX; i++) unit *= 10;
  *low = (uint64_t)((least + unit - 1) / unit);
  *high = (uint64_t)(most / unit);
  return least <= most && *low <= *high;
}

/* Alternatives by sign and by number of decimals. */
static bool add_decimals(program *p, int64_t least, int64_t most, uint32_t decimals, program_choice *choice) {
  bool is_any = false;
  for (uint32_t i = 0; i <= decimals; i++)
    for (uint32_t negative = 0; negative < 2; negative++) {
      uint64_t low, high;
      const bool is_there = negative ? least < 0 && find_units(most < 0 ? -most : 1, -least, i, &low, &high)
                                     : most >= 0 && find_units(least > 0 ? least : 0, most, i, &low, &high);
      if (!is_there) continue;
      if (p && is_any) program_or(p, choice);
      if (p && negative) program_bytes(p, "-", 1);
      if (p) add_natural(p, low, high, i);
      is_any = true;
    }
  return is_any;
}

bool value_has_decimal(int64_t least, int64_t most, uint32_t decimals) { return add_decimals(NULL, least, most, decimals, NULL); }

void value_add_decimal(program *p, int64_t least, int64_t most, uint32_t decimals) {
  program_choice choice = program_open(p);
  ASSERT(least >= -VALUE_DECIMAL_MAX && most <= VALUE_DECIMAL_MAX && decimals <= VALUE_DECIMALS_MAX);
  const bool is_any = add_decimals(p, least, most, decimals, &choice);
  ASSERT(is_any);
  program_shut(p, &choice);
}

/* === Any value ============================================================================================================== */

static void add_members(program *p, uint32_t nesting, char open, char close) {
  program_bytes(p, &open, 1);
  const uint32_t none = program_fork(p), again = p->count;
  if (open == '{') {
    value_add_string(p, 0, PROGRAM_ENDLESS);
    value_add_colon(p);
  }
  value_add_any(p, nesting - 1);
  const uint32_t end = program_fork(p);
  value_add_comma(p);
  program_back(p, again);
  program_lead(p, end, p->count);
  program_lead(p, none, p->count);
  program_bytes(p, &close, 1);
}

void value_add_object(program *p, uint32_t nesting) { add_members(p, nesting, '{', '}'); }
void value_add_list(program *p, uint32_t nesting) { add_members(p, nesting, '[', ']'); }

void value_add_any(program *p, uint32_t nesting) {
  static const char *const WORDS[] = {"true", "false", "null"};
  if (p->is_full) return;
  program_choice choice = program_open(p);
  value_add_string(p, 0, PROGRAM_ENDLESS);
  program_or(p, &choice);
  value_add_number(p);
  for (size_t i = 0; i < ARRAY_LEN(WORDS); i++) {
    program_or(p, &choice);
    program_bytes(p, WORDS[i], strlen(WORDS[i]));
  }
  if (nesting > 0) {
    program_or(p, &choice);
    value_add_object(p, nesting);
    program_or(p, &choice);
    value_add_list(p, nesting);
  }
  program_shut(p, &choice);
}

/* === A given value ========================================================================================================== */

void value_add_text(program *p, const char *text, size_t bytes) {
  program_bytes(p, "\"", 1);
  string_points_text(p, text, bytes);
  program_bytes(p, "\"", 1);
}

static void add_these(program *p, const json_t *value) {
  const char *key;
  size_t bytes, i, count = 0;
  json_t *member;
  if (json_is_array(value)) {
    json_array_foreach((json_t *)(uintptr_t)value, i, member) {
      if (i > 0) value_add_comma(p);
      value_add_this(p, member);
    }
    return;
  }
  json_object_keylen_foreach((json_t *)(uintptr_t)value, key, bytes, member) {
    if (count++ > 0) value_add_comma(p);
    value_add_text(p, key, bytes);
    value_add_colon(p);
    value_add_this(p, member);
  }
}

void value_add_this(program *p, const json_t *value) {
  char number[64];
  if (json_is_string(value)) {
    value_add_text(p, json_string_value(value), json_string_length(value));
  } else if (json_is_object(value) || json_is_array(value)) {
    program_bytes(p, json_is_object(value) ? "{" : "[", 1);
    add_these(p, value);
    program_bytes(p, json_is_object(value) ? "}" : "]", 1);
  } else if (json_is_number(value)) {
    int count = json_is_integer(value) ? snprintf(number, sizeof number, "%" JSON_INTEGER_FORMAT, json_integer_value(value)) : 0;
    for (int digits = 1; !json_is_integer(value) && digits <= 17; digits++) { /* the shortest that means this number */
      count = snprintf(number, sizeof number, "%.*g", digits, json_real_value(value));
      if (!(strtod(number, NULL) < json_real_value(value)) && !(strtod(number, NULL) > json_real_value(value))) break;
    }
    program_bytes(p, number, (size_t)count);
  } else {
    const char *word = json_is_true(value) ? "true" : json_is_false(value) ? "false" : "null";
    program_bytes(p, word, strlen(word));
  }
}

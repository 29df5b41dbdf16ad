/* regex.c - see regex.h. One pass over the text, by recursive descent: alternatives, sequences, items with their repetition. */
#include "constrain/regex.h"
#include "base/utf8.h"
#include "constrain/string_points.h"
#include <stdlib.h>
#include <string.h>

#define RANGES_MAX 256u /* of a set */
#define ANY_LAST PROGRAM_POINT_MAX

typedef struct parser {
  program *p;
  const regex_source *source;
  size_t at;
  uint32_t depth;
} parser;

typedef struct set { /* of code points, in no order */
  program_range ranges[RANGES_MAX];
  uint32_t count;
} set;

static status wrong(const parser *r, const char *expected) {
  return FAIL(ERR_USAGE, "regex: byte %zu: expected %s", r->at, expected);
}

static status lacks(const parser *r, const char *what) {
  return FAIL(ERR_UNSUPPORTED, "regex: byte %zu: %s are not offered", r->at, what);
}

/* === Characters ============================================================================================================= */

static bool is_end(const parser *r) { return r->at >= r->source->bytes; }
static char peek(const parser *r) { return is_end(r) ? 0 : r->source->text[r->at]; }
static bool sees(const parser *r, char c) { return !is_end(r) && peek(r) == c; }

static bool takes(parser *r, char c) {
  if (!sees(r, c)) return false;
  r->at++;
  return true;
}

/* The text is UTF-8. */
static uint32_t take_point(parser *r) {
  const uint8_t *p = (const uint8_t *)r->source->text + r->at;
  const int length = utf8_scan(p, r->source->bytes - r->at);
  ASSERT(length > 0);
  r->at += (size_t)length;
  return utf8_code_point(p, length);
}

static int hex_of(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char letter = (char)(c | 0x20);
  return letter >= 'a' && letter <= 'f' ? letter - 'a' + 10 : -1;
}

/* After \x or \u: so many digits, or in braces one to six. */
static status take_hex(parser *r, uint32_t digits, uint32_t *point) {
  const bool is_braced = takes(r, '{');
  uint32_t value = 0, count = 0;
  while (count < (is_braced ? 6 : digits) && hex_of(peek(r)) >= 0) {
    value = value * 16 + (uint32_t)hex_of(r->source->text[r->at++]);
    count++;
  }
  if (is_braced ? count == 0 || !takes(r, '}') : count != digits) return wrong(r, "hexadecimal digits, as in \\x41, \\u00e9 or \\u{1f600}");
  if (value > PROGRAM_POINT_MAX || (value >= 0xd800 && value <= 0xdfff)) return wrong(r, "a code point that is a character");
  *point = value;
  return OK;
}

static status add_range(const parser *r, set *s, uint32_t first, uint32_t last) {
  if (s->count == RANGES_MAX) return FAIL(ERR_LIMIT, "regex: byte %zu: a set of more than %u ranges", r->at, RANGES_MAX);
  s->ranges[s->count++] = (program_range){first, last};
  return OK;
}

static int compare_ranges(const void *left, const void *right) {
  const program_range *a = left, *b = right;
  return a->first < b->first ? -1 : a->first > b->first;
}

/* Ascending and apart. */
static void normalise(set *s) {
  uint32_t count = 0;
  qsort(s->ranges, s->count, sizeof *s->ranges, compare_ranges);
  for (uint32_t i = 0; i < s->count; i++) {
    const program_range range = s->ranges[i];
    if (count && range.first <= s->ranges[count - 1].last + 1) s->ranges[count - 1].last = max_u32(s->ranges[count - 1].last, range.last);
    else s->ranges[count++] = range;
  }
  s->count = count;
}

/* A set of n ranges has a complement of at most n + 1. */
static status negate(const parser *r, set *s) {
  set rest = {.count = 0};
  uint32_t next = 0;
  normalise(s);
  for (uint32_t i = 0; i < s->count; i++) {
    if (s->ranges[i].first > next) TRY(add_range(r, &rest, next, s->ranges[i].first - 1));
    next = s->ranges[i].last + 1;
  }
  if (next <= ANY_LAST) TRY(add_range(r, &rest, next, ANY_LAST));
  *s = rest;
  return OK;
}

/* \d, \w, \s and their complements, as in PCRE2 without Unicode's properties. False: it is none of these. */
static status add_class(const parser *r, set *s, char letter, bool *is_class) {
  static const program_range DIGITS[] = {{'0', '9'}}, WORDS[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
  static const program_range BLANKS[] = {{9, 13}, {' ', ' '}};
  static const struct {
    char letter;
    const program_range *ranges;
    uint32_t count;
  } CLASSES[] = {{'d', DIGITS, ARRAY_LEN(DIGITS)}, {'w', WORDS, ARRAY_LEN(WORDS)}, {'s', BLANKS, ARRAY_LEN(BLANKS)}};
  *is_class = false;
  for (size_t i = 0; i < ARRAY_LEN(CLASSES); i++) {
    set part = {.count = 0};
    if ((letter | 0x20) != CLASSES[i].letter) continue;
    *is_class = true;
    for (uint32_t k = 0; k < CLASSES[i].count; k++) TRY(add_range(r, &part, CLASSES[i].ranges[k].first, CLASSES[i].ranges[k].last));
    if (letter != CLASSES[i].letter) TRY(negate(r, &part));
    for (uint32_t k = 0; k < part.count; k++) TRY(add_range(r, s, part.ranges[k].first, part.ranges[k].last));
  }
  return OK;
}

/* After a backslash: what stands for one code point. in_set: within brackets. */
static status take_escape(parser *r, bool in_set, uint32_t *point) {
  static const char LETTERS[] = "nrtfvae0", POINTS[] = "\n\r\t\f\v\a\x1b";
  if (is_end(r)) return wrong(r, "a character after \\");
  const char c = peek(r), *found = strchr(LETTERS, c);
  if (c == 'x' || c == 'u') {
    r->at++;
    return take_hex(r, c == 'x' ? 2 : 4, point);
  }
  if (c >= '1' && c <= '9') return lacks(r, "references to groups (\\1)");
  if (c == 'p' || c == 'P') return lacks(r, "properties of Unicode (\\p)");
  if (in_set && c == 'b') found = NULL, r->at++, *point = '\b';
  else if (c == 'b' || c == 'B' || c == 'A' || c == 'Z' || c == 'z' || c == 'G') return lacks(r, "assertions such as \\b");
  else if (found && c) r->at++, *point = (uint8_t)POINTS[found - LETTERS];
  else if ((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) return lacks(r, "escapes of this letter");
  else *point = take_point(r);
  return OK;
}

/* One code point or a class within brackets. */
static status take_member(parser *r, set *s, uint32_t *point, bool *is_class) {
  *is_class = false;
  if (sees(r, '[') && r->at + 1 < r->source->bytes && strchr(":.=", r->source->text[r->at + 1]))
    return lacks(r, "classes such as [:alpha:]");
  if (!takes(r, '\\')) {
    *point = take_point(r);
    return OK;
  }
  TRY(add_class(r, s, peek(r), is_class));
  if (!*is_class) return take_escape(r, true, point);
  r->at++;
  return OK;
}

/* After [. */
static status take_set(parser *r, set *s) {
  const bool is_negated = takes(r, '^');
  bool is_first = true;
  s->count = 0;
  for (; !sees(r, ']') || is_first; is_first = false) {
    uint32_t first = 0, last = 0;
    bool is_class, ends_in_class = false;
    if (is_end(r)) return wrong(r, "] after a set");
    TRY(take_member(r, s, &first, &is_class));
    last = first;
    const bool is_range = sees(r, '-') && r->at + 1 < r->source->bytes && r->source->text[r->at + 1] != ']';
    if (is_range) {
      r->at++;
      if (is_class) return wrong(r, "no class at an end of a range; hint: write \\- for the character");
      TRY(take_member(r, s, &last, &ends_in_class));
      if (ends_in_class || last < first) return wrong(r, "a range that ascends, between two characters");
    }
    if (!is_class) TRY(add_range(r, s, first, last));
  }
  r->at++;
  if (is_negated) TRY(negate(r, s));
  normalise(s);
  for (uint32_t i = 0; i < s->count; i++)
    if (s->ranges[i].first < 0xd800 || s->ranges[i].last > 0xdfff) return OK;
  return wrong(r, "a set that holds a character");
}

/* === Structure ============================================================================================================== */

static void add_set(const parser *r, const set *s) {
  if (r->source->in_json) string_points_add(r->p, s->ranges, s->count);
  else program_points(r->p, s->ranges, s->count);
}

static status take_alternatives(parser *r);

/* After ( */
static status take_group(parser *r) {
  if (takes(r, '?') && !takes(r, ':')) {
    if (sees(r, '=') || sees(r, '!')) return lacks(r, "assertions about what follows");
    if (sees(r, '<') || sees(r, 'P')) return lacks(r, "named groups, and assertions about what precedes,");
    return lacks(r, "groups with (? other than (?:");
  }
  if (sees(r, '*')) return lacks(r, "verbs such as (*SKIP)");
  if (++r->depth > REGEX_DEPTH_MAX) return FAIL(ERR_LIMIT, "regex: byte %zu: more than %u groups within groups", r->at, REGEX_DEPTH_MAX);
  TRY(take_alternatives(r));
  r->depth--;
  return takes(r, ')') ? OK : wrong(r, ") after a group");
}

static status take_item(parser *r) {
  set s = {.count = 0};
  bool is_class = false;
  const char c = peek(r);
  if (takes(r, '(')) return take_group(r);
  if (c == '^' || c == '$') return lacks(r, "^ but at the start, and $ but at the end,");
  if (c == '*' || c == '+' || c == '?' || c == '{') return wrong(r, "an item before a repetition; hint: write \\ before the character");
  if (takes(r, '[')) {
    TRY(take_set(r, &s));
  } else if (takes(r, '.')) {
    TRY(add_range(r, &s, 0, '\n' - 1));
    TRY(add_range(r, &s, '\n' + 1, ANY_LAST));
  } else if (takes(r, '\\')) {
    TRY(add_class(r, &s, peek(r), &is_class));
    if (is_class) r->at++;
    else TRY(take_escape(r, false, &s.ranges[0].first));
  } else {
    s.ranges[0].first = take_point(r);
  }
  if (s.count == 0) s.ranges[0].last = s.ranges[0].first, s.count = 1;
  normalise(&s);
  add_set(r, &s);
  return OK;
}

static bool take_number(parser *r, uint32_t *number) {
  const size_t start = r->at;
  uint32_t value = 0;
  for (; peek(r) >= '0' && peek(r) <= '9'; r->at++)
    if (value <= REGEX_REPEAT_MAX) value = value * 10 + (uint32_t)(peek(r) - '0');
  *number = value;
  return r->at > start;
}

/* *, +, ? or {low,high}. Lazy forms have the same language. Returns false in *is_there without one. */
static status take_repeat(parser *r, uint32_t *low, uint32_t *high, bool *is_there) {
  *is_there = true;
  *low = 0;
  *high = PROGRAM_ENDLESS;
  if (takes(r, '?')) *high = 1;
  else if (takes(r, '+')) *low = 1;
  else if (takes(r, '{')) {
    if (!take_number(r, low)) return wrong(r, "{n}, {n,} or {n,m}; hint: write \\{ for the character");
    if (!takes(r, ',')) *high = *low;
    else if (!sees(r, '}') && !take_number(r, high)) return wrong(r, "{n}, {n,} or {n,m}; hint: write \\{ for the character");
    if (!takes(r, '}')) return wrong(r, "} after a repetition");
    if (*high < *low) return wrong(r, "{n,m} with n at most m");
    if (*low > REGEX_REPEAT_MAX || (*high > REGEX_REPEAT_MAX && *high != PROGRAM_ENDLESS))
      return FAIL(ERR_LIMIT, "regex: byte %zu: more than %u repetitions", r->at, REGEX_REPEAT_MAX);
  } else if (!takes(r, '*')) *is_there = false;
  if (*is_there && sees(r, '+')) return lacks(r, "possessive repetitions");
  if (*is_there) (void)takes(r, '?');
  return OK;
}

/* $ ends the expression. */
static bool is_last_anchor(const parser *r) { return sees(r, '$') && r->at + 1 == r->source->bytes && r->depth == 0; }

static status take_sequence(parser *r) {
  while (!is_end(r) && !sees(r, '|') && !sees(r, ')') && !is_last_anchor(r)) {
    const uint32_t start = r->p->count;
    uint32_t low, high;
    bool is_there;
    TRY(take_item(r));
    TRY(take_repeat(r, &low, &high, &is_there));
    if (is_there && high == 0) {
      if (!r->p->is_full) r->p->count = start;
    } else if (is_there) {
      program_repeat(r->p, start, low, high);
    }
  }
  return OK;
}

static status take_alternatives(parser *r) {
  program_choice choice = program_open(r->p);
  TRY(take_sequence(r));
  while (takes(r, '|')) {
    program_or(r->p, &choice);
    TRY(take_sequence(r));
  }
  program_shut(r->p, &choice);
  return OK;
}

/* Any text: what may stand before or after an expression that is found. */
static void add_anything(const parser *r) {
  static const set ANY = {.ranges = {{0, ANY_LAST}}, .count = 1};
  const uint32_t start = r->p->count;
  add_set(r, &ANY);
  program_repeat(r->p, start, 0, PROGRAM_ENDLESS);
}

static bool has_alternatives(const regex_source *s) {
  for (size_t i = 0, depth = 0, in_set = 0; i < s->bytes; i++) {
    const char c = s->text[i];
    if (c == '\\') i++;
    else if (in_set) in_set = c != ']';
    else if (c == '[') {
      in_set = 1;
      i += i + 1 < s->bytes && s->text[i + 1] == '^';
      i += i + 1 < s->bytes && s->text[i + 1] == ']'; /* a member */
    }
    else if (c == '(') depth++;
    else if (c == ')') depth -= depth > 0;
    else if (c == '|' && depth == 0) return true;
  }
  return false;
}

status regex_add(program *p, const regex_source *source) {
  parser r = {.p = p, .source = source};
  const bool starts = takes(&r, '^');
  if (source->is_found && !starts) add_anything(&r);
  TRY(take_alternatives(&r));
  const bool ends = is_last_anchor(&r);
  r.at += ends;
  if (!is_end(&r)) return wrong(&r, "( before )");
  if (source->is_found && (starts || ends) && has_alternatives(source))
    return FAIL(ERR_UNSUPPORTED, "regex: ^ or $ next to alternatives is not offered; hint: put the alternatives in parentheses");
  if (source->is_found && !ends) add_anything(&r);
  return OK;
}

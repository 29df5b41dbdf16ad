/* split_pattern.c - Oniguruma split pattern in, equivalent PCRE2 pattern out (see split_pattern.h for the grammar and why).
 *
 * Must not know what the patterns split, nor call PCRE2: text in, text out. One left-to-right pass with a stack of open groups. The tables
 * at the top are checked code point by code point in tests/unit/text/test_pretokenize.c against memberships recorded from the tokenizers
 * library. */
#include "text/split_pattern.h"
#include "base/utf8.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define GROUP_DEPTH_MAX 16
#define REPEAT_MAX 1000u

/* === Unicode ================================================================================================= */

typedef struct range {
  uint32_t first, last;
} range;

/* Code points in the category in Unicode 16 but not in Unicode 14. No code point left a category. */
static const range lu_added[] = {
  {0x1C89, 0x1C89}, {0xA7CB, 0xA7CC}, {0xA7DA, 0xA7DA}, {0xA7DC, 0xA7DC}, {0x10D50, 0x10D65}};
static const range ll_added[] = {
  {0x1C8A, 0x1C8A}, {0xA7CD, 0xA7CD}, {0xA7DB, 0xA7DB}, {0x10D70, 0x10D85}, {0x1DF25, 0x1DF2A}};
static const range lm_added[] = {
  {0x10D4E, 0x10D4E}, {0x10D6F, 0x10D6F}, {0x16D40, 0x16D42}, {0x16D6B, 0x16D6C}, {0x1E030, 0x1E06D}, {0x1E4EB, 0x1E4EB}};
static const range lo_added[] = {
  {0x105C0, 0x105F3}, {0x10D4A, 0x10D4D}, {0x10D4F, 0x10D4F}, {0x10EC2, 0x10EC4}, {0x1123F, 0x11240}, {0x11380, 0x11389},
  {0x1138B, 0x1138B}, {0x1138E, 0x1138E}, {0x11390, 0x113B5}, {0x113B7, 0x113B7}, {0x113D1, 0x113D1}, {0x113D3, 0x113D3},
  {0x11BC0, 0x11BE0}, {0x11F02, 0x11F02}, {0x11F04, 0x11F10}, {0x11F12, 0x11F33}, {0x1342F, 0x1342F}, {0x13441, 0x13446},
  {0x13460, 0x143FA}, {0x16100, 0x1611D}, {0x16D43, 0x16D6A}, {0x18CFF, 0x18CFF}, {0x1B132, 0x1B132}, {0x1B155, 0x1B155},
  {0x1E4D0, 0x1E4EA}, {0x1E5D0, 0x1E5ED}, {0x1E5F0, 0x1E5F0}, {0x2B739, 0x2B739}, {0x2EBF0, 0x2EE5D}, {0x31350, 0x323AF}};
static const range m_added[] = {
  {0x897, 0x897}, {0xCF3, 0xCF3}, {0xECE, 0xECE}, {0x10D69, 0x10D6D}, {0x10EFC, 0x10EFF}, {0x11241, 0x11241}, {0x113B8, 0x113C0},
  {0x113C2, 0x113C2}, {0x113C5, 0x113C5}, {0x113C7, 0x113CA}, {0x113CC, 0x113D0}, {0x113D2, 0x113D2}, {0x113E1, 0x113E2},
  {0x11F00, 0x11F01}, {0x11F03, 0x11F03}, {0x11F34, 0x11F3A}, {0x11F3E, 0x11F42}, {0x11F5A, 0x11F5A}, {0x13440, 0x13440},
  {0x13447, 0x13455}, {0x1611E, 0x1612F}, {0x1E08F, 0x1E08F}, {0x1E4EC, 0x1E4EF}, {0x1E5EE, 0x1E5EF}};
static const range n_added[] = {
  {0x10D40, 0x10D49}, {0x116D0, 0x116E3}, {0x11BF0, 0x11BF9}, {0x11F50, 0x11F59}, {0x16130, 0x16139}, {0x16D70, 0x16D79},
  {0x1CCF0, 0x1CCF9}, {0x1D2C0, 0x1D2D3}, {0x1E4F0, 0x1E4F9}, {0x1E5F1, 0x1E5FA}};
static const range nd_added[] = {
  {0x10D40, 0x10D49}, {0x116D0, 0x116E3}, {0x11BF0, 0x11BF9}, {0x11F50, 0x11F59}, {0x16130, 0x16139}, {0x16D70, 0x16D79},
  {0x1CCF0, 0x1CCF9}, {0x1E4F0, 0x1E4F9}, {0x1E5F1, 0x1E5FA}};
static const range p_added[] = {
  {0x1B4E, 0x1B4F}, {0x1B7F, 0x1B7F}, {0x10D6E, 0x10D6E}, {0x113D4, 0x113D5}, {0x113D7, 0x113D8}, {0x11B00, 0x11B09},
  {0x11BE1, 0x11BE1}, {0x11F43, 0x11F4F}, {0x16D6D, 0x16D6F}, {0x1E5FF, 0x1E5FF}};
static const range s_added[] = {
  {0x2427, 0x2429}, {0x2FFC, 0x2FFF}, {0x31E4, 0x31E5}, {0x31EF, 0x31EF}, {0x10D8E, 0x10D8F}, {0x1CC00, 0x1CCEF},
  {0x1CD00, 0x1CEB3}, {0x1F6DC, 0x1F6DC}, {0x1F774, 0x1F776}, {0x1F77B, 0x1F77F}, {0x1F7D9, 0x1F7D9}, {0x1F8B2, 0x1F8BB},
  {0x1F8C0, 0x1F8C1}, {0x1FA75, 0x1FA77}, {0x1FA87, 0x1FA89}, {0x1FA8F, 0x1FA8F}, {0x1FAAD, 0x1FAAF}, {0x1FABB, 0x1FABF},
  {0x1FAC6, 0x1FAC6}, {0x1FACE, 0x1FACF}, {0x1FADA, 0x1FADC}, {0x1FADF, 0x1FADF}, {0x1FAE8, 0x1FAE9}, {0x1FAF7, 0x1FAF8},
  {0x1FBCB, 0x1FBEF}};
/* All of script Han: ranges are tested faster than a script property. */
static const range han_ranges[] = {
  {0x2E80, 0x2E99}, {0x2E9B, 0x2EF3}, {0x2F00, 0x2FD5}, {0x3005, 0x3005}, {0x3007, 0x3007}, {0x3021, 0x3029}, {0x3038, 0x303B},
  {0x3400, 0x4DBF}, {0x4E00, 0x9FFF}, {0xF900, 0xFA6D}, {0xFA70, 0xFAD9}, {0x16FE2, 0x16FE3}, {0x16FF0, 0x16FF1},
  {0x20000, 0x2A6DF}, {0x2A700, 0x2B739}, {0x2B740, 0x2B81D}, {0x2B820, 0x2CEA1}, {0x2CEB0, 0x2EBE0}, {0x2EBF0, 0x2EE5D},
  {0x2F800, 0x2FA1D}, {0x30000, 0x3134A}, {0x31350, 0x323AF}};
static const range n_added_in_17[] = {{0x11DE0, 0x11DE9}, {0x16FF4, 0x16FF6}};

static const range space_ranges[] = {
  {0x9, 0xD}, {0x20, 0x20}, {0x85, 0x85}, {0xA0, 0xA0}, {0x1680, 0x1680}, {0x2000, 0x200A},
  {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}};
static const range not_space_ranges[] = {
  {0x0, 0x8}, {0xE, 0x1F}, {0x21, 0x84}, {0x86, 0x9F}, {0xA1, 0x167F}, {0x1681, 0x1FFF}, {0x200B, 0x2027},
  {0x202A, 0x202E}, {0x2030, 0x205E}, {0x2060, 0x2FFF}, {0x3001, 0xD7FF}, {0xE000, 0x10FFFF}};

typedef struct property {
  const char *name;    /* as in the pattern */
  const char *written; /* as in PCRE2 */
  const range *added;
  size_t added_count;
  const char *parts;   /* for a union instead: the names of its parts, separated by one space */
} property;

static const property properties[] = {
  {"L", NULL, NULL, 0, "Lu Ll Lt Lm Lo"},
  {"Lu", "\\p{Lu}", lu_added, ARRAY_LEN(lu_added), NULL},
  {"Ll", "\\p{Ll}", ll_added, ARRAY_LEN(ll_added), NULL},
  {"Lt", "\\p{Lt}", NULL, 0, NULL},
  {"Lm", "\\p{Lm}", lm_added, ARRAY_LEN(lm_added), NULL},
  {"Lo", "\\p{Lo}", lo_added, ARRAY_LEN(lo_added), NULL},
  {"M", "\\p{M}", m_added, ARRAY_LEN(m_added), NULL},
  {"N", "\\p{N}", n_added, ARRAY_LEN(n_added), NULL},
  {"Nd", "\\p{Nd}", nd_added, ARRAY_LEN(nd_added), NULL},
  {"P", "\\p{P}", p_added, ARRAY_LEN(p_added), NULL},
  {"S", "\\p{S}", s_added, ARRAY_LEN(s_added), NULL},
  {"Z", "\\p{Z}", NULL, 0, NULL},
  {"Han", "", han_ranges, ARRAY_LEN(han_ranges), NULL},
};

/* === The pass ================================================================================================ */

typedef enum item {
  ITEM_NONE,   /* nothing precedes that could be repeated */
  ITEM_SINGLE, /* one code point or class */
  ITEM_GROUP
} item;

typedef struct reader {
  const uint8_t *source;
  size_t size, at;
  char *output;
  size_t output_max, used;
  item last;
  uint32_t depth;
  bool is_lookaround[GROUP_DEPTH_MAX];
  split_program *program;
} reader;

_Static_assert(GROUP_DEPTH_MAX + 2 <= SPLIT_PROGRAM_DEPTH_MAX, "the program has a group around the pattern, and (?i:..) in the last");

static status refuse(const reader *r, size_t at, const char *what) {
  return FAIL(ERR_UNSUPPORTED, "split pattern: %s at byte %zu of \"%.*s\" is not supported; hint: see the grammar in split_pattern.h",
              what, at, (int)(r->size > 200 ? 200 : r->size), (const char *)r->source);
}

static __attribute__((format(printf, 2, 3))) status put(reader *r, const char *format, ...) {
  va_list args;
  va_start(args, format);
  int wrote = vsnprintf(r->output + r->used, r->output_max - r->used, format, args);
  va_end(args);
  ASSERT(wrote >= 0);
  if ((size_t)wrote >= r->output_max - r->used)
    return FAIL(ERR_LIMIT, "split pattern: expected at most %zu bytes when written out, found more", r->output_max);
  r->used += (size_t)wrote;
  return OK;
}

static status put_ranges(reader *r, const range *ranges, size_t count) {
  for (size_t i = 0; i < count; i++) TRY(put(r, "\\x{%X}-\\x{%X}", (unsigned)ranges[i].first, (unsigned)ranges[i].last));
  return OK;
}

/* Marks the text written from `start` on as one code point or class. */
static void end_single(reader *r, size_t start) {
  split_program_set(r->program, r->output, start, r->used - start, false);
  r->last = ITEM_SINGLE;
}

static const property *find_property(const char *name, size_t size) {
  for (size_t i = 0; i < ARRAY_LEN(properties); i++)
    if (strlen(properties[i].name) == size && memcmp(properties[i].name, name, size) == 0) return &properties[i];
  return NULL;
}

/* Writes a property in its form inside a class. A union is one level deep. */
static status put_property(reader *r, const property *p) {
  if (p->parts == NULL) {
    TRY(put(r, "%s", p->written));
    return put_ranges(r, p->added, p->added_count);
  }
  for (const char *name = p->parts; *name != 0;) {
    size_t size = strcspn(name, " ");
    const property *part = find_property(name, size);
    ASSERT(part != NULL);
    ASSERT(part->parts == NULL);
    TRY(put(r, "%s", part->written));
    TRY(put_ranges(r, part->added, part->added_count));
    name += size + (name[size] == ' ');
  }
  return OK;
}

static bool is_ascii_punctuation(uint8_t c) {
  return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') || (c >= '{' && c <= '~');
}

/* Reads "{Name}" after \p or \P. */
static status read_property(reader *r, size_t start, const property **out) {
  const uint8_t *end = r->at < r->size && r->source[r->at] == '{' ? memchr(r->source + r->at, '}', r->size - r->at) : NULL;
  if (end == NULL) return refuse(r, start, "a property without {name}");
  const char *name = (const char *)r->source + r->at + 1;
  size_t size = (size_t)((const char *)end - name);
  *out = find_property(name, size);
  if (*out == NULL) return refuse(r, start, "this property (known: L Lu Ll Lt Lm Lo M N Nd P S Z Han)");
  r->at += size + 2;
  return OK;
}

/* Reads one literal code point, plain or escaped. Precondition: at < size. specials: plain bytes that are not literals here. */
static status read_literal(reader *r, const char *specials, uint32_t *code_point) {
  size_t start = r->at;
  uint8_t c = r->source[r->at];
  if (c == '\\') {
    if (r->at + 1 >= r->size) return refuse(r, start, "a backslash at the end");
    c = r->source[r->at + 1];
    r->at += 2;
    if (c == 'r' || c == 'n' || c == 't') {
      *code_point = c == 'r' ? '\r' : c == 'n' ? '\n' : '\t';
      return OK;
    }
    if (!is_ascii_punctuation(c)) return refuse(r, start, "this escape");
    *code_point = c;
    return OK;
  }
  if (c == 0 || strchr(specials, c) != NULL) return refuse(r, start, "this character, unescaped here,");
  int length = utf8_scan(r->source + r->at, r->size - r->at);
  if (length <= 0) return refuse(r, start, "text that is not UTF-8");
  *code_point = utf8_code_point(r->source + r->at, length);
  r->at += (size_t)length;
  return OK;
}

/* One item of a class: a set, a literal, or a range of literals. */
static status translate_class_item(reader *r, bool is_first) {
  size_t start = r->at;
  if (r->source[r->at] == '\\' && r->at + 1 < r->size && strchr("sSp", r->source[r->at + 1]) != NULL && r->source[r->at + 1] != 0) {
    uint8_t kind = r->source[r->at + 1];
    r->at += 2;
    if (kind == 's') TRY(put_ranges(r, space_ranges, ARRAY_LEN(space_ranges)));
    if (kind == 'S') TRY(put_ranges(r, not_space_ranges, ARRAY_LEN(not_space_ranges)));
    if (kind == 'p') {
      const property *p = NULL;
      TRY(read_property(r, start, &p));
      TRY(put_property(r, p));
    }
    if (r->at + 1 < r->size && r->source[r->at] == '-' && r->source[r->at + 1] != ']')
      return refuse(r, r->at, "a range from a set");
    return OK;
  }
  if (r->source[r->at] == '-' && !is_first && r->at + 1 < r->size && r->source[r->at + 1] != ']')
    return refuse(r, start, "a plain '-' inside a class");
  uint32_t first = 0, last = 0;
  TRY(read_literal(r, "[", &first));
  if (r->at + 1 >= r->size || r->source[r->at] != '-' || r->source[r->at + 1] == ']') return put(r, "\\x{%X}", (unsigned)first);
  r->at++;
  TRY(read_literal(r, "[", &last));
  if (last < first) return refuse(r, start, "a range that runs backwards");
  return put(r, "\\x{%X}-\\x{%X}", (unsigned)first, (unsigned)last);
}

static bool is_next(const reader *r, const char *text) {
  size_t size = strlen(text);
  return r->size - r->at >= size && memcmp(r->source + r->at, text, size) == 0;
}

/* Handles "&&[^\\p{..}]" before the end of a class that was written from class_at on. PCRE2 has no intersection, so a lookbehind tests what
 * the class matched. */
static status translate_intersection(reader *r, size_t class_at) {
  static const char behind[] = "](?<![", group[] = "(?:";
  size_t start = r->at, class_bytes = r->used - class_at;
  const property *p = NULL;
  if (!is_next(r, "&&[^\\p{")) return refuse(r, start, "'&&' before anything but [^\\p{..}]");
  r->at += strlen("&&[^\\p");
  TRY(read_property(r, start, &p));
  if (!is_next(r, "]]")) return refuse(r, start, "'&&' before anything but [^\\p{..}]");
  r->at += 2;
  TRY(put(r, "%s", group));
  memmove(r->output + class_at + strlen(group), r->output + class_at, class_bytes);
  memcpy(r->output + class_at, group, strlen(group));
  TRY(put(r, "%s", behind));
  TRY(put_property(r, p));
  TRY(put(r, "]))"));
  end_single(r, class_at);
  return OK;
}

static status translate_class(reader *r) {
  size_t start = r->at++, class_at = r->used;
  bool negated = r->at < r->size && r->source[r->at] == '^';
  r->at += negated;
  TRY(put(r, negated ? "[^" : "["));
  if (r->at < r->size && r->source[r->at] == ']') return refuse(r, start, "an empty class");
  for (bool is_first = true; r->at < r->size && r->source[r->at] != ']'; is_first = false) {
    if (is_next(r, "&&")) return negated || is_first ? refuse(r, r->at, "'&&' here") : translate_intersection(r, class_at);
    TRY(translate_class_item(r, is_first));
  }
  if (r->at >= r->size) return refuse(r, start, "a class without its ']'");
  r->at++;
  TRY(put(r, "]"));
  end_single(r, class_at);
  return OK;
}

/* Called after "(?i:". Allows ASCII literals and | up to ")": both dialects have the same caseless equivalents for such text, each one code
 * point, except for the adjacent pairs below, which Oniguruma also folds into one ligature. */
static status translate_caseless(reader *r, size_t start) {
  static const char *const folded_pairs[] = {"ff", "fi", "fl", "ss", "st"};
  uint32_t before = 0;
  TRY(put(r, "(?i:"));
  split_program_open(r->program, SPLIT_FORK);
  while (r->at < r->size && r->source[r->at] != ')') {
    uint32_t c = 0;
    if (r->source[r->at] == '|') {
      r->at++;
      before = 0;
      TRY(put(r, "|"));
      split_program_alternative(r->program);
      continue;
    }
    TRY(read_literal(r, "()[]{}*+?.^$", &c));
    if (c >= 0x80) return refuse(r, start, "(?i:..) around anything but ASCII literals");
    uint32_t lower = c >= 'A' && c <= 'Z' ? c + 32 : c;
    for (size_t i = 0; i < ARRAY_LEN(folded_pairs); i++)
      if (before == (uint32_t)folded_pairs[i][0] && lower == (uint32_t)folded_pairs[i][1])
        return refuse(r, start, "(?i:..) around ff, fi, fl, ss or st");
    before = lower;
    size_t written_at = r->used;
    TRY(put(r, "\\x{%X}", (unsigned)c));
    split_program_set(r->program, r->output, written_at, r->used - written_at, true);
  }
  if (r->at >= r->size) return refuse(r, start, "a group without its ')'");
  r->at++;
  split_program_close(r->program);
  r->last = ITEM_GROUP;
  return put(r, ")");
}

static status open_group(reader *r) {
  size_t start = r->at, left = r->size - r->at;
  const char *p = (const char *)r->source + r->at;
  if (left >= 4 && memcmp(p, "(?i:", 4) == 0) {
    r->at += 4;
    return translate_caseless(r, start);
  }
  bool is_lookaround = left >= 3 && (memcmp(p, "(?=", 3) == 0 || memcmp(p, "(?!", 3) == 0);
  bool is_plain = left >= 3 && memcmp(p, "(?:", 3) == 0;
  if (!is_lookaround && !is_plain && left >= 2 && p[1] == '?') return refuse(r, start, "this kind of group");
  if (r->depth == GROUP_DEPTH_MAX) return refuse(r, start, "nesting deeper than 16 groups");
  r->is_lookaround[r->depth++] = is_lookaround;
  r->at += is_lookaround || is_plain ? 3 : 1;
  r->last = ITEM_NONE;
  split_program_open(r->program, !is_lookaround ? SPLIT_FORK : p[2] == '=' ? SPLIT_SEES : SPLIT_LACKS);
  return put(r, is_lookaround ? (p[2] == '=' ? "(?=" : "(?!") : "(?:");
}

static status close_group(reader *r) {
  if (r->depth == 0) return refuse(r, r->at, "a ')' without its '('");
  r->at++;
  r->last = r->is_lookaround[--r->depth] ? ITEM_NONE : ITEM_GROUP;
  split_program_close(r->program);
  return put(r, ")");
}

static status read_count(reader *r, size_t start, uint32_t *count) {
  uint32_t value = 0;
  size_t first = r->at;
  while (r->at < r->size && r->source[r->at] >= '0' && r->source[r->at] <= '9') {
    value = value * 10 + (uint32_t)(r->source[r->at++] - '0');
    if (value > REPEAT_MAX) return refuse(r, start, "a repeat count above 1000");
  }
  if (r->at == first) return refuse(r, start, "a repeat without its count");
  *count = value;
  return OK;
}

/* Handles "{n}", "{n,}" or "{n,m}". A ? or + after it means different things in the two dialects. */
static status translate_braces(reader *r) {
  size_t start = r->at++;
  uint32_t low = 0, high = 0;
  bool has_comma = false, has_high = false;
  TRY(read_count(r, start, &low));
  if (r->at < r->size && r->source[r->at] == ',') {
    r->at++;
    has_comma = true;
    has_high = r->at < r->size && r->source[r->at] != '}';
    if (has_high) TRY(read_count(r, start, &high));
  }
  if (r->at >= r->size || r->source[r->at] != '}') return refuse(r, start, "a '{' that opens no repeat count");
  r->at++;
  if (has_high && high < low) return refuse(r, start, "a repeat count that runs backwards");
  if (r->at < r->size && (r->source[r->at] == '?' || r->source[r->at] == '+')) return refuse(r, start, "{..}? or {..}+");
  split_program_repeat(r->program, low, !has_comma ? low : has_high ? high : SPLIT_PROGRAM_ENDLESS, SPLIT_GREEDY);
  if (has_high) return put(r, "{%u,%u}", (unsigned)low, (unsigned)high);
  return put(r, has_comma ? "{%u,}" : "{%u}", (unsigned)low);
}

static status translate_repeat(reader *r) {
  size_t start = r->at;
  char c = (char)r->source[r->at];
  if (r->last == ITEM_NONE) return refuse(r, start, "a repeat with nothing to repeat");
  if (r->last == ITEM_GROUP && c != '?') return refuse(r, start, "a group repeated by anything but '?'");
  r->last = ITEM_NONE;
  if (c == '{') return translate_braces(r);
  r->at++;
  TRY(put(r, "%c", c));
  split_repeat kind = SPLIT_GREEDY;
  if (r->at < r->size && (r->source[r->at] == '?' || r->source[r->at] == '+')) {
    kind = r->source[r->at] == '?' ? SPLIT_LAZY : SPLIT_POSSESSIVE;
    TRY(put(r, "%c", r->source[r->at++]));
  }
  split_program_repeat(r->program, c == '+' ? 1 : 0, c == '?' ? 1 : SPLIT_PROGRAM_ENDLESS, kind);
  return OK;
}

/* Handles \s \S \p{..} \P{..} outside a class, or a literal. */
static status translate_single(reader *r) {
  size_t start = r->at, written_at = r->used;
  uint8_t kind = r->source[r->at] == '\\' && r->at + 1 < r->size ? r->source[r->at + 1] : 0;
  if (kind == 's' || kind == 'S') {
    r->at += 2;
    TRY(put(r, kind == 's' ? "[" : "[^"));
    TRY(put_ranges(r, space_ranges, ARRAY_LEN(space_ranges)));
    TRY(put(r, "]"));
  } else if (kind == 'p' || kind == 'P') {
    const property *p = NULL;
    r->at += 2;
    TRY(read_property(r, start, &p));
    TRY(put(r, kind == 'p' ? "[" : "[^"));
    TRY(put_property(r, p));
    TRY(put(r, "]"));
  } else {
    uint32_t c = 0;
    TRY(read_literal(r, "]{}.^$", &c));
    TRY(put(r, "\\x{%X}", (unsigned)c));
  }
  end_single(r, written_at);
  return OK;
}

/* Used directly, each code point of a run of white space would start a match attempt and look at the rest of the run. */
static const char trailing_space[] = "\\s+$";

static status put_trailing_space(reader *r) {
  TRY(put(r, "(?<!["));
  TRY(put_ranges(r, space_ranges, ARRAY_LEN(space_ranges)));
  TRY(put(r, "])["));
  TRY(put_ranges(r, space_ranges, ARRAY_LEN(space_ranges)));
  return put(r, "]++$");
}

static status translate(reader *r) {
  while (r->at < r->size) {
    switch (r->source[r->at]) {
      case '[': TRY(translate_class(r)); break;
      case '(': TRY(open_group(r)); break;
      case ')': TRY(close_group(r)); break;
      case '|':
        r->at++;
        r->last = ITEM_NONE;
        split_program_alternative(r->program);
        TRY(put(r, "|"));
        break;
      case '*':
      case '+':
      case '?':
      case '{': TRY(translate_repeat(r)); break;
      default: TRY(translate_single(r)); break;
    }
  }
  return r->depth == 0 ? OK : refuse(r, r->size, "a group without its ')'");
}

status split_pattern_translate(const char *source, size_t size, char *output, size_t output_max, split_program *program) {
  ASSERT(output_max > 0);
  if (size > SPLIT_PATTERN_BYTES_MAX)
    return FAIL(ERR_LIMIT, "split pattern: expected at most %u bytes, found %zu", SPLIT_PATTERN_BYTES_MAX, size);
  reader r = {.source = (const uint8_t *)source, .size = size, .output = output, .output_max = output_max, .program = program};
  output[0] = 0;
  split_program_start(program);
  if (size == strlen(trailing_space) && memcmp(source, trailing_space, size) == 0) {
    program->is_whole = false;
    return put_trailing_space(&r);
  }
  TRY(translate(&r));
  split_program_end(program);
  return OK;
}

status split_pattern_digits(bool individual, char *output, size_t output_max, split_program *program) {
  ASSERT(output_max > 0);
  reader r = {.source = (const uint8_t *)"", .output = output, .output_max = output_max, .program = program};
  split_program_start(program);
  TRY(put(&r, "["));
  TRY(put_property(&r, find_property("N", 1)));
  TRY(put_ranges(&r, n_added_in_17, ARRAY_LEN(n_added_in_17)));
  TRY(put(&r, "]"));
  end_single(&r, 0);
  if (!individual) {
    TRY(put(&r, "+"));
    split_program_repeat(program, 1, SPLIT_PROGRAM_ENDLESS, SPLIT_GREEDY);
  }
  split_program_end(program);
  return OK;
}

status split_pattern_members(const char *written, const split_program *program, char *output, size_t output_max) {
  ASSERT(program->is_whole);
  reader r = {.source = (const uint8_t *)"", .output = output, .output_max = output_max};
  for (uint32_t i = 0; i < program->set_count; i++) {
    const split_set *set = &program->sets[i];
    TRY(put(&r, set->is_caseless ? "(?=((?i:%.*s))?)" : "(?=(%.*s)?)", (int)set->bytes, written + set->at));
  }
  return OK;
}

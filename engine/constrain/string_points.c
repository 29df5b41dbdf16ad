/* string_points.c - see string_points.h. */
#include "constrain/string_points.h"
#include "base/utf8.h"
#include <string.h>

static const program_range PLAIN[] = {{0x20, 0x21}, {0x23, 0x5b}, {0x5d, PROGRAM_POINT_MAX}}; /* written as they are */
static const program_range HEX[] = {{'0', '9'}, {'A', 'F'}, {'a', 'f'}};

static void add_hex(program *p, uint32_t digits) {
  const uint32_t start = p->count;
  program_points(p, HEX, ARRAY_LEN(HEX));
  program_repeat(p, start, digits, digits);
}

/* A backslash and a letter, or \u00 and two digits. */
static void add_escaped(program *p, uint32_t point) {
  static const char POINTS[] = "\"\\\b\f\n\r\t", LETTERS[] = "\"\\bfnrt";
  const char *found = point ? strchr(POINTS, (int)point) : NULL;
  if (found) {
    program_bytes(p, (const char[]){'\\', LETTERS[found - POINTS]}, 2);
    return;
  }
  program_bytes(p, (const char[]){'\\', 'u', '0', '0', (char)('0' + point / 16)}, 5);
  const uint32_t digit = point % 16;
  const program_range digits[] = {{digit < 10 ? '0' + digit : 'A' + digit - 10, digit < 10 ? '0' + digit : 'A' + digit - 10},
                                  {'a' + digit - 10, 'a' + digit - 10}};
  program_points(p, digits, digit < 10 ? 1 : 2);
}

static bool is_plain(uint32_t point) { return point >= 0x20 && point != '"' && point != '\\'; }

void string_points_add(program *p, const program_range *ranges, uint32_t count) {
  program_choice choice = program_open(p);
  bool is_first = true;
  for (uint32_t i = 0; i < count; i++) {
    for (uint32_t k = 0; k < ARRAY_LEN(PLAIN); k++) {
      program_range part = {max_u32(ranges[i].first, PLAIN[k].first), min_u32(ranges[i].last, PLAIN[k].last)};
      if (part.first >= 0xd800 && part.first <= 0xdfff) part.first = 0xe000;
      if (part.first > part.last) continue;
      if (!is_first) program_or(p, &choice);
      program_points(p, &part, 1);
      is_first = false;
    }
    for (uint32_t point = ranges[i].first; point <= min_u32(ranges[i].last, '\\'); point++) {
      if (is_plain(point)) continue;
      if (!is_first) program_or(p, &choice);
      add_escaped(p, point);
      is_first = false;
    }
  }
  program_shut(p, &choice);
}

/* \u and four digits, two such for a code point beyond the first 65,536. */
static void add_codes(program *p) {
  static const program_range OTHERS[] = {{'0', '9'}, {'A', 'C'}, {'E', 'F'}, {'a', 'c'}, {'e', 'f'}}, D[] = {{'D', 'D'}, {'d', 'd'}};
  static const program_range LOW[] = {{'0', '7'}}, FIRST[] = {{'8', '9'}, {'A', 'B'}, {'a', 'b'}}, SECOND[] = {{'C', 'F'}, {'c', 'f'}};
  program_choice choice = program_open(p);
  program_points(p, OTHERS, ARRAY_LEN(OTHERS));
  add_hex(p, 3);
  program_or(p, &choice);
  program_points(p, D, ARRAY_LEN(D));
  program_points(p, LOW, ARRAY_LEN(LOW));
  add_hex(p, 2);
  program_or(p, &choice);
  program_points(p, D, ARRAY_LEN(D));
  program_points(p, FIRST, ARRAY_LEN(FIRST));
  add_hex(p, 2);
  program_bytes(p, "\\u", 2);
  program_points(p, D, ARRAY_LEN(D));
  program_points(p, SECOND, ARRAY_LEN(SECOND));
  add_hex(p, 2);
  program_shut(p, &choice);
}

void string_points_add_any(program *p) {
  static const program_range LETTERS[] = {{'"', '"'}, {'/', '/'}, {'\\', '\\'}, {'b', 'b'}, {'f', 'f'}, {'n', 'n'}, {'r', 'r'}, {'t', 't'}};
  program_choice choice = program_open(p);
  program_points(p, PLAIN, ARRAY_LEN(PLAIN));
  program_or(p, &choice);
  program_bytes(p, "\\", 1);
  program_choice escape = program_open(p);
  program_points(p, LETTERS, ARRAY_LEN(LETTERS));
  program_or(p, &escape);
  program_bytes(p, "u", 1);
  add_codes(p);
  program_shut(p, &escape);
  program_shut(p, &choice);
}

void string_points_text(program *p, const char *text, size_t bytes) {
  for (size_t at = 0; at < bytes;) {
    const int length = utf8_scan((const uint8_t *)text + at, bytes - at);
    ASSERT(length > 0);
    if (is_plain(utf8_code_point((const uint8_t *)text + at, length))) program_bytes(p, text + at, (size_t)length);
    else add_escaped(p, (uint8_t)text[at]);
    at += (size_t)length;
  }
}

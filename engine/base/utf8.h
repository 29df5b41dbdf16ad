/* utf8.h - scans UTF-8 as table 3-7 of The Unicode Standard defines it (no surrogates, no overlong forms).
 *
 * The tokenizer checks text with it, and the detokenizer finds the bytes that become U+FFFD. Written by hand because libc's mbrtowc depends
 * on the locale and does not tell maximal ill-formed parts. Header only, libc only, no state. Read next: tokenizer.h. */
#ifndef VERBATIM_UTF8_H
#define VERBATIM_UTF8_H
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Looks at the sequence that starts at p. Returns
 *   1..4    a whole code point of that many bytes;
 *   0       size bytes are a proper prefix of a code point (or size is 0);
 *   -1..-3  ill-formed: that many bytes are the "maximal subpart" which one U+FFFD replaces. */
static inline int utf8_scan(const uint8_t *p, size_t size) {
  if (size == 0) return 0;
  if (p[0] < 0x80) return 1;
  int need = p[0] < 0xC2 ? 0 : p[0] < 0xE0 ? 2 : p[0] < 0xF0 ? 3 : p[0] < 0xF5 ? 4 : 0;
  if (need == 0) return -1;
  uint8_t low = p[0] == 0xE0 ? 0xA0 : p[0] == 0xF0 ? 0x90 : 0x80;
  uint8_t high = p[0] == 0xED ? 0x9F : p[0] == 0xF4 ? 0x8F : 0xBF;
  for (int i = 1; i < need; i++) {
    if ((size_t)i >= size) return 0;
    if (p[i] < low || p[i] > high) return -i;
    low = 0x80;
    high = 0xBF;
  }
  return need;
}

/* utf8_scan for the common cases, from the first bytes in little-endian order: 2 or 3 for a complete code point of that size, else 0. */
static inline int utf8_scan_quickly(uint64_t first) {
  if ((first & 0xC0E0) == 0x80C0) return (first & 0x1E) != 0 ? 2 : 0;
  uint64_t low = first & 0x200F; /* 0xE0 before a byte below 0xA0, 0xED before one that is not */
  return (first & 0xC0C0F0) == 0x8080E0 && low != 0 && low != 0x200D ? 3 : 0;
}

/* Offset of the first byte that is not part of a whole code point; size when all of p is well formed. */
static inline size_t utf8_valid_bytes(const uint8_t *p, size_t size) {
  size_t at = 0;
  while (at < size) {
    uint64_t eight = 0x80;
    if (size - at >= sizeof eight) {
      memcpy(&eight, p + at, sizeof eight);
      int step = (eight & 0x8080808080808080u) == 0 ? 8 : utf8_scan_quickly(eight);
      if (step > 0) {
        at += (size_t)step;
        continue;
      }
    }
    int step = utf8_scan(p + at, size - at);
    if (step <= 0) return at;
    at += (size_t)step;
  }
  return at;
}

/* The code point of the whole sequence at p. Precondition: utf8_scan(p, ...) returned length in 1..4. */
static inline uint32_t utf8_code_point(const uint8_t *p, int length) {
  if (length == 1) return p[0];
  if (length == 2) return ((uint32_t)(p[0] & 0x1F) << 6) | (p[1] & 0x3Fu);
  if (length == 3) return ((uint32_t)(p[0] & 0x0F) << 12) | ((uint32_t)(p[1] & 0x3F) << 6) | (p[2] & 0x3Fu);
  return ((uint32_t)(p[0] & 0x07) << 18) | ((uint32_t)(p[1] & 0x3F) << 12) | ((uint32_t)(p[2] & 0x3F) << 6) | (p[3] & 0x3Fu);
}

/* Unicode White_Space, the 25 code points that do not change between versions: what "\s" means in every split pattern. */
static inline int utf8_is_space(uint32_t c) {
  return (c >= 0x9 && c <= 0xD) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) ||
         c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

#endif

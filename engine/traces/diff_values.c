/* diff_values.c - see diff_values.h. */
#include "traces/diff_values.h"
#include <math.h>
#include <string.h>

uint32_t diff_values_bits(uint32_t type, const void *row, uint32_t index) {
  uint32_t bits = 0;
  if (type == VERBATIM_POINT_BF16) memcpy(&bits, (const uint8_t *)row + 2 * (size_t)index, 2);
  else memcpy(&bits, (const uint8_t *)row + 4 * (size_t)index, 4);
  return bits;
}

double diff_values_number(uint32_t type, uint32_t bits) {
  float value;
  if (type == VERBATIM_POINT_U32) return bits;
  if (type == VERBATIM_POINT_BF16) bits <<= 16;
  memcpy(&value, &bits, sizeof value);
  return value;
}

/* A number's rank among all numbers of its type: floating-point numbers of one sign are ordered like their bits. */
static int64_t place_of(uint32_t type, uint32_t bits) {
  uint32_t sign = type == VERBATIM_POINT_BF16 ? 0x8000u : 0x80000000u;
  return bits & sign ? -(int64_t)(bits & ~sign) : (int64_t)bits;
}

bool diff_values_ulps(uint32_t type, uint32_t a, uint32_t b, uint64_t *ulps) {
  if (type == VERBATIM_POINT_U32 || isnan(diff_values_number(type, a)) || isnan(diff_values_number(type, b))) return false;
  int64_t distance = place_of(type, a) - place_of(type, b);
  *ulps = (uint64_t)(distance < 0 ? -distance : distance);
  return true;
}

diff_values diff_values_of(uint32_t type, uint32_t count, const void *a, const void *b) {
  diff_values found = {.type = type, .count = count};
  for (uint32_t i = 0; i < count; i++) {
    uint32_t x = diff_values_bits(type, a, i), y = diff_values_bits(type, b, i);
    uint64_t ulps = 0;
    if (x == y) continue;
    if (found.differ_count++ == 0) found.index = i, found.a = x, found.b = y;
    if (diff_values_ulps(type, x, y, &ulps) && ulps > found.most_ulps) found.most_ulps = ulps;
  }
  return found;
}

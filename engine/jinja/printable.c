/* jinja/printable.c - see jinja/printable.h. */
#include "jinja/printable.h"
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

void jinja_printable_close(jinja_printable *self) {
  pcre2_match_data_free(self->match);
  pcre2_code_free(self->pattern);
  *self = (jinja_printable){0};
}

status jinja_printable_ask(jinja_printable *self, uint32_t code, bool *out) {
  *out = code >= 0x20 && code < 0x7f;
  if (code < 0xa1) return OK;
  uint8_t bytes[4];
  size_t count = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
  for (size_t i = count; i-- > 1; code >>= 6) bytes[i] = (uint8_t)(0x80 | (code & 0x3F));
  bytes[0] = (uint8_t)(count == 2 ? 0xC0 | code : count == 3 ? 0xE0 | code : 0xF0 | code);
  int error = 0;
  PCRE2_SIZE offset = 0;
  if (!self->pattern)
    self->pattern = pcre2_compile((PCRE2_SPTR) "[\\p{C}\\p{Z}]", PCRE2_ZERO_TERMINATED, PCRE2_UTF, &error, &offset, NULL);
  if (!self->match) self->match = pcre2_match_data_create(1, NULL);
  if (!self->pattern || !self->match) return FAIL(ERR_LIMIT, "chat template: no memory");
  *out = pcre2_match(self->pattern, bytes, count, 0, PCRE2_ANCHORED | PCRE2_NO_UTF_CHECK, self->match, NULL) == PCRE2_ERROR_NOMATCH;
  return OK;
}

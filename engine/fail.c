/* fail.c - the one recorded error of a process (see base.h). No allocation; usable from any thread. */
#include "base.h"
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static atomic_flag recorded = ATOMIC_FLAG_INIT;
static char text[FAIL_TEXT_MAX];
static char where[128];

status fail_record(status code, const char *file, int line, const char *format, ...) {
  ASSERT(code < 0);
  if (atomic_flag_test_and_set(&recorded)) return code;
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  for (char *c = text; *c; c++) /* what is quoted may come from a hostile file, and a terminal may read it */
    if (((unsigned char)*c < 0x20 && *c != '\n') || *c == 0x7f) *c = '?';
  snprintf(where, sizeof where, "%s:%d", file, line);
  return code;
}

void fail_clear(void) {
  text[0] = 0;
  where[0] = 0;
  atomic_flag_clear(&recorded);
}

const char *fail_text(void) { return text; }
const char *fail_where(void) { return where; }

int fail_exit_code(status s) { return s == OK ? 0 : 1 - (int)s; }

_Noreturn void fail_assert(const char *expression, const char *file, int line) {
  fprintf(stderr, "verbatim: programmer error: %s does not hold at %s:%d\n", expression, file, line);
  abort();
}

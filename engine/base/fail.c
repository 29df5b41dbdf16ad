/* fail.c - the recorded error of each thread (see base.h). No allocation. */
#include "base/base.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Thread_local fail_cause record;

status fail_record(status code, const char *file, int line, const char *format, ...) {
  ASSERT(code < 0);
  if (record.code != OK) return code;
  va_list args;
  va_start(args, format);
  vsnprintf(record.text, sizeof record.text, format, args);
  va_end(args);
  for (char *c = record.text; *c; c++) /* a quoted text may come from a hostile file and end up on a terminal */
    if (((unsigned char)*c < 0x20 && *c != '\n') || *c == 0x7f) *c = '?';
  snprintf(record.where, sizeof record.where, "%s:%d", file, line);
  record.code = code;
  return code;
}

void fail_clear(void) {
  record.code = OK;
  record.text[0] = 0;
  record.where[0] = 0;
}

void fail_drop_hint(void) {
  char *hint = strstr(record.text, "hint: ");
  while (hint && hint > record.text && strchr(" ;,", hint[-1])) hint--;
  if (hint) *hint = 0;
}

void fail_take(fail_cause *out) {
  *out = record;
  fail_clear();
}

status fail_give(const fail_cause *cause) {
  if (record.code == OK) record = *cause;
  return cause->code;
}

/* Whether the text names the file: "name: ...", "name/below: ...", and not a word that happens to be equal. */
static bool has_name(const char *text, const char *name) {
  const size_t bytes = strlen(name);
  if (bytes == 0) return true;
  for (const char *at = text; (at = strstr(at, name)) != NULL; at++)
    if ((at == text || at[-1] == ' ' || at[-1] == '"') && strchr(":/\"", at[bytes]) && at[bytes]) return true;
  return false;
}

void fail_prefix(const char *name) {
  if (record.code == OK || has_name(record.text, name)) return;
  const fail_cause cause = record;
  fail_clear();
  (void)fail_record(cause.code, "", 0, "%s: %s", name, cause.text);
  memcpy(record.where, cause.where, sizeof record.where);
}

const char *fail_text(void) { return record.text; }
const char *fail_where(void) { return record.where; }

int fail_exit_code(status s) { return s == OK ? 0 : 1 - (int)s; }

_Noreturn void fail_assert(const char *expression, const char *file, int line) {
  fprintf(stderr, "verbatim: programmer error: %s does not hold at %s:%d\n", expression, file, line);
  abort();
}

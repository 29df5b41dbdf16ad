/* common/output.c - see common/output.h. A progress line is rewritten in place with a carriage return. */
#include "common/output.h"
#include "base/clock.h"
#include "base/whole_file.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void cli_output_quoted(const char *text) {
  putchar('"');
  for (; *text; text++) {
    unsigned char c = (unsigned char)*text;
    if (c < 0x20 || c == 0x7f || c == '"' || c == '\\') printf("\\u%04x", c);
    else putchar(c);
  }
  putchar('"');
}

void cli_output_plain(FILE *to, const char *text) {
  for (; *text; text++) putc((unsigned char)*text < 0x20 || *text == 0x7f ? '?' : *text, to);
}

static status unwritten(void) { return FAIL(ERR_IO, "stdout: cannot be written: %s", strerror(errno)); }

status cli_output_json(json_t *object, size_t flags) {
  if (!object) return FAIL(ERR_LIMIT, "no memory for the output");
  bool is_written = json_dumpf(object, stdout, flags) == 0 && putchar('\n') != EOF;
  json_decref(object);
  return is_written ? OK : unwritten();
}

status cli_output_file(const char *path, json_t *object, size_t flags) {
  char *text = object ? json_dumps(object, flags) : NULL;
  size_t count = text ? strlen(text) : 0;
  json_decref(object);
  if (!text) return FAIL(ERR_LIMIT, "%s: no memory", path);
  text[count] = '\n'; /* in place of the NUL */
  status result = whole_file_write(path, text, count + 1);
  free(text);
  return result;
}

status cli_output_flush(void) { return fflush(stdout) == 0 && !ferror(stdout) ? OK : unwritten(); }

/* === Progress =============================================================================================================== */

/* The final update is shown only if earlier ones were, and once. */
static bool is_due(cli_output_progress *self, bool last) {
  double now = clock_seconds();
  if (!isatty(STDERR_FILENO) || (last ? !self->is_open : now - self->shown_at < CLI_OUTPUT_PROGRESS_SECONDS)) return false;
  self->shown_at = now;
  self->is_open = true;
  return true;
}

void cli_output_progress_bytes(cli_output_progress *self, const char *what, uint64_t done, uint64_t total) {
  if (!is_due(self, done == total)) return;
  fprintf(stderr, "\r%s: %" PRIu64 "/%" PRIu64 " MB", what, done / 1000000, total / 1000000);
  if (done == total) cli_output_progress_end(self);
}

void cli_output_progress_count(cli_output_progress *self, const char *what, uint64_t done, uint64_t total) {
  if (!is_due(self, done == total)) return;
  fprintf(stderr, "\r%" PRIu64 "/%" PRIu64 " %s", done, total, what);
  if (done == total) cli_output_progress_end(self);
}

void cli_output_progress_end(cli_output_progress *self) {
  if (self->is_open) fputc('\n', stderr);
  self->is_open = false;
}

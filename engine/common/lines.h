/* common/lines.h - reads lines of a file or of stdin, one at a time, up to a maximum length.
 *
 * Knows nothing of what a line contains. Read next: jsonl/json_line.h. */
#ifndef VERBATIM_CLI_LINES_H
#define VERBATIM_CLI_LINES_H
#include "base/base.h"
#include <stdio.h>

/* Receives one line without its line ending (LF or CR LF), NUL-terminated; number counts from 1. */
typedef status (*cli_lines_taker)(void *context, char *line, size_t bytes, uint32_t number);

typedef struct cli_lines_line { /* zeroed: no memory; freed by the caller */
  char *text;   /* without its line ending, NUL-terminated */
  size_t room, bytes;
  bool is_end;  /* there is no further line */
} cli_lines_line;

/* Reads the next line. ERR_IO, ERR_LIMIT: more than JSON_LINE_BYTES_MAX bytes. */
status cli_lines_next(FILE *file, cli_lines_line *line);

/* Passes every non-empty line to `take`. path "-" is stdin. ERR_IO, ERR_LIMIT for a line of more than JSON_LINE_BYTES_MAX bytes, or the
 * error that `take` returned. */
status cli_lines_read(const char *path, cli_lines_taker take, void *context);

#endif

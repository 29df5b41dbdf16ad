/* common/output.h - what the subcommands share of writing to stdout and of progress on stderr.
 *
 * What comes from a file may hold anything: a terminal gets no control characters of it. */
#ifndef VERBATIM_CLI_OUTPUT_H
#define VERBATIM_CLI_OUTPUT_H
#include "base/base.h"
#include <jansson.h>
#include <stdio.h>

#define CLI_OUTPUT_PROGRESS_SECONDS 0.5 /* on a terminal */

/* The text in double quotes; control characters, quotes and backslashes as \u00xx. */
void cli_output_quoted(const char *text);

/* The text as it is, but for control characters, each of which is "?": for messages. */
void cli_output_plain(FILE *to, const char *text);

/* One object and a line's end, with jansson's flags; takes the object over. Null: ERR_LIMIT. ERR_IO. */
status cli_output_json(json_t *object, size_t flags);

/* All that was printed is written. ERR_IO. */
status cli_output_flush(void);

/* Zeroed: no line is begun. */
typedef struct cli_output_progress {
  double shown_at; /* seconds */
  bool is_open;    /* a line is begun */
} cli_output_progress;

/* "<what>: 3/10 MB" and "3/10 <what>", on a terminal and when a line is due; the last one ends the line where there is one. */
void cli_output_progress_bytes(cli_output_progress *self, const char *what, uint64_t done, uint64_t total);
void cli_output_progress_count(cli_output_progress *self, const char *what, uint64_t done, uint64_t total);

/* Ends the line where there is one: before other words. */
void cli_output_progress_end(cli_output_progress *self);

#endif

/* common/output.h - writing to stdout, and progress lines on stderr, for all subcommands.
 *
 * Text from a file may contain anything; control characters never reach a terminal. */
#ifndef VERBATIM_CLI_OUTPUT_H
#define VERBATIM_CLI_OUTPUT_H
#include "base/base.h"
#include <jansson.h>
#include <stdio.h>

#define CLI_OUTPUT_PROGRESS_SECONDS 0.5 /* on a terminal */

/* The text in double quotes; control characters, quotes and backslashes become \u00xx. */
void cli_output_quoted(const char *text);

/* The text with each control character replaced by "?": for messages. */
void cli_output_plain(FILE *to, const char *text);

/* Prints one object and a line feed, with jansson's flags; takes ownership of it. NULL: ERR_LIMIT. ERR_IO. */
status cli_output_json(json_t *object, size_t flags);

/* Writes one object and a line feed to a file, whole or not at all; takes ownership of it. NULL: ERR_LIMIT. ERR_IO. */
status cli_output_file(const char *path, json_t *object, size_t flags);

/* Checks that everything printed was written. ERR_IO. */
status cli_output_flush(void);

/* Zeroed: no line is open. */
typedef struct cli_output_progress {
  double shown_at; /* seconds */
  bool is_open;    /* a line has been started */
} cli_output_progress;

/* Show "<what>: 3/10 MB" and "3/10 <what>" on a terminal when an update is due; the last update ends the line if one is open. */
void cli_output_progress_bytes(cli_output_progress *self, const char *what, uint64_t done, uint64_t total);
void cli_output_progress_count(cli_output_progress *self, const char *what, uint64_t done, uint64_t total);

/* Ends the line if one is open; call it before other output. */
void cli_output_progress_end(cli_output_progress *self);

#endif

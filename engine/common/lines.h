/* common/lines.h - lines of a file or of stdin, one at a time, however long somebody makes them. */
#ifndef VERBATIM_CLI_LINES_H
#define VERBATIM_CLI_LINES_H
#include "base/base.h"

/* Takes one line without its end (LF or CR LF), with a NUL behind it; number counts from 1. */
typedef status (*cli_lines_taker)(void *context, char *line, size_t bytes, uint32_t number);

/* Hands over every line that is not empty. path "-" is stdin. ERR_IO, ERR_LIMIT for a line of more than JSON_LINE_BYTES_MAX bytes, or
 * what the taker returned. */
status cli_lines_read(const char *path, cli_lines_taker take, void *context);

#endif

/* common/lines.c - see common/lines.h. The buffer doubles until the limit. */
#include "common/lines.h"
#include "base/input_file.h"
#include "jsonl/json_line.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Reads the next line with its ending and room for a NUL; *bytes is 0 at the end of the file. Not getline, which would allocate without a
 * limit. */
static status read_line(FILE *file, char **line, size_t *room, size_t *bytes) {
  int c = 0;
  for (*bytes = 0; c != '\n' && (c = getc_unlocked(file)) != EOF; (*line)[(*bytes)++] = (char)c) {
    if (*bytes > JSON_LINE_BYTES_MAX) return FAIL(ERR_LIMIT, "prompts: a line has more than %u bytes", JSON_LINE_BYTES_MAX);
    if (*bytes + 2 <= *room) continue;
    char *grown = realloc(*line, 2 * *room + 4096);
    if (!grown) return FAIL(ERR_LIMIT, "prompts: no memory");
    *line = grown;
    *room = 2 * *room + 4096;
  }
  return OK;
}

status cli_lines_next(FILE *file, cli_lines_line *line) {
  TRY(read_line(file, &line->text, &line->room, &line->bytes));
  line->is_end = line->bytes == 0;
  if (ferror(file)) return FAIL(ERR_IO, "the input cannot be read: %s", strerror(errno));
  if (line->is_end) return OK;
  if (line->text[line->bytes - 1] == '\n') line->bytes--;
  if (line->bytes && line->text[line->bytes - 1] == '\r') line->bytes--;
  line->text[line->bytes] = 0;
  return OK;
}

static status hand_over(char *line, size_t bytes, uint32_t number, cli_lines_taker take, void *context) {
  if (bytes && line[bytes - 1] == '\n') bytes--;
  if (bytes && line[bytes - 1] == '\r') bytes--;
  if (bytes == 0) return OK;
  line[bytes] = 0;
  return take(context, line, bytes, number);
}

status cli_lines_read(const char *path, cli_lines_taker take, void *context) {
  bool standard = strcmp(path, "-") == 0;
  FILE *file = stdin;
  if (!standard) TRY(input_file_open_stream(path, INPUT_ITEMS, &file));
  char *line = NULL;
  size_t room = 0, bytes = 0;
  status result = OK;
  uint32_t number = 0;
  do {
    result = read_line(file, &line, &room, &bytes);
    if (result == OK && bytes) result = hand_over(line, bytes, ++number, take, context);
  } while (result == OK && bytes);
  if (result == OK && ferror(file)) result = FAIL(ERR_IO, "%s: cannot be read: %s", path, strerror(errno));
  free(line);
  if (!standard) fclose(file);
  return result;
}

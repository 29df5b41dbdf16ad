/* eval/run/progress.c - see eval/run/progress.h. The files are read once, side by side, with a running digest of each. */
#include "eval/run/progress.h"
#include "base/whole_file.h"
#include <errno.h>
#include <inttypes.h>
#include <string.h>

void eval_progress_start(eval_progress *self) {
  *self = (eval_progress){0};
  digest_start(&self->results);
}

/* The line for the next item, once `self` has the files' sizes. Returns its bytes. */
static size_t make_line(const eval_progress *self, const digest_state *receipt, char line[EVAL_PROGRESS_LINE_BYTES_MAX], digest *out) {
  char text[DIGEST_TEXT_BYTES];
  const digest parts[] = {self->line, digest_end(&self->results), digest_end(receipt)};
  const uint64_t sizes[] = {self->results_bytes, self->receipt_bytes};
  digest_state whole;
  digest_start(&whole);
  digest_add(&whole, parts, sizeof parts);
  digest_add(&whole, sizes, sizeof sizes);
  *out = digest_end(&whole);
  return (size_t)snprintf(line, EVAL_PROGRESS_LINE_BYTES_MAX, "%" PRIu64 " %" PRIu64 " %s\n", sizes[0], sizes[1],
                          digest_text(out->bytes, text));
}

static void take_item(eval_progress *self, const digest *line, size_t line_bytes) {
  self->line = *line;
  self->own_bytes += line_bytes;
  self->items++;
}

status eval_progress_add(eval_progress *self, FILE *file, const char *path, const char *result, size_t result_bytes,
                         const digest_state *receipt, uint64_t receipt_bytes) {
  char line[EVAL_PROGRESS_LINE_BYTES_MAX];
  digest of_line;
  digest_add(&self->results, result, result_bytes);
  self->results_bytes += result_bytes;
  self->receipt_bytes = receipt_bytes;
  size_t bytes = make_line(self, receipt, line, &of_line);
  TRY(whole_file_append(fileno(file), path, line, bytes));
  take_item(self, &of_line, bytes);
  return OK;
}

/* === Reading ================================================================================================================ */

/* Digests the file's bytes from `from` to `to`. False: it has fewer. */
static bool digest_part(FILE *file, uint64_t from, uint64_t to, digest_state *state) {
  char bytes[1 << 14];
  for (size_t count; from < to; from += count) {
    count = fread(bytes, 1, (size_t)min_u64(to - from, sizeof bytes), file);
    if (count == 0) return false;
    digest_add(state, bytes, count);
  }
  return true;
}

/* Whether the line holds; `self` and the digest are those after it. */
static bool holds(eval_progress *self, const char *line, FILE *results, FILE *receipt, digest_state *of_receipt) {
  uint64_t results_bytes, receipt_bytes;
  char expected[EVAL_PROGRESS_LINE_BYTES_MAX];
  digest of_line;
  if (sscanf(line, "%19" SCNu64 " %19" SCNu64 " ", &results_bytes, &receipt_bytes) != 2) return false;
  if (results_bytes < self->results_bytes || receipt_bytes < self->receipt_bytes) return false;
  if (!digest_part(results, self->results_bytes, results_bytes, &self->results)) return false;
  if (!digest_part(receipt, self->receipt_bytes, receipt_bytes, of_receipt)) return false;
  self->results_bytes = results_bytes;
  self->receipt_bytes = receipt_bytes;
  size_t bytes = make_line(self, of_receipt, expected, &of_line);
  if (strcmp(line, expected) != 0) return false;
  take_item(self, &of_line, bytes);
  return true;
}

static void read_lines(eval_progress *self, FILE *file, FILE *results, FILE *receipt) {
  char line[EVAL_PROGRESS_LINE_BYTES_MAX];
  digest_state of_receipt;
  digest_start(&of_receipt);
  while (fgets(line, sizeof line, file)) {
    eval_progress next = *self;
    if (!strchr(line, '\n') && feof(file)) return; /* a line that was not written completely */
    self->is_damaged = !holds(&next, line, results, receipt, &of_receipt);
    if (self->is_damaged) return;
    *self = next;
  }
}

status eval_progress_read(eval_progress *self, const char *path, const char *results_path, const char *receipt_path) {
  const char *const paths[] = {path, results_path, receipt_path};
  FILE *files[ARRAY_LEN(paths)] = {NULL};
  status result = OK;
  bool all = true;
  eval_progress_start(self);
  for (size_t i = 0; i < ARRAY_LEN(paths) && result == OK; i++) {
    files[i] = fopen(paths[i], "rb");
    if (!files[i] && errno != ENOENT) result = FAIL(ERR_IO, "%s: cannot be opened: %s", paths[i], strerror(errno));
    all = all && files[i];
  }
  if (result == OK && all) read_lines(self, files[0], files[1], files[2]);
  for (size_t i = 0; i < ARRAY_LEN(paths); i++) {
    if (files[i] && ferror(files[i]) && result == OK) result = FAIL(ERR_IO, "%s: cannot be read", paths[i]);
    if (files[i]) fclose(files[i]);
  }
  return result;
}

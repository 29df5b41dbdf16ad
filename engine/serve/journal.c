/* serve/journal.c - see serve/journal.h. */
#include "serve/journal.h"
#include <inttypes.h>
#include "base/whole_file.h"

#define ROOM_BYTES (64u << 10) /* a file that has this much room again is good: more than most lines */

void serve_journal_open(serve_journal *self) {
  *self = (serve_journal){0};
  ASSERT(pthread_mutex_init(&self->mutex, NULL) == 0);
}

void serve_journal_close(serve_journal *self) { pthread_mutex_destroy(&self->mutex); }

void serve_journal_set(serve_journal *self, enum serve_journal_file which, FILE *file, const char *path) {
  self->files[which].file = file;
  self->files[which].path = path;
}

/* The caller holds the mutex. */
static void note(serve_journal *self, enum serve_journal_file which, bool is_written) {
  static const char *const until[] = {"requests end with an error", "replies are not logged", "requests are not logged"};
  const char *path = self->files[which].path;
  uint64_t lost = self->files[which].lost;
  if (!is_written && lost == 0)
    fprintf(stderr, "verbatim: %s; until it can be, %s, and /health is 503\n", fail_text(), until[which]);
  if (is_written && lost)
    fprintf(stderr, "verbatim: %s: can be written again; %" PRIu64 " lines are missing%s\n", path, lost,
            which == SERVE_JOURNAL_RECEIPT ? ", whose requests ended with an error" : "");
  self->files[which].lost = is_written ? 0 : lost + 1;
}

void serve_journal_begin(serve_journal *self) { pthread_mutex_lock(&self->mutex); }

void serve_journal_end(serve_journal *self, enum serve_journal_file which, status result) {
  note(self, which, result == OK);
  pthread_mutex_unlock(&self->mutex);
}

bool serve_journal_has(const serve_journal *self, enum serve_journal_file which) { return self->files[which].file != NULL; }

void serve_journal_log(serve_journal *self, enum serve_journal_file which, const char *line, size_t bytes) {
  FILE *file = self->files[which].file;
  if (!file) return;
  fail_clear();
  serve_journal_begin(self);
  status result = whole_file_append(fileno(file), self->files[which].path, line, bytes);
  serve_journal_end(self, which, result);
  fail_clear();
}

void serve_journal_try(serve_journal *self) {
  pthread_mutex_lock(&self->mutex);
  for (enum serve_journal_file i = 0; i < SERVE_JOURNAL_FILES; i++) {
    FILE *file = self->files[i].file;
    if (file && self->files[i].lost && whole_file_has_room(fileno(file), ROOM_BYTES)) note(self, i, true);
  }
  pthread_mutex_unlock(&self->mutex);
}

bool serve_journal_is_good(serve_journal *self) {
  pthread_mutex_lock(&self->mutex);
  bool good = true;
  for (enum serve_journal_file i = 0; i < SERVE_JOURNAL_FILES; i++) good = good && self->files[i].lost == 0;
  pthread_mutex_unlock(&self->mutex);
  return good;
}

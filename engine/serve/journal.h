/* serve/journal.h - what the server writes as it runs, the receipt and its logs: whether their lines can be written.
 *
 * The first line that cannot be written is told on stderr, and so is the first one that can be again. Meanwhile the server counts as
 * unhealthy. The receipt's lines are written by the caller, between serve_journal_begin and serve_journal_end. Every function may be called
 * from any thread. Read next: base/whole_file.h, serve/queue.h. */
#ifndef VERBATIM_SERVE_JOURNAL_H
#define VERBATIM_SERVE_JOURNAL_H
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include "base/base.h"

enum serve_journal_file {
  SERVE_JOURNAL_RECEIPT,
  SERVE_JOURNAL_LOG,      /* the access log */
  SERVE_JOURNAL_REQUESTS, /* the request log, see serve/request_log.h */
  SERVE_JOURNAL_FILES
};

typedef struct serve_journal {
  pthread_mutex_t mutex; /* protects all members below, and the position in the files */
  struct {
    FILE *file;          /* NULL: none */
    const char *path;
    uint64_t lost;       /* lines since one could be written; 0: the last one was written */
  } files[SERVE_JOURNAL_FILES];
} serve_journal;

void serve_journal_open(serve_journal *self);
void serve_journal_close(serve_journal *self); /* the files stay open: they are the caller's */

/* Before the server starts. file NULL: none. */
void serve_journal_set(serve_journal *self, enum serve_journal_file which, FILE *file, const char *path);

/* Enclose the writing of one line; result: whether it was written. The error of this thread is kept. */
void serve_journal_begin(serve_journal *self);
void serve_journal_end(serve_journal *self, enum serve_journal_file which, status result);

/* Appends a line to one of the logs, if there is such a file. */
bool serve_journal_has(const serve_journal *self, enum serve_journal_file which);
void serve_journal_log(serve_journal *self, enum serve_journal_file which, const char *line, size_t bytes);

/* Tries whether files that lost lines have room again; called now and then. */
void serve_journal_try(serve_journal *self);

/* False while lines are being lost. */
bool serve_journal_is_good(serve_journal *self);

#endif

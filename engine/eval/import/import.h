/* eval/import/import.h - what every importer makes, and how it refuses what it cannot carry over.
 *
 * An importer turns another program's task into items (JSONL) and one or more task files of EVALUATION.md. What cannot be carried over
 * exactly is refused by name, unless the user accepts the loss. Must not know any program's format. Read next: harness.h, samples.h. */
#ifndef VERBATIM_EVAL_IMPORT_H
#define VERBATIM_EVAL_IMPORT_H
#include <jansson.h>
#include "base/base.h"
#include "base/strbuf.h"

#define EVAL_IMPORT_ACCEPT_MAX 64u
#define EVAL_IMPORT_BYTES_MAX (1u << 30) /* of an input file */

typedef struct eval_import_accept { /* what the user accepts to lose */
  const char *names[EVAL_IMPORT_ACCEPT_MAX];
  bool was_used[EVAL_IMPORT_ACCEPT_MAX];
  uint32_t count;
} eval_import_accept;

typedef struct eval_import { /* zeroed: empty */
  strbuf items;   /* lines of JSON */
  uint32_t item_count;
  json_t *tasks;  /* list of {"name": of the file, without ".yaml"; "keys": object of the task file,
                              without "items"}; empty if the items are
                   * for `verbatim score` */
  char *name;     /* of the items' file, without ".jsonl" */
} eval_import;

void eval_import_close(eval_import *self);

/* The key cannot be carried over for this reason, which ends with what to do. OK if the user accepts that; else ERR_UNSUPPORTED. */
status eval_import_cannot(eval_import_accept *accept, const char *key, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* ERR_USAGE: a name that was accepted and did not occur. */
status eval_import_check_accepted(const eval_import_accept *accept);

/* Appends a line; takes ownership of the object. NULL: ERR_LIMIT. */
status eval_import_add_item(eval_import *self, json_t *item);

/* Adds a task file with these keys in this order; takes ownership of them. The name is made fit for a file. */
status eval_import_add_task(eval_import *self, const char *file, json_t *keys);

/* Reads all task files with their items back, as an evaluation does. ERR_FORMAT and others: an evaluation would refuse them. */
status eval_import_check(const eval_import *self);

/* The text of a task file: one key a line, values as JSON. comment: lines that begin with "#", or "". ERR_LIMIT. */
status eval_import_task_text(const json_t *keys, const char *items, const char *comment, strbuf *out);

#endif

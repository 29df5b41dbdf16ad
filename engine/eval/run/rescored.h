/* eval/run/rescored.h - scores the saved answers of an evaluation again, with changed task files, into a new folder.
 *
 * The folder gets results.jsonl, manifest.json and report.html; the receipt stays with the run that made the answers. Read next:
 * eval/rescore.h, eval/run/saved.h. */
#ifndef VERBATIM_EVAL_RESCORED_H
#define VERBATIM_EVAL_RESCORED_H
#include <jansson.h>
#include "base/base.h"
#include "eval/run/saved.h"
#include "eval/run/tasks.h"

typedef struct eval_rescored { /* zeroed: closed; the caller sets the upper fields */
  const char *const *task_files; /* [task_file_count]: tasks that take the place of those of the same names */
  uint32_t task_file_count;
  const char *tasks_folder;      /* of files that the manifest names but does not contain, or NULL */
  const char *folder;            /* new; NULL: nothing is written */
  eval_tasks tasks;
  json_t *manifest, *results;    /* the new ones */
  uint64_t lost, gained;         /* items that were right and are wrong, and the other way */
  uint64_t changed;              /* lines that are not what they were */
} eval_rescored;

/* saved: with its lines. ERR_MISMATCH: a task file asks for other answers than were given. */
status eval_rescored_all(eval_rescored *self, const eval_saved *saved);
void eval_rescored_close(eval_rescored *self);

#endif

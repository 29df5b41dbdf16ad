/* eval/run/tasks.h - the tasks of a run with their files and items: from disk, or from a manifest that embeds them.
 *
 * Every file is read once, and its digest is of the bytes read. Knows no engine. Read next: eval/task.h, eval/items.h, eval/run/pass.h. */
#ifndef VERBATIM_EVAL_TASKS_H
#define VERBATIM_EVAL_TASKS_H
#include "base/base.h"
#include "base/digest.h"
#include "eval/answer.h"
#include "eval/items.h"
#include "eval/manifest.h"
#include "jsonl/items.h"

typedef struct eval_run_file { /* text NULL: none */
  char *name, *text;
  char *path; /* from which it was read; NULL: it was in a manifest */
  size_t bytes;
  digest digest;
} eval_run_file;

typedef struct eval_run_task {
  eval_task task;
  eval_run_file file, items_file, shots_file;
  char *path;          /* of the task file: a hint in the manifest */
  eval_items items;
  items params;        /* one item: the sampling parameters; empty unless the task generates */
  eval_answer *judge;  /* NULL unless the task generates */
  uint64_t first;      /* number of items in the tasks before */
} eval_run_task;

typedef struct eval_tasks { /* zeroed: empty */
  eval_run_task *list;
  uint32_t count, room;
  uint64_t item_count;
  int64_t limit;       /* replaces every task's limit; -1: does not */
  const json_t *defaults; /* of generation_config.json: what a task's "generation" does not set; NULL: none */
} eval_tasks;

/* Adds a task from its file; files it names are in the same folder. Errors name the file. */
status eval_tasks_add(eval_tasks *self, const char *path);

/* Adds all tasks of the manifest in folder `home`. A file that is not embedded is looked up in `folder`, or if that is NULL next to the
 * task file's recorded path, and must have the recorded digest. ERR_MISMATCH: it has another digest, or this program interprets a task
 * differently from the one that wrote the manifest. */
status eval_tasks_recorded(eval_tasks *self, const json_t *manifest, const char *home, const char *folder);

/* Adds the task of the manifest with that index alone. */
status eval_tasks_recorded_one(eval_tasks *self, const json_t *manifest, uint32_t index, const char *home, const char *folder);

/* The task of item `position`, counted over all tasks; *index: the item's number in it. */
const eval_run_task *eval_tasks_find(const eval_tasks *self, uint64_t position, uint32_t *index);
const item_params *eval_tasks_params(const eval_run_task *task); /* NULL unless it generates */

/* In the form of eval_manifest_setup: [count], freed by the caller. NULL: no memory. */
eval_manifest_task *eval_tasks_describe(const eval_tasks *self);
void eval_tasks_close(eval_tasks *self);

/* Reads a regular file of at most `most` bytes, with a NUL after it. ERR_IO, ERR_LIMIT. */
status eval_tasks_read(const char *path, uint64_t most, char **text, size_t *bytes);

#endif

/* eval/run/tasks.h - the tasks of a run with their files and items: from the disk, or from a manifest, which holds them.
 *
 * Every file is read once, and its digest is of what was read. Knows no engine. Read next: eval/task.h, eval/items.h, eval/run/pass.h. */
#ifndef VERBATIM_EVAL_TASKS_H
#define VERBATIM_EVAL_TASKS_H
#include "base/base.h"
#include "base/digest.h"
#include "eval/answer.h"
#include "eval/items.h"
#include "eval/manifest.h"
#include "jsonl/items.h"

typedef struct cli_eval_file { /* text null: none */
  char *name, *text;
  size_t bytes;
  digest digest;
} cli_eval_file;

typedef struct cli_eval_task {
  eval_task task;
  cli_eval_file file, items_file, shots_file;
  char *path;          /* of the task file: a hint in the manifest */
  eval_items items;
  items params;        /* one: the sampling parameters; empty unless the task generates */
  eval_answer *judge;  /* null unless the task generates */
  uint64_t first;      /* items of the tasks before */
} cli_eval_task;

typedef struct eval_tasks { /* zeroed: empty */
  cli_eval_task *list;
  uint32_t count, room;
  uint64_t item_count;
  int64_t limit;       /* replaces that of every task; -1: it does not */
} eval_tasks;

/* From a task file; files it names lie beside it. Errors name the file. */
status eval_tasks_add(eval_tasks *self, const char *path);

/* All tasks of a manifest. What is not embedded is looked for in `folder`, null: beside the task file's path in the manifest's hints, and
 * must have the digest. ERR_MISMATCH: it has another, or this program reads a task otherwise than the one that wrote the manifest. */
status eval_tasks_recorded(eval_tasks *self, const json_t *manifest, const char *folder);

/* Of item `position`, counted through all tasks. */
const cli_eval_task *eval_tasks_find(const eval_tasks *self, uint64_t position, uint32_t *index);
const item_params *eval_tasks_params(const cli_eval_task *task); /* null unless it generates */

/* As eval_manifest_setup takes them: [count], to be freed. Null: no memory. */
eval_manifest_task *eval_tasks_describe(const eval_tasks *self);
void eval_tasks_close(eval_tasks *self);

/* A regular file of at most `most` bytes, whole, with a NUL behind it. ERR_IO, ERR_LIMIT. */
status eval_tasks_read(const char *path, uint64_t most, char **text, size_t *bytes);

#endif

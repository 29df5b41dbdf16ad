/* eval/import/harness.h - a task of lm-evaluation-harness: its YAML with all that it includes, and what this program knows of its keys.
 *
 * Files are read through the caller's function. Must not know what becomes of the keys. Read next: prompts.h. */
#ifndef VERBATIM_EVAL_IMPORT_HARNESS_H
#define VERBATIM_EVAL_IMPORT_HARNESS_H
#include "eval/import/import.h"

#define EVAL_IMPORT_INCLUDES_MAX 16u
#define EVAL_IMPORT_PATH_BYTES 4096u

typedef struct eval_import_files {
  /* Reads a whole file; the caller frees *text. */
  status (*read)(void *context, const char *path, bool is_data, char **text, size_t *bytes);
  void *context;
} eval_import_files;

/* *out: the keys of the task, those of the file over those of its includes. Functions are objects (YAML_FUNCTION). Keys that would change a
 * prompt or a score in a way that is not carried over are refused, unless accepted: then they are removed. only_scores: the prompts come
 * from
 * elsewhere. */
status eval_import_harness_read(const eval_import_files *files, eval_import_accept *accept, const char *path, bool only_scores,
                                json_t **out);

/* A text of the task, or `otherwise`. ERR_FORMAT: it holds something else. */
status eval_import_harness_text(const json_t *config, const char *key, const char *otherwise, const char **out);

#endif

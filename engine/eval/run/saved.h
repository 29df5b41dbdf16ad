/* eval/run/saved.h - an evaluation that has ended, as it lies in its folder: the manifest and the lines of results beside it.
 *
 * Both are checked: the manifest against its own digest, the lines against the manifest. Read next: eval/manifest.h. */
#ifndef VERBATIM_EVAL_SAVED_H
#define VERBATIM_EVAL_SAVED_H
#include <jansson.h>
#include "base/base.h"

#define EVAL_SAVED_PATH_BYTES 4096u

typedef struct eval_saved { /* zeroed: closed */
  char folder[EVAL_SAVED_PATH_BYTES];
  json_t *manifest, *results;  /* results: an array of the lines; NULL until read */
} eval_saved;

/* Reads the manifest. ERR_USAGE: the evaluation has not ended. Else as eval_manifest_parse; errors name the file. */
status eval_saved_open(eval_saved *self, const char *path);

/* Reads results.jsonl. ERR_MISMATCH: it does not have the digest that the manifest records. */
status eval_saved_lines(eval_saved *self);

/* The lines of a file like results.jsonl, an array that the caller owns. */
status eval_saved_read(const char *path, json_t **out);
void eval_saved_close(eval_saved *self);

#endif

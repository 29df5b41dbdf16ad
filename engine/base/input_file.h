/* input_file.h - opens what a command was told to read, or says what lies there instead.
 *
 * Every such error names what was expected, what was found (nothing, a folder, a pipe, an empty file) and what to do. A word like
 * "org/name" where a model folder belongs is a name on the Hugging Face Hub, and the hint is the command that fetches it. Knows nothing of
 * what files contain; optional files are the business of special_file.h. Read next: special_file.h. */
#ifndef VERBATIM_INPUT_FILE_H
#define VERBATIM_INPUT_FILE_H
#include <stdio.h>
#include "base/base.h"

/* What is expected of an input, with the hint that belongs to it. */
typedef enum input_file_kind {
  INPUT_PLAN = 0, INPUT_RECEIPT, INPUT_TRACE, INPUT_RUN, INPUT_MANIFEST, INPUT_RESULTS, INPUT_DEPLOYMENT, INPUT_PROFILE, INPUT_TASK,
  INPUT_ITEMS, INPUT_CONFIG, INPUT_WEIGHTS, INPUT_TOKENIZER, INPUT_MODEL,
  INPUT_SIGNED, INPUT_SIGNATURE, INPUT_SIGNERS
} input_file_kind;

/* Opens a regular file that is not empty; opening cannot block. ERR_IO; ERR_FORMAT: it is empty. */
status input_file_open(const char *path, input_file_kind kind, FILE **out);

/* The same for an input that may also be a pipe or a device, and empty. ERR_IO. */
status input_file_open_stream(const char *path, input_file_kind kind, FILE **out);

/* A regular file that may have any content, for a caller that opens it itself. ERR_IO. */
status input_file_check(const char *path, input_file_kind kind);

/* The folder of a model. ERR_IO. */
status input_file_check_model(const char *model_dir);

/* Record what a reader found in a file of the kind: nothing, or the contents of another kind. ERR_FORMAT. */
status input_file_empty(const char *path, input_file_kind kind);
status input_file_other(const char *path, input_file_kind kind); /* path: NULL where the caller adds it (fail_prefix) */

#endif

/* eval/run/progress.h - how far a pass has come: for every complete item, the sizes of its two files after it and a digest of both.
 *
 * A line is "RESULTS_BYTES RECEIPT_BYTES DIGEST": the digest is of the first bytes of results.jsonl and of the receipt, and of the line
 * before. A pass that goes on keeps the items whose lines hold, so that no byte that was damaged since is taken over. The file is hostile
 * input. Knows nothing of what the other two contain. Read next: eval/run/pass.h. */
#ifndef VERBATIM_EVAL_PROGRESS_H
#define VERBATIM_EVAL_PROGRESS_H
#include <stdio.h>
#include "base/base.h"
#include "base/digest.h"

#define EVAL_PROGRESS_LINE_BYTES_MAX 80u

typedef struct eval_progress { /* zeroed: nothing is complete */
  uint64_t items;
  uint64_t results_bytes, receipt_bytes, own_bytes; /* of the files, after that many items */
  digest line;                                      /* of the last line; zeros before the first */
  digest_state results;                             /* of the results' bytes */
  bool is_damaged;                                  /* after reading: there were more lines, and the next one does not hold */
} eval_progress;

void eval_progress_start(eval_progress *self);

/* Adds the line of an item to the open file. result: its line of results; receipt: of the receipt's bytes so far. ERR_IO. */
status eval_progress_add(eval_progress *self, FILE *file, const char *path, const char *result, size_t result_bytes,
                         const digest_state *receipt, uint64_t receipt_bytes);

/* Reads the three files up to the first item whose line does not hold. A missing file has no items. ERR_IO, ERR_LIMIT. */
status eval_progress_read(eval_progress *self, const char *path, const char *results_path, const char *receipt_path);

#endif

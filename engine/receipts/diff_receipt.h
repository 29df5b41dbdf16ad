/* diff_receipt.h - where two receipts part: what was run, which requests differ, and where the first of them does.
 *
 * Request digests and chains count only where the first lines agree: they hold what these name. Knows no output form.
 * Read next: receipts/compare.h, receipts/read.h, diff_requests.h. */
#ifndef VERBATIM_DIFF_RECEIPT_H
#define VERBATIM_DIFF_RECEIPT_H
#include "base/base.h"
#include "receipts/diff_requests.h"
#include "receipts/compare.h"
#include "receipts/read.h"

typedef struct diff_receipt { /* zeroed: closed */
  receipt_head head[2];
  bool same_numerics, same_config, same_weights, same_tokenizer;
  char *device[2];                  /* what made it: nothing that is compared */
  bool complete[2];                 /* ends with its digest */
  diff_requests requests[2];
  bool differs;                     /* anything above but the machine */
  bool has_first;
  uint32_t first_request;           /* in a's list */
  receipt_difference first;         /* of that */
} diff_receipt;

/* As receipt_read_open fails. To be closed in every case. */
status diff_receipt_compare(diff_receipt *self, const char *path_a, const char *path_b);
void diff_receipt_close(diff_receipt *self);

#endif

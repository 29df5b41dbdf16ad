/* diff_receipt.h - where two receipts diverge: their heads, the requests that differ, and the first difference in the first of those.
 *
 * Request digests and chains count only when the heads agree, because they cover the heads' fields. Knows no output format. Read next:
 * receipts/compare.h, receipts/read.h, diff_requests.h. */
#ifndef VERBATIM_DIFF_RECEIPT_H
#define VERBATIM_DIFF_RECEIPT_H
#include "base/base.h"
#include "receipts/diff_requests.h"
#include "receipts/compare.h"
#include "receipts/read.h"

typedef struct diff_receipt { /* zeroed: closed */
  receipt_head head[2];
  bool same_numerics, same_config, same_weights, same_tokenizer;
  char *device[2];                  /* the device of each run; shown, never compared */
  bool complete[2];                 /* has its digest line */
  diff_requests requests[2];
  bool differs;                     /* anything above differs, apart from the device */
  bool has_first;
  uint32_t first_request;           /* index in a's list */
  receipt_difference first;         /* of first_request */
} diff_receipt;

/* Fails as receipt_read_open does. diff_receipt_close must be called in every case. */
status diff_receipt_compare(diff_receipt *self, const char *path_a, const char *path_b);
void diff_receipt_close(diff_receipt *self);

#endif

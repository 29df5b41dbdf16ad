/* eval/run/recorded.h - the receipt of an evaluation that is repeated: its tokens are the drafts of the new requests.
 *
 * Requests come in the order of the receipt. A receipt that is missing, ends early or has other requests costs time only. Read next:
 * receipts/guess.h. */
#ifndef VERBATIM_EVAL_RECORDED_H
#define VERBATIM_EVAL_RECORDED_H
#include "base/base.h"
#include "receipts/read.h"
#include "verbatim.h"

typedef struct eval_recorded { /* zeroed: closed, without a receipt */
  receipt_read receipt;
  receipt_record *records; /* [receipt.count] those of requests in flight are read */
  uint32_t taken, dropped;
} eval_recorded;

/* path: of the receipt, or NULL. One that cannot be read is not used. */
status eval_recorded_open(eval_recorded *self, const char *path);

/* The next request, which uses no context of its own, gets its drafts. */
void eval_recorded_guide(eval_recorded *self, verbatim_request *request);

/* The oldest `count` requests have ended. */
void eval_recorded_drop(eval_recorded *self, uint32_t count);
void eval_recorded_close(eval_recorded *self);

#endif

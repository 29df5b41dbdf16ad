/* receipts/compare.h - the first difference between two requests, recorded or live: an input, a token, or how they ended.
 *
 * Numbers are compared by their bits. Knows no files and no output format. Read next: receipts/read.h, common/compare.h. */
#ifndef VERBATIM_RECEIPT_COMPARE_H
#define VERBATIM_RECEIPT_COMPARE_H
#include "base/base.h"
#include "verbatim.h"

#define RECEIPT_COMPARE_TEXT_BYTES 320u

typedef struct receipt_difference_field { /* an input, or a field of how a request ended */
  const char *name;                       /* the receipt's key; NULL: no field differs */
  uint32_t index;                         /* in a list; UINT32_MAX: the field is not a list */
  char value[2][RECEIPT_COMPARE_TEXT_BYTES];
} receipt_difference_field;

typedef struct receipt_difference_token { /* a scored or generated token */
  const char *list;                       /* "scored" or "made", the receipt's key; NULL: no token differs */
  uint32_t index, position;
  bool has_token[2];                      /* false for a request whose list is shorter   */
  verbatim_token token[2];
  uint32_t alternative;                   /* the first alternative that differs, or UINT32_MAX */
  verbatim_alternative alternatives[2];
} receipt_difference_token;

typedef struct receipt_difference {
  receipt_difference_field input, end; /* input: the first that differs, or the request digest if only that does; end: likewise, or the
                                        * chain */
  uint32_t tokens_same;                /* equal tokens before `token` */
  receipt_difference_token token;
} receipt_difference;

/* Sets the first difference of each kind, in the receipt's order, and returns whether there is any. same_model: both requests ran on the
 * same model, tokenizer and numerics. Only then are request digests and chains compared, and only when nothing else differs, because they
 * cover the other fields. */
bool receipt_compare(const verbatim_request *a, const verbatim_request *b, bool same_model, receipt_difference *out);

#endif

/* receipts/compare.h - where two requests part that a receipt holds, or that were run: in what was asked, in the first token, in how they
 * ended.
 *
 * Numbers are compared by their bits. Knows no files and no output form. Read next: receipts/read.h, common/compare.h. */
#ifndef VERBATIM_RECEIPT_COMPARE_H
#define VERBATIM_RECEIPT_COMPARE_H
#include "base/base.h"
#include "verbatim.h"

#define RECEIPT_COMPARE_TEXT_BYTES 320u

typedef struct receipt_difference_field { /* of an input, or of how a request ended */
  const char *name;                       /* null: none differs; else the receipt's key */
  uint32_t index;                         /* in a list, else UINT32_MAX                 */
  char value[2][RECEIPT_COMPARE_TEXT_BYTES];
} receipt_difference_field;

typedef struct receipt_difference_token { /* a scored or made token */
  const char *list;                       /* null: none differs; else "scored" or "made" */
  uint32_t index, position;
  bool has_token[2];                      /* a list may end                              */
  verbatim_token token[2];
  uint32_t alternative;                   /* the first that differs, or UINT32_MAX       */
  verbatim_alternative alternatives[2];
} receipt_difference_token;

typedef struct receipt_difference {
  receipt_difference_field input, end; /* the first input, or else the request digest; the first of how it ended, or else the chain */
  uint32_t tokens_same;                /* before `token` */
  receipt_difference_token token;
} receipt_difference;

/* Each in the order of the receipt. Whether anything differs. same_model: both are of one model, one tokenizer and the same numerics. Only
 * then request digests and chains say something, and then where nothing else differs: they hold what the others name. */
bool receipt_compare(const verbatim_request *a, const verbatim_request *b, bool same_model, receipt_difference *out);

#endif

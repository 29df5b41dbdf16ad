/* receipts/resume.h - reopens the receipt of an interrupted run to continue it.
 *
 * The finished receipt equals that of an uninterrupted run, except for the machine line, which is that of the first run. Read next:
 * receipt.h, receipts/read.h. */
#ifndef VERBATIM_RECEIPT_RESUME_H
#define VERBATIM_RECEIPT_RESUME_H
#include "base/base.h"
#include "receipts/receipt.h"

/* Keeps the first `count` requests of the receipt at the path, truncates the rest and appends after them, as after receipt_begin and
 * `count` calls of receipt_add. ERR_MISMATCH: written by another model or tokenizer. ERR_FORMAT: fewer than `count` requests. */
status receipt_resume(receipt *self, const char *path, const receipt_source *source, uint32_t count);

#endif

/* receipts/resume.h - a receipt whose run was cut short, opened to be gone on with.
 *
 * What comes out in the end is what one run would have written, but for the line of the machine, which is that of the first. Read next:
 * receipt.h, receipts/read.h. */
#ifndef VERBATIM_RECEIPT_RESUME_H
#define VERBATIM_RECEIPT_RESUME_H
#include "base/base.h"
#include "receipts/receipt.h"

/* Keeps the first `count` requests of the receipt at the path, cuts what follows off, and goes on behind them, as after receipt_begin and
 * as many receipt_add. ERR_MISMATCH: it is of another model or tokenizer. ERR_FORMAT: it has fewer requests. */
status receipt_resume(receipt *self, const char *path, const receipt_source *source, uint32_t count);

#endif

/* text/nfc.h - Unicode's normal form C, as the normalizer NFC of the tokenizers library applies it.
 *
 * A text is decomposed, its marks are put in order and what can be composed is composed, as Unicode Standard Annex 15 defines it. The
 * tables are the library's, whose Unicode is older than libunistring's or ICU's: later marks are left in place. All memory is taken at
 * nfc_open; one nfc_run at a time. Read next: nfc_table.h, tokenizer.h. */
#ifndef VERBATIM_NFC_H
#define VERBATIM_NFC_H
#include "base/base.h"

typedef struct nfc nfc;

status nfc_open(nfc **out, size_t bytes_max); /* of a text, before and after. ERR_LIMIT: no memory */
void nfc_close(nfc *self);                    /* NULL is allowed */

/* text: UTF-8. *normal: text itself if it is in the form, or memory of self, valid until the next run. ERR_LIMIT: the result is longer than
 * bytes_max. */
status nfc_run(nfc *self, const uint8_t *text, size_t bytes, const uint8_t **normal, size_t *normal_bytes);

#endif

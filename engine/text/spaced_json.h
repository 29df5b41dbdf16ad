/* text/spaced_json.h - tokenizer.json of the vocabularies that SentencePiece made: a space is U+2581, a byte is "<0x0A>".
 *
 * Known by model.byte_fallback. A text is changed before merging: it gets a space in front, and spaces become U+2581. Here it is
 * the other way round, U+2581 becomes a space, which is shorter and gives the same ids. Accepted:
 *   normalizer      null with the pre-tokenizer Metaspace; or Prepend and Replace, or Replace alone, with none
 *   pre_tokenizer   Metaspace with split false, prepend_scheme always, first or never
 *   decoder         Replace, ByteFallback, Fuse, perhaps Strip of one space at the start, which decoding here leaves in place
 * Read next: tokenizer_json.h. */
#ifndef VERBATIM_SPACED_JSON_H
#define VERBATIM_SPACED_JSON_H
#include <jansson.h>
#include "text/tokenizer_json.h"

#define SPACED_JSON_SPACE "\xE2\x96\x81" /* U+2581 */

bool spaced_json_is(const json_t *root);

/* What is put before a text; checks the fields above. ERR_FORMAT, ERR_UNSUPPORTED. */
status spaced_json_read(const json_t *root, tokenizer_prefix *out);

/* Writes the bytes of a token's name to out, at most strlen(name), and returns their number. byte: the value if it is a byte's token, else
 * -1. is_word: text can become it. */
size_t spaced_json_token(const char *name, uint8_t *out, uint8_t *is_word, int *byte);

#endif

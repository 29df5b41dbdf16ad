/* jinja/write.h - values as text: str(), repr() and transformers' json.dumps, byte for byte.
 *
 * What Python would print with an address (macros, generators) is refused. A text grows to JINJA_TEXT_BYTES_MAX. */
#ifndef VERBATIM_JINJA_WRITE_H
#define VERBATIM_JINJA_WRITE_H
#include "jinja/value.h"

status jinja_write_text(jinja_memory *memory, jinja_value value, strbuf *out); /* as {{ value }} */

typedef struct jinja_json {
  jinja_text item, key;   /* separators: ", " and ": " by default */
  const jinja_text *indent; /* of one level, or NULL: all on one line */
  bool is_ascii, is_sorted;
} jinja_json;

status jinja_write_json(jinja_memory *memory, jinja_value value, const jinja_json *form, strbuf *out);

#endif

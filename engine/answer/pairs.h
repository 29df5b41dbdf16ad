/* answer/pairs.h - arguments written as keys and values between marks, as the text of a JSON object.
 *
 * Written as Python's json.dumps writes it without escapes beyond ASCII: {"city": "Łódź", "days": 3}. A value that is JSON stays as it
 * stands, so that no number changes. Read next: answer/calls.c. */
#ifndef VERBATIM_ANSWER_PAIRS_H
#define VERBATIM_ANSWER_PAIRS_H
#include <jansson.h>
#include "base/base.h"
#include "base/strbuf.h"

typedef struct answer_pairs_value {
  const char *key, *text;
  size_t key_bytes, bytes;
  bool is_told, is_text; /* the model tells whether the value is text. Else it is what JSON it spells if that is no text and the schema
                          * allows it; otherwise text */
} answer_pairs_value;

/* Adds a member to out, which is empty or has members. schema: of all arguments, or NULL. A value that should be JSON and is none leaves a
 * gap: the object is no JSON then. */
void answer_pairs_add(strbuf *out, const json_t *schema, const answer_pairs_value *value);
void answer_pairs_end(strbuf *out);

#endif

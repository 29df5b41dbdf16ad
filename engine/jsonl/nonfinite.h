/* nonfinite.h - where NaN or Inf began in a request that ended by it: in words for people and as an object for programs.
 *
 * Knows the request alone. Allocates: it runs beside the engine, in the command line. Read next: verbatim.h (fault_op). */
#ifndef VERBATIM_NONFINITE_H
#define VERBATIM_NONFINITE_H
#include <jansson.h>
#include "base/base.h"
#include "verbatim.h"

#define NONFINITE_TEXT_BYTES 320u

/* ", made first by layer 3 o_proj at position 17"; "" when it is not known, or the request ended otherwise. Returns text. */
const char *nonfinite_text(const verbatim_request *request, char text[NONFINITE_TEXT_BYTES]);

/* {"op": text, "layer": number or null, "position": number}; the caller's. Null: nothing is known, or no memory. */
json_t *nonfinite_json(const verbatim_request *request);

#endif

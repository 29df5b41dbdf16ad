/* nonfinite.h - where NaN or Inf first appeared in a request that ended because of it: as text for people and as JSON for programs.
 *
 * Knows only the request. Allocates: it runs in the command line, next to the engine. Read next: verbatim.h (fault_op). */
#ifndef VERBATIM_NONFINITE_H
#define VERBATIM_NONFINITE_H
#include <jansson.h>
#include "base/base.h"
#include "verbatim.h"

#define NONFINITE_TEXT_BYTES 320u

/* ", made first by layer 3 o_proj at position 17"; "" when the origin is unknown or the request ended otherwise. Returns text. */
const char *nonfinite_text(const verbatim_request *request, char text[NONFINITE_TEXT_BYTES]);

/* {"op": text, "layer": number or null, "position": number}, owned by the caller. NULL: unknown, or no memory. */
json_t *nonfinite_json(const verbatim_request *request);

#endif

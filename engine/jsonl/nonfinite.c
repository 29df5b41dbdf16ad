/* nonfinite.c - see nonfinite.h. The engine records the op, layer and position; this file only formats them. */
#include "jsonl/nonfinite.h"
#include <stdio.h>

static bool is_known(const verbatim_request *r) { return r->finish == VERBATIM_NONFINITE && r->fault_op && r->fault_op[0]; }

const char *nonfinite_text(const verbatim_request *request, char text[NONFINITE_TEXT_BYTES]) {
  text[0] = 0;
  if (is_known(request))
    snprintf(text, NONFINITE_TEXT_BYTES, ", made first by %.256s at position %u", request->fault_op, request->fault_position);
  return text;
}

json_t *nonfinite_json(const verbatim_request *request) {
  if (!is_known(request)) return NULL;
  json_t *layer = request->fault_layer == UINT32_MAX ? json_null() : json_integer(request->fault_layer);
  return json_pack("{s:s, s:o, s:I}", "op", request->fault_op, "layer", layer, "position", (json_int_t)request->fault_position);
}

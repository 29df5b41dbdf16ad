/* serve/params.h - the "verbatim" object of a reply: what its bits depend on, and for each choice the digests, parameters and receipt.
 *
 * Parameters are written from the engine's own request, so none can be in effect without being reported. SERVING.md, "The verbatim object",
 * is normative. Read next: serve/reply.h, receipt.h. */
#ifndef VERBATIM_SERVE_PARAMS_H
#define VERBATIM_SERVE_PARAMS_H
#include "serve/request.h"
#include "serve/text.h"

/* For a request whose choices have all finished. */
void serve_params_put(const serve_model *m, const serve_request *request, serve_text *out);

#endif

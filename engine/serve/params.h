/* serve/params.h - the "verbatim" object of a reply: what its bits depend on, and of each choice the digests, parameters and receipt.
 *
 * Parameters are written from the request the engine had, so that none can be in force and not be said. SERVING.md, "The verbatim
 * object", is normative. Read next: serve/reply.h, receipt.h. */
#ifndef VERBATIM_SERVE_PARAMS_H
#define VERBATIM_SERVE_PARAMS_H
#include "serve/ask.h"
#include "serve/text.h"

/* Of an ask whose choices are all finished. */
void serve_params_put(const serve_model *m, const serve_ask *ask, serve_text *out);

#endif

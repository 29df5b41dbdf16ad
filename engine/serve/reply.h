/* serve/reply.h - the results of a request as OpenAI's JSON: whole, or event by event. For the HTTP thread.
 *
 * SERVING.md is normative. The bytes of a reply depend only on the body, the model and the numerics id, except for "id" and "created"; the
 * events of a stream, joined, are the whole reply, however it was split. Must not know the engine. Read next: serve/delta.h,
 * serve/tokens.h. */
#ifndef VERBATIM_SERVE_REPLY_H
#define VERBATIM_SERVE_REPLY_H
#include "serve/request.h"
#include "serve/text.h"

/* For a request whose choices have all finished. False: the reply is the fault (the request's own, numbers that are not finite, deadline
 * exceeded, no memory), and out's content is unchanged. */
bool serve_reply_whole(const serve_model *m, serve_request *request, serve_text *out, serve_fault *fault);

/* Appends events with what is new, about 64 KiB at most, except for what one event must hold: a prompt's text and ids, the verbatim object.
 * Adds nothing if nothing is new. After the last one come usage, if requested, and [DONE]. ended: nothing will follow. */
void serve_reply_stream(const serve_model *m, serve_request *request, serve_text *out, bool *ended);

/* {"error":{...}} */
void serve_reply_fault(const serve_fault *fault, serve_text *out);

#endif

/* serve/reply.h - what an ask has yielded as OpenAI's JSON: whole, or event by event. For the HTTP thread.
 *
 * SERVING.md is normative. The bytes of a reply are a function of the body, the model and the numerics id, but for "id" and "created"; the
 * events of a stream, joined, are the whole reply, however they were cut. Must not know the engine. Read next: serve/part.h,
 * serve/tokens.h. */
#ifndef VERBATIM_SERVE_REPLY_H
#define VERBATIM_SERVE_REPLY_H
#include "serve/ask.h"
#include "serve/text.h"

/* Of an ask whose choices are all finished. false: the reply is the fault (the ask's own, numbers that are not finite, time that was
 * over, no memory), and out is as it was but for its room. */
bool serve_reply_whole(const serve_model *m, const serve_ask *ask, serve_text *out, serve_fault *fault);

/* Appends events of what is new, about 64 KiB at most, but for what stands in one event: a prompt's text and ids, the verbatim object.
 * Adds nothing where nothing is new. Behind the last one, usage if asked for, and [DONE]. ended: nothing will follow. */
void serve_reply_stream(const serve_model *m, serve_ask *ask, serve_text *out, bool *ended);

/* {"error":{...}} */
void serve_reply_fault(const serve_fault *fault, serve_text *out);

#endif

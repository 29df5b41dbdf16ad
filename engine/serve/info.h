/* serve/info.h - the bodies of the endpoints that generate no tokens: what this is, models, version, tokenize, detokenize, tokenizer_info.
 *
 * Pure functions of the model; SERVING.md is normative. Endpoints with a body check it as serve_request_parse does. Must not know the
 * engine. Read next: serve/request.h, serve/text.h. */
#ifndef VERBATIM_SERVE_INFO_H
#define VERBATIM_SERVE_INFO_H
#include "serve/request.h"
#include "serve/text.h"

void serve_info_models(const serve_model *m, serve_text *out);                                          /* GET /v1/models      */
bool serve_info_model(const serve_model *m, const char *name, serve_text *out, serve_fault *fault);     /* GET /v1/models/NAME */
void serve_info_root(const serve_model *m, serve_text *out);                                            /* GET /               */
void serve_info_version(const serve_model *m, serve_text *out);                                         /* GET /version        */

/* POST /tokenize and /detokenize. False: the fault is the reply, and out is unchanged. */
bool serve_info_tokenize(const serve_model *m, const char *body, size_t bytes, serve_text *out, serve_fault *fault);
bool serve_info_detokenize(const serve_model *m, const char *body, size_t bytes, serve_text *out, serve_fault *fault);

/* GET /tokenizer_info, constant for the life of the server: the content of tokenizer_config.json in model_dir, with special tokens as
 * texts, plus members that clients expect and it lacks. ERR_FORMAT: a file has the wrong form; ERR_LIMIT: no memory, or too long. */
status serve_info_tokenizer(const serve_model *m, const char *model_dir, serve_text *out);

#endif

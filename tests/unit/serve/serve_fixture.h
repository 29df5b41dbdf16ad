/* serve_fixture.h - the shipped tokenizer and chat template as a served model, and an engine's results without an engine.
 *
 * Results go through the engine's own request.c: finishes, stop texts, digests and callbacks are the real ones, in the order that the
 * scheduler has. What a choice gets is a function of the seed, its number and the position, in whatever order choices are moved on:
 * texts of many scripts cut inside their characters, special tokens, ties, tokens of any rank. Paths are relative to the root of the
 * repository. */
#ifndef VERBATIM_SERVE_FIXTURE_H
#define VERBATIM_SERVE_FIXTURE_H
#include <jansson.h>
#include "engine/requests/request.h"
#include "engine/serve/request.h"
#include "engine/serve/text.h"

#define SERVE_FIXTURE_LEN 256u

typedef struct serve_fixture {
  tokenizer *tokenizer;
  chat *chat; /* the shipped model's: BOS and the contents */
  verbatim_info info;
  serve_model model;
  plan_header header;
  plan plan;
  request_model requests;
  uint64_t seed;
  uint32_t break_at; /* a made token whose logits are not finite; UINT32_MAX: none */
} serve_fixture;

void serve_fixture_open(serve_fixture *self); /* ends the process where it cannot */
void serve_fixture_close(serve_fixture *self);

/* The ask of a body, which must be sound; and the fault of one that must not be. */
serve_request *serve_fixture_ask(const serve_fixture *self, enum serve_kind kind, const char *body);
serve_fault serve_fixture_refused(const serve_fixture *self, enum serve_kind kind, const char *body);

/* The engine's own check, then the start of every choice. */
void serve_fixture_submit(const serve_fixture *self, serve_request *request);

/* One result for the choice; false: it is finished. */
bool serve_fixture_step(const serve_fixture *self, serve_choice *choice);
void serve_fixture_run(const serve_fixture *self, serve_request *request);

/* A body's whole reply, after submit and run, as JSON; its text too where text is not null. */
json_t *serve_fixture_reply(const serve_fixture *self, enum serve_kind kind, const char *body, serve_text *text);

/* A value by a path like "choices.0.text"; must be there. */
const json_t *serve_fixture_at(const json_t *root, const char *path);

#endif

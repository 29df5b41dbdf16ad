/* serve_fixture.h - the shipped tokenizer and chat template as a served model, and results of an engine without an engine.
 *
 * Results go through the engine's own request.c: finishes, stop texts, digests and callbacks are the real ones, in the scheduler's order.
 * The tokens of a choice are a function of the seed, its number and the position, in whatever order the choices advance: texts of many
 * scripts split inside their characters, special tokens, ties, tokens of any rank. Paths are relative to the root of the repository. */
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
  const char *script; /* the text of every answer; NULL: drawn */
  uint32_t break_at; /* a generated token whose logits are not finite; UINT32_MAX: none */
} serve_fixture;

void serve_fixture_open(serve_fixture *self); /* ends the process if it cannot */
void serve_fixture_close(serve_fixture *self);

/* The request of a body, which must be valid; and the error of one that must not be. */
serve_request *serve_fixture_ask(const serve_fixture *self, enum serve_kind kind, const char *body);
serve_fault serve_fixture_refused(const serve_fixture *self, enum serve_kind kind, const char *body);

/* The engine's own check, then the start of every choice. */
void serve_fixture_submit(const serve_fixture *self, serve_request *request);

/* One result for the choice; false: it is finished. */
bool serve_fixture_step(const serve_fixture *self, serve_choice *choice);
void serve_fixture_run(const serve_fixture *self, serve_request *request);

/* The whole reply to a body, after submit and run, as JSON; also its text if text is not null. */
json_t *serve_fixture_reply(const serve_fixture *self, enum serve_kind kind, const char *body, serve_text *text);

/* A value by a path like "choices.0.text"; it must exist. */
const json_t *serve_fixture_at(const json_t *root, const char *path);

#endif

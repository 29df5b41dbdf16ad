/* serve/tokens.h - a token in a reply: its name, its text, its offset in the text, and the number shown for it.
 *
 * SERVING.md, "Tokens and log-probabilities", is normative. Names are for people and for keys; ids and the receipt are exact. Knows the
 * tokenizer and the rows of one token, not requests. Read next: serve/reply.h, detokenizer.h. */
#ifndef VERBATIM_SERVE_TOKENS_H
#define VERBATIM_SERVE_TOKENS_H
#include "base/base.h"
#include "text/detokenizer.h"
#include "serve/text.h"
#include "text/tokenizer.h"
#include "verbatim.h"

typedef struct serve_token { /* one token, and the most likely ones at its position */
  const verbatim_token *token;
  const verbatim_alternative *top; /* [known], most likely first; known is 1 or more */
  uint32_t known, shown;           /* how many there are; how many are shown */
} serve_token;

/* A JSON string: the token's text if that is UTF-8 without NUL, else "bytes:" and its bytes; "token_id:N" if as_id is set or it has no
 * bytes. */
void serve_tokens_name(const tokenizer *t, int32_t id, bool as_id, serve_text *out);

/* A JSON list of the token's bytes. */
void serve_tokens_bytes(const tokenizer *t, int32_t id, serve_text *out);

/* Adds the text that the token completes. Special tokens have none, unless spell is set. */
void serve_tokens_text(const tokenizer *t, detokenizer *d, int32_t id, bool spell, serve_text *out);
void serve_tokens_flush(detokenizer *d, serve_text *out);

/* The number shown for a token, or for alternative i: the log-probability. A token other than the most likely one whose float32 equals its
 * float32 gets the next lower float32, so that only the greedy choice has the largest number. */
float serve_tokens_number(const serve_token *self);
float serve_tokens_top_number(const serve_token *self, uint32_t i);

/* {"name":number,...}: the `shown` most likely tokens and, if it is not among them, the token. If two have the same name, the less likely
 * one is named by its id. */
void serve_tokens_dictionary(const tokenizer *t, const serve_token *self, bool as_ids, serve_text *out);

/* {"id":{"logprob":...,"rank":...,"decoded_token":...},...}: the same tokens by id; the most likely has rank 1. */
void serve_tokens_ranked(const tokenizer *t, const serve_token *self, bool as_ids, serve_text *out);

/* {"token":...,"logprob":...,"bytes":...,"top_logprobs":[...]}, for chats. */
void serve_tokens_entry(const tokenizer *t, const serve_token *self, bool as_ids, serve_text *out);

#endif

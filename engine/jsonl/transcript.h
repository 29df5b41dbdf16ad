/* transcript.h - a finished request as text for people and as a JSON line for programs.
 *
 * Knows items, requests and the tokenizer; not the engine, files or terminals.
 * Allocates: it runs beside the engine, in the command line. */
#ifndef VERBATIM_TRANSCRIPT_H
#define VERBATIM_TRANSCRIPT_H
#include <stdio.h>
#include "base/base.h"
#include "jsonl/items.h"
#include "text/tokenizer.h"
#include "verbatim.h"

/* The text of the tokens made, without the stop id or the stop text that ended them and without special tokens. *text is NUL-terminated
 * (and may hold NULs), to be freed by the caller. */
status transcript_text(const tokenizer *t, const verbatim_request *request, char **text, size_t *bytes);

/* The text is the answer, but for blanks at both ends. */
bool transcript_matches(const char *text, size_t bytes, const char *answer);

/* Writes one line: the item's echoed keys, then id, numerics_id, index (which sample, where there are several), task, prompt_tokens, text,
 * tokens, finish, stop_reason (the stop id or the stop text), fault (where NaN or Inf began: op, layer, position), for an item with an
 * answer that and exact, then of each token logprobs, ranks and, if asked for, alternatives: each a list of id, logprob and, where it is
 * text by itself, text. t and text null: no text. numerics_id: the 16 bytes of verbatim_info. */
status transcript_json(FILE *to, const uint8_t *numerics_id, const item *source, const verbatim_request *request, const tokenizer *t,
                       const char *text, size_t text_bytes);

#endif

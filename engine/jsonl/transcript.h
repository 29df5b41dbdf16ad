/* transcript.h - a finished request as text for people and as a JSON line for programs.
 *
 * Knows items, requests and the tokenizer; not the engine, files or terminals. Allocates: it runs in the command line, next to the
 * engine. */
#ifndef VERBATIM_TRANSCRIPT_H
#define VERBATIM_TRANSCRIPT_H
#include <stdio.h>
#include "base/base.h"
#include "jsonl/items.h"
#include "text/tokenizer.h"
#include "verbatim.h"

/* The text of the generated tokens, without special tokens and without the stop id or stop text that ended them. *text is NUL-terminated
 * (and may contain NULs); the caller frees it. */
status transcript_text(const tokenizer *t, const verbatim_request *request, char **text, size_t *bytes);

/* The text equals the answer, ignoring blanks at both ends. */
bool transcript_matches(const char *text, size_t bytes, const char *answer);

/* Writes one line: the item's echoed keys, then id, numerics_id, index (of the sample, where there are several), task, prompt_tokens, text,
 * tokens, finish, stop_reason (the stop id or stop text), fault (where NaN or Inf first appeared: op, layer, position); for an item with an
 * answer, answer and exact; then per token logprobs, ranks and, if requested, alternatives: lists of id, logprob and, where the token is
 * text by itself, text. t and text NULL: no text. numerics_id: the 16 bytes of verbatim_info. */
status transcript_json(FILE *to, const uint8_t *numerics_id, const item *source, const verbatim_request *request, const tokenizer *t,
                       const char *text, size_t text_bytes);

#endif

/* transcript.h - a finished request as text for people and as a JSON line for programs.
 *
 * Knows items, requests and the tokenizer; not the engine, files or terminals.
 * Allocates: it runs beside the engine, in the command line. */
#ifndef VERBATIM_TRANSCRIPT_H
#define VERBATIM_TRANSCRIPT_H
#include <stdio.h>
#include "base.h"
#include "items.h"
#include "tokenizer.h"
#include "verbatim.h"

/* The text of the tokens made, without the stop id that ended them and without special tokens. *text is NUL-terminated (and may hold
 * NULs), to be freed by the caller. */
status transcript_text(const tokenizer *t, const verbatim_request *request, char **text, size_t *bytes);

/* The text is the answer, but for blanks at both ends. */
bool transcript_matches(const char *text, size_t bytes, const char *answer);

/* Writes one line: the item's echoed keys, then id, task, prompt_tokens, text (if any), tokens, logprobs, finish, and answer and exact
 * for an item with an answer. text null: no tokenizer. */
status transcript_json(FILE *to, const item *source, const verbatim_request *request, const char *text, size_t text_bytes);

#endif

/* serve/reading.h - how the answers of chats are read: which thoughts and which calls of tools are looked for, and what a request says.
 *
 * The server chooses by its options and the chat template; a request asks for calls by `tools`. SERVING.md, "Thoughts and calls of tools",
 * is normative. Read next: answer/answer.h, serve/delta.c. */
#ifndef VERBATIM_SERVE_READING_H
#define VERBATIM_SERVE_READING_H
#include "answer/answer.h"
#include "chat/chat.h"
#include "serve/fields.h"

#define SERVE_READING_TOOLS_MAX 1024u /* each call is compared with all names */

typedef struct serve_reading { /* zeroed: answers are text */
  const answer_marks *marks;     /* of the thoughts of this model; NULL: none are known */
  bool is_apart;                 /* thoughts are returned apart */
  const answer_grammar *grammar; /* of its calls; NULL: they stay text */
} serve_reading;

/* Each of thoughts and calls is "auto" (by the chat's template), "none" or a name of answer/grammar.h. ERR_USAGE. */
status serve_reading_choose(serve_reading *out, const chat *templates, const char *thoughts, const char *calls);

/* A line that says what is in force, such as "thoughts think (in the content), calls hermes"; returns text. */
#define SERVE_READING_TEXT_BYTES 128u
const char *serve_reading_text(const serve_reading *self, char text[SERVE_READING_TEXT_BYTES]);

/* What a chat's body says of it, checked: out is complete but for the seed and what the prompt ends in. tools: the body's list, or NULL if
 * no calls are read. */
bool serve_reading_of_body(const serve_reading *self, const json_t *body, serve_fields *fields, answer_form *out, serve_fault *fault);

/* Whether the answer has to be read at all: otherwise it is its text. */
bool serve_reading_is_needed(const answer_form *form);

/* prompt_end: the last bytes of the prompt, special tokens spelled. */
#define SERVE_READING_END_TOKENS 64u
void serve_reading_of_prompt(const json_t *body, const char *prompt_end, size_t bytes, answer_form *out);

/* If the body's tool_choice is "required" or a name: constrains the answer to one call, in form and fields. After all other fields are read
 * and what the prompt ends in is known. */
bool serve_reading_force(const json_t *body, answer_form *form, serve_fields *fields, serve_fault *fault);

/* Bytes of memory that a JSON value takes, an upper estimate. */
uint64_t serve_reading_bytes(const json_t *value);

#endif

/* answer/answer.h - reads an answer piece by piece into its thought, its content and its calls of tools.
 *
 * Text comes out as soon as it is certain what it is; a call comes out whole, once it is closed and checked against the tools, because a
 * call that is none must stay content. Pieces may be cut anywhere: the texts that come out, joined, and the calls are the same. It
 * allocates: at most the text of the call that is open. An answer belongs to one thread. Knows no tokens. Read next: answer/grammar.h. */
#ifndef VERBATIM_ANSWER_H
#define VERBATIM_ANSWER_H
#include <jansson.h>
#include "answer/grammar.h"
#include "base/digest.h"
#include "base/strbuf.h"

#define ANSWER_ERROR_BYTES 256u
#define ANSWER_ID_BYTES 320u
#define ANSWER_NAME_BYTES_MAX 256u

typedef struct answer_form { /* how the answers of a request are read; must outlive them */
  const answer_marks *marks;     /* NULL: the model has no thoughts */
  const answer_grammar *grammar; /* NULL: calls are not read */
  const json_t *tools;           /* the request's list; of use with grammar */
  uint32_t calls_max;            /* further calls stay content */
  bool begins_inside;            /* the prompt ends in an open thought */
  bool begins_after;             /* the prompt ends in a closed thought, or within an answer: there is no thought */
  bool is_apart;                 /* the thought is shown as one; else it is content, with its marks */
  digest seed;                   /* of the ids of calls */
} answer_form;

typedef enum answer_kind { ANSWER_THOUGHT, ANSWER_CONTENT } answer_kind;

typedef struct answer_call { /* valid during the callback */
  uint32_t index;            /* 0 for the first call of the answer */
  const char *id;            /* as the model wrote it, if its grammar has ids; else "call_" and 24 digits */
  const char *name;
  const char *arguments;     /* the text of a JSON object */
  size_t arguments_bytes;
} answer_call;

typedef struct answer_sink {
  void *context;
  void (*text)(void *context, answer_kind kind, const char *text, size_t bytes);
  void (*call)(void *context, const answer_call *call);
} answer_sink;

typedef struct answer_thought { /* private to answer/thought.c; zeroed: nothing read */
  uint8_t state;
  bool is_begun;
  size_t blank; /* bytes of white space that `held` begins with */
  strbuf held;  /* what may be white space before a thought, or the beginning of a mark */
} answer_thought;

typedef struct answer_calls { /* private to answer/calls.c; zeroed: nothing read */
  uint8_t step;
  bool is_begun, is_after_call, is_last_text, is_text;
  uint32_t count, section_count, seen; /* calls that came out; calls of this section, also such that stay text; of the answer */
  size_t at, searched, blank;          /* in held: what is read, what was searched for a mark, leading white space */
  size_t name_at, name_bytes, key_at, key_bytes, value_at, object_at, object_bytes;
  uint32_t depth;                      /* of the object that is open */
  bool in_text, is_escaped;
  strbuf held;      /* from the first byte of which it is not certain what it is */
  strbuf arguments; /* of pairs: JSON so far */
  char error[ANSWER_ERROR_BYTES];
} answer_calls;

typedef struct answer_harmony { /* private to answer/harmony.c; zeroed: nothing read */
  uint8_t step;
  bool has_thought, is_new;               /* a thought has begun; nothing of this message is shown */
  bool has_thought_text, has_content;     /* of messages so far */
  uint32_t messages, calls;               /* that ended; that came out */
  size_t searched, name_at, name_bytes, body_at; /* in held: what was searched for an end; of the call that is open */
  uint32_t depth;                         /* of its object */
  bool in_text, is_escaped, is_scanned;   /* is_scanned: the object is closed, or there is none */
  strbuf held;
  char error[ANSWER_ERROR_BYTES];
} answer_harmony;

typedef struct answer_reader { /* zeroed: an answer of which nothing was read. answer_close releases it */
  answer_thought thought;
  answer_calls calls;
  answer_harmony harmony; /* in place of the two, where the form says so */
} answer_reader;

/* The next piece, of any size. */
void answer_push(answer_reader *self, const answer_form *form, const char *text, size_t bytes, const answer_sink *sink);

/* After the last piece. */
void answer_finish(answer_reader *self, const answer_form *form, const answer_sink *sink);
void answer_close(answer_reader *self);

/* Whether a thought has begun; whether it is open still; whether none can go on or begin any more. */
bool answer_has_thought(const answer_reader *self, const answer_form *form);
bool answer_is_inside(const answer_reader *self, const answer_form *form);
bool answer_is_past(const answer_reader *self, const answer_form *form);
uint32_t answer_call_count(const answer_reader *self);
bool answer_failed(const answer_reader *self);      /* out of memory: what came out is incomplete */
const char *answer_error(const answer_reader *self); /* why the first call, or message of harmony, is none; "": there is no such one */

#endif

/* serve/ask.h - one HTTP request for tokens: from its JSON body to the engine's requests, and how far these have come.
 *
 * A body is judged whole before anything is submitted. All memory of an ask but that of its reply is taken when it is parsed. Of a
 * choice the engine thread says how much is ready, under the ask's mutex; the HTTP thread reads what is ready, which no longer changes.
 * Knows neither sockets nor the engine. SERVING.md is normative. Read next: serve/fields.h, serve/reply.h. */
#ifndef VERBATIM_SERVE_ASK_H
#define VERBATIM_SERVE_ASK_H
#include <pthread.h>
#include "base/base.h"
#include "chat/chat.h"
#include "text/detokenizer.h"
#include "serve/fields.h"
#include "text/tokenizer.h"
#include "verbatim.h"

#define SERVE_ASK_ID_BYTES 80u
#define SERVE_ASK_NAME_BYTES 112u
#define SERVE_ASK_BYTES_MAX (1ull << 30) /* of an ask where the model states no other */
#define SERVE_ASK_STOPS_MAX (8u + VERBATIM_STOP_IDS_MAX)

typedef struct serve_model { /* what bodies are judged by; as long as the server */
  const char *name;          /* of a body's "model" */
  const verbatim_info *info;
  const tokenizer *tokenizer;
  const chat *chat;          /* null: no chat */
  const char *fingerprint;   /* system_fingerprint */
  uint32_t choices_max;      /* most prompts x n of a body */
  uint64_t bytes_max;        /* most memory of an ask; 0: SERVE_ASK_BYTES_MAX */
  uint64_t created;          /* of the next reply: seconds since the epoch */
} serve_model;

typedef struct serve_prompt { /* shared by its samples */
  int32_t *ids;
  uint32_t count, max_tokens;
} serve_prompt;

typedef struct serve_cursor { /* what of a choice has been written; zeroed: nothing */
  detokenizer entry_decoder, text_decoder;
  uint64_t characters;     /* of text before the next entry */
  uint64_t text_base;      /* bytes of made text before text_token */
  uint64_t text_written;
  uint32_t entry;          /* the next token of prompt and answer whose log-probability is to be written */
  uint32_t text_token;     /* the next token made that has text to be written */
  bool begun, ended;
} serve_cursor;

typedef struct serve_choice { /* one of the engine's requests; its number is prompt * n + sample */
  verbatim_request request;
  struct serve_ask *ask;
  const serve_prompt *prompt;
  /* Under the ask's mutex. */
  uint32_t tokens_ready, scores_ready;
  uint64_t text_ready; /* bytes of made text that no stop text can begin in: of a stream */
  bool finished;
  /* The HTTP thread's. */
  serve_cursor sent;
} serve_choice;

typedef struct serve_ask {
  enum serve_kind kind;
  bool stream;
  char id[SERVE_ASK_ID_BYTES];
  uint32_t choice_count, prompt_count;
  serve_choice *choices;
  serve_prompt *prompts;
  serve_fields fields;
  uint64_t bytes;       /* of all its memory, its reply's included */
  uint64_t reply_bytes; /* these: estimated, from above for texts as people write them */
  pthread_mutex_t mutex;
  uint32_t finished_count; /* under the mutex */
  /* Set before submission; called on the engine thread, without the mutex held, when there is something new to send (stream), or all
   * choices are finished. */
  void (*on_progress)(struct serve_ask *ask);
  void *owner;
  serve_fault fault; /* by serve_ask_fail, under the mutex: the reply is this error */
  bool failed;
  uint64_t created;      /* of a stream: its first event's */
  uint32_t ended_count;  /* of a stream: choices whose last event is written */
  bool stream_ended;
  void *outputs;
} serve_ask;

/* Judges the whole body. false: fault says why. What it accepts verbatim_submit does too, but for a required axis that the plan excludes,
 * and more KV pages than the plan has. request_id: 1 to 64 characters, unless the body states its own. The ask is of one thread until it is
 * submitted. */
bool serve_ask_parse(const serve_model *m, enum serve_kind kind, const char *body, size_t bytes, const char *request_id, serve_ask **out,
                     serve_fault *fault);
void serve_ask_close(serve_ask *ask); /* null: nothing */

/* On the engine thread, for a choice whose request is finished or was not taken, where no callback says so: requests that end without
 * making a token (deadline, not finite, cancelled, prompts that are only scored) call none. Look after every verbatim_poll. Again:
 * nothing. */
void serve_ask_finished(serve_choice *choice);

/* The first fault stays. Does not call on_progress. */
void serve_ask_fail(serve_ask *ask, const serve_fault *fault);

/* The ids that end the request, ascending, as verbatim_stop_ids gives them. ids: [SERVE_ASK_STOPS_MAX]. */
uint32_t serve_ask_stop_ids(const serve_model *m, const verbatim_request *request, int32_t *ids);

/* Parts of it, for others that take such bodies: the body's "model" is this one; ids of a text, and of what chat_render makes of a body.
 * The ids are the caller's, also of none. param: whose fault it would be. */
bool serve_ask_check_model(const serve_model *m, const json_t *body, serve_fault *fault);
bool serve_ask_encode(const serve_model *m, const char *text, size_t bytes, bool add_special, const char *param, serve_prompt *out,
                      serve_fault *fault);
bool serve_ask_encode_chat(const serve_model *m, const json_t *body, bool add_special, serve_prompt *out, serve_fault *fault);

/* The choice's name in a receipt: the ask's id, and of several choices "#" and their number. Returns name. */
const char *serve_ask_name(const serve_choice *choice, char name[SERVE_ASK_NAME_BYTES]);

#endif

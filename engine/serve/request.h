/* serve/request.h - one HTTP request for tokens: parses its JSON body into engine requests and tracks their progress.
 *
 * A body is checked completely before anything is submitted. All memory except the reply's is allocated while parsing. The engine thread
 * publishes under the mutex how much of a choice is ready; the HTTP thread reads what is ready, which no longer changes. Knows neither
 * sockets nor the engine. SERVING.md is normative. Read next: serve/fields.h, serve/reply.h. */
#ifndef VERBATIM_SERVE_REQUEST_H
#define VERBATIM_SERVE_REQUEST_H
#include <pthread.h>
#include "answer/answer.h"
#include "base/base.h"
#include "chat/chat.h"
#include "text/detokenizer.h"
#include "serve/fields.h"
#include "serve/reading.h"
#include "text/tokenizer.h"
#include "verbatim.h"

#define SERVE_REQUEST_ID_BYTES 80u
#define SERVE_REQUEST_NAME_BYTES 112u
#define SERVE_REQUEST_BYTES_MAX (1ull << 30) /* per request, unless the model states another limit */
#define SERVE_REQUEST_STOPS_MAX (8u + VERBATIM_STOP_IDS_MAX)

typedef struct serve_model { /* what bodies are checked against; lives as long as the server */
  const char *name;          /* the value of a body's "model" */
  const verbatim_info *info;
  const tokenizer *tokenizer;
  const chat *chat;          /* NULL: no chat */
  serve_reading reading;     /* of the answers of chats */
  const char *fingerprint;   /* system_fingerprint */
  const json_t *defaults;    /* fields of bodies that do not set them; NULL: none. max_tokens ends where the context does; stop_token_ids
                              * join a body's own, unless it has ignore_eos */
  uint32_t choices_max;      /* maximum of prompts x n in a body */
  uint64_t bytes_max;        /* maximum memory of a request; 0: SERVE_REQUEST_BYTES_MAX */
  uint64_t created;          /* of the next reply: seconds since the epoch */
} serve_model;

typedef struct serve_prompt { /* shared by its samples */
  int32_t *ids;
  uint32_t count, max_tokens;
} serve_prompt;

typedef struct serve_cursor { /* how far a choice has been written; zeroed: not at all */
  detokenizer entry_decoder, text_decoder;
  answer_reader answer;      /* where answers are read; closed by its owner */
  uint64_t characters;     /* of text before the next entry */
  uint64_t text_base;      /* bytes of generated text before text_token */
  uint64_t text_written;
  uint32_t entry;          /* the next token of prompt and answer whose log-probability is to be written */
  uint32_t text_token;     /* the next generated token whose text is to be written */
  uint32_t thought_tokens; /* up to the one that ends the thought */
  bool begun, ended;
} serve_cursor;

typedef struct serve_choice { /* one engine request; its number is prompt * n + sample */
  verbatim_request engine_request;
  struct serve_request *request;
  const serve_prompt *prompt;
  /* Protected by the mutex. */
  uint32_t tokens_ready, scores_ready;
  uint64_t text_ready; /* streams: bytes of generated text in which no stop text can begin */
  bool finished;
  /* Owned by the HTTP thread. */
  answer_form form; /* of chats: how the answer is read, if the request is_read */
  serve_cursor sent;
  uint32_t thought_tokens;                  /* of the answer, once its last delta is written */
  char tool_call_error[ANSWER_ERROR_BYTES]; /* so, too; "": none */
} serve_choice;

typedef struct serve_request {
  enum serve_kind kind;
  bool stream, is_read; /* is_read: thoughts or calls are looked for in the answers */
  char id[SERVE_REQUEST_ID_BYTES];
  uint32_t choice_count, prompt_count;
  serve_choice *choices;
  serve_prompt *prompts;
  serve_fields fields;
  answer_form form; /* of the choices, without a seed */
  json_t *tools;    /* that form refers to; NULL: none */
  uint64_t bytes;       /* of all its memory, including the reply's */
  uint64_t reply_bytes; /* the reply's share, an upper estimate for ordinary texts */
  pthread_mutex_t mutex;
  uint32_t finished_count; /* protected by the mutex */
  /* Set before submission; called on the engine thread, without the mutex held, when there is something new to send (stream) or all choices
   * have finished. */
  void (*on_progress)(struct serve_request *request);
  void *owner;
  serve_fault fault; /* set by serve_request_fail, under the mutex: the reply is this error */
  bool failed;
  uint64_t created;      /* of a stream's first event */
  uint32_t ended_count;  /* of a stream: choices whose last event is written */
  bool stream_ended;
  void *outputs;
} serve_request;

/* Parses and checks the whole body. False: fault says why. verbatim_submit accepts what this accepts, unless the plan excludes a required
 * axis or has fewer KV pages. request_id: 1 to 64 characters, unless the body states its own. The request belongs to one thread until it is
 * submitted. */
bool serve_request_parse(const serve_model *m, enum serve_kind kind, const char *body, size_t bytes, const char *request_id,
                     serve_request **out, serve_fault *fault);
void serve_request_close(serve_request *request); /* NULL: does nothing */

/* Called on the engine thread for a choice whose request has finished, or was refused, without a callback: requests that end without
 * generating a token (deadline, not finite, cancelled, only scored) call none. Call it after every verbatim_poll; repeated calls do
 * nothing. */
void serve_request_finished(serve_choice *choice);

/* The first fault is kept. Does not call on_progress. */
void serve_request_fail(serve_request *request, const serve_fault *fault);

/* The ids that end the request, ascending, as verbatim_stop_ids returns them. ids: [SERVE_REQUEST_STOPS_MAX]. */
uint32_t serve_request_stop_ids(const serve_model *m, const verbatim_request *engine_request, int32_t *ids);

/* Steps of serve_request_parse for other users of such bodies: checks that the body's "model" is this one; encodes a text, or what
 * chat_render returns for a body. The caller frees the ids, even if there are none. param: the field to name in a fault. */
bool serve_request_check_model(const serve_model *m, const json_t *body, serve_fault *fault);
bool serve_request_encode(const serve_model *m, const char *text, size_t bytes, bool add_special, const char *param, serve_prompt *out,
                      serve_fault *fault);
bool serve_request_encode_chat(const serve_model *m, const json_t *body, bool add_special, json_t *ignored, serve_prompt *out,
                               serve_fault *fault);

/* The choice's name in a receipt: the request's id, followed by "#" and its number if there are several choices. Returns name. */
const char *serve_request_name(const serve_choice *choice, char name[SERVE_REQUEST_NAME_BYTES]);

#endif

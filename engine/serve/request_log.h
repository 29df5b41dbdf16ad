/* serve/request_log.h - the request log: a line of JSON per request for tokens, and that line read back, to be asked again.
 *
 * A line has the body as it was received and, per choice, the digests of the engine's request and of all its results (RECEIPTS.md). It has
 * no
 * header of the request. SERVING.md is normative. Must not know files, sockets or the engine. Read next: serve/request.h. */
#ifndef VERBATIM_SERVE_REQUEST_LOG_H
#define VERBATIM_SERVE_REQUEST_LOG_H
#include <jansson.h>
#include "serve/request.h"
#include "serve/text.h"

typedef struct serve_request_log_entry {
  double time;               /* seconds since the epoch */
  const char *id, *path;
  unsigned http_status;
  const serve_model *model;
  const char *body;          /* [body_bytes] */
  uint64_t body_bytes;
  const serve_request *request; /* all of whose choices have ended; NULL: there are no results */
} serve_request_log_entry;

/* Appends the line. A body that is not UTF-8 becomes null: it was refused. */
void serve_request_log_write(const serve_request_log_entry *entry, serve_text *out);

typedef struct serve_request_log_line { /* points into `object` */
  json_t *object;
  const char *id, *body, *model, *numerics_id; /* body NULL: it was not UTF-8 */
  size_t body_bytes;
  enum serve_kind kind;
  unsigned http_status;
  const json_t *results;     /* a list with an object for each choice; NULL: there are none */
} serve_request_log_line;

/* ERR_USAGE, ERR_FORMAT, ERR_LIMIT: not such a line; it is named by its number. */
status serve_request_log_read(const char *line, size_t bytes, uint32_t number, serve_request_log_line *out);
void serve_request_log_close(serve_request_log_line *self);

typedef enum serve_request_log_verdict { SERVE_LOG_EQUAL, SERVE_LOG_DIFFERS, SERVE_LOG_UNFINISHED } serve_request_log_verdict;

#define SERVE_REQUEST_LOG_TEXT_BYTES 256u

/* Compares a choice that has ended again with its recorded results. UNFINISHED: it was cancelled or late then, or is now. text: what
 * differs, first the recorded value. */
serve_request_log_verdict serve_request_log_compare(const serve_request_log_line *line, const serve_choice *choice, uint32_t index,
                                                    char text[SERVE_REQUEST_LOG_TEXT_BYTES]);

#endif

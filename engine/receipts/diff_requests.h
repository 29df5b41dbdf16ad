/* diff_requests.h - the requests of two files, each with a digest of what the file says of it, and which belongs to which.
 *
 * Requests belong together by their ids and, where an id stands several times, by their order among those; the order of different ids is
 * nothing. Read next: diff_receipt.h, diff_trace.h. */
#ifndef VERBATIM_DIFF_REQUESTS_H
#define VERBATIM_DIFF_REQUESTS_H
#include "base/base.h"
#include "base/digest.h"

#define DIFF_REQUESTS_NONE UINT32_MAX
#define DIFF_REQUESTS_MAX (1u << 22)

typedef struct diff_request {
  char *id;
  uint32_t match;  /* its index in the other file, or DIFF_REQUESTS_NONE */
  bool differs;    /* from that */
  digest contents;
} diff_request;

typedef struct diff_requests { /* in the order of the file; zeroed: empty */
  diff_request *list;
  uint32_t count, room;
} diff_requests;

status diff_requests_add(diff_requests *self, const char *id, digest contents);

/* Sets match, and differs where the contents do. */
status diff_requests_match(diff_requests *a, diff_requests *b);

/* Those that differ; those that the other file lacks; the first that differs, or DIFF_REQUESTS_NONE. */
uint32_t diff_requests_differ(const diff_requests *self);
uint32_t diff_requests_alone(const diff_requests *self);
uint32_t diff_requests_first(const diff_requests *self);
void diff_requests_close(diff_requests *self);

#endif

/* diff_requests.h - pairs the requests of two files; each request carries a digest of what its file says about it.
 *
 * Requests are paired by id. Where an id occurs several times, the n-th occurrence in one file pairs with the n-th in the other; the order
 * of different ids does not matter. Read next: diff_receipt.h, diff_trace.h. */
#ifndef VERBATIM_DIFF_REQUESTS_H
#define VERBATIM_DIFF_REQUESTS_H
#include "base/base.h"
#include "base/digest.h"

#define DIFF_REQUESTS_NONE UINT32_MAX
#define DIFF_REQUESTS_MAX (1u << 22)

typedef struct diff_request {
  char *id;
  uint32_t match;  /* its index in the other file, or DIFF_REQUESTS_NONE */
  bool differs;    /* from its match */
  digest contents;
} diff_request;

typedef struct diff_requests { /* in the order of the file; zeroed: empty */
  diff_request *list;
  uint32_t count, room;
} diff_requests;

status diff_requests_add(diff_requests *self, const char *id, digest contents);

/* Sets `match` of every request, and `differs` where the digests differ. */
status diff_requests_match(diff_requests *a, diff_requests *b);

/* The number of requests that differ; the number that the other file lacks; the index of the first that differs, or DIFF_REQUESTS_NONE. */
uint32_t diff_requests_differ(const diff_requests *self);
uint32_t diff_requests_alone(const diff_requests *self);
uint32_t diff_requests_first(const diff_requests *self);
void diff_requests_close(diff_requests *self);

#endif

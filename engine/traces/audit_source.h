/* audit_source.h - the requests of a trace, one at a time in memory: the digests of their rows, and the values that an audit uses.
 *
 * The trace reader compares every recorded row with its digest, wanted or not. Knows nothing of ops or backends. Read next: traces/file.h,
 * audit.c. */
#ifndef VERBATIM_AUDIT_SOURCE_H
#define VERBATIM_AUDIT_SOURCE_H
#include "base/arena.h"
#include "base/base.h"
#include "traces/file.h"

#define AUDIT_SOURCE_BYTES_MAX (UINT64_C(16) << 30) /* of one request */

enum audit_wanted { AUDIT_WANTED_ROWS = 1, AUDIT_WANTED_EARLIER = 2 }; /* at the requested positions; at all positions up to the last of
                                                                          them */

typedef struct audit_want {
  const uint8_t *point;      /* [points]: enum audit_wanted, or 0                                      */
  uint32_t position_min, position_max;
  uint32_t length, vocab, experts; /* upper bounds of positions, ids and the router's choices          */
  const char *id;            /* id of the requests, null: all                                          */
  bool presence;             /* values are not stored: a non-null pointer says that the trace has them */
} audit_want;

typedef struct audit_row {
  uint32_t position;
  int32_t token;
  const uint64_t *digests;    /* [points] */
  const uint8_t *const *values; /* [points], null: not recorded or not wanted */
} audit_row;

typedef struct audit_request {
  const char *id;
  uint32_t index;        /* number in the trace, from 0 */
  uint32_t count;
  const audit_row *rows; /* [count], positions ascending, none above position_max */
} audit_request;

typedef struct audit_totals { /* of everything read, wanted or not */
  uint64_t requests, tokens, rows, values;
} audit_totals;

typedef struct audit_source audit_source;
/* `want` must outlive the source; its point may be set later, before the first request is read. Errors as for trace_reader_open. */
status audit_source_open(audit_source **out, const char *path, const audit_want *want);
const trace_head *audit_source_head(const audit_source *self);
/* The next wanted request, valid until the next call; *out is null at the end. Errors as for trace_reader_next; ERR_FORMAT: the model has
 * no such token or expert; ERR_LIMIT: a request needs more than AUDIT_SOURCE_BYTES_MAX, or is longer than `length`. */
status audit_source_next(audit_source *self, const audit_request **out);
audit_totals audit_source_total(const audit_source *self);
void audit_source_close(audit_source *self); /* null is allowed */

#endif

/* diff_trace.h - the first difference between two traces: the first request in the first file's order, its first token that differs, and
 * the first op of that token.
 *
 * "First" is by position, then by the order of computation in a token. A wrong number thus shows at the op that made it, before its effects
 * on later tokens and ops. Both files are read several times, front to back, and never held in memory. Knows no output form. Read next:
 * traces/file.h, diff_values.h. */
#ifndef VERBATIM_DIFF_TRACE_H
#define VERBATIM_DIFF_TRACE_H
#include "base/base.h"
#include "receipts/diff_requests.h"
#include "traces/diff_values.h"
#include "traces/file.h"

enum diff_trace_kind {
  DIFF_TRACE_ENDS = 1,  /* one trace has no row at the position */
  DIFF_TRACE_TOKEN = 2, /* the token ids differ                 */
  DIFF_TRACE_POINT = 3  /* an op computed different numbers for the same token */
};

typedef struct diff_trace_first {
  uint32_t request;     /* index in a's list             */
  bool same_question;   /* the request digests are equal */
  enum diff_trace_kind kind;
  uint32_t position;
  uint32_t rows_same;   /* of the request before this one */
  bool has_row[2];      /* of a, b                        */
  int32_t token[2];
  uint32_t points_same; /* POINT: of the row before this one */
  verbatim_point point; /* POINT: in memory of the result    */
  uint64_t digest[2];
  bool has_values[2];   /* POINT: the trace holds the row        */
  diff_values values;   /* compared, if both traces hold the row */
} diff_trace_first;

typedef struct diff_trace { /* zeroed: closed */
  bool same_numerics, same_config, same_weights;
  uint8_t numerics_id[2][16], config_digest[2][16], weights_digest[2][16];
  uint32_t points_compared;
  uint32_t points_alone[2];  /* points that the other file lacks; they are not compared */
  char *alone_name[2];       /* first such point, or null                               */
  diff_requests requests[2];
  uint64_t rows;             /* tokens in a                */
  bool differs;              /* the first line, a request, or the set of requests or points */
  diff_trace_first first;    /* kind 0: no request differs */
} diff_trace;

/* Called from time to time with the number of bytes read. */
typedef void diff_trace_progress(void *context, uint64_t done_bytes, uint64_t total_bytes);

/* ERR_IO, ERR_FORMAT, ERR_LIMIT, ERR_UNSUPPORTED, and ERR_MISMATCH for a damaged file. Close the result in every case. */
status diff_trace_compare(diff_trace *self, const char *path_a, const char *path_b, diff_trace_progress *progress, void *context);
void diff_trace_close(diff_trace *self);

#endif

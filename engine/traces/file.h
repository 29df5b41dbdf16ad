/* traces/file.h - the file of a trace: for each request the digests of every point of every token, and the rows themselves where they
 * were asked for. RECEIPTS.md, "Traces", is normative.
 *
 * Compressed with zstd. Written and read front to back; records of one request stand together, in the order of positions. Equal runs
 * write equal files. Files come from anywhere: the reader is bounded and checks everything. Read next: traces/writer.c,
 * traces/reader.c, common/trace.c, diff_trace.c. */
#ifndef VERBATIM_TRACE_FILE_H
#define VERBATIM_TRACE_FILE_H
#include "base/base.h"
#include "base/digest.h"
#include "verbatim.h"
#include <string.h>

typedef struct trace_head {
  uint8_t numerics_id[16], config_digest[16], weights_digest[16];
  uint32_t point_count;
  const verbatim_point *points; /* [point_count] */
} trace_head;

enum trace_kind {
  TRACE_REQUEST = 1, /* begins a request                                   */
  TRACE_VALUES = 2,  /* a whole row of one point; before the token's ROW   */
  TRACE_ROW = 3,     /* one token: digests of all its points               */
  TRACE_END = 4      /* nothing follows                                    */
};

typedef struct trace_record { /* what belongs to its kind is set */
  enum trace_kind kind;
  const char *id;             /* REQUEST */
  uint8_t request_digest[16]; /* REQUEST */
  uint32_t prompt_count;      /* REQUEST */
  uint32_t position;          /* VALUES, ROW */
  int32_t token;              /* ROW: the id that was fed */
  const uint64_t *digests;    /* ROW: [point_count], 0: the token has no such row */
  uint32_t point;             /* VALUES */
  const void *values;         /* VALUES: as the point's type and count say */
  size_t value_bytes;
} trace_record;

#define TRACE_POINTS_MAX (1u << 16)     /* some times what the largest model has       */
#define TRACE_ROW_BYTES_MAX (16u << 20) /* of a row of values; a row of logits has 1 MB */
#define TRACE_ID_BYTES_MAX 4096u
#define TRACE_MAGIC "\x28\xb5\x2f\xfd" /* of zstd: the first 4 bytes of the file */
#define TRACE_STREAM_MAGIC "VTRACE\r\n"  /* the first bytes of what it holds     */
#define TRACE_STREAM_MAGIC_BYTES 8u
#define TRACE_VERSION 1u

static inline uint64_t trace_row_bytes(const verbatim_point *point) { /* of a row of values */
  return (uint64_t)point->count * (point->type == VERBATIM_POINT_BF16 ? 2 : 4);
}

static inline const char *trace_op_name(const verbatim_point *point) { /* its name without "layer 3 ", as selectors have it */
  bool is_layered = point->layer != UINT32_MAX && strncmp(point->name, "layer ", 6) == 0;
  const char *blank = is_layered ? strchr(point->name + 6, ' ') : NULL;
  return blank ? blank + 1 : point->name;
}

typedef struct trace_writer trace_writer;
status trace_writer_open(trace_writer **out, const char *path, const trace_head *head);
/* Takes every record but TRACE_END, in an order that the reader accepts. A failed write is remembered. */
void trace_writer_add(trace_writer *self, const trace_record *record);
/* Writes TRACE_END and closes the file; self is gone. ERR_IO. */
status trace_writer_close(trace_writer *self);
void trace_writer_abandon(trace_writer *self); /* closes the file as it is, which no reader takes for a whole one; null is allowed */

typedef struct trace_reader trace_reader;
/* ERR_IO, ERR_FORMAT, ERR_LIMIT, ERR_UNSUPPORTED (another version), each naming the file. The second reads a file that is in memory, which
 * stays there. */
status trace_reader_open(trace_reader **out, const char *path);
status trace_reader_view(trace_reader **out, const void *file, size_t bytes);
const trace_head *trace_reader_head(const trace_reader *self);
/* The next record; its memory is valid until the next call. After TRACE_END it is not called again. A file that is cut is ERR_FORMAT, one
 * whose digest is another or whose values do not have theirs ERR_MISMATCH. */
status trace_reader_next(trace_reader *self, trace_record *out);
/* How far it has read, of how many bytes. */
void trace_reader_progress(const trace_reader *self, uint64_t *done_bytes, uint64_t *total_bytes);
void trace_reader_close(trace_reader *self);

#endif

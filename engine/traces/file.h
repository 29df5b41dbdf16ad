/* traces/file.h - the trace file: for each request the digests of every point of every token, and the rows themselves if they were
 * requested. RECEIPTS.md, "Traces", is normative.
 *
 * Compressed with zstd. Written and read front to back; records of one request are contiguous, in the order of positions. Equal runs write
 * equal files. Files are untrusted: the reader is bounded and checks everything. Read next: traces/writer.c, traces/reader.c,
 * common/trace.c, diff_trace.c. */
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

typedef struct trace_record { /* only the fields of its kind are set */
  enum trace_kind kind;
  const char *id;             /* REQUEST */
  uint8_t request_digest[16]; /* REQUEST */
  uint32_t prompt_count;      /* REQUEST */
  uint32_t position;          /* VALUES, ROW */
  int32_t token;              /* ROW: the token id */
  const uint64_t *digests;    /* ROW: [point_count] digests, 0: the token has no such row */
  uint32_t point;             /* VALUES  */
  const void *values;         /* VALUES: numbers by the point's type and count */
  size_t value_bytes;
} trace_record;

#define TRACE_POINTS_MAX (1u << 16)     /* several times the largest model's */
#define TRACE_ROW_BYTES_MAX (16u << 20) /* bytes of a row of values; a row of logits has 1 MB */
#define TRACE_ID_BYTES_MAX 4096u
#define TRACE_MAGIC "\x28\xb5\x2f\xfd" /* of zstd: the first 4 bytes of the file */
#define TRACE_STREAM_MAGIC "VTRACE\r\n"  /* the first bytes of its contents      */
#define TRACE_STREAM_MAGIC_BYTES 8u
#define TRACE_VERSION 1u

static inline uint64_t trace_row_bytes(const verbatim_point *point) { /* of a row of values */
  return (uint64_t)point->count * (point->type == VERBATIM_POINT_BF16 ? 2 : 4);
}

static inline const char *trace_op_name(const verbatim_point *point) { /* a point's name without "layer 3 ", as in selectors */
  bool is_layered = point->layer != UINT32_MAX && strncmp(point->name, "layer ", 6) == 0;
  const char *blank = is_layered ? strchr(point->name + 6, ' ') : NULL;
  return blank ? blank + 1 : point->name;
}

typedef struct trace_writer trace_writer;
status trace_writer_open(trace_writer **out, const char *path, const trace_head *head);
/* Takes every record except TRACE_END, in an order that the reader accepts. A failed write is reported by trace_writer_close. */
void trace_writer_add(trace_writer *self, const trace_record *record);
/* Writes TRACE_END and closes the file; self is gone. ERR_IO. */
status trace_writer_close(trace_writer *self);
void trace_writer_abandon(trace_writer *self); /* closes the file unfinished, so that no reader accepts it as complete; null is allowed */

typedef struct trace_reader trace_reader;
/* ERR_IO, ERR_FORMAT, ERR_LIMIT, ERR_UNSUPPORTED (another version), each naming the file. The second reads a file in memory, which must
 * outlive the reader. */
status trace_reader_open(trace_reader **out, const char *path);
status trace_reader_view(trace_reader **out, const void *file, size_t bytes);
const trace_head *trace_reader_head(const trace_reader *self);
/* The next record; its memory is valid until the next call. Not to be called after TRACE_END. ERR_FORMAT: the file is truncated;
 * ERR_MISMATCH: its digest is wrong, or values do not have their recorded digest. */
status trace_reader_next(trace_reader *self, trace_record *out);
/* Bytes read so far, and in all. */
void trace_reader_progress(const trace_reader *self, uint64_t *done_bytes, uint64_t *total_bytes);
void trace_reader_close(trace_reader *self);

#endif

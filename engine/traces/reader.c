/* traces/reader.c - reads traces: see traces/file.h. It trusts nothing: every count is bounded before memory is allocated for it, and at
 * most one record is held at a time. */
#include "traces/file.h"
#include "base/limits.h"
#include "kernels_src/num.h"
#include "base/input_file.h"
#include "base/utf8.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#define WINDOW_LOG_MAX 23 /* level 3 of the writer takes 21 */

/* === Reading the stream ===================================================================================================== */

struct trace_reader {
  FILE *file;        /* null: a view          */
  char *path;        /* for messages          */
  ZSTD_DCtx *stream;
  ZSTD_inBuffer in;
  uint8_t *room;     /* read buffer of the file; null in a view */
  size_t room_bytes;
  uint8_t *out;      /* [out_bytes], of which [out_at, out_end) is not consumed yet */
  size_t out_bytes, out_at, out_end;
  uint64_t done_bytes, total_bytes;
  bool frame_done;
  digest_state state;
  trace_head head;
  verbatim_point *points; /* [point_room], each name with memory of its own */
  uint32_t point_room;
  char *id;          /* [TRACE_ID_BYTES_MAX + 1] */
  uint64_t *digests; /* [point_count]            */
  uint8_t *values;   /* bytes of the longest row */
  uint64_t *seen;    /* [point_count] digests of the values at position `next`; 0: none */
  uint32_t *marked;  /* [marked_count] points with values at that position, ascending */
  uint32_t marked_count;
  bool in_request, ended;
  uint32_t least;    /* least position that may follow */
  uint32_t pending;  /* position of the values, while marked_count is not 0 */
};

static status wrong(const trace_reader *self, const char *what) {
  return FAIL(ERR_FORMAT, "trace %s: %s; hint: was the file cut or damaged?", self->path, what);
}

/* Reads more of the file once the buffer is used up. At the end of the file the buffer stays empty. */
static status refill_in(trace_reader *self) {
  if (self->in.pos < self->in.size || !self->file) return OK;
  size_t bytes = fread(self->room, 1, self->room_bytes, self->file);
  if (bytes == 0 && ferror(self->file)) return FAIL(ERR_IO, "trace %s: cannot be read: %s", self->path, strerror(errno));
  self->in = (ZSTD_inBuffer){self->room, bytes, 0};
  self->done_bytes += bytes;
  return OK;
}

/* Makes [out_at, out_end) not empty, unless the frame or the file ends. */
static status refill_out(trace_reader *self) {
  while (self->out_at == self->out_end && !self->frame_done) {
    TRY(refill_in(self));
    bool at_end = self->in.pos == self->in.size;
    ZSTD_outBuffer out = {self->out, self->out_bytes, 0};
    size_t left = ZSTD_decompressStream(self->stream, &out, &self->in);
    if (ZSTD_isError(left)) return wrong(self, ZSTD_getErrorName(left));
    self->frame_done = left == 0;
    self->out_at = 0;
    self->out_end = out.pos;
    if (at_end && out.pos == 0) return OK;
  }
  return OK;
}

static status take_undigested(trace_reader *self, void *to, size_t bytes) {
  for (size_t done = 0; done < bytes;) {
    TRY(refill_out(self));
    size_t part = self->out_end - self->out_at;
    if (part == 0) return wrong(self, "it ends too early");
    if (part > bytes - done) part = bytes - done;
    memcpy((uint8_t *)to + done, self->out + self->out_at, part);
    self->out_at += part;
    done += part;
  }
  return OK;
}

static status take(trace_reader *self, void *to, size_t bytes) {
  TRY(take_undigested(self, to, bytes));
  digest_add(&self->state, to, bytes);
  return OK;
}

static status take_u32(trace_reader *self, uint32_t *out) { return take(self, out, sizeof *out); }

/* Reads a text of at most `most` bytes into `text` and appends a NUL. It must be UTF-8 without a NUL. */
static status take_text(trace_reader *self, uint32_t bytes, uint32_t most, char *text) {
  if (bytes > most) return wrong(self, "a text is too long");
  TRY(take(self, text, bytes));
  text[bytes] = 0;
  return strlen(text) == bytes && utf8_valid_bytes((uint8_t *)text, bytes) == bytes ? OK : wrong(self, "a text is not UTF-8");
}

/* === Reading the head ======================================================================================================= */

static status take_point(trace_reader *self) {
  uint32_t fields[6];
  char name[NAME_BYTES_MAX + 1];
  TRY(take(self, fields, sizeof fields));
  verbatim_point p = {.layer = fields[0], .kernel = fields[1], .type = fields[2], .count = fields[3], .of_logits = fields[4] != 0};
  if (p.layer >= LAYERS_MAX && p.layer != UINT32_MAX) return wrong(self, "a point has no possible layer");
  if (p.type > VERBATIM_POINT_U32 || fields[4] > 1) return wrong(self, "a point has no possible type");
  if (p.count == 0 || trace_row_bytes(&p) > TRACE_ROW_BYTES_MAX) return wrong(self, "a point has rows of an impossible size");
  TRY(take_text(self, fields[5], NAME_BYTES_MAX, name));
  char *copy = malloc(fields[5] + 1);
  if (!copy) return FAIL(ERR_LIMIT, "trace: no memory");
  memcpy(copy, name, fields[5] + 1);
  p.name = copy;
  self->points[self->head.point_count++] = p;
  return OK;
}

/* The table grows with its rows, so that a large count alone takes no memory. */
static status grow_points(trace_reader *self) {
  if (self->head.point_count < self->point_room) return OK;
  uint32_t room = self->point_room ? 2 * self->point_room : 64;
  verbatim_point *grown = realloc(self->points, room * sizeof *grown);
  if (!grown) return FAIL(ERR_LIMIT, "trace: no memory");
  self->points = grown;
  self->point_room = room;
  return OK;
}

static status take_points(trace_reader *self, uint32_t count) {
  uint64_t longest = 0;
  if (count == 0 || count > TRACE_POINTS_MAX)
    return FAIL(ERR_LIMIT, "trace %s: expected 1 to %u points, found %u", self->path, TRACE_POINTS_MAX, count);
  while (self->head.point_count < count) {
    TRY(grow_points(self));
    TRY(take_point(self));
    uint64_t bytes = trace_row_bytes(&self->points[self->head.point_count - 1]);
    if (bytes > longest) longest = bytes;
  }
  self->head.points = self->points;
  self->digests = calloc(count, sizeof *self->digests);
  self->seen = calloc(count, sizeof *self->seen);
  self->marked = calloc(count, sizeof *self->marked);
  self->values = malloc(longest);
  self->id = malloc(TRACE_ID_BYTES_MAX + 1);
  return self->digests && self->seen && self->marked && self->values && self->id ? OK : FAIL(ERR_LIMIT, "trace: no memory");
}

static status take_head(trace_reader *self) {
  char magic[TRACE_STREAM_MAGIC_BYTES];
  uint32_t version = 0, count = 0;
  TRY(take(self, magic, sizeof magic));
  if (memcmp(magic, TRACE_STREAM_MAGIC, sizeof magic) != 0) return FAIL(ERR_FORMAT, "%s: expected a trace, found another file", self->path);
  TRY(take_u32(self, &version));
  if (version != TRACE_VERSION)
    return FAIL(ERR_UNSUPPORTED, "trace %s: expected version %u, found %u; hint: record it anew", self->path, TRACE_VERSION, version);
  TRY(take(self, self->head.numerics_id, 16));
  TRY(take(self, self->head.config_digest, 16));
  TRY(take(self, self->head.weights_digest, 16));
  TRY(take_u32(self, &count));
  return take_points(self, count);
}

static status open_reader(trace_reader *self, const char *path) {
  self->path = malloc(strlen(path) + 1);
  self->out_bytes = ZSTD_DStreamOutSize();
  self->out = malloc(self->out_bytes);
  self->stream = ZSTD_createDCtx();
  if (!self->path || !self->out || !self->stream) return FAIL(ERR_LIMIT, "trace: no memory");
  strcpy(self->path, path);
  ZSTD_DCtx_setParameter(self->stream, ZSTD_d_windowLogMax, WINDOW_LOG_MAX);
  digest_start(&self->state);
  if (!self->in.src) {
    self->room_bytes = ZSTD_DStreamInSize();
    if (!(self->room = malloc(self->room_bytes))) return FAIL(ERR_LIMIT, "trace: no memory");
    TRY(input_file_open(path, INPUT_TRACE, &self->file));
    if (fseek(self->file, 0, SEEK_END) == 0) self->total_bytes = (uint64_t)ftell(self->file);
    rewind(self->file);
  }
  TRY(refill_in(self));
  if (self->in.size < 4 || memcmp(self->in.src, TRACE_MAGIC, 4) != 0)
    return input_file_other(path, INPUT_TRACE);
  return take_head(self);
}

static status open_either(trace_reader **out, const char *path, const void *file, size_t bytes) {
  trace_reader *self = calloc(1, sizeof *self);
  if (!self) return FAIL(ERR_LIMIT, "trace: no memory");
  self->in = (ZSTD_inBuffer){file, bytes, 0};
  self->total_bytes = bytes;
  status result = open_reader(self, path);
  if (result == OK) *out = self;
  else trace_reader_close(self);
  return result;
}

status trace_reader_open(trace_reader **out, const char *path) { return open_either(out, path, NULL, 0); }

status trace_reader_view(trace_reader **out, const void *file, size_t bytes) {
  ASSERT(file != NULL);
  return open_either(out, "in memory", file, bytes);
}

const trace_head *trace_reader_head(const trace_reader *self) { return &self->head; }

void trace_reader_progress(const trace_reader *self, uint64_t *done_bytes, uint64_t *total_bytes) {
  *done_bytes = self->file ? self->done_bytes : self->in.pos;
  *total_bytes = self->total_bytes;
}

void trace_reader_close(trace_reader *self) {
  if (!self) return;
  if (self->file) fclose(self->file);
  ZSTD_freeDCtx(self->stream);
  for (uint32_t i = 0; i < self->head.point_count; i++) free((void *)(uintptr_t)self->points[i].name);
  free(self->points);
  free(self->digests);
  free(self->seen);
  free(self->marked);
  free(self->values);
  free(self->room);
  free(self->out);
  free(self->path);
  free(self->id);
  free(self);
}

/* === Reading records ======================================================================================================== */

static status take_request(trace_reader *self, trace_record *r) {
  uint32_t bytes = 0;
  if (self->marked_count) return wrong(self, "values without their row");
  TRY(take_u32(self, &r->prompt_count));
  TRY(take(self, r->request_digest, 16));
  TRY(take_u32(self, &bytes));
  TRY(take_text(self, bytes, TRACE_ID_BYTES_MAX, self->id));
  if (r->prompt_count == 0 || r->prompt_count > LENGTH_MAX) return wrong(self, "a request has an impossible prompt");
  r->id = self->id;
  self->in_request = true;
  self->least = 0;
  return OK;
}

/* Positions ascend; while values wait for their row, only that row's position is accepted. */
static status check_position(const trace_reader *self, uint32_t position) {
  if (!self->in_request) return wrong(self, "a row that belongs to no request");
  if (position < self->least || position >= LENGTH_MAX) return wrong(self, "positions out of order");
  if (self->marked_count && position != self->pending) return wrong(self, "values without their row");
  return OK;
}

/* NUMERICS.md, `row_digest`. */
static uint64_t digest_row(const verbatim_point *point, const uint8_t *row) {
  uint64_t sum = 0;
  for (uint32_t i = 0; i < point->count; i++) {
    uint32_t word = 0;
    if (point->type == VERBATIM_POINT_BF16) memcpy(&word, row + 2 * (size_t)i, 2);
    else memcpy(&word, row + 4 * (size_t)i, 4);
    sum += num_digest_word(i, word);
  }
  return sum;
}

static status take_values(trace_reader *self, trace_record *r) {
  TRY(take_u32(self, &r->position));
  TRY(take_u32(self, &r->point));
  TRY(check_position(self, r->position));
  if (r->point >= self->head.point_count) return wrong(self, "values of no point");
  if (self->marked_count && r->point <= self->marked[self->marked_count - 1]) return wrong(self, "values out of order");
  r->value_bytes = (size_t)trace_row_bytes(&self->points[r->point]);
  TRY(take(self, self->values, r->value_bytes));
  r->values = self->values;
  self->pending = r->position;
  self->seen[self->marked_count] = digest_row(&self->points[r->point], self->values);
  self->marked[self->marked_count++] = r->point;
  return OK;
}

static status take_row(trace_reader *self, trace_record *r) {
  TRY(take_u32(self, &r->position));
  TRY(take(self, &r->token, sizeof r->token));
  TRY(check_position(self, r->position));
  if (r->token < 0 || (uint32_t)r->token >= VOCAB_MAX) return wrong(self, "an impossible token id");
  TRY(take(self, self->digests, self->head.point_count * sizeof *self->digests));
  for (uint32_t i = 0; i < self->marked_count; i++)
    if (self->digests[self->marked[i]] != self->seen[i])
      return FAIL(ERR_MISMATCH, "trace %s: values of \"%s\" at position %" PRIu32 " do not have their digest", self->path,
                  self->points[self->marked[i]].name, r->position);
  r->digests = self->digests;
  self->marked_count = 0;
  self->least = r->position + 1;
  return OK;
}

static status take_end(trace_reader *self) {
  uint8_t found[DIGEST_BYTES];
  digest whole = digest_end(&self->state);
  if (self->marked_count) return wrong(self, "values without their row");
  TRY(take_undigested(self, found, sizeof found));
  if (memcmp(found, whole.bytes, sizeof found) != 0)
    return FAIL(ERR_MISMATCH, "trace %s: its digest is not that of its contents; hint: was the file damaged?", self->path);
  TRY(refill_out(self));
  TRY(refill_in(self));
  if (self->out_at != self->out_end || !self->frame_done) return wrong(self, "it goes on behind its end");
  if (self->in.pos != self->in.size) return wrong(self, "something is behind its end");
  self->ended = true;
  return OK;
}

status trace_reader_next(trace_reader *self, trace_record *out) {
  trace_record r = {0};
  uint32_t kind = 0;
  ASSERT(!self->ended);
  TRY(take_undigested(self, &kind, sizeof kind));
  if (kind == TRACE_END) TRY(take_end(self));
  else digest_add(&self->state, &kind, sizeof kind);
  if (kind == TRACE_REQUEST) TRY(take_request(self, &r));
  else if (kind == TRACE_VALUES) TRY(take_values(self, &r));
  else if (kind == TRACE_ROW) TRY(take_row(self, &r));
  else if (kind != TRACE_END) return wrong(self, "a record of no known kind");
  r.kind = (enum trace_kind)kind;
  *out = r;
  return OK;
}

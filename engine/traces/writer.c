/* traces/writer.c - writes traces: see traces/file.h. One zstd frame around a stream of little-endian fields; the digest at the end covers
 * that stream, so it does not depend on the compressor. Read next: traces/reader.c. */
#include "traces/file.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#define LEVEL 3

struct trace_writer {
  FILE *file;
  char *path;
  ZSTD_CCtx *stream;
  digest_state state;
  uint32_t point_count;
  uint64_t *row_bytes; /* [point_count] digests of values */
  void *out;
  size_t out_bytes;
  int error; /* errno of the first write that failed, or 0 */
};

static void compress(trace_writer *self, const void *data, size_t bytes, ZSTD_EndDirective mode) {
  ZSTD_inBuffer in = {data, bytes, 0};
  size_t left;
  do {
    ZSTD_outBuffer out = {self->out, self->out_bytes, 0};
    left = ZSTD_compressStream2(self->stream, &out, &in, mode);
    ASSERT(!ZSTD_isError(left));
    if (!self->error && fwrite(self->out, 1, out.pos, self->file) != out.pos) self->error = errno ? errno : EIO;
  } while (mode == ZSTD_e_end ? left != 0 : in.pos < in.size);
}

static void put(trace_writer *self, const void *data, size_t bytes) {
  digest_add(&self->state, data, bytes);
  compress(self, data, bytes, ZSTD_e_continue);
}

static void put_u32(trace_writer *self, uint32_t value) { put(self, &value, sizeof value); }

static void put_head(trace_writer *self, const trace_head *head) {
  put(self, TRACE_STREAM_MAGIC, TRACE_STREAM_MAGIC_BYTES);
  put_u32(self, TRACE_VERSION);
  put(self, head->numerics_id, 16);
  put(self, head->config_digest, 16);
  put(self, head->weights_digest, 16);
  put_u32(self, head->point_count);
  for (uint32_t i = 0; i < head->point_count; i++) {
    const verbatim_point *p = &head->points[i];
    const uint32_t fields[] = {p->layer, p->kernel, p->type, p->count, p->of_logits, (uint32_t)strlen(p->name)};
    put(self, fields, sizeof fields);
    put(self, p->name, fields[5]);
  }
}

static status open_writer(trace_writer *self, const char *path, const trace_head *head) {
  ASSERT(head->point_count <= TRACE_POINTS_MAX);
  self->out_bytes = ZSTD_CStreamOutSize();
  self->out = malloc(self->out_bytes);
  self->row_bytes = malloc((head->point_count + 1) * sizeof *self->row_bytes);
  self->path = malloc(strlen(path) + 1);
  self->stream = ZSTD_createCCtx();
  if (!self->out || !self->row_bytes || !self->path || !self->stream) return FAIL(ERR_LIMIT, "trace: no memory");
  ZSTD_CCtx_setParameter(self->stream, ZSTD_c_compressionLevel, LEVEL);
  strcpy(self->path, path);
  self->point_count = head->point_count;
  for (uint32_t i = 0; i < head->point_count; i++) self->row_bytes[i] = trace_row_bytes(&head->points[i]);
  if (!(self->file = fopen(path, "wb"))) return FAIL(ERR_IO, "trace %s: cannot be written: %s", path, strerror(errno));
  digest_start(&self->state);
  put_head(self, head);
  return OK;
}

status trace_writer_open(trace_writer **out, const char *path, const trace_head *head) {
  trace_writer *self = calloc(1, sizeof *self);
  if (!self) return FAIL(ERR_LIMIT, "trace: no memory");
  status result = open_writer(self, path, head);
  if (result == OK) *out = self;
  else trace_writer_abandon(self);
  return result;
}

void trace_writer_add(trace_writer *self, const trace_record *r) {
  put_u32(self, r->kind);
  if (r->kind == TRACE_REQUEST) {
    size_t id_bytes = strlen(r->id);
    ASSERT(id_bytes <= TRACE_ID_BYTES_MAX);
    put_u32(self, r->prompt_count);
    put(self, r->request_digest, 16);
    put_u32(self, (uint32_t)id_bytes);
    put(self, r->id, id_bytes);
  } else if (r->kind == TRACE_VALUES) {
    ASSERT(r->point < self->point_count && r->value_bytes == self->row_bytes[r->point]);
    put_u32(self, r->position);
    put_u32(self, r->point);
    put(self, r->values, r->value_bytes);
  } else {
    ASSERT(r->kind == TRACE_ROW);
    put_u32(self, r->position);
    put(self, &r->token, sizeof r->token);
    put(self, r->digests, self->point_count * sizeof *r->digests);
  }
}

status trace_writer_close(trace_writer *self) {
  const uint32_t kind = TRACE_END;
  digest whole = digest_end(&self->state);
  status result = OK;
  compress(self, &kind, sizeof kind, ZSTD_e_continue);
  compress(self, whole.bytes, sizeof whole.bytes, ZSTD_e_end);
  if (fclose(self->file) != 0 && !self->error) self->error = errno ? errno : EIO;
  self->file = NULL;
  if (self->error) result = FAIL(ERR_IO, "trace %s: could not be written completely: %s", self->path, strerror(self->error));
  trace_writer_abandon(self);
  return result;
}

void trace_writer_abandon(trace_writer *self) {
  if (!self) return;
  if (self->file) fclose(self->file);
  ZSTD_freeCCtx(self->stream);
  free(self->row_bytes);
  free(self->path);
  free(self->out);
  free(self);
}

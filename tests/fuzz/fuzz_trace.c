/* fuzz_trace.c - traces. An input that begins like a zstd file is read as it is; any other is wrapped into a file, with an end record and
 * its digest. An accepted trace gives the same bytes when it is written out again from its records, and these are in order. */
#include "engine/base/digest.h"
#include "engine/traces/file.h"
#include "fuzz.h"
#include <zstd.h>

#define END_BYTES 20u

typedef struct text {
  uint8_t *at;
  size_t count, room;
} text;

static void put(text *to, const void *data, size_t bytes) {
  if (bytes == 0) return;
  if (to->count + bytes > to->room) to->at = realloc(to->at, to->room = 2 * (to->count + bytes));
  ASSERT(to->at != NULL);
  memcpy(to->at + to->count, data, bytes);
  to->count += bytes;
}

static void put_u32(text *to, uint32_t value) { put(to, &value, sizeof value); }

static void put_end(text *to) {
  digest d = digest_of(to->at ? (const void *)to->at : "", to->count);
  put_u32(to, TRACE_END);
  put(to, d.bytes, sizeof d.bytes);
}

static void put_head(text *to, const trace_head *head) {
  put(to, "VTRACE\r\n", 8);
  put_u32(to, 1);
  put(to, head->numerics_id, 16);
  put(to, head->config_digest, 16);
  put(to, head->weights_digest, 16);
  put_u32(to, head->point_count);
  for (uint32_t i = 0; i < head->point_count; i++) {
    const verbatim_point *p = &head->points[i];
    const uint32_t fields[] = {p->layer, p->kernel, p->type, p->count, p->of_logits, (uint32_t)strlen(p->name)};
    ASSERT(p->count && p->type <= VERBATIM_POINT_U32 && trace_row_bytes(p) <= TRACE_ROW_BYTES_MAX);
    put(to, fields, sizeof fields);
    put(to, p->name, fields[5]);
  }
}

static void put_record(text *to, const trace_record *r, const trace_head *head) {
  put_u32(to, r->kind);
  if (r->kind == TRACE_REQUEST) {
    put_u32(to, r->prompt_count);
    put(to, r->request_digest, 16);
    put_u32(to, (uint32_t)strlen(r->id));
    put(to, r->id, strlen(r->id));
  } else if (r->kind == TRACE_VALUES) {
    ASSERT(r->point < head->point_count && r->value_bytes == trace_row_bytes(&head->points[r->point]));
    put_u32(to, r->position);
    put_u32(to, r->point);
    put(to, r->values, r->value_bytes);
  } else {
    put_u32(to, r->position);
    put(to, &r->token, sizeof r->token);
    put(to, r->digests, head->point_count * sizeof *r->digests);
  }
}

/* Reads everything in the file into `to`; false: not a trace. */
static bool read_all(const void *file, size_t bytes, text *to) {
  trace_reader *reader = NULL;
  trace_record r = {0};
  int64_t row = -1, values = -1; /* last position of a row; of values that wait for their row */
  if (!fuzz_is_ok(trace_reader_view(&reader, file, bytes))) {
    ASSERT(reader == NULL);
    return false;
  }
  const trace_head *head = trace_reader_head(reader);
  put_head(to, head);
  bool good = true;
  while (good && r.kind != TRACE_END) {
    good = fuzz_is_ok(trace_reader_next(reader, &r));
    if (!good || r.kind == TRACE_END) break;
    put_record(to, &r, head);
    if (r.kind == TRACE_REQUEST) row = -1;
    if (r.kind == TRACE_VALUES) values = r.position;
    else ASSERT(values < 0 || (r.kind == TRACE_ROW && values == r.position));
    if (r.kind == TRACE_VALUES || r.kind == TRACE_ROW) ASSERT(r.position > row);
    if (r.kind == TRACE_ROW) row = r.position, values = -1;
  }
  ASSERT(!good || values < 0);
  trace_reader_close(reader);
  return good;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  text inner = {0}, again = {0};
  fail_clear();
  if (bytes >= 4 && memcmp(data, TRACE_MAGIC, 4) == 0) {
    read_all(data, bytes, &again);
    free(again.at);
    return 0;
  }
  put(&inner, data, bytes);
  put_end(&inner);
  size_t room = ZSTD_compressBound(inner.count), packed_bytes;
  uint8_t *packed = malloc(room);
  ASSERT(packed != NULL);
  packed_bytes = ZSTD_compress(packed, room, inner.at, inner.count, 1);
  ASSERT(!ZSTD_isError(packed_bytes));
  if (read_all(packed, packed_bytes, &again)) {
    put_end(&again);
    ASSERT(again.count == inner.count && memcmp(again.at, inner.at, inner.count) == 0);
  }
  free(packed);
  free(inner.at);
  free(again.at);
  return 0;
}

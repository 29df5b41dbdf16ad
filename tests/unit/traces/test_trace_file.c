/* test_trace_file.c - traces are read back as they were written, and nothing else is accepted: not a truncation, a flipped bit, an invalid
 * order of records or an impossible field, even with a corrected digest. */
#include "tests/unit/unit.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zstd.h>
#include "engine/traces/file.h"
#include "kernels_src/num.h"

#define BYTES_MAX 4096u
#define HEAD_BYTES 64u /* before the table of points */

static const verbatim_point POINTS[] = {{"embed", UINT32_MAX, 0, VERBATIM_POINT_F32, 2, false},
                                        {"layer 0 o_proj", 0, 4, VERBATIM_POINT_BF16, 3, false},
                                        {"layer 0 router ids", 0, 8, VERBATIM_POINT_U32, 2, false},
                                        {"head", UINT32_MAX, 4, VERBATIM_POINT_F32, 1, true}};
#define POINT_COUNT 4u
static const trace_head HEAD = {.numerics_id = {1, 2}, .config_digest = {3}, .weights_digest = {4}, .point_count = POINT_COUNT,
                                .points = POINTS};
static const float EMBED[2] = {1.5f, -0.0f};
static const uint16_t OUTPUT[3] = {0x3f80, 0x8000, 0x7fc0};

static char path[64];

static uint64_t digest_f32(const float *row, uint32_t count) {
  uint64_t sum = 0;
  for (uint32_t i = 0, word; i < count; i++) memcpy(&word, &row[i], 4), sum += num_digest_word(i, word);
  return sum;
}

static uint64_t digest_bf16(const uint16_t *row, uint32_t count) {
  uint64_t sum = 0;
  for (uint32_t i = 0; i < count; i++) sum += num_digest_word(i, row[i]);
  return sum;
}

/* === Records ================================================================================================================ */

#define RECORDS 9u
static uint64_t digests[3][POINT_COUNT];
static trace_record sound[RECORDS]; /* two requests: rows 0 and 1, the first with values; row 2 */

static void make_records(void) {
  for (uint32_t i = 0; i < 3; i++)
    for (uint32_t k = 0; k < POINT_COUNT; k++) digests[i][k] = num_digest_word(i, k);
  digests[0][0] = digest_f32(EMBED, 2);
  digests[0][1] = digests[2][1] = digest_bf16(OUTPUT, 3);
  digests[0][3] = 0;
  const trace_record list[RECORDS] = {
      {.kind = TRACE_REQUEST, .id = "a \"b\"\n\xc3\xa9", .request_digest = {7}, .prompt_count = 2},
      {.kind = TRACE_VALUES, .position = 0, .point = 0, .values = EMBED, .value_bytes = sizeof EMBED},
      {.kind = TRACE_VALUES, .position = 0, .point = 1, .values = OUTPUT, .value_bytes = sizeof OUTPUT},
      {.kind = TRACE_ROW, .position = 0, .token = 11, .digests = digests[0]},
      {.kind = TRACE_ROW, .position = 1, .token = 12, .digests = digests[1]},
      {.kind = TRACE_REQUEST, .id = "", .request_digest = {8}, .prompt_count = 9},
      {.kind = TRACE_VALUES, .position = 2, .point = 1, .values = OUTPUT, .value_bytes = sizeof OUTPUT},
      {.kind = TRACE_ROW, .position = 2, .token = 13, .digests = digests[2]},
      {.kind = TRACE_END}};
  memcpy(sound, list, sizeof list);
}

static void assert_record(const trace_record *found, const trace_record *expected) {
  assert_int_equal(found->kind, expected->kind);
  assert_int_equal(found->position, expected->position);
  assert_int_equal(found->prompt_count, expected->prompt_count);
  assert_int_equal(found->token, expected->token);
  assert_int_equal(found->point, expected->point);
  assert_int_equal(found->value_bytes, expected->value_bytes);
  assert_memory_equal(found->request_digest, expected->request_digest, 16);
  if (expected->id) assert_string_equal(found->id, expected->id);
  if (expected->digests) assert_memory_equal(found->digests, expected->digests, sizeof digests[0]);
  if (expected->values) assert_memory_equal(found->values, expected->values, expected->value_bytes);
}

/* === Files ================================================================================================================== */

typedef struct bytes { uint8_t at[BYTES_MAX]; size_t count; } bytes;

static bytes read_file(void) {
  bytes b;
  FILE *file = fopen(path, "rb");
  assert_non_null(file);
  b.count = fread(b.at, 1, BYTES_MAX, file);
  fclose(file);
  assert_in_range(b.count, 1, BYTES_MAX - 1);
  return b;
}

/* Writes the records, without END, as a file. */
static bytes write_file(const trace_record *list, uint32_t count) {
  trace_writer *writer;
  assert_int_equal(trace_writer_open(&writer, path, &HEAD), OK);
  for (uint32_t i = 0; i < count; i++) trace_writer_add(writer, &list[i]);
  assert_int_equal(trace_writer_close(writer), OK);
  return read_file();
}

/* The decompressed content; the digest is its last 16 bytes. */
static bytes unpack(const bytes *file) {
  bytes inner = {.count = 0};
  ZSTD_DCtx *context = ZSTD_createDCtx();
  ZSTD_inBuffer in = {file->at, file->count, 0};
  ZSTD_outBuffer out = {inner.at, BYTES_MAX, 0};
  assert_int_equal(ZSTD_decompressStream(context, &out, &in), 0);
  ZSTD_freeDCtx(context);
  inner.count = out.pos;
  return inner;
}

/* A file of these bytes, with a correct digest. */
static bytes pack(bytes inner) {
  bytes file;
  if (inner.count >= 20) {
    digest d = digest_of(inner.at, inner.count - 20);
    memcpy(inner.at + inner.count - 16, d.bytes, 16);
  }
  file.count = ZSTD_compress(file.at, BYTES_MAX, inner.at, inner.count, 3);
  assert_false(ZSTD_isError(file.count));
  return file;
}

/* Reads to the end, or to the first error. expected: the records that must come, up to an error; or null. The copy ends where the file
 * does, so that every read after its end is noticed. */
static status read_all(const bytes *file, const trace_record *expected) {
  trace_reader *reader = NULL;
  trace_record record = {0};
  uint8_t *copy = malloc(file->count + 1);
  assert_non_null(copy);
  memcpy(copy, file->at, file->count);
  fail_clear();
  status result = trace_reader_view(&reader, copy, file->count);
  for (uint32_t i = 0; result == OK && record.kind != TRACE_END; i++) {
    result = trace_reader_next(reader, &record);
    if (result == OK && expected) assert_record(&record, &expected[i]);
  }
  if (result != OK) assert_int_not_equal(fail_text()[0], 0);
  trace_reader_close(reader);
  free(copy);
  return result;
}

/* === Tests ================================================================================================================== */

static void what_is_written_is_read(void **state) {
  (void)state;
  bytes file = write_file(sound, RECORDS - 1), again = write_file(sound, RECORDS - 1);
  assert_int_equal(file.count, again.count);
  assert_memory_equal(file.at, again.at, file.count);
  assert_int_equal(read_all(&file, sound), OK);
  trace_reader *reader;
  assert_int_equal(trace_reader_open(&reader, path), OK);
  const trace_head *head = trace_reader_head(reader);
  assert_int_equal(head->point_count, POINT_COUNT);
  assert_memory_equal(head->numerics_id, HEAD.numerics_id, 48);
  for (uint32_t i = 0; i < POINT_COUNT; i++) {
    const verbatim_point *p = &head->points[i], *q = &POINTS[i];
    assert_string_equal(p->name, q->name);
    assert_true(p->layer == q->layer && p->kernel == q->kernel && p->type == q->type && p->count == q->count &&
                p->of_logits == q->of_logits);
  }
  for (uint32_t i = 0; i < RECORDS; i++) {
    trace_record record;
    assert_int_equal(trace_reader_next(reader, &record), OK);
    assert_record(&record, &sound[i]);
  }
  uint64_t done, total;
  trace_reader_progress(reader, &done, &total);
  assert_true(done == file.count && total == file.count);
  trace_reader_close(reader);
  file = write_file(NULL, 0); /* no request at all */
  assert_int_equal(read_all(&file, &sound[RECORDS - 1]), OK);
}

/* Rows much longer than the buffers of reader and writer. */
static void large_rows(void **state) {
  (void)state;
  static uint32_t row[300000], zeros[300000];
  const verbatim_point wide = {"wide", 5, 4, VERBATIM_POINT_U32, 300000, false};
  const trace_head head = {.point_count = 1, .points = &wide};
  trace_writer *writer;
  trace_reader *reader;
  trace_record record;
  uint64_t sum[2] = {0};
  for (uint32_t i = 0; i < 300000; i++) row[i] = (uint32_t)num_digest_word(i, 9), sum[0] += num_digest_word(i, row[i]);
  for (uint32_t i = 0; i < 300000; i++) sum[1] += num_digest_word(i, 0);
  assert_int_equal(trace_writer_open(&writer, path, &head), OK);
  trace_writer_add(writer, &sound[0]);
  for (uint32_t i = 0; i < 6; i++) {
    trace_writer_add(writer, &(trace_record){.kind = TRACE_VALUES, .position = i, .values = i % 2 ? zeros : row,
                                             .value_bytes = sizeof row});
    trace_writer_add(writer, &(trace_record){.kind = TRACE_ROW, .position = i, .digests = &sum[i % 2]});
  }
  assert_int_equal(trace_writer_close(writer), OK);
  assert_int_equal(trace_reader_open(&reader, path), OK);
  assert_int_equal(trace_reader_next(reader, &record), OK);
  for (uint32_t i = 0; i < 6; i++) {
    assert_int_equal(trace_reader_next(reader, &record), OK);
    assert_memory_equal(record.values, i % 2 ? zeros : row, sizeof row);
    assert_int_equal(trace_reader_next(reader, &record), OK);
    assert_int_equal(record.kind, TRACE_ROW);
  }
  assert_int_equal(trace_reader_next(reader, &record), OK);
  assert_int_equal(record.kind, TRACE_END);
  trace_reader_close(reader);
}

static void every_cut_is_refused(void **state) {
  (void)state;
  bytes file = write_file(sound, RECORDS - 1), inner = unpack(&file);
  for (bytes cut = file; cut.count-- > 0;) {
    status result = read_all(&cut, sound);
    if (result != ERR_FORMAT) fail_msg("%zu bytes: code %d", cut.count, result);
  }
  for (bytes cut = inner; cut.count-- > 0;) { /* inside, under a sound frame */
    bytes packed = {.count = 0};
    packed.count = ZSTD_compress(packed.at, BYTES_MAX, cut.at, cut.count, 3);
    status result = read_all(&packed, sound);
    if (result != ERR_FORMAT) fail_msg("%zu bytes inside: code %d", cut.count, result);
  }
  bytes longer = file;
  longer.at[longer.count++] = 0;
  assert_int_equal(read_all(&longer, sound), ERR_FORMAT);
  longer = inner;
  longer.at[longer.count++] = 0;
  bytes packed = {.count = 0};
  packed.count = ZSTD_compress(packed.at, BYTES_MAX, longer.at, longer.count, 3);
  assert_int_equal(read_all(&packed, sound), ERR_FORMAT);
}

/* Flips in the file: refused, or the same records. In its contents, without a new digest: refused. With one: any valid trace. */
static void every_flip_is_seen(void **state) {
  (void)state;
  bytes file = write_file(sound, RECORDS - 1), inner = unpack(&file);
  uint32_t same = 0, resealed = 0;
  for (size_t bit = 0; bit < 8 * file.count; bit++) {
    bytes flipped = file;
    flipped.at[bit / 8] ^= (uint8_t)(1u << bit % 8);
    same += read_all(&flipped, NULL) == OK && read_all(&flipped, sound) == OK;
  }
  assert_in_range(same, 0, 32); /* other valid window sizes, and bits that zstd ignores */
  for (size_t bit = 0; bit < 8 * inner.count; bit++) {
    bytes flipped = inner, packed = {.count = 0};
    flipped.at[bit / 8] ^= (uint8_t)(1u << bit % 8);
    packed.count = ZSTD_compress(packed.at, BYTES_MAX, flipped.at, flipped.count, 1);
    if (read_all(&packed, NULL) == OK) fail_msg("bit %zu of byte %zu inside is not seen", bit % 8, bit / 8);
    packed = pack(flipped);
    resealed += read_all(&packed, NULL) == OK;
  }
  assert_in_range(resealed, 16 * 8, 8 * inner.count - 64 * 8); /* digests may have any value; values, kinds and sizes may not */
}

static void orders_that_are_refused(void **state) {
  (void)state;
  static const struct { uint8_t order[6]; uint32_t count; } CASES[] = {
      {{3}, 1}, {{1}, 1},          /* no request */
      {{0, 4, 3}, 3},              /* positions descend */
      {{0, 4, 4}, 3},              /* or stay */
      {{0, 3, 1, 3}, 4},           /* values after their row */
      {{0, 2, 1, 3}, 4},           /* points descend */
      {{0, 1, 1, 3}, 4},           /* or stay */
      {{0, 1, 2}, 3},              /* values without a row at the end */
      {{0, 1, 5, 3}, 4},           /* or of the request */
      {{0, 1, 4}, 3},              /* or the row of another position */
      {{0, 1, 6, 7}, 4}};          /* values of two positions */
  for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
    trace_record list[6];
    for (uint32_t k = 0; k < CASES[i].count; k++) list[k] = sound[CASES[i].order[k]];
    bytes file = write_file(list, CASES[i].count);
    status result = read_all(&file, NULL);
    if (result != ERR_FORMAT) fail_msg("case %zu: code %d", i, result);
  }
}

static void wrong_values_are_seen(void **state) {
  (void)state;
  trace_record list[RECORDS];
  float other[2] = {1.5f, 0.0f}; /* a zero of the other sign */
  memcpy(list, sound, sizeof list);
  list[1].values = other;
  bytes file = write_file(list, RECORDS - 1);
  assert_int_equal(read_all(&file, NULL), ERR_MISMATCH);
  assert_non_null(strstr(fail_text(), "\"embed\" at position 0"));
}

static void impossible_fields(void **state) {
  (void)state;
  bytes file = write_file(sound, RECORDS - 1), inner = unpack(&file);
  static const struct { size_t at; uint32_t value; status expected; } CASES[] = {
      {0, 0, ERR_FORMAT},                                         /* magic */
      {8, 2, ERR_UNSUPPORTED},                                    /* version */
      {60, 0, ERR_LIMIT}, {60, UINT32_MAX, ERR_LIMIT},            /* points */
      {60, TRACE_POINTS_MAX, ERR_FORMAT},                         /* as many as allowed: the table ends */
      {HEAD_BYTES, 1000, ERR_FORMAT},                             /* layer */
      {HEAD_BYTES + 8, 3, ERR_FORMAT},                            /* type */
      {HEAD_BYTES + 12, 0, ERR_FORMAT}, {HEAD_BYTES + 12, 1u << 31, ERR_FORMAT}, /* count */
      {HEAD_BYTES + 16, 2, ERR_FORMAT},                           /* of_logits */
      {HEAD_BYTES + 20, 300, ERR_FORMAT},                         /* length of a name */
      {HEAD_BYTES + 24, 0x00414141, ERR_FORMAT},                  /* a NUL in it */
      {HEAD_BYTES + 24, 0xc3c3c3c3, ERR_FORMAT}};                 /* not UTF-8 */
  for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
    bytes changed = inner;
    memcpy(changed.at + CASES[i].at, &CASES[i].value, 4);
    changed = pack(changed);
    status result = read_all(&changed, NULL);
    if (result != CASES[i].expected) fail_msg("case %zu: code %d: %s", i, result, fail_text());
  }
  bytes unchanged = pack(inner); /* the control of `pack` */
  assert_int_equal(read_all(&unchanged, sound), OK);
}

/* A frame that asks for more memory than any trace needs. */
static void large_windows_are_refused(void **state) {
  (void)state;
  bytes file = write_file(sound, RECORDS - 1), inner = unpack(&file);
  for (int log = 20; log <= 27; log += 7) {
    bytes packed;
    ZSTD_CCtx *context = ZSTD_createCCtx();
    ZSTD_inBuffer in = {inner.at, inner.count, 0};
    ZSTD_outBuffer out = {packed.at, BYTES_MAX, 0};
    ZSTD_CCtx_setParameter(context, ZSTD_c_windowLog, log);
    assert_false(ZSTD_isError(ZSTD_compressStream2(context, &out, &in, ZSTD_e_flush))); /* so that the frame does not state its size */
    assert_int_equal(ZSTD_compressStream2(context, &out, &in, ZSTD_e_end), 0);
    ZSTD_freeCCtx(context);
    packed.count = out.pos;
    assert_int_equal(read_all(&packed, sound), log == 20 ? OK : ERR_FORMAT);
  }
}

static void files_that_are_none(void **state) {
  (void)state;
  trace_reader *reader = NULL;
  trace_writer *writer = NULL;
  fail_clear();
  assert_int_equal(trace_reader_open(&reader, "/nonexistent/trace"), ERR_IO);
  fail_clear();
  assert_int_equal(trace_reader_open(&reader, "/dev/null"), ERR_IO);
  fail_clear();
  assert_int_equal(trace_reader_open(&reader, "README.md"), ERR_FORMAT);
  assert_non_null(strstr(fail_text(), "README.md"));
  fail_clear();
  assert_int_equal(trace_writer_open(&writer, "/nonexistent/trace", &HEAD), ERR_IO);
  if (access("/dev/full", W_OK) != 0) return;
  fail_clear();
  assert_int_equal(trace_writer_open(&writer, "/dev/full", &HEAD), OK);
  for (uint32_t i = 0; i + 1 < RECORDS; i++) trace_writer_add(writer, &sound[i]);
  assert_int_equal(trace_writer_close(writer), ERR_IO);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(what_is_written_is_read), cmocka_unit_test(large_rows),
                                     cmocka_unit_test(every_cut_is_refused), cmocka_unit_test(every_flip_is_seen),
                                     cmocka_unit_test(orders_that_are_refused), cmocka_unit_test(wrong_values_are_seen),
                                     cmocka_unit_test(impossible_fields), cmocka_unit_test(large_windows_are_refused),
                                     cmocka_unit_test(files_that_are_none)};
  snprintf(path, sizeof path, "/tmp/verbatim-trace-%ld", (long)getpid());
  make_records();
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  unlink(path);
  return failed;
}

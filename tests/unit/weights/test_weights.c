/* test_weights.c - tensors into REGION_WEIGHTS: copies, slices, batches, transposes; mismatches are refused; the digest depends only on the
 * tensors that are used; neither threads nor staging slots change a byte.
 * Read next: late_gpu.h, test_weights_scaled.c. */
#include "tests/unit/unit.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "engine/weights/weights.h"
#include "late_gpu.h"

#define ROWS 12u
#define COLS 70u /* beyond the transpose's tile */
#define DATA_BYTES (2u * ROWS * COLS + 4u * COLS + 8u)

static const char STRINGS[] = "matrix\0vector\0other"; /* at 0, 7, 14 */
enum { MATRIX = 0, VECTOR = 7, OTHER = 14 };

typedef struct fixture {
  uint8_t file[8 + 1024 + DATA_BYTES];
  size_t bytes;
  const uint8_t *matrix, *vector;
  safetensors *set;
  uint8_t memory[65536];
} fixture;

/* matrix BF16 [ROWS][COLS], vector F32 [COLS], extra I64 [1] */
static void make(fixture *f, const char *matrix_shape, uint8_t salt) {
  char header[1024];
  int length = snprintf(header, sizeof header,
                        "{\"matrix\":{\"dtype\":\"BF16\",\"shape\":%s,\"data_offsets\":[0,%u]},\"vector\":{\"dtype\":\"F32\","
                        "\"shape\":[%u],\"data_offsets\":[%u,%u]},\"extra\":{\"dtype\":\"I64\",\"shape\":[1],\"data_offsets\":[%u,%u]}}",
                        matrix_shape, 2 * ROWS * COLS, COLS, 2 * ROWS * COLS, 2 * ROWS * COLS + 4 * COLS,
                        2 * ROWS * COLS + 4 * COLS, DATA_BYTES);
  memset(f, 0, sizeof *f);
  for (int i = 0; i < 8; i++) f->file[i] = (uint8_t)((uint64_t)length >> (8 * i));
  memcpy(f->file + 8, header, (size_t)length);
  f->matrix = f->file + 8 + length;
  f->vector = f->matrix + 2 * ROWS * COLS;
  for (uint32_t i = 0; i < DATA_BYTES; i++) f->file[8 + length + (int)i] = (uint8_t)(i * 7 + i / 256 + (i < DATA_BYTES - 8 ? salt : 0));
  f->bytes = 8 + (size_t)length + DATA_BYTES;
  fail_clear();
  if (safetensors_view(&f->set, f->file, f->bytes) != OK) fail_msg("%s", fail_text());
}

static status load(fixture *f, const plan_tensor *tensors, uint32_t count, weights_report *report) {
  plan_header header = {.model = {.layers = 2}};
  plan p = {.header = &header, .tensors = tensors, .tensor_count = count, .strings = STRINGS};
  weights_target target = {.ranks = 1, .address = {(uint64_t)(uintptr_t)f->memory}};
  fail_clear();
  return weights_load(&p, f->set, &target, NULL, NULL, report);
}

static plan_tensor whole_matrix(uint64_t offset) {
  return (plan_tensor){.name = MATRIX, .dtype = DTYPE_BF16, .rows = ROWS, .cols = COLS, .row_count = ROWS, .batches = 1,
                       .scale_name = PLAN_NO_SCALE, .offset = offset};
}

static plan_tensor whole_vector(uint64_t offset) {
  return (plan_tensor){.name = VECTOR, .dtype = DTYPE_F32, .rows = 1, .cols = COLS, .row_count = 1, .batches = 1,
                       .scale_name = PLAN_NO_SCALE, .offset = offset};
}

static void copies(void **state) {
  (void)state;
  static fixture f;
  make(&f, "[12,70]", 0);
  plan_tensor t[3] = {whole_matrix(0), whole_matrix(4096), whole_matrix(32768)};
  t[1].row0 = 1, t[1].row_count = 2, t[1].row_step = 4, t[1].batches = 3; /* rows 1,2, 5,6, 9,10 */
  t[2] = whole_vector(32768);
  weights_report report;
  assert_int_equal(load(&f, t, 3, &report), OK);
  assert_memory_equal(f.memory, f.matrix, 2 * ROWS * COLS);
  for (uint32_t batch = 0; batch < 3; batch++)
    assert_memory_equal(f.memory + 4096 + batch * 4 * COLS, f.matrix + (1 + 4 * batch) * 2 * COLS, 4 * COLS);
  assert_int_equal(f.memory[4096 + 12 * COLS], 0); /* nothing beyond the six rows */
  assert_memory_equal(f.memory + 32768, f.vector, 4 * COLS);
  assert_int_equal(report.source_count, 2);
  assert_int_equal(report.unused_count, 1);
  assert_string_equal(report.unused_first, "extra");
  safetensors_close(f.set);
}

static void transposes(void **state) {
  (void)state;
  static fixture f;
  make(&f, "[12,70]", 0);
  plan_tensor t = whole_matrix(0);
  t.row0 = 2, t.row_count = 3, t.row_step = 5, t.batches = 2, t.transform = TRANSFORM_TRANSPOSE;
  weights_report report;
  assert_int_equal(load(&f, &t, 1, &report), OK);
  for (uint32_t batch = 0; batch < 2; batch++)
    for (uint32_t col = 0; col < COLS; col++)
      for (uint32_t row = 0; row < 3; row++)
        assert_memory_equal(f.memory + 2 * ((batch * COLS + col) * 3 + row), f.matrix + 2 * ((2 + 5 * batch + row) * COLS + col), 2);
  safetensors_close(f.set);
}

static digest digest_for(uint8_t salt, bool twice) {
  static fixture f;
  make(&f, "[12,70]", salt);
  plan_tensor t[2] = {whole_matrix(0), whole_matrix(8192)};
  weights_report report;
  assert_int_equal(load(&f, t, twice ? 2 : 1, &report), OK);
  safetensors_close(f.set);
  return report.digest;
}

static void digests(void **state) {
  (void)state;
  digest a = digest_for(0, false), same = digest_for(0, true), other = digest_for(1, false);
  assert_memory_equal(a.bytes, same.bytes, DIGEST_BYTES);
  assert_memory_not_equal(a.bytes, other.bytes, DIGEST_BYTES);
}

typedef struct visits {
  uint32_t count;
  char names[4][16];
  digest data[4];
} visits;

static void visit(void *context, const char *name, const safetensor *tensor, const digest *data, const sha256 *strong) {
  (void)strong;
  visits *v = context;
  assert_true(v->count < 4 && tensor->bytes > 0);
  snprintf(v->names[v->count], sizeof v->names[0], "%s", name);
  v->data[v->count++] = *data;
}

/* The same digest without loading, from the content of each tensor; errors are the same, and then no digest is reported. */
static void reading_gives_the_digest_of_loading(void **state) {
  (void)state;
  static fixture f;
  make(&f, "[12,70]", 3);
  plan_tensor t[3] = {whole_matrix(0), whole_matrix(8192), whole_vector(32768)};
  t[1].row_count = 3, t[1].transform = TRANSFORM_TRANSPOSE;
  weights_report loaded, read;
  visits seen = {0};
  assert_int_equal(load(&f, t, 3, &loaded), OK);
  plan_header header = {.model = {.layers = 2}};
  plan p = {.header = &header, .tensors = t, .tensor_count = 3, .strings = STRINGS};
  memset(f.memory, 0x5a, sizeof f.memory);
  assert_int_equal(weights_digest(&p, f.set, 2, false, NULL, visit, &seen, &read), OK);
  assert_memory_equal(read.digest.bytes, loaded.digest.bytes, DIGEST_BYTES);
  for (size_t i = 0; i < sizeof f.memory; i++) assert_int_equal(f.memory[i], 0x5a);
  assert_true(seen.count == 2 && read.source_count == 2 && read.source_bytes == loaded.source_bytes && read.unused_count == 1);
  assert_string_equal(seen.names[0], "matrix");
  assert_string_equal(seen.names[1], "vector");
  digest matrix = digest_of(f.matrix, 2 * ROWS * COLS), vector = digest_of(f.vector, 4 * COLS);
  assert_memory_equal(seen.data[0].bytes, matrix.bytes, DIGEST_BYTES);
  assert_memory_equal(seen.data[1].bytes, vector.bytes, DIGEST_BYTES);
  t[0].name = OTHER;
  fail_clear();
  assert_int_equal(weights_digest(&p, f.set, 2, false, NULL, visit, &seen, &read), ERR_FORMAT);
  assert_int_equal(seen.count, 2);
  safetensors_close(f.set);
}

static void expect_refused(const char *shape, plan_tensor t, const char *word) {
  static fixture f;
  weights_report report;
  make(&f, shape, 0);
  status result = load(&f, &t, 1, &report);
  if (result != ERR_FORMAT || !strstr(fail_text(), word)) fail_msg("expected \"%s\" in \"%s\"", word, fail_text());
  safetensors_close(f.set);
}

static void mismatches(void **state) {
  (void)state;
  plan_tensor codes = whole_matrix(0);
  codes.dtype = DTYPE_E4M3;
  plan_tensor widened = whole_matrix(0), missing = whole_matrix(0);
  widened.dtype = DTYPE_F32; /* converted to fp32 while it is copied */
  widened.transform = TRANSFORM_TRANSPOSE;
  missing.name = OTHER;
  expect_refused("[70,12]", whole_matrix(0), "expected BF16 [12][70], found BF16 [70][12]; hint: was the plan");
  expect_refused("[840]", whole_matrix(0), "found BF16 [840]");
  expect_refused("[12,70,1]", whole_matrix(0), "found BF16 [12][70][1]");
  expect_refused("[12,70]", widened, "expected F32");
  expect_refused("[12,70]", codes, "expected F8_E4M3 [12][70], found BF16 [12][70]; hint: config.json's quantization_config");
  expect_refused("[12,70]", missing, "lack 1 tensors of the plan: other");
}

/* fp32 numbers are taken for bf16 where they are bf16 numbers: whole, and in slices that are transposed. Any other is named. */
static void f32_is_narrowed_exactly(void **state) {
  (void)state;
  static fixture f;
  weights_report report;
  plan_tensor t[2] = {whole_vector(0), whole_vector(4096)};
  t[0].dtype = t[1].dtype = DTYPE_BF16;
  t[1].transform = TRANSFORM_TRANSPOSE;
  make(&f, "[12,70]", 0);
  uint8_t *vector = f.file + (f.vector - f.file);
  uint16_t expected[COLS];
  for (uint32_t i = 0; i < COLS; i++) {
    memset(vector + 4 * i, 0, 2);
    memcpy(&expected[i], vector + 4 * i + 2, 2);
  }
  if (load(&f, t, 2, &report) != OK) fail_msg("%s", fail_text());
  assert_memory_equal(f.memory, expected, sizeof expected);
  assert_memory_equal(f.memory + 4096, expected, sizeof expected);
  assert_int_equal(f.memory[sizeof expected], 0);
  memcpy(vector + 4 * 33, &(float){1.0009765625f}, 4);
  assert_int_equal(load(&f, t, 1, &report), ERR_UNSUPPORTED);
  assert_non_null(strstr(fail_text(), "tensor vector: F32"));
  assert_non_null(strstr(fail_text(), "element 33 is 1.00097656"));
  t[1].dtype = DTYPE_F32;
  t[1].transform = TRANSFORM_COPY;
  assert_int_equal(load(&f, t, 2, &report), ERR_FORMAT); /* both formats of one tensor */
  safetensors_close(f.set);
}

/* === Many tensors =========================================================================================================== */

#define MANY 150u
#define MANY_FILE_BYTES (4u << 20)
#define SLOT_BYTES 4096u

typedef struct many {
  char strings[MANY * 32];
  uint8_t *file, *expected, *memory; /* the last two: the region */
  size_t file_bytes;
  uint64_t region_bytes;
  plan_tensor uses[2 * MANY];
  uint32_t use_count;
  uint32_t source_rows[MANY], source_cols[MANY], source_dtype[MANY], source_name[MANY];
  uint64_t source_at[MANY]; /* in the file's data */
  safetensors *set;
  const uint8_t *data;
  digest digest; /* as weights.h defines it */
} many;

static uint32_t random_below(uint32_t *state, uint32_t limit) {
  *state = *state * 1664525u + 1013904223u;
  return (*state >> 8) % limit;
}

/* The definition of plan/format.h, one element at a time. item: bytes of an element in the file; in the plan they come last. */
static void expect_use(many *m, const plan_tensor *t, const uint8_t *source, uint64_t item) {
  uint64_t plan_item = plan_dtype_bytes(t->dtype), at = t->offset;
  uint64_t outer = t->transform == TRANSFORM_COPY ? t->row_count : t->cols, inner = t->transform == TRANSFORM_COPY ? t->cols : t->row_count;
  for (uint64_t batch = 0; batch < t->batches; batch++)
    for (uint64_t i = 0; i < outer; i++)
      for (uint64_t j = 0; j < inner; j++, at += plan_item) {
        uint64_t row = t->row0 + batch * t->row_step + (t->transform == TRANSFORM_COPY ? i : j);
        uint64_t col = t->transform == TRANSFORM_COPY ? j : i;
        memcpy(m->expected + at + plan_item - item, source + (row * t->cols + col) * item, item);
      }
}

static void add_use(many *m, plan_tensor t) {
  t.offset = m->region_bytes;
  m->region_bytes += align_up(plan_tensor_bytes(&t), 256);
  m->uses[m->use_count++] = t;
}

/* Sources of 2 bytes for many slots; every third one is sliced, transposed, or both; some are fp32 only in the plan. */
static void plan_source(many *m, uint32_t i, uint32_t *state) {
  bool cut = i % 3 == 2;
  uint32_t batches = cut ? 1 + random_below(state, 5) : 1, nope = 1 + random_below(state, 40), value = 1 + random_below(state, 40);
  uint32_t cols = 1 + random_below(state, i % 10 == 0 ? 700 : 60), rows = cut ? batches * (nope + value) : 1 + random_below(state, 90);
  if (i == 9) rows = 400, cols = 500; /* more than one read */
  m->source_rows[i] = rows, m->source_cols[i] = cols, m->source_dtype[i] = i % 4 == 1 ? DTYPE_F32 : DTYPE_BF16;
  plan_tensor t = {.name = m->source_name[i], .dtype = m->source_dtype[i], .rows = rows, .cols = cols, .row_count = rows, .row_step = rows,
                   .batches = 1, .scale_name = PLAN_NO_SCALE};
  if (i % 8 == 5 && !cut) m->source_dtype[i] = DTYPE_BF16;
  if (!cut) {
    add_use(m, t);
    return;
  }
  t.row_count = nope, t.row_step = nope + value, t.batches = batches, t.transform = TRANSFORM_TRANSPOSE;
  add_use(m, t);
  t.row0 = nope, t.row_count = value, t.transform = TRANSFORM_COPY;
  add_use(m, t);
}

static void expect_digest(many *m) {
  digest_state state;
  digest_start(&state);
  for (uint32_t i = 0; i < MANY; i++) {
    const char *name = m->strings + m->source_name[i], *dtype = m->source_dtype[i] == DTYPE_F32 ? "F32" : "BF16";
    uint64_t shape[2] = {m->source_rows[i], m->source_cols[i]};
    uint32_t rank = 2;
    digest data = digest_of(m->data + m->source_at[i], shape[0] * shape[1] * plan_dtype_bytes(m->source_dtype[i]));
    digest_add(&state, name, strlen(name) + 1);
    digest_add(&state, dtype, strlen(dtype) + 1);
    digest_add(&state, &rank, sizeof rank);
    digest_add(&state, shape, sizeof shape);
    digest_add(&state, data.bytes, DIGEST_BYTES);
  }
  m->digest = digest_end(&state);
}

/* The tensors have an order of their own in the file. prefix: of their names there. */
static void make_many(many *m, const char *prefix) {
  uint32_t state = 1, name_at = 0;
  *m = (many){.file = calloc(1, MANY_FILE_BYTES)};
  assert_non_null(m->file);
  for (uint32_t i = 0; i < MANY; i++) {
    m->source_name[i] = name_at;
    name_at += (uint32_t)sprintf(m->strings + name_at, i == 7 ? "model.embed_tokens.weight" : "layer %u", i) + 1;
    plan_source(m, i, &state);
  }
  char *header = (char *)m->file + 8;
  uint64_t bytes = 0;
  int length = sprintf(header, "{");
  for (uint32_t n = 0; n < MANY; n++) {
    uint32_t i = (n * 37 + 11) % MANY;
    uint64_t size = (uint64_t)m->source_rows[i] * m->source_cols[i] * plan_dtype_bytes(m->source_dtype[i]);
    m->source_at[i] = bytes;
    length += sprintf(header + length, "%s\"%s%s\":{\"dtype\":\"%s\",\"shape\":[%u,%u],\"data_offsets\":[%llu,%llu]}", n ? "," : "", prefix,
                      m->strings + m->source_name[i], m->source_dtype[i] == DTYPE_F32 ? "F32" : "BF16", m->source_rows[i],
                      m->source_cols[i], (unsigned long long)bytes, (unsigned long long)(bytes + size));
    bytes += size;
  }
  length += sprintf(header + length, "}");
  for (int i = 0; i < 8; i++) m->file[i] = (uint8_t)((uint64_t)length >> (8 * i));
  m->data = m->file + 8 + length;
  m->file_bytes = 8 + (size_t)length + bytes;
  assert_true(m->file_bytes < MANY_FILE_BYTES);
  for (uint64_t i = 0; i < bytes; i++) m->file[8 + (uint64_t)length + i] = (uint8_t)(random_below(&state, 1u << 24) >> 16);
  m->expected = calloc(1, m->region_bytes);
  m->memory = malloc(m->region_bytes);
  assert_true(m->expected && m->memory);
  for (uint32_t i = 0, source = 0; i < m->use_count; i++) {
    if (i && m->uses[i].name != m->uses[i - 1].name) source++;
    expect_use(m, &m->uses[i], m->data + m->source_at[source], plan_dtype_bytes(m->source_dtype[source]));
  }
  expect_digest(m);
  fail_clear();
  if (safetensors_view(&m->set, m->file, m->file_bytes) != OK) fail_msg("%s", fail_text());
}

static void free_many(many *m) {
  safetensors_close(m->set);
  free(m->file);
  free(m->expected);
  free(m->memory);
}

typedef struct progress {
  uint64_t last, total;
  uint32_t calls, ends;
} progress;

static void on_progress(void *context, uint64_t done, uint64_t total) {
  progress *p = context;
  assert_true(done >= p->last && done <= total && p->ends == 0);
  p->last = done, p->total = total;
  p->calls++;
  p->ends += done == total;
}

/* slots 0: the CPU backend. */
static status load_many(many *m, uint32_t threads, uint32_t slots, uint64_t slot_bytes, weights_report *report, progress *seen) {
  static uint8_t slot_memory[STAGING_SLOTS_MAX * SLOT_BYTES];
  plan_header header = {.model = {.layers = 1}};
  plan p = {.header = &header, .tensors = m->uses, .tensor_count = m->use_count, .strings = m->strings};
  weights_target target = {.ranks = 1, .address = {(uint64_t)(uintptr_t)m->memory}, .threads = threads};
  memset(&device, 0, sizeof device);
  if (slots) {
    target.room = (staging_room){.device[0].device = (gpu *)(uintptr_t)8, .memory = slot_memory, .slot_bytes = slot_bytes,
                                 .slot_count = slots};
    for (uint32_t i = 0; i < slots; i++) target.room.device[0].events[i] = (gpu_event *)(uintptr_t)(i + 1);
  }
  memset(m->memory, 0, m->region_bytes);
  memset(slot_memory, 0xee, sizeof slot_memory);
  fail_clear();
  return weights_load(&p, m->set, &target, on_progress, seen, report);
}

static void neither_threads_nor_slots_change_a_byte(void **state) {
  (void)state;
  static const struct { uint32_t threads, slots; } ways[] = {{1, 0}, {2, 0}, {7, 0}, {0, 0}, {1, 1},
                                                             {1, 2}, {2, 3}, {5, 3}, {3, 32}, {16, 32}};
  static many m;
  make_many(&m, "");
  assert_true(m.use_count > MANY && m.region_bytes > 64 * SLOT_BYTES);
  for (size_t i = 0; i < ARRAY_LEN(ways); i++) {
    weights_report report;
    progress seen = {0};
    if (load_many(&m, ways[i].threads, ways[i].slots, SLOT_BYTES, &report, &seen) != OK) fail_msg("%s", fail_text());
    assert_memory_equal(m.memory, m.expected, m.region_bytes);
    assert_memory_equal(report.digest.bytes, m.digest.bytes, DIGEST_BYTES);
    assert_int_equal(report.source_count, MANY);
    assert_int_equal(seen.ends, 1);
    if (ways[i].threads) assert_int_equal(report.threads, ways[i].threads);
    assert_true(device.most_waiting <= ways[i].slots);
    if (ways[i].slots) assert_true(seen.calls > MANY); /* the uploading thread reports progress */
  }
  free_many(&m);
}

static void a_row_larger_than_a_slot_is_refused(void **state) {
  (void)state;
  static many m;
  weights_report report;
  progress seen = {0};
  make_many(&m, "");
  assert_int_equal(load_many(&m, 3, 4, 64, &report, &seen), ERR_LIMIT);
  assert_non_null(strstr(fail_text(), "exceeds a staging slot"));
  assert_int_equal(seen.ends, 0);
  free_many(&m);
}

/* === Files ================================================================================================================== */

/* A file that is truncated between the check of its header and the reading of its data: an error, and no thread waits for ever. */
static void a_file_cut_after_opening_is_an_error(void **state) {
  (void)state;
  static many m;
  char folder[] = "/tmp/verbatim-weights-XXXXXX", path[64];
  make_many(&m, "");
  safetensors *viewed = m.set;
  assert_non_null(mkdtemp(folder));
  snprintf(path, sizeof path, "%s/model.safetensors", folder);
  for (uint32_t slots = 0; slots <= 3; slots += 3) {
    FILE *file = fopen(path, "wb");
    assert_true(file && fwrite(m.file, 1, m.file_bytes, file) == m.file_bytes && fclose(file) == 0);
    assert_int_equal(safetensors_open(&m.set, folder), OK);
    weights_report report;
    progress seen = {0};
    assert_int_equal(load_many(&m, 3, slots, SLOT_BYTES, &report, &seen), OK);
    assert_memory_equal(m.memory, m.expected, m.region_bytes);
    assert_int_equal(truncate(path, (off_t)m.file_bytes / 2), 0);
    seen = (progress){0};
    assert_int_equal(load_many(&m, 3, slots, SLOT_BYTES, &report, &seen), ERR_IO);
    assert_non_null(strstr(fail_text(), "the file was cut while it was read"));
    safetensors_close(m.set);
  }
  unlink(path);
  rmdir(folder);
  m.set = viewed;
  free_many(&m);
}

/* === Names ================================================================================================================== */

/* A file of tiny tensors, one BF16 [2] each. */
static safetensors *view_names(const char *const *names, uint8_t file[8192]) {
  safetensors *set = NULL;
  int length = sprintf((char *)file + 8, "{"), count = 0;
  for (; names[count]; count++)
    length += sprintf((char *)file + 8 + length, "%s\"%s\":{\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[%d,%d]}", count ? "," : "",
                      names[count], 4 * count, 4 * count + 4);
  length += sprintf((char *)file + 8 + length, "}");
  for (int i = 0; i < 8; i++) file[i] = (uint8_t)((uint64_t)length >> (8 * i));
  memset(file + 8 + length, 7, 4u * (size_t)count);
  if (safetensors_view(&set, file, 8 + (size_t)length + 4u * (size_t)count) != OK) fail_msg("%s", fail_text());
  return set;
}

static const char PLAIN[] = "model.embed_tokens.weight\0model.layers.1.norm.weight\0lm_head.weight";

/* A plan of two layers that uses the first `used` of the names above; the last tensor of the file differs in one bit if `is_other`. */
static status load_some(const char *const *names, uint32_t used, bool is_other, weights_report *report) {
  static uint8_t file[8192], memory[1024];
  plan_tensor uses[3];
  for (uint32_t i = 0; i < 3; i++)
    uses[i] = (plan_tensor){.name = (const uint32_t[]){0, 26, 53}[i], .rows = 1, .cols = 2, .row_count = 1, .batches = 1,
                            .scale_name = PLAN_NO_SCALE, .offset = 256 * i};
  plan_header header = {.model = {.layers = 2}};
  plan p = {.header = &header, .tensors = uses, .tensor_count = used, .strings = PLAIN};
  weights_target target = {.ranks = 1, .address = {(uint64_t)(uintptr_t)memory}, .threads = 1};
  fail_clear();
  safetensors *set = view_names(names, file);
  uint32_t count = safetensors_count(set), last = 0;
  for (uint32_t i = 1; i < count; i++) last = safetensors_at(set, i)->data > safetensors_at(set, last)->data ? i : last;
  file[safetensors_at(set, last)->data - file + 3] ^= is_other;
  status result = weights_load(&p, set, &target, NULL, NULL, report);
  safetensors_close(set);
  return result;
}

static status load_names(const char *const *names, weights_report *report) { return load_some(names, 3, false, report); }

static void nested_models_have_the_same_digest(void **state) {
  (void)state;
  static const char *const plain[] = {"model.embed_tokens.weight", "model.layers.1.norm.weight", "lm_head.weight", NULL};
  static const char *const outer[] = {"language_model.model.embed_tokens.weight", "language_model.model.layers.1.norm.weight",
                                      "language_model.lm_head.weight", "vision_tower.patch.weight", NULL};
  static const char *const inner[] = {"model.language_model.embed_tokens.weight", "model.language_model.layers.1.norm.weight",
                                      "lm_head.weight", "model.visual.patch.weight", "model.language_model.layers.2.norm.weight", NULL};
  weights_report a, b, c;
  char note[512];
  assert_int_equal(load_names(plain, &a), OK);
  assert_int_equal(load_names(outer, &b), OK);
  assert_int_equal(load_names(inner, &c), OK);
  assert_memory_equal(a.digest.bytes, b.digest.bytes, DIGEST_BYTES);
  assert_memory_equal(a.digest.bytes, c.digest.bytes, DIGEST_BYTES);
  weights_note(&a, note, sizeof note);
  assert_string_equal(note, "");
  weights_note(&b, note, sizeof note);
  assert_string_equal(note, "tensors are named language_model.NAME; 1 tensors of the model are not used: 1 of other parts (vision), e.g. "
                            "vision_tower.patch.weight");
  weights_note(&c, note, sizeof note);
  assert_string_equal(note, "tensors are named model.language_model.NAME; 2 tensors of the model are not used: 1 of layers behind the last "
                            "(prediction), 1 of other parts (vision), e.g. model.visual.patch.weight");
}

static void two_namings_are_refused(void **state) {
  (void)state;
  static const char *const both[] = {"model.embed_tokens.weight", "model.layers.1.norm.weight", "lm_head.weight",
                                     "language_model.model.embed_tokens.weight", NULL};
  static const char *const lacking[] = {"language_model.model.embed_tokens.weight", "model.layers.1.norm.weight", "lm_head.weight", NULL};
  weights_report report;
  assert_int_equal(load_names(both, &report), ERR_FORMAT);
  assert_non_null(strstr(fail_text(), "found model.embed_tokens.weight and language_model.model.embed_tokens.weight"));
  assert_int_equal(load_names(lacking, &report), ERR_FORMAT);
  assert_non_null(strstr(fail_text(), "lack 2 tensors of the plan: language_model.model.layers.1.norm.weight "
                                      "language_model.lm_head.weight"));
}

/* A plan without lm_head.weight reads the embedding in its place: files with a different head do not belong to a tied model. */
static void another_head_of_a_tied_model_is_refused(void **state) {
  (void)state;
  static const char *const plain[] = {"model.embed_tokens.weight", "model.layers.1.norm.weight", "lm_head.weight", NULL};
  static const char *const inner[] = {"model.language_model.embed_tokens.weight", "model.language_model.layers.1.norm.weight",
                                      "lm_head.weight", NULL};
  static const char *const outer[] = {"language_model.model.embed_tokens.weight", "language_model.model.layers.1.norm.weight",
                                      "language_model.lm_head.weight", NULL};
  const char *const *const namings[] = {plain, inner, outer};
  weights_report report;
  for (size_t i = 0; i < ARRAY_LEN(namings); i++) {
    assert_int_equal(load_some(namings[i], 2, false, &report), OK); /* an equal head */
    assert_int_equal(report.unused_count, 1);
    assert_int_equal(load_some(namings[i], 2, true, &report), ERR_FORMAT);
    assert_non_null(strstr(fail_text(), "tie_word_embeddings"));
    assert_int_equal(load_some(namings[i], 3, true, &report), OK); /* it is used */
  }
}

static void unused_tensors_are_told_by_kind(void **state) {
  (void)state;
  static const char *const names[] = {"model.embed_tokens.weight", "model.layers.1.norm.weight", "lm_head.weight",
                                      "model.layers.0.self_attn.rotary_emb.inv_freq", "model.layers.1.self_attn.rotary_emb.inv_freq",
                                      "model.layers.2.norm.weight", "model.layers.10.shared_head.head.weight", "model.layers.3x", NULL};
  weights_report report;
  char note[512], cut[24];
  assert_int_equal(load_names(names, &report), OK);
  assert_int_equal(report.unused_count, 5);
  weights_note(&report, note, sizeof note);
  assert_string_equal(note, "5 tensors of the model are not used: 2 rotary inv_freq, 3 of layers behind the last (prediction), e.g. "
                            "model.layers.0.self_attn.rotary_emb.inv_freq");
  weights_note(&report, cut, sizeof cut);
  assert_string_equal(cut, "5 tensors of the model ");
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(copies), cmocka_unit_test(transposes), cmocka_unit_test(digests), cmocka_unit_test(mismatches),
    cmocka_unit_test(f32_is_narrowed_exactly),
    cmocka_unit_test(neither_threads_nor_slots_change_a_byte), cmocka_unit_test(a_row_larger_than_a_slot_is_refused),
    cmocka_unit_test(a_file_cut_after_opening_is_an_error), cmocka_unit_test(nested_models_have_the_same_digest),
    cmocka_unit_test(two_namings_are_refused), cmocka_unit_test(another_head_of_a_tied_model_is_refused),
    cmocka_unit_test(unused_tensors_are_told_by_kind), cmocka_unit_test(reading_gives_the_digest_of_loading),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

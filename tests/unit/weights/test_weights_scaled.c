/* test_weights_scaled.c - e4m3 tensors into REGION_WEIGHTS: unchanged, or dequantized to bf16 with their scales, whole, in slices that
 * begin inside a block of scales, and transposed; on both backends; mismatches are refused. Also the scales of an fp8 KV cache under all
 * their names. */
#include "tests/unit/unit.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include "engine/weights/weights.h"
#include "engine/weights/e4m3.h"
#include "late_gpu.h"

#define FILE_BYTES (1u << 20)
#define MEMORY_BYTES (2u << 20)
#define SLOT_BYTES 4096u

/* === Files ============================================================================================================== */

typedef struct entry { /* of a file; dtype null: the end */
  const char *name, *dtype, *shape;
  uint32_t bytes;
} entry;

typedef struct fixture {
  uint8_t file[FILE_BYTES], memory[MEMORY_BYTES];
  const uint8_t *data[8]; /* of the entries */
  safetensors *set;
} fixture;

static fixture f;

/* Codes take any value except NaN; fp32 and bf16 numbers are near 1. */
static void fill(uint8_t *data, const entry *e, uint32_t *state) {
  for (uint32_t i = 0; i < e->bytes; i++) {
    *state = *state * 1664525u + 1013904223u;
    data[i] = (uint8_t)(*state >> 24);
    if (strcmp(e->dtype, "F8_E4M3") == 0 && (data[i] & 0x7f) == 0x7f) data[i] ^= 1;
    if (strcmp(e->dtype, "F32") == 0 && i % 4 == 3) data[i] = 0x3f;
    if (strcmp(e->dtype, "BF16") == 0 && i % 2 == 1) data[i] = 0x3f;
  }
}

static void make(const entry *entries) {
  char *header = (char *)f.file + 8;
  uint32_t state = 7, at = 0, count = 0;
  int length = sprintf(header, "{");
  for (; entries[count].dtype; at += entries[count++].bytes)
    length += sprintf(header + length, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":[%u,%u]}", count ? "," : "",
                      entries[count].name, entries[count].dtype, entries[count].shape, at, at + entries[count].bytes);
  length += sprintf(header + length, "}");
  for (int i = 0; i < 8; i++) f.file[i] = (uint8_t)((uint64_t)length >> (8 * i));
  assert_true(8 + (uint32_t)length + at <= FILE_BYTES);
  uint8_t *data = f.file + 8 + length;
  for (uint32_t i = 0; i < count; data += entries[i++].bytes) {
    f.data[i] = data;
    fill(data, &entries[i], &state);
  }
  fail_clear();
  if (safetensors_view(&f.set, f.file, 8 + (size_t)length + at) != OK) fail_msg("%s", fail_text());
}

/* slots 0: the CPU backend. */
static status load(const plan_tensor *tensors, uint32_t count, const char *strings, uint32_t slots, weights_report *report) {
  static uint8_t slot_memory[STAGING_SLOTS_MAX * SLOT_BYTES];
  plan_header header = {.model = {.layers = 2}};
  plan p = {.header = &header, .tensors = tensors, .tensor_count = count, .strings = strings};
  weights_target target = {.ranks = 1, .address = {(uint64_t)(uintptr_t)f.memory}, .threads = 3};
  memset(&device, 0, sizeof device);
  memset(f.memory, 0xaa, sizeof f.memory);
  if (slots)
    target.room = (staging_room){.device[0].device = (gpu *)(uintptr_t)8, .memory = slot_memory, .slot_bytes = SLOT_BYTES,
                                 .slot_count = slots};
  for (uint32_t i = 0; i < slots; i++) target.room.device[0].events[i] = (gpu_event *)(uintptr_t)(i + 1);
  fail_clear();
  return weights_load(&p, f.set, &target, NULL, NULL, report);
}

/* === Numbers ============================================================================================================ */

/* The value of a code, computed from its three fields. */
static double value_of(uint8_t code) {
  int exponent = code >> 3 & 15, fraction = code & 7;
  double magnitude = exponent ? ldexp(1 + fraction / 8.0, exponent - 7) : ldexp(fraction / 8.0, -6);
  return code & 0x80 ? -magnitude : magnitude;
}

/* The nearest bf16, ties to even, decided by the remainder. */
static uint16_t bf16_of(float number) {
  uint32_t bits, rest;
  memcpy(&bits, &number, sizeof bits);
  rest = bits & 0xffff;
  bits >>= 16;
  return (uint16_t)(bits + (rest > 0x8000 || (rest == 0x8000 && bits % 2 == 1)));
}

static uint16_t expected_of(const uint8_t *codes, const uint8_t *scales, uint32_t cols, uint32_t row, uint32_t col) {
  float scale;
  memcpy(&scale, scales + 4 * (row / 128 * ((cols + 127) / 128) + col / 128), sizeof scale);
  return bf16_of((float)(value_of(codes[(uint64_t)row * cols + col]) * (double)scale)); /* the product is exact in binary64 */
}

/* Every code under scales that round at all places, and shapes that end inside a block. */
static void codes_times_scales_are_rounded_twice(void **state) {
  (void)state;
  static const struct { uint32_t rows, cols; } SHAPES[] = {{1, 256}, {130, 257}, {128, 128}, {300, 2}, {129, 384}};
  static const float SCALES[] = {1, 0.5f, 1.0f / 3, 0x1.fffffep-3f, 1e-30f, 3e36f, 0x1.010001p0f, 0x1.018p-4f, 7.25e-5f};
  static uint8_t codes[65536], scales[64 * 4 + 1];
  static uint16_t out[65536];
  for (size_t s = 0; s < ARRAY_LEN(SHAPES); s++) {
    uint32_t rows = SHAPES[s].rows, cols = SHAPES[s].cols;
    assert_true(rows * cols <= sizeof codes);
    for (uint32_t i = 0; i < rows * cols; i++) codes[i] = (uint8_t)(i % 256 == 127 || i % 256 == 255 ? 0 : i % 256);
    for (uint32_t i = 0; i < 64; i++) memcpy(scales + 1 + 4 * i, &SCALES[(i + s) % ARRAY_LEN(SCALES)], 4); /* not aligned */
    weights_e4m3_widen(codes, scales + 1, rows, cols, out);
    for (uint32_t row = 0; row < rows; row++)
      for (uint32_t col = 0; col < cols; col++) {
        uint16_t expected = expected_of(codes, scales + 1, cols, row, col), found = out[row * cols + col];
        if (found != expected) fail_msg("[%u][%u] of %u x %u: expected %04x, found %04x", row, col, rows, cols, expected, found);
      }
  }
  const float scale = 1;
  const uint8_t nan_codes[2] = {0x7f, 0xff};
  memcpy(scales, &scale, 4);
  weights_e4m3_widen(nan_codes, scales, 1, 2, out);
  assert_true((out[0] & 0x7fff) > 0x7f80 && (out[1] & 0x7fff) > 0x7f80);
  assert_true(weights_e4m3_blocks(1) == 1 && weights_e4m3_blocks(128) == 1 && weights_e4m3_blocks(129) == 2);
}

/* === Loading ============================================================================================================ */

/* Two heads like GLM-5's: 192 rows of keys, then 256 of values, so that slices begin inside blocks of scales. */
#define NOPE 192u
#define VALUE 256u
#define ROWS (2 * (NOPE + VALUE))
#define COLS 256u
#define STRINGS "kv_b\0kv_b_scale\0codes\0codes_scale"
enum { KV_B = 0, KV_B_SCALE = 5, CODES = 16, CODES_SCALE = 22, OTHER = 100 };

static const entry ENTRIES[] = {
  {"kv_b", "F8_E4M3", "896,256", ROWS * COLS}, {"codes_scale", "F32", "2,3", 24}, {"codes", "F8_E4M3", "130,300", 130 * 300},
  {"kv_b_scale", "F32", "7,2", 7 * 2 * 4}, {0},
};
enum { DATA_KV_B, DATA_CODES_SCALE, DATA_CODES, DATA_KV_B_SCALE };

static plan_tensor keys(uint64_t offset) {
  return (plan_tensor){.name = KV_B, .dtype = DTYPE_BF16, .rows = ROWS, .cols = COLS, .row_count = NOPE, .row_step = NOPE + VALUE,
                       .batches = 2, .transform = TRANSFORM_TRANSPOSE, .scale_name = KV_B_SCALE, .offset = offset};
}

static plan_tensor values(uint64_t offset) {
  plan_tensor t = keys(offset);
  t.row0 = NOPE, t.row_count = VALUE, t.transform = TRANSFORM_COPY;
  return t;
}

static plan_tensor plain(uint32_t name, uint32_t dtype, uint32_t rows, uint32_t cols, uint64_t offset) {
  return (plan_tensor){.name = name, .dtype = dtype, .rows = rows, .cols = cols, .row_count = rows, .row_step = rows, .batches = 1,
                       .scale_name = PLAN_NO_SCALE, .offset = offset};
}

#define AT_VALUES (1u << 19)
#define AT_CODES (1u << 20)
#define AT_SCALES ((1u << 20) + (1u << 18))

static void check_kv_b(void) {
  const uint8_t *codes = f.data[DATA_KV_B], *scales = f.data[DATA_KV_B_SCALE];
  for (uint32_t head = 0; head < 2; head++)
    for (uint32_t row = 0; row < NOPE + VALUE; row++)
      for (uint32_t col = 0; col < COLS; col++) {
        uint64_t at = row < NOPE ? ((uint64_t)head * COLS + col) * NOPE + row : ((uint64_t)head * VALUE + row - NOPE) * COLS + col;
        uint16_t found, expected = expected_of(codes, scales, COLS, head * (NOPE + VALUE) + row, col);
        memcpy(&found, f.memory + (row < NOPE ? 0 : AT_VALUES) + 2 * at, 2);
        if (found != expected) fail_msg("head %u, row %u, column %u: expected %04x, found %04x", head, row, col, expected, found);
      }
}

/* As weights.h states: scales follow what they scale, whether they are read with it or by themselves. */
static digest expected_digest(void) {
  static const struct { const char *name, *dtype; uint64_t shape[2]; uint32_t data, bytes; } ORDER[] = {
    {"kv_b", "F8_E4M3", {ROWS, COLS}, DATA_KV_B, ROWS * COLS}, {"kv_b_scale", "F32", {7, 2}, DATA_KV_B_SCALE, 56},
    {"codes", "F8_E4M3", {130, 300}, DATA_CODES, 39000}, {"codes_scale", "F32", {2, 3}, DATA_CODES_SCALE, 24}};
  digest_state state;
  digest_start(&state);
  for (size_t i = 0; i < ARRAY_LEN(ORDER); i++) {
    uint32_t rank = 2;
    digest data = digest_of(f.data[ORDER[i].data], ORDER[i].bytes);
    digest_add(&state, ORDER[i].name, strlen(ORDER[i].name) + 1);
    digest_add(&state, ORDER[i].dtype, strlen(ORDER[i].dtype) + 1);
    digest_add(&state, &rank, sizeof rank);
    digest_add(&state, ORDER[i].shape, sizeof ORDER[i].shape);
    digest_add(&state, data.bytes, DIGEST_BYTES);
  }
  return digest_end(&state);
}

typedef struct visits {
  uint32_t count;
  char names[8][16];
} visits;

static void visit(void *context, const char *name, const safetensor *tensor, const digest *data, const sha256 *strong) {
  (void)strong;
  visits *v = context;
  digest own = digest_of(tensor->data, tensor->bytes);
  assert_true(v->count < 8);
  assert_memory_equal(own.bytes, data->bytes, DIGEST_BYTES);
  snprintf(v->names[v->count++], sizeof v->names[0], "%s", name);
}

static void scaled_tensors_become_bf16_on_both_machines(void **state) {
  (void)state;
  make(ENTRIES);
  const plan_tensor t[] = {keys(0), values(AT_VALUES), plain(CODES, DTYPE_E4M3, 130, 300, AT_CODES),
                           plain(CODES_SCALE, DTYPE_F32, 2, 3, AT_SCALES)};
  const digest expected = expected_digest();
  weights_report report, read;
  for (uint32_t slots = 0; slots <= 4; slots += 2) {
    if (load(t, ARRAY_LEN(t), STRINGS, slots, &report) != OK) fail_msg("%s", fail_text());
    check_kv_b();
    assert_memory_equal(f.memory + AT_CODES, f.data[DATA_CODES], 39000);
    assert_memory_equal(f.memory + AT_SCALES, f.data[DATA_CODES_SCALE], 24);
    assert_int_equal(f.memory[AT_SCALES + 24], 0xaa);
    assert_int_equal(f.memory[AT_CODES + 39000], 0xaa);
    assert_memory_equal(report.digest.bytes, expected.bytes, DIGEST_BYTES);
    assert_int_equal(report.source_count, 4);
    assert_int_equal(report.source_bytes, ROWS * COLS + 56 + 39000 + 24);
    assert_int_equal(report.unused_count, 0);
  }
  plan_header header = {.model = {.layers = 2}};
  plan p = {.header = &header, .tensors = t, .tensor_count = ARRAY_LEN(t), .strings = STRINGS};
  visits seen = {0};
  assert_int_equal(weights_digest(&p, f.set, 2, false, NULL, visit, &seen, &read), OK);
  assert_memory_equal(read.digest.bytes, expected.bytes, DIGEST_BYTES);
  assert_int_equal(seen.count, 4);
  assert_string_equal(seen.names[1], "kv_b_scale");
  safetensors_close(f.set);
}

/* Even a single use of the whole tensor converts it instead of copying its bytes. */
static void a_scaled_tensor_alone_is_converted_too(void **state) {
  (void)state;
  make(ENTRIES);
  plan_tensor t = plain(CODES, DTYPE_BF16, 130, 300, 0);
  weights_report report;
  t.scale_name = CODES_SCALE;
  assert_int_equal(load(&t, 1, STRINGS, 0, &report), OK);
  for (uint32_t row = 0; row < 130; row++)
    for (uint32_t col = 0; col < 300; col++) {
      uint16_t found;
      memcpy(&found, f.memory + 2 * (row * 300 + col), 2);
      assert_int_equal(found, expected_of(f.data[DATA_CODES], f.data[DATA_CODES_SCALE], 300, row, col));
    }
  assert_int_equal(report.source_count, 2);
  assert_int_equal(report.unused_count, 2);
  safetensors_close(f.set);
}

static void expect_refused(const entry *entries, const plan_tensor *t, uint32_t count, const char *words) {
  weights_report report;
  make(entries);
  status result = load(t, count, STRINGS "\0missing", 0, &report);
  if (result != ERR_FORMAT || !strstr(fail_text(), words)) fail_msg("expected \"%s\" in \"%s\"", words, fail_text());
  safetensors_close(f.set);
}

static void what_does_not_match_is_refused(void **state) {
  (void)state;
  const entry bf16_file[] = {{"kv_b", "BF16", "896,256", 2 * ROWS * COLS}, {"kv_b_scale", "F32", "7,2", 56}, {0}};
  const entry bf16_scales[] = {{"kv_b", "F8_E4M3", "896,256", ROWS * COLS}, {"kv_b_scale", "BF16", "7,2", 28}, {0}};
  const entry few_scales[] = {{"kv_b", "F8_E4M3", "896,256", ROWS * COLS}, {"kv_b_scale", "F32", "6,2", 48}, {0}};
  const entry flat_scales[] = {{"kv_b", "F8_E4M3", "896,256", ROWS * COLS}, {"kv_b_scale", "F32", "14", 56}, {0}};
  const entry no_scales[] = {{"kv_b", "F8_E4M3", "896,256", ROWS * COLS}, {0}};
  const entry no_codes[] = {{"kv_b_scale", "F32", "7,2", 56}, {0}};
  const entry e5m2[] = {{"kv_b", "F8_E5M2", "896,256", ROWS * COLS}, {"kv_b_scale", "F32", "7,2", 56}, {0}};
  const plan_tensor t = keys(0), as_bf16 = plain(KV_B, DTYPE_BF16, ROWS, COLS, 0);
  expect_refused(bf16_file, &t, 1, "tensor kv_b: expected F8_E4M3 [896][256], found BF16 [896][256]; hint: config.json's quantization");
  expect_refused(bf16_scales, &t, 1, "tensor kv_b_scale: expected F32 [7][2], found BF16 [7][2]");
  expect_refused(few_scales, &t, 1, "tensor kv_b_scale: expected F32 [7][2], found F32 [6][2]");
  expect_refused(flat_scales, &t, 1, "tensor kv_b_scale: expected F32 [7][2], found F32 [14]");
  expect_refused(no_scales, &t, 1, "lack 1 tensors of the plan: kv_b_scale");
  expect_refused(no_codes, &t, 1, "lack 1 tensors of the plan: kv_b");
  expect_refused(e5m2, &t, 1, "expected F8_E4M3 [896][256], found F8_E5M2");
  expect_refused(ENTRIES, &as_bf16, 1, "expected BF16 [896][256], found F8_E4M3 [896][256]; hint: config.json's quantization_config");
}

/* Plans that the planner never makes. */
static void scales_are_of_one_tensor(void **state) {
  (void)state;
  const entry twins[] = {{"kv_b", "F8_E4M3", "896,256", ROWS * COLS}, {"kv_b_scale", "F32", "7,2", 56},
                         {"codes", "F8_E4M3", "896,256", ROWS * COLS}, {"codes_scale", "F32", "7,2", 56}, {0}};
  plan_tensor shared[2] = {keys(0), keys(AT_VALUES)}, two[2] = {keys(0), keys(AT_VALUES)}, first[2], last[2];
  shared[1].name = CODES;
  two[1].scale_name = CODES_SCALE;
  first[0] = last[1] = plain(KV_B_SCALE, DTYPE_F32, 7, 2, AT_CODES);
  first[1] = last[0] = keys(0);
  expect_refused(twins, shared, 2, "tensor kv_b_scale: the plan has it as scales of two tensors");
  expect_refused(twins, two, 2, "tensor kv_b: the plan has two tensors of scales for it");
  expect_refused(twins, first, 2, "tensor kv_b_scale: the plan has it as scales of two tensors, or as a weight too");
  expect_refused(twins, last, 2, "tensor kv_b_scale: the plan has it as scales and as a weight");
}

/* === Scales of the KV cache ============================================================================================= */

#define KV_NAME "model.layers.1.self_attn.k_scale"

static void scales_of_the_kv_cache_have_many_names(void **state) {
  (void)state;
  static const char *const NAMES[] = {KV_NAME, "model.layers.1.self_attn.attn.k_scale", "model.layers.1.self_attn.attn_mqa.k_scale",
                                      "model.layers.1.self_attn.mla_attn.mla_attn.k_scale", "model.layers.1.self_attn.kv_scale",
                                      "model.layers.1.self_attn.kv_a_proj_with_mqa.k_scale"};
  static const struct { const char *dtype, *shape; uint32_t bytes; } FORMS[] = {
    {"F32", "", 4}, {"F32", "1", 4}, {"BF16", "1", 2}, {"BF16", "", 2}};
  const plan_tensor t = plain(0, DTYPE_F32, 1, 1, 0);
  digest first = {0};
  for (size_t i = 0; i < ARRAY_LEN(NAMES); i++)
    for (size_t j = 0; j < ARRAY_LEN(FORMS); j++) {
      const entry entries[] = {{NAMES[i], FORMS[j].dtype, FORMS[j].shape, FORMS[j].bytes}, {0}};
      weights_report report;
      make(entries);
      if (load(&t, 1, KV_NAME, 0, &report) != OK) fail_msg("%s: %s", NAMES[i], fail_text());
      assert_memory_equal(f.memory + 4 - FORMS[j].bytes, f.data[0], FORMS[j].bytes);
      if (FORMS[j].bytes == 2) assert_true(f.memory[0] == 0 && f.memory[1] == 0);
      if (i == 0 && j == 0) first = report.digest;
      if (i > 0 && j == 0) assert_memory_equal(report.digest.bytes, first.bytes, DIGEST_BYTES); /* by the plan's name */
      safetensors_close(f.set);
    }
}

/* Files of a model inside another model: its own scales have the prefix of all its tensors, those of a calibration have none. */
static void scales_of_the_kv_cache_may_be_named_plainly(void **state) {
  (void)state;
  static const char *const NAMES[] = {"model.layers.1.self_attn.k_scale", "language_model.model.layers.1.self_attn.k_scale"};
  const plan_tensor t = plain(0, DTYPE_F32, 1, 1, 0);
  for (size_t i = 0; i < ARRAY_LEN(NAMES); i++) {
    const entry entries[] = {{"language_model.model.embed_tokens.weight", "BF16", "2", 4}, {NAMES[i], "F32", "1", 4}, {0}};
    weights_report report;
    make(entries);
    if (load(&t, 1, KV_NAME, 0, &report) != OK) fail_msg("%s: %s", NAMES[i], fail_text());
    assert_memory_equal(f.memory, f.data[1], 4);
    safetensors_close(f.set);
  }
}

static void missing_scales_of_the_kv_cache_name_the_command(void **state) {
  (void)state;
  const entry none[] = {{"codes", "F32", "1", 4}, {0}};
  const entry both[] = {{KV_NAME, "F32", "1", 4}, {"model.layers.1.self_attn.kv_scale", "F32", "1", 4}, {0}};
  const entry wide[] = {{KV_NAME, "F32", "2", 8}, {0}};
  const plan_tensor t = plain(0, DTYPE_F32, 1, 1, 0);
  weights_report report;
  make(none);
  assert_int_equal(load(&t, 1, KV_NAME, 0, &report), ERR_FORMAT);
  assert_non_null(strstr(fail_text(), "lack the scales of 1 layers: " KV_NAME "; hint: `verbatim calibrate`"));
  safetensors_close(f.set);
  make(both);
  assert_int_equal(load(&t, 1, KV_NAME, 0, &report), ERR_FORMAT);
  assert_non_null(strstr(fail_text(), "two scales of one layer's KV rows"));
  safetensors_close(f.set);
  make(wide);
  assert_int_equal(load(&t, 1, KV_NAME, 0, &report), ERR_FORMAT);
  assert_non_null(strstr(fail_text(), "expected F32 [1][1], found F32 [2]"));
  safetensors_close(f.set);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(codes_times_scales_are_rounded_twice), cmocka_unit_test(scaled_tensors_become_bf16_on_both_machines),
    cmocka_unit_test(a_scaled_tensor_alone_is_converted_too), cmocka_unit_test(what_does_not_match_is_refused),
    cmocka_unit_test(scales_are_of_one_tensor), cmocka_unit_test(scales_of_the_kv_cache_have_many_names),
    cmocka_unit_test(scales_of_the_kv_cache_may_be_named_plainly), cmocka_unit_test(missing_scales_of_the_kv_cache_name_the_command),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_kv_widen.c - kv_widen: every format, every code under many scales, NaN too, rows of 512 and 256 columns with rope of 32 and 64,
 * contexts that end at every edge of a page and of a share, scattered and shared pages; against tables of the format in binary64. */
#include <math.h>
#include "kernel_test.h"

typedef struct widen_shape {
  u32 rank, rope, format, kind, contexts, tokens[4];
  f32 layer_scale;
  u32 piece_pages, piece; /* 0: all contexts, with a table */
} widen_shape;

enum { PAGES = 16, STRIDE = 5, CONTEXTS = 4, PAGES_MAX = 12 };

static u32 pages_of(u32 tokens) { return (tokens + 63) / 64; }

/* The value of an e4m3 code, from the format: 4 bits of exponent, 3 of fraction, the last pattern NaN. */
static double value_of(u8 code) {
  const u32 size = code & 0x7fu;
  const double value = size == 0x7f ? (double)NAN : size < 8 ? ldexp(size, -9) : ldexp(8 + size % 8, (int)(size / 8) - 10);
  return code & 0x80 ? -value : value;
}

/* The bf16 number nearest to the fp32 number nearest to x, from the formats: rounded to a whole number of last places, ties to even. */
static double nearest(double x, int fraction_bits) {
  int exponent;
  if (isnan(x) || isinf(x) || x == 0) return x;
  frexp(x, &exponent);
  const int last = (exponent - 1 < -126 ? -126 : exponent - 1) - fraction_bits;
  const double rounded = ldexp(nearbyint(ldexp(x, -last)), last);
  return fabs(rounded) >= 0x1p128 ? copysign((double)INFINITY, x) : rounded;
}

static void check_value(bf16 got, u8 code, f32 scale) {
  const double want = nearest(nearest(value_of(code) * (double)scale, 23), 7), found = (double)num_from_bf16(got);
  if (isnan(want)) assert_true(isnan(found));
  else assert_true(found == want && !signbit(found) == !signbit(want));
}

/* Scales as the formats produce them, and others that a file may hold: tiny ones, huge ones, NaN. */
static f32 random_scale(cases *c, u32 kind, u32 nth) {
  const i32 exponent = (i32)cases_below(c, nth % 3 ? 20 : 250) - (nth % 3 ? 16 : 140);
  if (nth % 41 == 40) return num_float(0x7fc00000u);
  if (kind == SCALE_POW2) return ldexpf(1, exponent);
  return ldexpf(1 + (f32)cases_below(c, 1u << 23) * 0x1p-23f, exponent);
}

/* All rows of the memory, so that no code is left out. */
static void fill_row(const widen_shape *s, cases *c, u8 *row, u32 nth) {
  const u32 coded = s->format == KV_FP8 ? s->rank + s->rope : s->rank;
  for (u32 i = 0; i < coded; i++) row[i] = (u8)(nth * 37 + i * 5 + i / 256);
  if (s->format == KV_FP8) return;
  for (u32 i = 0; i < s->rank / 128; i++) {
    const f32 scale = random_scale(c, s->kind, nth * 4 + i);
    memcpy(row + s->rank + 4 * i, &scale, 4);
  }
  kernel_test_bf16s(c, (bf16 *)(void *)(row + s->rank + s->rank / 32), s->rope, 1.0f);
}

static void check_row(const widen_shape *s, const u8 *row, const bf16 *y) {
  for (u32 i = 0; i < s->rank + s->rope; i++) {
    f32 scale = s->layer_scale;
    bf16 plain;
    if (s->format == KV_FP8_DS_MLA && i >= s->rank) {
      memcpy(&plain, row + s->rank + s->rank / 32 + 2 * (i - s->rank), 2);
      assert_int_equal(y[i], plain);
      continue;
    }
    if (s->format == KV_FP8_DS_MLA) memcpy(&scale, row + s->rank + i / 128 * 4, 4);
    check_value(y[i], row[i], scale);
  }
}

static void widen_case(kernel_test *test, const widen_shape *s) {
  cases c = {.state = s->rank * 7u + s->rope + s->kind * 3 + s->tokens[0]};
  const u32 columns = s->rank + s->rope, row_bytes = KV_ROW_BYTES(s->format, s->rank, s->rope);
  const u32 room = s->piece_pages ? s->piece_pages : PAGES_MAX, first = s->piece * room;
  u32 total = 0;
  kernel_test_start(test);
  kv_widen_args a = {.kv_lora_rank = s->rank, .rope_dim = s->rope, .block_table_stride = STRIDE, .kv_format = s->format,
                     .pages_max = room, .piece = s->piece};
  step_in *step = kernel_test_step(test, 1, 0, 1);
  step->seq_count = s->contexts;
  step_context *contexts = kernel_test_input(test, CONTEXTS * sizeof *contexts);
  u32 *table = kernel_test_input(test, CONTEXTS * STRIDE * 4);
  f32 *layer_scale = kernel_test_input(test, 4);
  u8 *kv = kernel_test_input(test, (size_t)PAGES * 64 * row_bytes);
  *layer_scale = s->layer_scale;
  for (u32 i = 0; i < CONTEXTS * STRIDE; i++) table[i] = (i * 7 + 3) % PAGES; /* some appear in two rows */
  for (u32 i = 0; i < PAGES * 64; i++) fill_row(s, &c, kv + (size_t)i * row_bytes, i);
  for (u32 i = 0; i < s->contexts; i++) {
    contexts[i] = (step_context){.first = total, .tokens = s->tokens[i], .seq = (i * 3 + 1) % CONTEXTS};
    total += pages_of(s->tokens[i]);
  }
  assert_true(s->piece_pages || total <= PAGES_MAX);
  const u32 pages = total > first ? min_u32(room, total - first) : 0;
  a.step = step, a.contexts = contexts, a.block_table = table, a.kv = kv, a.kv_scale = s->format == KV_FP8 ? layer_scale : NULL;
  a.y = kernel_test_output(test, (size_t)room * 64 * columns * 2);
  kernel_test_keep(test, a.y + (size_t)pages * 64 * columns, (size_t)(room - pages) * 64 * columns * 2);
  if (!s->piece_pages) {
    a.table = kernel_test_output(test, PAGES_MAX * 4);
    kernel_test_keep(test, a.table + total, (size_t)(PAGES_MAX - total) * 4);
  }
  kernel_variant v[] = {{.grid = {1, 1, 1}, .threads = 128}, {.grid = {7, 2, 1}, .threads = 128},
                        {.grid = {200, 1, 1}, .threads = 128}};
  for (u32 i = 0; i < ARRAY_LEN(v) && s->piece_pages; i++) v[i].spec[v[i].spec_count++] = (jit_spec){"SPEC_PIECES", 1};
  kernel_test_run(test, &a, v, ARRAY_LEN(v));
  for (u32 i = 0; i < s->contexts; i++) {
    for (u32 t = 0; t < pages_of(s->tokens[i]) * 64; t++) {
      const u32 page = contexts[i].first + t / 64;
      if (page < first || page >= first + pages) continue;
      const bf16 *y = a.y + ((size_t)(page - first) * 64 + t % 64) * columns;
      const size_t place = (size_t)table[contexts[i].seq * STRIDE + t / 64] * 64 + t % 64;
      if (t < s->tokens[i]) check_row(s, kv + place * row_bytes, y);
      for (u32 j = 0; j < columns && t >= s->tokens[i]; j++) assert_int_equal(y[j], 0);
      if (a.table) assert_int_equal(a.table[page], page);
    }
  }
}

static void widen_cases(kernel_test *test) {
  static const widen_shape shapes[] = {
      {512, 64, KV_FP8_DS_MLA, SCALE_F32, 4, {1, 200, 64, 63}, 0, 0, 0},
      {512, 64, KV_FP8_DS_MLA, SCALE_POW2, 3, {320, 129, 15}, 0, 0, 0},
      {512, 32, KV_FP8_DS_MLA, SCALE_F32, 2, {17, 112}, 0, 0, 0},
      {512, 32, KV_FP8_DS_MLA, SCALE_POW2, 1, {16}, 0, 0, 0},
      {512, 64, KV_FP8, SCALE_F32, 3, {65, 192, 2}, 0x1.9p-5f, 0, 0},
      {512, 32, KV_FP8, SCALE_F32, 1, {255}, 0x1p-130f, 0, 0},
      {256, 64, KV_FP8, SCALE_F32, 4, {128, 1, 48, 33}, 0x1.234568p+119f, 0, 0},
      {256, 32, KV_FP8, SCALE_F32, 2, {130, 256}, 0x1.fffffep-3f, 0, 0},
      {512, 64, KV_FP8_DS_MLA, SCALE_POW2, 3, {129, 65, 20}, 0, 2, 1}, /* the second piece begins in the first context's last page */
      {512, 64, KV_FP8, SCALE_F32, 4, {64, 1, 130, 63}, 0x1.9p-5f, 4, 1},
      {256, 32, KV_FP8, SCALE_F32, 1, {300}, 0x1.9p-5f, 8, 0},
  };
  for (size_t i = 0; i < ARRAY_LEN(shapes); i++) widen_case(test, &shapes[i]);
}

int main(int argc, char **argv) {
  return kernel_test_main(argc, argv, "kv_widen", "afc3dc3bd15664073e9713d00ed4579d", widen_cases);
}

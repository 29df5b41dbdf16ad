/* test_index_topk.c - index_topk: top-k index lists against a sort of all scores, over lengths around every edge, ties, plateaus, zeros of
 * both signs, NaN and Inf; rows that are taken whole without reading their scores; every way of sharing rows among CTAs. */
#include "kernel_test.h"
#include <stdlib.h>

/* The forms of plans, and others that hold few scores, as in tests/emulator/forms.toml. */
static const struct { u32 threads, cluster, held; } FORMS[] = {
    {.threads = 512, .cluster = ROW_BLOCKS, .held = INDEX_TOPK_HELD}, {.threads = 512, .cluster = ROW_BLOCKS, .held = 8448},
    {.threads = 1024, .cluster = 1, .held = INDEX_TOPK_HELD_MANY},    {.threads = 1024, .cluster = 1, .held = 17408}};

enum content {
  CONTENT_SPREAD,  /* all different, of both signs                 */
  CONTENT_COARSE,  /* few values: ties at every limit              */
  CONTENT_EQUAL,   /* one value                                    */
  CONTENT_ZEROS,   /* zeros of both signs, and a few other values  */
  CONTENT_SPECIAL, /* NaN of both signs, Inf, zeros, subnormals    */
  CONTENT_CLOSE,   /* differences in the last bits                 */
  CONTENT_RISING, CONTENT_FALLING,
  CONTENT_KINDS
};

typedef struct shape {
  u32 rows, first, tokens, topk, n, step; /* row i has n + i * step scores */
  u32 stride, content;
} shape;

/* === The reference result =============================================================================================== */

typedef struct entry { f32 score; u32 position; } entry;

/* Better scores first. */
static int compare_entries(const void *left, const void *right) {
  const entry *x = left, *y = right;
  const bool x_nan = isnan(x->score), y_nan = isnan(y->score);
  if (x_nan != y_nan) return x_nan ? -1 : 1;
  if (!x_nan && x->score != y->score) return x->score > y->score ? -1 : 1;
  return x->position < y->position ? -1 : 1;
}

static int compare_positions(const void *left, const void *right) {
  const u32 x = *(const u32 *)left, y = *(const u32 *)right;
  return x < y ? -1 : x > y;
}

static void check_row(const index_topk_args *a, u32 row, entry *all, u32 *want) {
  const u32 token = a->row_first + row, n = a->position[token] + 1, *list = a->lists + (size_t)token * a->topk;
  const u32 count = n < a->topk ? n : a->topk;
  for (u32 i = 0; i < n; i++) all[i] = (entry){n <= a->topk ? 0 : a->scores[(size_t)row * a->stride + i], i};
  qsort(all, n, sizeof *all, compare_entries);
  for (u32 i = 0; i < count; i++) want[i] = all[i].position;
  qsort(want, count, sizeof *want, compare_positions);
  for (u32 i = count; i < a->topk; i++) want[i] = 0xffffffffu;
  assert_memory_equal(want, list, a->topk * sizeof *want);
}

/* === Cases ============================================================================================================== */

static f32 score_of(cases *c, u32 kind, u32 i) {
  const u32 r = cases_bits(c);
  static const u32 specials[] = {0x7fc00000u, 0xffc00000u, 0x7f800000u, 0xff800000u, 0, 0x80000000u, 1, 0x80000001u, 0x7f800001u};
  switch (kind) {
    case CONTENT_COARSE: return (f32)(r % 7) - 3;
    case CONTENT_EQUAL: return 0.75f;
    case CONTENT_ZEROS: return r % 16 > 1 ? (r & 256 ? -0.0f : 0.0f) : cases_uniform(c, 1);
    case CONTENT_SPECIAL: return r % 3 ? num_float(specials[r / 4 % ARRAY_LEN(specials)]) : cases_uniform(c, 4);
    case CONTENT_CLOSE: return num_float(0x3f800000u + (r & 1023));
    case CONTENT_RISING: return (f32)i * 0.5f;
    case CONTENT_FALLING: return -(f32)i;
    default: return cases_uniform(c, 8);
  }
}

static void topk_case(kernel_test *test, const shape *s) {
  cases c = {.state = s->rows * 1000003u + s->topk * 131 + s->n * 7 + s->step + s->content * 11};
  const u32 padded = s->tokens + 2, last = s->first + s->rows;
  index_topk_args a = {.topk = s->topk, .stride = s->stride, .row_first = s->first, .row_count = s->rows};
  kernel_test_start(test);
  a.step = kernel_test_step(test, s->tokens, 0, 0);
  f32 *scores = kernel_test_input(test, (size_t)s->rows * s->stride * 4);
  u32 *position = kernel_test_input(test, padded * 4);
  a.lists = kernel_test_output(test, (size_t)padded * s->topk * 4);
  for (u32 t = 0; t < padded; t++)
    if (t < s->first || t >= last || t >= s->tokens) kernel_test_keep(test, a.lists + (size_t)t * s->topk, s->topk * 4);
  u32 longest = 0;
  for (u32 t = 0; t < s->tokens; t++) {
    const u32 row = t - s->first, n = s->n + (t < s->first ? 0 : row) * s->step;
    position[t] = n - 1;
    if (t < s->first || t >= last) continue;
    ASSERT(n <= s->stride);
    longest = max_u32(longest, n);
    for (u32 i = 0; i < n && n > s->topk; i++) scores[(size_t)row * s->stride + i] = score_of(&c, s->content, i); /* else poison */
  }
  a.scores = scores;
  a.position = position;
  const u32 clusters[] = {s->rows, (u32)div_up(s->rows, 8), 1}; /* one per row; one per eight rows; one for all */
  kernel_variant variants[12];
  u32 count = 0;
  for (u32 i = 0; i < 3; i++) {
    if (i > 0 && clusters[i] == clusters[i - 1]) continue;
    for (u32 j = 0; j < ARRAY_LEN(FORMS); j++)
      variants[count++] = (kernel_variant){{{"SPEC_HELD", FORMS[j].held}, {"SPEC_CLUSTER", FORMS[j].cluster}}, .spec_count = 2,
                                           .grid = {clusters[i], ROW_BLOCKS, 1}, .threads = FORMS[j].threads,
                                           .shared_bytes = FORMS[j].held * 4};
  }
  kernel_test_run(test, &a, variants, count);
  entry *all = malloc(longest * sizeof *all + 1);
  u32 *want = malloc(s->topk * sizeof *want);
  assert_true(all && want);
  for (u32 row = 0; row < s->rows && s->first + row < s->tokens; row++) check_row(&a, row, all, want);
  free(all);
  free(want);
}

static void topk_cases(kernel_test *test) {
  /* Rows about as long as an index list; an op over some rows of a step, and over more rows than it has. */
  for (u32 content = 0; content < CONTENT_KINDS; content++) {
    topk_case(test, &(shape){.rows = 9, .tokens = 9, .topk = 64, .n = 60, .step = 1, .stride = 128, .content = content});
    topk_case(test, &(shape){.rows = 3, .first = 2, .tokens = 6, .topk = 128, .n = 129, .step = 700, .stride = 1600, .content = content});
    /* short and long rows, three missing */
    topk_case(test, &(shape){.rows = 12, .first = 4, .tokens = 13, .topk = 64, .n = 1, .step = 129, .stride = 1472, .content = content});
    topk_case(test, &(shape){.rows = 1, .tokens = 1, .topk = 192, .n = 4097, .stride = 4160, .content = content});
    topk_case(test, &(shape){.rows = 2, .tokens = 2, .topk = 2048, .n = 2050, .step = 3000, .stride = 5056, .content = content});
  }
  /* Edges of vectors of four, of a warp's share, of a CTA's share and of the scores it holds. */
  static const u32 lengths[] = {65, 66, 67, 68, 127, 128, 129, 511, 512, 513, 515, 1023, 1024, 1025, 2047, 2049, 4095, 4100, 8193};
  for (u32 i = 0; i < ARRAY_LEN(lengths); i++)
    topk_case(test, &(shape){.rows = 1, .tokens = 1, .topk = 64, .n = lengths[i], .stride = 8256, .content = i % CONTENT_KINDS});
  /* row counts that are no multiple of eight */
  topk_case(test, &(shape){.rows = 9, .tokens = 9, .topk = 64, .n = 509, .step = 1, .stride = 576, .content = CONTENT_COARSE});
  topk_case(test, &(shape){.rows = 17, .tokens = 17, .topk = 64, .n = 300, .step = 40, .stride = 1024, .content = CONTENT_CLOSE});
  /* More scores than the CTAs hold: in a share of a row, and in a row of one CTA. */
  topk_case(test, &(shape){.rows = 1, .tokens = 1, .topk = 2048, .n = 8 * INDEX_TOPK_HELD + 70000, .stride = 8 * INDEX_TOPK_HELD + 70016,
                           .content = CONTENT_SPREAD});
  topk_case(test, &(shape){.rows = 9, .tokens = 9, .topk = 2048, .n = 2 * INDEX_TOPK_HELD - 5, .step = 1,
                           .stride = 2 * INDEX_TOPK_HELD + 64, .content = CONTENT_CLOSE});
  topk_case(test, &(shape){.rows = 1, .tokens = 1, .topk = 2048, .n = 1u << 20, .stride = 1u << 20, .content = CONTENT_ZEROS});
}

int main(int argc, char **argv) {
  return kernel_test_main(argc, argv, "index_topk", "f1db29cd7c9acb825bc154c38e625b63", topk_cases);
}

/* test_adjust.c - adjust: penalties by history, biases, bans, in rows with different parameters; against each step of the definition in
 * binary64, rounded. Histories span pages, up to the longest; vocabularies span the slices of several CTAs. */
#include "kernel_test.h"
#include <float.h>
#include <stdlib.h>

enum logits_kind { LOGITS_PLAIN, LOGITS_SPECIAL, LOGITS_KINDS }; /* special: row 0 has NaN, row 1 Inf, row 2 numbers near FLT_MAX */

typedef struct adjust_shape {
  u32 rows, vocab, length; /* length: of the longest history */
  u32 kind;
} adjust_shape;

/* An id that is often next to an end of the vocabulary or of a slice. */
static i32 choose_id(cases *c, u32 vocab) {
  u32 edge = cases_below(c, vocab / ADJUST_SLICE + 2) * ADJUST_SLICE;
  u32 id = (edge < vocab ? edge : vocab) + cases_below(c, 4) - 2;
  return (i32)(cases_below(c, 3) && id < vocab ? id : cases_below(c, vocab));
}

static void choose_list(cases *c, u32 vocab, token_bias *list, u32 count) {
  u32 start = cases_below(c, vocab), apart = count ? vocab / count : 0;
  for (u32 i = 0; i < count; i++) {
    list[i].token = (i32)((start + i * apart) % vocab);
    list[i].bias = i % 7 == 0 ? 0 : cases_uniform(c, i % 2 ? 1000 : 3);
  }
}

static void choose_param(cases *c, const adjust_shape *shape, u32 row, sample_param *p) {
  static const f32 repetitions[] = {1, 1.3f, 0.5f, 16, 1, 0.0625f};
  static const f32 presences[] = {0, 0.7f, -2, 16, -0.0f}, frequencies[] = {0, -0.0f, 0.1f, -1.5f, 16};
  static const u32 counts[] = {0, 1, 5, TOKEN_LIST_MAX, 300};
  p->adjusted = row % 4 != 3;
  p->repetition = repetitions[row % 6];
  p->presence = presences[cases_below(c, 5)];
  p->frequency = frequencies[cases_below(c, 5)];
  p->position = row % 3 ? 1 + cases_below(c, shape->length) : shape->length;
  p->prompt_count = row % 5 == 4 ? p->position : 1 + cases_below(c, p->position);
  p->list_count = counts[row % 5] < shape->vocab ? counts[row % 5] : shape->vocab;
  p->list_only = p->list_count > 0 && row % 3 != 1;
}

static void choose_logits(cases *c, const adjust_shape *shape, f32 *logits) {
  u32 vocab = shape->vocab;
  for (u32 i = 0; i < shape->rows * vocab; i++) logits[i] = cases_below(c, 9) ? cases_uniform(c, 30) : cases_below(c, 2) ? 0.0f : -0.0f;
  if (shape->kind != LOGITS_SPECIAL) return;
  for (u32 i = 0; i < vocab; i++) logits[i] = cases_below(c, 3) ? logits[i] : NAN;
  for (u32 i = vocab; i < 2 * vocab; i++) logits[i] = cases_below(c, 3) ? logits[i] : cases_below(c, 2) ? INFINITY : -INFINITY;
  for (u32 i = 2 * vocab; i < 3 * vocab; i++) {
    f32 large = FLT_MAX - 0x1p108f * (f32)cases_below(c, 9);
    logits[i] = cases_below(c, 2) ? large : -large;
  }
}

/* Every number as NUMERICS.md defines it; an operation in binary64, rounded to fp32, equals that operation in fp32. */
static f32 expected(f32 logit, const sample_param *p, u32 made, bool is_seen, const token_bias *listed) {
  double a = (double)logit;
  if (is_seen) a = (double)(f32)(logit > 0 ? a / (double)p->repetition : a * (double)p->repetition);
  a = (double)(f32)(a - (double)(f32)((double)p->frequency * made));
  if (made) a = (double)(f32)(a - (double)p->presence);
  if (a > (double)FLT_MAX) a = (double)FLT_MAX;
  if (a < (double)-FLT_MAX) a = (double)-FLT_MAX;
  if (listed) return (f32)(a + (double)listed->bias);
  return p->list_only ? -INFINITY : (f32)a;
}

static void check_row(const adjust_args *a, u32 row) {
  const sample_param *p = &a->param[row];
  u32 *seen = calloc(2 * (size_t)a->vocab, sizeof *seen), *made = seen + a->vocab;
  const token_bias **listed = calloc(a->vocab, sizeof *listed);
  assert_true(seen && listed);
  for (u32 at = 0; at < p->position; at++) {
    i32 id = a->history[a->block_table[p->slot * a->block_table_stride + at / 64] * 64 + at % 64];
    seen[id]++;
    if (at >= p->prompt_count) made[id]++;
  }
  for (u32 i = 0; i < p->list_count; i++) {
    const token_bias *entry = &a->lists[p->slot * TOKEN_LIST_MAX + i];
    assert_null(listed[entry->token]);
    listed[entry->token] = entry;
  }
  for (u32 i = 0; i < a->vocab; i++) {
    size_t at = (size_t)row * a->vocab + i;
    f32 got = a->adjusted[at], want = expected(a->logits[at], p, made[i], seen[i] > 0, listed[i]);
    bool is_loose = (isnan(got) && isnan(want)) || (row == 0 && got == 0 && want == 0); /* row 0: may hold NaN */
    assert_true(is_loose || num_bits(got) == num_bits(want));
  }
  free(listed);
  free(seen);
}

static void adjust_case(kernel_test *test, adjust_shape shape, u32 same) {
  cases c = {.state = shape.rows * 1000003u + shape.vocab * 31u + shape.length + shape.kind};
  u32 rows = shape.rows, vocab = shape.vocab, slots = rows + 2, stride = (shape.length + 63) / 64 + 1, pages = slots * stride;
  kernel_test_start(test);
  step_in *step = kernel_test_step(test, rows + 3, rows, 0);
  f32 *logits = kernel_test_input(test, (size_t)(rows + 2) * vocab * 4);
  sample_param *param = kernel_test_input(test, (rows + 2) * sizeof *param);
  token_bias *lists = kernel_test_input(test, (size_t)slots * TOKEN_LIST_MAX * sizeof *lists);
  i32 *history = kernel_test_input(test, (size_t)pages * 64 * sizeof *history);
  u32 *block_table = kernel_test_input(test, pages * sizeof *block_table);
  f32 *adjusted = kernel_test_output(test, (size_t)(rows + 2) * vocab * 4);
  kernel_test_keep(test, adjusted + (size_t)rows * vocab, (size_t)2 * vocab * 4);
  choose_logits(&c, &shape, logits);
  for (u32 i = 0; i < pages; i++) block_table[i] = pages - 1 - i;
  for (u32 i = 0; i < pages * 64; i++) history[i] = same && cases_below(&c, same) ? 3 : choose_id(&c, vocab);
  for (u32 r = 0; r < rows; r++) {
    choose_param(&c, &shape, r, &param[r]);
    param[r].slot = 1 + (r + 1) % rows;
    choose_list(&c, vocab, lists + (size_t)param[r].slot * TOKEN_LIST_MAX, param[r].list_count);
    if (!param[r].adjusted) kernel_test_keep(test, adjusted + (size_t)r * vocab, (size_t)vocab * 4);
  }
  if (shape.kind == LOGITS_SPECIAL) kernel_test_loose(test, adjusted, (size_t)vocab * 4); /* NaN */
  adjust_args args = {.step = step, .logits = logits, .param = param, .lists = lists, .history = history, .block_table = block_table,
                      .adjusted = adjusted, .vocab = vocab, .block_table_stride = stride};
  u32 slices = (vocab + ADJUST_SLICE - 1) / ADJUST_SLICE;
  kernel_variant variants[] = {{.grid = {rows, slices, 1}, .threads = 512}, {.grid = {rows + 2, slices + 1, 1}, .threads = 512}};
  kernel_test_run(test, &args, variants, 2);
  for (u32 r = 0; r < rows; r++)
    if (param[r].adjusted) check_row(&args, r);
}

static void adjust_cases(kernel_test *test) {
  adjust_case(test, (adjust_shape){.rows = 1, .vocab = 8, .length = 1, .kind = LOGITS_PLAIN}, 0);
  adjust_case(test, (adjust_shape){.rows = 60, .vocab = 24, .length = 64, .kind = LOGITS_PLAIN}, 0);
  adjust_case(test, (adjust_shape){.rows = 60, .vocab = 1000, .length = 700, .kind = LOGITS_PLAIN}, 0);
  adjust_case(test, (adjust_shape){.rows = 30, .vocab = 1000, .length = 65, .kind = LOGITS_SPECIAL}, 0);
  adjust_case(test, (adjust_shape){.rows = 8, .vocab = 8184, .length = 4000, .kind = LOGITS_PLAIN}, 0);
  adjust_case(test, (adjust_shape){.rows = 8, .vocab = 8192, .length = 129, .kind = LOGITS_SPECIAL}, 0);
  adjust_case(test, (adjust_shape){.rows = 8, .vocab = 8200, .length = 4000, .kind = LOGITS_PLAIN}, 0);
  adjust_case(test, (adjust_shape){.rows = 7, .vocab = 129280, .length = 8192, .kind = LOGITS_PLAIN}, 2);
  adjust_case(test, (adjust_shape){.rows = 3, .vocab = 262144, .length = 5000, .kind = LOGITS_SPECIAL}, 0);
  /* one token repeated */
  adjust_case(test, (adjust_shape){.rows = 2, .vocab = 16, .length = (1u << 20) - 1, .kind = LOGITS_PLAIN}, 1u << 20);
}

int main(int argc, char **argv) {
  return kernel_test_main(argc, argv, "adjust", "9430c16559a3851bea775124947c0e18", adjust_cases);
}

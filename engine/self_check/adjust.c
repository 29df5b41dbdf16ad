/* self_check/adjust.c - the probes of the op `adjust` and their known answers. See self_check/cases.h. */
#include "self_check/images.h"
#include <float.h>
#include "base/limits.h"

/* Rows: penalties of both kinds over a history of three pages; none; only listed tokens, logits at the ends of fp32; a bias list. */
#define ADJUST_ROWS 4u

static void choose_adjustments(sample_param *param) {
  for (u32 i = 0; i < ADJUST_ROWS; i++) {
    param[i] = PLAIN;
    param[i].slot = (i + 1) % ADJUST_ROWS;
    param[i].adjusted = i != 1;
    param[i].position = 130 + i;
    param[i].prompt_count = 70;
  }
  param[0].repetition = 1.3f;
  param[0].presence = 0.7f;
  param[0].frequency = 0.1f;
  param[2].list_count = 5;
  param[2].list_only = 1;
  param[2].presence = -2;
  param[3].list_count = 40;
  param[3].repetition = 0.5f;
  param[3].frequency = -1.5f;
}

static void build(self_check_image *image) {
  enum { VOCAB = ADJUST_SLICE + 8, STRIDE = 3, PAGES = ADJUST_ROWS * STRIDE };
  adjust_args a = {.step = take_step(image, 1, ADJUST_ROWS, 0), .vocab = VOCAB, .block_table_stride = STRIDE};
  f32 *logits = take(image, (ADJUST_ROWS + 1) * VOCAB * 4ull);
  sample_param *param = take(image, (ADJUST_ROWS + 1) * sizeof *param);
  token_bias *lists = take(image, ADJUST_ROWS * TOKEN_LIST_MAX * sizeof *lists);
  i32 *history = take(image, PAGES * PAGE_TOKENS * 4);
  u32 *block_table = take(image, PAGES * 4);
  fill_f32(image, logits, ADJUST_ROWS * VOCAB, -4, 9);
  for (u32 i = 0; i < 64; i++) logits[2 * VOCAB + i] = i % 2 ? FLT_MAX : -FLT_MAX;
  for (u32 i = 0; i < PAGES * PAGE_TOKENS; i++) /* most ids are near the ends of slices and occur repeatedly */
    history[i] = (i32)(i % 3 ? ADJUST_SLICE - 6 + random_below(image, 14) : random_below(image, VOCAB));
  for (u32 i = 0; i < PAGES; i++) block_table[i] = PAGES - 1 - i;
  choose_adjustments(param);
  for (u32 r = 0; r < ADJUST_ROWS; r++)
    for (u32 i = 0; i < param[r].list_count; i++) {
      token_bias *entry = lists + (u64)param[r].slot * TOKEN_LIST_MAX + i;
      entry->token = (i32)(param[r].list_count > 8 ? (ADJUST_SLICE - 20 + i) % VOCAB : i * 3);
      entry->bias = i % 4 ? (f32)i * 0.37f - 3.0f : 0;
    }
  a.logits = logits;
  a.param = param;
  a.lists = lists;
  a.history = history;
  a.block_table = block_table;
  a.adjusted = take(image, (ADJUST_ROWS + 1) * VOCAB * 4ull);
  LAUNCH(image, a, ADJUST_ROWS + 1, (u32)div_up(VOCAB, ADJUST_SLICE), 1);
}

static const self_check_probe probes[] = {
    {14, 0, 0, 0, "penalties and lists", "c3eb5b97fdcc526bbf21da21bf92a55c"},
};

const self_check_op self_check_adjust = {build, ARRAY_LEN(probes), probes};

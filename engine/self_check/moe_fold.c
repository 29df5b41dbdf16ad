/* self_check/moe_fold.c - the probes of the op `moe_fold` and their known answers. See self_check/cases.h. */
#include "self_check/images.h"

/* Form 0: nine experts and a shared one, with gaps between rows. 1: two experts without a shared one. 2: as 0, with a
 * gate. Two blocks per row. */
static void build(self_check_image *image) {
  enum { TOKENS = 3, PAIRS_MAX = TOKENS * 9, COLUMNS = MOE_FOLD_COLUMNS + 36 };
  const bool shared = image->form != 1;
  const u32 top_k = shared ? 9 : 2, pairs = TOKENS * top_k, gap = shared ? 8 : 0;
  moe_fold_args a = {.step = take_step(image, TOKENS, 0, 0), .columns = COLUMNS, .top_k = top_k, .delta_stride = COLUMNS + 2 * gap,
                     .y_stride = COLUMNS + gap};
  f32 *experts = take(image, PAIRS_MAX * COLUMNS * 4), *weight = take(image, (pairs + top_k) * 4);
  f32 *delta = take(image, (TOKENS + 1) * a.delta_stride * 4);
  u32 *pair_row = take(image, (pairs + top_k) * 4);
  fill_f32(image, experts, pairs * COLUMNS, -6, 10);
  fill_f32(image, weight, pairs, -3, 4);
  for (u32 t = 0; t < TOKENS && shared; t++) fill_f32(image, delta + t * a.delta_stride, COLUMNS, -6, 10);
  for (u32 i = 0; i < pairs; i++) pair_row[i] = (i * 7 + 3) % pairs;
  a.experts = experts;
  a.pair_row = pair_row;
  a.topk_weight = weight;
  a.delta = shared ? delta : NULL;
  if (image->form == 2) {
    f32 *gate = take(image, (TOKENS + 1) * 3 * 4);
    for (u32 t = 0; t < TOKENS; t++) fill_f32(image, gate + t * 3, 1, -2, 4);
    a.gate = gate;
    a.gate_stride = 3;
  }
  a.y = take(image, (TOKENS + 1) * a.y_stride * 4);
  LAUNCH(image, a, TOKENS + 1, (u32)div_up(COLUMNS, MOE_FOLD_COLUMNS), 1);
}

static const self_check_probe probes[] = {
    {26, 0, 0, 0, "experts and a shared one", "7fc0ab2495a4ad31187a578b174f110b"},
    {26, 1, 0, 0, "experts alone", "29fea266a98fa3f279fe3506d025a668"},
    {26, 2, 0, 0, "experts and a shared one with a gate", "3ce1715a687c1728afd97d5f659ec288"},
};

const self_check_op self_check_moe_fold = {build, ARRAY_LEN(probes), probes};

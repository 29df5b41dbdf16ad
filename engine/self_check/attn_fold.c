/* self_check/attn_fold.c - the probes of the op `attn_fold` and their known answers. See self_check/cases.h. */
#include "self_check/images.h"

/* (m, l, O) of a unit. Maxima are close together, or so far apart that some factors are 0. */
static void fill_unit(self_check_image *image, f32 *o, f32 *ml, u32 columns, u32 maxima) {
  ml[0] = (f32)random_below(image, maxima) - 20.0f;
  ml[1] = 1.0f + (f32)random_below(image, 1u << 20) * 0x1p-15f;
  fill_f32(image, o, columns, -6, 12);
}

/* Form 0: values of 80 columns, more units than a stage of the kernel has. 1: of 128, sums whose order shows, units of two tokens by
 * turns. */
static void build(self_check_image *image) {
  enum { TOKENS = 3, HEADS = 2, UNITS = 70 };
  const bool ordered = image->form == 1;
  const u32 v_dim = ordered ? 128 : 80, used[TOKENS] = {UNITS, ordered ? 66 : 2, 33}, slots = TOKENS * UNITS;
  attn_fold_args a = {.step = take_step(image, TOKENS + 1, 0, 1), .heads = HEADS, .v_dim = v_dim, .slots_max = slots};
  attn_part *parts = take(image, (TOKENS + 1) * sizeof *parts);
  attn_counts *counts = take(image, sizeof *counts);
  f32 whole[128] = {0}, *ml = take(image, slots * HEADS * 8), *o = take(image, (u64)slots * HEADS * v_dim * 4);
  a.out = take(image, (TOKENS + 2) * HEADS * v_dim * 2ull);
  if (ordered) fill_f32(image, whole, v_dim, 0, 1);
  for (u32 t = 0; t < TOKENS; t++) { /* token 1 of the step is not split */
    const bool by_turns = ordered && t < 2;
    parts[t] = (attn_part){.token = t ? t + 1 : 0, .first = by_turns ? t : t * UNITS, .step = by_turns ? 2 : 1, .units = used[t]};
    for (u32 u = 0; u < used[t]; u++)
      for (u32 h = 0; h < HEADS; h++) {
        const u64 at = (parts[t].first + (u64)u * parts[t].step) * HEADS + h;
        fill_unit(image, o + at * v_dim, ml + 2 * at, v_dim, ordered || h ? 4 : 160);
        for (u32 i = 0; i < v_dim && ordered; i++)
          o[at * v_dim + i] = order_share(u, i) * whole[i] / (f32)(1u << (u32)(ml[2 * at] + 20.0f));
      }
  }
  *counts = (attn_counts){.parts = TOKENS, .piece_chunks = 1, .units_most = UNITS};
  a.counts = counts;
  a.parts = parts;
  a.partial_o = o;
  a.partial_ml = ml;
  LAUNCH(image, a, 5, 1, 1);
}

static const self_check_probe probes[] = {
    {27, 0, 0, 0, "80 columns, many units", "61a93a96b47424b1cc77a4a0b25dc8c3"},
    {27, 1, 0, 0, "128 columns, order of the sum", "8102b1c2a65219e8283e836030480d92"},
};

const self_check_op self_check_attn_fold = {build, ARRAY_LEN(probes), probes};

/* self_check/mla_fold.c - the probes of the op `mla_fold` and their known answers. See self_check/cases.h. */
#include "self_check/images.h"

/* (m, l, O) of a unit. Maxima are close together, or so far apart that some factors are 0. */
static void fill_unit(self_check_image *image, f32 *o, f32 *ml, u32 rank, u32 maxima) {
  ml[0] = (f32)random_below(image, maxima) - 20.0f;
  ml[1] = 1.0f + (f32)random_below(image, 1u << 20) * 0x1p-15f;
  fill_f32(image, o, rank, -6, 12);
}

/* Form 0: units of a chunk, groups of eight. 1: units of a group of three. 2: units of a chunk, groups of three, sums whose order shows. 3:
 * as 2, with the products, and a token that is not split. */
bool self_check_mla_fold_lifts(uint32_t form) { return form == 3; }

static void build(self_check_image *image) {
  enum { TOKENS = 3, HEADS = 2 };
  const bool ordered = image->form >= 2;
  const u32 rank = image->form % 3 ? 256 : 512, v_dim = 64, units = ordered ? 8 : image->form ? 5 : 40;
  const u32 used[TOKENS] = {units, ordered ? 4 : 1, ordered ? 7 : 3};
  mla_fold_args a = {.step = take_step(image, TOKENS, 0, 1), .heads = HEADS, .kv_lora_rank = rank, .group_chunks = image->form ? 3 : 8,
                     .v_dim = v_dim, .lifts = self_check_mla_fold_lifts(image->form)};
  attn_part *parts = take(image, (TOKENS + 1) * sizeof *parts);
  attn_counts *counts = take(image, sizeof *counts);
  f32 whole[512] = {0}, *ml = take(image, TOKENS * units * HEADS * 8);
  a.out = take(image, (TOKENS + 1) * HEADS * rank * 2ull);
  if (a.lifts) {
    fill_bf16(image, a.out + (u64)HEADS * rank, HEADS * rank, -3, 6);
    bf16 *w_uv = take(image, (u64)HEADS * v_dim * rank * 2);
    for (u32 i = 0; i < HEADS * v_dim; i++) fill_product(image, w_uv + (u64)i * rank, rank, i % 2 ? PRODUCT_CANCELLING : PRODUCT_PLAIN, 1);
    a.w_uv = w_uv;
    a.value = take(image, (TOKENS + 1) * HEADS * v_dim * 2ull);
  }
  end_judged(image); /* units are undefined after they have been folded */
  f32 *o = take(image, (u64)TOKENS * units * HEADS * rank * 4);
  if (ordered) fill_f32(image, whole, rank, 0, 1);
  for (u32 t = 0, cut = 0; t < TOKENS; t++) {
    if (a.lifts && t == 1) continue;
    parts[cut++] = (attn_part){.token = t, .first = t * units, .step = 1, .units = used[t]};
    for (u32 u = 0; u < used[t]; u++)
      for (u32 h = 0; h < HEADS; h++) {
        u64 at = ((u64)t * units + u) * HEADS + h;
        fill_unit(image, o + at * rank, ml + 2 * at, rank, ordered || h ? 4 : 160);
        for (u32 i = 0; i < rank && ordered; i++) o[at * rank + i] = order_share(u, i) * whole[i] / (f32)(1u << (u32)(ml[2 * at] + 20.0f));
      }
  }
  *counts = (attn_counts){.parts = a.lifts ? TOKENS - 1 : TOKENS, .piece_chunks = image->form == 1 ? 3 : 1, .units_most = units};
  a.counts = counts;
  a.parts = parts;
  a.partial_o = o;
  a.partial_ml = ml;
  static const u32 blocks[] = {16, 1, TOKENS + 1, 5}; /* so that teams share a slice, in two rounds; take two slices; take one */
  LAUNCH(image, a, blocks[image->form], 1, 1);
}

static const self_check_probe probes[] = {
    {6, 0, 0, 0, "units of a chunk", "07cfc4752eafc54f6ea4546b17541090"},
    {6, 1, 0, 0, "units of a group", "61bd5c766e307d94819993513f1efe63"},
    {6, 2, 0, 0, "groups, order of the sum", "2e2ad4520331bf94e928a3baa027d96f"},
    {6, 3, 0, 0, "groups, products of the value", "fefed3012ba64ec6624d9f3e99a5c98f"},
};

const self_check_op self_check_mla_fold = {build, ARRAY_LEN(probes), probes};

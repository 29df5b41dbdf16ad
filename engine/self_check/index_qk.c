/* self_check/index_qk.c - the probes of the op `index_qk` and their known answers. See self_check/cases.h. */
#include "self_check/images.h"

/* Form 0: 64 rope columns in pairs of halves, scales of powers of two. 1: 32 in pairs of neighbours, any scales. 2: 64 in pairs of
 * neighbours. In every other key the differences are in the last bits, so that the order of its sum shows. A warp has heads of two
 * tokens. */
static void build(self_check_image *image) {
  enum { HEADS = 6, LENGTH = 131 };
  const u32 rope = image->form == 1 ? 32 : 64;
  const places *placed = image->form ? &mixed_places : &few_places;
  index_qk_args a = {.step = take_step(image, placed->count, 0, 0), .q_stride = HEADS * INDEX_DIM + 4, .k_stride = INDEX_DIM + 8,
                     .w_stride = HEADS + 2, .heads = HEADS, .rope_dim = rope, .block_table_stride = 3, .half_split = image->form == 0,
                     .scale_kind = image->form == 1 ? SCALE_F32 : SCALE_POW2, .eps = 1e-6f, .head_scale = 0x1.a20bd8p-2f};
  f32 *q = take(image, (placed->count + 1) * a.q_stride * 4ull), *k = take(image, (placed->count + 1) * a.k_stride * 4ull);
  f32 *w = take(image, (placed->count + 1) * a.w_stride * 4ull), *cos_sin = take(image, (u64)LENGTH * rope * 4);
  f32 *gain = take(image, INDEX_DIM * 4), *bias = take(image, INDEX_DIM * 4);
  take_places(image, placed, &a.position, &a.seq, &a.block_table);
  for (u32 t = 0; t < placed->count; t++) {
    f32 *key = k + t * a.k_stride;
    fill_f32(image, q + t * a.q_stride, HEADS * INDEX_DIM, -6, 10);
    fill_f32(image, w + t * a.w_stride, HEADS, -3, 6);
    fill_spiky(image, key, INDEX_DIM, INDEX_DIM);
    for (u32 i = 0; i < INDEX_DIM && t % 2; i++) key[i] = 0x1p20f + 0.125f * (f32)random_below(image, 16);
  }
  fill_f32(image, cos_sin, LENGTH * rope, -8, 8);
  fill_f32(image, gain, INDEX_DIM, -2, 3);
  fill_f32(image, bias, INDEX_DIM, -6, 6);
  a.q = q, a.k = k, a.w = w, a.cos_sin = cos_sin, a.gain = gain, a.bias = bias;
  a.q_codes = take(image, (placed->count + 1) * HEADS * (u64)INDEX_DIM);
  a.w_out = take(image, (placed->count + 1) * HEADS * 4ull);
  a.cache = take(image, (u64)PLACED_PAGES * INDEX_PAGE_BYTES);
  LAUNCH(image, a, (u32)div_up((placed->count + 1) * (HEADS + 1), INDEX_QK_ROWS), 1, 1);
}

static const self_check_probe probes[] = {
    {18, 0, 0, 0, "64 in pairs of halves, powers of two", "acdcd33967035600af320467706a9ccf"},
    {18, 1, 0, 0, "32 in pairs of neighbours, any scales", "54f707c23b9350c96722abc925d6be93"},
    {18, 2, 0, 0, "64 in pairs of neighbours, powers of two", "f16f4264461666552ecf3990b0932f62"},
};

const self_check_op self_check_index_qk = {build, ARRAY_LEN(probes), probes};

/* self_check/qkv_rope.c - the probes of the op `qkv_rope` and their known answers. See self_check/cases.h. */
#include "self_check/images.h"

/* Form 0: 512 latent and 64 rope columns in pairs of neighbours. 1: 256 and 32, in pairs of halves, with a scale of the query. 2: rows of
 * three sequences in turn. 3: as 1, with the products. 4 and 5: as 0 with scaled KV rows, by powers of two (4) or any scales (5). 6: as 1,
 * with one scale per layer. */
bool self_check_qkv_rope_absorbs(uint32_t form) { return form == 3; }

static void build(self_check_image *image) {
  enum { HEADS = 9, LENGTH = 131 }; /* nine heads for eight warps */
  const bool halves = image->form == 1 || image->form == 3 || image->form == 6, small = halves || image->form == 2;
  const u32 rank = small ? 256 : 512, rope = small ? 32 : 64, nope = small ? 64 : 128;
  const u32 kv_format = image->form < 4 ? KV_BF16 : image->form == 6 ? KV_FP8 : KV_FP8_DS_MLA;
  const places *placed = image->form == 2 ? &mixed_places : &few_places;
  qkv_rope_args a = {.step = take_step(image, placed->count, 0, 0), .q_stride = HEADS * (nope + rope) + 4, .kv_in_stride = rank + rope + 8,
                     .heads = HEADS, .nope_dim = nope, .rope_dim = rope, .kv_lora_rank = rank, .block_table_stride = 3, .eps = 1e-6f,
                     .half_split = halves, .absorbs = self_check_qkv_rope_absorbs(image->form), .kv_format = kv_format,
                     .scale_kind = image->form == 4 ? SCALE_POW2 : SCALE_F32};
  f32 *q = take(image, (placed->count + 1) * a.q_stride * 4ull), *kv_in = take(image, (placed->count + 1) * a.kv_in_stride * 4ull);
  f32 *cos_sin = take(image, (u64)LENGTH * rope * 4), *scale = take(image, LENGTH * 4);
  bf16 *weight = take(image, rank * 2ull);
  take_places(image, placed, &a.position, &a.seq, &a.block_table);
  fill_f32(image, q, placed->count * a.q_stride, -6, 10);
  for (u32 t = 0; t < placed->count; t++) {
    fill_spiky(image, kv_in + t * a.kv_in_stride, rank, rank);
    fill_f32(image, kv_in + t * a.kv_in_stride + rank, rope, -4, 8);
  }
  fill_f32(image, cos_sin, LENGTH * rope, -8, 8);
  fill_f32(image, scale, LENGTH, 0, 1);
  fill_bf16(image, weight, rank, -2, 3);
  a.q = q;
  a.kv_in = kv_in;
  a.cos_sin = cos_sin;
  a.q_scale = halves ? scale : NULL;
  if (kv_format == KV_FP8) a.kv_scale = take_layer_scale(image);
  a.weight = weight;
  if (a.absorbs) {
    bf16 *w_uk = take(image, (u64)HEADS * rank * nope * 2);
    for (u32 i = 0; i < HEADS * rank; i++) fill_product(image, w_uk + (u64)i * nope, nope, i % 2 ? PRODUCT_CANCELLING : PRODUCT_PLAIN, 1);
    a.w_uk = w_uk;
  }
  a.q_nope = take(image, (placed->count + 1) * HEADS * nope * 2ull);
  a.q_latent = take(image, (placed->count + 1) * HEADS * (u64)(rank + rope) * 2);
  a.kv = take(image, (u64)PLACED_PAGES * PAGE_TOKENS * (rank + rope) * 2);
  LAUNCH(image, a, placed->count + 1, 3, 1);
}

static const self_check_probe probes[] = {
    {15, 0, 0, 0, "512 + 64, neighbours", "2a5a71874400eecd25cc396c09ba997d"},
    {15, 1, 0, 0, "256 + 32, halves, query scale", "d8e3fa7e46438beda0a2af7e3d45bacd"},
    {15, 2, 0, 0, "ends of pages by turns", "97b8fe94256555b935428ffa5d3e4b2f"},
    {15, 3, 0, 0, "256 + 32, products of the query", "6573fcfc124736f259fa3c1a5b8cd752"},
    {15, 4, 0, 0, "512 + 64, scales that are powers of two", "29ffcfe976a5ac391fbea17b36e53db8"},
    {15, 5, 0, 0, "512 + 64, scales of fp32", "e7336fd1d5a87cb43dc17ead43d39bb9"},
    {15, 6, 0, 0, "256 + 32, a scale of the layer", "e5cfdbbbc26089548c7d8851b43fb6c0"},
};

const self_check_op self_check_qkv_rope = {build, ARRAY_LEN(probes), probes};

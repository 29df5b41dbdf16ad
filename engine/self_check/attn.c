/* self_check/attn.c - the probes of the op `attn` and their known answers. See self_check/cases.h. */
#include "self_check/images.h"
#include "kernels_src/attn/attn_cut.h"

#define SEQS 2u
#define STRIDE 3u /* pages of a sequence */
#define PAGES 4u
#define HEADS 6u
#define KV_HEADS 2u
#define TILES 3u
#define TOKENS 25u
#define LAST 143u   /* last position of the longest context           */
#define GRID 2u     /* fewer blocks than work items                   */

/* Rows of the positions that the tiles reach; the rest of the pages is poison. Some rows stand out, more so in each later block, so that
 * the exponent of the probabilities moves. */
static const void *take_kv(self_check_image *image, const u32 *block_table, u32 columns, u32 kv_format) {
  static const u32 length[SEQS] = {LAST + 1, 64};
  u8 *kv = take(image, (u64)PAGES * PAGE_TOKENS * columns * (kv_format == KV_BF16 ? 2 : 1));
  for (u32 seq = 0; seq < SEQS; seq++)
    for (u32 i = 0; i < length[seq]; i++) {
      u64 row = (u64)block_table[seq * STRIDE + i / PAGE_TOKENS] * PAGE_TOKENS + i % PAGE_TOKENS;
      bf16 *numbers = (bf16 *)(void *)kv + row * columns;
      if (kv_format == KV_BF16) fill_bf16(image, numbers, columns, i % 37 == 5 ? -3 + (i32)(i / PAGE_TOKENS) : -6, 6);
      else
        for (u32 j = 0; j < columns; j++) kv[row * columns + j] = (u8)(random_below(image, 127) | j % 3 << 7);
    }
  return kv;
}

/* The pieces of a split step: the first tile's context is two pieces of one chunk. */
static void take_pieces(self_check_image *image, attn_args *a) {
  attn_counts *counts = take(image, sizeof *counts);
  attn_piece *pieces = take(image, (TILES + 2) * sizeof *pieces);
  const u32 tokens = a->tiles[0].count;
  *counts = (attn_counts){.pieces = TILES + 1, .parts = tokens, .piece_chunks = 1, .units_most = 2};
  pieces[0] = (attn_piece){.tile = a->tiles[0], .end_block = 2};
  pieces[1] = (attn_piece){.tile = a->tiles[0], .first_block = 2, .end_block = 3};
  for (u32 i = 1; i < TILES; i++) pieces[i + 1] = (attn_piece){.tile = a->tiles[i], .end_block = 1, .slot = ATTN_WHOLE};
  a->counts = counts;
  a->pieces = pieces;
  a->slots_max = 2 * tokens;
  a->partial_o = take(image, (u64)a->slots_max * HEADS * a->v_dim * 4);
  a->partial_ml = take(image, (u64)a->slots_max * HEADS * 8);
}

uint32_t self_check_attn_kv_format(uint32_t form) { return form == 2 ? KV_FP8 : KV_BF16; }

/* Form 0: whole; rows of two warpgroups, two chunks, and rows that do not reach the last one. 1: split; tokens that do not reach the
 * last unit, 64 rows of them where the image has room. 2: as 0, codes. */
static void build(self_check_image *image) {
  static const attn_tile tile[][TILES] = {
      {{.row = 0, .count = 23, .seq = 0, .position = 121}, {.row = 23, .count = 1, .seq = 1, .position = 63}, {24, 1, 1, 20}},
      {{.row = 0, .count = 4, .seq = 0, .position = 126}, {.row = 4, .count = 1, .seq = 1, .position = 63}, {5, 1, 1, 20}},
      {{.row = 0, .count = 23, .seq = 0, .position = 106}, {.row = 23, .count = 1, .seq = 1, .position = 63}, {24, 1, 1, 20}}};
  const u32 tiling = image->form != 1 ? 0 : image->rope_dim > 128 ? 1 : 2, tokens = tiling == 1 ? 6 : TOKENS;
  const u32 head_dim = image->kv_lora_rank, v_dim = image->rope_dim, columns = KV_HEADS * (head_dim + v_dim);
  attn_args a = {.step = take_step(image, tokens, 0, TILES), .heads = HEADS, .kv_heads = KV_HEADS, .head_dim = head_dim, .v_dim = v_dim,
                 .block_table_stride = STRIDE, .chunk_tokens = 2 * PAGE_TOKENS, .scale_log2 = 0x1.2p-4f,
                 .kv_format = self_check_attn_kv_format(image->form)};
  attn_tile *tiles = take(image, (TILES + 1) * sizeof *tiles);
  bf16 *q = take(image, (u64)(tokens + 1) * HEADS * head_dim * 2);
  u32 *block_table = take(image, SEQS * STRIDE * 4);
  memcpy(tiles, tile[tiling], sizeof tile[0]);
  for (u32 i = 0; i < SEQS * STRIDE; i++) block_table[i] = (i * 3 + 1) % PAGES; /* the last rows of seq 1 are not used */
  fill_bf16(image, q, tokens * HEADS * head_dim, -5, 6);
  a.tiles = tiles;
  a.q = q;
  a.block_table = block_table;
  a.kv = take_kv(image, block_table, columns, a.kv_format);
  if (a.kv_format == KV_FP8) a.kv_scale = take_layer_scale(image);
  if (image->form == 1) take_pieces(image, &a);
  a.out = take(image, (u64)(tokens + 1) * HEADS * v_dim * 2);
  end_judged(image);
  a.scratch = take(image, (u64)GRID * attn_grouped_floats(v_dim) * 4);
  LAUNCH(image, a, GRID, 1, 1);
}

static const self_check_probe probes[] = {
    {17, 0, 64, 64, "whole, 64, 64", "fd7d99ce28773bab29083db081100be8"},
    {17, 1, 64, 64, "split, 64, 64", "f36433d824311c0590faba1ac3f34fe3"},
    {17, 2, 64, 64, "codes, 64, 64", "81c08474248c5f5ffac5ba3a0b8b9ac0"},
    {17, 0, 80, 80, "whole, 80, 80", "8a874a81822c9630ace7b13eab837c04"},
    {17, 1, 80, 80, "split, 80, 80", "025fbcb5aff48418338d35de9ab601df"},
    {17, 2, 80, 80, "codes, 80, 80", "f32e080be04968c8afaa18ed995d6149"},
    {17, 0, 96, 96, "whole, 96, 96", "3a19779d513ebf0bf611c6e2ebca7ee6"},
    {17, 1, 96, 96, "split, 96, 96", "3337f311a7faf155618323bd227eb755"},
    {17, 2, 96, 96, "codes, 96, 96", "37e3242d25f61ca4c99311c90b2f79cd"},
    {17, 0, 112, 112, "whole, 112, 112", "402c732187c171a3287ee332e2d84d7b"},
    {17, 1, 112, 112, "split, 112, 112", "ca08097e1b153ede6f6ed264fe16f6aa"},
    {17, 2, 112, 112, "codes, 112, 112", "be0857e81bc510633119e5663856cde8"},
    {17, 0, 128, 128, "whole, 128, 128", "3cc997b52168d1cf670df569e75e5869"},
    {17, 1, 128, 128, "split, 128, 128", "de956b236f5ec94e6035067d53c20460"},
    {17, 2, 128, 128, "codes, 128, 128", "2793d27c369bbed8ab298facf8e25dac"},
    {17, 0, 160, 160, "whole, 160, 160", "1b227179248e4e77d8b4cb711d684186"},
    {17, 1, 160, 160, "split, 160, 160", "8a5a811f108f9b4ec34c67abcfc05a02"},
    {17, 2, 160, 160, "codes, 160, 160", "38ab920d17909a5fa291f589a21b239e"},
    {17, 0, 192, 128, "whole, 192, 128", "ce1b153031b32f33ccb0ec7768783a58"},
    {17, 1, 192, 128, "split, 192, 128", "3eaa6bc51c8fa8e799958835b7a6d46e"},
    {17, 2, 192, 128, "codes, 192, 128", "03abba2117f95818ae6941e3f7a009d0"},
    {17, 0, 192, 192, "whole, 192, 192", "0dc65e170a8dc9a9a0c7d8929c207cb4"},
    {17, 1, 192, 192, "split, 192, 192", "d87d1dd697099187f77ed0d792ceaa82"},
    {17, 2, 192, 192, "codes, 192, 192", "e7242bbcabcda1d9af2016127573aefd"},
    {17, 0, 256, 256, "whole, 256, 256", "fb474bd33c111e1148fb78f4579fb269"},
    {17, 1, 256, 256, "split, 256, 256", "85c760cc303810047cde1c8c4b03ddaf"},
    {17, 2, 256, 256, "codes, 256, 256", "b854d779aca901d09b17304b2a6bdcd9"},
};

const self_check_op self_check_attn = {build, ARRAY_LEN(probes), probes};

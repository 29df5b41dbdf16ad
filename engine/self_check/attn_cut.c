/* self_check/attn_cut.c - the probes of the op `attn_cut` and their known answers. See self_check/cases.h. */
#include "self_check/images.h"

/* Split tiles and whole tiles; a page that is being written also occurs in other sequences' block-table rows. Form 0: pieces of one chunk.
 * 1: longer pieces, and shorter ones. 2: of grouped-query attention. */
static void build(self_check_image *image) {
  enum { TILES = 40, TOKENS = 60, STRIDE = 8, SLOTS = 400 }; /* tiles of two warps */
  attn_cut_args a = {.step = take_step(image, TOKENS, 0, TILES), .heads = 16, .block_table_stride = STRIDE, .chunk_tokens = PAGE_TOKENS,
                     .group_chunks = image->form == 2 ? 1 : 4, .kv_heads = image->form == 2 ? 4 : 0, .workers = image->form ? 60 : 200,
                     .slots_max = SLOTS, .block_ns = 1000, .slot_ns = 1};
  attn_tile *tiles = take(image, (TILES + 1) * sizeof *tiles);
  u32 *block_table = take(image, TILES * STRIDE * 4);
  for (u32 i = 0; i < TILES; i++) tiles[i] = (attn_tile){i * 3 / 2, 1 + i % 2, i, (i * 389 + 383) % 510};
  for (u32 i = 0; i < TILES * STRIDE; i++) block_table[i] = 3 * i + 1;
  for (u32 i = 1; i < TILES; i += 2) block_table[i * STRIDE + 1] = block_table[5];
  a.tiles = tiles;
  a.block_table = block_table;
  a.counts = take(image, sizeof *a.counts);
  a.pieces = take(image, (TOKENS + SLOTS) * sizeof *a.pieces);
  a.parts = take(image, TOKENS * sizeof *a.parts);
  LAUNCH(image, a, 2, 1, 1);
}

static const self_check_probe probes[] = {
    {16, 0, 0, 0, "pieces of a chunk", "25392d8f200ce385916ef9e8bbd5ad04"},
    {16, 1, 0, 0, "longer pieces and shorter ones", "c07be22317105ec3815d763455478245"},
    {16, 2, 0, 0, "grouped-query attention", "59d7a33a739878c3a76d48b5583ff8b2"},
};

const self_check_op self_check_attn_cut = {build, ARRAY_LEN(probes), probes};

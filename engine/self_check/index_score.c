/* self_check/index_score.c - the probes of the op `index_score` and their known answers. See self_check/cases.h. */
#include "self_check/images.h"

/* Codes other than NaN; most adjacent pairs of a row cancel except for a last bit. */
static void fill_codes(self_check_image *image, u8 *out, u32 side) {
  for (u32 i = 0; i < INDEX_DIM; i++) {
    u64 r = random_bits(image);
    out[i] = (u8)((r >> 56 & 0x80) | (r & 0x1f) | 0x20);
    if (i % 2 && (r >> 8 & 3)) out[i] = (u8)(out[i - 1] ^ (side ? 0 : 0x80) ^ (r >> 16 & 7 ? 0 : 1));
  }
}

/* Form 0: 64 heads, 1: 32, 2: 16. */
uint32_t self_check_index_score_heads(uint32_t form) { return 64u >> form; }

/* Rows from the third on, many of them too near the start of their context to be scored. Tiles of up to eight tokens that cross a multiple
 * of 32 rows; a tile whose position continues another sequence's; tiles across a page boundary, with pages for every warpgroup. */
static void build(self_check_image *image) {
  enum { SEQS = 3, TABLE_STRIDE = 6, PAGES = SEQS * TABLE_STRIDE, TOKENS = 43 };
  static const struct { u32 seq, position, count; } runs[] = {{2, 34, 36}, {0, 70, 1}, {1, 318, 6}};
  const u32 heads = self_check_index_score_heads(image->form);
  index_score_args a = {.step = take_step(image, TOKENS, 0, 0), .heads = heads, .block_table_stride = TABLE_STRIDE, .topk = 64,
                        .stride = TABLE_STRIDE * PAGE_TOKENS, .row_first = 2, .row_count = TOKENS};
  u32 *position = take(image, (TOKENS + 1) * 4), *seq = take(image, (TOKENS + 1) * 4), *table = take(image, PAGES * 4), token = 0;
  u8 *codes = take(image, (u64)(TOKENS + 1) * heads * INDEX_DIM), *cache = take(image, PAGES * INDEX_PAGE_BYTES);
  f32 *w = take(image, (TOKENS + 1) * heads * 4ull);
  for (u32 i = 0; i < PAGES; i++) table[i] = (i * 5 + 3) % PAGES;
  for (u32 r = 0; r < ARRAY_LEN(runs); r++) {
    for (u32 i = 0; i < runs[r].count; i++, token++) position[token] = runs[r].position + i, seq[token] = runs[r].seq;
    for (u32 i = 0; i < runs[r].position + runs[r].count; i++) {
      u8 *page = cache + table[runs[r].seq * TABLE_STRIDE + i / PAGE_TOKENS] * INDEX_PAGE_BYTES;
      fill_codes(image, page + i % PAGE_TOKENS * INDEX_DIM, 0);
      fill_f32(image, (f32 *)(void *)(page + PAGE_TOKENS * INDEX_DIM) + i % PAGE_TOKENS, 1, -9, 6);
    }
  }
  for (u32 i = 0; i < TOKENS * heads; i++) fill_codes(image, codes + (u64)i * INDEX_DIM, 1);
  fill_f32(image, w, TOKENS * heads, -8, 8);
  a.position = position, a.seq = seq, a.block_table = table, a.q_codes = codes, a.cache = cache, a.w = w;
  a.scores = take(image, TOKENS * a.stride * 4ull);
  LAUNCH(image, a, image->form == 0 ? 1 : 4, 1, 1); /* one block uses its stages again; of four, two meet inside a page */
}

static const self_check_probe probes[] = {
    {18, 0, 0, 0, "64 heads", "51be063610efa5c06a376433b6e29dd6"},
    {18, 1, 0, 0, "32 heads", "cc4ef5a61bf5a84e17b59950ccbd52ee"},
    {18, 2, 0, 0, "16 heads", "d3fc9c2c4902261646395570bb3db7fb"},
};

const self_check_op self_check_index_score = {build, ARRAY_LEN(probes), probes};

/* self_check/cases_index.c - the self-check's probes of the indexer's ops (see self_check/cases.c).
 *
 * Must not know how a machine runs an op. Read next: self_check/images.h, NUMERICS.md "index_qk", "index_score", "index_topk". */
#include "self_check/images.h"

/* Form 0: 64 rope columns in pairs of halves, scales of powers of two. 1: 32 in pairs of neighbours, any scales. 2: 64 in pairs of
 * neighbours. Every other key has its differences in the last bits, so that the order of its sum shows. A warp has heads of two tokens. */
void self_check_cases_index_qk(self_check_image *image) {
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

/* Codes that are no NaN; most neighbours of a row cancel but for a last bit. */
static void fill_codes(self_check_image *image, u8 *out, u32 side) {
  for (u32 i = 0; i < INDEX_DIM; i++) {
    u64 r = random_bits(image);
    out[i] = (u8)((r >> 56 & 0x80) | (r & 0x1f) | 0x20);
    if (i % 2 && (r >> 8 & 3)) out[i] = (u8)(out[i - 1] ^ (side ? 0 : 0x80) ^ (r >> 16 & 7 ? 0 : 1));
  }
}

/* Form 0: 64 heads, 1: 32, 2: 16. */
uint32_t self_check_cases_index_heads(uint32_t form) { return 64u >> form; }

/* Rows from the third on, of which many are too near the start of their context. Tiles of up to eight tokens, over the edge of 32 rows; one
 * whose position goes on from another sequence's; over the edge of a page, with pages for every warpgroup. */
void self_check_cases_index_score(self_check_image *image) {
  enum { SEQS = 3, TABLE_STRIDE = 6, PAGES = SEQS * TABLE_STRIDE, TOKENS = 43 };
  static const struct { u32 seq, position, count; } runs[] = {{2, 34, 36}, {0, 70, 1}, {1, 318, 6}};
  const u32 heads = self_check_cases_index_heads(image->form);
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
  LAUNCH(image, a, 3, 1, 1); /* so that a page stands where two shares meet */
}

/* Form 0: a cluster for each row, behind others of the step; rows no longer than a list, longer ones. 1: one cluster for three rows: longer
 * than a block keeps, shorter than a list, so long that all blocks share it. 2: a row longer than all blocks keep. 3: one cluster for more
 * rows than blocks. 4: a row with more scores than a block has bits for. 5: rows for parts of blocks. Scores on a grid tie at every limit,
 * many of them zeros of both signs; some are NaN, once more than a list holds. */
void self_check_cases_index_topk(self_check_image *image) {
  enum { TOPK = 64, ROWS = 18 };
  static const struct { u32 rows, length[ROWS]; } forms[] = {
    {5, {513, 65, 1000, 3, 1531}}, {3, {INDEX_TOPK_HELD + 601, 63, 2 * INDEX_TOPK_HELD + 1}}, {1, {8 * INDEX_TOPK_HELD + 901}},
    {9, {64, 301, 402, 63, 2, 64, 65, 500, 1203}}, {1, {150001}},
    {18, {300, 65, 511, 302, 513, 99, 70, 1025, 200, 128, 401, 66, 640, 333, 222, 111, 444, 555}}};
  const u32 form = image->form, rows = forms[form].rows, *length = forms[form].length, first = form ? 0 : 2;
  u32 longest = 0;
  for (u32 i = 0; i < rows; i++) longest = max_u32(longest, length[i]);
  index_topk_args a = {.step = take_step(image, first + rows, 0, 0), .topk = TOPK, .stride = (u32)align_up(longest, 64), .row_first = first,
                       .row_count = rows + !form};
  f32 *scores = take(image, (u64)rows * a.stride * 4);
  u32 *position = take(image, (first + rows + 1) * 4);
  for (u32 i = 0; i < first; i++) position[i] = longest - 1;
  for (u32 i = 0; i < rows; i++) {
    position[first + i] = length[i] - 1;
    for (u32 n = 0; n < length[i] && length[i] > TOPK; n++) {
      const u32 r = random_below(image, 1u << 24);
      f32 score = (f32)((i32)(r & 31) - 16) * 0.25f;
      if (r & 32) score = r & 64 ? -0.0f : 0.0f;
      if (form == 2 || form == 4) score = num_float(0x3f800000u | r >> 4) * ((r & 15) ? 1.0f : -1.0f); /* all bits count */
      if (form == 0 && i == 2) score = r & 64 ? (f32)n : -1.0f;                           /* the best ones last */
      if (form == 4 && n % 2500 == 7) score = n % 5000 == 7 ? 3 : 2; /* ties among the scores behind the first 65,536 */
      if (form != 4 && (r >> 8) % (form == 0 && i == 0 ? 5 : 997) == 0) score = num_float(r & 1 ? 0x7fc00000u : 0xffc00000u);
      scores[(u64)i * a.stride + n] = score;
    }
  }
  a.scores = scores;
  a.position = position;
  a.lists = take(image, (first + rows + 1) * TOPK * 4ull);
  LAUNCH(image, a, form % 2 ? 1 : rows + 1, ROW_BLOCKS, 1);
}

/* self_check/mla_attn.c - the probes of the op `mla_attn` and their known answers. See self_check/cases.h. */
#include "self_check/images.h"
#include "kernels_src/attn/attn_cut.h"
#include "base/limits.h"

#define ATTN_SEQS 2u
#define ATTN_STRIDE 3u /* pages of a sequence */
#define ATTN_PAGES 5u
#define ATTN_HEADS 3u
#define ATTN_HEADS_MOST 18u /* where only one head raises m, a head outside the first warp's 16 */
#define LOUD_HEAD 17u
#define ATTN_TILES 3u
#define ATTN_TOKENS 4u
#define ATTN_LAST 266u /* last position of the longest query */
#define ATTN_GRID 2u   /* fewer blocks than tiles: one block takes two tiles */
#define ATTN_SHARERS 16u /* enough blocks that four share a piece */

/* KV rows of the positions that the tiles reach; the rest of the pages is poison. Some rows stand out, more so in each later block, so that
 * the exponent of the probabilities moves. */
static const bf16 *take_kv(self_check_image *image, const u32 *block_table, bool cut) {
  const u32 length[ATTN_SEQS] = {cut ? 130 : 129, 64};
  u32 columns = image->kv_lora_rank + image->rope_dim;
  bf16 *kv = take(image, (u64)ATTN_PAGES * PAGE_TOKENS * columns * 2);
  for (u32 seq = 0; seq < ATTN_SEQS; seq++)
    for (u32 i = 0; i < length[seq]; i++) {
      u64 row = (u64)block_table[seq * ATTN_STRIDE + i / PAGE_TOKENS] * PAGE_TOKENS + i % PAGE_TOKENS;
      fill_bf16(image, kv + row * columns, columns, i % 37 == 5 ? -3 + (i32)(i / PAGE_TOKENS) : -6, 6);
    }
  return kv;
}

/* A row in another format; some scales are powers of two, some are not. */
static void fill_codes(self_check_image *image, u8 *row, u32 kv_format, bool large) {
  const u32 rank = image->kv_lora_rank, rope = image->rope_dim;
  for (u32 i = 0; i < (kv_format == KV_FP8 ? rank + rope : rank); i++) row[i] = (u8)(random_below(image, 127) | i % 3 << 7);
  for (u32 i = 0; i < rank && kv_format != KV_FP8; i += SCALE_COLUMNS) {
    const u32 field = 127 - (large ? 10u : 14u) + random_below(image, 3), fraction = random_below(image, 1u << 23);
    const f32 scale = num_float(field << 23 | (i % 256 ? fraction : 0));
    memcpy(row + rank + i / SCALE_COLUMNS * 4, &scale, 4);
  }
  if (kv_format != KV_FP8) fill_bf16(image, (bf16 *)(void *)(row + rank + rank / SCALE_COLUMNS * 4), rope, -6, 6);
}

#define LISTED 180u /* tokens of the first sequence, when there are top-k lists */
#define LIST_MAX 132u

static const void *take_formed_kv(self_check_image *image, const u32 *block_table, u32 kv_format, bool lists) {
  const u32 length[ATTN_SEQS] = {lists ? LISTED : 129, 64}, row_bytes = KV_ROW_BYTES(kv_format, image->kv_lora_rank, image->rope_dim);
  u8 *kv = take(image, (u64)ATTN_PAGES * PAGE_TOKENS * row_bytes);
  for (u32 seq = 0; seq < ATTN_SEQS; seq++)
    for (u32 i = 0; i < length[seq]; i++) {
      u8 *row = kv + ((u64)block_table[seq * ATTN_STRIDE + i / PAGE_TOKENS] * PAGE_TOKENS + i % PAGE_TOKENS) * row_bytes;
      if (kv_format == KV_BF16) fill_bf16(image, (bf16 *)(void *)row, image->kv_lora_rank + image->rope_dim, i % 37 == 5 ? -3 : -6, 6);
      else fill_codes(image, row, kv_format, i % 37 == 5);
    }
  return kv;
}

/* A row with the signs of one head of the first query, so that its score raises m for this head only. It comes after 64 other entries. */
static void make_loud(const mla_attn_args *a, u8 *kv, u32 position) {
  const u32 rank = a->kv_lora_rank, row_bytes = KV_ROW_BYTES(a->kv_format, rank, a->rope_dim);
  const bf16 *q = a->q + (u64)LOUD_HEAD * (rank + a->rope_dim);
  u8 *row = kv + ((u64)a->block_table[position / PAGE_TOKENS] * PAGE_TOKENS + position % PAGE_TOKENS) * row_bytes;
  const f32 scale = 0x1p-8f;
  for (u32 i = 0; i < rank; i++) {
    const bf16 number = (bf16)((q[i] & 0x8000) | 0x3f80); /* 1 */
    if (a->kv_format == KV_BF16) memcpy(row + 2ull * i, &number, 2);
    else row[i] = (u8)(q[i] >> 8 & 0x80) | 0x7e; /* 448 */
  }
  for (u32 i = 0; i < rank && a->kv_format == KV_FP8_DS_MLA; i += SCALE_COLUMNS) memcpy(row + rank + i / SCALE_COLUMNS * 4, &scale, 4);
}

/* For each tile's token: as many positions as a list holds, spread evenly, or all positions. Three entries name no token that the tile
 * sees. */
static const u32 *take_lists(self_check_image *image, const attn_tile *tiles) {
  u32 *lists = take(image, (u64)ATTN_TILES * LIST_MAX * 4);
  for (u32 t = 0; t < ATTN_TILES; t++)
    for (u32 j = 0, last = tiles[t].position; j < LIST_MAX; j++)
      lists[t * LIST_MAX + j] = last >= LIST_MAX ? j * last / (LIST_MAX - 1) : j <= last ? j : INDEX_NONE;
  lists[70] = lists[2 * LIST_MAX + 2] = INDEX_NONE;
  lists[LIST_MAX - 1] = tiles[0].position + 1;
  return lists;
}

/* All pages belong to one sequence; each holds the first page's rows times order_share of its chunk, with the same rope columns in all. A
 * query that is zero except in the rope columns gives all pages the same scores. */
static const bf16 *take_ordered_kv(self_check_image *image, const u32 *block_table) {
  const u32 rank = image->kv_lora_rank, columns = rank + image->rope_dim;
  bf16 *kv = take(image, (u64)ATTN_PAGES * PAGE_TOKENS * columns * 2), *first = kv + (u64)block_table[0] * PAGE_TOKENS * columns;
  fill_bf16(image, first, PAGE_TOKENS * columns, -6, 6);
  for (u32 page = ATTN_PAGES; page-- > 0;) /* the first one last */
    for (u32 i = 0; i < (page + 1 < ATTN_PAGES ? PAGE_TOKENS : ATTN_LAST % PAGE_TOKENS + 1) * columns; i++) {
      f32 share = i % columns < rank ? order_share(page, i % columns) : 1.0f;
      kv[(u64)block_table[page] * PAGE_TOKENS * columns + i] = num_to_bf16(num_from_bf16(first[i]) * share);
    }
  return kv;
}

static void fill_queries(self_check_image *image, bf16 *q, u32 heads, bool ordered) {
  const u32 rank = image->kv_lora_rank, columns = rank + image->rope_dim;
  fill_bf16(image, q, ATTN_TOKENS * heads * columns, -5, 6);
  for (u32 i = 0; i < ATTN_TOKENS * heads && ordered; i++) memset(q + (u64)i * columns, 0, rank * 2ull);
}

/* The pieces of a split step: the first tile's context is two pieces. */
static void take_pieces(self_check_image *image, mla_attn_args *a) {
  attn_counts *counts = take(image, sizeof *counts);
  attn_piece *pieces = take(image, (ATTN_TILES + 2) * sizeof *pieces);
  *counts = (attn_counts){.pieces = ATTN_TILES + 1, .parts = 2, .piece_chunks = image->form == 1 ? 2 : 1, .units_most = 2};
  pieces[0] = (attn_piece){.tile = a->tiles[0], .end_block = 2, .early = 2};
  pieces[1] = (attn_piece){.tile = a->tiles[0], .first_block = 2, .end_block = 3};
  for (u32 i = 1; i < ATTN_TILES; i++) pieces[i + 1] = (attn_piece){.tile = a->tiles[i], .end_block = 1, .slot = ATTN_WHOLE};
  a->counts = counts;
  a->pieces = pieces;
  a->slots_max = 4;
  a->partial_o = take(image, (u64)a->slots_max * ATTN_HEADS * a->kv_lora_rank * 4);
  a->partial_ml = take(image, (u64)a->slots_max * ATTN_HEADS * 8);
}

uint32_t self_check_mla_attn_kv_format(uint32_t form) {
  return form == 4 || form == 5 || form == 10 ? KV_FP8_DS_MLA : form == 7 || form == 8 || form == 11 ? KV_FP8 : KV_BF16;
}

bool self_check_mla_attn_lists(uint32_t form) { return form == 5 || form == 6 || form >= 8; }

bool self_check_mla_attn_one_chunk(uint32_t form) { return form >= 9; }

/* Form 0: whole; a query of three chunks in two groups, next to one of two chunks. 1: split into pieces of a group. 2: split into pieces of
 * a chunk, which is two pages; two queries that reach both. 3: whole; five chunks in three groups, whose order shows. 4 to 8: whole; KV
 * rows of other formats, and top-k lists. 9 to 11: lists that are one chunk. */
static void build(self_check_image *image) {
  static const attn_tile tile[][ATTN_TILES] = {{{.row = 0, .count = 2, .seq = 0, .position = 127}, /* across the end of a chunk */
                                                {.row = 2, .count = 1, .seq = 1, .position = 63},
                                                {.row = 3, .count = 1, .seq = 1, .position = 20}},
                                               {{.row = 0, .count = 2, .seq = 0, .position = 255},
                                                {.row = 2, .count = 1, .seq = 0, .position = ATTN_LAST},
                                                {.row = 3, .count = 1, .seq = 0, .position = 191}},
                                               {{.row = 0, .count = 2, .seq = 0, .position = 128},
                                                {.row = 2, .count = 1, .seq = 1, .position = 63},
                                                {.row = 3, .count = 1, .seq = 1, .position = 20}},
                                               {{0, 1, 0, LISTED - 1}, {1, 1, 0, 100}, {2, 1, 1, 63}}};
  const bool cut = image->form == 1 || image->form == 2, ordered = image->form == 3, lists = self_check_mla_attn_lists(image->form);
  const u32 rank = image->kv_lora_rank, columns = rank + image->rope_dim, kv_format = self_check_mla_attn_kv_format(image->form);
  const bool one_chunk = self_check_mla_attn_one_chunk(image->form);
  const u32 heads = one_chunk ? ATTN_HEADS_MOST : ATTN_HEADS;
  mla_attn_args a = {.step = take_step(image, lists ? ATTN_TILES : ATTN_TOKENS, 0, ATTN_TILES), .heads = heads, .kv_format = kv_format,
                     .kv_lora_rank = rank, .rope_dim = image->rope_dim, .block_table_stride = ordered ? ATTN_PAGES : ATTN_STRIDE,
                     .chunk_tokens = image->form == 2 ? 2 * PAGE_TOKENS : PAGE_TOKENS, .group_chunks = 2, .scale_log2 = 0x1.2p-4f};
  if (one_chunk) {
    a.chunk_tokens = 4 * PAGE_TOKENS;
    a.scale_log2 = 0x1.4p-4f;
  }
  attn_tile *tiles = take(image, (ATTN_TILES + 1) * sizeof *tiles);
  bf16 *q = take(image, (ATTN_TOKENS + 1) * heads * columns * 2ull);
  u32 *block_table = take(image, ATTN_SEQS * ATTN_STRIDE * 4);
  memcpy(tiles, tile[lists ? 3 : cut ? 2 : ordered], sizeof tile[0]);
  for (u32 i = 0; i < ATTN_SEQS * ATTN_STRIDE; i++) block_table[i] = (i * 2 + 3) % ATTN_PAGES; /* the last row of seq 1 is not used */
  fill_queries(image, q, heads, ordered);
  a.tiles = tiles;
  a.q = q;
  a.block_table = block_table;
  if (image->form < 4) a.kv = ordered ? take_ordered_kv(image, block_table) : take_kv(image, block_table, cut);
  else a.kv = take_formed_kv(image, block_table, kv_format, lists);
  if (kv_format == KV_FP8) a.kv_scale = take_layer_scale(image);
  if (lists) a.lists = take_lists(image, tiles);
  if (one_chunk) make_loud(&a, (u8 *)(uintptr_t)a.kv, 90);
  a.list_max = lists ? LIST_MAX : 0;
  if (cut) take_pieces(image, &a);
  a.out = take(image, (ATTN_TOKENS + 1) * heads * rank * 2ull);
  end_judged(image);
  const u64 shared = ATTN_SPREAD_MOST / 8 * attn_spread_floats(&a), own = ATTN_GRID * 2ull * 64 * (rank + 2);
  a.scratch = take(image, (one_chunk ? shared : own) * 4);
  a.meetings = take(image, ATTN_MEETINGS * 4);
  memset(a.meetings, 0, ATTN_MEETINGS * 4); /* as the engine starts */
  LAUNCH(image, a, one_chunk ? ATTN_SPREAD_MOST : image->form == 2 ? ATTN_SHARERS : ATTN_GRID, 1, 1);
}

static const self_check_probe probes[] = {
    {5, 0, 256, 32, "whole, 256 + 32", "e9add68bce8b953c6e3468330d8c3150"},
    {5, 1, 256, 32, "split, 256 + 32", "84058cb8b0de4a5323613e003cf91c5a"},
    {5, 2, 256, 32, "long chunks, 256 + 32", "04c0cf3cbd2be44d16109c551a055f35"},
    {5, 3, 256, 32, "order of the chunks, 256 + 32", "85c6ac03dbd0e3dde2d8e952f9d836db"},
    {5, 0, 256, 64, "whole, 256 + 64", "ba7efecc4518e04f840e5b317bf74522"},
    {5, 1, 256, 64, "split, 256 + 64", "d6009add32d3b914ba3b24a740e618a5"},
    {5, 2, 256, 64, "long chunks, 256 + 64", "fa1c7797eaf71c9ed1a7c63ec1361b93"},
    {5, 3, 256, 64, "order of the chunks, 256 + 64", "64a3ac4b3a40f53d1ba1f2921fd043c4"},
    {5, 0, 512, 32, "whole, 512 + 32", "3cb0c65294aa4c0499ee30a6b946f05a"},
    {5, 1, 512, 32, "split, 512 + 32", "ca7eb7f455ee58c09caff2b2501cce0b"},
    {5, 2, 512, 32, "long chunks, 512 + 32", "213820b1c5ab6c247993c351831f1775"},
    {5, 3, 512, 32, "order of the chunks, 512 + 32", "776cad278a6d4da32fc63b3de9a92295"},
    {5, 0, 512, 64, "whole, 512 + 64", "73c6b03d34f0727afd714b3a1288736e"},
    {5, 1, 512, 64, "split, 512 + 64", "c1509b3e394e2d7c14e4428ca19a951b"},
    {5, 2, 512, 64, "long chunks, 512 + 64", "bf8fae9e6799960e61e7e1d9316ae813"},
    {5, 3, 512, 64, "order of the chunks, 512 + 64", "ba16d2761e5902ba1395ade949002127"},
    {5, 4, 512, 32, "fp8_ds_mla, 512 + 32", "f970eee7eefffa71d8237a37e3a25b0d"},
    {5, 4, 512, 64, "fp8_ds_mla, 512 + 64", "290722b5eadd993424d737c337a049e8"},
    {5, 5, 512, 32, "fp8_ds_mla, lists, 512 + 32", "8d22b4f174014d98aa3999bae6c95b0e"},
    {5, 5, 512, 64, "fp8_ds_mla, lists, 512 + 64", "96f8065bba4452d4861e8cca67b09be9"},
    {5, 6, 256, 32, "lists, 256 + 32", "93cc6d50d61f693f4a8d1f55aa3ff64e"},
    {5, 6, 256, 64, "lists, 256 + 64", "101fb4529c27d5ef26cd64ed69e2cf8d"},
    {5, 6, 512, 32, "lists, 512 + 32", "7b81b3dc4875513113c1c791ec6fa857"},
    {5, 6, 512, 64, "lists, 512 + 64", "a5da9db5128175958993d93915e48716"},
    {5, 7, 256, 32, "fp8, 256 + 32", "8bd0993cafb5868bb4f43fead5693583"},
    {5, 7, 256, 64, "fp8, 256 + 64", "1129fff7acd1c3710d2f8492536b456a"},
    {5, 7, 512, 32, "fp8, 512 + 32", "369d78863b1a69382ba985e423ace128"},
    {5, 7, 512, 64, "fp8, 512 + 64", "3318f11208302eb7c3e186868e43b065"},
    {5, 8, 256, 32, "fp8, lists, 256 + 32", "96b1a888fd3a8e66c640c07664f42b1b"},
    {5, 8, 256, 64, "fp8, lists, 256 + 64", "0c91536230b9381d0bd93c6751df2443"},
    {5, 8, 512, 32, "fp8, lists, 512 + 32", "d45eee1262d6b4d9fd15b01405d316cf"},
    {5, 8, 512, 64, "fp8, lists, 512 + 64", "559aed90c5fe443deaba7542a384f15a"},
    {5, 9, 512, 64, "lists of one chunk, 512 + 64", "934d6a8305e88d2b8a032d0a0334159e"},
    {5, 10, 512, 64, "fp8_ds_mla, lists of one chunk, 512 + 64", "679766235f6a4329954ad21437401718"},
    {5, 11, 512, 64, "fp8, lists of one chunk, 512 + 64", "79ff169d92572a9fe91dbc75fd217f48"},
};

const self_check_op self_check_mla_attn = {build, ARRAY_LEN(probes), probes};

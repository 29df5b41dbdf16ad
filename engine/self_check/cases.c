/* self_check/cases.c - what each probe of the self-check holds: inputs, shapes and the one launch (see self_check.h).
 *
 * Numbers come from integers alone, so that every machine makes the same inputs. Counts are as small as they can be while going over the
 * edges that matter: a block's threads, a tile, a page, a chunk, a slice. Every row that a step does not have is poison, NaN as bf16 and
 * as fp32, and so is every gap. Changing anything here changes answers in self_check.def. Read next: abi.h, NUMERICS.md. */
#include "self_check/images.h"
#include "kernels_src/attn/attn_cut.h"
#include <float.h>

/* === Rows =================================================================================================================== */

/* Forms 0 and 1: without a scale, with one. */
void self_check_cases_embed(self_check_image *image) {
  enum { HIDDEN = 1032, VOCAB = 5, SLOTS = 2, PADDED = PLACED + 1 }; /* 129 pieces of 16 bytes for 128 threads */
  embed_args a = {.step = take_step(image, PLACED, 0, 0), .hidden = HIDDEN, .vocab = VOCAB, .block_table_stride = 3};
  i32 *token = take(image, PADDED * 4), *sampled = take(image, SLOTS * 4);
  bf16 *table = take(image, VOCAB * HIDDEN * 2);
  take_places(image, &few_places, &a.position, &a.seq, &a.block_table);
  token[0] = VOCAB - 1;
  token[1] = -2; /* what slot 1 chose */
  token[2] = 0;
  sampled[0] = 1;
  sampled[1] = 3;
  fill_bf16(image, table, VOCAB * HIDDEN, -127, 254);
  a.token = token;
  a.sampled = sampled;
  a.table = table;
  a.x = take(image, PADDED * HIDDEN * 4);
  a.history = take(image, PLACED_PAGES * PAGE_TOKENS * 4);
  a.scale = image->form ? 0.3f : 1.0f;
  LAUNCH(image, a, PADDED, 1, 1);
}

/* Form 4: adds experts and the shared one in place. 5: experts alone, to rows named by an index, scaled. More experts than eight. */
static void build_norm_of_experts(self_check_image *image) {
  enum { TOKENS = 3, TOP_K = 9, PAIRS = TOKENS * TOP_K, DIM = 1028 };
  const bool indexed = image->form == 5;
  rmsnorm_args a = {.step = take_step(image, TOKENS, indexed ? TOKENS : 0, 0), .rows_kind = indexed ? ROWS_LOGITS : ROWS_TOKENS, .dim = DIM,
                    .x_stride = DIM, .y_stride = DIM, .eps = 1e-6f, .delta_scale = indexed ? 0.7f : 1, .y_scale = 1, .top_k = TOP_K};
  f32 *x = take(image, (TOKENS + 1) * DIM * 4), *experts = take(image, PAIRS * DIM * 4), *weight = take(image, (PAIRS + TOP_K) * 4);
  f32 *shared = take(image, (TOKENS + 1) * DIM * 4);
  u32 *pair_row = take(image, (PAIRS + TOP_K) * 4), *row_index = take(image, (TOKENS + 1) * 4);
  bf16 *norm = take(image, DIM * 2);
  fill_f32(image, x, TOKENS * DIM, -6, 10);
  fill_f32(image, experts, PAIRS * DIM, -6, 10);
  fill_f32(image, weight, PAIRS, -3, 4);
  fill_f32(image, shared, TOKENS * DIM, -6, 10);
  fill_bf16(image, norm, DIM, -2, 3);
  for (u32 i = 0; i < PAIRS; i++) pair_row[i] = (i * 7 + 3) % PAIRS;
  for (u32 i = 0; i < TOKENS; i++) row_index[i] = TOKENS - 1 - i;
  a.row_index = indexed ? row_index : NULL;
  a.x = x;
  a.x_out = indexed ? NULL : x;
  a.delta = indexed ? NULL : shared;
  a.experts = experts;
  a.pair_row = pair_row;
  a.topk_weight = weight;
  a.weight = norm;
  a.y = take(image, (TOKENS + 1) * DIM * 2);
  LAUNCH(image, a, TOKENS + 1, 1, 1);
}

/* Form 0: adds in place, with gaps between rows. 1: rows named by an index, adds without storing, both scales. 2: neither. 3: stores
 * without adding; more than 8 rows, and behind them no poison but larger numbers, as a step of more rows leaves them. */
void self_check_cases_rmsnorm(self_check_image *image) {
  enum { SOURCES = 7 };
  if (image->form > 3) {
    build_norm_of_experts(image);
    return;
  }
  const bool gaps = image->form == 0, indexed = image->form == 1, older = image->form == 3, in_place = gaps || older;
  const u32 rows = older ? 11 : 3, padded = rows + 1;
  const u32 dim = gaps ? 600 : older ? 2048 : 1100, gap = gaps ? 12 : 0, stride = dim + gap, sources = indexed ? SOURCES : padded;
  rmsnorm_args a = {.step = take_step(image, indexed ? SOURCES : rows, indexed ? rows : 0, 0), .dim = dim, .x_stride = stride,
                    .y_stride = stride, .eps = 1e-6f, .delta_scale = indexed ? 0.7f : 1, .y_scale = indexed ? 1.3f : 1};
  f32 *x = take(image, (u64)sources * stride * 4), *delta = take(image, older ? 0 : (u64)sources * stride * 4);
  bf16 *weight = take(image, dim * 2ull);
  u32 *row_index = take(image, padded * 4);
  for (u32 row = 0; row < (indexed ? SOURCES : rows); row++) {
    if (gaps) fill_f32(image, x + row * stride, dim, -4, 8);
    else fill_spiky(image, x + row * stride, dim, dim);
    if (!older) fill_f32(image, delta + row * stride, dim, gaps ? -4 : -30, 8);
  }
  fill_bf16(image, weight, dim, -2, 3);
  if (older) fill_f32(image, x + rows * stride, dim, 2, 4);
  for (u32 i = 0; i < rows && !older; i++) row_index[i] = SOURCES - 1 - 2 * i;
  a.rows_kind = indexed ? ROWS_LOGITS : ROWS_TOKENS;
  a.row_index = indexed ? row_index : NULL;
  a.x = x;
  a.x_out = in_place ? x : NULL;
  a.delta = image->form < 2 ? delta : NULL;
  a.weight = weight;
  a.y = take(image, padded * stride * 2ull);
  LAUNCH(image, a, padded, 1, 1);
}

static const f32 *take_layer_scale(self_check_image *image) {
  f32 *scale = take(image, sizeof *scale);
  *scale = 0x1.9p-10f;
  return scale;
}

/* Form 0: 512 latent and 64 rope columns in pairs of neighbours. 1: 256 and 32, in pairs of halves, a scale of the query. 2: rows of three
 * sequences in turn. 3: as 1, with the products. 4 and 5: as 0, scaled rows, by powers of two and not; 6: as 1, a scale of the layer. */
bool self_check_cases_absorb(uint32_t form) { return form == 3; }

void self_check_cases_qkv_rope(self_check_image *image) {
  enum { HEADS = 9, LENGTH = 131 }; /* nine heads for eight warps */
  const bool halves = image->form == 1 || image->form == 3 || image->form == 6, small = halves || image->form == 2;
  const u32 rank = small ? 256 : 512, rope = small ? 32 : 64, nope = small ? 64 : 128;
  const u32 kv_format = image->form < 4 ? KV_BF16 : image->form == 6 ? KV_FP8 : KV_FP8_DS_MLA;
  const places *placed = image->form == 2 ? &mixed_places : &few_places;
  qkv_rope_args a = {.step = take_step(image, placed->count, 0, 0), .q_stride = HEADS * (nope + rope) + 4, .kv_in_stride = rank + rope + 8,
                     .heads = HEADS, .nope_dim = nope, .rope_dim = rope, .kv_lora_rank = rank, .block_table_stride = 3, .eps = 1e-6f,
                     .half_split = halves, .absorbs = self_check_cases_absorb(image->form), .kv_format = kv_format,
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

void self_check_cases_row_digest(self_check_image *image) {
  enum { ROWS = 2, WORDS = 1100, STRIDE = 1104 };
  row_digest_args a = {.step = take_step(image, 1, ROWS, 0), .rows_kind = ROWS_LOGITS, .words = WORDS, .stride = STRIDE};
  u32 *x = take(image, (ROWS + 1) * STRIDE * 4);
  for (u32 i = 0; i < ROWS * STRIDE; i++) x[i] = (u32)random_bits(image);
  a.x = x;
  a.digest = take(image, (ROWS + 1) * 8);
  LAUNCH(image, a, ROWS + 1, ROW_BLOCKS, 1);
}

/* Form 0: fp32 scales, gaps between rows. 1: powers of two, two rows a token, numbers from one end of the range to the other; an Inf. */
void self_check_cases_act_quant(self_check_image *image) {
  enum { TOKENS = 3, COLUMNS = 384 };
  const u32 mul = 1 + image->form, rows = TOKENS * mul, ldx = COLUMNS + (image->form ? 0 : 8);
  act_quant_args a = {.step = take_step(image, TOKENS, 0, 0), .ldx = ldx, .columns = COLUMNS, .rows_mul = mul, .scale_kind = image->form};
  bf16 *x = take(image, (rows + 1) * ldx * 2ull);
  for (u32 i = 0; i < rows; i++) {
    for (u32 j = 0; j < COLUMNS; j += 128) {
      const i32 low = image->form ? -120 + (i32)(i * 128 + j) / 5 : -9;
      fill_bf16(image, x + i * ldx + j, 128, low, 11 + 4 * i);
    }
  }
  for (u32 i = 0; i < COLUMNS; i += 37) x[i] &= 0x8000u; /* zeros of both signs */
  if (image->form) x[ldx * 2] = 0x7f80;
  a.x = x;
  a.codes = take(image, (rows + 1) * COLUMNS);
  a.scales = take(image, (rows + 1) * (COLUMNS / SCALE_COLUMNS) * 4ull);
  LAUNCH(image, a, rows + 1, 1, 1);
}

/* === Products =============================================================================================================== */

/* quick: kinds that a fast path of the CPU computes as well, for larger shapes. */
static u32 kind_of(u32 row, bool quick) { return quick ? (row % 2 ? PRODUCT_CANCELLING : PRODUCT_PLAIN) : row % PRODUCT_KINDS; }

/* Form 0: fp32, nine blocks of k for a ring of eight, gaps between rows. 1: bf16 by logits rows, two batches. 2: fp32, subnormal sums.
 * 3: few rows and a k that a library would split. 4: more rows than the largest tile. 5: silu. Columns go over the edge of 64 where they
 * can. */
void self_check_cases_gemm(self_check_image *image) {
  static const struct { u32 rows, n, k, gap; } shapes[] = {
    {17, 72, 576, 8}, {17, 72, 64, 0}, {17, 72, 64, 0}, {5, 40, 1024, 8}, {133, 24, 64, 8}, {17, 208, 128, 8}};
  const bool batched = image->form == 1, least = image->form == 2, quick = image->form == 3 || image->form == 4;
  const u32 rows = shapes[image->form].rows, n = shapes[image->form].n, k = shapes[image->form].k, gap = shapes[image->form].gap;
  const u32 batches = batched ? 2 : 1, padded = rows + 1;
  gemm_args a = {.step = take_step(image, batched ? 1 : rows, batched ? rows : 0, 0), .ldx = k + gap, .ldy = n + gap, .n = n, .k = k,
                 .batches = batches, .rows_kind = batched ? ROWS_LOGITS : ROWS_TOKENS,
                 .y_kind = batched ? Y_BF16 : image->form == 5 ? Y_SILU : Y_F32};
  a.x_batch = (u64)padded * a.ldx;
  a.w_batch = (u64)n * k;
  a.y_batch = (u64)padded * a.ldy;
  bf16 *x = take(image, batches * a.x_batch * 2), *w = take(image, batches * a.w_batch * 2);
  for (u32 b = 0; b < batches; b++) {
    for (u32 i = 0; i < rows; i++) fill_product(image, x + b * a.x_batch + (u64)i * a.ldx, k, kind_of(i, quick), 0);
    for (u32 i = 0; i < n; i++) fill_product(image, w + b * a.w_batch + (u64)i * k, k, kind_of(i, quick), 1);
  }
  for (u32 i = 0; i < rows && least; i++) fill_least(image, x + (u64)i * a.ldx, k, 0);
  for (u32 i = 0; i < n && least; i++) fill_least(image, w + (u64)i * k, k, 1);
  a.x = x;
  a.w = w;
  a.y = take(image, batches * a.y_batch * (a.y_kind == Y_F32 ? 4 : 2));
  LAUNCH(image, a, n, rows + 128, batches); /* whatever the tile, there is a block that has no row */
}

/* Form 0: rows gathered by token, experts without rows between others. 1: plain rows, nine blocks of k. 2: an expert with more plain rows
 * than the largest tile, behind and before others. 3: as 0, silu. 4: plain rows, silu. */
bool self_check_cases_gather(uint32_t form) { return form == 0 || form == 3; }

void self_check_cases_moe_gemm(self_check_image *image) {
  enum { EXPERTS = 5, TOP_K = 2 };
  static const struct { u32 tokens, n, k, first[EXPERTS + 1]; } shapes[] = {
    {10, 72, 64, {0, 0, 17, 17, 18, 20}}, {10, 24, 576, {0, 0, 17, 17, 18, 20}}, {75, 24, 64, {0, 3, 3, 140, 141, 150}},
    {10, 144, 64, {0, 0, 17, 17, 18, 20}}, {75, 48, 128, {0, 3, 3, 140, 141, 150}}};
  const u32 tokens = shapes[image->form].tokens, n = shapes[image->form].n, k = shapes[image->form].k, pairs = tokens * TOP_K;
  const bool gathered = self_check_cases_gather(image->form), quick = tokens > 10;
  const u32 rows = gathered ? tokens : pairs;
  moe_gemm_args a = {.step = take_step(image, tokens, 0, 0), .ldx = k + 8, .n = n, .k = k, .experts = EXPERTS, .top_k = TOP_K,
                     .y_kind = image->form >= 3 ? Y_SILU : Y_F32};
  u32 *expert_first = take(image, sizeof shapes->first), *row_token = take(image, (pairs + 1) * 4);
  bf16 *x = take(image, (u64)(rows + 1) * a.ldx * 2), *w = take(image, (u64)EXPERTS * n * k * 2);
  memcpy(expert_first, shapes[image->form].first, sizeof shapes->first);
  for (u32 i = 0; i < pairs; i++) row_token[i] = i * (quick ? 7 : 3) % tokens;
  for (u32 i = 0; i < rows; i++) fill_product(image, x + (u64)i * a.ldx, k, kind_of(i, quick), 0);
  for (u32 i = 0; i < EXPERTS * n; i++) fill_product(image, w + (u64)i * k, k, kind_of(i, quick), 1);
  a.expert_first = expert_first;
  a.row_token = gathered ? row_token : NULL;
  a.x = x;
  a.w = w;
  a.y = take(image, (pairs + 1) * n * 4ull);
  image->launch->grid_more = EXPERTS;
  LAUNCH(image, a, n, pairs, 1);
}

/* === Experts ================================================================================================================ */

/* Form 0: sigmoid, groups by their two best, bias, normalised; logits that tie. 1: softmax, no groups. 2: softmax, groups by their
 * best, unnormalised. 3: as 0, of so few different numbers that the last expert chosen, and the last group, tie with others. */
void self_check_cases_router(self_check_image *image) {
  enum { TOKENS = 5 }; /* four tokens a block */
  static const router_args forms[] = {
    {.experts = 64, .top_k = 8, .groups = 8, .top_groups = 4, .scoring = ROUTER_SIGMOID, .group_mode = ROUTER_GROUP_TOP2, .normalise = 1,
     .scale = 2.5f},
    {.experts = 33, .top_k = 6, .groups = 1, .top_groups = 1, .scoring = ROUTER_SOFTMAX, .group_mode = ROUTER_GROUP_NONE, .normalise = 1,
     .scale = 1},
    {.experts = 160, .top_k = 6, .groups = 8, .top_groups = 3, .scoring = ROUTER_SOFTMAX, .group_mode = ROUTER_GROUP_MAX,
     .scale = 16},
  };
  const bool tied = image->form == 3, sorts = image->form >= 4; /* 4: softmax, tokens in one block, and their pairs sorted; 5: one token */
  router_args a = forms[tied ? 0 : sorts ? 1 : image->form];
  const u32 tokens = image->form == 5 ? 1 : sorts ? 15 : TOKENS;
  a.step = take_step(image, tokens, 0, 0);
  f32 *logits = take(image, (tokens + 1) * a.experts * 4ull), *bias = take(image, a.experts * 4ull);
  fill_f32(image, logits, tokens * a.experts, -3, 6);
  for (u32 i = 0; i < tokens * a.experts && image->form == 0; i++)
    if (random_below(image, 2)) logits[i] = (f32)random_below(image, 4) * 0.5f;
  for (u32 i = 0; i < tokens * a.experts && tied; i++) logits[i] = (f32)random_below(image, i / a.experts + 1) * 0.5f;
  for (u32 i = 0; i < a.experts; i++) bias[i] = tied ? 0.25f : (f32)random_below(image, 3) * 0.25f;
  a.logits = logits;
  a.bias = image->form == 0 || tied ? bias : NULL;
  a.topk_id = take(image, (tokens + 1) * a.top_k * 4ull);
  a.topk_weight = take(image, (tokens + 1) * a.top_k * 4ull);
  a.sorts = sorts;
  if (sorts) {
    a.expert_first = take(image, (a.experts + 1) * 4ull);
    a.row_token = take(image, (tokens + 1) * a.top_k * 4ull);
    a.pair_row = take(image, (tokens + 1) * a.top_k * 4ull);
  }
  LAUNCH(image, a, (u32)div_up(tokens, 4) + 1, 1, 1);
}

/* Form 0: one block sorts. 1: three share the pairs. 2: and copy the tokens' rows. */
void self_check_cases_moe_sort(self_check_image *image) {
  enum { TOKENS = 200, TOP_K = 6, PAIRS = TOKENS * TOP_K, EXPERTS = 64 }; /* more pairs than threads */
  moe_sort_args a = {.step = take_step(image, TOKENS, 0, 0), .experts = EXPERTS, .top_k = TOP_K};
  u32 *id = take(image, (PAIRS + TOP_K) * 4);
  for (u32 t = 0; t < TOKENS; t++) /* ascending and distinct; the first experts have most tokens, some have none */
    for (u32 k = 0; k < TOP_K; k++)
      id[t * TOP_K + k] = k == 0 ? random_below(image, 3) : id[t * TOP_K + k - 1] + 1 + random_below(image, t % 2 ? 2 : 11);
  a.topk_id = id;
  a.expert_first = take(image, (EXPERTS + 1) * 4);
  a.row_token = take(image, (PAIRS + TOP_K) * 4);
  a.pair_row = take(image, (PAIRS + TOP_K) * 4);
  if (image->form == 2) {
    a.columns = 24;
    bf16 *x = take(image, (TOKENS + 1) * a.columns * 2);
    fill_bf16(image, x, TOKENS * a.columns, -3, 6);
    a.x = x;
    a.x_sorted = take(image, (PAIRS + TOP_K) * a.columns * 2);
  }
  LAUNCH(image, a, image->form ? 3 : 1, 1, 1);
}

/* === Attention ============================================================================================================== */

#define ATTN_SEQS 2u
#define ATTN_STRIDE 3u /* pages of a sequence */
#define ATTN_PAGES 5u
#define ATTN_HEADS 3u
#define ATTN_HEADS_MOST 18u /* where one head alone raises m: not of the first warp's 16 */
#define LOUD_HEAD 17u
#define ATTN_TILES 3u
#define ATTN_TOKENS 4u
#define ATTN_LAST 266u /* last position of the longest query */
#define ATTN_GRID 2u   /* fewer blocks than tiles: one takes two */
#define ATTN_SHARERS 16u /* so many that four share a piece */

/* KV rows of the positions that the tiles reach; the rest of the pages is poison. Some rows stand out, block by block more, so that the
 * weights' exponent moves. */
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

/* A row in another format, with scales that are powers of two and others. */
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

#define LISTED 180u /* tokens of the first sequence where there are lists of */
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

/* A row with the signs of one head of the first query, which alone weighs it so much that m is raised. It lies behind 64 places. */
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

/* Of each tile's token: as many positions as a list takes, spread evenly, but two that it does not see; or all. */
static const u32 *take_lists(self_check_image *image, const attn_tile *tiles) {
  u32 *lists = take(image, (u64)ATTN_TILES * LIST_MAX * 4);
  for (u32 t = 0; t < ATTN_TILES; t++)
    for (u32 j = 0, last = tiles[t].position; j < LIST_MAX; j++)
      lists[t * LIST_MAX + j] = last >= LIST_MAX ? j * last / (LIST_MAX - 1) : j <= last ? j : INDEX_NONE;
  lists[70] = lists[2 * LIST_MAX + 2] = INDEX_NONE;
  lists[LIST_MAX - 1] = tiles[0].position + 1;
  return lists;
}

/* All pages in one sequence, each the first one's rows times what order_share gives its chunk; columns of rope are the same in all. A
 * query that is zero but there weighs all pages alike. */
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

/* The pieces of a cut step: the first tile's context is two. */
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

uint32_t self_check_cases_kv_format(uint32_t form) {
  return form == 4 || form == 5 || form == 10 ? KV_FP8_DS_MLA : form == 7 || form == 8 || form == 11 ? KV_FP8 : KV_BF16;
}
bool self_check_cases_lists(uint32_t form) { return form == 5 || form == 6 || form >= 8; }
bool self_check_cases_one_chunk(uint32_t form) { return form >= 9; }

/* Form 0: whole; a query of three chunks, in two groups, beside one of two chunks. 1: cut into pieces of a group. 2: cut into pieces
 * of a chunk, which is two pages; two queries that reach both. 3: whole; five chunks, in three groups, whose order
 * shows. 4 to 8: whole; rows of other formats, and lists of tokens. 9 to 11: lists that are one chunk. */
void self_check_cases_mla_attn(self_check_image *image) {
  static const attn_tile tile[][ATTN_TILES] = {{{.row = 0, .count = 2, .seq = 0, .position = 127}, /* over the end of a chunk */
                                                {.row = 2, .count = 1, .seq = 1, .position = 63},
                                                {.row = 3, .count = 1, .seq = 1, .position = 20}},
                                               {{.row = 0, .count = 2, .seq = 0, .position = 255},
                                                {.row = 2, .count = 1, .seq = 0, .position = ATTN_LAST},
                                                {.row = 3, .count = 1, .seq = 0, .position = 191}},
                                               {{.row = 0, .count = 2, .seq = 0, .position = 128},
                                                {.row = 2, .count = 1, .seq = 1, .position = 63},
                                                {.row = 3, .count = 1, .seq = 1, .position = 20}},
                                               {{0, 1, 0, LISTED - 1}, {1, 1, 0, 100}, {2, 1, 1, 63}}};
  const bool cut = image->form == 1 || image->form == 2, ordered = image->form == 3, lists = self_check_cases_lists(image->form);
  const u32 rank = image->kv_lora_rank, columns = rank + image->rope_dim, kv_format = self_check_cases_kv_format(image->form);
  const bool one_chunk = self_check_cases_one_chunk(image->form);
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

/* Tiles that are cut and tiles that are not; a page that is being written stands in other sequences' rows too. Form 0: pieces of a chunk.
 * 1: longer ones, and shorter ones. */
void self_check_cases_attn_cut(self_check_image *image) {
  enum { TILES = 40, TOKENS = 60, STRIDE = 8, SLOTS = 400 }; /* tiles of two warps */
  attn_cut_args a = {.step = take_step(image, TOKENS, 0, TILES), .heads = 16, .block_table_stride = STRIDE, .chunk_tokens = PAGE_TOKENS,
                     .group_chunks = 4, .workers = image->form ? 60 : 200, .slots_max = SLOTS, .block_ns = 1000, .slot_ns = 1};
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

/* === Prompts ================================================================================================================ */

/* Three contexts on scattered pages, five of two pages in all: the last page of each is not full. */
#define CONTEXTS 3u
#define CONTEXT_STRIDE 2u
#define CONTEXT_PAGES 7u

static const step_in *take_contexts(self_check_image *image, const step_context **contexts, const u32 **block_table) {
  static const step_context all[CONTEXTS] = {{0, 100, 2, 0}, {2, 50, 0, 0}, {3, 129 - PAGE_TOKENS, 1, 0}};
  step_context *out = take(image, sizeof all);
  u32 *table = take(image, CONTEXTS * CONTEXT_STRIDE * 4);
  memcpy(out, all, sizeof all);
  for (u32 i = 0; i < CONTEXTS * CONTEXT_STRIDE; i++) table[i] = (i * 3 + 2) % CONTEXT_PAGES;
  *contexts = out;
  *block_table = table;
  step_in *step = take(image, sizeof *step);
  *step = (step_in){.token_count = 1, .tile_count = 1, .seq_count = CONTEXTS};
  image->launch->rows = 1;
  return step;
}

/* Form 0, 2: the first piece, of four pages. 1, 3: the second one, with one page. From 2 on shorter rows. */
void self_check_cases_mla_expand(self_check_image *image) {
  enum { N = 136, PIECE_PAGES = 4 };
  const u32 rank = image->form < 2 ? 512 : 256, rope = image->form < 2 ? 64 : 32, columns = rank + rope;
  mla_expand_args a = {.n = N, .kv_lora_rank = rank, .rope_dim = rope, .block_table_stride = CONTEXT_STRIDE,
                       .piece_pages = PIECE_PAGES, .piece = image->form % 2};
  a.step = take_contexts(image, &a.contexts, &a.block_table);
  bf16 *kv = take(image, (u64)CONTEXT_PAGES * PAGE_TOKENS * columns * 2), *w = take(image, (u64)N * rank * 2);
  memset(kv, 0, (u64)CONTEXT_PAGES * PAGE_TOKENS * columns * 2); /* whole pages are expanded, and the twin writes zeros behind a context */
  for (u32 c = 0; c < CONTEXTS; c++)
    for (u32 i = 0; i < a.contexts[c].tokens; i++) {
      u32 page = a.block_table[a.contexts[c].seq * CONTEXT_STRIDE + i / PAGE_TOKENS];
      fill_bf16(image, kv + ((u64)page * PAGE_TOKENS + i % PAGE_TOKENS) * columns, columns, -6, 6);
    }
  fill_bf16(image, w, N * rank, -8, 8);
  a.kv = kv;
  a.w = w;
  a.y = take(image, (u64)PIECE_PAGES * PAGE_TOKENS * (N + rope) * 2);
  LAUNCH(image, a, N, 1, 1); /* fewer blocks than tiles */
}

/* Form 0: rows of 512 + 64 with scales of their own, of any kind. 1: powers of two. 2: rows of 256 + 32, the layer's scale. No
 * code is NaN. */
void self_check_cases_kv_widen(self_check_image *image) {
  enum { PAGES_MAX = 6 };
  const u32 rank = image->form < 2 ? 512 : 256, rope = image->form < 2 ? 64 : 32, format = image->form < 2 ? KV_FP8_DS_MLA : KV_FP8;
  const u32 row_bytes = KV_ROW_BYTES(format, rank, rope), coded = image->form < 2 ? rank : rank + rope;
  kv_widen_args a = {.kv_lora_rank = rank, .rope_dim = rope, .block_table_stride = CONTEXT_STRIDE, .kv_format = format,
                     .pages_max = PAGES_MAX};
  f32 *kv_scale = take(image, 4);
  a.step = take_contexts(image, &a.contexts, &a.block_table);
  u8 *kv = take(image, (u64)CONTEXT_PAGES * PAGE_TOKENS * row_bytes);
  for (u32 i = 0; i < CONTEXT_PAGES * PAGE_TOKENS; i++) {
    u8 *row = kv + (u64)i * row_bytes;
    for (u32 j = 0; j < coded; j++) {
      const u8 code = (u8)random_below(image, 256);
      row[j] = (code & 0x7f) == 0x7f ? 0x7e : code;
    }
    if (format == KV_FP8) continue;
    f32 scale[4];
    fill_f32(image, scale, 4, -20, 30);
    for (u32 j = 0; j < 4; j++) scale[j] = num_float(num_bits(scale[j]) & (image->form ? 0x7f800000u : 0x7fffffffu));
    memcpy(row + rank, scale, sizeof scale);
    fill_bf16(image, (bf16 *)(void *)(row + rank + sizeof scale), rope, -6, 6);
  }
  *kv_scale = 0x1.9p-5f;
  a.kv = kv;
  a.kv_scale = format == KV_FP8 ? kv_scale : NULL;
  a.y = take(image, (u64)PAGES_MAX * PAGE_TOKENS * (rank + rope) * 2);
  a.table = take(image, PAGES_MAX * 4);
  LAUNCH(image, a, 7, 1, 1);
}

/* Three tiles of one context over the edge of a page and of a pair of pages, one behind the other by one block. Form 0, 4: all pages in one
 * piece. 1, 5: the last piece, after another. 2, 6: one before it, whose state is judged. From 4 on with 32 columns of rope. */
void self_check_cases_mla_prefill(self_check_image *image) {
  enum { HEADS = 1, TOKENS = 11, PAGES = 3 };
  static const attn_tile tile[] = {{.row = 0, .count = 6, .seq = 1, .position = 61}, {.row = 6, .count = 3, .seq = 1, .position = 128},
                                   {.row = 9, .count = 2, .seq = 1, .position = 126}};
  const u32 nope = image->kv_lora_rank, v = image->rope_dim, rope = image->form >= 4 ? 32 : 64, part = image->form % 4;
  const u32 pages = part ? 2 : PAGES, columns = HEADS * (nope + v) + rope;
  mla_prefill_args a = {.heads = HEADS, .nope_dim = nope, .rope_dim = rope, .v_dim = v, .q_rope_stride = rope, .piece_pages = pages,
                        .piece = part == 1, .scale_log2 = 0x1.2p-4f};
  step_in *step = take(image, sizeof *step);
  attn_tile *tiles = take(image, sizeof tile);
  step_context *contexts = take(image, 2 * sizeof *contexts);
  *step = (step_in){.token_count = TOKENS, .tile_count = ARRAY_LEN(tile), .seq_count = 2};
  memcpy(tiles, tile, sizeof tile);
  contexts[0] = (step_context){.first = 0, .tokens = 1, .seq = 1};
  contexts[1] = (step_context){.first = part ? 1 : 0, .tokens = 131, .seq = 0};
  bf16 *q_nope = take(image, (TOKENS + 1) * HEADS * nope * 2), *q_rope = take(image, (TOKENS + 1) * HEADS * rope * 2);
  bf16 *expanded = take(image, (u64)pages * PAGE_TOKENS * columns * 2);
  const u32 first = contexts[1].first > 0 && part == 2 ? PAGE_TOKENS : 0, last = part == 1 ? 131 - PAGE_TOKENS : part == 2 ? 128 : 131;
  fill_bf16(image, q_nope, TOKENS * HEADS * nope, -5, 6);
  fill_bf16(image, q_rope, TOKENS * HEADS * rope, -5, 6);
  for (u32 i = first; i < last; i++) /* the exponent of the weights moves from page to page */
    fill_bf16(image, expanded + (u64)i * columns, columns, i % 37 == 5 ? -3 + 4 * (i32)(i / PAGE_TOKENS) : -6, 6);
  f32 *state = take(image, TOKENS * HEADS * (v + 2) * 4);
  for (u32 i = 0; i < TOKENS * HEADS && part == 1; i++) {
    fill_f32(image, state + (u64)i * (v + 2), v, -6, 12);
    state[(u64)i * (v + 2) + v] = (f32)random_below(image, 3) - 2.0f;
    state[(u64)i * (v + 2) + v + 1] = 1.0f + (f32)random_below(image, 1u << 20) * 0x1p-15f;
  }
  a.step = step, a.tiles = tiles, a.contexts = contexts, a.q_nope = q_nope, a.q_rope = q_rope, a.expanded = expanded, a.state = state;
  a.out = take(image, (TOKENS + 1) * HEADS * v * 2);
  image->launch->rows = TOKENS;
  LAUNCH(image, a, 1, 1, 1);
}

/* (m, l, O) of a unit. Maxima are close, or so far apart that a factor is 0 at times. */
static void fill_unit(self_check_image *image, f32 *o, f32 *ml, u32 rank, u32 maxima) {
  ml[0] = (f32)random_below(image, maxima) - 20.0f;
  ml[1] = 1.0f + (f32)random_below(image, 1u << 20) * 0x1p-15f;
  fill_f32(image, o, rank, -6, 12);
}

/* Form 0: units of a chunk, groups of eight. 1: units of a group of three. 2: units of a chunk, groups of three, sums whose order shows.
 * 3: as 2, with the products, and a token that is not cut. */
bool self_check_cases_lift(uint32_t form) { return form == 3; }

void self_check_cases_mla_fold(self_check_image *image) {
  enum { TOKENS = 3, HEADS = 2 };
  const bool ordered = image->form >= 2;
  const u32 rank = image->form % 3 ? 256 : 512, v_dim = 64, units = ordered ? 8 : image->form ? 5 : 40;
  const u32 used[TOKENS] = {units, ordered ? 4 : 1, ordered ? 7 : 3};
  mla_fold_args a = {.step = take_step(image, TOKENS, 0, 1), .heads = HEADS, .kv_lora_rank = rank, .group_chunks = image->form ? 3 : 8,
                     .v_dim = v_dim, .lifts = self_check_cases_lift(image->form)};
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
  end_judged(image); /* units mean nothing when they have been folded */
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
  static const u32 blocks[] = {16, 1, TOKENS + 1, 5}; /* so that teams share a slice, in two rounds; take two slices; one */
  LAUNCH(image, a, blocks[image->form], 1, 1);
}

/* === Tokens ================================================================================================================= */

static const sample_param PLAIN = {.top_p_fixed = 1ull << 32, .repetition = 1, .min_p_bound = -INFINITY, .target = -1, .prompt_count = 1};

/* Ten ways to choose or score a token, one a row. */
#define SAMPLE_ROWS 10u
static void choose_params(sample_param *param, u32 vocab) {
  for (u32 i = 0; i < SAMPLE_ROWS; i++) {
    param[i] = PLAIN;
    param[i].seed = 0x0123456789abcdefu * (i + 1);
    param[i].position = 1001 + i;
    param[i].sample_index = i % 3;
    param[i].slot = (i + 4) % SAMPLE_ROWS;
    param[i].temperature = i ? 1.0f : 0;
    param[i].top_count = i % 3 == 0 ? TOP_LOGPROBS_MAX : i % 3;
  }
  param[2].temperature = 0.7f;
  param[2].top_k = 40;
  param[2].top_p_fixed = 0xe6666666u;
  param[3].min_p_bound = -1; /* met exactly, by many */
  param[4].temperature = 0;
  param[1].adjusted = param[4].adjusted = param[5].adjusted = 1;
  param[5].top_p_fixed = 0x80000000u;
  param[5].temperature = 3;
  param[6].target = (i32)vocab - 2;
  param[8].top_p_fixed = 0x60000000u;
  param[9].target = 1;
}

/* Form 0: more logits than threads: ties, adjusted rows with bans, a scored row, a flat one, one with NaN that is drawn from and one
 * with Inf that is scored. 1: fewer logits than alternatives. */
void self_check_cases_sample(self_check_image *image) {
  const u32 vocab = image->form ? 8 : 1100, numbers = SAMPLE_ROWS * vocab;
  sample_args a = {.step = take_step(image, 1, SAMPLE_ROWS, 0), .vocab = vocab};
  f32 *logits = take(image, (SAMPLE_ROWS + 1) * vocab * 4ull), *adjusted = take(image, (SAMPLE_ROWS + 1) * vocab * 4ull);
  sample_param *param = take(image, (SAMPLE_ROWS + 1) * sizeof *param);
  for (u32 i = 0; i < numbers; i++) { /* -8 .. 8; rows 0 and 3 on a coarse grid, row 8 flat */
    i32 n = (i32)random_below(image, 1u << 24) - (1 << 23);
    logits[i] = i < vocab || i / vocab == 3 ? (f32)(n >> 21) : i / vocab == 8 ? 2.5f : (f32)n * 0x1p-20f;
    adjusted[i] = random_below(image, 3) ? logits[i] + (f32)(n & 7) * 0.25f : -INFINITY;
  }
  adjusted[4 * vocab + 1] = adjusted[4 * vocab + 5] = FLT_MAX;
  logits[7 * vocab + vocab / 2] = num_float(0x7fc00000u);
  logits[9 * vocab] = -INFINITY;
  choose_params(param, vocab);
  a.logits = logits;
  a.adjusted = adjusted;
  a.param = param;
  a.sampled = take(image, SAMPLE_ROWS * 4);
  a.result = take(image, (SAMPLE_ROWS + 1) * sizeof *a.result);
  a.top = take(image, (SAMPLE_ROWS + 1) * TOP_LOGPROBS_MAX * sizeof *a.top);
  LAUNCH(image, a, SAMPLE_ROWS + 1, ROW_BLOCKS, 1);
}

/* Rows: penalties of both kinds over a history of three pages; none; only listed tokens, logits at the ends of fp32; a bias list. */
#define ADJUST_ROWS 4u
static void choose_adjustments(sample_param *param) {
  for (u32 i = 0; i < ADJUST_ROWS; i++) {
    param[i] = PLAIN;
    param[i].slot = (i + 1) % ADJUST_ROWS;
    param[i].adjusted = i != 1;
    param[i].position = 130 + i;
    param[i].prompt_count = 70;
  }
  param[0].repetition = 1.3f;
  param[0].presence = 0.7f;
  param[0].frequency = 0.1f;
  param[2].list_count = 5;
  param[2].list_only = 1;
  param[2].presence = -2;
  param[3].list_count = 40;
  param[3].repetition = 0.5f;
  param[3].frequency = -1.5f;
}

void self_check_cases_adjust(self_check_image *image) {
  enum { VOCAB = ADJUST_SLICE + 8, STRIDE = 3, PAGES = ADJUST_ROWS * STRIDE };
  adjust_args a = {.step = take_step(image, 1, ADJUST_ROWS, 0), .vocab = VOCAB, .block_table_stride = STRIDE};
  f32 *logits = take(image, (ADJUST_ROWS + 1) * VOCAB * 4ull);
  sample_param *param = take(image, (ADJUST_ROWS + 1) * sizeof *param);
  token_bias *lists = take(image, ADJUST_ROWS * TOKEN_LIST_MAX * sizeof *lists);
  i32 *history = take(image, PAGES * PAGE_TOKENS * 4);
  u32 *block_table = take(image, PAGES * 4);
  fill_f32(image, logits, ADJUST_ROWS * VOCAB, -4, 9);
  for (u32 i = 0; i < 64; i++) logits[2 * VOCAB + i] = i % 2 ? FLT_MAX : -FLT_MAX;
  for (u32 i = 0; i < PAGES * PAGE_TOKENS; i++) /* most ids are near the slices' ends and come again and again */
    history[i] = (i32)(i % 3 ? ADJUST_SLICE - 6 + random_below(image, 14) : random_below(image, VOCAB));
  for (u32 i = 0; i < PAGES; i++) block_table[i] = PAGES - 1 - i;
  choose_adjustments(param);
  for (u32 r = 0; r < ADJUST_ROWS; r++)
    for (u32 i = 0; i < param[r].list_count; i++) {
      token_bias *entry = lists + (u64)param[r].slot * TOKEN_LIST_MAX + i;
      entry->token = (i32)(param[r].list_count > 8 ? (ADJUST_SLICE - 20 + i) % VOCAB : i * 3);
      entry->bias = i % 4 ? (f32)i * 0.37f - 3.0f : 0;
    }
  a.logits = logits;
  a.param = param;
  a.lists = lists;
  a.history = history;
  a.block_table = block_table;
  a.adjusted = take(image, (ADJUST_ROWS + 1) * VOCAB * 4ull);
  LAUNCH(image, a, ADJUST_ROWS + 1, (u32)div_up(VOCAB, ADJUST_SLICE), 1);
}

/* self_check/rmsnorm.c - the probes of the op `rmsnorm` and their known answers. See self_check/cases.h. */
#include "self_check/images.h"

/* Form 4: adds the experts and the shared expert in place. 5: adds only experts, to rows named by an index, scaled. More than eight
 * experts. */
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
 * without adding; more than 8 rows, followed not by poison but by larger numbers, as left by a step of more rows. */
static void build(self_check_image *image) {
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

static const self_check_probe probes[] = {
    {1, 0, 0, 0, "in place", "f32b54945ce7dc2426c9eb39141958a2"},
    {1, 1, 0, 0, "rows by index, scales", "e0d2966d192c6ee0bfe8ffa9de12f496"},
    {1, 2, 0, 0, "order of the sum", "a808959b5bcdbfe0cdc1c464b289666b"},
    {1, 3, 0, 0, "many rows, others behind", "79231a4c62680e47d93220760f014503"},
    {1, 4, 0, 0, "experts and a shared one", "f1059f27148cea32e50d831f6dd227b0"},
    {1, 5, 0, 0, "experts of indexed rows", "13167932632306b0e350ca019e7a21a1"},
};

const self_check_op self_check_rmsnorm = {build, ARRAY_LEN(probes), probes};

/* self_check/rmsnorm.c - the probes of the op `rmsnorm` and their known answers. See self_check/cases.h. */
#include "self_check/images.h"

/* Form 4: adds the experts and the shared expert in place. 5: adds only experts, to rows named by an index, scaled. 6: both without x, into
 * fp32. 8: as 4, with a gate. More than eight experts. */
static void build_norm_of_experts(self_check_image *image) {
  enum { TOKENS = 3, TOP_K = 9, PAIRS = TOKENS * TOP_K, DIM = 1028 };
  const bool indexed = image->form == 5, alone = image->form == 6;
  rmsnorm_args a = {.step = take_step(image, TOKENS, indexed ? TOKENS : 0, 0), .rows_kind = indexed ? ROWS_LOGITS : ROWS_TOKENS, .dim = DIM,
                    .x_stride = DIM, .y_stride = DIM, .eps = 1e-6f, .delta_scale = indexed ? 0.7f : 1, .y_scale = 1, .top_k = TOP_K,
                    .y_kind = alone ? Y_F32 : Y_BF16};
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
  a.x = alone ? NULL : x;
  a.x_out = indexed || alone ? NULL : x;
  a.delta = indexed ? NULL : shared;
  if (image->form == 8) {
    f32 *gate = take(image, (TOKENS + 1) * 3 * 4);
    for (u32 t = 0; t < TOKENS; t++) fill_f32(image, gate + t * 3, 1, -2, 4);
    a.gate = gate;
    a.gate_stride = 3;
  }
  a.experts = experts;
  a.pair_row = pair_row;
  a.topk_weight = weight;
  a.weight = norm;
  a.y = take(image, (TOKENS + 1) * DIM * (alone ? 4 : 2));
  LAUNCH(image, a, TOKENS + 1, 1, 1);
}

/* Form 0: adds in place, with gaps between rows. 1: rows named by an index, adds without storing, both scales. 2: neither. 3: stores
 * without adding; more than 8 rows, followed not by poison but by larger numbers, as left by a step of more rows. 7: as 2, into
 * fp32, scaled. 9: as 0, without weights. */
static void build(self_check_image *image) {
  enum { SOURCES = 7 };
  if ((image->form > 3 && image->form < 7) || image->form == 8) {
    build_norm_of_experts(image);
    return;
  }
  const bool gaps = image->form == 0 || image->form == 9, indexed = image->form == 1, older = image->form == 3, in_place = gaps || older;
  const bool is_f32 = image->form == 7;
  const u32 rows = older ? 11 : 3, padded = rows + 1;
  const u32 dim = gaps ? 600 : older ? 2048 : 1100, gap = gaps ? 12 : 0, stride = dim + gap, sources = indexed ? SOURCES : padded;
  rmsnorm_args a = {.step = take_step(image, indexed ? SOURCES : rows, indexed ? rows : 0, 0), .dim = dim, .x_stride = stride,
                    .y_stride = stride, .eps = 1e-6f, .delta_scale = indexed ? 0.7f : 1, .y_scale = indexed || is_f32 ? 1.3f : 1,
                    .y_kind = is_f32 ? Y_F32 : Y_BF16};
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
  a.delta = gaps || indexed ? delta : NULL;
  a.weight = image->form == 9 ? NULL : weight;
  a.y = take(image, padded * stride * (is_f32 ? 4ull : 2ull));
  LAUNCH(image, a, padded, 1, 1);
}

static const self_check_probe probes[] = {
    {1, 0, 0, 0, "in place", "f32b54945ce7dc2426c9eb39141958a2"},
    {1, 1, 0, 0, "rows by index, scales", "e0d2966d192c6ee0bfe8ffa9de12f496"},
    {1, 2, 0, 0, "order of the sum", "a808959b5bcdbfe0cdc1c464b289666b"},
    {1, 3, 0, 0, "many rows, others behind", "79231a4c62680e47d93220760f014503"},
    {1, 4, 0, 0, "experts and a shared one", "f1059f27148cea32e50d831f6dd227b0"},
    {1, 5, 0, 0, "experts of indexed rows", "13167932632306b0e350ca019e7a21a1"},
    {1, 6, 0, 0, "experts into fp32", "337d9e98167da672578677b32564cb62"},
    {1, 8, 0, 0, "experts and a shared one with a gate", "e1f570d4b7fb519bed8b72b2ea1c6bf6"},
    {1, 9, 0, 0, "in place, without weights", "51203396c74b8c02c98a2f3599567dc7"},
    {1, 7, 0, 0, "order of the sum, fp32", "de586fe406c17e7025b2055f64e45f05"},
};

const self_check_op self_check_rmsnorm = {build, ARRAY_LEN(probes), probes};

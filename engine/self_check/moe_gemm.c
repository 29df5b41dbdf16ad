/* self_check/moe_gemm.c - the probes of the op `moe_gemm` and their known answers. See self_check/cases.h. */
#include "self_check/images.h"

/* Form 0: rows gathered by token, experts without rows between others. 1: plain rows, nine blocks of k. 2: an expert with more plain rows
 * than the largest tile, with others before and after it. 3: as 0, silu. 4: plain rows, silu. */
bool self_check_moe_gemm_gathers(uint32_t form) { return form == 0 || form == 3; }

static void build(self_check_image *image) {
  enum { EXPERTS = 5, TOP_K = 2 };
  static const struct { u32 tokens, n, k, first[EXPERTS + 1]; } shapes[] = {
    {10, 72, 64, {0, 0, 17, 17, 18, 20}}, {10, 24, 576, {0, 0, 17, 17, 18, 20}}, {75, 24, 64, {0, 3, 3, 140, 141, 150}},
    {10, 144, 64, {0, 0, 17, 17, 18, 20}}, {75, 48, 128, {0, 3, 3, 140, 141, 150}}};
  const u32 tokens = shapes[image->form].tokens, n = shapes[image->form].n, k = shapes[image->form].k, pairs = tokens * TOP_K;
  const bool gathered = self_check_moe_gemm_gathers(image->form), quick = tokens > 10;
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

static const self_check_probe probes[] = {
    {10, 0, 0, 0, "gathered rows", "c0344ec73b05b58a7bcf4dffed66b13b"},
    {10, 1, 0, 0, "long k", "9dbb9c759ef958d64602e998f760a492"},
    {10, 2, 0, 0, "more rows than a tile", "03a79504f491d68ab1754348900cba49"},
    {10, 3, 0, 0, "silu", "d94ffcbd019b7f3c72b0a4c1e9639b5e"},
    {10, 4, 0, 0, "silu of more rows than a tile", "1435d6a07203d6e21999be7d0426ca0f"},
};

const self_check_op self_check_moe_gemm = {build, ARRAY_LEN(probes), probes};

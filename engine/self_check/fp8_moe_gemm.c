/* self_check/fp8_moe_gemm.c - the probes of the op `fp8_moe_gemm` and their known answers. See self_check/cases.h. */
#include "self_check/images.h"
#include "self_check/codes.h"

/* Form 0: rows gathered by token, experts without rows between others. 1: plain rows, five blocks of k. 2: an expert with more plain rows
 * than the largest tile, with others before and after it. 3: as 0, silu. 4: plain rows, silu. */
bool self_check_fp8_moe_gemm_gathers(uint32_t form) { return form == 0 || form == 3; }

static void build(self_check_image *image) {
  enum { EXPERTS = 5, TOP_K = 2 };
  static const struct { u32 tokens, n, k, first[EXPERTS + 1]; } shapes[] = {
    {10, 136, 256, {0, 0, 17, 17, 18, 20}}, {10, 24, 640, {0, 0, 17, 17, 18, 20}}, {75, 40, 128, {0, 3, 3, 140, 141, 150}},
    {10, 256, 128, {0, 0, 17, 17, 18, 20}}, {20, 512, 128, {0, 3, 3, 35, 36, 40}}};
  const u32 tokens = shapes[image->form].tokens, n = shapes[image->form].n, k = shapes[image->form].k, pairs = tokens * TOP_K;
  const u32 blocks = k / SCALE_COLUMNS, scale_rows = EXPERTS * (u32)div_up(n, SCALE_COLUMNS);
  const bool gathered = self_check_fp8_moe_gemm_gathers(image->form);
  const u32 rows = gathered ? tokens : pairs;
  fp8_moe_gemm_args a = {.step = take_step(image, tokens, 0, 0), .n = n, .k = k, .experts = EXPERTS, .top_k = TOP_K,
                         .y_kind = image->form >= 3 ? Y_SILU : Y_F32};
  u32 *expert_first = take(image, sizeof shapes->first), *row_token = take(image, (pairs + 1) * 4);
  memcpy(expert_first, shapes[image->form].first, sizeof shapes->first);
  for (u32 i = 0; i < pairs; i++) row_token[i] = i * 3 % tokens;
  a.expert_first = expert_first;
  a.row_token = gathered ? row_token : NULL;
  a.x = take_codes(image, rows, rows + 1, k, 0);
  a.x_scale = take_scales(image, rows, rows + 1, blocks);
  a.w = take_codes(image, EXPERTS * n, EXPERTS * n, k, 1);
  a.w_scale = take_scales(image, scale_rows, scale_rows, blocks);
  a.y = take(image, (pairs + 1) * (a.y_kind == Y_SILU ? n : n * 4ull));
  image->launch->grid_more = EXPERTS;
  LAUNCH(image, a, n, pairs, 1);
}

static const self_check_probe probes[] = {
    {20, 0, 0, 0, "gathered rows", "de8767192dba6214425e9ad75b50a558"},
    {20, 1, 0, 0, "long k", "32be0edc7be5e7dc44e649e8e1462867"},
    {20, 2, 0, 0, "more rows than a tile", "aaaaa458ae7ef9136ddfe64fd50564a4"},
    {20, 3, 0, 0, "silu", "78bd37a915424b26b158945995ea0de5"},
    {20, 4, 0, 0, "silu of plain rows", "b5fe418a276849b3badbee6daa9df984"},
};

const self_check_op self_check_fp8_moe_gemm = {build, ARRAY_LEN(probes), probes};

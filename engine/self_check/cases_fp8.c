/* self_check/cases_fp8.c - the self-check's probes of products of e4m3 numbers (see self_check/cases.c).
 *
 * Must not know how a machine runs an op. Read next: self_check/images.h, NUMERICS.md "H32", "fp8_gemm". */
#include "self_check/images.h"
#include "base/limits.h"

enum code_kind { CODE_PLAIN, CODE_WIDE, CODE_CANCELLING, CODE_ZEROS, CODE_LONGEST, CODE_KINDS };

/* k codes of one operand's row; side 0: x, 1: w. The corners of the tensor-core rule: terms that are cut, sums that cancel but for a last
 * bit, subnormal factors, zeros of both signs, the longest significands. */
static void fill_codes(self_check_image *image, u8 *out, u32 k, u32 kind, u32 side) {
  for (u32 i = 0; i < k; i++) {
    u64 r = random_bits(image);
    u32 sign = (u32)(r >> 63) << 7, spread = (u32)(r >> 16 & 0xffff), plain = 64 + spread % 63;
    switch (kind) {
      case CODE_WIDE: out[i] = (u8)(sign | spread % 127); break;
      case CODE_ZEROS: out[i] = (u8)(sign | (r >> 8 & 3 ? 0 : plain)); break;
      case CODE_LONGEST: out[i] = (u8)(0x77u | (u32)(r >> 60 == 0) << 7); break;
      default: out[i] = (u8)(sign | plain); break;
    }
    if (kind == CODE_CANCELLING && i % 2) out[i] = (u8)(out[i - 1] ^ (side ? 0u : 0x80u) ^ (r >> 8 & 7 ? 0u : 1u));
  }
}

/* Of one of k / 128 blocks each: few of them powers of two. */
static const f32 *take_scales(self_check_image *image, u32 rows, u32 padded, u32 blocks) {
  f32 *scales = take(image, (u64)padded * blocks * 4);
  for (u32 i = 0; i < rows * blocks; i++) {
    u64 r = random_bits(image);
    scales[i] = num_float((110 + (u32)(r >> 40) % 9) << 23 | (r >> 60 ? (u32)(r & 0x7fffff) : 0));
  }
  return scales;
}

static const u8 *take_codes(self_check_image *image, u32 rows, u32 padded, u32 k, u32 side) {
  u8 *codes = take(image, (u64)padded * k);
  for (u32 i = 0; i < rows; i++) fill_codes(image, codes + (u64)i * k, k, i % CODE_KINDS, side);
  return codes;
}

/* Form 0: fp32, nine blocks of k, rows of weights that end inside a block of scales. 1: bf16 by logits rows, gaps. 2: silu, columns of
 * several tiles. 3: more rows than the largest tile. */
void self_check_cases_fp8_gemm(self_check_image *image) {
  static const struct { u32 rows, n, k, gap; } shapes[] = {{17, 200, 1152, 8}, {5, 72, 256, 8}, {19, 512, 256, 0}, {133, 136, 128, 8}};
  const u32 rows = shapes[image->form].rows, n = shapes[image->form].n, k = shapes[image->form].k, blocks = k / SCALE_COLUMNS;
  const bool by_logits = image->form == 1;
  fp8_gemm_args a = {.step = take_step(image, by_logits ? 1 : rows, by_logits ? rows : 0, 0), .ldy = n + shapes[image->form].gap, .n = n,
                     .k = k, .rows_kind = by_logits ? ROWS_LOGITS : ROWS_TOKENS,
                     .y_kind = by_logits ? Y_BF16 : image->form == 2 ? Y_SILU : Y_F32};
  a.x = take_codes(image, rows, rows + 1, k, 0);
  a.x_scale = take_scales(image, rows, rows + 1, blocks);
  a.w = take_codes(image, n, n, k, 1);
  a.w_scale = take_scales(image, (u32)div_up(n, SCALE_COLUMNS), (u32)div_up(n, SCALE_COLUMNS), blocks);
  a.y = take(image, (u64)(rows + 1) * a.ldy * (a.y_kind == Y_F32 ? 4 : 2));
  LAUNCH(image, a, n, rows + 128, 1); /* whatever the tile, there is a block that has no row */
}

/* Form 0: rows gathered by token, experts without rows between others. 1: plain rows, five blocks of k. 2: an expert with more plain rows
 * than the largest tile, behind and before others. 3: as 0, silu. 4: plain rows, silu. */
bool self_check_cases_fp8_gather(uint32_t form) { return form == 0 || form == 3; }

void self_check_cases_fp8_moe_gemm(self_check_image *image) {
  enum { EXPERTS = 5, TOP_K = 2 };
  static const struct { u32 tokens, n, k, first[EXPERTS + 1]; } shapes[] = {
    {10, 136, 256, {0, 0, 17, 17, 18, 20}}, {10, 24, 640, {0, 0, 17, 17, 18, 20}}, {75, 40, 128, {0, 3, 3, 140, 141, 150}},
    {10, 256, 128, {0, 0, 17, 17, 18, 20}}, {20, 512, 128, {0, 3, 3, 35, 36, 40}}};
  const u32 tokens = shapes[image->form].tokens, n = shapes[image->form].n, k = shapes[image->form].k, pairs = tokens * TOP_K;
  const u32 blocks = k / SCALE_COLUMNS, scale_rows = EXPERTS * (u32)div_up(n, SCALE_COLUMNS);
  const bool gathered = self_check_cases_fp8_gather(image->form);
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

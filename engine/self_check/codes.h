/* self_check/codes.h - the e4m3 operands of the probes of fp8_gemm and fp8_moe_gemm: codes at the corners of the tensor-core rule, scales.
 *
 * Private to these two. Changing anything here changes their answers. Read next: self_check/images.h, NUMERICS.md "H32". */
#ifndef VERBATIM_SELF_CHECK_CODES_H
#define VERBATIM_SELF_CHECK_CODES_H
#include "self_check/images.h"

enum code_kind { CODE_PLAIN, CODE_WIDE, CODE_CANCELLING, CODE_ZEROS, CODE_LONGEST, CODE_KINDS };

/* k codes of one operand's row; side 0: x, 1: w. The corners of the tensor-core rule: truncated terms, sums that cancel except for a last
 * bit, subnormal factors, zeros of both signs, the longest significands. */
static inline void fill_codes(self_check_image *image, u8 *out, u32 k, u32 kind, u32 side) {
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

/* One scale for each of k / 128 blocks: few of them are powers of two. */
static inline const f32 *take_scales(self_check_image *image, u32 rows, u32 padded, u32 blocks) {
  f32 *scales = take(image, (u64)padded * blocks * 4);
  for (u32 i = 0; i < rows * blocks; i++) {
    u64 r = random_bits(image);
    scales[i] = num_float((110 + (u32)(r >> 40) % 9) << 23 | (r >> 60 ? (u32)(r & 0x7fffff) : 0));
  }
  return scales;
}

static inline const u8 *take_codes(self_check_image *image, u32 rows, u32 padded, u32 k, u32 side) {
  u8 *codes = take(image, (u64)padded * k);
  for (u32 i = 0; i < rows; i++) fill_codes(image, codes + (u64)i * k, k, i % CODE_KINDS, side);
  return codes;
}

#endif

/* kv_codes.cuh - e4m3 codes of KV rows dequantized to bf16. NUMERICS.md, "KV row".
 *
 * Exact conversions to fp32 through fp16, one rounded product, one rounding to bf16: right for every code, NaN included, and every
 * scale. Six instructions for two codes. Read next: attn/decode/load_rows.cuh, attn/cluster/load_fp8.cuh. */
#ifndef VERBATIM_ATTN_KV_CODES_CUH
#define VERBATIM_ATTN_KV_CODES_CUH
#include "ptx/ptx.cuh"

/* Eight codes: R4.11, R4.12. */
NUM uint4 kv_codes_widen(uint2 codes, f32 scale) {
  f32 x[4], y[4];
  ptx_from_e4m3(codes.x, x);
  ptx_from_e4m3(codes.y, y);
  return make_uint4(ptx_pack_bf16(num_mul(x[0], scale), num_mul(x[1], scale)), ptx_pack_bf16(num_mul(x[2], scale), num_mul(x[3], scale)),
                    ptx_pack_bf16(num_mul(y[0], scale), num_mul(y[1], scale)), ptx_pack_bf16(num_mul(y[2], scale), num_mul(y[3], scale)));
}

#endif

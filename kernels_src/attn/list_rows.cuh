/* list_rows.cuh - KV rows that lists name, as warps of attn/turn/form.cuh and attn/spread/form.cuh bring them: where they lie, and where
 * numbers of e4m3 codes go, four lanes to a row. Must not know which rows come when. Read next: attn/turn/codes.cuh, attn/spread/keys.cuh.
 * */
#ifndef VERBATIM_LIST_ROWS_CUH
#define VERBATIM_LIST_ROWS_CUH
#include "attn/pieces.cuh"
#include "attn/kv_codes.cuh"

#define ROW_BYTES KV_ROW_BYTES(SPEC_KV_FORMAT, SPEC_KV_LORA_RANK, SPEC_ROPE_DIM)
#define NO_ROW 0xffffffffu
#define ROPE_CODES (SPEC_KV_FORMAT == KV_FP8)                     /* else the columns behind V are bf16 numbers behind the scales */
#define ROPE_AT (SPEC_KV_LORA_RANK + (ROPE_CODES ? 0u : 16u))     /* byte of a row */

NUM u32 bring_lane() {
  u32 lane = threadIdx.x % 32u;
  ptx_forget(lane); /* registers are short */
  return lane;
}

/* Of a void row the first one of all, from which nothing is taken. */
NUM const u8 *row_at(const mla_attn_args &a, u32 row) { return (const u8 *)a.kv + (u64)(row == NO_ROW ? 0u : row) * ROW_BYTES; }

/* 16 codes as bf16 numbers into a box; to: of the warp's eight rows. */
NUM void put_codes(u8 *to, const uint4 &v, f32 scale) {
  const u32 row = bring_lane() / 4u;
  u32 at = row * 128u + ((2u * (bring_lane() % 4u)) ^ row) * 16u;
  ptx_forget(at);
  *(uint4 *)(to + at) = kv_codes_widen(make_uint2(v.x, v.y), scale);
  *(uint4 *)(to + (at ^ 16u)) = kv_codes_widen(make_uint2(v.z, v.w), scale);
}

/* Piece i of two of the columns behind V: where it lies in the warp's rows of their box. */
NUM u32 rope_piece_at(u32 i) {
  const u32 row = bring_lane() / 4u, part = bring_lane() % 4u, number = ROPE_CODES ? 2u * part + i : i * 4u + part;
  return row * 128u + (number ^ row) * 16u;
}

#endif

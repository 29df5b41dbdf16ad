/* attn/copy_rows.cuh - how warps of the 64-row forms load queries, and KV rows that are scattered over pages: addresses, 16-byte copies of
 * bf16 rows, dequantization of e4m3 codes (four lanes to a row), which entries are valid.
 *
 * Include after the form's layout.cuh; the form defines load_lane and load_warp. Knows nothing of the order in which rows are loaded.
 * Read next: attn/pingpong/load_bf16.cuh, attn/split/load.cuh. */
#ifndef VERBATIM_ATTN_COPY_ROWS_CUH
#define VERBATIM_ATTN_COPY_ROWS_CUH
#include "attn/pieces.cuh"
#include "attn/kv_codes.cuh"

#define ROW_BYTES KV_ROW_BYTES(SPEC_KV_FORMAT, SPEC_KV_LORA_RANK, SPEC_ROPE_DIM)
#define NO_ROW 0xffffffffu
#define ROPE_CODES (SPEC_KV_FORMAT == KV_FP8) /* else the rope columns are bf16 numbers after the scales */
#define ROPE_AT (SPEC_KV_LORA_RANK + (ROPE_CODES ? 0u : SPEC_KV_LORA_RANK / SCALE_COLUMNS * 4u)) /* offset in a row */

/* x, opaque to the compiler: what depends on it is computed where it is used, since registers are scarce. */
NUM u32 forgotten(u32 x) {
  ptx_forget(x);
  return x;
}

/* The lane of a thread that loads, and the number of its warp among those that load. */
NUM u32 load_lane();
NUM u32 load_warp();

/* The address of a row; of NO_ROW one that may not be read. */
NUM const u8 *row_address(const mla_attn_args &a, u32 row) { return (const u8 *)a.kv + (u64)row * ROW_BYTES; }
/* The same; of NO_ROW that of row 0, of which nothing is used. */
NUM const u8 *row_at(const mla_attn_args &a, u32 row) { return (const u8 *)a.kv + (u64)(row == NO_ROW ? 0u : row) * ROW_BYTES; }

/* bf16 rows as 16-byte copies: eight lanes to 128 bytes of a row. A lane has four of the warp's 16 rows: lane / 8 + 4 * h. */
typedef struct copy_source {
  const u8 *from[4];
  u32 bytes[4]; /* 0 for NO_ROW: zeros are written */
} copy_source;

/* Lanes `first` to first + 15 hold the warp's 16 row numbers. */
NUM copy_source find_source(const mla_attn_args &a, u32 row, u32 first) {
  copy_source s;
#pragma unroll
  for (u32 h = 0; h < 4; h++) {
    const u32 of = __shfl_sync(WARP_ALL, row, (int)(first + h * 4u + load_lane() / 8u));
    s.bytes[h] = of != NO_ROW ? 16u : 0u;
    s.from[h] = row_at(a, of) + load_lane() % 8u * 16u;
  }
  return s;
}

/* 16-byte pieces 0 .. count - 1 of each row, from byte `from` on. at: the lane's piece of its first row in the box, swizzled. */
NUM void copy_box(const copy_source &s, u32 at, u32 from, u32 count) {
#pragma unroll
  for (u32 h = 0; h < 4; h++)
    if (load_lane() % 8u < count) ptx_copy16((at ^ h % 2u * 64u) + h * 512u, s.from[h] + from, s.bytes[h]);
}

/* One thread: the queries of 64 operand rows from row `query` on, all columns. */
NUM void load_query_boxes(const tensor_maps &maps, const cta &b, u32 query) {
  ptx_barrier_expect(barrier_at(b, Q_FULL), BOXES * BOX_BYTES);
  for (u32 x = 0; x < BOXES; x++) ptx_take_box(b.base + AT_Q + x * BOX_BYTES, &maps.x, x * 64u, query, barrier_at(b, Q_FULL));
}

/* Which of the warp's 16 entries of a block are valid, for the score warps; lanes `first` to first + 15 hold their rows. */
NUM bool store_valid(const cta &b, u32 set, u32 row, u32 first) {
  const u32 valid = __ballot_sync(WARP_ALL, row != NO_ROW) >> first;
  if (load_lane() > 0) return false;
  ((u16 *)(b.shared + AT_VALID + set * 8u))[load_warp()] = (u16)valid;
  return true; /* in the lane that stored */
}

/* 16 codes as bf16 numbers into a box. to: the warp's eight rows in the box. */
NUM void store_widened(u8 *to, const uint4 &v, f32 scale) {
  const u32 row = load_lane() / 4u;
  u32 at = row * 128u + ((2u * (load_lane() % 4u)) ^ row) * 16u;
  ptx_forget(at);
  *(uint4 *)(to + at) = kv_codes_widen(make_uint2(v.x, v.y), scale);
  *(uint4 *)(to + (at ^ 16u)) = kv_codes_widen(make_uint2(v.z, v.w), scale);
}

/* Piece i (0 or 1) of the lane's rope columns: its offset in the warp's rows of their box. */
NUM u32 rope_piece_at(u32 i) {
  const u32 row = load_lane() / 4u, part = load_lane() % 4u, number = ROPE_CODES ? 2u * part + i : i * 4u + part;
  return row * 128u + (number ^ row) * 16u;
}

#endif

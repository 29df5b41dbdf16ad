/* attn/decode/load_rows.cuh - the producer warps of the decode form for gathered KV rows: rows of other formats than bf16, or named by
 * index lists. They look rows up, dequantize them and write the boxes that TMA would have written.
 *
 * A warp has as many rows of every block as the others, and waits for none of them. Rows of codes arrive in a buffer of the warp's, some
 * quads of four rows ahead of the one being dequantized: listed rows by a bulk copy each, others by one for a quad. bf16 rows are copied
 * 16 bytes at a time. Rows without a token are zeros. List entries are fetched a batch of blocks ahead, their pages in the middle of a
 * batch. AT_VALID tells the scores which entries hold a token. One or two warpgroups. H200, 16 heads, fp8_ds_mla, fold included: 64
 * contexts of 8,192 tokens 165 us, 2.1 times the HBM bound. tools/bench/history/2026-11-28-fp8-rows-decode.md. Read next: kv_codes.cuh. */
#ifndef VERBATIM_ATTN_DECODE_LOAD_ROWS_CUH
#define VERBATIM_ATTN_DECODE_LOAD_ROWS_CUH
#include "attn/decode/layout.cuh"
#include "attn/kv_codes.cuh"

#define NO_ROW 0xffffffffu
#define BATCH (32u / WARP_ROWS) /* blocks whose rows the lanes hold at a time */
#define PARTS (SPEC_KV_LORA_RANK / 256u) /* a lane has eight latent columns of a row, this many times */

static_assert(SPEC_KV_FORMAT != KV_FP8_DS_MLA || SPEC_KV_LORA_RANK % SCALE_COLUMNS == 0, "whole scales");

NUM u32 load_warp() { return (threadIdx.x - LOAD_THREAD) / 32u; }

/* Tokens of this warp's rows in the BATCH blocks from `block` on, a block's in adjacent lanes. */
NUM u32 find_tokens(const mla_attn_args &a, const attn_piece &p, u32 block) {
  const u32 lane = threadIdx.x % 32u, at = block + lane / WARP_ROWS, nth = at * PAGE_TOKENS + load_warp() * WARP_ROWS + lane % WARP_ROWS;
  if (at >= p.end_block || nth > attn_last_place(p.tile, SPEC_LISTS ? a.list_max : 0u)) return NO_ROW;
  return SPEC_LISTS ? a.lists[p.tile.row * a.list_max + nth] : nth;
}

/* Their rows in the cache. */
NUM u32 find_rows(const mla_attn_args &a, const attn_piece &p, u32 token) {
  if (token == NO_ROW || (SPEC_LISTS && token > p.tile.position)) return NO_ROW;
  return a.block_table[p.tile.seq * a.block_table_stride + token / PAGE_TOKENS] * PAGE_TOKENS + token % PAGE_TOKENS;
}

NUM const u8 *row_at(const mla_attn_args &a, u32 row) { return (const u8 *)a.kv + (u64)row * ROW_BYTES; }

/* === Rows of codes ====================================================================================================== */

NUM u32 raw_at(u32 slot) { return AT_RAW + (load_warp() * RAW_QUADS + slot) * QUAD_BYTES; }

/* Starts the copies of a batch's quad to a buffer that all lanes have read: one of its rows each or, without lists, one of all, which are
 * adjacent in a page. Rows without a token become zeros. */
NUM void fetch_quad(const mla_attn_args &a, const cta &b, u32 rows, u32 quad, u32 slot) {
  const u32 lane = threadIdx.x % 32u, row = __shfl_sync(WARP_ALL, rows, quad * 4u + lane % 4u);
  const u32 full = b.base + RAW_FULL(load_warp(), slot);
  const u32 valid = __ballot_sync(WARP_ALL, row != NO_ROW) & 15u;
  const u32 bytes = (u32)__popc(valid) * ROW_BYTES;
  if (lane == 0) ptx_barrier_expect(full, bytes);
  __syncwarp();
  if (SPEC_LISTS && lane < 4u && row != NO_ROW)
    ptx_copy_bulk(b.base + raw_at(slot) + lane * ROW_BYTES, row_at(a, row), ROW_BYTES, full, ptx_once());
  if (!SPEC_LISTS && lane == 0 && valid) ptx_copy_bulk(b.base + raw_at(slot), row_at(a, row), bytes, full, ptx_once());
  if (valid == 15u) return;
#pragma unroll 1
  for (u32 i = lane; i < QUAD_BYTES / 16u; i += 32u)
    if ((valid >> i * 16u / ROW_BYTES & 1u) == 0) *(uint4 *)(b.shared + raw_at(slot) + i * 16u) = make_uint4(0, 0, 0, 0);
  __syncwarp();
}

/* A lane's 16 bytes of a row in a box; and in the boxes of its part i of the latent columns, of a block whose boxes begin at `block`. */
NUM u32 piece_at(u32 row) { return row * 128u + ((threadIdx.x % 8u ^ row % 8u) << 4); }
NUM u32 part_at(u32 block, u32 i, u32 row) { return block + (1u + threadIdx.x % 32u / 8u + i * 4u) * BOX_BYTES + piece_at(row); }

/* A quad that has arrived, to rows first .. first + 3 of the boxes. The codes of two rows are read before either is stored, because the
 * compiler does not move loads before stores. first: a multiple of four. */
NUM void widen_quad(const cta &b, u32 from, u32 block, u32 first, f32 layer_scale) {
  const u32 lane = threadIdx.x % 32u, own = part_at(block, 0, first);
#pragma unroll
  for (u32 r = 0; r < 4u; r += 2u) {
    uint2 codes[2u * PARTS];
    f32 scale[2u * PARTS];
#pragma unroll
    for (u32 x = 0; x < 2u * PARTS; x++) {
      const u8 *row = b.shared + from + (r + x / PARTS) * ROW_BYTES;
      codes[x] = *(const uint2 *)(row + (lane + x % PARTS * 32u) * 8u);
      scale[x] = layer_scale;
      if (SPEC_KV_FORMAT == KV_FP8_DS_MLA) scale[x] = *(const f32 *)(row + SPEC_KV_LORA_RANK + (lane / 16u + x % PARTS * 2u) * 4u);
    }
#pragma unroll
    for (u32 x = 0; x < 2u * PARTS; x++) {
      const u32 nth = r + x / PARTS; /* row of the quad */
      *(uint4 *)(b.shared + (own ^ nth * 16u) + nth * 128u + x % PARTS * 4u * BOX_BYTES) = kv_codes_widen(codes[x], scale[x]);
    }
  }
  if (lane % 8u >= SPEC_ROPE_DIM / 8u) return;
  const u8 *row = b.shared + from + lane / 8u * ROW_BYTES + SPEC_KV_LORA_RANK;
  uint4 *to = (uint4 *)(b.shared + block + piece_at(first + lane / 8u));
  if (SPEC_KV_FORMAT == KV_FP8) *to = kv_codes_widen(*(const uint2 *)(row + lane % 8u * 8u), layer_scale);
  else *to = *(const uint4 *)(row + SPEC_KV_LORA_RANK / SCALE_COLUMNS * 4u + lane % 8u * 16u);
}

/* === Rows of bf16 numbers =============================================================================================== */

NUM void copy_piece(const mla_attn_args &a, u32 to, u32 row, u32 piece) {
  const bool is = row != NO_ROW;
  ptx_copy16(to, row_at(a, is ? row : 0u) + piece * 16u, is ? 16u : 0u);
}

NUM void copy_quad(const mla_attn_args &a, const cta &b, u32 block, u32 first, u32 rows, u32 quad) {
  const u32 lane = threadIdx.x % 32u;
#pragma unroll
  for (u32 r = 0; r < 4u; r++) {
    const u32 row = __shfl_sync(WARP_ALL, rows, quad * 4u + r);
#pragma unroll
    for (u32 i = 0; i < PARTS; i++) copy_piece(a, b.base + part_at(block, i, first + r), row, lane + i * 32u);
  }
  const u32 row = __shfl_sync(WARP_ALL, rows, quad * 4u + lane / 8u);
  if (lane % 8u < SPEC_ROPE_DIM / 8u)
    copy_piece(a, b.base + block + piece_at(first + lane / 8u), row, SPEC_KV_LORA_RANK / 8u + lane % 8u);
}

/* === The warps ========================================================================================================== */

/* This warp's share of the block's boxes is written, or its copies are in flight; and the valid bits of its entries. */
NUM void publish_rows(const cta &b, ring_slot at, u32 nth, u32 valid) {
  const u32 lane = threadIdx.x % 32u;
  u8 *bits = b.shared + AT_VALID + nth % VALID_SLOTS * 8u;
  if (SPEC_LISTS && lane == 0 && WARP_ROWS == 8u) bits[load_warp()] = (u8)valid;
  if (SPEC_LISTS && lane == 0 && WARP_ROWS == 16u) ((u16 *)bits)[load_warp()] = (u16)valid;
  if (CODES) ptx_fence_async();
  for (u32 k = 0; k < BOXES && !CODES; k++) ptx_barrier_arrive_copies(b.base + FULL(slot_of_box(at, k).stage));
  __syncwarp();
  if (lane < BOXES) ptx_barrier_arrive(b.base + FULL(slot_of_box(at, lane).stage));
}

/* The blocks of a piece. nth: number among all blocks of this CTA. */
NUM void gather_piece(const mla_attn_args &a, const cta &b, const attn_piece &p, u32 &nth, f32 layer_scale) {
  const u32 lane = threadIdx.x % 32u;
  u32 rows = find_rows(a, p, find_tokens(a, p, p.first_block)), after = NO_ROW; /* of this batch; of the next one */
#pragma unroll 1
  for (u32 q = 0; q < RAW_QUADS && CODES; q++) fetch_quad(a, b, rows, q, (nth * QUADS + q) % RAW_QUADS);
  ptx_grid_wait();
#pragma unroll 1
  for (u32 block = p.first_block; block < p.end_block; block++, nth++) {
    const u32 in_batch = (block - p.first_block) % BATCH;
    const bool ends = in_batch + 1u == BATCH;
    if (in_batch == 0) after = find_tokens(a, p, block + BATCH);
    if (in_batch == BATCH / 2u) after = find_rows(a, p, after);
    const u32 valid = __ballot_sync(WARP_ALL, rows != NO_ROW) >> (in_batch * WARP_ROWS);
    const ring_slot at = slot_of_block(nth, 1u), own = slot_of_box(at, lane < BOXES ? lane : 0u);
    ptx_barrier_wait(b.base + EMPTY(own.stage), own.phase);
    __syncwarp();
#pragma unroll 1
    for (u32 q = 0; q < QUADS; q++) {
      const u32 first = load_warp() * WARP_ROWS + q * 4u, taken = nth * QUADS + q, slot = taken % RAW_QUADS;
      if (!CODES) {
        copy_quad(a, b, at.stage * BOX_BYTES, first, rows, in_batch * QUADS + q);
        continue;
      }
      ptx_barrier_wait(b.base + RAW_FULL(load_warp(), slot), taken / RAW_QUADS & 1u);
      widen_quad(b, raw_at(slot), at.stage * BOX_BYTES, first, layer_scale);
      const u32 ahead = q + RAW_QUADS; /* in this block or the next one */
      const bool is_next = ahead >= QUADS, is_after = is_next && ends;
      const u32 quad = is_after ? ahead - QUADS : in_batch * QUADS + ahead;
      if (!is_next || block + 1u < p.end_block) fetch_quad(a, b, is_after ? after : rows, quad, slot);
    }
    publish_rows(b, at, nth, valid);
    if (ends) rows = after;
  }
}

/* All loading warps. Each pass loads the blocks of its piece anew. */
NUM void gather_rows(const mla_attn_args &a, const cta &b) {
  u32 nth = 0;
  const f32 layer_scale = SPEC_KV_FORMAT == KV_FP8 ? *a.kv_scale : 1.0f;
  FOR_PIECES(p, a, share_count(a)) {
    if (SPEC_LISTS || p.early == 0) ptx_grid_wait(); /* else the first block's rows are from earlier steps */
    for (u32 i = 0; i < pass_count(a, p); i++) gather_piece(a, b, p, nth, layer_scale);
  }
}

#endif

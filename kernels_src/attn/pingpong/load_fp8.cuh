/* attn/pingpong/load_fp8.cuh - the two producer warpgroups of the pingpong form for e4m3 rows: they dequantize half of a block's rows into
 * the boxes of this CTA and, by bulk copies, into those of the other CTA, which does the other half. So a row is read and dequantized once
 * for 128 heads. A warp has eight rows, four lanes to a row, and every other group of boxes.
 *
 * All codes of a block are fetched after the last fence of the block before, because a fence waits for loads; with them the pages of the
 * next pair of blocks and the entries of the pair after that. Read next: attn/pingpong/scores.cuh. */
#ifndef VERBATIM_ATTN_PINGPONG_LOAD_FP8_CUH
#define VERBATIM_ATTN_PINGPONG_LOAD_FP8_CUH
#include "attn/pingpong/load.cuh"

#define WARP_BYTES 1024u /* the warp's rows of a box */

NUM u32 box_half() { return load_warp() / 4u; } /* which groups of boxes */

/* A lane's part of its row: 16 codes in each box of two groups, which become two adjacent 16-byte pieces, and one piece of the rope
 * columns, or eight codes of it. */
typedef struct row_codes {
  uint4 v[4], rope;
  f32 scale[2]; /* per group of 128 columns */
} row_codes;

NUM void fetch_codes(const mla_attn_args &a, u32 of, row_codes &c) {
  const u8 *row = row_at(a, of);
  const u32 part = load_lane() % 4u * 16u, half = box_half();
  const bool is = of != NO_ROW;
#pragma unroll
  for (u32 i = 0; i < 4; i++) {
    c.v[i] = make_uint4(0, 0, 0, 0);
    if (is) c.v[i] = *(const uint4 *)(row + half * 128u + part + i / 2u * 256u + i % 2u * 64u);
  }
  c.rope = make_uint4(0, 0, 0, 0);
  if (is && !ROPE_CODES) c.rope = *(const uint4 *)(row + ROPE_AT + half * 64u + part);
  if (is && ROPE_CODES) {
    const uint2 eight = *(const uint2 *)(row + ROPE_AT + part + half * 8u);
    c.rope.x = eight.x;
    c.rope.y = eight.y;
  }
#pragma unroll
  for (u32 i = 0; i < 2; i++) {
    c.scale[i] = ROPE_CODES ? a.kv_scale[0] : 0.0f;
    if (is && !ROPE_CODES) c.scale[i] = *(const f32 *)(row + SPEC_KV_LORA_RANK + (half + 2u * i) * 4u);
  }
}

/* The rope columns go to both CTAs by stores: their box here may be overwritten by P before a copy has read it. */
NUM void store_rope(const cta &b, const row_codes &c, u32 set, u32 rows_at) {
  const u32 full = FULL + set * BOX_GROUPS + BOX_GROUPS - 1u, peer = ptx_peer(b.base, b.rank ^ 1u);
  const u32 at = box_at(set, ROPE_BOX) + rows_at + rope_piece_at(box_half());
  const uint4 x = ROPE_CODES ? kv_codes_widen(make_uint2(c.rope.x, c.rope.y), c.scale[0]) : c.rope;
  *(uint4 *)(b.shared + at) = x;
  ptx_store_peer(peer + at, x.x, x.y, x.z, x.w, peer + AT_BARRIERS + full * 8u);
}

/* The warp's rows of box group g are written; those of V are also copied to the other CTA. Each barrier expects as much from there. */
NUM void publish_boxes(const cta &b, u32 set, u32 g, u32 rows_at) {
  const u32 full = FULL + set * BOX_GROUPS + g, peer = ptx_peer(b.base, b.rank ^ 1u);
  ptx_fence_async();
  __syncwarp();
  if (ptx_elect()) {
    ptx_barrier_expect(barrier_at(b, full), g + 1u < BOX_GROUPS ? 2u * WARP_BYTES : WARP_BYTES / 2u);
    for (u32 x = 2u * g; x < 2u * g + 2u && x < ROPE_BOX; x++) {
      const u32 at = box_at(set, x) + rows_at;
      ptx_copy_peer(peer + at, b.base + at, WARP_BYTES, peer + AT_BARRIERS + full * 8u);
    }
  }
  __syncwarp();
}

/* Which entries hold a token: eight rows of this CTA, and eight of the other; lanes 16 * set and so on have found them. */
NUM void store_valid_halves(const cta &b, u32 set, u32 row) {
  const u32 valid = __ballot_sync(WARP_ALL, row != NO_ROW) >> set * 16u;
  if (load_lane() > 0) return;
  u8 *const to = b.shared + AT_VALID + set * 8u + load_warp() % 4u;
  to[b.rank * 4u] = (u8)valid;
  to[(b.rank ^ 1u) * 4u] = (u8)(valid >> 8);
}

/* The row of this lane's eight in the block in `set`, among those that lanes have found. */
NUM u32 row_of_lane(u32 row, u32 set) { return __shfl_sync(WARP_ALL, row, (int)(set * 16u + load_lane() / 4u)); }

/* The entry of a pair of blocks that this lane looks up: eight of this CTA and eight of the other, in each block. */
NUM u32 lookup_place(const cta &b) {
  const u32 lane = load_lane(), side = b.rank ^ (lane / 8u & 1u);
  return lane / 16u * 64u + side * 32u + load_warp() % 4u * 8u + lane % 8u;
}

NUM u32 load_arrivals(u32 g) { return g + 1u < BOX_GROUPS ? 4u : 8u; } /* warps */

NUM void load_block(const cta &b, const row_codes &c, u32 set, u32 phase, u32 row) {
  const u32 half = box_half(), rows_at = (b.rank * 4u + load_warp() % 4u) * WARP_BYTES;
#pragma unroll
  for (u32 i = 0; i < 2; i++) {
    const u32 g = half + 2u * i;
    u8 *const to = b.shared + box_at(set, 2u * g) + rows_at;
    wait_empty(b, EMPTY + set * BOX_GROUPS + g, phase);
    if (g == 0) store_valid_halves(b, set, row);
    store_widened(to, c.v[2u * i], c.scale[i]);
    store_widened(to + BOX_BYTES, c.v[2u * i + 1u], c.scale[i]);
    publish_boxes(b, set, g, rows_at);
  }
  wait_empty(b, EMPTY + set * BOX_GROUPS + BOX_GROUPS - 1u, phase);
  store_rope(b, c, set, rows_at);
  publish_boxes(b, set, BOX_GROUPS - 1u, rows_at);
}

NUM void run_loads(const mla_attn_args &a, const tensor_maps &maps, const cta &b) {
  block_pair now = first_pair(a, lookup_place(b));
  row_codes c;
  fetch_codes(a, row_of_lane(now.row, 0), c);
  fetch_entries(a, now, lookup_place(b));
#pragma unroll 1
  for (u32 k = 0; now.is; k++) {
    const u32 set = k % 2u;
    load_block(b, c, set, k / 2u, now.row);
    if (set == 0) {
      if (now.first != NO_ROW && load_warp() == 7u) load_queries(a, maps, b, now.first);
      fetch_pages(a, now);
    } else {
      next_pair(a, now, lookup_place(b));
    }
    fetch_codes(a, row_of_lane(now.row, set ^ 1u), c);
  }
}

#endif

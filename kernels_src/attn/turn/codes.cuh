/* attn/turn/codes.cuh - the last two warpgroups of attn/turn/form.cuh where KV rows are e4m3 codes: they make bf16 numbers of half of a
 * block's rows, for its own boxes and, by bulk copies, for those of the other block of the cluster, which makes the other half. So a row is
 * read and widened once for 128 heads. A warp has eight rows, four lanes to a row, and every other group of boxes.
 *
 * All codes of a block are asked for behind the last fence of the one before, which would wait for them, and with them pages of the next
 * pair of blocks and entries of the one behind that: what is asked for together is waited for once. Read next: attn/turn/scores.cuh. */
#ifndef VERBATIM_TURN_CODES_CUH
#define VERBATIM_TURN_CODES_CUH
#include "attn/turn/rows.cuh"

#define WARP_BYTES 1024u /* of a warp's rows in a box */

NUM u32 bring_half() { return bring_warp() / 4u; } /* of the groups of boxes */

/* Of its row a lane holds 16 codes of each box of two groups, which make two pieces of 16 bytes side by side, and one piece of the columns
 * behind V, or eight codes of it. */
typedef struct codes {
  uint4 v[4], rope;
  f32 scale[2]; /* of a group's 128 columns */
} codes;

NUM void take_codes(const mla_attn_args &a, u32 of, codes &c) {
  const u8 *row = row_at(a, of);
  const u32 part = bring_lane() % 4u * 16u, half = bring_half();
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

/* The columns behind V go to both blocks by stores: where they lie here P may be before a copy has read them. */
NUM void put_rope(const place &p, const codes &c, u32 set, u32 rows_at) {
  const u32 come = COME + set * GROUPS + GROUPS - 1u, there = ptx_peer(p.base, p.rank ^ 1u);
  const u32 at = box_at(set, ROPE_BOX) + rows_at + rope_piece_at(bring_half());
  const uint4 x = ROPE_CODES ? kv_codes_widen(make_uint2(c.rope.x, c.rope.y), c.scale[0]) : c.rope;
  *(uint4 *)(p.shared + at) = x;
  ptx_store_peer(there + at, x.x, x.y, x.z, x.w, there + AT_BARRIERS + come * 8u);
}

/* The warp's rows of group g of boxes are whole; those of V also go to the other block. Each barrier awaits as much from there. */
NUM void give_boxes(const place &p, u32 set, u32 g, u32 rows_at) {
  const u32 come = COME + set * GROUPS + g, there = ptx_peer(p.base, p.rank ^ 1u);
  ptx_fence_async();
  __syncwarp();
  if (ptx_elect()) {
    ptx_barrier_expect(barrier_at(p, come), g + 1u < GROUPS ? 2u * WARP_BYTES : WARP_BYTES / 2u);
    for (u32 x = 2u * g; x < 2u * g + 2u && x < ROPE_BOX; x++) {
      const u32 at = box_at(set, x) + rows_at;
      ptx_copy_peer(there + at, p.base + at, WARP_BYTES, there + AT_BARRIERS + come * 8u);
    }
  }
  __syncwarp();
}

/* Which places hold a token: eight rows from here, and as many from the other block; lanes 16 * set and so on know. */
NUM void give_live(const place &p, u32 set, u32 row) {
  const u32 live = __ballot_sync(WARP_ALL, row != NO_ROW) >> set * 16u;
  if (bring_lane() > 0) return;
  u8 *const to = p.shared + AT_LIVE + set * 8u + bring_warp() % 4u;
  to[p.rank * 4u] = (u8)live;
  to[(p.rank ^ 1u) * 4u] = (u8)(live >> 8);
}

/* The row of this lane's eight of the block in `set`, of those that lanes have found. */
NUM u32 row_of_lane(u32 row, u32 set) { return __shfl_sync(WARP_ALL, row, (int)(set * 16u + bring_lane() / 4u)); }

/* Of a pair of blocks the place that this lane looks up: eight of this block of the cluster, eight of the other one, of each block. */
NUM u32 own_place(const place &p) {
  const u32 lane = bring_lane(), side = p.rank ^ (lane / 8u & 1u);
  return lane / 16u * 64u + side * 32u + bring_warp() % 4u * 8u + lane % 8u;
}

NUM u32 bring_arrivals(u32 g) { return g + 1u < GROUPS ? 4u : 8u; } /* warps */

NUM void bring_block(const place &p, const codes &c, u32 set, u32 phase, u32 row) {
  const u32 half = bring_half(), rows_at = (p.rank * 4u + bring_warp() % 4u) * WARP_BYTES;
#pragma unroll
  for (u32 i = 0; i < 2; i++) {
    const u32 g = half + 2u * i;
    u8 *const to = p.shared + box_at(set, 2u * g) + rows_at;
    wait_free(p, FREE + set * GROUPS + g, phase);
    if (g == 0) give_live(p, set, row);
    put_codes(to, c.v[2u * i], c.scale[i]);
    put_codes(to + BOX_BYTES, c.v[2u * i + 1u], c.scale[i]);
    give_boxes(p, set, g, rows_at);
  }
  wait_free(p, FREE + set * GROUPS + GROUPS - 1u, phase);
  put_rope(p, c, set, rows_at);
  give_boxes(p, set, GROUPS - 1u, rows_at);
}

NUM void bring(const mla_attn_args &a, const tensor_maps &maps, const place &p) {
  pair now = first_pair(a, own_place(p));
  codes c;
  take_codes(a, row_of_lane(now.row, 0), c);
  ask_entries(a, now, own_place(p));
#pragma unroll 1
  for (u32 k = 0; now.is; k++) {
    const u32 set = k % 2u;
    bring_block(p, c, set, k / 2u, now.row);
    if (set == 0) {
      if (now.first != NO_ROW && bring_warp() == 7u) bring_queries(a, maps, p, now.first);
      ask_pages(a, now);
    } else {
      next_pair(a, now, own_place(p));
    }
    take_codes(a, row_of_lane(now.row, set ^ 1u), c);
  }
}

#endif

/* pair_gather.cuh - the last warpgroup of mla_pair.cuh where KV rows lie in another format than bf16, or lists name them: it takes the rows
 * of the blocks that are weighed here from memory, makes bf16 numbers of them and puts them into the boxes, each thread its share of two.
 *
 * Half of their V goes from here to the other block by stores into its shared memory, read from the boxes that only S needs here, when the
 * boxes there are free: no row is read or converted twice. What a thread reads so it wrote itself. A step's entries are asked for while the
 * one before is put into boxes, L2 is asked for its rows before that one's last boxes, and codes wait in registers for theirs. It waits for
 * what was done with blocks that it gave before, never for one that it has not given yet. Read next: pair_scores.cuh, pair_outputs.cuh. */
#ifndef VERBATIM_PAIR_GATHER_CUH
#define VERBATIM_PAIR_GATHER_CUH
#include "pair_rows.cuh"

#define CODES (SPEC_KV_FORMAT != KV_BF16) /* else numbers go from memory to their boxes as they are */
#define ROPE_AT (SPEC_KV_LORA_RANK + SPEC_KV_LORA_RANK / SCALE_COLUMNS * 4u) /* byte of a row of KV_FP8_DS_MLA */
#define SCALES (SPEC_KV_FORMAT == KV_FP8_DS_MLA ? 2u : 1u) /* of half of V */
#define GATHER_ARRIVALS (CODES ? 4u : 128u) /* when a box is there: of warps, or of threads' copies */
static_assert(SPEC_KV_FORMAT != KV_FP8_DS_MLA || SPEC_KV_LORA_RANK == 512, "two boxes a scale, and 16-byte pieces");

/* Of each box a thread has part lane / 8 of four of its rows: 16 codes, which make two pieces of 16 bytes side by side, or two pieces four
 * apart. Eight lanes side by side have eight rows, and so never meet in a bank. */
NUM u32 gather_part() { return gather_thread() % 32u / 8u; }
NUM u32 gather_at(bool codes) {
  u32 at = gather_row(0) * 128u + ((codes ? 2u : 1u) * gather_part() ^ threadIdx.x % 8u) * 16u;
  ptx_forget(at);
  return at;
}
NUM u32 piece_at(u32 at, u32 h, u32 i, bool codes) { return (at ^ i * (codes ? 16u : 64u)) + h * 1024u; } /* at: as gather_at gives it */

/* === Boxes ============================================================================================================== */

/* What a thread holds of a block until its boxes are free: codes of half of V, and its rows' scales, of 128 columns each or one. */
typedef struct gather_codes {
  uint4 v[HALF][2];
  f32 scale[2][SCALES];
} gather_codes;

NUM void take_codes(const mla_attn_args &a, const gather_step &s, u32 half, gather_codes &c) {
#pragma unroll
  for (u32 h = 0; h < 2 && CODES; h++) {
    const u8 *row = row_at(a, s.row[h]);
    const uint4 *codes = (const uint4 *)(row + half * HALF * 64u + gather_part() * 16u);
    const f32 *scales = SPEC_KV_FORMAT == KV_FP8 ? a.kv_scale : (const f32 *)(row + SPEC_KV_LORA_RANK + half * 8u);
#pragma unroll
    for (u32 i = 0; i < HALF; i++) c.v[i][h] = make_uint4(0, 0, 0, 0);
#pragma unroll
    for (u32 i = 0; i < SCALES; i++) c.scale[h][i] = 0.0f;
    if (s.row[h] == NO_ROW) continue;
#pragma unroll
    for (u32 i = 0; i < HALF; i++) c.v[i][h] = codes[i * 4u];
#pragma unroll
    for (u32 i = 0; i < SCALES; i++) c.scale[h][i] = scales[i];
  }
}

/* 16 codes as bf16 numbers (R4.11, R4.12) to their two places. */
NUM void put_codes(const place &p, u32 box_at, u32 at, u32 h, const uint4 &codes, f32 scale) {
  const u32 in[4] = {codes.x, codes.y, codes.z, codes.w};
  u32 out[8];
#pragma unroll
  for (u32 i = 0; i < 4; i++) {
    f32 x[4];
    ptx_from_e4m3(in[i], x);
#pragma unroll
    for (u32 e = 0; e < 4; e += 2u) out[2u * i + e / 2u] = ptx_pack_bf16(num_mul(x[e], scale), num_mul(x[e + 1u], scale));
  }
#pragma unroll
  for (u32 i = 0; i < 8; i += 4u)
    *(uint4 *)(p.shared + box_at + piece_at(at, h, i / 4u, true)) = make_uint4(out[i], out[i + 1u], out[i + 2u], out[i + 3u]);
}

/* bf16 numbers of a box as they lie in memory: `count` pieces of 16 bytes a row, from byte `from` on. */
NUM void copy_pieces(const mla_attn_args &a, const place &p, const gather_step &s, u32 box_at, u32 from, u32 count) {
  const u32 at = gather_at(false);
#pragma unroll
  for (u32 h = 0; h < 2; h++) {
    const bool is = s.row[h] != NO_ROW;
    const u8 *row = row_at(a, is ? s.row[h] : 0u) + from + gather_part() * 16u;
#pragma unroll
    for (u32 i = 0; i < 2; i++)
      if (4u * i < count) ptx_copy16(p.base + box_at + piece_at(at, h, i, false), row + 64u * i, is ? 16u : 0u);
  }
}

/* The thread's share of a box is there, or will be when its copies have come. */
NUM void give_box(const place &p, u32 come) {
  if (!CODES) {
    ptx_barrier_arrive_copies(barrier_at(p, come));
    return;
  }
  ptx_fence_async();
  __syncwarp();
  if (threadIdx.x % 32u == 0) ptx_barrier_arrive(barrier_at(p, come));
}

/* Half of V, and where it was put. */
NUM void put_half(const mla_attn_args &a, const place &p, const gather_step &s, u32 half, const gather_codes &c, u32 box_at, u32 come) {
  const u32 at = gather_at(true);
#pragma unroll
  for (u32 i = 0; i < HALF; i++) {
    if (!CODES) copy_pieces(a, p, s, box_at + i * BOX_BYTES, (half * HALF + i) * 128u, 8u);
#pragma unroll
    for (u32 h = 0; h < 2 && CODES; h++) put_codes(p, box_at + i * BOX_BYTES, at, h, c.v[i][h], c.scale[h][i / 2u % SCALES]);
    give_box(p, come + i);
  }
  ptx_copy_commit();
}

/* The columns behind V, by copies or as codes. */
NUM void put_rope(const mla_attn_args &a, const place &p, const gather_step &s, const uint4 (&codes)[2], const gather_codes &c) {
  const u32 box_at = AT_OTHERS + HALF * BOX_BYTES;
  if (SPEC_KV_FORMAT == KV_BF16) copy_pieces(a, p, s, box_at, SPEC_KV_LORA_RANK * 2u, SPEC_ROPE_DIM / 8u);
  if (SPEC_KV_FORMAT == KV_FP8)
#pragma unroll
    for (u32 h = 0; h < 2; h++) put_codes(p, box_at, gather_at(true), h, codes[h], c.scale[h][0]);
  if (SPEC_KV_FORMAT == KV_FP8_DS_MLA) PTX_COPY_WAIT(0);
  give_box(p, OTHERS_COME + HALF);
  ptx_copy_commit();
}

/* === Steps ============================================================================================================== */

/* Which places of the block hold a token, for scores. */
NUM void give_live(const place &p, u32 set, const gather_step &s) {
  const u32 low = __ballot_sync(WARP_ALL, s.row[0] != NO_ROW), high = __ballot_sync(WARP_ALL, s.row[1] != NO_ROW);
  if (threadIdx.x % 32u == 0) ((u16 *)(p.shared + AT_LIVE + set * 8u))[threadIdx.x % 128u / 32u] = (u16)((low & 255u) | (high & 255u) << 8);
}

/* One thread. */
NUM void bring_queries(const tensor_maps &maps, const place &p, u32 query, u32 n) {
  wait_free(p, Q_FREE, n);
  ptx_barrier_expect(barrier_at(p, Q_COME), BOXES * BOX_BYTES);
  for (u32 x = 0; x < BOXES; x++) ptx_take_box(p.base + AT_Q + x * BOX_BYTES, &maps.x, x * 64u, query, barrier_at(p, Q_COME));
}

/* The other block's half of V of block number n of those that are weighed here. Each thread reads what it wrote. */
NUM void send_values(const place &p, u32 n) {
  const u32 at = gather_at(CODES);
  u32 there = ptx_peer(p.base, p.rank ^ 1u);
  ptx_forget(there);
#pragma unroll 1
  for (u32 i = 0; i < HALF; i++) {
    if (i % WIDTH_BOXES == 0) wait_free(p, VALUES_FREE + i / WIDTH_BOXES, n);
#pragma unroll
    for (u32 j = 0; j < 4; j++) {
      const u32 in_boxes = i * BOX_BYTES + piece_at(at, j / 2u, j % 2u, CODES);
      const uint4 piece = *(const uint4 *)(p.shared + AT_OTHERS + in_boxes);
      ptx_store_peer(there + AT_VALUES + in_boxes, piece.x, piece.y, piece.z, piece.w, there + AT_BARRIERS + (VALUES_COME + i) * 8u);
    }
  }
}

/* Block number k of those that are weighed here: what is also multiplied here, before the last one's values go to the other block; */
NUM void put_both(const mla_attn_args &a, const place &p, const gather_step &s, const gather_codes &c, u32 k) {
  const u32 set = k % 2u;
  wait_free(p, BOTH_FREE + set * 2u, k / 2u);
  wait_free(p, BOTH_FREE + set * 2u + 1u, k / 2u);
  if (SPEC_LISTS) give_live(p, set, s);
  put_half(a, p, s, p.rank, c, AT_BOTH + set * HALF * BOX_BYTES, BOTH_COME + set * HALF);
}

/* and what only S needs, behind them. */
NUM void put_others(const mla_attn_args &a, const tensor_maps &maps, const place &p, const gather_step &s, const gather_codes &c, u32 k,
                    u32 &queries) {
  uint4 rope[2];
#pragma unroll
  for (u32 h = 0; h < 2 && SPEC_KV_FORMAT == KV_FP8; h++) {
    rope[h] = make_uint4(0, 0, 0, 0);
    if (s.row[h] != NO_ROW && gather_part() * 16u < SPEC_ROPE_DIM)
      rope[h] = *(const uint4 *)(row_at(a, s.row[h]) + SPEC_KV_LORA_RANK + gather_part() * 16u);
  }
  for (u32 i = 0; i < OTHERS; i++) wait_free(p, OTHERS_FREE + i, k);
  if (kind_of(s) == GATHER_FIRST) {
    if (threadIdx.x % 128u < 32u && ptx_elect()) bring_queries(maps, p, s.kind >> 2, queries);
    __syncwarp();
    queries++;
  }
  if (SPEC_KV_FORMAT == KV_FP8_DS_MLA) {
    copy_pieces(a, p, s, AT_OTHERS + HALF * BOX_BYTES, ROPE_AT, SPEC_ROPE_DIM / 8u);
    ptx_copy_commit();
  }
  put_half(a, p, s, p.rank ^ 1u, c, AT_OTHERS, OTHERS_COME);
  put_rope(a, p, s, rope, c);
}

/* One warpgroup. */
NUM void gather(const mla_attn_args &a, const tensor_maps &maps, const place &p) {
  gather_front f = {0, 0, 0, 0, 0, 0, 0};
  gather_step now = next_step(a, p, f), next = now;
  find_rows(a, f, now);
  if (kind_of(now) != GATHER_END) next = next_step(a, p, f);
  gather_codes c;
  take_codes(a, now, p.rank, c);
  u32 k = 0, queries = 0;
  bool owes = false; /* values of the last block */
  while (kind_of(now) != GATHER_END) {
    const bool is = kind_of(now) != GATHER_REST;
    if (is) {
      put_both(a, p, now, c, k);
      take_codes(a, now, p.rank ^ 1u, c);
    }
    if (!CODES && is) PTX_COPY_WAIT(1); /* all but those of put_both */
    if (!CODES && !is) PTX_COPY_WAIT(0);
    if (owes) send_values(p, k - 1u);
    find_rows(a, f, next);
    ask_rows(a, next);
    if (is) put_others(a, maps, p, now, c, k++, queries);
    owes = is;
    now = next;
    take_codes(a, now, p.rank, c);
    if (kind_of(now) != GATHER_END) next = next_step(a, p, f);
  }
  PTX_COPY_WAIT(0);
  if (owes) send_values(p, k - 1u);
}

#endif

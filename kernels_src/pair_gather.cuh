/* pair_gather.cuh - the last warpgroup of mla_pair.cuh where KV rows lie in another format than bf16, or lists name them: it takes the rows
 * from memory, makes bf16 numbers of codes and puts them into the boxes, each thread its share of two rows of every block.
 *
 * Of the blocks that are weighed here it takes all columns, of the other ones half of V, as the copies of mla_pair.cuh do: rows come twice
 * from L2, but no block waits for what the other one has made of them. Codes wait in registers for their boxes: when a row's have been
 * used, the thread's next ones are asked for. Entries of lists are asked for a step ahead, and L2 for the rows of the next step in the
 * middle of this one. Nothing here waits for a block that has not been put into its boxes. Read next: pair_scores.cuh, pair_outputs.cuh. */
#ifndef VERBATIM_PAIR_GATHER_CUH
#define VERBATIM_PAIR_GATHER_CUH
#include "kv_codes.cuh"
#include "pair_rows.cuh"

#define ROPE_AT (SPEC_KV_LORA_RANK + SPEC_KV_LORA_RANK / SCALE_COLUMNS * 4u) /* byte of a row of KV_FP8_DS_MLA */
#define SCALES (SPEC_KV_FORMAT == KV_FP8_DS_MLA ? 2u : 1u) /* of half of V */
static_assert(SPEC_KV_FORMAT != KV_FP8_DS_MLA || SPEC_KV_LORA_RANK == 512, "two boxes a scale, and 16-byte pieces");

/* Of each box a thread has part lane / 8 of four of its rows: 16 codes, which make two pieces of 16 bytes side by side, or two pieces four
 * apart. Eight lanes side by side have eight rows, and so never meet in a bank. */
NUM u32 gather_part() { return gather_thread() % 32u / 8u; }
NUM u32 gather_at(bool codes) {
  u32 at = gather_row(0) * 128u + ((codes ? 2u : 1u) * gather_part() ^ gather_thread() % 8u) * 16u;
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

/* Of row h. */
NUM void take_row(const mla_attn_args &a, u32 row, u32 half, u32 h, gather_codes &c) {
  const u8 *from = row_at(a, row);
  const uint4 *codes = (const uint4 *)(from + half * HALF * 64u + gather_part() * 16u);
  const f32 *scales = SPEC_KV_FORMAT == KV_FP8 ? a.kv_scale : (const f32 *)(from + SPEC_KV_LORA_RANK + half * 8u);
  const bool is = row != NO_ROW && CODES;
#pragma unroll
  for (u32 i = 0; i < HALF; i++) {
    c.v[i][h] = make_uint4(0, 0, 0, 0);
    if (is) c.v[i][h] = codes[i * 4u];
  }
#pragma unroll
  for (u32 j = 0; j < SCALES; j++) {
    c.scale[h][j] = 0.0f;
    if (is) c.scale[h][j] = scales[j];
  }
}

NUM void take_codes(const mla_attn_args &a, const u32 (&row)[2], u32 half, gather_codes &c) {
  take_row(a, row[0], half, 0, c);
  take_row(a, row[1], half, 1, c);
}

/* 16 codes as bf16 numbers to their two places. */
NUM void put_codes(const place &p, u32 at, u32 h, const uint4 &codes, f32 scale) {
  *(uint4 *)(p.shared + piece_at(at, h, 0, true)) = kv_codes_widen(make_uint2(codes.x, codes.y), scale);
  *(uint4 *)(p.shared + piece_at(at, h, 1, true)) = kv_codes_widen(make_uint2(codes.z, codes.w), scale);
}

/* bf16 numbers of a box as they lie in memory: `count` pieces of 16 bytes a row, from byte `from` on. */
NUM void copy_pieces(const mla_attn_args &a, const place &p, const u32 (&row)[2], u32 box_at, u32 from, u32 count) {
  const u32 at = gather_at(false);
#pragma unroll
  for (u32 h = 0; h < 2; h++) {
    const bool is = row[h] != NO_ROW;
    const u8 *start = row_at(a, is ? row[h] : 0u) + from + gather_part() * 16u;
#pragma unroll
    for (u32 i = 0; i < 2; i++)
      if (4u * i < count) ptx_copy16(p.base + box_at + piece_at(at, h, i, false), start + 64u * i, is ? 16u : 0u);
  }
}

/* The same of a whole box, which counts as come when the copies have. */
NUM void copy_box(const mla_attn_args &a, const place &p, const u32 (&row)[2], u32 box_at, u32 from, u32 count, u32 come) {
  copy_pieces(a, p, row, box_at, from, count);
  ptx_barrier_arrive_copies(barrier_at(p, come));
}

/* The warp's share of so many boxes is there. */
NUM void give_boxes(const place &p, u32 come, u32 count) {
  ptx_fence_async();
  __syncwarp();
  if (gather_thread() % 32u == 0)
    for (u32 i = 0; i < count; i++) ptx_barrier_arrive(barrier_at(p, come + i));
}

/* Half of V of a block, from the codes that are held, or by copies that are only begun; the codes of the next are asked for. */
NUM void put_half(const mla_attn_args &a, const place &p, const u32 (&row)[2], u32 half, u32 box_at, u32 come, gather_codes &c,
                  const u32 (&next)[2], u32 next_half) {
  const u32 at = box_at + gather_at(true);
#pragma unroll
  for (u32 i = 0; i < HALF && !CODES; i++) copy_box(a, p, row, box_at + i * BOX_BYTES, (half * HALF + i) * 128u, 8u, come + i);
#pragma unroll
  for (u32 h = 0; h < 2 && CODES; h++) {
#pragma unroll
    for (u32 i = 0; i < HALF; i++) put_codes(p, at + i * BOX_BYTES, h, c.v[i][h], c.scale[h][i / 2u % SCALES]);
    take_row(a, next[h], next_half, h, c);
  }
  if (CODES) give_boxes(p, come, HALF);
}

/* === Steps ============================================================================================================== */

/* Which places of the block hold a token, for scores. */
NUM void give_live(const place &p, u32 set, const u32 (&row)[2]) {
  const u32 low = __ballot_sync(WARP_ALL, row[0] != NO_ROW), high = __ballot_sync(WARP_ALL, row[1] != NO_ROW);
  u16 *live = (u16 *)(p.shared + AT_LIVE + set * 8u) + gather_thread() / 32u;
  if (gather_thread() % 32u == 0) *live = (u16)((low & 255u) | (high & 255u) << 8);
}

/* One thread. */
NUM void bring_queries(const tensor_maps &maps, const place &p, u32 query, u32 n) {
  wait_free(p, Q_FREE, n);
  ptx_barrier_expect(barrier_at(p, Q_COME), BOXES * BOX_BYTES);
  for (u32 x = 0; x < BOXES; x++) ptx_take_box(p.base + AT_Q + x * BOX_BYTES, &maps.x, x * 64u, query, barrier_at(p, Q_COME));
}

/* Block number k of those that are weighed here: what is also multiplied here, */
NUM void put_both(const mla_attn_args &a, const place &p, const gather_step &s, gather_codes &c, u32 k) {
  const u32 set = k % 2u;
  wait_free(p, BOTH_FREE + set * 2u, k / 2u);
  wait_free(p, BOTH_FREE + set * 2u + 1u, k / 2u);
  if (SPEC_LISTS) give_live(p, set, s.own);
  put_half(a, p, s.own, p.rank, AT_BOTH + set * HALF * BOX_BYTES, BOTH_COME + set * HALF, c, s.own, p.rank ^ 1u);
  if (COPIED && gather_thread() % 32u == 0) ptx_barrier_arrive(barrier_at(p, BOTH_COME + set * HALF)); /* with what give_live stored */
}

/* and what only S needs. The codes asked for are those of values. */
NUM void put_others(const mla_attn_args &a, const tensor_maps &maps, const place &p, const gather_step &s, gather_codes &c, u32 k,
                    u32 &queries, const u32 (&values)[2]) {
  const u32 box_at = AT_OTHERS + HALF * BOX_BYTES; /* of the columns behind V */
  for (u32 i = 0; i < OTHERS && CODES; i++) wait_free(p, OTHERS_FREE + i, k);
  if (s.kind & GATHER_FIRST) {
    if (gather_thread() < 32u && ptx_elect()) bring_queries(maps, p, s.kind >> GATHER_QUERY, queries);
    __syncwarp();
    queries++;
  }
#pragma unroll
  for (u32 i = 0; i < OTHERS && !CODES; i++) { /* as they become free */
    const u32 from = i < HALF ? ((p.rank ^ 1u) * HALF + i) * 128u : SPEC_KV_LORA_RANK * 2u;
    wait_free(p, OTHERS_FREE + i, k);
    copy_box(a, p, s.own, AT_OTHERS + i * BOX_BYTES, from, i < HALF ? 8u : SPEC_ROPE_DIM / 8u, OTHERS_COME + i);
  }
  if (!CODES) return;
  if (SPEC_KV_FORMAT != KV_FP8) copy_pieces(a, p, s.own, box_at, ROPE_AT, SPEC_ROPE_DIM / 8u);
#pragma unroll
  for (u32 h = 0; h < 2 && SPEC_KV_FORMAT == KV_FP8; h++) {
    const bool is = s.own[h] != NO_ROW && gather_part() * 16u < SPEC_ROPE_DIM;
    uint4 codes = make_uint4(0, 0, 0, 0);
    if (is) codes = *(const uint4 *)(row_at(a, s.own[h]) + SPEC_KV_LORA_RANK + gather_part() * 16u);
    put_codes(p, box_at + gather_at(true), h, codes, c.scale[h][0]);
  }
  put_half(a, p, s.own, p.rank ^ 1u, AT_OTHERS, OTHERS_COME, c, values, p.rank);
  ptx_copy_commit();
  PTX_COPY_WAIT(0);
  give_boxes(p, OTHERS_COME + HALF, 1u);
}

/* Half of V of block number n of those that the other one weighs. */
NUM void put_values(const mla_attn_args &a, const place &p, const u32 (&row)[2], gather_codes &c, u32 n, const u32 (&next)[2]) {
  wait_free(p, VALUES_FREE, n);
  wait_free(p, VALUES_FREE + 1u, n);
  put_half(a, p, row, p.rank, AT_VALUES, VALUES_COME, c, next, p.rank);
}

/* One warpgroup. Of two neighbouring blocks the second one's values go behind the next step's block that is weighed here: its boxes are
 * free before theirs. */
NUM void gather(const mla_attn_args &a, const tensor_maps &maps, place p) {
  if (SPEC_LISTS || (SPEC_KV_FORMAT == KV_FP8 && SPEC_KV_LORA_RANK == 512)) ptx_forget(p.base); /* or the compiler spills; else if so */
  gather_front f = {0, 0, 0, 0, 0, NO_ROW, 0, 0};
  gather_step now = next_step(a, p, f), next = now;
  find_rows(a, f, now.own);
  find_rows(a, f, now.other);
  gather_codes c;
  take_codes(a, now.own, p.rank, c);
  if (!(now.kind & GATHER_END)) next = next_step(a, p, f);
  u32 k = 0, n = 0, queries = 0, values[2] = {p.rank ? now.other[0] : NO_ROW, p.rank ? now.other[1] : NO_ROW};
  bool any = !(now.kind & GATHER_END), is = p.rank && (now.kind & GATHER_OTHER);
  while (any || is) {
    const bool own = now.kind & GATHER_OWN;
    if (own) put_both(a, p, now, c, k);
    find_rows(a, f, next.own);
    find_rows(a, f, next.other);
    ask_rows(a, next.own);
    if (own) put_others(a, maps, p, now, c, k++, queries, values);
    else take_codes(a, values, p.rank, c);
    if (is) put_values(a, p, values, c, n++, next.own);
    else take_codes(a, next.own, p.rank, c);
    is = (p.rank ? next.kind : now.kind) & GATHER_OTHER;
    values[0] = p.rank ? next.other[0] : now.other[0];
    values[1] = p.rank ? next.other[1] : now.other[1];
    now = next;
    any = !(now.kind & GATHER_END);
    if (any) next = next_step(a, p, f);
  }
}

#endif

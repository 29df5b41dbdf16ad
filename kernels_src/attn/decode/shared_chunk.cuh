/* attn/decode/shared_chunk.cuh - the decode form with SPEC_SHARES, for one token with a short context: a cluster of four CTAs takes a piece
 * that is one chunk of up to four blocks.
 *
 *   scores   CTA number r scores block r alone, and sends the block's row maxima, then P, to all four
 *   values   every CTA has a quarter of the output columns, of all blocks in their order
 *
 * Every CTA derives the running maximum from the same row maxima. All KV rows that a CTA needs fit its memory, so no load waits for room,
 * and rows of earlier steps are loaded before the wait for the previous kernel. Pieces of more chunks are taken as without SPEC_SHARES.
 * Bound by the latency of its steps one after the other. A step of DeepSeek-V2-Lite at context 1,024 on an H200: 1,877 us, without
 * clusters 1,921. Study: tools/bench/history/2026-11-28-one-row-shared-chunk.md. Read next: attn/decode/form.cuh. */
#ifndef VERBATIM_ATTN_DECODE_SHARED_CHUNK_CUH
#define VERBATIM_ATTN_DECODE_SHARED_CHUNK_CUH
#include "attn/decode/scores.cuh"
#include "attn/decode/values.cuh"

#define SHARERS 4u /* CTAs of a cluster and, at most, blocks of a chunk */
static_assert(SPEC_SHARES == 0u || (SPEC_SHARES == SHARERS && !GATHERED), "rows loaded by TMA");

/* Shared memory: the boxes of the block scored here, those of this CTA's columns of every block, P of every block. */
#define VALUE_STAGE(block) (BOXES + (block) * (V_BOXES / SHARERS)) /* first box of a block's values */
#define AT_ALL_P (VALUE_STAGE(SHARERS) * BOX_BYTES)                /* [SHARERS] */
static_assert(SPEC_SHARES == 0u || AT_ALL_P + SHARERS * P_BYTES <= AT_Q, "in place of the ring");
static_assert(SHARERS == 4u, "row maxima of all blocks, [SHARERS][ROWS], are in place of AT_MAX and AT_P_MAX");
#define SHARED_P_FULL(block) (Q_FULL + 64u + 8u * (block))
#define SHARED_MAX_FULL(block) (Q_FULL + 64u + 8u * (SHARERS + (block)))

/* The chunk that this cluster shares, known before the wait; of no blocks if it shares none. */
NUM attn_piece find_chunk(const mla_attn_args &a) {
  const u32 blocks = a.chunk_tokens / PAGE_TOKENS, nth = blockIdx.x / SHARERS;
  attn_piece p = {};
  if (SPEC_SHARES == 0u || share_count(a) == 1u || nth >= work_count(a)) return p;
  p = work_of(a, nth).piece;
  const bool is_chunk = p.end_block - p.first_block <= SHARERS && p.first_block / blocks == (p.end_block - 1u) / blocks;
  if (!is_chunk || p.tile.count * a.heads > ROWS) p.end_block = 0;
  return p;
}

/* One thread: a box of 64 columns. */
NUM void load_chunk_box(const tensor_maps &maps, const cta &b, u32 stage, u32 box, u32 row, u64 policy) {
  ptx_barrier_expect(b.base + FULL(stage), BOX_BYTES);
  ptx_copy_box(b.base + stage * BOX_BYTES, &maps.w, box * 64u, row, b.base + FULL(stage), policy);
}

/* One warp: the block scored here first. Blocks before the tile's own tokens are of earlier steps; with several tokens in the step another
 * sequence may write a page that this one reads. */
NUM void load_chunk(const mla_attn_args &a, const tensor_maps &maps, const cta &b, const attn_piece &p) {
  const u32 lane = threadIdx.x % 32u, rank = blockIdx.x % SHARERS, count = p.end_block - p.first_block;
  const u32 *pages = a.block_table + (u64)p.tile.seq * a.block_table_stride + p.first_block;
  const u32 before = p.tile.position / PAGE_TOKENS, alone = before > p.first_block ? before - p.first_block : 0u;
  const u64 policy = ptx_often(); /* several CTAs read a box */
  const u32 early = p.early > 0 && a.step->token_count == 1u ? alone : p.early;
  for (u32 i = 0; i < count && lane == 0; i++) {
    ptx_barrier_expect(b.base + SHARED_P_FULL(i), P_BYTES);
    ptx_barrier_expect(b.base + SHARED_MAX_FULL(i), ROWS * 4u);
  }
  for (u32 late = 0; late < 2u; late++) {
    if (late) ptx_grid_wait();
    for (u32 n = 0; n < SHARERS && lane == 0; n++) {
      const u32 i = (rank + n) % SHARERS;
      if (i >= count || (i >= early) != late) continue;
      const u32 row = pages[i] * PAGE_TOKENS;
      for (u32 k = 0; k < BOXES && n == 0; k++) load_chunk_box(maps, b, k, k == 0 ? V_BOXES : k - 1u, row, policy);
      for (u32 k = 0, x = 0; k < V_BOXES; k++)
        if (is_shared(k, SHARERS)) load_chunk_box(maps, b, VALUE_STAGE(i) + x++, k, row, policy);
    }
    __syncwarp();
  }
}

/* m after block i, from m before it. */
NUM void raise_max(f32 (&m)[OWN], const cta &b, u32 i) {
  f32 top[OWN];
  ptx_barrier_wait(b.base + SHARED_MAX_FULL(i), 0);
  load_max(top, (const f32 *)(b.shared + AT_MAX) + i * ROWS);
#pragma unroll
  for (u32 e = 0; e < OWN; e++) m[e] = num_raise(m[e], top[e]);
}

/* The row maxima of the block scored here, to all CTAs: by 16 lanes of a warp, four for each CTA. */
NUM void send_max(const f32 (&m)[OWN], const cta &b, u32 rank) {
  const u32 lane = threadIdx.x % 128u, to = lane / 4u;
  if (lane >= 4u * SHARERS) return;
  const u32 at = ptx_peer(b.base + AT_MAX + rank * ROWS * 4u, to), full = ptx_peer(b.base + SHARED_MAX_FULL(rank), to);
#pragma unroll
  for (u32 i = 0; i < OWN; i += 2u) ptx_store_peer(at + i * 16u + lane % 4u * 8u, m[i], m[i + 1u], full);
}

/* P of the block scored here, from AT_P to all CTAs. */
NUM void send_p(const cta &b, u32 rank) {
#pragma unroll
  for (u32 at = threadIdx.x % 128u * 16u; at < P_BYTES; at += 2048u) {
    const uint4 v = *(const uint4 *)(b.shared + AT_P + at);
#pragma unroll
    for (u32 to = 0; to < SHARERS; to++)
      ptx_store_peer(ptx_peer(b.base + AT_ALL_P + rank * P_BYTES + at, to), v.x, v.y, v.z, v.w, ptx_peer(b.base + SHARED_P_FULL(rank), to));
  }
}

/* The first warpgroup. */
NUM void score_chunk(const mla_attn_args &a, const cta &b, const attn_piece &p) {
  const u32 rank = blockIdx.x % SHARERS, block = p.first_block + rank;
  f32 s[ROWS / 2u], m[OWN];
  if (threadIdx.x >= 128u) return;
  ptx_barrier_wait(b.base + Q_FULL, 0);
  if (block >= p.end_block) return; /* after the copy of the queries: none is under way when a CTA ends */
  multiply_scores(s, b, {0, 0});
  scale_and_mask(s, a, p, {0, p.tile.count}, block, b.shared);
  block_max(m, s, (f32 *)(b.shared + AT_WARP_MAX), 0);
  send_max(m, b, rank);
#pragma unroll
  for (u32 e = 0; e < OWN; e++) m[e] = NO_MAX;
  for (u32 i = 0; i <= rank; i++) raise_max(m, b, i);
  store_p(s, m, b.base + AT_P);
  ptx_warps_sync(1, 128);
  send_p(b, rank);
}

/* By a value warpgroup: KV rows after the tile's last position have probability 0, but may hold NaN: they are zeroed in its boxes. */
NUM void clear_chunk(const cta &b, u32 stage, u32 boxes, u32 first) {
  const u32 pieces = (PAGE_TOKENS - first) * 8u;
  for (u32 i = threadIdx.x % 128u; i < pieces * boxes; i += 128u)
    *(uint4 *)(b.shared + (stage + i / pieces) * BOX_BYTES + first * 128u + i % pieces * 16u) = {0, 0, 0, 0};
  ptx_fence_async();
  ptx_warps_sync(3u + threadIdx.x / 128u, 128);
}

/* The value warpgroups. */
NUM void add_chunk(const mla_attn_args &a, const cta &b, const attn_piece &p) {
  constexpr u32 N = VALUE_BOXES / SHARERS;
  const u32 group = VALUE_GROUPS > 1u ? ptx_uniform(threadIdx.x / 128u) - SCORE_GROUPS : 0u;
  const u32 column = column_of(group * VALUE_BOXES + share_first(SHARERS));
  const u32 count = p.end_block - p.first_block, live = p.tile.count * a.heads;
  const u32 last = p.tile.position + p.tile.count - p.first_block * PAGE_TOKENS; /* rows up to the tile's last position */
  f32 o[N][ROWS / 2u], l[ROWS / 2u], m[OWN];
  state<N> r;
  clear(o, l);
#pragma unroll
  for (u32 i = 0; i < OWN; i++) m[i] = NO_MAX;
  for (u32 i = 0; i < count; i++) {
    const u32 stage = VALUE_STAGE(i) + group * N;
    f32 now[OWN];
#pragma unroll
    for (u32 x = 0; x < N; x++) ptx_barrier_wait(b.base + FULL(stage + x), 0);
    if (last < (i + 1u) * PAGE_TOKENS) clear_chunk(b, stage, N, last - i * PAGE_TOKENS);
    ptx_barrier_wait(b.base + SHARED_P_FULL(i), 0);
    ptx_fence_async(); /* P came by stores */
#pragma unroll
    for (u32 e = 0; e < OWN; e++) now[e] = m[e];
    raise_max(now, b, i);
    if (i > 0) rescale(o, l, m, now);
#pragma unroll
    for (u32 e = 0; e < OWN; e++) m[e] = now[e];
    __syncwarp();
    multiply_values(o, l, b, {stage - 1u, 0}, 0, AT_ALL_P + i * P_BYTES);
  }
  start_unit(b, r, o, l, m);
  ptx_grid_wait();
  if (p.slot == ATTN_WHOLE) {
    store_out(a, r, (u64)p.tile.row * a.heads, live, column);
  } else {
    const u64 unit = attn_unit_at(p.first_block * PAGE_TOKENS / a.chunk_tokens, a.counts->piece_chunks, a.group_chunks);
    store_unit(a, r, (p.slot + unit * p.tile.count) * a.heads, live, column);
  }
}

#endif

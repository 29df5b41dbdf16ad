/* attn/pair/scores.cuh - the score warpgroup of attn/pair/form.cuh: S and P of every other block of KV rows, m from block to block.
 * Read next: attn/pair/outputs.cuh. */
#ifndef VERBATIM_PAIR_SCORES_CUH
#define VERBATIM_PAIR_SCORES_CUH
#include "attn/pair/layout.cuh"

/* Boxes that only S needs are free once they are multiplied. */
NUM void free_boxes(const place &p, u32 from, u32 to) {
#pragma unroll
  for (u32 x = from; x < to; x++)
    if (!is_both(p, x) && threadIdx.x % 32u == 0) ptx_barrier_arrive(barrier_at(p, OTHERS_FREE + other_of(x)));
}

NUM void wait_box(const place &p, u32 x, u32 k) {
  if (is_both(p, x)) wait_for(p, BOTH_COME + k % 2u * HALF + x % HALF, k / 2u);
  else wait_for(p, OTHERS_COME + other_of(x), k);
}

/* s = Q KV^T, box by box as they come; k: number of the block among those weighed here. Copied boxes are fenced three at a time. */
NUM void make_scores(const place &p, f32 (&s)[32], u32 k) {
  clear_scores(s);
#pragma unroll
  for (u32 x = 0; x < BOXES; x++) {
    const u32 at = is_both(p, x) ? AT_BOTH + (k % 2u * HALF + x % HALF) * BOX_BYTES : AT_OTHERS + other_of(x) * BOX_BYTES;
    const u32 fenced = COPIED ? 3u : 1u, until = x + fenced < BOXES ? x + fenced : BOXES;
#pragma unroll
    for (u32 y = x; x % fenced == 0 && y < until; y++) wait_box(p, y, k);
    if (COPIED ? x % fenced == 0 : ROPE_COPIED && x + 1u == BOXES) ptx_fence_async();
    const u64 q = ptx_operand(PTX_SWIZZLED, BASE + AT_Q + x * BOX_BYTES), key = ptx_operand(PTX_SWIZZLED, BASE + at);
    ptx_multiply_fence();
#pragma unroll
    for (u32 i = 0; i < 4; i++)
      if (x * 64u + i * 16u < COLUMNS) ptx_multiply(s, q + i * 2u, key + i * 2u);
    ptx_multiply_commit();
  }
  PTX_MULTIPLY_WAIT(BOXES - BOXES_EARLY);
  free_boxes(p, 0, BOXES_EARLY);
  PTX_MULTIPLY_WAIT(BOXES - BOXES_LATE);
  free_boxes(p, BOXES_EARLY, BOXES_LATE);
  PTX_MULTIPLY_WAIT(0);
  free_boxes(p, BOXES_LATE, BOXES);
}

/* Scales the scores in place, masks them if some row ends inside the block, and gives the rows' maxima. k: as in make_scores. */
NUM void scale_scores(const mla_attn_args &a, const place &p, f32 (&s)[32], const rows &r, u32 block, bool masked, u32 k, f32 (&top)[2]) {
  const i32 token = (i32)(block * PAGE_TOKENS + threadIdx.x % 4u * 2u);
#pragma unroll
  for (u32 i = 0; i < 32; i++) s[i] = num_mul(s[i], a.scale_log2);
  if (SPEC_LISTS) {
    mask_void(s, *(const uint2 *)(p.shared + AT_LIVE + k % 2u * 8u));
  } else if (masked) {
#pragma unroll
    for (u32 i = 0; i < 32; i++)
      if (token + (i32)(i / 4u * 8u + i % 2u) > r.position[i / 2u % 2u]) s[i] = -INFINITE;
  }
  find_tops(s, top);
}

/* Weights of the thread's scores, two tokens in a word: word i is row i % 2, tokens 8 * (i / 2) + 2 * (lane % 4) and the next. */
NUM void make_weights(const f32 (&s)[32], const f32 (&m)[2], u32 (&w)[16]) {
#pragma unroll
  for (u32 i = 0; i < 16; i++) {
    const u32 e = i / 2u * 4u + i % 2u * 2u;
    w[i] = ptx_pack_bf16(num_exp2_bf16(num_sub(s[e], m[i % 2u])), num_exp2_bf16(num_sub(s[e + 1u], m[i % 2u])));
  }
}

/* P and m of a block into shared memory, here and in the other block, each warp its 16 rows. */
NUM void give_weights(const place &p, const u32 (&w)[16], const f32 (&m)[2]) {
  const u32 lane = threadIdx.x % 32u, first = threadIdx.x % 128u / 32u * 16u, pair = lane % 4u;
#pragma unroll
  for (u32 i = 0; i < 16; i += 4u) *(uint4 *)(p.shared + AT_P + piece_of(i / 4u)) = make_uint4(w[i], w[i + 1u], w[i + 2u], w[i + 3u]);
  if (pair == 0) *(float2 *)(p.shared + AT_MAX + first * 4u + lane / 4u * 8u) = make_float2(m[0], m[1]);
  const u32 there = ptx_peer(p.base + AT_P + BOX_BYTES, p.rank ^ 1u), come = ptx_peer(barrier_at(p, P_COME + 1u), p.rank ^ 1u);
#pragma unroll
  for (u32 i = 0; i < 16; i += 4u) ptx_store_peer(there + piece_of(i / 4u), w[i], w[i + 1u], w[i + 2u], w[i + 3u], come);
  if (pair == 0) ptx_store_peer(ptx_peer(p.base + AT_MAX + 256u, p.rank ^ 1u) + first * 4u + lane / 4u * 8u, m[0], m[1], come);
  __syncwarp(); /* the warp's rows are whole */
  if (lane == 0) ptx_barrier_arrive(barrier_at(p, P_COME));
}

/* m of the block before, from the other block of the pair; taken: how many came before. */
NUM void take_maxima(const place &p, f32 (&m)[2], u32 at, u32 taken, bool wanted) {
  const u32 slot = taken % 3u;
  if (threadIdx.x % 128u == 0) ptx_barrier_expect(barrier_at(p, M_COME + slot), 256u);
  wait_for(p, M_COME + slot, taken / 3u);
  const float2 before = *(const float2 *)(p.shared + AT_PASSED + slot * 256u + at);
  if (wanted) {
    m[0] = before.x;
    m[1] = before.y;
  }
}

/* m to the other block. Of three slots, the one that this overwrites has been read: P of the item behind it has been used there. */
NUM void give_maxima(const place &p, const f32 (&m)[2], u32 at, u32 given) {
  const u32 slot = given % 3u;
  if (threadIdx.x % 4u == 0)
    ptx_store_peer(ptx_peer(p.base + AT_PASSED + slot * 256u + at, p.rank ^ 1u), m[0], m[1],
                   ptx_peer(barrier_at(p, M_COME + slot), p.rank ^ 1u));
}

/* What the warpgroup that weighs counts: blocks, m taken and given, and blocks of the chunk behind the one at hand. */
typedef struct count {
  u32 k, taken, given, in_chunk;
} count;

/* m of the block: the maximum of its scores, which are scaled, and of the block before. */
NUM void make_maxima(const mla_attn_args &a, const place &p, f32 (&s)[32], f32 (&m)[2], const item &it, const rows &r, u32 block,
                     count &c) {
  const u32 at = (threadIdx.x % 128u / 32u * 8u + threadIdx.x % 32u / 4u) * 8u;
  f32 top[2];
  scale_scores(a, p, s, r, block, block * PAGE_TOKENS + PAGE_TOKENS - 1u > it.tile.position, c.k, top);
  m[0] = m[1] = NO_MAX;
  if (block > it.first) take_maxima(p, m, at, c.taken++, c.in_chunk != 0);
#pragma unroll
  for (u32 h = 0; h < 2; h++) m[h] = num_raise(m[h], top[h]);
  __syncwarp(); /* all lanes have read the maxima that came */
  if (block < it.last) give_maxima(p, m, at, c.given++);
}

NUM void next_block(const mla_attn_args &a, count &c) {
  const u32 blocks = a.chunk_tokens / PAGE_TOKENS;
  c.k++;
  c.in_chunk += 2u;
  if (c.in_chunk >= blocks) c.in_chunk -= blocks;
  if (c.in_chunk >= blocks) c.in_chunk -= blocks; /* chunks of one block */
}

/* One warpgroup: S and P of the blocks that are weighed here. m comes from the block before, and goes to the one behind. */
NUM void weigh(const mla_attn_args &a, const place &p) {
  item it;
  count c = {0, 0, 0, 0};
  for (u32 n = 0, queries = 0; take_item(p, n, it, false); n++) {
    const rows r = rows_of(it);
    const u32 first = first_of(it, p, 0);
    if (GATHERED && first <= it.last) wait_for(p, Q_COME, queries++);
    c.in_chunk = (first - it.first) % (a.chunk_tokens / PAGE_TOKENS);
    for (u32 block = first; block <= it.last; block += 2u) {
      f32 s[32], m[2];
      u32 w[16];
      make_scores(p, s, c.k);
      if (block + 2u > it.last && threadIdx.x % 32u == 0) ptx_barrier_arrive(barrier_at(p, Q_FREE));
      make_maxima(a, p, s, m, it, r, block, c);
      make_weights(s, m, w);
      wait_free(p, P_FREE, c.k);
      give_weights(p, w, m);
      next_block(a, c);
    }
  }
}

#endif

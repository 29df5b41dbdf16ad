/* attn/cluster/scores.cuh - the score warpgroup of the cluster form: S and P of every other KV block; m goes from block to block. Read
 * next: attn/cluster/values.cuh. */
#ifndef VERBATIM_ATTN_CLUSTER_SCORES_CUH
#define VERBATIM_ATTN_CLUSTER_SCORES_CUH
#include "attn/cluster/layout.cuh"

/* Releases the boxes from .. to - 1 that only S reads. */
NUM void release_keys(const cta &b, u32 from, u32 to) {
#pragma unroll
  for (u32 x = from; x < to; x++)
    if (!is_both(b, x) && threadIdx.x % 32u == 0) ptx_barrier_arrive(barrier_at(b, KEYS_EMPTY + key_box(x)));
}

NUM void wait_key_box(const cta &b, u32 x, u32 k) {
  if (is_both(b, x)) wait_full(b, BOTH_FULL + k % 2u * HALF + x % HALF, k / 2u);
  else wait_full(b, KEYS_FULL + key_box(x), k);
}

/* s = Q KV^T, box by box as they arrive. k: number of the block among those scored here. Boxes copied by threads are fenced three at a
 * time. */
NUM void compute_scores(const cta &b, f32 (&s)[32], u32 k) {
  clear_scores(s);
#pragma unroll
  for (u32 x = 0; x < BOXES; x++) {
    const u32 at = is_both(b, x) ? AT_BOTH + (k % 2u * HALF + x % HALF) * BOX_BYTES : AT_KEYS + key_box(x) * BOX_BYTES;
    const u32 fenced = COPIED ? 3u : 1u, until = x + fenced < BOXES ? x + fenced : BOXES;
#pragma unroll
    for (u32 y = x; x % fenced == 0 && y < until; y++) wait_key_box(b, y, k);
    if (COPIED ? x % fenced == 0 : ROPE_COPIED && x + 1u == BOXES) ptx_fence_async();
    const u64 q = ptx_operand(PTX_SWIZZLED, BASE + AT_Q + x * BOX_BYTES), key = ptx_operand(PTX_SWIZZLED, BASE + at);
    ptx_multiply_fence();
#pragma unroll
    for (u32 i = 0; i < 4; i++)
      if (x * 64u + i * 16u < COLUMNS) ptx_multiply(s, q + i * 2u, key + i * 2u);
    ptx_multiply_commit();
  }
  PTX_MULTIPLY_WAIT(BOXES - BOXES_EARLY);
  release_keys(b, 0, BOXES_EARLY);
  PTX_MULTIPLY_WAIT(BOXES - BOXES_LATE);
  release_keys(b, BOXES_EARLY, BOXES_LATE);
  PTX_MULTIPLY_WAIT(0);
  release_keys(b, BOXES_LATE, BOXES);
}

/* Scales the scores in place, masks them if some row ends inside the block, and gives the rows' maxima. k: as in compute_scores. */
NUM void scale_scores(const mla_attn_args &a, const cta &b, f32 (&s)[32], const query_rows &r, u32 block, bool masked, u32 k,
                      f32 (&top)[2]) {
  const i32 token = (i32)(block * PAGE_TOKENS + threadIdx.x % 4u * 2u);
#pragma unroll
  for (u32 i = 0; i < 32; i++) s[i] = num_mul(s[i], a.scale_log2);
  if (SPEC_LISTS) {
    mask_invalid(s, *(const uint2 *)(b.shared + AT_VALID + k % 2u * 8u));
  } else if (masked) {
#pragma unroll
    for (u32 i = 0; i < 32; i++)
      if (token + (i32)(i / 4u * 8u + i % 2u) > r.position[i / 2u % 2u]) s[i] = -INFINITE;
  }
  row_max(s, top);
}

/* Probabilities, two tokens in a word: word i is row i % 2, tokens 8 * (i / 2) + 2 * (lane % 4) and the next. */
NUM void make_probs(const f32 (&s)[32], const f32 (&m)[2], u32 (&w)[16]) {
#pragma unroll
  for (u32 i = 0; i < 16; i++) {
    const u32 e = i / 2u * 4u + i % 2u * 2u;
    w[i] = ptx_pack_bf16(num_exp2_bf16(num_sub(s[e], m[i % 2u])), num_exp2_bf16(num_sub(s[e + 1u], m[i % 2u])));
  }
}

/* Stores P and m of a block to shared memory, here and in the other CTA, each warp its 16 rows. */
NUM void publish_probs(const cta &b, const u32 (&w)[16], const f32 (&m)[2]) {
  const u32 lane = threadIdx.x % 32u, first = threadIdx.x % 128u / 32u * 16u, pair = lane % 4u;
#pragma unroll
  for (u32 i = 0; i < 16; i += 4u) *(uint4 *)(b.shared + AT_P + piece_of(i / 4u)) = make_uint4(w[i], w[i + 1u], w[i + 2u], w[i + 3u]);
  if (pair == 0) *(float2 *)(b.shared + AT_MAX + first * 4u + lane / 4u * 8u) = make_float2(m[0], m[1]);
  const u32 peer = ptx_peer(b.base + AT_P + BOX_BYTES, b.rank ^ 1u), full = ptx_peer(barrier_at(b, P_FULL + 1u), b.rank ^ 1u);
#pragma unroll
  for (u32 i = 0; i < 16; i += 4u) ptx_store_peer(peer + piece_of(i / 4u), w[i], w[i + 1u], w[i + 2u], w[i + 3u], full);
  if (pair == 0) ptx_store_peer(ptx_peer(b.base + AT_MAX + 256u, b.rank ^ 1u) + first * 4u + lane / 4u * 8u, m[0], m[1], full);
  __syncwarp(); /* the warp's rows are complete */
  if (lane == 0) ptx_barrier_arrive(barrier_at(b, P_FULL));
}

/* m of the previous block, from the other CTA. taken: how many came before. */
NUM void receive_max(const cta &b, f32 (&m)[2], u32 at, u32 taken, bool wanted) {
  const u32 slot = taken % 3u;
  if (threadIdx.x % 128u == 0) ptx_barrier_expect(barrier_at(b, M_FULL + slot), 256u);
  wait_full(b, M_FULL + slot, taken / 3u);
  const float2 before = *(const float2 *)(b.shared + AT_MAX_RECEIVED + slot * 256u + at);
  if (wanted) {
    m[0] = before.x;
    m[1] = before.y;
  }
}

/* Sends m to the other CTA. The one that this overwrites, three before, has been read: P made from it has been used there. */
NUM void send_max(const cta &b, const f32 (&m)[2], u32 at, u32 given) {
  const u32 slot = given % 3u;
  if (threadIdx.x % 4u == 0)
    ptx_store_peer(ptx_peer(b.base + AT_MAX_RECEIVED + slot * 256u + at, b.rank ^ 1u), m[0], m[1],
                   ptx_peer(barrier_at(b, M_FULL + slot), b.rank ^ 1u));
}

/* Counters of the score warpgroup: blocks, m received and sent, and blocks of the chunk before this one. */
typedef struct counters {
  u32 k, taken, given, in_chunk;
} counters;

/* m of the block, from its scaled scores and m of the previous block. */
NUM void update_max(const mla_attn_args &a, const cta &b, f32 (&s)[32], f32 (&m)[2], const item &it, const query_rows &r, u32 block,
                     counters &c) {
  const u32 at = (threadIdx.x % 128u / 32u * 8u + threadIdx.x % 32u / 4u) * 8u;
  f32 top[2];
  scale_scores(a, b, s, r, block, block * PAGE_TOKENS + PAGE_TOKENS - 1u > it.tile.position, c.k, top);
  m[0] = m[1] = NO_MAX;
  if (block > it.first) receive_max(b, m, at, c.taken++, c.in_chunk != 0);
#pragma unroll
  for (u32 h = 0; h < 2; h++) m[h] = num_raise(m[h], top[h]);
  __syncwarp(); /* all lanes have read the m that came */
  if (block < it.last) send_max(b, m, at, c.given++);
}

NUM void next_block(const mla_attn_args &a, counters &c) {
  const u32 blocks = a.chunk_tokens / PAGE_TOKENS;
  c.k++;
  c.in_chunk += 2u;
  if (c.in_chunk >= blocks) c.in_chunk -= blocks;
  if (c.in_chunk >= blocks) c.in_chunk -= blocks; /* chunks of one block */
}

/* One warpgroup: S and P of the blocks scored here. m comes from the previous block, and goes to the next. */
NUM void run_scores(const mla_attn_args &a, const cta &b) {
  item it;
  counters c = {0, 0, 0, 0};
  for (u32 n = 0, queries = 0; read_item(b, n, it, false); n++) {
    const query_rows r = query_rows_of(it);
    const u32 first = first_of(it, b, 0);
    if (GATHERED && first <= it.last) wait_full(b, Q_FULL, queries++);
    c.in_chunk = (first - it.first) % (a.chunk_tokens / PAGE_TOKENS);
    for (u32 block = first; block <= it.last; block += 2u) {
      f32 s[32], m[2];
      u32 w[16];
      compute_scores(b, s, c.k);
      if (block + 2u > it.last && threadIdx.x % 32u == 0) ptx_barrier_arrive(barrier_at(b, Q_EMPTY));
      update_max(a, b, s, m, it, r, block, c);
      make_probs(s, m, w);
      wait_empty(b, P_EMPTY, c.k);
      publish_probs(b, w, m);
      next_block(a, c);
    }
  }
}

#endif

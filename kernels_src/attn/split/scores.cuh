/* attn/split/scores.cuh - the first half of the split form: S = Q KV^T of this CTA's entries, by two warpgroups for 64 heads each or, of
 * up to 64 heads, for every other block each, and their P, which goes to memory for all CTAs of the token.
 *
 * m follows the blocks in the order of the list, so that P waits for the maxima of all earlier blocks; S stays in registers meanwhile.
 * Read next: attn/split/values.cuh. */
#ifndef VERBATIM_ATTN_SPLIT_SCORES_CUH
#define VERBATIM_ATTN_SPLIT_SCORES_CUH
#include "attn/split/layout.cuh"

/* slot: the block's place; k counts its uses. Boxes are released as their products are done. */
NUM void compute_scores(const cta &b, f32 (&s)[32], u32 group, u32 slot, u32 k) {
  ptx_forget(group); /* else the operands of all blocks would be computed first and kept */
  clear_scores(s);
#pragma unroll
  for (u32 x = 0; x < BOXES; x++) {
    if (x % 2u == 0) {
      wait_full(b, K_FULL + slot * BOX_GROUPS + x / 2u, k);
      ptx_fence_async();
      ptx_multiply_fence();
    }
    const u64 key = ptx_operand(PTX_SWIZZLED, BASE + AT_K + x * BOX_BYTES) + (u64)(slot * BOXES * BOX_BYTES >> 4);
    const u64 q = ptx_operand(PTX_SWIZZLED, BASE + AT_Q + x * BOX_BYTES) + (u64)(heads_of(group) * BOXES * BOX_BYTES >> 4);
#pragma unroll
    for (u32 i = 0; i < 4; i++) ptx_multiply(s, q + i * 2u, key + i * 2u);
    if (x % 2u || x + 1u == BOXES) ptx_multiply_commit();
    if (x % 2u && x > 1u) {
      PTX_MULTIPLY_WAIT(1);
      arrive_lane(b, K_EMPTY + slot * BOX_GROUPS + x / 2u - 1u);
    }
  }
  PTX_MULTIPLY_WAIT(1);
  arrive_lane(b, K_EMPTY + slot * BOX_GROUPS + 3u);
  PTX_MULTIPLY_WAIT(0);
  arrive_lane(b, K_EMPTY + slot * BOX_GROUPS + 4u);
}

/* Scales the scores in place; stores their maxima to memory, if the list has the block. */
NUM void store_row_max(const mla_attn_args &a, const cta &b, const token &t, f32 (&s)[32], u32 block, u32 heads) {
  f32 top[2];
#pragma unroll
  for (u32 i = 0; i < 32; i++) s[i] = num_mul(s[i], a.scale_log2);
  mask_invalid(s, *(const uint2 *)(b.shared + AT_VALID + block * 8u));
  row_max(s, top);
  if (threadIdx.x % 4u == 0 && block < t.blocks) *(float2 *)((u8 *)maxima_of(a) + maxima_at(block, heads)) = make_float2(top[0], top[1]);
}

/* Loads the maxima of all blocks, to where KV rows were. */
NUM void load_row_max(const mla_attn_args &a, u32 blocks) {
  for (u32 i = threadIdx.x; i < blocks * (MAXIMA_BYTES / 16u); i += 256u)
    ptx_copy16(BASE + AT_MAXIMA + i * 16u, maxima_of(a) + i * 4u, 16u);
  ptx_copy_commit();
  PTX_COPY_WAIT(0);
  ptx_warps_sync(1, 256);
}

/* m of a block from that of the block before. */
NUM void raise_max(const cta &b, f32 (&m)[2], u32 block, u32 heads) {
  const float2 top = *(const float2 *)(b.shared + AT_MAXIMA + maxima_at(block, heads));
  m[0] = num_raise(m[0], top.x);
  m[1] = num_raise(m[1], top.y);
}

NUM void store_probs(const mla_attn_args &a, const f32 (&s)[32], const f32 (&m)[2], u32 block, u32 heads) {
  u8 *to = probs_of(a, block) + heads * P_BYTES + probs_at();
#pragma unroll
  for (u32 j = 0; j < 4; j++) {
    u32 w[4];
    probs_of_step(s, m, w, j);
    *(uint4 *)(to + j * 512u) = make_uint4(w[0], w[1], w[2], w[3]);
  }
}

/* The next block's scores replace the first one's, so that P is computed in a loop: unrolled, its instructions would be fetched from
 * memory for longer than they run. */
NUM void shift_scores(f32 (&s)[HELD][32]) {
#pragma unroll
  for (u32 i = 0; i + 1u < HELD; i++)
#pragma unroll
    for (u32 j = 0; j < 32; j++) s[i][j] = s[i + 1u][j];
}

/* Scores of token number n. k: as in block_count. */
NUM void run_scores(const mla_attn_args &a, const cta &b, const token &t, u32 n, u32 group, u32 &k) {
  const u32 heads = heads_of(group), turn = SHARERS > 1u ? group : 0u, first = b.rank * OWN + turn; /* block */
  const bool takes_any = OWN >= SHARERS || turn == 0;
  f32 s[HELD][32], m[2] = {NO_MAX, NO_MAX};
  wait_full(b, Q_FULL, n);
  if (has_scores(b, t) && takes_any) {
#pragma unroll
    for (u32 i = 0; i < HELD; i++) {
      compute_scores(b, s[i], group, turn, block_count(n, k, i * SHARERS) / KEYS);
      if (i + 1u == HELD) arrive_lane(b, S_DONE);
      store_row_max(a, b, t, s[i], first + i * SHARERS, heads);
    }
    k += OWN;
  } else {
    arrive_lane(b, S_DONE);
  }
  sync_token(a, 0);
  load_row_max(a, t.blocks);
#pragma unroll 4
  for (u32 block = 0; block < first && block < t.blocks; block++) raise_max(b, m, block, heads);
#pragma unroll 1
  for (u32 i = 0; takes_any && i < HELD && first + i * SHARERS < t.blocks; i++) {
    const u32 block = first + i * SHARERS;
    raise_max(b, m, block, heads);
    store_probs(a, s[0], m, block, heads);
    shift_scores(s);
    if (SHARERS > 1u && block + 1u < t.blocks) raise_max(b, m, block + 1u, heads);
  }
  ptx_fence_copies();
  sync_token(a, 1u);
  if (threadIdx.x == 0) {
    ptx_fence_copies();
    ptx_barrier_arrive(barrier_at(b, P_FULL));
  }
  __syncwarp();
}

#endif

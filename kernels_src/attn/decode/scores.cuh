/* attn/decode/scores.cuh - the score warpgroups of the decode form: S^T = K Q^T of a KV block, the running maximum, P.
 *
 * Two warpgroups take alternate blocks; the running maximum goes from one to the other. Read next: attn/decode/values.cuh. */
#ifndef VERBATIM_ATTN_DECODE_SCORES_CUH
#define VERBATIM_ATTN_DECODE_SCORES_CUH
#include "attn/decode/load.cuh"

/* s = K Q^T of the block whose boxes start at `at`. */
NUM void multiply_scores(f32 (&s)[ROWS / 2u], const cta &b, ring_slot at) {
#pragma unroll
  for (u32 i = 0; i < ROWS / 2u; i++) {
    s[i] = 0.0f;
    ptx_hold(s[i]);
  }
#pragma unroll
  for (u32 k = 0; k < BOXES; k++) {
    const ring_slot box = slot_of_box(at, k);
    ptx_barrier_wait(b.base + FULL(box.stage), box.phase);
    if (GATHERED && !CODES) ptx_fence_async(); /* after copies by other threads */
    ptx_multiply_fence();
    const u64 kv = ptx_operand(PTX_SWIZZLED, b.base + box.stage * BOX_BYTES);
    const u64 q = ptx_operand(PTX_SWIZZLED, b.base + AT_Q + k * Q_BOX_BYTES);
#pragma unroll
    for (u32 i = 0; i < 4u; i++)
      if (k * 64u + i * 16u < COLUMNS) ptx_multiply(s, kv + i * 2u, q + i * 2u);
  }
  ptx_multiply_commit();
  PTX_MULTIPLY_WAIT(0);
#pragma unroll
  for (u32 i = 0; i < ROWS / 2u; i++) ptx_hold(s[i]);
}

/* Scores of entries without a token become -Inf. */
NUM void mask_invalid(f32 (&s)[ROWS / 2u], const u8 *valid) {
  const u32 bits = *(const u16 *)(valid + threadIdx.x % 128u / 32u * 2u) >> (threadIdx.x % 32u / 4u);
#pragma unroll
  for (u32 e = 0; e < ROWS / 2u; e++)
    if ((bits >> (e / 2u % 2u * 8u) & 1u) == 0) s[e] = -INFINITE;
}

/* Scales the scores; tokens after a row's position become -Inf. valid: with lists, the block's valid entries. */
NUM void scale_and_mask(f32 (&s)[ROWS / 2u], const mla_attn_args &a, const attn_piece &p, const pass &w, u32 block, const u8 *valid) {
  const u32 lane = threadIdx.x % 32u, token = block * PAGE_TOKENS + threadIdx.x % 128u / 32u * 16u + lane / 4u;
#pragma unroll
  for (u32 i = 0; i < ROWS / 2u; i++) s[i] = num_mul(s[i], a.scale_log2);
  if (SPEC_LISTS) {
    mask_invalid(s, valid);
    return;
  }
  if (block * PAGE_TOKENS + PAGE_TOKENS - 1u <= p.tile.position + w.token) return;
#pragma unroll
  for (u32 i = 0; i < OWN; i++) {
    const u32 nth = (i / 2u * 8u + lane % 4u * 2u + i % 2u) / a.heads;
    const u32 position = p.tile.position + w.token + (nth < w.tokens ? nth : w.tokens - 1u);
#pragma unroll
    for (u32 h = 0; h < 2u; h++) {
      const u32 e = i / 2u * 4u + h * 2u + i % 2u;
      if (token + 8u * h > position) s[e] = -INFINITE;
    }
  }
}

/* m[i]: the block's largest score in row i of this thread, over the whole warpgroup. to: [ROWS][4 warps]. */
NUM void block_max(f32 (&m)[OWN], const f32 (&s)[ROWS / 2u], f32 *to, u32 group) {
  const u32 lane = threadIdx.x % 32u, warp = threadIdx.x % 128u / 32u;
  f32 x[OWN];
#pragma unroll
  for (u32 i = 0; i < OWN; i++) x[i] = fmaxf(s[i / 2u * 4u + i % 2u], s[i / 2u * 4u + 2u + i % 2u]);
  u32 index = 0;
#pragma unroll
  for (u32 d = 16, left = OWN; d >= 4u; d /= 2u) { /* eight lanes share a row: each keeps half of what is left, down to one */
    if (left > 1u) {
      left /= 2u;
      const bool upper = (lane & d) != 0;
      index += upper ? left : 0u;
#pragma unroll
      for (u32 i = 0; i < OWN / 2u; i++) {
        if (i >= left) continue;
        const f32 other = __shfl_xor_sync(WARP_ALL, upper ? x[i] : x[left + i], d);
        x[i] = fmaxf(upper ? x[left + i] : x[i], other);
      }
    } else {
      x[0] = fmaxf(x[0], __shfl_xor_sync(WARP_ALL, x[0], d));
    }
  }
  to[(index / 2u * 8u + lane % 4u * 2u + index % 2u) * 4u + warp] = x[0]; /* lanes with the same row write the same value */
  ptx_warps_sync(1u + group, 128u);
#pragma unroll
  for (u32 i = 0; i < OWN; i++) {
    const float4 v = *(const float4 *)(to + (i / 2u * 8u + lane % 4u * 2u + i % 2u) * 4u);
    m[i] = fmaxf(fmaxf(v.x, v.y), fmaxf(v.z, v.w));
  }
}

/* P as bf16 into [rows][64 tokens], swizzled. */
NUM void store_p(const f32 (&s)[ROWS / 2u], const f32 (&m)[OWN], u32 to) {
  const u32 lane = threadIdx.x % 32u, warp = threadIdx.x % 128u / 32u;
  u32 pair[ROWS / 4u < 4u ? 4u : ROWS / 4u];
#pragma unroll
  for (u32 i = 0; i < ROWS / 4u; i++)
    pair[i] = ptx_pack_bf16(num_exp2_bf16(num_sub(s[2u * i], m[i / 2u * 2u])), num_exp2_bf16(num_sub(s[2u * i + 1u], m[i / 2u * 2u + 1u])));
#pragma unroll
  for (u32 i = ROWS / 4u; i < 4u; i++) pair[i] = 0u;
  const u32 row = lane / 16u * 8u + lane % 8u, piece = warp * 2u + lane / 8u % 2u;
#pragma unroll
  for (u32 i = 0; i < ROWS / 4u; i += 4u)
    ptx_store_transposed(to + (row + i * 4u) * 128u + ((piece ^ (row % 8u)) << 4), pair[i], pair[i + 1u], pair[i + 2u], pair[i + 3u]);
}

/* Releases the boxes whose output columns are another CTA's share. */
NUM void release_unshared(const cta &b, ring_slot at, u32 shares) {
  ptx_barrier_arrive(b.base + EMPTY(at.stage));
  for (u32 k = 0; k < V_BOXES && shares > 1u; k++)
    if (!is_shared(k, shares)) ptx_barrier_arrive(b.base + EMPTY(slot_of_box(at, k).stage));
}

/* KV rows after the tile's last position have probability 0, but may hold NaN: they are zeroed. */
NUM void clear_rows(const cta &b, ring_slot at, u32 shares, u32 first) {
  for (u32 k = 0; k < V_BOXES; k++) {
    if (!is_shared(k, shares)) continue;
    u8 *box = b.shared + slot_of_box(at, k).stage * BOX_BYTES;
    for (u32 i = first * 8u + threadIdx.x % 128u; i < 512u; i += 128u) *(uint4 *)(box + i * 16u) = {0, 0, 0, 0};
  }
}

NUM void run_scores(const mla_attn_args &a, const tensor_maps &maps, const cta &b) {
  const u32 group = ptx_uniform(threadIdx.x / 128u), lane = threadIdx.x % 32u;
  const u32 blocks = a.chunk_tokens / PAGE_TOKENS, shares = share_count(a);
  ring_slot at = slot_after({0, 0}, group * BOXES);
  u32 done = 0, q_phase = 0; /* blocks of both warpgroups before this pass */
  FOR_PIECES(p, a, shares) {
    FOR_PASSES(w, a, p) {
      const u32 count = p.end_block - p.first_block, last = p.tile.position + p.tile.count - 1u;
      u32 nth = done + (done % SCORE_GROUPS == group ? 0u : 1u);
      if (GATHERED) load_pass_queries(a, maps, b, p.tile.row + w.token, q_phase ^ 1u);
      ptx_barrier_wait(b.base + Q_FULL, q_phase);
      q_phase ^= 1u;
      if (nth >= done + count && lane == 0) ptx_barrier_arrive(b.base + Q_EMPTY);
      for (; nth < done + count; nth += SCORE_GROUPS) {
        const u32 block = p.first_block + nth - done, side = nth % 2u, phase = nth / 2u % 2u;
        f32 s[ROWS / 2u], m[OWN], before[OWN];
        multiply_scores(s, b, at);
        if (lane == 0) {
          release_unshared(b, at, shares);
          if (nth + SCORE_GROUPS >= done + count) ptx_barrier_arrive(b.base + Q_EMPTY);
        }
        scale_and_mask(s, a, p, w, block, b.shared + AT_VALID + nth % VALID_SLOTS * 8u);
        block_max(m, s, (f32 *)(b.shared + AT_WARP_MAX) + (group * 2u + nth / SCORE_GROUPS % 2u) * ROWS * 4u, group);
        if (nth > 0) ptx_barrier_wait(b.base + MAX_READY(side ^ 1u), (nth - 1u) / 2u % 2u);
        load_max(before, (const f32 *)(b.shared + AT_MAX) + (side ^ 1u) * ROWS);
#pragma unroll
        for (u32 i = 0; i < OWN; i++) m[i] = num_raise(block % blocks == 0 ? NO_MAX : before[i], m[i]);
        store_max((f32 *)(b.shared + AT_MAX) + side * ROWS, m);
        __syncwarp();
        if (lane == 0) ptx_barrier_arrive(b.base + MAX_READY(side));
        if (nth > 1u) ptx_barrier_wait(b.base + P_EMPTY(side), phase ^ 1u);
        store_p(s, m, b.base + AT_P + side * P_BYTES);
        store_max((f32 *)(b.shared + AT_P_MAX) + side * ROWS, m);
        if (!GATHERED && block * PAGE_TOKENS + PAGE_TOKENS > last + 1u) clear_rows(b, at, shares, last + 1u - block * PAGE_TOKENS);
        ptx_fence_async();
        __syncwarp();
        if (lane == 0) ptx_barrier_arrive(b.base + P_FULL(side));
        at = slot_after(at, SCORE_GROUPS * BOXES);
      }
      done += count;
    }
  }
}

#endif

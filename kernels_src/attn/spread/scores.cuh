/* attn/spread/scores.cuh - the first half of attn/spread/form.cuh: S = Q KV^T of this block's places for 128 heads, 64 of them by each of
 * two warpgroups, and P of them, which goes to memory for all blocks of the token.
 *
 * m follows the blocks of places in the order of the list, so P waits for the tops of all that come before; S stays in registers
 * meanwhile. Read next: attn/spread/outputs.cuh. */
#ifndef VERBATIM_SPREAD_SCORES_CUH
#define VERBATIM_SPREAD_SCORES_CUH
#include "attn/spread/layout.cuh"

/* k: number of the block of places among those weighed here, of all tokens. Boxes are given back as their products are done. */
NUM void make_scores(f32 (&s)[32], u32 group, u32 k) {
  ptx_forget(group); /* else operands of all blocks would be made before the first one, and kept */
  clear_scores(s);
#pragma unroll
  for (u32 x = 0; x < BOXES; x++) {
    if (x % 2u == 0) {
      wait_for(K_COME + x / 2u, k);
      ptx_fence_async();
      ptx_multiply_fence();
    }
    const u64 key = ptx_operand(PTX_SWIZZLED, BASE + AT_K + x * BOX_BYTES);
    const u64 q = ptx_operand(PTX_SWIZZLED, BASE + AT_Q + x * BOX_BYTES) + (u64)(group * BOXES * BOX_BYTES >> 4);
#pragma unroll
    for (u32 i = 0; i < 4; i++) ptx_multiply(s, q + i * 2u, key + i * 2u);
    if (x % 2u || x + 1u == BOXES) ptx_multiply_commit();
    if (x % 2u && x > 1u) {
      PTX_MULTIPLY_WAIT(1);
      give(K_FREE + x / 2u - 1u);
    }
  }
  PTX_MULTIPLY_WAIT(1);
  give(K_FREE + 3u);
  PTX_MULTIPLY_WAIT(0);
  give(K_FREE + 4u);
}

/* Scales the scores in place; their tops to memory, if the list reaches so far. */
NUM void give_tops(const mla_attn_args &a, const place &p, const token &t, f32 (&s)[32], u32 block, u32 group) {
  f32 top[2];
#pragma unroll
  for (u32 i = 0; i < 32; i++) s[i] = num_mul(s[i], a.scale_log2);
  mask_void(s, *(const uint2 *)(p.shared + AT_LIVE + block * 8u));
  find_tops(s, top);
  if (threadIdx.x % 4u == 0 && block < t.blocks) *(float2 *)((u8 *)tops_of(a) + tops_at(block, group)) = make_float2(top[0], top[1]);
}

/* The tops of all blocks of places, where KV rows were. */
NUM void take_tops(const mla_attn_args &a, u32 blocks) {
  for (u32 i = threadIdx.x; i < blocks * (TOPS_BYTES / 16u); i += 256u) ptx_copy16(BASE + AT_TOPS + i * 16u, tops_of(a) + i * 4u, 16u);
  ptx_copy_commit();
  PTX_COPY_WAIT(0);
  ptx_warps_sync(1, 256);
}

/* m of a block of places from that of the one before. */
NUM void raise_maxima(const place &p, f32 (&m)[2], u32 block, u32 group) {
  const float2 top = *(const float2 *)(p.shared + AT_TOPS + tops_at(block, group));
  m[0] = num_raise(m[0], top.x);
  m[1] = num_raise(m[1], top.y);
}

NUM void give_weights(const mla_attn_args &a, const f32 (&s)[32], const f32 (&m)[2], u32 block, u32 group) {
  u8 *to = weights_of(a, block) + group * P_BYTES + weights_at();
#pragma unroll
  for (u32 j = 0; j < 4; j++) {
    u32 w[4];
    make_four(s, m, w, j);
    *(uint4 *)(to + j * 512u) = make_uint4(w[0], w[1], w[2], w[3]);
  }
}

/* The next block's scores take the place of the first one's. So weights are made in a loop: text for each block would have to come from
 * memory, which takes longer than what it does. */
NUM void move_up(f32 (&s)[OWN][32]) {
#pragma unroll
  for (u32 i = 0; i + 1u < OWN; i++)
#pragma unroll
    for (u32 j = 0; j < 32; j++) s[i][j] = s[i + 1u][j];
}

/* Token number n; k: as in own_nth. */
NUM void weigh(const mla_attn_args &a, const place &p, const token &t, u32 n, u32 group, u32 &k) {
  const u32 first = p.rank * OWN;
  f32 s[OWN][32], m[2] = {NO_MAX, NO_MAX};
  wait_for(Q_COME, n);
  if (weighs(p, t)) {
#pragma unroll
    for (u32 i = 0; i < OWN; i++) {
      make_scores(s[i], group, own_nth(n, k, i));
      if (i + 1u == OWN) give(S_DONE);
      give_tops(a, p, t, s[i], first + i, group);
    }
    k += OWN;
  } else {
    give(S_DONE);
  }
  meet(a, 0);
  take_tops(a, t.blocks);
#pragma unroll 4
  for (u32 block = 0; block < first && block < t.blocks; block++) raise_maxima(p, m, block, group);
#pragma unroll 1
  for (u32 i = 0; i < OWN && first + i < t.blocks; i++) {
    raise_maxima(p, m, first + i, group);
    give_weights(a, s[0], m, first + i, group);
    move_up(s);
  }
  ptx_fence_copies();
  meet(a, 1u);
  if (threadIdx.x == 0) {
    ptx_fence_copies();
    ptx_barrier_arrive(barrier_at(P_COME));
  }
  __syncwarp();
}

#endif

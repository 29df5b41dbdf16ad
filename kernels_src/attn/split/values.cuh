/* attn/split/values.cuh - the second half of the split form: O += P V of this CTA's columns and l += P 1, block by block in the order of
 * the list, by the warpgroups that computed scores before. Read next: attn/split/epilogue.cuh. */
#ifndef VERBATIM_ATTN_SPLIT_VALUES_CUH
#define VERBATIM_ATTN_SPLIT_VALUES_CUH
#include "attn/split/scores.cuh"

/* Element 4 * j + 2 * h + e of O: head h of the thread's two, column 8 * j + e; l as the column after the last. */
typedef struct output {
  f32 m[2], o[OUTPUTS];
} output;

/* P of block x of the stage in `slot`, as probs_of_step makes it. */
typedef struct probs {
  u32 w[4][4];
} probs;

NUM void load_probs(const cta &b, probs &w, u32 slot, u32 x, u32 group) {
  const u32 at = AT_STAGES + slot * STAGE_BYTES + 2u * BOX_BYTES + x * STAGE_P + (HEADS_APART ? 0u : group * P_BYTES) + probs_at();
#pragma unroll
  for (u32 i = 0; i < 4; i++) {
    const uint4 some = *(const uint4 *)(b.shared + at + i * 512u);
    w.w[i][0] = some.x;
    w.w[i][1] = some.y;
    w.w[i][2] = some.z;
    w.w[i][3] = some.w;
  }
}

/* Bit b: block b may raise m of a head of this warpgroup, which rescales its sums. No other block does: m never falls below `first`,
 * that of the first block, before which the sums are 0. */
NUM u32 find_rises(const cta &b, const token &t, const f32 (&first)[2], u32 group, u32 heads) {
  u32 *const words = (u32 *)(b.shared + AT_RISES) + group * 4u, rises = 0;
  const f32 most[2] = {num_add(first[0], NUM_RAISE_ABOVE), num_add(first[1], NUM_RAISE_ABOVE)};
#pragma unroll 4
  for (u32 block = 1; block < t.blocks; block++) {
    const float2 top = *(const float2 *)(b.shared + AT_MAXIMA + maxima_at(block, heads));
    rises |= (u32)(top.x > most[0] || top.y > most[1]) << block;
  }
#pragma unroll
  for (u32 by = 16; by > 0; by /= 2u) rises |= __shfl_xor_sync(WARP_ALL, rises, (int)by);
  if (threadIdx.x % 32u == 0) words[threadIdx.x % 128u / 32u] = rises;
  ptx_warps_sync(3u + group, 128);
  return ptx_uniform(words[0] | words[1] | words[2] | words[3]);
}

/* Rescales the sums to m of a block. */
NUM void rescale(const cta &b, output &out, u32 block, u32 heads) {
  f32 m[2] = {out.m[0], out.m[1]};
  raise_max(b, m, block, heads);
  const f32 factor[2] = {num_exp2_int(num_sub(out.m[0], m[0])), num_exp2_int(num_sub(out.m[1], m[1]))}; /* 1 if m is unchanged */
#pragma unroll
  for (u32 i = 0; i < OUTPUTS; i++) out.o[i] = num_mul(out.o[i], factor[i / 2u % 2u]);
  out.m[0] = m[0];
  out.m[1] = m[1];
}

/* Around the products of a group, which are waited for at its end. */
NUM void begin_products(output &out) {
#pragma unroll
  for (u32 i = 0; i < OUTPUTS; i++) ptx_hold(out.o[i]);
  ptx_multiply_fence();
}
NUM void end_products() {
  ptx_multiply_commit();
  PTX_MULTIPLY_WAIT(0);
}

/* Adds 16 entries. A narrow slice has ones next to its columns; else l has a product of its own. */
NUM void add_16_rows(f32 (&o)[16 + 4], const u32 (&w)[4], u64 v) { ptx_multiply_across(o, w, v); }
NUM void add_16_rows(f32 (&o)[32 + 4], const u32 (&w)[4], u64 v) {
  ptx_multiply_across(*(f32(*)[32])o, w, v);
  ptx_multiply(*(f32(*)[4])(o + 32), w, ptx_operand(PTX_PLAIN, BASE + AT_ONES));
}

/* Adds block x of the stage in `slot`. */
NUM void add_block(output &out, const probs &w, u32 slot, u32 x) {
  const u64 v = ptx_operand(PTX_ACROSS(BOX_BYTES), BASE + AT_STAGES + x * BOX_BYTES) + (u64)(slot * STAGE_BYTES >> 4);
#pragma unroll
  for (u32 i = 0; i < 4; i++) add_16_rows(out.o, w.w[i], v + i * 128u);
}

/* Adds all blocks; use counts stages. The two of a stage are added at once if m is unchanged, which is usual. P is read after the products
 * of the stage before: to the compiler its registers are free once those have been issued, while the tensor cores still read them
 * (tools/wgmma_check.py), and there is no room for two stages of P. */
NUM void add_blocks(const cta &b, output &out, const token &t, u32 &use, u32 group, u32 heads) {
  raise_max(b, out.m, 0, heads);
  const u32 rises = find_rises(b, t, out.m, group, heads);
#pragma unroll 1
  for (u32 block = 0; block < t.blocks; block += 2u, use++) {
    const u32 slot = use % STAGES;
    const bool two = block + 1u < t.blocks;
    probs w, next;
    wait_full(b, V_FULL + slot, use / STAGES);
    load_probs(b, w, slot, 0, group);
    load_probs(b, next, slot, 1u, group); /* unused if the list has no second block here */
    ptx_fence_async();
    if (two && (rises >> block & 3u) == 0) {
      begin_products(out);
      add_block(out, w, slot, 0);
      add_block(out, next, slot, 1u);
      end_products();
    } else {
      if (block) rescale(b, out, block, heads);
      begin_products(out);
      add_block(out, w, slot, 0);
      end_products();
      if (two) {
        rescale(b, out, block + 1u, heads);
        begin_products(out);
        add_block(out, next, slot, 1u);
        end_products();
      }
    }
    arrive_lane(b, V_EMPTY + slot);
  }
}

#endif

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
  const u32 heads = HEADS_APART ? 0u : heads_of(group); /* among those of the stage */
  const u32 at = AT_STAGES + slot * STAGE_BYTES + 2u * BOX_BYTES + x * STAGE_P + heads * P_BYTES + probs_at();
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

/* Adds 16 entries. Few columns have ones next to them; else l has a product of its own. */
template <u32 N> NUM void add_16_rows(f32 (&o)[N], const u32 (&w)[4], u64 v) {
  if constexpr (ONES_NEXT) {
    ptx_multiply_across(o, w, v);
  } else {
    ptx_multiply_across(*(f32(*)[N - 4u])o, w, v);
    ptx_multiply(*(f32(*)[4])(o + N - 4u), w, ptx_operand(PTX_PLAIN, BASE + AT_ONES));
  }
}

/* Adds block x of the stage in `slot`. */
NUM void add_block(output &out, const probs &w, u32 slot, u32 x, u32 group) {
  const u32 columns = SHARERS > 1u ? group * COLUMNS_APART * 2u : 0u; /* bytes in a row of a box */
  const u64 v = ptx_operand(PTX_ACROSS(BOX_BYTES), BASE + AT_STAGES + x * BOX_BYTES) + (u64)((slot * STAGE_BYTES + columns) >> 4);
#pragma unroll
  for (u32 i = 0; i < 4; i++) add_16_rows(out.o, w.w[i], v + i * 128u);
}

/* P of both blocks of a stage. */
NUM void load_stage(const cta &b, probs (&w)[2], u32 use, u32 group) {
  wait_full(b, V_FULL + use % STAGES, use / STAGES);
  load_probs(b, w[0], use % STAGES, 0, group);
  load_probs(b, w[1], use % STAGES, 1u, group);
  ptx_fence_async();
}

/* Starts the products of a stage that leaves m unchanged, and waits for those of the stage before, which is released. */
NUM void add_stage(const cta &b, output &out, const probs (&w)[2], u32 use, u32 group, bool is_first) {
  ptx_multiply_fence();
  add_block(out, w[0], use % STAGES, 0, group);
  add_block(out, w[1], use % STAGES, 1u, group);
  ptx_multiply_commit();
  PTX_MULTIPLY_WAIT(1);
  if (!is_first) arrive_lane(b, V_EMPTY + (use - 1u) % STAGES);
}

/* Adds `count` stages of two blocks that leave m unchanged. With one group of heads there is room for P of two stages: that of the next one
 * is read while the products of one run. */
NUM void add_stages(const cta &b, output &out, probs (&w)[SHARERS][2], u32 &use, u32 count, u32 group) {
  const u32 end = use + count;
#pragma unroll
  for (u32 i = 0; i < OUTPUTS; i++) ptx_hold(out.o[i]);
#pragma unroll 1
  for (u32 at = use; at < end; at += 2u) {
    load_stage(b, w[0], at, group);
    add_stage(b, out, w[0], at, group, at == use);
    if (at + 1u == end) break;
    load_stage(b, w[SHARERS - 1u], at + 1u, group);
    add_stage(b, out, w[SHARERS - 1u], at + 1u, group, false);
  }
  PTX_MULTIPLY_WAIT(0);
  arrive_lane(b, V_EMPTY + (end - 1u) % STAGES);
  use = end;
}

/* Stages of two blocks from this one on before one that may raise m. */
NUM u32 plain_stages(const token &t, u32 rises, u32 block) {
  const u32 raising = (rises | rises >> 1) & 0x55555555u & ~0u << block; /* bit of a stage's first block */
  const u32 end = raising ? (u32)__ffs((i32)raising) - 1u : t.blocks;
  return (end - block) / 2u;
}

/* Adds all blocks; use counts stages. The two of a stage are added at once if m is unchanged, which is usual. With two groups of heads P is
 * read after the products of the stage before: to the compiler its registers are free once those have been issued, while the tensor cores
 * still read them (tools/wgmma_check.py), and there is no room for two stages of P. */
NUM void add_blocks(const cta &b, output &out, const token &t, u32 &use, u32 group, u32 heads) {
  raise_max(b, out.m, 0, heads);
  const u32 rises = find_rises(b, t, out.m, group, heads);
  probs w[SHARERS][2]; /* the second block of a stage is unused if the list has none */
#pragma unroll 1
  for (u32 block = 0; block < t.blocks; block += 2u, use++) {
    if (SHARERS > 1u) {
      const u32 count = plain_stages(t, rises, block);
      if (count) add_stages(b, out, w, use, count, group);
      block += 2u * count;
      if (block >= t.blocks) break;
    }
    const bool two = block + 1u < t.blocks;
    load_stage(b, w[0], use, group);
    if (SHARERS == 1u && two && (rises >> block & 3u) == 0) {
      begin_products(out);
      add_block(out, w[0][0], use % STAGES, 0, group);
      add_block(out, w[0][1], use % STAGES, 1u, group);
      end_products();
    } else {
      if (block) rescale(b, out, block, heads);
      begin_products(out);
      add_block(out, w[0][0], use % STAGES, 0, group);
      end_products();
      if (two) {
        rescale(b, out, block + 1u, heads);
        begin_products(out);
        add_block(out, w[0][1], use % STAGES, 1u, group);
        end_products();
      }
    }
    arrive_lane(b, V_EMPTY + use % STAGES);
  }
}

#endif

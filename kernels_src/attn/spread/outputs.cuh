/* attn/spread/outputs.cuh - the second half of attn/spread/form.cuh: O += P V of this block's columns and l += P 1, block of places by
 * block, in the order of the list, by the warpgroups that weighed before; and the result. Read next: attn/spread/values.cuh. */
#ifndef VERBATIM_SPREAD_OUTPUTS_CUH
#define VERBATIM_SPREAD_OUTPUTS_CUH
#include "attn/spread/scores.cuh"

/* Element 4 * j + 2 * h + e of O: head h of the thread's two, column 8 * j + e; l, as the column behind the last one. */
typedef struct output {
  f32 m[2], o[OUTPUTS];
} output;

/* P of a block of places, of the stage in `slot` block x: as make_four makes them. */
typedef struct weights {
  u32 w[4][4];
} weights;

NUM void take_weights(const place &p, weights &w, u32 slot, u32 x, u32 group) {
  const u32 at = AT_STAGES + slot * STAGE_BYTES + 2u * BOX_BYTES + x * STAGE_P + (APART ? 0u : group * P_BYTES) + weights_at();
#pragma unroll
  for (u32 i = 0; i < 4; i++) {
    const uint4 some = *(const uint4 *)(p.shared + at + i * 512u);
    w.w[i][0] = some.x;
    w.w[i][1] = some.y;
    w.w[i][2] = some.z;
    w.w[i][3] = some.w;
  }
}

/* Bit b: block b of places may raise m of one of the warpgroup's heads, and what was summed up before it is multiplied by a power of two.
 * No other one does: m never falls below `first`, that of the first block, before which nothing was. */
NUM u32 find_rises(const place &p, const token &t, const f32 (&first)[2], u32 group, u32 heads) {
  u32 *const words = (u32 *)(p.shared + AT_RISES) + group * 4u, rises = 0;
  const f32 most[2] = {num_add(first[0], NUM_RAISE_ABOVE), num_add(first[1], NUM_RAISE_ABOVE)};
#pragma unroll 4
  for (u32 block = 1; block < t.blocks; block++) {
    const float2 top = *(const float2 *)(p.shared + AT_TOPS + tops_at(block, heads));
    rises |= (u32)(top.x > most[0] || top.y > most[1]) << block;
  }
#pragma unroll
  for (u32 by = 16; by > 0; by /= 2u) rises |= __shfl_xor_sync(WARP_ALL, rises, (int)by);
  if (threadIdx.x % 32u == 0) words[threadIdx.x % 128u / 32u] = rises;
  ptx_warps_sync(3u + group, 128);
  return ptx_uniform(words[0] | words[1] | words[2] | words[3]);
}

/* What was summed up follows m to that of a block of places. */
NUM void follow(const place &p, output &out, u32 block, u32 heads) {
  f32 m[2] = {out.m[0], out.m[1]};
  raise_maxima(p, m, block, heads);
  const f32 factor[2] = {num_exp2_int(num_sub(out.m[0], m[0])), num_exp2_int(num_sub(out.m[1], m[1]))}; /* 1 where m stays */
#pragma unroll
  for (u32 i = 0; i < OUTPUTS; i++) out.o[i] = num_mul(out.o[i], factor[i / 2u % 2u]);
  out.m[0] = m[0];
  out.m[1] = m[1];
}

/* Before the first product, and behind the last one, which are waited for. */
NUM void begin_sums(output &out) {
#pragma unroll
  for (u32 i = 0; i < OUTPUTS; i++) ptx_hold(out.o[i]);
  ptx_multiply_fence();
}
NUM void end_sums() {
  ptx_multiply_commit();
  PTX_MULTIPLY_WAIT(0);
}

/* Adds 16 places: a narrow slice has ones behind its columns, else l has a product of its own. */
NUM void add_places(f32 (&o)[16 + 4], const u32 (&w)[4], u64 v) { ptx_multiply_across(o, w, v); }
NUM void add_places(f32 (&o)[32 + 4], const u32 (&w)[4], u64 v) {
  ptx_multiply_across(*(f32(*)[32])o, w, v);
  ptx_multiply(*(f32(*)[4])(o + 32), w, ptx_operand(PTX_PLAIN, BASE + AT_ONES));
}

/* Adds a block of places, of the stage in `slot` block x. */
NUM void add_block(output &out, const weights &w, u32 slot, u32 x) {
  const u64 v = ptx_operand(PTX_ACROSS(BOX_BYTES), BASE + AT_STAGES + x * BOX_BYTES) + (u64)(slot * STAGE_BYTES >> 4);
#pragma unroll
  for (u32 i = 0; i < 4; i++) add_places(out.o, w.w[i], v + i * 128u);
}

/* All blocks of places; use counts stages. Those of a stage are added in one go where m stays, as it does in most. P is read after the
 * products of the stage before: to the compiler its registers are free once those have been issued, while the tensor cores still read
 * them (tools/wgmma_check.py), and there is no room for two stages of P. */
NUM void add_blocks(const place &p, output &out, const token &t, u32 &use, u32 group, u32 heads) {
  raise_maxima(p, out.m, 0, heads);
  const u32 rises = find_rises(p, t, out.m, group, heads);
#pragma unroll 1
  for (u32 block = 0; block < t.blocks; block += 2u, use++) {
    const u32 slot = use % STAGES;
    const bool two = block + 1u < t.blocks;
    weights w, next;
    wait_for(V_COME + slot, use / STAGES);
    take_weights(p, w, slot, 0, group);
    take_weights(p, next, slot, 1u, group); /* void where the list has no second block here */
    ptx_fence_async();
    if (two && (rises >> block & 3u) == 0) {
      begin_sums(out);
      add_block(out, w, slot, 0);
      add_block(out, next, slot, 1u);
      end_sums();
    } else {
      if (block) follow(p, out, block, heads);
      begin_sums(out);
      add_block(out, w, slot, 0);
      end_sums();
      if (two) {
        follow(p, out, block + 1u, heads);
        begin_sums(out);
        add_block(out, next, slot, 1u);
        end_sums();
      }
    }
    give(V_FREE + slot);
  }
}

/* bf16(O * (1 / l) + 0). */
NUM void write_out(const mla_attn_args &a, const place &p, const token &t, const output &out, u32 heads) {
  const u32 column = p.rank % SLICES * SLICE + threadIdx.x % 4u * 2u;
#pragma unroll
  for (u32 h = 0; h < 2; h++) {
    const u32 head = heads * 64u + head_of(h);
    const f32 share = num_div(1.0f, out.o[SLICE / 2u + 2u * h]);
    u32 *to = (u32 *)(a.out + ((u64)t.row * a.heads + head) * SPEC_KV_LORA_RANK + column);
    if (head >= a.heads) continue;
#pragma unroll
    for (u32 j = 0; j < SLICE / 8u; j++) {
      const f32 *o = out.o + 4u * j + 2u * h;
      to[4u * j] = ptx_pack_bf16(num_add(num_mul(o[0], share), 0.0f), num_add(num_mul(o[1], share), 0.0f));
    }
  }
}

/* Finds its warpgroup anew: while scores are held there is no register for it. */
NUM void attend(const mla_attn_args &a, const place &p, const token &t, u32 &use) {
  const u32 group = threadIdx.x / 128u, heads = APART ? p.rank / SLICES : group;
  output out;
  if (APART && group > 0) return;
  out.m[0] = out.m[1] = NO_MAX; /* raised by the first block of places */
#pragma unroll
  for (u32 i = 0; i < OUTPUTS; i++) out.o[i] = 0.0f;
  add_blocks(p, out, t, use, group, heads);
  write_out(a, p, t, out, heads);
}

#endif

/* attn/cluster/values.cuh - the value warpgroups of the cluster form: O += P V and l += P 1 block by block; folds at the ends of chunks,
 * units and groups. Each has a quarter of the columns. Read next: attn/cluster/epilogue.cuh. */
#ifndef VERBATIM_ATTN_CLUSTER_VALUES_CUH
#define VERBATIM_ATTN_CLUSTER_VALUES_CUH
#include "attn/cluster/epilogue.cuh"

/* o += P V, l += P 1: tokens in four steps of 16. */
NUM void multiply_values(f32 (&o)[OUTPUTS], f32 (&l)[4], const u32 (&w)[4][4], u32 values, u32 ones_at, u32 group) {
  const u64 v = ptx_operand(PTX_ACROSS(BOX_BYTES), values);
  const u64 ones = ptx_operand(PTX_PLAIN, ones_at);
#pragma unroll
  for (u32 i = 0; i < OUTPUTS; i++) ptx_hold(o[i]);
  if (group == 0) {
#pragma unroll
    for (u32 i = 0; i < 4; i++) ptx_hold(l[i]);
    ptx_multiply_fence();
#pragma unroll
    for (u32 i = 0; i < 4; i++) ptx_multiply_across(o, w[i], v + i * 128u);
#pragma unroll
    for (u32 i = 0; i < 4; i++) ptx_multiply(l, w[i], ones);
    ptx_multiply_commit();
    PTX_MULTIPLY_WAIT(0);
  } else {
    ptx_multiply_fence();
#pragma unroll
    for (u32 i = 0; i < 4; i++) ptx_multiply_across(o, w[i], v + i * 128u);
    ptx_multiply_commit();
    PTX_MULTIPLY_WAIT(0);
  }
}

/* Zeroes the rows of this warpgroup's boxes after the tile's last position, whatever the page holds. */
NUM void clear_rows(const cta &b, u32 values, u32 from, u32 group) {
  const u32 pieces = (PAGE_TOKENS - from) * 8u;
  for (u32 i = threadIdx.x % 128u; i < pieces * WIDTH_BOXES; i += 128u) {
    uint4 *at = (uint4 *)(b.shared + values + i / pieces * BOX_BYTES + from * 128u) + i % pieces;
    at->x = at->y = at->z = at->w = 0;
  }
  ptx_fence_async();
  ptx_warps_sync(1u + group, 128);
}

/* What a value warpgroup keeps from block to block. */
typedef struct output {
  u32 own_blocks, peer; /* blocks so far, scored here and by the other CTA */
  f32 m[2], l[4], o[OUTPUTS];
  chain level1;         /* the group's fold so far */
  f32 m2[2], l2[2];     /* of the fold of groups so far, whose O is in scratch */
} output;

/* At the end of a chunk, not at the start of the next: there the compiler would hold O twice. */
NUM void clear_sums(output &out) {
#pragma unroll
  for (u32 i = 0; i < 4; i++) out.l[i] = 0.0f;
#pragma unroll
  for (u32 i = 0; i < OUTPUTS; i++) out.o[i] = 0.0f;
}

/* One block of 64 tokens into o, l and m. */
NUM void add_block(const cta &b, output &out, u32 block, const item &it, bool starts, u32 group) {
  const u32 other = (block ^ b.rank) & 1u;
  const u32 set = out.own_blocks % 2u, boxes = group * WIDTH_BOXES;
  const u32 number = other ? out.peer : out.own_blocks, full = other ? VALUES_FULL : BOTH_FULL + set * HALF;
  const u32 values = (other ? AT_VALUES : AT_BOTH + set * HALF * BOX_BYTES) + boxes * BOX_BYTES;
  if (other && threadIdx.x == 0) ptx_barrier_expect(barrier_at(b, P_FULL + 1u), P_BYTES);
#pragma unroll
  for (u32 x = 0; x < WIDTH_BOXES; x++) {
    if (CODES && other && threadIdx.x % 128u == 0) ptx_barrier_expect(barrier_at(b, full + boxes + x), BOX_BYTES);
    wait_full(b, full + boxes + x, other ? number : number / 2u);
  }
  if (COPIED) ptx_fence_async();
  if (CODES && other && threadIdx.x % 128u == 0) ptx_barrier_arrive_peer(ptx_peer(barrier_at(b, VALUES_SENT), b.rank ^ 1u));
  const u32 live = last_position(it) % PAGE_TOKENS + 1u;
  if (!GATHERED && block == last_position(it) / PAGE_TOKENS && live < PAGE_TOKENS) clear_rows(b, values, live, group);
  wait_full(b, P_FULL + other, number); /* P usually comes last */
  u32 w[4][4];
#pragma unroll
  for (u32 i = 0; i < 4; i++) {
    const uint4 some = *(const uint4 *)(b.shared + AT_P + other * BOX_BYTES + piece_of(i));
    w[i][0] = some.x;
    w[i][1] = some.y;
    w[i][2] = some.z;
    w[i][3] = some.w;
  }
  const float2 top = *(const float2 *)(b.shared + AT_MAX + other * 256u + threadIdx.x % 128u / 4u * 8u);
  const f32 m[2] = {top.x, top.y};
  if (!starts && __ballot_sync(WARP_ALL, m[0] != out.m[0] || m[1] != out.m[1])) {
    const f32 factor[2] = {num_exp2_int(num_sub(out.m[0], m[0])), num_exp2_int(num_sub(out.m[1], m[1]))}; /* 1 if m is unchanged */
#pragma unroll
    for (u32 i = 0; i < 4; i++) out.l[i] = num_mul(out.l[i], factor[i / 2u]);
#pragma unroll
    for (u32 i = 0; i < OUTPUTS; i++) out.o[i] = num_mul(out.o[i], factor[i / 2u % 2u]);
  }
  out.m[0] = m[0];
  out.m[1] = m[1];
  multiply_values(out.o, out.l, w, BASE + values, BASE + AT_ONES, group);
  if (threadIdx.x % 32u == 0) {
    const u32 empty = barrier_at(b, other ? VALUES_EMPTY + group : BOTH_EMPTY + set * 2u + group);
    if (CODES && other) ptx_barrier_arrive_peer(ptx_peer(empty, b.rank ^ 1u));
    else ptx_barrier_arrive(empty);
    if (other) /* after the product: a load of P that is merely issued could be overtaken */
      ptx_barrier_arrive_peer(ptx_peer(barrier_at(b, P_EMPTY), b.rank ^ 1u));
    else
      ptx_barrier_arrive(barrier_at(b, P_EMPTY));
  }
  out.own_blocks += other ^ 1u;
  out.peer += other;
}

/* Whether the groups of this item are folded here. */
NUM bool folds_groups(const mla_attn_args &a, const item &it) { return it.first == 0 && it.prefix == a.group_chunks; }

/* Folds the chunk that ends with `block`; where a unit of a split tile ends, it is stored. */
NUM void end_chunk(const mla_attn_args &a, output &out, const item &it, const query_rows &r, u32 chunk, u32 in_group, bool is_last,
                   float4 *saved, u32 column) {
  if (attn_unit_starts(in_group, it.prefix)) { /* the fold of nothing and a result is the result */
    out.level1.m[0] = out.level1.m[1] = NO_MAX;
    out.level1.l[0] = out.level1.l[1] = 0.0f;
#pragma unroll
    for (u32 i = 0; i < OUTPUTS; i++) out.level1.o[i] = 0.0f;
  }
  fold(out.level1, out.m, out.l, out.o, r, chunk * a.chunk_tokens);
  clear_sums(out);
  if (!is_last && in_group + 1u < it.prefix) return;
  if (!folds_groups(a, it)) {
    const u64 unit = attn_unit_at(chunk, a.counts->piece_chunks, a.group_chunks);
    store_unit(a, it, out.level1, r, unit * it.tile.count * a.heads, column);
  } else if (!is_last) {
    const group_fold sum = fold_groups(out.level1, out.m2, out.l2, r, (chunk - in_group) * a.chunk_tokens);
#pragma unroll
    for (u32 j = 0; j < OUTPUTS / 4u; j++) saved[j * 256u] = folded(sum, out.level1, saved, j);
#pragma unroll
    for (u32 h = 0; h < 2; h++) {
      out.m2[h] = sum.m[h];
      out.l2[h] = sum.l[h];
    }
  }
}

/* Two warpgroups, 0 and 1: O of a quarter of the columns each. */
NUM void run_values(const mla_attn_args &a, const cta &b, u32 group) {
  const u32 blocks = a.chunk_tokens / PAGE_TOKENS;
  const u32 column = (b.rank * 2u + group) * WIDTH + threadIdx.x % 4u * 2u;
  float4 *saved = (float4 *)(a.scratch + (u64)blockIdx.x * attn_scratch_floats(64, SPEC_KV_LORA_RANK)) + threadIdx.x;
  output out;
  out.own_blocks = out.peer = 0;
  clear_sums(out);
  item it;
  for (u32 n = 0; read_item(b, n, it, false); n++) {
    const query_rows r = query_rows_of(it);
    u32 chunk = it.first / blocks, in_group = chunk % a.group_chunks, in_chunk = 0;
    for (u32 block = it.first; block <= it.last; block++) {
      add_block(b, out, block, it, in_chunk == 0, group);
      if (++in_chunk < blocks && block != it.last) continue;
      end_chunk(a, out, it, r, chunk, in_group, block == it.last, saved, column);
      in_chunk = 0;
      if (block == it.last) break;
      chunk++;
      in_group = in_group + 1u < a.group_chunks ? in_group + 1u : 0u;
    }
    group_fold sum = fold_groups(out.level1, out.m2, out.l2, r, (chunk - in_group) * a.chunk_tokens);
    share_sums(b, sum, n, group);
    if (it.slot == ATTN_WHOLE) store_out(a, it, sum, out.level1, saved, r, column);
    else if (folds_groups(a, it)) store_groups(a, it, sum, out.level1, saved, r, column);
  }
}

#endif

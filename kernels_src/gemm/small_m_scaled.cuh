/* small_m_scaled.cuh - small_m.cuh for scaled e4m3 numbers: scales that are loaded with their stage, and sums of 128 k each.
 *
 * A row of 128 bytes holds 128 k, so tiles, boxes and ring are those of bf16. After the rings every stage has, for each block of 128 k, the
 * scales of SPEC_TILE_ROWS token rows and of the tile's weight rows, which lie in at most two groups of 128, for Y_SILU in two more: four
 * slots. Lanes of the warps W and X copy them, four bytes each, as part of the stage. An H32 chain covers 128 k, so up to four chains are
 * in flight while earlier ones are added: C = fma(a, s_x * s_w, C), k ascending. The last stage of a k that is no whole number of stages
 * multiplies what lies there, and drops it.
 * An MMA takes 64 weight rows. Tiles of up to 32 fill it with two blocks of k (SMALL_M_MMA_BLOCKS): a box holds, for every eight weight
 * rows, their first block and then their second, and token rows of the second block are further columns. Of the four quarters of a result
 * two are sums over the same block, and a thread holds both for its weight row.
 * Studies: tools/bench/history, fp8-small-m, its stages and fp8-few-rows. Read next: small_m_dense.cuh, small_m_experts.cuh. */
#ifndef VERBATIM_SMALL_M_SCALED_CUH
#define VERBATIM_SMALL_M_SCALED_CUH
#include "gemm/small_m.cuh"

#define SMALL_M_SLOTS 4u
#define SMALL_M_BOX_BLOCKS FP8_BOX_BLOCKS(SPEC_TILE_N, SPEC_K_BLOCKS) /* blocks of k in a TMA box of weights */
#define SMALL_M_SCALE_PITCH (SMALL_M_COLUMNS + SMALL_M_SLOTS) /* scales of a block of k */
#define SMALL_M_SCALE_BYTES (SPEC_K_BLOCKS * SMALL_M_SCALE_PITCH * 4u) /* of a stage */
#define SMALL_M_END_BYTES (SMALL_M_SCALES_AT + SPEC_STAGES * SMALL_M_SCALE_BYTES)
#define SMALL_M_STEPS (SPEC_K_BLOCKS / SMALL_M_MMA_BLOCKS) /* of a stage: MMA chains, of one or two blocks of k */
#define SMALL_M_CHAINS (SMALL_M_STEPS < 4u ? SMALL_M_STEPS : 4u) /* in flight at a time */
#define SMALL_M_FACTORS (SPEC_TILE_ROWS > 16u ? SMALL_M_MMA_BLOCKS : SPEC_K_BLOCKS) /* blocks of k whose factors a thread holds */
#define SMALL_M_LOAD_ARRIVALS 33u /* of a producer warp: 32 lanes copy scales, one of them loads boxes too */

/* Rows of scales, one for each group of 128 weight rows, of the tile from row n0 on; `columns` rows in all, for Y_SILU twice as many. */
typedef struct small_m_groups { u32 first, last, up; } small_m_groups; /* up: from a gate's group to that of its up rows; else 0 */

NUM small_m_groups small_m_find_groups(u32 n0, u32 columns, bool is_silu) {
  return {n0 / SCALE_COLUMNS, (columns - 1u) / SCALE_COLUMNS, is_silu ? columns / SCALE_COLUMNS : 0u};
}
NUM u32 small_m_group(const small_m_groups &g, u32 slot) { return num_least(g.first + slot % 2u, g.last) + slot / 2u * g.up; }

/* Slot of the scale of the thread's weight row small_m_row(2 * h). */
NUM u32 small_m_slot(u32 h, u32 n0, bool is_silu) {
  const u32 row = small_m_row(2u * h), is_up = is_silu && row >= SMALL_M_HALF;
  return (n0 % SCALE_COLUMNS + (is_up ? row - SMALL_M_HALF : row)) / SCALE_COLUMNS + 2u * is_up;
}

NUM u32 small_m_scales(const small_m_ring &r) { return r.base + SMALL_M_SCALES_AT + r.stage * SMALL_M_SCALE_BYTES; }

/* By one thread: a box of weight rows, from `row` of a matrix of n rows on. With two blocks of k rows count in groups of eight; TMA takes
 * longer for five dimensions than for four, so only gate and up rows are dimensions of their own. */
NUM void small_m_copy_codes(u32 to, const tensor_map *map, u32 block, u32 row, u32 matrix, u32 n, bool is_silu, u32 barrier, u64 policy) {
  if (SMALL_M_BOX_BLOCKS == 1u) ptx_copy_box(to, map, block * SMALL_M_BLOCK_K, row, matrix * (1u + is_silu), barrier, policy);
  else if (is_silu) ptx_copy_box(to, map, 0, 0, block, row / 8u, matrix * 2u, barrier, policy);
  else ptx_copy_box(to, map, 0, 0, block, (matrix * n + row) / 8u, barrier, policy);
}

/* By the whole warp W: a tile's rows of weights with their scales, [.][blocks] from the first of the matrix on. paced: in the first pass
 * the ring fills no faster than 44 bytes a cycle, two to three times a block's share of the bandwidth, so that token rows do not queue. */
NUM void small_m_copy_weights(small_m_ring &r, const tensor_map *map, u32 row, u32 matrix, u32 n, bool is_silu, u32 blocks,
                              const f32 *scales, const small_m_groups &groups, bool paced) {
  const u64 policy = ptx_once();
  const u32 lane = threadIdx.x % 32u, slot = lane % SMALL_M_SLOTS, own = lane / SMALL_M_SLOTS;
  const u32 box_bytes = SMALL_M_BOX_BLOCKS * 128u * (is_silu ? 2u * SMALL_M_HALF : SPEC_TILE_N);
  const f32 *from = scales + (u64)small_m_group(groups, slot) * blocks;
  for (u32 block = 0; block < blocks; block += SPEC_K_BLOCKS) {
    const u32 count = num_least(SPEC_K_BLOCKS, blocks - block), to = small_m_scales(r) + (SMALL_M_COLUMNS + slot) * 4u;
    ptx_barrier_wait(small_m_empty(r, r.stage), r.parity ^ 1u);
    for (u32 b = own; b < count; b += 32u / SMALL_M_SLOTS) ptx_copy4(to + b * (SMALL_M_SCALE_PITCH * 4u), from + block + b);
    ptx_barrier_arrive_copies(small_m_full(r));
    if (lane == 0) {
      ptx_barrier_expect(small_m_full(r), (count + SMALL_M_BOX_BLOCKS - 1u) / SMALL_M_BOX_BLOCKS * box_bytes);
      for (u32 i = 0; i < count; i += SMALL_M_BOX_BLOCKS)
        small_m_copy_codes(small_m_w(r) + i * SMALL_M_W_BYTES, map, block + i, row, matrix, n, is_silu, small_m_full(r), policy);
      if (paced && r.parity == 0) ptx_pause(count * SMALL_M_W_BYTES / 44u);
    }
    __syncwarp();
    small_m_next(r);
  }
}

/* By the whole warp X, once the stage is empty: the scales of `rows` token rows and `count` blocks from `block` on. Lane i has the source
 * of row i. */
NUM void small_m_copy_scales(const small_m_ring &r, const f32 *scales, u32 source, u32 rows, u32 block, u32 count, u32 blocks) {
#pragma unroll
  for (u32 e = 0; e < SPEC_TILE_ROWS * SPEC_K_BLOCKS; e += 32u) {
    const u32 at = e + threadIdx.x % 32u, row = at / SPEC_K_BLOCKS, b = at % SPEC_K_BLOCKS;
    const f32 *from = scales + (u64)__shfl_sync(WARP_ALL, source, row % 32u) * blocks + block + b;
    if (row < rows && b < count) ptx_copy4(small_m_scales(r) + (b * SMALL_M_SCALE_PITCH + row) * 4u, from);
  }
}

/* By the whole warp X: token rows from `row` on, by TMA box or, with SPEC_TILE_ROWS 1, as the row at x is; and their scales. */
NUM void small_m_copy_tokens(small_m_ring &r, const tensor_map *map, const u8 *x, const f32 *scales, u32 row, u32 rows, u32 blocks) {
  const u64 policy = ptx_often();
  const u32 lane = threadIdx.x % 32u;
  for (u32 block = 0; block < blocks; block += SPEC_K_BLOCKS) {
    const u32 count = num_least(SPEC_K_BLOCKS, blocks - block);
    ptx_barrier_wait(small_m_empty(r, r.stage), r.parity ^ 1u);
    if (lane == 0) {
      ptx_barrier_expect(small_m_full(r), count * SMALL_M_X_BYTES);
      if (SPEC_TILE_ROWS == 1u)
        ptx_copy_bulk(small_m_x(r), x + (u64)row * (blocks * 128u) + block * 128u, count * 128u, small_m_full(r), policy);
      else
        for (u32 i = 0; i < count; i++)
          ptx_copy_box(small_m_x(r) + i * SMALL_M_X_BYTES, map, (block + i) * SMALL_M_BLOCK_K, row, 0, small_m_full(r), policy);
    }
    __syncwarp();
    small_m_copy_scales(r, scales, row + lane, rows, block, count, blocks);
    ptx_barrier_arrive_copies(small_m_full(r));
    small_m_next(r);
  }
}

typedef f32 small_m_sums[SMALL_M_ACCUMULATORS];
typedef f32 small_m_chain[SMALL_M_MMA_BLOCKS * SMALL_M_COLUMNS / 2u]; /* results of one MMA chain */

/* The products of scales for the thread's results of a block of k (R13.1). slot: of its weight rows. */
NUM void small_m_factors(small_m_sums &factor, const f32 *scales, const u32 (&slot)[2]) {
  const f32 w[2] = {scales[SMALL_M_COLUMNS + slot[0]], scales[SMALL_M_COLUMNS + slot[1]]};
#pragma unroll
  for (u32 i = 0; i < SMALL_M_ACCUMULATORS; i += 2u) {
    const float2 x = *(const float2 *)(scales + small_m_column(i));
    const u32 h = SMALL_M_MMA_BLOCKS == 1u ? i / 2u % 2u : 0;
    factor[i] = num_mul(x.x, w[h]);
    factor[i + 1u] = num_mul(x.y, w[h]);
  }
}

/* The same for SMALL_M_FACTORS blocks of k, with one wait for all reads. */
NUM void small_m_load_factors(small_m_sums (&factor)[SMALL_M_FACTORS], const f32 *scales, const u32 (&slot)[2]) {
#pragma unroll
  for (u32 b = 0; b < SMALL_M_FACTORS; b++) small_m_factors(factor[b], scales + b * SMALL_M_SCALE_PITCH, slot);
#pragma unroll
  for (u32 i = 0; i < SMALL_M_FACTORS * SMALL_M_ACCUMULATORS; i++) ptx_hold(factor[i / SMALL_M_ACCUMULATORS][i % SMALL_M_ACCUMULATORS]);
}

/* Waits until at most the newest `left` chains are in flight. */
NUM void small_m_wait(u32 left) {
  if (left == 0) PTX_MULTIPLY_WAIT(0);
  else if (left == 1u) PTX_MULTIPLY_WAIT(1);
  else if (left == 2u) PTX_MULTIPLY_WAIT(2);
  else PTX_MULTIPLY_WAIT(3);
}

/* Adds the blocks of an MMA chain, of which `count` exist, k ascending (R13.2). */
#if SMALL_M_MMA_BLOCKS == 1u
NUM void small_m_add(small_m_sums &sum, const small_m_chain &chain, const small_m_sums *factor, u32 count) {
#pragma unroll
  for (u32 i = 0; i < SMALL_M_ACCUMULATORS; i++)
    if (count > 0) sum[i] = num_fma(chain[i], factor[0][i], sum[i]);
}
#else
/* Of the quarters of a result, upper and lower operand rows by two blocks of columns, two count: upper rows with the first block, lower
 * rows with the second. */
NUM void small_m_add(small_m_sums &sum, const small_m_chain &chain, const small_m_sums *factor, u32 count) {
#pragma unroll
  for (u32 i = 0; i < SMALL_M_ACCUMULATORS; i++) {
    const u32 upper = i / 2u * 4u + i % 2u, lower = upper + SMALL_M_COLUMNS / 2u + 2u;
    if (count > 0) sum[i] = num_fma(chain[upper], factor[0][i], sum[i]);
    if (count > 1u) sum[i] = num_fma(chain[lower], factor[1][i], sum[i]);
  }
}
#endif

/* By the consumer warps: sum = the scaled sums of the next tile over `blocks` blocks of k. gathered: token rows were copied by threads. */
NUM void small_m_scaled_product(small_m_sums &sum, small_m_ring &r, u32 blocks, bool gathered, const u32 (&slot)[2], const u8 *shared) {
  const u64 x_form = SPEC_TILE_ROWS == 1u ? PTX_ONE_ROW : PTX_SWIZZLED;
  small_m_chain chain[SMALL_M_CHAINS];
  small_m_sums factor[SMALL_M_FACTORS];
#pragma unroll
  for (u32 i = 0; i < SMALL_M_CHAINS; i++)
#pragma unroll
    for (u32 j = 0; j < SMALL_M_MMA_BLOCKS * SMALL_M_COLUMNS / 2u; j++) chain[i][j] = 0.0f;
#pragma unroll
  for (u32 i = 0; i < SMALL_M_ACCUMULATORS; i++) sum[i] = 0.0f;
  do {
    const u32 count = num_least(SPEC_K_BLOCKS, blocks);
    const f32 *scales = (const f32 *)(shared + (small_m_scales(r) - ptx_shared(shared)));
    ptx_barrier_wait(small_m_full(r), r.parity);
    if (gathered) ptx_fence_async();
    const u64 w = ptx_operand(PTX_SWIZZLED, small_m_w(r)), x = ptx_operand(x_form, small_m_x(r));
#pragma unroll
    for (u32 step = 0; step < SMALL_M_STEPS + SMALL_M_CHAINS - 1u; step++) { /* starts a chain, adds the oldest one */
      const u32 added = step + 1u - SMALL_M_CHAINS, block = added * SMALL_M_MMA_BLOCKS;
      if (SMALL_M_FACTORS == SMALL_M_MMA_BLOCKS && step + 1u >= SMALL_M_CHAINS) /* while chains are in flight */
        small_m_load_factors(factor, scales + block * SMALL_M_SCALE_PITCH, slot);
      if (step < SMALL_M_STEPS) {
        const u64 w_step = w + step * (SMALL_M_MMA_BLOCKS * SMALL_M_W_BYTES / 16u);
        const u64 x_step = x + step * (SMALL_M_MMA_BLOCKS * SMALL_M_X_BYTES / 16u);
        small_m_chain &begun = chain[step % SMALL_M_CHAINS];
        ptx_multiply_fence();
        ptx_multiply_e4m3_anew(begun, w_step, x_step);
#pragma unroll
        for (u32 i = 1; i < 4u; i++) ptx_multiply_e4m3(begun, w_step + i * 2u, x_step + i * 2u);
        ptx_multiply_commit();
      }
      if (step + 1u < SMALL_M_CHAINS) continue;
      if (SMALL_M_FACTORS > SMALL_M_MMA_BLOCKS && step + 1u == SMALL_M_CHAINS) small_m_load_factors(factor, scales, slot);
      small_m_wait(num_least(SMALL_M_CHAINS, SMALL_M_STEPS - added) - 1u);
#pragma unroll
      for (u32 j = 0; j < SMALL_M_MMA_BLOCKS * SMALL_M_COLUMNS / 2u; j++)
        ptx_hold(chain[added % SMALL_M_CHAINS][j]); /* keeps reads after the wait */
      small_m_add(sum, chain[added % SMALL_M_CHAINS], &factor[block % SMALL_M_FACTORS], count - num_least(count, block));
    }
    __syncwarp();
    if (threadIdx.x % 32u == 0) ptx_barrier_arrive(small_m_empty(r, r.stage));
    blocks -= count;
    small_m_next(r);
  } while (blocks);
}

/* By the whole warp W: the weights of the tile from column n0 on, with their scales. scale: index of the matrix's first one. */
template <class ARGS>
NUM void small_m_load_weights(small_m_ring &r, const ARGS &a, const tensor_maps &maps, u32 n0, u32 matrix, u64 scale, u32 is_silu,
                              u32 columns, u32 blocks, bool paced) {
  small_m_copy_weights(r, &maps.w, n0, matrix, a.n, is_silu, blocks, a.w_scale + scale, small_m_find_groups(n0, columns, is_silu), paced);
}

/* By the consumer warps: sum = the sums of the next tile, whose first column is n0. */
NUM void small_m_multiply(small_m_sums &sum, small_m_ring &r, u32 n0, u32 is_silu, u32 blocks, bool gathered, const u8 *shared) {
  const u32 slot[2] = {small_m_slot(0, n0, is_silu), small_m_slot(1, n0, is_silu)};
  small_m_scaled_product(sum, r, blocks, gathered, slot, shared);
}

#endif

/* few_scaled.cuh - what products of scaled e4m3 numbers add to few.cuh: scales that come with their stage, and sums of 128 k each.
 *
 * A row of 128 bytes holds 128 k, so tiles, boxes and ring are those of bf16. Behind the ring of W every stage has, for each 128 k, the
 * scales of SPEC_TILE_ROWS token rows and those of the tile's weight rows, which lie in two groups of 128 at most, for Y_SILU in as many
 * again: four slots. Lanes of the warps W and X copy them, four bytes each, as part of the stage.
 * The H32 chains of 128 k begin anew, so up to four are made while those before are added: C = fma(a, s_x * s_w, C), k ascending.
 * The last stage of a k that is no whole number of stages multiplies what lies there, and drops it. Cost of 128 k beside their bytes: 64
 * cycles of tensor cores, whatever the tile (they read 64 weight rows), less than 8 rows take to come. Read next: fp8_gemm_few.cuh. */
#ifndef VERBATIM_FEW_SCALED_CUH
#define VERBATIM_FEW_SCALED_CUH
#include "few.cuh"

#define FEW_SLOTS 4u
#define FEW_PIECE (FEW_COLUMNS + FEW_SLOTS) /* numbers: scales of 128 k */
#define FEW_SCALES (SPEC_K_BLOCKS * FEW_PIECE * 4u) /* bytes of a stage */
#define FEW_SCALED_END (FEW_END + SPEC_STAGES * FEW_SCALES)
#define FEW_CHAINS (SPEC_K_BLOCKS < 4u ? SPEC_K_BLOCKS : 4u) /* made at a time */
#define FEW_KEPT (SPEC_TILE_ROWS > 16u ? 1u : SPEC_K_BLOCKS) /* times 128 k that a thread holds factors of: a stage's, if rows are few */
#define FEW_SCALED_ARRIVALS 33u /* of a warp whose lanes copy scales and one of them boxes */

/* Rows of scales of the tile of weight rows from n0 on, of `columns` and for Y_SILU as many again: groups of 128. */
typedef struct few_groups { u32 first, last, up; } few_groups; /* up: from a gate's to its up projection's; 0 for other results */

NUM few_groups few_find_groups(u32 n0, u32 columns, bool is_silu) {
  return {n0 / SCALE_COLUMNS, (columns - 1u) / SCALE_COLUMNS, is_silu ? columns / SCALE_COLUMNS : 0u};
}
NUM u32 few_group(const few_groups &g, u32 slot) { return num_least(g.first + slot % 2u, g.last) + slot / 2u * g.up; }

/* Of the thread's weight row few_row(2 * h) of the tile. */
NUM u32 few_slot(u32 h, u32 n0, bool is_silu) {
  const u32 row = few_row(2u * h), is_up = is_silu && row >= FEW_HALF;
  return (n0 % SCALE_COLUMNS + (is_up ? row - FEW_HALF : row)) / SCALE_COLUMNS + 2u * is_up;
}

NUM u32 few_scales(const few_ring &r) { return r.base + FEW_END + r.stage * FEW_SCALES; }

/* By the whole warp W: as few_copy, with the weights' scales, [.][blocks] from the matrix's first on. */
NUM void few_copy_weights(few_ring &r, const tensor_map *map, u32 row, u32 matrix, u32 blocks, const f32 *scales, const few_groups &groups,
                          bool paced) {
  const u64 policy = ptx_once();
  const u32 lane = threadIdx.x % 32u, slot = lane % FEW_SLOTS, own = lane / FEW_SLOTS;
  const f32 *from = scales + (u64)few_group(groups, slot) * blocks;
  for (u32 block = 0; block < blocks; block += SPEC_K_BLOCKS) {
    const u32 count = num_least(SPEC_K_BLOCKS, blocks - block), to = few_scales(r) + (FEW_COLUMNS + slot) * 4u;
    ptx_barrier_wait(few_empty(r, r.stage), r.parity ^ 1u);
    for (u32 b = own; b < count; b += 32u / FEW_SLOTS) ptx_copy4(to + b * (FEW_PIECE * 4u), from + block + b);
    ptx_barrier_arrive_copies(few_full(r));
    if (lane == 0) {
      ptx_barrier_expect(few_full(r), count * FEW_W_BLOCK);
      for (u32 i = 0; i < count; i++)
        ptx_copy_box(few_w(r) + i * FEW_W_BLOCK, map, (block + i) * FEW_BLOCK_K, row, matrix, few_full(r), policy);
      if (paced && r.parity == 0) ptx_pause(count * FEW_W_BLOCK / 44u);
    }
    __syncwarp();
    few_next(r);
  }
}

/* By the whole warp X, which has waited for the stage: scales of `rows` token rows and `count` blocks from `block` on. Lane i knows where
 * row i comes from. */
NUM void few_copy_scales(const few_ring &r, const f32 *scales, u32 source, u32 rows, u32 block, u32 count, u32 blocks) {
#pragma unroll
  for (u32 e = 0; e < SPEC_TILE_ROWS * SPEC_K_BLOCKS; e += 32u) {
    const u32 at = e + threadIdx.x % 32u, row = at / SPEC_K_BLOCKS, b = at % SPEC_K_BLOCKS;
    const f32 *from = scales + (u64)__shfl_sync(WARP_ALL, source, row % 32u) * blocks + block + b;
    if (row < rows && b < count) ptx_copy4(few_scales(r) + (b * FEW_PIECE + row) * 4u, from);
  }
}

/* By the whole warp X: token rows from `row` on, by boxes or, one alone, as it is at x; and their scales. */
NUM void few_copy_tokens(few_ring &r, const tensor_map *map, const u8 *x, const f32 *scales, u32 row, u32 rows, u32 blocks) {
  const u64 policy = ptx_often();
  const u32 lane = threadIdx.x % 32u;
  for (u32 block = 0; block < blocks; block += SPEC_K_BLOCKS) {
    const u32 count = num_least(SPEC_K_BLOCKS, blocks - block);
    ptx_barrier_wait(few_empty(r, r.stage), r.parity ^ 1u);
    if (lane == 0) {
      ptx_barrier_expect(few_full(r), count * FEW_X_BLOCK);
      if (SPEC_TILE_ROWS == 1u) ptx_copy_bulk(few_x(r), x + (u64)row * (blocks * 128u) + block * 128u, count * 128u, few_full(r), policy);
      else
        for (u32 i = 0; i < count; i++)
          ptx_copy_box(few_x(r) + i * FEW_X_BLOCK, map, (block + i) * FEW_BLOCK_K, row, 0, few_full(r), policy);
    }
    __syncwarp();
    few_copy_scales(r, scales, row + lane, rows, block, count, blocks);
    ptx_barrier_arrive_copies(few_full(r));
    few_next(r);
  }
}

/* What the thread's results of 128 k are multiplied by (R13.1). slot: of its two weight rows. */
NUM void few_factors(f32 (&factor)[FEW_ACCUMULATORS], const f32 *scales, const u32 (&slot)[2]) {
  const f32 w[2] = {scales[FEW_COLUMNS + slot[0]], scales[FEW_COLUMNS + slot[1]]};
#pragma unroll
  for (u32 i = 0; i < FEW_ACCUMULATORS; i += 4u) {
    const float2 x = *(const float2 *)(scales + few_column(i));
#pragma unroll
    for (u32 h = 0; h < 2u; h++) {
      factor[i + 2u * h] = num_mul(x.x, w[h]);
      factor[i + 2u * h + 1u] = num_mul(x.y, w[h]);
    }
  }
}

typedef f32 few_sums[FEW_ACCUMULATORS];

/* The same of a whole stage, whose reads are waited for once. */
NUM void few_kept_factors(few_sums (&factor)[FEW_KEPT], const f32 *scales, const u32 (&slot)[2]) {
#pragma unroll
  for (u32 b = 0; b < FEW_KEPT; b++) few_factors(factor[b], scales + b * FEW_PIECE, slot);
#pragma unroll
  for (u32 i = 0; i < FEW_KEPT * FEW_ACCUMULATORS; i++) ptx_hold(factor[i / FEW_ACCUMULATORS][i % FEW_ACCUMULATORS]);
}

/* Until of the chains that have begun only the newest `left` are under way. */
NUM void few_wait(u32 left) {
  if (left == 0) PTX_MULTIPLY_WAIT(0);
  else if (left == 1u) PTX_MULTIPLY_WAIT(1);
  else if (left == 2u) PTX_MULTIPLY_WAIT(2);
  else PTX_MULTIPLY_WAIT(3);
}

/* By the warps that multiply: sum = the scaled sums of the next tile over `blocks` times 128 k. gathered: as few_product's. */
NUM void few_scaled_product(few_sums &sum, few_ring &r, u32 blocks, bool gathered, const u32 (&slot)[2], const u8 *shared) {
  const u64 x_form = SPEC_TILE_ROWS == 1u ? PTX_ONE_ROW : PTX_SWIZZLED;
  few_sums chain[FEW_CHAINS], factor[FEW_KEPT];
#pragma unroll
  for (u32 i = 0; i < FEW_CHAINS * FEW_ACCUMULATORS; i++) chain[i / FEW_ACCUMULATORS][i % FEW_ACCUMULATORS] = 0.0f;
#pragma unroll
  for (u32 i = 0; i < FEW_ACCUMULATORS; i++) sum[i] = 0.0f;
  do {
    const u32 count = num_least(SPEC_K_BLOCKS, blocks);
    const f32 *scales = (const f32 *)(shared + (few_scales(r) - ptx_shared(shared)));
    ptx_barrier_wait(few_full(r), r.parity);
    if (gathered) ptx_fence_async();
    const u64 w = ptx_operand(PTX_SWIZZLED, few_w(r)), x = ptx_operand(x_form, few_x(r));
#pragma unroll
    for (u32 b = 0; b < SPEC_K_BLOCKS + FEW_CHAINS - 1u; b++) { /* begins b, adds the one that began FEW_CHAINS - 1 before */
      const u32 added = b + 1u - FEW_CHAINS;
      if (FEW_KEPT == 1u && b + 1u >= FEW_CHAINS) few_factors(factor[0], scales + added * FEW_PIECE, slot); /* while chains are made */
      if (b < SPEC_K_BLOCKS) {
        few_sums &begun = chain[b % FEW_CHAINS];
        ptx_multiply_fence();
        ptx_multiply_e4m3_anew(begun, w + b * (FEW_W_BLOCK / 16u), x + b * (FEW_X_BLOCK / 16u));
#pragma unroll
        for (u32 i = 1; i < 4u; i++)
          ptx_multiply_e4m3(begun, w + b * (FEW_W_BLOCK / 16u) + i * 2u, x + b * (FEW_X_BLOCK / 16u) + i * 2u);
        ptx_multiply_commit();
      }
      if (b + 1u < FEW_CHAINS) continue;
      if (FEW_KEPT > 1u && b + 1u == FEW_CHAINS) few_kept_factors(factor, scales, slot);
      few_wait(num_least(FEW_CHAINS, SPEC_K_BLOCKS - added) - 1u);
#pragma unroll
      for (u32 i = 0; i < FEW_ACCUMULATORS; i++) {
        ptx_hold(chain[added % FEW_CHAINS][i]); /* not read before the wait */
        if (added < count) sum[i] = num_fma(chain[added % FEW_CHAINS][i], factor[added % FEW_KEPT][i], sum[i]); /* R13.2 */
      }
    }
    __syncwarp();
    if (threadIdx.x % 32u == 0) ptx_barrier_arrive(few_empty(r, r.stage));
    blocks -= count;
    few_next(r);
  } while (blocks);
}

#endif

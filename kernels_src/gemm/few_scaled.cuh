/* few_scaled.cuh - what products of scaled e4m3 numbers add to few.cuh: scales that come with their stage, and sums of 128 k each.
 *
 * A row of 128 bytes holds 128 k, so tiles, boxes and ring are those of bf16. Behind the ring of W every stage has, for each 128 k, the
 * scales of SPEC_TILE_ROWS token rows and those of the tile's weight rows, which lie in two groups of 128 at most, for Y_SILU in as many
 * again: four slots. Lanes of the warps W and X copy them, four bytes each, as part of the stage.
 * The H32 chains of 128 k begin anew, so up to four are made while those before are added: C = fma(a, s_x * s_w, C), k ascending.
 * The last stage of a k that is no whole number of stages multiplies what lies there, and drops it.
 * One multiplication takes 64 weight rows. Tiles of up to 32 fill them with two blocks of 128 k, side by side (FEW_SIDE): a box brings both
 * blocks of each row, one behind the other, as two rows of the operand; token rows of the second block are further columns. Of the four
 * quarters of the result, two are sums of a weight row and a token row over the same block. On an H200 64 x 8 x 32 takes 20.6 cycles,
 * 64 x 32 x 32 takes 27: a third of the time of multiplications is saved at 16 token rows, up to half at fewer. What multiplications and
 * additions take adds up: 16 rows of 2112 x 7168 take 4.6 us without both, 5.4 without additions, 5.2 without multiplications, 6.2 with
 * both. Chains that stay under way from a stage to the next gain nothing: over two or four stages 7.3 and 7.5 us, over one, with factors
 * read as late as there, 7.3; as it stands 6.4 in that run.
 * Read next: fp8_gemm_few.cuh. */
#ifndef VERBATIM_FEW_SCALED_CUH
#define VERBATIM_FEW_SCALED_CUH
#include "gemm/few.cuh"

#define FEW_SLOTS 4u
#define FEW_PIECE (FEW_COLUMNS + FEW_SLOTS) /* numbers: scales of 128 k */
#define FEW_SCALES (SPEC_K_BLOCKS * FEW_PIECE * 4u) /* bytes of a stage */
#define FEW_SCALED_END (FEW_END + SPEC_STAGES * FEW_SCALES)
#define FEW_STEPS (SPEC_K_BLOCKS / FEW_SIDE) /* of a stage: multiplications of 128 k, or of as many side by side */
#define FEW_CHAINS (FEW_STEPS < 4u ? FEW_STEPS : 4u) /* made at a time */
#define FEW_KEPT (SPEC_TILE_ROWS > 16u ? FEW_SIDE : SPEC_K_BLOCKS) /* times 128 k that a thread holds factors of */
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

/* By the whole warp W: the rows of a tile's weights with their scales, [.][blocks] from the matrix's first on. paced: the ring is filled no
 * faster than 44 bytes a cycle at first, two to three times what the memory gives to all, so that token rows do not queue behind it. */
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
      ptx_barrier_expect(few_full(r), (count + FEW_SIDE - 1u) / FEW_SIDE * (FEW_SIDE * FEW_W_BLOCK));
      for (u32 i = 0; i < count; i += FEW_SIDE)
        if (FEW_SIDE == 1u) ptx_copy_box(few_w(r) + i * FEW_W_BLOCK, map, (block + i) * FEW_BLOCK_K, row, matrix, few_full(r), policy);
        else ptx_copy_box(few_w(r) + i * FEW_W_BLOCK, map, 0, block + i, row, matrix, few_full(r), policy);
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

typedef f32 few_sums[FEW_ACCUMULATORS];
typedef f32 few_chain[FEW_SIDE * FEW_COLUMNS / 2u]; /* of one multiplication */

/* What the thread's results of 128 k are multiplied by (R13.1). slot: of its weight rows. */
NUM void few_factors(few_sums &factor, const f32 *scales, const u32 (&slot)[2]) {
  const f32 w[2] = {scales[FEW_COLUMNS + slot[0]], scales[FEW_COLUMNS + slot[1]]};
#pragma unroll
  for (u32 i = 0; i < FEW_ACCUMULATORS; i += 2u) {
    const float2 x = *(const float2 *)(scales + few_column(i));
    const u32 h = FEW_SIDE == 1u ? i / 2u % 2u : 0;
    factor[i] = num_mul(x.x, w[h]);
    factor[i + 1u] = num_mul(x.y, w[h]);
  }
}

/* The same of FEW_KEPT times 128 k, whose reads are waited for once. */
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

/* Adds a chain of FEW_SIDE blocks, of which `count` exist, k ascending (R13.2). */
#if FEW_SIDE == 1u
NUM void few_add(few_sums &sum, const few_chain &chain, const few_sums *factor, u32 count) {
#pragma unroll
  for (u32 i = 0; i < FEW_ACCUMULATORS; i++)
    if (count > 0) sum[i] = num_fma(chain[i], factor[0][i], sum[i]);
}
#else
/* Of the quarters of a result, two rows by two blocks of columns, that of the first row and the first block counts and that of the second
 * row and the second block. A lane with an even row has the first of them for two weight rows, the lane 4 behind it the second: each
 * gives what it has of the other's weight row. */
NUM void few_add(few_sums &sum, const few_chain &chain, const few_sums *factor, u32 count) {
  const bool is_second = threadIdx.x / 4u % 2u;
#pragma unroll
  for (u32 i = 0; i < FEW_ACCUMULATORS; i++) {
    const u32 first = i / 2u * 4u + i % 2u, second = first + FEW_COLUMNS / 2u; /* of the upper weight row; 2 more: the lower one's */
    const f32 own = is_second ? chain[second + 2u] : chain[first], given = is_second ? chain[second] : chain[first + 2u];
    const f32 taken = __shfl_xor_sync(WARP_ALL, given, 4);
    if (count > 0) sum[i] = num_fma(is_second ? taken : own, factor[0][i], sum[i]);
    if (count > 1u) sum[i] = num_fma(is_second ? own : taken, factor[1][i], sum[i]);
  }
}
#endif

/* By the warps that multiply: sum = the scaled sums of the next tile over `blocks` times 128 k. gathered: as few_product's. */
NUM void few_scaled_product(few_sums &sum, few_ring &r, u32 blocks, bool gathered, const u32 (&slot)[2], const u8 *shared) {
  const u64 x_form = SPEC_TILE_ROWS == 1u ? PTX_ONE_ROW : PTX_SWIZZLED;
  few_chain chain[FEW_CHAINS];
  few_sums factor[FEW_KEPT];
#pragma unroll
  for (u32 i = 0; i < FEW_CHAINS; i++)
#pragma unroll
    for (u32 j = 0; j < FEW_SIDE * FEW_COLUMNS / 2u; j++) chain[i][j] = 0.0f;
#pragma unroll
  for (u32 i = 0; i < FEW_ACCUMULATORS; i++) sum[i] = 0.0f;
  do {
    const u32 count = num_least(SPEC_K_BLOCKS, blocks);
    const f32 *scales = (const f32 *)(shared + (few_scales(r) - ptx_shared(shared)));
    ptx_barrier_wait(few_full(r), r.parity);
    if (gathered) ptx_fence_async();
    const u64 w = ptx_operand(PTX_SWIZZLED, few_w(r)), x = ptx_operand(x_form, few_x(r));
#pragma unroll
    for (u32 step = 0; step < FEW_STEPS + FEW_CHAINS - 1u; step++) { /* begins step, adds the one that began FEW_CHAINS - 1 before */
      const u32 added = step + 1u - FEW_CHAINS, block = added * FEW_SIDE;
      if (FEW_KEPT == FEW_SIDE && step + 1u >= FEW_CHAINS) /* while chains are made */
        few_kept_factors(factor, scales + block * FEW_PIECE, slot);
      if (step < FEW_STEPS) {
        const u64 w_step = w + step * (FEW_SIDE * FEW_W_BLOCK / 16u), x_step = x + step * (FEW_SIDE * FEW_X_BLOCK / 16u);
        few_chain &begun = chain[step % FEW_CHAINS];
        ptx_multiply_fence();
        ptx_multiply_e4m3_anew(begun, w_step, x_step);
#pragma unroll
        for (u32 i = 1; i < 4u; i++) ptx_multiply_e4m3(begun, w_step + i * 2u, x_step + i * 2u);
        ptx_multiply_commit();
      }
      if (step + 1u < FEW_CHAINS) continue;
      if (FEW_KEPT > FEW_SIDE && step + 1u == FEW_CHAINS) few_kept_factors(factor, scales, slot);
      few_wait(num_least(FEW_CHAINS, FEW_STEPS - added) - 1u);
#pragma unroll
      for (u32 j = 0; j < FEW_SIDE * FEW_COLUMNS / 2u; j++) ptx_hold(chain[added % FEW_CHAINS][j]); /* not read before the wait */
      few_add(sum, chain[added % FEW_CHAINS], &factor[block % FEW_KEPT], count - num_least(count, block));
    }
    __syncwarp();
    if (threadIdx.x % 32u == 0) ptx_barrier_arrive(few_empty(r, r.stage));
    blocks -= count;
    few_next(r);
  } while (blocks);
}

#endif

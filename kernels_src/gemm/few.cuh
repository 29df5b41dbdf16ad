/* few.cuh - products of few token rows at the speed of memory: what those of bf16 numbers (few_plain.cuh) and of e4m3 ones (few_scaled.cuh)
 * share.
 *
 * A tile is SPEC_TILE_N weight rows (8 to 64, so that tiles fill all multiprocessors evenly) times SPEC_TILE_ROWS token rows; a block
 * walks over its tiles through one ring that never drains. The weights are the 64-row operand: where a tile has fewer, the other
 * rows are whatever lies behind it, and their results are dropped, as are those of token columns that do not exist. Six warps: four
 * multiply, one thread copies weights, which no kernel of the step writes, before ptx_grid_wait, and one warp copies token rows, so
 * that these never wait behind weights.
 * A stage of the ring holds SPEC_K_BLOCKS times 64 k (of e4m3 128) of both operands; boxes of as many by tensor map, 128-byte swizzle. With
 * SPEC_TILE_ROWS 1 the token row is copied as it is, without map and swizzle: a row of eight tokens of which seven are zeros costs more
 * than eight real ones. Read next: few_plain.cuh, few_scaled.cuh. */
#ifndef VERBATIM_FEW_CUH
#define VERBATIM_FEW_CUH
#include "ptx/ptx.cuh"

static_assert(SPEC_TILE_N >= 8 && SPEC_TILE_N <= 64 && SPEC_TILE_N % 8 == 0, "weight rows: whole groups of the operand");
static_assert(SPEC_TILE_ROWS == 1 || SPEC_TILE_ROWS == 8 || SPEC_TILE_ROWS == 16 || SPEC_TILE_ROWS == 32,
              "token rows: one, or a width of ptx_multiply");
static_assert(SPEC_STAGES >= 2 && SPEC_STAGES <= 63, "a stage is given back when the next one has come");
static_assert(SPEC_K_BLOCKS >= 1 && SPEC_K_BLOCKS <= 16 && SPEC_THREADS >= 192 && SPEC_MAPS == 1, "see above");

#define FEW_COLUMNS (SPEC_TILE_ROWS < 8u ? 8u : SPEC_TILE_ROWS) /* of the multiplication */
#ifdef FEW_SCALED
#define FEW_BLOCK_K 128u
#define FEW_SIDE FP8_FEW_SIDE(SPEC_TILE_N, SPEC_K_BLOCKS) /* blocks of k side by side in one multiplication, few_scaled.cuh */
#else
#define FEW_BLOCK_K 64u
#define FEW_SIDE 1u
#endif
#define FEW_ACCUMULATORS (FEW_COLUMNS / 2 / FEW_SIDE) /* results of a thread */
#define FEW_X_BLOCK (SPEC_TILE_ROWS * 128u) /* bytes of FEW_BLOCK_K */
#define FEW_W_BLOCK (SPEC_TILE_N * 128u)
#define FEW_X_RING ((SPEC_STAGES * SPEC_K_BLOCKS * FEW_X_BLOCK + 1023u) & ~1023u)
#define FEW_W_RING (SPEC_STAGES * SPEC_K_BLOCKS * FEW_W_BLOCK)
#define FEW_HALF (SPEC_TILE_N / 2u) /* of Y_SILU: so many gate rows, then the up rows that belong to them */
#define FEW_PITCH (SPEC_TILE_N + 4u) /* of a token's sums in shared memory; the 4 keep banks apart */
#define FEW_EXCHANGE (FEW_PITCH * FEW_COLUMNS * 4u)
#define FEW_BEHIND ((64u - SPEC_TILE_N) * 128u) /* what the operand's missing rows read behind the last stage */
#define FEW_TAIL (FEW_EXCHANGE > FEW_BEHIND ? FEW_EXCHANGE : FEW_BEHIND)
#define FEW_END (1024u + FEW_X_RING + FEW_W_RING + FEW_TAIL) /* from few_base on */


enum few_warp { FEW_W_WARP = 4, FEW_X_WARP = 5 }; /* below them: the warpgroup that multiplies */

typedef struct few_ring { u32 base, stage, parity; } few_ring; /* one role's place in the ring */

NUM u32 few_base(const void *shared) { return (ptx_shared(shared) + 1023u) & ~1023u; }
NUM u32 few_full(const few_ring &r) { return r.base + r.stage * 16u; }
NUM u32 few_empty(const few_ring &r, u32 stage) { return r.base + stage * 16u + 8u; }
NUM u32 few_x(const few_ring &r) { return r.base + 1024u + r.stage * (SPEC_K_BLOCKS * FEW_X_BLOCK); }
NUM u32 few_w(const few_ring &r) { return r.base + 1024u + FEW_X_RING + r.stage * (SPEC_K_BLOCKS * FEW_W_BLOCK); }

NUM void few_next(few_ring &r) {
  if (++r.stage < SPEC_STAGES) return;
  r.stage = 0;
  r.parity ^= 1u;
}

/* By all threads, once. A stage is full when W and X have announced their bytes and these have come, empty when four warps have left it.
 * x_arrivals: of X, where threads copy it, w_arrivals of W. */
NUM few_ring few_start(const void *shared, const tensor_maps &maps, u32 x_arrivals, u32 w_arrivals = 1u) {
  const few_ring r = {few_base(shared), 0, 0};
  if (threadIdx.x == 0) {
    ptx_fetch_map(&maps.w);
    if (SPEC_TILE_ROWS > 1u) ptx_fetch_map(&maps.x);
    for (u32 stage = 0; stage < SPEC_STAGES; stage++) {
      ptx_barrier_init(r.base + stage * 16u, w_arrivals + x_arrivals);
      ptx_barrier_init(few_empty(r, stage), 4);
    }
    ptx_barrier_ready();
  }
  __syncthreads();
  return r;
}

/* Where a thread's accumulator i stands in the tile. With blocks side by side all of them are of one row: of two lanes, 4 apart, the first
 * has the row of their upper results, the second that of their lower ones. */
NUM u32 few_row(u32 i) {
  const u32 warp = threadIdx.x / 32u, up = threadIdx.x % 32u / 4u;
  return FEW_SIDE == 1u ? warp * 16u + up + i / 2u % 2u * 8u : warp * 8u + up / 2u + up % 2u * 4u;
}
NUM u32 few_column(u32 i) { return i * FEW_SIDE / 4u * 8u + threadIdx.x % 4u * 2u + i % 2u; }

/* Gate and up rows of a tile lie in different threads: they meet in shared memory behind the ring, where all threads share the work. */
NUM void few_store_silu(const f32 (&acc)[FEW_ACCUMULATORS], bf16 *y, u64 ldy, u32 rows, u32 n0, u32 n, const few_ring &r, u8 *shared) {
  f32 *sums = (f32 *)(shared + (r.base - ptx_shared(shared)) + 1024u + FEW_X_RING + FEW_W_RING);
  ptx_warps_sync(1, 128); /* the last tile's have been read */
#pragma unroll
  for (u32 i = 0; i < FEW_ACCUMULATORS; i++)
    if (few_row(i) < SPEC_TILE_N) sums[few_column(i) * FEW_PITCH + few_row(i)] = acc[i];
  ptx_warps_sync(1, 128); /* this tile's are there */
  for (u32 i = threadIdx.x; i < rows * FEW_HALF; i += 128u) {
    const u32 column = i / FEW_HALF, row = i % FEW_HALF;
    const f32 *gate = sums + column * FEW_PITCH + row;
    if (n0 + row < n) y[column * ldy + n0 + row] = num_to_bf16(num_mul(num_silu(gate[0]), gate[FEW_HALF]));
  }
}

/* Columns n0 .. of the first `rows` rows of y; n: columns of y. */
NUM void few_store(const f32 (&acc)[FEW_ACCUMULATORS], u32 y_kind, void *y, u64 offset, u64 ldy, u32 rows, u32 n0, u32 n,
                   const few_ring &r, u8 *shared) {
  if (y_kind == Y_SILU) {
    few_store_silu(acc, (bf16 *)y + offset, ldy, rows, n0, n, r, shared);
    return;
  }
#pragma unroll
  for (u32 i = 0; i < FEW_ACCUMULATORS; i++) {
    const u32 row = few_row(i), column = few_column(i);
    const u64 at = offset + column * ldy + n0 + row;
    if (row >= SPEC_TILE_N || column >= rows || n0 + row >= n) continue;
    if (y_kind == Y_F32) ((f32 *)y)[at] = acc[i];
    else ((bf16 *)y)[at] = num_to_bf16(acc[i]);
  }
}

#endif

/* small_m.cuh - matrix products of few token rows at memory speed: the parts common to bf16 numbers (small_m_plain.cuh) and to scaled
 * e4m3 numbers (small_m_scaled.cuh).
 *
 * A tile is SPEC_TILE_N weight rows (8 to 64, so that tiles fill all multiprocessors evenly) by SPEC_TILE_ROWS token rows; a block walks
 * over its tiles through one ring that never drains. The weights are the 64-row operand of the MMA: where a tile has fewer, the other
 * rows read what lies after it, and their results are dropped, as are those of missing token columns. Six warps: a consumer warpgroup
 * multiplies, warp W loads weights, before ptx_grid_wait since no kernel of the step writes them, and warp X loads token rows, which
 * therefore never queue after weights.
 * Shared memory from small_m_base on: barriers (1024 bytes), ring of X, ring of W, silu exchange or over-read rows, scales. A stage holds
 * SPEC_K_BLOCKS blocks of 64 k (e4m3: 128) of both operands, TMA boxes with 128-byte swizzle. With SPEC_TILE_ROWS 1 the token row is copied
 * as it is, without tensor map and swizzle: eight rows of which seven are zeros cost more than eight real ones.
 * Read next: small_m_plain.cuh, small_m_dense.cuh. */
#ifndef VERBATIM_SMALL_M_CUH
#define VERBATIM_SMALL_M_CUH
#include "ptx/ptx.cuh"

#ifndef GEMM_SCALED
#define GEMM_SCALED 0u /* 1: e4m3 numbers with scales, small_m_scaled.cuh */
#endif
#ifndef GEMM_BIAS
#define GEMM_BIAS 0u /* 1: a bias is added to the sums; not with scales */
#endif
#define GEMM_LAUNCH __launch_bounds__(SPEC_THREADS, 1) /* with the 1, the assembler uses more registers for a better schedule */

static_assert(SPEC_TILE_N >= 8 && SPEC_TILE_N <= 64 && SPEC_TILE_N % 8 == 0, "weight rows: whole groups of the operand");
static_assert(SPEC_TILE_ROWS == 1 || SPEC_TILE_ROWS == 8 || SPEC_TILE_ROWS == 16 || SPEC_TILE_ROWS == 32,
              "token rows: one, or a width of ptx_multiply");
static_assert(SPEC_STAGES >= 2 && SPEC_STAGES <= 63, "a stage is released when the next one is full");
static_assert(SPEC_K_BLOCKS >= 1 && SPEC_K_BLOCKS <= 16 && SPEC_THREADS >= 192 && SPEC_MAPS == 1, "see above");

#define SMALL_M_COLUMNS (SPEC_TILE_ROWS < 8u ? 8u : SPEC_TILE_ROWS) /* of the MMA */
#if GEMM_SCALED
#define SMALL_M_BLOCK_K 128u
#define SMALL_M_MMA_BLOCKS FP8_MMA_BLOCKS(SPEC_TILE_N, SPEC_K_BLOCKS) /* blocks of k in one MMA, see small_m_scaled.cuh */
#define SMALL_M_HALF FP8_HALF(SPEC_TILE_N, SPEC_K_BLOCKS) /* Y_SILU: this many gate rows, then their up rows */
#else
#define SMALL_M_BLOCK_K 64u
#define SMALL_M_MMA_BLOCKS 1u
#define SMALL_M_HALF (SPEC_TILE_N / 2u)
#endif
#define SMALL_M_ACCUMULATORS (SMALL_M_COLUMNS / 2 / SMALL_M_MMA_BLOCKS) /* of a thread */
#define SMALL_M_X_BYTES (SPEC_TILE_ROWS * 128u) /* of a block of k */
#define SMALL_M_W_BYTES (SPEC_TILE_N * 128u)
#define SMALL_M_X_RING_BYTES ((SPEC_STAGES * SPEC_K_BLOCKS * SMALL_M_X_BYTES + 1023u) & ~1023u)
#define SMALL_M_W_RING_BYTES (SPEC_STAGES * SPEC_K_BLOCKS * SMALL_M_W_BYTES)
#define SMALL_M_PITCH (SPEC_TILE_N + 4u) /* of a token's sums in shared memory; the 4 avoid bank conflicts */
#define SMALL_M_SILU_BYTES (SMALL_M_PITCH * SMALL_M_COLUMNS * 4u)
#define SMALL_M_OVERREAD_BYTES ((64u - SPEC_TILE_N) * 128u) /* read past the last stage as the operand's missing rows */
#define SMALL_M_TAIL_BYTES (SMALL_M_SILU_BYTES > SMALL_M_OVERREAD_BYTES ? SMALL_M_SILU_BYTES : SMALL_M_OVERREAD_BYTES)
/* Offset from small_m_base of what follows the rings: the scales of e4m3 numbers. */
#define SMALL_M_SCALES_AT (1024u + SMALL_M_X_RING_BYTES + SMALL_M_W_RING_BYTES + SMALL_M_TAIL_BYTES)

enum small_m_warp { SMALL_M_W_WARP = 4, SMALL_M_X_WARP = 5 }; /* producer warps; below them: the consumer warpgroup */

typedef struct small_m_ring { u32 base, stage, parity; } small_m_ring; /* one role's position in the ring */

NUM u32 small_m_base(const void *shared) { return (ptx_shared(shared) + 1023u) & ~1023u; }
NUM u32 small_m_full(const small_m_ring &r) { return r.base + r.stage * 16u; }
NUM u32 small_m_empty(const small_m_ring &r, u32 stage) { return r.base + stage * 16u + 8u; }
NUM u32 small_m_x(const small_m_ring &r) { return r.base + 1024u + r.stage * (SPEC_K_BLOCKS * SMALL_M_X_BYTES); }
NUM u32 small_m_w(const small_m_ring &r) { return r.base + 1024u + SMALL_M_X_RING_BYTES + r.stage * (SPEC_K_BLOCKS * SMALL_M_W_BYTES); }

NUM void small_m_next(small_m_ring &r) {
  if (++r.stage < SPEC_STAGES) return;
  r.stage = 0;
  r.parity ^= 1u;
}

/* By all threads, once. A stage is full once the producers of W and X have arrived and their bytes have landed, empty once four warps have
 * released it. x_arrivals, w_arrivals: threads of each producer that arrive. */
NUM small_m_ring small_m_start(const void *shared, const tensor_maps &maps, u32 x_arrivals, u32 w_arrivals = 1u) {
  const small_m_ring r = {small_m_base(shared), 0, 0};
  if (threadIdx.x == 0) {
    ptx_fetch_map(&maps.w);
    if (SPEC_TILE_ROWS > 1u) ptx_fetch_map(&maps.x);
    for (u32 stage = 0; stage < SPEC_STAGES; stage++) {
      ptx_barrier_init(r.base + stage * 16u, w_arrivals + x_arrivals);
      ptx_barrier_init(small_m_empty(r, stage), 4);
    }
    ptx_barrier_ready();
  }
  __syncthreads();
  return r;
}

/* Row and column of a thread's accumulator i in the tile. With two blocks of k in an MMA all of a thread's sums are of one row: its upper
 * results are of the first block, its lower ones of the second. */
NUM u32 small_m_row(u32 i) {
  const u32 warp = threadIdx.x / 32u, up = threadIdx.x % 32u / 4u;
  return SMALL_M_MMA_BLOCKS == 1u ? warp * 16u + up + i / 2u % 2u * 8u : warp * 8u + up;
}
NUM u32 small_m_column(u32 i) { return i * SMALL_M_MMA_BLOCKS / 4u * 8u + threadIdx.x % 4u * 2u + i % 2u; }

/* The bias of both rows of a thread's sums; `columns` columns of y, from n0 on those of the tile. */
NUM void small_m_load_bias(f32 (&bias)[2], const bf16 *from, u32 n0, u32 columns, u32 is_silu) {
#pragma unroll
  for (u32 i = 0; i < 2u; i++) {
    const u32 row = small_m_row(2u * i), is_up = is_silu && row >= SMALL_M_HALF, column = n0 + row - is_up * SMALL_M_HALF;
    bias[i] = row < SPEC_TILE_N && column < columns ? num_from_bf16(from[column + is_up * columns]) : 0.0f;
  }
}

/* Gate and up rows of a tile are held by different threads, so they are exchanged through shared memory after the rings. */
NUM void small_m_store_silu(const f32 (&acc)[SMALL_M_ACCUMULATORS], bf16 *y, u64 ldy, u32 rows, u32 n0, u32 n, const small_m_ring &r,
                            u8 *shared) {
  f32 *sums = (f32 *)(shared + (r.base - ptx_shared(shared)) + 1024u + SMALL_M_X_RING_BYTES + SMALL_M_W_RING_BYTES);
  ptx_warps_sync(1, 128); /* the previous tile's sums have been read */
#pragma unroll
  for (u32 i = 0; i < SMALL_M_ACCUMULATORS; i++)
    if (small_m_row(i) < SPEC_TILE_N) sums[small_m_column(i) * SMALL_M_PITCH + small_m_row(i)] = acc[i];
  ptx_warps_sync(1, 128); /* this tile's sums are there */
  for (u32 i = threadIdx.x; i < rows * SMALL_M_HALF; i += 128u) {
    const u32 column = i / SMALL_M_HALF, row = i % SMALL_M_HALF;
    const f32 *gate = sums + column * SMALL_M_PITCH + row;
    if (n0 + row < n) y[column * ldy + n0 + row] = num_to_bf16(num_mul(num_silu(gate[0]), gate[SMALL_M_HALF]));
  }
}

/* Stores columns n0 .. of the first `rows` rows; n: columns of y. */
NUM void small_m_store(const f32 (&acc)[SMALL_M_ACCUMULATORS], u32 y_kind, void *y, u64 offset, u64 ldy, u32 rows, u32 n0, u32 n,
                   const small_m_ring &r, u8 *shared) {
  if (y_kind == Y_SILU) {
    small_m_store_silu(acc, (bf16 *)y + offset, ldy, rows, n0, n, r, shared);
    return;
  }
#pragma unroll
  for (u32 i = 0; i < SMALL_M_ACCUMULATORS; i++) {
    const u32 row = small_m_row(i), column = small_m_column(i);
    const u64 at = offset + column * ldy + n0 + row;
    if (row >= SPEC_TILE_N || column >= rows || n0 + row >= n) continue;
    if (y_kind == Y_F32) ((f32 *)y)[at] = acc[i];
    else ((bf16 *)y)[at] = num_to_bf16(acc[i]);
  }
}

#endif

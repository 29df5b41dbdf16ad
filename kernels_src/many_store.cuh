/* many_store.cuh - the tiles of many.cuh, and how a tile's sums become rows of the result.
 *
 * Thread t of a warpgroup holds, in d[4 * j + 2 * h + e], column 16 * (t / 32) + t % 32 / 4 + 8 * h of the warpgroup's 64 and of token row
 * 8 * j + 2 * (t % 4) + e. fp32 goes to memory from registers, 64 bytes of a row at a time; bf16 is turned in shared memory
 * first and goes in whole rows of the warpgroup. Of gate and up, h 0 is the gate and h 1 up. Read next: many.cuh. */
#ifndef VERBATIM_MANY_STORE_CUH
#define VERBATIM_MANY_STORE_CUH
#include "ptx.cuh"

#ifndef SPEC_CLUSTER_ROWS
#define SPEC_CLUSTER_ROWS 1u
#endif
#ifndef SPEC_DEPTH
#define SPEC_DEPTH 1u
#endif
#define KERNEL_CLUSTER SPEC_CLUSTER
#define MANY_BESIDE (SPEC_CLUSTER / SPEC_CLUSTER_ROWS) /* blocks of a cluster that have the same tokens */
#define MANY_CONSUMERS (SPEC_TILE_N / 64u) /* warpgroups that multiply, each 64 weight rows */
#define MANY_STEP (SPEC_TILE_ROWS < 256u ? SPEC_TILE_ROWS : 16u) /* between widths */
#define MANY_BOX (SPEC_TILE_ROWS < 256u ? SPEC_TILE_ROWS / MANY_BESIDE : 64u) /* token rows that are copied at a time */
#define MANY_ACCUMULATORS (SPEC_TILE_ROWS / 2u)
#define MANY_W_BYTES (SPEC_TILE_N * 128u) /* of 64 k */
#define MANY_X_BYTES (SPEC_TILE_ROWS * 128u)
#define MANY_STAGE_BYTES (SPEC_DEPTH * (MANY_W_BYTES + MANY_X_BYTES))
#define MANY_CHUNK (SPEC_TILE_ROWS < 64u ? 32u : 64u) /* token rows that a warpgroup turns in shared memory at a time */
#ifdef __CUDACC_RTC__
#define NUM_MEMBER __device__ __forceinline__
#else
#define NUM_MEMBER
#endif
#define MANY_BARRIER_BYTES 256u

static_assert(SPEC_TILE_N == 64 || SPEC_TILE_N == 128, "weight rows of one or two warpgroups");
static_assert(SPEC_TILE_ROWS % 16 == 0 && MANY_BOX % 8 == 0, "token rows: whole groups of the operand");
static_assert(SPEC_TILE_N / SPEC_CLUSTER_ROWS % 16 == 0, "weight rows: whole groups of the operand, of gate and up");
static_assert(SPEC_THREADS == 128u * (1u + MANY_CONSUMERS), "one warpgroup fills");
static_assert(SPEC_STAGES >= 2 && SPEC_STAGES <= 16, "barriers have 256 bytes");

typedef struct many_tile {
  u32 matrix;    /* of w: batch or expert                               */
  u32 n0;        /* first column                                        */
  u32 row, rows; /* this block's token rows; rows may be 0              */
  u32 width;     /* of the multiplication                               */
} many_tile;

typedef struct many_result { /* where the rows go */
  u8 *y;
  u64 ldy;
  u32 n, kind; /* n: columns of y */
} many_result;

typedef f32 many_sums[MANY_ACCUMULATORS];

/* A warpgroup's 64 columns from n0 on of the tile's rows, fp32. Neighbouring lanes exchange halves: 8 bytes a lane, 64 a row. Thirty-two
 * rows at a time: exchanges first, then stores, so that neither waits for the other one by one. */
NUM void many_store_f32(many_sums &acc, const many_result &to, const many_tile &tile, u32 n0) {
  const u32 t = threadIdx.x % 128u, odd = t / 4u % 2u, column = n0 + t / 32u * 16u + t % 32u / 4u + odd * 7u, row0 = t % 4u * 2u;
  const u32 rows = column < to.n && row0 < tile.rows ? tile.rows - row0 : 0u; /* from this thread's first on */
  f32 *y = (f32 *)to.y + (u64)(tile.row + row0) * to.ldy + column;
#pragma unroll
  for (u32 first = 0; first < MANY_ACCUMULATORS; first += 16u) {
    if (first * 2u >= tile.width) break;
#pragma unroll
    for (u32 i = first; i < first + 16u && i < MANY_ACCUMULATORS; i++) ptx_hold(acc[i]);
    f32 other[8];
#pragma unroll
    for (u32 i = 0; i < 8; i++) {
      const u32 at = first + i / 2u * 4u + i % 2u;
      if (at < MANY_ACCUMULATORS) other[i] = __shfl_xor_sync(WARP_ALL, odd ? acc[at] : acc[at + 2u], 4);
    }
#pragma unroll
    for (u32 i = 0; i < 8; i++) {
      const u32 at = first + i / 2u * 4u + i % 2u;
      if (at < MANY_ACCUMULATORS && first * 2u + i / 2u * 8u + i % 2u < rows)
        *(float2 *)(y + i % 2u * to.ldy) = odd ? make_float2(other[i], acc[at + 2u]) : make_float2(acc[at], other[i]);
      if (i % 2u == 1u) y += 8u * to.ldy;
    }
  }
}

/* Two sums rounded to bf16; of rows that a narrow tile does not have, 0. */
NUM u32 many_pair(const many_sums &acc, u32 at) {
  return at < MANY_ACCUMULATORS ? ptx_pack_bf16(acc[at % MANY_ACCUMULATORS], acc[at % MANY_ACCUMULATORS + 1u]) : 0u;
}

/* The same rounded to bf16: turned in shared memory so that rows are written in 16-byte pieces, 128 bytes a row. */
NUM void many_store_bf16(const many_sums &acc, const many_result &to, const many_tile &tile, u32 n0, const u8 *shared,
                         u32 turn) {
  const u32 t = threadIdx.x % 128u, lane = t % 32u, number = 1u + threadIdx.x / 128u;
  const u8 *tile_at = shared + (turn - ptx_shared(shared));
  bf16 *y = (bf16 *)to.y + (u64)tile.row * to.ldy + n0 + t % 8u * 8u;
#pragma unroll
  for (u32 first = 0; first < SPEC_TILE_ROWS; first += MANY_CHUNK) {
    if (first >= tile.rows) break;
    ptx_warps_sync(number, 128); /* what stood there has been read */
#pragma unroll
    for (u32 i = 0; i < MANY_CHUNK; i += 16u) {
      if (first + i >= tile.width) break;
      const u32 row = i + lane / 16u * 8u + lane % 8u, piece = t / 32u * 2u + lane / 8u % 2u;
      const u32 d = (first + i) / 2u;
      ptx_store_transposed(turn + row * 128u + (piece ^ row % 8u) * 16u, many_pair(acc, d), many_pair(acc, d + 2u),
                           many_pair(acc, d + 4u), many_pair(acc, d + 6u));
    }
    ptx_warps_sync(number, 128); /* the chunk is whole */
#pragma unroll
    for (u32 i = 0; i < MANY_CHUNK; i += 16u) {
      const u32 row = i + t / 8u;
      if (first + row < tile.rows && n0 + t % 8u * 8u < to.n)
        *(uint4 *)(y + (first + row) * to.ldy) = *(const uint4 *)(tile_at + row * 128u + (t % 8u ^ row % 8u) * 16u);
    }
  }
}

/* gate = silu(gate) * up: R5.1 to R5.4. Sixteen at a time, since a division ends what the compiler can do side by side. */
#define MANY_SILUS (MANY_ACCUMULATORS < 32u ? MANY_ACCUMULATORS / 2u : 16u)
NUM void many_silu(many_sums &acc, u32 width) {
#pragma unroll
  for (u32 first = 0; first < MANY_ACCUMULATORS; first += 2u * MANY_SILUS) {
    if (first * 2u >= width) break;
    f32 below[MANY_SILUS];
#pragma unroll
    for (u32 i = 0; i < MANY_SILUS; i++) below[i] = num_add(1.0f, num_exp(-acc[first + i / 2u * 4u + i % 2u]));
#pragma unroll
    for (u32 i = 0; i < MANY_SILUS; i++) ptx_hold(below[i]);
#pragma unroll
    for (u32 i = 0; i < MANY_SILUS; i++) {
      f32 &gate = acc[first + i / 2u * 4u + i % 2u];
      gate = num_mul(num_div(gate, below[i]), acc[first + i / 2u * 4u + 2u + i % 2u]);
    }
  }
}

#define MANY_SILU_PIECES 4u /* of 16 bytes: what a warpgroup has of a row */
NUM u32 many_silu_place(u32 row, u32 piece) { return row * (MANY_SILU_PIECES * 16u) + (piece ^ row / 2u % 4u) * 16u; }

/* A warpgroup's columns from n0 on, gate and up in one: R5.5. */
NUM void many_store_silu(many_sums &acc, const many_result &to, const many_tile &tile, u32 n0, const u8 *shared, u32 turn) {
  const u32 t = threadIdx.x % 128u, lane = t % 32u, number = 1u + threadIdx.x / 128u;
  const u8 *tile_at = shared + (turn - ptx_shared(shared));
  const u32 column = t % MANY_SILU_PIECES * 8u;
  bf16 *y = (bf16 *)to.y + (u64)tile.row * to.ldy + n0 + column;
  many_silu(acc, tile.width);
#pragma unroll
  for (u32 first = 0; first < SPEC_TILE_ROWS; first += MANY_CHUNK) {
    if (first >= tile.rows) break;
    ptx_warps_sync(number, 128); /* what stood there has been read */
#pragma unroll
    for (u32 i = 0; i < MANY_CHUNK; i += 32u) {
      if (first + i >= tile.width) break;
      const u32 d = (first + i) / 2u;
      ptx_store_transposed(turn + many_silu_place(i + lane, t / 32u), many_pair(acc, d), many_pair(acc, d + 4u), many_pair(acc, d + 8u),
                           many_pair(acc, d + 12u));
    }
    ptx_warps_sync(number, 128); /* the chunk is whole */
#pragma unroll
    for (u32 i = 0; i < MANY_CHUNK; i += 128u / MANY_SILU_PIECES) {
      const u32 row = i + t / MANY_SILU_PIECES;
      if (first + row < tile.rows && n0 + column < to.n)
        *(uint4 *)(y + (first + row) * to.ldy) = *(const uint4 *)(tile_at + many_silu_place(row, t % MANY_SILU_PIECES));
    }
  }
}

NUM void many_store(many_sums &acc, const many_result &to, const many_tile &tile, u32 group, const u8 *shared, u32 turn) {
  const u32 n0 = tile.n0 + group * (to.kind == Y_SILU ? 32u : 64u);
  if (to.kind == Y_SILU) many_store_silu(acc, to, tile, n0, shared, turn);
  else if (to.kind == Y_F32) many_store_f32(acc, to, tile, n0);
  else many_store_bf16(acc, to, tile, n0, shared, turn);
}

#endif

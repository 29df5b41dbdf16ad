/* many_store.cuh - the tiles of many.cuh, and how a tile's sums of bf16 products become rows of the result.
 *
 * Thread t of a warpgroup holds, in d[4 * j + 2 * h + e], column 16 * (t / 32) + t % 32 / 4 + 8 * h of the warpgroup's 64 and of token row
 * 8 * j + 2 * (t % 4) + e. fp32 goes to memory from registers, 64 bytes of a row at a time; bf16 is turned in shared memory
 * first and goes in whole rows of the warpgroup. Of gate and up, h 0 is the gate and h 1 up. Read next: many.cuh. */
#ifndef VERBATIM_MANY_STORE_CUH
#define VERBATIM_MANY_STORE_CUH
#include "ptx/ptx.cuh"

#ifndef MANY_SCALED
#define MANY_SCALED 0u /* 1: numbers are e4m3 with scales, and token rows the 64-row operand: many_scaled.cuh */
#endif
#define MANY_K (MANY_SCALED ? 128u : 64u) /* numbers in 128 bytes: a block of k */
#ifdef SPEC_CLUSTER_ROWS /* of gemm: tiles of less than 256 rows are never narrower */
#define MANY_STEP (SPEC_TILE_ROWS < 256u ? SPEC_TILE_ROWS : MANY_SCALED ? 128u : 16u)
#else
#define SPEC_CLUSTER_ROWS 1u
#define MANY_STEP (MANY_SCALED ? 64u : 16u)
#endif
#ifndef SPEC_DEPTH
#define SPEC_DEPTH 1u
#endif
#define KERNEL_CLUSTER SPEC_CLUSTER
#define MANY_BESIDE (SPEC_CLUSTER / SPEC_CLUSTER_ROWS) /* blocks of a cluster that have the same tokens */
#define MANY_CONSUMERS (SPEC_THREADS / 128u - 1u) /* warpgroups that multiply */
#define MANY_BOX (MANY_STEP > 16u ? MANY_STEP / MANY_BESIDE : SPEC_TILE_ROWS > 128u ? 32u : 16u) /* token rows that one copy brings */
#define MANY_ACCUMULATORS (SPEC_TILE_ROWS / 2u)
#define MANY_W_BYTES (SPEC_TILE_N * 128u) /* of a block of k */
#define MANY_X_BYTES (SPEC_TILE_ROWS * 128u)
#define MANY_STAGE_BYTES (SPEC_DEPTH * (MANY_W_BYTES + MANY_X_BYTES))
/* Token rows that a warpgroup turns in shared memory at a time. */
#define MANY_CHUNK (SPEC_TILE_ROWS % 32u ? 16u : SPEC_TILE_ROWS % 64u ? 32u : 64u)
#define MANY_SILU_CHUNK (MANY_CHUNK < 32u ? 32u : MANY_CHUNK) /* half of a row is gates */
#ifdef __CUDACC_RTC__
#define NUM_MEMBER __device__ __forceinline__
#else
#define NUM_MEMBER
#endif
#define MANY_BARRIER_BYTES 256u
#define MANY_SCALE_BYTES (MANY_SCALED ? SPEC_TILE_ROWS * 4u + 16u : 0u) /* of a stage: of its token rows, and of its weights */

static_assert(SPEC_TILE_N == 64 || SPEC_TILE_N == 128, "weight rows of one or two warpgroups");
static_assert(SPEC_TILE_ROWS % 16u == 0 && SPEC_TILE_ROWS <= 256 && MANY_BOX % 8 == 0, "token rows: widths of ptx_multiply");
static_assert(SPEC_TILE_N / SPEC_CLUSTER_ROWS % 16 == 0, "weight rows: whole groups of the operand, of gate and up");
static_assert(MANY_CONSUMERS == (MANY_SCALED && SPEC_TILE_ROWS > 64 ? 2u : SPEC_TILE_N / 64u), "one warpgroup fills, others have 64 rows");
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

/* A warpgroup's 64 columns from n0 on of the tile's rows, fp32. Neighbouring lanes exchange halves, of 32 rows at a time: 8 bytes a lane,
 * 64 a row. */
NUM void many_store_f32(many_sums &acc, const many_result &to, const many_tile &tile, u32 n0) {
  const u32 t = threadIdx.x % 128u, odd = t / 4u % 2u, column = n0 + t / 32u * 16u + t % 32u / 4u + odd * 7u;
  const u32 rows = column < to.n ? tile.rows : 0u;
  f32 *y = (f32 *)to.y + (u64)(tile.row + t % 4u * 2u) * to.ldy + column;
#pragma unroll
  for (u32 first = 0; first < MANY_ACCUMULATORS; first += 16u) {
    if (first * 2u >= tile.width) break;
    f32 other[8];
#pragma unroll
    for (u32 i = 0; i < 16u && first + i < MANY_ACCUMULATORS; i++) ptx_hold(acc[first + i]); /* not before they are done */
#pragma unroll
    for (u32 i = 0; i < 8u && first + i * 2u < MANY_ACCUMULATORS; i++) {
      const u32 low = first + i / 2u * 4u + i % 2u;
      other[i] = __shfl_xor_sync(WARP_ALL, odd ? acc[low] : acc[low + 2u], 4);
    }
#pragma unroll
    for (u32 i = 0; i < 8u && first + i * 2u < MANY_ACCUMULATORS; i++) {
      const u32 low = first + i / 2u * 4u + i % 2u, row = first * 2u + i / 2u * 8u + t % 4u * 2u + i % 2u;
      ptx_store_if(row < rows, y + i % 2u * to.ldy, odd ? other[i] : acc[low], odd ? acc[low + 2u] : other[i]);
      if (i % 2u == 1u) y += 8u * to.ldy;
    }
  }
}

/* The same rounded to bf16: turned in shared memory so that rows are written in 16-byte pieces, 128 bytes a row. */
NUM void many_store_bf16(const many_sums &acc, const many_result &to, const many_tile &tile, u32 n0, const u8 *shared,
                         u32 turn) {
  const u32 t = threadIdx.x % 128u, lane = t % 32u, number = 1u + threadIdx.x / 128u;
  const u8 *tile_at = shared + (turn - ptx_shared(shared));
  const u32 rows = n0 + t % 8u * 8u < to.n ? tile.rows : 0u;
  bf16 *y = (bf16 *)to.y + (u64)(tile.row + t / 8u) * to.ldy + n0 + t % 8u * 8u;
#pragma unroll
  for (u32 first = 0; first < SPEC_TILE_ROWS; first += MANY_CHUNK) {
    if (first >= tile.rows) break;
    ptx_warps_sync(number, 128); /* what stood there has been read */
#pragma unroll
    for (u32 i = 0; i < MANY_CHUNK; i += 16u) {
      if (first + i >= tile.width) break;
      const u32 row = i + lane / 16u * 8u + lane % 8u, piece = t / 32u * 2u + lane / 8u % 2u;
      const f32 *d = acc + (first + i) / 2u;
      ptx_store_transposed(turn + row * 128u + (piece ^ row % 8u) * 16u, ptx_pack_bf16(d[0], d[1]), ptx_pack_bf16(d[2], d[3]),
                           ptx_pack_bf16(d[4], d[5]), ptx_pack_bf16(d[6], d[7]));
    }
    ptx_warps_sync(number, 128); /* the chunk is whole */
    uint4 piece[MANY_CHUNK / 16u];
#pragma unroll
    for (u32 i = 0; i < MANY_CHUNK / 16u; i++) {
      const u32 row = i * 16u + t / 8u;
      piece[i] = *(const uint4 *)(tile_at + row * 128u + (t % 8u ^ row % 8u) * 16u);
    }
#pragma unroll
    for (u32 i = 0; i < MANY_CHUNK / 16u; i++, y += 16u * to.ldy) ptx_store_if(first + i * 16u + t / 8u < rows, y, piece[i]);
  }
}

/* num_silu without branches, for |x| <= 87: the quotient needs no second look there (all of them were compared on an H200). A zero keeps
 * its sign since what is left of it is added with the other one. */
NUM f32 many_silu_plain(f32 x) {
  const f32 below = num_add(1.0f, num_exp_plain(-x));
  f32 inverse = ptx_inverse(below);
  inverse = num_fma(num_fma(-below, inverse, 1.0f), inverse, inverse);
  const f32 q = num_mul(x, inverse);
  return num_fma(-num_fma(below, q, -x), inverse, q);
}

/* The gates of a tile of this width, in groups of this size: gate = f(gate, up). */
template <u32 GROUP, class F> NUM void many_gates(many_sums &acc, u32 width, F f) {
#pragma unroll
  for (u32 first = 0; first < MANY_ACCUMULATORS; first += GROUP * 2u) {
    if (first * 2u >= width) break;
#pragma unroll
    for (u32 i = 0; i < GROUP && first + i * 2u < MANY_ACCUMULATORS; i++)
      f(acc[first + i / 2u * 4u + i % 2u], acc[first + i / 2u * 4u + 2u + i % 2u]);
  }
}

/* gate = silu(gate) * up: R5.1 to R5.4. Almost always all gates of a warp are plain. */
NUM void many_silu(many_sums &acc, u32 width) {
  f32 most = 0.0f;
  many_gates<4>(acc, width, [&](f32 gate, f32) { most = fmaxf(most, fabsf(gate)); });
  if (!__any_sync(WARP_ALL, most > 87.0f))
    many_gates<8>(acc, width, [](f32 &gate, f32 up) { gate = num_mul(many_silu_plain(gate), up); });
  else
    many_gates<8>(acc, width, [](f32 &gate, f32 up) { gate = num_mul(num_silu(gate), up); });
}

/* In shared memory: 64 bytes of a row. */
NUM u32 many_silu_place(u32 row, u32 piece) { return row * 64u + (piece ^ row / 2u % 4u) * 16u; }

/* A warpgroup's columns from n0 on, gate and up in one: R5.5. */
NUM void many_store_silu(many_sums &acc, const many_result &to, const many_tile &tile, u32 n0, const u8 *shared, u32 turn) {
  const u32 t = threadIdx.x % 128u, lane = t % 32u, number = 1u + threadIdx.x / 128u;
  const u8 *tile_at = shared + (turn - ptx_shared(shared));
  const u32 column = n0 + t % 4u * 8u, rows = column < to.n ? tile.rows : 0u;
  bf16 *y = (bf16 *)to.y + (u64)(tile.row + t / 4u) * to.ldy + column;
  many_silu(acc, tile.width);
#pragma unroll
  for (u32 first = 0; first < SPEC_TILE_ROWS; first += MANY_SILU_CHUNK) {
    if (first >= tile.rows) break;
    ptx_warps_sync(number, 128); /* what stood there has been read */
#pragma unroll
    for (u32 i = 0; i < MANY_SILU_CHUNK; i += 32u) {
      if (first + i >= tile.width) break;
      const f32 *d = acc + (first + i) / 2u;
      const bool all = first + i + 16u < SPEC_TILE_ROWS;
      ptx_store_transposed(turn + many_silu_place(i + lane, t / 32u), ptx_pack_bf16(d[0], d[1]), ptx_pack_bf16(d[4], d[5]),
                           all ? ptx_pack_bf16(d[8], d[9]) : 0u, all ? ptx_pack_bf16(d[12], d[13]) : 0u);
    }
    ptx_warps_sync(number, 128); /* the chunk is whole */
    uint4 piece[MANY_SILU_CHUNK / 32u];
#pragma unroll
    for (u32 i = 0; i < MANY_SILU_CHUNK / 32u; i++) piece[i] = *(const uint4 *)(tile_at + many_silu_place(i * 32u + t / 4u, t % 4u));
#pragma unroll
    for (u32 i = 0; i < MANY_SILU_CHUNK / 32u; i++, y += 32u * to.ldy) ptx_store_if(first + i * 32u + t / 4u < rows, y, piece[i]);
  }
}

NUM void many_store(many_sums &acc, const many_result &to, const many_tile &tile, u32 group, const u8 *shared, u32 turn) {
  const u32 n0 = tile.n0 + group * (to.kind == Y_SILU ? 32u : 64u);
  if (to.kind == Y_SILU) many_store_silu(acc, to, tile, n0, shared, turn);
  else if (to.kind == Y_F32) many_store_f32(acc, to, tile, n0);
  else many_store_bf16(acc, to, tile, n0, shared, turn);
}

#endif

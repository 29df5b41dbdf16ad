/* large_m_store.cuh - the tile shapes of large_m.cuh, and how the sums of a tile of bf16 products are stored as rows of the result.
 *
 * Thread t of a warpgroup holds, in d[4 * j + 2 * h + e], column 16 * (t / 32) + t % 32 / 4 + 8 * h of the warpgroup's 64 and of token row
 * 8 * j + 2 * (t % 4) + e. fp32 goes to memory from registers, 64 bytes of a row at a time; bf16 is transposed in shared memory first and
 * goes in whole rows of the warpgroup. For gate and up, h 0 is the gate and h 1 up. Read next: large_m.cuh. */
#ifndef VERBATIM_LARGE_M_STORE_CUH
#define VERBATIM_LARGE_M_STORE_CUH
#include "ptx/ptx.cuh"

#ifndef GEMM_SCALED
#define GEMM_SCALED 0u /* 1: numbers are e4m3 with scales, and token rows the 64-row operand: large_m_scaled.cuh */
#endif
#ifndef GEMM_BIAS
#define GEMM_BIAS 0u /* 1: a bias is added to the sums; not with scales */
#endif
#define LARGE_M_K (GEMM_SCALED ? 128u : 64u) /* a block of k: the numbers in 128 bytes */
#ifdef SPEC_CLUSTER_ROWS /* dense: tiles of less than 256 rows have one width */
#define LARGE_M_STEP (SPEC_TILE_ROWS < 256u ? SPEC_TILE_ROWS : GEMM_SCALED ? 128u : 16u)
#else
#define SPEC_CLUSTER_ROWS 1u
#define LARGE_M_STEP (GEMM_SCALED ? 64u : 16u)
#endif
#ifndef SPEC_DEPTH
#define SPEC_DEPTH 1u
#endif
#define KERNEL_CLUSTER SPEC_CLUSTER
#define GEMM_LAUNCH __cluster_dims__(1, SPEC_CLUSTER, 1) __launch_bounds__(SPEC_THREADS)
#define CLUSTER_COLUMNS (SPEC_CLUSTER / SPEC_CLUSTER_ROWS) /* blocks of a cluster with the same tokens */
#define LARGE_M_CONSUMERS (SPEC_THREADS / 128u - 1u) /* consumer warpgroups */
/* Token rows of a TMA box. */
#define LARGE_M_BOX (LARGE_M_STEP > 16u ? LARGE_M_STEP / CLUSTER_COLUMNS : SPEC_TILE_ROWS > 128u ? 32u : 16u)
#define LARGE_M_ACCUMULATORS (SPEC_TILE_ROWS / 2u)
#define LARGE_M_W_BYTES (SPEC_TILE_N * 128u) /* of a block of k */
#define LARGE_M_X_BYTES (SPEC_TILE_ROWS * 128u)
#define LARGE_M_STAGE_BYTES (SPEC_DEPTH * (LARGE_M_W_BYTES + LARGE_M_X_BYTES))
/* Token rows that a warpgroup transposes in shared memory at a time. */
#define LARGE_M_CHUNK (SPEC_TILE_ROWS % 32u ? 16u : SPEC_TILE_ROWS % 64u ? 32u : 64u)
#define LARGE_M_SILU_CHUNK (LARGE_M_CHUNK < 32u ? 32u : LARGE_M_CHUNK) /* half of a row is gates */
#ifdef __CUDACC_RTC__
#define NUM_MEMBER __device__ __forceinline__
#else
#define NUM_MEMBER
#endif
#define LARGE_M_BARRIER_BYTES 256u
#define LARGE_M_SCALE_BYTES (GEMM_SCALED ? SPEC_TILE_ROWS * 4u + 16u : 0u) /* of a stage: its token rows, its weights */

static_assert(SPEC_TILE_N == 64 || SPEC_TILE_N == 128, "weight rows of one or two warpgroups");
static_assert(SPEC_TILE_ROWS % 16u == 0 && SPEC_TILE_ROWS <= 256 && LARGE_M_BOX % 8 == 0, "token rows: widths of ptx_multiply");
static_assert(SPEC_TILE_N / SPEC_CLUSTER_ROWS % 16 == 0, "weight rows: whole groups of the operand, of gate and up");
static_assert(LARGE_M_CONSUMERS == (GEMM_SCALED && SPEC_TILE_ROWS > 64 ? 2u : SPEC_TILE_N / 64u),
              "one producer warpgroup, consumers of 64 rows each");
static_assert(SPEC_STAGES >= 2 && SPEC_STAGES <= 16, "barriers have 256 bytes");

typedef struct large_m_tile {
  u32 matrix;    /* of w: batch or expert                               */
  u32 n0;        /* first column                                        */
  u32 row, rows; /* this block's token rows; rows may be 0              */
  u32 width;     /* token rows of the MMA                               */
} large_m_tile;

typedef struct large_m_result { /* where rows are stored */
  u8 *y;
  u64 ldy;
  u32 n, kind; /* n: columns of y */
} large_m_result;

typedef f32 large_m_sums[LARGE_M_ACCUMULATORS];

/* Stores a warpgroup's 64 columns from n0 on as fp32. Neighbouring lanes exchange halves, 32 rows at a time: 8 bytes a lane, 64 a row. */
NUM void large_m_store_f32(large_m_sums &acc, const large_m_result &to, const large_m_tile &tile, u32 n0) {
  const u32 t = threadIdx.x % 128u, odd = t / 4u % 2u, column = n0 + t / 32u * 16u + t % 32u / 4u + odd * 7u;
  const u32 rows = column < to.n ? tile.rows : 0u;
  f32 *y = (f32 *)to.y + (u64)(tile.row + t % 4u * 2u) * to.ldy + column;
#pragma unroll
  for (u32 first = 0; first < LARGE_M_ACCUMULATORS; first += 16u) {
    if (first * 2u >= tile.width) break;
    f32 other[8];
#pragma unroll
    for (u32 i = 0; i < 16u && first + i < LARGE_M_ACCUMULATORS; i++) ptx_hold(acc[first + i]); /* keeps reads after the wait */
#pragma unroll
    for (u32 i = 0; i < 8u && first + i * 2u < LARGE_M_ACCUMULATORS; i++) {
      const u32 low = first + i / 2u * 4u + i % 2u;
      other[i] = __shfl_xor_sync(WARP_ALL, odd ? acc[low] : acc[low + 2u], 4);
    }
#pragma unroll
    for (u32 i = 0; i < 8u && first + i * 2u < LARGE_M_ACCUMULATORS; i++) {
      const u32 low = first + i / 2u * 4u + i % 2u, row = first * 2u + i / 2u * 8u + t % 4u * 2u + i % 2u;
      ptx_store_if(row < rows, y + i % 2u * to.ldy, odd ? other[i] : acc[low], odd ? acc[low + 2u] : other[i]);
      if (i % 2u == 1u) y += 8u * to.ldy;
    }
  }
}

/* The same rounded to bf16: transposed in shared memory so that rows are written in 16-byte pieces, 128 bytes a row. */
NUM void large_m_store_bf16(const large_m_sums &acc, const large_m_result &to, const large_m_tile &tile, u32 n0, const u8 *shared,
                            u32 staging) {
  const u32 t = threadIdx.x % 128u, lane = t % 32u, number = 1u + threadIdx.x / 128u;
  const u8 *tile_at = shared + (staging - ptx_shared(shared));
  const u32 rows = n0 + t % 8u * 8u < to.n ? tile.rows : 0u;
  bf16 *y = (bf16 *)to.y + (u64)(tile.row + t / 8u) * to.ldy + n0 + t % 8u * 8u;
#pragma unroll
  for (u32 first = 0; first < SPEC_TILE_ROWS; first += LARGE_M_CHUNK) {
    if (first >= tile.rows) break;
    ptx_warps_sync(number, 128); /* the previous chunk has been read */
#pragma unroll
    for (u32 i = 0; i < LARGE_M_CHUNK; i += 16u) {
      if (first + i >= tile.width) break;
      const u32 row = i + lane / 16u * 8u + lane % 8u, piece = t / 32u * 2u + lane / 8u % 2u;
      const f32 *d = acc + (first + i) / 2u;
      ptx_store_transposed(staging + row * 128u + (piece ^ row % 8u) * 16u, ptx_pack_bf16(d[0], d[1]), ptx_pack_bf16(d[2], d[3]),
                           ptx_pack_bf16(d[4], d[5]), ptx_pack_bf16(d[6], d[7]));
    }
    ptx_warps_sync(number, 128); /* the chunk is whole */
    uint4 piece[LARGE_M_CHUNK / 16u];
#pragma unroll
    for (u32 i = 0; i < LARGE_M_CHUNK / 16u; i++) {
      const u32 row = i * 16u + t / 8u;
      piece[i] = *(const uint4 *)(tile_at + row * 128u + (t % 8u ^ row % 8u) * 16u);
    }
#pragma unroll
    for (u32 i = 0; i < LARGE_M_CHUNK / 16u; i++, y += 16u * to.ldy) ptx_store_if(first + i * 16u + t / 8u < rows, y, piece[i]);
  }
}

/* num_silu without branches, for |x| <= 87, where the quotient needs no correction for special cases (all such x were compared on an
 * H200). A zero keeps its sign since its remainder is added with the opposite one. */
NUM f32 large_m_silu_plain(f32 x) {
  const f32 below = num_add(1.0f, num_exp_plain(-x));
  f32 inverse = ptx_inverse(below);
  inverse = num_fma(num_fma(-below, inverse, 1.0f), inverse, inverse);
  const f32 q = num_mul(x, inverse);
  return num_fma(-num_fma(below, q, -x), inverse, q);
}

/* Calls f(gate, up) for the gates of a tile of this width, in groups of GROUP. */
template <u32 GROUP, class F> NUM void large_m_gates(large_m_sums &acc, u32 width, F f) {
#pragma unroll
  for (u32 first = 0; first < LARGE_M_ACCUMULATORS; first += GROUP * 2u) {
    if (first * 2u >= width) break;
#pragma unroll
    for (u32 i = 0; i < GROUP && first + i * 2u < LARGE_M_ACCUMULATORS; i++)
      f(acc[first + i / 2u * 4u + i % 2u], acc[first + i / 2u * 4u + 2u + i % 2u]);
  }
}

/* gate = silu(gate) * up: R5.1 to R5.4. Almost always the fast path serves all gates of a warp. */
NUM void large_m_silu(large_m_sums &acc, u32 width) {
  f32 most = 0.0f;
  large_m_gates<4>(acc, width, [&](f32 gate, f32) { most = fmaxf(most, fabsf(gate)); });
  if (!__any_sync(WARP_ALL, most > 87.0f))
    large_m_gates<8>(acc, width, [](f32 &gate, f32 up) { gate = num_mul(large_m_silu_plain(gate), up); });
  else
    large_m_gates<8>(acc, width, [](f32 &gate, f32 up) { gate = num_mul(num_silu(gate), up); });
}

/* Offset in the staging memory: rows of 64 bytes, swizzled. */
NUM u32 large_m_silu_offset(u32 row, u32 piece) { return row * 64u + (piece ^ row / 2u % 4u) * 16u; }

/* Stores a warpgroup's columns from n0 on, gate and up combined: R5.5. */
NUM void large_m_store_silu(large_m_sums &acc, const large_m_result &to, const large_m_tile &tile, u32 n0, const u8 *shared, u32 staging) {
  const u32 t = threadIdx.x % 128u, lane = t % 32u, number = 1u + threadIdx.x / 128u;
  const u8 *tile_at = shared + (staging - ptx_shared(shared));
  const u32 column = n0 + t % 4u * 8u, rows = column < to.n ? tile.rows : 0u;
  bf16 *y = (bf16 *)to.y + (u64)(tile.row + t / 4u) * to.ldy + column;
  large_m_silu(acc, tile.width);
#pragma unroll
  for (u32 first = 0; first < SPEC_TILE_ROWS; first += LARGE_M_SILU_CHUNK) {
    if (first >= tile.rows) break;
    ptx_warps_sync(number, 128); /* the previous chunk has been read */
#pragma unroll
    for (u32 i = 0; i < LARGE_M_SILU_CHUNK; i += 32u) {
      if (first + i >= tile.width) break;
      const f32 *d = acc + (first + i) / 2u;
      const bool all = first + i + 16u < SPEC_TILE_ROWS;
      ptx_store_transposed(staging + large_m_silu_offset(i + lane, t / 32u), ptx_pack_bf16(d[0], d[1]), ptx_pack_bf16(d[4], d[5]),
                           all ? ptx_pack_bf16(d[8], d[9]) : 0u, all ? ptx_pack_bf16(d[12], d[13]) : 0u);
    }
    ptx_warps_sync(number, 128); /* the chunk is whole */
    uint4 piece[LARGE_M_SILU_CHUNK / 32u];
#pragma unroll
    for (u32 i = 0; i < LARGE_M_SILU_CHUNK / 32u; i++) piece[i] = *(const uint4 *)(tile_at + large_m_silu_offset(i * 32u + t / 4u, t % 4u));
#pragma unroll
    for (u32 i = 0; i < LARGE_M_SILU_CHUNK / 32u; i++, y += 32u * to.ldy) ptx_store_if(first + i * 32u + t / 4u < rows, y, piece[i]);
  }
}

/* acc = the sums of a tile and the bias of their columns: R2.2. */
NUM void large_m_add_bias(large_m_sums &acc, const bf16 *from, const large_m_result &to, const large_m_tile &tile, u32 group) {
  const u32 t = threadIdx.x % 128u, is_silu = to.kind == Y_SILU, width = is_silu ? 8u : 16u; /* columns of a warp */
  const u32 column = tile.n0 + group * width * 4u + t / 32u * width + t % 32u / 4u, second = column + (is_silu ? to.n : 8u);
  f32 bias[2] = {0.0f, 0.0f};
  if (column < to.n) bias[0] = num_from_bf16(from[column]);
  if (is_silu ? column < to.n : second < to.n) bias[1] = num_from_bf16(from[second]);
#pragma unroll
  for (u32 i = 0; i < LARGE_M_ACCUMULATORS; i++) ptx_hold(acc[i]); /* keeps reads after the wait */
#pragma unroll
  for (u32 i = 0; i < LARGE_M_ACCUMULATORS; i++) acc[i] = num_add(acc[i], bias[i / 2u % 2u]);
}

NUM void large_m_store(large_m_sums &acc, const large_m_result &to, const large_m_tile &tile, u32 group, const u8 *shared, u32 staging) {
  const u32 n0 = tile.n0 + group * (to.kind == Y_SILU ? 32u : 64u);
  if (to.kind == Y_SILU) large_m_store_silu(acc, to, tile, n0, shared, staging);
  else if (to.kind == Y_F32) large_m_store_f32(acc, to, tile, n0);
  else large_m_store_bf16(acc, to, tile, n0, shared, staging);
}

#endif

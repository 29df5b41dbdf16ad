/* large_m_scaled.cuh - the consumer warpgroups of large_m.cuh for scaled e4m3 numbers, and the producer of scales: a part of large_m.cuh.
 *
 * Token rows are the 64-row operand, weights the other: a thread holds sums of two token rows, so a block of 128 k needs two products of
 * scales. With the operands swapped it would need one for each of its token rows, and reading them from shared memory would take half as
 * long as the MMAs. A block of k is a chain of its own in registers of its own, then multiplied by its scales and added, while the other
 * warpgroup multiplies. A warpgroup has 64 token rows (a wave), or of 256 rows 64 and then 64 more: the chain's registers serve both waves.
 * Tiles of 64 token rows are split by columns instead. Two producer warps load the scales, four blocks of k at a time: 16 bytes of a row.
 * Bound per 128 k, cycles: shared memory TILE_N + rows (TMA) + rows / 64 * (64 + TILE_N) (operands), tensor cores TILE_N * rows / 32: 1152
 * and 1024 for 256 x 128. Scales and sums take 80 instructions a wave and warp. On an H200, 7168 x 16384, 4096 rows: 1,115 TFLOP/s.
 * Thread t of a warpgroup holds, in d[4 * j + 2 * h + e], token row 16 * (t / 32) + t % 32 / 4 + 8 * h and column 8 * j + 2 * (t % 4) + e;
 * for gate and up, even j are gates and odd ones up. Studies: tools/bench/history, sparse-pipeline. Read next: large_m_dense.cuh. */
#ifndef VERBATIM_LARGE_M_SCALED_CUH
#define VERBATIM_LARGE_M_SCALED_CUH
#include "gemm/large_m.cuh"

#define LARGE_M_COLUMNS (SPEC_TILE_ROWS == 64u ? 64u : SPEC_TILE_N) /* of a warpgroup */
#define LARGE_M_WAVE_STRIDE (SPEC_TILE_ROWS == 64u ? 0u : 128u)           /* token rows between its two waves */
#define LARGE_M_WAVES (SPEC_TILE_ROWS == 256u ? 2u : 1u)
#define LARGE_M_SCALES (LARGE_M_SCALE_BYTES / 4u)
#define LARGE_M_SCALE_ROWS (SPEC_TILE_ROWS / 64u) /* whose scales a thread loads */
static_assert(SPEC_DEPTH == 1u, "a stage is a block of scales");
static_assert(SPEC_TILE_ROWS == 64u || SPEC_TILE_ROWS == 128u || SPEC_TILE_ROWS == 256u, "whole waves of the warpgroups");
static_assert(SPEC_STAGES * 16u <= LARGE_M_BARRIER_BYTES, "two barriers a stage");

typedef f32 large_m_chain[LARGE_M_COLUMNS / 2u];

/* Four numbers from `at` on, of which `left` exist; zeros for the others. whole: rows are multiples of four numbers, aligned. */
NUM float4 large_m_four(const f32 *at, u32 left, bool whole) {
  if (left == 0) return {0.0f, 0.0f, 0.0f, 0.0f};
  if (whole) return *(const float4 *)at;
  return {at[0], left > 1u ? at[1] : 0.0f, left > 2u ? at[2] : 0.0f, left > 3u ? at[3] : 0.0f};
}
NUM f32 large_m_of_four(const float4 &v, u32 i) { return i == 0 ? v.x : i == 1u ? v.y : i == 2u ? v.z : v.w; }

/* Warps 2 and 3: the scales of a stage's token rows, zeros for missing rows, then the scale of its weights twice, or those of gate and
 * up. */
template <class WORK> NUM void large_m_fill_scales(WORK &work, large_m_ring r, u8 *shared) {
  const u32 blocks = work.a.k / LARGE_M_K, columns = work.a.y_kind == Y_SILU ? work.a.n / 2u : work.a.n, thread = threadIdx.x - 64u;
  const bool whole = blocks % 4u == 0;
  large_m_tile tile;
  ptx_grid_wait();
  for (u32 item = large_m_cluster(); work.find(item, tile); item += large_m_clusters()) {
    const u32 n0 = tile.n0 < columns ? tile.n0 : 0u, up = work.a.y_kind == Y_SILU ? columns / SCALE_COLUMNS : 0u;
    const f32 *w = work.a.w_scale + ((u64)tile.matrix * ((work.a.n + SCALE_COLUMNS - 1u) / SCALE_COLUMNS) + n0 / SCALE_COLUMNS) * blocks;
    const f32 *x = work.a.x_scale + (u64)(tile.row + thread) * blocks;
    for (u32 first = 0; first < blocks; first += 4u) {
      const u32 left = blocks - first;
      const float4 of_w = large_m_four(w + thread * up * blocks + first, thread < 2u ? left : 0u, whole);
      float4 of_x[LARGE_M_SCALE_ROWS];
#pragma unroll
      for (u32 j = 0; j < LARGE_M_SCALE_ROWS; j++)
        of_x[j] = large_m_four(x + (u64)(j * 64u) * blocks + first, thread + j * 64u < tile.rows ? left : 0u, whole);
#pragma unroll
      for (u32 i = 0; i < 4u; i++) {
        if (i >= left) break;
        f32 *to = (f32 *)(shared + (r.scales - ptx_shared(shared))) + r.stage * LARGE_M_SCALES;
        ptx_barrier_wait(large_m_empty(r, r.stage), r.parity ^ 1u);
#pragma unroll
        for (u32 j = 0; j < LARGE_M_SCALE_ROWS; j++) to[thread + j * 64u] = large_m_of_four(of_x[j], i);
        if (thread < 2u) to[SPEC_TILE_ROWS + thread] = large_m_of_four(of_w, i);
        __syncwarp();
        if (threadIdx.x % 32u == 0) ptx_barrier_arrive(large_m_full(r, r.stage));
        large_m_advance(r);
      }
    }
  }
}

/* A block of k of a wave: d = the H32 chain of 64 token rows, by = the products of their scales for even and odd j. */
NUM void large_m_block(large_m_chain &d, f32 (&by)[2][2], u64 x, u64 w, const f32 *of_x, const f32 *of_w) {
  ptx_multiply_fence();
  ptx_multiply_e4m3_anew(d, x, w);
#pragma unroll
  for (u32 i = 1; i < 4u; i++) ptx_multiply_e4m3(d, x + i * 2u, w + i * 2u);
  ptx_multiply_commit();
#pragma unroll
  for (u32 i = 0; i < 4u; i++) {
    by[i / 2u][i % 2u] = num_mul(of_x[i / 2u * 8u], of_w[i % 2u]);
    ptx_hold(by[i / 2u][i % 2u]); /* scales are read before the stage is released */
  }
  PTX_MULTIPLY_WAIT(0);
}

/* sums += d * by, one rounding. */
NUM void large_m_add_scaled(large_m_chain &sums, const large_m_chain &d, const f32 (&by)[2][2]) {
#pragma unroll
  for (u32 i = 0; i < LARGE_M_COLUMNS / 2u; i++) sums[i] = num_fma(d[i], by[i / 2u % 2u][i / 4u % 2u], sums[i]);
}

/* The sums over k of a warpgroup's `waves` waves. */
NUM void large_m_product(large_m_chain (&sums)[LARGE_M_WAVES], large_m_ring &r, const f32 *scales, u32 group, u32 waves, u32 blocks) {
  const u32 left = large_m_release_barrier(r), rows = LARGE_M_WAVE_STRIDE ? group * 64u : 0u;
  const u32 row = rows + threadIdx.x % 128u / 32u * 16u + threadIdx.x % 32u / 4u;
  for (u32 block = 0; block < blocks; block++) {
    const u32 at = r.stages + r.stage * LARGE_M_STAGE_BYTES;
    const f32 *here = scales + r.stage * LARGE_M_SCALES;
    const u64 w = ptx_operand(PTX_SWIZZLED, at + (LARGE_M_WAVE_STRIDE ? 0u : group * 8192u));
    const u64 x = ptx_operand(PTX_SWIZZLED, at + LARGE_M_W_BYTES + rows * 128u);
    ptx_barrier_wait(large_m_full(r, r.stage), r.parity);
#pragma unroll
    for (u32 wave = 0; wave < LARGE_M_WAVES; wave++) {
      if (wave >= waves) break;
      large_m_chain d;
      f32 by[2][2];
      large_m_block(d, by, x + wave * (LARGE_M_WAVE_STRIDE * 8u), w, here + row + wave * LARGE_M_WAVE_STRIDE, here + SPEC_TILE_ROWS);
      if (wave + 1u == waves) large_m_release(left, r.stage);
      large_m_add_scaled(sums[wave], d, by);
    }
    if (waves == 0) large_m_release(left, r.stage);
    large_m_advance(r);
  }
}

/* Combines gates and ups: the result of even j and its neighbour goes to j / 2. */
template <class F> NUM void large_m_pairs(large_m_chain &sums, F f) {
#pragma unroll
  for (u32 i = 0; i < LARGE_M_COLUMNS / 4u; i++) sums[i] = f(sums[i / 4u * 8u + i % 4u], sums[i / 4u * 8u + i % 4u + 4u]);
}

/* silu(gate) * up: R5.1 to R5.4. Almost always the fast path serves all gates of a warp. */
NUM void large_m_scaled_silu(large_m_chain &sums) {
  f32 most = 0.0f;
#pragma unroll
  for (u32 i = 0; i < LARGE_M_COLUMNS / 4u; i++) most = fmaxf(most, fabsf(sums[i / 4u * 8u + i % 4u]));
  if (!__any_sync(WARP_ALL, most > 87.0f))
    large_m_pairs(sums, [](f32 gate, f32 up) { return num_mul(large_m_silu_plain(gate), up); });
  else
    large_m_pairs(sums, [](f32 gate, f32 up) { return num_mul(num_silu(gate), up); });
}

/* `columns` of the wave's columns as bf16, from column n0 of y on: a warp transposes its 16 rows in shared memory, 64 columns at a time. */
NUM void large_m_scaled_store_bf16(const large_m_chain &sums, const large_m_result &to, u32 row, u32 rows, u32 n0, u32 columns,
                                   u8 *staging) {
  const u32 lane = threadIdx.x % 32u, first_row = threadIdx.x % 128u / 32u * 16u, pieces = (columns < 64u ? columns : 64u) / 8u;
#pragma unroll
  for (u32 first = 0; first < LARGE_M_COLUMNS; first += 64u) {
    if (first >= columns) break;
    __syncwarp(); /* the previous chunk has been read */
#pragma unroll
    for (u32 i = 0; i < 16u; i++) {
      const u32 j = i / 2u, at = lane / 4u + i % 2u * 8u;
      if (j < pieces)
        *(u32 *)(staging + (first_row + at) * 128u + (j ^ at % 8u) * 16u + lane % 4u * 4u) =
            ptx_pack_bf16(sums[first / 2u + i * 2u], sums[first / 2u + i * 2u + 1u]);
    }
    __syncwarp(); /* the chunk is whole */
#pragma unroll
    for (u32 i = 0; i < 4u; i++) {
      const u32 at = first_row + i * 4u + lane / 8u, column = n0 + first + lane % 8u * 8u;
      const uint4 piece = *(const uint4 *)(staging + at * 128u + (lane % 8u ^ at % 8u) * 16u);
      ptx_store_if(at < rows && lane % 8u < pieces && column < to.n, (bf16 *)to.y + (u64)(row + at) * to.ldy + column, piece);
    }
  }
}

NUM void large_m_scaled_store_f32(const large_m_chain &sums, const large_m_result &to, u32 row, u32 rows, u32 n0) {
  const u32 lane = threadIdx.x % 32u, first_row = threadIdx.x % 128u / 32u * 16u + lane / 4u, column = n0 + lane % 4u * 2u;
  f32 *y = (f32 *)to.y + (u64)(row + first_row) * to.ldy + column;
#pragma unroll
  for (u32 i = 0; i < LARGE_M_COLUMNS / 2u; i += 2u)
    ptx_store_if(first_row + i / 2u % 2u * 8u < rows && column + i / 4u * 8u < to.n, y + i / 2u % 2u * 8u * to.ldy + i / 4u * 8u,
                 sums[i], sums[i + 1u]);
}

/* Stores a wave's 64 token rows from `row` on, of which `rows` exist. */
NUM void large_m_scaled_store(large_m_chain &sums, const large_m_result &to, u32 row, u32 rows, u32 n0, u8 *staging) {
  if (to.kind == Y_F32) {
    large_m_scaled_store_f32(sums, to, row, rows, n0);
    return;
  }
  if (to.kind == Y_SILU) large_m_scaled_silu(sums);
  large_m_scaled_store_bf16(sums, to, row, rows, n0, to.kind == Y_SILU ? LARGE_M_COLUMNS / 2u : LARGE_M_COLUMNS, staging);
}

/* A consumer warpgroup. */
template <class WORK> NUM void large_m_multiply(WORK &work, large_m_ring r, u8 *shared, u32 k) {
  const u32 group = ptx_uniform(threadIdx.x / 128u) - 1u, first = LARGE_M_WAVE_STRIDE ? group * 64u : 0u;
  u8 *staging = shared + (r.staging - ptx_shared(shared)) + group * LARGE_M_CHUNK * 128u;
  const f32 *scales = (const f32 *)(shared + (r.scales - ptx_shared(shared)));
  large_m_tile tile;
  ptx_grid_wait();
  for (u32 item = large_m_cluster(); work.find(item, tile); item += large_m_clusters()) {
    const u32 rows = tile.rows > first ? tile.rows - first : 0u, waves = (rows > 0u) + (LARGE_M_WAVES > 1u && rows > LARGE_M_WAVE_STRIDE);
    large_m_chain sums[LARGE_M_WAVES];
#pragma unroll
    for (u32 i = 0; i < LARGE_M_WAVES * LARGE_M_COLUMNS / 2u; i++) sums[i / (LARGE_M_COLUMNS / 2u)][i % (LARGE_M_COLUMNS / 2u)] = 0.0f;
    large_m_product(sums, r, scales, group, waves, k / LARGE_M_K);
    const u32 n0 = tile.n0 + (LARGE_M_WAVE_STRIDE ? 0u : group * (work.a.y_kind == Y_SILU ? 32u : 64u));
#pragma unroll
    for (u32 wave = 0; wave < LARGE_M_WAVES; wave++) {
      const u32 before = wave * LARGE_M_WAVE_STRIDE;
      if (wave < waves) large_m_scaled_store(sums[wave], work.result(tile), tile.row + first + before, rows - before, n0, staging);
    }
  }
}

#endif

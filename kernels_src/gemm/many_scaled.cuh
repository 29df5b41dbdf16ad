/* many_scaled.cuh - the multiplying side of many.cuh for e4m3 numbers with scales: a part of many.cuh.
 *
 * Token rows are the 64-row operand, weights the other: a thread holds sums of two token rows, so that a block of 128 k has two products of
 * scales, where the other way round it would have one for each of its token rows, and reading them from shared memory would take half as
 * long as the multiplication. A block of k is a chain of its own in registers of its own; then it is multiplied by its scales and added.
 * Meanwhile the other warpgroup multiplies. A warpgroup has 64 token rows, or, of 256, 64 and then 64 more: the chain's registers serve
 * both. Tiles of 64 token rows are shared out by columns instead.
 * Two warps of the filling warpgroup bring the scales, four blocks of k at a time: 16 bytes of each row.
 * Bound, per 128 k, cycles: shared memory TILE_N + rows (copies) + rows / 64 * (64 + TILE_N) (operands), tensor cores TILE_N * rows / 32:
 * 1152 and 1024 for 256 x 128. Scales and sums take 80 instructions a wave and warp beside it.
 * Thread t of a warpgroup holds, in d[4 * j + 2 * h + e], token row 16 * (t / 32) + t % 32 / 4 + 8 * h and column 8 * j + 2 * (t % 4) + e;
 * of gate and up, even j are gates and odd ones up. Read next: gemm_tiles.cuh. */
#ifndef VERBATIM_MANY_SCALED_CUH
#define VERBATIM_MANY_SCALED_CUH
#include "gemm/many.cuh"

#define MANY_COLUMNS (SPEC_TILE_ROWS == 64u ? 64u : SPEC_TILE_N) /* of a warpgroup */
#define MANY_APART (SPEC_TILE_ROWS == 64u ? 0u : 128u)           /* token rows between two of its waves */
#define MANY_WAVES (SPEC_TILE_ROWS == 256u ? 2u : 1u)
#define MANY_SCALES (MANY_SCALE_BYTES / 4u)
#define MANY_SCALE_ROWS (SPEC_TILE_ROWS / 64u) /* whose scales a thread brings */
static_assert(SPEC_DEPTH == 1u, "a stage is a block of scales");
static_assert(SPEC_TILE_ROWS == 64u || SPEC_TILE_ROWS == 128u || SPEC_TILE_ROWS == 256u, "whole waves of the warpgroups");
static_assert(SPEC_STAGES * 16u <= MANY_BARRIER_BYTES, "two barriers a stage");

typedef f32 many_chain[MANY_COLUMNS / 2u];

/* Four neighbours from `at` on, of which `left` exist, zeros for the others. whole: rows are multiples of four numbers, aligned. */
NUM float4 many_four(const f32 *at, u32 left, bool whole) {
  if (left == 0) return {0.0f, 0.0f, 0.0f, 0.0f};
  if (whole) return *(const float4 *)at;
  return {at[0], left > 1u ? at[1] : 0.0f, left > 2u ? at[2] : 0.0f, left > 3u ? at[3] : 0.0f};
}
NUM f32 many_of_four(const float4 &v, u32 i) { return i == 0 ? v.x : i == 1u ? v.y : i == 2u ? v.z : v.w; }

/* Warps 2 and 3: the scales of a stage's token rows, zeros for those that the tile does not have, and behind them the one of its weights
 * twice, or of gate and up. */
template <class WORK> NUM void many_fill_scales(WORK &work, many_ring r, u8 *shared) {
  const u32 blocks = work.a.k / MANY_K, columns = work.a.y_kind == Y_SILU ? work.a.n / 2u : work.a.n, thread = threadIdx.x - 64u;
  const bool whole = blocks % 4u == 0;
  many_tile tile;
  ptx_grid_wait();
  for (u32 item = many_cluster(); work.find(item, tile); item += many_clusters()) {
    const u32 n0 = tile.n0 < columns ? tile.n0 : 0u, up = work.a.y_kind == Y_SILU ? columns / SCALE_COLUMNS : 0u;
    const f32 *w = work.a.w_scale + ((u64)tile.matrix * ((work.a.n + SCALE_COLUMNS - 1u) / SCALE_COLUMNS) + n0 / SCALE_COLUMNS) * blocks;
    const f32 *x = work.a.x_scale + (u64)(tile.row + thread) * blocks;
    for (u32 first = 0; first < blocks; first += 4u) {
      const u32 left = blocks - first;
      const float4 of_w = many_four(w + thread * up * blocks + first, thread < 2u ? left : 0u, whole);
      float4 of_x[MANY_SCALE_ROWS];
#pragma unroll
      for (u32 j = 0; j < MANY_SCALE_ROWS; j++)
        of_x[j] = many_four(x + (u64)(j * 64u) * blocks + first, thread + j * 64u < tile.rows ? left : 0u, whole);
#pragma unroll
      for (u32 i = 0; i < 4u; i++) {
        if (i >= left) break;
        f32 *to = (f32 *)(shared + (r.scales - ptx_shared(shared))) + r.stage * MANY_SCALES;
        ptx_barrier_wait(many_empty(r, r.stage), r.parity ^ 1u);
#pragma unroll
        for (u32 j = 0; j < MANY_SCALE_ROWS; j++) to[thread + j * 64u] = many_of_four(of_x[j], i);
        if (thread < 2u) to[SPEC_TILE_ROWS + thread] = many_of_four(of_w, i);
        __syncwarp();
        if (threadIdx.x % 32u == 0) ptx_barrier_arrive(many_full(r, r.stage));
        many_advance(r);
      }
    }
  }
}

/* A wave's block of k: d = the H32 chain of 64 token rows, and by = the products of their scales for even and odd j. */
NUM void many_block(many_chain &d, f32 (&by)[2][2], u64 x, u64 w, const f32 *of_x, const f32 *of_w) {
  ptx_multiply_fence();
  ptx_multiply_e4m3_anew(d, x, w);
#pragma unroll
  for (u32 i = 1; i < 4u; i++) ptx_multiply_e4m3(d, x + i * 2u, w + i * 2u);
  ptx_multiply_commit();
#pragma unroll
  for (u32 i = 0; i < 4u; i++) {
    by[i / 2u][i % 2u] = num_mul(of_x[i / 2u * 8u], of_w[i % 2u]);
    ptx_hold(by[i / 2u][i % 2u]); /* scales are read before the stage is left */
  }
  PTX_MULTIPLY_WAIT(0);
}

/* sums += d * by, one rounding. */
NUM void many_promote(many_chain &sums, const many_chain &d, const f32 (&by)[2][2]) {
#pragma unroll
  for (u32 i = 0; i < MANY_COLUMNS / 2u; i++) sums[i] = num_fma(d[i], by[i / 2u % 2u][i / 4u % 2u], sums[i]);
}

/* The sums over k of a warpgroup's waves, of which it has `waves`. */
NUM void many_product(many_chain (&sums)[MANY_WAVES], many_ring &r, const f32 *scales, u32 group, u32 waves, u32 blocks) {
  const u32 left = many_left(r), rows = MANY_APART ? group * 64u : 0u, row = rows + threadIdx.x % 128u / 32u * 16u + threadIdx.x % 32u / 4u;
  for (u32 block = 0; block < blocks; block++) {
    const u32 at = r.stages + r.stage * MANY_STAGE_BYTES;
    const f32 *here = scales + r.stage * MANY_SCALES;
    const u64 w = ptx_operand(PTX_SWIZZLED, at + (MANY_APART ? 0u : group * 8192u));
    const u64 x = ptx_operand(PTX_SWIZZLED, at + MANY_W_BYTES + rows * 128u);
    ptx_barrier_wait(many_full(r, r.stage), r.parity);
#pragma unroll
    for (u32 wave = 0; wave < MANY_WAVES; wave++) {
      if (wave >= waves) break;
      many_chain d;
      f32 by[2][2];
      many_block(d, by, x + wave * (MANY_APART * 8u), w, here + row + wave * MANY_APART, here + SPEC_TILE_ROWS);
      if (wave + 1u == waves) many_leave(left, r.stage);
      many_promote(sums[wave], d, by);
    }
    if (waves == 0) many_leave(left, r.stage);
    many_advance(r);
  }
}

/* Results of gates and ups, which move together: what stands in even j comes to j / 2. */
template <class F> NUM void many_pairs(many_chain &sums, F f) {
#pragma unroll
  for (u32 i = 0; i < MANY_COLUMNS / 4u; i++) sums[i] = f(sums[i / 4u * 8u + i % 4u], sums[i / 4u * 8u + i % 4u + 4u]);
}

/* silu(gate) * up: R5.1 to R5.4. Almost always all gates of a warp are plain. */
NUM void many_scaled_silu(many_chain &sums) {
  f32 most = 0.0f;
#pragma unroll
  for (u32 i = 0; i < MANY_COLUMNS / 4u; i++) most = fmaxf(most, fabsf(sums[i / 4u * 8u + i % 4u]));
  if (!__any_sync(WARP_ALL, most > 87.0f))
    many_pairs(sums, [](f32 gate, f32 up) { return num_mul(many_silu_plain(gate), up); });
  else
    many_pairs(sums, [](f32 gate, f32 up) { return num_mul(num_silu(gate), up); });
}

/* `columns` of the wave's columns as bf16, from column n0 of y on: a warp turns its 16 rows in shared memory, 64 columns at a time. */
NUM void many_scaled_store_bf16(const many_chain &sums, const many_result &to, u32 row, u32 rows, u32 n0, u32 columns, u8 *turn) {
  const u32 lane = threadIdx.x % 32u, first_row = threadIdx.x % 128u / 32u * 16u, pieces = (columns < 64u ? columns : 64u) / 8u;
#pragma unroll
  for (u32 first = 0; first < MANY_COLUMNS; first += 64u) {
    if (first >= columns) break;
    __syncwarp(); /* what stood there has been read */
#pragma unroll
    for (u32 i = 0; i < 16u; i++) {
      const u32 j = i / 2u, at = lane / 4u + i % 2u * 8u;
      if (j < pieces)
        *(u32 *)(turn + (first_row + at) * 128u + (j ^ at % 8u) * 16u + lane % 4u * 4u) =
            ptx_pack_bf16(sums[first / 2u + i * 2u], sums[first / 2u + i * 2u + 1u]);
    }
    __syncwarp(); /* the chunk is whole */
#pragma unroll
    for (u32 i = 0; i < 4u; i++) {
      const u32 at = first_row + i * 4u + lane / 8u, column = n0 + first + lane % 8u * 8u;
      const uint4 piece = *(const uint4 *)(turn + at * 128u + (lane % 8u ^ at % 8u) * 16u);
      ptx_store_if(at < rows && lane % 8u < pieces && column < to.n, (bf16 *)to.y + (u64)(row + at) * to.ldy + column, piece);
    }
  }
}

NUM void many_scaled_store_f32(const many_chain &sums, const many_result &to, u32 row, u32 rows, u32 n0) {
  const u32 lane = threadIdx.x % 32u, first_row = threadIdx.x % 128u / 32u * 16u + lane / 4u, column = n0 + lane % 4u * 2u;
  f32 *y = (f32 *)to.y + (u64)(row + first_row) * to.ldy + column;
#pragma unroll
  for (u32 i = 0; i < MANY_COLUMNS / 2u; i += 2u)
    ptx_store_if(first_row + i / 2u % 2u * 8u < rows && column + i / 4u * 8u < to.n, y + i / 2u % 2u * 8u * to.ldy + i / 4u * 8u,
                 sums[i], sums[i + 1u]);
}

/* A wave's 64 token rows from `row` on, of which `rows` exist. */
NUM void many_scaled_store(many_chain &sums, const many_result &to, u32 row, u32 rows, u32 n0, u8 *turn) {
  if (to.kind == Y_F32) {
    many_scaled_store_f32(sums, to, row, rows, n0);
    return;
  }
  if (to.kind == Y_SILU) many_scaled_silu(sums);
  many_scaled_store_bf16(sums, to, row, rows, n0, to.kind == Y_SILU ? MANY_COLUMNS / 2u : MANY_COLUMNS, turn);
}

/* A multiplying warpgroup. */
template <class WORK> NUM void many_multiply(WORK &work, many_ring r, u8 *shared, u32 k) {
  const u32 group = ptx_uniform(threadIdx.x / 128u) - 1u, first = MANY_APART ? group * 64u : 0u;
  u8 *turn = shared + (r.turn - ptx_shared(shared)) + group * MANY_CHUNK * 128u;
  const f32 *scales = (const f32 *)(shared + (r.scales - ptx_shared(shared)));
  many_tile tile;
  ptx_grid_wait();
  for (u32 item = many_cluster(); work.find(item, tile); item += many_clusters()) {
    const u32 rows = tile.rows > first ? tile.rows - first : 0u, waves = (rows > 0u) + (MANY_WAVES > 1u && rows > MANY_APART);
    many_chain sums[MANY_WAVES];
#pragma unroll
    for (u32 i = 0; i < MANY_WAVES * MANY_COLUMNS / 2u; i++) sums[i / (MANY_COLUMNS / 2u)][i % (MANY_COLUMNS / 2u)] = 0.0f;
    many_product(sums, r, scales, group, waves, k / MANY_K);
    const u32 n0 = tile.n0 + (MANY_APART ? 0u : group * (work.a.y_kind == Y_SILU ? 32u : 64u));
#pragma unroll
    for (u32 wave = 0; wave < MANY_WAVES; wave++) {
      const u32 before = wave * MANY_APART;
      if (wave < waves) many_scaled_store(sums[wave], work.result(tile), tile.row + first + before, rows - before, n0, turn);
    }
  }
}

#endif

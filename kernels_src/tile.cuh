/* tile.cuh - the product of one tile, shared by gemm and moe_gemm.
 *
 * A block computes SPEC_TILE_N weight rows times SPEC_TILE_ROWS token rows. The weights are the 64-row operand: each
 * warpgroup owns 64 of them and the whole set of tokens, so that few tokens waste nothing. A ring of SPEC_STAGES stages in
 * shared memory, each 64 k of both operands in 128-byte swizzled rows, is filled by 16-byte asynchronous copies: rows may lie
 * anywhere, and rows that do not exist are zeros. One fp32 accumulator per output, k ascending in steps of 16: every
 * output is H16 whatever the tile. Read next: gemm.cu, moe_gemm.cu. */
#ifndef VERBATIM_TILE_CUH
#define VERBATIM_TILE_CUH
#include "ptx.cuh"

static_assert(SPEC_TILE_N == 64 || SPEC_TILE_N == 128, "weight rows: one or two warpgroups of 64");
static_assert(SPEC_TILE_ROWS == 16 || SPEC_TILE_ROWS == 64 || SPEC_TILE_ROWS == 128, "token rows: a width of ptx_multiply");
static_assert(SPEC_THREADS == 2 * SPEC_TILE_N, "a warpgroup per 64 weight rows");
static_assert(SPEC_STAGES >= 3 && SPEC_STAGES <= 16, "one stage being read, one being left, one being filled");

#define TILE_STAGE_BYTES ((SPEC_TILE_N + SPEC_TILE_ROWS) * 128u)
#define TILE_STEP (SPEC_THREADS / 8u) /* rows that the block copies at a time: 8 threads a row */
#define TILE_W_COPIES (SPEC_TILE_N / TILE_STEP)
#define TILE_X_COPIES ((SPEC_TILE_ROWS + TILE_STEP - 1u) / TILE_STEP)
#define TILE_ACCUMULATORS (SPEC_TILE_ROWS / 2)
#define TILE_HALF (SPEC_TILE_N / 2u)
#define TILE_PITCH (SPEC_TILE_N * 2u + 16u) /* bytes of a row of the bf16 result in shared memory; the 16 keep banks apart */
static_assert(SPEC_TILE_ROWS * TILE_PITCH <= SPEC_STAGES * TILE_STAGE_BYTES &&
                SPEC_TILE_ROWS * TILE_HALF * 4u <= SPEC_STAGES * TILE_STAGE_BYTES,
              "results take the ring's place");

/* What one thread copies: 16 bytes of each of these rows per 64 k. bytes 0: the row does not exist. */
typedef struct tile_source {
  const bf16 *w[TILE_W_COPIES], *x[TILE_X_COPIES];
  u32 w_bytes[TILE_W_COPIES], x_bytes[TILE_X_COPIES];
} tile_source;

/* Row of the tile, weights or tokens, of this thread's copy number i; its column starts at tile_column(). */
NUM u32 tile_row(u32 i) { return threadIdx.x / 8u + i * TILE_STEP; }
NUM u32 tile_column() { return threadIdx.x % 8u * 8u; }

NUM u32 tile_ring(const void *shared) { return (ptx_shared(shared) + 1023u) & ~1023u; }

/* The weight rows of the result columns from n0 on, w [n][k]; for Y_SILU half of them are gate rows, then come their up rows. */
NUM void tile_weights(tile_source &s, const bf16 *w, u32 n0, u32 n, u32 k, u32 y_kind) {
#pragma unroll
  for (u32 i = 0; i < TILE_W_COPIES; i++) {
    const u32 is_up = y_kind == Y_SILU && tile_row(i) >= TILE_HALF, column = n0 + tile_row(i) - (is_up ? TILE_HALF : 0u);
    const u32 inside = column < (y_kind == Y_SILU ? n / 2u : n);
    s.w_bytes[i] = inside ? 16u : 0u;
    s.w[i] = w + (u64)(inside ? column + (is_up ? n / 2u : 0u) : 0u) * k + tile_column();
  }
}

NUM void tile_load(const tile_source &s, u32 stage, u32 k) {
  const u32 row = threadIdx.x / 8u, piece = (threadIdx.x % 8u) ^ (row % 8u); /* TILE_STEP is a multiple of 8 */
  const u32 to = stage + row * 128u + piece * 16u;
#pragma unroll
  for (u32 i = 0; i < TILE_W_COPIES; i++) ptx_copy16(to + i * TILE_STEP * 128u, s.w[i] + k, s.w_bytes[i]);
#pragma unroll
  for (u32 i = 0; i < TILE_X_COPIES; i++)
    if (tile_row(i) < SPEC_TILE_ROWS) ptx_copy16(to + (SPEC_TILE_N + i * TILE_STEP) * 128u, s.x[i] + k, s.x_bytes[i]);
}

/* acc = the H16 sums over k; on return all threads are through with the ring. */
NUM void tile_product(f32 (&acc)[TILE_ACCUMULATORS], const tile_source &s, u32 ring, u32 k) {
  const u32 group = ptx_uniform(threadIdx.x / 128u), blocks = k / 64u;
#pragma unroll
  for (u32 i = 0; i < TILE_ACCUMULATORS; i++) acc[i] = 0.0f;
#pragma unroll
  for (u32 i = 0; i < SPEC_STAGES - 2; i++) {
    if (i < blocks) tile_load(s, ring + i * TILE_STAGE_BYTES, i * 64u);
    ptx_copy_commit();
  }
  u32 stage = 0, fill = SPEC_STAGES - 2, block = 0;
  do {
    PTX_COPY_WAIT(SPEC_STAGES - 3); /* this thread's part of the block has come */
    ptx_fence_async();
    __syncthreads(); /* everyone's has; and everyone has left the stage of two blocks ago, which is filled next */
    const u32 at = ring + stage * TILE_STAGE_BYTES;
    const u64 w = ptx_operand(PTX_SWIZZLED, at + group * 8192u), x = ptx_operand(PTX_SWIZZLED, at + SPEC_TILE_N * 128u);
    ptx_multiply_fence();
#pragma unroll
    for (u32 i = 0; i < 4; i++) ptx_multiply(acc, w + i * 2u, x + i * 2u);
    ptx_multiply_commit();
    if (block + SPEC_STAGES - 2 < blocks) tile_load(s, ring + fill * TILE_STAGE_BYTES, (block + SPEC_STAGES - 2) * 64u);
    ptx_copy_commit();
    PTX_MULTIPLY_WAIT(1); /* the block before this one is done */
    stage = stage + 1 == SPEC_STAGES ? 0 : stage + 1;
    fill = fill + 1 == SPEC_STAGES ? 0 : fill + 1;
  } while (++block < blocks);
  PTX_MULTIPLY_WAIT(0);
  PTX_COPY_WAIT(0);
  __syncthreads();
}

/* y[row][n0 ..] for the first `rows` rows, fp32. A warp writes whole 32-byte sectors. */
NUM void tile_store_f32(const f32 (&acc)[TILE_ACCUMULATORS], f32 *y, u64 ldy, u32 rows, u32 n0, u32 n) {
  const u32 t = threadIdx.x, column = n0 + t / 32u * 16u + t % 32u / 4u, first = t % 4u * 2u;
#pragma unroll
  for (u32 i = 0; i < TILE_ACCUMULATORS; i++) {
    const u32 row = i / 4u * 8u + first + i % 2u, c = column + i / 2u % 2u * 8u;
    if (row < rows && c < n) y[row * ldy + c] = acc[i];
  }
}

/* The same rounded to bf16, through shared memory so that rows are written in 16-byte pieces. */
NUM void tile_store_bf16(const f32 (&acc)[TILE_ACCUMULATORS], bf16 *y, u64 ldy, u32 rows, u32 n0, u32 n, u32 ring, const u8 *shared) {
  const u32 t = threadIdx.x, lane = t % 32u;
  const u32 to = ring + (lane / 16u * 8u + lane % 8u) * TILE_PITCH + (t / 32u * 16u + lane / 8u % 2u * 8u) * 2u;
#pragma unroll
  for (u32 i = 0; i < TILE_ACCUMULATORS / 8u; i++) {
    const f32 *d = acc + i * 8u;
    ptx_store_transposed(to + i * 16u * TILE_PITCH, ptx_pack_bf16(d[0], d[1]), ptx_pack_bf16(d[2], d[3]), ptx_pack_bf16(d[4], d[5]),
                         ptx_pack_bf16(d[6], d[7]));
  }
  __syncthreads();
  const u8 *tile = shared + (ring - ptx_shared(shared));
  for (u32 i = t; i < SPEC_TILE_ROWS * SPEC_TILE_N / 8u; i += SPEC_THREADS) {
    const u32 row = i / (SPEC_TILE_N / 8u), c = i % (SPEC_TILE_N / 8u) * 8u;
    if (row < rows && n0 + c < n) *(uint4 *)(y + row * ldy + n0 + c) = *(const uint4 *)(tile + row * TILE_PITCH + c * 2u);
  }
}

/* bf16(silu(gate) * up) of the columns n0 .. of y [rows][n]: the up rows' sums come to the gate rows through shared memory. */
NUM void tile_store_silu(const f32 (&acc)[TILE_ACCUMULATORS], bf16 *y, u64 ldy, u32 rows, u32 n0, u32 n, u32 ring, u8 *shared) {
  const u32 t = threadIdx.x, height = t / 32u * 16u + t % 32u / 4u, first = t % 4u * 2u;
  f32 *up = (f32 *)(shared + (ring - ptx_shared(shared)));
#pragma unroll
  for (u32 i = 0; i < TILE_ACCUMULATORS; i++) {
    const u32 row = i / 4u * 8u + first + i % 2u, c = height + i / 2u % 2u * 8u;
    if (c >= TILE_HALF) up[row * TILE_HALF + c - TILE_HALF] = acc[i];
  }
  __syncthreads();
#pragma unroll
  for (u32 i = 0; i < TILE_ACCUMULATORS; i++) {
    const u32 row = i / 4u * 8u + first + i % 2u, c = height + i / 2u % 2u * 8u;
    if (c < TILE_HALF && row < rows && n0 + c < n) y[row * ldy + n0 + c] = num_to_bf16(num_mul(num_silu(acc[i]), up[row * TILE_HALF + c]));
  }
}

/* The result columns of block x: where they start. */
NUM u32 tile_first(u32 y_kind) { return blockIdx.x * (y_kind == Y_SILU ? TILE_HALF : SPEC_TILE_N); }

/* As y_kind says; y + offset: the result's first row of the tile. n: weight rows. */
NUM void tile_store(const f32 (&acc)[TILE_ACCUMULATORS], u32 y_kind, void *y, u64 offset, u64 ldy, u32 rows, u32 n, u32 ring, u8 *shared) {
  const u32 n0 = tile_first(y_kind);
  if (y_kind == Y_F32) tile_store_f32(acc, (f32 *)y + offset, ldy, rows, n0, n);
  else if (y_kind == Y_SILU) tile_store_silu(acc, (bf16 *)y + offset, ldy, rows, n0, n / 2u, ring, shared);
  else tile_store_bf16(acc, (bf16 *)y + offset, ldy, rows, n0, n, ring, shared);
}

#endif

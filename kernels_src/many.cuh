/* many.cuh - the product of many rows, shared by gemm and moe_gemm.
 *
 * Persistent blocks. A tile is SPEC_TILE_N weight rows, the 64-row operand, times `width` token rows, of which the kernel chooses how
 * many there are: any multiple of MANY_STEP up to SPEC_TILE_ROWS, so that neither the rows of an expert nor the number of
 * multiprocessors leave much idle. One warpgroup fills a ring of stages, each 64 k of both operands in 128-byte swizzled rows,
 * weights by boxes, tokens by boxes or gathered row by row; the others multiply, each its 64 or 2 x 64 weight rows, and write. The
 * ring runs on from tile to tile: the next one's operands come while results are written. With SPEC_CLUSTER 2 the blocks of a
 * pair take neighbouring token rows and share the weights, each loading half of them for both. One fp32 accumulator per output, k
 * ascending in steps of 16: every output is H16 whatever the tile. Read next: gemm.cu, moe_gemm.cu. */
#ifndef VERBATIM_MANY_CUH
#define VERBATIM_MANY_CUH
#include "ptx.cuh"

#define MANY_CONSUMERS (SPEC_TILE_N == 64u ? 1u : 2u) /* warpgroups that multiply */
#define MANY_GROUPS (SPEC_TILE_N / (64u * MANY_CONSUMERS)) /* of 64 weight rows, each of them has */
#define MANY_STEP (SPEC_TILE_ROWS / 8u)
#define MANY_ACCUMULATORS (SPEC_TILE_ROWS / 2u)
#define MANY_W_BOX (SPEC_TILE_N == 64u ? 32u : 64u) /* weight rows of one copy */
#define MANY_STAGE_BYTES ((SPEC_TILE_N + SPEC_TILE_ROWS) * 128u)
#define MANY_CHUNK 64u /* token rows that a warpgroup turns in shared memory at a time */
#define MANY_PIECES ((SPEC_TILE_ROWS + 15u) / 16u) /* of 16 bytes, that a filling thread gathers per stage */
#ifdef __CUDACC_RTC__
#define NUM_MEMBER __device__ __forceinline__
#else
#define NUM_MEMBER
#endif
#if SPEC_CLUSTER > 1
#define MANY_CLUSTER __cluster_dims__(SPEC_CLUSTER, 1, 1)
#else
#define MANY_CLUSTER
#endif
#define MANY_FIXED_BYTES (1024u + MANY_CONSUMERS * MANY_CHUNK * 128u + 128u) /* beside the ring */

#ifndef SPEC_POLICY
#define SPEC_POLICY 1u
#endif
#if SPEC_POLICY == 0
#define MANY_W_POLICY ptx_often
#define MANY_X_POLICY ptx_often
#elif SPEC_POLICY == 1
#define MANY_W_POLICY ptx_normal
#define MANY_X_POLICY ptx_normal
#elif SPEC_POLICY == 2
#define MANY_W_POLICY ptx_once
#define MANY_X_POLICY ptx_normal
#else
#define MANY_W_POLICY ptx_normal
#define MANY_X_POLICY ptx_often
#endif
#ifndef SPEC_BAND
#define SPEC_BAND 1024u
#endif
static_assert(SPEC_TILE_N == 64 || SPEC_TILE_N == 128 || SPEC_TILE_N == 256, "weight rows: 64 or 2 x 64 a warpgroup");
static_assert(SPEC_TILE_ROWS == 128 || SPEC_TILE_ROWS == 256 || SPEC_TILE_ROWS == 192, "token rows: eight widths of ptx_multiply");
static_assert(MANY_GROUPS * MANY_ACCUMULATORS <= 128, "accumulators that a thread can hold");
static_assert(SPEC_THREADS == 128u * (1u + MANY_CONSUMERS), "one warpgroup fills");
static_assert(SPEC_STAGES >= 2 && SPEC_STAGES <= 8, "barriers have 128 bytes");
static_assert(SPEC_CLUSTER == 1 || SPEC_CLUSTER == 2, "one block or a pair");

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

typedef struct many_ring {
  u32 stages, full, empty, turn; /* shared addresses: the ring, its barriers, where results are turned */
  u32 stage, parity;
} many_ring;

/* Clusters in any grid, in one row: this one's number, and how many there are. */
NUM u32 many_cluster() { return (blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z)) / SPEC_CLUSTER; }
NUM u32 many_clusters() { return gridDim.x * gridDim.y * gridDim.z / SPEC_CLUSTER; }

NUM u32 many_full(const many_ring &r, u32 stage) { return r.full + stage * 8u; }
NUM u32 many_empty(const many_ring &r, u32 stage) { return r.empty + stage * 8u; }
NUM void many_advance(many_ring &r) {
  const bool last = r.stage + 1u == SPEC_STAGES;
  r.stage = last ? 0u : r.stage + 1u;
  r.parity ^= last;
}

/* By all threads, before ptx_grid_wait. gathers: the filling threads' copies count as well. */
NUM many_ring many_start(const void *shared, bool gathers) {
  const u32 base = (ptx_shared(shared) + 1023u) & ~1023u, turn = base + SPEC_STAGES * MANY_STAGE_BYTES;
  const many_ring r = {base, turn + MANY_CONSUMERS * MANY_CHUNK * 128u, turn + MANY_CONSUMERS * MANY_CHUNK * 128u + SPEC_STAGES * 8u, turn, 0, 0};
  if (threadIdx.x == 0) {
    for (u32 i = 0; i < SPEC_STAGES; i++) {
      ptx_barrier_init(many_full(r, i), gathers ? 129u : 1u);
      ptx_barrier_init(many_empty(r, i), MANY_CONSUMERS * 4u * SPEC_CLUSTER);
    }
    ptx_barrier_ready();
  }
#if SPEC_CLUSTER > 1
  ptx_cluster_sync();
#else
  __syncthreads();
#endif
  return r;
}

/* One k block of a tile's weights: this block's share of the boxes, for all blocks of the cluster. Of gate and up, which are matrices of
 * their own, a box takes 8 rows each: the operand's rows i and i + 8 of every 16 belong together. */
NUM void many_weights(const many_ring &r, const tensor_map *map, const many_tile &tile, bool silu, u32 k, u32 rank, u64 policy) {
  const u32 to = r.stages + r.stage * MANY_STAGE_BYTES, rows = silu ? 16u : MANY_W_BOX;
  const u32 step = silu ? 8u : MANY_W_BOX, matrix = silu ? tile.matrix * 2u : tile.matrix;
  for (u32 i = rank; i < SPEC_TILE_N / rows; i += SPEC_CLUSTER) {
#if SPEC_CLUSTER > 1
    ptx_copy_box_to((1u << SPEC_CLUSTER) - 1u, to + i * rows * 128u, map, k, tile.n0 + i * step, matrix, many_full(r, r.stage), policy);
#else
    ptx_copy_box(to + i * rows * 128u, map, k, tile.n0 + i * step, matrix, many_full(r, r.stage), policy);
#endif
  }
}

/* The filling warpgroup, tokens by boxes: one thread. */
template <class WORK> NUM void many_fill(WORK &work, many_ring r, const tensor_maps &maps, bool silu, u32 k_end, u32 rank) {
  many_tile tile;
  const u64 w_policy = MANY_W_POLICY(), x_policy = MANY_X_POLICY();
  for (u32 item = many_cluster(); work.find(item, rank, tile); item += many_clusters())
    for (u32 k = 0; k < k_end; k += 64u) {
      const u32 full = many_full(r, r.stage), to = r.stages + r.stage * MANY_STAGE_BYTES + SPEC_TILE_N * 128u;
      ptx_barrier_wait(many_empty(r, r.stage), r.parity ^ 1u);
      ptx_barrier_expect(full, (SPEC_TILE_N + tile.width) * 128u);
      many_weights(r, &maps.w, tile, silu, k, rank, w_policy);
      for (u32 i = 0; i < tile.width; i += MANY_STEP) ptx_copy_box(to + i * 128u, &maps.x, k, tile.row + i, work.x_matrix(tile), full, x_policy);
      many_advance(r);
    }
}

/* The same where tokens are gathered: the whole warpgroup, 8 threads a row. */
template <class WORK> NUM void many_gather(WORK &work, many_ring r, const tensor_maps &maps, bool silu, u32 k_end, u32 rank) {
  const u32 t = threadIdx.x, piece = (t % 8u ^ t / 8u % 8u) * 16u;
  const u64 w_policy = MANY_W_POLICY();
  many_tile tile;
  for (u32 item = many_cluster(); work.find(item, rank, tile); item += many_clusters()) {
    u32 from[MANY_PIECES]; /* 16-byte pieces from the beginning of x */
#pragma unroll
    for (u32 i = 0; i < MANY_PIECES; i++) {
      const u32 row = t / 8u + i * 16u;
      from[i] = (row < tile.rows ? work.x_row(tile.row + row) : 0u) * (work.a.ldx / 8u) + t % 8u;
    }
    for (u32 k = 0; k < k_end; k += 64u) {
      const u32 full = many_full(r, r.stage), to = r.stages + r.stage * MANY_STAGE_BYTES + (SPEC_TILE_N + t / 8u) * 128u + piece;
      ptx_barrier_wait(many_empty(r, r.stage), r.parity ^ 1u);
      if (t == 0) {
        ptx_barrier_expect(full, SPEC_TILE_N * 128u);
        many_weights(r, &maps.w, tile, silu, k, rank, w_policy);
      }
#pragma unroll
      for (u32 i = 0; i < MANY_PIECES; i++)
        if (i * 16u < tile.width)
          ptx_copy16(to + i * 2048u, work.a.x + (u64)from[i] * 8u + k, t / 8u + i * 16u < tile.rows ? 16u : 0u);
      ptx_barrier_arrive_copies(full);
      many_advance(r);
    }
  }
}

typedef f32 many_sums[MANY_GROUPS][MANY_ACCUMULATORS];

/* One arrival of this warp at the barrier of a stage that it has left, in every block whose copies fill it. */
NUM void many_leave(u32 empty) {
  const u32 lane = threadIdx.x % 32u;
#if SPEC_CLUSTER > 1
  if (lane < SPEC_CLUSTER) ptx_barrier_arrive_at(empty, lane);
#else
  if (lane == 0) ptx_barrier_arrive(empty);
#endif
}

/* acc = the H16 sums over k of a tile of this width. gathered: copies of threads stand behind the barrier, not of the copy engine. */
template <u32 WIDTH> NUM void many_product(many_sums &acc, many_ring &r, u32 group, u32 width, u32 blocks, bool gathered) {
  if constexpr (WIDTH > MANY_STEP) {
    if (width < WIDTH) {
      many_product<WIDTH - MANY_STEP>(acc, r, group, width, blocks, gathered);
      return;
    }
  }
  u32 left = r.stage;
  for (u32 block = 0; block < blocks; block++) {
    const u32 at = r.stages + r.stage * MANY_STAGE_BYTES;
    ptx_barrier_wait(many_full(r, r.stage), r.parity);
    if (gathered) ptx_fence_async();
    ptx_multiply_fence();
    const u64 w = ptx_operand(PTX_SWIZZLED, at + group * (MANY_GROUPS * 8192u)), x = ptx_operand(PTX_SWIZZLED, at + SPEC_TILE_N * 128u);
#pragma unroll
    for (u32 i = 0; i < 4; i++)
#pragma unroll
      for (u32 g = 0; g < MANY_GROUPS; g++)
        ptx_multiply(reinterpret_cast<f32(&)[WIDTH / 2u]>(acc[g]), w + g * (8192u / 16u) + i * 2u, x + i * 2u);
    ptx_multiply_commit();
    PTX_MULTIPLY_WAIT(1); /* the block before this one is done: its stage may be filled */
    if (block > 0) many_leave(many_empty(r, left));
    left = r.stage;
    many_advance(r);
  }
  PTX_MULTIPLY_WAIT(0);
  many_leave(many_empty(r, left));
}

/* A warpgroup's 64 columns from n0 on of the tile's rows, fp32. Neighbouring lanes exchange halves: 8 bytes a lane, 64 a row. */
NUM void many_store_f32(const f32 (&acc)[MANY_ACCUMULATORS], const many_result &to, const many_tile &tile, u32 n0) {
  const u32 t = threadIdx.x % 128u, odd = t / 4u % 2u, column = n0 + t / 32u * 16u + t % 32u / 4u + odd * 7u;
  f32 *y = (f32 *)to.y + (u64)tile.row * to.ldy + column;
#pragma unroll
  for (u32 i = 0; i < MANY_ACCUMULATORS / 4u; i++) {
    if (i * 8u >= tile.width) break;
#pragma unroll
    for (u32 e = 0; e < 2; e++) {
      const f32 low = acc[4u * i + e], high = acc[4u * i + 2u + e], other = __shfl_xor_sync(WARP_ALL, odd ? low : high, 4);
      const u32 row = i * 8u + t % 4u * 2u + e;
      if (row < tile.rows && column < to.n) *(float2 *)(y + row * to.ldy) = odd ? make_float2(other, high) : make_float2(low, other);
    }
  }
}

/* The same rounded to bf16: turned in shared memory so that rows are written in 16-byte pieces, 128 bytes a row. */
NUM void many_store_bf16(const f32 (&acc)[MANY_ACCUMULATORS], const many_result &to, const many_tile &tile, u32 n0, const u8 *shared, u32 turn) {
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
      const f32 *d = acc + (first + i) / 2u;
      ptx_store_transposed(turn + row * 128u + (piece ^ row % 8u) * 16u, ptx_pack_bf16(d[0], d[1]), ptx_pack_bf16(d[2], d[3]),
                           ptx_pack_bf16(d[4], d[5]), ptx_pack_bf16(d[6], d[7]));
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
NUM void many_silu(f32 (&acc)[MANY_ACCUMULATORS], u32 width) {
#pragma unroll
  for (u32 first = 0; first < MANY_ACCUMULATORS; first += 32u) {
    if (first * 2u >= width) break;
    f32 below[16];
#pragma unroll
    for (u32 i = 0; i < 16u; i++) below[i] = num_add(1.0f, num_exp(-acc[first + i / 2u * 4u + i % 2u]));
#pragma unroll
    for (u32 i = 0; i < 16u; i++) ptx_hold(below[i]);
#pragma unroll
    for (u32 i = 0; i < 16u; i++) {
      f32 &gate = acc[first + i / 2u * 4u + i % 2u];
      gate = num_mul(num_div(gate, below[i]), acc[first + i / 2u * 4u + 2u + i % 2u]);
    }
  }
}

#define MANY_SILU_PIECES (4u * MANY_GROUPS) /* of 16 bytes: what a warpgroup has of a row */
NUM u32 many_silu_place(u32 row, u32 piece) {
  return row * (MANY_SILU_PIECES * 16u) + (piece ^ (MANY_GROUPS == 2u ? row % 8u : row / 2u % 4u)) * 16u;
}

/* A warpgroup's columns from n0 on, gate and up in one: R5.5. */
NUM void many_store_silu(many_sums &acc, const many_result &to, const many_tile &tile, u32 n0, const u8 *shared, u32 turn) {
  const u32 t = threadIdx.x % 128u, lane = t % 32u, number = 1u + threadIdx.x / 128u;
  const u8 *tile_at = shared + (turn - ptx_shared(shared));
  const u32 column = t % MANY_SILU_PIECES * 8u;
  bf16 *y = (bf16 *)to.y + (u64)tile.row * to.ldy + n0 + column;
#pragma unroll
  for (u32 g = 0; g < MANY_GROUPS; g++) many_silu(acc[g], tile.width);
#pragma unroll
  for (u32 first = 0; first < SPEC_TILE_ROWS; first += MANY_CHUNK) {
    if (first >= tile.rows) break;
    ptx_warps_sync(number, 128); /* what stood there has been read */
#pragma unroll
    for (u32 i = 0; i < MANY_CHUNK; i += 32u / MANY_GROUPS) {
      if (first + i >= tile.width) break;
      const u32 row = i + lane / (8u * MANY_GROUPS) * 8u + lane % 8u, piece = t / 32u + lane / 8u % MANY_GROUPS * 4u;
      u32 words[4];
#pragma unroll
      for (u32 m = 0; m < 4u; m++) {
        const f32 *d = acc[m % MANY_GROUPS] + (first + i) / 2u + m / MANY_GROUPS * 4u;
        words[m] = ptx_pack_bf16(d[0], d[1]);
      }
      ptx_store_transposed(turn + many_silu_place(row, piece), words[0], words[1], words[2], words[3]);
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

/* A multiplying warpgroup. */
template <class WORK> NUM void many_multiply(WORK &work, many_ring r, const u8 *shared, u32 k, u32 rank, bool gathered) {
  const u32 group = ptx_uniform(threadIdx.x / 128u) - 1u, turn = r.turn + group * MANY_CHUNK * 128u;
  many_tile tile;
  for (u32 item = many_cluster(); work.find(item, rank, tile); item += many_clusters()) {
    many_sums acc;
#pragma unroll
    for (u32 g = 0; g < MANY_GROUPS; g++)
#pragma unroll
      for (u32 i = 0; i < MANY_ACCUMULATORS; i++) acc[g][i] = 0.0f;
    many_product<SPEC_TILE_ROWS>(acc, r, group, tile.width, k / 64u, gathered);
#ifdef SPEC_NOSTORE
    if (tile.rows < 9999u) {
#pragma unroll
      for (u32 g = 0; g < MANY_GROUPS; g++)
#pragma unroll
        for (u32 i = 0; i < MANY_ACCUMULATORS; i++) ptx_hold(acc[g][i]);
      continue;
    }
#endif
    const many_result to = work.result(tile);
    const u32 n0 = tile.n0 + group * (to.kind == Y_SILU ? 32u : 64u) * MANY_GROUPS;
    if (to.kind == Y_F32) {
#pragma unroll
      for (u32 g = 0; g < MANY_GROUPS; g++) many_store_f32(acc[g], to, tile, n0 + g * 64u);
      continue;
    }
    if (to.kind == Y_SILU) {
      many_store_silu(acc, to, tile, n0, shared, turn);
      continue;
    }
#pragma unroll
    for (u32 g = 0; g < MANY_GROUPS; g++) many_store_bf16(acc[g], to, tile, n0 + g * 64u, shared, turn);
  }
}

/* Everything behind the start: who fills, who multiplies. */
template <class WORK> NUM void many_run(WORK &work, const many_ring &r, const tensor_maps &maps, const u8 *shared, bool gathers) {
#if SPEC_CLUSTER > 1
  const u32 rank = ptx_cluster_rank();
#else
  const u32 rank = 0;
#endif
  if (threadIdx.x < 128u) {
#if SPEC_TILE_N != 64
    PTX_REGISTERS_LESS(56);
#endif
    if constexpr (WORK::GATHERS) {
      if (gathers) many_gather(work, r, maps, work.a.y_kind == Y_SILU, work.a.k, rank);
    }
    if (!gathers && threadIdx.x == 0) many_fill(work, r, maps, work.a.y_kind == Y_SILU, work.a.k, rank);
  } else {
#if SPEC_TILE_N != 64
    PTX_REGISTERS_MORE(224);
#endif
    many_multiply(work, r, shared, work.a.k, rank, gathers);
  }
#if SPEC_CLUSTER > 1
  ptx_cluster_sync(); /* nobody leaves while its shared memory is written or its barriers are arrived at */
#endif
}

#endif

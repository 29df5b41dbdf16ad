/* rmsnorm_many.cuh - rmsnorm for large M: blocks of 256 threads, several on a multiprocessor, so that loads of one row overlap the sum of
 * another.
 *
 * A thread takes four adjacent columns at a time, then those 1024 further: contiguous 512 bytes of a warp are fastest to load. In shared
 * memory the columns return to the order of the partial sums. SPEC_HELD: columns that a thread keeps in registers, 4 or 8; those beyond 256
 * * SPEC_HELD are read again. Any dim; columns of strides that are no multiples of 4 are read one by one. Grid: rows. Bytes as in
 * rmsnorm.cu, which bound it. On an H200, 2,048 rows of 2048 with delta 14.9 us (bound 13.7), with six experts and a shared one 52.7
 * (37.1). Study: tools/bench/history, small-ops. Read next: rmsnorm.cu. */
#ifndef VERBATIM_RMSNORM_MANY_CUH
#define VERBATIM_RMSNORM_MANY_CUH
#include "ptx/reduce.cuh"

static_assert(SPEC_THREADS == 256 && SPEC_HELD % 4 == 0, "a thread is a partial sum");
#define PIECE (SPEC_HELD * SPEC_THREADS)
#define GROUPS (SPEC_HELD / 4u)

/* The row read, and in lane k the k-th expert of its token. */
typedef struct row_source {
  u64 at;
  u32 pair_row;
  f32 pair_weight;
  f32 share;  /* of the shared expert: 1 without a gate, whose product is exact */
  bool whole; /* four columns are aligned everywhere, and exist together */
} row_source;

typedef struct four { f32 c[4]; } four;

NUM four read_four(const f32 *row, u32 i, u32 dim, bool whole) {
  if (whole) {
    const float4 v = i < dim ? *(const float4 *)(row + i) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    return {v.x, v.y, v.z, v.w};
  }
  four v;
#pragma unroll
  for (u32 c = 0; c < 4u; c++) v.c[c] = i + c < dim ? row[i + c] : 0.0f;
  return v;
}

NUM void write_four(f32 *row, u32 i, u32 dim, bool whole, const four &v) {
  if (whole && i < dim) *(float4 *)(row + i) = make_float4(v.c[0], v.c[1], v.c[2], v.c[3]);
#pragma unroll
  for (u32 c = 0; c < 4u; c++)
    if (!whole && i + c < dim) row[i + c] = v.c[c];
}

/* v of four columns from i on. */
NUM four read_sum(const rmsnorm_args &a, const row_source &s, u32 i) {
  four v = read_four(a.x + s.at, i, a.x ? a.dim : 0u, s.whole), delta = {};
  if (a.delta) delta = read_four(a.delta + s.at, i, a.dim, s.whole);
  if (a.experts) {
    four sum = {};
#pragma unroll 4
    for (u32 k = 0; k < a.top_k; k++) { /* a chain in ascending id */
      const four y = read_four(a.experts + (u64)__shfl_sync(WARP_ALL, s.pair_row, k) * a.dim, i, a.dim, s.whole);
      const f32 w = __shfl_sync(WARP_ALL, s.pair_weight, k);
#pragma unroll
      for (u32 c = 0; c < 4u; c++) sum.c[c] = num_fma(w, y.c[c], sum.c[c]);
    }
#pragma unroll
    for (u32 c = 0; c < 4u; c++) delta.c[c] = a.delta ? num_fma(delta.c[c], s.share, sum.c[c]) : sum.c[c];
  }
#pragma unroll
  for (u32 c = 0; c < 4u; c++) v.c[c] = a.experts || a.delta ? num_fma(delta.c[c], a.delta_scale, v.c[c]) : v.c[c];
  return v;
}

NUM void write_normalised(const rmsnorm_args &a, u32 row, u32 i, f32 r, bool whole, const four &v) {
  const u64 at = (u64)row * a.y_stride;
  four number;
  bf16 out[4];
#pragma unroll
  for (u32 c = 0; c < 4u; c++) {
    const f32 w = a.weight && i + c < a.dim ? num_from_bf16(a.weight[i + c]) : 1.0f;
    number.c[c] = num_mul(num_mul(num_mul(v.c[c], r), w), a.y_scale);
    out[c] = num_to_bf16(number.c[c]);
  }
  if (a.y_kind == Y_F32) return write_four((f32 *)a.y + at, i, a.dim, whole, number);
  bf16 *y = (bf16 *)a.y + at;
  if (whole && i < a.dim) *(uint2 *)(y + i) = make_uint2((u32)out[1] << 16 | out[0], (u32)out[3] << 16 | out[2]);
#pragma unroll
  for (u32 c = 0; c < 4u; c++)
    if (!whole && i + c < a.dim) y[i + c] = out[c];
}

extern "C" __global__ __launch_bounds__(SPEC_THREADS, 5) void rmsnorm(const __grid_constant__ rmsnorm_args a) {
  __shared__ float4 fours[PIECE / 4u];
  __shared__ f32 sums[SPEC_THREADS];
  const f32 *shared = (const f32 *)fours;
  ptx_grid_next();
  const u32 row = blockIdx.x, j = threadIdx.x, lane = j % 32u;
  const bool is_row = row < (a.rows_kind == ROWS_TOKENS ? a.step->token_count : a.step->logit_count);
  const u64 source = a.row_index ? a.row_index[row] : row;
  ptx_grid_wait();
  if (!is_row) return;

  const bool has_expert = a.experts && lane < a.top_k, whole = (a.dim | a.x_stride | a.y_stride) % 4u == 0;
  const u64 pair = source * a.top_k + lane;
  const row_source s = {source * a.x_stride, has_expert ? a.pair_row[pair] : 0, has_expert ? a.topk_weight[pair] : 0.0f,
                        a.gate ? num_sigmoid(a.gate[source * a.gate_stride]) : 1.0f, whole};
  four held[GROUPS];
  f32 p = 0.0f;
#pragma unroll 1
  for (u32 piece = 0; piece < a.dim; piece += PIECE) {
#pragma unroll
    for (u32 g = 0; g < GROUPS; g++) {
      const u32 i = 4u * (j + g * SPEC_THREADS);
      const four v = read_sum(a, s, piece + i);
      if (piece == 0) held[g] = v;
      fours[i / 4u] = make_float4(v.c[0], v.c[1], v.c[2], v.c[3]);
      if (a.x_out) write_four(a.x_out + s.at, piece + i, a.dim, whole, v);
    }
    __syncthreads();
#pragma unroll
    for (u32 i = j; i < PIECE; i += SPEC_THREADS) /* the chains continue from piece to piece */
      if (piece + i < a.dim) p = num_fma(shared[i], shared[i], p);
    __syncthreads();
  }
  const f32 sum = reduce_tree_block(p, sums);
  const f32 r = a.weight ? num_div(1.0f, num_sqrt(num_add(num_div(sum, (f32)a.dim), a.eps))) : 1.0f;

#pragma unroll
  for (u32 g = 0; g < GROUPS; g++) write_normalised(a, row, 4u * (j + g * SPEC_THREADS), r, whole, held[g]);
#pragma unroll 1
  for (u32 from = PIECE; from < a.dim; from += 4u * SPEC_THREADS) { /* by all threads: shuffles pass the experts' rows */
    const u32 i = from + 4u * j;
    write_normalised(a, row, i, r, whole, a.x_out ? read_four(a.x_out + s.at, i, a.dim, whole) : read_sum(a, s, i));
  }
}

#endif

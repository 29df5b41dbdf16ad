/* rmsnorm.cu - adds delta to the residual stream, stores it, and normalises the row. NUMERICS.md, `rmsnorm`.
 *
 * v = x + delta * delta_scale (or x), x_out = v if given (it may be x itself: an element is read and written by one thread),
 * y = bf16(v * r * w * y_scale). With experts, delta is what they make of the token: their rows, weighed, then the row of delta.
 * x, delta, x_out [.][x_stride] fp32, experts [T * top_k][dim] fp32 in sorted order, weight [dim] bf16, y [rows][y_stride] bf16.
 * SPEC_HELD: elements of the row that a thread keeps in registers; what lies behind those of all threads is read again. The squares are
 * added up by the first 256 threads, as many as there are partial sums, from shared memory. Grid: a block a row. Moves up to
 * dim * (8 + 4 + 2 + 4 * top_k) bytes a row; for few rows what counts is one round trip to L2 after the wait and the fetching of code: so
 * all of it runs once without columns while the kernel before is waited for, which takes 1 us off a norm of one row in a step. The routing
 * is read before the wait: the experts' rows come from a moe_gemm behind another, which lets it start when the routing is complete.
 * In a chain of overlapping launches on an H200, 1 to 64 rows of 2048: 2.1 to 2.2 us, with six experts and a shared one 3.7 to 3.8 us;
 * 256 threads with eight elements each took 2.0 us, and 10.7 us with the experts. */
#include "spec.cuh"
#if SPEC_THREADS == 256
#include "rmsnorm_many.cuh"
#else
#include "reduce.cuh"

#define PARTIALS 256u /* their number is part of the result */
#define PIECE (SPEC_HELD * SPEC_THREADS)
#define IS_EARLY (SPEC_HELD <= 4u) /* weights are read and code is run before the wait, where registers suffice */
#define BATCH (SPEC_HELD <= 2u ? 8u : SPEC_HELD <= 4u ? 4u : 1u) /* experts whose rows are under way together */
static_assert(SPEC_THREADS % PARTIALS == 0, "a chain goes on in the next piece");

#define COLUMNS(s) (IS_EARLY ? (s).columns : a.dim)

/* The row read: where it is, how many columns there are, and lane k's expert, the k-th of the token. */
typedef struct row_source {
  u64 at;
  u32 columns;
  u32 pair_row;
  f32 pair_weight;
} row_source;

/* The experts' part of delta, elements first, first + SPEC_THREADS, ...: a chain over them in ascending id. */
NUM void add_experts(const rmsnorm_args &a, const row_source &s, u32 first, f32 (&sum)[SPEC_HELD]) {
#pragma unroll
  for (u32 e = 0; e < SPEC_HELD; e++) sum[e] = 0.0f;
#pragma unroll 1
  for (u32 k0 = 0; k0 < a.top_k; k0 += BATCH) {
    f32 y[BATCH][SPEC_HELD];
#pragma unroll
    for (u32 b = 0; b < BATCH; b++) {
      const f32 *row = a.experts + (u64)__shfl_sync(WARP_ALL, s.pair_row, (k0 + b) % 32u) * a.dim;
#pragma unroll
      for (u32 e = 0; e < SPEC_HELD; e++) {
        const u32 i = first + e * SPEC_THREADS;
        y[b][e] = k0 + b < a.top_k && i < COLUMNS(s) ? row[i] : 0.0f;
      }
    }
#pragma unroll
    for (u32 b = 0; b < BATCH; b++) {
      const f32 w = __shfl_sync(WARP_ALL, s.pair_weight, (k0 + b) % 32u);
#pragma unroll
      for (u32 e = 0; e < SPEC_HELD; e++) sum[e] = k0 + b < a.top_k ? num_fma(w, y[b][e], sum[e]) : sum[e];
    }
  }
}

/* v of the elements first, first + SPEC_THREADS, ... */
NUM void read_piece(const rmsnorm_args &a, const row_source &s, u32 first, f32 (&v)[SPEC_HELD]) {
  f32 delta[SPEC_HELD];
#pragma unroll
  for (u32 e = 0; e < SPEC_HELD; e++) {
    const u32 i = first + e * SPEC_THREADS;
    v[e] = i < COLUMNS(s) ? a.x[s.at + i] : 0.0f;
    delta[e] = i < COLUMNS(s) && a.delta ? a.delta[s.at + i] : 0.0f;
  }
  if (a.experts) {
    f32 sum[SPEC_HELD];
    add_experts(a, s, first, sum);
#pragma unroll
    for (u32 e = 0; e < SPEC_HELD; e++) delta[e] = a.delta ? num_add(sum[e], delta[e]) : sum[e];
  }
  if (!a.experts && !a.delta) return;
#pragma unroll
  for (u32 e = 0; e < SPEC_HELD; e++) v[e] = num_fma(delta[e], a.delta_scale, v[e]);
}

NUM bf16 normalised(const rmsnorm_args &a, f32 v, f32 r, bf16 weight) {
  return num_to_bf16(num_mul(num_mul(num_mul(v, r), num_from_bf16(weight)), a.y_scale));
}

/* The chains of the partial sums go on through a piece. */
NUM f32 add_squares(const f32 *shared, u32 count, f32 p) {
#pragma unroll
  for (u32 i = threadIdx.x; i < PIECE; i += PARTIALS)
    if (i < count) p = num_fma(shared[i], shared[i], p);
  return p;
}

extern "C" __global__ __launch_bounds__(SPEC_THREADS) void rmsnorm(const __grid_constant__ rmsnorm_args a) {
  __shared__ f32 shared[PIECE], partial[PARTIALS];
  ptx_grid_next();
  const u32 row = blockIdx.x, j = threadIdx.x, lane = j % 32u;
  const bool is_row = row < (a.rows_kind == ROWS_TOKENS ? a.step->token_count : a.step->logit_count);
  const u64 source = a.row_index ? a.row_index[row] : row;
  bf16 weight[SPEC_HELD] = {0};
#pragma unroll
  for (u32 e = 0; e < SPEC_HELD; e++)
    if (IS_EARLY && j + e * SPEC_THREADS < a.dim) weight[e] = a.weight[j + e * SPEC_THREADS];
  const bool has_expert = a.experts && is_row && lane < a.top_k;
  const u64 pair = source * a.top_k + lane;
  const u32 pair_row = has_expert ? ptx_load_fresh(a.pair_row + pair) : 0u;
  const f32 pair_weight = has_expert ? ptx_load_fresh(a.topk_weight + pair) : 0.0f;
#pragma unroll 1
  for (u32 pass = IS_EARLY ? 0u : 1u; pass < 2u; pass++) {
    const bool rehearses = pass == 0;
    if (!rehearses) ptx_grid_wait();
    if (!rehearses && !is_row) return;
    const row_source s = {source * a.x_stride, rehearses ? 0u : a.dim, pair_row, pair_weight};
    f32 held[SPEC_HELD] = {0.0f}, v[SPEC_HELD], p = 0.0f;
#pragma unroll 1
    for (u32 first = j; first - j < a.dim; first += PIECE) {
      read_piece(a, s, first, v);
#pragma unroll
      for (u32 e = 0; e < SPEC_HELD; e++) {
        const u32 i = first + e * SPEC_THREADS;
        if (first == j) held[e] = v[e];
        shared[j + e * SPEC_THREADS] = v[e];
        if (i < COLUMNS(s) && a.x_out) a.x_out[s.at + i] = v[e];
      }
      __syncthreads();
      if (j < PARTIALS) p = add_squares(shared, a.dim - (first - j), p);
      __syncthreads();
    }
    if (j < PARTIALS) partial[j] = p;
    __syncthreads();
    const f32 sum = reduce_tree_shared<PARTIALS>(partial);
    const f32 r = num_div(1.0f, num_sqrt(num_add(num_div(sum, (f32)a.dim), a.eps)));

    bf16 *y = a.y + (u64)row * a.y_stride;
#pragma unroll
    for (u32 e = 0; e < SPEC_HELD; e++) {
      const u32 i = j + e * SPEC_THREADS;
      if (i < COLUMNS(s)) y[i] = normalised(a, held[e], r, IS_EARLY ? weight[e] : a.weight[i]);
    }
#pragma unroll 1
    for (u32 first = j + PIECE; first - j < COLUMNS(s); first += PIECE) {
      if (!a.x_out) read_piece(a, s, first, v);
#pragma unroll
      for (u32 e = 0; e < SPEC_HELD; e++) {
        const u32 i = first + e * SPEC_THREADS;
        if (i < COLUMNS(s)) y[i] = normalised(a, a.x_out ? a.x_out[s.at + i] : v[e], r, a.weight[i]);
      }
    }
  }
}
#endif

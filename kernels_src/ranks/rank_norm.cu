/* rank_norm.cu - exchanges every rank's columns of what is added to the residual stream, adds them, stores the stream, and normalises the
 * row. NUMERICS.md, `rank_norm`.
 *
 * A block makes its rank's columns of delta, with experts their weighted sum, sends them as words with tags (words.cuh), takes those of the
 * other ranks, and goes on as rmsnorm. Grid: rows; a block waits for the blocks of its row on other ranks, and those of rows that the step
 * does not have only take their ticket. 512 threads, SPEC_HELD 1, 2 or 4 as in rmsnorm.cu; at most EXCHANGE_TAGGED_BYTES of a rank.
 * The time is that of rmsnorm and one way over the link. The routing is read, and all code but stores and waits runs once, before the wait
 * for earlier kernels, as in rmsnorm.cu. */
#include "spec.cuh"
#include "ranks/words.cuh"
#include "rows/norm_row.cuh"

#define OWN (SPEC_HELD > 1u ? SPEC_HELD / 2u : 1u) /* vectors of a thread in the rank's columns: at most half of a row */
#define WORDS (2u * SPEC_HELD)                     /* words of a thread in a row */

/* This rank's `columns` columns of delta, into shared memory. */
NUM void make_own(const rank_norm_args &a, u32 row, u32 pair_row, f32 pair_weight, u32 columns, float4 *own) {
  float4 delta[OWN], sum[OWN];
#pragma unroll
  for (u32 e = 0; e < OWN; e++)
    delta[e] = read4(a.delta + (u64)row * a.part, (threadIdx.x + e * SPEC_THREADS) * 4u, a.delta ? columns : 0u);
  if (a.experts) add_experts(a.experts, a.part, a.top_k, pair_row, pair_weight, columns, sum);
#pragma unroll
  for (u32 e = 0; e < OWN; e++) {
    const u32 i = threadIdx.x + e * SPEC_THREADS;
    if (a.experts) delta[e] = a.delta ? add4(sum[e], delta[e]) : sum[e];
    if (i * 4u < columns) own[i] = delta[e];
  }
}

typedef struct row_words { /* of each rank: `count` words of this row, of `all` words of all rows, from `first` on */
  u32 count, first, all;
} row_words;

NUM void put_own(const rank_norm_args &a, const row_words &w, u8 *inbox, u32 epoch, u32 rank, const u64 *peer, const float2 *own) {
  u8 *to = inbox + ((u64)rank * w.all + w.first) * 16u;
#pragma unroll 1
  for (u32 n = 1; n < a.count; n++) {
    u8 *inbox_there = there(to, peer[(rank + n) % a.count]);
    for (u32 i = threadIdx.x; i < w.count; i += SPEC_THREADS)
      words_put(inbox_there + i * 16u, epoch, num_bits(own[i].x), num_bits(own[i].y));
  }
}

/* The words of all other ranks. All of a thread's that are not here yet are polled together. */
NUM void take_others(const rank_norm_args &a, const row_words &w, const u8 *inbox, u32 epoch, u32 rank, u64 timeout, float2 *words) {
  u32 from[WORDS], number[WORDS];
#pragma unroll
  for (u32 k = 0; k < WORDS; k++) {
    const u32 i = threadIdx.x + k * SPEC_THREADS, n = w.count ? i / w.count : a.count;
    from[k] = n + 1u < a.count ? (rank + a.count - 1u - n) % a.count : rank; /* its own: none, or here */
    number[k] = i - n * w.count;
  }
  patience late = {};
  for (u32 missing = a.count; missing != rank;) {
    u32 low[WORDS], high[WORDS];
    bool is_here[WORDS];
    missing = rank;
#pragma unroll
    for (u32 k = 0; k < WORDS; k++)
      is_here[k] = from[k] != rank && words_get(inbox + ((u64)from[k] * w.all + w.first + number[k]) * 16u, epoch, low[k], high[k]);
#pragma unroll
    for (u32 k = 0; k < WORDS; k++) {
      if (is_here[k]) words[from[k] * w.count + number[k]] = make_float2(num_float(low[k]), num_float(high[k]));
      if (is_here[k]) from[k] = rank;
      if (from[k] != rank) missing = from[k];
    }
    if (missing != rank) wait_more(a, timeout, missing, epoch, late);
  }
}

extern "C" __global__ __launch_bounds__(SPEC_THREADS) void rank_norm(const __grid_constant__ rank_norm_args a) {
  __shared__ float4 shared[ROW / 4u];
  __shared__ f32 partial[PARTIALS];
  __shared__ u64 peer[RANKS_MAX];
  ptx_grid_next();
  const u32 row = blockIdx.x, j = threadIdx.x, lane = j % 32u, rows = a.step->token_count, rank = a.ranks->rank;
  const u64 timeout = a.ranks->timeout_ns, pair = (u64)row * a.top_k + lane;
  const bool is_row = row < rows, has_expert = a.experts && is_row && lane < a.top_k;
  if (j < RANKS_MAX) peer[j] = a.ranks->peer[j];
  const u32 pair_row = has_expert ? ptx_load_fresh(a.pair_row + pair) : 0u;
  const f32 pair_weight = has_expert ? ptx_load_fresh(a.topk_weight + pair) : 0.0f;
  uint2 weights[SPEC_HELD];
  read_weights(a.weight, a.dim, weights);
#pragma unroll 1
  for (u32 columns = 0;; columns = a.dim) { /* first a warm-up without columns */
    if (columns) ptx_grid_wait();
    const u32 epoch = columns ? next_epoch(a) : 0u;
    if (columns && !is_row) {
      if (rows > 0) advance(a, epoch); /* without rows no rank exchanges */
      return;
    }
    const row_words w = columns ? row_words{a.part / 2u, row * (a.part / 2u), rows * (a.part / 2u)} : row_words{0, 0, 0};
    float4 v[SPEC_HELD];
#pragma unroll
    for (u32 e = 0; e < SPEC_HELD; e++) v[e] = read4(a.x + (u64)row * a.dim, (j + e * SPEC_THREADS) * 4u, columns);
    make_own(a, row, pair_row, pair_weight, columns ? a.part : 0u, shared + rank * (a.part / 4u));
    __syncthreads();
    u8 *inbox = words_inbox(a, epoch);
    put_own(a, w, inbox, epoch, rank, peer, (const float2 *)shared + rank * w.count);
    if (columns) advance(a, epoch);
    take_others(a, w, inbox, epoch, rank, timeout, (float2 *)shared);
    __syncthreads();
#pragma unroll
    for (u32 e = 0; e < SPEC_HELD; e++) {
      const u32 i = (j + e * SPEC_THREADS) * 4u;
      if (i < columns) v[e] = fma4(shared[i / 4u], a.delta_scale, v[e]);
      shared[i / 4u] = v[e];
      if (i < columns) *(float4 *)(a.x_out + (u64)row * a.dim + i) = v[e];
    }
    const f32 r = norm_factor(shared, partial, a.dim, a.eps);
    write_normalised(a.y + (u64)row * a.y_stride, columns, v, r, weights, a.y_scale);
    if (columns) return;
  }
}

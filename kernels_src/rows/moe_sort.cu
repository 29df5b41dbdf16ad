/* moe_sort.cu - orders the (token, slot) pairs by expert, then token. NUMERICS.md, `moe_sort`.
 *
 * topk_id [T][top_k] -> expert_first [experts + 1], row_token [T * top_k], pair_row [T][top_k]; a token names an expert at most once. A
 * counting sort: the pairs are split into consecutive shares, one a block, and these into 32 consecutive pieces, one a warp. Every block
 * counts the experts of all shares, those before its own apart, so that no block waits for another; a warp counts the experts of its piece,
 * then places its pairs after all earlier ones. Rows follow from counts alone, never from the order of arrival. Where the next product
 * needs the tokens' rows in this order a block copies those of its share as well.
 * Grid: any number of blocks; min(132, ceil(rows / 64)), with copies min(132, ceil(rows / 16)). 1024 threads.
 * Moves T * top_k * 12 bytes, and 4 more of L2 for every block and pair; bound by a launch and some round trips to L2. On an H200, 64
 * experts, top 6: 3.2 us at 64 rows, 5.1 at 2,048, with 2,048 columns 18.4. Study: tools/bench/history, small-ops. */
#include "spec.cuh"
#include "ptx/reduce.cuh"

static_assert(SPEC_THREADS == 1024, "32 warps");
#define EXPERTS_MAX 512u
#define NO_EXPERT 0xffffffffu
#define IN_FLIGHT 8u /* loads of a thread in flight together */

typedef struct shared_state {
  u16 counts[32][EXPERTS_MAX]; /* of a piece: at most 65536 / 32 tokens; then those of the share's earlier pieces */
  u32 before[EXPERTS_MAX];     /* pairs of the expert in earlier shares */
  u32 first[EXPERTS_MAX];      /* pairs in later shares; then the expert's first row */
  u32 warp_total[32];
} shared_state;

/* The lanes with this lane's expert, and whether it is the lowest of them. */
typedef struct peers {
  u32 expert, lanes, leader;
} peers;

NUM peers find_peers(const u32 *topk_id, u32 pair, u32 end) {
  const u32 expert = pair < end ? topk_id[pair] : NO_EXPERT;
  const u32 lanes = __match_any_sync(WARP_ALL, expert);
  return {expert, lanes, (u32)__ffs((i32)lanes) - 1u == threadIdx.x % 32u};
}

/* Counts the experts of pairs `from` to `to`, by all threads. */
NUM void count_share(u32 *counts, const u32 *topk_id, u32 from, u32 to) {
#pragma unroll 1
  for (u32 i = from + threadIdx.x; i < to; i += IN_FLIGHT * SPEC_THREADS) {
    u32 expert[IN_FLIGHT];
#pragma unroll
    for (u32 n = 0; n < IN_FLIGHT; n++) expert[n] = i + n * SPEC_THREADS < to ? topk_id[i + n * SPEC_THREADS] : NO_EXPERT;
#pragma unroll
    for (u32 n = 0; n < IN_FLIGHT; n++)
      if (expert[n] != NO_EXPERT) reduce_count(&counts[expert[n]]);
  }
}

#define PIECES 4u /* 16-byte loads of a row that a lane has in flight */

/* x_sorted[row of the pair] = x[its token] for the pairs `begin` to `end`, whose rows are in pair_row: a warp reads a part of a token's row
 * once and writes it wherever the token goes. */
NUM void copy_rows(const moe_sort_args &a, u32 begin, u32 end) {
  const u32 lane = threadIdx.x % 32u, pieces = a.columns / 8u, parts = (pieces + 32u * PIECES - 1u) / (32u * PIECES);
  const u32 first = begin / a.top_k, items = begin < end ? ((end - 1u) / a.top_k + 1u - first) * parts : 0u;
#pragma unroll 1
  for (u32 item = threadIdx.x / 32u; item < items; item += SPEC_THREADS / 32u) {
    const u32 token = first + item / parts, at = item % parts * (32u * PIECES) + lane;
    const uint4 *from = (const uint4 *)a.x + (u64)token * pieces + at;
    uint4 piece[PIECES];
#pragma unroll
    for (u32 i = 0; i < PIECES; i++)
      if (at + i * 32u < pieces) piece[i] = from[i * 32u];
    for (u32 pair = token * a.top_k; pair < (token + 1u) * a.top_k; pair++) {
      if (pair < begin || pair >= end) continue;
      uint4 *to = (uint4 *)a.x_sorted + (u64)a.pair_row[pair] * pieces + at;
#pragma unroll
      for (u32 i = 0; i < PIECES; i++)
        if (at + i * 32u < pieces) to[i * 32u] = piece[i];
    }
  }
}

extern "C" __global__ __launch_bounds__(SPEC_THREADS) void moe_sort(const __grid_constant__ moe_sort_args a) {
  __shared__ shared_state s;
  ptx_grid_next();
  const u32 t = threadIdx.x, lane = t % 32u, warp = t / 32u;
  const u32 pairs = a.step->token_count * a.top_k, per_block = (pairs + gridDim.x - 1u) / gridDim.x, share = (per_block + 31u) & ~31u;
  const u32 share_begin = blockIdx.x * share < pairs ? blockIdx.x * share : pairs;
  const u32 share_end = pairs - share_begin < share ? pairs : share_begin + share;
  const u32 piece = (share + 1023u) / 1024u * 32u, left = share_end - share_begin;
  const u32 begin = share_begin + (warp * piece < left ? warp * piece : left), end = share_end - begin < piece ? share_end : begin + piece;
  for (u32 i = t; i < 32u * EXPERTS_MAX; i += SPEC_THREADS) s.counts[i / EXPERTS_MAX][i % EXPERTS_MAX] = 0;
  if (t < EXPERTS_MAX) s.before[t] = s.first[t] = 0;
  __syncthreads();
  ptx_grid_wait();
  count_share(s.before, a.topk_id, 0, share_begin);
  count_share(s.first, a.topk_id, share_end, pairs);
  for (u32 i = begin; i < end; i += 32u) {
    const peers p = find_peers(a.topk_id, i + lane, end);
    if (p.leader && p.expert != NO_EXPERT) s.counts[warp][p.expert] += (u16)__popc(p.lanes);
    __syncwarp();
  }
  __syncthreads();

  u32 total = 0;
  if (t < EXPERTS_MAX) {
    u32 count[32];
#pragma unroll
    for (u32 w = 0; w < 32; w++) count[w] = s.counts[w][t];
#pragma unroll
    for (u32 w = 0; w < 32; w++) { /* an earlier count reaches 65536 only where the piece has none, and is unused */
      s.counts[w][t] = (u16)total;
      total += count[w];
    }
    total += s.before[t] + s.first[t];
  }
  const u32 upto = reduce_prefix_warp(total);
  if (lane == 31) s.warp_total[warp] = upto;
  __syncthreads();
  if (warp == 0) s.warp_total[lane] = reduce_prefix_warp(s.warp_total[lane]) - s.warp_total[lane];
  __syncthreads();
  const u32 first = s.warp_total[warp] + upto - total;
  if (t < EXPERTS_MAX) s.first[t] = first + s.before[t];
  if (t < a.experts && blockIdx.x == 0) a.expert_first[t] = first;
  if (t == 0 && blockIdx.x == 0) a.expert_first[a.experts] = pairs;
  __syncthreads();

  for (u32 i = begin; i < end; i += 32u) {
    const peers p = find_peers(a.topk_id, i + lane, end);
    if (p.expert != NO_EXPERT) {
      const u32 row = s.first[p.expert] + s.counts[warp][p.expert] + (u32)__popc(p.lanes & ((1u << lane) - 1u));
      a.row_token[row] = (i + lane) / a.top_k;
      a.pair_row[i + lane] = row;
    }
    __syncwarp();
    if (p.leader && p.expert != NO_EXPERT) s.counts[warp][p.expert] += (u16)__popc(p.lanes);
    __syncwarp();
  }
  if (a.columns == 0) return;
  __syncthreads(); /* the rows of the share's pairs are known */
  copy_rows(a, share_begin, share_end);
}

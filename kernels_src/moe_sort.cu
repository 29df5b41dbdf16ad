/* moe_sort.cu - orders the (token, slot) pairs by expert, then token. NUMERICS.md, `moe_sort`.
 *
 * topk_id [T][top_k] -> expert_first [experts + 1], row_token [T * top_k], pair_row [T][top_k]. A counting sort by one block: the
 * pairs are cut into 32 consecutive pieces, one a warp; a warp counts its pieces' experts, then places them behind all earlier
 * pieces. Places come from counts alone, never from who arrives first. A token names an expert at most once. Grid: one
 * block. Moves T * top_k * 16 bytes. */
#include "spec.cuh"
#include "reduce.cuh"

static_assert(SPEC_THREADS == 1024, "32 warps");
#define EXPERTS_MAX 512u
#define NOWHERE 0xffffffffu

/* The lanes with this lane's expert, and whether it is the lowest of them. */
typedef struct peers {
  u32 expert, lanes, leader;
} peers;

NUM peers find_peers(const u32 *topk_id, u32 pair, u32 end) {
  const u32 expert = pair < end ? topk_id[pair] : NOWHERE;
  const u32 lanes = __match_any_sync(WARP_ALL, expert);
  return {expert, lanes, (u32)__ffs((i32)lanes) - 1u == threadIdx.x % 32u};
}

extern "C" __global__ __launch_bounds__(SPEC_THREADS) void moe_sort(const __grid_constant__ moe_sort_args a) {
  __shared__ u16 counts[32][EXPERTS_MAX]; /* of a piece: at most 65536 / 32 tokens; then how many lie before it */
  __shared__ u32 first[EXPERTS_MAX], warp_total[32];
  ptx_grid_next();
  ptx_grid_wait();
  const u32 t = threadIdx.x, lane = t % 32u, warp = t / 32u;
  const u32 pairs = a.step->token_count * a.top_k, piece = (pairs + 1023u) / 1024u * 32u;
  const u32 begin = warp * piece < pairs ? warp * piece : pairs, end = begin + piece < pairs ? begin + piece : pairs;

  for (u32 i = t; i < 32u * EXPERTS_MAX; i += SPEC_THREADS) counts[i / EXPERTS_MAX][i % EXPERTS_MAX] = 0;
  __syncthreads();
  for (u32 i = begin; i < end; i += 32u) {
    const peers p = find_peers(a.topk_id, i + lane, end);
    if (p.leader && p.expert != NOWHERE) counts[warp][p.expert] += (u16)__popc(p.lanes);
    __syncwarp();
  }
  __syncthreads();

  u32 total = 0;
  if (t < EXPERTS_MAX)
    for (u32 w = 0; w < 32; w++) { /* a count before may reach 65536 only where the piece has none, and is not used there */
      const u32 count = counts[w][t];
      counts[w][t] = (u16)total;
      total += count;
    }
  const u32 upto = reduce_prefix_warp(total);
  if (lane == 31) warp_total[warp] = upto;
  __syncthreads();
  if (warp == 0) warp_total[lane] = reduce_prefix_warp(warp_total[lane]) - warp_total[lane];
  __syncthreads();
  if (t < EXPERTS_MAX) first[t] = warp_total[warp] + upto - total;
  if (t < a.experts) a.expert_first[t] = warp_total[warp] + upto - total;
  if (t == 0) a.expert_first[a.experts] = pairs;
  __syncthreads();

  for (u32 i = begin; i < end; i += 32u) {
    const peers p = find_peers(a.topk_id, i + lane, end);
    if (p.expert != NOWHERE) {
      const u32 before = counts[warp][p.expert] + (u32)__popc(p.lanes & ((1u << lane) - 1u));
      const u32 row = first[p.expert] + before;
      a.row_token[row] = (i + lane) / a.top_k;
      a.pair_row[i + lane] = row;
    }
    __syncwarp();
    if (p.leader && p.expert != NOWHERE) counts[warp][p.expert] += (u16)__popc(p.lanes);
    __syncwarp();
  }
}

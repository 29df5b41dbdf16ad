/* router.cu - scores the experts of each token and picks top_k of them. NUMERICS.md, `router`.
 *
 * logits [T][experts] fp32 -> topk_id, topk_weight [T][top_k] in ascending expert id. Every choice is made under the total
 * order (score descending, index ascending), held in one integer key. A warp a token; lane j holds experts j, j + 32, ...
 * Grid: ceil(tokens / 4), 4 warps a block. Moves experts * 4 bytes a token. */
#include "spec.cuh"
#include "reduce.cuh"

static_assert(SPEC_THREADS == 128, "four tokens a block");
#define TOKENS (SPEC_THREADS / 32u)
#define EXPERTS_MAX 512u
#define EXPERTS_PER_LANE (EXPERTS_MAX / 32u)
#define GROUPS_PER_LANE 2u /* at most 64 groups */

/* What (score descending, index ascending) puts first has the larger key; every key is above 0. */
NUM u64 rank_key(f32 score, u32 index) { return (u64)num_order(score) << 32 | (0xffffffffu - index); }
NUM u32 rank_index(u64 key) { return 0xffffffffu - (u32)key; }

/* Takes the best of the keys that the lanes hold (0: none) and strikes it out; every lane gets it. */
NUM u64 take_best(u64 (&key)[EXPERTS_PER_LANE]) {
  u64 best = 0;
#pragma unroll
  for (u32 i = 0; i < EXPERTS_PER_LANE; i++) best = key[i] > best ? key[i] : best;
  best = reduce_max_warp(best);
#pragma unroll
  for (u32 i = 0; i < EXPERTS_PER_LANE; i++) key[i] = key[i] == best ? 0 : key[i];
  return best;
}

/* s[e] of NUMERICS.md into score. */
NUM void score_experts(const router_args &a, const f32 *logits, f32 *score) {
  const u32 lane = threadIdx.x % 32u;
  if (a.scoring == ROUTER_SIGMOID) {
    for (u32 e = lane; e < a.experts; e += 32u) score[e] = num_sigmoid(logits[e]);
    return;
  }
  u64 best = 0;
  for (u32 e = lane; e < a.experts; e += 32u) {
    const u64 key = rank_key(logits[e], e);
    best = key > best ? key : best;
  }
  const f32 top = logits[rank_index(reduce_max_warp(best))];
  f32 p = 0.0f;
  for (u32 e = lane; e < a.experts; e += 32u) {
    const f32 q = num_exp(num_sub(logits[e], top));
    score[e] = q;
    p = num_add(p, q);
  }
  const f32 z = reduce_tree_warp(p);
  for (u32 e = lane; e < a.experts; e += 32u) score[e] = num_div(score[e], z);
}

/* Bit g: group g stays. Lane g holds groups g and g + 32. */
NUM u64 choose_groups(const router_args &a, const f32 *choice) {
  const u32 lane = threadIdx.x % 32u, neighbours = a.experts / a.groups;
  u64 key[EXPERTS_PER_LANE];
#pragma unroll
  for (u32 i = 0; i < EXPERTS_PER_LANE; i++) {
    const u32 g = lane + 32u * i;
    key[i] = 0;
    if (i >= GROUPS_PER_LANE || g >= a.groups) continue;
    u64 first = 0, second = 0;
    for (u32 n = 0; n < neighbours; n++) {
      const u64 k = rank_key(choice[g * neighbours + n], n);
      second = k > first ? first : k > second ? k : second;
      first = k > first ? k : first;
    }
    f32 s = choice[g * neighbours + rank_index(first)];
    if (a.group_mode == ROUTER_GROUP_TOP2 && second) s = num_add(s, choice[g * neighbours + rank_index(second)]);
    key[i] = rank_key(s, g);
  }
  u64 stays = 0;
  for (u32 i = 0; i < a.top_groups; i++) stays |= 1ull << (rank_index(take_best(key)) & 63u);
  return stays;
}

extern "C" __global__ __launch_bounds__(SPEC_THREADS) void router(const __grid_constant__ router_args a) {
  __shared__ f32 score_of[TOKENS][EXPERTS_MAX], choice_of[TOKENS][EXPERTS_MAX];
  ptx_grid_next();
  ptx_grid_wait();
  const u32 warp = threadIdx.x / 32u, lane = threadIdx.x % 32u, t = blockIdx.x * TOKENS + warp;
  if (t >= a.step->token_count) return; /* a whole warp; only warps work together here */
  f32 *score = score_of[warp], *choice = choice_of[warp];
  score_experts(a, a.logits + (u64)t * a.experts, score);
  for (u32 e = lane; e < a.experts; e += 32u) choice[e] = a.bias ? num_add(score[e], a.bias[e]) : score[e];
  __syncwarp();

  const u32 neighbours = a.group_mode == ROUTER_GROUP_NONE ? a.experts : a.experts / a.groups;
  const u64 stays = a.group_mode == ROUTER_GROUP_NONE ? 1 : choose_groups(a, choice);
  u64 key[EXPERTS_PER_LANE];
#pragma unroll
  for (u32 i = 0; i < EXPERTS_PER_LANE; i++) {
    const u32 e = lane + 32u * i;
    key[i] = e < a.experts && (stays >> (e / neighbours) & 1u) ? rank_key(choice[e], e) : 0;
  }
  u32 id = 0xffffffffu; /* lane k < top_k: the k-th choice */
  for (u32 k = 0; k < a.top_k; k++) {
    const u32 e = rank_index(take_best(key));
    if (lane == k) id = e;
  }

  u32 place = 0; /* by ascending id */
  for (u32 k = 0; k < a.top_k; k++) place += __shfl_sync(WARP_ALL, id, k) < id;
  f32 sum = 0.0f;
  const f32 w = lane < a.top_k ? score[id] : 0.0f;
  for (u32 k = 0; k < a.top_k; k++) { /* the chain runs in ascending id */
    const u32 from = (u32)__ffs((i32)__ballot_sync(WARP_ALL, lane < a.top_k && place == k)) - 1u;
    sum = num_add(sum, __shfl_sync(WARP_ALL, w, from));
  }
  if (lane < a.top_k) {
    const f32 share = a.normalise ? num_div(w, num_add(sum, 1e-20f)) : w;
    a.topk_id[(u64)t * a.top_k + place] = id;
    a.topk_weight[(u64)t * a.top_k + place] = num_mul(share, a.scale);
  }
}

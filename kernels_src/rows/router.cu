/* router.cu - scores the experts of each token, picks top_k of them, and for small M sorts the pairs. NUMERICS.md, `router`, `moe_sort`.
 *
 * logits [T][experts] fp32 -> topk_id, topk_weight [T][top_k] in ascending expert id. Every choice is made in the total order (score
 * descending, index ascending). A warp per token; lane j holds experts j, j + 32, ... Grid: ceil(tokens / warps of a block), 128 threads.
 * With a.sorts one block takes all tokens, at most ROUTER_SORTS_MAX, with 128 threads for up to 4 and 512 for more, and sorts the pairs as
 * moe_sort does: each expert has a bit for every token, so rows are counts of bits. It then runs once without a token before the wait, so
 * that its code is in the instruction cache (not with ORDER_BESIDE, which starts after that wait anyway). Moves experts * 4 bytes a token;
 * bound by a launch and one round trip to L2. On an H200, 64 experts, top 6: 3.1 us, with the sort 3.5 us at 1 row and 3.9 us at 16. Study:
 * tools/bench/history, small-ops. */
#include "spec.cuh"
#include "ptx/reduce.cuh"

static_assert(SPEC_THREADS == 128 || SPEC_THREADS == 512, "large M, or small");
#define WARPS (SPEC_THREADS / 32u)
#define EXPERTS_MAX 512u
#define TOP_K_MAX 32u
#define EXPERTS_PER_LANE (EXPERTS_MAX / 32u)
#define GROUPS_PER_LANE 2u /* at most 64 groups */
#define MARKS ((ROUTER_SORTS_MAX + 31u) / 32u)
#define EXPERTS_PER_THREAD (EXPERTS_MAX / SPEC_THREADS)

typedef struct shared_state {
  f32 score[WARPS][EXPERTS_MAX];
  u32 marks[EXPERTS_MAX][MARKS]; /* bit t: of token t */
  u32 first[EXPERTS_MAX], warps[WARPS];
  u16 id[ROUTER_SORTS_MAX][TOP_K_MAX]; /* ascending */
} shared_state;

/* A key that is larger the earlier an item is in the order (score descending, index ascending); every key is above 0. */
NUM u64 rank_key(f32 score, u32 index) { return (u64)num_order(score) << 32 | (0xffffffffu - index); }
NUM u32 rank_index(u64 key) { return 0xffffffffu - (u32)key; }

/* Removes the first, in the order (order descending, index ascending), of count items, item lane + 32 i in order[i] (0: none); every lane
 * gets its index. */
template <u32 N> NUM u32 take_first(u32 (&order)[N], u32 count) {
  const u32 lane = threadIdx.x % 32u;
  u32 best = 0, at = 0;
#pragma unroll
  for (u32 i = 0; i < N; i++) {
    if (32u * i >= count) break;
    at = order[i] > best ? lane + 32u * i : at;
    best = order[i] > best ? order[i] : best;
  }
  const u32 first = ~__reduce_max_sync(WARP_ALL, best == __reduce_max_sync(WARP_ALL, best) ? ~at : 0);
#pragma unroll
  for (u32 i = 0; i < N; i++) {
    if (32u * i >= count) break;
    order[i] = first == lane + 32u * i ? 0 : order[i];
  }
  return first;
}

/* s[e] of NUMERICS.md into score. logits: null for zeros. All logits are in flight together; the other loops are kept short, since fetching
 * code for one token takes longer than another iteration. */
NUM void score_experts(const router_args &a, const f32 *logits, f32 *score) {
  const u32 lane = threadIdx.x % 32u;
  f32 value[EXPERTS_PER_LANE], top = 0.0f, p = 0.0f;
  u32 best = 0;
#pragma unroll
  for (u32 i = 0; i < EXPERTS_PER_LANE; i++) {
    const u32 e = lane + 32u * i;
    if (32u * i >= a.experts) break;
    value[i] = e < a.experts && logits ? ptx_load_fresh(logits + e) : 0.0f;
  }
#pragma unroll
  for (u32 i = 0; i < EXPERTS_PER_LANE; i++) {
    const u32 e = lane + 32u * i, order = e < a.experts ? num_order(value[i]) : 0u;
    if (32u * i >= a.experts) break;
    score[e] = value[i];
    top = order > best ? value[i] : top;
    best = order > best ? order : best;
  }
  if (a.scoring == ROUTER_SIGMOID) {
#pragma unroll 4
    for (u32 e = lane; e < a.experts; e += 32u) score[e] = num_sigmoid(score[e]);
    return;
  }
  top = __shfl_sync(WARP_ALL, top, __ffs((i32)__ballot_sync(WARP_ALL, best == __reduce_max_sync(WARP_ALL, best))) - 1);
#pragma unroll 1
  for (u32 e = lane; e < a.experts; e += 32u) {
    score[e] = num_exp(num_sub(score[e], top));
    p = num_add(p, score[e]);
  }
  const f32 z = reduce_tree_warp(p);
#pragma unroll 1
  for (u32 e = lane; e < a.experts; e += 32u) score[e] = num_div(score[e], z);
}

NUM f32 choice_of(const router_args &a, const f32 *score, u32 e) { return a.bias ? num_add(score[e], a.bias[e]) : score[e]; }

/* Bit g: group g is kept. Lane g holds groups g and g + 32. */
NUM u64 choose_groups(const router_args &a, const f32 *score) {
  const u32 lane = threadIdx.x % 32u, neighbours = a.experts / a.groups;
  u32 order[GROUPS_PER_LANE];
#pragma unroll
  for (u32 i = 0; i < GROUPS_PER_LANE; i++) {
    const u32 g = lane + 32u * i;
    order[i] = 0;
    if (g >= a.groups) continue;
    u64 first = 0, second = 0;
    for (u32 n = 0; n < neighbours; n++) {
      const u64 k = rank_key(choice_of(a, score, g * neighbours + n), n);
      second = k > first ? first : k > second ? k : second;
      first = k > first ? k : first;
    }
    f32 s = choice_of(a, score, g * neighbours + rank_index(first));
    if (a.group_mode == ROUTER_GROUP_TOP2 && second) s = num_add(s, choice_of(a, score, g * neighbours + rank_index(second)));
    order[i] = num_order(s);
  }
  u64 stays = 0;
  for (u32 i = 0; i < a.top_groups; i++) stays |= 1ull << (take_first(order, a.groups) & 63u);
  return stays;
}

/* The experts of token t, by a warp. is_warm_up: of no token, nothing is stored. alone: the only token, whose pairs are in order. */
NUM void route(const router_args &a, shared_state &s, u32 t, bool is_warm_up, bool alone) {
  const u32 lane = threadIdx.x % 32u, below = (1u << lane) - 1u;
  f32 *score = s.score[threadIdx.x / 32u];
  score_experts(a, is_warm_up ? nullptr : a.logits + (u64)t * a.experts, score);
  __syncwarp();
  const bool grouped = a.group_mode != ROUTER_GROUP_NONE;
  const u64 stays = grouped ? choose_groups(a, score) : 1;
  const u32 per_expert = grouped ? ((1u << 20) * a.groups + a.experts - 1u) / a.experts : 0u; /* e * it >> 20 is e's group, up to 512 */
  u32 order[EXPERTS_PER_LANE], chosen = 0; /* bit i: expert lane + 32 i is chosen */
#pragma unroll
  for (u32 i = 0; i < EXPERTS_PER_LANE; i++) {
    const u32 e = lane + 32u * i;
    if (32u * i >= a.experts) break;
    order[i] = e < a.experts && (stays >> (e * per_expert >> 20) & 1u) ? num_order(choice_of(a, score, e)) : 0;
  }
#pragma unroll 1
  for (u32 k = 0; k < a.top_k; k++) {
    const u32 e = take_first(order, a.experts);
    chosen |= e % 32u == lane ? 1u << (e / 32u) : 0u;
  }

  f32 sum = 0.0f;
  for (u32 i = 0; 32u * i < a.experts && a.normalise; i++) /* a chain in ascending id */
    for (u32 left = __ballot_sync(WARP_ALL, chosen >> i & 1u); left; left &= left - 1u)
      sum = num_add(sum, score[32u * i + (u32)__ffs((i32)left) - 1u]);
  u32 before = 0;
  for (u32 i = 0; 32u * i < a.experts && !is_warm_up; i++) {
    const u32 e = lane + 32u * i, these = __ballot_sync(WARP_ALL, chosen >> i & 1u), place = before + (u32)__popc(these & below);
    before += (u32)__popc(these);
    if (alone && e < a.experts) a.expert_first[e] = place;
    if (!(chosen >> i & 1u)) continue;
    const f32 share = a.normalise ? num_div(score[e], num_add(sum, 1e-20f)) : score[e];
    a.topk_id[(u64)t * a.top_k + place] = e;
    a.topk_weight[(u64)t * a.top_k + place] = num_mul(share, a.scale);
    if (alone) {
      a.pair_row[place] = place;
      a.row_token[place] = 0;
    } else if (a.sorts) {
      s.id[t][place] = (u16)e;
      reduce_mark(&s.marks[e][t / 32u], 1u << (t % 32u));
    }
  }
  if (alone && lane == 0 && !is_warm_up) a.expert_first[a.experts] = a.top_k;
  __syncwarp(); /* score may be overwritten now */
}

/* Sorts the pairs by expert, then token: a thread counts for its experts, then places its pairs. */
NUM void sort_pairs(const router_args &a, shared_state &s, u32 tokens, bool is_warm_up) {
  const u32 t = threadIdx.x, lane = t % 32u, warp = t / 32u;
  __syncthreads();
  u32 count[EXPERTS_PER_THREAD], mine = 0;
#pragma unroll
  for (u32 i = 0; i < EXPERTS_PER_THREAD; i++) {
    count[i] = mine;
#pragma unroll
    for (u32 m = 0; m < MARKS; m++) mine += (u32)__popc(s.marks[t * EXPERTS_PER_THREAD + i][m]);
  }
  const u32 upto = reduce_prefix_warp(mine);
  if (lane == 31) s.warps[warp] = upto;
  __syncthreads();
  u32 before = upto - mine;
#pragma unroll
  for (u32 w = 0; w < WARPS; w++) before += w < warp ? s.warps[w] : 0;
#pragma unroll
  for (u32 i = 0; i < EXPERTS_PER_THREAD; i++) {
    const u32 e = t * EXPERTS_PER_THREAD + i;
    s.first[e] = before + count[i];
    if (e < a.experts && !is_warm_up) a.expert_first[e] = before + count[i];
  }
  if (t == 0 && !is_warm_up) a.expert_first[a.experts] = tokens * a.top_k;
  __syncthreads();
  for (u32 p = t; p < tokens * a.top_k; p += SPEC_THREADS) {
    const u32 token = p / a.top_k, e = s.id[token][p % a.top_k];
    u32 row = s.first[e];
#pragma unroll
    for (u32 m = 0; m < MARKS; m++) {
      const u32 below = token >= 32u * (m + 1u) ? WARP_ALL : token > 32u * m ? (1u << (token - 32u * m)) - 1u : 0;
      row += (u32)__popc(s.marks[e][m] & below);
    }
    a.pair_row[p] = row;
    a.row_token[row] = token;
  }
}

extern "C" __global__ __launch_bounds__(SPEC_THREADS) void router(const __grid_constant__ router_args a) {
  __shared__ shared_state s;
  ptx_grid_next();
  const u32 tokens = a.step->token_count, step = WARPS * (a.sorts ? 1u : gridDim.x);
  for (u32 e = threadIdx.x; e < EXPERTS_MAX && a.sorts; e += SPEC_THREADS) {
    s.score[0][e] = 0.0f;
#pragma unroll
    for (u32 m = 0; m < MARKS; m++) s.marks[e][m] = 0;
  }
  __syncthreads();
  if (a.sorts && blockIdx.x > 0) {
    ptx_grid_wait();
    return;
  }
  const bool is_beside = a.order == ORDER_BESIDE, alone = a.sorts && tokens == 1u;
#pragma unroll 1
  for (u32 is_warm_up = a.sorts && !is_beside; is_warm_up < 2u; is_warm_up--) { /* 1, then 0, or just 0; then it wraps */
    if (!is_warm_up && !is_beside) ptx_grid_wait();
    const u32 end = is_warm_up ? 1u : tokens;
    for (u32 t = blockIdx.x * WARPS + threadIdx.x / 32u; t < end; t += step) route(a, s, t, is_warm_up, alone);
    if (a.sorts && !alone) sort_pairs(a, s, is_warm_up ? 0u : tokens, is_warm_up);
  }
  if (is_beside) ptx_grid_wait();
}

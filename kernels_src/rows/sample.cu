/* sample.cu - chooses or scores the token of each logits row; its log-probability, its rank and the top tokens. NUMERICS.md, `sample`.
 *
 * logits, adjusted [R][vocab] fp32, param and result [R], top [R][TOP_LOGPROBS_MAX]. Grid: rows, ROW_BLOCKS, a cluster per row; 512
 * threads; dynamic shared memory SAMPLE_PART_BYTES(vocab). A block keeps WIDTH columns of every 1024 in shared memory, and so whole chains
 * of the 1024 partial sums of the softmax; the row is read once. The blocks exchange results through each other's shared memory. The order
 * (logit descending, index ascending) is one integer key per logit, no two equal, so every limit is the smallest key that is kept: for
 * top-k, top-p and the top tokens it is found digit by digit, from the top, with a histogram per warp. Weights and their sums are integers,
 * so the order of additions does not matter. Moves vocab * 4 bytes a row, for an adjusted row once more each for its logits and adjusted
 * logits. On an H200, 1 and 64 rows of 102,400, us: greedy 7.3, 25; drawn 24, 94; top-k 50 68, 251; top-p 0.9 102, 397; top 20 tokens 62,
 * 226. Study: tools/bench/history, small-ops. */
#include "spec.cuh"
#include "ptx/reduce.cuh"

static_assert(SPEC_THREADS == 512, "a tile of exponentials is four per thread");
#define KERNEL_CLUSTER ROW_BLOCKS
#define PARTIALS 1024u /* of the softmax: their number is part of the result */
#define WIDTH (PARTIALS / KERNEL_CLUSTER)
#define WARPS (SPEC_THREADS / 32u)
#define INDEX_BITS 18u /* vocab <= 262144 */
#define GROUPS_MAX 256u /* of 1024 logits */
#define DIGIT_BITS 6u
#define DIGITS (1u << DIGIT_BITS)
#define KEY_BITS 54u /* 32 of the order, 18 of the index, 4 zeros: nine digits */
#define TILE (4u * SPEC_THREADS) /* exponentials at a time */
#define NO_NUMBER (~0ull) /* in place of a key: a logit is NaN or Inf */

static_assert(WIDTH == 128, "four columns per lane");

typedef struct histogram { /* of a block: by warp */
  u64 sum[WARPS][DIGITS];
  u32 members[WARPS][DIGITS];
} histogram;

/* Values exchanged between blocks are double-buffered: while one side is read, the next value may arrive on the other. A member of the
 * union is no longer in use at the cluster barrier before the next one is written. */
typedef struct shared_state {
  union {
    histogram of;
    f32 tile[2][TILE];
    u64 groups[KERNEL_CLUSTER][GROUPS_MAX];
  };
  u64 warps[2][WARPS];
  u64 reduced[2][KERNEL_CLUSTER];
  u64 sum[2][KERNEL_CLUSTER][DIGITS];
  u32 members[2][KERNEL_CLUSTER][DIGITS];
  f32 partial[PARTIALS];
  u64 listed[KERNEL_CLUSTER][TOP_LOGPROBS_MAX];
  u32 listed_count[KERNEL_CLUSTER];
} shared_state;

/* The block's part of one row, and the terms of its softmax weights: number n of the part is column n % WIDTH of group n / WIDTH. */
typedef struct row_part {
  shared_state *s;
  const f32 *logits; /* in shared memory */
  u32 count, vocab, rank; /* count: numbers of the part, padding included */
  u32 groups; /* with a logit in the thread's column, t % WIDTH */
  f32 top, temperature;
  u32 side; /* of the double buffers */
} row_part;

NUM u32 index_at(const row_part &row, u32 n) { return n / WIDTH * PARTIALS + row.rank * WIDTH + n % WIDTH; }

NUM u64 key_of(f32 logit, u32 i) {
  return ((u64)num_order(logit) << INDEX_BITS | ((1u << INDEX_BITS) - 1u - i)) << (KEY_BITS - 32u - INDEX_BITS);
}

/* Key of number n; 0 for padding. */
NUM u64 key_at(const row_part &row, u32 n) {
  const u32 i = index_at(row, n);
  return n < row.count && i < row.vocab ? key_of(row.logits[n], i) : 0;
}

NUM u32 index_of(u64 key) { return (1u << INDEX_BITS) - 1u - ((u32)(key >> (KEY_BITS - 32u - INDEX_BITS)) & ((1u << INDEX_BITS) - 1u)); }

/* floor(exp((l - top) / temperature) * 2^40) */
NUM u64 weight_of(const row_part &row, f32 logit) {
  return (u64)num_mul(num_exp(num_div(num_sub(logit, row.top), row.temperature)), 0x1p40f);
}

/* Weight of number n if its key is at least cut; cut is above 0. */
NUM u64 weight_at(const row_part &row, u64 cut, u32 n) { return key_at(row, n) >= cut ? weight_of(row, row.logits[n]) : 0; }

/* === Exchange between blocks ============================================================================================ */

/* Sum or maximum, over all warps of the cluster, of x, which is the same in the lanes of a warp. */
template <class F> NUM u64 cluster_reduce(row_part &row, u64 x, F join) {
  const u32 t = threadIdx.x, lane = t % 32u, side = row.side;
  shared_state &s = *row.s;
  row.side ^= 1u;
  if (lane == 0) s.warps[side][t / 32u] = x;
  __syncthreads();
  if (t < KERNEL_CLUSTER) {
    u64 all = s.warps[side][0];
#pragma unroll
    for (u32 w = 1; w < WARPS; w++) all = join(all, s.warps[side][w]);
    *ptx_cluster_map(&s.reduced[side][row.rank], t) = all;
  }
  ptx_cluster_sync();
  u64 all = s.reduced[side][0];
#pragma unroll
  for (u32 r = 1; r < KERNEL_CLUSTER; r++) all = join(all, s.reduced[side][r]);
  return all;
}

NUM u64 cluster_max(row_part &row, u64 x) {
  return cluster_reduce(row, reduce_max_warp(x), [](u64 a, u64 b) { return a > b ? a : b; });
}

NUM u64 cluster_sum(row_part &row, u64 x) {
  return cluster_reduce(row, reduce_sum_warp(x), [](u64 a, u64 b) { return a + b; });
}

/* === The row ============================================================================================================ */

/* Rows aligned to 16 bytes: all loads of the part are in flight at once. A warp takes a group. */
NUM void copy_part(const row_part &row, f32 *part, const f32 *from) {
  for (u32 n = threadIdx.x * 4u; n < row.count; n += SPEC_THREADS * 4u) {
    const u32 i = index_at(row, n);
    ptx_copy16(ptx_shared(part + n), from + (i < row.vocab ? i : 0), i < row.vocab ? 16u : 0);
  }
  ptx_copy_commit();
  PTX_COPY_WAIT(0);
}

/* Loads the block's part of a row into shared memory. Returns the largest key of the row, or NO_NUMBER. -Inf is allowed in adjusted rows
 * only. */
NUM u64 load_part(row_part &row, f32 *part, const f32 *from, bool adjusted) {
  const u32 first = threadIdx.x / WIDTH, column = row.rank * WIDTH + threadIdx.x % WIDTH;
  f32 top = num_float(0xff800000u), zero = 0.0f; /* zero: NaN once a logit is not finite */
  u32 at = first;
  if (row.vocab % 4u == 0) {
    copy_part(row, part, from);
  } else {
    for (u32 g = first; g < row.groups; g += SPEC_THREADS / WIDTH) part[g * WIDTH + threadIdx.x % WIDTH] = from[g * PARTIALS + column];
  }
  __syncthreads();
#pragma unroll 4
  for (u32 g = first; g < row.groups; g += SPEC_THREADS / WIDTH) {
    const f32 logit = part[g * WIDTH + threadIdx.x % WIDTH];
    zero = num_fma(logit, 0.0f, zero);
    at = logit > top ? g : at;
    top = logit > top ? logit : top;
  }
  const u64 best = first < row.groups ? key_of(top, at * PARTIALS + column) : 0;
  return cluster_max(row, !adjusted && zero != 0.0f ? NO_NUMBER : best);
}

/* log(Z), valid in block 0 only. The chains of the block's columns, a tile of groups at a time: while four warps add up one tile, the
 * others compute the exponentials of the next. */
NUM f32 log_sum(row_part &row) {
  shared_state &s = *row.s;
  const u32 t = threadIdx.x;
  f32 p = 0.0f;
  for (u32 first = 0, side = 0; first < row.count / WIDTH; first += TILE / WIDTH, side ^= 1u) {
#pragma unroll
    for (u32 k = 0; k < TILE; k += SPEC_THREADS) {
      const u32 n = first * WIDTH + k + t;
      s.tile[side][k + t] = n / WIDTH < row.groups ? num_exp(num_sub(row.logits[n], row.top)) : 0.0f;
    }
    __syncthreads();
    if (t < WIDTH) {
#pragma unroll
      for (u32 k = 0; k < TILE / WIDTH; k++)
        if (first + k < row.groups) p = num_add(p, s.tile[side][k * WIDTH + t]);
    }
  }
  if (t < WIDTH) *ptx_cluster_map(&s.partial[row.rank * WIDTH + t], 0) = p;
  ptx_cluster_sync();
  if (row.rank > 0) return 0.0f;
#pragma unroll
  for (u32 step = PARTIALS / 2; step > WIDTH; step /= 2) {
    if (t < step) s.partial[t] = num_add(s.partial[t], s.partial[t + step]);
    __syncthreads();
  }
  return num_log(reduce_tree_shared<2 * WIDTH>(s.partial));
}

/* The number of keys of the row that are larger. */
NUM u32 find_rank(row_part &row, u64 key) {
  u64 above = 0;
  for (u32 n = threadIdx.x; n < row.count; n += SPEC_THREADS) above += key_at(row, n) > key;
  return (u32)cluster_sum(row, above);
}

/* === Limits ============================================================================================================= */

/* Sum over the warp of weights of at most 2^40, by three sums of 14 bits per term. */
NUM u64 sum_weights(u64 w) {
  const u32 low = __reduce_add_sync(WARP_ALL, (u32)w & 0x3fffu), middle = __reduce_add_sync(WARP_ALL, (u32)(w >> 14) & 0x3fffu);
  return ((u64)__reduce_add_sync(WARP_ALL, (u32)(w >> 28)) << 28) + ((u64)middle << 14) + low;
}

/* Fills the warp's histogram with the keys >= floor that agree with prefix above the digit at shift. floor is above 0. */
NUM void count_digits(const row_part &row, u64 floor, u64 prefix, u32 shift, bool by_weight) {
  const u32 lane = threadIdx.x % 32u, warp = threadIdx.x / 32u;
  histogram &h = row.s->of;
  for (u32 d = lane; d < DIGITS; d += 32u) h.sum[warp][d] = h.members[warp][d] = 0;
  __syncwarp();
  for (u32 base = threadIdx.x - lane; base < row.count; base += SPEC_THREADS) {
    const u64 key = key_at(row, base + lane);
    const bool match = key >= floor && key >> shift >> DIGIT_BITS == prefix;
    u32 left = __ballot_sync(WARP_ALL, match);
    if (!left) continue;
    const u32 digit = (u32)(key >> shift) % DIGITS;
    const u64 weight = match && by_weight ? weight_of(row, row.logits[base + lane]) : 0;
    while (left) { /* one digit of the warp's 32 at a time */
      const u32 from = (u32)__ffs((i32)left) - 1u, d = __shfl_sync(WARP_ALL, digit, from);
      const u32 same = __ballot_sync(WARP_ALL, match && digit == d);
      const u64 sum = by_weight ? sum_weights(match && digit == d ? weight : 0) : (u64)__popc(same);
      if (lane == from) {
        h.sum[warp][d] += sum;
        h.members[warp][d] += (u32)__popc(same);
      }
      left &= ~same;
    }
    __syncwarp();
  }
  __syncthreads();
}

/* Sends the block's histogram to all blocks. */
NUM void send_digits(row_part &row, u32 side) {
  const u32 t = threadIdx.x, d = t % DIGITS, to = t / DIGITS;
  shared_state &s = *row.s;
  static_assert(SPEC_THREADS == DIGITS * KERNEL_CLUSTER, "a thread sends one digit to one block");
  u64 sum = 0;
  u32 members = 0;
#pragma unroll
  for (u32 w = 0; w < WARPS; w++) {
    sum += s.of.sum[w][d];
    members += s.of.members[w][d];
  }
  *ptx_cluster_map(&s.sum[side][row.rank][d], to) = sum;
  *ptx_cluster_map(&s.members[side][row.rank][d], to) = members;
  ptx_cluster_sync();
}

typedef struct digit_found {
  u32 digit, members;
  u64 above; /* sum of the digits above it */
} digit_found;

/* The digit at which the sum from the top reaches target. Lane j has the digits 63 - 2j and 62 - 2j. */
NUM digit_found find_digit(const row_part &row, u32 side, u64 target) {
  const shared_state &s = *row.s;
  const u32 lane = threadIdx.x % 32u, upper = DIGITS - 1u - 2u * lane;
  u64 sum[2] = {0, 0};
  u32 members[2] = {0, 0};
#pragma unroll
  for (u32 r = 0; r < KERNEL_CLUSTER; r++) {
#pragma unroll
    for (u32 i = 0; i < 2; i++) {
      sum[i] += s.sum[side][r][upper - i];
      members[i] += s.members[side][r][upper - i];
    }
  }
  u64 upto = sum[0] + sum[1];
#pragma unroll
  for (u32 by = 1; by < 32; by *= 2) {
    const u64 before = __shfl_up_sync(WARP_ALL, upto, by);
    upto += lane >= by ? before : 0;
  }
  const u32 from = (u32)__ffs((i32)(__ballot_sync(WARP_ALL, upto >= target) | 0x80000000u)) - 1u;
  const u64 above = upto - sum[0] - sum[1];
  const bool second = above + sum[0] < target;
  const digit_found mine = {upper - second, second ? members[1] : members[0], above + (second ? sum[0] : 0)};
  return {__shfl_sync(WARP_ALL, mine.digit, from), __shfl_sync(WARP_ALL, mine.members, from), __shfl_sync(WARP_ALL, mine.above, from)};
}

/* The largest cut such that the members, or the weights, of keys >= cut (and >= floor) reach target, which is at least 1 and at most the
 * total of all keys >= floor. */
NUM u64 find_cut(row_part &row, u64 floor, u64 target, bool by_weight) {
  u64 prefix = 0;
  u32 shift = KEY_BITS;
  do {
    shift -= DIGIT_BITS;
    const u32 side = row.side;
    row.side ^= 1u;
    count_digits(row, floor, prefix, shift, by_weight);
    send_digits(row, side);
    const digit_found found = find_digit(row, side, target);
    target -= found.above;
    prefix = prefix << DIGIT_BITS | found.digit;
    if (found.members == (by_weight ? 1u : target)) break; /* all keys with this prefix are needed */
  } while (shift > 0);
  const u64 cut = prefix << shift;
  return cut > floor ? cut : floor;
}

/* Sum of the weights with keys >= cut. */
NUM u64 sum_from(row_part &row, u64 cut) {
  u64 sum = 0;
  for (u32 n = threadIdx.x; n < row.count; n += SPEC_THREADS) sum += weight_at(row, cut, n);
  return cluster_sum(row, sum);
}

/* A key >= cut such that the keys from it on still reach target. Most logits have almost no weight: those below an even share of what may
 * be dropped are left out of the search. A guess, used only if the sum confirms it, so no bit depends on it. */
NUM u64 raise_floor(row_part &row, u64 cut, u64 sum, u64 target) {
  const f32 share = num_mul(num_div((f32)(sum - target), (f32)row.vocab), 0x1p-40f);
  if (share < 0x1p-60f) return cut;
  const u64 key = key_of(num_add(row.top, num_mul(row.temperature, num_log(share))), (1u << INDEX_BITS) - 1u);
  return key > cut && sum_from(row, key) >= target ? key : cut;
}

/* The smallest key of a logit that min-p keeps. The difference is monotonic in the logit, rounded or not: binary search. */
NUM u64 min_p_cut(f32 top, f32 bound) {
  u32 low = num_order(num_float(0xff800000u)), high = num_order(top);
  if (num_order(bound) == low) return 0;
#pragma unroll 1
  while (low < high) {
    const u32 middle = low + (high - low) / 2u;
    const f32 logit = num_float(middle & 0x80000000u ? middle ^ 0x80000000u : ~middle);
    if (num_sub(logit, top) >= bound) {
      high = middle;
    } else {
      low = middle + 1u;
    }
  }
  return (u64)low << (KEY_BITS - 32u);
}

/* === Drawing ============================================================================================================ */

/* The first of the warp's lanes whose prefix sum exceeds r; the sum of the lanes before it is subtracted from r. */
NUM u32 find_lane(u64 sum, u64 &r) {
  const u32 lane = threadIdx.x % 32u;
  u64 upto = sum;
#pragma unroll
  for (u32 by = 1; by < 32; by *= 2) {
    const u64 before = __shfl_up_sync(WARP_ALL, upto, by);
    upto += lane >= by ? before : 0;
  }
  const u32 found = (u32)__ffs((i32)(__ballot_sync(WARP_ALL, upto > r) | 0x80000000u)) - 1u;
  r -= __shfl_sync(WARP_ALL, upto - sum, found);
  return found;
}

/* Sends the block's sum of weights in each group of 1024 to all blocks. */
NUM void send_groups(row_part &row, u64 cut) {
  const u32 lane = threadIdx.x % 32u, groups = row.count / WIDTH;
  for (u32 g = threadIdx.x / 32u; g < groups; g += WARPS) {
    u64 sum = 0;
#pragma unroll
    for (u32 c = 0; c < WIDTH; c += 32u) sum += weight_at(row, cut, g * WIDTH + c + lane);
    sum = reduce_sum_warp(sum);
    if (lane < KERNEL_CLUSTER) *ptx_cluster_map(&row.s->groups[row.rank][g], lane) = sum;
  }
  ptx_cluster_sync();
}

NUM u64 sum_group(const row_part &row, u32 g) {
  u64 sum = 0;
#pragma unroll
  for (u32 r = 0; r < KERNEL_CLUSTER; r++) sum += row.s->groups[r][g];
  return sum;
}

/* The smallest index whose running sum of weights with keys >= cut exceeds random * (their sum) / 2^64: first its group, then the block
 * that holds it, which finds it. */
NUM u32 draw(row_part &row, u64 cut, u64 random) {
  const u32 lane = threadIdx.x % 32u, groups = row.count / WIDTH, many = GROUPS_MAX / 32u;
  send_groups(row, cut);
  u64 mine = 0;
#pragma unroll 1
  for (u32 g = lane * many; g < lane * many + many && g < groups; g++) mine += sum_group(row, g);
  u64 r = num_mulhi64(random, reduce_sum_warp(mine));
  u32 g = find_lane(mine, r) * many;
#pragma unroll 1
  for (u64 sum = sum_group(row, g); g + 1u < groups && r >= sum; sum = sum_group(row, g)) {
    r -= sum;
    g++;
  }
  u32 rank = 0;
#pragma unroll 1
  while (rank < KERNEL_CLUSTER - 1u && r >= row.s->groups[rank][g]) r -= row.s->groups[rank++][g];
  u64 found = 0;
  if (rank == row.rank) {
    u64 weight[4];
    const u32 n = g * WIDTH + 4u * lane;
#pragma unroll
    for (u32 k = 0; k < 4; k++) weight[k] = weight_at(row, cut, n + k);
    const u32 from = find_lane(weight[0] + weight[1] + weight[2] + weight[3], r);
    u32 k = 0;
#pragma unroll
    for (u64 upto = 0; k < 3u && r >= upto + weight[k]; k++) upto += weight[k];
    found = __shfl_sync(WARP_ALL, index_at(row, n + k), from);
  }
  return (u32)cluster_max(row, found);
}

/* Chooses a token at a temperature above 0. */
NUM u32 choose(row_part &row, const sample_param &p) {
  u64 cut = p.top_k > 0 && p.top_k < row.vocab ? find_cut(row, 1, p.top_k, false) : 1;
  const u64 likely = min_p_cut(row.top, p.min_p_bound);
  cut = likely > cut ? likely : cut;
  if (p.top_p_fixed < 1ull << 32) {
    const u64 sum = sum_from(row, cut);
    const u64 limit = num_mulhi64(p.top_p_fixed, sum) << 32 | p.top_p_fixed * sum >> 32; /* the product has at most 91 bits */
    const u64 target = limit > 1 ? limit : 1;
    cut = find_cut(row, raise_floor(row, cut, sum, target), target, true);
  }
  return draw(row, cut, num_philox(p.seed, p.position, p.sample_index));
}

/* === Top log-probabilities ============================================================================================== */

/* The first `wanted` tokens in the order. Each warp lists its own, each block sends its list to block 0, where the place of a token is the
 * number of listed ones before it. logits: the row in global memory. */
NUM void write_top(row_part &row, const f32 *logits, f32 log_z, u32 wanted, top_logprob *out) {
  const u32 t = threadIdx.x, lane = t % 32u, from = t / 32u; /* a warp; then a block */
  shared_state &s = *row.s;
  const u64 cut = wanted < row.vocab ? find_cut(row, 1, wanted, false) : 1;
  u32 mine = 0;
  for (u32 base = t - lane; base < row.count; base += SPEC_THREADS) {
    const u64 key = key_at(row, base + lane);
    const u32 all = __ballot_sync(WARP_ALL, key >= cut);
    if (key >= cut) s.of.sum[from][mine + (u32)__popc(all & ((1u << lane) - 1u))] = key;
    mine += (u32)__popc(all);
  }
  if (lane == 0) s.of.members[from][0] = mine;
  __syncthreads();
  if (t < 32) {
    const u32 count = lane < WARPS ? s.of.members[lane][0] : 0, upto = reduce_prefix_warp(count);
    for (u32 k = 0; k < count; k++) *ptx_cluster_map(&s.listed[row.rank][upto - count + k], 0) = s.of.sum[lane][k];
    if (lane == 31) *ptx_cluster_map(&s.listed_count[row.rank], 0) = upto;
  }
  ptx_cluster_sync();
  if (row.rank > 0) return;
  if (from < KERNEL_CLUSTER && lane < s.listed_count[from]) {
    const u64 key = s.listed[from][lane];
    u32 place = 0;
#pragma unroll 1
    for (u32 r = 0; r < KERNEL_CLUSTER; r++) {
#pragma unroll 1
      for (u32 k = 0; k < s.listed_count[r]; k++) place += s.listed[r][k] > key;
    }
    out[place] = {(i32)index_of(key), num_sub(num_sub(logits[index_of(key)], row.top), log_z)};
  }
  if (t >= row.vocab && t < wanted) out[t] = {0, 0.0f};
}

/* === The kernel ========================================================================================================= */

/* Chooses the token of a row that is not scored. Afterwards the block's shared memory holds the logits again. */
NUM u32 choose_token(row_part &row, const sample_args &a, const sample_param &p, u32 r, u32 best, f32 *part) {
  u32 token = best;
  row_part from = row; /* the logits it is chosen from */
  if (p.adjusted) {
    __syncthreads();
    const f32 *adjusted = a.adjusted + (u64)r * a.vocab;
    token = index_of(load_part(from, part, adjusted, true));
    from.top = adjusted[token];
  }
  if (p.temperature > 0.0f) token = choose(from, p);
  row.side = from.side;
  if (!p.adjusted) return token;
  __syncthreads();
  load_part(row, part, a.logits + (u64)r * a.vocab, false);
  return token;
}

extern "C" __global__ __cluster_dims__(1, KERNEL_CLUSTER, 1) __launch_bounds__(SPEC_THREADS, 2)
void sample(const __grid_constant__ sample_args a) {
  extern __shared__ u8 raw[];
  __shared__ shared_state s;
  f32 *part = (f32 *)raw;
  ptx_grid_next();
  ptx_cluster_sync(); /* the other blocks have started: their memory exists */
  const u32 r = blockIdx.x, t = threadIdx.x;
  const bool is_row = r < a.step->logit_count;
  const sample_param param = a.param[r];
  ptx_grid_wait();
  if (!is_row) return;
  const f32 *logits = a.logits + (u64)r * a.vocab;
  top_logprob *top_tokens = a.top + (u64)r * TOP_LOGPROBS_MAX;
  const u32 count = (a.vocab + PARTIALS - 1u) / PARTIALS * WIDTH;
  const u32 column = blockIdx.y * WIDTH + t % WIDTH, groups = a.vocab > column ? (a.vocab - column + PARTIALS - 1u) / PARTIALS : 0;
  row_part row = {&s, part, count, a.vocab, blockIdx.y, groups, 0.0f, param.temperature, 0};
  const bool writes = row.rank == 0 && t == 0;

  const u64 best = load_part(row, part, logits, false);
  if (best == NO_NUMBER) {
    if (writes && param.target < 0) a.sampled[param.slot] = 0;
    if (writes) a.result[r] = {0, 0.0f, 1, 0, 0.0f};
    if (row.rank == 0 && t < param.top_count) top_tokens[t] = {0, 0.0f};
    return;
  }
  row.top = logits[index_of(best)];
  const f32 log_z = log_sum(row);
  u32 token = param.target >= 0 ? (u32)param.target : index_of(best);
  if (param.target < 0) {
    token = choose_token(row, a, param, r, token, part);
    if (writes) a.sampled[param.slot] = (i32)token;
  }
  const u32 rank = token == index_of(best) ? 0 : find_rank(row, key_of(logits[token], token));
  if (writes) a.result[r] = {(i32)token, num_sub(num_sub(logits[token], row.top), log_z), 0, rank, logits[token]};
  if (param.top_count) write_top(row, logits, log_z, param.top_count, top_tokens);
}

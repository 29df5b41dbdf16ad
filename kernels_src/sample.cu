/* sample.cu - chooses or scores the token of each logits row; its log-probability, its rank and the likeliest. NUMERICS.md, `sample`.
 *
 * logits, adjusted [R][vocab] fp32, param and result [R], top [R][TOP_LOGPROBS_MAX]. A block a row; the 1024 partial sums of the
 * softmax are the 1024 threads. The order "(logit descending, index ascending)" is one integer key per logit, no two alike, so
 * that every limit is one smallest key that stays: for top-k and top-p, and for the likeliest tokens, it is found digit by digit, from
 * the top, with a histogram per warp. Weights and their sums are integers: no order matters. Reads the row, from L2, 2 times
 * for greedy, about twice more to draw, once for the rank of another token than the likeliest, up to 11 times per limit, of which few
 * read more than logits. */
#include "spec.cuh"
#include "reduce.cuh"

static_assert(SPEC_THREADS == 1024, "the number of partial sums is part of the result");
#define WARPS (SPEC_THREADS / 32u)
#define INDEX_BITS 18u /* vocab <= 262144 */
#define DIGIT_BITS 6u
#define DIGITS (1u << DIGIT_BITS)
#define KEY_BITS 54u /* 32 of the order, 18 of the index, 4 zeros: nine digits */

/* One row and what is needed to weigh its logits. */
typedef struct row_view {
  const f32 *logits;
  u32 count;
  f32 top, temperature;
} row_view;

typedef struct histogram {
  u64 sum[WARPS][DIGITS];
  u32 members[WARPS][DIGITS];
  u64 reduce[WARPS]; /* of reduce.cuh */
  u64 digit_sum;
  u32 digit, digit_members;
} histogram;

NUM u64 key_of(f32 logit, u32 i) {
  return ((u64)num_order(logit) << INDEX_BITS | ((1u << INDEX_BITS) - 1u - i)) << (KEY_BITS - 32u - INDEX_BITS);
}

NUM u32 index_of(u64 key) { return (1u << INDEX_BITS) - 1u - ((u32)(key >> (KEY_BITS - 32u - INDEX_BITS)) & ((1u << INDEX_BITS) - 1u)); }

/* floor(exp((l - top) / temperature) * 2^40) */
NUM u64 weight_of(const row_view &row, f32 logit) {
  return (u64)num_mul(num_exp(num_div(num_sub(logit, row.top), row.temperature)), 0x1p40f);
}

/* Sum over the warp of weights of at most 2^40, by three sums of 14 bits per term. */
NUM u64 sum_weights(u64 w) {
  const u32 low = __reduce_add_sync(WARP_ALL, (u32)w & 0x3fffu), middle = __reduce_add_sync(WARP_ALL, (u32)(w >> 14) & 0x3fffu);
  return ((u64)__reduce_add_sync(WARP_ALL, (u32)(w >> 28)) << 28) + ((u64)middle << 14) + low;
}

/* Fills the warp's histogram with the keys >= floor that agree with prefix above the digit at shift. */
NUM void count_digits(histogram &h, const row_view &row, u64 floor, u64 prefix, u32 shift, bool by_weight) {
  const u32 lane = threadIdx.x % 32u, warp = threadIdx.x / 32u;
  for (u32 d = lane; d < DIGITS; d += 32u) h.sum[warp][d] = h.members[warp][d] = 0;
  __syncwarp();
  for (u32 base = threadIdx.x - lane; base < row.count; base += SPEC_THREADS) {
    const u32 i = base + lane;
    const f32 logit = i < row.count ? row.logits[i] : 0.0f;
    const u64 key = i < row.count ? key_of(logit, i) : 0;
    const bool match = i < row.count && key >= floor && key >> shift >> DIGIT_BITS == prefix;
    u32 left = __ballot_sync(WARP_ALL, match);
    if (!left) continue;
    const u32 digit = (u32)(key >> shift) % DIGITS;
    const u64 weight = match && by_weight ? weight_of(row, logit) : 0;
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
}

/* The digit at which the sum from the top reaches target, into h; what lies above it is taken off target. */
NUM u64 find_digit(histogram &h, u64 target) {
  const u32 t = threadIdx.x;
  __syncthreads();
  if (t < DIGITS) {
#pragma unroll 4
    for (u32 w = 1; w < WARPS; w++) {
      h.sum[0][t] += h.sum[w][t];
      h.members[0][t] += h.members[w][t];
    }
  }
  __syncthreads();
  if (t == 0) {
    u32 d = DIGITS - 1u;
    u64 above = 0;
    while (d > 0 && above + h.sum[0][d] < target) above += h.sum[0][d--];
    h.digit = d;
    h.digit_members = h.members[0][d];
    h.digit_sum = target - above;
  }
  __syncthreads();
  return h.digit_sum;
}

/* The largest cut such that what lies in keys >= cut (and >= floor) reaches target: members, or their weights. target is at
 * least 1 and at most what all keys >= floor hold. */
NUM u64 find_cut(histogram &h, const row_view &row, u64 floor, u64 target, bool by_weight) {
  u64 prefix = 0;
  u32 shift = KEY_BITS;
  do {
    shift -= DIGIT_BITS;
    count_digits(h, row, floor, prefix, shift, by_weight);
    target = find_digit(h, target);
    prefix = prefix << DIGIT_BITS | h.digit;
    const bool whole = h.digit_members == (by_weight ? 1u : target); /* everyone with this prefix is needed */
    __syncthreads();
    if (whole) break;
  } while (shift > 0);
  const u64 cut = prefix << shift;
  return cut > floor ? cut : floor;
}

/* Sum of the weights of indices begin .. end - 1 with keys >= cut, over the lanes of a warp. */
NUM u64 sum_range(const row_view &row, u64 cut, u32 begin, u32 end) {
  u64 sum = 0;
  for (u32 i = begin + threadIdx.x % 32u; i < end; i += 32u) {
    const f32 logit = row.logits[i];
    if (key_of(logit, i) >= cut) sum += weight_of(row, logit);
  }
  return reduce_sum_warp(sum);
}

/* The smallest index whose running sum of weights with keys >= cut exceeds random * (their sum) / 2^64. */
NUM u32 draw(histogram &h, const row_view &row, u64 cut, u64 random) {
  const u32 warp = threadIdx.x / 32u;
  u32 begin = 0, end = row.count;
  u64 r = random;
  bool scaled = false;
  __syncthreads(); /* h.reduce has been read */
  do { /* 32 pieces, each summed by a warp; the piece that holds r is cut up again */
    const u32 piece = (end - begin + WARPS - 1u) / WARPS;
    const u32 from = begin + warp * piece < end ? begin + warp * piece : end, to = from + piece < end ? from + piece : end;
    const u64 sum = sum_range(row, cut, from, to);
    if (threadIdx.x % 32u == 0) h.reduce[warp] = sum;
    __syncthreads();
    u64 all = 0;
#pragma unroll 1
    for (u32 w = 0; w < WARPS; w++) all += h.reduce[w];
    if (!scaled) r = num_mulhi64(random, all);
    scaled = true;
    u32 at = 0;
    while (at < WARPS - 1u && r >= h.reduce[at]) r -= h.reduce[at++];
    begin += at * piece;
    end = begin + piece < end ? begin + piece : end;
    __syncthreads();
  } while (end - begin > 1);
  return begin;
}

/* Sum of the weights with keys >= cut. */
NUM u64 sum_from(histogram &h, const row_view &row, u64 cut) {
  u64 sum = 0;
  for (u32 i = threadIdx.x; i < row.count; i += SPEC_THREADS) {
    const f32 logit = row.logits[i];
    if (key_of(logit, i) >= cut) sum += weight_of(row, logit);
  }
  return reduce_sum_block(sum, h.reduce);
}

/* A key >= cut such that keys from it on still reach target. Most logits weigh next to nothing: those below an even share of
 * what may be dropped are left out of the search. A guess, used only if the sum confirms it, so that no bit depends on it. */
NUM u64 raise_floor(histogram &h, const row_view &row, u64 cut, u64 sum, u64 target) {
  const f32 share = num_mul(num_div((f32)(sum - target), (f32)row.count), 0x1p-40f);
  if (share < 0x1p-60f) return cut;
  const u64 key = key_of(num_add(row.top, num_mul(row.temperature, num_log(share))), (1u << INDEX_BITS) - 1u);
  return key > cut && sum_from(h, row, key) >= target ? key : cut;
}

/* The smallest key of a logit that min-p lets stay. The difference grows with the logit, rounded or not: search by halves. */
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

/* The token at a temperature above 0. */
NUM u32 choose(histogram &h, const row_view &row, const sample_param &p) {
  u64 cut = p.top_k > 0 && p.top_k < row.count ? find_cut(h, row, 0, p.top_k, false) : 0;
  const u64 likely = min_p_cut(row.top, p.min_p_bound);
  cut = likely > cut ? likely : cut;
  if (p.top_p_fixed < 1ull << 32) {
    const u64 sum = sum_from(h, row, cut);
    const u64 limit = num_mulhi64(p.top_p_fixed, sum) << 32 | p.top_p_fixed * sum >> 32; /* the product has at most 91 bits */
    const u64 target = limit > 1 ? limit : 1;
    cut = find_cut(h, row, raise_floor(h, row, cut, sum, target), target, true);
  }
  return draw(h, row, cut, num_philox(p.seed, p.position, p.sample_index));
}

/* The largest key of the row. */
NUM u64 find_best(histogram &h, const f32 *logits, u32 count) {
  u64 best = 0;
#pragma unroll 4
  for (u32 i = threadIdx.x; i < count; i += SPEC_THREADS) {
    const u64 key = key_of(logits[i], i);
    best = key > best ? key : best;
  }
  return reduce_max_block(best, h.reduce);
}

/* How many keys of the row are larger. */
NUM u32 find_rank(histogram &h, const f32 *logits, u32 count, u64 key) {
  u64 above = 0;
#pragma unroll 4
  for (u32 i = threadIdx.x; i < count; i += SPEC_THREADS) above += key_of(logits[i], i) > key;
  return (u32)reduce_sum_block(above, h.reduce);
}

NUM f32 logprob_of(const row_view &row, f32 log_z, u32 i) { return num_sub(num_sub(row.logits[i], row.top), log_z); }

/* The first `wanted` tokens of the order. Each warp lists its own; a token's place is how many of all listed stand before it. */
NUM void write_top(histogram &h, const row_view &row, f32 log_z, u32 wanted, top_logprob *out) {
  const u32 t = threadIdx.x, lane = t % 32u, warp = t / 32u;
  const u64 cut = wanted < row.count ? find_cut(h, row, 0, wanted, false) : 0;
  u32 mine = 0;
  for (u32 base = t - lane; base < row.count; base += SPEC_THREADS) {
    const u32 i = base + lane;
    const u64 key = i < row.count ? key_of(row.logits[i], i) : 0;
    const bool match = i < row.count && key >= cut;
    const u32 all = __ballot_sync(WARP_ALL, match);
    if (match) h.sum[warp][mine + (u32)__popc(all & ((1u << lane) - 1u))] = key;
    mine += (u32)__popc(all);
  }
  if (lane == 0) h.members[warp][0] = mine;
  __syncthreads();
  if (lane < mine) {
    const u64 key = h.sum[warp][lane];
    u32 place = 0;
#pragma unroll 1
    for (u32 w = 0; w < WARPS; w++) {
#pragma unroll 1
      for (u32 k = 0; k < h.members[w][0]; k++) place += h.sum[w][k] > key;
    }
    out[place] = {(i32)index_of(key), logprob_of(row, log_z, index_of(key))};
  }
  if (t >= row.count && t < wanted) out[t] = {0, 0.0f};
}

extern "C" __global__ __launch_bounds__(SPEC_THREADS) void sample(const __grid_constant__ sample_args a) {
  __shared__ histogram h;
  __shared__ f32 tree[SPEC_THREADS];
  ptx_grid_next();
  ptx_grid_wait();
  const u32 r = blockIdx.x, t = threadIdx.x;
  if (r >= a.step->logit_count) return;
  const f32 *logits = a.logits + (u64)r * a.vocab;
  top_logprob *likeliest = a.top + (u64)r * TOP_LOGPROBS_MAX;
  const sample_param param = a.param[r];

  u32 nonfinite = 0;
  u64 best = 0;
#pragma unroll 4
  for (u32 i = t; i < a.vocab; i += SPEC_THREADS) {
    const f32 logit = logits[i];
    const u64 key = key_of(logit, i);
    nonfinite |= (num_bits(logit) & 0x7f800000u) == 0x7f800000u;
    best = key > best ? key : best;
  }
  if (__syncthreads_or((i32)nonfinite)) {
    if (t == 0 && param.target < 0) a.sampled[param.slot] = 0;
    if (t == 0) a.result[r] = {0, 0.0f, 1, 0};
    if (t < param.top_count) likeliest[t] = {0, 0.0f};
    return;
  }
  best = reduce_max_block(best, h.reduce);
  const row_view row = {logits, a.vocab, logits[index_of(best)], param.temperature};

  f32 p = 0.0f;
#pragma unroll 2
  for (u32 i = t; i < a.vocab; i += SPEC_THREADS) p = num_add(p, num_exp(num_sub(logits[i], row.top)));
  const f32 log_z = num_log(reduce_tree_block(p, tree));

  u32 token = index_of(best);
  if (param.target >= 0) {
    token = (u32)param.target;
  } else {
    row_view from = row; /* what it is chosen from */
    if (param.adjusted) {
      from.logits = a.adjusted + (u64)r * a.vocab;
      token = index_of(find_best(h, from.logits, a.vocab));
      from.top = from.logits[token];
    }
    if (param.temperature > 0.0f) token = choose(h, from, param);
    if (t == 0) a.sampled[param.slot] = (i32)token;
  }
  const u32 rank = token == index_of(best) ? 0 : find_rank(h, logits, a.vocab, key_of(logits[token], token));
  if (t == 0) a.result[r] = {(i32)token, logprob_of(row, log_z, token), 0, rank};
  if (param.top_count) write_top(h, row, log_z, param.top_count, likeliest);
}

/* index_topk.cu - the positions of each token's best scores, ascending. NUMERICS.md, `index_topk`.
 *
 * scores [row_count][stride] fp32 -> lists [T][topk]. A score is the integer of its order, found again digit by digit from the top, eight
 * bits each, by a histogram of counts, until all with the digits found are needed. The rest is order: warps have consecutive parts of the
 * row, count what they will write, and write behind those before them, so that no place depends on who comes first; of equal scores at the
 * limit the first ones are taken. A long row is shared by the eight blocks of a cluster, which add up their histograms through each other's
 * memory; a short one is a block's alone. A block keeps SPEC_HELD scores of its share in shared memory; more are read again in every pass.
 * A row of at most topk scores is not read.
 * Grid: any, ROW_BLOCKS: clusters take rows in turn. Moves n * 4 bytes a row, and topk * 4; five passes or six over what does not fit, from
 * L2. Bound by the passes of the blocks that find room (two of 512 threads on a multiprocessor), of few rows by the chain of barriers.
 * H200, us: rows of 64k 11 (1 row), 15 (16), 101 (128); of 8k 14 (128), 179 (2,048); one of 1M 149. With digits of 11 bits 14, 23, 101, 71,
 * 95, 126. */
#include "spec.cuh"
#include "reduce.cuh"

#define KERNEL_CLUSTER ROW_BLOCKS
#define WARPS (SPEC_THREADS / 32u)
#define DIGIT_BITS 8u
#define DIGITS (1u << DIGIT_BITS)
#define HELD_FOURS (SPEC_HELD / 4u)
#define ALONE_MAX (2u * SPEC_HELD) /* of longer rows, eight blocks take eight sooner one after the other than each block its own */
#define LONE_MAX (SPEC_HELD / 2u)  /* where there is a cluster for every row */
#define AT_ONCE 4u /* fours of a lane that are under way together */

static_assert(DIGITS == 32u * 8u && SPEC_THREADS == ROW_BLOCKS * DIGITS / 4u && SPEC_HELD % 4u == 0, "a lane has eight digits");

typedef struct shared_state {
  u32 counts[2][DIGITS];      /* of this block's share, by turns */
  uint4 met[ROW_BLOCKS][DIGITS / 4u]; /* of all blocks */
  u32 digit, above, members;  /* what find_digit finds */
  u32 larger[WARPS], equal[WARPS];                     /* in the shares of the warps before */
  u32 block_larger[ROW_BLOCKS], block_equal[ROW_BLOCKS]; /* in each block's share */
} shared_state;

/* A block's share of a row: fours of scores, of which this warp has those from begin to end, counted from the share's first. */
typedef struct row_share {
  shared_state *s;
  uint4 *held;
  const float4 *scores;       /* of the share */
  u32 n;                      /* scores from there to the row's end */
  u32 first;                  /* position of the first */
  u32 begin, end;
  u32 blocks;                 /* that share the row: all of the cluster, or this one */
  u32 turn;
} row_share;

/* Of what is chosen: keys whose upper bits are larger than these, and so many of those that agree. */
typedef struct limit {
  u32 prefix, shift, needed;
} limit;

NUM void wait_all(const row_share &row) {
  if (row.blocks > 1u) ptx_cluster_sync();
  else __syncthreads();
}

/* The keys of four scores; 0, below all keys, is none. */
NUM uint4 read_keys(const row_share &row, u32 four) {
  const u32 at = 4u * four;
  if (at >= row.n) return make_uint4(0, 0, 0, 0);
  const float4 x = row.scores[four];
  return make_uint4(num_order(x.x), at + 1u < row.n ? num_order(x.y) : 0, at + 2u < row.n ? num_order(x.z) : 0,
                    at + 3u < row.n ? num_order(x.w) : 0);
}

NUM uint4 keys_at(const row_share &row, u32 four) {
  if (four >= row.end) return make_uint4(0, 0, 0, 0);
  return four < HELD_FOURS ? row.held[four] : read_keys(row, four);
}

NUM void count_key(u32 *counts, u32 key, const limit &upto, u32 shift) {
  if (upto.shift == 32u ? key != 0 : key >> upto.shift == upto.prefix) reduce_count(&counts[(key >> shift) % DIGITS]);
}

/* The next digit of the keys that agree with those found, by all threads. The first time scores are read, and some held. */
template <bool FIRST> NUM void count_digits(row_share &row, const limit &upto, u32 shift) {
  u32 *counts = row.s->counts[row.turn];
  if (threadIdx.x < DIGITS) counts[threadIdx.x] = 0;
  __syncthreads();
#pragma unroll 1
  for (u32 four = row.begin + threadIdx.x % 32u; four < row.end; four += 32u * AT_ONCE) {
    uint4 key[AT_ONCE];
#pragma unroll
    for (u32 i = 0; i < AT_ONCE; i++) {
      const u32 at = four + 32u * i;
      key[i] = FIRST ? (at < row.end ? read_keys(row, at) : make_uint4(0, 0, 0, 0)) : keys_at(row, at);
    }
#pragma unroll
    for (u32 i = 0; i < AT_ONCE; i++) {
      const u32 at = four + 32u * i;
      if (FIRST && at < row.end && at < HELD_FOURS) row.held[at] = key[i];
      count_key(counts, key[i].x, upto, shift);
      count_key(counts, key[i].y, upto, shift);
      count_key(counts, key[i].z, upto, shift);
      count_key(counts, key[i].w, upto, shift);
    }
  }
}

/* The digit at which the counts of all blocks, from the largest digit down, reach target. Every thread fetches four counts of one block;
 * one warp adds up, whose lane t has the t-th eight digits from the top. */
NUM void find_digit(row_share &row, u32 target) {
  shared_state &s = *row.s;
  const u32 from = threadIdx.x / (DIGITS / 4u), four = threadIdx.x % (DIGITS / 4u);
  const uint4 *theirs = (const uint4 *)ptx_cluster_map(s.counts[row.turn], row.blocks > 1u ? from : blockIdx.y);
  if (from < row.blocks) s.met[from][four] = theirs[four];
  __syncthreads();
  if (threadIdx.x < 32u) {
    const u32 first = DIGITS - 8u * (threadIdx.x + 1u);
    u32 sum[8] = {}, total = 0;
#pragma unroll 2
    for (u32 i = 0; i < row.blocks; i++) {
      const uint4 low = s.met[i][first / 4u], high = s.met[i][first / 4u + 1u];
      sum[0] += low.x, sum[1] += low.y, sum[2] += low.z, sum[3] += low.w;
      sum[4] += high.x, sum[5] += high.y, sum[6] += high.z, sum[7] += high.w;
    }
#pragma unroll
    for (u32 i = 0; i < 8u; i++) total += sum[i];
    u32 above = reduce_prefix_warp(total) - total;
#pragma unroll
    for (u32 i = 8; i-- > 0;) {
      if (above < target && target <= above + sum[i]) s.digit = first + i, s.above = above, s.members = sum[i];
      above += sum[i];
    }
  }
  __syncthreads();
}

NUM limit find_limit(row_share &row, u32 topk) {
  limit found = {0, 32u, topk};
  bool more = true;
#pragma unroll 1
  while (more) {
    const u32 shift = found.shift - DIGIT_BITS;
    if (found.shift == 32u) count_digits<true>(row, found, shift);
    else count_digits<false>(row, found, shift);
    wait_all(row);
    find_digit(row, found.needed);
    const u32 members = row.s->members;
    found = {found.prefix << DIGIT_BITS | row.s->digit, shift, found.needed - row.s->above};
    row.turn ^= 1u; /* the other blocks may still read; all of them agree on the turn while they share rows */
    more = shift > 0 && members > found.needed; /* else all that agree are needed, or they are equal */
  }
  return found;
}

/* How many of the warp's keys are larger than the limit, and how many agree with it; then how many before them are, in the whole row. */
NUM uint2 count_before(row_share &row, const limit &l) {
  shared_state &s = *row.s;
  const u32 lane = threadIdx.x % 32u, warp = threadIdx.x / 32u;
  u32 larger = 0, equal = 0;
#pragma unroll 4
  for (u32 four = row.begin + lane; four < row.end; four += 32u) {
    const uint4 key = keys_at(row, four);
    const u32 upper[4] = {key.x >> l.shift, key.y >> l.shift, key.z >> l.shift, key.w >> l.shift};
#pragma unroll
    for (u32 e = 0; e < 4; e++) {
      larger += upper[e] > l.prefix;
      equal += upper[e] == l.prefix;
    }
  }
  larger = __reduce_add_sync(WARP_ALL, larger);
  equal = __reduce_add_sync(WARP_ALL, equal);
  if (lane == 0) s.larger[warp] = larger, s.equal[warp] = equal;
  __syncthreads();
  if (warp == 0) {
    larger = lane < WARPS ? s.larger[lane] : 0;
    equal = lane < WARPS ? s.equal[lane] : 0;
    const u32 larger_upto = reduce_prefix_warp(larger), equal_upto = reduce_prefix_warp(equal);
    if (lane < WARPS) s.larger[lane] = larger_upto - larger, s.equal[lane] = equal_upto - equal;
    const u32 all_larger = __shfl_sync(WARP_ALL, larger_upto, 31), all_equal = __shfl_sync(WARP_ALL, equal_upto, 31);
    if (lane < row.blocks) {
      const u32 to = row.blocks > 1u ? lane : blockIdx.y;
      *ptx_cluster_map(&s.block_larger[blockIdx.y], to) = all_larger;
      *ptx_cluster_map(&s.block_equal[blockIdx.y], to) = all_equal;
    }
  }
  wait_all(row);
  uint2 before = make_uint2(s.larger[warp], s.equal[warp]);
  for (u32 r = 0; r < blockIdx.y && row.blocks > 1u; r++) before.x += s.block_larger[r], before.y += s.block_equal[r];
  return before;
}

/* What is chosen of the warp's keys goes behind what is chosen before them. */
NUM void write_list(row_share &row, const limit &l, uint2 before, u32 *list) {
#pragma unroll 1
  for (u32 base = row.begin; base < row.end; base += 32u) {
    const u32 four = base + threadIdx.x % 32u;
    const uint4 key = keys_at(row, four);
    const u32 upper[4] = {key.x >> l.shift, key.y >> l.shift, key.z >> l.shift, key.w >> l.shift};
    u32 mine = 0; /* larger ones, and in the upper half equal ones */
#pragma unroll
    for (u32 e = 0; e < 4; e++) mine += upper[e] > l.prefix ? 1u : upper[e] == l.prefix ? 0x10000u : 0;
    if (!__any_sync(WARP_ALL, mine != 0)) continue;
    const u32 upto = reduce_prefix_warp(mine), all = __shfl_sync(WARP_ALL, upto, 31);
    u32 larger = before.x + ((upto - mine) & 0xffffu), equal = before.y + ((upto - mine) >> 16);
#pragma unroll
    for (u32 e = 0; e < 4; e++) {
      const bool is_larger = upper[e] > l.prefix, is_equal = upper[e] == l.prefix;
      if (is_larger || (is_equal && equal < l.needed)) list[larger + (equal < l.needed ? equal : l.needed)] = row.first + 4u * four + e;
      larger += is_larger;
      equal += is_equal;
    }
    before.x += all & 0xffffu;
    before.y += all >> 16;
  }
}

/* The list of the row, by all blocks of the cluster or by one. */
NUM void choose(const index_topk_args &a, row_share &row, u32 index, u32 blocks) {
  const u32 token = a.row_first + index, n = a.position[token] + 1u, rank = blocks > 1u ? blockIdx.y : 0;
  u32 *list = a.lists + (u64)token * a.topk;
  if (n <= a.topk) {
    for (u32 i = threadIdx.x; i < a.topk && rank == 0; i += SPEC_THREADS) list[i] = i < n ? i : INDEX_NONE;
    return;
  }
  const u32 fours = (n + 3u) / 4u, share = (fours + blocks - 1u) / blocks, first = rank * share < fours ? rank * share : fours;
  const u32 mine = fours - first < share ? fours - first : share, part = ((mine + WARPS - 1u) / WARPS + 31u) & ~31u;
  const u32 begin = threadIdx.x / 32u * part;
  row.scores = (const float4 *)(a.scores + (u64)index * a.stride) + first;
  row.n = n - (4u * first < n ? 4u * first : n);
  row.first = 4u * first;
  row.begin = begin < mine ? begin : mine;
  row.end = mine - row.begin < part ? mine : row.begin + part;
  row.blocks = blocks;
  const limit l = find_limit(row, a.topk);
  write_list(row, l, count_before(row, l), list);
}

extern "C" __global__ __cluster_dims__(1, KERNEL_CLUSTER, 1) __launch_bounds__(SPEC_THREADS, 2)
void index_topk(const __grid_constant__ index_topk_args a) {
  extern __shared__ u8 raw[];
  __shared__ shared_state s;
  ptx_grid_next();
  const u32 tokens = a.step->token_count, left = tokens > a.row_first ? tokens - a.row_first : 0;
  const u32 count = left < a.row_count ? left : a.row_count, alone_max = gridDim.x >= count ? LONE_MAX : ALONE_MAX;
  row_share row = {};
  row.s = &s;
  row.held = (uint4 *)raw;
  ptx_grid_wait();
#pragma unroll 1
  for (u32 blocks = ROW_BLOCKS; blocks > 0; blocks -= ROW_BLOCKS - 1u) { /* the long rows, then those that a block takes alone */
    const bool alone = blocks == 1u;
    const u32 first = alone ? blockIdx.y * gridDim.x + blockIdx.x : blockIdx.x, step = alone ? gridDim.x * ROW_BLOCKS : gridDim.x;
#pragma unroll 1
    for (u32 i = first; i < count; i += step)
      if ((a.position[a.row_first + i] < alone_max) == alone) choose(a, row, i, blocks);
    if (alone) break;
  }
}

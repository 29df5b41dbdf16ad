/* index_topk.cu - the positions of each token's best scores, ascending. NUMERICS.md, `index_topk`.
 *
 * scores [row_count][stride] fp32 -> lists [T][topk]. A score is the integer of its order; the limit is found digit by digit from the top
 * with a histogram of counts, until all scores with the digits found are needed. Scores above the limit and at it are marked, a bit each;
 * the bits before its own tell a thread where to write, and which of equal scores are taken, the first ones: nothing depends on the order
 * of arrival. A row of at most topk scores is not read. A team takes a row: with SPEC_CLUSTER ROW_BLOCKS, for up to INDEX_TOPK_FEW rows, a
 * cluster, whose blocks exchange counts, or one block; with SPEC_CLUSTER 1 a block, or, for rows that fit, a quarter of one. A team has its
 * part of SPEC_HELD words of shared memory for counts, then bits, and for scores; scores that do not fit are read again in every pass.
 * SPEC_HELD: INDEX_TOPK_HELD, or INDEX_TOPK_HELD_MANY. Grid: any, ROW_BLOCKS; min(INDEX_TOPK_FEW, rows), or 16. 512 threads, or 1024.
 * Dynamic shared memory: 4 * SPEC_HELD. Moves n * 4 bytes a row, and topk * 4. Bound by memory in the first pass, then by the chain of
 * passes. On an H200, us: rows of 64k 9 (1 row), 28 (128); of 8k 8 (128), 49 (2,048); one of 1M 74. Study: tools/bench/history,
 * sparse-topk-and-forms. */
#include "spec.cuh"
#include "ptx/reduce.cuh"

#define KERNEL_CLUSTER SPEC_CLUSTER
#define DIGIT_BITS (SPEC_CLUSTER > 1u ? 8u : 11u)
#define DIGITS (1u << DIGIT_BITS)
#define COPIES (SPEC_CLUSTER > 1u ? 4u : 1u) /* counters per digit */
#define COUNTERS (DIGITS * COPIES)
#define COARSE 256u               /* digits, or groups of digits, searched first */
#define GROUP (COUNTERS / COARSE) /* counters of a group */
#define FINE (DIGITS / COARSE)    /* digits of a group */
#define GROUP_LANES (GROUP / 4u)  /* that add it up */
#define BITS_WORDS (SPEC_CLUSTER > 1u ? 8192u : 4096u) /* overlaid on the counters: a byte for four keys */
#define BITS_FOURS (4u * BITS_WORDS)
#define EQUAL_BITS 18u /* of a count: keys at the limit; the upper bits: larger keys */
#define NO_KEY 1u      /* no score has this key */
#define TEAMS (SPEC_CLUSTER > 1u ? 1u : 4u) /* most teams of a block */
#define TEAM_WORDS(teams) (SPEC_HELD / (teams) / 4u * 4u)
#define TEAM_HELD(teams) ((TEAM_WORDS(teams) - BITS_WORDS) / 4u * 4u)
#define IN_FLIGHT (SPEC_CLUSTER > 1u ? 4u : 2u) /* loads of four scores of a thread in flight together */

static_assert(SPEC_CLUSTER == 1u || SPEC_CLUSTER == ROW_BLOCKS, "a cluster is a column of the grid");
static_assert(COUNTERS <= BITS_WORDS && COUNTERS % (4u * COARSE) == 0 && GROUP <= 32u, "counters have room");
static_assert(TEAMS * (BITS_WORDS + 256u) <= SPEC_HELD && SPEC_THREADS % (32u * TEAMS) == 0, "teams have room");
static_assert(SPEC_CLUSTER == 1u || 4u * BITS_FOURS >= (1u << 20) / SPEC_CLUSTER, "all bits of a share fit");
static_assert(4u * BITS_FOURS < (1u << EQUAL_BITS) && INDEX_TOPK_MAX < (1u << (32u - EQUAL_BITS)), "a count fits");
static_assert(TEAM_HELD(1u) <= 4u * BITS_FOURS, "held scores are marked with the first bits");

typedef struct shared_state {
  u32 group_sums[SPEC_CLUSTER > 1u ? 2u * SPEC_CLUSTER : TEAMS][COARSE]; /* of each block of a cluster, double-buffered; or of a team */
  uint4 found[TEAMS];          /* digit, counts above it, its own */
  u32 warp_bits[SPEC_THREADS / 32u];
  u32 block_bits[2][SPEC_CLUSTER];
} shared_state;

/* A team, and its row or this block's share of the row. */
typedef struct row_share {
  shared_state *s;
  u32 *counts;                 /* counters, then bits */
  u32 *held;
  u32 held_max;                /* scores that fit */
  u32 team, thread, threads;   /* in this block */
  u32 blocks, rank, side;
  const float4 *scores;        /* of the share */
  u32 n;                       /* scores of the share */
  u32 first;                   /* position of the first */
} row_share;

/* Keys that agree in the upper bits: all larger keys are needed, and `needed` of these. */
typedef struct limit {
  u32 prefix, shift, needed;
  bool is_tied; /* they are equal, and not all are needed */
} limit;

NUM void sync_team(const row_share &row) {
  if (SPEC_CLUSTER > 1u) __syncthreads();
  else ptx_warps_sync(1u + row.team, row.threads);
}

NUM bool is_shared(const row_share &row) { return SPEC_CLUSTER > 1u && row.blocks > 1u; }

NUM void sync_all(const row_share &row) {
  if (is_shared(row)) ptx_cluster_sync();
  else sync_team(row);
}

/* The keys of four scores; 0, below all keys, for missing ones. */
NUM uint4 read_keys(const row_share &row, u32 four) {
  const u32 at = 4u * four, most = (row.n - 1u) / 4u;
  const float4 x = row.scores[four < most ? four : most];
  return make_uint4(at < row.n ? num_order(x.x) : 0, at + 1u < row.n ? num_order(x.y) : 0, at + 2u < row.n ? num_order(x.z) : 0,
                    at + 3u < row.n ? num_order(x.w) : 0);
}

/* In the first digit missing scores count as the least: they are above no key. */
template <bool FIRST> NUM void count_key(u32 *counts, u32 key, const limit &l, u32 shift, u32 mask) {
  if (FIRST || key >> l.shift == l.prefix) reduce_count(&counts[(key >> shift & mask) * COPIES]);
}

template <bool FIRST> NUM void count_four(u32 *counts, uint4 key, const limit &l, u32 shift, u32 mask) {
  count_key<FIRST>(counts, key.x, l, shift, mask);
  count_key<FIRST>(counts, key.y, l, shift, mask);
  count_key<FIRST>(counts, key.z, l, shift, mask);
  count_key<FIRST>(counts, key.w, l, shift, mask);
}

/* Calls work on the fours from `from` up to `upto`, read from memory, or on those held. It may also get later ones, as missing. */
template <class WORK> NUM void each_read(const row_share &row, u32 from, u32 upto, WORK work) {
#pragma unroll 1
  for (u32 four = from + row.thread; four < upto; four += row.threads * IN_FLIGHT) {
    uint4 key[IN_FLIGHT];
#pragma unroll
    for (u32 i = 0; i < IN_FLIGHT; i++) key[i] = read_keys(row, four + i * row.threads);
#pragma unroll
    for (u32 i = 0; i < IN_FLIGHT; i++) work(four + i * row.threads, key[i]);
  }
}
template <class WORK> NUM void each_held(const row_share &row, u32 upto, WORK work) {
#pragma unroll 1
  for (u32 four = row.thread; four < upto; four += row.threads * IN_FLIGHT) {
    uint4 key[IN_FLIGHT];
#pragma unroll
    for (u32 i = 0; i < IN_FLIGHT; i++) {
      const u32 at = four + i * row.threads;
      key[i] = at < upto && 4u * at < row.n ? ((const uint4 *)row.held)[at] : make_uint4(0, 0, 0, 0);
    }
#pragma unroll
    for (u32 i = 0; i < IN_FLIGHT; i++) work(four + i * row.threads, key[i]);
  }
}

/* Counts the digit after those of the limit. The first pass reads the scores and holds some. */
NUM void count_digits(const row_share &row, const limit &l, u32 shift, u32 mask) {
  const u32 fours = (row.n + 3u) / 4u, held = row.held_max / 4u;
  u32 *counts = row.counts + threadIdx.x % COPIES;
  if (l.shift == 32u) {
    each_read(row, 0, fours, [&](u32 at, uint4 key) {
      if (at < held) ((uint4 *)row.held)[at] = key;
      count_four<true>(counts, key, l, shift, mask);
    });
  } else {
    const auto count = [&](u32, uint4 key) { count_four<false>(counts, key, l, shift, mask); };
    each_held(row, fours < held ? fours : held, count);
    each_read(row, held, fours, count);
  }
}

/* Sends the sums of the groups to all blocks that share the row. */
NUM void add_groups(const row_share &row) {
  shared_state &s = *row.s;
#pragma unroll 1
  for (u32 i = row.thread; i < COUNTERS / 4u; i += row.threads) {
    const uint4 four = ((const uint4 *)row.counts)[i];
    u32 sum = four.x + four.y + four.z + four.w;
#pragma unroll
    for (u32 x = 1; x < GROUP_LANES; x *= 2) sum += __shfl_xor_sync(WARP_ALL, sum, x);
    if (is_shared(row)) {
#pragma unroll
      for (u32 to = 0; to < SPEC_CLUSTER; to += GROUP_LANES)
        *ptx_cluster_map(&s.group_sums[row.side * SPEC_CLUSTER + row.rank][i / GROUP_LANES], to + i % GROUP_LANES) = sum;
    } else if (i % GROUP_LANES == 0) {
      s.group_sums[row.team][i / GROUP_LANES] = sum;
    }
  }
}

/* A warp finds the digit at which the counts, from the largest digit down, reach target: lane t has the t-th eight groups from the top. */
NUM void find_digit(const row_share &row, u32 target) {
  shared_state &s = *row.s;
  const u32 lane = threadIdx.x % 32u, low = COARSE - 8u * (lane + 1u), from = is_shared(row) ? row.side * SPEC_CLUSTER : row.team;
  u32 sum[8] = {}, total = 0;
#pragma unroll 1
  for (u32 i = from; i < from + row.blocks; i++) {
    const uint4 x = *(const uint4 *)&s.group_sums[i][low], y = *(const uint4 *)&s.group_sums[i][low + 4u];
    sum[0] += x.x, sum[1] += x.y, sum[2] += x.z, sum[3] += x.w;
    sum[4] += y.x, sum[5] += y.y, sum[6] += y.z, sum[7] += y.w;
  }
#pragma unroll
  for (u32 i = 0; i < 8u; i++) total += sum[i];
  u32 above = reduce_prefix_warp(total) - total, digit = 0, members = 0, before = 0;
  const bool is_here = above < target && target <= above + total;
#pragma unroll
  for (u32 i = 8; i-- > 0;) {
    if (above < target && target <= above + sum[i]) digit = low + i, before = above, members = sum[i];
    above += sum[i];
  }
  if (FINE > 1u) { /* then the digits of the group, the largest first */
    const u32 there = (u32)__ffs((i32)__ballot_sync(WARP_ALL, is_here)) - 1u, group = __shfl_sync(WARP_ALL, digit, there);
    before = __shfl_sync(WARP_ALL, before, there);
    members = 0;
#pragma unroll
    for (u32 i = 0; i < COPIES; i++) members += lane < FINE ? row.counts[group * GROUP + (FINE - 1u - lane) * COPIES + i] : 0;
    before += reduce_prefix_warp(members) - members;
    digit = group * FINE + FINE - 1u - lane;
    if (before < target && target <= before + members) s.found[row.team] = make_uint4(digit, before, members, 0);
  } else if (is_here) {
    s.found[row.team] = make_uint4(digit, before, members, 0);
  }
}

NUM limit find_limit(row_share &row, u32 topk) {
  limit l = {0, 32u, topk, false};
  bool more = true;
#pragma unroll 1
  while (more) {
    const u32 bits = l.shift < DIGIT_BITS ? l.shift : DIGIT_BITS, shift = l.shift - bits, mask = (1u << bits) - 1u;
#pragma unroll 1
    for (u32 i = row.thread; i < COUNTERS / 4u; i += row.threads) ((uint4 *)row.counts)[i] = make_uint4(0, 0, 0, 0);
    sync_team(row);
    count_digits(row, l, shift, mask);
    sync_team(row);
    add_groups(row);
    sync_all(row);
    if (row.thread < 32u) find_digit(row, l.needed);
    sync_team(row);
    const uint4 found = row.s->found[row.team];
    l = {l.prefix << bits | found.x, shift, l.needed - found.y, found.z > l.needed - found.y};
    row.side ^= 1u; /* the same in all blocks while they share rows */
    more = shift > 0 && l.is_tied;
  }
  return l;
}

/* Two bits for each of four keys: above the limit; at the limit, where not all are needed. */
NUM u32 mark_four(uint4 x, u32 below, u32 at_limit) {
  return (u32)(x.x > below) | (u32)(x.y > below) << 2 | (u32)(x.z > below) << 4 | (u32)(x.w > below) << 6 |
         (u32)(x.x == at_limit) << 1 | (u32)(x.y == at_limit) << 3 | (u32)(x.z == at_limit) << 5 | (u32)(x.w == at_limit) << 7;
}

NUM void mark_keys(const row_share &row, u32 from, u32 upto, u32 below, u32 at_limit) {
  const u32 held = row.held_max / 4u < upto ? row.held_max / 4u : upto;
  u8 *bits = (u8 *)row.counts;
  if (from == 0) {
    each_held(row, held, [&](u32 at, uint4 four) {
      if (at < held) bits[at - from] = (u8)mark_four(four, below, at_limit);
    });
  }
  each_read(row, from == 0 ? held : from, upto, [&](u32 at, uint4 four) {
    if (at < upto) bits[at - from] = (u8)mark_four(four, below, at_limit);
  });
}

/* One count of larger keys and of those at the limit. */
NUM u32 count_word(u32 bits) { return (u32)__popc(bits & 0x55555555u) << EQUAL_BITS | (u32)__popc(bits & 0xaaaaaaaau); }
NUM u32 larger_of(u32 count) { return count >> EQUAL_BITS; }
NUM u32 equal_of(u32 count) { return count & ((1u << EQUAL_BITS) - 1u); }

/* x: the count before this thread's `each` words of the share; y: of the whole share; z, w: larger keys and keys at the limit in earlier
 * shares. */
NUM uint4 count_bits(row_share &row, u32 words, u32 each) {
  shared_state &s = *row.s;
  const u32 lane = threadIdx.x % 32u, warp = row.thread / 32u, warps = row.threads / 32u;
  u32 mine = 0, larger = 0, equal = 0;
  for (u32 w = row.thread * each; w < words && w < (row.thread + 1u) * each; w++) mine += count_word(row.counts[w]);
  const u32 upto = reduce_prefix_warp(mine);
  if (lane == 31u) s.warp_bits[row.team * warps + warp] = upto;
  sync_team(row);
  const u32 theirs = lane < warps ? s.warp_bits[row.team * warps + lane] : 0;
  const u32 before = __reduce_add_sync(WARP_ALL, lane < warp ? theirs : 0), all = __reduce_add_sync(WARP_ALL, theirs);
  if (is_shared(row)) {
    if (row.thread < SPEC_CLUSTER) *ptx_cluster_map(&s.block_bits[row.side][row.rank], row.thread) = all;
    ptx_cluster_sync();
    for (u32 i = 0; i < row.rank; i++) larger += larger_of(s.block_bits[row.side][i]), equal += equal_of(s.block_bits[row.side][i]);
    row.side ^= 1u;
  }
  return make_uint4(before + upto - mine, all, larger, equal);
}

/* Writes the positions of this thread's bits, at `to` of the list or its staging memory; equal: keys at the limit before them. */
NUM void write_places(const row_share &row, u32 from, u32 words, u32 each, u32 equal, u32 needed, u32 *to) {
  for (u32 w = row.thread * each; w < words && w < (row.thread + 1u) * each; w++) {
    for (u32 bits = row.counts[w]; bits; bits &= bits - 1u) {
      const u32 bit = (u32)__ffs((i32)bits) - 1u;
      if (bit % 2u == 0 || equal++ < needed) *to++ = row.first + 4u * from + 16u * w + bit / 2u;
    }
  }
}

/* Marks the keys and writes their positions: as many fours as fit, then the next ones. The list overwrites the held scores once they are no
 * longer needed. */
NUM void write_list(row_share &row, const limit &l, u32 *list, u32 topk) {
  const u32 fours = (row.n + 15u) / 16u * 4u, least_key = l.prefix << l.shift;
  const u32 below = l.is_tied ? least_key : least_key - 1u, at_limit = l.is_tied ? least_key : NO_KEY;
  u32 from = 0, larger = 0, equal = 0;
#pragma unroll 1
  do {
    const u32 upto = fours - from < BITS_FOURS ? fours : from + BITS_FOURS, words = (upto - from) / 4u;
    const u32 each = (words + row.threads - 1u) / row.threads;
    mark_keys(row, from, upto, below, at_limit);
    sync_team(row);
    const uint4 bits = count_bits(row, words, each);
    larger += bits.z, equal += bits.w;
    const u32 mine = larger + larger_of(bits.x), before = larger + num_least(equal, l.needed);
    const u32 upto_here = larger + larger_of(bits.y) + num_least(equal + equal_of(bits.y), l.needed);
    const u32 place = mine + num_least(equal + equal_of(bits.x), l.needed);
    const bool is_staged = topk <= row.held_max;
    write_places(row, from, words, each, equal + equal_of(bits.x), l.needed, is_staged ? row.held + (place - before) : list + place);
    sync_team(row);
    for (u32 i = row.thread; is_staged && i < upto_here - before; i += row.threads) list[before + i] = row.held[i];
    larger += larger_of(bits.y), equal += equal_of(bits.y);
    from = upto;
    sync_team(row);
  } while (from < fours);
}

/* Writes the list of a row of n scores. */
NUM void choose(const index_topk_args &a, row_share &row, u32 index, u32 n) {
  u32 *list = a.lists + (u64)(a.row_first + index) * a.topk;
  if (n <= a.topk) {
    for (u32 i = row.thread; i < a.topk && row.rank == 0; i += row.threads) list[i] = i < n ? i : INDEX_NONE;
    return;
  }
  const u32 share = row.blocks > 1u ? ((n + 3u) / 4u + row.blocks - 1u) / row.blocks * 4u : n;
  row.first = row.rank * share < n ? row.rank * share : n;
  row.n = n - row.first < share ? n - row.first : share;
  row.scores = (const float4 *)(a.scores + (u64)index * a.stride + row.first);
  write_list(row, find_limit(row, a.topk), list, a.topk);
}

/* Rows first, first + step, ... with more than `above` and at most `upto` scores. */
NUM void choose_rows(const index_topk_args &a, row_share &row, u32 count, u32 first, u32 step, u32 above, u32 upto) {
  const u32 lane = threadIdx.x % 32u;
#pragma unroll 1
  for (u32 base = first; base < count; base += 32u * step) {
    const u32 row_of_lane = base + lane * step, n = row_of_lane < count ? a.position[a.row_first + row_of_lane] + 1u : 0;
    u32 bits = __ballot_sync(WARP_ALL, above < n && n <= upto);
#pragma unroll 1
    for (; bits; bits &= bits - 1u) {
      const u32 i = (u32)__ffs((i32)bits) - 1u;
      choose(a, row, base + i * step, __shfl_sync(WARP_ALL, n, i));
    }
  }
}

/* Makes one of `teams` equal teams of the block. */
NUM void form_team(row_share &row, u32 *raw, u32 teams) {
  const u32 threads = SPEC_THREADS / teams, words = TEAM_WORDS(teams);
  row.team = threadIdx.x / threads;
  row.thread = threadIdx.x % threads;
  row.threads = threads;
  row.counts = raw + row.team * words;
  row.held = row.counts + BITS_WORDS;
  row.held_max = TEAM_HELD(teams);
}

extern "C" __global__ __cluster_dims__(1, SPEC_CLUSTER, 1) __launch_bounds__(SPEC_THREADS, SPEC_CLUSTER > 1u ? 2 : 1)
void index_topk(const __grid_constant__ index_topk_args a) {
  extern __shared__ u8 raw[];
  __shared__ shared_state s;
  ptx_grid_next();
  const u32 tokens = a.step->token_count, left = tokens > a.row_first ? tokens - a.row_first : 0;
  const u32 count = left < a.row_count ? left : a.row_count, block = blockIdx.y * gridDim.x + blockIdx.x, blocks = gridDim.x * gridDim.y;
  row_share row = {};
  row.s = &s;
  if (SPEC_CLUSTER > 1u) ptx_cluster_sync(); /* all blocks have started */
  ptx_grid_wait();
  const u32 long_above = SPEC_CLUSTER > 1u ? TEAM_HELD(1u) / 3u * 2u : count > blocks ? TEAM_HELD(TEAMS) : 0;
#pragma unroll 1
  for (u32 is_long = 2; is_long-- > 0;) { /* long rows, then the others */
    const bool by_cluster = SPEC_CLUSTER > 1u && is_long;
    form_team(row, (u32 *)raw, is_long ? 1u : TEAMS);
    row.blocks = by_cluster ? SPEC_CLUSTER : 1u;
    row.rank = by_cluster ? blockIdx.y : 0;
    choose_rows(a, row, count, by_cluster ? blockIdx.x : row.team * blocks + block,
                by_cluster ? gridDim.x : blocks * (SPEC_THREADS / row.threads), is_long ? long_above : 0,
                is_long ? 0xffffffffu : long_above);
    __syncthreads();
  }
}

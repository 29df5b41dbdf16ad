/* index_topk.cu - the positions of each token's best scores, ascending. NUMERICS.md, `index_topk`.
 *
 * scores [row_count][stride] fp32 -> lists [T][topk]. A score is the integer of its order, found again digit by digit from the top by a
 * histogram of counts, until all with the digits found are needed. What is chosen is marked, a bit for a score; the bits before its own
 * tell a thread where to write, so that no place depends on who comes first. Of equal scores at the limit the first ones are taken: their
 * bits are counted likewise. A row of at most topk scores is not read. A team takes a row: SPEC_CLUSTER = 8, for few rows: the blocks of a
 * cluster, which give each other their counts, or one block; SPEC_CLUSTER = 1, for many: a block, or, of rows that fit there, a quarter of
 * one. Of SPEC_HELD words of shared memory a team has its part, for counts, then for bits, and for scores; those that find no room there
 * are read again in every pass.
 * Grid: any, ROW_BLOCKS: teams take rows in turn. Moves n * 4 bytes a row, and topk * 4. Bound by memory in the first pass, then by the
 * chain of passes. H200, us: rows of 64k 9 (1 row), 14 (16), 32 (128); of 8k 9 (128), 47 (2,048); one of 1M 75. */
#include "spec.cuh"
#include "reduce.cuh"

#define KERNEL_CLUSTER SPEC_CLUSTER
#define DIGIT_BITS (SPEC_CLUSTER > 1u ? 8u : 11u)
#define DIGITS (1u << DIGIT_BITS)
#define COPIES (SPEC_CLUSTER > 1u ? 4u : 1u) /* counters of a digit */
#define COUNTERS (DIGITS * COPIES)
#define COARSE 256u               /* digits, or groups of them, that are looked through first */
#define GROUP (COUNTERS / COARSE) /* counters of each */
#define FINE (DIGITS / COARSE)    /* digits of each */
#define GROUP_LANES (GROUP / 4u)  /* which add it up */
#define BITS_WORDS 4096u /* in the counters' place */
#define BITS_KEYS (32u * BITS_WORDS)
#define STAGE (BITS_WORDS / 2u) /* and there the list of up to STAGE words of bits */
#define TEAMS (SPEC_CLUSTER > 1u ? 1u : 4u) /* of a block, at most */
#define TEAM_WORDS(teams) (SPEC_HELD / (teams) / 4u * 4u)
#define TEAM_HELD(teams) ((TEAM_WORDS(teams) - BITS_WORDS) / 256u * 256u)
#define AT_ONCE (SPEC_CLUSTER > 1u ? 4u : 2u) /* fours of a thread that are under way together */
#define WORDS_AT_ONCE 8u /* of bits that a warp makes together */

static_assert(SPEC_CLUSTER == 1u || SPEC_CLUSTER == ROW_BLOCKS, "a cluster is a column of the grid");
static_assert(COUNTERS <= BITS_WORDS && COUNTERS % (4u * COARSE) == 0 && GROUP <= 32u && TEAM_HELD(TEAMS) > 0, "counters have their place");
static_assert(TEAMS * (BITS_WORDS + 256u) <= SPEC_HELD && SPEC_THREADS % (32u * TEAMS) == 0 && STAGE >= INDEX_TOPK_MAX, "and teams theirs");

typedef struct shared_state {
  u32 met[SPEC_CLUSTER > 1u ? 2u * SPEC_CLUSTER : TEAMS][COARSE]; /* the groups of each block of a cluster, by turns; or of a team */
  uint4 found[TEAMS];          /* digit, counts above it, its own */
  u32 last[TEAMS];             /* position of the last of equal keys */
  u32 warp_bits[SPEC_THREADS / 32u];
  u32 block_bits[2][SPEC_CLUSTER];
} shared_state;

/* A team and its row, or this block's share of it. */
typedef struct row_share {
  shared_state *s;
  u32 *counts;                 /* and bits */
  u32 *held;
  u32 held_max;                /* scores that find room */
  u32 team, thread, threads;   /* of this block */
  u32 blocks, rank, turn;
  const float4 *scores;        /* of the share */
  u32 n;                       /* scores of the share */
  u32 first;                   /* position of the first */
} row_share;

/* Keys that agree in the upper bits, of which so many are needed, beside all larger ones. */
typedef struct limit {
  u32 prefix, shift, needed;
} limit;

NUM void wait_team(const row_share &row) {
  if (SPEC_CLUSTER > 1u) __syncthreads();
  else ptx_warps_sync(1u + row.team, row.threads);
}

NUM bool is_shared(const row_share &row) { return SPEC_CLUSTER > 1u && row.blocks > 1u; }

NUM void wait_all(const row_share &row) {
  if (is_shared(row)) ptx_cluster_sync();
  else wait_team(row);
}

/* The keys of four scores; 0, below all keys, is none. */
NUM uint4 read_keys(const row_share &row, u32 four) {
  const u32 at = 4u * four, most = (row.n - 1u) / 4u;
  const float4 x = row.scores[four < most ? four : most];
  return make_uint4(at < row.n ? num_order(x.x) : 0, at + 1u < row.n ? num_order(x.y) : 0, at + 2u < row.n ? num_order(x.z) : 0,
                    at + 3u < row.n ? num_order(x.w) : 0);
}

/* Of the first digit what is none counts as the least: it is above no key. */
template <bool FIRST> NUM void count_key(u32 *counts, u32 key, const limit &l, u32 shift, u32 mask) {
  if (FIRST || key >> l.shift == l.prefix) reduce_count(&counts[(key >> shift & mask) * COPIES]);
}

template <bool FIRST> NUM void count_four(u32 *counts, uint4 key, const limit &l, u32 shift, u32 mask) {
  count_key<FIRST>(counts, key.x, l, shift, mask);
  count_key<FIRST>(counts, key.y, l, shift, mask);
  count_key<FIRST>(counts, key.z, l, shift, mask);
  count_key<FIRST>(counts, key.w, l, shift, mask);
}

/* The fours from `from` on, out of memory; the first time all, of which some are held. */
template <bool FIRST> NUM void count_read(const row_share &row, u32 from, const limit &l, u32 shift, u32 mask) {
  u32 *counts = row.counts + threadIdx.x % COPIES;
#pragma unroll 1
  for (u32 four = from + row.thread; 4u * four < row.n; four += row.threads * AT_ONCE) {
    uint4 key[AT_ONCE];
#pragma unroll
    for (u32 i = 0; i < AT_ONCE; i++) key[i] = read_keys(row, four + i * row.threads);
#pragma unroll
    for (u32 i = 0; i < AT_ONCE; i++) {
      const u32 at = four + i * row.threads;
      if (FIRST && 4u * at < row.held_max) ((uint4 *)row.held)[at] = key[i];
      count_four<FIRST>(counts, key[i], l, shift, mask);
    }
  }
}

NUM void count_held(const row_share &row, const limit &l, u32 shift, u32 mask) {
  const u32 fours = ((row.n < row.held_max ? row.n : row.held_max) + 3u) / 4u;
  u32 *counts = row.counts + threadIdx.x % COPIES;
#pragma unroll 1
  for (u32 four = row.thread; four < fours; four += row.threads * AT_ONCE) {
    uint4 key[AT_ONCE];
#pragma unroll
    for (u32 i = 0; i < AT_ONCE; i++) {
      const u32 at = four + i * row.threads;
      key[i] = at < fours ? ((const uint4 *)row.held)[at] : make_uint4(0, 0, 0, 0);
    }
#pragma unroll
    for (u32 i = 0; i < AT_ONCE; i++) count_four<false>(counts, key[i], l, shift, mask);
  }
}

/* The sums of the groups, to all blocks that share the row. */
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
        *ptx_cluster_map(&s.met[row.turn * SPEC_CLUSTER + row.rank][i / GROUP_LANES], to + i % GROUP_LANES) = sum;
    } else if (i % GROUP_LANES == 0) {
      s.met[row.team][i / GROUP_LANES] = sum;
    }
  }
}

/* A warp looks for the digit at which the counts, from the largest digit down, reach target: lane t has the t-th eight groups from the
 * top. */
NUM void find_digit(const row_share &row, u32 target) {
  shared_state &s = *row.s;
  const u32 lane = threadIdx.x % 32u, low = COARSE - 8u * (lane + 1u), from = is_shared(row) ? row.turn * SPEC_CLUSTER : row.team;
  u32 sum[8] = {}, total = 0;
#pragma unroll 1
  for (u32 i = from; i < from + row.blocks; i++) {
    const uint4 x = *(const uint4 *)&s.met[i][low], y = *(const uint4 *)&s.met[i][low + 4u];
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
  if (FINE > 1u) { /* and then its digits, the largest first */
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
  limit l = {0, 32u, topk};
  bool more = true;
#pragma unroll 1
  while (more) {
    const u32 bits = l.shift < DIGIT_BITS ? l.shift : DIGIT_BITS, shift = l.shift - bits, mask = (1u << bits) - 1u;
#pragma unroll 1
    for (u32 i = row.thread; i < COUNTERS / 4u; i += row.threads) ((uint4 *)row.counts)[i] = make_uint4(0, 0, 0, 0);
    wait_team(row);
    if (l.shift == 32u) {
      if (row.n > 0) count_read<true>(row, 0, l, shift, mask);
    } else {
      count_held(row, l, shift, mask);
      if (row.n > row.held_max) count_read<false>(row, row.held_max / 4u, l, shift, mask);
    }
    wait_team(row);
    add_groups(row);
    wait_all(row);
    if (row.thread < 32u) find_digit(row, l.needed);
    wait_team(row);
    const uint4 found = row.s->found[row.team];
    l = {l.prefix << bits | found.x, shift, l.needed - found.y};
    row.turn ^= 1u; /* all blocks agree on it while they share rows */
    more = shift > 0 && found.z > l.needed;
    if (!more && found.z > l.needed) l.shift = 32u; /* equal ones: not all of them are needed */
  }
  return l;
}

/* Bits of the keys from `from` on: those equal to key, or larger ones and, up to position last, equal ones. */
template <bool EQUAL> NUM void mark_keys(const row_share &row, u32 from, u32 words, u32 key, u32 last) {
  const u32 lane = threadIdx.x % 32u;
#pragma unroll 1
  for (u32 w = row.thread / 32u * WORDS_AT_ONCE; w < words; w += row.threads / 32u * WORDS_AT_ONCE) {
    const u32 begin = from + 32u * w, at = begin + lane, end = begin + 32u * WORDS_AT_ONCE;
    u32 x[WORDS_AT_ONCE], mine = 0;
    if (begin < row.held_max) {
#pragma unroll
      for (u32 i = 0; i < WORDS_AT_ONCE; i++) x[i] = row.held[at + 32u * i];
    } else {
#pragma unroll
      for (u32 i = 0; i < WORDS_AT_ONCE; i++) x[i] = num_order(((const f32 *)row.scores)[at + 32u * i < row.n ? at + 32u * i : row.n - 1u]);
    }
    if (end > row.n) {
#pragma unroll
      for (u32 i = 0; i < WORDS_AT_ONCE; i++) x[i] = at + 32u * i < row.n ? x[i] : 0;
    }
    if (!EQUAL && row.first + begin <= last && last < row.first + end) { /* the last of equal ones is here */
#pragma unroll
      for (u32 i = 0; i < WORDS_AT_ONCE; i++) x[i] -= x[i] == key && row.first + at + 32u * i > last;
    }
    const u32 below = row.first + begin <= last ? key - 1u : key;
#pragma unroll
    for (u32 i = 0; i < WORDS_AT_ONCE; i++) {
      const u32 bits = __ballot_sync(WARP_ALL, EQUAL ? x[i] == key : x[i] > below);
      if (lane == i) mine = bits;
    }
    if (lane < WORDS_AT_ONCE) row.counts[w + lane] = mine;
  }
}

/* How many bits there are before this thread's `each` words in the share, how many in the share, how many in the shares before. */
NUM uint4 count_bits(row_share &row, u32 words, u32 each) {
  shared_state &s = *row.s;
  const u32 lane = threadIdx.x % 32u, warp = row.thread / 32u, warps = row.threads / 32u;
  u32 mine = 0;
  for (u32 w = row.thread * each; w < words && w < (row.thread + 1u) * each; w++) mine += (u32)__popc(row.counts[w]);
  const u32 upto = reduce_prefix_warp(mine);
  if (lane == 31u) s.warp_bits[row.team * warps + warp] = upto;
  wait_team(row);
  const u32 theirs = lane < warps ? s.warp_bits[row.team * warps + lane] : 0;
  const u32 before = __reduce_add_sync(WARP_ALL, lane < warp ? theirs : 0), all = __reduce_add_sync(WARP_ALL, theirs);
  u32 elsewhere = 0;
  if (is_shared(row)) {
    if (row.thread < SPEC_CLUSTER) *ptx_cluster_map(&s.block_bits[row.turn][row.rank], row.thread) = all;
    ptx_cluster_sync();
    for (u32 i = 0; i < row.rank; i++) elsewhere += s.block_bits[row.turn][i];
    row.turn ^= 1u;
  }
  return make_uint4(before + upto - mine, all, elsewhere, mine);
}

/* The position of the needed-th bit, to all that share the row. */
NUM void find_last(const row_share &row, u32 from, u32 each, u32 left) {
  u32 w = row.thread * each, bits = row.counts[w];
  for (; (u32)__popc(bits) < left; bits = row.counts[++w]) left -= (u32)__popc(bits);
  for (; left > 1u; left--) bits &= bits - 1u;
  const u32 last = row.first + from + 32u * w + (u32)__ffs((i32)bits) - 1u;
  for (u32 to = 0; to < row.blocks; to++) *(is_shared(row) ? ptx_cluster_map(&row.s->last[row.team], to) : &row.s->last[row.team]) = last;
}

/* The positions of this thread's bits, to where the list begins, or what becomes of it. */
NUM void write_places(const row_share &row, u32 from, u32 words, u32 each, u32 *to) {
  for (u32 w = row.thread * each; w < words && w < (row.thread + 1u) * each; w++) {
    const u32 position = row.first + from + 32u * w;
    for (u32 bits = row.counts[w]; bits; bits &= bits - 1u) *to++ = position + (u32)__ffs((i32)bits) - 1u;
  }
}

/* Marks the keys, and writes where they are, or finds the needed-th of them: what bits there is room for, then the next ones. */
template <bool EQUAL> NUM void take_marked(row_share &row, u32 key, u32 needed, u32 last, u32 *list) {
  u32 from = 0, before = 0;
#pragma unroll 1
  do {
    const u32 keys = row.n - from < BITS_KEYS ? row.n - from : BITS_KEYS, words = (keys + 31u) / 32u;
    const u32 each = (words + row.threads - 1u) / row.threads;
    mark_keys<EQUAL>(row, from, words, key, last);
    wait_team(row);
    const uint4 bits = count_bits(row, words, each);
    const u32 mine = before + bits.z + bits.x;
    if (EQUAL) {
      if (mine < needed && needed <= mine + bits.w) find_last(row, from, each, needed - mine);
    } else {
      const bool is_staged = words <= STAGE;
      write_places(row, from, words, each, is_staged ? row.counts + STAGE + bits.x : list + mine);
      if (is_staged) {
        wait_team(row);
        for (u32 i = row.thread; i < bits.y; i += row.threads) list[before + bits.z + i] = row.counts[STAGE + i];
      }
    }
    before += bits.y;
    from += BITS_KEYS;
    wait_team(row);
  } while (from < row.n);
  if (EQUAL) wait_all(row);
}

/* The list of the row; n: how many scores it has. */
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
  limit l = find_limit(row, a.topk);
  u32 last = 0xffffffffu;
  if (l.shift == 32u) {
    take_marked<true>(row, l.prefix, l.needed, 0, NULL);
    last = row.s->last[row.team];
    l.shift = 0;
  }
  take_marked<false>(row, l.prefix << l.shift, 0, last, list);
}

/* Rows first, first + step, ... that have so many scores. */
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

/* A team that is that part of its block. */
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
  if (SPEC_CLUSTER > 1u) ptx_cluster_sync(); /* all blocks are there */
  ptx_grid_wait();
  const u32 long_above = SPEC_CLUSTER > 1u ? TEAM_HELD(1u) / 2u : count > blocks ? TEAM_HELD(TEAMS) : 0;
#pragma unroll(SPEC_CLUSTER > 1u ? 2 : 1)
  for (u32 is_long = 2; is_long-- > 0;) { /* the long rows, then the others */
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

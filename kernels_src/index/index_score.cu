/* index_score.cu - the indexer's scores: every token against every key of its context. NUMERICS.md, `index_score`.
 *
 * A tile is up to TILE consecutive tokens of one sequence; work is (tile, page), of which each block finds its part by itself
 * (index/tiles.cuh). One producer warp loads pages by TMA boxes of 66 rows, 64 keys and their scales, SPEC_PAGES to a stage of a ring, and
 * the queries and weights of the next tile. The consumer warpgroups multiply: the operand's rows are 64 keys, its 128 columns the heads of
 * GROUP tokens, so that a thread has all heads of a quarter and two lane exchanges finish the sum. In a tile of many tokens each warpgroup
 * has its own group and takes every page, else teams take stages in turn: while one adds up its scores others multiply. Where stages hold
 * one page, a tile of one token has as many columns as heads. SPEC_HEADS 16, 32 or 64, SPEC_PAGES 1, or 2 above 256 rows, SPEC_STAGES 4 or
 * 8, PAGES * STAGES at most 8. Grid: any; 132. 640 threads. Dynamic shared memory: 1536 + 2 * QUERIES_BYTES + SPEC_STAGES * STAGE_BYTES.
 * Bound: full tiles 2 * heads * 128 FLOPs a pair of token and key at 1,500 TFLOP/s, then the instructions of the sums (those of the MMAs
 * and of the sums take as long); tiles of one token 132 bytes a key at 4.3 TB/s. H200, 64 heads, 32,768 tokens: 16 requests 21.4 us (1.29
 * times the bound), 128 145 us (1.09). Study: tools/bench/history, index-score. */
#include "spec.cuh"
#include "index/tiles.cuh"

static_assert(SPEC_MAPS == 1, "keys and queries are loaded by TMA");

#define COLUMNS 128u /* of an MMA: heads of GROUP tokens */
/* Registers of a thread. Their total may not exceed that of the launch, or setmaxnreg would wait forever. */
#define CONSUMER_REGISTERS 112u /* of a consumer */
#define PRODUCER_REGISTERS 32u
static_assert(WARPGROUPS * CONSUMER_REGISTERS + PRODUCER_REGISTERS <= 65536u / SPEC_THREADS / 8u * 8u * (WARPGROUPS + 1u),
              "registers of the launch");
#define PAIRS(n) (((n) / SPEC_HEADS + 1u) / 2u) /* of tokens in n columns: a lane ends with one score of each pair */
#define PAGE_ROWS (INDEX_PAGE_BYTES / INDEX_DIM) /* of 128 bytes: keys, then their scales */
#define PAGE_BYTES 9216u /* in a stage, rounded up to 1024 */
#define STAGE_BYTES (SPEC_PAGES * PAGE_BYTES)
#define STAGE_KEYS (SPEC_PAGES * PAGE_TOKENS)
#define CODES_BYTES (COLUMNS * INDEX_DIM) /* queries of a warpgroup */
#define QUERIES_BYTES (WARPGROUPS * CODES_BYTES + 2048u) /* of a tile: codes, weights */
static_assert(WARPGROUPS * COLUMNS * 4u <= 2048u, "weights of a tile");
static_assert((SPEC_STAGES & (SPEC_STAGES - 1u)) == 0, "the position in the ring is the low bits of a count");
static_assert(SPEC_STAGES >= WARPGROUPS, "within a share, a stage's place belongs to one team");
static_assert(SPEC_PAGES == 1 || SPEC_PAGES == 2, "");

/* Shared memory, from a multiple of 1024: pages, queries of two tiles, barriers. */
#define AT_QUERIES (SPEC_STAGES * STAGE_BYTES)
#define AT_WEIGHTS (WARPGROUPS * CODES_BYTES) /* after a tile's codes */
#define STAGE_FULL (AT_QUERIES + 2u * QUERIES_BYTES)
#define STAGE_EMPTY (STAGE_FULL + SPEC_STAGES * 8u)
#define TILE_FULL (STAGE_EMPTY + SPEC_STAGES * 8u)
#define TILE_EMPTY (TILE_FULL + 16u)
static_assert(2u * SPEC_STAGES * 8u + 32u <= 512u, "barriers");

/* Stages and tiles that a role has passed: its position in both rings. */
typedef struct ring_position {
  u32 stages, tiles;
} ring_position;

NUM u32 stage_of(u32 n) { return n % SPEC_STAGES; }
NUM u32 stages_of(const index_share &s) { return (s.end - s.first + SPEC_PAGES - 1u) / SPEC_PAGES; }
NUM void wait_stage(u32 base, u32 n) { ptx_barrier_wait(base + STAGE_FULL + stage_of(n) * 8u, n / SPEC_STAGES % 2u); }

/* === The producer warp ====================================================================================================== */

NUM void fetch_queries(const index_score_args &a, const tensor_maps &maps, const index_share &s, u32 tile, u32 base) {
  const u32 at = tile % 2u, to = base + AT_QUERIES + at * QUERIES_BYTES, full = base + TILE_FULL + at * 8u;
  const u32 weights = s.tokens * SPEC_HEADS * 4u;
  ptx_barrier_wait(base + TILE_EMPTY + at * 8u, tile / 2u % 2u ^ 1u);
  ptx_barrier_expect(full, s.groups * CODES_BYTES + weights);
  for (u32 i = 0; i < s.groups; i++) ptx_take_box(to + i * CODES_BYTES, &maps.x, 0, s.row * SPEC_HEADS + i * COLUMNS, full);
  ptx_copy_bulk(to + AT_WEIGHTS, a.w + (u64)s.row * SPEC_HEADS, weights, full, ptx_once());
}

/* held: numbers of the first 32 pages, one per lane. */
NUM void fetch_pages(const tensor_maps &maps, const index_share &s, const u32 *pages, u32 held, u32 n, u32 base) {
  const u32 lane = threadIdx.x % 32u;
  for (u32 page = s.first; page < s.end; page += SPEC_PAGES, n++) {
    const u32 i = (page - s.first) % 32u, at = stage_of(n), full = base + STAGE_FULL + at * 8u;
    const bool two = SPEC_PAGES == 2 && page + 1u < s.end;
    if (i == 0 && page > s.first) held = page + lane < s.end ? pages[page + lane] : 0u;
    const u32 number = __shfl_sync(WARP_ALL, held, i), second = __shfl_sync(WARP_ALL, held, i + 1u);
    if (ptx_elect()) {
      ptx_barrier_wait(base + STAGE_EMPTY + at * 8u, n / SPEC_STAGES % 2u ^ 1u);
      ptx_barrier_expect(full, two ? 2u * INDEX_PAGE_BYTES : INDEX_PAGE_BYTES);
      ptx_take_box(base + at * STAGE_BYTES, &maps.w, 0, 0, number, full);
      if (two) ptx_take_box(base + at * STAGE_BYTES + PAGE_BYTES, &maps.w, 0, 0, second, full);
    }
    __syncwarp();
  }
}

NUM void produce(const index_score_args &a, const tensor_maps &maps, const index_list &list, const index_part &part,
                 ring_position &p, u32 base) {
  index_share s;
  for (u32 i = index_first(list, part); index_share_of(list, part, i, s); i++) {
    if (s.first >= s.end) continue;
    const u32 *pages = a.block_table + (u64)a.seq[s.row] * a.block_table_stride;
    const u32 page = s.first + threadIdx.x % 32u, held = page < s.end ? pages[page] : 0u;
    if (ptx_elect()) fetch_queries(a, maps, s, p.tiles, base); /* while the page numbers are on their way */
    p.tiles++;
    fetch_pages(maps, s, pages, held, p.stages, base);
    p.stages += stages_of(s);
  }
}

/* === The consumer warpgroups ================================================================================================ */

/* Arrives on an empty barrier for this warp, as often as `lanes`. */
NUM void release(u32 barrier, u32 lanes) {
  if (threadIdx.x % 32u < lanes) ptx_barrier_arrive(barrier);
}

/* The operand descriptor with lower half `low`, advanced by `bytes`. */
NUM u64 operand_of(u32 low, u32 bytes) { return (PTX_SWIZZLED & ~0xffffffffull) | (low + bytes / 16u); }

/* Starts d = keys of a page times the heads of a warpgroup's tokens. left, right: lower halves of their operand descriptors. */
template <u32 N> NUM void multiply(f32 (&d)[N], u32 left, u32 right) {
  ptx_multiply_fence();
  ptx_multiply_e4m3_anew(d, operand_of(left, 0), operand_of(right, 0));
#pragma unroll
  for (u32 k = 32; k < INDEX_DIM; k += 32) ptx_multiply_e4m3(d, operand_of(left, k), operand_of(right, k));
  ptx_multiply_commit();
}

/* For the pair x of tokens: the partial sums p_g, g the lane modulo 4, of the thread's two keys; then, over the four lanes, the sum of one
 * token (the second one in lanes 2 and 3) and one key (the second one in lanes 1 and 3). A single token is both of its pair. */
template <u32 N> NUM f32 sum_heads(const f32 (&d)[N / 2u], const f32 (&w)[N / 4u], u32 lane, u32 x) {
  const bool odd = lane & 1u, high = lane & 2u;
  f32 half[2];
#pragma unroll
  for (u32 t = 0; t < 2; t++) {
    if (t > 0 && N == SPEC_HEADS) continue;
    f32 p[2] = {0.0f, 0.0f};
#pragma unroll
    for (u32 j = (2u * x + t) * (SPEC_HEADS / 8u); j < (2u * x + t + 1u) * (SPEC_HEADS / 8u); j++)
#pragma unroll
      for (u32 e = 0; e < 2; e++)
#pragma unroll
        for (u32 h = 0; h < 2; h++) p[h] = num_fma(ptx_max(d[4u * j + 2u * h + e], 0.0f), w[2u * j + e], p[h]); /* R15.1 */
    half[t] = num_add(odd ? p[1] : p[0], __shfl_xor_sync(WARP_ALL, odd ? p[0] : p[1], 1u)); /* R15.2 */
  }
  if (N == SPEC_HEADS) half[1] = half[0];
  return num_add(high ? half[1] : half[0], __shfl_xor_sync(WARP_ALL, high ? half[0] : half[1], 2u)); /* R15.3 */
}

/* Where a lane stores: for its token of each pair, its key of pages that begin below a limit. */
template <u32 N> struct lane_out {
  f32 *to; /* the first pair, page 0 */
  u32 limit[PAIRS(N)];
};

/* The state of a share that does not change from page to page. N: columns of its products, heads of one token or of GROUP. */
template <u32 N> struct scorer {
  u32 keys, queries; /* lower halves of operand descriptors: stage 0, the warpgroup's tokens */
  u32 scales;        /* of stage 0, the thread's key                                         */
  u32 lane, stride;
  f32 w[N / 4u]; /* of the heads of the thread's columns */
  lane_out<N> out;
};

template <u32 N> NUM void find_out(const index_score_args &a, const index_share &s, u32 group, u32 key, lane_out<N> &out) {
  const u32 token = group * GROUP + threadIdx.x / 2u % 2u, position = a.position[s.row];
  out.to = a.scores + (u64)(s.row - a.row_first + token) * a.stride + key;
#pragma unroll
  for (u32 x = 0; x < PAIRS(N); x++) {
    const u32 keys = token + 2u * x < s.tokens ? position + token + 2u * x + 1u : 0u;
    out.limit[x] = keys > key ? keys - key : 0u;
  }
}

/* weights: shared address of those of the thread's first two columns. */
template <u32 N> NUM void read_weights(f32 (&w)[N], u32 weights) {
#pragma unroll
  for (u32 i = 0; i < N; i++) w[i] = ptx_load_shared(weights + (i / 2u * 8u + i % 2u) * 4u);
}

/* Multiplies one page of a stage; returns the scale of the thread's key. */
template <u32 N> NUM f32 multiply_page(const scorer<N> &c, f32 (&d)[N / 2u], u32 stage, u32 page) {
  multiply(d, c.keys + stage * (STAGE_BYTES / 16u) + page * (PAGE_BYTES / 16u), c.queries);
  const f32 scale = ptx_load_shared(c.scales + stage * STAGE_BYTES + page * PAGE_BYTES);
  PTX_MULTIPLY_WAIT(0);
  return scale;
}
/* Stores the scores of a page, whose first key is `first`. */
template <u32 N> NUM void store_page(const scorer<N> &c, f32 (&d)[N / 2u], f32 scale, u32 first) {
#pragma unroll
  for (u32 i = 0; i < N / 2u; i++) ptx_hold(d[i]); /* keeps reads after the wait */
#pragma unroll
  for (u32 x = 0; x < PAIRS(N); x++) {
    const f32 v = num_mul(sum_heads<N>(d, c.w, c.lane, x), scale); /* R15.4 */
    ptx_store_if(first < c.out.limit[x], c.out.to + (u64)x * 2u * c.stride + first, v);
  }
}

/* Scores the stages of a share from number n on, `teams` apart; left: how many. lanes: as in release. */
template <u32 N> NUM void score_stages(const index_share &s, scorer<N> &c, u32 base, u32 n, u32 left, u32 teams, u32 lanes, u32 first) {
  const u32 last = (s.end - 1u) * PAGE_TOKENS; /* key of the last page */
  u32 step = teams * STAGE_KEYS;
  f32 d[N / 2u];
#pragma unroll
  for (u32 i = 0; i < N / 2u; i++) d[i] = 0.0f;
  ptx_forget(step);
  ptx_forget(teams);
#pragma unroll 1
  for (; left; left--) {
    wait_stage(base, n);
    const bool two = SPEC_PAGES == 2 && first < last;
    f32 scale = multiply_page(c, d, stage_of(n), 0);
    if (two) {
      store_page(c, d, scale, first);
      scale = multiply_page(c, d, stage_of(n), 1u);
    }
    release(base + STAGE_EMPTY + stage_of(n) * 8u, lanes);
    PTX_MULTIPLY_WAIT(0); /* again, for the assembler, which would release the stage after the sums */
    store_page(c, d, scale, two ? first + PAGE_TOKENS : first);
    n += teams;
    first += step;
  }
}

/* Scores a share. With fewer groups of tokens than warpgroups, the warpgroups form teams that take stages in turn. */
template <u32 N>
NUM void score(const index_score_args &a, const index_share &s, const ring_position &p, u32 base, u32 warpgroup) {
  const u32 teams = WARPGROUPS / s.groups, group = warpgroup % s.groups, team = warpgroup / s.groups, stages = stages_of(s);
  const u32 lanes = teams + (group < WARPGROUPS % s.groups); /* all arrivals of a stage are those of the team that takes it */
  const u32 key = threadIdx.x % 128u / 32u * 16u + threadIdx.x % 32u / 4u + threadIdx.x % 2u * 8u;
  const u32 tile = AT_QUERIES + p.tiles % 2u * QUERIES_BYTES;
  if (team >= teams || team >= stages) return;
  scorer<N> c;
  c.lane = ptx_kept(threadIdx.x % 32u);
  c.stride = a.stride;
  c.scales = base + INDEX_DIM * PAGE_TOKENS + ((key * 4u) ^ (key / 32u << 4)); /* row 65 is swizzled as any odd row */
  c.keys = (u32)ptx_operand(PTX_SWIZZLED, base), c.queries = (u32)ptx_operand(PTX_SWIZZLED, base + tile + group * CODES_BYTES);
  find_out(a, s, group, key, c.out);
  ptx_forget(c.keys); /* else every step would cost one more instruction */
  ptx_forget(c.queries);
  ptx_forget(c.out.to);
  read_weights(c.w, base + tile + AT_WEIGHTS + (group * COLUMNS + threadIdx.x % 4u * 2u) * 4u);
  score_stages(s, c, base, p.stages + team, (stages - team - 1u) / teams + 1u, teams, lanes, s.first * PAGE_TOKENS + team * STAGE_KEYS);
}

/* The share of a tile, by all consumers. First they wait for each other: then all earlier stages have been filled, and none of those that a
 * warpgroup did not take is mistaken for a later one. */
NUM void score_share(const index_score_args &a, const index_share &s, ring_position &p, u32 base, u32 warpgroup) {
  const u32 at = p.tiles % 2u;
  ptx_warps_sync(2u, WARPGROUPS * 128u);
  ptx_barrier_wait(base + TILE_FULL + at * 8u, p.tiles / 2u % 2u);
  if (SPEC_PAGES == 1 && s.tokens == 1u) score<SPEC_HEADS>(a, s, p, base, warpgroup);
  else score<COLUMNS>(a, s, p, base, warpgroup);
  p.stages += stages_of(s);
  p.tiles++;
  release(base + TILE_EMPTY + at * 8u, 1u);
}

extern "C" __global__ __launch_bounds__(SPEC_THREADS, 1) void index_score(const __grid_constant__ index_score_args a,
                                                                       const __grid_constant__ tensor_maps maps) {
  extern __shared__ u8 raw[];
  static __shared__ index_list list;
  const u32 base = ptx_uniform((ptx_shared(raw) + 1023u) & ~1023u), warp = ptx_uniform(threadIdx.x / 32u);
  ring_position p = {0, 0};
  ptx_grid_next();
  if (threadIdx.x == 0) {
    ptx_fetch_map(&maps.w);
    ptx_fetch_map(&maps.x);
    for (u32 i = 0; i < SPEC_STAGES; i++) {
      ptx_barrier_init(base + STAGE_FULL + i * 8u, 1u);
      ptx_barrier_init(base + STAGE_EMPTY + i * 8u, 4u * WARPGROUPS);
    }
    for (u32 i = 0; i < 2; i++) {
      ptx_barrier_init(base + TILE_FULL + i * 8u, 1u);
      ptx_barrier_init(base + TILE_EMPTY + i * 8u, 4u * WARPGROUPS);
    }
    ptx_barrier_ready();
  }
  const u32 rows = index_rows(a);
  u32 total = 0;
  for (u32 first = 0; first < rows; first += WINDOW) total += index_window(a, rows, first, list, threadIdx.x < WINDOW);
  index_part part = {index_begin(total, blockIdx.x), index_begin(total, blockIdx.x + 1u), 0};
  ptx_grid_wait();
  if (warp >= 4u * WARPGROUPS) {
    PTX_REGISTERS_LESS(PRODUCER_REGISTERS);
    for (u32 first = 0; first < rows; first += WINDOW) {
      const u32 cost = rows > WINDOW ? index_window(a, rows, first, list, false) : total;
      if (warp == 4u * WARPGROUPS) produce(a, maps, list, part, p, base);
      part.from += cost;
    }
    return;
  }
  PTX_REGISTERS_MORE(CONSUMER_REGISTERS);
  for (u32 first = 0; first < rows; first += WINDOW) {
    const u32 cost = rows > WINDOW ? index_window(a, rows, first, list, true) : total;
    index_share s;
    for (u32 i = index_first(list, part); index_share_of(list, part, i, s); i++)
      if (s.first < s.end) score_share(a, s, p, base, warp / 4u);
    part.from += cost;
  }
}

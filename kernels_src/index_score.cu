/* index_score.cu - scores of the indexer: every token against every key of its context. NUMERICS.md, `index_score`.
 *
 * A tile is up to TILE tokens that follow each other in one sequence; work is (tile, page), of which each block finds its part by itself
 * (index_tiles.cuh). One warp copies: pages by boxes of 66 rows, 64 keys and their scales, SPEC_STAGES ahead, and a tile's queries and
 * weights while the one before is at work. The other warpgroups multiply: the rows of the operand are 64 keys, its 128 columns the heads of
 * GROUP tokens, so that a thread has all heads of a quarter and two exchanges between lanes end the sum. In a tile of many tokens each
 * warpgroup has a group of its own and takes every page, else they take pages by turns. While one adds up its scores others multiply.
 * Grid: any number of blocks. Dynamic shared bytes: 1536 + 2 * QUERIES_BYTES + SPEC_STAGES * STAGE_BYTES.
 * Bound, H200: full tiles 2 * heads * 128 FLOPs a pair of token and key at 1,500 TFLOP/s; tiles of one token 132 bytes a key at 4.3 TB/s.
 * Estimate, of 64 heads: a page and two tokens take 256 cycles of the tensor cores, 210 of a scheduler's instructions and 192 of shared
 * memory; a page of one token needs the same and takes 440 cycles to come. Measured, us (times the bound): 64 heads, 65,536 tokens, one
 * request 6.0, 16 requests 44 (1.33), 64 of 32,768 84 (1.27), 2,048 prompt tokens 2,123 (1.47); 32 heads, 2,048 of 8,192 140 (1.74).
 * Of these 2,123 products alone take 1,430, sums alone 560; without maxima it is 1,847. Warpgroups that multiply by turns: one at a time
 * 2,599, two at a time 2,118, begun in turn 2,197. */
#include "spec.cuh"
#include "index_tiles.cuh"

static_assert(SPEC_MAPS == 1, "keys and queries come by boxes");

#define COLUMNS 128u /* of a product: heads of GROUP tokens */
/* A thread's registers. All together may be no more than the block was launched with: setmaxnreg waits for what never comes. */
#define REGISTERS (WARPGROUPS == 4 ? 104u : 152u) /* multiplies */
#define COPYING_REGISTERS (WARPGROUPS == 4 ? 64u : 56u)
static_assert(WARPGROUPS * REGISTERS + COPYING_REGISTERS <= 65536u / SPEC_THREADS / 8u * 8u * (WARPGROUPS + 1u), "registers of the launch");
#define HELD (WARPGROUPS == 4 ? 12u : 16u) /* eights of columns whose weights have room in registers */
#define PAIRS (GROUP / 2u) /* of tokens: a lane ends with one score of each */
#define PAGE_ROWS (INDEX_PAGE_BYTES / INDEX_DIM) /* of 128 bytes: keys, then their scales */
#define STAGE_BYTES 9216u /* a page, to a multiple of 1024 */
#define CODES_BYTES (COLUMNS * INDEX_DIM) /* queries of a warpgroup */
#define QUERIES_BYTES (WARPGROUPS * CODES_BYTES + 2048u) /* of a tile: codes, weights */
static_assert(WARPGROUPS * COLUMNS * 4u <= 2048u, "weights of a tile");

/* Shared memory, from a multiple of 1024: pages, queries of two tiles, barriers. */
#define AT_QUERIES (SPEC_STAGES * STAGE_BYTES)
#define AT_WEIGHTS (WARPGROUPS * CODES_BYTES) /* behind a tile's codes */
#define PAGE_FULL (AT_QUERIES + 2u * QUERIES_BYTES)
#define PAGE_EMPTY (PAGE_FULL + SPEC_STAGES * 8u)
#define TILE_FULL (PAGE_EMPTY + SPEC_STAGES * 8u)
#define TILE_EMPTY (TILE_FULL + 16u)
static_assert(2u * SPEC_STAGES * 8u + 32u <= 512u, "barriers");

/* A stage of the ring of pages, or which of the two tiles, by turns. */
typedef struct turn {
  u32 at, phase;
} turn;
NUM void pass(turn &t, u32 count) {
  if (++t.at < count) return;
  t.at = 0;
  t.phase ^= 1u;
}

/* Where a role stands in both rings. */
typedef struct place {
  turn page, tile;
} place;

/* === The copying warp ======================================================================================================= */

NUM void fetch_queries(const index_score_args &a, const tensor_maps &maps, const index_share &s, const turn &t, u32 base) {
  const u32 to = base + AT_QUERIES + t.at * QUERIES_BYTES, full = base + TILE_FULL + t.at * 8u, weights = s.tokens * SPEC_HEADS * 4u;
  ptx_barrier_wait(base + TILE_EMPTY + t.at * 8u, t.phase ^ 1u);
  ptx_barrier_expect(full, s.groups * CODES_BYTES + weights);
  for (u32 i = 0; i < s.groups; i++) ptx_take_box(to + i * CODES_BYTES, &maps.x, 0, s.row * SPEC_HEADS + i * COLUMNS, full);
  ptx_copy_bulk(to + AT_WEIGHTS, a.w + (u64)s.row * SPEC_HEADS, weights, full, ptx_once());
}

NUM void fetch_pages(const index_score_args &a, const tensor_maps &maps, const index_share &s, turn &t, u32 base) {
  const u32 *pages = a.block_table + (u64)a.seq[s.row] * a.block_table_stride;
  const u32 lane = threadIdx.x % 32u;
  u32 held = 0; /* the numbers of 32 pages, one in each lane */
  for (u32 page = s.first; page < s.end; page++, pass(t, SPEC_STAGES)) {
    const u32 i = (page - s.first) % 32u, full = base + PAGE_FULL + t.at * 8u;
    if (i == 0) held = page + lane < s.end ? pages[page + lane] : 0u;
    const u32 number = __shfl_sync(WARP_ALL, held, i);
    if (ptx_elect()) {
      ptx_barrier_wait(base + PAGE_EMPTY + t.at * 8u, t.phase ^ 1u);
      ptx_barrier_expect(full, INDEX_PAGE_BYTES);
      ptx_take_box(base + t.at * STAGE_BYTES, &maps.w, 0, 0, number, full);
    }
    __syncwarp();
  }
}

NUM void feed(const index_score_args &a, const tensor_maps &maps, const index_list &list, const index_part &part, place &p, u32 base) {
  index_share s;
  for (u32 i = index_first(list, part); index_share_of(list, part, i, s); i++) {
    if (s.first >= s.end) continue;
    if (ptx_elect()) fetch_queries(a, maps, s, p.tile, base);
    pass(p.tile, 2u);
    fetch_pages(a, maps, s, p.page, base);
  }
}

/* === The multiplying warpgroups ============================================================================================= */

/* This warp is through with what the barrier is of. */
NUM void leave(u32 barrier) {
  if (threadIdx.x % 32u == 0) ptx_barrier_arrive(barrier);
}

/* The operand `bytes` further: never across a multiple of 2^32. */
NUM u64 further(u64 operand, u32 bytes) { return (operand & ~0xffffffffull) | ((u32)operand + bytes / 16u); }

/* Starts d = keys of a page times the heads of a warpgroup's tokens. */
NUM void multiply(f32 (&d)[COLUMNS / 2u], u64 left, u64 right) {
  ptx_multiply_fence();
  ptx_multiply_e4m3_anew(d, left, right);
#pragma unroll
  for (u32 k = 32; k < INDEX_DIM; k += 32) ptx_multiply_e4m3(d, further(left, k), further(right, k));
  ptx_multiply_commit();
}

/* Of the pair of tokens x: its partial sums p_g, g the lane modulo 4, of the thread's two keys; then, over the four lanes, the sum of one
 * token, the second one in lanes 2 and 3, and one key, the second one in lanes 1 and 3. */
NUM f32 sum_heads(const f32 (&d)[COLUMNS / 2u], const f32 (&w)[2u * HELD], const f32 *weights, u32 x) {
  const bool odd = threadIdx.x & 1u, high = threadIdx.x & 2u;
  f32 half[2];
#pragma unroll
  for (u32 t = 0; t < 2; t++) {
    f32 p[2] = {0.0f, 0.0f};
#pragma unroll
    for (u32 j = (2u * x + t) * (SPEC_HEADS / 8u); j < (2u * x + t + 1u) * (SPEC_HEADS / 8u); j++) {
      const float2 pair = j < HELD ? make_float2(w[2u * j], w[2u * j + 1u]) : *(const float2 *)(weights + 8u * j);
#pragma unroll
      for (u32 e = 0; e < 2; e++)
#pragma unroll
        for (u32 h = 0; h < 2; h++) p[h] = num_fma(ptx_max(d[4u * j + 2u * h + e], 0.0f), e ? pair.y : pair.x, p[h]); /* R15.1 */
    }
    half[t] = num_add(odd ? p[1] : p[0], __shfl_xor_sync(WARP_ALL, odd ? p[0] : p[1], 1u)); /* R15.2 */
  }
  return num_add(high ? half[1] : half[0], __shfl_xor_sync(WARP_ALL, high ? half[0] : half[1], 2u)); /* R15.3 */
}

/* What a lane stores: of its token of each pair, keys below the limit. */
typedef struct lane_out {
  f32 *to; /* of the first pair, key 0 of a page */
  u32 limit[PAIRS];
} lane_out;

NUM lane_out out_of(const index_score_args &a, const index_share &s, u32 group, u32 key) {
  lane_out out;
  const u32 token = group * GROUP + threadIdx.x / 2u % 2u, position = a.position[s.row];
  out.to = a.scores + (u64)(s.row - a.row_first + token) * a.stride + key;
#pragma unroll
  for (u32 x = 0; x < PAIRS; x++) out.limit[x] = token + 2u * x < s.tokens ? position + token + 2u * x + 1u : 0u;
  return out;
}

/* The heads' weights of the warpgroup's tokens, for the columns that the thread holds; weights: of its first two. */
NUM void read_weights(f32 (&w)[2u * HELD], const f32 *weights) {
#pragma unroll
  for (u32 j = 0; j < HELD; j++) {
    const float2 v = *(const float2 *)(weights + 8u * j);
    w[2u * j] = v.x;
    w[2u * j + 1u] = v.y;
  }
}

/* A share: with fewer groups of tokens than warpgroups these form teams, which take the pages by turns. */
NUM void score(const index_score_args &a, const index_share &s, place &p, const u8 *shared, u32 base, u32 warpgroup) {
  const u32 teams = WARPGROUPS / s.groups, group = warpgroup % s.groups, team = warpgroup / s.groups;
  const u32 key = threadIdx.x % 128u / 32u * 16u + threadIdx.x % 32u / 4u + threadIdx.x % 2u * 8u;
  const u32 scale_at = INDEX_DIM * PAGE_TOKENS + ((key * 4u) ^ (key / 32u << 4)); /* row 65 is exchanged as any odd row */
  const u32 tile = AT_QUERIES + p.tile.at * QUERIES_BYTES;
  const f32 *weights = (const f32 *)(shared + tile + AT_WEIGHTS) + group * COLUMNS + threadIdx.x % 4u * 2u;
  const lane_out out = out_of(a, s, group, key);
  const u64 keys = ptx_operand(PTX_SWIZZLED, base), queries = ptx_operand(PTX_SWIZZLED, base + tile + group * CODES_BYTES);
  f32 d[COLUMNS / 2u], w[2u * HELD];
  ptx_barrier_wait(base + TILE_FULL + p.tile.at * 8u, p.tile.phase);
  read_weights(w, weights);
#pragma unroll
  for (u32 i = 0; i < COLUMNS / 2u; i++) d[i] = 0.0f;
  for (u32 page = s.first, next = 0; page < s.end; page++, pass(p.page, SPEC_STAGES)) {
    const bool is_mine = next == team;
    const u32 at = p.page.at * STAGE_BYTES;
    next = next + 1u < teams ? next + 1u : 0u;
    ptx_barrier_wait(base + PAGE_FULL + p.page.at * 8u, p.page.phase); /* not ours either: a lap ahead leaving would count for the next */
    if (!is_mine) {
      leave(base + PAGE_EMPTY + p.page.at * 8u);
      continue;
    }
    multiply(d, further(keys, at), queries);
    const f32 scale = *(const f32 *)(shared + at + scale_at);
    PTX_MULTIPLY_WAIT(0);
    leave(base + PAGE_EMPTY + p.page.at * 8u);
#pragma unroll
    for (u32 i = 0; i < COLUMNS / 2u; i++) ptx_hold(d[i]); /* else some is read before it is there */
#pragma unroll
    for (u32 x = 0; x < PAIRS; x++) {
      const f32 v = num_mul(sum_heads(d, w, weights, x), scale); /* R15.4 */
      if (page * PAGE_TOKENS + key < out.limit[x]) out.to[(u64)x * 2u * a.stride + page * PAGE_TOKENS] = v;
    }
  }
  leave(base + TILE_EMPTY + p.tile.at * 8u);
  pass(p.tile, 2u);
}

extern "C" __global__ __launch_bounds__(SPEC_THREADS, 1) void index_score(const __grid_constant__ index_score_args a,
                                                                       const __grid_constant__ tensor_maps maps) {
  extern __shared__ u8 raw[];
  static __shared__ index_list list;
  const u32 base = (ptx_shared(raw) + 1023u) & ~1023u, warp = ptx_uniform(threadIdx.x / 32u);
  const u8 *shared = raw + (base - ptx_shared(raw));
  place p = {{0, 0}, {0, 0}};
  ptx_grid_next();
  if (threadIdx.x == 0) {
    for (u32 i = 0; i < SPEC_STAGES; i++) {
      ptx_barrier_init(base + PAGE_FULL + i * 8u, 1u);
      ptx_barrier_init(base + PAGE_EMPTY + i * 8u, 4u * WARPGROUPS);
    }
    for (u32 i = 0; i < 2; i++) {
      ptx_barrier_init(base + TILE_FULL + i * 8u, 1u);
      ptx_barrier_init(base + TILE_EMPTY + i * 8u, 4u * WARPGROUPS);
    }
    ptx_barrier_ready();
  }
  const u32 rows = index_rows(a);
  u32 total = 0;
  for (u32 first = 0; first < rows; first += WINDOW) total += index_list_tiles(a, rows, first, list);
  index_part part = {index_begin(total, blockIdx.x), index_begin(total, blockIdx.x + 1u), 0};
  ptx_grid_wait();
  if (warp >= 4u * WARPGROUPS) {
    PTX_REGISTERS_LESS(COPYING_REGISTERS);
    for (u32 first = 0; first < rows; first += WINDOW) {
      const u32 cost = rows > WINDOW ? index_list_tiles(a, rows, first, list) : total;
      if (warp == 4u * WARPGROUPS) feed(a, maps, list, part, p, base);
      part.from += cost;
    }
    return;
  }
  PTX_REGISTERS_MORE(REGISTERS);
  for (u32 first = 0; first < rows; first += WINDOW) {
    const u32 cost = rows > WINDOW ? index_list_tiles(a, rows, first, list) : total;
    index_share s;
    for (u32 i = index_first(list, part); index_share_of(list, part, i, s); i++)
      if (s.first < s.end) score(a, s, p, shared, base, warp / 4u);
    part.from += cost;
  }
}

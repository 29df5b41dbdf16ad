/* index_score.cu - scores of the indexer: every token against every key of its context. NUMERICS.md, `index_score`.
 *
 * A tile is up to TILE tokens that follow each other in one sequence; work is (tile, page), of which each block finds its part by itself
 * (index/tiles.cuh). One warp copies: pages by boxes of 66 rows, 64 keys and their scales, SPEC_PAGES to a stage of a ring, and a tile's
 * queries and weights while the one before is at work. The other warpgroups multiply: the rows of the operand are 64 keys, its 128 columns
 * the heads of GROUP tokens, so that a thread has all heads of a quarter and two exchanges between lanes end the sum. In a tile of many
 * tokens each warpgroup has a group of its own and takes every page, else they take stages by turns. While one adds up its scores others
 * multiply. Grid: any number of blocks. Dynamic shared bytes: 1536 + 2 * QUERIES_BYTES + SPEC_STAGES * STAGE_BYTES.
 * Bound, H200: full tiles 2 * heads * 128 FLOPs a pair of token and key at 1,500 TFLOP/s; tiles of one token 132 bytes a key at 4.3 TB/s.
 * A page and two tokens take 256 cycles of the tensor cores, and while those work a scheduler issues an instruction about every second
 * cycle: the 128 of their sum take as long, and every other one counts. There are 50 (65 in stages of one page, which are quicker where
 * single tokens wait for memory), hence what is hidden from the compiler here. With common numbers power bounds it too: 700 W.
 * Measured, us (times the bound): 64 heads, 65,536 tokens, one request 6.1, 16 requests 43 (1.30), 64 of 32,768 82 (1.24), 2,048 prompt
 * tokens 1,885 (1.31); 2,048 of 8,192 198 (1.24), 32 heads 112 (1.40). Products alone take 1,430.
 * Lost, us of prompts: a product under way while the one before is added up 2,041 to 2,074 (no room for weights, and reading them again is
 * 99), three warpgroups 2,087, stages of one page 1,931. Of the 2,041 stores are 93, exchanges 98. Warpgroups that multiply by turns had
 * not gained anything when it took 2,118. */
#include "spec.cuh"
#include "index/tiles.cuh"

static_assert(SPEC_MAPS == 1, "keys and queries come by boxes");

#define COLUMNS 128u /* of a product: heads of GROUP tokens */
/* A thread's registers. All together may be no more than the block was launched with: setmaxnreg waits for what never comes. */
#define REGISTERS 112u /* multiplies */
#define COPYING_REGISTERS 32u
static_assert(WARPGROUPS * REGISTERS + COPYING_REGISTERS <= 65536u / SPEC_THREADS / 8u * 8u * (WARPGROUPS + 1u), "registers of the launch");
#define WEIGHTS (COLUMNS / 4u) /* of a thread's columns */
#define PAIRS (GROUP / 2u) /* of tokens: a lane ends with one score of each */
#define PAGE_ROWS (INDEX_PAGE_BYTES / INDEX_DIM) /* of 128 bytes: keys, then their scales */
#define PAGE_BYTES 9216u /* of a stage, to a multiple of 1024 */
#define STAGE_BYTES (SPEC_PAGES * PAGE_BYTES)
#define STAGE_KEYS (SPEC_PAGES * PAGE_TOKENS)
#define CODES_BYTES (COLUMNS * INDEX_DIM) /* queries of a warpgroup */
#define QUERIES_BYTES (WARPGROUPS * CODES_BYTES + 2048u) /* of a tile: codes, weights */
static_assert(WARPGROUPS * COLUMNS * 4u <= 2048u, "weights of a tile");
static_assert((SPEC_STAGES & (SPEC_STAGES - 1u)) == 0, "the place in the ring is a few bits of a count");
static_assert(SPEC_PAGES == 1 || SPEC_PAGES == 2, "");

/* Shared memory, from a multiple of 1024: pages, queries of two tiles, barriers. */
#define AT_QUERIES (SPEC_STAGES * STAGE_BYTES)
#define AT_WEIGHTS (WARPGROUPS * CODES_BYTES) /* behind a tile's codes */
#define STAGE_FULL (AT_QUERIES + 2u * QUERIES_BYTES)
#define STAGE_EMPTY (STAGE_FULL + SPEC_STAGES * 8u)
#define TILE_FULL (STAGE_EMPTY + SPEC_STAGES * 8u)
#define TILE_EMPTY (TILE_FULL + 16u)
static_assert(2u * SPEC_STAGES * 8u + 32u <= 512u, "barriers");

/* How many stages and tiles a role has passed: where it stands in both rings. */
typedef struct place {
  u32 stages, tiles;
} place;

NUM u32 stage_of(u32 n) { return n % SPEC_STAGES; }
NUM u32 stages_of(const index_share &s) { return (s.end - s.first + SPEC_PAGES - 1u) / SPEC_PAGES; }
NUM void wait_stage(u32 base, u32 n) { ptx_barrier_wait(base + STAGE_FULL + stage_of(n) * 8u, n / SPEC_STAGES % 2u); }

/* === The copying warp ======================================================================================================= */

NUM void fetch_queries(const index_score_args &a, const tensor_maps &maps, const index_share &s, u32 tile, u32 base) {
  const u32 at = tile % 2u, to = base + AT_QUERIES + at * QUERIES_BYTES, full = base + TILE_FULL + at * 8u;
  const u32 weights = s.tokens * SPEC_HEADS * 4u;
  ptx_barrier_wait(base + TILE_EMPTY + at * 8u, tile / 2u % 2u ^ 1u);
  ptx_barrier_expect(full, s.groups * CODES_BYTES + weights);
  for (u32 i = 0; i < s.groups; i++) ptx_take_box(to + i * CODES_BYTES, &maps.x, 0, s.row * SPEC_HEADS + i * COLUMNS, full);
  ptx_copy_bulk(to + AT_WEIGHTS, a.w + (u64)s.row * SPEC_HEADS, weights, full, ptx_once());
}

NUM void fetch_pages(const index_score_args &a, const tensor_maps &maps, const index_share &s, u32 n, u32 base) {
  const u32 *pages = a.block_table + (u64)a.seq[s.row] * a.block_table_stride;
  const u32 lane = threadIdx.x % 32u;
  u32 held = 0; /* the numbers of 32 pages, one in each lane */
  for (u32 page = s.first; page < s.end; page += SPEC_PAGES, n++) {
    const u32 i = (page - s.first) % 32u, at = stage_of(n), full = base + STAGE_FULL + at * 8u;
    const bool two = SPEC_PAGES == 2 && page + 1u < s.end;
    if (i == 0) held = page + lane < s.end ? pages[page + lane] : 0u;
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

NUM void feed(const index_score_args &a, const tensor_maps &maps, const index_list &list, const index_part &part, place &p, u32 base) {
  index_share s;
  for (u32 i = index_first(list, part); index_share_of(list, part, i, s); i++) {
    if (s.first >= s.end) continue;
    if (ptx_elect()) fetch_queries(a, maps, s, p.tiles, base);
    p.tiles++;
    fetch_pages(a, maps, s, p.stages, base);
    p.stages += stages_of(s);
  }
}

/* === The multiplying warpgroups ============================================================================================= */

/* This warp is through with what the barrier is of. */
NUM void leave(u32 barrier) {
  if (threadIdx.x % 32u == 0) ptx_barrier_arrive(barrier);
}
NUM void leave_stage(u32 base, u32 n) { leave(base + STAGE_EMPTY + stage_of(n) * 8u); }

/* The operand whose lower half is `low`, `bytes` further. */
NUM u64 operand_of(u32 low, u32 bytes) { return (PTX_SWIZZLED & ~0xffffffffull) | (low + bytes / 16u); }

/* d = keys of a page times the heads of a warpgroup's tokens, under way. Lower halves of their operands. */
NUM void multiply(f32 (&d)[COLUMNS / 2u], u32 left, u32 right) {
  ptx_multiply_fence();
  ptx_multiply_e4m3_anew(d, operand_of(left, 0), operand_of(right, 0));
#pragma unroll
  for (u32 k = 32; k < INDEX_DIM; k += 32) ptx_multiply_e4m3(d, operand_of(left, k), operand_of(right, k));
  ptx_multiply_commit();
}

/* Of the pair of tokens x: its partial sums p_g, g the lane modulo 4, of the thread's two keys; then, over the four lanes, the sum of one
 * token, the second one in lanes 2 and 3, and one key, the second one in lanes 1 and 3. */
NUM f32 sum_heads(const f32 (&d)[COLUMNS / 2u], const f32 (&w)[WEIGHTS], u32 lane, u32 x) {
  const bool odd = lane & 1u, high = lane & 2u;
  f32 half[2];
#pragma unroll
  for (u32 t = 0; t < 2; t++) {
    f32 p[2] = {0.0f, 0.0f};
#pragma unroll
    for (u32 j = (2u * x + t) * (SPEC_HEADS / 8u); j < (2u * x + t + 1u) * (SPEC_HEADS / 8u); j++)
#pragma unroll
      for (u32 e = 0; e < 2; e++)
#pragma unroll
        for (u32 h = 0; h < 2; h++) p[h] = num_fma(ptx_max(d[4u * j + 2u * h + e], 0.0f), w[2u * j + e], p[h]); /* R15.1 */
    half[t] = num_add(odd ? p[1] : p[0], __shfl_xor_sync(WARP_ALL, odd ? p[0] : p[1], 1u)); /* R15.2 */
  }
  return num_add(high ? half[1] : half[0], __shfl_xor_sync(WARP_ALL, high ? half[0] : half[1], 2u)); /* R15.3 */
}

/* The heads' weights of the warpgroup's tokens, for the columns that the thread holds; weights: of its first two. */
NUM void read_weights(f32 (&w)[WEIGHTS], const f32 *weights) {
#pragma unroll
  for (u32 j = 0; j < WEIGHTS / 2u; j++) {
    const float2 v = *(const float2 *)(weights + 8u * j);
    w[2u * j] = v.x;
    w[2u * j + 1u] = v.y;
  }
}

/* What a lane stores: of its token of each pair, its key of pages that begin below a limit. */
typedef struct lane_out {
  f32 *to; /* of the first pair, page 0 */
  u32 limit[PAIRS];
} lane_out;

NUM lane_out out_of(const index_score_args &a, const index_share &s, u32 group, u32 key) {
  lane_out out;
  const u32 token = group * GROUP + threadIdx.x / 2u % 2u, position = a.position[s.row];
  out.to = a.scores + (u64)(s.row - a.row_first + token) * a.stride + key;
#pragma unroll
  for (u32 x = 0; x < PAIRS; x++) {
    const u32 keys = token + 2u * x < s.tokens ? position + token + 2u * x + 1u : 0u;
    out.limit[x] = keys > key ? keys - key : 0u;
  }
  return out;
}

/* Stages of other teams. They are waited for: a warpgroup a lap ahead would take a stage for another one. */
NUM void pass_stages(u32 base, u32 &n, u32 count) {
  for (; count; count--, n++) {
    wait_stage(base, n);
    leave_stage(base, n);
  }
}

/* What of a share does not change from page to page. */
typedef struct scorer {
  u32 keys, queries; /* lower halves of operands: stage 0, the warpgroup's tokens */
  u32 scales;        /* of stage 0, the thread's key                              */
  u32 lane, stride;
  f32 w[WEIGHTS];
  lane_out out;
} scorer;

/* Of one page of a stage: */
NUM f32 multiply_page(const scorer &c, f32 (&d)[COLUMNS / 2u], u32 stage, u32 page) {
  multiply(d, c.keys + stage * (STAGE_BYTES / 16u) + page * (PAGE_BYTES / 16u), c.queries);
  const f32 scale = ptx_load_shared(c.scales + stage * STAGE_BYTES + page * PAGE_BYTES);
  PTX_MULTIPLY_WAIT(0);
  return scale;
}
/* and, first: its first key, the scores. */
NUM void store_page(const scorer &c, f32 (&d)[COLUMNS / 2u], f32 scale, u32 first) {
#pragma unroll
  for (u32 i = 0; i < COLUMNS / 2u; i++) ptx_hold(d[i]); /* else some is read before it is there */
#pragma unroll
  for (u32 x = 0; x < PAIRS; x++) {
    const f32 v = num_mul(sum_heads(d, c.w, c.lane, x), scale); /* R15.4 */
    ptx_store_if(first < c.out.limit[x], c.out.to + (u64)x * 2u * c.stride + first, v);
  }
}

/* A share: with fewer groups of tokens than warpgroups these form teams, which take the stages by turns. */
NUM void score(const index_score_args &a, const index_share &s, place &p, const u8 *shared, u32 base, u32 warpgroup) {
  const u32 teams = WARPGROUPS / s.groups, group = warpgroup % s.groups, team = warpgroup / s.groups, stages = stages_of(s);
  const u32 key = threadIdx.x % 128u / 32u * 16u + threadIdx.x % 32u / 4u + threadIdx.x % 2u * 8u;
  const u32 at = p.tiles % 2u, tile = AT_QUERIES + at * QUERIES_BYTES;
  scorer c;
  c.lane = ptx_kept(threadIdx.x % 32u);
  c.stride = a.stride;
  c.scales = base + INDEX_DIM * PAGE_TOKENS + ((key * 4u) ^ (key / 32u << 4)); /* row 65 is exchanged as any odd row */
  c.keys = (u32)ptx_operand(PTX_SWIZZLED, base), c.queries = (u32)ptx_operand(PTX_SWIZZLED, base + tile + group * CODES_BYTES);
  c.out = out_of(a, s, group, key);
  ptx_forget(c.keys); /* which of their bits may be set, or every step would cost an instruction more */
  ptx_forget(c.queries);
  ptx_forget(c.out.to);
  ptx_barrier_wait(base + TILE_FULL + at * 8u, p.tiles / 2u % 2u);
  read_weights(c.w, (const f32 *)(shared + tile + AT_WEIGHTS) + group * COLUMNS + threadIdx.x % 4u * 2u);
  f32 d[COLUMNS / 2u];
#pragma unroll
  for (u32 i = 0; i < COLUMNS / 2u; i++) d[i] = 0.0f;
  const bool any = team < teams && team < stages;
  const u32 behind = any ? (stages - team - 1u) % teams : stages;
  u32 n = p.stages, left = any ? (stages - team - 1u) / teams + 1u : 0u, others = teams - 1u, step = teams * STAGE_KEYS;
  u32 first = s.first * PAGE_TOKENS + team * STAGE_KEYS; /* key of the stage at hand */
  const u32 last = (s.end - 1u) * PAGE_TOKENS;           /* of the last page         */
  ptx_forget(others);
  ptx_forget(step);
  if (any) pass_stages(base, n, team);
#pragma unroll 1
  while (left) {
    wait_stage(base, n);
    const bool two = SPEC_PAGES == 2 && first < last;
    f32 scale = multiply_page(c, d, stage_of(n), 0);
    if (two) {
      store_page(c, d, scale, first);
      scale = multiply_page(c, d, stage_of(n), 1u);
    }
    leave_stage(base, n);
    store_page(c, d, scale, two ? first + PAGE_TOKENS : first);
    n++;
    first += step;
    if (--left == 0) break;
    pass_stages(base, n, others);
  }
  pass_stages(base, n, behind);
  p.stages += stages;
  p.tiles++;
  leave(base + TILE_EMPTY + at * 8u);
}

extern "C" __global__ __launch_bounds__(SPEC_THREADS, 1) void index_score(const __grid_constant__ index_score_args a,
                                                                       const __grid_constant__ tensor_maps maps) {
  extern __shared__ u8 raw[];
  static __shared__ index_list list;
  const u32 base = ptx_uniform((ptx_shared(raw) + 1023u) & ~1023u), warp = ptx_uniform(threadIdx.x / 32u);
  const u8 *shared = raw + (base - ptx_shared(raw));
  place p = {0, 0};
  ptx_grid_next();
  if (threadIdx.x == 0) {
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
    PTX_REGISTERS_LESS(COPYING_REGISTERS);
    for (u32 first = 0; first < rows; first += WINDOW) {
      const u32 cost = rows > WINDOW ? index_window(a, rows, first, list, false) : total;
      if (warp == 4u * WARPGROUPS) feed(a, maps, list, part, p, base);
      part.from += cost;
    }
    return;
  }
  PTX_REGISTERS_MORE(REGISTERS);
  for (u32 first = 0; first < rows; first += WINDOW) {
    const u32 cost = rows > WINDOW ? index_window(a, rows, first, list, true) : total;
    index_share s;
    for (u32 i = index_first(list, part); index_share_of(list, part, i, s); i++)
      if (s.first < s.end) score(a, s, p, shared, base, warp / 4u);
    part.from += cost;
  }
}

/* mla_prefill.cu - attention of prompt tokens in the expanded form, over one piece of the contexts. NUMERICS.md, `mla_prefill`.
 *
 * A block takes one item at a time: a tile (tokens of one pair of pages) and one head. Two math warpgroups have 64 operand rows each, the
 * tokens of one page of the pair (row = position modulo 64; rows without a token of the tile are dead), and a third one feeds them: one
 * thread copies k and v of PAGES pages at a time by boxes, SPEC_STAGES stages ahead. Per stage and math warpgroup:
 *   S[64][64 PAGES] = Q K^T     nope columns, then rope;
 *   for each page: m, P as bf16 in registers, which are the operand of
 *   O[64][v_dim] += P V, l += P 1.
 * S of a stage and P V of the one before are under way together, the first page's P V before S; the two warpgroups' products take turns.
 * m seldom changes and scores are seldom too small: a page whose scores can be weighed as they are (range_of) needs nothing else. A stage
 * has two pages where O leaves registers for their scores: products of 128 columns read Q half as often. A warpgroup ends with its own
 * page: only there rows are masked, and only the tile's last page may hold rows of tokens behind the tile, which are made zeros. What a
 * row has of (m, l, O) when its context goes on waits in `state`. The next item's queries are copied beside the last products.
 * Items: 16 heads at a time, so that tiles find k and v in L2, the longest tiles of a sequence first; a block takes the next one when it
 * has copied the last. Grid: any number of blocks.
 * Dynamic shared bytes: 2048 + 16384 * KB + SPEC_STAGES * PAGES * 8192 * (KB + v_dim / 64), KB = nope_dim / 64 + 1.
 * Bound: 2 * (nope_dim + rope_dim + v_dim) FLOPs a pair of query and key at 790 TFLOP/s; an item copies (KB * 64 + v_dim) * 128 bytes a
 * page, from L2.
 * Measured on an H200 with rests of 250 ms, one run, TFLOP/s: 602 for 8192 tokens of 16 heads of 128 + 64 and 128, 628 for the last 8192
 * of 32768, 406 for 16 times 1024, 700 for 8192 tokens of 20 heads of 192 + 64 and 256; copies with a policy for L2 lose 0.1 to 1 %. In an
 * older run, while m followed every maximum, 581, 631, 374 and 666; with every score lifted to its least and items dealt in fixed order
 * 565, 580, 283 and 589.
 * The clock is at 1.75 GHz then; products alone run at 740 and 1.68 GHz.
 * An fma, add or multiplication of one warpgroup takes 0.7 to 0.9 cycles from the other's products (alone S of a stage takes 828 cycles,
 * P V 570, with P 1 722), so that instructions count even where they hide nothing: about 9 a weight are 3 fma of the polynomial, 3 for its
 * argument, the exponent, half a packing, one for range_of. Tried and lost: weights that are made before the last P V is waited for, for
 * certain (3 to 4 %); products without turns (1.5 %); S before the first page's P V (1 %); the turn given before the last page's P V;
 * barriers tested ahead; the next item's S beside this one's outputs (the compiler does not let it); items dealt in fixed order (16
 * prompts: one block has 1.4 times its share); ones as columns behind v; products with ones behind the others; Q in registers; outputs
 * stored 16 bytes at a time. */
#include "spec.cuh"
#include "ptx/ptx.cuh"
#include "ptx/reduce.cuh"

static_assert(SPEC_THREADS == 384, "two math warpgroups and one that copies");
static_assert(SPEC_NOPE_DIM % 64 == 0 && SPEC_V_DIM % 64 == 0 && (SPEC_ROPE_DIM == 32 || SPEC_ROPE_DIM == 64), "boxes of 64 columns");
static_assert(SPEC_MAPS == 1, "k and v come by boxes");

#define HEAD_COLUMNS (SPEC_NOPE_DIM + SPEC_V_DIM)
#define NOPE_BOXES (SPEC_NOPE_DIM / 64u)
#define K_BOXES (NOPE_BOXES + 1u) /* the last one: rope */
#define V_BOXES (SPEC_V_DIM / 64u)
#define K_STEPS ((SPEC_NOPE_DIM + SPEC_ROPE_DIM) / 16u)
#define BOX_BYTES 8192u
#define PAGES (SPEC_V_DIM <= 128 ? 2u : 1u) /* of a stage: there are registers for their scores beside O */
#define SECOND (PAGES - 1u) /* page of a stage, or its only one */
#define K_BYTES (K_BOXES * PAGES * BOX_BYTES)
#define V_BYTES (V_BOXES * PAGES * BOX_BYTES)
#define OUTPUTS (SPEC_V_DIM / 2u) /* of a thread: element 4 * j + 2 * h + e is row h, column 8 * j + e */
#define HEADS_AT_ONCE 16u /* some tiles of these run together, and find k and v in L2 */
#define NO_MAX (-0x1p60f)
#define INFINITE __int_as_float(0x7f800000)

/* Shared memory, from a multiple of 1024: Q of both warpgroups, k and v of the stages, ones, barriers of k and of v, items. */
#define AT_K (2u * K_BOXES * BOX_BYTES)
#define AT_V (AT_K + SPEC_STAGES * K_BYTES)
#define AT_ONES (AT_V + SPEC_STAGES * V_BYTES)
#define K_FULL (AT_ONES + 256u)
#define K_EMPTY (K_FULL + SPEC_STAGES * 8u)
#define V_FULL (K_EMPTY + SPEC_STAGES * 8u)
#define V_EMPTY (V_FULL + SPEC_STAGES * 8u)
#define TAKEN (V_EMPTY + SPEC_STAGES * 8u) /* of an item's number */

/* What a block works on: blocks first .. last of 64 tokens lie in the piece, in the workspace from row `row` on. count 0: nothing. */
typedef struct item {
  attn_tile tile;
  u32 head, row;
  u32 first, count;
  u32 end;         /* last position of the tile */
} item;

/* The block's items by their numbers, so many kept that none is written before all are through with the one that was there. */
#define ITEMS 16u
static_assert(SPEC_STAGES + 3u < ITEMS, "each item has a stage at least");
static __shared__ item items[ITEMS];

/* A thread's two rows of the operand: the row r and r + 8 of its warp's 16. */
typedef struct rows {
  bool is_live[2];
  u64 query[2]; /* token row * heads + head */
} rows;

/* Running (m, l, O) of the thread's two rows. l[0] and l[2] are the rows' sums, the others copies. */
typedef struct chain {
  f32 m[2], l[4], o[OUTPUTS];
} chain;

static __shared__ f32 unscale; /* 1 / scale_log2 */

/* A stage of the ring, by turns. */
typedef struct turn {
  u32 stage, phase;
} turn;
NUM void pass(turn &t) {
  if (++t.stage < SPEC_STAGES) return;
  t.stage = 0;
  t.phase ^= 1u;
}

/* Items taken behind each block's first, and blocks that take no more: both 0 between launches. */
static __device__ u32 taken, through;

NUM void item_of(const mla_prefill_args &a, u32 i, u32 tiles, item *it) {
  const u32 group = i / (tiles * HEADS_AT_ONCE), first = group * HEADS_AT_ONCE;
  const u32 width = a.heads - first < HEADS_AT_ONCE ? a.heads - first : HEADS_AT_ONCE, rest = i - tiles * first;
  const attn_tile tile = a.tiles[tiles - 1u - rest / width];
  it->tile = tile;
  it->head = first + rest % width;
  it->end = tile.position + tile.count - 1u;
  const u32 context = a.contexts[tile.seq].first, start = a.piece * a.piece_pages, last = it->end / PAGE_TOKENS;
  const u32 from = start > context ? start - context : 0u;
  const u32 room = context + from < start + a.piece_pages ? start + a.piece_pages - context - from : 0u;
  const u32 left = from <= last ? last + 1u - from : 0u;
  it->first = from;
  it->count = left < room ? left : room;
  it->row = (context + from - start) * PAGE_TOKENS;
}

NUM u32 take() { return gridDim.x + reduce_take(&taken); }

/* Item i or, if it has no pages in the piece, the next one that has: the block's item of that number. */
NUM void take_item(const mla_prefill_args &a, u32 i, u32 base, u32 number) {
  item *it = &items[number % ITEMS];
  it->count = 0;
  for (const u32 tiles = a.step->tile_count; i < tiles * a.heads; i = take()) {
    item_of(a, i, tiles, it);
    if (it->count) break;
  }
  ptx_barrier_arrive(base + TAKEN + number % ITEMS * 8u);
}

/* === The copying warpgroup ================================================================================================== */

NUM void feed(const mla_prefill_args &a, const tensor_maps &maps, u32 base) {
  turn t = {0, 0};
  take_item(a, blockIdx.x, base, 0);
  for (u32 number = 0; items[number % ITEMS].count; number++) {
    const item &it = items[number % ITEMS];
    const u32 count = it.count;
    for (u32 page = 0; page < count; page += PAGES, pass(t)) {
      const u32 here = count - page < PAGES ? count - page : PAGES, row = it.row + page * PAGE_TOKENS;
      const u32 k = base + AT_K + t.stage * K_BYTES, v = base + AT_V + t.stage * V_BYTES, column = it.head * HEAD_COLUMNS;
      u32 full = base + K_FULL + t.stage * 8u;
      ptx_barrier_wait(base + K_EMPTY + t.stage * 8u, t.phase ^ 1u);
      ptx_barrier_expect(full, here * K_BOXES * BOX_BYTES);
      for (u32 x = 0; x < K_BOXES; x++)
        for (u32 i = 0; i < here; i++)
          ptx_take_box(k + (x * PAGES + i) * BOX_BYTES, &maps.w, x < NOPE_BOXES ? column + x * 64u : a.heads * HEAD_COLUMNS,
                       row + i * PAGE_TOKENS, full);
      if (page + PAGES >= count) take_item(a, take(), base, number + 1u); /* takes long, and v can wait */
      full = base + V_FULL + t.stage * 8u;
      ptx_barrier_wait(base + V_EMPTY + t.stage * 8u, t.phase ^ 1u);
      ptx_barrier_expect(full, here * V_BOXES * BOX_BYTES);
      for (u32 i = 0; i < here; i++)
        for (u32 x = 0; x < V_BOXES; x++)
          ptx_take_box(v + (i * V_BOXES + x) * BOX_BYTES, &maps.w, column + SPEC_NOPE_DIM + x * 64u, row + i * PAGE_TOKENS, full);
    }
  }
  if (reduce_take(&through) == gridDim.x - 1u) taken = through = 0;
}

/* The warpgroup's page of the item. */
NUM u32 page_of(const item &it, u32 group) { return it.tile.position / (2u * PAGE_TOKENS) * 2u + group; }

/* === The math warpgroups ==================================================================================================== */

/* The block's item of that number; count 0: there is none. */
NUM item read_item(u32 base, u32 number) {
  ptx_barrier_wait(base + TAKEN + number % ITEMS * 8u, number / ITEMS % 2u);
  const item at = items[number % ITEMS];
  item it;
  it.tile.row = ptx_uniform(at.tile.row);
  it.tile.position = ptx_uniform(at.tile.position);
  it.head = ptx_uniform(at.head);
  it.first = ptx_uniform(at.first);
  it.count = ptx_uniform(at.count);
  it.end = ptx_uniform(at.end);
  return it;
}

NUM rows rows_of(const mla_prefill_args &a, const item &it, u32 page) {
  rows r;
#pragma unroll
  for (u32 h = 0; h < 2; h++) {
    const u32 position = page * PAGE_TOKENS + threadIdx.x % 128u / 32u * 16u + threadIdx.x % 32u / 4u + 8u * h;
    r.is_live[h] = position >= it.tile.position && position <= it.end;
    r.query[h] = (u64)(it.tile.row + position - it.tile.position) * a.heads + it.head;
  }
  return r;
}

/* Where a warpgroup's queries lie: boxes of its own. */
NUM u32 queries_at(u32 base, u32 group) { return base + group * K_BOXES * BOX_BYTES; }

/* Starts to copy a warpgroup's queries of the item of that number; dead rows become zeros. */
NUM void fetch_queries(const mla_prefill_args &a, u32 number, u32 base, u32 group) {
  const u32 lane = threadIdx.x % 128u, piece = lane % 8u;
  const item it = read_item(base, number);
  if (it.count == 0) return;
  PTX_COPY_WAIT(0); /* for those of an item without pages for this warpgroup, which it did not need: copies keep no order */
  ptx_warps_sync(1u + group, 128u); /* all are through with the last item's */
#pragma unroll 1
  for (u32 j = 0; j < 4; j++) {
    const u32 row = lane / 8u + 16u * j, position = page_of(it, group) * PAGE_TOKENS + row;
    const bool is_live = position >= it.tile.position && position <= it.end;
    const u64 query = (u64)(is_live ? it.tile.row + position - it.tile.position : it.tile.row) * a.heads + it.head;
    const u32 to = queries_at(base, group) + row * 128u + ((piece ^ (row % 8u)) << 4), bytes = is_live ? 16u : 0u;
#pragma unroll
    for (u32 x = 0; x < NOPE_BOXES; x++) ptx_copy16(to + x * BOX_BYTES, a.q_nope + query * SPEC_NOPE_DIM + x * 64u + piece * 8u, bytes);
    if (piece * 8u < SPEC_ROPE_DIM) ptx_copy16(to + NOPE_BOXES * BOX_BYTES, a.q_rope + query * a.q_rope_stride + piece * 8u, bytes);
  }
  ptx_copy_commit();
}

/* Until all of them are there. */
NUM void wait_queries(u32 group) {
  PTX_COPY_WAIT(0);
  ptx_fence_async();
  ptx_warps_sync(1u + group, 128u);
}

NUM void begin(const mla_prefill_args &a, chain &c, const rows &r, bool is_first) {
  c.m[0] = c.m[1] = NO_MAX;
#pragma unroll
  for (u32 i = 0; i < 4; i++) c.l[i] = 0.0f;
#pragma unroll
  for (u32 i = 0; i < OUTPUTS; i++) c.o[i] = 0.0f;
  if (is_first) return;
#pragma unroll
  for (u32 h = 0; h < 2; h++) {
    if (!r.is_live[h]) continue;
    const f32 *state = a.state + r.query[h] * (SPEC_V_DIM + 2u);
    const float2 ml = *(const float2 *)(state + SPEC_V_DIM);
    c.m[h] = ml.x;
    c.l[2u * h] = c.l[2u * h + 1u] = ml.y;
#pragma unroll
    for (u32 j = 0; j < OUTPUTS / 4u; j++) {
      const float2 o = *(const float2 *)(state + j * 8u + threadIdx.x % 4u * 2u);
      c.o[4u * j + 2u * h] = o.x;
      c.o[4u * j + 2u * h + 1u] = o.y;
    }
  }
}

/* bf16(O * (1 / l) + 0), or the state for the next piece. */
NUM void end(const mla_prefill_args &a, const chain &c, const rows &r, bool is_last) {
#pragma unroll
  for (u32 h = 0; h < 2; h++) {
    if (!r.is_live[h]) continue;
    const f32 share = num_div(1.0f, c.l[2u * h]);
    f32 *state = a.state + r.query[h] * (SPEC_V_DIM + 2u);
    bf16 *out = a.out + r.query[h] * SPEC_V_DIM;
#pragma unroll
    for (u32 j = 0; j < OUTPUTS / 4u; j++) {
      const u32 column = j * 8u + threadIdx.x % 4u * 2u;
      const f32 x = c.o[4u * j + 2u * h], y = c.o[4u * j + 2u * h + 1u];
      if (is_last) *(u32 *)(out + column) = ptx_pack_bf16(num_add(num_mul(x, share), 0.0f), num_add(num_mul(y, share), 0.0f));
      else *(float2 *)(state + column) = make_float2(x, y);
    }
    if (!is_last && threadIdx.x % 4u == 0) *(float2 *)(state + SPEC_V_DIM) = make_float2(c.m[h], c.l[2u * h]);
  }
}

/* The operand `step` times 16 bytes further: never across a multiple of 2^32. */
NUM u64 further(u64 operand, u32 step) { return (operand & ~0xffffffffull) | ((u32)operand + step); }

/* Starts s = Q K^T for the pages of a stage. */
NUM void multiply_scores(f32 (&s)[32u * PAGES], u32 queries, u32 k) {
  const u64 left = ptx_operand(PTX_SWIZZLED, queries), right = ptx_operand(PTX_SWIZZLED, k);
#pragma unroll
  for (u32 i = 0; i < 32u * PAGES; i++) {
    s[i] = 0.0f;
    ptx_hold(s[i]);
  }
  ptx_multiply_fence();
#pragma unroll
  for (u32 i = 0; i < K_STEPS; i++)
    ptx_multiply(s, further(left, i / 4u * (BOX_BYTES / 16u) + i % 4u * 2u),
                 further(right, i / 4u * (PAGES * BOX_BYTES / 16u) + i % 4u * 2u));
  ptx_multiply_commit();
}

/* Starts O += P V, l += P 1 for one page: tokens in four steps of 16. */
NUM void multiply_values(chain &c, const u32 (&p)[4][4], u32 v, u32 base) {
  const u64 ones = ptx_operand(PTX_PLAIN, base + AT_ONES), values = ptx_operand(PTX_ACROSS(BOX_BYTES), v);
  ptx_multiply_fence();
#pragma unroll
  for (u32 i = 0; i < 4; i++) {
    ptx_multiply_across(c.o, p[i], further(values, i * 128u));
    ptx_multiply(c.l, p[i], ones);
  }
  ptx_multiply_commit();
}

/* Tokens of the warpgroup's own page that stand behind a row's own. */
NUM void hide(f32 (&s)[32u * PAGES], u32 at, f32 as) {
  const u32 row = threadIdx.x % 128u / 32u * 16u + threadIdx.x % 32u / 4u, column = threadIdx.x % 4u * 2u;
#pragma unroll
  for (u32 i = 0; i < 32; i++)
    if (i / 4u * 8u + i % 2u + column > row + i / 2u % 2u * 8u) s[at + i] = as;
}

NUM u32 max3(u32 x, u32 y, u32 z) {
  const u32 most = x > y ? x : y;
  return most > z ? most : z;
}
NUM i32 max3(i32 x, i32 y, i32 z) {
  const i32 most = x > y ? x : y;
  return most > z ? most : z;
}

/* What the scores of a page that a thread holds of its rows lie between. As integers, of which one instruction takes the largest of three,
 * numbers above 0 are ordered as they are, those below 0 the other way round, without a sign behind all others. top: the largest score or,
 * if all are negative, 0; least: the smallest one if any is negative. */
typedef struct range {
  f32 top[2], least[2];
} range;

NUM range range_of(const f32 (&s)[32u * PAGES], u32 at) {
  i32 top[2] = {0, 0};
  u32 least[2] = {0, 0};
#pragma unroll
  for (u32 i = 0; i < 32; i += 2) {
    const u32 h = i / 2u % 2u, x = num_bits(s[at + i]), y = num_bits(s[at + i + 1u]);
    top[h] = max3(top[h], (i32)x, (i32)y);
    least[h] = max3(least[h], x, y);
  }
  return {{num_float((u32)top[0]), num_float((u32)top[1])}, {num_float(least[0]), num_float(least[1])}};
}

/* Whether a row's scores leave m as it is and none of them is below `low`: never wrong where it says so. */
NUM bool is_plain(f32 scale, f32 m, f32 top, f32 least) {
  return (m <= 118.0f) & (num_mul(top, scale) <= num_add(m, 8.0f)) & (num_mul(least, scale) >= num_sub(m, 119.0f)); /* no branches */
}

/* The largest score of the page in each row, of the row's four threads. */
NUM void find_tops(const f32 (&s)[32u * PAGES], u32 at, f32 (&top)[2]) {
#pragma unroll
  for (u32 h = 0; h < 2; h++) {
    f32 most = s[at + 2u * h];
#pragma unroll
    for (u32 i = 0; i < 32; i++)
      if (i / 2u % 2u == h) most = fmaxf(most, s[at + i]);
#pragma unroll
    for (u32 x = 1; x <= 2; x *= 2) most = fmaxf(most, __shfl_xor_sync(WARP_ALL, most, x));
    top[h] = most;
  }
}

/* Brings m up to date for a page of which not all is plain, and lifts scores to their least. */
NUM void raise(const mla_prefill_args &a, f32 (&s)[32u * PAGES], u32 at, chain &c, const range &r, f32 (&factor)[2], f32 (&base)[2]) {
  f32 top[2] = {r.top[0], r.top[1]}, low[2];
#pragma unroll
  for (u32 x = 1; x <= 2; x *= 2) {
    const f32 other[2] = {__shfl_xor_sync(WARP_ALL, top[0], x), __shfl_xor_sync(WARP_ALL, top[1], x)};
    top[0] = fmaxf(top[0], other[0]);
    top[1] = fmaxf(top[1], other[1]);
  }
  if (__any_sync(WARP_ALL, !((top[0] > 0.0f) & (top[1] > 0.0f) & (r.top[0] >= 0.0f) & (r.top[1] >= 0.0f)))) find_tops(s, at, top);
#pragma unroll
  for (u32 h = 0; h < 2; h++) {
    const f32 m = num_raise(c.m[h], num_mul(top[h], a.scale_log2));
    factor[h] = num_exp2_int(num_sub(c.m[h], m)); /* 1 where they are equal */
    c.m[h] = m;
    base[h] = num_weight_base(m);
    low[h] = num_weight_low(m, unscale);
  }
  if ((low[0] <= 0.0f) & (low[1] <= 0.0f) & (r.least[0] >= low[0]) & (r.least[1] >= low[1])) return;
#pragma unroll
  for (u32 i = 0; i < 32; i++) s[at + i] = ptx_max(s[at + i], low[i / 2u % 2u]);
}

/* Makes weights of the scores of a page, s[at ..], and brings m up to date; factor: what O and l are to be multiplied by. */
NUM void weigh(const mla_prefill_args &a, f32 (&s)[32u * PAGES], u32 at, chain &c, f32 (&factor)[2], bool is_own) {
#pragma unroll
  for (u32 i = 0; i < 32; i++) ptx_hold(s[at + i]); /* else some is read before it is there */
  if (is_own) hide(s, at, -INFINITE);
  const range r = range_of(s, at);
  f32 base[2] = {num_sub(NUM_ROUND, c.m[0]), num_sub(NUM_ROUND, c.m[1])}; /* num_weight_base, where all is plain */
  factor[0] = factor[1] = 1.0f;
  const bool is = is_plain(a.scale_log2, c.m[0], r.top[0], r.least[0]) & is_plain(a.scale_log2, c.m[1], r.top[1], r.least[1]);
  if (__any_sync(WARP_ALL, !is)) raise(a, s, at, c, r, factor, base);
#pragma unroll
  for (u32 i = 0; i < 32; i++) s[at + i] = num_weight(s[at + i], a.scale_log2, base[i / 2u % 2u]);
  if (is_own) hide(s, at, 0.0f);
}
/* The weights of a page as an operand: pairs of tokens, register i % 4 of step i / 4. */
NUM void pack(u32 (&p)[4][4], const f32 (&s)[32u * PAGES], u32 at) {
#pragma unroll
  for (u32 i = 0; i < 16; i++) p[i / 4u][i % 4u] = ptx_pack_bf16(s[at + 2u * i], s[at + 2u * i + 1u]);
}

NUM void rescale(chain &c, const f32 (&factor)[2]) {
  if (factor[0] == 1.0f && factor[1] == 1.0f) return;
#pragma unroll
  for (u32 i = 0; i < 4; i++) c.l[i] = num_mul(c.l[i], factor[i / 2u % 2u]);
#pragma unroll
  for (u32 i = 0; i < OUTPUTS; i++) c.o[i] = num_mul(c.o[i], factor[i / 2u % 2u]);
}

/* Rows of v from `from` on become zeros: their tokens stand behind the tile, and a weight of zero does not make NaN harmless. */
NUM void clear_values(u8 *values, u32 from, u32 group) {
  for (u32 i = from * 8u + threadIdx.x % 128u; i < 512u; i += 128u)
#pragma unroll
    for (u32 x = 0; x < V_BOXES; x++) *(uint4 *)(values + x * BOX_BYTES + i * 16u) = make_uint4(0, 0, 0, 0);
  ptx_fence_async();
  ptx_warps_sync(1u + group, 128u);
}

/* This warp is through with what the barrier is of. */
NUM void leave(u32 barrier) {
  if (threadIdx.x % 32u == 0) ptx_barrier_arrive(barrier);
}

/* Where v of a page lies. */
NUM u32 values_at(const turn &t, u32 page) { return AT_V + t.stage * V_BYTES + page * V_BOXES * BOX_BYTES; }

/* Blocks of the item that a warpgroup sees. */
NUM u32 seen_by(const item &it, u32 group) {
  const u32 page = page_of(it, group);
  const bool is_live = it.tile.position < (page + 1u) * PAGE_TOKENS && it.end >= page * PAGE_TOKENS;
  const u32 seen = !is_live || page < it.first ? 0u : page + 1u - it.first;
  return seen < it.count ? seen : it.count;
}

NUM u32 stages_of(u32 pages) { return (pages + PAGES - 1u) / PAGES; }

/* While both warpgroups have stages, their products take turns, so that the weights of one are made beside the products of the other.
 * Barrier 3 + group: its turn has come. */
#define AT_TURN 3u

/* Waits until v of the stage is there, then starts O += P V, l += P 1 for its page number `page`. */
NUM void add_values(chain &c, const u32 (&p)[4][4], const turn &t, u32 page, u32 base) {
  ptx_barrier_wait(base + V_FULL + t.stage * 8u, t.phase);
  multiply_values(c, p, base + values_at(t, page), base);
}

/* A stage that this warpgroup sees nothing of. Not before it is there: a lap ahead leaving would count for the next. */
NUM void skip(u32 base, const turn &t) {
  ptx_barrier_wait(base + K_FULL + t.stage * 8u, t.phase);
  leave(base + K_EMPTY + t.stage * 8u);
  ptx_barrier_wait(base + V_FULL + t.stage * 8u, t.phase);
  leave(base + V_EMPTY + t.stage * 8u);
}

/* Weights of a stage's pages as operands, and what O and l are to be multiplied by before each. */
typedef struct weights {
  u32 p[PAGES][4][4];
  f32 factor[PAGES][2];
} weights;

/* Weights of a stage's second page, if it has one that the warpgroup sees. page: number of the first one in the item. */
NUM void weigh_second(const mla_prefill_args &a, f32 (&s)[32u * PAGES], chain &c, weights &w, u32 page, u32 count, u32 own) {
  if (PAGES == 1u || page + 1u >= count) return;
  weigh(a, s, SECOND * 32u, c, w.factor[SECOND], page + 1u == own);
  pack(w.p[SECOND], s, SECOND * 32u);
}

/* All stages behind the first one: products of the one before, and weights. own: number of the warpgroup's own page in the item; paired:
 * stages that both warpgroups have. */
NUM void go_on(const mla_prefill_args &a, chain &c, f32 (&s)[32u * PAGES], weights &w, turn &t, u32 count, u32 own, u32 paired, u32 base,
               u32 group) {
  if (group == 1u && paired > 1u) ptx_warps_arrive(AT_TURN, 256u);
  for (u32 stage = 1; stage < stages_of(count); stage++) {
    turn ahead = t;
    pass(ahead);
    ptx_barrier_wait(base + K_FULL + ahead.stage * 8u, ahead.phase);
    if (stage < paired) ptx_warps_sync(AT_TURN + group, 256u);
    if (PAGES == 2u) add_values(c, w.p[0], t, 0, base);
    multiply_scores(s, queries_at(base, group), base + AT_K + ahead.stage * K_BYTES);
    if (PAGES == 2u) {
      PTX_MULTIPLY_WAIT(1); /* the first page's values are in */
      rescale(c, w.factor[SECOND]);
    }
    add_values(c, w.p[SECOND], t, SECOND, base);
    if (stage < paired && (group == 0u || stage + 1u < paired)) ptx_warps_arrive(AT_TURN + (group ^ 1u), 256u);
    PTX_MULTIPLY_WAIT(1); /* the scores are there */
    leave(base + K_EMPTY + ahead.stage * 8u);
    weigh(a, s, 0, c, w.factor[0], stage * PAGES == own);
    PTX_MULTIPLY_WAIT(0);
    leave(base + V_EMPTY + t.stage * 8u);
    pack(w.p[0], s, 0);
    rescale(c, w.factor[0]);
    weigh_second(a, s, c, w, stage * PAGES, count, own);
    t = ahead;
  }
}

/* The last stage's products. */
NUM void add_last(const item &it, chain &c, const weights &w, const turn &t, u32 count, u8 *shared, u32 base, u32 group) {
  const u32 last = (count - 1u) % PAGES, behind = it.end % PAGE_TOKENS + 1u;
  if (it.first + count - 1u == it.end / PAGE_TOKENS && behind < PAGE_TOKENS) {
    ptx_barrier_wait(base + V_FULL + t.stage * 8u, t.phase);
    clear_values(shared + values_at(t, last), behind, group);
  }
  add_values(c, w.p[0], t, 0, base);
  PTX_MULTIPLY_WAIT(0);
  if (PAGES == 2u && last) {
    rescale(c, w.factor[SECOND]);
    add_values(c, w.p[SECOND], t, SECOND, base);
    PTX_MULTIPLY_WAIT(0);
  }
  leave(base + V_EMPTY + t.stage * 8u);
}

/* Pages of the item up to this warpgroup's own. t: the turn of the item's first pages, and behind the last ones on return. */
NUM void attend(const mla_prefill_args &a, const item &it, u32 number, turn &t, u8 *shared, u32 base, u32 group) {
  const u32 page = page_of(it, group), count = seen_by(it, group), mine = stages_of(count), stages = stages_of(it.count);
  if (count) {
    const u32 other = stages_of(seen_by(it, group ^ 1u)), own = page - it.first;
    chain c;
    f32 s[32u * PAGES];
    weights w;
    wait_queries(group);
    begin(a, c, rows_of(a, it, page), it.first == 0);
    ptx_barrier_wait(base + K_FULL + t.stage * 8u, t.phase);
    multiply_scores(s, queries_at(base, group), base + AT_K + t.stage * K_BYTES);
    PTX_MULTIPLY_WAIT(0);
    leave(base + K_EMPTY + t.stage * 8u);
    weigh(a, s, 0, c, w.factor[0], own == 0);
    pack(w.p[0], s, 0);
    rescale(c, w.factor[0]);
    weigh_second(a, s, c, w, 0, count, own);
    go_on(a, c, s, w, t, count, own, mine < other ? mine : other, base, group);
    fetch_queries(a, number + 1u, base, group);
    add_last(it, c, w, t, count, shared, base, group);
    pass(t);
    end(a, c, rows_of(a, it, page), count > own);
  }
  for (u32 stage = mine; stage < stages; stage++, pass(t)) skip(base, t);
  if (count == 0) fetch_queries(a, number + 1u, base, group);
}

extern "C" __global__ __launch_bounds__(SPEC_THREADS, 1) void mla_prefill(const __grid_constant__ mla_prefill_args a,
                                                                       const __grid_constant__ tensor_maps maps) {
  extern __shared__ u8 raw[];
  const u32 base = (ptx_shared(raw) + 1023u) & ~1023u, group = ptx_uniform(threadIdx.x / 128u);
  u8 *shared = raw + (base - ptx_shared(raw));
  ptx_grid_next();
  if (threadIdx.x < 64u) ((u32 *)(shared + AT_ONES))[threadIdx.x] = 0x3f803f80u;
  if (threadIdx.x == 0) {
    unscale = num_div(1.0f, a.scale_log2);
    for (u32 i = 0; i < SPEC_STAGES; i++) {
      ptx_barrier_init(base + K_FULL + i * 8u, 1u);
      ptx_barrier_init(base + V_FULL + i * 8u, 1u);
      ptx_barrier_init(base + K_EMPTY + i * 8u, 8u); /* warps of math */
      ptx_barrier_init(base + V_EMPTY + i * 8u, 8u);
    }
    for (u32 i = 0; i < ITEMS; i++) ptx_barrier_init(base + TAKEN + i * 8u, 1u);
    ptx_barrier_ready();
  }
  ptx_fence_async();
  __syncthreads();
  ptx_grid_wait();
  if (group == 2u) {
    PTX_REGISTERS_LESS(24);
    if (ptx_uniform(threadIdx.x / 32u) == 8u && ptx_elect()) feed(a, maps, base);
    return;
  }
  PTX_REGISTERS_MORE(240);
  turn t = {0, 0};
  fetch_queries(a, 0, base, group);
  u32 number = 0;
  for (item it = read_item(base, 0); it.count; it = read_item(base, ++number)) attend(a, it, number, t, shared, base, group);
  PTX_COPY_WAIT(0);
}

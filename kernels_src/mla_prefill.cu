/* mla_prefill.cu - attention of prompt tokens in the expanded form, over one piece of the contexts. NUMERICS.md, `mla_prefill`.
 *
 * A block takes one item at a time: a tile (tokens of one pair of pages) and one head. Two math warpgroups have 64 operand rows each, the
 * tokens of one page of the pair (row = position modulo 64; rows without a token of the tile are dead), and a third one feeds them: one
 * thread copies k and v of PAGES pages at a time by boxes, SPEC_STAGES stages ahead. Per stage and warpgroup:
 *   S[64][64 PAGES] = Q K^T     nope columns, then rope;
 *   for each page: m, P as bf16 in registers, which are the operand of
 *   O[64][v_dim] += P V, l += P 1.
 * S of a stage and P V of the one before are under way together, the first page's P V before S; the weights are made beside the last page's
 * P V (ptx_settle: else the compiler puts most of that off until it is done), and the two warpgroups' products take turns. A stage has two
 * pages where O leaves registers for their scores: products of 128 columns read Q half as often. A warpgroup ends with its own page: only
 * there rows are masked, and only the tile's last page may hold rows of tokens behind the tile, which are made zeros. What a row has of
 * (m, l, O) when its context goes on waits in `state`. The copying thread says which item is next, beside its first stage: finding it takes
 * long.
 * Items: 16 heads at a time, so that tiles find k and v in L2, the longest tiles first, dealt forwards and backwards by turns. Grid: any
 * number of blocks, they stride over the items.
 * Dynamic shared bytes: 2048 + 16384 * KB + SPEC_STAGES * PAGES * 8192 * (KB + v_dim / 64), KB = nope_dim / 64 + 1.
 * Bound: 2 * (nope_dim + rope_dim + v_dim) FLOPs a pair of query and key at 790 TFLOP/s; an item copies (KB * 64 + v_dim) * 128 bytes a
 * page, from L2.
 * Measured on an H200, one run, TFLOP/s, in brackets with one page a stage, Q in registers and weights of scaled scores: 491 (451) for 8192
 * tokens of 16 heads of 128 + 64 and 128, 508 (476) for the last 8192 of 32768, 280 (261) for 16 times 1024. That is warm, at the chip's
 * limit of power; the first launches of a process are 3 to 12 % faster. With weights of scaled scores products alone took 487 us of the
 * first case's 714, weights alone 479; that both need the same ports of the registers is a guess. Tried and lost: ones as columns behind
 * v; products with ones behind the others; the test for weights of 0 once a page; products without turns; the turn given on earlier or
 * when the scores are there; Q in registers and two pages. */
#include "spec.cuh"
#include "ptx.cuh"

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
#define AT_ITEM (V_EMPTY + SPEC_STAGES * 8u) /* of the stage that holds an item's first pages */

/* What a block works on: blocks first .. last of 64 tokens lie in the piece, in the workspace from row `row` on. */
typedef struct item {
  attn_tile tile;
  u32 head, row;
  u32 first, count;
  u32 end;         /* last position of the tile */
} item;

/* A thread's two rows of the operand: the row r and r + 8 of its warp's 16. */
typedef struct rows {
  bool is_live[2];
  u64 query[2]; /* token row * heads + head */
} rows;

/* Running (m, l, O) of the thread's two rows. l[0] and l[2] are the rows' sums, the others copies. unscale: 1 / scale_log2. */
typedef struct chain {
  f32 m[2], l[4], o[OUTPUTS], unscale;
} chain;

/* A stage of the ring, by turns. */
typedef struct turn {
  u32 stage, phase;
} turn;
NUM void pass(turn &t) {
  if (++t.stage < SPEC_STAGES) return;
  t.stage = 0;
  t.phase ^= 1u;
}

/* The item that this block has in round number `round`, or none: count 0. */
NUM item item_of(const mla_prefill_args &a, u32 round, u32 items) {
  const u32 block = round % 2u ? gridDim.x - 1u - blockIdx.x : blockIdx.x, i = round * gridDim.x + block;
  item it;
  it.count = 0;
  if (i >= items) return it;
  const u32 tiles = items / a.heads, group = i / (tiles * HEADS_AT_ONCE), first = group * HEADS_AT_ONCE;
  const u32 width = a.heads - first < HEADS_AT_ONCE ? a.heads - first : HEADS_AT_ONCE, rest = i - tiles * first;
  it.tile = a.tiles[tiles - 1u - rest / width];
  it.head = first + rest % width;
  it.end = it.tile.position + it.tile.count - 1u;
  const u32 context = a.contexts[it.tile.seq].first, start = a.piece * a.piece_pages, last = it.end / PAGE_TOKENS;
  it.first = start > context ? start - context : 0u;
  const u32 room = context + it.first < start + a.piece_pages ? start + a.piece_pages - context - it.first : 0u;
  const u32 left = it.first <= last ? last + 1u - it.first : 0u;
  it.count = left < room ? left : room;
  it.row = (context + it.first - start) * PAGE_TOKENS;
  return it;
}

/* === The copying warpgroup ================================================================================================== */

/* Whoever waits for the stage finds the item there. */
NUM void put_item(u8 *shared, const item &it, const turn &t) { *(item *)(shared + AT_ITEM + t.stage * sizeof(item)) = it; }

NUM void feed(const mla_prefill_args &a, const tensor_maps &maps, u8 *shared, u32 base, u32 items) {
  const u64 often = ptx_often();
  turn t = {0, 0};
  for (u32 round = 0; round * gridDim.x < items; round++) {
    const item it = item_of(a, round, items);
    for (u32 page = 0; page < it.count; page += PAGES, pass(t)) {
      const u32 here = it.count - page < PAGES ? it.count - page : PAGES, row = it.row + page * PAGE_TOKENS;
      const u32 k = base + AT_K + t.stage * K_BYTES, v = base + AT_V + t.stage * V_BYTES, column = it.head * HEAD_COLUMNS;
      u32 full = base + K_FULL + t.stage * 8u;
      ptx_barrier_wait(base + K_EMPTY + t.stage * 8u, t.phase ^ 1u);
      if (page == 0) put_item(shared, it, t);
      ptx_barrier_expect(full, here * K_BOXES * BOX_BYTES);
      for (u32 x = 0; x < K_BOXES; x++)
        for (u32 i = 0; i < here; i++)
          ptx_copy_box(k + (x * PAGES + i) * BOX_BYTES, &maps.w, x < NOPE_BOXES ? column + x * 64u : a.heads * HEAD_COLUMNS,
                       row + i * PAGE_TOKENS, full, often);
      full = base + V_FULL + t.stage * 8u;
      ptx_barrier_wait(base + V_EMPTY + t.stage * 8u, t.phase ^ 1u);
      ptx_barrier_expect(full, here * V_BOXES * BOX_BYTES);
      for (u32 i = 0; i < here; i++)
        for (u32 x = 0; x < V_BOXES; x++)
          ptx_copy_box(v + (i * V_BOXES + x) * BOX_BYTES, &maps.w, column + SPEC_NOPE_DIM + x * 64u, row + i * PAGE_TOKENS, full, often);
    }
  }
  ptx_barrier_wait(base + K_EMPTY + t.stage * 8u, t.phase ^ 1u);
  put_item(shared, {}, t);
  ptx_barrier_arrive(base + K_FULL + t.stage * 8u);
}

/* === The math warpgroups ==================================================================================================== */

/* The item whose first block is the turn's; count 0: that was all. */
NUM item take_item(const u8 *shared, u32 base, const turn &t) {
  ptx_barrier_wait(base + K_FULL + t.stage * 8u, t.phase);
  const item at = *(const item *)(shared + AT_ITEM + t.stage * sizeof(item));
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

/* A warpgroup's queries in boxes of its own; dead rows become zeros. */
NUM void load_queries(const mla_prefill_args &a, const item &it, u32 page, u32 group, u32 queries) {
  const u32 lane = threadIdx.x % 128u, piece = lane % 8u;
  ptx_warps_sync(1u + group, 128u); /* all are through with the last item's */
#pragma unroll
  for (u32 j = 0; j < 4; j++) {
    const u32 row = lane / 8u + 16u * j, position = page * PAGE_TOKENS + row;
    const bool is_live = position >= it.tile.position && position <= it.end;
    const u64 query = (u64)(is_live ? it.tile.row + position - it.tile.position : it.tile.row) * a.heads + it.head;
    const u32 to = queries + row * 128u + ((piece ^ (row % 8u)) << 4), bytes = is_live ? 16u : 0u;
#pragma unroll
    for (u32 x = 0; x < NOPE_BOXES; x++) ptx_copy16(to + x * BOX_BYTES, a.q_nope + query * SPEC_NOPE_DIM + x * 64u + piece * 8u, bytes);
    if (piece * 8u < SPEC_ROPE_DIM) ptx_copy16(to + NOPE_BOXES * BOX_BYTES, a.q_rope + query * a.q_rope_stride + piece * 8u, bytes);
  }
  ptx_copy_commit();
  PTX_COPY_WAIT(0);
  ptx_fence_async();
  ptx_warps_sync(1u + group, 128u);
}

NUM void begin(const mla_prefill_args &a, chain &c, const rows &r, bool is_first) {
  c.unscale = num_div(1.0f, a.scale_log2);
  ptx_hold(c.unscale); /* else it is divided again at every use */
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

/* Largest of the thread's scores of each row in the page, by several maxima side by side; then of the row's four threads. */
NUM void find_tops(const f32 (&s)[32u * PAGES], u32 at, f32 (&top)[2]) {
  f32 part[8];
#pragma unroll
  for (u32 i = 0; i < 8; i++) part[i] = fmaxf(fmaxf(s[at + i], s[at + i + 8u]), fmaxf(s[at + i + 16u], s[at + i + 24u]));
#pragma unroll
  for (u32 h = 0; h < 2; h++) top[h] = fmaxf(fmaxf(part[2u * h], part[2u * h + 1u]), fmaxf(part[2u * h + 4u], part[2u * h + 5u]));
#pragma unroll
  for (u32 x = 1; x <= 2; x *= 2) {
    const f32 other[2] = {__shfl_xor_sync(WARP_ALL, top[0], x), __shfl_xor_sync(WARP_ALL, top[1], x)};
    top[0] = fmaxf(top[0], other[0]);
    top[1] = fmaxf(top[1], other[1]);
  }
}

/* Tokens of the warpgroup's own page that stand behind a row's own. */
NUM void hide(f32 (&s)[32u * PAGES], u32 at, f32 as) {
  const u32 row = threadIdx.x % 128u / 32u * 16u + threadIdx.x % 32u / 4u, column = threadIdx.x % 4u * 2u;
#pragma unroll
  for (u32 i = 0; i < 32; i++)
    if (i / 4u * 8u + i % 2u + column > row + i / 2u % 2u * 8u) s[at + i] = as;
}

/* Makes weights of the scores of a page, s[at ..], and brings m up to date; factor: what O and l are to be multiplied by. */
NUM void weigh(const mla_prefill_args &a, f32 (&s)[32u * PAGES], u32 at, chain &c, f32 (&factor)[2], bool is_own) {
  f32 top[2], base[2], low[2];
  if (is_own) hide(s, at, -INFINITE);
  find_tops(s, at, top);
#pragma unroll
  for (u32 h = 0; h < 2; h++) {
    const f32 m = num_raise(c.m[h], num_mul(top[h], a.scale_log2));
    factor[h] = num_exp2_int(num_sub(c.m[h], m)); /* 1 where they are equal */
    c.m[h] = m;
    base[h] = num_weight_base(m);
    low[h] = num_weight_low(m, c.unscale);
  }
#pragma unroll
  for (u32 i = 0; i < 32; i++) s[at + i] = num_weight(ptx_max(s[at + i], low[i / 2u % 2u]), a.scale_log2, base[i / 2u % 2u]);
  if (is_own) hide(s, at, 0.0f);
}

/* The weights of a page as an operand: pairs of tokens, register i % 4 of step i / 4. */
NUM void pack(u32 (&p)[4][4], const f32 (&s)[32u * PAGES], u32 at) {
  u32 all = 0;
#pragma unroll
  for (u32 i = 0; i < 16; i++) {
    p[i / 4u][i % 4u] = ptx_pack_bf16(s[at + 2u * i], s[at + 2u * i + 1u]);
    all |= p[i / 4u][i % 4u];
  }
  if (PAGES == 2u) ptx_settle(all); /* else there are no registers for it */
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

/* This warp is through with k or v of the stage. empty: K_EMPTY or V_EMPTY. */
NUM void leave(u32 base, u32 empty, const turn &t) {
  if (threadIdx.x % 32u == 0) ptx_barrier_arrive(base + empty + t.stage * 8u);
}

/* Where v of a page lies. */
NUM u32 values_at(const turn &t, u32 page) { return AT_V + t.stage * V_BYTES + page * V_BOXES * BOX_BYTES; }

/* Blocks of the item that a warpgroup sees. */
NUM u32 seen_by(const item &it, u32 group) {
  const u32 page = it.tile.position / (2u * PAGE_TOKENS) * 2u + group;
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
  leave(base, K_EMPTY, t);
  ptx_barrier_wait(base + V_FULL + t.stage * 8u, t.phase);
  leave(base, V_EMPTY, t);
}

/* Pages of the item up to this warpgroup's own. t: the turn of the item's first pages, and behind the last ones on return. */
NUM void attend(const mla_prefill_args &a, const item &it, turn &t, u8 *shared, u32 base, u32 group) {
  const u32 page = it.tile.position / (2u * PAGE_TOKENS) * 2u + group, queries = base + group * K_BOXES * BOX_BYTES;
  const u32 count = seen_by(it, group), stages = stages_of(it.count), mine = stages_of(count);
  if (count) {
    const u32 other = stages_of(seen_by(it, group ^ 1u)), paired = mine < other ? mine : other;
    const rows r = rows_of(a, it, page);
    chain c;
    f32 s[32u * PAGES], factor[PAGES][2];
    u32 p[PAGES][4][4];
    load_queries(a, it, page, group, queries);
    begin(a, c, r, it.first == 0);
    ptx_barrier_wait(base + K_FULL + t.stage * 8u, t.phase);
    multiply_scores(s, queries, base + AT_K + t.stage * K_BYTES);
    PTX_MULTIPLY_WAIT(0);
    leave(base, K_EMPTY, t);
    weigh(a, s, 0, c, factor[0], it.first == page);
    pack(p[0], s, 0);
    rescale(c, factor[0]);
    if (PAGES == 2u && count > 1u) {
      weigh(a, s, SECOND * 32u, c, factor[SECOND], it.first + 1u == page);
      pack(p[SECOND], s, SECOND * 32u);
    }
    if (group == 1u && paired > 1u) ptx_warps_arrive(AT_TURN, 256u);
    for (u32 stage = 1; stage < mine; stage++) {
      turn next = t;
      pass(next);
      ptx_barrier_wait(base + K_FULL + next.stage * 8u, next.phase);
      if (stage < paired) ptx_warps_sync(AT_TURN + group, 256u);
      if (PAGES == 2u) add_values(c, p[0], t, 0, base);
      multiply_scores(s, queries, base + AT_K + next.stage * K_BYTES);
      if (PAGES == 2u) {
        PTX_MULTIPLY_WAIT(1); /* the first page's values are in */
        rescale(c, factor[SECOND]);
      }
      add_values(c, p[SECOND], t, SECOND, base);
      if (stage < paired && (group == 0u || stage + 1u < paired)) ptx_warps_arrive(AT_TURN + (group ^ 1u), 256u);
      PTX_MULTIPLY_WAIT(1); /* the scores are there */
      leave(base, K_EMPTY, next);
      const u32 first = it.first + stage * PAGES;
      weigh(a, s, 0, c, factor[0], first == page);
      if (PAGES == 2u) pack(p[0], s, 0);
      PTX_MULTIPLY_WAIT(0);
      leave(base, V_EMPTY, t);
      if (PAGES == 1u) pack(p[0], s, 0);
      rescale(c, factor[0]);
      if (PAGES == 2u && stage * PAGES + 1u < count) {
        weigh(a, s, SECOND * 32u, c, factor[SECOND], first + 1u == page);
        pack(p[SECOND], s, SECOND * 32u);
      }
      t = next;
    }
    const u32 last = (count - 1u) % PAGES, behind = it.end % PAGE_TOKENS + 1u;
    if (it.first + count - 1u == it.end / PAGE_TOKENS && behind < PAGE_TOKENS) {
      ptx_barrier_wait(base + V_FULL + t.stage * 8u, t.phase);
      clear_values(shared + values_at(t, last), behind, group);
    }
    add_values(c, p[0], t, 0, base);
    PTX_MULTIPLY_WAIT(0);
    if (PAGES == 2u && last) {
      rescale(c, factor[SECOND]);
      add_values(c, p[SECOND], t, SECOND, base);
      PTX_MULTIPLY_WAIT(0);
    }
    leave(base, V_EMPTY, t);
    pass(t);
    end(a, c, r, it.first + count > page);
  }
  for (u32 stage = mine; stage < stages; stage++, pass(t)) skip(base, t);
}

extern "C" __global__ __launch_bounds__(SPEC_THREADS, 1) void mla_prefill(const __grid_constant__ mla_prefill_args a,
                                                                       const __grid_constant__ tensor_maps maps) {
  extern __shared__ u8 raw[];
  const u32 base = (ptx_shared(raw) + 1023u) & ~1023u, group = ptx_uniform(threadIdx.x / 128u);
  u8 *shared = raw + (base - ptx_shared(raw));
  ptx_grid_next();
  if (threadIdx.x < 64u) ((u32 *)(shared + AT_ONES))[threadIdx.x] = 0x3f803f80u;
  if (threadIdx.x == 0) {
    for (u32 i = 0; i < SPEC_STAGES; i++) {
      ptx_barrier_init(base + K_FULL + i * 8u, 1u);
      ptx_barrier_init(base + V_FULL + i * 8u, 1u);
      ptx_barrier_init(base + K_EMPTY + i * 8u, 8u); /* warps of math */
      ptx_barrier_init(base + V_EMPTY + i * 8u, 8u);
    }
    ptx_barrier_ready();
  }
  ptx_fence_async();
  __syncthreads();
  ptx_grid_wait();
  if (group == 2u) {
    PTX_REGISTERS_LESS(24);
    if (ptx_uniform(threadIdx.x / 32u) == 8u && ptx_elect()) feed(a, maps, shared, base, a.step->tile_count * a.heads);
    return;
  }
  PTX_REGISTERS_MORE(240);
  turn t = {0, 0};
  for (item it = take_item(shared, base, t); it.count; it = take_item(shared, base, t)) attend(a, it, t, shared, base, group);
}

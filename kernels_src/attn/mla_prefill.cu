/* mla_prefill.cu - attention of prompt tokens in the expanded form, over one piece of the contexts. NUMERICS.md, `mla_prefill`.
 *
 * A CTA takes one item at a time: a tile (tokens of one pair of pages) and one head. Two math warpgroups have the tokens of one page each
 * (row = position modulo 64); one thread of the third loads k and v by TMA, SPEC_STAGES stages of PAGES pages ahead. Per stage and math
 * warpgroup:
 *
 *   S[64][64 PAGES] = Q K^T;  for each page: m, P as bf16 in registers;  O[64][v_dim] += P V, l += P 1
 *
 * S of a stage and P V of the stage before are in flight together; the products of the two warpgroups alternate (ping-pong). A page that
 * leaves m unchanged and has no very small score (is_plain) needs no more work. A warpgroup ends with its own page: only there rows are
 * masked, and only the tile's last page can hold rows after the tile, which are zeroed. (m, l, O) of rows whose context goes on are
 * saved in `state`. Items: 16 heads at a time, so that tiles find k and v in L2, a sequence's longest tiles first, dealt dynamically.
 * Grid: any. Dynamic shared memory: kernels_src/README.md. H200, 8,192 tokens, 16 heads of 128 + 64 and 128: 602 TFLOP/s.
 * tools/bench/history/2026-11-22-lazy-maximum.md */
#include "spec.cuh"
#include "ptx/ptx.cuh"
#include "ptx/reduce.cuh"

static_assert(SPEC_THREADS == 384, "two math warpgroups and a producer");
static_assert(SPEC_NOPE_DIM % 64 == 0 && SPEC_V_DIM % 64 == 0 && (SPEC_ROPE_DIM == 32 || SPEC_ROPE_DIM == 64), "boxes of 64 columns");
static_assert(SPEC_MAPS == 1, "k and v are loaded by TMA");

#define HEAD_COLUMNS (SPEC_NOPE_DIM + SPEC_V_DIM)
#define NOPE_BOXES (SPEC_NOPE_DIM / 64u)
#define K_BOXES (NOPE_BOXES + 1u) /* the last one: rope */
#define V_BOXES (SPEC_V_DIM / 64u)
#define K_STEPS ((SPEC_NOPE_DIM + SPEC_ROPE_DIM) / 16u)
#define BOX_BYTES 8192u
#define PAGES (SPEC_V_DIM <= 128 ? 2u : 1u) /* per stage: two if there are registers for their scores next to O; products of 128 columns
                                             * read Q half as often */
#define K_BYTES (K_BOXES * PAGES * BOX_BYTES)
#define V_BYTES (V_BOXES * PAGES * BOX_BYTES)
#define OUTPUTS (SPEC_V_DIM / 2u) /* per thread: element 4 * j + 2 * h + e is row h, column 8 * j + e */
#define HEADS_AT_ONCE 16u /* tiles of this many heads run together, and find k and v in L2 */

/* Shared memory, from a multiple of 1024: Q of both warpgroups, k and v of the stages, ones, barriers of k and of v, items. */
#define AT_K (2u * K_BOXES * BOX_BYTES)
#define AT_V (AT_K + SPEC_STAGES * K_BYTES)
#define AT_ONES (AT_V + SPEC_STAGES * V_BYTES)
#define K_FULL (AT_ONES + 256u)
#define K_EMPTY (K_FULL + SPEC_STAGES * 8u)
#define V_FULL (K_EMPTY + SPEC_STAGES * 8u)
#define V_EMPTY (V_FULL + SPEC_STAGES * 8u)
#define TAKEN (V_EMPTY + SPEC_STAGES * 8u) /* by item: it has been written to `items` */

/* The work of a CTA: `count` blocks of 64 tokens from `first` on, which lie in the piece, in the workspace from row `row` on. count 0:
 * none. */
typedef struct item {
  attn_tile tile;
  u32 head, row;
  u32 first, count;
  u32 end;         /* last position of the tile */
} item;

/* The CTA's items by number: enough that none is overwritten before all warps have read it. */
#define ITEMS 16u
static_assert(SPEC_STAGES + 3u < ITEMS, "each item has a stage at least");
static __shared__ item items[ITEMS];

/* The thread's two operand rows, r and r + 8 of its warp's 16. */
typedef struct rows {
  bool is_live[2];
  u64 query[2]; /* token row * heads + head */
} rows;

#include "attn/expanded.cuh"

/* Items taken after each CTA's first, and CTAs that take no more: both 0 between launches. */
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

/* Publishes item i or, if it has no pages in the piece, the next one that has, as the CTA's item of that number. */
NUM void take_item(const mla_prefill_args &a, u32 i, u32 base, u32 number) {
  item *it = &items[number % ITEMS];
  it->count = 0;
  for (const u32 tiles = a.step->tile_count; i < tiles * a.heads; i = take()) {
    item_of(a, i, tiles, it);
    if (it->count) break;
  }
  ptx_barrier_arrive(base + TAKEN + number % ITEMS * 8u);
}

/* === The producer ======================================================================================================== */

NUM void run_loads(const mla_prefill_args &a, const tensor_maps &maps, u32 base) {
  ring_turn t = {0, 0};
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

/* The page of the item that is this warpgroup's. */
NUM u32 page_of(const item &it, u32 group) { return it.tile.position / (2u * PAGE_TOKENS) * 2u + group; }

/* === The math warpgroups ==================================================================================================== */

/* The CTA's item of that number; count 0: there is none. */
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

/* Starts to copy a warpgroup's queries of the item of that number; unused rows become zeros. */
NUM void load_queries(const mla_prefill_args &a, u32 number, u32 base, u32 group) {
  const u32 lane = threadIdx.x % 128u, piece = lane % 8u;
  const item it = read_item(base, number);
  if (it.count == 0) return;
  PTX_COPY_WAIT(0); /* for queries that this warpgroup did not need, of an item without pages for it: copies are not ordered */
  ptx_warps_sync(1u + group, 128u); /* all have read the last item's */
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

NUM void load_state(const mla_prefill_args &a, chain &c, const rows &r, bool is_first) {
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
NUM void store_result(const mla_prefill_args &a, const chain &c, const rows &r, bool is_last) {
#pragma unroll
  for (u32 h = 0; h < 2; h++) {
    if (!r.is_live[h]) continue;
    const f32 inverse = num_div(1.0f, c.l[2u * h]);
    f32 *state = a.state + r.query[h] * (SPEC_V_DIM + 2u);
    bf16 *out = a.out + r.query[h] * SPEC_V_DIM;
#pragma unroll
    for (u32 j = 0; j < OUTPUTS / 4u; j++) {
      const u32 column = j * 8u + threadIdx.x % 4u * 2u;
      const f32 x = c.o[4u * j + 2u * h], y = c.o[4u * j + 2u * h + 1u];
      if (is_last) *(u32 *)(out + column) = ptx_pack_bf16(num_add(num_mul(x, inverse), 0.0f), num_add(num_mul(y, inverse), 0.0f));
      else *(float2 *)(state + column) = make_float2(x, y);
    }
    if (!is_last && threadIdx.x % 4u == 0) *(float2 *)(state + SPEC_V_DIM) = make_float2(c.m[h], c.l[2u * h]);
  }
}

/* Masks the tokens of the warpgroup's own page that come after a row's own. */
NUM void mask_later(f32 (&s)[32u * PAGES], u32 at, f32 as) {
  const u32 row = threadIdx.x % 128u / 32u * 16u + threadIdx.x % 32u / 4u, column = threadIdx.x % 4u * 2u;
#pragma unroll
  for (u32 i = 0; i < 32; i++)
    if (i / 4u * 8u + i % 2u + column > row + i / 2u % 2u * 8u) s[at + i] = as;
}

/* Turns the scores s[at ..] of a page into probabilities, and updates m; factor: what O and l must be multiplied by. */
NUM void make_probs(const mla_prefill_args &a, f32 (&s)[32u * PAGES], u32 at, chain &c, f32 (&factor)[2], bool is_own) {
#pragma unroll
  for (u32 i = 0; i < 32; i++) ptx_hold(s[at + i]); /* else some are read before they are there */
  if (is_own) mask_later(s, at, -INFINITE);
  const range r = range_of(s, at);
  f32 base[2] = {num_sub(NUM_ROUND, c.m[0]), num_sub(NUM_ROUND, c.m[1])}; /* num_weight_base, if all is plain */
  factor[0] = factor[1] = 1.0f;
  const bool is = is_plain(a.scale_log2, c.m[0], r.top[0], r.least[0]) & is_plain(a.scale_log2, c.m[1], r.top[1], r.least[1]);
  if (__any_sync(WARP_ALL, !is)) raise(a.scale_log2, s, at, c, r, factor, base);
#pragma unroll
  for (u32 i = 0; i < 32; i++) s[at + i] = num_weight(s[at + i], a.scale_log2, base[i / 2u % 2u]);
  if (is_own) mask_later(s, at, 0.0f);
}
/* Blocks of the item that a warpgroup needs. */
NUM u32 seen_by(const item &it, u32 group) {
  const u32 page = page_of(it, group);
  const bool is_live = it.tile.position < (page + 1u) * PAGE_TOKENS && it.end >= page * PAGE_TOKENS;
  const u32 seen = !is_live || page < it.first ? 0u : page + 1u - it.first;
  return seen < it.count ? seen : it.count;
}

/* Probabilities of a stage's second page, if it has one that the warpgroup needs. page: number of the first one in the item. */
NUM void make_second_probs(const mla_prefill_args &a, f32 (&s)[32u * PAGES], chain &c, probs &w, u32 page, u32 count, u32 own) {
  if (PAGES == 1u || page + 1u >= count) return;
  make_probs(a, s, SECOND * 32u, c, w.factor[SECOND], page + 1u == own);
  pack(w.p[SECOND], s, SECOND * 32u);
}

/* All stages after the first: products of the one before, and probabilities. own: number of the warpgroup's own page in the item;
 * paired: stages that both warpgroups have. */
NUM void run_stages(const mla_prefill_args &a, chain &c, f32 (&s)[32u * PAGES], probs &w, ring_turn &t, u32 count, u32 own, u32 paired,
                    u32 base, u32 group) {
  if (group == 1u && paired > 1u) ptx_warps_arrive(AT_TURN, 256u);
  for (u32 stage = 1; stage < stages_of(count); stage++) {
    ring_turn ahead = t;
    pass(ahead);
    multiply_stage(c, s, w, t, ahead, stage, paired, base, group);
    make_probs(a, s, 0, c, w.factor[0], stage * PAGES == own);
    PTX_MULTIPLY_WAIT(0);
    release(base + V_EMPTY + t.stage * 8u);
    pack(w.p[0], s, 0);
    rescale(c, w.factor[0]);
    make_second_probs(a, s, c, w, stage * PAGES, count, own);
    t = ahead;
  }
}

/* The last stage's products. */
NUM void add_last(const item &it, chain &c, const probs &w, const ring_turn &t, u32 count, u8 *shared, u32 base, u32 group) {
  const u32 last = (count - 1u) % PAGES, end_row = it.end % PAGE_TOKENS + 1u;
  if (it.first + count - 1u == it.end / PAGE_TOKENS && end_row < PAGE_TOKENS) {
    ptx_barrier_wait(base + V_FULL + t.stage * 8u, t.phase);
    clear_values(shared + values_at(t, last), end_row, group);
  }
  multiply_last(c, w, t, last, base);
}

/* Pages of the item up to this warpgroup's own. t: the ring position of the item's first pages; after its last ones on return. */
NUM void run_item(const mla_prefill_args &a, const item &it, u32 number, ring_turn &t, u8 *shared, u32 base, u32 group) {
  const u32 page = page_of(it, group), count = seen_by(it, group), mine = stages_of(count), stages = stages_of(it.count);
  if (count) {
    const u32 other = stages_of(seen_by(it, group ^ 1u)), own = page - it.first;
    chain c;
    f32 s[32u * PAGES];
    probs w;
    wait_queries(group);
    load_state(a, c, rows_of(a, it, page), it.first == 0);
    ptx_barrier_wait(base + K_FULL + t.stage * 8u, t.phase);
    multiply_scores(s, queries_at(base, group), base + AT_K + t.stage * K_BYTES);
    PTX_MULTIPLY_WAIT(0);
    release(base + K_EMPTY + t.stage * 8u);
    make_probs(a, s, 0, c, w.factor[0], own == 0);
    pack(w.p[0], s, 0);
    rescale(c, w.factor[0]);
    make_second_probs(a, s, c, w, 0, count, own);
    run_stages(a, c, s, w, t, count, own, mine < other ? mine : other, base, group);
    load_queries(a, number + 1u, base, group);
    add_last(it, c, w, t, count, shared, base, group);
    pass(t);
    store_result(a, c, rows_of(a, it, page), count > own);
  }
  for (u32 stage = mine; stage < stages; stage++, pass(t)) skip(base, t);
  if (count == 0) load_queries(a, number + 1u, base, group);
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
      ptx_barrier_init(base + K_EMPTY + i * 8u, 8u); /* math warps */
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
    if (ptx_uniform(threadIdx.x / 32u) == 8u && ptx_elect()) run_loads(a, maps, base);
    return;
  }
  PTX_REGISTERS_MORE(240);
  ring_turn t = {0, 0};
  load_queries(a, 0, base, group);
  u32 number = 0;
  for (item it = read_item(base, 0); it.count; it = read_item(base, ++number)) run_item(a, it, number, t, shared, base, group);
  PTX_COPY_WAIT(0);
}

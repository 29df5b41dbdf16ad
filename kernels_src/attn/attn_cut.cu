/* attn_cut.cu - the pieces of a step's attention (attn_cut.h), once for all layers. NUMERICS.md, `attn_cut`.
 *
 * Warps price the choices in parallel; then all threads list the pieces of the best one: those of full length first, in the order of the
 * tiles, then the shorter ones, longest first. A CTA of the attention reads one entry and can then load KV rows at once. Kernels of all
 * layers read the list before ptx_grid_wait, so no kernel after this one starts before the list is written. Grid: any number of CTAs;
 * each computes the split, and they list in turn. Moves 32 bytes per piece and 16 per token of a split tile; bound by some round trips
 * and divisions. H200, 64 tiles at 1,024 tokens: 9.6 us a step. tools/bench/history/2026-11-22-attention-split-once.md */
#include "spec.cuh"
#include "attn/attn_cut.h"
#include "ptx/ptx.cuh"

static_assert(SPEC_THREADS == ATTN_CUT_TILES, "a thread for every tile");
#define WARPS (SPEC_THREADS / 32u)
#define SUMS 5u /* full pieces, shorter ones, slots, tokens of split tiles, completed pages */
#define NO_PAGE 0xffffffffu

typedef struct cut_block {
  u64 cost[ATTN_CUTS];
  u32 full_of[ATTN_CUTS], rests_of[ATTN_CUTS];
  u32 sums[SUMS][WARPS], most[WARPS];
  attn_tile tile[ATTN_CUT_TILES];
  attn_extent extent[ATTN_CUT_TILES];
  u32 first[ATTN_CUT_TILES]; /* number of the tile's first full piece */
  u32 slot[ATTN_CUT_TILES];  /* of its first unit */
  u32 key[ATTN_CUT_TILES];   /* blocks of its shorter piece; 0: none */
  u16 rest[ATTN_CUT_TILES];  /* tiles with a shorter piece, longest first */
  u32 page[ATTN_CUT_TILES];  /* that the step's tokens complete */
} cut_block;

NUM u32 sum_of_warp(u32 x) { return __reduce_add_sync(WARP_ALL, x); }

NUM void price(cut_block &b, const attn_cut_args &a, u32 tiles) {
  for (u32 choice = threadIdx.x / 32u; choice < ATTN_CUTS; choice += WARPS) {
    const u32 piece = attn_cut_piece(choice, a.group_chunks);
    attn_sum sum = {0, 0, 0, 0, 0, 0};
    for (u32 i = threadIdx.x % 32u; i < tiles && piece; i += 32u) attn_sum_add(&sum, &a, b.extent[i], piece);
    const attn_sum all = {sum_of_warp(sum.blocks), sum_of_warp(sum.full), sum_of_warp(sum.rests), sum_of_warp(sum.rest_blocks),
                          __reduce_max_sync(WARP_ALL, sum.rest_largest), sum_of_warp(sum.slots)};
    if (threadIdx.x % 32u == 0) {
      b.cost[choice] = attn_cut_cost(&a, all, piece);
      b.full_of[choice] = all.full;
      b.rests_of[choice] = all.rests;
    }
  }
}

/* The sums over all threads before this one. */
NUM void sums_before(cut_block &b, u32 (&x)[SUMS]) {
  const u32 warp = threadIdx.x / 32u, lane = threadIdx.x % 32u;
#pragma unroll
  for (u32 i = 0; i < SUMS; i++) {
    u32 end = x[i];
#pragma unroll
    for (u32 d = 1; d < 32; d *= 2) {
      const u32 other = __shfl_up_sync(WARP_ALL, end, d);
      end += lane >= d ? other : 0u;
    }
    if (lane == 31u) b.sums[i][warp] = end;
    x[i] = end - x[i];
  }
  __syncthreads();
  for (u32 w = 0; w < warp; w++)
#pragma unroll
    for (u32 i = 0; i < SUMS; i++) x[i] += b.sums[i][w];
}

/* The page that a tile's tokens complete, and that another sequence of the step may share therefore; or NO_PAGE. */
NUM u32 completed(const attn_cut_args &a, const attn_tile &t) {
  const u32 nth = t.position / PAGE_TOKENS;
  return nth != (t.position + t.count) / PAGE_TOKENS ? a.block_table[(u64)t.seq * a.block_table_stride + nth] : NO_PAGE;
}

/* One tile per thread: the numbers of its pieces, its units, and what mla_fold needs to know of its tokens. Returns the number of pages
 * listed. */
NUM u32 number(cut_block &b, const attn_cut_args &a, u32 tiles, u32 piece, attn_counts &counts) {
  const u32 i = threadIdx.x, page = i < tiles ? completed(a, b.tile[i]) : NO_PAGE;
  u32 pages = 0;
  attn_sum sum = {0, 0, 0, 0, 0, 0};
  if (i < tiles) attn_sum_add(&sum, &a, b.extent[i], piece);
  const u32 count = sum.slots ? b.tile[i].count : 0u, units = count ? sum.slots / count : 0u;
  u32 before[SUMS] = {sum.full, sum.rests, sum.slots, count, page != NO_PAGE};
  const u32 most = __reduce_max_sync(WARP_ALL, units);
  if (i % 32u == 0) b.most[i / 32u] = most;
  sums_before(b, before);
  b.first[i] = before[0];
  b.slot[i] = units ? before[2] : ATTN_WHOLE;
  b.key[i] = sum.rest_largest;
  if (page != NO_PAGE) b.page[before[4]] = page;
  for (u32 t = 0; t < count && blockIdx.x == 0; t++) a.parts[before[3] + t] = {b.tile[i].row + t, before[2] + t, count, units};
  for (u32 w = 0; w < WARPS; w++) {
    counts.parts += b.sums[3][w];
    pages += b.sums[4][w];
    counts.units_most = b.most[w] > counts.units_most ? b.most[w] : counts.units_most;
  }
  return pages;
}

/* Sorts the shorter pieces: each finds its own rank. */
NUM void sort_rests(cut_block &b, u32 tiles) {
  const u32 i = threadIdx.x, key = i < tiles ? b.key[i] : 0u;
  u32 place = 0;
  for (u32 j = 0; j < tiles && key; j++) place += b.key[j] > key || (b.key[j] == key && j < i);
  if (key) b.rest[place] = (u16)i;
}

NUM u32 early_blocks(const cut_block &b, const attn_cut_args &a, const attn_piece &p, u32 written_pages) {
  const u32 *pages = a.block_table + (u64)p.tile.seq * a.block_table_stride;
  const u32 whole = a.list_max || a.all_late ? 0u : p.tile.position / PAGE_TOKENS; /* before the tile's own tokens; lists are new */
  const u32 end = p.end_block < whole ? p.end_block : whole;
  u32 page[ATTN_EARLY], early = ATTN_EARLY;
#pragma unroll
  for (u32 i = 0; i < ATTN_EARLY; i++) page[i] = p.first_block + i < end ? pages[p.first_block + i] : NO_PAGE;
#pragma unroll
  for (u32 i = ATTN_EARLY; i-- > 0;) {
    bool written = page[i] == NO_PAGE;
    for (u32 j = 0; j < written_pages; j++) written = written || b.page[j] == page[i];
    if (written) early = i;
  }
  return early;
}

NUM attn_piece piece_of(const cut_block &b, const attn_cut_args &a, u32 tiles, u32 piece, u32 full, u32 nth) {
  const u32 blocks = a.chunk_tokens / PAGE_TOKENS;
  u32 index = 0, chunk;
  if (nth >= full) {
    index = b.rest[nth - full];
    chunk = b.extent[index].chunks / piece * piece;
  } else {
    for (u32 end = tiles; index + 1u < end;) { /* the last tile whose first number is not greater */
      const u32 middle = (index + end) / 2u;
      if (b.first[middle] <= nth) index = middle;
      else end = middle;
    }
    chunk = (nth - b.first[index]) * piece;
  }
  attn_piece p = {b.tile[index], chunk * blocks, b.extent[index].blocks, b.slot[index], 0};
  if (piece < b.extent[index].chunks - chunk) p.end_block = (chunk + piece) * blocks;
  return p;
}

/* With too many tiles none is split. */
NUM void list_tiles(const attn_cut_args &a, u32 tiles) {
  for (u32 i = blockIdx.x * SPEC_THREADS + threadIdx.x; i < tiles; i += gridDim.x * SPEC_THREADS)
    a.pieces[i] = attn_whole(a.tiles[i], a.list_max);
}

NUM attn_counts cut(cut_block &b, const attn_cut_args &a, u32 tiles) {
  attn_counts counts = {tiles, 0, ATTN_WHOLE, 0};
  if (tiles > ATTN_CUT_TILES) {
    list_tiles(a, tiles);
    return counts;
  }
  if (threadIdx.x < tiles) {
    b.tile[threadIdx.x] = a.tiles[threadIdx.x];
    b.extent[threadIdx.x] = attn_extent_of(&a, b.tile[threadIdx.x]);
  }
  __syncthreads();
  price(b, a, tiles);
  __syncthreads();
  u32 best = 0;
  for (u32 i = 1; i < ATTN_CUTS; i++) best = b.cost[i] <= b.cost[best] ? i : best;
  const u32 full = b.full_of[best];
  counts.piece_chunks = attn_cut_piece(best, a.group_chunks);
  counts.pieces = full + b.rests_of[best];
  const u32 pages = number(b, a, tiles, counts.piece_chunks, counts);
  __syncthreads();
  sort_rests(b, tiles);
  __syncthreads();
  for (u32 nth = blockIdx.x * SPEC_THREADS + threadIdx.x; nth < counts.pieces; nth += gridDim.x * SPEC_THREADS) {
    attn_piece p = piece_of(b, a, tiles, counts.piece_chunks, full, nth);
    p.early = early_blocks(b, a, p, pages);
    a.pieces[nth] = p;
  }
  return counts;
}

extern "C" __global__ __launch_bounds__(SPEC_THREADS) void attn_cut(const __grid_constant__ attn_cut_args a) {
  __shared__ cut_block b;
  const attn_counts counts = cut(b, a, a.step->tile_count);
  if (blockIdx.x == 0 && threadIdx.x == 0) *a.counts = counts;
  ptx_fence_all();
  __syncthreads(); /* all is written */
  ptx_grid_next();
  ptx_grid_wait();
}

/* attn_share.cuh - the cut of a step (attn_cut.h) as the blocks of mla_attn make it: each for itself, from the step's inputs alone.
 *
 * The warps price the choices side by side, and all threads list the pieces of the best one in shared memory. Pieces have numbers: those
 * of full length first, in the order of the tiles, then the shorter ones, longest first; each as often as there are groups of 64 heads.
 * Blocks take them forwards and backwards by turns, so that whoever has the longest of one round has the shortest of the next. Any number
 * of blocks will do. Reads nothing that another kernel of the step writes. Read next: mla_attn.cu, mla_decode.cuh. */
#ifndef VERBATIM_ATTN_SHARE_CUH
#define VERBATIM_ATTN_SHARE_CUH
#include "attn_cut.h"
#include "ptx.cuh"

#define SHARE_WARPS (SPEC_THREADS / 32u)
#define SHARE_EACH (ATTN_CUT_TILES / SPEC_THREADS) /* tiles that a thread sums */
static_assert(ATTN_CUT_TILES % SPEC_THREADS == 0, "");

typedef struct attn_share { /* in shared memory */
  u64 cost[ATTN_CUTS];
  u32 full_of[ATTN_CUTS], rests_of[ATTN_CUTS];
  u32 sums[3][SHARE_WARPS];
  u32 tiles, piece, full, rests; /* piece: chunks of a full one */
} attn_share;

typedef struct attn_lists { /* in shared memory too, where there is room; else pieces are looked for, and the shorter ones not in order */
  u32 first[ATTN_CUT_TILES]; /* number of the tile's first full piece       */
  u32 slot[ATTN_CUT_TILES];  /* of its first unit, in token results         */
  u32 key[ATTN_CUT_TILES];   /* blocks of its shorter piece; 0: none        */
  u16 rest[ATTN_CUT_TILES];  /* tiles with a shorter piece, longest first   */
} attn_lists;

/* What a block works on at a time: chunks of a tile, and of the heads a group of at most 64. */
typedef struct attn_piece {
  attn_tile tile;
  u32 head, heads;
  u32 chunk, chunk_end;
  u32 first_block, end_block;
  u32 cut;  /* chunks that make a unit at the start of a group, else one does; ATTN_WHOLE: not cut */
  u32 slot; /* of the tile's first unit */
} attn_piece;

NUM u32 share_sum(u32 x) {
#pragma unroll
  for (u32 d = 16; d > 0; d /= 2) x += __shfl_xor_sync(WARP_ALL, x, d);
  return x;
}

/* Until the pieces are listed, `lists` holds the tiles' extents. */
NUM void list_extent(attn_lists *lists, u32 i, attn_extent e) {
  lists->first[i] = e.chunks;
  lists->slot[i] = e.blocks * e.passes;
  lists->key[i] = e.count;
}
NUM attn_extent listed_extent(const attn_lists *lists, u32 i) { return {lists->first[i], lists->slot[i], lists->key[i], 1u}; }

NUM void share_price(attn_share *share, const attn_lists *lists, const mla_attn_args &a) {
  for (u32 choice = threadIdx.x / 32u; choice < ATTN_CUTS; choice += SHARE_WARPS) {
    const u32 piece = attn_cut_piece(choice, a.group_chunks);
    attn_sum sum = {0, 0, 0, 0, 0, 0};
    if (piece)
      for (u32 i = threadIdx.x % 32u; i < share->tiles; i += 32u)
        attn_sum_add(&sum, &a, lists ? listed_extent(lists, i) : attn_extent_of(&a, a.tiles[i]), piece);
    attn_sum all = {share_sum(sum.blocks), share_sum(sum.full), share_sum(sum.rests), share_sum(sum.rest_blocks), sum.rest_largest,
                    share_sum(sum.slots)};
#pragma unroll
    for (u32 d = 16; d > 0; d /= 2) {
      const u32 other = __shfl_xor_sync(WARP_ALL, all.rest_largest, d);
      all.rest_largest = other > all.rest_largest ? other : all.rest_largest;
    }
    if (threadIdx.x % 32u == 0) {
      share->cost[choice] = attn_cut_cost(&a, all, piece);
      share->full_of[choice] = all.full;
      share->rests_of[choice] = all.rests;
    }
  }
}

/* Numbers of the first full pieces, slots, and shorter pieces in the order of the tiles: sums over the tiles before. */
NUM void share_number(attn_share *share, attn_lists *lists, const mla_attn_args &a, u32 piece) {
  const u32 warp = threadIdx.x / 32u, lane = threadIdx.x % 32u, tile = threadIdx.x * SHARE_EACH;
  attn_sum sums[SHARE_EACH];
  u32 own[3] = {0, 0, 0}, before[3];
#pragma unroll
  for (u32 i = 0; i < SHARE_EACH; i++) {
    sums[i] = {0, 0, 0, 0, 0, 0};
    if (tile + i < share->tiles) attn_sum_add(&sums[i], &a, listed_extent(lists, tile + i), piece);
    own[0] += sums[i].full;
    own[1] += sums[i].slots;
    own[2] += sums[i].rests;
  }
#pragma unroll
  for (u32 i = 0; i < 3; i++) {
    u32 x = own[i];
#pragma unroll
    for (u32 d = 1; d < 32; d *= 2) {
      const u32 other = __shfl_up_sync(WARP_ALL, x, d);
      x += lane >= d ? other : 0u;
    }
    before[i] = x - own[i];
    if (lane == 31u) share->sums[i][warp] = x;
  }
  __syncthreads();
  for (u32 w = 0; w < warp; w++)
#pragma unroll
    for (u32 i = 0; i < 3; i++) before[i] += share->sums[i][w];
#pragma unroll
  for (u32 i = 0; i < SHARE_EACH; i++) {
    if (tile + i >= share->tiles) break;
    lists->first[tile + i] = before[0];
    lists->slot[tile + i] = before[1];
    lists->key[tile + i] = sums[i].rest_largest;
    if (sums[i].rests) lists->rest[before[2]] = (u16)(tile + i);
    before[0] += sums[i].full;
    before[1] += sums[i].slots;
    before[2] += sums[i].rests;
  }
}

/* The order of the shorter pieces: each finds its own place. */
NUM void share_sort(attn_lists *lists, u32 tiles) {
  for (u32 i = threadIdx.x; i < tiles; i += SPEC_THREADS) {
    const u32 key = lists->key[i];
    u32 place = 0;
    for (u32 j = 0; j < tiles; j++) {
      const u32 other = lists->key[j];
      place += other > key || (other == key && j < i);
    }
    if (key) lists->rest[place] = (u16)i;
  }
}

/* All threads of the block; on return all see the whole. lists: or null. */
NUM void share_make(attn_share *share, attn_lists *lists, const mla_attn_args &a) {
  const u32 tiles = a.step->tile_count;
  if (threadIdx.x == 0) {
    share->tiles = tiles;
    share->piece = ATTN_WHOLE;
    share->full = 0;
    share->rests = tiles;
  }
  __syncthreads();
  if (tiles > ATTN_CUT_TILES) return;
  for (u32 i = threadIdx.x; i < tiles && lists; i += SPEC_THREADS) list_extent(lists, i, attn_extent_of(&a, a.tiles[i]));
  if (lists) __syncthreads();
  share_price(share, lists, a);
  __syncthreads();
  u32 best = 0;
  for (u32 i = 1; i < ATTN_CUTS; i++) best = share->cost[i] <= share->cost[best] ? i : best;
  const u32 piece = attn_cut_piece(best, a.group_chunks);
  if (threadIdx.x == 0) {
    share->piece = piece;
    share->full = share->full_of[best];
    share->rests = share->rests_of[best];
  }
  if (lists) {
    share_number(share, lists, a, piece);
    __syncthreads();
    if ((share->full + share->rests) * ((a.heads + 63u) / 64u) > gridDim.x) share_sort(lists, tiles); /* else everyone has one */
  }
  __syncthreads();
}

/* The number of this block's piece of a round, or UINT32_MAX's like: not below share_count. */
NUM u32 share_nth(u32 round) { return round * gridDim.x + (round % 2u ? gridDim.x - 1u - blockIdx.x : blockIdx.x); }
NUM u32 share_count(const attn_share *share, const mla_attn_args &a) { return (share->full + share->rests) * ((a.heads + 63u) / 64u); }

typedef struct attn_found { u32 index, nth, slot; } attn_found; /* a tile, which of its pieces, its first slot */

/* Piece number nth, found by a warp that sums over the tiles before. */
NUM attn_found share_look(const attn_share *share, const mla_attn_args &a, u32 nth) {
  const bool of_full = nth < share->full;
  const u32 lane = threadIdx.x % 32u, wanted = of_full ? nth : nth - share->full;
  u32 pieces = 0, slots = 0; /* of the tiles before */
  for (u32 i = 0; i < share->tiles; i += 32u) {
    attn_sum sum = {0, 0, 0, 0, 0, 0};
    if (i + lane < share->tiles) attn_sum_add(&sum, &a, attn_extent_of(&a, a.tiles[i + lane]), share->piece);
    const u32 own = of_full ? sum.full : sum.rests;
    u32 own_end = own, slot_end = sum.slots;
#pragma unroll
    for (u32 d = 1; d < 32; d *= 2) {
      const u32 x = __shfl_up_sync(WARP_ALL, own_end, d), y = __shfl_up_sync(WARP_ALL, slot_end, d);
      own_end += lane >= d ? x : 0u;
      slot_end += lane >= d ? y : 0u;
    }
    const u32 before = pieces + own_end - own, hit = __ballot_sync(WARP_ALL, before <= wanted && wanted < before + own);
    if (hit) {
      const u32 from = (u32)__ffs((i32)hit) - 1u;
      const u32 own_nth = __shfl_sync(WARP_ALL, of_full ? wanted - before : sum.full, from);
      return {i + from, own_nth, slots + __shfl_sync(WARP_ALL, slot_end - sum.slots, from)};
    }
    pieces += __shfl_sync(WARP_ALL, own_end, 31);
    slots += __shfl_sync(WARP_ALL, slot_end, 31);
  }
  return {0, 0, 0}; /* not with a number below share_count */
}

NUM attn_found share_find(const attn_share *share, const attn_lists *lists, const mla_attn_args &a, u32 nth) {
  if (share->tiles > ATTN_CUT_TILES) return {nth, 0, 0};
  if (!lists) return share_look(share, a, nth);
  if (nth >= share->full) {
    const u32 index = lists->rest[nth - share->full];
    return {index, attn_extent_of(&a, a.tiles[index]).chunks / share->piece, lists->slot[index]};
  }
  u32 index = 0, end = share->tiles; /* the last tile whose first number is not above it */
  while (index + 1u < end) {
    const u32 middle = (index + end) / 2u;
    if (lists->first[middle] <= nth) index = middle;
    else end = middle;
  }
  return {index, nth - lists->first[index], lists->slot[index]};
}

/* Whole warps; lists as in share_make. */
NUM attn_piece share_piece(const attn_share *share, const attn_lists *lists, const mla_attn_args &a, u32 number) {
  const u32 groups = (a.heads + 63u) / 64u, blocks = a.chunk_tokens / PAGE_TOKENS;
  const attn_found found = share_find(share, lists, a, number / groups);
  attn_piece p;
  p.tile = a.tiles[found.index];
  p.head = number % groups * 64u;
  p.heads = a.heads - p.head < 64u ? a.heads - p.head : 64u;
  const attn_extent e = attn_extent_of(&a, p.tile);
  p.chunk = found.nth * share->piece;
  p.chunk_end = e.chunks - p.chunk < share->piece ? e.chunks : p.chunk + share->piece;
  p.first_block = p.chunk * blocks;
  p.end_block = p.chunk_end * blocks < e.blocks ? p.chunk_end * blocks : e.blocks;
  p.cut = e.chunks <= share->piece ? ATTN_WHOLE : share->piece;
  p.slot = found.slot;
  return p;
}

/* What mla_fold has to know of every token. One warp of one block, behind the wait for the kernels before. */
NUM void share_parts(const attn_share *share, const mla_attn_args &a) {
  u32 before = 0;
  for (u32 i = 0; i < share->tiles && a.parts; i += 32u) {
    const u32 lane = threadIdx.x % 32u;
    const bool exists = i + lane < share->tiles;
    const attn_tile tile = exists ? a.tiles[i + lane] : attn_tile{0, 0, 0, 0};
    const u32 units = exists ? attn_cut_units(attn_extent_of(&a, tile).chunks, share->piece, a.group_chunks) : 0u;
    u32 end = units * tile.count;
#pragma unroll
    for (u32 d = 1; d < 32; d *= 2) {
      const u32 x = __shfl_up_sync(WARP_ALL, end, d);
      end += lane >= d ? x : 0u;
    }
    for (u32 t = 0; t < tile.count; t++) a.parts[tile.row + t] = {before + end - units * tile.count + t, tile.count, units, share->piece};
    before += __shfl_sync(WARP_ALL, end, 31);
  }
}

#endif

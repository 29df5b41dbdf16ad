/* index/tiles.cuh - the tiles and pages that a block of `index_score` takes: a part of index_score.cu.
 *
 * Every block walks over the step's rows by itself, WINDOW at a time, and lists their tiles. A tile begins at a scored row that does not
 * continue the previous row, or whose position is a multiple of TILE; the choice of tiles changes no bit. A page of a tile costs the number
 * of groups of its tokens, which take turns at the tensor cores, and two at least: one group is bound by memory. The costs of all pages in
 * order are split into equal parts, and a page belongs to the block in whose part it begins. Reads the step's inputs only. */
#ifndef VERBATIM_INDEX_TILES_CUH
#define VERBATIM_INDEX_TILES_CUH
#include "ptx/ptx.cuh"
#include "ptx/reduce.cuh"

static_assert(SPEC_HEADS == 16 || SPEC_HEADS == 32 || SPEC_HEADS == 64, "whole tokens in 128 columns");
static_assert(SPEC_THREADS == 640, "four consumer warpgroups and a producer");

#define WARPGROUPS 4u /* consumers */
#define GROUP (128u / SPEC_HEADS) /* tokens of a warpgroup's MMA */
#define TILE (WARPGROUPS * GROUP)
#define WINDOW (WARPGROUPS * 128u)
static_assert(TILE <= 32, "a warp looks at this many rows after a window");

/* The tiles of a window. */
typedef struct index_list {
  u32 row[WINDOW], tokens[WINDOW]; /* of a tile: its first row, its size         */
  u32 end[WINDOW];                 /* cost of the window's tiles up to this one  */
  u32 count, cost;
  u32 joins[WINDOW / 32u + 1u]; /* bits: rows that belong to the tile of the previous row */
  u32 costs[WINDOW / 32u], starts[WINDOW / 32u]; /* of a warp's rows */
} index_list;

/* The block's part: costs begin .. end - 1 of the total. from: the cost of the earlier windows. */
typedef struct index_part {
  u32 begin, end, from;
} index_part;

/* The block's share of a tile: pages first .. end - 1. */
typedef struct index_share {
  u32 row, tokens;
  u32 groups;
  u32 first, end;
} index_share;

NUM u32 index_rows(const index_score_args &a) {
  const u32 tokens = a.step->token_count, rows = tokens > a.row_first ? tokens - a.row_first : 0u;
  return rows < a.row_count ? rows : a.row_count;
}

NUM u32 index_groups(u32 tokens) { return (tokens + GROUP - 1u) / GROUP; }
NUM u32 index_page_cost(u32 groups) { return groups > 2u ? groups : 2u; }

/* The start of a block's part: parts differ by 1 at most. */
NUM u32 index_begin(u32 total, u32 block) {
  const u32 more = total % gridDim.x;
  return total / gridDim.x * block + (block < more ? block : more);
}

/* Row i of the op; for the warp's rows, whether they join the tile of the previous row, or start one. */
typedef struct index_row {
  u32 row, position;
  u32 joining, starts; /* bits of the warp's rows */
} index_row;

NUM index_row index_row_of(const index_score_args &a, u32 rows, u32 i) {
  const u32 row = a.row_first + (i < rows ? i : 0u), before = i > 0 && i < rows ? row - 1u : row;
  const u32 position = a.position[row], position_before = a.position[before], seq = a.seq[row], seq_before = a.seq[before];
  const bool is_scored = i < rows && position >= a.topk;
  const bool goes_on = i > 0 && position_before == position - 1u && seq_before == seq;
  const bool joins = is_scored && goes_on && position > a.topk && position % TILE != 0;
  return {row, position, __ballot_sync(WARP_ALL, joins), __ballot_sync(WARP_ALL, is_scored && !joins)};
}

/* Lists the tiles of the rows from `first` on; by the consumer warpgroups, one row per thread. The rows after the window say where its last
 * tile ends. */
NUM void index_list_tiles(const index_score_args &a, u32 rows, u32 first, index_list &list) {
  const u32 warp = threadIdx.x / 32u, lane = threadIdx.x % 32u;
  const index_row r = index_row_of(a, rows, first + threadIdx.x);
  if (lane == 0) list.joins[warp] = r.joining;
  if (warp == 0) {
    const index_row following = index_row_of(a, rows, first + WINDOW + lane);
    if (lane == 0) list.joins[WINDOW / 32u] = following.joining;
  }
  ptx_warps_sync(1u, WINDOW);
  u32 cost = 0, tokens = 0;
  if (r.starts >> lane & 1u) {
    const u64 following = ((u64)list.joins[warp + 1u] << 32 | r.joining) >> (lane + 1u);
    tokens = (u32)__ffs((i32)~(u32)following);
    cost = index_page_cost(index_groups(tokens)) * ((r.position + tokens - 1u) / PAGE_TOKENS + 1u);
  }
  u32 end = reduce_prefix_warp(cost), number = (u32)__popc(r.starts & ((1u << lane) - 1u)), all = 0, count = 0;
  if (lane == 31u) {
    list.costs[warp] = end;
    list.starts[warp] = (u32)__popc(r.starts);
  }
  ptx_warps_sync(1u, WINDOW);
  for (u32 w = 0; w < WINDOW / 32u; w++) {
    end += w < warp ? list.costs[w] : 0u;
    number += w < warp ? list.starts[w] : 0u;
    all += list.costs[w];
    count += list.starts[w];
  }
  if (cost) {
    list.row[number] = r.row;
    list.tokens[number] = tokens;
    list.end[number] = end;
  }
  if (threadIdx.x == 0) {
    list.count = count;
    list.cost = all;
  }
}

/* Lists the window from `first` on and returns its cost; by all threads, the consumers of which make the list. */
NUM u32 index_window(const index_score_args &a, u32 rows, u32 first, index_list &list, bool lists) {
  __syncthreads(); /* all threads are done with the previous window */
  if (lists) index_list_tiles(a, rows, first, list);
  __syncthreads();
  return list.cost;
}

/* The first tile of the window that does not end before the block's part. By a whole warp. */
NUM u32 index_first(const index_list &list, const index_part &part) {
  const u32 lane = threadIdx.x % 32u, count = list.count;
  u32 before = 0;
  for (u32 i = 0; i < count; i += 32u)
    before += (u32)__popc(__ballot_sync(WARP_ALL, i + lane < count && part.from + list.end[i + lane] <= part.begin));
  return before;
}

/* Whether tile i of the window begins before the part ends; s: the block's share of it, perhaps empty. Uniform in the warp, as the compiler
 * can see. */
NUM bool index_share_of(const index_list &list, const index_part &part, u32 i, index_share &s) {
  if (i >= list.count) return false;
  const u32 begin = ptx_uniform(part.from + (i > 0 ? list.end[i - 1u] : 0u)), end = ptx_uniform(part.from + list.end[i]);
  s.row = ptx_uniform(list.row[i]);
  s.tokens = ptx_uniform(list.tokens[i]);
  s.groups = index_groups(s.tokens);
  const u32 each = index_page_cost(s.groups), upto = part.end < end ? part.end : end;
  s.first = part.begin > begin ? (part.begin - begin + each - 1u) / each : 0u;
  s.end = upto > begin ? (upto - begin + each - 1u) / each : 0u;
  return begin < part.end;
}

#endif

/* index/tiles.cuh - which tiles and pages a block of `index_score` takes. A part of index_score.cu.
 *
 * Every block goes over the step's rows by itself, WINDOW at a time, and lists their tiles. A tile begins at a row that is scored and does
 * not go on from the row before it, or whose position is a multiple of TILE; which tiles there are changes no bit. A page of a tile costs
 * as much as groups of its tokens take turns at the tensor cores, and two at least: one group is bound by memory. The costs of all pages in
 * a row are cut into equal parts, and a page belongs to the block in whose part it begins. Reads the step's inputs only. */
#ifndef VERBATIM_INDEX_TILES_CUH
#define VERBATIM_INDEX_TILES_CUH
#include "ptx/ptx.cuh"
#include "ptx/reduce.cuh"

static_assert(SPEC_HEADS == 16 || SPEC_HEADS == 32 || SPEC_HEADS == 64, "whole tokens in 128 columns");
static_assert(SPEC_THREADS == 640, "four warpgroups that multiply, and one that copies");

#define WARPGROUPS 4u /* that multiply */
#define GROUP (128u / SPEC_HEADS) /* tokens of a warpgroup's product */
#define TILE (WARPGROUPS * GROUP)
#define WINDOW (WARPGROUPS * 128u)
static_assert(TILE <= 32, "a warp looks at so many rows behind a window");

/* The tiles of a window. */
typedef struct index_list {
  u32 row[WINDOW], tokens[WINDOW]; /* of a tile: its first one, and how many     */
  u32 end[WINDOW];                 /* cost of the window's tiles up to this one  */
  u32 count, cost;
  u32 joins[WINDOW / 32u + 1u]; /* bits: rows that belong to the tile of the row before */
  u32 costs[WINDOW / 32u], starts[WINDOW / 32u]; /* of a warp's rows */
} index_list;

/* What the block takes: costs begin .. end - 1 of all. from: the cost of the windows before this one. */
typedef struct index_part {
  u32 begin, end, from;
} index_part;

/* Of a tile: pages first .. end - 1. */
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

/* Where the part of a block begins: parts differ by 1 at most. */
NUM u32 index_begin(u32 total, u32 block) {
  const u32 more = total % gridDim.x;
  return total / gridDim.x * block + (block < more ? block : more);
}

/* Of row i of the op and those of the warp's other lanes: whether it is scored, and belongs to the tile of the row before it. */
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

/* Lists the tiles of the rows from `first` on; by the warpgroups that multiply, a row a thread. The rows behind the window tell where its
 * last tile ends. */
NUM void index_list_tiles(const index_score_args &a, u32 rows, u32 first, index_list &list) {
  const u32 warp = threadIdx.x / 32u, lane = threadIdx.x % 32u;
  const index_row r = index_row_of(a, rows, first + threadIdx.x);
  if (lane == 0) list.joins[warp] = r.joining;
  if (warp == 0) {
    const index_row behind = index_row_of(a, rows, first + WINDOW + lane);
    if (lane == 0) list.joins[WINDOW / 32u] = behind.joining;
  }
  ptx_warps_sync(1u, WINDOW);
  u32 cost = 0, tokens = 0;
  if (r.starts >> lane & 1u) {
    const u64 behind = ((u64)list.joins[warp + 1u] << 32 | r.joining) >> (lane + 1u);
    tokens = (u32)__ffs((i32)~(u32)behind);
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

/* The window from `first` on in the list, and its cost; by all threads, of which those that multiply list it. */
NUM u32 index_window(const index_score_args &a, u32 rows, u32 first, index_list &list, bool lists) {
  __syncthreads(); /* all are through with the last window */
  if (lists) index_list_tiles(a, rows, first, list);
  __syncthreads();
  return list.cost;
}

/* The first tile of the window that does not end before the block's part; by a whole warp. */
NUM u32 index_first(const index_list &list, const index_part &part) {
  const u32 lane = threadIdx.x % 32u, count = list.count;
  u32 before = 0;
  for (u32 i = 0; i < count; i += 32u)
    before += (u32)__popc(__ballot_sync(WARP_ALL, i + lane < count && part.from + list.end[i + lane] <= part.begin));
  return before;
}

/* Whether tile i of the window begins before the part ends; what of it is the block's, which may be nothing. Known to the compiler to be
 * the same in the whole warp. */
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

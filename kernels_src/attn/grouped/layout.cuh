/* attn/grouped/layout.cuh - attn: sizes, the shared-memory layout, the CTA's work items.
 *
 * The operand rows of a tile are the (token, head) pairs of the heads that share one KV head, in token-major order. An item is a pass of
 * SPEC_ROWS of these rows over a piece (attn_cut) or, without pieces, over the tile's whole context. The producer publishes items, since
 * finding one takes two loads after another. Read next: attn/grouped/load.cuh. */
#ifndef VERBATIM_ATTN_GROUPED_LAYOUT_CUH
#define VERBATIM_ATTN_GROUPED_LAYOUT_CUH
#include "attn/pieces.cuh"

static_assert(SPEC_ROWS == 64 || SPEC_ROWS == 128, "a math warpgroup has 64 operand rows");
static_assert(SPEC_THREADS == (SPEC_ROWS == 128 ? 384 : CODES ? 256 : 160), "math warpgroups, and a warpgroup or a warp that loads");
static_assert(SPEC_KV_FORMAT == KV_BF16 || (SPEC_KV_FORMAT == KV_FP8 && SPEC_ROWS == 64), "one scale; registers to dequantize");
static_assert(SPEC_HEAD_DIM % 16 == 0 && SPEC_V_DIM % 16 == 0 && SPEC_HEAD_DIM <= 256 && SPEC_V_DIM <= 256, "steps of 16 columns");
static_assert(SPEC_MAPS == 1, "keys and values in bf16 are loaded by TMA");

#define GROUPS (SPEC_ROWS / 64u) /* math warpgroups */
#define FULL_ARRIVALS (CODES ? 4u : 1u) /* producer warps */
#define K_BOXES ((SPEC_HEAD_DIM + 63u) / 64u)
#define V_BOXES ((SPEC_V_DIM + 63u) / 64u)
#define K_STEPS (SPEC_HEAD_DIM / 16u)
#define BOX_BYTES 8192u
#define PAGES SPEC_PAGES /* of a stage: two if there are registers for their scores next to O and a chunk has an even number of pages */
#define K_BYTES (K_BOXES * PAGES * BOX_BYTES)
#define V_BYTES (V_BOXES * PAGES * BOX_BYTES)
#define OUTPUTS (SPEC_V_DIM / 2u) /* per thread: element 4 * j + 2 * h + e is row h, column 8 * j + e */
#define TOTAL_FLOATS (64u * (SPEC_V_DIM + 2u)) /* of a warpgroup: O, then m and l of each row */

/* A CTA's items by number: enough that none is overwritten before all warps have read it. Every one has a stage, or with passes every
 * second one. */
#define ITEMS (GROUPS == 2u ? 8u : 24u)
static_assert((SPEC_STAGES + 3u) * (3u - GROUPS) <= ITEMS, "items that are published ahead");

/* Shared memory, from a multiple of 1024: Q of the warpgroups, k and v of the stages, with SPEC_HELD the totals of the chunks so far, ones,
 * barriers of k and of v, items. */
#define AT_K (GROUPS * K_BOXES * BOX_BYTES)
#define AT_V (AT_K + SPEC_STAGES * K_BYTES)
#define AT_TOTAL (AT_V + SPEC_STAGES * V_BYTES)
#define AT_ONES (AT_TOTAL + (SPEC_HELD ? GROUPS * TOTAL_FLOATS * 4u : 0u))
#define K_FULL (AT_ONES + 256u)
#define K_EMPTY (K_FULL + SPEC_STAGES * 8u)
#define V_FULL (K_EMPTY + SPEC_STAGES * 8u)
#define V_EMPTY (V_FULL + SPEC_STAGES * 8u)
#define TAKEN (V_EMPTY + SPEC_STAGES * 8u) /* by item: it has been written to `items` */
#define SHARED_BYTES (AT_ONES + 1664u)
#define HALF_BYTES 113664u /* with at most this many, and static ones, two CTAs share a multiprocessor */
#define CTAS (GROUPS == 1u && SHARED_BYTES <= HALF_BYTES && (!CODES || SPEC_HEAD_DIM <= 128) ? 2 : 1)
static_assert(1024u + TAKEN + ITEMS * 8u <= SHARED_BYTES, "room for the alignment and the barriers");

/* Registers of a thread, where there are whole warpgroups to divide what the CTA was launched with: to ask for more would wait for ever. */
#if SPEC_ROWS == 128
#define LOAD_REGISTERS 24
#define MATH_REGISTERS 240
#elif SPEC_THREADS == 256 && CTAS == 2
#define LOAD_REGISTERS 112
#define MATH_REGISTERS 144
#endif

#ifdef LOAD_REGISTERS
static_assert(LOAD_REGISTERS + GROUPS * MATH_REGISTERS <= (65536u / (SPEC_THREADS * CTAS) / 8u * 8u) * SPEC_THREADS / 128u, "registers");
#endif

typedef struct item {
  attn_tile tile;
  u32 head;         /* KV head                                                                                           */
  u32 row, rows;    /* the first operand row of the pass among the tile's, and how many there are; rows 0: there is no item */
  u32 first, count; /* blocks of 64 tokens of the piece that the pass sees                                               */
  u32 chunks;       /* of the piece                                                                                      */
  u32 slot;         /* of the piece's first unit, or ATTN_WHOLE                                                          */
} item;

static __shared__ item items[ITEMS];

#include "attn/expanded.cuh"

/* Query heads that share a KV head. */
NUM u32 sharers(const attn_args &a) { return a.heads / a.kv_heads; }

/* Blocks from `first` to that of operand row `row` of the tile. */
NUM u32 blocks_to(const attn_args &a, const item &it, u32 row) {
  const u32 end = (it.tile.position + row / sharers(a)) / PAGE_TOKENS + 1u;
  return end > it.first ? end - it.first : 0u;
}

/* Where a CTA is in its work: the next piece's round, and the next pass's first row. */
typedef struct course {
  u32 round, row;
} course;

/* Whole tiles in reverse order: the last ones are the longest. */
NUM item next_item(const attn_args &a, course &at) {
  item it;
  it.rows = 0;
  const u32 listed = a.pieces ? a.counts->pieces : a.step->tile_count, number = work_nth(at.round, blockIdx.x, gridDim.x);
  if (number >= listed * a.kv_heads) return it;
  const u32 nth = number / a.kv_heads, blocks = a.chunk_tokens / PAGE_TOKENS;
  const attn_piece piece = a.pieces ? a.pieces[nth] : attn_whole(a.tiles[listed - 1u - nth], 0);
  const u32 rows = piece.tile.count * sharers(a), left = rows - at.row, most = piece.end_block - piece.first_block;
  it.tile = piece.tile;
  it.head = number % a.kv_heads;
  it.row = at.row;
  it.rows = left < SPEC_ROWS ? left : SPEC_ROWS;
  it.first = piece.first_block;
  const u32 seen = blocks_to(a, it, it.row + it.rows - 1u);
  it.count = seen < most ? seen : most;
  it.chunks = (most + blocks - 1u) / blocks;
  it.slot = piece.slot;
  if (it.slot != ATTN_WHOLE) it.slot += attn_unit_at(it.first / blocks, a.counts->piece_chunks, 1u) * it.tile.count;
  at.row += SPEC_ROWS;
  if (at.row < rows) return it;
  at.row = 0;
  at.round++;
  return it;
}

/* The producer's warp. */
NUM void publish(const item &it, u32 base, u32 number) {
  if (threadIdx.x % 32u == 0) {
    items[number % ITEMS] = it;
    ptx_barrier_arrive(base + TAKEN + number % ITEMS * 8u);
  }
  __syncwarp();
}

/* The CTA's item of that number, once it is there. It stays in shared memory: registers are scarce. */
NUM const item &item_at(u32 base, u32 number) {
  ptx_barrier_wait(base + TAKEN + number % ITEMS * 8u, number / ITEMS % 2u);
  return items[number % ITEMS];
}

#endif

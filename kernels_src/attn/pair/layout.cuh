/* attn/pair/layout.cuh - what the warpgroups of attn/pair/form.cuh share: sizes, places in shared memory, barriers, and the items that all
 * of them walk through in the same order. Must not know what is computed. */
#ifndef VERBATIM_PAIR_LAYOUT_CUH
#define VERBATIM_PAIR_LAYOUT_CUH
#include "attn/pieces.cuh"
#include "attn/scores.cuh"

static_assert(SPEC_THREADS == 512, "four warpgroups");
static_assert(SPEC_KV_LORA_RANK == 256 || SPEC_KV_LORA_RANK == 512, "a quarter of it is a width of ptx_multiply_across");
static_assert(SPEC_ROPE_DIM == 32 || SPEC_ROPE_DIM == 64, "");
static_assert(SPEC_PAIR == 2 && SPEC_MAPS == 1 && SPEC_ROWS == 64, "");

#define COPIED (GATHERED && !CODES) /* bf16 rows, by copies of threads: who multiplies them fences first */
#define ROPE_COPIED (SPEC_KV_FORMAT == KV_FP8_DS_MLA) /* the columns behind V of codes, in the same way */

#define COLUMNS (SPEC_KV_LORA_RANK + SPEC_ROPE_DIM)
#define BOXES ((COLUMNS + 63u) / 64u)     /* a block of 64 rows lies in boxes of 64 columns, [64][128 bytes] each, swizzled */
#define BOX_BYTES 8192u
#define HALF (SPEC_KV_LORA_RANK / 128u)   /* boxes of V that this block of the pair multiplies                              */
#define OTHERS (BOXES - HALF)             /* boxes that only S needs                                                        */
#define BOXES_EARLY (BOXES / 3u)          /* so many are given back first,                                                  */
#define BOXES_LATE (BOXES * 2u / 3u)      /* then up to these                                                               */
#define WIDTH (SPEC_KV_LORA_RANK / 4u)    /* output columns of a warpgroup                                                  */
#define WIDTH_BOXES (WIDTH / 64u)
#define OUTPUTS (WIDTH / 2u)              /* of a thread: element 4 * j + 2 * h + e is row h, column 8 * j + e              */

/* Shared memory, from a multiple of 1024. KV boxes: those only for S; those for S and O, of two blocks; those only for O. */
#define BASE 1024u /* this one: the system's share lies below. Known when compiled, for operands in registers of all threads alike */
#define AT_Q 0u
#define AT_OTHERS (AT_Q + BOXES * BOX_BYTES)
#define AT_BOTH (AT_OTHERS + OTHERS * BOX_BYTES)
#define AT_VALUES (AT_BOTH + 2u * HALF * BOX_BYTES)
#define AT_P (AT_VALUES + HALF * BOX_BYTES) /* P made here, and the other block's */
#define AT_MAX (AT_P + 2u * BOX_BYTES)      /* [2][64] m behind each P            */
#define AT_PASSED (AT_MAX + 512u)           /* [3][32][2] m of the block before, of rows r and r + 8 */
#define AT_ONES (AT_PASSED + 768u)
#define AT_BARRIERS (AT_ONES + 256u)
#define P_BYTES (BOX_BYTES + 256u)          /* P and its m, as they go to the other block */

/* Barriers: of boxes that have come, and that are free again; of P and m. */
#define OTHERS_COME 0u
#define BOTH_COME (OTHERS_COME + OTHERS)    /* [2][HALF] */
#define VALUES_COME (BOTH_COME + 2u * HALF)
#define OTHERS_FREE (VALUES_COME + HALF)
#define BOTH_FREE (OTHERS_FREE + OTHERS)    /* [2] of each warpgroup */
#define VALUES_FREE (BOTH_FREE + 4u)        /* of each warpgroup */
#define P_COME (VALUES_FREE + 2u)           /* made here, and the other block's */
#define P_FREE (P_COME + 2u)                /* made here */
#define M_COME (P_FREE + 1u)                /* [3] */
#define Q_FREE (M_COME + 3u)
#define ITEM_COME (Q_FREE + 1u)             /* [2] */
#define ITEM_FREE (ITEM_COME + 2u)          /* [2] of all that take items */
#define Q_COME (ITEM_FREE + 2u)             /* of gathered rows; else queries come with boxes of KV rows */
#define VALUES_GIVEN (Q_COME + 1u)          /* of codes: the other block has all values of a block */
#define BARRIERS (VALUES_GIVEN + 1u)
#define AT_ITEMS (AT_BARRIERS + BARRIERS * 8u) /* [2] */
#define AT_SUMS (AT_ITEMS + 2u * 48u)          /* [2][64] l */
#define AT_LIVE (AT_SUMS + 512u)               /* [2] of gathered rows: bit j: place j of the block weighed here holds a token */
static_assert(AT_LIVE + 16u + 512u <= ATTN_SHARED_BYTES(64u), "with what the base may lack to a multiple of 1024");

/* What a pair works on: a piece of attn/pieces.cuh. */
typedef struct item {
  attn_tile tile;    /* with lists position is the last place of its one token */
  u32 head, heads;   /* of this group; no heads: there is nothing left */
  u32 first, last;   /* blocks of 64 tokens                            */
  u32 prefix, slot;  /* chunks of a group's first unit; as of attn_piece */
  u32 position;      /* of the tile's first token                */
} item;

/* Positions of a thread's two rows of the operand, the row r and r + 8 of its warp's 16. -1: dead. */
typedef struct rows {
  i32 position[2];
} rows;

/* The block of the pair, and where its shared memory lies. */
typedef struct place {
  u32 base, rank;
  u8 *shared;
} place;

NUM u32 barrier_at(const place &p, u32 number) { return p.base + AT_BARRIERS + number * 8u; }
NUM void wait_for(const place &p, u32 number, u32 phase) { ptx_barrier_wait(barrier_at(p, number), phase & 1u); }
NUM void wait_free(const place &p, u32 number, u32 phase) { ptx_barrier_wait(barrier_at(p, number), (phase & 1u) ^ 1u); }

/* This pair's next item, of no heads where there is none; round: of all pairs, the first that has not been looked at. */
NUM item next_item(const mla_attn_args &a, u32 &round) {
  const u32 pairs = gridDim.x / 2u, pair = blockIdx.x / 2u, pieces = work_count(a);
  item it = {{0, 0, 0, 0}, 0, 0, 0, 0, 0, 0, 0};
  for (; round * pairs < pieces; ) {
    const u32 i = work_nth(round++, pair, pairs);
    if (i >= pieces) continue;
    const attn_work w = work_of(a, i);
    const u32 prefix = w.piece.slot == ATTN_WHOLE ? a.group_chunks : attn_prefix(a.counts->piece_chunks, a.group_chunks);
    it = {w.piece.tile, w.head, w.heads, w.piece.first_block, w.piece.end_block - 1u, prefix, w.piece.slot, w.piece.tile.position};
    if (SPEC_LISTS) it.tile.position = attn_last_place(it.tile, a.list_max);
    break;
  }
  return it;
}

/* One warp: the item for all that take items, number n. */
NUM void give_item(const place &p, u32 n, const item &it) {
  const u32 slot = n % 2u;
  wait_free(p, ITEM_FREE + slot, n / 2u);
  if (threadIdx.x % 32u == 0) {
    *(item *)(p.shared + AT_ITEMS + slot * 48u) = it;
    ptx_barrier_arrive(barrier_at(p, ITEM_COME + slot));
  }
  __syncwarp();
}

/* The next item, number n; alone: the only thread of its warp. */
NUM bool take_item(const place &p, u32 n, item &it, bool alone) {
  const u32 slot = n % 2u;
  wait_for(p, ITEM_COME + slot, n / 2u);
  it = *(const item *)(p.shared + AT_ITEMS + slot * 48u);
  if (!alone) __syncwarp();
  if (alone || threadIdx.x % 32u == 0) ptx_barrier_arrive(barrier_at(p, ITEM_FREE + slot));
  return it.heads != 0;
}

NUM u32 last_position(const item &it) { return it.tile.position + it.tile.count - 1u; }

/* First block of the item that this block of the pair weighs (other 0), or the other one does (other 1). */
NUM u32 first_of(const item &it, const place &p, u32 other) { return it.first + ((it.first ^ p.rank ^ other) & 1u); }

NUM u32 row_of(u32 h) { return threadIdx.x % 128u / 32u * 16u + threadIdx.x % 32u / 4u + 8u * h; }

NUM rows rows_of(const item &it) {
  rows r;
#pragma unroll
  for (u32 h = 0; h < 2; h++) {
    const u32 token = row_of(h) / it.heads;
    r.position[h] = token < it.tile.count ? (i32)(it.tile.position + token) : -1;
  }
  return r;
}

/* Token row * heads + head of a row, tokens counted from `first`: the tile's row, or its first unit's slot. */
NUM u64 pair_of(const mla_attn_args &a, const item &it, u32 first, u32 h) {
  return (u64)(first + row_of(h) / it.heads) * a.heads + it.head + row_of(h) % it.heads;
}

/* Whether box x of a block weighs and is multiplied here, and its number among its like. */
NUM bool is_both(const place &p, u32 x) { return x / HALF == p.rank; }
NUM u32 other_of(u32 x) { return x < HALF ? x : x - HALF; }

/* Where P lies that a thread makes, and those of the same number use: 16 words, four at a time. */
NUM u32 piece_of(u32 number) { return threadIdx.x % 128u / 32u * 2048u + number * 512u + threadIdx.x % 32u * 16u; }

#endif

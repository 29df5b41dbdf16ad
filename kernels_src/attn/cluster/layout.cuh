/* attn/cluster/layout.cuh - what the warpgroups of the cluster form share: sizes, the shared-memory layout, barriers, and the work items
 * that all of them walk in the same order. Must not know what is computed. Read next: attn/cluster/load.cuh. */
#ifndef VERBATIM_ATTN_CLUSTER_LAYOUT_CUH
#define VERBATIM_ATTN_CLUSTER_LAYOUT_CUH
#include "attn/pieces.cuh"
#include "attn/scores.cuh"

static_assert(SPEC_THREADS == 512, "four warpgroups");
static_assert(SPEC_KV_LORA_RANK == 256 || SPEC_KV_LORA_RANK == 512, "a quarter of it is a width of ptx_multiply_across");
static_assert(SPEC_ROPE_DIM == 32 || SPEC_ROPE_DIM == 64, "");
static_assert(SPEC_PAIR == 2 && SPEC_MAPS == 1 && SPEC_ROWS == 64, "");

#define COPIED (GATHERED && !CODES) /* bf16 rows copied by threads: their consumers fence first */
#define ROPE_COPIED (SPEC_KV_FORMAT == KV_FP8_DS_MLA) /* so are the rope columns of rows of codes */

#define COLUMNS (SPEC_KV_LORA_RANK + SPEC_ROPE_DIM)
#define BOXES ((COLUMNS + 63u) / 64u)   /* a KV block of 64 rows is boxes of 64 columns, [64][128 bytes] each, swizzled */
#define BOX_BYTES 8192u
#define HALF (SPEC_KV_LORA_RANK / 128u) /* boxes of V that this CTA multiplies */
#define KEYS (BOXES - HALF)             /* boxes that only S reads */
#define BOXES_EARLY (BOXES / 3u)        /* so many are released first, */
#define BOXES_LATE (BOXES * 2u / 3u)    /* then up to these */
#define WIDTH (SPEC_KV_LORA_RANK / 4u)  /* output columns of a value warpgroup */
#define WIDTH_BOXES (WIDTH / 64u)
#define OUTPUTS (WIDTH / 2u)            /* per thread: element 4 * j + 2 * h + e is row h, column 8 * j + e */

/* Shared memory. KV boxes: KEYS read by S only; BOTH read by S and O, two blocks of them; VALUES read by O only. */
#define BASE 1024u                          /* start of the layout, after the system's share; a constant, so that operand descriptors are */
#define AT_Q 0u
#define AT_KEYS (AT_Q + BOXES * BOX_BYTES)
#define AT_BOTH (AT_KEYS + KEYS * BOX_BYTES)
#define AT_VALUES (AT_BOTH + 2u * HALF * BOX_BYTES)
#define AT_P (AT_VALUES + HALF * BOX_BYTES) /* P of this CTA, P of the other */
#define AT_MAX (AT_P + 2u * BOX_BYTES)      /* [2][64] the m of each P */
#define AT_MAX_RECEIVED (AT_MAX + 512u)     /* [3][32][2] m received from the other CTA, of rows r and r + 8 */
#define AT_ONES (AT_MAX_RECEIVED + 768u)
#define AT_BARRIERS (AT_ONES + 256u)
#define P_BYTES (BOX_BYTES + 256u)          /* P and its m, as sent to the other CTA */

/* Barriers. */
#define KEYS_FULL 0u
#define BOTH_FULL (KEYS_FULL + KEYS)           /* [2][HALF] */
#define VALUES_FULL (BOTH_FULL + 2u * HALF)
#define KEYS_EMPTY (VALUES_FULL + HALF)
#define BOTH_EMPTY (KEYS_EMPTY + KEYS)         /* [2] per value warpgroup */
#define VALUES_EMPTY (BOTH_EMPTY + 4u)         /* per value warpgroup */
#define P_FULL (VALUES_EMPTY + 2u)             /* P of this CTA, P of the other */
#define P_EMPTY (P_FULL + 2u)                  /* P of this CTA */
#define M_FULL (P_EMPTY + 1u)                  /* [3] */
#define Q_EMPTY (M_FULL + 3u)
#define ITEM_FULL (Q_EMPTY + 1u)               /* [2] */
#define ITEM_EMPTY (ITEM_FULL + 2u)            /* [2] */
#define Q_FULL (ITEM_EMPTY + 2u)               /* gathered rows; else queries arrive with KV boxes */
#define VALUES_SENT (Q_FULL + 1u)              /* codes: the other CTA has all values of a block */
#define BARRIERS (VALUES_SENT + 1u)
#define AT_ITEMS (AT_BARRIERS + BARRIERS * 8u) /* [2] */
#define AT_SUMS (AT_ITEMS + 2u * 48u)          /* [2][64] l */
#define AT_VALID (AT_SUMS + 512u)              /* [2] gathered rows: bit j: entry j of the block scored here holds a token */
static_assert(AT_VALID + 16u + 512u <= ATTN_SHARED_BYTES(64u), "with the alignment of the base");

#include "attn/prologue.cuh"

/* The work item of a cluster: a piece of attn/pieces.cuh. */
typedef struct item {
  attn_tile tile;   /* with lists, position is the last entry's index */
  u32 head, heads;  /* of this group of heads; heads 0: no more work */
  u32 first, last;  /* blocks of 64 tokens */
  u32 prefix, slot; /* chunks in a group's first unit; slot as in attn_piece */
  u32 position;     /* of the tile's first token */
} item;

/* Positions of the thread's two operand rows, r and r + 8 of its warp's 16. -1: unused row. */
typedef struct query_rows {
  i32 position[2];
} query_rows;

/* This cluster's next item, with heads 0 if there is none; round: the first that has not been looked at. */
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

/* One warp publishes item number n to all that read items. */
NUM void publish_item(const cta &b, u32 n, const item &it) {
  const u32 slot = n % 2u;
  wait_empty(b, ITEM_EMPTY + slot, n / 2u);
  if (threadIdx.x % 32u == 0) {
    *(item *)(b.shared + AT_ITEMS + slot * 48u) = it;
    ptx_barrier_arrive(barrier_at(b, ITEM_FULL + slot));
  }
  __syncwarp();
}

/* Reads item number n; false: no more work. alone: the only thread of its warp. */
NUM bool read_item(const cta &b, u32 n, item &it, bool alone) {
  const u32 slot = n % 2u;
  wait_full(b, ITEM_FULL + slot, n / 2u);
  it = *(const item *)(b.shared + AT_ITEMS + slot * 48u);
  if (!alone) __syncwarp();
  if (alone || threadIdx.x % 32u == 0) ptx_barrier_arrive(barrier_at(b, ITEM_EMPTY + slot));
  return it.heads != 0;
}

NUM u32 last_position(const item &it) { return it.tile.position + it.tile.count - 1u; }

/* First block of the item that this CTA scores (other 0), or that the other CTA does (other 1). */
NUM u32 first_of(const item &it, const cta &b, u32 other) { return it.first + ((it.first ^ b.rank ^ other) & 1u); }

NUM u32 row_of(u32 h) { return threadIdx.x % 128u / 32u * 16u + threadIdx.x % 32u / 4u + 8u * h; }

NUM query_rows query_rows_of(const item &it) {
  query_rows r;
#pragma unroll
  for (u32 h = 0; h < 2; h++) {
    const u32 token = row_of(h) / it.heads;
    r.position[h] = token < it.tile.count ? (i32)(it.tile.position + token) : -1;
  }
  return r;
}

/* Index token * heads + head of a row, tokens counted from `first`: the tile's row, or the slot of its first unit. */
NUM u64 query_of(const mla_attn_args &a, const item &it, u32 first, u32 h) {
  return (u64)(first + row_of(h) / it.heads) * a.heads + it.head + row_of(h) % it.heads;
}

/* Whether box x of a block is read by S and O here; the number of a box that only S reads. */
NUM bool is_both(const cta &b, u32 x) { return x / HALF == b.rank; }
NUM u32 key_box(u32 x) { return x < HALF ? x : x - HALF; }

/* Offset of four of the 16 words of P that a thread makes, and the thread of the same number reads. */
NUM u32 piece_of(u32 number) { return threadIdx.x % 128u / 32u * 2048u + number * 512u + threadIdx.x % 32u * 16u; }

#endif

/* attn/pingpong/layout.cuh - what the warpgroups of the pingpong form share: sizes, the shared-memory layout, barriers, and the tokens
 * that all of them walk in the same order. Must not know what is computed. Read next: attn/pingpong/load.cuh. */
#ifndef VERBATIM_ATTN_PINGPONG_LAYOUT_CUH
#define VERBATIM_ATTN_PINGPONG_LAYOUT_CUH
#include "attn/pieces.cuh"
#include "attn/scores.cuh"

static_assert(SPEC_THREADS == ATTN_TURN_THREADS(SPEC_KV_FORMAT), "");
static_assert(SPEC_KV_LORA_RANK == 512 && SPEC_ROPE_DIM == 64 && SPEC_ROWS == 64 && SPEC_MAPS == 1 && SPEC_LISTS == 1, "");

#define BOXES 9u      /* a KV block of 64 rows is boxes of 64 columns, [64][128 bytes] each, swizzled */
#define BOX_BYTES 8192u
#define ROPE_BOX 8u   /* the rope columns; after S, P of the block takes its place */
#define BOX_GROUPS 5u /* boxes arrive and are released two at a time, the rope box alone */
#define HALF 4u       /* boxes of V that a warpgroup multiplies */

/* Shared memory: queries, two KV blocks, small things. */
#define BASE 1024u                /* start of the layout, after the system's share; a constant, so that operand descriptors are */
#define AT_Q 0u
#define AT_ROWS (BOXES * BOX_BYTES)
#define AT_ONES (3u * BOXES * BOX_BYTES)
#define AT_MAX (AT_ONES + 256u)   /* [2][64] the m of each P */
#define AT_SUMS (AT_MAX + 512u)   /* [2][64] l */
#define AT_VALID (AT_SUMS + 512u) /* [2] bit j: entry j of the block holds a token */
#define AT_BARRIERS (AT_VALID + 16u)

/* Barriers of the two KV blocks: groups of boxes; P; m of the even block, which is sent before P over bf16 rows. */
#define FULL 0u                  /* [2][BOX_GROUPS] */
#define EMPTY (FULL + 2u * BOX_GROUPS)
#define P_FULL (EMPTY + 2u * BOX_GROUPS)
#define M_FULL (P_FULL + 2u)
#define Q_FULL (M_FULL + 1u)
#define Q_EMPTY (Q_FULL + 1u)
#define BARRIERS (Q_EMPTY + 1u)
static_assert(BASE + AT_BARRIERS + BARRIERS * 8u <= ATTN_SHARED_BYTES(64u), "");

#include "attn/prologue.cuh"

NUM u32 box_at(u32 set, u32 x) { return AT_ROWS + (set * BOXES + x) * BOX_BYTES; }
/* One thread of a warp releases what the warp has read. Codes are written by both CTAs of the cluster, so both are notified. */
NUM void release(const cta &b, u32 number) {
  ptx_barrier_arrive(barrier_at(b, number));
  if (CODES) ptx_barrier_arrive_peer(ptx_peer(barrier_at(b, number), b.rank ^ 1u));
}

/* A token of the cluster. The number of blocks is even: entries after the list's end hold no token. */
typedef struct token {
  u32 row, seq, position, blocks; /* of its tile; blocks of 64 entries */
} token;

/* Token number n of this cluster; false: there are no more. Tiles in reverse order: the last ones are the longest. */
NUM bool find_token(const mla_attn_args &a, u32 n, token &t) {
  const u32 clusters = gridDim.x / 2u, count = a.step->tile_count, nth = work_nth(n, blockIdx.x / 2u, clusters);
  if (nth >= count) return false; /* and none after it */
  const attn_tile tile = a.tiles[count - 1u - nth];
  t = {tile.row, tile.seq, tile.position, (attn_last_place(tile, a.list_max) / PAGE_TOKENS + 2u) / 2u * 2u};
  return true;
}

/* Offset of the thread's 16 words of P, 16 bytes in each of four times 512, and of m of its rows. */
NUM u32 probs_at() { return threadIdx.x % 128u / 32u * 2048u + threadIdx.x % 32u * 16u; }
NUM u32 max_at() { return threadIdx.x % 128u / 4u * 8u; }

/* Head of the thread's row h among the CTA's 64: row r and r + 8 of its warp's 16. */
NUM u32 head_of(u32 h) { return threadIdx.x % 128u / 32u * 16u + threadIdx.x % 32u / 4u + 8u * h; }

#endif

/* attn/turn/layout.cuh - what the warpgroups of attn/turn/form.cuh share: sizes, places in shared memory, barriers, and the tokens that all
 * of them walk through in the same order. Must not know what is computed. */
#ifndef VERBATIM_TURN_LAYOUT_CUH
#define VERBATIM_TURN_LAYOUT_CUH
#include "attn/pieces.cuh"
#include "attn/scores.cuh"

static_assert(SPEC_THREADS == ATTN_TURN_THREADS(SPEC_KV_FORMAT), "");
static_assert(SPEC_KV_LORA_RANK == 512 && SPEC_ROPE_DIM == 64 && SPEC_ROWS == 64 && SPEC_MAPS == 1 && SPEC_LISTS == 1, "");

#define BOXES 9u                 /* a block of 64 rows lies in boxes of 64 columns, [64][128 bytes] each, swizzled */
#define BOX_BYTES 8192u
#define ROPE_BOX 8u              /* the columns behind V; when S is made P of the block takes its place           */
#define GROUPS 5u                /* boxes come and are free two at a time, the last one alone                     */
#define HALF 4u                  /* boxes of V that a warpgroup multiplies                                        */

/* Shared memory, from a multiple of 1024: queries, two blocks of KV rows, small things. */
#define BASE 1024u               /* this one: the system's share lies below. Known when compiled, for operands in registers of all alike */
#define AT_Q 0u
#define AT_ROWS (BOXES * BOX_BYTES)
#define AT_ONES (3u * BOXES * BOX_BYTES)
#define AT_MAX (AT_ONES + 256u)  /* [2][64] m behind each P */
#define AT_SUMS (AT_MAX + 512u)  /* [2][64] l               */
#define AT_LIVE (AT_SUMS + 512u) /* [2] bit j: place j of the block holds a token */
#define AT_BARRIERS (AT_LIVE + 16u)

/* Barriers, of each of the two blocks of KV rows: groups of boxes that have come, and that are free
 * again; P; m of the first one, which goes ahead of P of bf16 rows. */
#define COME 0u                  /* [2][GROUPS] */
#define FREE (COME + 2u * GROUPS)
#define P_COME (FREE + 2u * GROUPS)
#define M_COME (P_COME + 2u)
#define Q_COME (M_COME + 1u)
#define Q_FREE (Q_COME + 1u)
#define BARRIERS (Q_FREE + 1u)
static_assert(BASE + AT_BARRIERS + BARRIERS * 8u <= ATTN_SHARED_BYTES(64u), "");

/* The block of the cluster, which is the number of its 64 heads, and where its shared memory lies. */
typedef struct place {
  u32 base, rank;
  u8 *shared;
} place;

NUM u32 box_at(u32 set, u32 x) { return AT_ROWS + (set * BOXES + x) * BOX_BYTES; }
NUM u32 barrier_at(const place &p, u32 number) { return p.base + AT_BARRIERS + number * 8u; }
NUM void wait_for(const place &p, u32 number, u32 phase) { ptx_barrier_wait(barrier_at(p, number), phase & 1u); }
NUM void wait_free(const place &p, u32 number, u32 phase) { ptx_barrier_wait(barrier_at(p, number), (phase & 1u) ^ 1u); }

/* What the warp's rows are is whole. */
NUM void give(const place &p, u32 number) {
  __syncwarp();
  if (threadIdx.x % 32u == 0) ptx_barrier_arrive(barrier_at(p, number));
}

/* One thread of a warp: what it has used may be overwritten. Codes are given to both blocks of the cluster by each. */
NUM void give_free(const place &p, u32 number) {
  ptx_barrier_arrive(barrier_at(p, number));
  if (CODES) ptx_barrier_arrive_peer(ptx_peer(barrier_at(p, number), p.rank ^ 1u));
}

/* A token that the cluster works on. Numbers of blocks are even: places behind the list hold no token. */
typedef struct token {
  u32 row, seq, position, blocks; /* of its tile; of 64 places */
} token;

/* Number n of those of this cluster; false: there are no more. The last tiles come first: they are the longest. */
NUM bool take_token(const mla_attn_args &a, u32 n, token &t) {
  const u32 clusters = gridDim.x / 2u, count = a.step->tile_count, nth = work_nth(n, blockIdx.x / 2u, clusters);
  if (nth >= count) return false; /* and none behind it */
  const attn_tile tile = a.tiles[count - 1u - nth];
  t = {tile.row, tile.seq, tile.position, (attn_last_place(tile, a.list_max) / PAGE_TOKENS + 2u) / 2u * 2u};
  return true;
}

/* Where the thread's 16 words of P lie, 16 bytes each of four times 512, and m of its rows. */
NUM u32 weights_at() { return threadIdx.x % 128u / 32u * 2048u + threadIdx.x % 32u * 16u; }
NUM u32 maxima_at() { return threadIdx.x % 128u / 4u * 8u; }

/* Head of a thread's row h among the block's 64: row r and r + 8 of its warp's 16. */
NUM u32 head_of(u32 h) { return threadIdx.x % 128u / 32u * 16u + threadIdx.x % 32u / 4u + 8u * h; }

#endif

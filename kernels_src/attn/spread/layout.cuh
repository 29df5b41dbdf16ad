/* attn/spread/layout.cuh - what the warpgroups of attn/spread/form.cuh share: sizes, places in shared memory and in `scratch`, barriers,
 * tokens, and where the blocks of a token meet. Must not know what is computed. */
#ifndef VERBATIM_SPREAD_LAYOUT_CUH
#define VERBATIM_SPREAD_LAYOUT_CUH
#include "attn/pieces.cuh"
#include "attn/scores.cuh"

static_assert(SPEC_THREADS == 512, "four warpgroups");
static_assert(SPEC_KV_LORA_RANK == 512 && SPEC_ROPE_DIM == 64 && SPEC_ROWS == 64 && SPEC_MAPS == 1 && SPEC_LISTS == 1, "");
static_assert(SPEC_SPREAD == 8 || SPEC_SPREAD == 16 || SPEC_SPREAD == 32, "");

#define SHARERS SPEC_SPREAD                     /* blocks of a token */
#define OWN (ATTN_SPREAD_PLACES / 64u / SHARERS) /* of 32 blocks of places each weighs so many */
#define APART (SHARERS == 32u)                  /* second half: 64 heads, by the first warpgroup; else 64 heads each */
#define SLICE (APART ? 32u : 512u / SHARERS)    /* columns of V multiplied here */
#define SLICES (512u / SLICE)
#define OUTPUTS (SLICE / 2u + 4u)               /* of a thread, with l in the last four */

#define BOXES 9u          /* queries of 64 heads, or 64 KV rows, lie in boxes of 64 columns, [64][128 bytes] each, swizzled */
#define BOX_BYTES 8192u
#define ROPE_BOX 8u       /* the columns behind V */
#define GROUPS 5u         /* boxes come and are free two at a time, the last one alone */
#define P_BYTES 8192u     /* P of a block of places for 64 heads, in fragment order */
#define TOPS_BYTES 512u   /* the scores' maxima of a block of places for 128 heads */
#define STAGE_P (APART ? P_BYTES : 2u * P_BYTES)
#define STAGE_BYTES (2u * (BOX_BYTES + STAGE_P)) /* V of two blocks of places, then P of them */
#define STAGES 4u

/* Shared memory, from a multiple of 1024. First half: queries of 128 heads, a block of KV rows; second: stages, tops of all blocks */
#define BASE 1024u        /* this one: the system's share lies below. Known when compiled, for operands in registers of all alike */
#define AT_Q 0u
#define AT_STAGES 0u
#define AT_K (2u * BOXES * BOX_BYTES)
#define AT_TOPS (STAGES * STAGE_BYTES) /* [32][128] */
#define AT_ROWS (3u * BOXES * BOX_BYTES) /* [2048] rows of all pages */
#define AT_LIVE (AT_ROWS + 4u * ATTN_SPREAD_PLACES) /* bit j: place j holds a token */
#define AT_ONES (AT_LIVE + ATTN_SPREAD_PLACES / 8u)
#define AT_RISES (AT_ONES + 256u) /* [2][4] of a warp, as find_rises makes them */
#define AT_BARRIERS (AT_RISES + 32u)
static_assert(AT_TOPS + ATTN_SPREAD_PLACES / 64u * TOPS_BYTES <= AT_ROWS, "");

/* Barriers: groups of boxes of KV rows and stages that have come, and that are free again. */
#define K_COME 0u
#define K_FREE (K_COME + GROUPS)
#define V_COME (K_FREE + GROUPS)
#define V_FREE (V_COME + STAGES)
#define S_DONE (V_FREE + STAGES) /* stages may be filled */
#define P_COME (S_DONE + 1u)     /* P of all blocks lies in memory */
#define Q_COME (P_COME + 1u)
#define BARRIERS (Q_COME + 1u)
static_assert(BASE + AT_BARRIERS + BARRIERS * 8u <= ATTN_SHARED_BYTES(64u), "");

/* The block's number among those of its token, and where its shared memory lies. */
typedef struct place {
  u32 rank;
  u8 *shared; /* at BASE */
} place;

NUM u32 barrier_at(u32 number) { return BASE + AT_BARRIERS + number * 8u; }
NUM void wait_for(u32 number, u32 phase) { ptx_barrier_wait(barrier_at(number), phase & 1u); }
NUM void wait_free(u32 number, u32 phase) { ptx_barrier_wait(barrier_at(number), (phase & 1u) ^ 1u); }
NUM void give(u32 number) { /* by each warp */
  if (threadIdx.x % 32u == 0) ptx_barrier_arrive(barrier_at(number));
}

typedef struct token {
  u32 row, seq, position, blocks; /* of its tile; of 64 places */
} token;

/* Number n of those of these blocks; false: there are no more. The last tiles come first: they are the longest. */
NUM bool take_token(const mla_attn_args &a, u32 n, token &t) {
  const u32 count = a.step->tile_count, nth = work_nth(n, blockIdx.x / SHARERS, gridDim.x / SHARERS);
  if (nth >= count) return false; /* and none behind it */
  const attn_tile tile = a.tiles[count - 1u - nth];
  t = {tile.row, tile.seq, tile.position, attn_last_place(tile, a.list_max) / PAGE_TOKENS + 1u};
  return true;
}

/* All threads: the token before number n is done, and copies may take the place of what was read and written. */
NUM void begin_token(u32 n) {
  if (n == 0) return;
  ptx_fence_async();
  __syncthreads();
}

/* Whether this block weighs places of the token: void ones, too, where so many scores stay in registers only if no branch leads around. */
NUM bool weighs(const place &p, const token &t) { return OWN > 2u || p.rank * OWN < t.blocks; }

/* The number of block i of places that is weighed here for token number n; k: how many were before. Where all tokens have as many n tells,
 * and saves a register. */
NUM u32 own_nth(u32 n, u32 k, u32 i) { return OWN > 2u ? n * OWN + i : k + i; }

/* In `scratch`, of the blocks of this token: the tops of all blocks of places, then their P. */
NUM f32 *tops_of(const mla_attn_args &a) { return a.scratch + (u64)(blockIdx.x / SHARERS) * attn_spread_floats(&a); }
NUM u8 *weights_of(const mla_attn_args &a, u32 block) {
  return (u8 *)tops_of(a) + (a.list_max + PAGE_TOKENS - 1u) / PAGE_TOKENS * TOPS_BYTES + block * (2u * P_BYTES);
}

/* Of a thread: its rows' tops among those of a block of places, its 16 bytes of P in each of four times 512, its heads among 64. */
NUM u32 tops_at(u32 block, u32 group) { return block * TOPS_BYTES + group * 256u + threadIdx.x % 128u / 4u * 8u; }
NUM u32 weights_at() { return threadIdx.x % 128u / 32u * 2048u + threadIdx.x % 32u * 16u; }
NUM u32 head_of(u32 h) { return threadIdx.x % 128u / 32u * 16u + threadIdx.x % 32u / 4u + 8u * h; }

/* All that multiply; then one thread of every block of the token; then all: what any of them wrote before can be read. */
NUM void meet(const mla_attn_args &a, u32 which) {
  ptx_warps_sync(1, 256);
  if (threadIdx.x == 0) ptx_meet(a.meetings + (blockIdx.x / SHARERS * 2u + which) * 32u, ATTN_SPREAD_MOST / SHARERS, ATTN_SPREAD_MOST);
  ptx_warps_sync(1, 256);
}

#endif

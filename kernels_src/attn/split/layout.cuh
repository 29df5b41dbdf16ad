/* attn/split/layout.cuh - what the warpgroups of the split form share: sizes, the layouts of shared memory and of `scratch`, barriers,
 * tokens, and the grid barrier. Must not know what is computed. Read next: attn/split/load.cuh. */
#ifndef VERBATIM_ATTN_SPLIT_LAYOUT_CUH
#define VERBATIM_ATTN_SPLIT_LAYOUT_CUH
#include "attn/pieces.cuh"
#include "attn/scores.cuh"

static_assert(SPEC_THREADS == 512, "four warpgroups");
static_assert(SPEC_KV_LORA_RANK == 512 && SPEC_ROPE_DIM == 64 && SPEC_ROWS == 64 && SPEC_MAPS == 1 && SPEC_LISTS == 1, "");
static_assert(SPEC_SPREAD == 8 || SPEC_SPREAD == 16 || SPEC_SPREAD == 32, "");

#ifndef SPEC_GROUPS
#define SPEC_GROUPS 2u
#endif
#define GROUPS SPEC_GROUPS /* of 64 heads */
static_assert(GROUPS == 1 || GROUPS == 2, "");
#define SPLITS SPEC_SPREAD                                /* CTAs per token */
#define OWN (ATTN_SPREAD_PLACES / 64u / SPLITS)           /* of 32 blocks of entries, those scored by one CTA */
#define SHARERS (3u - GROUPS)                             /* warpgroups with the same heads: they take blocks in turn, then columns */
#define HELD ((OWN + SHARERS - 1u) / SHARERS)             /* blocks scored by a warpgroup */
#define HEADS_APART (GROUPS == 2u && SPLITS == 32u)       /* second half: 64 of 128 heads here, by warpgroup 0 */
#define SLICE (HEADS_APART ? 32u : 512u / SPLITS)         /* columns of V of this CTA */
#define SLICES (512u / SLICE)
#define COLUMNS (SLICE / SHARERS)                         /* of a warpgroup */
#define OUTPUTS (COLUMNS / 2u + 4u)                       /* per thread, with l in the last four */
#define ONES_NEXT ((COLUMNS + 8u) * SHARERS <= 64u)       /* each warpgroup's columns have eight columns of ones next to them */
#define COLUMNS_APART (COLUMNS + (ONES_NEXT ? 8u : 0u))   /* from a warpgroup's first column in shared memory to the next one's */

#define BOXES 9u          /* queries of 64 heads, or 64 KV rows, are boxes of 64 columns, [64][128 bytes] each, swizzled */
#define BOX_BYTES 8192u
#define ROPE_BOX 8u       /* the rope columns */
#define BOX_GROUPS 5u     /* boxes arrive and are released two at a time, the rope box alone */
#define P_BYTES 8192u     /* P of a block of entries for 64 heads, in fragment order */
#define MAXIMA_BYTES (GROUPS * 256u) /* the row maxima of a block of entries for all heads */
#define STAGE_P (HEADS_APART ? P_BYTES : GROUPS * P_BYTES)
#define STAGE_BYTES (2u * (BOX_BYTES + STAGE_P)) /* V of two blocks of entries, then their P */
#define STAGES (GROUPS == 1u ? 6u : 4u)
#define KEYS (HELD < OWN ? 2u : 1u) /* KV blocks in shared memory, one for each warpgroup that takes blocks in turn */

/* Shared memory. First half: queries of all heads, KV blocks; second half: stages, maxima of all blocks. */
#define BASE 1024u        /* start of the layout, after the system's share; a constant, so that operand descriptors are */
#define AT_Q 0u
#define AT_STAGES 0u
#define AT_K (GROUPS * BOXES * BOX_BYTES)
#define AT_MAXIMA (STAGES * STAGE_BYTES) /* [32][64 * GROUPS] */
#define AT_ROWS (3u * BOXES * BOX_BYTES) /* [2048] rows in the cache, by entry */
static_assert(GROUPS + KEYS <= 3u, "");
#define AT_VALID (AT_ROWS + 4u * ATTN_SPREAD_PLACES) /* bit j: entry j holds a token */
#define AT_ONES (AT_VALID + ATTN_SPREAD_PLACES / 8u)
#define AT_RISES (AT_ONES + 256u) /* [2][4] per warp, by find_rises */
#define AT_BARRIERS (AT_RISES + 32u)
static_assert(AT_MAXIMA + ATTN_SPREAD_PLACES / 64u * MAXIMA_BYTES <= AT_ROWS, "");

/* Barriers: box groups of KV blocks, stages of values. */
#define K_FULL 0u
#define K_EMPTY (K_FULL + KEYS * BOX_GROUPS)
#define V_FULL (K_EMPTY + KEYS * BOX_GROUPS)
#define V_EMPTY (V_FULL + STAGES)
#define S_DONE (V_EMPTY + STAGES) /* scores are done: stages may be filled */
#define P_FULL (S_DONE + 1u)      /* P of all blocks is in memory */
#define Q_FULL (P_FULL + 1u)
#define BARRIERS (Q_FULL + 1u)
static_assert(BASE + AT_BARRIERS + BARRIERS * 8u <= ATTN_SHARED_BYTES(64u), "");

#include "attn/prologue.cuh"

typedef struct token {
  u32 row, seq, position, blocks; /* of its tile; blocks of 64 entries */
} token;

/* Token number n of these CTAs; false: there are no more. Tiles in reverse order: the last ones are the longest. */
NUM bool find_token(const mla_attn_args &a, u32 n, token &t) {
  const u32 count = a.step->tile_count, nth = work_nth(n, blockIdx.x / SPLITS, gridDim.x / SPLITS);
  if (nth >= count) return false; /* and none after it */
  const attn_tile tile = a.tiles[count - 1u - nth];
  t = {tile.row, tile.seq, tile.position, attn_last_place(tile, a.list_max) / PAGE_TOKENS + 1u};
  return true;
}

/* All threads: the token before number n is done, and copies may overwrite what was read and written. */
NUM void begin_token(u32 n) {
  if (n == 0) return;
  ptx_fence_async();
  __syncthreads();
}

/* Whether this CTA scores entries of the token. Invalid ones, too, with many blocks: a branch around them costs registers. */
NUM bool has_scores(const cta &b, const token &t) { return OWN > 2u || b.rank * OWN < t.blocks; }

/* The group of heads of a computing warpgroup's scores. */
NUM u32 heads_of(u32 group) { return GROUPS == 1u ? 0u : group; }

/* Number of block i scored here for token n; k: how many there were before. If all tokens have the same number, n gives k, which saves a
 * register. */
NUM u32 block_count(u32 n, u32 k, u32 i) { return OWN > 2u ? n * OWN + i : k + i; }

/* In `scratch`, for the CTAs of this token: the maxima of all blocks, then their P. */
NUM f32 *maxima_of(const mla_attn_args &a) { return a.scratch + (u64)(blockIdx.x / SPLITS) * attn_spread_floats(&a); }
NUM u8 *probs_of(const mla_attn_args &a, u32 block) {
  return (u8 *)maxima_of(a) + (a.list_max + PAGE_TOKENS - 1u) / PAGE_TOKENS * MAXIMA_BYTES + block * (GROUPS * P_BYTES);
}

/* Of a thread: offset of its rows' maxima in those of a block, of its 16 bytes of P in each of four times 512; its head h among 64. */
NUM u32 maxima_at(u32 block, u32 heads) { return block * MAXIMA_BYTES + heads * 256u + threadIdx.x % 128u / 4u * 8u; }
NUM u32 probs_at() { return threadIdx.x % 128u / 32u * 2048u + threadIdx.x % 32u * 16u; }
NUM u32 head_of(u32 h) { return threadIdx.x % 128u / 32u * 16u + threadIdx.x % 32u / 4u + 8u * h; }

/* The grid barrier of a token's CTAs: by all threads that compute. What any of them wrote before can be read after. */
NUM void sync_token(const mla_attn_args &a, u32 which) {
  ptx_warps_sync(1, 256);
  if (threadIdx.x == 0) ptx_meet(a.meetings + (blockIdx.x / SPLITS * 2u + which) * 32u, ATTN_SPREAD_MOST / SPLITS, ATTN_SPREAD_MOST);
  ptx_warps_sync(1, 256);
}

#endif

/* attn/split/layout.cuh - what the warpgroups of the split form share: sizes, the layouts of shared memory and of `scratch`, barriers,
 * tokens, and the grid barrier. Must not know what is computed. Read next: attn/split/load.cuh. */
#ifndef VERBATIM_ATTN_SPLIT_LAYOUT_CUH
#define VERBATIM_ATTN_SPLIT_LAYOUT_CUH
#include "attn/pieces.cuh"
#include "attn/scores.cuh"

static_assert(SPEC_THREADS == 512, "four warpgroups");
static_assert(SPEC_KV_LORA_RANK == 512 && SPEC_ROPE_DIM == 64 && SPEC_ROWS == 64 && SPEC_MAPS == 1 && SPEC_LISTS == 1, "");
static_assert(SPEC_SPREAD == 8 || SPEC_SPREAD == 16 || SPEC_SPREAD == 32, "");

#define SPLITS SPEC_SPREAD                        /* CTAs per token */
#define OWN (ATTN_SPREAD_PLACES / 64u / SPLITS)   /* of 32 blocks of entries, those scored by one CTA */
#define HEADS_APART (SPLITS == 32u)               /* second half: 64 heads, by warpgroup 0; else 128, 64 by each warpgroup */
#define SLICE (HEADS_APART ? 32u : 512u / SPLITS) /* columns of V of this CTA */
#define SLICES (512u / SLICE)
#define OUTPUTS (SLICE / 2u + 4u)                 /* per thread, with l in the last four */

#define BOXES 9u          /* queries of 64 heads, or 64 KV rows, are boxes of 64 columns, [64][128 bytes] each, swizzled */
#define BOX_BYTES 8192u
#define ROPE_BOX 8u       /* the rope columns */
#define BOX_GROUPS 5u     /* boxes arrive and are released two at a time, the rope box alone */
#define P_BYTES 8192u     /* P of a block of entries for 64 heads, in fragment order */
#define MAXIMA_BYTES 512u /* the row maxima of a block of entries for 128 heads */
#define STAGE_P (HEADS_APART ? P_BYTES : 2u * P_BYTES)
#define STAGE_BYTES (2u * (BOX_BYTES + STAGE_P)) /* V of two blocks of entries, then their P */
#define STAGES 4u

/* Shared memory. First half: queries of 128 heads, a KV block; second half: stages, maxima of all blocks. */
#define BASE 1024u        /* start of the layout, after the system's share; a constant, so that operand descriptors are */
#define AT_Q 0u
#define AT_STAGES 0u
#define AT_K (2u * BOXES * BOX_BYTES)
#define AT_MAXIMA (STAGES * STAGE_BYTES) /* [32][128] */
#define AT_ROWS (3u * BOXES * BOX_BYTES) /* [2048] rows in the cache, by entry */
#define AT_VALID (AT_ROWS + 4u * ATTN_SPREAD_PLACES) /* bit j: entry j holds a token */
#define AT_ONES (AT_VALID + ATTN_SPREAD_PLACES / 8u)
#define AT_RISES (AT_ONES + 256u) /* [2][4] per warp, by find_rises */
#define AT_BARRIERS (AT_RISES + 32u)
static_assert(AT_MAXIMA + ATTN_SPREAD_PLACES / 64u * MAXIMA_BYTES <= AT_ROWS, "");

/* Barriers: box groups of KV rows, stages of values. */
#define K_FULL 0u
#define K_EMPTY (K_FULL + BOX_GROUPS)
#define V_FULL (K_EMPTY + BOX_GROUPS)
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

/* Number of block i scored here for token n; k: how many there were before. If all tokens have the same number, n gives k, which saves a
 * register. */
NUM u32 block_count(u32 n, u32 k, u32 i) { return OWN > 2u ? n * OWN + i : k + i; }

/* In `scratch`, for the CTAs of this token: the maxima of all blocks, then their P. */
NUM f32 *maxima_of(const mla_attn_args &a) { return a.scratch + (u64)(blockIdx.x / SPLITS) * attn_spread_floats(&a); }
NUM u8 *probs_of(const mla_attn_args &a, u32 block) {
  return (u8 *)maxima_of(a) + (a.list_max + PAGE_TOKENS - 1u) / PAGE_TOKENS * MAXIMA_BYTES + block * (2u * P_BYTES);
}

/* Of a thread: offset of its rows' maxima in those of a block, of its 16 bytes of P in each of four times 512; its head h among 64. */
NUM u32 maxima_at(u32 block, u32 group) { return block * MAXIMA_BYTES + group * 256u + threadIdx.x % 128u / 4u * 8u; }
NUM u32 probs_at() { return threadIdx.x % 128u / 32u * 2048u + threadIdx.x % 32u * 16u; }
NUM u32 head_of(u32 h) { return threadIdx.x % 128u / 32u * 16u + threadIdx.x % 32u / 4u + 8u * h; }

/* The grid barrier of a token's CTAs: by all threads that compute. What any of them wrote before can be read after. */
NUM void sync_token(const mla_attn_args &a, u32 which) {
  ptx_warps_sync(1, 256);
  if (threadIdx.x == 0) ptx_meet(a.meetings + (blockIdx.x / SPLITS * 2u + which) * 32u, ATTN_SPREAD_MOST / SPLITS, ATTN_SPREAD_MOST);
  ptx_warps_sync(1, 256);
}

#endif

/* attn/decode/layout.cuh - what the warpgroups of attn/decode/form.cuh share: sizes, places in shared memory, barriers, the ring, and the
 * pieces and passes that all of them walk through in the same order. Must not know what is computed. */
#ifndef VERBATIM_DECODE_LAYOUT_CUH
#define VERBATIM_DECODE_LAYOUT_CUH
#include "attn/pieces.cuh"

static_assert(SPEC_THREADS == 512, "four warpgroups");
static_assert(SPEC_ROWS == 8 || SPEC_ROWS == 16 || SPEC_ROWS == 32, "a width of ptx_multiply_turned");

#define ROWS SPEC_ROWS
#define COLUMNS (SPEC_KV_LORA_RANK + SPEC_ROPE_DIM)
#define V_BOXES (SPEC_KV_LORA_RANK / 64u)
#define BOXES (V_BOXES + 1u)
#define BOX_BYTES 8192u
#define OUT_GROUPS (SPEC_KV_LORA_RANK * ROWS > 8192u ? 2u : 1u) /* warpgroups for outputs, each with OUT_BOXES boxes of columns */
#define OUT_BOXES (V_BOXES / OUT_GROUPS)
#define SCORE_GROUPS (GATHERED ? 1u : 3u - OUT_GROUPS)
#define SCORE_THREADS (SCORE_GROUPS * 128u)
#define COPY_THREAD (SCORE_THREADS + OUT_GROUPS * 128u)
#define COPY_GROUPS (4u - SCORE_GROUPS - OUT_GROUPS)
#define OWN (ROWS / 4u) /* rows that a thread holds numbers of: number 2 * j + e is row 8 * j + 2 * (lane % 4) + e */
#define NO_MAX (-0x1p60f)
#define INFINITE __int_as_float(0x7f800000)

#define Q_BOX_BYTES (ROWS * 128u)
#define P_BYTES ((ROWS < 16u ? 16u : ROWS) * 128u) /* a store of P writes 16 rows */
#define ONES_BYTES 2048u
#define SHARED_BYTES (ATTN_SHARED_BYTES(ROWS) - 1024u)
#define MAX_BYTES (4u * ROWS * 4u + SCORE_GROUPS * 2u * ROWS * 16u)
#define FIXED_BYTES (BOXES * Q_BOX_BYTES + 2u * P_BYTES + ONES_BYTES + 1024u + MAX_BYTES)
#define SPARE_BYTES (SHARED_BYTES - FIXED_BYTES - 2u * BOXES * BOX_BYTES) /* by two blocks of KV rows */

/* Of gathered rows a warp has as many of each block, by quads of four, so many of which come at a time as they lie in the cache. */
#define ROW_BYTES KV_ROW_BYTES(SPEC_KV_FORMAT, SPEC_KV_LORA_RANK, SPEC_ROPE_DIM)
#define GATHER_WARPS (COPY_GROUPS * 4u)
#define WARP_ROWS (PAGE_TOKENS / GATHER_WARPS)
#define QUADS (WARP_ROWS / 4u)
#define QUAD_BYTES (4u * ROW_BYTES)
#define RAW_ROOM ((SPARE_BYTES - LIVE_BYTES) / (GATHER_WARPS * QUAD_BYTES))
#define RAW_QUADS (!CODES ? 1u : RAW_ROOM < QUADS ? RAW_ROOM : QUADS)
#define LIVE_SLOTS 8u
#define LIVE_BYTES (LIVE_SLOTS * 8u)
#define GATHER_BYTES (GATHERED ? LIVE_BYTES + (CODES ? GATHER_WARPS * RAW_QUADS * QUAD_BYTES : 0u) : 0u)
#define ROOM ((SHARED_BYTES - FIXED_BYTES - GATHER_BYTES) / BOX_BYTES)
#define RING (GATHERED ? ROOM / BOXES * BOXES : ROOM) /* boxes; where warps wait for all of a block's at once, whole blocks */
static_assert(RING >= 2u * BOXES, "two blocks of KV rows, so that scores and outputs can work side by side");
static_assert(!GATHERED || RING / BOXES < LIVE_SLOTS, "a block's bits stay until it has been weighed");
static_assert(!CODES || (RAW_QUADS > 1u && ROW_BYTES % 16u == 0), "a quad comes while one is taken; 16 bytes at a time");

/* Shared memory, from a multiple of 1024. */
#define AT_Q (RING * BOX_BYTES)
#define AT_P (AT_Q + BOXES * Q_BOX_BYTES)
#define AT_ONES (AT_P + 2u * P_BYTES)
#define AT_BARRIERS (AT_ONES + ONES_BYTES)
#define AT_MAX (AT_BARRIERS + 1024u)                   /* [2][ROWS] by block: the running maximum, for the next block's scores */
#define AT_P_MAX (AT_MAX + 2u * ROWS * 4u)             /* [2][ROWS]: the same, for the outputs */
#define AT_WARP_MAX (AT_P_MAX + 2u * ROWS * 4u)        /* [group][2][ROWS][4 warps]            */
#define AT_LIVE (AT_BARRIERS + 1024u + MAX_BYTES)      /* [LIVE_SLOTS] by block: bit j: place j holds a token; of lists */
#define AT_RAW (AT_LIVE + LIVE_BYTES)                  /* [warp][RAW_QUADS][4][ROW_BYTES]      */

/* Barriers. */
#define FULL(stage) (AT_BARRIERS + 8u * (stage))
#define EMPTY(stage) (AT_BARRIERS + 8u * (RING + (stage)))
#define Q_FULL (AT_BARRIERS + 16u * RING)
#define Q_EMPTY (Q_FULL + 8u)
#define P_FULL(i) (Q_FULL + 16u + 8u * (i))
#define P_EMPTY(i) (Q_FULL + 32u + 8u * (i))
#define MAX_READY(i) (Q_FULL + 48u + 8u * (i))
#define RAW_FULL(warp, i) (Q_FULL + 64u + 8u * ((warp) * RAW_QUADS + (i)))
static_assert(16u * RING + 64u + (GATHERED ? 8u * GATHER_WARPS * RAW_QUADS : 0u) <= 1024u, "the barriers' place");
/* Arrivals at a box's FULL: of one that waits for a copied box, of warps, or of them and of their threads' copies. */
#define FULL_ARRIVALS (!GATHERED ? 1u : CODES ? GATHER_WARPS : GATHER_WARPS * 33u)

/* With up to 16 rows a block leaves 16384 registers and 8 KiB to one of mla_fold, which then waits on the same multiprocessor for the last
 * of these, and does not come to it behind them. */
#define IS_BESIDE (ROWS < 32u)
#define BLOCK_THREADS (IS_BESIDE ? 640u : 512u) /* for the compiler: so many leave no more than 96 registers each, of 512 threads */
#if GATHERED
#define COPY_REGISTERS (ROWS == 8u ? 72 : IS_BESIDE ? 56 : OUT_GROUPS == 2u ? 80 : 80)
#define SCORE_REGISTERS (ROWS == 8u ? 72 : IS_BESIDE ? 64 : OUT_GROUPS == 2u ? 80 : 112)
#define OUT_REGISTERS (ROWS == 8u ? 168 : IS_BESIDE ? 208 : OUT_GROUPS == 2u ? 176 : 240)
#else
#define COPY_REGISTERS (IS_BESIDE ? 24 : 40)
#define SCORE_REGISTERS (IS_BESIDE ? 80 : OUT_GROUPS == 2u ? 104 : 112)
#define OUT_REGISTERS (IS_BESIDE ? 200 : OUT_GROUPS == 2u ? 176 : 240)
#endif
static_assert(COPY_GROUPS * COPY_REGISTERS + SCORE_GROUPS * SCORE_REGISTERS + OUT_GROUPS * OUT_REGISTERS <= (IS_BESIDE ? 384 : 512),
              "the block's");

typedef struct place { u32 stage, phase; } place; /* in the ring */

NUM place place_after(place p, u32 boxes) {
  p.stage += boxes;
  if (p.stage >= RING) {
    p.stage -= RING;
    p.phase ^= 1u;
  }
  return p;
}
/* Of whole blocks: where the boxes of number nth begin; the first phase is `phase`. */
NUM place place_from(u32 nth, u32 phase) { return {nth % (RING / BOXES) * BOXES, (nth / (RING / BOXES) + phase) & 1u}; }
/* Where box k of the columns lies when the block starts at p: the last one stands first. */
NUM place place_of(place p, u32 k) {
  const u32 boxes = k == V_BOXES ? 0u : k + 1u;
  if (GATHERED) return {p.stage + boxes, p.phase};
  return place_after(p, boxes);
}

typedef struct pass { /* of a piece: its tokens that fit */
  u32 token, tokens;
} pass;

NUM u32 pass_count(const mla_attn_args &a, const attn_piece &p) { return (p.tile.count + ROWS / a.heads - 1u) / (ROWS / a.heads); }
NUM pass pass_of(const mla_attn_args &a, const attn_piece &p, u32 i) {
  const u32 most = ROWS / a.heads, token = i * most;
  return {token, p.tile.count - token < most ? p.tile.count - token : most};
}

/* Maxima of the thread's rows, to and from [ROWS]. */
NUM void store_max(f32 *to, const f32 (&m)[OWN]) {
  if (threadIdx.x % 128u >= 4u) return;
#pragma unroll
  for (u32 i = 0; i < OWN; i += 2u) *(float2 *)(to + i * 4u + threadIdx.x * 2u % 8u) = make_float2(m[i], m[i + 1u]);
}

NUM void load_max(f32 (&m)[OWN], const f32 *from) {
#pragma unroll
  for (u32 i = 0; i < OWN; i += 2u) {
    const float2 x = *(const float2 *)(from + i * 4u + threadIdx.x % 4u * 2u);
    m[i] = x.x;
    m[i + 1u] = x.y;
  }
}

/* Where there are so many blocks for each piece, they share it: each weighs all of its tokens, and makes some of the output's columns. With
 * 32 rows of 512 columns, for which there are two output warpgroups, that is no faster. */
#define SHARES_MAX (OUT_GROUPS > 1u ? 1u : 4u)
NUM u32 share_count(const mla_attn_args &a) { return work_count(a) * SHARES_MAX <= gridDim.x ? SHARES_MAX : 1u; }

/* A block's share: boxes first .. first + OUT_BOXES / shares - 1 of each output warpgroup's. */
NUM u32 share_first(u32 shares) { return blockIdx.x % shares * (OUT_BOXES / shares); }
NUM bool is_shared(u32 v_box, u32 shares) { return v_box % OUT_BOXES - share_first(shares) < OUT_BOXES / shares; }

#define FOR_PIECES(p, a, shares)                                                                                                  \
  for (u32 round_ = 0, count_ = work_count(a) * (shares), nth_; (nth_ = work_nth(round_, blockIdx.x, gridDim.x)) < count_; round_++) \
    if (const attn_piece p = work_of(a, nth_ / (shares)).piece; true)
#define FOR_PASSES(w, a, p)                            \
  for (u32 pass_ = 0; pass_ < pass_count(a, p); pass_++) \
    if (const pass w = pass_of(a, p, pass_); true)

#endif

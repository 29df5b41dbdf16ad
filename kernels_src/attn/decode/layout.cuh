/* attn/decode/layout.cuh - what the warpgroups of the decode form share: sizes, the shared-memory layout, barriers, the ring, and the
 * pieces and passes that all of them walk in the same order. Must not know what is computed. */
#ifndef VERBATIM_ATTN_DECODE_LAYOUT_CUH
#define VERBATIM_ATTN_DECODE_LAYOUT_CUH
#include "attn/pieces.cuh"

#ifndef SPEC_SHARES
#define SPEC_SHARES 0u /* CTAs of a cluster, which may share a chunk: attn/decode/shared_chunk.cuh */
#endif

static_assert(SPEC_THREADS == 512, "four warpgroups");
static_assert(SPEC_ROWS == 8 || SPEC_ROWS == 16 || SPEC_ROWS == 32, "a width of ptx_multiply_turned");

#define ROWS SPEC_ROWS
#define COLUMNS (SPEC_KV_LORA_RANK + SPEC_ROPE_DIM)
#define V_BOXES (SPEC_KV_LORA_RANK / 64u)
#define BOXES (V_BOXES + 1u)
#define BOX_BYTES 8192u
#define VALUE_GROUPS (SPEC_KV_LORA_RANK * ROWS > 8192u ? 2u : 1u) /* value warpgroups, each with VALUE_BOXES boxes of columns */
#define VALUE_BOXES (V_BOXES / VALUE_GROUPS)
#define SCORE_GROUPS (GATHERED ? 1u : 3u - VALUE_GROUPS)
#define SCORE_THREADS (SCORE_GROUPS * 128u)
#define LOAD_THREAD (SCORE_THREADS + VALUE_GROUPS * 128u)
#define LOAD_GROUPS (4u - SCORE_GROUPS - VALUE_GROUPS)
#define OWN (ROWS / 4u) /* a thread's rows: number 2 * j + e is row 8 * j + 2 * (lane % 4) + e */
#define NO_MAX (-0x1p60f)
#define INFINITE __int_as_float(0x7f800000)

/* With 32 rows, O of a chunk and O of the unit before it leave no registers for m of the unit, which waits in shared memory. In clusters
 * even that is too much: the unit waits in memory for the end of the chunk. */
#define M_IN_SHARED (ROWS == 32u && !SPEC_SHARES)
#define CHUNKS_IN_MEMORY (ROWS == 32u && SPEC_SHARES)

#define Q_BOX_BYTES (ROWS * 128u)
#define P_BYTES ((ROWS < 16u ? 16u : ROWS) * 128u) /* a store of P writes 16 rows */
#define ONES_BYTES 2048u
#define SHARED_BYTES (ATTN_SHARED_BYTES(ROWS) - 1024u)
#define MAX_BYTES (4u * ROWS * 4u + SCORE_GROUPS * 2u * ROWS * 16u + (M_IN_SHARED ? VALUE_GROUPS * 4u * ROWS * 4u : 0u))
#define FIXED_BYTES (BOXES * Q_BOX_BYTES + 2u * P_BYTES + ONES_BYTES + 1024u + MAX_BYTES)
#define SPARE_BYTES (SHARED_BYTES - FIXED_BYTES - 2u * BOXES * BOX_BYTES) /* beyond two KV blocks */

/* Gathered rows: a warp has WARP_ROWS of every block, in quads of four; RAW_QUADS of them are in flight, as they lie in the cache. */
#define ROW_BYTES KV_ROW_BYTES(SPEC_KV_FORMAT, SPEC_KV_LORA_RANK, SPEC_ROPE_DIM)
#define GATHER_WARPS (LOAD_GROUPS * 4u)
#define WARP_ROWS (PAGE_TOKENS / GATHER_WARPS)
#define QUADS (WARP_ROWS / 4u)
#define QUAD_BYTES (4u * ROW_BYTES)
#define RAW_ROOM ((SPARE_BYTES - VALID_BYTES) / (GATHER_WARPS * QUAD_BYTES))
#define RAW_QUADS (!CODES ? 1u : RAW_ROOM < QUADS ? RAW_ROOM : QUADS)
#define VALID_SLOTS 8u
#define VALID_BYTES (VALID_SLOTS * 8u)
#define GATHER_BYTES (GATHERED ? VALID_BYTES + (CODES ? GATHER_WARPS * RAW_QUADS * QUAD_BYTES : 0u) : 0u)
#define ROOM ((SHARED_BYTES - FIXED_BYTES - GATHER_BYTES) / BOX_BYTES)
#define RING (GATHERED ? ROOM / BOXES * BOXES : ROOM) /* boxes; gathering warps wait for whole blocks */
static_assert(RING >= 2u * BOXES, "two blocks of KV rows, so that scores and values can overlap");
static_assert(!GATHERED || RING / BOXES < VALID_SLOTS, "a block's bits stay until its scores are masked");
static_assert(!CODES || (RAW_QUADS > 1u && ROW_BYTES % 16u == 0), "a quad arrives while another is read; 16 bytes at a time");

/* Shared memory, from a multiple of 1024. */
#define AT_Q (RING * BOX_BYTES)
#define AT_P (AT_Q + BOXES * Q_BOX_BYTES)
#define AT_ONES (AT_P + 2u * P_BYTES)
#define AT_BARRIERS (AT_ONES + ONES_BYTES)
#define AT_MAX (AT_BARRIERS + 1024u)               /* [2][ROWS] by block: the running maximum, for the scores of the next block */
#define AT_P_MAX (AT_MAX + 2u * ROWS * 4u)         /* [2][ROWS]: the same, for the values */
#define AT_WARP_MAX (AT_P_MAX + 2u * ROWS * 4u)    /* [group][2][ROWS][4 warps] */
#define AT_UNIT_MAX (AT_WARP_MAX + SCORE_GROUPS * 2u * ROWS * 16u) /* M_IN_SHARED: [value warp][ROWS], m of the unit so far */
#define AT_VALID (AT_BARRIERS + 1024u + MAX_BYTES) /* [VALID_SLOTS] by block, with lists: bit j: entry j holds a token */
#define AT_RAW (AT_VALID + VALID_BYTES)            /* [warp][RAW_QUADS][4][ROW_BYTES] */

/* Barriers, as offsets in shared memory: FULL(stage) is at b.base + FULL(stage). */
#define FULL(stage) (AT_BARRIERS + 8u * (stage))
#define EMPTY(stage) (AT_BARRIERS + 8u * (RING + (stage)))
#define Q_FULL (AT_BARRIERS + 16u * RING)
#define Q_EMPTY (Q_FULL + 8u)
#define P_FULL(i) (Q_FULL + 16u + 8u * (i))
#define P_EMPTY(i) (Q_FULL + 32u + 8u * (i))
#define MAX_READY(i) (Q_FULL + 48u + 8u * (i))
#define RAW_FULL(warp, i) (Q_FULL + 64u + 8u * ((warp) * RAW_QUADS + (i)))
static_assert(16u * RING + 64u + (GATHERED ? 8u * GATHER_WARPS * RAW_QUADS : 0u) <= 1024u, "the barriers fit");

/* Arrivals that complete a phase of FULL: one TMA load, or the gathering warps, or these and the copies of their threads. */
#define FULL_ARRIVALS (!GATHERED ? 1u : CODES ? GATHER_WARPS : GATHER_WARPS * 33u)

#include "attn/barriers.cuh"

/* With up to 16 rows a CTA leaves 16384 registers and 8 KiB to a CTA of mla_fold, which then starts on the same multiprocessor early and
 * waits there. */
#define LEAVES_ROOM (ROWS < 32u)
#define BLOCK_THREADS (LEAVES_ROOM ? 640u : 512u) /* for the compiler: 640 threads leave no more than 96 registers each to 512 */
#if GATHERED
#define LOAD_REGISTERS (ROWS == 8u ? 72 : LEAVES_ROOM || VALUE_GROUPS == 2u ? 64 : 80)
#define SCORE_REGISTERS (ROWS == 8u ? 72 : LEAVES_ROOM || VALUE_GROUPS == 2u ? 64 : 112)
#define VALUE_REGISTERS (ROWS == 8u ? 168 : LEAVES_ROOM || VALUE_GROUPS == 2u ? 192 : 240)
#else
#define LOAD_REGISTERS (LEAVES_ROOM ? 24 : 40)
#define SCORE_REGISTERS (LEAVES_ROOM ? 80 : VALUE_GROUPS == 2u ? SPEC_SHARES ? 104 : 88 : 112)
#define VALUE_REGISTERS (LEAVES_ROOM ? 200 : VALUE_GROUPS == 2u ? SPEC_SHARES ? 176 : 192 : 240)
#endif
static_assert(LOAD_GROUPS * LOAD_REGISTERS + SCORE_GROUPS * SCORE_REGISTERS + VALUE_GROUPS * VALUE_REGISTERS <= (LEAVES_ROOM ? 384 : 512),
              "the block's");

typedef struct ring_slot { u32 stage, phase; } ring_slot; /* of the ring */

NUM ring_slot slot_after(ring_slot p, u32 boxes) {
  p.stage += boxes;
  if (p.stage >= RING) {
    p.stage -= RING;
    p.phase ^= 1u;
  }
  return p;
}
/* The first box of block number nth; `phase` is that of the first lap. */
NUM ring_slot slot_of_block(u32 nth, u32 phase) { return {nth * BOXES % RING, (nth * BOXES / RING + phase) & 1u}; }
/* Box k of the columns when the block starts at p: the rope box comes first. */
NUM ring_slot slot_of_box(ring_slot p, u32 k) {
  const u32 boxes = k == V_BOXES ? 0u : k + 1u;
  if (GATHERED) return {p.stage + boxes, p.phase};
  return slot_after(p, boxes);
}

typedef struct pass { /* of a piece: the tokens that fit SPEC_ROWS */
  u32 token, tokens;
} pass;

NUM u32 pass_count(const mla_attn_args &a, const attn_piece &p) { return (p.tile.count + ROWS / a.heads - 1u) / (ROWS / a.heads); }
NUM pass pass_of(const mla_attn_args &a, const attn_piece &p, u32 i) {
  const u32 most = ROWS / a.heads, token = i * most;
  return {token, p.tile.count - token < most ? p.tile.count - token : most};
}

/* Maxima of the thread's rows, to and from [ROWS]: by four lanes of a warp, or of the warpgroup. */
NUM void store_rows(f32 *to, const f32 (&m)[OWN]) {
#pragma unroll
  for (u32 i = 0; i < OWN; i += 2u) *(float2 *)(to + i * 4u + threadIdx.x * 2u % 8u) = make_float2(m[i], m[i + 1u]);
}
NUM void store_max(f32 *to, const f32 (&m)[OWN]) {
  if (threadIdx.x % 128u < 4u) store_rows(to, m);
}

NUM void load_max(f32 (&m)[OWN], const f32 *from) {
#pragma unroll
  for (u32 i = 0; i < OWN; i += 2u) {
    const float2 x = *(const float2 *)(from + i * 4u + threadIdx.x % 4u * 2u);
    m[i] = x.x;
    m[i + 1u] = x.y;
  }
}

/* With enough CTAs for each piece they share it: each computes all scores and a share of the output columns. No gain with 32 rows of 512
 * columns, which have two value warpgroups, unless a cluster shares the scores too. */
#define SHARES_MAX (VALUE_GROUPS > 1u && !SPEC_SHARES ? 1u : 4u)
NUM u32 share_count(const mla_attn_args &a) { return work_count(a) * SHARES_MAX <= gridDim.x ? SHARES_MAX : 1u; }

/* The CTA's share: boxes first .. first + VALUE_BOXES / shares - 1 of each value warpgroup's. */
NUM u32 share_first(u32 shares) { return blockIdx.x % shares * (VALUE_BOXES / shares); }
NUM bool is_shared(u32 v_box, u32 shares) { return v_box % VALUE_BOXES - share_first(shares) < VALUE_BOXES / shares; }

#define FOR_PIECES(p, a, shares)                                                                                                  \
  for (u32 round_ = 0, count_ = work_count(a) * (shares), nth_; (nth_ = work_nth(round_, blockIdx.x, gridDim.x)) < count_; round_++) \
    if (const attn_piece p = work_of(a, nth_ / (shares)).piece; true)
#define FOR_PASSES(w, a, p)                            \
  for (u32 pass_ = 0; pass_ < pass_count(a, p); pass_++) \
    if (const pass w = pass_of(a, p, pass_); true)

#endif

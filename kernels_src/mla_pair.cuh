/* mla_pair.cuh - mla_attn for up to 64 operand rows by two blocks side by side. NUMERICS.md, `mla_attn`.
 *
 * A cluster of two blocks takes one piece at a time: chunks of a tile (consecutive tokens of one sequence), for up to 64 heads. Its 64
 * operand rows are the (token, head) pairs, row = token * heads + head; rows beyond are dead: anything goes in, nothing comes out.
 * Each block owns half of the output columns, so that both a chunk's O and the running fold of the group stay in registers, and weighs
 * every other KV block of 64 tokens; P and m go to the other block by stores into its shared memory. Four warpgroups:
 *   two make O: O[64][kv_lora_rank / 4] += P V, V being the KV block itself, read across; the first one l += P 1 too;
 *   one makes S[64][64] = Q KV^T and P as bf16, which lies as a multiplication wants it in registers; m goes from block to block;
 *   the warps of the last bring the blocks that are weighed here (all columns), bring the other ones (half of V), and look for pieces.
 * Every row has its own position: what lies beyond it weighs +0, and chunks that start beyond it are not folded. The groups' fold
 * (level 2) lies in `scratch`, in fragment order; a thread only reads there what it wrote.
 * Grid: any even number of blocks. Dynamic shared bytes: 232448, all that a block may have. A pair moves 26 boxes of 8192 bytes from L2
 * for two blocks of 64 tokens, 4 * 64 * 64 * (576 + 512) operations: 84 operations a byte, a third of what L2 gives.
 * H200, 512 + 64, chunks of 256 tokens, TFLOP/s: prompts of 16 heads, 8192 tokens, 415 to 455; the last 1024 of 8192 of 128 heads, 407 to
 * 418; one token each of 64 requests at 8192, 128 heads, with the fold, 355 to 385. The one warpgroup of S and P is what all wait for.
 * Tried and lost: S of the next block beside P (its boxes come late, and P waits for them); P given back as soon as it has been asked for
 * (wrong bits: loads may be overtaken by an arrival in another block), or after a fence of the cluster (a tenth slower). */
#include "attn_pieces.cuh"

#define KERNEL_CLUSTER 2u
#define KERNEL_CLUSTER_X 2u

static_assert(SPEC_THREADS == 512, "four warpgroups");
static_assert(SPEC_KV_LORA_RANK == 256 || SPEC_KV_LORA_RANK == 512, "a quarter of it is a width of ptx_multiply_across");
static_assert(SPEC_ROPE_DIM == 32 || SPEC_ROPE_DIM == 64, "");
static_assert(SPEC_PAIR == 2 && SPEC_MAPS == 1 && SPEC_ROWS == 64, "");

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
#define NO_MAX (-0x1p60f)
#define INFINITE __int_as_float(0x7f800000)

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
#define BARRIERS (ITEM_FREE + 2u)
#define AT_ITEMS (AT_BARRIERS + BARRIERS * 8u) /* [2] */
#define AT_SUMS (AT_ITEMS + 2u * 48u)          /* [2][64] l */
static_assert(AT_SUMS + 512u + 512u <= 232448u, "with what the base may lack to a multiple of 1024");

/* What a pair works on: a piece of attn_pieces.cuh. */
typedef struct item {
  attn_tile tile;
  u32 head, heads;   /* of this group; no heads: there is nothing left */
  u32 first, last;   /* blocks of 64 tokens                            */
  u32 cut, slot;     /* chunks of a piece, or ATTN_WHOLE; of attn_piece */
} item;

/* Positions of a thread's two rows of the operand, the row r and r + 8 of its warp's 16. -1: dead. */
typedef struct rows {
  i32 position[2];
} rows;

/* Folded (m, l, O) of the thread's two rows. */
typedef struct chain {
  f32 m[2], l[2], o[OUTPUTS];
} chain;

/* The block of the pair, and where its shared memory lies. */
typedef struct place {
  u32 base, rank;
  u8 *shared;
} place;

NUM u32 barrier_at(const place &p, u32 number) { return p.base + AT_BARRIERS + number * 8u; }
NUM void wait_for(const place &p, u32 number, u32 phase) { ptx_barrier_wait(barrier_at(p, number), phase & 1u); }
NUM void wait_free(const place &p, u32 number, u32 phase) { ptx_barrier_wait(barrier_at(p, number), (phase & 1u) ^ 1u); }

/* One warp: the pieces of this pair. */
NUM void deal(const mla_attn_args &a, const place &p) {
  const u32 pairs = gridDim.x / 2u, pair = blockIdx.x / 2u, count = work_count(a);
  for (u32 round = 0, n = 0;; round++) {
    const u32 i = work_nth(round, pair, pairs), slot = n % 2u;
    if (i >= count && round * pairs < count) continue;
    item it = {{0, 0, 0, 0}, 0, 0, 0, 0, 0, 0};
    if (i < count) {
      const attn_work w = work_of(a, i);
      const u32 cut = w.piece.slot == ATTN_WHOLE ? ATTN_WHOLE : a.counts->piece_chunks;
      it = {w.piece.tile, w.head, w.heads, w.piece.first_block, w.piece.end_block - 1u, cut, w.piece.slot};
    }
    wait_free(p, ITEM_FREE + slot, n++ / 2u);
    if (threadIdx.x % 32u == 0) {
      *(item *)(p.shared + AT_ITEMS + slot * 48u) = it;
      ptx_barrier_arrive(barrier_at(p, ITEM_COME + slot));
    }
    if (it.heads == 0) return;
  }
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

/* === Bringing =========================================================================================================== */

/* Whether box x of a block weighs and is multiplied here, and its number among its like. */
NUM bool is_both(const place &p, u32 x) { return x / HALF == p.rank; }
NUM u32 other_of(u32 x) { return x < HALF ? x : x - HALF; }

/* One thread: the queries, and all columns of the blocks that are weighed here. */
NUM void bring_keys(const mla_attn_args &a, const tensor_maps &maps, const place &p) {
  const u64 often = ptx_often();
  item it;
  for (u32 n = 0, k = 0, queries = 0; take_item(p, n, it, true); n++) {
    const u32 *pages = a.block_table + (u64)it.tile.seq * a.block_table_stride;
    const u32 first = first_of(it, p, 0), query = it.tile.row * a.heads + it.head;
    u32 page = first <= it.last ? pages[first] : 0u;
    for (u32 block = first; block <= it.last; block += 2u, k++) {
      const u32 row = page * PAGE_TOKENS, set = k % 2u;
      if (block + 2u <= it.last) page = pages[block + 2u];
      for (u32 x = 0; x < BOXES; x++) {
        u32 come, to;
        if (is_both(p, x)) {
          const u32 half = x % HALF;
          if (half % WIDTH_BOXES == 0) wait_free(p, BOTH_FREE + set * 2u + half / WIDTH_BOXES, k / 2u);
          come = BOTH_COME + set * HALF + half;
          to = AT_BOTH + (set * HALF + half) * BOX_BYTES;
        } else {
          wait_free(p, OTHERS_FREE + other_of(x), k);
          come = OTHERS_COME + other_of(x);
          to = AT_OTHERS + other_of(x) * BOX_BYTES;
        }
        if (block == first && x == 0) wait_free(p, Q_FREE, queries++);
        ptx_barrier_expect(barrier_at(p, come), block == first ? 2u * BOX_BYTES : BOX_BYTES);
        if (block == first) ptx_copy_box(p.base + AT_Q + x * BOX_BYTES, &maps.x, x * 64u, query, barrier_at(p, come), often);
        ptx_copy_box(p.base + to, &maps.w, x * 64u, row, barrier_at(p, come), often);
      }
    }
  }
}

/* One thread: the half of V of the blocks that the other one weighs. */
NUM void bring_values(const mla_attn_args &a, const tensor_maps &maps, const place &p) {
  const u64 often = ptx_often();
  item it;
  for (u32 n = 0, k = 0; take_item(p, n, it, true); n++) {
    const u32 *pages = a.block_table + (u64)it.tile.seq * a.block_table_stride;
    const u32 first = first_of(it, p, 1);
    u32 page = first <= it.last ? pages[first] : 0u;
    for (u32 block = first; block <= it.last; block += 2u, k++) {
      const u32 row = page * PAGE_TOKENS;
      if (block + 2u <= it.last) page = pages[block + 2u];
      for (u32 x = 0; x < HALF; x++) {
        if (x % WIDTH_BOXES == 0) wait_free(p, VALUES_FREE + x / WIDTH_BOXES, k);
        const u32 come = barrier_at(p, VALUES_COME + x);
        ptx_barrier_expect(come, BOX_BYTES);
        ptx_copy_box(p.base + AT_VALUES + x * BOX_BYTES, &maps.w, (p.rank * HALF + x) * 64u, row, come, often);
      }
    }
  }
}

/* === Weighing =========================================================================================================== */

/* Boxes that only S needs are free once they are multiplied. */
NUM void free_boxes(const place &p, u32 from, u32 to) {
#pragma unroll
  for (u32 x = from; x < to; x++)
    if (!is_both(p, x) && threadIdx.x % 32u == 0) ptx_barrier_arrive(barrier_at(p, OTHERS_FREE + other_of(x)));
}

/* s = Q KV^T, box by box as they come; k: number of the block among those weighed here. */
NUM void make_scores(const place &p, f32 (&s)[32], u32 k) {
  const u32 set = k % 2u;
#pragma unroll
  for (u32 i = 0; i < 32; i++) {
    s[i] = 0.0f;
    ptx_hold(s[i]);
  }
#pragma unroll
  for (u32 x = 0; x < BOXES; x++) {
    const bool both = is_both(p, x);
    const u32 number = both ? BOTH_COME + set * HALF + x % HALF : OTHERS_COME + other_of(x);
    const u32 at = both ? AT_BOTH + (set * HALF + x % HALF) * BOX_BYTES : AT_OTHERS + other_of(x) * BOX_BYTES;
    wait_for(p, number, both ? k / 2u : k);
    const u64 q = ptx_operand(PTX_SWIZZLED, BASE + AT_Q + x * BOX_BYTES), key = ptx_operand(PTX_SWIZZLED, BASE + at);
    ptx_multiply_fence();
#pragma unroll
    for (u32 i = 0; i < 4; i++)
      if (x * 64u + i * 16u < COLUMNS) ptx_multiply(s, q + i * 2u, key + i * 2u);
    ptx_multiply_commit();
  }
  PTX_MULTIPLY_WAIT(BOXES - BOXES_EARLY);
  free_boxes(p, 0, BOXES_EARLY);
  PTX_MULTIPLY_WAIT(BOXES - BOXES_LATE);
  free_boxes(p, BOXES_EARLY, BOXES_LATE);
  PTX_MULTIPLY_WAIT(0);
  free_boxes(p, BOXES_LATE, BOXES);
}

/* Scales the scores in place, masks them if some row ends inside the block, and gives the rows' maxima. */
NUM void scale_scores(const mla_attn_args &a, f32 (&s)[32], const rows &r, u32 block, bool masked, f32 (&top)[2]) {
  const i32 token = (i32)(block * PAGE_TOKENS + threadIdx.x % 4u * 2u);
  top[0] = top[1] = -INFINITE;
#pragma unroll
  for (u32 i = 0; i < 32; i++) s[i] = num_mul(s[i], a.scale_log2);
  if (masked) {
#pragma unroll
    for (u32 i = 0; i < 32; i++)
      if (token + (i32)(i / 4u * 8u + i % 2u) > r.position[i / 2u % 2u]) s[i] = -INFINITE;
  }
#pragma unroll
  for (u32 i = 0; i < 32; i++) top[i / 2u % 2u] = fmaxf(top[i / 2u % 2u], s[i]);
#pragma unroll
  for (u32 h = 0; h < 2; h++) {
    top[h] = fmaxf(top[h], __shfl_xor_sync(WARP_ALL, top[h], 1));
    top[h] = fmaxf(top[h], __shfl_xor_sync(WARP_ALL, top[h], 2));
  }
}

/* Weights of the thread's scores, two tokens in a word: word i is row i % 2, tokens 8 * (i / 2) + 2 * (lane % 4) and the next. */
NUM void make_weights(const f32 (&s)[32], const f32 (&m)[2], u32 (&w)[16]) {
#pragma unroll
  for (u32 i = 0; i < 16; i++) {
    const u32 e = i / 2u * 4u + i % 2u * 2u;
    w[i] = ptx_pack_bf16(num_exp2_bf16(num_sub(s[e], m[i % 2u])), num_exp2_bf16(num_sub(s[e + 1u], m[i % 2u])));
  }
}

/* Where P lies that a thread makes, and those of the same number use: 16 words, four at a time. */
NUM u32 piece_of(u32 number) { return threadIdx.x % 128u / 32u * 2048u + number * 512u + threadIdx.x % 32u * 16u; }

/* P and m of a block into shared memory, here and in the other block, each warp its 16 rows. */
NUM void give_weights(const place &p, const u32 (&w)[16], const f32 (&m)[2]) {
  const u32 lane = threadIdx.x % 32u, first = threadIdx.x % 128u / 32u * 16u, pair = lane % 4u;
#pragma unroll
  for (u32 i = 0; i < 16; i += 4u) *(uint4 *)(p.shared + AT_P + piece_of(i / 4u)) = make_uint4(w[i], w[i + 1u], w[i + 2u], w[i + 3u]);
  if (pair == 0) {
    *(float2 *)(p.shared + AT_MAX + first * 4u + lane / 4u * 8u) = make_float2(m[0], m[1]);
  }
  const u32 there = ptx_peer(p.base + AT_P + BOX_BYTES, p.rank ^ 1u), come = ptx_peer(barrier_at(p, P_COME + 1u), p.rank ^ 1u);
#pragma unroll
  for (u32 i = 0; i < 16; i += 4u) ptx_store_peer(there + piece_of(i / 4u), w[i], w[i + 1u], w[i + 2u], w[i + 3u], come);
  if (pair == 0) {
    ptx_store_peer(ptx_peer(p.base + AT_MAX + 256u, p.rank ^ 1u) + first * 4u + lane / 4u * 8u, m[0], m[1], come);
  }
  __syncwarp(); /* the warp's rows are whole */
  if (lane == 0) {
    ptx_barrier_arrive(barrier_at(p, P_COME));
  }
}

/* m of the block before, from the other block of the pair; taken: how many came before. */
NUM void take_maxima(const place &p, f32 (&m)[2], u32 at, u32 taken, bool wanted) {
  const u32 slot = taken % 3u;
  if (threadIdx.x % 128u == 0) ptx_barrier_expect(barrier_at(p, M_COME + slot), 256u);
  wait_for(p, M_COME + slot, taken / 3u);
  const float2 before = *(const float2 *)(p.shared + AT_PASSED + slot * 256u + at);
  if (wanted) {
    m[0] = before.x;
    m[1] = before.y;
  }
}

/* m to the other block. Of three slots, the one that this overwrites has been read: P of the item behind it has been used there. */
NUM void give_maxima(const place &p, const f32 (&m)[2], u32 at, u32 given) {
  const u32 slot = given % 3u;
  if (threadIdx.x % 4u == 0)
    ptx_store_peer(ptx_peer(p.base + AT_PASSED + slot * 256u + at, p.rank ^ 1u), m[0], m[1],
                   ptx_peer(barrier_at(p, M_COME + slot), p.rank ^ 1u));
}

/* What the warpgroup that weighs counts: blocks, m taken and given, and blocks of the chunk behind the one at hand. */
typedef struct count {
  u32 k, taken, given, in_chunk;
} count;

/* m of the block: the maximum of its scores, which are scaled, and of the block before. */
NUM void make_maxima(const mla_attn_args &a, const place &p, f32 (&s)[32], f32 (&m)[2], const item &it, const rows &r, u32 block,
                     count &c) {
  const u32 at = (threadIdx.x % 128u / 32u * 8u + threadIdx.x % 32u / 4u) * 8u;
  f32 top[2];
  scale_scores(a, s, r, block, block * PAGE_TOKENS + PAGE_TOKENS - 1u > it.tile.position, top);
  m[0] = m[1] = NO_MAX;
  if (block > it.first) take_maxima(p, m, at, c.taken++, c.in_chunk != 0);
#pragma unroll
  for (u32 h = 0; h < 2; h++) m[h] = fmaxf(m[h], num_ceil(top[h]));
  __syncwarp(); /* all lanes have read the maxima that came */
  if (block < it.last) give_maxima(p, m, at, c.given++);
}

NUM void next_block(const mla_attn_args &a, count &c) {
  const u32 blocks = a.chunk_tokens / PAGE_TOKENS;
  c.k++;
  c.in_chunk += 2u;
  if (c.in_chunk >= blocks) c.in_chunk -= blocks;
  if (c.in_chunk >= blocks) c.in_chunk -= blocks; /* chunks of one block */
}

/* One warpgroup: S and P of the blocks that are weighed here. m comes from the block before, and goes to the one behind. */
NUM void weigh(const mla_attn_args &a, const place &p) {
  item it;
  count c = {0, 0, 0, 0};
  for (u32 n = 0; take_item(p, n, it, false); n++) {
    const rows r = rows_of(it);
    const u32 first = first_of(it, p, 0);
    c.in_chunk = (first - it.first) % (a.chunk_tokens / PAGE_TOKENS);
    for (u32 block = first; block <= it.last; block += 2u) {
      f32 s[32], m[2];
      u32 w[16];
      make_scores(p, s, c.k);
      if (block + 2u > it.last && threadIdx.x % 32u == 0) ptx_barrier_arrive(barrier_at(p, Q_FREE));
      make_maxima(a, p, s, m, it, r, block, c);
      make_weights(s, m, w);
      wait_free(p, P_FREE, c.k);
      give_weights(p, w, m);
      next_block(a, c);
    }
  }
}

/* === Multiplying ======================================================================================================== */

/* o += P V, l += P 1: tokens in four steps of 16. */
NUM void multiply_values(f32 (&o)[OUTPUTS], f32 (&l)[4], const u32 (&w)[4][4], u32 values, u32 ones_at, u32 group) {
  const u64 v = ptx_operand(PTX_ACROSS(BOX_BYTES), values);
  const u64 ones = ptx_operand(PTX_PLAIN, ones_at);
#pragma unroll
  for (u32 i = 0; i < OUTPUTS; i++) ptx_hold(o[i]);
  if (group == 0) {
#pragma unroll
    for (u32 i = 0; i < 4; i++) ptx_hold(l[i]);
    ptx_multiply_fence();
#pragma unroll
    for (u32 i = 0; i < 4; i++) ptx_multiply_across(o, w[i], v + i * 128u);
#pragma unroll
    for (u32 i = 0; i < 4; i++) ptx_multiply(l, w[i], ones);
    ptx_multiply_commit();
    PTX_MULTIPLY_WAIT(0);
  } else {
    ptx_multiply_fence();
#pragma unroll
    for (u32 i = 0; i < 4; i++) ptx_multiply_across(o, w[i], v + i * 128u);
    ptx_multiply_commit();
    PTX_MULTIPLY_WAIT(0);
  }
}

/* Rows of this warpgroup's boxes that lie beyond the tile's last position become zeros, whatever the page holds. */
NUM void clear_rows(const place &p, u32 values, u32 from, u32 group) {
  const u32 pieces = (PAGE_TOKENS - from) * 8u;
  for (u32 i = threadIdx.x % 128u; i < pieces * WIDTH_BOXES; i += 128u) {
    uint4 *at = (uint4 *)(p.shared + values + i / pieces * BOX_BYTES + from * 128u) + i % pieces;
    at->x = at->y = at->z = at->w = 0;
  }
  ptx_fence_async();
  ptx_warps_sync(1u + group, 128);
}

/* left = the fold of left and right for rows that have tokens from position start on; the others keep left. */
NUM void fold(chain &left, const f32 (&m)[2], const f32 (&l)[4], const f32 (&o)[OUTPUTS], const rows &r, u32 start) {
  f32 fa[2], fb[2];
  bool live[2];
#pragma unroll
  for (u32 h = 0; h < 2; h++) {
    live[h] = r.position[h] >= (i32)start;
    const f32 top = live[h] ? fmaxf(left.m[h], m[h]) : left.m[h];
    fa[h] = num_exp2_int(num_sub(left.m[h], top));
    fb[h] = num_exp2_int(num_sub(m[h], top));
    left.m[h] = top;
    left.l[h] = live[h] ? num_fma(l[2u * h], fb[h], num_mul(left.l[h], fa[h])) : left.l[h];
  }
#pragma unroll
  for (u32 i = 0; i < OUTPUTS; i++) {
    const u32 h = i / 2u % 2u;
    left.o[i] = live[h] ? num_fma(o[i], fb[h], num_mul(left.o[i], fa[h])) : left.o[i];
  }
}

/* How the fold of the groups so far (left, if there is one) and the one that ends (right) meet: factors, and the new m and l. Rows that
 * have no tokens from position start on keep what is on the left. */
typedef struct meeting {
  bool any, live[2];
  f32 left[2], right[2], m[2], l[2];
} meeting;

NUM meeting meet(const chain &right, const f32 (&m)[2], const f32 (&l)[2], const rows &r, u32 start) {
  meeting meets;
  meets.any = start > 0;
#pragma unroll
  for (u32 h = 0; h < 2; h++) {
    const f32 top = fmaxf(m[h], right.m[h]);
    meets.live[h] = !meets.any || r.position[h] >= (i32)start;
    meets.left[h] = meets.any ? num_exp2_int(num_sub(m[h], top)) : 0.0f;
    meets.right[h] = meets.any ? num_exp2_int(num_sub(right.m[h], top)) : 1.0f;
    meets.m[h] = !meets.any ? right.m[h] : meets.live[h] ? top : m[h];
    meets.l[h] = !meets.any ? right.l[h] : meets.live[h] ? num_fma(right.l[h], meets.right[h], num_mul(l[h], meets.left[h])) : l[h];
  }
  return meets;
}

/* Elements 4 * j and the next three of both. */
NUM float4 joined(const meeting &meets, const chain &right, const float4 *saved, u32 j) {
  const float4 left = meets.any ? saved[j * 256u] : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  const f32 *o = right.o + 4u * j;
  return make_float4(meets.live[0] ? num_fma(o[0], meets.right[0], num_mul(left.x, meets.left[0])) : left.x,
                     meets.live[0] ? num_fma(o[1], meets.right[0], num_mul(left.y, meets.left[0])) : left.y,
                     meets.live[1] ? num_fma(o[2], meets.right[1], num_mul(left.z, meets.left[1])) : left.z,
                     meets.live[1] ? num_fma(o[3], meets.right[1], num_mul(left.w, meets.left[1])) : left.w);
}

/* Only group 0 sums the weights: l from there. Two items may be under way. */
NUM void share_sums(const place &p, meeting &meets, u32 n, u32 group) {
  f32 *sums = (f32 *)(p.shared + AT_SUMS + n % 2u * 256u);
  if (group == 0 && threadIdx.x % 4u == 0) {
    sums[row_of(0)] = meets.l[0];
    sums[row_of(1)] = meets.l[1];
  }
  ptx_warps_sync(3, 256);
  if (group == 0) return;
  meets.l[0] = sums[row_of(0)];
  meets.l[1] = sums[row_of(1)];
}

/* bf16(O * (1 / l) + 0) of a whole context. */
NUM void write_out(const mla_attn_args &a, const item &it, const meeting &meets, const chain &c, const float4 *saved, const rows &r,
                   u32 column) {
  const f32 share[2] = {num_div(1.0f, meets.l[0]), num_div(1.0f, meets.l[1])};
  u32 *const out[2] = {(u32 *)(a.out + pair_of(a, it, it.tile.row, 0) * SPEC_KV_LORA_RANK + column),
                       (u32 *)(a.out + pair_of(a, it, it.tile.row, 1) * SPEC_KV_LORA_RANK + column)};
#pragma unroll
  for (u32 j = 0; j < OUTPUTS / 4u; j++) {
    const float4 o = joined(meets, c, saved, j);
    const u32 top = ptx_pack_bf16(num_add(num_mul(o.x, share[0]), 0.0f), num_add(num_mul(o.y, share[0]), 0.0f));
    const u32 low = ptx_pack_bf16(num_add(num_mul(o.z, share[1]), 0.0f), num_add(num_mul(o.w, share[1]), 0.0f));
    if (r.position[0] >= 0) out[0][4u * j] = top;
    if (r.position[1] >= 0) out[1][4u * j] = low;
  }
}

/* The partial result of a cut tile's unit: so many rows behind the first one. */
NUM void store_unit(const mla_attn_args &a, const item &it, const chain &c, const rows &r, u64 behind, u32 column) {
#pragma unroll
  for (u32 h = 0; h < 2; h++) {
    if (r.position[h] < 0) continue;
    const u64 row = pair_of(a, it, it.slot, h) + behind;
    f32 *out = a.partial_o + row * SPEC_KV_LORA_RANK + column;
#pragma unroll
    for (u32 j = 0; j < OUTPUTS / 4u; j++) *(float2 *)(out + 8u * j) = make_float2(c.o[4u * j + 2u * h], c.o[4u * j + 2u * h + 1u]);
    if (column == 0) *(float2 *)(a.partial_ml + row * 2u) = make_float2(c.m[h], c.l[h]);
  }
}

/* What a warpgroup that makes O keeps from block to block. */
typedef struct output {
  u32 here, there;   /* blocks so far, weighed here and by the other one */
  f32 m[2], l[4], o[OUTPUTS];
  chain level1;      /* the group's fold so far  */
  f32 m2[2], l2[2];  /* of the groups' fold so far, whose O is in scratch */
} output;

/* Where a chunk ends, not where the next one starts: the compiler would keep O twice. */
NUM void clear_sums(output &out) {
#pragma unroll
  for (u32 i = 0; i < 4; i++) out.l[i] = 0.0f;
#pragma unroll
  for (u32 i = 0; i < OUTPUTS; i++) out.o[i] = 0.0f;
}

/* One block of 64 tokens into o, l and m. */
NUM void take_block(const place &p, output &out, u32 block, const item &it, bool starts, u32 group) {
  const u32 other = (block ^ p.rank) & 1u;
  const u32 set = out.here % 2u, boxes = group * WIDTH_BOXES;
  const u32 number = other ? out.there : out.here, come = other ? VALUES_COME : BOTH_COME + set * HALF;
  const u32 values = (other ? AT_VALUES : AT_BOTH + set * HALF * BOX_BYTES) + boxes * BOX_BYTES;
  if (other && threadIdx.x == 0) ptx_barrier_expect(barrier_at(p, P_COME + 1u), P_BYTES);
  wait_for(p, P_COME + other, number);
  u32 w[4][4];
#pragma unroll
  for (u32 i = 0; i < 4; i++) {
    const uint4 some = *(const uint4 *)(p.shared + AT_P + other * BOX_BYTES + piece_of(i));
    w[i][0] = some.x;
    w[i][1] = some.y;
    w[i][2] = some.z;
    w[i][3] = some.w;
  }
  const float2 top = *(const float2 *)(p.shared + AT_MAX + other * 256u + threadIdx.x % 128u / 4u * 8u);
  const f32 m[2] = {top.x, top.y};
  if (!starts && __ballot_sync(WARP_ALL, m[0] != out.m[0] || m[1] != out.m[1])) {
    const f32 factor[2] = {num_exp2_int(num_sub(out.m[0], m[0])), num_exp2_int(num_sub(out.m[1], m[1]))}; /* 1 where m stays */
#pragma unroll
    for (u32 i = 0; i < 4; i++) out.l[i] = num_mul(out.l[i], factor[i / 2u]);
#pragma unroll
    for (u32 i = 0; i < OUTPUTS; i++) out.o[i] = num_mul(out.o[i], factor[i / 2u % 2u]);
  }
  out.m[0] = m[0];
  out.m[1] = m[1];
#pragma unroll
  for (u32 x = 0; x < WIDTH_BOXES; x++) wait_for(p, come + boxes + x, other ? number : number / 2u);
  const u32 live = last_position(it) % PAGE_TOKENS + 1u;
  if (block == last_position(it) / PAGE_TOKENS && live < PAGE_TOKENS) clear_rows(p, values, live, group);
  multiply_values(out.o, out.l, w, BASE + values, BASE + AT_ONES, group);
  if (threadIdx.x % 32u == 0) {
    ptx_barrier_arrive(barrier_at(p, other ? VALUES_FREE + group : BOTH_FREE + set * 2u + group));
    if (other) /* behind the multiplication, which has the words: that they were asked for is not enough */
      ptx_barrier_arrive_peer(ptx_peer(barrier_at(p, P_FREE), p.rank ^ 1u));
    else
      ptx_barrier_arrive(barrier_at(p, P_FREE));
  }
  out.here += other ^ 1u;
  out.there += other;
}

/* The chunk that ends with `block` into the folds; where a unit of a cut tile ends it is stored. */
NUM void end_chunk(const mla_attn_args &a, output &out, const item &it, const rows &r, u32 chunk, u32 in_group, bool is_last,
                   float4 *saved, u32 column) {
  if (attn_unit_starts(in_group, it.cut)) { /* the fold of nothing and a result is the result */
    out.level1.m[0] = out.level1.m[1] = NO_MAX;
    out.level1.l[0] = out.level1.l[1] = 0.0f;
#pragma unroll
    for (u32 i = 0; i < OUTPUTS; i++) out.level1.o[i] = 0.0f;
  }
  fold(out.level1, out.m, out.l, out.o, r, chunk * a.chunk_tokens);
  clear_sums(out);
  if (!is_last && in_group + 1u < a.group_chunks && !attn_unit_ends(in_group, it.cut)) return;
  if (it.cut != ATTN_WHOLE) {
    const u32 start = in_group < it.cut ? chunk - in_group : chunk;
    store_unit(a, it, out.level1, r, (u64)attn_unit_at(start, it.cut, a.group_chunks) * it.tile.count * a.heads, column);
  } else if (!is_last) {
    const meeting meets = meet(out.level1, out.m2, out.l2, r, (chunk - in_group) * a.chunk_tokens);
#pragma unroll
    for (u32 j = 0; j < OUTPUTS / 4u; j++) saved[j * 256u] = joined(meets, out.level1, saved, j);
#pragma unroll
    for (u32 h = 0; h < 2; h++) {
      out.m2[h] = meets.m[h];
      out.l2[h] = meets.l[h];
    }
  }
}

/* Two warpgroups, group 0 and 1: O of a quarter of the columns each. */
NUM void attend(const mla_attn_args &a, const place &p, u32 group) {
  const u32 blocks = a.chunk_tokens / PAGE_TOKENS;
  const u32 column = (p.rank * 2u + group) * WIDTH + threadIdx.x % 4u * 2u;
  float4 *saved = (float4 *)(a.scratch + (u64)blockIdx.x * attn_scratch_floats(64, SPEC_KV_LORA_RANK)) + threadIdx.x;
  output out;
  out.here = out.there = 0;
  clear_sums(out);
  item it;
  for (u32 n = 0; take_item(p, n, it, false); n++) {
    const rows r = rows_of(it);
    u32 chunk = it.first / blocks, in_group = chunk % a.group_chunks, in_chunk = 0;
    for (u32 block = it.first; block <= it.last; block++) {
      take_block(p, out, block, it, in_chunk == 0, group);
      if (++in_chunk < blocks && block != it.last) continue;
      end_chunk(a, out, it, r, chunk, in_group, block == it.last, saved, column);
      in_chunk = 0;
      if (block == it.last) break;
      chunk++;
      in_group = in_group + 1u < a.group_chunks ? in_group + 1u : 0u;
    }
    meeting meets = meet(out.level1, out.m2, out.l2, r, (chunk - in_group) * a.chunk_tokens);
    share_sums(p, meets, n, group);
    if (it.cut == ATTN_WHOLE) write_out(a, it, meets, out.level1, saved, r, column);
  }
}

NUM void start_barriers(const place &p) {
  for (u32 i = 0; i < BARRIERS; i++) {
    const bool by_warps = (i >= OTHERS_FREE && i <= P_COME) || i == Q_FREE; /* the warps of one warpgroup */
    /* P: the warps of two here, and of two of the other block. Items: those of three, and two threads. */
    ptx_barrier_init(barrier_at(p, i), by_warps ? 4u : i == P_FREE ? 16u : i >= ITEM_FREE ? 14u : 1u);
  }
  ptx_barrier_ready();
}

extern "C" __global__ __cluster_dims__(KERNEL_CLUSTER_X, 1, 1) __launch_bounds__(SPEC_THREADS, 1)
void mla_attn(const __grid_constant__ mla_attn_args a, const __grid_constant__ tensor_maps maps) {
  extern __shared__ u8 raw[];
  ptx_grid_next();
  place p;
  p.base = (ptx_shared(raw) + 1023u) & ~1023u;
  p.shared = raw + (p.base - ptx_shared(raw));
  p.rank = blockIdx.x % 2u;
  if ((p.base & 0xffffffu) != BASE) __trap(); /* above are bits of the cluster's block */
  if (threadIdx.x == 0) start_barriers(p);
  if (threadIdx.x < 64u) ((u32 *)(p.shared + AT_ONES))[threadIdx.x] = 0x3f803f80u;
  ptx_fence_async();
  ptx_cluster_sync();
  ptx_grid_wait();

  const u32 group = ptx_uniform(threadIdx.x / 128u);
  if (group < 2u) {
    PTX_REGISTERS_MORE(200);
    attend(a, p, group);
  } else if (group == 2u) {
    PTX_REGISTERS_LESS(72);
    weigh(a, p);
  } else {
    PTX_REGISTERS_LESS(40);
    const u32 warp = ptx_uniform(threadIdx.x / 32u);
    if (threadIdx.x == 384u) bring_keys(a, maps, p);
    if (threadIdx.x == 416u) bring_values(a, maps, p);
    if (warp == 14u) deal(a, p);
  }
  __syncwarp();
  ptx_cluster_sync(); /* the other block may still write here */
}

/* mla_pair.cuh - mla_attn for up to 64 operand rows by two blocks side by side. NUMERICS.md, `mla_attn`.
 *
 * A cluster of two blocks takes one item at a time: a tile (consecutive tokens of one sequence), up to 64 heads, and all chunks (whole)
 * or those of one unit (split). Its 64 operand rows are the (token, head) pairs, row = token * heads + head; rows beyond are dead:
 * anything goes in, nothing comes out. Each block owns half of the output columns, so that both a chunk's O and the running fold of the
 * group stay in registers, and weighs every other KV block of 64 tokens; P and the row maxima go to the other block by copies between
 * their shared memories. Four warpgroups: two make O (a quarter of the columns each), one makes S and P, one thread each of the
 * fourth brings the blocks that are weighed here (all columns) and the other ones (own half of V).
 *   S[64][64] = Q KV^T; m goes from block to block of a chunk; P as bf16 into both shared memories;
 *   O[64][kv_lora_rank / 4] += P V, l += P 1 in each of the two warpgroups, V being the KV block itself, read across.
 * Every row has its own position: what lies beyond it weighs +0, and chunks that start beyond it are not folded. The groups' fold
 * (level 2) lies in `scratch`, in fragment order; a thread only reads there what it wrote.
 * Grid: any even number of blocks; pairs stride over the items, every other round backwards, the last tiles (the longest) first.
 * Dynamic shared bytes: 232448 for 512 + 64, all that a block may have. A pair moves, per block of 64 tokens, 9 + 4 boxes of 8192 bytes
 * from L2 (2 * 64 * 64 * (576 + 512) operations: 84 operations a byte). */
#include "ptx.cuh"

static_assert(SPEC_THREADS == 512, "four warpgroups");
static_assert(SPEC_KV_LORA_RANK == 256 || SPEC_KV_LORA_RANK == 512, "a quarter of it is a width of ptx_multiply_across");
static_assert(SPEC_ROPE_DIM == 32 || SPEC_ROPE_DIM == 64, "");
static_assert(SPEC_PAIR == 2 && SPEC_MAPS == 1, "");

#define COLUMNS (SPEC_KV_LORA_RANK + SPEC_ROPE_DIM)
#define BOXES ((COLUMNS + 63u) / 64u)     /* a block of 64 rows lies in boxes of 64 columns, [64][128 bytes] each, swizzled */
#define BOX_BYTES 8192u
#define HALF (SPEC_KV_LORA_RANK / 128u)   /* boxes of V that this block of the pair multiplies                              */
#define OTHERS (BOXES - HALF)             /* boxes that only S needs                                                        */
#define WIDTH (SPEC_KV_LORA_RANK / 4u)    /* output columns of a warpgroup                                                  */
#define WIDTH_BOXES (WIDTH / 64u)
#define OUTPUTS (WIDTH / 2u)              /* of a thread: element 4 * j + 2 * h + e is row h, column 8 * j + e              */
#define NO_MAX (-0x1p60f)
#define INFINITE __int_as_float(0x7f800000)

/* Shared memory, from a multiple of 1024. KV boxes: those only for S; those for S and O, of two blocks; those only for O. */
#define AT_Q 0u
#define AT_OTHERS (AT_Q + BOXES * BOX_BYTES)
#define AT_BOTH (AT_OTHERS + OTHERS * BOX_BYTES)
#define AT_VALUES (AT_BOTH + 2u * HALF * BOX_BYTES)
#define AT_P (AT_VALUES + HALF * BOX_BYTES) /* P made here, and the other block's */
#define AT_MAX (AT_P + 2u * BOX_BYTES)      /* [2][64] m behind each P            */
#define AT_PASSED (AT_MAX + 512u)           /* [3][32][2] m of the block before, of rows r and r + 8 */
#define AT_SUM (AT_PASSED + 768u)           /* [2][64] l at the end of an item    */
#define AT_ONES (AT_SUM + 512u)
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
#define BARRIERS (Q_FREE + 1u)
static_assert(AT_BARRIERS + BARRIERS * 8u + 512u <= 232448u, "with what the base may lack to a multiple of 1024");

/* What a pair works on. */
typedef struct item {
  attn_tile tile;
  u32 head, heads;   /* of this group                    */
  u32 chunk, chunks; /* first, and how many              */
  u32 unit;
  u32 position;      /* last position of the tile        */
  u32 first, last;   /* blocks of 64 tokens              */
} item;

/* A thread's two rows of the operand: the row r and r + 8 of its warp's 16. */
typedef struct rows {
  i32 position[2]; /* -1: dead                                                   */
  u64 pair[2];     /* token row * heads + head, or that of the partial results   */
} rows;

/* Folded (m, l, O) of the thread's two rows; l only in the first warpgroup. */
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

/* Item number i, or none: chunks 0. Head groups of a tile follow each other, so that their KV reads meet in L2. */
NUM item item_of(const mla_attn_args &a, u32 i) {
  const u32 groups = (a.heads + 63u) / 64u, group = i % groups, tiles = a.step->tile_count, blocks = a.chunk_tokens / PAGE_TOKENS;
  item it;
  it.unit = i / groups / tiles;
  it.tile = a.tiles[tiles - 1u - i / groups % tiles];
  it.head = group * 64u;
  it.heads = a.heads - it.head < 64u ? a.heads - it.head : 64u;
  it.position = it.tile.position + it.tile.count - 1u;
  const u32 end = it.position / a.chunk_tokens + 1u, left = end - it.unit * a.unit_chunks;
  it.chunk = it.unit * a.unit_chunks;
  it.chunks = a.unit_chunks == 0 ? end : it.chunk >= end ? 0 : left < a.unit_chunks ? left : a.unit_chunks;
  it.first = it.chunk * blocks;
  it.last = it.first + it.chunks * blocks - 1u;
  if (it.position / PAGE_TOKENS < it.last) it.last = it.position / PAGE_TOKENS;
  return it;
}

NUM u32 items_of(const mla_attn_args &a) { return a.step->tile_count * ((a.heads + 63u) / 64u) * (a.unit_chunks ? a.units_max : 1u); }

/* The item of this pair in a round, and whether there is one. */
NUM bool next_item(const mla_attn_args &a, u32 items, u32 round, item &it) {
  const u32 pairs = gridDim.x / 2u, pair = blockIdx.x / 2u, i = round * pairs + (round % 2u ? pairs - 1u - pair : pair);
  it.chunks = 0;
  if (i < items) it = item_of(a, i);
  return round * pairs < items;
}

/* First block of the item that this block of the pair weighs (other 0), or the other one does (other 1). */
NUM u32 first_of(const item &it, const place &p, u32 other) { return it.first + ((it.first ^ p.rank ^ other) & 1u); }

/* The thread's rows of an item. Split: a row whose unit lies beyond its position is dead. */
NUM rows rows_of(const mla_attn_args &a, const item &it) {
  rows r;
#pragma unroll
  for (u32 h = 0; h < 2; h++) {
    const u32 row = threadIdx.x % 128u / 32u * 16u + threadIdx.x % 32u / 4u + 8u * h, token = row / it.heads;
    const u32 position = it.tile.position + token;
    const bool live = token < it.tile.count && position >= it.chunk * a.chunk_tokens;
    r.position[h] = live ? (i32)position : -1;
    r.pair[h] = (u64)(it.tile.row + token);
    if (a.unit_chunks) r.pair[h] = r.pair[h] * a.units_max + it.unit;
    r.pair[h] = r.pair[h] * a.heads + it.head + row % it.heads;
  }
  return r;
}

/* === Bringing =========================================================================================================== */

/* Whether box x of a block weighs and is multiplied here, and its number among its like. */
NUM bool is_both(const place &p, u32 x) { return x / HALF == p.rank; }
NUM u32 other_of(u32 x) { return x < HALF ? x : x - HALF; }

/* One thread: the queries, and all columns of the blocks that are weighed here. */
NUM void bring_keys(const mla_attn_args &a, const tensor_maps &maps, const place &p) {
  const u32 items = items_of(a);
  const u64 often = ptx_often();
  item it;
  for (u32 round = 0, k = 0, queries = 0; next_item(a, items, round, it); round++) {
    if (it.chunks == 0) continue;
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
  const u32 items = items_of(a);
  const u64 often = ptx_often();
  item it;
  for (u32 round = 0, k = 0; next_item(a, items, round, it); round++) {
    if (it.chunks == 0) continue;
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

/* s = Q KV^T, box by box as they come; boxes that only S needs are free behind it. k: number of the block among those weighed here. */
NUM void multiply_scores(const place &p, f32 (&s)[32], u32 k) {
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
    const u64 q = ptx_operand(PTX_SWIZZLED, p.base + AT_Q + x * BOX_BYTES), key = ptx_operand(PTX_SWIZZLED, p.base + at);
    ptx_multiply_fence();
#pragma unroll
    for (u32 i = 0; i < 4; i++)
      if (x * 64u + i * 16u < COLUMNS) ptx_multiply(s, q + i * 2u, key + i * 2u);
    ptx_multiply_commit();
    PTX_MULTIPLY_WAIT(1);
    if (x > 0 && !is_both(p, x - 1u) && threadIdx.x % 32u == 0) ptx_barrier_arrive(barrier_at(p, OTHERS_FREE + other_of(x - 1u)));
  }
  PTX_MULTIPLY_WAIT(0);
  if (threadIdx.x % 32u == 0) ptx_barrier_arrive(barrier_at(p, OTHERS_FREE + OTHERS - 1u)); /* the last box holds rope columns */
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

/* P and m of a block into shared memory, here and in the other block, each warp its 16 rows. */
NUM void give_weights(const place &p, const u32 (&w)[16], const f32 (&m)[2]) {
  const u32 lane = threadIdx.x % 32u, first = threadIdx.x % 128u / 32u * 16u, row = first + lane / 4u, pair = lane % 4u;
#pragma unroll
  for (u32 i = 0; i < 16; i++) {
    const u32 to = row + 8u * (i % 2u);
    *(u32 *)(p.shared + AT_P + to * 128u + (((i / 2u) ^ (to % 8u)) << 4) + pair * 4u) = w[i];
  }
  if (pair == 0) {
    f32 *max_of = (f32 *)(p.shared + AT_MAX);
    max_of[row] = m[0];
    max_of[row + 8u] = m[1];
  }
  ptx_fence_async();
  __syncwarp(); /* the warp's rows are whole */
  if (lane == 0) {
    const u32 come = ptx_peer(barrier_at(p, P_COME + 1u), p.rank ^ 1u), weights = AT_P + first * 128u, maxima = AT_MAX + first * 4u;
    ptx_copy_peer(ptx_peer(p.base + weights + BOX_BYTES, p.rank ^ 1u), p.base + weights, 2048u, come);
    ptx_copy_peer(ptx_peer(p.base + maxima + 256u, p.rank ^ 1u), p.base + maxima, 64u, come);
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

/* One warpgroup: S and P of the blocks that are weighed here. m comes from the block before, and goes to the one behind. */
NUM void weigh(const mla_attn_args &a, const place &p) {
  const u32 items = items_of(a), at = (threadIdx.x % 128u / 32u * 8u + threadIdx.x % 32u / 4u) * 8u;
  const u32 blocks = a.chunk_tokens / PAGE_TOKENS;
  item it;
  for (u32 round = 0, k = 0, taken = 0, given = 0; next_item(a, items, round, it); round++) {
    if (it.chunks == 0) continue;
    const rows r = rows_of(a, it);
    for (u32 block = first_of(it, p, 0); block <= it.last; block += 2u, k++) {
      f32 s[32], m[2] = {NO_MAX, NO_MAX}, top[2];
      u32 w[16];
      multiply_scores(p, s, k);
      if (block + 2u > it.last && threadIdx.x % 32u == 0) ptx_barrier_arrive(barrier_at(p, Q_FREE));
      scale_scores(a, s, r, block, block * PAGE_TOKENS + PAGE_TOKENS - 1u > it.tile.position, top);
      if (block > it.first) take_maxima(p, m, at, taken++, block % blocks != 0);
#pragma unroll
      for (u32 h = 0; h < 2; h++) m[h] = fmaxf(m[h], num_ceil(top[h]));
      __syncwarp(); /* all lanes have read the maxima that came */
      if (block < it.last) give_maxima(p, m, at, given++);
      make_weights(s, m, w);
      wait_free(p, P_FREE, k);
      give_weights(p, w, m);
    }
  }
}

/* === Multiplying ======================================================================================================== */

/* o += P V, l += P 1 (first warpgroup): tokens in four steps of 16. */
NUM void multiply_values(f32 (&o)[OUTPUTS], f32 (&l)[4], u32 weights, u32 values, u32 ones_at, u32 group) {
  const u64 p = ptx_operand(PTX_SWIZZLED, weights), v = ptx_operand(PTX_ACROSS(BOX_BYTES), values);
  const u64 ones = ptx_operand(PTX_PLAIN, ones_at);
#pragma unroll
  for (u32 i = 0; i < 4; i++) ptx_hold(l[i]);
#pragma unroll
  for (u32 i = 0; i < OUTPUTS; i++) ptx_hold(o[i]);
  ptx_multiply_fence();
#pragma unroll
  for (u32 i = 0; i < 4; i++) ptx_multiply_across(o, p + i * 2u, v + i * 128u);
  if (group == 0) {
#pragma unroll
    for (u32 i = 0; i < 4; i++) ptx_multiply(l, p + i * 2u, ones);
  }
  ptx_multiply_commit();
  PTX_MULTIPLY_WAIT(0);
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

/* right = the fold of the saved (m, l, O) and right for rows that have tokens from position start on; the others get what was saved. */
NUM void fold_saved(chain &right, const f32 (&m)[2], const f32 (&l)[2], const float4 *saved, const rows &r, u32 start) {
  f32 fa[2], fb[2];
  bool live[2];
#pragma unroll
  for (u32 h = 0; h < 2; h++) {
    live[h] = r.position[h] >= (i32)start;
    const f32 top = live[h] ? fmaxf(m[h], right.m[h]) : m[h];
    fa[h] = num_exp2_int(num_sub(m[h], top));
    fb[h] = num_exp2_int(num_sub(right.m[h], top));
    right.m[h] = top;
    right.l[h] = live[h] ? num_fma(right.l[h], fb[h], num_mul(l[h], fa[h])) : l[h];
  }
#pragma unroll
  for (u32 j = 0; j < OUTPUTS / 4u; j++) {
    const float4 left = saved[j * 256u];
    f32 *o = right.o + 4u * j;
    o[0] = live[0] ? num_fma(o[0], fb[0], num_mul(left.x, fa[0])) : left.x;
    o[1] = live[0] ? num_fma(o[1], fb[0], num_mul(left.y, fa[0])) : left.y;
    o[2] = live[1] ? num_fma(o[2], fb[1], num_mul(left.z, fa[1])) : left.z;
    o[3] = live[1] ? num_fma(o[3], fb[1], num_mul(left.w, fa[1])) : left.w;
  }
}

/* Whole: bf16(O * (1 / l) + 0). */
NUM void write_out(const mla_attn_args &a, const chain &c, const f32 (&l)[2], const rows &r, u32 column) {
#pragma unroll
  for (u32 h = 0; h < 2; h++) {
    if (r.position[h] < 0) continue;
    const f32 share = num_div(1.0f, l[h]);
    u32 *out = (u32 *)(a.out + r.pair[h] * SPEC_KV_LORA_RANK + column);
#pragma unroll
    for (u32 j = 0; j < OUTPUTS / 4u; j++) {
      const f32 x = num_add(num_mul(c.o[4u * j + 2u * h], share), 0.0f), y = num_add(num_mul(c.o[4u * j + 2u * h + 1u], share), 0.0f);
      out[4u * j] = ptx_pack_bf16(x, y);
    }
  }
}

/* Split: the unit's result. */
NUM void write_partial(const mla_attn_args &a, const chain &c, const rows &r, u32 column) {
#pragma unroll
  for (u32 h = 0; h < 2; h++) {
    if (r.position[h] < 0) continue;
    f32 *out = a.partial_o + r.pair[h] * SPEC_KV_LORA_RANK + column;
#pragma unroll
    for (u32 j = 0; j < OUTPUTS / 4u; j++) *(float2 *)(out + 8u * j) = make_float2(c.o[4u * j + 2u * h], c.o[4u * j + 2u * h + 1u]);
    if (column == 0) *(float2 *)(a.partial_ml + r.pair[h] * 2u) = make_float2(c.m[h], c.l[h]);
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
NUM void take_block(const place &p, output &out, u32 block, const item &it, u32 blocks, u32 group) {
  const u32 row = threadIdx.x % 128u / 32u * 16u + threadIdx.x % 32u / 4u, other = (block ^ p.rank) & 1u;
  const u32 set = out.here % 2u, boxes = group * WIDTH_BOXES;
  const u32 number = other ? out.there : out.here, come = other ? VALUES_COME : BOTH_COME + set * HALF;
  const u32 values = (other ? AT_VALUES : AT_BOTH + set * HALF * BOX_BYTES) + boxes * BOX_BYTES;
  if (other && threadIdx.x == 0) ptx_barrier_expect(barrier_at(p, P_COME + 1u), P_BYTES);
  wait_for(p, P_COME + other, number);
  const f32 *max_of = (const f32 *)(p.shared + AT_MAX) + other * 64u;
  const f32 m[2] = {max_of[row], max_of[row + 8u]};
  if (block % blocks && __ballot_sync(WARP_ALL, m[0] != out.m[0] || m[1] != out.m[1])) {
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
  const u32 live = it.position % PAGE_TOKENS + 1u;
  if (block == it.position / PAGE_TOKENS && live < PAGE_TOKENS) clear_rows(p, values, live, group);
  multiply_values(out.o, out.l, p.base + AT_P + other * BOX_BYTES, p.base + values, p.base + AT_ONES, group);
  if (threadIdx.x % 32u == 0) {
    ptx_barrier_arrive(barrier_at(p, other ? VALUES_FREE + group : BOTH_FREE + set * 2u + group));
    if (other)
      ptx_barrier_arrive_peer(ptx_peer(barrier_at(p, P_FREE), p.rank ^ 1u));
    else
      ptx_barrier_arrive(barrier_at(p, P_FREE));
  }
  out.here += other ^ 1u;
  out.there += other;
}

/* The chunk that ends with `block` into the folds. */
NUM void end_chunk(const mla_attn_args &a, output &out, const item &it, const rows &r, u32 block, float4 *saved) {
  const u32 chunk = block / (a.chunk_tokens / PAGE_TOKENS), in_group = chunk % a.group_chunks;
  if (chunk == it.chunk || in_group == 0) { /* the fold of nothing and a result is the result */
    out.level1.m[0] = out.level1.m[1] = NO_MAX;
    out.level1.l[0] = out.level1.l[1] = 0.0f;
#pragma unroll
    for (u32 i = 0; i < OUTPUTS; i++) out.level1.o[i] = 0.0f;
  }
  fold(out.level1, out.m, out.l, out.o, r, chunk * a.chunk_tokens);
  clear_sums(out);
  if (a.unit_chunks || (block != it.last && in_group != a.group_chunks - 1u)) return;
  if (chunk >= a.group_chunks) fold_saved(out.level1, out.m2, out.l2, saved, r, (chunk - in_group) * a.chunk_tokens);
  if (block == it.last) return;
#pragma unroll
  for (u32 h = 0; h < 2; h++) {
    out.m2[h] = out.level1.m[h];
    out.l2[h] = out.level1.l[h];
  }
#pragma unroll
  for (u32 j = 0; j < OUTPUTS / 4u; j++)
    saved[j * 256u] = make_float4(out.level1.o[4u * j], out.level1.o[4u * j + 1u], out.level1.o[4u * j + 2u], out.level1.o[4u * j + 3u]);
}

/* Two warpgroups, group 0 and 1: O of a quarter of the columns each. */
NUM void attend(const mla_attn_args &a, const place &p, u32 group) {
  const u32 items = items_of(a), blocks = a.chunk_tokens / PAGE_TOKENS;
  const u32 row = threadIdx.x % 128u / 32u * 16u + threadIdx.x % 32u / 4u;
  const u32 column = (p.rank * 2u + group) * WIDTH + threadIdx.x % 4u * 2u;
  float4 *saved = (float4 *)(a.scratch + (u64)blockIdx.x * 32u * SPEC_KV_LORA_RANK) + threadIdx.x;
  output out;
  out.here = out.there = 0;
  clear_sums(out);
  item it;
  for (u32 round = 0, done = 0; next_item(a, items, round, it); round++) {
    if (it.chunks == 0) continue;
    const rows r = rows_of(a, it);
    for (u32 block = it.first; block <= it.last; block++) {
      take_block(p, out, block, it, blocks, group);
      if (block % blocks == blocks - 1u || block == it.last) end_chunk(a, out, it, r, block, saved);
    }
    if (a.unit_chunks) {
      write_partial(a, out.level1, r, column);
      continue;
    }
    f32 *sum = (f32 *)(p.shared + AT_SUM) + done++ % 2u * 64u;
    if (group == 0 && threadIdx.x % 4u == 0) {
      sum[row] = out.level1.l[0];
      sum[row + 8u] = out.level1.l[1];
    }
    ptx_warps_sync(3, 256);
    const f32 l[2] = {sum[row], sum[row + 8u]};
    write_out(a, out.level1, l, r, column);
  }
}

NUM void start_barriers(const place &p) {
  for (u32 i = 0; i < BARRIERS; i++) {
    const bool by_warps = (i >= OTHERS_FREE && i <= P_COME) || i == Q_FREE; /* the warps of one warpgroup */
    ptx_barrier_init(barrier_at(p, i), by_warps ? 4u : i == P_FREE ? 16u : 1u); /* P: those of two here, and of two of the other block */
  }
  ptx_barrier_ready();
}

extern "C" __global__ __cluster_dims__(2, 1, 1) __launch_bounds__(SPEC_THREADS, 1)
void mla_attn(const __grid_constant__ mla_attn_args a, const __grid_constant__ tensor_maps maps) {
  extern __shared__ u8 raw[];
  ptx_grid_next();
  place p;
  p.base = (ptx_shared(raw) + 1023u) & ~1023u;
  p.shared = raw + (p.base - ptx_shared(raw));
  p.rank = ptx_cluster_rank();
  if (threadIdx.x == 0) start_barriers(p);
  if (threadIdx.x < 64u) ((u32 *)(p.shared + AT_ONES))[threadIdx.x] = 0x3f803f80u;
  ptx_fence_async();
  ptx_cluster_sync();
  ptx_grid_wait();

  const u32 group = ptx_uniform(threadIdx.x / 128u);
  if (group < 2u) { /* a constant each: which multiplications follow each other must be known */
    PTX_REGISTERS_MORE(176);
    if (group == 0) attend(a, p, 0);
    else attend(a, p, 1);
  } else if (group == 2u) {
    PTX_REGISTERS_LESS(120);
    weigh(a, p);
  } else {
    PTX_REGISTERS_LESS(40);
    if (threadIdx.x == 384u) bring_keys(a, maps, p);
    if (threadIdx.x == 416u) bring_values(a, maps, p);
  }
  ptx_cluster_sync(); /* the other block may still write here */
}

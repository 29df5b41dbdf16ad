/* mla_attn.cu - absorbed latent attention over the paged KV rows of a step. NUMERICS.md, `mla_attn`.
 *
 * Two forms. mla_decode.cuh: few heads, at most 32 rows (token, head) of a tile at a time. Here: up to 64.
 * A block of two warpgroups takes one piece at a time (attn_share.cuh): chunks of a tile (consecutive tokens of one sequence), for up to
 * 64 heads. Its 64 operand rows are the (token, head) pairs, row = token * heads + head;
 * rows beyond are dead: zeros go in, nothing comes out. Per block of 64 KV rows:
 *   S[64][64] = Q KV^T      each warpgroup 32 of the tokens;
 *   row maxima are exchanged, m, the rescale, and P as bf16 into shared memory;
 *   O[64][kv_lora_rank] += P V, l += P 1      V is the KV block itself, read across; each warpgroup half of the columns.
 * The next KV block is on its way meanwhile. Every row has its own position: what lies beyond it weighs +0, and chunks that
 * start beyond it are not folded. Fold state between chunks: `scratch`, in fragment order; a thread only reads there what it
 * wrote.
 * Dynamic shared bytes: 1024 + 3 * 8192 * ceil((kv_lora_rank + rope_dim) / 64) + 8192 + 2048: 232448 for 512 + 64.
 * Grid: any number of blocks. Moves the KV rows of each piece once, (kv_lora_rank + rope_dim) * 2
 * bytes each. */
#include "spec.cuh"
#if SPEC_MAPS
#include "mla_decode.cuh"

extern "C" __global__ __launch_bounds__(BLOCK_THREADS, 1) void mla_attn(const __grid_constant__ mla_attn_args a,
                                                                       const __grid_constant__ tensor_maps maps) {
  extern __shared__ u8 raw[];
  ptx_grid_next();
  decode(a, maps, raw);
}
#else
#include "attn_share.cuh"

static_assert(SPEC_THREADS == 256, "two warpgroups");
static_assert(SPEC_KV_LORA_RANK == 256 || SPEC_KV_LORA_RANK == 512, "half of it is a width of ptx_multiply_across");
static_assert(SPEC_ROPE_DIM == 32 || SPEC_ROPE_DIM == 64, "");

#define COLUMNS (SPEC_KV_LORA_RANK + SPEC_ROPE_DIM)
#define BOXES ((COLUMNS + 63u) / 64u) /* a block of 64 rows lies in boxes of 64 columns, [64][128 bytes] each, swizzled */
#define BOX_BYTES 8192u
#define BLOCK_BYTES (BOXES * BOX_BYTES)
#define HALF (SPEC_KV_LORA_RANK / 2u) /* output columns of a warpgroup */
#define OUTPUTS (HALF / 2u)           /* of a thread: element 4 * j + 2 * h + e is row h, column 8 * j + e */
#define NO_MAX (-0x1p60f)
#define INFINITE __int_as_float(0x7f800000)

/* Shared memory, from a multiple of 1024: Q, two KV blocks, P, row maxima [2][64], ones, the cut. */
#define AT_KV BLOCK_BYTES
#define AT_P (3u * BLOCK_BYTES)
#define AT_MAX (AT_P + BOX_BYTES)
#define AT_ONES (AT_MAX + 512u)
#define AT_SHARE (AT_ONES + 256u)

/* A thread's two rows of the operand: the row r and r + 8 of its warp's 16. */
typedef struct rows {
  i32 position[2];    /* -1: dead                          */
  u64 pair[2];        /* token row * heads + head               */
  u64 unit[2];        /* the same of a cut tile's first unit    */
} rows;

/* Running (m, l, O) of the thread's two rows. l[0] and l[2] are the rows' sums, the others copies. */
typedef struct chain {
  f32 m[2], l[4], o[OUTPUTS];
} chain;

/* Where a thread keeps a chain between chunks: m and l here, O in memory, two columns at at[h] + 1024 * j. */
typedef struct saved {
  f32 m[2], l[2];
  f32 *at[2];
} saved;

/* Starts the copy of this thread's pieces of one row; the next piece lies 64 columns, and one box, further. */
NUM void load_row(u32 to, const bf16 *from, u32 bytes) {
#pragma unroll
  for (u32 x = 0; x < BOXES; x++)
    if (x * 64u + threadIdx.x % 8u * 8u < COLUMNS) ptx_copy16(to + x * BOX_BYTES, from + x * 64u, bytes);
}

/* Where row number `row` of a block, this thread's piece of it, lies behind the block's start. */
NUM u32 piece_at(u32 row) { return row * 128u + ((threadIdx.x % 8u) ^ (row % 8u)) * 16u; }

NUM void load_queries(const mla_attn_args &a, const attn_piece &it, u32 base) {
  const u32 live = it.tile.count * it.heads;
#pragma unroll
  for (u32 j = 0; j < 2; j++) {
    const u32 row = threadIdx.x / 8u + 32u * j, r = row < live ? row : 0u;
    const u64 pair = (u64)(it.tile.row + r / it.heads) * a.heads + it.head + r % it.heads;
    load_row(base + piece_at(row), a.q + pair * COLUMNS + threadIdx.x % 8u * 8u, row < live ? 16u : 0u);
  }
}

/* KV rows of one page; those beyond the tile's last position become zeros, whatever the page holds. */
NUM void load_block(const mla_attn_args &a, u32 page, u32 block, u32 last, u32 to) {
#pragma unroll
  for (u32 j = 0; j < 2; j++) {
    const u32 row = threadIdx.x / 8u + 32u * j;
    load_row(to + piece_at(row), a.kv + ((u64)page * PAGE_TOKENS + row) * COLUMNS + threadIdx.x % 8u * 8u,
             block * PAGE_TOKENS + row <= last ? 16u : 0u);
  }
}

/* s = Q KV^T for this warpgroup's 32 tokens. */
NUM void multiply_scores(f32 (&s)[16], u32 base, u32 kv, u32 group) {
  const u64 q = ptx_operand(PTX_SWIZZLED, base), k = ptx_operand(PTX_SWIZZLED, kv + group * 4096u);
#pragma unroll
  for (u32 i = 0; i < 16; i++) {
    s[i] = 0.0f;
    ptx_hold(s[i]);
  }
  ptx_multiply_fence();
#pragma unroll
  for (u32 i = 0; i < COLUMNS / 16u; i++) {
    const u32 step = i / 4u * (BOX_BYTES / 16u) + i % 4u * 2u;
    ptx_multiply(s, q + step, k + step);
  }
  ptx_multiply_commit();
  PTX_MULTIPLY_WAIT(0);
}

/* Scales and masks the scores, brings m up to date, rescales O and l, and leaves P in shared memory. */
NUM void weigh(const mla_attn_args &a, f32 (&s)[16], chain &c, const rows &r, u8 *shared, u32 block, u32 group) {
  const u32 lane = threadIdx.x % 32u, row = threadIdx.x % 128u / 32u * 16u + lane / 4u, pair = lane % 4u;
  f32 *max_of = (f32 *)(shared + AT_MAX);
  const i32 token = (i32)(block * PAGE_TOKENS + group * 32u + pair * 2u);
  f32 top[2] = {-INFINITE, -INFINITE};
#pragma unroll
  for (u32 i = 0; i < 16; i++) {
    const u32 h = i / 2u % 2u;
    const f32 t = num_mul(s[i], a.scale_log2);
    s[i] = token + (i32)(i / 4u * 8u + i % 2u) <= r.position[h] ? t : -INFINITE;
    top[h] = fmaxf(top[h], s[i]);
  }
#pragma unroll
  for (u32 h = 0; h < 2; h++) {
    top[h] = fmaxf(top[h], __shfl_xor_sync(WARP_ALL, top[h], 1));
    top[h] = fmaxf(top[h], __shfl_xor_sync(WARP_ALL, top[h], 2));
    if (pair == 0) max_of[group * 64u + row + 8u * h] = top[h];
  }
  __syncthreads();
  f32 factor[2];
#pragma unroll
  for (u32 h = 0; h < 2; h++) {
    const f32 m = fmaxf(c.m[h], num_ceil(fmaxf(top[h], max_of[(group ^ 1u) * 64u + row + 8u * h])));
    factor[h] = m != c.m[h] ? num_exp2_int(num_sub(c.m[h], m)) : 1.0f;
    c.m[h] = m;
  }
  if (factor[0] != 1.0f || factor[1] != 1.0f) {
#pragma unroll
    for (u32 i = 0; i < 4; i++) c.l[i] = num_mul(c.l[i], factor[i / 2u % 2u]);
#pragma unroll
    for (u32 i = 0; i < OUTPUTS; i++) c.o[i] = num_mul(c.o[i], factor[i / 2u % 2u]);
  }
#pragma unroll
  for (u32 i = 0; i < 8; i++) { /* pairs of tokens: 8 * (i / 2) + 2 * pair of row i % 2 */
    const u32 e = i / 2u * 4u + i % 2u * 2u, to = row + 8u * (i % 2u);
    const f32 p0 = num_exp2_bf16(num_sub(s[e], c.m[i % 2u])), p1 = num_exp2_bf16(num_sub(s[e + 1], c.m[i % 2u]));
    *(u32 *)(shared + AT_P + to * 128u + (((group * 4u + i / 2u) ^ (to % 8u)) << 4) + pair * 4u) = ptx_pack_bf16(p0, p1);
  }
}

/* O += P V, l += P 1: tokens in four steps of 16. */
NUM void multiply_values(chain &c, u32 base, u32 kv, u32 group) {
  const u64 p = ptx_operand(PTX_SWIZZLED, base + AT_P), ones = ptx_operand(PTX_PLAIN, base + AT_ONES);
  const u64 v = ptx_operand(PTX_ACROSS(BOX_BYTES), kv + group * (HALF / 64u) * BOX_BYTES);
  ptx_multiply_fence();
#pragma unroll
  for (u32 i = 0; i < 4; i++) {
    ptx_multiply_across(c.o, p + i * 2u, v + i * 128u);
    ptx_multiply(c.l, p + i * 2u, ones);
  }
  ptx_multiply_commit();
  PTX_MULTIPLY_WAIT(0);
}

/* c = the fold of saved (left) and c (right) for rows that have tokens from position start on; the others keep what was saved. */
NUM void fold_saved(chain &c, const saved &s, const rows &r, u32 start) {
#pragma unroll
  for (u32 h = 0; h < 2; h++) {
    if (r.position[h] < 0) continue;
    const bool live = r.position[h] >= (i32)start;
    const f32 m = live ? fmaxf(s.m[h], c.m[h]) : s.m[h];
    const f32 fa = num_exp2_int(num_sub(s.m[h], m)), fb = live ? num_exp2_int(num_sub(c.m[h], m)) : 0.0f;
    c.m[h] = m;
    c.l[2u * h] = live ? num_fma(c.l[2u * h], fb, num_mul(s.l[h], fa)) : s.l[h];
#pragma unroll
    for (u32 j = 0; j < OUTPUTS / 4u; j++) {
      const float2 left = *(const float2 *)(s.at[h] + (u64)j * 1024u);
      f32 *o = c.o + 4u * j + 2u * h;
      o[0] = live ? num_fma(o[0], fb, num_mul(left.x, fa)) : left.x;
      o[1] = live ? num_fma(o[1], fb, num_mul(left.y, fa)) : left.y;
    }
  }
}

NUM void save(saved &s, const chain &c, const rows &r) {
#pragma unroll
  for (u32 h = 0; h < 2; h++) {
    s.m[h] = c.m[h];
    s.l[h] = c.l[2u * h];
    if (r.position[h] < 0) continue;
#pragma unroll
    for (u32 j = 0; j < OUTPUTS / 4u; j++) {
      const f32 *o = c.o + 4u * j + 2u * h;
      *(float2 *)(s.at[h] + (u64)j * 1024u) = make_float2(o[0], o[1]);
    }
  }
}

/* Whole: bf16(O * (1 / l) + 0). */
NUM void write_out(const mla_attn_args &a, const chain &c, const rows &r, u32 column) {
#pragma unroll
  for (u32 h = 0; h < 2; h++) {
    if (r.position[h] < 0) continue;
    const f32 share = num_div(1.0f, c.l[2u * h]);
    u32 *out = (u32 *)(a.out + r.pair[h] * SPEC_KV_LORA_RANK + column);
#pragma unroll
    for (u32 j = 0; j < OUTPUTS / 4u; j++) {
      const f32 x = num_add(num_mul(c.o[4u * j + 2u * h], share), 0.0f), y = num_add(num_mul(c.o[4u * j + 2u * h + 1u], share), 0.0f);
      out[4u * j] = ptx_pack_bf16(x, y);
    }
  }
}

/* The thread's rows of a piece. */
NUM rows rows_of(const mla_attn_args &a, const attn_piece &it) {
  rows r;
#pragma unroll
  for (u32 h = 0; h < 2; h++) {
    const u32 row = threadIdx.x % 128u / 32u * 16u + threadIdx.x % 32u / 4u + 8u * h, token = row / it.heads;
    r.position[h] = token < it.tile.count ? (i32)(it.tile.position + token) : -1;
    r.pair[h] = (u64)(it.tile.row + token) * a.heads + it.head + row % it.heads;
    r.unit[h] = (u64)(it.slot + token) * a.heads + it.head + row % it.heads;
  }
  return r;
}

/* The partial result of unit number `unit`. */
NUM void store_unit(const mla_attn_args &a, const chain &c, const rows &r, u64 unit, u32 column) {
#pragma unroll
  for (u32 h = 0; h < 2; h++) {
    if (r.position[h] < 0) continue;
    const u64 row = r.unit[h] + unit;
    float2 *to = (float2 *)(a.partial_o + row * SPEC_KV_LORA_RANK + column);
#pragma unroll
    for (u32 j = 0; j < OUTPUTS / 4u; j++) to[4u * j] = make_float2(c.o[4u * j + 2u * h], c.o[4u * j + 2u * h + 1u]);
    if (column == 0) *(float2 *)(a.partial_ml + row * 2u) = make_float2(c.m[h], c.l[2u * h]);
  }
}

/* One piece, from the queries to the stored results. */
NUM void attend(const mla_attn_args &a, const attn_piece &it, u8 *shared, u32 base) {
  const u32 group = ptx_uniform(threadIdx.x / 128u), blocks = a.chunk_tokens / PAGE_TOKENS;
  const u32 column = group * HALF + threadIdx.x % 4u * 2u, first = it.first_block, last = it.end_block - 1u;
  const u32 last_token = it.tile.position + it.tile.count - 1u;
  const u32 *pages = a.block_table + (u64)it.tile.seq * a.block_table_stride;
  const rows r = rows_of(a, it);
  saved level1, level2; /* the group's fold so far, the groups' fold so far */
#pragma unroll
  for (u32 h = 0; h < 2; h++) {
    f32 *state = a.scratch + (u64)blockIdx.x * attn_scratch_floats(64u, SPEC_KV_LORA_RANK) + h * 512u + threadIdx.x * 2u;
    level1.at[h] = state;
    level2.at[h] = state + 64u * SPEC_KV_LORA_RANK;
  }

  __syncthreads(); /* the last item is done with shared memory */
  load_queries(a, it, base);
  load_block(a, pages[first], first, last_token, base + AT_KV);
  ptx_copy_commit();
  u32 next_page = first < last ? pages[first + 1u] : 0u, block = first;
  chain c;
  do {
    const u32 kv = base + AT_KV + (block - first) % 2u * BLOCK_BYTES, chunk = block / blocks;
    PTX_COPY_WAIT(0);
    ptx_fence_async();
    __syncthreads(); /* this block has come, and all are through with the other one */
    if (block < last) load_block(a, next_page, block + 1u, last_token, base + AT_KV + (block + 1u - first) % 2u * BLOCK_BYTES);
    ptx_copy_commit();
    if (block + 1u < last) next_page = pages[block + 2u];
    if (block % blocks == 0) {
      c.m[0] = c.m[1] = NO_MAX;
#pragma unroll
      for (u32 i = 0; i < 4; i++) c.l[i] = 0.0f;
#pragma unroll
      for (u32 i = 0; i < OUTPUTS; i++) c.o[i] = 0.0f;
    }
    f32 s[16];
    multiply_scores(s, base, kv, group);
    weigh(a, s, c, r, shared, block, group);
    ptx_fence_async();
    __syncthreads(); /* P is whole */
    multiply_values(c, base, kv, group);

    if (block % blocks == blocks - 1u || block == last) { /* the chunk ends */
      const u32 in_group = chunk % a.group_chunks;
      if (!attn_unit_starts(in_group, it.cut)) fold_saved(c, level1, r, chunk * a.chunk_tokens);
      if (block != last && in_group + 1u < a.group_chunks && !attn_unit_ends(in_group, it.cut)) {
        save(level1, c, r);
      } else if (it.cut != ATTN_WHOLE) {
        const u32 start = in_group < it.cut ? chunk - in_group : chunk;
        store_unit(a, c, r, (u64)attn_unit_at(start, it.cut, a.group_chunks) * it.tile.count * a.heads, column);
      } else {
        if (chunk >= a.group_chunks) fold_saved(c, level2, r, (chunk - in_group) * a.chunk_tokens);
        if (block == last) write_out(a, c, r, column);
        else save(level2, c, r);
      }
    }
  } while (++block <= last);
}

extern "C" __global__ __launch_bounds__(SPEC_THREADS) void mla_attn(const __grid_constant__ mla_attn_args a) {
  extern __shared__ u8 raw[];
  ptx_grid_next();
  const u32 base = (ptx_shared(raw) + 1023u) & ~1023u;
  u8 *shared = raw + (base - ptx_shared(raw));
  if (threadIdx.x < 64u) ((u32 *)(shared + AT_ONES))[threadIdx.x] = 0x3f803f80u; /* before attend's fences */

  attn_share *share = (attn_share *)(shared + AT_SHARE);
  share_make(share, nullptr, a);
  ptx_grid_wait();
  if (blockIdx.x == 0 && threadIdx.x < 32u) share_parts(share, a);
  for (u32 round = 0; share_nth(round) < share_count(share, a); round++)
    attend(a, share_piece(share, nullptr, a, share_nth(round)), shared, base);
}
#endif

/* mla_decode.cuh - the form of mla_attn for few heads: SPEC_ROWS (8, 16 or 32) rows of (token, head) at a time. NUMERICS.md, `mla_attn`.
 *
 * Tokens and latent columns lie on the 64-row side of the tensor cores, (token, head) rows on the narrow one, so that nothing is padded:
 *   S^T[64 tokens][rows] = K Q^T       O^T[64 columns][rows] += V^T P^T, V the same KV block read across, l^T += 1 P^T
 * A block of four warpgroups: scores (one or two, which take the KV blocks by turns), outputs (two where the columns of 32 rows do not fit
 * one's registers), and the copies. KV blocks come by TMA as boxes of 64 tokens x 64 columns, the rope's first, through a ring; a box is
 * free again when its last product is done. The running maximum goes with P from scores to outputs, and from one block's scores to
 * the next one's. Boxes of earlier steps' tokens are asked for before the kernels in front of this one have ended.
 * A block takes its pieces from attn_share.cuh; a tile with more tokens than fit is taken in passes. Groups are folded in registers, whole
 * tiles of several groups through `scratch`, where a thread only reads what it wrote.
 * Maps: w the KV rows, boxes of 64 x 64; x the queries, boxes of SPEC_ROWS x 64. Dynamic shared bytes: all that a block may have. Moves
 * the KV rows once, (kv_lora_rank + rope_dim) * 2 bytes each, and each unit of a cut tile. */
#ifndef VERBATIM_MLA_DECODE_CUH
#define VERBATIM_MLA_DECODE_CUH
#include "attn_share.cuh"

static_assert(SPEC_THREADS == 512, "four warpgroups");
static_assert(SPEC_ROWS == 8 || SPEC_ROWS == 16 || SPEC_ROWS == 32, "a width of ptx_multiply_turned");

#define ROWS SPEC_ROWS
#define COLUMNS (SPEC_KV_LORA_RANK + SPEC_ROPE_DIM)
#define V_BOXES (SPEC_KV_LORA_RANK / 64u)
#define BOXES (V_BOXES + 1u)
#define BOX_BYTES 8192u
#define OUT_GROUPS (SPEC_KV_LORA_RANK * ROWS > 8192u ? 2u : 1u) /* warpgroups for outputs, each with OUT_BOXES boxes of columns */
#define OUT_BOXES (V_BOXES / OUT_GROUPS)
#define SCORE_GROUPS (3u - OUT_GROUPS)
#define SCORE_THREADS (SCORE_GROUPS * 128u)
#define COPY_THREAD (SCORE_THREADS + OUT_GROUPS * 128u)
#define OWN (ROWS / 4u) /* rows that a thread holds numbers of: number 2 * j + e is row 8 * j + 2 * (lane % 4) + e */
#define NO_MAX (-0x1p60f)
#define INFINITE __int_as_float(0x7f800000)

typedef struct share_block {
  attn_share all;
  attn_lists lists;
} share_block;

#define Q_BOX_BYTES (ROWS * 128u)
#define P_BYTES ((ROWS < 16u ? 16u : ROWS) * 128u) /* a store of P writes 16 rows */
#define ONES_BYTES 2048u
#define SHARED_BYTES (232448u - 1024u)
#define FIXED_BYTES (BOXES * Q_BOX_BYTES + 2u * P_BYTES + ONES_BYTES + 1024u + 4u * ROWS * 4u + SCORE_GROUPS * 2u * ROWS * 16u + (u32)sizeof(share_block))
#define RING ((SHARED_BYTES - FIXED_BYTES) / BOX_BYTES)
static_assert(RING >= 2u * BOXES, "two blocks of KV rows, so that scores and outputs can work side by side");

/* Shared memory, from a multiple of 1024. */
#define AT_Q (RING * BOX_BYTES)
#define AT_P (AT_Q + BOXES * Q_BOX_BYTES)
#define AT_ONES (AT_P + 2u * P_BYTES)
#define AT_BARRIERS (AT_ONES + ONES_BYTES)
#define AT_MAX (AT_BARRIERS + 1024u)                   /* [2][ROWS] by block: the running maximum, for the next block's scores */
#define AT_P_MAX (AT_MAX + 2u * ROWS * 4u)             /* [2][ROWS]: the same, for the outputs */
#define AT_WARP_MAX (AT_P_MAX + 2u * ROWS * 4u)        /* [group][2][ROWS][4 warps]            */
#define AT_SHARE (AT_WARP_MAX + SCORE_GROUPS * 2u * ROWS * 16u)

/* Barriers. */
#define FULL(stage) (AT_BARRIERS + 8u * (stage))
#define EMPTY(stage) (AT_BARRIERS + 8u * (RING + (stage)))
#define Q_FULL (AT_BARRIERS + 16u * RING)
#define Q_EMPTY (Q_FULL + 8u)
#define P_FULL(i) (Q_FULL + 16u + 8u * (i))
#define P_EMPTY(i) (Q_FULL + 32u + 8u * (i))
#define MAX_READY(i) (Q_FULL + 48u + 8u * (i))

#define COPY_REGISTERS (OUT_GROUPS == 2u ? 32 : 40)
#define SCORE_REGISTERS (OUT_GROUPS == 2u ? 104 : 112)
#define OUT_REGISTERS (OUT_GROUPS == 2u ? 184 : 240)

typedef struct place { u32 stage, phase; } place; /* in the ring */

NUM place place_after(place p, u32 boxes) {
  p.stage += boxes;
  if (p.stage >= RING) {
    p.stage -= RING;
    p.phase ^= 1u;
  }
  return p;
}
/* Where box k of the columns lies when the block starts at p: the last one stands first. */
NUM place place_of(place p, u32 k) { return place_after(p, k == V_BOXES ? 0u : k + 1u); }

typedef struct pass { /* of a piece: its tokens that fit */
  u32 token, tokens;
} pass;

NUM u32 pass_count(const attn_piece &p) { return (p.tile.count + ROWS / p.heads - 1u) / (ROWS / p.heads); }
NUM pass pass_of(const attn_piece &p, u32 i) {
  const u32 most = ROWS / p.heads, token = i * most;
  return {token, p.tile.count - token < most ? p.tile.count - token : most};
}

#define FOR_PIECES(p, share, a)                                                                                       \
  for (u32 round_ = 0; share_nth(round_) < share_count(&share->all, a); round_++)                                           \
    if (const attn_piece p = share_piece(&share->all, &share->lists, a, share_nth(round_)); true)
#define FOR_PASSES(w, p)                            \
  for (u32 pass_ = 0; pass_ < pass_count(p); pass_++) \
    if (const pass w = pass_of(p, pass_); true)

/* === Copies ============================================================================================================= */

/* Whether this step completes one of the lanes' pages: a prompt's page that another sequence of the step shares. */
NUM bool is_being_written(const share_block *share, const mla_attn_args &a, u32 page, u32 pages) {
  bool found = false;
  for (u32 i = 0; i < share->all.tiles; i += 32u) {
    const u32 nth = i + threadIdx.x % 32u;
    u32 written = 0xffffffffu;
    if (nth < share->all.tiles) {
      const attn_tile t = a.tiles[nth];
      if (t.position / PAGE_TOKENS != (t.position + t.count) / PAGE_TOKENS)
        written = a.block_table[(u64)t.seq * a.block_table_stride + t.position / PAGE_TOKENS];
    }
    for (u32 k = 0; k < pages; k++) {
      const u32 wanted = __shfl_sync(WARP_ALL, page, k);
      found = found || wanted == written;
    }
  }
  return __ballot_sync(WARP_ALL, found) != 0;
}

/* One warp. What a first ring of boxes holds may be asked for at once where no kernel of this step writes it. */
NUM void copy_kv(const mla_attn_args &a, const tensor_maps &maps, const share_block *share, u32 base) {
  const u64 policy = ptx_once();
  const u32 lane = threadIdx.x % 32u;
  place at = {0, 1};
  u32 early = RING / BOXES;
  bool first = true;
  FOR_PIECES(p, share, a) {
    const u32 *pages = a.block_table + (u64)p.tile.seq * a.block_table_stride;
    FOR_PASSES(w, p) {
      u32 page = 0;
      for (u32 block = p.first_block; block < p.end_block; block++) {
        const u32 nth = (block - p.first_block) % 32u;
        if (nth == 0) page = block + lane < p.end_block ? pages[block + lane] : 0u;
        if (first) {
          const u32 most = p.end_block - block < early ? p.end_block - block : early;
          if (is_being_written(share, a, page, most)) early = 0;
          first = false;
        }
        if (early != ~0u && (early == 0 || w.token > 0 || block >= p.tile.position / PAGE_TOKENS || block >= p.first_block + early)) {
          ptx_grid_wait();
          early = ~0u;
        }
        const u32 row = __shfl_sync(WARP_ALL, page, nth) * PAGE_TOKENS;
#pragma unroll 1
        for (u32 k = 0; k < BOXES; k++) {
          ptx_barrier_wait(base + EMPTY(at.stage), at.phase);
          if (lane == 0) {
            ptx_barrier_expect(base + FULL(at.stage), BOX_BYTES);
            ptx_copy_box(base + at.stage * BOX_BYTES, &maps.w, (k == 0 ? V_BOXES : k - 1u) * 64u, row, base + FULL(at.stage), policy);
          }
          __syncwarp();
          at = place_after(at, 1u);
        }
      }
    }
    early = early == ~0u ? early : 0u;
  }
}

/* One warp. */
NUM void copy_queries(const mla_attn_args &a, const tensor_maps &maps, const share_block *share, u32 base) {
  const u64 policy = ptx_often();
  u32 phase = 1;
  ptx_grid_wait();
  FOR_PIECES(p, share, a) {
    FOR_PASSES(w, p) {
      ptx_barrier_wait(base + Q_EMPTY, phase);
      phase ^= 1u;
      if (threadIdx.x % 32u == 0) {
        ptx_barrier_expect(base + Q_FULL, BOXES * Q_BOX_BYTES);
        for (u32 k = 0; k < BOXES; k++)
          ptx_copy_box(base + AT_Q + k * Q_BOX_BYTES, &maps.x, k * 64u, (p.tile.row + w.token) * a.heads, base + Q_FULL, policy);
      }
      __syncwarp();
    }
  }
}

/* === Scores ============================================================================================================= */

/* s = K Q^T of the block whose boxes begin at `at`. */
NUM void multiply_scores(f32 (&s)[ROWS / 2u], u32 base, place at) {
#pragma unroll
  for (u32 i = 0; i < ROWS / 2u; i++) {
    s[i] = 0.0f;
    ptx_hold(s[i]);
  }
#pragma unroll
  for (u32 k = 0; k < BOXES; k++) {
    const place box = place_of(at, k);
    ptx_barrier_wait(base + FULL(box.stage), box.phase);
    ptx_multiply_fence();
    const u64 kv = ptx_operand(PTX_SWIZZLED, base + box.stage * BOX_BYTES), q = ptx_operand(PTX_SWIZZLED, base + AT_Q + k * Q_BOX_BYTES);
#pragma unroll
    for (u32 i = 0; i < 4u; i++)
      if (k * 64u + i * 16u < COLUMNS) ptx_multiply(s, kv + i * 2u, q + i * 2u);
  }
  ptx_multiply_commit();
  PTX_MULTIPLY_WAIT(0);
#pragma unroll
  for (u32 i = 0; i < ROWS / 2u; i++) ptx_hold(s[i]);
}

/* Scores to t; tokens beyond a row's position become -Inf. */
NUM void scale(f32 (&s)[ROWS / 2u], const mla_attn_args &a, const attn_piece &p, const pass &w, u32 block) {
  const u32 lane = threadIdx.x % 32u, token = block * PAGE_TOKENS + threadIdx.x % 128u / 32u * 16u + lane / 4u;
#pragma unroll
  for (u32 i = 0; i < ROWS / 2u; i++) s[i] = num_mul(s[i], a.scale_log2);
  if (block * PAGE_TOKENS + PAGE_TOKENS - 1u <= p.tile.position + w.token) return;
#pragma unroll
  for (u32 i = 0; i < OWN; i++) {
    const u32 nth = (i / 2u * 8u + lane % 4u * 2u + i % 2u) / p.heads;
    const u32 position = p.tile.position + w.token + (nth < w.tokens ? nth : w.tokens - 1u);
#pragma unroll
    for (u32 h = 0; h < 2u; h++) {
      const u32 e = i / 2u * 4u + h * 2u + i % 2u;
      if (token + 8u * h > position) s[e] = -INFINITE;
    }
  }
}

/* m[i]: the largest t of the block in row i of this thread's, over the whole warpgroup. to: [ROWS][4 warps]. */
NUM void find_largest(f32 (&m)[OWN], const f32 (&s)[ROWS / 2u], f32 *to, u32 group) {
  const u32 lane = threadIdx.x % 32u, warp = threadIdx.x % 128u / 32u;
  f32 x[OWN];
#pragma unroll
  for (u32 i = 0; i < OWN; i++) x[i] = fmaxf(s[i / 2u * 4u + i % 2u], s[i / 2u * 4u + 2u + i % 2u]);
  u32 index = 0;
#pragma unroll
  for (u32 d = 16, left = OWN; d >= 4u; d /= 2u) { /* eight lanes share a row: each keeps half of what is left, until it has one */
    if (left > 1u) {
      left /= 2u;
      const bool upper = (lane & d) != 0;
      index += upper ? left : 0u;
#pragma unroll
      for (u32 i = 0; i < OWN / 2u; i++) {
        if (i >= left) continue;
        const f32 other = __shfl_xor_sync(WARP_ALL, upper ? x[i] : x[left + i], d);
        x[i] = fmaxf(upper ? x[left + i] : x[i], other);
      }
    } else {
      x[0] = fmaxf(x[0], __shfl_xor_sync(WARP_ALL, x[0], d));
    }
  }
  to[(index / 2u * 8u + lane % 4u * 2u + index % 2u) * 4u + warp] = x[0]; /* lanes that have the same write the same */
  ptx_warps_sync(1u + group, 128u);
#pragma unroll
  for (u32 i = 0; i < OWN; i++) {
    const float4 v = *(const float4 *)(to + (i / 2u * 8u + lane % 4u * 2u + i % 2u) * 4u);
    m[i] = fmaxf(fmaxf(v.x, v.y), fmaxf(v.z, v.w));
  }
}

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

/* P as bf16 into [rows][64 tokens], swizzled. */
NUM void store_p(const f32 (&s)[ROWS / 2u], const f32 (&m)[OWN], u32 to) {
  const u32 lane = threadIdx.x % 32u, warp = threadIdx.x % 128u / 32u;
  u32 pair[ROWS / 4u < 4u ? 4u : ROWS / 4u];
#pragma unroll
  for (u32 i = 0; i < ROWS / 4u; i++)
    pair[i] = ptx_pack_bf16(num_exp2_bf16(num_sub(s[2u * i], m[i / 2u * 2u])), num_exp2_bf16(num_sub(s[2u * i + 1u], m[i / 2u * 2u + 1u])));
#pragma unroll
  for (u32 i = ROWS / 4u; i < 4u; i++) pair[i] = 0u;
  const u32 row = lane / 16u * 8u + lane % 8u, piece = warp * 2u + lane / 8u % 2u;
#pragma unroll
  for (u32 i = 0; i < ROWS / 4u; i += 4u)
    ptx_store_transposed(to + (row + i * 4u) * 128u + ((piece ^ (row % 8u)) << 4), pair[i], pair[i + 1u], pair[i + 2u], pair[i + 3u]);
}

/* KV rows beyond the tile's last position weigh +0, but may hold NaN: they become zeros. */
NUM void clear_rows(u8 *shared, place at, u32 first) {
  for (u32 k = 0; k < V_BOXES; k++) {
    u8 *box = shared + place_of(at, k).stage * BOX_BYTES;
    for (u32 i = first * 8u + threadIdx.x % 128u; i < 512u; i += 128u) *(uint4 *)(box + i * 16u) = {0, 0, 0, 0};
  }
}

NUM void score(const mla_attn_args &a, const share_block *share, u8 *shared, u32 base) {
  const u32 group = ptx_uniform(threadIdx.x / 128u), lane = threadIdx.x % 32u, warp = threadIdx.x % 128u / 32u;
  const u32 blocks = a.chunk_tokens / PAGE_TOKENS;
  place at = place_after({0, 0}, group * BOXES);
  u32 done = 0, q_phase = 0; /* blocks that the warpgroups took before this pass */
  FOR_PIECES(p, share, a) {
    FOR_PASSES(w, p) {
      const u32 count = p.end_block - p.first_block, last = p.tile.position + p.tile.count - 1u;
      u32 nth = done + (done % SCORE_GROUPS == group ? 0u : 1u);
      ptx_barrier_wait(base + Q_FULL, q_phase);
      q_phase ^= 1u;
      if (nth >= done + count && lane == 0) ptx_barrier_arrive(base + Q_EMPTY);
      for (; nth < done + count; nth += SCORE_GROUPS) {
        const u32 block = p.first_block + nth - done, side = nth % 2u, phase = nth / 2u % 2u;
        f32 s[ROWS / 2u], m[OWN], before[OWN];
        multiply_scores(s, base, at);
        if (lane == 0) {
          ptx_barrier_arrive(base + EMPTY(at.stage));
          if (nth + SCORE_GROUPS >= done + count) ptx_barrier_arrive(base + Q_EMPTY);
        }
        scale(s, a, p, w, block);
        find_largest(m, s, (f32 *)(shared + AT_WARP_MAX) + (group * 2u + nth / SCORE_GROUPS % 2u) * ROWS * 4u, group);
        if (nth > 0) ptx_barrier_wait(base + MAX_READY(side ^ 1u), (nth - 1u) / 2u % 2u);
        load_max(before, (const f32 *)(shared + AT_MAX) + (side ^ 1u) * ROWS);
#pragma unroll
        for (u32 i = 0; i < OWN; i++) m[i] = fmaxf(block % blocks == 0 ? NO_MAX : before[i], num_ceil(m[i]));
        store_max((f32 *)(shared + AT_MAX) + side * ROWS, m);
        __syncwarp();
        if (lane == 0) ptx_barrier_arrive(base + MAX_READY(side));
        if (nth > 1u) ptx_barrier_wait(base + P_EMPTY(side), phase ^ 1u);
        store_p(s, m, base + AT_P + side * P_BYTES);
        store_max((f32 *)(shared + AT_P_MAX) + side * ROWS, m);
        if (block * PAGE_TOKENS + PAGE_TOKENS > last + 1u) clear_rows(shared, at, last + 1u - block * PAGE_TOKENS);
        ptx_fence_async();
        __syncwarp();
        if (lane == 0) ptx_barrier_arrive(base + P_FULL(side));
        at = place_after(at, SCORE_GROUPS * BOXES);
      }
      done += count;
    }
  }
  (void)warp;
}

/* === Outputs ============================================================================================================ */

/* (m, l, O): element [x][4 * j + 2 * h + e] is column 64 * x + 8 * h + its own, row 8 * j + 2 * (lane % 4) + e. */
typedef struct state {
  f32 m[OWN], l[OWN], o[OUT_BOXES][ROWS / 2u];
} state;

#define ROW_OF(e) ((e) / 4u * 2u + (e) % 2u) /* number among the thread's rows */

/* The accumulators are where the multiplications of a block begin and end. */
NUM void hold(f32 (&o)[OUT_BOXES][ROWS / 2u], f32 (&l)[ROWS / 2u]) {
#pragma unroll
  for (u32 i = 0; i < ROWS / 2u; i++) {
    ptx_hold(l[i]);
#pragma unroll
    for (u32 x = 0; x < OUT_BOXES; x++) ptx_hold(o[x][i]);
  }
}

/* O^T += V^T P^T, l^T += 1 P^T; boxes are given back as they are done. */
NUM void multiply_values(f32 (&o)[OUT_BOXES][ROWS / 2u], f32 (&l)[ROWS / 2u], u32 base, place at, u32 group, u32 side) {
  const u64 p = ptx_operand(PTX_SWIZZLED, base + AT_P + side * P_BYTES), ones = ptx_operand(PTX_PLAIN, base + AT_ONES);
  hold(o, l);
#pragma unroll
  for (u32 x = 0; x < OUT_BOXES; x++) {
    ptx_multiply_fence();
    const u64 v = ptx_operand(PTX_ACROSS(BOX_BYTES), base + place_of(at, group * OUT_BOXES + x).stage * BOX_BYTES);
#pragma unroll
    for (u32 i = 0; i < 4u; i++) ptx_multiply_turned(o[x], v + i * 128u, p + i * 2u);
    if (x == 0) {
#pragma unroll
      for (u32 i = 0; i < 4u; i++) ptx_multiply(l, ones, p + i * 2u);
    }
    ptx_multiply_commit();
    if (x > 0) {
      PTX_MULTIPLY_WAIT(1);
      if (threadIdx.x % 32u == 0) ptx_barrier_arrive(base + EMPTY(place_of(at, group * OUT_BOXES + x - 1u).stage));
    }
  }
  PTX_MULTIPLY_WAIT(0);
  hold(o, l);
  if (threadIdx.x % 32u == 0) {
    ptx_barrier_arrive(base + EMPTY(place_of(at, group * OUT_BOXES + OUT_BOXES - 1u).stage));
    ptx_barrier_arrive(base + P_EMPTY(side));
  }
}

NUM void clear(f32 (&o)[OUT_BOXES][ROWS / 2u], f32 (&l)[ROWS / 2u]) {
#pragma unroll
  for (u32 i = 0; i < ROWS / 2u; i++) {
    l[i] = 0.0f;
#pragma unroll
    for (u32 x = 0; x < OUT_BOXES; x++) o[x][i] = 0.0f;
  }
}

/* The running maximum was m and is `now`. */
NUM void rescale(f32 (&o)[OUT_BOXES][ROWS / 2u], f32 (&l)[ROWS / 2u], const f32 (&m)[OWN], const f32 (&now)[OWN]) {
  f32 factor[OWN];
  bool moves = false;
#pragma unroll
  for (u32 i = 0; i < OWN; i++) {
    factor[i] = now[i] != m[i] ? num_exp2_int(num_sub(m[i], now[i])) : 1.0f;
    moves = moves || now[i] != m[i];
  }
  if (!moves) return;
#pragma unroll
  for (u32 i = 0; i < ROWS / 2u; i++) {
    l[i] = num_mul(l[i], factor[ROW_OF(i)]);
#pragma unroll
    for (u32 x = 0; x < OUT_BOXES; x++) o[x][i] = num_mul(o[x][i], factor[ROW_OF(i)]);
  }
}

/* The chunk becomes the unit's state. */
NUM void start_unit(state &r, const f32 (&o)[OUT_BOXES][ROWS / 2u], const f32 (&l)[ROWS / 2u], const f32 (&m)[OWN]) {
#pragma unroll
  for (u32 i = 0; i < OWN; i++) {
    r.m[i] = m[i];
    r.l[i] = l[i / 2u * 4u + i % 2u];
  }
#pragma unroll
  for (u32 x = 0; x < OUT_BOXES; x++)
#pragma unroll
    for (u32 e = 0; e < ROWS / 2u; e++) r.o[x][e] = o[x][e];
}

/* The chunk is folded into the unit's state: state left, chunk right. */
NUM void fold_chunk(state &r, const f32 (&o)[OUT_BOXES][ROWS / 2u], const f32 (&l)[ROWS / 2u], const f32 (&m)[OWN]) {
  f32 fa[OWN], fb[OWN];
#pragma unroll
  for (u32 i = 0; i < OWN; i++) {
    const f32 most = fmaxf(r.m[i], m[i]);
    fa[i] = num_exp2_int(num_sub(r.m[i], most));
    fb[i] = num_exp2_int(num_sub(m[i], most));
    r.m[i] = most;
    r.l[i] = num_fma(l[i / 2u * 4u + i % 2u], fb[i], num_mul(r.l[i], fa[i]));
  }
#pragma unroll
  for (u32 x = 0; x < OUT_BOXES; x++)
#pragma unroll
    for (u32 e = 0; e < ROWS / 2u; e++) r.o[x][e] = num_fma(o[x][e], fb[ROW_OF(e)], num_mul(r.o[x][e], fa[ROW_OF(e)]));
}

/* A state that waits in memory: this thread's pairs at t[i * 128], those of O, then (m, l). So do the groups before of whole tiles, and
 * the chunks before of 32 rows, which would take too many registers. */
#define STATE_PAIRS (OUT_BOXES * ROWS / 4u + OWN)
#define CHUNKS_IN_MEMORY (ROWS == 32u)
static_assert(OUT_GROUPS * STATE_PAIRS * 512u <= 2u * ROWS * (SPEC_KV_LORA_RANK + 128u), "two states are scratch");

/* What waits left, r right. */
NUM void fold_saved(state &r, const float2 *t) {
  f32 fa[OWN], fb[OWN];
#pragma unroll
  for (u32 i = 0; i < OWN; i++) {
    const float2 left = t[(OUT_BOXES * ROWS / 4u + i) * 128u];
    const f32 most = fmaxf(left.x, r.m[i]);
    fa[i] = num_exp2_int(num_sub(left.x, most));
    fb[i] = num_exp2_int(num_sub(r.m[i], most));
    r.m[i] = most;
    r.l[i] = num_fma(r.l[i], fb[i], num_mul(left.y, fa[i]));
  }
#pragma unroll
  for (u32 x = 0; x < OUT_BOXES; x++) {
#pragma unroll
    for (u32 e = 0; e < ROWS / 2u; e += 2u) {
      const float2 left = t[(x * ROWS / 4u + e / 2u) * 128u];
      r.o[x][e] = num_fma(r.o[x][e], fb[ROW_OF(e)], num_mul(left.x, fa[ROW_OF(e)]));
      r.o[x][e + 1u] = num_fma(r.o[x][e + 1u], fb[ROW_OF(e + 1u)], num_mul(left.y, fa[ROW_OF(e + 1u)]));
    }
    if (ROWS == 32u) ptx_hold(r.o[x][0]); /* not more loads at a time: registers are short */
  }
}

NUM void save(float2 *t, const state &r) {
#pragma unroll
  for (u32 i = 0; i < OWN; i++) t[(OUT_BOXES * ROWS / 4u + i) * 128u] = make_float2(r.m[i], r.l[i]);
#pragma unroll
  for (u32 x = 0; x < OUT_BOXES; x++)
#pragma unroll
    for (u32 e = 0; e < ROWS / 2u; e += 2u) t[(x * ROWS / 4u + e / 2u) * 128u] = make_float2(r.o[x][e], r.o[x][e + 1u]);
}

/* A unit's partial result, from this row on. */
NUM void store_unit(const mla_attn_args &a, const state &r, u64 row, u32 live, u32 column) {
  const u32 lane = threadIdx.x % 32u;
#pragma unroll
  for (u32 i = 0; i < OWN; i++) {
    const u32 nth = i / 2u * 8u + lane % 4u * 2u + i % 2u;
    if (nth >= live) continue;
    f32 *to = a.partial_o + (row + nth) * SPEC_KV_LORA_RANK + column;
#pragma unroll
    for (u32 x = 0; x < OUT_BOXES; x++)
#pragma unroll
      for (u32 h = 0; h < 2u; h++) to[x * 64u + h * 8u] = r.o[x][i / 2u * 4u + h * 2u + i % 2u];
    if (column == 0) *(float2 *)(a.partial_ml + (row + nth) * 2u) = make_float2(r.m[i], r.l[i]);
  }
}

/* bf16(O * (1 / l) + 0). Lanes of neighbouring columns exchange halves, so that each writes two columns of one row. */
NUM void store_out(const mla_attn_args &a, const state &r, u64 row, u32 live, u32 column) {
  const u32 lane = threadIdx.x % 32u, odd = lane / 4u % 2u;
#pragma unroll
  for (u32 j = 0; j < OWN; j += 2u) {
    const u32 nth = j * 4u + lane % 4u * 2u + odd;
    const f32 share0 = num_div(1.0f, r.l[j]), share1 = num_div(1.0f, r.l[j + 1u]);
    bf16 *to = a.out + (row + nth) * SPEC_KV_LORA_RANK + (column - odd);
#pragma unroll
    for (u32 x = 0; x < OUT_BOXES; x++)
#pragma unroll
      for (u32 h = 0; h < 2u; h++) {
        const f32 *o = r.o[x] + j * 2u + h * 2u;
        const u32 own = ptx_pack_bf16(num_add(num_mul(o[0], share0), 0.0f), num_add(num_mul(o[1], share1), 0.0f));
        const u32 other = __shfl_xor_sync(WARP_ALL, own, 4);
        const u32 both = odd ? other >> 16 | (own & 0xffff0000u) : (own & 0xffffu) | other << 16;
        if (nth < live) *(u32 *)(to + x * 64u + h * 8u) = both;
      }
  }
}

NUM void output(const mla_attn_args &a, const share_block *share, const u8 *shared, u32 base) {
  const u32 group = ptx_uniform(threadIdx.x / 128u) - SCORE_GROUPS, lane = threadIdx.x % 32u, blocks = a.chunk_tokens / PAGE_TOKENS;
  const u32 column = group * OUT_BOXES * 64u + threadIdx.x % 128u / 32u * 16u + lane / 4u;
  place at = {0, 0};
  u32 nth = 0;
  f32 o[OUT_BOXES][ROWS / 2u], l[ROWS / 2u], m[OWN];
  state r;
  clear(o, l);
  float2 *groups = (float2 *)(a.scratch + (u64)blockIdx.x * attn_scratch_floats(ROWS, SPEC_KV_LORA_RANK)) + group * STATE_PAIRS * 256u;
  groups += threadIdx.x % 128u;
  float2 *chunks = groups + STATE_PAIRS * 128u;
  ptx_grid_wait();
  FOR_PIECES(p, share, a) {
    FOR_PASSES(w, p) {
      const u32 live = w.tokens * p.heads;
      for (u32 block = p.first_block; block < p.end_block; block++, nth++) {
        const u32 side = nth % 2u, chunk = block / blocks, in_group = chunk % a.group_chunks;
        f32 now[OWN];
        ptx_barrier_wait(base + P_FULL(side), nth / 2u % 2u);
        load_max(now, (const f32 *)(shared + AT_P_MAX) + side * ROWS);
        if (block % blocks != 0) rescale(o, l, m, now);
#pragma unroll
        for (u32 i = 0; i < OWN; i++) m[i] = now[i];
        __syncwarp();
        multiply_values(o, l, base, at, group, side);
        at = place_after(at, BOXES);

        const bool last = block + 1u == p.end_block;
        if (!last && (block + 1u) % blocks != 0) continue; /* the chunk goes on */
        const bool starts = attn_unit_starts(in_group, p.cut);
        if (starts || CHUNKS_IN_MEMORY) start_unit(r, o, l, m);
        else fold_chunk(r, o, l, m);
        clear(o, l);
        if (!starts && CHUNKS_IN_MEMORY) fold_saved(r, chunks);
        if (!last && in_group + 1u < a.group_chunks && !attn_unit_ends(in_group, p.cut)) {
          if (CHUNKS_IN_MEMORY) save(chunks, r);
          continue;
        }
        if (p.cut != ATTN_WHOLE) {
          const u32 first = in_group < p.cut ? chunk - in_group : chunk;
          const u64 slot = p.slot + (u64)attn_unit_at(first, p.cut, a.group_chunks) * p.tile.count + w.token;
          store_unit(a, r, slot * a.heads, live, column);
        } else {
          if (chunk >= a.group_chunks) fold_saved(r, groups);
          if (last) store_out(a, r, (u64)(p.tile.row + w.token) * a.heads, live, column);
          else save(groups, r);
        }
      }
    }
  }
}

/* === The block ========================================================================================================== */

NUM void start_barriers(u32 base) {
  for (u32 i = 0; i < RING; i++) {
    ptx_barrier_init(base + FULL(i), 1u);
    ptx_barrier_init(base + EMPTY(i), 4u);
  }
  ptx_barrier_init(base + Q_FULL, 1u);
  ptx_barrier_init(base + Q_EMPTY, 4u * SCORE_GROUPS);
  for (u32 i = 0; i < 2u; i++) {
    ptx_barrier_init(base + P_FULL(i), 4u);
    ptx_barrier_init(base + P_EMPTY(i), 4u * OUT_GROUPS);
    ptx_barrier_init(base + MAX_READY(i), 4u);
  }
  ptx_barrier_ready();
}

NUM void decode(const mla_attn_args &a, const tensor_maps &maps, u8 *raw) {
  const u32 base = (ptx_shared(raw) + 1023u) & ~1023u, warp = ptx_uniform(threadIdx.x / 32u);
  u8 *shared = raw + (base - ptx_shared(raw));
  share_block *share = (share_block *)(shared + AT_SHARE);
  if (threadIdx.x == COPY_THREAD) {
    ptx_fetch_map(&maps.w);
    ptx_fetch_map(&maps.x);
    start_barriers(base);
  }
  ((u32 *)(shared + AT_ONES))[threadIdx.x] = 0x3f803f80u;
  ptx_fence_async();
  share_make(&share->all, &share->lists, a);
  __syncthreads();
  if (warp < SCORE_THREADS / 32u) {
    PTX_REGISTERS_LESS(SCORE_REGISTERS);
    score(a, share, shared, base);
  } else if (warp < COPY_THREAD / 32u) {
    PTX_REGISTERS_MORE(OUT_REGISTERS);
    output(a, share, shared, base);
  } else {
    PTX_REGISTERS_LESS(COPY_REGISTERS);
    if (warp == COPY_THREAD / 32u) copy_kv(a, maps, share, base);
    if (warp == COPY_THREAD / 32u + 1u) copy_queries(a, maps, share, base);
    if (warp == COPY_THREAD / 32u + 2u && blockIdx.x == 0) {
      ptx_grid_wait();
      share_parts(&share->all, a);
    }
  }
}

#endif

/* kv_rope.cu - queries, and the KV row of each token, for grouped-query attention: bias, norm, rotation. NUMERICS.md, `kv_rope`.
 *
 * x [T][x_stride] fp32: for each KV head the columns of its query heads, its key and its value; q_out [T][heads][head_dim] bf16; kv
 * [pages][64][kv_heads][head_dim + v_dim] of this layer, bf16 or e4m3 codes: a row's address depends on the token's sequence and position,
 * its contents on the token alone.
 * 256 threads. A warp takes a head of the queries, keys or values at a time, a lane four neighbouring columns, SPEC_HELD times (1: heads
 * of at most 128 columns, 2: of 256). A norm of all heads is computed by all threads, each with one of the 256 partial sums. Grid: rows, n:
 * the n blocks of a token share its heads; each computes the norm of whole rows that its heads need.
 * Moves heads * head_dim * 6 bytes and kv_heads * (head_dim + v_dim) * 6 a token, codes 5 instead of 6. For small M a launch and one round
 * trip to L2 bound it: all other inputs are read before the wait, and for large M the next head's while one is computed. */
#include "spec.cuh"
#include "ptx/reduce.cuh"
#include "rows/vectors.cuh"

static_assert(SPEC_THREADS == 256, "the number of partial sums is part of the result");
#define WARPS (SPEC_THREADS / 32u)
#define COLUMNS (SPEC_HELD * 128u) /* of a head, at most */

/* A head of the queries, keys or values. */
typedef struct head {
  u32 nth, columns; /* nth: among those of its kind */
  bool is_query, is_value;
  const f32 *src;
  uint2 bias[SPEC_HELD], weight[SPEC_HELD]; /* of this lane's columns */
} head;

NUM u32 column_of(u32 e) { return (threadIdx.x % 32u + 32u * e) * 4u; }
NUM f32 number(uint2 x, u32 i) { return num_from_bf16((bf16)((i < 2u ? x.x : x.y) >> i % 2u * 16u)); }

NUM void read_constants(const bf16 *row, u32 columns, uint2 (&x)[SPEC_HELD]) {
#pragma unroll
  for (u32 e = 0; e < SPEC_HELD; e++) x[e] = row && column_of(e) < columns ? *(const uint2 *)(row + column_of(e)) : make_uint2(0u, 0u);
}

/* Reads nothing that the step computes. */
NUM head head_of(const kv_rope_args &a, u32 t, u32 item) {
  head h;
  h.is_query = item < a.heads;
  h.is_value = item >= a.heads + a.kv_heads;
  h.nth = h.is_query ? item : h.is_value ? item - a.heads - a.kv_heads : item - a.heads;
  h.columns = h.is_value ? a.v_dim : a.head_dim;
  const u32 group = a.heads / a.kv_heads, rest = a.head_dim + a.v_dim; /* of a KV head: query heads, columns after them */
  const u32 first = h.is_query ? h.nth * a.head_dim + h.nth / group * rest
                               : h.nth * rest + (h.nth + 1u) * group * a.head_dim + (h.is_value ? a.head_dim : 0u);
  const bf16 *norm = h.is_query ? a.q_norm : h.is_value ? 0 : a.k_norm;
  h.src = a.x + (u64)t * a.x_stride + first;
  read_constants(a.bias ? a.bias + first : 0, h.columns, h.bias);
  read_constants(norm && a.norms_row ? norm + h.nth * a.head_dim : norm, h.columns, h.weight);
  return h;
}

NUM void read_head(const head &h, float4 (&v)[SPEC_HELD]) {
#pragma unroll
  for (u32 e = 0; e < SPEC_HELD; e++) v[e] = read4(h.src, column_of(e), h.columns);
}

NUM void add_bias(const head &h, float4 (&v)[SPEC_HELD]) {
#pragma unroll
  for (u32 e = 0; e < SPEC_HELD; e++)
    v[e] = add4(v[e], make_float4(number(h.bias[e], 0), number(h.bias[e], 1), number(h.bias[e], 2), number(h.bias[e], 3)));
}

NUM f32 factor_of(f32 squares, u32 n, f32 eps) { return num_div(1.0f, num_sqrt(num_add(num_div(squares, (f32)n), eps))); }

/* The factor of one head: no partial sum has more than one number. own: the warp's COLUMNS numbers of shared memory. */
NUM f32 head_factor(const head &h, const float4 (&v)[SPEC_HELD], f32 eps, float4 *own) {
  __syncwarp();
#pragma unroll
  for (u32 e = 0; e < SPEC_HELD; e++)
    own[column_of(e) / 4u] =
      make_float4(num_mul(v[e].x, v[e].x), num_mul(v[e].y, v[e].y), num_mul(v[e].z, v[e].z), num_mul(v[e].w, v[e].w));
  __syncwarp();
  return factor_of(reduce_tree_shared<COLUMNS>((const f32 *)own), h.columns, eps);
}

/* The factor of all query heads together, or of all keys; by all threads. sums: [SPEC_THREADS], unread since the last barrier. */
NUM f32 row_factor(const kv_rope_args &a, u32 t, bool of_queries, f32 *sums) {
  const u32 queries = a.heads / a.kv_heads * a.head_dim, run = of_queries ? queries : a.head_dim; /* neighbouring columns of a KV head */
  const u32 gap = queries + a.head_dim + a.v_dim - run, first = of_queries ? 0u : queries, n = a.kv_heads * run;
  const f32 *src = a.x + (u64)t * a.x_stride;
  f32 p = 0.0f;
#pragma unroll 8
  for (u32 i = threadIdx.x; i < n; i += SPEC_THREADS) {
    const u32 at = first + i + i / run * gap;
    const f32 u = a.bias ? num_add(src[at], num_from_bf16(a.bias[at])) : src[at];
    p = num_fma(u, u, p);
  }
  return factor_of(reduce_tree_block(p, sums), n, a.eps);
}

NUM void normalise(const head &h, float4 (&v)[SPEC_HELD], f32 r) {
#pragma unroll
  for (u32 e = 0; e < SPEC_HELD; e++)
    v[e] = make_float4(num_mul(num_mul(v[e].x, r), number(h.weight[e], 0)), num_mul(num_mul(v[e].y, r), number(h.weight[e], 1)),
                       num_mul(num_mul(v[e].z, r), number(h.weight[e], 2)), num_mul(num_mul(v[e].w, r), number(h.weight[e], 3)));
}

/* What turns a lane's columns at the token's position: a result is fma(first of the pair, x, second * y). */
typedef struct turns { float2 of[SPEC_HELD][4]; } turns;

NUM turns turns_of(const kv_rope_args &a, u32 position) {
  turns turn = {};
  const float2 *cos_sin = (const float2 *)a.cos_sin + (u64)position * (a.rope_dim / 2);
#pragma unroll
  for (u32 e = 0; e < SPEC_HELD; e++)
#pragma unroll
    for (u32 i = 0; i < 4u; i++) {
      const u32 column = column_of(e) + i;
      const bool is_first = a.half_split ? column < a.rope_dim / 2 : i % 2u == 0;
      if (!a.cos_sin || column >= a.rope_dim) continue;
      const float2 c = cos_sin[a.half_split ? column - (is_first ? 0u : a.rope_dim / 2) : column / 2u];
      turn.of[e][i] = is_first ? make_float2(c.x, -c.y) : make_float2(c.y, c.x);
    }
  return turn;
}

NUM f32 turned(f32 first, f32 second, float2 turn) { return num_fma(first, turn.x, num_mul(second, turn.y)); }

/* The columns of a lane are all rotated, or none: half of rope_dim is a multiple of four. */
NUM void rotate(const kv_rope_args &a, float4 (&v)[SPEC_HELD], const turns &turn, float4 *own) {
  const u32 half = a.rope_dim / 2;
  __syncwarp();
#pragma unroll
  for (u32 e = 0; e < SPEC_HELD; e++) own[column_of(e) / 4u] = v[e];
  __syncwarp();
#pragma unroll
  for (u32 e = 0; e < SPEC_HELD; e++) {
    const u32 column = column_of(e);
    if (column >= a.rope_dim) continue;
    const bool is_first = column < half;
    const float4 x = v[e], other = own[(is_first ? column + half : column - half) / 4u], first = is_first ? x : other;
    const float4 second = is_first ? other : x;
    const float2 t0 = turn.of[e][0], t1 = turn.of[e][1], t2 = turn.of[e][2], t3 = turn.of[e][3];
    if (a.half_split)
      v[e] = make_float4(turned(first.x, second.x, t0), turned(first.y, second.y, t1), turned(first.z, second.z, t2),
                         turned(first.w, second.w, t3));
    else v[e] = make_float4(turned(x.x, x.y, t0), turned(x.x, x.y, t1), turned(x.z, x.w, t2), turned(x.z, x.w, t3));
  }
}

/* R4.13, R4.14. */
NUM u32 two_codes(u32 x, f32 scale) {
  return ptx_pack_e4m3(num_div(num_from_bf16((bf16)x), scale), num_div(num_from_bf16((bf16)(x >> 16)), scale));
}

/* row: the token's KV row, an element of which has `bytes` bytes. */
NUM void write_head(const kv_rope_args &a, const head &h, u32 t, const float4 (&v)[SPEC_HELD], u8 *row, f32 kv_scale) {
  const bool coded = a.kv_format == KV_FP8 && !h.is_query;
  bf16 *query = a.q_out + ((u64)t * a.heads + h.nth) * a.head_dim;
  u8 *kv = row + (h.nth * (a.head_dim + a.v_dim) + (h.is_value ? a.head_dim : 0u)) * (coded ? 1u : 2u);
#pragma unroll
  for (u32 e = 0; e < SPEC_HELD; e++) {
    const u32 column = column_of(e);
    if (column >= h.columns) continue;
    const uint2 z = make_uint2(ptx_pack_bf16(v[e].x, v[e].y), ptx_pack_bf16(v[e].z, v[e].w));
    if (coded) *(u32 *)(kv + column) = two_codes(z.x, kv_scale) | two_codes(z.y, kv_scale) << 16;
    else *(uint2 *)(h.is_query ? query + column : (bf16 *)kv + column) = z;
  }
}

extern "C" __global__ __launch_bounds__(SPEC_THREADS) void kv_rope(const __grid_constant__ kv_rope_args a) {
  __shared__ float4 columns[WARPS][COLUMNS / 4u];
  __shared__ f32 sums[2][SPEC_THREADS];
  ptx_grid_next();
  const u32 t = blockIdx.x, part = blockIdx.y * WARPS, step = gridDim.y * WARPS, keys = a.heads, items = a.heads + 2 * a.kv_heads;
  const bool is_row = t < a.step->token_count;
  const u32 position = is_row ? a.position[t] : 0u;
  const u32 page = is_row ? a.block_table[(u64)a.seq[t] * a.block_table_stride + position / PAGE_TOKENS] : 0u;
  const u64 row_bytes = (u64)a.kv_heads * (a.head_dim + a.v_dim) * (a.kv_format == KV_FP8 ? 1u : 2u);
  u8 *row = (u8 *)a.kv + ((u64)page * PAGE_TOKENS + position % PAGE_TOKENS) * row_bytes;
  const f32 kv_scale = a.kv_scale ? *a.kv_scale : 1.0f;
  const turns turn = turns_of(a, position);
  u32 item = part + threadIdx.x / 32u;
  head h = head_of(a, t, item < items ? item : 0u);
  float4 *own = columns[threadIdx.x / 32u], v[SPEC_HELD];
  ptx_grid_wait();
  if (!is_row) return;

  f32 of_queries = 0.0f, of_keys = 0.0f;
  if (a.norms_row && a.q_norm) {
    bool has_keys = false;
    for (u32 first = part; first < items; first += step) has_keys = has_keys || (first < keys + a.kv_heads && first + WARPS > keys);
    if (part < keys) of_queries = row_factor(a, t, true, sums[0]);
    if (has_keys) of_keys = row_factor(a, t, false, sums[1]);
  }
  if (item < items) read_head(h, v);
  while (item < items) {
    const head now = h;
    float4 u[SPEC_HELD];
#pragma unroll
    for (u32 e = 0; e < SPEC_HELD; e++) u[e] = v[e];
    item += step;
    if (item < items) {
      h = head_of(a, t, item);
      read_head(h, v);
    }
    if (a.bias) add_bias(now, u);
    if (a.q_norm && !now.is_value)
      normalise(now, u, !a.norms_row ? head_factor(now, u, a.eps, own) : now.is_query ? of_queries : of_keys);
    if (a.cos_sin && !now.is_value) rotate(a, u, turn, own);
    write_head(a, now, t, u, row, kv_scale);
  }
}

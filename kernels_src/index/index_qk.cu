/* index_qk.cu - the indexer's queries and key of each token as scaled e4m3, and the weights of its heads. NUMERICS.md, `index_qk`.
 *
 * q [T][q_stride] fp32, 128 columns a head, k and w likewise -> q_codes [T][heads][128], w_out [T][heads], and a row of this layer's index
 * cache. Eight lanes hold a row of 128: columns 4 j .. 4 j + 3 of every 32, so that a warp reads and writes whole lines, and of the seven
 * steps of the transform, as of the sums of the norm, only three need another lane. A token's key is the row after its heads.
 * Grid: ceil(rows * (heads + 1) / INDEX_QK_ROWS). 128 threads. Moves heads * 644 bytes a token. For small M a launch and one round trip to
 * memory bound it: inputs that depend on the position alone are read before the wait. On an H200, 64 heads: 1 token 2.2 us, 64 tokens 3.8,
 * 4,096 tokens 59 (2.8 TB/s). Study: tools/bench/history, sparse-and-fp8-ops. */
#include "spec.cuh"
#include "ptx/reduce.cuh"

#define LANES 8u                            /* per row */
#define PIECES (INDEX_DIM / (4u * LANES))   /* of four columns */
#define SCALE 0x1.6a09e6p-4f                /* fp32(128^-0.5) */
static_assert(SPEC_THREADS == LANES * INDEX_QK_ROWS, "a block's rows");

typedef f32 row_part[PIECES][4]; /* of lane j: [m][e] is column 32 m + 4 j + e */

/* Adds the four numbers of two lanes that are `by` apart; both lanes get the same sums. */
NUM void add_lanes(f32 (&sum)[4], u32 by) {
#pragma unroll
  for (u32 e = 0; e < 4; e++) sum[e] = num_add(sum[e], __shfl_xor_sync(WARP_ALL, sum[e], by));
}

/* tree(p, 128) of a row. */
NUM f32 add_row(const row_part &p) {
  f32 sum[4];
#pragma unroll
  for (u32 e = 0; e < 4; e++) sum[e] = num_add(num_add(p[0][e], p[2][e]), num_add(p[1][e], p[3][e]));
#pragma unroll
  for (u32 by = LANES / 2; by > 0; by /= 2) add_lanes(sum, by);
  return num_add(num_add(sum[0], sum[2]), num_add(sum[1], sum[3]));
}

/* u of a key; rows of queries are left unchanged. By whole warps. */
NUM void normalise(const index_qk_args &a, row_part &v, bool is_key) {
  row_part d, p;
  const f32 mean = num_mul(add_row(v), 1.0f / INDEX_DIM); /* exact but for subnormal results, which round as a quotient does */
#pragma unroll
  for (u32 i = 0; i < INDEX_DIM / LANES; i++) {
    d[i / 4][i % 4] = num_sub(v[i / 4][i % 4], mean);
    p[i / 4][i % 4] = num_mul(d[i / 4][i % 4], d[i / 4][i % 4]);
  }
  const f32 variance = num_mul(add_row(p), 1.0f / INDEX_DIM);
  if (!is_key) return;
  const f32 r = num_div(1.0f, num_sqrt(num_add(variance, a.eps)));
#pragma unroll
  for (u32 m = 0; m < PIECES; m++) {
    const u32 column = 32u * m + 4u * (threadIdx.x % LANES);
    const float4 gain = *(const float4 *)(a.gain + column), bias = *(const float4 *)(a.bias + column);
    v[m][0] = num_fma(num_mul(d[m][0], r), gain.x, bias.x);
    v[m][1] = num_fma(num_mul(d[m][1], r), gain.y, bias.y);
    v[m][2] = num_fma(num_mul(d[m][2], r), gain.z, bias.z);
    v[m][3] = num_fma(num_mul(d[m][3], r), gain.w, bias.w);
  }
}

/* Rotates the rope columns, pairs of neighbours: one lane holds both. */
NUM void rotate_neighbours(const index_qk_args &a, row_part &v, const f32 *cos_sin) {
#pragma unroll
  for (u32 m = 0; m < PIECES; m++) {
    const u32 column = 32u * m + 4u * (threadIdx.x % LANES);
    if (column >= a.rope_dim) continue;
    const float4 angle = *(const float4 *)(cos_sin + column);
    const f32 x0 = v[m][0], y0 = v[m][1], x1 = v[m][2], y1 = v[m][3];
    v[m][0] = num_fma(x0, angle.x, -num_mul(y0, angle.y));
    v[m][1] = num_fma(x0, angle.y, num_mul(y0, angle.x));
    v[m][2] = num_fma(x1, angle.z, -num_mul(y1, angle.w));
    v[m][3] = num_fma(x1, angle.w, num_mul(y1, angle.z));
  }
}

/* One number of a pair (i, i + half); other: its partner. */
NUM f32 rotate_half(f32 own, f32 other, f32 c, f32 s, bool is_first) {
  return is_first ? num_fma(own, c, -num_mul(other, s)) : num_fma(other, s, num_mul(own, c));
}

/* Rotates the rope columns, pairs (i, i + half): of 64 columns both numbers are in one lane, of 32 in lanes four apart. By whole warps. */
NUM void rotate_halves(const index_qk_args &a, row_part &v, const f32 *cos_sin) {
  const u32 half = a.rope_dim / 2u, lane = threadIdx.x % LANES;
#pragma unroll
  for (u32 e = 0; e < 4; e++) {
    const bool is_wide = half == 32u;
    const f32 first = v[0][e], second = v[1][e], other_lane = __shfl_xor_sync(WARP_ALL, first, LANES / 2);
    const float2 angle = *(const float2 *)(cos_sin + 2u * ((4u * lane + e) % half));
    v[0][e] = rotate_half(first, is_wide ? second : other_lane, angle.x, angle.y, is_wide || lane < LANES / 2);
    v[1][e] = is_wide ? rotate_half(second, first, angle.x, angle.y, false) : second;
  }
}

NUM void round_row(row_part &v, f32 scale) {
#pragma unroll
  for (u32 m = 0; m < PIECES; m++) {
#pragma unroll
    for (u32 e = 0; e < 4; e += 2) {
      const u32 pair = ptx_pack_bf16(num_mul(v[m][e], scale), num_mul(v[m][e + 1], scale));
      v[m][e] = num_float(pair << 16);
      v[m][e + 1] = num_float(pair & 0xffff0000u);
    }
  }
}

/* (x, y) -> (x + y, x - y). */
NUM void cross(f32 &x, f32 &y) {
  const f32 sum = num_add(x, y);
  y = num_sub(x, y);
  x = sum;
}

/* The Hadamard transform, steps 1, 2, 4, .. 64. */
NUM void transform(row_part &v) {
#pragma unroll
  for (u32 m = 0; m < PIECES; m++) {
    cross(v[m][0], v[m][1]);
    cross(v[m][2], v[m][3]);
    cross(v[m][0], v[m][2]);
    cross(v[m][1], v[m][3]);
  }
#pragma unroll
  for (u32 by = 1; by < LANES; by *= 2) {
    const f32 sign = threadIdx.x & by ? -1.0f : 1.0f;
#pragma unroll
    for (u32 i = 0; i < INDEX_DIM / LANES; i++)
      v[i / 4][i % 4] = num_fma(v[i / 4][i % 4], sign, __shfl_xor_sync(WARP_ALL, v[i / 4][i % 4], by)); /* the product is exact */
  }
#pragma unroll
  for (u32 e = 0; e < 4; e++) {
    cross(v[0][e], v[1][e]);
    cross(v[2][e], v[3][e]);
    cross(v[0][e], v[2][e]);
    cross(v[1][e], v[3][e]);
  }
}

/* The scale of a row. Magnitudes order as their bits, NaN above Inf. */
NUM f32 find_scale(const row_part &v, u32 scale_kind) {
  u32 largest = num_bits(NUM_SCALE_LEAST);
#pragma unroll
  for (u32 i = 0; i < INDEX_DIM / LANES; i++) {
    const u32 magnitude = num_bits(v[i / 4][i % 4]) & 0x7fffffffu;
    largest = magnitude > largest ? magnitude : largest;
  }
#pragma unroll
  for (u32 by = 1; by < LANES; by *= 2) {
    const u32 other = __shfl_xor_sync(WARP_ALL, largest, by);
    largest = other > largest ? other : largest;
  }
  return num_scale(num_float(largest), scale_kind);
}

/* Writes the row divided by its scale: the inverse of a power of two is exact. */
NUM void write_codes(u8 *codes, row_part &v, f32 scale, u32 scale_kind) {
  const f32 inverse = num_div(1.0f, scale);
#pragma unroll
  for (u32 m = 0; m < PIECES; m++) {
#pragma unroll
    for (u32 e = 0; e < 4; e++) v[m][e] = scale_kind == SCALE_POW2 ? num_mul(v[m][e], inverse) : num_div(v[m][e], scale);
    *(u32 *)(codes + 32u * m + 4u * (threadIdx.x % LANES)) = ptx_pack_e4m3(v[m][0], v[m][1]) | ptx_pack_e4m3(v[m][2], v[m][3]) << 16;
  }
}

extern "C" __global__ __launch_bounds__(SPEC_THREADS) void index_qk(const __grid_constant__ index_qk_args a) {
  ptx_grid_next();
  const u32 item = blockIdx.x * INDEX_QK_ROWS + threadIdx.x / LANES, rows = a.heads + 1u, lane = threadIdx.x % LANES;
  const u32 token = item / rows, head = item % rows;
  const bool is_row = token < a.step->token_count, is_key = is_row && head == a.heads;
  const u32 position = is_row ? a.position[token] : 0;
  const u32 page = is_key ? a.block_table[(u64)a.seq[token] * a.block_table_stride + position / PAGE_TOKENS] : 0;
  const f32 *cos_sin = a.cos_sin + (u64)position * a.rope_dim;
  const f32 *source = is_key ? a.k + (u64)token * a.k_stride : a.q + (u64)token * a.q_stride + (u64)head * INDEX_DIM;
  ptx_grid_wait();

  row_part v;
#pragma unroll
  for (u32 m = 0; m < PIECES; m++) {
    const float4 four = is_row ? *(const float4 *)(source + 32u * m + 4u * lane) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    v[m][0] = four.x, v[m][1] = four.y, v[m][2] = four.z, v[m][3] = four.w;
  }
  const f32 weight = is_row && !is_key && lane == 0 ? a.w[(u64)token * a.w_stride + head] : 0.0f;
  if (__any_sync(WARP_ALL, is_key)) normalise(a, v, is_key);
  if (a.half_split) rotate_halves(a, v, cos_sin);
  else rotate_neighbours(a, v, cos_sin);
  round_row(v, 1.0f);
  transform(v);
  round_row(v, SCALE);
  const f32 scale = find_scale(v, a.scale_kind);
  if (!is_row) return;
  u8 *cached = a.cache + (u64)page * INDEX_PAGE_BYTES;
  const u32 slot = position % PAGE_TOKENS;
  const u64 query = (u64)token * a.heads + head;
  write_codes(is_key ? cached + slot * INDEX_DIM : a.q_codes + query * INDEX_DIM, v, scale, a.scale_kind);
  if (lane > 0) return;
  if (is_key) ((f32 *)(cached + PAGE_TOKENS * INDEX_DIM))[slot] = scale;
  else a.w_out[query] = num_mul(num_mul(num_mul(weight, a.head_scale), scale), SCALE);
}

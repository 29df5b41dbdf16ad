/* qkv_rope.cu - splits the query heads and writes the KV row of each token, rope columns rotated. NUMERICS.md, `qkv_rope`.
 *
 * q [T][q_stride] fp32, per head nope_dim columns, then rope_dim; kv_in [T][kv_in_stride] fp32, latent columns, then rope_dim. q_nope
 * [T][heads][nope_dim] bf16; of q_latent [T][heads][kv_lora_rank + rope_dim] bf16 only the last rope_dim columns are written; kv [pages]
 * [64] rows of this layer, in any format: a row's address depends on the token's sequence and position, its contents on the token alone.
 * 256 threads, the partial sums of the norm. Grid: rows, 1 + ceil(heads / 8): the first block of a token writes the KV row, the others have
 * a warp per head; just rows, 1 where that would be more than 1056 blocks, which then do both. With w_uk (qkv_absorb.cuh, one token) 1 +
 * ceil(heads / 8) blocks and min(132, tiles) more; SPEC_* and shared memory as for gemm, small M, SPEC_TILE_ROWS 1.
 * Moves heads * (nope_dim + rope_dim) * 6 bytes and (kv_lora_rank + rope_dim) * 6 a token. For small M a launch and one round trip to L2
 * bound it: all other inputs are read before the wait. On an H200, 16 heads: 1.8 to 2.1 us for 1 to 64 rows, 17.3 for 2,048 (bound 10.6).
 * Study: tools/bench/history, small-ops. */
#include "spec.cuh"
#include "ptx/reduce.cuh"

static_assert(SPEC_THREADS == 256, "the number of partial sums is part of the result");
#define WARPS (SPEC_THREADS / 32u)
#define HELD 2u /* columns of a thread: kv_lora_rank is at most 512 */

/* Two rotated columns: the second one is next to the first, or half of the columns further. */
NUM float2 rotate(float2 angle, f32 x, f32 y, f32 scale) {
  return make_float2(num_mul(num_fma(x, angle.x, -num_mul(y, angle.y)), scale), num_mul(num_fma(x, angle.y, num_mul(y, angle.x)), scale));
}
NUM u32 first_of(const qkv_rope_args &a, u32 i) { return a.half_split ? i : 2 * i; }
NUM u32 second_of(const qkv_rope_args &a, u32 i) { return a.half_split ? i + a.rope_dim / 2 : 2 * i + 1; }

/* Writes the rotated columns of src, by the lanes of a warp. */
NUM void rotate_columns(const qkv_rope_args &a, bf16 *to, const f32 *src, const float2 *cos_sin, f32 scale) {
  for (u32 i = threadIdx.x % 32u; i < a.rope_dim / 2; i += 32u) {
    const u32 first = first_of(a, i), second = second_of(a, i);
    const float2 rotated = rotate(cos_sin[i], src[first], src[second], scale);
    to[first] = num_to_bf16(rotated.x);
    to[second] = num_to_bf16(rotated.y);
  }
}

/* A number of a KV row: KV_FP8 (R4.13, R4.14) or KV_FP8_DS_MLA (R12.2, R12.3). */
NUM u8 code_of(bf16 x, f32 scale) { return num_to_e4m3(num_div(num_from_bf16(x), scale)); }

NUM void rotate_codes(const qkv_rope_args &a, u8 *to, const f32 *src, const float2 *cos_sin) {
  for (u32 i = threadIdx.x % 32u; i < a.rope_dim / 2; i += 32u) {
    const u32 first = first_of(a, i), second = second_of(a, i);
    const float2 rotated = rotate(cos_sin[i], src[first], src[second], 1.0f);
    to[first] = code_of(num_to_bf16(rotated.x), *a.kv_scale);
    to[second] = code_of(num_to_bf16(rotated.y), *a.kv_scale);
  }
}

/* The scales of this thread's columns, one for each 128, which four warps hold. Magnitudes order as their bits, NaN last. */
NUM void find_scales(const qkv_rope_args &a, const bf16 (&c)[HELD], f32 (&scale)[HELD]) {
  __shared__ u32 largest[HELD][WARPS];
  const u32 warp = threadIdx.x / 32u;
#pragma unroll
  for (u32 e = 0; e < HELD; e++) {
    const u32 most = __reduce_max_sync(WARP_ALL, num_bits(num_from_bf16(c[e])) & 0x7fffffffu);
    if (threadIdx.x % 32u == 0) largest[e][warp] = most;
  }
  __syncthreads();
#pragma unroll
  for (u32 e = 0; e < HELD; e++) {
    u32 most = num_bits(NUM_SCALE_LEAST);
#pragma unroll
    for (u32 w = 0; w < 4u; w++) {
      const u32 x = largest[e][warp / 4u * 4u + w];
      most = x > most ? x : most;
    }
    scale[e] = num_scale(num_float(most), a.scale_kind);
  }
}

NUM void write_row(const qkv_rope_args &a, u32 t, u32 position, u32 page, const float2 *cos_sin, const bf16 (&weight)[HELD], f32 *shared) {
  const u32 j = threadIdx.x, rank = a.kv_lora_rank, scales = rank / SCALE_COLUMNS * 4u;
  const f32 *src = a.kv_in + (u64)t * a.kv_in_stride;
  u8 *row = (u8 *)a.kv + ((u64)page * PAGE_TOKENS + position % PAGE_TOKENS) * KV_ROW_BYTES(a.kv_format, rank, a.rope_dim);
  f32 v[HELD], scale[HELD], p = 0.0f;
  bf16 c[HELD];
#pragma unroll
  for (u32 e = 0; e < HELD; e++) v[e] = j + e * SPEC_THREADS < rank ? src[j + e * SPEC_THREADS] : 0.0f;
  if (j < 32 && a.kv_format == KV_FP8) rotate_codes(a, row + rank, src + rank, cos_sin);
  else if (j < 32) /* the product with 1 is exact */
    rotate_columns(a, (bf16 *)(row + (a.kv_format == KV_BF16 ? 2u * rank : rank + scales)), src + rank, cos_sin, 1.0f);
#pragma unroll
  for (u32 e = 0; e < HELD; e++)
    if (j + e * SPEC_THREADS < rank) p = num_fma(v[e], v[e], p);
  const f32 s = reduce_tree_block(p, shared);
  const f32 r = num_div(1.0f, num_sqrt(num_add(num_div(s, (f32)rank), a.eps)));
#pragma unroll
  for (u32 e = 0; e < HELD; e++) c[e] = num_to_bf16(num_mul(num_mul(v[e], r), num_from_bf16(weight[e])));
  if (a.kv_format == KV_FP8_DS_MLA) find_scales(a, c, scale);
#pragma unroll
  for (u32 e = 0; e < HELD; e++) {
    const u32 i = j + e * SPEC_THREADS;
    if (i >= rank) continue;
    if (a.kv_format == KV_BF16) ((bf16 *)row)[i] = c[e];
    else row[i] = code_of(c[e], a.kv_format == KV_FP8 ? *a.kv_scale : scale[e]);
    if (a.kv_format == KV_FP8_DS_MLA && i % SCALE_COLUMNS == 0) *(f32 *)(row + rank + i / SCALE_COLUMNS * 4u) = scale[e];
  }
}

NUM void split_head(const qkv_rope_args &a, u32 t, u32 head, const float2 *cos_sin, f32 scale) {
  const f32 *src = a.q + (u64)t * a.q_stride + (u64)head * (a.nope_dim + a.rope_dim);
  bf16 *nope = a.q_nope + ((u64)t * a.heads + head) * a.nope_dim;
#pragma unroll 4
  for (u32 i = threadIdx.x % 32u; i < a.nope_dim; i += 32u) nope[i] = num_to_bf16(num_mul(src[i], scale));
  rotate_columns(a, a.q_latent + ((u64)t * a.heads + head) * (a.kv_lora_rank + a.rope_dim) + a.kv_lora_rank, src + a.nope_dim, cos_sin,
                 scale);
}

/* The work of block `part` of a token's `parts`. Reads nothing that the step computes before the wait. */
NUM void take_part(const qkv_rope_args &a, u32 t, u32 part, u32 parts, f32 *shared) {
  const u32 j = threadIdx.x;
  const bool is_row = t < a.step->token_count, has_kv = part == 0, is_alone = parts == 1;
  const u32 position = is_row ? a.position[t] : 0;
  const u32 page = is_row && has_kv ? a.block_table[(u64)a.seq[t] * a.block_table_stride + position / PAGE_TOKENS] : 0;
  const float2 *cos_sin = (const float2 *)a.cos_sin + (u64)position * (a.rope_dim / 2);
  const f32 scale = a.q_scale ? a.q_scale[position] : 1.0f;
  bf16 weight[HELD];
#pragma unroll
  for (u32 e = 0; e < HELD; e++) weight[e] = has_kv && j + e * SPEC_THREADS < a.kv_lora_rank ? a.weight[j + e * SPEC_THREADS] : 0;
  ptx_grid_wait();
  if (!is_row) return;
  if (has_kv) write_row(a, t, position, page, cos_sin, weight, shared);
  if (has_kv && !is_alone) return;
  const u32 blocks = is_alone ? 1u : parts - 1u, block = is_alone ? 0 : part - 1u;
  for (u32 head = block * WARPS + j / 32u; head < a.heads; head += blocks * WARPS) split_head(a, t, head, cos_sin, scale);
}

#if SPEC_MAPS
#include "rows/qkv_absorb.cuh"
#else
extern "C" __global__ __launch_bounds__(SPEC_THREADS) void qkv_rope(const __grid_constant__ qkv_rope_args a) {
  __shared__ f32 shared[SPEC_THREADS];
  ptx_grid_next();
  take_part(a, blockIdx.x, blockIdx.y, gridDim.y, shared);
}
#endif

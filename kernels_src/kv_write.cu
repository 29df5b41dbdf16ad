/* kv_write.cu - writes the KV row of each token: normalised latent columns, then rotated rope columns. NUMERICS.md, `kv_write`.
 *
 * src [T][src_stride] fp32, kv [pages][64][kv_lora_rank + rope_dim] bf16 of this layer. The row's place comes from the token's
 * sequence and position; its contents from nothing but the token. The 256 partial sums are the 256 threads. Grid: a block
 * a token. Moves (kv_lora_rank + rope_dim) * 6 bytes a token. */
#include "spec.cuh"
#include "reduce.cuh"

static_assert(SPEC_THREADS == 256, "the number of partial sums is part of the result");

extern "C" __global__ __launch_bounds__(SPEC_THREADS) void kv_write(const __grid_constant__ kv_write_args a) {
  __shared__ f32 shared[SPEC_THREADS];
  ptx_grid_next();
  ptx_grid_wait();
  const u32 t = blockIdx.x, j = threadIdx.x, rank = a.kv_lora_rank;
  if (t >= a.step->token_count) return;
  const f32 *src = a.src + (u64)t * a.src_stride;
  const u32 position = a.position[t];
  const u32 page = a.block_table[(u64)a.seq[t] * a.block_table_stride + position / PAGE_TOKENS];
  bf16 *row = a.kv + ((u64)page * PAGE_TOKENS + position % PAGE_TOKENS) * (rank + a.rope_dim);

  f32 p = 0.0f;
  for (u32 i = j; i < rank; i += SPEC_THREADS) p = num_fma(src[i], src[i], p);
  const f32 s = reduce_tree_block(p, shared);
  const f32 r = num_div(1.0f, num_sqrt(num_add(num_div(s, (f32)rank), a.eps)));
  for (u32 i = j; i < rank; i += SPEC_THREADS) row[i] = num_to_bf16(num_mul(num_mul(src[i], r), num_from_bf16(a.weight[i])));

  for (u32 i = j; i < a.rope_dim / 2; i += SPEC_THREADS) {
    const float2 turn = ((const float2 *)a.cos_sin)[(u64)position * (a.rope_dim / 2) + i];
    const u32 first = rank + (a.half_split ? i : 2 * i), second = rank + (a.half_split ? i + a.rope_dim / 2 : 2 * i + 1);
    const f32 x = src[first], y = src[second];
    row[first] = num_to_bf16(num_fma(x, turn.x, -num_mul(y, turn.y)));
    row[second] = num_to_bf16(num_fma(x, turn.y, num_mul(y, turn.x)));
  }
}

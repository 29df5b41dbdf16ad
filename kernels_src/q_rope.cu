/* q_rope.cu - splits the query heads: nope columns to bf16, rope columns rotated behind the latent ones, all times the query
 * scale of the position if there is one. NUMERICS.md, `q_rope`.
 *
 * src [T][src_stride] fp32, per head nope_dim columns, then rope_dim; q_nope [T][heads][nope_dim] bf16; of q_latent
 * [T][heads][kv_lora_rank + rope_dim] bf16 only the last rope_dim columns are written. Grid: a block a token, a warp a head.
 * Moves heads * (nope_dim + rope_dim) * 6 bytes a token. */
#include "spec.cuh"
#include "ptx.cuh"

extern "C" __global__ __launch_bounds__(SPEC_THREADS) void q_rope(const __grid_constant__ q_rope_args a) {
  ptx_grid_next();
  ptx_grid_wait();
  const u32 t = blockIdx.x, lane = threadIdx.x % 32u;
  if (t >= a.step->token_count) return;
  const u32 position = a.position[t];
  const float2 *cos_sin = (const float2 *)a.cos_sin + (u64)position * (a.rope_dim / 2);
  const f32 scale = a.q_scale ? a.q_scale[position] : 1.0f;
  for (u32 head = threadIdx.x / 32u; head < a.heads; head += SPEC_THREADS / 32u) {
    const f32 *src = a.src + (u64)t * a.src_stride + (u64)head * (a.nope_dim + a.rope_dim);
    bf16 *nope = a.q_nope + ((u64)t * a.heads + head) * a.nope_dim;
    bf16 *rope = a.q_latent + ((u64)t * a.heads + head) * (a.kv_lora_rank + a.rope_dim) + a.kv_lora_rank;
    for (u32 i = lane; i < a.nope_dim; i += 32u) nope[i] = num_to_bf16(num_mul(src[i], scale));
    for (u32 i = lane; i < a.rope_dim / 2; i += 32u) {
      const u32 first = a.half_split ? i : 2 * i, second = a.half_split ? i + a.rope_dim / 2 : 2 * i + 1;
      const f32 x = src[a.nope_dim + first], y = src[a.nope_dim + second], c = cos_sin[i].x, s = cos_sin[i].y;
      rope[first] = num_to_bf16(num_mul(num_fma(x, c, -num_mul(y, s)), scale));
      rope[second] = num_to_bf16(num_mul(num_fma(x, s, num_mul(y, c)), scale));
    }
  }
}

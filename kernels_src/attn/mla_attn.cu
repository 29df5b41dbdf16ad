/* mla_attn.cu - absorbed latent attention over the paged KV rows of a step. NUMERICS.md, `mla_attn`.
 *
 * The forms, each in a file of its own: attn/decode/form.cuh, few heads, at most 32 (token, head) rows at a time; attn/pair/form.cuh, two
 * blocks side by side for up to 64; attn/turn/form.cuh, many heads over lists that are one chunk; attn/spread/form.cuh, few tokens of such.
 * Which chunks of which tile a block takes: attn/pieces.cuh. */
#include "spec.cuh"
#if SPEC_PAIR
#include "attn/pair/form.cuh"
#elif SPEC_SPREAD
#include "attn/spread/form.cuh"
#elif SPEC_TURNS
#include "attn/turn/form.cuh"
#else
#include "attn/decode/form.cuh"

extern "C" __global__ __launch_bounds__(BLOCK_THREADS, 1) void mla_attn(const __grid_constant__ mla_attn_args a,
                                                                       const __grid_constant__ tensor_maps maps) {
  extern __shared__ u8 raw[];
  ptx_grid_next();
  decode(a, maps, raw);
}
#endif

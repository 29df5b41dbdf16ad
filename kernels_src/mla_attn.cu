/* mla_attn.cu - absorbed latent attention over the paged KV rows of a step. NUMERICS.md, `mla_attn`.
 *
 * The forms, each in a file of its own: mla_decode.cuh, few heads, at most 32 (token, head) rows at a time; mla_pair.cuh, two blocks side
 * by side for up to 64; mla_turn.cuh, many heads over lists that are one chunk; mla_spread.cuh, few tokens of such. Which chunks of which
 * tile a block takes: attn_pieces.cuh. */
#include "spec.cuh"
#if SPEC_PAIR
#include "mla_pair.cuh"
#elif SPEC_SPREAD
#include "mla_spread.cuh"
#elif SPEC_TURNS
#include "mla_turn.cuh"
#else
#include "mla_decode.cuh"

extern "C" __global__ __launch_bounds__(BLOCK_THREADS, 1) void mla_attn(const __grid_constant__ mla_attn_args a,
                                                                       const __grid_constant__ tensor_maps maps) {
  extern __shared__ u8 raw[];
  ptx_grid_next();
  decode(a, maps, raw);
}
#endif

/* act_quant.cu - rows of bf16 numbers as e4m3 codes with an fp32 scale for every 128 columns. NUMERICS.md, `act_quant`.
 *
 * x [rows][ldx], codes [rows][columns], scales [rows][columns / 128]; rows are the step's times rows_mul. columns a multiple of 128, ldx
 * of 8; pointers aligned to 16 bytes. Grid: any number of blocks; rows * rows_mul * ceil(columns / 4096), at most 1056. 256 threads.
 * Eight lanes take 128 columns, eight of each half a lane: the division for the scale and the one for its inverse, which they share, cost
 * as much as ten numbers. The largest magnitude is an integer maximum of bits, in any order. A quotient starts as a product with the
 * inverse and is made exact by its remainder: for all significands of bf16 the result is that of the division (the test covers them all).
 * Bound: 3 bytes a column at 4.3 TB/s (4,096 rows of 7168: 20 us), for small M the launch and one round trip to L2 (about 2 us). */
#include "spec.cuh"
#include "ptx/ptx.cuh"

#define LANES 8u /* per 128 columns */
#define WORDS 4u /* of a lane in each half of the columns: pairs of numbers */

/* x / scale, with the sign of a zero. inverse: 1 / scale, rounded; exact for powers of two. */
NUM f32 quotient(f32 x, f32 scale, f32 inverse) {
  const f32 q = num_mul(x, inverse);
  return num_fma(-num_fma(q, scale, -x), inverse, q);
}

/* The largest magnitude of the 128 numbers that the lanes of a piece hold, as fp32 bits. */
NUM u32 largest_of(const u32 (&words)[2u * WORDS]) {
  u32 most = 0;
#pragma unroll
  for (u32 i = 0; i < 2u * WORDS; i++) most = ptx_max_halves(most, words[i] & 0x7fff7fffu);
#pragma unroll
  for (u32 s = LANES / 2u; s > 0; s /= 2u) most = ptx_max_halves(most, __shfl_xor_sync(WARP_ALL, most, s));
  return ptx_max_halves(most, most >> 16) << 16;
}

NUM uint2 codes_of(const u32 *words, f32 scale, f32 inverse) {
  u32 codes[2];
#pragma unroll
  for (u32 i = 0; i < 2u; i++) {
    u32 pair[2];
#pragma unroll
    for (u32 h = 0; h < 2u; h++) {
      const u32 word = words[2u * i + h];
      pair[h] = ptx_pack_e4m3(quotient(num_float(word << 16), scale, inverse), quotient(num_float(word & 0xffff0000u), scale, inverse));
    }
    codes[i] = pair[1] << 16 | pair[0];
  }
  return make_uint2(codes[0], codes[1]);
}

extern "C" __global__ __launch_bounds__(SPEC_THREADS) void act_quant(const __grid_constant__ act_quant_args a) {
  ptx_grid_next();
  const u32 block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z), blocks = gridDim.x * gridDim.y * gridDim.z;
  const u32 at_once = SPEC_THREADS / LANES, own = threadIdx.x / LANES, column = threadIdx.x % LANES * 8u;
  const u32 rows = (a.rows_kind == ROWS_TOKENS ? a.step->token_count : a.step->logit_count) * a.rows_mul;
  const u32 of_row = a.columns / SCALE_COLUMNS, pieces = rows * of_row;
  ptx_grid_wait();
#pragma unroll 1
  for (u32 first = block * at_once; first < pieces; first += blocks * at_once) { /* the same for all threads */
    const bool is_piece = first + own < pieces;
    const u32 piece = is_piece ? first + own : pieces - 1u;
    const bf16 *from = a.x + (u64)(piece / of_row) * a.ldx + piece % of_row * SCALE_COLUMNS + column;
    const uint4 v = *(const uint4 *)from, w = *(const uint4 *)(from + SCALE_COLUMNS / 2u);
    const u32 words[2u * WORDS] = {v.x, v.y, v.z, v.w, w.x, w.y, w.z, w.w};
    const u32 most = largest_of(words), least = num_bits(NUM_SCALE_LEAST);
    const f32 scale = num_scale(num_float(most > least ? most : least), a.scale_kind), inverse = num_div(1.0f, scale);
    u8 *codes = a.codes + (u64)piece * SCALE_COLUMNS + column;
    const uint2 low = codes_of(words, scale, inverse), high = codes_of(words + WORDS, scale, inverse);
    if (!is_piece) continue;
    *(uint2 *)codes = low;
    *(uint2 *)(codes + SCALE_COLUMNS / 2u) = high;
    if (column == 0) a.scales[piece] = scale;
  }
}

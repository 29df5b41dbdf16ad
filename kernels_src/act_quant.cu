/* act_quant.cu - rows of bf16 numbers as e4m3 codes with an fp32 scale for every 128 columns. NUMERICS.md, `act_quant`.
 *
 * x [rows][ldx], codes [rows][columns], scales [rows][columns / 128]; rows are the step's times rows_mul. columns a multiple of 128, ldx
 * of 8, pointers of 16 bytes. A warp takes 128 columns, four a lane; the largest magnitude is an integer maximum of bits, in any order. Its
 * quotients begin with the scale's inverse and are made exact by their remainder: for all significands of bf16 that is the division (the
 * test has all of them). Grid: any number of blocks, which share all warps' work; two pieces a warp are under way at a time.
 * Moves columns * 3 bytes a row. Bound: these bytes at 4.3 TB/s (4,096 rows of 7168: 20 us), for few rows the launch and one round trip to
 * L2 (about 2 us). */
#include "spec.cuh"
#include "ptx.cuh"

#define PIECES 2u

/* x / scale, a zero's sign as well. inverse: 1 / scale, rounded; of powers of two exact. */
NUM f32 quotient(f32 x, f32 scale, f32 inverse) {
  const f32 q = num_mul(x, inverse);
  return num_fma(-num_fma(q, scale, -x), inverse, q);
}

/* The lane's four numbers of a piece: codes, and one for the scale. */
NUM void quantise(const act_quant_args &a, uint2 v, u32 piece) {
  const f32 x[4] = {num_float(v.x << 16), num_float(v.x & 0xffff0000u), num_float(v.y << 16), num_float(v.y & 0xffff0000u)};
  u32 largest = num_bits(NUM_SCALE_LEAST), codes = 0;
#pragma unroll
  for (u32 i = 0; i < 4u; i++) {
    const u32 magnitude = num_bits(x[i]) & 0x7fffffffu;
    largest = magnitude > largest ? magnitude : largest;
  }
  const f32 scale = num_scale(num_float(__reduce_max_sync(WARP_ALL, largest)), a.scale_kind), inverse = num_div(1.0f, scale);
#pragma unroll
  for (u32 i = 0; i < 4u; i += 2u)
    codes |= ptx_pack_e4m3(quotient(x[i], scale, inverse), quotient(x[i + 1u], scale, inverse)) << i * 8u;
  ((u32 *)a.codes)[(u64)piece * 32u + threadIdx.x % 32u] = codes;
  if (threadIdx.x % 32u == 0) a.scales[piece] = scale;
}

extern "C" __global__ __launch_bounds__(SPEC_THREADS) void act_quant(const __grid_constant__ act_quant_args a) {
  ptx_grid_next();
  const u32 block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z), blocks = gridDim.x * gridDim.y * gridDim.z;
  const u32 first = block * (SPEC_THREADS / 32u) + threadIdx.x / 32u, step = blocks * (SPEC_THREADS / 32u);
  const u32 rows = (a.rows_kind == ROWS_TOKENS ? a.step->token_count : a.step->logit_count) * a.rows_mul;
  const u32 of_row = a.columns / SCALE_COLUMNS, pieces = rows * of_row;
  ptx_grid_wait();
  for (u32 piece = first; piece < pieces; piece += PIECES * step) {
    uint2 v[PIECES];
#pragma unroll
    for (u32 i = 0; i < PIECES; i++) {
      const u32 at = piece + i * step < pieces ? piece + i * step : piece;
      v[i] = *(const uint2 *)(a.x + (u64)(at / of_row) * a.ldx + at % of_row * SCALE_COLUMNS + threadIdx.x % 32u * 4u);
    }
#pragma unroll
    for (u32 i = 0; i < PIECES; i++)
      if (piece + i * step < pieces) quantise(a, v[i], piece + i * step);
  }
}

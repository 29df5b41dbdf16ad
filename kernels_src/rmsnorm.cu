/* rmsnorm.cu - adds delta to the residual stream, stores it, and normalises the row. NUMERICS.md, `rmsnorm`.
 *
 * v = x + delta * delta_scale (or x), x_out = v if given (it may be x itself: an element is read and written by one thread),
 * y = bf16(v * r * w * y_scale).
 * The 256 partial sums are the 256 threads. x, delta, x_out [.][x_stride] fp32, weight [dim] bf16, y [rows][y_stride] bf16.
 * Grid: a block a row. Moves up to dim * (8 + 4 + 2) bytes a row, and reads v once more from L1 or L2. */
#include "spec.cuh"
#include "reduce.cuh"

static_assert(SPEC_THREADS == 256, "the number of partial sums is part of the result");
#define BATCH 4u /* loads in flight; the order of the chain does not change */

extern "C" __global__ __launch_bounds__(SPEC_THREADS) void rmsnorm(const __grid_constant__ rmsnorm_args a) {
  __shared__ f32 shared[SPEC_THREADS];
  ptx_grid_next();
  ptx_grid_wait();
  const u32 row = blockIdx.x, j = threadIdx.x;
  if (row >= (a.rows_kind == ROWS_TOKENS ? a.step->token_count : a.step->logit_count)) return;
  const u64 at = (u64)(a.row_index ? a.row_index[row] : row) * a.x_stride;

  f32 p = 0.0f;
  for (u32 i0 = j; i0 < a.dim; i0 += BATCH * SPEC_THREADS) {
    f32 v[BATCH];
#pragma unroll
    for (u32 b = 0; b < BATCH; b++) {
      const u32 i = i0 + b * SPEC_THREADS;
      v[b] = i < a.dim ? a.x[at + i] : 0.0f;
      if (i < a.dim && a.delta) v[b] = num_fma(a.delta[at + i], a.delta_scale, v[b]);
    }
#pragma unroll
    for (u32 b = 0; b < BATCH; b++) {
      const u32 i = i0 + b * SPEC_THREADS;
      if (i >= a.dim) break;
      p = num_fma(v[b], v[b], p);
      if (a.x_out) a.x_out[at + i] = v[b];
    }
  }
  const f32 s = reduce_tree_block(p, shared);
  const f32 r = num_div(1.0f, num_sqrt(num_add(num_div(s, (f32)a.dim), a.eps)));

  const f32 *again = a.x_out ? a.x_out : a.x;
  const f32 *delta = a.x_out ? nullptr : a.delta;
  bf16 *y = a.y + (u64)row * a.y_stride;
  for (u32 i = j; i < a.dim; i += SPEC_THREADS) {
    const f32 v = delta ? num_fma(delta[at + i], a.delta_scale, again[at + i]) : again[at + i];
    y[i] = num_to_bf16(num_mul(num_mul(num_mul(v, r), num_from_bf16(a.weight[i])), a.y_scale));
  }
}

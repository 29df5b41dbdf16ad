/* h32.c - the tensor-core step of e4m3 numbers in integers, and the product's loop over panels and blocks.
 *
 * Read next: h32_core.h (the fast form), h16.c (the same for bf16), NUMERICS.md "H32" (the rule). */
#include "mma/h16_core.h"
#include "mma/h32_core.h"
#include <string.h>

#define FRACTION 13 /* bits that a term keeps below the largest exponent, and the sum below its own */

/* Its value is significand * 2^(exponent - 3); a zero's exponent means nothing. */
typedef struct number {
  i32 significand, exponent;
} number;

static number split(u8 x) {
  i32 field = (x >> 3) & 15, low = x & 7, magnitude = field == 0 ? low : low | 8;
  return (number){.significand = x & 0x80u ? -magnitude : magnitude, .exponent = field == 0 ? -6 : field - 7};
}

/* significand * 2^(exponent - fraction), truncated toward zero to a whole number of units 2^(largest - FRACTION). */
static i64 truncated(i64 significand, i32 fraction, i32 exponent, i32 largest) {
  i32 up = exponent - fraction - (largest - FRACTION);
  u64 magnitude = (u64)(significand < 0 ? -significand : significand);
  magnitude = up >= 0 ? magnitude << up : up > -64 ? magnitude >> -up : 0;
  return significand < 0 ? -(i64)magnitude : (i64)magnitude;
}

/* sum * 2^unit, truncated toward zero to its top FRACTION + 1 bits. */
static f32 to_f32(i64 sum, i32 unit) {
  u64 magnitude = sum < 0 ? (u64)-sum : (u64)sum;
  if (magnitude == 0) return 0.0f;
  i32 top = 63 - __builtin_clzll(magnitude), drop = top > FRACTION ? top - FRACTION : 0;
  f32 v = ldexpf((f32)(magnitude >> drop), drop + unit);
  return sum < 0 ? -v : v;
}

f32 h32_step_reference(const u8 a[H32_STEP], const u8 b[H32_STEP], f32 c) {
  i32 exponent[H32_STEP], largest = INT32_MIN, c_exponent = 0;
  i64 product[H32_STEP], sum = 0, start = 0;
  u32 nan = c != c, field = num_bits(c) >> 23 & 255u;
  for (u32 i = 0; i < H32_STEP; i++) nan |= (a[i] & 0x7fu) == 0x7fu || (b[i] & 0x7fu) == 0x7fu;
  if (nan) return num_float(0x7fffffffu);
  for (u32 i = 0; i < H32_STEP; i++) {
    number x = split(a[i]), y = split(b[i]);
    product[i] = (i64)x.significand * y.significand;
    exponent[i] = x.exponent + y.exponent;
    if (product[i] != 0 && exponent[i] > largest) largest = exponent[i];
  }
  if (field == 255) return c;
  if (c != 0) {
    start = (i64)((num_bits(c) & 0x7fffffu) | (field ? 0x800000u : 0u));
    if (num_bits(c) >> 31) start = -start;
    c_exponent = field ? (i32)field - 127 : -126;
    if (c_exponent > largest) largest = c_exponent;
  }
  if (largest == INT32_MIN) return 0.0f;
  sum = truncated(start, 23, c_exponent, largest);
  for (u32 i = 0; i < H32_STEP; i++) sum += truncated(product[i], 6, exponent[i], largest);
  return to_f32(sum, largest - FRACTION);
}

/* Runs up to H32_ROWS rows by the columns of a panel. */
static void run_panel(const h32_core *core, const h32_job *job, u32 i0, u32 j0) {
  _Alignas(64) f32 c[H32_ROWS * H32_COLUMNS_MAX];
  h32_block block = {.ldw = job->ldw, .c = c, .rows = min_u32(H32_ROWS, job->rows - i0), .n = min_u32(core->columns, job->n - j0)};
  memset(c, 0, block.rows * core->columns * sizeof *c);
  for (u32 i = 0; i < block.rows && job->continues; i++)
    memcpy(c + i * core->columns, job->y + (i0 + i) * job->ldy + j0, block.n * sizeof *c);
  for (u32 k = 0; k < job->k; k += H32_BLOCK_K) {
    block.w = job->w + j0 * job->ldw + k;
    block.k = min_u32(H32_BLOCK_K, job->k - k);
    for (u32 i = 0; i < block.rows; i++) block.x[i] = job->x + (job->x_row ? job->x_row[i0 + i] : i0 + i) * job->ldx + k;
    core->run(&block);
  }
  for (u32 i = 0; i < block.rows; i++) memcpy(job->y + (i0 + i) * job->ldy + j0, c + i * core->columns, block.n * sizeof *c);
}

void h32_gemm(const h32_job *job) {
  const h32_core *core = cpu_isa_core()->h32;
  ASSERT(job->k % H32_STEP == 0);
  for (u32 i0 = 0; i0 < job->rows; i0 += H32_ROWS)
    for (u32 j0 = 0; j0 < job->n; j0 += core->columns) run_panel(core, job, i0, j0);
}

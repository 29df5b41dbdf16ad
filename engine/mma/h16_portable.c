/* h16_portable.c - the fast range of h16_core.h in plain C, with loops that a compiler can vectorize for any processor.
 *
 * Read next: h16_avx512.c, the same steps with sixteen lanes in a register. */
#include "mma/h16_core.h"
#include "mma/h32_core.h"

#define COLUMNS 16u

static void pack_n_major(h16_panel *panel, const bf16 *w, u64 ldw, u32 n, u32 k) {
  for (u32 j = 0; j < COLUMNS; j++) {
    for (u32 i = 0; i < k; i++) {
      bf16 v = j < n ? w[j * ldw + i] : 0;
      panel->value[i * COLUMNS + j] = num_from_bf16(v);
      panel->exponent[i * COLUMNS + j] = h16_exponent(v);
    }
  }
}

static void pack_k_major(h16_panel *panel, const bf16 *w, u64 ldw, u32 n, u32 k_rows, u32 k) {
  for (u32 i = 0; i < k; i++) {
    for (u32 j = 0; j < COLUMNS; j++) {
      bf16 v = i < k_rows && j < n ? w[i * ldw + j] : 0;
      panel->value[i * COLUMNS + j] = num_from_bf16(v);
      panel->exponent[i * COLUMNS + j] = h16_exponent(v);
    }
  }
}

/* (f32)v, truncated toward zero. */
static f32 to_f32_truncated(i32 v) {
  u32 magnitude = v < 0 ? 0u - (u32)v : (u32)v;
  u32 bits = magnitude == 0 ? 0 : 32u - (u32)__builtin_clz(magnitude);
  if (bits > 24) magnitude &= ~0u << (bits - 24);
  f32 f = (f32)magnitude; /* exact here */
  return v < 0 ? -f : f;
}

/* E of every column: the largest exponent among its products and its c. */
static void largest_exponents(const int16_t *exponent, const int16_t *x_exponent, const f32 *c, i32 *largest) {
  int16_t product[COLUMNS];
  for (u32 j = 0; j < COLUMNS; j++) product[j] = INT16_MIN;
  for (u32 k = 0; k < H16_STEP; k++) {
    for (u32 j = 0; j < COLUMNS; j++) {
      int16_t e = (int16_t)(exponent[k * COLUMNS + j] + x_exponent[k]);
      product[j] = e > product[j] ? e : product[j];
    }
  }
  for (u32 j = 0; j < COLUMNS; j++) {
    u32 bits = num_bits(c[j]);
    i32 e = (i32)(bits << 1 >> 24) - 127;
    e = bits << 1 == 0 ? INT16_MIN : e;
    largest[j] = e > product[j] ? e : product[j];
  }
}

/* Adds the truncated products of one step, in units of 1 / scale. */
static void add_products(const f32 *value, const f32 *x, const f32 *scale, i32 *sum) {
  for (u32 j = 0; j < COLUMNS; j++) sum[j] = 0;
  for (u32 k = 0; k < H16_STEP; k++) {
    for (u32 j = 0; j < COLUMNS; j++) sum[j] += (i32)(value[k * COLUMNS + j] * x[k] * scale[j]);
  }
}

static void run_step(const h16_block *block, u32 row, u32 k, const f32 *x, const int16_t *x_exponent, f32 *c) {
  i32 largest[COLUMNS], sum[COLUMNS];
  f32 scale[COLUMNS];
  u32 exact = 0;
  largest_exponents(block->panel->exponent + k * COLUMNS, x_exponent, c, largest);
  for (u32 j = 0; j < COLUMNS; j++) {
    i32 e = largest[j];
    if ((e < -H16_E_MAX || e > H16_E_MAX) && e >= H16_NONE / 2) exact |= 1u << j;
    e = e < -H16_E_MAX ? -H16_E_MAX : e;
    scale[j] = num_float((u32)(25 + 127 - (e > H16_E_MAX ? H16_E_MAX : e)) << 23);
  }
  if (exact) { /* a plain conversion to i32 is undefined out of range, so all columns take the exact path together */
    for (u32 j = 0; j < COLUMNS; j++) c[j] = h16_exact(block, COLUMNS, row, j, k, c[j]);
    return;
  }
  add_products(block->panel->value + k * COLUMNS, x, scale, sum);
  for (u32 j = 0; j < COLUMNS; j++) {
    i64 whole = (i64)sum[j] + (i32)(c[j] * scale[j]);
    if (whole != (i32)whole)
      c[j] = h16_exact(block, COLUMNS, row, j, k, c[j]);
    else /* 2^(E-25) from 2^(25-E): the exponent fields add up to 254 */
      c[j] = to_f32_truncated((i32)whole) * num_float((254u << 23) - num_bits(scale[j]));
  }
}

static void run(const h16_block *block) {
  f32 x[H16_BLOCK_K];
  int16_t x_exponent[H16_BLOCK_K];
  for (u32 i = 0; i < block->rows; i++) {
    for (u32 k = 0; k < block->k; k++) {
      x[k] = num_from_bf16(block->x[i][k]);
      x_exponent[k] = h16_exponent(block->x[i][k]);
    }
    for (u32 k = 0; k < block->k; k += H16_STEP) run_step(block, i, k, x + k, x_exponent + k, block->c + i * COLUMNS);
  }
}

CORE_ROWS

const h16_core h16_portable = {"portable", COLUMNS, pack_n_major, pack_k_major, run, softmax, weigh, silu_mul, exp_parts, &h32_portable};

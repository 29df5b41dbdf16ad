/* h16.c - the tensor-core step in integers, and the product's loop over panels and blocks.
 *
 * Read next: h16_core.h (the fast range), NUMERICS.md "H16" (the rule). */
#include "mma/h16_core.h"
#include "kernels_src/num.h"
#include <string.h>

/* === The definition ===================================================================================================== */

/* A finite number as sign, significand and the exponent e of NUMERICS.md; its value is significand * 2^(exponent - fraction). */
typedef struct number {
  u32 negative, finite, nan;
  i32 exponent;
  u64 significand; /* 0: a zero, whose exponent means nothing */
} number;

/* Splits the top bits of an fp32 pattern: `fraction` bits of fraction below 8 bits of exponent. */
static number split(u32 bits, u32 fraction) {
  u32 field = (bits >> fraction) & 255u, low = bits & ((1u << fraction) - 1);
  number v = {.negative = (bits >> (fraction + 8)) & 1u, .finite = field != 255, .nan = field == 255 && low != 0};
  v.exponent = field == 0 ? -126 : (i32)field - 127;
  v.significand = field == 0 ? low : low | 1u << fraction;
  return v;
}

static number product(bf16 a, bf16 b) {
  number x = split(a, 7), y = split(b, 7), p = {.negative = x.negative ^ y.negative, .finite = x.finite && y.finite};
  p.nan = x.nan || y.nan || (!p.finite && (x.significand == 0 || y.significand == 0));
  p.exponent = x.exponent + y.exponent;
  p.significand = x.significand * y.significand;
  return p;
}

/* Truncates v toward zero to a whole number of units 2^(largest - 25). `fraction`: bits of v's significand below its exponent. */
static i64 truncated(number v, u32 fraction, i32 largest) {
  u32 below = min_u32((u32)(largest - v.exponent), 63); /* arbitrary for a zero, whose exponent means nothing */
  i64 magnitude = (i64)(v.significand << (25 - fraction) >> below);
  return v.negative ? -magnitude : magnitude;
}

/* sum * 2^unit, truncated toward zero to fp32; unit >= -158. */
static f32 to_f32(i64 sum, i32 unit) {
  u64 magnitude = sum < 0 ? (u64)-sum : (u64)sum;
  if (magnitude == 0) return 0.0f;
  i32 top = 63 - __builtin_clzll(magnitude); /* magnitude in [2^top, 2^(top+1)) */
  i32 exponent = top + unit < -126 ? -126 : top + unit;
  i32 shift = exponent - 23 - unit; /* bits below the significand */
  u64 significand = shift >= 0 ? magnitude >> shift : magnitude << -shift;
  /* the significand's leading bit adds 1 to the exponent field; a subnormal has neither */
  u32 bits = exponent > 127 ? 0x7f800000u : ((u32)(exponent + 126) << 23) + (u32)significand;
  return num_float(sum < 0 ? bits | 0x80000000u : bits);
}

f32 h16_step_reference(const bf16 a[H16_STEP], const bf16 b[H16_STEP], f32 c) {
  number term[H16_STEP], start = split(num_bits(c), 23);
  i32 largest = start.significand != 0 && start.exponent > -133 ? start.exponent : -133;
  u32 infinite[2] = {0, 0};
  if (!start.finite) infinite[start.negative] = 1;
  for (u32 i = 0; i < H16_STEP; i++) {
    term[i] = product(a[i], b[i]);
    if (term[i].nan) return num_float(0x7fffffffu);
    if (!term[i].finite) infinite[term[i].negative] = 1;
    if (term[i].significand != 0 && term[i].exponent > largest) largest = term[i].exponent;
  }
  if (start.nan || (infinite[0] && infinite[1])) return num_float(0x7fffffffu);
  if (infinite[0] || infinite[1]) return num_float(infinite[1] ? 0xff800000u : 0x7f800000u);
  i64 sum = truncated(start, 23, largest);
  for (u32 i = 0; i < H16_STEP; i++) sum += truncated(term[i], 14, largest);
  return to_f32(sum, largest - 25);
}

/* === The product ======================================================================================================== */

f32 h16_exact(const h16_block *block, u32 columns, u32 i, u32 j, u32 k, f32 c) {
  bf16 a[H16_STEP], b[H16_STEP];
  if (c != c) return num_float(0x7fffffffu); /* for the rest of a chain that has become NaN: poison is many of those */
  for (u32 step = 0; step < H16_STEP; step++) {
    bool pair = k + step < block->k_valid[i];
    a[step] = pair ? block->x[i][k + step] : 0;
    b[step] = pair ? (bf16)(num_bits(block->panel->value[(k + step) * columns + j]) >> 16) : 0;
  }
  return h16_step_reference(a, b, c);
}

typedef struct product_scratch {
  h16_panel panel;
  _Alignas(64) f32 c[H16_ROWS * H16_COLUMNS_MAX];
  h16_block block;
} product_scratch;
_Static_assert(sizeof(product_scratch) <= H16_SCRATCH_BYTES, "a product needs more scratch");

/* Loads y into c (columns beyond n are +0), or stores c to y: rows i0 .. i0+rows-1, columns j0 .. j0+n-1. */
static void load_c(const h16_job *job, u32 i0, u32 j0, u32 rows, u32 n, u32 columns, f32 *c) {
  memset(c, 0, rows * columns * sizeof *c);
  if (!job->continues) return;
  for (u32 i = 0; i < rows; i++) memcpy(c + i * columns, job->y + (i0 + i) * job->ldy + j0, n * sizeof *c);
}

static void store_c(const h16_job *job, u32 i0, u32 j0, u32 rows, u32 n, u32 columns, const f32 *c) {
  for (u32 i = 0; i < rows; i++) memcpy(job->y + (i0 + i) * job->ldy + j0, c + i * columns, n * sizeof *c);
}

static void pack(const h16_core *core, const h16_job *job, h16_panel *panel, u32 j0, u32 n, u32 k0, u32 k) {
  if (job->k_major) {
    u32 present = job->k_rows > k0 ? min_u32(job->k_rows - k0, k) : 0;
    core->pack_k_major(panel, present ? job->w + k0 * job->ldw + j0 : job->w, job->ldw, n, present, k);
  } else {
    core->pack_n_major(panel, job->w + j0 * job->ldw + k0, job->ldw, n, k);
  }
}

/* Runs one panel of columns for up to H16_ROWS rows. */
static void run_panel(const h16_core *core, const h16_job *job, u32 i0, u32 j0, product_scratch *s) {
  u32 rows = min_u32(H16_ROWS, job->rows - i0), n = min_u32(core->columns, job->n - j0);
  load_c(job, i0, j0, rows, n, core->columns, s->c);
  s->block.panel = &s->panel;
  s->block.c = s->c;
  s->block.rows = rows;
  for (u32 k0 = 0; k0 < job->k; k0 += H16_BLOCK_K) {
    u32 k = min_u32(H16_BLOCK_K, job->k - k0);
    pack(core, job, &s->panel, j0, n, k0, k);
    s->block.k = k;
    for (u32 i = 0; i < rows; i++) {
      u32 valid = job->k_valid ? job->k_valid[i0 + i] : job->k;
      s->block.x[i] = job->x + (job->x_row ? job->x_row[i0 + i] : i0 + i) * job->ldx + k0;
      s->block.k_valid[i] = valid > k0 ? valid - k0 : 0;
    }
    core->run(&s->block);
  }
  store_c(job, i0, j0, rows, n, core->columns, s->c);
}

void h16_gemm(const h16_job *job, void *scratch) {
  const h16_core *core = cpu_isa_core();
  ASSERT(job->k % H16_STEP == 0);
  for (u32 i0 = 0; i0 < job->rows; i0 += H16_ROWS) {
    for (u32 j0 = 0; j0 < job->n; j0 += core->columns) run_panel(core, job, i0, j0, scratch);
  }
}

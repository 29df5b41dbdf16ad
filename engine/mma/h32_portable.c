/* h32_portable.c - h32_core.h in plain C, for processors without AVX2. Read next: h32_avx512.c. */
#include "mma/h32_core.h"

#define COLUMNS 16u

typedef struct row { /* decoded numbers of a row */
  int16_t significand[H32_BLOCK_K], exponent[H32_BLOCK_K]; /* the significand carries the sign */
} row;

static void prepare(row *out, const u8 *codes, u32 k) {
  for (u32 i = 0; i < k; i++) {
    i32 s = h32_significand(codes[i]);
    out->significand[i] = (int16_t)(codes[i] & 0x80 ? -s : s);
    out->exponent[i] = (int16_t)h32_exponent(codes[i]);
  }
}

/* One step from k on. *exact: the step needs the definition. */
static f32 step(const row *x, const row *w, u32 k, f32 c, bool *exact) {
  i32 e = INT16_MIN, sum = 0;
  for (u32 i = k; i < k + H32_STEP; i++) {
    i32 both = x->exponent[i] + w->exponent[i];
    e = both > e ? both : e;
  }
  if (e < H32_LEAST) e = INT16_MIN;
  i32 of_c = c == 0 ? INT16_MIN : (i32)(num_bits(c) >> 23 & 255u) - 127;
  e = of_c > e ? of_c : e;
  *exact = e > H32_E_MAX || (e < -H32_E_MAX && e != INT16_MIN);
  if (*exact || e == INT16_MIN) return 0.0f;
  for (u32 i = k; i < k + H32_STEP; i++) {
    i32 product = x->significand[i] * w->significand[i], down = (i32)min_u32((u32)(e - x->exponent[i] - w->exponent[i]), 31);
    i32 magnitude = (product < 0 ? -product : product) << 7 >> down;
    sum += product < 0 ? -magnitude : magnitude;
  }
  sum += (i32)(c * num_float((u32)(127 + 13 - e) << 23));
  return num_float(num_bits((f32)sum) & 0xfffffc00u) * num_float((u32)(127 + e - 13) << 23);
}

static void run(const h32_block *block) {
  row w[COLUMNS], x;
  for (u32 j = 0; j < block->n; j++) prepare(&w[j], block->w + j * block->ldw, block->k);
  for (u32 i = 0; i < block->rows; i++) {
    prepare(&x, block->x[i], block->k);
    for (u32 j = 0; j < block->n; j++) {
      f32 *c = block->c + i * COLUMNS + j;
      for (u32 k = 0; k < block->k; k += H32_STEP) {
        bool exact;
        f32 next = step(&x, &w[j], k, *c, &exact);
        *c = exact ? h32_exact(block, i, j, k, *c) : next;
      }
    }
  }
}

const h32_core h32_portable = {COLUMNS, run};

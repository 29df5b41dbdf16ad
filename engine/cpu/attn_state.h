/* attn_state.h - the running attention result (m, l, O) of a set of rows, what a block of tokens does to it, and how two results fold into
 * one. NUMERICS.md "mla_attn", "Fold".
 *
 * Internal to engine/cpu: mla_attn.c, attn.c and mla_prefill.c compute such results, mla_fold.c and attn_fold.c fold stored ones. */
#ifndef VERBATIM_CPU_ATTN_STATE_H
#define VERBATIM_CPU_ATTN_STATE_H
#include <string.h>
#include "base/limits.h"
#include "kernels_src/num.h"
#include "mma/h16_core.h"

#define ATTN_M_START (-0x1p60f)

typedef struct attn_row { /* of one query */
  f32 m, l;
  f32 o[KV_LORA_RANK_MAX];
} attn_row;

/* The result of no token. */
static inline void attn_row_start(attn_row *row, u32 columns) {
  row->m = ATTN_M_START;
  row->l = 0.0f;
  memset(row->o, 0, columns * sizeof row->o[0]);
}

/* The running maximum becomes m: the sums are rescaled if it moves (R4.2). */
static inline void attn_row_raise(attn_row *row, f32 m, u32 columns) {
  if (m == row->m) return;
  f32 factor = num_exp2_int(num_sub(row->m, m));
  row->l = num_mul(row->l, factor);
  for (u32 i = 0; i < columns; i++) row->o[i] = num_mul(row->o[i], factor);
  row->m = m;
}

/* Probabilities p [PAGE_TOKENS] of a row's unscaled scores s of a block (R10.2, R10.3, R4.4). Scores from `valid` on mean nothing. */
static inline void attn_row_weigh(attn_row *row, const h16_core *core, const f32 *s, f32 scale, u32 valid, bf16 *p, u32 columns) {
  f32 largest = s[0];
  for (u32 j = 1; j < valid; j++) largest = s[j] > largest ? s[j] : largest;
  attn_row_raise(row, num_raise(row->m, num_mul(largest, scale)), columns);
  core->weigh(s, scale, row->m, p);
  for (u32 j = valid; j < PAGE_TOKENS; j++) p[j] = 0;
}

/* Adds the probabilities of a block, p [count][PAGE_TOKENS], to l of the rows: a product with the probabilities as columns and ones as its
 * one row, because a product does not depend on the order of its factors. scratch: as h16_gemm. */
static inline void attn_rows_add_probabilities(attn_row *rows, u32 count, const bf16 *p, void *scratch) {
  bf16 one[PAGE_TOKENS];
  f32 l[H16_ROWS];
  for (u32 j = 0; j < PAGE_TOKENS; j++) one[j] = 0x3f80;
  for (u32 i = 0; i < count; i++) l[i] = rows[i].l;
  h16_job sum = {.x = one, .w = p, .ldw = PAGE_TOKENS, .rows = 1, .n = count, .k = PAGE_TOKENS, .y = l, .continues = 1};
  h16_gemm(&sum, scratch);
  for (u32 i = 0; i < count; i++) rows[i].l = l[i];
}

static inline void attn_row_copy(attn_row *to, const attn_row *from, u32 columns) {
  to->m = from->m;
  to->l = from->l;
  memcpy(to->o, from->o, columns * sizeof to->o[0]);
}

/* a = fold(a, b); a is the earlier one (R4.5, R4.6). */
static inline void attn_row_fold(attn_row *a, const attn_row *b, u32 columns) {
  f32 m = b->m > a->m ? b->m : a->m;
  f32 fa = num_exp2_int(num_sub(a->m, m)), fb = num_exp2_int(num_sub(b->m, m));
  a->m = m;
  a->l = num_fma(b->l, fb, num_mul(a->l, fa));
  for (u32 i = 0; i < columns; i++) a->o[i] = num_fma(b->o[i], fb, num_mul(a->o[i], fa));
}

/* The output row of a final result (R4.7 to R4.10). */
static inline void attn_row_output(bf16 *out, const attn_row *row, u32 columns) {
  f32 r = num_div(1.0f, row->l);
  for (u32 i = 0; i < columns; i++) out[i] = num_to_bf16(num_add(num_mul(row->o[i], r), 0.0f));
}

#endif

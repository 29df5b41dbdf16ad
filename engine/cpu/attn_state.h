/* attn_state.h - the running attention result (m, l, O) of a set of rows, and how two results fold into one. NUMERICS.md "mla_attn",
 * "Fold".
 *
 * Internal to engine/cpu: mla_attn.c computes such results, mla_fold.c folds stored ones. */
#ifndef VERBATIM_CPU_ATTN_STATE_H
#define VERBATIM_CPU_ATTN_STATE_H
#include <string.h>
#include "base/limits.h"
#include "kernels_src/num.h"

#define ATTN_M_START (-0x1p60f)

typedef struct attn_row { /* of one query */
  f32 m, l;
  f32 o[KV_LORA_RANK_MAX];
} attn_row;

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

/* h16_core.h - the interface of one instruction set to h16.c: packing panels of w and running the chains over a packed block; and the
 * exponentials of long rows for mla_attn.c, attn.c, mla_prefill.c, silu_mul.c and sample.c.
 *
 * A block is up to 64 k of one panel. An operand's exponent is stored in 16 bits: e(v) for normal numbers, H16_NONE for zeros, H16_WILD
 * for subnormals, Inf and NaN. Sums of two stay within 16 bits and tell which operands they had:
 *   below H16_NONE / 2: a zero factor, in [-100, 100]: the fast range, else: the exact path.
 * The fast range: E in [-100, 100], so that S = 2^(25-E), the products, their multiples by S and the result are normal fp32 numbers
 * wherever truncation leaves anything of them. Each truncated product is below 3.97 * 2^25 in magnitude, so 16 of them fit an int32.
 * Adding the truncated c may not fit; such a lane takes the exact path too.
 * Internal to engine/cpu. Read next: h16_portable.c, the simplest of the three. */
#ifndef VERBATIM_H16_CORE_H
#define VERBATIM_H16_CORE_H
#include "base/base.h"
#include "mma/h16.h"
#include "kernels_src/num.h"

struct h32_core;

#define H16_BLOCK_K 64u
#define H16_COLUMNS_MAX 32u
#define H16_NONE (-8192)
#define H16_WILD 16000
#define H16_E_MAX 100

typedef struct h16_panel {
  _Alignas(64) f32 value[H16_BLOCK_K * H16_COLUMNS_MAX];       /* [k][columns], fp32 of w */
  _Alignas(64) int16_t exponent[H16_BLOCK_K * H16_COLUMNS_MAX]; /* [k][columns], in an order of columns that the core chooses */
} h16_panel;

typedef struct h16_block {
  const h16_panel *panel;
  f32 *c;                   /* [rows][columns] accumulators, 64-byte aligned */
  const bf16 *x[H16_ROWS];  /* each row's first element of this block        */
  u32 k_valid[H16_ROWS];    /* counted from this block's first k             */
  u32 rows, k;              /* k a multiple of 16, .. H16_BLOCK_K            */
} h16_block;

typedef struct h16_core {
  const char *isa;
  u32 columns; /* of a panel */
  /* Packs w[j][0 .. k) of columns 0 .. n-1; the other columns are zero. */
  void (*pack_n_major)(h16_panel *panel, const bf16 *w, u64 ldw, u32 n, u32 k);
  /* Packs w[0 .. k_rows)[j] of columns 0 .. n-1; the other columns and rows are zero. */
  void (*pack_k_major)(h16_panel *panel, const bf16 *w, u64 ldw, u32 n, u32 k_rows, u32 k);
  void (*run)(const h16_block *block);
  void (*softmax)(const f32 *t, f32 m, bf16 *p);                     /* CORE_ROWS below */
  void (*weigh)(const f32 *s, f32 scale, f32 m, bf16 *p);
  void (*silu_mul)(const f32 *gate, const f32 *up, u32 n, bf16 *y);
  void (*exp_parts)(const f32 *logit, f32 largest, u32 n, f32 *p);
  const struct h32_core *h32; /* the chains of e4m3 numbers */
} h16_core;

extern const h16_core h16_avx512, h16_avx2, h16_neon, h16_portable;

const h16_core *cpu_isa_core(void); /* the best one of this processor */

/* For tests: the named one. ERR_UNSUPPORTED if this processor lacks it, ERR_USAGE for other names. */
status cpu_isa_find(const char *name, const h16_core **core);

/* The exact path of one lane: row i, column j, the step that starts at k. */
f32 h16_exact(const h16_block *block, u32 columns, u32 i, u32 j, u32 k, f32 c);

static inline int16_t h16_exponent(bf16 v) {
  u32 field = (v >> 7) & 255u;
  if ((v & 0x7fffu) == 0) return H16_NONE;
  return field == 0 || field == 255 ? (int16_t)H16_WILD : (int16_t)((i32)field - 127);
}

/* Row operations. Every instruction set compiles its own from this one text: loops of CORE_LANES that compilers vectorize. p[j] =
 * bf16(exp2_bf16(t[j] - m)) for PAGE_TOKENS numbers (NUMERICS.md "mla_attn", R4.3, R4.4); p[j] = bf16(weight(s[j])) for as many ("attn",
 * R10.3, R4.4); y[i] = bf16(silu(gate[i]) * up[i]) ("silu_mul"); p[i % CORE_PARTS] += exp(logit[i] - largest) in ascending order
 * ("sample", R8.1 to R8.3). */
#define CORE_LANES 16u
#define CORE_PARTS 1024u
#define CORE_ROWS                                                                                                               \
  static void softmax(const f32 *t, f32 m, bf16 *p) {                                                                             \
    for (u32 j = 0; j < PAGE_TOKENS; j++) p[j] = num_to_bf16(num_exp2_bf16(num_sub(t[j], m)));                                  \
  }                                                                                                                             \
  static void weigh(const f32 *s, f32 scale, f32 m, bf16 *p) {                                                                  \
    f32 base = num_weight_base(m), low = num_weight_low(m, num_div(1.0f, scale));                                               \
    for (u32 j = 0; j < PAGE_TOKENS; j++) p[j] = num_to_bf16(num_weight(s[j] < low ? low : s[j], scale, base));                 \
  }                                                                                                                             \
  static inline void silu_one(const f32 *gate, const f32 *up, bf16 *y) { *y = num_to_bf16(num_mul(num_silu(*gate), *up)); }     \
  static void silu_mul(const f32 *gate, const f32 *up, u32 n, bf16 *y) {                                                        \
    u32 i = 0;                                                                                                                  \
    for (; i + CORE_LANES <= n; i += CORE_LANES)                                                                                \
      for (u32 j = 0; j < CORE_LANES; j++) silu_one(gate + i + j, up + i + j, y + i + j);                                       \
    for (; i < n; i++) silu_one(gate + i, up + i, y + i);                                                                       \
  }                                                                                                                             \
  static inline void exp_one(const f32 *logit, f32 largest, f32 *p) { *p = num_add(*p, num_exp(num_sub(*logit, largest))); }    \
  static void exp_parts(const f32 *logit, f32 largest, u32 n, f32 *p) {                                                         \
    u32 i = 0;                                                                                                                  \
    for (; i + CORE_LANES <= n; i += CORE_LANES)                                                                                \
      for (u32 j = 0; j < CORE_LANES; j++) exp_one(logit + i + j, largest, p + i % CORE_PARTS + j);                             \
    for (; i < n; i++) exp_one(logit + i, largest, p + i % CORE_PARTS);                                                         \
  }

#endif

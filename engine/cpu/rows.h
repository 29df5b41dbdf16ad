/* rows.h - what several references share: row counts, the reduction tree, and the normalisation, rotation and scaled e4m3 encoding of a
 * row.
 *
 * Each is a section of NUMERICS.md that at least two ops refer to. Internal to engine/cpu. */
#ifndef VERBATIM_CPU_ROWS_H
#define VERBATIM_CPU_ROWS_H
#include "kernels_src/num.h"

static inline u32 rows_count(const step_in *step, u32 rows_kind) {
  return rows_kind == ROWS_LOGITS ? step->logit_count : step->token_count;
}

/* tree(p, n); n is a power of two; p is overwritten. */
static inline f32 rows_tree(f32 *p, u32 n) {
  for (u32 s = n / 2; s > 0; s /= 2) {
    for (u32 j = 0; j < s; j++) p[j] = p[j] + p[j + s];
  }
  return p[0];
}

#define ROWS_NORM_PARTS 256u

/* r of `rmsnorm` for the n numbers v (R1.2 to R1.7). */
static inline f32 rows_norm_factor(const f32 *v, u32 n, f32 eps) {
  f32 p[ROWS_NORM_PARTS] = {0};
  for (u32 i = 0; i < n; i++) p[i % ROWS_NORM_PARTS] = num_fma(v[i], v[i], p[i % ROWS_NORM_PARTS]);
  f32 mean = num_div(rows_tree(p, ROWS_NORM_PARTS), (f32)n);
  return num_div(1.0f, num_sqrt(num_add(mean, eps)));
}

/* One normalised number (R1.8 to R1.10), and rounded to bf16 (R1.11). */
static inline f32 rows_norm_number(f32 v, f32 r, bf16 weight, f32 scale) { return ((v * r) * num_from_bf16(weight)) * scale; }
static inline bf16 rows_norm_apply(f32 v, f32 r, bf16 weight, f32 scale) { return num_to_bf16(rows_norm_number(v, r, weight, scale)); }

/* The sum of a token's experts and one number of the shared expert, whose gate may be null (R7.2 to R7.4). */
static inline f32 rows_add_shared(f32 sum, f32 shared, const f32 *gate) {
  return gate ? num_fma(shared, num_sigmoid(*gate), sum) : num_add(sum, shared);
}

/* Rotates the pairs of `dim` columns and multiplies them by scale (R3.2 to R3.5). cos_sin: [dim / 2][2], of the row's position. */
static inline void rows_rotate(bf16 *out, const f32 *in, const f32 *cos_sin, u32 dim, u32 half_split, f32 scale) {
  for (u32 i = 0; i < dim / 2; i++) {
    u32 first = half_split ? i : 2 * i, second = half_split ? i + dim / 2 : 2 * i + 1;
    f32 a = in[first], b = in[second], c = cos_sin[2 * i], s = cos_sin[2 * i + 1];
    out[first] = num_to_bf16(num_fma(a, c, -(b * s)) * scale);
    out[second] = num_to_bf16(num_fma(a, s, b * c) * scale);
  }
}

/* Encodes n numbers as scaled e4m3 and returns the scale (R12.1 to R12.3). */
static inline f32 rows_quantise(u8 *codes, const f32 *x, u32 n, u32 scale_kind) {
  u32 largest = num_bits(NUM_SCALE_LEAST);
  for (u32 i = 0; i < n; i++) { /* magnitudes order like their bits, NaN above Inf */
    u32 magnitude = num_bits(x[i]) & 0x7fffffffu;
    largest = magnitude > largest ? magnitude : largest;
  }
  f32 scale = num_scale(num_float(largest), scale_kind);
  for (u32 i = 0; i < n; i++) codes[i] = num_to_e4m3(num_div(x[i], scale));
  return scale;
}

#endif

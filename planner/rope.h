/* rope.h - rotary frequencies and their ways to longer sequences, as HF transformers defines them.
 *
 * Everything is computed in binary64 with engine/base/trig.h, whose results do not depend on a libm, and rounded once to fp32. */
#ifndef VERBATIM_ROPE_H
#define VERBATIM_ROPE_H
#include <stdbool.h>
#include <stdint.h>
#include "engine/base/limits.h"

enum rope_kind {
  ROPE_PLAIN = 0,
  ROPE_YARN = 1,
  ROPE_LONG = 2,   /* LongRoPE */
  ROPE_LLAMA3 = 3, /* low frequencies are divided by factor, high ones kept, those between mixed */
  ROPE_LINEAR = 4, /* all frequencies are divided by factor */
  ROPE_KINDS = 5
};

typedef struct rope_config {
  double theta;            /* > 1 */
  uint32_t kind;           /* each uses the fields below that name it */
  uint32_t truncate;       /* YaRN; 1: the correction range is widened to whole indices */
  double factor;           /* all but plain: how much longer sequences are now, >= 1; LongRoPE raises smaller values to 1 */
  double original_length;  /* all but plain and linear: tokens before the extension; more than 1 */
  double low_freq_factor, high_freq_factor; /* Llama 3: turns within the original length below and above which a pair is low and high */
  double beta_fast, beta_slow;   /* YaRN */
  double mscale, mscale_all_dim; /* YaRN; 0: not given */
  double attention_factor; /* YaRN and LongRoPE; 0: not given; else it replaces the factor of cos and sin */
  double short_factor[HEAD_DIM_MAX / 2], long_factor[HEAD_DIM_MAX / 2]; /* LongRoPE: divisors of the frequencies */
} rope_config;

/* LongRoPE has two sets of frequencies. The longest sequence of the plan selects one, not a request's length as in HF: a token's KV row
 * would then depend on tokens after it. */
static inline bool rope_is_long(const rope_config *config, uint32_t max_len) {
  return config->kind == ROPE_LONG && max_len > config->original_length;
}

/* out[i], i < dim / 2: radians per token of pair i, in plans of sequences up to max_len. dim is even. */
void rope_inv_freq(const rope_config *config, uint32_t dim, uint32_t max_len, float *out);

/* Factor of cos and sin. */
float rope_attention_factor(const rope_config *config);

/* Softmax scale of the attention times log2(e), for q and k of width columns. config: of latent attention, where YaRN's mscale_all_dim
 * changes it; else NULL. */
float rope_scale_log2(const rope_config *config, uint32_t width);

#endif

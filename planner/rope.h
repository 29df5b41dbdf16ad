/* rope.h - rotary frequencies and the scale factors that come with YaRN, as HF transformers defines them.
 *
 * Everything is computed in binary64 with engine/trig.h, whose results do not depend on a libm, and rounded once to fp32. */
#ifndef VERBATIM_ROPE_H
#define VERBATIM_ROPE_H
#include <stdint.h>

typedef struct rope_config {
  double theta;            /* > 1 */
  uint32_t yarn;           /* 1: the fields below hold */
  uint32_t truncate;       /* 1: the correction range is widened to whole indices */
  double factor;           /* >= 1 */
  double original_length;  /* tokens before the extension */
  double beta_fast, beta_slow;
  double mscale, mscale_all_dim; /* 0: not given */
  double attention_factor; /* 0: not given; else it replaces the factor of cos and sin */
} rope_config;

/* out[i], i < dim / 2: radians per token of the pair (2i, 2i + 1). dim is even. */
void rope_inv_freq(const rope_config *config, uint32_t dim, float *out);

/* Factor of cos and sin. */
float rope_attention_factor(const rope_config *config);

/* Softmax scale of the attention times log2(e), for q and k of width columns. */
float rope_scale_log2(const rope_config *config, uint32_t width);

#endif

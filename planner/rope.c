/* rope.c - YaRN (Peng et al., 2023), LongRoPE (Ding et al., 2024) and Llama 3's frequencies as in HF transformers' rope utilities and
 * DeepSeek's attention: see rope.h. */
#include "rope.h"
#include <math.h>
#include "engine/base/base.h"
#include "engine/base/trig.h"

#define PI 3.14159265358979323846
#define LOG2_E 1.44269504088896340736

/* sqrt and floor are exact or correctly rounded by IEEE-754; log and pow come from trig.h. */

static double magnitude(double factor, double weight) { return factor <= 1 ? 1 : 0.1 * weight * trig_log(factor) + 1; }

/* The (fractional) pair index whose wavelength turns `rotations` times within the original length. */
static double correction_index(const rope_config *config, double rotations, double dim) {
  return dim * trig_log(config->original_length / (rotations * 2 * PI)) / (2 * trig_log(config->theta));
}

static double clamp(double x, double low, double high) { return x < low ? low : x > high ? high : x; }

/* Tokens per radian of a pair. */
static double period(const rope_config *config, uint32_t pair, uint32_t dim) { return trig_pow(config->theta, 2.0 * pair / dim); }

static void yarn_inv_freq(const rope_config *config, uint32_t dim, float *out) {
  double low = correction_index(config, config->beta_fast, dim), high = correction_index(config, config->beta_slow, dim);
  if (config->truncate) {
    low = floor(low);
    high = ceil(high);
  }
  low = low < 0 ? 0 : low;
  high = high > dim - 1 ? dim - 1 : high;
  if (low == high) high += 0.001; /* avoids a division by zero */
  for (uint32_t i = 0; i < dim / 2; i++) {
    double base = 1 / period(config, i, dim), slowed = clamp((i - low) / (high - low), 0, 1);
    out[i] = (float)(base / config->factor * slowed + base * (1 - slowed));
  }
}

/* HF: _compute_llama3_parameters. */
static double llama3_frequency(const rope_config *config, double base) {
  const double turns = config->original_length * base / (2 * PI); /* HF compares wavelengths, which are original_length / turns */
  const double low = config->low_freq_factor, high = config->high_freq_factor;
  if (turns < low) return base / config->factor;
  if (turns > high) return base;
  double kept = (turns - low) / (high - low);
  return (1 - kept) * base / config->factor + kept * base;
}

void rope_inv_freq(const rope_config *config, uint32_t dim, uint32_t max_len, float *out) {
  ASSERT(dim % 2 == 0 && dim <= HEAD_DIM_MAX);
  ASSERT(config->theta > 1);
  if (config->kind == ROPE_YARN) {
    yarn_inv_freq(config, dim, out);
    return;
  }
  const double *divisors = rope_is_long(config, max_len) ? config->long_factor : config->short_factor;
  for (uint32_t i = 0; i < dim / 2; i++) {
    double divisor = config->kind == ROPE_LONG ? divisors[i] : config->kind == ROPE_LINEAR ? config->factor : 1;
    double frequency = 1 / (divisor * period(config, i, dim));
    out[i] = (float)(config->kind == ROPE_LLAMA3 ? llama3_frequency(config, frequency) : frequency);
  }
}

float rope_attention_factor(const rope_config *config) {
  if (config->kind != ROPE_YARN && config->kind != ROPE_LONG) return 1;
  if (config->attention_factor > 0) return (float)config->attention_factor;
  if (config->kind == ROPE_LONG)
    return config->factor <= 1 ? 1 : (float)sqrt(1 + trig_log(config->factor) / trig_log(config->original_length));
  if (config->mscale > 0 && config->mscale_all_dim > 0)
    return (float)(magnitude(config->factor, config->mscale) / magnitude(config->factor, config->mscale_all_dim));
  return (float)magnitude(config->factor, 1);
}

float rope_scale_log2(const rope_config *config, uint32_t width) {
  double scale = 1 / sqrt((double)width);
  if (config && config->kind == ROPE_YARN && config->mscale_all_dim > 0) {
    double m = magnitude(config->factor, config->mscale_all_dim);
    scale = scale * m * m;
  }
  return (float)(scale * LOG2_E);
}

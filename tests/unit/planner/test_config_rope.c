/* test_config_rope.c - rotary positions of config.json: frequencies and scales as HF computes them, both spellings, both forms of pairs,
 * the scale of the query; a field of another type is refused. */
#include "tests/unit/unit.h"
#include <math.h>
#include "config_fixture.h"

static void both_rope_spellings_are_the_same_model(void **state) {
  (void)state;
  plan_model old = plan_of_file(V3), new = plan_of_file(V3_NEW);
  assert_memory_equal(&old, &new, sizeof old);
}

/* HF's formulas with the C library's functions: rounding to fp32 hides the last bits of binary64. */
static void check_rope(const char *path, double theta, double factor, double original, double mscale_all, double beta_fast) {
  const double pi = acos(-1.0);
  plan_model m = plan_of_file(path);
  double dim = m.rope_dim, low = 0, high = 0;
  if (factor > 0) {
    low = fmax(floor(dim * log(original / (beta_fast * 2 * pi)) / (2 * log(theta))), 0);
    high = fmin(ceil(dim * log(original / (1 * 2 * pi)) / (2 * log(theta))), dim - 1);
  }
  for (uint32_t i = 0; i < m.rope_dim / 2; i++) {
    double base = 1 / pow(theta, 2.0 * i / dim);
    double ramp = factor > 0 ? fmin(fmax((i - low) / (high - low), 0), 1) : 0;
    float expected = (float)(factor > 0 ? base / factor * ramp + base * (1 - ramp) : base);
    if (m.inv_freq[i] != expected) fail_msg("%s: inv_freq[%u] is %.9g, expected %.9g", path, i, (double)m.inv_freq[i], (double)expected);
  }
  double magnitude = mscale_all > 0 ? 0.1 * mscale_all * log(factor) + 1 : 1;
  float scale = (float)(pow(m.nope_dim + m.rope_dim, -0.5) * magnitude * magnitude / log(2.0));
  assert_true(fabsf(m.softmax_scale_log2 - scale) <= 6e-8f * scale);
  assert_true(m.rope_attention_factor == 1.0f);
}

static void rope_follows_hf(void **state) {
  (void)state;
  check_rope(V3, 10000, 40, 4096, 1.0, 32);
  check_rope(V2_LITE, 10000, 40, 4096, 0.707, 32);
  check_rope(TINY, 10000, 4, 512, 1.0, 32);
  check_rope(MOONLIGHT, 50000, 0, 0, 0, 32);
  check_rope(KIMI, 50000, 32, 4096, 1.0, 1);
  check_rope(GLM, 1000000, 0, 0, 0, 32);
  check_rope(YOUTU, 1600000, 0, 0, 0, 32);
  assert_true(fabsf(parse_file(V3).plan.softmax_scale_log2 - 0.19510110f) < 1e-6f); /* 192^-0.5 * 1.36888794^2 * log2(e) */
}

/* Equal betas leave a ramp one pair wide: whole numbers on both sides of the one correction index, here 19 and 20. The values are HF's. */
static void equal_betas_make_a_step(void **state) {
  (void)state;
  plan_model m = plan_of_file(KIMI);
  assert_true(m.inv_freq[19] == 0x1.a922780000000p-10f);
  assert_true(m.inv_freq[20] == 0x1.2f2b100000000p-15f);
  assert_true(fabsf(m.softmax_scale_log2 - 0.13086080f * 1.44269504f) < 1e-7f);
  model_config c = {0};
  fixture_expect(parse_changed(KIMI, "rope_scaling.beta_slow", "2", &c), ERR_FORMAT, "beta_fast");
  assert_int_equal(parse_changed(KIMI, "rope_scaling.truncate", "false", &c), OK); /* low = high: a step of 0.001 */
  plan_model step = plan_of(&c);
  assert_true(step.inv_freq[19] == m.inv_freq[19] && step.inv_freq[20] == m.inv_freq[20]);
}

static void mscale_rules(void **state) {
  (void)state;
  model_config c = {0};
  assert_int_equal(parse_changed(V3, "rope_scaling.mscale", NULL, &c), OK); /* without both: 0.1 ln(factor) + 1 */
  assert_true(fabsf(c.plan.rope_attention_factor - 1.36888794f) < 1e-6f);
  assert_int_equal(parse_changed(V3, "rope_scaling.mscale", "0.707", &c), OK);
  assert_true(fabsf(c.plan.rope_attention_factor - 1.26080378f / 1.36888794f) < 1e-6f);
  assert_int_equal(parse_changed(V3, "rope_scaling.attention_factor", "0.5", &c), OK);
  assert_true(c.plan.rope_attention_factor == 0.5f);
  assert_int_equal(parse_changed(V3, "rope_scaling.mscale_all_dim", "0", &c), OK);
  assert_true(fabsf(c.plan.softmax_scale_log2 - 0.10411755f) < 1e-6f); /* no factor remains */
}

/* === LongRoPE =========================================================================================================== */

static void check_long(const plan_model *m, const double *divisors) {
  for (uint32_t i = 0; i < m->rope_dim / 2; i++) {
    float expected = (float)(1 / (divisors[i] * pow(10000, 2.0 * i / m->rope_dim)));
    if (m->inv_freq[i] != expected) fail_msg("inv_freq[%u] is %.9g, expected %.9g", i, (double)m->inv_freq[i], (double)expected);
  }
}

/* The longest sequence of the plan decides; at exactly the original length the short list is used. */
static void longrope_is_chosen_by_the_plans_length(void **state) {
  (void)state;
  model_config c = {0};
  assert_int_equal(parse_changed(MINICPM, "max_position_embeddings", "131072", &c), OK);
  plan_model at = model_config_plan(&c, 32768), beyond = model_config_plan(&c, 32769), longest = model_config_plan(&c, 131072);
  check_long(&at, c.rope.short_factor);
  check_long(&beyond, c.rope.long_factor);
  assert_memory_equal(&beyond, &longest, sizeof beyond);
  assert_true(c.rope.short_factor[5] != c.rope.long_factor[5]);
  assert_memory_not_equal(at.inv_freq, beyond.inv_freq, sizeof at.inv_freq);
}

static void longrope_scales_by_the_ratio_of_lengths(void **state) {
  (void)state;
  model_config c = parse_file(MINICPM);
  assert_true(c.plan.rope_attention_factor == 1);
  assert_true(fabsf(c.plan.softmax_scale_log2 - (float)(1 / sqrt(96) / log(2))) < 1e-7f);
  assert_int_equal(parse_changed(MINICPM, "max_position_embeddings", "131072", &c), OK);
  assert_true(c.plan.rope_attention_factor == (float)sqrt(1 + log(4) / log(32768)));
  assert_non_null(strstr(c.notes.assumed, "rope_scaling.factor = 4"));
  assert_int_equal(parse_changed(MINICPM, "max_position_embeddings", "8192", &c), OK); /* shorter than the original: not less than 1 */
  assert_true(c.plan.rope_attention_factor == 1);
  assert_int_equal(parse_changed(MINICPM, "rope_scaling.factor", "8", &c), OK);
  assert_true(c.plan.rope_attention_factor == (float)sqrt(1 + log(8) / log(32768)));
  assert_int_equal(parse_changed(MINICPM, "rope_scaling.attention_factor", "1.25", &c), OK);
  assert_true(c.plan.rope_attention_factor == 1.25f);
}

static void longrope_has_two_names(void **state) {
  (void)state;
  model_config su = {0}, longrope = parse_file(MINICPM);
  assert_int_equal(parse_changed(MINICPM, "rope_scaling.type", "\"su\"", &su), OK);
  assert_memory_equal(&su, &longrope, sizeof su);
}

/* === Pairs, subsets of columns, the scale of the query ================================================================== */

static void pairs_follow_the_model_or_the_field(void **state) {
  (void)state;
  static const struct {
    const char *path, *name, *value;
    uint32_t half_split;
  } CASES[] = {{V3, "rope_interleave", NULL, 0},
               {V3, "rope_interleave", "true", 0},
               {V3, "rope_interleave", "false", 1},
               {V3, "rope_interleave", "null", 1}, /* None, which HF treats as false */
               {GLM, "rope_interleave", "false", 1},
               {YOUTU, "rope_interleave", "false", 1},
               {V2, "rope_interleave", "true", 0},
               {MINICPM, "rope_interleave", NULL, 1},
               {MINICPM, "rope_interleave", "false", 1},
               {MISTRAL, "text_config.rope_interleave", NULL, 0},
               {MISTRAL, "text_config.rope_interleave", "false", 1}};
  for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
    model_config c = {0};
    if (parse_changed(CASES[i].path, CASES[i].name, CASES[i].value, &c) != OK) fail_msg("case %zu: %s", i, fail_text());
    assert_int_equal(c.plan.rope_half_split, CASES[i].half_split);
  }
}

#define MISTRAL_ROPE "text_config.rope_parameters."

static void the_query_grows_with_its_position(void **state) {
  (void)state;
  model_config c = parse_file(MISTRAL);
  assert_true(c.plan.q_scale_beta == 0.1f && c.plan.q_scale_length == 8192);
  assert_int_equal(parse_changed(MISTRAL, MISTRAL_ROPE "llama_4_scaling_beta", "0", &c), OK);
  assert_true(c.plan.q_scale_beta == 0 && c.plan.q_scale_length == 0);
  assert_true(parse_file(V3).plan.q_scale_beta == 0);
  assert_int_equal(parse_changed(MISTRAL, MISTRAL_ROPE "partial_rotary_factor", NULL, &c), OK);
}

static const bad_field BAD[] = {
    {V2, "rope_interleave", "false", "rope_interleave", ERR_UNSUPPORTED},
    {MINICPM, "rope_interleave", "true", "rope_interleave", ERR_UNSUPPORTED},
    {MINICPM, "rope_scaling.type", "\"dynamic\"", "dynamic", ERR_UNSUPPORTED},
    {MINICPM, "rope_scaling.type", "\"yarn\"", "_factor", ERR_UNSUPPORTED},
    {MINICPM, "rope_scaling.short_factor", NULL, "short_factor", ERR_FORMAT},
    {MINICPM, "rope_scaling.long_factor", NULL, "long_factor", ERR_FORMAT},
    {MINICPM, "rope_scaling.long_factor", "[1, 2]", "16 numbers", ERR_FORMAT},
    {MINICPM, "rope_scaling.long_factor", "2", "16 numbers", ERR_FORMAT},
    {MINICPM, "rope_scaling.short_factor", "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,0]", "short_factor", ERR_FORMAT},
    {MINICPM, "rope_scaling.short_factor", "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,\"1\"]", "short_factor", ERR_FORMAT},
    {MINICPM, "rope_scaling.original_max_position_embeddings", NULL, "is missing", ERR_FORMAT},
    {MINICPM, "rope_scaling.original_max_position_embeddings", "1", "original_max", ERR_UNSUPPORTED},
    {MINICPM, "rope_scaling.mscale_all_dim", "1", "mscale_all_dim", ERR_UNSUPPORTED},
    {MINICPM, "rope_scaling.factor", "0.5", "factor", ERR_FORMAT},
    {MINICPM, "rope_scaling.llama_4_scaling_beta", "0.1", "llama_4_scaling_beta", ERR_UNSUPPORTED},
    {MISTRAL, MISTRAL_ROPE "llama_4_scaling_beta", NULL, "llama_4_scaling_beta\" is missing", ERR_FORMAT},
    {MISTRAL, MISTRAL_ROPE "llama_4_scaling_beta", "-1", "llama_4_scaling_beta", ERR_FORMAT},
    {MISTRAL, MISTRAL_ROPE "partial_rotary_factor", "1", "partial_rotary_factor", ERR_UNSUPPORTED},
    {MISTRAL, MISTRAL_ROPE "partial_rotary_factor", "0.25", "partial_rotary_factor", ERR_UNSUPPORTED},
    {MISTRAL, MISTRAL_ROPE "original_max_position_embeddings", "2097152", "scale of the query", ERR_UNSUPPORTED},
    {MISTRAL, MISTRAL_ROPE "rope_type", "\"longrope\"", "differ", ERR_FORMAT},
    {MISTRAL, MISTRAL_ROPE "short_factor", "[1]", "short_factor", ERR_UNSUPPORTED},
    {MISTRAL, "text_config.rope_parameters", NULL, "rope_parameters\" is missing", ERR_FORMAT},
    {MISTRAL, "text_config.rope_parameters", "[]", "rope_parameters", ERR_FORMAT},
    {V3, "rope_scaling.short_factor", "[1]", "short_factor", ERR_UNSUPPORTED},
    {V3, "rope_scaling.llama_4_scaling_beta", "0.1", "llama_4_scaling_beta", ERR_UNSUPPORTED},
    {GLM, "rope_parameters.mscale_all_dim", "1", "mscale_all_dim", ERR_UNSUPPORTED},
};

static void bad_values_are_named(void **state) {
  (void)state;
  expect_refusals(BAD, ARRAY_LEN(BAD));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(both_rope_spellings_are_the_same_model),
      cmocka_unit_test(rope_follows_hf),
      cmocka_unit_test(equal_betas_make_a_step),
      cmocka_unit_test(mscale_rules),
      cmocka_unit_test(longrope_is_chosen_by_the_plans_length),
      cmocka_unit_test(longrope_scales_by_the_ratio_of_lengths),
      cmocka_unit_test(longrope_has_two_names),
      cmocka_unit_test(pairs_follow_the_model_or_the_field),
      cmocka_unit_test(the_query_grows_with_its_position),
      cmocka_unit_test(bad_values_are_named),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_config_grouped.c - config.json of models with grouped-query attention: real models are read correctly, rotary frequencies are HF's,
 * and what is not implemented is refused by name. */
#include "tests/unit/unit.h"
#include <math.h>
#include "kernels_src/abi.h"
#include "planner/model_config.h"
#include "config_fixture.h"

#define CONFIG(name) "tests/data/configs/" name ".json"
#define LLAMA CONFIG("llama-3.1-8b")
#define LLAMA_1B CONFIG("llama-3.2-1b")
#define MISTRAL_1 CONFIG("mistral-7b-v0.1")
#define MISTRAL_3 CONFIG("mistral-7b-v0.3")
#define MISTRAL_24B CONFIG("mistral-small-24b")
#define QWEN2 CONFIG("qwen2.5-7b")
#define QWEN2_SMALL CONFIG("qwen2.5-0.5b")
#define QWEN2_MOE CONFIG("qwen2-57b-a14b")
#define QWEN15_MOE CONFIG("qwen1.5-moe-a2.7b")
#define QWEN3 CONFIG("qwen3-8b")
#define QWEN3_FP8 CONFIG("qwen3-8b-fp8")
#define QWEN3_MOE CONFIG("qwen3-30b-a3b")
#define GLM4 CONFIG("glm-4-9b-0414")
#define GLM45 CONFIG("glm-4.5-air")
#define OLMO2 CONFIG("olmo-2-7b-instruct")
#define PHI3_4K CONFIG("phi-3-mini-4k")
#define PHI3_128K CONFIG("phi-3-mini-128k") /* with stand-ins for the published factors, as PHI4_MINI */
#define PHI4 CONFIG("phi-4")
#define PHI4_MINI CONFIG("phi-4-mini")
#define SMOLLM3 CONFIG("smollm3-3b")

/* === Real models ======================================================================================================== */

static const struct {
  const char *path;
  uint32_t layers, hidden, heads, kv_heads, head_dim, rope_dim, half_split, inter, vocab;
  uint32_t qk_norm, has_bias, norms, window, is_tied;
  double eps;
} REAL[] = {
    {LLAMA, 32, 4096, 32, 8, 128, 128, 1, 14336, 128256, QK_NORM_NONE, 0, NORMS_BEFORE, 0, 0, 1e-5},
    {LLAMA_1B, 16, 2048, 32, 8, 64, 64, 1, 8192, 128256, QK_NORM_NONE, 0, NORMS_BEFORE, 0, 1, 1e-5},
    {MISTRAL_1, 32, 4096, 32, 8, 128, 128, 1, 14336, 32000, QK_NORM_NONE, 0, NORMS_BEFORE, 4096, 0, 1e-5},
    {MISTRAL_3, 32, 4096, 32, 8, 128, 128, 1, 14336, 32768, QK_NORM_NONE, 0, NORMS_BEFORE, 0, 0, 1e-5},
    {MISTRAL_24B, 40, 5120, 32, 8, 128, 128, 1, 32768, 131072, QK_NORM_NONE, 0, NORMS_BEFORE, 0, 0, 1e-5},
    {QWEN2, 28, 3584, 28, 4, 128, 128, 1, 18944, 152064, QK_NORM_NONE, 1, NORMS_BEFORE, 0, 0, 1e-6},
    {QWEN2_SMALL, 24, 896, 14, 2, 64, 64, 1, 4864, 151936, QK_NORM_NONE, 1, NORMS_BEFORE, 0, 1, 1e-6},
    {QWEN2_MOE, 28, 3584, 28, 4, 128, 128, 1, 18944, 151936, QK_NORM_NONE, 1, NORMS_BEFORE, 0, 0, 1e-6},
    {QWEN15_MOE, 24, 2048, 16, 16, 128, 128, 1, 5632, 151936, QK_NORM_NONE, 1, NORMS_BEFORE, 0, 0, 1e-6},
    {QWEN3, 36, 4096, 32, 8, 128, 128, 1, 12288, 151936, QK_NORM_HEAD, 0, NORMS_BEFORE, 0, 0, 1e-6},
    {QWEN3_FP8, 36, 4096, 32, 8, 128, 128, 1, 12288, 151936, QK_NORM_HEAD, 0, NORMS_BEFORE, 0, 0, 1e-6},
    {QWEN3_MOE, 48, 2048, 32, 4, 128, 128, 1, 6144, 151936, QK_NORM_HEAD, 0, NORMS_BEFORE, 0, 0, 1e-6},
    {GLM4, 40, 4096, 32, 2, 128, 64, 0, 13696, 151552, QK_NORM_NONE, 0, NORMS_AROUND, 0, 0, 1e-5},
    {GLM45, 46, 4096, 96, 8, 128, 64, 1, 10944, 151552, QK_NORM_NONE, 1, NORMS_BEFORE, 0, 0, 1e-5},
    {OLMO2, 32, 4096, 32, 32, 128, 128, 1, 11008, 100352, QK_NORM_ROW, 0, NORMS_AFTER, 0, 0, 1e-6},
    {PHI3_4K, 32, 3072, 32, 32, 96, 96, 1, 8192, 32064, QK_NORM_NONE, 0, NORMS_BEFORE, 2047, 0, 1e-5},
    {PHI3_128K, 32, 3072, 32, 32, 96, 96, 1, 8192, 32064, QK_NORM_NONE, 0, NORMS_BEFORE, 262144, 0, 1e-5},
    {PHI4, 40, 5120, 40, 10, 128, 128, 1, 17920, 100352, QK_NORM_NONE, 0, NORMS_BEFORE, 0, 0, 1e-5},
    {PHI4_MINI, 32, 3072, 24, 8, 128, 96, 1, 8192, 200064, QK_NORM_NONE, 0, NORMS_BEFORE, 262144, 1, 1e-5},
    {SMOLLM3, 36, 2048, 16, 4, 128, 128, 1, 11008, 128256, QK_NORM_NONE, 0, NORMS_BEFORE, 0, 1, 1e-6},
};

static void real_models_are_read(void **state) {
  (void)state;
  for (size_t i = 0; i < ARRAY_LEN(REAL); i++) {
    model_config c = parse_file(REAL[i].path);
    const plan_model *m = &c.plan;
    const uint32_t found[] = {m->layers, m->hidden, m->heads, c.grouped.kv_heads, m->nope_dim + m->rope_dim, m->rope_dim,
                              m->rope_half_split, m->inter, m->vocab, c.grouped.qk_norm, c.grouped.has_bias, c.grouped.norms, c.window,
                              c.is_tied};
    if (memcmp(found, &REAL[i].layers, sizeof found) != 0) fail_msg("%s", REAL[i].path);
    assert_true(m->norm_eps == (float)REAL[i].eps);
    assert_int_equal(m->v_dim, m->nope_dim + m->rope_dim);
    assert_int_equal(m->kv_lora_rank + m->q_lora_rank + c.quant.index_heads + c.grouped.pad, 0);
    assert_true(m->embed_scale == 1 && m->residual_scale == 1 && m->head_scale == 1 && m->q_scale_beta == 0);
    assert_true(m->softmax_scale_log2 == (float)(1 / sqrt((double)m->v_dim) * 1.44269504088896340736));
    assert_int_equal(c.fuses_qkv, strstr(REAL[i].path, "phi") != NULL);
    assert_int_equal(c.fuses_gate_up, strstr(REAL[i].path, "phi") || strstr(REAL[i].path, "glm-4-9b"));
    assert_int_equal(c.may_predict, 0);
    assert_string_equal(c.notes.chosen, "");
  }
}

static void experts_are_read(void **state) {
  (void)state;
  model_config c = parse_file(QWEN3_MOE);
  assert_int_equal(c.plan.experts, 128);
  assert_int_equal(c.plan.top_k, 8);
  assert_int_equal(c.plan.moe_inter, 768);
  assert_int_equal(c.plan.shared_experts, 0);
  assert_int_equal(c.plan.dense_layers, 0);
  assert_int_equal(c.plan.scoring, ROUTER_SOFTMAX);
  assert_int_equal(c.plan.group_mode, ROUTER_GROUP_NONE);
  assert_true(c.plan.normalise == 1 && c.plan.routed_scale == 1 && c.plan.groups == 1 && c.plan.top_groups == 1);
  assert_int_equal(c.grouped.shared_gate, 0);
  assert_int_equal(parse_changed(QWEN3_MOE, "norm_topk_prob", NULL, &c), OK); /* HF's default */
  assert_int_equal(c.plan.normalise, 0);
  assert_int_equal(parse_changed(QWEN3_MOE, "mlp_only_layers", "[0, 1]", &c), OK);
  assert_int_equal(c.plan.dense_layers, 2);
  assert_int_equal(parse_two_changed(QWEN3_MOE, "num_experts", NULL, "num_local_experts", "64", &c), OK);
  assert_int_equal(c.plan.experts, 64);
  c = parse_file(QWEN2_MOE);
  assert_int_equal(c.plan.experts, 64);
  assert_int_equal(c.plan.shared_experts, 8); /* 20480 columns of 2560 */
  assert_true(c.plan.normalise == 0 && c.plan.routed_scale == 1);
  assert_int_equal(c.grouped.shared_gate, 1);
  c = parse_file(GLM45);
  assert_int_equal(c.plan.experts, 128);
  assert_int_equal(c.plan.shared_experts, 1);
  assert_int_equal(c.plan.dense_layers, 1);
  assert_int_equal(c.plan.scoring, ROUTER_SIGMOID);
  assert_true(c.plan.normalise == 1 && c.plan.routed_scale == 1);
  assert_int_equal(c.grouped.shared_gate, 0);
  assert_non_null(strstr(c.notes.ignored, "num_nextn_predict_layers"));
  c = parse_file(LLAMA);
  assert_true(c.plan.experts == 0 && c.plan.dense_layers == 32 && c.plan.shared_experts == 0 && c.plan.top_k == 0);
}

static void layers_without_rotation_are_marked(void **state) {
  (void)state;
  model_config c = parse_file(SMOLLM3), other = {0};
  assert_true(c.grouped.unrotated[0] == 0x888888888 && c.grouped.unrotated[1] == 0); /* every fourth of 36 */
  assert_int_equal(parse_changed(SMOLLM3, "no_rope_layers", NULL, &other), OK);      /* by the interval */
  assert_memory_equal(&other.grouped, &c.grouped, sizeof c.grouped);
  assert_int_equal(parse_two_changed(SMOLLM3, "no_rope_layers", "null", "no_rope_layer_interval", "3", &c), OK);
  assert_true(c.grouped.unrotated[0] == 0x924924924);
  assert_int_equal(parse_two_changed(SMOLLM3, "no_rope_layers", "null", "no_rope_layer_interval", NULL, &c), OK);
  assert_memory_equal(&other.grouped, &c.grouped, sizeof c.grouped);
  assert_true(parse_file(LLAMA).grouped.unrotated[0] == 0);
}

static void windows_are_kept(void **state) {
  (void)state;
  static const struct {
    const char *path, *used, *window;
    uint32_t expected;
  } CASES[] = {
      {MISTRAL_1, NULL, NULL, 4096}, /* HF's default */
      {MISTRAL_1, NULL, "null", 0},     {MISTRAL_1, NULL, "1024", 1024},  {PHI4, NULL, NULL, 0},          {PHI4, NULL, "2047", 2047},
      {QWEN2, "false", "4096", 0},      {QWEN2, NULL, "4096", 0},         {QWEN2, "true", "4096", 4096},  {QWEN2, "true", "null", 0},
      {QWEN3_MOE, "true", NULL, 4096},  {SMOLLM3, "true", NULL, 0},       {SMOLLM3, "true", "512", 512},  {LLAMA, "false", "null", 0},
  };
  for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
    model_config c = {0};
    if (parse_two_changed(CASES[i].path, "use_sliding_window", CASES[i].used, "sliding_window", CASES[i].window, &c) != OK)
      fail_msg("case %zu: %s", i, fail_text());
    assert_int_equal(c.window, CASES[i].expected);
  }
}

static void absent_fields_follow_the_family(void **state) {
  (void)state;
  static const struct {
    const char *path, *name, *value;
    uint32_t kv_heads, head_dim;
  } CASES[] = {
      {LLAMA, "num_key_value_heads", NULL, 32, 128},  {LLAMA, "num_key_value_heads", "null", 32, 128},
      {LLAMA_1B, "head_dim", NULL, 8, 64},            {LLAMA_1B, "head_dim", "null", 8, 64},
      {LLAMA_1B, "head_dim", "80", 8, 80},            {MISTRAL_3, "num_key_value_heads", NULL, 8, 128},
      {MISTRAL_3, "num_key_value_heads", "null", 32, 128}, {QWEN3, "num_key_value_heads", NULL, 32, 128},
      {MISTRAL_24B, "head_dim", NULL, 8, 160},        {QWEN3, "head_dim", NULL, 8, 128},
      {GLM4, "head_dim", NULL, 2, 128},               {GLM45, "head_dim", "256", 8, 256},
      {SMOLLM3, "num_key_value_heads", NULL, 4, 128}, {QWEN3_MOE, "head_dim", NULL, 4, 64},
  };
  for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
    model_config c = {0};
    if (parse_changed(CASES[i].path, CASES[i].name, CASES[i].value, &c) != OK) fail_msg("case %zu: %s", i, fail_text());
    assert_int_equal(c.grouped.kv_heads, CASES[i].kv_heads);
    assert_int_equal(c.plan.nope_dim + c.plan.rope_dim, CASES[i].head_dim);
  }
  model_config c = {0};
  const char *const with_output[] = {LLAMA, QWEN3, QWEN3_MOE, OLMO2, SMOLLM3};
  for (size_t i = 0; i < ARRAY_LEN(with_output); i++) {
    assert_int_equal(parse_changed(with_output[i], "attention_bias", "true", &c), OK);
    assert_int_equal(c.grouped.has_bias, BIAS_QKV | BIAS_OUTPUT);
  }
  assert_int_equal(parse_changed(LLAMA, "mlp_bias", "true", &c), OK);
  assert_int_equal(c.grouped.has_bias, BIAS_FEED);
  assert_int_equal(parse_changed(GLM4, "attention_bias", NULL, &c), OK);
  assert_int_equal(c.grouped.has_bias, BIAS_QKV);
  assert_int_equal(parse_changed(GLM45, "attention_bias", NULL, &c), OK);
  assert_int_equal(c.grouped.has_bias, 0);
  assert_int_equal(parse_changed(QWEN2_MOE, "qkv_bias", "false", &c), OK);
  assert_int_equal(c.grouped.has_bias, 0);
  assert_int_equal(parse_changed(GLM45, "use_qk_norm", "true", &c), OK);
  assert_int_equal(c.grouped.qk_norm, QK_NORM_HEAD);
  assert_int_equal(parse_changed(GLM45, "use_qk_norm", NULL, &c), OK);
  assert_int_equal(c.grouped.qk_norm, QK_NORM_NONE);
  assert_int_equal(parse_changed(GLM4, "rms_norm_eps", NULL, &c), OK);
  assert_true(c.plan.norm_eps == 1.5625e-7f);
  assert_int_equal(parse_changed(SMOLLM3, "rope_theta", NULL, &c), OK);
  assert_non_null(strstr(c.notes.assumed, "rope_theta = 2000000"));
  assert_non_null(strstr(c.notes.ignored, "pretraining_tp"));
}

/* As Mistral-Small-3.1 has it. */
static void a_model_inside_another_is_read(void **state) {
  (void)state;
  model_config alone = parse_file(MISTRAL_24B), nested = {0};
  fixture_bytes text = fixture_read(MISTRAL_24B);
  char *around = malloc(text.count + 200);
  assert_non_null(around);
  int bytes = sprintf(around, "{\"model_type\": \"mistral3\", \"torch_dtype\": \"bfloat16\", \"vision_config\": {}, \"text_config\": %.*s}",
                      (int)text.count, text.bytes);
  assert_int_equal(parse_text(around, (size_t)bytes, &nested), OK);
  assert_string_equal(nested.nested, "text_config");
  assert_memory_equal(&nested.plan, &alone.plan, sizeof alone.plan);
  assert_memory_equal(&nested.grouped, &alone.grouped, sizeof alone.grouped);
  free(around);
  free(text.bytes);
}

/* === Rotary positions =================================================================================================== */

static void check_frequencies(const char *what, const model_config *c, uint32_t max_len, const double *divisors) {
  plan_model m = model_config_plan(c, max_len);
  for (uint32_t i = 0; i < HEAD_DIM_MAX / 2; i++) {
    float expected = i < m.rope_dim / 2 ? (float)(1 / ((divisors ? divisors[i] : 1) * pow(c->rope.theta, 2.0 * i / m.rope_dim))) : 0;
    if (m.inv_freq[i] != expected) fail_msg("%s: inv_freq[%u] is %.9g, expected %.9g", what, i, (double)m.inv_freq[i], (double)expected);
  }
}

static void plain_frequencies_are_hfs(void **state) {
  (void)state;
  static const char *const PATHS[] = {MISTRAL_3, QWEN2_SMALL, QWEN3, GLM4, GLM45, OLMO2, PHI3_4K, SMOLLM3};
  for (size_t i = 0; i < ARRAY_LEN(PATHS); i++) {
    model_config c = parse_file(PATHS[i]);
    check_frequencies(PATHS[i], &c, 2000, NULL);
    assert_true(c.plan.rope_attention_factor == 1);
  }
}

/* HF: _compute_llama3_parameters, by wavelengths as there. */
static void check_llama3(const char *path, double factor) {
  const double pi = acos(-1.0);
  plan_model m = plan_of_file(path);
  uint32_t kept = 0, divided = 0, mixed = 0;
  for (uint32_t i = 0; i < m.rope_dim / 2; i++) {
    double base = 1 / pow(500000, 2.0 * i / m.rope_dim), wavelength = 2 * pi / base, expected = base;
    double smooth = (8192 / wavelength - 1) / (4.0 - 1);
    bool is_low = wavelength > 8192, is_high = wavelength < 8192 / 4.0;
    if (is_low) expected = base / factor;
    if (!is_low && !is_high) expected = (1 - smooth) * base / factor + smooth * base;
    if (m.inv_freq[i] != (float)expected) fail_msg("inv_freq[%u] is %.9g, expected %.9g", i, (double)m.inv_freq[i], expected);
    kept += is_high, divided += is_low, mixed += !is_high && !is_low;
  }
  assert_true(kept > 8 && divided > 8 && mixed >= 2);
  assert_true(m.rope_attention_factor == 1);
}

static void llama3_follows_hf(void **state) {
  (void)state;
  check_llama3(LLAMA, 8);
  check_llama3(LLAMA_1B, 32);
}

static void a_linear_factor_divides(void **state) {
  (void)state;
  model_config c = {0};
  double divisors[HEAD_DIM_MAX / 2];
  for (size_t i = 0; i < ARRAY_LEN(divisors); i++) divisors[i] = 2.5;
  assert_int_equal(parse_changed(MISTRAL_3, "rope_scaling", "{\"type\": \"linear\", \"factor\": 2.5}", &c), OK);
  check_frequencies("linear", &c, 2000, divisors);
  assert_true(c.plan.rope_attention_factor == 1);
}

#define YARN "{\"rope_type\": \"yarn\", \"factor\": 4.0, \"original_max_position_embeddings\": 32768"

/* The factor of cos and sin follows YaRN; the softmax scale does not, unlike DeepSeek's. */
static void yarn_scales_rotations_only(void **state) {
  (void)state;
  model_config plain = parse_file(QWEN3), c = {0};
  assert_int_equal(parse_changed(QWEN3, "rope_scaling", YARN "}", &c), OK);
  assert_true(c.plan.rope_attention_factor == (float)(0.1 * log(4) + 1));
  assert_true(c.plan.softmax_scale_log2 == plain.plan.softmax_scale_log2);
  assert_int_equal(parse_changed(QWEN3, "rope_scaling", YARN ", \"mscale\": 1, \"mscale_all_dim\": 1}", &c), OK);
  assert_true(c.plan.rope_attention_factor == 1);
  assert_true(c.plan.softmax_scale_log2 == plain.plan.softmax_scale_log2);
  plan_model slow = plan_of(&c), fast = plan_of(&plain);
  assert_true(slow.inv_freq[0] == fast.inv_freq[0] && slow.inv_freq[63] == (float)(1 / pow(1e6, 126.0 / 128) / 4));
}

static void longrope_of_phi3(void **state) {
  (void)state;
  static const char *const PATHS[] = {PHI3_128K, PHI4_MINI};
  for (size_t i = 0; i < ARRAY_LEN(PATHS); i++) {
    model_config c = parse_file(PATHS[i]), other = {0};
    assert_true(c.plan.rope_attention_factor == (float)sqrt(1 + log(32) / log(4096)));
    check_frequencies(PATHS[i], &c, 4096, c.rope.short_factor);
    check_frequencies(PATHS[i], &c, 4097, c.rope.long_factor);
    assert_int_equal(parse_changed(PATHS[i], "original_max_position_embeddings", NULL, &other), OK); /* HF's default */
    assert_memory_equal(&other.rope, &c.rope, sizeof c.rope);
    assert_int_equal(parse_changed(PATHS[i], "rope_scaling.original_max_position_embeddings", "4096", &other), OK);
    assert_memory_equal(&other.rope, &c.rope, sizeof c.rope);
  }
}

/* transformers 5 writes rope_parameters, with rope_theta and partial_rotary_factor inside. */
static void both_spellings_are_the_same_model(void **state) {
  (void)state;
  static const struct {
    const char *path, *parameters;
  } CASES[] = {
      {GLM4, "{\"rope_type\": \"default\", \"rope_theta\": 10000.0, \"partial_rotary_factor\": 0.5}"},
      {LLAMA, "{\"rope_type\": \"llama3\", \"rope_theta\": 500000.0, \"factor\": 8.0, \"low_freq_factor\": 1.0, \"high_freq_factor\": 4.0, "
              "\"original_max_position_embeddings\": 8192}"},
      {QWEN3, "{\"rope_type\": \"default\", \"rope_theta\": 1000000.0}"},
  };
  for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
    plan_model old = plan_of_file(CASES[i].path), new;
    fixture_bytes text = fixture_read(CASES[i].path);
    json_t *root = json_loadb(text.bytes, text.count, 0, NULL);
    change_field(root, "rope_parameters", CASES[i].parameters);
    change_field(root, "rope_theta", NULL);
    change_field(root, "rope_scaling", NULL);
    change_field(root, "partial_rotary_factor", NULL);
    char *changed = json_dumps(root, 0);
    model_config c = {0};
    if (parse_text(changed, strlen(changed), &c) != OK) fail_msg("case %zu: %s", i, fail_text());
    new = plan_of(&c);
    assert_memory_equal(&old, &new, sizeof old);
    free(changed);
    free(text.bytes);
    json_decref(root);
  }
  model_config c = {0};
  assert_int_equal(parse_changed(GLM4, "partial_rotary_factor", NULL, &c), OK); /* HF's default */
  assert_int_equal(c.plan.rope_dim, 64);
  assert_int_equal(parse_changed(GLM45, "partial_rotary_factor", "0.25", &c), OK);
  assert_true(c.plan.rope_dim == 32 && c.plan.nope_dim == 96);
}

/* === e4m3 =============================================================================================================== */

#define FP8(more) "{\"quant_method\": \"fp8\", \"weight_block_size\": [128, 128]" more "}"
#define KEPT(names) FP8(", \"modules_to_not_convert\": [" names "]")

static bool is_e4m3(const model_config *c, uint32_t layer, enum config_product product) {
  return config_quant_is_e4m3(&c->products, &c->quant, layer, product);
}

static void e4m3_products_are_named(void **state) {
  (void)state;
  model_config c = parse_file(QWEN3_FP8);
  assert_int_equal(c.quant.weight_format, WEIGHTS_E4M3);
  assert_int_equal(c.quant.act_scale, SCALE_F32);
  for (uint32_t i = 0; i < 36; i++) assert_int_equal(c.products.kept[i], 0);
  assert_int_equal(parse_changed(QWEN3_FP8, "quantization_config", KEPT("\"lm_head\", \"model.layers.1.self_attn\""), &c), OK);
  assert_true(is_e4m3(&c, 0, PRODUCT_QKV) && is_e4m3(&c, 0, PRODUCT_O) && is_e4m3(&c, 1, PRODUCT_GATE_UP));
  assert_true(!is_e4m3(&c, 1, PRODUCT_QKV) && !is_e4m3(&c, 1, PRODUCT_O));
  static const char *const PARTS[] = {"q_proj", "k_proj", "v_proj"}; /* one of three */
  for (size_t i = 0; i < ARRAY_LEN(PARTS); i++) {
    char object[200];
    snprintf(object, sizeof object, KEPT("\"model.layers.3.self_attn.%s\""), PARTS[i]);
    fixture_expect(parse_changed(QWEN3_FP8, "quantization_config", object, &c), ERR_UNSUPPORTED, PARTS[i]);
    assert_non_null(strstr(fail_text(), "must agree"));
  }
  assert_int_equal(parse_changed(QWEN3_MOE, "quantization_config", KEPT("\"model.layers.0.mlp.gate\""), &c), OK);
  assert_true(is_e4m3(&c, 0, PRODUCT_EXPERTS) && is_e4m3(&c, 47, PRODUCT_QKV));
  static const char *const MAY[] = {LLAMA, QWEN2, MISTRAL_3, GLM45}, *const MAY_NOT[] = {PHI4, GLM4, OLMO2, SMOLLM3, QWEN2_MOE};
  for (size_t i = 0; i < ARRAY_LEN(MAY); i++) {
    status result = parse_changed(MAY[i], "quantization_config", FP8(""), &c);
    if (result == ERR_UNSUPPORTED && strcmp(MAY[i], GLM45) == 0) { /* 10944 columns are 85.5 blocks */
      assert_non_null(strstr(fail_text(), "mlp.gate_proj has 10944 rows"));
      result = parse_changed(GLM45, "quantization_config", KEPT("\"model.layers.0.mlp\""), &c);
    }
    if (result != OK) fail_msg("%s: %s", MAY[i], fail_text());
    assert_true(is_e4m3(&c, 2, PRODUCT_QKV));
  }
  for (size_t i = 0; i < ARRAY_LEN(MAY_NOT); i++)
    fixture_expect(parse_changed(MAY_NOT[i], "quantization_config", FP8(""), &c), ERR_UNSUPPORTED, "quantization_config");
}

/* === Refusals =========================================================================================================== */

static const bad_field BAD[] = {
    {LLAMA, "architectures", "[\"MistralForCausalLM\"]", "LlamaForCausalLM", ERR_UNSUPPORTED},
    {LLAMA, "model_type", "\"gemma2\"", "smollm3 are supported", ERR_UNSUPPORTED},
    {LLAMA, "attention_bias", "1", "attention_bias", ERR_FORMAT},
    {MISTRAL_3, "attention_bias", "true", "attention_bias", ERR_UNSUPPORTED},
    {QWEN2, "attention_bias", "true", "attention_bias", ERR_UNSUPPORTED},
    {PHI4, "attention_bias", "true", "attention_bias", ERR_UNSUPPORTED},
    {QWEN3_FP8, "attention_bias", "true", "attention_bias", ERR_UNSUPPORTED},
    {GLM4, "attention_bias", "1", "attention_bias", ERR_FORMAT},
    {QWEN2_MOE, "qkv_bias", "1", "qkv_bias", ERR_FORMAT},
    {LLAMA, "mlp_bias", "1", "mlp_bias", ERR_FORMAT},
    {QWEN3, "mlp_bias", "true", "mlp_bias", ERR_UNSUPPORTED},
    {LLAMA, "hidden_act", "\"gelu\"", "hidden_act", ERR_UNSUPPORTED},
    {LLAMA, "torch_dtype", "\"float16\"", "torch_dtype", ERR_UNSUPPORTED},
    {LLAMA, "num_key_value_heads", "5", "num_key_value_heads", ERR_FORMAT},
    {LLAMA, "num_key_value_heads", "0", "num_key_value_heads", ERR_FORMAT},
    {LLAMA, "head_dim", "48", "head_dim", ERR_UNSUPPORTED},
    {LLAMA, "head_dim", "72", "head_dim", ERR_UNSUPPORTED},
    {LLAMA, "head_dim", "512", "head_dim", ERR_UNSUPPORTED},
    {LLAMA, "num_attention_heads", "24", "head_dim\" is missing", ERR_FORMAT},
    {LLAMA, "num_attention_heads", "128", "is 32 columns of a head", ERR_UNSUPPORTED},
    {LLAMA, "partial_rotary_factor", "0.5", "partial_rotary_factor", ERR_UNSUPPORTED},
    {LLAMA, "sliding_window", "4096", "sliding_window", ERR_UNSUPPORTED},
    {LLAMA, "use_sliding_window", "true", "use_sliding_window", ERR_UNSUPPORTED},
    {LLAMA, "layer_types", "[\"full_attention\"]", "layer_types", ERR_FORMAT},
    {LLAMA, "qk_nope_head_dim", "64", "qk_nope_head_dim", ERR_UNSUPPORTED},
    {LLAMA, "num_experts", "8", "num_experts", ERR_UNSUPPORTED},
    {LLAMA, "num_local_experts", "8", "num_local_experts", ERR_UNSUPPORTED},
    {LLAMA, "rope_interleave", "true", "rope_interleave", ERR_UNSUPPORTED},
    {LLAMA, "original_max_position_embeddings", "8192", "original_max_position_embeddings", ERR_UNSUPPORTED},
    {LLAMA, "logits_scaling", "8", "logits_scaling", ERR_UNSUPPORTED},
    {LLAMA, "embedding_multiplier", "12", "embedding_multiplier", ERR_UNSUPPORTED},
    {LLAMA, "rope_scaling.rope_type", "\"dynamic\"", "default, yarn, longrope, llama3, linear", ERR_UNSUPPORTED},
    {LLAMA, "rope_scaling.rope_type", "\"linear\"", "_factor", ERR_UNSUPPORTED},
    {LLAMA, "rope_scaling.low_freq_factor", NULL, "low_freq_factor\" is missing", ERR_FORMAT},
    {LLAMA, "rope_scaling.high_freq_factor", NULL, "high_freq_factor\" is missing", ERR_FORMAT},
    {LLAMA, "rope_scaling.high_freq_factor", "1", "high_freq_factor", ERR_FORMAT},
    {LLAMA, "rope_scaling.factor", NULL, "factor\" is missing", ERR_FORMAT},
    {LLAMA, "rope_scaling.factor", "0.5", "factor", ERR_FORMAT},
    {LLAMA, "rope_scaling.original_max_position_embeddings", NULL, "is missing", ERR_FORMAT},
    {LLAMA, "rope_scaling.beta_fast", "32", "beta_fast", ERR_UNSUPPORTED},
    {MISTRAL_1, "sliding_window", "0", "sliding_window", ERR_FORMAT},
    {MISTRAL_1, "sliding_window", "\"4096\"", "sliding_window", ERR_FORMAT},
    {MISTRAL_1, "num_attention_heads", "257", "num_attention_heads", ERR_UNSUPPORTED},
    {QWEN2, "use_mrope", "true", "use_mrope", ERR_UNSUPPORTED},
    {QWEN2, "qkv_bias", "true", "qkv_bias", ERR_UNSUPPORTED},
    {QWEN2, "rope_scaling", "{\"type\": \"mrope\", \"mrope_section\": [16, 24, 24]}", "mrope", ERR_UNSUPPORTED},
    {QWEN2, "rope_scaling", "{\"type\": \"linear\"}", "factor\" is missing", ERR_FORMAT},
    {QWEN2, "rope_scaling", "{\"type\": \"linear\", \"factor\": 2, \"mscale\": 1}", "mscale", ERR_UNSUPPORTED},
    {QWEN15_MOE, "num_experts", "61", "\"num_experts\" is 61, not a multiple of 2", ERR_UNSUPPORTED},
    {QWEN2_MOE, "shared_expert_intermediate_size", "2624", "shared_expert_intermediate_size", ERR_UNSUPPORTED},
    {QWEN2_MOE, "shared_expert_intermediate_size", "43520", "shared_expert_intermediate_size", ERR_UNSUPPORTED},
    {QWEN3_MOE, "shared_expert_intermediate_size", "768", "shared_expert_intermediate_size", ERR_UNSUPPORTED},
    {QWEN3_MOE, "decoder_sparse_step", "2", "decoder_sparse_step", ERR_UNSUPPORTED},
    {QWEN3_MOE, "mlp_only_layers", "[1]", "mlp_only_layers", ERR_UNSUPPORTED},
    {QWEN3_MOE, "mlp_only_layers", "[0, 2]", "mlp_only_layers", ERR_UNSUPPORTED},
    {QWEN3_MOE, "mlp_only_layers", "[\"0\"]", "mlp_only_layers", ERR_UNSUPPORTED},
    {QWEN3_MOE, "mlp_only_layers", "0", "mlp_only_layers", ERR_FORMAT},
    {QWEN3_MOE, "num_experts", NULL, "num_experts\" is missing", ERR_FORMAT},
    {QWEN3_MOE, "num_local_experts", "64", "differ", ERR_FORMAT},
    {QWEN3_MOE, "num_experts_per_tok", "129", "num_experts_per_tok", ERR_UNSUPPORTED},
    {QWEN3_MOE, "n_group", "8", "n_group", ERR_UNSUPPORTED},
    {QWEN3_MOE, "routed_scaling_factor", "2", "routed_scaling_factor", ERR_UNSUPPORTED},
    {GLM4, "rope_scaling", "{\"rope_type\": \"default\", \"partial_rotary_factor\": 0.25}", "partial_rotary_factor", ERR_UNSUPPORTED},
    {GLM4, "partial_rotary_factor", "0.4", "a multiple of 8", ERR_UNSUPPORTED}, /* 51 columns */
    {GLM4, "partial_rotary_factor", "0", "a multiple of 8", ERR_UNSUPPORTED},
    {GLM4, "partial_rotary_factor", "1.5", "partial_rotary_factor", ERR_FORMAT},
    {GLM4, "use_qk_norm", "true", "use_qk_norm", ERR_UNSUPPORTED},
    {GLM45, "use_qk_norm", "1", "use_qk_norm", ERR_FORMAT},
    {GLM45, "scoring_func", "\"softmax\"", "scoring_func", ERR_UNSUPPORTED},
    {GLM45, "topk_method", "\"greedy\"", "topk_method", ERR_UNSUPPORTED},
    {GLM45, "mlp_layer_types", "[\"dense\"]", "mlp_layer_types", ERR_FORMAT},
    {OLMO2, "clip_qkv", "8", "clip_qkv", ERR_UNSUPPORTED},
    {PHI4, "lm_head_bias", "true", "lm_head_bias", ERR_UNSUPPORTED},
    {PHI4, "rope_scaling", "{\"type\": \"yarn\", \"factor\": 4}", "supported: default, longrope", ERR_UNSUPPORTED},
    {PHI3_128K, "rope_scaling.original_max_position_embeddings", "8192", "original_max_position_embeddings", ERR_FORMAT},
    {PHI3_128K, "partial_rotary_factor", "0.5", "24 numbers", ERR_FORMAT},
    {SMOLLM3, "no_rope_layers", "[1, 0]", "no_rope_layers", ERR_FORMAT},
    {SMOLLM3, "no_rope_layers", "1", "no_rope_layers", ERR_FORMAT},
    {QWEN3, "no_rope_layers", "[1]", "no_rope_layers", ERR_UNSUPPORTED},
};

static void bad_values_are_named(void **state) {
  (void)state;
  expect_refusals(BAD, ARRAY_LEN(BAD));
}

/* A list of SmolLM3's 36 layers with one wrong item. */
static void wrong_items_of_lists_are_named(void **state) {
  (void)state;
  static const struct {
    const char *name, *good, *bad, *words;
    status code;
  } CASES[] = {{"layer_types", "\"full_attention\"", "\"sliding_attention\"", "sliding_attention\" at layer 35", ERR_UNSUPPORTED},
               {"layer_types", "\"full_attention\"", "1", "layer_types", ERR_UNSUPPORTED},
               {"no_rope_layers", "1", "2", "at layer 35", ERR_FORMAT},
               {"no_rope_layers", "1", "true", "at layer 35", ERR_FORMAT}};
  for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
    char list[1024] = "[";
    model_config c = {0};
    for (int item = 0; item < 35; item++) strcat(strcat(list, CASES[i].good), ", ");
    strcat(strcat(list, CASES[i].bad), "]");
    fixture_expect(parse_changed(SMOLLM3, CASES[i].name, list, &c), CASES[i].code, CASES[i].words);
  }
}

static void missing_fields_are_named(void **state) {
  (void)state;
  static const char *const NAMES[] = {"vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size",
                                      "max_position_embeddings"};
  for (size_t p = 0; p < ARRAY_LEN(REAL); p++)
    for (size_t i = 0; i < ARRAY_LEN(NAMES); i++) {
      model_config c = {0};
      fixture_expect(parse_changed(REAL[p].path, NAMES[i], NULL, &c), ERR_FORMAT, NAMES[i]);
    }
}

static void more_heads_than_a_group_holds(void **state) {
  (void)state;
  model_config c = {0};
  assert_int_equal(parse_two_changed(GLM45, "num_key_value_heads", "1", "num_attention_heads", "64", &c), OK);
  fixture_expect(parse_two_changed(GLM45, "num_key_value_heads", "1", "num_attention_heads", "96", &c), ERR_UNSUPPORTED, "at most 64");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(real_models_are_read),
      cmocka_unit_test(experts_are_read),
      cmocka_unit_test(layers_without_rotation_are_marked),
      cmocka_unit_test(windows_are_kept),
      cmocka_unit_test(absent_fields_follow_the_family),
      cmocka_unit_test(a_model_inside_another_is_read),
      cmocka_unit_test(plain_frequencies_are_hfs),
      cmocka_unit_test(llama3_follows_hf),
      cmocka_unit_test(a_linear_factor_divides),
      cmocka_unit_test(yarn_scales_rotations_only),
      cmocka_unit_test(longrope_of_phi3),
      cmocka_unit_test(both_spellings_are_the_same_model),
      cmocka_unit_test(e4m3_products_are_named),
      cmocka_unit_test(bad_values_are_named),
      cmocka_unit_test(wrong_items_of_lists_are_named),
      cmocka_unit_test(missing_fields_are_named),
      cmocka_unit_test(more_heads_than_a_group_holds),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_model_config.c - config.json: real models are read correctly; every field that is wrong, missing or out of range is refused by
 * name. */
#include "tests/unit/unit.h"
#include <math.h>
#include "kernels_src/abi.h"
#include "planner/model_config.h"
#include "config_fixture.h"

static void real_models_are_read(void **state) {
  (void)state;
  plan_model m = parse_file(V3).plan;
  assert_int_equal(m.layers, 61);
  assert_int_equal(m.q_lora_rank, 1536);
  assert_int_equal(m.dense_layers, 3);
  assert_int_equal(m.scoring, ROUTER_SIGMOID);
  assert_int_equal(m.group_mode, ROUTER_GROUP_TOP2);
  assert_int_equal(m.normalise, 1);
  assert_true(m.routed_scale == 2.5f);
  assert_int_equal(m.eos_count, 1);
  assert_int_equal(m.eos[0], 1);
  m = parse_file(V2).plan;
  assert_int_equal(m.scoring, ROUTER_SOFTMAX);
  assert_int_equal(m.group_mode, ROUTER_GROUP_MAX);
  assert_int_equal(m.top_groups, 3);
  assert_int_equal(m.normalise, 0);
  assert_true(m.routed_scale == 16.0f);
  m = parse_file(V2_LITE).plan;
  assert_int_equal(m.q_lora_rank, 0);
  assert_int_equal(m.group_mode, ROUTER_GROUP_NONE);
  assert_int_equal(m.shared_experts, 2);
  m = parse_file(MOONLIGHT).plan;
  assert_int_equal(m.scoring, ROUTER_SIGMOID);
  assert_int_equal(m.group_mode, ROUTER_GROUP_NONE);
  assert_true(m.rope_attention_factor == 1.0f);
  assert_true(m.norm_eps == 1e-5f);
}

static void more_families_are_read(void **state) {
  (void)state;
  plan_model m = parse_file(KIMI).plan;
  assert_int_equal(m.experts, 384);
  assert_int_equal(m.heads, 64);
  assert_int_equal(m.scoring, ROUTER_SIGMOID);
  assert_int_equal(m.group_mode, ROUTER_GROUP_NONE);
  assert_true(m.routed_scale == 2.827f);
  model_config c = parse_file(GLM);
  assert_int_equal(c.plan.nope_dim, 192);
  assert_int_equal(c.plan.v_dim, 256);
  assert_int_equal(c.plan.dense_layers, 1);
  assert_int_equal(c.plan.scoring, ROUTER_SIGMOID);
  assert_int_equal(c.plan.normalise, 1);
  assert_int_equal(c.plan.eos_count, 3);
  assert_int_equal(c.plan.bos, UINT32_MAX);
  assert_true(c.plan.norm_eps == 1e-5f);
  assert_true(c.plan.rope_attention_factor == 1.0f);
  assert_int_equal(c.is_tied, 0);
  assert_non_null(strstr(c.notes.ignored, "num_nextn_predict_layers (the prediction layers behind the last layer make drafts at most)"));
  c = parse_file(YOUTU);
  assert_int_equal(c.plan.experts, 0);
  assert_int_equal(c.plan.dense_layers, 32);
  assert_int_equal(c.plan.q_lora_rank, 1536);
  assert_int_equal(c.is_tied, 1);
  assert_null(strstr(parse_file(KIMI).notes.ignored, "prediction layers"));
}

static void minicpm3_is_read(void **state) {
  (void)state;
  model_config c = parse_file(MINICPM);
  assert_int_equal(c.plan.vocab, 73448);
  assert_int_equal(c.plan.dense_layers, 62);
  assert_int_equal(c.plan.kv_lora_rank, 256);
  assert_int_equal(c.plan.rope_dim, 32);
  assert_int_equal(c.plan.v_dim, 64); /* hidden / heads */
  assert_int_equal(c.plan.eos_count, 2);
  assert_int_equal(c.plan.eos[1], 73440);
  assert_true(c.plan.norm_eps == 1e-5f);
  assert_true(c.plan.embed_scale == 12);
  assert_true(c.plan.residual_scale == (float)(1.4 / sqrt(62)));
  assert_true(c.plan.head_scale == 0.1f);
  assert_int_equal(c.is_tied, 1);
  assert_int_equal(parse_changed(MINICPM, "scale_emb", NULL, &c), OK); /* absent: HF's defaults */
  assert_true(c.plan.embed_scale == 12);
  assert_int_equal(parse_changed(MINICPM, "scale_depth", NULL, &c), OK);
  assert_true(c.plan.residual_scale == (float)(1.4 / sqrt(62)));
  assert_int_equal(parse_changed(MINICPM, "dim_model_base", NULL, &c), OK);
  assert_true(c.plan.head_scale == 0.1f);
  assert_int_equal(parse_changed(MINICPM, "scale_depth", "null", &c), OK); /* null: no scale */
  assert_true(c.plan.residual_scale == 1);
  assert_int_equal(parse_changed(MINICPM, "dim_model_base", "null", &c), OK);
  assert_true(c.plan.head_scale == 1);
  assert_int_equal(parse_changed(MINICPM, "v_head_dim", "128", &c), OK);
  assert_int_equal(c.plan.v_dim, 128);
  c = parse_file(V3);
  assert_true(c.plan.embed_scale == 1 && c.plan.residual_scale == 1 && c.plan.head_scale == 1);
}

static void mistral4_is_read(void **state) {
  (void)state;
  model_config c = parse_file(MISTRAL);
  assert_string_equal(c.nested, "text_config");
  assert_int_equal(c.plan.experts, 128);
  assert_int_equal(c.plan.dense_layers, 0);
  assert_int_equal(c.plan.scoring, ROUTER_SOFTMAX);
  assert_int_equal(c.plan.group_mode, ROUTER_GROUP_NONE);
  assert_int_equal(c.plan.normalise, 1);
  assert_true(c.plan.routed_scale == 1);
  assert_int_equal(c.is_tied, 0); /* the outer true does not override the text's false */
  assert_int_equal(parse_changed(MISTRAL, "text_config.routed_scaling_factor", "1.5", &c), OK); /* normalised and scaled */
  assert_true(c.plan.normalise == 1 && c.plan.routed_scale == 1.5f);
  assert_int_equal(parse_changed(MISTRAL, "text_config.n_group", "8", &c), OK);
  assert_int_equal(c.plan.group_mode, ROUTER_GROUP_TOP2);
  assert_int_equal(parse_changed(MISTRAL, "text_config.n_group", "null", &c), OK);
  assert_int_equal(c.plan.groups, 1);
  assert_int_equal(parse_changed(MISTRAL, "text_config.norm_topk_prob", "null", &c), OK); /* None, which HF treats as false */
  assert_int_equal(c.plan.normalise, 0);
  assert_int_equal(parse_changed(MISTRAL, "text_config.num_local_experts", "128", &c), OK);
  assert_int_equal(c.plan.experts, 128);
}

/* A text model alone and one inside another model give the same plan. */
static void nesting_changes_nothing(void **state) {
  (void)state;
  model_config nested = parse_file(KIMI_NESTED), plain = {0};
  fixture_bytes text = fixture_read(KIMI_NESTED);
  json_t *root = json_loadb(text.bytes, text.count, 0, NULL);
  char *inner = json_dumps(json_object_get(root, "text_config"), 0);
  assert_int_equal(parse_text(inner, strlen(inner), &plain), OK);
  free(inner);
  free(text.bytes);
  json_decref(root);
  assert_null(plain.nested);
  assert_string_equal(nested.nested, "text_config");
  assert_memory_equal(&plain.plan, &nested.plan, sizeof plain.plan);
  assert_memory_equal(&plain.rope, &nested.rope, sizeof plain.rope);
  assert_non_null(strstr(nested.notes.ignored, "vision_config"));
  assert_non_null(strstr(nested.notes.ignored, "text_config.temperature"));
}

/* DeepSeek-VL2 and Janus name the field so. */
static void language_config_is_text_config(void **state) {
  (void)state;
  model_config nested = parse_file(KIMI_NESTED), other = {0};
  fixture_bytes text = fixture_read(KIMI_NESTED);
  json_t *root = json_loadb(text.bytes, text.count, 0, NULL);
  json_object_set(root, "language_config", json_object_get(root, "text_config"));
  char *both = json_dumps(root, 0);
  json_object_del(root, "text_config");
  char *moved = json_dumps(root, 0);
  assert_int_equal(parse_text(moved, strlen(moved), &other), OK);
  assert_string_equal(other.nested, "language_config");
  assert_memory_equal(&other.plan, &nested.plan, sizeof other.plan);
  assert_non_null(strstr(other.notes.ignored, "language_config.temperature"));
  fixture_expect(parse_text(both, strlen(both), &other), ERR_UNSUPPORTED, "language_config");
  free(both);
  free(moved);
  free(text.bytes);
  json_decref(root);
}

static void byte_order_mark_is_skipped(void **state) {
  (void)state;
  model_config plain = parse_file(V3), marked = {0};
  fixture_bytes text = fixture_read(V3);
  char *bytes = malloc(text.count + 3);
  memcpy(bytes, "\xEF\xBB\xBF", 3);
  memcpy(bytes + 3, text.bytes, text.count);
  assert_int_equal(parse_text(bytes, text.count + 3, &marked), OK);
  assert_memory_equal(&plain, &marked, sizeof plain);
  free(bytes);
  free(text.bytes);
}

static void outer_fields_go_before_or_must_agree(void **state) {
  (void)state;
  static const struct {
    const char *outer, *inner;
    uint32_t is_tied;
  } TIES[] = {{NULL, NULL, 0}, {NULL, "true", 1}, {"true", NULL, 1}, {"true", "true", 1}, {"true", "false", 0}, {"false", "true", 0}};
  model_config c = {0};
  assert_int_equal(parse_changed(KIMI_NESTED, "eos_token_id", "[163585, 163586]", &c), OK);
  assert_int_equal(c.plan.eos_count, 2);
  assert_int_equal(parse_changed(KIMI_NESTED, "eos_token_id", NULL, &c), OK);
  assert_int_equal(c.plan.eos_count, 1);
  assert_int_equal(parse_changed(KIMI_NESTED, "bos_token_id", "7", &c), OK);
  assert_int_equal(c.plan.bos, 7);
  assert_int_equal(parse_changed(KIMI_NESTED, "vocab_size", "163840", &c), OK);
  fixture_expect(parse_changed(KIMI_NESTED, "vocab_size", "163848", &c), ERR_UNSUPPORTED, "text_config.vocab_size");
  fixture_bytes text = fixture_read(MISTRAL);
  for (size_t i = 0; i < ARRAY_LEN(TIES); i++) {
    json_t *root = json_loadb(text.bytes, text.count, 0, NULL), *inner = json_object_get(root, "text_config");
    json_object_del(root, "tie_word_embeddings");
    json_object_del(inner, "tie_word_embeddings");
    if (TIES[i].outer) json_object_set_new(root, "tie_word_embeddings", json_boolean(strcmp(TIES[i].outer, "true") == 0));
    if (TIES[i].inner) json_object_set_new(inner, "tie_word_embeddings", json_boolean(strcmp(TIES[i].inner, "true") == 0));
    char *changed = json_dumps(root, 0);
    assert_int_equal(parse_text(changed, strlen(changed), &c), OK);
    assert_int_equal(c.is_tied, TIES[i].is_tied);
    free(changed);
    json_decref(root);
  }
  free(text.bytes);
}

/* A kimi_k2 model is a deepseek_v3 model: the name alone changes nothing. */
static void kimi_k2_is_deepseek_v3(void **state) {
  (void)state;
  model_config v3 = {0}, kimi = parse_file(KIMI);
  assert_int_equal(parse_changed(KIMI, "model_type", "\"deepseek_v3\"", &v3), OK);
  assert_memory_equal(&v3, &kimi, sizeof v3);
}

static void absent_fields_follow_the_family(void **state) {
  (void)state;
  model_config c = {0};
  assert_int_equal(parse_changed(GLM, "n_group", NULL, &c), OK);
  assert_int_equal(c.plan.groups, 1);
  assert_non_null(strstr(c.notes.assumed, "n_group = 1"));
  assert_int_equal(parse_changed(GLM, "routed_scaling_factor", NULL, &c), OK);
  assert_true(c.plan.routed_scale == 1.8f);
  assert_int_equal(parse_changed(GLM, "rms_norm_eps", NULL, &c), OK);
  assert_true(c.plan.norm_eps == 1e-5f);
  assert_int_equal(parse_changed(KIMI, "rms_norm_eps", NULL, &c), OK);
  assert_true(c.plan.norm_eps == 1e-6f);
  assert_int_equal(parse_changed(GLM, "first_k_dense_replace", NULL, &c), OK);
  assert_int_equal(c.plan.dense_layers, 1);
  assert_int_equal(parse_changed(YOUTU, "tie_word_embeddings", NULL, &c), OK);
  assert_int_equal(c.is_tied, 1);
  assert_non_null(strstr(c.notes.assumed, "tie_word_embeddings = true"));
  assert_int_equal(parse_changed(YOUTU, "tie_word_embeddings", "false", &c), OK);
  assert_int_equal(c.is_tied, 0);
  assert_int_equal(parse_changed(V3, "tie_word_embeddings", NULL, &c), OK);
  assert_int_equal(c.is_tied, 0);
  assert_int_equal(parse_changed(V3, "tie_word_embeddings", "true", &c), OK);
  assert_int_equal(c.is_tied, 1);
  assert_int_equal(parse_changed(YOUTU, "n_routed_experts", "null", &c), OK);
}

/* mlp_layer_types of `dense` dense layers and `sparse` others, as JSON. */
static const char *layer_types(uint32_t dense, uint32_t sparse) {
  static char out[2048];
  size_t at = 0;
  for (uint32_t i = 0; i < dense + sparse; i++)
    at += (size_t)snprintf(out + at, sizeof out - at, "%s\"%s\"", i ? ", " : "[", i < dense ? "dense" : "sparse");
  snprintf(out + at, sizeof out - at, "]");
  return out;
}

/* HF reads the list for glm4_moe_lite, and first_k_dense_replace for the others: where both are present they must agree. */
static void dense_layers_may_be_listed(void **state) {
  (void)state;
  model_config c = {0};
  assert_int_equal(parse_changed(GLM, "mlp_layer_types", layer_types(1, 46), &c), OK);
  assert_int_equal(c.plan.dense_layers, 1);
  fixture_expect(parse_changed(GLM, "mlp_layer_types", layer_types(2, 45), &c), ERR_UNSUPPORTED, "has 2 dense layers");
  fixture_expect(parse_changed(GLM, "first_k_dense_replace", "3", &c), ERR_UNSUPPORTED, "is absent: HF has 1 dense layers");
  fixture_expect(parse_changed(GLM, "mlp_layer_types", layer_types(1, 45), &c), ERR_FORMAT, "mlp_layer_types");
  fixture_expect(parse_changed(GLM, "mlp_layer_types", "\"dense\"", &c), ERR_FORMAT, "mlp_layer_types");
  fixture_expect(parse_changed(V3, "mlp_layer_types", layer_types(1, 60), &c), ERR_UNSUPPORTED, "has 1 dense layers");
  assert_int_equal(parse_changed(V3, "mlp_layer_types", layer_types(3, 58), &c), OK);
  fixture_bytes text = fixture_read(GLM);
  json_t *root = json_loadb(text.bytes, text.count, 0, NULL);
  free(text.bytes);
  json_object_del(root, "first_k_dense_replace");
  json_object_set_new(root, "num_hidden_layers", json_integer(4));
  static const struct {
    const char *types;
    int dense; /* -1: refused */
  } CASES[] = {{"[\"dense\", \"dense\", \"sparse\", \"sparse\"]", 2},   {"[\"sparse\", \"sparse\", \"sparse\", \"sparse\"]", 0},
               {"[\"dense\", \"dense\", \"dense\", \"dense\"]", 4},     {"[\"sparse\", \"dense\", \"sparse\", \"sparse\"]", -1},
               {"[\"dense\", \"sparse\", \"dense\", \"sparse\"]", -1},  {"[\"dense\", 1, \"sparse\", \"sparse\"]", -1},
               {"[\"dense\", \"linear\", \"sparse\", \"sparse\"]", -1}};
  for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
    json_object_set_new(root, "mlp_layer_types", json_loads(CASES[i].types, 0, NULL));
    char *changed = json_dumps(root, 0);
    status result = parse_text(changed, strlen(changed), &c);
    free(changed);
    if (CASES[i].dense < 0) fixture_expect(result, ERR_UNSUPPORTED, "mlp_layer_types");
    else assert_int_equal(result, OK);
    if (CASES[i].dense >= 0) assert_int_equal(c.plan.dense_layers, CASES[i].dense);
  }
  json_decref(root);
}

/* As modeling_deepseek.py does; where HF differs, a note says so. */
static void v2_scales_only_without_normalising(void **state) {
  (void)state;
  model_config c = {0};
  assert_int_equal(parse_two_changed(V2, "norm_topk_prob", "true", "routed_scaling_factor", "16", &c), OK);
  assert_int_equal(c.plan.normalise, 1);
  assert_true(c.plan.routed_scale == 1.0f);
  assert_non_null(strstr(c.notes.chosen, "norm_topk_prob"));
  assert_int_equal(parse_two_changed(V2, "norm_topk_prob", "false", "routed_scaling_factor", "16", &c), OK);
  assert_true(c.plan.normalise == 0 && c.plan.routed_scale == 16.0f);
  assert_string_equal(c.notes.chosen, "");
}

/* One expert: V2 scales in both references and is normalised in none; V3's references differ. */
static void one_expert_is_weighted_as_by_the_references(void **state) {
  (void)state;
  model_config c = {0};
  assert_int_equal(parse_two_changed(V2, "norm_topk_prob", "true", "num_experts_per_tok", "1", &c), OK);
  assert_true(c.plan.normalise == 0 && c.plan.routed_scale == 16.0f);
  assert_string_equal(c.notes.chosen, "");
  assert_int_equal(parse_changed(V3, "num_experts_per_tok", "1", &c), OK);
  assert_true(c.plan.normalise == 1 && c.plan.routed_scale == 2.5f);
  assert_non_null(strstr(c.notes.chosen, "modeling_deepseek.py does not"));
  assert_int_equal(parse_changed(GLM, "num_experts_per_tok", "1", &c), OK);
  assert_string_equal(c.notes.chosen, "");
}

static void absent_fields_take_hf_defaults_and_say_so(void **state) {
  (void)state;
  model_config c = {0};
  assert_int_equal(parse_changed(V3, "n_group", NULL, &c), OK);
  assert_int_equal(c.plan.groups, 8);
  assert_non_null(strstr(c.notes.assumed, "n_group = 8"));
  assert_int_equal(parse_changed(V3, "rope_theta", NULL, &c), OK);
  assert_non_null(strstr(c.notes.assumed, "rope_theta = 10000"));
  assert_int_equal(parse_changed(V3, "norm_topk_prob", NULL, &c), OK);
  assert_int_equal(c.plan.normalise, 1);
  assert_int_equal(parse_changed(V2, "norm_topk_prob", NULL, &c), OK);
  assert_int_equal(c.plan.normalise, 0);
  assert_int_equal(parse_changed(V3, "rope_scaling", "null", &c), OK);
  assert_true(plan_of(&c).inv_freq[0] == 1.0f);
  assert_non_null(strstr(c.notes.ignored, "aux_loss_alpha"));
  assert_null(strstr(c.notes.ignored, "hidden_size"));
}

/* Fields that trainers and versions of HF leave in the config file. */
static void bookkeeping_is_passed_over(void **state) {
  (void)state;
  static const struct { const char *name, *value; } harmless[] = {
      {"_attn_implementation_autoset", "true"}, {"_commit_hash", "null"},       {"_experts_implementation", "\"grouped_mm\""},
      {"unsloth_fixed", "true"},                {"unk_token_id", "null"},       {"use_sliding_window", "false"},
      {"max_window_layers", "28"},              {"sliding_window", "null"},     {"quantization_config", "null"},
      {"rope_scaling", "null"},                 {"rope_parameters", "null"},    {"n_shared_experts", "null"},
      {"routed_scaling_factor", "2"},           {"num_key_value_heads", "null"}, {"pruned_heads", "{}"},
  };
  for (size_t i = 0; i < ARRAY_LEN(harmless); i++) {
    model_config c = {0};
    if (parse_changed(V3, harmless[i].name, harmless[i].value, &c) != OK) fail_msg("%s: %s", harmless[i].name, fail_text());
  }
}

static void eos_may_be_a_list(void **state) {
  (void)state;
  model_config c = {0};
  assert_int_equal(parse_changed(V3, "eos_token_id", "[1, 5, 9]", &c), OK);
  assert_int_equal(c.plan.eos_count, 3);
  assert_int_equal(c.plan.eos[2], 9);
  assert_int_equal(parse_changed(V3, "bos_token_id", "null", &c), OK);
  assert_int_equal(c.plan.bos, UINT32_MAX);
}

static void dense_models_have_no_experts(void **state) {
  (void)state;
  model_config c = {0};
  assert_int_equal(parse_changed(V3, "first_k_dense_replace", "61", &c), OK);
  assert_int_equal(c.plan.experts, 0);
  assert_int_equal(c.plan.dense_layers, 61);
  assert_int_equal(parse_changed(V2, "n_routed_experts", "null", &c), OK);
  assert_int_equal(c.plan.dense_layers, 60);
}

static void missing_fields_are_named(void **state) {
  (void)state;
  static const char *const NAMES[] = {"model_type",
                                      "vocab_size",
                                      "hidden_size",
                                      "num_hidden_layers",
                                      "num_attention_heads",
                                      "q_lora_rank",
                                      "kv_lora_rank",
                                      "qk_nope_head_dim",
                                      "qk_rope_head_dim",
                                      "v_head_dim",
                                      "intermediate_size",
                                      "n_routed_experts",
                                      "num_experts_per_tok",
                                      "moe_intermediate_size",
                                      "max_position_embeddings",
                                      "rope_scaling.factor",
                                      "rope_scaling.original_max_position_embeddings"};
  for (size_t i = 0; i < ARRAY_LEN(NAMES); i++) {
    model_config c = {0};
    fixture_expect(parse_changed(V3, NAMES[i], NULL, &c), ERR_FORMAT, NAMES[i]);
    assert_non_null(strstr(fail_text(), "missing"));
  }
}

static void missing_fields_of_more_families_are_named(void **state) {
  (void)state;
  static const char *const SHAPE[] = {"model_type",   "vocab_size",       "hidden_size",      "num_hidden_layers", "num_attention_heads",
                                      "q_lora_rank",  "kv_lora_rank",     "qk_nope_head_dim", "qk_rope_head_dim",  "v_head_dim",
                                      "intermediate_size", "max_position_embeddings"};
  static const char *const EXPERTS[] = {"n_routed_experts", "num_experts_per_tok", "moe_intermediate_size"};
  static const char *const PATHS[] = {KIMI, GLM, YOUTU};
  for (size_t p = 0; p < ARRAY_LEN(PATHS); p++)
    for (size_t i = 0; i < ARRAY_LEN(SHAPE) + ARRAY_LEN(EXPERTS); i++) {
      model_config c = {0};
      const char *name = i < ARRAY_LEN(SHAPE) ? SHAPE[i] : EXPERTS[i - ARRAY_LEN(SHAPE)];
      if (i >= ARRAY_LEN(SHAPE) && strcmp(PATHS[p], YOUTU) == 0) continue;
      fixture_expect(parse_changed(PATHS[p], name, NULL, &c), ERR_FORMAT, name);
      assert_non_null(strstr(fail_text(), "missing"));
    }
}

/* Values that are invalid for the field. */
static const struct {
  const char *name, *value;
  status code;
} BAD[] = {
    {"model_type", "\"gemma2\"", ERR_UNSUPPORTED},
    {"model_type", "7", ERR_FORMAT},
    {"architectures", "[\"DeepseekV2ForCausalLM\"]", ERR_UNSUPPORTED},
    {"architectures", "[]", ERR_FORMAT},
    {"architectures", "\"x\"", ERR_FORMAT},
    {"vocab_size", "0", ERR_FORMAT},
    {"vocab_size", "262152", ERR_UNSUPPORTED},
    {"vocab_size", "129281", ERR_UNSUPPORTED},
    {"vocab_size", "1e5", ERR_FORMAT},
    {"vocab_size", "\"129280\"", ERR_FORMAT},
    {"vocab_size", "-8", ERR_FORMAT},
    {"hidden_size", "7169", ERR_UNSUPPORTED},
    {"hidden_size", "32768", ERR_UNSUPPORTED},
    {"hidden_size", "9223372036854775807", ERR_UNSUPPORTED},
    {"num_hidden_layers", "0", ERR_FORMAT},
    {"num_hidden_layers", "129", ERR_UNSUPPORTED},
    {"num_attention_heads", "257", ERR_UNSUPPORTED},
    {"num_key_value_heads", "8", ERR_UNSUPPORTED},
    {"q_lora_rank", "100", ERR_UNSUPPORTED},
    {"q_lora_rank", "0", ERR_FORMAT},
    {"kv_lora_rank", "500", ERR_UNSUPPORTED},
    {"kv_lora_rank", "768", ERR_UNSUPPORTED},
    {"qk_nope_head_dim", "96", ERR_UNSUPPORTED},
    {"qk_rope_head_dim", "48", ERR_UNSUPPORTED},
    {"qk_rope_head_dim", "128", ERR_UNSUPPORTED},
    {"v_head_dim", "12", ERR_UNSUPPORTED},
    {"qk_head_dim", "191", ERR_FORMAT},
    {"intermediate_size", "18433", ERR_UNSUPPORTED},
    {"moe_intermediate_size", "2000", ERR_UNSUPPORTED},
    {"n_routed_experts", "520", ERR_UNSUPPORTED},
    {"n_routed_experts", "255", ERR_UNSUPPORTED},
    {"n_routed_experts", "4", ERR_UNSUPPORTED},
    {"n_routed_experts", "0", ERR_FORMAT},
    {"n_routed_experts", "[]", ERR_FORMAT},
    {"num_experts_per_tok", "17", ERR_UNSUPPORTED},
    {"num_experts_per_tok", "0", ERR_FORMAT},
    {"n_shared_experts", "17", ERR_UNSUPPORTED},
    {"first_k_dense_replace", "-1", ERR_FORMAT},
    {"moe_layer_freq", "2", ERR_UNSUPPORTED},
    {"n_group", "7", ERR_FORMAT},
    {"n_group", "0", ERR_FORMAT},
    {"n_group", "256", ERR_UNSUPPORTED},
    {"topk_group", "9", ERR_FORMAT},
    {"topk_method", "\"greedy\"", ERR_UNSUPPORTED},
    {"scoring_func", "\"softmax\"", ERR_UNSUPPORTED},
    {"norm_topk_prob", "1", ERR_FORMAT},
    {"routed_scaling_factor", "0", ERR_FORMAT},
    {"routed_scaling_factor", "\"2\"", ERR_FORMAT},
    {"rms_norm_eps", "0", ERR_FORMAT},
    {"rms_norm_eps", "1", ERR_FORMAT},
    {"max_position_embeddings", "0", ERR_FORMAT},
    {"bos_token_id", "129280", ERR_FORMAT},
    {"eos_token_id", "-1", ERR_FORMAT},
    {"eos_token_id", "[1, \"2\"]", ERR_FORMAT},
    {"eos_token_id", "[1,2,3,4,5,6,7,8,9]", ERR_LIMIT},
    {"attention_bias", "true", ERR_UNSUPPORTED},
    {"mlp_bias", "true", ERR_UNSUPPORTED},
    {"hidden_act", "\"gelu\"", ERR_UNSUPPORTED},
    {"tie_word_embeddings", "1", ERR_FORMAT},
    {"partial_rotary_factor", "0.5", ERR_UNSUPPORTED},
    {"partial_rotary_factor", "\"1\"", ERR_FORMAT},
    {"rope_scaling.partial_rotary_factor", "0.25", ERR_UNSUPPORTED},
    {"mlp_layer_types", "[\"dense\"]", ERR_FORMAT},
    {"torch_dtype", "\"float16\"", ERR_UNSUPPORTED},
    {"dtype", "\"float32\"", ERR_UNSUPPORTED},
    {"quantization_config", "{\"quant_method\": \"awq\"}", ERR_UNSUPPORTED},
    {"quantization_config", "{\"quant_method\": \"fp8\"}", ERR_FORMAT},
    {"moe_router_dtype", "\"bfloat16\"", ERR_UNSUPPORTED},
    {"rope_interleave", "0", ERR_FORMAT},
    {"add_cross_attention", "true", ERR_UNSUPPORTED},
    {"pruned_heads", "{\"0\": [1]}", ERR_UNSUPPORTED},
    {"num_local_experts", "128", ERR_FORMAT},
    {"ep_size", "8", ERR_UNSUPPORTED},
    {"pretraining_tp", "2", ERR_UNSUPPORTED},
    {"rope_theta", "1", ERR_FORMAT},
    {"rope_theta", "[]", ERR_FORMAT},
    {"rope_scaling", "[]", ERR_FORMAT},
    {"rope_scaling.type", "\"longrope\"", ERR_UNSUPPORTED},
    {"rope_scaling.type", "3", ERR_FORMAT},
    {"rope_scaling.rope_type", "\"linear\"", ERR_FORMAT},
    {"rope_scaling.factor", "0.5", ERR_FORMAT},
    {"rope_scaling.beta_fast", "0.1", ERR_FORMAT},
    {"rope_scaling.beta_slow", "0", ERR_FORMAT},
    {"rope_scaling.mscale", "-1", ERR_FORMAT},
    {"rope_scaling.attention_factor", "0", ERR_FORMAT}, /* HF multiplies by it */
    {"rope_scaling.mscale_all_dim", "true", ERR_FORMAT},
    {"rope_scaling.rope_theta", "20000", ERR_FORMAT},
    {"rope_scaling.original_max_position_embeddings", "4096.5", ERR_FORMAT},
    {"rope_scaling.long_factor", "[1]", ERR_UNSUPPORTED},
    {"rope_scaling.llama_4_scaling_beta", "0.1", ERR_UNSUPPORTED},
    {"rope_scaling.truncate", "0", ERR_FORMAT},
    {"rope_parameters", "{}", ERR_FORMAT},
    {"index_topk", "2048", ERR_UNSUPPORTED},
    {"sliding_window", "4096", ERR_UNSUPPORTED},
    {"use_sliding_window", "true", ERR_UNSUPPORTED},
    {"per_layer_config", "{\"1\": {\"skip\": [\"mlp\"]}}", ERR_UNSUPPORTED},
    {"scale_emb", "12", ERR_UNSUPPORTED},
    {"text_config", "{}", ERR_UNSUPPORTED},
};

static void bad_values_are_named(void **state) {
  (void)state;
  for (size_t i = 0; i < ARRAY_LEN(BAD); i++) {
    model_config c = {.max_position = 12345};
    const char *dot = strchr(BAD[i].name, '.');
    fixture_expect(parse_changed(V3, BAD[i].name, BAD[i].value, &c), BAD[i].code, dot ? dot + 1 : BAD[i].name);
    assert_int_equal(c.max_position, 12345); /* outputs are untouched on error */
  }
}

static const struct {
  const char *path, *name, *value, *words;
  status code;
} BAD_OF_FAMILY[] = {
    {KIMI, "architectures", "[\"KimiK2ForCausalLM\"]", "DeepseekV3ForCausalLM", ERR_UNSUPPORTED},
    {KIMI, "quantization_config", "{\"quant_method\": \"compressed-tensors\"}", "quantization_config", ERR_UNSUPPORTED},
    {V2, "quantization_config", "{\"quant_method\": \"fp8\"}", "quantization_config", ERR_UNSUPPORTED},
    {KIMI, "q_lora_scale", "2.0", "q_lora_scale", ERR_UNSUPPORTED},
    {GLM, "architectures", "[\"DeepseekV3ForCausalLM\"]", "Glm4MoeLiteForCausalLM", ERR_UNSUPPORTED},
    {GLM, "attention_bias", "true", "attention_bias", ERR_UNSUPPORTED},
    {V2, "rope_interleave", "false", "rope_interleave", ERR_UNSUPPORTED},
    {GLM, "rope_parameters.partial_rotary_factor", "0.5", "partial_rotary_factor", ERR_UNSUPPORTED},
    {GLM, "rope_parameters.rope_type", "\"longrope\"", "original_max_position_embeddings\" is missing", ERR_FORMAT},
    {GLM, "rope_parameters.rope_type", "\"llama3\"", "llama3", ERR_UNSUPPORTED},
    {GLM, "rope_parameters.factor", "4", "factor", ERR_UNSUPPORTED},
    {GLM, "rope_parameters.llama_4_scaling_beta", "0.1", "llama_4_scaling_beta", ERR_UNSUPPORTED},
    {GLM, "topk_method", "\"greedy\"", "topk_method", ERR_UNSUPPORTED},
    {GLM, "eos_token_id", "[154880]", "eos_token_id", ERR_FORMAT},
    {GLM, "index_topk", "2048", "index_topk", ERR_UNSUPPORTED},
    {YOUTU, "architectures", "[\"DeepseekV3ForCausalLM\"]", "YoutuForCausalLM", ERR_UNSUPPORTED},
    {YOUTU, "n_routed_experts", "64", "n_routed_experts", ERR_UNSUPPORTED},
    {YOUTU, "mlp_bias", "true", "mlp_bias", ERR_UNSUPPORTED},
    {YOUTU, "scale_emb", "12", "scale_emb", ERR_UNSUPPORTED},
    {YOUTU, "tie_word_embeddings", "\"yes\"", "tie_word_embeddings", ERR_FORMAT},
    {YOUTU, "model_type", "\"youtu_vl\"", "youtu_vl", ERR_UNSUPPORTED},
    {MINICPM, "scale_emb", "null", "scale_emb", ERR_FORMAT},
    {MINICPM, "scale_emb", "0", "scale_emb", ERR_FORMAT},
    {MINICPM, "scale_depth", "\"1.4\"", "scale_depth", ERR_FORMAT},
    {MINICPM, "dim_model_base", "0", "dim_model_base", ERR_FORMAT},
    {MINICPM, "num_attention_heads", "20", "num_key_value_heads", ERR_UNSUPPORTED},
    {MINICPM, "num_attention_heads", "39", "v_head_dim\" is missing", ERR_FORMAT},
    {MINICPM, "n_routed_experts", "64", "n_routed_experts", ERR_UNSUPPORTED},
    {MINICPM, "num_local_experts", "64", "num_local_experts", ERR_UNSUPPORTED},
    {MINICPM, "mlp_bias", "true", "mlp_bias", ERR_UNSUPPORTED},
    {MISTRAL, "quantization_config", "{\"quant_method\": \"fp8\"}", "\"quantization_config", ERR_UNSUPPORTED},
    {MISTRAL, "text_config.quantization_config", "{\"quant_method\": \"fp8\"}", "text_config.quantization_config", ERR_UNSUPPORTED},
    {MISTRAL, "dtype", "\"float16\"", "dtype", ERR_UNSUPPORTED},
    {MISTRAL, "text_config.torch_dtype", "\"float16\"", "text_config.torch_dtype", ERR_UNSUPPORTED},
    {MISTRAL, "image_scale", "2", "image_scale", ERR_UNSUPPORTED},
    {MISTRAL, "text_config.image_token_index", "10", "text_config.image_token_index", ERR_UNSUPPORTED},
    {MISTRAL, "text_config.text_config", "{}", "text_config.text_config", ERR_UNSUPPORTED},
    {MISTRAL, "text_config.model_type", "\"gemma3_text\"", "text_config.model_type", ERR_UNSUPPORTED},
    {MISTRAL, "text_config.model_type", NULL, "text_config.model_type\" is missing", ERR_FORMAT},
    {MISTRAL, "text_config.sliding_window", "4096", "text_config.sliding_window", ERR_UNSUPPORTED},
    {MISTRAL, "text_config.topk_method", "\"greedy\"", "topk_method", ERR_UNSUPPORTED},
    {MISTRAL, "text_config.scoring_func", "\"sigmoid\"", "scoring_func", ERR_UNSUPPORTED},
    {MISTRAL, "text_config.num_local_experts", "64", "num_local_experts", ERR_FORMAT},
    {MISTRAL, "text_config", "[]", "mistral3", ERR_UNSUPPORTED},
    {MISTRAL, "tie_word_embeddings", "1", "tie_word_embeddings", ERR_FORMAT},
};

static void bad_values_of_more_families_are_named(void **state) {
  (void)state;
  for (size_t i = 0; i < ARRAY_LEN(BAD_OF_FAMILY); i++) {
    model_config c = {.max_position = 12345};
    fixture_expect(parse_changed(BAD_OF_FAMILY[i].path, BAD_OF_FAMILY[i].name, BAD_OF_FAMILY[i].value, &c), BAD_OF_FAMILY[i].code,
                   BAD_OF_FAMILY[i].words);
    assert_int_equal(c.max_position, 12345);
  }
}

static void damaged_text_is_an_error(void **state) {
  (void)state;
  model_config c = {0};
  fixture_bytes text = fixture_read(TINY);
  while (text.count > 0 && strchr(" \n}", text.bytes[text.count - 1])) text.count--; /* up to the last token */
  for (size_t bytes = 0; bytes < text.count; bytes++) assert_int_not_equal(parse_text(text.bytes, bytes, &c), OK);
  text.bytes[20] = 0;
  assert_int_not_equal(parse_text(text.bytes, text.count, &c), OK);
  free(text.bytes);
  static const char TWICE[] = "{\"model_type\": \"deepseek_v3\", \"model_type\": \"deepseek_v3\"}";
  fixture_expect(parse_text(TWICE, sizeof TWICE - 1, &c), ERR_FORMAT, "model_type");
  fixture_expect(parse_text("[1]", 3, &c), ERR_FORMAT, "object");
  size_t deep = 200000;
  char *nested = malloc(deep);
  assert_non_null(nested);
  memset(nested, '[', deep);
  assert_int_equal(parse_text(nested, deep, &c), ERR_FORMAT);
  free(nested);
  char *large = calloc(1, FILE_CONFIG_BYTES_MAX + 1u);
  assert_non_null(large);
  fixture_expect(parse_text(large, FILE_CONFIG_BYTES_MAX + 1u, &c), ERR_LIMIT, "at most");
  free(large);
}

static void every_bit_flip_is_read_or_refused(void **state) {
  (void)state;
  fixture_bytes text = fixture_read(TINY);
  uint32_t refused = 0;
  for (size_t i = 0; i < text.count; i++)
    for (int bit = 0; bit < 8; bit++) {
      model_config c = {0};
      text.bytes[i] = (char)(text.bytes[i] ^ (1 << bit));
      refused += parse_text(text.bytes, text.count, &c) != OK;
      text.bytes[i] = (char)(text.bytes[i] ^ (1 << bit));
    }
  assert_true(refused > 1000);
  free(text.bytes);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(real_models_are_read),
      cmocka_unit_test(more_families_are_read),
      cmocka_unit_test(minicpm3_is_read),
      cmocka_unit_test(mistral4_is_read),
      cmocka_unit_test(nesting_changes_nothing),
      cmocka_unit_test(outer_fields_go_before_or_must_agree),
      cmocka_unit_test(kimi_k2_is_deepseek_v3),
      cmocka_unit_test(absent_fields_follow_the_family),
      cmocka_unit_test(dense_layers_may_be_listed),
      cmocka_unit_test(language_config_is_text_config),
      cmocka_unit_test(byte_order_mark_is_skipped),
      cmocka_unit_test(v2_scales_only_without_normalising),
      cmocka_unit_test(one_expert_is_weighted_as_by_the_references),
      cmocka_unit_test(absent_fields_take_hf_defaults_and_say_so),
      cmocka_unit_test(bookkeeping_is_passed_over),
      cmocka_unit_test(eos_may_be_a_list),
      cmocka_unit_test(dense_models_have_no_experts),
      cmocka_unit_test(missing_fields_are_named),
      cmocka_unit_test(missing_fields_of_more_families_are_named),
      cmocka_unit_test(bad_values_are_named),
      cmocka_unit_test(bad_values_of_more_families_are_named),
      cmocka_unit_test(damaged_text_is_an_error),
      cmocka_unit_test(every_bit_flip_is_read_or_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

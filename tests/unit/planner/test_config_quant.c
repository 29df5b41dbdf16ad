/* test_config_quant.c - config.json of models with sparse attention and e4m3 weights: real ones are read correctly, every wrong field is
 * refused by name, and modules are excluded by the same name matching as HF's. */
#include "tests/unit/unit.h"
#include "kernels_src/abi.h"
#include "planner/model_config.h"
#include "config_fixture.h"

#define FP8(more) "{\"quant_method\": \"fp8\", \"weight_block_size\": [128, 128]" more "}"
#define KEPT(names) FP8(", \"modules_to_not_convert\": [" names "]")

static bool is_e4m3(const model_config *c, uint32_t layer, enum config_product product) {
  return config_quant_is_e4m3(&c->products, &c->quant, layer, product);
}

/* === Sparse attention =================================================================================================== */

static void deepseek_v32_is_read(void **state) {
  (void)state;
  model_config c = parse_file(V32);
  plan_model v3 = parse_file(V3).plan;
  assert_memory_equal(&c.plan, &v3, sizeof v3); /* everything else is DeepSeek-V3's */
  assert_int_equal(c.quant.index_heads, 64);
  assert_int_equal(c.quant.index_topk, 2048);
  assert_int_equal(c.quant.index_half_split, 1);
  assert_int_equal(c.quant.index_scale, SCALE_POW2);
  assert_int_equal(c.quant.index_shared[0] | c.quant.index_shared[1], 0);
  assert_int_equal(c.quant.weight_format, WEIGHTS_E4M3);
  assert_int_equal(c.quant.act_scale, SCALE_POW2);
  assert_int_equal(c.quant.kv_format, KV_BF16);
  assert_string_equal(c.notes.chosen, "");
  assert_int_equal(parse_changed(V32, "indexer_rope_interleave", "true", &c), OK);
  assert_int_equal(c.quant.index_half_split, 0);
  assert_non_null(strstr(c.notes.chosen, "indexer_rope_interleave true rotates pairs of neighbours"));
  assert_int_equal(parse_changed(V32, "indexer_rope_interleave", "false", &c), OK);
  assert_string_equal(c.notes.chosen, "");
  assert_int_equal(parse_changed(V32, "quantization_config", NULL, &c), OK);
  assert_int_equal(c.quant.weight_format, WEIGHTS_BF16);
  assert_int_equal(c.quant.act_scale, SCALE_F32);
  assert_int_equal(c.quant.index_scale, SCALE_POW2);
}

static void glm5_is_read(void **state) {
  (void)state;
  model_config c = parse_file(GLM5);
  assert_int_equal(c.plan.layers, 78);
  assert_int_equal(c.plan.nope_dim, 192);
  assert_int_equal(c.plan.group_mode, ROUTER_GROUP_NONE);
  assert_true(c.plan.norm_eps == 1e-5f);
  assert_int_equal(c.plan.rope_half_split, 0);
  assert_int_equal(c.quant.index_heads, 32);
  assert_int_equal(c.quant.index_half_split, 0);
  assert_int_equal(c.quant.weight_format, WEIGHTS_BF16);
  for (uint32_t i = 0; i < 78; i++) assert_true(plan_has_indexer(&c.quant, i));
  assert_int_equal(parse_changed(GLM5, "indexer_rope_interleave", NULL, &c), OK);
  assert_int_equal(c.quant.index_half_split, 0);
  assert_int_equal(parse_changed(GLM5, "indexer_rope_interleave", "false", &c), OK);
  assert_int_equal(c.quant.index_half_split, 1);
  assert_non_null(strstr(c.notes.chosen, "HF's class of this model_type always rotates pairs of neighbours"));
}

/* Layers 0, 1, 2, 6, 10, ..., 74, the ones that have indexers in the files of GLM-5.2. */
static void glm52_shares_lists(void **state) {
  (void)state;
  model_config c = parse_file(GLM52), other = {0};
  uint32_t count = 0;
  for (uint32_t i = 0; i < 78; i++) {
    assert_int_equal(plan_has_indexer(&c.quant, i), i < 3 || i % 4 == 2);
    count += plan_has_indexer(&c.quant, i) != 0;
  }
  assert_int_equal(count, 21);
  assert_int_equal(parse_changed(GLM52, "indexer_types", NULL, &other), OK); /* by frequency only */
  assert_memory_equal(&other.quant, &c.quant, sizeof c.quant);
  fixture_expect(parse_changed(GLM52, "index_topk_freq", "3", &other), ERR_UNSUPPORTED, "name different layers");
  fixture_expect(parse_changed(GLM52, "index_skip_topk_offset", "2", &other), ERR_UNSUPPORTED, "name different layers");
  assert_int_equal(parse_changed(GLM52, "index_topk_freq", NULL, &other), OK); /* by the list only */
  assert_memory_equal(&other.quant, &c.quant, sizeof c.quant);
  assert_non_null(strstr(c.notes.ignored, "index_share_for_mtp_iteration"));
}

/* A config of `layers` layers, with three fields of sharing; null: the field is absent. */
static status parse_shared(uint32_t layers, const char *types, const char *pattern, const char *every, const char *offset,
                           model_config *c) {
  const char *const names[] = {"indexer_types", "index_topk_pattern", "index_topk_freq", "index_skip_topk_offset"};
  const char *const values[] = {types, pattern, every, offset};
  fixture_bytes text = fixture_read(GLM5);
  json_t *root = json_loadb(text.bytes, text.count, 0, NULL);
  json_object_set_new(root, "num_hidden_layers", json_integer(layers));
  for (size_t i = 0; i < 4; i++)
    if (values[i]) json_object_set_new(root, names[i], json_loads(values[i], JSON_DECODE_ANY, NULL));
  char *changed = json_dumps(root, 0);
  status result = parse_text(changed, strlen(changed), c);
  free(changed);
  free(text.bytes);
  json_decref(root);
  return result;
}

static void sharing_is_said_in_three_ways(void **state) {
  (void)state;
  model_config c = {0};
  static const struct {
    const char *types, *pattern, *every, *offset;
    uint32_t shared; /* bits of six layers */
  } GOOD[] = {
    {NULL, NULL, NULL, NULL, 0}, {NULL, NULL, "1", NULL, 0}, {NULL, NULL, "1", "3", 0}, {NULL, NULL, "2", NULL, 0x14},
    {NULL, NULL, "2", "2", 0x14}, {NULL, NULL, "3", "1", 0x36}, {NULL, NULL, "4", "3", 0x38}, {NULL, "\"FSSFSF\"", NULL, NULL, 0x16},
    {NULL, "\"FSSFSFF\"", NULL, NULL, 0x16}, /* and a layer of next-token prediction */
    {NULL, "[\"full\", \"shared\", \"full\", \"full\", \"full\", \"shared\"]", NULL, NULL, 0x22},
    {"[\"full\", \"shared\", \"full\", \"full\", \"full\", \"shared\"]", "\"FSFFFS\"", NULL, NULL, 0x22},
    {NULL, NULL, NULL, "5", 0},
  };
  for (size_t i = 0; i < ARRAY_LEN(GOOD); i++) {
    status result = parse_shared(6, GOOD[i].types, GOOD[i].pattern, GOOD[i].every, GOOD[i].offset, &c);
    if (result != OK || c.quant.index_shared[0] != GOOD[i].shared || c.quant.index_shared[1] != 0)
      fail_msg("case %zu: expected %x, found %llx, \"%s\"", i, GOOD[i].shared, (unsigned long long)c.quant.index_shared[0], fail_text());
  }
  assert_int_equal(parse_shared(70, NULL, NULL, "69", "1", &c), OK);
  assert_true(c.quant.index_shared[0] == ~UINT64_C(1) && c.quant.index_shared[1] == 0x1f); /* layer 69 has its own again */
  fixture_expect(parse_shared(6, NULL, "\"FSSF\"", NULL, NULL, &c), ERR_FORMAT, "index_topk_pattern");
  fixture_expect(parse_shared(6, NULL, "\"SFFFFF\"", NULL, NULL, &c), ERR_FORMAT, "index_topk_pattern\": the first layer has nothing");
  fixture_expect(parse_shared(6, NULL, "\"FXFFFF\"", NULL, NULL, &c), ERR_UNSUPPORTED, "\"X\" at layer 1");
  fixture_expect(parse_shared(6, NULL, NULL, "2", "0", &c), ERR_FORMAT, "index_topk_freq\": the first layer has nothing");
  fixture_expect(parse_shared(6, NULL, NULL, "0", NULL, &c), ERR_FORMAT, "index_topk_freq");
  fixture_expect(parse_shared(6, "[\"full\"]", NULL, NULL, NULL, &c), ERR_FORMAT, "indexer_types");
  fixture_expect(parse_shared(6, "3", NULL, NULL, NULL, &c), ERR_FORMAT, "indexer_types");
  fixture_expect(parse_shared(6, "[1, 2, 3, 4, 5, 6]", NULL, NULL, NULL, &c), ERR_FORMAT, "found an integer");
  fixture_expect(parse_shared(6, "[\"full\", \"half\", \"full\", \"full\", \"full\", \"full\"]", NULL, NULL, NULL, &c), ERR_UNSUPPORTED,
                 "\"half\" at layer 1");
  fixture_expect(parse_shared(6, NULL, "\"FSSFSF\"", "2", NULL, &c), ERR_UNSUPPORTED, "name different layers");
}

static void bad_index_fields_are_named(void **state) {
  (void)state;
  static const bad_field BAD[] = {
    {V32, "index_n_heads", "48", "index_n_heads", ERR_UNSUPPORTED},
    {V32, "index_n_heads", "8", "16, 32 and 64", ERR_UNSUPPORTED},
    {V32, "index_n_heads", "0", "index_n_heads", ERR_FORMAT},
    {V32, "index_head_dim", "64", "index_head_dim", ERR_UNSUPPORTED},
    {V32, "index_topk", "4096", "index_topk", ERR_UNSUPPORTED},
    {V32, "index_topk", "100", "index_topk", ERR_UNSUPPORTED},
    {V32, "indexer_rope_interleave", "1", "indexer_rope_interleave", ERR_FORMAT},
    {V32, "q_lora_rank", "null", "q_lora_rank", ERR_UNSUPPORTED},
    {V32, "indexer_types", "[]", "indexer_types", ERR_UNSUPPORTED}, /* GLM's */
    {V32, "layer_types", "[\"full_attention\"]", "layer_types", ERR_UNSUPPORTED},
    {V32, "layer_types", "3", "layer_types", ERR_FORMAT},
    {V32, "rope_interleave", "false", "rope_interleave", ERR_UNSUPPORTED},
    {V32, "architectures", "[\"DeepseekV3ForCausalLM\"]", "DeepseekV32ForCausalLM", ERR_UNSUPPORTED},
    {GLM5, "index_kpool", "4", "index_kpool", ERR_UNSUPPORTED},
    {GLM5, "layer_types", "[\"linear_attention\"]", "layer_types", ERR_UNSUPPORTED},
    {GLM5, "moe_router_dtype", "\"bfloat16\"", "moe_router_dtype", ERR_UNSUPPORTED},
    {V3, "layer_types", "[\"indexed_attention\"]", "layer_types", ERR_UNSUPPORTED},
  };
  expect_refusals(BAD, ARRAY_LEN(BAD));
  model_config c = {0};
  assert_int_equal(parse_changed(GLM5, "layer_types", "[\"indexed_attention\", \"deepseek_sparse_attention\"]", &c), OK);
  assert_int_equal(parse_changed(GLM5, "index_topk", NULL, &c), OK);
  assert_non_null(strstr(c.notes.assumed, "index_topk = 2048"));
  assert_int_equal(parse_changed(GLM5, "first_k_dense_replace", NULL, &c), OK);
  assert_int_equal(c.plan.dense_layers, 3);
}

/* === e4m3 weights ======================================================================================================= */

static void e4m3_models_are_read(void **state) {
  (void)state;
  model_config c = {0};
  static const char *const PATHS[] = {V3, KIMI, V32, GLM5};
  for (size_t i = 0; i < ARRAY_LEN(PATHS); i++) {
    const char *format = FP8(", \"fmt\": \"e4m3\", \"activation_scheme\": \"dynamic\"");
    assert_int_equal(parse_changed(PATHS[i], "quantization_config", format, &c), OK);
    assert_int_equal(c.quant.weight_format, WEIGHTS_E4M3);
    assert_int_equal(c.quant.act_scale, SCALE_F32);
    for (enum config_product p = 0; p < PRODUCT_COUNT; p++) assert_true(is_e4m3(&c, 0, p));
  }
  c = parse_file(GLM52); /* names modules that are none of our products, and weights_proj */
  for (enum config_product p = 0; p < PRODUCT_COUNT; p++)
    for (uint32_t i = 0; i < c.plan.layers; i++) assert_true(is_e4m3(&c, i, p));
  c = parse_file(V3);
  assert_false(is_e4m3(&c, 0, PRODUCT_O));
}

static void modules_are_kept_by_name(void **state) {
  (void)state;
  model_config c = {0};
  assert_int_equal(parse_changed(V3, "quantization_config", KEPT("\"model.layers.1\", \"kv_b_proj\", \"model.layers.5.mlp\", "
                   "\"layers.7.self_attn.o_proj\", \"lm_head\", \"model.layers.8.self_attn.o_pro\", \"model.layers.61\", "
                   "\"self_attn.q_b_proj.weight\", \"model.layers.9.mlp.shared_experts.\""), &c), OK);
  for (enum config_product p = 0; p < PRODUCT_COUNT; p++) {
    bool is_there = p != PRODUCT_INDEX_Q && p != PRODUCT_INDEX_K && p < PRODUCT_SHARED_GATE_UP;
    assert_int_equal(is_e4m3(&c, 1, p), !is_there);                            /* all that is in layer 1 ... */
    assert_int_equal(is_e4m3(&c, 11, p), p != PRODUCT_KV_B);                   /* ... and not in 11 */
  }
  assert_false(is_e4m3(&c, 5, PRODUCT_EXPERTS));
  assert_false(is_e4m3(&c, 5, PRODUCT_SHARED_DOWN));
  assert_true(is_e4m3(&c, 5, PRODUCT_O));
  assert_false(is_e4m3(&c, 7, PRODUCT_O)); /* matched by its end */
  assert_true(is_e4m3(&c, 8, PRODUCT_O));  /* the beginning of a name matches no module */
  assert_true(is_e4m3(&c, 8, PRODUCT_Q_B));
  assert_false(is_e4m3(&c, 9, PRODUCT_SHARED_GATE_UP));
  assert_true(is_e4m3(&c, 9, PRODUCT_EXPERTS));
  assert_int_equal(parse_changed(V3, "quantization_config", FP8(", \"ignored_layers\": [\"o_proj\"]"), &c), OK);
  assert_false(is_e4m3(&c, 60, PRODUCT_O));
  assert_true(is_e4m3(&c, 60, PRODUCT_DOWN));
  assert_int_equal(parse_changed(V32, "quantization_config", KEPT("\"indexer\", \"indexer.wk\""), &c), OK);
  assert_true(is_e4m3(&c, 0, PRODUCT_INDEX_Q));
  assert_false(is_e4m3(&c, 0, PRODUCT_INDEX_K));
}

static void bad_formats_are_named(void **state) {
  (void)state;
  static const struct {
    const char *path, *value, *words;
    status code;
  } BAD[] = {
    {V3, "3", "expected an object", ERR_FORMAT},
    {V3, "{}", "quant_method\" is missing", ERR_FORMAT},
    {V3, "{\"quant_method\": \"compressed-tensors\", \"config_groups\": {}}", "quant_method", ERR_UNSUPPORTED},
    {V3, "{\"quant_method\": \"fp8\"}", "weight_block_size\" is missing", ERR_FORMAT},
    {V3, "{\"quant_method\": \"fp8\", \"weight_block_size\": [64, 128]}", "[64, 128]", ERR_UNSUPPORTED},
    {V3, "{\"quant_method\": \"fp8\", \"weight_block_size\": [128]}", "weight_block_size", ERR_FORMAT},
    {V3, FP8(", \"fmt\": \"e5m2\""), "fmt", ERR_UNSUPPORTED},
    {V3, FP8(", \"activation_scheme\": \"static\""), "activation_scheme", ERR_UNSUPPORTED},
    {V3, FP8(", \"scale_fmt\": \"e5m3\""), "scale_fmt", ERR_UNSUPPORTED},
    {V3, FP8(", \"expert_dtype\": \"fp4\""), "expert_dtype", ERR_UNSUPPORTED},
    {V3, FP8(", \"kv_cache_scheme\": \"fp8\""), "kv_cache_scheme", ERR_UNSUPPORTED},
    {V3, FP8(", \"modules_to_convert\": [\"lm_head\"]"), "modules_to_convert", ERR_UNSUPPORTED},
    {V3, FP8(", \"modules_to_not_convert\": \"lm_head\""), "modules_to_not_convert", ERR_FORMAT},
    {V3, KEPT("1"), "found an integer", ERR_FORMAT},
    {V3, KEPT("\"\""), "modules_to_not_convert", ERR_FORMAT},
    {V3, KEPT("\"re:.*gate\""), "is a pattern", ERR_UNSUPPORTED},
    {V3, FP8(", \"modules_to_not_convert\": [], \"ignored_layers\": [\"lm_head\"]"), "differ", ERR_FORMAT},
    {V3, KEPT("\"model.layers.4.self_attn.q_a_proj\""), "in layer 4 self_attn.kv_a_proj_with_mqa is converted", ERR_UNSUPPORTED},
    {V3, KEPT("\"mlp.up_proj\""), "in layer 0 mlp.gate_proj is converted and mlp.up_proj is not", ERR_UNSUPPORTED},
    {V3, KEPT("\"shared_experts.gate_proj\""), "in layer 3 mlp.shared_experts.up_proj is converted", ERR_UNSUPPORTED},
    {V2_LITE, FP8(""), "of this kind of model", ERR_UNSUPPORTED},
    {GLM, FP8(""), "of this kind of model", ERR_UNSUPPORTED},
  };
  model_config c = {0};
  for (size_t i = 0; i < ARRAY_LEN(BAD); i++)
    fixture_expect(parse_changed(BAD[i].path, "quantization_config", BAD[i].value, &c), BAD[i].code, BAD[i].words);
}

/* A product that cannot be computed in e4m3 is refused, unless it is excluded from quantization. */
static void shapes_are_multiples_of_a_block(void **state) {
  (void)state;
  model_config c = {0};
  fixture_expect(parse_changed(V32, "hidden_size", "7104", &c), ERR_UNSUPPORTED, "self_attn.q_a_proj has 7104 columns");
  fixture_expect(parse_changed(V32, "q_lora_rank", "1472", &c), ERR_UNSUPPORTED, "self_attn.q_a_proj has 1472 rows");
  fixture_expect(parse_changed(V32, "intermediate_size", "18496", &c), ERR_UNSUPPORTED, "mlp.gate_proj has 18496 rows");
  fixture_expect(parse_changed(V32, "moe_intermediate_size", "2112", &c), ERR_UNSUPPORTED, "2112 rows");
  fixture_expect(parse_changed(V32, "v_head_dim", "72", &c), OK, NULL); /* 128 heads: o_proj has 9216 columns */
  assert_int_equal(parse_changed(V32, "moe_intermediate_size", "2112", &c), ERR_UNSUPPORTED);
  assert_int_equal(parse_changed(V32, "quantization_config", KEPT("\"model.layers\""), &c), OK);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(deepseek_v32_is_read), cmocka_unit_test(glm5_is_read), cmocka_unit_test(glm52_shares_lists),
    cmocka_unit_test(sharing_is_said_in_three_ways), cmocka_unit_test(bad_index_fields_are_named),
    cmocka_unit_test(e4m3_models_are_read), cmocka_unit_test(modules_are_kept_by_name), cmocka_unit_test(bad_formats_are_named),
    cmocka_unit_test(shapes_are_multiples_of_a_block),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

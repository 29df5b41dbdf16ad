/* model_config.c - reads config.json with jansson; see model_config.h. Here are the families with latent attention, and models inside
 * another model; config_grouped.c has the families with grouped-query attention.
 *
 * Tables list every field with its treatment: read below, required to have a fixed value, or without influence on inference. A field
 * outside the tables is refused. config_common.c reads sizes and tokens, config_experts.c experts, config_rope.c positions, config_index.c
 * the indexer, config_quant.c formats. */
#include "model_config.h"
#include "engine/base/json_text.h"
#include <math.h>
#include <string.h>
#include "config_common.h"
#include "config_experts.h"
#include "config_grouped.h"
#include "config_index.h"
#include "config_rope.h"

#define EXPERTS_OF_V3 \
  {CONFIG_ROUTER_V3, .is_deepseek = true, .dense_layers = 3, .shared_experts = 1, .groups = 8, .top_groups = 4, .routed_scale = 2.5}

typedef struct family { /* what a model_type decides, and HF's values for absent fields; -1: required */
  const char *model_type, *architecture;
  bool is_tied;        /* the head is the embedding by default */
  bool may_be_e4m3;    /* published in this format */
  bool may_predict;    /* published with prediction layers that make drafts */
  bool is_scaled;      /* scale_emb, scale_depth and dim_model_base are read; v_head_dim follows from the hidden size */
  config_experts_rules experts;
  config_rope_rules rope;
  config_index_rules index;
  double norm_eps;
} family;

static const family FAMILIES[] = {
    {.model_type = "deepseek_v2", .architecture = "DeepseekV2ForCausalLM", .norm_eps = 1e-6, .rope = {.pairs = CONFIG_ROPE_NEIGHBOURS},
     .experts = {CONFIG_ROUTER_V2, .is_deepseek = true, .shared_experts = 2, .groups = -1, .top_groups = -1, .routed_scale = 1}},
    {.model_type = "deepseek_v3", .architecture = "DeepseekV3ForCausalLM", .norm_eps = 1e-6, .may_be_e4m3 = true, .may_predict = true,
     .experts = EXPERTS_OF_V3},
    {.model_type = "kimi_k2", .architecture = "DeepseekV3ForCausalLM", .norm_eps = 1e-6, .may_be_e4m3 = true, .may_predict = true,
     .experts = EXPERTS_OF_V3},
    {.model_type = "deepseek_v32", .architecture = "DeepseekV32ForCausalLM", .norm_eps = 1e-6, .may_be_e4m3 = true, .may_predict = true,
     .rope = {.pairs = CONFIG_ROPE_NEIGHBOURS}, .index = {.heads = 64, .are_halves = true},
     .experts = {CONFIG_ROUTER_V3, .may_list = true, .is_deepseek = true, .dense_layers = 3, .shared_experts = 1, .groups = 8,
                 .top_groups = 4, .routed_scale = 2.5}},
    {.model_type = "glm_moe_dsa", .architecture = "GlmMoeDsaForCausalLM", .norm_eps = 1e-5, .may_be_e4m3 = true, .may_predict = true,
     .rope = {.pairs = CONFIG_ROPE_NEIGHBOURS}, .index = {.heads = 32, .may_share = true},
     .experts = {CONFIG_ROUTER_V3, .may_list = true, .dense_layers = 3, .shared_experts = 1, .groups = 1, .top_groups = 1,
                 .routed_scale = 2.5}},
    {.model_type = "glm4_moe_lite", .architecture = "Glm4MoeLiteForCausalLM", .norm_eps = 1e-5, .may_predict = true,
     .experts = {CONFIG_ROUTER_V3, .is_layer_typed = true, .may_list = true, .dense_layers = 1, .shared_experts = 1, .groups = 1,
                 .top_groups = 1, .routed_scale = 1.8}},
    {.model_type = "youtu", .architecture = "YoutuForCausalLM", .norm_eps = 1e-6, .is_tied = true,
     .experts = {CONFIG_ROUTER_V3, .is_dense = true}},
    {.model_type = "minicpm3", .architecture = "MiniCPM3ForCausalLM", .norm_eps = 1e-5, .is_tied = true, .is_scaled = true,
     .rope = {.pairs = CONFIG_ROPE_HALVES}, .experts = {CONFIG_ROUTER_V3, .is_dense = true}},
    {.model_type = "mistral4", .architecture = "Mistral4ForCausalLM", .norm_eps = 1e-6,
     .rope = {.is_share_of_head = true, .has_q_scale = true},
     .experts = {CONFIG_ROUTER_MISTRAL, .shared_experts = 1, .groups = 1, .top_groups = 1, .routed_scale = 1}},
};

/* The fields that hold a model's text model inside another model. */
static const char *const NESTED[] = {"text_config", "language_config"};

typedef struct model_reader {
  config_reader fields;
  const family *family;
  model_config *config;
} model_reader;

/* === Fields ============================================================================================================= */

/* head_dim is derived by HF itself. */
static const char *const FIELDS_READ[] = {"q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim",
                                          "qk_head_dim", "rope_interleave", "pretraining_tp"};

static const char *const FIELDS_OF_SCALES[] = {"scale_emb", "scale_depth", "dim_model_base"};

/* Fields of a model that contains another one for its text: images, sound and their encoders. */
static const char *const OUTER_FIELDS_IGNORED[] = {
    "audio_config", "audio_token_id", "candidate_resolutions", "global_view_pos", "ignore_index", "image_token_id", "image_token_index",
    "media_placeholder_token_id", "multimodal_projector_bias", "projection_hidden_size", "projection_layer_norm_eps", "projector_config",
    "projector_hidden_act", "projector_hidden_size", "projector_ln_eps", "spatial_merge_size", "tile_tag", "use_unified_vision_chunk",
    "video_placeholder", "video_token_id", "vision_config", "vision_end_token_id", "vision_feature_layer", "vision_start_token_id",
};

#define IS_AMONG(name, list) config_field_is_among((name), (list), ARRAY_LEN(list))

static bool is_ignored(const char *name) { return config_common_ignores(name) || strcmp(name, "head_dim") == 0; }

static status check_names(const model_reader *r) {
  const char *name;
  json_t *value;
  json_object_foreach((json_t *)r->fields.object, name, value) {
    if (config_common_knows(name) || IS_AMONG(name, FIELDS_READ) || (r->family->is_scaled && IS_AMONG(name, FIELDS_OF_SCALES))) continue;
    if (config_experts_knows(&r->family->experts, name) || config_index_knows(&r->family->index, name)) continue;
    if (!is_ignored(name)) return config_common_refuse(&r->fields, name);
    config_common_note_ignored(&r->fields, name, value);
  }
  return OK;
}

/* === Groups of fields =================================================================================================== */

static const family *find_family(const char *type) {
  for (size_t i = 0; i < ARRAY_LEN(FAMILIES); i++)
    if (strcmp(type, FAMILIES[i].model_type) == 0) return &FAMILIES[i];
  return NULL;
}

/* Fields that must have the single value that latent attention implements. */
static status require_fixed(const config_reader *r) {
  uint32_t one = 0;
  TRY(config_common_require_fixed(r));
  TRY(config_field_require_flag(r, "attention_bias", false));
  TRY(config_field_require_flag(r, "mlp_bias", false));
  TRY(config_field_require_flag(r, "use_sliding_window", false));
  TRY(config_field_require_absent(r, "sliding_window"));
  if (config_field_find(r, "pretraining_tp")) TRY(config_field_count(r, "pretraining_tp", 1, 1, 1, 1, &one));
  return OK;
}

/* Fields that follow from others: if present, they must agree. */
static status check_derived(const config_reader *r, const plan_model *m) {
  uint32_t same = 0;
  if (config_field_find(r, "num_key_value_heads")) {
    TRY(config_field_count(r, "num_key_value_heads", 1, HEADS_MAX, 1, -1, &same));
    if (same != m->heads)
      return FAIL(ERR_UNSUPPORTED, "config.json: \"%snum_key_value_heads\" is %u, expected \"num_attention_heads\" = %u", r->prefix, same,
                  m->heads);
  }
  if (config_field_find(r, "qk_head_dim")) {
    TRY(config_field_count(r, "qk_head_dim", 1, 1024, 1, -1, &same));
    if (same != m->nope_dim + m->rope_dim)
      return FAIL(ERR_FORMAT, "config.json: \"%sqk_head_dim\" is %u, expected qk_nope_head_dim + qk_rope_head_dim = %u", r->prefix, same,
                  m->nope_dim + m->rope_dim);
  }
  return OK;
}

static status read_v_dim(const model_reader *r) {
  plan_model *m = &r->config->plan;
  int64_t derived = r->family->is_scaled && m->hidden % m->heads == 0 ? (int64_t)(m->hidden / m->heads) : -1;
  TRY(config_field_count(&r->fields, "v_head_dim", 8, 512, 8, derived, &m->v_dim));
  if (m->v_dim % 8 != 0 || m->v_dim > 512 || m->heads * m->v_dim % 64 != 0)
    return FAIL(ERR_UNSUPPORTED, "config.json: \"num_attention_heads\" * \"v_head_dim\" is %u, not a multiple of 64 of at most 512 a head",
                m->heads * m->v_dim);
  return OK;
}

static status read_shape(const model_reader *r) {
  const config_reader *c = &r->fields;
  plan_model *m = &r->config->plan;
  TRY(config_common_read_sizes(c, r->family->norm_eps, m, &r->config->max_position));
  TRY(config_field_count(c, "kv_lora_rank", 256, KV_LORA_RANK_MAX, 256, -1, &m->kv_lora_rank));
  TRY(config_field_count(c, "qk_nope_head_dim", 64, 512, 64, -1, &m->nope_dim));
  TRY(config_field_count(c, "qk_rope_head_dim", 32, ROPE_DIM_MAX, 32, -1, &m->rope_dim));
  TRY(read_v_dim(r));
  if (!config_field_exists(c, "q_lora_rank")) return config_field_missing(c, "q_lora_rank");
  if (config_field_find(c, "q_lora_rank")) TRY(config_field_count(c, "q_lora_rank", 64, HIDDEN_MAX, 64, -1, &m->q_lora_rank));
  return check_derived(c, m);
}

/* scale_depth and dim_model_base may be null, which means no scale. */
static status read_scales(const model_reader *r) {
  const config_reader *c = &r->fields;
  plan_model *m = &r->config->plan;
  double embed = 1, depth = sqrt((double)m->layers);
  uint32_t base = m->hidden;
  m->embed_scale = m->residual_scale = m->head_scale = 1;
  if (!r->family->is_scaled) return OK;
  TRY(config_field_real(c, "scale_emb", 1e-6, 1e6, 12, &embed));
  if (config_field_exists(c, "scale_emb") && !config_field_find(c, "scale_emb")) return config_field_missing(c, "scale_emb");
  if (config_field_find(c, "scale_depth") || !config_field_exists(c, "scale_depth"))
    TRY(config_field_real(c, "scale_depth", 1e-6, 1e6, 1.4, &depth));
  if (config_field_find(c, "dim_model_base") || !config_field_exists(c, "dim_model_base"))
    TRY(config_field_count(c, "dim_model_base", 1, 1u << 24, 1, 256, &base));
  m->embed_scale = (float)embed;
  m->residual_scale = (float)(depth / sqrt((double)m->layers));
  m->head_scale = (float)((double)base / m->hidden);
  return OK;
}

/* === A model inside another ============================================================================================= */

/* tie_word_embeddings of both: HF uses the outer one, by default true, but never ties over a head that the files contain. So the text's
 * false is kept. */
static status merge_tie(const config_reader *outer, json_t *text) {
  bool is_tied = false;
  if (!config_field_exists(outer, "tie_word_embeddings")) return OK;
  TRY(config_field_flag(outer, "tie_word_embeddings", false, &is_tied));
  if (!is_tied || !json_object_get(text, "tie_word_embeddings"))
    json_object_set_new(text, "tie_word_embeddings", json_boolean(is_tied));
  return OK;
}

/* One field of the outer model: it says nothing about the text, or the same, or overrides it (the tokens that begin and end). */
static status merge_field(const config_reader *outer, const char *nested, const char *name, json_t *value, json_t *text) {
  static const char *const HANDLED[] = {"model_type", "architectures", "quantization_config", "torch_dtype", "dtype",
                                        "tie_word_embeddings"};
  static const char *const GO_BEFORE[] = {"bos_token_id", "eos_token_id"};
  if (IS_AMONG(name, HANDLED) || strcmp(name, nested) == 0) return OK;
  if (IS_AMONG(name, GO_BEFORE)) {
    if (!json_is_null(value)) json_object_set(text, name, value);
    return OK;
  }
  if (IS_AMONG(name, OUTER_FIELDS_IGNORED) || config_common_ignores(name) || (is_ignored(name) && !json_object_get(text, name))) {
    config_common_note_ignored(outer, name, value);
    return OK;
  }
  if (!json_object_get(text, name) && !config_common_knows(name)) return config_common_refuse(outer, name);
  if (json_is_null(value) || json_equal(value, json_object_get(text, name))) return OK;
  return FAIL(ERR_UNSUPPORTED, "config.json: \"%.64s\" differs from \"%s.%.64s\"", name, nested, name);
}

static status read_formats(const model_reader *r) {
  model_config *config = r->config;
  TRY(config_index_read(&r->fields, &r->family->index, &config->plan, &config->quant));
  if (!config_field_find(&r->fields, "quantization_config")) return OK;
  if (!r->family->may_be_e4m3 || config->nested) return config_common_refuse_quantised(&r->fields);
  return config_quant_read(&r->fields, &config->plan, &config->grouped, &config->quant, &config->products);
}

/* Layers behind the last that predict tokens after the next one. Absent, or of another form, there are none: nothing else needs them. */
static void read_prediction(const model_reader *r) {
  const json_int_t count = json_integer_value(config_field_find(&r->fields, "num_nextn_predict_layers"));
  r->config->may_predict = r->family->may_predict;
  r->config->prediction_layers = r->family->may_predict && count > 0 ? (uint32_t)(count < LAYERS_MAX ? count : LAYERS_MAX) : 0;
}

static status read_latent(const config_reader *fields, const family *f, model_config *config) {
  const model_reader r = {*fields, f, config};
  TRY(check_names(&r));
  TRY(require_fixed(fields));
  TRY(config_common_read_tie(fields, f->is_tied, &config->is_tied));
  TRY(read_shape(&r));
  TRY(read_scales(&r));
  TRY(config_experts_read(fields, &f->experts, &config->plan));
  TRY(config_common_read_tokens(fields, &config->plan));
  TRY(read_formats(&r));
  read_prediction(&r);
  return config_rope_read(fields, &f->rope, config->max_position, &config->plan, &config->rope);
}

/* The model_type comes first, so that an unknown model is refused by its type and not by its first unknown field. */
static status read_model(const config_reader *fields, model_config *config) {
  const char *type = NULL;
  TRY(config_field_text(fields, "model_type", NULL, &type));
  const family *latent = find_family(type);
  if (!latent && !config_grouped_knows(type))
    return FAIL(ERR_UNSUPPORTED, "config.json: \"%smodel_type\" is \"%.64s\"; " CONFIG_COMMON_TYPES " are supported", fields->prefix, type);
  if (!latent) return config_grouped_read(fields, type, config);
  TRY(config_common_check_architecture(fields, latent->architecture));
  return read_latent(fields, latent, config);
}

static status read_merged(const config_reader *outer, const char *nested, json_t *text, model_config *config) {
  const char *name;
  char prefix[32];
  json_t *value;
  TRY(config_common_require_bf16(outer));
  TRY(config_common_refuse_quantised(outer));
  TRY(merge_tie(outer, text));
  json_object_foreach((json_t *)outer->object, name, value) TRY(merge_field(outer, nested, name, value, text));
  snprintf(prefix, sizeof prefix, "%s.", nested);
  const config_reader inner = {text, prefix, outer->notes};
  return read_model(&inner, config);
}

/* === The file =========================================================================================================== */

static bool is_supported(const char *type) { return type && (find_family(type) || config_grouped_knows(type)); }

static status read_all(const json_t *root, model_config *config) {
  const config_reader r = {root, "", &config->notes};
  if (!json_is_object(root)) return FAIL(ERR_FORMAT, "config.json: expected an object, found %s", config_field_kind(root));
  const json_t *text = NULL;
  const char *type = json_string_value(json_object_get(root, "model_type")), *nested = NULL;
  for (size_t i = 0; i < ARRAY_LEN(NESTED) && !is_supported(type); i++) {
    const json_t *found = config_field_find(&r, NESTED[i]);
    if (!json_is_object(found)) continue;
    if (text) return FAIL(ERR_UNSUPPORTED, "config.json: both \"%s\" and \"%s\" are set, expected one", nested, NESTED[i]);
    text = found;
    nested = NESTED[i];
  }
  if (!text) return read_model(&r, config);
  json_t *copy = json_copy((json_t *)text);
  if (!copy) return FAIL(ERR_LIMIT, "config.json: no memory");
  config->nested = nested;
  status result = read_merged(&r, nested, copy, config);
  json_decref(copy);
  return result;
}

status model_config_parse(const char *text, size_t bytes, model_config *out) {
  json_error_t error;
  if (bytes > FILE_CONFIG_BYTES_MAX)
    return FAIL(ERR_LIMIT, "config.json: %zu bytes, at most %u", bytes, FILE_CONFIG_BYTES_MAX);
  json_t *root = json_text_load_file(text, bytes, JSON_REJECT_DUPLICATES, &error);
  if (!root)
    return FAIL(json_text_fault(&error, ERR_FORMAT), "config.json: line %d, column %d: %s", error.line, error.column, error.text);
  model_config *config = &(model_config){0};
  status result = read_all(root, config);
  json_decref(root);
  if (result == OK) *out = *config;
  return result;
}

plan_model model_config_plan(const model_config *config, uint32_t max_len) {
  plan_model plan = config->plan;
  rope_inv_freq(&config->rope, plan.rope_dim, max_len, plan.inv_freq);
  return plan;
}

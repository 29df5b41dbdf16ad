/* model_config.c - reads config.json with jansson; see model_config.h.
 *
 * Tables list every field with its treatment: read below, required to have a fixed value, or without influence on inference. A field
 * outside the tables is refused. config_rope.c reads positions, config_index.c the indexer, config_quant.c formats. */
#include "model_config.h"
#include "engine/base/json_text.h"
#include <math.h>
#include <string.h>
#include "abi.h"
#include "config_index.h"
#include "config_rope.h"
#include "engine/base/json_text.h"

enum router_rule { /* how experts are chosen and weighted, as in HF's classes */
  RULE_V2 = 0,     /* softmax scores; groups by their best expert; weights normalised or scaled       */
  RULE_V3 = 1,     /* sigmoid scores and a bias; groups by their best two; normalised and scaled      */
  RULE_MISTRAL = 2 /* as RULE_V3 with softmax scores and no bias                                      */
};

typedef struct family { /* what a model_type decides, and HF's values for absent fields; -1: required */
  const char *model_type, *architecture;
  enum router_rule router;
  bool is_dense;       /* no layer has experts */
  bool is_tied;        /* the head is the embedding by default */
  bool is_layer_typed; /* HF reads mlp_layer_types, by default one dense layer, and not first_k_dense_replace */
  bool may_list;       /* HF prefers mlp_layer_types to first_k_dense_replace */
  bool may_be_e4m3;    /* published in this format */
  bool may_predict;    /* published with prediction layers that make drafts */
  bool is_scaled;      /* scale_emb, scale_depth and dim_model_base are read; v_head_dim follows from the hidden size */
  config_rope_rules rope;
  config_index_rules index;
  int32_t dense_layers, shared_experts, groups, top_groups;
  double routed_scale, norm_eps;
} family;

static const family FAMILIES[] = {
    {.model_type = "deepseek_v2", .architecture = "DeepseekV2ForCausalLM", .router = RULE_V2, .rope = {.pairs = CONFIG_ROPE_NEIGHBOURS},
     .shared_experts = 2, .groups = -1, .top_groups = -1, .routed_scale = 1, .norm_eps = 1e-6},
    {.model_type = "deepseek_v3", .architecture = "DeepseekV3ForCausalLM", .router = RULE_V3, .may_be_e4m3 = true, .may_predict = true,
     .dense_layers = 3, .shared_experts = 1, .groups = 8, .top_groups = 4, .routed_scale = 2.5, .norm_eps = 1e-6},
    {.model_type = "kimi_k2", .architecture = "DeepseekV3ForCausalLM", .router = RULE_V3, .may_be_e4m3 = true, .may_predict = true,
     .dense_layers = 3, .shared_experts = 1, .groups = 8, .top_groups = 4, .routed_scale = 2.5, .norm_eps = 1e-6},
    {.model_type = "deepseek_v32", .architecture = "DeepseekV32ForCausalLM", .router = RULE_V3, .may_list = true, .may_be_e4m3 = true,
     .may_predict = true,
     .rope = {.pairs = CONFIG_ROPE_NEIGHBOURS}, .index = {.heads = 64, .are_halves = true}, .dense_layers = 3, .shared_experts = 1,
     .groups = 8, .top_groups = 4, .routed_scale = 2.5, .norm_eps = 1e-6},
    {.model_type = "glm_moe_dsa", .architecture = "GlmMoeDsaForCausalLM", .router = RULE_V3, .may_list = true, .may_be_e4m3 = true,
     .may_predict = true,
     .rope = {.pairs = CONFIG_ROPE_NEIGHBOURS}, .index = {.heads = 32, .may_share = true}, .dense_layers = 3, .shared_experts = 1,
     .groups = 1, .top_groups = 1, .routed_scale = 2.5, .norm_eps = 1e-5},
    {.model_type = "glm4_moe_lite", .architecture = "Glm4MoeLiteForCausalLM", .router = RULE_V3, .is_layer_typed = true, .may_list = true,
     .may_predict = true,
     .dense_layers = 1, .shared_experts = 1, .groups = 1, .top_groups = 1, .routed_scale = 1.8, .norm_eps = 1e-5},
    {.model_type = "youtu", .architecture = "YoutuForCausalLM", .router = RULE_V3, .is_dense = true, .is_tied = true, .norm_eps = 1e-6},
    {.model_type = "minicpm3", .architecture = "MiniCPM3ForCausalLM", .router = RULE_V3, .is_dense = true, .is_tied = true,
     .is_scaled = true, .rope = {.pairs = CONFIG_ROPE_HALVES}, .norm_eps = 1e-5},
    {.model_type = "mistral4", .architecture = "Mistral4ForCausalLM", .router = RULE_MISTRAL,
     .rope = {.is_share_of_head = true, .has_q_scale = true}, .shared_experts = 1, .groups = 1, .top_groups = 1, .routed_scale = 1,
     .norm_eps = 1e-6},
};

#define FAMILY_NAMES "deepseek_v2, deepseek_v3, deepseek_v32, kimi_k2, glm4_moe_lite, glm_moe_dsa, youtu, minicpm3 and mistral4"

/* The fields that hold a model's text model inside another model. */
static const char *const NESTED[] = {"text_config", "language_config"};

typedef struct model_reader {
  config_reader fields;
  const family *family;
  model_config *config;
} model_reader;

/* === Fields ============================================================================================================= */

static const char *const FIELDS_READ[] = {
    "architectures", "model_type", "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
    "q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "intermediate_size", "n_routed_experts",
    "num_local_experts", "num_experts_per_tok", "n_shared_experts", "moe_intermediate_size", "first_k_dense_replace", "moe_layer_freq",
    "n_group", "topk_group", "topk_method", "scoring_func", "norm_topk_prob", "routed_scaling_factor", "rms_norm_eps", "rope_theta",
    "rope_scaling", "rope_parameters", "rope_interleave", "max_position_embeddings", "bos_token_id", "eos_token_id", "attention_bias",
    "mlp_bias", "hidden_act", "tie_word_embeddings", "torch_dtype", "dtype", "quantization_config", "qk_head_dim", "ep_size",
    "pretraining_tp", "mlp_layer_types", "partial_rotary_factor", "add_cross_attention", "pruned_heads", "sliding_window",
    "use_sliding_window", "moe_router_dtype",
};

static const char *const FIELDS_OF_SCALES[] = {"scale_emb", "scale_depth", "dim_model_base"};

/* Training, bookkeeping, hints for other programs; fields that HF derives itself (head_dim); and HF's defaults for generation, which a
 * request here states itself. */
static const char *const FIELDS_IGNORED[] = {
    "_attn_implementation", "_attn_implementation_autoset", "_commit_hash", "_experts_implementation", "_name_or_path",
    "attention_dropout", "auto_map", "aux_loss_alpha", "bad_words_ids", "begin_suppress_tokens", "chunk_size_feed_forward",
    "cross_attention_hidden_size", "decoder_start_token_id", "diversity_penalty", "do_sample", "early_stopping",
    "embedding_initializer_range", "encoder_no_repeat_ngram_size", "exponential_decay_length_penalty", "finetuning_task",
    "forced_bos_token_id", "forced_eos_token_id", "head_dim", "id2label", "index_share_for_mtp_iteration", "initializer_range",
    "is_decoder", "is_encoder_decoder", "label2id", "length_penalty", "max_length", "max_window_layers", "min_length",
    "no_repeat_ngram_size", "num_beam_groups", "num_beams", "num_mtp_layers", "num_nextn_predict_layers", "num_return_sequences",
    "output_attentions", "output_hidden_states", "output_router_logits", "output_scores", "pad_token_id", "prefix", "problem_type",
    "remove_invalid_values", "repetition_penalty", "return_dict", "return_dict_in_generate", "router_aux_loss_coef", "sep_token_id",
    "seq_aux", "suppress_tokens", "task_specific_params", "temperature", "tf_legacy_loss", "tie_encoder_decoder", "tokenizer_class",
    "top_k", "top_p", "torchscript", "transformers_version", "typical_p", "unk_token_id", "unsloth_fixed", "unsloth_version",
    "use_bfloat16", "use_cache",
};

/* Fields of a model that contains another one for its text: images, sound and their encoders. */
static const char *const OUTER_FIELDS_IGNORED[] = {
    "audio_config", "audio_token_id", "candidate_resolutions", "global_view_pos", "ignore_index", "image_token_id", "image_token_index",
    "media_placeholder_token_id", "multimodal_projector_bias", "projection_hidden_size", "projection_layer_norm_eps", "projector_config",
    "projector_hidden_act", "projector_hidden_size", "projector_ln_eps", "spatial_merge_size", "tile_tag", "use_unified_vision_chunk",
    "video_placeholder", "video_token_id", "vision_config", "vision_end_token_id", "vision_feature_layer", "vision_start_token_id",
};

#define IS_AMONG(name, list) config_field_is_among((name), (list), ARRAY_LEN(list))

static status unknown(const config_reader *r, const char *name) {
  return FAIL(ERR_UNSUPPORTED, "config.json: field \"%s%.64s\" is not known and could change the arithmetic; "
              "hint: if HF computes the same without it, remove it; the supported models are " FAMILY_NAMES, r->prefix, name);
}

static void note_ignored(const config_reader *r, const char *name, const json_t *value) {
  bool is_prediction = strcmp(name, "num_mtp_layers") == 0 || strcmp(name, "num_nextn_predict_layers") == 0;
  bool has_layers = is_prediction && json_integer_value(value) > 0;
  config_field_note(r->notes->ignored, has_layers ? "%s%s (the prediction layers behind the last layer make drafts at most)" : "%s%s",
                    r->prefix, name);
}

static status check_names(const model_reader *r) {
  const char *name;
  json_t *value;
  json_object_foreach((json_t *)r->fields.object, name, value) {
    if (IS_AMONG(name, FIELDS_READ) || (r->family->is_scaled && IS_AMONG(name, FIELDS_OF_SCALES))) continue;
    if (config_index_knows(&r->family->index, name)) continue;
    if (!IS_AMONG(name, FIELDS_IGNORED)) return unknown(&r->fields, name);
    note_ignored(&r->fields, name, value);
  }
  return OK;
}

/* === Groups of fields =================================================================================================== */

static status read_family(const config_reader *r, const family **out) {
  const char *type = NULL;
  const family *f = NULL;
  TRY(config_field_text(r, "model_type", NULL, &type));
  for (size_t i = 0; i < ARRAY_LEN(FAMILIES); i++)
    if (strcmp(type, FAMILIES[i].model_type) == 0) f = &FAMILIES[i];
  if (!f)
    return FAIL(ERR_UNSUPPORTED, "config.json: \"%smodel_type\" is \"%.64s\"; " FAMILY_NAMES " are supported", r->prefix, type);
  const json_t *names = config_field_find(r, "architectures");
  const char *found = json_string_value(json_array_get(names, 0));
  if (names && (json_array_size(names) != 1 || !found))
    return FAIL(ERR_FORMAT, "config.json: \"%sarchitectures\": expected a list of one name", r->prefix);
  if (names && strcmp(found, f->architecture) != 0)
    return FAIL(ERR_UNSUPPORTED, "config.json: \"%sarchitectures\" is \"%.64s\", expected %s for this model_type", r->prefix, found,
                f->architecture);
  *out = f;
  return OK;
}

/* Requires numbers that are not quantised to be bf16. */
static status require_bf16(const config_reader *r) {
  TRY(config_field_require_text(r, "torch_dtype", "bfloat16"));
  return config_field_require_text(r, "dtype", "bfloat16");
}

/* Fields that must have the single value that Verbatim implements. */
static status require_fixed(const config_reader *r) {
  static const char *const ONES[] = {"moe_layer_freq", "ep_size", "pretraining_tp"};
  uint32_t one = 0;
  const json_t *heads = config_field_find(r, "pruned_heads");
  TRY(require_bf16(r));
  TRY(config_field_require_flag(r, "attention_bias", false));
  TRY(config_field_require_flag(r, "mlp_bias", false));
  TRY(config_field_require_flag(r, "add_cross_attention", false));
  TRY(config_field_require_text(r, "hidden_act", "silu"));
  TRY(config_field_require_text(r, "moe_router_dtype", "float32"));
  TRY(config_field_require_flag(r, "use_sliding_window", false));
  TRY(config_field_require_absent(r, "sliding_window"));
  if (heads && json_object_size(heads) + json_array_size(heads) > 0) return config_field_require_absent(r, "pruned_heads");
  for (size_t i = 0; i < ARRAY_LEN(ONES); i++)
    if (config_field_find(r, ONES[i])) TRY(config_field_count(r, ONES[i], 1, 1, 1, 1, &one));
  return OK;
}

static status read_tie(const model_reader *r) {
  bool is_tied = false;
  TRY(config_field_flag(&r->fields, "tie_word_embeddings", r->family->is_tied, &is_tied));
  if (r->family->is_tied && !config_field_exists(&r->fields, "tie_word_embeddings"))
    config_field_note(r->config->notes.assumed, "tie_word_embeddings = true");
  r->config->is_tied = is_tied;
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
  double eps = 0;
  TRY(config_field_count(c, "vocab_size", 8, VOCAB_MAX, 8, -1, &m->vocab));
  TRY(config_field_count(c, "hidden_size", 64, HIDDEN_MAX, 64, -1, &m->hidden));
  TRY(config_field_count(c, "num_hidden_layers", 1, LAYERS_MAX, 1, -1, &m->layers));
  TRY(config_field_count(c, "num_attention_heads", 1, HEADS_MAX, 1, -1, &m->heads));
  TRY(config_field_count(c, "intermediate_size", 64, 16 * HIDDEN_MAX, 64, -1, &m->inter));
  TRY(config_field_count(c, "kv_lora_rank", 256, KV_LORA_RANK_MAX, 256, -1, &m->kv_lora_rank));
  TRY(config_field_count(c, "qk_nope_head_dim", 64, 512, 64, -1, &m->nope_dim));
  TRY(config_field_count(c, "qk_rope_head_dim", 32, ROPE_DIM_MAX, 32, -1, &m->rope_dim));
  TRY(read_v_dim(r));
  if (!config_field_exists(c, "q_lora_rank")) return config_field_missing(c, "q_lora_rank");
  if (config_field_find(c, "q_lora_rank")) TRY(config_field_count(c, "q_lora_rank", 64, HIDDEN_MAX, 64, -1, &m->q_lora_rank));
  TRY(check_derived(c, m));
  TRY(config_field_count(c, "max_position_embeddings", 1, 1u << 30, 1, -1, &r->config->max_position));
  TRY(config_field_real(c, "rms_norm_eps", 1e-12, 0.1, r->family->norm_eps, &eps));
  m->norm_eps = (float)eps;
  return OK;
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

/* === Experts ============================================================================================================ */

static status read_method(const model_reader *r, bool *is_greedy) {
  static const char *const KNOWN[] = {"greedy, group_limited_greedy", "noaux_tc", "none"};
  const char *method = NULL;
  enum router_rule rule = r->family->router;
  TRY(config_field_text(&r->fields, "topk_method", rule == RULE_V2 ? "greedy" : rule == RULE_V3 ? "noaux_tc" : "", &method));
  *is_greedy = strcmp(method, "greedy") == 0;
  bool is_known = rule == RULE_V2   ? *is_greedy || strcmp(method, "group_limited_greedy") == 0
                  : rule == RULE_V3 ? strcmp(method, "noaux_tc") == 0
                                    : method[0] == 0;
  if (is_known) return OK;
  return FAIL(ERR_UNSUPPORTED, "config.json: \"topk_method\" is \"%.64s\"; supported for this model_type: %s", method, KNOWN[rule]);
}

static status read_groups(const model_reader *r) {
  const family *f = r->family;
  plan_model *m = &r->config->plan;
  bool is_greedy = false;
  TRY(read_method(r, &is_greedy));
  m->groups = 1;
  m->top_groups = 1;
  m->group_mode = ROUTER_GROUP_NONE;
  if (is_greedy && f->router == RULE_V2) return OK; /* groups, if given, are not used */
  TRY(config_field_count(&r->fields, "n_group", 1, EXPERT_GROUPS_MAX, 1, f->groups, &m->groups));
  TRY(config_field_count(&r->fields, "topk_group", 1, EXPERT_GROUPS_MAX, 1, f->top_groups, &m->top_groups));
  if (m->experts % m->groups != 0)
    return FAIL(ERR_FORMAT, "config.json: \"n_routed_experts\" %u is not a multiple of \"n_group\" %u", m->experts, m->groups);
  if (m->top_groups > m->groups)
    return FAIL(ERR_FORMAT, "config.json: \"topk_group\" is %u, more than \"n_group\" %u", m->top_groups, m->groups);
  if (m->groups > 1) m->group_mode = f->router == RULE_V2 ? ROUTER_GROUP_MAX : ROUTER_GROUP_TOP2;
  if (m->group_mode == ROUTER_GROUP_TOP2 && m->experts / m->groups < 2)
    return FAIL(ERR_FORMAT, "config.json: \"n_group\" %u leaves fewer than 2 experts in a group", m->groups);
  if (m->top_k > m->experts / m->groups * m->top_groups)
    return FAIL(ERR_FORMAT, "config.json: \"num_experts_per_tok\" is %u, more than the experts of \"topk_group\" %u groups", m->top_k,
                m->top_groups);
  return OK;
}

/* The number of dense layers before the first "sparse" one in mlp_layer_types; UINT32_MAX without the field. */
static status read_layer_types(const model_reader *r, uint32_t *out) {
  const json_t *types = config_field_find(&r->fields, "mlp_layer_types");
  uint32_t dense = 0, layers = r->config->plan.layers;
  *out = UINT32_MAX;
  if (!types) return OK;
  if (!json_is_array(types) || json_array_size(types) != layers)
    return FAIL(ERR_FORMAT, "config.json: \"mlp_layer_types\": expected a list of \"num_hidden_layers\" = %u names", layers);
  for (uint32_t i = 0; i < layers; i++) {
    const char *type = json_string_value(json_array_get(types, i));
    if (type && dense == i && strcmp(type, "dense") == 0) dense++;
    else if (!type || strcmp(type, "sparse") != 0)
      return FAIL(ERR_UNSUPPORTED, "config.json: \"mlp_layer_types\" is not some \"dense\" followed by \"sparse\" at layer %u", i);
  }
  *out = dense;
  return OK;
}

static status read_dense_layers(const model_reader *r) {
  const family *f = r->family;
  plan_model *m = &r->config->plan;
  uint32_t listed = UINT32_MAX;
  TRY(read_layer_types(r, &listed));
  bool is_list_alone = f->may_list && listed != UINT32_MAX && !config_field_find(&r->fields, "first_k_dense_replace");
  if (is_list_alone) m->dense_layers = listed;
  else TRY(config_field_count(&r->fields, "first_k_dense_replace", 0, LAYERS_MAX, 1, f->dense_layers, &m->dense_layers));
  if (listed == UINT32_MAX) listed = f->is_layer_typed ? (uint32_t)f->dense_layers : m->dense_layers;
  if (m->dense_layers != listed)
    return FAIL(ERR_UNSUPPORTED, "config.json: \"first_k_dense_replace\" is %u, but \"mlp_layer_types\"%s has %u dense layers",
                m->dense_layers, config_field_find(&r->fields, "mlp_layer_types") ? "" : " is absent: HF", listed);
  return OK;
}

/* The field that states the number of experts: HF has two names for it. */
static status find_experts(const config_reader *r, const char **name) {
  static const char *const NAMES[] = {"n_routed_experts", "num_local_experts"};
  const json_t *first = config_field_find(r, NAMES[0]), *second = config_field_find(r, NAMES[1]);
  if (first && second && !json_equal(first, second))
    return FAIL(ERR_FORMAT, "config.json: \"%s\" and \"%s\" differ", NAMES[0], NAMES[1]);
  *name = NAMES[second && !first];
  return OK;
}

/* How the experts' weights are made of their scores. modeling_deepseek.py, which comes with DeepSeek's checkpoints, normalises if more than
 * one expert is taken, and with V2's rule it then does not scale. HF never normalises with V2's rule and always scales. */
static void set_weights(const model_reader *r, bool normalise, float scale) {
  plan_model *m = &r->config->plan;
  const bool is_v2 = r->family->router == RULE_V2, is_one = m->top_k == 1;
  m->normalise = normalise && !(is_v2 && is_one);
  m->routed_scale = is_v2 && m->normalise ? 1.0f : scale;
  if (is_v2 && m->normalise)
    config_field_note(r->config->notes.chosen, "norm_topk_prob true normalises and does not scale, as modeling_deepseek.py does; HF scales "
                      "and does not normalise");
  if (!is_v2 && m->normalise && is_one && strncmp(r->family->architecture, "Deepseek", 8) == 0)
    config_field_note(r->config->notes.chosen, "norm_topk_prob true normalises one expert, as HF does; modeling_deepseek.py does not");
}

static status read_router(const model_reader *r, const char *experts_name) {
  const config_reader *c = &r->fields;
  const family *f = r->family;
  plan_model *m = &r->config->plan;
  bool normalise = f->router != RULE_V2;
  double scale = 1;
  TRY(config_field_require_text(c, "scoring_func", f->router == RULE_V3 ? "sigmoid" : "softmax"));
  TRY(config_field_count(c, experts_name, 8, EXPERTS_MAX, 8, -1, &m->experts));
  TRY(config_field_count(c, "num_experts_per_tok", 1, TOP_K_EXPERTS_MAX, 1, -1, &m->top_k));
  if (m->top_k > m->experts)
    return FAIL(ERR_FORMAT, "config.json: \"num_experts_per_tok\" is %u, more than \"%s\" %u", m->top_k, experts_name, m->experts);
  TRY(config_field_count(c, "moe_intermediate_size", 64, 16 * HIDDEN_MAX, 64, -1, &m->moe_inter));
  if (!config_field_exists(c, "n_shared_experts") || config_field_find(c, "n_shared_experts"))
    TRY(config_field_count(c, "n_shared_experts", 0, 16, 1, f->shared_experts, &m->shared_experts));
  TRY(read_groups(r));
  TRY(config_field_flag(c, "norm_topk_prob", normalise, &normalise));
  TRY(config_field_real(c, "routed_scaling_factor", 1e-6, 1000, f->routed_scale, &scale));
  set_weights(r, normalise, (float)scale);
  return OK;
}

static status read_experts(const model_reader *r) {
  plan_model *m = &r->config->plan;
  const char *name = NULL;
  TRY(find_experts(&r->fields, &name));
  bool has_experts = config_field_find(&r->fields, name);
  if (r->family->is_dense && has_experts)
    return FAIL(ERR_UNSUPPORTED, "config.json: \"%s\" is set, but a model of this model_type has no experts", name);
  if (!r->family->is_dense && !config_field_exists(&r->fields, name)) return config_field_missing(&r->fields, name);
  if (!r->family->is_dense) TRY(read_dense_layers(r));
  m->scoring = r->family->router == RULE_V3 ? ROUTER_SIGMOID : ROUTER_SOFTMAX;
  m->groups = m->top_groups = 1;
  if (has_experts && m->dense_layers < m->layers) return read_router(r, name);
  m->dense_layers = m->layers; /* no layer has experts */
  m->routed_scale = 1;
  return OK;
}

/* === Tokens ============================================================================================================= */

static status read_token(const model_reader *r, const char *name, const json_t *value, uint32_t *out) {
  uint32_t vocab = r->config->plan.vocab;
  json_int_t id = json_integer_value(value);
  if (!json_is_integer(value))
    return FAIL(ERR_FORMAT, "config.json: \"%s\": expected token ids, found %s", name, config_field_kind(value));
  if (id < 0 || id >= (json_int_t)vocab)
    return FAIL(ERR_FORMAT, "config.json: \"%s\" is %lld, outside the vocabulary of %u", name, (long long)id, vocab);
  *out = (uint32_t)id;
  return OK;
}

static status read_specials(const model_reader *r) {
  plan_model *m = &r->config->plan;
  const json_t *bos = config_field_find(&r->fields, "bos_token_id"), *eos = config_field_find(&r->fields, "eos_token_id");
  m->bos = UINT32_MAX;
  if (bos) TRY(read_token(r, "bos_token_id", bos, &m->bos));
  if (!eos) return OK; /* generation ends by length or by the request's own stop ids */
  if (!json_is_array(eos)) {
    m->eos_count = 1;
    return read_token(r, "eos_token_id", eos, &m->eos[0]);
  }
  if (json_array_size(eos) > EOS_MAX)
    return FAIL(ERR_LIMIT, "config.json: \"eos_token_id\" lists %zu ids, at most %u", json_array_size(eos), EOS_MAX);
  for (; m->eos_count < json_array_size(eos); m->eos_count++)
    TRY(read_token(r, "eos_token_id", json_array_get(eos, m->eos_count), &m->eos[m->eos_count]));
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
  if (IS_AMONG(name, OUTER_FIELDS_IGNORED) || IS_AMONG(name, FIELDS_IGNORED)) {
    note_ignored(outer, name, value);
    return OK;
  }
  if (!IS_AMONG(name, FIELDS_READ)) return unknown(outer, name);
  if (json_is_null(value) || json_equal(value, json_object_get(text, name))) return OK;
  return FAIL(ERR_UNSUPPORTED, "config.json: \"%.64s\" differs from \"%s.%.64s\"", name, nested, name);
}

/* A model inside another may be quantised only by the outer model's fields, which have other names. */
static status refuse_quantised(const config_reader *r) {
  if (!config_field_find(r, "quantization_config")) return OK;
  return FAIL(ERR_UNSUPPORTED, "config.json: \"%squantization_config\" is set; quantised weights of this kind of model are not supported; "
              "hint: use a bf16 copy", r->prefix);
}

static status read_formats(const model_reader *r) {
  model_config *config = r->config;
  TRY(config_index_read(&r->fields, &r->family->index, &config->plan, &config->quant));
  if (!config_field_find(&r->fields, "quantization_config")) return OK;
  if (!r->family->may_be_e4m3 || config->nested) return refuse_quantised(&r->fields);
  return config_quant_read(&r->fields, &config->plan, &config->quant, &config->products);
}

/* Layers behind the last that predict tokens after the next one. Absent, or of another form, there are none: nothing else needs them. */
static void read_prediction(const model_reader *r) {
  const json_int_t count = json_integer_value(config_field_find(&r->fields, "num_nextn_predict_layers"));
  r->config->may_predict = r->family->may_predict;
  r->config->prediction_layers = r->family->may_predict && count > 0 ? (uint32_t)(count < LAYERS_MAX ? count : LAYERS_MAX) : 0;
}

static status read_model(const config_reader *fields, model_config *config) {
  model_reader r = {*fields, NULL, config};
  TRY(read_family(fields, &r.family)); /* first, so that an unknown model is refused by its type and not by its first unknown field */
  TRY(check_names(&r));
  TRY(require_fixed(fields));
  TRY(read_tie(&r));
  TRY(read_shape(&r));
  TRY(read_scales(&r));
  TRY(read_experts(&r));
  TRY(read_specials(&r));
  TRY(read_formats(&r));
  read_prediction(&r);
  return config_rope_read(fields, &r.family->rope, config->max_position, &config->plan, &config->rope);
}

static status read_merged(const config_reader *outer, const char *nested, json_t *text, model_config *config) {
  const char *name;
  char prefix[32];
  json_t *value;
  TRY(require_bf16(outer));
  TRY(refuse_quantised(outer));
  TRY(merge_tie(outer, text));
  json_object_foreach((json_t *)outer->object, name, value) TRY(merge_field(outer, nested, name, value, text));
  snprintf(prefix, sizeof prefix, "%s.", nested);
  const config_reader inner = {text, prefix, outer->notes};
  return read_model(&inner, config);
}

/* === The file =========================================================================================================== */

static bool is_supported(const char *type) {
  for (size_t i = 0; type && i < ARRAY_LEN(FAMILIES); i++)
    if (strcmp(type, FAMILIES[i].model_type) == 0) return true;
  return false;
}

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

/* model_config.c - reads config.json with jansson; see model_config.h.
 *
 * One table lists every field with its meaning: read below, required to have a fixed value, or without influence on
 * inference. A field outside the table is refused. */
#include "model_config.h"
#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "abi.h"
#include "rope.h"

typedef struct reader {
  const json_t *object;
  const char *prefix; /* "" or "rope_scaling." */
  model_config *config;
} reader;

typedef struct family { /* what a model_type decides, and what HF takes for absent fields; -1: the field must be there */
  const char *model_type, *architecture;
  bool is_softmax;     /* router of deepseek_v2: softmax scores, no bias; else sigmoid scores and a bias */
  bool is_dense;       /* no layer has experts */
  bool is_tied;        /* the head is the embedding */
  bool is_layer_typed; /* HF reads mlp_layer_types, by default one dense layer, and not first_k_dense_replace */
  int32_t dense_layers, shared_experts, groups, top_groups;
  double routed_scale, norm_eps;
} family;

static const family FAMILIES[] = {
    {.model_type = "deepseek_v2", .architecture = "DeepseekV2ForCausalLM", .is_softmax = true, .shared_experts = 2, .groups = -1,
     .top_groups = -1, .routed_scale = 1, .norm_eps = 1e-6},
    {.model_type = "deepseek_v3", .architecture = "DeepseekV3ForCausalLM", .dense_layers = 3, .shared_experts = 1, .groups = 8,
     .top_groups = 4, .routed_scale = 2.5, .norm_eps = 1e-6},
    {.model_type = "kimi_k2", .architecture = "DeepseekV3ForCausalLM", .dense_layers = 3, .shared_experts = 1, .groups = 8,
     .top_groups = 4, .routed_scale = 2.5, .norm_eps = 1e-6},
    {.model_type = "glm4_moe_lite", .architecture = "Glm4MoeLiteForCausalLM", .is_layer_typed = true, .dense_layers = 1,
     .shared_experts = 1, .groups = 1, .top_groups = 1, .routed_scale = 1.8, .norm_eps = 1e-5},
    {.model_type = "youtu", .architecture = "YoutuForCausalLM", .is_dense = true, .is_tied = true, .norm_eps = 1e-6},
};

#define FAMILY_NAMES "deepseek_v2, deepseek_v3, kimi_k2, glm4_moe_lite and youtu"

/* === Fields ============================================================================================================= */

static const char *const FIELDS_READ[] = {
    "architectures", "model_type", "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
    "q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "intermediate_size", "n_routed_experts",
    "num_experts_per_tok", "n_shared_experts", "moe_intermediate_size", "first_k_dense_replace", "moe_layer_freq", "n_group",
    "topk_group", "topk_method", "scoring_func", "norm_topk_prob", "routed_scaling_factor", "rms_norm_eps", "rope_theta",
    "rope_scaling", "rope_parameters", "rope_interleave", "max_position_embeddings", "bos_token_id", "eos_token_id", "attention_bias",
    "mlp_bias", "hidden_act", "tie_word_embeddings", "torch_dtype", "dtype", "quantization_config", "qk_head_dim", "ep_size",
    "pretraining_tp", "mlp_layer_types", "partial_rotary_factor",
};

/* Training, bookkeeping, other programs' hints; and what HF derives itself (head_dim). */
static const char *const FIELDS_IGNORED[] = {
    "_name_or_path", "attention_dropout", "auto_map", "aux_loss_alpha", "embedding_initializer_range", "head_dim",
    "initializer_range", "is_encoder_decoder", "num_mtp_layers", "num_nextn_predict_layers", "output_attentions",
    "output_hidden_states", "output_router_logits", "pad_token_id", "return_dict", "router_aux_loss_coef", "seq_aux",
    "transformers_version", "use_cache", "unsloth_version", "_attn_implementation",
};

static const char *const ROPE_FIELDS[] = {
    "type", "rope_type", "rope_theta", "factor", "original_max_position_embeddings", "beta_fast", "beta_slow", "mscale",
    "mscale_all_dim", "attention_factor", "truncate", "partial_rotary_factor",
};

static bool is_among(const char *name, const char *const *names, size_t count) {
  for (size_t i = 0; i < count; i++)
    if (strcmp(name, names[i]) == 0) return true;
  return false;
}

static void list_add(char *list, const char *format, ...) {
  size_t used = strlen(list);
  va_list args;
  if (used > 0) used += (size_t)snprintf(list + used, MODEL_CONFIG_NOTE_BYTES - used, ", ");
  ASSERT(used < MODEL_CONFIG_NOTE_BYTES);
  va_start(args, format);
  vsnprintf(list + used, MODEL_CONFIG_NOTE_BYTES - used, format, args);
  va_end(args);
}

static status check_names(const reader *r) {
  const char *name;
  json_t *value;
  json_object_foreach((json_t *)r->object, name, value) {
    if (is_among(name, FIELDS_READ, ARRAY_LEN(FIELDS_READ))) continue;
    if (!is_among(name, FIELDS_IGNORED, ARRAY_LEN(FIELDS_IGNORED)))
      return FAIL(ERR_UNSUPPORTED, "config.json: field \"%.64s\" is not known and could change the arithmetic; "
                  "hint: the supported models are " FAMILY_NAMES, name);
    bool is_prediction = strcmp(name, "num_mtp_layers") == 0 || strcmp(name, "num_nextn_predict_layers") == 0;
    bool has_layers = is_prediction && json_integer_value(value) > 0;
    list_add(r->config->ignored, has_layers ? "%s (the prediction layers behind the last layer are not used)" : "%s", name);
  }
  return OK;
}

/* === Reading one field ================================================================================================== */

/* The field, or null if it is absent or JSON null. */
static const json_t *field(const reader *r, const char *name) {
  const json_t *value = json_object_get(r->object, name);
  return value && json_is_null(value) ? NULL : value;
}

static const char *type_name(const json_t *value) {
  static const char *const NAMES[] = {"an object", "an array", "a string", "an integer", "a real number", "true", "false", "null"};
  return NAMES[json_typeof(value)];
}

static status missing(const reader *r, const char *name) {
  return FAIL(ERR_FORMAT, "config.json: field \"%s%s\" is missing", r->prefix, name);
}

/* An integer of [low, high] that is a multiple of `multiple`. fallback < 0: the field must be there. */
static status read_count(const reader *r, const char *name, uint32_t low, uint32_t high, uint32_t multiple, int64_t fallback,
                         uint32_t *out) {
  const json_t *value = field(r, name);
  if (!value && fallback < 0) return missing(r, name);
  if (!value) {
    list_add(r->config->assumed, "%s = %lld", name, (long long)fallback);
    *out = (uint32_t)fallback;
    return OK;
  }
  if (!json_is_integer(value))
    return FAIL(ERR_FORMAT, "config.json: \"%s%s\": expected an integer, found %s", r->prefix, name, type_name(value));
  json_int_t number = json_integer_value(value);
  if (number < (json_int_t)low || number > (json_int_t)high)
    return FAIL(ERR_FORMAT, "config.json: \"%s%s\": expected %u to %u, found %lld", r->prefix, name, low, high, (long long)number);
  if (number % multiple != 0)
    return FAIL(ERR_UNSUPPORTED, "config.json: \"%s%s\" is %lld, not a multiple of %u, which the kernels need", r->prefix, name,
                (long long)number, multiple);
  *out = (uint32_t)number;
  return OK;
}

/* A number of [low, high]. fallback NaN: the field must be there. A zero fallback that is taken is not noted. */
static status read_real(const reader *r, const char *name, double low, double high, double fallback, double *out) {
  const json_t *value = field(r, name);
  if (!value && isnan(fallback)) return missing(r, name);
  if (!value) {
    if (fallback != 0) list_add(r->config->assumed, "%s%s = %g", r->prefix, name, fallback);
    *out = fallback;
    return OK;
  }
  if (!json_is_number(value))
    return FAIL(ERR_FORMAT, "config.json: \"%s%s\": expected a number, found %s", r->prefix, name, type_name(value));
  double number = json_number_value(value);
  if (!(number >= low && number <= high))
    return FAIL(ERR_FORMAT, "config.json: \"%s%s\": expected %g to %g, found %g", r->prefix, name, low, high, number);
  *out = number;
  return OK;
}

static status read_flag(const reader *r, const char *name, bool fallback, bool *out) {
  const json_t *value = field(r, name);
  if (value && !json_is_boolean(value))
    return FAIL(ERR_FORMAT, "config.json: \"%s%s\": expected true or false, found %s", r->prefix, name, type_name(value));
  *out = value ? json_is_true(value) : fallback;
  return OK;
}

/* A string; fallback null: the field must be there. */
static status read_text(const reader *r, const char *name, const char *fallback, const char **out) {
  const json_t *value = field(r, name);
  if (!value && !fallback) return missing(r, name);
  if (value && !json_is_string(value))
    return FAIL(ERR_FORMAT, "config.json: \"%s%s\": expected a string, found %s", r->prefix, name, type_name(value));
  *out = value ? json_string_value(value) : fallback;
  return OK;
}

static status require_flag(const reader *r, const char *name, bool wanted) {
  bool found = wanted;
  TRY(read_flag(r, name, wanted, &found));
  if (found != wanted)
    return FAIL(ERR_UNSUPPORTED, "config.json: \"%s%s\" is %s; only %s is supported", r->prefix, name, found ? "true" : "false",
                wanted ? "true" : "false");
  return OK;
}

static status require_text(const reader *r, const char *name, const char *wanted) {
  const char *found = wanted;
  TRY(read_text(r, name, wanted, &found));
  if (strcmp(found, wanted) != 0)
    return FAIL(ERR_UNSUPPORTED, "config.json: \"%s%s\" is \"%.64s\"; only \"%s\" is supported", r->prefix, name, found, wanted);
  return OK;
}

/* === Groups of fields =================================================================================================== */

static status read_family(const reader *r, const family **out) {
  const char *type = NULL;
  const family *f = NULL;
  TRY(read_text(r, "model_type", NULL, &type));
  for (size_t i = 0; i < ARRAY_LEN(FAMILIES); i++)
    if (strcmp(type, FAMILIES[i].model_type) == 0) f = &FAMILIES[i];
  if (!f)
    return FAIL(ERR_UNSUPPORTED, "config.json: \"model_type\" is \"%.64s\"%s; " FAMILY_NAMES " are supported", type,
                field(r, "text_config") ? ", a model inside another (\"text_config\")" : "");
  const json_t *names = field(r, "architectures");
  const char *found = json_string_value(json_array_get(names, 0));
  if (names && (json_array_size(names) != 1 || !found))
    return FAIL(ERR_FORMAT, "config.json: \"architectures\": expected a list of one name");
  if (names && strcmp(found, f->architecture) != 0)
    return FAIL(ERR_UNSUPPORTED, "config.json: \"architectures\" is \"%.64s\", expected %s for this model_type", found, f->architecture);
  *out = f;
  return OK;
}

/* Every rotated column is rotated. */
static status require_whole_rope(const reader *r) {
  double share = 1;
  if (!field(r, "partial_rotary_factor")) return OK;
  TRY(read_real(r, "partial_rotary_factor", 0, 1, 1, &share));
  if (share != 1) return FAIL(ERR_UNSUPPORTED, "config.json: \"%spartial_rotary_factor\" is %g; only 1 is supported", r->prefix, share);
  return OK;
}

/* Fields that must have the one value Verbatim implements. */
static status require_fixed(const reader *r) {
  uint32_t ignored = 0;
  if (field(r, "quantization_config"))
    return FAIL(ERR_UNSUPPORTED, "config.json: \"quantization_config\" is set; quantised weights are not supported; hint: use a bf16 copy");
  TRY(require_flag(r, "attention_bias", false));
  TRY(require_flag(r, "mlp_bias", false));
  TRY(require_whole_rope(r));
  TRY(require_flag(r, "rope_interleave", true));
  TRY(require_text(r, "hidden_act", "silu"));
  TRY(require_text(r, "torch_dtype", "bfloat16"));
  TRY(require_text(r, "dtype", "bfloat16"));
  if (field(r, "moe_layer_freq")) TRY(read_count(r, "moe_layer_freq", 1, 1, 1, 1, &ignored));
  if (field(r, "ep_size")) TRY(read_count(r, "ep_size", 1, 1, 1, 1, &ignored));
  if (field(r, "pretraining_tp")) TRY(read_count(r, "pretraining_tp", 1, 1, 1, 1, &ignored));
  return OK;
}

static status read_tie(const reader *r, const family *f) {
  bool is_tied = false;
  TRY(read_flag(r, "tie_word_embeddings", f->is_tied, &is_tied));
  if (f->is_tied && !field(r, "tie_word_embeddings")) list_add(r->config->assumed, "tie_word_embeddings = true");
  r->config->is_tied = is_tied;
  return OK;
}

static status read_shape(const reader *r, const family *f) {
  plan_model *m = &r->config->plan;
  uint32_t same = 0;
  double eps = 0;
  TRY(read_count(r, "vocab_size", 8, VOCAB_MAX, 8, -1, &m->vocab));
  TRY(read_count(r, "hidden_size", 64, HIDDEN_MAX, 64, -1, &m->hidden));
  TRY(read_count(r, "num_hidden_layers", 1, LAYERS_MAX, 1, -1, &m->layers));
  TRY(read_count(r, "num_attention_heads", 1, HEADS_MAX, 1, -1, &m->heads));
  TRY(read_count(r, "intermediate_size", 64, 16 * HIDDEN_MAX, 64, -1, &m->inter));
  TRY(read_count(r, "kv_lora_rank", 256, KV_LORA_RANK_MAX, 256, -1, &m->kv_lora_rank));
  TRY(read_count(r, "qk_nope_head_dim", 64, 512, 64, -1, &m->nope_dim));
  TRY(read_count(r, "qk_rope_head_dim", 32, ROPE_DIM_MAX, 32, -1, &m->rope_dim));
  TRY(read_count(r, "v_head_dim", 8, 512, 8, -1, &m->v_dim));
  if (m->heads * m->v_dim % 64 != 0)
    return FAIL(ERR_UNSUPPORTED, "config.json: \"num_attention_heads\" * \"v_head_dim\" is %u, not a multiple of 64", m->heads * m->v_dim);
  if (!json_object_get(r->object, "q_lora_rank")) return missing(r, "q_lora_rank");
  if (field(r, "q_lora_rank")) TRY(read_count(r, "q_lora_rank", 64, HIDDEN_MAX, 64, -1, &m->q_lora_rank));
  if (field(r, "num_key_value_heads")) {
    TRY(read_count(r, "num_key_value_heads", 1, HEADS_MAX, 1, -1, &same));
    if (same != m->heads)
      return FAIL(ERR_UNSUPPORTED, "config.json: \"num_key_value_heads\" is %u, expected \"num_attention_heads\" = %u", same, m->heads);
  }
  if (field(r, "qk_head_dim")) {
    TRY(read_count(r, "qk_head_dim", 1, 1024, 1, -1, &same));
    if (same != m->nope_dim + m->rope_dim)
      return FAIL(ERR_FORMAT, "config.json: \"qk_head_dim\" is %u, expected qk_nope_head_dim + qk_rope_head_dim = %u", same,
                  m->nope_dim + m->rope_dim);
  }
  TRY(read_count(r, "max_position_embeddings", 1, 1u << 30, 1, -1, &r->config->max_position));
  TRY(read_real(r, "rms_norm_eps", 1e-12, 0.1, f->norm_eps, &eps));
  m->norm_eps = (float)eps;
  return OK;
}

static status read_groups(const reader *r, const family *f) {
  plan_model *m = &r->config->plan;
  const char *method = NULL;
  bool is_v3 = !f->is_softmax;
  TRY(read_text(r, "topk_method", is_v3 ? "noaux_tc" : "greedy", &method));
  bool is_greedy = strcmp(method, "greedy") == 0;
  if (is_v3 ? strcmp(method, "noaux_tc") != 0 : !is_greedy && strcmp(method, "group_limited_greedy") != 0)
    return FAIL(ERR_UNSUPPORTED, "config.json: \"topk_method\" is \"%.64s\"; supported for this model_type: %s", method,
                is_v3 ? "noaux_tc" : "greedy, group_limited_greedy");
  m->groups = 1;
  m->top_groups = 1;
  m->group_mode = ROUTER_GROUP_NONE;
  if (is_greedy) return OK; /* groups, if named, are not used */
  TRY(read_count(r, "n_group", 1, EXPERT_GROUPS_MAX, 1, f->groups, &m->groups));
  TRY(read_count(r, "topk_group", 1, EXPERT_GROUPS_MAX, 1, f->top_groups, &m->top_groups));
  if (m->experts % m->groups != 0)
    return FAIL(ERR_FORMAT, "config.json: \"n_routed_experts\" %u is not a multiple of \"n_group\" %u", m->experts, m->groups);
  if (m->top_groups > m->groups)
    return FAIL(ERR_FORMAT, "config.json: \"topk_group\" is %u, more than \"n_group\" %u", m->top_groups, m->groups);
  if (m->groups > 1) m->group_mode = is_v3 ? ROUTER_GROUP_TOP2 : ROUTER_GROUP_MAX;
  if (m->group_mode == ROUTER_GROUP_TOP2 && m->experts / m->groups < 2)
    return FAIL(ERR_FORMAT, "config.json: \"n_group\" %u leaves fewer than 2 experts in a group", m->groups);
  if (m->top_k > m->experts / m->groups * m->top_groups)
    return FAIL(ERR_FORMAT, "config.json: \"num_experts_per_tok\" is %u, more than the experts of \"topk_group\" %u groups", m->top_k,
                m->top_groups);
  return OK;
}

/* The dense layers that mlp_layer_types lists before the others, all "sparse"; UINT32_MAX without the field. */
static status read_layer_types(const reader *r, uint32_t *out) {
  const json_t *types = field(r, "mlp_layer_types");
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

static status read_dense_layers(const reader *r, const family *f) {
  plan_model *m = &r->config->plan;
  uint32_t listed = UINT32_MAX;
  TRY(read_layer_types(r, &listed));
  bool is_list_alone = f->is_layer_typed && listed != UINT32_MAX && !field(r, "first_k_dense_replace");
  if (is_list_alone) m->dense_layers = listed;
  else TRY(read_count(r, "first_k_dense_replace", 0, LAYERS_MAX, 1, f->dense_layers, &m->dense_layers));
  if (listed == UINT32_MAX) listed = f->is_layer_typed ? (uint32_t)f->dense_layers : m->dense_layers;
  if (m->dense_layers != listed)
    return FAIL(ERR_UNSUPPORTED, "config.json: \"first_k_dense_replace\" is %u, but \"mlp_layer_types\"%s has %u dense layers",
                m->dense_layers, field(r, "mlp_layer_types") ? "" : " is absent: HF", listed);
  return OK;
}

static status read_experts(const reader *r, const family *f) {
  plan_model *m = &r->config->plan;
  bool is_v3 = !f->is_softmax;
  bool normalise = is_v3;
  double scale = 1;
  const json_t *experts = json_object_get(r->object, "n_routed_experts");
  if (f->is_dense && field(r, "n_routed_experts"))
    return FAIL(ERR_UNSUPPORTED, "config.json: \"n_routed_experts\" is set, but a model of this model_type has no experts");
  if (!f->is_dense && !experts) return missing(r, "n_routed_experts");
  if (!f->is_dense) TRY(read_dense_layers(r, f));
  m->scoring = is_v3 ? ROUTER_SIGMOID : ROUTER_SOFTMAX;
  m->groups = m->top_groups = 1;
  if (f->is_dense || json_is_null(experts) || m->dense_layers >= m->layers) { /* no layer has experts */
    m->dense_layers = m->layers;
    m->routed_scale = 1;
    return OK;
  }
  TRY(require_text(r, "scoring_func", is_v3 ? "sigmoid" : "softmax"));
  TRY(read_count(r, "n_routed_experts", 8, EXPERTS_MAX, 8, -1, &m->experts));
  TRY(read_count(r, "num_experts_per_tok", 1, TOP_K_EXPERTS_MAX, 1, -1, &m->top_k));
  if (m->top_k > m->experts)
    return FAIL(ERR_FORMAT, "config.json: \"num_experts_per_tok\" is %u, more than \"n_routed_experts\" %u", m->top_k, m->experts);
  TRY(read_count(r, "moe_intermediate_size", 64, 16 * HIDDEN_MAX, 64, -1, &m->moe_inter));
  if (json_object_get(r->object, "n_shared_experts") == NULL || field(r, "n_shared_experts"))
    TRY(read_count(r, "n_shared_experts", 0, 16, 1, f->shared_experts, &m->shared_experts));
  TRY(read_groups(r, f));
  TRY(read_flag(r, "norm_topk_prob", is_v3, &normalise));
  TRY(read_real(r, "routed_scaling_factor", 1e-6, 1000, f->routed_scale, &scale));
  m->normalise = normalise;
  m->routed_scale = !is_v3 && normalise ? 1.0f : (float)scale; /* DeepSeek-V2 either normalises or scales */
  return OK;
}

static status read_token(const reader *r, const char *name, const json_t *value, uint32_t *out) {
  uint32_t vocab = r->config->plan.vocab;
  json_int_t id = json_integer_value(value);
  if (!json_is_integer(value))
    return FAIL(ERR_FORMAT, "config.json: \"%s\": expected token ids, found %s", name, type_name(value));
  if (id < 0 || id >= (json_int_t)vocab)
    return FAIL(ERR_FORMAT, "config.json: \"%s\" is %lld, outside the vocabulary of %u", name, (long long)id, vocab);
  *out = (uint32_t)id;
  return OK;
}

static status read_specials(const reader *r) {
  plan_model *m = &r->config->plan;
  const json_t *bos = field(r, "bos_token_id"), *eos = field(r, "eos_token_id");
  m->bos = UINT32_MAX;
  if (bos) TRY(read_token(r, "bos_token_id", bos, &m->bos));
  if (!eos) return OK; /* generation ends by length or by ids given with the request */
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

/* === Rotary positions =================================================================================================== */

static status read_yarn(const reader *r, rope_config *rope) {
  bool truncate = true;
  uint32_t length = 0;
  TRY(read_count(r, "original_max_position_embeddings", 1, 1u << 30, 1, -1, &length));
  TRY(read_real(r, "factor", 1, 1e6, (double)NAN, &rope->factor));
  TRY(read_real(r, "beta_fast", 1e-3, 1e6, 32, &rope->beta_fast));
  TRY(read_real(r, "beta_slow", 1e-3, 1e6, 1, &rope->beta_slow));
  if (rope->beta_fast < rope->beta_slow)
    return FAIL(ERR_FORMAT, "config.json: \"%sbeta_fast\" is less than \"beta_slow\"", r->prefix);
  TRY(read_real(r, "mscale", 0, 100, 0, &rope->mscale));
  TRY(read_real(r, "mscale_all_dim", 0, 100, 0, &rope->mscale_all_dim));
  TRY(read_real(r, "attention_factor", 0, 100, 0, &rope->attention_factor));
  TRY(read_flag(r, "truncate", true, &truncate));
  rope->truncate = truncate;
  rope->original_length = length;
  rope->yarn = 1;
  return OK;
}

/* Older configs: rope_theta and rope_scaling {type}. Newer: rope_parameters {rope_type, rope_theta}. */
static status read_rope_object(const reader *top, const char *name, const char *prefix, rope_config *rope) {
  const json_t *object = field(top, name), *inner;
  const char *key, *kind = NULL;
  const char *other = NULL;
  if (!object) return OK;
  if (!json_is_object(object)) return FAIL(ERR_FORMAT, "config.json: \"%s\": expected an object, found %s", name, type_name(object));
  json_object_foreach((json_t *)object, key, inner)
    if (!is_among(key, ROPE_FIELDS, ARRAY_LEN(ROPE_FIELDS)))
      return FAIL(ERR_UNSUPPORTED, "config.json: field \"%s%.64s\" is not known and could change the arithmetic", prefix, key);
  const reader r = {object, prefix, top->config};
  TRY(require_whole_rope(&r));
  TRY(read_text(&r, "rope_type", "", &kind));
  TRY(read_text(&r, "type", kind, &other));
  if (kind[0] == 0) kind = other;
  if (strcmp(kind, other) != 0) return FAIL(ERR_FORMAT, "config.json: \"%stype\" and \"%srope_type\" differ", prefix, prefix);
  if (kind[0] == 0) kind = "default";
  if (field(&r, "rope_theta")) {
    double theta = 0;
    TRY(read_real(&r, "rope_theta", 1.5, 1e12, 0, &theta));
    if (rope->theta != 0 && rope->theta != theta)
      return FAIL(ERR_FORMAT, "config.json: \"rope_theta\" is %g, but \"%srope_theta\" is %g", rope->theta, prefix, theta);
    rope->theta = theta;
  }
  if (strcmp(kind, "default") == 0) return OK;
  if (strcmp(kind, "yarn") == 0) return read_yarn(&r, rope);
  return FAIL(ERR_UNSUPPORTED, "config.json: \"%stype\" is \"%.64s\"; default and yarn are supported", prefix, kind);
}

static status read_rope(const reader *r) {
  plan_model *m = &r->config->plan;
  rope_config rope = {0};
  if (field(r, "rope_scaling") && field(r, "rope_parameters"))
    return FAIL(ERR_FORMAT, "config.json: both \"rope_scaling\" and \"rope_parameters\" are set; hint: keep one");
  if (field(r, "rope_theta")) TRY(read_real(r, "rope_theta", 1.5, 1e12, 0, &rope.theta));
  TRY(read_rope_object(r, "rope_scaling", "rope_scaling.", &rope));
  TRY(read_rope_object(r, "rope_parameters", "rope_parameters.", &rope));
  if (rope.theta == 0) {
    rope.theta = 10000;
    list_add(r->config->assumed, "rope_theta = 10000");
  }
  rope_inv_freq(&rope, m->rope_dim, m->inv_freq);
  m->rope_attention_factor = rope_attention_factor(&rope);
  m->softmax_scale_log2 = rope_scale_log2(&rope, m->nope_dim + m->rope_dim);
  return OK;
}

/* === The whole ========================================================================================================== */

static status read_all(const json_t *root, model_config *config) {
  const reader r = {root, "", config};
  const family *f = NULL;
  if (!json_is_object(root)) return FAIL(ERR_FORMAT, "config.json: expected an object, found %s", type_name(root));
  TRY(read_family(&r, &f)); /* first, so that another model is named as such and not by its first odd field */
  TRY(check_names(&r));
  TRY(require_fixed(&r));
  TRY(read_tie(&r, f));
  TRY(read_shape(&r, f));
  TRY(read_experts(&r, f));
  TRY(read_specials(&r));
  return read_rope(&r);
}

status model_config_parse(const char *text, size_t bytes, model_config *out) {
  json_error_t error;
  if (bytes > FILE_CONFIG_BYTES_MAX)
    return FAIL(ERR_LIMIT, "config.json: %zu bytes, at most %u", bytes, FILE_CONFIG_BYTES_MAX);
  json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
  if (!root) return FAIL(ERR_FORMAT, "config.json: line %d, column %d: %s", error.line, error.column, error.text);
  model_config *config = &(model_config){0};
  status result = read_all(root, config);
  json_decref(root);
  if (result == OK) *out = *config;
  return result;
}

/* config_grouped.c - see config_grouped.h. A table has what a model_type decides; a field that its HF class does not know is refused. */
#include "config_grouped.h"
#include <string.h>
#include "config_common.h"
#include "config_experts.h"
#include "config_rope.h"

#define ROPE_OF_ALL (1u << ROPE_PLAIN | 1u << ROPE_YARN | 1u << ROPE_LONG | 1u << ROPE_LLAMA3 | 1u << ROPE_LINEAR)
#define ROPE_HALVES {.pairs = CONFIG_ROPE_HALVES, .kinds = ROPE_OF_ALL, .is_share_of_head = true, .is_scale_plain = true}
#define ROPE_NEIGHBOURS {.pairs = CONFIG_ROPE_NEIGHBOURS, .kinds = ROPE_OF_ALL, .is_share_of_head = true, .is_scale_plain = true}
#define EXPERTS_OF_GLM \
  {.router = CONFIG_ROUTER_V3, .dense_layers = 1, .shared_experts = 1, .groups = 1, .top_groups = 1, .routed_scale = 1}

#define BIASED_BY(field, by_it) .bias_field = (field), .biased = (by_it)
#define BIAS_ATTENTION (BIAS_QKV | BIAS_OUTPUT)

enum window_rule {
  WINDOW_NEVER = 0, /* HF's class has no window             */
  WINDOW_SET = 1,   /* sliding_window, unless null          */
  WINDOW_USED = 2   /* the same, if use_sliding_window is true */
};

typedef struct family { /* what a model_type decides, and HF's values for absent fields */
  const char *model_type, *architecture;
  const char *own_fields[3]; /* no other class knows them */
  const char *bias_field;    /* states whether products of the attention have biases; NULL: no field does */
  bool has_bias;             /* without that field */
  uint32_t biased;           /* by which field, of enum plan_bias: BIAS_FEED by mlp_bias, which then may be true; others by bias_field */
  bool is_tied, may_be_e4m3, fuses_qkv, fuses_gate_up, may_rotate_part, is_dense;
  uint32_t qk_norm, norms;   /* enums plan_qk_norm and plan_norms; use_qk_norm may say that there is no norm */
  uint32_t window_rule, window;
  uint32_t kv_heads;         /* 0: as many as heads            */
  uint32_t head_dim;         /* 0: hidden_size / heads         */
  double share;              /* of a head's columns is rotated */
  double norm_eps;
  config_experts_rules experts;
  config_rope_rules rope;
} family;

static const family FAMILIES[] = {
    {"llama", "LlamaForCausalLM", BIASED_BY("attention_bias", BIAS_ALL), .may_be_e4m3 = true, .is_dense = true, .share = 1,
     .norm_eps = 1e-6, .rope = ROPE_HALVES},
    {"mistral", "MistralForCausalLM", .may_be_e4m3 = true, .is_dense = true, .kv_heads = 8, .share = 1, .norm_eps = 1e-6,
     .window_rule = WINDOW_SET, .window = 4096, .rope = ROPE_HALVES},
    {"qwen2", "Qwen2ForCausalLM", {"use_mrope"}, .has_bias = true, .biased = BIAS_QKV, .may_be_e4m3 = true, .is_dense = true,
     .kv_heads = 32, .share = 1, .norm_eps = 1e-6, .window_rule = WINDOW_USED, .window = 4096, .rope = ROPE_HALVES},
    {"qwen2_moe", "Qwen2MoeForCausalLM", {"qkv_bias"}, BIASED_BY("qkv_bias", BIAS_QKV), .has_bias = true, .kv_heads = 16, .share = 1,
     .norm_eps = 1e-6, .window_rule = WINDOW_USED, .window = 4096, .experts = {.router = CONFIG_ROUTER_QWEN, .shared_columns = 5632},
     .rope = ROPE_HALVES},
    {"qwen3", "Qwen3ForCausalLM", BIASED_BY("attention_bias", BIAS_ATTENTION), .may_be_e4m3 = true, .is_dense = true,
     .qk_norm = QK_NORM_HEAD, .kv_heads = 32, .head_dim = 128, .share = 1, .norm_eps = 1e-6, .window_rule = WINDOW_USED, .window = 4096,
     .rope = ROPE_HALVES},
    {"qwen3_moe", "Qwen3MoeForCausalLM", BIASED_BY("attention_bias", BIAS_ATTENTION), .may_be_e4m3 = true, .qk_norm = QK_NORM_HEAD,
     .kv_heads = 4, .share = 1, .norm_eps = 1e-6, .window_rule = WINDOW_USED, .window = 4096,
     .experts = {.router = CONFIG_ROUTER_QWEN}, .rope = ROPE_HALVES},
    {"glm4", "Glm4ForCausalLM", BIASED_BY("attention_bias", BIAS_QKV), .has_bias = true, .fuses_gate_up = true,
     .may_rotate_part = true, .is_dense = true, .norms = NORMS_AROUND, .kv_heads = 2, .head_dim = 128, .share = 0.5, .norm_eps = 1.5625e-7,
     .rope = ROPE_NEIGHBOURS},
    {"glm4_moe", "Glm4MoeForCausalLM", {"use_qk_norm"}, BIASED_BY("attention_bias", BIAS_QKV), .may_be_e4m3 = true,
     .may_rotate_part = true, .qk_norm = QK_NORM_HEAD, .kv_heads = 8, .share = 0.5, .norm_eps = 1e-5, .experts = EXPERTS_OF_GLM,
     .rope = ROPE_HALVES},
    {"olmo2", "Olmo2ForCausalLM", BIASED_BY("attention_bias", BIAS_ATTENTION), .is_dense = true, .qk_norm = QK_NORM_ROW,
     .norms = NORMS_AFTER, .share = 1, .norm_eps = 1e-5, .rope = ROPE_HALVES},
    {"phi3", "Phi3ForCausalLM", {"original_max_position_embeddings", "lm_head_bias"}, .fuses_qkv = true, .fuses_gate_up = true,
     .may_rotate_part = true, .is_dense = true, .share = 1, .norm_eps = 1e-5, .window_rule = WINDOW_SET,
     .rope = {.pairs = CONFIG_ROPE_HALVES, .kinds = 1u << ROPE_PLAIN | 1u << ROPE_LONG, .is_share_of_head = true, .is_scale_plain = true,
              .outer_length = 4096}},
    {"smollm3", "SmolLM3ForCausalLM", {"no_rope_layers", "no_rope_layer_interval"}, BIASED_BY("attention_bias", BIAS_ALL),
     .is_tied = true, .is_dense = true, .kv_heads = 4, .share = 1, .norm_eps = 1e-6, .window_rule = WINDOW_USED,
     .rope = {.pairs = CONFIG_ROPE_HALVES, .kinds = ROPE_OF_ALL, .is_share_of_head = true, .is_scale_plain = true, .theta = 2e6}},
};

typedef struct grouped_reader {
  const config_reader *fields;
  const family *family;
  model_config *config;
} grouped_reader;

static const family *find_family(const char *type) {
  for (size_t i = 0; i < ARRAY_LEN(FAMILIES); i++)
    if (strcmp(type, FAMILIES[i].model_type) == 0) return &FAMILIES[i];
  return NULL;
}

bool config_grouped_knows(const char *type) { return find_family(type) != NULL; }

/* === Fields ============================================================================================================= */

static const char *const FIELDS_READ[] = {"head_dim", "layer_types"};

/* Dropout of Phi-3's training; what Phi-4-mini's own program reads and HF does not; how tensors were split in training. */
static const char *const FIELDS_IGNORED[] = {"embd_pdrop", "resid_pdrop", "full_attn_mod", "interpolate_factor", "pretraining_tp"};

#define IS_AMONG(name, list) config_field_is_among((name), (list), ARRAY_LEN(list))


static bool is_own(const family *f, const char *name) {
  for (size_t i = 0; i < ARRAY_LEN(f->own_fields) && f->own_fields[i]; i++)
    if (strcmp(f->own_fields[i], name) == 0) return true;
  return false;
}

static status check_names(const grouped_reader *r) {
  const family *f = r->family;
  const char *name;
  json_t *value;
  json_object_foreach((json_t *)r->fields->object, name, value) {
    if (config_common_knows(name) || IS_AMONG(name, FIELDS_READ) || is_own(f, name)) continue;
    if (!f->is_dense && config_experts_knows(&f->experts, name)) continue;
    if (!config_common_ignores(name) && !IS_AMONG(name, FIELDS_IGNORED)) return config_common_refuse(r->fields, name);
    config_common_note_ignored(r->fields, name, value);
  }
  return OK;
}

static status read_bias(const grouped_reader *r) {
  const family *f = r->family;
  bool has_bias = f->has_bias, has_feed_bias = false;
  if (f->bias_field) TRY(config_field_flag(r->fields, f->bias_field, f->has_bias, &has_bias));
  if (!f->bias_field || strcmp(f->bias_field, "attention_bias") != 0)
    TRY(config_field_require_flag(r->fields, "attention_bias", false));
  if (f->biased & BIAS_FEED) TRY(config_field_flag(r->fields, "mlp_bias", false, &has_feed_bias));
  else TRY(config_field_require_flag(r->fields, "mlp_bias", false));
  r->config->grouped.has_bias = (has_bias ? f->biased & (BIAS_QKV | BIAS_OUTPUT) : 0) | (has_feed_bias ? BIAS_FEED : 0);
  return OK;
}

static status read_norms(const grouped_reader *r) {
  plan_grouped *g = &r->config->grouped;
  bool has_qk_norm = !is_own(r->family, "use_qk_norm");
  TRY(config_field_flag(r->fields, "use_qk_norm", has_qk_norm, &has_qk_norm));
  g->qk_norm = has_qk_norm ? r->family->qk_norm : QK_NORM_NONE;
  g->norms = r->family->norms;
  return OK;
}

/* === Heads ============================================================================================================== */

static status read_columns(const grouped_reader *r) {
  const family *f = r->family;
  plan_model *m = &r->config->plan;
  uint32_t columns = f->head_dim ? f->head_dim : m->hidden / m->heads;
  double share = f->share;
  if (config_field_find(r->fields, "head_dim")) TRY(config_field_count(r->fields, "head_dim", 64, HEAD_DIM_MAX, 16, -1, &columns));
  else if (f->head_dim == 0 && m->hidden % m->heads != 0) return config_field_missing(r->fields, "head_dim");
  if (columns < 64 || columns > HEAD_DIM_MAX || columns % 16 != 0)
    return FAIL(ERR_UNSUPPORTED, "config.json: \"hidden_size\" / \"num_attention_heads\" is %u columns of a head; multiples of 16 from 64 "
                "to %u are supported", columns, HEAD_DIM_MAX);
  if (m->heads * columns % 64 != 0)
    return FAIL(ERR_UNSUPPORTED, "config.json: \"num_attention_heads\" * \"head_dim\" is %u, not a multiple of 64", m->heads * columns);
  if (f->may_rotate_part) TRY(config_rope_read_share(r->fields, f->share, &share));
  m->rope_dim = (uint32_t)(columns * share);
  if (m->rope_dim < 8 || m->rope_dim % 8 != 0)
    return FAIL(ERR_UNSUPPORTED, "config.json: \"partial_rotary_factor\" is %g, which is %u of a head's %u columns; expected a multiple of "
                "8", share, m->rope_dim, columns);
  m->nope_dim = columns - m->rope_dim;
  m->v_dim = columns;
  return OK;
}

static status read_heads(const grouped_reader *r) {
  const family *f = r->family;
  const uint32_t heads = r->config->plan.heads;
  const bool has_default = f->kv_heads > 0 && !config_field_exists(r->fields, "num_key_value_heads");
  uint32_t *kv_heads = &r->config->grouped.kv_heads;
  TRY(config_field_count(r->fields, "num_key_value_heads", 1, HEADS_MAX, 1, has_default ? f->kv_heads : heads, kv_heads));
  if (heads % *kv_heads != 0)
    return FAIL(ERR_FORMAT, "config.json: \"num_attention_heads\" %u is not a multiple of \"num_key_value_heads\" %u", heads, *kv_heads);
  if (heads / *kv_heads > GROUP_HEADS_MAX)
    return FAIL(ERR_UNSUPPORTED, "config.json: %u of \"num_attention_heads\" share one of \"num_key_value_heads\"; at most %u are "
                "supported", heads / *kv_heads, GROUP_HEADS_MAX);
  return read_columns(r);
}

/* === Layers ============================================================================================================= */

/* Which layers have the window (max_window_layers) does not matter for sequences that fit into it. */
static status read_window(const grouped_reader *r) {
  const family *f = r->family;
  const bool is_stated = config_field_exists(r->fields, "sliding_window");
  bool is_used = true;
  if (f->window_rule == WINDOW_NEVER) {
    TRY(config_field_require_flag(r->fields, "use_sliding_window", false));
    return config_field_require_absent(r->fields, "sliding_window");
  }
  if (f->window_rule == WINDOW_USED) TRY(config_field_flag(r->fields, "use_sliding_window", false, &is_used));
  if (!is_used || (is_stated ? !config_field_find(r->fields, "sliding_window") : f->window == 0)) return OK;
  return config_field_count(r->fields, "sliding_window", 1, 1u << 30, 1, f->window, &r->config->window);
}

static status check_layer_types(const grouped_reader *r) {
  const json_t *types = config_field_find(r->fields, "layer_types");
  const uint32_t layers = r->config->plan.layers;
  if (!types) return OK;
  if (!json_is_array(types) || json_array_size(types) != layers)
    return FAIL(ERR_FORMAT, "config.json: \"layer_types\": expected a list of \"num_hidden_layers\" = %u names", layers);
  for (uint32_t i = 0; i < layers; i++) {
    const char *type = json_string_value(json_array_get(types, i));
    if (!type || strcmp(type, "full_attention") != 0)
      return FAIL(ERR_UNSUPPORTED, "config.json: \"layer_types\": \"%.64s\" at layer %u; only full_attention is "
                  "supported", type ? type : "?", i);
  }
  return OK;
}

/* SmolLM3 has layers without rotation: a list of 1 (rotates) and 0, or every fourth or other layer. */
static status read_unrotated(const grouped_reader *r) {
  const json_t *list = config_field_find(r->fields, "no_rope_layers");
  const uint32_t layers = r->config->plan.layers;
  uint64_t *unrotated = r->config->grouped.unrotated;
  uint32_t interval = 4;
  if (!is_own(r->family, "no_rope_layers")) return OK;
  if (list && (!json_is_array(list) || json_array_size(list) < layers))
    return FAIL(ERR_FORMAT, "config.json: \"no_rope_layers\": expected a list of \"num_hidden_layers\" = %u numbers", layers);
  if (!list) TRY(config_field_count(r->fields, "no_rope_layer_interval", 1, LAYERS_MAX, 1, 4, &interval));
  for (uint32_t i = 0; i < layers; i++) {
    const json_t *item = json_array_get(list, i);
    json_int_t rotates = list ? json_integer_value(item) : (i + 1) % interval != 0;
    if (list && (!json_is_integer(item) || rotates < 0 || rotates > 1))
      return FAIL(ERR_FORMAT, "config.json: \"no_rope_layers\": expected 0 or 1 at layer %u, found another value", i);
    if (!rotates) unrotated[i / 64] |= UINT64_C(1) << i % 64;
  }
  return OK;
}

/* === The model ========================================================================================================== */

static status read_formats(const grouped_reader *r) {
  model_config *c = r->config;
  if (!config_field_find(r->fields, "quantization_config")) return OK;
  if (!r->family->may_be_e4m3 || c->nested) return config_common_refuse_quantised(r->fields);
  if (c->grouped.has_bias & (BIAS_OUTPUT | BIAS_FEED))
    return FAIL(ERR_UNSUPPORTED, "config.json: \"quantization_config\" with \"%s\"; biases of products with e4m3 weights are supported of "
                "queries, keys and values only; hint: use a bf16 copy", c->grouped.has_bias & BIAS_OUTPUT ? "attention_bias" : "mlp_bias");
  return config_quant_read(r->fields, &c->plan, &c->grouped, &c->quant, &c->products);
}

static status read_experts(const grouped_reader *r) {
  plan_model *m = &r->config->plan;
  m->groups = m->top_groups = 1;
  m->routed_scale = 1;
  m->dense_layers = m->layers;
  if (r->family->is_dense) return OK;
  TRY(config_experts_read(r->fields, &r->family->experts, m));
  r->config->grouped.shared_gate = r->family->experts.shared_columns > 0 && m->shared_experts > 0;
  return OK;
}

status config_grouped_read(const config_reader *fields, const char *type, model_config *config) {
  const family *f = find_family(type);
  const grouped_reader r = {fields, f, config};
  plan_model *m = &config->plan;
  ASSERT(f != NULL);
  TRY(config_common_check_architecture(fields, f->architecture));
  TRY(check_names(&r));
  TRY(config_common_require_fixed(fields));
  TRY(config_field_require_flag(fields, "use_mrope", false));
  TRY(config_field_require_flag(fields, "lm_head_bias", false));
  TRY(config_common_read_tie(fields, f->is_tied, &config->is_tied));
  TRY(config_common_read_sizes(fields, f->norm_eps, m, &config->max_position));
  TRY(read_heads(&r));
  TRY(read_bias(&r));
  TRY(read_norms(&r));
  TRY(read_window(&r));
  TRY(check_layer_types(&r));
  TRY(read_unrotated(&r));
  TRY(read_experts(&r));
  TRY(config_common_read_tokens(fields, m));
  TRY(read_formats(&r));
  config->fuses_qkv = f->fuses_qkv;
  config->fuses_gate_up = f->fuses_gate_up;
  m->embed_scale = m->residual_scale = m->head_scale = 1;
  return config_rope_read(fields, &f->rope, config->max_position, m, &config->rope);
}

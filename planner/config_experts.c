/* config_experts.c - see config_experts.h. */
#include "config_experts.h"
#include <string.h>
#include "abi.h"

#define SHARED_MAX 16u

typedef struct experts_reader {
  const config_reader *fields;
  const config_experts_rules *rules;
  plan_model *model;
} experts_reader;

static const char *const FIELDS[] = {
    "n_routed_experts", "num_local_experts", "num_experts_per_tok", "n_shared_experts", "moe_intermediate_size", "first_k_dense_replace",
    "moe_layer_freq", "n_group", "topk_group", "topk_method", "scoring_func", "norm_topk_prob", "routed_scaling_factor", "ep_size",
    "mlp_layer_types", "moe_router_dtype",
};
static const char *const FIELDS_OF_QWEN[] = {"num_experts", "num_local_experts", "num_experts_per_tok", "moe_intermediate_size",
                                             "norm_topk_prob", "decoder_sparse_step", "mlp_only_layers"};

bool config_experts_knows(const config_experts_rules *rules, const char *field) {
  if (rules->router != CONFIG_ROUTER_QWEN) return config_field_is_among(field, FIELDS, ARRAY_LEN(FIELDS));
  if (rules->shared_columns > 0 && strcmp(field, "shared_expert_intermediate_size") == 0) return true;
  return config_field_is_among(field, FIELDS_OF_QWEN, ARRAY_LEN(FIELDS_OF_QWEN));
}

/* === Groups ============================================================================================================= */

static status read_method(const experts_reader *r, bool *is_greedy) {
  static const char *const KNOWN[] = {"greedy, group_limited_greedy", "noaux_tc", "none"};
  const char *method = NULL;
  const uint32_t rule = r->rules->router;
  TRY(config_field_text(r->fields, "topk_method", rule == CONFIG_ROUTER_V2 ? "greedy" : rule == CONFIG_ROUTER_V3 ? "noaux_tc" : "",
                        &method));
  *is_greedy = strcmp(method, "greedy") == 0;
  bool is_known = rule == CONFIG_ROUTER_V2   ? *is_greedy || strcmp(method, "group_limited_greedy") == 0
                  : rule == CONFIG_ROUTER_V3 ? strcmp(method, "noaux_tc") == 0
                                             : method[0] == 0;
  if (is_known) return OK;
  return FAIL(ERR_UNSUPPORTED, "config.json: \"topk_method\" is \"%.64s\"; supported for this model_type: %s", method, KNOWN[rule]);
}

static status read_groups(const experts_reader *r) {
  const config_experts_rules *rules = r->rules;
  plan_model *m = r->model;
  bool is_greedy = false;
  m->groups = 1;
  m->top_groups = 1;
  m->group_mode = ROUTER_GROUP_NONE;
  if (rules->router == CONFIG_ROUTER_QWEN) return OK;
  TRY(read_method(r, &is_greedy));
  if (is_greedy && rules->router == CONFIG_ROUTER_V2) return OK; /* groups, if given, are not used */
  TRY(config_field_count(r->fields, "n_group", 1, EXPERT_GROUPS_MAX, 1, rules->groups, &m->groups));
  TRY(config_field_count(r->fields, "topk_group", 1, EXPERT_GROUPS_MAX, 1, rules->top_groups, &m->top_groups));
  if (m->experts % m->groups != 0)
    return FAIL(ERR_FORMAT, "config.json: \"n_routed_experts\" %u is not a multiple of \"n_group\" %u", m->experts, m->groups);
  if (m->top_groups > m->groups)
    return FAIL(ERR_FORMAT, "config.json: \"topk_group\" is %u, more than \"n_group\" %u", m->top_groups, m->groups);
  if (m->groups > 1) m->group_mode = rules->router == CONFIG_ROUTER_V2 ? ROUTER_GROUP_MAX : ROUTER_GROUP_TOP2;
  if (m->group_mode == ROUTER_GROUP_TOP2 && m->experts / m->groups < 2)
    return FAIL(ERR_FORMAT, "config.json: \"n_group\" %u leaves fewer than 2 experts in a group", m->groups);
  if (m->top_k > m->experts / m->groups * m->top_groups)
    return FAIL(ERR_FORMAT, "config.json: \"num_experts_per_tok\" is %u, more than the experts of \"topk_group\" %u groups", m->top_k,
                m->top_groups);
  return OK;
}

/* === Layers ============================================================================================================= */

/* The number of dense layers before the first "sparse" one in mlp_layer_types; UINT32_MAX without the field. */
static status read_layer_types(const experts_reader *r, uint32_t *out) {
  const json_t *types = config_field_find(r->fields, "mlp_layer_types");
  uint32_t dense = 0, layers = r->model->layers;
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

/* Qwen lists dense layers by number; only the first ones can be dense. */
static status read_only_layers(const experts_reader *r) {
  const json_t *list = config_field_find(r->fields, "mlp_only_layers");
  uint32_t step = 1;
  if (config_field_find(r->fields, "decoder_sparse_step")) TRY(config_field_count(r->fields, "decoder_sparse_step", 1, 1, 1, 1, &step));
  if (list && (!json_is_array(list) || json_array_size(list) > r->model->layers))
    return FAIL(ERR_FORMAT, "config.json: \"mlp_only_layers\": expected a list of at most \"num_hidden_layers\" = %u numbers",
                r->model->layers);
  for (uint32_t i = 0; i < json_array_size(list); i++) {
    const json_t *layer = json_array_get(list, i);
    if (!json_is_integer(layer) || json_integer_value(layer) != (json_int_t)i)
      return FAIL(ERR_UNSUPPORTED, "config.json: \"mlp_only_layers\": expected the first layers 0, 1, 2, ... in this order, found another "
                  "at %u", i);
  }
  r->model->dense_layers = (uint32_t)json_array_size(list);
  return OK;
}

static status read_dense_layers(const experts_reader *r) {
  const config_experts_rules *rules = r->rules;
  plan_model *m = r->model;
  uint32_t listed = UINT32_MAX;
  if (rules->router == CONFIG_ROUTER_QWEN) return read_only_layers(r);
  TRY(read_layer_types(r, &listed));
  bool is_list_alone = rules->may_list && listed != UINT32_MAX && !config_field_find(r->fields, "first_k_dense_replace");
  if (is_list_alone) m->dense_layers = listed;
  else TRY(config_field_count(r->fields, "first_k_dense_replace", 0, LAYERS_MAX, 1, rules->dense_layers, &m->dense_layers));
  if (listed == UINT32_MAX) listed = rules->is_layer_typed ? (uint32_t)rules->dense_layers : m->dense_layers;
  if (m->dense_layers != listed)
    return FAIL(ERR_UNSUPPORTED, "config.json: \"first_k_dense_replace\" is %u, but \"mlp_layer_types\"%s has %u dense layers",
                m->dense_layers, config_field_find(r->fields, "mlp_layer_types") ? "" : " is absent: HF", listed);
  return OK;
}

/* === Experts ============================================================================================================ */

/* The field that states the number of experts: HF has two names for it. */
static status find_experts(const experts_reader *r, const char **name) {
  const char *const names[] = {r->rules->router == CONFIG_ROUTER_QWEN ? "num_experts" : "n_routed_experts", "num_local_experts"};
  const json_t *first = config_field_find(r->fields, names[0]), *second = config_field_find(r->fields, names[1]);
  if (first && second && !json_equal(first, second))
    return FAIL(ERR_FORMAT, "config.json: \"%s\" and \"%s\" differ", names[0], names[1]);
  *name = names[second && !first];
  return OK;
}

/* How the experts' weights are made of their scores. modeling_deepseek.py, which comes with DeepSeek's checkpoints, normalises if more than
 * one expert is taken, and with V2's rule it then does not scale. HF never normalises with V2's rule and always scales. */
static void set_weights(const experts_reader *r, bool normalise, float scale) {
  plan_model *m = r->model;
  const bool is_v2 = r->rules->router == CONFIG_ROUTER_V2, is_one = m->top_k == 1;
  m->normalise = normalise && !(is_v2 && is_one);
  m->routed_scale = is_v2 && m->normalise ? 1.0f : scale;
  if (is_v2 && m->normalise)
    config_field_note(r->fields->notes->chosen, "norm_topk_prob true normalises and does not scale, as modeling_deepseek.py does; HF "
                      "scales and does not normalise");
  if (!is_v2 && m->normalise && is_one && r->rules->is_deepseek)
    config_field_note(r->fields->notes->chosen, "norm_topk_prob true normalises one expert, as HF does; modeling_deepseek.py does not");
}

static status read_shared(const experts_reader *r) {
  const config_reader *c = r->fields;
  plan_model *m = r->model;
  uint32_t columns = 0;
  if (r->rules->router != CONFIG_ROUTER_QWEN) {
    if (config_field_exists(c, "n_shared_experts") && !config_field_find(c, "n_shared_experts")) return OK;
    return config_field_count(c, "n_shared_experts", 0, SHARED_MAX, 1, r->rules->shared_experts, &m->shared_experts);
  }
  if (r->rules->shared_columns == 0) return OK;
  TRY(config_field_count(c, "shared_expert_intermediate_size", 64, 16 * HIDDEN_MAX, 64, r->rules->shared_columns, &columns));
  if (columns % m->moe_inter != 0 || columns / m->moe_inter > SHARED_MAX)
    return FAIL(ERR_UNSUPPORTED, "config.json: \"shared_expert_intermediate_size\" is %u; 1 to %u times \"moe_intermediate_size\" = %u are "
                "supported", columns, SHARED_MAX, m->moe_inter);
  m->shared_experts = columns / m->moe_inter;
  return OK;
}

static status read_router(const experts_reader *r, const char *experts_name) {
  const config_reader *c = r->fields;
  const config_experts_rules *rules = r->rules;
  plan_model *m = r->model;
  bool normalise = rules->router == CONFIG_ROUTER_V3 || rules->router == CONFIG_ROUTER_MISTRAL;
  double scale = 1;
  TRY(config_field_require_text(c, "scoring_func", rules->router == CONFIG_ROUTER_V3 ? "sigmoid" : "softmax"));
  TRY(config_field_count(c, experts_name, 8, EXPERTS_MAX, 2, -1, &m->experts));
  TRY(config_field_count(c, "num_experts_per_tok", 1, TOP_K_EXPERTS_MAX, 1, -1, &m->top_k));
  if (m->top_k > m->experts)
    return FAIL(ERR_FORMAT, "config.json: \"num_experts_per_tok\" is %u, more than \"%s\" %u", m->top_k, experts_name, m->experts);
  TRY(config_field_count(c, "moe_intermediate_size", 64, 16 * HIDDEN_MAX, 64, -1, &m->moe_inter));
  TRY(read_shared(r));
  TRY(read_groups(r));
  TRY(config_field_flag(c, "norm_topk_prob", normalise, &normalise));
  if (rules->router != CONFIG_ROUTER_QWEN) TRY(config_field_real(c, "routed_scaling_factor", 1e-6, 1000, rules->routed_scale, &scale));
  set_weights(r, normalise, (float)scale);
  return OK;
}

status config_experts_read(const config_reader *fields, const config_experts_rules *rules, plan_model *m) {
  const experts_reader r = {fields, rules, m};
  static const char *const ONES[] = {"moe_layer_freq", "ep_size"};
  const char *name = NULL;
  uint32_t one = 0;
  for (size_t i = 0; i < ARRAY_LEN(ONES); i++)
    if (config_field_find(fields, ONES[i])) TRY(config_field_count(fields, ONES[i], 1, 1, 1, 1, &one));
  TRY(config_field_require_text(fields, "moe_router_dtype", "float32"));
  TRY(find_experts(&r, &name));
  bool has_experts = config_field_find(fields, name);
  if (rules->is_dense && has_experts)
    return FAIL(ERR_UNSUPPORTED, "config.json: \"%s\" is set, but a model of this model_type has no experts", name);
  if (!rules->is_dense && !config_field_exists(fields, name)) return config_field_missing(fields, name);
  if (!rules->is_dense) TRY(read_dense_layers(&r));
  m->scoring = rules->router == CONFIG_ROUTER_V3 ? ROUTER_SIGMOID : ROUTER_SOFTMAX;
  m->groups = m->top_groups = 1;
  if (has_experts && m->dense_layers < m->layers) return read_router(&r, name);
  m->dense_layers = m->layers; /* no layer has experts */
  m->routed_scale = 1;
  return OK;
}

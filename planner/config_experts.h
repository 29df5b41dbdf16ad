/* config_experts.h - the fields of config.json for layers with experts: how many, which layers have them, how a token's are chosen and
 * weighted, the shared ones.
 *
 * Knows the fields of DeepSeek's models and of Qwen's. Knows no model; what a model_type decides comes as rules. Read next:
 * model_config.h. */
#ifndef VERBATIM_CONFIG_EXPERTS_H
#define VERBATIM_CONFIG_EXPERTS_H
#include "engine/base/base.h"
#include "config_field.h"
#include "engine/plan/format.h"

enum config_router { /* how experts are chosen and weighted, as in HF's classes */
  CONFIG_ROUTER_V2 = 0,      /* softmax scores; groups by their best expert; weights normalised or scaled  */
  CONFIG_ROUTER_V3 = 1,      /* sigmoid scores and a bias; groups by their best two; normalised and scaled */
  CONFIG_ROUTER_MISTRAL = 2, /* as V3 with softmax scores and no bias                                      */
  CONFIG_ROUTER_QWEN = 3     /* softmax scores; no groups; weights normalised or not; other fields         */
};

typedef struct config_experts_rules { /* and HF's values for absent fields; -1: required */
  uint32_t router;     /* enum config_router */
  bool is_dense;       /* no layer has experts */
  bool is_layer_typed; /* HF reads mlp_layer_types, by default one dense layer, and not first_k_dense_replace */
  bool may_list;       /* HF prefers mlp_layer_types to first_k_dense_replace */
  bool is_deepseek;    /* comes with modeling_deepseek.py, which does not normalise the weight of one expert */
  int32_t dense_layers, shared_experts, groups, top_groups;
  int32_t shared_columns; /* Qwen's shared expert has its own size; 0: there is none */
  double routed_scale;
} config_experts_rules;

bool config_experts_knows(const config_experts_rules *rules, const char *field);

/* model: its layers are input; sets everything about experts, groups and dense layers. */
status config_experts_read(const config_reader *r, const config_experts_rules *rules, plan_model *model);

#endif

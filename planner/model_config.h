/* model_config.h - reads and checks config.json of a model folder.
 *
 * Knows the fields of deepseek_v2, deepseek_v3, deepseek_v32, kimi_k2, glm4_moe_lite, glm_moe_dsa, youtu, minicpm3 and mistral4 as
 * published and as HF transformers 5.17 (the sparse ones: 5.23) writes them, and the families of config_grouped.h; also as the
 * "text_config" or "language_config" of another model. Unknown fields are refused by name, because they might change the arithmetic. Knows
 * nothing of plans' ops. Read next: config_common.h, config_rope.h, config_index.h, config_quant.h, graph.h. */
#ifndef VERBATIM_MODEL_CONFIG_H
#define VERBATIM_MODEL_CONFIG_H
#include "engine/base/base.h"
#include "config_field.h"
#include "config_quant.h"
#include "engine/plan/format.h"
#include "rope.h"

typedef struct model_config {
  plan_model plan;       /* complete except for latent_eps, which the deployment chooses, and inv_freq */
  plan_grouped grouped;  /* all zero: latent attention */
  plan_quant quant;      /* complete except for what a deployment chooses: the KV format */
  config_quant products; /* which products are e4m3 */
  rope_config rope;      /* determines inv_freq */
  uint32_t max_position; /* tokens the model supports */
  uint32_t window;       /* a token attends to so many, itself included: sequences up to here are computed without; 0: to all */
  bool fuses_qkv;        /* the files hold self_attn.qkv_proj and not q_proj, k_proj, v_proj: in this order */
  bool fuses_gate_up;    /* the files hold mlp.gate_up_proj and not gate_proj, up_proj: in this order */
  uint32_t prediction_layers; /* behind the last layer, for drafts */
  bool may_predict;      /* their number is read */
  uint32_t is_tied;      /* the head reads the embedding; not a constant of the plan's arithmetic */
  const char *nested;    /* the field of another model that holds it, a static text; NULL: it stands alone */
  config_notes notes;
} model_config;

/* text: bytes of config.json, not NUL-terminated, at most FILE_CONFIG_BYTES_MAX. ERR_FORMAT: not JSON, or a field is missing, of the wrong
 * type or out of range. ERR_UNSUPPORTED: a field asks for something Verbatim lacks. The message names the field. */
status model_config_parse(const char *text, size_t bytes, model_config *out);

/* The model of a plan for sequences of up to max_len tokens: with inv_freq, still without latent_eps. */
plan_model model_config_plan(const model_config *config, uint32_t max_len);

/* Experts are ranked by score + e_score_correction_bias. */
static inline bool model_config_has_bias(const plan_model *model) { return model->scoring == 1u /* ROUTER_SIGMOID */; }

#endif

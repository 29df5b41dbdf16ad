/* config_common.h - the fields of config.json that every supported model has, whatever its attention: sizes, tokens, number formats, and
 * the fields without influence on inference.
 *
 * Knows no model; what a model_type decides comes as an argument. Read next: config_experts.h, config_rope.h, model_config.h. */
#ifndef VERBATIM_CONFIG_COMMON_H
#define VERBATIM_CONFIG_COMMON_H
#include "engine/base/base.h"
#include "config_field.h"
#include "engine/plan/format.h"

/* The supported values of model_type, for messages. */
#define CONFIG_COMMON_TYPES \
  "deepseek_v2, deepseek_v3, deepseek_v32, kimi_k2, glm4_moe_lite, glm_moe_dsa, youtu, minicpm3, mistral4, llama, mistral, qwen2, " \
  "qwen2_moe, qwen3, qwen3_moe, glm4, glm4_moe, olmo2, phi3 and smollm3"

/* A field of the functions below, of config_rope.h or of config_quant.h; and one without influence on inference. */
bool config_common_knows(const char *field);
bool config_common_ignores(const char *field);
void config_common_note_ignored(const config_reader *r, const char *field, const json_t *value);

/* ERR_UNSUPPORTED, for a field that is neither read nor ignored. */
status config_common_refuse(const config_reader *r, const char *field);

status config_common_check_architecture(const config_reader *r, const char *expected);

/* Requires numbers that are not quantised to be bf16. */
status config_common_require_bf16(const config_reader *r);

/* Fields that must have the one value that is implemented, bf16 among them. */
status config_common_require_fixed(const config_reader *r);
status config_common_refuse_quantised(const config_reader *r);

/* fallback: HF's value for an absent field. */
status config_common_read_tie(const config_reader *r, bool fallback, uint32_t *is_tied);

/* Sets vocab, hidden, layers, heads, inter and norm_eps of *model. norm_eps: HF's value for an absent field. */
status config_common_read_sizes(const config_reader *r, double norm_eps, plan_model *model, uint32_t *max_position);

/* Sets bos and eos of *model, whose vocab is input. */
status config_common_read_tokens(const config_reader *r, plan_model *model);

#endif

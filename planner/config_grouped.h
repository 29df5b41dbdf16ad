/* config_grouped.h - reads config.json of the families with grouped-query attention.
 *
 * Knows the fields of llama, mistral, qwen2, qwen2_moe, qwen3, qwen3_moe, glm4, glm4_moe, olmo2, phi3 and smollm3 as published and as HF
 * transformers 5.24 writes them. Read next: model_config.h, plan/format_grouped.h, config_experts.h. */
#ifndef VERBATIM_CONFIG_GROUPED_H
#define VERBATIM_CONFIG_GROUPED_H
#include "model_config.h"

bool config_grouped_knows(const char *model_type);

/* type: a model_type that is known. Fills *config, which is zero except for nested. Fails as model_config_parse. */
status config_grouped_read(const config_reader *r, const char *type, model_config *config);

#endif

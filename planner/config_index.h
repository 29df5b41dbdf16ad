/* config_index.h - the fields of config.json for sparse attention: the indexer's shape, its rope, and which layers have one.
 *
 * Knows DeepSeek-V3.2's fields and GLM-5's, whose layers may reuse the choice of an earlier layer (HF: indexer_types). Knows no model. Read
 * next: plan/format_quant.h. */
#ifndef VERBATIM_CONFIG_INDEX_H
#define VERBATIM_CONFIG_INDEX_H
#include "engine/base/base.h"
#include "config_field.h"
#include "engine/plan/format.h"

typedef struct config_index_rules { /* decided by the model_type */
  uint32_t heads;       /* default; 0: its models have no indexer */
  bool are_halves;      /* the pairs of rope columns if indexer_rope_interleave is absent */
  bool may_share;       /* layers may have no indexer                */
} config_index_rules;

bool config_index_knows(const config_index_rules *rules, const char *field);

/* model: its layers and q_lora_rank. Sets the index fields of *quant. */
status config_index_read(const config_reader *r, const config_index_rules *rules, const plan_model *model, plan_quant *quant);

#endif

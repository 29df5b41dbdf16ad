/* config_quant.h - quantization_config of config.json: which products of which layers have e4m3 weights, and how activations are scaled.
 *
 * Knows quant_method fp8 with blocks of 128 x 128, as DeepSeek-V3 is published and HF's FineGrainedFP8Config reads it, and refuses
 * everything else by name. Modules are excluded by name as HF matches them: a name excludes itself and what is inside it, or any longer
 * name that ends with it. Products that are computed as one must have the same format. Read next: plan/format_quant.h, graph.h. */
#ifndef VERBATIM_CONFIG_QUANT_H
#define VERBATIM_CONFIG_QUANT_H
#include "engine/base/base.h"
#include "config_field.h"
#include "engine/plan/format.h"

enum config_product { /* of a layer: what is computed at once, or for kv_b read at once */
  PRODUCT_QKV_A,          /* q_a_proj (or q_proj) and kv_a_proj_with_mqa */
  PRODUCT_Q_B,
  PRODUCT_KV_B,           /* kv_b_proj: e4m3 in the files, bf16 in memory */
  PRODUCT_O,
  PRODUCT_INDEX_Q,        /* indexer.wq_b */
  PRODUCT_INDEX_K,        /* indexer.wk   */
  PRODUCT_GATE_UP,        /* of a dense layer */
  PRODUCT_DOWN,
  PRODUCT_SHARED_GATE_UP, /* of the shared experts */
  PRODUCT_SHARED_DOWN,
  PRODUCT_EXPERTS,        /* all experts of a layer */
  PRODUCT_QKV,            /* of grouped-query attention, which has none of the first three: q_proj, k_proj and v_proj */
  PRODUCT_COUNT
};

typedef struct config_quant {
  uint32_t kept[LAYERS_MAX]; /* bit enum config_product: its weights are bf16 although the model's are e4m3 */
} config_quant;

/* Whether the files hold the product's weights as e4m3 with scales: X.weight and X.weight_scale_inv. */
static inline bool config_quant_is_e4m3(const config_quant *self, const plan_quant *quant, uint32_t layer, enum config_product product) {
  return quant->weight_format == WEIGHTS_E4M3 && (self->kept[layer] >> product & 1) == 0;
}

/* r: the object that contains quantization_config, which must be present; model, grouped: its shapes; *quant: its index fields. Sets
 * weight_format and act_scale. ERR_UNSUPPORTED: another method, or a shape without e4m3 products. */
status config_quant_read(const config_reader *r, const plan_model *model, const plan_grouped *grouped, plan_quant *quant,
                         config_quant *out);

#endif

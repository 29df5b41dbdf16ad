/* plan/format_quant.h - a part of plan/format.h: the number formats of a model, and which layers select the tokens that they attend to.
 *
 * All of it enters the numerics id, except that it is absent from the id of a model with bf16 numbers and dense attention. Knows no
 * backend. Read next: plan/format.h, abi_fp8.h, abi_index.h. */
#ifndef VERBATIM_PLAN_FORMAT_QUANT_H
#define VERBATIM_PLAN_FORMAT_QUANT_H
#include <stdint.h>
#include "base/limits.h"

#define PLAN_KV_SCALE "self_attn.k_scale" /* of a layer: the tensor with the scale of its KV rows under KV_FP8, f32 [1] */

enum plan_weight_format {
  WEIGHTS_BF16 = 0,
  WEIGHTS_E4M3 = 1 /* codes with an fp32 scale for every block of 128 x 128, except for modules that config.json excludes */
};

typedef struct plan_quant { /* differences from bf16 numbers and dense attention; all zero: none */
  uint32_t index_heads;      /* heads of the indexer; 0: dense attention, and the other index fields are 0 */
  uint32_t index_topk;       /* most tokens that a query attends to     */
  uint32_t index_half_split; /* pairs of the indexer's rope columns     */
  uint32_t index_scale;      /* enum scale_kind of its queries and keys */
  uint32_t weight_format;    /* enum plan_weight_format                 */
  uint32_t act_scale;        /* enum scale_kind of WEIGHTS_E4M3's activations */
  uint32_t kv_format;        /* enum kv_format                          */
  uint32_t kv_scale;         /* enum scale_kind of KV_FP8_DS_MLA        */
  uint64_t index_shared[2];  /* bit layer % 64 of word layer / 64: the layer has no indexer and uses the previous layer's top-k lists */
} plan_quant;

_Static_assert(sizeof(plan_quant) == 48 && LAYERS_MAX <= 128, "layout");

/* Whether a layer has an indexer of its own. */
static inline int plan_has_indexer(const plan_quant *quant, uint32_t layer) {
  return quant->index_heads != 0 && (quant->index_shared[layer / 64] >> layer % 64 & 1) == 0;
}

#endif

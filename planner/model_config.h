/* model_config.h - config.json of a model folder, read and checked.
 *
 * Knows the fields of deepseek_v2, deepseek_v3, kimi_k2, glm4_moe_lite and youtu as published and as HF transformers 5.17 writes them,
 * and refuses by name what it does not know: an unknown field might change the arithmetic. Knows nothing of plans' ops.
 * Read next: rope.h, graph.h. */
#ifndef VERBATIM_MODEL_CONFIG_H
#define VERBATIM_MODEL_CONFIG_H
#include "base.h"
#include "plan_format.h"

#define MODEL_CONFIG_NOTE_BYTES 2048u

typedef struct model_config {
  plan_model plan;       /* complete but for latent_eps, which is a choice of the deployment */
  uint32_t max_position; /* tokens the model was made for */
  uint32_t is_tied;      /* the head reads the embedding; no constant of the plan's arithmetic */
  char ignored[MODEL_CONFIG_NOTE_BYTES]; /* "name, name": fields that do not change inference; "" if none */
  char assumed[MODEL_CONFIG_NOTE_BYTES]; /* "name = value, ...": absent fields and what was taken        */
} model_config;

/* text: bytes of config.json, not NUL-terminated, at most FILE_CONFIG_BYTES_MAX. ERR_FORMAT: not JSON, or a field is missing, of the
 * wrong type or out of range. ERR_UNSUPPORTED: a field asks for something Verbatim lacks. The text names the field. */
status model_config_parse(const char *text, size_t bytes, model_config *out);

/* Experts are ranked by score + e_score_correction_bias. */
static inline bool model_config_has_bias(const plan_model *model) { return model->scoring == 1u /* ROUTER_SIGMOID */; }

#endif

/* config_rope.h - the fields of config.json for positions: rope_theta, rope_scaling or rope_parameters, the form of the rotated pairs, the
 * query scale by position.
 *
 * Knows both spellings and no model; what a model_type decides comes as rules. Read next: rope.h. */
#ifndef VERBATIM_CONFIG_ROPE_H
#define VERBATIM_CONFIG_ROPE_H
#include "engine/base/base.h"
#include "config_field.h"
#include "engine/plan/format.h"
#include "rope.h"

enum config_rope_pairs {
  CONFIG_ROPE_BY_FIELD = 0,   /* rope_interleave: neighbours unless it is false */
  CONFIG_ROPE_NEIGHBOURS = 1, /* columns (2i, 2i + 1)                           */
  CONFIG_ROPE_HALVES = 2      /* columns (i, i + half)                          */
};

typedef struct config_rope_rules {
  uint32_t pairs;
  uint32_t kinds;        /* bit enum rope_kind: HF's class knows it; 0: the first three */
  bool is_share_of_head; /* partial_rotary_factor is a share of all columns of a head; else of the rotated ones, where it must be 1 */
  bool has_q_scale;      /* queries grow with llama_4_scaling_beta; HF has no default for it */
  bool is_scale_plain;   /* the softmax scale depends on the columns of a head alone */
  uint32_t outer_length; /* original_max_position_embeddings stands next to rope_scaling, by default this; 0: inside of it */
  double theta;          /* without rope_theta; 0: 10000 */
} config_rope_rules;

/* A share of columns that the fields ask for, or the fallback; config_rope_read checks that all of them agree. */
status config_rope_read_share(const config_reader *r, double fallback, double *share);

/* model: nope_dim and rope_dim are input; rope_half_split, q_scale_beta, q_scale_length, rope_attention_factor and softmax_scale_log2 are
 * set. *rope determines the frequencies once the longest sequence is known. */
status config_rope_read(const config_reader *r, const config_rope_rules *rules, uint32_t max_position, plan_model *model,
                        rope_config *rope);

#endif

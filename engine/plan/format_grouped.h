/* plan/format_grouped.h - a part of plan/format.h: what a decoder with grouped-query attention has and one with latent attention has not.
 *
 * Its heads have nope_dim + rope_dim columns, of which the first rope_dim are rotated, and values v_dim. kv_lora_rank and q_lora_rank are
 * 0.
 * All of it enters the numerics id of such a model, and is absent from that of others. Read next: plan/format.h, abi_grouped.h. */
#ifndef VERBATIM_PLAN_FORMAT_GROUPED_H
#define VERBATIM_PLAN_FORMAT_GROUPED_H
#include <stdint.h>

enum plan_qk_norm {
  QK_NORM_NONE = 0,
  QK_NORM_HEAD = 1, /* of each head of queries and keys; weights [head_dim], shared by the heads */
  QK_NORM_ROW = 2   /* of all heads together; weights [heads][head_dim] and [kv_heads][head_dim] */
};

enum plan_norms { /* of a block, attention or feed-forward part: */
  NORMS_BEFORE = 0, /* its input                            */
  NORMS_AFTER = 1,  /* its output, before it is added to x  */
  NORMS_AROUND = 2  /* both                                 */
};

enum plan_bias { /* bits of has_bias */
  BIAS_QKV = 1,    /* of the projections of queries, keys and values */
  BIAS_OUTPUT = 2, /* of the attention's output projection           */
  BIAS_FEED = 4,   /* of the feed-forward parts' products            */
  BIAS_ALL = 7
};

typedef struct plan_grouped {
  uint32_t kv_heads;     /* a divisor of the heads; 0: latent attention, and all else is 0      */
  uint32_t qk_norm;      /* enum plan_qk_norm, before the rotation                              */
  uint32_t has_bias;     /* of enum plan_bias, which products have biases                       */
  uint32_t norms;        /* enum plan_norms                                                     */
  uint32_t shared_gate;  /* 1: the shared expert's output is multiplied by a sigmoid of a token */
  uint32_t pad;
  uint64_t unrotated[2]; /* bit layer % 64 of word layer / 64: the layer rotates nothing        */
} plan_grouped;

_Static_assert(sizeof(plan_grouped) == 40, "layout");

static inline int plan_is_grouped(const plan_grouped *grouped) { return grouped->kv_heads != 0; }

#endif

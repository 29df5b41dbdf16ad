/* match.h - which tensor of the model's files becomes which tensors of the plan: names, dtypes and shapes, before anything is loaded.
 *
 * A source is a tensor of the files that the plan uses, for one plan tensor or several. Sources are in plan order, scales directly after
 * the tensor that they scale. Does not know the destination of weights. Read next: read.h. */
#ifndef VERBATIM_WEIGHTS_MATCH_H
#define VERBATIM_WEIGHTS_MATCH_H
#include "base/base.h"
#include "base/digest.h"
#include "base/sha256.h"
#include "plan/plan.h"
#include "weights/safetensors.h"
#include "weights/weights.h"

#define MATCH_NONE UINT32_MAX

typedef struct weights_source {
  const safetensor *tensor;
  const char *name;   /* the plan's                                                                                 */
  uint32_t first_use; /* first plan tensor; others follow by next_use; MATCH_NONE: it holds another source's scales */
  uint32_t scales;    /* source of its scales, read with it, or MATCH_NONE                                          */
  digest digest;      /* digest of its bytes, once it has been read                                                 */
  sha256 sha256;      /* and their SHA-256, if the reader takes it; else zeros                                      */
} weights_source;

typedef struct weights_match {
  const plan *plan;
  const safetensors *set;
  const struct weights_naming *naming; /* the files' way of naming tensors */
  weights_source *sources; /* [source_count]                               */
  uint32_t source_count;
  uint32_t *source_of;     /* [tensors of the set]: index in sources, or MATCH_NONE */
  uint32_t *next_use;      /* [plan tensors]: the next one of the same source  */
} weights_match;

/* Errors are those of weights_load. *self is zeroed at first; closed by weights_match_close, also after an error. */
status weights_match_open(weights_match *self, const plan *p, const safetensors *set);
void weights_match_close(weights_match *self);

/* Whether the plan expects fp32 and the files have bf16, which holds the same numbers. */
bool weights_match_is_widened(const plan_tensor *use, const safetensor *tensor);

/* Whether the plan expects bf16 and the files have fp32, whose numbers must then all be bf16 numbers: read.h sees to it. */
bool weights_match_is_narrowed(const plan_tensor *use, const safetensor *tensor);

/* Whether a source is of a layer after the model's last, from which no request's bits come: it is no part of the digest. */
bool weights_match_is_prediction(const weights_match *self, const weights_source *source);

/* Fills in naming and the counts of tensors that the plan does not use. */
void weights_match_report(const weights_match *self, weights_report *report);

#endif

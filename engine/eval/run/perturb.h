/* eval/run/perturb.h - other plans of the same model, under which an evaluation is repeated: a plan's file, or a plan that is made here,
 * with one key of the deployment changed.
 *
 * Read next: planner/planner.h, eval/run/run.h. */
#ifndef VERBATIM_EVAL_PERTURB_H
#define VERBATIM_EVAL_PERTURB_H
#include "base/base.h"
#include "base/digest.h"

#define CLI_EVAL_PERTURB_MAX 16u

typedef struct eval_perturb_ids {
  uint8_t numerics_id[DIGEST_BYTES], config_digest[DIGEST_BYTES], plan_digest[DIGEST_BYTES];
} eval_perturb_ids;

/* What a plan's file tells. */
status eval_perturb_read(const char *path, eval_perturb_ids *out);

/* Whether the word is KEY=VALUE: chunk-tokens, group-chunks, parity, latent-norm-eps, kv-cache-dtype or kv-cache-scales, in which "_"
 * reads as "-". */
bool eval_perturb_is_key(const char *word);

/* Makes the plan that has base's sizes and numerics but for the key, and writes it to the path. */
status eval_perturb_make(const char *base, const char *model_dir, const char *word, const char *path);

#endif

/* eval/run/perturb.h - other plans of the same model under which an evaluation is repeated: a plan file, or a plan generated here with one
 * key of the deployment changed. Knows no engine.
 *
 * Read next: planner/planner.h, eval/run/run.h. */
#ifndef VERBATIM_EVAL_PERTURB_H
#define VERBATIM_EVAL_PERTURB_H
#include "base/base.h"
#include "base/digest.h"

#define EVAL_RUN_PERTURB_MAX 16u

typedef struct eval_perturb_ids {
  uint8_t numerics_id[DIGEST_BYTES], config_digest[DIGEST_BYTES], plan_digest[DIGEST_BYTES];
  uint32_t max_len;
} eval_perturb_ids;

/* Reads the ids of a plan file, and the most tokens of a sequence. */
status eval_perturb_read(const char *path, eval_perturb_ids *out);

/* Whether the word is KEY=VALUE with one of these keys: chunk-tokens, group-chunks, parity, latent-norm-eps, kv-cache-dtype,
 * kv-cache-scales; "_" reads as "-". */
bool eval_perturb_is_key(const char *word);

/* Generates a plan with the sizes and numerics of base except for the key, and writes it to the path. */
status eval_perturb_make(const char *base, const char *model_dir, const char *word, const char *path);

#endif

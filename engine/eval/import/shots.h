/* eval/import/shots.h - which records of a pool are shown as examples, drawn as Python's random.Random(seed).sample draws them.
 *
 * lm-evaluation-harness draws for one item after the other from one generator, so the draws must be made in its order. Python's generator
 * is the Mersenne Twister (Matsumoto and Nishimura 1998), seeded by init_by_array. Knows nothing of templates. Read next: prompts.h. */
#ifndef VERBATIM_EVAL_IMPORT_SHOTS_H
#define VERBATIM_EVAL_IMPORT_SHOTS_H
#include "base/base.h"

typedef struct eval_import_random {
  uint32_t state[624];
  uint32_t at;
} eval_import_random;

void eval_import_shots_seed(eval_import_random *self, uint32_t seed); /* random.Random(seed) */

/* sample(range(population), count): chosen[count]. ERR_LIMIT: no memory. Precondition: count <= population. */
status eval_import_shots_draw(eval_import_random *self, uint32_t population, uint32_t count, uint32_t *chosen);

#endif

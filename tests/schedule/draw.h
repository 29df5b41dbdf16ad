/* draw.h - random cases of the schedule fuzzer, each a function of its seed. What is drawn is chosen to make a scheduler's life hard:
 * prompts from a tree of prefixes that end on, before and behind the borders of pages, the same pages in another order, few pages, small
 * steps, several samples of a prompt, answers that come back as prompts, cancellations and deadlines at any time, engines closed in the
 * midst. Read next: case.h. */
#ifndef VERBATIM_DRAW_H
#define VERBATIM_DRAW_H
#include "case.h"

typedef struct draw_limits {
  uint32_t schedules; /* of a case: stretches of work, each until nothing is left; at least 1, at most DRAW_SCHEDULES_MAX */
  uint32_t requests;  /* most of a schedule, 2 .. 16                                                       */
  uint32_t models;    /* of draw_models, from the first on                                                 */
  uint32_t threads;   /* most of the CPU                                                                   */
  uint32_t len;       /* most tokens of a sequence, 128 .. 1024                                            */
  uint32_t tokens;    /* most that a request makes, 1 ..                                                   */
} draw_limits;

#define DRAW_SCHEDULES_MAX 10u

/* Names of configurations in tests/oracle/, without "small-" and ".json"; the list ends with null. */
extern const char *const draw_models[];
uint32_t draw_model_count(int device); /* of them: all on a GPU; on a CPU (negative) not the last one, whose many heads take long there */

void draw_case(schedule_case *out, uint64_t seed, const draw_limits *limits);

#endif

/* common/conditions.h - the options for a request's conditions: what it requires of the plan, and its deadline.
 *
 * Must not know which axes a plan has: the engine refuses an unknown one. Read next: common/sampling.h. */
#ifndef VERBATIM_CLI_CONDITIONS_H
#define VERBATIM_CLI_CONDITIONS_H
#include "base/base.h"
#include "common/options.h"
#include "verbatim.h"

#define CLI_CONDITIONS_HELP \
  "  --require AXIS      run only under a plan that guarantees this axis; may be repeated\n" \
  "  --deadline SECONDS  a request that takes longer, waiting included, ends as it is; 0 is off (0)\n"

typedef struct cli_conditions {
  const char *required[VERBATIM_REQUIRED_MAX];
  uint32_t *required_count; /* the subcommand's count */
} cli_conditions;

/* Adds its rows to a subcommand's table, which has room for row_count rows and ends with zeros. None of the three pointers may move
 * afterwards; only the options set the count and the seconds. */
void cli_conditions_options(cli_conditions *self, uint32_t *required_count, double *deadline_seconds, cli_option *rows, size_t row_count);

#endif

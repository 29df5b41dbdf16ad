/* common/conditions.c - see common/conditions.h. The engine checks both values against the plan. */
#include "common/conditions.h"
#include <math.h>
#include <string.h>

static status take_required(const char *name, const char *value, void *target) {
  cli_conditions *self = target;
  if (*self->required_count == VERBATIM_REQUIRED_MAX) return FAIL(ERR_LIMIT, "%s: at most %u", name, VERBATIM_REQUIRED_MAX);
  self->required[(*self->required_count)++] = value;
  return OK;
}

static status take_seconds(const char *name, const char *value, void *target) {
  double seconds = 0;
  TRY(cli_options_real(name, value, &seconds));
  if (!(seconds >= 0) || isinf(seconds)) return FAIL(ERR_USAGE, "%s: expected seconds, 0 or more, found \"%s\"", name, value);
  *(double *)target = seconds;
  return OK;
}

void cli_conditions_options(cli_conditions *self, uint32_t *required_count, double *deadline_seconds, cli_option *rows, size_t row_count) {
  const cli_option own[] = {{"--require", take_required, self}, {"--deadline", take_seconds, deadline_seconds}};
  self->required_count = required_count;
  size_t at = 0;
  while (rows[at].name) at++;
  ASSERT(at + ARRAY_LEN(own) < row_count);
  memcpy(rows + at, own, sizeof own);
}

/* common/make.h - plan files: generated from a model folder, the text of a deployment file and a profile; written completely or not at all.
 *
 * All decisions are planner/'s. Knows no command line. Read next: planner/planner.h. */
#ifndef VERBATIM_CLI_MAKE_H
#define VERBATIM_CLI_MAKE_H
#include "base/base.h"

typedef struct cli_make_source {
  const char *model_dir;
  const char *deploy;  /* the planner's keys as YAML; NULL: none */
  const char *profile; /* a path, "none", or NULL: the shipped profile */
} cli_make_source;

/* Generates and checks a plan; the caller frees *bytes. */
status cli_make_plan(const cli_make_source *source, void **bytes, size_t *byte_count);

/* Checks whether the path may be written: without force only a plan is replaced, and never a file of the model. ERR_USAGE, ERR_IO. */
status cli_make_check(const char *path, const char *model_dir, bool force);

/* Writes under a temporary name first, so that a reader never sees half a plan. */
status cli_make_write(const char *path, const void *bytes, size_t byte_count);

#endif

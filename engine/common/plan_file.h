/* common/plan_file.h - plan files: generated from a model folder, the text of a deployment file and a profile; written completely or not at
 * all.
 *
 * All decisions are planner/'s. Knows no command line. Read next: planner/planner.h. */
#ifndef VERBATIM_CLI_PLAN_FILE_H
#define VERBATIM_CLI_PLAN_FILE_H
#include "base/base.h"

typedef struct cli_plan_file_source {
  const char *model_dir;
  const char *deploy;  /* the planner's keys as YAML; NULL: none */
  const char *profile; /* a path, "none", or NULL: the shipped profile */
} cli_plan_file_source;

/* Generates and checks a plan; the caller frees *bytes. */
status cli_plan_file_make(const cli_plan_file_source *source, void **bytes, size_t *byte_count);

/* Checks whether the path may be written: without force only a plan is replaced, and never a file of the model. ERR_USAGE, ERR_IO. */
status cli_plan_file_check(const char *path, const char *model_dir, bool force);

#endif

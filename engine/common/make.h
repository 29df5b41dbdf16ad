/* common/make.h - plans as files: made from a model folder, the text of a deployment and a profile; written whole or not at all.
 *
 * Everything that decides something is planner/. Knows no command line. Read next: planner/planner.h. */
#ifndef VERBATIM_CLI_MAKE_H
#define VERBATIM_CLI_MAKE_H
#include "base/base.h"

typedef struct cli_make_source {
  const char *model_dir;
  const char *deploy;  /* keys of the planner as YAML; null: none */
  const char *profile; /* a path, "none", or null: the shipped one */
} cli_make_source;

/* Makes and checks a plan; *bytes is freed by the caller. */
status cli_make_plan(const cli_make_source *source, void **bytes, size_t *byte_count);

/* Whatever stands at the path, only a plan is replaced without force, and no file of the model. ERR_USAGE, ERR_IO. */
status cli_make_check(const char *path, const char *model_dir, bool force);

/* Under another name first, so that a reader never sees half a plan. */
status cli_make_write(const char *path, const void *bytes, size_t byte_count);

#endif

/* eval/run/paths.h - the paths that a manifest names, as they are seen from its folder: so they hold wherever a command is run.
 *
 * Knows nothing of manifests. Read next: eval/run/run.h. */
#ifndef VERBATIM_EVAL_PATHS_H
#define VERBATIM_EVAL_PATHS_H
#include "base/base.h"

#define EVAL_PATHS_BYTES_MAX 4096u

/* The path of an existing file or folder as seen from an existing folder: "../my.plan". An absolute path, or one that cannot be resolved,
 * stays as it is. ERR_USAGE: too long. */
status eval_paths_from(const char *folder, const char *path, char out[EVAL_PATHS_BYTES_MAX]);

/* The reverse: the path of what lies there as seen from the folder; or, if nothing does, the path as it is. ERR_USAGE: too long. */
status eval_paths_in(const char *folder, const char *path, char out[EVAL_PATHS_BYTES_MAX]);

#endif

/* common/files.h - what the subcommands ask about the paths they are given, before any work is done: that reading one cannot wait for ever,
 * and that writing one destroys neither a device nor what the same command reads. */
#ifndef VERBATIM_CLI_FILES_H
#define VERBATIM_CLI_FILES_H
#include "base/base.h"

/* An output that appears whole under its name: absent, in a folder that is there, or a regular file, which will be replaced. ERR_USAGE,
 * ERR_IO. */
status cli_files_check_output(const char *path);

/* The two are not the same regular file. ERR_USAGE, which calls the second one `what`. Either may be null or absent. */
status cli_files_check_apart(const char *output, const char *other, const char *what);

/* The output is none of the files that are read from a model folder, null: there is none. ERR_USAGE. */
status cli_files_check_model(const char *output, const char *model_dir);

/* Before anything is read or written: each of the outputs (null: not asked for) can be, and none is the plan, the input, a file of the
 * model, or another of them. input: null, "-" or a path; stdin counts as an input, too. ERR_USAGE, ERR_IO. */
status cli_files_check_outputs(const char *const *outputs, size_t count, const char *plan_path, const char *input, const char *model_dir);

/* Where compiled kernels are kept: as asked, "" for nowhere, which is null; null: the user's cache folder, as desktop systems define it,
 * its name in room. */
const char *cli_files_cache(const char *asked, char *room, size_t room_bytes);

/* A file of at most FILE_CONFIG_BYTES_MAX, whole, not NUL-terminated; freed by the caller. ERR_IO, ERR_LIMIT. */
status cli_files_read_config(const char *path, char **out, size_t *out_bytes);

#endif

/* cli_files.h - what the subcommands ask about the paths they are given, before any work is done: that reading one cannot wait for ever,
 * and that writing one destroys neither a device nor what the same command reads. */
#ifndef VERBATIM_CLI_FILES_H
#define VERBATIM_CLI_FILES_H
#include "base.h"

/* An output that appears whole under its name: absent, or a regular file, which will be replaced. ERR_USAGE, ERR_IO. */
status cli_files_check_output(const char *path);

/* The two are not the same regular file. ERR_USAGE, which calls the second one `what`. Either may be null or absent. */
status cli_files_check_apart(const char *output, const char *other, const char *what);

/* The output is none of the files that are read from a model folder. ERR_USAGE. */
status cli_files_check_model(const char *output, const char *model_dir);

#endif

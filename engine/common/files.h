/* common/files.h - checks the paths a subcommand was given before any work starts.
 *
 * Opening an input cannot block, and writing an output destroys neither a device nor an input of the same command. Must not know what the
 * files contain. Read next: base/special_file.h. */
#ifndef VERBATIM_CLI_FILES_H
#define VERBATIM_CLI_FILES_H
#include "base/base.h"
#include "base/input_file.h"

/* An output that is written whole and then renamed: its path must be free, in an existing folder, or a regular file, which is replaced.
 * ERR_USAGE, ERR_IO. */
status cli_files_check_output(const char *path);

/* The two paths must not be the same regular file. ERR_USAGE, naming the second one `what`. Either may be NULL or absent. */
status cli_files_check_apart(const char *output, const char *other, const char *what);

/* The output must not be a file that is read from the model folder (NULL: no folder). ERR_USAGE. */
status cli_files_check_model(const char *output, const char *model_dir);

/* Checks all outputs (NULL: not requested) before anything is read or written: each can be written, and none is the plan, the input, a file
 * of the model, or another output. input: NULL, "-" or a path; stdin counts as an input, too. ERR_USAGE, ERR_IO. */
status cli_files_check_outputs(const char *const *outputs, size_t count, const char *plan_path, const char *input, const char *model_dir);

/* The folder for compiled kernels: `asked`, where "" means none and returns NULL; if asked is NULL, the user's cache folder by the XDG
 * rules, its path written to room. */
const char *cli_files_cache(const char *asked, char *room, size_t room_bytes);

/* Reads a whole file, or a pipe, of at most FILE_CONFIG_BYTES_MAX bytes, without adding a NUL; the caller frees it. ERR_IO; ERR_FORMAT: it
 * is empty, and no deployment; ERR_LIMIT. */
status cli_files_read_config(const char *path, input_file_kind kind, char **out, size_t *out_bytes);

#endif

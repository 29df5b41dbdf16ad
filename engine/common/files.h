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

/* The output must not be a file of the model folder (NULL: no folder), nor become one. ERR_USAGE. */
status cli_files_check_model(const char *output, const char *model_dir);

typedef enum cli_files_use {
  CLI_FILES_READ,    /* an input */
  CLI_FILES_MODEL,   /* a model folder: its files are inputs */
  CLI_FILES_WRITTEN, /* an output, written at its path */
  CLI_FILES_FOLDER   /* a folder of outputs: what lies in it may be overwritten, and no other output may be put into it */
} cli_files_use;

typedef struct cli_files_row { /* a path that the command line or the deployment names */
  cli_files_use use;
  const char *path; /* NULL: not given */
  const char *what; /* for messages: "the plan" */
} cli_files_row;

/* Checks all paths of a subcommand before anything is written: each output can be written, and none is an input or another output, under
 * whatever name. stdin counts as an input; stdout and stderr count as outputs. ERR_USAGE, ERR_IO. */
status cli_files_check(const cli_files_row *rows, size_t count);

/* The words [PLAN] MODEL_DIR of a subcommand: a folder in the first place, or a name on the Hub that is no file, is the model, and
 * *plan_path is NULL then. A model in the second place means that the first is a plan. What the words, which end with NULL, do not say is
 * NULL. *count: how many of the words these are. ERR_IO: a plan comes after the model. */
status cli_files_engine(const char *const *words, const char **plan_path, const char **model_dir, uint32_t *count);

/* The folder for compiled kernels: `asked`, where "" means none and returns NULL; if asked is NULL, the user's cache folder by the XDG
 * rules, its path written to room. */
const char *cli_files_cache(const char *asked, char *room, size_t room_bytes);

/* Reads a whole file, or a pipe, of at most FILE_CONFIG_BYTES_MAX bytes, without adding a NUL; the caller frees it. ERR_IO; ERR_FORMAT: it
 * is empty, and no deployment; ERR_LIMIT. */
status cli_files_read_config(const char *path, input_file_kind kind, char **out, size_t *out_bytes);

#endif

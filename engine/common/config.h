/* common/config.h - the deployment file as defaults for a subcommand's options: command line over file over default.
 *
 * A flat YAML mapping whose keys are the names of long options (common/config_keys.h); "_" reads as "-". One file serves several
 * subcommands: each uses the keys of its own options, and a key that no subcommand has is an error. A subcommand calls, in this order:
 *   cli_config_options(&config, CLI_CONFIG_SERVE, table, ARRAY_LEN(table));  along with the other functions that fill its option table
 *   TRY(cli_options_parse(table, argc, argv, words, &count));
 *   TRY(cli_config_apply(&config, table, argc, argv));
 *   cli_config_place(&config, "plan", &plan_path);                           for a positional argument: NULL, or its value
 *   if (config.dump) return cli_config_dump(&config, stdout);
 *   TRY(cli_config_plan(&config, plan_path, model_dir, quiet));              now the plan exists and matches the file
 * and cli_config_close at its end: texts of the file live until then. Read next: planner/flat_yaml.h, common/plan_file.h, cli/plan.c. */
#ifndef VERBATIM_CLI_CONFIG_H
#define VERBATIM_CLI_CONFIG_H
#include "base/base.h"
#include "common/config_keys.h"
#include "common/files.h"
#include "common/memory.h"
#include "common/options.h"
#include "base/digest.h"
#include "planner/flat_yaml.h"
#include <stdio.h>

#define CLI_CONFIG_HELP \
  "  --config FILE       deployment file (YAML): defaults of the options, under their names, for this\n" \
  "                      and other commands\n" \
  "  --dump-config       print the resulting configuration as such a file, with its digest\n"

/* Rows of a table for cli_files_check: what the deployment is read from. */
#define CLI_CONFIG_FILES(config) \
  {CLI_FILES_READ, (config)->path, "the deployment"}, {CLI_FILES_READ, cli_config_value(config, "profile"), "the profile"}

typedef enum cli_config_origin {
  CLI_CONFIG_UNSET = 0, CLI_CONFIG_DEFAULT, CLI_CONFIG_FILE, CLI_CONFIG_COMMAND
} cli_config_origin;

typedef struct cli_config_entry {
  char *value; /* as written in YAML; NULL: not set */
  cli_config_origin origin;
} cli_config_entry;

typedef struct cli_config {
  const char *path; /* --config; NULL: no file */
  bool dump;        /* --dump-config */
  uint32_t user;    /* one of CLI_CONFIG_PLAN ... */
  int device;       /* whose memory device-memory-bytes: auto means; as in verbatim_config, set by the subcommand after its options */
  const char *command;
  const char *speculation; /* --speculative-config; NULL: not given */
  bool has_bytes;   /* a value is not UTF-8 */
  flat_yaml file;
  const char *planner[CLI_CONFIG_KEYS_MAX]; /* the options of `plan`, by key */
  cli_config_entry entries[CLI_CONFIG_KEYS_MAX];
} cli_config;

/* Adds --config, --dump-config and, for `plan`, the planner's keys to a subcommand's table. */
void cli_config_options(cli_config *self, uint32_t user, cli_option *rows, size_t row_count);

/* Reads the file and applies its values to the options that argv does not contain; a switch takes true or false. argv[0] names the
 * subcommand. ERR_IO; ERR_FORMAT, ERR_USAGE: not a deployment file, an unknown key (the message names the nearest known one), or a value
 * that the option refuses. */
status cli_config_apply(cli_config *self, const cli_option *options, int argc, char **argv);

/* The same for a positional argument: keeps *value, or if it is NULL sets it to the file's value, or NULL if there is none. */
void cli_config_place(cli_config *self, const char *key, const char **value);

/* Both positional arguments of a subcommand with the words [PLAN] MODEL_DIR: a folder in the first place is the model, and no plan is named
 * then, unless the file names one for that model. words ends with NULL. ERR_USAGE: there are more words; ERR_IO: a plan comes after the
 * model. */
status cli_config_place_engine(cli_config *self, const char *const *words, const char **plan_path, const char **model_dir);

/* The same for a list of words, such as tasks: returns words if *count is not 0, else the file's list, and sets *count. */
const char *const *cli_config_words(cli_config *self, const char *key, const char *const *words, uint32_t *count);

/* The file's value of a key that is not a list; NULL: none. */
const char *cli_config_value(const cli_config *self, const char *key);

/* Whether the value of device-memory-bytes is the word auto. */
bool cli_config_is_auto(const cli_config *self);

/* The number of GPUs of the plan: tensor-parallel-size, or 1. */
uint32_t cli_config_gpus(const cli_config *self);

/* The planner's keys with their values as YAML; "" if there are none. A number stands in place of the word auto, and *memory says which
 * (else its bytes are 0). The caller frees *text. ERR_DEVICE, ERR_LIMIT: of cli_memory_find. */
status cli_config_deploy(const cli_config *self, cli_memory *memory, char **text);

/* Writes every key of the subcommand with its value and origin, as YAML that reads back to the same. A secret is only marked as set. */
status cli_config_dump(const cli_config *self, FILE *to);

/* XXH3-128 over the "key: value" lines of the dump, without unset keys and secrets. */
digest cli_config_digest(const cli_config *self);

/* With a file: ensures that the plan exists and is what the file's keys generate from the model now. A missing plan is generated; an
 * existing one is never replaced: if it was generated from other values, ERR_MISMATCH. Under device-memory-bytes: auto it may have been
 * generated for another free memory. A file without planner keys accepts any existing plan. Without a file: OK. */
status cli_config_plan(const cli_config *self, const char *plan_path, const char *model_dir, bool quiet);

/* The same without generating a plan: reports whether it exists. */
status cli_config_find_plan(const cli_config *self, const char *plan_path, const char *model_dir, bool *is_there);

void cli_config_close(cli_config *self); /* may be zeroed */

#endif

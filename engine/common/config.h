/* common/config.h - the deployment file as defaults of a subcommand's options: command line before file before default.
 *
 * A flat YAML mapping; its keys are the names of long options (common/config_keys.h), "_" reads as "-". One file serves several
 * subcommands: each takes the keys that are its own, and a key that no subcommand has is an error. A subcommand does, in this order:
 *   cli_config_options(&config, CLI_CONFIG_SERVE, table, ARRAY_LEN(table));  beside the others that fill its table of options
 *   TRY(cli_options_parse(table, argc, argv, words, &count));
 *   TRY(cli_config_apply(&config, table, argc, argv));
 *   cli_config_place(&config, "plan", &plan_path);                           null, or what the command line says without an option
 *   if (config.dump) return cli_config_dump(&config, stdout);
 *   TRY(cli_config_plan(&config, plan_path, model_dir, quiet));              there is a plan now, and it fits the file
 * and cli_config_close at its end: texts of the file live until then. Read next: planner/flat_yaml.h, common/make.h, cli/plan.c. */
#ifndef VERBATIM_CLI_CONFIG_H
#define VERBATIM_CLI_CONFIG_H
#include "base/base.h"
#include "common/config_keys.h"
#include "common/options.h"
#include "base/digest.h"
#include "planner/flat_yaml.h"
#include <stdio.h>

#define CLI_CONFIG_HELP \
  "  --config FILE       deployment file (YAML): defaults of the options, under their names, for this\n" \
  "                      and other commands\n" \
  "  --dump-config       print the resulting configuration as such a file, with its digest\n"

typedef enum cli_config_origin {
  CLI_CONFIG_UNSET = 0, CLI_CONFIG_DEFAULT, CLI_CONFIG_FILE, CLI_CONFIG_COMMAND
} cli_config_origin;

typedef struct cli_config_entry {
  char *value; /* as it stands in YAML; null: not set */
  cli_config_origin origin;
} cli_config_entry;

typedef struct cli_config {
  const char *path; /* --config; null: no file */
  bool dump;        /* --dump-config */
  uint32_t user;    /* one of CLI_CONFIG_PLAN ... */
  const char *command;
  bool has_bytes;   /* a value is not UTF-8 */
  flat_yaml file;
  const char *planner[CLI_CONFIG_KEYS_MAX]; /* options of `plan`, by key */
  cli_config_entry entries[CLI_CONFIG_KEYS_MAX];
} cli_config;

/* Adds --config, --dump-config and, of `plan`, the planner's keys to a subcommand's table. */
void cli_config_options(cli_config *self, uint32_t user, cli_option *rows, size_t row_count);

/* Reads the file, and gives its values to the options that argv does not have; a switch takes true or false. argv[0] names the subcommand.
 * ERR_IO; ERR_FORMAT, ERR_USAGE: not such a file, an unknown key (names the nearest), a value that the option does not take. */
status cli_config_apply(cli_config *self, const cli_option *options, int argc, char **argv);

/* The same for a value of the command line that has no option: *value, or where it is null the file's, null: there is none. */
void cli_config_place(cli_config *self, const char *key, const char **value);

/* Both values of a subcommand whose words are PLAN MODEL_DIR; words ends with null. */
void cli_config_place_engine(cli_config *self, const char *const *words, const char **plan_path, const char **model_dir);

/* The same for a list of words, such as tasks: words when *count is not 0, else the file's list and its length. */
const char *const *cli_config_words(cli_config *self, const char *key, const char *const *words, uint32_t *count);

/* The file's value of a key that is no list; null: none. */
const char *cli_config_value(const cli_config *self, const char *key);

/* The keys of the planner with their values as YAML; "" when there is none. Freed by the caller. */
char *cli_config_deploy(const cli_config *self);

/* Every key of the subcommand with its value and where it comes from, as YAML that reads back to the same. A secret is only said to be
 * set. */
status cli_config_dump(const cli_config *self, FILE *to);

/* XXH3-128 over "key: value" lines as dumped, without what is not set and without secrets. */
digest cli_config_digest(const cli_config *self);

/* With a file: the plan is there, and is what the file's keys make of the model now. It is made where it is absent, never replaced: a plan
 * made from other values is ERR_MISMATCH. A file without keys of the planner goes with any plan that is there. Without a file: OK. */
status cli_config_plan(const cli_config *self, const char *plan_path, const char *model_dir, bool quiet);

/* The same without making it: whether it is there. */
status cli_config_find_plan(const cli_config *self, const char *plan_path, const char *model_dir, bool *is_there);

void cli_config_close(cli_config *self); /* a zeroed one is allowed */

#endif

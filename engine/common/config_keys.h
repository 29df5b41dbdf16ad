/* common/config_keys.h - the keys of the deployment file, and whose they are. One row for a key; who adds an option with a value to `plan`,
 * `serve` or `eval` adds its key here (tests/unit/common/test_cli_config.c looks). Read next: common/config.h. */
#ifndef VERBATIM_CLI_CONFIG_KEYS_H
#define VERBATIM_CLI_CONFIG_KEYS_H
#include "base/base.h"

/* Subcommands that read the file, as bits. */
#define CLI_CONFIG_PLAN 1u
#define CLI_CONFIG_SERVE 2u
#define CLI_CONFIG_EVAL 4u
#define CLI_CONFIG_SCORE 8u
#define CLI_CONFIG_DOCTOR 16u

/* What is special about a key, as bits. */
#define CLI_CONFIG_OF_PLANNER 1u /* goes into the plan; an option of `plan` alone               */
#define CLI_CONFIG_IS_LIST 2u    /* several values; one value is a list of one                   */
#define CLI_CONFIG_HAS_COMMAS 4u /* a list that the command line writes as one word: 1,2,4       */
#define CLI_CONFIG_IS_SECRET 8u  /* never shown, not in the digest                               */

typedef struct cli_config_key {
  const char *name;     /* the long option's, without "--" */
  uint32_t users, traits;
  const char *fallback; /* shown as the default where the option's own type does not tell; or null */
} cli_config_key;

#define CLI_CONFIG_KEYS_MAX 128u
extern const cli_config_key cli_config_keys[];
extern const uint32_t cli_config_keys_count; /* at most CLI_CONFIG_KEYS_MAX */

#endif

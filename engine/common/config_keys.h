/* common/config_keys.h - the keys of the deployment file and the subcommands they belong to, one row per key.
 *
 * When you add an option with a value to `plan`, `serve` or `eval`, add its key here (tests/unit/common/test_cli_config.c checks). Knows no
 * values. Read next: common/config.h. */
#ifndef VERBATIM_CLI_CONFIG_KEYS_H
#define VERBATIM_CLI_CONFIG_KEYS_H
#include "base/base.h"

/* Bits for the subcommands that read the file. */
#define CLI_CONFIG_PLAN 1u
#define CLI_CONFIG_SERVE 2u
#define CLI_CONFIG_EVAL 4u
#define CLI_CONFIG_SCORE 8u
#define CLI_CONFIG_DOCTOR 16u

/* Bits for special properties of a key. */
#define CLI_CONFIG_OF_PLANNER 1u /* goes into the plan; only an option of `plan`                */
#define CLI_CONFIG_IS_LIST 2u    /* several values; a single value is a list of one              */
#define CLI_CONFIG_HAS_COMMAS 4u /* a list that the command line takes as one word: 1,2,4        */
#define CLI_CONFIG_IS_SECRET 8u  /* never shown, and not in the digest                           */

typedef struct cli_config_key {
  const char *name;     /* the long option's, without "--" */
  uint32_t users, traits;
  const char *fallback; /* shown as the default where the option's type does not determine it; or NULL */
} cli_config_key;

#define CLI_CONFIG_KEYS_MAX 128u
extern const cli_config_key cli_config_keys[];
extern const uint32_t cli_config_keys_count; /* at most CLI_CONFIG_KEYS_MAX */

#endif

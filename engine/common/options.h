/* common/options.h - parses the arguments of a subcommand by a table with one row per option.
 *
 * The subcommand knows what its options mean. Written by hand because getopt_long keeps static state and permutes argv. Read next:
 * common/config.h. */
#ifndef VERBATIM_CLI_OPTIONS_H
#define VERBATIM_CLI_OPTIONS_H
#include "base/base.h"

#define CLI_OPTIONS_PLURAL(count) ((count) == 1 ? "" : "s") /* "%u word%s" */

typedef struct cli_option {
  const char *name;
  status (*take)(const char *name, const char *value, void *target); /* NULL: a switch; target is a bool */
  void *target;
} cli_option;

/* Takers for a text (const char *), integers within range (uint32_t, uint64_t) and a number (double). ERR_USAGE names the option. */
status cli_options_text(const char *name, const char *value, void *target);
status cli_options_u32(const char *name, const char *value, void *target);
status cli_options_u64(const char *name, const char *value, void *target);
status cli_options_real(const char *name, const char *value, void *target);

/* An integer from 0 to most. */
status cli_options_integer(const char *name, const char *value, uint64_t most, uint64_t *out);

/* "N" or "N-M", with M at least N and at most `most`, from the first `bytes` of text. ERR_USAGE. */
status cli_options_range(const char *name, const char *text, size_t bytes, uint32_t most, uint32_t *first, uint32_t *last);

/* Parses argv[1..argc): options go to their rows of the table, which ends with a row without a name; other words (including "-" and
 * everything after "--") go to words[0..*word_count), which has room for argc. argv[0] names the subcommand in errors. */
status cli_options_parse(const cli_option *options, int argc, char **argv, const char **words, uint32_t *word_count);

/* Iterates over the options of argv; *at starts at 0. Sets *row and *value (NULL for a switch). False: no more options. Only for arguments
 * that cli_options_parse has accepted. */
bool cli_options_next(const cli_option *options, int argc, char **argv, int *at, const cli_option **row, const char **value);

/* Whether --help or -h is among the options before "--". */
bool cli_options_ask_help(int argc, char **argv);

#endif

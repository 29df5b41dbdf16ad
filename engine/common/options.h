/* common/options.h - a subcommand's arguments, read by a table: one row for an option. What the options mean is the subcommand's business.
 * */
#ifndef VERBATIM_CLI_OPTIONS_H
#define VERBATIM_CLI_OPTIONS_H
#include "base/base.h"

typedef struct cli_option {
  const char *name;
  status (*take)(const char *name, const char *value, void *target); /* null: a switch, target is a bool */
  void *target;
} cli_option;

/* Takers: text as it stands (const char *), integers that fit (uint32_t, uint64_t), a number (double). ERR_USAGE names the option. */
status cli_options_text(const char *name, const char *value, void *target);
status cli_options_u32(const char *name, const char *value, void *target);
status cli_options_u64(const char *name, const char *value, void *target);
status cli_options_real(const char *name, const char *value, void *target);

/* An integer of 0 to most. */
status cli_options_integer(const char *name, const char *value, uint64_t most, uint64_t *out);

/* "N" or "N-M", M at least N and at most `most`: the first `bytes` of text. ERR_USAGE. */
status cli_options_range(const char *name, const char *text, size_t bytes, uint32_t most, uint32_t *first, uint32_t *last);

/* Reads argv[1..argc): options of the table, which ends with a row without a name, and other words (also "-", and everything behind
 * "--") to words[0..*word_count), which has room for argc. argv[0] names the subcommand in errors. */
status cli_options_parse(const cli_option *options, int argc, char **argv, const char **words, uint32_t *word_count);

/* The next option of argv behind *at, which begins at 0: *row of the table, and *value (null of a switch). False: there is none. Only for
 * what cli_options_parse has read. */
bool cli_options_next(const cli_option *options, int argc, char **argv, int *at, const cli_option **row, const char **value);

/* --help or -h is among the options: before "--". */
bool cli_options_ask_help(int argc, char **argv);

#endif

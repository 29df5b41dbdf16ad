/* common/options.c - see common/options.h. Options and words are separated in one pass. */
#include "common/options.h"
#include "base/spelling.h"
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define NEAR_MAX 3u /* edits between an unknown option and one that is named as the nearest */

status cli_options_integer(const char *name, const char *value, uint64_t most, uint64_t *out) {
  char *end = NULL;
  errno = 0;
  unsigned long long number = *value >= '0' && *value <= '9' ? strtoull(value, &end, 10) : 0;
  if (!end || *end || errno || number > most)
    return FAIL(ERR_USAGE, "%s: expected an integer of 0 to %" PRIu64 ", found \"%s\"", name, most, value);
  *out = number;
  return OK;
}

status cli_options_text(const char *name, const char *value, void *target) {
  (void)name;
  *(const char **)target = value;
  return OK;
}

status cli_options_u32(const char *name, const char *value, void *target) {
  uint64_t number;
  TRY(cli_options_integer(name, value, UINT32_MAX, &number));
  *(uint32_t *)target = (uint32_t)number;
  return OK;
}

status cli_options_u64(const char *name, const char *value, void *target) {
  return cli_options_integer(name, value, UINT64_MAX, target);
}

status cli_options_real(const char *name, const char *value, void *target) {
  char *end;
  errno = 0;
  double number = strtod(value, &end);
  if (end == value || *end || errno) return FAIL(ERR_USAGE, "%s: expected a number, found \"%s\"", name, value);
  *(double *)target = number;
  return OK;
}

status cli_options_range(const char *name, const char *text, size_t bytes, uint32_t most, uint32_t *first, uint32_t *last) {
  char copy[32];
  uint64_t from, to;
  if (bytes >= sizeof copy) return FAIL(ERR_USAGE, "%s: expected a number or a range like 0-63, found \"%.40s\"", name, text);
  memcpy(copy, text, bytes);
  copy[bytes] = 0;
  char *dash = strchr(copy, '-');
  if (dash) *dash = 0;
  TRY(cli_options_integer(name, copy, most, &from));
  to = from;
  if (dash) TRY(cli_options_integer(name, dash + 1, most, &to));
  if (from > to) return FAIL(ERR_USAGE, "%s: expected an ascending range, found \"%.*s\"", name, (int)bytes, text);
  *first = (uint32_t)from;
  *last = (uint32_t)to;
  return OK;
}

static status refuse_option(const cli_option *options, const char *command, const char *word) {
  spelling_search search = spelling_begin(word, NEAR_MAX);
  for (const cli_option *row = options; row->name; row++) spelling_try(&search, row->name);
  spelling_try(&search, "--help");
  if (!search.nearest) return FAIL(ERR_USAGE, "unknown option %s; hint: verbatim %s --help", word, command);
  return FAIL(ERR_USAGE, "unknown option %s; hint: the nearest is %s; verbatim %s --help", word, search.nearest, command);
}

status cli_options_parse(const cli_option *options, int argc, char **argv, const char **words, uint32_t *word_count) {
  bool options_end = false;
  for (int i = 1; i < argc; i++) {
    const char *word = argv[i];
    if (!options_end && strcmp(word, "--") == 0) {
      options_end = true;
      continue;
    }
    if (options_end || word[0] != '-' || !word[1]) {
      words[(*word_count)++] = word;
      continue;
    }
    const cli_option *found = options;
    while (found->name && strcmp(found->name, word) != 0) found++;
    if (!found->name) return refuse_option(options, argv[0], word);
    if (!found->take) *(bool *)found->target = true;
    else if (i + 1 == argc) return FAIL(ERR_USAGE, "%s needs a value; hint: verbatim %s --help", word, argv[0]);
    else TRY(found->take(word, argv[++i], found->target));
  }
  return OK;
}

bool cli_options_next(const cli_option *options, int argc, char **argv, int *at, const cli_option **row, const char **value) {
  while (++*at < argc && strcmp(argv[*at], "--") != 0) {
    const cli_option *found = options;
    while (found->name && strcmp(found->name, argv[*at]) != 0) found++;
    if (!found->name) continue;
    *row = found;
    *value = found->take ? argv[++*at] : NULL;
    return true;
  }
  *at = argc;
  return false;
}

bool cli_options_ask_help(int argc, char **argv) {
  for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
    if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) return true;
  return false;
}

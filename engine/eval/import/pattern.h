/* eval/import/pattern.h - a regular expression of Python's re, as PCRE2 and EVALUATION.md's `extract` and `remove` take it.
 *
 * The two languages agree on what tasks use; what means another thing in PCRE2 is refused by name. Knows nothing of tasks. Read next:
 * judge.h. */
#ifndef VERBATIM_EVAL_IMPORT_PATTERN_H
#define VERBATIM_EVAL_IMPORT_PATTERN_H
#include "base/base.h"

/* *out, which the caller frees: the pattern in which \d, \w, \s and \b follow Unicode, as in Python. with_groups: it extracts, and of
 * several
 * groups the one that matched counts, which is done for patterns whose alternatives have one group each. ERR_FORMAT: no pattern;
 * ERR_UNSUPPORTED. */
status eval_import_pattern(const char *pattern, bool with_groups, char **out);

#endif

/* eval/import/pattern.c - see eval/import/pattern.h. One scan finds what the languages read differently, and the groups of every
 * alternative. */
#include "eval/import/pattern.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "eval/answer.h"

typedef struct scan {
  const char *at;
  bool is_class;             /* within [...] */
  uint32_t depth;            /* of brackets */
  uint32_t groups, in_branch; /* that capture: of the whole pattern, of the present alternative outside brackets */
  bool is_even;              /* every alternative so far has one group */
  bool refers;               /* has a back reference by number */
} scan;

static status differs(const char *what) {
  return FAIL(ERR_UNSUPPORTED, "%s has another meaning here than in Python; hint: write the pattern without it", what);
}

/* An escape: Python refuses unknown ones with letters, PCRE2 gives many a meaning. */
static status scan_escape(scan *s) {
  static const char shared[] = "dDwWsSbBAntrfaxu0123456789";
  char name[8] = {'\\', s->at[1], 0};
  const char c = s->at[1];
  if (c == 0) return FAIL(ERR_FORMAT, "it ends in a backslash");
  bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
  if (is_letter && (!strchr(shared, c) || c == 'u' || c == '0')) return differs(name);
  if (s->is_class && c >= '1' && c <= '9') return differs("an octal escape");
  s->refers |= c >= '1' && c <= '9';
  s->at += 2;
  return OK;
}

static status scan_class(scan *s) {
  if (s->at[0] == '[' && strchr(":.=", s->at[1]) && s->at[1]) return differs("[: in a class");
  if (s->at[0] == ']') s->is_class = false;
  s->at++;
  return OK;
}

static void end_branch(scan *s) {
  s->is_even &= s->in_branch == 1;
  s->in_branch = 0;
}

static status scan_open(scan *s) {
  bool is_named = strncmp(s->at, "(?P<", 4) == 0;
  if (s->at[1] == '*') return differs("(*");
  if (s->at[1] == '?' && (s->at[2] == '|' || s->at[2] == 'R' || s->at[2] == '&' || s->at[2] == '\'' ||
                          (s->at[2] >= '0' && s->at[2] <= '9') || s->at[2] == '+')) return differs("this kind of group");
  if (strncmp(s->at, "(?<", 3) == 0 && s->at[3] != '=' && s->at[3] != '!') return differs("(?<");
  if (s->at[1] != '?' || is_named) {
    s->groups++;
    s->in_branch++; /* a group within a group of an alternative counts there, too */
  }
  s->depth++;
  s->at++;
  return OK;
}

static status scan_one(scan *s) {
  if (*s->at == '\\') return scan_escape(s);
  if (s->is_class) return scan_class(s);
  switch (*s->at) {
    case '[':
      s->is_class = true;
      s->at += s->at[1] == '^' ? 2 : 1;
      if (*s->at == ']') s->at++; /* a literal one */
      return OK;
    case '(': return scan_open(s);
    case ')':
      if (s->depth > 0) s->depth--;
      break;
    case '|':
      if (s->depth == 0) end_branch(s);
      break;
    case '{':
      if (s->at[1] == ',') return differs("{,");
      break;
    default: break;
  }
  s->at++;
  return OK;
}

status eval_import_pattern(const char *pattern, bool with_groups, char **out) {
  static const char unicode[] = "(*UCP)";
  scan s = {.at = pattern, .is_even = true};
  while (*s.at) TRY(scan_one(&s));
  end_branch(&s);
  bool has_classes = strpbrk(pattern, "\\") != NULL || strstr(pattern, "(?i") != NULL;
  bool wraps = with_groups && s.groups > 1;
  if (wraps && (!s.is_even || s.refers))
    return FAIL(ERR_UNSUPPORTED, "of its %u groups the first that is not empty counts; hint: write a pattern with one group, (?:...) for "
                "the "
                                 "others", s.groups);
  if (wraps && strncmp(pattern, "(?", 2) == 0 && pattern[2 + strspn(pattern + 2, "aimsx")] == ')') return differs("flags before groups");
  size_t bytes = strlen(pattern) + sizeof unicode + 8;
  char *made = malloc(bytes);
  if (!made) return FAIL(ERR_LIMIT, "no memory");
  snprintf(made, bytes, "%s%s%s%s", has_classes ? unicode : "", wraps ? "(?|" : "", pattern, wraps ? ")" : "");
  status result = eval_answer_check("pattern", made);
  if (result == OK) *out = made;
  else free(made);
  return result;
}

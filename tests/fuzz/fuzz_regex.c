/* fuzz_regex.c - a regular expression, a NUL, and a text. An accepted expression means for the text what PCRE2 says, and none of its states
 * is a dead end. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include "engine/base/utf8.h"
#include "engine/constrain/constraint.h"
#include "fuzz.h"

#define PATTERN_BYTES_MAX 512u

/* Whether PCRE2 finds the text to match as a whole; -1: it does not know. */
static int judge(const char *pattern, size_t pattern_bytes, const char *text, size_t text_bytes) {
  char whole[PATTERN_BYTES_MAX + 16];
  int error, result = -1;
  PCRE2_SIZE at;
  const int bytes = snprintf(whole, sizeof whole, "\\A(?:%.*s)\\z", (int)pattern_bytes, pattern);
  pcre2_code *code = pcre2_compile((PCRE2_SPTR)whole, (PCRE2_SIZE)bytes, PCRE2_UTF, &error, &at, NULL);
  if (!code) return -1;
  pcre2_match_data *match = pcre2_match_data_create(1, NULL);
  pcre2_match_context *limits = pcre2_match_context_create(NULL);
  pcre2_set_match_limit(limits, 100000);
  if (match && limits) result = pcre2_match(code, (PCRE2_SPTR)text, text_bytes, 0, 0, match, limits);
  pcre2_match_context_free(limits);
  pcre2_match_data_free(match);
  pcre2_code_free(code);
  return result >= 0 ? 1 : result == PCRE2_ERROR_NOMATCH ? 0 : -1;
}

static void check_states(const automaton *a) {
  for (uint32_t state = AUTOMATON_START; state < a->state_count; state++) {
    bool leads_on = a->is_accepting[state];
    for (uint32_t class = 0; class < a->class_count && !leads_on; class++) leads_on = a->next[state * a->class_count + class] != 0;
    ASSERT(leads_on);
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  const char *pattern = (const char *)data, *end = memchr(data, 0, bytes);
  verbatim_constraint *c = NULL;
  const size_t pattern_bytes = end ? (size_t)(end - pattern) : bytes, text_bytes = end ? bytes - pattern_bytes - 1 : 0;
  fail_clear();
  if (pattern_bytes > PATTERN_BYTES_MAX || !fuzz_is_ok(constraint_open(&c, VERBATIM_REGEX, pattern, pattern_bytes))) return 0;
  check_states(&c->automaton);
  if (end && utf8_valid_bytes((const uint8_t *)end + 1, text_bytes) == text_bytes) {
    const int expected = judge(pattern, pattern_bytes, end + 1, text_bytes);
    const uint32_t state = automaton_run(&c->automaton, AUTOMATON_START, (const uint8_t *)end + 1, text_bytes);
    ASSERT(expected < 0 || (c->automaton.is_accepting[state] != 0) == expected);
  }
  constraint_close(c);
  return 0;
}

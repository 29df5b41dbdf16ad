/* fuzz_split_pattern.c - a split pattern of a tokenizer.json, a NUL, and a text to split with it. The pieces of an accepted pattern cover
 * the text, and the automaton, PCRE2's JIT code and its interpreter give the same pieces. */
#include "engine/text/pretokenize.h"
#include "engine/base/utf8.h"
#include "fuzz.h"

#define PIECES_MAX 8192u

typedef struct pieces {
  const char *next;
  uint32_t ends[PIECES_MAX];
  uint32_t count;
} pieces;

static status take(void *context, const char *piece, size_t bytes) {
  pieces *p = context;
  ASSERT(piece == p->next && bytes > 0 && p->count < PIECES_MAX);
  p->next = piece + bytes;
  p->ends[p->count++] = (uint32_t)bytes;
  return OK;
}

/* Whether the pattern is accepted and the text was split. */
static bool split(const pretokenize_split *pattern, pretokenize_matcher matcher, const char *text, size_t bytes, pieces *out) {
  pretokenizer *p = NULL;
  out->next = text, out->count = 0;
  fail_clear();
  if (!fuzz_is_ok(pretokenize_open(&p, pattern, 1, matcher))) return false;
  status result = pretokenize_run(p, text, bytes, take, out);
  pretokenize_close(p);
  ASSERT(result == ERR_LIMIT || (result == OK && out->next == text + bytes));
  return result == OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  static pieces first, other;
  const char *pattern = (const char *)data, *end = memchr(data, 0, bytes);
  if (!end || bytes > PIECES_MAX || utf8_valid_bytes(data, bytes) != bytes) return 0;
  size_t pattern_bytes = (size_t)(end - pattern), text_bytes = bytes - pattern_bytes - 1;
  const pretokenize_split by = {PRETOKENIZE_PATTERN, pattern, pattern_bytes};
  if (!split(&by, PRETOKENIZE_AUTOMATON, end + 1, text_bytes, &first)) return 0;
  for (pretokenize_matcher matcher = PRETOKENIZE_PCRE2; matcher <= PRETOKENIZE_INTERPRETER; matcher++) {
    if (!split(&by, matcher, end + 1, text_bytes, &other)) return 0; /* it exceeds limits of its own */
    ASSERT(first.count == other.count && memcmp(first.ends, other.ends, first.count * sizeof *first.ends) == 0);
  }
  return 0;
}

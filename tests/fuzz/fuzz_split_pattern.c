/* fuzz_split_pattern.c - a split pattern of a tokenizer.json, a NUL, and a text to split with it. The pieces of an accepted pattern cover
 * the text, and PCRE2's interpreter cuts the same ones as its machine code. */
#include "engine/pretokenize.h"
#include "engine/utf8.h"
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
static bool split(const pretokenize_split *pattern, bool use_jit, const char *text, size_t bytes, pieces *out) {
  pretokenizer *p = NULL;
  out->next = text, out->count = 0;
  fail_clear();
  if (!fuzz_is_ok(pretokenize_open(&p, pattern, 1, use_jit))) return false;
  status result = pretokenize_run(p, text, bytes, take, out);
  pretokenize_close(p);
  ASSERT(result == ERR_LIMIT || (result == OK && out->next == text + bytes));
  return result == OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  static pieces compiled, interpreted;
  const char *pattern = (const char *)data, *end = memchr(data, 0, bytes);
  if (!end || bytes > PIECES_MAX || utf8_valid_bytes(data, bytes) != bytes) return 0;
  size_t pattern_bytes = (size_t)(end - pattern), text_bytes = bytes - pattern_bytes - 1;
  const pretokenize_split by = {PRETOKENIZE_PATTERN, pattern, pattern_bytes};
  if (!split(&by, true, end + 1, text_bytes, &compiled)) return 0;
  if (!split(&by, false, end + 1, text_bytes, &interpreted)) return 0; /* it reaches limits of its own */
  ASSERT(compiled.count == interpreted.count);
  ASSERT(memcmp(compiled.ends, interpreted.ends, compiled.count * sizeof *compiled.ends) == 0);
  return 0;
}

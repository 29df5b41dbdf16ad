/* pretokenize.c - splitting with PCRE2 (see pretokenize.h for the contract).
 *
 * The only file that calls pcre2_*. Text was checked to be UTF-8 by the caller, so PCRE2 is told not to check again: it would
 * do so at every match, over all the text. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "pretokenize.h"
#include "split_pattern.h"
#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

#define JIT_STACK_BYTES_MIN (32u << 10)
#define JIT_STACK_BYTES_MAX (128u << 20) /* address space: a repeated [..&&..] keeps its place for every code point of a run */

struct pretokenizer {
  size_t count;
  pcre2_code *codes[PRETOKENIZE_SPLITS_MAX];
  pcre2_match_data *matches[PRETOKENIZE_SPLITS_MAX];
  pcre2_match_context *context;
  pcre2_jit_stack *jit_stack;
};

typedef struct run {
  const pretokenizer *p;
  pretokenize_emit *emit;
  void *context;
} run;

const char pretokenize_gpt2_pattern[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

/* === Opening ================================================================================================= */

/* split_pattern.c adds to PCRE2's properties what Unicode 16 has and 14 has not; with any other PCRE2 the sum is unknown. */
static status check_unicode(void) {
  char version[32] = {0};
  if (pcre2_config(PCRE2_CONFIG_UNICODE_VERSION, NULL) > (int)sizeof version)
    return FAIL(ERR_UNSUPPORTED, "PCRE2: expected a short Unicode version, found a long one");
  pcre2_config(PCRE2_CONFIG_UNICODE_VERSION, version);
  char *end = version;
  long major = strtol(version, &end, 10);
  if (end == version || *end != '.' || major < 14 || major > 16)
    return FAIL(ERR_UNSUPPORTED, "PCRE2: expected Unicode 14 to 16, found \"%s\"; hint: build with PCRE2 10.40 to 10.45", version);
  return OK;
}

static status compile(pcre2_code **out, const char *pattern, bool use_jit) {
  pcre2_compile_context *context = pcre2_compile_context_create(NULL);
  if (context == NULL) return FAIL(ERR_LIMIT, "PCRE2: out of memory");
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_set_newline(context, PCRE2_NEWLINE_LF);
  uint32_t options = PCRE2_UTF | PCRE2_NEVER_BACKSLASH_C;
  pcre2_code *code = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, options, &error, &offset, context);
  pcre2_compile_context_free(context);
  if (code == NULL) {
    PCRE2_UCHAR message[128] = "";
    pcre2_get_error_message(error, message, sizeof message);
    return FAIL(ERR_UNSUPPORTED, "split pattern: PCRE2 says \"%s\" at byte %zu of its written-out form", (const char *)message,
                (size_t)offset);
  }
  uint32_t may_match_empty = 0;
  pcre2_pattern_info(code, PCRE2_INFO_MATCHEMPTY, &may_match_empty);
  if (may_match_empty) {
    pcre2_code_free(code);
    return FAIL(ERR_UNSUPPORTED, "split pattern: a pattern that can match the empty string is not supported");
  }
  if (use_jit) (void)pcre2_jit_compile(code, PCRE2_JIT_COMPLETE); /* Where there is no JIT the interpreter gives the same matches. */
  *out = code;
  return OK;
}

static status open_split(pretokenizer *p, const pretokenize_split *split, bool use_jit) {
  char *text = malloc(SPLIT_PATTERN_OUTPUT_BYTES_MAX);
  if (text == NULL) return FAIL(ERR_LIMIT, "split pattern: out of memory");
  status s = split->kind == PRETOKENIZE_PATTERN
                 ? split_pattern_translate(split->pattern, split->pattern_bytes, text, SPLIT_PATTERN_OUTPUT_BYTES_MAX)
                 : split_pattern_digits(split->kind == PRETOKENIZE_DIGIT, text, SPLIT_PATTERN_OUTPUT_BYTES_MAX);
  if (s == OK) s = compile(&p->codes[p->count], text, use_jit);
  free(text);
  TRY(s);
  p->matches[p->count] = pcre2_match_data_create(1, NULL);
  if (p->matches[p->count] == NULL) {
    pcre2_code_free(p->codes[p->count]);
    return FAIL(ERR_LIMIT, "PCRE2: out of memory");
  }
  p->count++;
  return OK;
}

static status open_all(pretokenizer *p, const pretokenize_split *splits, size_t count, bool use_jit) {
  TRY(check_unicode());
  p->context = pcre2_match_context_create(NULL);
  p->jit_stack = use_jit ? pcre2_jit_stack_create(JIT_STACK_BYTES_MIN, JIT_STACK_BYTES_MAX, NULL) : NULL;
  if (p->context == NULL) return FAIL(ERR_LIMIT, "PCRE2: out of memory");
  pcre2_set_match_limit(p->context, PRETOKENIZE_MATCH_LIMIT);
  if (p->jit_stack != NULL) pcre2_jit_stack_assign(p->context, NULL, p->jit_stack);
  for (size_t i = 0; i < count; i++) TRY(open_split(p, &splits[i], use_jit));
  return OK;
}

status pretokenize_open(pretokenizer **out, const pretokenize_split *splits, size_t count, bool use_jit) {
  ASSERT(count <= PRETOKENIZE_SPLITS_MAX);
  pretokenizer *p = calloc(1, sizeof *p);
  if (p == NULL) return FAIL(ERR_LIMIT, "pretokenizer: out of memory");
  status s = open_all(p, splits, count, use_jit);
  if (s != OK) {
    pretokenize_close(p);
    return s;
  }
  *out = p;
  return OK;
}

void pretokenize_close(pretokenizer *p) {
  if (p == NULL) return;
  for (size_t i = 0; i < p->count; i++) {
    pcre2_match_data_free(p->matches[i]);
    pcre2_code_free(p->codes[i]);
  }
  pcre2_match_context_free(p->context);
  pcre2_jit_stack_free(p->jit_stack);
  free(p);
}

/* === Running ================================================================================================= */

/* Cuts text by split number stage and hands every piece to the next stage. Depth of recursion <= PRETOKENIZE_SPLITS_MAX + 1. */
static status run_stage(const run *r, size_t stage, const char *text, size_t bytes) {
  if (stage == r->p->count) return r->emit(r->context, text, bytes);
  pcre2_match_data *match = r->p->matches[stage];
  size_t at = 0;
  while (at < bytes) {
    int found = pcre2_match(r->p->codes[stage], (PCRE2_SPTR)text, bytes, at, PCRE2_NO_UTF_CHECK, match, r->p->context);
    if (found == PCRE2_ERROR_NOMATCH) return run_stage(r, stage + 1, text + at, bytes - at);
    if (found < 0)
      return FAIL(ERR_LIMIT, "split pattern: PCRE2 gave up with error %d on a piece of %zu bytes; hint: the text repeats one kind of "
                  "character for too long", found, bytes);
    const PCRE2_SIZE *span = pcre2_get_ovector_pointer(match);
    size_t start = span[0], end = span[1];
    ASSERT(start >= at);
    ASSERT(end > start);
    if (start > at) TRY(run_stage(r, stage + 1, text + at, start - at));
    TRY(run_stage(r, stage + 1, text + start, end - start));
    at = end;
  }
  return OK;
}

status pretokenize_run(const pretokenizer *p, const char *text, size_t bytes, pretokenize_emit *emit, void *context) {
  run r = {p, emit, context};
  return bytes == 0 ? OK : run_stage(&r, 0, text, bytes);
}

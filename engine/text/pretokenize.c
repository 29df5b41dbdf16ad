/* pretokenize.c - splits with PCRE2 or an automaton (see pretokenize.h for the contract).
 *
 * The only file of the tokenizer that calls pcre2_*. The caller has checked that the text is UTF-8, so PCRE2 is told not to check again: it
 * would do so over the whole text at every match. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/pretokenize.h"
#include "text/split_automaton.h"
#include "text/split_pattern.h"
#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

#define JIT_STACK_BYTES_MIN (32u << 10)
#define JIT_STACK_BYTES_MAX (128u << 20) /* address space only: a repeated [..&&..] remembers its position for every code point of a run */

typedef struct stage {
  pcre2_code *code;            /* of the pattern; with an automaton: of split_pattern_members */
  pcre2_match_data *match;
  split_automaton *automaton;  /* NULL: PCRE2 finds the matches */
} stage;

struct pretokenizer {
  size_t count;
  stage stages[PRETOKENIZE_SPLITS_MAX];
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

/* split_pattern.c adds to PCRE2's properties what Unicode 16 has and 14 does not; with other versions of PCRE2 the sum is unknown. */
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

static status compile(pcre2_code **out, const char *pattern) {
  pcre2_compile_context *context = pcre2_compile_context_create(NULL);
  if (context == NULL) return FAIL(ERR_LIMIT, "PCRE2: out of memory");
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_set_newline(context, PCRE2_NEWLINE_LF);
  /* The start optimizations of PCRE2 10.42 miss matches: (?=1)a*1 in "1", and with machine code (?:a|)aa+aa in "aaaa". */
  uint32_t options = PCRE2_UTF | PCRE2_NEVER_BACKSLASH_C | PCRE2_NO_START_OPTIMIZE;
  pcre2_code *code = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, options, &error, &offset, context);
  pcre2_compile_context_free(context);
  if (code == NULL) {
    PCRE2_UCHAR message[128] = "";
    pcre2_get_error_message(error, message, sizeof message);
    return FAIL(ERR_UNSUPPORTED, "split pattern: PCRE2 says \"%s\" at byte %zu of its written-out form", (const char *)message,
                (size_t)offset);
  }
  *out = code;
  return OK;
}

/* The sets that contain a code point: the callback of split_automaton.h. */
static uint32_t find_sets(void *context, const char *point, size_t bytes) {
  const stage *s = context;
  uint32_t sets = 0;
  int found = pcre2_match(s->code, (PCRE2_SPTR)point, bytes, 0, PCRE2_NO_UTF_CHECK, s->match, NULL);
  ASSERT(found > 0);
  const PCRE2_SIZE *spans = pcre2_get_ovector_pointer(s->match);
  for (int i = 1; i < found; i++) sets |= (uint32_t)(spans[2 * i] == 0) << (i - 1); /* 0, or PCRE2_UNSET */
  return sets;
}

/* Replaces the stage's pattern by an automaton. written: the pattern as text, with room for another. */
static status open_automaton(stage *s, char *written, const split_program *program) {
  char *members = written + SPLIT_PATTERN_OUTPUT_BYTES_MAX;
  TRY(split_pattern_members(written, program, members, SPLIT_PATTERN_OUTPUT_BYTES_MAX));
  pcre2_code_free(s->code);
  s->code = NULL;
  TRY(compile(&s->code, members));
  return split_automaton_open(&s->automaton, program, find_sets, s);
}

/* room: of 2 * SPLIT_PATTERN_OUTPUT_BYTES_MAX bytes. */
static status fill_stage(stage *s, const pretokenize_split *split, pretokenize_matcher matcher, char *room, split_program *program) {
  if (split->kind == PRETOKENIZE_PATTERN)
    TRY(split_pattern_translate(split->pattern, split->pattern_bytes, room, SPLIT_PATTERN_OUTPUT_BYTES_MAX, program));
  else
    TRY(split_pattern_digits(split->kind == PRETOKENIZE_DIGIT, room, SPLIT_PATTERN_OUTPUT_BYTES_MAX, program));
  TRY(compile(&s->code, room));
  uint32_t may_match_empty = 0;
  pcre2_pattern_info(s->code, PCRE2_INFO_MATCHEMPTY, &may_match_empty);
  if (may_match_empty)
    return FAIL(ERR_UNSUPPORTED, "split pattern: a pattern that can match the empty string is not supported");
  if (matcher == PRETOKENIZE_AUTOMATON && program->is_whole) TRY(open_automaton(s, room, program));
  /* Without machine code the interpreter gives the same matches. */
  if (matcher != PRETOKENIZE_INTERPRETER) (void)pcre2_jit_compile(s->code, PCRE2_JIT_COMPLETE);
  s->match = pcre2_match_data_create_from_pattern(s->code, NULL);
  return s->match == NULL ? FAIL(ERR_LIMIT, "PCRE2: out of memory") : OK;
}

static status open_stage(stage *s, const pretokenize_split *split, pretokenize_matcher matcher) {
  char *room = malloc(2 * SPLIT_PATTERN_OUTPUT_BYTES_MAX);
  split_program *program = malloc(sizeof *program);
  status result = room == NULL || program == NULL ? FAIL(ERR_LIMIT, "split pattern: out of memory")
                                                  : fill_stage(s, split, matcher, room, program);
  free(room);
  free(program);
  return result;
}

static status open_all(pretokenizer *p, const pretokenize_split *splits, size_t count, pretokenize_matcher matcher) {
  TRY(check_unicode());
  p->context = pcre2_match_context_create(NULL);
  if (p->context == NULL) return FAIL(ERR_LIMIT, "PCRE2: out of memory");
  p->jit_stack = matcher == PRETOKENIZE_INTERPRETER ? NULL : pcre2_jit_stack_create(JIT_STACK_BYTES_MIN, JIT_STACK_BYTES_MAX, NULL);
  pcre2_set_match_limit(p->context, PRETOKENIZE_MATCH_LIMIT);
  if (p->jit_stack != NULL) pcre2_jit_stack_assign(p->context, NULL, p->jit_stack);
  for (size_t i = 0; i < count; i++) TRY(open_stage(&p->stages[p->count++], &splits[i], matcher));
  return OK;
}

status pretokenize_open(pretokenizer **out, const pretokenize_split *splits, size_t count, pretokenize_matcher matcher) {
  ASSERT(count <= PRETOKENIZE_SPLITS_MAX);
  pretokenizer *p = calloc(1, sizeof *p);
  if (p == NULL) return FAIL(ERR_LIMIT, "pretokenizer: out of memory");
  status s = open_all(p, splits, count, matcher);
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
    split_automaton_close(p->stages[i].automaton);
    pcre2_match_data_free(p->stages[i].match);
    pcre2_code_free(p->stages[i].code);
  }
  pcre2_match_context_free(p->context);
  pcre2_jit_stack_free(p->jit_stack);
  free(p);
}

/* === Running ================================================================================================= */

static status find_by_pcre2(const pretokenizer *p, const stage *s, const char *text, split_search *search) {
  size_t bytes = (size_t)(search->end - text);
  int found = pcre2_match(s->code, (PCRE2_SPTR)text, bytes, (size_t)(search->at - text), PCRE2_NO_UTF_CHECK, s->match, p->context);
  if (found < 0 && found != PCRE2_ERROR_NOMATCH)
    return FAIL(ERR_LIMIT, "split pattern: PCRE2 gave up with error %d on a piece of %zu bytes; hint: the text repeats one kind of "
                "character for too long", found, bytes);
  const PCRE2_SIZE *span = pcre2_get_ovector_pointer(s->match);
  search->match = found < 0 ? search->end : text + span[0];
  search->at = found < 0 ? search->end : text + span[1];
  return OK;
}

static status run_stage(const run *r, size_t depth, const char *text, size_t bytes);

/* Passes a piece to the next split, or to the caller. */
static inline status pass_on(const run *r, size_t depth, const char *text, size_t bytes) {
  return depth + 1 < r->p->count ? run_stage(r, depth + 1, text, bytes) : r->emit(r->context, text, bytes);
}

/* Splits text by split number `depth`. Depth of recursion <= PRETOKENIZE_SPLITS_MAX. */
static status run_stage(const run *r, size_t depth, const char *text, size_t bytes) {
  const stage *here = &r->p->stages[depth];
  split_search s = {.at = text, .end = text + bytes, .budget = PRETOKENIZE_LOOKS_MAX * (bytes + 1)};
  while (s.at < s.end) {
    const char *from = s.at;
    TRY(here->automaton != NULL ? split_automaton_find(here->automaton, &s) : find_by_pcre2(r->p, here, text, &s));
    ASSERT(s.match >= from);
    ASSERT(s.at > from);
    if (s.match > from) TRY(pass_on(r, depth, from, (size_t)(s.match - from)));
    if (s.at > s.match) TRY(pass_on(r, depth, s.match, (size_t)(s.at - s.match)));
  }
  return OK;
}

status pretokenize_run(const pretokenizer *p, const char *text, size_t bytes, pretokenize_emit *emit, void *context) {
  run r = {p, emit, context};
  if (bytes == 0) return OK;
  return p->count == 0 ? emit(context, text, bytes) : run_stage(&r, 0, text, bytes);
}

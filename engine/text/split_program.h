/* split_program.h - a split pattern as instructions over sets of code points.
 *
 * split_pattern.c parses a pattern once and outputs it twice: as text for PCRE2, and here, call by call, as a program. Instructions have
 * the priorities of PCRE2's alternatives: the first one that matches wins. A program contains no code points: a set is a part of the
 * written pattern, and PCRE2 tells what is in it. A pattern that needs more than one code point of lookahead has no program; is_whole is
 * false then, and PCRE2 matches the pattern itself. Includes base.h only. Read next: split_automaton.h. */
#ifndef VERBATIM_SPLIT_PROGRAM_H
#define VERBATIM_SPLIT_PROGRAM_H
#include "base/base.h"

#define SPLIT_PROGRAM_MAX 512u      /* instructions; known patterns have at most 120 */
#define SPLIT_PROGRAM_SETS_MAX 32u  /* known patterns have at most 19 */
#define SPLIT_PROGRAM_DEPTH_MAX 18u /* open groups, including the one around the pattern */
#define SPLIT_PROGRAM_NONE UINT16_MAX
#define SPLIT_PROGRAM_ENDLESS UINT32_MAX

typedef enum split_operation {
  SPLIT_TAKE,  /* consumes a code point of the set; continues with the next instruction */
  SPLIT_SEES,  /* continues only if the next code point is in the set */
  SPLIT_LACKS, /* continues only if it is not; the end of the text is in no set */
  SPLIT_FORK,  /* continues at first, and if that fails at second */
  SPLIT_MATCH
} split_operation;

typedef struct split_instruction {
  uint8_t operation, set;
  uint16_t first, second;  /* of SPLIT_FORK; second may be SPLIT_PROGRAM_NONE */
} split_instruction;

typedef struct split_set {
  uint32_t at, bytes;      /* its text in the written pattern */
  bool is_caseless;
} split_set;

typedef struct split_group {
  uint16_t start, header;  /* its first instruction; that of its last alternative */
  uint16_t exits;          /* ends of the other alternatives, chained by first */
  uint8_t operation;       /* SPLIT_SEES, SPLIT_LACKS, or SPLIT_FORK for a plain group */
} split_group;

typedef struct split_program {
  bool is_whole;
  uint32_t count, set_count, depth;
  split_instruction code[SPLIT_PROGRAM_MAX + 1]; /* the last one is never run */
  split_set sets[SPLIT_PROGRAM_SETS_MAX];
  split_group groups[SPLIT_PROGRAM_DEPTH_MAX];
  uint16_t last_group;     /* start of the group just closed; NONE: the last item was a set */
} split_program;

typedef enum split_repeat {
  SPLIT_GREEDY,
  SPLIT_LAZY,
  SPLIT_POSSESSIVE
} split_repeat;

/* Called in the order of the pattern, between start and end. written: the pattern as written so far. */
void split_program_start(split_program *p);
void split_program_set(split_program *p, const char *written, size_t at, size_t bytes, bool is_caseless);
void split_program_repeat(split_program *p, uint32_t low, uint32_t high, split_repeat kind); /* repeats the set or group before */
void split_program_open(split_program *p, split_operation operation); /* SPLIT_FORK: a plain group */
void split_program_alternative(split_program *p);
void split_program_close(split_program *p);
void split_program_end(split_program *p);

#endif

/* program.h - a language of byte strings as instructions: a nondeterministic automaton under construction.
 *
 * A piece of the language is a block of instructions: it begins at its first one and ends where the next block begins. Every instruction of
 * a finished program leads to PROGRAM_MATCH, for blocks without a string do not exist. Code points are written as UTF-8, so that a
 * program knows bytes only. Beyond PROGRAM_MAX instructions nothing is added and is_full is set, which the caller tests once, at the end.
 * Allocates: it belongs to the compilation of a constraint. Knows no syntax. Read next: regex.h, automaton.h. */
#ifndef VERBATIM_CONSTRAIN_PROGRAM_H
#define VERBATIM_CONSTRAIN_PROGRAM_H
#include "base/base.h"

#define PROGRAM_MAX (1u << 17) /* instructions */
#define PROGRAM_ENDLESS UINT32_MAX
#define PROGRAM_NONE UINT32_MAX
#define PROGRAM_POINT_MAX 0x10ffffu

enum program_operation {
  PROGRAM_TAKE, /* a byte of low .. high, then first                     */
  PROGRAM_FORK, /* without a byte to first, and to second unless it is PROGRAM_NONE */
  PROGRAM_MATCH
};

typedef struct program_step {
  uint8_t operation, low, high;
  uint32_t first, second;
} program_step;

typedef struct program {
  program_step *code; /* [count] */
  uint32_t count, room;
  bool is_full;       /* the language is too large, or memory is out: the code is not all of it */
} program;

typedef struct program_range { /* of code points, both ends included; surrogates in it are left out */
  uint32_t first, last;
} program_range;

void program_close(program *p); /* zeroed: an empty program */

/* Each appends a block. */
void program_bytes(program *p, const char *bytes, size_t count);                 /* these bytes; none: the empty string */
void program_points(program *p, const program_range *ranges, uint32_t count);    /* one code point; a range must hold one that UTF-8 has */

/* Turns the blocks from instruction `start` on into low .. high repetitions of them; high may be PROGRAM_ENDLESS, not 0. */
void program_repeat(program *p, uint32_t start, uint32_t low, uint32_t high);

/* Alternatives: open, each alternative's blocks with program_or between two, then shut. */
typedef struct program_choice {
  uint32_t fork;  /* of the last alternative */
  uint32_t exits; /* of the others, chained by first */
} program_choice;
program_choice program_open(program *p);
void program_or(program *p, program_choice *choice);
void program_shut(program *p, program_choice *choice);

/* An instruction that leads on to the next, and may get a second way later. Returns its number. */
uint32_t program_fork(program *p);
void program_lead(program *p, uint32_t fork, uint32_t second);

/* An instruction that leads to where program_land is called for it, and nowhere else. Returns its number. */
uint32_t program_jump(program *p);
void program_land(program *p, uint32_t jump);

/* Leads back to an instruction. */
void program_back(program *p, uint32_t to);

/* The end of the language. */
void program_end(program *p);

#endif

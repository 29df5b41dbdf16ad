/* automaton.h - a program as a table: one look-up tells where a byte leads.
 *
 * States are sets of places in the program, all of them made at once by automaton_open, so that what comes later only reads, never
 * allocates and always takes the same time. State 0 is dead: no string of the language goes on. Every other state leads to an accepting
 * one, because every instruction of a program does. Work and memory are bounded; a larger language is refused. Read next: program.h,
 * masks.h. */
#ifndef VERBATIM_CONSTRAIN_AUTOMATON_H
#define VERBATIM_CONSTRAIN_AUTOMATON_H
#include "constrain/program.h"

#define AUTOMATON_STATES_MAX 32768u
#define AUTOMATON_DEAD 0u
#define AUTOMATON_START 1u

typedef struct automaton {
  uint8_t class_of[256];   /* bytes that no place tells apart have one class */
  uint32_t class_count, state_count;
  uint16_t *next;          /* [state_count][class_count] */
  uint8_t *is_accepting;   /* [state_count]              */
  char *marks;             /* [marks_bytes] texts, each with a NUL after it, of which special tokens may be a part; NULL: none may be */
  size_t marks_bytes;
} automaton;

/* The language of a whole program. ERR_LIMIT: it needs more states, or more work, than are offered; or no memory. */
status automaton_open(automaton *self, const program *p);
void automaton_close(automaton *self); /* may be zeroed */

static inline uint32_t automaton_next(const automaton *self, uint32_t state, uint8_t byte) {
  return self->next[state * self->class_count + self->class_of[byte]];
}

uint32_t automaton_run(const automaton *self, uint32_t state, const uint8_t *bytes, size_t count);

#endif

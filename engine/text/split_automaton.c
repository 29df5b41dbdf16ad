/* split_automaton.c - ordered lists of instructions as states, created when first reached (see split_automaton.h).
 *
 * A state lists the instructions that may come next, highest priority first. Forks, lookaheads and the match are followed once the next
 * code point is known; a program needs no more lookahead than that. So a transition tells two things: whether a match ends before this code
 * point, and the next state. Alternatives with lower priority than a match are dropped. Code points in the same sets share a class, a
 * column of the table. The end of the text is in no set. */
#include "text/split_automaton.h"
#include <stdlib.h>
#include <string.h>

#define POINTS 0x110000u
#define CLASSES 64u           /* a power of two: the stride of the table; known patterns have at most 32 */
#define CLASS_UNKNOWN 0u
#define CLASS_NONE 1u         /* in no set; also the end of the text */
#define CLASS_PASSING 2u      /* one code point at a time, when there are more classes than columns */
#define STATES 256u           /* known patterns reach at most 50 */
#define STATE_UNKNOWN 0u      /* a transition that has not been computed */
#define STATE_DEAD 1u
#define STATE_START 2u
#define PLACES 4096u          /* in the lists of all states; known patterns take at most 100 */
#define MATCHED 0x8000u       /* flag of a transition: a match ends before its code point. The rest is state * CLASSES */

_Static_assert(STATES * CLASSES <= MATCHED, "a transition has 16 bits");
_Static_assert(PLACES >= 4 * SPLIT_PROGRAM_MAX, "an emptied table has room for a state");

struct split_automaton {
  split_program program;
  split_automaton_sets *sets;
  void *context;
  uint8_t *class_of;                  /* [POINTS] */
  uint32_t class_count, class_sets[CLASSES];
  uint32_t state_count;
  uint32_t list_start[STATES + 1];    /* list of state s: lists[list_start[s]] .. lists[list_start[s + 1]] */
  uint16_t lists[PLACES];
  uint32_t seen_round, seen[SPLIT_PROGRAM_MAX]; /* instructions already visited while computing a transition */
  uint16_t table[STATES * CLASSES];
};

/* === Table =================================================================================================== */

static void empty_table(split_automaton *a) {
  memset(a->table, 0, sizeof a->table);
  a->list_start[STATE_UNKNOWN] = a->list_start[STATE_DEAD] = a->list_start[STATE_START] = 0;
  a->lists[0] = 0;
  a->list_start[STATE_START + 1] = 1;
  a->state_count = STATE_START + 1;
}

/* The class of a new code point, whose bytes are at `point`. */
static uint32_t learn_class(split_automaton *a, uint32_t code_point, const uint8_t *point, size_t bytes) {
  uint32_t sets = a->sets(a->context, (const char *)point, bytes), class = CLASS_NONE;
  while (class < a->class_count && a->class_sets[class] != sets) class += class == CLASS_NONE ? 2 : 1;
  if (class == CLASSES) {
    for (uint32_t state = 0; state < a->state_count; state++) a->table[state * CLASSES + CLASS_PASSING] = STATE_UNKNOWN;
    a->class_sets[CLASS_PASSING] = sets;
    return CLASS_PASSING;
  }
  if (class == a->class_count) a->class_sets[a->class_count++] = sets;
  a->class_of[code_point] = (uint8_t)class;
  return class;
}

/* Follows an alternative to the instructions that take a code point of these sets, and appends their successors to list. Returns whether it
 * reaches the match. */
static bool follow(split_automaton *a, uint16_t at, uint32_t sets, uint16_t *list, uint32_t *count) {
  uint16_t open[SPLIT_PROGRAM_MAX + 1]; /* every instruction is visited once and pushes at most one alternative */
  uint32_t open_count = 0;
  open[open_count++] = at;
  while (open_count > 0) {
    at = open[--open_count];
    if (a->seen[at] == a->seen_round) continue;
    a->seen[at] = a->seen_round;
    const split_instruction *i = &a->program.code[at];
    bool is_in = (sets >> i->set & 1) != 0;
    switch ((split_operation)i->operation) {
      case SPLIT_TAKE:
        if (is_in) list[(*count)++] = (uint16_t)(at + 1);
        break;
      case SPLIT_SEES:
      case SPLIT_LACKS:
        if (is_in == (i->operation == SPLIT_SEES)) open[open_count++] = (uint16_t)(at + 1);
        break;
      case SPLIT_FORK:
        if (i->second != SPLIT_PROGRAM_NONE) open[open_count++] = i->second;
        open[open_count++] = i->first;
        break;
      case SPLIT_MATCH: return true;
    }
  }
  return false;
}

/* The state with this list, added if new. Empties the table when it is full. */
static uint32_t find_state(split_automaton *a, const uint16_t *list, uint32_t count) {
  if (count == 0) return STATE_DEAD;
  for (uint32_t state = STATE_START; state < a->state_count; state++)
    if (a->list_start[state + 1] - a->list_start[state] == count &&
        memcmp(a->lists + a->list_start[state], list, count * sizeof *list) == 0)
      return state;
  if (a->state_count == STATES || PLACES - a->list_start[a->state_count] < count) empty_table(a);
  uint32_t state = a->state_count++;
  memcpy(a->lists + a->list_start[state], list, count * sizeof *list);
  a->list_start[state + 1] = a->list_start[state] + count;
  return state;
}

/* Computes the transition from a state (times CLASSES) on a class. */
static uint32_t make_transition(split_automaton *a, uint32_t row, uint32_t class) {
  uint16_t list[SPLIT_PROGRAM_MAX];
  uint32_t state = row / CLASSES, count = 0;
  bool is_matched = false;
  if (++a->seen_round == 0) {
    memset(a->seen, 0, sizeof a->seen);
    a->seen_round = 1;
  }
  for (uint32_t i = a->list_start[state]; i < a->list_start[state + 1] && !is_matched; i++)
    is_matched = follow(a, a->lists[i], a->class_sets[class], list, &count);
  uint32_t known = a->state_count, next = find_state(a, list, count);
  uint32_t transition = next * CLASSES | (is_matched ? MATCHED : 0);
  if (a->state_count >= known) a->table[row + class] = (uint16_t)transition; /* else this state was just emptied */
  return transition;
}

/* === Opening ================================================================================================= */

status split_automaton_open(split_automaton **out, const split_program *program, split_automaton_sets *sets, void *context) {
  ASSERT(program->is_whole);
  split_automaton *a = calloc(1, sizeof *a);
  uint8_t *class_of = calloc(POINTS, 1);
  if (a == NULL || class_of == NULL) {
    free(a);
    free(class_of);
    return FAIL(ERR_LIMIT, "split pattern: out of memory");
  }
  a->program = *program;
  a->sets = sets;
  a->context = context;
  a->class_of = class_of;
  a->class_count = CLASS_PASSING + 1;
  empty_table(a);
  *out = a;
  return OK;
}

void split_automaton_close(split_automaton *a) {
  if (a == NULL) return;
  free(a->class_of);
  free(a);
}

/* === Matching ================================================================================================ */

/* Decodes the code point at p, which is valid, and its size in bytes. */
static inline uint32_t read_point(const uint8_t *p, size_t *bytes) {
  if (p[0] < 0x80) return *bytes = 1, p[0];
  if (p[0] < 0xE0) return *bytes = 2, (p[0] & 0x1Fu) << 6 | (p[1] & 0x3Fu);
  if (p[0] < 0xF0) return *bytes = 3, (p[0] & 0x0Fu) << 12 | (p[1] & 0x3Fu) << 6 | (p[2] & 0x3Fu);
  return *bytes = 4, (p[0] & 0x07u) << 18 | (p[1] & 0x3Fu) << 12 | (p[2] & 0x3Fu) << 6 | (p[3] & 0x3Fu);
}

/* The transition on the code point at p, or at the end of the text. Not inlined, to keep it out of the calling loop. */
static __attribute__((noinline)) uint32_t find_transition(split_automaton *a, uint32_t row, const uint8_t *p, const uint8_t *end,
                                                          size_t *step) {
  uint32_t class = CLASS_NONE;
  *step = 0;
  if (p < end) {
    uint32_t code_point = read_point(p, step);
    class = a->class_of[code_point];
    if (class == CLASS_UNKNOWN) class = learn_class(a, code_point, p, *step);
  }
  uint32_t transition = a->table[row + class];
  return transition == STATE_UNKNOWN ? make_transition(a, row, class) : transition;
}

/* The end of the match that starts at `from`, or `from` if none does. looked: the last code point looked at. */
static inline const uint8_t *match(split_automaton *a, const uint8_t *from, const uint8_t *end, const uint8_t **looked) {
  const uint8_t *class_of = a->class_of, *p = from, *matched = from;
  const uint16_t *table = a->table;
  uint32_t row = STATE_START * CLASSES;
  for (;;) {
    size_t step = 1;
    uint32_t transition = STATE_UNKNOWN;
    if (p < end && *p < 0x80) transition = table[row + class_of[*p]]; /* nearly all of most texts */
    if (transition == STATE_UNKNOWN) transition = find_transition(a, row, p, end, &step);
    if (transition & MATCHED) matched = p;
    row = transition & ~MATCHED;
    if (row == STATE_DEAD * CLASSES) break;
    p += step;
  }
  *looked = p;
  return matched;
}

status split_automaton_find(split_automaton *a, split_search *s) {
  const uint8_t *p = (const uint8_t *)s->at, *end = (const uint8_t *)s->end;
  while (p < end) {
    const uint8_t *looked = p, *matched = match(a, p, end, &looked);
    if ((size_t)(looked - p) >= s->budget)
      return FAIL(ERR_LIMIT, "split pattern: expected to look at the text a few times, found more; hint: the pattern tries the same "
                  "text again and again");
    s->budget -= (size_t)(looked - p) + 1;
    if (matched > p) {
      s->match = (const char *)p;
      s->at = (const char *)matched;
      return OK;
    }
    size_t step = 0;
    (void)read_point(p, &step);
    p += step;
  }
  s->match = s->at = s->end;
  return OK;
}

/* automaton.c - see automaton.h. The subset construction, over classes of bytes. */
#include "constrain/automaton.h"
#include "base/digest.h"
#include <stdlib.h>
#include <string.h>

#define PLACES_MAX (1u << 22) /* in the sets of all states */
#define VISITS_MAX (1u << 26) /* of instructions: under half a second */
#define SLOTS 65536u          /* of the hash table, a power of two above 4/3 of the states */

typedef struct builder {
  const program *p;
  automaton *out;
  uint32_t *places;                  /* [PLACES_MAX] sets of the states, one after the other, each ascending */
  uint32_t start[AUTOMATON_STATES_MAX + 1]; /* of state s: places[start[s]] .. places[start[s + 1]] */
  uint32_t slot[SLOTS];              /* a state, 0: none */
  uint32_t *seen;                    /* [instructions] the round that last visited it */
  uint32_t *open;                    /* [2 * instructions] to be visited */
  uint32_t round, next_room;
  uint64_t visits;
} builder;

static void find_classes(automaton *a, const program *p) {
  uint8_t begins[257] = {0};
  for (uint32_t i = 0; i < p->count; i++)
    if (p->code[i].operation == PROGRAM_TAKE) begins[p->code[i].low] = begins[p->code[i].high + 1] = 1;
  for (uint32_t byte = 0, class = 0; byte < 256; byte++) {
    class += byte > 0 && begins[byte];
    a->class_of[byte] = (uint8_t)class;
    a->class_count = class + 1;
  }
}

/* Adds to the set that is being made the places that an instruction leads to without a byte. */
static void follow(builder *b, uint32_t at, uint32_t *set, uint32_t *count) {
  uint32_t open = 0;
  b->open[open++] = at;
  while (open > 0) {
    at = b->open[--open];
    b->visits++;
    if (b->seen[at] == b->round) continue;
    b->seen[at] = b->round;
    const program_step *step = &b->p->code[at];
    if (step->operation != PROGRAM_FORK) {
      set[(*count)++] = at;
      continue;
    }
    if (step->second != PROGRAM_NONE) b->open[open++] = step->second;
    b->open[open++] = step->first;
  }
}

static int compare_places(const void *left, const void *right) {
  const uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
  return a < b ? -1 : a > b;
}

static bool is_state(const builder *b, uint32_t state, const uint32_t *set, uint32_t count) {
  return b->start[state + 1] - b->start[state] == count && memcmp(b->places + b->start[state], set, count * sizeof *set) == 0;
}

static status too_large(void) {
  return FAIL(ERR_LIMIT, "constraint: its automaton has more than %u states, or takes too long to make; hint: smaller repetitions, fewer "
              "alternatives or less nesting", AUTOMATON_STATES_MAX);
}

/* The state of the set that stands after those of all states, added if it is new. */
static status find_state(builder *b, uint32_t count, uint32_t *state) {
  automaton *a = b->out;
  uint32_t *set = b->places + b->start[a->state_count];
  qsort(set, count, sizeof *set, compare_places);
  const digest hash = digest_of(set, count * sizeof *set);
  uint32_t slot = (hash.bytes[0] | (uint32_t)hash.bytes[1] << 8) & (SLOTS - 1);
  for (; b->slot[slot]; slot = (slot + 1) & (SLOTS - 1)) {
    if (!is_state(b, b->slot[slot], set, count)) continue;
    *state = b->slot[slot];
    return OK;
  }
  if (a->state_count == AUTOMATON_STATES_MAX) return too_large();
  *state = b->slot[slot] = a->state_count++;
  b->start[a->state_count] = b->start[*state] + count;
  for (uint32_t i = 0; i < count && !a->is_accepting[*state]; i++) a->is_accepting[*state] = b->p->code[set[i]].operation == PROGRAM_MATCH;
  return PLACES_MAX - b->start[a->state_count] < b->p->count ? too_large() : OK;
}

static status grow_table(builder *b) {
  automaton *a = b->out;
  if (a->state_count <= b->next_room) return OK;
  b->next_room = max_u32(64, min_u32(2 * a->state_count, AUTOMATON_STATES_MAX));
  uint16_t *next = realloc(a->next, sizeof *next * b->next_room * a->class_count);
  if (!next) return FAIL(ERR_LIMIT, "constraint: no memory for its automaton");
  a->next = next;
  return OK;
}

/* Where a class of bytes leads from a state. byte: one of them. */
static status find_next(builder *b, uint32_t state, uint8_t byte, uint16_t *next) {
  uint32_t count = 0, found = AUTOMATON_DEAD;
  uint32_t *set = b->places + b->start[b->out->state_count];
  b->round++;
  for (uint32_t i = b->start[state]; i < b->start[state + 1]; i++) {
    const program_step *step = &b->p->code[b->places[i]];
    b->visits++;
    if (step->operation == PROGRAM_TAKE && step->low <= byte && byte <= step->high) follow(b, step->first, set, &count);
  }
  if (b->visits > VISITS_MAX) return too_large();
  if (count) TRY(find_state(b, count, &found));
  *next = (uint16_t)found;
  return OK;
}

static status make_states(builder *b) {
  automaton *a = b->out;
  uint32_t count = 0, start = 0;
  a->state_count = 1; /* the dead one, with the empty set */
  b->round = 1;
  follow(b, 0, b->places, &count);
  TRY(find_state(b, count, &start));
  ASSERT(start == AUTOMATON_START);
  TRY(grow_table(b));
  memset(a->next, 0, a->class_count * sizeof *a->next);
  for (uint32_t state = AUTOMATON_START; state < a->state_count; state++) {
    for (uint32_t byte = 0; byte < 256; byte++) {
      if (byte > 0 && a->class_of[byte] == a->class_of[byte - 1]) continue;
      uint16_t next = 0;
      TRY(find_next(b, state, (uint8_t)byte, &next));
      TRY(grow_table(b));
      a->next[state * a->class_count + a->class_of[byte]] = next;
    }
  }
  return OK;
}

static status build(builder *b) {
  const uint32_t count = b->p->count;
  b->places = malloc(sizeof *b->places * PLACES_MAX);
  b->seen = calloc(count, sizeof *b->seen);
  b->open = malloc(sizeof *b->open * (2 * count + 1ull));
  b->out->is_accepting = calloc(AUTOMATON_STATES_MAX, 1);
  if (!b->places || !b->seen || !b->open || !b->out->is_accepting) return FAIL(ERR_LIMIT, "constraint: no memory for its automaton");
  find_classes(b->out, b->p);
  return make_states(b);
}

status automaton_open(automaton *self, const program *p) {
  builder *b = calloc(1, sizeof *b);
  automaton made = {0};
  if (!b) return FAIL(ERR_LIMIT, "constraint: no memory for its automaton");
  b->p = p;
  b->out = &made;
  ASSERT(!p->is_full && p->count > 0);
  status result = build(b);
  free(b->places);
  free(b->seen);
  free(b->open);
  free(b);
  if (result != OK) automaton_close(&made);
  else *self = made;
  return result;
}

void automaton_close(automaton *self) {
  free(self->next);
  free(self->is_accepting);
  free(self->marks);
  *self = (automaton){0};
}

uint32_t automaton_run(const automaton *self, uint32_t state, const uint8_t *bytes, size_t count) {
  for (size_t i = 0; i < count && state != AUTOMATON_DEAD; i++) state = automaton_next(self, state, bytes[i]);
  return state;
}

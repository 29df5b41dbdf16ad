/* program.c - see program.h. Blocks of instructions, then the bytes of ranges of code points. */
#include "constrain/program.h"
#include <stdlib.h>
#include <string.h>

#define ROOM_FIRST 256u
#define END (PROGRAM_NONE - 1) /* a way to the end of the block that is being written */
#define SUFFIXES_MAX 64u       /* shared ends of sequences within a set */

/* === Instructions =========================================================================================================== */

void program_close(program *p) {
  free(p->code);
  *p = (program){0};
}

static bool make_room(program *p, uint32_t count) {
  uint32_t room = max_u32(p->room, ROOM_FIRST);
  if (p->is_full || count > PROGRAM_MAX - p->count) return !(p->is_full = true);
  while (room < p->count + count) room *= 2;
  if (room == p->room) return true;
  program_step *code = realloc(p->code, room * sizeof *code);
  if (!code) return !(p->is_full = true);
  p->code = code;
  p->room = room;
  return true;
}

/* Returns its number; that of no instruction once the program is full. */
static uint32_t emit(program *p, program_step step) {
  if (!make_room(p, 1)) return PROGRAM_NONE;
  p->code[p->count] = step;
  return p->count++;
}

uint32_t program_fork(program *p) {
  return emit(p, (program_step){.operation = PROGRAM_FORK, .first = p->count + 1, .second = PROGRAM_NONE});
}

void program_lead(program *p, uint32_t fork, uint32_t second) {
  if (p->is_full) return;
  p->code[fork].second = second;
}

static void jump(program *p, uint32_t to) {
  emit(p, (program_step){.operation = PROGRAM_FORK, .first = to, .second = PROGRAM_NONE});
}

uint32_t program_jump(program *p) {
  jump(p, PROGRAM_NONE);
  return p->count - 1;
}

void program_land(program *p, uint32_t at) {
  if (!p->is_full) p->code[at].first = p->count;
}

void program_back(program *p, uint32_t to) { jump(p, to); }

void program_end(program *p) { emit(p, (program_step){.operation = PROGRAM_MATCH}); }

void program_bytes(program *p, const char *bytes, size_t count) {
  for (size_t i = 0; i < count && !p->is_full; i++)
    emit(p, (program_step){.operation = PROGRAM_TAKE, .low = (uint8_t)bytes[i], .high = (uint8_t)bytes[i], .first = p->count + 1});
}

program_choice program_open(program *p) { return (program_choice){.fork = program_fork(p), .exits = PROGRAM_NONE}; }

void program_or(program *p, program_choice *choice) {
  const uint32_t exit = p->count;
  jump(p, choice->exits);
  choice->exits = exit;
  program_lead(p, choice->fork, p->count);
  choice->fork = program_fork(p);
}

void program_shut(program *p, program_choice *choice) {
  if (p->is_full) return;
  for (uint32_t at = choice->exits; at != PROGRAM_NONE;) {
    const uint32_t next = p->code[at].first;
    p->code[at].first = p->count;
    at = next;
  }
}

/* === Repetition ============================================================================================================= */

static void move_way(uint32_t *way, uint32_t distance) {
  if (*way != PROGRAM_NONE) *way += distance; /* modulo 2^32 */
}

/* Appends a copy of a block that began at `from`. */
static void append(program *p, const program_step *block, uint32_t count, uint32_t from) {
  const uint32_t distance = p->count - from;
  if (!make_room(p, count)) return;
  for (uint32_t i = 0; i < count; i++) {
    program_step step = block[i];
    move_way(&step.first, distance);
    move_way(&step.second, distance);
    p->code[p->count++] = step;
  }
}

/* Of optional copies each begins with a fork to the end of all. */
static void append_optional(program *p, const program_step *block, uint32_t count, uint32_t from, uint32_t copies) {
  const uint32_t first = p->count;
  if (!make_room(p, 0) || copies > (PROGRAM_MAX - p->count) / (count + 1)) {
    p->is_full = true;
    return;
  }
  for (uint32_t i = 0; i < copies; i++) {
    program_fork(p);
    append(p, block, count, from);
  }
  for (uint32_t i = 0; i < copies; i++) program_lead(p, first + i * (count + 1), p->count);
}

void program_repeat(program *p, uint32_t start, uint32_t low, uint32_t high) {
  const uint32_t count = p->count - start;
  ASSERT(low <= high && high > 0);
  if (p->is_full) return;
  program_step *block = malloc((count + 1) * sizeof *block);
  if (!block) {
    p->is_full = true;
    return;
  }
  memcpy(block, p->code + start, count * sizeof *block);
  p->count = start;
  for (uint32_t i = 0; i < low && !p->is_full; i++) append(p, block, count, start);
  if (high != PROGRAM_ENDLESS) {
    append_optional(p, block, count, start, high - low);
  } else if (low > 0) {
    const uint32_t again = p->count - count, fork = program_fork(p);
    program_lead(p, fork, again);
  } else {
    const uint32_t fork = program_fork(p);
    append(p, block, count, start);
    jump(p, fork);
    program_lead(p, fork, p->count);
  }
  free(block);
}

/* === Code points ============================================================================================================ */

typedef struct points_writer { /* alternatives of byte sequences; equal ends of them are written once */
  program *p;
  uint32_t suffix[SUFFIXES_MAX], suffix_count;
  uint32_t fork; /* of the newest alternative; PROGRAM_NONE: there is none yet */
} points_writer;

static uint32_t take(points_writer *w, uint8_t low, uint8_t high, uint32_t then) {
  const program *p = w->p;
  for (uint32_t i = 0; i < w->suffix_count && !p->is_full; i++) {
    const program_step *step = &p->code[w->suffix[i]];
    if (step->low == low && step->high == high && step->first == then) return w->suffix[i];
  }
  const uint32_t at = emit(w->p, (program_step){.operation = PROGRAM_TAKE, .low = low, .high = high, .first = then});
  if (w->suffix_count < SUFFIXES_MAX) w->suffix[w->suffix_count++] = at;
  return at;
}

static uint32_t encode(uint32_t point, uint8_t bytes[4]) {
  static const uint8_t LEAD[] = {0, 0, 0xc0, 0xe0, 0xf0};
  const uint32_t count = point < 0x80 ? 1 : point < 0x800 ? 2 : point < 0x10000 ? 3 : 4;
  for (uint32_t i = count; i-- > 1; point >>= 6) bytes[i] = (uint8_t)(0x80 | (point & 0x3f));
  bytes[0] = (uint8_t)(LEAD[count] | point);
  return count;
}

/* A range whose sequences are a product of byte ranges. */
static void add_sequence(points_writer *w, uint32_t first, uint32_t last) {
  uint8_t low[4] = {0}, high[4] = {0};
  const uint32_t count = encode(first, low);
  uint32_t at = END;
  encode(last, high);
  for (uint32_t i = count; i-- > 0;) at = take(w, low[i], high[i], at);
  const uint32_t fork = emit(w->p, (program_step){.operation = PROGRAM_FORK, .first = at, .second = PROGRAM_NONE});
  if (w->fork != PROGRAM_NONE) program_lead(w->p, w->fork, fork);
  w->fork = fork;
}

/* Splits a range where its sequences change length, then where they are no product. */
static void add_range(points_writer *w, uint32_t first, uint32_t last) {
  static const uint32_t LENGTHS[] = {0x7f, 0x7ff, 0xd7ff, 0xffff};
  for (uint32_t i = 0; i < ARRAY_LEN(LENGTHS); i++) {
    if (first > LENGTHS[i] || last <= LENGTHS[i]) continue;
    add_range(w, first, LENGTHS[i]);
    add_range(w, LENGTHS[i] + 1, last);
    return;
  }
  if (first >= 0xd800 && first <= 0xdfff) first = 0xe000;
  if (first > last) return;
  for (uint32_t bits = 6; bits <= 18 && first >= 0x80; bits += 6) {
    const uint32_t mask = (1u << bits) - 1;
    if (first >> bits == last >> bits) break;
    if ((first & mask) != 0) {
      add_range(w, first, first | mask);
      add_range(w, (first | mask) + 1, last);
      return;
    }
    if ((last & mask) != mask) {
      add_range(w, first, (last & ~mask) - 1);
      add_range(w, last & ~mask, last);
      return;
    }
  }
  add_sequence(w, first, last);
}

void program_points(program *p, const program_range *ranges, uint32_t count) {
  points_writer w = {.p = p, .fork = PROGRAM_NONE};
  const uint32_t start = p->count;
  if (p->is_full) return;
  jump(p, PROGRAM_NONE);
  for (uint32_t i = 0; i < count && !p->is_full; i++) add_range(&w, ranges[i].first, ranges[i].last);
  if (p->is_full) return;
  uint32_t first = start + 1; /* the first fork leads to all others */
  while (p->code[first].operation != PROGRAM_FORK) ASSERT(++first < p->count);
  p->code[start].first = first;
  for (uint32_t i = start; i < p->count; i++)
    if (p->code[i].operation == PROGRAM_TAKE && p->code[i].first == END) p->code[i].first = p->count;
}

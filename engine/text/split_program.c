/* split_program.c - builds instructions in the order in which a pattern is parsed (see split_program.h).
 *
 * A group starts with two forks that only continue: the first gets a second branch around the group if a '?' follows; the second, which
 * every alternative has, gets the branch to the next alternative. Once a program is not whole, nothing more is added. Must not know what
 * the sets contain. */
#include "text/split_program.h"
#include <string.h>

static uint16_t emit(split_program *p, split_operation operation, uint32_t set, uint32_t first, uint32_t second) {
  uint32_t at = p->count;
  p->code[at] = (split_instruction){(uint8_t)operation, (uint8_t)set, (uint16_t)first, (uint16_t)second};
  if (at == SPLIT_PROGRAM_MAX) p->is_whole = false;
  else p->count++;
  return (uint16_t)at;
}

static uint16_t emit_fork(split_program *p) { return emit(p, SPLIT_FORK, 0, p->count + 1, SPLIT_PROGRAM_NONE); }

void split_program_start(split_program *p) {
  memset(p, 0, sizeof *p);
  p->is_whole = true;
  split_program_open(p, SPLIT_FORK);
}

void split_program_open(split_program *p, split_operation operation) {
  if (!p->is_whole) return;
  ASSERT(p->depth < SPLIT_PROGRAM_DEPTH_MAX);
  split_group *g = &p->groups[p->depth++];
  g->operation = (uint8_t)operation;
  g->start = emit_fork(p);
  g->header = emit_fork(p);
  g->exits = SPLIT_PROGRAM_NONE;
}

void split_program_alternative(split_program *p) {
  if (!p->is_whole) return;
  split_group *g = &p->groups[p->depth - 1];
  g->exits = emit(p, SPLIT_FORK, 0, g->exits, SPLIT_PROGRAM_NONE);
  p->code[g->header].second = (uint16_t)p->count;
  g->header = emit_fork(p);
}

void split_program_close(split_program *p) {
  if (!p->is_whole) return;
  ASSERT(p->depth > 0);
  split_group *g = &p->groups[--p->depth];
  p->last_group = g->start;
  if (g->operation != SPLIT_FORK) { /* one set and nothing else */
    split_instruction only = p->code[g->start + 2];
    p->is_whole = p->count == g->start + 3u && only.operation == SPLIT_TAKE;
    p->count = g->start;
    emit(p, (split_operation)g->operation, only.set, 0, 0);
    return;
  }
  for (uint16_t at = g->exits; at != SPLIT_PROGRAM_NONE;) {
    uint16_t next = p->code[at].first;
    p->code[at].first = (uint16_t)p->count;
    at = next;
  }
}

void split_program_end(split_program *p) {
  if (!p->is_whole) return;
  split_program_close(p);
  ASSERT(p->depth == 0);
  emit(p, SPLIT_MATCH, 0, 0, 0);
}

void split_program_set(split_program *p, const char *written, size_t at, size_t bytes, bool is_caseless) {
  uint32_t i = 0;
  if (!p->is_whole) return;
  for (; i < p->set_count; i++) {
    const split_set *s = &p->sets[i];
    if (s->bytes == bytes && s->is_caseless == is_caseless && memcmp(written + s->at, written + at, bytes) == 0) break;
  }
  if (i == SPLIT_PROGRAM_SETS_MAX) {
    p->is_whole = false;
    return;
  }
  if (i == p->set_count) p->sets[p->set_count++] = (split_set){(uint32_t)at, (uint32_t)bytes, is_caseless};
  p->last_group = SPLIT_PROGRAM_NONE;
  emit(p, SPLIT_TAKE, i, 0, 0);
}

static void swap_ways(split_instruction *fork) {
  uint16_t first = fork->first;
  fork->first = fork->second;
  fork->second = first;
}

/* Removes the set that was added last and adds it low to high times. A possessive run continues as long as it can, so nothing of the set
 * follows it. */
static void repeat_set(split_program *p, uint32_t low, uint32_t high, split_repeat kind) {
  uint32_t set = p->code[--p->count].set, fork = 0;
  for (uint32_t i = 0; i < low; i++) emit(p, SPLIT_TAKE, set, 0, 0);
  if (high != SPLIT_PROGRAM_ENDLESS) {
    uint32_t end = p->count + 2 * (high - low);
    for (uint32_t i = low; i < high; i++) {
      fork = emit(p, SPLIT_FORK, 0, p->count + 1, end);
      if (kind == SPLIT_LAZY) swap_ways(&p->code[fork]);
      emit(p, SPLIT_TAKE, set, 0, 0);
    }
    if (kind == SPLIT_POSSESSIVE) p->is_whole = false;
    return;
  }
  if (low > 0) {
    fork = emit(p, SPLIT_FORK, 0, p->count - 1, p->count + 1);
  } else {
    fork = emit(p, SPLIT_FORK, 0, p->count + 1, p->count + 3);
    emit(p, SPLIT_TAKE, set, 0, 0);
    emit(p, SPLIT_FORK, 0, fork, SPLIT_PROGRAM_NONE);
  }
  if (kind == SPLIT_LAZY) swap_ways(&p->code[fork]);
  if (kind == SPLIT_POSSESSIVE) emit(p, SPLIT_LACKS, set, 0, 0);
}

void split_program_repeat(split_program *p, uint32_t low, uint32_t high, split_repeat kind) {
  if (!p->is_whole) return;
  if (p->last_group == SPLIT_PROGRAM_NONE) {
    repeat_set(p, low, high, kind);
    return;
  }
  ASSERT(low == 0);
  ASSERT(high == 1);
  split_instruction *around = &p->code[p->last_group];
  around->second = (uint16_t)p->count;
  if (kind == SPLIT_LAZY) swap_ways(around);
  if (kind == SPLIT_POSSESSIVE) p->is_whole = false;
}

/* until.c - see until.h. The automaton of Knuth, Morris and Pratt, over code points: a state for each part of the mark that the text ends
 * in, so that a text never goes on after the mark. Every other way leads back, to states that are written already. */
#include "constrain/until.h"
#include "base/utf8.h"

typedef struct until_mark {
  uint32_t points[UNTIL_POINTS_MAX], count;
  uint32_t fallback[UNTIL_POINTS_MAX]; /* of state s: the longest proper prefix that its s points end in */
  uint32_t state_at[UNTIL_POINTS_MAX]; /* first instruction                                              */
} until_mark;

static status read_mark(until_mark *m, const char *text, size_t bytes) {
  const uint8_t *at = (const uint8_t *)text;
  for (size_t i = 0; i < bytes;) {
    const int length = utf8_scan(at + i, bytes - i);
    if (length < 1 || m->count == UNTIL_POINTS_MAX) return FAIL(ERR_USAGE, "until: expected at most %u characters", UNTIL_POINTS_MAX);
    m->points[m->count++] = utf8_code_point(at + i, length);
    i += (size_t)length;
  }
  return m->count ? OK : FAIL(ERR_USAGE, "until: expected a text that is not empty");
}

/* The state after a point; that of the whole mark is `count`. */
static uint32_t next_state(const until_mark *m, uint32_t state, uint32_t point) {
  while (state > 0 && m->points[state] != point) state = m->fallback[state];
  return m->points[state] == point ? state + 1 : 0;
}

static void find_fallbacks(until_mark *m) {
  for (uint32_t s = 1; s < m->count; s++) m->fallback[s] = s == 1 ? 0 : next_state(m, m->fallback[s - 1], m->points[s - 1]);
}

/* The mark's points in order, each once. Returns their number. */
static uint32_t sort_points(const until_mark *m, uint32_t sorted[UNTIL_POINTS_MAX]) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < m->count; i++) {
    uint32_t at = count;
    while (at > 0 && sorted[at - 1] > m->points[i]) at--;
    if (at > 0 && sorted[at - 1] == m->points[i]) continue;
    for (uint32_t k = count++; k > at; k--) sorted[k] = sorted[k - 1];
    sorted[at] = m->points[i];
  }
  return count;
}

/* From the state being written: one of the ranges, then state `to`. */
static void add_way(program *p, const until_mark *m, const program_range *ranges, uint32_t count, uint32_t to) {
  const uint32_t fork = program_fork(p);
  program_points(p, ranges, count);
  program_back(p, m->state_at[to]);
  program_lead(p, fork, p->count);
}

status until_add(program *p, const char *mark, size_t bytes) {
  until_mark m = {0};
  uint32_t sorted[UNTIL_POINTS_MAX], rest_count = 0, first = 1; /* no text has a zero byte */
  program_range rest[UNTIL_POINTS_MAX + 1];
  TRY(read_mark(&m, mark, bytes));
  find_fallbacks(&m);
  const uint32_t count = sort_points(&m, sorted);
  for (uint32_t i = 0; i < count; i++) {
    if (sorted[i] > first) rest[rest_count++] = (program_range){first, sorted[i] - 1};
    first = sorted[i] + 1;
  }
  if (first <= PROGRAM_POINT_MAX) rest[rest_count++] = (program_range){first, PROGRAM_POINT_MAX};
  for (uint32_t s = 0; s < m.count && !p->is_full; s++) {
    m.state_at[s] = p->count;
    add_way(p, &m, rest, rest_count, 0);
    for (uint32_t i = 0; i < count; i++)
      if (sorted[i] != m.points[s]) add_way(p, &m, &(program_range){sorted[i], sorted[i]}, 1, next_state(&m, s, sorted[i]));
    program_points(p, &(program_range){m.points[s], m.points[s]}, 1);
  }
  return OK;
}

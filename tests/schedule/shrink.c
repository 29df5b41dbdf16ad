/* shrink.c - see shrink.h. Tries one kind of step after the other, until a round finds no smaller case that still fails. */
#include "shrink.h"
#include "engine/base/clock.h"
#include <stdlib.h>
#include <string.h>

typedef struct shrinker {
  const run_stage *stage;
  schedule_case *best, *next; /* the smallest that fails; the one being tried */
  trial *result;
  double end, each_seconds;
  uint32_t tried;
  status error;
} shrinker;

/* Plays `next`; if it fails, it becomes the best. */
static bool keeps(shrinker *s) {
  trial t;
  if (s->error != OK || clock_seconds() > s->end) return false;
  s->error = trial_run(s->stage, s->next, s->each_seconds, true, &t);
  s->tried++;
  if (s->error != OK || !trial_fails(&t)) return false;
  *s->best = *s->next;
  *s->result = t;
  return true;
}

/* === Events ================================================================================================================= */

/* Leaves out the events [first, first + count). The very first event stays, which opens the engine, unless another open replaces it. */
static bool drop_events(shrinker *s, uint32_t first, uint32_t count) {
  schedule_case *n = s->next;
  *n = *s->best;
  n->event_count -= count;
  memmove(n->events + first, n->events + first + count, (n->event_count - first) * sizeof *n->events);
  return n->event_count && n->events[0].kind == CASE_OPEN && keeps(s);
}

static bool shrink_events(shrinker *s) {
  bool found = false;
  for (uint32_t size = max_u32(s->best->event_count / 2, 1);; size /= 2) {
    for (uint32_t first = s->best->event_count; first > 0;) { /* from the end: everything after the failure is removed at once */
      uint32_t count = min_u32(size, first);
      first -= count;
      if (count < s->best->event_count) found |= drop_events(s, first, count);
    }
    if (size == 1) return found;
  }
}

static bool shrink_polls(shrinker *s) {
  bool found = false;
  for (uint32_t i = 0; i < s->best->event_count; i++) {
    while (s->best->events[i].kind == CASE_POLL && s->best->events[i].value > 1) {
      *s->next = *s->best;
      s->next->events[i].value /= 2;
      if (!keeps(s)) break;
      found = true;
    }
  }
  return found;
}

/* === Numbers ================================================================================================================ */

/* Sets each field of a row of `best` to its default or, if that does not fail, closer to it. row: offset in schedule_case. */
static bool shrink_fields(shrinker *s, size_t row, const case_field *fields) {
  bool found = false;
  for (const case_field *f = fields; f->name; f++) {
    int64_t value = *case_value((char *)s->best + row, f);
    if (value == f->plain) continue;
    *s->next = *s->best;
    *case_value((char *)s->next + row, f) = f->plain;
    if (keeps(s)) {
      found = true;
      continue;
    }
    *s->next = *s->best;
    *case_value((char *)s->next + row, f) = f->plain + (value - f->plain) / 2;
    if ((value - f->plain) / 2 != 0 && keeps(s)) found = true;
  }
  return found;
}

static size_t offset_of(const shrinker *s, const void *row) { return (size_t)((const char *)row - (const char *)s->best); }

static bool shrink_opens(shrinker *s) {
  bool found = shrink_fields(s, 0, case_head_fields);
  for (uint32_t i = 0; i < s->best->event_count; i++)
    if (s->best->events[i].kind == CASE_OPEN)
      found |= shrink_fields(s, offset_of(s, &s->best->opens[s->best->events[i].value]), case_open_fields);
  return found;
}

/* === Requests =============================================================================================================== */

static bool drop_part(shrinker *s, uint32_t request, uint32_t part) {
  case_request *r = &s->next->requests[request];
  *s->next = *s->best;
  r->part_count--;
  memmove(r->parts + part, r->parts + part + 1, (r->part_count - part) * sizeof *r->parts);
  return keeps(s);
}

static bool shorten_part(shrinker *s, uint32_t request, uint32_t part, uint32_t count) {
  if (count >= s->best->requests[request].parts[part].count) return false;
  *s->next = *s->best;
  s->next->requests[request].parts[part].count = count;
  return keeps(s);
}

static bool shrink_prompt(shrinker *s, uint32_t request) {
  bool found = false;
  const case_request *r = &s->best->requests[request];
  for (uint32_t i = r->part_count; i > 0; i--) {
    if (drop_part(s, request, i - 1)) {
      found = true;
      continue;
    }
    while (r->parts[i - 1].count > 1 && shorten_part(s, request, i - 1, r->parts[i - 1].count / 2)) found = true;
    if (r->parts[i - 1].count > 1) found |= shorten_part(s, request, i - 1, r->parts[i - 1].count - r->parts[i - 1].count / 4);
  }
  return found;
}

/* All submissions and cancellations of one request. */
static bool drop_request(shrinker *s, uint32_t request) {
  schedule_case *n = s->next;
  uint32_t kept = 0;
  *n = *s->best;
  for (uint32_t i = 0; i < n->event_count; i++) {
    bool is_its = (n->events[i].kind == CASE_SUBMIT || n->events[i].kind == CASE_CANCEL) && n->events[i].value == request;
    if (!is_its) n->events[kept++] = n->events[i];
  }
  if (kept == n->event_count) return false;
  n->event_count = kept;
  return keeps(s);
}

static bool shrink_requests(shrinker *s) {
  bool found = false;
  for (uint32_t i = s->best->request_count; i > 0; i--) found |= drop_request(s, i - 1);
  for (uint32_t i = s->best->request_count; i > 0; i--) {
    if (!s->best->requests[i - 1].is_defined || !case_uses(s->best, i - 1)) continue;
    found |= shrink_prompt(s, i - 1);
    found |= shrink_fields(s, offset_of(s, &s->best->requests[i - 1]), case_request_fields);
  }
  return found;
}

status shrink_case(const run_stage *stage, schedule_case *c, trial *t, double seconds, double each_seconds, uint32_t *tried) {
  shrinker s = {.stage = stage, .best = c, .next = malloc(sizeof *c), .result = t, .end = clock_seconds() + seconds,
                .each_seconds = each_seconds};
  ASSERT(s.next);
  bool found = true;
  while (found && s.error == OK && clock_seconds() < s.end) {
    found = shrink_events(&s);
    found |= shrink_requests(&s);
    found |= shrink_opens(&s);
    found |= shrink_polls(&s);
  }
  free(s.next);
  *tried = s.tried;
  return s.error;
}

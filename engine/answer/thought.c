/* answer/thought.c - see answer/thought.h. */
#include "answer/thought.h"
#include "answer/scan.h"
#include <string.h>

enum { UNKNOWN, BEFORE, INSIDE, AFTER };

static uint8_t state_of(const answer_thought *self, const answer_form *form) {
  if (self->state != UNKNOWN) return self->state;
  return form->begins_inside ? INSIDE : form->marks && !form->begins_after ? BEFORE : AFTER;
}

bool answer_thought_is_inside(const answer_thought *self, const answer_form *form) { return state_of(self, form) == INSIDE; }
bool answer_thought_is_past(const answer_thought *self, const answer_form *form) { return state_of(self, form) == AFTER; }

static void show(const answer_sink *sink, answer_kind kind, const char *text, size_t bytes) {
  if (bytes) sink->text(sink->context, kind, text, bytes);
}

static void drop(answer_thought *self, size_t bytes) {
  self->held.count -= bytes;
  memmove(self->held.bytes, self->held.bytes + bytes, self->held.count);
}

/* White space, then the opening mark or not. False: more text is needed. */
static bool begin(answer_thought *self, const answer_form *form, const answer_sink *sink) {
  const strbuf *held = &self->held;
  self->blank = answer_scan_blank(held->bytes, held->count, self->blank);
  answer_scan_match match = answer_scan_literal(held->bytes + self->blank, held->count - self->blank, form->marks->open);
  if (match == ANSWER_SCAN_MORE) return false;
  if (match == ANSWER_SCAN_NO) {
    self->state = AFTER;
    return true;
  }
  size_t opened = self->blank + strlen(form->marks->open);
  if (!form->is_apart) show(sink, ANSWER_THOUGHT, held->bytes, opened);
  drop(self, opened);
  self->state = INSIDE;
  self->is_begun = true;
  return true;
}

/* Shows what is certainly thought. False: more text is needed. */
static bool go_on(answer_thought *self, const answer_form *form, const answer_sink *sink) {
  const strbuf *held = &self->held;
  const answer_grammar *grammar = form->grammar;
  const char *const ends[] = {form->marks->close, grammar && grammar->ends_thought ? grammar->section_open : NULL};
  size_t count = ends[1] ? 2 : 1, which = 0;
  size_t at = answer_scan_find(held->bytes, held->count, ends, count, &which);
  show(sink, ANSWER_THOUGHT, held->bytes, at);
  if (which < count) {
    size_t mark = which == 0 ? strlen(ends[0]) : 0;
    if (!form->is_apart) show(sink, ANSWER_THOUGHT, held->bytes + at, mark);
    at += mark;
    self->state = AFTER;
  }
  drop(self, at);
  return which < count;
}

void answer_thought_push(answer_thought *self, const answer_form *form, const char *text, size_t bytes, const answer_sink *sink) {
  self->state = state_of(self, form);
  if (self->state == AFTER) {
    show(sink, ANSWER_CONTENT, text, bytes);
    return;
  }
  strbuf_add(&self->held, text, bytes);
  if (self->held.count == 0) return;
  if (self->state == BEFORE && !begin(self, form, sink)) return;
  if (self->state == INSIDE && !go_on(self, form, sink)) return;
  show(sink, ANSWER_CONTENT, self->held.bytes, self->held.count);
  self->held.count = 0;
}

void answer_thought_finish(answer_thought *self, const answer_sink *sink) {
  show(sink, self->state == INSIDE ? ANSWER_THOUGHT : ANSWER_CONTENT, self->held.bytes, self->held.count);
  self->held.count = 0;
}

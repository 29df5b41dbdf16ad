/* answer/answer.c - see answer/answer.h. The thought's reader shows its content to the calls' reader; harmony has one for both. */
#include "answer/answer.h"
#include "answer/calls.h"
#include "answer/harmony.h"
#include "answer/thought.h"

typedef struct passage {
  answer_reader *self;
  const answer_form *form;
  const answer_sink *sink;
} passage;

static void show(void *context, answer_kind kind, const char *text, size_t bytes) {
  const passage *p = context;
  if (kind == ANSWER_THOUGHT) p->sink->text(p->sink->context, p->form->is_apart ? ANSWER_THOUGHT : ANSWER_CONTENT, text, bytes);
  else answer_calls_push(&p->self->calls, p->form, text, bytes, p->sink);
}

void answer_push(answer_reader *self, const answer_form *form, const char *text, size_t bytes, const answer_sink *sink) {
  if (answer_harmony_is(form)) {
    answer_harmony_push(&self->harmony, form, text, bytes, sink);
    return;
  }
  passage to_calls = {self, form, sink};
  const answer_sink next = {.context = &to_calls, .text = show};
  answer_thought_push(&self->thought, form, text, bytes, &next);
}

void answer_finish(answer_reader *self, const answer_form *form, const answer_sink *sink) {
  if (answer_harmony_is(form)) {
    answer_harmony_finish(&self->harmony, form, sink);
    return;
  }
  passage to_calls = {self, form, sink};
  const answer_sink next = {.context = &to_calls, .text = show};
  answer_thought_finish(&self->thought, &next);
  answer_calls_finish(&self->calls, form, sink);
}

void answer_close(answer_reader *self) {
  strbuf_close(&self->thought.held);
  strbuf_close(&self->calls.held);
  strbuf_close(&self->calls.arguments);
  strbuf_close(&self->harmony.held);
}

bool answer_has_thought(const answer_reader *self, const answer_form *form) {
  return self->thought.is_begun || self->harmony.has_thought || form->begins_inside;
}

bool answer_is_inside(const answer_reader *self, const answer_form *form) {
  return answer_harmony_is(form) ? answer_harmony_is_inside(&self->harmony, form) : answer_thought_is_inside(&self->thought, form);
}

bool answer_is_past(const answer_reader *self, const answer_form *form) {
  return answer_harmony_is(form) ? !answer_harmony_is_inside(&self->harmony, form) : answer_thought_is_past(&self->thought, form);
}

uint32_t answer_call_count(const answer_reader *self) { return self->calls.count + self->harmony.calls; }
bool answer_failed(const answer_reader *self) {
  return self->thought.held.failed || self->calls.held.failed || self->calls.arguments.failed || self->harmony.held.failed;
}
const char *answer_error(const answer_reader *self) { return *self->harmony.error ? self->harmony.error : self->calls.error; }

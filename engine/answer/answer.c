/* answer/answer.c - see answer/answer.h. The thought's reader shows its content to the calls' reader. */
#include "answer/answer.h"
#include "answer/calls.h"
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
  passage to_calls = {self, form, sink};
  const answer_sink next = {.context = &to_calls, .text = show};
  answer_thought_push(&self->thought, form, text, bytes, &next);
}

void answer_finish(answer_reader *self, const answer_form *form, const answer_sink *sink) {
  passage to_calls = {self, form, sink};
  const answer_sink next = {.context = &to_calls, .text = show};
  answer_thought_finish(&self->thought, &next);
  answer_calls_finish(&self->calls, form, sink);
}

void answer_close(answer_reader *self) {
  strbuf_close(&self->thought.held);
  strbuf_close(&self->calls.held);
  strbuf_close(&self->calls.arguments);
}

bool answer_has_thought(const answer_reader *self, const answer_form *form) { return self->thought.is_begun || form->begins_inside; }
bool answer_is_inside(const answer_reader *self, const answer_form *form) { return answer_thought_is_inside(&self->thought, form); }
bool answer_is_past(const answer_reader *self, const answer_form *form) { return answer_thought_is_past(&self->thought, form); }
uint32_t answer_call_count(const answer_reader *self) { return self->calls.count; }
bool answer_failed(const answer_reader *self) {
  return self->thought.held.failed || self->calls.held.failed || self->calls.arguments.failed;
}
const char *answer_error(const answer_reader *self) { return self->calls.error; }

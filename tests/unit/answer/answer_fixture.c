/* answer_fixture.c - see answer_fixture.h. */
#include "answer_fixture.h"
#include <stdlib.h>
#include <string.h>

static void take_text(void *context, answer_kind kind, const char *text, size_t bytes) {
  answer_read *read = context;
  strbuf_add(kind == ANSWER_THOUGHT ? &read->thought : &read->content, text, bytes);
}

static void take_call(void *context, const answer_call *call) {
  answer_read *read = context;
  if (call->index != read->call_count) abort();
  read->call_count++;
  strbuf_adds(&read->calls, call->id);
  strbuf_adds(&read->calls, " ");
  strbuf_adds(&read->calls, call->name);
  strbuf_adds(&read->calls, " ");
  strbuf_add(&read->calls, call->arguments, call->arguments_bytes);
  strbuf_adds(&read->calls, "\n");
}

answer_read answer_fixture_read(const answer_form *form, const char *text, size_t bytes, size_t most, uint64_t random) {
  answer_read read = {.call_count = 0};
  const answer_sink sink = {.context = &read, .text = take_text, .call = take_call};
  answer_reader self = {.thought = {.state = 0}};
  for (size_t at = 0, count; at < bytes; at += count) {
    random = random * 6364136223846793005u + 1442695040888963407u;
    count = most ? 1 + (size_t)(random >> 33) % most : bytes;
    if (count > bytes - at) count = bytes - at;
    char *piece = malloc(count);
    if (!piece) abort();
    memcpy(piece, text + at, count);
    answer_push(&self, form, piece, count, &sink);
    free(piece);
  }
  read.is_inside = answer_is_inside(&self, form);
  answer_finish(&self, form, &sink);
  read.failed = answer_failed(&self);
  memcpy(read.error, answer_error(&self), strlen(answer_error(&self)) + 1);
  answer_close(&self);
  return read;
}

void answer_fixture_close(answer_read *self) {
  strbuf_close(&self->thought);
  strbuf_close(&self->content);
  strbuf_close(&self->calls);
}

bool answer_fixture_is(const strbuf *found, const char *expected) {
  return found->count == strlen(expected) && memcmp(found->bytes ? found->bytes : "", expected, found->count) == 0;
}

bool answer_fixture_is_same(const answer_read *a, const answer_read *b) {
  const strbuf *const of_a[] = {&a->thought, &a->content, &a->calls}, *const of_b[] = {&b->thought, &b->content, &b->calls};
  for (size_t i = 0; i < ARRAY_LEN(of_a); i++)
    if (of_a[i]->count != of_b[i]->count || (of_a[i]->count && memcmp(of_a[i]->bytes, of_b[i]->bytes, of_a[i]->count))) return false;
  return a->call_count == b->call_count && a->is_inside == b->is_inside && strcmp(a->error, b->error) == 0;
}

/* answer/harmony.c - see answer/harmony.h. One function for each step; a step goes on, or needs more text. */
#include "answer/harmony.h"
#include "answer/judge.h"
#include "answer/scan.h"
#include <stdio.h>
#include <string.h>

#define HEADER_BYTES_MAX (ANSWER_NAME_BYTES_MAX + 256u)
#define FUNCTIONS "functions."

enum { FIRST, HEADER, THOUGHT, CONTENT, CALL, AS_IT_STANDS, BETWEEN, STEPS };

/* What ends a message: the last one begins the next, too. */
static const char *const ends[] = {ANSWER_HARMONY_END, ANSWER_HARMONY_CALL, ANSWER_HARMONY_RETURN, ANSWER_HARMONY_START};
enum { NEXT_STARTS = 3, END_COUNT };

typedef struct reading {
  answer_harmony *self;
  const answer_form *form;
  const answer_sink *sink;
} reading;

typedef struct words { /* a part of a text */
  const char *bytes;
  size_t count;
} words;

typedef struct header {
  words role, channel, recipient, type; /* of which bytes is NULL if there is none */
} header;

bool answer_harmony_is(const answer_form *form) {
  return (form->grammar && form->grammar->body == ANSWER_BODY_MESSAGES) || (form->marks && form->marks->are_messages);
}

static void bad(answer_harmony *self, const char *why) {
  if (!*self->error) snprintf(self->error, sizeof self->error, "message %u: %.230s", self->messages + 1, why);
}

static void drop(answer_harmony *self, size_t bytes) {
  self->held.count -= bytes;
  memmove(self->held.bytes, self->held.bytes + bytes, self->held.count);
  self->searched = 0;
}

/* Shows the first bytes of what is held. Between two messages of one kind stands a line feed. */
static void show(reading *r, answer_kind kind, size_t bytes) {
  answer_harmony *self = r->self;
  bool *is_shown = kind == ANSWER_THOUGHT ? &self->has_thought_text : &self->has_content;
  if (bytes == 0) return;
  if (self->is_new && *is_shown) r->sink->text(r->sink->context, kind, "\n", 1);
  r->sink->text(r->sink->context, kind, self->held.bytes, bytes);
  self->is_new = false;
  *is_shown = true;
}

static void show_as_it_stands(reading *r, size_t bytes) {
  if (bytes) r->sink->text(r->sink->context, ANSWER_CONTENT, r->self->held.bytes, bytes);
}

/* The offset of the end of the message that is held, or of what may become one. */
static size_t find_end(answer_harmony *self, size_t *which) {
  const char *from = self->held.bytes + self->searched;
  self->searched += answer_scan_find(from, self->held.count - self->searched, ends, END_COUNT, which);
  return self->searched;
}

static size_t mark_bytes(size_t which) { return which < NEXT_STARTS ? strlen(ends[which]) : 0; }

/* === Headers ================================================================================================================ */

static bool is(words text, const char *expected) {
  return text.bytes && text.count == strlen(expected) && memcmp(text.bytes, expected, text.count) == 0;
}

/* Takes the mark from the beginning of the text. */
static bool take(words *text, const char *mark) {
  if (answer_scan_literal(text->bytes, text->count, mark) != ANSWER_SCAN_YES) return false;
  text->bytes += strlen(mark);
  text->count -= strlen(mark);
  return true;
}

static void skip_blank(words *text) {
  size_t blank = answer_scan_blank(text->bytes, text->count, 0);
  text->bytes += blank;
  text->count -= blank;
}

/* Up to white space or a mark. */
static words take_word(words *text) {
  words word = {text->bytes, 0};
  while (word.count < text->count && word.bytes[word.count] != '<' && !answer_scan_is_blank(word.bytes[word.count])) word.count++;
  text->bytes += word.count;
  text->count -= word.count;
  return word;
}

/* A word for a place that is free. */
static bool put(words *place, words word) {
  bool is_good = !place->bytes && word.count > 0;
  *place = word;
  return is_good;
}

/* The text before <|message|>. */
static bool parse_header(words text, header *out) {
  bool is_good = true;
  *out = (header){.role = {"assistant", 9}};
  if (take(&text, ANSWER_HARMONY_START)) out->role = take_word(&text);
  for (skip_blank(&text); is_good && text.count > 0; skip_blank(&text)) {
    if (take(&text, ANSWER_HARMONY_CHANNEL)) is_good = put(&out->channel, take_word(&text));
    else if (take(&text, "to=")) is_good = put(&out->recipient, take_word(&text));
    else {
      if (take(&text, ANSWER_HARMONY_CONSTRAIN)) skip_blank(&text);
      is_good = put(&out->type, take_word(&text));
    }
  }
  return is_good;
}

/* The step that reads the message; AS_IT_STANDS: error says what is wrong with the header. */
static uint8_t step_of(reading *r, const header *h) {
  bool is_thought = is(h->channel, "analysis"), is_known = is_thought || is(h->channel, "commentary") || is(h->channel, "final");
  char why[ANSWER_ERROR_BYTES];
  if (!is(h->role, "assistant")) snprintf(why, sizeof why, "expected the role assistant, found %.*s", (int)h->role.count, h->role.bytes);
  else if (h->channel.bytes && !is_known)
    snprintf(why, sizeof why, "expected the channel analysis, commentary or final, found %.*s", (int)h->channel.count, h->channel.bytes);
  else if (!h->recipient.bytes) return is_thought ? THOUGHT : CONTENT;
  else if (!r->form->grammar) return AS_IT_STANDS;
  else if (h->recipient.count > sizeof FUNCTIONS - 1 && memcmp(h->recipient.bytes, FUNCTIONS, sizeof FUNCTIONS - 1) == 0) return CALL;
  else
    snprintf(why, sizeof why, "expected the recipient " FUNCTIONS "NAME, found %.*s", (int)h->recipient.count, h->recipient.bytes);
  bad(r->self, why);
  return AS_IT_STANDS;
}

static void begin_message(reading *r, const header *h, size_t body_at) {
  answer_harmony *self = r->self;
  self->step = step_of(r, h);
  self->is_new = true;
  self->has_thought |= self->step == THOUGHT;
  if (self->step == CALL) {
    self->name_at = (size_t)(h->recipient.bytes - self->held.bytes) + sizeof FUNCTIONS - 1;
    self->name_bytes = h->recipient.count - (sizeof FUNCTIONS - 1);
    self->body_at = self->searched = body_at;
    self->depth = 0;
    self->in_text = self->is_escaped = self->is_scanned = false;
    return;
  }
  bool is_spelled = self->step == AS_IT_STANDS || (self->step == THOUGHT && !r->form->is_apart);
  if (is_spelled) show_as_it_stands(r, body_at);
  drop(self, body_at);
}

/* After an optional <|start|>. False: more text is needed. */
static bool read_header(reading *r) {
  answer_harmony *self = r->self;
  const char *const marks[] = {ANSWER_HARMONY_MESSAGE, ends[0], ends[1], ends[2], ends[3]};
  size_t which = 0, begun = answer_scan_literal(self->held.bytes, self->held.count, ANSWER_HARMONY_START) == ANSWER_SCAN_YES;
  size_t from = begun ? strlen(ANSWER_HARMONY_START) : 0, at = from;
  at += answer_scan_find(self->held.bytes + from, self->held.count - from, marks, ARRAY_LEN(marks), &which);
  header found;
  if (which == 0 && at <= HEADER_BYTES_MAX && parse_header((words){self->held.bytes, at}, &found)) {
    begin_message(r, &found, at + strlen(ANSWER_HARMONY_MESSAGE));
    return true;
  }
  if (which == ARRAY_LEN(marks) && at <= HEADER_BYTES_MAX) return false;
  bad(self, which == 0 ? "expected a header with role, channel, recipient and type" : "expected a header and <|message|>");
  self->searched = from; /* else a next message would seem to begin where this one does */
  self->step = AS_IT_STANDS;
  return true;
}

/* === Messages =============================================================================================================== */

/* The answer begins with a header, or else it is content. */
static bool read_first(reading *r) {
  static const char *const openings[] = {ANSWER_HARMONY_CHANNEL, ANSWER_HARMONY_MESSAGE, ANSWER_HARMONY_CONSTRAIN, ANSWER_HARMONY_START,
                                         "to="};
  answer_harmony *self = r->self;
  bool is_more = false, is_header = false;
  self->is_new = true;
  self->step = r->form->begins_inside ? THOUGHT : CONTENT;
  if (r->form->begins_inside || r->form->begins_after) return true;
  size_t blank = answer_scan_blank(self->held.bytes, self->held.count, 0);
  for (size_t i = 0; i < ARRAY_LEN(openings); i++) {
    answer_scan_match match = answer_scan_literal(self->held.bytes + blank, self->held.count - blank, openings[i]);
    is_header |= match == ANSWER_SCAN_YES;
    is_more |= match == ANSWER_SCAN_MORE;
  }
  self->step = is_header ? HEADER : is_more ? FIRST : CONTENT;
  if (is_header) drop(self, blank);
  return is_header || !is_more;
}

/* Past the end of the message: at + mark bytes are read. */
static void end_message(reading *r, size_t at, size_t which) {
  drop(r->self, at + mark_bytes(which));
  r->self->messages++;
  r->self->step = BETWEEN;
}

static bool read_shown(reading *r) {
  answer_harmony *self = r->self;
  size_t which = END_COUNT, at = find_end(self, &which);
  bool is_spelled = self->step == THOUGHT && !r->form->is_apart, is_ended = which < END_COUNT;
  if (is_spelled) show_as_it_stands(r, at + (is_ended ? mark_bytes(which) : 0));
  else show(r, self->step == THOUGHT ? ANSWER_THOUGHT : ANSWER_CONTENT, at);
  if (is_ended) end_message(r, at, which);
  else drop(self, at);
  return is_ended;
}

static bool read_as_it_stands(reading *r) {
  size_t which = END_COUNT, at = find_end(r->self, &which);
  bool is_ended = which < END_COUNT;
  show_as_it_stands(r, at + (is_ended ? mark_bytes(which) : 0));
  if (is_ended) end_message(r, at, which);
  else drop(r->self, at);
  return is_ended;
}

/* The message of which the body ends at `end`: whether it is a call, which then came out. */
static bool judge(reading *r, size_t end) {
  answer_harmony *self = r->self;
  const char *held = self->held.bytes;
  size_t from = answer_scan_blank(held, end, self->body_at);
  char id[ANSWER_ID_BYTES] = "", name[ANSWER_NAME_BYTES_MAX + 1] = "", why[ANSWER_ERROR_BYTES] = "expected a name";
  while (end > from && answer_scan_is_blank(held[end - 1])) end--;
  bool is_named = self->name_bytes <= ANSWER_NAME_BYTES_MAX && !memchr(held + self->name_at, 0, self->name_bytes);
  if (is_named) snprintf(name, sizeof name, "%.*s", (int)self->name_bytes, held + self->name_at);
  bool is_call = is_named && answer_judge_call(r->form->tools, name, held + from, end - from, why) &&
                 answer_judge_count(r->form, self->calls, why);
  if (!is_call) {
    bad(self, why);
    return false;
  }
  const answer_call call = {.index = self->calls, .id = id, .name = name, .arguments = held + from, .arguments_bytes = end - from};
  answer_judge_id(r->form, self->calls++, id);
  if (!self->held.failed) r->sink->call(r->sink->context, &call);
  return true;
}

/* Past the object of the call, in the texts of which marks may be spelled. False: more text is needed. */
static bool scan_object(answer_harmony *self) {
  answer_scan_json scan = {.depth = self->depth, .in_text = self->in_text, .is_escaped = self->is_escaped};
  if (self->is_scanned) return true;
  if (self->depth == 0) self->searched = answer_scan_blank(self->held.bytes, self->held.count, self->searched);
  if (self->searched == self->held.count) return false;
  self->is_scanned = (self->depth == 0 && self->held.bytes[self->searched] != '{') ||
                     answer_scan_object(&scan, self->held.bytes, self->held.count, &self->searched);
  self->depth = scan.depth;
  self->in_text = scan.in_text;
  self->is_escaped = scan.is_escaped;
  return self->is_scanned;
}

static bool read_call(reading *r) {
  if (!scan_object(r->self)) return false;
  size_t which = END_COUNT, at = find_end(r->self, &which);
  if (which == END_COUNT) return false;
  if (!judge(r, at)) show_as_it_stands(r, at + mark_bytes(which));
  end_message(r, at, which);
  return true;
}

static bool read_between(reading *r) {
  answer_harmony *self = r->self;
  size_t blank = answer_scan_blank(self->held.bytes, self->held.count, 0);
  answer_scan_match next = answer_scan_literal(self->held.bytes + blank, self->held.count - blank, ANSWER_HARMONY_START);
  if (next == ANSWER_SCAN_MORE) return false;
  if (next == ANSWER_SCAN_YES) drop(self, blank);
  else bad(self, "expected <|start|> after the message before it");
  self->step = next == ANSWER_SCAN_YES ? HEADER : AS_IT_STANDS;
  return true;
}

void answer_harmony_push(answer_harmony *self, const answer_form *form, const char *text, size_t bytes, const answer_sink *sink) {
  static bool (*const steps[STEPS])(reading *) = {read_first, read_header, read_shown, read_shown, read_call, read_as_it_stands,
                                                  read_between};
  reading r = {self, form, sink};
  strbuf_add(&self->held, text, bytes);
  while (self->held.count > 0 && !self->held.failed)
    if (!steps[self->step](&r)) break;
}

/* The stop token that ends a call is no part of the answer: its object alone says whether it is whole. */
void answer_harmony_finish(answer_harmony *self, const answer_form *form, const answer_sink *sink) {
  reading r = {self, form, sink};
  bool is_blank = answer_scan_blank(self->held.bytes, self->held.count, 0) == self->held.count;
  size_t bytes = self->held.count;
  if (self->step == HEADER) bad(self, "the answer ends within its header");
  if (self->step == THOUGHT && form->is_apart) show(&r, ANSWER_THOUGHT, bytes);
  else if (self->step == CONTENT) show(&r, ANSWER_CONTENT, bytes);
  else if (!(self->step == BETWEEN && is_blank) && !(self->step == CALL && judge(&r, bytes))) show_as_it_stands(&r, bytes);
  self->held.count = 0;
}

bool answer_harmony_is_inside(const answer_harmony *self, const answer_form *form) {
  return self->step == THOUGHT || (self->step == FIRST && form->begins_inside);
}

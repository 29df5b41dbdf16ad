/* answer/calls.c - see answer/calls.h. One function for each step; a step goes on, needs more text, or finds that there is no call. */
#include "answer/calls.h"
#include "answer/judge.h"
#include "answer/pairs.h"
#include "answer/scan.h"
#include <stdio.h>
#include <string.h>

enum { TEXT, NEXT, NAME, OBJECT, CLOSE, KEY, KEY_TEXT, VALUE_OPEN, VALUE, REST, STEPS };

typedef enum outcome { GO, MORE, BAD } outcome;

typedef struct reading {
  answer_calls *self;
  const answer_form *form;
  const answer_sink *sink;
} reading;

static void show(const reading *r, size_t bytes) {
  answer_calls *self = r->self;
  if (bytes) r->sink->text(r->sink->context, ANSWER_CONTENT, self->held.bytes, bytes);
}

static void drop(answer_calls *self, size_t bytes) {
  self->held.count -= bytes;
  memmove(self->held.bytes, self->held.bytes + bytes, self->held.count);
  self->at = self->searched = self->blank = 0;
}

static outcome bad(answer_calls *self, const char *why) {
  if (!*self->error) snprintf(self->error, sizeof self->error, "call %u: %s", self->seen + 1, why);
  return BAD;
}

static void skip_blank(answer_calls *self) { self->at = answer_scan_blank(self->held.bytes, self->held.count, self->at); }

static answer_scan_match match(const answer_calls *self, const char *mark) {
  return answer_scan_literal(self->held.bytes + self->at, self->held.count - self->at, mark);
}

/* Goes past the mark, to that step. */
static outcome take(answer_calls *self, const char *mark, uint8_t step, const char *otherwise) {
  answer_scan_match found = match(self, mark);
  if (found == ANSWER_SCAN_MORE) return MORE;
  if (found == ANSWER_SCAN_NO) return bad(self, otherwise);
  self->at += strlen(mark);
  self->searched = self->at;
  self->step = step;
  return GO;
}

/* The offset of the mark after `at`. */
static bool find(answer_calls *self, const char *mark, size_t *at) {
  size_t which;
  *at = self->searched + answer_scan_find(self->held.bytes + self->searched, self->held.count - self->searched, &mark, 1, &which);
  self->searched = *at;
  return which == 0;
}

/* === Content ================================================================================================================ */

/* In text from `from` on, after white space of which the end is `blank`: whether a call begins there. */
static answer_scan_match opens(const reading *r, size_t blank) {
  const answer_grammar *g = r->form->grammar;
  const strbuf *held = &r->self->held;
  const char *text = held->bytes + blank;
  size_t bytes = held->count - blank;
  if (!g->starts_answer) return answer_scan_literal(text, bytes, g->section_open ? g->section_open : g->call_open);
  if (r->self->is_begun) return ANSWER_SCAN_NO;
  answer_scan_match object = answer_scan_literal(text, bytes, "{");
  return object == ANSWER_SCAN_NO ? answer_scan_literal(text, bytes, g->call_open) : object;
}

static void open_block(reading *r, size_t at) {
  const answer_grammar *g = r->form->grammar;
  answer_calls *self = r->self;
  const char *mark = g->section_open ? g->section_open : g->call_open;
  self->at = at;
  if (match(self, mark) == ANSWER_SCAN_YES) self->at += strlen(mark);
  self->searched = self->at;
  self->section_count = 0;
  self->is_begun = true;
  self->step = g->section_open ? NEXT : g->body == ANSWER_BODY_CALL ? OBJECT : NAME;
}

/* Shows content up to white space that may belong to a call. */
static outcome read_text(reading *r) {
  answer_calls *self = r->self;
  const answer_grammar *g = r->form->grammar;
  const char first = *(g->section_open ? g->section_open : g->call_open);
  size_t from = 0, blank = self->blank;
  answer_scan_match opened;
  for (;;) {
    blank = answer_scan_blank(self->held.bytes, self->held.count, blank);
    opened = blank < self->held.count ? opens(r, blank) : ANSWER_SCAN_MORE;
    if (opened != ANSWER_SCAN_NO) break;
    self->is_begun = true;
    self->is_after_call = false;
    from = blank + 1;
    while (from < self->held.count && !answer_scan_is_blank(self->held.bytes[from]) && self->held.bytes[from] != first) from++;
    blank = from;
  }
  show(r, from);
  drop(self, from);
  self->blank = blank - from;
  if (opened == ANSWER_SCAN_MORE) return MORE;
  open_block(r, self->blank);
  return GO;
}

/* === A call that is whole =================================================================================================== */

static void copy(char *to, size_t room, const char *text, size_t bytes) { snprintf(to, room, "%.*s", (int)bytes, text); }

/* Kimi's ids are functions.NAME:NUMBER. */
static bool split_id(answer_calls *self, char id[ANSWER_ID_BYTES], char name[ANSWER_NAME_BYTES_MAX + 1]) {
  static const char lead[] = "functions.";
  copy(id, ANSWER_ID_BYTES, self->held.bytes + self->name_at, self->name_bytes);
  const char *colon = strrchr(id, ':'), *first = id + sizeof lead - 1;
  bool is_numbered = colon && colon[1] && strspn(colon + 1, "0123456789") == strlen(colon + 1);
  if (strncmp(id, lead, sizeof lead - 1) != 0 || !is_numbered || colon <= first) return false;
  copy(name, ANSWER_NAME_BYTES_MAX + 1, first, (size_t)(colon - first));
  return true;
}

/* Checks the call in held up to `at`. False: why says what is wrong with it. */
static bool judge(reading *r, char why[ANSWER_ERROR_BYTES]) {
  const answer_grammar *g = r->form->grammar;
  answer_calls *self = r->self;
  const char *object = self->held.bytes + self->object_at;
  char id[ANSWER_ID_BYTES] = "", name[ANSWER_NAME_BYTES_MAX + 1] = "";
  answer_call call = {.index = self->count, .id = id, .name = name, .arguments = object, .arguments_bytes = self->object_bytes};
  if (g->body == ANSWER_BODY_CALL) {
    if (!answer_judge_object(object, self->object_bytes, g->arguments_key, name, &call.arguments, &call.arguments_bytes, why)) return false;
  } else if (!g->has_ids) copy(name, sizeof name, self->held.bytes + self->name_at, self->name_bytes);
  else if (!split_id(self, id, name)) {
    snprintf(why, ANSWER_ERROR_BYTES, "expected an id as functions.NAME:0, found %.100s", id);
    return false;
  }
  if (g->body == ANSWER_BODY_PAIRS) call.arguments = self->arguments.bytes, call.arguments_bytes = self->arguments.count;
  if (!answer_judge_call(r->form->tools, name, call.arguments, call.arguments_bytes, why)) return false;
  if (!answer_judge_count(r->form, self->count, why)) return false;
  if (!g->has_ids) answer_judge_id(r->form, self->count, id);
  self->count++;
  if (!self->held.failed && !self->arguments.failed) r->sink->call(r->sink->context, &call);
  return true;
}

static outcome end_call(reading *r) {
  const answer_grammar *g = r->form->grammar;
  answer_calls *self = r->self;
  char why[ANSWER_ERROR_BYTES] = "";
  bool is_call = judge(r, why);
  if (!is_call) {
    (void)bad(self, why);
    show(r, self->at);
  }
  drop(self, self->at);
  self->arguments.count = 0;
  self->seen++;
  self->section_count++;
  self->is_last_text = !is_call;
  self->is_after_call = is_call;
  self->step = g->section_open || (g->starts_answer && is_call) ? NEXT : g->starts_answer ? REST : TEXT;
  return GO;
}

/* === The steps of a call ==================================================================================================== */

/* Between the calls of a section, or of an answer that consists of calls. */
static outcome read_next(reading *r) {
  const answer_grammar *g = r->form->grammar;
  answer_calls *self = r->self;
  skip_blank(self);
  if (self->at == self->held.count) return MORE;
  if (g->starts_answer) {
    answer_scan_match tag = match(self, g->call_open);
    if (tag == ANSWER_SCAN_YES) return take(self, g->call_open, OBJECT, "");
    if (tag == ANSWER_SCAN_MORE) return MORE;
    if (self->held.bytes[self->at] == ';') return take(self, ";", OBJECT, "");
    self->step = REST;
    return GO;
  }
  answer_scan_match close = match(self, g->section_close);
  if (close == ANSWER_SCAN_NO) return take(self, g->call_open, NAME, "expected a call or the end of the calls");
  if (close == ANSWER_SCAN_MORE) return MORE;
  if (self->section_count == 0) return bad(self, "a section without a call");
  self->at += strlen(g->section_close);
  if (self->is_last_text) show(r, self->at);
  drop(self, self->at);
  self->is_after_call = !self->is_last_text;
  self->step = TEXT;
  return GO;
}

/* Without a mark after it, the name ends where a line or a mark does. */
static bool find_name_end(answer_calls *self, const answer_grammar *g, size_t *end) {
  if (g->name_close) return find(self, g->name_close, end);
  while (self->searched < self->held.count && !strchr("\n<", self->held.bytes[self->searched])) self->searched++;
  *end = self->searched;
  return self->searched < self->held.count;
}

static outcome read_name(reading *r) {
  const answer_grammar *g = r->form->grammar;
  answer_calls *self = r->self;
  size_t end = 0, most = g->has_ids ? ANSWER_NAME_BYTES_MAX + 32 : ANSWER_NAME_BYTES_MAX;
  bool is_found = find_name_end(self, g, &end);
  if (end - self->at > most) return bad(self, "expected a name");
  if (!is_found) return MORE;
  self->name_at = answer_scan_blank(self->held.bytes, end, self->at);
  while (end > self->name_at && answer_scan_is_blank(self->held.bytes[end - 1])) end--;
  self->name_bytes = end - self->name_at;
  if (self->name_bytes == 0 || memchr(self->held.bytes + self->name_at, 0, self->name_bytes)) return bad(self, "expected a name");
  self->at = self->searched + (g->name_close ? strlen(g->name_close) : 0);
  self->searched = self->at;
  self->step = g->body == ANSWER_BODY_PAIRS ? KEY : OBJECT;
  return GO;
}

static outcome read_object(reading *r) {
  answer_calls *self = r->self;
  if (self->depth == 0) {
    skip_blank(self);
    if (self->at == self->held.count) return MORE;
    if (self->held.bytes[self->at] != '{') return bad(self, "expected a JSON object");
    self->object_at = self->at;
  }
  answer_scan_json scan = {.depth = self->depth, .in_text = self->in_text, .is_escaped = self->is_escaped};
  bool is_whole = answer_scan_object(&scan, self->held.bytes, self->held.count, &self->at);
  self->depth = is_whole ? 0 : scan.depth;
  self->in_text = scan.in_text;
  self->is_escaped = scan.is_escaped;
  if (!is_whole) return MORE;
  self->object_bytes = self->at - self->object_at;
  self->step = CLOSE;
  return GO;
}

static outcome read_close(reading *r) {
  const answer_grammar *g = r->form->grammar;
  if (g->starts_answer) return end_call(r);
  skip_blank(r->self);
  outcome found = take(r->self, g->call_close, TEXT, "expected the end of the call after its object");
  return found == GO ? end_call(r) : found;
}

static outcome read_key(reading *r) {
  const answer_grammar *g = r->form->grammar;
  answer_calls *self = r->self;
  skip_blank(self);
  answer_scan_match key = match(self, g->key_open);
  if (key == ANSWER_SCAN_YES) return take(self, g->key_open, KEY_TEXT, "");
  if (key == ANSWER_SCAN_MORE) return MORE;
  outcome found = take(self, g->call_close, TEXT, "expected an argument or the end of the call");
  if (found != GO) return found;
  answer_pairs_end(&self->arguments);
  return end_call(r);
}

static outcome read_key_text(reading *r) {
  const answer_grammar *g = r->form->grammar;
  answer_calls *self = r->self;
  size_t end;
  if (!find(self, g->key_close, &end)) return MORE;
  self->key_at = self->at;
  self->key_bytes = end - self->at;
  self->at = self->searched = end + strlen(g->key_close);
  self->step = VALUE_OPEN;
  return GO;
}

static outcome read_value_open(reading *r) {
  const answer_grammar *g = r->form->grammar;
  answer_calls *self = r->self;
  if (!g->tells_text) skip_blank(self);
  self->is_text = g->tells_text && self->at < self->held.count && self->held.bytes[self->at] == 't';
  outcome found = take(self, g->value_open ? g->value_open : self->is_text ? "true\">" : "false\">", VALUE, "expected a value");
  if (found == GO) self->value_at = self->at;
  return found;
}

static outcome read_value(reading *r) {
  const answer_grammar *g = r->form->grammar;
  answer_calls *self = r->self;
  const char *held = self->held.bytes;
  size_t end;
  if (!find(self, g->value_close, &end)) return MORE;
  const answer_pairs_value value = {.key = held + self->key_at, .key_bytes = self->key_bytes, .text = held + self->value_at,
                                    .bytes = end - self->value_at, .is_told = g->tells_text, .is_text = self->is_text};
  char name[ANSWER_NAME_BYTES_MAX + 1];
  copy(name, sizeof name, held + self->name_at, self->name_bytes);
  answer_pairs_add(&self->arguments, answer_judge_parameters(r->form->tools, name), &value);
  self->at = self->searched = end + strlen(g->value_close);
  self->step = KEY;
  return GO;
}

static outcome read_rest(reading *r) {
  show(r, r->self->held.count);
  drop(r->self, r->self->held.count);
  return MORE;
}

void answer_calls_push(answer_calls *self, const answer_form *form, const char *text, size_t bytes, const answer_sink *sink) {
  static outcome (*const steps[STEPS])(reading *) = {read_text, read_next, read_name, read_object, read_close, read_key, read_key_text,
                                                     read_value_open, read_value, read_rest};
  reading r = {self, form, sink};
  if (bytes == 0) return;
  if (!form->grammar) {
    sink->text(sink->context, ANSWER_CONTENT, text, bytes);
    return;
  }
  strbuf_add(&self->held, text, bytes);
  outcome last = GO;
  while (last == GO && !self->held.failed && !self->arguments.failed) {
    last = steps[self->step](&r);
    if (last != BAD) continue;
    self->step = REST;
    last = GO;
  }
}

void answer_calls_finish(answer_calls *self, const answer_form *form, const answer_sink *sink) {
  reading r = {self, form, sink};
  bool is_open = self->step != TEXT && self->step != REST && !(self->step == NEXT && self->section_count > 0);
  bool is_blank = answer_scan_blank(self->held.bytes, self->held.count, 0) == self->held.count;
  if (is_open) (void)bad(self, "the answer ends within it");
  if (!(self->is_after_call && is_blank)) show(&r, self->held.count);
  self->held.count = 0;
}

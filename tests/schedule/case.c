/* case.c - see case.h. The tables of fields, and reading and writing a case. */
#include "case.h"
#include "ask.h"
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OF(type, field) offsetof(type, field)

const case_field case_head_fields[] = {
    {"weights", OF(schedule_case, weights), 0, UINT32_MAX, 1}, /* seed */
    {"vary", OF(schedule_case, vary), 0, UINT32_MAX, 0},       /* seed of other sizes; 0: the configuration as it is */
    {"chunk", OF(schedule_case, chunk), 64, 2048, 64},         /* chunk_tokens and group_chunks of every plan */
    {"groups", OF(schedule_case, groups), 1, 64, 2},
    {"len", OF(schedule_case, len), 64, 1024, 320},            /* prompts are shortened to fit */
    {"fast", OF(schedule_case, fast), 0, 1, 0},                /* parity: fast-prefill */
    {NULL, 0, 0, 0, 0}};

const case_field case_request_fields[] = { /* real numbers in thousandths */
    {"max", OF(case_request, max_tokens), 0, 512, 1},
    {"seed", OF(case_request, seed), 0, INT64_MAX, 0},
    {"sample", OF(case_request, sample), 0, UINT32_MAX, 0},
    {"temp", OF(case_request, temperature), 0, 100000, 0},
    {"top_k", OF(case_request, top_k), 0, UINT32_MAX, 0},
    {"top_p", OF(case_request, top_p), 1, 1000, 1000},
    {"min_p", OF(case_request, min_p), 0, 1000, 0},
    {"repeat", OF(case_request, repetition), 63, 16000, 1000},
    {"presence", OF(case_request, presence), -16000, 16000, 0},
    {"frequency", OF(case_request, frequency), -16000, 16000, 0},
    {"biases", OF(case_request, biases), 0, 64, 0}, /* how many; which ones follows from "list" */
    {"allowed", OF(case_request, allowed), 0, 64, 0},
    {"stops", OF(case_request, stops), 0, 32, 0},
    {"texts", OF(case_request, texts), 0, 8, 0},
    {"list", OF(case_request, list_seed), 0, UINT32_MAX, 0},
    {"no_eos", OF(case_request, ignore_eos), 0, 1, 0},
    {"top", OF(case_request, top), 0, 20, 0},
    {"score", OF(case_request, score), 0, 1024, 0},   /* 0: none; else score_from is score - 1, modulo (prompt length - 1) */
    {"rows", OF(case_request, rows), 0, 1, 0},        /* requests logits rows */
    {"quit", OF(case_request, quit), 0, 512, 0},      /* cancels itself after that many tokens, in the callback */
    {"deadline", OF(case_request, deadline), 0, UINT32_MAX, 0}, /* microseconds */
    {"draft", OF(case_request, draft), 0, ASK_DRAFTERS - 1, 0}, /* who guesses its tokens: enum ask_drafter */
    {NULL, 0, 0, 0, 0}};

const case_field case_open_fields[] = {
    {"seqs", OF(case_open, seqs), 1, 64, 4},
    {"batch", OF(case_open, batch), 1, 1024, 64},
    {"logits", OF(case_open, logits), 1, 1024, 16},
    {"spare", OF(case_open, spare), 0, 1024, 64},   /* KV pages in addition to those of one sequence of full length */
    {"margin", OF(case_open, margin), 0, 512, 0},   /* max_len exceeds len by this much */
    {"ladder", OF(case_open, ladder), 0, UINT32_MAX, 0}, /* bit i: size i + 1; 0: the planner's choice */
    {"active", OF(case_open, active), 0, 64, 0},
    {"cut", OF(case_open, chunk), 0, 1024, 0},      /* the engine's chunk_tokens */
    {"slot", OF(case_open, slot), 0, 64, 0},
    {"shuffle", OF(case_open, shuffle), 0, UINT32_MAX, 0},
    {"no_cache", OF(case_open, no_cache), 0, 1, 0},
    {"direct", OF(case_open, direct), 0, 1, 0},
    {"poison", OF(case_open, poison), 0, 1, 0},
    {"threads", OF(case_open, threads), 1, 16, 1},
    {"expand", OF(case_open, expand), 0, 64, 0},    /* pages of contexts in the prompts' workspace; 0: the planner's choice */
    {"ranks", OF(case_open, ranks), 1, 16, 1},      /* or as many fewer as can divide the model */
    {"guess", OF(case_open, guess), 0, 15, 0},      /* num-speculative-tokens; 0: off */
    {"layer", OF(case_open, layer), 0, 1, 0},       /* by the model's prediction layer too, if it has one, not only by prompt lookup */
    {NULL, 0, 0, 0, 0}};

static const char *const KINDS[] = {"open", "submit", "cancel", "poll", "idle"};

int64_t *case_value(void *row, const case_field *field) { return (int64_t *)(void *)((char *)row + field->offset); }

void case_make_plain(void *row, const case_field *fields) {
  for (; fields->name; fields++) *case_value(row, fields) = fields->plain;
}

/* === Reading ================================================================================================================ */

static status read_number(const char *what, const char *text, int64_t low, int64_t high, int64_t *out) {
  char *end = NULL;
  long long number = strtoll(text, &end, 10);
  if (end == text || *end || number < low || number > high)
    return FAIL(ERR_FORMAT, "case: %s: expected an integer of %" PRId64 " to %" PRId64 ", found \"%.40s\"", what, low, high, text);
  *out = number;
  return OK;
}

/* "12:64,@0:90" */
static status read_parts(char *text, uint32_t self, case_request *r) {
  char *rest = NULL;
  r->part_count = 0;
  for (char *word = strtok_r(text, ",", &rest); word; word = strtok_r(NULL, ",", &rest)) {
    if (r->part_count == CASE_PARTS_MAX) return FAIL(ERR_FORMAT, "case: r%" PRIu32 ": more than %u parts", self, CASE_PARTS_MAX);
    case_part *part = &r->parts[r->part_count++];
    char *colon = strchr(word, ':');
    int64_t seed, count;
    if (!colon) return FAIL(ERR_FORMAT, "case: r%" PRIu32 ": expected seed:count or @request:count, found \"%.40s\"", self, word);
    *colon = 0;
    part->is_answer = *word == '@';
    if (part->is_answer && self == 0) return FAIL(ERR_FORMAT, "case: r0: expected no part of an earlier request");
    TRY(read_number("p", word + part->is_answer, 0, part->is_answer ? (int64_t)self - 1 : UINT32_MAX, &seed));
    TRY(read_number("p", colon + 1, 0, 4096, &count));
    part->seed = (uint32_t)seed;
    part->count = (uint32_t)count;
  }
  return OK;
}

static status read_field(char *word, void *row, const case_field *fields) {
  char *equals = strchr(word, '=');
  if (!equals) return FAIL(ERR_FORMAT, "case: expected key=value, found \"%.40s\"", word);
  *equals = 0;
  for (; fields->name; fields++)
    if (strcmp(fields->name, word) == 0) return read_number(word, equals + 1, fields->low, fields->high, case_value(row, fields));
  return FAIL(ERR_FORMAT, "case: \"%.40s\" is no key here", word);
}

static status read_head(char *first, char **rest, schedule_case *c) {
  if (strlen(first + 6) >= sizeof c->model || strchr(first, '/') || !first[6])
    return FAIL(ERR_FORMAT, "case: model: expected the name of a configuration, found \"%.60s\"", first + 6);
  strcpy(c->model, first + 6);
  for (char *word = strtok_r(NULL, " \t", rest); word; word = strtok_r(NULL, " \t", rest)) TRY(read_field(word, c, case_head_fields));
  return OK;
}

static status read_request(const char *first, char **rest, schedule_case *c) {
  int64_t number;
  TRY(read_number("r", first + 1, 0, CASE_REQUESTS_MAX - 1, &number));
  case_request *r = &c->requests[number];
  if (r->is_defined) return FAIL(ERR_FORMAT, "case: r%" PRId64 " is given twice", number);
  r->is_defined = true;
  case_make_plain(r, case_request_fields);
  c->request_count = max_u32(c->request_count, (uint32_t)number + 1);
  for (char *word = strtok_r(NULL, " \t", rest); word; word = strtok_r(NULL, " \t", rest)) {
    if (strncmp(word, "p=", 2) == 0) TRY(read_parts(word + 2, (uint32_t)number, r));
    else TRY(read_field(word, r, case_request_fields));
  }
  return OK;
}

static status read_event(const char *first, char **rest, schedule_case *c) {
  uint32_t kind = 0;
  while (kind < ARRAY_LEN(KINDS) && strcmp(KINDS[kind], first) != 0) kind++;
  if (kind == ARRAY_LEN(KINDS)) return FAIL(ERR_FORMAT, "case: \"%.40s\" is no statement", first);
  if (c->event_count == CASE_EVENTS_MAX) return FAIL(ERR_FORMAT, "case: more than %u events", CASE_EVENTS_MAX);
  case_event *event = &c->events[c->event_count++];
  *event = (case_event){.kind = (enum case_kind)kind};
  if (kind == CASE_IDLE) return OK;
  char *word = strtok_r(NULL, " \t", rest);
  if (kind == CASE_OPEN) {
    if (c->open_count == CASE_OPENS_MAX) return FAIL(ERR_FORMAT, "case: engines are opened more than %u times", CASE_OPENS_MAX);
    event->value = c->open_count++;
    case_open *o = &c->opens[event->value];
    case_make_plain(o, case_open_fields);
    for (; word; word = strtok_r(NULL, " \t", rest)) TRY(read_field(word, o, case_open_fields));
    return OK;
  }
  int64_t number;
  TRY(read_number(first, word ? word : "nothing", 0, kind == CASE_POLL ? 100000 : CASE_REQUESTS_MAX - 1, &number));
  event->value = (uint32_t)number;
  return OK;
}

/* Checks that everything named exists and that the first event opens an engine. */
static status check(const schedule_case *c) {
  if (!c->model[0]) return FAIL(ERR_FORMAT, "case: expected model=NAME");
  if (c->event_count == 0 || c->events[0].kind != CASE_OPEN) return FAIL(ERR_FORMAT, "case: expected \"open\" as the first event");
  for (uint32_t i = 0; i < c->event_count; i++) {
    const case_event *e = &c->events[i];
    if ((e->kind == CASE_SUBMIT || e->kind == CASE_CANCEL) && !c->requests[e->value].is_defined)
      return FAIL(ERR_FORMAT, "case: %s %" PRIu32 ": there is no r%" PRIu32, KINDS[e->kind], e->value, e->value);
  }
  for (uint32_t i = 0; i < c->request_count; i++)
    for (uint32_t k = 0; k < c->requests[i].part_count; k++)
      if (c->requests[i].parts[k].is_answer && !c->requests[c->requests[i].parts[k].seed].is_defined)
        return FAIL(ERR_FORMAT, "case: r%" PRIu32 ": there is no r%" PRIu32, i, c->requests[i].parts[k].seed);
  return OK;
}

status case_parse(const char *text, schedule_case *out) {
  char *copy = strdup(text), *rest = NULL;
  ASSERT(copy);
  memset(out, 0, sizeof *out);
  case_make_plain(out, case_head_fields);
  status result = OK;
  for (char *line = strtok_r(copy, ";\n", &rest); line && result == OK; line = strtok_r(NULL, ";\n", &rest)) {
    char *words = NULL, *first = strtok_r(line, " \t", &words);
    if (!first) continue;
    if (strncmp(first, "model=", 6) == 0) result = read_head(first, &words, out);
    else if (first[0] == 'r' && first[1] >= '0' && first[1] <= '9') result = read_request(first, &words, out);
    else result = read_event(first, &words, out);
  }
  free(copy);
  return result == OK ? check(out) : result;
}

/* === Writing ================================================================================================================ */

bool case_uses(const schedule_case *c, uint32_t request) {
  for (uint32_t i = 0; i < c->event_count; i++)
    if ((c->events[i].kind == CASE_SUBMIT || c->events[i].kind == CASE_CANCEL) && c->events[i].value == request) return true;
  for (uint32_t i = request + 1; i < c->request_count; i++)
    for (uint32_t k = 0; k < c->requests[i].part_count; k++)
      if (c->requests[i].parts[k].is_answer && c->requests[i].parts[k].seed == request && case_uses(c, i)) return true;
  return false;
}

static void put(char **text, const char *end, const char *format, ...) __attribute__((format(printf, 3, 4)));
static void put(char **text, const char *end, const char *format, ...) {
  va_list args;
  va_start(args, format);
  int bytes = vsnprintf(*text, (size_t)(end - *text), format, args);
  va_end(args);
  ASSERT(bytes >= 0 && bytes < end - *text);
  *text += bytes;
}

static void put_fields(char **text, const char *end, const void *row, const case_field *fields) {
  for (; fields->name; fields++) {
    int64_t value = *(const int64_t *)(const void *)((const char *)row + fields->offset);
    if (value != fields->plain) put(text, end, " %s=%" PRId64, fields->name, value);
  }
}

void case_print(const schedule_case *c, char *text) {
  const char *end = text + CASE_TEXT_MAX;
  put(&text, end, "model=%s", c->model);
  put_fields(&text, end, c, case_head_fields);
  for (uint32_t i = 0; i < c->request_count; i++) {
    const case_request *r = &c->requests[i];
    if (!r->is_defined || !case_uses(c, i)) continue;
    put(&text, end, "; r%" PRIu32 "%s", i, r->part_count ? " p=" : "");
    for (uint32_t k = 0; k < r->part_count; k++)
      put(&text, end, "%s%s%" PRIu32 ":%" PRIu32, k ? "," : "", r->parts[k].is_answer ? "@" : "", r->parts[k].seed, r->parts[k].count);
    put_fields(&text, end, r, case_request_fields);
  }
  for (uint32_t i = 0; i < c->event_count; i++) {
    const case_event *e = &c->events[i];
    put(&text, end, "; %s", KINDS[e->kind]);
    if (e->kind == CASE_OPEN) put_fields(&text, end, &c->opens[e->value], case_open_fields);
    else if (e->kind != CASE_IDLE) put(&text, end, " %" PRIu32, e->value);
  }
}

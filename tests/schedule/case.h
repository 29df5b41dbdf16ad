/* case.h - a case of the schedule fuzzer: a model, requests, and the order of the events. A case is a text, and the text determines
 * everything: two runs of one text do the same.
 *
 *   model=small-v3 weights=2 vary=5 chunk=64 groups=2 len=320; r0 p=12:64,99:3 max=10 temp=900; r1 p=@0:90,7:2;
 *   open seqs=4 spare=2; submit 0; poll 3; submit 1; cancel 0; open seqs=2 poison=1; idle
 *
 * A statement ends with a semicolon or at the end of a line. Numbers that are not given have the defaults of the tables in case.c, which
 * have every field. A prompt's parts: "seed:count" are the first count tokens of an endless random text; "@r:count" the first count tokens
 * of request r's prompt and the tokens it generates when it runs alone. Knows nothing of engines. Read next: draw.h, run.h. */
#ifndef VERBATIM_CASE_H
#define VERBATIM_CASE_H
#include "engine/base/base.h"

#define CASE_REQUESTS_MAX 192u
#define CASE_EVENTS_MAX 768u
#define CASE_OPENS_MAX 24u
#define CASE_PARTS_MAX 6u
#define CASE_TEXT_MAX (64u << 10)
#define CASE_NAME_MAX 32u

typedef struct case_part {
  bool is_answer; /* seed is a request's number */
  uint32_t seed, count;
} case_part;

typedef struct case_request {
  bool is_defined;
  case_part parts[CASE_PARTS_MAX];
  uint32_t part_count;
  int64_t max_tokens, seed, sample, temperature, top_k, top_p, min_p, repetition, presence, frequency;
  int64_t biases, allowed, stops, texts, list_seed, ignore_eos, top, score, rows, quit, deadline, draft;
} case_request;

typedef struct case_open { /* a plan, and how the engine splits the work */
  int64_t seqs, batch, logits, spare, margin, ladder, active, chunk, slot, shuffle, no_cache, direct, poison, threads, expand, ranks;
  int64_t guess, layer;
} case_open;

enum case_kind { CASE_OPEN, CASE_SUBMIT, CASE_CANCEL, CASE_POLL, CASE_IDLE };

typedef struct case_event {
  enum case_kind kind;
  uint32_t value; /* OPEN: row of opens; SUBMIT, CANCEL: request; POLL: how many times; IDLE: until no work is left */
} case_event;

typedef struct schedule_case {
  char model[CASE_NAME_MAX];
  int64_t weights, vary, chunk, groups, len, fast;
  uint32_t request_count, open_count, event_count; /* requests: one more than the largest number */
  case_request requests[CASE_REQUESTS_MAX];
  case_open opens[CASE_OPENS_MAX];
  case_event events[CASE_EVENTS_MAX];
} schedule_case;

typedef struct case_field { /* the tables end with a row without a name */
  const char *name;
  size_t offset;
  int64_t low, high, plain;
} case_field;
extern const case_field case_head_fields[], case_request_fields[], case_open_fields[];

int64_t *case_value(void *row, const case_field *field);
void case_make_plain(void *row, const case_field *fields);

/* ERR_FORMAT says what is wrong with the text; *out is then undefined. */
status case_parse(const char *text, schedule_case *out);

/* One line, NUL-terminated; text: room for CASE_TEXT_MAX. Requests that neither an event nor another request names are left out. */
void case_print(const schedule_case *c, char *text);

/* Whether an event, or the prompt of a request that is used, names the request. */
bool case_uses(const schedule_case *c, uint32_t request);

#endif

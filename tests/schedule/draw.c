/* draw.c - see draw.h. Draws engines first, then the tree of prefixes, requests, and the events of every schedule. */
#include "draw.h"
#include "ask.h"
#include <stdio.h>
#include <string.h>

#define TRUNKS 5u
#define PAGE 64u

const char *const draw_models[] = {"v3", "v2lite", "glm4-moe-lite", "minicpm3", "mistral4", "youtu", "v32", "v32-fp8", "glm52-fp8",
                                   "llama", "qwen2", "qwen3-moe", "glm4", "olmo2", "v32-heads-fp8", NULL};
#define FIRST_GROUPED 9u /* these have chunks that are not grouped */
#define GROUPED_MODELS 5u
#define PLAIN_MODELS 6u /* the first ones have the parity fast-prefill */

uint32_t draw_model_count(int device) {
  uint32_t count = 0;
  while (draw_models[count]) count++;
  return device < 0 ? count - 1 : count;
}

typedef struct trunk { /* a node of the tree: the parts from the root to it */
  case_part parts[3];
  uint32_t count, tokens;
} trunk;

typedef struct drawer {
  uint64_t state;
  const draw_limits *limits;
  schedule_case *c;
  trunk trunks[TRUNKS];
  uint32_t parts;  /* random texts used */
  bool is_tight;   /* few pages for several sequences */
  bool grows;      /* short prompts and long answers: the admitted requests outgrow the pages */
} drawer;

static uint64_t next(drawer *d) {
  uint64_t z = d->state += 0x9e3779b97f4a7c15ull;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

static uint32_t below(drawer *d, uint32_t n) { return (uint32_t)((next(d) >> 32) * n >> 32); }
static uint32_t between(drawer *d, uint32_t low, uint32_t high) { return low + below(d, high - low + 1); }
static bool chance(drawer *d, uint32_t percent) { return below(d, 100) < percent; }

/* === Engines ================================================================================================================ */

static void draw_open(drawer *d) {
  schedule_case *c = d->c;
  if (c->open_count == CASE_OPENS_MAX) return;
  case_open *o = &c->opens[c->open_count];
  case_make_plain(o, case_open_fields);
  o->seqs = d->is_tight || chance(d, 70) ? between(d, 3, 8) : between(d, 1, 8);
  o->batch = chance(d, 50) ? between(d, 16, 48) : between(d, 49, 256);
  o->logits = chance(d, 60) ? o->seqs : between(d, (uint32_t)o->seqs, (uint32_t)o->batch);
  o->spare = d->is_tight || chance(d, 50) ? between(d, 0, 3) : between(d, 8, 40);
  o->margin = !d->is_tight && chance(d, 25) ? between(d, 1, 130) : 0;
  if (chance(d, 40)) o->ladder = between(d, 1, 255);
  if (!d->is_tight && chance(d, 20)) o->active = between(d, 1, (uint32_t)o->seqs);
  if (chance(d, 50)) o->chunk = chance(d, 30) ? between(d, 1, 9) : between(d, 10, 100);
  if (chance(d, 40)) o->slot = below(d, (uint32_t)o->seqs);
  if (chance(d, 60)) o->shuffle = between(d, 1, 1000000);
  o->no_cache = chance(d, 8);
  o->direct = chance(d, 25);
  o->poison = chance(d, 50);
  o->threads = between(d, 1, d->limits->threads);
  const bool has_workspace = c->fast || strstr(c->model, "-fp8"); /* the latter's KV rows are dequantized there */
  o->expand = has_workspace ? (o->seqs * 7 + o->batch * 3 + o->spare) % 10 : 0;
  c->events[c->event_count++] = (case_event){.kind = CASE_OPEN, .value = c->open_count++};
}

/* === Prompts ================================================================================================================ */

/* Lengths near page boundaries are drawn more often than others. */
static uint32_t draw_length(drawer *d, uint32_t most) {
  uint32_t pages = between(d, 0, most / PAGE) * PAGE;
  switch (below(d, 6)) {
    case 0: return min_u32(pages, most);
    case 1: return min_u32(pages + 1, most);
    case 2: return pages ? pages - 1 : 0;
    default: return between(d, 0, most);
  }
}

static case_part draw_part(drawer *d, uint32_t tokens) { return (case_part){.seed = ++d->parts, .count = tokens}; }

static void draw_trunks(drawer *d) {
  uint32_t most = (uint32_t)d->c->len * 3 / 4;
  for (uint32_t i = 0; i < TRUNKS; i++) {
    trunk *t = &d->trunks[i];
    if (i) *t = d->trunks[below(d, i)];
    if (t->count == ARRAY_LEN(t->parts) || (i && chance(d, 25))) { /* a sibling that leaves the last part earlier */
      case_part *last = &t->parts[t->count - 1];
      uint32_t shorter = draw_length(d, last->count);
      t->tokens -= last->count - shorter;
      last->count = shorter;
    } else {
      case_part part = draw_part(d, draw_length(d, most - t->tokens));
      t->parts[t->count++] = part;
      t->tokens += part.count;
    }
  }
}

static void draw_prompt(drawer *d, case_request *r, uint32_t number) {
  const trunk *t = &d->trunks[below(d, TRUNKS)];
  if (d->grows) {
    r->parts[r->part_count++] = (case_part){.seed = t->parts[0].seed, .count = between(d, 1, 70)};
  } else if (number && chance(d, 15)) { /* the next turn of a conversation */
    r->parts[r->part_count++] = (case_part){.is_answer = true, .seed = below(d, number), .count = (uint32_t)d->c->len};
  } else if (chance(d, 20)) { /* pages of a few texts in any order: equal pages after different ones */
    r->part_count = between(d, 1, 3);
    for (uint32_t i = 0; i < r->part_count; i++) r->parts[i] = (case_part){.seed = between(d, 1, 3), .count = PAGE};
  } else if (chance(d, 85)) {
    memcpy(r->parts, t->parts, sizeof t->parts);
    r->part_count = t->count;
  }
  uint32_t tail = d->grows || chance(d, 25) ? 0 : chance(d, 60) ? between(d, 1, 12) : draw_length(d, 100);
  if (tail || !r->part_count) r->parts[r->part_count++] = draw_part(d, max_u32(tail, 1));
}

/* === Requests =============================================================================================================== */

static void draw_choice(drawer *d, case_request *r) {
  r->seed = between(d, 0, 1000);
  r->list_seed = between(d, 0, 1000);
  if (chance(d, 60)) r->temperature = between(d, 300, 1800);
  if (r->temperature && chance(d, 30)) r->top_k = between(d, 1, 50);
  if (r->temperature && chance(d, 30)) r->top_p = between(d, 300, 999);
  if (r->temperature && chance(d, 20)) r->min_p = between(d, 1, 200);
  if (chance(d, 20)) r->repetition = between(d, 700, 2000);
  if (chance(d, 15)) r->presence = (int64_t)between(d, 0, 8000) - 4000;
  if (chance(d, 15)) r->frequency = (int64_t)between(d, 0, 8000) - 4000;
  if (chance(d, 15)) r->biases = between(d, 1, 12);
  if (chance(d, 10)) r->allowed = between(d, 2, 12);
  if (chance(d, 20)) r->stops = between(d, 1, 12);
  if (chance(d, 20)) r->texts = between(d, 1, 4);
  r->ignore_eos = chance(d, 20);
}

static void draw_request(drawer *d, uint32_t number) {
  case_request *r = &d->c->requests[number];
  *r = (case_request){.is_defined = true};
  case_make_plain(r, case_request_fields);
  draw_prompt(d, r, number);
  draw_choice(d, r);
  r->max_tokens = d->grows ? between(d, 60, 170) : chance(d, 30) ? between(d, 1, 4) : between(d, 5, 40);
  r->max_tokens = min_u32((uint32_t)r->max_tokens, d->limits->tokens);
  if (d->grows) r->ignore_eos = 1, r->stops = r->texts = 0;
  if (chance(d, 30)) r->top = between(d, 1, 5);
  if (chance(d, 20)) r->score = 1 + draw_length(d, (uint32_t)d->c->len);
  if (r->score && chance(d, 40)) r->max_tokens = 0;
  r->rows = chance(d, 6);
  if (chance(d, 8)) r->quit = between(d, 1, 12);
  if (chance(d, 6)) r->deadline = chance(d, 50) ? between(d, 1, 50) : between(d, 500, 20000);
}

/* === Events ================================================================================================================= */

static bool has_room(const drawer *d) {
  return d->c->event_count + 4 < CASE_EVENTS_MAX && d->c->request_count + 1 < CASE_REQUESTS_MAX;
}

static void add_event(drawer *d, enum case_kind kind, uint32_t value) {
  if (has_room(d)) d->c->events[d->c->event_count++] = (case_event){.kind = kind, .value = value};
}

/* A new request, another sample of the previous one, or an earlier one again. */
static uint32_t next_request(drawer *d, uint32_t first) {
  schedule_case *c = d->c;
  uint32_t number = c->request_count;
  if (first && chance(d, 15)) return below(d, first);
  if (number > first && chance(d, 20)) {
    c->requests[number] = c->requests[number - 1];
    c->requests[number].sample = c->requests[number - 1].sample + 1;
  } else {
    draw_request(d, number);
  }
  c->request_count++;
  return number;
}

static void draw_schedule(drawer *d) {
  schedule_case *c = d->c;
  d->grows = chance(d, d->is_tight ? 60 : 5) && d->limits->tokens > 60;
  uint32_t first = c->request_count, count = d->grows ? between(d, 3, 6) : between(d, 2, d->limits->requests);
  uint32_t pause = chance(d, 40) ? 0 : between(d, 1, 12); /* 0: all at once */
  uint32_t restart_at = chance(d, 20) ? below(d, count) : UINT32_MAX;
  for (uint32_t i = 0; i < count && has_room(d); i++) {
    add_event(d, CASE_SUBMIT, next_request(d, first));
    if (pause && chance(d, 70)) add_event(d, CASE_POLL, between(d, 1, pause));
    if (chance(d, 12) && c->request_count > first) {
      if (chance(d, 60)) add_event(d, CASE_POLL, between(d, 1, 10));
      add_event(d, CASE_CANCEL, between(d, first, c->request_count - 1));
    }
    if (i != restart_at || !has_room(d)) continue;
    if (chance(d, 80)) add_event(d, CASE_POLL, between(d, 1, 30));
    draw_open(d);
  }
  add_event(d, CASE_IDLE, 0);
}

/* Last, so that the rest of a case does not depend on it. */
static void draw_ranks(drawer *d) {
  static const uint32_t several[] = {2, 3, 4, 8};
  for (uint32_t i = 0; i < d->c->open_count; i++) {
    const uint32_t drawn = chance(d, 30) ? several[below(d, ARRAY_LEN(several))] : 1;
    d->c->opens[i].ranks = d->limits->ranks ? d->limits->ranks : drawn;
  }
}

static void draw_drafts(drawer *d) {
  for (uint32_t i = 0; i < d->c->request_count; i++)
    if (chance(d, 35)) d->c->requests[i].draft = between(d, 1, ASK_DRAFTERS - 1);
  for (uint32_t i = 0; i < d->c->open_count; i++)
    if (chance(d, 35)) d->c->opens[i].guess = between(d, 1, 6), d->c->opens[i].layer = chance(d, 50);
}

void draw_case(schedule_case *out, uint64_t seed, const draw_limits *limits) {
  drawer d = {.state = seed, .limits = limits, .c = out};
  memset(out, 0, sizeof *out);
  case_make_plain(out, case_head_fields);
  const uint32_t model = below(&d, limits->models);
  snprintf(out->model, sizeof out->model, "small-%s", draw_models[model]);
  out->vary = chance(&d, 85) ? between(&d, 1, 3) : 0;
  out->weights = 1 + out->vary % 2; /* few models and numerics, so that engines for requests alone can be reused */
  out->chunk = out->vary == 2 ? 128 : 64;
  out->groups = out->vary == 3 || model - FIRST_GROUPED < GROUPED_MODELS ? 1 : 2;
  out->fast = seed % 4 == 0 && model < PLAIN_MODELS;
  d.is_tight = chance(&d, 45);
  out->len = d.is_tight ? between(&d, 128, min_u32(limits->len, 256)) : limits->len - (chance(&d, 40) ? below(&d, limits->len / 2) : 0);
  draw_trunks(&d);
  draw_open(&d);
  for (uint32_t i = 0; i < limits->schedules && has_room(&d); i++) draw_schedule(&d);
  draw_ranks(&d);
  draw_drafts(&d);
}

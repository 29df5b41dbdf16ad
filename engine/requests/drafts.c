/* drafts.c - see drafts.h. In this order below: guesses, the times of steps, the choice, verdicts. */
#include "requests/drafts.h"
#include <math.h>

#define ACCEPTANCE_FIRST 0.6  /* before anything is known of a request          */
#define ACCEPTANCE_LEAST 0.25 /* below, guesses are compared but no step checks them */
#define ACCEPTANCE_STEP 0.1   /* weight of the newest guess                     */
#define TIME_STEP 0.1         /* weight of the newest time                      */
#define TIME_FADE 0.998       /* of sizes that do not occur: they are tried again after a while, should a time have been an outlier */

_Static_assert(VERBATIM_DRAFT_TOKENS_MAX == DRAFT_TOKENS_MAX, "one limit");

status drafts_open(drafts *self, const plan *p, bool is_off, verbatim_counters *counters, arena *host) {
  const plan_limits *limits = &p->header->limits;
  void *given;
  *self = (drafts){.plan = p, .is_off = is_off, .counters = counters};
  if (is_off) return OK;
  TRY(arena_take(host, sizeof(int32_t) * (uint64_t)limits->max_logit_rows, &given));
  self->given = given;
  return limits->match_min ? lookup_open(limits, host, &self->lookups) : OK;
}

/* === Guesses ================================================================================================================ */

void drafts_begin(drafts *self, sequence *s) {
  s->draft = (draft_state){.ids = s->draft.found, .acceptance = {ACCEPTANCE_FIRST, ACCEPTANCE_FIRST}, .shadow = -1};
  if (!self->lookups) return;
  lookup_clear(&self->lookups[s->slot]);
  lookup_add(&self->lookups[s->slot], &self->plan->header->limits, s->request, s->request->prompt_count + s->request->token_count);
}

static double acceptance_of(const sequence *s) { return s->draft.acceptance[s->draft.source]; }

static void weigh(sequence *s, bool is_right) {
  s->draft.acceptance[s->draft.source] += ACCEPTANCE_STEP * ((is_right ? 1.0 : 0.0) - acceptance_of(s));
}

void drafts_see(drafts *self, sequence *s) {
  const verbatim_request *r = s->request;
  if (s->draft.shadow >= 0) weigh(s, r->tokens[r->token_count - 1].id == s->draft.shadow);
  s->draft.shadow = -1;
  s->draft.offered_count = 0;
  if (self->lookups) lookup_add(&self->lookups[s->slot], &self->plan->header->limits, r, r->prompt_count + r->token_count);
}

bool drafts_offer(sequence *s, uint32_t place, const sample_result *guess) {
  ASSERT(place < DRAFT_TOKENS_MAX);
  if (guess->nonfinite) return false;
  s->draft.offered[place] = guess->token;
  s->draft.offered_count = place + 1;
  return true;
}

/* Tokens that may follow the sequence's next one. */
static uint32_t room_of(const sequence *s) { return s->draft.is_alone ? 0 : s->request->max_tokens - s->request->token_count - 1; }

/* Asks the request. Ids that are none end its guess. */
static void ask(drafts *self, sequence *s, uint32_t most) {
  int32_t *ids = self->given + self->given_count;
  const uint32_t given = most ? s->request->on_draft(s->request, ids, most) : 0;
  ASSERT(given <= most);
  uint32_t count = 0;
  while (count < given && ids[count] >= 0 && (uint32_t)ids[count] < self->plan->header->model.vocab) count++;
  s->draft.ids = ids;
  s->draft.count = s->draft.taken = count;
  self->given_count += count;
}

/* Right guesses that are to be expected of so many. */
static double expected(double acceptance, uint32_t count) {
  double sum = 0, right = 1;
  for (uint32_t i = 0; i < count; i++) sum += right *= acceptance;
  return sum;
}

/* Of the plan's sources, the one of which more right guesses are to be expected. */
static void guess(drafts *self, sequence *s) {
  const plan_limits *limits = &self->plan->header->limits;
  draft_state *d = &s->draft;
  const uint32_t most = min_u32(limits->draft_tokens, room_of(s)), offered = min_u32(d->offered_count, most);
  const uint32_t found = self->lookups ? lookup_guess(&self->lookups[s->slot], limits, s->request, most, d->found) : 0;
  d->source = expected(d->acceptance[DRAFT_OFFERED], offered) > expected(d->acceptance[DRAFT_FOUND], found) ? DRAFT_OFFERED : DRAFT_FOUND;
  d->ids = d->source == DRAFT_OFFERED ? d->offered : d->found;
  d->count = d->source == DRAFT_OFFERED ? offered : found;
}

/* === Times ================================================================================================================== */

/* The size of the steps that a step of so many rows is counted among. */
static uint32_t size_of(const drafts *self, uint32_t rows) {
  uint32_t size = 0;
  while (size < self->plan->ladder_count && self->plan->ladder[size] < rows) size++;
  return size;
}

static double rows_of(const drafts *self, uint32_t size) {
  if (self->plan->ladder_count == 0) return 1;
  return size < self->plan->ladder_count ? self->plan->ladder[size] : 2.0 * self->plan->ladder[size - 1];
}

void drafts_time(drafts *self, uint32_t rows, double us) {
  const uint32_t size = size_of(self, rows);
  for (uint32_t i = 0; i <= self->plan->ladder_count; i++) self->step_us[i] *= i == size ? 1.0 : TIME_FADE;
  self->step_us[size] += (self->step_us[size] > 0 ? TIME_STEP : 1.0) * (us - self->step_us[size]);
}

/* Of a step with so many rows. A size without a time takes that of the nearest one, as if time grew with the square root of the rows. */
static double time_of(const drafts *self, uint32_t rows) {
  const uint32_t size = size_of(self, rows), last = self->plan->ladder_count;
  if (self->step_us[size] > 0) return self->step_us[size];
  for (uint32_t away = 1; away <= last; away++) {
    const uint32_t near[] = {size >= away ? size - away : size, size + away <= last ? size + away : size};
    for (uint32_t i = 0; i < ARRAY_LEN(near); i++)
      if (self->step_us[near[i]] > 0) return self->step_us[near[i]] * sqrt(rows_of(self, size) / rows_of(self, near[i]));
  }
  return sqrt(rows_of(self, size));
}

/* === The choice ============================================================================================================= */

static bool is_guessing(const sequence *s) { return s->draft.count > 0 && acceptance_of(s) >= ACCEPTANCE_LEAST; }

/* The number of guesses of each sequence with which a step gives the most tokens in its time. rows: of the step without them. */
static uint32_t best_count(const drafts *self, sequence *const *list, uint32_t count, uint32_t rows, uint32_t rows_most) {
  const uint32_t most = self->plan->header->limits.draft_tokens;
  double tokens = count, best = tokens / time_of(self, rows), weight[DRAFT_TOKENS_MAX + 1] = {0};
  uint32_t of_place[DRAFT_TOKENS_MAX + 1] = {0}, chosen = 0;
  for (uint32_t i = 0; i < count; i++) {
    double right = 1;
    for (uint32_t k = 1; is_guessing(list[i]) && k <= min_u32(list[i]->draft.count, most); k++) {
      right *= acceptance_of(list[i]);
      weight[k] += right;
      of_place[k]++;
    }
  }
  for (uint32_t k = 1; k <= most; k++) {
    rows += of_place[k];
    tokens += weight[k];
    if (of_place[k] == 0 || rows > rows_most) break;
    const double rate = tokens / time_of(self, rows);
    if (rate > best) best = rate, chosen = k;
  }
  return chosen;
}

static bool asks(const sequence *s) { return s->request->on_draft != NULL && room_of(s) > 0; }

/* Asks the requests that have guesses of their own, each for an equal share of the rows. Returns how many rows there are with these. */
static uint32_t ask_all(drafts *self, sequence *const *list, uint32_t count, uint32_t rows_most) {
  uint32_t rows = count, left = 0;
  self->given_count = 0;
  for (uint32_t i = 0; i < count; i++) left += asks(list[i]);
  for (uint32_t i = 0; i < count; i++) {
    if (!asks(list[i])) continue;
    ask(self, list[i], min_u32(room_of(list[i]), (rows_most - rows) / left--));
    rows += list[i]->draft.taken;
  }
  return rows;
}

bool drafts_choose(drafts *self, sequence *const *list, uint32_t count, uint32_t rows_most, bool is_settled) {
  bool any = false;
  ASSERT(count <= rows_most);
  for (uint32_t i = 0; i < count; i++) {
    list[i]->draft.count = list[i]->draft.taken = 0;
    if (self->is_off || list[i]->draft.is_alone) continue;
    if (list[i]->request->on_draft) any |= asks(list[i]);
    else guess(self, list[i]);
  }
  if (self->is_off || (any && !is_settled)) return any;
  const uint32_t rows = any ? ask_all(self, list, count, rows_most) : count;
  const uint32_t best = self->plan->header->limits.draft_tokens ? best_count(self, list, count, rows, rows_most) : 0;
  for (uint32_t i = 0; i < count; i++) {
    draft_state *d = &list[i]->draft;
    if (list[i]->request->on_draft) continue;
    d->taken = is_guessing(list[i]) ? min_u32(best, d->count) : 0;
    d->shadow = d->count && !d->taken ? d->ids[0] : -1;
    any |= d->taken > 0;
  }
  return any;
}

/* === Verdicts =============================================================================================================== */

bool drafts_is_right(const verbatim_request *request, uint32_t position, int32_t draft) {
  return request_token(request, position) == draft;
}

void drafts_take(drafts *self, sequence *s) {
  self->counters->drafts++;
  self->counters->drafted_tokens += s->draft.taken;
  s->request->drafted_count += s->draft.taken;
}

void drafts_accept(drafts *self, sequence *s, uint32_t place) {
  weigh(s, true);
  self->counters->accepted_tokens++;
  self->counters->accepted_at[min_u32(place, DRAFT_TOKENS_MAX - 1)]++;
  s->request->accepted_count++;
}

void drafts_reject(sequence *s) { weigh(s, false); }

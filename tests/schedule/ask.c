/* ask.c - see ask.h. */
#include "ask.h"
#include "engine/receipts/receipt.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATTERN 0xa5

static uint64_t scramble(uint64_t a, uint64_t b) {
  uint64_t z = (a + 1) * 0x9e3779b97f4a7c15ull + b;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

/* === Making ================================================================================================================= */

/* count different ids: a walk with an odd step, or with step 1 if the vocabulary has a common divisor with it. */
static int32_t list_id(const case_request *from, uint32_t list, uint32_t i, uint32_t vocab) {
  return (int32_t)((scramble((uint64_t)from->list_seed, list) % vocab + i) % vocab);
}

static void make_lists(ask *self, uint32_t vocab) {
  static const char letters[] = "etaoinshrdlu \n.,";
  const case_request *from = self->from;
  verbatim_request *r = &self->request;
  for (uint32_t i = 0; i < ASK_LISTS_MAX; i++) {
    self->biases[i] = (verbatim_bias){.token = list_id(from, 1, i * 5, vocab), .bias = (float)(scramble(i, 9) % 160) / 16 - 4};
    self->allowed[i] = list_id(from, 2, i * 3, vocab);
    self->stops[i] = list_id(from, 3, i * 7, vocab);
  }
  for (uint32_t i = 0; i < ASK_TEXTS_MAX; i++) { /* one letter, which many tokens contain, or two */
    uint64_t bits = scramble((uint64_t)from->list_seed + 77, i);
    self->letters[i][0] = letters[bits % 16];
    self->letters[i][1] = letters[bits / 16 % 16];
    self->texts[i] = (verbatim_text){.bytes = self->letters[i], .count = 1 + (bits >> 40) % 2};
  }
  r->biases = self->biases, r->bias_count = (uint32_t)from->biases;
  r->allowed_ids = self->allowed, r->allowed_count = (uint32_t)from->allowed;
  r->stop_ids = self->stops, r->stop_count = (uint32_t)from->stops;
  r->stop_texts = self->texts, r->stop_text_count = (uint32_t)from->texts;
}

static void *take(size_t count, size_t bytes) {
  void *memory = calloc(count ? count : 1, bytes);
  ASSERT(memory);
  return memory;
}

void ask_make(ask *self, const case_request *from, uint32_t number, int32_t *prompt, uint32_t prompt_count, uint32_t len, uint32_t vocab) {
  *self = (ask){.request = VERBATIM_REQUEST_DEFAULTS, .from = from, .number = number, .vocab = vocab, .prompt = prompt};
  verbatim_request *r = &self->request;
  r->prompt = prompt;
  r->prompt_count = prompt_count;
  r->score = from->score > 0 && prompt_count > 1;
  if (r->score) r->score_from = 1 + (uint32_t)((from->score - 1) % ((int64_t)prompt_count - 1));
  r->max_tokens = min_u32((uint32_t)from->max_tokens, len - prompt_count);
  if (r->max_tokens == 0 && !r->score) r->max_tokens = 1;
  r->top_logprobs = (uint32_t)from->top;
  r->temperature = (float)from->temperature / 1000;
  r->top_k = (uint32_t)from->top_k;
  r->top_p = (double)from->top_p / 1000;
  r->min_p = (double)from->min_p / 1000;
  r->repetition_penalty = (float)from->repetition / 1000;
  r->presence_penalty = (float)from->presence / 1000;
  r->frequency_penalty = (float)from->frequency / 1000;
  r->seed = (uint64_t)from->seed;
  r->sample_index = (uint32_t)from->sample;
  r->ignore_eos = from->ignore_eos;
  make_lists(self, vocab);
  self->outputs = take((size_t)prompt_count + r->max_tokens, sizeof *self->outputs);
  self->alternative_count = ((uint64_t)prompt_count + r->max_tokens) * r->top_logprobs;
  self->alternatives = take((size_t)self->alternative_count, sizeof *self->alternatives);
  r->scores = self->outputs;
  r->tokens = self->outputs + prompt_count;
  r->alternatives = self->alternatives;
}

void ask_free(ask *self) {
  free(self->prompt);
  free(self->outputs);
  free(self->alternatives);
  *self = (ask){0};
}

/* === Running ================================================================================================================ */

static ask *ask_of(verbatim_request *request) { return (ask *)(void *)request; }

static void problem(ask *self, const char *what, uint32_t found) {
  if (!self->problem[0]) snprintf(self->problem, sizeof self->problem, "%s %" PRIu32, what, found);
}

static void on_text(verbatim_request *request, const char *text, size_t bytes) {
  ask *self = ask_of(request);
  digest_add(&self->text, text, bytes);
  self->text_bytes += bytes;
}

static void on_logits(verbatim_request *request, uint32_t position, const float *row) {
  ask *self = ask_of(request);
  verbatim_info info = verbatim_describe(self->engine);
  if (position != self->row_count) problem(self, "on_logits: rows come in order and once, but then came the one of position", position);
  digest_add(&self->rows, row, info.vocab * sizeof *row);
  self->row_count++;
}

static void on_token(verbatim_request *request, uint32_t index) {
  ask *self = ask_of(request);
  if (index != self->calls) problem(self, "on_token: tokens come in order and once, but then came token", index);
  self->calls++;
}

static void on_token_quit(verbatim_request *request, uint32_t index) {
  ask *self = ask_of(request);
  on_token(request, index);
  if ((int64_t)index + 1 == self->from->quit && request->finish == VERBATIM_RUNNING && verbatim_cancel(self->engine, request) != 0)
    problem(self, "verbatim_cancel failed at token", index);
}

static int32_t guess(const ask *self, uint32_t index) {
  const verbatim_request *truth = &self->truth->request;
  const int32_t right = index < truth->token_count ? truth->tokens[index].id : 0, wrong = (right + 1) % (int32_t)self->vocab;
  const bool is_odd = scramble(self->number, index) & 1;
  switch ((enum ask_drafter)self->from->draft) {
    case ASK_RIGHT: return right;
    case ASK_HALF: return is_odd ? right : wrong;
    case ASK_STOPS: return is_odd ? right : self->from->stops ? self->stops[0] : 1;
    case ASK_INVALID: return is_odd ? right : (int32_t)(index % 2 ? self->vocab : UINT32_MAX);
    default: return wrong;
  }
}

static uint32_t on_draft(verbatim_request *request, int32_t *ids, uint32_t most) {
  const ask *self = ask_of(request);
  const uint32_t count = min_u32(most, (uint32_t)(scramble(self->number, request->token_count) % 7));
  for (uint32_t i = 0; i < count; i++) ids[i] = guess(self, request->token_count + i);
  return count;
}

int ask_submit(ask *self, verbatim *engine, bool is_alone) {
  verbatim_request *r = &self->request;
  bool quits = !is_alone && self->from->quit;
  self->engine = engine;
  memset(self->outputs, PATTERN, ((size_t)r->prompt_count + r->max_tokens) * sizeof *self->outputs);
  memset(self->alternatives, PATTERN, (size_t)self->alternative_count * sizeof *self->alternatives);
  digest_start(&self->text);
  digest_start(&self->rows);
  self->text_bytes = self->row_count = self->calls = 0;
  self->problem[0] = 0;
  r->on_token = quits ? on_token_quit : on_token;
  r->on_text = on_text;
  r->on_logits = self->from->rows ? on_logits : NULL;
  r->on_draft = self->truth ? on_draft : NULL;
  r->deadline_seconds = is_alone ? 0 : (double)self->from->deadline / 1e6;
  return verbatim_submit(engine, r);
}

/* === Comparing ============================================================================================================== */

static uint32_t bits_of(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

static bool token_agrees(const char *list, uint32_t i, const verbatim_token *found, const verbatim_token *alone, char *what) {
  if (memcmp(found, alone, sizeof *found) == 0) return true;
  if (found->digest != alone->digest)
    snprintf(what, ASK_WHAT_MAX, "%s[%" PRIu32 "]: logits row %016" PRIx64 ", alone %016" PRIx64 " (token %" PRId32 ", alone %" PRId32 ")",
             list, i, found->digest, alone->digest, found->id, alone->id);
  else
    snprintf(what, ASK_WHAT_MAX, "%s[%" PRIu32 "]: token %" PRId32 ", logprob %08" PRIx32 ", rank %" PRIu32 "; alone %" PRId32 ", %08"
             PRIx32 ", %" PRIu32 "; of one logits row", list, i, found->id, bits_of(found->logprob), found->rank, alone->id,
             bits_of(alone->logprob), alone->rank);
  return false;
}

static bool tokens_agree(const verbatim_request *f, const verbatim_request *a, char *what) {
  for (uint32_t i = 0; i < f->score_count; i++)
    if (!token_agrees("scores", i, &f->scores[i], &a->scores[i], what)) return false;
  for (uint32_t i = 0; i < f->token_count; i++)
    if (!token_agrees("tokens", i, &f->tokens[i], &a->tokens[i], what)) return false;
  for (uint64_t i = 0; i < ((uint64_t)f->score_count + f->token_count) * f->top_logprobs; i++) {
    const verbatim_alternative *x = &f->alternatives[i], *y = &a->alternatives[i];
    if (x->id == y->id && bits_of(x->logprob) == bits_of(y->logprob)) continue;
    snprintf(what, ASK_WHAT_MAX, "alternatives[%" PRIu64 "]: %" PRId32 ", %08" PRIx32 "; alone %" PRId32 ", %08" PRIx32, i, x->id,
             bits_of(x->logprob), y->id, bits_of(y->logprob));
    return false;
  }
  return true;
}

/* The line of a receipt. engine: any engine of the model. */
static char *line_of(const ask *self, const verbatim *engine, size_t *bytes) {
  char *line = NULL;
  int32_t stops[8 + VERBATIM_STOP_IDS_MAX];
  uint32_t stop_count = verbatim_stop_ids(engine, &self->request, stops);
  if (receipt_line("0", &self->request, stops, stop_count, &line, bytes) != OK) ASSERT(false);
  return line;
}

/* Compared byte for byte. The engine in which found's request ended may be closed. */
static bool lines_agree(const ask *found, const ask *alone, char *what) {
  size_t found_bytes, alone_bytes, at = 0;
  char *f = line_of(found, alone->engine, &found_bytes), *a = line_of(alone, alone->engine, &alone_bytes);
  while (at < found_bytes && at < alone_bytes && f[at] == a[at]) at++;
  bool agree = at == found_bytes && at == alone_bytes;
  if (!agree) snprintf(what, ASK_WHAT_MAX, "the receipt's line differs at byte %zu: \"%.40s\", alone \"%.40s\"", at, f + at, a + at);
  free(f);
  free(a);
  return agree;
}

static bool digests_agree(const char *name, digest found, digest alone, char *what) {
  char texts[2][DIGEST_TEXT_BYTES];
  if (memcmp(found.bytes, alone.bytes, DIGEST_BYTES) == 0) return true;
  snprintf(what, ASK_WHAT_MAX, "%s: digest %s, alone %s", name, digest_text(found.bytes, texts[0]), digest_text(alone.bytes, texts[1]));
  return false;
}

static bool ends_agree(const ask *found, const ask *alone, char *what) {
  const verbatim_request *f = &found->request, *a = &alone->request;
  if (f->finish != a->finish || f->token_count != a->token_count || f->score_count != a->score_count) {
    snprintf(what, ASK_WHAT_MAX, "ended \"%s\" with %" PRIu32 " scores and %" PRIu32 " tokens, alone \"%s\" with %" PRIu32 " and %" PRIu32,
             receipt_finish_name(f->finish), f->score_count, f->token_count, receipt_finish_name(a->finish), a->score_count,
             a->token_count);
    return false;
  }
  if (found->row_count != alone->row_count) {
    snprintf(what, ASK_WHAT_MAX, "%" PRIu32 " logits rows were shown, alone %" PRIu32, found->row_count, alone->row_count);
    return false;
  }
  return digests_agree("text shown", digest_end(&found->text), digest_end(&alone->text), what) &&
         digests_agree("logits rows shown", digest_end(&found->rows), digest_end(&alone->rows), what) &&
         lines_agree(found, alone, what);
}

bool ask_agrees(const ask *found, const ask *alone, bool may_be_cancelled, char what[ASK_WHAT_MAX]) {
  const verbatim_request *f = &found->request, *a = &alone->request;
  enum verbatim_finish finish = f->finish;
  bool cut = finish == VERBATIM_CANCELLED || finish == VERBATIM_DEADLINE, quit = found->from->quit > 0;
  if (found->problem[0]) {
    snprintf(what, ASK_WHAT_MAX, "%s", found->problem);
    return false;
  }
  if (finish == VERBATIM_RUNNING || (finish == VERBATIM_CANCELLED && !may_be_cancelled && !quit) ||
      (finish == VERBATIM_DEADLINE && !found->from->deadline)) {
    snprintf(what, ASK_WHAT_MAX, "is \"%s\" at the end, alone \"%s\"", receipt_finish_name(finish), receipt_finish_name(a->finish));
    return false;
  }
  if (f->token_count > a->token_count || f->score_count > a->score_count || (quit && f->token_count > found->from->quit)) {
    snprintf(what, ASK_WHAT_MAX, "made %" PRIu32 " tokens and %" PRIu32 " scores, alone %" PRIu32 " and %" PRIu32, f->token_count,
             f->score_count, a->token_count, a->score_count);
    return false;
  }
  return tokens_agree(f, a, what) && (cut || ends_agree(found, alone, what));
}

/* run.c - see run.h. Runs the request alone, then the events. */
#include "run.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LEN_MOST 1024u    /* of plans: the limit of the models */
#define LEN_ALONE 512u    /* least max_len of the plans for requests alone: max_len is not in the numerics id */
#define POLLS_MAX 100000u /* after more polls the engine counts as hanging */

typedef struct player {
  run_stage *stage;
  const schedule_case *c;
  run_outcome *outcome;
  run_counts *counts;
  char model_dir[MODELS_PATH_MAX];
  verbatim *reference, *engine;
  uint32_t vocab, polls;
  uint32_t order[CASE_REQUESTS_MAX], order_count; /* requests submitted and not compared yet, in that order */
  bool is_submitted[CASE_REQUESTS_MAX], may_be_cancelled[CASE_REQUESTS_MAX];
  ask alone[CASE_REQUESTS_MAX], live[CASE_REQUESTS_MAX];
} player;

/* Reports an error of the engine; its text is kept as the first cause. */
static status engine_error(int code, const char *what) {
  char text[FAIL_TEXT_MAX];
  snprintf(text, sizeof text, "%s", verbatim_error());
  fail_clear();
  return FAIL((status)code, "%s: %s", what, text);
}

static status broken(player *p, uint32_t request, const char *what) {
  if (p->outcome->failed) return OK;
  p->outcome->failed = true;
  p->outcome->request = request;
  snprintf(p->outcome->what, sizeof p->outcome->what, "%s", what);
  return OK;
}

/* === Alone ================================================================================================================== */

static status open_reference(player *p, run_reference *at) {
  char plan_path[MODELS_PATH_MAX], deploy[512];
  uint32_t len = p->c->len <= LEN_ALONE ? LEN_ALONE : LEN_MOST;
  snprintf(deploy, sizeof deploy,
           "max-num-seqs: 1\nmax-num-batched-tokens: %u\nmax_logit_rows: %u\nmax-model-len: %u\nchunk_tokens: %" PRId64 "\n"
           "group_chunks: %" PRId64 "\nladder: [1]\nparity: %s\n", len, len, len, p->c->chunk, p->c->groups,
           p->c->fast ? "fast-prefill" : "strict");
  TRY(models_plan(&p->stage->models, p->model_dir, deploy, plan_path));
  verbatim_config config = {.plan_path = plan_path, .model_dir = p->model_dir, .device = p->stage->alone_device, .threads = 1,
                            .cache_dir = p->stage->cache_dir, .program_path = p->stage->program_path, .logits = true,
                            .text = true, .no_prefix_cache = true, .direct = true};
  verbatim_close(at->engine);
  at->engine = NULL;
  int code = verbatim_open(&at->engine, &config);
  if (code != 0) return engine_error(code, "the engine for requests alone");
  memcpy(at->model_dir, p->model_dir, sizeof at->model_dir);
  at->chunk = p->c->chunk;
  at->groups = p->c->groups;
  at->fast = p->c->fast;
  at->len = len;
  return OK;
}

static status find_reference(player *p) {
  run_reference *oldest = &p->stage->references[0], *found = NULL;
  for (uint32_t i = 0; i < RUN_REFERENCES; i++) {
    run_reference *at = &p->stage->references[i];
    bool is_same = at->chunk == p->c->chunk && at->groups == p->c->groups && at->fast == p->c->fast;
    is_same = is_same && strcmp(at->model_dir, p->model_dir) == 0;
    if (at->engine && is_same && at->len >= p->c->len) found = at;
    if (at->used < oldest->used) oldest = at;
  }
  if (!found) TRY(open_reference(p, found = oldest));
  found->used = ++p->stage->uses;
  p->reference = found->engine;
  p->vocab = verbatim_describe(found->engine).vocab;
  return OK;
}

static int32_t id_of(const player *p, uint32_t seed, uint32_t i) {
  uint64_t z = ((uint64_t)seed << 32 | i) * 0x9e3779b97f4a7c15ull;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return (int32_t)((z >> 33) % p->vocab);
}

/* A request that ran alone before, as a prompt: its own prompt, then the tokens it generated. */
static int32_t answer_id(const ask *alone, uint32_t i) {
  const verbatim_request *r = &alone->request;
  return i < r->prompt_count ? r->prompt[i] : r->tokens[i - r->prompt_count].id;
}

/* Shortens the prompt so that all requested tokens fit, down to a prompt of one token. */
static uint32_t make_prompt(const player *p, const case_request *r, int32_t *ids) {
  uint32_t len = (uint32_t)p->c->len, wanted = min_u32((uint32_t)r->max_tokens, len - 1), count = 0;
  uint32_t most = max_u32(len - max_u32(wanted, 1), 1);
  for (uint32_t k = 0; k < r->part_count; k++) {
    const case_part *part = &r->parts[k];
    const ask *answer = part->is_answer ? &p->alone[part->seed] : NULL;
    uint32_t there = part->is_answer ? min_u32(part->count, answer->request.prompt_count + answer->request.token_count) : part->count;
    for (uint32_t i = 0; i < there && count < most; i++) ids[count++] = answer ? answer_id(answer, i) : id_of(p, part->seed, i);
  }
  if (count == 0) ids[count++] = id_of(p, 0, 0);
  return count;
}

static int32_t *copy_ids(const int32_t *ids, uint32_t count) {
  int32_t *copy = malloc(count * sizeof *copy);
  ASSERT(copy);
  memcpy(copy, ids, count * sizeof *copy);
  return copy;
}

static status run_alone(player *p, uint32_t number);

/* Its prompt, and the memory for both its runs. */
static status prepare(player *p, uint32_t number) {
  int32_t ids[LEN_MOST];
  const case_request *from = &p->c->requests[number];
  if (p->live[number].prompt) return OK;
  for (uint32_t i = 0; i < from->part_count; i++)
    if (from->parts[i].is_answer) TRY(run_alone(p, from->parts[i].seed));
  uint32_t count = make_prompt(p, from, ids), len = (uint32_t)p->c->len;
  ask_make(&p->alone[number], from, number, copy_ids(ids, count), count, len, p->vocab);
  ask_make(&p->live[number], from, number, copy_ids(ids, count), count, len, p->vocab);
  return OK;
}

/* Once, when it is needed. */
static status run_alone(player *p, uint32_t number) {
  bool busy = true;
  ask *alone = &p->alone[number];
  TRY(prepare(p, number));
  if (alone->engine) return OK;
  int code = ask_submit(alone, p->reference, true);
  while (code == 0 && busy) code = verbatim_poll(p->reference, &busy);
  if (code != 0) return engine_error(code, "a request alone");
  if (alone->request.finish == VERBATIM_RUNNING || alone->problem[0])
    return broken(p, number, alone->problem[0] ? alone->problem : "does not end, alone");
  return OK;
}

/* === Events ================================================================================================================= */

static status judge(player *p, uint32_t number) {
  char what[ASK_WHAT_MAX];
  const ask *found = &p->live[number];
  TRY(run_alone(p, number));
  if (!ask_agrees(found, &p->alone[number], p->may_be_cancelled[number], what)) TRY(broken(p, number, what));
  p->counts->requests++;
  p->counts->cut += found->request.finish == VERBATIM_CANCELLED || found->request.finish == VERBATIM_DEADLINE;
  p->is_submitted[number] = p->may_be_cancelled[number] = false;
  return OK;
}

/* No request is in flight any more. */
static status judge_all(player *p) {
  for (uint32_t i = 0; i < p->order_count && !p->outcome->failed; i++) TRY(judge(p, p->order[i]));
  p->order_count = 0;
  return OK;
}

static void count_engine(run_counts *sum, const verbatim_counters *c) {
  verbatim_counters *s = &sum->engine;
  s->steps += c->steps, s->decode_steps += c->decode_steps, s->mixed_steps += c->mixed_steps;
  s->request_steps += c->request_steps;
  s->token_rows += c->token_rows, s->reused_tokens += c->reused_tokens, s->recomputed_tokens += c->recomputed_tokens;
  s->admissions += c->admissions, s->preemptions += c->preemptions, s->cancellations += c->cancellations;
  s->deadlines += c->deadlines, s->evicted_pages += c->evicted_pages;
  s->drafts += c->drafts, s->drafted_tokens += c->drafted_tokens, s->accepted_tokens += c->accepted_tokens;
  s->most_sequences = max_u32(s->most_sequences, c->most_sequences);
}

static void close_engine(player *p) {
  if (!p->engine) return;
  verbatim_counters counters = verbatim_count(p->engine);
  count_engine(p->counts, &counters);
  verbatim_close(p->engine);
  p->engine = NULL;
}

/* The deployment file of an open. A value that would be refused is moved to the nearest one that is not. */
static void write_deploy(const schedule_case *c, const case_open *o, uint32_t ranks, char *text, size_t bytes) {
  uint32_t seqs = (uint32_t)o->seqs, batch = max_u32((uint32_t)o->batch, seqs);
  uint32_t logits = min_u32(max_u32((uint32_t)o->logits, seqs), batch), len = min_u32((uint32_t)(c->len + o->margin), LEN_MOST);
  uint32_t pages = (len + 63) / 64 + (uint32_t)o->spare;
  int used = snprintf(text, bytes,
                      "max-num-seqs: %" PRIu32 "\nmax-num-batched-tokens: %" PRIu32 "\nmax_logit_rows: %" PRIu32 "\n"
                      "max-model-len: %" PRIu32 "\nkv_pages: %" PRIu32 "\nchunk_tokens: %" PRId64 "\ngroup_chunks: %" PRId64 "\n"
                      "tensor-parallel-size: %" PRIu32 "\n",
                      seqs, batch, logits, len, pages, c->chunk, c->groups, ranks);
  if (ranks > 1) used += snprintf(text + used, bytes - (size_t)used, "attention-by-requests-from: 16\n");
  if (c->fast) used += snprintf(text + used, bytes - (size_t)used, "parity: fast-prefill\n");
  if (o->guess)
    used += snprintf(text + used, bytes - (size_t)used, "speculative-config: {method: %s, num-speculative-tokens: %" PRId64
                     ", prompt-lookup-min: 2}\n", o->layer ? "auto" : "ngram", o->guess);
  if (o->expand) used += snprintf(text + used, bytes - (size_t)used, "expand_tokens: %" PRId64 "\n", o->expand * 64);
  const char *before = "ladder: [";
  for (uint32_t size = 1; size <= min_u32(seqs, 32); size++) {
    if (!(o->ladder >> (size - 1) & 1)) continue;
    used += snprintf(text + used, bytes - (size_t)used, "%s%" PRIu32, before, size);
    before = ", ";
  }
  if (*before == ',') used += snprintf(text + used, bytes - (size_t)used, "]\n");
  ASSERT(used > 0 && (size_t)used < bytes);
}

/* A plan with as many ranks as asked for, or the next fewer that can divide the model. */
static status make_plan(player *p, const case_open *o, char plan_path[MODELS_PATH_MAX]) {
  char deploy[1024];
  for (uint32_t ranks = (uint32_t)o->ranks;; ranks--) {
    write_deploy(p->c, o, ranks, deploy, sizeof deploy);
    const status result = models_plan(&p->stage->models, p->model_dir, deploy, plan_path);
    if (result == OK) p->counts->divided += ranks > 1;
    if (result == OK || ranks == 1 || !strstr(fail_text(), "cannot divide")) return result;
    fail_clear();
  }
}

static bool wants_rows(const schedule_case *c) {
  for (uint32_t i = 0; i < c->request_count; i++)
    if (c->requests[i].rows) return true;
  return false;
}

static status submit(player *p, uint32_t number) {
  ask *a = &p->live[number];
  if (p->is_submitted[number] && a->request.finish == VERBATIM_RUNNING) return OK; /* in flight: not twice */
  if (p->is_submitted[number]) {
    uint32_t at = 0;
    while (p->order[at] != number) at++;
    TRY(judge(p, number));
    p->order_count--;
    memmove(p->order + at, p->order + at + 1, (p->order_count - at) * sizeof *p->order);
  }
  TRY(prepare(p, number));
  if (p->c->requests[number].draft) {
    TRY(run_alone(p, number));
    a->truth = &p->alone[number];
  }
  int code = ask_submit(a, p->engine, false);
  if (code != 0) return engine_error(code, "a request");
  p->is_submitted[number] = true;
  p->order[p->order_count++] = number;
  return OK;
}

/* Requests in flight begin again, in the order of their first submission. */
static status reopen(player *p, const case_open *o) {
  char plan_path[MODELS_PATH_MAX];
  uint32_t under_way = 0;
  close_engine(p);
  TRY(make_plan(p, o, plan_path));
  verbatim_config config = {.plan_path = plan_path, .model_dir = p->model_dir, .device = p->stage->device, .threads = (uint32_t)o->threads,
                            .cache_dir = p->stage->cache_dir, .program_path = p->stage->program_path, .logits = wants_rows(p->c),
                            .text = true, .max_active = (uint32_t)o->active,
                            .chunk_tokens = (uint32_t)o->chunk, .slot_offset = (uint32_t)o->slot, .shuffle_pages = (uint64_t)o->shuffle,
                            .no_prefix_cache = o->no_cache, .direct = o->direct, .poison = o->poison};
  int code = verbatim_open(&p->engine, &config);
  if (code != 0) return engine_error(code, "an engine of the case");
  for (uint32_t i = 0; i < p->order_count; i++) {
    ask *a = &p->live[p->order[i]];
    if (a->request.finish != VERBATIM_RUNNING) continue;
    code = ask_submit(a, p->engine, false);
    if (code != 0) return engine_error(code, "a request that begins again");
    under_way++;
  }
  p->counts->restarts += under_way > 0;
  return OK;
}

static status poll_engine(player *p, bool *busy) {
  int code = verbatim_poll(p->engine, busy);
  if (code != 0) return engine_error(code, "a step");
  if (++p->polls < POLLS_MAX) return OK;
  *busy = false;
  for (uint32_t i = 0; i < p->order_count; i++)
    if (p->live[p->order[i]].request.finish == VERBATIM_RUNNING) TRY(broken(p, p->order[i], "does not come to an end"));
  return broken(p, 0, "the engine is busy without an end");
}

static status cancel(player *p, uint32_t number) {
  if (!p->is_submitted[number]) return OK;
  p->may_be_cancelled[number] = true;
  int code = verbatim_cancel(p->engine, &p->live[number].request);
  return code == 0 ? OK : engine_error(code, "cancel");
}

static status play(player *p, const case_event *event) {
  bool busy = true;
  switch (event->kind) {
    case CASE_OPEN: return reopen(p, &p->c->opens[event->value]);
    case CASE_SUBMIT: return submit(p, event->value);
    case CASE_CANCEL: return cancel(p, event->value);
    case CASE_POLL:
      for (uint32_t i = 0; i < event->value && busy; i++) TRY(poll_engine(p, &busy));
      return OK;
    case CASE_IDLE:
      while (busy) TRY(poll_engine(p, &busy));
      p->counts->schedules++;
      return judge_all(p);
  }
  return OK;
}

static status play_all(player *p) {
  const schedule_case *c = p->c;
  TRY(models_folder(&p->stage->models, c, p->model_dir));
  TRY(find_reference(p));
  for (uint32_t i = 0; i < c->event_count && !p->outcome->failed; i++) TRY(play(p, &c->events[i]));
  if (p->order_count && !p->outcome->failed) TRY(play(p, &(case_event){.kind = CASE_IDLE})); /* every case ends like this */
  p->counts->cases++;
  return OK;
}

status run_case(run_stage *stage, const schedule_case *c, run_outcome *outcome, run_counts *counts) {
  player *p = aligned_alloc(_Alignof(player), sizeof *p);
  run_counts here = {0};
  ASSERT(p);
  memset(p, 0, sizeof *p);
  p->stage = stage;
  p->c = c;
  p->outcome = outcome;
  p->counts = &here;
  fail_clear();
  status result = play_all(p);
  close_engine(p);
  for (uint32_t i = 0; i < c->request_count; i++) {
    ask_free(&p->alone[i]);
    ask_free(&p->live[i]);
  }
  free(p);
  run_add_counts(counts, &here);
  return result;
}

void run_close(run_stage *stage) {
  for (uint32_t i = 0; i < RUN_REFERENCES; i++) verbatim_close(stage->references[i].engine);
  memset(stage->references, 0, sizeof stage->references);
  models_close(&stage->models);
}

void run_add_counts(run_counts *sum, const run_counts *more) {
  sum->cases += more->cases;
  sum->schedules += more->schedules;
  sum->requests += more->requests;
  sum->restarts += more->restarts;
  sum->divided += more->divided;
  sum->cut += more->cut;
  count_engine(sum, &more->engine);
}

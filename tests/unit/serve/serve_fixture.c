/* serve_fixture.c - see serve_fixture.h. */
#include "serve_fixture.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "engine/serve/reply.h"

static const uint32_t EOS[] = {1};
static const plan_guarantee GUARANTEES[] = {{.axis = 16, .status = GUARANTEE_PROVEN}};

void serve_fixture_open(serve_fixture *self) {
  *self = (serve_fixture){.seed = 1, .break_at = UINT32_MAX};
  if (tokenizer_open(&self->tokenizer, "tests/tiny") != OK || chat_open(&self->chat, "tests/tiny", NULL) != OK) {
    fprintf(stderr, "%s; hint: run from the root of the repository\n", fail_text());
    abort();
  }
  digest made = tokenizer_digest(self->tokenizer);
  self->info = (verbatim_info){.device = "none", .numerics_id = {1}, .weights_digest = {2}, .plan_digest = {3}, .config_digest = {4},
                               .vocab = tokenizer_vocab_size(self->tokenizer), .max_len = SERVE_FIXTURE_LEN, .max_seqs = 4,
                               .eos_count = ARRAY_LEN(EOS), .eos = EOS, .constraints = true};
  memcpy(self->info.tokenizer_digest, made.bytes, sizeof made.bytes);
  self->model = (serve_model){.name = "tiny", .info = &self->info, .tokenizer = self->tokenizer, .chat = self->chat,
                              .fingerprint = "vb-01-03", .choices_max = 64, .created = 1700000000};
  self->header.model.vocab = self->info.vocab;
  self->header.model.eos_count = 1;
  self->header.model.eos[0] = EOS[0];
  self->header.limits.max_len = SERVE_FIXTURE_LEN;
  self->header.limits.kv_pages = 64;
  self->header.numerics_id[0] = 1;
  self->plan = (plan){.header = &self->header, .strings = "\0layer 3 o_proj\0batch", .guarantees = GUARANTEES,
                      .guarantee_count = ARRAY_LEN(GUARANTEES)};
  self->requests = (request_model){.plan = &self->plan, .weights_digest = self->info.weights_digest, .tokenizer = self->tokenizer,
                                   .tokenizer_digest = self->info.tokenizer_digest};
}

void serve_fixture_close(serve_fixture *self) {
  chat_close(self->chat);
  tokenizer_close(self->tokenizer);
}

/* The body in a block of its own, of exactly its length, for the sanitizers. */
static bool parse(const serve_fixture *self, enum serve_kind kind, const char *body, serve_request **request, serve_fault *fault) {
  size_t bytes = strlen(body);
  char *copy = malloc(bytes ? bytes : 1);
  if (!copy) abort();
  memcpy(copy, body, bytes);
  bool is_sound = serve_request_parse(&self->model, kind, copy, bytes, "7", request, fault);
  free(copy);
  return is_sound;
}

serve_request *serve_fixture_ask(const serve_fixture *self, enum serve_kind kind, const char *body) {
  serve_request *request = NULL;
  serve_fault fault = {0};
  if (parse(self, kind, body, &request, &fault)) return request;
  fprintf(stderr, "%s: refused: %s\n", body, fault.message);
  abort();
}

serve_fault serve_fixture_refused(const serve_fixture *self, enum serve_kind kind, const char *body) {
  serve_request *request = NULL;
  serve_fault fault = {0};
  if (!parse(self, kind, body, &request, &fault)) return fault;
  fprintf(stderr, "%s: not refused\n", body);
  abort();
}

/* === Results ================================================================================================================ */

static stop_text *texts_of(const serve_request *request) { return request->owner; }

void serve_fixture_submit(const serve_fixture *self, serve_request *request) {
  request->owner = calloc(request->choice_count, sizeof(stop_text));
  if (!request->owner) abort();
  for (uint32_t i = 0; i < request->choice_count; i++) {
    fail_clear();
    if (request_check(&self->requests, &request->choices[i].engine_request) != OK) {
      fprintf(stderr, "choice %u: the engine refuses what was accepted: %s\n", i, fail_text());
      abort();
    }
    request_start(&self->requests, &request->choices[i].engine_request);
  }
}

/* Half of the time the next token of a text of several scripts, byte by byte; otherwise any token. */
static int32_t draw_id(const serve_fixture *self, uint64_t *random, uint32_t position) {
  static const char text[] = "add \xc3\xa9\xe4\xb8\x96\xe7\x95\x8c\xf0\x9f\x99\x82 \"\\\n\x7f caf\xc3\xa9 \xf0\x9f\x91\xa9 <b>words</b>";
  int32_t ids[sizeof text + 8];
  size_t count = 0;
  if (tokenizer_encode(self->tokenizer, text, sizeof text - 1, false, true, ids, ARRAY_LEN(ids), &count) != OK) abort();
  if (random_next(random) % 4) return ids[position % count];
  int32_t id = (int32_t)(random_next(random) % self->info.vocab);
  return id == (int32_t)EOS[0] && random_next(random) % 4 ? 3 : id;
}

static bool is_among(const top_logprob *top, uint32_t count, int32_t id) {
  for (uint32_t i = 0; i < count; i++)
    if (top[i].token == id) return true;
  return false;
}

/* Ties, also with the likeliest token, which does not always have the smallest id among them. */
static void draw(const serve_fixture *self, uint64_t *random, uint32_t position, int32_t given, sample_result *result,
                 top_logprob top[TOP_LOGPROBS_MAX]) {
  int32_t id = given >= 0 ? given : draw_id(self, random, position);
  uint32_t rank = random_next(random) % 3 ? (uint32_t)(random_next(random) % 4) : TOP_LOGPROBS_MAX + 5;
  float logprob = -0.1f * (float)(random_next(random) % 1000) / 97.0f;
  for (uint32_t i = 0; i < TOP_LOGPROBS_MAX; i++) {
    if (i && random_next(random) % 3) logprob -= (float)(random_next(random) % 1000) / 731.0f;
    do top[i].token = (int32_t)(random_next(random) % self->info.vocab);
    while (top[i].token == id || is_among(top, i, top[i].token));
    top[i].logprob = logprob;
  }
  if (rank < TOP_LOGPROBS_MAX) top[rank].token = id;
  *result = (sample_result){.token = id, .rank = rank, .logprob = rank < TOP_LOGPROBS_MAX ? top[rank].logprob : logprob};
}

static int32_t scripted(const serve_fixture *self, uint32_t position) {
  int32_t ids[1024];
  size_t count = 0;
  if (tokenizer_encode(self->tokenizer, self->script, strlen(self->script), false, false, ids, ARRAY_LEN(ids), &count) != OK) abort();
  return position < count ? ids[position] : (int32_t)EOS[0];
}

/* Like the scheduler's `show`: text first, then the token; only generated tokens are shown. */
bool serve_fixture_step(const serve_fixture *self, serve_choice *choice) {
  verbatim_request *r = &choice->engine_request;
  uint32_t index = (uint32_t)(choice - choice->request->choices), before = r->token_count;
  stop_text *text = texts_of(choice->request) + index;
  bool is_score = r->score && r->score_count < r->prompt_count - r->score_from;
  uint32_t position = is_score ? r->score_from + r->score_count : r->prompt_count + r->token_count;
  uint64_t random = self->seed * 1000003 + index * 8191ull + position;
  top_logprob top[TOP_LOGPROBS_MAX];
  sample_result result;
  if (r->finish != VERBATIM_RUNNING) return false;
  if (!is_score && r->token_count == self->break_at) {
    request_break(&self->requests, r, UINT32_MAX, position);
    request_show(&self->requests, r, text, false);
    return false;
  }
  int32_t given = is_score ? r->prompt[position] : self->script ? scripted(self, r->token_count) : -1;
  draw(self, &random, position, given, &result, top);
  request_push(&self->requests, r, text, &result, top, random);
  bool is_made = r->token_count > before;
  request_show(&self->requests, r, text, is_made);
  if (is_made) r->on_token(r, r->token_count - 1);
  return r->finish == VERBATIM_RUNNING;
}

void serve_fixture_run(const serve_fixture *self, serve_request *request) {
  for (uint32_t i = 0; i < request->choice_count; i++) {
    while (serve_fixture_step(self, &request->choices[i])) continue;
    serve_request_finished(&request->choices[i]);
  }
  free(request->owner);
  request->owner = NULL;
}

json_t *serve_fixture_reply(const serve_fixture *self, enum serve_kind kind, const char *body, serve_text *text) {
  serve_request *request = serve_fixture_ask(self, kind, body);
  serve_text out = {0};
  serve_fault fault;
  json_error_t error;
  serve_fixture_submit(self, request);
  serve_fixture_run(self, request);
  if (!serve_reply_whole(&self->model, request, &out, &fault)) {
    fprintf(stderr, "%s: %s\n", body, fault.message);
    abort();
  }
  json_t *reply = json_loadb(out.bytes, out.count, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
  if (!reply) {
    fprintf(stderr, "%.*s\nis not JSON: %s\n", (int)out.count, out.bytes, error.text);
    abort();
  }
  serve_request_close(request);
  if (text) *text = out;
  else strbuf_close(&out);
  return reply;
}

const json_t *serve_fixture_at(const json_t *root, const char *path) {
  char copy[256], *rest = NULL;
  const json_t *at = root;
  snprintf(copy, sizeof copy, "%s", path);
  for (char *word = strtok_r(copy, ".", &rest); word; word = strtok_r(NULL, ".", &rest))
    at = json_is_array(at) ? json_array_get(at, strtoul(word, NULL, 10)) : json_object_get(at, word);
  if (at) return at;
  fprintf(stderr, "%s is not in the reply\n", path);
  abort();
}

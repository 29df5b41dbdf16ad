/* plan_walk.c - see plan_walk.h. The regions keep their order and sizes; only the gaps between them grow. */
#include "plan_walk.h"
#include "engine/base/digest.h"
#include "engine/plan/plan.h"
#include "engine/requests/schedule.h"
#include "engine/exec/watch.h"
#include <stdlib.h>
#include <string.h>

#define GAP_BYTES 4096u
#define GAP_BYTE 0xa5
#define REQUESTS 4u
#define PROMPT_MAX 64u
#define TOKENS_MAX 2u
#define STEPS_MAX (REQUESTS * (PROMPT_MAX + TOKENS_MAX) + 2)

#ifdef __SANITIZE_ADDRESS__
void __asan_poison_memory_region(void const volatile *address, size_t bytes);
void __asan_unpoison_memory_region(void const volatile *address, size_t bytes);
static void close_gap(uint8_t *gap, size_t bytes) { __asan_poison_memory_region(gap, bytes); }
static void open_gap(const uint8_t *gap, size_t bytes) { __asan_unpoison_memory_region(gap, bytes); }
#else
static void close_gap(uint8_t *gap, size_t bytes) { memset(gap, GAP_BYTE, bytes); }
static void open_gap(const uint8_t *gap, size_t bytes) {
  for (size_t i = 0; i < bytes; i++) ASSERT(gap[i] == GAP_BYTE);
}
#endif

void plan_walk_seal(uint8_t *bytes, size_t byte_count) {
  plan_header *h = (plan_header *)(void *)bytes;
  h->file_bytes = byte_count;
  memset(h->digest, 0, sizeof h->digest);
  digest d = digest_of(bytes, byte_count);
  memcpy(h->digest, d.bytes, sizeof h->digest);
}

static bool is_small(const uint8_t *bytes) {
  const plan_header *h = (const plan_header *)(const void *)bytes;
  const plan_region *regions = (const plan_region *)(const void *)(bytes + h->regions.offset);
  uint64_t sum = 0; /* each is below 2^48 */
  for (uint32_t i = 0; i < REGION_COUNT; i++) sum += regions[i].bytes;
  return sum <= PLAN_WALK_DEVICE_BYTES_MAX;
}

/* A copy with a gap before every region and after the last; the caller frees it. */
static uint8_t *spread(const uint8_t *bytes, size_t byte_count, plan *view) {
  uint8_t *copy = malloc(byte_count);
  ASSERT(copy != NULL);
  memcpy(copy, bytes, byte_count);
  plan_header *h = (plan_header *)(void *)copy;
  plan_region *regions = (plan_region *)(void *)(copy + h->regions.offset);
  uint64_t end = 0;
  for (uint32_t i = 0; i < REGION_COUNT; i++) {
    regions[i].offset = align_up(end + GAP_BYTES, 256);
    end = regions[i].offset + regions[i].bytes;
  }
  h->device_bytes = end + GAP_BYTES;
  plan_walk_seal(copy, byte_count);
  ASSERT(plan_view(copy, byte_count, view) == OK);
  return copy;
}

typedef void gap_action(uint8_t *gap, size_t bytes);
static void leave(uint8_t *gap, size_t bytes) { open_gap(gap, bytes); }

static void for_gaps(const plan *view, uint8_t *base, gap_action *act) {
  uint64_t end = 0;
  for (uint32_t i = 0; i < REGION_COUNT; i++) {
    const plan_region *r = &view->regions[i];
    act(base + end, r->offset - end);
    end = r->offset + r->bytes;
  }
  act(base + end, view->header->device_bytes - end);
}

typedef struct client { /* requests and their memory */
  verbatim_request requests[REQUESTS];
  int32_t prompts[REQUESTS][PROMPT_MAX];
  verbatim_token scores[REQUESTS][PROMPT_MAX], tokens[REQUESTS][TOKENS_MAX];
  verbatim_alternative alternatives[REQUESTS][PROMPT_MAX + TOKENS_MAX][VERBATIM_TOP_LOGPROBS_MAX];
  verbatim_bias bias;
} client;

/* Short prompts, one of the largest size, and more requests than slots; the last tokens of the vocabulary; every option of a request occurs
 * in one of them. */
static void fill(client *c, uint32_t i, const plan *view) {
  static const uint32_t lengths[REQUESTS] = {1, PROMPT_MAX, 5, 2};
  const plan_limits *l = &view->header->limits;
  uint32_t vocab = view->header->model.vocab, tokens = min_u32(TOKENS_MAX, l->max_len - 1);
  verbatim_request *r = &c->requests[i];
  *r = VERBATIM_REQUEST_DEFAULTS;
  r->prompt = c->prompts[i], r->prompt_count = min_u32(lengths[i], l->max_len - tokens), r->max_tokens = tokens;
  r->top_p = 0.9, r->temperature = (float)(i % 2), r->seed = i, r->ignore_eos = i > 1;
  r->scores = c->scores[i], r->tokens = c->tokens[i], r->alternatives = c->alternatives[i][0];
  r->top_logprobs = i == 2 ? 0 : min_u32(vocab, VERBATIM_TOP_LOGPROBS_MAX);
  r->score = i == 1 && r->prompt_count > 1, r->score_from = 1;
  if (i == 2) r->repetition_penalty = 1.5f, r->presence_penalty = 1, r->min_p = 0.01;
  if (i == 3) c->bias = (verbatim_bias){(int32_t)vocab - 1, 1}, r->biases = &c->bias, r->bias_count = 1;
  for (uint32_t t = 0; t < r->prompt_count; t++) c->prompts[i][t] = (int32_t)(vocab - 1 - t % min_u32(3, vocab));
}

static void submit(client *c, const request_model *model, schedule *batching) {
  for (uint32_t i = 0; i < REQUESTS; i++) {
    fill(c, i, model->plan);
    if (request_check(model, &c->requests[i]) == OK) {
      request_start(model, &c->requests[i]);
      schedule_submit(batching, &c->requests[i]);
    } else { /* it needs more pages than exist */
      fail_clear();
      c->requests[i].finish = VERBATIM_LENGTH;
    }
  }
}

static void run_requests(const plan *view, exec *machine, arena *host) {
  static client c;
  static const uint8_t weights[DIGEST_BYTES];
  schedule batching;
  watch *watcher;
  const request_model model = {.plan = view, .weights_digest = weights};
  const schedule_options options = {.shuffle_pages = 1};
  if (watch_open(&watcher, view, machine, false, host) != OK) { /* an op's rows are not at its trace point */
    fail_clear();
    return;
  }
  ASSERT(schedule_open(&batching, &model, machine, watcher, &options, host) == OK);
  submit(&c, &model, &batching);
  bool outstanding[2] = {false, false};
  for (uint32_t side = 0, steps = 0; outstanding[0] || outstanding[1] || !schedule_idle(&batching); steps++) { /* like verbatim_poll */
    uint32_t now = side, before = side ^ 1;
    ASSERT(steps < STEPS_MAX);
    outstanding[now] = schedule_step(&batching, now);
    if (outstanding[now]) side ^= 1;
    if (outstanding[before]) schedule_settle(&batching, before);
    outstanding[before] = false;
  }
  for (uint32_t i = 0; i < REQUESTS; i++) ASSERT(c.requests[i].finish != VERBATIM_RUNNING);
}

/* Small numbers of both signs in every weight, so that nothing overflows. */
static void fill_weights(uint8_t *weights, uint64_t bytes) {
  uint16_t *w = (uint16_t *)(void *)weights;
  for (uint64_t i = 0; i < bytes / 2; i++) w[i] = (uint16_t)(0x3c00u + i * 37 % 0x80 + (i * 11 % 3 == 0 ? 0x8000u : 0));
}

bool plan_walk_run(const uint8_t *bytes, size_t byte_count) {
  static cpu_pool *pool; /* one thread, for the life of the process */
  plan view;
  arena host = {0};
  exec *machine = NULL;
  if (!is_small(bytes)) return false;
  uint8_t *copy = spread(bytes, byte_count, &view);
  if (!pool) ASSERT(cpu_pool_open(&pool, 1) == OK);
  const exec_options options = {.pool = pool, .poison = true};
  ASSERT(exec_open(&machine, &view, &options, &host) == OK);
  uint8_t *weights = (uint8_t *)(uintptr_t)exec_weights_target(machine).address[0];
  uint8_t *base = weights - view.regions[REGION_WEIGHTS].offset;
  for_gaps(&view, base, close_gap);
  fill_weights(weights, view.regions[REGION_WEIGHTS].bytes);
  exec_start_tables(machine);
  run_requests(&view, machine, &host);
  for_gaps(&view, base, leave);
  exec_close(machine);
  arena_close(&host);
  free(copy);
  return true;
}

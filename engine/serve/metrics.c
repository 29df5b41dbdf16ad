/* serve/metrics.c - see serve/metrics.h. The format is Prometheus' text exposition 0.0.4: for each name a HELP line, a TYPE line and its
 * samples; buckets are cumulative. */
#include "serve/metrics.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double BOUNDS[SERVE_METRICS_BUCKETS] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1,
                                                     2.5,   5,      7.5,   10,   20,    40,   80,  160,  640, 2560};
static const double SIZE_BOUNDS[SERVE_METRICS_BUCKETS] = {1,    2,    5,     10,    20,    50,     100,    200,    500,     1000,
                                                          2000, 5000, 10000, 20000, 50000, 100000, 200000, 500000, 1000000, 2000000};

typedef struct metric_name {
  const char *name, *help;
} metric_name;

static const metric_name COUNTS[SERVE_COUNTS] = {
  {"vllm:prompt_tokens_total", "Prompt tokens of finished requests"},
  {"vllm:generation_tokens_total", "Generated tokens"},
  {"verbatim_refused_full_total", "HTTP requests answered with 429 because too many requests were waiting"},
  {"verbatim_refused_memory_total", "HTTP requests answered with 429 because the memory for requests was in use"},
  {"verbatim_disconnected_total", "HTTP requests whose client left before the reply was complete"}};
static const metric_name GAUGES[SERVE_GAUGES] = {
  {"vllm:num_requests_running", "Requests that the engine has places for"},
  {"vllm:num_requests_waiting", "Requests accepted beyond those that run"},
  {"verbatim_request_memory_bytes", "Memory of accepted bodies and of the replies they may get"},
  {"verbatim_request_memory_limit_bytes", "Upper limit of verbatim_request_memory_bytes (--request-memory-bytes)"},
  {"verbatim_connections", "Open connections"}};
static const metric_name TIMES[SERVE_TIMES] = {
  {"vllm:time_to_first_token_seconds", "Time from acceptance to the first token"},
  {"vllm:time_per_output_token_seconds", "Mean time between tokens of a finished request"},
  {"vllm:e2e_request_latency_seconds", "Time from acceptance to the end of a request"},
  {"vllm:inter_token_latency_seconds", "Time between two steps that gave a request tokens"},
  {"vllm:request_queue_time_seconds", "Time from acceptance to a request's first step"},
  {"vllm:request_prefill_time_seconds", "Time from a request's first step to its first token"},
  {"vllm:request_decode_time_seconds", "Time from a request's first token to its last"},
  {"vllm:request_inference_time_seconds", "Time from a request's first step to its end"}};
static const metric_name SIZES[SERVE_SIZES] = {
  {"vllm:request_prompt_tokens", "Prompt tokens of a finished request"},
  {"vllm:request_generation_tokens", "Generated tokens of a finished request"},
  {"vllm:request_params_max_tokens", "Most tokens that a finished request might generate"}};
static const char *const FINISHES[SERVE_METRICS_FINISHES] = {NULL, "stop", "length", "nonfinite", "stop_text", "cancelled", "deadline"};
static const char *const REASONS[] = {"stop", "length", "abort", "error"}; /* vLLM's */

void serve_metrics_open(serve_metrics *self) { ASSERT(pthread_mutex_init(&self->mutex, NULL) == 0); }

void serve_metrics_close(serve_metrics *self) { pthread_mutex_destroy(&self->mutex); }

/* === Counting =============================================================================================================== */

void serve_metrics_add(serve_metrics *self, enum serve_count which, uint64_t by) {
  pthread_mutex_lock(&self->mutex);
  self->counts[which] += by;
  pthread_mutex_unlock(&self->mutex);
}

void serve_metrics_set(serve_metrics *self, enum serve_gauge which, double value) {
  pthread_mutex_lock(&self->mutex);
  self->gauges[which] = value;
  pthread_mutex_unlock(&self->mutex);
}

double serve_metrics_get(serve_metrics *self, enum serve_gauge which) {
  pthread_mutex_lock(&self->mutex);
  double value = self->gauges[which];
  pthread_mutex_unlock(&self->mutex);
  return value;
}

static void put_in(serve_metrics *self, serve_histogram *h, const double *bounds, double value) {
  uint32_t at = 0;
  while (at < SERVE_METRICS_BUCKETS && value > bounds[at]) at++;
  pthread_mutex_lock(&self->mutex);
  h->buckets[at]++;
  h->sum += value;
  pthread_mutex_unlock(&self->mutex);
}

void serve_metrics_measure(serve_metrics *self, enum serve_time which, double seconds) {
  put_in(self, &self->times[which], BOUNDS, seconds);
}

void serve_metrics_size(serve_metrics *self, enum serve_size which, uint32_t tokens) {
  put_in(self, &self->sizes[which], SIZE_BOUNDS, tokens);
}

void serve_metrics_finish(serve_metrics *self, enum verbatim_finish finish) {
  ASSERT((uint32_t)finish < SERVE_METRICS_FINISHES);
  pthread_mutex_lock(&self->mutex);
  self->finishes[finish]++;
  pthread_mutex_unlock(&self->mutex);
}

void serve_metrics_reply(serve_metrics *self, unsigned http_status) {
  ASSERT(http_status >= SERVE_METRICS_STATUS_MIN && http_status - SERVE_METRICS_STATUS_MIN < SERVE_METRICS_STATUSES);
  pthread_mutex_lock(&self->mutex);
  self->statuses[http_status - SERVE_METRICS_STATUS_MIN]++;
  pthread_mutex_unlock(&self->mutex);
}

void serve_metrics_engine(serve_metrics *self, const verbatim_counters *counters) {
  pthread_mutex_lock(&self->mutex);
  self->engine = *counters;
  pthread_mutex_unlock(&self->mutex);
}

/* === Text =================================================================================================================== */

static void head(FILE *to, const char *name, const char *help, const char *type) {
  fprintf(to, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void put_label(FILE *to, const char *name, const char *value) {
  fprintf(to, "%s=\"", name);
  for (; *value; value++) {
    if (*value == '\n') fputs("\\n", to);
    else if (*value == '"' || *value == '\\') fprintf(to, "\\%c", *value);
    else putc(*value, to);
  }
  putc('"', to);
}

/* Writes name{model_name="m" and leaves the brace open. */
static void put_name(FILE *to, const char *name, const char *suffix, const serve_metrics_labels *labels) {
  fprintf(to, "%s%s{", name, suffix);
  put_label(to, "model_name", labels->model_name);
}

static void put_histogram(FILE *to, const metric_name *name, const serve_histogram *h, const double *bounds,
                          const serve_metrics_labels *labels) {
  uint64_t total = 0;
  head(to, name->name, name->help, "histogram");
  for (uint32_t i = 0; i <= SERVE_METRICS_BUCKETS; i++) {
    total += h->buckets[i];
    put_name(to, name->name, "_bucket", labels);
    if (i < SERVE_METRICS_BUCKETS) fprintf(to, ",le=\"%g\"} %" PRIu64 "\n", bounds[i], total);
    else fprintf(to, ",le=\"+Inf\"} %" PRIu64 "\n", total);
  }
  put_name(to, name->name, "_sum", labels);
  fprintf(to, "} %.9g\n", h->sum);
  put_name(to, name->name, "_count", labels);
  fprintf(to, "} %" PRIu64 "\n", total);
}

static void put_finishes(FILE *to, const uint64_t *of, const serve_metrics_labels *labels) {
  const uint64_t reasons[ARRAY_LEN(REASONS)] = {of[VERBATIM_STOP] + of[VERBATIM_STOP_TEXT], of[VERBATIM_LENGTH],
                                                of[VERBATIM_CANCELLED] + of[VERBATIM_DEADLINE], of[VERBATIM_NONFINITE]};
  head(to, "vllm:request_success_total", "Finished requests by vLLM's finish reason", "counter");
  for (size_t i = 0; i < ARRAY_LEN(REASONS); i++) {
    put_name(to, "vllm:request_success_total", "", labels);
    fprintf(to, ",finished_reason=\"%s\"} %" PRIu64 "\n", REASONS[i], reasons[i]);
  }
  head(to, "verbatim_requests_finished_total", "Finished requests by the finish reason in receipts", "counter");
  for (uint32_t i = 1; i < SERVE_METRICS_FINISHES; i++)
    fprintf(to, "verbatim_requests_finished_total{finish=\"%s\"} %" PRIu64 "\n", FINISHES[i], of[i]);
}

static void put_engine(FILE *to, const verbatim_counters *c) {
  const struct {
    const char *name, *help;
    uint64_t value;
  } rows[] = {{"steps", "Steps of the engine", c->steps},
              {"decode_steps", "Steps of generated tokens only", c->decode_steps},
              {"mixed_steps", "Steps of generated and prompt tokens", c->mixed_steps},
              {"request_steps", "Steps in which each GPU attended for its share of the requests", c->request_steps},
              {"token_rows", "Token rows computed", c->token_rows},
              {"reused_tokens", "Token rows taken from the prefix cache", c->reused_tokens},
              {"recomputed_tokens", "Token rows computed again after a preemption", c->recomputed_tokens},
              {"admissions", "Requests admitted, including after a preemption", c->admissions},
              {"preemptions", "Requests preempted for lack of KV pages", c->preemptions},
              {"cancellations", "Requests cancelled", c->cancellations},
              {"deadlines", "Requests whose deadline passed", c->deadlines},
              {"evicted_pages", "Pages evicted from the prefix cache", c->evicted_pages}};
  for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
    fprintf(to, "# HELP verbatim_%s_total %s\n# TYPE verbatim_%s_total counter\n", rows[i].name, rows[i].help, rows[i].name);
    fprintf(to, "verbatim_%s_total %" PRIu64 "\n", rows[i].name, rows[i].value);
  }
}

/* Of those also what vLLM counts, with its names. */
static void put_named(FILE *to, const verbatim_counters *c, const serve_metrics_labels *labels) {
  const struct {
    const char *name, *help;
    uint64_t value;
  } rows[] = {{"vllm:prefix_cache_queries_total", "Tokens of admitted requests, looked for in the prefix cache", c->queried_tokens},
              {"vllm:prefix_cache_hits_total", "Tokens taken from the prefix cache", c->reused_tokens},
              {"vllm:num_preemptions_total", "Requests preempted for lack of KV pages", c->preemptions}};
  for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
    head(to, rows[i].name, rows[i].help, "counter");
    put_name(to, rows[i].name, "", labels);
    fprintf(to, "} %" PRIu64 "\n", rows[i].value);
  }
}

/* With vLLM's names. */
static void put_drafts(FILE *to, const verbatim_counters *c, const serve_metrics_labels *labels) {
  static const char places[] = "vllm:spec_decode_num_accepted_tokens_per_pos_total";
  const struct {
    const char *name, *help;
    uint64_t value;
  } rows[] = {{"vllm:spec_decode_num_drafts_total", "Times that a step checked guesses of a request's next tokens", c->drafts},
              {"vllm:spec_decode_num_draft_tokens_total", "Guesses checked", c->drafted_tokens},
              {"vllm:spec_decode_num_accepted_tokens_total", "Guesses that were right", c->accepted_tokens}};
  for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
    head(to, rows[i].name, rows[i].help, "counter");
    put_name(to, rows[i].name, "", labels);
    fprintf(to, "} %" PRIu64 "\n", rows[i].value);
  }
  head(to, places, "Guesses that were right, by their place in the draft", "counter");
  for (uint32_t i = 0; i < labels->draft_tokens; i++) {
    put_name(to, places, "", labels);
    fprintf(to, ",position=\"%" PRIu32 "\"} %" PRIu64 "\n", i, c->accepted_at[i]);
  }
}

static void put_build(FILE *to, const serve_metrics_labels *labels) {
  head(to, "verbatim_build_info", "Build information; always 1", "gauge");
  fputs("verbatim_build_info{version=\"" VERBATIM_VERSION "\",", to);
  put_label(to, "numerics_id", labels->numerics_id);
  putc(',', to);
  put_label(to, "plan_digest", labels->plan_digest);
  putc(',', to);
  put_label(to, "device", labels->device);
  putc(',', to);
  put_label(to, "model_name", labels->model_name);
  fputs("} 1\n", to);
  head(to, "process_start_time_seconds", "Start time of the server since the epoch", "gauge");
  fprintf(to, "process_start_time_seconds %.3f\n", labels->started_at);
}

static void put_gpus(FILE *to, const serve_metrics_labels *labels) {
  head(to, "verbatim_ranks", "GPUs that share the work, or what the CPU runs in their place", "gauge");
  fprintf(to, "verbatim_ranks %" PRIu32 "\n", labels->ranks);
  for (int which = 0; which < 2 && labels->gpus; which++) {
    const char *name = which ? "verbatim_gpu_memory_reserved_bytes" : "verbatim_gpu_memory_bytes";
    head(to, name, which ? "Memory of a GPU that the plan's reservation took" : "Memory of a GPU", "gauge");
    for (uint32_t i = 0; i < labels->ranks; i++) {
      const verbatim_gpu *g = &labels->gpus[i];
      fprintf(to, "%s{gpu=\"%" PRIu32 "\"} %" PRIu64 "\n", name, g->index, which ? g->reserved : g->total);
    }
  }
}

static void put_all(FILE *to, const serve_metrics *self, const serve_metrics_labels *labels) {
  put_build(to, labels);
  put_gpus(to, labels);
  for (uint32_t i = 0; i < SERVE_GAUGES; i++) {
    head(to, GAUGES[i].name, GAUGES[i].help, "gauge");
    put_name(to, GAUGES[i].name, "", labels);
    fprintf(to, "} %.17g\n", self->gauges[i]);
  }
  for (uint32_t i = 0; i < SERVE_COUNTS; i++) {
    head(to, COUNTS[i].name, COUNTS[i].help, "counter");
    put_name(to, COUNTS[i].name, "", labels);
    fprintf(to, "} %" PRIu64 "\n", self->counts[i]);
  }
  put_finishes(to, self->finishes, labels);
  for (uint32_t i = 0; i < SERVE_TIMES; i++) put_histogram(to, &TIMES[i], &self->times[i], BOUNDS, labels);
  const metric_name per_token = {"vllm:request_time_per_output_token_seconds", TIMES[SERVE_TIME_PER_TOKEN].help}; /* its present name */
  put_histogram(to, &per_token, &self->times[SERVE_TIME_PER_TOKEN], BOUNDS, labels);
  for (uint32_t i = 0; i < SERVE_SIZES; i++) put_histogram(to, &SIZES[i], &self->sizes[i], SIZE_BOUNDS, labels);
  head(to, "verbatim_http_replies_total", "Replies by HTTP status", "counter");
  for (uint32_t i = 0; i < SERVE_METRICS_STATUSES; i++)
    if (self->statuses[i])
      fprintf(to, "verbatim_http_replies_total{code=\"%u\"} %" PRIu64 "\n", i + SERVE_METRICS_STATUS_MIN, self->statuses[i]);
  head(to, "vllm:kv_cache_usage_perc", "Fraction of the KV pages that running requests hold, 0 to 1", "gauge");
  put_name(to, "vllm:kv_cache_usage_perc", "", labels);
  fprintf(to, "} %.9g\n", labels->kv_pages ? (double)self->engine.kv_pages_used / labels->kv_pages : 0);
  put_engine(to, &self->engine);
  put_named(to, &self->engine, labels);
  if (labels->draft_tokens) put_drafts(to, &self->engine, labels);
}

status serve_metrics_text(serve_metrics *self, const serve_metrics_labels *labels, char **text, size_t *bytes) {
  char *memory = NULL;
  size_t count = 0;
  FILE *to = open_memstream(&memory, &count);
  if (!to) return FAIL(ERR_LIMIT, "metrics: no memory");
  pthread_mutex_lock(&self->mutex);
  put_all(to, self, labels);
  pthread_mutex_unlock(&self->mutex);
  bool good = !ferror(to);
  if (fclose(to) != 0 || !good) {
    free(memory);
    return FAIL(ERR_LIMIT, "metrics: no memory");
  }
  *text = memory;
  *bytes = count;
  return OK;
}

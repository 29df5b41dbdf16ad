/* serve/metrics.h - the server's metrics, and their text in Prometheus' format.
 *
 * Metrics that vLLM also has keep its names (vllm:...), so that dashboards work unchanged; the others begin with verbatim_. Any thread may
 * call any function between open and close. Only the text is allocated. Read next: serve/queue.h. */
#ifndef VERBATIM_SERVE_METRICS_H
#define VERBATIM_SERVE_METRICS_H
#include <pthread.h>
#include "base/base.h"
#include "verbatim.h"

enum serve_count {
  SERVE_COUNT_PROMPT_TOKENS, SERVE_COUNT_GENERATED_TOKENS, /* of the engine's requests */
  SERVE_COUNT_REFUSED_FULL, SERVE_COUNT_REFUSED_MEMORY,    /* HTTP requests answered with 429 */
  SERVE_COUNT_DISCONNECTED, /* HTTP requests whose client left before the reply was complete */
  SERVE_COUNTS
};
enum serve_gauge {
  SERVE_GAUGE_RUNNING, SERVE_GAUGE_WAITING, SERVE_GAUGE_BYTES, SERVE_GAUGE_BYTES_MAX, SERVE_GAUGE_CONNECTIONS,
  SERVE_GAUGES
};
enum serve_time { /* seconds */
  SERVE_TIME_FIRST_TOKEN, SERVE_TIME_PER_TOKEN, SERVE_TIME_REQUEST,
  SERVE_TIME_BETWEEN_TOKENS, /* of two steps that gave a request tokens */
  SERVE_TIME_QUEUE,   /* from acceptance to the request's first step  */
  SERVE_TIME_PREFILL, /* from there to its first token                */
  SERVE_TIME_DECODE,  /* from there to its last                       */
  SERVE_TIME_INFERENCE, /* from its first step to its end             */
  SERVE_TIMES
};
enum serve_size { SERVE_SIZE_PROMPT, SERVE_SIZE_GENERATED, SERVE_SIZE_MAX_TOKENS, SERVE_SIZES }; /* tokens of an engine request */

#define SERVE_METRICS_BUCKETS 20u
#define SERVE_METRICS_STATUS_MIN 200u
#define SERVE_METRICS_STATUSES 400u
#define SERVE_METRICS_FINISHES 7u /* enum verbatim_finish */

typedef struct serve_histogram {
  uint64_t buckets[SERVE_METRICS_BUCKETS + 1]; /* values in each bucket, up to its bound; the last has none */
  double sum;
} serve_histogram;

typedef struct serve_metrics {
  pthread_mutex_t mutex; /* protects all members below */
  uint64_t counts[SERVE_COUNTS];
  double gauges[SERVE_GAUGES];
  serve_histogram times[SERVE_TIMES], sizes[SERVE_SIZES];
  uint64_t finishes[SERVE_METRICS_FINISHES];
  uint64_t statuses[SERVE_METRICS_STATUSES]; /* replies by HTTP status */
  verbatim_counters engine;
} serve_metrics;

typedef struct serve_metrics_labels { /* constant while the server runs; texts of any bytes */
  const char *model_name, *numerics_id, *plan_digest, *device;
  uint32_t kv_pages, ranks, draft_tokens; /* of the plan */
  const verbatim_gpu *gpus; /* [ranks]; null on the CPU backend */
  double started_at; /* seconds since the epoch */
} serve_metrics_labels;

void serve_metrics_open(serve_metrics *self); /* self is zeroed */
void serve_metrics_close(serve_metrics *self);

void serve_metrics_add(serve_metrics *self, enum serve_count which, uint64_t by);
void serve_metrics_set(serve_metrics *self, enum serve_gauge which, double value);
double serve_metrics_get(serve_metrics *self, enum serve_gauge which);
void serve_metrics_measure(serve_metrics *self, enum serve_time which, double seconds);
void serve_metrics_size(serve_metrics *self, enum serve_size which, uint32_t tokens);
void serve_metrics_finish(serve_metrics *self, enum verbatim_finish finish); /* of an engine request */
void serve_metrics_reply(serve_metrics *self, unsigned http_status);
void serve_metrics_engine(serve_metrics *self, const verbatim_counters *counters);

/* The text, in new memory that the caller frees. ERR_LIMIT: no memory. */
status serve_metrics_text(serve_metrics *self, const serve_metrics_labels *labels, char **text, size_t *bytes);

#endif

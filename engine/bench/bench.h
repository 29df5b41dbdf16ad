/* bench.h - how fast the machine runs a plan: every op alone, whole steps, prompts, and the start. No model is needed: weights and KV
 * rows are random numbers that keep a forward pass finite.
 *
 * Nothing here is part of an engine's life; results depend on the machine and the day. Read next: bench/cost.h, bench/ops.c,
 * bench/model.c. */
#ifndef VERBATIM_BENCH_H
#define VERBATIM_BENCH_H
#include "base/base.h"
#include "bench/cost.h"
#include "plan/plan.h"
#include "verbatim.h"

#define BENCH_LIST_MAX 16u       /* row counts, contexts */
#define BENCH_VARIANT_BYTES 96u
#define BENCH_NAME_BYTES 64u
#define BENCH_PREFILLS_MAX 3u

/* What an H200 reaches, measured: pure reads of more than its L2 cache 4.6 TB/s, reads with a product 4.3; bf16 products of 8192 x 8192 x
 * 8192 random numbers 782 to 800 TFLOP/s at its power limit. (Data sheet: 4.8 TB/s, 989 TFLOP/s.) */
#define BENCH_BYTES_PER_S 4.3e12
#define BENCH_FLOPS_PER_S 790e12

typedef struct bench_list {
  uint32_t values[BENCH_LIST_MAX];
  uint32_t count; /* 0: the default */
} bench_list;

typedef struct bench_options {
  const plan *plan;
  double plan_seconds;            /* that opening it took                                  */
  int device;                     /* as in verbatim_config                                 */
  uint32_t threads;               /* CPU machine, 0: all cores                             */
  const char *cache_dir, *library_path, *program_path; /* as in verbatim_config            */
  bench_list rows, contexts;      /* of the ops; contexts also of the steps                */
  const char *op;                 /* only ops of these names, and no steps; null: all      */
  bool no_ops;                    /* only steps                                            */
  const plan_product *unchecked;  /* [unchecked_count] as in exec_options: products with other bits, to measure what ours cost */
  uint32_t unchecked_count;
  double bytes_per_s, flops_per_s; /* of the floors, 0: those of the GPU below, none on the CPU  */
  void (*on_progress)(void *context, const char *what); /* may be null                     */
  void *context;
} bench_options;

typedef struct bench_op { /* all instances of one op over the layers, at one row count */
  char name[BENCH_NAME_BYTES];    /* without its layer                                     */
  const char *kernel;
  char variant[BENCH_VARIANT_BYTES]; /* what computed it                                   */
  uint32_t rows, context;         /* launch rows of its kind; context 0: it does not matter */
  uint32_t instances;             /* in a step                                             */
  uint32_t timed, launches;       /* instances that were timed, launches in a replay       */
  bool is_cached;                 /* a replay's weights and KV rows fit the GPU's L2 cache, which in a step they do not */
  uint32_t experts_used;          /* of a product of experts; of others 0                  */
  double us, us_least;            /* of one launch: median and least of the replays        */
  bench_cost cost;                /* of one launch                                         */
  double floor_us;
} bench_op;

typedef struct bench_decode { /* steps of `batch` sequences that have `context` tokens each */
  uint32_t batch, context, steps;
  double step_us, gap_us;         /* averages; gap: of the GPU between the ops of two steps */
  double tokens_per_s;
  bench_cost cost;                /* of a step */
  double floor_us;                /* weights and KV rows alone */
  double ops_us;                  /* sum over the ops, each timed alone; 0: not measured at this size */
} bench_decode;

typedef struct bench_prefill {
  uint32_t prompts, tokens, steps; /* tokens of one prompt */
  double us, tokens_per_s, floor_us; /* until the last one's first token, best of three (CPU: one) */
  bench_cost cost;
} bench_prefill;

typedef struct bench_report {
  char device[128];
  bool is_gpu;
  uint32_t driver_version, nvrtc_version; /* as in verbatim_info */
  uint64_t cublaslt_version;
  double bytes_per_s, flops_per_s; /* of the floors, 0: not known */
  verbatim_stages stages;         /* text and weights: none */
  uint32_t graphs;
  double fill_seconds;            /* random weights and KV rows */
  bench_op *ops;
  uint32_t op_count;
  bench_decode *decodes;
  uint32_t decode_count;
  bench_prefill prefills[BENCH_PREFILLS_MAX];
  uint32_t prefill_count;
} bench_report;

typedef struct bench bench;

/* Opens the machine and measures everything. The report is valid until bench_close. ERR_USAGE: no op has one of the names, or a row
 * count or context is beyond the plan's limits. ERR_DEVICE: no such device. */
status bench_open(bench **out, const bench_options *options);
const bench_report *bench_results(const bench *self);
void bench_close(bench *self); /* null is allowed */

#endif

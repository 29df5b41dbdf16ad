/* bench.h - how fast this machine runs a plan: each op alone, whole steps, prompts, and the start. No model is needed: weights and KV rows
 * are random numbers that keep a forward pass finite.
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
#define BENCH_PREFILLS_MAX BENCH_LIST_MAX
#define BENCH_GRAPH_US_MAX 100000u

/* Measured on an H200: pure reads of more than its L2 cache 4.6 TB/s, reads with a product 4.3; bf16 products of 8192 x 8192 x 8192 random
 * numbers 782 to 800 TFLOP/s at its power limit. (Data sheet: 4.8 TB/s, 989 TFLOP/s.) */
#define BENCH_BYTES_PER_S 4.3e12
#define BENCH_FLOPS_PER_S 790e12
#define BENCH_LINK_BYTES_PER_S 450e9 /* data sheet of NVLink 4: from a GPU to all others together */

typedef struct bench_list {
  uint32_t values[BENCH_LIST_MAX];
  uint32_t count; /* 0: the default */
} bench_list;

typedef struct bench_options {
  const plan *plan;
  double plan_seconds;            /* duration of opening the plan                       */
  int device;                     /* as in verbatim_config                              */
  uint32_t threads;               /* CPU backend, 0: all cores                          */
  const char *cache_dir, *library_path, *program_path; /* as in verbatim_config         */
  bench_list rows, contexts;      /* for the ops; contexts also for the steps           */
  bench_list prompts;             /* tokens of prompts, each alone                      */
  double acceptance[BENCH_LIST_MAX]; /* [acceptance_count], at least one: share of right drafts by place; the last of later places too */
  uint32_t acceptance_count;
  const char *op;                 /* only ops with these names, and no steps; null: all */
  bool no_ops;                    /* only steps                                         */
  uint32_t graph_us;              /* an op's replay takes at least so long, up to BENCH_GRAPH_US_MAX; 0: shorter for short ops */
  const plan_product *unchecked;  /* [unchecked_count] as in exec_options: products with other bits, to measure the cost of ours */
  uint32_t unchecked_count;
  bench_rates rates;              /* of the floors, 0: the GPU's rates above; none on the CPU */
  void (*on_progress)(void *context, const char *what); /* may be null                               */
  void *context;
} bench_options;

typedef struct bench_op { /* all instances of one op over the layers, at one row count */
  char name[BENCH_NAME_BYTES];    /* name without its layer                            */
  const char *kernel;
  char variant[BENCH_VARIANT_BYTES]; /* name of the backend or library                     */
  uint32_t rows, context;         /* launch rows of its kind; context 0: irrelevant        */
  uint32_t instances;             /* number of instances in a step                         */
  uint32_t timed, launches;       /* timed instances, launches in a replay                 */
  bool is_cached;                 /* the weights and KV rows of a replay fit the GPU's L2 cache, unlike those of a step */
  uint32_t experts_used;          /* experts used by a product of experts; else 0          */
  double us, us_least;            /* time of one launch: median and minimum of the replays */
  bench_cost cost;                /* of one launch                                         */
  double floor_us;
  double nccl_us;                 /* of ncclAllGather of the bytes that an exchange sends; 0: not measured */
} bench_op;

typedef struct bench_decode { /* steps of `batch` sequences with `context` tokens each */
  uint32_t batch, context, steps;
  uint32_t drafts;                /* of each sequence, beside its newest token; tokens_per_s as options.acceptance has it */
  double step_us, gap_us;         /* averages; gap: idle time of the GPU between the ops of two steps */
  double tokens_per_s;
  bench_cost cost;                /* of a step                                                         */
  double floor_us;                /* only weights, KV rows and what is sent                            */
  double ops_us;                  /* sum over the ops, each timed alone; 0: not measured for this size */
  double exchanges_us;            /* those of them that send to other ranks                           */
} bench_decode;

typedef struct bench_prefill {
  uint32_t prompts, tokens, steps; /* tokens of one prompt */
  double us, tokens_per_s, floor_us; /* until the last prompt's first token, best of three (CPU: one run) */
  bench_cost cost;
} bench_prefill;

typedef struct bench_report {
  char device[128];
  bool is_gpu;
  uint32_t driver_version, nvrtc_version; /* as in verbatim_info */
  uint64_t cublaslt_version;
  uint32_t ranks;                 /* GPUs, or what the CPU runs as such */
  uint64_t planned_bytes;         /* of each GPU, as verbatim_memory.planned          */
  uint64_t reserved_bytes[RANKS_MAX]; /* measured, of each rank's GPU; 0 on the CPU   */
  uint32_t nccl_version;          /* as in nccl.h; 0: exchanges are not compared with NCCL */
  char nccl_note[FAIL_TEXT_MAX];  /* why they are not, or ""            */
  bench_rates rates;              /* of the floors */
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

/* Opens the backend and measures everything. The report is valid until bench_close. ERR_USAGE: no op has one of the names, or a row count,
 * context or prompt is beyond the plan's limits. ERR_DEVICE: no such device. */
status bench_open(bench **out, const bench_options *options);
const bench_report *bench_results(const bench *self);
void bench_close(bench *self); /* null is allowed */

#endif

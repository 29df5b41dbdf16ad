/* bench/probe_gpu.h - runs, compares and times the products of some plans on a GPU, with our kernels and with cuBLASLt's algorithms.
 *
 * Owns the device, random inputs and the copies of the weights. cli/probe.c decides which algorithm is tried for which rows. */
#ifndef VERBATIM_BENCH_PROBE_GPU_H
#define VERBATIM_BENCH_PROBE_GPU_H
#include "base/dynlib.h"
#include "gpu/gemm_lt.h"
#include "gpu/gpu.h"

#define BENCH_PROBE_WORKSPACE_BYTES (32u << 20)

typedef struct bench_probe_gpu bench_probe_gpu;

typedef struct bench_probe_product { /* an unbatched gemm that some plan has */
  gemm_lt_shape lt;
  uint32_t rows_max;
} bench_probe_product;

/* Opens the plans, the device and its libraries, found by `libraries`, and fills the inputs. */
status bench_probe_gpu_open(const char *const *plans, uint32_t plan_count, uint32_t device, const dynlib_search *libraries,
                            const char *cache_dir, bench_probe_gpu **out);
void bench_probe_gpu_close(bench_probe_gpu *self); /* null is allowed */

const bench_probe_product *bench_probe_gpu_products(const bench_probe_gpu *self, uint32_t *count);
gemm_lt *bench_probe_gpu_library(bench_probe_gpu *self);
const gpu_info *bench_probe_gpu_info(const bench_probe_gpu *self);

/* Whether a plan computes `rows` rows of this product, so that there is a result to compare with. */
bool bench_probe_gpu_has(const bench_probe_gpu *self, const bench_probe_product *product, uint32_t rows);

/* Call before the functions below: computes `rows` rows with our kernel and stores the digests of the rows. */
status bench_probe_gpu_begin(bench_probe_gpu *self, const bench_probe_product *product, uint32_t rows);

/* Whether all rows of this algorithm equal ours, bit for bit, in two runs. An algorithm that cannot run gives false. */
bool bench_probe_gpu_agrees(bench_probe_gpu *self, gemm_lt_op *op);

/* Microseconds per call; op null: our kernel. guess: from a few direct calls. time: the median of replays of a graph whose calls use
 * different copies of the weights, so that no cache holds them. */
status bench_probe_gpu_guess(bench_probe_gpu *self, gemm_lt_op *op, double *us);
status bench_probe_gpu_time(bench_probe_gpu *self, gemm_lt_op *op, double *us);

#endif

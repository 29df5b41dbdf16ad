/* bench/probe_gpu.h - the products of some plans on a GPU, by our kernels and by cuBLASLt's algorithms: run, compared, timed.
 *
 * Owns the device, random inputs and the copies of the weights. Which algorithm is tried for which rows is cli/probe.c's. */
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

/* Does a plan compute `rows` rows of this product, so that there is something to compare with? */
bool bench_probe_gpu_has(const bench_probe_gpu *self, const bench_probe_product *product, uint32_t rows);

/* Before the following: computes `rows` rows by our kernel and keeps the digests of its rows. */
status bench_probe_gpu_begin(bench_probe_gpu *self, const bench_probe_product *product, uint32_t rows);

/* Are all rows of this algorithm ours, bit for bit, twice? An algorithm that does not run gives none. */
bool bench_probe_gpu_agrees(bench_probe_gpu *self, gemm_lt_op *op);

/* op null: our kernel. guess: a few direct calls. time: the median of replays of a graph of calls whose weights take turns, so that no
 * cache holds them; us per call. */
status bench_probe_gpu_guess(bench_probe_gpu *self, gemm_lt_op *op, double *us);
status bench_probe_gpu_time(bench_probe_gpu *self, gemm_lt_op *op, double *us);

#endif

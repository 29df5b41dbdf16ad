/* cli_probe_gpu.h - the products of some plans on a GPU, by our kernels and by cuBLASLt's algorithms: run, compared, timed.
 *
 * Owns the device, random inputs and the copies of the weights. Which algorithm is tried for which rows is cli_probe.c's. */
#ifndef VERBATIM_CLI_PROBE_GPU_H
#define VERBATIM_CLI_PROBE_GPU_H
#include "gemm_lt.h"
#include "gpu.h"

#define CLI_PROBE_WORKSPACE_BYTES (32u << 20)

typedef struct cli_probe_gpu cli_probe_gpu;

typedef struct cli_probe_product { /* an unbatched gemm that some plan has */
  gemm_lt_shape lt;
  uint32_t rows_max;
} cli_probe_product;

/* Opens the plans, the device and the libraries, and fills the inputs. */
status cli_probe_gpu_open(const char *const *plans, uint32_t plan_count, uint32_t device, const char *cache_dir, cli_probe_gpu **out);
void cli_probe_gpu_close(cli_probe_gpu *self); /* null is allowed */

const cli_probe_product *cli_probe_gpu_products(const cli_probe_gpu *self, uint32_t *count);
gemm_lt *cli_probe_gpu_library(cli_probe_gpu *self);
const gpu_info *cli_probe_gpu_info(const cli_probe_gpu *self);

/* Does a plan compute `rows` rows of this product, so that there is something to compare with? */
bool cli_probe_gpu_has(const cli_probe_gpu *self, const cli_probe_product *product, uint32_t rows);

/* Before the following: computes `rows` rows by our kernel and keeps the digests of its rows. */
status cli_probe_gpu_begin(cli_probe_gpu *self, const cli_probe_product *product, uint32_t rows);

/* Are all rows of this algorithm ours, bit for bit, twice? An algorithm that does not run gives none. */
bool cli_probe_gpu_agrees(cli_probe_gpu *self, gemm_lt_op *op);

/* op null: our kernel. guess: a few direct calls. time: the median of replays of a graph of calls whose weights take turns, so that no
 * cache holds them; us per call. */
status cli_probe_gpu_guess(cli_probe_gpu *self, gemm_lt_op *op, double *us);
status cli_probe_gpu_time(cli_probe_gpu *self, gemm_lt_op *op, double *us);

#endif

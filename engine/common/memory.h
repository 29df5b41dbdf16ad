/* common/memory.h - the memory of the device that a plan may count on: what `device-memory-bytes: auto` stands for.
 *
 * On a GPU what is free now, less CLI_MEMORY_RESERVE_BYTES for kernels, graphs and the driver. On the CPU three quarters of the RAM, or of
 * what a control group allows. Both are rounded down, so that small changes of the free memory give the same plan. Must not know plans.
 * Read next: gpu/gpu.h. */
#ifndef VERBATIM_CLI_MEMORY_H
#define VERBATIM_CLI_MEMORY_H
#include "base/base.h"
#include <stdio.h>

#define CLI_MEMORY_RESERVE_BYTES (1ull << 30)
#define CLI_MEMORY_GRAIN_BYTES (256ull << 20) /* the number is a multiple of it */

typedef struct cli_memory {
  uint64_t bytes; /* a multiple of the grain, at least one */
  bool is_gpu;
  char from[160]; /* for messages: "139.2 GiB free on GPU 0 (NVIDIA H200)" */
} cli_memory;

/* device: as in verbatim_config. gpu_count: GPUs of the plan, from this one on; the one with the least free memory counts. Without a GPU
 * that the engine would use, AUTO is the CPU. ERR_DEVICE: a GPU is asked for and cannot be used; ERR_LIMIT: less than one grain. */
status cli_memory_find(int device, uint32_t gpu_count, cli_memory *out);

/* Prints the number and where it comes from, as one line. */
void cli_memory_print(const cli_memory *self, FILE *to);

/* Memory of the computer that programs can have now, in bytes: the kernel's MemAvailable, or else `total`. */
uint64_t cli_memory_available(uint64_t total);

#endif

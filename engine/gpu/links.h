/* links.h - measures the ways between the memories of several GPUs: whether bytes arrive as they were sent, how many and how soon.
 *
 * For `verbatim doctor`; no engine needs it. Read next: gpu.h. */
#ifndef VERBATIM_GPU_LINKS_H
#define VERBATIM_GPU_LINKS_H
#include "gpu/gpu.h"
#include "kernels_src/abi_ranks.h"

typedef struct links_speed {
  double gb_per_s;   /* of a large copy              */
  double latency_us; /* of a copy of 8 bytes, one after another */
} links_speed;

typedef struct links_report {
  uint64_t free_bytes, total_bytes;        /* memory of the GPU that has the least free */
  links_speed speed[RANKS_MAX][RANKS_MAX]; /* from the first to the second; of a GPU to itself: 0 */
} links_report;

/* Opens the GPUs from number `first` on, takes 128 MiB of each for the while, and copies between every two in both directions. ERR_DEVICE:
 * one cannot be opened or reaches another not at all; ERR_MISMATCH: bytes arrived that were not sent. A fault of the driver ends the
 * process, and names the copy. count: 2 .. RANKS_MAX. */
status links_measure(uint32_t first, uint32_t count, const dynlib_search *search, links_report *out);

#endif

/* queued_gpu.h - a GPU for tests without one: gpu.h and jit.h are wrapped, and kernels are the CPU's functions of their ops.
 *
 * It has real streams: work is queued and executed when something waits for it, either at once or as late as the streams' order allows;
 * host memory is read no earlier. So a copy, a launch or a wait that is missing or out of order in the GPU backend changes the results of a
 * request. It asserts the rules of gpu.h: nothing is created after the freeze, and a capture has launches only. One engine at a time. */
#ifndef VERBATIM_TESTS_QUEUED_GPU_H
#define VERBATIM_TESTS_QUEUED_GPU_H
#include <stdbool.h>
#include <stdint.h>

enum { QUEUED_OPS, QUEUED_BRANCH, QUEUED_INPUTS, QUEUED_RESULTS, QUEUED_STREAMS }; /* in the order in which the backend opens them */

typedef struct queued_gpu {
  bool eager;                      /* work is executed when it is queued */
  bool ignores_waits[QUEUED_STREAMS]; /* planted faults: the stream does not wait for others */
  uint64_t launches, graph_launches, captures, branch_launches; /* of the last engine */
} queued_gpu;

extern queued_gpu queued;

#endif

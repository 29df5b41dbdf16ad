/* exec/bench.h - what `verbatim bench` needs of exec besides steps: memory filled with numbers, and times of chosen ops.
 *
 * Ops are timed as steps run them, on the inputs that the last step left in memory: on a GPU in a captured graph that is replayed, on the
 * CPU one after the other. Only before the freeze, while no step is in flight. Read next: exec.h, bench/ops.c. */
#ifndef VERBATIM_EXEC_BENCH_H
#define VERBATIM_EXEC_BENCH_H
#include "exec/exec.h"

#define EXEC_BENCH_REPLAYS_MAX 33u

typedef struct exec_bench {
  exec *machine;
  uint32_t first_mark; /* of EXEC_BENCH_REPLAYS_MAX + 1 */
} exec_bench;

typedef struct exec_bench_list { /* launches of ops[0 .. count), in turn, for these rows; the last launch is of the last op */
  const uint32_t *ops;
  uint32_t count, launches;
  uint32_t token_rows, logit_rows;
  uint64_t gather_bytes; /* not 0: instead of ops, launches of NCCL that gather so many bytes of each rank, anywhere in the work region */
} exec_bench_list;

/* The op of launch i. Later ops read what the last op of the list made, however many launches there are. */
static inline uint32_t exec_bench_op(const exec_bench_list *list, uint32_t i) {
  return list->ops[(i + list->count - list->launches % list->count) % list->count];
}

/* After exec_start_kernels. */
status exec_bench_open(exec_bench *self, exec *machine);

/* Writes bytes of a region over and over with the pattern, of at most EXEC_BENCH_PATTERN_BYTES. */
#define EXEC_BENCH_PATTERN_BYTES (4ull << 20)
void exec_bench_fill(exec_bench *self, uint32_t region, uint64_t offset, uint64_t bytes, const void *pattern, uint64_t pattern_bytes);

/* One run by direct launches, in microseconds, launch time of the host included. */
double exec_bench_once(exec_bench *self, const exec_bench_list *list);

/* us[i]: time of replay i of the whole list; replays: 1 .. EXEC_BENCH_REPLAYS_MAX. One more replay runs before them. */
status exec_bench_time(exec_bench *self, const exec_bench_list *list, uint32_t replays, double *us);

/* Whether there is NCCL, and room for that many bytes of each rank. */
bool exec_bench_can_gather(const exec_bench *self, uint64_t bytes);

/* Whether a library algorithm computes this op for so many rows. */
bool exec_bench_uses_library(const exec_bench *self, uint32_t op, uint32_t rows);

#endif
